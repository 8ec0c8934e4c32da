"""The space of a kernel's schedules: from one schedule, those that differ from it by one decision.

Guarantees: `replay` accepts what `build_nest` accepts and a processor can run; rules write schedules and check nothing, so that
a rule may be bold: what is not legal is thrown away by `replay`. Where values live (`InPlace`) and what is stored where
(the placement of results and reductions) is never changed.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Graph
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.ir.nest import For, Nest
from loopwright.ir.ops.control import scan
from loopwright.ir.schedule import (
    AddAlong,
    ByRows,
    ComputeAt,
    Fuse,
    Inline,
    Instruction,
    Interleave,
    Jam,
    OnePass,
    Parallel,
    PrefetchRow,
    Reorder,
    Rfactor,
    Schedule,
    ShortRows,
    Split,
    Tensorize,
    Tiles,
    Unroll,
    Vectorize,
)
from loopwright.lower.modules import MOST_LANES
from loopwright.lower.scheduling import Scheduled, build_nest
from loopwright.lower.sharing import Known
from loopwright.lower.survey import survey
from loopwright.lower.target import Target
from loopwright.lower.tiling import block_of
from loopwright.lower.tuning.edits import BLOCKS, FACTORS, Edit, changed, of_kind, ordered, topic
from loopwright.lower.tuning.product_space import block_order, block_sizes, tile_shapes

AT_ONCE = (1, 2, 3, 4, 6, 8)  # positions of a loop around one of vectors
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)  # of blocks of a plain loop
MOST_NESTS = 1 << 12  # that a space remembers, and what they share: then it begins anew


class Space:
    """The schedules of one region on one machine. rules: how they may differ; None: as on a processor. sizes: of its symbols,
    as far as they are known."""

    def __init__(self, region: Graph, target: Target, rules: Sequence[Rule] | None = None,
                 sizes: Mapping[str, int] | None = None) -> None:
        self.region, self.target, self.sizes = region, target, sizes or {}
        self.rules = RULES if rules is None else rules
        self.in_lanes = region.nodes[0].op is scan  # loops of single elements
        self.root = next(k for k, n in enumerate(region.nodes) if region.results[0] in n.outputs)
        self.rank = region.results[0].type.rank
        kinds = [] if self.in_lanes else [s.expr for s in survey(region).stages]
        self.folds = {k: len(e.over) for k, e in enumerate(kinds) if isinstance(e, Reduce)}
        self.is_plain = not self.in_lanes and not isinstance(kinds[self.root], Prefix | Scatter)
        widths = [v.type.dtype.itemsize for n in region.nodes for v in (*n.inputs, *n.outputs)]
        self.most_lanes = min(MOST_LANES, 2 * target.vector_bits // (8 * max(min(widths, default=4), 1)))
        self.lanes = [1 << k for k in range(1, self.most_lanes.bit_length())]
        self._known = Known()
        self._nests: dict[Schedule, list[Scheduled | None]] = {}  # of each its own, once it is known

    def replay(self, schedule: Schedule) -> Scheduled | None:
        """The nest of a schedule; None where it is not legal."""
        if len(self._nests) >= MOST_NESTS:
            self._nests, self._known = {}, Known()
        made = self._nests.setdefault(schedule, [])  # a schedule's hash takes a while: once is enough
        if not made:
            try:
                made.append(build_nest(self.region, schedule, "kernel", self._known))
            except ScheduleError:
                made.append(None)
        return made[0]

    def neighbours(self, schedule: Schedule, made: Scheduled) -> list[Schedule]:
        """Schedules that differ from one by one decision, legal or not, none twice; `made`: the nest of that one."""
        found = (ordered(changed(schedule, *edit)) for rule in self.rules for edit in rule(self, schedule, made))
        return [x for x in dict.fromkeys(found) if x != schedule]

    def mutated(self, schedule: Schedule, made: Scheduled, rng: np.random.Generator) -> Schedule:
        """One of the neighbours, or the schedule itself: first a rule is drawn, then what it says."""
        for k in rng.permutation(len(self.rules)):
            found = list(self.rules[k](self, schedule, made))
            if found:
                return ordered(changed(schedule, *found[rng.integers(len(found))]))
        return schedule

    def crossed(self, a: Schedule, b: Schedule, rng: np.random.Generator) -> Schedule:
        """A schedule whose decisions are each those of a or of b; decisions that name loops stay together."""
        chosen: list[Instruction] = []
        takes_a: dict[object, bool] = {}
        for source, wanted in ((a, True), (b, False)):
            for x in source:
                key = topic(x)
                if key not in takes_a:
                    takes_a[key] = bool(rng.integers(2))
                if takes_a[key] == wanted:
                    chosen.append(x)
        return ordered(chosen)

    def vector_loops(self, schedule: Schedule, made: Scheduled) -> list[tuple[int, int]]:
        """The loops that may have lanes, as (stage, loop)."""
        if self.in_lanes:
            return [(x.stage, x.loop) for x in schedule if isinstance(x, Vectorize)]
        found = [(self.root, self.rank - 1 - any(isinstance(x, Interleave) for x in schedule))] if self.rank else []
        for stage, over in made.folds.items():
            found.append((stage, self.region.nodes[stage].outputs[0].type.rank + len(over) - 1))
        for x in schedule:
            if isinstance(x, ComputeAt) and x.within is None:
                rank = self.region.nodes[x.stage].outputs[0].type.rank
                found += [(x.stage, rank - 1)] * (rank > x.level)
        return [(stage, loop) for stage, loop in dict.fromkeys(found) if loop >= 0]


Rule = Callable[[Space, Schedule, Scheduled], Iterator[Edit]]


# ---- lanes --------------------------------------------------------------------------------------
def _lanes(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Another number of lanes for a loop, or none."""
    yield from other_lanes(space, schedule, made, space.lanes)


