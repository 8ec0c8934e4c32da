"""Few long rows, each shared out among several blocks: a launch of parts for each fold over rows, then one for the rest.

Guarantees: which elements are whose, and the order in which parts are put together, depend on sizes alone, so equal inputs
give equal bits; of the blocks of a row the first stores what the row has one of.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dims import Extent, maximum, minimum, product
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X
from loopwright.ir.nest import For, Let, Reduction, Statement, Store, one_pass
from loopwright.lower.cuda import folds
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.packs import packs, strided, unravelled
from loopwright.lower.registers import perfect

ROW_AXES = (BLOCK, THREAD_X)
STEPS = 8  # that each of a thread's lanes goes, at least
BLOCKS_AT_ONCE = 3  # of a part of a GPU: so many leave registers for what waits for memory
MOST_BLOCKS = 1024  # that share out all rows
Write = Callable[[Context, Sequence[Statement]], Context]


def parts_of_row(over: Sequence[tuple[object, Extent]], lanes: int, threads: int, rows: Extent) -> Extent:
    """Between how many blocks a row is shared out."""
    share = threads * lanes * STEPS
    length = product(n for _, n in over)
    return maximum(1, minimum((length + (share - 1)) // share, MOST_BLOCKS // maximum(rows, 1)))


def in_row_parts(context: Context, s: For, starts: Sequence[int], number: int, write: Write) -> None:
    """One launch of a loop over rows: parts of the folds that begin at `starts[number]`, or, after all of them, the rest."""
    launch = context.launch
    over, innermost = perfect(s)
    body, rows, is_last = innermost.body, product(n for _, n in over), number == len(starts)
    groups = [one_pass(body, start) for start in starts]
    loop = next((x for x in body if isinstance(x, For) and x.bind == ROW_AXES), None)
    count: Extent = 1
    if not is_last:
        count = _parts(groups[number], launch.x, rows)
    elif loop is not None:
        inside, innermost = perfect(loop)
        count = parts_of_row(inside, innermost.lanes, launch.x, rows)
    block, several = launch.thread("blockIdx.x"), not (isinstance(count, int) and count == 1)
    row, part = [context.block.let(launch.index_type, f"{block} {op} {launch.extent(count)}", "at") for op in "/%"] if several \
        else [block, "0"]
    launch.grid = rows * count
    free = (*context.free, part) if several else context.free
    here, done = unravelled(replace(context, free=free), over, row), 0
    for group, start in zip(groups[:number + 1], starts, strict=False):
        here = write(here, [x for x in body[done:start] if is_last or not isinstance(x, Store | For)])
        if len(groups) > number and group is groups[number]:
            _fold(here, group, row, part, count, rows)
            return
        here = _folded(here, group, row, rows)
        done = start + len(group)
    for x in body[done:]:
        here = _shared(here, x, part, count, write) if isinstance(x, For) and x.bind == ROW_AXES else write(here, [x])


def _parts(group: Sequence[Reduction], threads: int, rows: Extent) -> Extent:
    return parts_of_row(group[0].over, group[0].lanes, threads, rows)


def _fold(context: Context, group: Sequence[Reduction], row: str, part: str, count: Extent, rows: Extent) -> None:
    """One block's part of folds of a row, into scratch."""
    launch = context.launch
    who, everyone = _sharers(context, part, count)
    for r, found in zip(group, folds.passed(context, group, who, everyone), strict=True):
        fold = folds.made(context, r)
        found = folds.across(context, fold, found, THREAD_X)
        names = folds.scratch(context, r.name, fold, rows * count)
        folds.put(context, names, found, f"{row} * {launch.extent(count)} + {part}")


def _sharers(context: Context, part: str, count: Extent) -> tuple[str, str]:
    """This thread's number among all that share out a row, and how many they are."""
    launch = context.launch
    return f"({part} * {launch.x} + {launch.thread(THREAD_X)})", f"({launch.extent(count)} * {launch.x})"


def _folded(context: Context, group: Sequence[Reduction], row: str, rows: Extent) -> Context:
    """The values of folds whose parts an earlier launch left: every block of the row puts them together."""
    count = _parts(group, context.launch.x, rows)
    n = context.launch.extent(count)
    for r in group:
        fold = folds.made(context, r)
        state = folds.together(context, fold, folds.scratch(context, r.name, fold, rows * count), n, f"{row} * {n}")
        context = context.bind(r.name, fold.result(context.block, state))
    return context


def _shared(context: Context, s: For, part: str, count: Extent, write: Write) -> Context:
    """A loop along a row, shared out among its blocks."""
    over, innermost = perfect(s)
    body, lanes = innermost.body, innermost.lanes
    found = packs(context, over, lanes, [x.value for x in body if isinstance(x, Let | Store)],
                  [x for x in body if isinstance(x, Store)])
    inside = replace(context, free=tuple([a for a in context.free if a not in (THREAD_X, part)]))
    who, everyone = _sharers(context, part, count)

    def one(here: Context, _: str) -> None:
        write(here, body)
    strided(inside, over, lanes, who, everyone, found, innermost.unroll, one)
    return context
