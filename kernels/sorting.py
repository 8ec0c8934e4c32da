"""Stable merge sort as LLVM text.

Guarantees: equal elements keep their order; NaN comes last, as in NumPy, and NaNs are equal to each other; -0.0 equals
0.0; at most n log2(n) comparisons beyond the first runs, whatever the input. Source: the bottom-up merge sort of Knuth,
The Art of Computer Programming 3, 5.2.4, on runs made by insertion.
"""
from __future__ import annotations

from functools import cache

import numpy as np

from loopwright.ir.errors import DTypeError
from loopwright.ir.types import BF16, BOOL, COMPLEX, F16, F32, F64, SHORT

RUN = 16  # elements that insertion sorts before merging starts


@cache
def sort_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_sort_<dtype>(ptr %data, ptr %temp, i64 %n)`: sorts data in place; temp holds n elements."""
    name = f"lw_sort_{SHORT[checked(dtype)]}"
    return name, _Sort(dtype).text(name, "ptr %data, ptr %temp, i64 %n")


def checked(dtype: np.dtype) -> np.dtype:
    """The dtype, if its elements are in some order."""
    if dtype in COMPLEX:
        raise DTypeError(f"sort on {dtype}: complex numbers have no compiled sort")
    return dtype


def ordered_half(bits: str, result: str, *, is_f16: bool) -> list[str]:
    """Instructions that give a half, by its bits, as an i32: sign and magnitude to two's complement, and every NaN to the
    largest."""
    wide, size, minus, negative, value, nan = (f"{result}.{k}" for k in range(6))
    return [f"{wide} = zext i16 {bits} to i32", f"{size} = and i32 {wide}, 32767", f"{minus} = sub i32 0, {size}",
            f"{negative} = icmp ugt i32 {wide}, 32767", f"{value} = select i1 {negative}, i32 {minus}, i32 {size}",
            f"{nan} = icmp ugt i32 {size}, {0x7C00 if is_f16 else 0x7F80}",
            f"{result} = select i1 {nan}, i32 65535, i32 {value}"]


class _Sort:
    """The text of one sort."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.element = {F32: "float", F64: "double"}.get(dtype, f"i{8 * dtype.itemsize}")
        self.lines: list[str] = []
        self.count = 0

    def let(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def do(self, *lines: str) -> None:
        self.lines += [line if line.endswith(":") else "  " + line for line in lines]

    def load(self, base: str, at: str) -> str:
        return self.let(f"load {self.element}, ptr {self.let(f'getelementptr {self.element}, ptr {base}, i64 {at}')}")

    def store(self, value: str, base: str, at: str) -> None:
        self.do(f"store {self.element} {value}, ptr {self.let(f'getelementptr {self.element}, ptr {base}, i64 {at}')}")

    def key_of(self, element: str) -> str:
        """What is compared of an element: halves become integers in their order."""
        if self.dtype not in (F16, BF16):
            return element
        self.count += 1
        key = f"%h{self.count}"
        self.do(*ordered_half(element, key, is_f16=self.dtype == F16))
        return key

    def less(self, a: str, b: str) -> str:
        """Whether key a goes strictly before key b."""
        if self.dtype in (F16, BF16):
            return self.let(f"icmp slt i32 {a}, {b}")
        if self.dtype not in (F32, F64):
            signed = self.dtype.kind == "i" and self.dtype != BOOL
            return self.let(f"icmp {'slt' if signed else 'ult'} {self.element} {a}, {b}")
        # b > a or b unordered with a, and a is a number: a NaN goes before nothing, everything before a NaN.
        more = self.let(f"fcmp ugt {self.element} {b}, {a}")
        number = self.let(f"fcmp ord {self.element} {a}, {a}")
        return self.let(f"and i1 {more}, {number}")

    def text(self, name: str, parameters: str) -> str:
        self.do("entry:")
        self._insertion()
        self._merges()
        body = "\n".join(self.lines)
        return f"define internal void @{name}({parameters}) nounwind {{\n{body}\n}}"

    def _insertion(self) -> None:
        """Each run of RUN elements: element i moves left past every greater one of its run."""
        self.do("%many = icmp sgt i64 %n, 1", "br i1 %many, label %insert, label %out", "insert:",
                "%i = phi i64 [ 1, %entry ], [ %i1, %placed ]", f"%first = and i64 %i, {-RUN}")
        element = self.load("%data", "%i")
        key = self.key_of(element)
        self.do("br label %shift", "shift:", "%j = phi i64 [ %i, %insert ], [ %j1, %move ]",
                "%inside = icmp sgt i64 %j, %first", "br i1 %inside, label %look, label %placed", "look:",
                "%j1 = sub i64 %j, 1")
        left = self.load("%data", "%j1")
        goes = self.less(key, self.key_of(left))
        self.do(f"br i1 {goes}, label %move, label %placed", "move:")
        self.store(left, "%data", "%j")
        self.do("br label %shift", "placed:")
        self.store(element, "%data", "%j")
        self.do("%i1 = add i64 %i, 1", "%ic = icmp slt i64 %i1, %n", "br i1 %ic, label %insert, label %widths")

    def _merges(self) -> None:
        """Runs of `width` from one array to runs of twice the width in the other, until one run is left."""
        self.do("widths:", f"%width = phi i64 [ {RUN}, %placed ], [ %twice, %merged ]",
                "%from = phi ptr [ %data, %placed ], [ %to, %merged ]", "%to = phi ptr [ %temp, %placed ], [ %from, %merged ]",
                "%twice = shl i64 %width, 1", "%wc = icmp slt i64 %width, %n", "br i1 %wc, label %pair, label %finish",
                "pair:", "%lo = phi i64 [ 0, %widths ], [ %hi, %paired ]",
                "%mid0 = add i64 %lo, %width", "%mc = icmp slt i64 %mid0, %n", "%mid = select i1 %mc, i64 %mid0, i64 %n",
                "%hi0 = add i64 %lo, %twice", "%hc = icmp slt i64 %hi0, %n", "%hi = select i1 %hc, i64 %hi0, i64 %n",
                "br label %merge", "merge:", "%k = phi i64 [ %lo, %pair ], [ %k1, %put ]",
                "%l = phi i64 [ %lo, %pair ], [ %l1, %put ]", "%r = phi i64 [ %mid, %pair ], [ %r1, %put ]",
                "%done = icmp sge i64 %k, %hi", "br i1 %done, label %paired, label %lefts",
                "lefts:", "%lc = icmp slt i64 %l, %mid", "br i1 %lc, label %rights, label %takeright",
                "rights:", "%rc = icmp slt i64 %r, %hi", "br i1 %rc, label %both, label %takeleft", "both:")
        left, right = self.load("%from", "%l"), self.load("%from", "%r")
        goes = self.less(self.key_of(right), self.key_of(left))
        self.do(f"%chosen = select i1 {goes}, {self.element} {right}, {self.element} {left}",
                f"%step = zext i1 {goes} to i64", "br label %put", "takeright:")
        only_right = self.load("%from", "%r")
        self.do("br label %put", "takeleft:")
        only_left = self.load("%from", "%l")
        self.do("br label %put", "put:",
                f"%value = phi {self.element} [ %chosen, %both ], [ {only_right}, %takeright ], [ {only_left}, %takeleft ]",
                "%right = phi i64 [ %step, %both ], [ 1, %takeright ], [ 0, %takeleft ]")
        self.store("%value", "%to", "%k")
        self.do("%r1 = add i64 %r, %right", "%left = xor i64 %right, 1", "%l1 = add i64 %l, %left", "%k1 = add i64 %k, 1",
                "br label %merge", "paired:", "%nc = icmp slt i64 %hi, %n", "br i1 %nc, label %pair, label %merged",
                "merged:", "br label %widths", "finish:", "%same = icmp eq ptr %from, %data",
                "br i1 %same, label %out, label %copy", "copy:", "%c = phi i64 [ 0, %finish ], [ %c1, %copy ]")
        self.store(self.load("%from", "%c"), "%data", "%c")
        self.do("%c1 = add i64 %c, 1", "%cc = icmp slt i64 %c1, %n", "br i1 %cc, label %copy, label %out", "out:", "ret void")
