"""The `kernel` node: a region of the very ops it computes, beside the schedule and implementation chosen for it; and the
`program` node around all kernels of a function."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.attributes import attributes_key
from loopwright.ir.errors import ShapeError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.interpreter import evaluate
from loopwright.ir.op import Op
from loopwright.ir.ops.callbacks import whole, whole_type
from loopwright.ir.types import ArrayType

MOST_NODES = 64  # that a kernel with rows, or dear operations, computes: bounds the pressure on registers


def _result_types(types: Sequence[ArrayType], regions: tuple[Graph, ...], implementation: str,
                  **attrs: Any) -> tuple[ArrayType, ...]:
    if implementation == "generated" and "schedule" not in attrs:
        raise ShapeError("kernel: what is generated needs a schedule")
    return tuple(v.type for v in regions[0].results)


def _run(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], **attrs: Any) -> tuple[Any, ...]:
    return tuple(evaluate(regions[0], arrays, sizes))


kernel = Op(
    name="kernel",
    doc="Runs its region. `implementation`: generated (by `schedule`), gemm, sort, argsort, running_product, an op of linear "
        "algebra by its name, or native: a user's machine code, the region's own or `code` with `extents` for all of it, which "
        "takes `operands` by their numbers where these are not all in order.",
    numpy=_run,
    infer=_result_types,
)


def _types(types: Sequence[ArrayType], regions: tuple[Graph, ...], pairs: tuple[int, ...],
           donations: tuple[tuple[int, int], ...], fast_math: bool) -> tuple[ArrayType, ...]:
    return tuple([whole_type(v.type, len(types) + k in pairs) for k, v in enumerate(regions[0].results)])


def _run_whole(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], pairs: tuple[int, ...],
               **attrs: Any) -> tuple[Any, ...]:
    real = [x.view(v.type.dtype).reshape(*x.shape, 2) if k in pairs else x
            for k, (x, v) in enumerate(zip(arrays, regions[0].params, strict=True))]
    found = evaluate(regions[0], real, sizes)
    return tuple([whole([x], (0,) if len(arrays) + k in pairs else ())[0] for k, x in enumerate(found)])


program = Op(
    name="program",
    doc="Runs its region: all kernels of a function, and control flow between them. `pairs`: operands, and after them results, "
        "that are complex numbers, and pairs of real ones inside. `donations`: (result, operand) whose memory it takes. "
        "`fast_math`: whether floating-point operations may be contracted and reordered.",
    numpy=_run_whole,
    infer=_types,
)


def region_of(nodes: Sequence[Node], results: Sequence[Value]) -> tuple[Graph, tuple[Value, ...]]:
    """The nodes as a closed graph over what they read from outside, and those outside values."""
    inside = {v for n in nodes for v in n.outputs}
    outside = tuple(dict.fromkeys(v for n in nodes for v in n.inputs if v not in inside))
    fresh: dict[Value, Value] = {v: Value(v.type) for v in outside}
    copies = []
    for n in nodes:
        fresh.update((v, Value(v.type)) for v in n.outputs)
        inputs, outputs = tuple(fresh[v] for v in n.inputs), tuple(fresh[v] for v in n.outputs)
        copies.append(Node(n.op, inputs, n.attrs, outputs, n.regions, n.source))
    return Graph(tuple(fresh[v] for v in outside), tuple(copies), tuple(fresh[v] for v in results)), outside


def in_order(g: Graph) -> Graph:
    """A region with its nodes in an order that does not depend on the program's, so that more regions are equal: each just
    before the first that reads it, after those that take more steps to compute. The first result, at whose loops the others
    are computed, comes last."""
    steps: dict[Value, int] = dict.fromkeys(g.params, 0)
    made: dict[Value, tuple[Node | Value, list[Value]]] = {}
    for n in g.nodes:
        inputs = sorted(n.inputs, key=steps.__getitem__, reverse=True)  # in the order in which they are computed
        steps.update(dict.fromkeys(n.outputs, 1 + max([steps[v] for v in inputs], default=0)))
        made.update((v, (n, inputs)) for v in n.outputs)
    done = dict[Value | Node, None]()
    todo = [*g.results[:1], *reversed(g.results[1:])]
    while todo:
        maker, inputs = made.get(todo[-1], (todo[-1], []))
        waiting = [] if maker in done else [v for v in inputs if made.get(v, (v,))[0] not in done]
        todo += reversed(waiting)
        if not waiting:
            done[maker] = None
            todo.pop()
    params, nodes = [x for x in done if isinstance(x, Value)], [x for x in done if isinstance(x, Node)]
    return Graph(tuple(params), tuple(nodes), g.results, g.constraints)


def merged(g: Graph) -> Graph:
    """A kernel's region with what it computes twice computed once: near each other, nothing need be computed again. Every
    result stays a value of its own."""
    same: dict[Value, Value] = {}
    first: dict[Any, Value] = {}
    nodes, results = [], set(g.results)
    for n in g.nodes:
        inputs, v = tuple([same.get(x, x) for x in n.inputs]), n.outputs[0]
        known = first.setdefault((n.op, inputs, attributes_key(n.attrs)), v)
        if known is not v and v not in results:
            same[v] = known
        else:
            nodes.append(Node(n.op, inputs, n.attrs, n.outputs, n.regions, n.source))
    return Graph(g.params, tuple(nodes), g.results, g.constraints) if same else g
