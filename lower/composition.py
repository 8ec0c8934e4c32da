"""From the stages of a region to scalar expressions: an op's loop rule with its producers' rules put in where they load.

Guarantees: the expression of a value at an index is one shared object however often it is asked for; a value that is
kept (a local, a row) is read from where it is kept; every `Bounded` carries a site: `sites[site]` is its stage's number.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import field

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Apply, Bounded, Expr, Index, Literal, Load, LoopContext, less, transform, walk
from loopwright.ir.types import I64

Position = tuple[Expr, ...]
Load_ = Callable[[int, Position], Expr]


def expression(node: Node, index: Position, load: Load_, fresh: Callable[[], Index]) -> Expr:
    """The element of node's result at index, by its op's loop rule."""
    assert node.op.loop is not None, f"{node.op} has no loop rule"
    types = tuple(v.type for v in node.inputs)
    return node.op.loop(LoopContext(types, node.outputs[0].type, load, fresh), index, **node.attrs)


def fresh_indices(prefix: str = "k") -> Callable[[], Index]:
    """A supply of loop variables."""
    numbers: Iterator[int] = itertools.count()
    return lambda: Index(f"{prefix}{next(numbers)}")


def reads(node: Node, index: Position, fresh: Callable[[], Index]) -> tuple[Expr, list[tuple[int, Position]]]:
    """The op's own expression over bare loads, and at which indices it reads each operand."""
    found: dict[tuple[int, Position], None] = {}

    def load(k: int, at: Position) -> Expr:
        found[k, at] = None
        return Load(k, at, node.inputs[k].type.dtype)

    return expression(node, index, load, fresh), list(found)


def still_checked(e: Expr, checks: list[Expr]) -> Expr:
    """e with every check of an index at which it was read: a producer of rows that are all the same does not look at it."""
    if checks:
        found = set(walk(e))
        for check in checks:
            e = e if check in found else Apply("select", (less(Literal(-1, I64), check), e, e), e.dtype)
    return e


@dataclass
class Composer:
    """Expressions of a region's values. `kept` says how to read a value that is not computed anew, if it is readable
    at that index."""

    region: Graph
    names: dict[Value, str]  # of the parameters
    kept: Callable[[Value, Position], Expr | None]
    fresh: Callable[[], Index] = field(default_factory=fresh_indices)
    sites: list[int] = field(default_factory=lambda: [-1])  # site 0 is no stage's

    def __post_init__(self) -> None:
        self._producer: dict[Value, Node] = {n.outputs[0]: n for n in self.region.nodes}
        self._known: dict[tuple[Value, Position], Expr] = {}
        self._stage = {n: k for k, n in enumerate(self.region.nodes)}

    def read(self, v: Value, index: Position) -> Expr:
        """The element of v at index, as a consumer sees it."""
        if v in self.names:
            return self._share(v, index, lambda: Load(self.names[v], index, v.type.dtype))
        kept = self.kept(v, index)
        return self.compute(v, index) if kept is None else kept

    def compute(self, v: Value, index: Position) -> Expr:
        """The element of v at index, computed."""
        node = self._producer[v]
        return self._share(v, index, lambda: self._by_rule(node, index))

    def _share(self, v: Value, index: Position, make: Callable[[], Expr]) -> Expr:
        known = self._known.get((v, index))
        if known is None:
            known = self._known[v, index] = make()
        return known

    def _by_rule(self, node: Node, index: Position) -> Expr:
        loaded: dict[int, Expr] = {}

        def load(k: int, at: Position) -> Expr:
            e = self.read(node.inputs[k], tuple([i if isinstance(i, Index) else transform(i, number) for i in at]))
            e = still_checked(e, [transform(i, number) for i in at if isinstance(i, Bounded) and i.site == 0])
            loaded[id(e)] = e
            return e

        def number(e: Expr) -> Expr | None:
            if id(e) in loaded:
                return e
            if isinstance(e, Bounded) and e.site == 0:
                return Bounded(transform(e.index, number), e.extent, e.axis, self._site(node))
            return None

        return transform(expression(node, index, load, self.fresh), number)

    def _site(self, node: Node) -> int:
        stage = self._stage[node]
        if stage not in self.sites:
            self.sites.append(stage)
        return self.sites.index(stage)
