"""What values promise. Each test's docstring is the promise, in short.

Elsewhere: saturation, wrapping, shifts, rewrites, accuracy of sums, warnings and equal bits in test_traps.py; fresh results
also in test_jit.py; ties and kinks, with the table of documented derivatives, in test_gradients.py; the cache in test_cache.py;
BLAS in test_blas.py; scratch memory in test_pool.py; other vector widths in test_compiled_ops.py; loading of LLVM
in test_engine.py; refused subclasses in test_errors.py.
"""
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright import numpy as lnp
from loopwright.lower.runtime import scratch
from tests.scale import examples
from tests.test_random_user_programs import Program, close, is_smooth, reference

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "complex64", "complex128"]


def same(got, expected):
    assert type(got) is type(expected) and got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


# ---- numbers ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
def test_rank_0_results_are_numpy_scalars(dtype):
    """A rank-0 result is a NumPy scalar, as NumPy's own operations return."""
    x = np.ones(3, dtype)
    for f in (lambda x: x[0], lambda x: x[0] * x[1], lambda x: np.max(x.real), lambda x: x.reshape(3, 1)[2, 0]):
        same(lw.jit(f)(x), f(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_numpys(dtype):
    """Values and dtypes are NumPy's, whatever goes in."""
    x = np.array([[1, 0, 3], [2, 2, 1]]).astype(dtype)
    for f in (np.sum, np.prod, np.mean, np.cumsum, np.angle, np.exp, np.abs, np.any, np.std, np.sqrt, np.real, np.argmax):
        if dtype.startswith("complex") and f is np.argmax:
            continue
        got, expected = lw.jit(lambda x, f=f: f(x))(x), f(x)
        assert got.dtype == expected.dtype and got.shape == expected.shape, f
        np.testing.assert_allclose(got, expected, rtol=5e-3 if got.dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_python_numbers_are_weak_and_all_else_is_strong(dtype):
    """Python int, float and complex arguments are traced, weakly typed per NEP 50; bool and NumPy scalars are strong."""
    x = np.ones(3, dtype)
    weak, strong = lw.jit(lambda x, s: x * s), lw.jit(lambda x, s: s * x)
    for s in (2, 2.0, 2j, 3, 4.5, 1j):
        same(weak(x, s), x * s)
    assert weak.compiles == 3  # values of a kind share a version
    for s in (True, np.float32(2), np.int8(2), np.uint64(2), np.float64(2), np.bool_(True)):
        same(strong(x, s), s * x)


def test_the_weak_kind_is_part_of_the_signature_and_of_the_type():
    """The weak kind is part of the signature and the IR type; a returned weak value gets NumPy's default dtype."""
    f = lw.jit(lambda s: s)
    for s, dtype in ((1, "int64"), (1.0, "float64"), (1j, "complex128"), (True, "bool")):
        got = f(s)
        assert got.dtype == dtype and isinstance(got, np.generic)
    assert f.compiles == 4
    assert "weak_f64[]" in str(lw.make_graph(lambda s: s * 2)(1.0))
    same(lw.jit(lambda a, b: a * b + 1)(2, 3.0), np.float64(7.0))
    x = np.ones(2, np.float32)
    same(lw.jit(lambda x, a, b: x * (a * b))(x, 2, 3.0), x * (2 * 3.0))
    for compare in (np.less, np.equal, np.greater_equal):
        same(lw.jit(lambda a, b, c=compare: c(a, b))(2, 3), compare(2, 3))


def test_python_ints_written_in_the_program_must_fit():
    """A Python int that does not fit the other operand's dtype raises OverflowError."""
    for dtype, number in (("int8", 300), ("int8", -129), ("uint8", -1), ("uint8", 256), ("int32", 2**31)):
        x = np.ones(2, dtype)
        with pytest.raises(OverflowError, match="out of bounds for"):
            lw.jit(lambda x, n=number: x + n)(x)
        with pytest.raises(OverflowError):
            lw.grad(lambda y, x=x, n=number: np.sum(y) + np.sum(x + n + 0 * y))(1.0)
        same(lw.jit(lambda x, n=number: x < n)(x), x < number)  # comparisons are of numbers


def test_python_int_arguments_must_fit_at_the_call():
    """A Python int that does not fit the other operand's dtype raises OverflowError at the call, whatever was compiled for."""
    for dtype, fits, wrong in (("int8", -128, 300), ("uint8", 255, -1), ("int32", 2**31 - 1, 2**31), ("uint64", 5, -1)):
        x = np.ones(2, dtype)
        for f, numpy in ((np.multiply, np.multiply), (lambda x, k: np.maximum(k, x), np.maximum),
                         (lambda x, k: lw.vmap(lambda y: y * k)(x), np.multiply)):
            g = lw.jit(lambda x, k, f=f: f(x, k))
            same(g(x, fits), numpy(x, fits))
            with pytest.raises(OverflowError, match=rf"Python integer {wrong} out of bounds for {dtype}"):
                g(x, wrong)
            assert g.compiles == 1


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_foreign_arrays():
    """Masked arrays and matrices are refused by name; memmap is accepted."""
    for x, name in ((np.ma.array([1.0]), "MaskedArray"), (np.matrix([1.0]), "matrix")):
        with pytest.raises(lw.ArgumentError, match=name):
            lw.jit(lambda x: x)(x)


# ---- results ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("f", [
    lambda x: x, lambda x: (x, x), lambda x: x.T, lambda x: x[1:], lambda x: x[::-1], lambda x: x.reshape(-1),
    lambda x: x[None], lambda x: (x + 1, x + 1), lambda x: [x.T, {"a": x.T}], lambda x: x + 0,
    lambda x: np.broadcast_to(x, (2, *x.shape)), lambda x: x.astype(x.dtype), lambda x: np.swapaxes(x, 0, 1),
    lambda x: (x * 2)[:, 0], lambda x: x.real,
])
def test_results_are_fresh(f):
    """Results are fresh, writeable, C-contiguous arrays that share no memory with arguments or each other."""
    x = np.arange(6.0).reshape(2, 3)
    w = np.arange(6.0).reshape(2, 3)

    def leaves(tree):
        items = tree.values() if isinstance(tree, dict) else tree
        return [y for item in items for y in leaves(item)] if isinstance(tree, (tuple, list, dict)) else [tree]
    for g in (lw.jit(f), lambda x: lw.jit(lambda: f(w))(), lambda x: lw.vmap(lambda r: f(r[None]))(x), lw.jit(lw.jit(f))):
        got = leaves(g(x))
        for y in got:
            assert y.flags.writeable and y.flags.c_contiguous and y.dtype.isnative
            assert not np.shares_memory(y, x) and not np.shares_memory(y, w)
        for k, y in enumerate(got):
            y[...] = k
        assert all(np.all(y == k) for k, y in enumerate(got))
    np.testing.assert_array_equal(x, w)


# ---- rounding ---------------------------------------------------------------------------------------
@given(st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64", "float16"]))
@examples(20)
def test_each_operation_rounds_as_numpys(seed, dtype):
    """Each elementwise operation that the user wrote rounds as NumPy's does: no contraction and no reassociation."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.normal(size=77).astype(dtype) * dtype_of(dtype, 10.0 ** rng.integers(-3, 4)) for _ in range(3))
    with np.errstate(all="ignore"):
        wanted = PROGRAM(a, b, c)
    for got, expected in zip(ROUNDS(a, b, c), wanted, strict=True):
        same(got, expected)


def dtype_of(dtype, x):
    return np.dtype(dtype).type(x)


def PROGRAM(a, b, c):
    s = a * b + c
    return (s, s - a * b, (a + b) - c, (a - b) * (a + b), a / b - c, np.sqrt(np.abs(s)) * a + b * c,
            np.where(a > b, a * b + c, c - a * b))


ROUNDS = lw.jit(PROGRAM)


def test_fast_math_is_per_function():
    """`jit(fast_math=True)` lifts this per function; another function with the same body keeps it."""
    def f(a, b, c):
        return a * b + c
    x = np.random.default_rng(0).normal(size=(3, 100))
    fast, exact = lw.jit(f, fast_math=True)(*x), lw.jit(f)(*x)
    np.testing.assert_array_equal(exact, f(*x))
    np.testing.assert_allclose(fast, exact, rtol=1e-12, atol=1e-12)


# ---- errors from inside kernels ---------------------------------------------------------------------
def line_of(text):
    return next(k for k, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_indices_out_of_range_raise_with_the_users_line():
    """Out-of-range indices raise NumPy's IndexError with the user's line; the first offending index, axis and size are told."""
    def reads(x, i):
        y = x * 2
        return y[:, i]  # the read

    def writes(x, i):
        y = x * 2
        y[:, i] = 1.0  # the write
        return y
    x = np.arange(6.0).reshape(2, 3)
    for f, mark in ((reads, "# the read"), (writes, "# the write")):
        g = lw.jit(f)
        np.testing.assert_array_equal(g(x, np.array([0, -3])), f(x, np.array([0, -3])))
        for index in ([1, 3, 7], [-4, 0], [2**40, 1]):
            bad = next(k for k in index if not -3 <= k < 3)
            with pytest.raises(IndexError, match=rf"index {bad} is out of bounds for axis 1 with size 3.*:{line_of(mark)}\b"):
                g(x, np.array(index))
        np.testing.assert_array_equal(g(x, np.array([1])), f(x, np.array([1])))  # usable afterwards
        assert g.compiles == 1


def test_errors_in_parallel_and_large_kernels():
    """Lanes OR their test into a flag, memory is never touched out of range: one bad index among many, anywhere."""
    rng = np.random.default_rng(0)
    i = rng.integers(-1000, 1000, 500_000)
    x = rng.normal(size=1000)
    f = lw.jit(lambda x, i: np.sum(np.sqrt(np.abs(x[i]))))
    np.testing.assert_allclose(f(x, i), np.sum(np.sqrt(np.abs(x[i]))), rtol=1e-12)
    for at in (0, 17, 250_000, 499_999):
        j = i.copy()
        j[at] = 2**33
        with pytest.raises(IndexError, match=f"index {2**33} is out of bounds for axis 0 with size 1000"):
            f(x, j)


def test_dead_and_proved_checks_vanish():
    """Checks of dead code do not fire; proved checks vanish."""
    def dead(x, i):
        x[i]
        return x + 1
    x = np.arange(3.0)
    np.testing.assert_array_equal(lw.jit(dead)(x, 99), x + 1)
    np.testing.assert_array_equal(lw.jit(lambda x, i: x[i] * 0 + 1 if False else x)(x, 99), x)
    positions = lw.jit(lambda x: x[lw.numpy.arange(x.shape[0])])
    np.testing.assert_array_equal(positions(x), x)
    assert lw.jit(lambda x, i: (x[i],)[0])(x, -1) == 2.0


def test_negative_powers_of_integers_raise_with_the_users_line():
    """Integer power with a negative exponent raises NumPy's ValueError the same way."""
    f = lw.jit(lambda x, k: x ** k)  # the power
    np.testing.assert_array_equal(f(np.arange(3), np.arange(3)), np.arange(3) ** np.arange(3))
    with pytest.raises(ValueError, match=rf"Integers to negative integer powers .*:{line_of('# the power')}\b"):
        f(np.arange(3), np.array([1, -1, 2]))
    with pytest.raises(ValueError, match="Integers to negative integer powers"):
        lw.jit(lambda x, k: x ** k)(np.arange(3), -2)


# ---- contractions -----------------------------------------------------------------------------------
def test_small_integers_wrap_in_products():
    """int8 @ int8 is int8 modulo 2^8."""
    rng = np.random.default_rng(0)
    for dtype in ("int8", "uint8", "int16", "int64"):
        info = np.iinfo(dtype)
        a, b = (rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in ((5, 300), (300, 4)))
        same(lw.jit(lambda a, b: a @ b)(a, b), a @ b)


def test_preferred_element_type_exposes_the_sums():
    """`preferred_element_type=int32` exposes the sums, by the names of `loopwright.numpy`."""
    a, b = np.full((3, 4), 100, np.int8), np.full((4, 2), -77, np.int8)
    want = a.astype(np.int32) @ b.astype(np.int32)
    for f in (lnp.matmul, lnp.dot, lambda a, b, **k: lnp.einsum("ij,jk->ik", a, b, **k),
              lambda a, b, **k: lnp.tensordot(a, b, 1, **k), lambda a, b, **k: lnp.inner(a, b.T, **k), lnp.linalg.matmul):
        same(f(a, b, preferred_element_type=np.int32), want)
        same(lw.jit(lambda a, b, f=f: f(a, b, preferred_element_type=np.int32))(a, b), want)
        same(lw.jit(f)(a, b), want.astype(np.int8))
    h = np.full((1, 4096), 300, np.float16)
    same(lw.jit(lambda h: lnp.matmul(h, h.T, preferred_element_type=np.float32))(h), np.float32([[300 * 300 * 4096]]))
    wide = np.float64([1 + 2.0**-40, 1.0])
    same(lnp.dot(wide, wide, preferred_element_type=np.float32), np.float32(wide @ wide))
    with pytest.raises(TypeError, match="preferred"):
        lw.jit(lambda a: lnp.matmul(a, a, preferred_type=np.int32))(a)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_products_accumulate_in_f32_and_round_once(dtype):
    """bf16 and f16 contractions accumulate in f32 and round once."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(dtype) for shape in ((7, 500), (500, 3)))
    got = lw.jit(lambda a, b: np.dot(a, b))(a, b)  # NumPy's bf16 @ bf16 is f32
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert got.dtype == dtype
    slack = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * np.finfo(np.float32).eps * 16
    unit = float(ml_dtypes.finfo(dtype).eps) / 2
    assert np.all(np.abs(got.astype(np.float64) - exact) <= np.abs(exact) * unit * 1.01 + slack)


# ---- derivatives ------------------------------------------------------------------------------------
def test_ties_share_the_cotangent():
    """`max` and `min` share the cotangent among ties, compiled as well."""
    x = np.array([3.0, 1.0, 3.0, 3.0])
    for f, expected in ((np.max, [1 / 3, 0, 1 / 3, 1 / 3]), (np.min, [0, 1, 0, 0])):
        np.testing.assert_allclose(lw.jit(lw.grad(f))(x), expected)
    np.testing.assert_array_equal(lw.jit(lw.grad(lambda x: np.sum(np.maximum(x, 3.0))))(x), [0.5, 0, 0.5, 0.5])


@pytest.mark.parametrize("f", [
    np.sqrt, np.log, lambda x: 1 / x, lambda x: x ** -1.5, lambda x: np.arccosh(x + 1), lambda x: np.log(np.sqrt(x)) / x,
    lambda x: np.exp(1 / x) * np.sqrt(x), lambda x: np.arctan2(x, 0 * x) * np.log(x),
])
def test_where_lets_no_nan_of_the_branch_not_taken_into_a_gradient(f):
    """`where` lets no NaN of the branch not taken into a gradient, for singular functions and chains of them."""
    x = np.array([0.0, -1.0, 2.0, 0.5, -np.inf])

    def masked(x):
        return np.sum(np.where(x > 0, f(x), 0.0))
    for g in (lw.grad(masked), lw.jit(lw.grad(masked)), lw.jit(lambda x: lw.vmap(lw.grad(masked))(x[None])[0])):
        got = g(x)
        with np.errstate(all="ignore"):
            expected = np.array([(f(v + 1e-6) - f(v - 1e-6)) / 2e-6 if v > 0 else 0.0 for v in x])
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(got[x <= 0], 0.0)


# ---- the machine ------------------------------------------------------------------------------------
def test_two_threads_in_one_function_have_their_own_scratch_memory():
    """Scratch memory belongs to an activation: two threads in one function do not meet."""
    f = lw.jit(lambda x: np.sum(np.sort(x - np.mean(x, axis=1, keepdims=True), axis=1)[:, ::-1] @ x.T, axis=1))
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(30 + 7 * k, 50)) for k in range(4)]
    expected = [f(x) for x in inputs]
    wrong = []

    def work(k):
        for _ in range(50):
            if not np.array_equal(f(inputs[k]), expected[k]):
                wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and f.compiles == 1


def test_the_generated_product_serves_where_there_is_no_blas(monkeypatch):
    """BLAS is found by a probed list, else the generated product serves."""
    rng = np.random.default_rng(0)
    for a, b in (((17, 33), (33, 9)), ((1, 5), (5, 1)), ((3, 0), (0, 4)), ((2, 6, 7), (7, 3)), ((4,), (4, 5))):
        for dtype in (np.float32, np.float64):
            x, y = rng.normal(size=a).astype(dtype), rng.normal(size=b).astype(dtype)
            tolerance = 1e-5 if dtype is np.float32 else 1e-12
            monkeypatch.delenv("LOOPWRIGHT_BLAS", raising=False)
            np.testing.assert_allclose(lw.jit(lambda x, y: x @ y)(x, y), x @ y, rtol=tolerance, atol=tolerance)
            monkeypatch.setenv("LOOPWRIGHT_BLAS", "none")
            without = lw.jit(lambda x, y: x @ y)
            np.testing.assert_allclose(without(x, y), x @ y, rtol=tolerance, atol=tolerance)
            assert "@lw_product" not in str(without.lower(x, y).llvm)


def test_kept_memory_is_given_back():
    """At most 256 MiB is kept for later calls; `lw.release_memory()` gives it back."""
    f, x = lw.jit(lambda x: np.cumsum(np.sort(x)) + 1), np.ones(400_000)
    f(x)
    assert 0 < scratch.kept() <= 256 << 20
    lw.release_memory()
    assert scratch.kept() == 0
    np.testing.assert_array_equal(f(x), np.arange(2.0, 400_002.0))


@pytest.mark.parametrize("bits", ["256", "128"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about means of nothing
def test_programs_on_narrower_machines(monkeypatch, bits):
    """Vector width is a target parameter; tests rerun programs with AVX2 only, and with SSE2 only and without any BLAS."""
    monkeypatch.setenv("LOOPWRIGHT_VECTOR_BITS", bits)
    if bits == "128":
        monkeypatch.setenv("LOOPWRIGHT_BLAS", "none")

    @examples(5)
    @given(seed=st.integers(0, 2**32 - 1))
    def check(seed):
        program = Program(np.random.default_rng(seed))
        f = program.function()
        jitted, tolerance = lw.jit(f), 2e-3 if "float32" in program.source or np.dtype("f4") in program.dtypes else 1e-8
        for n in (9, 17, 2):
            args = program.arguments({"n": n, "m": 5, "k": 2})
            wants = reference(f, args)
            if wants is None:
                continue
            try:
                gots = jitted(*args)
            except lw.WriteError:  # a view that was written through a reshape, whose meaning depends on the layout
                return
            if not all(close(got, want, tolerance) for got, want in zip(gots, wants, strict=True)):
                assert not is_smooth(f, args, wants, tolerance), program.source
    check()
    w, x = np.random.default_rng(0).normal(size=(2, 7, 7)) * 0.5
    step = lw.jit(lw.grad(lambda w: np.sum(lax.fori_loop(0, 4, lambda i, c: np.tanh(c @ w), x) ** 2)))
    at = step(w)
    for i, j in ((0, 0), (3, 5)):
        e = np.zeros((7, 7))
        e[i, j] = 1e-6

        def plain(w):
            c = x
            for _ in range(4):
                c = np.tanh(c @ w)
            return np.sum(c ** 2)
        np.testing.assert_allclose(at[i, j], (plain(w + e) - plain(w - e)) / 2e-6, rtol=1e-6)
