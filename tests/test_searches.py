"""Searches by halving against NumPy: dtypes, sides, NaN, ties, orders given apart, tables of any size, batches, derivatives."""
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import DTypeError
from tests.scale import examples

DTYPES = ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "u8", "?")


@cache
def compiled(side, kind=""):
    """A function for each kind of arguments, which are of many."""
    return lw.jit(lambda a, v: np.searchsorted(a, v, side=side))


def numbers(rng, dtype, shape, special):
    x = rng.integers(0, 6, shape).astype(dtype)
    if special and x.dtype.kind == "f":
        x = np.where(rng.random(shape) < 0.3, rng.choice([np.nan, -np.nan, np.inf, -np.inf, -0.0], shape), x).astype(dtype)
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@examples(15)
@given(n=st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 1000]), shape=st.sampled_from([(), (1,), (19,), (3, 5)]),
       side=st.sampled_from(["left", "right"]), special=st.booleans(), seed=st.integers(0, 99))
def test_positions(dtype, n, shape, side, special, seed):
    rng = np.random.default_rng(seed)
    a, v = np.sort(numbers(rng, dtype, n, special)), numbers(rng, dtype, shape, special)
    np.testing.assert_array_equal(compiled(side, dtype)(a, v), np.searchsorted(a, v, side))


@pytest.mark.parametrize(("first", "second"), [("i4", "f4"), ("f4", "f8"), ("i8", "u8"), ("?", "i2")])
def test_dtypes_meet_as_in_numpy(first, second):
    rng = np.random.default_rng(0)
    a, v = np.sort(rng.integers(0, 2, 9).astype(first)), rng.integers(0, 3, 20).astype(second)
    for side in ("left", "right"):
        np.testing.assert_array_equal(compiled(side, first)(a, v), np.searchsorted(a, v, side))


def test_one_compile_for_all_sizes_and_numbers_of_python():
    f = lw.jit(lambda a, v: np.searchsorted(a, v) + np.searchsorted(a, 0.1))
    for n in (2, 3, 10, 100, 5000):
        a = np.linspace(-1, 1, n).astype("f4")
        np.testing.assert_array_equal(f(a, a[::-1].copy()), np.searchsorted(a, a[::-1]) + np.searchsorted(a, 0.1))
    assert f.compiles == 1


@examples(15)
@given(n=st.integers(1, 40), q=st.integers(1, 20), side=st.sampled_from(["left", "right"]), seed=st.integers(0, 99))
def test_orders_given_apart_and_tables_computed_on_the_way(n, q, side, seed):
    rng = np.random.default_rng(seed)
    a, v = rng.normal(size=n), rng.normal(size=q)

    def f(a, v):
        order = np.argsort(a)
        return np.searchsorted(a, v, side, order), np.searchsorted(np.cumsum(np.exp(a)), np.exp(v), side)
    np.testing.assert_array_equal(lw.jit(f)(a, v)[0], f(a, v)[0])
    np.testing.assert_array_equal(lw.jit(f)(a, v)[1], np.searchsorted(np.cumsum(np.exp(a)), np.exp(v), side))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (1, 1)])
def test_batches_of_tables_and_values(axes):
    rng = np.random.default_rng(0)
    a, v = np.sort(rng.integers(0, 9, (4, 11)), -1).astype("f8"), rng.integers(-1, 10, (4, 6)).astype("f8")
    pairs = [(a[k] if axes[0] is not None else a[0], v[k] if axes[1] is not None else v[0]) for k in range(4)]
    args = (a if axes[0] is not None else a[0], v if axes[1] is not None else v[0])
    args = tuple(x.T.copy() if axis == 1 else x for x, axis in zip(args, axes, strict=True))
    found = lw.jit(lw.vmap(np.searchsorted, in_axes=axes))(*args)
    np.testing.assert_array_equal(found, [np.searchsorted(*pair) for pair in pairs])


def test_batches_of_batches():
    rng = np.random.default_rng(1)
    a, v = np.sort(rng.normal(size=(3, 2, 7)), -1), rng.normal(size=(3, 2, 5))
    found = lw.jit(lw.vmap(lw.vmap(np.searchsorted)))(a, v)
    np.testing.assert_array_equal(found, [[np.searchsorted(a[i, j], v[i, j]) for j in range(2)] for i in range(3)])


@examples(15)
@given(n=st.integers(1, 30), q=st.integers(1, 30), seed=st.integers(0, 99))
def test_interpolation_and_its_derivatives(n, q, seed):
    rng = np.random.default_rng(seed)
    x, xp, fp = rng.normal(size=q), np.sort(rng.normal(size=n)), rng.normal(size=n)
    np.testing.assert_allclose(INTERP(x, xp, fp), np.interp(x, xp, fp), rtol=1e-12, atol=1e-12)
    step = rng.normal(size=n)
    _, slope = lw.jvp(lambda fp: np.interp(x, xp, fp), (fp,), (step,))
    np.testing.assert_allclose(slope, np.interp(x, xp, step), rtol=1e-9, atol=1e-9)  # linear in fp
    weights = rng.normal(size=q)
    back = lw.jit(lw.grad(lambda fp: np.sum(np.interp(x, xp, fp) * weights)))(fp)
    np.testing.assert_allclose(np.sum(back * step), np.sum(weights * np.interp(x, xp, step)), rtol=1e-9, atol=1e-9)
    inside = (x > xp[0]) & (x < xp[-1])
    at = np.clip(np.searchsorted(xp, x, "right") - 1, 0, max(n - 2, 0))
    if n > 1:
        want = np.where(inside, (fp[at + 1] - fp[at]) / (xp[at + 1] - xp[at]), 0)
        np.testing.assert_allclose(lw.grad(lambda x: np.sum(np.interp(x, xp, fp)))(x), want, rtol=1e-7, atol=1e-9)


INTERP = lw.jit(lambda x, xp, fp: np.interp(x, xp, fp))


def test_a_search_joins_what_follows_it_but_takes_no_table_in():
    f = lw.jit(lambda a, v: np.searchsorted(a * 2 + 1, v) * 3)
    a, v = np.linspace(0, 1, 9), np.linspace(0, 4, 50)
    np.testing.assert_array_equal(f(a, v), np.searchsorted(a * 2 + 1, v) * 3)
    assert f.lower(a, v).kernels.count("kernel(") == 2  # the table, and the search with its product


def test_what_is_refused():
    with pytest.raises(ValueError, match="side must be 'left' or 'right'"):
        lw.jit(lambda a, v: np.searchsorted(a, v, side="middle"))(np.ones(3), np.ones(2))
    with pytest.raises(DTypeError, match="complex numbers are in no order"):
        lw.jit(lambda a, v: np.searchsorted(a, v))(np.ones(3), np.ones(2, complex))
    with pytest.raises(ValueError, match="an array of one axis"):
        lw.jit(lambda a, v: np.searchsorted(a, v))(np.ones((3, 2)), np.ones(2))
