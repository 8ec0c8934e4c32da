"""Whether a graph is one.

`verify(g)` checks every invariant of the IR, in g and in its regions:

1. every value is defined once, by a parameter or a node, before it is used;
2. a graph uses no value that is not its own (regions are closed);
3. a node's outputs have the types that its op infers from its inputs, regions and attributes, under the graph's facts;
4. attributes are in the closed set (`ir.attributes`), named by strings;
5. operands and attributes are those that the op takes: its inference accepts them without an error;
6. an extent is a size: an int that is not negative, or a Dim;
7. a region uses only symbols of the graphs around it, and those that its own nodes bind;
8. constraints relate by `==`, `!=`, `<=` or `divides`.

A broken graph raises VerificationError with its text, the message standing at the node.
"""
from __future__ import annotations

from collections.abc import Iterator

from loopwright.ir.attributes import attribute_key
from loopwright.ir.dims import Dim
from loopwright.ir.errors import DTypeError, ShapeError, VerificationError
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.printer import print_graph
from loopwright.ir.types import DTYPES, ArrayType

RELATIONS = ("==", "!=", "<=", "divides")


def verify(g: Graph) -> Graph:
    """g, if it is valid. Raises VerificationError."""
    _verify(g, g, g.facts, frozenset())
    return g


def _fail(g: Graph, message: str, node: Node | None = None) -> None:
    text = print_graph(g, {node: message} if node is not None else {})
    raise VerificationError(f"{message}\n{text}")


def _verify(g: Graph, outermost: Graph, facts: Facts, around: frozenset[str]) -> None:
    defined: set[Value] = set()
    for k, v in enumerate(g.params):
        for message in _type_errors(v.type):
            _fail(outermost, f"parameter {k}: {message}")
        if v in defined:
            _fail(outermost, f"parameter {k} is parameter {g.params.index(v)} again")
        defined.add(v)
    for c in g.constraints:
        if c.relation not in RELATIONS:
            _fail(outermost, f"constraint relation {c.relation!r} is none of {', '.join(RELATIONS)}")
    for node in g.nodes:
        for message in _node_errors(node, defined, facts):
            _fail(outermost, message, node)
        defined.update(node.outputs)
    for k, v in enumerate(g.results):
        if v not in defined:
            _fail(outermost, f"result {k} is not a value of its graph")
    own = around | _own_symbols(g)
    for node in g.nodes:
        for region in node.regions:
            if strange := sorted(set(region.free_symbols) - own):
                _fail(outermost, f"a region uses {', '.join(strange)}, which the graph around it does not", node)
            _verify_region(region, outermost, node, facts, own)


def _verify_region(region: Graph, outermost: Graph, node: Node, facts: Facts, around: frozenset[str]) -> None:
    try:
        _verify(region, region, facts, around)
    except VerificationError as error:
        _fail(outermost, f"in a region: {str(error).splitlines()[0]}", node)


def _own_symbols(g: Graph) -> set[str]:
    """The symbols that g uses itself, its regions aside."""
    bare = tuple(Node(n.op, n.inputs, n.attrs, n.outputs) for n in g.nodes)
    return set(Graph(g.params, bare, g.results, g.constraints).symbols)


def _type_errors(t: ArrayType) -> Iterator[str]:
    if t.dtype not in DTYPES:
        yield f"{t.dtype} is not a dtype of the IR"
    for x in t.shape:
        if not isinstance(x, Dim) and (type(x) is not int or x < 0):
            yield f"extent {x!r} is neither a non-negative int nor a Dim"


def _node_errors(node: Node, defined: set[Value], facts: Facts) -> Iterator[str]:
    for k, v in enumerate(node.inputs):
        if v not in defined:
            yield f"operand {k} is not defined before this node, in this graph"
    for k, v in enumerate(node.outputs):
        if v in defined or v in node.outputs[:k]:
            yield f"output {k} is defined twice"
        yield from (f"output {k}: {message}" for message in _type_errors(v.type))
    for name, attribute in node.attrs.items():
        try:
            attribute_key(attribute)
        except TypeError as error:
            yield f"attribute {name}: {error}"
    yield from _inference_errors(node, facts)


def _inference_errors(node: Node, facts: Facts) -> Iterator[str]:
    types = [facts.canonical_type(v.type) for v in node.inputs]
    attrs = {k: facts.canonical_attribute(a) for k, a in node.attrs.items()}
    try:
        inferred = node.op.result_types(types, node.regions, attrs)
    except (ShapeError, DTypeError) as error:
        yield f"{node.op.name} refuses its operands: {error}"
        return
    except (TypeError, KeyError, IndexError, ValueError) as error:  # a rule called with what it does not take
        yield f"{node.op.name} does not take these operands and attributes: {error}"
        return
    if len(inferred) != len(node.outputs):
        yield f"{node.op.name} gives {len(inferred)} results, the node has {len(node.outputs)}"
        return
    for k, (t, v) in enumerate(zip(inferred, node.outputs, strict=True)):
        if not _same_type(t, v.type, facts):
            yield f"output {k} is declared {v.type}, {node.op.name} gives {t}"


def _same_type(a: ArrayType, b: ArrayType, facts: Facts) -> bool:
    return (a.dtype, a.weak, a.rank) == (b.dtype, b.weak, b.rank) and all(
        facts.prove("==", m, n) is True for m, n in zip(a.shape, b.shape, strict=True))
