"""Memory of a function for its local buffers: on the stack, or from the blocks of `runtime/scratch.py`.

Guarantees: what the blocks hold is given back at the end; where there is no memory the error is told, and nothing is run.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.dims import product
from loopwright.ir.nest import Buffer
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.machine import memory_type
from loopwright.lower.codegen.text import Carried, Scope, branch

STACK_BYTES = 1 << 15  # local buffers beyond this come from the scratch pool
OUT_OF_MEMORY = -1  # what error[0] becomes when scratch memory cannot be had


def with_scratch(context: Context, buffers: list[Buffer], run: Callable[[Context], None]) -> None:
    """Run with local buffers: small known ones on the stack, the others in one scratch block of this function."""
    kernel = context.kernel
    large: list[Buffer] = []
    for buffer in buffers:
        kernel.buffers[buffer.name] = buffer
        size = product(buffer.shape)
        if isinstance(size, int) and size * buffer.dtype.itemsize <= STACK_BYTES:
            kernel.pointers[buffer.name] = kernel.function.slot(max(size, 1), memory_type(buffer.dtype), 64)
        else:
            large.append(buffer)
    if large:
        _in_scratch(context, large, run)
    else:
        run(context)


def _in_scratch(context: Context, large: list[Buffer], run: Callable[[Context], None]) -> None:
    kernel, root = context.kernel, context.scope
    offset, starts = "0", []
    for buffer in large:
        starts.append(offset)
        count = kernel.extent(product(buffer.shape) * buffer.dtype.itemsize)
        rounded = root.emit(f"and i64 {root.emit(f'add i64 {count}, 127')}, -64")
        offset = root.emit(f"add i64 {offset}, {rounded}")
    block = root.call("ptr", "lw_scratch_acquire", [("i64", offset)])
    missing = root.emit(f"icmp eq ptr {block}, null")

    def without(scope: Scope) -> Carried:
        scope.run("lw_report", [("ptr", "%error"), ("i64", str(OUT_OF_MEMORY)), *[("i64", "0")] * 3])
        return ()

    def within(scope: Scope) -> Carried:
        for buffer, start in zip(large, starts, strict=True):
            kernel.pointers[buffer.name] = root.emit(f"getelementptr i8, ptr {block}, i64 {start}")
        run(context.at(scope))
        scope.run("lw_scratch_release", [("ptr", block)])
        return ()
    branch(root, missing, without, within, rare=True)
