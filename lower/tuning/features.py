"""What a scheduled kernel will do at some sizes, as numbers, from its nest alone: no code is generated.

Guarantees: a vector of `len(NAMES)` finite numbers that depends on nest, sizes and target only. Bytes past a cache are those
of loops whose data does not fit it: a loop fetches what it reads once if one trip of it fits, else every trip does again.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loopwright.ir.dims import Extent, evaluate
from loopwright.ir.loops import Apply, Bounded, Expr, Index, Literal, Load, Prefix, Reduce, Size, parts
from loopwright.ir.nest import Allocate, Buffer, Contract, For, Let, Nest, Prefetch, Reduction, Scan, Statement, Store, While
from loopwright.lower.rules import EXPENSIVE, WEIGHTS
from loopwright.lower.target import Target

LINE = 64  # bytes that memory moves at once
FIRST_CACHE = 1 << 15  # bytes
LAST_CACHE = 16  # times the second one: what processors share
TRIPS = 16  # of a loop that ends on a condition: nobody knows
STRIPE = 2048  # positions of a loop by rows

NAMES = ("work", "dear", "loads", "scattered", "stores", "past_first", "past_second", "past_last", "bytes", "steps", "parallel",
         "statements", "lanes", "in_flight", "innermost", "depth", "kept", "passes", "prefetches", "tile_rows", "tile_columns",
         "tile_sums")
COLUMN = {name: k for k, name in enumerate(NAMES)}


def features(nest: Nest, sizes: Mapping[str, int], target: Target) -> np.ndarray:
    """f64[len(NAMES)]: what the nest does at these sizes."""
    walk = _Walk(nest, sizes, target)
    walk.body(nest.body, _Around())
    return walk.vector()


@dataclass(frozen=True)
class _Around:
    """The loops around a statement, from the outside: index and trips of each; those whose steps are `wide` positions."""

    loops: tuple[tuple[str, int], ...] = ()
    wide: tuple[tuple[str, int], ...] = ()
    lanes: int = 1
    parallel: int = 1

    @property
    def trips(self) -> int:
        return math.prod([n for _, n in self.loops])

    @property
    def points(self) -> int:
        """How often what is inside runs, each lane counted."""
        return self.trips * math.prod([n for _, n in self.wide])


@dataclass
class _Access:
    """A place that is read or written: bytes of it that differ, inside each of the loops around, from all to none of them."""

    buffer: str
    around: _Around
    bytes: list[float]


@dataclass
class _Walk:
    nest: Nest
    sizes: Mapping[str, int]
    target: Target
    total: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))
    accesses: list[_Access] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.buffers: dict[str, Buffer] = {b.name: b for b in self.nest.buffers}
        self.known: dict[Extent, int] = {}
        self.total["parallel"] = 1.0

    def number(self, n: Extent) -> int:
        """A size as a number."""
        if isinstance(n, int):
            return n
        if n not in self.known:
            self.known[n] = evaluate(n, self.sizes)
        return self.known[n]

    # ---- statements --------------------------------------------------------------------------------
    def body(self, statements: Sequence[Statement], around: _Around) -> None:
        for s in statements:
            self.total["statements"] += 1
            self.statement(s, around)

    def statement(self, s: Statement, around: _Around) -> None:
        match s:
            case For():
                self.loop(s, around)
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
                inside = self.fold(s.over, around, s.lanes, s.unroll)
                self.total["passes"] += not s.joined
                self.expression(s.body, inside)
                self.body(s.also, inside)
                self.total["work"] += inside.points / max(inside.lanes, 1)
            case Scan():
                inside = self.entered(around, s.index, self.number(s.extent))
                self.expression(s.body, inside)
                self.access(s.buffer, s.at, inside, "stores")
            case While():
                inside = _Around((*around.loops, ("while", TRIPS)), around.wide, around.lanes)
                for e in (s.condition, *s.following):
                    self.expression(e, inside)
                self.body(s.body, inside)
            case Contract():
                self.contract(s, around)
            case Allocate():
                self.buffers[s.buffer.name] = s.buffer
                self.total["kept"] += self.whole(s.buffer)
            case Prefetch():
                self.total["prefetches"] += 1

    def loop(self, s: For, around: _Around) -> None:
        extent = self.number(s.extent)
        if s.length is not None:
            extent = min(extent, self.number(s.length))
        trips = -(-extent // s.step)
        if s.parallel:
            self.total["parallel"] = max(self.total["parallel"], float(trips))
        if s.tiled and isinstance(inner := s.body[0], For):
            steps, wide = -(-extent // inner.lanes), (s.index.name, inner.lanes)
            tiles = _Around((*around.loops, (s.index.name, steps)), (*around.wide, wide), around.lanes)
            self.loop(inner, tiles)
            return
        self.body(s.body, self.entered(around, s.index, trips, s.lanes, STRIPE // s.lanes if s.by_rows else s.unroll))

    def fold(self, over: Sequence[tuple[Index, Extent]], around: _Around, lanes: int = 1, unroll: int = 1) -> _Around:
        for k, (index, extent) in enumerate(over):
            last = k == len(over) - 1
            around = self.entered(around, index, self.number(extent), *((lanes, unroll) if last else ()))
        return around

    def entered(self, around: _Around, index: Index, extent: int, lanes: int = 1, unroll: int = 1) -> _Around:
        """Inside one more loop; of one with lanes a step is as many positions as are in flight."""
        step = min(lanes * unroll, max(extent, 1))
        trips = -(-extent // step)
        self.total["steps"] += around.trips * trips
        inside = _Around((*around.loops, (index.name, trips)), around.wide, max(around.lanes, lanes), around.parallel)
        if step > 1:
            inside = _Around(inside.loops, (*around.wide, (index.name, step)), inside.lanes, around.parallel)
            self.total["lanes"] = max(self.total["lanes"], lanes)
            self.total["in_flight"] = max(self.total["in_flight"], unroll)
        self.total["depth"] = max(self.total["depth"], len(inside.loops))
        self.total["innermost"] = float(extent)
        return inside

    def contract(self, s: Contract, around: _Around) -> None:
        rows, columns = (self.number(b.length if b.length is not None else b.extent) for b in (s.rows, s.columns))
        tall = s.heights[0]
        inside = self.entered(around, s.rows.index, min(rows, self.number(s.rows.extent)), 1, tall)
        inside = _Around(inside.loops, (*inside.wide, (s.columns.index.name, columns)), s.lanes)
        for b in s.over:
            n = self.number(b.extent)
            inside = self.entered(inside, b.index, n if b.length is None else min(n, b.length))
        for e in (s.left, s.right):
            self.expression(e, inside)
        self.total["work"] += inside.points / s.lanes
        self.access(s.buffer, s.at, inside, "stores")
        for name, x in (("tile_rows", tall), ("tile_columns", columns), ("tile_sums", tall * columns / s.lanes)):
            self.total[name] = max(self.total[name], float(x))

    # ---- expressions -------------------------------------------------------------------------------
    def expression(self, e: Expr, around: _Around) -> None:
        """What is computed and read for an expression, parts that it shares once."""
        todo, seen = [e], {id(e)}
        work = dear = 0
        while todo:
            x = todo.pop()
            if isinstance(x, Apply):
                weight = WEIGHTS.get(x.fn, 1)
                work += weight
                dear += weight if weight >= EXPENSIVE else 0
            elif isinstance(x, Load):
                self.access(str(x.array), x.index, around, "loads")
            elif isinstance(x, Reduce):
                self.expression(x.body, self.fold(x.over, around))
                self.total["passes"] += 1
                continue
            elif isinstance(x, Prefix):
                self.expression(x.body, self.entered(around, x.index, self.number(x.extent)))
                continue
            for part in (() if isinstance(x, Load) else parts(x)):
                if id(part) not in seen:
                    seen.add(id(part))
                    todo.append(part)
        vectors = around.points / max(min(around.lanes, self.target.lanes(e.dtype)), 1)
        self.total["work"] += work * vectors
        self.total["dear"] += dear * vectors

    def access(self, name: str, index: Sequence[Expr], around: _Around, kind: str) -> None:
        """Note a read or write."""
        b = self.buffers[name]
        steps = [_steps(e) for e in index]
        lane = around.wide[-1][0] if around.wide and around.lanes > 1 else ""
        along = [x for x in steps if lane in x]
        contiguous = not along or (len(along) == 1 and steps[-1].get(lane) == 1)
        self.total[kind] += around.points / max(min(around.lanes, self.target.lanes(b.dtype)), 1)
        if not contiguous:
            self.total["scattered"] += around.points
        self.accesses.append(_Access(name, around, self.distinct(b, steps, around)))

    def distinct(self, b: Buffer, steps: Sequence[dict[str, int]], around: _Around) -> list[float]:
        """The bytes of a buffer that differ inside all loops around, all but the outermost, ..., none."""
        shape = [self.number(n) for n in b.shape]
        reach = dict.fromkeys((k for k, _ in around.wide), 1)
        for k, n in around.wide:
            reach[k] *= n
        found = [_bytes(shape, steps, reach, b.dtype.itemsize)]
        for k, n in reversed(around.loops):
            reach[k] = reach.get(k, 1) * n
            found.append(_bytes(shape, steps, reach, b.dtype.itemsize))
        return found[::-1]

    def whole(self, b: Buffer) -> float:
        return float(math.prod([self.number(n) for n in b.shape]) * b.dtype.itemsize)

    # ---- the whole ---------------------------------------------------------------------------------
    def vector(self) -> np.ndarray:
        """All features, in the order of NAMES."""
        second = self.target.cache_bytes
        self.total["bytes"] = _union(self.accesses, 0)
        for name, cache in (("past_first", FIRST_CACHE), ("past_second", second), ("past_last", LAST_CACHE * second)):
            self.total[name] = _moved(self.accesses, 0, cache)
        return np.array([self.total[name] for name in NAMES])


def _steps(e: Expr, scale: int = 1) -> dict[str, int]:
    """How far an index expression moves for each loop's step; loops that it depends on in other ways move it by one."""
    match e:
        case Index(name):
            return {name: scale}
        case Literal() | Size():
            return {}
        case Apply(fn="add", args=(a, b)):
            return {**_steps(a, scale), **_steps(b, scale)}
        case Apply(fn="mul", args=(a, Literal(value=int() as n)) | (Literal(value=int() as n), a)):
            return _steps(a, abs(n) * scale)
        case Bounded(index=a):
            return dict.fromkeys(_steps(a), 1)
    found: dict[str, int] = {}
    for part in parts(e):
        found.update(dict.fromkeys(_steps(part), 1))
    return found


