"""What a kernel's statements are: each stage of a region composed where a schedule puts it, in plain loops.

Guarantees: the statements compute what the region means, every result stored; no loop has lanes or is shared out yet, so that
schedules which differ in these alone have the same statements.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.errors import ScheduleError
from loopwright.ir.gpu_schedule import ByOwner, InAnyOrder
from loopwright.ir.graph import Graph, Value
from loopwright.ir.loops import Apply, Expr, Index, Load, Local, Prefix, Reduce, Scatter, integer, walk
from loopwright.ir.nest import Allocate, Buffer, For, Let, Prefetch, Reduction, Scan, Statement, Store, altered
from loopwright.ir.schedule import AddAlong, ComputeAt, Inline, InPlace, InRuns, Instruction, Interleave, PrefetchRow
from loopwright.lower.composition import Composer, Position, fresh_indices, reads
from loopwright.lower.partials import block_of
from loopwright.lower.row_products import row_products, row_sums
from loopwright.lower.updates import loop_of_runs

ROWS_AHEAD = 16  # that what goes over rows once asks for


@dataclass(frozen=True)
class Places:
    """What a schedule says of where things are computed and stored. across: the root's last loop has lanes, and what is reduced
    inside it is part of expressions; outermost: the loops of a scatter's updates that go outside."""

    kept: tuple[ComputeAt, ...] = ()
    along: tuple[AddAlong, ...] = ()
    in_place: tuple[InPlace, ...] = ()
    interleave: bool = False
    updates: ByOwner | InAnyOrder | InRuns | None = None
    across: bool = False
    outermost: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Placed:
    """The statements; the level of rows, and what is computed at the points of each reduction with a loop of its own, in order;
    of each error site its stage; the loops of each reduction stage; which loop of which stage a variable is of, and whether
    several of its vectors may be in flight; the axis of a running fold, and its variable; whether the last statement is the
    updates of a scatter."""

    statements: tuple[Statement, ...]
    level: int
    passes: dict[int, Sequence[Expr]]
    sites: tuple[int, ...]
    folds: dict[int, tuple[tuple[Index, Extent], ...]]
    loops: dict[Index, tuple[int, int, bool]]
    running: tuple[int, Index] | None
    scatters: bool


def place(region: Graph, places: Places) -> Placed:
    """The statements of a region. ScheduleError where something cannot be computed at its place."""
    return _Placer(region, places).placed()


def check(fine: bool, instruction: Instruction, why: str) -> None:
    """ScheduleError of an instruction unless fine."""
    if not fine:
        raise ScheduleError(f"{instruction}: {why}")


