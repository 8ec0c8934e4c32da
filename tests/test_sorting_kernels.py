"""The sort's text on its own, and the sort that compiled code calls, against NumPy's."""
import ctypes
from functools import cache

import ml_dtypes  # noqa: F401  (registers bfloat16)
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.types import BF16, BOOL, FLOATS, INTEGERS, SHORT
from loopwright.kernels.sorting import sort_text
from loopwright.lower.runtime import engine, sorting
from loopwright.lower.target import host_target

SIZES = (0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 100, 1000)
DTYPES = (BOOL, *INTEGERS, *FLOATS)


@cache
def compiled(dtype):
    name, text = sort_text(dtype)
    text += f"\ndefine void @run(ptr %p, ptr %q, i64 %n) {{\n  call void @{name}(ptr %p, ptr %q, i64 %n)\n  ret void\n}}"
    library = engine.load(engine.assemble(text, host_target()), {}, ["run"])
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library["run"])
    return lambda *arrays, keep=library: function(*(a.ctypes.data for a in arrays), len(arrays[0]))


def draw(dtype, n, seed, few):
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return rng.integers(0, 2, n).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return rng.integers(-3 if info.min else 0, 4, n).astype(dtype) if few else \
            rng.integers(info.min, info.max, n, endpoint=True, dtype=dtype)
    x = rng.integers(-3, 4, n) if few else rng.normal(size=n)
    special = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], n)
    return np.where(rng.random(n) < 0.2, special, x).astype(dtype)


def stable_order(x):
    """NumPy's stable argsort; NaN last. Bfloat16 sorts through float32, which keeps its order."""
    return np.argsort(x.astype(np.float32) if x.dtype not in (*INTEGERS, BOOL, np.float64) else x, kind="stable")


@pytest.mark.parametrize("few", [False, True], ids=["spread", "ties"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorts(dtype, few):
    for n in SIZES:
        x = draw(dtype, n, n, few)
        y = x.copy()
        compiled(dtype)(y, np.empty_like(x))
        assert y.tobytes() == x[stable_order(x)].tobytes()


@pytest.mark.parametrize("numpys", [True, False], ids=["NumPy's sort", "ours"])
@pytest.mark.parametrize("few", [False, True], ids=["spread", "ties"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_argsorts_stably(dtype, few, numpys, monkeypatch):
    if not numpys:
        monkeypatch.setattr(sorting, "numpy_sort", lambda dtype: None)
    monkeypatch.setattr(sorting, "_library", cache(sorting._library.__wrapped__))
    name = f"lw_argsort_{SHORT[dtype]}"
    library = sorting._orders.__wrapped__(dtype)
    sort = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(library[name])
    for n in SIZES:
        x, order, temp = draw(dtype, n, n, few), np.full(n, -1), np.empty(n, np.int64)
        sort(x.ctypes.data, order.ctypes.data, temp.ctypes.data, n)
        assert np.array_equal(order, stable_order(x))


def test_numbers_that_differ_in_their_lower_halves_alone():
    rng = np.random.default_rng(0)
    for x in (rng.integers(0, 50, 300), rng.integers(-2**31, 2**31, 300) + 2**40, 1 + rng.integers(0, 5, 300) * 2.0**-52):
        assert np.array_equal(lw.jit(np.argsort)(x), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("n", [50, 1000])
def test_runs_that_are_sorted_or_reversed(n):
    for x in (np.arange(n), np.arange(n)[::-1].copy(), np.zeros(n, np.int64)):
        y = x.copy()
        compiled(x.dtype)(y, np.empty_like(x))
        assert np.array_equal(y, np.sort(x))


@pytest.mark.parametrize("numpys", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_sort_that_compiled_code_calls(dtype, numpys, monkeypatch):
    """NumPy's own function, or ours where there is none: rows of any length, NaN last."""
    if not numpys:
        monkeypatch.setattr(sorting, "numpy_sort", lambda dtype: None)
    library = sorting._library.__wrapped__(dtype)
    sort = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library[f"lw_sort_{SHORT[dtype]}"])
    for n in (0, 1, 2, 17, 1000):
        x = (np.random.default_rng(n).normal(size=n) * 40).astype(dtype)
        if dtype.kind == "f":
            x[::7] = np.nan
        wanted = np.sort(x.astype("f4") if dtype == BF16 else x).astype(dtype)
        temp = np.empty_like(x)
        sort(x.ctypes.data, temp.ctypes.data, n)
        np.testing.assert_array_equal(x.astype("f8"), wanted.astype("f8"))


def test_numpys_sorts_are_found():
    assert all(sorting.numpy_sort(d) for d in DTYPES if d != BF16)
