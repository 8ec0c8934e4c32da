"""Gather, scatters and sorts against NumPy's own indexing: every mode, duplicates, empty axes, NaN, derivatives."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.autodiff.linearize import linearize
from loopwright.autodiff.transpose import pull
from loopwright.ir.builder import Ref, build
from loopwright.ir.dims import symbol
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.interpreter import evaluate as run
from loopwright.ir.loop_interpreter import run_loop
from loopwright.ir.ops.indexing import MODES, fill_value, gather, scatter, scatter_add
from loopwright.ir.ops.sorting import argsort, sort
from loopwright.ir.types import BF16, BOOL, C64, DTYPES, F16, F32, F64, I8, I32, I64, U8, U64, ArrayType
from tests.scale import examples

seeds = st.integers(0, 2**32 - 1)
n = symbol("n")


def both(op, *args: np.ndarray, **attrs) -> np.ndarray:
    """The NumPy meaning, once it is known to be the loop's as well."""
    want = np.asarray(op.numpy(*args, **attrs))
    got = run_loop(op, args, **attrs)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype
    return want


def cotangents(f, ct: np.ndarray, *operands: np.ndarray) -> list[np.ndarray]:
    """Reverse mode: the cotangents of the f64 operands of f(*refs)."""
    types = [ArrayType(x.shape, x.dtype) for x in operands]
    active = [t.is_inexact for t in types]
    g = build(lambda *refs: [f(*refs)], types)

    def rule(ct: Ref, *refs: Ref) -> list[Ref]:
        _, linear = linearize(g, refs, active, ct.builder)
        unknown = (*(True for a in active if a), *(False for _ in linear.residuals))
        return pull(linear.graph, unknown, linear.residuals, [ct], ct.builder)

    return run(build(rule, [ArrayType(ct.shape, ct.dtype), *types]), [ct, *operands])


def taken(size: int, i: int, mode: str) -> int | None:
    """The position that index i means, or None where it means none: the modes, spelled out for one index."""
    if mode == "wrap":
        return i % size if size else None
    at = i + size if i < 0 else i
    if 0 <= at < size:
        return at
    if mode in ("fill", "zero") or size == 0:
        return None
    return 0 if at < 0 else size - 1


LOOSE = [mode for mode in MODES if mode != "raise"]


# ---- gather -------------------------------------------------------------------------------------
@examples(40)
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=seeds)
def test_gathers_are_numpys_advanced_indexing(shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    axes = tuple(int(a) for a in rng.permutation(len(shape))[:rng.integers(1, len(shape) + 1)])
    lead = tuple(int(s) for s in rng.integers(0, 4, rng.integers(0, 3)))
    indices = [np.asarray(rng.integers(-shape[a], shape[a], lead)) for a in axes]
    moved = np.moveaxis(x, axes, range(len(axes)))
    np.testing.assert_array_equal(both(gather, x, *indices, axes=axes, batch=0, mode="raise"), moved[tuple(indices)])


@examples(20)
@given(seed=seeds)
def test_batched_gathers_are_take_along_axis(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 3, rng.integers(1, 5)))
    index = rng.integers(-x.shape[2], x.shape[2], (2, 3, rng.integers(0, 4)))
    want = np.take_along_axis(x, index, axis=2)
    np.testing.assert_array_equal(both(gather, x, index, axes=(2,), batch=2, mode="raise"), want)


@pytest.mark.parametrize("mode", LOOSE)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_modes_read_what_they_say(mode, size):
    x, index = np.arange(1.0, size + 1), np.arange(-7, 8)
    missing = np.nan if mode == "fill" else 0.0
    places = [taken(size, int(i), mode) for i in index]
    want = [missing if at is None else x[at] for at in places]
    np.testing.assert_array_equal(both(gather, x, index, axes=(0,), batch=0, mode=mode), want)


@pytest.mark.parametrize("mode", LOOSE)
@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("op", [scatter, scatter_add])
def test_modes_write_what_they_say(op, mode, size):
    base, index = np.arange(1.0, size + 1), np.array([5, -1, 2, -9, 0, 7, -4, 2])
    updates = np.arange(10.0, 18.0)
    want = base.copy()
    for i, u in zip(index, updates, strict=True):
        at = taken(size, int(i), mode)
        if at is not None:
            want[at] = want[at] + u if op is scatter_add else u
    np.testing.assert_array_equal(both(op, base, updates, index, axes=(0,), batch=0, mode=mode), want)


