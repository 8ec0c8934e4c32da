"""Structured matrices and further factorisations by SciPy's names: values, batches, symbolic sizes, derivatives, errors."""
from functools import cache

import numpy as np
import pytest
import scipy.linalg

import loopwright as lw
import loopwright.scipy.linalg as sla


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@cache
def compiled(f):
    return lw.jit(f)


def agree(f, *args, want, tolerance=1e-12):
    """f at once and compiled gives what is wanted."""
    for call in (f, compiled(f)):
        got = call(*args)
        many = isinstance(want, tuple)
        for g, w in zip(got if many else (got,), want if many else (want,), strict=True):
            assert np.shape(g) == np.shape(w)
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def slope_is_right(f, *xs, tolerance=1e-6):
    """grad and jvp of a number made of f agree with differences, in one direction."""
    weights = [draw(*np.shape(y), seed=7) for y in f(*xs)]

    def number(*xs):
        return sum(np.sum(w * y) for w, y in zip(weights, f(*xs), strict=True))

    direction = [draw(*x.shape, seed=k + 3) for k, x in enumerate(xs)]
    h = 1e-5
    want = (number(*[x + h * d for x, d in zip(xs, direction, strict=True)])
            - number(*[x - h * d for x, d in zip(xs, direction, strict=True)])) / (2 * h)
    slopes = lw.grad(number, argnums=tuple(range(len(xs))))(*xs)
    got = sum(np.sum(g * d) for g, d in zip(slopes, direction, strict=True))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(lw.jvp(number, tuple(xs), tuple(direction))[1], want, rtol=tolerance, atol=tolerance)


# ---- structured matrices ----------------------------------------------------------------------------
OF_VECTORS = {  # name: sizes of the vectors
    "toeplitz": ((4,), (4, 3), (1, 5), (3, 1)),
    "hankel": ((4,), (4, 3), (1, 5), (3, 1)),
    "circulant": ((5,), (1,)),
    "leslie": ((4, 3), (2, 1)),
    "companion": ((2,), (5,)),
    "fiedler": ((4,), (1,)),
    "fiedler_companion": ((2,), (3,), (4,), (5,), (6,), (9,)),
}


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
@pytest.mark.parametrize("name", OF_VECTORS)
def test_matrices_of_vectors(name):
    ours, theirs = getattr(sla, name), getattr(scipy.linalg, name)
    for sizes in OF_VECTORS[name]:
        vectors = [draw(n, seed=k) for k, n in enumerate(sizes)]
        agree(ours, *vectors, want=theirs(*vectors))
        slope_is_right(lambda *xs: (ours(*xs),), *vectors)
        batches = [draw(2, 3, n, seed=k) for k, n in enumerate(sizes)]
        want = np.stack([theirs(*[b[i, j] for b in batches]) for i in range(2) for j in range(3)])
        want = want.reshape(2, 3, *want.shape[1:])
        agree(ours, *batches, want=want)
        np.testing.assert_allclose(lw.vmap(lw.vmap(ours), in_axes=1, out_axes=1)(*batches), want, rtol=1e-12, atol=1e-12)
        if len(batches) == 2:
            mixed = ours(batches[0][0], batches[1][:, :1])
            np.testing.assert_allclose(mixed[1, 2], theirs(batches[0][0, 2], batches[1][1, 0]))


@pytest.mark.parametrize("name", OF_VECTORS)
def test_matrices_of_vectors_keep_dtypes(name):
    for dtype in (np.int32, np.float32, np.complex64):
        vectors = [np.arange(1, n + 1).astype(dtype) for n in OF_VECTORS[name][-1]]
        got = getattr(sla, name)(*vectors)
        kept = np.float64 if "companion" in name and dtype == np.int32 else np.float32 if name == "fiedler" else dtype
        assert got.dtype == (dtype if name == "fiedler" and dtype == np.int32 else kept)
        np.testing.assert_allclose(got, getattr(scipy.linalg, name)(*vectors), rtol=1e-5)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution_matrices(mode):
    for m in range(1, 6):
        for n in range(1, 6):
            a, v = draw(m), draw(n, seed=1)
            np.testing.assert_array_equal(sla.convolution_matrix(a, n, mode), scipy.linalg.convolution_matrix(a, n, mode))
            np.testing.assert_allclose(sla.convolution_matrix(a, n, mode) @ v, np.convolve(a, v, mode), atol=1e-12)
    slope_is_right(lambda a: (sla.convolution_matrix(a, 3, mode),), draw(2, 4))
    both = lw.jit(lambda a, v: sla.convolution_matrix(a, v.shape[0], mode) @ v)
    for m, n in ((5, 3), (6, 4), (9, 2)):
        a, v = draw(m), draw(n, seed=1)
        np.testing.assert_allclose(both(a, v), np.convolve(a, v, mode), atol=1e-12)
    assert both.compiles == 1


