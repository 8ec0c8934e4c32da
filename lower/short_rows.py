"""Rows that are shorter than vectors: lanes run from row to row, and what is folded over a row is a loop inside.

A block has as many rows as lanes. What its rows have in memory is transposed into panels, whose vectors are an element of all
rows of the block; rows that are kept are panels too, and what is stored to rows of results goes to memory from panels.

Guarantees: `beside` means what the loop over rows means; what it copies is read by the plain loop as well, at every point.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, Reduce, Size, When, minus, parts, transform, walk
from loopwright.ir.nest import Allocate, Buffer, For, Let, Nest, Prefetch, Reduction, Statement, Store, altered
from loopwright.ir.schedule import ShortRows
from loopwright.lower.fusing import expressions

Row = tuple[tuple[Index, ...], Expr]  # an element at some indices
ELEMENT = Index("e")  # along a row, in what panels are copied from


@dataclass(frozen=True)
class Panel:
    """What a block of rows has in an array: `buffer[e, r]` is `at`, for the e-th of `extent` elements of row r of the block."""

    buffer: Buffer
    at: Load
    extent: Extent


@dataclass(frozen=True)
class Beside:
    """Rows side by side: for a block of `lanes` rows, from the index `block` on, panels are `read`, then the body is done with
    lanes along the rows, then others are `written`. `kept`: panels of no array."""

    row: Index
    block: Index
    lanes: int
    body: tuple[Statement, ...]
    read: tuple[Panel, ...]
    written: tuple[Panel, ...]
    kept: tuple[Buffer, ...]


def in_short_rows(nest: Nest, x: ShortRows) -> Nest:
    """The nest with what its loop over rows does where these are short; itself where that is more than folds and loops."""
    rows = rows_of(nest)
    if rows is None or beside(rows, x) is None:
        return nest
    return altered(nest, body=_with_short(nest.body, rows, (x.lanes, x.below)))


def rows_of(nest: Nest) -> For | None:
    """The loop over rows: the outermost one, where it holds folds, or the one around the innermost, which has lanes."""
    outer = nest.body[0] if len(nest.body) == 1 else None
    if isinstance(outer, For) and any(isinstance(s, Reduction) for s in outer.body):
        return outer
    while isinstance(outer, For) and len(outer.body) == 1 and isinstance(inner := outer.body[0], For):
        if inner.lanes > 1 and all(isinstance(s, Let | Store) for s in inner.body):
            return outer
        outer = inner
    return None


def _with_short(body: tuple[Statement, ...], rows: For, short: tuple[int, int]) -> tuple[Statement, ...]:
    return tuple([altered(s, short=short) if s is rows else s.with_body(_with_short(s.body, rows, short))
                  if isinstance(s, For) else s for s in body])


def beside(rows: For, x: ShortRows) -> Beside | None:
    """The loop over rows with so many side by side; None where its body is more than folds and loops over a row."""
    if rows.lanes > 1 or rows.by_rows or rows.origin is not None or rows.step > 1:
        return None
    try:
        return _Rows(rows, x).beside()
    except _Other:
        return None


def reads_once(b: Beside) -> bool:
    """Whether the body has rows of which it reads each element in one pass only, from a panel or where it is."""
    loads = {x for e in expressions(b.body) for x in walk(e) if isinstance(x, Load)}
    inside = {i for i, _ in _loops(b.body)}
    there = any(b.row in (found := set(walk(x))) and found & inside and x.index[-1] != b.row and b.block not in found
                for x in loads)
    return there or any(sum(x.array == p.buffer.name for x in loads) == 1 for p in b.read)


def lengths(body: tuple[Statement, ...]) -> Iterator[Extent]:
    """How far the loops over a row go."""
    for s in body:
        if isinstance(s, Reduction):
            yield from (n for _, n in s.over)
        elif isinstance(s, For):
            yield s.extent
            yield from lengths(s.body)


class _Other(Exception):
    """What is in a row's body is not for lanes from row to row."""


