"""Linear algebra on traced arrays: values against NumPy and SciPy, derivatives against differences, batches, errors."""
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import scipy.linalg

import loopwright as lw
import loopwright.numpy as lnp
import loopwright.scipy.linalg as sla
from loopwright.ir.types import F32, F64
from loopwright.lower.runtime import engine, lapack
from loopwright.lower.runtime.lapack_text import lapack_text
from loopwright.lower.target import host_target

SQUARE = ((0, 0), (1, 1), (4, 4), (2, 3, 3), (0, 2, 2), (2, 0, 0), (2, 1, 3, 3))
RECTANGLES = (*SQUARE, (5, 3), (3, 5), (0, 3), (3, 0), (2, 4, 1), (1, 4))
TOLERANCE = {F32: 2e-4, F64: 1e-10}


def draw(shape, dtype=F64, seed=0):
    """Far from singular, with singular values that differ."""
    x = np.random.default_rng(seed).normal(size=shape) / 2
    least = min(shape[-2:])
    x[..., range(least), range(least)] += 2 + np.arange(least)
    return x.astype(dtype)


def spd(a):
    return a @ np.swapaxes(a, -1, -2) + lnp.eye(a.shape[-1], dtype=a.dtype)


def is_vectors(x):
    """For comparison up to signs."""
    return np.abs(x)


OF_SQUARE = {
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "slogdet": np.linalg.slogdet,
    "cholesky": lambda a: np.linalg.cholesky(spd(a)),
    "cholesky_upper": lambda a: np.linalg.cholesky(spd(a), upper=True),
    "eigh": lambda a: tuple(map(is_vectors, np.linalg.eigh(a))),
    "eigh_upper": lambda a: tuple(map(is_vectors, np.linalg.eigh(a, "U"))),
    "eigvalsh": np.linalg.eigvalsh,
    "solve": lambda a: np.linalg.solve(a, a[..., :, :2]),
    "power": lambda a: np.linalg.matrix_power(a, -2),
    "cond": lambda a: np.linalg.cond(a, 1),
}
OF_ANY = {
    "qr": lambda a: tuple(map(is_vectors, np.linalg.qr(a))),
    "qr_complete": lambda a: tuple(map(is_vectors, np.linalg.qr(a, "complete"))),
    "qr_r": lambda a: is_vectors(np.linalg.qr(a, "r")),
    "svd": lambda a: tuple(map(is_vectors, np.linalg.svd(a, full_matrices=False))),
    "svd_full": lambda a: tuple(is_vectors(x) for x in np.linalg.svd(a)[1:2]),
    "values": lambda a: np.linalg.svd(a, compute_uv=False),
    "pinv": np.linalg.pinv,
    "rank": np.linalg.matrix_rank,
}


@cache
def compiled(f):
    return lw.jit(f)


def assert_same(f, *args):
    want, got = f(*args), compiled(f)(*args)
    many = isinstance(want, tuple)
    for w, g in zip(want if many else (want,), got if many else (got,), strict=True):
        assert np.shape(w) == np.shape(g) and np.asarray(w).dtype == np.asarray(g).dtype
        tolerance = TOLERANCE.get(np.asarray(args[0]).dtype, 1e-10)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


# ---- values ---------------------------------------------------------------------------------------
many_ranks = pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")


@many_ranks
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", OF_SQUARE)
def test_values_of_square_matrices(name, dtype):
    for shape in SQUARE:
        if name != "cond" or 0 not in shape:
            assert_same(OF_SQUARE[name], draw(shape, dtype))


@many_ranks
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", OF_ANY)
def test_values_of_rectangles(name, dtype):
    for shape in RECTANGLES:
        if name != "rank" or 0 not in shape:
            assert_same(OF_ANY[name], draw(shape, dtype))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 3, 5), (4, 0), (0, 4)])
def test_factors_multiply_to_the_matrix(shape):
    a = draw(shape)
    for full in (False, True):
        u, s, vt = compiled(lambda a, full=full: np.linalg.svd(a, full_matrices=full))(a)
        k = min(shape[-2:])
        np.testing.assert_allclose((u[..., :, :k] * s[..., None, :]) @ vt[..., :k, :], a, atol=1e-12)
        q, r = compiled(lambda a, full=full: np.linalg.qr(a, "complete" if full else "reduced"))(a)
        np.testing.assert_allclose(q @ r, a, atol=1e-12)
        for basis in (u, q, np.swapaxes(vt, -1, -2)):
            np.testing.assert_allclose(np.swapaxes(basis, -1, -2) @ basis, np.broadcast_to(
                np.eye(basis.shape[-1]), (*shape[:-2], *[basis.shape[-1]] * 2)), atol=1e-12)


