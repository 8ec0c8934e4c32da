"""Axes as users name them, and arguments that many functions share."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from loopwright.ir.builder import Builder, Ref, innermost
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.errors import ConcretizationError
from loopwright.ir.guards import BEYOND
from loopwright.ir.source import user_source
from loopwright.tracer.indexing import content_guard
from loopwright.tracer.promotion import lift_own, newest_builder, reshape
from loopwright.tracer.size import as_extent
from loopwright.tracer.tables import unsupported
from loopwright.tracer.tracer import Tracer

NO_VALUE = getattr(np, "_NoValue")  # noqa: B009  the default by which NumPy's own signatures say "not given"


def as_axis(axis: Any, rank: int) -> int:
    """One axis counted from the front. AxisError outside the rank."""
    try:
        k = operator.index(axis)
    except TypeError as error:
        if isinstance(error, ConcretizationError):  # which says more
            raise
        raise TypeError(f"{user_source()}: an axis is an integer: {error}") from None
    if not -rank <= k < rank:
        raise AxisError(f"{user_source()}: axis {k} is out of bounds for array of dimension {rank}")
    return k % rank


def as_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """None, an axis or several as distinct axes counted from the front, in the order given."""
    if axis is None:
        return tuple(range(rank))
    axis = known_list(axis)
    axes = tuple([as_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list, range)) else (axis,))])
    if len(set(axes)) != len(axes):
        raise ValueError(f"{user_source()}: repeated axis in {axis}")
    return axes


def folded_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction. NumPy lets a number have one, of which nothing is left to reduce."""
    if rank == 0 and axis is not None and not isinstance(axis, tuple):
        as_axis(axis, 1)
        return ()
    return as_axes(axis, rank)


def along(x: Ref, axis: Any) -> tuple[Ref, int]:
    """x and an axis of it; without an axis x in one line, as a number is where it is said to have one."""
    if axis is None or not x.shape:
        x, axis = reshape(x, (product(x.shape),)), 0 if axis is None else axis
    return x, as_axis(axis, len(x.shape))


def as_tracer(x: Any, builder: Builder | None = None) -> Tracer:
    """x as a traced array: numbers, lists and NumPy arrays become constants and captured arrays."""
    return x if isinstance(x, Tracer) else Tracer(lift_own(x, builder))


def as_tracers(*xs: Any) -> list[Tracer]:
    """Several operands in one trace."""
    builder = newest_builder(xs)
    return [as_tracer(x, builder) for x in xs]


def as_shape(shape: Any) -> Shape:
    """A user's shape: an integer, a Size or a sequence of them. ValueError for a negative one."""
    sizes = as_extents(shape)
    if any(isinstance(n, int) and n < 0 for n in sizes):
        raise ValueError(f"{user_source()}: negative dimensions are not allowed, got {shape}")
    if any(isinstance(n, int) and n >= BEYOND for n in sizes):
        raise ValueError(f"{user_source()}: Maximum allowed dimension exceeded, got {shape}")
    return sizes


def as_extents(shape: Any) -> Shape:
    """A user's integer, Size or sequence of them."""
    shape = known_list(shape)
    return tuple([as_size(n) for n in shape]) if isinstance(shape, (tuple, list)) else (as_size(shape),)


def known_list(x: Any) -> Any:
    """A setting given as an array, as the lists that it holds: the trace then holds only while it does. Others unchanged."""
    if not isinstance(x, np.ndarray):
        return x
    builder = innermost()
    if builder is not None:
        content_guard(builder, x)
    return x.tolist()


def as_size(n: Any) -> Extent:
    """An integer or Size; a traced integer gives its number where the trace knows it."""
    extent = as_extent(n)
    return operator.index(n) if extent is None else extent


def refuse(function: str, **given: Any) -> None:
    """TypeError for an argument that is given and has no meaning here."""
    for name, value in given.items():
        if value is not None and value is not NO_VALUE:
            raise unsupported(f"np.{function}({name}={value!r})")


def is_given(x: Any) -> bool:
    return x is not None and x is not NO_VALUE


def without(shape: Shape, axes: Sequence[int], keepdims: bool = False) -> Shape:
    """A shape after a reduction over axes."""
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    return tuple(n for a, n in enumerate(shape) if a not in axes)


