"""Functions with rules of their own, put in place: what a compiler sees of a graph that no derivative is taken of any more.

Guarantees: no node with an `expand` rule is left, at any depth; the graph computes what it did, simplified; what a node sets
`apart` computes is computed where it stands, also where an equal node stands elsewhere.
"""
from __future__ import annotations

from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value, renewed
from loopwright.ir.rewriting import simplify


def expanded(g: Graph) -> Graph:
    """g simplified, with every node that has one replaced by its expansion. GradientError where a node has none, for it is
    part of a derivative that does not exist."""
    return _spliced(simplify(_spliced(g, apart=False)), apart=True)


def _spliced(g: Graph, apart: bool) -> Graph:
    """g with those nodes replaced that are set apart, or those that are not."""
    if not _has_expansions(g):
        return g
    new: dict[Value, Value] = {}
    nodes: list[Node] = []
    for n in remove_dead(g).nodes:
        inputs = tuple([new.get(v, v) for v in n.inputs])
        if n.op.expand is not None and n.op.apart == apart:
            body = renewed(n.op.expand(n))
            found, results = _copied(expanded(body) if apart else _spliced(body, apart), inputs)
            nodes += found
            new.update(zip(n.outputs, results, strict=True))
        else:
            nodes.append(Node(n.op, inputs, n.attrs, n.outputs, tuple([_spliced(r, apart) for r in n.regions]), n.source))
    return Graph(g.params, tuple(nodes), tuple([new.get(v, v) for v in g.results]), g.constraints)


def _has_expansions(g: Graph) -> bool:
    return any(n.op.expand is not None or any(map(_has_expansions, n.regions)) for n in g.nodes)


def _copied(g: Graph, args: tuple[Value, ...]) -> tuple[list[Node], list[Value]]:
    """The nodes of g on other operands, with values of their own, and its results there."""
    new = dict(zip(g.params, args, strict=True))
    nodes = []
    for n in g.nodes:
        outputs = tuple([Value(v.type) for v in n.outputs])
        nodes.append(Node(n.op, tuple([new[v] for v in n.inputs]), n.attrs, outputs, n.regions, n.source))
        new.update(zip(n.outputs, outputs, strict=True))
    return nodes, [new[v] for v in g.results]
