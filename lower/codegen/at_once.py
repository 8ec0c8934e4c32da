"""Several positions of a loop at once, where none of their windows leaves an array; the others one by one.

Guarantees: each position is made once, as it is alone.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.nest import For, altered
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.narrowing import bound_of
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.text import Scope, loop
from loopwright.lower.jamming import tests_of, together

MORE = 2  # times as many vectors of one position as of each of several


def at_once(context: Context, f: For, span: Span, run: Callable[[Context, For, Span], None]) -> None:
    """`run` for the parts of a loop over a span: before and behind the positions at once, which are in the middle."""
    alone, scope = one_by_one(f), context.scope
    inside = _inside(context, f, span)
    if inside is None:
        run(context, alone, span)
        return
    low, high = inside
    count = scope.emit(f"sub i64 {high}, {low}")
    whole = scope.emit(f"sub i64 {count}, {scope.emit(f'urem i64 {count}, {f.jam}')}")
    end = scope.emit(f"add i64 {low}, {whole}")

    def side(inner: Scope, number: str, state: list[str]) -> list[str]:
        behind = inner.emit(f"icmp ne i64 {number}, 0")
        part = (inner.emit(f"select i1 {behind}, i64 {end}, i64 {span[0]}"),
                inner.emit(f"select i1 {behind}, i64 {span[1]}, i64 {low}"))
        run(context.at(inner), alone, part)
        return []
    loop(scope, "0", "2", "1", (), side)
    context.kernel.forget()
    run(context, together(f, f.jam), (low, end))


def one_by_one(f: For) -> For:
    """The loop with one position at a time, and more vectors in flight, which else wait for themselves."""
    inner, = [s for s in f.body if isinstance(s, For)]
    body = [altered(s, unroll=s.unroll * MORE) if s is inner else s for s in f.body]
    return altered(f, jam=1, body=tuple(body))


def _inside(context: Context, f: For, span: Span) -> Span | None:
    """The positions of a span for which all tests of folds hold; None where they are not known before the loop."""
    scope, (low, high) = context.scope, span
    for test, fold in tests_of(f):
        bound = bound_of(context, context.kernel.terms.of(test), f.index, dict(fold.over))
        if bound is None:
            return None
        is_least, value, _ = bound
        kept, change = (low, "smax") if is_least else (high, "smin")
        value = scope.call("i64", f"llvm.{change}.i64", [("i64", kept), ("i64", value)])
        low, high = (value, high) if is_least else (low, value)
    low = scope.call("i64", "llvm.smin.i64", [("i64", low), ("i64", span[1])])
    return low, scope.call("i64", "llvm.smax.i64", [("i64", low), ("i64", high)])
