"""Chains of products with few rows: kernels of their own and the library's products, chosen when sizes are known.

A chain copies what all of its blocks read in the order of the tiles, and goes through whole panels of it: with few rows, as one
query has, that takes longer than what it saves. Both are compiled where the number of rows is not known.

Guarantees: the same results, up to the order in which products add.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.dims import Extent, floordiv, minimum
from loopwright.ir.graph import Graph, Node
from loopwright.ir.ops.contraction import dot_general
from loopwright.lower.choices import as_it_is, chosen
from loopwright.lower.row_products import row_products
from loopwright.lower.target import Target

FEWEST_ROWS = 32  # that a chain is worth its copies for


def rows_of(region: Graph) -> Extent:
    """How many rows a chain goes through."""
    return region.results[0].type.shape[-2]


def has_few_rows(region: Graph) -> bool:
    """Whether it is known that a chain goes through few rows."""
    rows = rows_of(region)
    return isinstance(rows, int) and rows < FEWEST_ROWS


def by_rows(n: Node, target: Target, partition: Callable[[Graph], Graph]) -> list[Node]:
    """The kernel of a chain, or what computes the same where there are few rows, as `partition` makes it."""
    region = n.regions[0]
    rows = rows_of(region)
    if isinstance(rows, int):
        return [n]
    few = partition(Graph(region.params, tuple(map(_as_product, region.nodes)), region.results))
    return chosen(n, minimum(floordiv(rows, FEWEST_ROWS), 1), (few, as_it_is(n)), target)


def _as_product(n: Node) -> Node:
    """A product that sums over rows as one that the library makes."""
    if n.op is not row_products:
        return n
    rank = n.outputs[0].type.rank
    attrs = {"contract": ((rank - 2, rank - 2),), "batch": tuple([(a, a) for a in range(rank - 2)]), "dtype": None}
    return Node(dot_general, n.inputs, attrs, n.outputs, (), n.source)
