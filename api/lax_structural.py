"""Functions of shapes, with JAX's names and meaning: `loopwright.lax` has them.

Guarantees: sizes may be symbolic wherever a shape is given; elements are moved, never computed; axes are numbers from the
front or, where JAX takes them, from the back.
"""
from __future__ import annotations

import builtins
import enum
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.arrays import Array, xp
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.ops.structural import pad as pad_op
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, DTYPES
from loopwright.lax_elementwise import agreed
from loopwright.tracer.axes import as_axis, as_extents, as_tracers
from loopwright.tracer.promotion import as_dtype, as_operand, kind_of
from loopwright.tracer.pytree import flatten, unflatten
from loopwright.tracer.tracer import Tracer

__all__ = [
    "FftType", "broadcast", "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank", "broadcasted_iota",
    "collapse", "concatenate", "dtype", "empty", "expand_dims", "fft", "full", "full_like", "index_in_dim", "iota",
    "optimization_barrier", "pad", "platform_dependent", "reshape", "rev", "slice", "slice_in_dim", "split", "squeeze", "stack",
    "tile", "transpose", "unstack",
]

Shape = Sequence[Any]  # of integers and sizes


def as_array(x: Any) -> Array:
    """x as an array, traced or not, at its own dtype."""
    x = as_operand(x)
    return x if isinstance(x, Tracer) else xp.asarray(x)


def axes_of(name: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Distinct axes from the front."""
    found = tuple([as_axis(operator.index(a), rank) for a in axes])
    if len(set(found)) != len(found):
        raise ShapeError(f"{user_source()}: lax.{name}: the axes {tuple(axes)} name one twice.")
    return found


def of_one_dtype(name: str, arrays: Sequence[Array]) -> None:
    """DTypeError unless all have one dtype."""
    if len({x.dtype for x in arrays}) > 1:
        found = ", ".join(str(x.dtype) for x in arrays)
        raise DTypeError(f"{user_source()}: lax.{name} takes arrays of one dtype, got {found}. Convert one with "
                         f"lax.convert_element_type.")


def dtype(x: Any) -> np.dtype:
    """The dtype of an array or number."""
    kind = kind_of(as_operand(x))
    return np.dtype(kind) if isinstance(kind, type) else kind


# ---- repeating ----------------------------------------------------------------------------------------
def broadcast(operand: Any, sizes: Shape) -> Array:
    """The array repeated along new axes of these sizes in front.

    >>> broadcast(np.array([1, 2]), (2,))
    array([[1, 2],
           [1, 2]])
    """
    x = as_array(operand)
    return xp.broadcast_to(x, (*sizes, *x.shape))


def broadcast_in_dim(operand: Any, shape: Shape, broadcast_dimensions: Sequence[int]) -> Array:
    """The array repeated to `shape`: its axis k, of size 1 or the result's, becomes axis broadcast_dimensions[k].

    >>> broadcast_in_dim(np.array([1, 2]), (2, 3), (0,))
    array([[1, 1, 1],
           [2, 2, 2]])
    """
    x, at = as_array(operand), [operator.index(a) for a in broadcast_dimensions]
    if len(at) != x.ndim or at != sorted(set(at)) or any(not 0 <= a < len(shape) for a in at):
        raise ShapeError(f"{user_source()}: lax.broadcast_in_dim: broadcast_dimensions must be one rising axis of the result's "
                         f"{len(shape)} for each of the operand's {x.ndim}, got {tuple(at)}.")
    places = dict(zip(at, x.shape, strict=True))
    return xp.broadcast_to(xp.reshape(x, tuple([places.get(a, 1) for a in range(len(shape))])), tuple(shape))


def broadcast_like(arr: Any, like_arr: Any) -> Array:
    """The array repeated to the shape of another, as NumPy does it."""
    return xp.broadcast_to(as_array(arr), as_array(like_arr).shape)


def broadcast_shapes(*shapes: Shape) -> tuple[Any, ...]:
    """The shape that arrays of these shapes have together, as NumPy's."""
    rank, out = builtins.max(map(len, shapes), default=0), []
    for sizes in zip(*[(1,) * (rank - len(s)) + tuple(s) for s in shapes], strict=True):
        others = [n for n in sizes if n != 1]
        if any(n != others[0] for n in others):
            raise ShapeError(f"{user_source()}: lax.broadcast_shapes: {', '.join(str(tuple(s)) for s in shapes)} do not go "
                             f"together: sizes on one axis must be equal or 1.")
        out.append(others[0] if others else 1)
    return tuple(out)


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """The array with new axes of size 1 in front, up to a rank."""
    x = as_array(x)
    if x.ndim > rank:
        raise ShapeError(f"{user_source()}: lax.broadcast_to_rank: the array has {x.ndim} axes, more than {rank}.")
    return xp.reshape(x, (1,) * (rank - x.ndim) + x.shape)


# ---- making -------------------------------------------------------------------------------------------
def iota(dtype: Any, size: Any) -> Array:
    """0, 1, ... up to a size, at a dtype."""
    return xp.arange(size).astype(as_dtype(dtype))


def broadcasted_iota(dtype: Any, shape: Shape, dimension: int) -> Array:
    """An array whose elements are their own positions along an axis."""
    axis = as_axis(operator.index(dimension), len(shape))
    return broadcast_in_dim(iota(dtype, shape[axis]), shape, (axis,))


def full(shape: Shape, fill_value: Any, dtype: Any = None) -> Array:
    """An array of one number, at the number's dtype unless another is given."""
    value = as_array(fill_value)
    if value.ndim:
        raise ShapeError(f"{user_source()}: lax.full: the value must be a number, got shape {value.shape}.")
    return xp.full(tuple(shape), value, dtype=value.dtype if dtype is None else as_dtype(dtype))


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Shape | None = None) -> Array:
    """An array of one number, of x's shape and dtype unless others are given."""
    x = as_array(x)
    return full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype)


