"""The default schedules have the properties that make their kernels fast, and keep the meaning over sizes."""
import contextlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.dims import floordiv, symbol
from loopwright.ir.expansion import expanded
from loopwright.ir.loops import Apply, Index, Literal, Load, Local, Reduce, integer, minus
from loopwright.ir.nest import Let, Reduction, Store
from loopwright.ir.ops.arithmetic import add, sub
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.reductions import cumsum, reduce_max
from loopwright.ir.ops.structural import transpose
from loopwright.ir.ops.transcendental import tanh
from loopwright.ir.schedule import (
    ByRows,
    ComputeAt,
    Fuse,
    Inline,
    OnePass,
    Parallel,
    PrefetchRow,
    Reorder,
    Tiles,
    Unroll,
    Vectorize,
    from_json,
    to_json,
)
from loopwright.ir.types import BOOL, F32, F64, U8, ArrayType
from loopwright.lower.fusing import by_rows
from loopwright.lower.joining import join
from loopwright.lower.partition import partition
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.target import Target, host_target
from tests.scale import examples


def schedules(f, *args):
    """Of the generated kernels, in order: the nodes of the region by name, and the schedule."""
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    return [([n.op.name for n in k.regions[0].nodes], k.attrs["schedule"]) for k in graph.nodes
            if k.attrs.get("implementation") == "generated"]


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def agree(found, expected, dtype):
    """To some last bits of the greatest element."""
    assert found.dtype == dtype
    tolerance = (1e-5 if found.dtype == "f4" else 1e-13) * np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("padding", ["VALID", "SAME", [(3, 0)]])
def test_windows_have_lanes_along_their_places(padding):
    (_, schedule), = schedules(lambda x: lw.lax.reduce_window(x, -np.inf, lw.lax.max, (5,), (1,), padding), np.ones(40, "f4"))
    assert [i.loop for i in schedule if isinstance(i, Vectorize)] == [0]


@pytest.mark.parametrize(("window", "stride", "across"), [(2, 2, True), (3, 2, True), (3, 1, True), (7, 7, False)])
def test_small_windows_of_rows_have_lanes_along_their_places(window, stride, across):
    def pooled(x):
        return lw.lax.reduce_window(x, -np.inf, lw.lax.max, (1, 1, window, window), (1, 1, stride, stride))
    (_, schedule), = schedules(pooled, np.ones((2, 3, 28, 28), "f4"))
    assert ([i.loop for i in schedule if isinstance(i, Vectorize)] == [3]) == across


def test_blocks_of_numbers_are_folded_side_by_side():
    x = np.random.default_rng(0).normal(size=(3, 5, 14, 38)).astype("f4")

    def folded(x):
        return x.reshape(3, 5, 7, 2, 19, 2).max((3, 5))
    (_, schedule), = schedules(folded, x)
    assert [i.loop for i in schedule if isinstance(i, Vectorize)] == [3]
    np.testing.assert_array_equal(lw.jit(folded)(x), folded(x))


# ---- rows that are kept -------------------------------------------------------------------------
def scaled(x):
    return softmax(np.tanh(x) * 2 + x)


def twice(x):
    return softmax(np.exp(softmax(np.sin(x)) + x))


def reversed_first(x):
    y = np.tanh(x)
    return y - np.sum(y[..., ::-1] * x, axis=-1, keepdims=True)


def all_products(x):
    y = np.tanh(x)
    return y * np.sum(y[:, :, None] * x[:, None, :], axis=(1, 2))[:, None]


ROWS = [scaled, twice, reversed_first, all_products]


def test_a_row_is_filled_by_the_first_reduction_that_reads_it_through_other_stages():
    [(names, schedule)] = schedules(scaled, np.ones((3, 40), "f4"))
    assert ComputeAt(names.index("tanh"), 1, within=names.index("reduce_max")) in schedule


def test_a_row_with_a_loop_of_its_own_has_lanes():
    [(names, schedule)] = schedules(all_products, np.ones((3, 40), "f4"))
    stage = names.index("tanh")
    assert ComputeAt(stage, 1) in schedule
    assert any(isinstance(x, Vectorize) and (x.stage, x.loop) == (stage, 1) for x in schedule)
    assert any(isinstance(x, Unroll) and x.stage == stage for x in schedule)