@pytest.mark.parametrize(("f", "alone"), [
    (lambda a: np.linalg.svd(a)[1], "singular_values"), (np.linalg.svdvals, "singular_values"),
    (lambda a: np.linalg.eigh(a)[0], "eigenvalues"), (np.linalg.eigvalsh, "eigenvalues"),
    (lambda a: np.abs(np.linalg.qr(a)[1]), "qr_triangle"), (lambda a: np.abs(np.linalg.qr(a, "r")), "qr_triangle"),
], ids=["svd", "svdvals", "eigh", "eigvalsh", "qr", "r"])
@pytest.mark.parametrize("shape", [(4, 4), (60, 5, 5), (0, 0), (2, 0, 0)])
def test_one_result_is_found_alone(f, alone, shape):
    """And where a derivative needs the others all of them are, once."""
    a = spd(draw(shape))
    assert_same(f, a)
    assert f'implementation="{alone}"' in compiled(f).lower(a).module
    np.testing.assert_allclose(lw.vmap(f)(np.stack([a, a + a]))[1], f(a + a), rtol=1e-10, atol=1e-12)
    if shape == (4, 4):
        both = lw.jit(lw.value_and_grad(lambda a: np.sum(f(a) ** 3)))
        value, slope = both(a)
        assert sum(f'"{name}"' in both.lower(a).module for name in (alone, "svd", "eigh", "qr")) == 1
        np.testing.assert_allclose(value, np.sum(f(a) ** 3))
        step = 1e-5 * spd(draw((4, 4), seed=2))
        change = np.sum(f(a + step) ** 3) - np.sum(f(a - step) ** 3)
        np.testing.assert_allclose(np.sum(slope * step) * 2, change, rtol=1e-5)


@pytest.mark.parametrize("n", [50, 130])
def test_larger_matrices(n):
    a, b = draw((n, n)), draw((n, 7), seed=1)
    for f in (np.linalg.solve, lambda a, b: np.linalg.lstsq(a, b)[0], lambda a, b: np.linalg.qr(b)[1] ** 2,
              lambda a, b: np.linalg.eigvalsh(a), lambda a, b: np.linalg.cholesky(spd(a)), lambda a, b: np.linalg.svdvals(b)):
        assert_same(f, a, b)


def test_systems_broadcast():
    for a, b in (((3, 3), (3,)), ((3, 3), (2, 3, 1)), ((2, 3, 3), (3,)), ((4, 2, 3, 3), (2, 3, 2)), ((0, 0), (0,)),
                 ((3, 3), (3, 0)), ((2, 0, 0), (2, 0, 5))):
        assert_same(np.linalg.solve, draw(a), np.random.default_rng(1).normal(size=b))


def test_whole_numbers_are_solved_as_floats():
    a = np.array([[2, 1], [1, 3]])
    for f in (np.linalg.inv, np.linalg.det, np.linalg.cholesky, lambda a: np.linalg.solve(a, a[0])):
        assert_same(f, a)


@pytest.mark.parametrize("ord", [2, -2, "nuc", "fro", 1, -1, np.inf])
def test_norms_of_matrices(ord):
    for shape in ((3, 3), (4, 2)):
        assert_same(lambda a: np.linalg.norm(a, ord), draw(shape))
    assert_same(lambda a: np.linalg.norm(a, ord, axis=(2, 0), keepdims=True), draw((3, 2, 4)))


