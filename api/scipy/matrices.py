"""Matrices of a given structure by SciPy's and JAX's names: each element is a formula of its row and column.

Guarantees: plain arguments give plain arrays, traced ones traced ones; axes before the last are a batch; derivatives to any
order. Sizes may be symbolic. Matrices of whole numbers are exact as long as their elements stay below 2^52.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from loopwright.arrays import Array, inexact, quiet, xp
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX

__all__ = [
    "circulant", "companion", "convolution_matrix", "dft", "fiedler", "fiedler_companion", "hadamard", "hankel", "helmert",
    "hilbert", "invhilbert", "invpascal", "leslie", "pascal", "toeplitz",
]


def _grid(rows: Any, columns: Any) -> tuple[Array, Array]:
    """The row numbers i64[rows, 1] and the column numbers i64[1, columns]."""
    return xp.arange(rows)[:, None], xp.arange(columns)[None, :]


def _vectors(name: str, x: Any) -> Array:
    """x with at least one axis: vectors along the last."""
    x = xp.asarray(x)
    if x.ndim == 0:
        raise ShapeError(f"{user_source()}: {name} takes vectors, got a scalar. Give it an axis: x[None].")
    return x


def _order(name: str, n: Any) -> Any:
    """The order of a matrix, at least 1."""
    if n < 1:
        raise ValueError(f"{user_source()}: {name}: n must be a positive integer, got {n}")
    return n


def _choice(name: str, what: str, got: Any, known: tuple[Any, ...]) -> None:
    if got not in known:
        raise ValueError(f"{user_source()}: {name}: {what} must be one of {', '.join(map(repr, known))}, got {got!r}")


# ---- constant along diagonals -----------------------------------------------------------------------
def toeplitz(c: Any, r: Any = None) -> Array:
    """The matrices [..., m, n] of constant diagonals with first columns c[..., m] and first rows r[..., n] (r[..., 0] is not
    read), conj(c) if not given.

    >>> toeplitz(np.array([1, 2, 3]), np.array([0, 4]))
    array([[1, 4],
           [2, 1],
           [3, 2]])
    """
    c = xp.atleast_1d(c)
    r = xp.conjugate(c) if r is None else xp.atleast_1d(r)
    i, j = _grid(c.shape[-1], r.shape[-1])
    return xp.where(j <= i, c[..., xp.maximum(i - j, 0)], r[..., xp.maximum(j - i, 0)])


def hankel(c: Any, r: Any = None) -> Array:
    """The matrices [..., m, n] of constant antidiagonals with first columns c[..., m] and last rows r[..., n] (r[..., 0] is not
    read), zeros if not given. ShapeError for scalars.

    >>> hankel(np.array([1, 2, 3]), np.array([0, 4]))
    array([[1, 2],
           [2, 3],
           [3, 4]])
    """
    c = _vectors("hankel", c)
    r = xp.zeros_like(c) if r is None else _vectors("hankel", r)
    i, j = _grid(c.shape[-1], r.shape[-1])
    last = c.shape[-1] - 1
    return xp.where(i + j <= last, c[..., xp.minimum(i + j, last)], r[..., xp.maximum(i + j - last, 0)])


def circulant(c: Any) -> Array:
    """The matrices [..., n, n] whose columns are c[..., n] turned down by one place after another.

    >>> circulant(np.array([1, 2, 3]))
    array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]])
    """
    c = xp.atleast_1d(c)
    i, j = _grid(c.shape[-1], c.shape[-1])
    return c[..., xp.where(j <= i, i - j, i - j + c.shape[-1])]


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Array:
    """The matrices [..., k, n] with A @ v = np.convolve(a, v, mode) for a[..., m] and v of n elements: k is m + n - 1 ("full"),
    max(m, n) ("same") or max(m, n) - min(m, n) + 1 ("valid"). ShapeError for scalars, ValueError for empty vectors or n < 1.

    >>> convolution_matrix(np.array([-1, 4, -2]), 4, mode="same")
    array([[ 4, -1,  0,  0],
           [-2,  4, -1,  0],
           [ 0, -2,  4, -1],
           [ 0,  0, -2,  4]])
    """
    a, n = _vectors("convolution_matrix", a), _order("convolution_matrix", n)
    _choice("convolution_matrix", "mode", mode, ("full", "same", "valid"))
    m = a.shape[-1]
    if m < 1:
        raise ValueError(f"{user_source()}: convolution_matrix: a must have at least one element, got shape {a.shape}")
    shorter, longer = (m, n) if m <= n else (n, m)
    rows, first = {"full": (m + n - 1, 0), "same": (longer, (shorter - 1) // 2),
                   "valid": (longer - shorter + 1, shorter - 1)}[mode]
    i, j = _grid(rows, n)
    at = i + first - j
    return xp.where((at >= 0) & (at < m), a[..., xp.clip(at, 0, m - 1)], xp.zeros((), a.dtype))


# ---- of polynomials and populations -----------------------------------------------------------------
def leslie(f: Any, s: Any) -> Array:
    """The matrices [..., n, n] with first rows f[..., n], n >= 2, and s[..., n - 1] below the diagonal. ShapeError where sizes
    do not fit.

    >>> leslie(np.array([1, 2, 3]), np.array([4, 5]))
    array([[1, 2, 3],
           [4, 0, 0],
           [0, 5, 0]])
    """
    f, s = xp.atleast_1d(f), xp.atleast_1d(s)
    n = f.shape[-1]
    if n < 2 or s.shape[-1] != n - 1:
        raise ShapeError(f"{user_source()}: leslie takes f of at least two elements and s of one less, got the shapes "
                         f"{f.shape} and {s.shape}.")
    i, j = _grid(n, n)
    below = xp.where(i == j + 1, s[..., xp.minimum(j, n - 2)], xp.zeros((), s.dtype))
    return xp.where(i == 0, f[..., None, :], below)


@quiet
def companion(a: Any) -> Array:
    """The matrices [..., n - 1, n - 1] whose eigenvalues are the roots of the polynomials a[..., n], n >= 2, highest power
    first: first rows -a[1:] / a[0], ones below the diagonal. Infinities or NaN where a[0] is 0; ShapeError for fewer than two
    elements.

    >>> companion(np.array([1, -10, 31, -30]))
    array([[ 10., -31.,  30.],
           [  1.,   0.,   0.],
           [  0.,   1.,   0.]])
    """
    a = xp.atleast_1d(inexact(a))
    if a.shape[-1] < 2:
        raise ShapeError(f"{user_source()}: companion takes polynomials of at least two coefficients, got shape {a.shape}.")
    i, j = _grid(a.shape[-1] - 1, a.shape[-1] - 1)
    return xp.where(i == 0, (-a[..., 1:] / a[..., :1])[..., None, :], (i == j + 1).astype(a.dtype))


@quiet
def fiedler_companion(a: Any) -> Array:
    """The same with elements on five diagonals alone (Fiedler 2003). Empty for one coefficient; ShapeError for none.

    >>> fiedler_companion(np.array([1, -16, 86, -176, 105]))
    array([[  16.,  -86.,    1.,    0.],
           [   1.,    0.,    0.,    0.],
           [   0.,  176.,    0., -105.],
           [   0.,    1.,    0.,    0.]])
    """
    a = xp.atleast_1d(inexact(a))
    if a.shape[-1] < 1:
        raise ShapeError(f"{user_source()}: fiedler_companion takes polynomials of at least one coefficient, got shape "
                         f"{a.shape}.")
    n = a.shape[-1] - 1
    i, j = _grid(n, n)
    a, is_even = -a / a[..., :1], i % 2 == 0
    ones = (is_even & (j == i + 2)) | (~is_even & (j == xp.maximum(i - 2, 0)))
    rest = xp.where(is_even & (j == i + 1), a[..., xp.minimum(i + 2, n)], ones.astype(a.dtype))
    return xp.where(is_even & (j == xp.maximum(i - 1, 0)), a[..., i + 1], rest)


def fiedler(a: Any) -> Array:
    """The symmetric matrices [..., n, n] of the distances |a[i] - a[j]| of a[..., n].

    >>> fiedler(np.array([1, 4, 12]))
    array([[ 0,  3, 11],
           [ 3,  0,  8],
           [11,  8,  0]])
    """
    a = xp.atleast_1d(a)
    return xp.abs(a[..., :, None] - a[..., None, :])


# ---- of an order alone --------------------------------------------------------------------------------
def hilbert(n: int) -> Array:
    """The matrix f64[n, n] with elements 1 / (i + j + 1).

    >>> hilbert(2)
    array([[1.        , 0.5       ],
           [0.5       , 0.33333333]])
    """
    i, j = _grid(n, n)
    return 1 / (i + j + 1)


def invhilbert(n: int) -> Array:
    """The inverse of hilbert(n), of whole numbers, f64[n, n].

    >>> invhilbert(2)
    array([[ 4., -6.],
           [-6., 12.]])
    """
    k = xp.arange(n) * 1.0
    # (n + k)! / (k!^2 (n - k - 1)!), alternating, from each to the next
    factors = xp.where(k == 0, n, (k * k - n * n) / xp.maximum(k * k, 1))
    terms = xp.rint(xp.cumprod(factors))
    i, j = _grid(n, n)
    return terms[:, None] * terms / (i + j + 1)


def _binomials(n: Any) -> Array:
    """i over j, f64[n, n]: a product from each to the next in a row, whole numbers again."""
    i, j = _grid(n, n)
    return xp.rint(xp.cumprod(xp.where(j == 0, 1.0, xp.maximum(i - j + 1, 0) / xp.maximum(j, 1)), axis=1))


def pascal(n: int, kind: str | None = None) -> Array:
    """The matrix f64[n, n] of binomial coefficients i over j ("lower"), its transpose ("upper"), or the lower times the upper,
    i + j over i ("symmetric", the default).

    >>> pascal(3)
    array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]])
    """
    return _pascal("pascal", _binomials(n), kind)


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of pascal(n, kind), f64[n, n].

    >>> invpascal(3)
    array([[ 3., -3.,  1.],
           [-3.,  5., -2.],
           [ 1., -2.,  1.]])
    """
    i, j = _grid(n, n)
    return _pascal("invpascal", xp.where((i - j) % 2 == 0, 1.0, -1.0) * _binomials(n), kind)


