"""Scheduled loop nests: what a kernel does, with every decision made. Target-neutral; the generators take only this.

A `Nest` is a function over buffers. Statements run in order; an expression is evaluated in the context of its loops:
inside a loop with lanes every expression that depends on its index is a vector, the rest are scalars that are
broadcast. A `Reduce` in such a context is a serial loop with vector accumulators; elsewhere its `Reduction` statement
says how many lanes and accumulators it uses.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.loops import Expr, Index, Load

Values = tuple[tuple[str, int], ...]  # of symbols

T = TypeVar("T")


def altered(x: T, **fields: Any) -> T:
    """A statement, or a nest, with other values of some fields: a tenth of the time that `dataclasses.replace` takes, which
    calls with all fields."""
    made = object.__new__(type(x))
    made.__dict__.update(x.__dict__, **fields)
    return made


@dataclass(frozen=True)
class Buffer:
    """A C-contiguous array. Roles: input, output (both parameters of the kernel, in order), local (scratch that lives
    for one iteration of the loop that holds its `Allocate`: a row, in cache or where `place` says: shared, or in registers,
    `each` elements a thread, and nowhere past these, or a panel, that has room for inactive lanes)."""

    name: str
    shape: Shape
    dtype: np.dtype
    role: str
    place: str = ""
    each: int = 0


@dataclass(frozen=True)
class For:
    """body for index in [0, extent), or in a block: from the index `origin` of a loop around it, `length` positions or as
    many as there are; every `step`th. lanes > 1: `lanes` iterations at a time, `unroll` vectors in flight, masked tail
    (innermost only, or around loops without lanes). parallel: iterations are independent and the pool may share them out
    (it may have lanes as well; inside another such loop only where that one is in one piece). by_rows: the folds of the
    body go row by row over stripes of the loop, not down each of its vectors (outermost loops with lanes only). short:
    lanes that the loop has where all loops of its body have fewer trips than a number, see `lower/short_rows.py`. tiled:
    together with the loop of vectors that is its body, in square tiles. padded: all positions of the block are stored to,
    those past the extent with any number. together: so many iterations, from a multiple of that on, belong to one thread.
    jam: so many at once, in the loop of vectors that is the body. runs: updates of one place, one after another, are done
    together. owned: with what is inside, a scatter's updates, of which each thread does those of its rows. by_owner: such
    updates, each done by the warp that owns the element, in order; any_order: by whichever thread comes, atomically, in copies
    of blocks where `copy` elements suffice, and `loose` if sums of floats may depend on who does. bind: the axes of a GPU's
    blocks and threads that share out the iterations; loops directly inside each other with the same axes are shared out as
    one. of: the loops whose iterations these are, numbered in order; their indices have values, too."""

    index: Index
    extent: Extent
    body: tuple[Statement, ...]
    lanes: int = 1
    unroll: int = 1
    parallel: bool = False
    by_rows: bool = False
    short: tuple[int, int] | None = None
    tiled: bool = False
    origin: Index | None = None
    length: Extent | None = None
    step: int = 1
    padded: bool = False
    together: int = 1
    jam: int = 1
    bind: tuple[str, ...] = ()
    runs: bool = False
    owned: bool = False
    by_owner: bool = False
    any_order: bool = False
    loose: bool = False
    copy: int = 0
    of: tuple[tuple[Index, Extent], ...] = ()

    def with_body(self, body: tuple[Statement, ...]) -> For:
        """The loop with another body; itself where that has the very statements of its own."""
        if len(body) == len(self.body) and all(map(operator.is_, body, self.body)):
            return self
        return altered(self, body=body)


@dataclass(frozen=True)
class Store:
    """buffer[index] = value, or the function `combine` of what is there and value unless that is "set". Where `when`
    does not hold nothing happens: index and value are not evaluated."""

    buffer: str
    index: tuple[Expr, ...]
    value: Expr
    combine: str = "set"
    when: Expr | None = None


@dataclass(frozen=True)
class Prefetch:
    """Bring near the line that holds the same element of buffer[index] of a later row, `row` elements on, to be read or to be
    written. Where that is too near or too far for the caches, it is a line that comes later or earlier. second: to the second
    cache, the first has no room. Changes no value."""

    buffer: str
    index: tuple[Expr, ...]
    row: Extent
    write: bool
    second: bool = False


@dataclass(frozen=True)
class Let:
    """Name a value for the rest of the enclosing body (read as `Local`)."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Reduction:
    """Name the fold of body over `over` (see loops.Reduce). The last index of `over` runs `lanes` wide with `unroll`
    accumulators when lanes > 1. `also` is done at each point on the way, before the fold reads: stores (exp(x - m) kept for
    the next pass) and prefetches. joined: in the same pass as the reduction before it, whose loops it has. bind: the axes that
    share out its points; all of their threads then have the value. shared: by the pool, in blocks, with those that are joined
    to it. fused: as of a Reduce."""

    name: str
    monoid: str
    over: tuple[tuple[Index, Extent], ...]
    body: Expr
    dtype: np.dtype
    lanes: int = 1
    unroll: int = 1
    also: tuple[Store | Prefetch, ...] = ()
    joined: bool = False
    bind: tuple[str, ...] = ()
    shared: bool = False
    fused: bool = False


