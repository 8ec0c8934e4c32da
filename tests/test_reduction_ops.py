"""Reductions where they are hard: NaN, ties, zeros among factors, empty axes, narrow dtypes, higher derivatives."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.autodiff.jvp import push, zeros
from loopwright.autodiff.linearize import linearize
from loopwright.autodiff.transpose import pull
from loopwright.ir.builder import Ref, build
from loopwright.ir.dims import symbol
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.interpreter import evaluate as run
from loopwright.ir.loop_interpreter import run_loop
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.ops.reductions import (
    argmax,
    argmin,
    cumprod,
    cumsum,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_prod,
)
from loopwright.ir.types import BF16, BOOL, C128, F16, F32, F64, I8, ArrayType
from tests.scale import examples

seeds = st.integers(0, 2**32 - 1)


def meaning(op, x, **attrs):
    with np.errstate(all="ignore"):
        return np.asarray(op.numpy(x, **attrs))


def nth(f, order: int, x: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The mixed derivative of f at x along `order` directions: forward over forward."""
    operands = [x, *directions]  # the directions are operands of each graph, and stay where they are
    g = build(lambda r, *along: [f(r)], [ArrayType(a.shape, a.dtype) for a in operands])
    for k in range(order):
        g = along_parameter(g, k)
    return run(g, operands)[0]


def along_parameter(g, k: int):
    """The derivative of graph g(x, t0, t1, ...) in x along t_k, as a graph of the same operands."""
    def rule(x: Ref, *along: Ref) -> list[Ref]:
        (y,), (t,) = push(g, [x, *along], [along[k], *(None for _ in along)], x.builder)
        return [zeros(y.type, x.builder) if t is None else t]
    return build(rule, [v.type for v in g.params])


def gradient(f, x: np.ndarray, ct: np.ndarray) -> np.ndarray:
    """Reverse mode: the cotangent of x."""
    g = build(lambda r: [f(r)], [ArrayType(x.shape, x.dtype)])

    def rule(ct: Ref, x: Ref) -> list[Ref]:
        _, linear = linearize(g, [x], [True], ct.builder)
        unknown = (True, *(False for _ in linear.residuals))
        return pull(linear.graph, unknown, linear.residuals, [ct], ct.builder)

    return run(build(rule, [ArrayType(ct.shape, ct.dtype), ArrayType(x.shape, x.dtype)]), [ct, x])[0]


# ---- products with zeros ------------------------------------------------------------------------
@examples(12)
@given(zeros=st.lists(st.booleans(), min_size=1, max_size=5), seed=seeds)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_products_have_derivatives_of_any_order_whatever_is_zero(order, zeros, seed):
    """Along unit vectors: the mixed derivative of a product in distinct factors is the product of the others."""
    rng = np.random.default_rng(seed)
    x = np.where(zeros, 0.0, rng.uniform(0.5, 2, len(zeros)))
    picks = rng.integers(0, len(x), order)
    units = np.eye(len(x))[picks]
    distinct = len(set(picks.tolist())) == order
    want = np.prod(np.delete(x, picks)) if distinct else 0.0
    np.testing.assert_allclose(nth(lambda r: reduce_prod(r, axes=(0,)), order, x, units), want, rtol=1e-12, atol=1e-12)
    running = [np.prod(np.delete(x[:i + 1], picks)) if distinct and picks.max() <= i else 0.0 for i in range(len(x))]
    np.testing.assert_allclose(nth(lambda r: cumprod(r, axis=0), order, x, units), running, rtol=1e-12, atol=1e-12)


def test_gradient_of_a_product_with_one_and_two_zeros():
    x = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [2.0, 4.0, 5.0]])
    got = gradient(lambda r: reduce_prod(r, axes=(1,)), x, np.ones(3))
    np.testing.assert_array_equal(got, [[0, 6, 0], [0, 0, 0], [20, 10, 8]])
    every = gradient(lambda r: reduce_prod(r, axes=(1, 0)), x[2:], np.array(1.0))
    np.testing.assert_array_equal(every, [[20, 10, 8]])


