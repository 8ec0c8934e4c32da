"""Sliding windows over some axes: all of them as an array, its transpose, and the extremes of each.

Position k of window s of an axis is element (s*stride + k*dilation - low) / base, where that is a whole number and inside the
axis, and else stands for nothing. So `low` pads in front (or crops, where negative), `base` spreads the axis out with nothing
between its elements, and `count`, the number of windows, says how far they go: no rule asks what is behind the axis. A stride
may be a size like others where nothing asks in which windows an element is: no derivative is taken of these, then.

Guarantees: nothing is read outside the array; the greatest or least of a window passes its derivative to the first element
that has it, in window order.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from loopwright.ir.builder import Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, product, symbol
from loopwright.ir.errors import ShapeError
from loopwright.ir.facts import Facts
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext, Reduce, When, integer, less, minus, plus, times
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.arithmetic import add, floor_divide, mul, remainder, sub
from loopwright.ir.ops.bitwise import bitwise_and
from loopwright.ir.ops.broadcasting import broadcast, converted, operand_dtype
from loopwright.ir.ops.comparison import le, lt
from loopwright.ir.ops.construct import full_like, iota, scalar, size_value
from loopwright.ir.ops.elementwise import between
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.reductions import accumulator, ordered_dtype, widened
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import reshape
from loopwright.ir.types import BOOL, I64, ArrayType, is_inexact

Ints = tuple[int, ...]


# ---- one axis -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sliding:
    """Windows along one axis of `extent` elements."""

    extent: Extent
    window: Extent
    stride: Extent
    dilation: int
    base: int
    low: Extent
    count: Extent

    def element(self, s: Expr, k: Expr) -> tuple[Expr, list[Expr]]:
        """Where position k of window s is on the axis, and the tests that say whether it is there."""
        steps = minus(plus(times(s, integer(self.stride)), times(k, integer(self.dilation))), integer(self.low))
        most = (self.count - 1) * self.stride + (self.window - 1) * self.dilation - self.low
        return _divided(steps, self.base, self.extent, self.low * -1, most)

    def window_of(self, i: Expr, k: Expr) -> tuple[Expr, list[Expr]]:
        """Of which window element i is position k, and the tests that say whether there is one."""
        assert isinstance(self.stride, int), "an element's windows are found by dividing, by a number"
        steps = minus(plus(times(i, integer(self.base)), integer(self.low)), times(k, integer(self.dilation)))
        least = self.low - (self.window - 1) * self.dilation
        return _divided(steps, self.stride, self.count, least, (self.extent - 1) * self.base + self.low)


def _divided(steps: Expr, by: int, count: Extent, least: Extent, most: Extent) -> tuple[Expr, list[Expr]]:
    """steps / by, and that it is a whole number in [0, count): only the tests that can fail, from least to most steps."""
    tests = [] if _at_most(0, least) else [less(integer(-1), steps)]
    place = steps
    if by > 1:
        tests.append(Apply("eq", (Apply("remainder", (steps, integer(by)), I64), integer(0)), BOOL))
        place = Apply("floor_divide", (steps, integer(by)), I64)
    if not _at_most(most, (count - 1) * by):
        tests.append(less(place, integer(count)))
    return place, tests


def _at_most(a: Extent, b: Extent) -> bool:
    return a <= b if isinstance(a, int) and isinstance(b, int) else Facts().prove("<=", a, b) is True


def where_all(tests: Sequence[Expr], then: Expr, other: Expr) -> Expr:
    """`then` where every test holds; it is not evaluated where one fails."""
    for test in reversed(tests):
        then = When(test, then, other)
    return then


def sliding(shape: Shape, axes: Ints, window: Shape, stride: Shape, dilation: Ints, base: Ints, low: Shape,
            count: Shape) -> list[Sliding]:
    """The windows along each of the axes of an array."""
    every = zip((shape[a] for a in axes), window, stride, dilation, base, low, count, strict=True)
    return [Sliding(*one) for one in every]


def check_windows(name: str, rank: int, axes: Ints, window: Shape, stride: Shape, dilation: Ints, base: Ints, low: Shape,
                  count: Shape) -> None:
    """ShapeError for settings that do not fit together."""
    if any(len(x) != len(axes) for x in (window, stride, dilation, base, low, count)):
        raise ShapeError(f"{name}: window {window}, stride {stride}, dilation {dilation}, base {base}, low {low} and count "
                         f"{count} must have one entry for each of the axes {axes}")
    if len(set(axes)) != len(axes) or any(not 0 <= a < rank for a in axes):
        raise ShapeError(f"{name}: axes {axes} must be distinct and below {rank}")
    for what, numbers, least in (("stride", stride, 1), ("dilation", dilation, 1), ("base", base, 1), ("window", window, 0),
                                 ("count", count, 0)):
        if any(isinstance(n, int) and n < least for n in numbers):
            raise ShapeError(f"{name}: a {what} of {numbers} is less than {least}")


def _attrs(axes: Ints, window: Shape, count: Shape, low: Shape | None = None, stride: Ints | None = None,
           dilation: Ints | None = None, base: Ints | None = None) -> dict[str, Any]:
    """Settings for examples."""
    ones = (1,) * len(axes)
    return {"axes": axes, "window": window, "stride": stride or ones, "dilation": dilation or ones, "base": base or ones,
            "low": low or (0,) * len(axes), "count": count}


# ---- with NumPy -----------------------------------------------------------------------------------
def _spread(n: int, base: int, low: int, length: int) -> tuple[slice, slice]:
    """Which elements of an axis lie on a line of `length` that begins `low` before it, and where on that line."""
    first = max(0, -(low // base))
    last = min(n - 1, (length - 1 - low) // base)
    if last < first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last + 1), slice(first * base + low, last * base + low + 1, base)


def _lines(shape: Sequence[int], axes: Ints, window: Ints, stride: Ints, dilation: Ints, base: Ints, low: Ints,
           count: Ints) -> tuple[list[int], tuple[slice, ...], tuple[slice, ...]]:
    """The shape of an array just as long as the windows reach, which elements of x are in it, and where."""
    line, inside, at = list(shape), [slice(None)] * len(shape), [slice(None)] * len(shape)
    for a, x in zip(axes, sliding(tuple(shape), axes, window, stride, dilation, base, low, count), strict=True):
        line[a] = (x.count - 1) * x.stride + (x.window - 1) * x.dilation + 1  # type: ignore[assignment]
        inside[a], at[a] = _spread(shape[a], x.base, x.low, line[a])  # type: ignore[arg-type]
    return line, tuple(inside), tuple(at)


def windows_numpy(x: np.ndarray, value: Any, axes: Ints, **attrs: Ints) -> np.ndarray:
    """The meaning of `windows`: a view of x where x is all that the windows reach."""
    window, stride, dilation, count = (attrs[k] for k in ("window", "stride", "dilation", "count"))
    shape = list(x.shape)
    for a, n in zip(axes, count, strict=True):
        shape[a] = n
    if 0 in (*count, *window):
        return np.full((*shape, *window), value, x.dtype)
    line, inside, at = _lines(x.shape, axes, **attrs)
    if all(n == m and i == j for n, m, i, j in zip(line, x[inside].shape, inside, at, strict=True)):
        long = x[inside]
    else:
        long = np.full(line, value, x.dtype)
        long[at] = x[inside]
    seen = sliding_window_view(long, [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)], axis=axes)
    starts = [slice(None)] * x.ndim
    for a, by in zip(axes, stride, strict=True):
        starts[a] = slice(None, None, by)
    return seen[(*starts, *(slice(None, None, d) for d in dilation))]


def _overlap_add_numpy(y: np.ndarray, extent: Ints, axes: Ints, **attrs: Ints) -> np.ndarray:
    """One addition for each position in a window."""
    window, stride, dilation, count = (attrs[k] for k in ("window", "stride", "dilation", "count"))
    shape = list(y.shape[:y.ndim - len(axes)])
    for a, n in zip(axes, extent, strict=True):
        shape[a] = n
    out = np.zeros(shape, accumulator(y.dtype))
    if 0 in (*count, *window):
        return out.astype(y.dtype)
    line, inside, at = _lines(shape, axes, **attrs)
    long = np.zeros(line, out.dtype)
    for k in np.ndindex(*window):
        to = [slice(None)] * len(shape)
        for a, place, d, by, n in zip(axes, k, dilation, stride, count, strict=True):
            to[a] = slice(place * d, place * d + (n - 1) * by + 1, by)
        long[tuple(to)] += y[(..., *k)]
    out[inside] = long[at]
    return out.astype(y.dtype)


# ---- windows and their transpose ------------------------------------------------------------------
def _windowed(x: ArrayType, axes: Ints, count: Shape) -> Shape:
    return tuple(count[axes.index(a)] if a in axes else n for a, n in enumerate(x.shape))


def _windows_shape(x: ArrayType, axes: Ints, count: Shape, window: Shape, value: Any, **attrs: Any) -> Shape:
    check_windows("windows", x.rank, axes, count=count, window=window, **attrs)
    return (*_windowed(x, axes, count), *window)


def _load_window(context: LoopContext, index: tuple[Expr, ...], within: Sequence[Expr], value: Any, axes: Ints,
                 attrs: dict[str, Any]) -> Expr:
    """Position `within` of the window at `index`, or `value`."""
    x = context.types[0]
    at, tests = list(index), []
    for a, k, one in zip(axes, within, sliding(x.shape, axes, **attrs), strict=True):
        at[a], own = one.element(index[a], k)
        tests += own
    return where_all(tests, context.load(0, tuple(at)), Literal(scalar(value, x.dtype), x.dtype))


def _windows_loop(context: LoopContext, index: tuple[Expr, ...], axes: Ints, value: Any, **attrs: Any) -> Expr:
    rank = context.types[0].rank
    return _load_window(context, index[:rank], index[rank:], value, axes, attrs)


def _behind(axes: Ints) -> Ints:
    return tuple(a + 1 for a in axes)


def _windows_batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], axes: Ints, **attrs: Any) -> Ref:
    return windows(args[0], axes=_behind(axes), **attrs)


def _windows_transpose(ct: Ref, x: ArrayType, axes: Ints, value: Any, **attrs: Any) -> Ref:
    return overlap_add(ct, axes=axes, extent=tuple(x.shape[a] for a in axes), **attrs)


_n, _m = symbol("n"), symbol("m")
_GEOMETRIES = (
    ("n", _attrs((0,), (3,), (_n,), low=(1,))),
    ("n + 2, 3", _attrs((0,), (3,), (_n,))),
    ("2, n, m", _attrs((2, 1), (2, 3), (_m, _n), low=(1, 2), dilation=(2, 1))),
    ("7, 2", _attrs((0,), (2,), (3,), low=(-1,), stride=(2,))),
    ("n", _attrs((0,), (3,), (_n * 2 + 1,), low=(2,), base=(2,), dilation=(3,))),
    ("5", _attrs((0,), (_m,), (4,), low=(_m,), stride=(3,), base=(2,))),
    ("0, 3", _attrs((0,), (2,), (2,), low=(1,))),
    ("4, 3", _attrs((1,), (2,), (0,))),
)

windows: Op = Op(
    name="windows",
    doc="Windows along axes, of which the result's last axes are the positions: `value` where a position stands for nothing. "
        "Linear when that is 0, as tangents have it.",
    shape=_windows_shape,
    dtype=operand_dtype,
    numpy=windows_numpy,
    batch=_windows_batch,
    loop=_windows_loop,
    jvp=lambda primals, tangents, out, value, **attrs: windows(tangents[0], value=0, **attrs),
    linear=(0,), jointly=True, transpose={0: _windows_transpose},
    examples=(*(Example((f"f64[{shape}]",), {**attrs, "value": 0}) for shape, attrs in _GEOMETRIES),
              Example(("f64[]",), {**_attrs((), (), ()), "value": 0}),
              Example(("i8[n]",), {**_attrs((0,), (3,), (_n,), low=(1,)), "value": 7}),
              Example(("c128[4]",), {**_attrs((0,), (2,), (3,)), "value": 0})),
)


def _overlap_add_shape(y: ArrayType, axes: Ints, count: Shape, window: Shape, extent: Shape, **attrs: Any) -> Shape:
    rank = y.rank - len(axes)
    check_windows("overlap_add", rank, axes, count=count, window=window, **attrs)
    if len(extent) != len(axes) or y.shape != (*_windowed(y, axes, count)[:rank], *window):
        raise ShapeError(f"overlap_add: {y} must have {count} windows along axes {axes} and positions {window} at the end")
    return tuple(extent[axes.index(a)] if a in axes else n for a, n in enumerate(y.shape[:rank]))


def _overlap_add_loop(context: LoopContext, index: tuple[Expr, ...], axes: Ints, extent: Shape, **attrs: Any) -> Expr:
    """result[i] = the sum over positions k of the window that has element i there."""
    y = context.types[0]
    inside = accumulator(y.dtype)
    over = tuple((context.fresh(), n) for n in attrs["window"])
    at: list[Expr] = list(index)
    tests: list[Expr] = []
    for a, (k, _), one in zip(axes, over, sliding(context.result.shape, axes, **attrs), strict=True):
        at[a], own = one.window_of(index[a], k)
        tests += own
    element = converted(context.load(0, (*at, *(k for k, _ in over))), inside)
    if over:
        nothing = Literal(scalar(0, inside), inside)
        element = Reduce("any" if inside == BOOL else "sum", over, where_all(tests, element, nothing), inside)
    return converted(element, y.dtype)


def _overlap_add_transpose(ct: Ref, y: ArrayType, axes: Ints, extent: Shape, **attrs: Any) -> Ref:
    return windows(ct, axes=axes, value=0, **attrs)


def _overlapping(shape: str, attrs: dict[str, Any]) -> Example:
    """The transpose of an example of windows."""
    extents = [_parsed(text) for text in shape.split(", ")]
    of = tuple(extents[a] for a in attrs["axes"])
    seen = [attrs["count"][attrs["axes"].index(a)] if a in attrs["axes"] else n for a, n in enumerate(extents)]
    return Example((f"f64[{', '.join(map(str, (*seen, *attrs['window'])))}]",), {**attrs, "extent": of})


def _parsed(text: str) -> Extent:
    return {"n": _n, "m": _m, "n + 2": _n + 2}[text] if text[0].isalpha() else int(text)


overlap_add: Op = Op(
    name="overlap_add",
    doc="The transpose of windows: each position of each window, added to the element that it stands for.",
    shape=_overlap_add_shape,
    dtype=operand_dtype,
    numpy=_overlap_add_numpy,
    batch=lambda size, args, mapped, axes, **attrs: overlap_add(args[0], axes=_behind(axes), **attrs),
    loop=_overlap_add_loop,
    linear=(0,), jointly=True, transpose={0: _overlap_add_transpose},
    examples=(*(_overlapping(shape, attrs) for shape, attrs in _GEOMETRIES),
              Example(("f64[]",), {**_attrs((), (), ()), "extent": ()}),
              Example(("f16[3, 2]",), {**_attrs((0,), (2,), (3,)), "extent": (4,)}),
              Example(("i8[3, 2]",), {**_attrs((0,), (2,), (3,)), "extent": (4,)})),
)


# ---- extremes of windows --------------------------------------------------------------------------
def least_value(dtype: np.dtype) -> Any:
    """What every number of a dtype is at least."""
    return -np.inf if is_inexact(dtype) else False if dtype == BOOL else int(np.iinfo(dtype).min)


def greatest_value(dtype: np.dtype) -> Any:
    """What every number of a dtype is at most."""
    return np.inf if is_inexact(dtype) else True if dtype == BOOL else int(np.iinfo(dtype).max)


def _extreme_shape(name: str) -> Callable[..., Shape]:
    def shape(x: ArrayType, axes: Ints, count: Shape, window: Shape, **attrs: Any) -> Shape:
        check_windows(name, x.rank, axes, count=count, window=window, **attrs)
        if not axes or 0 in window:
            raise ShapeError(f"{name}: a window of {window} holds nothing to choose from")
        return _windowed(x, axes, count)
    return shape


def _extreme_examples(dtypes: Sequence[str]) -> tuple[Example, ...]:
    """No window without an element: a derivative by differences would meet an infinity there."""
    return (*(Example((f"f64[{shape}]",), attrs) for shape, attrs in (*_GEOMETRIES[:2], _GEOMETRIES[3])),
            Example(("f64[2, n, m]",), _attrs((2, 1), (2, 3), (_m, _n), low=(0, 1))),
            Example(("f64[n + 1]",), _attrs((0,), (2,), (_n * 2,), low=(1,), base=(2,))),
            Example(("f64[4, 3]",), _attrs((1,), (2,), (0,))),
            *(Example((f"{d}[n, 3]",), _attrs((1, 0), (2, 3), (2, _n), low=(0, 1)), {0: between(0, 2)}) for d in dtypes))


def _position(name: str, monoid: str, nothing: Callable[[np.dtype], Any], numpy: Callable[..., Any], doc: str) -> Op:
    def loop(context: LoopContext, index: tuple[Expr, ...], axes: Ints, **attrs: Any) -> Expr:
        """Over one index for all axes of the window, so that the first is the first in C order."""
        k, within = context.fresh(), []
        rest: Expr = k
        for n in reversed(attrs["window"][1:]):
            within.append(Apply("remainder", (rest, integer(n)), I64))
            rest = Apply("floor_divide", (rest, integer(n)), I64)
        body = _load_window(context, index, [rest, *reversed(within)], nothing(context.types[0].dtype), axes, attrs)
        return Reduce(monoid, ((k, product(attrs["window"])),), body, I64)

    def meaning(x: np.ndarray, **attrs: Any) -> np.ndarray:
        seen = windows_numpy(x, nothing(x.dtype), **attrs)
        return np.asarray(numpy(widened(seen.reshape(*seen.shape[:x.ndim], int(np.prod(attrs["window"])))), axis=-1), I64)

    check = ordered_dtype(name)

    def dtype(x: ArrayType, **attrs: Any) -> np.dtype:
        check(x)
        return I64

    op = Op(name=name, doc=doc, shape=_extreme_shape(name), dtype=dtype, numpy=meaning, loop=loop,
            batch=lambda size, args, mapped, axes, **attrs: op(args[0], axes=_behind(axes), **attrs),
            examples=_extreme_examples(("f32", "bf16", "i32", "u8", "bool")))
    return op


def _extreme(name: str, monoid: str, nothing: Callable[[np.dtype], Any], numpy: Callable[..., Any], position: Op,
             doc: str) -> Op:
    def loop(context: LoopContext, index: tuple[Expr, ...], axes: Ints, **attrs: Any) -> Expr:
        dtype = context.result.dtype
        over = tuple((context.fresh(), n) for n in attrs["window"])
        body = _load_window(context, index, [k for k, _ in over], nothing(dtype), axes, attrs)
        inside, fold = accumulator(dtype), monoid if dtype != BOOL else "any" if monoid == "max" else "all"
        return converted(Reduce(fold, over, converted(body, inside), inside), dtype)

    def meaning(x: np.ndarray, axes: Ints, **attrs: Any) -> np.ndarray:
        seen = windows_numpy(x, nothing(x.dtype), axes, **attrs)
        return np.asarray(numpy(widened(seen), axis=tuple(range(x.ndim, seen.ndim)))).astype(x.dtype)

    op = Op(name=name, doc=doc, shape=_extreme_shape(name), dtype=ordered_dtype(name), numpy=meaning, loop=loop,
            batch=lambda size, args, mapped, axes, **attrs: op(args[0], axes=_behind(axes), **attrs),
            jvp=lambda primals, tangents, out, **attrs: _picked(tangents[0], position(primals[0], **attrs), **attrs),
            examples=_extreme_examples(("f16", "bf16", "f32", "i8", "u64", "bool")))
    return op


def _picked(t: Ref, positions: Ref, axes: Ints, **attrs: Any) -> Ref:
    """Of each window the element of t at a position, counted in C order; zero where that stands for nothing."""
    flat, inside = full_like(positions, 0), None
    within = dict(zip(axes, _unraveled(positions, attrs["window"]), strict=True))
    every = dict(zip(axes, sliding(t.shape, axes, **attrs), strict=True))
    for a, n in enumerate(t.shape):
        place = iota(into=positions.builder, shape=positions.shape, axis=a, dtype=I64)
        if a in every:
            place = _element(every[a], place, within[a])
            own = bitwise_and(le(full_like(place, 0), place), lt(place, _number(n, place)))
            inside = own if inside is None else bitwise_and(inside, own)
        flat = add(mul(flat, _number(n, flat)), place)
    assert inside is not None
    whole = product(t.shape)
    index = select(inside, flat, _number(whole, flat))
    return gather(reshape(t, shape=(whole,)), index, axes=(0,), batch=0, mode="zero")


def _number(n: Extent, like: Ref) -> Ref:
    """A size as an array of one number."""
    if isinstance(n, int):
        return full_like(like, n)
    return broadcast(size_value(into=like.builder, size=n), shape=like.shape, axes=())


def _unraveled(positions: Ref, window: Shape) -> list[Ref]:
    within: list[Ref] = []
    for n in reversed(window[1:]):
        within.append(remainder(positions, _number(n, positions)))
        positions = floor_divide(positions, _number(n, positions))
    return [positions, *reversed(within)]


def _element(one: Sliding, s: Ref, k: Ref) -> Ref:
    """Where position k of window s is on the axis; k stands for something, so it is a whole number."""
    steps = add(mul(s, full_like(s, one.stride)), mul(k, full_like(k, one.dilation)))
    steps = sub(steps, _number(one.low, s))
    return steps if one.base == 1 else floor_divide(steps, full_like(s, one.base))


window_argmax = _position("window_argmax", "argmax", least_value, np.argmax,
                          doc="The first position of the greatest of each window, or of the first NaN, in C order: i64.")
window_argmin = _position("window_argmin", "argmin", greatest_value, np.argmin,
                          doc="The first position of the least of each window, or of the first NaN, in C order: i64.")
window_max = _extreme("window_max", "max", least_value, np.max, window_argmax,
                      doc="The greatest of each window, NaN if any is; the first that is has the derivative.")
window_min = _extreme("window_min", "min", greatest_value, np.min, window_argmin,
                      doc="The least of each window, NaN if any is; the first that is has the derivative.")