def empty(shape: Shape, dtype: Any) -> Array:
    """An array of zeros: what is in it is not to be read."""
    return xp.zeros(tuple(shape), dtype=as_dtype(dtype))


# ---- other shapes of the same elements ------------------------------------------------------------------
def reshape(operand: Any, new_sizes: Shape, dimensions: Sequence[int] | None = None) -> Array:
    """The elements in C order under another shape; dimensions: the order in which axes are taken first."""
    x = as_array(operand)
    return xp.reshape(x if dimensions is None else transpose(x, dimensions), tuple(new_sizes))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """The array with axes of size 1 at these places of the result."""
    return xp.expand_dims(as_array(array), tuple(dimensions))


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """The array without these axes, which have size 1."""
    return xp.squeeze(as_array(array), axis=tuple(dimensions))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """The array with the axes from start to before stop as one, as Python's slices count them.

    >>> collapse(np.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = as_array(operand)
    low, high, _ = builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    if high < low:
        raise ShapeError(f"{user_source()}: lax.collapse: no axes of {x.shape} lie from {start_dimension} to {stop_dimension}.")
    return xp.reshape(x, (*x.shape[:low], math.prod(x.shape[low:high]), *x.shape[high:]))


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """The array whose axis k is the operand's axis permutation[k]."""
    x = as_array(operand)
    if sorted(operator.index(a) for a in permutation) != list(range(x.ndim)):
        raise ShapeError(f"{user_source()}: lax.transpose: {tuple(permutation)} is no order of the {x.ndim} axes of {x.shape}.")
    return xp.transpose(x, tuple(permutation))


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """The array backwards along axes."""
    x = as_array(operand)
    return xp.flip(x, axes_of("rev", dimensions, x.ndim))


# ---- several arrays -------------------------------------------------------------------------------------
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays of one dtype, one after another along an axis."""
    arrays = [as_array(x) for x in operands]
    if not arrays:
        raise ArgumentError(f"{user_source()}: lax.concatenate takes at least one array.")
    of_one_dtype("concatenate", arrays)
    return xp.concatenate(arrays, axis=dimension)


def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """Arrays of one shape and dtype, along a new axis."""
    arrays = [as_array(x) for x in operands]
    of_one_dtype("stack", arrays)
    return xp.stack(arrays, axis=axis)


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """The arrays that lie along an axis, whose size is fixed to this call's where it is symbolic."""
    return tuple([index_in_dim(x, k, axis, keepdims=False) for k in range(operator.index(as_array(x).shape[axis]))])


