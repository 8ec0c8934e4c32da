"""Many small matrices, whose factorisations are made in the lanes of vectors: against NumPy, and LAPACK where it decides."""
import ctypes
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
import loopwright.numpy as lnp
import loopwright.scipy.linalg as sla
from loopwright.ir.ops.linalg import solve_triangular
from loopwright.ir.types import F32, F64, SHORT
from loopwright.lower.codegen.batches import LARGEST
from loopwright.lower.codegen.factoring import factoring_text
from loopwright.lower.runtime import blas, engine, lapack, pool
from loopwright.lower.runtime.lazy import llvm
from loopwright.lower.target import Target

pytestmark = pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
DTYPES = st.sampled_from([F32, F64])
SIZES = st.one_of(st.integers(0, 20), st.sampled_from([24, 32, 33, LARGEST[0], LARGEST[0] + 1]))
COUNTS = st.one_of(st.integers(0, 5), st.integers(6, 70))


@cache
def compiled(f):
    return lw.jit(f)


@cache
def triangular(lower, transposed, unit):
    return lw.jit(lambda a, b: sla.solve_triangular(a, b, trans=int(transposed), lower=lower, unit_diagonal=unit))


def by_lapack(a):
    """slogdet, matrix by matrix; NumPy makes those of f32 in f64."""
    suffix = SHORT[a.dtype]
    one = lapack.one_by_one(blas.found(), suffix)[f"lw_slogdet_{suffix}"]
    slogdet = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)(one)
    a, sign, log = np.ascontiguousarray(a), np.zeros(len(a), a.dtype), np.zeros(len(a), a.dtype)
    for k, x in enumerate(a):
        slogdet(x.ctypes.data, sign[k:].ctypes.data, log[k:].ctypes.data, a.shape[-1])
    return sign, log


def draw(rng, *shape, dtype):
    return rng.normal(size=shape).astype(dtype)


def is_close(got, want, condition=1.0):
    """Within what rounding may make of so badly conditioned a system."""
    want = np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=200 * np.finfo(want.dtype).eps * condition * np.abs(want).max(initial=1))


def condition(a):
    return max(np.linalg.cond(a).max(initial=1), a.shape[-1]) if a.size else 1.0


# ---- values ---------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(DTYPES, SIZES, COUNTS, st.integers(0, 5), st.integers(0, 999))
def test_systems_are_numpys(dtype, n, count, sides, seed):
    rng = np.random.default_rng(seed)
    a, b = draw(rng, count, n, n, dtype=dtype), draw(rng, count, n, sides, dtype=dtype)
    is_close(compiled(np.linalg.solve)(a, b), np.linalg.solve(a, b), condition(a))
    is_close(compiled(np.linalg.inv)(a), np.linalg.inv(a), condition(a))


@settings(max_examples=60, deadline=None)
@given(DTYPES, SIZES, COUNTS, st.integers(0, 999))
def test_determinants_are_numpys(dtype, n, count, seed):
    a = draw(np.random.default_rng(seed), count, n, n, dtype=dtype)
    (sign, log), (want_sign, want_log) = compiled(np.linalg.slogdet)(a), np.linalg.slogdet(a)
    assert np.array_equal(sign, want_sign) and sign.dtype == dtype
    is_close(log, want_log, condition(a))
    np.testing.assert_allclose(compiled(np.linalg.det)(a), np.linalg.det(a), rtol=2e3 * np.finfo(dtype).eps * condition(a))


@settings(max_examples=40, deadline=None)
@given(DTYPES, SIZES, COUNTS, st.integers(0, 5), st.integers(0, 999), st.booleans(), st.booleans(), st.booleans())
def test_triangles_are_numpys(dtype, n, count, sides, seed, lower, transposed, unit):
    rng = np.random.default_rng(seed)
    a, b = draw(rng, count, n, n, dtype=dtype), draw(rng, count, n, sides, dtype=dtype)
    definite = a @ a.swapaxes(-1, -2) + np.eye(n, dtype=dtype)
    is_close(compiled(np.linalg.cholesky)(definite), np.linalg.cholesky(definite), condition(definite))
    a = a / max(n, 1) + 2 * np.eye(n, dtype=dtype)
    is_close(triangular(lower, transposed, unit)(a, b), solve_triangular(a, b, lower, transposed, unit), 10)


