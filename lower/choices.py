"""Kernels that compute the same, of which one is chosen when sizes are known.

Guarantees: which it is, is asked once, before any of them runs.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.dims import Extent, maximum, minimum
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.construct import size_value
from loopwright.ir.ops.control import switch
from loopwright.ir.types import I64, ArrayType
from loopwright.lower.kernel import kernel
from loopwright.lower.rules import default_schedule
from loopwright.lower.target import Target


def at_least(size: Extent, k: int) -> Extent:
    """1 where a size is at least k, else 0."""
    return minimum(maximum(size - (k - 1), 0), 1)


def is_equal(size: Extent, k: int) -> Extent:
    """1 where a size is k, else 0."""
    return at_least(size, k) * (1 - at_least(size, k + 1))


def as_it_is(n: Node) -> Graph:
    """A kernel as a graph of its own."""
    region = n.regions[0]
    params, results = (tuple([Value(v.type) for v in values]) for values in (region.params, region.results))
    return Graph(params, (Node(kernel, params, n.attrs, results, (region,), n.source),), results)


def chosen(n: Node, number: Extent, arms: Sequence[Graph], target: Target) -> list[Node]:
    """The nodes that run the arm of that number in the place of a kernel."""
    found, told = Value(ArrayType((), I64)), Value(ArrayType((), I64))
    choice = Graph((), (Node(size_value, (), {"size": number}, (told,)),), (told,))
    attrs = {"implementation": "generated", "schedule": default_schedule(choice, target)}
    return [Node(kernel, (), attrs, (found,), (choice,)),
            Node(switch, (found, *n.inputs), {}, n.outputs, tuple(arms), n.source)]
