"""Rows side by side: blocks of as many as lanes, transposed to panels on the stack and back.

Guarantees: memory is touched only where rows of the loop are; of a row nothing depends on what block it is in.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from loopwright.ir.loops import Load, minus
from loopwright.ir.nest import For, Statement, Store, altered
from loopwright.lower.codegen.addresses import locate
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.machine import memory_type
from loopwright.lower.codegen.spans import mostly_whole
from loopwright.lower.codegen.text import Scope, loop
from loopwright.lower.codegen.transposes import SIZES, WAYS, name_of
from loopwright.lower.short_rows import ELEMENT, Beside, Panel, lengths

Run = Callable[[Context, Sequence[Statement]], None]


def choosing(statement: For) -> For | None:
    """The rows in a loop that may go side by side, where these are all of one kind."""
    found = [s for s in _loops(statement) if s.short is not None]
    return found[0] if len(found) == 1 else None


def _loops(s: For) -> Iterator[For]:
    yield s
    for inner in s.body:
        if isinstance(inner, For):
            yield from _loops(inner)


def test_of(context: Context, rows: For, is_short: bool | None = None) -> str | bool:
    """Whether rows are to go side by side: the register that tells, or what is known, as in functions of one of both."""
    assert rows.short is not None
    _, below = rows.short
    unknown = [n for n in dict.fromkeys(lengths(rows.body)) if not isinstance(n, int)]
    if any(isinstance(n, int) and n >= below for n in lengths(rows.body)):
        return False
    if not unknown:
        return True
    if is_short is not None:
        return is_short
    test = "true"
    for n in unknown:
        shorter = context.scope.emit(f"icmp slt i64 {context.kernel.extent(n)}, {below}")
        test = shorter if test == "true" else context.scope.emit(f"and i1 {test}, {shorter}")
    return test


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

        def block(inner: Scope, at: str, state: list[str]) -> list[str]:
            self.context.kernel.forget()
            here = altered(self.context, lanes=rows.lanes, parts=1, vector=rows.row.name)
            here = here.bind_index(rows.row.name, at, inner).bind_index(rows.block.name, at, inner)
            here = mostly_whole(here, rows.row.name, self.high, scope)
            for panel in rows.read:
                self._copy(here, panel, at, back=False)
            self.run(here, rows.body)
            for panel in rows.written:
                self._copy(here, panel, at, back=True)
            return []
        loop(scope, self.low, self.high, str(rows.lanes), (), block)
        self.context.kernel.forget()

    def _copy(self, here: Context, panel: Panel, first: str, *, back: bool) -> None:
        """Between a panel and memory: transposed, or an element of all rows after the other."""
        kernel, scope, lanes = here.kernel, here.scope, self.rows.lanes
        array = kernel.buffers[str(panel.at.array)]
        start = here.bind_index(ELEMENT.name, "0", scope)
        address = locate(start, array, tuple(map(kernel.terms.of, panel.at.index)))
        size = array.dtype.itemsize
        if address.offsets is not None or 8 * size * lanes > kernel.target.vector_bits or kernel.target.vector_bits < 256 \
                or (size, lanes) not in SIZES:
            self._one_by_one(here, panel, back)
        else:
            step, n = kernel.extent(address.stride), kernel.extent(panel.extent)
            count = scope.emit(f"sub nsw i64 {self.high}, {first}")
            columns = kernel.pointers[panel.buffer.name]
            scope.run(name_of(WAYS[back], size, lanes), [
                ("ptr", address.pointer), ("i64", step), ("i64", count), ("i64", n), ("ptr", columns)])
        kernel.forget()

    def _one_by_one(self, here: Context, panel: Panel, back: bool) -> None:
        place = ELEMENT, minus(self.rows.row, self.rows.block)
        there, element = panel.at, Load(panel.buffer.name, place, panel.at.dtype)
        store = Store(str(there.array), there.index, element) if back else Store(panel.buffer.name, place, there)
        self.run(here, (For(ELEMENT, panel.extent, (store,)),))
