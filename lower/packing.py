"""Sides of products of blocks, packed: copied inside a loop to where the tiles read them in order.

Guarantees: each function checks, then does; ValueError says why a nest does not allow it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from loopwright.ir.dims import Extent, floordiv, minimum, product
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
from loopwright.lower.tiling import KNOWN, PARTS, SQUARE, Body, Done, at_loop, every, read_by

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
    beyond = past(s.heights, s.rows.length)
    if f is not None and f.index == s.over[-1].origin:
        return _left_copy(s.buffer, s.rows, s.over, s.left, s.lanes, beyond, bool(s.unit))
    if f is None or not s.unit or f.index != s.rows.origin:
        raise ValueError("the left side is packed for a block of its terms, or, for a unit, of its rows")
    images = [x for x in f.body if isinstance(x, For) and x.origin is not None]
    if len(images) != 1 or len(f.body) != 1 or window_of(images[0].index, s.over, s.left)[1:] != (1, 1):
        raise ValueError("of a block of rows it is packed for a loop over other rows, which windows share")
    return _left_of_rows(s.buffer, s.rows, altered(images[0], body=()), s.over, s.left, s.lanes, beyond)


@dataclass(frozen=True)
class _Rows:
    """How rows of a block are copied whose terms are these: `others` are indices of a sum that have copies of their own. Windows
    that step by one position, or by two, share the rows that they have in common."""

    rows: Block
    terms: Block
    others: Sequence[Block]
    window: Block | None
    step: int
    stride: int

    @classmethod
    def of(cls, rows: Block, over: Sequence[Block], value: Expr) -> _Rows:
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
        return self.first if self.window is None else plus(self.first, times(self.window.index, Literal(self.step, I64)))

    def in_rows(self, value: Expr) -> Load | None:
        """What is copied, where that lies in memory as it is copied, but for the distance of rows."""
        if self.window is not None or not isinstance(value, Load) or not value.index or value.index[-1] != self.terms.index:
            return None
        found = [_linear(i) for i in value.index[:-1]]
        return value if all(x is not None and self.terms.index not in x for x in found) else None

    def each(self, beyond: int) -> For:
        """The loop over what is copied."""
        assert self.rows.length
        extents = (n + self.more + beyond for n in (self.rows.extent, self.rows.length))
        extent, length = extents
        return For(self.rows.index, extent, (), origin=self.rows.origin, length=length)

    def copied(self, buffer: str, place: Callable[[Expr], Expr], value: Expr, lanes: int, beyond: int) -> Statement:
        """The loops that copy; place: of a row."""
        rows, last, window, each = self.rows, self.terms, self.window, self.each(beyond)
        terms = For(last.index, last.extent, (), lanes, 4, origin=last.origin, length=last.length)
        if window is not None and self.stride > 1:
            at = plus(times(rows.index, Literal(self.stride, I64)), window.index)
            value = _until((rows.extent - 1) * self.stride + window.extent, at, value)
            return terms.with_body((For(window.index, self.stride, (
                each.with_body((Store(buffer, (place(self.moved),), value),)),)),))
        first = value if window is None else transform(value, lambda e: Literal(0, I64) if e == window.index else None)
        first = _until(rows.extent + self.more, rows.index, first) if beyond else first
        store = Store(buffer, (place(self.row),), first)
        body = _across(each.with_body((terms.with_body((store,)),)))
        if (self.others or window is not None) and not body.tiled:  # pixels have few features: which lanes these are is found
            body = terms.with_body((each.with_body((store,)),))  # out once for all
        return body


@lru_cache(KNOWN)
def _left_copy(sums: str, rows: Block, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int,
               in_parts: bool) -> _Copy:
    """A block of rows, and rows of zeros beyond it, in pieces of one depth: rows lie a known distance apart. In parts rows beyond
    it may hold any numbers."""
    last, x = over[-1], _Rows.of(rows, over, value)
    assert last.origin and last.length and rows.length
    width = last.length + lanes  # as the sums' rows
    start, count = last.origin, x.each(0 if in_parts else beyond).length
    assert count is not None
    before = times(_flat(x.others), integer(count * x.stride * width))

    def place(at: Expr) -> Expr:
        return plus(plus(before, times(at, Literal(width, I64))), minus(last.index, start))
    name, copies = f"{sums}_left_whole" if in_parts else f"{sums}_left", product(b.extent for b in x.others)
    buffer = Buffer(name, (copies * count * x.stride * width,), value.dtype, "local")
    fill = _around(x.others, x.copied(name, place, value, lanes, 0 if in_parts else beyond))
    if not in_parts:
        return _Copy.of((buffer,), (fill,), place(x.moved))
    size, apart = (count + beyond) * x.stride, minimum(in_squares(last.extent), last.length) * PARTS + LINE
    target = Buffer(f"{sums}_left", (copies * size * apart,), BF16, "local")
    begin = times(_flat(x.others), integer(size * apart))
    at = plus(plus(begin, times(x.moved, integer(apart))), times(minus(last.index, start), Literal(PARTS, I64)))
    there = x.in_rows(value)
    divide = Parts(there or Load(name, (place(x.first),), value.dtype), target.name, begin, last, x.each(0), x.stride, apart)
    before_that = ((), ()) if there else ((buffer,), (fill,))
    return _Copy.of((target, *before_that[0]), (*before_that[1], _around(x.others, divide)), at)


@lru_cache(KNOWN)
def _left_of_rows(sums: str, rows: Block, images: For, over: tuple[Block, ...], value: Expr, lanes: int, beyond: int) -> _Copy:
    """Parts of all terms of a block of rows of several images, or of rows of one: what their windows have in common once."""
    last, (window, _, _) = altered(over[-1], origin=None, length=None), window_of(images.index, over, value)
    assert window is not None and images.origin is not None and images.length is not None
    first = transform(value, lambda e: Literal(0, I64) if e == window.index else None)
    x = _Rows.of(rows, (*[b for b in over[:-1] if b is not window], last), first)
    count, more = x.each(0).length, window.extent - 1
    assert count is not None
    width, high = in_squares(last.extent), images.length + more
    size, apart = (count + beyond) * x.stride, PARTS * width + LINE
    copies, wide = product(b.extent for b in x.others), integer(apart)
    target = Buffer(f"{sums}_left", (copies * high * size * apart,), BF16, "local")
    whole = Buffer(f"{sums}_left_whole", (count * x.stride * width,), value.dtype, "local")
    image = plus(times(_flat(x.others), integer(high)), minus(images.index, images.origin))

    def place(at: Expr) -> Expr:
        return plus(times(at, integer(width)), last.index)
    fill, there = x.copied(whole.name, place, first, lanes, 0), x.in_rows(first)
    divide = Parts(there or Load(whole.name, (place(x.first),), value.dtype), target.name, times(image, integer(size * apart)), last,
                   x.each(0), x.stride, apart)
    body = (divide,) if there else (Allocate(whole), fill, divide)
    each = For(images.index, images.extent + more, body, origin=images.origin, length=high)
    at = plus(times(plus(image, window.index), integer(size * apart)), times(x.moved, wide))
    return _Copy.of((target,), (_around(x.others, each),), plus(at, times(last.index, Literal(PARTS, I64))))


def _until(end: Extent, at: Expr, value: Expr) -> Expr:
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


def in_squares(terms: Extent) -> Extent:
    """So many terms, and zeros behind them."""
    return floordiv(terms + (SQUARE - 1), SQUARE) * SQUARE


@lru_cache(KNOWN)
def _right_parts(sums: str, columns: Block, over: tuple[Block, ...], value: Expr, lanes: int, first: Index | None,
                 count: Extent, in_blocks: bool) -> _Copy:
    """The same in parts: squares of terms and columns, which are copied for that."""
    panel, width, last = columns.origin, columns.length, over[-1]
    assert panel and isinstance(width, int)
    block, begin = Index(f"{last.index.name}_square"), last.origin if in_blocks else None
    length = last.length if in_blocks else None
    squares = floordiv(in_squares(last.extent if length is None else length), SQUARE)
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
    square = Block(last.index, last.extent, block, SQUARE)
    there = isinstance(value, Load) and value.index[-1:] == (columns.index,) and all(
        (found := _linear(i)) is not None and columns.index not in found for i in value.index[:-1])
    divide = Parts(value if there and isinstance(value, Load) else Load(whole.name, (at,), value.dtype), target.name, place(block),
                   square, columns=columns)
    panels = For(panel, columns.extent, (divide,) if there else (Allocate(whole), terms, divide), origin=first,
                 length=None if first is None else count, step=width)
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
