"""Blocks of loops, and sums of products in registers: the inner loops of matrix products and convolutions.

Guarantees: an element's sum is made in one order, term by term along each block of the innermost index, wherever its tile
begins and however high that is; a term is added with one rounding where the machine can.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

import numpy as np

from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import Expr, Index, Load
from loopwright.ir.nest import Block, Contract, For, Statement
from loopwright.ir.types import I32
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.memory import locate, offset_of
from loopwright.lower.codegen.spans import Span, masked
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target


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
    """The positions of a loop that threads do not share: a tile's rows, else a step. A thread's first block begins where its
    share of the rows does."""
    heights = [s.heights[0] for s in _all(f.body) if isinstance(s, Contract) and s.rows.origin == f.index]
    return min(heights, default=f.step)


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
    wide = replace(context, lanes=statement.lanes, parts=statement.length // statement.lanes, vector=name)

    def whole(inner: Scope) -> Carried:
        run(wide.bind_index(name, base, inner))
        return ()

    def ragged(inner: Scope) -> Carried:
        run(replace(masked(wide.bind_index(name, base, inner), name, end), padded=True))
        return ()
    kernel.forget()
    branch(scope, fits, whole, ragged)
    kernel.forget()


# ---- products -----------------------------------------------------------------------------------
def contract(context: Context, s: Contract) -> None:
    """Tiles of the first height, then of the next."""
    assert s.columns.length is not None
    low, high = block_span(context, s.rows)
    for height in s.heights:
        rest = context.scope.emit(f"srem i64 {context.scope.emit(f'sub i64 {high}, {low}')}, {height}") if height > 1 else "0"
        whole = context.scope.emit(f"sub i64 {high}, {rest}")
        context.kernel.forget()
        _by_width(context, s, height == s.heights[0], partial(_tiles, context, s, height, (low, whole)))
        low = whole
    context.kernel.forget()


def _by_width(context: Context, s: Contract, many: bool, run: Callable[[int, Scope], Carried]) -> None:
    """Run with the vectors of a panel; where there are many tiles with half of them, if no more columns are left."""
    assert s.columns.origin is not None and s.columns.length is not None
    extent, width, parts = s.columns.extent, s.columns.length, s.columns.length // s.lanes
    if not many or parts % 2 or (isinstance(extent, int) and not 0 < extent % width <= width // 2):
        run(parts, context.scope)
        return
    panel = context.bindings[s.columns.origin.name].parts[0]
    left = context.scope.emit(f"sub nsw i64 {context.kernel.extent(extent)}, {panel}")
    few = context.scope.emit(f"icmp sle i64 {left}, {width // 2}")
    branch(context.scope, few, partial(run, parts // 2), partial(run, parts))


def _tiles(context: Context, s: Contract, height: int, span: Span, parts: int, scope: Scope) -> Carried:
    """Tiles one below the other."""
    def tile(inner: Scope, at: str, state: list[str]) -> list[str]:
        _tile(context.bind_index(s.rows.index.name, at, inner), s, height, parts)
        return []
    loop(scope, *span, str(height), (), tile)
    return ()


def _tile(context: Context, s: Contract, height: int, parts: int) -> None:
    """The sums of a tile, over groups of terms that lie an equal step apart."""
    scope, (*outer, last) = context.scope, s.over
    assert s.columns.origin is not None
    low, high = block_span(context, last)
    count = high if low == "0" else scope.emit(f"sub i64 {high}, {low}")
    here = context.bind_index(s.columns.index.name, context.bindings[s.columns.origin.name].parts[0], scope)
    here = here.bind_index(last.index.name, low, scope)
    for b in outer:
        here = here.bind_index(b.index.name, "0", scope)
    *around, more, even = _even(_Side(here, s.left), outer)
    fresh = "true" if s.fresh is None else context.evaluate(context.kernel.terms.of(s.fresh)).parts[0]

    def groups(inside: Context, around: Sequence[Block], fresh: str) -> None:
        if not around:
            _call(inside, s, (height, parts), count, (more, even), fresh)
            return
        b, *rest = around

        def body(inner: Scope, at: str, state: list[str]) -> list[str]:
            groups(inside.bind_index(b.index.name, at, inner), rest, fresh)
            return []
        loop(inside.scope, *block_span(inside, b), "1", (), body)
    blocks = [b for run in around for b in run]
    if blocks:  # no terms, for the sums of none of the groups
        _call(here, s, (height, parts), "0", (more, even), fresh)
        fresh = "false"
    groups(here, blocks, fresh)


def _even(left: _Side, outer: Sequence[Block]) -> list[Sequence[Block]]:
    """The blocks around the innermost in runs whose positions lie an equal step apart, at least two."""
    starts = [k + 1 for k in range(len(outer) - 1)
              if left.step(outer[k].index) != left.step(outer[k + 1].index) * outer[k + 1].extent]
    runs = [outer[a:b] for a, b in pairwise((0, *starts, len(outer)))]
    return [(), *runs] if len(runs) == 1 else runs


def _call(context: Context, s: Contract, size: tuple[int, int], count: str, outer: tuple[Sequence[Block], Sequence[Block]],
          fresh: str) -> None:
    """A call of the function that makes the sums of a tile of so many rows and vectors, over two runs of blocks around the
    innermost."""
    kernel, scope = context.kernel, context.scope
    left, right, sums = _Side(context, s.left), _Side(context, s.right), _Side(context, Load(s.buffer, s.at, s.dtype))
    distance, apart = (side.step(s.rows.index) for side in (left, sums))
    pace = left.step(s.over[-1].index)
    assert isinstance(distance, int) and s.columns.length is not None
    bytes_each, rows = s.dtype.itemsize, s.rows.length or size[0]
    share = -(-s.columns.length * bytes_each * size[0] // rows) if size[0] == s.heights[0] else 0
    even = pace if isinstance(pace, int) else None
    shape = TileShape(s.dtype, *size, s.lanes, distance, even, s.columns.length // s.lanes, share, s.pairs,
                      bool(outer[0]))
    name, declarations, texts = tile_function(shape, kernel.target)
    kernel.function.declarations |= declarations
    kernel.function.constants |= texts
    given = [f"ptr {left.pointer}", f"ptr {right.pointer}", f"ptr {sums.pointer}", f"i64 {count}"]
    for run in outer[0 if outer[0] else 1:]:
        steps = [side.step(run[-1].index) if run else 0 for side in (left, right)]
        given += [f"i64 {kernel.extent(x)}" for x in (product(b.extent for b in run), *steps)]
    given.append(f"i1 {fresh}")
    given += [f"i64 {kernel.extent(x)}" for x in ((apart,) if even is not None else (apart, pace))]
    if share:
        given.append(f"ptr {_ahead(context, s, right, scope.emit(f'mul i64 {count}, {share}'), size[0])}")
    scope.do(f"call void @{name}({', '.join(given)})")


def _ahead(context: Context, s: Contract, right: _Side, bytes_each: str, height: int) -> str:
    """Where a tile's share of the next panel begins: tile after tile, a block of rows asks the caches for all of it. After the
    last panel it is that one again, which is there."""
    assert s.columns.origin is not None and s.columns.length is not None
    scope, step, width = context.scope, right.step(s.columns.origin) + right.step(s.columns.index), s.columns.length
    row, low = context.bindings[s.rows.index.name].parts[0], block_span(context, s.rows)[0]
    number = scope.emit(f"udiv i64 {scope.emit(f'sub i64 {row}, {low}')}, {height}")
    following = scope.emit(f"add nsw i64 {context.bindings[s.columns.origin.name].parts[0]}, {width}")
    is_last = scope.emit(f"icmp sge i64 {following}, {context.kernel.extent(s.columns.extent)}")
    panel = scope.emit(f"select i1 {is_last}, i64 0, i64 {context.kernel.extent(step * width * s.dtype.itemsize)}")
    past = scope.emit(f"add i64 {panel}, {scope.emit(f'mul i64 {number}, {bytes_each}')}")
    return scope.emit(f"getelementptr i8, ptr {right.pointer}, i64 {past}")


class _Side:
    """Where a packed operand, or the sums, begin for a tile."""

    def __init__(self, context: Context, e: Expr) -> None:
        assert isinstance(e, Load) and isinstance(e.array, str)
        self.context, self.buffer = context, context.kernel.buffers[e.array]
        self.index = tuple(context.kernel.terms.of(x) for x in e.index)
        self.pointer = locate(context, self.buffer, self.index).pointer

    def step(self, index: Index) -> Extent:
        """How far apart neighbours along an index lie."""
        form, _ = offset_of(self.context, self.buffer, self.index)
        return next((c for term, c in form.items() if term.expr == index), 0)


@dataclass(frozen=True)
class TileShape:
    """`height` rows of `parts` vectors; how far apart lie rows of the left side, `distance`, and its terms, `pace` (None: told
    by calls); how many vectors the right side has for each term, how many bytes of what comes next to ask the caches for, and
    whether a term is a pair of numbers of 16 bits."""

    dtype: np.dtype
    height: int
    parts: int
    lanes: int
    distance: int
    pace: int | None
    stride: int
    ahead: int
    pairs: bool
    nested: bool

    @property
    def name(self) -> str:
        numbers = f"{self.height}x{self.parts}x{self.lanes}_{self.distance}_{self.pace}_{self.stride}_{self.ahead}"
        return f"lw_tile_{memory_type(self.dtype)}{'_pairs' * self.pairs}{'_nested' * self.nested}_{numbers}"


@cache
def tile_function(shape: TileShape, target: Target) -> tuple[str, frozenset[str], frozenset[str]]:
    """`void (ptr left, ptr right, ptr sums, i64 count, i64 groups, i64 left step, i64 right step, i1 fresh, ...)`: sums[r, :]
    is the sum of left[r, k] * right[k, :] over `count` terms of each of some groups, which lie a step apart; added to what is
    there unless `fresh`. If they are `nested`, groups of groups and their steps stand before. `i64 apart`: between rows of
    sums; last `i64 pace` and `ptr ahead`, where the shape asks for them.
    Its name, and what a module needs for it. All kernels of a module share it."""
    function = Function(set(), set())
    root, (element, lanes) = function.root, (memory_type(shape.dtype), shape.lanes)
    kind, bits = vector_type(element, lanes), 8 * shape.dtype.itemsize
    count, is_float = shape.height * shape.parts, shape.dtype.kind == "f"
    together = 2 if shape.ahead and target.vector_registers - count >= 8 else 1  # terms: of the next, factors need registers
    whole = root.emit(f"and i64 %count, {-together}")

    def moved(scope: Scope, sides: Sequence[str], number: str, step: str) -> list[str]:
        return [scope.emit(f"getelementptr {element}, ptr {at}, i64 {scope.emit(f'mul i64 {number}, %{side}.{step}')}")
                for at, side in zip(sides, ("left", "right"), strict=False)]

    def terms(scope: Scope, at: str, state: list[str], sides: Sequence[str], number: int) -> list[str]:
        for k in range(number):
            state = _term(Machine(scope, bits, lanes, target), shape, sides, scope.emit(f"add nsw i64 {at}, {k}"), state)
        if shape.ahead:
            place = scope.emit(f"getelementptr i8, ptr {sides[2]}, i64 {scope.emit(f'mul nsw i64 {at}, {shape.ahead}')}")
            scope.run("llvm.prefetch.p0", [("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1")])
        return state

    def group(scope: Scope, number: str, state: list[str], around: Sequence[str]) -> list[str]:
        sides = moved(scope, around, number, "step")
        if shape.ahead:
            past = scope.emit(f"mul i64 {scope.emit(f'mul i64 {number}, %count')}, {shape.ahead}")
            sides.append(scope.emit(f"getelementptr i8, ptr {around[2]}, i64 {past}"))
        state = loop(scope, "0", whole, str(together), [(kind, x) for x in state],
                     lambda inner, at, now: terms(inner, at, now, sides, together))
        if together == 1:
            return state
        return loop(scope, whole, "%count", "1", [(kind, x) for x in state],
                    lambda inner, at, now: terms(inner, at, now, sides, 1))

    def groups(scope: Scope, state: Sequence[str], sides: Sequence[str]) -> list[str]:
        return loop(scope, "0", "%groups", "1", [(kind, x) for x in state],
                    lambda inner, number, now: group(inner, number, now, sides))

    def nested(scope: Scope, number: str, state: list[str]) -> list[str]:
        sides = moved(scope, ("%left", "%right"), number, "jump")
        if shape.ahead:
            past = scope.emit(f"mul i64 {scope.emit(f'mul i64 {number}, %groups')}, %count")
            sides.append(scope.emit(f"getelementptr i8, ptr %ahead, i64 {scope.emit(f'mul i64 {past}, {shape.ahead}')}"))
        return groups(scope, state, sides)
    zeros = ["zeroinitializer"] * count
    sums = loop(root, "0", "%jumps", "1", [(kind, x) for x in zeros], nested) if shape.nested else \
        groups(root, zeros, ("%left", "%right", "%ahead"))

    rows = ["%sums"]
    for _ in range(1, shape.height):
        rows.append(root.emit(f"getelementptr {element}, ptr {rows[-1]}, i64 %apart"))

    def stored(scope: Scope, fresh: bool) -> Carried:
        machine = Machine(scope, bits, lanes, target)
        for k, total in enumerate(sums):
            row, part = divmod(k, shape.parts)
            at = scope.emit(f"getelementptr {element}, ptr {rows[row]}, i64 {part * lanes}")
            if not fresh:
                before = scope.emit(f"load {kind}, ptr {at}, align {bits // 8}")
                total = machine.add(before, total) if is_float else machine.iadd(before, total)
            scope.do(f"store {kind} {total}, ptr {at}, align {bits // 8}")
        return ()
    branch(root, "%fresh", lambda scope: stored(scope, True), lambda scope: stored(scope, False))
    jumps = "i64 %jumps, i64 %left.jump, i64 %right.jump, " * shape.nested
    parameters = f"ptr noalias %left, ptr noalias %right, ptr noalias %sums, i64 %count, {jumps}i64 %groups, i64 %left.step, " \
        "i64 %right.step, i1 %fresh, i64 %apart" + ", i64 %pace" * (shape.pace is None) + ", ptr %ahead" * bool(shape.ahead)
    text = f"define internal void @{shape.name}({parameters}) noinline {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return shape.name, frozenset(function.declarations), frozenset((*function.constants, text))


def _term(machine: Machine, shape: TileShape, sides: Sequence[str], at: str, state: list[str]) -> list[str]:
    """One term of every sum of a tile."""
    scope, element, lanes = machine.scope, memory_type(shape.dtype), shape.lanes
    kind = vector_type(element, lanes)
    place = at if shape.pace == 1 else scope.emit(f"mul nsw i64 {at}, {'%pace' if shape.pace is None else shape.pace}")
    left = scope.emit(f"getelementptr {element}, ptr {sides[0]}, i64 {place}")
    right = scope.emit(f"getelementptr {kind}, ptr {sides[1]}, i64 {scope.emit(f'mul nsw i64 {at}, {shape.stride}')}")
    places = [scope.emit(f"getelementptr {kind}, ptr {right}, i64 {part}") for part in range(shape.parts)]
    columns = [scope.emit(f"load {kind}, ptr {place}, align {machine.bits // 8}") for place in places]
    new: list[str] = []
    for row in range(shape.height):
        place = scope.emit(f"getelementptr {element}, ptr {left}, i64 {row * shape.distance}")
        factor = scope.emit(f"load {element}, ptr {place}, align {machine.bits // 8}")
        one = scope.emit(f"insertelement {kind} poison, {element} {factor}, i32 0")
        factor = scope.emit(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        for x, y in zip(columns, state[len(new):len(new) + shape.parts], strict=True):
            if shape.pairs:
                new.append(_pairs(machine, shape.dtype, factor, x, y))
            elif shape.dtype.kind == "f":
                new.append(machine.fma(factor, x, y))
            else:
                new.append(machine.iadd(machine.imul(factor, x), y))
    return new


_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


def _pairs(machine: Machine, dtype: np.dtype, a: str, b: str, total: str) -> str:
    """`total` and the products of the halves of each lane's words: an instruction of AVX512-BF16, or of AVX512-VNNI,
    which LLVM makes of the sum of products and the addition where the machine has it."""
    scope, lanes, short = machine.scope, machine.lanes, "i16" if dtype == I32 else "bfloat"
    kind, halves = vector_type(memory_type(dtype), lanes), f"<{2 * lanes} x {short}>"
    both = [(halves, scope.emit(f"bitcast {kind} {x} to {halves}")) for x in (a, b)]
    if dtype == I32:
        return machine.iadd(scope.call(kind, _PAIRS[lanes], both), total)
    return scope.call(kind, "llvm.x86.avx512bf16.dpbf16ps.512", [(kind, total), *both])
