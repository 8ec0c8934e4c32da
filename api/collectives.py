"""Collectives across the named axes of `vmap`, with JAX's names and meaning: `loopwright.lax.psum` and its kin.

An axis is what `vmap(f, axis_name=...)` calls it, or a tuple of such names, which stands for all of their elements, the last
name counted fastest. Guarantees: a name is that of the innermost `vmap` around the call; collectives work inside `jit`, loops,
branches, checkpoints and functions with rules, and under all transforms in any order, on any container of arrays; under
derivatives inside the `vmap` a cotangent goes back to every element that it came from, as in JAX (the gradient of a psum is
a psum). Where elements of the axis go their own ways, by a predicate of their own, a collective is a CollectiveError.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.named_axes import NamedAxis, axis_of
from loopwright.ir.builder import innermost
from loopwright.ir.errors import ArgumentError, ShapeError
from loopwright.ir.op import Op
from loopwright.ir.ops import collectives as ops
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, I32, I64
from loopwright.tracer.axes import as_axis, as_tracer
from loopwright.tracer.pytree import flatten, unflatten
from loopwright.tracer.size import Size, sized
from loopwright.tracer.tables import xp
from loopwright.tracer.tracer import Tracer

__all__ = ["all_gather", "axis_index", "axis_size", "pmax", "pmean", "pmin", "ppermute", "psum", "psum_scatter"]

Name = Any  # what vmap was given as axis_name, or a tuple of names


def _axes(axis_name: Name, why: str) -> list[NamedAxis]:
    """The axes that a name or several mean here."""
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    if len(set(names)) < len(names):
        raise ArgumentError(f"{user_source()}: {why}: {axis_name!r} names an axis twice.")
    return [axis_of(name, why) for name in names]


def _each(x: Any, one: Callable[[Any], Any]) -> Any:
    leaves, structure = flatten(x)
    return unflatten(structure, [one(leaf) for leaf in leaves])


def _traced(x: Any) -> Tracer:
    return as_tracer(x, innermost())


def _size(axes: Sequence[NamedAxis]) -> Size | int:
    return math.prod([sized(a.size, a.index.builder.scope) for a in axes])


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex, Size)) and not isinstance(x, (bool, np.generic))


# ---- where an element stands ------------------------------------------------------------------------
def axis_size(axis_name: Name) -> Any:
    """The number of elements of an axis: an integer, or a size inside `jit`. AxisNameError for a name that no `vmap` around
    the call has given."""
    return _size(_axes(axis_name, "axis_size"))


def axis_index(axis_name: Name) -> Any:
    """int64: the number of the element along an axis.

    >>> from loopwright import vmap
    >>> vmap(lambda x: 10 * axis_index("i") + x, axis_name="i")(np.arange(3))
    array([ 0, 11, 22])
    """
    found: Any = None
    for axis in _axes(axis_name, "axis_index"):
        index = Tracer(axis.index)
        found = index if found is None else found * _size([axis]) + index
    return np.int64(0) if found is None else found


# ---- sums and extremes ------------------------------------------------------------------------------
def psum(x: Any, axis_name: Name) -> Any:
    """The sum of x over all elements of an axis, for each of them. Bools are counted as int32; psum(1, name) is axis_size.

    >>> from loopwright import vmap
    >>> vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    axes = _axes(axis_name, "psum")

    def one(leaf: Any) -> Any:
        if _is_number(leaf):
            return leaf * _size(axes)
        x = _traced(leaf)
        return _across(ops.psum, x.astype(I32) if x.dtype == BOOL else x, axes)
    return _each(x, one)


def pmean(x: Any, axis_name: Name) -> Any:
    """The mean of x over all elements of an axis."""
    return _each(psum(x, axis_name), lambda total: total / axis_size(axis_name))


def pmax(x: Any, axis_name: Name) -> Any:
    """The greatest x of all elements of an axis, NaN if one is. Ties share the derivative."""
    axes = _axes(axis_name, "pmax")
    return _each(x, lambda leaf: leaf if _is_number(leaf) else _across(ops.pmax, _traced(leaf), axes))


