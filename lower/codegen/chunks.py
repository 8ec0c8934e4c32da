"""Matrix products as text that copies one side in chunks of the first cache, each just before all rows are multiplied with it.

    void @lw_chunks_f32_n(i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, ptr c, i64 begin, i64 end)
    void @lw_chunks_f32_t(...), f64     some columns of C[m, n] = A B or A B^T: B and C contiguous, B stored as n x k for `_t`;
                                        A's rows, and terms, any number of elements apart; columns from a whole panel's to one's

While tiles multiply with a chunk they ask the caches for the next.

Guarantees: nothing outside the matrices is read or written; an element's sum is made in one order, whatever m and n are; what C
held before does not matter. There is at least one term.
"""
from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type, vector_type
from loopwright.lower.codegen.small import (
    LINE,
    WIDEST,
    Ahead,
    call_panel,
    element,
    first_lanes,
    heights,
    load_first,
    panels,
    widths_of,
)
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.tiles import transposed
from loopwright.lower.target import Target

LONG, SHORT = 128, 64  # terms of a chunk: a block has whole chunks
ROWS = 280  # that are multiplied with a chunk: it is worth its copy then
DEPTH = 512  # terms of a block: its rows of the left side stay in the second cache


def terms_of(target: Target) -> int:
    """The terms of a chunk, which takes at most two thirds of the first cache."""
    return LONG if 3 * LONG * WIDEST * target.vector_bits // 8 <= 2 * target.near_cache_bytes else SHORT


def name_of(dtype: np.dtype, turned: bool) -> str:
    """The function's name."""
    return f"lw_chunks_f{8 * dtype.itemsize}_{'nt'[turned]}"