@pytest.mark.parametrize("index", [[5], [0, -6], [1, 7, -9]])
def test_out_of_range_is_numpys_error(index):
    x, at = np.zeros((2, 5)), np.array(index)
    with pytest.raises(IndexError) as want:
        x[0][at]
    written = (x[0], np.zeros(at.shape), at)
    for op, args in ((gather, (x[0], at)), (scatter, written), (scatter_add, written)):
        with pytest.raises(IndexError) as got:
            op.numpy(*args, axes=(0,), batch=0, mode="raise")
        assert str(got.value) == str(want.value)
        with pytest.raises(IndexError) as looped:
            run_loop(op, args, axes=(0,), batch=0, mode="raise")
        assert str(looped.value) == str(want.value)


def test_out_of_range_of_an_empty_axis():
    with pytest.raises(IndexError, match="index 0 is out of bounds for axis 1 with size 0"):
        gather.numpy(np.zeros((2, 0)), np.array([0]), axes=(1,), batch=0, mode="raise")
    assert both(gather, np.zeros((2, 0)), np.zeros(0, int), axes=(1,), batch=0, mode="raise").shape == (0, 2)


def test_a_scalar_index_and_extreme_integers():
    x = np.arange(3.0)
    assert both(gather, x, np.array(-1), axes=(0,), batch=0, mode="raise") == 2
    far = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    np.testing.assert_array_equal(both(gather, x, far, axes=(0,), batch=0, mode="clip"), [0, 2])
    np.testing.assert_array_equal(both(gather, x, far, axes=(0,), batch=0, mode="fill"), [np.nan, np.nan])
    np.testing.assert_array_equal(both(gather, x, far, axes=(0,), batch=0, mode="wrap"), x[far % 3])


@pytest.mark.parametrize(("dtype", "value"), [(I8, -128), (U8, 255), (U64, 2**64 - 1), (BOOL, True)])
def test_what_fill_gives(dtype, value):
    assert both(gather, np.zeros(2, dtype), np.array([2]), axes=(0,), batch=0, mode="fill").tolist() == [value]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill_values_are_attributes_of_their_dtype(dtype):
    value = np.array(fill_value(dtype), dtype)
    assert np.isnan(value.astype(C64)) if dtype.kind in "fcV" else value == fill_value(dtype)


def test_gathers_that_do_not_fit():
    x, i = ArrayType((n, 3), F64), ArrayType((4,), I64)
    with pytest.raises(ShapeError, match="one index for each of axes"):
        gather.result_types([x, i], (), {"axes": (0, 1), "batch": 0, "mode": "raise"})
    with pytest.raises(ShapeError, match="must be distinct"):
        gather.result_types([x, i], (), {"axes": (2,), "batch": 0, "mode": "raise"})
    with pytest.raises(ShapeError, match="first 1 axes"):
        gather.result_types([x, i], (), {"axes": (1,), "batch": 1, "mode": "raise"})
    with pytest.raises(DTypeError, match="index 0 must be i64, got i32"):
        gather.result_types([x, ArrayType((4,), I32)], (), {"axes": (1,), "batch": 0, "mode": "raise"})
    with pytest.raises(ValueError, match="mode must be one of raise"):
        gather.result_types([x, i], (), {"axes": (1,), "batch": 0, "mode": "drop"})
    with pytest.raises(ShapeError, match=r"updates are f64\[4\], what the indices name in .* has shape \(4, n\)"):
        scatter.result_types([x, ArrayType((4,), F64), i], (), {"axes": (1,), "batch": 0, "mode": "raise"})


# ---- scatters -----------------------------------------------------------------------------------
@examples(40)
@given(shape=st.lists(st.integers(1, 3), min_size=1, max_size=3), seed=seeds)
def test_scatters_are_numpys_assignments(shape, seed):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=shape)
    axes = tuple(int(a) for a in rng.permutation(len(shape))[:rng.integers(1, len(shape) + 1)])
    lead = tuple(int(s) for s in rng.integers(0, 4, rng.integers(0, 3)))
    indices = tuple(np.asarray(rng.integers(-shape[a], shape[a], lead)) for a in axes)
    updates = rng.normal(size=np.moveaxis(base, axes, range(len(axes)))[indices].shape)
    for op in (scatter, scatter_add):
        want = base.copy()
        view = np.moveaxis(want, axes, range(len(axes)))
        if op is scatter:
            view[indices] = updates
        else:
            np.add.at(view, indices, updates)
        np.testing.assert_array_equal(both(op, base, updates, *indices, axes=axes, batch=0, mode="raise"), want)