@examples(25)
@given(st.sampled_from(ROWS), st.integers(0, 5), st.integers(1, 70), st.sampled_from(["f4", "f8"]))
def test_rows_that_are_kept_have_the_right_values(f, n, m, dtype):
    x = np.random.default_rng(n * 100 + m).normal(size=(n, m)).astype(dtype)
    agree(JITTED[f](x), f(x.astype("f8")), dtype)


# ---- columns ------------------------------------------------------------------------------------
def weighted(x):
    return np.tanh(np.sum(x * x, axis=0) - np.max(x, axis=0)) * x[0]


def spread_of(x):
    return np.var(x, axis=0)


def of_formulas(x):
    return np.log(np.sum(np.exp(x - np.max(x, axis=0)), axis=0)) + np.sum(np.sin(x[:, :1]) * np.cos(x[0]), axis=0)


def of_masks(x):
    """Folds of masks beside those of numbers; 3 is in some columns."""
    some, every = np.any(x == 3, axis=0), np.all(x < 9, axis=0)
    return np.where(some | every, np.max(np.where(x < 0, x, -x), axis=0), x[0] * (np.argmax(x > 0, axis=0) > 1))


COLUMNS = [lambda x: np.sum(x, axis=0), lambda x: np.max(x, axis=0), lambda x: np.argmin(x, axis=0), weighted, spread_of,
           of_masks, lambda x: np.sum(x[:, None] * x[:, :, None], axis=(0, 1)), of_formulas,
           lambda x: np.sum(x[:, :1] * x[0], axis=0)]
WEIGHED = st.integers(1, 40) | st.sampled_from([16, 17, 511, 512, 513, 1100])


@pytest.mark.parametrize("f", COLUMNS[:6])
def test_reductions_of_columns_go_by_rows(f):
    folds = {"reduce_sum", "reduce_max", "argmin"}
    [schedule] = [schedule for names, schedule in schedules(f, np.ones((3, 40), "f4")) if not folds.isdisjoint(names)]
    assert ByRows() in schedule and from_json(to_json(schedule)) == schedule


def test_all_folds_of_columns_go_by_rows_or_none_behind_one_that_does_not():
    """A fold down a column, in a loop over blocks of rows, would be made for each of these."""
    x, over = Load("x", (Index("k"), Index("i")), F32), ((Index("k"), symbol("n")),)
    plain, masks = Reduce("sum", over, x, F32), Reduce("any", over, Apply("gt", (x, Literal(0.0, F32)), BOOL), BOOL)
    twice = Reduce("sum", (*over, (Index("l"), symbol("n"))), x, F32)
    assert by_rows([Let("a", masks), Let("b", plain)]) == [(0, masks), (1, plain)]
    assert by_rows([Let("a", plain), Let("b", twice), Let("c", masks)]) == [(0, plain)]


def test_several_leading_axes_are_one_loop_of_rows():
    [(_, schedule)] = schedules(lambda x: np.sum(x, axis=(0, 1, 2)), np.ones((3, 4, 5, 6), "f4"))
    assert Fuse(0, 1, 3) in schedule and ByRows() in schedule


RUNNING = [(np.maximum, "f4", True), (np.minimum, "f8", True), (np.add, "i8", True), (np.add, "f4", False),
           (np.multiply, "f8", False)]


@pytest.mark.parametrize(("fold", "dtype", "agrees"), RUNNING)
def test_running_folds_have_lanes_along_them_where_any_order_gives_the_same(fold, dtype, agrees):
    [(_, schedule)] = schedules(lambda x: fold.accumulate(x, axis=1), np.ones((3, 40), dtype))
    assert agrees == any(isinstance(x, Vectorize) and x.loop == 1 for x in schedule)
    assert from_json(to_json(schedule)) == schedule
    [(_, down)] = schedules(lambda x: fold.accumulate(x, axis=0), np.ones((3, 40), dtype))
    assert any(isinstance(x, Vectorize) and x.loop == 1 for x in down)