class _Placer:
    def __init__(self, region: Graph, places: Places) -> None:
        self.region, self.places = region, places
        self.at = {x.stage: x for x in places.kept}
        self.number = {n.outputs[0]: k for k, n in enumerate(region.nodes)}
        self.root = region.results[0]
        self.root_stage = self.number[self.root]
        self.index: tuple[Index, ...] = tuple(Index(f"i{a}") for a in range(self.root.type.rank))
        self.ready: dict[Value, Expr | str] = {}  # a local, or the name of a local row
        self.names = {v: f"x{k}" for k, v in enumerate(region.params)}
        self.names |= {region.params[x.operand]: f"y{x.output}" for x in places.in_place}
        self.outputs = {v: f"y{k}" for k, v in reversed(list(enumerate(region.results)))}
        self.composer = Composer(region, self.names, self.kept)
        self.over: dict[int, tuple[tuple[Index, Extent], ...]] = {}  # of each reduction stage
        self.passes: dict[int, Sequence[Expr]] = {}  # what is computed at the points of each reduction so far
        self.loops = self.index[:-1] if places.interleave else self.index
        self.variables = {k: (self.root_stage, a, True) for a, k in enumerate(self.loops) if a == len(self.loops) - 1}
        self.level = min(self.at.values(), key=lambda x: x.level).level if self.at else len(self.loops)
        self.running: tuple[int, Index] | None = None  # the axis of a running fold, and its variable
        self.scatters = False

    def placed(self) -> Placed:
        self._check_places()
        body = self._body()
        return Placed(body, self.level, self.passes, tuple(self.composer.sites), self.over, self.variables, self.running,
                      self.scatters)

    def _check_places(self) -> None:
        """Stages are kept where the loops go through just their positions, and every result is stored."""
        levels, shape = (self.level, len(self.loops)), self.root.type.shape
        for stage, x in self.at.items():
            t = self.region.nodes[stage].outputs[0].type
            check(t.rank >= x.level, x, f"stage {stage} has only {t.rank} axes")
            check(t.shape[:x.level] == shape[:x.level], x, f"the root's loops do not go through the axes of stage {stage}")
            if x.within is not None:
                fold = self.at.get(x.within)
                check(fold is not None and fold.stage > stage and fold.level == x.level in levels, x,
                       "the reduction that is to fill the row is not kept after it at this level")
        stored = {self.root_stage, *(x.stage for x in self.places.along)}
        stored |= {x.stage for x in self.places.kept if x.level in levels and x.within is None
                   and x.level == self.region.nodes[x.stage].outputs[0].type.rank}
        for v in self.region.results:
            check(self.number[v] in stored, Inline(self.number[v]), "it is a result, and not stored")

    # ---- what is kept --------------------------------------------------------------------------
    def kept(self, v: Value, index: Position) -> Expr | None:
        place = self.at.get(self.number[v])
        if place is None or v not in self.ready:
            return None
        if index[:place.level] != self.index[:place.level]:
            return None
        ready = self.ready[v]
        return Load(ready, index[place.level:], v.type.dtype) if isinstance(ready, str) else ready

    # ---- statements ----------------------------------------------------------------------------
    def _body(self) -> tuple[Statement, ...]:
        own = reads(self.region.nodes[self.root_stage], self.index, fresh_indices())[0]
        check(not isinstance(own, Scatter | Prefix | Reduce) or not self.places.interleave, Interleave(), "the root is a fold")
        if self.places.updates is not None:
            check(isinstance(own, Scatter), self.places.updates, "the root is no scatter")
        if isinstance(own, Scatter | Prefix):
            whole = self.composer.compute(self.root, self.index)
            check(isinstance(whole, Scatter) or not self.places.in_place, InPlace(0), "the root is a running fold")
            assert isinstance(whole, Scatter | Prefix)
            return self._scatter(whole) if isinstance(whole, Scatter) else self._prefix(whole)
        body = self._nested()
        for x in self.places.in_place:
            check(_reads_first(body, f"y{x.output}", self.stored()), x, "an element may be read after it is stored")
        return body

    def _nested(self) -> tuple[Statement, ...]:
        rank = len(self.loops)
        kept = [s for k in sorted(self.at) if self.at[k].level == self.level < rank for s in self._place(k)]
        rows, stores = _stores_apart(kept)
        rows += stores
        inner, stores = _stores_apart([s for k in sorted(self.at) if self.at[k].level == rank for s in self._place(k)])
        inner += [*self._store_root(), *stores]
        body = self._loop_over(range(self.level, rank), inner) if self.level < rank else inner
        if any(map(self._sums_rows, self.places.along)):
            return self._with_row_sums([*rows, *body])
        return tuple(self._loop_over(range(self.level), [*rows, *body]))

    def _sums_rows(self, x: AddAlong) -> bool:
        return self.region.nodes[x.stage].op is row_products

    def _with_row_sums(self, body: list[Statement]) -> tuple[Statement, ...]:
        """The loops around the statements for a row, which adds to sums over all rows as well."""
        found, last = [], self.level - 1
        for x in filter(self._sums_rows, self.places.along):
            node = self.region.nodes[x.stage]
            fits = self.level == len(self.index) - 1 and node.inputs[0].type.shape[:-1] == self.root.type.shape[:self.level]
            check(fits, x, "the root's loops do not go through its rows")
            made = row_sums(node, x.stage, self.index[:self.level], self.outputs[node.outputs[0]], self.composer)
            self.variables[made.columns] = x.stage, len(self.index) - 1, True
            found.append(made)
        rows = self._loop_over(range(last, self.level), [*body, *(s for x in found for s in x.inside)])
        before, behind = [s for x in found for s in x.before], [s for x in found for s in x.behind]
        return tuple(self._loop_over(range(last), [*before, *rows, *behind]))

    def _loop_over(self, axes: range, body: Sequence[Statement]) -> list[Statement]:
        shape, out = self.root.type.shape, list(body)
        for a in reversed(axes):
            out = [For(self.index[a], shape[a], tuple(out))]
        return out

    def _store_root(self) -> list[Statement]:
        output = self.outputs[self.root]
        if self.places.interleave:
            values = [self.composer.compute(self.root, at) for at in self.stored()]
            held = [Let(f"e{k}", value) for k, value in enumerate(values)] if self.places.in_place else []  # before any store
            values = [Local(x.name, self.root.type.dtype) for x in held] or values
            return [*held, *[Store(output, at, value) for at, value in zip(self.stored(), values, strict=True)]]
        value = self.composer.compute(self.root, self.index)
        lets, value = self._fold(self.root_stage, f"r{self.root_stage}", value)
        return [*lets, Store(output, self.index, value),
                *[self._add_along(x.stage) for x in self.places.along if not self._sums_rows(x)]]

    def _add_along(self, stage: int) -> Store:
        """Add an element to the sum of its block, as the first one or to those before it."""
        node = self.region.nodes[stage]
        name, value = self.outputs[node.outputs[0]], self.composer.read(node.inputs[0], self.index)
        at, first = block_of(self.index, node.attrs["axes"])
        more = Apply("add", (Load(name, at, value.dtype), value), value.dtype)
        return Store(name, at, Apply("select", (first, value, more), value.dtype))

    def stored(self) -> list[Position]:
        """Where the innermost loop stores the root."""
        if not self.places.interleave:
            return [self.index]
        last = self.root.type.shape[-1]
        assert isinstance(last, int)
        return [(*self.loops, integer(k)) for k in range(last)]

    def _fold(self, stage: int, name: str, value: Expr) -> tuple[list[Statement], Expr]:
        """A reduction as a statement, where its loops are not those of lanes of the root."""
        if not isinstance(value, Reduce):
            return [], value
        self.over[stage] = value.over
        if self.places.across and (stage == self.root_stage or self.at[stage].level == len(self.loops)):
            return [], value
        stores = [s for k in sorted(self.at) if self.at[k].within == stage for s in self._fill_within(k, value)]
        if stores:  # the fold now reads what the stores keep
            value = self._again(stage)
        self.passes[stage] = (value.body, *(s.value for s in stores))
        fold = Reduction(name, value.monoid, value.over, value.body, value.dtype, also=tuple(stores),
                         fused=value.fused)
        return [fold], Local(name, value.dtype)

    def _again(self, stage: int) -> Reduce:
        node = self.region.nodes[stage]
        index = self.index[:node.outputs[0].type.rank]
        own = iter([k for k, _ in self.over[stage]])
        supply = chain(own, iter(self.composer.fresh, None))  # folds that are computed anew inside have indices of their own
        composer = Composer(self.region, self.names, self.kept, lambda: next(supply), self.composer.sites)
        value = composer.compute(node.outputs[0], index)
        assert isinstance(value, Reduce)
        return value

    def _place(self, stage: int) -> list[Statement]:
        """Compute a placed stage at its level: a local, or a row of its own."""
        place, v = self.at[stage], self.region.nodes[stage].outputs[0]
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
        return Buffer(f"t{stage}", v.type.shape[self.at[stage].level:], v.type.dtype, "local")

    def _fill_row(self, stage: int) -> list[Statement]:
        level, v, row = self.at[stage].level, self.region.nodes[stage].outputs[0], self._row(stage)
        at = tuple(Index(f"t{stage}_{a}") for a in range(len(row.shape)))
        value = self.composer.compute(v, (*self.index[:level], *at))
        out: list[Statement] = [Store(row.name, at, value)]
        for a in reversed(range(len(at))):
            self.variables[at[a]] = stage, level + a, True
            out = [For(at[a], row.shape[a], tuple(out))]
        self.ready[v] = row.name
        return [Allocate(row), *out]

    def _fill_within(self, stage: int, reduce: Reduce) -> list[Store]:
        place, v = self.at[stage], self.region.nodes[stage].outputs[0]
        at = tuple(k for k, _ in reduce.over)
        fine = tuple([n for _, n in reduce.over]) == v.type.shape[place.level:]
        check(fine, place, "the reduction's loops are not the row's axes")
        value = self.composer.compute(v, (*self.index[:place.level], *at))
        self.ready[v] = f"t{stage}"
        return [Store(f"t{stage}", at, value)]

    # ---- whole-array forms ---------------------------------------------------------------------
    def _scatter(self, s: Scatter) -> tuple[Statement, ...]:
        """Start as the base, then update in C order."""
        out, self.scatters = self.outputs[self.root], True
        start = [] if self.places.in_place else self._loop_over(range(len(self.index)), [Store(out, self.index, s.base)])
        for x in self.places.in_place:
            check(x.output == 0 and s.base == Load(out, self.index, s.dtype), x, "the root does not start as that parameter")
            others = (s.value, *s.target, *([] if s.when is None else [s.when]))
            alone = not s.over or not any(isinstance(y, Load) and y.array == out for e in others for y in walk(e))
            check(alone, x, "updates read what others of them change")
        self.over[self.root_stage] = s.over
        update: list[Statement] = [Store(out, s.target, s.value, s.combine, s.when)]
        rank, outermost = len(self.index), self.places.outermost
        inward = sorted(enumerate(s.over), key=lambda item: (rank + item[0] not in outermost, item[0]))
        how = self.places.updates
        in_runs = loop_of_runs(s, [k for _, (k, _) in inward]) if isinstance(how, InRuns) else None
        if how is not None and isinstance(in_runs, str):
            check(False, how, in_runs)
        for a, (k, extent) in reversed(inward):
            self.variables[k] = self.root_stage, rank + a, True
            update = [For(k, extent, tuple(update), runs=k is in_runs)]
        if isinstance(how, ByOwner):
            update = [dataclasses.replace(x, by_owner=True) for x in update if isinstance(x, For)] or update
        elif isinstance(how, InAnyOrder):
            check(bool(s.over), how, "there is one update")
            update = [dataclasses.replace(x, any_order=True, copy=how.copy, loose=how.loose) for x in update
                      if isinstance(x, For)]
        return (*start, *update)

    def _prefix(self, p: Prefix) -> tuple[Statement, ...]:
        """Serial along its axis, which goes innermost; other axes are loops around."""
        assert isinstance(p.last, Index)
        axis = self.index.index(p.last)
        self.running = axis, p.index
        self.variables[p.index] = self.root_stage, axis, False
        at = (*self.index[:axis], p.index, *self.index[axis + 1:])
        body: list[Statement] = [Scan(p.monoid, p.index, p.extent, p.body, self.outputs[self.root], at, p.dtype)]
        shape: Shape = self.root.type.shape
        for a in reversed([a for a in range(len(shape)) if a != axis]):
            self.variables[self.index[a]] = self.root_stage, a, False
            body = [For(self.index[a], shape[a], tuple(body))]
        return tuple(body)


