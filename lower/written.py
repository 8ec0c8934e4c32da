"""Arrays that are written piece by piece and read piece by piece: the pieces alone.

`x[1:3] = v` makes select(inside, v spread out, x), and what reads rows 1 and 2 later reads v, however many rows were written
in between: in a program that fills an array row by row, or element by element, no array is left but the last. So with padded
and joined arrays.

Guarantees: the same elements; a read goes to a piece only where sizes tell, whatever they are, that it lies in it, and where
nothing needs the array whole. One that something needs is read itself: it may lie in the memory of the array before, which
could not be read any more.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from loopwright.ir.dims import Extent, Shape
from loopwright.ir.elimination import remove_dead
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import concatenate, pad, slice_
from loopwright.ir.rewriting import simplify


class Window(NamedTuple):
    """The positions start + step * i of an array, for each i below shape."""

    start: Shape
    step: tuple[int, ...]
    shape: Shape

    @classmethod
    def of(cls, n: Node) -> Window:
        """Where the operand of a pad lies in its result."""
        return cls(n.attrs["start"], n.attrs["step"], n.inputs[0].type.shape)


def by_pieces(g: Graph) -> Graph:
    """g and the regions in it with such arrays as pieces; g itself where there are none."""
    made = _Walk(remove_dead(g)).graph()
    return g if made is None else simplify(made)


class _Walk:
    """The nodes of a graph, on their way to reads of pieces alone."""

    def __init__(self, g: Graph) -> None:
        self.g, self.facts = g, g.facts
        self.made = {n.outputs[0]: n for n in g.nodes if len(n.outputs) == 1}
        self.pieces = self._only_in_pieces()

    def graph(self) -> Graph | None:
        """The graph so; None where it stays as it is."""
        nodes = tuple([self._node(n) for n in self.g.nodes])
        return None if nodes == self.g.nodes else Graph(self.g.params, nodes, self.g.results, self.g.constraints)

    def _only_in_pieces(self) -> set[Value]:
        """The arrays that are read in pieces alone, or written over."""
        found = {v for v, n in self.made.items() if n.op in (pad, concatenate) or written(n, self.made) is not None}
        for n in self.g.nodes:
            whole = n.inputs
            if n.op is slice_ and n.inputs[0] in found:
                whole = n.inputs if self._piece(self.made[n.inputs[0]], _taken(n)) is None else ()
            elif n.op is select and written(n, self.made) is not None:
                whole = n.inputs[:2]
            found.difference_update(whole)
        return found.difference(self.g.results)

    def _node(self, n: Node) -> Node:
        """A node that makes the same of pieces; those before it do."""
        if n.regions:
            regions = tuple([_Walk(r).graph() or r for r in n.regions])
            return n if regions == n.regions else Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source)
        if n.op is slice_ and n.inputs[0] in self.pieces:
            n = self._slice(n)
        elif n.op is select and n.inputs[2] in self.pieces and written(n, self.made) is not None:
            n = Node(select, (*n.inputs[:2], self._kept(n)), n.attrs, n.outputs, (), n.source)
        if len(n.outputs) == 1:
            self.made[n.outputs[0]] = n
        return n

    def _slice(self, n: Node) -> Node:
        x, w = n.inputs[0], _taken(n)
        while x in self.pieces and (piece := self._piece(self.made[x], w)) is not None:
            found, w = piece
            if found is None:
                attrs = {"value": self.made[x].attrs["value"], "shape": w.shape, "dtype": x.type.dtype}
                return Node(full, (), attrs, n.outputs, (), n.source)
            x = found
        return Node(slice_, (x,), w._asdict(), n.outputs, (), n.source)

    def _kept(self, n: Node) -> Value:
        """What a write takes of the array that it writes over: that without what was written there before."""
        window, x = Window.of(self.made[n.inputs[0]]), n.inputs[2]
        while x in self.pieces and (before := written(self.made[x], self.made)) is not None:
            if _within(before, window, self.facts) is None:
                break
            x = self.made[x].inputs[2]
        return x

    def _piece(self, n: Node, w: Window) -> tuple[Value | None, Window] | None:
        """The operand that has all of a window of a node's result, and where; no operand where the window is beside what a pad
        pads; None where several parts have some of it."""
        if n.op is concatenate:
            return _joined(n, w, self.facts)
        into = Window.of(n) if n.op is pad else written(n, self.made)
        if into is None:
            return None
        within = _within(w, into, self.facts)
        if within is None:
            return (None if n.op is pad else n.inputs[2], w) if _is_beside(w, into, self.facts) else None
        if n.op is pad:
            return n.inputs[0], within
        value = self.made.get(n.inputs[1])
        is_spread = value is not None and value.op is pad and Window.of(value) == into
        return (value.inputs[0], within) if value is not None and is_spread else (n.inputs[1], w)


def written(n: Node, made: Mapping[Value, Node]) -> Window | None:
    """The window of the array that a node writes over another, if it is such a node."""
    inside = made.get(n.inputs[0]) if n.op is select else None
    if inside is None or inside.op is not pad or inside.attrs["value"]:
        return None
    everywhere = made.get(inside.inputs[0])
    return Window.of(inside) if everywhere is not None and everywhere.op is full and everywhere.attrs["value"] else None


def _taken(n: Node) -> Window:
    """What a slice takes."""
    return Window(n.attrs["start"], n.attrs["step"], n.attrs["shape"])


def _joined(n: Node, w: Window, facts: Facts) -> tuple[Value, Window] | None:
    axis: int = n.attrs["axis"]
    at: Extent = 0
    for v in n.inputs:
        shape = v.type.shape
        start = tuple([at if a == axis else 0 for a in range(len(shape))])
        within = _within(w, Window(start, (1,) * len(shape), shape), facts)
        if within is not None:
            return v, within
        at = at + shape[axis]
    return None


# ---- how windows lie ----------------------------------------------------------------------------
def _within(w: Window, outer: Window, facts: Facts) -> Window | None:
    """w by the positions of `outer`, if it surely lies there."""
    start, step = [], []
    for s, t, n, first, by, count in zip(*w, *outer, strict=True):
        found = _along(s, t, n, first, by, count, facts)
        if found is None:
            return None
        start.append(found[0])
        step.append(found[1])
    return Window(tuple(start), tuple(step), w.shape)


def _along(s: Extent, t: int, n: Extent, first: Extent, by: int, count: Extent, facts: Facts) -> tuple[Extent, int] | None:
    """s + t * i for i < n as first + by * (start + step * i), where these are surely below count: (start, step)."""
    if s == first and t == by and n == count:
        return 0, 1
    if abs(by) == 1:
        start, step = (s - first) * by, t * by
    elif isinstance(s, int) and isinstance(first, int) and (s - first) % by == 0 and (n == 1 or t % by == 0):
        start, step = (s - first) // by, t // by if n != 1 else 1
    else:
        return None
    low, high = _ends(start, step, n)
    return (start, step) if _at_most(0, low, facts) and _at_most(high, count - 1, facts) else None


def _is_beside(w: Window, outer: Window, facts: Facts) -> bool:
    """Whether two windows surely have no position in common."""
    for s, t, n, first, by, count in zip(*w, *outer, strict=True):
        if s == first and t == by and n == count:
            continue
        (low, high), (least, most) = _ends(s, t, n), _ends(first, by, count)
        if _at_most(high, least - 1, facts) or _at_most(most, low - 1, facts):
            return True
        if abs(by) > 1 and isinstance(s, int) and isinstance(first, int) and (n == 1 or t % by == 0) and (s - first) % by:
            return True
    return False


def _ends(start: Extent, step: int, count: Extent) -> tuple[Extent, Extent]:
    """The lowest and the highest of these positions."""
    last = start + (count - 1) * step
    return (start, last) if step > 0 else (last, start)


def _at_most(a: Extent, b: Extent, facts: Facts) -> bool:
    return a <= b if isinstance(a, int) and isinstance(b, int) else facts.prove("<=", a, b) is True
