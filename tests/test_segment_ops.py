"""Segments against NumPy row by row: values, indices outside, derivatives at ties and zeros, symbolic numbers of segments."""
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import ops
from tests.scale import examples

FUNCTIONS = {"segment_sum": np.sum, "segment_prod": np.prod, "segment_max": np.max, "segment_min": np.min}
NEUTRAL = {"segment_sum": 0.0, "segment_prod": 1.0, "segment_max": -math.inf, "segment_min": math.inf}


def rows(name: str, data: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """The meaning, segment by segment."""
    out = np.full((count, *data.shape[1:]), NEUTRAL[name], data.dtype)
    for k in range(count):
        if np.any(ids == k):
            out[k] = FUNCTIONS[name](data[ids == k], axis=0)
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(15)
@given(n=st.integers(0, 7), m=st.sampled_from([None, 0, 1, 3]), count=st.integers(0, 4), seed=st.integers(0, 99))
def test_values_and_derivatives(name, n, m, count, seed):
    rng = np.random.default_rng(seed)
    shape = (n,) if m is None else (n, m)
    data, ids = rng.integers(-2, 3, shape) * 0.5, rng.integers(-1, count + 1, n)

    def f(x, i):
        return getattr(ops, name)(x, i, count)

    want = rows(name, data, ids, count)
    np.testing.assert_allclose(f(data, ids), want)
    weights = rng.normal(size=want.shape)
    smooth = rng.normal(size=shape)  # no ties

    def loss(x):
        return np.sum(np.where(np.isfinite(want), f(x, ids), 0) * weights)

    gradient = lw.grad(loss)(smooth)
    step = rng.normal(size=shape)
    h = 1e-6
    difference = (loss(smooth + h * step) - loss(smooth - h * step)) / (2 * h)
    assert math.isclose(np.sum(gradient * step), difference, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_batched_and_sized_by_an_argument(name):
    rng = np.random.default_rng(0)
    f = getattr(ops, name)
    sized = lw.jit(lambda x, i, like: f(x, i, like.shape[0]))
    for n, count in ((6, 4), (9, 3), (5, 7)):
        data, ids = rng.normal(size=(n, 2)), rng.integers(-2, count + 2, n)
        np.testing.assert_allclose(sized(data, ids, np.zeros(count)), rows(name, data, ids, count))
    assert sized.compiles == 1
    data, ids = rng.normal(size=(4, 6)), rng.integers(0, 3, (4, 6))
    for how in (lw.vmap(lambda x, i: f(x, i, 3)), lw.jit(lw.vmap(lambda x, i: f(x, i, 3)))):
        np.testing.assert_allclose(how(data, ids), [rows(name, x, i, 3) for x, i in zip(data, ids, strict=True)])
    g = lw.jit(lw.grad(lambda x: np.sum(np.where(np.isfinite(f(x, ids[0], 3)), f(x, ids[0], 3), 0) ** 2)))
    np.testing.assert_allclose(g(data[0]), lw.grad(lambda x: np.sum(
        np.where(np.isfinite(f(x, ids[0], 3)), f(x, ids[0], 3), 0) ** 2))(data[0]))


def test_ties_share():
    x, ids = np.array([3.0, 1.0, 3.0, 5.0]), np.array([0, 0, 0, 1])
    np.testing.assert_allclose(lw.grad(lambda x: ops.segment_max(x, ids, 2)[0])(x), [0.5, 0, 0.5, 0])
    np.testing.assert_allclose(lw.grad(lambda x: ops.segment_min(-x, ids, 2)[0])(x), [-0.5, 0, -0.5, 0])


@pytest.mark.parametrize("x", [[2.0, 3.0, 5.0], [0.0, 3.0, 5.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
def test_products_with_zeros_have_first_and_second_derivatives(x):
    x = np.array(x)

    def product(x):
        return ops.segment_prod(x, np.zeros(3, int), 1)[0]

    first = [x[1] * x[2], x[0] * x[2], x[0] * x[1]]
    second = [[0, x[2], x[1]], [x[2], 0, x[0]], [x[1], x[0], 0]]
    np.testing.assert_allclose(lw.grad(product)(x), first)
    np.testing.assert_allclose(lw.hessian(product)(x), second)
    np.testing.assert_allclose(lw.jit(lw.hessian(product))(x), second)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool, np.float32])
def test_dtypes_and_neutral_elements(dtype):
    data, ids = np.array([1, 0, 1]).astype(dtype), np.array([0, 0, 2])
    for how in (lambda f: f, lw.jit):
        low, high = how(lambda x: ops.segment_max(x, ids, 3))(data), how(lambda x: ops.segment_min(x, ids, 3))(data)
        assert low.dtype == high.dtype == dtype
        limits = (False, True) if dtype is bool else (-np.inf, np.inf) if dtype is np.float32 else (
            np.iinfo(dtype).min, np.iinfo(dtype).max)
        assert (low[1], high[1]) == limits
        assert (low[0], high[0]) == (1, 0)


def test_numbers_outside_and_modes():
    data, ids = np.array([1.0, 2.0, 4.0, 8.0]), np.array([-1, 0, 5, -3])
    np.testing.assert_array_equal(ops.segment_sum(data, ids, 2), [2, 0])
    np.testing.assert_array_equal(ops.segment_sum(data, ids, 2, mode="clip"), [11, 4])
    np.testing.assert_array_equal(lw.jit(lambda x: ops.segment_sum(x, ids, 2, mode="clip"))(data), [11, 4])
    np.testing.assert_array_equal(ops.segment_sum(data, np.array([1, 0, 1, 3])), [2, 5, 0, 8])


def test_errors():
    data = np.ones(3)
    with pytest.raises(lw.ArgumentError, match="num_segments="):
        lw.jit(ops.segment_sum)(data, np.zeros(3, int))
    with pytest.raises(lw.DTypeError, match="must be integers"):
        ops.segment_sum(data, data, 2)
    with pytest.raises(lw.ShapeError, match="3 rows"):
        ops.segment_sum(data, np.zeros(2, int), 2)
    with pytest.raises(lw.ShapeError, match="one axis"):
        ops.segment_sum(data, np.zeros((3, 1), int), 2)
    with pytest.raises(ValueError, match="mode must be"):
        ops.segment_sum(data, np.zeros(3, int), 2, mode="wrap")


def along_edges(x, source, target, count):
    """A softmax over the edges of each target weighs what they bring; edges to nowhere bring nothing."""
    scores = np.sum(x[source] * x[target], axis=1)
    e = np.exp(scores - ops.segment_max(scores, target, count)[target])
    return ops.segment_sum(x[source] * (e / ops.segment_sum(e, target, count)[target])[:, None], target, count)


@examples(15)
@given(edges=st.integers(1, 70), length=st.sampled_from([0, 1, 3, 8, 31, 32, 33, 64, 101]), seed=st.integers(0, 99))
def test_messages_of_rows_of_any_length(edges, length, seed):
    rng = np.random.default_rng(seed)
    x, (source, target) = rng.normal(size=(9, length)), rng.integers(0, 9, (2, edges))
    want = np.zeros_like(x)
    scores = np.sum(x[source] * x[target], axis=1)
    for k in set(target.tolist()):
        e = np.exp(scores[target == k] - np.max(scores[target == k]))
        want[k] = np.sum(x[source[target == k]] * (e / np.sum(e))[:, None], axis=0)
    np.testing.assert_allclose(MESSAGES(x, source, target), want, rtol=1e-12, atol=1e-13)


MESSAGES = lw.jit(lambda x, source, target: along_edges(x, source, target, x.shape[0]))


def test_rows_of_edges_are_not_stored():
    x, at = np.ones((5, 4)), np.arange(5)
    f = lw.jit(lambda x, source, target: along_edges(x, source, target, 5))
    assert "%0: f64[k] = kernel(" in f.lower(x, at, at).kernels  # the scores of edges come first, from rows of x
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 5"):
        f(x, at + 1, at)


@examples(15)
@given(length=st.sampled_from([0, 1, 5, 32, 40]), mode=st.sampled_from([None, "clip"]), seed=st.integers(0, 99))
def test_rows_that_bring_nothing(length, mode, seed):
    rng = np.random.default_rng(seed)
    x, ids = rng.normal(size=(30, length)).astype("f4"), rng.integers(-3, 9, 30)
    want = np.zeros((6, length), "f4")
    kept = np.clip(ids, 0, 5) if mode else ids
    inside = (kept >= 0) & (kept < 6)
    np.add.at(want, kept[inside], x[inside])
    np.testing.assert_array_equal(lw.jit(lambda x, i: ops.segment_sum(x, i, 6, mode=mode))(x, ids), want)
