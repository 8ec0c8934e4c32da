"""NumPy's functions that put elements in order, and those that ask what stands at a place of that order, on traced arrays."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.ir.dims import product
from loopwright.ir.ops.sorting import argsort, ranked, sort
from loopwright.ir.source import user_source
from loopwright.ir.types import F64, I64, is_float, is_inexact
from loopwright.tracer.axes import along, as_axis, as_tracer, is_given, refuse
from loopwright.tracer.functions_reduce import number
from loopwright.tracer.functions_select import take, where
from loopwright.tracer.promotion import has_tracer, lift, reshape
from loopwright.tracer.tables import Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer

MOST_LEVELS = 4  # of quantiles that are looked for one by one
_PICKING = ("lower", "higher", "nearest")  # methods that give an element
_METHODS: dict[str, Callable[[Tracer, Tracer], list[Tracer]]] = {
    "linear": lambda place, below: [below, xp.ceil(place)],
    "lower": lambda place, below: [below],
    "higher": lambda place, below: [xp.ceil(place)],
    "midpoint": lambda place, below: [below, xp.ceil(place)],
    "nearest": lambda place, below: [xp.rint(place)],
}


def _as_sort(kind: Any) -> None:
    """Every kind of sort is the stable one; ValueError for what is none, as NumPy tells them by the first letter."""
    if kind is not None and str(kind)[:1].lower() not in ("q", "m", "h", "s"):
        raise ValueError(f"{user_source()}: sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")


@implements(np.sort)
def sort_(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Traced:
    refuse("sort", order=order)
    _as_sort(kind)
    x = as_tracer(a).ref
    if axis is None:
        x, axis = reshape(x, (product(x.shape),)), -1
    return Tracer(sort(x, axis=as_axis(axis, len(x.shape))))  # a number has no axis to sort along


@implements(np.argsort)
def argsort_(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Traced:
    refuse("argsort", order=order)
    _as_sort(kind)
    x, k = along(as_tracer(a).ref, axis)
    return Tracer(argsort(x, axis=k))


def _lines(x: Tracer, axis: Any) -> Traced:
    """x with the axes of a reduction merged into the last."""
    if axis is None:
        return Tracer(reshape(x.ref, (product(x.ref.shape),)))
    axes = [as_axis(k, x.ndim) for k in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    moved = xp.moveaxis(x, axes, range(-len(axes), 0)).ref
    kept = len(moved.shape) - len(axes)
    return Tracer(reshape(moved, (*moved.shape[:kept], product(moved.shape[kept:]))))


def _quantile(x: Tracer, q: Any, axis: Any, method: str, keepdims: Any) -> Traced:
    if method not in _METHODS:
        raise unsupported(f"np.quantile(method={method!r})", f"The methods are {', '.join(_METHODS)}.")
    level = as_tracer(q, x.ref.builder)
    is_picked = method in _PICKING or (method == "linear" and level.dtype.kind in "iub")
    own = x.dtype if is_picked or is_inexact(x.dtype) else F64
    is_weak = q.ref.type.weak if isinstance(q, Tracer) else type(q) in (int, float)
    dtype = own if is_picked or is_weak or not is_float(level.dtype) else np.result_type(own, level.dtype)
    lines = _lines(x, axis)
    n = lines.ref.shape[-1]
    scope = lines.ref.builder.scope
    if scope.decide("==", n, 0):
        raise IndexError(f"{user_source()}: quantile of an empty axis")
    place = level.astype(F64) * Tracer(number(n - 1, lift(0.0, F64, lines.ref.builder)))
    below = xp.floor(place)
    ranks = [i.astype(I64) for i in _METHODS[method](place, below)]
    if has_tracer(q) or np.size(q) > MOST_LEVELS:
        ordered = sort_(lines)
        picks = [take(ordered, i, axis=-1).astype(own) for i in ranks]
    else:
        picks = [x.astype(own) for x in _picked(lines, ranks)]
    if method == "linear" and not is_picked:
        out = _lerp(picks[0], picks[1], (place - below).astype(dtype))
    else:
        out = picks[0] if is_picked else _middle(picks[0].astype(dtype), picks[1].astype(dtype))
    out = xp.moveaxis(out, range(out.ndim - level.ndim, out.ndim), range(level.ndim)) if level.ndim else out
    if is_inexact(lines.dtype):
        out = where(xp.any(xp.isnan(lines), axis=-1), np.array(np.nan, dtype), out)
    if is_given(keepdims) and keepdims:
        axes = range(x.ndim) if axis is None else [as_axis(k, x.ndim) for k in (axis if isinstance(axis, tuple) else (axis,))]
        out = xp.expand_dims(out, tuple(level.ndim + k for k in axes))
    return out.copy() if out.owner == "view" else out


def _picked(lines: Tracer, ranks: Sequence[Tracer]) -> list[Tracer]:
    """What stands at places of equal shapes in each line, if that is sorted."""
    found = Tracer(ranked(lines.ref, xp.ravel(xp.stack(ranks, axis=-1)).ref))  # those beside each other are found together
    return [found[..., k::len(ranks)].reshape((*lines.shape[:-1], *i.shape)) for k, i in enumerate(ranks)]


def _lerp(low: Tracer, high: Tracer, t: Tracer) -> Traced:
    """NumPy's interpolation, exact at both ends."""
    distance = high - low
    return where(t >= 0.5, high - distance * (1 - t), low + distance * t)


def _middle(low: Tracer, high: Tracer) -> Traced:
    """Half their sum, which is beyond no half float's range."""
    wide = low.astype(np.float32) if low.dtype.itemsize == 2 else low
    return ((wide + high) * np.array(0.5, wide.dtype)).astype(low.dtype)


def _check_levels(q: Any, greatest: int, name: str) -> None:
    """ValueError for levels out of their range, where they are known."""
    if not has_tracer(q):
        levels = np.asarray(q)
        if not np.all((levels >= 0) & (levels <= greatest)):
            raise ValueError(f"{user_source()}: {name} must be in the range [0, {greatest}]")


@implements(np.quantile)
def quantile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: Any = False, *, weights: Any = None, interpolation: Any = None) -> Traced:
    refuse("quantile", out=out, weights=weights, interpolation=interpolation)
    _check_levels(q, 1, "Quantiles")
    return _quantile(as_tracer(a), q, axis, method, keepdims)


@implements(np.percentile)
def percentile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
               keepdims: Any = False, *, weights: Any = None, interpolation: Any = None) -> Traced:
    refuse("percentile", out=out, weights=weights, interpolation=interpolation)
    _check_levels(q, 100, "Percentiles")
    level = q / 100 if type(q) in (int, float) or isinstance(q, Tracer) else np.asarray(q) / 100
    return _quantile(as_tracer(a), level, axis, method, keepdims)


@implements(np.median)
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: Any = False) -> Traced:
    """The mean of the two middle elements, which are one where their number is odd."""
    refuse("median", out=out)
    x = as_tracer(a)
    x = x if is_inexact(x.dtype) else x.astype(F64)
    n = _lines(x, axis).ref.shape[-1]
    if x.ref.builder.scope.decide("==", n, 0):
        return xp.mean(x, axis, keepdims=keepdims)
    if x.ref.builder.scope.decide("divides", 2, n):
        return _quantile(x, 0.5, axis, "midpoint", keepdims)
    return _quantile(x, 0.5, axis, "lower", keepdims)