def _pascal(name: str, lower: Array, kind: str | None) -> Array:
    _choice(name, "kind", kind, (None, "symmetric", "lower", "upper"))
    if kind in ("lower", "upper"):
        return lower if kind == "lower" else lower.T
    return lower @ lower.T if name == "pascal" else lower.T @ lower


def helmert(n: int, full: bool = False) -> Array:
    """The contrasts f64[n - 1, n] with orthonormal rows: row k compares element k + 1 with the mean of those before it. full: a
    row of 1 / sqrt(n) before them. ValueError for n < 1.

    >>> helmert(2, full=True).round(3)
    array([[ 0.707,  0.707],
           [ 0.707, -0.707]])
    """
    i, j = _grid(_order("helmert", n), n)
    numbers = xp.where((i == 0) | (j < i), 1, xp.where(i == j, -i, 0))
    rows = numbers / xp.sqrt(xp.where(i == 0, n, i * (i + 1)))
    return rows if full else rows[1:]


def hadamard(n: int, dtype: Any = int) -> Array:
    """Sylvester's matrix [n, n] of 1 and -1 with orthogonal rows, for n a power of 2: the sign tells whether row and column
    number have an even number of bits in common. ValueError for another n.

    >>> hadamard(4)
    array([[ 1,  1,  1,  1],
           [ 1, -1,  1, -1],
           [ 1,  1, -1, -1],
           [ 1, -1, -1,  1]])
    """
    n = operator.index(n)
    if n < 1 or n & (n - 1):
        raise ValueError(f"{user_source()}: hadamard: n must be a positive power of 2, got {n}")
    i, j = _grid(n, n)
    bits = i & j
    for half in (32, 16, 8, 4, 2, 1):
        bits = bits ^ (bits >> half)
    return (1 - 2 * (bits & 1)).astype(dtype)


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The matrix c128[n, n] of the discrete Fourier transform, exp(-2 pi i jk / n). scale: over sqrt(n) ("sqrtn", unitary) or n
    ("n"). dtype: another complex dtype. DTypeError for one that is not complex.

    >>> dft(2).real.round(3)
    array([[ 1.,  1.],
           [ 1., -1.]])
    """
    _choice("dft", "scale", scale, (None, "sqrtn", "n"))
    wanted = np.dtype(np.complex128 if dtype is None else dtype)
    if wanted not in COMPLEX:
        raise DTypeError(f"{user_source()}: dft: dtype must be complex, got {wanted}.")
    i, j = _grid(n, n)
    waves = xp.exp(-2j * np.pi * (i * j % n / n))
    if scale is not None:
        waves = waves / (n if scale == "n" else xp.sqrt(n))
    return waves.astype(wanted)
