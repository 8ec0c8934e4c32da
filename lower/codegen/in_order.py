"""Products of few rows with a right side that is larger than a cache, which is read in the order of memory, once.

    void @lw_in_order_f32(i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, i64 b.term, ptr c, i64 begin, i64 end)
    void @lw_in_order_f64(...)          some columns of C[m, n] = A B, at most `ROWS` rows: C contiguous, and B's rows; rows of
                                        A, and terms of both, any number of elements apart

Some terms at a time, whose factors are in registers, go along their rows of B and add to the sums of all columns, which caches
hold.

Guarantees: nothing outside the matrices is read or written, and of C no other columns; an element's sum is made term by term,
as `small.py` makes it.
"""
from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import LINE, element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

ROWS = 4  # at most
COUNTS = 1, 2, ROWS  # that there is code for: where there are fewer the last row is there again
TERMS = 8  # at most, whose rows are read side by side


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_in_order_f{8 * dtype.itemsize}"


def in_order_text(dtype: np.dtype, target: Target) -> str:
    """The function, which calls those of the scratch memory."""
    function = Function(set(), set())
    _InOrder(dtype, target).whole(function.root)
    header = f"void @{name_of(dtype)}(i64 %m, i64 %n, i64 %k, ptr noalias %a, i64 %a.row, i64 %a.term, ptr noalias %b, " \
        "i64 %b.term, ptr noalias %c, i64 %begin, i64 %end)"
    text = f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return "\n".join([*sorted(function.declarations), *sorted(function.constants), text])


class _InOrder:
    """The code for a number of rows."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.element, self.bytes, self.target = memory_type(dtype), dtype.itemsize, target
        self.lanes = target.lanes(dtype)
        self.kind = vector_type(self.element, self.lanes)

    def whole(self, root: Scope) -> None:
        """Sums in memory of this thread's, whose rows begin lines in different sets of a cache: what others add to may lie in
        the same line of C. Without such memory in C."""
        self.count = root.emit("sub i64 %end, %begin")
        self.size = root.emit(f"mul i64 {self.count}, {self.bytes}")
        line = LINE // self.bytes
        apart = root.emit(f"and i64 {root.emit(f'add i64 {self.count}, {2 * line - 1}')}, {-line}")
        size = root.emit(f"mul i64 {root.emit(f'mul i64 %m, {apart}')}, {self.bytes}")
        found = root.call("ptr", "lw_scratch_acquire", [("i64", size)])
        there, c = root.emit(f"icmp ne ptr {found}, null"), self._at(root, "%c", "%begin")
        to, step = (root.emit(f"select i1 {there}, {kind} {x}, {kind} {y}")
                    for kind, x, y in (("ptr", found, c), ("i64", apart, "%n")))
        for fewer, rows in pairwise((0, *COUNTS)):
            some = root.emit(f"and i1 {root.emit(f'icmp sgt i64 %m, {fewer}')}, {root.emit(f'icmp sle i64 %m, {rows}')}")
            branch(root, some, partial(self._of, rows, to, step))

        def store(scope: Scope) -> Carried:
            loop(scope, "0", "%m", "1", (), lambda inner, row, state: self._copied(inner, row, c, found, apart))
            scope.run("lw_scratch_release", [("ptr", found)])
            return ()
        branch(root, there, store)

    def _copied(self, scope: Scope, row: str, c: str, found: str, apart: str) -> list[str]:
        """A row of sums, where it belongs."""
        to, source = (self._at(scope, base, scope.emit(f"mul i64 {row}, {step}")) for base, step in ((c, "%n"), (found, apart)))
        scope.run("llvm.memcpy.p0.p0.i64", [("ptr", to), ("ptr", source), ("i64", self.size), ("i1", "false")])
        return []

    def _of(self, rows: int, to: str, step: str, scope: Scope) -> Carried:
        """Zeros, then as many terms at a time as registers have factors for, then those that are left one by one."""
        last = scope.emit("sub i64 %m, 1")
        numbers = [scope.call("i64", "llvm.smin.i64", [("i64", str(row)), ("i64", last)]) for row in range(rows)]
        left, sums = ([self._at(scope, base, scope.emit(f"mul i64 {row}, {apart}")) for row in numbers]
                      for base, apart in (("%a", "%a.row"), (to, step)))
        for line in sums:
            scope.run("llvm.memset.p0.i64", [("ptr", line), ("i8", "0"), ("i64", self.size), ("i1", "false")])
        terms = min(TERMS, 1 << (self.target.vector_registers // 2 // rows).bit_length() - 1)
        whole = scope.emit(f"and i64 %k, {-terms}")
        loop(scope, "0", whole, str(terms), (), partial(self._terms, left, sums, terms))
        loop(scope, whole, "%k", "1", (), partial(self._terms, left, sums, 1))
        return ()

    def _terms(self, left: list[str], sums: list[str], terms: int, scope: Scope, first: str, state: list[str]) -> list[str]:
        """Some terms, along all columns."""
        numbers = [scope.emit(f"add i64 {first}, {k}") for k in range(terms)]
        lines = [self._at(scope, "%b", scope.emit(f"add i64 {scope.emit(f'mul i64 {k}, %b.term')}, %begin")) for k in numbers]
        places = [scope.emit(f"mul i64 {k}, %a.term") for k in numbers]
        factors = [[self._factor(scope, row, place) for place in places] for row in left]

        def add(inner: Scope, at: str, mask: str | None = None) -> list[str]:
            machine = Machine(inner, 8 * self.bytes, self.lanes, self.target)
            to = [self._at(inner, line, at) for line in sums]
            found = [load_first(inner, self.kind, place, mask) for place in to]
            for k, line in enumerate(lines):
                column = load_first(inner, self.kind, self._at(inner, line, at), mask)
                found = [machine.fma(own[k], column, x) for own, x in zip(factors, found, strict=True)]
            for place, x in zip(to, found, strict=True):
                store_first(inner, self.kind, x, place, mask)
            return []

        def cut(inner: Scope, at: str) -> list[str]:
            return add(inner, at, first_lanes(inner, inner.emit(f"sub i64 {self.count}, {at}"), self.lanes))
        whole = scope.emit(f"and i64 {self.count}, {-self.lanes}") if terms > 1 else "0"
        if terms > 1:
            loop(scope, "0", whole, str(self.lanes), (), lambda inner, at, state: add(inner, at))
        loop(scope, whole, self.count, str(self.lanes), (), lambda inner, at, state: cut(inner, at))
        return []

    def _factor(self, scope: Scope, row: str, place: str) -> str:
        one = scope.emit(f"load {self.element}, ptr {self._at(scope, row, place)}, align {self.bytes}")
        one = scope.emit(f"insertelement {self.kind} poison, {self.element} {one}, i32 0")
        return scope.emit(f"shufflevector {self.kind} {one}, {self.kind} poison, <{self.lanes} x i32> zeroinitializer")

    def _at(self, scope: Scope, base: str, place: str) -> str:
        return element(scope, self.element, base, place)
