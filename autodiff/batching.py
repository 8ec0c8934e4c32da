"""Batching: a graph over one more axis.

Guarantees: a mapped value has the new axis in front; what depends on no mapped argument is emitted once, unmapped; the
walk emits where its arguments live and builds no graph of its own. Where the trip count of a loop differs from element to
element, the arrays with a row per trip have no common shape: whatever works on them is run for one element after another.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopwright.autodiff.jvp import emit
from loopwright.autodiff.regions import WALKS, Regions
from loopwright.ir.builder import Builder, Ref, attributed
from loopwright.ir.dims import Extent
from loopwright.ir.graph import Graph, Node, Value, binding, renewed, symbols_of
from loopwright.ir.ops.collectives import refuse_collectives
from loopwright.ir.ops.scanning import each


def push(graph: Graph, size: Extent, args: Sequence[Ref], mapped: Sequence[bool],
         into: Builder, axis: str | None = None) -> tuple[list[Ref], list[bool]]:
    """The results of graph, and which of them are mapped. Nodes without operands go to `into`. `axis` is the new axis where
    collectives go across it."""
    graph = renewed(graph)
    batch = _Batch(size, into, axis)
    batch.env.update(zip(graph.params, args, strict=True))
    batch.has.update(v for v, m in zip(graph.params, mapped, strict=True) if m)
    batch.run(graph.nodes, graph.results)
    return [batch.env[v] for v in graph.results], [v in batch.has for v in graph.results]


class _Batch:
    """One walk: the value of each value of the graph, and those that have the new axis."""

    def __init__(self, size: Extent, into: Builder, axis: str | None) -> None:
        self.size, self.into, self.engine = size, into, Regions(into.scope, axis)
        self.env: dict[Value, Ref] = {}
        self.has: set[Value] = set()

    def run(self, nodes: Sequence[Node], results: Iterable[Value]) -> None:
        """Emit the nodes; `results` are read afterwards."""
        with attributed() as attribute:
            for k, n in enumerate(nodes):
                attribute(n.source)
                if n.op.binds is not None and not self.has.isdisjoint(n.inputs):
                    before, inside, after = _around(nodes[k:])
                    read = {*results, *(v for m in after for v in m.inputs)}
                    self.run(before, read | {v for m in inside for v in m.inputs})
                    self._each(inside, read)
                    return self.run(after, results)
                self._node(n)

    def _node(self, n: Node) -> None:
        inputs, flags = [self.env[v] for v in n.inputs], [v in self.has for v in n.inputs]
        if not any(flags):
            self.env.update(zip(n.outputs, emit(n, inputs, self.into), strict=True))
        elif n.op.rules is not None:
            found, flags = n.op.rules.batch(self.engine, self.size, n, inputs, flags)
            self.env.update(zip(n.outputs, found, strict=True))
            self.has.update([v for v, f in zip(n.outputs, flags, strict=True) if f])
        else:
            assert n.op.batch is not None, f"{n.op} has no batch rule"
            self.env[n.outputs[0]] = n.op.batch(self.size, tuple(inputs), tuple(flags), **n.attrs)
            self.has.add(n.outputs[0])

    def _each(self, nodes: Sequence[Node], read: set[Value]) -> None:
        """The nodes for one element after another; `read` are the values that others need."""
        made = dict.fromkeys(v for n in nodes for v in n.outputs)
        params = dict.fromkeys(v for n in nodes for v in n.inputs if v not in made)
        results = [v for v in made if v in read]
        g = Graph(tuple(params), tuple(nodes), tuple(results))
        refuse_collectives(g, self.engine.axis, nodes[0].source, "each element has its own number of trips")
        found = each(self.size, g, [self.env[v] for v in params], [v in self.has for v in params])
        self.env.update(zip(results, found, strict=True))
        self.has.update(results)


def _around(nodes: Sequence[Node]) -> tuple[list[Node], list[Node], list[Node]]:
    """The nodes that the symbol which the first one binds keeps together, what can run before them, and what follows."""
    symbols = set(binding(nodes[0]))
    bound = {s for n in nodes for s in binding(n)}
    mentions = {n: symbols_of(n) & bound for n in nodes}
    while True:
        core = {n for n in nodes if not symbols.isdisjoint(mentions[n])}
        below, above = _dependents(nodes, core), _dependencies(nodes, core)
        inside = {n for n in nodes if n in core or (n in below and n in above)}
        before, after = [n for n in nodes if n not in below], [n for n in nodes if n in below and n not in inside]
        cut = set[str]().union(*(mentions[n] for n in before)) & set[str]().union(*(mentions[n] for n in after))
        grown = symbols.union(cut, *(mentions[n] for n in inside))  # none may be used on both sides of what stays together
        if grown == symbols:
            return before, [n for n in nodes if n in inside], after
        symbols = grown


def _dependents(nodes: Sequence[Node], core: set[Node]) -> set[Node]:
    found, values = set(core), {v for n in core for v in n.outputs}
    for n in nodes:
        if n in core or not values.isdisjoint(n.inputs):
            found.add(n)
            values.update(n.outputs)
    return found


def _dependencies(nodes: Sequence[Node], core: set[Node]) -> set[Node]:
    found, values = set(core), {v for n in core for v in n.inputs}
    for n in reversed(nodes):
        if n in core or not values.isdisjoint(n.outputs):
            found.add(n)
            values.update(n.inputs)
    return found


WALKS.batch = push
