"""What short rows need is compiled when such rows come: by the call that has them, once, and found on the disk."""
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.runtime import later
from tests.forking import check_in_child, needs_fork, of_threads

ROOT = Path(__file__).parents[1]
LONG, SHORT = (np.random.default_rng(0).normal(size=(200, m)).astype("float32") for m in (300, 7))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@pytest.fixture
def made(monkeypatch):
    """How often functions for short rows were loaded, after that program's first call with long ones."""
    counted, make = [], later.Later.make
    monkeypatch.setattr(later.Later, "make", lambda self, place: (counted.append(self), make(self, place))[1])
    return counted


def test_the_first_call_with_short_rows_compiles_for_them(made):
    f = lw.jit(lambda x: softmax(x) + 1)
    np.testing.assert_allclose(f(LONG), softmax(LONG) + 1, rtol=1e-5)
    assert not made
    first = f(SHORT)
    np.testing.assert_allclose(first, softmax(SHORT) + 1, rtol=1e-5)
    np.testing.assert_array_equal(f(SHORT), first)
    np.testing.assert_array_equal(lw.jit(lambda x: softmax(x) + 1)(SHORT), first)
    assert f.compiles == 1 and len(made) == 2 and len(made[0].libraries) == 1
    assert "_short(" in f.lower(SHORT).llvm and "_short" in f.lower(SHORT).asm


def test_kernels_of_one_program_are_made_at_once(made):
    f = lw.jit(lambda x, y: (softmax(x) @ softmax(y), np.max(y, axis=1)))
    f(LONG, LONG.T.copy())
    for x, y in ((SHORT, SHORT.T.copy()), (LONG[:, :200], SHORT), (SHORT[:7], SHORT[:7])):
        z, high = f(x, y)
        np.testing.assert_allclose(z, softmax(x) @ softmax(y), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(high, np.max(y, axis=1))
    assert len(made) == 1


def test_loops_have_them_too(made):
    f = lw.jit(lambda x: lw.lax.fori_loop(0, 3, lambda k, x: softmax(x) * 2, x))
    for x in (LONG, SHORT):
        expected = x
        for _ in range(3):
            expected = softmax(expected) * 2
        np.testing.assert_allclose(f(x), expected, rtol=1e-5)


def test_threads_that_meet(made):
    f, meet, found = lw.jit(lambda x: softmax(x) - 1), Barrier(6), [np.empty(0)] * 6
    f(LONG)

    def call(k):
        meet.wait()
        found[k] = f(SHORT + k)
    threads = [Thread(target=call, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, y in enumerate(found):
        np.testing.assert_array_equal(y, f(SHORT + k))
    assert 1 <= len(made) <= 6


@needs_fork
@of_threads
def test_a_child_compiles_its_own():
    f = lw.jit(lambda x: softmax(x) * 3)
    f(LONG)
    check_in_child(lambda: np.testing.assert_allclose(f(SHORT), softmax(SHORT) * 3, rtol=1e-5))
    np.testing.assert_allclose(f(SHORT), softmax(SHORT) * 3, rtol=1e-5)


def test_an_interrupt_waits_for_the_end_of_the_call(monkeypatch):
    f, make = lw.jit(lambda x: softmax(x) * 5), later.Later.make

    def interrupted(self, place):
        raise KeyboardInterrupt
    monkeypatch.setattr(later.Later, "make", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it otherwise
    with pytest.raises(KeyboardInterrupt):
        np.testing.assert_allclose(f(SHORT), softmax(SHORT) * 5, rtol=1e-5)
        time.sleep(10)
    signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(later.Later, "make", make)
    np.testing.assert_allclose(f(SHORT), softmax(SHORT) * 5, rtol=1e-5)


SCRIPT = """
import numpy as np, loopwright as lw, sys
from loopwright.lower.runtime import lazy
f = lw.jit(lambda x: np.exp(x - np.max(x, axis=1, keepdims=True)))
f(np.ones((50, 300))), f(np.ones((50, 3)))
print("loopwright.lower.program" in sys.modules)
"""


def test_it_comes_from_the_disk(tmp_path):
    environment = {**os.environ, "LOOPWRIGHT_CACHE_DIR": str(tmp_path)}
    seen = [subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment, check=True, capture_output=True,
                           text=True).stdout.strip() for _ in range(2)]
    assert seen == ["True", "False"]


def test_the_code_goes_with_the_program():
    f = lw.jit(lambda x: softmax(x) / 7)
    f(LONG), f(SHORT)
    before = len(later._known)
    del f
    gc.collect()
    assert len(later._known) < before