@settings(max_examples=30, deadline=None)
@given(DTYPES, st.integers(1, 9), st.integers(1, 40), st.integers(0, 999))
def test_what_other_lanes_hold_changes_nothing(dtype, n, count, seed):
    """The same bits, in another order, and beside matrices that LAPACK has to decide."""
    rng = np.random.default_rng(seed)
    a, b = draw(rng, count, n, n, dtype=dtype), draw(rng, count, n, 2, dtype=dtype)
    order, solve = rng.permutation(count), compiled(np.linalg.solve)
    assert np.array_equal(solve(a[order], b[order]), solve(a, b)[order])
    mixed = np.concatenate([a, np.zeros_like(a), np.full_like(a, np.nan)])
    order = rng.permutation(len(mixed))
    for x, y in zip(compiled(np.linalg.slogdet)(mixed[order]), compiled(np.linalg.slogdet)(mixed), strict=True):
        assert np.array_equal(x, y[order], equal_nan=True)


def test_one_compile_serves_all_sizes():
    f = lw.jit(np.linalg.inv)
    for count, n in ((3, 5), (40, 2), (2, 60), (9, 48), (5, 7)):
        a = np.random.default_rng(n).normal(size=(count, n, n)) + 4 * np.eye(n)
        is_close(f(a), np.linalg.inv(a), 10)
    assert f.compiles == 1


def test_layouts_and_ranks():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 4, 5, 5)), rng.normal(size=(5, 3))
    for x in (a[::2, ::-1], a.swapaxes(-1, -2), np.asfortranarray(a), a[:, :, ::-1, ::-1], a[:1], a[..., :3, 1:4]):
        for f in (np.linalg.inv, np.linalg.det):
            is_close(compiled(f)(x), f(x), condition(x))
        sides = b[:x.shape[-1]]
        is_close(compiled(np.linalg.solve)(x, sides), np.linalg.solve(x, sides), condition(x))


# ---- what LAPACK decides --------------------------------------------------------------------------
@settings(max_examples=100, deadline=None)
@given(DTYPES, st.integers(1, 12), st.integers(1, 40), st.integers(0, 999))
def test_singular_matrices_are_those_of_lapack(dtype, n, count, seed):
    """Whole numbers, of lower rank: whether the last pivot is zero hangs on how sums were rounded."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-3, 4, size=(count, n, n - 1)) @ rng.integers(-3, 4, size=(count, n - 1, n))
    a[::3] = rng.integers(-3, 4, size=a[::3].shape)
    a = a.astype(dtype)
    sign, log = np.linalg.slogdet(a) if dtype == F64 else by_lapack(a)
    got_sign, got_log = compiled(np.linalg.slogdet)(a)
    assert np.array_equal(got_sign == 0, sign == 0)
    assert np.array_equal(np.isneginf(got_log), np.isneginf(log))
    if (sign == 0).any():
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            compiled(np.linalg.inv)(a)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_what_is_not_finite_goes_where_numpy_lets_it(dtype, value):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5):
        a = np.stack([rng.normal(size=(n, n)) for _ in range(n * n + 3)]).astype(dtype)
        for k, x in enumerate(a[:n * n]):
            x[divmod(k, n)] = value
        wanted = by_lapack(a) if dtype == F32 else np.linalg.slogdet(a)
        for got, want in zip(compiled(np.linalg.slogdet)(a), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4)
        if dtype == F32:
            continue
        b = rng.normal(size=(len(a), n, 2)).astype(dtype)
        for x, y in zip(a, b, strict=True):  # three of each: in lanes
            stack, sides = np.stack([x] * 3), np.stack([y] * 3)
            try:
                want = np.linalg.solve(stack, sides)
            except np.linalg.LinAlgError:
                with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
                    compiled(np.linalg.solve)(stack, sides)
            else:
                np.testing.assert_allclose(compiled(np.linalg.solve)(stack, sides), want, rtol=2e-3)
            y[n - 1, 0] = value
            sides = np.stack([y] * 3)
            well = np.stack([np.eye(n, dtype=dtype) * 4 + 1] * 3)
            np.testing.assert_array_equal(np.isfinite(compiled(np.linalg.solve)(well, sides)),
                                          np.isfinite(np.linalg.solve(well, sides)))


def test_tiny_and_huge_elements():
    info, a = np.finfo(F64), np.array([[2.0, 1.0], [1.0, 3.0]])
    for scale in (info.tiny, info.smallest_subnormal * 8, info.max / 8, np.sqrt(info.tiny)):
        stack = np.stack([a * scale] * 5)
        for got, want in zip(compiled(np.linalg.slogdet)(stack), np.linalg.slogdet(stack), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(compiled(np.linalg.inv)(stack), np.linalg.inv(stack), rtol=1e-4)
        np.testing.assert_allclose(compiled(np.linalg.cholesky)(stack), np.linalg.cholesky(stack), rtol=1e-4)


def test_one_matrix_that_is_not_positive_definite_is_found():
    a = np.stack([np.eye(4)] * 37)
    assert np.array_equal(compiled(np.linalg.cholesky)(a), a)
    for bad in (0, 20, 36):
        b = a.copy()
        b[bad, 2, 2] = -1
        with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
            compiled(np.linalg.cholesky)(b)
    upper = a + np.triu(np.full((4, 4), np.nan), 1)  # is never read
    assert np.array_equal(compiled(np.linalg.cholesky)(upper), a)


def test_badly_conditioned_matrices_are_lapacks():
    """Hilbert's: the same bits."""
    hilbert = np.stack([1 / (1 + np.arange(12)[:, None] + np.arange(12))] * 20)
    for got, want in zip(compiled(np.linalg.slogdet)(hilbert), by_lapack(hilbert), strict=True):
        assert np.array_equal(got, want)


