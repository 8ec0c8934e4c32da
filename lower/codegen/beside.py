"""Rows side by side: blocks of as many as lanes, transposed to panels on the stack and back.

Guarantees: memory is touched only where rows of the loop are; of a row nothing depends on what block it is in.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.loops import Load, minus
from loopwright.ir.nest import For, Statement, Store
from loopwright.ir.types import BOOL
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.conversions import HALF
from loopwright.lower.codegen.folds import masked
from loopwright.lower.codegen.machine import memory_type, vector_type
from loopwright.lower.codegen.memory import load, store_register
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.tiles import transposed
from loopwright.lower.short_rows import ELEMENT, Beside, Panel

FEWEST = 4  # elements of a row, of a register's 16, that make a tile worth while: fewer are gathered

Run = Callable[[Context, Sequence[Statement]], None]


def side_by_side(context: Context, rows: Beside, span: tuple[str, str], run: Run) -> None:
    """The rows of a span; `run` does statements."""
    _Blocks(context, rows, span, run).run_all()


class _Blocks:
    def __init__(self, context: Context, rows: Beside, span: tuple[str, str], run: Run) -> None:
        self.context, self.rows, self.run = context, rows, run
        self.low, self.high = span
        kernel = context.kernel
        for buffer in (*rows.kept, *(p.buffer for p in (*rows.read, *rows.written))):
            below, lanes = buffer.shape
            assert isinstance(below, int) and isinstance(lanes, int)
            kernel.buffers[buffer.name] = buffer
            kernel.pointers[buffer.name] = kernel.function.slot(below * lanes, memory_type(buffer.dtype), 64)

    def run_all(self) -> None:
        rows, scope = self.rows, self.context.scope
        last = scope.emit(f"sub nsw i64 {self.high}, 1")

        def block(inner: Scope, at: str, state: list[str]) -> list[str]:
            self.context.kernel.forget()
            here = replace(self.context, lanes=rows.lanes, parts=1, vector=rows.row.name)
            here = here.bind_index(rows.row.name, at, inner).bind_index(rows.block.name, at, inner)
            here = masked(here, rows.row.name, self.high, scope)
            for panel in rows.read:
                self._copy(here, panel, at, last, back=False)
            self.run(here, rows.body)
            for panel in rows.written:
                self._copy(here, panel, at, last, back=True)
            return []
        loop(scope, self.low, self.high, str(rows.lanes), (), block)
        self.context.kernel.forget()

    def _copy(self, here: Context, panel: Panel, first: str, last: str, *, back: bool) -> None:
        """Between a panel and memory: in tiles, or an element of all rows after the other where these are few."""
        kernel, lanes, dtype = here.kernel, self.rows.lanes, panel.at.dtype
        place = ELEMENT, minus(self.rows.row, self.rows.block)
        there, element = panel.at, Load(panel.buffer.name, place, dtype)
        store = Store(str(there.array), there.index, element) if back else Store(panel.buffer.name, place, there)

        def each(scope: Scope) -> Carried:
            self.run(here.at(scope), (For(ELEMENT, panel.extent, (store,)),))
            return ()

        def tiles(scope: Scope) -> Carried:
            def tile(inner: Scope, at: str, state: list[str]) -> list[str]:
                (self._written if back else self._read)(here.at(inner), panel, at, first, last)
                return []
            loop(scope, "0", kernel.extent(panel.extent), str(lanes), (), tile)
            return ()
        if kernel.target.vector_bits < 256 or dtype == BOOL or dtype in HALF or dtype.itemsize < 4 or lanes < 4:
            each(here.scope)
        else:
            few = here.scope.emit(f"icmp sle i64 {kernel.extent(panel.extent)}, {lanes * FEWEST // 16}")
            branch(here.scope, few, each, tiles)
        kernel.forget()

    def _along(self, here: Context, panel: Panel, at: str) -> Context:
        """Lanes along a row, from an element on."""
        along = replace(here, vector=ELEMENT.name, mask=None).bind_index(ELEMENT.name, at, here.scope)
        return masked(along, ELEMENT.name, here.kernel.extent(panel.extent))

    def _places(self, here: Context, panel: Panel, at: str) -> list[str]:
        """Where the elements of all rows are in a panel."""
        kind, scope, lanes = memory_type(panel.at.dtype), here.scope, self.rows.lanes
        start = scope.emit(f"mul nsw i64 {at}, {lanes}")
        start = scope.emit(f"getelementptr {kind}, ptr {here.kernel.pointers[panel.buffer.name]}, i64 {start}")
        return [scope.emit(f"getelementptr {kind}, ptr {start}, i64 {k * lanes}") for k in range(lanes)]

    def _read(self, here: Context, panel: Panel, at: str, first: str, last: str) -> None:
        """A tile of memory to a panel; the last row is in the place of those behind it."""
        scope, lanes, found = here.scope, self.rows.lanes, []
        along = self._along(here, panel, at)
        for k in range(lanes):
            row = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add nsw i64 {first}, {k}")), ("i64", last)])
            found.append(load(along.bind_index(self.rows.row.name, row, scope), here.kernel.terms.of(panel.at)).parts[0])
        kind = vector_type(memory_type(panel.at.dtype), lanes)
        for register, place in zip(transposed(scope, kind, found), self._places(here, panel, at), strict=True):
            scope.do(f"store {kind} {register}, ptr {place}, align 64")

    def _written(self, here: Context, panel: Panel, at: str, first: str, last: str) -> None:
        """A tile of a panel to memory, of rows that are there."""
        scope, lanes = here.scope, self.rows.lanes
        kind = vector_type(memory_type(panel.at.dtype), lanes)
        found = [scope.emit(f"load {kind}, ptr {place}, align 64") for place in self._places(here, panel, at)]
        found = transposed(scope, kind, found)
        along, index = self._along(here, panel, at), tuple(map(here.kernel.terms.of, panel.at.index))
        buffer = here.kernel.buffers[str(panel.at.array)]

        def write(inner: Scope, k: int) -> Carried:
            row = inner.emit(f"add nsw i64 {first}, {k}")
            store_register(along.bind_index(self.rows.row.name, row, inner), buffer, index, found[k])
            return ()

        def whole(inner: Scope) -> Carried:
            for k in range(lanes):
                write(inner, k)
            return ()

        def some(inner: Scope) -> Carried:
            for k in range(lanes):
                there = inner.emit(f"icmp sle i64 {inner.emit(f'add nsw i64 {first}, {k}')}, {last}")
                branch(inner, there, lambda within, k=k: write(within, k))
            return ()
        full = scope.emit(f"icmp sle i64 {scope.emit(f'add nsw i64 {first}, {lanes - 1}')}, {last}")
        branch(scope, full, whole, some)
