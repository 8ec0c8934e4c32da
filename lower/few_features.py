"""Convolutions of few output features or input channels, of windows of 3x3, of patches, and of channels apart from each other:
other code for them, chosen when sizes are known.

Tiles have lanes along features, many of which would be empty. Code with lanes along the rows of a window is better where these
rows fill vectors: for up to four features from eight elements on, up to 20 from 40 on. Few channels are better read where they
lie than copied to tiles. Windows of 3x3 need a quarter of the multiplications in Winograd's form, which is not as accurate:
programs with `fast_math` have it, see decision 041. All are hand-written. Patches are one product (`patches.py`). Of channels
apart see `groupwise.py`.

Guarantees: the same results, up to the order in which sums add; of Winograd's form, up to the rounding of its tiles.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopwright.ir.dims import Extent, floordiv, maximum, minimum, product
from loopwright.ir.graph import Graph, Node
from loopwright.ir.op import Op
from loopwright.ir.ops.convolution import FEATURE, IMAGE, SPACE
from loopwright.lower import groupwise as apart
from loopwright.lower.choices import as_it_is, at_least, chosen, is_equal
from loopwright.lower.codegen.products import has_own
from loopwright.lower.convolution_ops import (
    depthwise,
    few_channels,
    few_features,
    in_place_of,
    kinds_in_memory,
    one_feature,
    one_group,
    spatial_pair,
    whole_shapes,
    winograd,
)
from loopwright.lower.kernel import kernel
from loopwright.lower.patches import has_patches, of_patches
from loopwright.lower.target import Target

SOME, ROW = 4, 8  # so many features more for each so many elements of a window's row ...
MOST = 5  # times
CHANNELS = 16  # and fewer: their copies, number by number, take a fifth of the time
WIDE, PIXELS = 8, 64  # features on either side, and pixels of a result, from which on fewer multiplications take less time
LARGE, MANY = 1 << 15, 512  # features times channels whose points are larger than caches, and from how many pixels on then
LARGEST = 1 << 20  # features times channels: their points take 144 MiB of float32


def by_features(n: Node, target: Target, partition: Callable[[Graph], Graph], fast_math: bool) -> list[Node]:
    """A kernel; of a convolution that may have few features, or windows of 3x3, with what computes it then, as `partition`
    makes it."""
    region = n.regions[0] if n.op is kernel else Graph((), (), ())
    convolutions = [m for m in region.nodes if m.op in (one_group, one_feature)]
    if len(convolutions) != 1 or not (apart.fits if convolutions[0].op is one_feature else _fits)(convolutions[0], target):
        return [n]
    m, = convolutions

    def made_by(nodes: Sequence[Node]) -> Graph:
        return partition(Graph(region.params, tuple([x for k in region.nodes for x in (nodes if k is m else [k])]),
                               region.results))

    def by(op: Op) -> Graph:
        return made_by([Node(op, m.inputs, m.attrs, m.outputs, m.regions, m.source)])
    every: list[tuple[Extent, Callable[[], Graph]]] = [(1, partial(as_it_is, n))]
    if m.op is one_feature:
        every.append((apart.is_worth_it(m, target), partial(by, depthwise)))
    else:
        small = _has_small_windows(m) if fast_math else 0
        every += [(1 - _has_many(m), partial(by, few_features)), (_has_few_channels(m, target), partial(by, few_channels)),
                  (small, partial(by, winograd)),
                  (has_patches(m), lambda: made_by(in_place_of(of_patches(m), m)))]
    arms = [arm for arm in every if arm[0] != 0]  # of which the last one counts whose sizes are there
    which: Extent = 0
    for k, (is_there, _) in enumerate(arms):
        which = which * (1 - is_there) + k * is_there
    if which == 0:
        return [n]
    if isinstance(which, int):
        return in_place_of(arms[which][1](), n)
    return chosen(n, which, [arm() for _, arm in arms], target)


def _fits(n: Node, target: Target) -> bool:
    """Whether a convolution is of images whose features are last in memory, and of windows whose rows lie together."""
    a, dtype, axes = n.attrs, n.outputs[0].type.dtype, range(len(n.attrs["count"]))
    natural = (IMAGE, *(SPACE + k for k in axes), FEATURE)
    orders = [kinds_in_memory(a[name]) for name in ("lhs_axes", "out_axes")]
    return has_own(dtype, target) and n.inputs[0].type.dtype == dtype and len(axes) in (1, 2) \
        and orders == [natural, natural] and {*a["lhs_dilation"], a["rhs_dilation"][-1]} == {1}


def _has_many(n: Node) -> Extent:
    """1 where a convolution has many features, or windows with short rows, else 0, as for one of single numbers."""
    _, kernel_shape, _ = whole_shapes(n)
    features, channels, columns = (kernel_shape[n.attrs["rhs_axes"][k]] for k in (IMAGE, FEATURE, -1))
    few = minimum(floordiv(channels * columns, ROW), MOST)
    return minimum(maximum(floordiv(features - 1, SOME) - few + 1, 0), 1) * minimum(features * channels - 1, 1)


def _has_few_channels(n: Node, target: Target) -> Extent:
    """1 where a convolution has several features, but few channels, whose windows have rows of several columns, else 0. Where
    there are many registers none has: that was not measured."""
    _, kernel_shape, _ = whole_shapes(n)
    channels, columns = (kernel_shape[n.attrs["rhs_axes"][k]] for k in (FEATURE, -1))
    some = at_least(channels, 2) * (1 - at_least(channels, CHANNELS + 1))
    return product([_has_many(n), some, at_least(columns, 2)]) if target.is_short_of_registers else 0


def _has_small_windows(n: Node) -> Extent:
    """1 where a convolution has windows of 3x3, and is large enough for Winograd's form, else 0."""
    a, (image, kernel_shape, _) = n.attrs, whole_shapes(n)
    if len(a["count"]) != 2 or {*a["stride"], *a["rhs_dilation"]} != {1}:
        return 0
    features, channels, *window = (kernel_shape[a["rhs_axes"][k]] for k in (IMAGE, FEATURE, SPACE, SPACE + 1))
    pixels = product((image[a["lhs_axes"][IMAGE]], *a["count"]))
    enough = maximum(at_least(pixels, PIXELS) * (1 - at_least(features * channels, LARGE)), at_least(pixels, MANY))
    tests = [at_least(features, WIDE), at_least(channels, WIDE), 1 - at_least(features * channels, LARGEST + 1), enough]
    return product([*tests, *(is_equal(k, 3) for k in window)])


def numbers(n: Node) -> tuple[Extent, ...]:
    """What the code is told, see `codegen/few_features.py`. An image with one axis is one row."""
    a, (image, kernel_shape, _) = n.attrs, whole_shapes(n)
    (images, channels), features = (image[a["lhs_axes"][k]] for k in (IMAGE, FEATURE)), kernel_shape[a["rhs_axes"][IMAGE]]
    height, width = spatial_pair([image[k] for k in a["lhs_axes"][SPACE:]])
    rows, columns = spatial_pair([kernel_shape[k] for k in a["rhs_axes"][SPACE:]])
    high, wide, down, right = (x for name in ("count", "stride") for x in spatial_pair(a[name]))
    spread, _ = spatial_pair(a["rhs_dilation"])
    steps = [product(kernel_shape[k + 1:]) for k in range(len(kernel_shape))]
    of_feature, of_channel, *of_space = (steps[a["rhs_axes"][k]] for k in (IMAGE, FEATURE, *range(SPACE, len(steps))))
    return (images, height, width, channels, rows, columns, features, high, wide, down, right, *spatial_pair(a["low"], 0),
            spread, of_feature, *spatial_pair(of_space, 0), of_channel)
