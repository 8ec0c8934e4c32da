"""Convolutions and reductions over windows as loops over every position in plain NumPy."""
import numpy as np
import pytest

import loopwright as lw


def draw(shape, dtype="f8", seed=0):
    rng = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -4, 5, shape).astype(dtype)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype.kind == "c" else x).astype(dtype)


def pads_of(padding, sizes, windows, strides, dilation):
    """Pairs of pads, by XLA's definitions."""
    if not isinstance(padding, str):
        return list(padding)
    out = []
    for n, w, s, d in zip(sizes, windows, strides, dilation, strict=True):
        if padding == "VALID":
            out.append((0, 0))
            continue
        total = max((-(-n // s) - 1) * s + (w - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        out.append((small, large) if padding == "SAME" else (large, small))
    return out


def spread(x, base, pads, value):
    """x with value between its elements and around it; negative pads crop."""
    for a, (b, (low, high)) in enumerate(zip(base, pads, strict=True)):
        n = x.shape[a]
        line = np.full((*x.shape[:a], (n - 1) * b + 1 if n else 0, *x.shape[a + 1:]), value, x.dtype)
        line[(slice(None),) * a + (slice(None, None, b),)] = x
        full = [(0, 0)] * x.ndim
        full[a] = (max(low, 0), max(high, 0))
        x = np.pad(line, full, constant_values=value)
        keep = slice(max(-low, 0), max(x.shape[a] - max(-high, 0), max(-low, 0)))
        x = x[(slice(None),) * a + (keep,)]
    return x


def counts(x, windows, strides, dilation):
    return [max((n - ((w - 1) * d + 1)) // s + 1, 0) for n, w, s, d in zip(x.shape, windows, strides, dilation, strict=True)]


def reduced(x, init, f, windows, strides, pads, base, dilation):
    """One window after another."""
    x = spread(x, base, pads, init)
    out = np.zeros(counts(x, windows, strides, dilation), x.dtype)
    for at in np.ndindex(*out.shape):
        total = x.dtype.type(init)
        for k in np.ndindex(*windows):
            total = f(total, x[tuple(i * s + j * d for i, s, j, d in zip(at, strides, k, dilation, strict=True))])
        out[at] = total
    return out


def convolved(x, kernel, strides, pads, lhs_dilation, rhs_dilation, features=1, batches=1):
    """conv_general_dilated of x[n, c, *space] with kernel[o, i, *space], one position after another."""
    if batches > 1:
        parts = zip(np.split(x, batches, 0), np.split(kernel, batches, 0), strict=True)
        return np.concatenate([convolved(a, b, strides, pads, lhs_dilation, rhs_dilation) for a, b in parts], 1)
    if features > 1:
        parts = zip(np.split(x, features, 1), np.split(kernel, features, 0), strict=True)
        return np.concatenate([convolved(a, b, strides, pads, lhs_dilation, rhs_dilation) for a, b in parts], 1)
    x = spread(x, (1, 1, *lhs_dilation), [(0, 0), (0, 0), *pads], 0)
    window = kernel.shape[2:]
    space = counts(x, (1, 1, *window), (1, 1, *strides), (1, 1, *rhs_dilation))[2:]
    out = np.zeros((x.shape[0], kernel.shape[0], *space), x.dtype)
    for at in np.ndindex(*space):
        for k in np.ndindex(*window):
            place = tuple(i * s + j * d for i, s, j, d in zip(at, strides, k, rhs_dilation, strict=True))
            out[(..., *at)] += x[(..., *place)] @ kernel[(..., *k)].T
    return out


WAYS = {"plain": lambda f: f, "jit": lw.jit}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def differences(f, x, step=1e-5):
    rows = np.eye(x.size).reshape(x.size, *x.shape) * step
    return np.reshape([(f(x + h) - f(x - h)) / (2 * step) for h in rows], x.shape)
