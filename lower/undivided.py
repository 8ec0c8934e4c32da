"""What is computed of arrays whose last axis was divided into groups, computed of these arrays as they were: channels that are
brought to mean 0 in groups are `x.reshape(n, h, w, groups, c // groups)`, less its means over all but n and groups.

A group has few channels. Lanes along them would be few, and each sum would go through all pixels for a few numbers of each.
Sums over other axes come first, with all channels side by side; those over a group's are sums of what is left. What channels of
a group share is written once for each of them, and read by all pixels. Maps before and after the division are one.

Guarantees: the same values, up to the order in which sums add. What is written beside what was before is smaller than the
array by an axis at least.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loopwright.ir.dims import Shape
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value, readers_of
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.reductions import FOLDS
from loopwright.ir.ops.structural import reshape
from loopwright.ir.types import BF16, F16


def undivided(g: Graph) -> Graph:
    """g with maps and folds of divided arrays as those of whole ones, where that is worth it."""
    divided = {n.outputs[0]: n for n in g.nodes if _divides(n)}
    if not divided:
        return g
    found = _Divided(g, divided)
    chosen = {n for maps in found.connected() if found.are_worth_it(maps) for n in maps}
    folds = {n for n in g.nodes if n.op in FOLDS and n.inputs[0] in divided and _is_wide(n) and _parts(n)}
    return _Whole(g, divided, chosen, folds).graph() if chosen or folds else g


def _divides(n: Node) -> bool:
    """Whether a reshape makes two axes of the last one, and nothing else."""
    if n.op is not reshape:
        return False
    before, after = n.inputs[0].type.shape, n.outputs[0].type.shape
    return len(before) > 1 and before[:-1] == after[:-2] and 1 not in after[-2:]


def _others(n: Node) -> list[int]:
    """The axes that a fold goes over, groups and what is in a group left out."""
    return [a for a in n.attrs["axes"] if a < n.inputs[0].type.rank - 2]


def _is_wide(n: Node) -> bool:
    """Whether a fold goes over a group's channels, and over another axis, but not over groups."""
    shape, axes = n.inputs[0].type.shape, n.attrs["axes"]
    return len(shape) - 1 in axes and len(shape) - 2 not in axes and any(shape[a] != 1 for a in _others(n))


def _parts(n: Node) -> bool:
    """Whether a fold can be made over other axes first: sums that are rounded in between would not be the same."""
    last = n.inputs[0].type.rank - 2
    own = [a for a in n.attrs["axes"] if a >= last]
    return len(own) != 1 or (bool(_others(n)) and (n.op is not reduce_sum or n.outputs[0].type.dtype not in (F16, BF16)))


class _Divided:
    """Maps of divided arrays, with what they read and what reads them."""

    def __init__(self, g: Graph, divided: dict[Value, Node]) -> None:
        self.g, self.divided = g, divided
        self.producer = {v: n for n in g.nodes for v in n.outputs}
        self.readers = readers_of(g)
        shapes = {v.type.shape for v in divided}
        self.maps = {n for n in g.nodes
                     if n.op.shape is same_shape and len(n.outputs) == 1 and n.outputs[0].type.shape in shapes}

    def connected(self) -> Iterable[list[Node]]:
        """The maps, in sets that are connected by what they make."""
        seen = set[Node]()
        for start in self.g.nodes:
            waiting, maps = [start] if start in self.maps else [], list[Node]()
            while waiting:
                n = waiting.pop()
                if n not in seen and n in self.maps:
                    seen.add(n)
                    maps.append(n)
                    waiting += [self.producer[v] for v in n.inputs if v in self.producer] + self.readers.get(n.outputs[0], [])
            if maps:
                yield maps

    def are_worth_it(self, maps: list[Node]) -> bool:
        """Whether maps can be made of whole arrays, and something is wide then that was not."""
        operands, readers = {v for n in maps for v in n.inputs}, [m for n in maps for m in self.readers.get(n.outputs[0], [])]
        broadcasts = [self.producer[v] for v in operands if v in self.producer and self.producer[v].op is broadcast]
        last = maps[0].outputs[0].type.rank - 1
        wide = any(last not in n.attrs["axes"] for n in broadcasts if n.inputs[0].type.rank) or \
            any(n.op in FOLDS and _is_wide(n) for n in readers)
        return wide and not operands.isdisjoint(self.divided) and all(map(self._can_be_whole, operands)) and all(
            n.op is reshape or n in self.maps or (n.op in FOLDS and _parts(n)) for n in readers)

    def _can_be_whole(self, v: Value) -> bool:
        """Whether an operand is another map's, or there as a whole, or repeats something smaller by an axis."""
        n = self.producer.get(v)
        if n is None or n in self.maps or v in self.divided or n.op is full:
            return True
        last, axes = v.type.rank - 2, n.attrs.get("axes", ())
        return n.op is broadcast and (not {last, last + 1} & {*axes} or any(
            v.type.shape[a] != 1 for a in range(last) if a not in axes))


