"""Stores of all columns of short rows, lanes from row to row: rows are put together in registers and stored side by side.

Guarantees: what is stored is what the stores one after another would, of values that are all computed before.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.loops import Literal
from loopwright.ir.nest import Statement, Store
from loopwright.lower.codegen.addresses import locate
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.machine import memory_type, suffix, vector_type
from loopwright.lower.codegen.memory import from_register, lane_mask, width
from loopwright.lower.codegen.text import Scope

WOVEN = 4  # columns, with more of which rows are stored in pieces where no instruction takes its lanes from two registers


def columns_at(context: Context, body: Sequence[Statement], at: int) -> list[Store]:
    """The stores from there on that fill whole rows, column by column; none where lanes do not go from row to row."""
    first = body[at]
    if context.lanes == 1 or not isinstance(first, Store) or not first.index:
        return []
    buffer = context.kernel.buffers[first.buffer]
    count = buffer.shape[-1]
    if not isinstance(count, int) or count < 2:
        return []
    found = [s for s in body[at:at + count] if isinstance(s, Store)]
    if len(found) != count:
        return []
    rows = all(s.buffer == first.buffer and s.combine == "set" and s.when is None and s.index[:-1] == first.index[:-1]
               and isinstance(s.index[-1], Literal) and s.index[-1].value == k for k, s in enumerate(found))
    if not rows:
        return []
    address = locate(context, buffer, tuple(map(context.kernel.terms.of, first.index)))
    return found if address.offsets is None and address.stride == count else []


def store_columns(context: Context, stores: Sequence[Store]) -> None:
    """Do the stores of whole rows."""
    kernel, scope, lanes = context.kernel, context.scope, context.lanes
    buffer, count = kernel.buffers[stores[0].buffer], len(stores)
    element = memory_type(buffer.dtype)
    index = tuple(map(kernel.terms.of, stores[0].index))
    values = [context.spread(context.evaluate(kernel.terms.of(s.value))) for s in stores]
    address = locate(context, buffer, index)
    mask = lane_mask(context, index, address.scope)
    kind, masks = vector_type(element, lanes), vector_type("i1", lanes)
    for part in range(context.parts):
        columns = [from_register(context, scope, v[part], buffer.dtype, lanes) for v in values]
        if mask is None and count > WOVEN and not kernel.target.has_masks:
            place = scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {part * count * lanes}")
            _store_pieces(scope, element, columns, lanes, place)
            continue
        wanted = [] if mask is None else interleaved(scope, masks, [mask[0][part]] * count, lanes)
        for k, raw in enumerate(interleaved(scope, kind, columns, lanes)):
            pointer = scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {(part * count + k) * lanes}")
            if not wanted:
                scope.do(f"store {kind} {raw}, ptr {pointer}, align {width(element)}")
                continue
            scope.run(f"llvm.masked.store.{suffix(kind)}.p0", [
                (kind, raw), ("ptr", pointer), ("i32", str(width(element))), (masks, wanted[k])])
    kernel.wrote(buffer.name)


def _store_pieces(scope: Scope, element: str, columns: Sequence[str], lanes: int, place: str) -> None:
    """Rows in pieces of 2, 4, 8 elements and more, each from as many columns, which are halved again and again."""
    at, kind = 0, vector_type(element, lanes)
    while at < len(columns):
        wide = min(lanes, 1 << (len(columns) - at).bit_length() - 1)
        found, many = interleaved(scope, kind, columns[at:at + wide], lanes), lanes // wide
        for row in range(lanes):
            vector, first = found[row // many], row % many * wide
            if wide == 1:
                piece = scope.emit(f"extractelement {kind} {vector}, i32 {row}")
            elif wide == lanes:
                piece = vector
            else:
                piece = _shuffled(scope, kind, (vector, vector), range(first, first + wide))
            to = scope.emit(f"getelementptr {element}, ptr {place}, i64 {row * len(columns) + at}")
            scope.do(f"store {vector_type(element, wide)} {piece}, ptr {to}, align {width(element)}")
        at += wide


def interleaved(scope: Scope, kind: str, columns: Sequence[str], lanes: int) -> list[str]:
    """Vectors of the first lanes of all columns, then the second lanes, and so on."""
    count = len(columns)
    if count == 1:
        return list(columns)
    if count % 2 == 0:  # of halves, pairs: of 8 columns in 24 steps, not in 56
        even, odd = (interleaved(scope, kind, columns[k::2], lanes) for k in (0, 1))
        return [_shuffled(scope, kind, (a, b), [(lane % 2) * lanes + (half * lanes + lane) // 2 for lane in range(lanes)])
                for a, b in zip(even, odd, strict=True) for half in (0, 1)]
    return [_row_part(scope, kind, columns, lanes, k * lanes) for k in range(count)]


def _row_part(scope: Scope, kind: str, columns: Sequence[str], lanes: int, first: int) -> str:
    """The vector of rows that begins with an element, from one column after another."""
    count = len(columns)
    found = ""
    for column, register in enumerate(columns):
        places = [divmod(first + lane, count) for lane in range(lanes)]
        order = [lanes + row if of == column else lane if of < column or not column else -1
                 for lane, (row, of) in enumerate(places)]
        if not column:
            order = [row if of == 0 else -1 for row, of in places]
        found = _shuffled(scope, kind, (found or register, register), order)
    return found


def _shuffled(scope: Scope, kind: str, pair: tuple[str, str], order: Sequence[int]) -> str:
    places = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in order)
    return scope.emit(f"shufflevector {kind} {pair[0]}, {kind} {pair[1]}, <{len(order)} x i32> <{places}>")
