"""The threads that a BLAS has while compiled code calls it, in LLVM text.

    void @lw_blas_enter(i32 most)     the library has at most so many threads, and at most those that `lw_blas_limit` said,
    void @lw_blas_leave()             until whoever entered has left; the first to enter says how many
    void @lw_blas_limit(i32 most)     at most so many threads from now on
    i32  @lw_blas_allowed()           how many it would have now if nobody had entered
    void @lw_blas_reset()             as new, in a forked child

The number of OpenBLAS's threads belongs to the whole process: NumPy's products on other threads are made with fewer meanwhile.

Guarantees: when the last has left, the library has the number that it had, or what somebody else said meanwhile. Where a
library does not say how many it has, nothing changes, and `lw_blas_allowed` answers MOST.
"""
from __future__ import annotations

MOST = 2**31 - 1
EXPORTS = ("lw_blas_enter", "lw_blas_leave", "lw_blas_limit", "lw_blas_allowed", "lw_blas_reset")


def blas_threads_text(is_known: bool) -> str:
    """is_known: whether there are `i32 @blas_get_threads()` and `void @blas_set_threads(i32)`."""
    return _KNOWN if is_known else _UNKNOWN


_KNOWN = f"""
declare i32 @blas_get_threads()
declare void @blas_set_threads(i32)
declare i32 @llvm.smin.i32(i32, i32)
@threads.held = internal global i32 0, align 64
@threads.inside = internal global i64 0, align 8
@threads.limit = internal global i32 {MOST}, align 4
@threads.before = internal global i32 0, align 4
@threads.given = internal global i32 0, align 4

define internal void @threads.lock() nounwind {{
entry:
  br label %again
again:
  %pair = cmpxchg ptr @threads.held, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %mine, label %out, label %again
out:
  ret void
}}

define internal void @threads.unlock() nounwind {{
  store atomic i32 0, ptr @threads.held release, align 4
  ret void
}}

define void @lw_blas_enter(i32 %most) nounwind {{
entry:
  call void @threads.lock()
  %inside = load i64, ptr @threads.inside, align 8
  %more = add i64 %inside, 1
  store i64 %more, ptr @threads.inside, align 8
  %first = icmp eq i64 %inside, 0
  br i1 %first, label %ask, label %out
ask:
  %before = call i32 @blas_get_threads()
  %limit = load i32, ptr @threads.limit, align 4
  %least = call i32 @llvm.smin.i32(i32 %most, i32 %limit)
  %given = call i32 @llvm.smin.i32(i32 %least, i32 %before)
  store i32 %before, ptr @threads.before, align 4
  store i32 %given, ptr @threads.given, align 4
  %fewer = icmp slt i32 %given, %before
  br i1 %fewer, label %set, label %out
set:
  call void @blas_set_threads(i32 %given)
  br label %out
out:
  call void @threads.unlock()
  ret void
}}

define internal void @threads.restore() nounwind {{
entry:
  %before = load i32, ptr @threads.before, align 4
  %given = load i32, ptr @threads.given, align 4
  %fewer = icmp slt i32 %given, %before
  br i1 %fewer, label %ask, label %out
ask:
  %now = call i32 @blas_get_threads()
  %ours = icmp eq i32 %now, %given
  br i1 %ours, label %set, label %out
set:
  call void @blas_set_threads(i32 %before)
  br label %out
out:
  ret void
}}

define void @lw_blas_leave() nounwind {{
entry:
  call void @threads.lock()
  %inside = load i64, ptr @threads.inside, align 8
  %fewer = sub i64 %inside, 1
  store i64 %fewer, ptr @threads.inside, align 8
  %last = icmp eq i64 %fewer, 0
  br i1 %last, label %restore, label %out
restore:
  call void @threads.restore()
  br label %out
out:
  call void @threads.unlock()
  ret void
}}

define void @lw_blas_limit(i32 %most) nounwind {{
  call void @threads.lock()
  store i32 %most, ptr @threads.limit, align 4
  call void @threads.unlock()
  ret void
}}

define i32 @lw_blas_allowed() nounwind {{
entry:
  call void @threads.lock()
  %inside = load i64, ptr @threads.inside, align 8
  %before = load i32, ptr @threads.before, align 4
  %given = load i32, ptr @threads.given, align 4
  %now = call i32 @blas_get_threads()
  %entered = icmp ne i64 %inside, 0
  %same = icmp eq i32 %now, %given
  %ours = and i1 %entered, %same
  %allowed = select i1 %ours, i32 %before, i32 %now
  call void @threads.unlock()
  ret i32 %allowed
}}

define void @lw_blas_reset() nounwind {{
entry:
  call void @threads.unlock()
  %inside = load i64, ptr @threads.inside, align 8
  store i64 0, ptr @threads.inside, align 8
  %entered = icmp ne i64 %inside, 0
  br i1 %entered, label %restore, label %out
restore:
  call void @threads.restore()
  br label %out
out:
  ret void
}}
"""

_UNKNOWN = f"""
define void @lw_blas_enter(i32 %most) nounwind {{
  ret void
}}
define void @lw_blas_leave() nounwind {{
  ret void
}}
define void @lw_blas_limit(i32 %most) nounwind {{
  ret void
}}
define i32 @lw_blas_allowed() nounwind {{
  ret i32 {MOST}
}}
define void @lw_blas_reset() nounwind {{
  ret void
}}
"""