def other_lanes(space: Space, schedule: Schedule, made: Scheduled, choices: Iterable[int]) -> Iterator[Edit]:
    """Each of these numbers of lanes for each loop that may have any, or none."""
    for stage, loop in space.vector_loops(schedule, made):
        now = [x for x in schedule if isinstance(x, Vectorize) and (x.stage, x.loop) == (stage, loop)]
        for lanes in choices:
            yield now, [Vectorize(stage, loop, lanes)]
        if now:
            yield [*now, *(x for x in schedule if isinstance(x, Unroll) and x.stage == stage)], []


def in_flight(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Another number of vectors, or accesses of a GPU, in flight."""
    for stage in {x.stage: None for x in schedule if isinstance(x, Vectorize)}:
        now = [x for x in schedule if isinstance(x, Unroll) and x.stage == stage]
        for factor in FACTORS:
            yield now, [Unroll(stage, factor)]


def _across(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Lanes across the root's last loop, with reductions as loops inside, or along the reductions."""
    if not space.folds or not space.is_plain or not space.rank:
        return
    wide = [x for x in schedule if isinstance(x, Vectorize)]
    lanes = max([x.lanes for x in wide], default=max(space.most_lanes // 2, 2))
    now = of_kind(schedule, Vectorize, Unroll, PrefetchRow, ByRows, OnePass, ShortRows)
    root = space.root, space.rank - 1 - bool(of_kind(schedule, Interleave))
    if all((x.stage, x.loop) != root for x in wide):
        yield now, [Vectorize(*root, lanes), Unroll(space.root, 4)]
    folds = [(k, space.region.nodes[k].outputs[0].type.rank + over - 1) for k, over in space.folds.items()]
    yield now, [y for k, loop in folds for y in (Vectorize(k, loop, lanes), Unroll(k, 4))]


# ---- what is kept -------------------------------------------------------------------------------
def _places(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Another place for a stage that is no result and no reduction: anew, a value, a row, a row filled by a reduction."""
    root = space.region.results[0].type.shape
    beside: dict[int, list[Instruction]] = {}
    for x in schedule:
        if isinstance(x, Vectorize | Unroll):
            beside.setdefault(x.stage, []).append(x)
    for now in of_kind(schedule, Inline, ComputeAt):
        assert isinstance(now, Inline | ComputeAt)
        k, v = now.stage, space.region.nodes[now.stage].outputs[0]
        if v in space.region.results or k in space.folds:
            continue
        old = [now, *beside.get(k, ())]
        yield old, [Inline(k)]
        for level in range(v.type.rank + 1):
            if v.type.shape[:level] == root[:level]:
                for within in (None, *(f for f in space.folds if level < v.type.rank)):
                    yield old, [ComputeAt(k, level, within)]


# ---- loops --------------------------------------------------------------------------------------
def fused(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Loops made one, or left apart."""
    for x in of_kind(schedule, Fuse):
        yield [x], []
    if not space.is_plain or of_kind(schedule, *BLOCKS):
        return
    runs = [(space.root, 0, space.rank)]
    runs += [(k, space.region.nodes[k].outputs[0].type.rank, len(over)) for k, over in made.folds.items()]
    for stage, first, count in runs:
        taken = [x for x in schedule if isinstance(x, Fuse) and x.stage == stage]
        for start in range(count):
            for length in range(2, count - start + 1):
                yield taken, [Fuse(stage, first + start, length)]


def _shared(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Another loop for the pool, or none."""
    now = of_kind(schedule, Parallel)
    yield now, []
    if not space.in_lanes and not of_kind(schedule, Tensorize):
        yield now, [Parallel()]
    if space.is_plain and not of_kind(schedule, AddAlong):
        for f in _chain(made.nest):
            yield now, [Parallel((f.index.name,))]


def _chain(nest: Nest) -> list[For]:
    """The root's loops that are directly inside one another, from the outermost."""
    found: list[For] = []
    body = nest.body
    while len(body) == 1 and isinstance(body[0], For):
        found.append(body[0])
        body = body[0].body
    return found


def _tiled_loops(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """A plain loop in blocks that go outside the loop around it; two loops in the other order; or neither."""
    if not space.is_plain or of_kind(schedule, Tensorize):
        return
    if now := of_kind(schedule, *BLOCKS):
        yield now, []
    for outer, inner in pairwise(_chain(made.nest)):
        if inner.lanes > 1 or inner.step > 1:
            continue
        a, b = outer.index.name, inner.index.name
        yield [], [Reorder((b, a))]
        for size in SIZES:
            yield [], [Split(b, size), Reorder((block_of(b, size).name, a, b))]


# ---- passes over memory -------------------------------------------------------------------------
def _passes(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """What decides how often and in which order memory is gone through, each on or off."""
    if not space.is_plain:
        return
    switches = [x for k in space.folds for x in (OnePass(k), PrefetchRow(k), Rfactor(k))]
    for x in (Tiles(), ByRows(), *switches):
        yield ([x], []) if x in schedule else ([], [x])


def _at_once(space: Space, schedule: Schedule, made: Scheduled) -> Iterator[Edit]:
    """Another number of positions at once around the loop of vectors, or one."""
    if space.is_plain and space.folds and not of_kind(schedule, *BLOCKS):
        now = of_kind(schedule, Jam)
        for factor in AT_ONCE:
            yield now, [Jam(factor)] if factor > 1 else []


RULES: tuple[Rule, ...] = (_lanes, in_flight, _at_once, _across, _places, fused, _shared, _tiled_loops, _passes, block_sizes,
                           tile_shapes, block_order)
