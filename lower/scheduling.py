"""Apply a schedule to a region: each instruction checks, then does; the result is a loop nest.

Guarantees: the nest computes what the region means, for every schedule that is accepted; what an instruction needs and
does not find raises ScheduleError naming the instruction. There is no other way to a nest.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.errors import ScheduleError as ScheduleError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Apply, Expr, Index, Load, Local, Prefix, Reduce, Scatter, integer, walk
from loopwright.ir.nest import Allocate, Buffer, For, Let, Nest, Prefetch, Reduction, Scan, Statement, Store
from loopwright.ir.ops.control import scan
from loopwright.ir.schedule import (
    AddAlong,
    Bind,
    ByOwner,
    ByRows,
    ComputeAt,
    Fuse,
    Inline,
    InPlace,
    InShared,
    Instruction,
    Interleave,
    OnePass,
    Pack,
    Parallel,
    PrefetchRow,
    Reorder,
    Schedule,
    Split,
    Tensorize,
    Threads,
    Tiles,
    Unroll,
    Vectorize,
)
from loopwright.lower import binding
from loopwright.lower.composition import Composer, Position, fresh_indices, reads
from loopwright.lower.fusing import by_rows, fuse_loops, transposed_loads
from loopwright.lower.joining import join
from loopwright.lower.lanes import lane_nest
from loopwright.lower.partials import ROWS, block_of, block_sums
from loopwright.lower.tiling import blocked, shared_out, unpacked

T = TypeVar("T")
R = TypeVar("R")
MOST_INTERLEAVED = 4  # positions that a loop's body spells out: the parts of a complex number, a few channels


@dataclass(frozen=True)
class Scheduled:
    """A nest, the stage of each error site in it (site 0 is no stage's), and the loops of each reduction stage."""

    nest: Nest
    sites: tuple[int, ...]
    folds: dict[int, tuple[tuple[Index, Extent], ...]]


@dataclass
class Decisions:
    """A schedule sorted by what it decides."""

    placed: dict[int, ComputeAt] = field(default_factory=dict)
    vector: dict[tuple[int, int], int] = field(default_factory=dict)
    unroll: dict[int, int] = field(default_factory=dict)
    fused: list[Fuse] = field(default_factory=list)
    prefetched: set[int] = field(default_factory=set)
    interleave: bool = False
    parallel: Parallel | None = None
    by_rows: bool = False
    tiled: bool = False
    blocks: list[Split | Reorder | Tensorize | Pack] = field(default_factory=list)
    joined: list[OnePass] = field(default_factory=list)
    along: dict[int, AddAlong] = field(default_factory=dict)
    in_place: list[InPlace] = field(default_factory=list)
    threads: Threads | None = None
    bound: list[Bind] = field(default_factory=list)
    shared: list[InShared] = field(default_factory=list)
    by_owner: bool = False


def decisions_of(region: Graph, schedule: Schedule) -> Decisions:
    """Check that every instruction names a stage of the region, and that each stage is placed once."""
    d = Decisions()
    settled: set[int] = set()
    for x in schedule:
        match x:
            case Inline(stage) | ComputeAt(stage) | AddAlong(stage):
                _check(0 <= stage < len(region.nodes) and stage not in settled, x, "stages are placed once")
                settled.add(stage)
                if isinstance(x, ComputeAt):
                    d.placed[stage] = x
                elif isinstance(x, AddAlong):
                    _check(_adds_rows(region, region.nodes[stage]), x, "it does not sum blocks of the root's rows")
                    d.along[stage] = x
            case Vectorize(stage, loop, lanes):
                d.vector[stage, loop] = lanes
            case Unroll(stage, factor):
                d.unroll[stage] = factor
            case Fuse():
                d.fused.append(x)
            case PrefetchRow(stage):
                d.prefetched.add(stage)
            case Interleave():
                _check(is_short(region.results[0].type.shape), x, "the root's last axis has no small constant size")
                d.interleave = True
            case Split() | Reorder() | Tensorize() | Pack():
                d.blocks.append(x)
            case Parallel():
                d.parallel = x
            case ByRows():
                d.by_rows = True
            case Tiles():
                d.tiled = True
            case OnePass():
                d.joined.append(x)
            case Threads():
                d.threads = x
            case Bind():
                d.bound.append(x)
            case InShared():
                d.shared.append(x)
            case ByOwner():
                d.by_owner = True
            case InPlace(operand, output):
                _check(0 <= operand < len(region.params) and 0 <= output < len(region.results), x, "there is no such pair")
                d.in_place.append(x)
    return d


def is_short(shape: Shape) -> bool:
    """Whether the last axis has a size that a loop's body may spell out."""
    return bool(shape) and isinstance(shape[-1], int) and 1 <= shape[-1] <= MOST_INTERLEAVED


def _adds_rows(region: Graph, node: Node) -> bool:
    return node.op is block_sums and node.inputs[0].type.shape == region.results[0].type.shape


def _check(fine: bool, instruction: Instruction, why: str) -> None:
    if not fine:
        raise ScheduleError(f"{instruction}: {why}")


def build_nest(region: Graph, schedule: Schedule, name: str) -> Scheduled:
    """The nest that `schedule` makes of `region`."""
    if region.nodes[0].op is scan:
        try:
            return Scheduled(lane_nest(region, schedule, name), (-1,), {})
        except ValueError as error:
            raise ScheduleError(str(error)) from None
    return _NestBuilder(region, decisions_of(region, schedule), name).build()


class _NestBuilder:
    def __init__(self, region: Graph, decisions: Decisions, name: str) -> None:
        self.region, self.d, self.name = region, decisions, name
        self.number = {n.outputs[0]: k for k, n in enumerate(region.nodes)}
        self.root = region.results[0]
        self.root_stage = self.number[self.root]
        self.index: tuple[Index, ...] = tuple(Index(f"i{a}") for a in range(self.root.type.rank))
        self.ready: dict[Value, Expr | str] = {}  # a local, or the name of a local row
        self.names = {v: f"x{k}" for k, v in enumerate(region.params)}
        self.names |= {region.params[x.operand]: f"y{x.output}" for x in decisions.in_place}
        self.outputs = {v: f"y{k}" for k, v in reversed(list(enumerate(region.results)))}
        self.composer = Composer(region, self.names, self.kept)
        self.over: dict[int, tuple[tuple[Index, Extent], ...]] = {}  # of each reduction stage
        self.asked: set[int] = set()  # the stages whose loops prefetch
        self.loops = self.index[:-1] if decisions.interleave else self.index
        rank = len(self.loops)
        self.vector_root = rank > 0 and (self.root_stage, rank - 1) in decisions.vector
        self.level = min([p.level for p in decisions.placed.values()], default=rank)
        self.running: tuple[int, Index] | None = None  # the axis of a running fold, and its variable

    # ---- what is kept --------------------------------------------------------------------------
    def kept(self, v: Value, index: Position) -> Expr | None:
        place = self.d.placed.get(self.number[v])
        if place is None or v not in self.ready:
            return None
        if index[:place.level] != self.index[:place.level]:
            return None
        ready = self.ready[v]
        return Load(ready, index[place.level:], v.type.dtype) if isinstance(ready, str) else ready

    # ---- statements ----------------------------------------------------------------------------
    def build(self) -> Scheduled:
        self._check_places()
        body = self._body()
        if self.d.parallel == Parallel():
            _check(len(body) == 1 and isinstance(body[0], For), Parallel(), "the root has no outermost loop of its own")
            together = max([ROWS for k in self.d.along if len(self.region.nodes[k].attrs["axes"]) == 1], default=1)
            body = tuple(dataclasses.replace(s, parallel=True, together=together) for s in body if isinstance(s, For))
        for stage in self.d.prefetched:
            _check(stage in self.asked, PrefetchRow(stage), "it is no reduction in a loop of its own")
        inputs = [Buffer(f"x{k}", v.type.shape, v.type.dtype, "input") for k, v in enumerate(self.region.params)]
        outputs = [Buffer(f"y{k}", v.type.shape, v.type.dtype, "output") for k, v in enumerate(self.region.results)]
        nest = Nest(self.name, (*inputs, *outputs), self.region.symbols, body)
        for bound in self.d.bound:
            nest = _agreed(bound, lambda nest, x: binding.bind(nest, self._index(x.stage, x.loop), x.axes), nest)
        for fuse in self.d.fused:
            fused = fuse_loops(nest, self._loops(fuse.stage)[fuse.loop:fuse.loop + fuse.count])
            _check(fused is not None, fuse, "some access does not keep these loops together")
            assert fused is not None
            nest = fused
        for instruction in self.d.blocks:
            nest = _agreed(instruction, blocked, nest)
        for tiles in [x for x in self.d.blocks if isinstance(x, Tensorize)]:
            _check(not unpacked(nest), tiles, "its tiles read packed sides: see Pack")
        if self.d.parallel:
            nest = _agreed(self.d.parallel, shared_out, nest)
        if self.d.by_rows:
            outer = nest.body[0]
            fine = isinstance(outer, For) and outer.lanes > 1 and by_rows(outer.body)
            _check(bool(fine), ByRows(), "no fold runs in the lanes of an outermost loop")
            assert isinstance(outer, For)
            nest = dataclasses.replace(nest, body=(dataclasses.replace(outer, by_rows=True), *nest.body[1:]))
        for x in self.d.joined:
            nest = dataclasses.replace(nest, body=_in_one_pass(nest.body, x))
        if self.d.tiled:
            _check(not self.d.along, Tiles(), "rows are added up in their order")
            nest = dataclasses.replace(nest, body=tuple(map(_tiled, nest.body)))
        return Scheduled(self._on_threads(nest), tuple(self.composer.sites), self.over)

    def _check_places(self) -> None:
        """Stages are kept where the loops go through just their positions, and every result is stored."""
        levels, shape = (self.level, len(self.loops)), self.root.type.shape
        for stage, x in self.d.placed.items():
            t = self.region.nodes[stage].outputs[0].type
            _check(t.rank >= x.level, x, f"stage {stage} has only {t.rank} axes")
            _check(t.shape[:x.level] == shape[:x.level], x, f"the root's loops do not go through the axes of stage {stage}")
            if x.within is not None:
                fold = self.d.placed.get(x.within)
                _check(fold is not None and fold.stage > stage and fold.level == x.level in levels, x,
                       "the reduction that is to fill the row is not kept after it at this level")
        for v in self.region.results:
            stage, place = self.number[v], self.d.placed.get(self.number[v])
            kept = place is not None and place.level == v.type.rank in levels and place.within is None
            _check(kept or stage == self.root_stage or stage in self.d.along, Inline(stage), "it is a result, and not stored")

    def _on_threads(self, nest: Nest) -> Nest:
        """The nest for blocks of threads, if the schedule has any."""
        if self.d.threads is None:
            _check(not self.d.bound and not self.d.shared, Threads(0), "loops are bound, and it is not there")
            return nest
        for row in self.d.shared:
            nest = _agreed(row, lambda nest, x: binding.share_row(nest, f"t{x.stage}"), nest)
        nest = dataclasses.replace(nest, threads=(self.d.threads.x, self.d.threads.y))
        _agreed(self.d.threads, lambda nest, _: binding.check(nest), nest)
        return nest

    def _index(self, stage: int, loop: int) -> Index:
        """The variable of a loop, counted as in Vectorize."""
        _check(0 <= stage < len(self.region.nodes) and loop >= 0, Bind(stage, loop, ()), "there is no such stage")
        rank = self.region.nodes[stage].outputs[0].type.rank
        place = self.d.placed.get(stage)
        if loop >= rank:
            over = self.over.get(stage, ())
            return over[loop - rank][0] if loop - rank < len(over) else Index("none")
        if stage == self.root_stage and self.running is not None and loop == self.running[0]:
            return self.running[1]
        if place is not None and loop >= place.level:
            return Index(f"t{stage}_{loop - place.level}")
        return self.index[loop]

    def _loops(self, stage: int) -> tuple[tuple[Index, Extent], ...]:
        shape = self.region.nodes[stage].outputs[0].type.shape
        return (*zip(self.index, shape, strict=False), *self.over.get(stage, ()))

    def _body(self) -> tuple[Statement, ...]:
        own = reads(self.region.nodes[self.root_stage], self.index, fresh_indices())[0]
        _check(not isinstance(own, Scatter | Prefix | Reduce) or not self.d.interleave, Interleave(), "the root is a fold")
        _check(isinstance(own, Scatter) or not self.d.by_owner, ByOwner(), "the root is no scatter")
        match self.composer.compute(self.root, self.index):
            case Scatter() as scatter:
                return self._scatter(scatter)
            case Prefix() as prefix:
                _check(not self.d.in_place, InPlace(0), "the root is a running fold")
                return self._prefix(prefix)
        body = self._nested()
        for x in self.d.in_place:
            _check(_reads_first(body, f"y{x.output}", self.places()), x, "an element may be read after it is stored")
        return body

    def _nested(self) -> tuple[Statement, ...]:
        rank = len(self.loops)
        self.composer = Composer(self.region, self.names, self.kept)  # the probe above kept nothing ready
        rows = [s for k in sorted(self.d.placed) if self.d.placed[k].level == self.level < rank for s in self._place(k)]
        inner: list[Statement] = [s for k in sorted(self.d.placed) if self.d.placed[k].level == rank for s in self._place(k)]
        inner += self._store_root()
        body = self._loop_over(range(self.level, rank), inner) if self.level < rank else inner
        return tuple(self._loop_over(range(self.level), [*rows, *body]))

    def _loop_over(self, axes: range, body: Sequence[Statement]) -> list[Statement]:
        shape, out = self.root.type.shape, list(body)
        for a in reversed(axes):
            vector = self.vector_root and a == len(self.loops) - 1
            lanes = self.d.vector[self.root_stage, a] if vector else 1
            unroll = self.d.unroll.get(self.root_stage, 1) if vector else 1
            out = [For(self.index[a], shape[a], tuple(out), lanes, unroll)]
        return out

    def _store_root(self) -> list[Statement]:
        if self.d.interleave:
            places = self.places()
            values = [self.composer.compute(self.root, at) for at in places]
            held = [Let(f"e{k}", value) for k, value in enumerate(values)] if self.d.in_place else []  # all, before any store
            values = [Local(x.name, self.root.type.dtype) for x in held] or values
            return [*held, *[Store(self.outputs[self.root], at, value) for at, value in zip(places, values, strict=True)]]
        value = self.composer.compute(self.root, self.index)
        lets, value = self._fold(self.root_stage, f"r{self.root_stage}", value)
        return [*lets, Store(self.outputs[self.root], self.index, value), *map(self._add_along, self.d.along)]

    def _add_along(self, stage: int) -> Store:
        """Add an element to the sum of its block, as the first one or to those before it."""
        node = self.region.nodes[stage]
        name, value = self.outputs[node.outputs[0]], self.composer.read(node.inputs[0], self.index)
        at, first = block_of(self.index, node.attrs["axes"])
        more = Apply("add", (Load(name, at, value.dtype), value), value.dtype)
        return Store(name, at, Apply("select", (first, value, more), value.dtype))

    def places(self) -> list[Position]:
        """Where the innermost loop stores the root."""
        if not self.d.interleave:
            return [self.index]
        last = self.root.type.shape[-1]
        assert isinstance(last, int)
        return [(*self.loops, integer(k)) for k in range(last)]

    def _fold(self, stage: int, name: str, value: Expr) -> tuple[list[Statement], Expr]:
        """A reduction as a statement, where its loops are not those of lanes of the root."""
        in_lanes = self.vector_root and self.level == len(self.loops)
        if not isinstance(value, Reduce):
            return [], value
        self.over[stage] = value.over
        if in_lanes:
            return [], value
        rank = self.region.nodes[stage].outputs[0].type.rank
        lanes = self.d.vector.get((stage, rank + len(value.over) - 1), 1)
        stores = [s for k in sorted(self.d.placed) if self.d.placed[k].within == stage for s in self._fill_within(k, value)]
        if stores:  # the fold now reads what the stores keep
            value = self._again(stage)
        values = (value.body, *(s.value for s in stores))
        also = (*stores, *(self._prefetches(stage, values) if stage in self.d.prefetched else ()))
        fold = Reduction(name, value.monoid, value.over, value.body, value.dtype, lanes, self.d.unroll.get(stage, 1), also)
        return [fold], Local(name, value.dtype)

    def _prefetches(self, stage: int, values: Sequence[Expr]) -> list[Prefetch]:
        """The lines that the next row, and the root's row, will want."""
        self.asked.add(stage)
        level, over = self.region.nodes[stage].outputs[0].type.rank, self.over[stage]
        at, row = (*self.index[:level], *(k for k, _ in over)), product(n for _, n in over)
        _check(0 < level <= self.level, PrefetchRow(stage), "the reduction does not run over rows")
        loads = {x.array: x for e in values for x in walk(e) if isinstance(x, Load) and x.index == at}
        found = [Prefetch(name, at, row, write=False) for name in self.names.values() if name in loads]
        if tuple(n for _, n in over) == self.root.type.shape[level:]:
            found.append(Prefetch(self.outputs[self.root], at, row, write=True))
        return found

    def _again(self, stage: int) -> Reduce:
        node = self.region.nodes[stage]
        index = self.index[:node.outputs[0].type.rank]
        supply = iter([k for k, _ in self.over[stage]])
        composer = Composer(self.region, self.names, self.kept, lambda: next(supply), self.composer.sites)
        value = composer.compute(node.outputs[0], index)
        assert isinstance(value, Reduce)
        return value

    def _place(self, stage: int) -> list[Statement]:
        """Compute a placed stage at its level: a local, or a row of its own."""
        place, v = self.d.placed[stage], self.region.nodes[stage].outputs[0]
        if place.within is not None:
            return [Allocate(self._row(stage))]
        if v.type.rank > place.level:
            return self._fill_row(stage)
        name = f"s{stage}"
        lets, value = self._fold(stage, name, self.composer.compute(v, self.index[:place.level]))
        if not lets:
            lets = [Let(name, value)]
        self.ready[v] = local = Local(name, v.type.dtype)
        if v in self.outputs and v is not self.root:
            lets = [*lets, Store(self.outputs[v], self.index[:place.level], local)]
        return lets

    def _row(self, stage: int) -> Buffer:
        v = self.region.nodes[stage].outputs[0]
        return Buffer(f"t{stage}", v.type.shape[self.d.placed[stage].level:], v.type.dtype, "local")

    def _fill_row(self, stage: int) -> list[Statement]:
        level, v, row = self.d.placed[stage].level, self.region.nodes[stage].outputs[0], self._row(stage)
        at = tuple(Index(f"t{stage}_{a}") for a in range(len(row.shape)))
        value = self.composer.compute(v, (*self.index[:level], *at))
        out: list[Statement] = [Store(row.name, at, value)]
        for a in reversed(range(len(at))):
            lanes = self.d.vector.get((stage, level + a), 1)
            out = [For(at[a], row.shape[a], tuple(out), lanes, self.d.unroll.get(stage, 1) if lanes > 1 else 1)]
        self.ready[v] = row.name
        return [Allocate(row), *out]

    def _fill_within(self, stage: int, reduce: Reduce) -> list[Store]:
        place, v = self.d.placed[stage], self.region.nodes[stage].outputs[0]
        at = tuple(k for k, _ in reduce.over)
        _check(len(at) == v.type.rank - place.level, place, "the reduction's loops are not the row's axes")
        value = self.composer.compute(v, (*self.index[:place.level], *at))
        self.ready[v] = f"t{stage}"
        return [Store(f"t{stage}", at, value)]

    # ---- whole-array forms ---------------------------------------------------------------------
    def _scatter(self, s: Scatter) -> tuple[Statement, ...]:
        """Start as the base, then update in C order."""
        out = self.outputs[self.root]
        start = [] if self.d.in_place else self._loop_over(range(len(self.index)), [Store(out, self.index, s.base)])
        for x in self.d.in_place:
            _check(x.output == 0 and s.base == Load(out, self.index, s.dtype), x, "the root does not start as that parameter")
            others = (s.value, *s.target, *([] if s.when is None else [s.when]))
            alone = not s.over or not any(isinstance(y, Load) and y.array == out for e in others for y in walk(e))
            _check(alone, x, "updates read what others of them change")
        self.over[self.root_stage] = s.over
        update: list[Statement] = [Store(out, s.target, s.value, s.combine, s.when)]
        rank = len(self.index)
        shared = {x.loop - rank for x in self.d.bound if x.stage == self.root_stage}  # outermost: each has elements of its own
        for a, (k, extent) in sorted(enumerate(s.over), key=lambda item: (item[0] not in shared, item[0]), reverse=True):
            lanes = self.d.vector.get((self.root_stage, rank + a), 1)
            update = [For(k, extent, tuple(update), lanes)]
        if self.d.by_owner:
            update = [dataclasses.replace(x, by_owner=True) for x in update if isinstance(x, For)] or update
        return (*start, *update)

    def _prefix(self, p: Prefix) -> tuple[Statement, ...]:
        """Serial along its axis, which goes innermost; other axes are loops around."""
        assert isinstance(p.last, Index)
        axis = self.index.index(p.last)
        self.running = axis, p.index
        at = (*self.index[:axis], p.index, *self.index[axis + 1:])
        body: list[Statement] = [Scan(p.monoid, p.index, p.extent, p.body, self.outputs[self.root], at, p.dtype)]
        shape: Shape = self.root.type.shape
        for a in reversed([a for a in range(len(shape)) if a != axis]):
            vector = self.vector_root and a == len(shape) - 1
            lanes = self.d.vector[self.root_stage, a] if vector else 1
            body = [For(self.index[a], shape[a], tuple(body), lanes)]
        return tuple(body)


def _agreed(x: T, change: Callable[[Nest, T], R], nest: Nest) -> R:
    """change(nest, x); its ValueError as that of the instruction."""
    try:
        return change(nest, x)
    except ValueError as why:
        raise ScheduleError(f"{x}: {why}") from None


def _in_one_pass(body: Sequence[Statement], x: OnePass) -> tuple[Statement, ...]:
    try:
        joined = join(body, f"s{x.stage}")
    except ValueError as why:
        raise ScheduleError(f"{x}: {why}") from None
    _check(joined != body, x, "it is no reduction in a loop of its own")
    return joined


def _tiled(s: Statement) -> Statement:
    """Of nested loops the last two, in tiles."""
    if isinstance(s, For) and len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.lanes == 1:
        return dataclasses.replace(s, body=(_tiled(inner),))
    fine = isinstance(s, For) and transposed_loads(s)
    _check(bool(fine), Tiles(), "nothing is read across the root's last two loops")
    assert isinstance(s, For)
    return dataclasses.replace(s, tiled=True)


# ---- reading and storing in one buffer -------------------------------------------------------------
def _reads_first(body: Sequence[Statement], buffer: str, places: Sequence[Position]) -> bool:
    """Whether statements read the buffer at the root's own places alone, and store each of these once, after all reads."""
    order = list(_accesses(body, buffer))
    reads, stores = order[:-len(places)], order[-len(places):]
    return stores == [(True, at) for at in places] and all(not is_store and at in places for is_store, at in reads)


def _accesses(body: Sequence[Statement], buffer: str) -> Iterator[tuple[bool, Position]]:
    """What statements do with a buffer, in order: whether it is a store, and where."""
    for s in body:
        match s:
            case For():
                yield from _accesses(s.body, buffer)
            case Let(value=value):
                yield from _loads((value,), buffer)
            case Reduction():
                yield from _accesses(s.also, buffer)
                yield from _loads((s.body,), buffer)
            case Scan():
                yield from _loads((s.body, *s.at), buffer)
                yield from [(True, s.at)] * (s.buffer == buffer)
            case Store():
                yield from _loads((s.value, *s.index, *([] if s.when is None else [s.when])), buffer)
                yield from [(True, s.index)] * (s.buffer == buffer)


def _loads(exprs: Sequence[Expr], buffer: str) -> Iterator[tuple[bool, Position]]:
    for e in exprs:
        yield from [(False, x.index) for x in walk(e) if isinstance(x, Load) and x.array == buffer]
