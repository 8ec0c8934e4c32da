"""Reductions, running reductions, sorts and products, with JAX's names and meaning: `loopwright.lax` has them.

Guarantees: results have the operands' dtype, where NumPy's functions may widen it; axes are numbers; sorts are stable and
NaN is the greatest.
"""
from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.arrays import Array, quiet, xp
from loopwright.control_flow import scan
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.ops.contraction import dot_general as dot_op
from loopwright.ir.ops.sorting import top_k as positions
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, I32, is_integer
from loopwright.lax_structural import as_array, axes_of, of_one_dtype, rev
from loopwright.tracer.axes import as_axis
from loopwright.tracer.promotion import as_dtype
from loopwright.tracer.pytree import flatten, unflatten
from loopwright.tracer.tracer import Tracer
from loopwright.transforms import vmap

__all__ = [
    "Precision", "approx_max_k", "approx_min_k", "argmax", "argmin", "batch_matmul", "cumlogsumexp", "cummax", "cummin",
    "cumprod", "cumsum", "dot", "dot_general", "ragged_dot", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
    "reduce_prod", "reduce_sum", "reduce_xor", "sort", "sort_key_val", "top_k",
]

Axes = Sequence[int]


# ---- reductions -----------------------------------------------------------------------------------------
def reduce_sum(operand: Any, axes: Axes) -> Array:
    """The sum over axes, at the operand's dtype."""
    x = as_array(operand)
    return xp.sum(x, axis=axes_of("reduce_sum", axes, x.ndim), dtype=x.dtype)


def reduce_prod(operand: Any, axes: Axes) -> Array:
    """The product over axes, at the operand's dtype."""
    x = as_array(operand)
    return xp.prod(x, axis=axes_of("reduce_prod", axes, x.ndim), dtype=x.dtype)


def reduce_max(operand: Any, axes: Axes) -> Array:
    """The greatest over axes, NaN if any is; of no elements the least number. Ties share the derivative."""
    x = as_array(operand)
    return xp.max(x, axis=axes_of("reduce_max", axes, x.ndim), initial=_least(x.dtype))


def reduce_min(operand: Any, axes: Axes) -> Array:
    """The least over axes, NaN if any is; of no elements the greatest number. Ties share the derivative."""
    x = as_array(operand)
    return xp.min(x, axis=axes_of("reduce_min", axes, x.ndim), initial=_greatest(x.dtype))


def _least(dtype: np.dtype) -> Any:
    return False if dtype == BOOL else int(np.iinfo(dtype).min) if is_integer(dtype) else -math.inf


def _greatest(dtype: np.dtype) -> Any:
    return True if dtype == BOOL else int(np.iinfo(dtype).max) if is_integer(dtype) else math.inf


def reduce_and(operand: Any, axes: Axes) -> Array:
    """Whether all hold over axes; of integers the bits set in all."""
    return _of_bits("reduce_and", np.bitwise_and, -1, operand, axes)


def reduce_or(operand: Any, axes: Axes) -> Array:
    """Whether one holds over axes; of integers the bits set in any."""
    return _of_bits("reduce_or", np.bitwise_or, 0, operand, axes)


def reduce_xor(operand: Any, axes: Axes) -> Array:
    """Whether an odd number hold over axes; of integers the bits set in an odd number."""
    return _of_bits("reduce_xor", np.bitwise_xor, 0, operand, axes)


