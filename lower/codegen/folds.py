"""Reductions and scans: the loops.

Guarantees: sums of floats run in blocks whose totals are added in blocks again, so that no accumulator takes more than
a few dozen additions in a row.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import Index, Load, walk
from loopwright.ir.nest import Prefetch, Reduction, Store, altered
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Value
from loopwright.lower.codegen.extremes import Search, searched
from loopwright.lower.codegen.firsts import FEWER, first, sought
from loopwright.lower.codegen.fold_states import Fold, Joint, State
from loopwright.lower.codegen.machine import vector_type
from loopwright.lower.codegen.spans import Span, VectorSpan, masked, masks_slowly, vector_spans
from loopwright.lower.codegen.stretches import turned, turns_of
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Arm, Scope, branch, loop

BLOCKS = (16, 16, 16, 16)  # additions in a row: blocks of blocks, blocks, iterations
COUNTED = 1 << 24  # turns of a loop, whose vectors are counted in 32 bits
BRIEF, BRIEF_SEARCH = 4, 2  # turns of a loop over several vectors, without as many of which positions are found in single ones
FEW = 64  # of several loops, which need no blocks
Over = tuple[tuple[Index, Extent], ...]
Partial = Callable[[Scope, str, str, bool], State]  # the fold of [low, high), from the identity; whether that surely has points


def fold(context: Context, monoid: str, over: Over, body: Term, dtype: np.dtype, *, also: tuple[Store | Prefetch, ...] = (),
         lanes: int = 1, unroll: int = 1, fused: bool = False) -> Value:
    """The reduction's value at the end of the context's scope. `lanes` > 1: the last index runs over the lanes."""
    folding = Fold(context, monoid, body, dtype, also, lanes > 1 or unroll > 1, fused)
    return folding.result(context, context.scope, folded(context, folding, over, lanes, unroll))


def fold_together(context: Context, reductions: Sequence[Reduction]) -> list[Value]:
    """The values of reductions that share one pass."""
    first, joint = reductions[0], folding_of(context, reductions)
    return joint.results(context, folded(context, joint, first.over, first.lanes, first.unroll))


def folding_of(context: Context, reductions: Sequence[Reduction]) -> Joint:
    """Reductions that share one pass, as one fold."""
    first, terms = reductions[0], context.kernel.terms
    over_lanes = first.lanes > 1 or first.unroll > 1
    return Joint([Fold(context, r.monoid, terms.of(r.body), r.dtype, r.also, over_lanes, r.fused) for r in reductions])


def folded(context: Context, folding: Fold | Joint, over: Over, lanes: int, unroll: int,
           span: Span | None = None) -> State:
    """The state at the end, without lanes of its own; with `span` of those points alone whose first index is in it."""
    if folding.also:
        context.kernel.forget()
    if lanes > 1 or unroll > 1:
        assert context.vector is None, "a vector reduction inside a vector loop"
        if (alone := sought(folding)) is not None and len(over) == 1:
            return first(context, alone, over[0][0], span or ("0", context.kernel.extent(over[0][1])), lanes)
        state = folding.across(context.scope, _total(context, folding, over, lanes, unroll, span), lanes)
    else:
        state = _each(context, folding, over, span)
    if folding.also:
        context.kernel.forget()
    return state


def _each(context: Context, folding: Fold | Joint, over: Over, span: Span | None) -> State:
    """The fold over all of `over`, or a span of its first index, an element at a time. Where several sizes are few, or turn
    out to be, as those of windows are, there are no blocks in the loops."""
    if not folding.cascades or len(over) == 1:
        return _total(context, folding, over, 0, 1, span)
    points, root, kinds = product(n for _, n in over), context.kernel.root, folding.types(context)
    if isinstance(points, int):
        return _total(context, folding, over, 0, 1, span, short=points <= FEW)
    key = ("short", points)
    if key not in root.values:
        few = [root.emit(f"icmp sle i64 {context.kernel.extent(n)}, {FEW}") for n in (*(n for _, n in over), points)]
        root.values[key] = reduce(lambda a, b: root.emit(f"and i1 {a}, {b}"), few)

    def arm(short: bool) -> Arm:
        return lambda scope: list(zip(kinds, _total(context.at(scope), folding, over, 0, 1, span, short=short), strict=True))
    return branch(context.scope, str(root.values[key]), arm(True), arm(False))


def _total(context: Context, folding: Fold | Joint, over: Over, lanes: int, unroll: int,
           span: Span | None = None, *, short: bool = False, start: State | None = None) -> State:
    """The fold over all of `over`, or a span of its first index, from the identity, or from `start`; with lanes, one part of
    that many lanes. short: without blocks."""
    (index, extent), rest = over[0], over[1:]
    if not rest and lanes:
        return _vector_total(context, folding, index, extent, lanes, unroll, span)
    shape = altered(context, lanes=lanes, parts=1) if lanes else context
    kinds, zero = folding.types(shape), start or folding.zero(shape)
    goes_on = not lanes and (short or not folding.cascades)  # from one row of points to the next

    place = context.scope if span else context.kernel.root
    fewer, span = folding.narrowed(context, index, span or ("0", context.kernel.extent(extent)), place)

    def partial(scope: Scope, low: str, high: str, runs: bool) -> State:
        def body(inner: Scope, at: str, state: list[str]) -> list[str]:
            here = context.bind_index(index.name, at, inner)
            if not rest:
                return fewer.step(here, state, index.name)
            if goes_on:
                return _total(here, fewer, rest, 0, 1, short=short, start=state)
            return fewer.merge(inner, state, _total(here, fewer, rest, lanes, unroll, short=short), shape.lanes)
        return loop(scope, low, high, "1", list(zip(kinds, zero, strict=True)), body, runs=runs)

    def merge(scope: Scope, a: State, b: State) -> State:
        return fewer.merge(scope, a, b, shape.lanes)
    blocks = _blocks(extent, 1) if folding.cascades and not short else ()
    return cascade(context.scope, span, blocks, list(zip(kinds, zero, strict=True)), partial, merge)


def _blocks(extent: Extent, step: int) -> tuple[int, ...]:
    """Sizes of the blocks, outermost first; those that a known extent fits into are left out."""
    sizes, size = [], step
    for count in reversed(BLOCKS):
        size *= count
        if not isinstance(extent, int) or extent > size:
            sizes.append(size)
    return tuple(reversed(sizes))


def cascade(scope: Scope, span: Span, blocks: tuple[int, ...], zero: Sequence[tuple[str, str]], partial: Partial,
            merge: Callable[[Scope, State, State], State], runs: bool = False) -> State:
    """The fold of a span, block by block, each block from the identity. runs: it surely has points, as all blocks do."""
    low, high = span
    if not blocks:
        return partial(scope, low, high, runs)

    def body(inner: Scope, at: str, state: list[str]) -> list[str]:
        end = inner.call("i64", "llvm.smin.i64", [("i64", inner.emit(f"add nsw i64 {at}, {blocks[0]}")), ("i64", high)])
        return merge(inner, state, cascade(inner, (at, end), blocks[1:], zero, partial, merge, runs=True))
    return loop(scope, low, high, str(blocks[0]), zero, body, runs=runs)


def _vector_total(context: Context, folding: Fold | Joint, index: Index, extent: Extent, lanes: int, unroll: int,
                  span: Span | None) -> State:
    """The last index over the lanes, in two stretches where a comparison that turns on the way chooses what is folded."""
    turn = next(iter(turns_of(context, index, folding.expressions())), None)
    if turn is None:
        return _stretch(context, folding, index, extent, lanes, unroll, span)
    sides = turned(context, turn, span or ("0", context.kernel.extent(extent)))
    folds = [folding.on_one_side(turn, behind) for behind in (False, True)]
    found = [_stretch(context, f, index, extent, lanes, unroll, side)
             for f, side in zip(folds, sides, strict=True) if not f.is_nothing()]
    if not found:
        return folding.zero(altered(context, lanes=lanes, parts=1))
    return reduce(lambda a, b: folding.merge(context.scope, a, b, lanes), found)


def _stretch(context: Context, folding: Fold | Joint, index: Index, extent: Extent, lanes: int, unroll: int,
             stretch: Span | None) -> State:
    """A stretch of it: unrolled vectors, then single ones, then a masked one."""
    state: State | None = None
    for span in _spans(context, folding, stretch or extent, lanes, unroll):
        if state is None and not span.masked:
            state = _main(context, folding, index, extent, span, lanes)
        else:
            state = _rest(context, folding, index, span, lanes, state, context.scope if stretch else context.kernel.root)
    return state if state is not None else folding.zero(altered(context, lanes=lanes, parts=1))


def _spans(context: Context, folding: Fold | Joint, stretch: Extent | Span, lanes: int, unroll: int) -> list[VectorSpan]:
    """What covers a stretch. Positions of several vectors take long to become one: rows that are short go vector by vector."""
    least = (BRIEF if searched(folding) is None else BRIEF_SEARCH) * lanes * unroll if folding.positions else 0
    if isinstance(stretch, int) and stretch < least:
        unroll = 1
    spans = vector_spans(context, stretch, lanes, unroll, one_loop=not folding.also, singles=unroll > 2)
    if isinstance(stretch, int) or not least or len(spans) < 3:
        return spans
    main, single, *rest = spans
    place = context.scope if isinstance(stretch, tuple) else context.kernel.root
    brief = place.emit(f"icmp slt i64 {place.emit(f'sub i64 {single.high}, {main.low}')}, {least}")
    main.high = single.low = place.emit(f"select i1 {brief}, i64 {main.low}, i64 {main.high}")
    return [main, single, *rest]


def _main(context: Context, folding: Fold | Joint, index: Index, extent: Extent, span: VectorSpan, lanes: int) -> State:
    """The unrolled loop, in blocks, its accumulators joined. Positions are numbers of vectors there, no wider than what is
    compared, and become positions behind it."""
    wide = altered(context, lanes=lanes, parts=span.parts, vector=index.name)
    one = altered(context, lanes=lanes, parts=1)
    step, place = lanes * span.parts, "i64" if folding.widest > 4 else "i32"
    number = vector_type(place, lanes)
    counted = folding.counted(constant_text(0, place, lanes), place)
    start = list(zip(counted.types(wide), counted.zero(wide), strict=True))
    if folding.positions:
        start.append((number, constant_text(0, place, lanes)))

    def partial(scope: Scope, low: str, high: str, runs: bool) -> State:
        def body(inner: Scope, at: str, now: list[str]) -> list[str]:
            here = wide.bind_index(index.name, at, inner)
            if not folding.positions:
                return folding.step(here, now, index.name)
            found = folding.counted(now[-1], place).step(here, now[:-1], index.name)
            return [*found, inner.emit(f"add {number} {now[-1]}, {constant_text(1, place, lanes)}")]

        def joined(inner: Scope, runs: bool) -> State:
            if (alone := searched(folding)) is not None:
                return Search(alone, index.name, wide.at(inner), place).state(inner, low, high)
            found = loop(inner, low, high, str(step), start, body, runs=runs)
            return counted.located(wide.at(inner), low, found[:-1] if folding.positions else found)
        if runs or span.parts == 1 or isinstance(extent, int):
            return joined(scope, runs)
        some = scope.emit(f"icmp slt i64 {low}, {high}")  # short rows have nothing to join
        return branch(scope, some, lambda inner: list(zip(kinds, joined(inner, True), strict=True)), None, zero)

    def merge(scope: Scope, a: State, b: State) -> State:
        return folding.merge(scope, a, b, lanes, ordered=True)
    blocks = _blocks(extent, step) if folding.cascades else (COUNTED * step,) if folding.positions else ()
    kinds = folding.types(one)
    zero = list(zip(kinds, folding.zero(one), strict=True))
    return cascade(context.scope, (span.low, span.high), blocks, zero, partial, merge)


def _rest(context: Context, folding: Fold | Joint, index: Index, span: VectorSpan, lanes: int, state: State | None,
          place: Scope) -> State:
    """What the unrolled loop leaves, going on from its state; `place` is where the end of the span is known."""
    wide = altered(context, lanes=lanes, parts=1, vector=index.name)
    state = state or folding.zero(wide)
    if span.masked and lanes > FEWER and _masks_slowly(context, folding):
        return _ends(context, folding, index, span, lanes, state)
    kinds = folding.types(wide)

    def body(inner: Scope, at: str, now: list[str]) -> list[str]:
        here = wide.bind_index(index.name, at, inner)
        return folding.step(masked(here, index.name, span.end, place) if span.masked else here, now, index.name)
    return loop(context.scope, span.low, span.high, str(lanes), list(zip(kinds, state, strict=True)), body)


def _masks_slowly(context: Context, folding: Fold | Joint) -> bool:
    """Whether what is read would be loaded lane by lane under a mask, and nothing but folded."""
    read = [x.dtype for e in folding.expressions() for x in walk(e) if isinstance(x, Load)]
    is_alone = not folding.positions and not any(isinstance(x, Store) for x in folding.also)
    return is_alone and masks_slowly(context.kernel.target, read)


def _ends(context: Context, folding: Fold | Joint, index: Index, span: VectorSpan, lanes: int, state: State) -> State:
    """What fills no vector, in narrower ones, then point by point, beside the state; nobody asks for memory there."""
    scope, low, folding = context.scope, span.low, folding.alone()
    for width in (FEWER, 1):
        shape = altered(context, lanes=width, parts=1, vector=index.name if width > 1 else None)
        rest = scope.emit(f"and i64 {scope.emit(f'sub i64 {span.high}, {low}')}, {width - 1}")
        end = scope.emit(f"sub i64 {span.high}, {rest}")

        def body(inner: Scope, at: str, now: list[str], shape: Context = shape) -> list[str]:
            return folding.step(shape.bind_index(index.name, at, inner), now, index.name)
        found = loop(scope, low, end, str(width), list(zip(folding.types(shape), folding.zero(shape), strict=True)), body)
        nothing = altered(context, lanes=lanes, parts=1)
        wide = [_among(scope, *x, width, lanes) for x in zip(folding.types(shape), found, folding.types(nothing),
                                                            folding.zero(nothing), strict=True)]
        state, low = folding.merge(scope, state, wide, lanes), end
    return state


def _among(scope: Scope, kind: str, value: str, wide: str, others: str, width: int, lanes: int) -> str:
    """A vector that begins with the lanes of another, or with a number."""
    if width == 1:
        return scope.emit(f"insertelement {wide} {others}, {kind} {value}, i32 0")
    longer = ", ".join(f"i32 {min(k, width - 1)}" for k in range(lanes))
    value = scope.emit(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{longer}>")
    order = ", ".join(f"i32 {k if k < width else lanes + k}" for k in range(lanes))
    return scope.emit(f"shufflevector {wide} {value}, {wide} {others}, <{lanes} x i32> <{order}>")


def prefix(context: Context, monoid: str, index: Index, last: Term, body: Term, dtype: np.dtype) -> Value:
    """The fold up to and including `last`, which is one number for all lanes."""
    end = context.evaluate(last)
    if end.varies:
        raise ValueError("a running fold that ends elsewhere in every lane is scheduled as a Scan")
    folding = Fold(context, monoid, body, dtype, ())
    high = context.scope.emit(f"add nsw i64 {end.parts[0]}, 1")

    def step(inner: Scope, at: str, state: list[str]) -> list[str]:
        return folding.step(context.bind_index(index.name, at, inner), state, index.name)
    start = list(zip(folding.types(context), folding.nothing_yet(context), strict=True))
    return folding.result(context, context.scope, loop(context.scope, "0", high, "1", start, step))
