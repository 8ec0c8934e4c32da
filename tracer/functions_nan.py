"""NumPy's reductions that leave NaN out.

Guarantees: of nothing but NaN the extremes and means are NaN, sums 0 and products 1; arrays without NaN in their dtype are
reduced as they are.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.ops import comparison
from loopwright.ir.ops.construct import full_like
from loopwright.ir.ops.selection import select
from loopwright.ir.source import user_source
from loopwright.ir.types import is_inexact
from loopwright.tracer.axes import NO_VALUE, as_tracer, is_given, refuse
from loopwright.tracer.functions_reduce import (
    all_,
    argmax,
    argmin,
    cumprod,
    cumsum,
    degrees,
    max_,
    mean,
    min_,
    prod,
    root,
    sum_,
    var,
)
from loopwright.tracer.promotion import as_dtype
from loopwright.tracer.tables import Traced, implements, xp
from loopwright.tracer.tracer import Tracer


def _numbers(a: Any, otherwise: Any) -> tuple[Tracer, Tracer | None]:
    """An array with NaN replaced, and where it was."""
    x = as_tracer(a)
    if not is_inexact(x.dtype):
        return x, None
    is_nan = comparison.isnan(x.ref)
    return Tracer(select(is_nan, full_like(x.ref, otherwise), x.ref)), Tracer(is_nan)


@implements(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
           where: Any = NO_VALUE) -> Traced:
    return sum_(_numbers(a, 0)[0], axis, dtype, out, keepdims, initial, where)


@implements(np.nanprod)
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
            where: Any = NO_VALUE) -> Traced:
    return prod(_numbers(a, 1)[0], axis, dtype, out, keepdims, initial, where)


@implements(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Traced:
    return cumsum(_numbers(a, 0)[0], axis, dtype, out)


@implements(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Traced:
    return cumprod(_numbers(a, 1)[0], axis, dtype, out)


def _and(where: Any, is_nan: Tracer) -> Tracer:
    """The numbers that a mask selects."""
    present: Tracer = ~is_nan
    both: Tracer = present & where if is_given(where) else present
    return both


def _check_inexact(dtype: Any) -> None:
    if dtype is not None and not is_inexact(as_dtype(dtype)):
        raise TypeError(f"{user_source()}: If a is inexact, then dtype must be inexact")


@implements(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = NO_VALUE, *,
            where: Any = NO_VALUE) -> Traced:
    x, is_nan = _numbers(a, 0)
    if is_nan is None:
        return mean(x, axis, dtype, out, keepdims, where=where)
    _check_inexact(dtype)
    return mean(x, axis, dtype, out, keepdims, where=_and(where, is_nan))


@implements(np.nanvar)
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = NO_VALUE, *,
           where: Any = NO_VALUE, mean: Any = NO_VALUE, correction: Any = NO_VALUE) -> Traced:
    x, is_nan = _numbers(a, 0)
    if is_nan is None:
        return var(x, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    _check_inexact(dtype)
    ddof, where = degrees(ddof, correction), _and(where, is_nan)
    count = sum_(where, axis, keepdims=keepdims)
    result = var(x, axis, dtype, out, ddof, keepdims, where=where, mean=mean)
    return xp.where(count <= ddof, np.array(np.nan, result.dtype), result)


@implements(np.nanstd)
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: Any = NO_VALUE, *,
           where: Any = NO_VALUE, mean: Any = NO_VALUE, correction: Any = NO_VALUE) -> Traced:
    return root(nanvar(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction))


def _nan_extreme(rule: Callable[..., Tracer], worst: float, a: Any, axis: Any, initial: Any, **options: Any) -> Traced:
    x, is_nan = _numbers(a, worst)
    if is_nan is None:
        return rule(x, axis, initial=initial, **options)
    is_all_nan = all_(is_nan, axis, **options)
    if is_given(initial):
        is_all_nan = is_all_nan & xp.isnan(initial)
        initial = xp.where(xp.isnan(initial), worst, initial)
    out = rule(x, axis, initial=initial, **options)
    return Tracer(select(is_all_nan.ref, full_like(out.ref, math.nan), out.ref))


@implements(np.nanmax)
def nanmax(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
           where: Any = NO_VALUE) -> Traced:
    refuse("nanmax", out=out)
    return _nan_extreme(max_, -math.inf, a, axis, initial, keepdims=keepdims, where=where)


def _nan_position(rule: Callable[..., Tracer], worst: float, a: Any, axis: Any, out: None, keepdims: Any) -> Traced:
    """Of nothing but NaN it is the first place, where NumPy raises."""
    return rule(_numbers(a, worst)[0], axis, out, keepdims=keepdims)


@implements(np.nanargmax)
def nanargmax(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = NO_VALUE) -> Traced:
    return _nan_position(argmax, -math.inf, a, axis, out, keepdims)


@implements(np.nanargmin)
def nanargmin(a: Any, axis: Any = None, out: None = None, *, keepdims: Any = NO_VALUE) -> Traced:
    return _nan_position(argmin, math.inf, a, axis, out, keepdims)


@implements(np.nanmin)
def nanmin(a: Any, axis: Any = None, out: None = None, keepdims: Any = NO_VALUE, initial: Any = NO_VALUE,
           where: Any = NO_VALUE) -> Traced:
    refuse("nanmin", out=out)
    return _nan_extreme(min_, math.inf, a, axis, initial, keepdims=keepdims, where=where)
