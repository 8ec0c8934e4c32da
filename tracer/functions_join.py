"""NumPy's functions that join arrays, pad them, and take or place diagonals and triangles, on traced arrays."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import ConcretizationError, ShapeError
from loopwright.ir.ops import comparison
from loopwright.ir.ops.construct import iota, zeros_like
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import concatenate, pad, section, transpose
from loopwright.ir.source import user_source
from loopwright.ir.types import I64
from loopwright.tracer.axes import as_axis, as_size, as_tracer, as_tracers, known_list, refuse
from loopwright.tracer.promotion import (
    as_dtype,
    as_operand,
    broadcast,
    constant,
    convert,
    exact,
    lift,
    newest_builder,
    own_kind,
    reshape,
    result_kind,
)
from loopwright.tracer.size import as_extent, sized
from loopwright.tracer.tables import Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer


# ---- joining ------------------------------------------------------------------------------------
def _common(arrays: Sequence[Any], dtype: Any = None, casting: str = "same_kind") -> list[Ref]:
    """The operands in one trace at one dtype, which they may be cast to."""
    xs = [as_operand(a) for a in arrays]
    if not xs:
        raise ValueError(f"{user_source()}: need at least one array to join")
    builder = newest_builder(xs)
    kinds = list(map(own_kind, xs))
    common = as_dtype(dtype) if dtype is not None else result_kind(*kinds)
    for kind in kinds:
        if not np.can_cast(kind, common, casting):  # type: ignore[arg-type]
            raise TypeError(f"{user_source()}: Cannot cast array data from {kind} to {common} according to the rule "
                            f"{casting!r}")
    return [lift(x, common, builder) for x in xs]


def _as_list(arrays: Any) -> list[Any]:
    return [arrays[k] for k in range(len(arrays))] if isinstance(arrays, Tracer) else list(arrays)


@implements(np.concatenate)
def concatenate_(arrays: Any, /, axis: Any = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Traced:
    refuse("concatenate", out=out)
    refs = _common(_as_list(arrays), dtype, casting)
    if axis is None:
        refs, axis = [reshape(r, (_size(r),)) for r in refs], 0
    rank = len(refs[0].shape)
    if rank == 0:
        raise ValueError(f"{user_source()}: zero-dimensional arrays cannot be concatenated")
    k = as_axis(axis, rank)
    _check_parts(refs, k)
    return Tracer(concatenate(*refs, axis=k), contiguous=True) if len(refs) > 1 else Tracer(refs[0])


def _size(x: Ref) -> Extent:
    return x.type.size


def _check_parts(refs: list[Ref], axis: int) -> None:
    """Equal ranks, and equal sizes but along the axis."""
    scope, first = refs[0].builder.scope, refs[0]
    for number, r in enumerate(refs[1:], start=1):
        if len(r.shape) != len(first.shape):
            raise ShapeError(f"{user_source()}: all the input array dimensions must match: the array at index 0 has "
                             f"{len(first.shape)} dimension(s) and the array at index {number} has {len(r.shape)}")
        for a, (n, m) in enumerate(zip(first.shape, r.shape, strict=True)):
            if a != axis and not scope.equate(n, m):
                raise ShapeError(f"{user_source()}: all the input array dimensions except the concatenation axis must match "
                                 f"exactly, but along dimension {a}, the array at index 0 has shape "
                                 f"{scope.describe(first.shape)} and the array at index {number} has {scope.describe(r.shape)}")


@implements(np.stack)
def stack(arrays: Any, axis: Any = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Traced:
    refuse("stack", out=out)
    refs = _common(_as_list(arrays), dtype, casting)
    scope = refs[0].builder.scope
    for r in refs[1:]:
        if len(r.shape) != len(refs[0].shape) or not all(
                scope.equate(n, m) for n, m in zip(refs[0].shape, r.shape, strict=True)):
            raise ShapeError(f"{user_source()}: all input arrays must have the same shape, got "
                             f"{' '.join(scope.describe(r.shape) for r in refs)}")
    k = as_axis(axis, len(refs[0].shape) + 1)
    return concatenate_([Tracer(reshape(r, (*r.shape[:k], 1, *r.shape[k:]))) for r in refs], axis=k)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Traced:
    return concatenate_([xp.atleast_2d(x) for x in as_tracers(*_as_list(tup))], 0, dtype=dtype,
                        casting=casting)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Traced:
    xs = [xp.atleast_1d(x) for x in as_tracers(*_as_list(tup))]
    return concatenate_(xs, 0 if xs and xs[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Any) -> Traced:
    return concatenate_([xp.atleast_3d(x) for x in as_tracers(*_as_list(tup))], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Traced:
    return concatenate_([x if x.ndim > 1 else xp.reshape(x, (-1, 1)) for x in as_tracers(*_as_list(tup))], 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Traced:
    x, y = as_tracers(arr, values)
    if axis is None:
        x, y, axis = xp.ravel(x), xp.ravel(y), 0
    return concatenate_((x, y), axis)


@implements(np.block)
def block(arrays: Any) -> Traced:
    depth = _depth(arrays)
    return _block(arrays, depth, max(depth, _most_dims(arrays)))


def _depth(x: Any) -> int:
    return 1 + _depth(x[0]) if isinstance(x, list) else 0


def _most_dims(x: Any) -> int:
    return max(map(_most_dims, x)) if isinstance(x, list) else xp.ndim(x)


def _block(x: Any, depth: int, rank: int) -> Traced:
    if not isinstance(x, list):
        own = as_tracer(x)
        return xp.reshape(own, (1,) * (rank - own.ndim) + own.shape)
    return concatenate_([_block(y, depth - 1, rank) for y in x], axis=-depth)


# ---- padding ------------------------------------------------------------------------------------
def _pairs(x: Any, rank: int, what: str, convert_one: Any) -> list[tuple[Any, Any]]:
    """NumPy's ways to give a before and an after for every axis: what broadcasts to rank pairs. ShapeError for other shapes."""
    if isinstance(x, dict):
        given = {as_axis(k, rank): v if isinstance(v, (tuple, list)) else (v, v) for k, v in x.items()}
        return [tuple(map(convert_one, given.get(k, (0, 0)))) for k in range(rank)]
    x = known_list(x)
    rows = list(x) if isinstance(x, (tuple, list)) else [x]
    if not any(isinstance(row, (tuple, list, np.ndarray)) for row in rows):
        rows = [rows]
    lengths = {len(row) if isinstance(row, (tuple, list, np.ndarray)) else 0 for row in rows}
    if lengths not in ({1}, {2}) or len(rows) not in (1, rank):
        raise ShapeError(f"{user_source()}: {what} {x} does not fit an array with {rank} axes: give a number, (before, after), "
                         f"or a pair for each axis")
    pairs = [(convert_one(row[0]), convert_one(row[-1])) for row in rows]
    return pairs * rank if len(rows) == 1 else pairs


