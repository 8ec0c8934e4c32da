"""Reductions over sliding windows, and how windows lie: what `lax` and `nn` say of padding, strides and dilations.

Guarantees: sizes may be symbolic; what padding and sizes need to know of them (whether a window fits, whether "SAME" pads at
all) becomes a guard.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.calls import Place, name_of
from loopwright.ir.builder import Ref, innermost
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Dim, Extent, Shape, floordiv
from loopwright.ir.errors import ArgumentError, ShapeError
from loopwright.ir.guards import Scope
from loopwright.ir.op import Op
from loopwright.ir.ops import arithmetic, bitwise, reductions
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.construct import full, scalar
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.windows import greatest_value, least_value, window_max, window_min, windows
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, ArrayType
from loopwright.tracer.axes import as_size, known_list
from loopwright.tracer.promotion import as_operand, convert, lift_own
from loopwright.tracer.trace import trace
from loopwright.tracer.tracer import Tracer

Padding = str | Sequence[Sequence[Any]]


# ---- operands -------------------------------------------------------------------------------------
def entered(xs: Sequence[Any], sizes: Sequence[Extent], why: str) -> tuple[Place, list[Ref]]:
    """Arrays, and where what is done with them goes; `sizes` are those that settings ask for."""
    values = [as_operand(x) for x in xs]
    known: list[Any] = [x.ref if isinstance(x, Tracer) else np.asarray(x) for x in values]
    around = innermost()
    if around is not None and any(isinstance(n, Dim) for n in sizes):
        known = [lift_own(x, around) if isinstance(x, np.ndarray) else x for x in known]
    here = Place(known, why)
    return here, here.refs(known)


def integers(xs: Any, count: int, default: int, what: str, why: str) -> tuple[int, ...]:
    """A setting of one positive integer for each axis; None stands for `default` everywhere."""
    found = (default,) * count if xs is None else tuple([operator.index(n) for n in known_list(xs)])
    if len(found) != count or any(n < 1 for n in found):
        raise ShapeError(f"{user_source()}: {why}: {what} must be {count} positive integers, one for each axis, got {found}.")
    return found


# ---- how windows lie ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Axis:
    """Windows along one axis: what users say of them, and the array's own size."""

    extent: Extent
    window: Extent
    stride: int
    base: int
    dilation: int

    def reach(self, scope: Scope) -> Extent:
        """From the first element of a window to its last."""
        return _dilated(self.window, self.dilation, scope)

    def same(self, scope: Scope, is_lower: bool) -> tuple[Extent, Extent]:
        """Padding in front, and how many windows, so that there is one for each `stride` elements."""
        count = floordiv(self.extent + (self.stride - 1), self.stride)
        reach = self.reach(scope)
        total = (count - 1) * self.stride + reach - self.extent
        if reach == 1 or not scope.decide("<=", 0, total):  # one element stands at each step
            total = 0
        return floordiv(total + 1 if is_lower else total, 2), count

    def padded(self, scope: Scope, low: Extent, high: Extent) -> tuple[Extent, Extent]:
        """The same where the padding is given: as many windows as fit."""
        free = _dilated(self.extent, self.base, scope) + low + high - self.reach(scope)
        return low, floordiv(free, self.stride) + 1 if scope.decide("<=", 0, free) else 0


def _dilated(n: Extent, by: int, scope: Scope) -> Extent:
    if by == 1:
        return n
    return 0 if scope.decide("==", n, 0) else (n - 1) * by + 1


def placed(axes: Sequence[Axis], padding: Padding, scope: Scope, why: str) -> tuple[Shape, Shape]:
    """Padding in front of each axis, and how many windows there are along it."""
    if isinstance(padding, str):
        kind = padding.upper()
        if kind not in ("SAME", "SAME_LOWER", "VALID"):
            raise _no_padding(padding, len(axes), why)
        found = [a.padded(scope, 0, 0) if kind == "VALID" else a.same(scope, kind == "SAME_LOWER") for a in axes]
    else:
        pairs = known_list(padding)
        if len(pairs) != len(axes) or any(not isinstance(p, (tuple, list)) or len(p) != 2 for p in pairs):
            raise _no_padding(padding, len(axes), why)
        found = [a.padded(scope, as_size(low), as_size(high)) for a, (low, high) in zip(axes, pairs, strict=True)]
    return tuple([low for low, _ in found]), tuple([count for _, count in found])


def _no_padding(padding: Any, count: int, why: str) -> ArgumentError:
    return ArgumentError(f"{user_source()}: {why}: padding must be 'SAME', 'SAME_LOWER', 'VALID' or a pair (low, high) for "
                         f"each of {count} axes, got {padding!r}.")


# ---- reductions -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Monoid:
    """An operation of two numbers that windows are reduced by, and what changes nothing in it."""

    op: Op
    identity: Callable[[np.dtype], Any]
    reduce: Op
    over: Op | None = None  # over windows at once


ADD = Monoid(arithmetic.add, lambda dtype: 0, reduce_sum)
MUL = Monoid(arithmetic.mul, lambda dtype: 1, reductions.reduce_prod)
MAX = Monoid(arithmetic.max, least_value, reductions.reduce_max, window_max)
MIN = Monoid(arithmetic.min, greatest_value, reductions.reduce_min, window_min)
_MONOIDS = {arithmetic.add: ADD, arithmetic.mul: MUL, arithmetic.max: MAX, arithmetic.min: MIN}
_OF_BOOLS = {bitwise.bitwise_or: MAX, bitwise.bitwise_and: MIN}


