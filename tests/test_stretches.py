"""Loops that choose by how far they have come (concatenations, padding, rolls), in stretches: NumPy's values at all lengths."""
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples


def with_ends(x):
    out = x.copy()
    out[..., 1:-1] = x[..., 2:] + x[..., :-2]
    return out


FUNCTIONS = {
    "two": lambda x, y: np.concatenate([x, y], -1),
    "three": lambda x, y: np.concatenate([x + 1, y * x[..., :1], x[..., ::-1]], -1),
    "halves": lambda x, y: np.concatenate([x[..., ::2], x[..., 1::2]], -1) * 2,
    "many": lambda x, y: np.concatenate([x, y, x, y, x, y, x, y], -1),
    "one more": lambda x, y: np.concatenate([y, x[..., :1]], -1),
    "roll": lambda x, y: np.roll(x, 3, -1), "stencil": lambda x, y: np.roll(x, 1, -1) + np.roll(x, -1, -1) - x,
    "rolls": lambda x, y: np.roll(x, (1, -2), (0, -1)),
    "padded": lambda x, y: np.pad(x, 2) * 3,
    "one end": lambda x, y: np.pad(y, [(0, 0)] * (y.ndim - 1) + [(3, 0)], constant_values=7),
    "rows": lambda x, y: np.concatenate([x, x * 2, x[:1]], 0), "down": lambda x, y: x[:-1] + x[1:],
    "stencil down": lambda x, y: np.roll(x, 1, 0) - np.roll(x, -1, 0),
    "below": lambda x, y: np.pad(x, [(2, 1)] + [(0, 0)] * (x.ndim - 1)),
    "inside": lambda x, y: np.pad(x, 1)[..., 1:] + np.pad(x, 1)[..., :-1],
    "slopes of a stencil": lambda x, y: sum((k + 1) * np.pad(y, [(0, 0)] * (y.ndim - 1) + [(k, 3 - k)]) for k in range(4)),
    "written between": lambda x, y: with_ends(x) + with_ends(x)[..., ::-1],
    "edge": lambda x, y: np.pad(x, 2, mode="edge"),
    "block": lambda x, y: np.concatenate([np.concatenate([x, y], -1)] * 2, 0),
    "chosen": lambda x, y: np.concatenate([np.where(x > 50, x, -x), y], -1)[..., ::-1],
    "flat roll": lambda x, y: np.roll(x, 5),
}
MODES = ["wrap", "reflect", "symmetric"]
DTYPES = ["f4", "f8", "u1", "bool", "i4"]


@cache
def jitted(name, dtype, rank):
    return lw.jit(lambda x, y: FUNCTIONS[name](x, y))


@cache
def padded(mode, dtype, rank, width):
    return lw.jit(lambda x: np.pad(x, width, mode=mode))


def array(shape, dtype, seed):
    return np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(30)
@given(n=st.one_of(st.integers(2, 12), st.integers(2, 300)), m=st.one_of(st.integers(1, 9), st.integers(1, 300)),
       dtype=st.sampled_from(DTYPES), rows=st.sampled_from([(), (3,), (1,)]), seed=st.integers(0, 99))
def test_choices_along_an_axis(name, n, m, dtype, rows, seed):
    if dtype == "bool" and name in ("stencil", "chosen", "stencil down", "slopes of a stencil", "written between"):
        return
    x, y = array((*rows, n), dtype, seed), array((*rows, m), dtype, seed + 1)
    found, expected = jitted(name, dtype, x.ndim)(x, y), FUNCTIONS[name](x, y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", MODES)
@examples(40)
@given(n=st.integers(1, 40), m=st.integers(1, 9), dtype=st.sampled_from(["f4", "u1"]), rank=st.integers(1, 2),
       width=st.sampled_from([0, 1, 3, (2, 0), (0, 5)]))
def test_padding_by_what_is_there(mode, n, m, dtype, rank, width):
    x = array((m, n)[2 - rank:], dtype, n)
    np.testing.assert_array_equal(padded(mode, dtype, rank, width)(x), np.pad(x, width, mode=mode))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_padding(mode):
    x = np.arange(6.0)
    w = np.random.default_rng(0).normal(size=11)
    slope = lw.jit(lw.grad(lambda x: np.sum(np.pad(x, (2, 3), mode=mode) * w)))(x)
    expected = np.array([np.sum((np.pad(np.eye(6)[k], (2, 3), mode=mode)) * w) for k in range(6)])
    np.testing.assert_allclose(slope, expected)


MASKED = {
    "lower": lambda x, xp: xp.tril(x), "upper": lambda x, xp: xp.triu(x, 2) * 2, "below": lambda x, xp: xp.tril(x, -3) + x,
    "exp": lambda x, xp: xp.exp(xp.where(at(x, xp)[1] <= at(x, xp)[0], x * 0.1, -np.inf)),
    "band": lambda x, xp: xp.where((at(x, xp)[1] <= at(x, xp)[0] + 2) & (at(x, xp)[0] < at(x, xp)[1] + 20), x, 1),
    "both": lambda x, xp: xp.where(at(x, xp)[1] > 7, x, -x) + xp.where(at(x, xp)[1] >= at(x, xp)[0], 1, 2),
    "sum": lambda x, xp: xp.sum(xp.tril(x), -1), "sum of others": lambda x, xp: xp.sum(xp.where(at(x, xp)[1] < 9, x, 1), -1),
    "product": lambda x, xp: xp.prod(xp.where(at(x, xp)[1] >= at(x, xp)[0] + 5, x * 0.001 + 1, 1), -1),
    "max": lambda x, xp: xp.max(xp.where(at(x, xp)[0] >= at(x, xp)[1], x, -np.inf), -1),
    "min": lambda x, xp: xp.min(xp.where(at(x, xp)[0] >= at(x, xp)[1], 2, x), -1),
    "argmax": lambda x, xp: xp.argmax(xp.where(at(x, xp)[0] < at(x, xp)[1], x, -np.inf), -1),
    "any": lambda x, xp: xp.any(xp.where(at(x, xp)[0] < at(x, xp)[1], x > 50, False), -1),
    "softmax": lambda x, xp: softmax(xp.where(at(x, xp)[1] <= at(x, xp)[0], x * 0.1, -np.inf), xp),
    "down": lambda x, xp: xp.sum(xp.tril(x), 0), "all": lambda x, xp: xp.sum(xp.triu(x)),
}


def at(x, xp):
    """Rows' and columns' numbers."""
    return xp.arange(x.shape[0])[:, None], xp.arange(x.shape[1])


def softmax(s, xp):
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


@cache
def masked(name):
    return lw.jit(lambda x: MASKED[name](x, lw.numpy))


@pytest.mark.parametrize("name", MASKED)
@examples(20)
@given(n=st.one_of(st.integers(1, 12), st.integers(1, 300)), m=st.one_of(st.integers(1, 9), st.integers(1, 300)),
       dtype=st.sampled_from(["f4", "f8"]), seed=st.integers(0, 99))
def test_masks_of_rows_and_columns(name, n, m, dtype, seed):
    x = array((n, m), dtype, seed)
    found, expected = masked(name)(x), MASKED[name](x, np)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "f4" else 1e-12)


def test_an_index_where_a_mask_hides_it_is_checked():
    f = lw.jit(lambda x, k: lw.numpy.where(lw.numpy.arange(x.shape[0]) < 3, x[k], 0.0))
    x, k = np.arange(5.0), np.array([0, 1, 2, 3, 9])
    with pytest.raises(IndexError, match="9"):
        f(x, k)
