"""SciPy's linear algebra by JAX's names, for what NumPy does not have: `import loopwright.scipy.linalg as sla`.

Guarantees: plain arrays give plain arrays, traced ones traced ones; axes before the last two are a batch; derivatives to
any order. LinAlgError where a system is singular or a matrix not positive definite, but solve_triangular gives infinities.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright import lax
from loopwright import numpy as lnp
from loopwright.ir.ops.linalg import solve_triangular as substitute
from loopwright.tracer.functions_linalg import solve_triangular as traced_solve_triangular
from loopwright.tracer.promotion import has_tracer
from loopwright.tracer.tables import xp

__all__ = ["cho_factor", "cho_solve", "cholesky", "det", "expm", "inv", "solve", "solve_triangular"]

# Coefficients of the Pade approximant of order 13, and the norm up to which it is exact to rounding (Higham 2005).
_PADE = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
         670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0)
_NORM = 5.371920351148152
_MOST_SQUARINGS = 1100  # beyond every finite norm


def solve_triangular(a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False) -> Any:
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


def cholesky(a: Any, lower: bool = False) -> Any:
    """The triangular factor of a symmetric positive definite f[..., n, n]: U^T U = a, or L L^T = a if lower.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 1.],
           [0., 2.]])
    """
    factor = xp.linalg.cholesky(a if lower else xp.swapaxes(a, -1, -2))
    return factor if lower else xp.swapaxes(factor, -1, -2)


def cho_factor(a: Any, lower: bool = False) -> tuple[Any, bool]:
    """What cho_solve takes: the factor, and whether it is the lower one."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Any:
    """The x with a x = b, from cho_factor(a).

    >>> cho_solve(cho_factor(np.array([[4.0, 0.0], [0.0, 9.0]])), np.array([8.0, 9.0]))
    array([2., 1.])
    """
    factor, lower = c_and_lower
    half = solve_triangular(factor, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(factor, half, trans=1 if lower else 0, lower=lower)


def solve(a: Any, b: Any, lower: bool = False, assume_a: str = "gen") -> Any:
    """The x with a x = b. assume_a: "gen", "sym" or "her", or "pos" for a positive definite one, read from one triangle."""
    if assume_a == "pos":
        return cho_solve(cho_factor(a, lower), b)
    if assume_a not in ("gen", "sym", "her"):
        raise ValueError(f"assume_a must be 'gen', 'sym', 'her' or 'pos', got {assume_a!r}")
    return xp.linalg.solve(a, b)


def inv(a: Any) -> Any:
    """The inverse. LinAlgError where a is singular."""
    return xp.linalg.inv(a)


def det(a: Any) -> Any:
    """The determinant."""
    return xp.linalg.det(a)


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

    return lax.fori_loop(0, trips, square, _pade(scaled))


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
