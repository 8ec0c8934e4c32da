"""Reshapes of what has only been moved, below the maps and folds that follow: `2 * reshape(broadcast(x))` as
`reshape(2 * broadcast(x))`, and the sum of a reshaped array as that of the array; so what is broadcast again.

A reshape stands between kernels: above the map, what was moved would be written for the map to read. Stacks of stacks of
columns are stacks of columns, reshaped; a fold of a fold, which may have stood behind a reshape, is one fold.

Guarantees: the same values, up to the order in which sums add; a map goes above a reshape only where nothing else reads that,
or what it reads is an array broadcast, and where what else the map reads is a parameter, or the same everywhere; a fold does
where its axes are whole axes of what is reshaped, and is one with another fold where nothing else reads that.
"""
from __future__ import annotations

from collections import Counter

from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value, readers_of
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.reductions import FOLDS
from loopwright.ir.ops.structural import concatenate, pad, reshape, slice_, transpose
from loopwright.lower.instructions import MOST_COLUMNS

_MOVES = (broadcast, concatenate, pad, slice_, transpose)


def sink(g: Graph) -> Graph:
    """g with reshapes below maps."""
    walked = _Walk(g)
    for n in g.nodes:
        walked.node(n)
    results = tuple([walked.same.get(v, v) for v in g.results])
    return remove_dead(Graph(g.params, tuple(walked.nodes), results, g.constraints)) if walked.changed else g


