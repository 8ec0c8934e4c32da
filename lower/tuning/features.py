"""What a scheduled kernel will do at some sizes, as numbers, from its nest alone: no code is generated.

Guarantees: a vector of `len(NAMES)` finite numbers that depends on nest, sizes and target only. Bytes past a cache are those
of loops whose data does not fit it: a loop fetches what it reads once if one trip of it fits, else every trip does again.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, evaluate
from loopwright.ir.loops import Apply, Bounded, Expr, Index, Literal, Load, Local, Prefix, Reduce, Size, parts, walk
from loopwright.ir.nest import (
    Allocate,
    Block,
    Buffer,
    Contract,
    For,
    Let,
    Nest,
    Prefetch,
    Reduction,
    Scan,
    Statement,
    Store,
    While,
)
from loopwright.lower.survey import EXPENSIVE, WEIGHTS
from loopwright.lower.target import Target

LINE = 64  # bytes that memory moves at once
FIRST_CACHE = 1 << 15  # bytes
LAST_CACHE = 16  # times the second one: what processors share
TRIPS = 16  # of a loop that ends on a condition: nobody knows
STRIPE = 2048  # positions of a loop by rows
MOST_SEEN = 1 << 11  # loops that are remembered

NAMES = (
    "work", "dear",  # operations, by their costs and a vector at a time; those of exp and the like
    "loads", "stores",  # a vector at a time
    "scattered",  # elements that lanes read or write apart from each other
    "steps",  # of all loops
    "bytes", "past_first", "past_second", "past_last",  # of operands and results that are surely met; from beyond each cache
    "parallel",  # iterations of the loop that is shared out
    "lanes", "in_flight", "innermost", "depth",  # lanes, vectors at a time, positions of a loop, loops inside each other: most
    "statements", "kept", "passes", "prefetches",  # of which kept: bytes of rows; passes: reductions with loops of their own
    "tile_rows", "tile_columns", "tile_sums")  # of products: a tile of registers, and its vectors
COLUMN = {name: k for k, name in enumerate(NAMES)}
_LEAST = {"parallel": 1.0}  # without any such loop
Steps = Mapping[str, int]  # how far an index moves for a step of each loop
Wide = tuple[tuple[str, int], ...]  # indices, and so many positions of each
Chain = tuple[str, int, Any]  # a loop's index, its trips, and the chain of the loop around it, or None


def features(nest: Nest, sizes: Mapping[str, int], target: Target) -> np.ndarray:
    """f64[len(NAMES)]: what the nest does at these sizes."""
    walk = _Walk(sizes, target, {b.name: b for b in nest.buffers}, _known(tuple(sizes.items()), target))
    root = _Loops()
    root.enter("", 1)  # the call
    walk.body(nest.body, root)
    total = root.sums | root.most
    total["bytes"] = sum(root.met.values())
    total["past_first"], total["past_second"], total["past_last"] = root.end(walk.caches).moved
    return np.array([total.get(name, _LEAST.get(name, 0.0)) for name in NAMES])


class _Loops:
    """Loops directly inside each other, and what is noted of them.

    trips: of each, outer ones first; runs: how often the body of the innermost runs in all, a step at a time; wide: the
    positions of one step along each index; points: all of them; reads: of each buffer the bytes that one trip meets, then all
    of its trips, and so on outwards; own: those of the body's own statements; met: of operands and results all bytes, where
    no numbers decide which; sums, most: what is added up, and what only the greatest counts of; inside: what each loop of the
    body moved; moved: bytes from beyond each cache; outside, local: buffers of others, and names of its own.
    """

    __slots__ = ("around", "chain", "depth", "inside", "lanes", "local", "met", "most", "moved", "outside", "own", "points",
                 "reads", "runs", "sums", "trips", "wide")

    def __init__(self, around: _Loops | None = None) -> None:
        self.around = around
        self.trips: list[int] = []
        self.chain: Chain | None = around.chain if around else None
        self.wide: Wide = around.wide if around else ()
        self.lanes: int = around.lanes if around else 1
        self.runs: int = around.runs if around else 1
        self.points: int = around.points if around else 1
        self.depth: int = around.depth if around else -1
        self.sums: dict[str, float] = defaultdict(float)
        self.most: dict[str, float] = {}
        self.met: dict[str, float] = {}
        self.reads: dict[str, tuple[float, ...]] = {}
        self.own: dict[str, float] = {}
        self.inside: list[tuple[float, ...]] = []
        self.outside: dict[str, Buffer] = {}
        self.local: list[str] = []
        self.moved: tuple[float, ...] = ()

    def enter(self, name: str, trips: int, step: int = 1, lanes: int = 1) -> None:
        """One more loop, inside the others: each trip goes through so many positions."""
        self.trips.append(trips)
        self.chain = name, trips, self.chain
        self.runs *= trips
        self.points *= trips
        self.depth += 1
        if step > 1:
            self.wide = *self.wide, (name, step)
            self.points *= step
        if lanes > self.lanes:
            self.lanes = lanes

    def goes_through(self, wide: Wide, lanes: int) -> None:
        """What follows goes through other positions in a step."""
        self.wide, self.lanes, self.points = wide, lanes, self.runs * math.prod([n for _, n in wide])

    def access(self, b: Buffer, shape: tuple[int, ...], index: tuple[Expr, ...]) -> float:
        """Note that a statement of the body reads or writes a buffer; the bytes that it meets in all."""
        name, found = b.name, _met(b.dtype.itemsize, shape, index, self.wide, self.chain)
        self.outside[name] = b
        self.own[name] = max(self.own.get(name, 0.0), found[0])
        self.read(name, found)
        return found[-1]

    def read(self, name: str, found: tuple[float, ...]) -> None:
        """Note what is met of a buffer."""
        before = self.reads.get(name)
        self.reads[name] = found if before is None or before is found else tuple(map(max, before, found))

    def add(self, x: _Loops) -> None:
        """Note what a loop of the body does, of which all is noted."""
        levels = len(x.trips)
        for name, n in x.sums.items():
            self.sums[name] += n
        _raise(self.most, x.most)
        _raise(self.met, x.met)
        for name, found in x.reads.items():
            self.read(name, found[levels:])
        self.inside.append(x.moved)
        self.outside |= x.outside

    def end(self, caches: tuple[int, ...]) -> _Loops:
        """The loops, when all is noted. From beyond a cache comes everything once for all trips where what one meets fits
        there, else what every trip fetches."""
        levels = [sum(x) for x in zip(*[x[:len(self.trips) + 1] for x in self.reads.values()], strict=True)]
        self.moved = tuple([self._moved(levels, k, cache) for k, cache in enumerate(caches)])
        for name in self.local:
            self.outside.pop(name, None)
        return self

    def _moved(self, levels: Sequence[float], which: int, cache: int) -> float:
        """levels: the bytes that one trip of the innermost loop meets, then all of its trips, and so on outwards."""
        if not levels:
            return 0.0
        times = 1
        for k, trips in enumerate(self.trips):
            at = len(self.trips) - 1 - k
            if levels[at] <= cache:
                return times * levels[at + 1]
            times *= trips
        return times * (sum(self.own.values()) + sum([x[which] for x in self.inside]))


@dataclass(frozen=True)
class _Known:
    """What nests that follow from each other share, at some sizes: loops that were described, by number; extents and shapes in
    numbers, and lanes of a vector."""

    loops: dict[int, tuple[For, _Loops]] = field(default_factory=dict)  # the first is kept, so that its number stays its own
    numbers: dict[Extent, int] = field(default_factory=dict)
    shapes: dict[Shape, tuple[int, ...]] = field(default_factory=dict)
    lanes: dict[np.dtype, int] = field(default_factory=dict)


@lru_cache(4)
def _known(sizes: tuple[tuple[str, int], ...], target: Target) -> _Known:
    return _Known()


@dataclass
class _Walk:
    sizes: Mapping[str, int]
    target: Target
    buffers: dict[str, Buffer]
    known: _Known

    def __post_init__(self) -> None:
        self.caches = FIRST_CACHE, self.target.cache_bytes, LAST_CACHE * self.target.cache_bytes

    def number(self, n: Extent) -> int:
        """A size as a number."""
        if isinstance(n, int):
            return n
        found = self.known.numbers.get(n)
        if found is None:
            found = self.known.numbers[n] = evaluate(n, self.sizes)
        return found

    def shape(self, b: Buffer) -> tuple[int, ...]:
        """A buffer's, as numbers."""
        found = self.known.shapes.get(b.shape)
        if found is None:
            found = self.known.shapes[b.shape] = tuple([self.number(n) for n in b.shape])
        return found

    def vectors(self, around: _Loops, dtype: np.dtype) -> float:
        """How many vectors of a type all positions are."""
        lanes = self.known.lanes.get(dtype)
        if lanes is None:
            lanes = self.known.lanes[dtype] = self.target.lanes(dtype)
        return around.points / min(around.lanes, lanes)

    # ---- statements --------------------------------------------------------------------------------
    def body(self, statements: Sequence[Statement], around: _Loops) -> None:
        """Statements one after another; reductions that are joined run in the loop of the one before."""
        around.sums["statements"] += len(statements)
        folds: list[_Loops] = []
        for s in statements:
            if isinstance(s, Reduction):
                self.reduction(s, around, folds)
            else:
                self.statement(s, around)
        for fold in folds:
            around.add(fold.end(self.caches))

    def statement(self, s: Statement, around: _Loops) -> None:
        match s:
            case For():
                self.loop(s, around)
            case Allocate():
                self.buffers[s.buffer.name] = s.buffer
                around.local.append(s.buffer.name)
                around.sums["kept"] += math.prod(self.shape(s.buffer)) * s.buffer.dtype.itemsize
            case Store():
                self.expression(s.value, around)
                if s.when is not None:
                    self.expression(s.when, around)
                self.access(s.buffer, s.index, around, "stores")
                if s.combine != "set":
                    self.access(s.buffer, s.index, around, "loads")
            case Let():
                self.expression(s.value, around)
            case Scan():
                inside = self.within(around, ((s.index, s.extent),))
                self.expression(s.body, inside)
                self.access(s.buffer, s.at, inside, "stores")
                around.add(inside.end(self.caches))
            case While():
                inside = _Loops(around)
                inside.enter("while", TRIPS)
                for e in (s.condition, *s.following):
                    self.expression(e, inside)
                self.body(s.body, inside)
                around.add(inside.end(self.caches))
            case Contract():
                self.contract(s, around)
            case Prefetch():
                around.sums["prefetches"] += 1

    def loop(self, s: For, around: _Loops) -> None:
        """A loop. One that comes again does the same inside the same loops."""
        loops = self.known.loops
        _, does = loops.get(id(s), (s, None))
        if does is None or not self.is_same(does, around):
            if len(loops) >= MOST_SEEN:
                loops.clear()
            does = self.inside(s, around).end(self.caches)
            loops[id(s)] = s, does
        around.add(does)

    def is_same(self, x: _Loops, around: _Loops) -> bool:
        """Whether a loop did the same inside these loops."""
        assert x.around is not None
        fits = x.around.chain == around.chain and x.around.wide == around.wide and x.around.lanes == around.lanes
        return fits and all(b is (now := self.buffers.get(name)) or b == now for name, b in x.outside.items())

    def inside(self, s: For, around: _Loops) -> _Loops:
        """A loop and those directly inside it, with all noted that they do."""
        found = _Loops(around)
        while True:
            trips = -(-self.positions(s) // s.step)
            inner = s.body[0] if len(s.body) == 1 else None
            if s.parallel:
                found.most["parallel"] = max(found.most.get("parallel", 0.0), trips)
            if s.tiled and isinstance(inner, For):
                found.enter(s.index.name, -(-trips // inner.lanes))
                found.wide = *found.wide, (s.index.name, inner.lanes)
                found.points *= inner.lanes
            else:
                self.enter(found, s.index, trips, s.lanes, STRIPE // s.lanes if s.by_rows else s.unroll)
            if not isinstance(inner, For):
                self.body(s.body, found)
                return found
            found.sums["statements"] += not s.tiled
            s = inner

    def positions(self, s: For | Block) -> int:
        extent = self.number(s.extent)
        return extent if s.length is None else min(extent, self.number(s.length))

    def enter(self, loops: _Loops, index: Index, extent: int, lanes: int = 1, unroll: int = 1) -> None:
        """One more loop; of one with lanes a step is as many positions as are in flight."""
        step = min(lanes * unroll, max(extent, 1))
        loops.enter(index.name, -(-extent // step), step, lanes)
        loops.sums["steps"] += loops.runs
        _raise(loops.most, {"lanes": lanes, "in_flight": step / lanes, "innermost": extent, "depth": loops.depth})

    def within(self, around: _Loops, over: Sequence[tuple[Index, Extent]], lanes: int = 1, unroll: int = 1) -> _Loops:
        """Loops over all of some indices, the last in so many lanes and vectors in flight."""
        found = _Loops(around)
        for index, extent in over[:-1]:
            self.enter(found, index, self.number(extent))
        for index, extent in over[-1:]:
            self.enter(found, index, self.number(extent), lanes, unroll)
        return found

    def reduction(self, s: Reduction, around: _Loops, folds: list[_Loops]) -> None:
        if not s.joined or not folds:
            folds.append(self.within(around, s.over, s.lanes, s.unroll))
            around.sums["passes"] += 1
        self.expression(s.body, folds[-1])
        self.body(s.also, folds[-1])
        folds[-1].sums["work"] += folds[-1].points / folds[-1].lanes

    def contract(self, s: Contract, around: _Loops) -> None:
        """Tiles of rows one after another; in each all terms."""
        tall, columns = s.heights[0], s.columns.length or self.number(s.columns.extent)
        rows = _Loops(around)
        self.enter(rows, s.rows.index, self.positions(s.rows), 1, tall)
        terms = _Loops(rows)
        for b in s.over:
            self.enter(terms, b.index, self.positions(b))
        row, column = (s.rows.index.name, tall), (s.columns.index.name, columns)
        terms.goes_through((row,), 1)
        self.expression(s.left, terms)
        terms.goes_through((column,), s.lanes)
        self.expression(s.right, terms)
        terms.sums["work"] += tall * terms.points / s.lanes
        terms.most |= {"tile_rows": tall, "tile_columns": columns, "tile_sums": tall * columns / s.lanes}
        rows.add(terms.end(self.caches))
        rows.goes_through((row, column), s.lanes)
        self.access(s.buffer, s.at, rows, "stores")
        around.add(rows.end(self.caches))

    # ---- expressions -------------------------------------------------------------------------------
    def expression(self, e: Expr, around: _Loops) -> None:
        """What is computed and read for an expression, parts that it shares once."""
        found = _summary(e)
        for x in found.loads:
            self.access(str(x.array), x.index, around, "loads")
        for e in found.folds:
            around.sums["passes"] += isinstance(e, Reduce)
            inside = self.within(around, e.over if isinstance(e, Reduce) else ((e.index, e.extent),))
            self.expression(e.body, inside)
            around.add(inside.end(self.caches))
        if found.work:
            vectors = self.vectors(around, found.dtype)
            around.sums["work"] += found.work * vectors
            around.sums["dear"] += found.dear * vectors

    def access(self, name: str, index: tuple[Expr, ...], around: _Loops, kind: str) -> None:
        """Note a read or write."""
        b = self.buffers[name]
        if around.lanes > 1 and around.wide and _is_scattered(index, around.wide[-1][0]):
            around.sums["scattered"] += around.points
        around.sums[kind] += self.vectors(around, b.dtype)
        met = around.access(b, self.shape(b), index)
        if b.role != "local" and not _is_read(index):
            around.met[name] = max(around.met.get(name, 0.0), met)


def _raise(x: dict[str, float], y: Mapping[str, float]) -> None:
    """The larger ones."""
    for name, n in y.items():
        if name not in x or n > x[name]:
            x[name] = n


# ---- what nests that follow from each other share: their expressions, and most of their loops -------------
@dataclass(frozen=True)
class _Summary:
    """Of an expression, each part once: its cost, that of exp and the like, what it loads, and the folds in it."""

    dtype: np.dtype
    work: int
    dear: int
    loads: tuple[Load, ...]
    folds: tuple[Reduce | Prefix, ...]


@lru_cache(1 << 12)
def _summary(e: Expr) -> _Summary:
    todo, seen = [e], {id(e)}
    work = dear = 0
    loads, folds = list[Load](), list[Reduce | Prefix]()
    while todo:
        x = todo.pop()
        match x:
            case Load():
                loads.append(x)
                continue
            case Apply(fn):
                weight = WEIGHTS.get(fn, 1)
                work += weight
                dear += weight if weight >= EXPENSIVE else 0
            case Reduce() | Prefix():
                folds.append(x)
                continue
        for part in parts(x):
            if id(part) not in seen:
                seen.add(id(part))
                todo.append(part)
    return _Summary(e.dtype, work, dear, tuple(loads), tuple(folds))


@lru_cache(1 << 14)
def _met(each: int, shape: tuple[int, ...], index: tuple[Expr, ...], wide: Wide,
         chain: Chain) -> tuple[float, ...]:
    """The bytes that an access meets in one run of a statement, then in all runs of each loop around it, outwards."""
    steps = [steps_of(e) for e in index]
    reach = dict[str, int]()
    for k, n in wide:
        reach[k] = reach.get(k, 1) * n
    moved = {k for axis in steps for k in axis}
    found = [reached(shape, steps, reach, each)]
    loop: Chain | None = chain
    while loop is not None:
        name, trips, loop = loop
        if trips > 1 and name in moved:
            reach[name] = reach.get(name, 1) * trips
            found.append(reached(shape, steps, reach, each))
        else:
            found.append(found[-1])
    return tuple(found)


@lru_cache(1 << 12)
def _is_scattered(index: tuple[Expr, ...], lane: str) -> bool:
    """Whether lanes along a loop read or write apart from each other."""
    steps = [steps_of(e) for e in index]
    along = [axis for axis in steps if lane in axis]
    return bool(along) and (len(along) > 1 or steps[-1].get(lane) != 1)


@lru_cache(1 << 12)
def _is_read(index: tuple[Expr, ...]) -> bool:
    """Whether an index depends on what is in memory."""
    return any(isinstance(x, Load | Local) for e in index for x in walk(e))


@lru_cache(1 << 12)
def steps_of(e: Expr, scale: int = 1) -> Steps:
    """How far an index expression moves for each loop's step; loops that it depends on in other ways move it by one."""
    match e:
        case Index(name):
            return {name: scale}
        case Literal() | Size():
            return {}
        case Apply(fn="add", args=(a, b)):
            return {**steps_of(a, scale), **steps_of(b, scale)}
        case Apply(fn="mul", args=(a, Literal(value=int() as n)) | (Literal(value=int() as n), a)):
            return steps_of(a, abs(n) * scale)
        case Bounded(index=a):
            return dict.fromkeys(steps_of(a), 1)
    found: dict[str, int] = {}
    for part in parts(e):
        found.update(dict.fromkeys(steps_of(part), 1))
    return found


def reached(shape: Sequence[int], steps: Sequence[Steps], reach: Mapping[str, int], each: int) -> float:
    """The bytes that an access meets, whole lines where rows lie apart, and at most the whole array."""
    rows = row = 1
    for n, axis in zip(shape, steps, strict=True):
        rows, row = rows * row, 1
        for k, c in axis.items():
            row += c * (reach.get(k, 1) - 1)
        row = min(row, n)
    if rows == 1 or row == shape[-1]:
        return float(rows * row * each)
    return float(min(rows * max(row * each, LINE), math.prod(shape) * each))
