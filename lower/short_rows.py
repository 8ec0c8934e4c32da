"""Rows that are shorter than vectors: lanes run from row to row, and what is folded over a row is a loop inside.

Guarantees: `across` means what the loop over rows means; nothing is kept of a row: what several loops over it share is computed
in each.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loopwright.ir.dims import Extent
from loopwright.ir.loops import Expr, Index, Load, Reduce, transform
from loopwright.ir.nest import Allocate, For, Let, Nest, Prefetch, Reduction, Statement, Store, altered
from loopwright.ir.schedule import ShortRows

Row = tuple[tuple[Index, ...], Expr]  # an element at some indices


def in_short_rows(nest: Nest, x: ShortRows) -> Nest:
    """The nest with what its outermost loop does where rows are short; itself where that is more than folds and loops."""
    outer = nest.body[0] if len(nest.body) == 1 else None
    if not isinstance(outer, For) or not any(isinstance(s, Reduction) for s in outer.body) or across(outer, x.lanes) is None:
        return nest
    return altered(nest, body=(altered(outer, short=(x.lanes, x.below)),))


def across(rows: For, lanes: int) -> For | None:
    """The loop over rows with so many side by side; None where its body is more than folds and loops over a row."""
    if rows.lanes > 1 or rows.by_rows or rows.tiled or rows.origin is not None or rows.step > 1:
        return None
    try:
        return altered(rows, lanes=lanes, unroll=1, short=None, body=_Row(rows.index, {}).statements(rows.body))
    except _Other:
        return None


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
class _Row:
    """The statements of one row. `kept`: what was stored in arrays of the row's own."""

    row: Index
    kept: dict[str, Row]

    def statements(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple([new for s in body for new in self.statement(s)])

    def statement(self, s: Statement) -> list[Statement]:
        match s:
            case Allocate(buffer=buffer):
                self.kept[buffer.name] = (), Index("none")  # until it is stored to
                return []
            case Prefetch():
                return []
            case Let(name=name, value=value):
                return [Let(name, self.expr(value))]
            case Reduction(shared=False):
                for x in s.also:
                    if isinstance(x, Store):
                        self.keep(x)
                return [Let(s.name, Reduce(s.monoid, s.over, self.expr(s.body), s.dtype))]
            case For(parallel=False, by_rows=False, tiled=False, origin=None, step=1):
                named = any(isinstance(x, Let | Reduction) for x in s.body)
                if named and any(isinstance(x, Store) and x.buffer in self.kept for x in s.body):
                    raise _Other  # what is kept would need names from inside
                body = self.statements(s.body)
                return [altered(s, lanes=1, unroll=1, body=body)] if body else []
            case Store(buffer=name) if name in self.kept:
                self.keep(s)
                return []
            case Store(combine="set", when=None) if self.row in s.index:  # rows meet in no element
                return [altered(s, index=tuple(map(self.expr, s.index)), value=self.expr(s.value))]
        raise _Other

    def keep(self, s: Store) -> None:
        """Remember an element of a row instead of storing it."""
        indices = tuple([i for i in s.index if isinstance(i, Index)])
        if s.buffer not in self.kept or s.combine != "set" or s.when is not None or indices != s.index:
            raise _Other
        self.kept[s.buffer] = indices, self.expr(s.value)

    def expr(self, e: Expr) -> Expr:
        return transform(e, self.read)

    def read(self, e: Expr) -> Expr | None:
        """An element of a kept row, computed where it is read."""
        if not isinstance(e, Load) or e.array not in self.kept:
            return None
        indices, value = self.kept[str(e.array)]
        if len(indices) != len(e.index):
            raise _Other
        there = dict(zip(indices, map(self.expr, e.index), strict=True))
        return transform(value, lambda x: there.get(x) if isinstance(x, Index) else None)
