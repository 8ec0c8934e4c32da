"""Decisions of the partition as data: which nodes one kernel computes, and what the library multiplies.

A decision is about one node of the graph that is partitioned, in which complex numbers are pairs, and products read transposed
operands themselves (`lower/preparation.py`). The node is named by its place, the same for equal graphs: its number in its
graph, after the numbers of node and region for each region around it.

Guarantees: a decision is obeyed or refused (ScheduleError says why); what no decision is about is decided by rules.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any, NoReturn

from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Graph, Node, Value

Place = tuple[int, ...]


@dataclass(frozen=True)
class Apart:
    """Let what the node computes be stored by a kernel of its own, which takes in what it reads. Nothing else is put there, nor
    is a sum over rows added up elsewhere.

    before: for i: y[i] = sin(exp(x[i]))                        after: for i: t[i] = exp(x[i]);  for i: y[i] = sin(t[i])
    """

    node: Place


@dataclass(frozen=True)
class Again:
    """Let every kernel that reads what the node computes compute it again.

    before: for i: t[i] = exp(x[i]);  for i: y[i] = t[i] + 1;  for i: z[i] = sum(t[j] * w[i, j] for j)
    after:  for i: y[i] = exp(x[i]) + 1;  for i: z[i] = sum(exp(x[j]) * w[i, j] for j)
    """

    node: Place


@dataclass(frozen=True)
class Join:
    """Let the kernel that computes the node `host` compute the node too, and store it if others read it: a kernel that reads
    the node, or one that only has the same loops.

    before: for i: t[i] = exp(x[i]);  for i: y[i] = t[i] + 1;  for i: z[i] = t[-i]
    after:  for i: { t[i] = exp(x[i]);  y[i] = t[i] + 1 };  for i: z[i] = t[-i]
    before: for i: y[i] = sum(x[i, j] for j);  for i: z[i] = max(x[i, j] for j)
    after:  for i: { y[i] = sum(x[i, j] for j);  z[i] = max(x[i, j] for j) }
    """

    node: Place
    host: Place


@dataclass(frozen=True)
class Generate:
    """Let loops multiply matrices, with what is computed on the way in and out in the same kernel.

    before: t = gemm(a, b);  for i, j: y[i, j] = tanh(t[i, j])
    after:  for i, j: y[i, j] = tanh(sum(a[i, k] * b[k, j] for k))
    """

    node: Place


@dataclass(frozen=True)
class Call:
    """Let the library multiply matrices.

    before: for i, j: y[i, j] = tanh(sum(a[i, k] * b[k, j] for k))
    after:  t = gemm(a, b);  for i, j: y[i, j] = tanh(t[i, j])
    """

    node: Place


@dataclass(frozen=True)
class InBlocks:
    """Let the chain of kernels that begins with the one of the node run block after block: `rows` positions at a time of the
    innermost axis that is divided, or, where that is None, as many as the caches hold.

    before: for i: t[i] = f(x[i]);  for i: y[i] = g(t[i])
    after:  for I by rows: { for i in I...I+rows: t[i-I] = f(x[i]);  for i in I...I+rows: y[i] = g(t[i-I]) }
    """

    node: Place
    rows: int | None = None


@dataclass(frozen=True)
class Whole:
    """Let each kernel of the chain that begins with the one of the node run for all of it: what InBlocks does, undone."""

    node: Place


@dataclass(frozen=True)
class Use:
    """Let a user's kernel, by its name, compute the node and all that it computes with it.

    before: t = gemm(a, b);  for i, j: y[i, j] = tanh(t[i, j])
    after:  y = mine(a, b)
    """

    node: Place
    kernel: str


Placing = Apart | Again | Join
Multiplying = Generate | Call
Chaining = InBlocks | Whole
Decision = Placing | Multiplying | Chaining | Use
FAMILIES: tuple[Any, ...] = Placing, Multiplying, Chaining, Use  # decisions of one family about a node exclude each other
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Apart, Again, Join, Generate, Call, InBlocks, Whole, Use)}


@dataclass(frozen=True)
class Taken:
    """A decision as it was taken, by rule or not, and what could be decided instead; `value`: what it is about; `kind`: equal
    where much the same is computed. None was taken where no kernel of a user is put, or where rules combine kernels later."""

    decision: Decision | None
    others: tuple[Decision, ...]
    value: Value
    kind: Any


def to_data(decisions: Iterable[Decision]) -> list[Any]:
    """Decisions for JSON: [name, fields] of each."""
    return json.loads(json.dumps([[type(x).__name__, dataclasses.asdict(x)] for x in decisions]))  # type: ignore[no-any-return]


def from_data(data: Iterable[Any]) -> tuple[Decision, ...]:
    """What `to_data` wrote. ValueError for a decision that is not known."""
    found = []
    for name, fields in data:
        if name not in _KINDS:
            raise ValueError(f"unknown decision {name!r}; known: {', '.join(_KINDS)}")
        found.append(_KINDS[name](**{k: tuple(x) if isinstance(x, list) else x for k, x in fields.items()}))
    return tuple(found)


def family_of(x: Decision) -> int:
    """The family that a decision is of."""
    return next(k for k, kinds in enumerate(FAMILIES) if isinstance(x, kinds))


def refuse(n: Node, decision: Decision, why: str) -> NoReturn:
    raise ScheduleError(f"{f'{n.source}: ' if n.source else ''}{decision}: {n.op.name}: {why}.")


class Decided:
    """The decisions about the nodes of one graph, which is `at` a place of the whole."""

    def __init__(self, g: Graph, decisions: Iterable[Decision], at: Place = ()) -> None:
        self.g, self.at = g, at
        self.used: set[Decision] = set()
        self._number = {n: k for k, n in enumerate(g.nodes)}
        self._now: dict[Node, Node] = {}
        self._about: dict[tuple[Node, int], Decision] = {}
        for x in decisions:
            *around, k = x.node
            if tuple(around) == at and 0 <= k < len(g.nodes) and not isinstance(x, Chaining):
                self.used.add(x)
                known = self._about.setdefault((g.nodes[k], family_of(x)), x)
                if known != x:
                    refuse(g.nodes[k], x, f"{known} says otherwise")

    def placing(self, n: Node) -> Placing | None:
        """Where the node is computed, where that is decided."""
        found = self._about.get((n, FAMILIES.index(Placing)))
        return found if isinstance(found, Placing) else None

    def multiplying(self, n: Node) -> Multiplying | None:
        """What multiplies matrices for the node, where that is decided."""
        found = self._about.get((n, FAMILIES.index(Multiplying)))
        return found if isinstance(found, Multiplying) else None

    def uses(self) -> list[tuple[Node, Use]]:
        """The kernels of users that are decided, and the nodes of which they make the first results."""
        return [(n, x) for (n, _), x in self._about.items() if isinstance(x, Use)]

    def place(self, n: Node) -> Place:
        """Where a node is in the whole."""
        return (*self.at, self._number[n])

    def replaced(self, old: Node, new: Node) -> None:
        """Another node now stands for one."""
        self._number[new] = self._number[old]

    def became(self, old: Node, new: Node) -> None:
        """Another node now stands for one, and what is decided there is of it."""
        self.replaced(old, new)
        self._now[old] = new
        for family in range(len(FAMILIES)):
            if (old, family) in self._about:
                self._about[new, family] = self._about.pop((old, family))

    def check_left(self, g: Graph) -> None:
        """ScheduleError where a node that is decided about is no longer in the graph."""
        left = set(g.nodes)
        for (n, _), x in self._about.items():
            if n not in left and not isinstance(x, Use):
                refuse(n, x, "the kernel of a user computes the node")

    def node(self, at: Place) -> Node | None:
        """The node of this graph that is at a place of the whole."""
        *around, k = at
        found = self.g.nodes[k] if tuple(around) == self.at and 0 <= k < len(self.g.nodes) else None
        return None if found is None else self._now.get(found, found)
