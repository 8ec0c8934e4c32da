"""Equal rows of numbers as vectors with a lane for each row, as text: `interleave` makes them, `separate` undoes it.

    void @lw_interleave_f32(ptr to, ptr from, i64 size, i64 count)     from: count rows of `size` numbers, one after the other;
    void @lw_separate_f32(ptr to, ptr from, i64 size, i64 count)       vectors: `size`, and room for as many more as lanes
    ... of f64

Guarantees: nothing outside the rows is read or written; of fewer rows than lanes (at least one) the last is that of all lanes
behind it, and so must what is separated be.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Function, Scope, loop
from loopwright.lower.codegen.tiles import transposed
from loopwright.lower.target import Target


def interleaving_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """Both functions, internal."""
    return "\n".join(_text(dtype, target, Function(declarations, constants), kind) for kind in ("interleave", "separate"))


def _text(dtype: np.dtype, target: Target, function: Function, kind: str) -> str:
    """In squares, transposed in registers."""
    root, lanes, number = function.root, target.lanes(dtype), memory_type(dtype)
    rows, last = [], root.emit("sub i64 %count, 1")
    for lane in range(lanes):
        row = root.call("i64", "llvm.smin.i64", [("i64", str(lane)), ("i64", last)])
        rows.append(element(root, number, "%from" if kind == "interleave" else "%to", root.emit(f"mul i64 {row}, %size")))
    squares = partial(_gathered if kind == "interleave" else _scattered, vector_type(number, lanes), rows)
    loop(root, "0", "%size", str(lanes), (), squares)
    header = f"internal void @lw_{kind}_f{8 * dtype.itemsize}(ptr noalias %to, ptr noalias %from, i64 %size, i64 %count)"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _gathered(kind: str, rows: list[str], scope: Scope, at: str, state: list[str]) -> list[str]:
    number, mask = kind[1:-1].split(" x ")[1], first_lanes(scope, scope.emit(f"sub i64 %size, {at}"), len(rows))
    found = [load_first(scope, kind, element(scope, number, row, at), mask) for row in rows]
    to = element(scope, kind, "%to", at)
    for k, value in enumerate(transposed(scope, kind, found)):
        store_first(scope, kind, value, element(scope, kind, to, str(k)), None)
    return []


def _scattered(kind: str, rows: list[str], scope: Scope, at: str, state: list[str]) -> list[str]:
    number, mask = kind[1:-1].split(" x ")[1], first_lanes(scope, scope.emit(f"sub i64 %size, {at}"), len(rows))
    first = element(scope, kind, "%from", at)
    found = [load_first(scope, kind, element(scope, kind, first, str(k)), None) for k in range(len(rows))]
    for row, value in zip(rows, transposed(scope, kind, found), strict=True):
        store_first(scope, kind, value, element(scope, number, row, at), mask)
    return []
