"""Stable orders of rows as LLVM text, by sorts of integers: half of a key and a position are one number, and numbers sort fast.

A key of 32 bits or less and its position are one integer of 64, all of which differ, so that any sort of them is stable. Of a
key of 64 bits the upper half goes first; where several are equal there, their lower halves and positions are sorted alike.

Guarantees: equal elements keep their order; NaN comes last and NaNs are equal to each other; -0.0 equals 0.0; rows have at
most 2^32 elements.
"""
from __future__ import annotations

from functools import cache

import numpy as np

from loopwright.ir.types import BOOL, F16, F32, F64, SHORT
from loopwright.kernels.sorting import checked, ordered_half

HALF, UPPER, FIRST = (1 << 32) - 1, -(1 << 32), 1 << 31
LAST = {32: (1 << 31) - 1, 64: (1 << 63) - 1}  # where NaN goes


@cache
def argsort_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_argsort_<dtype>(ptr %keys, ptr %data, ptr %temp, i64 %n)`: data becomes the i64 positions
    that sort keys; temp holds n of them. It calls `void @lw_sort_i64(ptr data, ptr temp, i64 n)`."""
    name = f"lw_argsort_{SHORT[checked(dtype)]}"
    is_wide = dtype.itemsize == 8
    top = f"and i64 %order, {UPPER}" if is_wide else "shl i64 %order, 32"
    return name, f"""declare void @lw_sort_i64(ptr, ptr, i64)
{_ordered_text(dtype)}
define void @{name}(ptr %keys, ptr %data, ptr %temp, i64 %n) nounwind {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %number, label %out
number:
  %i = phi i64 [ 0, %entry ], [ %i1, %number ]
  %order = call i64 @ordered(ptr %keys, i64 %i)
  %top = {top}
  %numbered = or i64 %top, %i
  %at = getelementptr i64, ptr %data, i64 %i
  store i64 %numbered, ptr %at
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %number, label %sort
sort:
  call void @lw_sort_i64(ptr %data, ptr %temp, i64 %n)
  br label %{"run" if is_wide else "strip"}
{_RUNS if is_wide else ""}strip:
  %k = phi i64 [ 0, %{"ended" if is_wide else "sort"} ], [ %k1, %strip ]
  %from = getelementptr i64, ptr %data, i64 %k
  %both = load i64, ptr %from
  %position = and i64 %both, {HALF}
  store i64 %position, ptr %from
  %k1 = add i64 %k, 1
  %left = icmp slt i64 %k1, %n
  br i1 %left, label %strip, label %out
out:
  ret void
}}
"""


_RUNS = f"""run:
  %begin = phi i64 [ 0, %sort ], [ %end, %ended ]
  %first = getelementptr i64, ptr %data, i64 %begin
  %head = load i64, ptr %first
  br label %next
next:
  %e = phi i64 [ %begin, %run ], [ %end, %alike ]
  %end = add i64 %e, 1
  %inside = icmp slt i64 %end, %n
  br i1 %inside, label %alike, label %found
alike:
  %after = getelementptr i64, ptr %data, i64 %end
  %other = load i64, ptr %after
  %differs = xor i64 %other, %head
  %same = icmp ult i64 %differs, {HALF + 1}
  br i1 %same, label %next, label %found
found:
  %several = icmp sgt i64 %e, %begin
  br i1 %several, label %lower, label %ended
lower:
  %j = phi i64 [ %begin, %found ], [ %j1, %lower ]
  %place = getelementptr i64, ptr %data, i64 %j
  %upper = load i64, ptr %place
  %p = and i64 %upper, {HALF}
  %whole = call i64 @ordered(ptr %keys, i64 %p)
  %signed = xor i64 %whole, {FIRST}
  %low = shl i64 %signed, 32
  %again = or i64 %low, %p
  store i64 %again, ptr %place
  %j1 = add i64 %j, 1
  %rest = icmp slt i64 %j1, %end
  br i1 %rest, label %lower, label %resort
resort:
  %length = sub i64 %end, %begin
  call void @lw_sort_i64(ptr %first, ptr %temp, i64 %length)
  br label %ended
ended:
  %over = icmp slt i64 %end, %n
  br i1 %over, label %run, label %strip
"""


def _ordered_text(dtype: np.dtype) -> str:
    """`i64 @ordered(ptr keys, i64 i)`: a signed integer in the order of the keys, of 32 bits where those have no more."""
    bits = 8 * dtype.itemsize
    key = {F32: "float", F64: "double"}.get(dtype, f"i{bits}")
    lines = [f"%at = getelementptr {key}, ptr %keys, i64 %i", f"%key = load {key}, ptr %at"]
    if dtype in (F32, F64):
        lines += [f"%plain = fadd {key} %key, 0.0",  # -0.0 becomes 0.0
                  f"%bits = bitcast {key} %plain to i{bits}", f"%sign = ashr i{bits} %bits, {bits - 1}",
                  f"%flip = lshr i{bits} %sign, 1", f"%folded = xor i{bits} %bits, %flip",
                  f"%number = fcmp ord {key} %key, %key", f"%result = select i1 %number, i{bits} %folded, i{bits} {LAST[bits]}"]
    elif dtype.kind == "f" or dtype.name == "bfloat16":
        lines += ordered_half("%key", "%result", is_f16=dtype == F16)
        bits = 32
    elif dtype.kind == "i" and dtype != BOOL:
        lines += [f"%result = add i{bits} %key, 0"]
    else:
        lines += [f"%result = xor i{bits} %key, {1 << (bits - 1)}"]
    lines += ["ret i64 %result"] if bits == 64 else [f"%wide = sext i{bits} %result to i64", "ret i64 %wide"]
    body = "\n  ".join(lines)
    return f"define internal i64 @ordered(ptr %keys, i64 %i) alwaysinline nounwind {{\n  {body}\n}}"
