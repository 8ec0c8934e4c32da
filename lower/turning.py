"""Folds over the last axis of what is computed of pairs of rows (distances, `max(x[:, None] + y[None], -1)`), as folds over the
axis before it, of a copy of one side that is turned: lanes run along that side's rows.

A fold along rows has to add up its lanes for each pair; along the pairs there is nothing to add up. Long rows, and few of the
turned side, are better off as they are: both kernels are compiled where sizes are not known.

Guarantees: the same values, up to the order in which sums add; only folds of maps of arrays that are smaller than what they
are broadcast to, of which some axis is not read by the array that is turned.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.dims import Extent, Shape, maximum, minimum, product
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.reductions import FOLDS
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import transpose
from loopwright.lower.choices import as_it_is, chosen
from loopwright.lower.kernel import kernel, region_of
from loopwright.lower.rules import default_schedule
from loopwright.lower.target import Target

MOST_VALUES = 32  # that are looked at, from the fold back to what is broadcast
LITTLE = 1 << 12  # elements that are folded, which are not worth a copy
SHORT, LONG = 16, 256  # rows for which lanes along them do little; rows of which several at once fill the caches
FEWEST, READERS = 16, 4  # rows of the turned side that fill lanes; rows that read it, which are worth the copy


def turned(g: Graph) -> Graph:
    """g with such folds over the axis before the last."""
    producer = {v: n for n in g.nodes for v in n.outputs}
    nodes = list[Node]()
    for n in g.nodes:
        nodes += (_Turning(producer).fold(n) if n.op in FOLDS else None) or [n]
    return remove_dead(Graph(g.params, tuple(nodes), g.results, g.constraints)) if len(nodes) > len(g.nodes) else g


class _Turning:
    """The nodes that compute one fold's operand with its last two axes exchanged."""

    def __init__(self, producer: dict[Value, Node]) -> None:
        self.producer, self.nodes, self.found = producer, list[Node](), dict[Value, Value | None]()
        self.copies, self.along = 0, 0  # broadcasts that have both of the axes, and those that have the last alone

    def fold(self, n: Node) -> list[Node] | None:
        """The fold of the operand so; None where that is not what this is for."""
        x, rank = n.inputs[0], n.inputs[0].type.rank
        size = product(x.type.shape)
        if rank < 3 or n.attrs["axes"] != (rank - 1,) or (isinstance(size, int) and size < LITTLE):
            return None
        made = self._exchanged(x)
        if made is None or not self.copies or not self.along:
            return None
        return [*self.nodes, Node(n.op, (made,), {**n.attrs, "axes": (rank - 2,)}, n.outputs, (), n.source)]

    def _exchanged(self, v: Value) -> Value | None:
        """v with its last two axes exchanged; None where it cannot be computed so."""
        if v not in self.found:
            n, self.found[v] = self.producer.get(v), None
            new = Value(v.type.with_shape(_exchange(v.type.shape)))
            if n is not None and len(n.outputs) == 1 and len(self.found) <= MOST_VALUES and self._compute(n, new):
                self.found[v] = new
        return self.found[v]

    def _compute(self, n: Node, new: Value) -> bool:
        """Add the node that computes it; False where that is no map of what is broadcast."""
        shape = new.type.shape
        if n.op is full:
            self.nodes.append(Node(full, (), {**n.attrs, "shape": shape}, (new,), (), n.source))
            return True
        if n.op is broadcast:
            return self._spread(n, new)
        if n.op.shape is not same_shape and n.op is not convert:
            return False
        inputs = [self._exchanged(v) for v in n.inputs]
        if None in inputs:
            return False
        self.nodes.append(Node(n.op, tuple([v for v in inputs if v is not None]), n.attrs, (new,), n.regions, n.source))
        return True

    def _spread(self, n: Node, new: Value) -> bool:
        x, axes, rank = n.inputs[0], n.attrs["axes"], new.type.rank
        if {rank - 2, rank - 1} <= set(axes):
            if all(a in axes or size == 1 for a, size in enumerate(new.type.shape)):
                return False
            turned = Value(x.type.with_shape(_exchange(x.type.shape)))
            self.nodes.append(Node(transpose, (x,), {"perm": _perm(x.type.rank)}, (turned,), (), n.source))
            self.copies, x = self.copies + 1, turned
        elif axes[-1:] == (rank - 1,):
            self.along, axes = self.along + 1, (*axes[:-1], rank - 2)
        elif axes[-1:] == (rank - 2,):
            axes = (*axes[:-1], rank - 1)
        self.nodes.append(Node(broadcast, (x,), {"shape": new.type.shape, "axes": axes}, (new,), (), n.source))
        return True


