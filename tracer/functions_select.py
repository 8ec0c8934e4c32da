"""NumPy's functions that choose, look up, round and compare, on traced arrays.

Guarantees: a function whose result's size depends on values says so and names what keeps the size.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.ops import arithmetic
from loopwright.ir.ops.construct import full_like
from loopwright.ir.ops.indexing import MODES, gather
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.sorting import search
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, COMPLEX, F64, I64, is_float, is_inexact, is_integer
from loopwright.tracer.axes import NO_VALUE, along, as_axis, as_tracer, as_tracers, is_given, refuse
from loopwright.tracer.indexing import known_contents
from loopwright.tracer.promotion import (
    as_dtype,
    as_operand,
    broadcast,
    broadcast_shapes,
    convert,
    kind_of,
    lift,
    lift_to,
    newest_builder,
    result_kind,
    shape_of,
)
from loopwright.tracer.size import Size, sized
from loopwright.tracer.tables import UFUNCS, Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer


# ---- choice -------------------------------------------------------------------------------------
@implements(np.where)
def where(condition: Any, x: Any = NO_VALUE, y: Any = NO_VALUE, /) -> Any:
    if x is NO_VALUE or y is NO_VALUE:
        return nonzero(condition)
    xs = [as_operand(v) for v in (condition, x, y)]
    builder = newest_builder(xs)
    dtype = result_kind(kind_of(xs[1]), kind_of(xs[2]))
    shape = broadcast_shapes(builder.scope, *[shape_of(v) for v in xs])
    truth = lift_to(xs[0], BOOL, shape, builder) if not isinstance(xs[0], (int, float, complex)) else lift_to(
        bool(xs[0]), BOOL, shape, builder)
    return Tracer(select(truth, *[lift_to(v, dtype, shape, builder) for v in xs[1:]]))


@implements(np.select)
def select_(condlist: Any, choicelist: Any, default: Any = 0) -> Traced:
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(f"{user_source()}: list of cases must be same length as list of conditions, and not empty")
    kinds = [kind_of(as_operand(v)) for v in (*choicelist, default)]
    dtype, builder = result_kind(*kinds), newest_builder((*condlist, *choicelist, default))
    out: Any = Tracer(lift(as_operand(default), dtype, builder))
    for k, condition in enumerate(condlist):
        if kind_of(as_operand(condition)) != BOOL:
            raise TypeError(f"{user_source()}: invalid entry {k} in condlist: should be boolean ndarray")
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        out = where(condition, choice, out)
    return out.astype(dtype)


@implements(np.clip)
def clip(a: Any, a_min: Any = NO_VALUE, a_max: Any = NO_VALUE, out: None = None, *, min: Any = NO_VALUE, max: Any = NO_VALUE,
         **options: Any) -> Any:
    refuse("clip", out=out)
    if (is_given(a_min) or is_given(a_max)) and (is_given(min) or is_given(max)):
        raise ValueError(f"{user_source()}: clip takes a_min and a_max, or min= and max=, and not of both")
    low, high = (min if is_given(min) else a_min), (max if is_given(max) else a_max)
    x = a if not isinstance(a, (list, tuple)) else as_tracer(a)
    if (dtype := as_tracer(x).dtype).kind in "iu":  # Python integers past the dtype's bound nothing
        low = NO_VALUE if type(low) is int and low <= np.iinfo(dtype).min else low
        high = NO_VALUE if type(high) is int and high >= np.iinfo(dtype).max else high
    if not is_given(low) and not is_given(high):
        return UFUNCS[np.positive](x) if as_tracer(x).dtype != BOOL else as_tracer(x).copy()
    x = UFUNCS[np.maximum](x, low, **options) if is_given(low) else x
    return UFUNCS[np.minimum](x, high, **options) if is_given(high) else x


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Traced:
    t = as_tracer(x)
    if not is_inexact(t.dtype):
        return t.copy()
    if t.dtype in COMPLEX:
        re, im = (nan_to_num(part, True, nan, posinf, neginf) for part in (xp.real(t), xp.imag(t)))
        return re + im * lift_complex_unit(t)
    limits = np.finfo(t.dtype) if t.dtype.kind == "f" else None
    top = posinf if posinf is not None else (float(limits.max) if limits else 3.3895313892515355e38)
    low = neginf if neginf is not None else (float(limits.min) if limits else -3.3895313892515355e38)
    out = where(xp.isnan(t), nan, t)
    out = where(t == math.inf, top, out)
    return where(t == -math.inf, low, out).astype(t.dtype)


def lift_complex_unit(x: Tracer) -> Traced:
    """1j at a complex dtype."""
    return Tracer(lift(1j, x.dtype, x.ref.builder))


@implements(np.real)
def real(val: Any) -> Traced:
    x = as_tracer(val)
    return x.made(arithmetic.real) if x.dtype in COMPLEX else x


@implements(np.imag)
def imag(val: Any) -> Traced:
    x = as_tracer(val)
    return x.made(arithmetic.imag) if x.dtype in COMPLEX else Tracer(full_like(x.ref, 0))


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    x = as_tracer(z)
    out = xp.arctan2(xp.imag(x), xp.real(x)) if x.dtype.kind == "c" else xp.arctan2(0, x)  # of bool: float64, as NumPy's
    return out * (180 / math.pi) if deg else out


# ---- rounding -----------------------------------------------------------------------------------
@implements(np.round, np.around)
def round_(a: Any, decimals: Any = 0, out: None = None) -> Any:
    refuse("round", out=out)
    x, places = as_tracer(a), operator.index(decimals)
    if x.dtype in COMPLEX:
        return round_(xp.real(x), places) + round_(xp.imag(x), places) * lift_complex_unit(x)
    if not is_float(x.dtype):
        if x.dtype == BOOL:
            raise unsupported("np.round of a bool array", "Convert it with x.astype(...) first.")
        return x.copy() if places >= 0 else _rounded_integer(x, places)
    if places == 0:
        return xp.rint(x)
    scale = 10.0 ** abs(places)
    own = xp.rint((x * scale if places > 0 else x / scale).astype(x.dtype))  # a bfloat16 times a float is a float32
    return (own / scale if places > 0 else own * scale).astype(x.dtype)


def _rounded_integer(x: Tracer, places: int) -> Traced:
    scale = 10.0 ** -places
    return (xp.rint(x / scale) * scale).astype(x.dtype)


@implements(np.fix)
def fix(x: Any, out: None = None) -> Any:
    refuse("fix", out=out)
    return UFUNCS[np.trunc](x)


@implements(np.sinc)
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x); near 0 its Taylor series, whose derivatives are those of the function."""
    y = as_tracer(x) * np.pi
    near = xp.abs(y) < 0.5
    z, series = where(near, y * y, 0), 0.0
    for k in reversed(range(9)):  # the first term left out is below 0.5 ** 18 / 19!
        series = series * z + (-1) ** k / math.factorial(2 * k + 1)
    safe = where(near, 1, y)
    return where(near, series, xp.sin(safe) / safe).astype(y.dtype)