def test_least_squares():
    """All four results; of a tall, a wide and a singular matrix."""
    for shape in ((6, 3), (3, 6), (3, 3)):
        for b in (draw((shape[0], 2), seed=1), draw((shape[0], 1), seed=2)[:, 0]):
            assert_same(lambda a, b: tuple(np.linalg.lstsq(a, b)), draw(shape), b)
    a = np.ones((4, 3)) + np.arange(3)
    x, _, rank, values = compiled(lambda a, b: tuple(np.linalg.lstsq(a, b)))(a, np.arange(4.0))
    want = np.linalg.lstsq(a, np.arange(4.0))
    np.testing.assert_allclose(x, want[0], atol=1e-12)
    assert rank == want[2] == 1
    np.testing.assert_allclose(values, want[3], atol=1e-12)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_solves(lower, trans, unit):
    def solve(module):
        return lambda a, b: module.solve_triangular(a, b, trans=trans, lower=lower, unit_diagonal=unit)

    a = draw((4, 4))
    for b in (draw((4, 2)), np.arange(4.0)):
        want = solve(scipy.linalg)(a, b)
        np.testing.assert_allclose(solve(sla)(a, b), want, rtol=1e-12)
        np.testing.assert_allclose(compiled(solve(sla))(a, b), want, rtol=1e-12)
    stack = draw((3, 4, 4))
    each = [solve(scipy.linalg)(x, a) for x in stack]
    np.testing.assert_allclose(lw.jit(lw.vmap(solve(sla), in_axes=(0, None)))(stack, a), each, rtol=1e-11)
    each = [solve(scipy.linalg)(a, x) for x in stack]
    np.testing.assert_allclose(lw.jit(lw.vmap(solve(sla), in_axes=(None, 0)))(a, stack), each, rtol=1e-11)


def test_a_zero_on_the_diagonal_of_a_triangle_gives_infinities():
    a = np.array([[0.0, 0.0], [1.0, 1.0]])
    for f in (sla.solve_triangular, lw.jit(sla.solve_triangular, static_argnames="lower")):
        assert np.array_equal(f(a, np.ones(2), lower=True), [np.inf, -np.inf])


def test_cholesky_solves():
    a, b = spd(draw((4, 4))), draw((4, 2))
    for lower in (False, True):
        want = np.linalg.solve(a, b)
        f = compiled(lambda a, b, lower=lower: sla.cho_solve(sla.cho_factor(a, lower), b))
        np.testing.assert_allclose(f(a, b), want, rtol=1e-12)
        np.testing.assert_allclose(sla.solve(a, b, lower, assume_a="pos"), want, rtol=1e-12)
        np.testing.assert_allclose(sla.cholesky(a, lower), scipy.linalg.cholesky(a, lower), rtol=1e-12)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_matrix_exponentials(dtype):
    for n, scale in ((0, 1), (1, 3), (3, 0), (3, 0.1), (4, 1), (4, 20)):
        a = (np.random.default_rng(n).normal(size=(n, n)) * scale).astype(dtype)
        want = scipy.linalg.expm(a.astype(F64))
        tolerance = (1e-3 if dtype == F32 else 1e-10) * np.abs(want).max(initial=1)
        for f in (sla.expm, compiled(sla.expm)):
            got = f(a)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, want, atol=tolerance)
    stack = np.stack([draw((3, 3)), 9 * draw((3, 3), seed=1)])
    want = np.stack([scipy.linalg.expm(x) for x in stack])
    for f in (sla.expm, lw.vmap(sla.expm)):
        np.testing.assert_allclose(lw.jit(f)(stack), want, rtol=1e-9)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
def test_factors_by_scipys_names(shape):
    a = np.random.default_rng(0).normal(size=shape)
    for mode in ("full", "economic", "r"):
        for f in (sla.qr, lw.jit(sla.qr, static_argnames="mode")):
            got, want = f(a, mode=mode), scipy.linalg.qr(a, mode=mode)
            assert [x.shape for x in got] == [x.shape for x in want]
            np.testing.assert_allclose(np.abs(got[-1]), np.abs(want[-1]), atol=1e-12)
            np.testing.assert_allclose(got[0] @ got[-1] if mode != "r" else got[0].T @ got[0], a if mode != "r" else a.T @ a,
                                       atol=1e-12)
    b = a.T @ a
    for lower in (True, False):
        values, vectors = sla.eigh(np.tril(b) if lower else np.triu(b), lower=lower)
        np.testing.assert_allclose(b @ vectors, vectors * values, atol=1e-12)
        np.testing.assert_allclose(sla.eigh(b, eigvals_only=True), scipy.linalg.eigh(b, eigvals_only=True), atol=1e-12)
    for full in (True, False):
        u, s, vh = lw.jit(sla.svd, static_argnames="full_matrices")(a, full_matrices=full)
        assert [x.shape for x in (u, s, vh)] == [x.shape for x in scipy.linalg.svd(a, full_matrices=full)]
        np.testing.assert_allclose(u[:, :3] * s @ vh[:3], a, atol=1e-12)
    np.testing.assert_allclose(sla.svd(a, compute_uv=False), scipy.linalg.svd(a, compute_uv=False), rtol=1e-12)


