"""Reverse mode: pull cotangents back through a linear graph.

Guarantees: the walk emits where its arguments live and builds no graph of its own; a cotangent of None is zero; what
the graph computes from known parameters alone is emitted only where a transpose needs it.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.autodiff.jvp import emit, plus
from loopwright.ir.builder import Builder, Ref, attributed
from loopwright.ir.graph import Graph, Node, Value, dependents
from loopwright.ir.types import ArrayType

Cotangent = Ref | None


def pull(graph: Graph, unknown: Sequence[bool], known: Sequence[Ref | np.ndarray], cotangents: Sequence[Cotangent],
         into: Builder) -> list[Cotangent]:
    """The cotangents of the parameters that are marked unknown; graph is linear in them, `known` holds the others."""
    flow: dict[Value, Cotangent] = {}
    params = [v for v, u in zip(graph.params, unknown, strict=True) if u]
    moving = dependents(graph, params)
    rest = [v for v, u in zip(graph.params, unknown, strict=True) if not u]
    env = {v: x if isinstance(x, Ref) else into.capture(x) for v, x in zip(rest, known, strict=True)}
    for v, ct in zip(graph.results, cotangents, strict=True):
        if v in moving:
            flow[v] = plus(flow.get(v), ct)
    with attributed() as attribute:
        for n in _needed(graph, moving, flow):
            attribute(n.source)
            env.update(zip(n.outputs, emit(n, [env[v] for v in n.inputs], into), strict=True))
        for n in reversed(graph.nodes):
            if (arriving := flow.get(n.outputs[0])) is not None:
                attribute(n.source)
                _pull_node(n, arriving, flow, env, moving)
    return [flow.get(v) for v in params]


def _needed(graph: Graph, moving: set[Value], flow: dict[Value, Cotangent]) -> list[Node]:
    """The nodes of known values that a transpose will read, in order."""
    reached = {v for v, ct in flow.items() if ct is not None}
    kept = []
    for n in reversed(graph.nodes):
        if n.outputs[0] in reached:
            reached.update(n.inputs)
            if n.outputs[0] not in moving:
                kept.append(n)
    return kept[::-1]


def _pull_node(n: Node, arriving: Ref, flow: dict[Value, Cotangent], env: dict[Value, Ref], moving: set[Value]) -> None:
    """Add to the cotangents of n's operands what arrives at its result."""
    jointly = n.op.linear if n.op.jointly else ()
    args: list[Ref | ArrayType] = [v.type if v in moving or k in jointly else env[v] for k, v in enumerate(n.inputs)]
    for k, v in enumerate(n.inputs):
        if v in moving:
            flow[v] = plus(flow.get(v), n.op.transpose[k](arriving, *args, **n.attrs))
