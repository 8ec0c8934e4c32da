"""Partition points by halving: all lanes take as many steps, without branches on what they find.

Guarantees: the test is evaluated at positions inside its extent alone, whatever it gives. Source: Shar's search, Bentley,
Programming Pearls, 9.3.
"""
from __future__ import annotations

from loopwright.ir.dims import Extent
from loopwright.ir.loops import Index
from loopwright.ir.types import I64
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Value, splat_register
from loopwright.lower.codegen.machine import vector_type
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Carried, Scope, branch, repeat


def partition_point(context: Context, index: Index, extent: Extent, test: Term) -> Value:
    """How many positions of [0, extent) pass the test, for each lane."""
    lanes, kind = context.lanes, vector_type("i64", context.lanes)
    masks = vector_type("i1", lanes)
    none: Carried = [(kind, constant_text(0, "i64", lanes))] * context.parts
    end = context.kernel.extent(extent)

    def halve(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
        *starts, left = state
        half = inner.emit(f"lshr i64 {inner.emit(f'add nuw i64 {left}, 1')}, 1")
        before = splat_register(inner, "i64", inner.emit(f"sub i64 {half}, 1"), lanes)
        middle = tuple([inner.emit(f"add nsw {kind} {at}, {before}") for at in starts])
        here = context.at(inner).bind(index.name, Value(middle, I64, lanes, inner))
        passed, step = here.spread(here.evaluate(test)), splat_register(inner, "i64", half, lanes)
        new = [inner.emit(f"select {masks} {p}, {kind} {inner.emit(f'add nsw {kind} {at}, {step}')}, {kind} {at}")
               for p, at in zip(passed, starts, strict=True)]
        rest = inner.emit(f"sub nuw i64 {left}, {half}")
        return inner.emit(f"icmp ne i64 {rest}, 0"), [*new, rest]

    def some(scope: Scope) -> Carried:
        found = repeat(scope, [*none, ("i64", end)], halve)
        return [(kind, r) for r in found[:-1]]
    joined = branch(context.scope, context.scope.emit(f"icmp sgt i64 {end}, 0"), some, None, none)
    return Value(tuple(joined), I64, lanes, context.scope)