def test_structured_matrices():
    a, c = np.random.default_rng(0).normal(size=(4, 3)), np.array([1 + 2j, 3])
    for f in (sla.block_diag, lw.jit(sla.block_diag)):
        for blocks in ((a, a.T @ a, np.ones(2), 3.0), (a,), (a, np.zeros((0, 2)), a)):
            np.testing.assert_array_equal(f(*blocks), scipy.linalg.block_diag(*blocks))
    assert sla.block_diag().shape == scipy.linalg.block_diag().shape
    for f in (sla.toeplitz, lw.jit(sla.toeplitz)):
        for given in ((a[:, 0], a[0]), (a[:, 0],), (c,), (c, c[:1]), (np.zeros(1), a[0])):
            np.testing.assert_array_equal(f(*given), scipy.linalg.toeplitz(*given))
    gradient = lw.grad(lambda x: np.sum(sla.toeplitz(x) ** 2) + np.sum(sla.block_diag(x, x) ** 2))(np.arange(3.0))
    np.testing.assert_array_equal(gradient, [0, 8 + 4, 8 + 8])
    batch = lw.vmap(sla.toeplitz)(a)
    np.testing.assert_array_equal(batch, np.stack([scipy.linalg.toeplitz(row) for row in a]))


# ---- derivatives ----------------------------------------------------------------------------------
def cubes(*xs):
    """A number that depends on everything unevenly."""
    return sum(np.sum(x ** 3 * (1 + lnp.arange(x.shape[-1]))) for x in xs)


LOSSES = {
    "solve": lambda a: cubes(np.linalg.solve(a, a[:, :1] ** 2)),
    "inv": lambda a: cubes(np.linalg.inv(a)),
    "det": np.linalg.det,
    "slogdet": lambda a: np.linalg.slogdet(a)[1],
    "cholesky": lambda a: cubes(np.linalg.cholesky(spd(a))),
    "qr": lambda a: cubes(*np.linalg.qr(a)),
    "svd": lambda a: cubes(*(x ** 2 for x in np.linalg.svd(a, full_matrices=False))),
    "eigh": lambda a: cubes(*(x ** 2 for x in np.linalg.eigh(a + a.T))),
    "eigvalsh": lambda a: cubes(np.linalg.eigvalsh(a + a.T, "U")),
    "norm2": lambda a: np.linalg.norm(a, 2),
    "nuclear": lambda a: np.linalg.norm(a, "nuc"),
    "pinv": lambda a: cubes(np.linalg.pinv(a)),
    "lstsq": lambda a: cubes(*np.linalg.lstsq(a, a[:, :1] ** 2 + 1)[:2]),
    "triangular": lambda a: cubes(sla.solve_triangular(a, a[:, :1] + 1, lower=True),
                                  sla.solve_triangular(a, a[0] + 1, trans=1)),
    "unit": lambda a: cubes(sla.solve_triangular(a, a[:, :1], unit_diagonal=True, trans=1, lower=True)),
    "expm": lambda a: cubes(sla.expm(a / 2)),
}
RECTANGULAR = ("qr", "svd", "norm2", "nuclear", "pinv", "lstsq")


def differences(f, x, step=1e-6):
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        h = np.zeros_like(x)
        h[at] = step
        out[at] = (f(x + h) - f(x - h)) / (2 * step)
    return out


def assert_close(got, want, tolerance):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(np.abs(want).max(), 1))


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_differences(name):
    """Compiled, and of the gradient again along one direction; each row of a batch alike."""
    f = LOSSES[name]
    gradient = compiled(lw.grad(f))
    for shape in ((3, 3), *(((4, 2), (2, 4)) if name in RECTANGULAR else ())):
        x, d = draw(shape), draw(shape, seed=7)
        assert_close(gradient(x), differences(f, x), 1e-6)
        second = compiled(lambda x, d: lw.jvp(lw.grad(f), (x,), (d,))[1])(x, d)
        assert_close(second, (gradient(x + 1e-6 * d) - gradient(x - 1e-6 * d)) / 2e-6, 1e-6)
    rows = np.stack([draw((3, 3), seed=k) for k in range(3)])
    assert_close(lw.jit(lw.vmap(lw.grad(f)))(rows), np.stack([gradient(x) for x in rows]), 1e-9)


def test_derivatives_of_symmetric_factorisations_are_symmetric():
    a = spd(draw((3, 3)))
    for f in (lambda a: cubes(np.linalg.cholesky(a)), lambda a: cubes(*(x ** 2 for x in np.linalg.eigh(a)))):
        g = lw.grad(f)(a)
        np.testing.assert_allclose(g, g.T, rtol=1e-10)


