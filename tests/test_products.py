"""Products of matrices as programs call them, against float64: every form, sizes on both sides of every choice, batches, and
nothing touched beside the matrices."""
import ctypes
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.types import F32, F64
from loopwright.lower.codegen.products import products_text
from loopwright.lower.codegen.small import heights
from loopwright.lower.runtime import blas, products, support
from loopwright.lower.runtime.engine import assemble
from loopwright.lower.target import Target
from tests.scale import SCALE, examples
from tests.threads import bits_of

needs_blas = pytest.mark.skipif(os.environ.get(blas.VARIABLE) == "none", reason="no BLAS wanted here")
SIDES = st.one_of(st.integers(0, 9), st.integers(10, 70), st.sampled_from([15, 16, 17, 31, 33, 64, 100, 130, 281, 300, 600]))


def operands(dtype, form, batch, m, n, k):
    """Matrices, stored as the form says, inside NaN; and their product in float64."""
    rng = np.random.default_rng(m + 10 * n + 100 * k)
    found = []
    for side, shape in zip(form, ((m, k), (k, n)), strict=True):
        stored = (batch, *(shape[::-1] if side == "t" else shape))
        whole = np.full(int(np.prod(stored)) + 64, np.nan, dtype)
        whole[32:-32] = rng.standard_normal(stored).astype(dtype).reshape(-1)
        found.append(whole[32:-32].reshape(stored))
    a, b = ((x.swapaxes(1, 2) if side == "t" else x).astype(np.float64) for side, x in zip(form, found, strict=True))
    return found, a @ b


def multiply(name, dtype, form, batch, m, n, k):
    """The product, and that nothing around the result was written."""
    (a, b), expected = operands(dtype, form, batch, m, n, k)
    c = np.full(batch * m * n + 64, np.nan, dtype)
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4, *[ctypes.c_void_p] * 3)(support.address(name))
    f(batch, m, n, k, a.ctypes.data, b.ctypes.data, c.ctypes.data + 32 * c.itemsize)
    assert np.isnan(c[:32]).all() and np.isnan(c[-32:]).all()
    return c[32:-32].reshape(batch, m, n), expected


@needs_blas
@examples(150)
@given(kind=st.sampled_from(["f32", "f64"]), form=st.sampled_from(products.FORMS), batch=st.sampled_from([0, 1, 1, 1, 3]),
       m=SIDES, n=SIDES, k=SIDES)
def test_products_of_any_sizes(kind, form, batch, m, n, k):
    dtype = np.dtype("f4" if kind == "f32" else "f8")
    found, expected = multiply(f"lw_product_{kind}_{form}", dtype, form, batch, m, n, k)
    near = (1e-6 if kind == "f32" else 1e-14) * (4 + k)
    np.testing.assert_allclose(found, expected, rtol=near, atol=near)


@needs_blas
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("form", products.FORMS)
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 291, 1100, 141), (2, 600, 203, 300), (1, 281, 65, 530),
                                                    (1, 3, 1101, 541), (1, 9, 1100, 541), (1, 33, 1031, 700),
                                                    (2, 64, 1024, 600), (1, 200, 1024, 140), (1, 270, 300, 600),
                                                    (1, 563, 197, 101), (1, 300, 90, 530), (1, 1, 1101, 1000),
                                                    (1, 2, 701, 403), (2, 3, 40, 3701), (1, 4, 1033, 541), (1, 300, 8, 70)])
def test_large_products(kind, form, batch, m, n, k):
    """More columns than a block of them, more terms than a block of those, batches; rows with terms far apart; few columns; few
    rows and a right side that no cache holds."""
    found, expected = multiply(f"lw_product_{kind}_{form}", np.dtype("f4" if kind == "f32" else "f8"), form, batch, m, n, k)
    near = (1e-6 if kind == "f32" else 1e-14) * k
    np.testing.assert_allclose(found, expected, rtol=near, atol=near)


@needs_blas
@pytest.mark.parametrize("form", products.FORMS)
def test_special_values_are_those_of_the_terms(form):
    """What is read past an edge adds nothing: a NaN or an infinity stays in its row and column."""
    (a, b), _ = operands(np.float32, form, 1, 19, 21, 37)
    for x in (np.nan, np.inf):
        a[0, 3, 2] = x
        found = lw.jit(lambda a, b: (a.T if form[0] == "t" else a) @ (b.T if form[1] == "t" else b))(a[0], b[0])
        rows = ~np.isfinite(found)
        assert rows[2 if form[0] == "t" else 3].all() and rows.sum() == 21