def _bytes(shape: Sequence[int], steps: Sequence[dict[str, int]], reach: Mapping[str, int], each: int) -> float:
    """The bytes that an access meets, whole lines where rows lie apart."""
    ends = [1 + sum([c * (reach.get(k, 1) - 1) for k, c in axis.items()]) for axis in steps]
    counts = [min(n, end) for n, end in zip(shape, ends, strict=True)]
    if not counts:
        return float(each)
    row = counts[-1] * each
    rows = math.prod(counts[:-1])
    return float(rows * (row if counts[-1] == shape[-1] else max(row, LINE)) if rows > 1 else row)


def _union(accesses: Sequence[_Access], depth: int) -> float:
    """The bytes inside the loop at a depth: of each buffer those of the access that meets most."""
    most: dict[str, float] = {}
    for a in accesses:
        most[a.buffer] = max(most.get(a.buffer, 0.0), a.bytes[min(depth, len(a.bytes) - 1)])
    return sum(most.values())


def _moved(accesses: Sequence[_Access], depth: int, cache: float) -> float:
    """The bytes that come from beyond a cache: loops whose single trip fits fetch everything once, others every trip."""
    whole = _union(accesses, depth)
    if whole <= cache:
        return whole
    groups: dict[tuple[tuple[str, int], ...], list[_Access]] = {}
    for a in accesses:
        groups.setdefault(a.around.loops[depth:depth + 1], []).append(a)
    total = 0.0
    for loop, inside in groups.items():
        one = _union(inside, depth + 1)
        total += _union(inside, depth) if not loop or one <= cache else loop[0][1] * _moved(inside, depth + 1, cache)
    return total
