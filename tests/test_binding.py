"""Loops shared out among a GPU's blocks and threads: instructions are data, keep the meaning, and say no to races."""
import numpy as np
import pytest

from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.loops import Apply, Index, Literal, Load, Size, integer, minus, plus, times
from loopwright.ir.nest import Allocate, For, Reduction
from loopwright.ir.ops.arithmetic import div, sub
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.indexing import scatter_add
from loopwright.ir.ops.reductions import reduce_max
from loopwright.ir.ops.transcendental import exp
from loopwright.ir.parser import parse_type
from loopwright.ir.schedule import (
    BLOCK,
    THREAD_X,
    THREAD_Y,
    Bind,
    ByOwner,
    ComputeAt,
    Inline,
    InShared,
    Threads,
    Vectorize,
    from_json,
    to_json,
)
from loopwright.ir.types import F32, I64, ArrayType
from loopwright.lower.binding import owner
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
])
def test_what_is_not_legal_is_refused(schedule, why):
    if why == "would be":  # rows in one block, one after another: slow, but right
        build_nest(REGION, schedule, "k")
        return
    with pytest.raises(ScheduleError, match=why):
        build_nest(REGION, schedule, "k")


def test_the_loop_that_decides_a_position_alone():
    i, k = Index("i"), Index("k")
    two = Literal(2, I64)
    for e in (i, plus(i, two), minus(integer(N - 1), i), plus(times(i, two), Size(N)), Apply("neg", (i,), I64)):
        assert owner(e, {i, k}) == i
    for e in (two, plus(i, k), times(i, k), Load("x0", (i,), I64), Apply("mul", (i, Literal(0, I64)), I64),
              plus(i, Load("x0", (k,), I64))):
        assert owner(e, {i, k}) is None


def test_threads_that_store_to_the_same_elements_are_refused():
    types = [parse_type(t) for t in ("f64[n, 3]", "f64[m, 3]", "i64[m]")]
    region = build(lambda x, v, k: [scatter_add(x, v, k, axes=(0,), batch=0, mode="clip")], types)
    start = (Inline(0), Threads(256), Bind(0, 0, (BLOCK, THREAD_X)), Bind(0, 1, (BLOCK, THREAD_X)))
    nest = build_nest(region, start, "k").nest
    owned = build_nest(region, (*start, ByOwner()), "k").nest
    assert from_json(to_json((ByOwner(),))) == (ByOwner(),) and [s.by_owner for s in owned.body] == [False, True]
    with pytest.raises(ScheduleError, match="the root is no scatter"):
        build_nest(REGION, (*BOUND, ByOwner()), "k")
    with pytest.raises(ScheduleError, match="no threads share out"):
        build_nest(region, (*start, Bind(0, 3, (BLOCK, THREAD_X)), ByOwner()), "k")
    loops = [s for s in nest.body if isinstance(s, For)][-1]
    assert loops.index.name.startswith("k") and len(nest.body) == 2
    with pytest.raises(ScheduleError, match="store to the same elements"):
        build_nest(region, (*start, Bind(0, 2, (BLOCK, THREAD_X))), "k")
