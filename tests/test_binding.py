"""Loops shared out among a GPU's blocks and threads: instructions are data, keep the meaning, and say no to races."""
import numpy as np
import pytest

from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.gpu_schedule import (
    BLOCK,
    THREAD_X,
    THREAD_Y,
    Bind,
    ByOwner,
    InAnyOrder,
    InRegisters,
    InShared,
    InTiles,
    Threads,
)
from loopwright.ir.loops import Apply, Index, Literal, Load, Size, integer, minus, plus, times
from loopwright.ir.nest import Allocate, Buffer, Contract, For, Nest, Reduction, Store
from loopwright.ir.ops.arithmetic import add, div, sub
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.indexing import scatter_add
from loopwright.ir.ops.reductions import reduce_max
from loopwright.ir.ops.structural import transpose
from loopwright.ir.ops.transcendental import exp
from loopwright.ir.parser import parse_type
from loopwright.ir.schedule import ComputeAt, Inline, Reorder, Tiles, Vectorize, from_json, to_json
from loopwright.ir.types import F32, I64, ArrayType
from loopwright.lower.binding import owner
from loopwright.lower.convolution_ops import one_group
from loopwright.lower.registers import keep_row, perfect
from loopwright.lower.scheduling import ScheduleError, build_nest
from tests.nests import run_nest

N, M = symbol("n"), symbol("m")
ROWS = ArrayType((N, M), F32)


def softmax(x):
    e = exp(sub(x, broadcast(reduce_max(x, axes=(1,)), shape=x.shape, axes=(0,))))
    return div(e, broadcast(reduce_sum(e, axes=(1,)), shape=x.shape, axes=(0,)))


REGION = build(lambda x: [softmax(x)], [ROWS])  # max, broadcast, sub, exp, sum, broadcast, div
PLACED = (ComputeAt(0, 1), Inline(1), Inline(2), ComputeAt(3, 1, within=4), ComputeAt(4, 1), Inline(5), Inline(6))
BOUND = (*PLACED, Threads(64, 2), Bind(6, 0, (BLOCK, THREAD_Y)), Bind(0, 1, (THREAD_X,)), Bind(4, 1, (THREAD_X,)),
         Bind(6, 1, (THREAD_X,)), InShared(3), Vectorize(6, 1, 4))


def without(kind, *fields):
    return tuple(x for x in BOUND if not (isinstance(x, kind) and all(getattr(x, k) == v for k, v in fields)))


def test_bound_loops_are_data_and_keep_the_meaning():
    assert from_json(to_json(BOUND)) == BOUND
    nest = build_nest(REGION, BOUND, "k").nest
    assert nest.threads == (64, 2)
    (rows,) = nest.body
    assert isinstance(rows, For) and rows.bind == (BLOCK, THREAD_Y)
    assert [s.bind for s in rows.body if isinstance(s, Reduction | For)] == [(THREAD_X,)] * 3
    assert [s.buffer.place for s in rows.body if isinstance(s, Allocate)] == ["shared"]
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(F32)
    out = np.zeros_like(x)
    run_nest(nest, [x], [out], {"n": 5, "m": 7})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-6)


IN_PARTS = (ComputeAt(0, 1), Inline(1), Inline(2), Inline(3), ComputeAt(4, 1), Inline(5), Inline(6), Threads(64),
            Bind(6, 0, (BLOCK,)), *(Bind(stage, 1, (BLOCK, THREAD_X)) for stage in (0, 4, 6)))


def test_rows_in_parts_keep_the_meaning():
    nest = build_nest(REGION, IN_PARTS, "k").nest
    assert [s.bind for s in nest.body[0].body if isinstance(s, Reduction | For)] == [(BLOCK, THREAD_X)] * 3
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(F32)
    out = np.zeros_like(x)
    run_nest(nest, [x], [out], {"n": 5, "m": 7})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("schedule", [
    tuple(Bind(6, 0, (BLOCK, THREAD_Y)) if x == Bind(6, 0, (BLOCK,)) else x for x in IN_PARTS),
    tuple(Bind(4, 1, (THREAD_X,)) if x == Bind(4, 1, (BLOCK, THREAD_X)) else x for x in IN_PARTS),
    (*(x for x in IN_PARTS if x not in (Inline(3), ComputeAt(4, 1))), ComputeAt(3, 1), ComputeAt(4, 1), InShared(3)),
    tuple(x for x in IN_PARTS if not (isinstance(x, Bind) and x.stage in (0, 4))),
])
def test_blocks_share_out_rows_of_which_none_keeps_anything(schedule):
    with pytest.raises(ScheduleError, match="a loop around it has one of its axes"):
        build_nest(REGION, schedule, "k")