OF_AN_ORDER = {
    "hilbert": (sla.hilbert, scipy.linalg.hilbert),
    "invhilbert": (sla.invhilbert, scipy.linalg.invhilbert),
    "helmert": (sla.helmert, scipy.linalg.helmert),
    "helmert_full": (lambda n: sla.helmert(n, full=True), lambda n: scipy.linalg.helmert(n, full=True)),
    "dft": (sla.dft, scipy.linalg.dft),
    "dft_unitary": (lambda n: sla.dft(n, "sqrtn"), lambda n: scipy.linalg.dft(n, "sqrtn")),
    "dft_mean": (lambda n: sla.dft(n, "n"), lambda n: scipy.linalg.dft(n, "n")),
    **{f"{name}_{kind}": (lambda n, name=name, kind=kind: getattr(sla, name)(n, kind),
                          lambda n, name=name, kind=kind: getattr(scipy.linalg, name)(n, kind, exact=False))
       for name in ("pascal", "invpascal") for kind in ("symmetric", "lower", "upper")},
}


@pytest.mark.parametrize("name", OF_AN_ORDER)
def test_matrices_of_an_order(name):
    ours, theirs = OF_AN_ORDER[name]
    by_size = lw.jit(lambda x: ours(x.shape[0]))
    for n in (2, 3, 8, 13, 1):
        want = theirs(n)
        np.testing.assert_allclose(ours(n), want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(by_size(np.zeros(n)), want, rtol=1e-12, atol=1e-12)


def test_whole_numbers_are_exact():
    for n in (5, 12, 20):
        for kind in ("symmetric", "lower", "upper"):
            np.testing.assert_array_equal(sla.pascal(n, kind), scipy.linalg.pascal(n, kind).astype(float))
            np.testing.assert_array_equal(sla.invpascal(n, kind), scipy.linalg.invpascal(n, kind).astype(float))
    np.testing.assert_array_equal(sla.invhilbert(10), scipy.linalg.invhilbert(10, exact=True).astype(float))


@pytest.mark.parametrize("n", [1, 2, 4, 32])
def test_hadamard(n):
    want = scipy.linalg.hadamard(n)
    np.testing.assert_array_equal(sla.hadamard(n), want)
    assert sla.hadamard(n).dtype == np.int64 and sla.hadamard(n, np.float32).dtype == np.float32


def test_empty_matrices():
    empty = np.zeros(0)
    for f in (sla.toeplitz, sla.hankel, sla.circulant, sla.fiedler):
        agree(f, empty, want=np.zeros((0, 0)))
    assert sla.toeplitz(empty, draw(3)).shape == (0, 3) and sla.hankel(draw(3), empty).shape == (3, 0)
    assert sla.fiedler_companion(np.ones(1)).shape == (0, 0)
    for f in (sla.hilbert, sla.invhilbert, sla.pascal, sla.invpascal, sla.dft):
        assert f(0).shape == (0, 0)


def test_one_compile_serves_all_sizes():
    for name, sizes in OF_VECTORS.items():
        f = lw.jit(getattr(sla, name))
        for n in (4, 6, 7):
            vectors = [draw(n - k, seed=k) for k in range(len(sizes[-1]))]
            np.testing.assert_allclose(f(*vectors), getattr(scipy.linalg, name)(*vectors), atol=1e-12)
        assert f.compiles == 1, name


def test_leading_zeros_give_infinities():
    for f in (sla.companion, sla.fiedler_companion):
        assert not np.isfinite(f(np.array([0.0, 1.0, 2.0]))).all()


@pytest.mark.parametrize("call, error, words", [
    (lambda: sla.hankel(1.0), lw.ShapeError, "hankel takes vectors"),
    (lambda: sla.hankel(np.ones(2), 1.0), lw.ShapeError, "hankel takes vectors"),
    (lambda: sla.convolution_matrix(1.0, 2), lw.ShapeError, "convolution_matrix takes vectors"),
    (lambda: sla.convolution_matrix(np.ones(2), 0), ValueError, "n must be a positive integer"),
    (lambda: sla.convolution_matrix(np.ones(0), 2), ValueError, "at least one element"),
    (lambda: sla.convolution_matrix(np.ones(2), 2, "half"), ValueError, "mode must be one of 'full', 'same', 'valid'"),
    (lambda: sla.leslie(np.ones(1), np.ones(0)), lw.ShapeError, "leslie takes f of at least two"),
    (lambda: sla.leslie(np.ones(3), np.ones(3)), lw.ShapeError, "s of one less"),
    (lambda: sla.companion(np.ones(1)), lw.ShapeError, "at least two coefficients"),
    (lambda: sla.fiedler_companion(np.ones(0)), lw.ShapeError, "at least one coefficient"),
    (lambda: sla.pascal(3, "left"), ValueError, "kind must be one of"),
    (lambda: sla.invpascal(3, "left"), ValueError, "kind must be one of"),
    (lambda: sla.helmert(0), ValueError, "n must be a positive integer, got 0"),
    (lambda: sla.hadamard(6), ValueError, "power of 2, got 6"),
    (lambda: sla.dft(3, "m"), ValueError, "scale must be one of"),
    (lambda: sla.dft(3, dtype=np.float32), lw.DTypeError, "dtype must be complex, got float32"),
])
def test_errors_of_structured_matrices(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert "test_special_matrices.py" in str(caught.value)


# ---- factorisations and equations -------------------------------------------------------------------
def stacked(f, *batches):
    """f of each element of batches with one axis."""
    found = [f(*elements) for elements in zip(*batches, strict=True)]
    return tuple(map(np.stack, zip(*found, strict=True))) if isinstance(found[0], tuple) else np.stack(found)


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_polar(shape, side):
    def f(a):
        return sla.polar(a, side)

    def theirs(a):
        return scipy.linalg.polar(a, side)

    stack = draw(2, *shape)
    agree(f, stack[0], want=theirs(stack[0]))
    for both in (f(stack), lw.vmap(f)(stack)):
        for g, w in zip(both, stacked(theirs, stack), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12)
    slope_is_right(f, stack[0])


def test_polar_is_smooth_where_singular_values_are_equal():
    slope_is_right(sla.polar, np.eye(3))
    slope_is_right(lambda a: (lw.grad(lambda a: np.sum(draw(3, 3) * sla.polar(a)[0]))(a),), np.eye(3), tolerance=1e-5)


def test_solve_sylvester():
    a, b, c = draw(2, 3, 3) + 4 * np.eye(3), draw(2, 4, 4, seed=1) + 4 * np.eye(4), draw(2, 3, 4, seed=2)
    want = stacked(scipy.linalg.solve_sylvester, a, b, c)
    agree(sla.solve_sylvester, a[0], b[0], c[0], want=want[0], tolerance=1e-10)
    np.testing.assert_allclose(sla.solve_sylvester(a, b, c), want, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(lw.vmap(sla.solve_sylvester)(a, b, c), want, rtol=1e-10, atol=1e-10)
    shared = stacked(lambda c: scipy.linalg.solve_sylvester(a[0], b[0], c), c)
    np.testing.assert_allclose(sla.solve_sylvester(a[0], b[0], c), shared, rtol=1e-10, atol=1e-10)
    slope_is_right(lambda a, b, c: (sla.solve_sylvester(a, b, c),), a[0], b[0], c[0])
    turned = a[0] + 1j * c[0][:, :3]
    x = lw.jit(sla.solve_sylvester)(turned, b[0], c[0])
    np.testing.assert_allclose(turned @ x + x @ b[0], c[0], rtol=1e-10, atol=1e-10)


def test_eigh_tridiagonal():
    d, e = draw(2, 5), draw(2, 4, seed=1)
    values, vectors = sla.eigh_tridiagonal(d, e)
    for k in range(2):
        want, theirs = scipy.linalg.eigh_tridiagonal(d[k], e[k])
        np.testing.assert_allclose(values[k], want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(np.abs(vectors[k]), np.abs(theirs), rtol=1e-10, atol=1e-10)

    def only(d, e):
        return sla.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 2))

    for n in (5, 4, 3):
        want = scipy.linalg.eigh_tridiagonal(d[0, :n], e[0, :n - 1], eigvals_only=True)[1:3]
        agree(only, d[0, :n], e[0, :n - 1], want=want)
    slope_is_right(lambda d, e: (only(d, e),), d[0], e[0])
    np.testing.assert_array_equal(sla.eigh_tridiagonal(np.ones(1), np.ones(0), eigvals_only=True), [1])


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_qr_multiply(shape):
    a, least = draw(*shape), min(shape)
    for mode, c in (("right", draw(2, shape[0])), ("left", draw(least, 2)), ("right", draw(shape[0])), ("left", draw(least))):
        got, r = sla.qr_multiply(a, c, mode)
        q, want = scipy.linalg.qr(a, mode="economic")
        signs = np.sign(np.diag(r)) * np.sign(np.diag(want))
        np.testing.assert_allclose(r, signs[:, None] * want, atol=1e-12)
        np.testing.assert_allclose(got, c @ (q * signs) if mode == "right" else (q * signs) @ c, atol=1e-12)
    slope_is_right(lambda a, c: sla.qr_multiply(a, c), a, draw(2, shape[0]))


@pytest.mark.parametrize("scale", [0.1, 9.0])
def test_expm_frechet(scale):
    a, e = scale * draw(2, 3, 3) / 3, draw(2, 3, 3, seed=1)
    want = stacked(scipy.linalg.expm_frechet, a, e)
    agree(sla.expm_frechet, a[0], e[0], want=tuple(w[0] for w in want), tolerance=1e-10)
    for g, w in zip(sla.expm_frechet(a, e), want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sla.expm_frechet(a, e, compute_expm=False), want[1], rtol=1e-10, atol=1e-10)


def test_expm_frechet_has_derivatives():
    slope_is_right(lambda a, e: (sla.expm_frechet(a, e, compute_expm=False),), draw(2, 2) / 3, draw(2, 2, seed=1))


@pytest.mark.parametrize("call, error, words", [
    (lambda: sla.polar(np.eye(2), "up"), ValueError, "side must be 'right' or 'left'"),
    (lambda: sla.polar(np.eye(2), method="qr"), ValueError, "method 'qdwh' or 'svd'"),
    (lambda: sla.solve_sylvester(np.eye(2), np.eye(3), np.eye(2)), lw.ShapeError, "orders 2 and 2"),
    (lambda: sla.eigh_tridiagonal(np.ones(3), np.ones(3)), lw.ShapeError, "one element less"),
    (lambda: sla.eigh_tridiagonal(np.ones(3), np.ones(2), select="v"), ValueError, "select must be 'a', or 'i'"),
    (lambda: sla.qr_multiply(np.eye(2), np.eye(2), "up"), ValueError, "mode must be 'right' or 'left'"),
    (lambda: sla.qr_multiply(np.eye(2), np.eye(2), pivoting=True), NotImplementedError, "pivoting is not supported"),
    (lambda: sla.expm_frechet(np.eye(2), np.eye(3)), lw.ShapeError, "matrices of one shape"),
])
def test_errors_of_factorisations(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert "test_special_matrices.py" in str(caught.value)


def test_equations_without_one_solution_raise():
    with pytest.raises(np.linalg.LinAlgError):
        sla.solve_sylvester(np.eye(2), -np.eye(2), np.ones((2, 2)))
