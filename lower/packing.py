"""Sides of products of blocks, packed: copied inside a loop to where the tiles read them in order.

Guarantees: each function checks, then does; ValueError says why a nest does not allow it.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, floordiv, product
from loopwright.ir.loops import (
    Apply,
    Expr,
    Index,
    Literal,
    Load,
    integer,
    minus,
    plus,
    times,
)
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Nest, Parts, Statement, Store, altered, past
from loopwright.ir.types import I64
from loopwright.lower.fusing import expressions
from loopwright.lower.naming import bits, may_name, named
from loopwright.lower.parts import Packed, columns_in_parts, rows_in_parts, windows_in_parts
from loopwright.lower.tiling import KNOWN, Body, Done, at_loop, every, read_by
from loopwright.lower.window_rows import Rows, across, around, flat, lines_of, shares_windows


def pack(nest: Nest, side: str, name: str, number: int | None, done: Done) -> Nest:
    """One side of the only product of blocks, or of one by its stage, copied inside the loop of this name (none: once) to where
    its tiles read it in order."""
    wanted = None if number is None else (f"s{number}_sums", f"r{number}_sums", f"t{number}")
    some = bits(wanted or ())

    def packed(body: Body, f: For | None) -> Body:
        products = [(k, s) for k, x in enumerate(body) for s in _products(x, wanted, some)]
        if len(products) != 1:
            raise ValueError("there is no product in it, or more than one")
        at, s = products[0]
        copy = _left(s, f) if side == "left" else _right(s, f, body[at:at + 1])
        _check_bound(copy, body[at:])
        known = copy.read.get(id(body[at]))
        if known is None:
            read = Load(copy.buffers[0].name, (copy.place,), copy.buffers[0].dtype)
            new = altered(s, left=read) if side == "left" else altered(s, right=read)
            known = copy.read[id(body[at])] = body[at], _replaced(body[at], s, new, bits((s.buffer,)))
        return (*body[:at], *map(Allocate, copy.buffers), *copy.fill, known[1], *body[at + 1:])
    if side not in ("left", "right"):
        raise ValueError("a product has a left and a right side")
    if not name:
        return altered(nest, body=packed(nest.body, None))
    return altered(nest, body=at_loop(nest.body, name, lambda f: f.with_body(packed(f.body, f)), done))


def _products(s: Statement, wanted: Sequence[str] | None, some: int) -> list[Contract]:
    """The products of blocks whose sums are in these buffers, which are bits too, or all."""
    if isinstance(s, For) and (wanted is None or may_name(s, some)):
        return [x for inner in s.body for x in _products(inner, wanted, some)]
    return [s] if isinstance(s, Contract) and (wanted is None or s.buffer in wanted) else []


@dataclass(frozen=True)
class _Copy:
    """The first of these buffers is where one side of a product is packed; what packs it, and where the product reads it; the
    loops and the buffers that it is copied from; and statements as they were and are with the product reading it, by number."""

    buffers: tuple[Buffer, ...]
    fill: Body
    place: Expr
    indices: frozenset[str]
    sources: frozenset[str]
    read: dict[int, tuple[Statement, Statement]] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Packed) -> _Copy:
        buffers, fill, place = made
        read = [read_by(e) for e in expressions(fill)]
        own = [b for s in every(fill) for b in ((s,) if isinstance(s, For) else (s.terms, s.rows, s.columns)
                                                if isinstance(s, Parts) else ()) if b is not None]
        indices = {k.name for indices, _ in read for k in indices} - {b.index.name for b in own}
        return cls(buffers, fill, place, frozenset(indices), frozenset([x for _, buffers in read for x in buffers]))


def _check_bound(copy: _Copy, after: Sequence[Statement]) -> None:
    """ValueError where what is copied before statements depends on a loop inside them, or on what they make."""
    found = named(after, copy.indices | copy.sources)
    if late := sorted(found & copy.indices):
        raise ValueError(f"what is packed depends on the loop {late[0]}, which is inside")
    if found:
        raise ValueError(f"what is packed is read from {min(found)}, which is made there")


def _left(s: Contract, f: For | None) -> _Copy:
    """The left side packed in the body of f."""
    assert isinstance(s.rows.length, int)
    given, beyond = (s.buffer, s.rows, s.over, s.left, s.lanes), past(s.heights, s.rows.length)
    if f is not None and f.index == s.over[-1].origin:
        return _Copy.of(rows_in_parts(*given, beyond)) if s.unit else _left_copy(*given, beyond)
    if f is None or f.index != s.rows.origin:
        raise ValueError("the left side is packed for a block of its terms, or of its rows")
    match f.body:
        case (For(origin=Index()) as images,) if shares_windows(images.index, s.over, s.left):
            windows = windows_in_parts if s.unit else _left_windows
            return _Copy.of(windows(*given, beyond, altered(images, body=())))
    raise ValueError("of a block of rows it is packed for a loop over other rows, which windows share")


@lru_cache(KNOWN)
def _left_copy(sums: str, rows: Block, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int) -> _Copy:
    """A block of rows, and rows of zeros beyond it, in pieces of one depth: rows lie a known distance apart."""
    last, x = over[-1], Rows.of(rows, over, value)
    assert last.origin and last.length
    width = last.length + lanes  # as the sums' rows
    start, size = last.origin, x.count(beyond) * width
    before = times(flat(x.others), integer(size))

    def place(at: Expr) -> Expr:
        return plus(plus(before, times(at, Literal(width, I64))), minus(last.index, start))
    buffer = Buffer(f"{sums}_left", (product(b.extent for b in x.others) * size,), value.dtype, "local")
    return _Copy.of(((buffer,), around(x.others, (x.copied(buffer.name, place, value, lanes, beyond),)), place(x.moved)))


@lru_cache(KNOWN)
def _left_windows(sums: str, rows: Block, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int,
                  images: For) -> Packed:
    """A block of rows of several images, or of lines of one, with all their terms, as `_left_copy` has a block of these: what
    windows have in common once."""
    last, y, first = over[-1], *lines_of(images, over, value)
    start = last.origin
    assert start and last.length
    x = Rows.of(rows, (*[b for b in over[:-1] if b is not y.window], last), first)
    width, high = last.length + lanes, y.count(0)
    line = x.count(beyond) * width
    block = product(b.extent for b in x.others) * high * line
    number = Apply("floor_divide", (start, Literal(last.length, I64)), I64)
    before = plus(times(number, integer(block)), times(flat(x.others), integer(high * line)))

    def place(at: Expr, row: Expr) -> Expr:
        there = plus(plus(before, times(at, integer(line))), times(row, Literal(width, I64)))
        return plus(there, minus(last.index, start))
    at = y.first if y.stride == 1 else y.moved
    buffer = Buffer(f"{sums}_left", (floordiv(last.extent + (last.length - 1), last.length) * block,), value.dtype, "local")
    copied = y.with_lines((x.copied(buffer.name, lambda row: place(at, row), first, lanes, beyond),))
    blocks = For(start, last.extent, around(x.others, (copied,)), step=last.length)
    return (buffer,), (blocks,), place(y.moved, x.moved)


def _right(s: Contract, f: For | None, body: Body) -> _Copy:
    """The right side packed in the body of f."""
    first, count = _columns_of(s, f, body)
    in_blocks = f is not None and f.index == s.over[-1].origin
    given = s.buffer, s.columns, s.over, s.right, s.lanes, first, count, in_blocks
    return _Copy.of(columns_in_parts(*given)) if s.unit else _right_copy(*given)


@lru_cache(KNOWN)
def _right_copy(sums: str, columns: Block, over: tuple[Block, ...], value: Expr, lanes: int, first: Index | None, count: Extent,
                in_blocks: bool) -> _Copy:
    """Panels of a block of columns, or of all of them, one term of the sums after another: all terms, or those of a block."""
    panel, width, last = columns.origin, columns.length, over[-1]
    assert panel and isinstance(width, int)
    term: Expr = last.index
    count_of_terms, each = last.extent, For(last.index, last.extent, ())
    if in_blocks:
        assert last.length is not None and last.origin is not None
        count_of_terms, each = last.length, altered(each, origin=last.origin, length=last.length)
        term = minus(last.index, last.origin)
    terms = product(b.extent for b in over[:-1]) * count_of_terms
    place = plus(times(flat(over[:-1]), integer(count_of_terms * width)), times(term, Literal(width, I64)))
    at = panel if first is None else minus(panel, first)
    place = plus(plus(times(at, integer(terms)), place), minus(columns.index, panel))
    buffer = Buffer(f"{sums}_right", (terms * count,), value.dtype, "local")
    vectors = For(columns.index, columns.extent, (Store(buffer.name, (place,), value),), lanes, width // lanes,
                  origin=panel, length=width, padded=True)
    panels = For(panel, columns.extent, (), origin=first, length=None if first is None else count, step=width)
    terms_of_panel = across(each.with_body((vectors,)))
    if terms_of_panel.tiled:
        body: Body = (panels.with_body(around(over[:-1], (terms_of_panel,))),)
    else:  # along the rows, as they lie in memory
        body = around(over[:-1], (each.with_body((panels.with_body((vectors,)),)),))
    return _Copy.of(((buffer,), body, place))


def _columns_of(s: Contract, f: For | None, body: Body) -> tuple[Index | None, Extent]:
    """Where the columns begin whose factors are packed in the body of f, and how many there is room for: a block, or all."""
    width, panel = s.columns.length, s.columns.origin
    assert width and panel
    block, length = next(((x.origin, x.length) for x in _loops(body, panel)), (None, None))
    if block is None:
        raise ValueError("the loop over the product's columns, in a block of them, is not inside")
    if f is not None and f.index == block and f.step > 1 and f.step % width == 0:
        return block, f.step
    if not any(x.step % width == 0 for x in _loops(body, block)):
        if f is not None and f.index == s.over[-1].origin and isinstance(length, int):  # a block of terms, in one of columns
            return block, length
        raise ValueError("the right side is packed for a block of columns, or for all blocks of whole panels")
    return None, floordiv(s.columns.extent + (width - 1), width) * width


def _loops(body: Sequence[Statement], index: Index) -> Iterator[For]:
    """The loops over an index, outer ones first."""
    some = bits((index.name,))
    for s in body:
        if isinstance(s, For) and may_name(s, some):
            if s.index == index:
                yield s
            yield from _loops(s.body, index)


def _replaced(s: Statement, old: Contract, new: Contract, some: int) -> Statement:
    if isinstance(s, For) and may_name(s, some):
        return s.with_body(tuple([_replaced(x, old, new, some) for x in s.body]))
    return new if s is old else s
