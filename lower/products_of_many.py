"""Products of many matrices as one call each, which reads them where they lie and makes results where they stay: of one matrix
and each of many (`w @ x`, where x has three axes or more), and sums of products (gradients of such a matrix).

Guarantees: the same values, up to the order in which a product adds. What is decided of a product or of its transposes holds.
Matrices that are known to be columns, or many that are stored transposed, are rows of one product where they lie, and stay so.
It comes after users' kernels are put in, so that their patterns know plain products alone.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from loopwright.ir.dataclass import dataclass
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.structural import transpose
from loopwright.ir.types import F32, F64
from loopwright.kernels.products_of_many import one_by_many, sum_of_products
from loopwright.lower.codegen.products import has_own
from loopwright.lower.decisions import Decided
from loopwright.lower.target import Target


def with_products_of_many(g: Graph, target: Target, decided: Decided) -> Graph:
    """A prepared graph with such products in place of transposes around one product."""
    producer = {v: n for n in g.nodes for v in n.outputs}
    reads = Counter(v for n in g.nodes for v in n.inputs) + Counter(g.results)
    nodes = []
    for n in g.nodes:
        made = None
        if n.op is dot_general and _has_code(n, target):
            made = _sum_of_products(n, producer, decided)
        elif n.op is transpose and reads[n.inputs[0]] == 1:
            product = producer.get(n.inputs[0])
            is_one = product is not None and product.op is dot_general and _has_code(product, target)
            made = _one_by_many(n, product, producer, decided) if product is not None and is_one else None
        if made is not None:
            decided.became(n, made)
        nodes.append(made or n)
    return g if tuple(nodes) == g.nodes else remove_dead(Graph(g.params, tuple(nodes), g.results, g.constraints))


def _has_code(product: Node, target: Target) -> bool:
    """Whether there is code of our own for a product's dtype, and it is a sum of one product's terms."""
    dtypes = {v.type.dtype for v in (*product.inputs, *product.outputs)}
    return len(dtypes) == 1 and dtypes <= {F32, F64} and has_own(dtypes.pop(), target) and not product.attrs["batch"]


@dataclass(frozen=True)
class _Side:
    """What a side of a product is before it is transposed: which of its axes have the terms, and its free axes, in the order of
    the product's; the transposes that are read through."""

    stored: Value
    terms: tuple[int, ...]
    free: tuple[int, ...]
    through: tuple[Node, ...]

    def is_open(self, decided: Decided) -> bool:
        """Whether nothing is decided of the transposes."""
        return all(decided.placing(n) is None for n in self.through)


def _side(product: Node, k: int, producer: Mapping[Value, Node]) -> _Side:
    v, terms = product.inputs[k], tuple([pair[k] for pair in product.attrs["contract"]])
    free, through = tuple([a for a in range(v.type.rank) if a not in terms]), list[Node]()
    while (source := producer.get(v)) is not None and source.op is transpose:
        perm = source.attrs["perm"]
        v, terms, free = source.inputs[0], tuple([perm[a] for a in terms]), tuple([perm[a] for a in free])
        through.append(source)
    return _Side(v, terms, free, tuple(through))


# ---- one by many --------------------------------------------------------------------------------
def _one_by_many(n: Node, product: Node, producer: Mapping[Value, Node], decided: Decided) -> Node | None:
    """The node that a transpose of a product is; None where it is none, or something else is decided."""
    sides = [_side(product, k, producer) for k in (0, 1)]
    places = [(k, axis) for k, side in enumerate(sides) for axis in side.free]
    order = [places[a] for a in n.attrs["perm"]]
    for one, many in ((0, 1), (1, 0)):
        left, right = sides[one], sides[many]
        if len(left.terms) == len(left.free) == 1 and _fits(order, one, left, right):
            plain = decided.placing(n) is None and decided.multiplying(product) is None and right.is_open(decided)
            if n.outputs[0].type.shape[-1] == 1 or not (plain or decided.multiplying(n) is not None):
                return None
            attrs = {"transposed": left.terms == (0,)}
            return Node(one_by_many, (left.stored, right.stored), attrs, n.outputs, (), n.source)
    return None


def _fits(order: list[tuple[int, int]], one: int, left: _Side, right: _Side) -> bool:
    """Whether a result has the matrices of the right side in their order, each of rows of the left side's: axes by side."""
    *first, terms, column = range(right.stored.type.rank)
    in_order = [*((1 - one, a) for a in first), (one, left.free[0]), (1 - one, column)]
    return bool(first) and right.terms == (terms,) and order == in_order


# ---- sums of products ---------------------------------------------------------------------------
def _sum_of_products(n: Node, producer: Mapping[Value, Node], decided: Decided) -> Node | None:
    """The node that a product of transposed sides is, whose terms lie on both sides of other axes, or are apart; None where it
    is none, or something else is decided."""
    left, right = sides = [_side(n, k, producer) for k in (0, 1)]
    if not (left.through or right.through) or len(left.terms) < 2 or any(len(side.free) != 1 for side in sides):
        return None
    *first, rows, columns = range(left.stored.type.rank)
    pairs = set(zip(left.terms, right.terms, strict=True)) - {(a, a) for a in first}
    if len(pairs) != 1 or not pairs <= {(a, b) for a in (rows, columns) for b in (rows, columns)}:
        return None
    (last, other), = pairs
    transposed = last == rows, other == columns
    if transposed == (True, False) or not all(side.is_open(decided) for side in sides):
        return None
    return Node(sum_of_products, (left.stored, right.stored), {"transposed": transposed}, n.outputs, (), n.source)
