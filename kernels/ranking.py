"""Elements of a row by their ranks as LLVM text: what stands somewhere if the row were sorted, which is not sorted for it.

A sample, in order, tells between which two values an element of some rank will be, most likely; one pass keeps what is between
them, some fifth, and counts what is below. So on until few are left, which are sorted; the next rank is often among these.

Guarantees: the order of a sort, NaN last; where the sample misleads the row is sorted. Source: the selection of Floyd and
Rivest, Communications of the ACM 18 (3), 1975.
"""
from __future__ import annotations

from functools import cache

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, SHORT
from loopwright.kernels.sorting import checked

SAMPLE = 256  # elements
MARGIN = 28  # of a sample on either side: 3.5 standard deviations of a place in it
FEW = 512  # elements that are sorted
_HASH = 2654435769  # 2^32 over the golden ratio: where in its part of a row each element of a sample is taken


def scratch_elements(n: Extent) -> Extent:
    """What `temp` below has room for, as elements."""
    return 2 * n + 2 * SAMPLE


@cache
def ranked_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_ranked_<dtype>(ptr %row, ptr %out, ptr %ranks, ptr %temp, i64 %n, i64 %m)`: out becomes what
    stands at m ranks, i64, of a row of n elements. It calls `void @lw_sort_<dtype>(ptr data, ptr temp, i64 n)`."""
    name, kind = f"lw_ranked_{SHORT[checked(dtype)]}", SHORT[dtype]
    e, size = {F32: "float", F64: "double"}.get(dtype, f"i{8 * dtype.itemsize}"), dtype.itemsize
    is_sorted = dtype in (F16, BF16, BOOL)  # as it has no instruction that compares
    return name, f"""declare void @lw_sort_{kind}(ptr, ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
define void @{name}(ptr %row, ptr %out, ptr %ranks, ptr %temp, i64 %n, i64 %m) nounwind {{
entry:
  %spare = getelementptr {e}, ptr %temp, i64 %n
  %sample = getelementptr {e}, ptr %spare, i64 %n
  %sample.spare = getelementptr {e}, ptr %sample, i64 {SAMPLE}
  %greatest = sub i64 %n, 1
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %rank, label %done
rank:
  %j = phi i64 [ 0, %entry ], [ %j1, %give ]
  %held = phi i64 [ 0, %entry ], [ %begin, %give ]
  %holds = phi i64 [ 0, %entry ], [ %count, %give ]
  %more = icmp slt i64 %j, %m
  br i1 %more, label %ask, label %done
ask:
  %rank.at = getelementptr i64, ptr %ranks, i64 %j
  %given = load i64, ptr %rank.at
  %given.low = call i64 @llvm.smax.i64(i64 %given, i64 0)
  %asked = call i64 @llvm.smin.i64(i64 %given.low, i64 %greatest)
  %ahead = sub i64 %asked, %held
  %is.held = icmp ult i64 %ahead, %holds
  br i1 %is.held, label %give, label %{"all" if is_sorted else "narrow"}
{"" if is_sorted else _narrowing_text(dtype, e)}all:
  %bytes = mul i64 %n, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr %temp, ptr %row, i64 %bytes, i1 false)
  call void @lw_sort_{kind}(ptr %temp, ptr %spare, i64 %n)
  br label %give
give:
  %begin = phi i64 [ %held, %ask ], [ 0, %all ]{"" if is_sorted else ", [ %base, %sort ], [ %base1, %equal ]"}
  %count = phi i64 [ %holds, %ask ], [ %n, %all ]{"" if is_sorted else ", [ %length, %sort ], [ %kept, %equal ]"}
  %place = sub i64 %asked, %begin
  %from = getelementptr {e}, ptr %temp, i64 %place
  %found = load {e}, ptr %from
  %to = getelementptr {e}, ptr %out, i64 %j
  store {e} %found, ptr %to
  %j1 = add i64 %j, 1
  br label %rank
done:
  ret void
}}
"""


def _narrowing_text(dtype: np.dtype, e: str) -> str:
    """The blocks that keep what is about a rank, again and again: `length` elements at `source`, before which `base` come."""
    return f"""narrow:
  %source = phi ptr [ %row, %ask ], [ %temp, %kept.some ]
  %length = phi i64 [ %n, %ask ], [ %kept, %kept.some ]
  %base = phi i64 [ 0, %ask ], [ %base1, %kept.some ]
  %shrinks = phi i1 [ true, %ask ], [ %less.than.half, %kept.some ]
  %many = icmp sgt i64 %length, {FEW}
  %goes.on = and i1 %many, %shrinks
  br i1 %goes.on, label %part, label %last
{_sampling_text(dtype, e)}{_passing_text(dtype, e)}last:
  %is.row = icmp eq ptr %source, %row
  br i1 %is.row, label %copy, label %sort
copy:
  %copied = mul i64 %length, {dtype.itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr %temp, ptr %row, i64 %copied, i1 false)
  br label %sort
sort:
  call void @lw_sort_{SHORT[dtype]}(ptr %temp, ptr %spare, i64 %length)
  br label %give
"""


def _sampling_text(dtype: np.dtype, e: str) -> str:
    """From `part`: a sorted sample of the elements gives what lies `low` and `high` of the rank, by its margin."""
    least, most = _range(dtype)
    return f"""part:
  %each = udiv i64 %length, {SAMPLE}
  br label %taken
taken:
  %s = phi i64 [ 0, %part ], [ %s1, %taken ]
  %s.hash = mul i64 %s, {_HASH}
  %s.low = and i64 %s.hash, 4294967295
  %s.scaled = mul i64 %s.low, %each
  %s.off = lshr i64 %s.scaled, 32
  %s.before = mul i64 %s, %length
  %s.part = udiv i64 %s.before, {SAMPLE}
  %s.number = add i64 %s.part, %s.off
  %s.from = getelementptr {e}, ptr %source, i64 %s.number
  %s.x = load {e}, ptr %s.from
  %s.to = getelementptr {e}, ptr %sample, i64 %s
  store {e} %s.x, ptr %s.to
  %s1 = add i64 %s, 1
  %s.more = icmp slt i64 %s1, {SAMPLE}
  br i1 %s.more, label %taken, label %between
between:
  call void @lw_sort_{SHORT[dtype]}(ptr %sample, ptr %sample.spare, i64 {SAMPLE})
  %wanted = sub i64 %asked, %base
  %wanted.parts = mul i64 %wanted, {SAMPLE}
  %about = udiv i64 %wanted.parts, %length
  %low.at = sub i64 %about, {MARGIN}
  %high.at = add i64 %about, {MARGIN}
  %low.inside = call i64 @llvm.smax.i64(i64 %low.at, i64 0)
  %high.inside = call i64 @llvm.smin.i64(i64 %high.at, i64 {SAMPLE - 1})
  %low.place = call i64 @llvm.smin.i64(i64 %low.inside, i64 {SAMPLE - 1})
  %low.from = getelementptr {e}, ptr %sample, i64 %low.place
  %high.from = getelementptr {e}, ptr %sample, i64 %high.inside
  %low.x = load {e}, ptr %low.from
  %high.x = load {e}, ptr %high.from
  %is.lowest = icmp slt i64 %low.at, 0
  %is.highest = icmp sge i64 %high.at, {SAMPLE}
  %low = select i1 %is.lowest, {e} {least}, {e} %low.x
  %high = select i1 %is.highest, {e} {most}, {e} %high.x
  br label %pass
"""


def _passing_text(dtype: np.dtype, e: str) -> str:
    """From `pass`: one pass counts what is below `low`, and keeps what is between; then `narrow` again, unless that missed."""
    is_float = dtype.kind == "f"
    compare, order = ("fcmp", "o") if is_float else ("icmp", "s" if dtype.kind == "i" else "u")
    same = "fcmp oeq" if is_float else "icmp eq"
    return f"""pass:
  %i = phi i64 [ 0, %between ], [ %i1, %pass ]
  %below = phi i64 [ 0, %between ], [ %below1, %pass ]
  %kept.before = phi i64 [ 0, %between ], [ %kept, %pass ]
  %i.from = getelementptr {e}, ptr %source, i64 %i
  %x = load {e}, ptr %i.from
  %to.keep = getelementptr {e}, ptr %temp, i64 %kept.before
  store {e} %x, ptr %to.keep
  %is.below = {compare} {order}lt {e} %x, %low
  %from.low = {compare} {order}ge {e} %x, %low
  %to.high = {compare} {order}le {e} %x, %high
  %is.between = and i1 %from.low, %to.high
  %one.below = zext i1 %is.below to i64
  %one.between = zext i1 %is.between to i64
  %below1 = add i64 %below, %one.below
  %kept = add i64 %kept.before, %one.between
  %i1 = add i64 %i, 1
  %i.more = icmp slt i64 %i1, %length
  br i1 %i.more, label %pass, label %passed
passed:
  %off = sub i64 %wanted, %below1
  %is.kept = icmp ult i64 %off, %kept
  br i1 %is.kept, label %counted, label %all
counted:
  %base1 = add i64 %base, %below1
  %is.one = {same} {e} %low, %high
  br i1 %is.one, label %equal, label %kept.some
equal:
  br label %give
kept.some:
  %twice = shl i64 %kept, 1
  %less.than.half = icmp slt i64 %twice, %length
  br label %narrow
"""


def _range(dtype: np.dtype) -> tuple[str, str]:
    """The least and the greatest number of a type, as text."""
    if dtype.kind == "f":
        return "0xFFF0000000000000", "0x7FF0000000000000"
    return str(np.iinfo(dtype).min), str(np.iinfo(dtype).max)
