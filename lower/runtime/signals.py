"""Signals inside long loops of compiled code.

    i64 @lw_poll(ptr clock, ptr error)      the number of trips after which to ask again; 0 to leave the loop

`clock` is three i64 of the loop's activation: the number of trips to begin with, then zeros. The number doubles while
the trips are quick and falls when they are slow, so that the clock is read some hundred times a second; every tenth of
a second Python is asked for signals, with its lock held. When a handler raised, the error becomes (-2, 0, 0, 0, type,
value, traceback), with the references of that exception. Python answers signals in its main thread alone: other threads,
which may wait for one that holds the lock, never ask for it, and leave when there is an error, for which they look after every
so many trips as to begin with.

Guarantees: works with and without Python's lock held; no exception stays pending.
"""
from __future__ import annotations

import ctypes
import os
import sys
import threading

from loopwright.lower.runtime import objects
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.once import once

QUICK, SLOW, CHECK = 1_000_000, 10_000_000, 100_000_000  # ns
MOST_TRIPS = 1 << 20
_PYTHON = ("PyThread_get_thread_ident", "PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")


@once
def library() -> Library:
    """The compiled function."""
    where = {name: objects.address(name) for name in _PYTHON}
    if sys.platform == "win32":
        ticks = ctypes.WinDLL("kernel32").GetTickCount64
        where["GetTickCount64"] = ctypes.cast(ticks, ctypes.c_void_p).value or 0
    loaded = load(assembled(_text(sys.platform)), where, ("lw_poll", "lw_poll_in"))
    _tell(loaded)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _tell(loaded))
    return loaded


def _tell(loaded: Library) -> None:
    """Which thread is Python's main one."""
    ctypes.CFUNCTYPE(None, ctypes.c_ulong)(loaded["lw_poll_in"])(threading.main_thread().ident)


def _clock_text(platform: str) -> str:
    """`i64 @now()` in nanoseconds, from some moment on."""
    if platform == "win32":
        return """
declare i64 @GetTickCount64()
define internal i64 @now() nounwind {
  %ms = call i64 @GetTickCount64()
  %ns = mul i64 %ms, 1000000
  ret i64 %ns
}"""
    monotonic = 6 if platform == "darwin" else 1
    return f"""
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() nounwind {{
  %time = alloca [2 x i64], align 16
  %status = call i32 @clock_gettime(i32 {monotonic}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}}"""


_ANSWER = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
; Whether Python's handlers raised, which is then the error.
define internal i1 @answered(ptr %error) nounwind {
entry:
  %state = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %interrupted, label %out
interrupted:
  %type = getelementptr i64, ptr %error, i64 4
  %value = getelementptr i64, ptr %error, i64 5
  %traceback = getelementptr i64, ptr %error, i64 6
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %traceback)
  store atomic i64 -2, ptr %error release, align 8
  br label %out
out:
  call void @PyGILState_Release(i32 %state)
  ret i1 %raised
}
"""


def _text(platform: str) -> str:
    long = "i32" if platform == "win32" else "i64"
    return _clock_text(platform) + _ANSWER + f"""
@main = internal global {long} 0
declare {long} @PyThread_get_thread_ident()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
define void @lw_poll_in({long} %thread) nounwind {{
  store atomic {long} %thread, ptr @main release, align 8
  ret void
}}
define i64 @lw_poll(ptr %clock, ptr %error) nounwind {{
entry:
  %this = call {long} @PyThread_get_thread_ident()
  %main = load atomic {long}, ptr @main acquire, align 8
  %asks = icmp eq {long} %this, %main
  br i1 %asks, label %answer, label %other
other:
  %code = load atomic i64, ptr %error acquire, align 8
  %failed = icmp ne i64 %code, 0
  %as.before = load i64, ptr %clock
  %onwards = select i1 %failed, i64 0, i64 %as.before
  ret i64 %onwards
answer:
  %now = call i64 @now()
  %trips = load i64, ptr %clock
  %polled.at = getelementptr i64, ptr %clock, i64 1
  %polled = load i64, ptr %polled.at
  store i64 %now, ptr %polled.at
  %checked.at = getelementptr i64, ptr %clock, i64 2
  %first = icmp eq i64 %polled, 0
  br i1 %first, label %begin, label %measure
begin:
  store i64 %now, ptr %checked.at
  ret i64 %trips
measure:
  %taken = sub i64 %now, %polled
  %quick = icmp slt i64 %taken, {QUICK}
  %slow = icmp sgt i64 %taken, {SLOW}
  %doubled = shl i64 %trips, 1
  %eighth = ashr i64 %trips, 3
  %more = call i64 @llvm.smin.i64(i64 %doubled, i64 {MOST_TRIPS})
  %fewer = call i64 @llvm.smax.i64(i64 %eighth, i64 1)
  %kept = select i1 %slow, i64 %fewer, i64 %trips
  %next = select i1 %quick, i64 %more, i64 %kept
  store i64 %next, ptr %clock
  %checked = load i64, ptr %checked.at
  %since = sub i64 %now, %checked
  %due = icmp sge i64 %since, {CHECK}
  br i1 %due, label %check, label %go.on
go.on:
  ret i64 %next
check:
  store i64 %now, ptr %checked.at
  %raised = call i1 @answered(ptr %error)
  %trips.then = select i1 %raised, i64 0, i64 %next
  ret i64 %trips.then
}}
"""
