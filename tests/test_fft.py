"""Fourier transforms on traced arrays: values against NumPy, derivatives against differences and JAX, loops, errors."""
import ctypes
import os
import re
import subprocess
import sys
import threading
import warnings
from functools import cache

import ml_dtypes  # noqa: F401  (registers bfloat16)
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
import loopwright.numpy as lnp
from loopwright import lax
from loopwright.ir.cost import flops
from loopwright.ir.parser import parse
from loopwright.lower.runtime import fourier
from tests.scale import examples

LENGTHS = (1, 2, 3, 4, 7, 8, 30, 97, 128, 1009)
NORMS = (None, "backward", "ortho", "forward")
ONE_AXIS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")
OF_REAL = ("rfft", "ihfft", "rfftn", "rfft2")
DTYPES = ("f8", "f4", "c16", "c8", "i8", "i1", "u2", "?")
TOLERANCE = {"f8": 1e-13, "c16": 1e-13, "f4": 1e-5, "c8": 1e-5, "f2": 5e-3}
many_versions = pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")


def draw(shape, dtype="f8", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * 4
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@cache
def compiled(name, **options):
    return lw.jit(lambda x: getattr(np.fft, name)(x, **options))


def assert_close(got, want):
    """Within rounding of the largest number of the transform."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    scale = float(np.max(np.abs(want), initial=0)) * TOLERANCE[want.dtype.str[1:]]
    np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=0, atol=scale)


def kinds(name):
    """The dtypes that a function takes; all whole numbers count alike."""
    some = DTYPES if name in ("fft", "rfft") else DTYPES[:5]
    return [d for d in some if name not in OF_REAL or np.dtype(d).kind != "c"]


# ---- values ---------------------------------------------------------------------------------------
@many_versions
@pytest.mark.parametrize("name", ONE_AXIS)
def test_values_of_every_dtype_and_length(name):
    """One compile a dtype for all lengths."""
    for dtype in kinds(name):
        f = lw.jit(lambda x: getattr(np.fft, name)(x))
        for n in LENGTHS:
            if n > 1 or name not in ("irfft", "hfft"):
                x = draw((3, n), dtype, n)
                assert_close(f(x), getattr(np.fft, name)(x))
        assert f.compiles == 1


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE_AXIS)
def test_norms_and_axes(name, norm):
    for axis in (0, 1, -1):
        for dtype in ("f8", "f4") if axis else ("f8",):
            for shape in ((6, 5, 4), (2, 9, 3), (7, 1009, 2)):
                x = draw(shape, dtype)
                assert_close(compiled(name, axis=axis, norm=norm)(x), getattr(np.fft, name)(x, axis=axis, norm=norm))


@pytest.mark.parametrize("n", [1, 5, 8])
@pytest.mark.parametrize("name", ONE_AXIS)
def test_axes_are_cropped_or_continued_with_zeros(name, n):
    for dtype in kinds(name)[:2]:
        for size in (1, 4, 5, 20):
            x = draw((size, 2), dtype)
            assert_close(compiled(name, n=n, axis=0)(x), getattr(np.fft, name)(x, n, axis=0))


@many_versions
@examples(20)
@given(name=st.sampled_from(ONE_AXIS), shape=st.lists(st.integers(1, 12), min_size=1, max_size=3), data=st.data())
def test_any_call(name, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = data.draw(st.none() | st.integers(1, 25))
    norm, dtype = data.draw(st.sampled_from(NORMS)), data.draw(st.sampled_from(kinds(name)))
    if n is None and name in ("irfft", "hfft"):
        shape[axis] += 1
    x = draw(shape, dtype)
    assert_close(lw.jit(lambda x: getattr(np.fft, name)(x, n, axis, norm))(x), getattr(np.fft, name)(x, n, axis, norm))


@pytest.mark.parametrize("options", [{}, {"axes": (0, 2)}, {"axes": (2, 0), "norm": "ortho"}, {"axes": (1,)},
                                     {"s": (3, 8), "axes": (1, 0)}, {"s": (4, -1), "axes": (-1, 1), "norm": "forward"},
                                     {"axes": (1, 1)}, {"s": np.array([5, 2, 3]), "axes": [0, 1, 2]}], ids=str)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name, options):
    x = draw((4, 5, 6), "f8" if name in OF_REAL else "c16")
    assert_close(lw.jit(lambda x: getattr(np.fft, name)(x, **options))(x), getattr(np.fft, name)(x, **options))
    assert_close(getattr(lnp.fft, name)(x, **options), getattr(np.fft, name)(x, **options))


def test_one_compile_serves_all_shapes():
    f = lw.jit(lambda x: np.fft.irfft2(np.fft.rfft2(x), s=x.shape))
    for shape in ((2, 2), (3, 5), (8, 7), (97, 10)):
        np.testing.assert_allclose(f(draw(shape)), draw(shape), atol=1e-12)
    assert f.compiles == 1


def test_no_axes_at_all():
    x = draw((2, 3))
    for f in (lambda x: np.fft.fftn(x, axes=()), lambda x: np.fft.ifftn(x, axes=())):
        assert np.array_equal(lw.jit(f)(x), x)


def test_batches_without_rows():
    for name in ONE_AXIS:
        for shape, axis in (((0, 4), 1), ((4, 0), 0), ((2, 4, 0), 1), ((0, 4, 3), 1)):
            got, want = compiled(name, axis=axis)(np.zeros(shape)), getattr(np.fft, name)(np.zeros(shape), axis=axis)
            assert got.shape == want.shape and got.dtype == want.dtype


def test_half_precision_is_transformed_at_f32():
    """NumPy rounds 1/n to float16."""
    x = draw((2, 9), "f2")
    for name in ONE_AXIS:
        got, want = compiled(name)(x), getattr(np.fft, name)(x)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
    got = compiled("fft")(x.astype("bfloat16"))
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, np.fft.fft(x.astype("bfloat16").astype("f4")), rtol=1e-5, atol=1e-5)


def test_infinities_and_nan_go_where_numpy_has_them():
    for bad in (np.inf, np.nan):
        x = draw((3, 6))
        x[1, 2] = bad
        for name in ONE_AXIS:
            with np.errstate(all="ignore"):
                want = getattr(np.fft, name)(x)
            np.testing.assert_array_equal(np.isfinite(compiled(name)(x)), np.isfinite(want))


def test_plain_arrays_are_numpys():
    x = draw((4, 6))
    for name in (*ONE_AXIS, *SEVERAL, "fftshift", "ifftshift"):
        got, want = getattr(lnp.fft, name)(x), getattr(np.fft, name)(x)
        assert type(got) is np.ndarray and got.dtype == want.dtype and np.array_equal(got, want)
    assert np.array_equal(lnp.fft.fftfreq(5, 0.1), np.fft.fftfreq(5, 0.1))


def test_lists_of_traced_values_by_our_name():
    assert_close(lw.jit(lambda x: lnp.fft.fft([x, 2 * x, 3j]))(1.5), np.fft.fft([1.5, 3.0, 3j]))


# ---- frequencies ----------------------------------------------------------------------------------
def test_shifts():
    f = lw.jit(lambda x: (np.fft.fftshift(x), np.fft.ifftshift(x), np.fft.fftshift(x, 0), np.fft.ifftshift(x, axes=(-1, 0)),
                          np.fft.fftshift(x, [1])))
    for shape in ((2, 2), (4, 5), (5, 4), (7, 3)):
        x = draw(shape, "c16")
        want = (np.fft.fftshift(x), np.fft.ifftshift(x), np.fft.fftshift(x, 0), np.fft.ifftshift(x, axes=(-1, 0)),
                np.fft.fftshift(x, [1]))
        assert all(map(np.array_equal, f(x), want))
    assert f.compiles == 1
    assert np.array_equal(lw.jit(np.fft.ifftshift)(np.zeros((0, 2))), np.zeros((0, 2)))


def test_frequencies_of_symbolic_lengths():
    f = lw.jit(lambda x: (lnp.fft.fftfreq(x.shape[0]), lnp.fft.rfftfreq(x.shape[0], d=0.5), lnp.fft.fftfreq(x.shape[0], x[0])))
    for n in (1, 2, 5, 8):
        x = draw(n)
        for got, want in zip(f(x), (np.fft.fftfreq(n), np.fft.rfftfreq(n, d=0.5), np.fft.fftfreq(n, x[0])), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-15)
    assert_close(lw.jit(lambda d: np.fft.fftfreq(6, d))(0.3), np.fft.fftfreq(6, 0.3))
    slope = lw.grad(lambda d: np.sum(lnp.fft.fftfreq(5, d)[1:3]))(2.0)
    np.testing.assert_allclose(slope, -(0.1 + 0.2) / 2)


# ---- derivatives ----------------------------------------------------------------------------------
LOSSES = {
    "power": lambda np, x: np.sum(np.abs(np.fft.fft(x, 7)) ** 4 * np.arange(7)),
    "half": lambda np, x: np.sum(np.abs(np.fft.rfft(x, norm="ortho")) ** 3),
    "filter": lambda np, x: np.sum(np.fft.irfft(np.fft.rfft(x) * (1 + 2j), n=x.shape[-1] + 1) ** 3),
    "back": lambda np, x: np.sum(np.fft.irfft(x * (1 - 1j) + x ** 2, norm="forward") ** 3),
    "odd": lambda np, x: np.sum(np.fft.irfft(x * (1 - 1j), n=2 * x.shape[-1] - 1) ** 3),
    "short": lambda np, x: np.sum(np.fft.irfft(x * 1j, n=4) ** 2 + np.fft.hfft(x, n=4) ** 3),
    "hermite": lambda np, x: np.sum(np.real(np.fft.ihfft(x, norm="ortho") ** 2 * (1 + 1j))),
    "plane": lambda np, x: np.sum(np.abs(np.fft.fft2(np.outer(x, x * x) + 1j)) ** 2 * np.arange(x.shape[0])),
    "planes": lambda np, x: np.sum(np.fft.irfftn(np.fft.rfftn(np.outer(x, x * x)) ** 2, s=(3, 4), axes=(0, 1)) ** 2),
    "shift": lambda np, x: np.sum(np.fft.fftshift(np.abs(np.fft.ifft(x)) ** 2) * np.arange(x.shape[0])),
}


def differences(f, x, step=1e-5):
    rows = np.eye(x.size).reshape(x.size, *x.shape) * step
    return np.reshape([(f(x + h) - f(x - h)) / (2 * step) for h in rows], x.shape)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_differences(name):
    """Of even and odd lengths from one compile; the gradient's own derivative; each row of a batch alike."""
    def f(x):
        return LOSSES[name](lnp, x)

    gradient, second = lw.jit(lw.grad(f)), lw.jit(lambda x, d: lw.jvp(lw.grad(f), (x,), (d,))[1])
    for n in (5, 6):
        x, d = draw(n) / 4, draw(n, seed=1)
        want = differences(f, x)
        np.testing.assert_allclose(gradient(x), want, rtol=1e-6, atol=1e-7 * np.abs(want).max())
        np.testing.assert_allclose(lw.grad(f)(x), gradient(x), rtol=1e-9, atol=1e-9 * np.abs(want).max())
        want = (gradient(x + 1e-5 * d) - gradient(x - 1e-5 * d)) / 2e-5
        np.testing.assert_allclose(second(x, d), want, rtol=1e-6, atol=1e-7 * np.abs(want).max())
    rows = draw((3, 6)) / 4
    each = np.stack([gradient(x) for x in rows])
    np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(f)))(rows), each, rtol=1e-9, atol=1e-9 * np.abs(each).max())


