"""Loops around kernels: a chain of them runs block by block, so that what it keeps for itself stays in the caches.

Scores of an attention, or the hidden layer of a network for many rows, are stored by one kernel and read by the next. If all
kernels of a chain compute block after block of one axis alone, a few rows at a time run through the whole chain, and such
values are as large as a block.

Reshapes between kernels that keep an axis are the same arrays for each block of it.

Guarantees: the same values from the same kernels; an axis is divided only where every element of each kernel's results needs
nothing of other positions of it; blocks are contiguous in every array; without need (when all fits) there is one block. How
large a block is follows from the sizes of the call. A chain begins and ends with a kernel.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loopwright.ir.dims import Dim, Extent, floordiv, maximum, minimum, product, summed
from loopwright.ir.errors import DTypeError, ScheduleError, ShapeError
from loopwright.ir.graph import Graph, Node, Value, fresh_symbol
from loopwright.ir.loops import Expr, Index, Load, Scatter, parts
from loopwright.ir.ops.structural import reshape
from loopwright.ir.schedule import InPlace, Interleave
from loopwright.ir.types import I64, ArrayType
from loopwright.lower.composition import fresh_indices, reads
from loopwright.lower.control import blocks, sized
from loopwright.lower.decisions import Chaining, InBlocks
from loopwright.lower.kernel import kernel, region_of
from loopwright.lower.target import Target

MOST_LEVELS = 3  # axes that are divided, one inside the other
MOST_KERNELS = 8  # of a chain: equal parts of a long one are compiled once, and their sizes are short polynomials
FEWEST_ROWS = 32  # of a block of the innermost axis: the library takes longer for products of few rows
Axes = dict[Value, int | None]  # which axis of a value is divided; None: it is read whole


def blocked(g: Graph, target: Target, choices: Mapping[Value, Chaining] = {}) -> Graph:
    """A partitioned graph with its chains of kernels in loops over blocks. `choices`: what is decided of some chains, by their
    first result. ScheduleError where that does not fit."""
    known, read = KnownAxes(), Readers(g)
    loops: dict[Node, Node] = {}  # by the last kernel of the chain, where the loop stands: what it waits for stands before
    inside = set[Node]()
    found = runs(g, known)
    if unknown := set(choices).difference(run[0].outputs[0] for run in found if run):
        raise ScheduleError(f"{choices[unknown.pop()]}: no chain of kernels begins with that of the node.")
    for run in found:
        choice = choices.get(run[0].outputs[0]) if run else None
        rows = choice.rows if isinstance(choice, InBlocks) else None
        if rows is not None and rows < 1:
            raise ScheduleError(f"{choice}: a block has at least one row.")
        is_divided = _pays(run) if choice is None else isinstance(choice, InBlocks)
        loop = _loop(run, read, target, known, rows) if is_divided else None
        if isinstance(choice, InBlocks) and loop is None:
            raise ScheduleError(f"{choice}: the chain keeps nothing for itself, or no axis of it can be divided.")
        if loop is not None:
            loops[run[-1]] = loop
            inside.update(run)
    nodes = [loops.get(n, n) for n in g.nodes if n in loops or n not in inside]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


def chains(g: Graph) -> list[tuple[Value, bool]]:
    """The first results of the chains of a partitioned graph, and whether these are in blocks if nothing is decided."""
    return [(run[0].outputs[0], _pays(run)) for run in runs(g, KnownAxes()) if len(run) > 1]


# ---- chains -------------------------------------------------------------------------------------
def runs(g: Graph, known: KnownAxes) -> list[list[Node]]:
    """Chains of kernels, and of reshapes between them that nothing else reads, that may share a loop over their results' first
    axis. Nothing else that stands between the first and the last of a chain reads what it makes, or makes what it reads: that
    would be kept for the whole loop."""
    found: list[list[Node]] = []
    run: list[Node] = []
    made, beside = set[Value](), set[Value]()
    for n in g.nodes:
        axes = known.node_axes(n, 0)
        reads_it = not made.isdisjoint(n.inputs)
        waits = len(kernels_of(run)) == MOST_KERNELS or not beside.isdisjoint(n.inputs)
        if axes is not None and reads_it and not waits and _joins(n, axes, run, made):
            run.append(n)
            made.update(n.outputs)
            continue
        if reads_it:
            found.append(run)  # what reads the chain in another way ends it
            run, made = [], set()
        if axes is not None and not run and n.op is kernel:
            run, made, beside = [n], set(n.outputs), set()
        else:
            beside.update(n.outputs)
    read = Readers(g)
    return [_closed(run, read) for run in (*found, run)]


def kernels_of(run: Sequence[Node]) -> list[Node]:
    """The kernels of a chain."""
    return [n for n in run if n.op is kernel]


class Readers:
    """Who reads the values of a graph."""

    def __init__(self, g: Graph) -> None:
        self._wanted, self._of = set(g.results), dict[Value, set[Node]]()
        for n in g.nodes:
            for v in n.inputs:
                self._of.setdefault(v, set()).add(n)

    def outside(self, n: Node, run: Sequence[Node]) -> list[Value]:
        """What a node of a chain makes that others read, or that is a result."""
        return [v for v in n.outputs if v in self._wanted or not self._of.get(v, set()) <= set(run)]


def _closed(run: list[Node], read: Readers) -> list[Node]:
    """As much of a chain as ends with a kernel, and reshapes nothing for others."""
    while run and (run[-1].op is not kernel or any(n.op is not kernel and read.outside(n, run) for n in run)):
        run = run[:-1]
    return run


def _joins(n: Node, axes: Axes, run: Sequence[Node], made: set[Value]) -> bool:
    same = n.outputs[0].type.shape[0] == run[0].outputs[0].type.shape[0]
    return same and all(axes[v] == 0 for v in n.inputs if v in made)


def _pays(run: Sequence[Node]) -> bool:
    """Whether a chain holds a library call: what generated kernels have to share is in one of them already."""
    return len(run) > 1 and any(n.attrs["implementation"] != "generated" for n in kernels_of(run))


def _loop(run: Sequence[Node], read: Readers, target: Target, known: KnownAxes, rows: int | None) -> Node | None:
    """A chain as one loop, of so many `rows` if they are decided; None where it keeps no value for itself or nothing can be
    divided."""
    results = results_of(run, read)
    if len(results) == sum(len(n.outputs) for n in kernels_of(run)):
        return None
    body, outside = region_of(run, results)
    divided = _divided(body, 0, (), target, known, rows)
    if divided is None:
        return None
    loop, given = divided
    inputs = tuple([outside[body.params.index(v)] for v in given])
    return Node(blocks, inputs, loop.attrs, results, loop.regions, run[-1].source)


def results_of(run: Sequence[Node], read: Readers) -> tuple[Value, ...]:
    """What a chain makes that others read, or that is a result."""
    return tuple([v for n in run for v in read.outside(n, run)])


# ---- which axis of what -------------------------------------------------------------------------
class KnownAxes:
    """What was found out about kernels, by their structure: many are equal."""

    def __init__(self) -> None:
        self._axes: dict[tuple[Any, int], tuple[int | None, ...] | None] = {}
        self._regions: dict[tuple[Any, ...], Graph | None] = {}

    def node_axes(self, n: Node, axis: int) -> Axes | None:
        """For each operand of a kernel or a reshape, the axis that goes along with `axis` of all results; None if there is no
        such axis."""
        if n.op is reshape:
            (x,), shape = n.inputs, n.outputs[0].type.shape
            return {x: 0} if axis == 0 and x.type.shape and shape and x.type.shape[0] == shape[0] else None
        schedule = n.attrs.get("schedule", ())
        if n.op is not kernel or "code" in n.attrs or any(isinstance(x, InPlace) for x in schedule):
            return None
        if Interleave() in schedule and axis == n.outputs[0].type.rank - 1:
            return None  # the size of that axis is spelled out
        region = n.regions[0]
        key = region.key, axis
        if key not in self._axes:
            found = _region_axes(region, axis)
            self._axes[key] = None if found is None else tuple([found.get(v) for v in region.params])
        axes = self._axes[key]
        operands: Axes = {}
        if axes is None or any(operands.setdefault(v, a) != a for v, a in zip(n.inputs, axes, strict=True)):
            return None
        return operands

    def retyped(self, region: Graph, axis: int, size: Extent) -> Graph | None:
        """A kernel's region with `size` positions of an axis, that `node_axes` has followed; None where an op disagrees."""
        key = region.key, region.symbols, axis, size  # equal structures may have other symbols
        if key not in self._regions:
            self._regions[key] = _retyped_region(region, axis, size)
        return self._regions[key]