def test_running_sums_of_floats_have_no_lanes_along_them():
    x = ArrayType((symbol("n"), symbol("m")), F32)
    sums = build(lambda x: [cumsum(x, axis=1)], [x])
    with pytest.raises(ScheduleError, match="order of its elements"):
        build_nest(sums, (Vectorize(0, 1, 16),), "k")


def over_two(x):
    e = np.exp(x - np.max(x, axis=(1, 2), keepdims=True))
    return e / np.sum(e, axis=(1, 2), keepdims=True)


@pytest.mark.parametrize(("f", "first", "count"), [
    (lambda x: np.var(x), 0, 3), (lambda x: np.log(np.sum(np.exp(x - np.max(x)))), 0, 3),
    (over_two, 1, 2)])
def test_folds_one_after_another_go_through_one_loop_each(f, first, count):
    """What they read is flat for all of them at once."""
    found = [x for _, schedule in schedules(f, np.ones((3, 4, 5), "f4")) for x in schedule if isinstance(x, Fuse)]
    assert [(x.loop, x.count) for x in found] == [(first, count)]
    compiled = lw.jit(f)
    for shape in ((3, 4, 5), (1, 1, 1), (2, 1, 3), (7, 40, 3), (2, 33, 17)):
        x = np.random.default_rng(0).normal(size=shape)
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12)


def test_folds_over_other_orders_keep_their_loops():
    f = lambda x: np.sum(x) + np.sum(np.exp(x.T - np.max(x)) * np.arange(3.0))  # noqa: E731
    assert not any(isinstance(x, Fuse) for _, schedule in schedules(f, np.ones((3, 4))) for x in schedule)
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(lw.jit(f)(x), f(x), rtol=1e-12)


def test_what_stays_in_registers_or_in_a_loop_goes_down_its_columns():
    few = build(lambda x: [reduce_sum(x, axes=(0,))], [ArrayType((symbol("n"), 16), F32)])
    short = build(lambda x: [reduce_sum(x, axes=(0,))], [ArrayType((8, symbol("n")), F32)])
    batch = build(lambda x: [reduce_sum(x, axes=(1,))], [ArrayType((symbol("n"), symbol("m"), symbol("k")), F32)])
    for graph in (few, short, batch):
        assert ByRows() not in partition(graph, host_target(), blas=True).nodes[0].attrs["schedule"]
    with pytest.raises(ScheduleError, match="lanes of an outermost loop"):
        build_nest(batch, (Inline(0), ByRows()), "k")


@examples(40)
@given(st.sampled_from(COLUMNS), WEIGHED, WEIGHED, st.sampled_from(["f4", "f8", "i4"]))
def test_reductions_of_columns_have_the_right_values(f, n, m, dtype):
    if f is COLUMNS[-1]:
        n, m = n % 30 + 1, m % 30 + 1
    x = (np.random.default_rng(n * 100 + m).normal(size=(n, m)) * 4).astype(dtype)
    expected = f(x if dtype == "i4" else x.astype("f8"))
    agree(JITTED[f](x), expected, expected.dtype if dtype == "i4" or f is COLUMNS[2] else dtype)


def test_long_columns_are_summed_in_blocks_of_blocks_and_alike_for_any_number_of_threads():
    x = np.random.default_rng(0).random((150_000, 5)).astype("f4")
    sums = lw.jit(lambda x: np.sum(x, axis=0))
    np.testing.assert_allclose(sums(x), x.astype("f8").sum(0), rtol=3e-7)
    wide = np.random.default_rng(0).random((700, 5003)).astype("f4")
    try:
        lw.set_threads(1)
        once = sums(wide)
        lw.set_threads(2)
        np.testing.assert_array_equal(sums(wide), once)
    finally:
        lw.set_threads(None)


# ---- what is computed again ----------------------------------------------------------------------
def layernorm(x, gain, bias):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gain + bias


def layernorm_slopes(x, gain, bias, w):
    return lw.grad(lambda *args: np.sum(layernorm(*args) * w), argnums=(0, 1, 2))(x, gain, bias)


def stored(f, *args):
    """Of each kernel, the shapes of what it stores."""
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    return [[v.type.shape for v in n.outputs] for n in graph.nodes]