def _width(n: Any) -> Extent:
    try:
        return as_size(n)
    except ConcretizationError:  # which says more
        raise
    except TypeError:
        raise TypeError(f"{user_source()}: `pad_width` must be of integral type, got {n!r}") from None


@implements(np.pad)
def pad_(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Traced:
    x = as_tracer(array)
    widths = _pairs(pad_width, x.ndim, "pad_width", _width)
    scope = x.ref.builder.scope
    if not all(scope.decide("<=", 0, w) for pair in widths for w in pair):
        raise ValueError(f"{user_source()}: index can't contain negative values")
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, options.pop("constant_values", 0))
    if mode not in _PAD_SECTIONS or options.get("reflect_type", "even") != "even":
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        raise unsupported(f"np.pad(mode={mode!r}{given})")
    for axis, (before, after) in enumerate(widths):
        if (before, after) != (0, 0):
            x = _pad_by_position(x, axis, before, after, mode)
    return x


def _pad_constant(x: Tracer, widths: list[tuple[Extent, Extent]], values: Any) -> Traced:
    ref = x.ref
    pairs = _pairs(values, x.ndim, "constant_values", lambda v: v)
    flat = [v for pair in pairs for v in pair]
    if all(isinstance(v, (bool, int, float, complex, np.generic)) for v in flat):
        held = [exact(v, ref.dtype) for v in flat]
        if all(repr(v) == repr(held[0]) for v in held):
            shape = tuple(b + n + a for n, (b, a) in zip(ref.shape, widths, strict=True))
            step = (1,) * x.ndim
            return Tracer(pad(ref, shape=shape, start=tuple(b for b, _ in widths), step=step, value=held[0])) if x.ndim else x
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, pairs, strict=True)):
        parts = [_filled(ref, axis, before, first), ref, _filled(ref, axis, after, last)]
        ref = concatenate(*parts, axis=axis)
    return Tracer(ref)


