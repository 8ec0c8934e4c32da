"""Loops in blocks, in another order, and products of blocks in registers: nests made into nests.

Guarantees: each function checks, then does; ValueError says why a nest does not allow it. Indices keep their names and mean
the same positions in blocks, so that no access changes.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from loopwright.ir.dims import Extent, floordiv, maximum, minimum
from loopwright.ir.loops import (
    Apply,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    When,
    integer,
    less,
    minus,
    plus,
    times,
    transform,
    walk,
)
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Let, Nest, Reduction, Statement, Store, altered, past
from loopwright.ir.schedule import Parallel, Tensorize
from loopwright.ir.types import BF16, BOOL, F32, I8, I16, I32, I64, U8, U16
from loopwright.lower.naming import bits, may_name

FULL = 16, 16, 32  # rows, columns and terms of a tile of the unit
WASTE = 5, 7  # of so much that its tiles do so much at least is to be done
Body = tuple[Statement, ...]
Done = dict[int, tuple[For, For, Buffer | None]]  # loops by number, what an instruction made of each, and a buffer it widens
AMX = "amx"
PARTS, SQUARE = 3, 32  # of a number, for the tile unit; its terms, rows and columns at a time
KNOWN = 1 << 10  # products of which it is known how they are tiled and packed: schedules that follow from each other share them


def shared_out(nest: Nest, x: Parallel, together: Mapping[str, int]) -> Nest:
    """The nest with loops that the pool shares out. together: by an index, how many of its positions stay with one thread."""
    for name in x.loops:
        count = max([n for index, n in together.items() if name == index or name.startswith(f"{index}_by")], default=1)
        nest = altered(nest, body=at_loop(nest.body, name, partial(altered, parallel=True, together=count), {}))
    return nest


# ---- loops in blocks ------------------------------------------------------------------------------
def block_of(name: str, size: int) -> Index:
    """The index that steps from block to block."""
    return Index(f"{name}_by{size}")


def split(nest: Nest, name: str, size: int, done: Done) -> Nest:
    """The loop over an index as one over the starts of its blocks, and one inside a block."""
    if size < 1:
        raise ValueError("a block has at least one position")

    def blocks(f: For) -> For:
        if f.lanes > 1 or f.tiled or f.by_rows:
            raise ValueError("the loop has lanes")
        outer = block_of(name, size)
        inner = altered(f, origin=outer, length=size, parallel=False, step=1)
        if f.step > 1:
            raise ValueError("the loop goes from block to block itself")
        return altered(f, index=outer, step=size, runs=False, body=(inner,))
    return altered(nest, body=at_loop(nest.body, name, blocks, done))


def reorder(nest: Nest, names: Sequence[str], done: Done) -> Nest:
    """Loops directly inside one another, in this order from the outside: those around statements, or those of a sum."""
    if not names:
        raise ValueError("it names no loops")
    outermost = _first(nest.body, names, bits(names))
    if outermost is None:
        return altered(nest, body=_summed_in_order(nest.body, names))
    def ordered(outer: For) -> For:
        chain = [outer]
        while len(chain) < len(names) and len(chain[-1].body) == 1 and isinstance(inner := chain[-1].body[0], For):
            chain.append(inner)
        found = {f.index.name: f for f in chain}
        if sorted(found) != sorted(names):
            raise ValueError(f"the loops directly inside one another are {', '.join(found)}")
        if wide := [name for name in names[:-1] if found[name].lanes > 1]:
            raise ValueError(f"{wide[0]} has lanes, so it stays the innermost")
        for f in chain:
            if f.origin is not None and f.origin.name in found and names.index(f.origin.name) > names.index(f.index.name):
                raise ValueError(f"{f.index.name} goes through a block of {f.origin.name}")
        body = chain[-1].body
        for name in reversed(names):
            body = (found[name].with_body(body),)
        assert isinstance(body[0], For)
        return body[0]
    return altered(nest, body=at_loop(nest.body, outermost, ordered, done))


def _first(body: Body, wanted: Sequence[str], some: int) -> str | None:
    """Of these loops, whose names are bits too, the one that comes first."""
    for s in body:
        if isinstance(s, For) and may_name(s, some):
            found = s.index.name if s.index.name in wanted else _first(s.body, wanted, some)
            if found is not None:
                return found
    return None


def _summed_in_order(body: Body, names: Sequence[str]) -> Body:
    """The sum over indices of these names, in this order."""
    found = False

    def visit(s: Statement) -> Statement:
        nonlocal found
        if isinstance(s, For):
            return s.with_body(tuple(map(visit, s.body)))
        over = {k.name: (k, n) for k, n in s.over} if isinstance(s, Reduction) and s.monoid == "sum" and not s.also else {}
        if not isinstance(s, Reduction) or sorted(over) != sorted(names):
            return s
        found = True
        return altered(s, over=tuple([over[name] for name in names]))
    body = tuple(map(visit, body))
    if not found:
        raise ValueError("there are no such loops")
    return body


def unpacked(nest: Nest) -> bool:
    """Whether some product of blocks does not read both sides from copies in its order, or the left one down the columns of
    rows that a block keeps."""
    def packed(e: Expr) -> bool:
        return isinstance(e, Load) and str(e.array).endswith(("_left", "_right"))

    def kept(s: Contract) -> bool:
        return isinstance(s.left, Load) and str(s.left.array).startswith("t") and s.left.index[-1] == s.rows.index
    products = [s for s in every(nest.body) if isinstance(s, Contract)]
    return not all((packed(s.left) or (kept(s) and not s.unit)) and packed(s.right) for s in products)


def loops(body: Sequence[Statement]) -> list[For]:
    """All loops, outer ones first."""
    return [s for s in every(body) if isinstance(s, For)]


def every(body: Sequence[Statement]) -> list[Statement]:
    """Every statement, those of loops after these."""
    found, todo = list[Statement](), [*reversed(body)]
    while todo:
        found.append(s := todo.pop())
        if isinstance(s, For):
            todo.extend(reversed(s.body))
    return found


@lru_cache(1 << 12)
def read_by(e: Expr) -> tuple[frozenset[Index], frozenset[str]]:
    """The indices in an expression, and the buffers that it reads."""
    found = walk(e)
    return (frozenset([x for x in found if isinstance(x, Index)]),
            frozenset([x.array for x in found if isinstance(x, Load) and isinstance(x.array, str)]))


def growth(e: Expr, index: Index) -> int | None:
    """By how much an expression grows with an index; None where that is not one number."""
    if index not in read_by(e)[0]:
        return 0
    match e:
        case Index():
            return 1
        case Apply(fn="add" | "sub", args=(a, b)):
            x, y = growth(a, index), growth(b, index)
            return None if x is None or y is None else x + y if e.fn == "add" else x - y
        case Apply(fn="mul", args=(a, Literal(value=int() as n))) | Apply(fn="mul", args=(Literal(value=int() as n), a)):
            x = growth(a, index)
            return None if x is None else x * n
    return None


def at_loop(body: Body, name: str, change: Callable[[For], For], done: Done) -> Body:
    """The statements with the loop of that index changed."""
    found, _ = _changed(body, bits((name,)), lambda f: (change(f), None) if f.index.name == name else None, done)
    if found is body:
        raise ValueError(f"there is no loop {name!r}")
    return found


def _changed(body: Body, wanted: int, change: Callable[[For], tuple[For, Buffer | None] | None],
             done: Done) -> tuple[Body, Buffer | None]:
    """The statements with what `change` makes of loops that may name what is wanted, outer ones first, and the buffer that it
    gives. `done`: what became of loops before."""
    made, widened = body, None
    for k, s in enumerate(body):
        if not isinstance(s, For):
            continue
        known = done.get(id(s))
        if known is None:
            if not may_name(s, wanted):
                continue
            done[id(s)] = known = s, *(change(s) or _inside(s, wanted, change, done))
        if known[1] is not s:
            made, widened = (*made[:k], known[1], *made[k + 1:]), known[2]
    return made, widened


def _inside(s: For, wanted: int, change: Callable[[For], tuple[For, Buffer | None] | None],
            done: Done) -> tuple[For, Buffer | None]:
    """A loop with its body changed, see `_changed`."""
    body, widened = _changed(s.body, wanted, change, done)
    return s if body is s.body else altered(s, body=body), widened


# ---- products in registers --------------------------------------------------------------------------
def tensorize(nest: Nest, x: Tensorize, done: Done) -> Nest:
    """The reduction of a stage, a sum of products that stands in a loop over a block of rows and, inside, one over a block of
    columns, as sums of whole blocks; what follows it reads the sums. So are products that a loop adds up in place."""
    sums, row = (f"s{x.stage}", f"r{x.stage}"), f"t{x.stage}"

    def tiled(around: For) -> tuple[For, Buffer] | None:
        match around.body:
            case (For(body=(For() as columns,)) as rows,):
                added = _added(columns, row)
                if added is None and not any(isinstance(s, Reduction) and s.name in sums for s in columns.body):
                    return None
                made, tile = _tiled_body(rows, columns, sums, x) if added is None else _tiled_sums(rows, columns, added, x)
                return around.with_body(made), tile
        return None
    body, tile = _changed(nest.body, bits((*sums, row)), tiled, done)
    if tile is None:
        raise ValueError("it does not stand in two loops, that of the columns inside that of the rows, inside a block")
    return altered(nest, body=_widened(body, nest.body, tile))


def _added(columns: For, buffer: str) -> For | None:
    """The loop directly inside one over columns that adds terms to the sums in a buffer."""
    match columns.body:
        case (For(body=(Store(buffer=name, combine="add", when=None),)) as terms,) if name == buffer:
            return terms
    return None


def _tiled_sums(rows: For, columns: For, terms: For, x: Tensorize) -> tuple[Body, Buffer]:
    """The loops that add a block of terms to sums; and where these are."""
    _check_blocks(rows, columns, x)
    if x.heights[-1] > 1:
        raise ValueError("tiles go past the last row of sums that a loop adds up: the lowest has one row")
    s, = terms.body
    assert isinstance(s, Store)
    left, right = factors(s.value, rows.index, columns.index)
    panel = block_of(columns.index.name, x.columns)
    assert terms.length is None or isinstance(terms.length, int)
    product = Contract(s.buffer, s.index, Block(rows.index, rows.extent, rows.origin, _whole(rows)),
                       Block(columns.index, columns.extent, panel, x.columns),
                       (Block(terms.index, terms.extent, terms.origin, terms.length),), left, right, s.value.dtype, x.heights,
                       x.lanes, Literal(False, BOOL), x.pairs, unit=x.unit)
    body = For(panel, columns.extent, (product,), origin=columns.origin, length=columns.length, step=x.columns)
    return (body,), Buffer(s.buffer, (rows.extent, _padded(columns.extent, x)), s.value.dtype, "local")


def _padded(width: Extent, x: Tensorize) -> Extent:
    """So many columns in whole tiles. Rows a power of two apart would share lines of a cache."""
    return floordiv(width + (x.columns - 1), x.columns) * x.columns + x.lanes


def may_fill(sizes: tuple[Extent, Extent, Extent]) -> bool:
    """Whether so many rows, columns and terms may fill tiles of the unit well enough: what these multiply of zeros takes time
    as all else does."""
    known = [n for n in sizes if isinstance(n, int)]
    if len(known) < len(sizes):
        return True
    full = [-(-n // size) * size for n, size in zip(known, FULL, strict=True)]
    return math.prod(full) * WASTE[0] <= math.prod(known) * WASTE[1]


def _check_blocks(rows: For, columns: For, x: Tensorize) -> None:
    whole = isinstance(columns.length, int) and isinstance(rows.length, int)
    if columns.origin is None or rows.origin is None or not whole or x.columns % x.lanes:
        raise ValueError("rows and columns must be blocks, and tiles whole vectors wide")
    is_square = x.heights == (SQUARE,) and x.columns == SQUARE and x.depth % SQUARE == 0
    if x.unit and (x.unit != AMX or not is_square):
        raise ValueError(f"the unit {x.unit} has tiles of {SQUARE} by {SQUARE}, and that many terms at a time")
    if not x.heights or x.heights[-1] < 1 or list(x.heights) != sorted(set(x.heights), reverse=True):
        raise ValueError("tiles get lower")


def _whole(f: For) -> int:
    """The length of a block that `_check_blocks` has seen."""
    assert isinstance(f.length, int)
    return f.length


def _widened(body: Body, old: Body, buffer: Buffer) -> Body:
    """The statements, of which those around a product are not the old ones, with its buffer as large as this one."""
    made = list(body)
    for k, (s, before) in enumerate(zip(body, old, strict=True)):
        if isinstance(s, Allocate):
            if s.buffer.name == buffer.name:
                made[k] = Allocate(buffer)
        elif s is not before and isinstance(s, For) and isinstance(before, For) and len(s.body) == len(before.body):
            made[k] = s.with_body(_widened(s.body, before.body, buffer))
    return tuple(made)


@lru_cache(KNOWN)
def _tiled_body(rows: For, columns: For, names: Sequence[str], x: Tensorize) -> tuple[Body, Buffer]:
    """The loops that make the sums, and those that store what is made of them; and where the sums are."""
    at, s = next((k, s) for k, s in enumerate(columns.body) if isinstance(s, Reduction) and s.name in names)
    before, after = columns.body[:at], columns.body[at + 1:]
    if s.monoid != "sum" or s.lanes > 1 or s.also or s.joined:
        raise ValueError("it is no plain sum")
    if x.unit and s.dtype != F32:
        raise ValueError("the unit's sums are in f32")
    if before or not all(isinstance(other, Let | Store) for other in after):
        raise ValueError("more than stores follows it")
    _check_blocks(rows, columns, x)
    assert rows.origin is not None and columns.origin is not None
    left, right = factors(s.body, rows.index, columns.index)
    kept = _kept(rows, columns, s, after)
    few = minimum(columns.extent, _whole(columns)) if x.unit else _whole(columns)
    width = _padded(columns.extent if kept else few, x)
    if kept and x.heights[-1] > 1 and not x.unit:
        raise ValueError("tiles go past the last row, and sums are kept where others lie: the lowest has one row")
    tile = Buffer(kept or f"{s.name}_sums", (_whole(rows) + past(x.heights, _whole(rows)), width), s.dtype, "local")
    place = minus(rows.index, rows.origin), columns.index if kept else minus(columns.index, columns.origin)
    (k, extent), outer = s.over[-1], s.over[:-1]
    if x.pairs:
        if not go_in_pairs(left, right, s.dtype):
            raise ValueError("pairs are of integers of at most 16 bits, and their sums i32, or of bf16, and their sums f32")
        if x.unit:  # which takes bf16 as they are
            left, right = (e.args[0] for e in (left, right) if isinstance(e, Apply))
        else:
            left, right = (_words(e, k, extent) for e in (left, right))
            k, extent = pairs_of(k), floordiv(extent + 1, 2)
    start, panel = block_of(k.name, x.depth), block_of(columns.index.name, x.columns)
    over = (*[Block(i, n) for i, n in outer], Block(k, extent, start, x.depth))
    fresh = Apply("eq", (start, Literal(0, I64)), BOOL)
    product = Contract(tile.name, place, Block(rows.index, rows.extent, rows.origin, _whole(rows)),
                       Block(columns.index, columns.extent, panel, x.columns), over, left, right, s.dtype, x.heights, x.lanes,
                       fresh, x.pairs, unit=x.unit, result=_result(rows, columns, after))
    panels = For(panel, columns.extent, (product,), origin=columns.origin, length=columns.length, step=x.columns)
    depths = For(start, maximum(extent, 1), (panels,), step=x.depth)  # a sum of no terms is made once, too
    if kept:
        return (depths,), tile
    read = Load(tile.name, place, tile.dtype)
    body = tuple(_with_values(t, lambda e: read if isinstance(e, Local) and e.name == s.name else None) for t in after)
    stores = altered(rows, body=(altered(columns, body=body, lanes=x.lanes, unroll=x.unroll),))
    return (Allocate(tile), depths, stores), tile


def _result(rows: For, columns: For, after: Sequence[Statement]) -> Load | None:
    """Where something is stored for each row and column, along columns."""
    return next((Load(t.buffer, t.index, t.value.dtype) for t in after
                 if isinstance(t, Store) and t.combine == "set" and t.when is None and len(t.index) > 1
                 and t.index[-1] == columns.index and rows.index in t.index[:-1]), None)


def _kept(rows: For, columns: For, s: Reduction, after: Sequence[Statement]) -> str | None:
    """The buffer of a block's rows that the sums are kept in, where nothing else is done with them."""
    match after:
        case (Store(buffer=name, index=(row, column), value=Local(name=local), combine="set", when=None),):
            is_block = rows.origin is not None and row == minus(rows.index, rows.origin)
            return name if local == s.name and is_block and column == columns.index else None
    return None


