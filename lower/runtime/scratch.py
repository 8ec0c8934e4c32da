"""Memory of compiled code: scratch for its activations, large results, and the error that it reports.

    ptr  @lw_scratch_acquire(i64 bytes)     64-byte aligned; null when out of memory
    ptr  @lw_result_acquire(i64 bytes)      the same, of a block that is hardly larger: results may live long
    ptr  @lw_result_resize(ptr, i64 bytes)  what realloc does
    void @lw_scratch_release(ptr)
    void @lw_report(ptr error, i64 site, i64 index, i64 axis, i64 size)     the first report stays

Guarantees: a block has one owner from acquire to release; any thread may release it; blocks are kept for reuse up to
about `MOST_KEPT` bytes and handed over by atomic exchange, so there is no lock that a fork could leave held.
"""
from __future__ import annotations

import ctypes
import sys

from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.once import once

PLACES = 64  # blocks kept at most; a power of two
MOST_KEPT = 256 << 20  # bytes
LARGEST = 1 << 46  # bytes that a request can be, far above any memory
GRANULE = 4096  # capacities are multiples of it, so that nearly equal sizes share blocks
HEADER = 64  # bytes before a block: malloc's pointer, then the capacity
COLOURED = 1 << 16  # bytes from which blocks begin at different places of a page, see `allocate`
HUGE_PAGES = 4 << 20  # bytes from which on Linux is asked for large pages, as NumPy does
IMPORTS = ("lw_scratch_acquire", "lw_scratch_release", "lw_report")
_EXPORTS = (*IMPORTS, "lw_result_acquire", "lw_result_resize", "lw_scratch_trim", "lw_scratch_kept")


@once
def library() -> Library:
    """The compiled functions, with `lw_scratch_trim`, which frees every kept block, and the count of kept bytes."""
    return load(assembled(_text(sys.platform == "linux")), {}, _EXPORTS)


def imports() -> dict[str, int]:
    """What compiled code may call, by name."""
    return {name: library()[name] for name in IMPORTS}


def trim() -> None:
    """Give kept blocks back to the system."""
    if not library.is_made:  # nothing ran yet
        return
    ctypes.CFUNCTYPE(None)(library()["lw_scratch_trim"])()


def kept() -> int:
    """The bytes kept for reuse."""
    return int(ctypes.c_int64.from_address(library()["lw_scratch_kept"]).value)


_ADVISED = f"""
declare i32 @madvise(ptr, i64, i32)
define internal void @advise(ptr %block, i64 %bytes) nounwind {{
entry:
  %large = icmp uge i64 %bytes, {HUGE_PAGES}
  br i1 %large, label %ask, label %out
ask:
  %address = ptrtoint ptr %block to i64
  %after = add i64 %address, 4095
  %from = and i64 %after, -4096
  %page = inttoptr i64 %from to ptr
  %length = sub i64 %bytes, 4096
  %asked = call i32 @madvise(ptr %page, i64 %length, i32 14)
  br label %out
out:
  ret void
}}
"""
_UNADVISED = """
define internal void @advise(ptr %block, i64 %bytes) nounwind {
  ret void
}
"""


def _text(is_linux: bool) -> str:
    return (_ADVISED if is_linux else _UNADVISED) + _TEXT