def _filled(x: Ref, axis: int, size: Extent, value: Any) -> Ref:
    shape = tuple(size if k == axis else n for k, n in enumerate(x.shape))
    if isinstance(value, Tracer):
        return broadcast(convert(value.ref, x.dtype), shape)
    return constant(value, x.dtype, shape, x.builder)


def _reflected(i: Any, n: Any) -> Any:
    """A triangle wave of period 2(n - 1)."""
    folded = xp.remainder(i, xp.maximum(2 * (n - 1), 1))
    return xp.minimum(folded, 2 * (n - 1) - folded)


def _symmetric(i: Any, n: Any) -> Any:
    """A triangle wave of period 2n that stays two steps at each end."""
    folded = xp.remainder(i, 2 * n)
    return xp.minimum(folded, 2 * n - 1 - folded)


_PAD_POSITIONS: dict[str, Any] = {
    "wrap": np.remainder,
    "reflect": _reflected,
    "symmetric": _symmetric,
}


# Where the axis is longer than what is added, that is a section of it: x, the axis, its size, how many before and after it.
_PAD_SECTIONS: dict[str, Any] = {
    "edge": lambda x, axis, n, before, after: (
        _repeated(x, axis, 0, before), _repeated(x, axis, n - 1, after)),
    "wrap": lambda x, axis, n, before, after: (
        section(x, axis, n - before, before), section(x, axis, 0, after)),
    "reflect": lambda x, axis, n, before, after: (
        section(x, axis, before, before, -1), section(x, axis, n - 2, after, -1)),
    "symmetric": lambda x, axis, n, before, after: (
        section(x, axis, before - 1, before, -1), section(x, axis, n - 1, after, -1)),
}


def _repeated(x: Ref, axis: int, at: Extent, size: Extent) -> Ref:
    """One position of an axis, so many times."""
    return broadcast(section(x, axis, at, 1), tuple(size if a == axis else n for a, n in enumerate(x.shape)))


