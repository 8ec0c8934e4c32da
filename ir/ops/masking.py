"""Batches of which some elements take no part: loops that others have left, branches that others take.

Guarantees: an element that takes no part computes what one that does computes (its operands are that one's), so it reads
nothing out of range, raises nothing of its own and loops no longer; and no derivative reaches what it was given.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.builder import Ref, build
from loopwright.ir.cost import flops, trips
from loopwright.ir.dims import Extent, evaluate, symbols_in
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Scope
from loopwright.ir.op import Flags
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.gradients import stop_gradient
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.reductions import argmax
from loopwright.ir.ops.selection import select
from loopwright.ir.types import ArrayType

UNKNOWN = 64  # what a size that is not known counts as
CHOICE = 3  # operations for each number that is chosen or replaced


def pays(regions: Sequence[Graph], operands: Sequence[ArrayType]) -> bool:
    """Whether to run regions for all elements at once, those that take no part too: where matrix products, which are cheaper
    together, are most of the work. `operands`: what each element has of its own."""
    work, products = sum((flops(g) for g in regions), 0), sum((_products(g) for g in regions), 0)
    choices = CHOICE * sum((t.size for t in operands), 0)
    return not any(g.has_effects for g in regions) and 2 * _number(products) > _number(work) + _number(choices)


def _products(g: Graph) -> Extent:
    """The flops of matrix products at any depth."""
    return sum((flops(n) if n.op is dot_general else trips(n) * sum((_products(r) for r in n.regions), 0) for n in g.nodes), 0)


def _number(x: Extent) -> int:
    return evaluate(x, dict.fromkeys(symbols_in(x), UNKNOWN))


def chosen_rows(active: Ref, xs: Sequence[Ref], others: Sequence[Ref]) -> list[Ref]:
    """Rows of xs where `active`, bool[size], holds, else those of the others."""
    return [select(broadcast(active, shape=x.shape, axes=(0,)), x, y) for x, y in zip(xs, others, strict=True)]


def replaced_rows(active: Ref, xs: Sequence[Ref], mapped: Flags) -> list[Ref]:
    """xs, with the rows of elements that are not active replaced by those of one that is. At least one is."""
    if not any(mapped):
        return list(xs)
    first = argmax(active, axis=0)

    def replaced(x: Ref) -> Ref:
        row = stop_gradient(gather(x, first, axes=(0,), batch=0, mode="promise_in_bounds"))
        rows = broadcast(row, shape=x.shape, axes=tuple(range(1, len(x.shape))))
        return chosen_rows(active, [x], [rows])[0]
    return [replaced(x) if m else x for x, m in zip(xs, mapped, strict=True)]


def region(rule: Callable[..., Sequence[Ref]], types: Sequence[ArrayType], scope: Scope) -> Graph:
    """The rule as a region."""
    g = build(rule, types, scope)
    return Graph(g.params, g.nodes, g.results)
