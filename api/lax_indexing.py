"""Reading and writing at positions that are data, with JAX's names and meaning: `loopwright.lax` has them.

Guarantees: nothing is read or written outside of an array. A window of `dynamic_slice` and `dynamic_update_slice` that would
reach outside is moved inside; what such a window does to `gather` and the scatters is their mode. Where windows of a scatter
meet, the last in C order stays.
"""
from __future__ import annotations

import builtins
import enum
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from loopwright.arrays import Array, xp
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.op import Op
from loopwright.ir.ops import indexing as ops
from loopwright.ir.source import user_source
from loopwright.ir.types import I64, is_integer
from loopwright.lax_structural import as_array, of_one_dtype
from loopwright.tracer.axes import as_axis, as_tracers
from loopwright.tracer.size import Size
from loopwright.tracer.tracer import Tracer

__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers", "dynamic_index_in_dim", "dynamic_slice",
    "dynamic_slice_in_dim", "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim", "gather",
    "index_take", "scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
]


Wraps = bool | Sequence[bool]  # whether negative starts count from the end, along all axes or each


def _entered(op: Op, x: Array, *others: Array, axes: tuple[int, ...], mode: str) -> Array:
    """A gather or scatter of the IR."""
    if not any(isinstance(y, Tracer) for y in (x, *others)):
        return op.numpy(np.asarray(x), *map(np.asarray, others), axes=axes, batch=0, mode=mode)
    return Tracer(op(*[y.ref for y in as_tracers(x, *others)], axes=axes, batch=0, mode=mode))


# ---- one window -----------------------------------------------------------------------------------------
def _starts(name: str, x: Array, start_indices: Any, sizes: Sequence[Any], wraps: Wraps) -> dict[int, Any]:
    """Where a window of these sizes begins along each axis that it does not take whole, inside the array."""
    starts, counts = list(start_indices), [wraps] * x.ndim if isinstance(wraps, bool) else list(wraps)
    if len(starts) != x.ndim or len(sizes) != x.ndim:
        raise ShapeError(f"{user_source()}: lax.{name} takes a start and a size for each of the {x.ndim} axes of {x.shape}, "
                         f"got {len(starts)} and {len(sizes)}.")
    return {a: _inside(name, starts[a], n, sizes[a], a, counts[a]) for a, n in enumerate(x.shape)
            if not _is_whole(name, n, sizes[a], a)}


def _is_whole(name: str, n: Any, size: Any, axis: int) -> bool:
    if size > n or size < 0:
        raise ShapeError(f"{user_source()}: lax.{name}: a window of {size} places does not fit axis {axis}, which has {n}.")
    return bool(size == n)


def _inside(name: str, start: Any, n: Any, size: Any, axis: int, wraps: bool) -> Any:
    """Negative starts count from the end if `wraps`; then the nearest place from where the window is inside."""
    if isinstance(start, (int, np.integer, Size)):
        start = start + n if wraps and start < 0 else start
        last = n - size
        return 0 if start < 0 else last if start > last else start
    start = as_array(start)
    if start.ndim or not is_integer(start.dtype):
        raise DTypeError(f"{user_source()}: lax.{name}: the start along axis {axis} must be an integer, got {start.dtype} "
                         f"of shape {start.shape}.")
    start = start.astype(I64)
    return xp.clip(xp.where(start < 0, start + n, start) if wraps else start, 0, n - size)


