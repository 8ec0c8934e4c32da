"""Loops whose rows do not meet, in strips: some rows go through all trips before others begin, or on other threads.

A step of a recurrent network, or of a batch of any other systems, computes every row of the state from that row, its inputs and
what stays. Threads that share out each kernel of each step would wait for one another all the time, and move the state from
cache to cache; a state larger than the caches would go through memory once a trip.

Guarantees: the same values from the same kernels; a loop is divided only where every element of each kernel's results needs
nothing of other rows; how many rows a strip has follows from the sizes of the call and the number of threads. It is decided
when a program becomes text, like copies of matrices (`panels.py`). Loops inside loops are left whole.
"""
from __future__ import annotations

from loopwright.ir.cost import flops
from loopwright.ir.dims import Dim, Extent, floordiv, maximum, substitute, summed
from loopwright.ir.graph import Graph, Node, Value, fresh_symbol
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import scan
from loopwright.ir.types import I64, ArrayType
from loopwright.lower.blocking import KnownAxes, narrow
from loopwright.lower.control import padded_scan, sized, strip_scan, strips
from loopwright.lower.kernel import kernel
from loopwright.lower.panels import panel_product, with_panels
from loopwright.lower.plan import bytes_of, on_stack
from loopwright.lower.target import Target

LINE = 64  # bytes that threads do not share
LEAST_BYTES = 1024  # of the state's rows that a thread takes: fewer are not worth its start
LEAST_ROWS = 8  # of a product that a thread takes: fewer read its matrix too often


def in_strips(g: Graph, target: Target) -> Graph:
    """A partitioned graph with its loops whose rows do not meet in strips of rows."""
    if not any(n.op is not kernel and n.regions for n in g.nodes):
        return g
    return Graph(g.params, tuple([_node(n, target) for n in g.nodes]), g.results, g.constraints)


def results_in_strips(g: Graph, target: Target) -> set[Value]:
    """The results of those loops of a partitioned graph that its program has in strips, no size's value in between."""
    return {v for n in in_strips(with_panels(g, target), target).nodes if n.op is strips for v in n.outputs}


def _node(n: Node, target: Target) -> Node:
    if n.op is sized:
        return Node(n.op, n.inputs, n.attrs, n.outputs, (in_strips(n.regions[0], target),), n.source)
    divided = _divided(n, target) if n.op is scan or n.op is padded_scan else None
    return divided or n


def _divided(n: Node, target: Target) -> Node | None:
    """A scan in strips; None where its rows meet, or it has none."""
    body, carry = n.regions[-1], n.attrs["carry"]
    state = body.results[:carry]
    if not state or any(v.type.rank == 0 or on_stack(bytes_of(v)) for v in state):
        return None
    total, size = state[0].type.shape[0], fresh_symbol()
    made = _narrowed(body, total, size)
    if made is None:
        return None
    region, has_rows = made
    before = n.attrs["constants"] + carry  # operands: the loop goes through those that follow
    axes = [None if not has else 0 if k < before else 1 for k, has in enumerate(has_rows)]
    axes += [0 if k < carry else 1 for k in range(len(body.results))]
    inner = [Value(narrow(v.type, a, size)) for v, a in zip((*n.inputs, *n.outputs), axes, strict=True)]
    params, results = tuple(inner[:len(n.inputs)]), tuple(inner[len(n.inputs):])
    short = {"short": (size,)} if n.op is padded_scan else {"short": (), "lanes": 0}
    loop = Node(strip_scan, params, {**n.attrs, **short, "size": size, "total": total}, results,
                (*n.regions[:-1], region), n.source)
    count = Value(ArrayType((), I64))
    own, outs = tuple([Value(v.type) for v in params]), tuple([Value(v.type) for v in results])
    once = Node(sized, (count, *own), {"size": size}, outs, (Graph(params, (loop,), results),))
    attrs = {"size": size, "total": total, "axes": tuple(axes), **_amounts(region, n, size, total, target)}
    return Node(strips, n.inputs, attrs, n.outputs, (Graph((count, *own), (once,), outs),), n.source)