# ---- comparison ---------------------------------------------------------------------------------
@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Traced:
    x, y = (v if isinstance(v, (bool, int, float, complex)) else as_tracer(v) for v in (a, b))
    if isinstance(y, (bool, int)):
        y = float(y)
    elif isinstance(y, Tracer) and not is_inexact(y.dtype):
        y = y.astype(F64)
    near = (xp.abs(x - y) <= atol + rtol * abs(y)) & xp.isfinite(y) | (x == y)
    return near | (xp.isnan(x) & xp.isnan(y)) if equal_nan else near


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Traced:
    return xp.all(isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = as_tracers(a1, a2)
    scope = x.ref.builder.scope
    if x.ndim != y.ndim or not all(scope.equate(n, m) for n, m in zip(x.ref.shape, y.ref.shape, strict=True)):
        return False
    same = x == y
    return xp.all(same | (xp.isnan(x) & xp.isnan(y)) if equal_nan else same)


@implements(np.isin)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Any:
    if kind not in (None, "sort", "table"):
        raise ValueError(f"{user_source()}: isin(kind={kind!r}): the kinds are None, 'sort' and 'table'")
    x, tests = as_tracers(element, test_elements)
    found = xp.any(x[..., None] == xp.ravel(tests), axis=-1)
    return ~found if invert else found


# ---- lookup -------------------------------------------------------------------------------------
@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: None = None, mode: str = "raise") -> Traced:
    refuse("take", out=out)
    x, index = as_tracers(a, indices)
    if not is_integer(index.dtype):
        raise TypeError(f"{user_source()}: take needs integer indices, got {index.dtype}")
    if mode not in MODES:
        raise ValueError(f"{user_source()}: mode must be one of {', '.join(MODES)}, got {mode!r}")
    ref, k = along(x.ref, axis)
    x = Tracer(ref)
    if mode == "clip":  # NumPy's clip knows no negative indices
        index = xp.maximum(index, 0)
    at = convert(index.ref, I64)
    moved = gather(x.ref, at, axes=(k,), batch=0, mode=mode)
    rank = len(at.shape)
    order = (*range(rank, rank + k), *range(rank), *range(rank + k, rank + x.ndim - 1))
    return xp.transpose(Tracer(moved), order).copy() if order != tuple(range(len(order))) else Tracer(moved)


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Traced:
    x, index = as_tracers(arr, indices)
    if index.dtype.kind not in "iu":
        raise IndexError(f"{user_source()}: `indices` must be an integer array, got {index.dtype}")
    if axis is None and index.ndim != 1:
        raise ValueError(f"{user_source()}: when axis=None, `indices` must have a single dimension, got {index.ndim}")
    if axis is None:
        return take(xp.ravel(x), index)
    if x.ndim != index.ndim:
        raise ValueError(f"{user_source()}: `indices` and `arr` must have the same number of dimensions")
    k = as_axis(axis, x.ndim)
    x, index = xp.moveaxis(x, k, -1), xp.moveaxis(index, k, -1)
    scope = x.ref.builder.scope
    batch = broadcast_shapes(scope, x.ref.shape[:-1], index.ref.shape[:-1])
    source = broadcast(x.ref, (*batch, x.ref.shape[-1]))
    at = broadcast(convert(index.ref, I64), (*batch, index.ref.shape[-1]))
    return xp.moveaxis(Tracer(gather(source, at, axes=(len(batch),), batch=len(batch), mode="raise")), -1, k).copy()


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Traced:
    """By halving. Complex numbers are in no order."""
    x, values = as_tracers(a, v)
    if side not in ("left", "right"):
        raise ValueError(f"{user_source()}: side must be 'left' or 'right', got {side!r}")
    if x.ndim != 1:
        raise ValueError(f"{user_source()}: searchsorted looks in an array of one axis, got shape {x.shape}")
    x = x if sorter is None else take(x, sorter)
    dtype = np.promote_types(x.dtype, values.dtype)
    return Tracer(search(convert(x.ref, dtype), convert(values.ref, dtype), side=side, batch=0))


