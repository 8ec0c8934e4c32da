"""Few long columns in parts: blocks fold stretches of rows, a launch after them puts the parts together.

Guarantees: which rows are whose, and the order in which parts are put together, depend on sizes alone, so equal inputs give
equal bits; how wide the accesses are changes none.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright.ir.dims import Extent, floordiv, maximum, minimum, product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.nest import Reduction, Statement, Store
from loopwright.lower.cuda.context import Context, Launch
from loopwright.lower.cuda.evaluate import evaluate
from loopwright.lower.cuda.folds import across, kinds, made, passed, scratch
from loopwright.lower.cuda.packs import Over, Pack, aligned, batched, each_lane, packs, strided, unravelled
from loopwright.lower.cuda.serial import Fold, element
from loopwright.lower.cuda.text import Block

COLUMN_SHARE, MOST_COLUMN_PARTS = 16, 32  # rows, at least, of one thread's part of a column; parts for each row of threads
COLUMNS_AT_ONCE = 200_000  # of all parts together, with which no multiprocessor is idle
PARTS_AT_ONCE = 8  # that a thread loads before it puts any together
MOST_TABLE = 48 << 10  # bytes of what a block's threads put together


def parts_of_columns(rows: Extent, columns: Extent, threads: int) -> Extent:
    """Between how many blocks, of so many rows of threads, columns of so many rows are shared out."""
    size, enough = threads * COLUMN_SHARE, floordiv(COLUMNS_AT_ONCE, maximum(columns, 1))
    return maximum(1, minimum((rows + (size - 1)) // size, minimum(enough, MOST_COLUMN_PARTS * threads)))


def _parts(reductions: Sequence[Reduction], columns: Extent, launch: Launch) -> Extent:
    return parts_of_columns(product(n for _, n in reductions[0].over), columns, launch.y)


def _sharers(context: Context, reductions: Sequence[Reduction], columns: Extent, part: str) -> tuple[str, str]:
    """This thread's number among all that share out a column, and how many they are."""
    launch = context.launch
    return (f"({part} * {launch.y} + {launch.thread(THREAD_Y)})",
            f"({launch.extent(_parts(reductions, columns, launch))} * {launch.y})")


def fold_column_parts(context: Context, reductions: Sequence[Reduction], part: str, column: str, columns: Extent) -> None:
    """One block's part of folds of columns, into scratch: a row of it for each part."""
    launch = context.launch
    count = _parts(reductions, columns, launch)
    for r, found in zip(reductions, passed(context, reductions, *_sharers(context, reductions, columns, part)), strict=True):
        fold = made(context, r)
        found = across(context, fold, found, THREAD_Y)
        names = scratch(context, r.name, fold, count * columns)
        with context.block.inner(f"if ({context.active} && {THREAD_Y} == 0)") as inside:
            for name, x in zip(names, found, strict=True):
                inside.line(f"{name}[{part} * {launch.extent(columns)} + {column}] = {x};")