@dataclass(frozen=True)
class Scan:
    """acc = identity; for index in [0, extent): acc = acc (monoid) body; buffer[at] = acc. Serial in index, by vectors of so
    many lanes where any order gives the same, or a block of threads at a time along the axes of `bind`."""

    monoid: str
    index: Index
    extent: Extent
    body: Expr
    buffer: str
    at: tuple[Expr, ...]
    dtype: np.dtype
    bind: tuple[str, ...] = ()
    lanes: int = 1


@dataclass(frozen=True)
class While:
    """state = starts; while condition: body, then state = following. In these the state is Locals called `names`; afterwards
    what it came to is Locals called `ends` (None: nobody asks). In lanes each stops on its own condition."""

    names: tuple[str, ...]
    starts: tuple[Expr, ...]
    condition: Expr
    body: tuple[While, ...]  # loops inside, whose ends `following` may read
    following: tuple[Expr, ...]
    ends: tuple[str | None, ...]


@dataclass(frozen=True)
class Allocate:
    """A local buffer for the rest of the enclosing body."""

    buffer: Buffer


@dataclass(frozen=True)
class Block:
    """The positions of an index that a loop goes through, and `of` which loops: see For."""

    index: Index
    extent: Extent
    origin: Index | None = None
    length: int | None = None
    of: tuple[tuple[Index, Extent], ...] = ()


@dataclass(frozen=True)
class Contract:
    """buffer[at] = the sum over `over` of left * right for a block of rows and one of columns, added to what is there unless
    `fresh` holds (None: always). `left` is the same for all columns, `right` for all rows. In tiles that stay in registers: of
    as many rows as the first of `heights` while there are so many, then as the next, which may have the rows of the last high
    one, too; where the last is not 1, as many tiles as the first makes necessary, all of the lowest height that suffices, which
    go past the last row, see `past`. Columns are all lanes of a tile, which may store any number past their extent, up to the
    block's length. pairs: both sides are words of two numbers of 16 bits (bf16 where sums are f32), and a product of words is
    the sum of the products of their halves. depth: of a GPU's block, which copies so many terms at a time; each thread then
    has one height by as many lanes of the sums. unit: the instruction that multiplies tiles of them, if it is not one product
    at a time. stages: copies of a depth. Where `when` does not hold nothing happens. result: where something made of the sum
    is stored later; caches may be asked for it."""

    buffer: str
    at: tuple[Expr, ...]
    rows: Block
    columns: Block
    over: tuple[Block, ...]
    left: Expr
    right: Expr
    dtype: np.dtype
    heights: tuple[int, ...]
    lanes: int
    fresh: Expr | None = None
    pairs: bool = False
    depth: int = 0
    unit: str = ""
    stages: int = 2
    when: Expr | None = None
    result: Load | None = None