def split(operand: Any, sizes: Shape, axis: int = 0) -> list[Array]:
    """Parts of these sizes along an axis, one after another; together they are the whole axis."""
    x, at, out = as_array(operand), 0, []
    for n in sizes:
        out.append(slice_in_dim(x, at, at + n, axis=axis))
        at = at + n
    if at != x.shape[axis]:
        raise ShapeError(f"{user_source()}: lax.split: the sizes {tuple(sizes)} must sum to the {x.shape[axis]} places of axis "
                         f"{axis}.")
    return out


def tile(operand: Any, reps: Sequence[int]) -> Array:
    """The array repeated as a whole, reps[k] times along axis k."""
    x = as_array(operand)
    if len(reps) != x.ndim:
        raise ShapeError(f"{user_source()}: lax.tile takes one number for each of the {x.ndim} axes, got {tuple(reps)}.")
    return xp.tile(x, tuple(reps))


# ---- parts ----------------------------------------------------------------------------------------------
def slice(operand: Any, start_indices: Shape, limit_indices: Shape, strides: Sequence[int] | None = None) -> Array:
    """Elements from start to before limit along each axis, every stride-th; 0 <= start <= limit <= size, else ShapeError.

    >>> slice(np.arange(10), (1,), (8,), (3,))
    array([1, 4, 7])
    """
    x = as_array(operand)
    steps = (1,) * x.ndim if strides is None else tuple(strides)
    if not len(start_indices) == len(limit_indices) == len(steps) == x.ndim:
        raise ShapeError(f"{user_source()}: lax.slice takes a start, limit and stride for each of the {x.ndim} axes.")
    for axis, (low, high, step) in enumerate(zip(start_indices, limit_indices, steps, strict=True)):
        if low < 0 or high < low or high > x.shape[axis] or step < 1:
            raise ShapeError(f"{user_source()}: lax.slice: axis {axis} of size {x.shape[axis]} has no places from {low} to "
                             f"{high} by {step}.")
    return x[tuple([builtins.slice(*b) for b in zip(start_indices, limit_indices, steps, strict=True)])]


