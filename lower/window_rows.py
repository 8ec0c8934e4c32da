"""Rows that a block of a product reads, copied: windows that step by one position, or by two, share what they have in common.

Guarantees: nothing but what some window reads is read; what is past the last row is zero.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, floordiv
from loopwright.ir.loops import (
    Apply,
    Expr,
    Index,
    Literal,
    Load,
    Size,
    When,
    integer,
    less,
    minus,
    parts,
    plus,
    times,
    transform,
)
from loopwright.ir.nest import Block, For, Statement, Store, altered
from loopwright.ir.ops.construct import scalar
from loopwright.ir.types import I64
from loopwright.lower.fusing import transposed_loads


@dataclass(frozen=True)
class Rows:
    """How rows of a block are copied whose terms are these: `others` are indices of a sum that have copies of their own.
    Windows that step by one position, or by two, share the rows that they have in common."""

    rows: Block
    terms: Block
    others: Sequence[Block]
    window: Block | None
    step: int
    stride: int

    @classmethod
    def of(cls, rows: Block, over: Sequence[Block], value: Expr) -> Rows:
        window, step, stride = window_of(rows.index, over, value)
        return cls(rows, over[-1], [b for b in over[:-1] if b is not window], window, step, stride)

    @property
    def reach(self) -> Extent:
        return 0 if self.window is None else (self.window.extent - 1) * self.step

    @property
    def more(self) -> Extent:
        """Rows that windows reach past the block's own."""
        return floordiv(self.reach + (self.stride - 1), self.stride)

    @property
    def row(self) -> Expr:
        assert self.rows.origin is not None
        return minus(self.rows.index, self.rows.origin)

    @property
    def first(self) -> Expr:
        """The number of the row that is read first."""
        return times(self.row, Literal(self.stride, I64))

    @property
    def moved(self) -> Expr:
        """The number of the row that is read."""
        return self.moved_from(self.row)

    def moved_from(self, row: Expr) -> Expr:
        at = times(row, Literal(self.stride, I64))
        return at if self.window is None else plus(at, times(self.window.index, Literal(self.step, I64)))

    def count(self, beyond: int) -> Extent:
        """How many rows there is room for, and so many past them."""
        length = self.each(beyond).length
        assert length is not None
        return length * self.stride

    def in_rows(self, value: Expr) -> Load | None:
        """What is copied, where that lies in memory as it is copied, but for the distance of rows."""
        if self.window is not None or not isinstance(value, Load) or not value.index or value.index[-1] != self.terms.index:
            return None
        found = [linear(i) for i in value.index[:-1]]
        return value if all(x is not None and self.terms.index not in x for x in found) else None

    def each(self, beyond: int) -> For:
        """The loop over what is copied."""
        assert self.rows.length is not None
        extent, length = (n + self.more + beyond for n in (self.rows.extent, self.rows.length))
        return For(self.rows.index, extent, (), origin=self.rows.origin, length=length)

    def with_lines(self, body: tuple[Statement, ...]) -> Statement:
        """The loop over all lines that windows along them read, where these are the rows."""
        each = self.each(0).with_body(body)
        assert self.window is not None
        return each if self.stride == 1 else For(self.window.index, self.stride, (each,))

    def copied(self, buffer: str, place: Callable[[Expr], Expr], value: Expr, lanes: int, beyond: int) -> Statement:
        """The loops that copy; place: of a row."""
        rows, last, window, each = self.rows, self.terms, self.window, self.each(beyond)
        terms = For(last.index, last.extent, (), lanes, 4, origin=last.origin, length=last.length)
        if window is not None and self.stride > 1:
            value = until((rows.extent - 1) * self.stride + window.extent, self.moved_from(rows.index), value)
            return terms.with_body((For(window.index, self.stride, (
                each.with_body((Store(buffer, (place(self.moved),), value),)),)),))
        first = value if window is None else transform(value, lambda e: Literal(0, I64) if e == window.index else None)
        first = until(rows.extent + self.more, rows.index, first) if beyond else first
        store = Store(buffer, (place(self.row),), first)
        body = across(each.with_body((terms.with_body((store,)),)))
        if (self.others or window is not None) and not body.tiled:  # pixels have few features: which lanes these are is found
            body = terms.with_body((each.with_body((store,)),))  # out once for all
        return body


def lines_of(images: For, over: Sequence[Block], value: Expr) -> tuple[Rows, Expr]:
    """The lines in a loop over several, which windows share; and what is copied of one."""
    assert isinstance(images.length, int)
    y = Rows.of(Block(images.index, images.extent, images.origin, images.length), over, value)
    window = y.window
    assert window is not None
    if y.stride == 1:
        return y, transform(value, lambda e: Literal(0, I64) if e == window.index else None)
    return y, until((images.extent - 1) * y.stride + window.extent, y.moved_from(images.index), value)


def until(end: Extent, at: Expr, value: Expr) -> Expr:
    """The value at positions before the end, else zero."""
    return When(less(at, integer(end)), value, Literal(scalar(0, value.dtype), value.dtype))


def window_of(row: Index, over: Sequence[Block], value: Expr) -> tuple[Block | None, int, int]:
    """The index of a sum that moves the rows which are read by whole positions, by how many, and how many lie between two rows
    that are read: 1, or 2 where the index moves by one."""
    for b in reversed(over[:-1]):
        found = {(c.get(row), c.get(b.index)) for c in _linear_parts(value, {row, b.index})}
        stride, step = next(iter(found)) if len(found) == 1 else (None, None)
        if not isinstance(step, int) or not isinstance(stride, int) or step <= 0:
            continue
        if stride == 1 or (stride == 2 and step == 1 and not (isinstance(b.extent, int) and b.extent < 3)):
            return b, step, stride
    return None, 0, 1


def shares_windows(row: Index, over: Sequence[Block], value: Expr) -> bool:
    """Whether windows that move by one position share some of the rows that these read."""
    window, step, _ = window_of(row, over, value)
    return window is not None and step == 1


def _linear_parts(e: Expr, some: set[Index]) -> list[dict[Index, Extent]]:
    """How often each index is in the outermost linear parts of an expression that hold some of these."""
    found = linear(e)
    if found is None:
        return [x for part in parts(e) for x in _linear_parts(part, some)]
    return [found] if found.keys() & some else []


def linear(e: Expr) -> dict[Index, Extent] | None:
    """How often each index is in a sum of multiples; None for anything else."""
    match e:
        case Index():
            return {e: 1}
        case Size() | Literal():
            return {}
        case Apply(fn="add", args=(a, b)):
            first, second = linear(a), linear(b)
            if first is None or second is None:
                return None
            return {k: first.get(k, 0) + second.get(k, 0) for k in (*first, *second)}
        case Apply(fn="mul", args=(a, Literal(value=int() as n)) | (Literal(value=int() as n), a)):
            inner = linear(a)
            return None if inner is None else {k: c * n for k, c in inner.items()}
    return None


def around(blocks: Sequence[Block], body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Loops over all of some indices."""
    for b in reversed(blocks):
        body = (For(b.index, b.extent, body),)
    return body


def flat(blocks: Sequence[Block]) -> Expr:
    """The number of a position of some indices, in order."""
    place: Expr = Literal(0, I64)
    for b in blocks:
        place = plus(times(place, integer(b.extent)), b.index)
    return place


def across(f: For) -> For:
    """Two loops in tiles, where something is read along the outer one."""
    return altered(f, tiled=True) if transposed_loads(f) else f
