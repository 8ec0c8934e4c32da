"""Batching: a graph over one more axis.

Guarantees: a mapped value has the new axis in front; what depends on no mapped argument is emitted once, unmapped; the
walk emits where its arguments live and builds no graph of its own.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.autodiff.jvp import emit
from loopwright.ir.builder import Builder, Ref, attributed
from loopwright.ir.dims import Extent
from loopwright.ir.graph import Graph


def push(graph: Graph, size: Extent, args: Sequence[Ref], mapped: Sequence[bool],
         into: Builder) -> tuple[list[Ref], list[bool]]:
    """The results of graph, and which of them are mapped. Nodes without operands go to `into`."""
    env = dict(zip(graph.params, args, strict=True))
    has = {v for v, m in zip(graph.params, mapped, strict=True) if m}
    with attributed() as attribute:
        for n in graph.nodes:
            attribute(n.source)
            inputs = [env[v] for v in n.inputs]
            if has.isdisjoint(n.inputs):
                env.update(zip(n.outputs, emit(n, inputs, into), strict=True))
                continue
            assert n.op.batch is not None, f"{n.op} has no batch rule"
            env[n.outputs[0]] = n.op.batch(size, tuple(inputs), tuple([v in has for v in n.inputs]), **n.attrs)
            has.add(n.outputs[0])
    return [env[v] for v in graph.results], [v in has for v in graph.results]