@pytest.mark.parametrize("name", LOSSES)
def test_reverse_mode_of_reverse_mode_is_differences(name):
    """The masks of the first transposes are no masks after a transform."""
    def squared(x):
        return np.sum(lw.grad(lambda x: LOSSES[name](lnp, x))(x) ** 2)
    gradient = lw.jit(lw.grad(squared))
    for n in (5, 6):
        x = draw(n) / 4
        want = differences(squared, x)
        np.testing.assert_allclose(gradient(x), want, rtol=1e-6, atol=1e-7 * np.abs(want).max())


@pytest.mark.parametrize("n", [1, 5, 6])
@pytest.mark.parametrize("name", ONE_AXIS)
def test_reverse_mode_is_forward_mode_turned_around(name, n):
    """The matrices of both, of real and of complex numbers as pairs of real ones."""
    def f(x):
        z = x if name in OF_REAL else x[..., 0] + 1j * x[..., 1]
        y = getattr(np.fft, name)(z, n)
        return np.stack([np.real(y), np.imag(y)])
    x = draw((n,) if name in OF_REAL else (n, 2))
    columns = lw.jit(lw.jacfwd(f))(x)
    np.testing.assert_allclose(lw.jit(lw.jacrev(f))(x), columns, atol=1e-13)
    np.testing.assert_allclose(np.tensordot(columns, x, x.ndim), f(x), atol=1e-12)