# ---- differences --------------------------------------------------------------------------------
@implements(np.diff)
def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE) -> Any:
    x, times = as_tracer(a), operator.index(n)
    if times < 0:
        raise ValueError(f"{user_source()}: order must be non-negative but got {n!r}")
    k = as_axis(axis, x.ndim)
    parts = [_edge(p, x, k) for p in (prepend, x, append) if p is not NO_VALUE]
    x = xp.concatenate(parts, axis=k) if len(parts) > 1 else x
    before = (slice(None),) * k
    for _ in range(times):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = later != earlier if x.dtype == BOOL else later - earlier
    return x


def _edge(p: Any, x: Tracer, axis: int) -> Any:
    return p if xp.ndim(p) else xp.broadcast_to(as_tracer(p, x.ref.builder), (*x.shape[:axis], 1, *x.shape[axis + 1:]))


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    refuse("ediff1d", to_end=to_end, to_begin=to_begin)
    return diff(xp.ravel(as_tracer(ary)))


def _between_points(t: Tracer, xs: Tracer, ys: Tracer) -> Traced:
    scope, n = xs.ref.builder.scope, xs.ref.shape[0]
    if scope.decide("==", n, 0):
        raise ValueError(f"{user_source()}: array of sample points is empty")
    if scope.decide("==", n, 1):
        return xp.broadcast_to(ys[0], t.shape)
    k = clip(searchsorted(xs, t, side="right") - 1, 0, sized(n - 2, scope))
    x0, x1, y0, y1 = take(xs, k), take(xs, k + 1), take(ys, k), take(ys, k + 1)
    slope, isnan = (y1 - y0) / (x1 - x0), UFUNCS[np.isnan]
    out, other = slope * (t - x0) + y0, slope * (t - x1) + y1
    out = where(isnan(out), where(isnan(other) & (y0 == y1), y0, other), out)  # where points are infinite
    return where(t == x1, y1, where(t == x0, y0, out))


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    refuse("interp", period=period)
    t, xs, ys = as_tracers(x, xp, fp)
    t, xs = t.astype(F64), xs.astype(F64)
    ys = ys if ys.dtype in COMPLEX else ys.astype(F64)
    if xs.ndim != 1 or ys.ndim != 1 or not xs.ref.builder.scope.equate(xs.ref.shape[0], ys.ref.shape[0]):
        raise ValueError(f"{user_source()}: fp and xp are not of the same length")
    out = _between_points(t, xs, ys)
    out = where(t < xs[0], ys[0] if left is None else left, out)
    out = where(t > xs[-1], ys[-1] if right is None else right, out)
    return where(UFUNCS[np.isnan](t), t, out)


