"""Matrices that stay while a loop multiplies with them, copied once before the loop in the order in which products read them.

Guarantees: the same values, up to the order in which a product adds. It is decided when a program becomes text: partitions and
schedules, and what is kept of them, speak of products alone. Copies are as large as the matrices, of columns in whole panels.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.dims import Extent, Shape, floordiv, product
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.types import F32, ArrayType
from loopwright.kernels.gemm import match_gemm
from loopwright.lower.codegen.panel_tiles import NONE, parts_size
from loopwright.lower.codegen.panels import panel_columns
from loopwright.lower.codegen.products import has_own
from loopwright.lower.kernel import kernel
from loopwright.lower.target import Target


# ---- ops ----------------------------------------------------------------------------------------
def _panels_shape(x: ArrayType, summed: int, wide: int, rows: Extent | None = None) -> tuple[Extent]:
    terms, columns = product(x.shape[:summed]), product(x.shape[summed:])
    whole = floordiv(columns + (wide - 1), wide) * wide * terms
    return (whole if rows is None else whole + parts_size(columns, terms),)


def _panels_numpy(x: np.ndarray, summed: int, wide: int, rows: Extent | None = None) -> np.ndarray:
    terms, columns = (int(np.prod(shape)) for shape in (x.shape[:summed], x.shape[summed:]))
    padded = np.pad(x.reshape(terms, columns), ((0, 0), (0, -columns % wide)))
    found = padded.reshape(terms, -(-columns // wide), wide).swapaxes(0, 1).ravel()
    if rows is None:
        return found
    room = parts_size(columns, terms)
    assert isinstance(room, int)
    return np.concatenate([found, np.full(room, NONE, x.dtype)])


panels = Op(
    name="panels",
    doc="A matrix, of which the first `summed` axes are terms and the others columns, as panels of `wide` columns, the last "
        "filled up, each term by term; rows: behind them what the tile unit reads to multiply so many, or that there is none.",
    shape=_panels_shape, dtype=operand_dtype, numpy=_panels_numpy,
)

panel_product = Op(
    name="panel_product",
    doc="dot_general of two arrays, of which the second is there as `panels`, too.",
    infer=lambda types, regions, **attrs: dot_general.result_types(types[:2], regions, attrs),
    numpy=lambda lhs, rhs, copied, **attrs: dot_general.numpy(lhs, rhs, **attrs),
)


# ---- loops --------------------------------------------------------------------------------------
def with_panels(g: Graph, target: Target) -> Graph:
    """A partitioned graph whose loops have their products by matrices that stay read copies, made before the outermost loop
    in which a matrix stays."""
    if not any(n.regions and n.op is not kernel for n in g.nodes):
        return g
    nodes = [m for n in g.nodes for m in _with_panels(n, target)]
    return g if tuple(nodes) == g.nodes else Graph(g.params, tuple(nodes), g.results, g.constraints)


def _with_panels(n: Node, target: Target) -> list[Node]:
    """A node with what now comes before it, itself the last."""
    if n.op is kernel or not n.regions:
        return [n]
    regions = tuple([with_panels(r, target) for r in n.regions])
    if regions != n.regions:
        n = Node(n.op, n.inputs, n.attrs, n.outputs, regions, n.source)
    if n.op is while_:
        return _taken_apart(n, 1, int(n.attrs["condition_constants"]), "body_constants", target)
    return _taken_apart(n, 0, 0, "constants", target) if n.op is scan and len(n.regions) == 1 else [n]


def _taken_apart(n: Node, number: int, first: int, name: str, target: Target) -> list[Node]:
    """A loop, of which region `number` has as many constants as the attribute of that name says, operands from `first` on."""
    body, count = n.regions[number], int(n.attrs[name])
    outer = dict(zip(body.params[:count], n.inputs[first:first + count], strict=True))
    before: list[Node] = []
    copies: dict[Value, tuple[Value, Value]] = {}  # of a constant: the region's parameter and the loop's operand
    kept: list[Node] = []

    def copied(v: Value, region: Graph) -> Value:
        if v not in copies:
            given, made = Value(region.results[0].type), Value(region.results[0].type)
            copies[v] = given, made
            before.append(Node(kernel, (outer[v],), {"implementation": panels.name}, (made,), (region,)))
        return copies[v][0]
    same: dict[Value, Value] = {}
    for m in body.nodes:
        inputs = tuple([same.get(v, v) for v in m.inputs])
        implementation = m.attrs.get("implementation") if m.op is kernel else None
        if implementation == panels.name and inputs[0] in outer:
            same[m.outputs[0]] = copied(inputs[0], m.regions[0])
            continue
        right = _right_side(m, target) if implementation == "gemm" else None
        if right in outer:
            m = _by_panels(m, copied(right, _copying(m, target)))
        else:
            m = Node(m.op, inputs, m.attrs, m.outputs, m.regions, m.source)
        kept.append(m)
    if not copies:
        return [n]
    params = (*body.params[:count], *(given for given, _ in copies.values()), *body.params[count:])
    region = Graph(params, tuple(kept), body.results, body.constraints)
    inputs = (*n.inputs[:first + count], *(made for _, made in copies.values()), *n.inputs[first + count:])
    regions = (*n.regions[:number], region, *n.regions[number + 1:])
    return [*before, Node(n.op, inputs, {**n.attrs, name: count + len(copies)}, n.outputs, regions, n.source)]


def _right_side(n: Node, target: Target) -> Value | None:
    """The right side of a product that may be a copy: a matrix that is stored as it is."""
    once = n.regions[0].nodes[0]
    gemm = match_gemm(once)
    if gemm is None or gemm.kind != "product" or gemm.batch != 1 or gemm.transposed[1]:
        return None
    if not has_own(once.outputs[0].type.dtype, target):
        return None
    return n.inputs[n.regions[0].params.index(once.inputs[1])]


def _copying(n: Node, target: Target) -> Graph:
    """The region that copies the right side of a product."""
    once = n.regions[0].nodes[0]
    given = Value(once.inputs[1].type)
    dtype = given.type.dtype
    attrs: dict[str, Any] = {"summed": len(once.attrs["contract"]), "wide": panel_columns(dtype, target),
                             "rows": product(_rows_of(once)) if target.has_tiles and dtype == F32 else None}
    made = Value(given.type.with_shape(_panels_shape(given.type, **attrs)))
    return Graph((given,), (Node(panels, (given,), attrs, (made,)),), (made,))


def _rows_of(once: Node) -> Shape:
    """The axes of a product's left side that are not summed over."""
    summed = {a for a, _ in once.attrs["contract"]}
    return tuple([extent for a, extent in enumerate(once.inputs[0].type.shape) if a not in summed])


def _by_panels(n: Node, copy: Value) -> Node:
    """A product that reads a copy of its right side, too."""
    region = n.regions[0]
    once, given, result = region.nodes[0], Value(copy.type), Value(n.outputs[0].type)
    made = Node(panel_product, (*once.inputs, given), once.attrs, (result,), (), once.source)
    return Node(kernel, (*n.inputs, copy), {"implementation": panel_product.name}, n.outputs,
                (Graph((*region.params, given), (made,), (result,)),), n.source)
