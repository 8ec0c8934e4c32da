"""How the pool shares out parallel loops: how many units there are, how much work each is, how many a thread has at least, and
how many stay together.
"""
from __future__ import annotations

from math import lcm

from loopwright.ir.dims import floordiv, product
from loopwright.ir.nest import For
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.tensors import panel_of, unit_count, unit_of
from loopwright.lower.codegen.work import work_of
from loopwright.lower.fusing import writes
from loopwright.lower.tiling import every

FEWEST_TILES = 12  # one below the other, of a thread: it reads all factors of the columns for them
FEWEST_OF_UNIT = 2  # of the tile unit's, or rows of an image: it reads the factors from the second cache in any case
FEWEST_IMAGES = 4  # whole, of each thread: with fewer, threads share out the rows of each
LINE = 64  # bytes of memory that no two threads should store to
FEWEST_WIDE = 256  # columns of products for each thread: for fewer, which all copy the rows' factors, threads share out rows
FEWEST_NARROW = 64  # of products by the tile unit of half as many rows: what one core copies another is slow to read
FEWEST_ROWS = 6  # tiles, one below the other, for each thread that copies all factors of the columns itself
FEWEST_COLUMNS = 256  # of a thread that goes by rows: shorter stretches of memory are slow to read
NEVER = 1 << 32  # units of each thread

Shares = tuple[str, str, str, str]  # units, work of each, the least of a thread, how many stay together


def shares(context: Context, f: For, pairs: For | None, *, in_unit: bool) -> Shares:
    """Those of a loop. pairs: a loop inside, positions of both go to any thread; in_unit: products go by the tile unit."""
    kernel, n, unit = context.kernel, unit_count(context, f), unit_of(f)
    units, panel = max(f.step // unit, 1), panel_of(f)
    each = kernel.extent(floordiv(work_of(f.body), units) if pairs is None else work_of(pairs.body))
    if pairs is not None:
        n = context.scope.emit(f"mul i64 {n}, {kernel.extent(pairs.extent)}")
    together = max(s.lanes for s in f.body if isinstance(s, For)) if f.tiled else lcm(f.together, unit) // unit
    if f.lanes > 1:
        stored = [kernel.buffers[b].dtype.itemsize for b, _ in writes(f.body)]
        together = max(together, f.lanes, LINE // min(stored, default=LINE))
    tiles = FEWEST_OF_UNIT if in_unit else FEWEST_TILES
    least = str(FEWEST_COLUMNS) if f.by_rows else _fewest_panels(context, f, panel, in_unit) if panel else \
        str(FEWEST_IMAGES if is_outermost(f, in_unit=in_unit) else tiles if units > 1 else 1)
    return n, each, least, str(together)


def is_outermost(f: For, *, in_unit: bool) -> bool:
    """Whether loops inside are shared out where this one has too few units: of blocks of columns, and of images."""
    return panel_of(f) is not None or (in_unit and any(isinstance(s, For) and s.parallel for s in every(f.body)))


def _rows_in(blocks: For) -> list[For]:
    return [s for s in every(blocks.body) if isinstance(s, For) and s.parallel and unit_of(s) != s.step]


def rows_of(blocks: For) -> For | None:
    """The one loop over rows in blocks of columns."""
    found = _rows_in(blocks)
    return found[0] if len(found) == 1 else None


def shares_of_rows(context: Context, blocks: For, rows: For) -> Shares:
    """Those of the rows in blocks of columns, for threads that each do all of these; of several blocks none, since the rows'
    factors are copied for each."""
    kernel, scope, n = context.kernel, context.scope, unit_count(context, rows)
    some = scope.call("i64", "llvm.smax.i64", [("i64", n), ("i64", "1")])
    each = scope.emit(f"sdiv i64 {kernel.extent(work_of((blocks,)))}, {some}")
    is_one = scope.emit(f"icmp sle i64 {kernel.extent(blocks.extent)}, {blocks.step}")
    return n, each, scope.emit(f"select i1 {is_one}, i64 {FEWEST_ROWS}, i64 {NEVER}"), "1"


def _fewest_panels(context: Context, f: For, panel: int, in_unit: bool) -> str:
    """Of a loop over columns, that each thread has: fewer where few rows would be copied by each."""
    usual, over_rows = str(FEWEST_WIDE // panel), _rows_in(f)
    if not in_unit or not over_rows:
        return usual
    kernel, scope = context.kernel, context.scope
    rows, columns = kernel.extent(product(s.extent for s in over_rows)), kernel.extent(f.extent)
    few = scope.emit(f"icmp sle i64 {scope.emit(f'mul i64 {rows}, 2')}, {columns}")
    return scope.emit(f"select i1 {few}, i64 {FEWEST_NARROW // panel}, i64 {usual}")
