"""Linear algebra by the LAPACK that comes with the BLAS in use, for compiled code; t is f32 or f64.

    i64 @lw_cholesky_t(ptr a, ptr out, i64 n)
    i64 @lw_solve_t(ptr a, ptr b, ptr out, i64 n, i64 k)
    i64 @lw_slogdet_t(ptr a, ptr sign, ptr log, i64 n)
    i64 @lw_eigh_t(ptr a, ptr values, ptr vectors, i64 n)
    i64 @lw_eigenvalues_t(ptr a, ptr values, i64 n)
    i64 @lw_svd_t(ptr a, ptr u, ptr s, ptr vt, i64 m, i64 n, i64 full)
    i64 @lw_singular_values_t(ptr a, ptr s, i64 m, i64 n, i64 full)
    i64 @lw_qr_t(ptr a, ptr q, ptr r, i64 m, i64 n, i64 full)
    i64 @lw_qr_triangle_t(ptr a, ptr r, i64 m, i64 n, i64 full)
    i64 @lw_pinv_t(ptr a, ptr rcond, ptr out, i64 m, i64 n)
    i64 @lw_triangular_solve_t(ptr a, ptr b, ptr out, i64 n, i64 k, i64 lower, i64 transposed, i64 unit)
    i64 @lw_solve_t_batch(i64 count, ptr a, ...) and so for all             of count matrices: see lower/codegen/batches.py

Guarantees: matrices are row-major; the routines are those that NumPy calls, on the same column-major matrices; a library
is used only after it factored a matrix rightly. The answer is 0, LAPACK's number (made positive) where a matrix cannot be
factored, or -1 where memory is short or a size is beyond the library's integers. Empty matrices never reach the library.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from loopwright.ir.types import BY_SHORT
from loopwright.lower.runtime import blas, pool, scratch
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lapack_text import ROUTINES, lapack_text
from loopwright.lower.runtime.lazy import assembled, factoring_code
from loopwright.lower.runtime.once import once
from loopwright.lower.target import Target, host_target

OPERATIONS = ("cholesky", "solve", "slogdet", "eigh", "eigenvalues", "svd", "singular_values", "qr", "qr_triangle", "pinv",
              "triangular_solve")
NAMES = frozenset(f"lw_{op}_{t}_batch" for op in OPERATIONS for t in ("f32", "f64"))
_SPELLINGS = {64: ("scipy_{}_64_", "{}_64_", "{}$NEWLAPACK$ILP64"), 32: ("scipy_{}_", "{}_")}
_KINDS = {"f32": "s", "f64": "d"}


def address(name: str) -> int | None:
    """The address of one of these functions; None where there is no LAPACK."""
    if not available():
        return None
    found = blas.found()
    assert found is not None
    return _batch(found, name, host_target())[name]


def available() -> bool:
    """Whether the library in use has what these functions call."""
    found = blas.found()
    return found is not None and all(_works(found, suffix) for suffix in _KINDS)


@cache
def _routines(found: blas.Blas, suffix: str) -> dict[str, int] | None:
    """The addresses of the routines, if one spelling has them all."""
    library = ctypes.CDLL(found.path)
    for spelling in _SPELLINGS[found.bits]:
        names = [spelling.format(_KINDS[suffix] + name) for name in ROUTINES]
        functions = [getattr(library, name, None) for name in names]
        if all(f is not None for f in functions):
            where = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions if f is not None]
            return dict(zip(ROUTINES, where, strict=True))
    return None


@cache
def _works(found: blas.Blas, suffix: str) -> bool:
    """Whether it is there and solves a small system."""
    if _routines(found, suffix) is None:
        return False
    dtype = np.dtype("f4" if suffix == "f32" else "f8")
    a, b = np.array([[0, 2], [4, 2]], dtype), np.array([[2, 4, 6], [6, 8, 10]], dtype)
    x = np.full_like(b, np.nan)
    solve: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(
        one_by_one(found, suffix)[f"lw_solve_{suffix}"])
    status = solve(a.ctypes.data, b.ctypes.data, x.ctypes.data, 2, 3)
    return status == 0 and np.allclose(a @ x, b)


def _of_threads(found: blas.Blas) -> dict[str, int]:
    return {name: blas.library(found)[name] for name in ("lw_blas_enter", "lw_blas_leave")}


@once
def one_by_one(found: blas.Blas, suffix: str) -> Library:
    """The functions for one matrix."""
    where = _routines(found, suffix)
    assert where is not None
    names = [f"lw_{op}_{suffix}" for op in OPERATIONS]
    imports = {f"lapack_{name}": at for name, at in where.items()} | scratch.imports() | _of_threads(found)
    return load(assembled(lapack_text(suffix, found.bits)), imports, names)


@once
def _batch(found: blas.Blas, name: str, target: Target) -> Library:
    """One function for batches."""
    suffix = name.split("_")[-2]
    known = one_by_one(found, suffix)
    imports = {one: known[one] for one in (f"lw_{op}_{suffix}" for op in OPERATIONS)}
    imports |= {"lw_loop": pool.library()["lw_loop"], **scratch.imports(), **_of_threads(found)}
    return load(factoring_code(name, BY_SHORT[suffix], target), imports, [name])
