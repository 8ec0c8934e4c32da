"""Loops, and chains of kernels, whose rows do not meet, in strips: some rows go through all trips, or all kernels, before
others begin, or on other threads.

A step of a recurrent network, or of a batch of any other systems, computes every row of the state from that row, its inputs and
what stays. Threads that share out each kernel of each step would wait for one another all the time, and move the state from
cache to cache; a state larger than the caches would go through memory once a trip. A softmax along a middle axis is four
kernels, each of which would go through all of an array.

Guarantees: the same values from the same kernels; what is divided computes every element of each kernel's results from nothing
of other rows; how many rows a strip has follows from the sizes of the call, and in loops from the number of threads, too. All
strips of a chain have as many rows: where there is one, kernels may add up in another order. It is decided when a program
becomes text, like copies of matrices (`panels.py`). Loops inside loops, and chains there, are left whole.
"""
from __future__ import annotations

from loopwright.ir.cost import flops
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Dim, Extent, floordiv, maximum, minimum, substitute, summed
from loopwright.ir.graph import Graph, Node, Value, fresh_symbol
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import scan
from loopwright.ir.ops.structural import reshape
from loopwright.ir.types import I64, ArrayType
from loopwright.lower.blocking import KnownAxes, Readers, kernels_of, narrow, reshaped, results_of, runs
from loopwright.lower.codegen.panel_tiles import FEWEST
from loopwright.lower.codegen.work import FASTER
from loopwright.lower.control import padded_scan, sized, strip_scan, strips
from loopwright.lower.kernel import kernel, region_of
from loopwright.lower.panels import panel_product, with_panels
from loopwright.lower.plan import bytes_of, on_stack
from loopwright.lower.runtime.pool_text import WAKING
from loopwright.lower.target import Target

LINE = 64  # bytes that threads do not share
LEAST_BYTES = 1024  # of the state's rows that a thread takes: fewer are not worth its start
LEAST_ROWS = 8  # of a product that a thread takes: fewer read its matrix too often
FEW_STATES = 64  # of a loop, that threads need not take some each of, if single kernels have work for them
STRIPS = 16  # of a chain, at least, if each is work enough


def in_strips(g: Graph, target: Target) -> Graph:
    """A partitioned graph with its loops and chains whose rows do not meet in strips of rows."""
    chains = _chains(g, target)
    inside = {n for run in chains.values() for n in run.nodes}
    if not chains and not any(n.op is not kernel and n.regions for n in g.nodes):
        return g
    nodes = [chains[n].strips if n in chains else _node(n, target) for n in g.nodes if n in chains or n not in inside]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


def what_is_in_strips(g: Graph, target: Target) -> tuple[set[Value], list[list[Value]]]:
    """Of a partitioned graph, what its program has in strips: the results of loops, no size's value in between, and, chain by
    chain, the first results of kernels."""
    whole = with_panels(g, target)
    made = [n for n in in_strips(whole, target).nodes if n.op is strips and not n.attrs["equal"]]
    chains = [kernels_of(x.nodes) for x in _chains(whole, target).values()]
    return {v for n in made for v in n.outputs}, [[n.outputs[0] for n in chain] for chain in chains]


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


# ---- chains -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Chain:
    nodes: list[Node]
    strips: Node


def _chains(g: Graph, target: Target) -> dict[Node, _Chain]:
    """Chains of kernels that go through large arrays again, by their last kernel: what they wait for stands before it."""
    found, read = {}, Readers(g)
    for run in runs(g, KnownAxes()):
        node = _chain(run, read, target) if _reads_again(run) else None
        if node is not None:
            found[run[-1]] = _Chain(run, node)
    return found


def _reads_again(run: list[Node]) -> bool:
    """Whether several kernels of a chain, all generated, read or make one array of as many axes as any."""
    kernels = kernels_of(run)
    if len(kernels) < 2 or any(n.attrs["implementation"] != "generated" for n in kernels):
        return False
    touched = [v for n in kernels for v in {*n.inputs, *n.outputs}]
    rank = max(v.type.rank for v in touched)
    return any(v.type.rank == rank and touched.count(v) > 1 and not on_stack(bytes_of(v)) for v in touched)


