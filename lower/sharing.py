"""What schedules of one region share: nests and statements that those made before, which begin alike, were built of.

Guarantees: what is shared depends on nothing but its key; statements are told apart by number, and kept as long as that is.
"""
from __future__ import annotations

from dataclasses import field

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph
from loopwright.ir.nest import For, Nest, Reduction, Statement
from loopwright.ir.schedule import Distribute, Pack, Reorder, Skip, Split, Tensorize
from loopwright.lower.fusing import Fused
from loopwright.lower.placing import Placed, Places
from loopwright.lower.tiling import Done, every

Blocking = Split | Reorder | Distribute | Tensorize | Pack | Skip
Looped = tuple[object, ...]  # a nest's name, which of its loops have lanes, ask for rows, and threads, and loops made one
Wide = dict[tuple[object, ...], tuple[For, For]]  # loops by number and by what is said of their vectors, without and with these
MOST_RECENT = 16  # regions of which it is remembered what schedules made of them


@dataclass
class Step:
    """A nest, what instructions about blocks made of it, and whether all its tiles read packed sides (None: nobody asked)."""

    nest: Nest
    after: dict[Blocking, Step] = field(default_factory=dict)
    packed: bool | None = None


@dataclass
class Begun:
    """What schedules share that compute everything at the same places: their nests before blocks, by what decides these; loops
    made one, by these; and statements with some lanes where loops have any, by number and by which have."""

    placed: Placed
    nests: dict[Looped, Step] = field(default_factory=dict)
    fused: dict[Looped, Fused] = field(default_factory=dict)
    wide: dict[tuple[object, ...], tuple[Statement, Statement]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reductions = [s for s in every(self.placed.statements) if isinstance(s, Reduction)]


@dataclass
class Known:
    """What schedules made of one region, for others that begin alike: by where things are computed; what each instruction
    about blocks made of single loops, and what is said of vectors."""

    begun: dict[Places, Begun] = field(default_factory=dict)
    done: dict[Blocking, Done] = field(default_factory=dict)
    wide: Wide = field(default_factory=dict)


_recent: list[tuple[Graph, Known]] = []  # regions that nests were made of last


def known_of(region: Graph) -> Known:
    """What is known of a region: rules ask about it again and again, and then it is compiled."""
    found = [known for g, known in tuple(_recent) if g is region]  # equal ones may have other names for their sizes
    if not found:
        found = [Known()]
        _recent[:] = (region, found[0]), *_recent[:MOST_RECENT - 1]
    return found[0]
