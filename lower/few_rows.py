"""Chains of products with few rows: kernels of their own and the library's products, chosen when sizes are known.

A chain copies what all of its blocks read in the order of the tiles, and goes through whole panels of it: with few rows, as one
query has, that takes longer than what it saves. Both are compiled where the number of rows is not known.

Guarantees: the same results, up to the order in which products add.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.dims import Extent, floordiv, minimum
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.construct import size_value
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import switch
from loopwright.ir.types import I64, ArrayType
from loopwright.lower.kernel import kernel
from loopwright.lower.row_products import row_products
from loopwright.lower.rules import default_schedule
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
    many = Value(ArrayType((), I64))
    number = Value(many.type)
    choice = Graph((), (Node(size_value, (), {"size": minimum(floordiv(rows, FEWEST_ROWS), 1)}, (number,)),), (number,))
    attrs = {"implementation": "generated", "schedule": default_schedule(choice, target)}
    params, results = (tuple([Value(v.type) for v in values]) for values in (region.params, region.results))
    chain = Graph(params, (Node(kernel, params, n.attrs, results, (region,), n.source),), results)
    few = partition(Graph(region.params, tuple(map(_as_product, region.nodes)), region.results))
    return [Node(kernel, (), attrs, (many,), (choice,)),
            Node(switch, (many, *n.inputs), {}, n.outputs, (few, chain), n.source)]


def _as_product(n: Node) -> Node:
    """A product that sums over rows as one that the library makes."""
    if n.op is not row_products:
        return n
    rank = n.outputs[0].type.rank
    attrs = {"contract": ((rank - 2, rank - 2),), "batch": tuple([(a, a) for a in range(rank - 2)]), "dtype": None}
    return Node(dot_general, n.inputs, attrs, n.outputs, (), n.source)
