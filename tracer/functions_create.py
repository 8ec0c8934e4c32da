"""Creation of traced arrays: sizes may be symbolic, and the result is local, so that it can be written."""
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref, innermost
from loopwright.ir.dims import Shape
from loopwright.ir.errors import LeakedValueError
from loopwright.ir.ops import comparison
from loopwright.ir.ops.construct import iota
from loopwright.ir.source import user_source
from loopwright.ir.types import F64, I64, is_integer
from loopwright.tracer.axes import NO_VALUE, as_shape, as_size, as_tracer, as_tracers, is_given
from loopwright.tracer.promotion import (
    as_dtype,
    as_operand,
    broadcast,
    broadcast_shapes,
    constant,
    convert,
    kind_of,
    lift,
    lift_own,
    result_kind,
)
from loopwright.tracer.size import as_extent, sized
from loopwright.tracer.tables import Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer


def _here() -> Builder:
    """The trace that a creation function makes its array in."""
    builder = innermost()
    if builder is None:
        raise LeakedValueError(f"{user_source()}: an array was made from a symbolic size outside the trace it belongs to.")
    return builder


def _full(shape: Shape, value: Any, dtype: Any) -> Traced:
    builder = _here()
    if isinstance(value, Tracer):
        builder = value.ref.builder if value.ref.builder.serial > builder.serial else builder
        held = convert(value.ref, as_dtype(dtype))
        shape = broadcast_shapes(builder.scope, shape, held.shape)
        return Tracer(broadcast(held, shape), contiguous=True)
    return Tracer(constant(value, as_dtype(dtype), builder.scope.canonical_shape(shape), builder), contiguous=True)


def _default(dtype: Any, otherwise: Any = F64) -> Any:
    return otherwise if dtype is None else dtype


@implements(np.zeros)
def zeros(shape: Any, dtype: Any = None, order: str = "C", *, device: None = None) -> Traced:
    return _full(as_shape(shape), 0, _default(dtype))


@implements(np.ones)
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: None = None) -> Traced:
    return _full(as_shape(shape), 1, _default(dtype))


@implements(np.empty)
def empty(shape: Any, dtype: Any = None, order: str = "C", *, device: None = None) -> Traced:
    return zeros(shape, dtype)


@implements(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: None = None) -> Traced:
    value = as_operand(fill_value)
    if isinstance(value, np.ndarray):
        value = as_tracer(value, _here())
    return _full(as_shape(shape), value, dtype if dtype is not None else result_kind(kind_of(value)))


def _like(a: Any, value: Any, dtype: Any, shape: Any) -> Traced:
    x = as_tracer(a)
    ref = x.ref
    new = ref.shape if shape is None else as_shape(shape)
    to = as_dtype(_default(dtype, ref.dtype))
    if isinstance(value, (Tracer, np.ndarray, list, tuple)):
        held = as_tracer(value, ref.builder)
        out = broadcast(convert(held.ref, to), broadcast_shapes(ref.builder.scope, new, held.ref.shape))
        return Tracer(out, contiguous=True)
    return Tracer(constant(value, to, new, ref.builder), contiguous=True)


@implements(np.zeros_like, np.empty_like)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
               device: None = None) -> Traced:
    return _like(a, 0, dtype, shape)


@implements(np.ones_like)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: None = None) -> Traced:
    return _like(a, 1, dtype, shape)


@implements(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: None = None) -> Traced:
    return _like(a, fill_value, dtype, shape)


# ---- ranges -------------------------------------------------------------------------------------
@implements(np.arange)
def arange(start: Any = NO_VALUE, stop: Any = NO_VALUE, step: Any = 1, dtype: Any = None, *, device: None = None) -> Traced:
    if not is_given(stop):
        start, stop = 0, start
    step = 1 if step is None else step
    kind = as_dtype(dtype) if dtype is not None else result_kind(*[kind_of(as_operand(v)) for v in (start, stop, step)])
    builder = _here()
    if any(as_extent(v) is None for v in (start, stop, step)):
        first, last, by = (float(v) for v in (start, stop, step))
        length: Any = max(math.ceil((last - first) / by), 0)
    else:
        length = _steps(builder, start, stop, step)
    at = iota(into=builder, shape=(length,), axis=0, dtype=I64)
    return Tracer(_line(at, start, step, kind), contiguous=True)


