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
    name, e = f"lw_top_k_{SHORT[checked(dtype)]}", _element(dtype)
    return name, f"""declare void @lw_argsort_{SHORT[dtype]}(ptr, ptr, ptr, i64)
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
  {_kept(e, "%f", "%f", "%keys", "%f", "%f")}
  %f1 = add i64 %f, 1
  %f.more = icmp slt i64 %f1, %first
  br i1 %f.more, label %fill, label %choose
{_best_text(dtype)}
{_scan_text(dtype)}
give:
  %g = phi i64 [ 0, %choose ], [ %g1, %give ]
  {_ranked("%g", "%g")}
  %g.to = getelementptr i64, ptr %out, i64 %g
  store i64 %g.position, ptr %g.to
  %g.more = icmp slt i64 %g1, %k
  br i1 %g.more, label %give, label %done
done:
  ret void
}}
"""


def _kept(e: str, name: str, number: str, source: str, index: str, position: str) -> str:
    """Instructions that make an element, which was at a position of the row, a candidate. The slots of candidates go down from
    the last, so that a sort that keeps the order of equal ones, read from its end, gives the first of them first."""
    return "\n  ".join([
        f"{name}.from = getelementptr {e}, ptr {source}, i64 {index}", f"{name}.key = load {e}, ptr {name}.from",
        f"{name}.slot = sub i64 %last, {number}", f"{name}.to = getelementptr {e}, ptr %temp, i64 {name}.slot",
        f"store {e} {name}.key, ptr {name}.to", f"{name}.to.at = getelementptr i64, ptr %kept.at, i64 {name}.slot",
        f"store i64 {position}, ptr {name}.to.at"])


def _ranked(name: str, rank: str) -> str:
    """Instructions that find the slot and the position of the candidate of a rank, and the next rank."""
    return "\n  ".join([
        f"{rank}1 = add i64 {rank}, 1", f"{name}.back = sub i64 %count, {rank}1",
        f"{name}.place = getelementptr i64, ptr %order, i64 {name}.back", f"{name}.number = load i64, ptr {name}.place",
        f"{name}.slot = add i64 %low, {name}.number", f"{name}.from.at = getelementptr i64, ptr %kept.at, i64 {name}.slot",
        f"{name}.position = load i64, ptr {name}.from.at"])


def _best_text(dtype: np.dtype) -> str:
    """The blocks that sort the candidates and keep the best k, whose least is what others have to pass."""
    e, i = _element(dtype), f"i{8 * dtype.itemsize}"
    return f"""choose:
  %at = phi i64 [ %first, %fill ], [ %block, %some.pass ], [ %block, %few ], [ %n, %single ]
  %count = phi i64 [ %first, %fill ], [ %held, %some.pass ], [ %held, %few ], [ %s.count, %single ]
  %low = sub i64 %room, %count
  %candidates = getelementptr {e}, ptr %temp, i64 %low
  call void @lw_argsort_{SHORT[dtype]}(ptr %candidates, ptr %order, ptr %spare, i64 %count)
  %over = icmp sge i64 %at, %n
  br i1 %over, label %give, label %rank
rank:
  %r = phi i64 [ 0, %choose ], [ %r1, %rank ]
  {_ranked("%r", "%r")}
  %r.from = getelementptr {e}, ptr %temp, i64 %r.slot
  %r.key = load {e}, ptr %r.from
  %r.to = getelementptr {e}, ptr %best, i64 %r
  store {e} %r.key, ptr %r.to
  %r.to.at = getelementptr i64, ptr %best.at, i64 %r
  store i64 %r.position, ptr %r.to.at
  %r.more = icmp slt i64 %r1, %k
  br i1 %r.more, label %rank, label %keep
keep:
  %b = phi i64 [ 0, %rank ], [ %b1, %keep ]
  %b.at = getelementptr i64, ptr %best.at, i64 %b
  %b.position = load i64, ptr %b.at
  {_kept(e, "%b", "%b", "%best", "%b", "%b.position")}
  %b1 = add i64 %b, 1
  %b.more = icmp slt i64 %b1, %k
  br i1 %b.more, label %keep, label %kept
kept:
  {_ordered(dtype, "%b.key", "%least", 1)}
  %least.one = insertelement <{LANES} x {i}> poison, {i} %least, i32 0
  %leasts = shufflevector <{LANES} x {i}> %least.one, <{LANES} x {i}> poison, <{LANES} x i32> zeroinitializer
  br label %scan"""


def _scan_text(dtype: np.dtype) -> str:
    """The blocks that go through the row: many elements at once, then one by one. What passes becomes a candidate."""
    e, i = _element(dtype), f"i{8 * dtype.itemsize}"
    return f"""scan:
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
  {_kept(e, "%t", "%t.count", "%keys", "%t.at", "%t.at")}
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
  {_kept(e, "%s", "%s.count", "%keys", "%s", "%s")}
  {_ordered(dtype, "%s.key", "%s.order", 1)}
  %s.pass = icmp sgt {i} %s.order, %least
  %s.one = zext i1 %s.pass to i64
  %s.count1 = add i64 %s.count, %s.one
  %s1 = add i64 %s, 1
  br label %single"""
