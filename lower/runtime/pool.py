"""Parallel loops: our own threads, which claim chunks.

    void @lw_loop(ptr body, ptr context, i64 n, i64 each, i64 least, i64 together)
    void @lw_wide_loop(...)                              the same, a chunk for each thread: of columns that go through rows
    void @lw_column_loop(...)                            the same of at least `least` each, else one of all: columns of products
    void @lw_watched_loop(..., ptr poll, ptr error)      the same, of loops that may not end: see signals.py
    void @lw_wide_watched_loop(..., ptr poll, ptr error) both
    void @lw_parallel_for(ptr body, ptr context, i64 n, i64 grain)
                                                                       body: void (ptr context, i64 begin, i64 end)
    ptr  @lw_rows_chosen(...)                            the body of a loop over rows: see later.py

A loop over n indices, each of which is `each` units of work, runs where it is, or in chunks where there is enough to do; or it
runs in chunks of `grain` indices. The workers are daemon Python threads inside a compiled loop, without Python's lock. Chunks
are claimed by compare-and-swap, each thread's own part of them first; the caller claims chunks too, and waits only for chunks
that somebody claimed. Workers spin for a while, then sleep; one that wakes on the caller's core moves to
another.

Guarantees: the chunks are [k * grain, (k + 1) * grain) whoever runs them and however many threads there are, one by one
in order when there is one; a call made inside a body, or while another thread's loop runs, is run by its own thread;
threads are started at the first loop of more than one chunk; a forked child starts its own; at exit they are stopped. Where
somebody lets NumPy's OpenBLAS have fewer threads (`threadpoolctl`, OPENBLAS_NUM_THREADS), a loop that begins then has no more.
"""
from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from loopwright.lower.runtime import blas, later
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.once import once
from loopwright.lower.runtime.pool_text import EXPORTS, PARALLEL, SERIAL, pool_text
from loopwright.lower.runtime.threads import choose, chosen, threads

JOIN_SECONDS = 1.0  # how long the end of the process waits for a worker
SPIN_SECONDS = 1e-4  # how long a worker spins before it sleeps
TRIAL = 500  # pauses that are timed
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_PROCESSOR = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm64", "arm64": "arm64", "ARM64": "arm64"}


class _Pool:
    """What Python knows of the workers. The lock is held for starting and stopping, not while loops run."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workers: list[threading.Thread] = []

    def start(self) -> None:
        """Start the workers, if nobody did meanwhile."""
        others = _others()
        with self.lock:
            if self.workers:
                return
            # The interpreter may be ending, or the system have no more threads: those that started serve.
            with contextlib.suppress(RuntimeError):
                self._start(threads())
            opened = _control("lw_pool_open", ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)
            opened(PARALLEL if self.workers else SERIAL, 1 + len(self.workers), _pauses(SPIN_SECONDS), *others)

    def _start(self, count: int) -> None:
        work = _control("lw_pool_work", ctypes.c_int64)
        for k in range(1, count):
            worker = threading.Thread(target=work, args=(k,), name=f"loopwright-{k}", daemon=True)
            worker.start()
            self.workers.append(worker)

    def stop(self) -> None:
        """Send the workers home; loops are serial until `reset`."""
        with self.lock:
            _control("lw_pool_close")()
            for worker in self.workers:
                worker.join(JOIN_SECONDS)
            self.workers = []


_pool = _Pool()


def set_threads(count: int | None) -> None:
    """Use this many threads from now on; None: as many as the process may use. Waits for the loop that runs. ValueError for a
    count below 1. `LOOPWRIGHT_NUM_THREADS` says the same for a whole process. Libraries that compiled code calls have no more
    threads either; NumPy's own calls of them keep theirs."""
    choose(count)
    blas.limit_threads()
    if library.is_made:
        _pool.stop()
        _control("lw_pool_reset")()


@once
def library() -> Library:
    """The compiled pool."""
    futex = _FUTEX_CALL.get(platform.machine()) if sys.platform == "linux" else None
    loaded = load_pool(futex, _start_from_compiled_code)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    atexit.register(_pool.stop)
    return loaded


def load_pool(futex: int | None, start: Callable[[], None]) -> Library:
    """A pool of its own; `start` is called at the first loop of more than one chunk."""
    callback = ctypes.CFUNCTYPE(None)(start)
    text = pool_text(_PROCESSOR.get(platform.machine(), ""), futex, *_SYSTEM[sys.platform == "win32"])
    where = {"lw_pool_start": ctypes.cast(callback, ctypes.c_void_p).value or 0, later.MADE: later.asking()}
    return load(assembled(text + later.CHOSEN_TEXT), {**where, **_windows_functions()}, (*EXPORTS, later.CHOSEN),
                {"callback": callback})


_SYSTEM = {False: ("sched_yield", "usleep"), True: ("SwitchToThread", "Sleep")}


def _windows_functions() -> dict[str, int]:
    if sys.platform != "win32":
        return {}
    kernel = ctypes.WinDLL("kernel32")
    return {name: ctypes.cast(getattr(kernel, name), ctypes.c_void_p).value or 0 for name in _SYSTEM[True]}


def _control(name: str, *types: type) -> Any:
    return ctypes.CFUNCTYPE(None, *types)(library()[name])


def _pauses(seconds: float) -> int:
    """How many of the processor's pauses last so long."""
    pause, times = _control("lw_pool_pause", ctypes.c_int64), []
    for _ in range(3):
        start = time.perf_counter()
        pause(TRIAL)
        times.append(time.perf_counter() - start)
    return int(seconds / max(min(times), 1e-9) * TRIAL)


def _others() -> tuple[int, int]:
    """What tells how many threads OpenBLAS may have, and the number below which it means the pool, too: somebody chose fewer.
    What was chosen for us holds against what OpenBLAS had before. 0 where there is no OpenBLAS."""
    found = blas.found()
    if found is None or not found.get_threads:
        return 0, 0
    allowed = blas.library(found)["lw_blas_allowed"]
    now = ctypes.CFUNCTYPE(ctypes.c_int32)(allowed)()
    return allowed, now if chosen() is not None else min(threads(), found.most_threads)


def _start_from_compiled_code() -> None:
    try:
        _pool.start()
    except KeyboardInterrupt:  # it cannot pass through compiled code: raise it again when Python goes on
        _thread.interrupt_main()


def _after_fork() -> None:
    """The child has no workers, and no other thread that could hold anything."""
    _pool.lock, _pool.workers = threading.Lock(), []
    _control("lw_pool_reset")()
