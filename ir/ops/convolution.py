"""Convolutions, with any number of spatial axes, strides, dilations and groups; every derivative is one again.

An array's `axes` say where its kinds of axes are: of the left operand (group, image, input feature, *space), of the right one,
the kernel, (group, output feature, input feature, *space), of the result (group, image, output feature, *space). So no rule
moves a byte: the transposes exchange kinds. Along each spatial axis, windows are those of `ops/windows.py`, with the strides
of the result as `stride`.

Guarantees: sums are made as those of dot_general: f16 and bf16 in f32, small integers in i32.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, symbol
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext, Reduce
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import converted
from loopwright.ir.ops.construct import scalar
from loopwright.ir.ops.contraction import dot_general, product_dtype
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import inverse, move_axis, reshape, reverse
from loopwright.ir.ops.windows import check_windows, sliding, where_all, windows_numpy
from loopwright.ir.types import BOOL, F64, I32, ArrayType

Axes = tuple[int, ...]
GROUP, IMAGE, FEATURE, SPACE = 0, 1, 2, 3  # of the left operand; the kernel has its output features in place of images


# ---- types ----------------------------------------------------------------------------------------
def _conv_shape(lhs: ArrayType, rhs: ArrayType, lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes, stride: Axes,
                lhs_dilation: Axes, rhs_dilation: Axes, low: Shape, count: Shape, dtype: np.dtype | None) -> Shape:
    for what, axes in ((lhs, lhs_axes), (rhs, rhs_axes), (lhs, out_axes)):
        if what.rank < SPACE or sorted(axes) != list(range(lhs.rank)) or rhs.rank != lhs.rank:
            raise ShapeError(f"conv: {lhs} and {rhs} must have one rank of at least {SPACE}, and each of {lhs_axes}, "
                             f"{rhs_axes} and {out_axes} hold each axis once")
    check_windows("conv", lhs.rank, lhs_axes[SPACE:], tuple(rhs.shape[a] for a in rhs_axes[SPACE:]), stride, rhs_dilation,
                  lhs_dilation, low, count)
    for kind in (GROUP, FEATURE):
        left, right = lhs_axes[kind], rhs_axes[kind]
        if lhs.shape[left] != rhs.shape[right]:
            raise ShapeError(f"conv: axis {left} of {lhs} and axis {right} of {rhs} must have one size, got "
                             f"{lhs.shape[left]} and {rhs.shape[right]}")
    return placed((lhs.shape[lhs_axes[GROUP]], lhs.shape[lhs_axes[IMAGE]], rhs.shape[rhs_axes[IMAGE]], *count), out_axes)


def placed(kinds: Shape, axes: Axes) -> Shape:
    """The shape whose axes of each kind are at `axes`."""
    return tuple(kinds[k] for k in inverse(axes))


def _conv_dtype(lhs: ArrayType, rhs: ArrayType, dtype: np.dtype | None, **attrs: Any) -> np.dtype:
    if lhs.dtype != rhs.dtype:
        raise DTypeError(f"conv: operands must have one dtype, got {lhs} and {rhs}")
    return lhs.dtype if dtype is None else dtype


# ---- meaning --------------------------------------------------------------------------------------
def pairs(rank: int, lhs_axes: Axes, rhs_axes: Axes) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Which axes of the left operand's windows, positions last, and of the kernel are contracted; and which are a batch."""
    contract = [(lhs_axes[FEATURE], rhs_axes[FEATURE]), *((rank + k, a) for k, a in enumerate(rhs_axes[SPACE:]))]
    return tuple(sorted(contract, key=lambda pair: pair[1])), ((lhs_axes[GROUP], rhs_axes[GROUP]),)


def free_kinds(lhs_axes: Axes) -> tuple[int, ...]:
    """The kinds of the axes of dot_general(windows, kernel), in order."""
    return (GROUP, *(k for k, _ in sorted(enumerate(lhs_axes), key=lambda x: x[1]) if k not in (GROUP, FEATURE)), FEATURE)


def _conv_numpy(lhs: np.ndarray, rhs: np.ndarray, lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes, stride: Axes,
                lhs_dilation: Axes, rhs_dilation: Axes, low: Axes, count: Axes, dtype: np.dtype | None) -> np.ndarray:
    """The windows of the left operand times the kernel, as a matrix product."""
    window = tuple(rhs.shape[a] for a in rhs_axes[SPACE:])
    seen = windows_numpy(lhs, 0, lhs_axes[SPACE:], window=window, stride=stride, dilation=rhs_dilation, base=lhs_dilation,
                         low=low, count=count)
    contract, batch = pairs(lhs.ndim, lhs_axes, rhs_axes)
    found = dot_general.numpy(seen, rhs, contract=contract, batch=batch, dtype=dtype)
    kinds = free_kinds(lhs_axes)
    return np.transpose(found, [kinds.index(k) for k in inverse(out_axes)])