def chunks_text(dtype: np.dtype, target: Target, turned: bool) -> str:
    """One function, and that which copies. They call those of `small_text`."""
    declarations, constants = set[str](), set[str]()
    copy = _Copy(dtype, target, turned, Function(declarations, constants)).text()
    function = Function(declarations, constants)
    root, kind, lanes, long = function.root, memory_type(dtype), target.lanes(dtype), terms_of(target)
    chunk = function.slot(long * WIDEST * lanes, kind, 64)

    def least(scope: Scope, a: str, b: str | int) -> str:
        return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", str(b))])

    most = even(root, "%m", ROWS, heights(target, widths_of(target)[-1])[0])

    def rows(scope: Scope, row: str, state: list[str]) -> list[str]:
        count = least(scope, scope.emit(f"sub i64 %m, {row}"), most)
        a, c = (element(scope, kind, x, scope.emit(f"mul i64 {row}, {step}")) for x, step in (("%a", "%a.row"), ("%c", "%n")))

        def depth(inner: Scope, term: str, now: list[str]) -> list[str]:
            end = least(inner, inner.emit(f"add i64 {term}, {DEPTH}"), "%k")
            panels(inner, dtype, target, ("%begin", "%end"), partial(panel, count, (a, c), (term, end)))
            return []
        loop(scope, "0", "%k", str(DEPTH), (), depth)
        return []

    def ahead(scope: Scope, v: int, at: str, term: str, span: tuple[str, str], count: str) -> Ahead:
        """The next chunk, which may be that of the next panel."""
        following, further = scope.emit(f"add i64 {term}, {long}"), scope.emit(f"add i64 {at}, {v * lanes}")
        here = scope.emit(f"icmp slt i64 {following}, {span[1]}")
        row = scope.emit(f"select i1 {here}, i64 {following}, i64 {span[0]}")
        column = scope.emit(f"select i1 {here}, i64 {at}, i64 {further}")
        if turned:
            row, column = column, row
        size = "%k" if turned else "%n"
        lines, each = (long, long // (v * lanes)) if turned else (v * lanes, 1)
        lines = lines * dtype.itemsize // LINE
        place = element(scope, kind, "%b", scope.emit(f"add i64 {scope.emit(f'mul i64 {row}, {size}')}, {column}"))
        two = scope.emit(f"icmp sle i64 {count}, {(lines - 1) * heights(target, v)[0]}")
        step = scope.emit(f"mul i64 {size}, {dtype.itemsize}")
        return Ahead(place, step, lines, each.bit_length() - 1, "0", two)

    def panel(count: str, sides: tuple[str, str], span: tuple[str, str], scope: Scope, v: int, at: str, left: str) -> None:
        def terms(inner: Scope, term: str, now: list[str]) -> list[str]:
            many = least(inner, inner.emit(f"sub i64 %k, {term}"), long)
            a, c = (element(inner, kind, x, y) for x, y in (
                (sides[0], inner.emit(f"mul i64 {term}, %a.term")), (sides[1], at)))
            again, wide = inner.emit(f"icmp ne i64 {term}, 0"), str(WIDEST * lanes)
            following = ahead(inner, v, at, term, span, count) if v == widths_of(target)[-1] else None
            if turned:
                inner.do(f"call void @{name_of(dtype, turned)}_copy(ptr {chunk}, ptr %b, i64 {term}, i64 {many}, i64 {at}, "
                         f"i64 {v}, i64 %n, i64 %k)")
                call_panel(inner, dtype, v, (many, a, chunk, wide, c, count, left, again), ahead=following)
                return []
            b = element(inner, kind, "%b", inner.emit(f"add i64 {inner.emit(f'mul i64 {term}, %n')}, {at}"))
            call_panel(inner, dtype, v, (many, a, b, "%n", c, count, left, again), ahead=following, copy=chunk)
            height = heights(target, v)[0]
            a, c = (element(inner, kind, x, inner.emit(f"mul i64 {step}, {height}")) for x, step in ((a, "%a.row"), (c, "%n")))
            rest = inner.emit(f"sub i64 {count}, {height}")
            following = following and replace(following, number="1")
            call_panel(inner, dtype, v, (many, a, chunk, wide, c, rest, left, again), ahead=following)
            return []
        loop(scope, *span, str(long), (), terms)

    def whole(scope: Scope) -> Carried:
        loop(scope, "0", "%m", most, (), rows)
        return ()
    branch(root, root.emit("icmp sgt i64 %end, %begin"), whole)
    header = f"void @{name_of(dtype, turned)}(i64 %m, i64 %n, i64 %k, ptr noalias %a, i64 %a.row, i64 %a.term, " \
        "ptr noalias %b, ptr noalias %c, i64 %begin, i64 %end)"
    text = f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return "\n".join([*sorted(declarations), *sorted(constants), copy, text])


def even(scope: Scope, size: str, most: int, step: int) -> str:
    """The length of blocks of at most so many positions, whole steps, which are as even as they can be; 1 at least."""
    def at_least_one(x: str, y: str | int) -> str:
        before = scope.emit(f"sub i64 {y}, 1")
        found = scope.emit(f"udiv i64 {scope.emit(f'add i64 {x}, {before}')}, {y}")
        return scope.call("i64", "llvm.smax.i64", [("i64", found), ("i64", "1")])
    steps = at_least_one(at_least_one(size, at_least_one(size, most)), step)
    return scope.emit(f"mul i64 {steps}, {step}")


class _Copy:
    """Copies some terms of a panel, one after the other: `void (ptr chunk, ptr b, i64 term, i64 count, i64 column, i64 vectors,
    i64 n, i64 k)`."""

    def __init__(self, dtype: np.dtype, target: Target, turned: bool, function: Function) -> None:
        self.dtype, self.turned, self.function, self.lanes = dtype, turned, function, target.lanes(dtype)
        self.element = memory_type(dtype)
        self.kind = vector_type(self.element, self.lanes)

    def text(self) -> str:
        root = self.function.root
        loop(root, "0", "%vectors", "1", (), self._vector)
        header = f"void @{name_of(self.dtype, self.turned)}_copy(ptr noalias %chunk, ptr noalias %b, i64 %term, i64 %count, " \
            "i64 %column, i64 %vectors, i64 %n, i64 %k)"
        return f"define internal {header} noinline {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _vector(self, scope: Scope, number: str, state: list[str]) -> list[str]:
        past = scope.emit(f"mul i64 {number}, {self.lanes}")
        column, to = scope.emit(f"add i64 %column, {past}"), element(scope, self.element, "%chunk", past)
        (self._across if self.turned else self._along)(scope, column, to)
        return []

    def _along(self, scope: Scope, column: str, to: str) -> None:
        mask = first_lanes(scope, scope.emit(f"sub i64 %n, {column}"), self.lanes)
        first = element(scope, self.element, "%b", scope.emit(f"add i64 {scope.emit('mul i64 %term, %n')}, {column}"))

        def term(inner: Scope, at: str, state: list[str]) -> list[str]:
            value = load_first(inner, self.kind, element(inner, self.element, first, inner.emit(f"mul i64 {at}, %n")), mask)
            self._store(inner, value, to, at)
            return []
        loop(scope, "0", "%count", "1", (), term)

    def _across(self, scope: Scope, column: str, to: str) -> None:
        """In squares, transposed in registers; columns past the last are that one again."""
        last, lines = scope.emit("sub i64 %n, 1"), list[str]()
        for k in range(self.lanes):
            line = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add i64 {column}, {k}")), ("i64", last)])
            lines.append(element(scope, self.element, "%b", scope.emit(f"add i64 {scope.emit(f'mul i64 {line}, %k')}, %term")))

        def square(inner: Scope, at: str, state: list[str]) -> list[str]:
            mask = first_lanes(inner, inner.emit(f"sub i64 %count, {at}"), self.lanes)
            found = [load_first(inner, self.kind, element(inner, self.element, line, at), mask) for line in lines]
            for k, value in enumerate(transposed(inner, self.kind, found)):
                self._store(inner, value, to, inner.emit(f"add i64 {at}, {k}"))
            return []
        loop(scope, "0", "%count", str(self.lanes), (), square)

    def _store(self, scope: Scope, value: str, to: str, term: str) -> None:
        place = element(scope, self.element, to, scope.emit(f"mul i64 {term}, {WIDEST * self.lanes}"))
        scope.do(f"store {self.kind} {value}, ptr {place}, align {self.dtype.itemsize}")
