"""SciPy's linear algebra by JAX's names, for what NumPy does not have: `import loopwright.scipy.linalg as sla`.

Guarantees: plain arrays give plain arrays, traced ones traced ones; axes before the last two are a batch; derivatives to
any order. LinAlgError where a system is singular or a matrix not positive definite, but solve_triangular gives infinities.
overwrite_a, overwrite_b, check_finite and lapack_driver are SciPy's and change nothing: nothing is overwritten or checked.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright import numpy as lnp
from loopwright.arrays import inexact
from loopwright.control_flow import fori_loop
from loopwright.custom import custom_jvp
from loopwright.implicit import custom_linear_solve
from loopwright.ir.errors import ShapeError
from loopwright.ir.ops.linalg import solve_triangular as substitute
from loopwright.ir.source import user_source
from loopwright.scipy.matrices import (
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from loopwright.tracer.functions_linalg import solve_triangular as traced_solve_triangular
from loopwright.tracer.promotion import has_tracer
from loopwright.tracer.tables import xp
from loopwright.transforms import jvp

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det", "dft", "eigh",
    "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert",
    "inv", "invhilbert", "invpascal", "leslie", "pascal", "polar", "qr", "qr_multiply", "solve", "solve_sylvester",
    "solve_triangular", "svd", "toeplitz",
]

# Coefficients of the Pade approximant of order 13, and the norm up to which it is exact to rounding (Higham 2005).
_PADE = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
         670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0)
_NORM = 5.371920351148152
_MOST_SQUARINGS = 1100  # beyond every finite norm


def solve_triangular(a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, *,
                     overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The x with a x = b for one triangle of a: a f[..., n, n], b f[..., n] or f[..., n, k].

    trans: 0 or "N"; 1, 2, "T" or "C" for the transpose of a. A zero on the diagonal gives infinities or NaN.

    >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0]), lower=True)
    array([1., 2.])
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}")
    flags = {"lower": bool(lower), "transposed": trans not in (0, "N"), "unit": bool(unit_diagonal)}
    if has_tracer(a) or has_tracer(b):
        return traced_solve_triangular(a, b, **flags)
    a, b = np.asarray(a), np.asarray(b)
    dtype = np.result_type(a, b, *(() if np.result_type(a, b).kind == "f" else (np.float64,)))
    is_vector = b.ndim == 1
    sides = b[:, None] if is_vector else b
    front = np.broadcast_shapes(a.shape[:-2], sides.shape[:-2])
    a, sides = (np.broadcast_to(x.astype(dtype), (*front, *x.shape[-2:])) for x in (a, sides))
    with np.errstate(all="ignore"):
        x = substitute(a, sides, **flags)
    return x[:, 0] if is_vector else x


def cholesky(a: Any, lower: bool = False, *, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The triangular factor of a symmetric positive definite f[..., n, n]: U^T U = a, or L L^T = a if lower.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 1.],
           [0., 2.]])
    """
    factor = xp.linalg.cholesky(a if lower else xp.swapaxes(a, -1, -2))
    return factor if lower else xp.swapaxes(factor, -1, -2)


