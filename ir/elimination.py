"""Sharing what is computed twice and dropping what nobody reads.

Guarantees: a `Rewriter` makes one node for equal applications (same op, operands, attribute bits and regions);
`live` keeps exactly the nodes that results depend on, and those with effects, which are never shared. Parameters stay,
used or not.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loopwright.ir.attributes import Attributes, attributes_key
from loopwright.ir.graph import Graph, Node, Value, acts, binding, symbols_of
from loopwright.ir.op import Op
from loopwright.ir.source import Source
from loopwright.ir.types import ArrayType

Replace = Callable[["Rewriter", Op, tuple[Value, ...], Attributes, ArrayType], "Value | None"]


class Rewriter:
    """A graph on its way to another: each node is emitted on the operands that its own were replaced by.

    `replace` may answer an application with a value that stands for it, of the very type that is asked for.
    """

    def __init__(self, g: Graph, replace: Replace) -> None:
        self.graph, self.replace = g, replace
        self.nodes: list[Node] = []
        self.producer: dict[Value, Node] = {}
        self.shared: dict[Any, tuple[Value, ...]] = {}
        self.source: Source | None = None

    def run(self) -> Graph:
        """The rewritten graph, without dead nodes."""
        new: dict[Value, Value] = {v: v for v in self.graph.params}
        for node in self.graph.nodes:
            self.source = node.source
            inputs = tuple([new[v] for v in node.inputs])
            if node.op.rules is not None and node.regions:
                new.update(self.whole(node, inputs))
            elif len(node.outputs) == 1 and not node.regions:
                new[node.outputs[0]] = self.apply(node.op, inputs, node.attrs, node.outputs[0].type, node)
            else:
                new.update(zip(node.outputs, self.share(node, inputs), strict=True))
        results = tuple([new[v] for v in self.graph.results])
        return Graph(self.graph.params, live(self.nodes, results), results, self.graph.constraints)

    def whole(self, node: Node, inputs: tuple[Value, ...]) -> dict[Value, Value]:
        """What each output of control flow becomes: its regions rewritten, and work moved into and out of them."""
        rules = node.op.rules
        assert rules is not None
        node = Node(node.op, inputs, node.attrs, node.outputs, node.regions, node.source)
        found = rules.absorb(node, self.producer.get) if rules.absorb is not None else None
        nodes, become = found or ([node], {})
        new: dict[Value, Value] = {}
        for n in nodes:
            self._rewritten(n, new)
        return {v: new.get(become.get(v, v), become.get(v, v)) for v in node.outputs}

    def _rewritten(self, node: Node, new: dict[Value, Value]) -> None:
        """Emit one node of a rewriting, whose operands may be outputs of those before."""
        rules = node.op.rules
        if rules is not None and node.regions:
            regions = tuple([Rewriter(g, self.replace).run() for g in node.regions])
            node = Node(node.op, node.inputs, node.attrs, node.outputs, regions, node.source)
            parts = (rules.hoist(node) if rules.hoist is not None else None) or [node]
        else:
            parts = [node]
        for n in parts:
            inputs = tuple([new.get(v, v) for v in n.inputs])
            if len(n.outputs) == 1 and not n.regions:
                new[n.outputs[0]] = self.apply(n.op, inputs, n.attrs, n.outputs[0].type)
            else:
                new.update(zip(n.outputs, self.share(n, inputs), strict=True))

    def apply(self, op: Op, inputs: tuple[Value, ...], attrs: Attributes, type: ArrayType, node: Node | None = None) -> Value:
        """A value for op on inputs. `node` is one that may be taken over as it is, where its operands did not change."""
        key = op, inputs, attributes_key(attrs)
        known = self.shared.get(key)
        if known is None:
            value = self.replace(self, op, inputs, attrs, type)
            if value is None:
                value = self.emit(op, inputs, attrs, type, node)
            known = self.shared[key] = (value,)
        return known[0]

    def infer(self, op: Op, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> Value:
        """A value for op on inputs, of the type that the op gives it."""
        return self.apply(op, inputs, attrs, op.result_types([v.type for v in inputs], (), attrs)[0])

    def share(self, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """The outputs of a node with regions or several results. Regions are equal only over the same symbols."""
        key = node.op, inputs, attributes_key(node.attrs), tuple([(r, r.free_symbols) for r in node.regions])
        known = None if acts(node) else self.shared.get(key)
        if known is None:
            known = self.shared[key] = node.outputs
            self._add(node if inputs == node.inputs else
                      Node(node.op, inputs, node.attrs, node.outputs, node.regions, node.source))
        return known

    def emit(self, op: Op, inputs: tuple[Value, ...], attrs: Attributes, type: ArrayType, node: Node | None = None) -> Value:
        """A node of its own, which nothing replaces."""
        if node is None:
            node = Node(op, inputs, attrs, (Value(type),), (), self.source)
        elif inputs != node.inputs:
            node = Node(op, inputs, attrs, node.outputs, (), node.source)
        self._add(node)
        return node.outputs[0]

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        for v in node.outputs:
            self.producer[v] = node


def live(nodes: Iterable[Node], results: Iterable[Value]) -> tuple[Node, ...]:
    """The nodes that results need, in order, and of control flow what they need of it. One that binds a symbol is needed by
    those that use the symbol."""
    nodes, needed = list(nodes), set(results)
    binds = any(n.op.binds is not None for n in nodes)
    used: set[str] = set()
    kept: list[Node] = []
    for node in reversed(nodes):
        if needed.isdisjoint(node.outputs) and not acts(node) and (not binds or used.isdisjoint(binding(node))):
            continue
        if node.op.rules is not None and node.op.rules.prune is not None:
            node = node.op.rules.prune(node, [v in needed for v in node.outputs]) or node
        needed.update(node.inputs)
        if binds:
            used |= symbols_of(node)
        kept.append(node)
    return tuple(kept[::-1])


def remove_dead(g: Graph) -> Graph:
    """g without the nodes that no result needs."""
    nodes = live(g.nodes, g.results)
    return g if nodes == g.nodes else Graph(g.params, nodes, g.results, g.constraints)
