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
from loopwright.lax_indexing import dynamic_index_in_dim, index_take
from loopwright.lax_structural import index_in_dim
from loopwright.tracer.axes import as_axis, as_tracer
from loopwright.tracer.pytree import flatten, unflatten
from loopwright.tracer.size import Size, sized
from loopwright.tracer.tables import xp
from loopwright.tracer.tracer import Tracer

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pbroadcast", "pmax", "pmean", "pmin", "ppermute", "pshuffle",
    "psum", "psum_scatter", "pswapaxes",
]

Name = Any  # what vmap was given as axis_name, or a tuple of names
Groups = Sequence[Sequence[int]] | None  # the numbers of the elements that meet, where not all do: each once, as many in each


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


def _group_size(axes: Sequence[NamedAxis], groups: Groups, why: str) -> Size | int:
    """How many elements meet."""
    if groups is None:
        return _size(axes)
    count = operator.index(_size(axes))
    if len({len(g) for g in groups}) != 1 or sorted(k for g in groups for k in g) != list(range(count)):
        raise ArgumentError(f"{user_source()}: {why}: axis_index_groups must have each of the {count} elements of the axis "
                            f"once, in groups of one size, got {groups}.")
    return len(groups[0])


def _group(x: Tracer, axes: Sequence[NamedAxis], groups: Sequence[Sequence[int]], why: str) -> Tracer:
    """x of all elements of an element's own group, along a new first axis."""
    size, names = _group_size(axes, groups, why), tuple([a.name for a in axes])
    members = np.empty((sum(map(len, groups)), operator.index(size)), np.int64)
    for g in groups:
        members[list(g)] = g
    own = dynamic_index_in_dim(_traced(members), axis_index(names), keepdims=False)
    found: Tracer = index_take(all_gather(x, names), (own,), (0,))
    return found


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
def psum(x: Any, axis_name: Name, *, axis_index_groups: Groups = None) -> Any:
    """The sum of x over all elements of an axis, for each of them. Bools are counted as int32; psum(1, name) is axis_size.
    axis_index_groups: elements meet only within groups of equal size, given by their numbers.

    >>> from loopwright import vmap
    >>> vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    axes = _axes(axis_name, "psum")

    def one(leaf: Any) -> Any:
        if _is_number(leaf):
            return leaf * _group_size(axes, axis_index_groups, "psum")
        x = _traced(leaf)
        x = x.astype(I32) if x.dtype == BOOL else x
        if axis_index_groups is not None:
            return xp.sum(_group(x, axes, axis_index_groups, "psum"), axis=0, dtype=x.dtype)
        return _across(ops.psum, x, axes)
    return _each(x, one)


def pmean(x: Any, axis_name: Name, *, axis_index_groups: Groups = None) -> Any:
    """The mean of x over all elements of an axis, or of each group of them."""
    count = _group_size(_axes(axis_name, "pmean"), axis_index_groups, "pmean")
    return _each(psum(x, axis_name, axis_index_groups=axis_index_groups), lambda total: total / count)


def pmax(x: Any, axis_name: Name, *, axis_index_groups: Groups = None) -> Any:
    """The greatest x of all elements of an axis, or of each group, NaN if one is. Ties share the derivative."""
    return _extreme("pmax", ops.pmax, xp.max, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Name, *, axis_index_groups: Groups = None) -> Any:
    """The least x of all elements of an axis, or of each group, NaN if one is. Ties share the derivative."""
    return _extreme("pmin", ops.pmin, xp.min, x, axis_name, axis_index_groups)


def _extreme(why: str, op: Op, along: Callable[..., Any], x: Any, axis_name: Name, groups: Groups) -> Any:
    axes = _axes(axis_name, why)

    def one(leaf: Any) -> Any:
        if _is_number(leaf):
            return leaf
        return _across(op, _traced(leaf), axes) if groups is None else along(_group(_traced(leaf), axes, groups, why), axis=0)
    return _each(x, one)


def _across(op: Op, x: Tracer, axes: Sequence[NamedAxis]) -> Tracer:
    return functools.reduce(lambda y, axis: Tracer(op.all(y.ref, axis.index, axis=axis.identity)[0]), axes, x)


# ---- moves ------------------------------------------------------------------------------------------
def all_gather(x: Any, axis_name: Name, *, axis_index_groups: Groups = None, axis: int = 0, tiled: bool = False) -> Any:
    """x of all elements of an axis, or of each group, stacked along a new axis `axis`; `tiled`: put one after another along
    that axis of x.

    >>> from loopwright import vmap
    >>> vmap(lambda x: np.cumsum(all_gather(x, "i"))[1], axis_name="i")(np.array([1.0, 3.0, 5.0]))
    array([4., 4., 4.])
    """
    axes = _axes(axis_name, "all_gather")

    def one(leaf: Any) -> Any:
        y = _traced(leaf)
        own, at = y.shape, as_axis(axis, y.ndim if tiled else y.ndim + 1)
        if axis_index_groups is not None:
            y = xp.moveaxis(_group(y, axes, axis_index_groups, "all_gather"), 0, at)
        else:
            for a in reversed(axes):
                y = Tracer(ops.all_gather.all(y.ref, a.index, axis=a.identity, size=a.size, at=at)[0])
        count = _group_size(axes, axis_index_groups, "all_gather")
        lines = (count, *own[at:]) if not tiled else (count * own[at], *own[at + 1:])
        return xp.reshape(y, (*own[:at], *lines))
    return _each(x, one)


def psum_scatter(x: Any, axis_name: Name, *, scatter_dimension: int = 0, axis_index_groups: Groups = None,
                 tiled: bool = False) -> Any:
    """psum, of which element k gets place k along an axis of x that has as many places as there are elements; `tiled`: the
    k-th of so many equal parts. ShapeError where the sizes do not fit. axis_index_groups: as in psum, and k counts within the
    group."""
    axes = _axes(axis_name, "psum_scatter")

    def one(leaf: Any) -> Any:
        y = _traced(leaf)
        at, count = as_axis(scatter_dimension, y.ndim), _group_size(axes, axis_index_groups, "psum_scatter")
        own = y.shape
        if (own[at] % count != 0) if tiled else (own[at] != count):
            raise ShapeError(f"{user_source()}: psum_scatter: axis {at} of {y.type} must have "
                             f"{'a multiple of ' * tiled}{count} places, the number of elements of {axis_name!r}.")
        rest = (own[at] // count,) if tiled else ()
        y = y.astype(I32) if y.dtype == BOOL else y
        if axis_index_groups is not None:
            parts = xp.reshape(y, (*own[:at], count, *rest, *own[at + 1:]))
            found = all_to_all(parts, axis_name, at, 0, axis_index_groups=axis_index_groups)
            return xp.sum(found, axis=0, dtype=y.dtype)
        y = xp.reshape(y, (*own[:at], *[_size([a]) for a in axes], *rest, *own[at + 1:]))
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


def pshuffle(x: Any, axis_name: Name, perm: Sequence[int]) -> Any:
    """x of element perm[k] for element k; perm has each number once."""
    return ppermute(x, axis_name, [(source, k) for k, source in enumerate(perm)])


def pbroadcast(x: Any, axis_name: Name, source: int) -> Any:
    """x of the element of this number, for all elements."""
    return _each(all_gather(x, axis_name), lambda y: index_in_dim(y, source, keepdims=False))


def all_to_all(x: Any, axis_name: Name, split_axis: int, concat_axis: int, *, axis_index_groups: Groups = None,
               tiled: bool = False) -> Any:
    """The k-th part of x along split_axis, of all elements, for element k: stacked along a new axis concat_axis in place of
    split_axis, whose size is the number of elements; `tiled`: put one after another along the axis concat_axis of x, in parts
    of equal size. axis_index_groups: elements meet only within groups.

    >>> from loopwright import vmap
    >>> vmap(lambda x: all_to_all(x, "i", 0, 0), axis_name="i")(np.arange(4).reshape(2, 2))
    array([[0, 2],
           [1, 3]])
    """
    axes = _axes(axis_name, "all_to_all")
    count = _group_size(axes, axis_index_groups, "all_to_all")
    place = axis_index(axis_name)
    if axis_index_groups is not None:
        places = np.argsort([k for g in axis_index_groups for k in g], kind="stable") % len(axis_index_groups[0])
        place = dynamic_index_in_dim(_traced(places), place, keepdims=False)

    def one(leaf: Any) -> Any:
        y = _traced(leaf)
        split, at = as_axis(split_axis, y.ndim), as_axis(concat_axis, y.ndim)
        own = y.shape
        if (own[split] % count != 0) if tiled else (own[split] != count):
            raise ShapeError(f"{user_source()}: all_to_all: axis {split} of {y.type} must have "
                             f"{'a multiple of ' * tiled}{count} places, the number of elements that meet.")
        if tiled:
            y = xp.reshape(y, (*own[:split], count, own[split] // count, *own[split + 1:]))
        everyone = all_gather(y, axis_name, axis_index_groups=axis_index_groups)
        mine = xp.moveaxis(dynamic_index_in_dim(everyone, place, split + 1, keepdims=False), 0, at)
        if not tiled:
            return mine
        return xp.reshape(mine, (*mine.shape[:at], mine.shape[at] * mine.shape[at + 1], *mine.shape[at + 2:]))
    return _each(x, one)


def pswapaxes(x: Any, axis_name: Name, axis: int, *, axis_index_groups: Groups = None) -> Any:
    """x with an axis and the mapped axis exchanged, which have one size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