def _chain(run: list[Node], read: Readers, target: Target) -> Node | None:
    """A chain in strips; None where it keeps nothing for itself, or its rows meet."""
    results = results_of(run, read)
    body, outside = region_of(run, results)
    total, size = results[0].type.shape[0], fresh_symbol()
    made = None if total == 1 else _narrowed(body, total, size)
    if made is None:
        return None
    region, has_rows = made
    axes = [0 if has else None for has in has_rows] + [0] * len(results)
    now = Value(ArrayType((), I64))
    own, outs = tuple([Value(v.type) for v in region.params]), tuple([Value(v.type) for v in region.results])
    once = Node(sized, (now, *own), {"size": size}, outs, (region,))
    work, near = _work(region, size), _near(region, size, target)
    worth = maximum(_divided_up(total, STRIPS), floordiv(WAKING, work + 1))
    count = _divided_up(total, maximum(minimum(near, worth), 1))
    rows = maximum(_divided_up(total, maximum(count, 1)), 1)  # so that the last strip goes through few rows again
    attrs = {"size": size, "total": total, "axes": tuple(axes), "rows": rows, "least": rows, "together": rows, "equal": True,
             "work": work, "trip": work * total, "few": 0,
             "near": (((_each(region, size) + 1) * total, target.cache_bytes // 2), ((work + 1) * total, WAKING))}
    return Node(strips, tuple(outside), attrs, results, (Graph((now, *own), (once,), outs),), run[-1].source)


def _divided_up(a: Extent, b: Extent) -> Extent:
    return floordiv(a + b - 1, b)


# ---- rows ---------------------------------------------------------------------------------------
def _narrowed(body: Graph, total: Extent, size: Dim) -> tuple[Graph, list[bool]] | None:
    """A loop's body for `size` rows, and which of its parameters have rows; None where rows meet."""
    known = KnownAxes()
    made = [v for n in body.nodes for v in n.outputs]
    has_rows = dict.fromkeys((*body.results, *made), True)
    regions: list[Graph | None] = []
    for n in body.nodes:
        region, axes = (None, known.node_axes(n, 0)) if n.op is reshape else _narrowed_kernel(n, known, size) or (None, None)
        if axes is None:
            return None
        if any(a not in (None, 0) or has_rows.setdefault(v, a == 0) != (a == 0) for v, a in axes.items()):
            return None
        regions.append(region)
    if any(v.type.rank == 0 or v.type.shape[0] != total for v, has in has_rows.items() if has):
        return None
    new = {v: Value(narrow(v.type, 0 if has_rows.get(v, False) else None, size)) for v in (*body.params, *made)}
    nodes = []
    for n, region in zip(body.nodes, regions, strict=True):
        inputs, outputs = (tuple([new[v] for v in values]) for values in (n.inputs, n.outputs))
        nodes.append(reshaped(n, inputs, outputs) if region is None else
                     Node(kernel, inputs, n.attrs, outputs, (region,), n.source))
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
    is_product = any(m.attrs["implementation"] == panel_product.name for m in kernels_of(body.nodes))
    work, state = _work(body, size, _speed(total, target)), substitute(bytes_of(body.results[0]), {str(size): 1})
    return {
        "rows": maximum(_near(body, size, target), LEAST_ROWS),
        "least": maximum(floordiv(LEAST_BYTES, state + 1), LEAST_ROWS if is_product else 1),
        "together": maximum(floordiv(LINE, state), 1), "equal": False, "near": (),
        "work": work * n.attrs["length"], "trip": work * total, "few": FEW_STATES,
    }


def _each(body: Graph, size: Dim) -> Extent:
    """The bytes of a row in all arrays."""
    values = (*(v for m in kernels_of(body.nodes) for v in m.outputs), *body.params)
    return substitute(summed(bytes_of(v) for v in values if size in v.type.shape), {str(size): 1})


def _near(body: Graph, size: Dim, target: Target) -> Extent:
    """How many rows are in the caches together: not less than what all rows read anew."""
    again = summed(bytes_of(v) for v in body.params if size not in v.type.shape)
    return floordiv(maximum(target.cache_bytes // 2, 2 * again), _each(body, size) + 1)


def _work(body: Graph, size: Dim, speed: Extent = 1) -> Extent:
    """The units of work of a row; speed: of products by matrices that stay, as many times that of vectors."""
    found: Extent = 0
    for m in kernels_of(body.nodes):
        is_product = m.attrs["implementation"] == panel_product.name
        found = found + floordiv(substitute(flops(_plain(m)), {str(size): 1}), 2 * speed if is_product else 2)
    return found + floordiv(_each(body, size), 4)


def _speed(rows: Extent, target: Target) -> Extent:
    """Of the products of a loop over so many rows: enough of them go by a tile unit."""
    return 1 + (FASTER - 1) * minimum(floordiv(rows, FEWEST), 1) if target.has_tiles else 1


def _plain(n: Node) -> Graph:
    return _product(n.regions[0]) if n.attrs["implementation"] == panel_product.name else n.regions[0]