def _conv_loop(context: LoopContext, index: tuple[Expr, ...], lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes, stride: Axes,
               lhs_dilation: Axes, rhs_dilation: Axes, low: Shape, count: Shape, dtype: np.dtype | None) -> Expr:
    """result = the sum over input features and positions of left * kernel."""
    lhs, rhs = context.types
    inside = product_dtype(context.result.dtype)
    kinds = [index[a] for a in out_axes]
    over = tuple((context.fresh(), rhs.shape[a]) for a in rhs_axes[FEATURE:])
    feature, *within = [k for k, _ in over]
    places: list[Expr] = [kinds[GROUP], kinds[IMAGE], feature]
    tests: list[Expr] = []
    every = sliding(lhs.shape, lhs_axes[SPACE:], tuple(n for _, n in over[1:]), stride, rhs_dilation, lhs_dilation, low, count)
    for s, k, one in zip(kinds[SPACE:], within, every, strict=True):
        place, own = one.element(s, k)
        places.append(place)
        tests += own
    left = context.load(0, tuple(places[k] for k in inverse(lhs_axes)))
    right = context.load(1, tuple((kinds[GROUP], kinds[FEATURE], feature, *within)[k] for k in inverse(rhs_axes)))
    term = Apply("mul", (converted(left, inside), converted(right, inside)), inside)
    body = where_all(tests, term, Literal(scalar(0, inside), inside))
    return converted(Reduce("any" if inside == BOOL else "sum", over, body, inside, fused=True), context.result.dtype)


# ---- derivatives ----------------------------------------------------------------------------------
def _exchanged(axes: Axes) -> Axes:
    """Images as features, and features as images."""
    return (axes[GROUP], axes[FEATURE], axes[IMAGE], *axes[SPACE:])


def _at(x: Ref, dtype: np.dtype) -> Ref:
    return x if x.dtype == dtype else convert(x, dtype=dtype)


def _conv_transpose_lhs(ct: Ref, lhs: ArrayType | Ref, rhs: Ref, lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes, stride: Axes,
                        lhs_dilation: Axes, rhs_dilation: Axes, low: Shape, count: Shape, dtype: np.dtype | None) -> Ref:
    """Element i of the left operand is position k of window s where s*stride = i*base + k'*dilation - low', for the position
    k' = K-1-k of the kernel backwards and low' = (K-1)*dilation - low: a convolution whose stride and base trade places."""
    kernel, reach = _at(rhs, ct.dtype), []
    for a, d, first in zip(rhs_axes[SPACE:], rhs_dilation, low, strict=True):
        reach.append((rhs.shape[a] - 1) * d - first)
        kernel = reverse(kernel, a) if rhs.shape[a] != 1 else kernel
    bar = conv(ct, kernel, lhs_axes=out_axes, rhs_axes=_exchanged(rhs_axes), out_axes=lhs_axes, stride=lhs_dilation,
               lhs_dilation=stride, rhs_dilation=rhs_dilation, low=tuple(reach),
               count=tuple(lhs.shape[a] for a in lhs_axes[SPACE:]), dtype=None)
    return _at(bar, lhs.dtype)


def _conv_transpose_rhs(ct: Ref, lhs: Ref, rhs: ArrayType | Ref, lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes, stride: Axes,
                        lhs_dilation: Axes, rhs_dilation: Axes, low: Shape, count: Shape, dtype: np.dtype | None) -> Ref:
    """Windows and positions trade places, and with them stride and dilation; images are what is summed over.

    Of one with steps between its elements, these are the kernel, not the zeros: element j is in window o at position k where
    j*base = k*dilation + o - low, so o = k'*dilation + j*base - low', for k' = K-1-k and low' = (K-1)*dilation - low."""
    count = tuple(rhs.shape[a] for a in rhs_axes[SPACE:])
    if max(lhs_dilation, default=1) > 1 == max(stride):
        reach = tuple([(n - 1) * d - first for n, d, first in zip(count, rhs_dilation, low, strict=True)])
        bar = conv(ct, _at(lhs, ct.dtype), lhs_axes=_exchanged(out_axes), rhs_axes=_exchanged(lhs_axes), out_axes=rhs_axes,
                   stride=rhs_dilation, lhs_dilation=stride, rhs_dilation=lhs_dilation, low=reach, count=count, dtype=None)
        for a in rhs_axes[SPACE:]:
            bar = reverse(bar, a) if rhs.shape[a] != 1 else bar
        return _at(bar, rhs.dtype)
    bar = conv(_at(lhs, ct.dtype), ct, lhs_axes=_exchanged(lhs_axes), rhs_axes=_exchanged(out_axes),
               out_axes=_exchanged(rhs_axes), stride=rhs_dilation, lhs_dilation=lhs_dilation, rhs_dilation=stride, low=low,
               count=count, dtype=None)
    return _at(bar, rhs.dtype)


