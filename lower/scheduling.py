"""Apply a schedule to a region: each instruction checks, then does; the result is a loop nest.

Guarantees: the nest computes what the region means, for every schedule that is accepted; what an instruction needs and
does not find raises ScheduleError naming the instruction. There is no other way to a nest.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.errors import ScheduleError as ScheduleError
from loopwright.ir.gpu_schedule import Bind, InPasses, InRegisters, InShared, InTiles, Threads
from loopwright.ir.graph import Graph
from loopwright.ir.loops import Apply, Expr, Index, walk
from loopwright.ir.monoids import any_order
from loopwright.ir.nest import Allocate, Buffer, Contract, For, Nest, Reduction, Scan, Statement, Store, altered
from loopwright.ir.ops.control import scan
from loopwright.ir.schedule import (
    ByRows,
    Distribute,
    InPlace,
    Instruction,
    OnePass,
    Pack,
    Parallel,
    ParallelUpdates,
    Reorder,
    Rfactor,
    Schedule,
    Skip,
    Split,
    Tensorize,
    Tiles,
    Vectorize,
)
from loopwright.lower import binding, blocks, registers
from loopwright.lower.distribution import distribute
from loopwright.lower.few_columns import with_few
from loopwright.lower.fusing import Fused, by_rows, fuse_loops, transposed_loads
from loopwright.lower.instructions import Decisions, decisions_of
from loopwright.lower.jamming import jam
from loopwright.lower.joining import join
from loopwright.lower.lanes import lane_nest
from loopwright.lower.masking import skip
from loopwright.lower.naming import bits, may_name, named
from loopwright.lower.packing import pack
from loopwright.lower.partials import ROWS, block_sums
from loopwright.lower.placing import Places, check, place, prefetching
from loopwright.lower.row_passes import in_passes
from loopwright.lower.sharing import Begun, Blocking, Known, Step, Wide, known_of
from loopwright.lower.short_rows import in_short_rows
from loopwright.lower.squeezing import with_ones
from loopwright.lower.tiling import Done, every, reorder, shared_out, split, tensorize, unpacked
from loopwright.lower.updates import are_whole, by_owners

T = TypeVar("T")
R = TypeVar("R")
HEIGHTS = 4, 2, 1  # of tiles of vectors, where nobody says others
MOST_WIDE = 1 << 10
MOST_DONE = 256  # loops of which it is known what an instruction makes of each
SOME = 2  # lanes of a loop that has any, before it is said how many


@dataclass(frozen=True)
class Scheduled:
    """A nest, the stage of each error site in it (site 0 is no stage's), and the loops of each reduction stage."""

    nest: Nest
    sites: tuple[int, ...]
    folds: dict[int, tuple[tuple[Index, Extent], ...]]


def with_in_place(region: Graph, schedule: Schedule, step: InPlace) -> Schedule | None:
    """The schedule with a result in an operand's memory, without threads and lanes of loops that are then gone; None where that
    is not allowed."""
    made = nest_or_none(region, (*schedule, step))
    if made is None:
        alone = tuple([x for x in schedule if not (isinstance(x, Parallel) and x.loops)])
        return with_in_place(region, alone, step) if len(alone) < len(schedule) else None
    kept = list(schedule)
    for x in [x for x in schedule if isinstance(x, Vectorize) and x.loop < region.results[0].type.rank]:
        fewer = [y for y in kept if y is not x]
        if nest_or_none(region, (*fewer, step)) == made:
            kept = fewer
    return (*kept, step)


def nest_or_none(region: Graph, schedule: Schedule) -> Nest | None:
    """The nest that a schedule makes, if it is allowed."""
    try:
        return build_nest(region, schedule, "trial").nest
    except ScheduleError:
        return None


def with_usual(region: Graph, scheduled: Scheduled, usual: Callable[[], Schedule], *, has_unit: bool) -> Scheduled:
    """The nest, and where it uses a tile unit what is done instead, which this schedule makes, and not one like its own. That
    nest alone where there is no such unit, as a schedule may come from another machine, or where errors may be told of what is
    made of sums, which the unit may have left unmade."""
    if scheduled.nest.instead is None:
        return scheduled
    if len(scheduled.sites) > 1 or not has_unit:
        return build_nest(region, usual(), scheduled.nest.name)
    return replace(scheduled, nest=altered(scheduled.nest, instead=lambda: _plain(region, usual(), scheduled.nest.name)))


def _plain(region: Graph, schedule: Schedule, name: str) -> Nest:
    """A nest for all sizes that the kernel has no other one for."""
    return altered(build_nest(region, schedule, name).nest, few=(), ones=None)


def _without_units(schedule: Schedule, nest: Nest) -> Schedule:
    """The same blocks, with tiles of vectors."""
    terms = [s.over[-1].origin for s in every(nest.body) if isinstance(s, Contract) and s.unit]
    names = [k.name for k in terms if k is not None]

    def usual(x: Instruction) -> Instruction:
        if isinstance(x, Tensorize) and x.unit:
            return replace(x, heights=HEIGHTS, unit="", pairs=False)
        if isinstance(x, Pack) and x.side == "left" and x.loop not in names:  # of rows, with all of their terms
            return replace(x, loop=names[0])
        return x
    return tuple(map(usual, schedule))


def build_nest(region: Graph, schedule: Schedule, name: str, known: Known | None = None) -> Scheduled:
    """The nest that `schedule` makes of `region`. `known`: what others made of this region, which this one adds to."""
    if region.nodes[0].op is scan:
        try:
            return Scheduled(lane_nest(region, schedule, name), (-1,), {})
        except ValueError as error:
            raise ScheduleError(str(error)) from None
    d, known = decisions_of(region, schedule), known_of(region) if known is None else known
    units = [x for x in schedule if isinstance(x, Tensorize) and x.unit]
    for unit in units:
        check(not d.in_place, unit, "what is read is read again where the unit cannot multiply it")
    places = _places(region, d)
    begun = known.begun.get(places)
    if begun is None:
        begun = known.begun[places] = Begun(place(region, places))
    made = _NestBuilder(region, d, places, begun, known).build(name)
    if units:
        made = replace(made, nest=altered(made.nest, instead=lambda: _plain(region, _without_units(schedule, made.nest), name)))
    if d.squeezes:
        made = replace(made, nest=with_ones(region, made.nest, scatters=begun.placed.scatters))
    if d.few is None:
        return made
    may_fail, has_short = len(made.sites) > 1, d.short is not None
    return replace(made, nest=with_few(region, d.few, made.nest, d.fused, may_fail=may_fail, has_short=has_short))


def fits(region: Graph, schedule: Schedule) -> bool:
    """Whether `build_nest` makes a nest of them."""
    try:
        build_nest(region, schedule, "probe")
    except ScheduleError:
        return False
    return True


def _places(region: Graph, d: Decisions) -> Places:
    """What decisions say of where things are computed."""
    root = next(k for k, n in enumerate(region.nodes) if region.results[0] in n.outputs)
    loops = region.results[0].type.rank - d.interleave
    outermost = frozenset([x.loop for x in d.bound if x.stage == root])
    across = loops > 0 and (root, loops - 1) in d.vector
    return Places(tuple(d.placed.values()), tuple(d.along.values()), tuple(d.in_place), d.interleave, d.updates, across,
                  outermost)


class _NestBuilder:
    def __init__(self, region: Graph, decisions: Decisions, places: Places, begun: Begun, known: Known) -> None:
        self.region, self.d, self.places, self.placed = region, decisions, places, begun.placed
        self.begun, self.fused, self.known = begun, begun.fused, known

    def build(self, name: str) -> Scheduled:
        d = self.d
        wide = frozenset([loop for loop, lanes in d.vector.items() if lanes > 1])
        key = (name, wide, frozenset(d.prefetched), d.parallel == Parallel(), tuple(d.bound), tuple(d.fused))
        step = self.begun.nests.get(key)
        if step is None:
            step = self.begun.nests[key] = Step(self._looped(name))
        for instruction in d.blocks:
            step = step.after.get(instruction) or self._blocked(step, instruction)
        body = _in_vectors(step.nest.body, self._vectors(), self.known.wide)  # late: schedules share what is above it
        nest = altered(step.nest, body=body)
        if tiles := [x for x in d.blocks if isinstance(x, Tensorize)]:
            if step.packed is None:
                step.packed = not unpacked(step.nest)
            check(step.packed, tiles[0], "its tiles read packed sides: see Pack")
        if d.parallel:
            nest = _agreed(d.parallel, partial(shared_out, together=self._together()), nest)
        if d.owned:
            nest = self._by_owners(nest)
        if d.by_rows:
            outer = nest.body[0]
            fine = isinstance(outer, For) and outer.lanes > 1 and by_rows(outer.body)
            check(bool(fine), ByRows(), "no fold runs in the lanes of an outermost loop")
            assert isinstance(outer, For)
            nest = altered(nest, body=(altered(outer, by_rows=True), *nest.body[1:]))
        for x in d.joined:
            nest = altered(nest, body=_in_one_pass(nest.body, x))
        for r in d.rfactors:
            nest = altered(nest, body=_shared(nest.body, r))
        if d.short:
            nest = in_short_rows(nest, d.short)
        if d.tiled:
            check(not d.along, Tiles(), "rows are added up in their order")
            nest = altered(nest, body=tuple(map(_tiled, nest.body)))
        if d.jam:
            nest = _agreed(d.jam, lambda nest, x: jam(nest, x.factor), nest)
        return Scheduled(self._on_threads(nest), self.placed.sites, self.placed.folds)

    def _blocked(self, step: Step, x: Blocking) -> Step:
        """One instruction about blocks done."""
        done = self.known.done.setdefault(x, {})
        if len(done) > MOST_DONE:
            done.clear()
        nest = _agreed(x, partial(_blocked, done=done), step.nest)
        if self.placed.scatters:
            kept = not isinstance(x, Reorder) or nest.body[-1] == step.nest.body[-1]
            check(kept, x, "updates of a scatter come in their order")
            check(are_whole(nest.body), x, "a row of updates that are done together has one loop")
        made = step.after[x] = Step(nest)
        return made

    def _by_owners(self, nest: Nest) -> Nest:
        """The nest of a scatter of which threads share out the updates."""
        *start, updates = nest.body
        check(self.placed.scatters and isinstance(updates, For), ParallelUpdates(), "the root is no scatter of several updates")
        assert isinstance(updates, For)
        found = by_owners(updates)
        check(isinstance(found, For), ParallelUpdates(), found if isinstance(found, str) else "")
        assert isinstance(found, For)
        return altered(nest, body=(*start, found))

    def _together(self) -> dict[str, int]:
        """By the index of rows that are added up in blocks, how many of these a block has: one thread adds them up."""
        stages = [self.region.nodes[k] for k in self.d.along]
        return {f"i{len(n.attrs['axes']) - 1}": ROWS for n in stages if n.op is block_sums}

    def _looped(self, name: str) -> Nest:
        """The nest before blocks."""
        body = self._in_lanes(prefetching(self.region, self.places, self.placed, self.d.prefetched))
        if self.d.parallel == Parallel():
            check(not self.placed.scatters, Parallel(), "updates of a scatter come in their order")
            check(len(body) == 1 and isinstance(body[0], For), Parallel(), "the root has no outermost loop of its own")
            together = self._together().get("i0", 1)
            body = tuple([altered(s, parallel=True, together=together) for s in body if isinstance(s, For)])
        inputs = [Buffer(f"x{k}", v.type.shape, v.type.dtype, "input") for k, v in enumerate(self.region.params)]
        outputs = [Buffer(f"y{k}", v.type.shape, v.type.dtype, "output") for k, v in enumerate(self.region.results)]
        nest = Nest(name, (*inputs, *outputs), self.region.symbols, body)
        for bound in self.d.bound:
            nest = _agreed(bound, lambda nest, x: binding.bind(nest, self._index(x.stage, x.loop), x.axes), nest)
        for k, fuse in enumerate(self.d.fused):
            key = (*self.d.bound, *self.d.fused[:k + 1])  # accesses do not depend on lanes
            if key not in self.fused:
                every = self._loops(fuse.stage)
                loops = every[fuse.loop:fuse.loop + fuse.count]
                check(0 < fuse.count == len(loops), fuse, f"stage {fuse.stage} has {len(every)} loops to be made one")
                self.fused[key] = Fused.of(nest, loops)
            fused = fuse_loops(nest, self.fused[key])
            check(fused is not None, fuse, "some access does not keep these loops together")
            assert fused is not None
            nest = fused
        return nest

    def _in_lanes(self, body: Sequence[Statement], around: Vectorize | None = None) -> tuple[Statement, ...]:
        """The statements with some lanes where loops have any. `around`: a loop has lanes already."""
        wide = self._wide
        out: list[Statement] = []
        for s in body:
            if around is not None:
                check(not isinstance(s, Allocate | Reduction), around, "a row, or a loop of a reduction alone, is inside")
            if isinstance(s, For | Reduction | Scan):
                key = id(s), around is None, *sorted(named((s,), wide))
                known = self.begun.wide.get(key)
                if known is None:
                    known = self.begun.wide[key] = s, self._with_lanes(s, around)
                s = known[1]
            out.append(s)
        return tuple(out)

    def _with_lanes(self, s: For | Reduction | Scan, around: Vectorize | None) -> Statement:
        if isinstance(s, Reduction):
            return altered(s, lanes=min(self.d.vector.get(self._last(s), 1), SOME))
        stage, loop, _ = self.placed.loops.get(s.index, (-1, 0, False))
        lanes = self.d.vector.get((stage, loop), 1)
        if isinstance(s, Scan):
            wide = Vectorize(stage, loop, lanes)
            check(lanes == 1 or around is None, wide, "a loop around the running fold has lanes")
            check(lanes == 1 or any_order(s.monoid, s.dtype), wide, "the order of its elements makes a difference")
            return altered(s, lanes=min(lanes, SOME))
        inside = self._in_lanes(s.body, Vectorize(stage, loop, lanes) if lanes > 1 else around)
        check(lanes == 1 or not _meet(s.body, s.index), Vectorize(stage, loop, lanes),
              "lanes may meet in one element of what a store combines")
        return altered(s, body=inside, lanes=min(lanes, SOME))

    @cached_property
    def _wide(self) -> set[str]:
        """The names of reductions, and of indices of loops, that have lanes."""
        vector = self.d.vector
        return {*(s.name for s in self.begun.reductions if vector.get(self._last(s), 1) > 1),
                *(k.name for k, (stage, loop, _) in self.placed.loops.items() if vector.get((stage, loop), 1) > 1)}

    def _last(self, s: Reduction) -> tuple[int, int]:
        """The stage of a reduction and the last of its loops, which may have lanes."""
        stage = int(s.name[1:])
        return stage, self.region.nodes[stage].outputs[0].type.rank + len(s.over) - 1

    def _vectors(self) -> dict[str, dict[str, int]]:
        """Of reductions, and of loops whose lanes the schedule says, by name: how many these are, and how many vectors are in
        flight."""
        folds = [(s.name, *self._last(s), True) for s in self.begun.reductions]
        loops = [(k.name, *of) for k, of in self.placed.loops.items() if self.d.vector.get(of[:2], 1) > 1]
        found = {name: {"lanes": self.d.vector.get((stage, loop), 1)} | ({"unroll": self.d.unroll[stage]}
                 if unrolls and stage in self.d.unroll else {}) for name, stage, loop, unrolls in (*folds, *loops)}
        for k in range(len(self.d.fused)):
            fused = self.fused[(*self.d.bound, *self.d.fused[:k + 1])]
            found |= {new: found[old] for old, new in fused.renamed.items() if old in found}
        return found

    def _on_threads(self, nest: Nest) -> Nest:
        """The nest for blocks of threads, if the schedule has any."""
        if self.d.threads is None:
            check(not self.d.bound and not self.d.rows, Threads(0), "loops are bound, and it is not there")
            return nest
        nest = altered(nest, threads=(self.d.threads.x, self.d.threads.y))
        for row in self.d.rows:
            nest = _agreed(row, _kept_near, nest)
        _agreed(self.d.threads, lambda nest, _: binding.check(nest), nest)
        return nest

    def _index(self, stage: int, loop: int) -> Index:
        """The variable of a loop, counted as in Vectorize."""
        check(0 <= stage < len(self.region.nodes) and loop >= 0, Bind(stage, loop, ()), "there is no such stage")
        rank = self.region.nodes[stage].outputs[0].type.rank
        place = self.d.placed.get(stage)
        if loop >= rank:
            over = self.placed.folds.get(stage, ())
            return over[loop - rank][0] if loop - rank < len(over) else Index("none")
        running = self.placed.running
        if self.region.results[0] in self.region.nodes[stage].outputs and running is not None and loop == running[0]:
            return running[1]
        if place is not None and loop >= place.level:
            return Index(f"t{stage}_{loop - place.level}")
        return Index(f"i{loop}")

    def _loops(self, stage: int) -> tuple[tuple[Index, Extent], ...]:
        shape = self.region.nodes[stage].outputs[0].type.shape
        own = [(Index(f"i{a}"), n) for a, n in enumerate(shape[:self.region.results[0].type.rank])]
        return (*own, *self.placed.folds.get(stage, ()))


def _in_vectors(body: tuple[Statement, ...], vectors: Mapping[str, dict[str, int]], known: Wide) -> tuple[Statement, ...]:
    """The statements with so many lanes and vectors in flight, by the names of loops with lanes and of reductions. `known`:
    loops that have got some."""
    some = [(bits((name,)), (name, *x.items())) for name, x in vectors.items()]
    wanted = bits(vectors)

    def done(s: Statement) -> Statement:
        if isinstance(s, Reduction) and s.name in vectors:
            return altered(s, **vectors[s.name])
        if isinstance(s, Scan) and s.lanes > 1:
            return altered(s, **vectors[s.index.name])
        if not isinstance(s, For) or not may_name(s, wanted):
            return s
        key = id(s), *[x for name, x in some if may_name(s, name)]
        if key not in known:
            if len(known) >= MOST_WIDE:
                known.clear()
            f = s.with_body(tuple(map(done, s.body)))
            if f.lanes > 1 and f.index.name in vectors:
                f = altered(f, **vectors[f.index.name])
            known[key] = s, f  # s is kept, so that its number stays its own
        return known[key][1]
    return tuple(map(done, body))


def _meet(body: Sequence[Statement], lane: Index) -> bool:
    """Whether two positions of a loop may combine what they store with one element."""
    return any(_meet(s.body, lane) if isinstance(s, For) else isinstance(s, Store) and s.combine != "set"
               and [_follows(e, lane) for e in s.index if lane in walk(e)] != [True] for s in body)


def _follows(e: Expr, lane: Index) -> bool:
    """Whether an index is the loop's, moved by what is the same for all of its positions."""
    if isinstance(e, Apply) and e.fn in ("add", "sub"):
        return [_follows(x, lane) for x in e.args if lane in walk(x)] == [True]
    return e == lane


def _agreed(x: T, change: Callable[[Nest, T], R], nest: Nest) -> R:
    """change(nest, x); its ValueError as that of the instruction."""
    try:
        return change(nest, x)
    except ValueError as why:
        raise ScheduleError(f"{x}: {why}") from None


def _blocked(nest: Nest, x: Blocking, done: Done) -> Nest:
    """The nest with one instruction done."""
    match x:
        case Distribute(loop, size):
            return distribute(nest, loop, size, done)
        case Split(loop, size):
            return split(nest, loop, size, done)
        case Reorder(names):
            return reorder(nest, names, done)
        case Tensorize():
            return tensorize(nest, x, done)
        case Pack(side, loop, product):
            return pack(nest, side, loop, product, done)
        case Skip(stage):
            return skip(nest, stage)


def _kept_near(nest: Nest, x: InShared | InRegisters | InTiles | InPasses) -> Nest:
    """The nest with what threads share, or have in registers."""
    if isinstance(x, InPasses):
        return in_passes(nest, x)
    if isinstance(x, InTiles):
        return blocks.in_tiles(nest, x)
    return binding.share_row(nest, f"t{x.stage}") if isinstance(x, InShared) else registers.keep_row(nest, x.row, x.each)


def _in_one_pass(body: Sequence[Statement], x: OnePass) -> tuple[Statement, ...]:
    try:
        joined = join(body, x.stage)
    except ValueError as why:
        raise ScheduleError(f"{x}: {why}") from None
    check(joined != body, x, "it is no reduction in a loop of its own")
    return joined


def _shared(body: Sequence[Statement], x: Rfactor) -> tuple[Statement, ...]:
    """The statements, with the points of a reduction that stands in no loop shared out."""
    def stands_alone(s: Statement) -> bool:
        return isinstance(s, Reduction) and s.name[1:] == str(x.stage) and not s.also and not s.joined

    check(any(map(stands_alone, body)), x, "it is no reduction outside all loops, with a pass of its own")
    return tuple([altered(s, shared=True) if isinstance(s, Reduction) and stands_alone(s) else s for s in body])


def _tiled(s: Statement) -> Statement:
    """Of nested loops the last two, in tiles."""
    if isinstance(s, For) and len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.lanes == 1:
        return altered(s, body=(_tiled(inner),))
    fine = isinstance(s, For) and transposed_loads(s)
    check(bool(fine), Tiles(), "nothing is read across the root's last two loops")
    assert isinstance(s, For)
    return altered(s, tiled=True)
