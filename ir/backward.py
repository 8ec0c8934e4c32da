"""The backward parts of a graph: what they take from before them, and what of that they compute again.

Guarantees: results are the same bits. A backward part is what one walk of cotangents emitted (`Source.pull`); it reads
values from before it. Of these `Forward.choose` keeps some, and the others are computed again in front of the first node
that reads them, by nodes that nothing merges with the first ones. Regions are treated alike.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.residuals import Choice, Forward


def recomputing(g: Graph, sizes: Mapping[str, int]) -> tuple[Graph, list[Choice]]:
    """g with backward parts that compute again what is not worth keeping, and what each takes; sizes: of the call at hand."""
    nodes = [_with_regions(n, sizes) for n in g.nodes]
    own: dict[int, list[Node]] = {}
    for n in nodes:
        own.setdefault(_pull(n), []).append(n)
    own.pop(0, None)
    if not own:
        return Graph(g.params, tuple(nodes), g.results, g.constraints), []
    forward = Forward(g, (*g.params, *g.results), sizes)  # arguments and results have their memory anyway
    choices = {pull: forward.choose(_taken(part), part[0].source) for pull, part in own.items()}
    parts = {pull: _Part(pull, c.again) for pull, c in choices.items() if c.again}
    made = tuple([m for n in nodes for m in (parts[_pull(n)].taking(n) if _pull(n) in parts else (n,))])
    return remove_dead(Graph(g.params, made, g.results, g.constraints)), list(choices.values())


def _with_regions(n: Node, sizes: Mapping[str, int]) -> Node:
    regions = tuple([recomputing(r, sizes)[0] for r in n.regions])
    return Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source) if n.regions else n


def _pull(n: Node) -> int:
    """The number of the backward part that n belongs to; 0 for none."""
    return n.source.pull if n.source is not None else 0


def _taken(part: Sequence[Node]) -> list[Value]:
    """What the nodes read that they do not make."""
    made = {v for n in part for v in n.outputs}
    return list(dict.fromkeys([v for n in part for v in n.inputs if v not in made]))


class _Part:
    """One backward part, and what it has computed again so far."""

    def __init__(self, pull: int, again: Sequence[Node]) -> None:
        self.pull = pull
        self.producer = {v: n for n in again for v in n.outputs}
        self.copy: dict[Value, Value] = {}

    def taking(self, n: Node) -> Iterator[Node]:
        """n on values that the part has itself, after the nodes that make those which it does not have yet."""
        todo = [v for v in n.inputs[::-1] if v in self.producer and v not in self.copy]
        while todo:
            first = self.producer[todo[-1]]
            missing = [v for v in first.inputs[::-1] if v in self.producer and v not in self.copy]
            if missing:
                todo += missing
                continue
            if todo.pop() not in self.copy:
                self.copy.update((v, Value(v.type)) for v in first.outputs)
                yield self._with(first, tuple([self.copy[v] for v in first.outputs]))
        yield self._with(n, n.outputs)

    def _with(self, n: Node, outputs: tuple[Value, ...]) -> Node:
        source = n.source.in_pull(self.pull) if n.source is not None else None
        return Node(n.op, tuple([self.copy.get(v, v) for v in n.inputs]), n.attrs, outputs, n.regions, source)