def test_the_gradient_reaches_only_the_update_that_stayed():
    base, updates, index = np.arange(4.0), np.arange(5.0), np.array([1, 3, 1, -1, 0])
    ct = np.array([10.0, 20.0, 30.0, 40.0])
    d_base, d_updates = cotangents(lambda b, u, i: scatter(b, u, i, axes=(0,), batch=0, mode="raise"), ct, base, updates, index)
    np.testing.assert_array_equal(d_base, [0, 0, 30, 0])
    np.testing.assert_array_equal(d_updates, [0, 0, 20, 40, 10])


@pytest.mark.parametrize("mode", LOOSE)
@examples(10)
@given(seed=seeds)
def test_gradients_of_scatters_follow_every_mode(mode, seed):
    rng = np.random.default_rng(seed)
    size, number = int(rng.integers(0, 4)), int(rng.integers(0, 6))
    base, updates, ct = rng.normal(size=(size, 2)), rng.normal(size=(number, 2)), rng.normal(size=(size, 2))
    index = rng.integers(-6, 6, number)
    places = [taken(size, int(i), mode) for i in index]
    d_base, d_updates = cotangents(lambda b, u, i: scatter(b, u, i, axes=(0,), batch=0, mode=mode), ct, base, updates, index)
    winner = {at: k for k, at in enumerate(places) if at is not None}
    np.testing.assert_array_equal(d_base, [ct[at] * (at not in winner) for at in range(size)] if size else ct)
    want = [ct[at] if at is not None and winner[at] == k else np.zeros(2) for k, at in enumerate(places)]
    np.testing.assert_array_equal(d_updates, np.reshape(want, (number, 2)))


def test_gradient_of_a_filled_gather_is_zero_outside():
    x, index = np.arange(3.0), np.array([0, 5, -1, 0])
    (got,) = cotangents(lambda x, i: gather(x, i, axes=(0,), batch=0, mode="fill"), np.array([1.0, 2.0, 4.0, 8.0]), x, index)
    np.testing.assert_array_equal(got, [9, 0, 4])


def test_scatters_leave_their_base_alone():
    base = np.zeros(3)
    scatter.numpy(base, np.ones(1), np.array([0]), axes=(0,), batch=0, mode="raise")
    scatter_add.numpy(base, np.ones(1), np.array([0]), axes=(0,), batch=0, mode="raise")
    assert not base.any()


# ---- sorting ------------------------------------------------------------------------------------
HARD = np.array([3.0, np.nan, -0.0, 0.0, np.inf, -np.inf, 0.0, -0.0, np.nan, 1.0])


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_sorts_put_nan_last_and_keep_equal_elements_in_order(dtype):
    want = np.argsort(HARD, kind="stable")
    order = argsort.numpy(HARD.astype(dtype), axis=0)
    assert order.dtype == I64
    np.testing.assert_array_equal(order, want)
    out = sort.numpy(HARD.astype(dtype), axis=0)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out.astype(F64), HARD[want])
    np.testing.assert_array_equal(np.signbit(out.astype(F64)), np.signbit(HARD[want]))


def test_the_gradient_of_a_sort_goes_back_where_it_came_from():
    x = np.array([[3.0, 1.0, 1.0, 2.0], [0.0, 5.0, -1.0, 4.0]])
    ct = np.arange(8.0).reshape(2, 4)
    (got,) = cotangents(lambda r: sort(r, axis=1), ct, x)
    want = np.zeros_like(x)
    np.put_along_axis(want, np.argsort(x, axis=1, kind="stable"), ct, axis=1)
    np.testing.assert_array_equal(got, want)
    (got,) = cotangents(lambda r: sort(r, axis=0), ct, x)
    want = np.zeros_like(x)
    np.put_along_axis(want, np.argsort(x, axis=0, kind="stable"), ct, axis=0)
    np.testing.assert_array_equal(got, want)


def test_sorts_are_library_calls():
    assert sort.loop is None and argsort.loop is None
