"""Kernels that users bring as ways to compute what a graph holds: patterns, and where they occur.

Guarantees: a pattern occurs where a graph does the same operations with the same attributes, whatever values are its operands
and whatever numbers its sizes; a kernel is put there only where a decision says so, and where what it demands of sizes is known
to hold.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from loopwright.ir.attributes import Attributes, attributes_key, map_extents
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, substitute, symbol_of
from loopwright.ir.elimination import remove_dead
from loopwright.ir.facts import Constraint, Facts
from loopwright.ir.graph import Graph, Node, Value, acts
from loopwright.ir.types import ArrayType
from loopwright.lower.decisions import Decided, Place, Taken, Use, refuse
from loopwright.lower.hoisting import hoist
from loopwright.lower.kernel import kernel, region_of
from loopwright.lower.preparation import prepare


@dataclass(frozen=True)
class Pattern:
    """What a user's kernel computes: `graph`, over its operands, with its sizes as symbols. `conditions`: on those sizes.
    `make`: the attributes of a kernel for operands and results of these types, None where they do not fit."""

    name: str
    graph: Graph
    conditions: tuple[Constraint, ...]
    make: Callable[[Sequence[ArrayType], Sequence[ArrayType]], Attributes | None] = field(compare=False)


@dataclass(frozen=True)
class Occurrence:
    """Where a pattern is: the nodes, in their order, the operands, maybe one twice, the results."""

    pattern: Pattern
    nodes: tuple[Node, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]

    def attrs(self, params: Sequence[Value]) -> Attributes | None:
        """Those of a kernel with these parameters, among which the operands are; None where the user's does not fit."""
        made = self.pattern.make([v.type for v in self.operands], [v.type for v in self.results])
        numbers = tuple([params.index(v) for v in self.operands])
        return made if made is None or numbers == tuple(range(len(params))) else {**made, "operands": numbers}


_patterns: dict[str, Pattern] = {}


def register(pattern: Pattern) -> None:
    """Let a kernel be one of the ways to compute its pattern. One of the same name is replaced."""
    _patterns[pattern.name] = pattern


# ---- where they are ---------------------------------------------------------------------------------
def find(pattern: Pattern, g: Graph, blas: bool, last: Node, facts: Facts) -> Occurrence | None:
    """The occurrence of a pattern in a prepared graph of which `last` makes the first result."""
    whole = _prepared(pattern, blas)
    if not any(n.op is last.op and whole.results[0] in n.outputs for n in whole.nodes):
        return None
    found = _Match(whole, g)
    first = next((v for v in last.outputs if found.follow(whole.results[0], v)), None)
    if first is None or not all(map(found.somewhere, whole.results[1:])):
        return None
    sizes = found.sizes()
    if sizes is None or not all(_holds(c, sizes, facts) for c in pattern.conditions):
        return None
    inside = set(found.nodes.values())
    return Occurrence(pattern, tuple([n for n in g.nodes if n in inside]), tuple([found.same[v] for v in whole.params]),
                      tuple([found.same[v] for v in whole.results]))


@lru_cache
def _prepared(pattern: Pattern, blas: bool) -> Graph:
    return prepare(hoist(pattern.graph) if blas else pattern.graph, blas)


def _holds(c: Constraint, sizes: Mapping[str, Extent], facts: Facts) -> bool:
    return facts.prove(c.relation, substitute(c.left, sizes), substitute(c.right, sizes)) is True


class _Match:
    """A pattern laid over a graph: `same` has the value for each of the pattern's, `nodes` the node for each."""

    def __init__(self, pattern: Graph, g: Graph) -> None:
        self.pattern, self.g = pattern, g
        self.same: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self._of_pattern, self._made = ({v: n for n in x.nodes for v in n.outputs} for x in (pattern, g))

    def follow(self, p: Value, v: Value) -> bool:
        """Whether v is computed as p is; nothing is kept of what is not."""
        before = dict(self.same), dict(self.nodes)
        todo = [(p, v)]
        while todo:
            p, v = todo.pop()
            if p in self.same:
                fits = self.same[p] is v
            else:
                self.same[p] = v
                a, b = self._of_pattern.get(p), self._made.get(v)
                fits = a is None or (b is not None and _alike(a, b) and a.outputs.index(p) == b.outputs.index(v))
                if a is not None and b is not None and fits:
                    self.nodes[a] = b
                    todo += zip(a.inputs, b.inputs, strict=True)
            if not fits:
                self.same, self.nodes = before
                return False
        return True

    def somewhere(self, p: Value) -> bool:
        """Whether some value of the graph is computed as p is, with what is known already."""
        return any(self.follow(p, v) for n in self.g.nodes for v in n.outputs)

    def sizes(self) -> dict[str, Extent] | None:
        """What each symbol of the pattern is; None where types or attributes do not agree with that."""
        if any(p not in self.same for p in self.pattern.params):
            return None
        pairs = [(p.type, v.type) for p, v in self.same.items()]
        if any(p.dtype != v.dtype or p.rank != v.rank for p, v in pairs):
            return None
        env: dict[str, Extent] = {}
        axes = [(n, size) for p, v in pairs for n, size in zip(p.shape, v.shape, strict=True)]
        for n, size in axes:
            if (s := symbol_of(n)) is not None:
                env.setdefault(s, size)
        known = all(substitute(n, env) == size for n, size in axes)
        return env if known and all(_same_attributes(a, b, env) for a, b in self.nodes.items()) else None


