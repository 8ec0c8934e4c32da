"""How loops over vectors cover a stretch of positions: several vectors at once, single ones, a last one with lanes masked.

Guarantees: the spans of a stretch are its positions, each once, in order.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.nest import For, altered
from loopwright.ir.types import BOOL, I64
from loopwright.lower.codegen.arithmetic import Lanes
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Mask, Value, splat_register
from loopwright.lower.codegen.conversions import HALF
from loopwright.lower.codegen.machine import vector_type
from loopwright.lower.codegen.text import Carried, Scope, alone, branch, loop
from loopwright.lower.passes import WORD
from loopwright.lower.target import Target

FEWEST = 4  # lanes of vectors for what filled none
Span = tuple[str, str]  # from one position to before another


class VectorSpan:
    """A stretch [low, high) of a vectorised loop, `parts` vectors at a time; masked: past `end` lanes are inactive. `lanes`:
    those of its vectors, where they are not the loop's."""

    __slots__ = ("end", "high", "lanes", "low", "masked", "parts")

    def __init__(self, low: str, high: str, parts: int, end: str = "", masked: bool = False, lanes: int = 0) -> None:
        self.low, self.high, self.parts, self.end, self.masked, self.lanes = low, high, parts, end, masked, lanes


def vector_spans(context: Context, span: Extent | Span, lanes: int, unroll: int, one_loop: bool,
                 halved: bool = False, singles: bool = False) -> list[VectorSpan]:
    """How [0, extent) or [low, high) is covered. Where masks are cheap the masked loop also does the single vectors, and
    with `one_loop` everything where the schedule has one vector in flight: the body is long, and stands once. `halved`: half
    as many vectors at once before the single ones. `singles`: these are never masked."""
    if isinstance(span, int):
        return _known_spans(span, lanes, unroll)
    low, high = span if isinstance(span, tuple) else ("0", context.kernel.extent(span))
    if lanes * unroll == 1:
        return [VectorSpan(low, high, 1)]
    if one_loop and unroll == 1 and lanes > 1 and context.kernel.target.has_masks:
        return [VectorSpan(low, high, 1, high, masked=True)]
    place = context.scope if isinstance(span, tuple) else context.kernel.root
    main = _whole(place, low, high, lanes * unroll)
    spans = [VectorSpan(low, main, unroll)]
    if lanes == 1:
        return [*spans, VectorSpan(main, high, 1)]
    if halved and unroll > 2:
        low, main = main, _whole(place, low, high, lanes * unroll // 2)
        spans.append(VectorSpan(low, main, unroll // 2))
    if unroll > 1 and (singles or not context.kernel.target.has_masks):
        single = _whole(place, low, high, lanes)
        spans.append(VectorSpan(main, single, 1))
        main = single
    return [*spans, VectorSpan(main, high, 1, high, masked=True)]


def masks_slowly(target: Target, dtypes: Iterable[np.dtype]) -> bool:
    """Whether some of these are loaded and stored lane by lane under a mask, and none is converted, which takes longer for one
    than for a vector."""
    short = {d for d in dtypes if d.itemsize < WORD}
    return not target.has_masks and bool(short) and short.isdisjoint(HALF)


def narrowing(spans: Sequence[VectorSpan], lanes: int, place: Scope) -> list[VectorSpan]:
    """The same without masks: what filled none of so many lanes in vectors of fewer, then element by element."""
    *others, last = spans
    fewer = max(lanes // 4, FEWEST)
    if lanes <= fewer:
        return [*others, VectorSpan(last.low, last.high, 1, lanes=1)]
    high = _whole(place, last.low, last.high, fewer)
    return [*others, VectorSpan(last.low, high, 1, lanes=fewer), VectorSpan(high, last.high, 1, lanes=1)]


def _whole(place: Scope, low: str, high: str, size: int) -> str:
    """The end of the last whole step of `size` from low."""
    key = ("whole", low, high, size)
    if key not in place.values:
        count = high if low == "0" else place.emit(f"sub i64 {high}, {low}")
        rest = place.emit(f"and i64 {count}, {size - 1}" if size & (size - 1) == 0 else f"srem i64 {count}, {size}")
        place.values[key] = place.emit(f"sub i64 {high}, {rest}")
    return str(place.values[key])


def _known_spans(extent: int, lanes: int, unroll: int) -> list[VectorSpan]:
    if lanes * unroll == 1:
        return [VectorSpan("0", str(extent), 1)]
    main = extent - extent % (lanes * unroll)
    single = extent - extent % lanes
    spans = [VectorSpan("0", str(main), unroll)] if main else []
    if single > main:
        spans.append(VectorSpan(str(main), str(single), (single - main) // lanes))
    if extent > single:
        spans.append(VectorSpan(str(single), str(extent), 1, str(extent), masked=True))
    return spans


def short_spans(extent: int, lanes: int) -> list[VectorSpan]:
    """Few known positions, without masks: whole vectors, then one half as long, and so on."""
    spans, at = [], 0
    while at < extent:
        while lanes > extent - at:
            lanes //= 2
        count = (extent - at) // lanes
        spans.append(VectorSpan(str(at), str(at + count * lanes), 1, lanes=lanes))
        at += count * lanes
    return spans


def mostly_whole(context: Context, index: str, end: str, place: Scope) -> Context:
    """As `masked`, in a loop in which few vectors or none have lanes past the end."""
    here, base = masked(context, index, end, place), context.bindings[index]
    assert here.mask is not None
    last = base.scope.emit(f"add nsw i64 {base.parts[0]}, {context.lanes}")
    whole = base.scope.emit(f"icmp sle i64 {last}, {end}")
    return altered(here, mask=Mask(here.mask.value, here.mask.outer, whole))


def masked(context: Context, index: str, end: str, place: Scope | None = None, *, is_rest: bool = False) -> Context:
    """The context with the lanes at or past `end` inactive; `place` is where `end` is known, the whole function by default.
    is_rest: there are such, of a row's only masked vector."""
    lanes, base = context.lanes, context.bindings[index]
    count = base.scope.emit(f"sub nsw i64 {end}, {base.parts[0]}") if is_rest and not context.kernel.target.has_masks else ""
    if index == context.vector and (lanes > 8 if context.kernel.target.has_masks else lanes >= 8):
        return altered(context, mask=Mask(first_lanes(context, base.parts[0], end, base.scope), context.mask, count=count))
    here = context.index_vector(index)
    at = Lanes(here.scope, I64, lanes, context.kernel.target)
    bound = constant_text(int(end), "i64", lanes) if end.isdigit() else \
        splat_register(place or context.kernel.root, "i64", end, lanes)
    parts = tuple([at.compare("lt", r, bound) for r in here.parts])
    return altered(context, mask=Mask(Value(parts, BOOL, lanes, here.scope), context.mask, count=count))


def first_lanes(context: Context, base: str, end: str, scope: Scope) -> Value:
    """The lanes from position `base` on that lie before `end`, by how many these are: bytes are compared, not positions, or
    words, where masks are vectors of words."""
    lanes, number = context.lanes, "i8" if context.kernel.target.has_masks or context.lanes > 8 else "i32"
    kind = vector_type(number, lanes)
    left = scope.emit(f"sub nsw i64 {end}, {base}")
    order, found = ", ".join(f"{number} {k}" for k in range(lanes)), []
    for part in range(context.parts):
        some = scope.emit(f"sub nsw i64 {left}, {part * lanes}") if part else left
        some = scope.call("i64", "llvm.smax.i64", [("i64", some), ("i64", "0")])
        some = scope.call("i64", "llvm.smin.i64", [("i64", some), ("i64", str(lanes))])
        some = scope.emit(f"trunc i64 {some} to {number}")
        found.append(scope.emit(f"icmp {'ult' if number == 'i8' else 'slt'} {kind} <{order}>, "
                                f"{splat_register(scope, number, some, lanes)}"))
    return Value(tuple(found), BOOL, lanes, scope)


# ---- loops --------------------------------------------------------------------------------------
def cover(context: Context, statement: For, spans: Sequence[VectorSpan], rest: int, run: Callable[[Context], None],
          place: Scope) -> None:
    """`run` for the vectors of each span, of `rest` lanes where they are masked; `place` is where the ends are known."""
    name = statement.index.name
    is_row = bool(context.bindings)
    for part in spans:
        wide, width = context, part.lanes or (rest if part.masked else statement.lanes)
        if width * part.parts > 1:
            wide = altered(context, lanes=width, parts=part.parts, vector=name)
        context.kernel.forget()

        def body(inner: Scope, at: str, state: list[str], wide: Context = wide, end: str = part.end,
                 is_rest: bool = part.masked and is_row) -> list[str]:
            here = wide.bind_index(name, at, inner)
            run(masked(here, name, end, place, is_rest=is_rest) if end else here)
            return []
        step = width * part.parts * statement.step
        if part.low.isdigit() and part.high.isdigit() and int(part.low) < int(part.high) <= int(part.low) + step:
            alone(context.scope, partial(body, at=part.low, state=[]))
        else:
            loop(context.scope, part.low, part.high, str(step), (), body)
    context.kernel.forget()


def by_width(context: Context, spans: Sequence[VectorSpan], lanes: int,
             over: Callable[[Context, Sequence[VectorSpan]], None]) -> None:
    """What `over` does for the spans of a stretch, of which only the last is masked; for a stretch that fills no vector, in a
    masked one at once."""
    scope, low, high = context.scope, spans[0].low, spans[-1].high
    length = high if low == "0" else scope.emit(f"sub i64 {high}, {low}")

    def narrow(inside: Scope) -> Carried:
        over(context.at(inside), [VectorSpan(low, high, 1, high, masked=True)])
        return ()

    def wide(inside: Scope) -> Carried:
        over(context.at(inside), spans)
        return ()
    branch(scope, scope.emit(f"icmp slt i64 {length}, {lanes}"), narrow, wide)
