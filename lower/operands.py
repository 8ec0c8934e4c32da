"""Products that read their operands where they lie, whose lines and matrices are any number of elements apart, as heads side by
side: kernels that only transpose for one go away, and contractions that are such products (`einsum("thd,shd->hts")`) are no
loops.

Guarantees: the same values. What others read stays, and so does what is read from memory that an update or a donation stores
over: a product runs later than a transpose for it did. It comes after all decisions about which nodes a kernel computes.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.structural import transpose
from loopwright.ir.schedule import InPlace
from loopwright.kernels.gemm import match_apart
from loopwright.lower.codegen.products import has_own
from loopwright.lower.kernel import kernel
from loopwright.lower.target import Target


def without_transposes(g: Graph, target: Target, donated: Iterable[Value] = ()) -> Graph:
    """A partitioned graph whose products read their operands where they lie. donated: parameters
    whose memory results take."""
    read = Counter(v for n in g.nodes for v in n.inputs) + Counter(g.results)
    changing = _changing(g, donated)
    moved = {n.outputs[0]: n for n in g.nodes
             if _only_transposes(n) and read[n.outputs[0]] == 1 and n.inputs[0] not in changing}
    found = [_reading(n, moved, target) for n in g.nodes]
    left = {*g.results, *(v for n in found for v in n.inputs)}
    nodes = [n for n in found if n not in moved.values() or n.outputs[0] in left]
    return g if tuple(nodes) == g.nodes else Graph(g.params, tuple(nodes), g.results, g.constraints)


def _changing(g: Graph, donated: Iterable[Value]) -> set[Value]:
    """The values whose bytes others take while the graph runs, and reshapes of them."""
    updates = [(n, x.operand) for n in g.nodes if n.op is kernel for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace)]
    root: dict[Value, Value] = {}
    for n in g.nodes:
        if not n.regions:  # a reshape: the same bytes
            root[n.outputs[0]] = root.get(n.inputs[0], n.inputs[0])
    found = {root.get(v, v) for v in (*donated, *(n.inputs[k] for n, k in updates))}
    return {*found, *(v for v, r in root.items() if r in found)}


def _only_transposes(n: Node) -> bool:
    return n.op is kernel and [m.op for m in n.regions[0].nodes] == [transpose] and len(n.outputs) == 1


def _reading(n: Node, moved: dict[Value, Node], target: Target) -> Node:
    """A node, a product of which reads what other kernels transpose for it alone, as far as its code may."""
    if n.op is not kernel:
        regions = tuple([without_transposes(r, target) for r in n.regions])
        return n if regions == n.regions else Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source)
    once, params = n.regions[0].nodes[0], n.regions[0].params
    if once.op is not dot_general or len(n.regions[0].nodes) > 1 or not has_own(n.outputs[0].type.dtype, target):
        return n
    updates = any(isinstance(x, InPlace) for x in n.attrs.get("schedule", ()))
    if n.attrs["implementation"] == "generated" and not updates and match_apart(once) is not None:
        return Node(n.op, n.inputs, {"implementation": "gemm"}, n.outputs, n.regions, n.source)
    if n.attrs["implementation"] != "gemm":
        return n
    outer = [n.inputs[params.index(v)] for v in once.inputs]
    for sides in ((0, 1), (0,), (1,)):
        if outer[0] is not outer[1] and all(outer[k] in moved for k in sides):
            made = _through(n, once, outer, {k: moved[outer[k]] for k in sides})
            if match_apart(made.regions[0].nodes[0]) is not None:
                return made
    return n


def _through(n: Node, once: Node, outer: list[Value], moved: dict[int, Node]) -> Node:
    """A product's kernel that reads some sides before they are transposed."""
    inputs, attrs = list(outer), dict(once.attrs)
    for side, mover in moved.items():
        perm, inputs[side] = mover.regions[0].nodes[0].attrs["perm"], mover.inputs[0]
        for name in ("batch", "contract"):
            attrs[name] = tuple([tuple([perm[a] if k == side else a for k, a in enumerate(pair)]) for pair in attrs[name]])
    params = tuple([Value(v.type) for v in dict.fromkeys(inputs)])
    inner = dict(zip(dict.fromkeys(inputs), params, strict=True))
    result = Value(once.outputs[0].type)
    made = Node(dot_general, tuple([inner[v] for v in inputs]), attrs, (result,), (), once.source)
    return Node(n.op, tuple(inner), n.attrs, n.outputs, (Graph(params, (made,), (result,)),), n.source)