KEPT = (*without(InShared), Vectorize(0, 1, 4), Vectorize(4, 1, 4))


def test_rows_in_registers_keep_the_meaning():
    schedule = (*KEPT, InRegisters("t3", 8), InRegisters("x0", 8))
    assert from_json(to_json(schedule)) == schedule
    nest = build_nest(REGION, schedule, "k").nest
    rows = [(s.buffer.name, s.buffer.place, s.buffer.each) for s in nest.body[0].body if isinstance(s, Allocate)]
    assert rows == [("tx0", "registers", 8), ("t3", "registers", 8)]
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(F32)
    out = np.zeros_like(x)
    run_nest(nest, [x], [out], {"n": 5, "m": 7})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(("first", "read", "why"), [
    ("x0", "t0", None), ("y0", "t0", "is stored to"), ("x0", "late", "is not stored to once")])
def test_rows_in_registers_may_be_computed_anew(first, read, why):
    def row(k, *statements):
        return For(Index(k), M, statements, bind=(THREAD_X,))
    i, (a, b, c) = Index("i"), (Index(k) for k in "abc")
    t = Buffer("t0", (M,), F32, "local")
    late = [row("c", Store("t0", (c,), Load("x0", (i, c), F32)))] if read == "late" else []
    body = (Allocate(t), row("a", Store("t0", (a,), Load(first, (i, a), F32))),
            row("b", Store("y0", (i, b), Load("t0", (b,), F32))), *late)
    buffers = Buffer("x0", (N, M), F32, "input"), Buffer("y0", (N, M), F32, "output")
    nest = Nest("k", buffers, ("n", "m"), (For(i, N, body, bind=(BLOCK,)),), (64, 1))
    if why is None:
        kept = keep_row(nest, "t0", 8).body[0].body
        assert kept[1:] == body[1:] and kept[0] == Allocate(Buffer("t0", (M,), F32, "local", "registers", 8))
        return
    with pytest.raises(ValueError, match=why):
        keep_row(nest, "t0", 8)


@pytest.mark.parametrize(("schedule", "why"), [
    ((*without(Threads), ), "loops are bound"),
    ((*BOUND, Bind(6, 5, (THREAD_X,))), "no such loop"),
    ((*BOUND, Bind(1, 0, (THREAD_X,)), Bind(9, 0, (THREAD_X,))), "no such stage"),
    ((*without(Bind, ("stage", 6), ("loop", 0)), Bind(6, 0, (THREAD_Y, BLOCK))), "may have axes"),
    (without(InShared), "has no place"),
    ((*without(Threads), Threads(33, 2)), "powers of two"),
    ((*without(Threads), Threads(8, 2)), "powers of two"),
    ((*without(Bind, ("stage", 4)), Bind(4, 1, (THREAD_Y,))), "a loop around it has one of its axes"),
    ((*without(Bind, ("stage", 6), ("loop", 1)), Bind(6, 1, (BLOCK, THREAD_X))), "a loop around it has one of its axes"),
    (without(Bind, ("stage", 6), ("loop", 0)), "would be"),
    ((*without(Bind, ("stage", 4)), Bind(4, 1, (BLOCK, THREAD_Y))), "inside the loop of the columns, and nowhere else"),
    ((*BOUND, InShared(0)), "no local row"),
    ((*without(InShared), InRegisters("t3", 4)), "differ in their lanes"),
    ((*KEPT, InRegisters("t3", 6)), "6 elements are no multiple"),
    ((*KEPT, InRegisters("t3", 128)), "1 to 64 elements"),
    ((*KEPT, InRegisters("t3", 8), InRegisters("t9", 8)), "no local row"),
    ((*KEPT, InRegisters("t3", 8), InRegisters("x1", 8)), "no local row"),
    ((*(x for x in KEPT if x != Bind(6, 1, (THREAD_X,))), InRegisters("t3", 8)), "outside the passes"),
    ((*PLACED, Threads(64, 2), InRegisters("x0", 8)), "no two passes"),
])
def test_what_is_not_legal_is_refused(schedule, why):
    if why == "would be":  # rows in one block, one after another: slow, but right
        build_nest(REGION, schedule, "k")
        return
    with pytest.raises(ScheduleError, match=why):
        build_nest(REGION, schedule, "k")