def test_gradients_of_complex_arguments_follow_jaxs_convention():
    """For sum |fft(z)|^2 = n |z|^2 the gradient is 2 n conj(z)."""
    z = draw(6, "c16")
    g = lw.jit(lw.grad(lambda z: np.sum(np.abs(np.fft.fft(z)) ** 2)))(z)
    np.testing.assert_allclose(g, 12 * np.conj(z), rtol=1e-12)
    linear = lw.grad(lambda z: np.fft.fft(z)[1], holomorphic=True)(z)
    np.testing.assert_allclose(linear, np.exp(-2j * np.pi * np.arange(6) / 6), atol=1e-14)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_jaxs(name):
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")
    with jax.enable_x64(True):
        for n in (5, 6):
            x = draw(n) / 4
            want = np.asarray(jax.grad(lambda x: LOSSES[name](jax.numpy, x))(x))
            got = lw.jit(lw.grad(lambda x: LOSSES[name](lnp, x)))(x)
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10 * np.abs(want).max())


# ---- batches and loops ----------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ONE_AXIS)
def test_vmap_over_any_axis(name, axis):
    def f(x):
        return getattr(np.fft, name)(x, axis=0)
    x = draw((3, 4, 5))
    want = np.stack([f(np.take(x, k, axis)) for k in range(x.shape[axis])], axis)
    assert_close(lw.jit(lw.vmap(f, in_axes=axis, out_axes=axis))(x), want)
    assert_close(lw.vmap(f, in_axes=axis, out_axes=axis)(x), want)


