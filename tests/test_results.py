"""Large results live in memory that earlier ones left; they are ordinary arrays."""
import ctypes
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.runtime import objects, results, scratch
from loopwright.lower.runtime.objects import numpy_core

N = 1 << 19  # of float64: 4 MB
f = lw.jit(lambda x: x * 2 + 1)


def allocator_of(x):
    return numpy_core().multiarray.get_handler_name(x)


def test_large_results_have_a_block_and_small_ones_numpys_memory():
    y = f(np.ones(N))
    assert allocator_of(y) == "loopwright" and y.ctypes.data % 64 == 0
    assert y.flags.owndata and y.flags.writeable and y.base is None and (y == 3).all()
    assert allocator_of(f(np.ones(100))) == allocator_of(np.ones(N)) == "default_allocator"
    assert allocator_of(f(np.ones(results.LARGE // 8))) == "loopwright"
    assert allocator_of(f(np.ones(results.LARGE // 8 - 1))) == "default_allocator"


def test_memory_is_used_again_when_nobody_has_it():
    x = np.ones(N)
    y = f(x)
    view, first = y[10:], y.ctypes.data
    del y
    z = f(x)
    assert z.ctypes.data != first and (view == 3).all()
    z[:] = 0
    assert (view == 3).all()
    del view
    assert first in {f(x).ctypes.data for _ in range(2)}


def test_many_results_are_made_in_the_memory_that_as_many_left():
    scratch.trim()
    small, large = np.ones(results.LARGE // 8), np.ones(results.LARGE // 2)

    def places():
        return {x.ctypes.data for x in [f(x) for _ in range(scratch.PLACES // 2 - 4) for x in (small, large)]}
    first = places()
    assert first == places() and len(first) == scratch.PLACES - 8


def test_blocks_of_other_sizes_are_not_wasted_on_results():
    scratch.trim()
    del_me = f(np.ones(2 * N))
    del del_me
    before = scratch.kept()
    y = f(np.ones(N))
    assert scratch.kept() == before > 0 and y.shape == (N,)  # the block of twice the size stays where it is


def test_results_grow_and_shrink_in_place():
    y = f(np.arange(float(N)))
    y.resize(2 * N, refcheck=False)
    assert (y[:N] == np.arange(float(N)) * 2 + 1).all() and (y[N:] == 0).all()
    y.resize(10, refcheck=False)
    np.testing.assert_array_equal(y, np.arange(10.0) * 2 + 1)


@pytest.fixture
def own_allocator():
    """NumPy's own functions under another name, as a program that brings an allocator sets it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    handler = pointer(ctypes.py_object(_default()), b"mem_handler")
    mine = results._Handler.from_buffer_copy(ctypes.string_at(handler, ctypes.sizeof(results._Handler)))
    mine.name = b"mine"
    obj, p = ctypes.py_object, ctypes.c_void_p
    new = ctypes.PYFUNCTYPE(obj, p, ctypes.c_char_p, p)(objects.address("PyCapsule_New"))
    put = ctypes.PYFUNCTYPE(obj, obj)(objects.address("PyDataMem_SetHandler"))
    name = b"mem_handler"
    before = put(new(ctypes.addressof(mine), name, None))
    yield mine, name
    put(before)


def _default():
    return ctypes.cast(objects.address("PyDataMem_DefaultHandler"), ctypes.POINTER(ctypes.py_object)).contents.value


def test_an_allocator_of_the_programs_own_stays(own_allocator):
    y = f(np.ones(N))
    assert allocator_of(y) == "mine" and allocator_of(np.ones(3)) == "mine" and (y == 3).all()
    del y


def test_what_does_not_fit_into_memory_is_a_memory_error():
    big = lw.jit(lambda x, y: x[:, None, None] + y[:, None])
    with pytest.raises(MemoryError):
        big(np.ones(1 << 20), np.ones(1 << 21))
    assert allocator_of(np.ones(N)) == "default_allocator" and (f(np.ones(N)) == 3).all()


def test_tracemalloc_sees_results():
    tracemalloc.start()
    try:
        x = np.ones(N)
        before = tracemalloc.get_traced_memory()[0]
        y = f(x)
        assert tracemalloc.get_traced_memory()[0] - before >= y.nbytes
        del y
        assert tracemalloc.get_traced_memory()[0] - before < N
    finally:
        tracemalloc.stop()


def test_threads_never_share_a_result():
    wrong = []

    def work(k):
        x = np.full(N // 4, float(k))
        for _ in range(30):
            a, b = f(x), f(x + 1)
            if not ((a == 2 * k + 1).all() and (b == 2 * k + 3).all()):
                wrong.append(k)
    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


def test_results_outlive_the_package():
    script = """
import atexit, sys
import numpy as np, loopwright as lw
kept = lw.jit(lambda x: x * 2)(np.ones(1 << 19))
sys.kept = kept  # goes after the modules
class Last:
    def __del__(self):
        assert (sys.kept == 2).all()
sys.last = Last()
other = [lw.jit(lambda x: x + 1)(np.ones(1 << 19))]
other.append(other)  # a cycle
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == ""


def test_large_results_begin_at_different_places_of_their_pages():
    """Loads wait for stores to other arrays whose addresses end alike."""
    scratch.trim()
    kept = [f(np.ones(N)) for _ in range(7)]
    begins = sorted(y.ctypes.data % 4096 for y in kept)
    assert min(np.diff(begins)) >= 512 and all(y.ctypes.data % 64 == 0 for y in kept)