@needs_blas
@pytest.mark.parametrize("shapes", [((80, 30, 33), (80, 33, 28)), ((120, 150), (150, 333)), ((30, 90, 200), (30, 200, 100)),
                                    ((20, 541), (541, 1100)), ((5, 541), (541, 1100)), ((4, 541), (541, 1103)),
                                    ((1, 1100), (1100, 1003)), ((2, 300), (300, 5001)), ((3, 2, 400), (3, 400, 701)),
                                    ((5003, 64), (64, 61)), ((1500, 128), (128, 65)), ((260, 900), (900, 60)),
                                    ((30011, 70), (70, 3)), ((700, 300), (300, 1100)), ((250, 300), (300, 1999)),
                                    ((9, 320, 65), (9, 65, 320)), ((10, 300, 70), (10, 70, 5)),
                                    ((3, 256, 300), (3, 300, 250)), ((9, 300, 260), (9, 260, 310)), ((200, 4000), (4000, 256))])
def test_threads_share_out_a_batch_or_columns_or_rows_and_change_no_bit(shapes):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in shapes)
    found = bits_of(np.matmul, a, b)
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(lw.jit(np.matmul)(a, b), a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-4)


@needs_blas
@pytest.mark.parametrize("form", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), [(1025, 700, 40), (1500, 200, 64), (1100, 260, 100), (1023, 700, 40)])
def test_threads_share_out_rows_of_tall_results(form, m, n, k):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((k, m) if form[0] else (m, k)), rng.standard_normal((n, k) if form[1] else (k, n))

    def f(a, b):
        return (a.T if form[0] else a) @ (b.T if form[1] else b)
    found = bits_of(f, a.astype("f4"), b.astype("f4"))
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(lw.jit(f)(a, b), f(a, b), rtol=1e-11, atol=1e-11)


@needs_blas
@pytest.mark.parametrize(("form", "dtype"), [(form, dtype) for k, form in enumerate(products.FORMS)
                                             for dtype in (("f4", "f8") if SCALE > 1 else (("f4", "f8")[k % 2],))])
@pytest.mark.parametrize(("m", "n", "k"), [(50, 50, 1535), (50, 50, 1543), (128, 200, 4001), (4, 4, 200_003), (1, 700, 5000),
                                           (256, 3, 9000), (192, 5, 40_000), (30, 30, 140_001)])
