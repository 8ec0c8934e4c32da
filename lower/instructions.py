"""The instructions of a schedule, sorted by what they decide.

Guarantees: each names a stage that the region has, and a stage is placed once.
"""
from __future__ import annotations

from dataclasses import field

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Shape
from loopwright.ir.gpu_schedule import Bind, ByOwner, InAnyOrder, InPasses, InRegisters, InShared, InTiles, Threads
from loopwright.ir.graph import Graph, Node
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
from loopwright.lower.partials import block_sums
from loopwright.lower.placing import check
from loopwright.lower.row_products import row_products
from loopwright.lower.sharing import Blocking

MOST_INTERLEAVED = 4  # positions that a loop's body spells out: the parts of a complex number, a few channels
MOST_CHANNELS = 8  # of what reads few in another order
MOST_COLUMNS = 16  # of a stack of columns, or of one column again and again, which vectors put together


@dataclass
class Decisions:
    """A schedule sorted by what it decides."""

    placed: dict[int, ComputeAt] = field(default_factory=dict)
    vector: dict[tuple[int, int], int] = field(default_factory=dict)
    unroll: dict[int, int] = field(default_factory=dict)
    fused: list[Fuse] = field(default_factory=list)
    rfactors: list[Rfactor] = field(default_factory=list)
    prefetched: set[int] = field(default_factory=set)
    interleave: bool = False
    parallel: Parallel | None = None
    owned: bool = False
    by_rows: bool = False
    short: ShortRows | None = None
    few: FewColumns | FewSteps | FewTerms | FewInRows | FewUpdates | ByColumns | None = None
    squeezes: bool = False
    tiled: bool = False
    jam: Jam | None = None
    blocks: list[Blocking] = field(default_factory=list)
    joined: list[OnePass] = field(default_factory=list)
    along: dict[int, AddAlong] = field(default_factory=dict)
    in_place: list[InPlace] = field(default_factory=list)
    threads: Threads | None = None
    bound: list[Bind] = field(default_factory=list)
    rows: list[InShared | InRegisters | InTiles | InPasses] = field(default_factory=list)
    updates: ByOwner | InAnyOrder | InRuns | None = None


def decisions_of(region: Graph, schedule: Schedule) -> Decisions:
    """Check that every instruction names a stage of the region, and that each stage is placed once."""
    d = Decisions()
    settled: set[int] = set()
    for x in schedule:
        match x:
            case Inline(stage) | ComputeAt(stage) | AddAlong(stage):
                check(0 <= stage < len(region.nodes) and stage not in settled, x, "stages are placed once")
                settled.add(stage)
                _place(d, region, x)
            case Split() | Reorder() | Distribute() | Tensorize() | Pack() | Skip():
                d.blocks.append(x)
            case Vectorize(stage, loop, lanes):
                d.vector[stage, loop] = lanes
            case Unroll(stage, factor):
                d.unroll[stage] = factor
            case Fuse():
                d.fused.append(x)
            case Rfactor():
                d.rfactors.append(x)
            case PrefetchRow(stage):
                d.prefetched.add(stage)
            case Interleave():
                fits = is_short(region.results[0].type.shape, MOST_COLUMNS)
                check(fits, x, "the root's last axis has no small constant size")
                d.interleave = True
            case Parallel():
                d.parallel = x
            case ParallelUpdates():
                d.owned = True
            case ByRows():
                d.by_rows = True
            case ShortRows():
                d.short = x
            case FewColumns() | FewSteps() | FewTerms() | FewInRows() | FewUpdates() | ByColumns():
                check(d.few is None, x, "one axis has few positions")
                d.few = x
            case Squeeze():
                d.squeezes = True
            case Tiles():
                d.tiled = True
            case Jam():
                d.jam = x
            case OnePass():
                d.joined.append(x)
            case Threads():
                d.threads = x
            case Bind():
                d.bound.append(x)
            case InShared() | InRegisters() | InTiles() | InPasses():
                d.rows.append(x)
            case ByOwner() | InAnyOrder() | InRuns():
                check(d.updates in (None, x), x, "updates are done in one way")
                d.updates = x
            case InPlace(operand, output):
                check(0 <= operand < len(region.params) and 0 <= output < len(region.results), x, "there is no such pair")
                d.in_place.append(x)
    return d


def _place(d: Decisions, region: Graph, x: Inline | ComputeAt | AddAlong) -> None:
    """Note where a stage is computed, if not where it is used."""
    if isinstance(x, ComputeAt):
        d.placed[x.stage] = x
    elif isinstance(x, AddAlong):
        check(_adds_rows(region, region.nodes[x.stage]), x, "it sums neither the root's rows nor blocks of them")
        d.along[x.stage] = x


def is_short(shape: Shape, most: int = MOST_INTERLEAVED) -> bool:
    """Whether the last axis has a size that a loop's body may spell out."""
    return bool(shape) and isinstance(shape[-1], int) and 1 <= shape[-1] <= most


def _adds_rows(region: Graph, node: Node) -> bool:
    root = region.results[0].type.shape
    return (node.op is block_sums and node.inputs[0].type.shape == root) or (
        node.op is row_products and node.inputs[0].type.shape[:-1] == root[:-1])
