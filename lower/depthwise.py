"""Convolutions whose channels are apart from each other, with windows of many positions: hand-written code for them, chosen
when sizes are known.

Kernels of the rules read images where they lie, so that most vectors take part of two lines of the caches; where a number is in
many windows it is worth a copy.

Guarantees: the same results, up to the order in which sums add.
"""
from __future__ import annotations

from math import prod

from loopwright.ir.dims import Extent, product
from loopwright.ir.graph import Node
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE
from loopwright.ir.ops.structural import inverse
from loopwright.ir.types import F32, F64
from loopwright.lower.choices import at_least
from loopwright.lower.codegen.products import has_own
from loopwright.lower.convolution_ops import shapes_of_one_feature, spatial_pair
from loopwright.lower.target import Target

WINDOWS = 16  # that a number of the image is in, from which on a copy of it is worth its time


def fits(n: Node, target: Target) -> bool:
    """Whether a convolution is of images whose channels, one in each group, are last in memory, and of windows whose columns
    lie together."""
    a, dtype, axes = n.attrs, n.outputs[0].type.dtype, range(len(n.attrs["count"]))
    natural = (IMAGE, *(SPACE + k for k in axes), GROUP)
    orders = [tuple([k for k in inverse(a[name]) if k != FEATURE]) for name in ("lhs_axes", "out_axes")]
    image, _ = shapes_of_one_feature(n)
    as_usual = orders == [natural, natural] and {*a["lhs_dilation"], a["rhs_dilation"][-1]} == {1}
    same = dtype in (F32, F64) and all(v.type.dtype == dtype for v in n.inputs)
    return same and has_own(dtype, target) and len(axes) in (1, 2) \
        and image[a["lhs_axes"][FEATURE]] == 1 and as_usual


def is_worth_it(n: Node, target: Target) -> Extent:
    """1 where there are enough channels, and positions of a window for each stride, else 0."""
    a, (image, kernel) = n.attrs, shapes_of_one_feature(n)
    positions, channels = product(kernel[k] for k in a["rhs_axes"][SPACE:]), image[a["lhs_axes"][GROUP]]
    enough = at_least(positions, WINDOWS * prod(a["stride"]))
    return product((enough, at_least(channels, target.lanes(n.outputs[0].type.dtype))))


def numbers(n: Node) -> tuple[Extent, ...]:
    """What the code is told, see `codegen/depthwise.py`. An image with one axis is one row."""
    a, (image, kernel) = n.attrs, shapes_of_one_feature(n)
    height, width = spatial_pair([image[k] for k in a["lhs_axes"][SPACE:]])
    rows, columns = spatial_pair([kernel[k] for k in a["rhs_axes"][SPACE:]])
    high, wide, down, right = (x for name in ("count", "stride") for x in spatial_pair(a[name]))
    spread, _ = spatial_pair(a["rhs_dilation"])
    steps = [product(kernel[k + 1:]) for k in range(len(kernel))]
    of_channel, *of_space = (steps[a["rhs_axes"][k]] for k in (GROUP, *range(SPACE, len(steps))))
    return (image[a["lhs_axes"][IMAGE]], height, width, image[a["lhs_axes"][GROUP]], rows, columns, high, wide, down, right,
            *spatial_pair(a["low"], 0), spread, *spatial_pair(of_space, 0), of_channel)
