"""Neighbours of the schedules of products in blocks: sizes of blocks and of tiles, depth, order, and what is packed where."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Protocol

from loopwright.ir.dims import evaluate, symbols_in
from loopwright.ir.schedule import Distribute, Instruction, Pack, Parallel, Reorder, Schedule, Split, Tensorize
from loopwright.lower.runtime.threads import threads
from loopwright.lower.scheduling import Scheduled
from loopwright.lower.tiling import block_of, loops
from loopwright.lower.tuning.edits import FACTORS, Edit, changed, of_kind, renamed

SHARES = (1, 2, 4)  # blocks of each thread


class Known(Protocol):
    """A space whose sizes are known, as far as they are."""

    sizes: Mapping[str, int]


def block_sizes(space: Known, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Larger or smaller blocks of a product or of a chain, in which whole tiles fit; or as many blocks for each thread."""
    for x in schedule:
        if isinstance(x, Split | Distribute) and (tiles := of_kind(schedule, Tensorize)):
            around = x.size * 2, max(x.size // 2, 1), x.size * 3 // 2, max(x.size * 3 // 4, 1)
            for size in dict.fromkeys((*around, *_even(space, x, made, tiles[0]))):
                yield schedule, _resized(schedule, x, size)


def _even(space: Known, x: Split | Distribute, made: Scheduled, tile: Instruction) -> Iterator[int]:
    """Sizes of blocks of which each thread gets as many; of whole tiles, or not."""
    assert isinstance(tile, Tensorize)
    name, count = block_of(x.loop, x.size).name, threads()
    whole = next((f.extent for f in loops(made.nest.body) if f.index.name == name), None)
    if whole is None or any(s not in space.sizes for s in symbols_in(whole)):
        return
    extent = evaluate(whole, space.sizes)
    for unit in (1, tile.heights[0], tile.columns):
        for each in SHARES:
            yield max(-(-extent // (count * each * unit)), 1) * unit


def _resized(schedule: Schedule, x: Split | Distribute, size: int) -> list[Instruction]:
    """The schedule with another size of a block, of which the name of its loop speaks."""
    return [dataclasses.replace(x, size=size) if y == x
            else renamed(y, block_of(x.loop, x.size).name, block_of(x.loop, size).name) for y in schedule]


def tile_shapes(space: object, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Another tile of registers, or depth; blocks of columns stay whole tiles."""
    for x in schedule:
        if not isinstance(x, Tensorize):
            continue
        for height in {x.heights[0] + step for step in (-4, -2, -1, 1, 2, 4)}:
            if height > 0:
                lower = [h for h in x.heights[1:] if h < height]
                heights = tuple(sorted({height, *lower, min(height, x.heights[-1])}, reverse=True))
                yield [x], [dataclasses.replace(x, heights=heights)]
        for depth in (x.depth * 2, x.depth // 2):
            if depth:
                for old, new in _depths(schedule, x.depth, depth):
                    yield schedule, [renamed(dataclasses.replace(y, depth=depth) if y == x else y, old, new) for y in schedule]
        for factor in FACTORS[:4]:
            yield [x], [dataclasses.replace(x, unroll=factor)]
        for vectors in (1, 2, 3, 4):
            for lanes in {x.lanes, max(x.lanes // 2, 1)}:
                yield schedule, _with_columns(schedule, x, lanes, vectors)


def _depths(schedule: Schedule, old: int, new: int) -> list[tuple[str, str]]:
    """The names of the loop over blocks of terms, of which one side is packed in."""
    ends = f"_by{old}"
    names = [x.loop for x in schedule if isinstance(x, Pack) and x.side == "left" and x.loop.endswith(ends)]
    return [(name, f"{name.removesuffix(ends)}_by{new}") for name in names[:1]]


def _with_columns(schedule: Schedule, x: Tensorize, lanes: int, vectors: int) -> list[Instruction]:
    columns = lanes * vectors
    out = tuple(changed(schedule, [x], [dataclasses.replace(x, columns=columns, lanes=lanes)]))
    inner = [y.loop for y in schedule if isinstance(y, Pack) and y.side == "right"]
    for y in schedule:
        if isinstance(y, Split) and block_of(y.loop, y.size).name in inner and y.size % columns:
            return _resized(out, y, -(-y.size // columns) * columns)
    return list(out)


def block_order(space: object, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Two loops next to each other the other way round; another one shared out; a side packed in another loop."""
    if not of_kind(schedule, Tensorize):
        return
    for x in schedule:
        if isinstance(x, Reorder):
            for k in range(len(x.loops) - 1):
                names = (*x.loops[:k], x.loops[k + 1], x.loops[k], *x.loops[k + 2:])
                yield [x], [Reorder(names)]
            for name in x.loops[:-2]:  # the last two go through a block
                yield of_kind(schedule, Parallel), [Parallel((name,))]
        if isinstance(x, Pack):
            for f in loops(made.nest.body):
                if f.step > 1:
                    yield [x], [Pack(x.side, f.index.name)]


