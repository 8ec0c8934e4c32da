"""Loads and stores, by how lanes lie in memory.

Guarantees: memory is touched in active lanes only, and never for an index into an array that holds nothing.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.loops import Literal, Load
from loopwright.ir.nest import Buffer, Store, altered
from loopwright.ir.types import BOOL, I64
from loopwright.lower.codegen.addresses import Address, lane_pointer, locate, offsets_of, pointers_of
from loopwright.lower.codegen.arithmetic import emitter
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Mask, Value, active_only, any_part, splat_register
from loopwright.lower.codegen.conversions import HALF, from_memory, to_memory
from loopwright.lower.codegen.machine import memory_type, suffix, vector_type
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import STREAMED, STREAMED_METADATA, Carried, Scope, branch, deepest
from loopwright.lower.passes import WORD

MOST_APART = 4  # elements that vectors are loaded for side by side, to take each so many; twice as many of 1 or 2 bytes
LEAST_GATHERED = 8  # lanes that are gathered together where an element is smaller than what a gather reads
HALVED = 8, 4  # lanes and bytes of each: without AVX-512, what takes lanes across the middle of a vector takes two steps


# ---- loads --------------------------------------------------------------------------------------
def loaded(context: Context, term: Term) -> Buffer:
    """What a `Load` reads."""
    assert isinstance(term.expr, Load) and isinstance(term.expr.array, str)
    return context.kernel.buffers[term.expr.array]


def locate_load(context: Context, term: Term) -> Address:
    """Where a `Load` reads."""
    return locate(context, loaded(context, term), term.args)


def load(context: Context, term: Term) -> Value:
    """The value of a `Load`."""
    address, buffer = locate_load(context, term), loaded(context, term)
    if address.uniform:
        context = context.scalar()
    mask = lane_mask(context, term.args, address.scope)
    depth = max(address.scope.depth, address.offsets.scope.depth if address.offsets else 0, mask[1].depth if mask else 0)
    scope = context.scope.climb(depth) if buffer.role == "input" else context.scope
    which = _of_pair(buffer, address, term) if mask is None and context.lanes > 1 else None
    parts = []
    for part in range(context.parts):
        if which is None:
            raw = _load_part(context, scope, buffer.dtype, address, part, mask[0][part] if mask else None)
        else:
            raw = _load_half(context, scope, term, part, which)
        parts.append(to_register(context, scope, raw, buffer.dtype))
    return Value(tuple(parts), buffer.dtype, context.lanes, scope)


def _of_pair(buffer: Buffer, address: Address, term: Term) -> int | None:
    """Which of two numbers that lie side by side in every lane's row a `Load` reads, if it does."""
    if buffer.shape[-1:] != (2,) or address.offsets is not None or address.stride != 2:
        return None
    last = term.args[-1].expr
    return int(last.value != 0) if isinstance(last, Literal) and last.value in (0, 1) else None