@dataclass(frozen=True)
class Parts:
    """target[at...] = three bf16 for each number of `value`, which add up to it, in the order in which the unit of a product
    reads them: of a block of terms, which lie side by side there, past which there are zeros. They are those of rows, `times`
    as many as a block has, which begin `apart` numbers apart here; or, where there are columns, which lie side by side then,
    of so many of these as their block is long, term after term. Where a number is not finite, or so large or small that parts
    do not say it, see `Nest.instead`. parts: 1 where numbers are bf16. Where `when` does not hold nothing happens."""

    value: Load
    target: str
    at: Expr
    terms: Block
    rows: For | None = None
    times: int = 1
    apart: Extent = 0
    columns: Block | None = None
    parts: int = 3
    when: Expr | None = None


@dataclass(frozen=True)
class Running:
    """How a maximum, a sum of what is made of exponentials of differences from it, and the products of these are one pass:
    what the differences are from, of the maximum so far; a term of the sum, and of the products, with Local("reference") for
    that, and Local("weight") for a term of the sum; and by what the products are divided in the end (None: nothing)."""

    reference: Expr
    weight: Expr
    left: Expr
    divisor: Expr | None


@dataclass(frozen=True)
class Passes:
    """A chain of products for a block of rows, by a GPU's block: the sums of `products` at a row and a column are Locals called
    as their buffers; `folds`, by pass, are over the column of those of a row, and what is of it alone; then the sums of `last`,
    whose terms are all columns, of rows with a block of columns of its own. With these, and the folds, `body` is done for each
    of them, and `numbers`, which stores what is of a row alone, once for each row. Each pass goes past all columns, as many at
    a time as their block is long, and makes the products that it asks for anew: nothing as large as rows times columns is kept.
    running: in one pass, which means the same up to rounding."""

    rows: Block
    columns: Block
    products: tuple[Contract, ...]
    folds: tuple[tuple[Reduction, ...], ...]
    last: Contract
    body: tuple[Statement, ...]
    numbers: tuple[Statement, ...] = ()
    running: Running | None = None


Statement = For | Store | Prefetch | Let | Reduction | Scan | While | Allocate | Contract | Parts | Passes


@dataclass(frozen=True)
class Ones:
    """Symbols that may be 1 at a call: where all are of one of the sets that `matter`, there is a body for those that are."""

    symbols: tuple[str, ...]
    matter: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Nest:
    """One kernel. `buffers` are its parameters: inputs, then outputs; `symbols` its sizes, i64 parameters after them. threads:
    of a block of a GPU, along x and y, where loops are bound to them. few: the values of symbols for which the kernel has
    bodies of its own, where an axis has few positions; few_from: what has to be how many there; ones: those that give it
    others, where axes have one. instead: makes the same without units, where sizes or numbers are none for them: see Parts."""

    name: str
    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    body: tuple[Statement, ...]
    threads: tuple[int, int] | None = None
    few: tuple[Values, ...] = ()
    few_from: tuple[Extent, int] = (0, 0)
    ones: Ones | None = None
    instead: Callable[[], Nest] | None = field(default=None, compare=False)


def past(heights: Sequence[int], rows: int) -> int:
    """How many rows tiles of these heights may go past the last of at most so many: see Contract."""
    if heights[-1] == 1:
        return 0
    counts = [-(-n // heights[0]) for n in range(1, rows + 1)]
    return max(count * min(h for h in some if count * h >= n) - n
               for some in (heights, heights_of_few(heights)) for n, count in enumerate(counts, 1))


def heights_of_few(heights: Sequence[int]) -> Sequence[int]:
    """Those of tiles of half the vectors, for few columns, where all tiles have one height."""
    return heights[::2]


def one_pass(body: Sequence[Statement], at: int) -> list[Reduction]:
    """The reduction there and those that share its pass; none where there is no reduction."""
    found: list[Reduction] = []
    for s in body[at:]:
        if not isinstance(s, Reduction) or s.joined != bool(found):
            break
        found.append(s)
    return found
