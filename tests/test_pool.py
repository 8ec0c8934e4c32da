"""Parallel loops: every chunk once, whatever else happens in the process."""
import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.lower.runtime import pool, scratch, threads
from loopwright.lower.runtime.cache import assembled
from loopwright.lower.runtime.engine import load
from loopwright.lower.runtime.pool_text import DEBT, EXPORTS, THRESHOLD, WAKING
from tests.forking import check_in_child, needs_fork, of_threads
from tests.scale import examples

BODIES = """
declare void @lw_parallel_for(ptr, ptr, i64, i64)

; context[i] += 1 for i in [begin, end); chunk k leaves begin and end behind: context[n + begin] = end
define void @count(ptr %context, i64 %begin, i64 %end) {
entry:
  %n = load i64, ptr %context
  %mark = add i64 %n, %begin
  %mark.at = getelementptr i64, ptr %context, i64 %mark
  %mark.next = getelementptr i64, ptr %mark.at, i64 1
  store i64 %end, ptr %mark.next
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %place = add i64 %i, 1
  %at = getelementptr i64, ptr %context, i64 %place
  %before = atomicrmw add ptr %at, i64 1 monotonic
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}

; a loop inside each chunk: context = (pointer to a count context, its n)
define void @nested(ptr %context, i64 %begin, i64 %end) {
  %inner = load ptr, ptr %context
  %n = load i64, ptr %inner
  call void @lw_parallel_for(ptr @count, ptr %inner, i64 %n, i64 3)
  ret void
}

define void @repeat(ptr %body, ptr %context, i64 %n, i64 %grain, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @lw_parallel_for(ptr %body, ptr %context, i64 %n, i64 %grain)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""
POINTER, SIZE = ctypes.c_void_p, ctypes.c_int64


class Loops:
    """Bodies linked to one pool."""

    def __init__(self, parallel_for):
        self.library = load(assembled(BODIES), {"lw_parallel_for": parallel_for}, ["count", "nested", "repeat"])
        self.repeat = ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE, SIZE, SIZE)(self.library["repeat"])

    def count(self, n, grain, times=1, held=None):
        """How often each index was visited, and the chunks as (begin, end)."""
        context = np.zeros(2 * n + 1, np.int64)
        context[0] = n
        self.repeat(self.library["count"], context.ctypes.data, n, grain, times)
        ends = context[n + 1:]
        return context[1:n + 1], [(int(b), int(ends[b])) for b in np.flatnonzero(ends)]


@pytest.fixture(scope="module")
def loops():
    return Loops(pool.library()["lw_parallel_for"])


@pytest.fixture(params=[1, 2, 5])
def count_of_threads(request):
    pool.set_threads(request.param)
    yield request.param
    pool.set_threads(None)


def expected_chunks(n, grain):
    grain = max(grain, 1)
    return [(b, min(n, b + grain)) for b in range(0, n, grain)]


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000, 4099])
@pytest.mark.parametrize("grain", [-1, 0, 1, 3, 1000, 10**12])
def test_each_index_once_in_the_same_chunks(loops, count_of_threads, n, grain):
    counts, chunks = loops.count(n, grain)
    assert (counts == 1).all()
    assert chunks == expected_chunks(n, grain)


@examples(30)
@given(n=st.integers(0, 3000), grain=st.integers(1, 400), times=st.integers(1, 30))
def test_loops_in_a_row(n, grain, times):
    counts, _ = Loops(pool.library()["lw_parallel_for"]).count(n, grain, times)
    assert (counts == times).all()


@pytest.mark.parametrize(("n", "each", "least", "together"), [
    (1, 1, 1, 1), (1000, 0, 1, 1), (1000, 100, 1, 1), (THRESHOLD - 1, 1, 1, 1), (THRESHOLD, 1, 1, 1), (5000, 100, 1, 48),
    (1000, 10**6, 1, 1), (1000, 10**6, 256, 1), (1000, 10**6, 1, 7), (300_000, 1000, 1, 16)])
@pytest.mark.parametrize("name", ["lw_loop", "lw_wide_loop", "lw_column_loop"])
def test_loops_of_little_work_are_one_chunk_others_have_even_ones(loops, count_of_threads, name, n, each, least, together):
    context = np.zeros(2 * n + 1, np.int64)
    context[0] = n
    loops.count(10, 1)  # the workers are there
    whole = ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE, SIZE, SIZE, SIZE)(pool.library()[name])
    whole(loops.library["count"], context.ctypes.data, n, each, least, together)
    assert (context[1:n + 1] == 1).all()
    lengths = np.diff([0, *(e for e in context[n + 1:] if e)])
    assert lengths.sum() == n
    if n * max(each, 1) < THRESHOLD:
        assert len(lengths) == 1
    if name != "lw_loop":
        assert len(lengths) <= count_of_threads
    if name == "lw_column_loop":
        assert len(lengths) == 1 or n >= least * count_of_threads
    assert (lengths[:-1] >= least / 2).all() and (lengths[:-1] % together == 0).all()
    assert len(lengths) == 1 or lengths[0] - lengths[-1] <= len(lengths) * together


def chunks_of(loops, n):
    """How many chunks a loop of n units of work has."""
    context = np.zeros(2 * n + 1, np.int64)
    context[0] = n
    whole = ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE, SIZE, SIZE, SIZE)(pool.library()["lw_loop"])
    whole(loops.library["count"], context.ctypes.data, n, 1, 1, 1)
    assert (context[1:n + 1] == 1).all()
    return np.count_nonzero(context[n + 1:])


def chunks_after_sleep(loops, n, seconds=10.0):
    """How many chunks a loop has that finds the workers asleep: 1 at last, as they sleep when nobody calls them."""
    end = time.monotonic() + seconds
    while (found := chunks_of(loops, n)) != 1 and time.monotonic() < end:
        time.sleep(0.01)
    return found


@of_threads
def test_short_loops_have_threads_that_are_awake(loops):
    """They wake none, and start none, but those that are missed for long."""
    pool.set_threads(3)
    try:
        assert chunks_of(loops, THRESHOLD) == 1
        assert chunks_of(loops, WAKING) > 1
        assert chunks_after_sleep(loops, THRESHOLD) == 1
        assert chunks_of(loops, WAKING) > 1
        assert chunks_after_sleep(loops, THRESHOLD) == 1
        assert any(chunks_of(loops, THRESHOLD) > 1 for _ in range(2 * DEBT // THRESHOLD))
    finally:
        pool.set_threads(None)


@of_threads
def test_the_first_loop_may_be_a_wide_one(loops):
    """It has a chunk for each thread, which have to be there to be counted."""
    context = np.zeros(2 * 3000 + 1, np.int64)
    context[0] = 3000
    pool.set_threads(3)
    try:
        whole = ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE, SIZE, SIZE, SIZE)(pool.library()["lw_wide_loop"])
        whole(loops.library["count"], context.ctypes.data, 3000, 10**6, 1, 1)
        assert (context[1:3001] == 1).all() and np.count_nonzero(context[3001:]) == 3
    finally:
        pool.set_threads(None)


def test_many_short_loops(loops, count_of_threads):
    counts, _ = loops.count(4, 1, 20_000)
    assert (counts == 20_000).all()


def test_loops_inside_loops(loops, count_of_threads):
    inner = np.zeros(2 * 100 + 1, np.int64)
    inner[0] = 100
    context = np.array([inner.ctypes.data], np.int64)
    loops.repeat(loops.library["nested"], context.ctypes.data, 50, 1, 4)
    assert (inner[1:101] == 200).all()


def test_two_threads_at_once(loops, count_of_threads):
    wrong = []

    def work():
        for _ in range(30):
            counts, _ = loops.count(500, 7, 10)
            wrong.extend(counts[counts != 10])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_workers_start_when_needed_and_wake_from_sleep(loops):
    pool.set_threads(3)
    try:
        loops.count(10, 100)
        assert len(pool._pool.workers) == 0  # one chunk needs nobody
        loops.count(10, 1)
        assert len(pool._pool.workers) == 2 and all(w.daemon and w.is_alive() for w in pool._pool.workers)
        for pause in (0.0, 0.02, 0.1):
            time.sleep(pause)
            assert (loops.count(100, 1)[0] == 1).all()
    finally:
        pool.set_threads(None)
    assert len(pool._pool.workers) == 0


def test_starting_and_stopping_in_a_row(loops):
    """A worker that went to sleep before the pool was open is still woken, to work and to stop."""
    started = time.perf_counter()
    for pause in [0.0, 0.002] * 10:
        pool.set_threads(4)
        assert (loops.count(20, 1)[0] == 1).all()
        workers = list(pool._pool.workers)
        time.sleep(pause)
        pool.set_threads(None)
        assert not any(worker.is_alive() for worker in workers)
    assert time.perf_counter() - started < 20 * pool.JOIN_SECONDS


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say what a thread may run on")
def test_workers_may_run_afterwards_where_they_might_before(loops):
    """One on the caller's core moves; where it may not, both stay there."""
    cores = os.sched_getaffinity(0)
    pool.set_threads(2)
    try:
        assert (loops.count(100, 1)[0] == 1).all()
        worker = pool._pool.workers[0].native_id
        os.sched_setaffinity(0, {min(cores)})
        for allowed in (cores, {min(cores)}, cores):
            os.sched_setaffinity(worker, allowed)
            for pause in (0.0, 0.01, 0.0):
                time.sleep(pause)
                assert (loops.count(1000, 3, 50)[0] == 50).all()
            time.sleep(0.05)
            assert os.sched_getaffinity(worker) == allowed
    finally:
        os.sched_setaffinity(0, cores)
        pool.set_threads(None)