class _Walk:
    def __init__(self, g: Graph) -> None:
        self.g, self.nodes, self.changed = g, list[Node](), False
        self.producer: dict[Value, Node] = {}
        self.same: dict[Value, Value] = {}  # of reshapes that give back a shape: what they are
        self.below: dict[Value, Value] = {}  # of reshapes that may go below the map which reads them: their operands
        self.reads = Counter(v for n in g.nodes for v in n.inputs) + Counter(g.results)
        self.params, self.results = set(g.params), set(g.results)
        self.readers = readers_of(g)

    def node(self, n: Node) -> None:
        if any(v in self.same for v in n.inputs):
            n = Node(n.op, tuple([self.same.get(v, v) for v in n.inputs]), n.attrs, n.outputs, n.regions, n.source)
        new: list[Node] | None = None
        if n.op in FOLDS and self.reads[n.inputs[0]] == 1:
            n = self._once(n)
        if n.op is concatenate:
            new = self._columns(n)
        elif any(v in self.below for v in n.inputs):
            new = self._reshape(n) if n.op is reshape else self._fold(n) if n.op in FOLDS else \
                self._broadcast(n) if n.op is broadcast else self._map(n)
        if n.op is reshape and new is None:
            self._consider(n)
        self.changed |= new is not None
        if new == []:  # it gives back a shape
            return
        for m in new or [n]:
            self.nodes.append(m)
            self.producer.update((v, m) for v in m.outputs)

    def _once(self, n: Node) -> Node:
        """A fold of what a fold makes as one."""
        inner = self.producer.get(n.inputs[0])
        if inner is None or inner.op is not n.op or inner.outputs[0].type.dtype != n.outputs[0].type.dtype:
            return n
        x, over = inner.inputs[0], inner.attrs["axes"]
        left = [a for a in range(x.type.rank) if a not in over]
        axes = tuple(sorted((*over, *(left[a] for a in n.attrs["axes"]))))
        self.changed = True
        return Node(n.op, (x,), {**n.attrs, "axes": axes}, n.outputs, (), n.source)

    def _consider(self, n: Node) -> None:
        """Whether a map may go above a reshape."""
        x, made = n.inputs[0], self.producer.get(n.inputs[0])
        ones = [[size for size in v.type.shape if size != 1] for v in (x, n.outputs[0])]
        if made is not None and made.op in _MOVES and self.reads[x] == 1 and ones[0] != ones[1]:
            self.below[n.outputs[0]] = x

    def _reshape(self, n: Node) -> list[Node] | None:
        """Nothing, where a reshape gives back the shape that was there before another."""
        source, y = self.below[n.inputs[0]], n.outputs[0]
        if source.type == y.type:
            self.same[y] = source
            self.reads[source] += self.reads[y] - 1
            return []
        self.below[y] = source
        return None

    def _fold(self, n: Node) -> list[Node] | None:
        """A fold of what a reshape reads, and its result reshaped."""
        x, y, over = self.below[n.inputs[0]], n.outputs[0], set(n.attrs["axes"])
        runs = [(old, new) for old, new in _alike(x.type.shape, n.inputs[0].type.shape) if not over.isdisjoint(new)]
        axes = tuple([a for old, _ in runs for a in old])
        if over != {a for _, new in runs for a in new} or not axes:
            return None
        value = Value(y.type.with_shape(tuple([size for a, size in enumerate(x.type.shape) if a not in axes])))
        fold = Node(n.op, (x,), {**n.attrs, "axes": axes}, (y if value.type == y.type else value,), (), n.source)
        if self.reads[n.inputs[0]] == 1:
            fold = self._once(fold)
        if value.type == y.type:
            return [fold]
        self.below[y], self.reads[value] = value, self.reads[y]
        return [fold, Node(reshape, (value,), {"shape": y.type.shape}, (y,), (), n.source)]

    def _broadcast(self, n: Node) -> list[Node] | None:
        """What a reshape reads along new axes, and that reshaped: what is repeated along several axes is written once."""
        x, y, places = self.below[n.inputs[0]], n.outputs[0], n.attrs["axes"]
        if y in self.readers and all(m.op.shape is same_shape for m in self.readers[y]):
            return None  # what is repeated for a map is written before, which is less
        starts = {places[new[0]]: (old, new) for old, new in _alike(x.type.shape, n.inputs[0].type.shape) if new}
        shape, axes, b = list[Extent](), list[int](), 0
        while b < y.type.rank:
            old, new = starts.get(b, (range(0), range(0)))
            if any(places[k] != b + k - new[0] for k in new) or (b in places and not new):
                return None
            axes += range(len(shape), len(shape) + len(old))
            shape += [x.type.shape[k] for k in old] if new else [y.type.shape[b]]
            b += len(new) or 1
        if len(axes) != x.type.rank:
            return None
        value = Value(y.type.with_shape(tuple(shape)))
        self.below[y] = value
        return [Node(broadcast, (x,), {"shape": value.type.shape, "axes": tuple(axes)}, (value,), (), n.source),
                Node(reshape, (value,), {"shape": y.type.shape}, (y,), (), n.source)]

    def _map(self, n: Node) -> list[Node] | None:
        """A map of what a reshape reads, and its result reshaped."""
        sources = [self.below[v] for v in n.inputs if v in self.below]
        shape = sources[0].type.shape
        alone = all(self.reads[v] == n.inputs.count(v) or self.producer[self.below[v]].op is broadcast
                    for v in n.inputs if v in self.below)
        if not alone or len(n.outputs) > 1 or any(x.type.shape != shape for x in sources) or n.op.shape is not same_shape:
            return None
        nodes, inputs = list[Node](), list[Value]()
        for v in n.inputs:
            made = [] if v in self.below else self._reshaped(v, shape, n)
            if made is None:
                return None
            nodes += made
            inputs.append(made[-1].outputs[0] if made else self.below[v])
        y = n.outputs[0]
        value = Value(y.type.with_shape(shape))
        self.below[y] = value
        return [*nodes, Node(n.op, tuple(inputs), n.attrs, (value,), (), n.source),
                Node(reshape, (value,), {"shape": y.type.shape}, (y,), (), n.source)]

    def _reshaped(self, v: Value, shape: Shape, n: Node) -> list[Node] | None:
        """Another operand of a map in another shape; None where that would be a copy."""
        made, new = self.producer.get(v), Value(v.type.with_shape(shape))
        if v in self.params:
            return [Node(reshape, (v,), {"shape": shape}, (new,), (), n.source)]
        if made is not None and made.op is full:
            return [Node(full, (), {**made.attrs, "shape": shape}, (new,), (), made.source)]
        if made is not None and made.op is broadcast and not made.inputs[0].type.rank:
            return [Node(broadcast, made.inputs, {"shape": shape, "axes": ()}, (new,), (), made.source)]
        return None

    def _columns(self, n: Node) -> list[Node] | None:
        """A stack of stacks of columns as a stack of them, reshaped: a result that nothing reads."""
        y, axis = n.outputs[0], n.inputs[0].type.rank - 2
        if n.attrs["axis"] != axis or y not in self.results or self.reads[y] > 1:
            return None
        size = product(y.type.shape[axis:])
        found = [self._parts(v) for v in n.inputs]
        if not isinstance(size, int) or size > MOST_COLUMNS or not all(found):
            return None
        parts = tuple([v for some in found for v in some])
        whole = Value(y.type.with_shape((*y.type.shape[:axis], size)))
        return [Node(concatenate, parts, {"axis": axis}, (whole,), (), n.source),
                Node(reshape, (whole,), {"shape": y.type.shape}, (y,), (), n.source)]

    def _parts(self, v: Value) -> tuple[Value, ...]:
        """The columns of which one is a stack, where that is an operand of another."""
        expanded = self.producer.get(v)
        if expanded is None or expanded.op is not reshape or v.type.shape[-2] != 1:
            return ()
        stack = self.producer.get(expanded.inputs[0])
        if stack is None or stack.op is not concatenate or stack.attrs["axis"] != v.type.rank - 2:
            return ()
        columns = all(x.type.rank == v.type.rank - 1 and x.type.shape[-1] == 1 for x in stack.inputs)
        return stack.inputs if columns else ()


def _alike(before: Shape, behind: Shape) -> list[tuple[range, range]]:
    """The axes of an array and of a reshape of it, in the smallest runs that hold the same elements in the same order."""
    found, first, second = list[tuple[range, range]](), 0, 0
    for end in range(1, len(before) + 1):
        while second < len(behind) and behind[second] == 1 != before[first]:  # an axis of the reshape alone
            found.append((range(first, first), range(second, second + 1)))
            second += 1
        whole = product(before[first:end])
        other = next((k for k in range(second, len(behind) + 1) if product(behind[second:k]) == whole), None)
        if other is not None:
            found.append((range(first, end), range(second, other)))
            first, second = end, other
    return [*found, (range(first, len(before)), range(second, len(behind)))]
