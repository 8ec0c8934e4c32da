"""A kernel that has bodies of its own for few columns: one is called before threads are, where calls have so many.

Guarantees: the function has no loop and no value that joins branches, so that it is compiled quickly.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from loopwright.ir.dims import product
from loopwright.ir.nest import Nest
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.text import Arm, Carried, Scope, branch
from loopwright.lower.runtime.later import CHOSEN, few_of, place_of

MANY = 1 << 12  # elements that are worth such a body, which is compiled once


def in_few_columns(context: Context, nest: Nest, given: Sequence[tuple[str, str]], usual: Arm, *, apart: bool) -> None:
    """The body for as many columns as there are, of which the arguments are given; the usual one where it has none, or there is
    little to do. apart: bodies are compiled when calls need them."""
    scope, kernel, place = context.scope, context.kernel, "null"
    for values in nest.few:
        name = few_of(nest.name, [k for _, k in values])
        if apart:
            name = place_of(name)
            kernel.function.constants.add(f"@{name} = external global ptr")
        same = [scope.emit(f"icmp eq i64 {kernel.symbols[symbol]}, {k}") for symbol, k in values]
        fits = reduce(lambda a, b: scope.emit(f"and i1 {a}, {b}"), same)
        place = scope.emit(f"select i1 {fits}, ptr @{name}, ptr {place}")
    points = max((b.shape for b in nest.buffers), key=len)
    many = scope.emit(f"icmp sge i64 {kernel.extent(product(points))}, {MANY}")
    few = scope.emit(f"and i1 {scope.emit(f'icmp ne ptr {place}, null')}, {many}")
    body = scope.call("ptr", CHOSEN, [("i1", few), ("ptr", place), ("ptr", "null")]) if apart else \
        scope.emit(f"select i1 {few}, ptr {place}, ptr null")

    def other(inside: Scope) -> Carried:
        inside.do(f"call void {body}({', '.join(f'{kind} {register}' for kind, register in given)})")
        return ()
    branch(scope, scope.emit(f"icmp eq ptr {body}, null"), usual, other)