# ---- transforms -----------------------------------------------------------------------------------
def test_gradients_of_batches():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(20, 3, 3)) + 3 * np.eye(3), rng.normal(size=(20, 3))

    def loss(a, b):
        m = a @ a.T + lnp.eye(3)
        return np.linalg.solve(a, b) @ b + np.linalg.det(a) + np.linalg.inv(a).sum() + np.linalg.cholesky(m).sum()
    rows = lw.jit(lw.vmap(lw.grad(loss)))(a, b)
    for k in range(20):
        is_close(rows[k], lw.grad(loss)(a[k], b[k]), 10)
    step = 1e-6 * rng.normal(size=a.shape)
    change = [loss(a[k] + step[k], b[k]) - loss(a[k] - step[k], b[k]) for k in range(20)]
    np.testing.assert_allclose(np.sum(rows * step, axis=(1, 2)) * 2, change, rtol=1e-4, atol=1e-9)


def test_threads_change_no_bit():
    a = np.random.default_rng(0).normal(size=(3000, 6, 6))
    found = []

    def others(a):
        return *np.linalg.svd(a), *np.linalg.qr(a[:, :, :4]), *np.linalg.eigh(a), np.linalg.pinv(a[:, :3])
    for count in (1, 2, 3):
        pool.set_threads(count)
        found.append(compiled(np.linalg.inv)(a))
        found[-1:] = [(found[-1], *compiled(others)(a))]
        with pytest.raises(np.linalg.LinAlgError):
            compiled(np.linalg.inv)(np.zeros_like(a))
    pool.set_threads(None)
    for one, two, three in zip(*found, strict=True):
        assert np.array_equal(one, two) and np.array_equal(one, three)
    u, s, vt = found[0][1:4]
    np.testing.assert_allclose((u * s[:, None]) @ vt, a, atol=1e-12)


# ---- other machines -------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [
    Target("x86_64-unknown-linux-gnu", "", "+avx2,+fma", 256), Target("x86_64-unknown-linux-gnu", "", "", 128),
    Target("x86_64-unknown-linux-gnu", "", "+avx512f,+avx512vl,+avx512dq,+avx512bw,+fma", 512)], ids=["avx2", "sse2", "avx512"])
def test_other_machines_have_code(target):
    llvm().initialize_all_targets()
    llvm().initialize_all_asmprinters()
    for dtype in (F32, F64):
        assert engine.assemble(factoring_text(dtype, target), target)


@pytest.mark.parametrize("bits", ["128", "256"])
def test_narrower_vectors_give_the_same(bits, tmp_path):
    program = """if True:
        import numpy as np, loopwright as lw
        for dtype in ("f4", "f8"):
            for n in (1, 2, 5, 12, 24, 30):
                a = np.random.default_rng(n).normal(size=(11, n, n)).astype(dtype) + 9 * np.eye(n, dtype=dtype)
                for f in (np.linalg.inv, np.linalg.det, lambda a: np.linalg.cholesky(a @ np.swapaxes(a, 1, 2))):
                    np.testing.assert_allclose(lw.jit(f)(a), f(a), rtol=1e-2 if dtype == "f4" else 1e-9, atol=1e-5)
        print("same")"""
    environment = {**os.environ, "LOOPWRIGHT_VECTOR_BITS": bits, "LOOPWRIGHT_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True,
                         timeout=300)
    assert run.stdout == "same\n", run.stderr