def from_column_parts(context: Context, reductions: Sequence[Reduction], column: str, columns: Extent) -> Context:
    """The values of folds of columns whose parts an earlier launch left."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    count = _parts(reductions, columns, launch)
    end = launch.extent(count)
    for r in reductions:
        fold = made(context, r)
        names = scratch(context, r.name, fold, count * columns)
        state = tuple([block.variable(kind, zero, "all") for kind, zero in zip(kinds(fold), fold.zero(), strict=True)])
        k, next_of = block.fresh("k"), [block.fresh("next") for _ in names]
        step = launch.y * PARTS_AT_ONCE
        with block.inner(f"for (int {k} = (int){THREAD_Y}; {k} < {end}; {k} += {step})") as inside:
            for x, c in zip(next_of, kinds(fold), strict=True):
                inside.line(f"{c} {x}[{PARTS_AT_ONCE}];")
            u = inside.fresh("u")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {u} = 0; {u} < {PARTS_AT_ONCE}; ++{u})") as one:
                near = one.let("int", f"{k} + {u} * {launch.y} < {end} ? {k} + {u} * {launch.y} : {end} - 1", "k")
                at = one.let(kind, f"{near} * {launch.extent(columns)} + {column}", "at")
                for x, name in zip(next_of, names, strict=True):
                    one.line(f"{x}[{u}] = {name}[{at}];")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {u} = 0; {u} < {PARTS_AT_ONCE}; ++{u})") as one, \
                    one.inner(f"if ({k} + {u} * {launch.y} < {end})") as some:
                fold.merge_into(some, state, tuple([f"{x}[{u}]" for x in next_of]))
        context = context.bind(r.name, fold.result(block, across(context, fold, state, THREAD_Y)))
    return context


# ---- several columns a thread -------------------------------------------------------------------
def wide_loads(context: Context, over: Over, lanes: int, before: Sequence[Statement],
               reductions: Sequence[Reduction]) -> list[Pack]:
    """What threads that fold so many neighbouring columns each load together, if they may: nothing that was made before is
    used, and shared memory holds a state for each column."""
    launch, first = context.launch, reductions[0]
    columns = product(n for _, n in over)
    size = sum(sum(d.itemsize for d in made(context, r).components) for r in reductions)
    if lanes > launch.y or size * launch.x * lanes * (launch.y + 1) > MOST_TABLE or any(r.also for r in reductions) or \
            not all(isinstance(s, Store) for s in before) or (isinstance(columns, int) and columns % lanes):
        return []
    known = replace(context, names={**context.names, **{k.name: "" for k, _ in first.over}})
    found = packs(known, over, lanes, [r.body for r in reductions], [])
    if found and not isinstance(columns, int):
        found[0] = replace(found[0], checks=(*found[0].checks, columns))
    return found


def fold_wide_column_parts(context: Context, reductions: Sequence[Reduction], over: Over, found: Sequence[Pack], place: str,
                           part: str, columns: Extent) -> None:
    """As `fold_column_parts`, of as many columns a thread as the folds have lanes: neighbours where sizes allow wide accesses,
    else those of neighbouring threads are."""
    launch, block, kind, lanes = context.launch, context.block, context.launch.index_type, reductions[0].lanes
    launch.grid = (columns + (launch.x * lanes - 1)) // (launch.x * lanes)
    begin, total = block.let(kind, f"{place} * {launch.x * lanes}", "at"), launch.extent(columns)
    is_wide = block.let("bool", aligned(context, found, lanes) or "true", "wide")
    folds, rows, who = [made(context, r) for r in reductions], reductions[0].over, _sharers(context, reductions, columns, part)
    states = [f.declare(block, lanes) for f in folds]

    def step(here: Context, lane: str) -> None:
        for f, state, r in zip(folds, states, reductions, strict=True):
            position = f"(long long){here.names[rows[-1][0].name]}" if f.positions else ""
            f.step(here.block, state, lane, element(here, f, launch.terms.of(r.body), evaluate), position)

    def neighbours(here: Context, loaded: Mapping[int, str], slot: str) -> None:
        each_lane(here, over, lanes, found, loaded, slot, step)

    def apart(here: Context, _: str) -> None:
        e = here.block.fresh("e")
        here.block.line("#pragma unroll")
        with here.block.inner(f"for (int {e} = 0; {e} < {lanes}; ++{e})") as one:
            at = one.let(kind, f"{begin} + {e} * {launch.x} + {launch.thread(THREAD_X)}", "at")
            near = one.let(kind, f"{at} < {total} ? {at} : {total} - 1", "at")
            step(unravelled(here.at(one), over, near), e)

    inside = Context(launch, block, context.names)
    with block.inner(f"if ({is_wide})") as some:
        at = some.let(kind, f"{begin} + {launch.thread(THREAD_X)} * {lanes}", "at")
        near = some.let(kind, f"{at} < {total} ? {at} : {total} - {lanes}", "at")
        batched(unravelled(inside.at(some), over, near), rows, lanes, *who, found, max(reductions[0].unroll, 1), neighbours)
    other = Block(block)
    strided(inside.at(other), rows, 1, *who, [], 1, apart)
    block.otherwise(other)
    parts = _parts(reductions, columns, launch)
    for r, f, state in zip(reductions, folds, states, strict=True):
        _put_together(context, f, state, scratch(context, r.name, f, parts * columns), lanes, is_wide, (begin, part, total))


def _put_together(context: Context, fold: Fold, state: Sequence[str], names: Sequence[str], lanes: int, is_wide: str,
                  at: tuple[str, str, str]) -> None:
    """What a block's threads have of each column as one, through shared memory, into scratch; `at`: where its columns begin,
    its part, and how many columns there are."""
    launch, block, (begin, part, columns) = context.launch, context.block, at
    tables = [block.fresh("part") for _ in fold.components]
    for table, c in zip(tables, kinds(fold), strict=True):
        block.line(f"__shared__ {c} {table}[{launch.x * lanes}][{launch.y + 1}];")  # rows begin in different banks
    e = block.fresh("e")
    block.line("#pragma unroll")
    with block.inner(f"for (int {e} = 0; {e} < {lanes}; ++{e})") as one:
        own = one.let("int", f"{is_wide} ? (int){THREAD_X} * {lanes} + {e} : {e} * {launch.x} + (int){THREAD_X}", "k")
        for table, x in zip(tables, fold.held(state, e), strict=True):
            one.line(f"{table}[{own}][{THREAD_Y}] = {x};")
    block.line("__syncthreads();")
    own = block.let("int", f"(int){THREAD_Y} * {launch.x} + (int){THREAD_X}", "k")
    with block.inner(f"if ({own} < {launch.x * lanes} && {begin} + {own} < {columns})") as some:
        found = tuple([some.variable(c, f"{table}[{own}][0]", "all") for table, c in zip(tables, kinds(fold), strict=True)])
        k = some.fresh("k")
        with some.inner(f"for (int {k} = 1; {k} < {launch.y}; ++{k})") as every:
            fold.merge_into(every, found, tuple([f"{table}[{own}][{k}]" for table in tables]))
        for name, x in zip(names, found, strict=True):
            some.line(f"{name}[{part} * {columns} + {begin} + {own}] = {x};")
