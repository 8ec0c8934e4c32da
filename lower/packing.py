"""Sides of products of blocks, packed: copied inside a loop to where the tiles read them in order.

Guarantees: each function checks, then does; ValueError says why a nest does not allow it.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from loopwright.ir.dims import Extent, floordiv, product
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
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Nest, Parts, Statement, Store, altered, past
from loopwright.ir.ops.construct import scalar
from loopwright.ir.types import BF16, I64
from loopwright.lower.fusing import expressions, transposed_loads
from loopwright.lower.naming import bits, may_name, named
from loopwright.lower.tiling import KNOWN, PARTS, SQUARE, Body, Done, at_loop, loops, read_by

LINE = 32  # numbers of bf16 of a line of a cache


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
    def of(cls, buffers: tuple[Buffer, ...], fill: Body, place: Expr) -> _Copy:
        read = [read_by(e) for e in expressions(fill)]
        indices = {k.name for indices, _ in read for k in indices} - {f.index.name for f in loops(fill)}
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
    if f is None or f.index != s.over[-1].origin:
        raise ValueError("the left side is packed for a block of its terms")
    assert isinstance(s.rows.length, int)
    return _left_copy(s.buffer, s.rows, s.over, s.left, s.lanes, past(s.heights, s.rows.length), bool(s.unit))


@lru_cache(KNOWN)
def _left_copy(sums: str, rows: Block, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int,
               in_parts: bool) -> _Copy:
    """A block of rows, and rows of zeros beyond it, in pieces of one depth: rows lie a known distance apart. Windows that
    step by one position, or by two, share the rows that they have in common. In parts rows beyond it may hold any numbers."""
    room, beyond = beyond, 0 if in_parts else beyond
    last = over[-1]
    assert last.origin and last.length and rows.origin and rows.length
    width = last.length + lanes  # as the sums' rows
    window, step, stride = _window(rows, over, value)
    others = [b for b in over[:-1] if b is not window]
    reach = 0 if window is None else (window.extent - 1) * step
    more = floordiv(reach + (stride - 1), stride)  # rows that windows reach past the block's own
    count, extent = rows.length + more + beyond, rows.extent + more + beyond
    start, row = last.origin, minus(rows.index, rows.origin)
    moved = times(row, Literal(stride, I64))
    moved = moved if window is None else plus(moved, times(window.index, Literal(step, I64)))
    before = times(_flat(others), integer(count * stride * width))

    def place(at: Expr) -> Expr:
        return plus(plus(before, times(at, Literal(width, I64))), minus(last.index, start))
    name = f"{sums}_left_whole" if in_parts else f"{sums}_left"
    buffer = Buffer(name, (product(b.extent for b in others) * count * stride * width,), value.dtype, "local")
    terms = For(last.index, last.extent, (), lanes, 4, origin=last.origin, length=last.length)
    each = For(rows.index, extent, (), origin=rows.origin, length=count)
    if window is not None and stride > 1:
        at = plus(times(rows.index, Literal(stride, I64)), window.index)
        value = _until((rows.extent - 1) * stride + window.extent, at, value)
        body: Statement = terms.with_body((For(window.index, stride, (
            each.with_body((Store(buffer.name, (place(moved),), value),)),)),))
    else:
        first = value if window is None else transform(value, lambda e: Literal(0, I64) if e == window.index else None)
        first = _until(rows.extent + more, rows.index, first) if beyond else first
        store = Store(buffer.name, (place(row),), first)
        body = _across(each.with_body((terms.with_body((store,)),)))
        if len(over) > 1 and not body.tiled:  # pixels have few features: which lanes these are is found out once for all
            body = terms.with_body((each.with_body((store,)),))
    fill = _around(others, body)
    if not in_parts:
        return _Copy.of((buffer,), (fill,), place(moved))
    rows_of_other = (count + room) * stride
    apart = PARTS * last.length + LINE  # lines of the caches that rows share are few
    target = Buffer(f"{sums}_left", (product(b.extent for b in others) * rows_of_other * apart,), BF16, "local")
    begin = times(_flat(others), integer(rows_of_other * apart))
    divide = Parts(name, before, target.name, begin, last, width, each, stride, apart)
    at = plus(plus(begin, times(moved, Literal(apart, I64))), times(minus(last.index, start), Literal(PARTS, I64)))
    return _Copy.of((target, buffer), (fill, _around(others, divide)), at)


def _until(end: Extent, at: Expr, value: Expr) -> Expr:
    """The value at positions before the end, else zero."""
    return When(less(at, integer(end)), value, Literal(scalar(0, value.dtype), value.dtype))


def _window(rows: Block, over: Sequence[Block], value: Expr) -> tuple[Block | None, int, int]:
    """The index of a sum that moves the rows which are read by whole positions, by how many, and how many lie between two rows
    that are read: 1, or 2 where the index moves by one."""
    for b in reversed(over[:-1]):
        found = {(c.get(rows.index), c.get(b.index)) for c in _linear_parts(value, {rows.index, b.index})}
        stride, step = next(iter(found)) if len(found) == 1 else (None, None)
        if not isinstance(step, int) or not isinstance(stride, int) or step <= 0:
            continue
        if stride == 1 or (stride == 2 and step == 1 and not (isinstance(b.extent, int) and b.extent < 3)):
            return b, step, stride
    return None, 0, 1


def _linear_parts(e: Expr, some: set[Index]) -> list[dict[Index, Extent]]:
    """How often each index is in the outermost linear parts of an expression that hold some of these."""
    found = _linear(e)
    if found is None:
        return [x for part in parts(e) for x in _linear_parts(part, some)]
    return [found] if found.keys() & some else []


def _linear(e: Expr) -> dict[Index, Extent] | None:
    """How often each index is in a sum of multiples; None for anything else."""
    match e:
        case Index():
            return {e: 1}
        case Size() | Literal():
            return {}
        case Apply(fn="add", args=(a, b)):
            first, second = _linear(a), _linear(b)
            if first is None or second is None:
                return None
            return {k: first.get(k, 0) + second.get(k, 0) for k in (*first, *second)}
        case Apply(fn="mul", args=(a, Literal(value=int() as n)) | (Literal(value=int() as n), a)):
            inner = _linear(a)
            return None if inner is None else {k: c * n for k, c in inner.items()}
    return None


def _right(s: Contract, f: For | None, body: Body) -> _Copy:
    """The right side packed in the body of f."""
    first, count = _columns_of(s, f, body)
    in_blocks = f is not None and f.index == s.over[-1].origin
    made = _right_parts if s.unit else _right_copy
    return made(s.buffer, s.columns, s.over, s.right, s.lanes, first, count, in_blocks)


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
    place = plus(times(_flat(over[:-1]), integer(count_of_terms * width)), times(term, Literal(width, I64)))
    at = panel if first is None else minus(panel, first)
    place = plus(plus(times(at, integer(terms)), place), minus(columns.index, panel))
    buffer = Buffer(f"{sums}_right", (terms * count,), value.dtype, "local")
    vectors = For(columns.index, columns.extent, (Store(buffer.name, (place,), value),), lanes, width // lanes,
                  origin=panel, length=width, padded=True)
    panels = For(panel, columns.extent, (), origin=first, length=None if first is None else count, step=width)
    terms_of_panel = _across(each.with_body((vectors,)))
    if terms_of_panel.tiled:
        body: Statement = panels.with_body((_around(over[:-1], terms_of_panel),))
    else:  # along the rows, as they lie in memory
        body = _around(over[:-1], each.with_body((panels.with_body((vectors,)),)))
    return _Copy.of((buffer,), (body,), place)


@lru_cache(KNOWN)
def _right_parts(sums: str, columns: Block, over: tuple[Block, ...], value: Expr, lanes: int, first: Index | None,
                 count: Extent, in_blocks: bool) -> _Copy:
    """The same in parts: squares of terms and columns, which are copied for that."""
    panel, width, last = columns.origin, columns.length, over[-1]
    assert panel and isinstance(width, int)
    block, begin = Index(f"{last.index.name}_square"), last.origin if in_blocks else None
    length = last.length if in_blocks else None
    squares = floordiv((last.extent if length is None else length) + (SQUARE - 1), SQUARE)
    positions, each = product(b.extent for b in over[:-1]), PARTS * SQUARE * width
    target = Buffer(f"{sums}_right", (count * (PARTS * SQUARE) * positions * squares,), BF16, "local")
    column = panel if first is None else minus(panel, first)
    before = plus(times(column, integer(positions * squares * (PARTS * SQUARE))), times(_flat(over[:-1]), integer(squares * each)))

    def place(term: Index) -> Expr:
        return plus(before, times(term if begin is None else minus(term, begin), Literal(PARTS * width, I64)))
    whole = Buffer(f"{sums}_right_whole", (SQUARE * width,), value.dtype, "local")
    at = plus(times(minus(last.index, block), Literal(width, I64)), minus(columns.index, panel))
    vectors = For(columns.index, columns.extent, (Store(whole.name, (at,), value),), lanes, width // lanes, origin=panel,
                  length=width, padded=True)
    terms = _across(For(last.index, last.extent, (vectors,), origin=block, length=SQUARE))
    divide = Parts(whole.name, Literal(0, I64), target.name, place(block), Block(last.index, last.extent, block, SQUARE), width,
                   columns=columns)
    panels = For(panel, columns.extent, (Allocate(whole), terms, divide), origin=first, length=None if first is None else count,
                 step=width)
    body = For(block, last.extent, (panels,), origin=begin, length=length, step=SQUARE)
    return _Copy.of((target,), (_around(over[:-1], body),), place(last.index))


def _columns_of(s: Contract, f: For | None, body: Body) -> tuple[Index | None, Extent]:
    """Where the columns begin whose factors are packed in the body of f, and how many there is room for: a block, or all."""
    width, panel = s.columns.length, s.columns.origin
    assert width and panel
    block = next((x.origin for x in _loops(body, panel)), None)
    if block is None:
        raise ValueError("the loop over the product's columns, in a block of them, is not inside")
    if f is not None and f.index == block and f.step > 1 and f.step % width == 0:
        return block, f.step
    if not any(x.step % width == 0 for x in _loops(body, block)):
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


def _around(blocks: Sequence[Block], s: Statement) -> Statement:
    """Loops over all of some indices."""
    for b in reversed(blocks):
        s = For(b.index, b.extent, (s,))
    return s


def _flat(blocks: Sequence[Block]) -> Expr:
    """The number of a position of some indices, in order."""
    place: Expr = Literal(0, I64)
    for b in blocks:
        place = plus(times(place, integer(b.extent)), b.index)
    return place


def _across(f: For) -> For:
    """Two loops in tiles, where something is read along the outer one."""
    return altered(f, tiled=True) if transposed_loads(f) else f


def _replaced(s: Statement, old: Contract, new: Contract, some: int) -> Statement:
    if isinstance(s, For) and may_name(s, some):
        return s.with_body(tuple([_replaced(x, old, new, some) for x in s.body]))
    return new if s is old else s
