"""Sides of products for a tile unit, packed: each number in three parts of bf16, in the order in which the unit reads them.

Guarantees: those of `packing.py`. What lies in memory as the unit takes it is read where it lies; all else is computed, turned,
or cut out of an image first, in a copy of little more than what is divided at once. Rows of the copies past a block's last one
hold any numbers.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from loopwright.ir.dims import Extent, floordiv, minimum, product
from loopwright.ir.loops import Expr, Index, Literal, Load, integer, minus, plus, times
from loopwright.ir.nest import Allocate, Block, Buffer, For, Parts, Store
from loopwright.ir.types import BF16, I64
from loopwright.lower.tiling import KNOWN, PARTS, SQUARE, Body
from loopwright.lower.window_rows import Rows, across, around, flat, linear, lines_of

LINE = 32  # numbers of bf16 of a line of a cache: rows do not begin a power of two apart
Packed = tuple[tuple[Buffer, ...], Body, Expr]  # where a side is packed, first; what packs it; where the product reads it


def in_squares(terms: Extent) -> Extent:
    """So many terms, and zeros behind them."""
    return floordiv(terms + (SQUARE - 1), SQUARE) * SQUARE


def parts_of(value: Expr) -> int:
    """How many bf16 say a number."""
    return 1 if value.dtype == BF16 else PARTS


@lru_cache(KNOWN)
def rows_in_parts(sums: str, rows: Block, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int) -> Packed:
    """A block of rows, of a block of their terms."""
    last, x = over[-1], Rows.of(rows, over, value)
    assert last.origin and last.length
    start, width = last.origin, last.length + lanes
    number = parts_of(value)
    size, apart = x.count(beyond), minimum(in_squares(last.extent), last.length) * number + LINE
    target = Buffer(f"{sums}_left", (product(b.extent for b in x.others) * size * apart,), BF16, "local")
    whole = Buffer(f"{sums}_left_whole", (x.count(0) * width,), value.dtype, "local")
    begin = times(flat(x.others), integer(size * apart))

    def place(at: Expr) -> Expr:
        return plus(times(at, Literal(width, I64)), minus(last.index, start))
    fill = _divided(x, value, whole, place, lanes, target.name, begin, apart)
    at = plus(plus(begin, times(x.moved, integer(apart))), times(minus(last.index, start), Literal(number, I64)))
    return (target,), around(x.others, fill), at


@lru_cache(KNOWN)
def windows_in_parts(sums: str, rows: Block, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int,
                     images: For) -> Packed:
    """A block of rows of several images, or of lines of one, with all their terms: what windows have in common once."""
    last, (y, first) = Block(over[-1].index, over[-1].extent), lines_of(images, over, value)
    x = Rows.of(rows, (*[b for b in over[:-1] if b is not y.window], last), first)
    width, size, high = in_squares(last.extent), x.count(beyond), y.count(0)
    number = parts_of(value)
    apart = width * number + LINE
    target = Buffer(f"{sums}_left", (product(b.extent for b in x.others) * high * size * apart,), BF16, "local")
    whole = Buffer(f"{sums}_left_whole", (x.count(0) * width,), value.dtype, "local")
    before, step = times(flat(x.others), integer(high)), integer(size * apart)

    def place(at: Expr) -> Expr:
        return plus(times(at, integer(width)), last.index)
    begin = times(plus(before, y.first if y.stride == 1 else y.moved), step)
    several = y.with_lines(_divided(x, first, whole, place, lanes, target.name, begin, apart))
    at = plus(times(plus(before, y.moved), step), times(x.moved, integer(apart)))
    return (target,), around(x.others, (several,)), plus(at, times(last.index, Literal(number, I64)))


def _divided(x: Rows, value: Expr, whole: Buffer, place: Callable[[Expr], Expr], lanes: int, target: str, at: Expr,
             apart: Extent) -> Body:
    """The parts of rows, which are copied first if they do not lie in memory one beside the other."""
    there = x.in_rows(value)
    found = there or Load(whole.name, (place(x.first),), value.dtype)
    divide = Parts(found, target, at, x.terms, x.each(0), x.stride, apart, parts=parts_of(value))
    return (divide,) if there else (Allocate(whole), x.copied(whole.name, place, value, lanes, 0), divide)


@lru_cache(KNOWN)
def columns_in_parts(sums: str, columns: Block, over: tuple[Block, ...], value: Expr, lanes: int, first: Index | None,
                     count: Extent, in_blocks: bool) -> Packed:
    """Panels of a block of columns, or of all of them, in squares of terms and columns: of all terms, or those of a block."""
    panel, width, last = columns.origin, columns.length, over[-1]
    assert panel and isinstance(width, int)
    block, start, length = Index(f"{last.index.name}_square"), *((last.origin, last.length) if in_blocks else (None, None))
    number = parts_of(value)
    terms, positions = in_squares(last.extent if length is None else length), product(b.extent for b in over[:-1])
    target = Buffer(f"{sums}_right", (count * number * positions * terms,), BF16, "local")
    column = panel if first is None else minus(panel, first)
    at_position = times(flat(over[:-1]), integer(terms * (number * width)))
    before = plus(times(column, integer(positions * terms * number)), at_position)

    def place(term: Index) -> Expr:
        return plus(before, times(term if start is None else minus(term, start), Literal(number * width, I64)))
    square = Block(last.index, last.extent, block, SQUARE)
    found, body = value, Body()
    if not _lies_in_columns(value, columns.index):
        whole = Buffer(f"{sums}_right_whole", (SQUARE * width,), value.dtype, "local")
        at = plus(times(minus(last.index, block), Literal(width, I64)), minus(columns.index, panel))
        vectors = For(columns.index, columns.extent, (Store(whole.name, (at,), value),), lanes, width // lanes, origin=panel,
                      length=width, padded=True)
        copied = across(For(last.index, last.extent, (vectors,), origin=block, length=SQUARE))
        found, body = Load(whole.name, (at,), value.dtype), (Allocate(whole), copied)
    assert isinstance(found, Load)
    divide = Parts(found, target.name, place(block), square, columns=columns, parts=number)
    panels = For(panel, columns.extent, (), origin=first, length=None if first is None else count, step=width)
    squares = For(block, last.extent, (), origin=start, length=length, step=SQUARE)
    outer, inner = (panels, squares) if body else (squares, panels)  # what is copied first lies along the terms
    return (target,), around(over[:-1], (outer.with_body((inner.with_body((*body, divide)),)),)), place(last.index)


def _lies_in_columns(value: Expr, column: Index) -> bool:
    """Whether numbers of neighbouring columns lie side by side in memory."""
    if not isinstance(value, Load) or value.index[-1:] != (column,):
        return False
    return all((found := linear(i)) is not None and column not in found for i in value.index[:-1])
