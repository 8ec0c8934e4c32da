"""Neighbours of the schedules of kernels for a GPU: how many threads, what is whose, what is kept near, tiles of products.

Whole templates (a thread, a warp or a block for each row; parts of a fold) are starts of a search, not neighbours: see `ways`.
As on a processor, rules check nothing: what is not legal is thrown away when it is replayed.
"""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

from loopwright.ir.errors import ScheduleError
from loopwright.ir.gpu_schedule import (
    BLOCK,
    THREAD_X,
    THREAD_Y,
    Bind,
    ByOwner,
    InAnyOrder,
    InPasses,
    InRegisters,
    InShared,
    InTiles,
    Threads,
)
from loopwright.ir.graph import Graph
from loopwright.ir.schedule import ComputeAt, Inline, OnePass, Reorder, Schedule, Tiles, Unroll, Vectorize
from loopwright.lower.cuda.program import Hints
from loopwright.lower.cuda.rules import BYTES, gpu_schedule, read_across
from loopwright.lower.scheduling import Scheduled
from loopwright.lower.tuning.edits import Edit, of_kind
from loopwright.lower.tuning.space import Space, fused, in_flight, other_lanes

KEPT = (1, 2, 4, 8, 16, 32, 64)  # elements of a row that a thread keeps
EDGES, DEPTHS = (32, 64, 128, 256), (8, 16, 32, 64)
WARP, MOST_THREADS = 32, 1024
STAGES = (2, 3, 4)  # of terms in shared memory
COPIES = (0, 256, 1024, 2048)  # elements of what is updated that a block has for itself
SCALES = (1 / 1024, 1 / 32, 32, 1024)  # of sizes, at which other templates are the rule
GRID, ROWS, SQUARES = (BLOCK, THREAD_X), (BLOCK, THREAD_Y), (BLOCK, THREAD_Y, THREAD_X)


def ways(region: Graph, sizes: Mapping[str, int]) -> list[Schedule]:
    """The schedules that the rules write at these sizes and at much smaller and larger ones, each once."""
    scaled = [Hints({s: max(round(n * scale), 1) for s, n in sizes.items()}) for scale in (1, *SCALES)]
    found = dict[Schedule, None]()
    for x in scaled:
        with contextlib.suppress(ScheduleError):  # a region that is one kernel at these sizes alone
            found[gpu_schedule(region, x)] = None
    return list(found)