def test_many_terms_are_shared_out(form, m, n, k, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    stored = [np.ascontiguousarray(x.T) if side == "t" else x for x, side in zip((a, b), form, strict=True)]

    def f(a, b):
        return (a.T if form[0] == "t" else a) @ (b.T if form[1] == "t" else b)
    found = bits_of(f, *stored)
    assert found[0] == found[1] == found[2]
    near = (3e-5 if dtype == "f4" else 1e-13) * k ** 0.5
    np.testing.assert_allclose(lw.jit(f)(*stored), a.astype("f8") @ b.astype("f8"), rtol=near, atol=near)


@needs_blas
@examples(100)
@given(kind=st.sampled_from(["f32", "f64"]), form=st.sampled_from(["nn", "nt"]), batch=st.sampled_from([0, 1, 1, 1, 5]),
       m=st.integers(0, 70), k=st.one_of(st.integers(0, 40), st.sampled_from([2, 4, 8, 255, 256, 257])))
def test_short_rows_times_vectors(kind, form, batch, m, k):
    found, expected = multiply(f"lw_product_{kind}_{form}", np.dtype("f4" if kind == "f32" else "f8"), form, batch, m, 1, k)
    near = (1e-6 if kind == "f32" else 1e-14) * (4 + k)
    np.testing.assert_allclose(found, expected, rtol=near, atol=near)


@needs_blas
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("k", [2, 4, 8, 5, 13, 100])
def test_threads_change_no_bit_of_short_rows(k, dtype):
    a, b = (np.random.default_rng(k).standard_normal(shape).astype(dtype) for shape in ((300_007 // k, k), (k,)))
    found = bits_of(np.matmul, a, b)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("n", "k"), [(7, 9), (60, 5000), (1000, 3000), (3000, 1000), (1, 5000), (20_000, 30)])
def test_matrices_times_vectors(n, k, dtype):
    """Rows that are added up are a fold, unless what they are multiplied with is computed; bits are those of one thread."""
    rng = np.random.default_rng(0)
    x, v, w = (rng.standard_normal(shape).astype(dtype) for shape in ((n, k), n, k))
    for f, args, want, folds in ((lambda v, x: v @ x, (v, x), v.astype("f8") @ x, True),
                                 (lambda x, v: x.T @ v, (x, v), v.astype("f8") @ x, True),
                                 (lambda v, x: (v + 1) @ x, (v, x), (v.astype("f8") + 1) @ x, False),
                                 (lambda x, w: x @ w, (x, w), x.astype("f8") @ w, False)):
        first, *others = bits_of(f, *args)
        assert all(found == first for found in others)
        near = (3e-5 if dtype == "f4" else 1e-13) * max(n, k) ** 0.5
        np.testing.assert_allclose(lw.jit(f)(*args), want, rtol=near, atol=near)
        if blas.available():
            assert ('"gemm"' in str(lw.jit(f).lower(*args).kernels)) != folds


@needs_blas
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("n", "k"), [(33, 100), (40, 1999), (64, 64), (66, 2000), (95, 200), (96, 64), (97, 63), (130, 300),
                                   (128, 2000), (333, 65), (641, 64), (700, 100), (961, 130)])
def test_a_matrix_times_its_transpose_is_symmetric(n, k, dtype):
    """And what is not only alike is multiplied whole: another matrix of as many rows, the same one in another order."""
    x = np.random.default_rng(0).standard_normal((3, k, n)).astype(dtype)
    turned = np.ascontiguousarray(x.swapaxes(1, 2))
    want = turned.astype("f8") @ x.astype("f8")
    near = (3e-5 if dtype == "f4" else 1e-13) * k ** 0.5
    programs = [(lambda x, y: x[0].T @ x[0], want[0]), (lambda x, y: y[0] @ y[0].T, want[0]),
                (lambda x, y: y @ y.swapaxes(1, 2), want), (lambda x, y: x.swapaxes(1, 2) @ x, want)]
    for f, expected in programs:
        made = bits_of(f, x, turned)
        assert made[0] == made[1] == made[2]
        found = lw.jit(f)(x, turned)
        np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
        np.testing.assert_allclose(found, expected, rtol=near, atol=near)
    np.testing.assert_allclose(lw.jit(lambda x: x[0].T @ x[1])(x), turned[0].astype("f8") @ x[1], rtol=near, atol=near)
    whole = x[0, :min(n, k), :min(n, k)].copy()
    for f in (lambda x: x @ x, lambda x: x.T @ x.T):
        np.testing.assert_allclose(lw.jit(f)(whole), f(whole.astype("f8")), rtol=near, atol=near)


@pytest.mark.parametrize(("features", "bits", "own"), [
    ("+avx2,+fma", 256, True), ("", 128, False), ("+avx512f,+avx512vl,+avx512dq,+avx512bw,+fma", 512, True)])
def test_other_targets_have_their_own_text(features, bits, own):
    """It assembles; where vectors cannot be cut the library multiplies."""
    target = Target("x86_64-unknown-linux-gnu", "x86-64", features, bits)
    for dtype in (F32, F64):
        text = products_text(dtype, target)
        assert ("@lw_small" in text) == own
        assert assemble(text, target)


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize(("features", "bits", "factors"), [
    ("+avx2,+fma", 256, 1), ("+avx512f,+avx512vl,+avx512dq,+avx512bw,+fma", 512, None)])
def test_all_that_a_tile_reads_at_once_has_registers(vectors, features, bits, factors):
    """All factors of a term, or, where registers are few, of one row."""
    target = Target("x86_64-unknown-linux-gnu", "x86-64", features, bits)
    for height in heights(target, vectors):
        assert height * vectors + vectors + (factors or height) <= target.vector_registers


@pytest.mark.parametrize("shapes", [((5, 7), (7, 4)), ((40, 300), (300, 50)), ((3, 0), (0, 4)), ((2, 6, 33), (33, 9)),
                                    ((9,), (9, 3)), ((3, 8), (8,)), ((2, 3, 4), (2, 4, 5))], ids=str)
def test_products_of_truths(shapes):
    """True where any product is, as NumPy's are."""
    rng = np.random.default_rng(0)
    for share in (0.02, 0.5, 1):
        x, y = (rng.random(s) < share for s in shapes)
        np.testing.assert_array_equal(lw.jit(lambda x, y: x @ y)(x, y), x @ y, strict=True)
        np.testing.assert_array_equal(lw.jit(lambda x, y: x.T @ x)(x, y), x.T @ x, strict=True) if x.ndim == 2 else None
