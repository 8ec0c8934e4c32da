"""Windows that lie on each other, added up, as text: gradients by images of convolutions with strides.

    void @lw_overlap_rows_f32(i64 numbers..., ptr x, ptr out, ptr error)        `NUMBERS` names them
    void @lw_overlap_rows_f64(...)      out[y * down + row - above, x * right + column - before, c] += x[y, x, row, column, c]

A row of a window, all of its columns and features, lies together in memory on both sides: it is added in vectors, also where
features are few.

Guarantees: nothing outside the arrays is read or written; a sum is made in one order, however many threads there are.
"""
from __future__ import annotations

import numpy as np

from loopwright.lower.codegen.few_features import greatest, least
from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

NUMBERS = ("high", "wide", "rows", "columns", "features", "tall", "long", "down", "right", "above", "before", "spread")
POINTERS = ("x", "out")
GIVEN = ", ".join([*(f"i64 %{x}" for x in NUMBERS), *(f"ptr %{x}" for x in POINTERS)])


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_overlap_rows_f{8 * dtype.itemsize}"


def overlaps_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and what the pool calls of it: rows of the result, each by one thread."""
    whole, some = (Function(declarations, constants) for _ in range(2))
    root, given = whole.root, [text.split() for text in GIVEN.split(", ")]
    context = whole.slot(len(given), "i64", 8)
    for k, (type, x) in enumerate(given):
        root.do(f"store {type} {x}, ptr {element(root, 'i64', context, str(k))}")
    work = product(root, "%wide", "%rows", "%columns", "%features")
    root.run("lw_loop", [("ptr", f"@{name_of(dtype)}_some"), ("ptr", context), ("i64", "%tall"),
                         ("i64", root.emit(f"udiv i64 {work}, %down")), ("i64", "1"), ("i64", "1")])
    for k, (type, x) in enumerate(given):
        some.root.do(f"{x} = load {type}, ptr {element(some.root, 'i64', '%context', str(k))}")
    loop(some.root, "%begin", "%end", "1", (), lambda scope, at, state: _row(dtype, target, scope, at))
    headers = {f"internal void @{name_of(dtype)}_some(ptr %context, i64 %begin, i64 %end)": some,
               f"void @{name_of(dtype)}({GIVEN}, ptr %error)": whole}
    return "\n".join([f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in headers.items()])


def _row(dtype: np.dtype, target: Target, scope: Scope, at: str) -> list[str]:
    """A row of the result: zeros, and what rows of windows have on it."""
    kind = memory_type(dtype)
    size = product(scope, "%long", "%features")
    out = element(scope, kind, "%out", product(scope, at, size))
    length = product(scope, size, str(dtype.itemsize))
    scope.run("llvm.memset.p0.i64", [("ptr", out), ("i8", "0"), ("i64", length), ("i1", "false")])

    def row(inner: Scope, number: str, state: list[str]) -> list[str]:
        past = inner.emit(f"sub i64 {added(inner, at, '%above')}, {product(inner, number, '%spread')}")
        y = inner.emit(f"sdiv i64 {past}, %down")
        stands = inner.emit(f"icmp eq i64 {product(inner, y, '%down')}, {past}")
        there = inner.emit(f"and i1 {stands}, {inner.emit(f'icmp ult i64 {y}, %high')}")

        def windows(arm: Scope) -> Carried:
            def window(last: Scope, x: str, now: list[str]) -> list[str]:
                pixel = added(last, product(last, y, "%wide"), x)
                place = product(last, added(last, product(last, pixel, "%rows"), number), "%columns")
                _window(dtype, target, last, (out, place), x)
                return []
            loop(arm, "0", "%wide", "1", (), window)
            return ()
        branch(inner, there, windows)
        return []
    loop(scope, "0", "%rows", "1", (), row)
    return []


def _window(dtype: np.dtype, target: Target, scope: Scope, sides: tuple[str, str], x: str) -> None:
    """The columns of a window that stand on the result, added to it."""
    kind, lanes = memory_type(dtype), target.lanes(dtype)
    vector, (out, place) = vector_type(kind, lanes), sides
    column = scope.emit(f"sub i64 {product(scope, x, '%right')}, %before")
    first = greatest(scope, scope.emit(f"sub i64 0, {column}"), "0")
    last = least(scope, scope.emit(f"sub i64 %long, {column}"), "%columns")
    to = element(scope, kind, out, product(scope, added(scope, column, first), "%features"))
    of = element(scope, kind, "%x", product(scope, added(scope, place, first), "%features"))
    count = product(scope, greatest(scope, scope.emit(f"sub i64 {last}, {first}"), "0"), "%features")
    whole = scope.emit(f"and i64 {count}, {-lanes}")

    def add(inner: Scope, at: str, mask: str | None) -> None:
        machine = Machine(inner, 8 * dtype.itemsize, lanes, target)
        a, b = (load_first(inner, vector, element(inner, kind, side, at), mask) for side in (to, of))
        store_first(inner, vector, machine.add(a, b), element(inner, kind, to, at), mask)

    def vectors(inner: Scope, at: str, state: list[str]) -> list[str]:
        add(inner, at, None)
        return []

    def rest(inner: Scope) -> Carried:
        add(inner, whole, first_lanes(inner, inner.emit(f"sub i64 {count}, {whole}"), lanes))
        return ()
    loop(scope, "0", whole, str(lanes), (), vectors)
    branch(scope, scope.emit(f"icmp sgt i64 {count}, {whole}"), rest)