class _Whole:
    """The graph with some maps, and folds, of whole arrays."""

    def __init__(self, g: Graph, divided: dict[Value, Node], maps: set[Node], folds: set[Node]) -> None:
        self.g, self.maps, self.folds = g, maps, folds
        self.producer = {v: n for n in g.nodes for v in n.outputs}
        self.last = {v.type.shape: n.inputs[0].type.shape[-1] for v, n in divided.items()}
        self.whole: dict[Value, Value] = {}  # by the divided array
        self.same: dict[Value, Value] = {}  # of reshapes that would change nothing: what they read
        self.nodes: list[Node] = []

    def graph(self) -> Graph:
        for n in self.g.nodes:
            if any(v in self.same for v in n.inputs):
                n = Node(n.op, tuple([self.same.get(v, v) for v in n.inputs]), n.attrs, n.outputs, n.regions, n.source)
            made = self.producer.get(n.inputs[0]) if n.inputs else None
            if n in self.maps:
                self._map(n)
            elif n.op in FOLDS and (n in self.folds or made in self.maps):
                self._fold(n)
            elif n.op is reshape and made in self.maps:
                self._reshaped(self.whole[n.inputs[0]], n.outputs[0], n)
            else:
                self.nodes.append(n)
        results = tuple([self.same.get(v, v) for v in self.g.results])
        return remove_dead(Graph(self.g.params, tuple(self.nodes), results, self.g.constraints))

    def _made(self, n: Node, op: Op, inputs: Iterable[Value], shape: Shape, attrs: Mapping[str, Any] = {}) -> Value:
        """What an op makes for a node, of the dtype of its result."""
        value = Value(n.outputs[0].type.with_shape(shape))
        attrs = {**attrs, "shape": shape} if op in (broadcast, full, reshape) else attrs
        self.nodes.append(Node(op, tuple(inputs), attrs, (value,), (), n.source))
        return value

    def _reshaped(self, x: Value, y: Value, n: Node) -> None:
        """y as a reshape of x, unless it is x."""
        if x.type == y.type:
            self.same[y] = x
        else:
            self.nodes.append(Node(reshape, (x,), {"shape": y.type.shape}, (y,), (), n.source))

    def _map(self, n: Node) -> None:
        y = n.outputs[0]
        self.whole[y] = self._made(n, n.op, [self._of(v) for v in n.inputs], self._shape(y), n.attrs)
        if y in self.g.results:
            self._reshaped(self.whole[y], y, n)

    def _shape(self, v: Value) -> Shape:
        """A divided array's, as a whole."""
        return (*v.type.shape[:-2], self.last[v.type.shape])

    def _of(self, v: Value) -> Value:
        """A divided array as a whole."""
        if v not in self.whole:
            n, shape = self.producer.get(v), self._shape(v)
            if n is not None and n.op is full:
                self.whole[v] = self._made(n, full, (), shape, n.attrs)
            elif n is not None and n.op is broadcast:
                self.whole[v] = self._spread(n, shape)
            elif n is not None and n.inputs[0].type.shape == shape and n.inputs[0] not in self.whole:
                self.whole[v] = self.same.get(n.inputs[0], n.inputs[0])
            else:
                self.whole[v] = Value(v.type.with_shape(shape))
                self.nodes.append(Node(reshape, (v,), {"shape": shape}, (self.whole[v],)))
        return self.whole[v]

    def _spread(self, n: Node, shape: Shape) -> Value:
        """What is repeated, which is written for each channel if it differs from group to group, or in groups."""
        x, y, axes, last = self.same.get(n.inputs[0], n.inputs[0]), n.outputs[0], n.attrs["axes"], len(shape) - 1
        if last in axes or last + 1 in axes:
            before = tuple([a for a in axes if a < last])
            sizes = tuple([shape[a] for a in before])
            if {last, last + 1} - {*axes}:
                places = tuple([k if a < last else len(before) + a - last for k, a in enumerate(axes)])
                divided = (*sizes, *y.type.shape[-2:])
                x = self._made(n, broadcast, [x], divided, {"axes": places})
            x = self._made(n, reshape, [x], (*sizes, shape[-1]))
            axes = (*before, last)
        return self._made(n, broadcast, [x], shape, {"axes": axes})

    def _fold(self, n: Node) -> None:
        """A fold of a whole array; over groups, or what is in a group, after it has been divided again."""
        x, y, axes = self._of(n.inputs[0]), n.outputs[0], n.attrs["axes"]
        last, others = x.type.rank - 1, _others(n)
        own = [a for a in axes if a >= last]
        over = (*others, last) if len(own) == 2 else tuple(others)
        left = tuple([size for a, size in enumerate(x.type.shape) if a not in over])
        if left == y.type.shape:
            self.nodes.append(Node(n.op, (x,), {**n.attrs, "axes": over}, (y,), (), n.source))
            return
        value = self._made(n, n.op, [x], left, {**n.attrs, "axes": over})
        shape = (*left[:-1], *n.inputs[0].type.shape[-2:])
        if own:
            value = self._made(n, reshape, [value], shape)
            place = len(shape) - 2 + own[0] - last
            self.nodes.append(Node(n.op, (value,), {**n.attrs, "axes": (place,)}, (y,), (), n.source))
        else:
            self._reshaped(value, y, n)
