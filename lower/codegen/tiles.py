"""Two nested loops in tiles: arrays that the outer one walks element by element are read along it and transposed in registers.

Guarantees: every element is computed once, as in the plain loops; only whole tiles are read that way, or tiles of rows that
are there and columns of which the last one is read again where columns are padded.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from loopwright.ir.nest import For
from loopwright.lower.codegen.context import Context, Value
from loopwright.lower.codegen.evaluate import remember
from loopwright.lower.codegen.folds import masked
from loopwright.lower.codegen.machine import register_type, vector_type
from loopwright.lower.codegen.memory import load
from loopwright.lower.codegen.tensors import block_span
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Scope, loop
from loopwright.lower.fusing import transposed_loads

BLOCK = 1024  # of the inner loop: its lines of the transposed arrays stay in the second cache while the outer goes on

Span = tuple[str, str]


def in_tiles(context: Context, outer: For, span: Span, run: Callable[[Context, For], None]) -> None:
    """The loops of `outer` over `span` and of the one inside it; `run` does the inner one's body."""
    inner = outer.body[0]
    assert isinstance(inner, For) and inner.lanes > 1
    terms = [context.kernel.terms.of(e) for e in transposed_loads(outer)]
    _Tiles(context, outer, inner, terms, run).blocks(context, span)


class _Tiles:
    def __init__(self, context: Context, outer: For, inner: For, terms: list[Term],
                 run: Callable[[Context, For], None]) -> None:
        self.row, self.column, self.lanes = outer.index.name, inner.index.name, inner.lanes
        self.inner, self.terms, self.run = inner, terms, run
        kernel = context.kernel
        self.slots = [kernel.function.slot(self.lanes ** 2, register_type(t.dtype), 64) for t in terms]

    def blocks(self, context: Context, span: Span) -> None:
        low, extent = block_span(context, self.inner)
        if self.inner.padded:  # to the end of the block
            extent = context.scope.emit(f"add nsw i64 {low}, {self.inner.length}")

        def block(scope: Scope, begin: str, state: list[str]) -> list[str]:
            columns = (begin, _end(scope, begin, BLOCK, extent))

            def rows(inside: Scope, first: str, state: list[str]) -> list[str]:
                self._tiles(context.at(inside), (first, _end(inside, first, self.lanes, span[1])), columns)
                return []
            loop(scope, *span, str(self.lanes), (), rows)
            return []
        context.kernel.forget()
        loop(context.scope, low, extent, str(BLOCK), (), block)
        context.kernel.forget()

    def _tiles(self, context: Context, rows: Span, columns: Span) -> None:
        """Whole tiles, then what is left: nothing is whole where there are not enough rows."""
        scope, (low, high) = context.scope, columns
        real = high
        if self.inner.padded:
            real = scope.call("i64", "llvm.smin.i64", [("i64", high), ("i64", context.kernel.extent(self.inner.extent))])
        count = scope.emit(f"sub i64 {real}, {low}")
        whole = scope.emit(f"add i64 {low}, {scope.emit(f'and i64 {count}, {-self.lanes}')}")
        enough = scope.emit(f"icmp eq i64 {scope.emit(f'sub i64 {rows[1]}, {rows[0]}')}, {self.lanes}")
        end = scope.emit(f"select i1 {enough}, i64 {whole}, i64 {low}")
        wide = replace(context, lanes=self.lanes, parts=1, vector=self.column)

        def tile(inner: Scope, at: str, state: list[str], last: str | None = None) -> list[str]:
            here = wide.bind_index(self.column, at, inner)
            for term, slot in zip(self.terms, self.slots, strict=True):
                self._transpose(here, term, slot, rows[0], at, last)
            here = here if last is None else replace(masked(here, self.column, real, scope), padded=True)
            self._rows(here, rows, remembered=True)
            return []

        def rest(inner: Scope, at: str, state: list[str]) -> list[str]:
            here = replace(wide.bind_index(self.column, at, inner), padded=self.inner.padded)
            self._rows(masked(here, self.column, real, scope), rows, remembered=False)
            return []
        loop(scope, low, end, str(self.lanes), (), tile)
        if self.inner.padded:
            last = scope.emit(f"sub i64 {real}, 1")
            beyond = scope.emit(f"select i1 {enough}, i64 {high}, i64 {end}")
            loop(scope, end, beyond, str(self.lanes), (), lambda inner, at, state: tile(inner, at, state, last))
            end = beyond
        loop(scope, end, high, str(self.lanes), (), rest)

    def _rows(self, context: Context, rows: Span, *, remembered: bool) -> None:
        """The body for one vector of columns in each row of a tile."""
        def row(inner: Scope, at: str, state: list[str]) -> list[str]:
            here = context.bind_index(self.row, at, inner)
            if remembered:
                place = inner.emit(f"mul nsw i64 {inner.emit(f'sub nsw i64 {at}, {rows[0]}')}, {self.lanes}")
                for term, slot in zip(self.terms, self.slots, strict=True):
                    element = register_type(term.dtype)
                    pointer = inner.emit(f"getelementptr {element}, ptr {slot}, i64 {place}")
                    vector = inner.emit(f"load {vector_type(element, self.lanes)}, ptr {pointer}, align 4")
                    remember(here, term, Value((vector,), term.dtype, self.lanes, inner))
            self.run(here, self.inner)
            return []
        context.kernel.forget()
        loop(context.scope, *rows, "1", (), row)

    def _transpose(self, context: Context, term: Term, slot: str, first: str, at: str, last: str | None) -> None:
        """A tile of an array, read along the rows' index, to memory that vectors of columns are read from; the `last` column
        is in the place of those behind it."""
        scope, element = context.scope, register_type(term.dtype)
        kind, registers = vector_type(element, self.lanes), []
        for k in range(self.lanes):
            column = scope.emit(f"add nsw i64 {at}, {k}") if k else at
            if last is not None:
                column = scope.call("i64", "llvm.smin.i64", [("i64", column), ("i64", last)])
            along = replace(context, vector=self.row).bind_index(self.column, column, scope).bind_index(self.row, first, scope)
            registers.append(load(along, term).parts[0])
        for k, register in enumerate(transposed(scope, kind, registers)):
            pointer = scope.emit(f"getelementptr {element}, ptr {slot}, i64 {k * self.lanes}")
            scope.do(f"store {kind} {register}, ptr {pointer}, align 4")


def transposed(scope: Scope, kind: str, registers: list[str]) -> list[str]:
    """Vectors as the rows of a square matrix: its columns. Blocks of 1, 2, 4, ... change places, two vectors at a time."""
    lanes, found, size = len(registers), list(registers), 1
    while size < lanes:
        for k in range(lanes):
            if k & size == 0:
                a, b = found[k], found[k + size]
                low = [x if x & size == 0 else lanes + x - size for x in range(lanes)]
                high = [x + size if x & size == 0 else lanes + x for x in range(lanes)]
                found[k], found[k + size] = (scope.emit(
                    f"shufflevector {kind} {a}, {kind} {b}, <{lanes} x i32> <{', '.join(f'i32 {x}' for x in order)}>")
                    for order in (low, high))
        size *= 2
    return found


def _end(scope: Scope, begin: str, size: int, high: str) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add nsw i64 {begin}, {size}")), ("i64", high)])
