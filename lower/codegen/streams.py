"""Stores that go past the caches: for results that are larger than caches, whose lines would be read before they are written.

Guarantees: whole lines are written that way, and only by code that `fence` ends: other threads see them after it.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.dims import product
from loopwright.ir.loops import Apply, Expr, Index, Load, When, walk_all
from loopwright.ir.nest import Buffer, For, Let, Nest, Prefetch, Statement, Store, altered
from loopwright.ir.types import BOOL
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.memory import locate
from loopwright.lower.codegen.work import maths_weight
from loopwright.lower.fusing import expressions
from loopwright.lower.target import Target

PAST_CACHES = 1 << 24  # bytes of a result that no cache is likely to hold until it is read
LINE = 64  # bytes
LONG_ROW = 1024  # bytes of a row that is stored past the caches


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


# ---- whole nests --------------------------------------------------------------------------------
def past_caches(nest: Nest, target: Target) -> tuple[Buffer, ...]:
    """The results of a nest of maps that vectors along their last axis store, from its beginning on. Empty where a result is
    stored by vectors in another way or is read, and where stores of this kind gain nothing: on other processors, of rows that
    are gone through several times, and between long formulas, whose own memory gets in the way."""
    if not target.gains_past_caches or maths_weight(nest.body) > 0:
        return ()
    results = {b.name: b for b in nest.buffers if b.role == "output"}
    stores = _stores(nest.body, ())
    values = walk_all(expressions(nest.body))
    if stores is None or any(_has_parts(x) or (isinstance(x, Load) and x.array in results) for x in values):
        return ()
    found: dict[str, Buffer] = {}
    for s, loops in stores:
        if s.buffer not in results or not any(f.lanes > 1 for f in loops):
            continue
        if s.combine != "set" or s.when is not None or s.index != tuple([f.index for f in loops]) or loops[-1].lanes == 1:
            return ()
        found[s.buffer] = results[s.buffer]
    return tuple(found.values())


def _has_parts(e: Expr) -> bool:
    """Whether what is computed depends on where: loops may go in stretches then, which begin anywhere in a line."""
    return isinstance(e, When) or (isinstance(e, Apply) and any(isinstance(x, Index) for x in e.args) and e.dtype == BOOL)


def _stores(body: Sequence[Statement], loops: tuple[For, ...]) -> list[tuple[Store, tuple[For, ...]]] | None:
    """The stores with the loops around each; None where there is more than maps from a beginning to an end."""
    found: list[tuple[Store, tuple[For, ...]]] = []
    for s in body:
        match s:
            case For(tiled=False, by_rows=False, origin=None, step=1, jam=1, padded=False):
                inner = _stores(s.body, (*loops, s))
                if inner is None:
                    return None
                found += inner
            case Store():
                found.append((s, loops))
            case Let() | Prefetch():
                pass
            case _:
                return None
    return found


def without_short(nest: Nest) -> Nest:
    """The nest for rows that are long."""
    def long(s: Statement) -> Statement:
        return altered(s.with_body(tuple(map(long, s.body))), short=None) if isinstance(s, For) else s
    return altered(nest, body=tuple(map(long, nest.body)), few=(), ones=None)


def is_past(context: Context, results: Sequence[Buffer], places: Sequence[str]) -> str:
    """Whether results at these places are larger than caches and made of whole lines, in rows that are long, as an i1."""
    scope, kernel, found = context.scope, context.kernel, "true"
    tests = []
    for b, place in zip(results, places, strict=True):
        tests.append(f"icmp sge i64 {kernel.extent(product(b.shape) * b.dtype.itemsize)}, {PAST_CACHES}")
        bits = scope.emit(f"ptrtoint ptr {place} to i64")
        if len(b.shape) > 1:
            row = kernel.extent(b.shape[-1] * b.dtype.itemsize)
            tests.append(f"icmp sge i64 {row}, {LONG_ROW}")
            bits = scope.emit(f"or i64 {bits}, {row}")
        tests.append(f"icmp eq i64 {scope.emit(f'and i64 {bits}, {LINE - 1}')}, 0")
    for test in tests:
        found = scope.emit(f"and i1 {found}, {scope.emit(test)}")
    return found