def _exchange(shape: Shape) -> Shape:
    return *shape[:-2], shape[-1], shape[-2]


def _perm(rank: int) -> tuple[int, ...]:
    return *range(rank - 2), rank - 1, rank - 2


# ---- kernels ------------------------------------------------------------------------------------
def with_copies(n: Node, target: Target, is_scheduled: bool) -> list[Node]:
    """A kernel; where it reads arrays across their memory for such folds with copies of these, or both and what chooses."""
    region = n.regions[0]
    found = _copied(region)
    many: Extent = 0
    for t, spread in found:
        many = maximum(many, _is_worth(t, spread))
    if many == 0:
        return [n]
    kernels = _Kernels(target, is_scheduled, [t for t, _ in found])
    if many == 1:
        return kernels.apart(n, n.inputs, n.outputs)
    params, results = (tuple([Value(v.type) for v in values]) for values in (region.params, region.results))
    copied = Graph(params, tuple(kernels.apart(n, params, results)), results)
    return chosen(n, many, (as_it_is(n), copied), target)


def _copied(region: Graph) -> list[tuple[Node, Node]]:
    """The transposes of parameters that a fold of the region reads again and again, and what broadcasts them."""
    folds = {n.inputs[0].type.shape for n in region.nodes if n.op in FOLDS and n.attrs["axes"] == (n.inputs[0].type.rank - 2,)}
    turned = {n.outputs[0]: n for n in region.nodes
              if n.op is transpose and n.inputs[0] in region.params and n.attrs["perm"] == _perm(len(n.attrs["perm"]))}
    found = dict[Node, Node]()
    for n in region.nodes:
        if n.op is broadcast and n.inputs[0] in turned and n.outputs[0].type.shape in folds \
                and n.inputs[0].type.rank < n.outputs[0].type.rank:
            found[turned[n.inputs[0]]] = n
    return list(found.items())


def _is_worth(t: Node, spread: Node) -> Extent:
    """1 where a copy of what is broadcast so pays, else 0."""
    terms, rows = t.outputs[0].type.shape[-2:]
    readers = product(size for a, size in enumerate(spread.attrs["shape"]) if a not in spread.attrs["axes"])
    many = minimum(_at_least(rows, FEWEST), _at_least(readers, READERS))
    fills = minimum(_at_least(4 * rows, terms), _at_least(LONG, terms))
    return maximum(_at_least(SHORT, terms), minimum(many, fills))


def _at_least(a: Extent, b: Extent) -> Extent:
    """1 where a >= b, else 0."""
    return minimum(maximum(a - b + 1, 0), 1)


class _Kernels:
    """Kernels that read copies in the place of transposes."""

    def __init__(self, target: Target, is_scheduled: bool, turned: Sequence[Node]) -> None:
        self.target, self.is_scheduled, self.turned = target, is_scheduled, turned

    def apart(self, n: Node, inputs: Sequence[Value], outputs: tuple[Value, ...]) -> list[Node]:
        """The nodes that make the outputs of kernel n, on other inputs: the copies, then the rest."""
        region = n.regions[0]
        values = dict(zip(region.params, inputs, strict=True))
        nodes = list[Node]()
        for t in self.turned:
            values[t.outputs[0]] = Value(t.outputs[0].type)
            nodes.append(self._kernel([t], t.outputs, values, (values[t.outputs[0]],), n))
        rest = [m for m in region.nodes if m not in self.turned]
        return [*nodes, self._kernel(rest, region.results, values, outputs, n)]

    def _kernel(self, nodes: list[Node], results: tuple[Value, ...], values: dict[Value, Value], outputs: tuple[Value, ...],
                n: Node) -> Node:
        region, outside = region_of(nodes, results)
        attrs = {**n.attrs, "schedule": default_schedule(region, self.target) if self.is_scheduled else ()}
        return Node(kernel, tuple([values[v] for v in outside]), attrs, outputs, (region,), n.source)
