"""What rewriting a loop needs: constants go into its regions, work that is the same in every trip comes out.

Guarantees: nothing that can fail, and no loop, leaves a region: it may run no trip at all. What costs less than reading it
again (constants, and moves of elements) stays inside.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass

from loopwright.ir.cost import element
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, Node, Value, acts
from loopwright.ir.loops import Apply, Bounded
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.regions import chosen, either, others, rearranged, replaced
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import pad, reshape, slice_, transpose
from loopwright.ir.types import INTEGERS

Producer = Callable[[Value], Node | None]
_MOVES = (broadcast, reshape, transpose, slice_, convert)  # which cost nothing where they are read


@dataclass(frozen=True)
class Part:
    """A region, and the values outside that are its first parameters in every trip."""

    region: Graph
    operands: tuple[Value, ...]

    @property
    def constants(self) -> tuple[Value, ...]:
        """The parameters that stand for the operands."""
        return self.region.params[:len(self.operands)]


def absorbed(part: Part, producer: Producer) -> Part:
    """Operands that are one number everywhere are made inside; one that is given twice is taken once."""
    inside: list[Node] = []
    first: dict[Value, Value] = {}
    same: dict[Value, Value] = {}
    for v, x in zip(part.constants, part.operands, strict=True):
        node = producer(x)
        if node is not None and node.op is full and not v.type.weak:
            inside.append(Node(full, (), {**node.attrs, "shape": v.type.shape}, (v,), (), node.source))
        elif first.setdefault(x, v) is not v:
            same[v] = first[x]
    kept = [v not in same and all(v not in n.outputs for n in inside) for v in part.constants]
    if all(kept):
        return part
    g = replaced(part.region, same)
    params = (*chosen(part.constants, kept), *g.params[len(part.operands):])
    return Part(Graph(params, (*inside, *g.nodes), g.results), tuple(chosen(part.operands, kept)))


def hoisted(part: Part) -> tuple[Part, list[Node]]:
    """The part without work that is the same in every trip, and that work as nodes on the operands."""
    g = part.region
    fixed, heavy, patterns = set(part.constants), set[Value](), set[Value]()
    for n in g.nodes:
        if not n.regions and fixed.issuperset(n.inputs) and not can_fail(n) and _is_sized_outside(n, g):
            fixed.update(n.outputs)
            if of_numbers(n, patterns):
                patterns.update(n.outputs)
            elif n.inputs and n.op not in _MOVES:
                heavy.update(n.outputs)
    read = {v for n in g.nodes if not heavy.issuperset(n.outputs) for v in n.inputs} | set(g.results)
    taken = [v for n in g.nodes for v in n.outputs if v in heavy and v in read]
    if not taken:
        return part, []
    unbound = Graph(g.params, tuple([n for n in g.nodes if n.op.binds is None and not acts(n)]), g.results)
    outside = copied(needed_nodes(unbound, taken), dict(zip(part.constants, part.operands, strict=True)))
    inside = Graph((*part.constants, *taken, *g.params[len(part.operands):]),
                   tuple([n for n in g.nodes if heavy.isdisjoint(n.outputs)]), g.results)
    inside = Graph(inside.params, needed_nodes(inside, inside.results), inside.results)
    return Part(inside, (*part.operands, *(outside.value[v] for v in taken))), outside.nodes


def of_numbers(n: Node, patterns: set[Value]) -> bool:
    """Whether n makes, of none or of such `patterns`, an array of numbers whose places sizes tell, as the mask of a part of an
    array is: positions tell them in less time than memory."""
    return n.op is full or (n.op in (*_MOVES, pad) and patterns.issuperset(n.inputs))


def _is_sized_outside(n: Node, g: Graph) -> bool:
    """Whether no size of n is a number that g binds."""
    return not g.bound or g.bound.isdisjoint(Graph((), (n,), ()).symbols)


@dataclass(frozen=True)
class Copies:
    """Nodes over other values, and what each value became."""

    nodes: list[Node]
    value: dict[Value, Value]


def copied(nodes: Iterable[Node], to: dict[Value, Value]) -> Copies:
    """The nodes again, on the values that `to` gives, with results of their own."""
    value, made = dict(to), []
    for n in nodes:
        inputs = tuple([value[v] for v in n.inputs])
        value.update((v, Value(v.type)) for v in n.outputs)
        made.append(Node(n.op, inputs, n.attrs, tuple([value[v] for v in n.outputs]), n.regions, n.source))
    return Copies(made, value)


def needed(g: Graph, results: Iterable[Value]) -> set[Value]:
    """The values that results and effects depend on, results included."""
    found = set(results)
    for n in reversed(g.nodes):
        if n.op.binds is not None or acts(n) or not found.isdisjoint(n.outputs):
            found.update(n.inputs)
    return found


def needed_nodes(g: Graph, results: Iterable[Value]) -> tuple[Node, ...]:
    """The nodes that results and effects depend on, in order."""
    found = needed(g, results)
    return tuple([n for n in g.nodes if n.op.binds is not None or acts(n) or not found.isdisjoint(n.outputs)])


def live_carry(regions: Sequence[tuple[Graph, int]], wanted: Sequence[bool], always: Iterable[Value],
               rest: Sequence[Value]) -> list[bool]:
    """Which parts of a carry the wanted ones depend on, from trip to trip. The carry is the first results of the last region
    and starts at the parameter of each region that is given with it; `always` (of any region) and `rest` are needed anyway."""
    now, body = list(wanted), regions[-1][0]
    always = list(always)
    while True:
        grown = now
        for g, at in regions:
            roots = [v for v in always if v in g.results]
            if g is body:
                roots += [*chosen(body.results[:len(now)], now), *rest]
            found = needed(g, roots)
            grown = either(grown, [v in found for v in g.params[at:at + len(now)]])
        if grown == now:
            return now
        now = grown


def shrunk(g: Graph, params: Sequence[bool], results: Sequence[bool]) -> Graph:
    """g with some of its parameters and results, and the nodes that those need."""
    kept = chosen(g.results, results)
    return Graph(tuple(chosen(g.params, params)), needed_nodes(g, kept), tuple(kept))


def unchanged_carry(g: Graph, at: int, count: int) -> list[bool]:
    """Which of the first `count` results are the parameters from `at` on, each its own."""
    return [r is p for r, p in zip(g.results[:count], g.params[at:at + count], strict=True)]


def with_constants(g: Graph, at: int, fixed: Sequence[bool], results: Sequence[bool] | None = None) -> Graph:
    """g with the marked of its parameters from `at` on moved before them, without the results that are marked as well."""
    carry, rest = g.params[at:at + len(fixed)], g.params[at + len(fixed):]
    params = [*g.params[:at], *chosen(carry, fixed), *others(carry, fixed), *rest]
    return rearranged(g, params, g.results if results is None else others(g.results, results))


# ---- what can fail --------------------------------------------------------------------------------
def can_fail(n: Node) -> bool:
    """Whether a node may raise an error: by an index out of range, or a negative power of integers; or is not known not to."""
    expr = element(n)
    return expr is None or _can_fail(expr)


def _can_fail(e: object) -> bool:
    if isinstance(e, tuple):
        return any(map(_can_fail, e))
    if isinstance(e, Bounded) or (isinstance(e, Apply) and e.fn == "power" and e.dtype in INTEGERS):
        return True
    return is_dataclass(e) and any(_can_fail(getattr(e, f.name)) for f in fields(e))
