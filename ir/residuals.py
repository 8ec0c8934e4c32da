"""What a backward pass keeps of the forward pass, and what it computes again.

Guarantees: no such choice costs less, by bytes kept and operations done again; only maps that cannot fail are computed again
(never reductions, contractions, sorts, library calls, loops), so results are the same bits (where a second derivative goes
through a loop, up to the order in which its cotangents are added). What is at hand anyway costs nothing. The choice holds for
all sizes; its costs are those at the sizes that the trace was made for. What is computed again comes from something kept in a
few operations: what long chains compute again would have to be kept while they run.

It is a minimum cut. Each value is two vertices, with an arc between them that costs what it costs to keep the value; an arc
from the source to the first costs what it costs to compute it again; what is wanted must be on the sink's side.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from loopwright.ir.attributes import attributes_key
from loopwright.ir.cost import element, weight
from loopwright.ir.cuts import UNBOUNDED, Network
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Apply, Bounded, Expr, Load, PartitionPoint, Prefix, Reduce, Scatter, parts, walk
from loopwright.ir.ops.loop_rewriting import of_numbers
from loopwright.ir.source import Source
from loopwright.ir.types import COMPLEX, INTEGERS

PER_BYTE = 4  # operations that keeping a byte is worth: it is written, read, and takes memory meanwhile
MOST_OPERATIONS = 64  # for an element, one after another: what is far from all that is kept is not computed again
UNKNOWN = 64  # a size that is known only when the program runs


class Sizes(dict[str, int]):
    """The sizes that a trace was made for; UNKNOWN for others."""

    def __missing__(self, name: str) -> int:
        return UNKNOWN


@dataclass(frozen=True)
class Kept:
    """One value that is kept: its type, what made it ("argument" where nothing did), and the user's line."""

    value: Value
    made_by: str
    source: Source | None


@dataclass(frozen=True)
class Choice:
    """What somebody, at `source`, wants of values that are not at hand, what of those is kept, and the nodes that are run
    again on it and on what is at hand (`held`), in no order."""

    source: Source | None
    wanted: tuple[Value, ...]
    kept: tuple[Kept, ...]
    held: tuple[Value, ...]
    again: tuple[Node, ...]

    @property
    def operands(self) -> list[Value]:
        """All that is read."""
        return [*self.held, *(k.value for k in self.kept)]


def total(values: Iterable[Value]) -> Extent:
    """The bytes of values."""
    return sum((v.type.size * v.type.dtype.itemsize for v in values), 0)


class Forward:
    """The values of a graph, and what computing each again would cost. sizes: of the call at hand. unkept: which values must be
    computed again, whatever it takes."""

    def __init__(self, g: Graph, at_hand: Iterable[Value], sizes: Mapping[str, int],
                 unkept: Callable[[Value], bool] = lambda v: False) -> None:
        self.at_hand, self.sizes, self.unkept = set(at_hand), Sizes(sizes), unkept
        self.producer = {v: n for n in g.nodes for v in n.outputs}
        self.again: dict[Value, int] = {}  # operations, where it can be computed again
        self._known: dict[Any, int | None] = {}
        self._weigh(g.nodes)

    def _weigh(self, nodes: Iterable[Node]) -> None:
        depth: dict[Value, int] = {}
        patterns: set[Value] = set()
        for n in nodes:
            each, before = self._operations(n), max([depth.get(v, 0) for v in n.inputs], default=0)
            if of_numbers(n, patterns):
                patterns.update(n.outputs)
                each = 0
            for v in n.outputs:
                if self.unkept(v):
                    self.again[v] = 0
                elif each is not None and before + each <= MOST_OPERATIONS:
                    self.again[v] = each * evaluate(v.type.size, self.sizes)
                    depth[v] = 0 if v in self.at_hand else before + each

    def _operations(self, n: Node) -> int | None:
        """Operations for one element of the result of a map that cannot fail; None for other nodes, and for those with rules
        of their own, which say what is kept."""
        if n.regions or n.op.loop is None or n.op.expand is not None:
            return None
        key = n.op, tuple([(v.type.dtype, v.type.rank) for v in n.inputs]), attributes_key(n.attrs)
        if key not in self._known:
            expr = element(n)
            self._known[key] = None if expr is None else operations(expr)
        return self._known[key]

    def choose(self, wanted: Collection[Value], source: Source | None) -> Choice:
        """What to keep, and what to compute again from it and what is at hand, to have the wanted values; source: for whom."""
        kept, again = self._cut(wanted)
        entries = [Kept(v, n.op.name, n.source) if (n := self.producer.get(v)) else Kept(v, "argument", None) for v in kept]
        read = dict.fromkeys([*wanted, *(u for n in again for u in n.inputs)])
        return Choice(source, tuple([v for v in wanted if v not in self.at_hand]), tuple(entries),
                      tuple([v for v in read if v in self.at_hand]), tuple(again))

    def _cut(self, wanted: Collection[Value]) -> tuple[list[Value], list[Node]]:
        """Values to keep, and nodes to run again."""
        found = self._candidates(wanted)
        number = {v: 2 + 2 * k for k, v in enumerate(found)}
        network = Network(2 + 2 * len(found))
        for v, at in number.items():
            network.add(0, at, self.again.get(v, UNBOUNDED))
            network.add(at, at + 1, self._keeping(v))
            for u in self.producer[v].inputs if v in self.again else ():
                if u in number:
                    network.add(number[u] + 1, at, UNBOUNDED)
        for v in wanted:
            if v in number:
                network.add(number[v] + 1, 1, UNBOUNDED)
        needs = network.sink_side(0, 1)
        kept = [v for v, at in number.items() if needs[at + 1] and not needs[at]]
        again = [v for v, at in number.items() if needs[at]][::-1]
        return kept, list(dict.fromkeys([self.producer[v] for v in again]))

    def _candidates(self, wanted: Iterable[Value]) -> list[Value]:
        """The values that can be kept, or computed again, for the wanted ones."""
        found = dict.fromkeys([v for v in wanted if v not in self.at_hand])
        todo = list(found)
        while todo:
            v = todo.pop()
            for u in self.producer[v].inputs if v in self.again else ():
                if u not in found and u not in self.at_hand:
                    found[u] = None
                    todo.append(u)
        return list(found)

    def _keeping(self, v: Value) -> int:
        if self.unkept(v):
            return UNBOUNDED
        return max(1, PER_BYTE * v.type.dtype.itemsize * evaluate(v.type.size, self.sizes))


def operations(e: Expr) -> int | None:
    """Weighted operations of one element, those that compute an index aside; None where it is more than a map of elements at
    known places, or may fail."""
    total, todo, seen = 0, [e], set[int]()
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        match x:
            case Reduce() | Prefix() | PartitionPoint() | Scatter() | Bounded():
                return None
            case Load(index=index):
                if any(isinstance(y, Load | Bounded) for i in index for y in walk(i)):
                    return None
            case Apply(fn, args, dtype):
                if fn == "power" and dtype in INTEGERS:
                    return None
                total += weight(fn) * (4 if dtype in COMPLEX else 1)
                todo += args
            case _:
                todo += parts(x)
    return total