def slice_in_dim(operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0) -> Array:
    """Elements from start to before limit along one axis, every stride-th. Negative places count from the end; None is an
    end."""
    x = as_array(operand)
    at = as_axis(operator.index(axis), x.ndim)
    size = x.shape[at]
    low, high = (end if place is None else place + size if place < 0 else place
                 for place, end in ((start_index, 0), (limit_index, size)))
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[at], limits[at], strides[at] = low, high, stride
    return slice(x, starts, limits, strides)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The elements at one place of an axis; IndexError where it has no such place. Negative places count from the end."""
    x, place = as_array(operand), operator.index(index)
    at = as_axis(operator.index(axis), x.ndim)
    size = x.shape[at]
    if place >= size or place < -size:
        raise IndexError(f"{user_source()}: lax.index_in_dim: index {place} is out of bounds for axis {at} of size {size}.")
    out = x[(builtins.slice(None),) * at + (place,)]
    return xp.expand_dims(out, at) if keepdims else out


# ---- padding --------------------------------------------------------------------------------------------
def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[Any, Any, int]]) -> Array:
    """The array in an array of one value, which may be traced: for each axis (low, high, interior), how many places come
    before, after, and between elements. Negative low and high take elements away.

    >>> pad(np.array([1, 2, 3]), 0, [(1, -1, 1)])
    array([0, 1, 0, 2, 0])
    """
    x, value = agreed("pad", DTYPES, operand, padding_value)
    if value.ndim or len(padding_config) != x.ndim or any(between < 0 for _, _, between in padding_config):
        raise ShapeError(f"{user_source()}: lax.pad takes one value, and for each of the {x.ndim} axes (low, high, interior) "
                         f"with interior >= 0; got a value of shape {value.shape} and {tuple(padding_config)}.")
    spread = [_spread(n, *c) for n, c in zip(x.shape, padding_config, strict=True)]
    start, shape, step = [low for low, _ in spread], [n for _, n in spread], tuple([c[2] + 1 for c in padding_config])
    if isinstance(x, Tracer) or isinstance(value, Tracer):
        traced, number = as_tracers(x, value)
        out = _padded(traced, number, start, shape, step)
    else:
        out = pad_op.numpy(x, shape=tuple(shape), start=tuple(start), step=step, value=value)
    kept = [(_taken(low), n - _taken(high)) for n, (low, high, _) in zip(out.shape, padding_config, strict=True)]
    if any(high < low for low, high in kept):
        raise ShapeError(f"{user_source()}: lax.pad: {tuple(padding_config)} takes more away than {x.shape} has.")
    return out[tuple([builtins.slice(*c) for c in kept])]


def _taken(n: Any) -> int:
    """What a negative amount of padding takes away; a symbolic size takes nothing."""
    return -n if isinstance(n, int) and n < 0 else 0


def _spread(size: Any, low: Any, high: Any, between: int) -> tuple[Any, Any]:
    """Where the first element goes, and the size before anything is taken away."""
    inner = size + (size - 1) * between if between and size > 0 else size
    return low + _taken(low), low + _taken(low) + inner + high + _taken(high)


def _padded(x: Tracer, value: Tracer, start: Shape, shape: Shape, step: tuple[int, ...]) -> Tracer:
    """An op's padding is a constant: a value that is data is chosen where nothing of x is."""
    attrs: dict[str, Any] = {"shape": as_extents(list(shape)), "start": as_extents(list(start)), "step": step}
    out = Tracer(pad_op(x.ref, **attrs, value=_zero(x.dtype)))
    inside = Tracer(pad_op(xp.ones_like(x, dtype=BOOL).ref, **attrs, value=False))
    found: Tracer = xp.where(inside, out, value)
    return found


def _zero(dtype: np.dtype) -> Any:
    return np.zeros((), dtype)[()].item()


# ---- Fourier transforms ---------------------------------------------------------------------------------
class FftType(enum.IntEnum):
    """Which transform fft makes."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x: Any, fft_type: FftType | str, fft_lengths: Shape) -> Array:
    """The transform over the last axes, one for each of fft_lengths: their sizes, but of the last axis of IRFFT the result's.

    >>> fft(np.ones(4), "RFFT", (4,))
    array([4.+0.j, 0.+0.j, 0.+0.j])
    """
    kind = FftType[fft_type.upper()] if isinstance(fft_type, str) else FftType(fft_type)
    x, axes = as_array(x), tuple(range(-len(fft_lengths), 0))
    own = x.shape[x.ndim - len(axes):]
    asked = tuple(fft_lengths)
    if kind is FftType.IRFFT and asked:
        own, asked = own[:-1], asked[:-1]
    if len(axes) > x.ndim or any(n != m for n, m in zip(own, asked, strict=True)):
        raise ShapeError(f"{user_source()}: lax.fft: the last axes of {x.shape} must have the sizes {tuple(fft_lengths)}.")
    if not axes:
        return x
    function = {FftType.FFT: xp.fft.fftn, FftType.IFFT: xp.fft.ifftn, FftType.RFFT: xp.fft.rfftn, FftType.IRFFT: xp.fft.irfftn}
    return function[kind](x, s=tuple(fft_lengths), axes=axes)


# ---- what only compilers see ------------------------------------------------------------------------------
def optimization_barrier(operand: Any, /) -> Any:
    """The container of arrays itself. Nothing is moved across what `checkpoint` computes again, so there is nothing to hold."""
    leaves, structure = flatten(operand)
    return unflatten(structure, leaves)


def platform_dependent(*args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]) -> Any:
    """cpu(*args), or default(*args) where no function is given for `cpu`."""
    chosen = per_platform.get("cpu", default)
    if chosen is None:
        raise ArgumentError(f"{user_source()}: lax.platform_dependent: there is no function for cpu, and no default.")
    return chosen(*args)
