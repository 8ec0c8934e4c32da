"""Reductions and scans.

Guarantees: sums of floats run in blocks whose totals are added in blocks again, so that no accumulator takes more than
a few dozen additions in a row; max and min propagate NaN; argmax and argmin give the first extreme or the first NaN.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce

import numpy as np

from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import Apply, Expr, Index, Literal, When
from loopwright.ir.monoids import COMBINING, identity
from loopwright.ir.nest import Prefetch, Reduction, Store
from loopwright.ir.types import BOOL, F32, I64, U8, is_float
from loopwright.lower.codegen.arithmetic import Lanes, emitter
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Value, counting
from loopwright.lower.codegen.conversions import HALF, convert, rounded
from loopwright.lower.codegen.machine import Machine, register_type, vector_type
from loopwright.lower.codegen.memory import prefetch
from loopwright.lower.codegen.narrowing import narrowed_together
from loopwright.lower.codegen.spans import Span, VectorSpan, masked, vector_spans
from loopwright.lower.codegen.stretches import Turn, chosen, settled, turn_of, turned
from loopwright.lower.codegen.terms import Term, union
from loopwright.lower.codegen.text import Arm, Scope, branch, loop
from loopwright.lower.fusing import values, writes

BLOCKS = (16, 16, 16, 16)  # additions in a row: blocks of blocks, blocks, iterations
FEW = 64  # of several loops, which need no blocks
Over = tuple[tuple[Index, Extent], ...]
State = list[str]  # registers: all parts of the first component, then of the second (arg folds: value, position)


class Fold:
    """One reduction: its components and how they combine. `wide` is the shape (lanes, parts) of the state."""

    def __init__(self, context: Context, monoid: str, body: Term, dtype: np.dtype, also: tuple[Store | Prefetch, ...],
                 over_lanes: bool = False, fused: bool = False) -> None:
        self.over_lanes = over_lanes  # the lanes are elements of one fold, not of the result
        self.monoid, self.body, self.dtype, self.also = monoid, body, dtype, also
        self.kernel = context.kernel
        self.positions = monoid in ("argmax", "argmin")
        wanted = body.dtype if self.positions else dtype
        if wanted == BOOL and monoid not in ("any", "all", "max", "min"):
            wanted = U8
        self.work = F32 if wanted in HALF else wanted
        self.cascades = monoid == "sum" and is_float(self.work)
        self.fused = fused and self.cascades

    def narrowed(self, context: Context, index: Index, span: Span, place: Scope) -> tuple[Fold, Span]:
        """The fold over what of a span, which `place` has, is not the identity by its position alone."""
        (fold,), span = _narrowed([self], context, index, span, place)
        return fold, span

    def expressions(self) -> list[Expr]:
        """What is computed at each point."""
        return [self.body.expr, *values(self.also), *(e for _, index in writes(self.also) for e in index)]

    def on_one_side(self, turn: Turn, behind: bool) -> Fold:
        """The fold as it is before a turn, or behind it, where it asks for no memory ahead that it does not read."""
        fold, terms = copy(self), self.kernel.terms
        fold.body = terms.of(chosen(self.body.expr, turn, behind))
        also = [settled(s, turn, behind) if isinstance(s, Store) else s for s in self.also]
        read = union([fold.body.buffers, *(terms.of(s.value).buffers for s in also if isinstance(s, Store))])
        fold.also = tuple([s for s in also if isinstance(s, Store) or s.write or s.buffer in read])
        return fold

    def is_nothing(self) -> bool:
        """Whether each point is the identity, and nothing else is done there."""
        nothing = isinstance(e := self.body.expr, Literal) and bool(np.equal(e.value, identity(self.monoid, self.work)))
        return nothing and not self.also and not self.positions

    def types(self, context: Context) -> list[str]:
        value = vector_type(register_type(self.work), context.lanes)
        position = [vector_type("i64", context.lanes)] * context.parts if self.positions else []
        return [value] * context.parts + position

    def zero(self, context: Context) -> State:
        """The identity. Positions start at the first element that a lane takes, so that an array of the identity alone is
        right."""
        value = constant_text(identity(self.monoid, self.work), register_type(self.work), context.lanes)
        if not self.positions:
            return [value] * context.parts
        if not self.over_lanes:
            return [value] * context.parts + [constant_text(0, "i64", context.lanes)] * context.parts
        return [value] * context.parts + [counting(part * context.lanes, context.lanes) for part in range(context.parts)]

    def nothing_yet(self, context: Context) -> State:
        """What a running fold comes to before its first element: of a sum -0.0, which leaves -0.0 as it is, as NumPy does."""
        return [constant_text(-0.0, register_type(self.work), context.lanes)] * context.parts if self.cascades \
            else self.zero(context)

    def at(self, scope: Scope, lanes: int) -> Lanes:
        return Lanes(scope, self.work, lanes, self.kernel.target, self.kernel.flags)

    def element(self, context: Context, index: str) -> State:
        """The body's value at the current point, as a state."""
        x = context.evaluate(self.body)
        parts = []
        for register in context.spread(x):
            parts.append(convert(context.scope, register, x.dtype, self.work, context.lanes, self.kernel.target))
        if self.positions:
            where = context.index_vector(index) if index == context.vector else context.bindings[index]
            parts += context.spread(where)
        return parts

    def step(self, context: Context, state: State, index: str) -> State:
        """One more point, after its stores; inactive lanes keep what they have."""
        for statement in self.also:
            if isinstance(statement, Store):
                self.kernel.store(context, statement)
            else:
                prefetch(context, statement)
        new = self._added(context, state) or \
            self.merge(context.scope, state, self.element(context, index), context.lanes, ordered=True)
        active = context.active()
        if active is None:
            return new
        masks, kinds = vector_type("i1", context.lanes), self.types(context)
        return [context.scope.emit(f"select {masks} {active[k % context.parts]}, {kinds[k]} {a}, {kinds[k]} {b}")
                for k, (a, b) in enumerate(zip(new, state, strict=True))]

    def _added(self, context: Context, state: State) -> State | None:
        """A sum with one more product, in one rounding where that is left open; None where it is no such sum."""
        if not (self.fused and isinstance(e := self.body.expr, Apply) and e.fn == "mul" and e.dtype == self.work):
            return None
        a, b = (context.spread(context.evaluate(x)) for x in self.body.args)
        machine = self.at(context.scope, context.lanes).machine
        return [machine.fma(x, y, total) for x, y, total in zip(a, b, state, strict=True)]

    def merge(self, scope: Scope, a: State, b: State, lanes: int, *, ordered: bool = False) -> State:
        """Combine two states. ordered: every position of b comes after those of a."""
        at = self.at(scope, lanes)
        if not self.positions:
            return [self.combine(at, x, y) for x, y in zip(a, b, strict=True)]
        half = len(a) // 2
        values, places = [], []
        for k in range(half):
            take = _better(at, self.monoid, a[k], b[k])
            if not ordered:
                earlier = scope.emit(f"icmp slt {vector_type('i64', lanes)} {b[half + k]}, {a[half + k]}")
                take = at.mask("or", take, at.mask("and", _tied(at, a[k], b[k]), earlier))
            kind = vector_type("i64", lanes)
            values.append(at.select(take, b[k], a[k]))
            places.append(scope.emit(f"select {vector_type('i1', lanes)} {take}, {kind} {b[half + k]}, {kind} {a[half + k]}"))
        return values + places

    def combine(self, at: Lanes, acc: str, x: str) -> str:
        if self.monoid in ("max", "min") and is_float(self.work):
            return _extreme(at.machine, self.monoid, x, acc)  # what is asked of x does not wait for acc
        return emitter(COMBINING[self.monoid], self.work)(at, acc, x)

    def join(self, scope: Scope, state: State, lanes: int) -> State:
        """All parts into one, as a tree."""
        count = len(state) // (2 if self.positions else 1)
        parts = [[state[k + count * c] for c in range(len(state) // count)] for k in range(count)]
        while len(parts) > 1:
            pairs = [self.merge(scope, a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
        return parts[0]

    def across(self, scope: Scope, state: State, lanes: int) -> State:
        """All lanes of a one-part state into a scalar: halves are folded together."""
        kinds = [register_type(self.work), "i64"]
        while lanes > 1:
            half = lanes // 2
            halves = [[_half(scope, kinds[c], r, lanes, start) for c, r in enumerate(state)] for start in (0, half)]
            state = self.merge(scope, halves[0], halves[1], half)
            lanes = half
        return state

    def result(self, context: Context, scope: Scope, state: State) -> Value:
        """The state as a value of the reduction's dtype."""
        if self.positions:
            return Value(tuple(state[len(state) // 2:]), I64, context.lanes, scope)
        parts = state
        if self.dtype in HALF:
            machine = self.at(scope, context.lanes).machine
            parts = [rounded(machine, r, self.dtype) for r in state]
        elif self.work != self.dtype:
            parts = [convert(scope, r, self.work, self.dtype, context.lanes, self.kernel.target) for r in state]
        return Value(tuple(parts), self.dtype, context.lanes, scope)


def _half(scope: Scope, element: str, register: str, lanes: int, start: int) -> str:
    kind, half = vector_type(element, lanes), lanes // 2
    if half == 1:
        return scope.emit(f"extractelement {kind} {register}, i32 {start}")
    order = ", ".join(f"i32 {start + k}" for k in range(half))
    return scope.emit(f"shufflevector {kind} {register}, {kind} poison, <{half} x i32> <{order}>")


def _extreme(m: Machine, monoid: str, acc: str, x: str) -> str:
    """max or min that keeps a NaN: x where it is NaN, by the comparison; acc where that is."""
    picked = m.maximum(acc, x) if monoid == "max" else m.minimum(acc, x)
    return m.select(m.compare("unordered", acc, acc), acc, picked)


def _better(at: Lanes, monoid: str, a: str, b: str) -> str:
    """b goes before a whatever their positions: it is more extreme, or the only NaN."""
    if not is_float(at.dtype):
        return at.compare("gt" if monoid == "argmax" else "lt", b, a)
    relation = "ugt" if monoid == "argmax" else "ult"
    m = at.machine
    more = at.scope.emit(f"fcmp {relation} {at.kind} {b}, {a}")
    return m.both(more, at.scope.emit(f"fcmp ord {at.kind} {a}, {a}"))


def _tied(at: Lanes, a: str, b: str) -> str:
    if not is_float(at.dtype):
        return at.compare("eq", a, b)
    m = at.machine
    nans = m.both(m.compare("unordered", a, a), m.compare("unordered", b, b))
    return m.either(m.compare("eq", a, b), nans)


def _narrowed(folds: Sequence[Fold], context: Context, index: Index, span: Span, place: Scope) -> tuple[Sequence[Fold], Span]:
    """Folds over what of a span, which `place` has, is not the identity of each by the position alone."""
    if any(f.positions or f.also or not isinstance(f.body.expr, When) for f in folds):
        return folds, span
    found = [copy(f) for f in folds]
    bodies, span = narrowed_together(context, [f.body for f in folds], [identity(f.monoid, f.work) for f in folds], index,
                                     span, place)
    for f, body in zip(found, bodies, strict=True):
        f.body = body
    return found, span


class Joint:
    """Several folds in one pass: their states one after the other."""

    def __init__(self, folds: Sequence[Fold]) -> None:
        self.folds, self.also = folds, [x for f in folds for x in f.also]
        self.cascades = any(f.cascades for f in folds)

    def narrowed(self, context: Context, index: Index, span: Span, place: Scope) -> tuple[Joint, Span]:
        """The same of folds that ask the same."""
        folds, span = _narrowed(self.folds, context, index, span, place)
        return Joint(folds), span

    def expressions(self) -> list[Expr]:
        return [e for f in self.folds for e in f.expressions()]

    def on_one_side(self, turn: Turn, behind: bool) -> Joint:
        return Joint([f.on_one_side(turn, behind) for f in self.folds])

    def is_nothing(self) -> bool:
        return all(f.is_nothing() for f in self.folds)

    def split(self, state: State) -> list[State]:
        """Each fold's own registers."""
        shares = [2 if f.positions else 1 for f in self.folds]
        part, at, found = len(state) // sum(shares), 0, []
        for share in shares:
            found.append(state[at:at + share * part])
            at += share * part
        return found

    def types(self, context: Context) -> list[str]:
        return [x for f in self.folds for x in f.types(context)]

    def zero(self, context: Context) -> State:
        return [x for f in self.folds for x in f.zero(context)]

    def step(self, context: Context, state: State, index: str) -> State:
        return [x for f, s in zip(self.folds, self.split(state), strict=True) for x in f.step(context, s, index)]

    def merge(self, scope: Scope, a: State, b: State, lanes: int) -> State:
        pairs = zip(self.folds, self.split(a), self.split(b), strict=True)
        return [r for f, x, y in pairs for r in f.merge(scope, x, y, lanes)]

    def join(self, scope: Scope, state: State, lanes: int) -> State:
        return [x for f, s in zip(self.folds, self.split(state), strict=True) for x in f.join(scope, s, lanes)]

    def across(self, scope: Scope, state: State, lanes: int) -> State:
        return [x for f, s in zip(self.folds, self.split(state), strict=True) for x in f.across(scope, s, lanes)]

    def results(self, context: Context, state: State) -> list[Value]:
        """The value of each fold."""
        return [f.result(context, context.scope, s) for f, s in zip(self.folds, self.split(state), strict=True)]


# ---- loops --------------------------------------------------------------------------------------
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
    shape = replace(context, lanes=lanes, parts=1) if lanes else context
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
    turn = turn_of(context, index, folding.expressions())
    if turn is None:
        return _stretch(context, folding, index, extent, lanes, unroll, span)
    sides = turned(context, turn, span or ("0", context.kernel.extent(extent)))
    folds = [folding.on_one_side(turn, behind) for behind in (False, True)]
    found = [_stretch(context, f, index, extent, lanes, unroll, side)
             for f, side in zip(folds, sides, strict=True) if not f.is_nothing()]
    if not found:
        return folding.zero(replace(context, lanes=lanes, parts=1))
    return reduce(lambda a, b: folding.merge(context.scope, a, b, lanes), found)


def _stretch(context: Context, folding: Fold | Joint, index: Index, extent: Extent, lanes: int, unroll: int,
             stretch: Span | None) -> State:
    """A stretch of it: unrolled vectors, then single ones, then a masked one."""
    state: State | None = None
    for span in vector_spans(context, stretch or extent, lanes, unroll, one_loop=not folding.also):
        if state is None and not span.masked:
            state = _main(context, folding, index, extent, span, lanes)
        else:
            state = _rest(context, folding, index, span, lanes, state, context.scope if stretch else context.kernel.root)
    return state if state is not None else folding.zero(replace(context, lanes=lanes, parts=1))


def _main(context: Context, folding: Fold | Joint, index: Index, extent: Extent, span: VectorSpan, lanes: int) -> State:
    """The unrolled loop, in blocks, its accumulators joined."""
    wide = replace(context, lanes=lanes, parts=span.parts, vector=index.name)
    one = replace(context, lanes=lanes, parts=1)
    start = list(zip(folding.types(wide), folding.zero(wide), strict=True))

    def partial(scope: Scope, low: str, high: str, runs: bool) -> State:
        def body(inner: Scope, at: str, now: list[str]) -> list[str]:
            return folding.step(wide.bind_index(index.name, at, inner), now, index.name)

        def joined(inner: Scope, runs: bool) -> State:
            return folding.join(inner, loop(inner, low, high, str(lanes * span.parts), start, body, runs=runs), lanes)
        if runs or span.parts == 1 or isinstance(extent, int):
            return joined(scope, runs)
        some = scope.emit(f"icmp slt i64 {low}, {high}")  # short rows have nothing to join
        return branch(scope, some, lambda inner: list(zip(kinds, joined(inner, True), strict=True)), None, zero)

    def merge(scope: Scope, a: State, b: State) -> State:
        return folding.merge(scope, a, b, lanes)
    blocks = _blocks(extent, lanes * span.parts) if folding.cascades else ()
    kinds = folding.types(one)
    zero = list(zip(kinds, folding.zero(one), strict=True))
    return cascade(context.scope, (span.low, span.high), blocks, zero, partial, merge)


def _rest(context: Context, folding: Fold | Joint, index: Index, span: VectorSpan, lanes: int, state: State | None,
          place: Scope) -> State:
    """What the unrolled loop leaves, going on from its state; `place` is where the end of the span is known."""
    wide = replace(context, lanes=lanes, parts=1, vector=index.name)
    state = state or folding.zero(wide)
    kinds = folding.types(wide)

    def body(inner: Scope, at: str, now: list[str]) -> list[str]:
        here = wide.bind_index(index.name, at, inner)
        return folding.step(masked(here, index.name, span.end, place) if span.masked else here, now, index.name)
    return loop(context.scope, span.low, span.high, str(lanes), list(zip(kinds, state, strict=True)), body)


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
