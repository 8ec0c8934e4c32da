"""NumPy's linear algebra on traced arrays: systems, factorisations, and what follows from them.

Guarantees: real matrices in f32 and f64, whole numbers at f64; complex ones in systems and inverses alone; other dtypes
raise TypeError, as NumPy does for half precision. Derivatives of the factorisations of a symmetric matrix are those along
symmetric matrices.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import maximum
from loopwright.ir.ops import arithmetic, linalg
from loopwright.ir.ops.matrices import identity_like, swap
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX, F32, F64, I32, I64, is_inexact
from loopwright.tracer.axes import NO_VALUE, as_tracer
from loopwright.tracer.promotion import (
    as_operand,
    broadcast,
    broadcast_shapes,
    convert,
    kind_of,
    lift,
    newest_builder,
    reshape,
    result_kind,
)
from loopwright.tracer.size import sized
from loopwright.tracer.tables import Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer

# NumPy's own classes of results, which it has no public names for.
_RESULTS: Any = [type(f(np.eye(1))) for f in (np.linalg.eigh, np.linalg.qr, np.linalg.svd, np.linalg.slogdet)]
_EighResult, _QRResult, _SVDResult, _SlogdetResult = _RESULTS


# ---- operands -------------------------------------------------------------------------------------
def matrices(name: str, *xs: Any, accepts: tuple[np.dtype, ...] = (F32, F64)) -> list[Ref]:
    """Operands in one trace, at their common dtype among those that are accepted."""
    values = [as_operand(x) for x in xs]
    builder = newest_builder(values)
    common = result_kind(*[kind_of(v) for v in values])
    dtype = common if is_inexact(common) else F64
    if dtype not in accepts:
        raise unsupported(f"np.linalg.{name} of {dtype}", "Convert it to float32 or float64.")
    return [lift(v, dtype, builder) for v in values]


def _matrix(name: str, x: Any) -> Ref:
    a, = matrices(name, x)
    return _checked(a)


def _checked(a: Ref) -> Ref:
    if len(a.shape) < 2:
        raise np.linalg.LinAlgError(f"{user_source()}: {len(a.shape)}-dimensional array given. Array must be at least "
                                    f"two-dimensional")
    return a


def squared(a: Ref) -> Ref:
    """A square matrix, by proof or guard. LinAlgError for another."""
    scope = _checked(a).builder.scope
    if not scope.equate(a.shape[-2], a.shape[-1]):
        raise np.linalg.LinAlgError(f"{user_source()}: Last 2 dimensions of the array must be square, got "
                                    f"{scope.describe(a.shape)}")
    return a


def system(a: Ref, b: Ref) -> tuple[Ref, Ref]:
    """a and b of a x = b with one batch and one number of rows."""
    scope = a.builder.scope
    if not scope.equate(a.shape[-2], b.shape[-2]):
        raise np.linalg.LinAlgError(f"{user_source()}: the matrix of shape {scope.describe(a.shape)} must have as many rows as "
                                    f"the right side of shape {scope.describe(b.shape)}")
    front = broadcast_shapes(scope, a.shape[:-2], b.shape[:-2])
    return broadcast(a, (*front, *a.shape[-2:])), broadcast(b, (*front, *b.shape[-2:]))


def _with_column(b: Ref) -> Ref:
    return reshape(b, (*b.shape, 1))


def _tracers(refs: list[Ref]) -> list[Tracer]:
    return [Tracer(r) for r in refs]


# ---- systems --------------------------------------------------------------------------------------
@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Traced:
    left, right = matrices("solve", a, b, accepts=(F32, F64, *COMPLEX))
    is_vector = len(right.shape) == 1
    left, right = system(squared(left), _with_column(right) if is_vector else right)
    x = linalg.solve(left, right) if left.dtype not in COMPLEX else _complex_solve(left, right)
    return Tracer(reshape(x, x.shape[:-1]) if is_vector else x)


def _complex_solve(a: Ref, b: Ref) -> Ref:
    """The real system of twice the order: the parts of x from those of a = re + i im, as the matrix [[re, -im], [im, re]]."""
    re, im = Tracer(arithmetic.real(a)), Tracer(arithmetic.imag(a))
    parts = [Tracer(part(b)) for part in (arithmetic.real, arithmetic.imag)]
    whole = xp.concatenate([xp.concatenate([re, -im], axis=-1), xp.concatenate([im, re], axis=-1)], axis=-2)
    x = Tracer(linalg.solve(*system(squared(whole.ref), xp.concatenate(parts, axis=-2).ref)))
    n = re.shape[-1]
    upper, lower = x[..., :n, :], x[..., n:, :]
    return arithmetic.complex(upper.ref, broadcast(lower.ref, upper.ref.shape))


def solve_triangular(a: Any, b: Any, *, lower: bool, transposed: bool, unit: bool) -> Traced:
    """The x with a x = b, or a^T x = b, for one triangle of a."""
    left, right = matrices("solve_triangular", a, b)
    is_vector = len(right.shape) == 1
    left, right = system(squared(left), _with_column(right) if is_vector else right)
    x = linalg.triangular_solve(left, right, lower=lower, transposed=transposed, unit=unit)
    return Tracer(reshape(x, x.shape[:-1]) if is_vector else x)


@implements(np.linalg.inv)
def inv(a: Any) -> Traced:
    x = squared(_checked(matrices("inv", a, accepts=(F32, F64, *COMPLEX))[0]))
    if x.dtype in COMPLEX:
        return Tracer(_complex_solve(x, convert(identity_like(arithmetic.real(x)), x.dtype)))
    return Tracer(linalg.solve(x, identity_like(x)))


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    return _SlogdetResult(*_tracers(linalg.slogdet.all(squared(_matrix("slogdet", a)))))


@implements(np.linalg.det)
def det(a: Any) -> Traced:
    sign, log = slogdet(a)
    return sign * xp.exp(log)


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: Any) -> Traced:
    x, power = Tracer(squared(as_tracer(a).ref)), operator.index(n)
    if power == 0:
        return xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype, like=x), x.shape).copy()
    if power < 0:
        x, power = inv(x), -power
    result: Any = None
    while power:
        if power & 1:
            result = x if result is None else result @ x
        x, power = (x @ x if power > 1 else x), power >> 1
    return result.copy() if n in (1, -1) else result


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NO_VALUE) -> Traced:
    x = _matrix("pinv", a)
    if rcond is not None and rtol is not NO_VALUE:
        raise ValueError(f"{user_source()}: `rtol` and `rcond` can't be both set.")
    if rcond is None:
        rcond = 1e-15 if rtol is NO_VALUE else rtol
    return Tracer(_pseudo_inverse(x, _tolerance(x) if rcond is None else rcond))


def _tolerance(x: Ref) -> Any:
    """The largest relative singular value that rounding makes of zero."""
    largest = sized(maximum(*x.shape[-2:]), x.builder.scope)
    return as_tracer(largest, x.builder).astype(x.dtype) * np.finfo(x.dtype).eps


def _pseudo_inverse(x: Ref, rcond: Any) -> Ref:
    limit = convert(as_tracer(rcond, x.builder).ref, x.dtype)
    return linalg.pinv(x, broadcast(limit, x.shape[:-2]))


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Traced, Traced, Traced, Traced]:
    """As NumPy's, but that the residuals are given wherever there are more rows than columns, whatever the rank."""
    left, right = matrices("lstsq", a, b)
    is_vector = len(right.shape) == 1
    left, right = system(_checked(left), _with_column(right) if is_vector else right)
    limit = _tolerance(left) if rcond is None else rcond
    matrix, sides = Tracer(left), Tracer(right)
    x = Tracer(_pseudo_inverse(left, limit)) @ sides
    values = svdvals(matrix)
    rank = xp.sum(values > limit * xp.max(values, initial=0.0)).astype(I32)
    rows, columns = left.shape
    is_tall = left.builder.scope.decide("<", columns, rows)
    squares = xp.sum(xp.square(sides - matrix @ x), axis=0)
    return x[:, 0] if is_vector else x, squares if is_tall else squares[:0], rank, values


