"""What asks the caches for memory before it is read or written."""
from __future__ import annotations

from loopwright.ir.nest import Prefetch, altered
from loopwright.lower.codegen.addresses import locate
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.machine import memory_type
from loopwright.lower.codegen.memory import vector_pointer, width
from loopwright.lower.codegen.text import Scope

LINE = 64  # bytes
AHEAD_BYTES = 1 << 12, 1 << 13  # how far on lines are brought near: less comes too late, and four of the most fit a first cache


def prefetch(context: Context, statement: Prefetch) -> None:
    """Ask for a line per vector, or for several short ones. The last of a row, which are masked, come with the line before."""
    kernel, scope = context.kernel, context.scope
    buffer = kernel.buffers[statement.buffer]
    address = locate(context, buffer, tuple(kernel.terms.of(e) for e in statement.index))
    past = statement.write and statement.buffer in context.streamed
    if context.mask is not None or address.offsets is not None or address.stride != 1 or past:
        return
    element = memory_type(buffer.dtype)
    ahead = _ahead(kernel.root, kernel.extent(statement.row), width(element))
    pointer = scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {ahead}")
    for part in range(0, context.parts, max(1, LINE // (context.lanes * width(element)))):
        line = vector_pointer(scope, element, altered(address, pointer=pointer), part, context.lanes)
        where = "2" if statement.second else "3"
        scope.run("llvm.prefetch.p0", [("ptr", line), ("i32", str(int(statement.write))), ("i32", where), ("i32", "1")])


def _ahead(root: Scope, row: str, size: int) -> str:
    """How many elements further on is brought near: a row, within limits; asked once."""
    least, most = (limit // size for limit in AHEAD_BYTES)
    if row.isdigit():
        return str(min(max(int(row), least), most))
    key = ("ahead", row, size)
    if key not in root.values:
        enough = root.call("i64", "llvm.smax.i64", [("i64", row), ("i64", str(least))])
        root.values[key] = root.call("i64", "llvm.smin.i64", [("i64", enough), ("i64", str(most))])
    return str(root.values[key])
