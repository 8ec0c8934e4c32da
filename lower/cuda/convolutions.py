"""Convolutions that a GPU makes as sums of their own: implicit products of windows and kernels, which no memory holds."""
from __future__ import annotations

from collections.abc import Mapping

from loopwright.ir.dims import evaluate, product
from loopwright.ir.graph import Graph, Node
from loopwright.ir.ops.convolution import GROUP, SPACE
from loopwright.lower.convolution import MOST_POSITIONS, in_blocks, is_product


def with_implicit_products(g: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with convolutions of one group, and kernels of several positions but few, as sums of their own: one launch for
    all images. Others are left to products of their windows; `sizes`: those of one call."""
    nodes = []
    for n in g.nodes:
        regions = tuple([with_implicit_products(r, sizes) for r in n.regions])
        n = Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source) if regions != n.regions else n
        nodes += in_blocks(n) if is_product(n) and _is_small(n, sizes) else [n]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


def _is_small(n: Node, sizes: Mapping[str, int]) -> bool:
    kernel, axes = n.inputs[1].type.shape, n.attrs["rhs_axes"]
    positions = evaluate(product(kernel[a] for a in axes[SPACE:]), sizes)
    return kernel[axes[GROUP]] == 1 and 1 < positions <= MOST_POSITIONS
