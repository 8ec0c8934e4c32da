"""NumPy's reductions, running sums and statistics on traced arrays.

Guarantees: NumPy's result dtypes (sums of small integers widen to 64 bits, means of integers are float64); f16 and bf16
means and variances are computed in f32 and rounded once; reductions without an identity refuse empty axes.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.op import Op
from loopwright.ir.ops import arithmetic, comparison, reductions
from loopwright.ir.ops.bitwise import bitwise_and
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.ops.construct import full_like
from loopwright.ir.ops.selection import select
from loopwright.ir.source import user_source
from loopwright.ir.types import BF16, BOOL, COMPLEX, F16, F32, F64, I64, U64, is_float, is_inexact
from loopwright.tracer.axes import NO_VALUE, along, as_axes, as_axis, as_tracer, folded_axes, is_given, refuse, without
from loopwright.tracer.promotion import (
    as_dtype,
    as_operand,
    broadcast,
    broadcast_shapes,
    convert,
    lift,
    lift_to,
    reshape,
    shape_of,
)
from loopwright.tracer.size import sized
from loopwright.tracer.tables import UFUNC_METHODS, UFUNCS, Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer

Emit = Callable[..., Ref]


def fold(emit: Emit, x: Ref, axes: tuple[int, ...], keepdims: Any = False) -> Ref:
    """A reduction over axes, which may be none."""
    out = emit(x, axes=tuple(sorted(axes))) if axes else x
    return reshape(out, without(x.shape, axes, True)) if is_given(keepdims) and keepdims else out


def _masked(x: Ref, where: Any, otherwise: Any) -> Ref:
    """x where a mask holds, else a number; the mask broadcasts with x."""
    if where is True or not is_given(where):
        return x
    where = as_operand(where)
    shape = _masked_shape(x, where)
    x = broadcast(x, shape)
    return select(lift_to(where, BOOL, shape, x.builder), x, full_like(x, otherwise))


def _masked_shape(x: Ref, where: Any) -> Shape:
    """The shape of x beside a mask, which may be longer along x's axes and have no others."""
    if len(shape_of(where)) > len(x.shape):
        raise ValueError(f"{user_source()}: where= has more dimensions than the array that is reduced")
    return broadcast_shapes(x.builder.scope, x.shape, shape_of(where))


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which NumPy sums a dtype."""
    if dtype.kind in "bi":
        return I64
    return U64 if dtype.kind == "u" else dtype


def _summed(emit: Emit, identity: int, combine: np.ufunc, a: Any, axis: Any, dtype: Any, keepdims: Any, initial: Any,
            where: Any) -> Traced:
    x = as_tracer(a).ref
    x = convert(x, _wide(x.dtype) if dtype is None else as_dtype(dtype))
    axes = folded_axes(axis, len(x.shape))
    if not is_given(initial):
        return Tracer(fold(emit, _masked(x, where, identity), axes, keepdims))
    x = _masked(x, where, -0.0 if combine is np.add and is_float(x.dtype) else identity)
    out = Tracer(fold(emit, x, axes, keepdims))
    if combine is np.add and is_float(x.dtype) and _may_be_negative_zero(initial):
        out = _of_negative_zeros(out, x, axes, keepdims)
    return UFUNCS[combine](out, _first(initial, x)).astype(x.dtype)


def _first(initial: Any, x: Ref) -> Tracer:
    """An initial value at the dtype of a reduction. OverflowError for a Python int that it cannot hold."""
    if isinstance(initial, int):
        return Tracer(lift(initial, x.dtype, x.builder))
    first: Tracer = as_tracer(initial, x.builder).astype(x.dtype)
    return first


def _may_be_negative_zero(x: Any) -> bool:
    return not isinstance(x, (int, float, np.integer, np.floating)) or (x == 0 and math.copysign(1, x) < 0)


def _of_negative_zeros(out: Tracer, x: Ref, axes: tuple[int, ...], keepdims: Any) -> Traced:
    """The sums of x, but -0.0 of nothing but -0.0, as NumPy adds to an initial value. Derivatives are those of the sums."""
    is_negative_zero = bitwise_and(comparison.eq(x, full_like(x, 0)), comparison.signbit(x))
    return xp.where(Tracer(fold(reductions.reduce_all, is_negative_zero, axes, keepdims)), -(-out + 0.0), out)


@implements(np.sum)
def sum_(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
         where: Any = NO_VALUE) -> Traced:
    refuse("sum", out=out)
    return _summed(reduce_sum, 0, np.add, a, axis, dtype, keepdims, initial, where)


@implements(np.prod)
def prod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
         where: Any = NO_VALUE) -> Traced:
    refuse("prod", out=out)
    return _summed(reductions.reduce_prod, 1, np.multiply, a, axis, dtype, keepdims, initial, where)


# ---- extremes -----------------------------------------------------------------------------------
def _extreme(emit: Emit, ufunc: np.ufunc, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Traced:
    x = as_tracer(a).ref
    if is_given(where) and where is not True and not is_given(initial):
        raise ValueError(f"{user_source()}: reduction operation '{ufunc.__name__}' has no identity, so to use a where "
                         f"mask one has to specify 'initial'")
    if is_given(initial):
        return _extreme_from(emit, ufunc, x, axis, keepdims, initial, where)
    axes = folded_axes(axis, len(x.shape))
    if _is_empty(x, axes):
        raise ValueError(f"{user_source()}: zero-size array to reduction operation {ufunc.__name__} which has no identity")
    return Tracer(fold(emit, x, axes, keepdims))


def _is_empty(x: Ref, axes: tuple[int, ...]) -> bool:
    """Whether a reduction over axes has nothing to reduce."""
    scope = x.builder.scope
    return any(scope.decide("==", x.shape[a], 0) for a in axes)


def _extreme_from(emit: Emit, ufunc: np.ufunc, x: Ref, axis: Any, keepdims: Any, initial: Any, where: Any) -> Traced:
    """The initial value joins as one more element of each reduction."""
    axes = folded_axes(axis, len(x.shape))
    first = _first(initial, x)
    x = _masked_by(x, where, first.ref)
    if _is_empty(x, axes):
        shape = without(x.shape, axes, bool(is_given(keepdims) and keepdims))
        return Tracer(broadcast(first.ref, shape))
    return UFUNCS[ufunc](Tracer(fold(emit, x, axes, keepdims)), first)


def _masked_by(x: Ref, where: Any, otherwise: Ref) -> Ref:
    if where is True or not is_given(where):
        return x
    where = as_operand(where)
    shape = _masked_shape(x, where)
    return select(lift_to(where, BOOL, shape, x.builder), broadcast(x, shape), broadcast(otherwise, shape))


@implements(np.max, np.amax)
def max_(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
         where: Any = NO_VALUE) -> Traced:
    refuse("max", out=out)
    return _extreme(reductions.reduce_max, np.maximum, a, axis, keepdims, initial, where)


@implements(np.min, np.amin)
def min_(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
         where: Any = NO_VALUE) -> Traced:
    refuse("min", out=out)
    return _extreme(reductions.reduce_min, np.minimum, a, axis, keepdims, initial, where)


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE) -> Any:
    return max_(a, axis, out, keepdims) - min_(a, axis, out, keepdims)


# ---- truth --------------------------------------------------------------------------------------
@implements(np.any)
def any_(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE) -> Traced:
    refuse("any", out=out)
    x = _masked(convert(as_tracer(a).ref, BOOL), where, False)
    return Tracer(fold(reductions.reduce_any, x, folded_axes(axis, len(x.shape)), keepdims))


@implements(np.all)
def all_(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE) -> Traced:
    refuse("all", out=out)
    x = _masked(convert(as_tracer(a).ref, BOOL), where, True)
    return Tracer(fold(reductions.reduce_all, x, folded_axes(axis, len(x.shape)), keepdims))


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Traced:
    return sum_(as_tracer(a) != 0, axis, keepdims=keepdims)


# ---- positions ----------------------------------------------------------------------------------
def _position(emit: Emit, name: str, a: Any, axis: Any, keepdims: Any) -> Traced:
    x = as_tracer(a).ref
    rank = len(x.shape)
    flat = axis is None or rank == 0
    x, k = along(x, axis)
    if _is_empty(x, (k,)):
        raise ValueError(f"{user_source()}: attempt to get {name} of an empty sequence")
    out = emit(x, axis=k)
    if is_given(keepdims) and keepdims:
        out = reshape(out, (1,) * rank if flat else without(x.shape, (k,), True))
    return Tracer(out)


@implements(np.argmax)
def argmax(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = NO_VALUE) -> Traced:
    refuse("argmax", out=out)
    return _position(reductions.argmax, "argmax", a, axis, keepdims)


@implements(np.argmin)
def argmin(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = NO_VALUE) -> Traced:
    refuse("argmin", out=out)
    return _position(reductions.argmin, "argmin", a, axis, keepdims)


# ---- running sums -------------------------------------------------------------------------------
def _running(emit: Emit, a: Any, axis: Any, dtype: Any) -> Traced:
    x = as_tracer(a).ref
    kind = _wide(x.dtype) if dtype is None else as_dtype(dtype)
    x, k = along(convert(x, kind), axis)
    if kind == BOOL:  # of truths: whether any was so far, or all
        return Tracer(convert(emit(convert(x, I64), axis=k), BOOL))
    return Tracer(emit(x, axis=k))


@implements(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Traced:
    refuse("cumsum", out=out)
    return _running(reductions.cumsum, a, axis, dtype)


@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Traced:
    refuse("cumprod", out=out)
    return _running(reductions.cumprod, a, axis, dtype)


# ---- means and variances ------------------------------------------------------------------------
def _mean_dtypes(dtype: np.dtype, asked: Any) -> tuple[np.dtype, np.dtype]:
    """Where a mean is summed, and its own dtype."""
    result = as_dtype(asked) if asked is not None else (dtype if is_inexact(dtype) else F64)
    return (F32 if result in (F16, BF16) else result), result


def number(n: Extent, like: Ref) -> Ref:
    """A size as a number of the shape and dtype of a value."""
    return lift_to(sized(n, like.builder.scope), like.dtype, like.shape, like.builder)


def _counts(x: Ref, axes: tuple[int, ...], where: Any, keepdims: Any) -> Any:
    """How many elements each reduction takes: an extent, or a traced array under a mask."""
    if where is True or not is_given(where):
        return product(x.shape[a] for a in axes)
    where = as_operand(where)
    shape = _masked_shape(x, where)
    return sum_(Tracer(lift_to(where, BOOL, shape, x.builder)), axes, keepdims=keepdims)


def _divided(total: Ref, count: Any) -> Ref:
    """A quotient at the dtype of the sum, as NumPy stores it: whole numbers are divided as f64 and truncated."""
    if not is_inexact(total.dtype):
        return convert(_divided(convert(total, F64), count), total.dtype)
    if isinstance(count, Tracer):
        return arithmetic.div(total, broadcast(convert(count.ref, total.dtype), total.shape))
    return arithmetic.div(total, number(count, total))


def _mean(x: Ref, axes: tuple[int, ...], keepdims: Any, where: Any = True) -> Ref:
    return _divided(fold(reduce_sum, _masked(x, where, 0), axes, keepdims), _counts(x, axes, where, keepdims))


@implements(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO_VALUE, *,
         where: Any = NO_VALUE) -> Traced:
    refuse("mean", out=out)
    x = as_tracer(a).ref
    inner, result = _mean_dtypes(x.dtype, dtype)
    return Tracer(convert(_mean(convert(x, inner), as_axes(axis, len(x.shape)), keepdims, where), result))


@implements(np.var)
def var(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = NO_VALUE, *,
        where: Any = NO_VALUE, mean: Any = NO_VALUE, correction: Any = NO_VALUE) -> Traced:
    refuse("var", out=out)
    x = as_tracer(a).ref
    inner, result = _mean_dtypes(x.dtype, dtype)
    if dtype is None:
        x = convert(x, inner)
    axes = as_axes(axis, len(x.shape))
    ddof = degrees(ddof, correction)
    center = as_tracer(mean, x.builder) if is_given(mean) else Tracer(_mean(convert(x, inner), axes, True, where))
    d = UFUNCS[np.subtract](Tracer(x), center.astype(inner)).ref
    squares = arithmetic.real(arithmetic.mul(d, arithmetic.conj(d))) if d.dtype in COMPLEX else arithmetic.mul(d, d)
    if dtype is not None:
        squares = convert(squares, inner)
    total = fold(reduce_sum, _masked(squares, where, 0), axes, keepdims)
    count = _reduced_count(_counts(x, axes, where, keepdims), ddof, x)
    return Tracer(convert(_divided(total, count), total.dtype if dtype is None and result in COMPLEX else result))


def degrees(ddof: Any, correction: Any) -> Any:
    if not is_given(correction):
        return ddof
    if ddof != 0:
        raise ValueError(f"{user_source()}: ddof and correction can't be provided simultaneously.")
    return correction


def _reduced_count(count: Any, ddof: Any, x: Ref) -> Any:
    """max(count - ddof, 0), as NumPy divides."""
    if isinstance(count, Tracer):
        return UFUNCS[np.maximum](count - ddof, 0)
    if isinstance(ddof, int):
        return count - ddof if x.builder.scope.decide("<=", ddof, count) else 0
    size = sized(count, x.builder.scope)
    less = size - ddof
    return as_tracer(less, x.builder) if less > 0 else 0


@implements(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = NO_VALUE, *,
        where: Any = NO_VALUE, mean: Any = NO_VALUE, correction: Any = NO_VALUE) -> Traced:
    x = var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    return root(x)


def root(x: Tracer) -> Traced:
    """At the dtype of x, as NumPy stores it."""
    return UFUNCS[np.sqrt](x).astype(x.dtype)


@implements(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = NO_VALUE) -> Any:
    x = as_tracer(a)
    axes = as_axes(axis, x.ndim)
    if weights is None:
        result = mean(x, axes, keepdims=keepdims)
        total = as_tracer(sized(product(x.ref.shape[k] for k in axes), x.ref.builder.scope), x.ref.builder)
    else:
        w = _weights(x, as_tracer(weights, x.ref.builder), axis, axes)
        kind = xp.result_type(x.dtype, w.dtype) if is_inexact(x.dtype) else xp.result_type(x.dtype, w.dtype, np.float64)
        w = w.astype(kind)
        total = sum_(w, axes, keepdims=keepdims)
        result = sum_(x * w, axes, keepdims=keepdims) / total
    return (result, xp.broadcast_to(total, result.shape).astype(result.dtype)) if returned else result


def _weights(x: Tracer, w: Tracer, axis: Any, axes: tuple[int, ...]) -> Traced:
    """Weights at the shape of x: they have it, or that of the axes."""
    if w.ndim != x.ndim or axis is None:
        if axis is None and w.ndim != x.ndim:
            raise TypeError(f"{user_source()}: Axis must be specified when shapes of a and weights differ.")
        if w.ndim != len(axes):
            raise ValueError(f"{user_source()}: Shape of weights must be consistent with shape of a along specified axis.")
        order = xp.argsort(axes)
        w = xp.transpose(w, order)
        w = xp.reshape(w, [x.shape[a] if a in axes else 1 for a in range(x.ndim)])
    return xp.broadcast_to(w, x.shape)


# ---- methods of universal functions -------------------------------------------------------------
_REDUCE: dict[np.ufunc, Callable[..., Tracer]] = {
    np.add: sum_, np.multiply: prod, np.maximum: max_, np.minimum: min_, np.logical_and: all_, np.logical_or: any_}


def _reduce(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: None = None, keepdims: bool = False,
            **options: Any) -> Traced:
    rule = _REDUCE.get(ufunc)
    if rule is None:
        raise unsupported(f"np.{ufunc.__name__}.reduce")
    refuse(f"{ufunc.__name__}.reduce", out=out)
    if rule in (all_, any_) and is_given(initial := options.pop("initial", NO_VALUE)):
        return UFUNCS[ufunc](rule(a, axis, keepdims=keepdims, **options), initial)
    if dtype is not None:
        a, options = (as_tracer(a).astype(dtype), options) if rule in (max_, min_) else (a, {**options, "dtype": dtype})
    return rule(a, axis, keepdims=keepdims, **options)


_EXTREMES: dict[np.ufunc, Op] = {np.maximum: reductions.cummax, np.logical_or: reductions.cummax,
                                 np.minimum: reductions.cummin, np.logical_and: reductions.cummin}


def _accumulate(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: None = None) -> Traced:
    refuse(f"{ufunc.__name__}.accumulate", out=out)
    x = as_tracer(a)
    if not x.ndim:
        raise TypeError(f"{user_source()}: cannot accumulate on a scalar")
    if ufunc in (np.add, np.multiply):
        return (cumsum if ufunc is np.add else cumprod)(x, axis, dtype)
    if (op := _EXTREMES.get(ufunc)) is None:
        raise unsupported(f"np.{ufunc.__name__}.accumulate")
    if dtype is not None or ufunc in (np.logical_or, np.logical_and):
        x = x.astype(BOOL if dtype is None else dtype)
    return Tracer(op(x.ref, axis=as_axis(axis, x.ndim)))


def _outer(ufunc: np.ufunc, a: Any, b: Any, **options: Any) -> Any:
    x, y = as_tracer(a) if isinstance(a, (list, tuple)) else a, as_tracer(b) if isinstance(b, (list, tuple)) else b
    if xp.ndim(x) and xp.ndim(y):
        x = x[(..., *[None] * xp.ndim(y))]
    return UFUNCS[ufunc](x, y, **options)


UFUNC_METHODS.update({"reduce": _reduce, "accumulate": _accumulate, "outer": _outer})