def _region_axes(region: Graph, axis: int) -> Axes | None:
    """For every value of a region that the results need, the axis that goes along with `axis` of all results."""
    if any(v.type.rank <= axis or v.type.shape[axis] != region.results[0].type.shape[axis] for v in region.results):
        return None
    found: Axes = dict.fromkeys(region.results, axis)
    for n in reversed(region.nodes):
        if n.op.loop is None or len(n.outputs) > 1:
            return None
        if n.outputs[0] not in found:
            continue
        own = found[n.outputs[0]]
        operands = dict.fromkeys(range(len(n.inputs))) if own is None else _operand_axes(n, own)
        if operands is None:
            return None
        for k, at in operands.items():
            if at == _NOT_ALONE or found.setdefault(n.inputs[k], at) != at:
                return None
    return found


_NOT_ALONE = -1  # an operand is read at other positions too


def _operand_axes(n: Node, own: int) -> dict[int, int | None] | None:
    """Which axis of each operand is read at just the position of the result's axis `own`; None where the position is used
    otherwise."""
    index = tuple([Index(f"b{a}") for a in range(n.outputs[0].type.rank)])
    e, found = reads(n, index, fresh_indices("f"))
    axes: dict[int, int | None] = {}
    for k, position in found:
        at = [a for a, x in enumerate(position) if x == index[own]]
        others = any(index[own] in _bare(x) for x in position if x != index[own])
        here = at[0] if len(at) == 1 else None if not at else _NOT_ALONE
        here = _NOT_ALONE if others or axes.setdefault(k, here) != here else here
        axes[k] = here
    return None if index[own] in _bare(e) or isinstance(e, Scatter) else axes