# ---- batches --------------------------------------------------------------------------------------
def merged(x: Ref, axis: int) -> Ref:
    """The first axis and another, counted without the first, made into one there."""
    x = move_axis(x, 0, axis)
    return reshape(x, shape=(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2:]))


def _separated(x: Ref, axis: int, size: Extent, inner: Extent) -> Ref:
    """What `merged` made into one, apart again."""
    apart = reshape(x, shape=(*x.shape[:axis], size, inner, *x.shape[axis + 1:]))
    return move_axis(apart, axis, 0)


def _conv_batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes,
                **attrs: Any) -> Ref:
    """Both mapped: more groups. One mapped: more images, or more output features."""
    kind = GROUP if all(mapped) else IMAGE if mapped[0] else FEATURE
    into = lhs_axes[kind], rhs_axes[GROUP if kind == GROUP else IMAGE]
    inner = next(x.shape[a + 1] for x, m, a in zip(args, mapped, into, strict=True) if m)
    lhs, rhs = (merged(x, a) if m else x for x, m, a in zip(args, mapped, into, strict=True))
    out = conv(lhs, rhs, lhs_axes=lhs_axes, rhs_axes=rhs_axes, out_axes=out_axes, **attrs)
    return _separated(out, out_axes[kind], size, inner)


# ---- the op ---------------------------------------------------------------------------------------
def _attrs(lhs_axes: Axes, rhs_axes: Axes, out_axes: Axes, count: Shape, **given: Any) -> dict[str, Any]:
    ones = (1,) * len(count)
    rest = {"stride": ones, "lhs_dilation": ones, "rhs_dilation": ones, "low": (0,) * len(count), "dtype": None}
    return {"lhs_axes": lhs_axes, "rhs_axes": rhs_axes, "out_axes": out_axes, "count": count, **rest, **given}


_n, _m = symbol("n"), symbol("m")
_PLAIN = ((0, 1, 2, 3),) * 3
_NHWC = (0, 1, 4, 2, 3), (0, 4, 3, 1, 2), (0, 1, 4, 2, 3)
conv: Op = Op(
    name="conv",
    doc="The windows of lhs times the kernel rhs, summed over input features and positions; the module says which axis is "
        "what. `dtype` is the result's, wider than the operands', or None for theirs.",
    shape=_conv_shape,
    dtype=_conv_dtype,
    numpy=_conv_numpy,
    batch=_conv_batch,
    loop=_conv_loop,
    linear=(0, 1), transpose={0: _conv_transpose_lhs, 1: _conv_transpose_rhs},
    examples=(
        Example(("f64[1, 2, m, n]", "f64[1, 3, m, 3]"), _attrs(*_PLAIN, (_n,), low=(1,))),
        Example(("f64[1, 2, 5, 6, 3]", "f64[1, 2, 3, 3, m]"), _attrs(*_NHWC, (2, 3), low=(1, 0), stride=(2, 2))),
        Example(("f64[2, n, 2, 4]", "f64[m, 2, 2, 2]"), _attrs((2, 1, 0, 3), (2, 0, 1, 3), (1, 0, 3, 2), (3,))),
        Example(("f64[1, 1, 2, 4]", "f64[1, n, 2, 2]"), _attrs(*_PLAIN, (7,), low=(3,), lhs_dilation=(2,), rhs_dilation=(3,))),
        Example(("f64[1, 1, 1, 7]", "f64[1, 2, 1, 2]"), _attrs(*_PLAIN, (2,), low=(-1,), stride=(3,), rhs_dilation=(2,))),
        Example(("f64[2, 3, n]", "f64[2, m, n]"), _attrs((0, 1, 2), (0, 1, 2), (2, 0, 1), ())),
        Example(("f64[1, 0, 2, 3]", "f64[1, 1, 2, 2]"), _attrs(*_PLAIN, (2,))),
        *(Example((f"{d}[1, 2, m, 4]", f"{d}[1, 1, m, 2]"), _attrs(*_PLAIN, (3,)))
          for d in ("f32", "f16", "bf16", "i8", "c128")),
        Example(("f32[1, 2, m, 4]", "f32[1, 1, m, 2]"), _attrs(*_PLAIN, (3,), dtype=F64)),
        Example(("i8[1, 2, m, 4]", "i8[1, 1, m, 2]"), _attrs(*_PLAIN, (3,), dtype=I32)),
    ),
)
