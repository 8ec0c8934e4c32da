"""Products of a matrix of short rows and a vector as text: the sums of as many rows as there are lanes become one vector.

    void @lw_by_vector_f32(i64 m, i64 k, ptr a, i64 a.row, ptr b, ptr c)
    void @lw_by_vector_f64(...)         C[m] = A b: C and b contiguous, as are rows of A, which are any number of elements apart

Rows of 2, 4 or 8 numbers, one after the other, are read as whole vectors.

Guarantees: nothing outside the arrays is read or written; a row's sum is made in one order, whatever m is and wherever the row
stands.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen.dots import added
from loopwright.lower.codegen.interleaving import product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_by_vector_f{8 * dtype.itemsize}"


def dense_widths(lanes: int) -> list[int]:
    """How many numbers rows have that are read as whole vectors."""
    return [k for k in (2, 4, 8) if k < lanes]


def by_vector_text(dtype: np.dtype, target: Target) -> str:
    """The function."""
    function = Function(set(), set())
    made = _Rows(dtype, target)
    made.choose(function.root, dense_widths(made.lanes))
    header = f"void @{name_of(dtype)}(i64 %m, i64 %k, ptr noalias %a, i64 %a.row, ptr noalias %b, ptr noalias %c)"
    text = f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return "\n".join([*sorted(function.declarations), *sorted(function.constants), text])


class _Rows:
    """The ways to add up rows."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.element, self.bits, self.target = memory_type(dtype), 8 * dtype.itemsize, target
        self.lanes = target.lanes(dtype)
        self.kind = vector_type(self.element, self.lanes)

    def choose(self, scope: Scope, widths: Sequence[int]) -> None:
        """Rows of the first width that they have, or of any."""
        if not widths:
            self._any(scope)
            return
        width, *others = widths

        def this(inner: Scope) -> Carried:
            self._dense(inner, width)
            return ()

        def next_one(inner: Scope) -> Carried:
            self.choose(inner, others)
            return ()
        fits = [scope.emit(f"icmp eq i64 {x}, {width}") for x in ("%k", "%a.row")]
        branch(scope, scope.emit(f"and i1 {fits[0]}, {fits[1]}"), this, next_one)

    # ---- rows that are parts of vectors -----------------------------------------------------------
    def _dense(self, scope: Scope, width: int) -> None:
        kind = vector_type(self.element, width)
        first, lanes = load_first(scope, kind, "%b", None), ", ".join(f"i32 {lane % width}" for lane in range(self.lanes))
        factors = scope.emit(f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> <{lanes}>")
        whole = scope.emit(f"and i64 %m, {-self.lanes}")
        loop(scope, "0", whole, str(self.lanes), (), partial(self._vectors, width, factors, True))
        loop(scope, whole, "%m", str(self.lanes), (), partial(self._vectors, width, factors, False))

    def _vectors(self, width: int, factors: str, whole: bool, scope: Scope, row: str, state: list[str]) -> list[str]:
        """A block of rows, as many vectors as a row has numbers: their first rows' sums stand before their second rows'."""
        machine, start = Machine(scope, self.bits, self.lanes, self.target), product(scope, row, str(width))
        left, size = scope.emit(f"sub i64 %m, {row}"), product(scope, "%m", str(width))
        found = []
        for k in range(width):
            at = scope.emit(f"add i64 {start}, {k * self.lanes}")
            mask = None if whole else first_lanes(scope, scope.call("i64", "llvm.smax.i64", [
                ("i64", scope.emit(f"sub i64 {size}, {at}")), ("i64", "0")]), self.lanes)
            found.append(machine.mul(load_first(scope, self.kind, element(scope, self.element, "%a", at), mask), factors))
        total, each = added(scope, self.kind, self.lanes, found, width), self.lanes // width
        order = ", ".join(f"i32 {(lane % each) * width + lane // each}" for lane in range(self.lanes))
        total = scope.emit(f"shufflevector {self.kind} {total}, {self.kind} poison, <{self.lanes} x i32> <{order}>")
        store_first(scope, self.kind, total, element(scope, self.element, "%c", row),
                    None if whole else first_lanes(scope, left, self.lanes))
        return []

    # ---- rows of any length -----------------------------------------------------------------------
    def _any(self, scope: Scope) -> None:
        whole = scope.emit(f"and i64 %k, {-self.lanes}")
        mask = first_lanes(scope, scope.emit(f"sub i64 %k, {whole}"), self.lanes)
        loop(scope, "0", "%m", str(self.lanes), (), partial(self._lines, whole, mask))

    def _lines(self, whole: str, mask: str, scope: Scope, row: str, state: list[str]) -> list[str]:
        """A block of rows; those past the last are that one again."""
        last, lines = scope.emit("sub i64 %m, 1"), list[str]()
        for k in range(self.lanes):
            line = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add i64 {row}, {k}")), ("i64", last)])
            lines.append(element(scope, self.element, "%a", product(scope, line, "%a.row")))

        def term(inner: Scope, at: str, sums: list[str], some: str | None = None) -> list[str]:
            machine = Machine(inner, self.bits, self.lanes, self.target)
            places = [element(inner, self.element, x, at) for x in ("%b", *lines)]
            factor, *numbers = [load_first(inner, self.kind, x, some) for x in places]
            return [machine.fma(x, factor, y) for x, y in zip(numbers, sums, strict=True)]
        sums = loop(scope, "0", whole, str(self.lanes), [(self.kind, "zeroinitializer")] * self.lanes, term)
        total = added(scope, self.kind, self.lanes, term(scope, whole, sums, mask))
        kept = first_lanes(scope, scope.emit(f"sub i64 %m, {row}"), self.lanes)
        store_first(scope, self.kind, total, element(scope, self.element, "%c", row), kept)
        return []
