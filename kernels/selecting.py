"""The greatest few of a row as LLVM text: candidates beyond the least of the best so far are kept, and sorted when many.

Blocks of elements are compared with that least one, which most do not pass: of a row of n in random order about k log(n / k)
do. Of a row that rises all do, and are sorted among some 4k, a third more than once. Rows that are not longer are sorted.

Guarantees: falling; NaN before all numbers, NaNs equal to each other, -0.0 equal to 0.0; of equal ones the first come first;
rows have at most 2^32 elements.
"""
from __future__ import annotations

from functools import cache

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, SHORT
from loopwright.kernels.sorting import checked

LANES = 16
SPARE, FIRST = 256, 64  # candidates that there is room for beyond 4k, and beyond k those that are sorted first
ARRAYS = 6  # of candidates and the best: elements and positions each; an order, and what its sort needs


def scratch_bytes(k: Extent) -> Extent:
    """What `temp` below has room for."""
    return (4 * k + SPARE) * (8 * ARRAYS)


def _ordered(dtype: np.dtype, x: str, result: str, lanes: int) -> str:
    """Instructions that give a signed integer of the same width in the order of elements; of NaN the greatest."""
    bits = 8 * dtype.itemsize

    def of(kind: str) -> str:
        return kind if lanes == 1 else f"<{lanes} x {kind}>"

    def number(value: int | str, kind: str = f"i{bits}") -> str:
        return str(value) if lanes == 1 else f"splat ({kind} {value})"
    i, most = of(f"i{bits}"), (1 << (bits - 1)) - 1
    if dtype in (F32, F64):
        e = _element(dtype)
        lines = [f"{x}.plain = fadd {of(e)} {x}, {number('0.0', e)}", f"{x}.bits = bitcast {of(e)} {x}.plain to {i}",
                 f"{x}.nan = fcmp uno {of(e)} {x}, {x}"]
    elif dtype in (F16, BF16):
        lines = [f"{x}.size = and {i} {x}, {number(most)}", f"{x}.zero = icmp eq {i} {x}.size, {number(0)}",
                 f"{x}.bits = select {of('i1')} {x}.zero, {i} {number(0)}, {i} {x}",
                 f"{x}.nan = icmp ugt {i} {x}.size, {number(0x7C00 if dtype == F16 else 0x7F80)}"]
    else:
        flip = 0 if dtype.kind == "i" and dtype != BOOL else -(1 << (bits - 1))
        return f"{result} = xor {i} {x}, {number(flip)}"
    lines += [f"{x}.sign = ashr {i} {x}.bits, {number(bits - 1)}", f"{x}.flip = lshr {i} {x}.sign, {number(1)}",
              f"{x}.folded = xor {i} {x}.bits, {x}.flip",
              f"{result} = select {of('i1')} {x}.nan, {i} {number(most)}, {i} {x}.folded"]
    return "\n  ".join(lines)


def _element(dtype: np.dtype) -> str:
    return {F32: "float", F64: "double"}.get(dtype, f"i{8 * dtype.itemsize}")