# ---- results whose size depends on values -------------------------------------------------------
def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's own function where values are known; else an error that names what keeps the size."""
    def rule(a: Any, *args: Any, **options: Any) -> Any:
        return function(known_contents(as_tracer(a), f"np.{function.__name__}"), *args, **options)
    return rule


for _function in (np.argwhere, np.flatnonzero, np.unique_values, np.unique, np.extract):
    implements(_function)(_by_value(_function))


@implements(np.nonzero)
def nonzero(a: Any) -> Any:
    return xp.nonzero(known_contents(as_tracer(a), "np.nonzero"))


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: None = None) -> Any:
    refuse("compress", out=out)
    if isinstance(condition, Tracer):
        condition = known_contents(condition, "np.compress")
    return take(a, xp.flatnonzero(condition), axis=axis)


# ---- dtypes -------------------------------------------------------------------------------------
@implements(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: None = None, casting: str = "unsafe") -> Traced:
    t, to = as_tracer(x), as_dtype(dtype)
    if not np.can_cast(t.dtype, to, casting):  # type: ignore[arg-type]
        raise TypeError(f"{user_source()}: Cannot cast array data from {t.dtype} to {to} according to the rule '{casting}'")
    return Tracer(convert(t.ref, to), contiguous=t.contiguous) if copy or t.dtype != to else t


@implements(np.copy)
def copy_(a: Any, order: str = "K", subok: bool = False) -> Traced:
    return as_tracer(a).copy("C" if order == "C" else order)


@implements(np.result_type)
def result_type(*xs: Any) -> np.dtype:
    values = (Tracer, Size, np.ndarray, np.generic, int, float, complex)
    return result_kind(*[kind_of(x) if isinstance(x, values) else as_dtype(x) for x in xs])


implements(np.iscomplexobj)(lambda x: as_tracer(x).dtype in COMPLEX)
implements(np.isrealobj)(lambda x: as_tracer(x).dtype not in COMPLEX)
implements(np.iscomplex)(lambda x: xp.imag(x) != 0)
implements(np.isreal)(lambda x: xp.imag(x) == 0)
def _equals(name: str, infinity: float) -> Callable[..., Any]:
    def rule(x: Any, out: None = None) -> Any:
        refuse(name, out=out)
        return x == infinity
    return rule


implements(np.isposinf)(_equals("isposinf", math.inf))
implements(np.isneginf)(_equals("isneginf", -math.inf))
implements(np.may_share_memory, np.shares_memory)(lambda a, b, max_work=None: a is b)
implements(np.array_repr, np.array_str, np.array2string)(lambda a, *args, **kwargs: repr(a))


