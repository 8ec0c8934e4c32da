"""How workers of the thread pool sleep and are woken, in LLVM text: `sleep` until `signal` changes, `wake` all, and on Linux
`settle` and `apart`, which keep a woken worker off the core of the loop's caller.

Guarantees: a change of `signal` that `wake` follows ends every sleep that began before it.
"""
from __future__ import annotations

NAPS = (50, 1000)  # microseconds of the first and of the longest sleep, where there is no futex
CORES = 1024  # on machines of more, workers stay where the system wakes them


def sleep_text(futex: int | None, nap_function: str) -> str:
    """futex: the number of Linux's system call, or None to sleep in naps by `void nap_function(i32 microseconds)`. The text
    that it joins has the globals `signal`, `sleepers` and `core`."""
    return _nap_text(nap_function) if futex is None else _futex_text(futex) + _CORES


def _futex_text(number: int) -> str:
    return f"""
declare i64 @syscall(i64, ...)
define internal void @sleep(i32 %last) nounwind {{
  %more = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %woken = call i64 (i64, ...) @syscall(i64 {number}, ptr @signal, i64 128, i32 %last, ptr null, ptr null, i64 0)
  %less = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  ret void
}}
define internal void @wake() nounwind {{
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %call, label %out
call:
  %woken = call i64 (i64, ...) @syscall(i64 {number}, ptr @signal, i64 129, i32 2147483647, ptr null, ptr null, i64 0)
  br label %out
out:
  ret void
}}
"""


_CORES = f"""
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
; Note the core of a loop's caller.
define internal void @settle() nounwind {{
  %here = call i32 @sched_getcpu()
  store atomic i32 %here, ptr @core release, align 4
  ret void
}}

; A worker that the system woke on the caller's core goes to another. Where other threads have every core, as those of a library
; that spin, the system often wakes it there; the two would take turns. It may run afterwards where it might before.
define internal void @apart() nounwind {{
  %cores = alloca [{CORES // 64} x i64], align 8
  %here = call i32 @sched_getcpu()
  %callers = load atomic i32, ptr @core acquire, align 4
  %same = icmp eq i32 %here, %callers
  %known = icmp ult i32 %here, {CORES}
  %move = and i1 %same, %known
  br i1 %move, label %look, label %out
look:
  %failed = call i32 @sched_getaffinity(i32 0, i64 {CORES // 8}, ptr %cores)
  %some = icmp eq i32 %failed, 0
  br i1 %some, label %leave, label %out
leave:
  %word = lshr i32 %here, 6
  %at = getelementptr i64, ptr %cores, i32 %word
  %place = and i32 %here, 63
  %shift = zext i32 %place to i64
  %bit = shl i64 1, %shift
  %allowed = load i64, ptr %at, align 8
  %others = xor i64 %allowed, %bit
  store i64 %others, ptr %at, align 8
  %left = call i32 @sched_setaffinity(i32 0, i64 {CORES // 8}, ptr %cores)
  store i64 %allowed, ptr %at, align 8
  %back = call i32 @sched_setaffinity(i32 0, i64 {CORES // 8}, ptr %cores)
  br label %out
out:
  ret void
}}
"""


def _nap_text(nap: str) -> str:
    return f"""
declare void @{nap}(i32)
define internal void @sleep(i32 %last) nounwind {{
entry:
  br label %nap
nap:
  %long = phi i32 [ {NAPS[0]}, %entry ], [ %longer, %nap ]
  call void @{nap}(i32 %long)
  %double = shl i32 %long, 1
  %limit = icmp ugt i32 %double, {NAPS[1]}
  %longer = select i1 %limit, i32 {NAPS[1]}, i32 %double
  %now = load atomic i32, ptr @signal acquire, align 4
  %same = icmp eq i32 %now, %last
  br i1 %same, label %nap, label %out
out:
  ret void
}}
define internal void @wake() nounwind {{
  ret void
}}
define internal void @settle() nounwind {{
  ret void
}}
define internal void @apart() nounwind {{
  ret void
}}
"""