def _load_half(context: Context, scope: Scope, term: Term, part: int, which: int) -> str:
    """One number of each pair: of two vectors that are whole pairs, which the other number is taken from, too."""
    buffer, lanes = loaded(context, term), context.lanes
    kind, first = vector_type(memory_type(buffer.dtype), lanes), context.kernel.terms.of(Literal(0, I64))
    pairs = locate(context, buffer, (*term.args[:-1], first))
    key = ("pairs", pairs.pointer, part, lanes, context.kernel.state(term.reads))
    both = scope.find(key)
    if both is None:
        both = scope.values[key] = _pairs(context, scope, buffer.dtype, pairs, part)
    block = lanes // 2 if _in_halves(context, buffer.dtype) else lanes  # of results, from one half of both vectors each
    places = [(lane // block * block, 2 * (lane % block) + which) for lane in range(lanes)]
    order = ", ".join([f"i32 {begin + at + (lanes - block if at >= block else 0)}" for begin, at in places])
    return scope.emit(f"shufflevector {kind} {both[0]}, {kind} {both[1]}, <{lanes} x i32> <{order}>")


def _in_halves(context: Context, dtype: np.dtype) -> bool:
    """Whether a vector is read in two halves: such that what is taken from two vectors lies where it is wanted."""
    return context.kernel.target.is_short_of_registers and (context.lanes, dtype.itemsize) == HALVED


def _pairs(context: Context, scope: Scope, dtype: np.dtype, pairs: Address, part: int) -> list[str]:
    """Two vectors that are whole pairs; in halves, the first of both are what one half of the results is taken from."""
    lanes, element, many = context.lanes, memory_type(dtype), 1 + _in_halves(context, dtype)
    count = lanes // many
    kind = vector_type(element, count)
    places = [_vector_pointer_at(scope, element, pairs, 2 * part * lanes + k * count) for k in range(2 * many)]
    found = [scope.emit(f"load {kind}, ptr {x}, align {dtype.itemsize}") for x in places]
    if many == 1:
        return found
    order = ", ".join([f"i32 {lane}" for lane in range(lanes)])
    return [scope.emit(f"shufflevector {kind} {a}, {kind} {b}, <{lanes} x i32> <{order}>")
            for a, b in zip(found[:2], found[2:], strict=True)]


def lane_mask(context: Context, index: tuple[Term, ...], scope: Scope) -> tuple[tuple[str, ...], Scope] | None:
    """The lanes that may touch memory: the active ones, and none where a data-dependent index has nothing to point to."""
    active = context.active()
    place = deepest(scope, context.mask.value.scope) if context.mask is not None else scope
    some = filled(context, index)
    if some is not None:
        root = context.kernel.root
        vector = splat_register(root, "i1", some, context.lanes)
        if active is None:
            root.values["all lanes", vector] = some
            active = (vector,) * context.parts
        else:
            kind = vector_type("i1", context.lanes)
            active = tuple([place.emit(f"and {kind} {m}, {vector}") for m in active])
    return None if active is None else (active, place)


def filled(context: Context, index: tuple[Term, ...]) -> str | None:
    """Whether the axes that data-dependent indices point into have elements; None where there are none, or all surely do."""
    extents = sorted(may_be_empty(index) - context.filled, key=str)
    return _all_hold(context, extents) if extents else None


def may_be_empty(index: tuple[Term, ...]) -> frozenset[Extent]:
    """The sizes of these axes that may be 0."""
    return frozenset([e for term in index if term.extents for e in term.extents if not isinstance(e, int) or e <= 0])


def _all_hold(context: Context, extents: Sequence[Extent]) -> str:
    """Whether none of the extents is 0."""
    root = context.kernel.root
    held = ""
    for number, extent in enumerate(extents):
        key = ("some", *extents[:number + 1])
        if key not in root.values:
            one = root.emit(f"icmp sgt i64 {context.kernel.extent(extent)}, 0")
            root.values[key] = root.emit(f"and i1 {held}, {one}") if held else one
        held = str(root.values[key])
    return held


def _load_part(context: Context, scope: Scope, dtype: np.dtype, address: Address, part: int, mask: str | None) -> str:
    element, lanes = memory_type(dtype), context.lanes
    if lanes == 1:
        return _load_scalar(context, scope, element, lane_pointer(context, scope, element, address, part), mask)
    if address.offsets is None and isinstance(address.stride, int) and abs(address.stride) == 1:
        return _load_consecutive(scope, dtype, address, part, lanes, mask)
    words = width(element) >= 4
    if address.offsets is None and (mask is None or (words and context.kernel.target.has_masks)) \
            and isinstance(address.stride, int) and 2 <= abs(address.stride) <= (MOST_APART if words else 2 * MOST_APART):
        return _load_every_few(scope, element, address, part, lanes, mask)
    return _gather(context, scope, dtype, address, part, mask)


def _load_scalar(context: Context, scope: Scope, element: str, pointer: str, mask: str | None) -> str:
    if mask is not None:
        pointer = scope.emit(f"select i1 {mask}, ptr {pointer}, ptr {nowhere(context)}")
    return scope.emit(f"load {element}, ptr {pointer}, align {width(element)}")


def nowhere(context: Context) -> str:
    """A zero on the stack, for lanes that must not touch memory."""
    root = context.kernel.root
    if "nowhere" not in root.values:
        slot = context.kernel.function.slot(1, "i64", 8)
        context.kernel.function.slots.append(f"  store i64 0, ptr {slot}, align 8")
        root.values["nowhere"] = slot
    return str(root.values["nowhere"])


def width(element: str) -> int:
    """Bytes of an LLVM element type."""
    return {"float": 4, "double": 8}.get(element) or int(element[1:]) // 8


def _load_consecutive(scope: Scope, dtype: np.dtype, address: Address, part: int, lanes: int, mask: str | None) -> str:
    """A vector load; backwards, the vector that ends at lane 0, reversed."""
    element = memory_type(dtype)
    kind = vector_type(element, lanes)
    back = address.stride == -1
    pointer = vector_pointer(scope, element, address, part, lanes)
    if mask is None:
        value = scope.emit(f"load {kind}, ptr {pointer}, align {width(element)}")
    else:
        mask = reverse(scope, "i1", mask, lanes) if back else mask
        value = scope.call(kind, f"llvm.masked.load.{suffix(kind)}.p0", [
            ("ptr", pointer), ("i32", str(width(element))), (vector_type("i1", lanes), mask), (kind, "zeroinitializer")])
    return reverse(scope, element, value, lanes) if back else value


def _load_every_few(scope: Scope, element: str, address: Address, part: int, lanes: int, mask: str | None) -> str:
    """Vectors one after the other, of which the last ends with the last element wanted, so that nothing past it is read, and
    the lanes among them. With a mask, of lanes, only elements that are wanted."""
    stride = address.stride
    assert isinstance(stride, int)
    apart, kind, bits = abs(stride), vector_type(element, lanes), vector_type("i1", lanes)
    last = (apart - 1) * (lanes - 1)  # where the last vector begins
    lowest = stride * part * lanes - (apart * (lanes - 1) if stride < 0 else 0)
    found = ""
    for number in range(apart):
        begin = min(number * lanes, last)
        pointer = _vector_pointer_at(scope, element, address, lowest + begin)
        order, wanted = ["poison"] * lanes, [str(lanes)] * lanes  # of the loaded, each lane's; of lanes, each loaded one's
        for lane in range(lanes):
            place = apart * (lanes - 1 - lane if stride < 0 else lane)
            if place < number * lanes:
                order[lane] = str(lane)
            elif place < (number + 1) * lanes:
                order[lane] = str(place - begin + (lanes if number else 0))
                wanted[place - begin] = str(lane)
        if mask is None:
            vector = scope.emit(f"load {kind}, ptr {pointer}, align {width(element)}")
        else:
            places = ", ".join(f"i32 {x}" for x in wanted)
            some = scope.emit(f"shufflevector {bits} {mask}, {bits} zeroinitializer, <{lanes} x i32> <{places}>")
            vector = scope.call(kind, f"llvm.masked.load.{suffix(kind)}.p0", [
                ("ptr", pointer), ("i32", str(width(element))), (bits, some), (kind, "zeroinitializer")])
        places = ", ".join(f"i32 {x}" for x in order)
        found = scope.emit(f"shufflevector {kind} {found or vector}, {kind} {vector}, <{lanes} x i32> <{places}>")
    return found


def _vector_pointer_at(scope: Scope, element: str, address: Address, offset: int) -> str:
    return scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {offset}") if offset else address.pointer


def vector_pointer(scope: Scope, element: str, address: Address, part: int, lanes: int) -> str:
    first = part * lanes if address.stride == 1 else -part * lanes - (lanes - 1)
    return scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {first}") if first else address.pointer


def reverse(scope: Scope, element: str, value: str, lanes: int) -> str:
    """The lanes in the other order."""
    kind = vector_type(element, lanes)
    order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
    return scope.emit(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{order}>")


def _gather(context: Context, scope: Scope, dtype: np.dtype, address: Address, part: int, mask: str | None) -> str:
    """The gather instruction where there is a good one, else a load per lane; inactive lanes read a zero."""
    element, lanes, target = memory_type(dtype), context.lanes, context.kernel.target
    kind, many = vector_type(element, lanes), vector_type("ptr", lanes)
    alike = mask is None or ("all lanes", mask) in context.kernel.root.values
    if alike and not target.gathers:
        return _load_each(context, scope, element, address, part, mask)
    if target.has_masks and width(element) >= 4:
        pointers = pointers_of(context, scope, element, address, part)
        return scope.call(kind, f"llvm.masked.gather.{suffix(kind)}.{suffix(many)}", [
            (many, pointers), ("i32", str(width(element))),
            (vector_type("i1", lanes), mask or constant_text(True, "i1", lanes)), (kind, "zeroinitializer")])
    if target.has_masks and lanes >= LEAST_GATHERED:
        return _gather_narrow(context, scope, element, address, part, mask)
    pointers = pointers_of(context, scope, element, address, part)
    if mask is not None:
        zero = splat_register(context.kernel.root, "ptr", nowhere(context), lanes)
        pointers = scope.emit(f"select {vector_type('i1', lanes)} {mask}, {many} {pointers}, {many} {zero}")
    found = "poison"
    for lane in range(lanes):
        pointer = scope.emit(f"extractelement {many} {pointers}, i32 {lane}")
        found = _with_lane(scope, element, lanes, found, pointer, lane)
    return found


def _load_each(context: Context, scope: Scope, element: str, address: Address, part: int, mask: str | None) -> str:
    """A load per lane, of all lanes or of none; the processor adds the lane's offset as it loads."""
    lanes, many = context.lanes, vector_type("i64", context.lanes)
    pointer = address.pointer
    offsets = offsets_of(context, scope, address, part)
    if mask is not None:
        some = context.kernel.root.values["all lanes", mask]
        pointer = scope.emit(f"select i1 {some}, ptr {pointer}, ptr {nowhere(context)}")
        offsets = scope.emit(f"select {vector_type('i1', lanes)} {mask}, {many} {offsets}, {many} zeroinitializer")
    found = "poison"
    for lane in range(lanes):
        offset = scope.emit(f"extractelement {many} {offsets}, i32 {lane}")
        one = scope.emit(f"getelementptr {element}, ptr {pointer}, i64 {offset}")
        found = _with_lane(scope, element, lanes, found, one, lane)
    return found


def _with_lane(scope: Scope, element: str, lanes: int, vector: str, pointer: str, lane: int) -> str:
    """The vector with what is at the pointer in one lane."""
    one = scope.emit(f"load {element}, ptr {pointer}, align {width(element)}")
    return scope.emit(f"insertelement {vector_type(element, lanes)} {vector}, {element} {one}, i32 {lane}")


def _gather_narrow(context: Context, scope: Scope, element: str, address: Address, part: int, mask: str | None) -> str:
    """A gather of elements of 1 or 2 bytes: of the aligned words of 4 bytes that hold them, which no page's end divides."""
    lanes, words, kind = context.lanes, vector_type("i32", context.lanes), vector_type("i64", context.lanes)
    place = offsets_of(context, scope, address, part)
    if width(element) > 1:
        place = scope.emit(f"shl {kind} {place}, splat (i64 1)")
    low = scope.emit(f"and i64 {scope.emit(f'ptrtoint ptr {address.pointer} to i64')}, 3")
    word = scope.call("ptr", "llvm.ptrmask.p0.i64", [("ptr", address.pointer), ("i64", "-4")])
    place = scope.emit(f"add {kind} {place}, {splat_register(scope, 'i64', low, lanes)}")
    at = scope.emit(f"getelementptr i32, ptr {word}, {kind} {scope.emit(f'ashr {kind} {place}, splat (i64 2)')}")
    many = vector_type("ptr", lanes)
    active = vector_type("i1", lanes), mask or constant_text(True, "i1", lanes)
    found = scope.call(words, f"llvm.masked.gather.{suffix(words)}.{suffix(many)}", [
        (many, at), ("i32", "4"), active, (words, "zeroinitializer")])
    bits = scope.emit(f"shl {words} {scope.emit(f'trunc {kind} {place} to {words}')}, splat (i32 3)")
    bits = scope.emit(f"and {words} {bits}, splat (i32 24)")
    return scope.emit(f"trunc {words} {scope.emit(f'lshr {words} {found}, {bits}')} to {vector_type(element, lanes)}")


def to_register(context: Context, scope: Scope, raw: str, dtype: np.dtype) -> str:
    """What lies in memory as it is computed with."""
    if dtype == BOOL:
        return scope.emit(f"icmp ne {vector_type('i8', context.lanes)} {raw}, {constant_text(0, 'i8', context.lanes)}")
    return from_memory(context.writer(dtype, scope).machine, raw, dtype) if dtype in HALF else raw


def from_register(context: Context, scope: Scope, value: str, dtype: np.dtype, lanes: int) -> str:
    if dtype == BOOL:
        return scope.emit(f"zext {vector_type('i1', lanes)} {value} to {vector_type('i8', lanes)}")
    return to_memory(context.writer(dtype, scope, lanes).machine, value, dtype) if dtype in HALF else value


# ---- stores -------------------------------------------------------------------------------------
def store(context: Context, statement: Store) -> None:
    """Do a `Store`, where its condition holds."""
    if statement.when is None:
        _store(context, statement)
        return
    kernel = context.kernel
    test = context.evaluate(kernel.terms.of(statement.when))
    masks = test.parts if not test.varies else active_only(context, context.scope, context.spread(test))
    condition = masks[0] if not test.varies else any_part(context.scope, masks, context.lanes)

    def emit(inner: Scope) -> Carried:
        here = context.at(inner)
        if test.varies:
            here = altered(here, mask=Mask(Value(masks, BOOL, context.lanes, context.scope), context.mask))
        _store(here, statement)
        return ()
    branch(context.scope, condition, emit)
    kernel.wrote(statement.buffer)


def _store(context: Context, statement: Store) -> None:
    kernel = context.kernel
    buffer = kernel.buffers[statement.buffer]
    index = tuple([kernel.terms.of(e) for e in statement.index])
    value = context.evaluate(kernel.terms.of(statement.value))
    address = locate(context, buffer, index)
    if statement.combine != "set":
        term = kernel.terms.of(Load(statement.buffer, statement.index, buffer.dtype))
        value = _combined(context, statement.combine, term, value, address)
    if address.uniform and not value.varies:
        context = context.scalar()
    mask = None if context.padded or buffer.place == "panel" else lane_mask(context, index, address.scope)
    full = context.spread(value)
    for part in range(context.parts):
        raw = from_register(context, context.scope, full[part], buffer.dtype, context.lanes)
        _store_part(context, buffer.dtype, address, part, raw, mask[0][part] if mask else None)
    kernel.wrote(buffer.name)


def _combined(context: Context, combine: str, term: Term, value: Value, address: Address) -> Value:
    """The function of what is stored there and the value, rounded as its dtype."""
    if context.vector is not None and (address.offsets is not None or address.stride == 0):
        raise ValueError("a store that combines where vector lanes may meet in one element must run in serial loops")
    kernel = context.kernel
    kernel.wrote(address.buffer)
    old = context.evaluate(term)
    emit = emitter(combine, value.dtype)
    at = context.writer(value.dtype, context.scope)
    return Value(tuple(emit(at, a, b) for a, b in zip(context.spread(old), context.spread(value), strict=True)),
                 value.dtype, context.lanes, context.scope)


def _store_part(context: Context, dtype: np.dtype, address: Address, part: int, raw: str, mask: str | None) -> None:
    element, lanes, scope = memory_type(dtype), context.lanes, context.scope
    if lanes == 1:
        pointer = lane_pointer(context, scope, element, address, part)
        line = f"store {element} {raw}, ptr {{}}, align {width(element)}"
        if mask is None:
            scope.do(line.format(pointer))
            return
        def write(inner: Scope) -> Carried:
            inner.do(line.format(pointer))
            return ()
        branch(scope, mask, write)
    elif address.offsets is None and isinstance(address.stride, int) and abs(address.stride) == 1:
        _store_consecutive(context, element, address, part, raw, mask)
    elif address.offsets is None and address.stride == 2 and mask is None:
        _store_every_second(scope, element, address, part, lanes, raw)
    else:
        kind, many = vector_type(element, lanes), vector_type("ptr", lanes)
        scope.run(f"llvm.masked.scatter.{suffix(kind)}.{suffix(many)}", [
            (kind, raw), (many, pointers_of(context, scope, element, address, part)), ("i32", str(width(element))),
            (vector_type("i1", lanes), mask or constant_text(True, "i1", lanes))])


def _store_every_second(scope: Scope, element: str, address: Address, part: int, lanes: int, raw: str) -> None:
    """Two vectors with every lane twice, of which every second one is stored."""
    kind, mask = vector_type(element, lanes), ", ".join(f"i1 {lane % 2 == 0}".lower() for lane in range(lanes))
    for half in (0, 1):
        places = ", ".join(f"i32 {(half * lanes + lane) // 2}" for lane in range(lanes))
        spread = scope.emit(f"shufflevector {kind} {raw}, {kind} poison, <{lanes} x i32> <{places}>")
        pointer = _vector_pointer_at(scope, element, address, (2 * part + half) * lanes)
        scope.run(f"llvm.masked.store.{suffix(kind)}.p0", [
            (kind, spread), ("ptr", pointer), ("i32", str(width(element))), (vector_type("i1", lanes), f"<{mask}>")])


def _store_consecutive(context: Context, element: str, address: Address, part: int, raw: str, mask: str | None) -> None:
    scope, lanes = context.scope, context.lanes
    kind = vector_type(element, lanes)
    if address.stride == -1:
        raw = reverse(scope, element, raw, lanes)
        mask = reverse(scope, "i1", mask, lanes) if mask is not None else None
    pointer = vector_pointer(scope, element, address, part, lanes)
    if mask is None:
        past = address.buffer in context.streamed
        if past:
            scope.function.constants.add(STREAMED_METADATA)
        how = f"{lanes * width(element)}, !nontemporal {STREAMED}" if past else width(element)
        scope.do(f"store {kind} {raw}, ptr {pointer}, align {how}")
        return

    def some(inner: Scope) -> Carried:
        inner.run(f"llvm.masked.store.{suffix(kind)}.p0", [
            (kind, raw), ("ptr", pointer), ("i32", str(width(element))), (vector_type("i1", lanes), mask)])
        return ()

    def all_of_them(inner: Scope) -> Carried:
        inner.do(f"store {kind} {raw}, ptr {pointer}, align {width(element)}")
        return ()
    now, target = context.mask, context.kernel.target
    if now is None or mask != now.value.parts[part] or target.has_masks:
        some(scope)
        return
    if now.whole:
        branch(scope, now.whole, all_of_them, some)  # masked stores take many steps there
    elif now.count and width(element) <= WORD and (width(element) < WORD or target.stores_words_by_parts):
        _store_in_parts(scope, element, lanes, raw, pointer, now.count)
    else:
        some(scope)


def _store_in_parts(scope: Scope, element: str, lanes: int, raw: str, pointer: str, count: str) -> None:
    """Store as many of a vector's first lanes as each bit of their number says."""
    while lanes > 1:
        kind, lanes = vector_type(element, lanes), lanes // 2
        low, high = (scope.emit(f"shufflevector {kind} {raw}, {kind} poison, <{lanes} x i32> "
                                f"<{', '.join(f'i32 {first + k}' for k in range(lanes))}>") for first in (0, lanes))
        takes, part = scope.emit(f"icmp ne i64 {scope.emit(f'and i64 {count}, {lanes}')}, 0"), f"<{lanes} x {element}>"

        def store(inner: Scope, part: str = part, low: str = low, pointer: str = pointer) -> Carried:
            inner.do(f"store {part} {low}, ptr {pointer}, align {width(element)}")
            return ()
        branch(scope, takes, store)
        raw = scope.emit(f"select i1 {takes}, {part} {high}, {part} {low}")
        step = scope.emit(f"select i1 {takes}, i64 {lanes * width(element)}, i64 0")
        pointer = scope.emit(f"getelementptr i8, ptr {pointer}, i64 {step}")