def _steps(builder: Builder, start: Any, stop: Any, step: Any) -> Any:
    """How many integers from start to stop: a size where they are."""
    scope, by = builder.scope, builder.scope.value(as_size(step))
    if by == 0:
        raise ValueError(f"{user_source()}: arange: the step must not be zero")
    distance = as_size(stop) - as_size(start) if by > 0 else as_size(start) - as_size(stop)
    if not scope.decide("<=", 0, distance):
        return 0
    return scope.canonical((distance + (abs(by) - 1)) // abs(by))


def _line(at: Ref, start: Any, step: Any, dtype: np.dtype) -> Ref:
    """start + step * position."""
    out: Any = Tracer(at)
    exact = I64 if all(as_extent(v) is not None for v in (start, step)) else F64
    if exact == F64:
        out = out.astype(F64)
    if not (isinstance(step, int) and step == 1):
        out = out * step
    if not (isinstance(start, int) and start == 0):
        out = out + start
    return convert(out.ref, dtype)


@implements(np.linspace)
def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: Any = 0, *, device: None = None) -> Any:
    builder = _here()
    count = as_size(num)
    scope = builder.scope
    if not scope.decide("<=", 0, count):
        raise ValueError(f"{user_source()}: Number of samples, {num}, must be non-negative.")
    ends = as_operand(start), as_operand(stop)
    inner = result_kind(*map(kind_of, ends), float)
    a, b = (as_tracer(v, builder).astype(inner) for v in ends)  # whole numbers do not overflow
    kind = as_dtype(dtype) if dtype is not None else inner
    parts = count - 1 if endpoint else count
    at = Tracer(iota(into=builder, shape=(count,), axis=0, dtype=I64)).astype(inner)
    delta = b - a
    if scope.decide("<=", parts, 0):
        step: Any = math.nan
        out = at.reshape((-1, *[1] * delta.ndim)) * delta + a
    else:
        step = delta / sized(parts, scope)
        out = at.reshape((-1, *[1] * delta.ndim)) * step + a
        if endpoint:
            last = xp.equal(xp.arange(sized(count, scope), like=at), sized(count - 1, scope))
            out = xp.where(last.reshape((-1, *[1] * delta.ndim)), b, out)
    out = xp.floor(out) if is_integer(kind) else out
    out = xp.moveaxis(out.astype(kind), 0, axis) if axis else out.astype(kind)
    return (out, step) if retstep else out


# ---- matrices -----------------------------------------------------------------------------------
@implements(np.eye)
def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C", *, device: None = None) -> Traced:
    shape = (as_size(N), as_size(N if M is None else M))
    row, column = (iota(into=_here(), shape=shape, axis=a, dtype=I64) for a in (0, 1))
    edge = row if isinstance(k, int) and k == 0 else (Tracer(row) + k).ref
    return Tracer(convert(comparison.eq(edge, column), as_dtype(dtype)), contiguous=True)


@implements(np.identity)
def identity(n: Any, dtype: Any = None) -> Traced:
    return eye(n, dtype=_default(dtype))


@implements(np.tri)
def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Traced:
    shape = (as_size(N), as_size(N if M is None else M))
    row, column = (Tracer(iota(into=_here(), shape=shape, axis=a, dtype=I64)) for a in (0, 1))
    return (column <= row + k).astype(as_dtype(dtype))


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Traced, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError(f"{user_source()}: Valid values for `indexing` are 'xy' and 'ij'.")
    xs = [xp.ravel(x) for x in as_tracers(*xi)] if xi else []
    rank = len(xs)
    place = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    grids = [x[tuple(slice(None) if a == place[k] else None for a in range(rank))] for k, x in enumerate(xs)]
    return tuple(grids) if sparse or not grids else tuple(g.copy() for g in xp.broadcast_arrays(*grids))


# ---- conversion ---------------------------------------------------------------------------------
@implements(np.array)
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0,
          like: Any = None) -> Traced:
    """A traced copy of an array, a number or nested sequences of them."""
    x = as_operand(object)
    builder = _here()
    ref = lift_own(x, builder) if dtype is None else lift(x, as_dtype(dtype), builder)
    out = Tracer(ref, contiguous=True)
    return out if out.ndim >= ndmin else out.reshape((1,) * (operator.index(ndmin) - out.ndim) + out.shape)


@implements(np.asarray)
def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: None = None, copy: Any = None, like: Any = None) -> Traced:
    """The array itself where it is traced and has the dtype."""
    if isinstance(a, Tracer) and not copy and (dtype is None or as_dtype(dtype) == a.dtype):
        return a
    return array(a, dtype)


implements(np.asanyarray, np.ascontiguousarray)(asarray)


@implements(np.fromfunction)
def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **options: Any) -> Any:
    return function(*_grid(as_shape(shape), dtype), **options)


def _grid(shape: Shape, dtype: Any) -> list[Traced]:
    """For each axis the array of its positions."""
    return [Tracer(iota(into=_here(), shape=shape, axis=a, dtype=as_dtype(dtype))) for a in range(len(shape))]


@implements(np.indices)
def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    if sparse:
        raise unsupported("np.indices(sparse=True)")
    return xp.stack(_grid(as_shape(dimensions), dtype))


