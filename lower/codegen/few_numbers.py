"""Products of matrices with a few numbers as text, result by result: to ask which other code makes them takes longer.

    void @lw_few_f32(i64 count, i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, i64 b.column, i64 b.term, ptr c)
    void @lw_few_f64(...)                              as `tiny.py` says, of any sizes

Guarantees: nothing outside the matrices is read or written; an element's sum is made term by term, as `small.py` makes it; no
terms make zeros.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.lower.codegen.interleaving import product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Function, Scope, loop
from loopwright.lower.target import Target

MOST = 40  # multiplications


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_few_f{8 * dtype.itemsize}"


def few_text(dtype: np.dtype, target: Target) -> str:
    """The function."""
    function = Function(set(), set())
    made = _Few(dtype, target)
    loop(function.root, "0", "%count", "1", [("ptr", x) for x in ("%a", "%b", "%c")], made.matrix)
    header = f"internal void @{name_of(dtype)}(i64 %count, i64 %m, i64 %n, i64 %k, ptr noalias %a, i64 %a.row, i64 %a.term, " \
        "ptr noalias %b, i64 %b.column, i64 %b.term, ptr noalias %c)"
    text = f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return "\n".join([*sorted(function.declarations), *sorted(function.constants), text])


class _Few:
    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.element, self.bits, self.target = memory_type(dtype), 8 * dtype.itemsize, target

    def matrix(self, scope: Scope, number: str, places: list[str]) -> list[str]:
        """One product of the batch; where the next one's matrices are."""
        a, b, c = places
        loop(scope, "0", "%m", "1", [("ptr", a), ("ptr", c)], partial(self._row, b))
        return [element(scope, self.element, at, product(scope, *sides))
                for at, sides in ((a, ("%m", "%k")), (b, ("%k", "%n")), (c, ("%m", "%n")))]

    def _row(self, b: str, scope: Scope, row: str, state: list[str]) -> list[str]:
        a, c = state
        loop(scope, "0", "%n", "1", [("ptr", b), ("ptr", c)], partial(self._result, a))
        return [element(scope, self.element, a, "%a.row"), element(scope, self.element, c, "%n")]

    def _result(self, a: str, scope: Scope, column: str, state: list[str]) -> list[str]:
        b, c = state

        def term(inner: Scope, at: str, state: list[str]) -> list[str]:
            x, y, total = state
            left, right = (inner.emit(f"load {self.element}, ptr {place}") for place in (x, y))
            total = Machine(inner, self.bits, 1, self.target).fma(left, right, total)
            return [element(inner, self.element, x, "%a.term"), element(inner, self.element, y, "%b.term"), total]
        *_, total = loop(scope, "0", "%k", "1", [("ptr", a), ("ptr", b), (self.element, "0.0")], term)
        scope.do(f"store {self.element} {total}, ptr {c}")
        return [element(scope, self.element, b, "%b.column"), element(scope, self.element, c, "1")]
