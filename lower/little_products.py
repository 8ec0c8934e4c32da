"""Products of a few known numbers in the bodies of loops, as the sums of products of elements that they are.

A call takes longer than such a product; spelled out, it is part of the kernel of what is around it, and the loop keeps all of
it in registers.

Guarantees: terms are added in their order, to 0, since -0.0 would stay.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopwright.ir.dims import product
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import add, mul
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.construct import full, scalar
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.structural import reshape, slice_, transpose
from loopwright.ir.source import Source
from loopwright.ir.types import F32, F64, ArrayType
from loopwright.lower.control import is_loop

MOST_TERMS = 8  # of each sum
MOST_PRODUCTS = 128  # of elements: of more the text is long, and gradients take longer than calls


def without_little_products(g: Graph, in_loop: bool = False) -> Graph:
    """g with the little products in its loops spelled out; g itself where there are none."""
    producer = {n.outputs[0]: n for n in g.nodes if n.op is transpose}
    nodes: list[Node] = []
    for n in g.nodes:
        regions = tuple([without_little_products(r, in_loop or is_loop(n)) for r in n.regions])
        if any(a is not b for a, b in zip(regions, n.regions, strict=True)):
            n = Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source)
        nodes += _Spelling(n, producer).nodes if in_loop and _is_little(n) else [n]
    same = len(nodes) == len(g.nodes) and all(a is b for a, b in zip(nodes, g.nodes, strict=True))
    return g if same else Graph(g.params, tuple(nodes), g.results, g.constraints)


def _is_little(n: Node) -> bool:
    """Whether n multiplies matrices or vectors of a few numbers."""
    if n.op is not dot_general or n.attrs["batch"] or len(n.attrs["contract"]) != 1 or any(v.type.rank > 2 for v in n.inputs):
        return False
    x, y = (v.type for v in n.inputs)
    terms = x.shape[n.attrs["contract"][0][0]]
    count = product((terms, *n.outputs[0].type.shape))
    known = isinstance(terms, int) and isinstance(count, int) and 0 < terms <= MOST_TERMS and 0 < count <= MOST_PRODUCTS
    return known and x.dtype == y.dtype == n.outputs[0].type.dtype and x.dtype in (F32, F64)


class _Spelling:
    """The nodes that make one product."""

    def __init__(self, n: Node, producer: Mapping[Value, Node]) -> None:
        self.nodes: list[Node] = []
        self.source: Source | None = n.source
        self.made, pair = n.outputs[0], n.attrs["contract"][0]
        sides = [_read_through(v, pair[k], producer) for k, v in enumerate(n.inputs)]
        matrices = [(v, axis) for v, axis in sides if v.type.rank == 2]
        if len(matrices) < 2 and all(axis == 1 for _, axis in matrices):
            self._by_rows(sides)
        else:
            self._by_terms(sides)

    def _emit(self, op: Op, inputs: tuple[Value, ...], type: ArrayType, **attrs: Any) -> Value:
        return self._put(op, inputs, Value(type), **attrs)

    def _put(self, op: Op, inputs: tuple[Value, ...], out: Value, **attrs: Any) -> Value:
        self.nodes.append(Node(op, inputs, attrs, (out,), (), self.source))
        return out

    def _by_rows(self, sides: list[tuple[Value, int]]) -> None:
        """Rows along the terms times a vector: elements of all rows, then a sum of each row's."""
        type = max((v.type for v, _ in sides), key=lambda t: t.rank)
        x, y = (v if v.type.rank == type.rank else self._emit(broadcast, (v,), type, shape=type.shape, axes=(1,))
                for v, _ in sides)
        self._put(reduce_sum, (self._emit(mul, (x, y), type),), self.made, axes=(type.rank - 1,))

    def _by_terms(self, sides: list[tuple[Value, int]]) -> None:
        """All sums at once, term after term."""
        type = self.made.type
        total = self._emit(full, (), type, value=scalar(0, type.dtype), shape=type.shape, dtype=type.dtype)
        terms = int(str(sides[0][0].type.shape[sides[0][1]]))
        for k in range(terms):
            x, y = (self._factor(v, axis, k, side) for side, (v, axis) in enumerate(sides))
            term = self._emit(mul, (x, y), type)
            total = self._put(add, (total, term), self.made if k == terms - 1 else Value(type))

    def _factor(self, v: Value, axis: int, k: int, side: int) -> Value:
        """What term k has of one side, for every sum."""
        shape = tuple([1 if a == axis else n for a, n in enumerate(v.type.shape)])
        start = tuple([k if a == axis else 0 for a in range(v.type.rank)])
        part = self._emit(slice_, (v,), v.type.with_shape(shape), start=start, step=(1,) * v.type.rank, shape=shape)
        free = shape[:axis] + shape[axis + 1:]
        part = self._emit(reshape, (part,), v.type.with_shape(free), shape=free)
        made = self.made.type
        axes = () if not free else (0,) if side == 0 else (made.rank - 1,)
        return self._emit(broadcast, (part,), made, shape=made.shape, axes=axes)


def _read_through(v: Value, axis: int, producer: Mapping[Value, Node]) -> tuple[Value, int]:
    """What a transposed matrix is made of, and its axis of terms."""
    n = producer.get(v)
    return (v, axis) if n is None or v.type.rank != 2 else (n.inputs[0], n.attrs["perm"][axis])