def test_cheap_maps_of_one_array_are_not_stored_for_other_kernels():
    """The gradients of a layernorm: sums of blocks of rows go from one kernel to the next, no array does."""
    x, v = np.ones((5, 40), "f4"), np.ones(40, "f4")
    (slopes, gains, biases), *sums = stored(layernorm_slopes, x, v, v, x)
    assert sorted(map(len, sums)) == [2]
    assert gains == biases == (floordiv(slopes[0] + 31, 32), slopes[1])


def test_what_reads_two_arrays_or_is_dear_is_stored_once():
    def f(x, y):
        product, dear = x * y, np.exp(x)
        return np.sum(product, 0), np.sum(product, 1), np.sum(dear, 0), np.sum(dear, 1)
    arrays = [shape for kernel in stored(f, *np.ones((2, 5, 40), "f4")) for shape in kernel if len(shape) == 2]
    blocks = [shape for shape in arrays if "floordiv" in str(shape[0])]
    assert (len(arrays) - len(blocks), len(blocks)) == (2, 2)


def test_what_is_read_at_several_places_is_stored_where_it_costs_more_to_make_again():
    def quotients(x, y):
        return y / np.sqrt(x)

    def between(f):
        return lambda *args: f(*args)[1:] - f(*args)[:-1]
    x = np.ones((20, 40), "f4")
    assert len(stored(between(quotients), x, x)) == 2 and len(stored(between(np.sqrt), x)) == 1
    assert len(stored(between(np.sqrt), x.astype("f8"))) == 2 and len(stored(between(lambda x: x * 2 + 1), x)) == 1

    def variation(x):
        return np.sum(np.sqrt(np.diff(x, axis=0)[:, :-1] ** 2 + np.diff(x, axis=1)[:-1] ** 2 + 1e-6))
    assert len(stored(lw.grad(variation), x)) == 2


def test_a_quotient_that_a_fold_would_make_again_for_each_row_is_stored():
    def weighted(v, z, x):
        return np.sum(np.where(z > 0, (1 / v)[:, None], z)[:, :, None] * x[:, None], 0)
    v, z, x = np.ones(30, "f4"), np.ones((30, 20), "f4"), np.ones((30, 5), "f4")
    assert len(stored(weighted, v, z, x)) == 2
    assert len(stored(lambda v, x: np.sum(x * (1 / v)[:, None], 0), v, x)) == 1  # made once for each row of x


def test_a_product_beside_which_something_is_folded_is_a_kernel_of_its_own():
    """A gradient that goes through pooling into a convolution: what it divides by is a sum. The convolution is in tiles."""
    def pooled(w, x, y):
        windows = lw.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return windows / np.sum(y, (2, 4))
    w, x, y = np.ones((3, 3, 16, 32), "f4"), np.ones((4, 8, 8, 16), "f4"), np.ones((4, 8, 2, 8, 2, 32), "f4")
    first, second = tiled(pooled, w, x, y)
    assert sorted((first, second)) == [False, True]
    assert sorted(tiled(lambda a, b, c: a @ b / np.sum(c, 2), *np.ones((2, 300, 300), "f4"), np.ones((300, 300, 4), "f4"))) == [
        False, True]


def tiled(f, *args):
    """Whether each kernel is one product in tiles, a library call among them."""
    graph = partition(expanded(lw.make_graph(f, dynamic=False)(*args)), host_target(), blas=True)
    kernels = [n for n in graph.nodes if n.regions]
    return [any(n.op.name in ("one_group", "dot_general", "few_features", "few_channels") for n in k.regions[0].nodes) and
            not any(n.op.name == "reduce_sum" for n in k.regions[0].nodes) for k in kernels]


def test_what_reads_slices_of_one_array_reads_one_array():
    def f(x):
        y = x[1:] - x[:-1]
        return np.sum(y * 2, 0), np.sum(y * 3, 1)
    assert all("n - 1, m" not in str(shape) for kernel in stored(f, np.ones((5, 40), "f4")) for shape in kernel)