def test_gradient_of_a_product_of_nothing():
    assert gradient(lambda r: reduce_prod(r, axes=(1,)), np.ones((2, 0)), np.ones(2)).shape == (2, 0)
    assert gradient(lambda r: cumprod(r, axis=0), np.ones(0), np.ones(0)).shape == (0,)


# ---- extremes -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("op", "x"), [(reduce_max, [1.0, 3.0, 3.0, -1.0]), (reduce_min, [1.0, -3.0, -3.0, 2.0])])
def test_ties_share_the_cotangent(op, x):
    got = gradient(lambda r: op(r, axes=(0,)), np.array(x), np.array(2.0))
    np.testing.assert_array_equal(got, [0, 1, 1, 0])


def test_ties_over_several_axes():
    x = np.array([[1.0, 2.0], [2.0, 2.0]])
    np.testing.assert_allclose(gradient(lambda r: reduce_max(r, axes=(0, 1)), x, np.array(3.0)), [[0, 1], [1, 1]])


def test_infinite_elements_beside_an_extreme_keep_their_gradient_zero():
    x = np.array([-np.inf, 1.0, 5.0])
    np.testing.assert_array_equal(gradient(lambda r: reduce_max(r, axes=(0,)), x, np.array(1.0)), [0, 0, 1])


SPECIAL = np.array([[1.0, np.nan, 3.0], [np.inf, -np.inf, 0.0], [-0.0, 0.0, -0.0], [-np.inf, -np.inf, -np.inf]])


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
@pytest.mark.parametrize(("op", "numpy"), [(reduce_max, np.max), (reduce_min, np.min), (reduce_sum, np.sum)])
def test_folds_of_special_values(op, numpy, dtype):
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"):
        want = numpy(SPECIAL, axis=1)
    np.testing.assert_array_equal(meaning(op, x, axes=(1,)).astype(F64), want)
    np.testing.assert_array_equal(run_loop(op, [x], axes=(1,)).astype(F64), want)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
@pytest.mark.parametrize(("op", "numpy"), [(argmax, np.argmax), (argmin, np.argmin)])
def test_positions_of_special_values(op, numpy, dtype):
    want = numpy(SPECIAL, axis=1)
    np.testing.assert_array_equal(meaning(op, SPECIAL.astype(dtype), axis=1), want)
    np.testing.assert_array_equal(run_loop(op, [SPECIAL.astype(dtype)], axis=1), want)


@pytest.mark.parametrize(("shape", "axes", "fails"), [
    ((0,), (0,), True), ((0, 3), (0,), True), ((0, 3), (1,), False), ((0, 0), (0,), True), ((2, 0), (0, 1), True),
    ((0,), (), False),
])
@pytest.mark.parametrize(("op", "numpy"), [(reduce_max, np.max), (reduce_min, np.min)])
def test_extremes_of_nothing_fail_as_in_numpy(op, numpy, shape, axes, fails):
    x = np.zeros(shape)
    if not fails:
        assert meaning(op, x, axes=axes).shape == op.result_types([ArrayType(shape, F64)], (), {"axes": axes})[0].shape
        return
    with pytest.raises(ValueError) as want:
        numpy(x, axis=axes)
    with pytest.raises(ShapeError) as got:
        op.result_types([ArrayType(shape, F64)], (), {"axes": axes})
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("op", [argmax, argmin])
def test_positions_in_nothing_fail_as_in_numpy(op):
    with pytest.raises(ValueError) as want:
        getattr(np, op.name)(np.zeros((3, 0)), axis=1)
    with pytest.raises(ShapeError) as got:
        op.result_types([ArrayType((3, 0), F64)], (), {"axis": 1})
    assert str(got.value) == str(want.value)


def test_extremes_of_a_symbolic_axis_are_left_to_a_guard():
    (t,) = reduce_max.result_types([ArrayType((symbol("n"), 3), F64)], (), {"axes": (0,)})
    assert t.shape == (3,)


