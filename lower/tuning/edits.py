"""Schedules changed: decisions taken out, put in, renamed, and put in the order in which they are made."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from loopwright.ir.gpu_schedule import Bind, ByOwner, InAnyOrder, InRegisters, InShared, InTiles, Threads
from loopwright.ir.schedule import (
    AddAlong,
    ByColumns,
    ByRows,
    ComputeAt,
    Distribute,
    FewColumns,
    FewInRows,
    FewSteps,
    FewTerms,
    FewUpdates,
    Fuse,
    Inline,
    InPlace,
    InRuns,
    Instruction,
    Interleave,
    Jam,
    OnePass,
    Pack,
    Parallel,
    ParallelUpdates,
    PrefetchRow,
    Reorder,
    Rfactor,
    Schedule,
    ShortRows,
    Skip,
    Split,
    Squeeze,
    Tensorize,
    Tiles,
    Unroll,
    Vectorize,
)

_ORDER: tuple[tuple[type[Instruction], ...], ...] = (
    (Inline, ComputeAt, AddAlong), (Interleave,), (Threads,), (Bind,), (Vectorize, Unroll), (PrefetchRow,), (Fuse,), (Rfactor,),
    (Split, Reorder, Distribute, Tensorize, Pack, Skip), (Parallel, ParallelUpdates), (ByRows,), (OnePass,), (ShortRows,),
    (FewColumns, FewSteps, FewTerms, FewInRows, FewUpdates, ByColumns, Squeeze),
    (Tiles, Jam),
    (InShared, InRegisters, InTiles, ByOwner, InAnyOrder, InRuns), (InPlace,))
_RANK = {kind: k for k, kinds in enumerate(_ORDER) for kind in kinds}
LAST = _RANK[Tiles]  # whatever else there is stands beside these, in its own order
FACTORS = (1, 2, 4, 8, 16)  # vectors in flight
Edit = tuple[Sequence[Instruction], Sequence[Instruction]]  # of a schedule: what is taken out, and what is put there
BLOCKS = (Split, Reorder, Distribute, Tensorize, Pack, Skip)


def ordered(schedule: Sequence[Instruction]) -> Schedule:
    """The same decisions in the order in which they are made; instructions of stages by stage."""
    def place(x: Instruction) -> tuple[int, int]:
        return _RANK.get(type(x), LAST), x.stage if isinstance(x, Inline | ComputeAt | AddAlong | Vectorize | Unroll) else 0
    return tuple(sorted(schedule, key=place))


def topic(x: Instruction) -> object:
    """What an instruction decides, apart from other decisions."""
    match x:
        case Inline(stage) | ComputeAt(stage) | AddAlong(stage):
            return "place", stage
        case Vectorize(stage) | Unroll(stage):
            return "lanes", stage
        case InRegisters(row):
            return "row", row
        case Threads() | Bind() | InShared() | InTiles() | ByOwner() | InAnyOrder():
            return "threads"
        case PrefetchRow(stage) | OnePass(stage) | Rfactor(stage):
            return type(x), stage
        case ByRows() | ShortRows() | FewColumns() | FewSteps() | FewTerms() | FewInRows() | FewUpdates() | ByColumns() \
                | Squeeze() | Tiles() | Jam() | InRuns() | ParallelUpdates():
            return type(x)
    return "loops"


def changed(schedule: Schedule, old: Sequence[Instruction], new: Sequence[Instruction]) -> list[Instruction]:
    """The schedule with some instructions taken out and others put where the first of them stood, or at the end."""
    at = next((k for k, x in enumerate(schedule) if x in old), len(schedule))
    return [*(x for x in schedule[:at] if x not in old), *new, *(x for x in schedule[at:] if x not in old)]


def of_kind(schedule: Schedule, *kinds: type[Instruction]) -> list[Instruction]:
    return [x for x in schedule if isinstance(x, kinds)]


def renamed(x: Instruction, old: str, new: str) -> Instruction:
    match x:
        case Reorder(names) | Parallel(names):
            return dataclasses.replace(x, loops=tuple([new if name == old else name for name in names]))
        case Split(loop) | Distribute(loop) | Pack(_, loop) if loop == old:
            return dataclasses.replace(x, loop=new)
    return x
