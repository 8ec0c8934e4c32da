"""Stores that go past the caches: for results that are larger than caches, whose lines would be read before they are written.

Guarantees: whole lines are written that way, and only by code that `fence` ends: other threads see them after it.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import Apply, Expr, Index, Load, When, walk_all
from loopwright.ir.nest import Buffer, Contract, For, Let, Nest, Prefetch, Reduction, Scan, Statement, Store, altered, one_pass
from loopwright.ir.types import BOOL
from loopwright.lower.codegen.addresses import locate
from loopwright.lower.codegen.context import Context, Kernel
from loopwright.lower.codegen.prefetches import LINE
from loopwright.lower.codegen.work import maths_weight
from loopwright.lower.fusing import expressions
from loopwright.lower.target import Target

PAST_CACHES = 1 << 24  # bytes of a result that no cache is likely to hold until it is read
MOVED = 40 << 20  # bytes of all arrays of a kernel that caches of 32 MiB cannot hold from one call to the next
LONG_ROW = 1024  # bytes of a row that is stored past the caches
FURTHER = 1 << 13  # bytes of rows from what is read to what is asked for meanwhile


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
Loops = tuple[For, ...]


def past_caches(nest: Nest, target: Target) -> tuple[Buffer, ...]:
    """The results of a nest that vectors store along their last axis, whole rows each, and that nothing reads. None where
    stores of this kind gain nothing: on other processors, and between long formulas, whose own memory gets in the way."""
    if not target.gains_past_caches:
        return ()
    stored = _stored(nest.body, ())
    found = [b for b in nest.buffers if b.role == "output" and b.name in stored
             and all(_in_rows(s, loops) for s, loops in stored[b.name])]
    read = {x.array for x in walk_all(expressions(nest.body)) if isinstance(x, Load)} if found else ()
    return tuple([b for b in found if b.name not in read])


def _stored(body: Sequence[Statement], loops: Loops) -> dict[str, list[tuple[Statement, Loops]]]:
    """What stores to each buffer, with the loops around it."""
    found: dict[str, list[tuple[Statement, Loops]]] = {}
    for s in body:
        inner: dict[str, list[tuple[Statement, Loops]]] = {}
        match s:
            case For():
                inner = _stored(s.body, (*loops, s))
            case Reduction():
                inner = _stored(s.also, ())
            case Store() | Scan() | Contract():
                inner = {s.buffer: [(s, loops)]}
        for name, places in inner.items():
            found.setdefault(name, []).extend(places)
    return found


def _in_rows(s: Statement, loops: Loops) -> bool:
    """Whether a statement is a store by vectors that go along rows from their beginnings to their ends."""
    if not isinstance(s, Store) or s.combine != "set" or s.when is not None or not loops:
        return False
    last, rows = loops[-1], {f.index for f in loops[:-1]}
    plain = all(not (f.tiled or f.by_rows or f.padded) and f.jam == 1 for f in loops)
    return plain and last.lanes > 1 and last.origin is None and last.step == 1 and s.index[-1] == last.index \
        and rows.issuperset(s.index[:-1]) and len(set(s.index)) == len(s.index) and maths_weight(last.body) == 0 \
        and not any(map(_has_parts, walk_all(expressions(last.body))))


def _has_parts(e: Expr) -> bool:
    """Whether what is computed depends on where: loops may go in stretches then, which begin anywhere in a line."""
    return isinstance(e, When) or (isinstance(e, Apply) and any(isinstance(x, Index) for x in e.args) and e.dtype == BOOL)


def reading_ahead(nest: Nest, results: Sequence[Buffer]) -> Nest:
    """The nest whose rows, where several passes go over each and the last stores it to a result, ask for what passes over later
    rows will read: processors find that by themselves, but later where stores go past the caches. The arrays are asked for by
    the last pass and by the one that does most, in turn: both have time for it."""
    names = {b.name for b in results}
    inputs = {b.name: b.dtype.itemsize for b in nest.buffers if b.role == "input"}

    def visit(s: Statement) -> Statement:
        if not isinstance(s, For):
            return s
        body = tuple(map(visit, s.body))
        last = next((f for f in body if isinstance(f, For) and f.lanes > 1
                     and any(isinstance(x, Store) and x.buffer in names for x in f.body)), None)
        passes = [r for r in body if isinstance(r, Reduction) and r.lanes > 1 and len(r.over) == 1 and not r.joined]
        if last is None or not passes:
            return s.with_body(body)
        place = next(x.index for x in last.body if isinstance(x, Store) and x.buffer in names)
        most = max(passes, key=lambda r: _weight(one_pass(body, body.index(r))))
        loads = [x for x in walk_all(expressions(body)) if isinstance(x, Load) and x.array in inputs]
        of_row = [x for x in loads if len(x.index) == len(place) > 1 and x.index[:-1] == place[:-1]]
        asked = [Prefetch(name, place, FURTHER // inputs[name], False, second=True)
                 for name in dict.fromkeys([str(x.array) for x in of_row if isinstance(x.index[-1], Index)])]
        inner = tuple([altered(x, index=(*place[:-1], most.over[0][0])) for x in asked[1::2]])
        return s.with_body(tuple([altered(x, also=(*x.also, *inner)) if x is most else
                                  last.with_body((*asked[::2], *last.body)) if x is last else x for x in body]))
    return altered(nest, body=tuple(map(visit, nest.body)))


def _weight(body: Sequence[Statement]) -> tuple[int, int]:
    """What statements have to do for one element: formulas, then all else."""
    return maths_weight(body), sum(1 for _ in walk_all(expressions(body)))


def without_short(nest: Nest) -> Nest:
    """The nest for rows that are long."""
    def long(s: Statement) -> Statement:
        return altered(s.with_body(tuple(map(long, s.body))), short=None) if isinstance(s, For) else s
    return altered(nest, body=tuple(map(long, nest.body)), few=(), ones=None)


def moved_bytes(kernel: Kernel) -> Extent:
    """Of all arrays that a kernel reads or writes."""
    return sum((product(b.shape) * b.dtype.itemsize for b in kernel.buffers.values() if b.role != "local"), 0)


def is_past(context: Context, results: Sequence[Buffer], places: Sequence[str]) -> str:
    """Whether results at these places are large, made of whole lines, in rows that are long, as an i1."""
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
