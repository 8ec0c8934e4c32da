"""How many threads compute: the pool's and OpenBLAS's, as the user, the environment and threadpoolctl say."""
import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import loopwright as lw
from loopwright.lower.runtime import blas, pool, threads
from loopwright.lower.runtime.blas_threads import MOST
from tests.forking import check_in_child, needs_fork


def counts():
    """OpenBLAS's own functions: how many threads it has, and to say so."""
    found = blas.found()
    if found is None or not found.get_threads:
        pytest.skip("the BLAS in use does not say how many threads it has")
    return ctypes.CFUNCTYPE(ctypes.c_int)(found.get_threads), ctypes.CFUNCTYPE(None, ctypes.c_int)(found.set_threads)


def function(name, *types, result=None):
    return ctypes.CFUNCTYPE(result, *types)(blas.library(blas.found())[name])


def enter(most):
    function("lw_blas_enter", ctypes.c_int32)(most)


def leave():
    function("lw_blas_leave")()


def allowed():
    return function("lw_blas_allowed", result=ctypes.c_int32)()


@pytest.fixture
def four():
    """OpenBLAS has four threads."""
    get, put = counts()
    before = get()
    put(4)
    yield get, put
    lw.set_threads(None)
    put(before)


def test_the_library_has_fewer_threads_until_the_last_has_left(four):
    get, _ = four
    enter(2)
    enter(1)  # the first said how many
    assert (get(), allowed()) == (2, 4)
    leave()
    assert get() == 2
    leave()
    assert (get(), allowed()) == (4, 4)
    enter(9)
    assert get() == 4
    leave()
    assert get() == 4


def test_what_somebody_else_says_meanwhile_stays(four):
    get, put = four
    enter(1)
    put(3)
    assert allowed() == 3
    leave()
    assert get() == 3


def test_no_more_threads_of_the_library_than_were_chosen(four):
    get, _ = four
    for chosen, found in ((2, 2), (1, 1), (9, 4), (None, 4)):
        lw.set_threads(chosen)
        enter(MOST)
        assert get() == found
        leave()
        assert get() == 4


@pytest.mark.parametrize(("ours", "inside"), [("3", 3), ("9", 4), ("", 4)])
def test_the_environment_chooses(ours, inside):
    counts()
    script = """
from tests.test_thread_counts import counts, enter, leave, MOST
get, put = counts()
put(4)
enter(MOST)
print(get())
leave()
print(get())
"""
    env = {**os.environ, threads.VARIABLE: ours}
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=env, capture_output=True, text=True)
    assert done.stdout.split() == [str(inside), "4"]


@needs_fork
def test_a_child_has_the_library_as_it_was(four):
    get, _ = four
    enter(1)

    def check():
        assert (get(), allowed()) == (4, 4)
        enter(2)
        assert get() == 2
    check_in_child(check)
    leave()


def test_products_on_many_threads_leave_the_number_as_it_was(four):
    get, _ = four
    f = lw.jit(lambda a, x: (a @ x, a.T @ x))
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(800, 800)), rng.normal(size=800)
    want, errors = f(a, x), []

    def work():
        for _ in range(30):
            for r, w in zip(f(a, x), want, strict=True):
                if not np.array_equal(r, w):
                    errors.append(np.abs(r - w).max())
    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not errors and get() == 4


def runners(count):
    """How many threads have a part in loops of many slow chunks."""
    seen = set()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    def body(_context, _begin, _end):
        seen.add(threading.get_ident())
        time.sleep(0.002)
    loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        pool.library()["lw_parallel_for"])
    for _ in range(count):
        loop(ctypes.cast(body, ctypes.c_void_p), None, 40, 1)
    return len(seen)


def test_threadpoolctl_limits_the_pool():
    counts()
    try:
        lw.set_threads(3)
        with threadpool_limits(4, "blas"):  # what OpenBLAS has when workers start
            assert runners(3) == 3
            with threadpool_limits(1, "blas"):
                assert runners(3) == 1
            with threadpool_limits(2, "blas"):
                assert runners(3) == 2
            assert runners(3) == 3
    finally:
        lw.set_threads(None)


@pytest.mark.parametrize(("ours", "found"), [("", 1), ("3", 3)])
def test_a_limit_of_openblas_is_ours_unless_ours_was_chosen(ours, found):
    counts()
    script = "from tests.test_thread_counts import runners; print(runners(5))"
    env = {**os.environ, threads.VARIABLE: ours, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=env, capture_output=True, text=True)
    assert int(done.stdout) == found


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bits_of_products_depend_on_no_threads(dtype):
    """Also of those that the library makes: few columns, many rows, vectors, batches."""
    get, put = counts()
    rng, before = np.random.default_rng(0), get()
    shapes = [(513, 700, 1), (1, 700, 1030), (700, 900, 3), (1000, 1000, 64), (1030, 513, 2), (3, 2000, 900)]
    f = lw.jit(lambda a, b: a @ b)
    turned = lw.jit(lambda a, b: a.T @ b)
    found = []
    try:
        for ours, theirs in ((1, 4), (2, 1), (5, 4), (2, 2)):
            put(theirs)
            lw.set_threads(ours)
            rng = np.random.default_rng(0)
            made = []
            for m, k, n in shapes:
                a, b = (rng.normal(size=s).astype(dtype) for s in ((m, k), (k, n)))
                made += [f(a, b), turned(np.ascontiguousarray(a.T), b)]
            batch = [rng.normal(size=s).astype(dtype) for s in ((20, 1, 300), (20, 300, 500))]
            made.append(f(*batch))
            found.append([x.tobytes() for x in made])
    finally:
        lw.set_threads(None)
        put(before)
    assert all(x == found[0] for x in found[1:])
