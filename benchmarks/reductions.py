"""Sums over either axis, and chains of reductions over rows with their gradients."""
from __future__ import annotations

import numpy as np

import loopwright as lw
from benchmarks.contest import contest, gradient, torch_gradient
from benchmarks.harness import Timing
from loopwright import nn


def _normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def sums() -> list[Timing]:
    """Sums of 4096 x 4096 float32 over the first axis and over the last."""
    x, found = _normal(4096, 4096), []
    for axis in (0, 1):
        found += contest(f"sum over axis {axis}, 4096x4096 f32", (x,), lambda x, axis=axis: np.sum(x, axis),
                         jax=lambda jax, axis=axis: lambda x: jax.numpy.sum(x, axis),
                         torch=lambda torch, optimised, axis=axis: optimised(lambda x: torch.sum(x, axis)),
                         numba=_sum_of_columns if axis == 0 else _sum_of_rows)
    return found


def _sum_of_columns(numba):
    def f(x):
        total = np.zeros(x.shape[1], x.dtype)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                total[j] += x[i, j]
        return total
    return {"numba": numba.njit(error_model="numpy")(f), "numba fastmath": numba.njit(error_model="numpy", fastmath=True)(f)}


def _sum_of_rows(numba):
    def f(x):
        out = np.empty(x.shape[0], x.dtype)
        for i in range(x.shape[0]):
            total = x.dtype.type(0)
            for j in range(x.shape[1]):
                total += x[i, j]
            out[i] = total
        return out
    return {"numba": numba.njit(error_model="numpy")(f), "numba fastmath": numba.njit(error_model="numpy", fastmath=True)(f)}


def _logsumexp(x):
    m = np.max(x, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(x - m), axis=-1)) + m[:, 0]


def logsumexp() -> list[Timing]:
    """Logarithms of sums of exponentials of 4096 rows of 1000 float32."""
    return contest("logsumexp, 4096x1000 f32", (_normal(4096, 1000),), _logsumexp,
                   jax=lambda jax: lambda x: jax.nn.logsumexp(x, axis=-1),
                   torch=lambda torch, optimised: optimised(lambda x: torch.logsumexp(x, -1)))


def _softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _softmax_slope(x, w):
    y = _softmax(x)
    return (y * (w - np.sum(w * y, axis=-1, keepdims=True)),)


def softmax() -> list[Timing]:
    """Softmax of 4096 rows of 1024 float32, and its gradient."""
    x, w = _normal(4096, 1024), _normal(4096, 1024) + 1
    forward = contest("softmax, 4096x1024 f32", (x,), _softmax, jax=lambda jax: jax.nn.softmax,
                      torch=lambda torch, optimised: optimised(lambda x: torch.softmax(x, -1)))
    return forward + contest(
        "gradient of softmax, 4096x1024 f32", (x, w), gradient(np, lw.grad, nn.softmax, 1), numpy=_softmax_slope,
        expected=_softmax_slope(x.astype("float64"), w.astype("float64")),
        jax=lambda jax: gradient(jax.numpy, jax.grad, jax.nn.softmax, 1),
        torch=lambda torch, optimised: torch_gradient(torch, optimised(lambda x: torch.softmax(x, -1)), 1))


def _cross_entropy(xp, log_softmax):
    return lambda x, labels: -xp.mean(xp.take_along_axis(log_softmax(x), labels[:, None], 1))


def _cross_entropy_slope(x, labels):
    y = _softmax(x)
    y[np.arange(len(y)), labels] -= 1
    return y / len(y)


def cross_entropy() -> list[Timing]:
    """The mean cross entropy of 4096 rows of 1000 float32 and their labels, and its gradient."""
    x, labels = _normal(4096, 1000), np.random.default_rng(1).integers(0, 1000, 4096)
    ours = _cross_entropy(np, nn.log_softmax)
    forward = contest("cross entropy, 4096x1000 f32", (x, labels), ours,
                      numpy=_cross_entropy(np, lambda x: x - _logsumexp(x)[:, None]),
                      jax=lambda jax: _cross_entropy(jax.numpy, jax.nn.log_softmax),
                      torch=lambda torch, optimised: optimised(torch.nn.functional.cross_entropy))
    return forward + contest(
        "gradient of cross entropy, 4096x1000 f32", (x, labels), lw.grad(ours), numpy=_cross_entropy_slope,
        expected=_cross_entropy_slope(x.astype("float64"), labels),
        jax=lambda jax: jax.grad(_cross_entropy(jax.numpy, jax.nn.log_softmax)),
        torch=lambda torch, optimised: _torch_slope(torch, optimised(torch.nn.functional.cross_entropy)))


