"""Vectors with a lane for each of some matrices, and the text that makes them of rows of numbers, and rows of them.

    void @lw_interleave_f32(ptr to, ptr from, i64 size, i64 count)     from: count rows of `size` numbers, one after the other;
    void @lw_separate_f32(ptr to, ptr from, i64 size, i64 count)       vectors: `size`, and room for as many more as lanes
    ... of f64

Guarantees: nothing outside the rows is read or written; of fewer rows than lanes (at least one) the last is that of all lanes
behind it, and so must what is separated be.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Function, Scope, loop
from loopwright.lower.codegen.transposing import transposed
from loopwright.lower.target import Target


class Lanes:
    """Vectors in scratch memory, one after the other, each with a number of every matrix of a block."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.dtype, self.target, self.count = dtype, target, target.lanes(dtype)
        self.declarations, self.constants = set[str](), set[str]()
        self.suffix, self.number = f"f{8 * dtype.itemsize}", memory_type(dtype)
        self.kind, self.whole = f"<{self.count} x {self.number}>", f"<{self.count} x i{8 * dtype.itemsize}>"
        self.mask = f"<{self.count} x i1>"

    def function(self) -> Function:
        return Function(self.declarations, self.constants)

    def machine(self, scope: Scope) -> Machine:
        return Machine(scope, 8 * self.dtype.itemsize, self.count, self.target)

    def at(self, scope: Scope, base: str, place: str) -> str:
        return element(scope, self.kind, base, place)

    def load(self, scope: Scope, base: str, place: str = "0") -> str:
        return scope.emit(f"load {self.kind}, ptr {self.at(scope, base, place)}, align 64")

    def store(self, scope: Scope, value: str, base: str, place: str = "0") -> None:
        scope.do(f"store {self.kind} {value}, ptr {self.at(scope, base, place)}, align 64")

    def every(self, scope: Scope, index: str) -> str:
        """A whole number in each lane."""
        one = scope.emit(f"insertelement {self.whole} poison, i{8 * self.dtype.itemsize} {self._narrow(scope, index)}, i32 0")
        return scope.emit(f"shufflevector {self.whole} {one}, {self.whole} poison, <{self.count} x i32> zeroinitializer")

    def _narrow(self, scope: Scope, index: str) -> str:
        return index if self.dtype.itemsize == 8 else scope.emit(f"trunc i64 {index} to i32")

    def interleave(self, scope: Scope, to: str, source: str, size: str, count: str) -> None:
        scope.do(f"call void @lw_interleave_{self.suffix}(ptr {to}, ptr {source}, i64 {size}, i64 {count})")

    def separate(self, scope: Scope, to: str, source: str, size: str, count: str) -> None:
        scope.do(f"call void @lw_separate_{self.suffix}(ptr {to}, ptr {source}, i64 {size}, i64 {count})")

    def bits(self, scope: Scope, mask: str) -> str:
        """A mask as a number."""
        return scope.emit(f"zext i{self.count} {scope.emit(f'bitcast {self.mask} {mask} to i{self.count}')} to i64")


def product(scope: Scope, *factors: str) -> str:
    first, *rest = factors
    for x in rest:
        first = scope.emit(f"mul i64 {first}, {x}")
    return first


def added(scope: Scope, a: str, b: str | int) -> str:
    return scope.emit(f"add i64 {a}, {b}")


def interleaving_text(lanes: Lanes) -> str:
    """Both functions, internal."""
    return "\n".join(_text(lanes, kind) for kind in ("interleave", "separate"))


def _text(lanes: Lanes, kind: str) -> str:
    """In squares, transposed in registers."""
    function = lanes.function()
    root = function.root
    rows, last = [], root.emit("sub i64 %count, 1")
    for lane in range(lanes.count):
        row = root.call("i64", "llvm.smin.i64", [("i64", str(lane)), ("i64", last)])
        rows.append(element(root, lanes.number, "%from" if kind == "interleave" else "%to", product(root, row, "%size")))
    squares = partial(_gathered if kind == "interleave" else _scattered, lanes, rows)
    loop(root, "0", "%size", str(lanes.count), (), squares)
    header = f"internal void @lw_{kind}_{lanes.suffix}(ptr noalias %to, ptr noalias %from, i64 %size, i64 %count)"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _gathered(lanes: Lanes, rows: list[str], scope: Scope, at: str, state: list[str]) -> list[str]:
    mask = first_lanes(scope, scope.emit(f"sub i64 %size, {at}"), lanes.count)
    found = [load_first(scope, lanes.kind, element(scope, lanes.number, row, at), mask) for row in rows]
    to = lanes.at(scope, "%to", at)
    for k, value in enumerate(transposed(scope, lanes.kind, found)):
        lanes.store(scope, value, to, str(k))
    return []


def _scattered(lanes: Lanes, rows: list[str], scope: Scope, at: str, state: list[str]) -> list[str]:
    mask = first_lanes(scope, scope.emit(f"sub i64 %size, {at}"), lanes.count)
    first = lanes.at(scope, "%from", at)
    found = [lanes.load(scope, first, str(k)) for k in range(lanes.count)]
    for row, value in zip(rows, transposed(scope, lanes.kind, found), strict=True):
        store_first(scope, lanes.kind, value, element(scope, lanes.number, row, at), mask)
    return []