def heat(u, steps):
    """A periodic heat equation, by steps in the spectrum of a real carry."""
    n = u.shape[-1]
    decay = np.exp(-lnp.fft.rfftfreq(n) ** 2)

    def step(u, _):
        u = np.fft.irfft(np.fft.rfft(u) * decay, n=n)
        return u, np.sum(u ** 2)
    return lax.scan(step, u, None, length=steps)


def test_loops():
    f = lw.jit(lambda u: heat(u, 4))
    for n in (6, 7):
        u = draw(n)
        want = np.fft.irfft(np.fft.rfft(u) * np.exp(-4 * np.fft.rfftfreq(n) ** 2), n=n)
        last, energies = f(u)
        np.testing.assert_allclose(last, want, atol=1e-12)
        assert energies.shape == (4,)
        slope = lw.jit(lw.grad(lambda u: np.sum(heat(u, 4)[0] ** 3)))(u)
        np.testing.assert_allclose(slope, differences(lambda u: np.sum(heat(u, 4)[0] ** 3), u), atol=1e-6)
    assert f.compiles == 1


def test_complex_carries_and_branches():
    def turned(z):
        return lax.fori_loop(0, 3, lambda k, z: np.fft.ifft(np.fft.fft(z) * 1j), z)
    z = draw((2, 5), "c16")
    assert_close(lw.jit(turned)(z), -1j * z)

    def either(x):
        return lax.cond(x[0] > 0, lambda x: np.abs(np.fft.fft(x)), lambda x: np.fft.irfft(x, n=x.shape[0]), x)
    for x in (np.abs(draw(5)), -np.abs(draw(5))):
        np.testing.assert_allclose(lw.jit(either)(x), np.abs(np.fft.fft(x)) if x[0] > 0 else np.fft.irfft(x, n=5), atol=1e-12)
    rows = np.stack([np.abs(draw(5)), -np.abs(draw(5))])
    np.testing.assert_allclose(lw.jit(lw.vmap(either))(rows), np.stack([either(x) for x in rows]), atol=1e-12)