# ---- factorisations -------------------------------------------------------------------------------
@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Traced:
    x = squared(_matrix("cholesky", a))
    factor, = linalg.cholesky.all(swap(x) if upper else x)
    return Tracer(swap(factor) if upper else factor)


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise unsupported(f"np.linalg.qr(mode={mode!r})")
    q, r = _tracers(linalg.qr.all(_matrix("qr", a), full=mode == "complete"))
    return r if mode == "r" else _QRResult(q, r)


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = _matrix("svd", a)
    if not compute_uv:
        return svdvals(a)
    is_full = bool(full_matrices) and not x.builder.scope.decide("==", *x.shape[-2:])
    return _SVDResult(*_tracers(linalg.svd.all(x, full=is_full)))


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> Traced:
    return Tracer(linalg.svd.all(_matrix("svd", x), full=False)[1])


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"{user_source()}: UPLO argument must be 'L' or 'U'")
    x = squared(_matrix("eigh", a))
    return _EighResult(*_tracers(linalg.eigh.all(swap(x) if UPLO.upper() == "U" else x)))


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Traced:
    return eigh(a, UPLO)[0]


# ---- what singular values tell --------------------------------------------------------------------
@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Traced:
    x = as_tracer(A)
    if tol is not None and rtol is not None:
        raise ValueError(f"{user_source()}: `tol` and `rtol` can't be both set.")
    if x.ndim < 2:
        return xp.any(x != 0).astype(I64)
    values = svdvals(x)
    if tol is None:
        largest = xp.max(values, axis=-1, keepdims=True, initial=0.0)
        limit = largest * (_tolerance(_matrix("matrix_rank", x)) if rtol is None else as_tracer(rtol)[..., None])
    else:
        limit = as_tracer(tol)[..., None]
    return xp.sum(values > limit, axis=-1)


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Traced:
    t = Tracer(_matrix("cond", x))
    if any(t.ref.builder.scope.decide("==", n, 0) for n in t.ref.shape):
        raise np.linalg.LinAlgError(f"{user_source()}: cond is not defined on empty arrays")
    if p in (None, 2, -2):
        values = svdvals(t)
        least, most = values[..., -1], values[..., 0]
        ratio = least / most if p == -2 else most / least
        return xp.where(xp.isnan(ratio) & ~xp.any(xp.isnan(t), axis=(-2, -1)), np.inf, ratio).astype(values.dtype)
    squared(t.ref)
    singular = slogdet(t)[0] == 0
    inverse = inv(xp.where(singular[..., None, None], xp.eye(t.shape[-1], dtype=t.dtype, like=t), t))
    product = xp.linalg.norm(t, p, axis=(-2, -1)) * xp.linalg.norm(inverse, p, axis=(-2, -1))
    return xp.where(singular, np.inf, product).astype(t.dtype)