_TEXT = f"""
@places = internal global [{PLACES} x ptr] zeroinitializer, align 64
@sizes = internal global [{PLACES} x i64] zeroinitializer, align 64 ; what is, or was a moment ago, the capacity in each place
@turn = internal global i64 0
@colours = internal global i64 0
@lw_scratch_kept = global i64 0
declare ptr @malloc(i64)
declare void @free(ptr)

define internal i64 @capacity(ptr %block) nounwind alwaysinline {{
  %at = getelementptr i8, ptr %block, i64 {8 - HEADER}
  %capacity = load i64, ptr %at
  ret i64 %capacity
}}

define internal void @discard(ptr %block) nounwind {{
  %at = getelementptr i8, ptr %block, i64 {-HEADER}
  %raw = load ptr, ptr %at
  call void @free(ptr %raw)
  ret void
}}

; What was in the place, which is empty now; the count of kept bytes follows.
define internal ptr @take(i64 %k) nounwind {{
  %place = getelementptr ptr, ptr @places, i64 %k
  %seen = load atomic ptr, ptr %place monotonic, align 8
  %empty = icmp eq ptr %seen, null
  br i1 %empty, label %none, label %exchange
exchange:
  %block = atomicrmw xchg ptr %place, ptr null acq_rel, align 8
  %lost = icmp eq ptr %block, null
  br i1 %lost, label %none, label %count
count:
  %capacity = call i64 @capacity(ptr %block)
  %before = atomicrmw sub ptr @lw_scratch_kept, i64 %capacity monotonic, align 8
  ret ptr %block
none:
  ret ptr null
}}

; Whether the block could be put into the place.
define internal i1 @put(i64 %k, ptr %block) nounwind {{
  %place = getelementptr ptr, ptr @places, i64 %k
  %seen = load atomic ptr, ptr %place monotonic, align 8
  %empty = icmp eq ptr %seen, null
  br i1 %empty, label %exchange, label %full
exchange:
  %capacity = call i64 @capacity(ptr %block)
  %before = atomicrmw add ptr @lw_scratch_kept, i64 %capacity monotonic, align 8
  %pair = cmpxchg ptr %place, ptr null, ptr %block acq_rel monotonic, align 8
  %done = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %done, label %kept, label %undo
kept:
  %size.at = getelementptr i64, ptr @sizes, i64 %k
  %size = load atomic i64, ptr %size.at monotonic, align 8
  %same = icmp eq i64 %size, %capacity
  br i1 %same, label %done.it, label %tell
tell:
  store atomic i64 %capacity, ptr %size.at monotonic, align 8
  br label %done.it
done.it:
  ret i1 true
undo:
  %again = atomicrmw sub ptr @lw_scratch_kept, i64 %capacity monotonic, align 8
  br label %full
full:
  ret i1 false
}}

define ptr @lw_scratch_acquire(i64 %bytes) nounwind {{
  %block = call ptr @acquire(i64 %bytes, i64 0)
  ret ptr %block
}}

define ptr @lw_result_acquire(i64 %bytes) nounwind {{
  %block = call ptr @acquire(i64 %bytes, i64 4)
  ret ptr %block
}}

define ptr @lw_result_resize(ptr %old, i64 %bytes) nounwind {{
entry:
  %new = call ptr @lw_result_acquire(i64 %bytes)
  %refused = icmp eq ptr %new, null
  %first = icmp eq ptr %old, null
  %done = or i1 %refused, %first
  br i1 %done, label %out, label %move
move:
  %capacity = call i64 @capacity(ptr %old)
  %length = call i64 @llvm.umin.i64(i64 %capacity, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %length, i1 false)
  call void @lw_scratch_release(ptr %old)
  br label %out
out:
  ret ptr %new
}}
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; At most `need >> share` bytes, and a little, more than are needed. Places whose blocks do not fit are passed by.
define internal ptr @acquire(i64 %bytes, i64 %share) nounwind {{
entry:
  %huge = icmp ugt i64 %bytes, {LARGEST}
  br i1 %huge, label %none, label %size
size:
  %padded = add i64 %bytes, {GRANULE}
  %need = and i64 %padded, {-GRANULE}
  %as.much = add i64 %need, 65536
  %slack = lshr i64 %as.much, %share
  %most = add i64 %need, %slack
  br label %look
look:
  %k = phi i64 [ 0, %size ], [ %following, %onwards ]
  %size.at = getelementptr i64, ptr @sizes, i64 %k
  %seen = load atomic i64, ptr %size.at monotonic, align 8
  %seen.over = sub i64 %seen, %need
  %likely = icmp ule i64 %seen.over, %slack
  br i1 %likely, label %try, label %onwards
try:
  %block = call ptr @take(i64 %k)
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %onwards, label %measure
measure:
  %capacity = call i64 @capacity(ptr %block)
  %enough = icmp uge i64 %capacity, %need
  %modest = icmp ule i64 %capacity, %most
  %fits = and i1 %enough, %modest
  br i1 %fits, label %found, label %back
found:
  ret ptr %block
back:
  %kept = call i1 @put(i64 %k, ptr %block)
  br i1 %kept, label %onwards, label %drop
drop:
  call void @discard(ptr %block)
  br label %onwards
onwards:
  %following = add i64 %k, 1
  %more = icmp ult i64 %following, {PLACES}
  br i1 %more, label %look, label %allocate
allocate: ; arrays that begin alike in their pages get in each other's way: loads wait for stores to addresses that end alike
  %coloured = icmp uge i64 %need, {COLOURED}
  br i1 %coloured, label %choose, label %ask
choose:
  %number = atomicrmw add ptr @colours, i64 1 monotonic, align 8
  %colour = urem i64 %number, 7
  %lines = shl i64 %colour, 9
  %chosen = add i64 %lines, 512
  br label %ask
ask:
  %begin = phi i64 [ 0, %allocate ], [ %chosen, %choose ]
  %grain = select i1 %coloured, i64 4096, i64 {HEADER}
  %before = add i64 %grain, {HEADER}
  %all = add i64 %need, %begin
  %whole = add i64 %all, %before
  %raw = call ptr @malloc(i64 %whole)
  %refused = icmp eq ptr %raw, null
  br i1 %refused, label %none, label %align
align:
  %address = ptrtoint ptr %raw to i64
  %beyond = add i64 %address, %before
  %after = sub i64 %beyond, 1
  %mask = sub i64 0, %grain
  %aligned = and i64 %after, %mask
  %least = sub i64 %aligned, %address
  %offset = add i64 %least, %begin
  %made = getelementptr i8, ptr %raw, i64 %offset
  %raw.at = getelementptr i8, ptr %made, i64 {-HEADER}
  store ptr %raw, ptr %raw.at
  %capacity.at = getelementptr i8, ptr %made, i64 {8 - HEADER}
  store i64 %need, ptr %capacity.at
  call void @advise(ptr %made, i64 %need)
  ret ptr %made
none:
  ret ptr null
}}

; Into an empty place if there is room; else blocks that nobody asked for make way, in turn.
define void @lw_scratch_release(ptr %block) nounwind {{
entry:
  %capacity = call i64 @capacity(ptr %block)
  %large = icmp ugt i64 %capacity, {MOST_KEPT // 2}
  br i1 %large, label %give.up, label %room
room:
  %tries = phi i64 [ 0, %entry ], [ %tries.next, %evicted ]
  %kept = load atomic i64, ptr @lw_scratch_kept monotonic, align 8
  %sum = add i64 %kept, %capacity
  %over = icmp sgt i64 %sum, {MOST_KEPT}
  br i1 %over, label %evict, label %search
search:
  %k = phi i64 [ 0, %room ], [ %following, %occupied ]
  %done = call i1 @put(i64 %k, ptr %block)
  br i1 %done, label %out, label %occupied
occupied:
  %following = add i64 %k, 1
  %more = icmp ult i64 %following, {PLACES}
  br i1 %more, label %search, label %evict
evict:
  %turn = atomicrmw add ptr @turn, i64 1 monotonic, align 8
  %victim.place = and i64 %turn, {PLACES - 1}
  %victim = call ptr @take(i64 %victim.place)
  %nobody = icmp eq ptr %victim, null
  br i1 %nobody, label %evicted, label %free.it
free.it:
  call void @discard(ptr %victim)
  br label %evicted
evicted:
  %tries.next = add i64 %tries, 1
  %retry = icmp ult i64 %tries.next, {2 * PLACES}
  br i1 %retry, label %room, label %give.up
give.up:
  call void @discard(ptr %block)
  br label %out
out:
  ret void
}}

define void @lw_report(ptr %error, i64 %site, i64 %index, i64 %axis, i64 %size) nounwind {{
entry:
  %old = cmpxchg ptr %error, i64 0, i64 %site monotonic monotonic
  %first = extractvalue {{ i64, i1 }} %old, 1
  br i1 %first, label %store, label %done
store:
  %p1 = getelementptr i64, ptr %error, i64 1
  store i64 %index, ptr %p1, align 8
  %p2 = getelementptr i64, ptr %error, i64 2
  store i64 %axis, ptr %p2, align 8
  %p3 = getelementptr i64, ptr %error, i64 3
  store i64 %size, ptr %p3, align 8
  br label %done
done:
  ret void
}}

define void @lw_scratch_trim() nounwind {{
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %following, %onwards ]
  %block = call ptr @take(i64 %k)
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %onwards, label %drop
drop:
  call void @discard(ptr %block)
  br label %onwards
onwards:
  %following = add i64 %k, 1
  %more = icmp ult i64 %following, {PLACES}
  br i1 %more, label %look, label %out
out:
  ret void
}}
"""