def _monoid(computation: Callable[..., Any], dtype: np.dtype, why: str) -> Monoid:
    """Which operation a function of two numbers is."""
    number = ArrayType((), dtype)
    made = trace(lambda xs: computation(*xs), [number, number], is_floor=True, why=why)
    known = _MONOIDS | (_OF_BOOLS if dtype == BOOL else {})
    if not made.outer and len(made.graph.nodes) == 1 and len(made.graph.results) == 1:
        node, = made.graph.nodes
        if node.op in known and set(node.inputs) == set(made.graph.params) and made.graph.results == node.outputs:
            return known[node.op]
    raise ArgumentError(f"{user_source()}: {why}: the computation must be a sum, product, maximum or minimum of its two "
                        f"arguments (np.add, np.multiply, np.maximum, np.minimum; np.logical_or, np.logical_and of bools). "
                        f"For another, scan over the positions of a window.")


def reduce_window(operand: Any, init_value: Any, computation: Callable[..., Any], window_dimensions: Sequence[Any],
                  window_strides: Sequence[int] | None = None, padding: Padding = "VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None) -> Any:
    """`computation` of the elements of each window and `init_value`, which also stands where a window reaches past the array.

    window_dimensions: how many elements a window has along each axis of the operand. padding: "SAME" (a window for each
    `stride` elements), "SAME_LOWER" (the same, with the greater half of the padding in front), "VALID" (windows inside the
    array), or pairs (low, high). base_dilation: how far apart elements are; window_dilation: how far apart those of a window.
    computation: np.add, np.multiply, np.maximum or np.minimum, or a function that is one of them; of bools np.logical_or and
    np.logical_and too. The first greatest (least) element of a window has its derivative, in C order; where init_value is not
    what -inf is to a maximum, ties share it. ShapeError for settings that do not fit, ArgumentError for other computations.

    >>> reduce_window(np.arange(5.0), 0.0, np.add, (2,))
    array([1., 3., 5., 7.])
    >>> reduce_window(np.array([[1, 5], [7, 2]]), 0, np.maximum, (1, 2), padding="SAME")
    array([[5, 5],
           [7, 2]])
    """
    why = f"reduce_window by {name_of(computation)}"
    window = tuple([as_size(n) for n in known_list(window_dimensions)])
    here, (x, init) = entered([operand, init_value], window, why)
    monoid = _monoid(computation, x.dtype, why)
    if init.shape:
        raise ShapeError(f"{user_source()}: {why}: init_value must be a number, got {init.type}.")
    axes, attrs = _settings(x, window, window_strides, padding, base_dilation, window_dilation, here.builder.scope, why)
    if not isinstance(init_value, Tracer) and scalar(init_value, x.dtype) == scalar(monoid.identity(x.dtype), x.dtype):
        return here.results([reduced(x, monoid, axes, attrs)])[0][0]
    return here.results([_from(x, convert(init, x.dtype), monoid, axes, attrs)])[0][0]


def _settings(x: Ref, window: Shape, strides: Any, padding: Padding, base: Any, dilation: Any, scope: Scope,
              why: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The axes along which windows are more than the elements, and how they lie there."""
    rank = len(x.shape)
    if len(window) != rank:
        raise ShapeError(f"{user_source()}: {why}: window_dimensions must have one entry for each axis of the operand, "
                         f"{x.type}, got {window}.")
    if not all(scope.decide("<=", 1, n) for n in window):
        raise ShapeError(f"{user_source()}: {why}: a window has at least one element along each axis, got {window}.")
    by = integers(strides, rank, 1, "window_strides", why)
    spread = integers(base, rank, 1, "base_dilation", why)
    apart = integers(dilation, rank, 1, "window_dilation", why)
    every = [Axis(*one) for one in zip(x.shape, window, by, spread, apart, strict=True)]
    low, count = placed(every, padding, scope, why)
    moved = [k for k, a in enumerate(every)
             if not (a.window == a.stride == a.base == 1 and low[k] == 0 and count[k] == a.extent)]

    def some(xs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([xs[k] for k in moved])
    return tuple(moved), {"window": some(window), "stride": some(by), "dilation": some(apart), "base": some(spread),
                          "low": some(low), "count": some(count)}


def reduced(x: Ref, monoid: Monoid, axes: tuple[int, ...], attrs: dict[str, Any]) -> Ref:
    """Windows reduced, where nothing changes anything past the array."""
    if not axes:
        return x
    if monoid.over is not None:
        return monoid.over(x, axes=axes, **attrs)
    rank = len(x.shape)
    seen = windows(x, axes=axes, value=scalar(monoid.identity(x.dtype), x.dtype), **attrs)
    return monoid.reduce(seen, axes=tuple(range(rank, rank + len(axes))))


def _from(x: Ref, init: Ref, monoid: Monoid, axes: tuple[int, ...], attrs: dict[str, Any]) -> Ref:
    """Windows reduced, and `init` with each and past the array."""
    rank, found = len(x.shape), x
    if axes:
        seen = windows(x, axes=axes, value=0, **attrs)
        there = windows(full(into=x.builder, value=True, shape=x.shape, dtype=BOOL), axes=axes, value=False, **attrs)
        every = select(there, seen, broadcast(init, shape=seen.shape, axes=()))
        found = monoid.reduce(every, axes=tuple(range(rank, rank + len(axes))))
    return monoid.op(found, broadcast(init, shape=found.shape, axes=()))
