"""Loops of single elements as kernels: a scan that carries nothing, whose elements each run loops of their own.

`vmap` of a function with a `while_loop` is such a scan. Inside one kernel many elements run side by side, in lanes, and each
stops on its own condition.

Guarantees: the nest computes what the scan means; what cannot be written so stays a loop between kernels: elements that are
arrays, operations without a loop rule, and operations that may raise.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.gpu_schedule import Bind, Threads
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Apply, Bounded, Expr, Index, Load, Local, LoopContext, Scatter, integer, minus, walk
from loopwright.ir.nest import Buffer, For, Nest, Statement, Store, While
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.ops.regions import split
from loopwright.ir.schedule import Parallel, Schedule, Unroll, Vectorize
from loopwright.ir.types import INTEGERS
from loopwright.lower import binding
from loopwright.lower.composition import Position, fresh_indices
from loopwright.lower.target import Target

MOST_NODES = 1024  # of one element, loops inside included: what spills from registers is still side by side
IN_FLIGHT = 2, 3  # vectors, and where these are half as wide: chains of dependent operations leave most of the machine idle


@dataclass(frozen=True)
class Place:
    """An array, or the part of it at the indices of the loops around."""

    buffer: str
    index: Position


class _NotOfElements(Exception):
    """What a scan holds is not for one kernel."""


@dataclass
class _Elements:
    """Loops over the elements, and what is computed for one."""

    loops: list[tuple[Index, Extent]] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    fresh: Callable[[], Index] = field(default_factory=fresh_indices)


def is_of_elements(n: Node) -> bool:
    """Whether n is a scan that one kernel can be."""
    return n.op is scan and _has_loop(n) and _elements(Graph(n.inputs, (n,), n.outputs)) is not None


def _has_loop(n: Node) -> bool:
    """Whether loops of elements are in a scan: other maps are left to kernels that see all elements."""
    return any(m.op is while_ or (m.op is scan and _has_loop(m)) for m in n.regions[0].nodes)


def lane_schedule(region: Graph, target: Target) -> Schedule:
    """As many elements side by side as fill some registers."""
    found = _elements(region)
    assert found is not None
    widest = max(v.type.dtype.itemsize for v in _values(region.nodes))
    lanes = max(1, target.vector_bits // (8 * max(widest, 4)))
    return (Vectorize(0, len(found.loops) - 1, lanes), Unroll(0, IN_FLIGHT[target.is_short_of_registers]), Parallel())


def _values(nodes: Sequence[Node]) -> Iterator[Value]:
    for n in nodes:
        yield from (*n.inputs, *n.outputs)
        for region in n.regions:
            yield from _values(region.nodes)


def lane_nest(region: Graph, schedule: Schedule, name: str) -> Nest:
    """The nest of a region that is such a scan. ValueError for instructions other than those of `lane_schedule`."""
    found = _elements(region)
    assert found is not None
    lanes = unroll = 1
    parallel = False
    threads, bound = None, dict[int, tuple[str, ...]]()
    for x in schedule:
        match x:
            case Threads():
                threads = x.x, x.y
            case Bind(0, loop, axes) if loop < len(found.loops):
                bound[loop] = axes
            case Vectorize(0, loop, lanes) if loop == len(found.loops) - 1:
                pass
            case Unroll(0, unroll):
                pass
            case Parallel(()):
                parallel = True
            case _:
                raise ValueError(f"{x}: loops of single elements have lanes along their last loop, vectors in flight, threads")
    body = tuple(found.body)
    for k, (index, extent) in enumerate(reversed(found.loops)):
        body = (For(index, extent, body, lanes, unroll) if k == 0 else For(index, extent, body),)
    if parallel:
        body = tuple([replace(s, parallel=True) for s in body if isinstance(s, For)])
    buffers = [Buffer(f"x{k}", v.type.shape, v.type.dtype, "input") for k, v in enumerate(region.params)]
    buffers += [Buffer(f"y{k}", v.type.shape, v.type.dtype, "output") for k, v in enumerate(region.results)]
    nest = Nest(name, tuple(buffers), region.symbols, body)
    for loop, axes in bound.items():
        nest = binding.bind(nest, found.loops[loop][0], axes)
    if threads is not None:
        nest = replace(nest, threads=threads)
        binding.check(nest)
    return nest


# ---- what an element is -------------------------------------------------------------------------
def _elements(region: Graph) -> _Elements | None:
    """The loops and statements of a region of one scan; None where it is no kernel."""
    found, n = _Elements(), region.nodes[0]
    known: dict[Value, Expr | Place] = {v: Place(f"x{k}", ()) for k, v in enumerate(region.params)}
    results = [Place(f"y{region.results.index(v)}", ()) if v in region.results else None for v in n.outputs]
    try:
        _descend(n, [known[v] for v in n.inputs], results, found)
    except _NotOfElements:
        return None
    return found


def _descend(n: Node, operands: Sequence[Expr | Place], results: Sequence[Place | None], found: _Elements) -> None:
    """A scan as one more loop around the elements; inside the innermost, the elements themselves. A result without a place is
    not wanted."""
    _require(n.attrs["carry"] == 0)
    body, count = n.regions[0], n.attrs["constants"]
    step = Index(f"i{len(found.loops)}")
    found.loops.append((step, n.attrs["length"]))
    at: Expr = minus(integer(n.attrs["length"] - 1), step) if n.attrs["reverse"] else step
    known = dict(zip(body.params, [*operands[:count], *(_row(x, at) for x in operands[count:])], strict=True))
    made = {v: Place(r.buffer, (*r.index, at)) for v, r in zip(body.results, results, strict=True) if r is not None}
    _require(len(made) == sum(r is not None for r in results))  # one element twice is a copy
    inner = body.nodes[0] if len(body.nodes) == 1 else None
    if inner is not None and inner.op is scan and made.keys() <= set(inner.outputs):
        _descend(inner, [known[v] for v in inner.inputs], [made.get(v) for v in inner.outputs], found)
        return
    _compute(body, made, known, found.body, found)
    for v, place in made.items():
        found.body.append(Store(place.buffer, place.index, _element(known[v])))


def _row(x: Expr | Place, at: Expr) -> Place:
    _require(isinstance(x, Place))
    assert isinstance(x, Place)
    return Place(x.buffer, (*x.index, at))


def _require(fine: bool) -> None:
    if not fine:
        raise _NotOfElements


def _compute(g: Graph, results: Iterable[Value], known: dict[Value, Expr | Place], out: list[Statement],
             found: _Elements) -> None:
    """The nodes of a graph of single elements: expressions, and statements for its loops. `results`: those that are wanted."""
    results = tuple(results)
    wanted = {v for n in g.nodes for v in n.inputs}.union(results)
    for n in g.nodes:
        _require(next(found.numbers) < MOST_NODES and all(v.type.rank == 0 for v in n.outputs))
        if n.op is while_:
            out.append(_loop(n, known, [v in wanted for v in n.outputs], found))
        else:
            known[n.outputs[0]] = _expression(n, known, found)
    for v in results:
        known[v] = _loaded(known[v], v)


def _loaded(x: Expr | Place, v: Value) -> Expr | Place:
    return Load(x.buffer, x.index, v.type.dtype) if isinstance(x, Place) and v.type.rank == 0 else x


def _element(x: Expr | Place) -> Expr:
    _require(not isinstance(x, Place))
    assert not isinstance(x, Place)
    return x


def _expression(n: Node, known: dict[Value, Expr | Place], found: _Elements) -> Expr:
    rule = n.op.loop
    _require(rule is not None)
    assert rule is not None

    def load(k: int, at: Position) -> Expr:
        x = known[n.inputs[k]]
        return Load(x.buffer, (*x.index, *at), n.inputs[k].type.dtype) if isinstance(x, Place) else x
    types = tuple([v.type for v in n.inputs])
    e = rule(LoopContext(types, n.outputs[0].type, load, found.fresh), (), **n.attrs)
    _require(not any(isinstance(x, Scatter) or may_raise(x) for x in walk(e)))
    return e


def may_raise(x: Expr) -> bool:
    """Whether an expression raises for some values of its parts."""
    return isinstance(x, Bounded) or (isinstance(x, Apply) and x.fn == "power" and x.dtype in INTEGERS)


def _loop(n: Node, known: dict[Value, Expr | Place], wanted: Sequence[bool], found: _Elements) -> While:
    condition, body = n.regions
    for_condition, for_body, carry = split(n.inputs, n.attrs["condition_constants"], n.attrs["body_constants"])
    number = next(found.numbers)
    starts = tuple([_element(_loaded(known[v], v)) for v in carry])
    names = tuple([f"w{number}_{k}" for k in range(len(carry))])
    state = [Local(name, v.type.dtype) for name, v in zip(names, carry, strict=True)]
    inner: list[Statement] = []
    test = dict(zip(condition.params, [*(known[v] for v in for_condition), *state], strict=True))
    _compute(condition, condition.results, test, inner, found)
    _require(not inner)
    step = dict(zip(body.params, [*(known[v] for v in for_body), *state], strict=True))
    _compute(body, body.results, step, inner, found)
    ends = tuple([f"{name}_end" if asked else None for name, asked in zip(names, wanted, strict=True)])
    known.update({v: Local(end, v.type.dtype) for v, end in zip(n.outputs, ends, strict=True) if end is not None})
    loops = tuple([x for x in inner if isinstance(x, While)])
    following = tuple([_element(step[v]) for v in body.results])
    return While(names, starts, _element(test[condition.results[0]]), loops, following, ends)