def test_columns_of_a_batch_share_the_factorisation():
    """The right sides of one matrix are more columns of it: one library call for all."""
    a, b = draw((3, 3)), draw((5, 3, 2))
    f = lw.jit(lw.vmap(np.linalg.solve, in_axes=(None, 0)))
    np.testing.assert_allclose(f(a, b), np.linalg.solve(a, b), rtol=1e-11)


def test_null_spaces_have_no_derivative():
    for f in (lambda a: np.linalg.svd(a)[0].sum(), lambda a: np.linalg.qr(a, "complete")[0].sum()):
        with pytest.raises(lw.GradientError, match=r"null space|complete"):
            lw.grad(f)(draw((4, 2)))


# ---- errors ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("f, x, message", [
    (lambda a: np.linalg.solve(a, a), np.ones((2, 2)), "Singular matrix"),
    (np.linalg.inv, np.zeros((3, 2, 2)), "Singular matrix"),
    (np.linalg.cholesky, -np.eye(3), "Matrix is not positive definite"),
    (np.linalg.svd, np.full((2, 2), np.nan), "SVD did not converge"),
], ids=["solve", "inv", "cholesky", "svd"])
def test_failures_are_numpys_with_the_line(f, x, message):
    for g in (f, lw.jit(f)):
        with pytest.raises(np.linalg.LinAlgError, match=message):
            g(x)
    with pytest.raises(np.linalg.LinAlgError, match=r"test_linalg\.py:\d+"):
        lw.jit(lambda x: f(x))(x)
    again = lw.jit(f)
    again(np.eye(2) + np.zeros((*x.shape[:-2], 1, 1)) if x.shape[-1] == 2 else np.eye(3))


def test_a_failure_in_a_loop_is_raised():
    def f(a):
        return lw.lax.fori_loop(0, 3, lambda i, x: np.linalg.solve(x - 1, x), a)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        lw.jit(f)(np.ones((2, 2)))


def test_complex_systems():
    rng = np.random.default_rng(5)

    def drawn(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)
    solve, inv = lw.jit(np.linalg.solve), lw.jit(np.linalg.inv)
    for n in (3, 5, 1, 0):
        a, b = drawn(n, n), drawn(n, 2)
        np.testing.assert_allclose(solve(a, b), np.linalg.solve(a, b), rtol=1e-12)
        np.testing.assert_allclose(inv(a), np.linalg.inv(a), rtol=1e-12)
    assert solve.compiles == inv.compiles == 1
    a, b = drawn(2, 3, 3), rng.normal(size=3)
    np.testing.assert_allclose(lw.vmap(np.linalg.solve, (0, None))(a, b), np.linalg.solve(a, b), rtol=1e-12)
    np.testing.assert_allclose(lw.jit(np.linalg.solve)(a[0].real, a[1]), np.linalg.solve(a[0].real, a[1]), rtol=1e-12)
    assert solve(a[0].astype("c8"), np.ones((3, 2), "f4")).dtype == np.complex64
    np.testing.assert_allclose(lw.jit(sla.expm)(a[0]), scipy.linalg.expm(a[0]), rtol=1e-12)

    def size(a):
        return np.abs(np.linalg.solve(a, b)).sum() + np.abs(np.linalg.inv(a)).sum()
    h, direction = 1e-6, drawn(3, 3)
    for gradient in (lw.grad(size), lw.jit(lw.grad(size))):
        slope = np.sum(gradient(a[0]) * direction).real
        np.testing.assert_allclose(slope, (size(a[0] + h * direction) - size(a[0] - h * direction)) / (2 * h), rtol=1e-6)
    second = lw.jit(lw.jacfwd(lw.grad(lambda t: size(a[0] + t * direction))))(0.3)
    first = [lw.grad(lambda t: size(a[0] + t * direction))(0.3 + s * h) for s in (1, -1)]
    np.testing.assert_allclose(second, (first[0] - first[1]) / (2 * h), rtol=1e-5)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        lw.jit(np.linalg.inv)(np.ones((2, 2), complex))