# ---- threads ------------------------------------------------------------------------------------
def _threads(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Larger or smaller blocks, or of another shape."""
    for t in of_kind(schedule, Threads):
        assert isinstance(t, Threads)
        for wider, higher in ((2, 1), (0.5, 1), (1, 2), (1, 0.5), (2, 0.5), (0.5, 2)):
            x, y = int(t.x * wider), int(t.y * higher)
            if x and y and WARP <= x * y <= MOST_THREADS:
                yield [t], [Threads(x, y)]


def _rows(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Rows to blocks, or several to each, one for each row of its threads."""
    bound = [x for x in of_kind(schedule, Bind, Threads) if not isinstance(x, Bind) or x.axes in ((BLOCK,), ROWS)]
    roots = [x for x in bound if isinstance(x, Bind)]
    if not roots or of_kind(schedule, InTiles, InPasses):
        return
    for shape in ((WARP, 4), (WARP, 8), (2 * WARP, 4), (128, 1), (256, 1), (512, 1)):
        axes = ROWS if shape[1] > 1 else (BLOCK,)
        yield bound, [Threads(*shape), *(dataclasses.replace(x, axes=axes) for x in roots)]


def _folds(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Who folds: the threads of a block, or all of them."""
    for stage in space.folds:
        now = [x for x in schedule if isinstance(x, Bind) and x.stage == stage]
        loops = sorted({x.loop for x in now if isinstance(x, Bind)})
        for axes in ((THREAD_X,), (THREAD_Y,), GRID, ROWS):
            if now:
                yield now, [Bind(stage, loop, axes) for loop in loops]


def _elements(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Elements to threads in the order of memory, or in squares, of the last loop and any other along which something is read,
    that are turned around in shared memory."""
    root = [x for x in schedule if isinstance(x, Bind) and x.stage == space.root]
    if not root or space.folds or not space.is_plain or space.rank < 2 or {x.axes for x in root} - {GRID, SQUARES}:
        return
    old = [*root, *of_kind(schedule, Threads, Tiles, Reorder, Vectorize, Unroll)]
    loops = [x.loop for x in root]
    if of_kind(schedule, Tiles):
        yield old, [Threads(256), *(Bind(space.root, a, GRID) for a in loops)]
        return
    for x in read_across(made.nest.body):
        for y, edge in ((4, WARP), (8, WARP), (16, WARP), (8, 2 * WARP), (16, 2 * WARP)):
            yield old, [Threads(WARP, y), *(Bind(space.root, a, SQUARES) for a in loops),
                        Vectorize(space.root, max(loops), edge), *x.order, Tiles()]


def _owners(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Updates by warps that own stretches, or in any order, with copies of more or fewer elements."""
    if now := of_kind(schedule, ByOwner, InAnyOrder):
        yield now, [ByOwner()]
        loose = any(isinstance(x, InAnyOrder) and x.loose for x in now)
        for copy in COPIES:
            yield now, [InAnyOrder(copy, loose)]


# ---- accesses -----------------------------------------------------------------------------------
def _lanes(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Wider or narrower accesses, up to 16 bytes."""
    if of_kind(schedule, Tiles):
        return
    values = [*space.region.params, *space.region.results]
    most = max(BYTES // max(min(v.type.dtype.itemsize for v in values), 1), 1)
    yield from other_lanes(space, schedule, made, [lanes for lanes in (2, 4, 8, 16) if lanes <= most])


# ---- what is kept -------------------------------------------------------------------------------
def _kept(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Rows of stages in shared memory, in registers, or anew; rows of parameters in registers, or read again."""
    rows = {x.row: x for x in schedule if isinstance(x, InRegisters)}
    shared = {f"t{x.stage}": x for x in schedule if isinstance(x, InShared)}
    names = [f"t{x.stage}" for x in schedule if isinstance(x, ComputeAt) and x.within is None]
    for each in KEPT if rows else ():
        yield list(rows.values()), [InRegisters(name, each) for name in rows]
    for name in dict.fromkeys([*rows, *shared, *names, *(f"x{k}" for k in range(len(space.region.params)))]):
        now = [x for x in (rows.get(name), shared.get(name)) if x is not None]
        for each in {x.each for x in rows.values()} or KEPT:
            yield now, [InRegisters(name, each)]
        if name.startswith("t"):
            stage = int(name[1:])
            yield now, [InShared(stage)]
            if stage not in space.folds:
                old = [x for x in schedule if isinstance(x, ComputeAt | Vectorize | Unroll | Bind) and x.stage == stage]
                yield [*now, *old], [Inline(stage)]
        elif now:
            yield now, []


def _passes(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Folds after one another in one pass, or each in its own."""
    for k in space.folds if space.is_plain else ():
        yield ([OnePass(k)], []) if OnePass(k) in schedule else ([], [OnePass(k)])


# ---- products -----------------------------------------------------------------------------------
def _in_tiles(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Other edges and depths of tiles; other threads for one; tensor cores or not."""
    for x in schedule:
        if not isinstance(x, InTiles):
            continue
        for edge in EDGES:
            yield [x], [dataclasses.replace(x, rows=edge)]
            yield [x], [dataclasses.replace(x, columns=edge)]
            yield [x], [dataclasses.replace(x, rows=edge, columns=edge)]
        for depth in DEPTHS:
            yield [x], [dataclasses.replace(x, depth=depth)]
        for stages in STAGES:
            yield [x], [dataclasses.replace(x, stages=stages)]
        other = ((Threads(16, 16), ""), (Threads(32, 8), ""), (Threads(16, 8), "")) if x.unit else ((Threads(32, 8), "mma"),)
        for threads, unit in other:
            yield [*of_kind(schedule, Threads), x], [threads, dataclasses.replace(x, unit=unit)]


def _in_passes(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Other blocks and depths of a chain of products."""
    for x in schedule:
        if isinstance(x, InPasses):
            for edge in EDGES:
                yield [x], [dataclasses.replace(x, rows=edge)]
                yield [x], [dataclasses.replace(x, columns=edge)]
                yield [x], [dataclasses.replace(x, width=edge)]
            for depth in DEPTHS:
                yield [x], [dataclasses.replace(x, depth=depth)]


GPU_RULES = (_threads, _rows, _folds, _elements, _owners, _lanes, in_flight, _kept, _passes, fused, _in_tiles,
             _in_passes)
