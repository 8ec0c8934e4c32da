"""Convolutions whose windows lie side by side, as those that cut an image into patches: a number is in one window at most,
so that they are a product of matrices, whose rows are copied from the image.

Guarantees: the same sums in another order; beside the operands there is one copy of the image in memory, at most.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.ir.builder import Ref, build
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.graph import Graph, Node
from loopwright.ir.loops import Expr, LoopContext, integer, plus, times
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.convolution import FEATURE, IMAGE, SPACE
from loopwright.ir.ops.structural import inverse, permute, reshape
from loopwright.ir.types import ArrayType
from loopwright.lower.choices import at_least, is_equal
from loopwright.lower.convolution_ops import terms_of, whole_shapes

TERMS, FEATURES = 48, 64  # of a sum, and of a result: with fewer the copy takes as long as what the product gains


def has_patches(n: Node) -> Extent:
    """1 where the windows of a convolution of one group lie side by side inside the image, and are worth a copy, else 0."""
    a, (image, kernel, _) = n.attrs, whole_shapes(n)
    if {*a["stride"]} == {1} or {*a["rhs_dilation"], *a["lhs_dilation"]} != {1}:
        return 0
    extents, window = ([shape[k] for k in axes[SPACE:]] for shape, axes in ((image, a["lhs_axes"]), (kernel, a["rhs_axes"])))
    tests = [is_equal(size, by) for size, by in zip((*window, *a["low"]), (*a["stride"], *[0] * len(window)), strict=True)]
    inside = [at_least(size - some * by, 0) for size, some, by in zip(extents, a["count"], a["stride"], strict=True)]
    return product([*tests, *inside, at_least(product(terms_of(n)), TERMS), at_least(kernel[a["rhs_axes"][IMAGE]], FEATURES)])


def of_patches(n: Node) -> Graph:
    """The product, where features are last in memory: rows have a window's positions, and features, in the kernel's order."""
    a, spatial = n.attrs, range(len(n.attrs["count"]))
    kinds = [k - (k > 0) for k in inverse(a["rhs_axes"]) if k]  # of the kernel, without groups
    order = tuple([kinds.index(k - 1) for k in (*[SPACE + s for s in spatial], FEATURE, IMAGE)])

    def rule(x: Ref, w: Ref) -> list[Ref]:
        images, *before, last, channels = x.shape
        w = permute(w, order)
        *window, across, _, features = w.shape
        sizes = (*window, across * channels)  # of what lies together, last
        rows, terms = product((images, *a["count"])), product(sizes)
        x = patches(reshape(x, shape=(images, *before, last * channels)), count=a["count"], size=sizes)
        made = dot_general(reshape(x, shape=(rows, terms)), reshape(w, shape=(terms, features)), contract=((1, 0),), batch=(),
                           dtype=None)
        return [reshape(made, shape=(images, *a["count"], features))]
    return build(rule, [v.type for v in n.inputs])


def _shape(x: ArrayType, count: Shape, size: Shape) -> Shape:
    return (x.shape[0], *count, *size)


def _numpy(x: np.ndarray, count: Sequence[int], size: Sequence[int]) -> np.ndarray:
    inside = x[(slice(None), *(slice(some * one) for some, one in zip(count, size, strict=True)))]
    apart = inside.reshape(len(x), *(n for pair in zip(count, size, strict=True) for n in pair))
    return apart.transpose(0, *range(1, apart.ndim, 2), *range(2, apart.ndim, 2))


def _loop(context: LoopContext, index: tuple[Expr, ...], count: Shape, size: Shape) -> Expr:
    block, within = index[1:1 + len(size)], index[1 + len(size):]
    at = [plus(times(b, integer(n)), k) for b, k, n in zip(block, within, size, strict=True)]
    return context.load(0, (index[0], *at))


patches = Op(name="patches", doc="Blocks that lie side by side in each image: their positions first, then those in one.",
             shape=_shape, dtype=operand_dtype, numpy=_numpy, loop=_loop)
