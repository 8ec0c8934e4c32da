"""The BLAS shims against NumPy: every transposition, strides, zero sizes, and what a 32-bit interface cannot take."""
import ctypes
import dataclasses
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.lower.runtime import blas, support
from loopwright.lower.runtime.blas import Blas
from tests.scale import examples

needs_blas = pytest.mark.skipif(os.environ.get(blas.VARIABLE) == "none", reason="no BLAS wanted here")


def multiply(function, a, b, ta, tb, pad=0):
    """C = op(A) op(B) with `pad` unused columns in every matrix; C is NaN before."""
    m, k = a.shape[::-1] if ta else a.shape
    n = b.shape[0] if tb else b.shape[1]
    wide = [np.pad(x, ((0, 0), (0, pad)), constant_values=np.nan) for x in (a, b)]
    c = np.full((m, n + pad), np.nan, a.dtype)
    leads = [max(1, x.shape[1]) for x in (*wide, c)]
    function(ta, tb, m, n, k, wide[0].ctypes.data, leads[0], wide[1].ctypes.data, leads[1], c.ctypes.data, leads[2], 2)
    assert np.isnan(c[:, n:]).all()
    return c[:, :n]


def shim(address):
    pairs = [ctypes.c_void_p, ctypes.c_int64] * 3
    return ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32, *[ctypes.c_int64] * 3, *pairs, ctypes.c_int32)(address)


def check(find, dtype, m, n, k, ta, tb, pad):
    rng = np.random.default_rng(m + 10 * n + 100 * k)
    a, b = (rng.standard_normal(shape[::-1] if swap else shape).astype(dtype) for shape, swap in (((m, k), ta), ((k, n), tb)))
    expected = (a.T if ta else a).astype(np.float64) @ (b.T if tb else b).astype(np.float64)
    c = multiply(shim(find("lw_gemm_f32" if dtype == np.float32 else "lw_gemm_f64")), a, b, ta, tb, pad)
    near = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(c, expected, rtol=near, atol=near)


SIDES = st.integers(0, 20)


@needs_blas
@examples(80)
@given(dtype=st.sampled_from([np.float32, np.float64]), m=SIDES, n=SIDES, k=SIDES, ta=st.booleans(), tb=st.booleans(),
       pad=st.integers(0, 3))
def test_products(dtype, m, n, k, ta, tb, pad):
    check(support.address, dtype, m, n, k, ta, tb, pad)


@needs_blas
@pytest.mark.parametrize("vectors", [True, False])
def test_one_row_or_column_with_and_without_a_product_for_vectors(vectors):
    """Whatever order matrices are stored in, wherever their rows begin."""
    found = blas.found()
    library = blas.library(found if vectors else dataclasses.replace(found, sgemv=0, dgemv=0))
    for dtype, (m, n), ta, tb in itertools.product((np.float32, np.float64), ((1, 9), (9, 1), (1, 1)), (0, 1), (0, 1)):
        for k, pad in ((1, 0), (1, 3), (40, 0), (40, 3)):
            check(library.__getitem__, dtype, m, n, k, ta, tb, pad)


@needs_blas
@pytest.mark.parametrize("bits", [32, 64])
def test_both_integer_widths_of_installed_libraries(bits):
    """NumPy's wheel takes 64-bit integers, SciPy's 32-bit ones."""
    libraries = [found for path in blas._candidates() if (found := blas._probe(path)) is not None and found.bits == bits]
    if not libraries:
        pytest.skip(f"no BLAS with {bits}-bit integers is installed")
    for library in libraries:
        for case in ((3, 4, 5, False, True, 1), (7, 1, 2, True, False, 0), (2, 3, 0, False, False, 0)):
            check(blas.library(library).__getitem__, np.float32, *case)
            check(blas.library(library).__getitem__, np.float64, *case)


@needs_blas
def test_sizes_beyond_32_bits_do_not_reach_the_library():
    """A leading dimension that a 32-bit interface would cut off: the product is made here."""
    found = blas.found()
    never = Blas("nowhere", 1, 1, 32)  # calling it would crash
    a, b, c = np.array([2.0, 3.0]), np.array([5.0, 7.0]), np.full(1, np.nan)
    gemm = shim(blas.library(never)["lw_gemm_f64"])
    gemm(0, 1, 1, 1, 2, a.ctypes.data, 1 << 40, b.ctypes.data, 1 << 40, c.ctypes.data, 1 << 40, 2)
    assert c[0] == 31 and found is not None


def test_none_means_none(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "none")
    assert not blas.available() and support.address("lw_gemm_f32") is None


def test_a_path_without_blas(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "/nowhere/libblas.so")
    with pytest.raises(OSError, match="no library there that has a working cblas_sgemm"):
        blas.available()


@needs_blas
def test_a_chosen_library():
    path = blas.found().path
    script = f"from loopwright.lower.runtime import blas; assert blas.found().path == {path!r}"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, blas.VARIABLE: path})
