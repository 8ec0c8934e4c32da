"""Sums of -0.0 have NumPy's sign: running ones, and those with an initial value; their derivatives are those of sums."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples

ZEROS = st.sampled_from([0.0, -0.0, -0.0, -0.0, 1.0, -1.0])


def same(found, want):
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


def running(x):
    return np.cumsum(x), np.cumsum(x[:, None] + x, axis=0), np.cumsum(x[:, None] + x, axis=1), np.add.accumulate(x)


def started(x, initial, mask):
    square = np.stack([x, -x, x])
    return (np.sum(x, initial=initial), np.sum(x, initial=-0.0), np.sum(x, initial=0.0), np.sum(x),
            np.sum(x, where=mask, initial=initial),
            np.sum(square, axis=0, initial=initial), np.sum(square, axis=1, initial=initial, keepdims=True))


RUNNING, STARTED = lw.jit(running), lw.jit(started)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@examples(40)
@given(x=st.lists(ZEROS, max_size=70), initial=ZEROS, seed=st.integers(0, 9))
def test_signs_of_sums(dtype, x, initial, seed):
    x, mask = np.array(x, dtype), np.random.default_rng(seed).random(len(x)) < 0.5
    for found, want in zip((*RUNNING(x), *STARTED(x, x.dtype.type(initial), mask)),
                           (*running(x), *started(x, x.dtype.type(initial), mask)), strict=True):
        same(found, want)


def test_half_precision():
    x = np.array([-0.0, -0.0, 1, -1, -0.0], "f2")
    same(lw.jit(np.cumsum)(x), np.cumsum(x))
    same(lw.jit(lambda x: np.sum(x[:2], initial=-0.0))(x), np.sum(x[:2], initial=-0.0))


@pytest.mark.parametrize("x", [np.full(3, -0.0), np.array([1.0, 2.0, -3.0])], ids=["zeros", "numbers"])
def test_derivatives_are_those_of_sums(x):
    weights = np.array([1.0, 10.0, 100.0])
    same(lw.grad(lambda x: np.sum(x * weights, initial=-0.0))(x), weights)
    same(lw.jit(lw.grad(lambda s, x: np.sum(x, initial=s)))(-0.0, x), np.float64(1))
    same(lw.grad(lambda x: np.sum(np.cumsum(x) * weights))(x), np.cumsum(weights[::-1])[::-1])
