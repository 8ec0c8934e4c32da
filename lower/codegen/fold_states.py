"""What reductions keep in registers while they go, and how two such states become one.

Guarantees: max and min propagate NaN; argmax and argmin give the first extreme or the first NaN.
"""
from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from loopwright.ir.loops import Apply, Expr, Index, Literal, When
from loopwright.ir.monoids import COMBINING, identity
from loopwright.ir.nest import Prefetch, Store
from loopwright.ir.types import BOOL, F32, I64, U8, is_float
from loopwright.lower.codegen.arithmetic import Lanes, emitter
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Value, counting, splat_register
from loopwright.lower.codegen.conversions import HALF, convert, rounded
from loopwright.lower.codegen.machine import Machine, any_lane, register_type, vector_type
from loopwright.lower.codegen.narrowing import narrowed_together
from loopwright.lower.codegen.prefetches import prefetch
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.stretches import Turn, chosen, settled
from loopwright.lower.codegen.terms import Term, union
from loopwright.lower.codegen.text import Scope
from loopwright.lower.fusing import values, writes

State = list[str]  # registers: all parts of the first component, then of the second (arg folds: value, position)


class Fold:
    """One reduction: its components and how they combine. `wide` is the shape (lanes, parts) of the state."""

    def __init__(self, context: Context, monoid: str, body: Term, dtype: np.dtype, also: tuple[Store | Prefetch, ...],
                 over_lanes: bool = False, fused: bool = False) -> None:
        self.over_lanes = over_lanes  # the lanes are elements of one fold, not of the result
        self.monoid, self.body, self.dtype, self.also = monoid, body, dtype, also
        self.kernel = context.kernel
        self.positions = monoid in ("argmax", "argmin")
        self.number: str | None = None  # of the vectors that the fold is at, where positions are such numbers
        self.place = "i64"  # the type of a position
        wanted = body.dtype if self.positions else dtype
        if wanted == BOOL and monoid not in ("any", "all", "max", "min"):
            wanted = U8
        self.work = F32 if wanted in HALF else wanted
        self.widest = self.work.itemsize
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

    def alone(self) -> Fold:
        """The fold without what is done beside it."""
        fold = copy(self)
        fold.also = ()
        return fold

    def is_nothing(self) -> bool:
        """Whether each point is the identity, and nothing else is done there."""
        nothing = isinstance(e := self.body.expr, Literal) and bool(np.equal(e.value, identity(self.monoid, self.work)))
        return nothing and not self.also and not self.positions

    def types(self, context: Context) -> list[str]:
        value = vector_type(register_type(self.work), context.lanes)
        position = [vector_type(self.place, context.lanes)] * context.parts if self.positions else []
        return [value] * context.parts + position

    def counted(self, number: str, place: str) -> Fold:
        """The fold at vectors of this number, all of whose lanes have it as their position."""
        if not self.positions:
            return self
        fold = copy(self)
        fold.number, fold.place = number, place
        return fold

    def located(self, context: Context, low: str, state: State) -> State:
        """The state of one part, from one of all whose positions are the numbers of turns from `low` on."""
        scope, lanes, parts = context.scope, context.lanes, context.parts
        if self.number is None:
            return self.join(scope, state, lanes)
        short, kind = vector_type(self.place, lanes), vector_type("i64", lanes)
        vectors = [scope.emit(f"mul {short} {x}, {constant_text(parts, self.place, lanes)}") for x in state[parts:]]
        vectors = [scope.emit(f"add {short} {x}, {constant_text(k, self.place, lanes)}") for k, x in enumerate(vectors)]
        value, number = self.join(scope, [*state[:parts], *vectors], lanes)
        wide = number if self.place == "i64" else scope.emit(f"zext {short} {number} to {kind}")
        before = scope.emit(f"mul {kind} {wide}, {constant_text(lanes, 'i64', lanes)}")
        start = scope.emit(f"add {kind} {splat_register(scope, 'i64', low, lanes)}, {counting(0, lanes)}")
        return [value, scope.emit(f"add {kind} {before}, {start}")]

    def zero(self, context: Context) -> State:
        """The identity. Positions start at the first element that a lane takes, so that an array of the identity alone is
        right."""
        value = constant_text(identity(self.monoid, self.work), register_type(self.work), context.lanes)
        if not self.positions:
            return [value] * context.parts
        if not self.over_lanes or self.number is not None:
            return [value] * context.parts + [constant_text(0, self.place, context.lanes)] * context.parts
        return [value] * context.parts + [counting(part * context.lanes, context.lanes) for part in range(context.parts)]

    def nothing_yet(self, context: Context) -> State:
        """What a running fold comes to before its first element: of a sum -0.0, which leaves -0.0 as it is, as NumPy does."""
        return [constant_text(-0.0, register_type(self.work), context.lanes)] * context.parts if self.cascades \
            else self.zero(context)

    def at(self, scope: Scope, lanes: int) -> Lanes:
        return Lanes(scope, self.work, lanes, self.kernel.target, self.kernel.flags)

    def registers(self, context: Context) -> list[str]:
        """The body's value at the current point, in the registers of the work."""
        x = context.evaluate(self.body)
        return [convert(context.scope, register, x.dtype, self.work, context.lanes, self.kernel.target)
                for register in context.spread(x)]

    def element(self, context: Context, index: str) -> State:
        """The body's value at the current point, as a state."""
        parts = self.registers(context)
        if self.number is not None:
            return parts + [self.number] * context.parts
        if self.positions:
            where = context.index_vector(index) if index == context.vector else context.bindings[index]
            parts += context.spread(where)
        return parts

    def before(self, context: Context) -> None:
        """What is done at a point beside the fold."""
        for statement in self.also:
            if isinstance(statement, Store):
                self.kernel.store(context, statement)
            else:
                prefetch(context, statement)

    def step(self, context: Context, state: State, index: str) -> State:
        """One more point, after its stores; inactive lanes keep what they have."""
        self.before(context)
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
            kind = vector_type(self.place, lanes)
            if not ordered:
                earlier = scope.emit(f"icmp slt {kind} {b[half + k]}, {a[half + k]}")
                take = at.mask("or", take, at.mask("and", _tied(at, a[k], b[k]), earlier))
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
        if self.positions and lanes > 1:
            return self._first(scope, state[0], state[1], lanes)
        if self.monoid in ("max", "min") and is_float(self.work) and lanes > 1:
            some = any_lane(scope, self.at(scope, lanes).machine.compare("unordered", state[0], state[0]), lanes)
            return [self._unless_nan(scope, some, self.most(scope, state[0], lanes))]
        kinds = [register_type(self.work), "i64"]
        while lanes > 1:
            half = lanes // 2
            halves = [[_half(scope, kinds[c], r, lanes, start) for c, r in enumerate(state)] for start in (0, half)]
            state = self.merge(scope, halves[0], halves[1], half)
            lanes = half
        return state

    def most(self, scope: Scope, value: str, lanes: int) -> str:
        """The extreme of a vector; any number where some is NaN."""
        is_max, element = self.monoid in ("max", "argmax"), register_type(self.work)
        while lanes > 1:
            lanes //= 2
            at = self.at(scope, lanes)
            a, b = (_half(scope, element, value, 2 * lanes, start) for start in (0, lanes))
            value = at.select(at.compare("gt" if is_max else "lt", a, b), a, b) if not is_float(self.work) else \
                at.machine.maximum(a, b) if is_max else at.machine.minimum(a, b)
        return value

    def _unless_nan(self, scope: Scope, some: str, number: str) -> str:
        element = register_type(self.work)
        return scope.emit(f"select i1 {some}, {element} {constant_text(np.nan, element, 1)}, {element} {number}")

    def _first(self, scope: Scope, value: str, positions: str, lanes: int) -> State:
        """The extreme of a vector, and the first of the positions of those that are as extreme, or of the NaNs."""
        top, element = self.most(scope, value, lanes), register_type(self.work)
        at, masks, kind = self.at(scope, lanes), vector_type("i1", lanes), vector_type("i64", lanes)
        extreme = splat_register(scope, element, top, lanes)
        if is_float(self.work):
            found = at.machine.compare("eq", value, extreme)
            nans = at.machine.compare("unordered", value, value)
            some = any_lane(scope, nans, lanes)
            found = scope.emit(f"select i1 {some}, {masks} {nans}, {masks} {found}")
            top = self._unless_nan(scope, some, top)
        else:
            found = at.compare("eq", value, extreme)
        last = constant_text(np.iinfo(np.int64).max, "i64", lanes)
        places = scope.emit(f"select {masks} {found}, {kind} {positions}, {kind} {last}")
        return [top, scope.call("i64", f"llvm.vector.reduce.smin.v{lanes}i64", [(kind, places)])]

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
        self.positions = any(f.positions for f in folds)
        self.widest = max(f.widest for f in folds)

    def narrowed(self, context: Context, index: Index, span: Span, place: Scope) -> tuple[Joint, Span]:
        """The same of folds that ask the same."""
        folds, span = _narrowed(self.folds, context, index, span, place)
        return Joint(folds), span

    def expressions(self) -> list[Expr]:
        return [e for f in self.folds for e in f.expressions()]

    def on_one_side(self, turn: Turn, behind: bool) -> Joint:
        return Joint([f.on_one_side(turn, behind) for f in self.folds])

    def alone(self) -> Joint:
        return Joint([f.alone() for f in self.folds])

    def is_nothing(self) -> bool:
        return all(f.is_nothing() for f in self.folds)

    def counted(self, number: str, place: str) -> Joint:
        return Joint([f.counted(number, place) for f in self.folds])

    def located(self, context: Context, low: str, state: State) -> State:
        return [x for f, s in zip(self.folds, self.split(state), strict=True) for x in f.located(context, low, s)]

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

    def merge(self, scope: Scope, a: State, b: State, lanes: int, *, ordered: bool = False) -> State:
        pairs = zip(self.folds, self.split(a), self.split(b), strict=True)
        return [r for f, x, y in pairs for r in f.merge(scope, x, y, lanes, ordered=ordered)]

    def join(self, scope: Scope, state: State, lanes: int) -> State:
        return [x for f, s in zip(self.folds, self.split(state), strict=True) for x in f.join(scope, s, lanes)]

    def across(self, scope: Scope, state: State, lanes: int) -> State:
        return [x for f, s in zip(self.folds, self.split(state), strict=True) for x in f.across(scope, s, lanes)]

    def results(self, context: Context, state: State) -> list[Value]:
        """The value of each fold."""
        return [f.result(context, context.scope, s) for f, s in zip(self.folds, self.split(state), strict=True)]