def _alike(a: Node, b: Node) -> bool:
    return a.op is b.op and len(a.inputs) == len(b.inputs) and len(a.outputs) == len(b.outputs) and not (a.regions or b.regions)


def _same_attributes(a: Node, b: Node, env: Mapping[str, Extent]) -> bool:
    return bool(attributes_key({k: map_extents(x, env) for k, x in a.attrs.items()}) == attributes_key(b.attrs))


def ways(n: Node, blas: bool) -> Iterator[Attributes]:
    """The users' kernels that compute what a kernel does."""
    region = n.regions[0]
    for pattern in tuple(_patterns.values()):
        last = next((m for m in region.nodes if region.results[0] in m.outputs), None)
        found = None if last is None else find(pattern, region, blas, last, Facts())
        if found is not None and found.results == region.results and set(found.operands) == set(region.params):
            attrs = found.attrs(region.params)
            if attrs is not None:
                yield attrs


def is_declared(n: Node) -> bool:
    """Whether the code of a kernel is that of a user's kernel as this process has it."""
    numbers = n.attrs.get("operands", range(len(n.inputs)))
    operands, results = [n.inputs[k].type for k in numbers], [v.type for v in n.outputs]
    made = [p.make(operands, results) for p in _patterns.values()]
    return any(m is not None and m["code"] == n.attrs["code"] for m in made)


# ---- decisions --------------------------------------------------------------------------------------
def occurrences(g: Graph, blas: bool, at: Place) -> list[Taken]:
    """Every user's kernel that could be put into a prepared graph, which is at a place of the whole."""
    found = []
    for pattern in tuple(_patterns.values()):
        for k, n in enumerate(g.nodes):
            x = find(pattern, g, blas, n, g.facts)
            if x is not None and _with_kernel(g, n, x) is not None:
                found.append(Taken(None, (Use((*at, k), pattern.name),), n.outputs[0], pattern.name))
    return found


def with_users_kernels(g: Graph, blas: bool, decided: Decided) -> Graph:
    """A prepared graph with the kernels that are decided in place of what they compute. ScheduleError where one does not
    fit."""
    for n, x in decided.uses():
        pattern = _patterns.get(x.kernel)
        if pattern is None:
            refuse(n, x, f"no kernel {x.kernel} with instead_of= is declared in this process")
        found = find(pattern, g, blas, n, g.facts) if n in g.nodes else None
        made = None if found is None else _with_kernel(g, n, found)
        if made is None:
            refuse(n, x, f"what is computed there is not what {x.kernel} computes, or another kernel computes some of it, or "
                         f"sizes are not known to be as it demands")
        g, put = made
        decided.replaced(n, put)
    decided.check_left(g)
    return g


def _with_kernel(g: Graph, last: Node, x: Occurrence) -> tuple[Graph, Node] | None:
    """g with a kernel in the place of `last` for what occurs there, and that kernel; None where it cannot stand there."""
    region, outside = region_of(x.nodes, x.results)
    if len(set(x.results)) < len(x.results) or set(outside) != set(x.operands):
        return None
    attrs = x.attrs(outside)
    if attrs is None:
        return None
    put = Node(kernel, outside, attrs, x.results, (region,), last.source)
    nodes = [put if n is last else n for n in g.nodes if n is last or set(n.outputs).isdisjoint(x.results)]
    made = _ordered(Graph(g.params, tuple(nodes), g.results, g.constraints))
    return None if made is None else (remove_dead(made), put)


def _ordered(g: Graph) -> Graph | None:
    """g with every node after those that it reads, else in the order that they had; None where nodes wait for each other, or
    those with effects would change places."""
    producer = {v: n for n in g.nodes for v in n.outputs}
    done: dict[Node, None] = {}
    for start in g.nodes:
        todo, entered = [start], set[Node]()
        while todo:
            n = todo[-1]
            waiting = [producer[v] for v in n.inputs if v in producer and producer[v] not in done]
            if not entered.isdisjoint(waiting):
                return None
            entered.add(n)
            if waiting:
                todo.append(waiting[0])
            else:
                done[todo.pop()] = None
                entered.discard(n)
    nodes = tuple(done)
    kept = [n for n in nodes if acts(n)] == [n for n in g.nodes if acts(n)]
    return Graph(g.params, nodes, g.results, g.constraints) if kept else None