PRODUCT = build(lambda x, y, b: [add(dot_general(x, y, contract=((1, 1),), batch=()), b)],
                [parse_type(t) for t in ("f32[n, k]", "f32[m, k]", "f32[n, m]")])
LOOPS = (ComputeAt(0, 2), Inline(1), Bind(1, 0, (BLOCK,)), Bind(1, 1, (BLOCK,)))


def test_products_in_tiles_keep_the_meaning():
    schedule = (*LOOPS, Threads(16, 4), InTiles(0, 8, 32, 8))
    assert from_json(to_json(schedule)) == schedule
    nest = build_nest(PRODUCT, schedule, "k").nest
    tile = next(s for s in nest.body[0].body[0].body if isinstance(s, Contract))
    assert (tile.heights, tile.lanes, tile.depth) == ((2,), 2, 8)
    rng = np.random.default_rng(0)
    x, y, b = (rng.integers(-3, 4, s).astype(F32) for s in ((11, 5), (35, 5), (11, 35)))
    out = np.zeros_like(b)
    run_nest(nest, [x, y, b], [out], {"n": 11, "m": 35, "k": 5})
    np.testing.assert_array_equal(out, x @ y.T + b)


def test_tiles_of_several_loops_keep_the_meaning():
    """A convolution: rows of the kernel's features, columns of all images' pixels, terms of windows; past the edges zeros."""
    attrs = {"lhs_axes": (1, 0, 2, 3), "rhs_axes": (0, 1, 2, 3), "out_axes": (1, 0, 2, 3), "stride": (1,), "lhs_dilation": (1,),
             "rhs_dilation": (1,), "low": (1,), "count": (symbol("k"),), "dtype": None}
    region = build(lambda x, w: [one_group(x, w, **attrs)], [parse_type(t) for t in ("f32[n, m, k]", "f32[p, m, 3]")])
    nest = build_nest(region, (*(Bind(0, a, (BLOCK,)) for a in range(3)), Threads(16, 4), InTiles(0, 8, 32, 8)), "k").nest
    tile = next(s for s in nest.body[0].body[0].body if isinstance(s, Contract))
    assert {len(tile.rows.of), len(tile.columns.of)} == {0, 2}
    rng = np.random.default_rng(0)
    x, w = rng.integers(-3, 4, (2, 3, 19)).astype(F32), rng.integers(-3, 4, (9, 3, 3)).astype(F32)
    out = np.zeros((2, 9, 19), F32)
    run_nest(nest, [x, w], [out], {"n": 2, "m": 3, "k": 19, "p": 9})
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1))), 3, 2)
    np.testing.assert_array_equal(out, np.einsum("ncyi,oci->noy", windows, w))


@pytest.mark.parametrize(("region", "schedule", "why"), [
    (PRODUCT, (*LOOPS, Threads(16, 4), InTiles(0, 8, 33, 8)), "powers of two"),
    (PRODUCT, (*LOOPS, Threads(16, 4), InTiles(0, 8, 8, 8)), "each thread has some"),
    (PRODUCT, (*LOOPS, Threads(16, 16), InTiles(0, 16, 16, 8)), "nothing to copy"),
    (PRODUCT, (*LOOPS, Threads(16, 16), InTiles(0, 256, 256, 16)), "no more than 49152 bytes"),
    (PRODUCT, (*LOOPS[:2], Threads(16, 16), InTiles(0, 32, 32, 16)), "bound to blocks alone"),
    (PRODUCT, (*LOOPS, Threads(16, 16), InTiles(1, 32, 32, 16)), "do not begin with that sum"),
    (REGION, (*PLACED, Threads(16, 16), Bind(6, 0, (BLOCK,)), InTiles(4, 32, 32, 16)), "do not begin with that sum"),
])
def test_tiles_that_are_not_legal_are_refused(region, schedule, why):
    with pytest.raises(ScheduleError, match=why):
        build_nest(region, schedule, "k")