# ---- errors ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("f, error, message", [
    (lambda x: np.fft.fft(x[:0]), ValueError, r"Invalid number of FFT data points \(0\) specified"),
    (lambda x: np.fft.fft(x, n=0), ValueError, r"Invalid number of FFT data points \(0\) specified"),
    (lambda x: np.fft.rfft(x, n=-1), ValueError, r"Invalid number of FFT data points \(-1\) specified"),
    (lambda x: np.fft.irfft(x[:1]), ValueError, r"Invalid number of FFT data points \(0\) specified"),
    (lambda x: np.fft.fft(x, n=2.0), TypeError, "float"),
    (lambda x: np.fft.fft(x, norm="x"), ValueError, 'Invalid norm value x; should be "backward", ?"ortho" or "forward"'),
    (lambda x: np.fft.ihfft(x, norm="x"), ValueError, "Invalid norm value x"),
    (lambda x: np.fft.fft(x, axis=1), IndexError, "axis 1|out of range"),
    (lambda x: np.fft.fft2(x), IndexError, "-2"),
    (lambda x: np.fft.fftn(x, s=(2, 3), axes=(0,)), ValueError, "Shape and axes have different lengths"),
    (lambda x: np.fft.rfftn(x, axes=()), IndexError, "index|at least one axis"),
    (lambda x: np.fft.rfft(x * 1j), TypeError, "rfft"),
], ids=range(12))
def test_what_numpy_refuses_is_refused_in_its_words(f, error, message):
    for g in (f, lw.jit(f)):
        with pytest.raises(error, match=message):
            g(np.ones(3))
    with pytest.raises(error, match=message):
        lw.vmap(f)(np.ones((2, 3)))


def test_errors_name_the_line():
    for f in (lambda x: np.fft.fft(x, norm="x"), lambda x: np.fft.fft(x, n=0), lambda x: np.fft.rfft(x * 1j)):
        with pytest.raises((ValueError, TypeError), match=r"test_fft\.py:\d+"):
            lw.jit(f)(np.ones(3))


def test_a_length_of_zero_is_refused_after_others_were_compiled():
    f = lw.jit(lambda x: np.fft.fft(x))
    f(np.ones(3))
    with pytest.raises(ValueError, match="Invalid number of FFT data points"):
        f(np.ones(0))
    assert f(np.ones(4))[0] == 4 and f.compiles == 1


def test_what_numpy_deprecates_warns_at_the_users_line():
    x = draw((3, 4))
    for f in (lambda x: np.fft.fftn(x, s=(2,)), lambda x: lnp.fft.fftn(x, s=(2, None), axes=(0, 1))):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            got = lw.jit(f)(x)
        assert [(w.category, w.filename) for w in seen] == [(DeprecationWarning, __file__)]
        with pytest.warns(DeprecationWarning):
            assert_close(got, f(x))