def test_naps_where_there_is_no_futex():
    started = []

    def start():
        for k in (1, 2):
            thread = threading.Thread(target=ctypes.CFUNCTYPE(None, SIZE)(library["lw_pool_work"]), args=(k,), daemon=True)
            thread.start()
            started.append(thread)
        opened = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)
        opened(library["lw_pool_open"])(2, 3, 100, None, 0)

    library = pool.load_pool(None, start)
    assert all(library[name] for name in EXPORTS)
    loops = Loops(library["lw_parallel_for"])
    for pause in (0.0, 0.01):
        time.sleep(pause)
        assert (loops.count(1000, 3, 50)[0] == 50).all()
    assert len(started) == 2
    ctypes.CFUNCTYPE(None)(library["lw_pool_close"])()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


@needs_fork
@of_threads
def test_forked_children_have_their_own_workers(loops):
    def check():
        assert not pool._pool.workers and (loops.count(1000, 3, 20)[0] == 20).all() and len(pool._pool.workers) == 2

    pool.set_threads(3)
    try:
        loops.count(100, 1)
        for _ in range(3):
            check_in_child(check)
        assert (loops.count(1000, 3)[0] == 1).all()
    finally:
        pool.set_threads(None)


@needs_fork
@of_threads
def test_fork_while_another_thread_loops(loops):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            loops.count(1000, 1, 10)

    def check():
        assert (loops.count(1000, 3)[0] == 1).all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            check_in_child(check)
    finally:
        stop.set()
        thread.join()


