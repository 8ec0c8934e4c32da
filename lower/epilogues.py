"""Large products with what is made of each of their elements, in one kernel: chosen when sizes are known.

The library, and our own code for small products, store a product that the next kernel reads. A kernel of both keeps sums in the
caches, and asks for the lines of its results while it multiplies; but it copies both sides, which few rows or columns are not
worth. Both are there where sizes are not known; the kernel of both is compiled when a call first needs it.

Guarantees: the same values, up to the order in which products add; a product that others read is not made again.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.ir.dims import Extent, minimum, product
from loopwright.ir.graph import Graph, Node, Value, substitute_graph
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.selection import convert, select
from loopwright.ir.schedule import FewTerms, InPlace, Schedule, Tensorize
from loopwright.lower.choices import at_least, chosen
from loopwright.lower.codegen.products import has_blocks
from loopwright.lower.control import blocks, sized, strips
from loopwright.lower.convolution_ops import in_place_of
from loopwright.lower.kernel import MOST_NODES, kernel, merged, region_of
from loopwright.lower.rules import default_schedule
from loopwright.lower.target import Target

ROWS, COLUMNS = 256, 256  # from which on the copies of both sides take less time than what is stored and read again ...
LARGE = 1 << 18  # by so many elements
TERMS = 64  # for fewer threads have too little to do between the copies
MOST = 2  # products of a chain in blocks: of more, as deep networks have, each chain would ask sizes of its own


def with_epilogues(g: Graph, target: Target) -> Graph:
    """A partitioned graph in which large products and the only kernels that read them, where nobody has scheduled these, are
    one kernel each; so are those of chains in blocks, without the blocks, if all of a chain's products are large."""
    return _Epilogues(target).graph(g)


def what_has_epilogues(g: Graph, target: Target) -> Mapping[Value, Extent]:
    """The first results of such kernels and chains of a partitioned graph; 1 at sizes at which they are made so, else 0."""
    found = _Epilogues(target)
    found.graph(g)
    return found.large


class _Epilogues:
    """What is found out about kernels, of which many are equal."""

    def __init__(self, target: Target) -> None:
        self.target, self.schedules = target, dict[Any, Schedule]()
        self.large = dict[Value, Extent]()

    def graph(self, g: Graph) -> Graph:
        made: dict[Node, list[Node]] = {}  # in the place of a node
        for p, reader in _pairs(g):
            body, outside = region_of([p, reader], reader.outputs)
            n = Node(kernel, outside, {}, reader.outputs, (), reader.source)
            either = self._either(n, body, body)
            made |= {} if either is None else {p: [], reader: either}
        nodes = [x for n in g.nodes for x in (made[n] if n in made else self._inside(n))]
        return g if tuple(nodes) == g.nodes else Graph(g.params, tuple(nodes), g.results, g.constraints)

    def _inside(self, n: Node) -> list[Node]:
        """A node, with its regions so."""
        if n.op is kernel or n.op is sized or n.op is strips or not n.regions:
            return [n]
        if n.op is blocks:
            return self._in_blocks(n) or [n]
        regions = tuple(map(self.graph, n.regions))
        return [n if regions == n.regions else Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source)]

    def _in_blocks(self, n: Node) -> list[Node] | None:
        once, = n.regions[0].nodes
        body, = once.regions
        if any(m.op is not kernel for m in body.nodes) or sum(map(_is_product, body.nodes)) > MOST:
            return None
        params, results = (tuple([Value(v.type) for v in values]) for values in (n.inputs, n.outputs))
        usual = Graph(params, (Node(n.op, params, n.attrs, results, n.regions, n.source),), results)
        return self._either(n, usual, substitute_graph(body, {once.attrs["size"].name: n.attrs["total"]}))

    def _either(self, n: Node, usual: Graph, body: Graph) -> list[Node] | None:
        """What makes n's results: the usual graph, or kernels of the body, with their products joined to what reads them. None
        where that is not possible for all, or surely too small."""
        joined, gone = dict[Node, Node](), set[Node]()
        large: Extent = 1
        for p, reader in _pairs(body):
            one, size = self._together(p, reader), _is_large(p)
            if one is None or size == 0:
                return None
            joined[reader], large = one, minimum(large, size)
            gone.add(p)
        if not joined:
            return None
        nodes = tuple([joined.get(m, m) for m in body.nodes if m not in gone])
        together, self.large[n.outputs[0]] = Graph(body.params, nodes, body.results), large
        return in_place_of(together, n) if large == 1 else chosen(n, large, (usual, together), self.target)

    def _together(self, p: Node, reader: Node) -> Node | None:
        """One kernel of a product and a map that reads it; None where that is none of its elements, or rules have no tiles."""
        dtype = p.outputs[0].type.dtype
        if reader.op is not kernel or reader.attrs["implementation"] != "generated" or not has_blocks(dtype, self.target):
            return None
        region, shape = _of_both(p, reader), p.outputs[0].type.shape
        alike = all(v.type.shape == shape for v in region.results)
        if len(region.nodes) > MOST_NODES or not alike or not _maps(region.nodes):
            return None
        schedule = self._schedule(region)
        is_by_rules = self._schedule(reader.regions[0]) == reader.attrs["schedule"]
        if not is_by_rules or not any(isinstance(x, Tensorize) for x in schedule):
            return None
        steps = tuple([x for x in schedule if not isinstance(x, FewTerms)])
        inputs = (*p.inputs, *[v for v in reader.inputs if v is not p.outputs[0]])
        attrs = {"implementation": "generated", "schedule": steps, "later": True}
        return Node(kernel, inputs, attrs, reader.outputs, (region,), reader.source)

    def _schedule(self, region: Graph) -> Schedule:
        if region.key not in self.schedules:
            self.schedules[region.key] = default_schedule(region, self.target)
        return self.schedules[region.key]