def _bare(e: Expr) -> Iterator[Expr]:
    """The parts of e, without those that only say where something is loaded."""
    todo, seen = [e], set[int]()
    while todo:
        x = todo.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            todo.extend(() if isinstance(x, Load) else parts(x))


# ---- loops --------------------------------------------------------------------------------------
def _divided(g: Graph, axis: int, outer: tuple[Dim, ...], target: Target, known: KnownAxes,
             decided: int | None) -> tuple[Node, tuple[Value, ...]] | None:
    """A chain as a loop over blocks of `axis`, and which parameters of g it is given; `outer`: the sizes of the blocks of
    the axes before; `decided`: the rows of the innermost blocks. None where there is nothing to divide."""
    if axis == MOST_LEVELS or any(v.type.rank <= axis for n in g.nodes for v in n.outputs):
        return None
    total = g.results[0].type.shape[axis]
    if total == 1:
        return _divided(g, axis + 1, outer, target, known, decided)
    size = fresh_symbol()
    made = _retyped(g, axis, outer, size, known)
    if made is None:
        return None
    body, given, axes = made
    deeper = _divided(body, axis + 1, (*outer, size), target, known, decided)
    rows = _rows(body, axes, size, outer, total, target, 1 if deeper else FEWEST_ROWS, None if deeper else decided)
    if deeper is None and rows == total:
        return None
    if deeper is not None:
        node, read = deeper
        body = Graph(body.params, (Node(node.op, read, node.attrs, node.outputs, node.regions, node.source),), node.outputs)
    count = Value(ArrayType((), I64))
    params, results = (tuple([Value(v.type) for v in values]) for values in (body.params, body.results))
    once = Node(sized, (count, *params), {"size": size}, results, (body,))
    whole = tuple([Value(v.type.with_shape(_with(v.type.shape, axis, total))) for v in results])
    attrs = {"size": size, "total": total, "rows": rows, "axes": axes, "axis": axis}
    return Node(blocks, given, attrs, whole, (Graph((count, *params), (once,), results),)), given


def _with(shape: Sequence[Extent], axis: int, size: Extent) -> tuple[Extent, ...]:
    return (*shape[:axis], size, *shape[axis + 1:])


