"""NumPy's slopes, integrals and covariances of samples, and bins of values: compositions of its other functions.

Guarantees: NumPy's formulas and dtypes; what depends on the direction of traced bins is chosen when the program runs.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX, F64, is_inexact
from loopwright.tracer.axes import as_axes, as_axis, as_tracer, as_tracers, refuse
from loopwright.tracer.promotion import as_dtype, kind_of, result_kind
from loopwright.tracer.tables import Traced, implements, xp
from loopwright.tracer.tracer import Tracer


# ---- slopes and integrals -------------------------------------------------------------------------
@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    x = as_tracer(f)
    x = x if is_inexact(x.dtype) else x.astype(F64)
    axes = as_axes(axis, x.ndim)
    steps = varargs * len(axes) if len(varargs) == 1 and xp.ndim(varargs[0]) == 0 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes):
        raise TypeError(f"{user_source()}: invalid number of arguments: gradient takes a spacing for each of {len(axes)} axes")
    if edge_order not in (1, 2):
        raise ValueError(f"{user_source()}: 'edge_order' greater than 2 not supported")
    out = [_slopes(x, k, step, edge_order) for k, step in zip(axes, steps, strict=True)]
    return out[0] if len(out) == 1 else tuple(out)


def _slopes(x: Tracer, axis: int, step: Any, order: int) -> Traced:
    """Central differences inside, one-sided ones of the order at both ends."""
    y = xp.moveaxis(x, axis, 0)
    if y.shape[0] < order + 1:
        raise ValueError(f"{user_source()}: Shape of array too small to calculate a numerical gradient, at least "
                         f"(edge_order + 1) elements are required.")
    if xp.ndim(step) == 0:
        inside = (y[2:] - y[:-2]) / (2.0 * step)
        first, last = _ends(y, [step, step], [step, step], order)
    else:
        h = _distances(y, step)
        before, after = h[:-1], h[1:]
        inside = (-after / (before * (before + after)) * y[:-2] + (after - before) / (before * after) * y[1:-1]
                  + before / (after * (before + after)) * y[2:])
        first, last = _ends(y, h[:order], h[-order:], order)
    return xp.moveaxis(xp.concatenate([first[None], inside, last[None]]).astype(x.dtype), 0, axis)


def _distances(y: Tracer, at: Any) -> Traced:
    """Between coordinates along the first axis of y, with y's number of axes."""
    t = as_tracer(at, y.ref.builder)
    if t.ndim != 1 or not y.ref.builder.scope.equate(t.ref.shape[0], y.ref.shape[0]):
        raise ValueError(f"{user_source()}: when 1d, distances must match the length of the corresponding dimension")
    t = t if is_inexact(t.dtype) else t.astype(F64)
    return xp.diff(t).reshape(-1, *[1] * (y.ndim - 1))


def _ends(y: Tracer, head: Any, tail: Any, order: int) -> tuple[Any, Any]:
    if order == 1:
        return (y[1] - y[0]) / head[0], (y[-1] - y[-2]) / tail[-1]
    a, b = head[0], head[1]
    c, d = tail[-2], tail[-1]
    first = (-(2.0 * a + b) / (a * (a + b)) * y[0] + (a + b) / (a * b) * y[1] - a / (b * (a + b)) * y[2])
    last = (d / (c * (c + d)) * y[-3] - (d + c) / (c * d) * y[-2] + (2.0 * d + c) / (d * (c + d)) * y[-1])
    return first, last


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Traced:
    t = as_tracer(y) if x is None else as_tracers(y, x)[0]
    k = as_axis(axis, t.ndim)
    t = xp.moveaxis(t, k, -1)
    if x is None:
        width = dx
    else:
        at = as_tracers(x, t)[0]
        width = xp.diff(at) if at.ndim == 1 else xp.moveaxis(xp.diff(at, axis=axis), axis, -1)
    return xp.sum(width * (t[..., 1:] + t[..., :-1]) / 2.0, axis=-1)


# ---- covariances ----------------------------------------------------------------------------------
@implements(np.cov)
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: None = None,
        aweights: None = None, *, dtype: Any = None) -> Traced:
    refuse("cov", fweights=fweights, aweights=aweights)
    given = as_tracers(m) if y is None else as_tracers(m, y)
    if any(t.ndim > 2 for t in given):
        raise ValueError(f"{user_source()}: m and y have at most 2 dimensions")
    kind = as_dtype(dtype) if dtype is not None else result_kind(*map(kind_of, given), F64)
    parts = [xp.atleast_2d(t.astype(kind)) for t in given]
    parts = [p if rowvar or t.ndim < 2 else p.T for p, t in zip(parts, given, strict=True)]
    rows = parts[0] if y is None else xp.concatenate(parts)
    count = rows.shape[1]
    less = ddof if ddof is not None else 0 if bias else 1
    rows = rows - xp.mean(rows, axis=1, keepdims=True)
    one = rows.real.dtype.type(1)
    share = one / (count - less) if count > less else np.inf
    return xp.squeeze(xp.dot(rows, rows.T.conj()) * share)


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Traced:
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    deviation = xp.sqrt(xp.diagonal(c).real)
    c = c / deviation[:, None] / deviation[None, :]
    if c.dtype in COMPLEX:
        return xp.clip(c.real, -1, 1) + 1j * xp.clip(c.imag, -1, 1)
    return xp.clip(c, -1, 1)


# ---- bins -----------------------------------------------------------------------------------------
@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Traced:
    t, edges = as_tracers(x, bins)
    if edges.ndim != 1:
        raise ValueError(f"{user_source()}: digitize takes bins of one axis, got shape {edges.shape}")
    side: Any = "left" if right else "right"
    rising = xp.searchsorted(edges, t, side=side)
    if edges.shape[0] == 0:
        return rising
    falling = edges.shape[0] - xp.searchsorted(edges[::-1], t, side=side)
    return xp.where(edges[0] <= edges[-1], rising, falling)
