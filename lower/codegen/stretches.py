"""Loops in stretches: where a loop chooses by how far it has come, each stretch does what is chosen there, and asks nothing.

Parts of a concatenation, an array and its padding, the two ends of a roll are loops of their own over what they store.

Guarantees: the same positions in the same order; what is computed at each is what the loop computes there.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from loopwright.ir.loops import Apply, Bounded, Expr, Index, Prefix, Reduce, When, transform, walk, walk_all
from loopwright.ir.nest import For, Let, Statement, Store, altered
from loopwright.ir.types import INTEGERS
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.terms import Linear, add_linear, scale_linear
from loopwright.lower.fusing import expressions

COMPARISONS = ("lt", "le", "gt", "ge")
MOST_STRETCHES = 9  # each is a loop's text, with vectors in flight and a rest
MOST_PARTS = 16  # of stretches that together are little more than the loop
Turn = tuple[Expr, bool, Linear]  # a comparison, whether it holds from the turn on or before it, and where that is


def has_stretches(context: Context, f: For) -> bool:
    """Whether a loop with lanes has several stretches, but few."""
    if f.lanes == 1 or not all(isinstance(s, Let | Store) for s in f.body):
        return False
    found = _stretches(context, f, MOST_PARTS)
    if len(found) > MOST_STRETCHES:
        return len(found) <= MOST_PARTS and sum(map(_size, found)) <= 2 * _size(f)
    return len(found) > 1


def _size(f: For) -> int:
    """How many different expressions a loop's body has."""
    return len(walk_all(expressions(f.body)))


def in_stretches(context: Context, f: For, span: Span, run: Callable[[For, Span, int | None], None],
                 between: tuple[Linear, Linear] | None = None) -> None:
    """`run` for each stretch of a loop over a span, with how many positions it has at most, where that is known. between: where
    the span begins at the soonest and ends at the latest."""
    low, high = between = between or (({}, 0), ({}, f.extent))
    terms, most = add_linear(high, scale_linear(low, -1))
    known = most if not terms and isinstance(most, int) and f.origin is None else None
    if known is not None and known <= 0:
        return
    turns = turns_of(context, f.index, expressions(f.body))
    if not turns:
        run(f, span, known)
        return
    at = turns[0][2]
    before, behind = turned(context, turns[0], span)
    in_stretches(context, _known(f, turns, False), before, run, (low, at))
    in_stretches(context, _known(f, turns, True), behind, run, (at, high))


def turned(context: Context, turn: Turn, span: Span) -> tuple[Span, Span]:
    """A span before a turn, and behind it."""
    scope, (low, high) = context.scope, span
    at = scope.call("i64", "llvm.smin.i64", [("i64", _number(context, turn[2])), ("i64", high)])
    at = scope.call("i64", "llvm.smax.i64", [("i64", at), ("i64", low)])
    return (low, at), (at, high)


def _stretches(context: Context, f: For, most: int) -> list[For]:
    """The loop of each stretch; of more than `most` one more than that."""
    turns = turns_of(context, f.index, expressions(f.body)) if most > 0 else []
    if not turns:
        return [f]
    before = _stretches(context, _known(f, turns, False), most)
    return before + _stretches(context, _known(f, turns, True), most - len(before))


def turns_of(context: Context, index: Index, found: Iterable[Expr]) -> list[Turn]:
    """The comparisons by which expressions choose, and that turn once as an index grows."""
    inside, turns = walk_all(found), list[Turn]()
    if any(isinstance(x, Reduce | Prefix) for x in inside):
        return []
    for test in dict.fromkeys([c for x in inside if (c := _choice(x)) is not None]):
        less, more, past = _ordered(test)
        if less.dtype != context.kernel.terms.of(index).dtype:
            continue
        terms = context.kernel.terms
        distance = add_linear(terms.linear(terms.of(less)), scale_linear(terms.linear(terms.of(more)), -1))
        step = distance[0].get(terms.of(index))
        rest = {t: c for t, c in distance[0].items() if t.expr != index}, distance[1] - past
        if any(t.effects or index.name in t.free or not t.free <= context.bindings.keys() or context.varies(t)
               for t in rest[0]):
            continue
        if step == 1:  # i + rest < 0
            turns.append((test, False, scale_linear(rest, -1)))
        if step == -1:  # rest < i
            turns.append((test, True, add_linear(rest, ({}, 1))))
    return turns


def _choice(e: Expr) -> Apply | None:
    """The comparison of positions by which an expression chooses one of two, where the other need not be computed."""
    match e:
        case When(Apply(fn=fn) as test) if fn in COMPARISONS:
            return test
        case Apply(fn="select", args=(Apply(fn=fn) as test, *both)) if fn in COMPARISONS:
            return None if any(map(_may_fail, both)) else test
    return None


def _may_fail(e: Expr) -> bool:
    """Whether an expression checks what it computes."""
    return any(isinstance(x, Bounded) or (isinstance(x, Apply) and x.fn == "power" and x.dtype in INTEGERS) for x in walk(e))


def _ordered(test: Apply) -> tuple[Expr, Expr, int]:
    """Two numbers and how much the first must be less than the second plus that, where a comparison holds."""
    a, b = test.args
    less, more = (a, b) if test.fn in ("lt", "le") else (b, a)
    return less, more, int(test.fn in ("le", "ge"))


def chosen(e: Expr, turn: Turn, behind: bool) -> Expr:
    """An expression as it is before a turn, or behind it."""
    test, rises, _ = turn
    holds = rises == behind

    def one_of_both(x: Expr) -> Expr | None:
        match x:
            case When(cond, then, other) | Apply(fn="select", args=(cond, then, other)) if cond == test:
                return transform(then if holds else other, one_of_both)
        return None
    return transform(e, one_of_both)


def settled(s: Store, turn: Turn, behind: bool) -> Store:
    """A store as it is before a turn, or behind it."""
    return altered(s, index=tuple([chosen(e, turn, behind) for e in s.index]), value=chosen(s.value, turn, behind),
                   when=None if s.when is None else chosen(s.when, turn, behind))


def _known(f: For, turns: Sequence[Turn], behind: bool) -> For:
    """The loop as it is before the first turn, or behind it, and so before or behind others."""
    for turn in turns:
        terms, distance = add_linear(turn[2], scale_linear(turns[0][2], -1))
        if not terms and isinstance(distance, int) and (distance <= 0 if behind else distance >= 0):
            f = f.with_body(tuple([_settled(s, turn, behind) for s in f.body]))
    return f


def _settled(s: Statement, turn: Turn, behind: bool) -> Statement:
    assert isinstance(s, Let | Store)
    return settled(s, turn, behind) if isinstance(s, Store) else altered(s, value=chosen(s.value, turn, behind))


def _number(context: Context, place: Linear) -> str:
    """A linear form as a register, or a number."""
    kernel, scope = context.kernel, context.scope
    total = kernel.extent(place[1])
    for term, coefficient in place[0].items():
        value = context.evaluate(term).parts[0]
        moved = scope.emit(f"mul nsw i64 {value}, {kernel.extent(coefficient)}")
        total = scope.emit(f"add nsw i64 {total}, {moved}")
    return total
