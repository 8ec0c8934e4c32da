"""Stores that go past the caches: for results that are larger than caches, whose lines would be read before they are written.

Guarantees: whole lines are written that way, and only by code that `fence` ends: other threads see them after it.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.dims import product
from loopwright.ir.nest import Let, Statement, Store
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.memory import locate

PAST_CACHES = 1 << 24  # bytes of a result that no cache is likely to hold until it is read
LINE = 64  # bytes


def streams(context: Context, row: str, body: Sequence[Statement]) -> str | None:
    """Whether what a loop over vectors stores, row by row, is large and begins lines, as an i1; None where that is not asked.
    The context is at the first vector of the first row."""
    kernel, scope = context.kernel, context.scope
    stores = [s for s in body if isinstance(s, Store)]
    if not kernel.target.is_x86 or not stores or not all(isinstance(s, Let | Store) for s in body):
        return None
    sizes = [product(kernel.buffers[s.buffer].shape) * kernel.buffers[s.buffer].dtype.itemsize for s in stores]
    if any(s.combine != "set" or s.when is not None or (isinstance(n, int) and n < PAST_CACHES)
           for s, n in zip(stores, sizes, strict=True)):
        return None
    second = scope.emit(f"add nsw i64 {context.bindings[row].parts[0]}, 1")
    places = []
    for here in (context, context.bind_index(row, second, scope)):
        for s in stores:
            address = locate(here, kernel.buffers[s.buffer], tuple(kernel.terms.of(e) for e in s.index))
            if address.offsets is not None or address.stride != 1:
                return None
            places.append(scope.emit(f"ptrtoint ptr {address.pointer} to i64"))
    bits = places[0]
    for place in places[1:]:
        bits = scope.emit(f"or i64 {bits}, {place}")
    begins = scope.emit(f"icmp eq i64 {scope.emit(f'and i64 {bits}, {LINE - 1}')}, 0")
    for n in set(sizes):
        begins = scope.emit(f"and i1 {begins}, {_large(context, kernel.extent(n))}")
    return begins


def _large(context: Context, size: str) -> str:
    root, key = context.kernel.root, ("large", size)
    if key not in root.values:
        root.values[key] = root.emit(f"icmp sge i64 {size}, {PAST_CACHES}")
    return str(root.values[key])


def fence(context: Context) -> None:
    """What was stored past the caches comes before what follows."""
    context.scope.run("llvm.x86.sse.sfence", [])
