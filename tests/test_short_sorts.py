"""Sorts, orders and ranks of many short rows, side by side in vectors, beside NumPy's."""
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples

DTYPES = ["f4", "f8", "i4", "i8", "u1", "i1", "u2", "u4", "u8", "bool", "f2"]
F = {
    "sort": lambda x: np.sort(x, axis=-1), "argsort": lambda x: np.argsort(x, axis=-1, kind="stable"),
    "columns": lambda x: np.sort(x.T, axis=0), "orders": lambda x: np.argsort(x.T, axis=0, kind="stable"),
}


@cache
def jitted(name, dtype):
    return lw.jit(F[name])


@cache
def ranks(dtype):
    return lw.jit(lambda x: (np.median(x, axis=-1), np.quantile(x, [0.1, 0.75], axis=0)))


def rows(count, length, dtype, seed):
    """Few different numbers, all kinds of NaN, both zeros; of integers also the extremes."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (count, length)).astype(dtype)
    if dtype[0] == "f":
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0], dtype)
        return np.where(rng.random(x.shape) < 0.4, rng.choice(special, x.shape), x)
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).max] if dtype != "bool" else [False, True]
    return np.where(rng.random(x.shape) < 0.3, rng.choice(np.array(ends, dtype), x.shape), x)


@examples(60)
@given(st.sampled_from(sorted(F)), st.integers(0, 70), st.integers(0, 35), st.sampled_from(DTYPES), st.integers(0, 99))
def test_short_rows_are_in_order(name, count, length, dtype, seed):
    x = rows(count, length, dtype, seed)
    np.testing.assert_array_equal(jitted(name, dtype)(x), F[name](x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33])
def test_every_length_at_its_edges(length, dtype):
    for count in (1, 7, 8, 9, 15, 16, 17, 100):
        x = rows(count, length, dtype, length)
        for name in ("sort", "argsort"):
            np.testing.assert_array_equal(jitted(name, dtype)(x), F[name](x))


@examples(30)
@given(st.integers(1, 60), st.integers(1, 34), st.sampled_from(["f4", "f8", "i4"]), st.integers(0, 99))
def test_ranks_of_short_rows_and_columns(count, length, dtype, seed):
    x = np.random.default_rng(seed).integers(-9, 9, (count, length)).astype(dtype)
    median, quantiles = ranks(dtype)(x)
    np.testing.assert_allclose(median, np.median(x, axis=-1), rtol=1e-6)
    np.testing.assert_allclose(quantiles, np.quantile(x, [0.1, 0.75], axis=0), rtol=1e-5, atol=1e-5)


def test_rows_are_sorted_alike_by_any_number_of_threads():
    x = np.random.default_rng(0).normal(size=(20_001, 5))
    try:
        for threads in (1, 2):
            lw.set_threads(threads)
            np.testing.assert_array_equal(jitted("sort", "f8")(x), np.sort(x, -1))
            np.testing.assert_array_equal(jitted("argsort", "f8")(x), np.argsort(x, -1, kind="stable"))
    finally:
        lw.set_threads(None)
