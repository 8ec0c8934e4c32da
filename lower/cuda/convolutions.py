"""Convolutions that a GPU makes as sums of their own: implicit products of windows and kernels, which no memory holds."""
from __future__ import annotations

from collections.abc import Mapping

from loopwright.ir.dims import evaluate, product
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE, conv
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import reshape
from loopwright.ir.types import BF16, F16, F32, ArrayType
from loopwright.lower.convolution import is_product
from loopwright.lower.convolution_ops import MOST_POSITIONS, by_image, in_blocks, in_groups

FEW_SUMS = 1 << 17  # tiles of which leave parts of a GPU idle


def with_implicit_products(g: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with convolutions as sums of their own: one launch for all images and groups. Gradients with respect to small
    kernels are made for each image by itself, and added up. Left to products that the library makes are those of one group with
    kernels of one position, and with large kernels that are no gradients. `sizes`: those of one call."""
    nodes = []
    for n in g.nodes:
        regions = tuple([with_implicit_products(r, sizes) for r in n.regions])
        n = Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source) if regions != n.regions else n
        nodes += _implicit(n, sizes) if is_product(n) else _of_halves(n, sizes) if _has_halves(n) else [n]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


def _has_halves(n: Node) -> bool:
    """Whether it is a convolution of half floats, with several features in each group."""
    return n.op is conv and all(v.type.dtype == n.outputs[0].type.dtype for v in n.inputs) \
        and n.outputs[0].type.dtype in (F16, BF16) and n.inputs[1].type.shape[n.attrs["rhs_axes"][IMAGE]] != 1


def _of_halves(n: Node, sizes: Mapping[str, int]) -> list[Node]:
    """The nodes that compute it: sums in f32, rounded once."""
    wide = Value(ArrayType(n.outputs[0].type.shape, F32))
    made = _implicit(Node(conv, n.inputs, {**n.attrs, "dtype": F32}, (wide,), (), n.source), sizes)
    made = in_blocks(made[0]) if made[0].op is conv else made
    sums, moved = (made[-1].inputs[0], made[-1:]) if made[-1].op is reshape else (wide, [])  # the kernel of sums rounds them
    narrow = Value(ArrayType(sums.type.shape, n.outputs[0].type.dtype)) if moved else n.outputs[0]
    rounds = Node(convert, (sums,), {"dtype": narrow.type.dtype, "weak": False}, (narrow,), (), n.source)
    back = [Node(reshape, (narrow,), m.attrs, n.outputs, (), n.source) for m in moved]
    return [*made[:len(made) - len(moved)], rounds, *back]


def _implicit(n: Node, sizes: Mapping[str, int]) -> list[Node]:
    kernel, axes, v = n.inputs[1].type.shape, n.attrs["rhs_axes"], n.outputs[0]
    positions = evaluate(product(kernel[a] for a in axes[SPACE:]), sizes)
    if kernel[axes[GROUP]] != 1:
        return in_groups(n)
    if positions > MOST_POSITIONS and evaluate(product(v.type.shape[a] for a in n.attrs["out_axes"][SPACE:]), sizes) \
            <= MOST_POSITIONS:
        few = evaluate(product(v.type.shape), sizes) < FEW_SUMS and evaluate(kernel[axes[FEATURE]], sizes) > 1
        return by_image(n) if few else in_blocks(n)
    return in_blocks(n) if 1 < positions <= MOST_POSITIONS else [n]