def _torch_slope(torch, f):
    def run(x, labels):
        watched = x.detach().requires_grad_()
        return torch.autograd.grad(f(watched, labels), watched)[0]
    return run


def _layernorm(xp):
    def f(x, gain, bias):
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gain + bias
    return f


def _layernorm_slopes(x, gain, bias, w):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    scale = 1 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    y, g = centred * scale, w * gain
    inner = g - np.mean(g, axis=-1, keepdims=True) - y * np.mean(g * y, axis=-1, keepdims=True)
    return inner * scale, np.sum(w * y, axis=0), np.sum(w, axis=0)


def layernorm() -> list[Timing]:
    """Rows of 1024 float32 brought to mean 0 and variance 1, 4096 of them, scaled and moved, and the gradients."""
    x, gain, bias, w = _normal(4096, 1024), _normal(1024), _normal(1024) + 1, _normal(4096, 1024)
    forward = contest("layernorm, 4096x1024 f32", (x, gain, bias), _layernorm(np), jax=lambda jax: _layernorm(jax.numpy),
                      torch=lambda torch, optimised: optimised(_torch_layernorm(torch)), numba=_numba_layernorm)
    wide = [a.astype("float64") for a in (x, gain, bias, w)]
    return forward + contest(
        "gradient of layernorm, 4096x1024 f32", (x, gain, bias, w), gradient(np, lw.grad, _layernorm(np), 3),
        numpy=_layernorm_slopes, expected=_layernorm_slopes(*wide), tolerance=1e-4,
        jax=lambda jax: gradient(jax.numpy, jax.grad, _layernorm(jax.numpy), 3),
        torch=lambda torch, optimised: torch_gradient(torch, optimised(_torch_layernorm(torch)), 3))


def _torch_layernorm(torch):
    return lambda x, gain, bias: torch.nn.functional.layer_norm(x, (x.shape[-1],), gain, bias)


def _numba_layernorm(numba):
    def f(x, gain, bias):
        out = np.empty_like(x)
        for i in range(x.shape[0]):
            total = np.float32(0)
            for j in range(x.shape[1]):
                total += x[i, j]
            mean, total = total / np.float32(x.shape[1]), np.float32(0)
            for j in range(x.shape[1]):
                total += (x[i, j] - mean) * (x[i, j] - mean)
            scale = np.float32(1) / np.sqrt(total / np.float32(x.shape[1]) + np.float32(1e-5))
            for j in range(x.shape[1]):
                out[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]
        return out
    return {"numba": numba.njit(error_model="numpy")(f), "numba fastmath": numba.njit(error_model="numpy", fastmath=True)(f)}


def _batchnorm(xp):
    def f(x, gain, bias):
        centred = x - xp.mean(x, axis=(0, 1, 2))
        return centred / xp.sqrt(xp.mean(centred * centred, axis=(0, 1, 2)) + 1e-5) * gain + bias
    return f


def batchnorm() -> list[Timing]:
    """Features of 32 images brought to mean 0 and variance 1, scaled and moved: divided by what few numbers repeat."""
    def theirs(torch):
        batch_norm = torch.nn.functional.batch_norm
        return lambda x, gain, bias: batch_norm(x.permute(0, 3, 1, 2), None, None, gain, bias, True).permute(0, 2, 3, 1)
    return contest("batch norm, 32x28x28x32 f32", (_normal(32, 28, 28, 32), _normal(32), _normal(32) + 1), _batchnorm(np),
                   jax=lambda jax: _batchnorm(jax.numpy), torch=lambda torch, optimised: optimised(theirs(torch)))


WORKLOADS = (sums, logsumexp, softmax, cross_entropy, layernorm, batchnorm)