def test_number_of_threads(monkeypatch):
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    assert 1 <= threads.threads() <= (os.cpu_count() or 1)
    monkeypatch.setenv(threads.VARIABLE, "7")
    assert threads.threads() == 7
    monkeypatch.setenv(threads.VARIABLE, "0")
    with pytest.raises(ValueError, match="at least 1"):
        threads.threads()
    with pytest.raises(ValueError, match="at least 1"):
        pool.set_threads(0)


def test_the_process_ends_with_workers_running():
    script = """
import atexit, os, threading
os.environ["LOOPWRIGHT_NUM_THREADS"] = "4"
from tests.test_pool import Loops, pool
loops = Loops(pool.library()["lw_parallel_for"])
assert (loops.count(1000, 1)[0] == 1).all() and len(pool._pool.workers) == 3
def endless():
    while True:
        loops.count(1000, 1, 100)
threading.Thread(target=endless, daemon=True).start()
def last():
    assert (loops.count(1000, 1)[0] == 1).all()
atexit.register(last)
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


class Scratch:
    def __init__(self):
        library = scratch.library()
        self.acquire = ctypes.CFUNCTYPE(POINTER, SIZE)(library["lw_scratch_acquire"])
        self.release = ctypes.CFUNCTYPE(None, POINTER)(library["lw_scratch_release"])


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 1 << 22), st.booleans()), max_size=60))
def test_scratch_blocks_are_disjoint(steps):
    memory, held = Scratch(), []
    for size, let_go in steps:
        if let_go and held:
            memory.release(held.pop(size % len(held))[0])
            continue
        block = memory.acquire(size)
        assert block % 64 == 0
        ctypes.memset(block, 0xAB, size)
        assert all(block + size <= other or other + length <= block for other, length in held if size and length)
        held.append((block, size))
    for block, _ in held:
        memory.release(block)
    assert 0 <= scratch.kept() <= scratch.MOST_KEPT


def test_scratch_is_reused_and_trimmed():
    memory = Scratch()
    scratch.trim()
    block = memory.acquire(1 << 20)
    memory.release(block)
    assert scratch.kept() > 1 << 20
    assert memory.acquire((1 << 20) - 100) == block
    memory.release(block)
    scratch.trim()
    assert scratch.kept() == 0


def test_scratch_keeps_within_bounds():
    memory = Scratch()
    blocks = [memory.acquire(40 << 20) for _ in range(10)] + [memory.acquire(1000) for _ in range(40)]
    for block in blocks:
        memory.release(block)
    assert scratch.kept() <= scratch.MOST_KEPT
    block = memory.acquire(scratch.MOST_KEPT)
    kept = scratch.kept()
    memory.release(block)
    assert scratch.kept() == kept  # one this large is not kept
    scratch.trim()


def test_scratch_refuses_what_there_cannot_be():
    memory = Scratch()
    assert [memory.acquire(n) for n in (1 << 60, -1, -(1 << 63), (1 << 63) - 1)] == [None] * 4


def test_scratch_between_threads():
    memory, wrong = Scratch(), []

    def work(mark):
        rng = np.random.default_rng(mark)
        for _ in range(2000):
            size = int(rng.integers(1, 60_000))
            block = memory.acquire(size)
            ctypes.memset(block, mark, size)
            if ctypes.string_at(block, size).count(mark) != size:
                wrong.append(mark)
            memory.release(block)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