def _stores_apart(body: Sequence[Statement]) -> tuple[list[Statement], list[Statement]]:
    """Statements without those that store, and these, which come behind: folds that nothing stands between may share a pass."""
    return [s for s in body if not isinstance(s, Store)], [s for s in body if isinstance(s, Store)]


# ---- rows further on ---------------------------------------------------------------------------
def prefetching(region: Graph, places: Places, placed: Placed, stages: Collection[int]) -> tuple[Statement, ...]:
    """The statements, in which the loops of these reductions ask for the rows that come later, and the root's for where it will
    store them. Late: schedules that differ in this alone share all else."""
    if not stages:
        return placed.statements
    root, shape = region.results[0], region.results[0].type.shape
    loops = len(shape) - places.interleave
    for k in stages:
        check(k in placed.passes, PrefetchRow(k), "it is no reduction in a loop of its own")
    asked = {f"{'r' if root in region.nodes[k].outputs else 's'}{k}": _rows_ahead(region, places, placed, k, loops)
             for k in stages}
    place = tuple([Index(f"i{a}") for a in range(len(shape))])
    written = [Prefetch("y0", place, product(shape[placed.level:]), write=True)] if placed.level < loops else []

    def visit(s: Statement) -> Sequence[Statement]:
        match s:
            case For():
                return [s.with_body(tuple([x for inner in s.body for x in visit(inner)]))]
            case Reduction() if s.name in asked:
                return [altered(s, also=(*s.also, *asked[s.name]))]
            case Store() if (s.buffer, s.index) == ("y0", place):
                return [*written, s]
        return [s]
    return tuple([x for s in placed.statements for x in visit(s)])


def _rows_ahead(region: Graph, places: Places, placed: Placed, stage: int, loops: int) -> list[Prefetch]:
    """The lines that the next row will want of what reductions over such rows have read so far, each at its own point;
    those of a row further on where rows are gone over once."""
    level, extents = region.nodes[stage].outputs[0].type.rank, [n for _, n in placed.folds[stage]]
    check(0 < level <= placed.level, PrefetchRow(stage), "the reduction does not run over rows")
    operands = {*(f"x{k}" for k in range(len(region.params))), *(f"y{x.output}" for x in places.in_place)}
    found: dict[str, None] = {}
    passes = 0
    for k, values in placed.passes.items():
        at = (*[Index(f"i{a}") for a in range(level)], *(j for j, _ in placed.folds[k]))
        if [n for _, n in placed.folds[k]] == extents:
            passes += 1
            found |= {str(x.array): None for e in values for x in walk(e) if isinstance(x, Load) and x.index == at}
        if k == stage:
            break
    once = passes == 1 and placed.level == loops
    further = product(extents) * (ROWS_AHEAD if once else 1)
    return [Prefetch(name, at, further, write=False) for name in found if name in operands]


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
