"""Blocks of loops, and sums of products in registers: the inner loops of matrix products and convolutions.

Guarantees: an element's sum is made in one order, term by term along each block of the innermost index, wherever its tile
begins and however high that is; a term is added with one rounding where the machine can.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import Expr, Index, Load
from loopwright.ir.nest import Block, Buffer, Contract, For, Parts, Statement, altered, heights_of_few
from loopwright.lower.codegen.addresses import locate, offset_of
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.small import asks_ahead
from loopwright.lower.codegen.spans import Span, masked
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.tile_functions import TileShape, tile_function
from loopwright.lower.codegen.tile_unit import divide, multiply

Groups = tuple[Sequence[Block], Sequence[Block]]  # of terms, and groups of these, by the loops that number them
SUMS_IN_FLIGHT = 8  # fewer in a tile wait for each other: two are begun at a time, and each takes four cycles


def block_span(context: Context, block: Block | For) -> Span:
    """Where a loop begins and ends. A loop over all of an index has its end at the top of the function; one in a block of a
    stretch ends where that does."""
    extent = context.kernel.extent(block.extent)
    low = "0" if block.origin is None else context.bindings[block.origin.name].parts[0]
    if block.length is None:
        return low, extent
    left = None if block.origin is None else context.bindings.get(_left_of(block.origin))
    if left is not None:
        extent = left.scope.emit(f"sub nsw i64 {extent}, {left.parts[0]}")
    end = context.scope.emit(f"add nsw i64 {low}, {context.kernel.extent(block.length)}")
    return low, context.scope.call("i64", "llvm.smin.i64", [("i64", end), ("i64", extent)])


def unit_count(context: Context, f: For) -> str:
    """How many units of a loop threads may share out."""
    scope, (low, high) = context.scope, block_span(context, f)
    count = high if low == "0" else scope.emit(f"sub i64 {high}, {low}")
    if f.step == 1:
        return count
    return scope.emit(f"sdiv i64 {scope.emit(f'add i64 {count}, {unit_of(f) - 1}')}, {unit_of(f)}")


def unit_of(f: For) -> int:
    """The positions of a loop that threads do not share: a tile's rows, or columns, else a step. A thread's first block begins
    where its share does."""
    inside = [s for s in _all(f.body) if isinstance(s, Contract)]
    heights = [s.heights[0] for s in inside if s.rows.origin == f.index]
    return min(heights, default=panel_of(f) or (1 if any(s.unit for s in inside) else f.step))


def panel_of(f: For) -> int | None:
    """The columns of a tile, where a loop goes from block to block of the columns of products."""
    inside = _all(f.body)
    panels = {x.index: x.step for x in inside if isinstance(x, For) and x.origin == f.index and f.step % x.step == 0}
    return next((panels[s.columns.origin] for s in inside if isinstance(s, Contract) and s.columns.origin in panels), None)


def _all(body: Sequence[Statement]) -> list[Statement]:
    return [x for s in body for x in ([s, *_all(s.body)] if isinstance(s, For) else [s])]


def stretch(context: Context, f: For, units: Span) -> tuple[Context, Span]:
    """The positions of some of a loop's units, and the context of their blocks: the last one may end before it is full."""
    if f.step == 1 and f.origin is None:
        return context, units
    scope, (low, high) = context.scope, block_span(context, f)
    begin, end = (scope.emit(f"add i64 {low}, {scope.emit(f'mul i64 {x}, {unit_of(f)}')}") for x in units)
    end = scope.call("i64", "llvm.smin.i64", [("i64", end), ("i64", high)])
    left = scope.emit(f"sub nsw i64 {context.kernel.extent(f.extent)}, {end}")
    return context.bind_index(_left_of(f.index), left, scope), (begin, end)


def _left_of(index: Index) -> str:
    """The name of how many positions lie behind a stretch of a loop's blocks."""
    return f"left of {index.name}"


