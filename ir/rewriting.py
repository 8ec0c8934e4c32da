"""Passes over whole graphs, graph in, graph out.

Guarantees: `simplify(g)` computes what g computes, bit for bit (the payload of a NaN aside), keeps parameters,
constraints and the source lines of nodes, and a second `simplify` changes nothing. It takes one walk: operands are
simplified before the node that reads them.
"""
from __future__ import annotations

from loopwright.ir.algebra import simplified
from loopwright.ir.elimination import Rewriter, remove_dead
from loopwright.ir.graph import Graph

__all__ = ["remove_dead", "simplify"]


def simplify(g: Graph) -> Graph:
    """g without dead nodes, with equal nodes shared, constants folded and the identities of `algebra` applied."""
    return Rewriter(g, simplified).run()