def test_single_numbers_take_no_lanes(monkeypatch):
    monkeypatch.setattr(Target, "memory_bits", property(lambda self: self.vector_bits))
    [(_, schedule)] = schedules(lambda x: x / x.shape[0] - np.mean(x, axis=-1, keepdims=True), np.ones((5, 40), "f4"))
    lanes = {x.lanes for x in schedule if isinstance(x, Vectorize)}
    assert lanes == {host_target().lanes(np.dtype("f4"))}


@examples(15)
@given(st.integers(1, 9), st.integers(1, 70))
def test_gradients_of_a_layernorm_have_the_right_values(n, m):
    x, w = np.random.default_rng(n * 100 + m).normal(size=(2, n, m))
    gain, bias = np.random.default_rng(m).normal(size=(2, m))
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + 1e-5)
    y, g = centred * scale, w * gain
    inner = (g - g.mean(-1, keepdims=True) - y * np.mean(g * y, -1, keepdims=True)) * scale
    for found, expected in zip(SLOPES(x, gain, bias, w), (inner, np.sum(w * y, 0), np.sum(w, 0)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * scale.max())


# ---- transposed memory ---------------------------------------------------------------------------
TRANSPOSED = [lambda x: np.transpose(x, (2, 0, 1)) * 2, lambda x: np.swapaxes(x, 1, 2) + np.swapaxes(x, 1, 2)[0],
              lambda x: np.abs(x[0].T) + 1, lambda x: np.transpose(x, (2, 1, 0)) * 2,
              lambda x: x[:, 0].T[::-1] + x[0, 0, 0], lambda x: x[:, :, ::-1].T.copy()]


@pytest.mark.parametrize("f", TRANSPOSED[:4])
def test_arrays_that_are_read_across_the_loops_are_read_in_tiles(f):
    [(_, schedule)] = schedules(f, np.ones((3, 4, 5), "f4"))
    assert Tiles() in schedule and from_json(to_json(schedule)) == schedule


def test_loops_change_places_where_tiles_need_them_together():
    def kept(f, shape):
        [(_, schedule)] = schedules(f, np.ones(shape, "f4"))
        return [x.loops for x in schedule if isinstance(x, Reorder | Parallel)]
    assert kept(lambda x: np.transpose(x, (2, 1, 0)), (3, 4, 5)) == [("i1", "i0", "i2"), ("i1", "i0")]
    assert kept(lambda x: np.transpose(x, (3, 1, 2, 0)), (3, 4, 5, 6)) == [("i1_i2", "i0", "i3"), ("i1_i2", "i0")]
    assert kept(lambda x: np.transpose(x, (0, 2, 1)), (3, 4, 5)) == [()]


@cache
def permuted(order):
    return lw.jit(lambda x, y: np.transpose(x, order) + y)


@examples(40)
@given(st.permutations(range(3)) | st.permutations(range(4)) | st.permutations(range(5)), st.data(),
       st.sampled_from(["f4", "f8", "u1", "i2", "c8"]), st.integers(0, 99))
def test_axes_in_any_order(order, data, dtype, seed):
    shape = data.draw(st.tuples(*[st.integers(1, {3: 60, 4: 20, 5: 9}[len(order)])] * len(order)))
    r = np.random.default_rng(seed)
    x, y = ((r.normal(size=n) * 50).astype(dtype) for n in (shape, [shape[k] for k in order]))
    np.testing.assert_array_equal(permuted(tuple(order))(x, y), np.transpose(x, order) + y)


def test_what_is_read_along_the_loops_or_is_short_has_no_tiles():
    assert all(Tiles() not in schedule for _, schedule in schedules(lambda x: x + x[0], np.ones((3, 4), "f4")))
    short = build(lambda x: [transpose(x, perm=(1, 0))], [ArrayType((symbol("n"), 3), U8)])
    along = build(lambda x: [tanh(x)], [ArrayType((symbol("n"), symbol("m")), F32)])
    for graph in (short, along):
        assert Tiles() not in partition(graph, host_target(), blas=True).nodes[0].attrs["schedule"]
    with pytest.raises(ScheduleError, match="across the root's last two loops"):
        build_nest(along, (Inline(0), Vectorize(0, 1, 8), Tiles()), "k")


@pytest.mark.parametrize(("n", "c", "dtype", "tiles"), [
    (1 << 22, 3, F32, True), (symbol("n"), 3, F32, True), (1 << 22, 2, F64, True), (100, 3, F32, False),
    (1 << 22, 3, U8, False), (1 << 22, 1, F32, False)])
def test_few_rows_are_in_tiles_where_each_would_read_memory_again(n, c, dtype, tiles):
    graph = build(lambda x: [add(transpose(x, perm=(1, 0)), transpose(x, perm=(1, 0)))], [ArrayType((n, c), dtype)])
    kernel, = partition(graph, replace(host_target(), cache_bytes=1 << 20), blas=True).nodes
    assert (Tiles() in kernel.attrs["schedule"]) == tiles


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1"])
@pytest.mark.parametrize("c", [2, 3, 5])
def test_planes_of_images_beyond_the_cache(c, dtype):
    x = (np.arange(801 * 803 * c).reshape(801, 803, c) % 251).astype(dtype)
    planes = lw.jit(lambda x: np.transpose(x, (2, 0, 1)) + 1, dynamic=False)
    np.testing.assert_array_equal(planes(x), np.transpose(x, (2, 0, 1)) + 1)


@examples(25)
@given(st.sampled_from(TRANSPOSED), st.integers(1, 36), st.integers(1, 36), st.integers(1, 36) | st.just(1100),
       st.sampled_from(["f4", "f8", "i4", "i1", "?", "f2"]), st.permutations([0, 1, 2]))
def test_transposed_arrays_have_the_right_values(f, a, b, c, dtype, order):
    shape = tuple((a, b, c)[k] for k in order)
    x = (np.random.default_rng(a * b + c).normal(size=shape) * 4).astype(dtype)
    found, expected = JITTED[f](x), f(x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_tiles_are_alike_for_any_number_of_threads():
    x = np.random.default_rng(0).normal(size=(37, 70, 530)).astype("f4")
    try:
        for count in (1, 2):
            lw.set_threads(count)
            np.testing.assert_array_equal(JITTED[TRANSPOSED[0]](x), TRANSPOSED[0](x))
    finally:
        lw.set_threads(None)


# ---- reductions that share a pass -----------------------------------------------------------------
def moments(x):
    return np.mean(x * x, axis=-1) + np.mean(x, axis=-1) ** 2 + np.max(x, axis=-1) + np.argmax(x, axis=-1).astype(x.dtype)


def of_columns(x):
    places = np.argmin(x, axis=0).astype(x.dtype)
    return np.sum(x * x, axis=0) - np.min(x, axis=0) + places + np.sum(np.abs(x - np.max(x, axis=0)), axis=0)


def forces(x):
    """All pairs of numbers, in two components."""
    d = x[:, 0][None] - x[:, 0][:, None]
    w = 1 / (d * d + 1)
    return np.stack([np.sum(w * d, axis=1), np.sum(w * x[:, -1], axis=1), np.max(w, axis=1)], axis=1)


SHARED = [moments, of_columns, forces]


def test_reductions_of_a_row_that_do_not_need_each_other_share_a_pass():
    [(names, schedule)] = schedules(lambda x: np.mean(x * x, axis=-1) - np.mean(x, axis=-1), np.ones((5, 40), "f4"))
    second = [k for k, name in enumerate(names) if name == "reduce_sum"][1]
    assert OnePass(second) in schedule and from_json(to_json(schedule)) == schedule
    [(_, schedule)] = schedules(softmax, np.ones((5, 40), "f4"))
    assert not any(isinstance(x, OnePass) for x in schedule)


def test_a_pass_that_cannot_be_shared_is_refused():
    rows = ArrayType((symbol("n"), symbol("m")), F32)
    two = build(lambda x: [sub(reduce_sum(x, axes=(1,)), reduce_max(x, axes=(1,)))], [rows])
    placed = ComputeAt(0, 1), ComputeAt(1, 1), Inline(2)
    build_nest(two, (*placed, OnePass(1)), "k")
    for wrong, why in (((OnePass(0),), "no reduction just before"), ((OnePass(2),), "no reduction in a loop"),
                       ((Vectorize(1, 1, 8), OnePass(1)), "other loops")):
        with pytest.raises(ScheduleError, match=why):
            build_nest(two, (*placed, *wrong), "k")

    def centred(x):
        return [reduce_sum(sub(x, broadcast(reduce_max(x, axes=(1,)), shape=x.shape, axes=(0,))), axes=(1,))]
    with pytest.raises(ScheduleError, match="depends on"):
        build_nest(build(centred, [rows]), (ComputeAt(0, 1), Inline(1), Inline(2), ComputeAt(3, 1), OnePass(3)), "k")


def weighed(x, y):
    """The means of rows by weights that are exponentials: a row of these is kept for both sums and the difference."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    mean = np.sum(e * y, axis=-1, keepdims=True) / np.sum(e, axis=-1, keepdims=True)
    return e * (y - mean)


def test_a_row_that_is_kept_in_a_pass_is_read_there_too():
    [(names, schedule)] = schedules(weighed, *np.ones((2, 5, 40), "f4"))
    sums = [k for k, name in enumerate(names) if name == "reduce_sum"]
    assert OnePass(sums[1]) in schedule and any(isinstance(x, ComputeAt) and x.within == sums[0] for x in schedule)
    k, j, n = Index("k"), Index("j"), symbol("n")
    row = Store("t", (k,), Load("x0", (k,), F32))
    first = Reduction("s0", "sum", ((k, n),), Load("x0", (k,), F32), F32, also=(row,))
    for at, fine in ((j, True), (minus(minus(integer(n), integer(1)), j), False)):
        second = Reduction("s1", "sum", ((j, n),), Load("t", (at,), F32), F32)
        with contextlib.nullcontext() if fine else pytest.raises(ValueError, match="elsewhere"):
            assert join((first, Let("half", Local("s0", F32)), second), 1)[1].joined


@examples(20)
@given(WEIGHED, WEIGHED, st.sampled_from(["f4", "f8"]))
def test_sums_over_a_row_that_is_kept_have_the_right_values(n, m, dtype):
    x, y = np.random.default_rng(n * 100 + m).normal(size=(2, n, m)).astype(dtype)
    agree(JITTED[weighed](x, y), weighed(x.astype("f8"), y.astype("f8")), dtype)


@examples(20)
@given(st.sampled_from(SHARED), WEIGHED, WEIGHED, st.sampled_from(["f4", "f8"]))
def test_reductions_that_share_a_pass_have_the_right_values(f, n, m, dtype):
    x = np.random.default_rng(n * 100 + m).normal(size=(min(n, 70), m) if f is forces else (n, m)).astype(dtype)
    agree(JITTED[f](x), f(x.astype("f8")), dtype)


SLOPES = lw.jit(layernorm_slopes)
JITTED = {f: lw.jit(f) for f in (*ROWS, *COLUMNS, *TRANSPOSED, *SHARED, weighed)}


# ---- loops that wait for memory -----------------------------------------------------------------
MEMORY = [
    lambda x: x * 2 + 1,
    lambda x: np.where(x > 0, x, -x),
    lambda x: np.sum(x, axis=1),
    lambda x: np.max(x, axis=1),
    lambda x: np.sum(x),
    lambda x: x - np.mean(x, axis=1, keepdims=True),
    lambda x: x.T + 1,
    lambda x: x > 0,
    lambda x: np.isnan(x) * x[:, ::-1],
]
OTHERS = [softmax, np.tanh, lambda x: np.sum(x, axis=0), lambda x: x / np.sum(x, axis=1)[:, None]]


@pytest.fixture
def halved(monkeypatch):
    """A processor whose memory gives half a register soonest."""
    monkeypatch.setattr(Target, "memory_bits", property(lambda self: self.vector_bits // 2))
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", "")


def lanes_of(f, x):
    """The greatest number of lanes of each kernel."""
    return {max((i.lanes for i in schedule if isinstance(i, Vectorize)), default=1) for _, schedule in schedules(f, x)}


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i4"])
def test_loops_that_wait_for_memory_have_vectors_as_it_gives_them(halved, dtype):
    x = np.ones((3, 4), dtype)
    half = host_target().vector_bits // (16 * x.dtype.itemsize)
    widest = host_target().vector_bits // (8 * max(x.dtype.itemsize, 4 if dtype == "f2" else 1))
    assert lanes_of(MEMORY[0], x) == lanes_of(lambda x: np.maximum(x, 0), x) == {min(half, widest)}
    if dtype[0] == "f" and dtype != "f2":
        assert all(lanes_of(f, x) == {half} for f in MEMORY)
        assert all(lanes_of(f, x) == {widest} for f in OTHERS)


@pytest.mark.parametrize("f", [*MEMORY, *OTHERS])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_short_vectors_compute_the_same(halved, f, dtype):
    rng, g = np.random.default_rng(0), lw.jit(f)
    for n, m in ((1, 1), (2, 3), (0, 5), (1, 10), (5, 31), (4, 33), (3, 64), (7, 1000)):
        x = rng.normal(size=(n, m)).astype(dtype)
        expected = f(x)
        agree(np.asarray(g(x)), np.asarray(expected), expected.dtype)
        if n:
            x[rng.random((n, m)) < 0.2] = np.nan
            x[rng.random((n, m)) < 0.2] = np.inf
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(np.isnan(g(x)), np.isnan(f(x)))


def test_reductions_of_rows_that_wait_for_memory_have_short_vectors_too(halved):
    found = {x.stage: x.lanes for _, schedule in schedules(softmax, np.ones((3, 4), "f4")) for x in schedule
             if isinstance(x, Vectorize)}
    lanes = host_target().vector_bits // 32
    assert sorted(found.values()) == [lanes // 2, lanes, lanes] and found[min(found)] == lanes // 2  # the greatest; the others


def test_rows_are_asked_for_ahead_unless_the_processor_does_so(monkeypatch):
    x = np.random.default_rng(0).normal(size=(9, 200)).astype("f4")
    results = []
    for reads_ahead in (False, True):
        monkeypatch.setattr(Target, "reads_ahead", reads_ahead)
        monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", "")
        asks = [isinstance(i, PrefetchRow) for _, schedule in schedules(softmax, x) for i in schedule]
        assert any(asks) != reads_ahead
        results.append(lw.jit(lambda x: softmax(x))(x))
    assert np.array_equal(*results)


def test_maps_have_two_vectors_in_flight_until_their_formulas_are_calls():
    def several(n):
        return lambda x: sum((np.tanh(x + k) for k in range(n)), x)
    assert [{i.factor for _, schedule in schedules(several(n), np.ones(3)) for i in schedule if isinstance(i, Unroll)}
            for n in (0, 2, 6, 9)] == [{4}, {2}, {2}, {1}]


def test_each_pass_over_a_row_has_vectors_in_flight_by_what_it_computes():
    x = np.ones((9, 200), "f4")
    (_, schedule), = schedules(softmax, x)
    assert [i.factor for i in schedule if isinstance(i, Unroll)] == [8, 2, 4]  # the greatest; exponentials; quotients
    (_, shared), = schedules(lambda x: np.sum(np.exp(x), 1) + np.sum(x, 1), x)
    assert [i.factor for i in shared if isinstance(i, Unroll)] == [2, 2] and any(isinstance(i, OnePass) for i in shared)


@pytest.mark.parametrize("n", [2, 3, 4, 8, 9])
def test_a_few_known_rows_that_are_kept_are_computed_one_after_the_other(n):
    def f(x):
        rows = np.sin(x[:, None] * x)
        return np.sum(rows / (1 + np.sqrt(np.sum(rows * rows, axis=1)))[:, None], axis=1)
    x = np.random.default_rng(0).normal(size=n)
    np.testing.assert_allclose(lw.jit(f, dynamic=False)(x), f(x), rtol=1e-12)


@pytest.mark.parametrize("f", [
    lambda x: np.tanh(x[np.arange(3)]), lambda x: np.sum(np.tanh(x[np.arange(3)])),
    lambda x: x * np.arange(3.0)[:, None].astype("f4"),
    lw.grad(lambda x: np.sum(np.tanh(x[np.arange(3)])))])
def test_numbers_of_rows_do_not_halve_the_lanes_along_them(f):
    """A row that is looked up has one number, however wide that is."""
    assert max(lanes_of(f, np.ones((3, 400), "f4"))) == host_target().vector_bits // 32
