"""Control flow between kernels: what the lowering knows of the region ops, and the node that gives a size its value.

Guarantees: `split_at_trips` leaves no `trips` node: what comes after one becomes the region of a `sized` node, whose
function receives the size as an ordinary argument. So every function of a program knows all its sizes when it starts.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.dims import Dim, Extent, symbol_of
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.interpreter import evaluate
from loopwright.ir.op import Op
from loopwright.ir.ops.control import scan, switch, trips, while_
from loopwright.ir.types import ArrayType
from loopwright.lower.kernel import region_of


def _result_types(types: Sequence[ArrayType], regions: tuple[Graph, ...], **attrs: Any) -> tuple[ArrayType, ...]:
    return tuple([v.type for v in regions[0].results])


def _run(count: np.ndarray, *arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int],
         size: Dim) -> tuple[Any, ...]:
    name = symbol_of(size)
    assert name is not None
    return tuple(evaluate(regions[0], arrays, {**sizes, name: int(count)}))


sized = Op(
    name="sized",
    doc="Runs its region on the operands after the first, which is the value of the size that the region uses.",
    numpy=_run,
    infer=_result_types,
    binds="size",
)


def _blocks_types(types: Sequence[ArrayType], regions: tuple[Graph, ...], total: Any, axis: int,
                  **attrs: Any) -> tuple[ArrayType, ...]:
    types = [v.type for v in regions[0].results]
    return tuple([t.with_shape((*t.shape[:axis], total, *t.shape[axis + 1:])) for t in types])


def _run_blocks(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], size: Dim, total: int, rows: int,
                axes: tuple[int | None, ...], axis: int) -> tuple[Any, ...]:
    name = symbol_of(size)
    assert name is not None
    once, found = regions[0].nodes[0], []  # a sized node
    for start in range(0, total, max(rows, 1)) or [0]:
        here = min(rows, total - start)
        given = [x if a is None else x.take(range(start, start + here), a) for x, a in zip(arrays, axes, strict=True)]
        found.append(evaluate(once.regions[0], given, {**sizes, name: here}))
    return tuple([np.concatenate(x, axis) for x in zip(*found, strict=True)])


blocks = Op(
    name="blocks",
    doc="Runs its region on blocks of at most `rows` positions out of `total`, of axis `axis` of the results and of the axes "
        "`axes` of the operands (None: read whole). The region's first parameter is the number of positions: `size` in it.",
    numpy=_run_blocks,
    infer=_blocks_types,
)


def _padded_types(types: Sequence[ArrayType], regions: tuple[Graph, ...], short: tuple[Dim, ...], lanes: int,
                  **attrs: Any) -> tuple[ArrayType, ...]:
    return scan.result_types(types, regions[1:], attrs)


def _run_padded(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], short: tuple[Dim, ...],
                lanes: int, **attrs: Any) -> tuple[Any, ...]:
    return tuple(scan.numpy(*arrays, regions=regions[1:], sizes=sizes, **attrs))


padded_scan = Op(
    name="padded_scan",
    doc="A scan with two bodies that compute the same. Where the sizes `short` are at most `lanes`, the first one runs, whose "
        "vectors have `lanes` elements: first those of the operands.",
    numpy=_run_padded,
    infer=_padded_types,
)


def _strips_types(types: Sequence[ArrayType], regions: tuple[Graph, ...], total: Extent, axes: tuple[int | None, ...],
                  **attrs: Any) -> tuple[ArrayType, ...]:
    made = [v.type for v in regions[0].results]
    places = [a or 0 for a in axes[len(types):]]
    return tuple([t.with_shape((*t.shape[:a], total, *t.shape[a + 1:])) for t, a in zip(made, places, strict=True)])


def _run_strips(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], size: Dim, **attrs: Any) -> Any:
    return evaluate(regions[0].nodes[0].regions[0], arrays, {**sizes, str(size): attrs["total"]})  # one strip of all rows


strips = Op(
    name="strips",
    doc="Runs its region on strips of `total` positions, those of the axes `axes` of operands and results (None: read whole). "
        "The region's first parameter is the number of positions: `size` in it. Threads share them out: at least `least` for "
        "each, a multiple of `together`, of which `rows` are in the caches together. `work`: units of a position. "
        "`trip`: units of all positions between two places where threads of single kernels would meet, which do so where there "
        "are less than `few` positions. `equal`: each strip has just `rows`, the last one some of those before; all positions "
        "are one where each of `near` has a first size that is at most the second.",
    numpy=_run_strips,
    infer=_strips_types,
)


def _strip_types(types: Sequence[ArrayType], regions: tuple[Graph, ...], size: Dim, total: Extent, short: tuple[Dim, ...],
                 lanes: int, **attrs: Any) -> tuple[ArrayType, ...]:
    return scan.result_types(types, regions[-1:], attrs)


def _run_strip(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], size: Dim, total: int,
               short: tuple[Dim, ...], lanes: int, **attrs: Any) -> tuple[Any, ...]:
    return tuple(scan.numpy(*arrays, regions=regions[-1:], sizes=sizes, **attrs))


strip_scan = Op(
    name="strip_scan",
    doc="A scan, or a padded_scan where it has two bodies, of `size` positions in arrays of `total`: the rows that it goes "
        "through lie as far apart as rows of these.",
    numpy=_run_strip,
    infer=_strip_types,
)


def split_at_trips(g: Graph) -> Graph:
    """g with all that follows its first `trips` node in the region of a `sized` node, which may hold another."""
    k = next((k for k, n in enumerate(g.nodes) if n.op is trips), None)
    if k is None:
        return g
    binding, count = g.nodes[k], g.nodes[k].inputs[0]
    same = {binding.outputs[0]: count}
    rest = [Node(n.op, tuple([same.get(v, v) for v in n.inputs]), n.attrs, n.outputs, n.regions, n.source)
            for n in g.nodes[k + 1:]]
    made = {v for n in rest for v in n.outputs}
    results = tuple([same.get(v, v) for v in g.results])
    inner = tuple(dict.fromkeys([v for v in results if v in made]))
    region, outside = region_of(rest, inner)
    node = Node(sized, (count, *outside), {"size": binding.attrs["size"]}, inner, (region,), binding.source)
    return Graph(g.params, (*g.nodes[:k], node), results, g.constraints)


def _while_carry(n: Node) -> int:
    return len(n.inputs) - int(n.attrs["condition_constants"]) - int(n.attrs["body_constants"])


_CARRY: Mapping[Op, Callable[[Node], int]] = {
    switch: lambda n: 0,
    blocks: lambda n: 0,
    strips: lambda n: 0,
    while_: _while_carry,
    scan: lambda n: int(n.attrs["carry"]),
    padded_scan: lambda n: int(n.attrs["carry"]),
    strip_scan: lambda n: int(n.attrs["carry"]),
}


def carry_count(n: Node) -> int:
    """How many of the node's results are handed from trip to trip. They are its first."""
    return _CARRY[n.op](n)


def initial_carries(n: Node) -> tuple[Value, ...]:
    """The values that the carries of a node begin as."""
    count = 0 if n.op is sized else carry_count(n)
    if count == 0:
        return ()
    first = len(n.inputs) - count if n.op is while_ else int(n.attrs["constants"])
    return n.inputs[first:first + count]


def carried_by(n: Node, region: int) -> dict[int, Value]:
    """For each result of a region that is a carry, by its number: the parameter that it will be on the next trip."""
    body, count = n.regions[region], 0 if n.op is sized else carry_count(n)
    if count == 0 or len(body.results) < count:  # a branch, or a condition
        return {}
    first = len(body.params) - count if n.op is while_ else int(n.attrs["constants"])
    return {k: body.params[first + k] for k in range(count)} if region == len(n.regions) - 1 else {}


def is_loop(n: Node) -> bool:
    """Whether the node's regions are run many times."""
    return n.op is scan or n.op is while_


def is_control(n: Node) -> bool:
    """Whether the node is control flow between kernels."""
    return n.op is sized or n.op in _CARRY