def padded(context: Context, statement: For, run: Callable[[Context], None]) -> None:
    """All positions of a block at once: where it ends past the extent lanes there are read as zero, and stored."""
    name, scope, kernel = statement.index.name, context.scope, context.kernel
    assert statement.origin is not None and isinstance(statement.length, int)
    base, end = context.bindings[statement.origin.name].parts[0], kernel.extent(statement.extent)
    fits = scope.emit(f"icmp sle i64 {scope.emit(f'add nsw i64 {base}, {statement.length}')}, {end}")
    wide = altered(context, lanes=statement.lanes, parts=statement.length // statement.lanes, vector=name)

    def whole(inner: Scope) -> Carried:
        run(wide.bind_index(name, base, inner))
        return ()

    def ragged(inner: Scope) -> Carried:
        run(altered(masked(wide.bind_index(name, base, inner), name, end), padded=True))
        return ()
    kernel.forget()
    branch(scope, fits, whole, ragged)
    kernel.forget()


# ---- products -----------------------------------------------------------------------------------
def contract(context: Context, s: Contract) -> None:
    """Tiles of the first height, then of the next; or all of one height, see Contract."""
    if s.when is not None:
        def within(scope: Scope) -> Carried:
            contract(context.at(scope), altered(s, when=None))
            return ()
        branch(context.scope, context.evaluate(context.kernel.terms.of(s.when)).parts[0], within)
        return
    span = block_span(context, s.rows)
    if s.unit:
        _in_unit(context, s, span)
        return
    few = _are_few_columns(context, s)
    assert s.columns.length is not None
    parts = s.columns.length // s.lanes

    def even(heights: Sequence[int], vectors: int, scope: Scope) -> Carried:
        _even_tiles(context.at(scope), s, heights, vectors, span)
        return ()
    if s.heights[-1] == 1:
        _stacks(context, s, span, few)
    elif few is None:
        even(s.heights, parts, context.scope)
    else:
        branch(context.scope, few, partial(even, heights_of_few(s.heights), parts // 2), partial(even, s.heights, parts))
    context.kernel.forget()


def _stacks(context: Context, s: Contract, span: Span, few: str | None) -> None:
    """The tiles of one height after those of another. For few columns those of the first have half the vectors."""
    assert s.columns.length is not None
    scope, parts, (low, high) = context.scope, s.columns.length // s.lanes, span
    for k, height in enumerate(s.heights):
        end = _end(scope, low, high, s.heights[k:], parts)
        run = partial(_tiles, context, s, _Height((height,), str(height)), (low, end))
        context.kernel.forget()
        if few is None or height != s.heights[0]:
            run(parts, scope)
        else:
            branch(scope, few, partial(run, parts // 2), partial(run, parts))
        low = end


def _end(scope: Scope, low: str, high: str, heights: Sequence[int], parts: int) -> str:
    """Where tiles of the first of some heights end: when there are fewer rows left, or one tile sooner, for lower tiles to make
    its rows with those."""
    height, rows = heights[0], scope.emit(f"sub i64 {high}, {low}")
    if height == 1:
        return high
    left = scope.emit(f"srem i64 {rows}, {height}")
    if some := _with_one_more(heights, parts):
        bit = scope.emit(f"and i64 {scope.emit(f'lshr i64 {sum([1 << n for n in some])}, {left}')}, 1")
        fewer = scope.emit(f"select i1 {scope.emit(f'icmp sge i64 {rows}, {height}')}, i64 {bit}, i64 0")
        left = scope.emit(f"add i64 {left}, {scope.emit(f'mul i64 {fewer}, {height}')}")
    return scope.emit(f"sub i64 {high}, {left}")


def _with_one_more(heights: Sequence[int], parts: int) -> list[int]:
    """The numbers of rows left that lower tiles make together with those of one high tile in less time than after it. A tile
    takes as many turns as it has sums, but no fewer than there can be in flight."""
    def turns(height: int) -> int:
        return max(height * parts, SUMS_IN_FLIGHT)

    def by_lower(rows: int) -> int:
        taken = 0
        for height in heights[1:]:
            taken, rows = taken + rows // height * turns(height), rows % height
        return taken
    first = heights[0]
    return [left for left in range(1, first) if by_lower(first + left) < turns(first) + by_lower(left)]


def _even_tiles(context: Context, s: Contract, heights: Sequence[int], parts: int, span: Span) -> None:
    """Tiles of one height."""
    scope, (low, high), most = context.scope, span, heights[0]
    rows = scope.emit(f"sub i64 {high}, {low}")
    count = scope.emit(f"sdiv i64 {scope.emit(f'add i64 {rows}, {most - 1}')}, {most}")
    each = scope.call("i64", "llvm.smax.i64", [("i64", count), ("i64", "1")])
    above = scope.emit(f"add i64 {rows}, {scope.emit(f'sub i64 {each}, 1')}")
    needed, height = scope.emit(f"sdiv i64 {above}, {each}"), str(most)
    for h in heights[1:]:
        height = scope.emit(f"select i1 {scope.emit(f'icmp sle i64 {needed}, {h}')}, i64 {h}, i64 {height}")
    end = scope.emit(f"add i64 {low}, {scope.emit(f'mul i64 {count}, {height}')}")
    _tiles(context, s, _Height(tuple(heights), height), (low, end), parts, scope)


@dataclass(frozen=True)
class _Height:
    """One of some heights of tiles, and which."""

    heights: tuple[int, ...]
    register: str


def _are_few_columns(context: Context, s: Contract) -> str | None:
    """Whether half of a panel's vectors have all columns that are left; None where they surely have not."""
    assert s.columns.origin is not None and s.columns.length is not None
    extent, width = s.columns.extent, s.columns.length
    if width // s.lanes % 2 or (isinstance(extent, int) and not 0 < extent % width <= width // 2):
        return None
    panel = context.bindings[s.columns.origin.name].parts[0]
    left = context.scope.emit(f"sub nsw i64 {context.kernel.extent(extent)}, {panel}")
    return context.scope.emit(f"icmp sle i64 {left}, {width // 2}")


def _tiles(context: Context, s: Contract, height: _Height, span: Span, parts: int, scope: Scope) -> Carried:
    """Tiles one below the other."""
    def tile(inner: Scope, at: str, state: list[str]) -> list[str]:
        _tile(context.bind_index(s.rows.index.name, at, inner), s, height, parts)
        return []
    loop(scope, *span, height.register, (), tile)
    return ()


def _tile(context: Context, s: Contract, height: _Height, parts: int) -> None:
    """The sums of a tile, over groups of terms that lie an equal step apart."""
    low, high = block_span(context, s.over[-1])
    count = high if low == "0" else context.scope.emit(f"sub i64 {high}, {low}")

    def call(inside: Context, groups: Groups, fresh: str, *, has_terms: bool) -> None:
        _call(inside, s, (height, parts), count if has_terms else "0", groups, fresh)
    _in_groups(context, s, low, call)


def _in_unit(context: Context, s: Contract, rows: Span) -> None:
    """All sums of a block by the tile unit."""
    terms = block_span(context, s.over[-1])

    def call(inside: Context, groups: Groups, fresh: str, *, has_terms: bool) -> None:
        multiply(inside, s, rows, terms if has_terms else ("0", "0"), groups, fresh)
    _in_groups(context.bind_index(s.rows.index.name, rows[0], context.scope), s, terms[0], call)
    context.kernel.forget()


def parts(context: Context, s: Parts) -> None:
    """What a tile unit multiplies, from a copy."""
    if s.when is not None:
        def within(scope: Scope) -> Carried:
            parts(context.at(scope), altered(s, when=None))
            return ()
        branch(context.scope, context.evaluate(context.kernel.terms.of(s.when)).parts[0], within)
        return
    def span(block: Block | For | None) -> Span:
        return ("0", "0") if block is None else block_span(context, block)
    divide(context, s, span(s.terms), span(s.rows), span(s.columns))
    context.kernel.forget()


def _in_groups(context: Context, s: Contract, low: str, call: Callable[..., None]) -> None:
    """Call for the sums over groups of terms that lie an equal step apart, of which the innermost begin at `low`."""
    scope, (*outer, last) = context.scope, s.over
    assert s.columns.origin is not None
    here = context.bind_index(s.columns.index.name, context.bindings[s.columns.origin.name].parts[0], scope)
    here = here.bind_index(last.index.name, low, scope)
    for b in outer:
        here = here.bind_index(b.index.name, "0", scope)
    *around, more, even = _even(here, s.left, outer)
    fresh = "true" if s.fresh is None else context.evaluate(context.kernel.terms.of(s.fresh)).parts[0]

    def groups(inside: Context, around: Sequence[Block], fresh: str) -> None:
        if not around:
            call(inside, (more, even), fresh, has_terms=True)
            return
        b, *rest = around

        def body(inner: Scope, at: str, state: list[str]) -> list[str]:
            groups(inside.bind_index(b.index.name, at, inner), rest, fresh)
            return []
        loop(inside.scope, *block_span(inside, b), "1", (), body)
    blocks = [b for run in around for b in run]
    if blocks:  # no terms, for the sums of none of the groups
        call(here, (more, even), fresh, has_terms=False)
        fresh = "false"
    groups(here, blocks, fresh)


def _even(context: Context, left: Expr, outer: Sequence[Block]) -> list[Sequence[Block]]:
    """The blocks around the innermost in runs whose positions lie an equal step apart, at least two."""
    steps = [_step(context, left, b.index) for b in outer]
    starts = [k + 1 for k in range(len(outer) - 1) if steps[k] != steps[k + 1] * outer[k + 1].extent]
    runs = [outer[a:b] for a, b in pairwise((0, *starts, len(outer)))]
    return [(), *runs] if len(runs) == 1 else runs


def _call(context: Context, s: Contract, size: tuple[_Height, int], count: str, outer: Groups, fresh: str) -> None:
    """A call of the function that makes the sums of a tile of so many rows and vectors, over two runs of blocks around the
    innermost."""
    kernel, scope, (height, parts) = context.kernel, context.scope, size
    sums = Load(s.buffer, s.at, s.dtype)
    left, right, at = [_begin(context, side) for side in (s.left, s.right, sums)]
    distance, apart = [_step(context, side, s.rows.index) for side in (s.left, sums)]
    pace = _step(context, s.left, s.over[-1].index)
    assert isinstance(distance, int) and s.columns.length is not None
    bytes_each, rows = s.dtype.itemsize, s.rows.length or s.heights[0]
    is_first, near = s.heights[0] in height.heights, len(s.over) > 1  # a convolution's panels stay in the second cache
    share = -(-s.columns.length * bytes_each * s.heights[0] // rows) if is_first and not near else 0
    even = pace if isinstance(pace, int) else None
    asks = is_first and asks_ahead(kernel.target) and s.result is not None \
        and kernel.buffers[str(s.result.array)].role == "output"
    function = _function_of(context, height, [
        TileShape(s.dtype, h, parts, s.lanes, distance, even, s.columns.length // s.lanes, share, s.pairs, bool(outer[0]), asks)
        for h in height.heights])
    given = [f"ptr {left}", f"ptr {right}", f"ptr {at}", f"i64 {count}"]
    for run in outer[0 if outer[0] else 1:]:
        steps = [_step(context, side, run[-1].index) if run else 0 for side in (s.left, s.right)]
        given += [f"i64 {kernel.extent(x)}" for x in (product(b.extent for b in run), *steps)]
    given.append(f"i1 {fresh}")
    given += [f"i64 {kernel.extent(x)}" for x in ((apart,) if even is not None else (apart, pace))]
    if share:
        given.append(f"ptr {_ahead(context, s, right, scope.emit(f'mul i64 {count}, {share}'), height.register)}")
    if asks:
        given += _asked(context, s, at, apart)
    scope.do(f"call void {function}({', '.join(given)})")


def _function_of(context: Context, height: _Height, shapes: Sequence[TileShape]) -> str:
    """The function for a tile of this height."""
    kernel, scope, names = context.kernel, context.scope, list[str]()
    for shape in shapes:
        name, declarations, texts = tile_function(shape, kernel.target)
        kernel.function.declarations |= declarations
        kernel.function.constants |= texts
        names.append(f"@{name}")
    found, *others = names
    for name, h in zip(others, height.heights[1:], strict=True):
        found = scope.emit(f"select i1 {scope.emit(f'icmp eq i64 {height.register}, {h}')}, ptr {name}, ptr {found}")
    return found


def _ahead(context: Context, s: Contract, right: str, bytes_each: str, height: str) -> str:
    """Where a tile's share of the next panel begins: tile after tile, a block of rows asks the caches for all of it. After the
    last panel it is that one again, which is there."""
    assert s.columns.origin is not None and s.columns.length is not None
    scope, width = context.scope, s.columns.length
    step = _step(context, s.right, s.columns.origin) + _step(context, s.right, s.columns.index)
    row, low = context.bindings[s.rows.index.name].parts[0], block_span(context, s.rows)[0]
    number = scope.emit(f"udiv i64 {scope.emit(f'sub i64 {row}, {low}')}, {height}")
    following = scope.emit(f"add nsw i64 {context.bindings[s.columns.origin.name].parts[0]}, {width}")
    is_last = scope.emit(f"icmp sge i64 {following}, {context.kernel.extent(s.columns.extent)}")
    panel = scope.emit(f"select i1 {is_last}, i64 0, i64 {context.kernel.extent(step * width * s.dtype.itemsize)}")
    past = scope.emit(f"add i64 {panel}, {scope.emit(f'mul i64 {number}, {bytes_each}')}")
    return scope.emit(f"getelementptr i8, ptr {right}, i64 {past}")


def _asked(context: Context, s: Contract, at: str, apart: Extent) -> list[str]:
    """Where a tile's result will be stored, and how many bytes its rows lie apart, where these are its last terms; else its
    sums, which are near."""
    assert s.result is not None
    kernel, scope, last = context.kernel, context.scope, s.over[-1]
    lie = kernel.extent(_step(context, s.result, s.rows.index) * s.result.dtype.itemsize)
    is_last = scope.emit(f"icmp sge i64 {block_span(context, last)[1]}, {kernel.extent(last.extent)}")
    near = kernel.extent(apart * s.dtype.itemsize)
    return [f"ptr {scope.emit(f'select i1 {is_last}, ptr {_begin(context, s.result)}, ptr {at}')}",
            f"i64 {scope.emit(f'select i1 {is_last}, i64 {lie}, i64 {near}')}"]


def _place(context: Context, e: Expr) -> tuple[Buffer, tuple[Term, ...]]:
    """What a packed operand, or the sums, are read from, and where they begin for a tile."""
    assert isinstance(e, Load) and isinstance(e.array, str)
    return context.kernel.buffers[e.array], tuple([context.kernel.terms.of(x) for x in e.index])


def _begin(context: Context, e: Expr) -> str:
    """The pointer to that place."""
    return locate(context, *_place(context, e)).pointer


def _step(context: Context, e: Expr, index: Index) -> Extent:
    """How far apart neighbours along an index lie there."""
    return offset_of(context, *_place(context, e))[0].get(context.kernel.terms.of(index), 0)
