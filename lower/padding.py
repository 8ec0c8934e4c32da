"""Loops over short vectors whose size is known at the call only: a second body for vectors that registers hold.

A carry of known size lives in registers; one of symbolic size lies in memory, where each trip waits for what the trip before
stored. A scan whose step computes element by element gets a body of its own for sizes that a register has room for: there
vectors have as many elements as a line of memory, of which the first are the carry's. What the others hold is never stored.

Guarantees: every element depends on elements at its own position alone, so the values are the same; nothing outside arrays is
read or written; nothing is computed for the other elements that could raise; larger sizes run as before.
"""
from __future__ import annotations

from loopwright.ir.dims import Extent, symbol_of
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Index, walk
from loopwright.ir.ops.control import scan
from loopwright.lower.blocking import KnownAxes
from loopwright.lower.composition import fresh_indices, reads
from loopwright.lower.control import is_control, padded_scan
from loopwright.lower.kernel import kernel
from loopwright.lower.lanes import may_raise
from loopwright.lower.rules import TINY_ROW, default_schedule
from loopwright.lower.target import Target

LINE, WORD = 64, 4  # bytes of vectors; of the elements that AVX2 loads by masks
FEW_TRIPS = 64  # whatever their time, they are over before a second body is compiled


def padded(g: Graph, target: Target) -> Graph:
    """A partitioned graph whose scans over vectors of symbolic size have a second body, where loads of a few elements are
    cheap."""
    return _Padding(target).graph(g) if target.has_avx2 else g


def unpadded(g: Graph) -> Graph:
    """The graph that `padded` was given."""
    return g if not any(map(is_control, g.nodes)) else Graph(g.params, tuple(map(_unpadded, g.nodes)), g.results, g.constraints)


def _unpadded(n: Node) -> Node:
    if not is_control(n):
        return n
    is_padded = n.op is padded_scan
    regions = tuple(map(unpadded, n.regions[1:] if is_padded else n.regions))
    attrs = {k: x for k, x in n.attrs.items() if not is_padded or k not in ("short", "lanes")}
    return Node(scan if is_padded else n.op, n.inputs, attrs, n.outputs, regions, n.source)


class _Padding:
    def __init__(self, target: Target) -> None:
        self.target, self.known = target, KnownAxes()

    def graph(self, g: Graph) -> Graph:
        if not any(map(is_control, g.nodes)):
            return g
        return Graph(g.params, tuple([self._node(n) if is_control(n) else n for n in g.nodes]), g.results, g.constraints)

    def _node(self, n: Node) -> Node:
        length = n.attrs["length"] if n.op is scan else 0
        body = self._short_body(n) if not isinstance(length, int) or length > FEW_TRIPS else None
        if body is None:
            return Node(n.op, n.inputs, n.attrs, n.outputs, tuple(map(self.graph, n.regions)), n.source)
        short, lanes, region = body
        attrs = {**n.attrs, "short": short, "lanes": lanes}
        return Node(padded_scan, n.inputs, attrs, n.outputs, (region, *n.regions), n.source)

    def _short_body(self, n: Node) -> tuple[tuple[Extent, ...], int, Graph] | None:
        """The sizes of carries that are vectors, how many elements these have in a short body, and that body; None where there
        are no such carries, or something depends on more than elements at its own position."""
        body = n.regions[0]
        if any(m.op is kernel and m.attrs["implementation"] != "generated" for m in body.nodes):  # these take most of the time
            return None
        short = tuple(dict.fromkeys([v.type.shape[0] for v in body.results[:n.attrs["carry"]]
                                     if v.type.rank == 1 and symbol_of(v.type.shape[0]) is not None]))
        values = [v for v in (*body.params, *(v for m in body.nodes for v in m.outputs))
                  if v.type.rank == 1 and v.type.shape[0] in short]
        if not short:
            return None
        if not self.target.has_masks and any(v.type.dtype.itemsize < WORD for v in values if v in body.params):
            return None
        lanes = min(TINY_ROW, LINE // max(v.type.dtype.itemsize for v in values))
        new = {v: Value(v.type.with_shape((lanes,))) for v in values}
        nodes = [self._kernel(m, new, lanes) for m in body.nodes]
        if None in nodes:
            return None
        return short, lanes, Graph(tuple([new.get(v, v) for v in body.params]), tuple([m for m in nodes if m is not None]),
                                   tuple([new.get(v, v) for v in body.results]))

    def _kernel(self, n: Node, new: dict[Value, Value], lanes: int) -> Node | None:
        """A node of the body on `new` values; None where it cannot be."""
        if is_control(n):
            return None
        if new.keys().isdisjoint((*n.inputs, *n.outputs)):
            return n
        axes = self.known.node_axes(n, 0) if n.op is kernel and n.attrs["implementation"] == "generated" else None
        if axes is None or any((a == 0) != (v in new) for v, a in axes.items()) or not new.keys() >= set(n.outputs):
            return None
        region = self.known.retyped(n.regions[0], 0, lanes)
        if region is None or any(map(_raises, region.nodes)):
            return None
        inputs, outputs = tuple([new.get(v, v) for v in n.inputs]), tuple([new[v] for v in n.outputs])
        attrs = {**n.attrs, "schedule": default_schedule(region, self.target)}
        return Node(kernel, inputs, attrs, outputs, (region,), n.source)


def _raises(n: Node) -> bool:
    index = tuple([Index(f"i{a}") for a in range(n.outputs[0].type.rank)])
    return any(map(may_raise, walk(reads(n, index, fresh_indices())[0])))
