"""What a scheduled kernel will do at some sizes, as numbers, from its nest alone: no code is generated.

Guarantees: a vector of `len(NAMES)` finite numbers that depends on nest, sizes and target only. Bytes past a cache are those
of loops whose data does not fit it: a loop fetches what it reads once if one trip of it fits, else every trip does again.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

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
MOST = frozenset(("parallel", "lanes", "in_flight", "innermost", "depth", "tile_rows", "tile_columns", "tile_sums"))  # no sums
Steps = Mapping[str, int]  # how far an index moves for a step of each loop
Chain = tuple[str, int, Any]  # a loop's index, its trips, and the chain of the loop around it, or None


def features(nest: Nest, sizes: Mapping[str, int], target: Target) -> np.ndarray:
    """f64[len(NAMES)]: what the nest does at these sizes."""
    walk = _Walk(sizes, target, {b.name: b for b in nest.buffers}, _known(tuple(sizes.items()), target))
    root = _Loop("", 1)
    walk.body(nest.body, root)
    total = walk.total
    total["bytes"] = sum(walk.met.values())
    total["past_first"], total["past_second"], total["past_last"] = root.moved(
        (FIRST_CACHE, target.cache_bytes, LAST_CACHE * target.cache_bytes))
    return np.array([total[name] for name in NAMES])


class _Loop:
    """A loop around statements. runs: how often its body runs in all, a step at a time; wide: the positions of one step along
    each index; one, all: of each buffer the bytes that one trip meets, and all trips; own: those of its own statements."""

    __slots__ = ("_moved", "all", "chain", "depth", "index", "inside", "lanes", "one", "own", "parent", "points", "runs",
                 "trips", "wide")

    def __init__(self, index: str, trips: int, parent: _Loop | None = None, wide: tuple[tuple[str, int], ...] = (),
                 lanes: int = 1) -> None:
        self.index, self.trips, self.parent, self.wide, self.lanes = index, trips, parent, wide, lanes
        self.chain: Chain = (index, trips, parent.chain if parent else None)
        self.runs: int = trips * (parent.runs if parent else 1)
        self.points: int = self.runs * math.prod([n for _, n in wide]) if wide else self.runs
        self.depth: int = parent.depth + 1 if parent else 0
        self.one: dict[str, float] = {}
        self.all: dict[str, float] = {}
        self.own: dict[str, float] = {}
        self.inside: list[_Loop] = []
        self._moved: tuple[float, ...] | None = None
        if parent:
            parent.inside.append(self)

    def access(self, name: str, each: int, shape: tuple[int, ...], index: tuple[Expr, ...]) -> float:
        """Note that a statement of the body reads or writes a buffer, of elements of so many bytes; those that it meets in
        all."""
        found = _met(each, shape, index, self.wide, self.chain)
        bytes_ = found[0]
        if bytes_ > self.own.get(name, 0.0):
            self.own[name] = bytes_
        loop: _Loop | None = self
        for after in found[1:]:
            assert loop is not None
            if bytes_ > loop.one.get(name, 0.0):
                loop.one[name] = bytes_
            bytes_ = after
            if bytes_ > loop.all.get(name, 0.0):
                loop.all[name] = bytes_
            loop = loop.parent
        return bytes_

    def moved(self, caches: tuple[int, ...]) -> tuple[float, ...]:
        """The bytes that come from beyond each cache, found once, when all is noted: if a single trip fits everything is
        fetched once, else by every trip."""
        if self._moved is None:
            one, whole = sum(self.one.values()), sum(self.all.values())
            inside = [x.moved(caches) for x in self.inside] if one > min(caches) else []
            own = sum(self.own.values())
            self._moved = tuple([whole if one <= cache else self.trips * (own + sum([x[k] for x in inside]))
                                 for k, cache in enumerate(caches)])
        return self._moved


@dataclass(frozen=True)
class _Described:
    """What a loop does inside a chain of others. sums, most, met: as of `_Walk`, nothing else; around: what it meets in one
    trip of the loop around it, and in all of each, outwards; inside: that loop; read: buffers of others that it reads or
    writes."""

    chain: Chain
    wide: tuple[tuple[str, int], ...]
    lanes: int
    sums: tuple[tuple[str, float], ...]
    most: tuple[tuple[str, float], ...]
    met: dict[str, float]
    around: tuple[dict[str, float], ...]
    inside: list[_Loop]
    read: dict[str, Buffer]


@dataclass
class _Seen:
    """A loop of a nest before, and what it did if it came again: nests that follow from each other share most."""

    loop: For
    does: _Described | None = None


@dataclass(frozen=True)
class _Known:
    """Loops that were described at some sizes, by number, and what extents and shapes are there."""

    loops: dict[int, _Seen] = field(default_factory=dict)
    numbers: dict[Extent, int] = field(default_factory=dict)
    shapes: dict[Shape, tuple[int, ...]] = field(default_factory=dict)


@lru_cache(4)
def _known(sizes: tuple[tuple[str, int], ...], target: Target) -> _Known:
    return _Known()


@dataclass
class _Walk:
    sizes: Mapping[str, int]
    target: Target
    buffers: dict[str, Buffer]
    known: _Known
    total: dict[str, float] = field(default_factory=lambda: {**dict.fromkeys(NAMES, 0.0), "parallel": 1.0})
    met: dict[str, float] = field(default_factory=dict)  # of each operand and result, where no numbers decide which
    last_fold: _Loop | None = None
    read: dict[str, Buffer] | None = None  # by the loop that is being described to be remembered, if one is

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

    def most(self, name: str, x: float) -> None:
        if x > self.total[name]:
            self.total[name] = float(x)

    # ---- statements --------------------------------------------------------------------------------
    def body(self, statements: Sequence[Statement], around: _Loop) -> None:
        for s in statements:
            self.total["statements"] += 1
            self.statement(s, around)

    def statement(self, s: Statement, around: _Loop) -> None:
        match s:
            case For():
                self.loop(s, around)
            case Allocate():
                self.buffers[s.buffer.name] = s.buffer
                self.total["kept"] += math.prod(self.shape(s.buffer)) * s.buffer.dtype.itemsize
            case Store():
                self.expression(s.value, around)
                if s.when is not None:
                    self.expression(s.when, around)
                self.access(s.buffer, s.index, around, "stores")
                if s.combine != "set":
                    self.access(s.buffer, s.index, around, "loads")
            case Let():
                self.expression(s.value, around)
            case Reduction():
                self.reduction(s, around)
            case Scan():
                inside = self.entered(around, s.index, self.number(s.extent))
                self.expression(s.body, inside)
                self.access(s.buffer, s.at, inside, "stores")
            case While():
                inside = _Loop("while", TRIPS, around, around.wide, around.lanes)
                for e in (s.condition, *s.following):
                    self.expression(e, inside)
                self.body(s.body, inside)
            case Contract():
                self.contract(s, around)
            case Prefetch():
                self.total["prefetches"] += 1

    def loop(self, s: For, around: _Loop) -> None:
        """A loop. One that comes again is remembered."""
        loops = self.known.loops
        seen = loops.get(id(s))
        if seen is None:
            if len(loops) >= MOST_SEEN:
                loops.clear()
            loops[id(s)] = _Seen(s)  # it is kept, so that the number stays its own
        if seen is None or self.read is not None:
            self.described(s, around)
            return
        if seen.does is None or not self.is_same(seen.does, around):
            seen.does = self.remembered(s, around)
        self.add(seen.does, around)

    def is_same(self, x: _Described, around: _Loop) -> bool:
        """Whether a loop does the same inside these loops."""
        fits = x.chain == around.chain and x.wide == around.wide and x.lanes == around.lanes
        return fits and all(b is (now := self.buffers.get(name)) or b == now for name, b in x.read.items())

    def remembered(self, s: For, around: _Loop) -> _Described:
        """What a loop does, alone inside the loops around it."""
        alone = _Walk(self.sizes, self.target, dict(self.buffers), self.known, dict.fromkeys(NAMES, 0.0), read={})
        outer = [around]
        while outer[-1].parent:
            outer.append(outer[-1].parent)
        inner: _Loop | None = None
        for x in reversed(outer):
            inner = _Loop(x.index, x.trips, inner, x.wide, x.lanes)
        assert inner is not None and alone.read is not None
        inside = inner.inside
        alone.described(s, inner)
        found = [inner.one]
        while inner:
            found.append(inner.all)
            inner = inner.parent
        some = [(k, x) for k, x in alone.total.items() if x]
        sums, most = (tuple([x for x in some if (x[0] in MOST) == is_most]) for is_most in (False, True))
        return _Described(around.chain, around.wide, around.lanes, sums, most, alone.met, tuple(found), inside,
                          {k: b for k, b in alone.read.items() if self.buffers.get(k) == b})

    def add(self, x: _Described, around: _Loop) -> None:
        """Note what a loop does."""
        total = self.total
        for name, n in x.sums:
            total[name] += n
        for name, n in x.most:
            if n > total[name]:
                total[name] = n
        _raise(self.met, x.met)
        around.inside += x.inside
        _raise(around.one, x.around[0])
        loop = around
        for met in x.around[1:]:
            outer, whole = loop.parent, loop.all
            for name, n in met.items():
                if name not in whole or n > whole[name]:
                    whole[name] = n
                    if outer and n > outer.one.get(name, 0.0):
                        outer.one[name] = n
            loop = outer or loop

    def described(self, s: For, around: _Loop) -> None:
        trips = -(-self.positions(s) // s.step)
        if s.parallel:
            self.most("parallel", trips)
        if s.tiled and isinstance(inner := s.body[0], For):
            wide = *around.wide, (s.index.name, inner.lanes)
            self.loop(inner, _Loop(s.index.name, -(-trips // inner.lanes), around, wide, around.lanes))
            return
        self.body(s.body, self.entered(around, s.index, trips, s.lanes, STRIPE // s.lanes if s.by_rows else s.unroll))

    def positions(self, s: For | Block) -> int:
        extent = self.number(s.extent)
        return extent if s.length is None else min(extent, self.number(s.length))

    def entered(self, around: _Loop, index: Index, extent: int, lanes: int = 1, unroll: int = 1) -> _Loop:
        """Inside one more loop; of one with lanes a step is as many positions as are in flight."""
        step = min(lanes * unroll, max(extent, 1))
        wide = (*around.wide, (index.name, step)) if step > 1 else around.wide
        inside = _Loop(index.name, -(-extent // step), around, wide, max(around.lanes, lanes))
        total = self.total
        total["steps"] += inside.runs
        total["lanes"] = max(total["lanes"], lanes)
        total["in_flight"] = max(total["in_flight"], step / lanes)
        total["innermost"] = max(total["innermost"], extent)
        total["depth"] = max(total["depth"], inside.depth)
        return inside

    def reduction(self, s: Reduction, around: _Loop) -> None:
        inside = self.last_fold if s.joined else None
        if inside is None:
            inside = self.last_fold = self.fold(s.over, around, s.lanes, s.unroll)
            self.total["passes"] += 1
        self.expression(s.body, inside)
        self.body(s.also, inside)
        self.total["work"] += inside.points / inside.lanes

    def fold(self, over: Sequence[tuple[Index, Extent]], around: _Loop, lanes: int = 1, unroll: int = 1) -> _Loop:
        for index, extent in over[:-1]:
            around = self.entered(around, index, self.number(extent))
        return self.entered(around, over[-1][0], self.number(over[-1][1]), lanes, unroll) if over else around

    def contract(self, s: Contract, around: _Loop) -> None:
        """Tiles of rows one after another; in each all terms."""
        tall, columns = s.heights[0], s.columns.length or self.number(s.columns.extent)
        rows = self.entered(around, s.rows.index, self.positions(s.rows), 1, tall)
        row, column = (s.rows.index.name, tall), (s.columns.index.name, columns)
        self.access(s.buffer, s.at, _Loop("", 1, rows, (row, column), s.lanes), "stores")
        terms = rows
        for b in s.over:
            terms = self.entered(terms, b.index, self.positions(b))
        self.expression(s.left, _Loop("", 1, terms, (row,)))
        right = _Loop("", 1, terms, (column,), s.lanes)
        self.expression(s.right, right)
        self.total["work"] += tall * right.points / s.lanes
        for name, x in (("tile_rows", tall), ("tile_columns", columns), ("tile_sums", tall * columns / s.lanes)):
            self.most(name, x)

    # ---- expressions -------------------------------------------------------------------------------
    def expression(self, e: Expr, around: _Loop) -> None:
        """What is computed and read for an expression, parts that it shares once."""
        found = _summary(e)
        for x in found.loads:
            self.access(str(x.array), x.index, around, "loads")
        for inner in found.folds:
            if isinstance(inner, Reduce):
                self.total["passes"] += 1
                self.expression(inner.body, self.fold(inner.over, around))
            else:
                self.expression(inner.body, self.entered(around, inner.index, self.number(inner.extent)))
        vectors = around.points / min(around.lanes, self.target.lanes(e.dtype))
        self.total["work"] += found.work * vectors
        self.total["dear"] += found.dear * vectors

    def access(self, name: str, index: tuple[Expr, ...], around: _Loop, kind: str) -> None:
        """Note a read or write."""
        b = self.buffers[name]
        if self.read is not None:
            self.read[name] = b
        if around.lanes > 1 and around.wide and _is_scattered(index, around.wide[-1][0]):
            self.total["scattered"] += around.points
        self.total[kind] += around.points / min(around.lanes, self.target.lanes(b.dtype))
        met = around.access(name, b.dtype.itemsize, self.shape(b), index)
        if b.role != "local" and not any(map(_is_read, index)):
            self.met[name] = max(self.met.get(name, 0.0), met)


def _raise(x: dict[str, float], y: Mapping[str, float]) -> None:
    """The larger ones."""
    for name, n in y.items():
        if name not in x or n > x[name]:
            x[name] = n


# ---- what nests that follow from each other share: their expressions, and most of their loops -------------
@dataclass(frozen=True)
class _Summary:
    """Of an expression, each part once: its cost, that of exp and the like, what it loads, and the folds in it."""

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
    return _Summary(work, dear, tuple(loads), tuple(folds))


@lru_cache(1 << 14)
def _met(each: int, shape: tuple[int, ...], index: tuple[Expr, ...], wide: tuple[tuple[str, int], ...],
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
def _is_read(e: Expr) -> bool:
    """Whether an index depends on what is in memory."""
    return any(isinstance(x, Load | Local) for x in walk(e))


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