def pmin(x: Any, axis_name: Name) -> Any:
    """The least x of all elements of an axis, NaN if one is. Ties share the derivative."""
    axes = _axes(axis_name, "pmin")
    return _each(x, lambda leaf: leaf if _is_number(leaf) else _across(ops.pmin, _traced(leaf), axes))


def _across(op: Op, x: Tracer, axes: Sequence[NamedAxis]) -> Tracer:
    return functools.reduce(lambda y, axis: Tracer(op.all(y.ref, axis.index, axis=axis.identity)[0]), axes, x)


# ---- moves ------------------------------------------------------------------------------------------
def all_gather(x: Any, axis_name: Name, *, axis: int = 0, tiled: bool = False) -> Any:
    """x of all elements of an axis, stacked along a new axis `axis`; `tiled`: put one after another along that axis of x.

    >>> from loopwright import vmap
    >>> vmap(lambda x: np.cumsum(all_gather(x, "i"))[1], axis_name="i")(np.array([1.0, 3.0, 5.0]))
    array([4., 4., 4.])
    """
    axes = _axes(axis_name, "all_gather")

    def one(leaf: Any) -> Any:
        y = _traced(leaf)
        own, at = y.shape, as_axis(axis, y.ndim if tiled else y.ndim + 1)
        for a in reversed(axes):
            y = Tracer(ops.all_gather.all(y.ref, a.index, axis=a.identity, size=a.size, at=at)[0])
        lines = (_size(axes), *own[at:]) if not tiled else (_size(axes) * own[at], *own[at + 1:])
        return xp.reshape(y, (*own[:at], *lines))
    return _each(x, one)


def psum_scatter(x: Any, axis_name: Name, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """psum, of which element k gets place k along an axis of x that has as many places as there are elements; `tiled`: the
    k-th of so many equal parts. ShapeError where the sizes do not fit."""
    axes = _axes(axis_name, "psum_scatter")

    def one(leaf: Any) -> Any:
        y = _traced(leaf)
        at, count = as_axis(scatter_dimension, y.ndim), _size(axes)
        own = y.shape
        if (own[at] % count != 0) if tiled else (own[at] != count):
            raise ShapeError(f"{user_source()}: psum_scatter: axis {at} of {y.type} must have "
                             f"{'a multiple of ' * tiled}{count} places, the number of elements of {axis_name!r}.")
        rest = (own[at] // count,) if tiled else ()
        y = xp.reshape(y.astype(I32) if y.dtype == BOOL else y, (*own[:at], *[_size([a]) for a in axes], *rest, *own[at + 1:]))
        for a in axes:
            y = Tracer(ops.psum_scatter.all(y.ref, a.index, axis=a.identity, size=a.size, at=at)[0])
        return y
    return _each(x, one)


def ppermute(x: Any, axis_name: Name, perm: Sequence[tuple[int, int]]) -> Any:
    """x of another element: for each pair (source, target) of `perm` element `target` gets the x of element `source`; elements
    that are nobody's target get zeros. A symbolic number of elements is fixed to this call's.

    >>> from loopwright import vmap
    >>> vmap(lambda x: ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), axis_name="i")(np.arange(3.0))
    array([2., 0., 1.])
    """
    axes = _axes(axis_name, "ppermute")
    if len(axes) != 1:
        raise ArgumentError(f"{user_source()}: ppermute works along one axis, got the names {axis_name!r}.")
    axis, count = axes[0], operator.index(_size(axes))
    source, target = (np.full(count, count, I64) for _ in range(2))  # `count` is nobody
    for s, t in perm:
        if not (0 <= s < count and 0 <= t < count) or source[t] != count or target[s] != count:
            raise ArgumentError(f"{user_source()}: ppermute: the pair {(s, t)} must name elements of {axis_name!r}, which has "
                                f"{count}, that no other pair of perm has as its source or target.")
        source[t], target[s] = s, t
    partners = _traced(source).ref, _traced(target).ref
    return _each(x, lambda leaf: Tracer(ops.ppermute.all(_traced(leaf).ref, axis.index, *partners, axis=axis.identity)[0]))
