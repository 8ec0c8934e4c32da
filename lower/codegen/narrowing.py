"""Loops over positions of windows, of which some stand for nothing: folds go past those, and copies fill them, without a test
at each.

Guarantees: what is left out gives the fold's identity, or the constant that is stored there, and reads nothing; elements are
folded in the same order.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.loops import Apply, Index, Literal, When
from loopwright.lower.codegen.context import Context, floor_divide
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.terms import Linear, Term, add_linear, scale_linear
from loopwright.lower.codegen.text import Scope, deepest


def narrowed(context: Context, body: Term, identity: complex, index: Index, span: Span,
             place: Scope) -> tuple[Term, Span]:
    """What a fold over `span` of an index folds, without the tests that only ask where the index is, and the part of the span
    where those hold. Tests that differ between lanes, or that wait for other indices, stay. `place` has the span."""
    (body,), span = narrowed_together(context, [body], [identity], index, span, place)
    return body, span


def narrowed_together(context: Context, bodies: Sequence[Term], identities: Sequence[complex], index: Index, span: Span,
                      place: Scope) -> tuple[list[Term], Span]:
    """The same of several folds, as far as they ask the same."""
    (low, high), kept, bodies = span, list[Term](), list(bodies)
    others = [b.args[2] for b in bodies if isinstance(b.expr, When)]
    while all(isinstance(b.expr, When) and _is(b.args[2], x) for b, x in zip(bodies, identities, strict=True)):
        test = bodies[0].args[0]
        if any(b.args[0] is not test for b in bodies):
            break
        bound = bound_of(context, test, index)
        if bound is None:
            kept.append(test)
        else:
            is_least, value, scope = bound
            place = deepest(place, scope)
            if is_least:
                low = place.call("i64", "llvm.smax.i64", [("i64", low), ("i64", value)])
            else:
                high = place.call("i64", "llvm.smin.i64", [("i64", high), ("i64", value)])
        bodies = [b.args[1] for b in bodies]
    for test in reversed(kept):
        bodies = [context.kernel.terms.of(When(test.expr, b.expr, other.expr))
                  for b, other in zip(bodies, others, strict=True)]
    return bodies, (low, high)


def copied(context: Context, value: Term, index: Index, span: Span) -> tuple[Term, Span] | None:
    """What a loop over `span` of an index stores where tests of positions hold that stand around it, and that part of the span;
    everywhere else it stores one constant. None where there is no such test of the index."""
    inner, other = value, value
    while isinstance(inner.expr, When):
        if inner is not value and inner.args[2] is not other:
            return None
        inner, other = inner.args[1], inner.args[2]
    if inner is value or not isinstance(other.expr, Literal):
        return None
    body, (low, high) = narrowed(context, value, other.expr.value, index, span, context.scope)
    if (low, high) == span:
        return None
    low = context.scope.call("i64", "llvm.smin.i64", [("i64", low), ("i64", span[1])])
    while isinstance(body.expr, When) and _is_one(context, body.args[0], index):
        test = context.evaluate(body.args[0])
        low = context.scope.emit(f"select i1 {test.parts[0]}, i64 {low}, i64 {span[1]}")
        body = body.args[1]
    return body, (low, context.scope.call("i64", "llvm.smax.i64", [("i64", low), ("i64", high)]))


def _is(other: Term, identity: complex) -> bool:
    return isinstance(other.expr, Literal) and bool(np.equal(other.expr.value, identity))


def bound_of(context: Context, test: Term, index: Index, over: Mapping[Index, Extent] | None = None,
             ) -> tuple[bool, str, Scope] | None:
    """The least position at which a test holds (True), or the end of those where it does, and where that is known; None where
    it is no such test. over: it holds there for all positions of these."""
    if not isinstance(test.expr, Apply) or test.expr.fn != "lt" or index.name not in test.free:
        return None
    terms = context.kernel.terms
    atoms, constant = add_linear(terms.linear(test.args[1]), scale_linear(terms.linear(test.args[0]), -1))  # it is positive
    by = next((c for t, c in atoms.items() if t.expr == index), 0)
    rest: dict[Term, Extent] = {}
    for t, c in atoms.items():
        if over and isinstance(t.expr, Index) and t.expr in over and isinstance(c, int):
            constant += min(c, 0) * (over[t.expr] - 1)
        elif t.expr != index:
            rest[t] = c
    if not isinstance(by, int) or by == 0 or any(not _is_one(context, t, index) for t in rest):
        return None
    scope, value = _sum(context, (rest, constant))
    zero = scope.emit(f"sub nsw i64 0, {value}")
    quotient = zero if abs(by) == 1 else floor_divide(scope, zero, str(abs(by)))
    if by > 0:
        return True, scope.emit(f"add nsw i64 {quotient}, 1"), scope
    return False, scope.emit(f"sub nsw i64 0, {quotient}"), scope


def _is_one(context: Context, term: Term, index: Index) -> bool:
    """Whether a term is one number here, and known before the fold."""
    return not term.effects and index.name not in term.free and all(name in context.bindings for name in term.free) \
        and not context.varies(term)


def _sum(context: Context, form: Linear) -> tuple[Scope, str]:
    """A linear form, in the outermost scope that has all of it."""
    kernel = context.kernel
    values = [(context.evaluate(t), c) for t, c in form[0].items()]
    scope = deepest(kernel.root, *(v.scope for v, _ in values))
    total = kernel.extent(form[1])
    for value, coefficient in values:
        scaled = scope.emit(f"mul nsw i64 {value.parts[0]}, {kernel.extent(coefficient)}")
        total = scope.emit(f"add nsw i64 {total}, {scaled}")
    return scope, total