def _with_values(s: Statement, change: Callable[[Expr], Expr | None]) -> Statement:
    match s:
        case Let(name=name, value=value):
            return Let(name, transform(value, change))
        case Store():
            when = None if s.when is None else transform(s.when, change)
            return altered(s, value=transform(s.value, change), when=when)
    raise AssertionError(s)


def factors(e: Expr, row: Index, column: Index) -> tuple[Expr, Expr]:
    """The two sides of a product: one the same for all columns, the other for all rows. ValueError where there are none. A
    product that is made only where a condition of the rows holds is one by zero elsewhere."""
    match e:
        case When(cond, then, Literal(value=0) as zero) if column not in read_by(cond)[0]:
            left, right = factors(then, row, column)
            return When(cond, left, zero), right
        case Apply(fn="mul", args=(a, b)):
            for left, right in ((a, b), (b, a)):
                if column not in read_by(left)[0] and row not in read_by(right)[0]:
                    return left, right
    raise ValueError("it is no product of rows and columns")


def go_in_pairs(left: Expr, right: Expr, dtype: np.dtype) -> bool:
    """Whether the factors of a product have at most 16 bits: integers made i32, or bf16 made f32."""
    shorter = {I32: (I8, U8, I16), F32: (BF16,)}.get(dtype, ())
    return all(isinstance(e, Apply) and e.fn == "convert" and e.args[0].dtype in shorter for e in (left, right))


def pairs_of(k: Index) -> Index:
    """The index that counts pairs of terms."""
    return Index(f"{k.name}_pairs")


def _words(e: Expr, k: Index, extent: Extent) -> Expr:
    """Two terms beside each other as one integer, the first in its low half; past the end a term is zero."""
    if isinstance(e, Apply) and e.dtype == F32:  # the bits of bf16
        e = Apply("convert", (Apply("bitcast", e.args, U16),), I32)
    first = times(pairs_of(k), Literal(2, I64))
    second = plus(first, Literal(1, I64))
    low, high = (transform(e, partial(_where, {k: at})) for at in (first, second))
    high = When(less(second, integer(extent)), high, Literal(0, I32))
    low, high = Apply("bitwise_and", (low, Literal(0xFFFF, I32)), I32), Apply("left_shift", (high, Literal(16, I32)), I32)
    return Apply("bitwise_or", (low, high), I32)


def _where(places: Mapping[Expr, Expr], e: Expr) -> Expr | None:
    """What stands where some indices were."""
    return places.get(e)
