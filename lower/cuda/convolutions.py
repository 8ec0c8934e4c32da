"""Convolutions that a GPU makes as sums of their own: implicit products of windows and kernels, which no memory holds."""
from __future__ import annotations

from collections.abc import Mapping

from loopwright.ir.dims import evaluate, product
from loopwright.ir.graph import Graph, Node
from loopwright.ir.ops.convolution import FEATURE, GROUP, SPACE
from loopwright.lower.convolution import MOST_POSITIONS, by_image, in_blocks, in_groups, is_product

FEW_SUMS = 1 << 17  # tiles of which leave parts of a GPU idle


def with_implicit_products(g: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with convolutions as sums of their own: one launch for all images and groups. Gradients with respect to small
    kernels are made for each image by itself, and added up. Left to products that the library makes are those of one group with
    kernels of one position, and with large kernels that are no gradients. `sizes`: those of one call."""
    nodes = []
    for n in g.nodes:
        regions = tuple([with_implicit_products(r, sizes) for r in n.regions])
        n = Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source) if regions != n.regions else n
        nodes += _implicit(n, sizes) if is_product(n) else [n]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


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