def test_complex_numbers_have_no_order():
    for op in (reduce_max, reduce_min):
        with pytest.raises(DTypeError, match="complex numbers have no order"):
            op.result_types([ArrayType((3,), C128)], (), {"axes": (0,)})
    with pytest.raises(DTypeError, match="argmax is not defined for c128"):
        argmax.result_types([ArrayType((3,), C128)], (), {"axis": 0})


# ---- accuracy and wrapping ------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_half_precision_folds_round_once(dtype):
    x = np.full(300, 0.1, dtype)
    exact = np.cumsum(x.astype(np.float64))
    assert meaning(reduce_sum, x, axes=(0,)) == exact[-1].astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(meaning(cumsum, x, axis=0), exact.astype(np.float32).astype(dtype))
    steep = np.array([200.0, 400.0, 0.001], dtype)  # in f16 the first product would overflow
    want = np.prod(steep.astype(np.float32)).astype(dtype)
    assert meaning(reduce_prod, steep, axes=(0,)) == want == run_loop(reduce_prod, [steep], axes=(0,))


def test_integers_wrap():
    x = np.full(5, 100, np.int8)
    assert meaning(reduce_sum, x, axes=(0,)) == np.int64(500).astype(I8) == run_loop(reduce_sum, [x], axes=(0,))
    assert meaning(reduce_prod, x, axes=(0,)) == np.int64(100**5).astype(I8) == run_loop(reduce_prod, [x], axes=(0,))
    np.testing.assert_array_equal(meaning(cumsum, x, axis=0), np.cumsum(x.astype(int)).astype(I8))


@pytest.mark.parametrize(("op", "want"), [(reduce_any, [True, True, False]), (reduce_all, [True, False, False])])
def test_truth(op, want):
    x = np.array([[True, True], [True, False], [False, False]])
    np.testing.assert_array_equal(meaning(op, x, axes=(1,)), want)
    np.testing.assert_array_equal(run_loop(op, [x], axes=(1,)), want)
    with pytest.raises(DTypeError, match="must be bool"):
        op.result_types([ArrayType((3,), F64)], (), {"axes": (0,)})


def test_running_sums_of_bool_are_refused():
    with pytest.raises(DTypeError, match="convert it"):
        cumsum.result_types([ArrayType((3,), BOOL)], (), {"axis": 0})


@examples(20)
@given(seed=seeds)
def test_cumsum_gradient_is_the_sum_of_what_follows(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, rng.integers(0, 5), 3))
    ct = rng.normal(size=x.shape)
    want = np.flip(np.cumsum(np.flip(ct, 1), 1), 1)
    np.testing.assert_allclose(gradient(lambda r: cumsum(r, axis=1), x, ct), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_rows_of_every_length_that_are_kept_between_passes(dtype):
    """One compile: rows shorter than a vector, than the vectors in flight, and with ends of their own."""
    def f(x):
        row = np.exp(x - np.max(x, axis=-1, keepdims=True))
        signs = np.floor(x) > 0
        return row / np.sum(row, axis=-1, keepdims=True), np.max(x, axis=-1), np.argmax(x, axis=-1), np.any(signs, axis=-1)
    compiled, rng = lw.jit(f), np.random.default_rng(0)
    for columns in (*range(2, 36), 63, 64, 65, 127, 128, 129, 300):
        x = rng.normal(size=(5, columns)).astype(dtype)
        x[1, columns // 2], x[2, -1], x[3] = np.nan, np.inf, -0.0
        with np.errstate(all="ignore"):
            want = f(x)
        for a, b in zip(compiled(x), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=8 * float(np.finfo(dtype).eps))
    assert compiled.compiles == 1


@pytest.mark.parametrize(("axis", "count"), [(-1, 2), (0, 1)])
def test_what_is_dear_is_computed_in_vectors_before_a_running_fold_that_has_none(axis, count):
    def f(x):
        return np.cumsum(np.exp(x) * 2 + 1, axis=axis)
    compiled, rng = lw.jit(f), np.random.default_rng(0)
    for shape in ((3, 70), (1, 1), (0, 4), (5, 0)):
        x = rng.normal(size=shape)
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12)
    assert len(lw.schedule(f, rng.normal(size=(3, 70))).kernels) == count
