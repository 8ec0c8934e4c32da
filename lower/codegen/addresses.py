"""Addresses: from index expressions to pointers, by what the vector index does to them.

The offset is a polynomial: sizes times indices. Its terms are added to the pointer from the outermost loop inwards, so
each loop adds only its own; the vector index decides between a broadcast, a vector, a reversed vector and a gather.
"""
from __future__ import annotations

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.loops import Index
from loopwright.ir.nest import Buffer
from loopwright.ir.types import I64
from loopwright.lower.codegen.context import Context, Value, splat_register
from loopwright.lower.codegen.machine import memory_type, vector_type
from loopwright.lower.codegen.terms import Linear, Term, add_linear, scale_linear
from loopwright.lower.codegen.text import Scope, deepest


@dataclass(frozen=True, eq=False)
class Address:
    """A pointer to the element for lane 0 of part 0 and how lanes move from it: `stride` elements a lane (0: all lanes
    the same), or by `offsets`, i64 elements per lane."""

    buffer: str
    pointer: str
    scope: Scope
    stride: Extent
    offsets: Value | None

    @property
    def uniform(self) -> bool:
        return self.offsets is None and isinstance(self.stride, int) and self.stride == 0


def locate(context: Context, buffer: Buffer, index: tuple[Term, ...]) -> Address:
    """The address of buffer[index]."""
    form = offset_of(context, buffer, index)
    stride: Extent = 0
    uniform: list[tuple[Value, Extent]] = []
    varying: list[tuple[Value, Extent]] = []
    for term, coefficient in form[0].items():
        if isinstance(term.expr, Index) and term.expr.name == context.vector:
            stride = coefficient
            uniform.append((context.bindings[term.expr.name], coefficient))
            continue
        value = context.evaluate(term)
        (varying if value.varies else uniform).append((value, coefficient))
    pointer, scope = _walk(context, buffer, uniform, form[1])
    offsets = _offsets(context, varying, stride) if varying else None
    return Address(buffer.name, pointer, scope, stride, offsets)


def offset_of(context: Context, buffer: Buffer, index: tuple[Term, ...]) -> Linear:
    """Row-major position as a linear form."""
    offsets, key = context.kernel.offsets, (id(buffer), index)
    known = offsets.get(key)
    if known is not None:
        return known[1]
    total: Linear = ({}, 0)
    stride: Extent = 1
    for term, extent in zip(reversed(index), reversed(buffer.shape), strict=True):
        total = add_linear(total, scale_linear(context.kernel.terms.linear(term), stride))
        stride = stride * extent
    offsets[key] = buffer, total
    return total


def _walk(context: Context, buffer: Buffer, uniform: list[tuple[Value, Extent]], constant: Extent) -> tuple[str, Scope]:
    """The pointer after the uniform terms, outer loops first; a known constant last, where it is an immediate."""
    kernel, element = context.kernel, memory_type(buffer.dtype)
    pointer, scope = kernel.pointers[buffer.name], kernel.root
    key: tuple[object, ...] = ("pointer", buffer.name)
    if not isinstance(constant, int):
        pointer, key = _step(scope, element, pointer, key, kernel.extent(constant))
        constant = 0
    if len(uniform) > 1:
        uniform.sort(key=lambda item: item[0].scope.depth)
    for value, coefficient in uniform:
        scope = deepest(scope, value.scope)
        moved = _scaled(context, value.parts[0], coefficient, scope)
        pointer, key = _step(scope, element, pointer, key, moved)
    if constant:
        scope = context.scope.climb(scope.depth, walls=False)
        pointer, key = _step(scope, element, pointer, key, str(constant))
    return pointer, scope


def _step(scope: Scope, element: str, pointer: str, key: tuple[object, ...], by: str) -> tuple[str, tuple[object, ...]]:
    """One addition to a pointer, remembered by the way to it."""
    if by == "0":
        return pointer, key
    key = (*key, by)
    found: str | None = scope.values.get(key)
    if found is None:
        found = scope.values[key] = scope.emit(f"getelementptr {element}, ptr {pointer}, i64 {by}")
    return found, key


def _scaled(context: Context, register: str, by: Extent, scope: Scope) -> str:
    if isinstance(by, int) and by == 1:
        return register
    if isinstance(by, int) and register.lstrip("-").isdigit():
        return str(int(register) * by)
    key = ("scaled", register, by)
    found: str | None = scope.values.get(key)
    if found is None:
        found = scope.values[key] = scope.emit(f"mul nsw i64 {register}, {context.kernel.extent(by)}")
    return found


def _offsets(context: Context, varying: list[tuple[Value, Extent]], stride: Extent) -> Value:
    """The varying terms of an offset as one vector per part; the vector index itself counts from lane 0 of part 0."""
    scope = deepest(varying[0][0].scope, *(value.scope for value, _ in varying))
    at = context.writer(I64, scope)
    parts = []
    for part in range(context.parts):
        total = ""
        for value, coefficient in varying:
            term = context.spread(value)[part]
            if not (isinstance(coefficient, int) and coefficient == 1):
                size = splat_register(context.kernel.root, "i64", context.kernel.extent(coefficient), context.lanes) \
                    if not isinstance(coefficient, int) else at.constant(coefficient)
                term = at.op("mul", term, size)
            total = at.op("add", total, term) if total else term
        if not (isinstance(stride, int) and stride == 0):
            total = at.op("add", total, lane_offsets(context, at.lanes, part, stride, scope))
        parts.append(total)
    return Value(tuple(parts), I64, context.lanes, scope)


def lane_offsets(context: Context, lanes: int, part: int, stride: Extent, scope: Scope) -> str:
    """stride * (part * lanes + 0, 1, 2, ...)."""
    numbers = [part * lanes + lane for lane in range(lanes)]
    if isinstance(stride, int):
        texts = [str(n * stride) for n in numbers]
        return texts[0] if lanes == 1 else f"<{', '.join(f'i64 {t}' for t in texts)}>"
    root = context.kernel.root
    counting = str(numbers[0]) if lanes == 1 else f"<{', '.join(f'i64 {n}' for n in numbers)}>"
    key = ("lane offsets", lanes, part, stride)
    if key not in root.values:
        kind = vector_type("i64", lanes)
        size = splat_register(root, "i64", context.kernel.extent(stride), lanes)
        root.values[key] = root.emit(f"mul {kind} {size}, {counting}")
    return str(root.values[key])


def lane_pointer(context: Context, scope: Scope, element: str, address: Address, part: int) -> str:
    """The pointer of one part of one lane."""
    if address.offsets is not None:
        return scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {address.offsets.parts[part]}")
    by = lane_offsets(context, 1, part, address.stride, scope)
    return address.pointer if by == "0" else scope.emit(f"getelementptr {element}, ptr {address.pointer}, i64 {by}")


def offsets_of(context: Context, scope: Scope, address: Address, part: int) -> str:
    """How far each lane's element is from the address's pointer."""
    if address.offsets is not None:
        return address.offsets.parts[part]
    return lane_offsets(context, context.lanes, part, address.stride, scope)


def pointers_of(context: Context, scope: Scope, element: str, address: Address, part: int) -> str:
    """One pointer per lane."""
    by = offsets_of(context, scope, address, part)
    return scope.emit(f"getelementptr {element}, ptr {address.pointer}, {vector_type('i64', context.lanes)} {by}")