@cache
def top_k_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_top_k_<dtype>(ptr %keys, ptr %out, ptr %temp, i64 %n, i64 %k)`: out becomes the i64
    positions of the k <= n greatest of keys. It calls `void @lw_argsort_<dtype>(ptr keys, ptr data, ptr temp, i64 n)`."""
    name, e, i = f"lw_top_k_{SHORT[checked(dtype)]}", _element(dtype), f"i{8 * dtype.itemsize}"
    sort = f"lw_argsort_{SHORT[dtype]}"
    return name, f"""declare void @{sort}(ptr, ptr, ptr, i64)
declare i16 @llvm.cttz.i16(i16, i1)
define void @{name}(ptr %keys, ptr %out, ptr %temp, i64 %n, i64 %k) nounwind {{
entry:
  %fourfold = shl i64 %k, 2
  %room = add i64 %fourfold, {SPARE}
  %crowded = sub i64 %room, {LANES}
  %last = sub i64 %room, 1
  %kept.at = getelementptr i64, ptr %temp, i64 %room
  %best = getelementptr i64, ptr %kept.at, i64 %room
  %best.at = getelementptr i64, ptr %best, i64 %room
  %order = getelementptr i64, ptr %best.at, i64 %room
  %spare = getelementptr i64, ptr %order, i64 %room
  %fits = icmp sle i64 %n, %room
  %some.first = add i64 %k, {FIRST}
  %first = select i1 %fits, i64 %n, i64 %some.first
  %some = icmp sgt i64 %k, 0
  br i1 %some, label %fill, label %done
fill:
  %f = phi i64 [ 0, %entry ], [ %f1, %fill ]
  {_moved(e, "%keys", "%f", "%temp", "%f.to", "%f.key")}
  %f.to.at = getelementptr i64, ptr %kept.at, i64 %f.to
  store i64 %f, ptr %f.to.at
  %f1 = add i64 %f, 1
  %f.more = icmp slt i64 %f1, %first
  br i1 %f.more, label %fill, label %choose
choose:
  %at = phi i64 [ %first, %fill ], [ %block, %some.pass ], [ %block, %few ], [ %n, %single ]
  %count = phi i64 [ %first, %fill ], [ %held, %some.pass ], [ %held, %few ], [ %s.count, %single ]
  %low = sub i64 %room, %count
  %candidates = getelementptr {e}, ptr %temp, i64 %low
  call void @{sort}(ptr %candidates, ptr %order, ptr %spare, i64 %count)
  %over = icmp sge i64 %at, %n
  br i1 %over, label %give, label %rank
rank:
  %r = phi i64 [ 0, %choose ], [ %r1, %rank ]
  %r1 = add i64 %r, 1
  %r.back = sub i64 %count, %r1
  %r.place = getelementptr i64, ptr %order, i64 %r.back
  %r.number = load i64, ptr %r.place
  %r.slot = add i64 %low, %r.number
  %r.from = getelementptr {e}, ptr %temp, i64 %r.slot
  %r.key = load {e}, ptr %r.from
  %r.to = getelementptr {e}, ptr %best, i64 %r
  store {e} %r.key, ptr %r.to
  %r.from.at = getelementptr i64, ptr %kept.at, i64 %r.slot
  %r.position = load i64, ptr %r.from.at
  %r.to.at = getelementptr i64, ptr %best.at, i64 %r
  store i64 %r.position, ptr %r.to.at
  %r.more = icmp slt i64 %r1, %k
  br i1 %r.more, label %rank, label %keep
keep:
  %b = phi i64 [ 0, %rank ], [ %b1, %keep ]
  {_moved(e, "%best", "%b", "%temp", "%b.to", "%b.key")}
  %b.from.at = getelementptr i64, ptr %best.at, i64 %b
  %b.position = load i64, ptr %b.from.at
  %b.to.at = getelementptr i64, ptr %kept.at, i64 %b.to
  store i64 %b.position, ptr %b.to.at
  %b1 = add i64 %b, 1
  %b.more = icmp slt i64 %b1, %k
  br i1 %b.more, label %keep, label %kept
kept:
  {_ordered(dtype, "%b.key", "%least", 1)}
  %least.one = insertelement <{LANES} x {i}> poison, {i} %least, i32 0
  %leasts = shufflevector <{LANES} x {i}> %least.one, <{LANES} x {i}> poison, <{LANES} x i32> zeroinitializer
  br label %scan
scan:
  %block = phi i64 [ %at, %kept ], [ %next, %passed ]
  %held = phi i64 [ %k, %kept ], [ %now, %passed ]
  %next = add i64 %block, {LANES}
  %whole = icmp sle i64 %next, %n
  br i1 %whole, label %wide, label %few
wide:
  %w.from = getelementptr {e}, ptr %keys, i64 %block
  %w = load <{LANES} x {e}>, ptr %w.from, align {dtype.itemsize}
  {_ordered(dtype, "%w", "%w.order", LANES)}
  %w.pass = icmp sgt <{LANES} x {i}> %w.order, %leasts
  %passes = bitcast <{LANES} x i1> %w.pass to i{LANES}
  %none = icmp eq i{LANES} %passes, 0
  br i1 %none, label %passed, label %some.pass
some.pass:
  %w.crowded = icmp sgt i64 %held, %crowded
  br i1 %w.crowded, label %choose, label %take
take:
  %left = phi i{LANES} [ %passes, %some.pass ], [ %left1, %take ]
  %t.count = phi i64 [ %held, %some.pass ], [ %t.count1, %take ]
  %lane = call i{LANES} @llvm.cttz.i{LANES}(i{LANES} %left, i1 true)
  %t.lane = zext i{LANES} %lane to i64
  %t.at = add i64 %block, %t.lane
  %t.from = getelementptr {e}, ptr %keys, i64 %t.at
  %t.key = load {e}, ptr %t.from
  %t.slot = sub i64 %last, %t.count
  %t.to = getelementptr {e}, ptr %temp, i64 %t.slot
  store {e} %t.key, ptr %t.to
  %t.to.at = getelementptr i64, ptr %kept.at, i64 %t.slot
  store i64 %t.at, ptr %t.to.at
  %t.count1 = add i64 %t.count, 1
  %left0 = sub i{LANES} %left, 1
  %left1 = and i{LANES} %left, %left0
  %t.more = icmp ne i{LANES} %left1, 0
  br i1 %t.more, label %take, label %passed
passed:
  %now = phi i64 [ %held, %wide ], [ %t.count1, %take ]
  br label %scan
few:
  %f.crowded = icmp sgt i64 %held, %crowded
  br i1 %f.crowded, label %choose, label %single
single:
  %s = phi i64 [ %block, %few ], [ %s1, %looked ]
  %s.count = phi i64 [ %held, %few ], [ %s.count1, %looked ]
  %s.more = icmp slt i64 %s, %n
  br i1 %s.more, label %looked, label %choose
looked:
  %s.from = getelementptr {e}, ptr %keys, i64 %s
  %s.key = load {e}, ptr %s.from
  %s.slot = sub i64 %last, %s.count
  %s.to = getelementptr {e}, ptr %temp, i64 %s.slot
  store {e} %s.key, ptr %s.to
  %s.to.at = getelementptr i64, ptr %kept.at, i64 %s.slot
  store i64 %s, ptr %s.to.at
  {_ordered(dtype, "%s.key", "%s.order", 1)}
  %s.pass = icmp sgt {i} %s.order, %least
  %s.one = zext i1 %s.pass to i64
  %s.count1 = add i64 %s.count, %s.one
  %s1 = add i64 %s, 1
  br label %single
give:
  %g = phi i64 [ 0, %choose ], [ %g1, %give ]
  %g1 = add i64 %g, 1
  %g.back = sub i64 %count, %g1
  %g.place = getelementptr i64, ptr %order, i64 %g.back
  %g.number = load i64, ptr %g.place
  %g.slot = add i64 %low, %g.number
  %g.from = getelementptr i64, ptr %kept.at, i64 %g.slot
  %g.position = load i64, ptr %g.from
  %g.to = getelementptr i64, ptr %out, i64 %g
  store i64 %g.position, ptr %g.to
  %g.more = icmp slt i64 %g1, %k
  br i1 %g.more, label %give, label %done
done:
  ret void
}}
"""


def _moved(e: str, source: str, number: str, to: str, slot: str, key: str) -> str:
    """Instructions that copy an element to the slot of a candidate with this number: these go down from the last slot, so that
    a sort that keeps the order of equal ones, read from its end, gives the first of them first."""
    return "\n  ".join([f"{key}.from = getelementptr {e}, ptr {source}, i64 {number}", f"{key} = load {e}, ptr {key}.from",
                        f"{slot} = sub i64 %last, {number}", f"{slot}.key = getelementptr {e}, ptr {to}, i64 {slot}",
                        f"store {e} {key}, ptr {slot}.key"])