def test_the_loop_that_decides_a_position_alone():
    i, k = Index("i"), Index("k")
    two = Literal(2, I64)
    for e in (i, plus(i, two), minus(integer(N - 1), i), plus(times(i, two), Size(N)), Apply("neg", (i,), I64)):
        assert owner(e, {i, k}) == i
    for e in (two, plus(i, k), times(i, k), Load("x0", (i,), I64), Apply("mul", (i, Literal(0, I64)), I64),
              plus(i, Load("x0", (k,), I64))):
        assert owner(e, {i, k}) is None


@pytest.mark.parametrize("edge", [16, 96])
def test_edges_of_squares_that_warps_do_not_fill_are_refused(edge):
    turned = build(lambda x: [transpose(x, perm=(1, 0))], [parse_type("f32[n, m]")])
    bound = [Bind(0, a, (BLOCK, THREAD_Y, THREAD_X)) for a in range(2)]
    assert build_nest(turned, (Threads(32, 8), *bound, Vectorize(0, 1, 64), Tiles()), "k")
    with pytest.raises(ScheduleError, match="powers of two, 32 or more"):
        build_nest(turned, (Threads(32, 8), *bound, Vectorize(0, 1, edge), Tiles()), "k")


def test_squares_of_one_loop_are_refused():
    turned = build(lambda x: [transpose(x, perm=(1, 0))], [parse_type("f32[n, m]")])
    squares = (BLOCK, THREAD_Y, THREAD_X)
    assert build_nest(turned, (Threads(32, 8), *(Bind(0, a, squares) for a in range(2))), "k")
    with pytest.raises(ScheduleError, match="squares are those of two loops"):
        build_nest(turned, (Threads(32, 8), Bind(0, 0, squares)), "k")


def test_squares_are_of_the_last_loop_and_that_before_it():
    turned = build(lambda x: [transpose(x, perm=(2, 1, 0))], [parse_type("f32[n, m, k]")])
    squares = (Threads(32, 8), *(Bind(0, a, (BLOCK, THREAD_Y, THREAD_X)) for a in range(3)), Vectorize(0, 2, 64))
    nest = build_nest(turned, (*squares, Reorder(("i1", "i0")), Tiles()), "k").nest
    assert [index.name for index, _ in perfect(nest.body[0])[0]] == ["i1", "i0", "i2"]
    with pytest.raises(ScheduleError, match="nothing is read across"):
        build_nest(turned, (*squares, Tiles()), "k")


def test_threads_that_store_to_the_same_elements_are_refused():
    types = [parse_type(t) for t in ("f64[n, 3]", "f64[m, 3]", "i64[m]")]
    region = build(lambda x, v, k: [scatter_add(x, v, k, axes=(0,), batch=0, mode="clip")], types)
    start = (Inline(0), Threads(256), Bind(0, 0, (BLOCK, THREAD_X)), Bind(0, 1, (BLOCK, THREAD_X)))
    nest = build_nest(region, start, "k").nest
    owned = build_nest(region, (*start, ByOwner()), "k").nest
    assert from_json(to_json((ByOwner(),))) == (ByOwner(),) and [s.by_owner for s in owned.body] == [False, True]
    anyhow = build_nest(region, (*start, InAnyOrder(64)), "k").nest
    assert from_json(to_json((InAnyOrder(64),))) == (InAnyOrder(64),)
    assert [(s.any_order, s.copy) for s in anyhow.body] == [(False, 0), (True, 64)]
    with pytest.raises(ScheduleError, match="updates are done in one way"):
        build_nest(region, (*start, ByOwner(), InAnyOrder()), "k")
    with pytest.raises(ScheduleError, match="the root is no scatter"):
        build_nest(REGION, (*BOUND, ByOwner()), "k")
    with pytest.raises(ScheduleError, match="no threads share out"):
        build_nest(region, (*start, Bind(0, 3, (BLOCK, THREAD_X)), ByOwner()), "k")
    loops = [s for s in nest.body if isinstance(s, For)][-1]
    assert loops.index.name.startswith("k") and len(nest.body) == 2
    with pytest.raises(ScheduleError, match="store to the same elements"):
        build_nest(region, (*start, Bind(0, 2, (BLOCK, THREAD_X))), "k")
