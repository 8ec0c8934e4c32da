"""Loops in stretches: where a loop chooses by how far it has come, each stretch does what is chosen there, and asks nothing.

Parts of a concatenation, an array and its padding, the two ends of a roll are loops of their own over what they store.

Guarantees: the same positions in the same order; what is computed at each is what the loop computes there.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.loops import Apply, Expr, Prefix, Reduce, When, transform, walk
from loopwright.ir.nest import For, Let, Statement, Store, altered
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.terms import Linear, add_linear, scale_linear
from loopwright.lower.fusing import expressions

MOST_STRETCHES = 6  # each is a loop's text, with vectors in flight and a rest
Turn = tuple[Expr, bool, Linear]  # a comparison, whether it holds from the turn on or before it, and where that is


def has_stretches(context: Context, f: For) -> bool:
    """Whether a loop with lanes has several stretches, but few."""
    plain = f.lanes > 1 and all(isinstance(s, Let | Store) for s in f.body)
    return plain and 2 <= _count(context, f, MOST_STRETCHES) <= MOST_STRETCHES


def in_stretches(context: Context, f: For, span: Span, run: Callable[[For, Span], None]) -> None:
    """`run` for each stretch of a loop over a span."""
    turn = _first(context, f)
    if turn is None:
        run(f, span)
        return
    scope, (low, high) = context.scope, span
    at = scope.call("i64", "llvm.smin.i64", [("i64", _number(context, turn[2])), ("i64", high)])
    at = scope.call("i64", "llvm.smax.i64", [("i64", at), ("i64", low)])
    in_stretches(context, _known(f, turn, False), (low, at), run)
    in_stretches(context, _known(f, turn, True), (at, high), run)


def _count(context: Context, f: For, most: int) -> int:
    """How many stretches there are, or more than `most`."""
    turn = _first(context, f)
    if turn is None:
        return 1
    if most < 2:
        return most + 1
    before = _count(context, _known(f, turn, False), most - 1)
    return before + _count(context, _known(f, turn, True), most - before)


def _first(context: Context, f: For) -> Turn | None:
    """The first comparison by which the body chooses, and that turns once on the way through the loop."""
    found = [x for e in expressions(f.body) for x in walk(e)]
    if any(isinstance(x, Reduce | Prefix) for x in found):
        return None
    terms = context.kernel.terms
    for test in dict.fromkeys(x.cond for x in found if isinstance(x, When)):
        if not isinstance(test, Apply) or test.fn != "lt" or test.args[0].dtype != terms.of(f.index).dtype:
            continue
        distance = add_linear(terms.linear(terms.of(test.args[0])), scale_linear(terms.linear(terms.of(test.args[1])), -1))
        step = distance[0].get(terms.of(f.index))
        rest = {t: c for t, c in distance[0].items() if t.expr != f.index}, distance[1]
        if any(t.effects or f.index.name in t.free or not t.free <= context.bindings.keys() or context.varies(t)
               for t in rest[0]):
            continue
        if step == 1:  # i + rest < 0
            return test, False, scale_linear(rest, -1)
        if step == -1:  # rest < i
            return test, True, add_linear(rest, ({}, 1))
    return None


def _known(f: For, turn: Turn, behind: bool) -> For:
    """The loop as it is before the turn, or behind it."""
    test, rises, _ = turn
    holds = rises == behind

    def chosen(e: Expr) -> Expr | None:
        return transform(e.then if holds else e.other, chosen) if isinstance(e, When) and e.cond == test else None

    def settled(s: Statement) -> Statement:
        if isinstance(s, Let):
            return altered(s, value=transform(s.value, chosen))
        assert isinstance(s, Store)
        return altered(s, index=tuple([transform(e, chosen) for e in s.index]), value=transform(s.value, chosen),
                       when=None if s.when is None else transform(s.when, chosen))
    return f.with_body(tuple(map(settled, f.body)))


def _number(context: Context, place: Linear) -> str:
    """A linear form as a register, or a number."""
    kernel, scope = context.kernel, context.scope
    total = kernel.extent(place[1])
    for term, coefficient in place[0].items():
        value = context.evaluate(term).parts[0]
        moved = scope.emit(f"mul nsw i64 {value}, {kernel.extent(coefficient)}")
        total = scope.emit(f"add nsw i64 {total}, {moved}")
    return total