def _rows(body: Graph, axes: Sequence[int | None], size: Dim, outer: Sequence[Dim], total: Extent, target: Target,
          fewest: int, decided: int | None) -> Extent:
    """How many positions a block has, if that is not `decided`: what the chain keeps for itself then fits the cache, and is
    not less than what each block reads anew. All of them where an axis before is in blocks of several positions: rows would
    lie apart."""
    each = summed(_bytes(v, size) for n in kernels_of(body.nodes) for v in n.outputs if v not in body.results)
    again = summed(v.type.size * v.type.dtype.itemsize for v, a in zip(body.params, axes, strict=True) if a is None)
    rows = maximum(floordiv(maximum(target.cache_bytes // 2, 2 * again), each + 1), fewest) if decided is None else decided
    for before in outer:
        rows = maximum(rows, (before - 1) * total)
    return minimum(rows, total)


def _bytes(v: Value, size: Dim) -> Extent:
    """The bytes of one position of a block."""
    shape = list(v.type.shape)
    shape.remove(size)
    return product(shape) * v.type.dtype.itemsize


def _retyped(g: Graph, axis: int, outer: Sequence[Dim], size: Dim,
             known: KnownAxes) -> tuple[Graph, tuple[Value, ...], tuple[int | None, ...]] | None:
    """The chain with `size` positions of an axis: its parameters stand for those of g, with which axis of each is divided. One
    that some kernels read whole and others in blocks becomes two."""
    new: dict[tuple[Value, int | None], Value] = {}
    inside = {v for n in g.nodes for v in n.outputs}
    nodes = []
    for n in g.nodes:
        axes = known.node_axes(n, axis)
        if axes is None or any(axes[v] != axis for v in n.inputs if v in inside):
            return None
        for v, a in axes.items():
            if v not in inside and (v, a) not in new:
                if a is not None and not all(x == 1 or x in outer for x in v.type.shape[:a]):
                    return None  # blocks would not be contiguous
                new[v, a] = Value(narrow(v.type, a, size))
        new.update(((v, axis), Value(narrow(v.type, axis, size))) for v in n.outputs)
        inputs, outputs = tuple([new[v, axes[v]] for v in n.inputs]), tuple([new[v, axis] for v in n.outputs])
        if n.op is reshape:
            nodes.append(reshaped(n, inputs, outputs))
            continue
        region = known.retyped(n.regions[0], axis, size)
        if region is None:
            return None
        nodes.append(Node(kernel, inputs, n.attrs, outputs, (region,), n.source))
    given = [(v, a) for v, a in new if v not in inside]
    body = Graph(tuple([new[x] for x in given]), tuple(nodes), tuple([new[v, axis] for v in g.results]))
    return body, tuple([v for v, _ in given]), tuple([a for _, a in given])


def reshaped(n: Node, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Node:
    """A reshape, of a block."""
    return Node(reshape, inputs, {"shape": outputs[0].type.shape}, outputs, (), n.source)


def narrow(t: ArrayType, axis: int | None, size: Extent) -> ArrayType:
    """The type of `size` positions of an axis; of all, where that is None."""
    return t if axis is None else t.with_shape(_with(t.shape, axis, size))


def _retyped_region(region: Graph, axis: int, size: Extent) -> Graph | None:
    """A kernel's region for a block: attributes that are the shape of a result change with it. None where an op disagrees."""
    axes = _region_axes(region, axis)
    assert axes is not None
    new = {v: Value(narrow(v.type, axes.get(v), size)) for v in (*region.params, *(n.outputs[0] for n in region.nodes))}
    nodes = []
    for n in region.nodes:
        old, made = n.outputs[0].type, new[n.outputs[0]].type
        attrs = {k: made.shape if k == "shape" and a == old.shape else a for k, a in n.attrs.items()}
        inputs = tuple([new[v] for v in n.inputs])
        try:
            types = n.op.result_types([v.type for v in inputs], (), attrs)
        except (ShapeError, DTypeError):  # an attribute tells the size of the axis in another way
            return None
        if types != (made,):
            return None
        nodes.append(Node(n.op, inputs, attrs, (new[n.outputs[0]],), (), n.source))
    return Graph(tuple([new[v] for v in region.params]), tuple(nodes), tuple([new[v] for v in region.results]))
