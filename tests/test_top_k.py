"""The greatest few of rows against a stable sort: dtypes, ties, NaN, rows in and out of order, axes, batches, derivatives."""
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import DTypeError, ShapeError
from tests.scale import examples

DTYPES = ("f2", ml_dtypes.bfloat16, "f4", "f8", "i1", "i4", "i8", "u1", "u8", "?")
FEW = (0, 1, 2, 5, 70)


def best(x, k):
    """By a stable sort of the row backwards, in which NaN comes last."""
    wide = x.astype("f4") if x.dtype == ml_dtypes.bfloat16 else x
    order = np.argsort(wide[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :k]
    return x.shape[-1] - 1 - order


@cache
def compiled(k, dtype):
    return lw.jit(lambda x: lax.top_k(x, k))


def rows(rng, dtype, n, arrangement, special):
    x = rng.integers(0, 5, (3, n)) if arrangement == "ties" else rng.integers(-10_000, 10_000, (3, n)) / 7
    x = np.sort(x, -1) if arrangement == "rising" else np.sort(x, -1)[:, ::-1] if arrangement == "falling" else x
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    if special and x.dtype not in (np.dtype(d) for d in ("i1", "i4", "i8", "u1", "u8", "?")):
        some = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], x.shape)
        x = np.where(rng.random(x.shape) < 0.05, some, x).astype(dtype)
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@examples(40)
@given(n=st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 260, 300, 536, 537, 1000, 3001]), k=st.sampled_from(FEW),
       arrangement=st.sampled_from(["random", "ties", "rising", "falling"]), special=st.booleans(), seed=st.integers(0, 99))
def test_values_and_positions(dtype, n, k, arrangement, special, seed):
    if k > n:
        k = n
    x = rows(np.random.default_rng(seed), dtype, n, arrangement, special)
    at = best(x, k)
    f = compiled(k, dtype) if k in FEW else lw.jit(lambda x: lax.top_k(x, k))
    for values, positions in (f(x), lax.top_k(x, k)):
        assert positions.dtype == np.int32
        np.testing.assert_array_equal(positions, at)
        np.testing.assert_array_equal(values.astype("f8"), np.take_along_axis(x, at, -1).astype("f8"))


def test_one_compile_for_all_lengths():
    f = lw.jit(lambda x: lax.top_k(x, 3)[1])
    for shape in ((2, 5), (3, 300), (7, 2000), (2, 33)):
        x = np.random.default_rng(0).normal(size=shape)
        np.testing.assert_array_equal(f(x), best(x, 3))
    assert f.compiles == 1


def test_axes_batches_and_derivatives():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    values, at = lw.jit(lambda x: lax.top_k(x, 4, axis=0))(x)
    np.testing.assert_array_equal(at, best(x.T, 4).T)
    np.testing.assert_array_equal(values, np.take_along_axis(x, best(x.T, 4).T, 0))
    np.testing.assert_array_equal(lw.jit(lw.vmap(lambda r: lax.top_k(r, 4)[1], in_axes=1))(x), best(x.T, 4))
    weights = np.array([1.0, 2, 3, 4])
    gradient = lw.jit(lw.grad(lambda r: np.sum(lax.top_k(r, 4)[0] * weights)))(x[:, 0])
    want = np.zeros(400)
    want[best(x[:, 0], 4)] = weights
    np.testing.assert_array_equal(gradient, want)


def test_what_is_refused():
    with pytest.raises(ShapeError, match="has no 5 elements"):
        lw.jit(lambda x: lax.top_k(x, 5))(np.ones((2, 4)))
    with pytest.raises(DTypeError):
        lw.jit(lambda x: lax.top_k(x, 1))(np.ones((2, 4), complex))
