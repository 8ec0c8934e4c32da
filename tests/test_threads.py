"""Two threads may trace and call one function at once; nothing is locked while user code runs."""
import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.runtime.once import once
from loopwright.versions import Versions
from tests.forking import check_in_child, needs_fork, of_threads


def together(count, work):
    """Run work(k) in `count` threads that start at the same moment; raise what any of them raised."""
    gate, errors = threading.Barrier(count), []

    def run(k):
        gate.wait()
        try:
            work(k)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.fixture(autouse=True)
def switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_one_function_traced_and_called_by_many_threads():
    @lw.jit
    def f(x, y):
        for _ in range(10):
            x = x * y + 1
        return x

    def plain(x, y):
        for _ in range(10):
            x = x * y + 1
        return x

    def work(k):
        rng = np.random.default_rng(k)
        for n in (*range(1, 30), k + 2):
            x, y = rng.normal(size=n), rng.normal(size=n)
            np.testing.assert_array_equal(f(x, y), plain(x, y))
    together(4, work)
    assert f.compiles == 1 and len(f.versions) == 1


def test_threads_trace_at_the_same_time_and_the_first_to_publish_wins():
    inside = threading.Barrier(2)
    traces = []

    @lw.jit
    def f(x):
        traces.append(threading.get_ident())
        inside.wait(30)  # passes only when both threads are in user code: no lock is held around it
        return x + 1

    together(2, lambda k: np.testing.assert_array_equal(f(np.full(3, float(k))), np.full(3, k + 1.0)))
    assert len(set(traces)) == 2 and f.compiles == 1


def test_traces_of_different_threads_do_not_meet():
    f = lw.jit(lambda x, k: lw.jit(lambda y: y * k)(x) + x, static_argnums=1)

    def work(k):
        for j in range(10):
            assert f(2.0, 10 * k + j) == 2.0 * (10 * k + j) + 2.0
    with pytest.warns(lw.RecompilationWarning):
        together(4, work)
    assert f.compiles == 40


def test_of_threads_that_compile_at_once_one_warns(monkeypatch):
    """Each looks when all of them have compiled: the number that is warned of has gone by, or is everybody's."""
    all_compiled = threading.Barrier(4)
    monkeypatch.setattr(Versions, "_warn_of_donations", lambda *args: all_compiled.wait(60))
    f = lw.jit(lambda x, k: x * k, static_argnums=1)
    with pytest.warns(lw.RecompilationWarning) as found:
        together(4, lambda k: [f(2.0, 10 * k + j) for j in range(3)])
    assert len(found) == 1 and f.compiles == 12


def test_an_error_in_one_thread_leaves_the_other_alone():
    @lw.jit
    def f(x, y):
        if x.ndim == 2:
            raise RuntimeError("on purpose")
        return x + y

    def work(k):
        for _ in range(20):
            if k:
                with pytest.raises(RuntimeError, match="on purpose"):
                    f(np.ones((2, 2)), 1.0)
            else:
                assert f(1.0, 2.0) == 3.0
    together(2, work)
    assert lw.jit(lambda x: x + 1)(1.0) == 2.0 and gc.isenabled()


def test_a_traced_value_of_another_thread_is_a_leak():
    held = []
    lw.jit(lambda x: held.append(x) or x)(np.ones(3))
    with pytest.raises(lw.LeakedValueError, match="was used after that trace ended"):
        together(1, lambda k: held[0] + 1)


def test_a_function_may_be_dropped_while_it_runs():
    def work(k):
        for j in range(20):
            f = lw.jit(lambda x, j=j: x + j)
            assert f(1.0) == 1.0 + j
            del f
            gc.collect(0)
    together(2, work)


@needs_fork
@of_threads
def test_a_child_of_fork_compiles_while_another_thread_was_compiling():
    stop = threading.Event()

    def compile_on_and_on():
        j = 0
        while not stop.is_set():
            j += 1
            lw.jit(lambda x, j=j: x + j)(1.0)

    def check():
        assert lw.jit(lambda x: x * 3)(2.0) == 6.0

    thread = threading.Thread(target=compile_on_and_on)
    thread.start()
    try:
        for _ in range(3):
            check_in_child(check)
    finally:
        stop.set()
        thread.join(60)


def test_threads_that_ask_at_once_wait_for_the_one_that_makes_it():
    made, found = [], []

    @once
    def slow(k):
        made.append(k)
        time.sleep(0.05)
        return object()
    assert not slow.is_made
    together(3, lambda k: found.append(slow(1)))
    assert made == [1] and len({*map(id, found)}) == 1 and slow.is_made and slow.__name__ == "slow"


FIRST_LOOPS = """
import sys, threading
import numpy as np
import loopwright as lw
sys.setswitchinterval(1e-5)
x = np.random.default_rng(0).normal(size=(100, 100)).astype("f4")
f = lw.jit(lambda x: np.tanh(np.exp(-x * x) + np.sin(x)))
expected, wrong, gate = np.stack([f(row) for row in x]), [], threading.Barrier(3)
def work():
    gate.wait()
    wrong.extend(k for k in range(100) if not np.array_equal(f(x), expected))
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
sys.exit(len(wrong))
"""


@of_threads
def test_the_first_shared_loops_of_a_process_are_of_several_threads():
    """What starts the workers is made once: it kept an address in a library that another thread had made, too."""
    for _ in range(4):
        subprocess.run([sys.executable, "-c", FIRST_LOOPS], check=True, timeout=120)