@dataclass
class _Rows:
    """The statements of one row. `kept`: panels in the place of rows; `recomputed`: what was stored in other arrays of the
    row's own; `stored`: arrays that are stored to."""

    rows: For
    x: ShortRows
    panels: dict[Load, Panel] = field(default_factory=dict)
    kept: dict[str, Buffer] = field(default_factory=dict)
    recomputed: dict[str, Row] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    extents: dict[Index, Extent] = field(default_factory=dict)

    @property
    def block(self) -> Index:
        return Index(f"{self.rows.index.name}_b")

    def beside(self) -> Beside:
        body = self.rows.body
        self.extents = dict(_loops(body))
        self.stored = set(_stored(body))
        found = dict.fromkeys(x for e in expressions(body) for x in _always_read(e))
        panels = [self.panel(x) for x in found if x.array not in self.stored]
        self.panels = {p.at: p for p in panels if p is not None}
        read = tuple(self.panels.values())
        new = self.statements(body)
        written = tuple(self.panels.values())[len(read):]
        return Beside(self.rows.index, self.block, self.x.lanes, new, read, written, tuple(self.kept.values()))

    # ---- panels --------------------------------------------------------------------------------
    def panel(self, x: Load) -> Panel | None:
        """The panel of a row that is walked along memory; None where it is not."""
        last = x.index[-1] if x.index else None
        front = {y for part in x.index[:-1] for y in walk(part)}
        plain = all(isinstance(y, Index | Literal | Size | Apply) for y in front)
        inside = front & self.extents.keys()
        if not isinstance(last, Index) or last not in self.extents or not plain or inside or self.rows.index not in front:
            return None
        at = Load(x.array, (*x.index[:-1], ELEMENT), x.dtype)
        if at not in self.panels:
            buffer = self.buffer(f"{x.array}_{len(self.panels)}", x.dtype)
            self.panels[at] = Panel(buffer, at, self.extents[last])
        found = self.panels[at]
        return found if found.extent == self.extents[last] else None

    def buffer(self, name: str, dtype: np.dtype) -> Buffer:
        room = -(-self.x.below // self.x.lanes) * self.x.lanes  # rows are copied in squares
        return Buffer(f"p_{name}", (room, self.x.lanes), dtype, "local", "panel")

    def at(self, element: Expr) -> tuple[Expr, Expr]:
        return element, minus(self.rows.index, self.block)

    # ---- statements ----------------------------------------------------------------------------
    def statements(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple([new for s in body for new in self.statement(s)])

    def statement(self, s: Statement) -> list[Statement]:
        match s:
            case Allocate(buffer=buffer):
                if len(buffer.shape) == 1:
                    self.kept[buffer.name] = self.buffer(buffer.name, buffer.dtype)
                else:
                    self.recomputed[buffer.name] = (), Index("none")  # until it is stored to
                return []
            case Prefetch():
                return []
            case Let(name=name, value=value):
                return [Let(name, self.expr(value))]
            case Reduction(shared=False):
                also = [new for x in s.also for new in self.statement(x)]
                stores = tuple([x for x in also if isinstance(x, Store)])
                return [altered(s, body=self.expr(s.body), also=stores, lanes=1, unroll=1)]
            case For(parallel=False, by_rows=False, tiled=False, origin=None, step=1):
                named = any(isinstance(x, Let | Reduction) for x in s.body)
                if named and any(isinstance(x, Store) and x.buffer in self.recomputed for x in s.body):
                    raise _Other  # what is computed again would need names from inside
                body = self.statements(s.body)
                return [altered(s, lanes=1, unroll=1, body=body)] if body else []
            case Store(buffer=name) if name in self.recomputed:
                self.recompute(s)
                return []
            case Store(combine="set", when=None):
                return [self.store(s)]
        raise _Other

    def store(self, s: Store) -> Store:
        value, index = self.expr(s.value), tuple(map(self.expr, s.index))
        if s.buffer in self.kept:
            return Store(self.kept[s.buffer].name, self.at(index[0]), value)
        if self.rows.index not in s.index:  # rows might meet in an element
            raise _Other
        found = self.panel(Load(s.buffer, s.index, value.dtype))
        if any(p.at.array == s.buffer and p is not found for p in self.panels.values()):
            raise _Other
        return Store(found.buffer.name, self.at(index[-1]), value) if found else altered(s, index=index, value=value)

    def recompute(self, s: Store) -> None:
        """Remember an element of a row instead of storing it."""
        indices = tuple([i for i in s.index if isinstance(i, Index)])
        if s.combine != "set" or s.when is not None or indices != s.index:
            raise _Other
        self.recomputed[s.buffer] = indices, self.expr(s.value)

    # ---- expressions ---------------------------------------------------------------------------
    def expr(self, e: Expr) -> Expr:
        return transform(e, self.read)

    def read(self, e: Expr) -> Expr | None:
        """An element of a panel; one that is not kept computed where it is read."""
        if not isinstance(e, Load):
            return None
        if e.array in self.kept:
            return Load(self.kept[str(e.array)].name, self.at(self.expr(e.index[0])), e.dtype)
        if e.array in self.recomputed:
            indices, value = self.recomputed[str(e.array)]
            if len(indices) != len(e.index):
                raise _Other
            there = dict(zip(indices, map(self.expr, e.index), strict=True))
            return transform(value, lambda x: there.get(x) if isinstance(x, Index) else None)
        found = self.panels.get(Load(e.array, (*e.index[:-1], ELEMENT), e.dtype)) if e.index else None
        last = e.index[-1] if e.index else None
        if found is not None and isinstance(last, Index) and self.extents.get(last) == found.extent:
            return Load(found.buffer.name, self.at(last), e.dtype)
        if any(p.at.array == e.array and p.at.array in self.stored for p in self.panels.values()):
            raise _Other  # it is not in memory yet
        return None


def _loops(body: tuple[Statement, ...]) -> Iterator[tuple[Index, Extent]]:
    """The indices inside a row, and how far they go."""
    for s in body:
        if isinstance(s, Reduction):
            yield from s.over
        elif isinstance(s, For):
            yield s.index, s.extent
            yield from _loops(s.body)


def _stored(body: Sequence[Statement]) -> Iterator[str]:
    """The arrays that are stored to."""
    for s in body:
        if isinstance(s, Store):
            yield s.buffer
        elif isinstance(s, For | Reduction):
            yield from _stored(s.body if isinstance(s, For) else s.also)


def _always_read(e: Expr) -> list[Load]:
    """The loads of an expression, but those that some points do without."""
    todo, seen = [e], {id(e): e}
    while todo:
        x = todo.pop()
        inside = (x.cond,) if isinstance(x, When) else () if isinstance(x, Reduce) else parts(x)
        new = [y for y in inside if id(y) not in seen]
        seen.update((id(y), y) for y in new)
        todo += new
    return [x for x in seen.values() if isinstance(x, Load)]