def test_frequencies_of_a_symbolic_length_need_our_name():
    with pytest.raises(ValueError, match="n should be an integer"):
        lw.jit(lambda x: np.fft.fftfreq(x.shape[0]))(np.ones(3))
    with pytest.raises(ValueError, match="n should be an integer"):
        lw.jit(lambda x: lnp.fft.fftfreq(2.5, x[0]))(np.ones(3))


def test_out_is_refused():
    with pytest.raises(TypeError, match="out="):
        lw.jit(lambda x: np.fft.fft(x, out=np.zeros(3, complex)))(np.ones(3))


# ---- compiled code --------------------------------------------------------------------------------
def implementations(f, *args):
    return re.findall(r'kernel\(.*implementation="(\w+)"', f.lower(*args).kernels)


def test_arguments_are_transformed_where_they_lie():
    """No copies into or out of the order of NumPy's loops, whatever the axis."""
    z = draw((4, 6), "c16")
    for axis in (0, 1):
        assert implementations(compiled("fft", axis=axis), z) == ["transform"]
    assert implementations(compiled("ifft2"), z) == ["transform"] * 2
    assert implementations(compiled("rfft"), z.real.copy()) == ["transform"]


def test_spectra_meet_arrays_of_fixed_sizes():
    """The size n//2 + 1 is then known, by a guard."""
    f = lw.jit(lambda x: np.fft.irfft(np.fft.rfft(x) * np.arange(4.0), n=6))
    x = draw((2, 6))
    assert_close(f(x), np.fft.irfft(np.fft.rfft(x) * np.arange(4.0), n=6))


def test_text_and_cost():
    g = lw.make_graph(lambda x: np.fft.irfft(np.fft.rfft(x), n=x.shape[0]))(draw(8))
    assert parse(str(g)) == g and "rfft(%x0) {axis=0, norm=\"backward\"}" in str(g)
    assert str(flops(lw.make_graph(lambda z: np.fft.fft(z))(draw(8, "c16")))) in ("50*n", "400")


def test_threads_share_the_loops():
    f, x = compiled("rfft"), [draw((40, n)) for n in (1000, 1009, 1024)]
    wrong = []

    def work(k):
        for _ in range(20):
            for rows in x:
                if not np.allclose(f(rows), np.fft.rfft(rows), atol=1e-9):
                    wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_memory_that_a_transform_lacks_is_an_error():
    """A length whose result fits and whose working memory does not; the function stays usable."""
    program = """if True:
        import resource
        import numpy as np, loopwright as lw
        f, n = lw.jit(lambda z: np.fft.fft(z)), 8_000_000  # more than fits in what threads have reserved
        f(np.ones(16, complex))
        z = np.ones(n, complex)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + z.nbytes + (8 << 20), resource.RLIM_INFINITY))
        try:
            f(z)
        except MemoryError:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            assert f(z)[0] == n
            print("refused")"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert run.stdout == "refused\n", run.stderr


def test_numpys_loops_are_found():
    assert fourier.available()
    assert fourier._loop(np.add, (np.dtype("f4"), np.dtype("f8"), np.dtype("i1"))) is None  # no such loop
    assert fourier._loop(None, ()) is None


def test_without_numpys_loops_the_error_says_so(monkeypatch):
    monkeypatch.setattr(fourier, "available", lambda: False)
    assert fourier.address("lw_fft_f64") is None
    with pytest.raises(lw.DTypeError, match="ifft needs the loops of NumPy's own"):
        lw.jit(lambda x: np.fft.ifft(x) * 17)(np.ones(3))
    assert_close(lw.vmap(lambda x: np.fft.fft(x))(np.ones((2, 3))), np.fft.fft(np.ones((2, 3))))


def test_where_no_exception_is_pending_the_status_stays():
    raised = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(fourier.address(fourier.RAISED))
    error = (ctypes.c_int64 * 7)()
    assert raised(1, error) == 1 and not any(error)