def _narrowed(body: Graph, total: Extent, size: Dim) -> tuple[Graph, list[bool]] | None:
    """A loop's body for `size` rows, and which of its parameters have rows; None where rows meet."""
    known = KnownAxes()
    made = [v for n in body.nodes for v in n.outputs]
    has_rows = dict.fromkeys((*body.results, *made), True)
    regions = []
    for n in body.nodes:
        found = _narrowed_kernel(n, known, size)
        if found is None:
            return None
        region, axes = found
        if any(a not in (None, 0) or has_rows.setdefault(v, a == 0) != (a == 0) for v, a in axes.items()):
            return None
        regions.append(region)
    if any(v.type.rank == 0 or v.type.shape[0] != total for v, has in has_rows.items() if has):
        return None
    new = {v: Value(narrow(v.type, 0 if has_rows.get(v, False) else None, size)) for v in (*body.params, *made)}
    nodes = [Node(kernel, tuple([new[v] for v in n.inputs]), n.attrs, tuple([new[v] for v in n.outputs]), (region,), n.source)
             for n, region in zip(body.nodes, regions, strict=True)]
    narrowed = Graph(tuple([new[v] for v in body.params]), tuple(nodes), tuple([new[v] for v in body.results]))
    return narrowed, [has_rows.get(v, False) for v in body.params]


def _narrowed_kernel(n: Node, known: KnownAxes, size: Dim) -> tuple[Graph, dict[Value, int | None]] | None:
    """A kernel's region for `size` rows, and which axis of each operand these are; None where rows meet, or where the library
    makes a product, whose sums may depend on the number of rows."""
    implementation = n.attrs.get("implementation")
    if implementation not in ("generated", panel_product.name):
        return None
    plain = n if implementation == "generated" else Node(kernel, n.inputs[:-1], n.attrs, n.outputs, (_product(n.regions[0]),))
    axes = known.node_axes(plain, 0)
    region = None if axes is None else known.retyped(plain.regions[0], 0, size)
    if axes is None or region is None or plain is n:
        return None if axes is None or region is None else (region, axes)
    once, copy = region.nodes[0], Value(n.inputs[-1].type)
    again = Node(panel_product, (*once.inputs, copy), once.attrs, once.outputs, (), once.source)
    return Graph((*region.params, copy), (again,), region.results), {**axes, n.inputs[-1]: None}


def _product(region: Graph) -> Graph:
    """The region of a product that reads copies, without these."""
    once, result = region.nodes[0], Value(region.results[0].type)
    return Graph(region.params[:-1], (Node(dot_general, once.inputs[:2], once.attrs, (result,), (), once.source),), (result,))


def _amounts(body: Graph, n: Node, size: Dim, total: Extent, target: Target) -> dict[str, Extent]:
    """How many rows of a loop are in the caches together, the fewest that a thread takes, of which number a multiple, and the
    units of work of a row in all trips and of all rows in a trip."""
    one = {str(size): 1}
    values = [v for m in body.nodes for v in m.outputs]
    each = substitute(summed(bytes_of(v) for v in (*values, *body.params) if size in v.type.shape), one)
    again = summed(bytes_of(v) for v in body.params if size not in v.type.shape)
    is_product = any(m.attrs["implementation"] == panel_product.name for m in body.nodes)
    work = floordiv(substitute(summed(flops(_plain(m)) for m in body.nodes), one), 2) + floordiv(each, 4)
    state = substitute(bytes_of(body.results[0]), one)
    return {
        "rows": maximum(floordiv(maximum(target.cache_bytes // 2, 2 * again), each + 1), LEAST_ROWS),
        "least": maximum(floordiv(LEAST_BYTES, state + 1), LEAST_ROWS if is_product else 1),
        "together": maximum(floordiv(LINE, state), 1),
        "work": work * n.attrs["length"], "trip": work * total,
    }


def _plain(n: Node) -> Graph:
    return _product(n.regions[0]) if n.attrs["implementation"] == panel_product.name else n.regions[0]
