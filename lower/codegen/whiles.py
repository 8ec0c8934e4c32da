"""Loops that each lane leaves on a condition of its own.

Guarantees: what a lane that has left would load is not loaded; a loop that does not end asks for signals, and leaves when a
handler raised, as do all that follow.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from loopwright.ir.loops import Apply, Expr, Literal, Load, Local, walk_all
from loopwright.ir.nest import While, altered
from loopwright.ir.types import BOOL
from loopwright.lower.codegen.context import Context, Mask, Value, active_only, any_part
from loopwright.lower.codegen.machine import any_lane, register_type, vector_type
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Carried, Scope, branch, repeat

FIRST_POLL = 1024  # trips before the first question
STEPS = 2  # from one question whether any lane goes on to the next: lanes that have left change nothing

State = list[tuple[str, ...]]  # for each part of the state one register per vector


def repeated(context: Context, statement: While) -> Context:
    """The context after the loop, with the names of what its state came to."""
    started = [_spread(context, x) for x in statement.starts]
    kinds = [vector_type(register_type(x.dtype), context.lanes) for x in statement.starts]
    live = _live(_bound(context, context.scope, statement, started), statement.condition)
    error = context.scope.emit("load i64, ptr %error")
    going = context.scope.emit(f"and i1 {any_part(context.scope, live, context.lanes)}, "
                               f"{context.scope.emit(f'icmp eq i64 {error}, 0')}")

    def some(scope: Scope) -> Carried:
        return _trips(context.at(scope), statement, kinds, started, live)
    flat = [(kind, r) for kind, parts in zip(kinds, started, strict=True) for r in parts]
    ended = iter(branch(context.scope, going, some, None, flat))
    for name, x in zip(statement.ends, statement.starts, strict=True):
        parts = tuple([next(ended) for _ in range(context.parts)])
        if name is not None:
            context.kernel.wrote(name)
            context = context.bind(name, Value(parts, x.dtype, context.lanes, context.scope))
    return context


def _trips(context: Context, statement: While, kinds: Sequence[str], started: State, live: tuple[str, ...]) -> Carried:
    """At least one trip."""
    parts, masks = context.parts, _Masks(context)
    left_at = _countdown(context)
    context = _narrowed(context, live)
    for x in _fixed_loads(context, statement):  # once, for every lane that starts
        context.evaluate(x)
    before = context.scope.emit(f"load i64, ptr {left_at[0]}")
    carried = [(kind, r) for kind, state in zip(kinds, started, strict=True) for r in state]

    def step(inner: Scope, state: State, kept: tuple[str, ...]) -> tuple[State, tuple[str, ...]]:
        active = masks.bits_of(inner, kept)
        here = _bound(_narrowed(context.at(inner), active), inner, statement, state)
        for loop in statement.body:
            here = repeated(here, loop)

        def following(x: Expr, kind: str, old: tuple[str, ...], name: str, end: str | None) -> tuple[str, ...]:
            stays = end is not None and here.mask is not None
            if stays and kind == masks.kind and not masks.are_bits and _counts(x, name):
                return tuple([inner.emit(f"sub {kind} {y}, {m}") for y, m in zip(old, kept, strict=True)])
            new = _spread(here, x)
            return tuple([inner.emit(f"select {masks.bits} {a}, {kind} {y}, {kind} {z}")
                          for a, y, z in zip(active, new, old, strict=True)]) if stays else new
        state = list(map(following, statement.following, kinds, state, statement.names, statement.ends))
        on = masks.kept(inner, _spread(_bound(here, inner, statement, state), statement.condition))
        return state, masks.both(inner, kept, on)

    def trip(inner: Scope, phis: list[str]) -> tuple[str, list[str]]:
        *flat, left = phis
        state, kept = _grouped(flat[:len(carried)], parts), tuple(flat[len(carried):])
        for _ in range(1 if context.mask is None or statement.body else STEPS):
            state, kept = step(inner, state, kept)
        rest = _asked(inner, inner.emit(f"sub i64 {left}, 1"), left_at)
        on = inner.emit(f"and i1 {masks.some(inner, kept)}, {inner.emit(f'icmp sgt i64 {rest}, 0')}")
        return on, [*(r for x in state for r in x), *kept, rest]

    first = [(masks.kind, m) for m in masks.kept(context.scope, live)]
    *found, left = repeat(context.scope, [*carried, *first, ("i64", before)], trip)
    context.scope.do(f"store i64 {left}, ptr {left_at[0]}")
    return [(kind, r) for (kind, _), r in zip(carried, found, strict=False)]


class _Masks:
    """Masks from one trip to the next: bits where the machine has registers for them, else numbers as wide as what is
    compared. Of bits LLVM would make 16 in each lane, packed and spread out again in every trip."""

    def __init__(self, context: Context) -> None:
        self.lanes, self.bits = context.lanes, vector_type("i1", context.lanes)
        self.are_bits = context.lanes == 1 or context.kernel.target.has_masks
        width = min(64, context.kernel.target.vector_bits // context.lanes)
        self.kind = self.bits if self.are_bits else vector_type(f"i{width}", context.lanes)

    def kept(self, scope: Scope, bits: tuple[str, ...]) -> tuple[str, ...]:
        return bits if self.are_bits else tuple([scope.emit(f"sext {self.bits} {m} to {self.kind}") for m in bits])

    def bits_of(self, scope: Scope, kept: tuple[str, ...]) -> tuple[str, ...]:
        return kept if self.are_bits else tuple([scope.emit(f"icmp slt {self.kind} {m}, zeroinitializer") for m in kept])

    def both(self, scope: Scope, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([scope.emit(f"and {self.kind} {x}, {y}") for x, y in zip(a, b, strict=True)])

    def some(self, scope: Scope, kept: tuple[str, ...]) -> str:
        """Whether any lane of any part is set."""
        total = reduce(lambda a, b: scope.emit(f"or {self.kind} {a}, {b}"), kept)
        return any_lane(scope, self.bits_of(scope, (total,))[0], self.lanes)


def _fixed_loads(context: Context, statement: While) -> list[Term]:
    """What the loop, or one inside it, loads from places that do not depend on its state."""
    names, found = set[str](), list[Expr]()

    def visit(s: While) -> None:
        names.update(s.names, [end for end in s.ends if end is not None])
        found.extend((s.condition, *s.following, *(s.starts if s is not statement else ())))
        for inner in s.body:
            visit(inner)
    visit(statement)
    terms = [context.kernel.terms.of(e) for e in walk_all(found) if isinstance(e, Load)]
    return [t for t in terms if t.free <= context.bindings.keys() - names]


def _grouped(registers: Sequence[str], parts: int) -> State:
    return [tuple(registers[k:k + parts]) for k in range(0, len(registers), parts)]


def _counts(x: Expr, name: str) -> bool:
    """Whether what follows a number of the state is the number past it: the one less a mask of ones."""
    return isinstance(x, Apply) and x.fn == "add" and x.args == (Local(name, x.dtype), Literal(1, x.dtype))


def _spread(context: Context, x: Expr) -> tuple[str, ...]:
    return context.spread(context.evaluate(context.kernel.terms.of(x)))


def _live(context: Context, condition: Expr) -> tuple[str, ...]:
    """The lanes that take part here and whose condition holds."""
    return active_only(context, context.scope, _spread(context, condition))


def _narrowed(context: Context, active: tuple[str, ...]) -> Context:
    """Where only these lanes take part; without lanes all there is does."""
    if context.lanes == context.parts == 1:
        return context
    return altered(context, mask=Mask(Value(active, BOOL, context.lanes, context.scope), context.mask))


def _bound(context: Context, scope: Scope, statement: While, state: Sequence[tuple[str, ...]]) -> Context:
    """The state under its names."""
    for name, x, registers in zip(statement.names, statement.starts, state, strict=True):
        context.kernel.wrote(name)
        context = context.bind(name, Value(registers, x.dtype, context.lanes, scope))
    return context


# ---- signals ------------------------------------------------------------------------------------
def _countdown(context: Context) -> tuple[str, str]:
    """Where the function keeps the trips that are left before it asks, and the clock for `lw_poll`."""
    root = context.kernel.root
    if "countdown" not in root.values:
        left, clock = (context.kernel.function.slot(count, "i64", 8) for count in (1, 3))
        root.do(f"store i64 {FIRST_POLL}, ptr {left}")
        root.do(f"store [3 x i64] [i64 {FIRST_POLL}, i64 0, i64 0], ptr {clock}")
        root.values["countdown"] = left, clock
    found: tuple[str, str] = root.values["countdown"]
    return found


def _asked(scope: Scope, left: str, at: tuple[str, str]) -> str:
    """The trips left; at zero the runtime asks for signals and says after how many to ask again: none, to leave."""
    def ask(inner: Scope) -> Carried:
        return [("i64", inner.call("i64", "lw_poll", [("ptr", at[1]), ("ptr", "%error")]))]
    again, = branch(scope, scope.emit(f"icmp sle i64 {left}, 0"), ask, None, [("i64", left)], rare=True)
    return again
