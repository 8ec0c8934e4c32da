"""Convolutions of images whose channels come first, as of images whose channels are last, which code in tiles, by hand and in
groups reads: what they read and make is transposed.

Else windows of each image would be copied, an element for each position of the kernel. Of few channels that takes less time
than the transposes: where their number is not known, it is asked for at the call.

Guarantees: the same sums in another order.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.construct import size_value
from loopwright.ir.ops.control import switch
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE, conv
from loopwright.ir.ops.structural import inverse, transpose
from loopwright.ir.types import F32, F64, I64, ArrayType
from loopwright.lower.choices import at_least
from loopwright.lower.preparation import prepare

_SIDES = ("lhs_axes", "rhs_axes", "out_axes")
FEWEST = 12  # channels


def with_channels_last(g: Graph) -> Graph:
    """g with such convolutions so."""
    nodes = tuple([m for n in g.nodes for m in _chosen(n)])
    return g if nodes == g.nodes else Graph(g.params, nodes, g.results, g.constraints)


def _chosen(n: Node) -> list[Node]:
    """A node; such a convolution so, if it has enough channels, or as both where only a call tells."""
    if n.op is not conv or not _has_channels_first(n):
        return [n]
    image, axes = n.inputs[0].type.shape, n.attrs["lhs_axes"]
    channels = max(axes[IMAGE], axes[FEATURE])  # behind the images, whichever of them is summed over
    enough = at_least(image[axes[GROUP]] * image[channels], FEWEST)
    if isinstance(enough, int):
        return _turned(n) if enough else [n]

    def arm(made: Callable[[Node], Sequence[Node]]) -> Graph:
        params, results = (tuple([Value(v.type) for v in values]) for values in (n.inputs, n.outputs))
        return Graph(params, tuple(made(Node(conv, params, n.attrs, results, (), n.source))), results)
    told, copied = Value(ArrayType((), I64)), prepare(arm(lambda alone: [alone]), blas=True)
    if any(m.op is conv for m in copied.nodes):  # which would be asked again
        return [n]
    return [Node(size_value, (), {"size": enough}, (told,)),
            Node(switch, (told, *n.inputs), {}, n.outputs, (copied, arm(_turned)), n.source)]


def _turned(n: Node) -> list[Node]:
    """The convolution of transposed arrays."""
    sides = [_Side(v, inverse(n.attrs[name])) for v, name in zip((*n.inputs, *n.outputs), _SIDES, strict=True)]
    space = tuple([SPACE + k for k in range(len(n.attrs["count"]))])
    for side, order in zip(sides, _orders(sides[0].order, sides[1].order, space), strict=True):
        side.bring(order)
    attrs = {**n.attrs, **{name: inverse(side.order) for name, side in zip(_SIDES, sides, strict=True)}}
    lhs, rhs, out = sides
    made = Node(conv, (lhs.value, rhs.value), attrs, (out.value,), (), n.source)
    before = [Node(transpose, (v,), {"perm": side.perm}, (side.value,), (), n.source)
              for v, side in zip(n.inputs, sides, strict=False) if side.value is not v]
    after = [Node(transpose, (out.value,), {"perm": inverse(out.perm)}, n.outputs, (), n.source)] \
        if out.value is not n.outputs[0] else []
    return [*before, made, *after]


class _Side:
    """An operand, or the result, and the kinds of its axes in memory."""

    def __init__(self, value: Value, order: tuple[int, ...]) -> None:
        self.value, self.order, self.perm = value, order, tuple(range(len(order)))

    def bring(self, order: tuple[int, ...]) -> None:
        """It to another order, unless that differs by an axis of one group alone."""
        shape = self.value.type.shape
        single = GROUP if shape[self.order.index(GROUP)] == 1 else None
        if [k for k in order if k != single] != [k for k in self.order if k != single]:
            self.perm = tuple([self.order.index(k) for k in order])
            self.value, self.order = Value(self.value.type.with_shape(tuple([shape[k] for k in self.perm]))), order


def _has_channels_first(n: Node) -> bool:
    """Whether a convolution is of images of several channels, which come before the pixels in memory, and of windows, all of
    one dtype, which products have."""
    a, (image, kernel), dtype = n.attrs, (v.type.shape for v in n.inputs), n.outputs[0].type.dtype
    if dtype not in (F32, F64) or any(v.type.dtype != dtype for v in n.inputs):
        return False
    windows = any(kernel[k] != 1 for k in a["rhs_axes"][SPACE:])
    channels = all(image[a["lhs_axes"][k]] != 1 for k in (IMAGE, FEATURE))
    return windows and channels and inverse(a["lhs_axes"])[-1] >= SPACE


def _orders(lhs: tuple[int, ...], rhs: tuple[int, ...], space: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The kinds of axes in memory that are wanted of both operands and the result: of images, or of a gradient by a kernel,
    which sums over them."""
    if next(k for k in lhs if k in (IMAGE, FEATURE)) == IMAGE:
        images = (IMAGE, *space, GROUP, FEATURE)
        return images, rhs, images
    summed = (FEATURE, *space, GROUP, IMAGE)
    return summed, summed, (GROUP, *space, IMAGE, FEATURE)