def _of_bits(name: str, ufunc: np.ufunc, neutral: int, operand: Any, axes: Axes) -> Array:
    x = as_array(operand)
    if x.dtype != BOOL and not is_integer(x.dtype):
        raise DTypeError(f"{user_source()}: lax.{name} takes bools and integers, got {x.dtype}.")
    over = axes_of(name, axes, x.ndim)
    if not isinstance(x, Tracer):
        return ufunc.reduce(x, axis=over)
    if x.dtype == BOOL and ufunc is not np.bitwise_xor:
        return (xp.all if ufunc is np.bitwise_and else xp.any)(x, axis=over)
    return reduce(x, np.array(neutral).astype(x.dtype)[()], ufunc, over)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Array:
    """The first position of the greatest along an axis, or of the first NaN, at an integer dtype."""
    return xp.argmax(as_array(operand), axis=axis).astype(as_dtype(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any) -> Array:
    """The first position of the least along an axis, or of the first NaN, at an integer dtype."""
    return xp.argmin(as_array(operand), axis=axis).astype(as_dtype(index_dtype))


def reduce(operands: Any, init_values: Any, computation: Callable[[Any, Any], Any], dimensions: Axes) -> Any:
    """init_values, then computation(so far, element) for every element along axes, one after another: a container of arrays
    of one shape, a container of numbers, and an associative function of two such containers of numbers.

    >>> reduce(np.arange(6.0).reshape(2, 3), 0.0, lambda a, b: a + 2 * b, [1])
    array([ 6., 24.])
    """
    leaves, structure = flatten(operands)
    arrays = [as_array(x) for x in leaves]
    starts, own = flatten(init_values)
    if not arrays or own != structure or any(x.shape != arrays[0].shape for x in arrays):
        raise ArgumentError(f"{user_source()}: lax.reduce takes arrays of one shape and a number for each, in the same "
                            f"container; got shapes {', '.join(str(x.shape) for x in arrays)} and {len(starts)} numbers.")
    over = axes_of("reduce", dimensions, arrays[0].ndim)
    rest = tuple([a for a in range(arrays[0].ndim) if a not in over])
    kept = tuple([arrays[0].shape[a] for a in rest])
    count = math.prod([arrays[0].shape[a] for a in over])
    rows = [xp.reshape(xp.transpose(x, (*over, *rest)), (count, *kept)) for x in arrays]
    first = [xp.zeros_like(x, shape=kept) + as_array(s).astype(x.dtype) for x, s in zip(arrays, starts, strict=True)]

    def step(carry: Any, row: Any) -> tuple[Any, None]:
        each = computation
        for _ in rest:
            each = vmap(each)
        return each(carry, row), None
    return scan(step, unflatten(structure, first), unflatten(structure, rows))[0]


# ---- running reductions -----------------------------------------------------------------------------------
def _running(function: Callable[[Array, int], Array], operand: Any, axis: int, reverse: bool) -> Array:
    x = as_array(operand)
    at = as_axis(operator.index(axis), x.ndim)
    return rev(function(rev(x, (at,)), at), (at,)) if reverse else function(x, at)


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running sums along an axis, each position included, at the operand's dtype. reverse: from the last to the first.

    >>> cumsum(np.array([1, 2, 3]), reverse=True)
    array([6, 5, 3])
    """
    return _running(lambda x, at: xp.cumsum(x, axis=at, dtype=x.dtype), operand, axis, reverse)


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running products along an axis, as cumsum."""
    return _running(lambda x, at: xp.cumprod(x, axis=at, dtype=x.dtype), operand, axis, reverse)


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running maxima along an axis, as cumsum."""
    return _running(lambda x, at: xp.maximum.accumulate(x, axis=at), operand, axis, reverse)


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running minima along an axis, as cumsum."""
    return _running(lambda x, at: xp.minimum.accumulate(x, axis=at), operand, axis, reverse)


@quiet
def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running log(sum(exp(x))) along an axis, as cumsum, without overflow."""
    def function(x: Array, at: int) -> Array:
        rows = xp.moveaxis(x, at, 0)

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            total = xp.logaddexp(carry, row)
            return total, total
        return xp.moveaxis(scan(step, xp.full(rows.shape[1:], -math.inf, dtype=x.dtype), rows)[1], 0, at)
    return _running(function, operand, axis, reverse)


# ---- sorts ------------------------------------------------------------------------------------------------
def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The array sorted along an axis; of several arrays of one shape a tuple, all in the order of the first num_keys, of which
    the first counts most. The order is always stable.

    >>> sort((np.array([2, 1, 2]), np.array([3, 4, 1])), num_keys=2)
    (array([1, 2, 2]), array([4, 1, 3]))
    """
    if not isinstance(operand, (tuple, list)):
        return xp.sort(as_array(operand), axis=dimension)
    arrays = [as_array(x) for x in operand]
    if not 1 <= num_keys <= len(arrays) or any(x.shape != arrays[0].shape for x in arrays):
        raise ShapeError(f"{user_source()}: lax.sort takes arrays of one shape, and num_keys from 1 to their number; got "
                         f"shapes {', '.join(str(x.shape) for x in arrays)} and num_keys={num_keys}.")
    for key in reversed(range(num_keys)):
        order = xp.argsort(arrays[key], axis=dimension, kind="stable")
        arrays = [xp.take_along_axis(x, order, axis=dimension) for x in arrays]
    return tuple(arrays)


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """The keys sorted along an axis, and the values in the same order."""
    first, second = sort((keys, values), dimension)
    return first, second


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """The k greatest along an axis, falling, and their positions as int32; of equal ones the first come first.

    >>> top_k(np.array([1.0, 5.0, 3.0, 5.0]), 3)
    (array([5., 5., 3.]), array([1, 3, 2], dtype=int32))
    """
    x = as_array(operand)
    at = as_axis(operator.index(axis), x.ndim)
    if k < 0 or k > x.shape[at]:
        raise ShapeError(f"{user_source()}: lax.top_k: axis {at} of size {x.shape[at]} has no {k} elements.")
    rows = xp.moveaxis(x, at, -1)
    best = Tracer(positions(rows.ref, k=k)) if isinstance(rows, Tracer) else positions.numpy(rows, k=k)
    order = xp.moveaxis(best, -1, at)
    return xp.take_along_axis(x, order, axis=at), order.astype(I32)


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> tuple[Array, Array]:
    """top_k: all of the k greatest are found, whatever the target."""
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> tuple[Array, Array]:
    """The k least along an axis, rising, and their positions as int32: all of them are found, whatever the target."""
    x = as_array(operand)
    if is_integer(x.dtype):
        raise DTypeError(f"{user_source()}: lax.approx_min_k takes floats, got {x.dtype}.")
    values, order = top_k(-x, k, axis=reduction_dimension)
    return -values, order


# ---- products ---------------------------------------------------------------------------------------------
class Precision(enum.Enum):
    """What `precision=` takes. Products have the precision of their dtype, whichever is asked for."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def dot(lhs: Any, rhs: Any, *, dimension_numbers: Any = None, precision: Any = None,
        preferred_element_type: Any = None) -> Array:
    """Products of vectors and matrices; with dimension_numbers, dot_general."""
    x, y = as_array(lhs), as_array(rhs)
    if dimension_numbers is None:
        if x.ndim not in (1, 2) or y.ndim not in (1, 2):
            raise ShapeError(f"{user_source()}: lax.dot takes vectors and matrices, got shapes {x.shape} and {y.shape}. Use "
                             f"lax.dot_general.")
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Products of matrices along batch axes that both have."""
    x, y = as_array(lhs), as_array(rhs)
    if x.ndim != y.ndim or x.ndim < 2:
        raise ShapeError(f"{user_source()}: lax.batch_matmul takes two arrays of one rank, at least 2, got shapes {x.shape} "
                         f"and {y.shape}.")
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision)


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Products summed over the contracted axes, in step along the batch axes; dimension_numbers:
    ((lhs contracted, rhs contracted), (lhs batch, rhs batch)). Result axes: batch, the others of lhs, the others of rhs.
    preferred_element_type: the dtype in which narrower products are summed and given. `precision` changes nothing.

    >>> dot_general(np.ones((2, 3)), np.ones((4, 3)), (((1,), (1,)), ((), ()))).shape
    (2, 4)
    """
    x, y = as_array(lhs), as_array(rhs)
    of_one_dtype("dot_general", (x, y))
    (left, right), (left_batch, right_batch) = dimension_numbers
    contract = _pairs("contracted", left, right, x, y)
    batch = _pairs("batch", left_batch, right_batch, x, y)
    wide = None if preferred_element_type is None else as_dtype(preferred_element_type)
    if not isinstance(x, Tracer) and not isinstance(y, Tracer):
        return np.asarray(dot_op.numpy(x, y, contract=contract, batch=batch, dtype=None if wide == x.dtype else wide))[()]
    names = iter("abcdefghijklmnopqrstuvwxyz")
    first, second = [next(names) for _ in range(x.ndim)], [""] * y.ndim
    for a, b in (*contract, *batch):
        second[b] = first[a]
    second = [c or next(names) for c in second]
    shared = [first[a] for a, _ in batch]
    free = [c for c in (*first, *second) if (c in first) != (c in second)]
    how = f"{''.join(first)},{''.join(second)}->{''.join([*shared, *free])}"
    return xp.einsum(how, x, y, preferred_element_type=preferred_element_type)


def _pairs(what: str, left: Axes, right: Axes, x: Array, y: Array) -> tuple[tuple[int, int], ...]:
    pairs = tuple(zip(axes_of("dot_general", left, x.ndim), axes_of("dot_general", right, y.ndim), strict=False))
    if len(left) != len(right) or any(x.shape[a] != y.shape[b] for a, b in pairs):
        raise ShapeError(f"{user_source()}: lax.dot_general: {what} axes {tuple(left)} of {x.shape} and {tuple(right)} of "
                         f"{y.shape} must be as many, and of equal sizes.")
    return pairs


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """[m, n]: rows of lhs [m, k], which lie in groups one after another, each times its group's matrix of rhs [g, k, n].
    group_sizes: integers [g]; rows past the last group give 0. Every group multiplies all rows, and keeps its own.
    """
    x, y, sizes = as_array(lhs), as_array(rhs), as_array(group_sizes)
    of_one_dtype("ragged_dot", (x, y))
    if x.ndim != 2 or y.ndim != 3 or sizes.ndim != 1 or sizes.shape[0] != y.shape[0] or x.shape[1] != y.shape[1]:
        raise ShapeError(f"{user_source()}: lax.ragged_dot takes [m, k], [g, k, n] and [g], got {x.shape}, {y.shape} and "
                         f"{sizes.shape}.")
    dtype = x.dtype if preferred_element_type is None else as_dtype(preferred_element_type)
    ends, rows = xp.cumsum(sizes), xp.arange(x.shape[0])

    def step(total: Any, group: Any) -> tuple[Any, None]:
        matrix, size, end = group
        own = xp.where(((rows >= end - size) & (rows < end))[:, None], x, xp.zeros((), dtype=x.dtype))
        return total + dot(own, matrix, preferred_element_type=dtype), None
    return scan(step, xp.zeros((x.shape[0], y.shape[2]), dtype=dtype), (y, sizes, ends))[0]