def _pairs(g: Graph) -> list[tuple[Node, Node]]:
    """Products of a graph of kernels, and the node that alone reads each, if none in between may store to what they read."""
    readers: dict[Value, list[Node]] = {}
    stores, before = dict[Node, int](), 0  # how many nodes that may do so stand before each
    for n in g.nodes:
        stores[n] = before
        before += _may_update(n)
        for v in n.inputs:
            readers.setdefault(v, []).append(n)
    found: dict[Node, Node] = {}
    for n in g.nodes:
        users = readers.get(n.outputs[0], []) if _is_product(n) and n.outputs[0] not in g.results else []
        if len(users) == 1 and stores[users[0]] == stores[n]:
            found.setdefault(users[0], n)
    return [(p, reader) for reader, p in found.items()]


def _may_update(n: Node) -> bool:
    """Whether a node may store to the memory of what it reads: a kernel in place, or control flow."""
    return any(isinstance(x, InPlace) for x in n.attrs.get("schedule", ())) if n.op is kernel else bool(n.regions)


def _is_product(n: Node) -> bool:
    """Whether a kernel is a product of two matrices by the library, or our own code in its place."""
    if n.op is not kernel or n.attrs["implementation"] != "gemm":
        return False
    made, = n.regions[0].nodes
    return made.op is dot_general and made.outputs[0].type.rank == 2


def _is_large(p: Node) -> Extent:
    """1 where a product has enough rows, columns, elements and terms, else 0."""
    made, = p.regions[0].nodes
    rows, columns = made.outputs[0].type.shape
    terms = product(made.inputs[0].type.shape[a] for a, _ in made.attrs["contract"])
    return product((at_least(rows, ROWS), at_least(columns, COLUMNS), at_least(rows * columns, LARGE), at_least(terms, TERMS)))


def _of_both(p: Node, reader: Node) -> Graph:
    """The region of both: what the reader's is given of the product is made there."""
    first, second = p.regions[0], reader.regions[0]
    given = {v: first.results[0] for v, outside in zip(second.params, reader.inputs, strict=True) if outside is p.outputs[0]}

    def seen(values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple([given.get(v, v) for v in values])
    nodes = [Node(n.op, seen(n.inputs), n.attrs, n.outputs, n.regions, n.source) for n in second.nodes]
    params = (*first.params, *[v for v in second.params if v not in given])
    return merged(Graph(params, (*first.nodes, *nodes), second.results))


def _maps(nodes: Sequence[Node]) -> bool:
    """Whether all that is made of the product, the first node, has a value for each of its elements alone."""
    made, *after = nodes
    own = set(made.outputs)
    for n in after:
        if any(v in own for v in n.inputs):
            if n.op.shape is not same_shape and n.op not in (convert, select):
                return False
            own.update(n.outputs)
    return True
