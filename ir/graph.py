"""The graph: an immutable, closed, typed SSA program.

Guarantees: `Value` and `Node` compare by identity; `Graph` compares by structure, through one canonical numbering of
values and symbols (`Graph.key`); node order is execution order; a graph uses no value that is not its own.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from loopwright.ir.attributes import Attributes, attributes_key, extents_in, has_extents, map_extents
from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Dim, Extent, Shape, substitute, symbol, symbol_of, symbols_in
from loopwright.ir.facts import Constraint, Facts
from loopwright.ir.op import Op
from loopwright.ir.printer import print_graph
from loopwright.ir.source import Source
from loopwright.ir.types import ArrayType


# Values and nodes are immutable, as type checkers enforce: frozen dataclasses take thrice the time to make, a tenth of a trace.
class Value:
    """A name for one array. Identity is the name."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type: Final = type

    def __repr__(self) -> str:
        return f"Value({self.type})"


class Node:
    """One application of an op. `source` is the user's line, for messages only: it is no part of the structure."""

    __slots__ = ("attrs", "inputs", "op", "outputs", "regions", "source")

    def __init__(self, op: Op, inputs: tuple[Value, ...], attrs: Attributes, outputs: tuple[Value, ...],
                 regions: tuple[Graph, ...] = (), source: Source | None = None) -> None:
        self.op: Final = op
        self.inputs: Final = inputs
        self.attrs: Final = attrs
        self.outputs: Final = outputs
        self.regions: Final = regions
        self.source: Final = source


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """`graph<symbols>(params) where constraints { nodes; return results }`."""

    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    constraints: tuple[Constraint, ...] = field(default=())

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols it uses, in order of first appearance: parameters first, then attributes and constraints.

        Those that stand alone somewhere come first, so that their order does not depend on their names. The others, met
        inside polynomials only (no entry can bind those), are told apart by name where their polynomials do not.
        """
        found: dict[str, None] = {}
        mixed: dict[Dim, None] = {}
        for x in self.extents():
            if (name := symbol_of(x)) is not None:
                found.setdefault(name)
            elif isinstance(x, Dim):
                mixed.setdefault(x)
        for x in mixed:
            found.update(dict.fromkeys(sorted(symbols_in(x))))
        return tuple(found)

    @cached_property
    def bound(self) -> frozenset[str]:
        """The symbols that its nodes bind to numbers, at any depth. No symbol is bound twice on the way to a region."""
        return frozenset().union(*(binding(n) for n in self.nodes), *(r.bound for n in self.nodes for r in n.regions))

    @cached_property
    def free_symbols(self) -> tuple[str, ...]:
        """The symbols that it takes from its arguments or from the graph around it."""
        return tuple([s for s in self.symbols if s not in self.bound]) if self.bound else self.symbols

    @cached_property
    def has_effects(self) -> bool:
        """Whether some node, at any depth, does more than give results."""
        return any(map(acts, self.nodes))

    def extents(self) -> Iterator[Extent]:
        types: set[int] = set()  # few, many times: each is read once
        for v in self.params:
            yield from _fresh_shape(v.type, types)
        for node in self.nodes:
            for attr in node.attrs.values():
                yield from extents_in(attr)
            for region in node.regions:
                yield from (symbol(s) for s in region.symbols)
            for v in node.outputs:
                yield from _fresh_shape(v.type, types)
        for c in self.constraints:
            yield from (c.left, c.right)

    @cached_property
    def key(self) -> Any:
        """Equal for two graphs exactly when they differ in nothing but the names of values and symbols."""
        return _structure(self, _Renaming({s: symbol(f"#{i}") for i, s in enumerate(self.symbols)}))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Graph) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    @cached_property
    def facts(self) -> Facts:
        """What its constraints say about its symbols."""
        facts = Facts()
        for c in self.constraints:
            facts.learn(c)
        return facts

    def size(self) -> int:
        """The number of nodes, those inside regions included."""
        return len(self.nodes) + sum(r.size() for n in self.nodes for r in n.regions)

    def __str__(self) -> str:
        return print_graph(self)

    __repr__ = __str__


def _fresh_shape(t: ArrayType, seen: set[int]) -> Shape:
    """The shape of a type that is not among those seen, by identity; () for another."""
    if id(t) in seen:
        return ()
    seen.add(id(t))
    return t.shape


def binding(n: Node) -> tuple[str, ...]:
    """The symbol that n binds, if it binds one."""
    if n.op.binds is None:
        return ()
    name = symbol_of(n.attrs[n.op.binds])
    assert name is not None, f"{n.op} must bind one symbol"
    return (name,)


def acts(n: Node) -> bool:
    """Whether n, or a node inside it, does more than give results."""
    return n.op.effect or any(r.has_effects for r in n.regions)


def silenced(n: Node) -> Node:
    """n, which has results, without the effects inside it."""
    return Node(n.op, n.inputs, n.attrs, n.outputs, tuple(map(silent, n.regions)), n.source) if acts(n) else n


def silent(g: Graph) -> Graph:
    """The results of g alone: for a part of a program that is run a second time, so that no effect is seen twice."""
    if not g.has_effects:
        return g
    return Graph(g.params, tuple([silenced(n) for n in g.nodes if not n.op.effect]), g.results, g.constraints)


class _Renaming:
    """Keys of types and attributes with symbols renamed; graphs repeat few types often, so those are kept."""

    def __init__(self, names: Mapping[str, Extent]) -> None:
        self.names = names
        self.types: dict[ArrayType, Any] = {}

    def type(self, t: ArrayType) -> Any:
        known = self.types.get(t)
        if known is None:
            known = self.types[t] = tuple([substitute(x, self.names) for x in t.shape]), t.dtype, t.weak
        return known

    def attributes(self, attrs: Attributes) -> Any:
        if self.names and attrs:
            attrs = {k: map_extents(a, self.names) for k, a in attrs.items()}
        return attributes_key(attrs)

    def constraint(self, c: Constraint) -> Constraint:
        return Constraint(c.relation, substitute(c.left, self.names), substitute(c.right, self.names))


def _structure(g: Graph, to: _Renaming) -> Any:
    number: dict[Value, int] = {v: i for i, v in enumerate(g.params)}
    nodes = []
    for n in g.nodes:
        nodes.append((n.op, tuple([number[v] for v in n.inputs]), to.attributes(n.attrs),
                      tuple([_structure(r, to) for r in n.regions]), tuple([to.type(v.type) for v in n.outputs])))
        for v in n.outputs:
            number[v] = len(number)
    facts = frozenset(map(to.constraint, g.constraints))
    return tuple([to.type(v.type) for v in g.params]), tuple(nodes), tuple([number[v] for v in g.results]), facts


class _Types:
    """Types with symbols replaced by sizes, by the identity of those given: a graph has few, many times."""

    def __init__(self, to: Mapping[str, Extent]) -> None:
        self.to = to
        self.known: dict[int, tuple[ArrayType, ArrayType]] = {}  # with the type itself, so that nothing else gets its id
        self.made: dict[Any, ArrayType] = {}  # one object for each type

    def __call__(self, t: ArrayType) -> ArrayType:
        known = self.known.get(id(t))
        if known is None:
            shape = tuple([x if x.__class__ is int else substitute(x, self.to) for x in t.shape])
            key = shape, t.dtype, t.weak
            made = self.made.get(key)
            if made is None:
                made = self.made[key] = t if shape == t.shape else ArrayType(*key)
            known = self.known[id(t)] = t, made
        return known[1]


def substitute_graph(g: Graph, to: Mapping[str, Extent]) -> Graph:
    """The same graph with symbols replaced by sizes."""
    new: dict[Value, Value] = {}
    types = _Types(to)

    def fresh(v: Value) -> Value:
        type = types(v.type)
        found = new[v] = v if type is v.type else Value(type)
        return found

    params = tuple([fresh(v) for v in g.params])
    at = new.__getitem__
    nodes = [Node(n.op, tuple(map(at, n.inputs)), n.attrs and {k: map_extents(a, to) for k, a in n.attrs.items()},
                  tuple(map(fresh, n.outputs)), n.regions and tuple([substitute_graph(r, to) for r in n.regions]), n.source)
             for n in g.nodes]
    constraints = tuple(Constraint(c.relation, substitute(c.left, to), substitute(c.right, to)) for c in g.constraints)
    return Graph(params, tuple(nodes), tuple([new.get(v, v) for v in g.results]), constraints)


_set_type = Value.__dict__["type"].__set__


def settle(params: tuple[Value, ...], nodes: list[Node], to: Mapping[str, Extent]) -> list[Node]:
    """The nodes of a graph that is not finished, so that no one else holds its values, with symbols replaced by sizes: values
    get their types in place, which new values, and new nodes to read those, would take several times as long for."""
    types = _Types(to)
    for v in (*params, *[v for n in nodes for v in n.outputs]):
        type = types(v.type)
        if type is not v.type:
            _set_type(v, type)
    return [n if not n.regions and not (n.attrs and any(map(has_extents, n.attrs.values()))) else
            Node(n.op, n.inputs, {k: map_extents(a, to) for k, a in n.attrs.items()}, n.outputs,
                 n.regions and tuple([substitute_graph(r, to) for r in n.regions]), n.source) for n in nodes]


def symbols_of(n: Node) -> set[str]:
    """Every symbol that a node uses, and that which it binds; those that its regions bind aside."""
    return {*Graph(n.inputs, (n,), n.outputs).free_symbols, *binding(n)}


_numbers = itertools.count(1)


def readers_of(g: Graph) -> dict[Value, list[Node]]:
    """The nodes that read each value, in order: twice, if one does so twice."""
    found: dict[Value, list[Node]] = {}
    for n in g.nodes:
        for v in n.inputs:
            found.setdefault(v, []).append(n)
    return found


def fresh_symbol() -> Dim:
    """A symbol that no other graph has, for a number that a node binds. No user can declare its name."""
    return symbol(f"trips.{next(_numbers)}")


def renewed(g: Graph) -> Graph:
    """g with new names for the symbols that its nodes bind, so that it can be entered in a graph that has it already."""
    return substitute_graph(g, {s: fresh_symbol() for s in sorted(g.bound)}) if g.bound else g
