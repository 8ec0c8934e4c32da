"""Operations on segments, by JAX's names: `loopwright.ops`.

Row k of `data` belongs to segment segment_ids[k]; a number outside [0, num_segments) belongs to none. Guarantees: the order of
the rows of a segment does not matter to `segment_max` and `segment_min` nor to any derivative; an empty segment has the
operation's neutral element (0, 1, the least and the greatest number). `num_segments` may be a symbolic size.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, quiet, xp
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.op import Op
from loopwright.ir.ops.indexing import scatter_add, scatter_max, scatter_min, scatter_mul
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, I64, INTEGERS, is_inexact
from loopwright.tracer.axes import as_tracers
from loopwright.tracer.tracer import Tracer

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]

_MODES = {None: "fill", "drop": "fill", "fill": "fill", "clip": "clip", "promise_in_bounds": "promise_in_bounds"}


def _placed(name: str, data: Any, segment_ids: Any, num_segments: Any, mode: str | None) -> tuple[Array, Array, Any, str]:
    """data, the segments as int64, their number and the mode of the scatter."""
    data, ids = (x if isinstance(x, Tracer) else xp.asarray(x) for x in (data, segment_ids))
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"{user_source()}: {name}: segment_ids must be integers, got {ids.dtype}.")
    if ids.ndim != 1 or not data.ndim:
        raise ShapeError(f"{user_source()}: {name}: segment_ids must have one axis, that of data's rows; got shapes "
                         f"{data.shape} and {ids.shape}.")
    if ids.shape[0] != data.shape[0]:
        raise ShapeError(f"{user_source()}: {name}: data has {data.shape[0]} rows, and segment_ids {ids.shape[0]} numbers.")
    if mode not in _MODES:
        raise ValueError(f"{user_source()}: {name}: mode must be one of {', '.join(str(m) for m in _MODES)}, got {mode!r}.")
    if num_segments is None:
        if isinstance(ids, Tracer):
            raise ArgumentError(f"{user_source()}: {name}: a traced call needs num_segments=: the number of segments would be "
                                f"a size made from data.")
        num_segments = int(np.max(ids, initial=-1)) + 1
    return data, ids.astype(I64), num_segments, _MODES[mode]


def _combined(op: Op, neutral: Any, data: Array, ids: Array, num_segments: Any, mode: str) -> Array:
    """The scatter of the rows into an array of the neutral element. Negative numbers do not count from the end."""
    if mode == "fill":
        ids = xp.where(ids < 0, np.iinfo(I64).max, ids)
    elif mode == "clip":
        ids = xp.maximum(ids, 0)
    base = xp.full((num_segments, *data.shape[1:]), neutral, dtype=data.dtype)
    if not any(isinstance(x, Tracer) for x in (base, data, ids)):
        return op.numpy(base, data, ids, axes=(0,), batch=0, mode=mode)
    base, data, ids = as_tracers(base, data, ids)
    return Tracer(op(base.ref, data.ref, ids.ref, axes=(0,), batch=0, mode=mode))


@quiet
def segment_sum(data: Any, segment_ids: Any, num_segments: Any = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: str | None = None) -> Array:
    """[num_segments, ...]: the sums of the rows of each segment. The promises about indices and `bucket_size` change nothing.

    mode: what an index outside does: "drop" (the default) or "clip".

    >>> segment_sum(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0]), 3)
    array([4., 2., 0.])
    """
    return _combined(scatter_add, 0, *_placed("segment_sum", data, segment_ids, num_segments, mode))


@quiet
def segment_prod(data: Any, segment_ids: Any, num_segments: Any = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False, bucket_size: int | None = None, mode: str | None = None) -> Array:
    """[num_segments, ...]: the products of the rows of each segment. First and second derivatives hold for zeros, too."""
    data, ids, count, way = _placed("segment_prod", data, segment_ids, num_segments, mode)
    if not (isinstance(data, Tracer) and is_inexact(data.dtype)):
        return _combined(scatter_mul, 1, data, ids, count, way)
    is_zero = data == 0
    zeros = xp.where(is_zero, data, 0)  # their values are nothing, their tangents are not
    rest = _combined(scatter_mul, 1, xp.where(is_zero, data.dtype.type(1), data), ids, count, way)
    number = _combined(scatter_add, 0, is_zero.astype(I64), ids, count, way)
    first = _combined(scatter_add, 0, zeros, ids, count, way)
    pairs = (first * first - _combined(scatter_add, 0, zeros * zeros, ids, count, way)) / 2
    return rest * xp.where(number == 0, data.dtype.type(1), xp.where(number == 1, first, xp.where(number == 2, pairs, 0)))


@quiet
def segment_max(data: Any, segment_ids: Any, num_segments: Any = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: str | None = None) -> Array:
    """[num_segments, ...]: the greatest rows of each segment, element by element. Ties share the derivative."""
    placed = _placed("segment_max", data, segment_ids, num_segments, mode)
    return _combined(scatter_max, _extreme(placed[0].dtype, -1), *placed)


@quiet
def segment_min(data: Any, segment_ids: Any, num_segments: Any = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: str | None = None) -> Array:
    """[num_segments, ...]: the least rows of each segment, element by element. Ties share the derivative."""
    placed = _placed("segment_min", data, segment_ids, num_segments, mode)
    return _combined(scatter_min, _extreme(placed[0].dtype, 1), *placed)


def _extreme(dtype: np.dtype, sign: int) -> Any:
    """The neutral element of the least (sign 1) or greatest of numbers."""
    if dtype == BOOL:
        return sign > 0
    if dtype in INTEGERS:
        return int(np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min)
    return sign * math.inf