def cho_factor(a: Any, lower: bool = False, *, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """What cho_solve takes: the factor, and whether it is the lower one."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, *, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The x with a x = b, from cho_factor(a).

    >>> cho_solve(cho_factor(np.array([[4.0, 0.0], [0.0, 9.0]])), np.array([8.0, 9.0]))
    array([2., 1.])
    """
    factor, lower = c_and_lower
    half = solve_triangular(factor, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(factor, half, trans=1 if lower else 0, lower=lower)


def solve(a: Any, b: Any, lower: bool = False, assume_a: str = "gen", *, overwrite_a: bool = False, overwrite_b: bool = False,
          check_finite: bool = True) -> Any:
    """The x with a x = b. assume_a: "gen", "sym" or "her", or "pos" for a positive definite one, read from one triangle."""
    if assume_a == "pos":
        return cho_solve(cho_factor(a, lower), b)
    if assume_a not in ("gen", "sym", "her"):
        raise ValueError(f"assume_a must be 'gen', 'sym', 'her' or 'pos', got {assume_a!r}")
    return xp.linalg.solve(a, b)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The inverse. LinAlgError where a is singular."""
    return xp.linalg.inv(a)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant."""
    return xp.linalg.det(a)


def eigh(a: Any, b: None = None, lower: bool = True, eigvals_only: bool = False, *, overwrite_a: bool = False,
         check_finite: bool = True) -> Any:
    """The eigenvalues of a symmetric or Hermitian c[..., n, n], ascending, and unless eigvals_only its eigenvectors as columns.

    lower: which triangle is read. Generalised problems (b) are not supported.
    """
    if b is not None:
        raise NotImplementedError(f"{user_source()}: eigh: generalised problems (b=) are not supported. Solve with the "
                                  f"Cholesky factor of b.")
    side = "L" if lower else "U"
    return xp.linalg.eigvalsh(a, side) if eigvals_only else tuple(xp.linalg.eigh(a, side))


def eigh_tridiagonal(d: Any, e: Any, *, eigvals_only: bool = False, select: str = "a",
                     select_range: tuple[int, int] | None = None, tol: float | None = None, key: Any = None) -> Any:
    """The eigenvalues, ascending, and unless eigvals_only the eigenvectors of the symmetric matrices with diagonals d f[..., n]
    and e f[..., n - 1] beside them, computed as dense ones: of the order of n^3 flops. select: all ("a"), or those of
    select_range, first to last ("i"). tol and key change nothing.

    >>> eigh_tridiagonal(np.array([2.0, 2.0]), np.array([1.0]), eigvals_only=True)
    array([1., 3.])
    """
    if select not in ("a", "i") or (select == "i" and select_range is None):
        raise ValueError(f"{user_source()}: eigh_tridiagonal: select must be 'a', or 'i' with select_range, got {select!r}")
    d, e = inexact(d, e)
    n = d.shape[-1]
    if e.shape[-1] != n - 1:
        raise ShapeError(f"{user_source()}: eigh_tridiagonal: e must have one element less than d, got {d.shape} and "
                         f"{e.shape}.")
    i, j = lnp.arange(n)[:, None], lnp.arange(n)[None, :]
    beside = lnp.pad(e, [(0, 0)] * (e.ndim - 1) + [(0, 1)])[..., xp.minimum(i, j)]
    whole = xp.where(i == j, d[..., None, :], xp.where(abs(i - j) == 1, beside, xp.zeros((), d.dtype)))
    first, last = (0, n - 1) if select_range is None or select == "a" else select_range
    if eigvals_only:
        return xp.linalg.eigvalsh(whole)[..., first:last + 1]
    values, vectors = xp.linalg.eigh(whole)
    return values[..., first:last + 1], vectors[..., first:last + 1]


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, *, overwrite_a: bool = False, check_finite: bool = True,
        lapack_driver: str = "gesdd") -> Any:
    """u, s and v^H with u diag(s) v^H = a; without compute_uv only s, descending."""
    found = xp.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(found) if compute_uv else found


def qr(a: Any, mode: str = "full", *, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """q and r with q r = a, of all rows ("full"; only r for "r"), or of min(rows, columns) ("economic").

    >>> qr(np.array([[3.0], [4.0]]), mode="economic")[1].shape
    (1, 1)
    """
    if mode not in ("full", "economic", "r"):
        raise ValueError(f"{user_source()}: mode must be 'full', 'economic' or 'r', got {mode!r}")
    q, r = xp.linalg.qr(a, "reduced" if mode == "economic" else "complete")
    return (r,) if mode == "r" else (q, r)


def qr_multiply(a: Any, c: Any, mode: str = "right", pivoting: bool = False, conjugate: bool = False,
                overwrite_a: bool = False, overwrite_c: bool = False) -> tuple[Any, Any]:
    """c q ("right") or q c ("left"), and r, for q and r of qr(a, mode="economic"), c a matrix or a vector. a is real, so that
    conjugate changes nothing; pivoting is not supported.

    >>> qr_multiply(np.array([[3.0], [4.0]]), np.array([3.0, 4.0]))[0].round(12)
    array([-5.])
    """
    if pivoting:
        raise NotImplementedError(f"{user_source()}: qr_multiply: pivoting is not supported.")
    if mode not in ("right", "left"):
        raise ValueError(f"{user_source()}: qr_multiply: mode must be 'right' or 'left', got {mode!r}")
    q, r = xp.linalg.qr(a)
    return (c @ q if mode == "right" else q @ c), r


def _symmetric_sylvester(p: Any, c: Any) -> Any:
    """The x with p x + x p = c for a symmetric positive definite p. Derivatives are those of a linear system: eigenvectors have
    none where eigenvalues are equal."""
    def by_eigenvectors(apply: Any, c: Any) -> Any:
        values, vectors = xp.linalg.eigh(p)
        turned = xp.swapaxes(vectors, -1, -2)
        return vectors @ (turned @ c @ vectors / (values[..., :, None] + values[..., None, :])) @ turned

    return custom_linear_solve(lambda x: p @ x + x @ p, c, by_eigenvectors, symmetric=True)


@custom_jvp
def _tall_polar(a: Any) -> tuple[Any, Any]:
    """u with orthonormal columns and a symmetric p, u p = a, for no fewer rows than columns."""
    u, s, vt = xp.linalg.svd(a, full_matrices=False)
    return u @ vt, (xp.swapaxes(vt, -1, -2) * s[..., None, :]) @ vt


@_tall_polar.defjvp
def _tall_polar_jvp(primals: Any, tangents: Any) -> Any:
    """u turns by w = u^T du, of which p w + w p = u^T da - da^T u, and leaves its columns' space by (1 - u u^T) da p^-1."""
    (a,), (da,) = primals, tangents
    u, p = _tall_polar(a)
    inner = xp.swapaxes(u, -1, -2) @ da
    turn = _symmetric_sylvester(p, inner - xp.swapaxes(inner, -1, -2))
    leaving = xp.swapaxes(xp.linalg.solve(p, xp.swapaxes(da - u @ inner, -1, -2)), -1, -2)
    return (u, p), (u @ turn + leaving, inner - turn @ p)


def polar(a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
          max_iterations: int | None = None) -> tuple[Any, Any]:
    """u and p with u p = a ("right") or p u = a ("left") for real a[..., m, n]: u[..., m, n] has orthonormal columns, or rows
    where there are fewer, p is symmetric and positive semidefinite. By singular values whatever the method; eps and
    max_iterations change nothing. Derivatives exist where a has full rank.

    >>> polar(np.array([[0.0, -2.0], [2.0, 0.0]]))[1].round(12)
    array([[2., 0.],
           [0., 2.]])
    """
    if side not in ("right", "left") or method not in ("qdwh", "svd"):
        raise ValueError(f"{user_source()}: polar: side must be 'right' or 'left' and method 'qdwh' or 'svd', got {side!r} and "
                         f"{method!r}")
    a = inexact(a)
    is_wide = a.shape[-2] < a.shape[-1]
    u, p = _tall_polar(xp.swapaxes(a, -1, -2) if is_wide else a)
    if is_wide == (side == "right"):
        p = u @ p @ xp.swapaxes(u, -1, -2)
    return (xp.swapaxes(u, -1, -2) if is_wide else u), p


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """The x[..., m, n] with A x + x B = C for A[..., m, m] and B[..., n, n], as one system of m n unknowns: (m n)^3 flops.
    method and tol change nothing. LinAlgError where an eigenvalue of A is one of -B.

    >>> solve_sylvester(np.eye(2), np.eye(2), np.array([[2.0, 4.0], [6.0, 8.0]]))
    array([[1., 2.],
           [3., 4.]])
    """
    A, B, C = inexact(A, B, C)
    m, n = C.shape[-2:]
    if A.shape[-2:] != (m, m) or B.shape[-2:] != (n, n):
        raise ShapeError(f"{user_source()}: solve_sylvester: for C of shape {C.shape} the others must be of the orders {m} "
                         f"and {n}, got {A.shape} and {B.shape}.")
    left = A[..., :, None, :, None] * lnp.eye(n, dtype=A.dtype)[:, None, :]
    right = lnp.eye(m, dtype=B.dtype)[:, None, :, None] * xp.swapaxes(B, -1, -2)[..., None, :, None, :]
    whole = left + right
    x = xp.linalg.solve(whole.reshape(*whole.shape[:-4], m * n, m * n), C.reshape(*C.shape[:-2], m * n, 1))
    return x.reshape(*x.shape[:-2], m, n)


def block_diag(*arrays: Any) -> Any:
    """The matrix with these f[m, n] along its diagonal and 0 elsewhere; a vector is one row, a number one element.

    >>> block_diag(np.ones((1, 2)), 3.0)
    array([[1., 1., 0.],
           [0., 0., 3.]])
    """
    blocks = [lnp.atleast_2d(x) for x in arrays or ([],)]
    if any(x.ndim != 2 for x in blocks):
        raise ShapeError(f"{user_source()}: block_diag takes arrays of at most two axes, got {[x.shape for x in blocks]}.")
    width = sum(x.shape[1] for x in blocks)
    rows, before = [], 0
    for x in blocks:
        rows.append(lnp.pad(x, ((0, 0), (before, width - before - x.shape[1]))))
        before = before + x.shape[1]
    return lnp.concatenate(rows, axis=0)


def expm(A: Any) -> Any:
    """The matrix exponential of f[..., n, n], by scaling, a Pade approximant and squaring (Higham 2005).

    >>> expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    a = A if has_tracer(A) else np.asarray(A)
    a = a * 1.0 if a.dtype.kind in "biu" else a
    norm = xp.max(xp.sum(xp.abs(a), axis=-2), axis=-1, initial=0.0)
    squarings = xp.clip(xp.ceil(xp.log2(xp.maximum(norm, _NORM) / _NORM)), 0, _MOST_SQUARINGS).astype(np.int64)
    scaled = a * (0.5 ** squarings).astype(a.dtype)[..., None, None]
    trips = xp.max(squarings, initial=0)

    def square(i: Any, x: Any) -> Any:
        return xp.where((i < squarings)[..., None, None], x @ x, x)

    return fori_loop(0, trips, square, _pade(scaled))


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """expm(A) and its derivative in the direction E, both f[..., n, n]; without compute_expm the latter alone. method changes
    nothing. ShapeError where the shapes differ.

    >>> expm_frechet(np.zeros((2, 2)), np.eye(2), compute_expm=False)
    array([[1., 0.],
           [0., 1.]])
    """
    A, E = inexact(A, E)
    if A.shape != E.shape:
        raise ShapeError(f"{user_source()}: expm_frechet takes two matrices of one shape, got {A.shape} and {E.shape}.")
    both = jvp(expm, (A,), (E,))
    return both if compute_expm else both[1]


def _pade(a: Any) -> Any:
    """(v - u)^-1 (v + u), u the odd and v the even terms."""
    c = _PADE
    one = lnp.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    u = a @ (a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * one)
    v = a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one
    return xp.linalg.solve(v - u, v + u)