@pytest.mark.parametrize("f, x, error, message", [
    (np.linalg.inv, np.ones((2, 3)), np.linalg.LinAlgError, "must be square"),
    (np.linalg.inv, np.ones(3), np.linalg.LinAlgError, "two-dimensional"),
    (lambda a: np.linalg.solve(a, np.ones(2)), np.eye(3), ValueError, "as many rows"),
    (lambda a: np.linalg.lstsq(a, np.ones(2))[0], np.eye(3), np.linalg.LinAlgError, "as many rows"),
    *[(lambda a, n=n: np.linalg.matrix_power(a, n), np.ones((2, 3)), np.linalg.LinAlgError, "must be square")
      for n in (-1, 0, 1, 3)],
    (lambda a: np.linalg.matrix_power(a, 1), np.ones(3), np.linalg.LinAlgError, "two-dimensional"),
    (lambda a: np.linalg.cond(a), np.ones((0, 0)), np.linalg.LinAlgError, "not defined on empty arrays"),
    (lambda a: np.linalg.pinv(a, rcond=0.1, rtol=0.1), np.eye(2), ValueError, "both"),
    (lambda a: np.linalg.matrix_rank(a, tol=0.1, rtol=0.1), np.eye(2), ValueError, "both"),
    (np.linalg.inv, np.eye(2, dtype="f2"), TypeError, "float16"),
    (np.linalg.det, np.eye(2, dtype="c16"), TypeError, "complex128"),
    (lambda a: np.linalg.eigh(a, "X"), np.eye(2), ValueError, "UPLO"),
    (lambda a: np.linalg.qr(a, "raw"), np.eye(2), TypeError, "raw"),
    (lambda a: np.linalg.norm(a, 3), np.eye(2), ValueError, "Invalid norm order"),
    (lambda a: sla.solve_triangular(a, a, trans=5), np.eye(2), ValueError, "trans"),
    (lambda a: sla.solve(a, a, assume_a="x"), np.eye(2), ValueError, "assume_a"),
    (lambda a: sla.qr(a, mode="x"), np.eye(2), ValueError, "mode must be"),
    (lambda a: sla.eigh(a, a), np.eye(2), NotImplementedError, "generalised"),
    (lambda a: sla.block_diag(a[None]), np.eye(2), lw.ShapeError, "two axes"),
])
def test_what_does_not_fit_is_refused(f, x, error, message):
    with pytest.raises(error, match=message):
        lw.jit(f)(x)


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro"])
def test_singular_matrices_have_infinite_conditions(p):
    stack = np.stack([np.zeros((2, 2)), np.diag([0.0, 2.0]), np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])])
    with np.errstate(all="ignore"):
        wanted = np.stack([np.linalg.cond(a, p) for a in stack])
    np.testing.assert_allclose(lw.jit(lambda a: np.linalg.cond(a, p))(stack), wanted)


def test_the_library_is_found():
    assert lapack.available()


@pytest.mark.parametrize("suffix", ["f32", "f64"])
def test_libraries_with_narrow_integers_are_served(suffix):
    assert engine.assemble(lapack_text(suffix, 32), host_target())


def test_without_a_library_the_error_names_it(tmp_path):
    program = """if True:
        import numpy as np, loopwright as lw
        f = lambda a: np.linalg.solve(a, a)
        try:
            lw.jit(f)(np.eye(2))
        except lw.DTypeError as error:
            assert "solve needs a LAPACK library" in str(error) and "LOOPWRIGHT_BLAS" in str(error), error
        else:
            raise AssertionError
        assert np.array_equal(lw.vmap(f)(np.eye(2)[None]), np.eye(2)[None])
        print("refused")"""
    environment = {**os.environ, "LOOPWRIGHT_BLAS": "none", "LOOPWRIGHT_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert run.stdout == "refused\n", run.stderr


# ---- against JAX ----------------------------------------------------------------------------------
def test_gradients_are_jaxs():
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")
    with jax.enable_x64(True):
        x = draw((3, 3))
        for f in (lambda np, a: np.linalg.solve(a, a[0]).sum(), lambda np, a: np.linalg.det(a),
                  lambda np, a: (np.linalg.cholesky(a + a.T + 9 * np.eye(3))[:, 0] ** 3).sum(),
                  lambda np, a: (np.linalg.eigh(a + a.T)[1] ** 2)[0, 0], lambda np, a: (np.linalg.pinv(a) ** 3).sum()):
            want = jax.grad(lambda a, f=f: f(jax.numpy, a))(x)
            np.testing.assert_allclose(lw.jit(lw.grad(lambda a, f=f: f(lnp, a)))(x), want, rtol=1e-10, atol=1e-12)
