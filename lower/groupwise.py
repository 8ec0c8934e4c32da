"""Convolutions in groups whose channels are last in memory: hand-written code for them, chosen when sizes are known.

Those with channels apart, a group each, are kernels of the rules where windows are small: these read images where they lie, so
that most vectors take part of two lines of the caches; where a number is in many windows it is worth a copy. Other groups have
no more than products of copied windows else, each with few columns.

Guarantees: the same results, up to the order in which sums add.
"""
from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.graph import Node
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE, conv
from loopwright.ir.ops.structural import inverse
from loopwright.ir.types import F32, F64
from loopwright.lower.choices import at_least
from loopwright.lower.codegen.products import has_own
from loopwright.lower.convolution_ops import shapes_of_one_feature, spatial_pair
from loopwright.lower.target import Target

WINDOWS = 16  # that a number of the image is in, from which on a copy of it is worth its time


def is_groupwise(n: Node) -> bool:
    """Whether a convolution is in groups that have several features each, and is as the code for these reads it."""
    if n.op is not conv:
        return False
    (image, kernel), a = (v.type.shape for v in n.inputs), n.attrs
    return image[a["lhs_axes"][GROUP]] != 1 and kernel[a["rhs_axes"][IMAGE]] != 1 and _is_natural(n, (GROUP, FEATURE))


def fits(n: Node, target: Target) -> bool:
    """Whether a convolution with one output feature in each group has one channel there, too, and is as the code reads it."""
    image, _ = shapes_of_one_feature(n)
    return has_own(n.outputs[0].type.dtype, target) and image[n.attrs["lhs_axes"][FEATURE]] == 1 and _is_natural(n, (GROUP,))


def _is_natural(n: Node, channels: tuple[int, ...]) -> bool:
    """Whether a convolution is of images whose channels are last in memory, and of windows whose columns lie together."""
    a, dtype, axes = n.attrs, n.outputs[0].type.dtype, range(len(n.attrs["count"]))
    natural = (IMAGE, *(SPACE + k for k in axes), *channels)
    orders = [tuple([k for k in inverse(a[name]) if k in natural]) for name in ("lhs_axes", "out_axes")]
    same = dtype in (F32, F64) and all(v.type.dtype == dtype for v in n.inputs)
    return same and len(axes) in (1, 2) and orders == [natural, natural] and {*a["lhs_dilation"], a["rhs_dilation"][-1]} == {1}


def is_worth_it(n: Node, target: Target) -> Extent:
    """1 where there are enough channels apart, and positions of a window for each stride, else 0."""
    a, (image, kernel) = n.attrs, shapes_of_one_feature(n)
    positions, channels = product(kernel[k] for k in a["rhs_axes"][SPACE:]), image[a["lhs_axes"][GROUP]]
    enough = at_least(positions, WINDOWS * prod(a["stride"]))
    return product((enough, at_least(channels, target.lanes(n.outputs[0].type.dtype))))


def numbers(n: Node) -> tuple[Extent, ...]:
    """What the code is told, see `codegen/groupwise.py`."""
    image, kernel = (v.type.shape for v in n.inputs)
    return _numbers(n.attrs, image, kernel)


def numbers_of_channels(n: Node) -> tuple[Extent, ...]:
    """The same for channels apart."""
    image, kernel = shapes_of_one_feature(n)
    return _numbers(n.attrs, image, kernel)


def _numbers(a: Mapping[str, Any], image: Shape, kernel: Shape) -> tuple[Extent, ...]:
    """An image with one axis is one row."""
    groups, terms, each = (kernel[a["rhs_axes"][k]] for k in (GROUP, FEATURE, IMAGE))
    height, width = spatial_pair([image[k] for k in a["lhs_axes"][SPACE:]])
    rows, columns = spatial_pair([kernel[k] for k in a["rhs_axes"][SPACE:]])
    high, wide, down, right = (x for name in ("count", "stride") for x in spatial_pair(a[name]))
    spread, _ = spatial_pair(a["rhs_dilation"])
    steps = [product(kernel[k + 1:]) for k in range(len(kernel))]
    of_group, of_term, of_feature, *of_space = (steps[a["rhs_axes"][k]] for k in (
        GROUP, FEATURE, IMAGE, *range(SPACE, len(steps))))
    return (image[a["lhs_axes"][IMAGE]], height, width, groups * terms, terms, each, groups * each, rows, columns, high, wide,
            down, right, *spatial_pair(a["low"], 0), spread, *spatial_pair(of_space, 0), of_term,
            1 if each == 1 else of_feature, of_group)