def _pad_by_position(x: Tracer, axis: int, before: Extent, after: Extent, mode: str) -> Traced:
    """Sections of the axis around it; where these are longer than it, each place reads a place of the axis."""
    ref, scope = x.ref, x.ref.builder.scope
    n = ref.shape[axis]
    if scope.decide("==", n, 0):
        raise ValueError(f"{user_source()}: can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    if mode == "edge" or (scope.decide("<=", before, n - 1) and scope.decide("<=", after, n - 1)):
        first, last = _PAD_SECTIONS[mode](ref, axis, n, before, after)
        return Tracer(concatenate(*(v for v in (first, ref, last) if v.shape[axis] != 0), axis=axis))
    places = Tracer(iota(into=ref.builder, shape=(before + n + after,), axis=0, dtype=I64))
    size = Tracer(lift(sized(n, scope), I64, ref.builder))
    positions = _PAD_POSITIONS[mode](places - Tracer(lift(sized(before, scope), I64, ref.builder)), size)
    return xp.take(x, positions, axis=axis)


# ---- diagonals and triangles --------------------------------------------------------------------
def positions(shape: Shape, axis: int, into: Builder) -> Ref:
    """Each element's position along an axis."""
    return iota(into=into, shape=shape, axis=axis, dtype=I64)


def _shifted(x: Ref, by: Any) -> Ref:
    """x + by for integers."""
    return x if isinstance(by, int) and by == 0 else (Tracer(x) + by).ref


@implements(np.diagonal)
def diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Traced:
    x = as_tracer(a)
    if x.ndim < 2:
        raise ValueError(f"{user_source()}: diag requires an array of at least two dimensions")
    i, j = as_axis(axis1, x.ndim), as_axis(axis2, x.ndim)
    if i == j:
        raise ValueError(f"{user_source()}: axis1 and axis2 cannot be the same")
    return x.made(lambda ref: _diagonal(ref, as_size(offset), i, j))


def _diagonal(x: Ref, offset: Extent, i: int, j: int) -> Ref:
    scope, rank = x.builder.scope, len(x.shape)
    is_upper = scope.decide("<=", 0, offset)
    rows, columns = (0, offset) if is_upper else (offset * -1, 0)
    length = _shortest(scope, x.shape[i] - rows, x.shape[j] - columns)
    at = positions((length,), 0, x.builder)
    index = [_shifted(at, sized(by, scope)) for by in (rows, columns)]
    out = gather(x, *index, axes=(i, j), batch=0, mode="promise_in_bounds")
    return out if rank == 2 else transpose(out, perm=(*range(1, rank - 1), 0))


def _shortest(scope: Any, n: Extent, m: Extent) -> Extent:
    shorter = n if n == m or scope.decide("<=", n, m) else m
    return shorter if scope.decide("<=", 0, shorter) else 0


@implements(np.trace)
def trace(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: None = None) -> Traced:
    return xp.sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


implements(np.linalg.diagonal)(lambda x, /, *, offset=0: diagonal(x, offset, -2, -1))
implements(np.linalg.trace)(
    lambda x, /, *, offset=0, dtype=None: xp.sum(diagonal(x, offset, -2, -1), axis=-1, dtype=dtype))


@implements(np.diag)
def diag(v: Any, k: Any = 0) -> Traced:
    x = as_tracer(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError(f"{user_source()}: Input must be 1- or 2-d.")
    return Tracer(_diagonal_matrix(x.ref, as_size(k)))


def _diagonal_matrix(x: Ref, offset: Extent) -> Ref:
    """v[i] at (i, i + offset): rows hold v spread along the columns, and all but one place of each is masked."""
    scope = x.builder.scope
    is_upper = scope.decide("<=", 0, offset)
    n = x.shape[0] + (offset if is_upper else offset * -1)
    line = pad(x, shape=(n,), start=(0,), step=(1,), value=0) if offset != 0 else x
    spread = broadcast(reshape(line, (n, 1) if is_upper else (1, n)), (n, n))
    row, column = (positions((n, n), axis, x.builder) for axis in (0, 1))
    return select(comparison.eq(_shifted(row, sized(offset, scope)), column), spread, zeros_like(spread))


@implements(np.diagflat)
def diagflat(v: Any, k: Any = 0) -> Traced:
    return diag(xp.ravel(as_tracer(v)), k)


def _triangle(m: Any, k: Any, lower: bool) -> Traced:
    x = as_tracer(m).ref
    if len(x.shape) == 1:  # as NumPy: broadcast against the square mask
        x = broadcast(x, (x.shape[0], x.shape[0]))
    square = x.shape[-2:]
    row, column = (positions(square, axis, x.builder) for axis in (0, 1))
    edge = _shifted(row, k if as_extent(k) is None else sized(as_size(k), x.builder.scope))
    inside = comparison.le(column, edge) if lower else comparison.le(edge, column)
    return Tracer(select(broadcast(inside, x.shape), x, zeros_like(x)))


implements(np.tril)(lambda m, k=0: _triangle(m, k, lower=True))
implements(np.triu)(lambda m, k=0: _triangle(m, k, lower=False))


