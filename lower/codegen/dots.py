"""Matrix products as text that go along the terms: of few rows, or few columns, whose factors lie along memory on both sides.

    void @lw_dots_f32(i64 m, i64 n, i64 k, ptr a, i64 a.row, ptr b, i64 b.row, ptr c)
    void @lw_dots_f64(...)              C[m, n] = A B^T: C contiguous, and rows of A and of B, stored as n x k, which are any
                                        number of elements apart

Guarantees: nothing outside the matrices is read or written; an element's sum is made in one order, whatever m and n are; no
terms make zeros.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

FEW, COLUMNS = 2, 4  # of a tile, where there are no more, and else
TILE = 16, 8  # sums of a tile, with 32 registers and with 16


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_dots_f{8 * dtype.itemsize}"


def dots_text(dtype: np.dtype, target: Target) -> str:
    """The function. A vector has at least four lanes."""
    function = Function(set(), set())
    narrow, usual = (_Dots(dtype, target, function, columns) for columns in (FEW, COLUMNS))
    branch(function.root, function.root.emit(f"icmp sle i64 %n, {FEW}"), narrow.by_rows, usual.tiles)
    header = f"void @{name_of(dtype)}(i64 %m, i64 %n, i64 %k, ptr noalias %a, i64 %a.row, ptr noalias %b, " \
        "i64 %b.row, ptr noalias %c)"
    text = f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return "\n".join([*sorted(function.declarations), *sorted(function.constants), text])


class _Dots:
    """The tiles of so many columns."""

    def __init__(self, dtype: np.dtype, target: Target, function: Function, columns: int) -> None:
        self.target, self.function = target, function
        self.element, self.lanes, self.bytes = memory_type(dtype), target.lanes(dtype), dtype.itemsize
        self.kind = vector_type(self.element, self.lanes)
        self.columns, self.rows = columns, TILE[target.vector_registers <= 16] // columns
        self.whole = function.root.emit(f"and i64 %k, {-self.lanes}")
        rest = function.root.emit(f"sub i64 %k, {self.whole}")
        self.mask = first_lanes(function.root, rest, self.lanes)

    def tiles(self, root: Scope) -> Carried:
        """All tiles: the inner loop goes along the fewer rows or columns, so that the larger side is read once."""
        branch(root, root.emit("icmp sgt i64 %m, %n"), self.by_rows, self._by_columns)
        return ()

    def by_rows(self, scope: Scope) -> Carried:
        """All tiles, columns in the inner loop."""
        loop(scope, "0", "%m", str(self.rows), (), partial(self._of_one, True))
        return ()

    def _by_columns(self, scope: Scope) -> Carried:
        loop(scope, "0", "%n", str(self.columns), (), partial(self._of_one, False))
        return ()

    def _of_one(self, is_row: bool, scope: Scope, first: str, state: list[str]) -> list[str]:
        """The tiles of some rows, or of some columns."""
        sides = ("%a", "%m", self.rows), ("%b", "%n", self.columns)
        (base, count, many), (other, size, step) = sides if is_row else sides[::-1]
        lines = self._lines(scope, base, first, count, many)

        def tile(inner: Scope, second: str, now: list[str]) -> list[str]:
            others = self._lines(inner, other, second, size, step)
            return self._tile(inner, *((first, second, lines, others) if is_row else (second, first, others, lines)))
        loop(scope, "0", size, str(step), (), tile)
        return []

    def _lines(self, scope: Scope, base: str, first: str, count: str, many: int) -> list[str]:
        last, found = scope.emit(f"sub i64 {count}, 1"), list[str]()
        for k in range(many):
            line = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add i64 {first}, {k}")), ("i64", last)])
            found.append(self._at(scope, base, scope.emit(f"mul i64 {line}, {base}.row")))
        return found

    def _at(self, scope: Scope, base: str, place: str) -> str:
        return element(scope, self.element, base, place)

    def _tile(self, scope: Scope, row: str, column: str, left: list[str], right: list[str]) -> list[str]:
        """The sums of some rows and columns; those past the last are that one again."""
        kept = first_lanes(scope, scope.emit(f"sub i64 %n, {column}"), self.columns)

        def term(inner: Scope, at: str, now: list[str], mask: str | None = None) -> list[str]:
            machine = Machine(inner, 8 * self.bytes, self.lanes, self.target)
            rows, columns = ([load_first(inner, self.kind, self._at(inner, line, at), mask) for line in lines]
                             for lines in (left, right))
            return [machine.fma(x, y, now[i * self.columns + j]) for i, x in enumerate(rows) for j, y in enumerate(columns)]
        zeros = [(self.kind, "zeroinitializer")] * (self.rows * self.columns)
        sums = loop(scope, "0", self.whole, str(self.lanes), zeros, term)
        sums = term(scope, self.whole, sums, self.mask)
        last, each = scope.emit("sub i64 %m, 1"), self.lanes // self.columns  # rows whose sums make a vector
        for first in range(0, self.rows, each):
            rows = sums[first * self.columns:(first + each) * self.columns]
            total, many = added(scope, self.kind, self.lanes, rows), min(each, self.rows - first)
            for k in range(many):
                line = scope.call("i64", "llvm.smin.i64",
                                  [("i64", scope.emit(f"add i64 {row}, {first + k}")), ("i64", last)])
                place = self._at(scope, "%c", scope.emit(f"add i64 {scope.emit(f'mul i64 {line}, %n')}, {column}"))
                lanes = ", ".join(f"i32 {k * self.columns + lane}" for lane in range(self.columns))
                part = scope.emit(f"shufflevector {self.kind} {total}, {self.kind} poison, <{self.columns} x i32> <{lanes}>")
                store_first(scope, vector_type(self.element, self.columns), part, place, kept)
        return []


def added(scope: Scope, kind: str, lanes: int, vectors: list[str], group: int = 0) -> str:
    """A vector of the sums of the lanes of each vector, at most as many as there are lanes, in their order: two vectors become
    one of the sums of halves, again and again. group: the sums of so many neighbouring lanes of as many vectors; first those of
    the first group of each."""
    found = [*vectors, *["zeroinitializer"] * ((group or lanes) - len(vectors))]
    apart = (group or lanes) // 2
    while len(found) > 1:
        half, made = len(found) // 2, []
        for a, b in zip(found[:half], found[half:], strict=True):
            # in each group of 2 * apart lanes: first the sums of a's halves, then of b's
            low = [x if x % (2 * apart) < apart else lanes + x - apart for x in range(lanes)]
            high = [x + apart if x % (2 * apart) < apart else lanes + x for x in range(lanes)]
            sides = [scope.emit(f"shufflevector {kind} {a}, {kind} {b}, <{lanes} x i32> "
                                f"<{', '.join(f'i32 {x}' for x in order)}>") for order in (low, high)]
            made.append(scope.emit(f"fadd {kind} {sides[0]}, {sides[1]}"))
        found, apart = made, apart // 2
    return found[0]