def _positions(starts: dict[int, Any], sizes: Sequence[Any]) -> list[Array]:
    """The places of a window along each of these axes, as arrays of one shape."""
    return [xp.broadcast_to((start + xp.arange(sizes[a])).reshape([-1 if b == a else 1 for b in starts]),
                            tuple([sizes[b] for b in starts])) for a, start in starts.items()]


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[Any], *,
                  allow_negative_indices: Wraps = True) -> Array:
    """A window of these sizes: start_indices, an integer for each axis, may be data. Negative ones count from the end unless
    allow_negative_indices is false; a window that reaches outside is moved inside.

    >>> dynamic_slice(np.arange(6), (4,), (3,))
    array([3, 4, 5])
    """
    x = as_array(operand)
    for axis, start in _starts("dynamic_slice", x, start_indices, slice_sizes, allow_negative_indices).items():
        size, before = slice_sizes[axis], (builtins.slice(None),) * axis
        if isinstance(start, (int, np.integer, Size)):
            x = x[(*before, builtins.slice(start, start + size))]
        else:
            found = _entered(ops.gather, x, start + xp.arange(size), axes=(axis,), mode="promise_in_bounds")
            x = xp.moveaxis(found, 0, axis)
    return x


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: Any, axis: int = 0, *,
                         allow_negative_indices: bool = True) -> Array:
    """dynamic_slice along one axis, the others whole."""
    x = as_array(operand)
    at = as_axis(operator.index(axis), x.ndim)
    return dynamic_slice(x, [start_index if a == at else 0 for a in range(x.ndim)],
                         [slice_size if a == at else n for a, n in enumerate(x.shape)],
                         allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *,
                         allow_negative_indices: bool = True) -> Array:
    """dynamic_slice of one place of an axis."""
    out = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return out if keepdims else xp.squeeze(out, axis=axis)


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: Wraps = True) -> Array:
    """The array with the window of update's shape replaced by it; where that is, dynamic_slice says.

    >>> dynamic_update_slice(np.zeros(4), np.ones(2), (1,))
    array([0., 1., 1., 0.])
    """
    x, y = as_array(operand), as_array(update)
    of_one_dtype("dynamic_update_slice", (x, y))
    starts = _starts("dynamic_update_slice", x, start_indices, y.shape, allow_negative_indices)
    if not starts:
        return y + xp.zeros((), dtype=y.dtype) if not isinstance(y, Tracer) else y
    axes = tuple(starts)
    rows = xp.moveaxis(y, axes, range(len(axes)))
    rows = xp.broadcast_to(rows, (*rows.shape[:len(axes)], *[n for a, n in enumerate(x.shape) if a not in axes]))
    return _entered(ops.scatter, x, rows, *_positions(starts, y.shape), axes=axes, mode="promise_in_bounds")


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Array:
    """dynamic_update_slice along one axis; update has the array's sizes along the others."""
    x = as_array(operand)
    at = as_axis(operator.index(axis), x.ndim)
    return dynamic_update_slice(x, update, [start_index if a == at else 0 for a in range(x.ndim)],
                                allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Array:
    """dynamic_update_slice of one place of an axis; update may leave that axis out."""
    x, y = as_array(operand), as_array(update)
    y = xp.expand_dims(y, as_axis(operator.index(axis), x.ndim)) if y.ndim < x.ndim else y
    return dynamic_update_slice_in_dim(x, y, index, axis, allow_negative_indices=allow_negative_indices)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """Elements at integers [n] along each of some axes, modulo their sizes; the result's first axis is theirs."""
    x, order = as_array(src), tuple(axes)
    positions = [as_array(i).astype(I64) for i in idxs]
    return _entered(ops.gather, x, *positions, axes=tuple([as_axis(a, x.ndim) for a in order]), mode="wrap")


# ---- many windows ---------------------------------------------------------------------------------------
class GatherScatterMode(enum.Enum):
    """What a window that reaches outside does: it is moved inside; it is NaN or left out; it is promised not to be."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"


class GatherDimensionNumbers(NamedTuple):
    """How gather's axes belong together, as JAX and XLA have it."""

    offset_dims: Sequence[int]  # the result's axes that lie within a window
    collapsed_slice_dims: Sequence[int]  # the array's axes of which windows have one place, left out of the result
    start_index_map: Sequence[int]  # the array's axes that the numbers of an index are for
    operand_batching_dims: Sequence[int] = ()  # the array's axes that run in step with the indices'
    start_indices_batching_dims: Sequence[int] = ()


class ScatterDimensionNumbers(NamedTuple):
    """How a scatter's axes belong together, as JAX and XLA have it."""

    update_window_dims: Sequence[int]  # the updates' axes that lie within a window
    inserted_window_dims: Sequence[int]  # the array's axes of which windows have one place, left out of the updates
    scatter_dims_to_operand_dims: Sequence[int]  # the array's axes that the numbers of an index are for
    operand_batching_dims: Sequence[int] = ()  # the array's axes that run in step with the indices'
    scatter_indices_batching_dims: Sequence[int] = ()


class _Windows(NamedTuple):
    """Windows of an array: places along the axes that they do not take whole, and which windows are inside."""

    axes: tuple[int, ...]  # of the array
    places: list[Array]  # one for each of those axes, of shape (*indices, *their sizes within windows)
    inside: Array  # bool, of the indices' shape
    order: tuple[int, ...]  # the array's axes within windows: first those of places, then those that are whole


def _windows(name: str, x: Array, indices: Array, sizes: Sequence[Any], numbers: Sequence[int], collapsed: Sequence[int],
             in_step: Sequence[int], with_axes: Sequence[int]) -> _Windows:
    """numbers: the axes that an index has numbers for; in_step, with_axes: axes of the array and of the indices that run
    together; collapsed: the axes that windows have one place of."""
    if not is_integer(indices.dtype) or not indices.ndim or indices.shape[-1] != len(numbers) or len(sizes) != x.ndim:
        raise ShapeError(f"{user_source()}: lax.{name} takes integers whose last axis has {len(numbers)} places, one for each "
                         f"axis that they are for, and {x.ndim} sizes of a window; got {indices.dtype} of shape "
                         f"{indices.shape} and {len(sizes)} sizes.")
    batch, gone = tuple(indices.shape[:-1]), {*collapsed, *in_step}
    starts = {a: indices[..., k].astype(I64) for k, a in enumerate(numbers)}
    starts |= {a: xp.arange(batch[b]).reshape([-1 if c == b else 1 for c in range(len(batch))])
               for a, b in zip(in_step, with_axes, strict=True)}
    inside = xp.full(batch, True)
    for a, n in enumerate(x.shape):
        if not _is_whole(name, n, sizes[a], a) or a in gone:
            starts.setdefault(a, xp.zeros((), dtype=I64))
        if a in starts:
            inside = inside & (starts[a] >= 0) & (starts[a] <= n - sizes[a])
    axes = tuple(sorted(starts))
    inner = [a for a in axes if a not in gone]
    places = []
    for a in axes:
        nearest = xp.broadcast_to(xp.clip(starts[a], 0, x.shape[a] - sizes[a]), batch).reshape((*batch, *[1] * len(inner)))
        within = xp.arange(sizes[a]).reshape([-1 if b == a else 1 for b in inner]) if a in inner else 0
        places.append(xp.broadcast_to(nearest + within, (*batch, *[sizes[b] for b in inner])))
    return _Windows(axes, places, inside, (*inner, *[a for a in range(x.ndim) if a not in axes]))


def _axes_of_result(name: str, batch: int, window: Sequence[int], order: Sequence[int]) -> list[int]:
    """The axes of a result in the order (*batch, *order); `window` has those of its axes that lie within windows."""
    rank = batch + len(order)
    if len(window) != len(order) or any(not 0 <= a < rank for a in window):
        raise ShapeError(f"{user_source()}: lax.{name}: windows have {len(order)} axes, of {rank} in all, got {tuple(window)}.")
    axes = dict(zip(sorted(order), sorted(window), strict=True))
    return [*[k for k in range(rank) if k not in axes.values()], *[axes[a] for a in order]]


def gather(operand: Any, start_indices: Any, dimension_numbers: GatherDimensionNumbers, slice_sizes: Sequence[Any], *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None, fill_value: Any = None) -> Array:
    """Windows of an array that begin where start_indices [..., number of axes] says. mode: "fill" (the default: NaN, the least
    integer, or fill_value outside), "clip" or "promise_in_bounds". The promises about indices change nothing.

    >>> numbers = GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> gather(np.arange(6).reshape(3, 2), np.array([[2], [0]]), numbers, (1, 2))
    array([[4, 5],
           [0, 1]])
    """
    x, indices, how = as_array(operand), as_array(start_indices), dimension_numbers
    found = _windows("gather", x, indices, slice_sizes, how.start_index_map, how.collapsed_slice_dims,
                     how.operand_batching_dims, how.start_indices_batching_dims)
    out = _entered(ops.gather, x, *found.places, axes=found.axes, mode="promise_in_bounds")
    if _mode("gather", mode) is GatherScatterMode.FILL_OR_DROP:
        fill = ops.fill_value(x.dtype) if fill_value is None else fill_value
        inside = found.inside.reshape((*found.inside.shape, *[1] * len(found.order)))
        out = xp.where(inside, out, xp.asarray(fill, dtype=x.dtype))
    axes = _axes_of_result("gather", indices.ndim - 1, how.offset_dims, found.order)
    return xp.transpose(out, [axes.index(k) for k in range(out.ndim)])


def _mode(name: str, mode: Any) -> GatherScatterMode:
    if mode is None or mode == "drop":
        return GatherScatterMode.FILL_OR_DROP
    try:
        return GatherScatterMode(mode)
    except ValueError:
        raise ValueError(f"{user_source()}: lax.{name}: mode must be 'fill', 'drop', 'clip' or 'promise_in_bounds', got "
                         f"{mode!r}.") from None


def _scattered(name: str, op: Op, operand: Any, scatter_indices: Any, updates: Any, how: ScatterDimensionNumbers,
               mode: Any) -> Array:
    x, indices, y = as_array(operand), as_array(scatter_indices), as_array(updates)
    of_one_dtype(name, (x, y))
    gone = {*how.inserted_window_dims, *how.operand_batching_dims}
    within = iter(sorted(how.update_window_dims))
    sizes = [1 if a in gone else y.shape[next(within)] for a in range(x.ndim)]
    found = _windows(name, x, indices, sizes, how.scatter_dims_to_operand_dims, how.inserted_window_dims,
                     how.operand_batching_dims, how.scatter_indices_batching_dims)
    rows = xp.transpose(y, _axes_of_result(name, indices.ndim - 1, how.update_window_dims, found.order))
    shape = (*indices.shape[:-1], *[sizes[a] for a in found.order])
    if any(n != m for n, m in zip(rows.shape, shape, strict=True)):
        raise ShapeError(f"{user_source()}: lax.{name}: updates of shape {y.shape} do not have the indices' axes "
                         f"{indices.shape[:-1]}, or not the sizes of {x.shape} along axes that no index is for.")
    rows = xp.broadcast_to(rows, shape)
    places, way = found.places, "promise_in_bounds"
    if _mode(name, mode) is GatherScatterMode.FILL_OR_DROP:
        inside = found.inside.reshape((*found.inside.shape, *[1] * (places[0].ndim - found.inside.ndim)))
        places, way = [xp.where(inside, p, np.iinfo(I64).max) for p in places], "fill"
    return _entered(op, x, rows, *places, axes=found.axes, mode=way)


def scatter(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
            indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Array:
    """The array with updates written to the windows that begin where scatter_indices [..., number of axes] say.
    mode: "drop" (the default: a window that reaches outside is left out), "clip" or "promise_in_bounds". The promises about
    indices change nothing.

    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> scatter_add(np.zeros(3), np.array([[1], [1], [7]]), np.ones(3), numbers)
    array([0., 2., 0.])
    """
    return _scattered("scatter", ops.scatter, operand, scatter_indices, updates, dimension_numbers, mode)


def scatter_add(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Array:
    """The array with updates added to windows. See scatter."""
    return _scattered("scatter_add", ops.scatter_add, operand, scatter_indices, updates, dimension_numbers, mode)


def scatter_mul(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Array:
    """The array with windows multiplied by updates. See scatter."""
    return _scattered("scatter_mul", ops.scatter_mul, operand, scatter_indices, updates, dimension_numbers, mode)


def scatter_min(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Array:
    """The least of the array and of the updates of windows. See scatter."""
    return _scattered("scatter_min", ops.scatter_min, operand, scatter_indices, updates, dimension_numbers, mode)


def scatter_max(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Array:
    """The greatest of the array and of the updates of windows. See scatter."""
    return _scattered("scatter_max", ops.scatter_max, operand, scatter_indices, updates, dimension_numbers, mode)


def scatter_sub(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Array:
    """The array with updates taken from windows. See scatter."""
    return _scattered("scatter_sub", ops.scatter_add, operand, scatter_indices, -as_array(updates), dimension_numbers, mode)
