"""What one kernel computes, while the groups of a graph are being made: nodes, and where their loops read values."""
from __future__ import annotations

from dataclasses import field

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Node, Value
from loopwright.ir.loops import Expr, Index, Load, Prefix, Reduce, Scatter, When, walk
from loopwright.ir.ops.structural import transpose
from loopwright.lower.composition import Position


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes. `positions`: where its loops read each value that it computes."""

    root: Node
    nodes: list[Node]
    positions: dict[Value, dict[Position, None]]
    expr: Expr
    index: Position
    results: list[Value]
    level: int | None = None  # the number of the root's axes that rows share, once a row value joined
    last_axis: bool | None = None  # whether its reductions run over their operand's last axis
    readers: set[Group] = field(default_factory=set)  # groups that read its results
    depths: dict[Node, int] = field(default_factory=dict)  # how many nodes lie between one and what is stored; not of free ones
    dear: int = 0  # how many cost as much as an exponential

    def makes(self, v: Value) -> bool:
        """Whether other groups may read v from this one: of a library call or control flow that is every output."""
        return v in self.results or v in self.root.outputs

    @property
    def has_no_lanes(self) -> bool:
        """Whether it is a running fold along the last axis: vectors would run across the others."""
        return isinstance(self.expr, Prefix) and self.expr.last == self.index[-1]

    def spans(self, v: Value) -> bool:
        """Whether v has as many positions along each axis as the group's loops."""
        return v.type.shape == self.root.outputs[0].type.shape[:v.type.rank]

    def loops(self) -> list[Index]:
        """The indices of the loops around what is computed, from the outside."""
        over = [k for k, _ in self.expr.over] if isinstance(self.expr, Reduce | Scatter) else []
        return [*self._around(), *over]

    def depth(self) -> int:
        """How many loops are around what it reads most often: a scatter's updates are not in those that fill its base."""
        return max(len(self.index), len(self.expr.over)) if isinstance(self.expr, Scatter) else len(self.loops())

    def is_spread(self, p: Position) -> bool:
        """Whether a value that is read there is read anew for each position of a loop outside of its own."""
        around, own = self._around(), _indices(p)
        return any(k not in own and not own.isdisjoint(around[at:]) for at, k in enumerate(around))

    def repeats(self, p: Position) -> bool:
        """Whether some loop around what is read there is not in its index. Around a fold that is not the root's own, of which
        the index has another name, are those of its rows."""
        around, own = self.loops(), _indices(p)
        if self.level and not own.issubset(around):
            return not own.issuperset(self._around()[:self.level])
        return len(around) > sum(isinstance(e, Index) for e in p)

    def is_folded_again(self, p: Position) -> bool:
        """The same of what a fold reads at its own index, inside of all other loops but the last, along which vectors go. Only
        the root's own indices have its names."""
        around, own = self._around(), _indices(p)
        return not own.issubset(around) and not own.issuperset(around[:-1])

    def _around(self) -> list[Index]:
        return [k for k in self.index if isinstance(k, Index)]


def _indices(p: Position) -> set[Index]:
    return {x for e in p for x in walk(e) if isinstance(x, Index)}


@dataclass(frozen=True)
class Form:
    """A node's own expression at its own axes, and what that says."""

    expr: Expr
    index: Position

    @property
    def is_map(self) -> bool:
        return not isinstance(self.expr, Reduce | Prefix | Scatter)

    def finders(self) -> set[int]:
        """The operands of a map that say where others are read, alike along its last axis."""
        found = walk(self.expr)
        places = [part for x in found for part in (x.index if isinstance(x, Load) else [x.cond] if isinstance(x, When) else [])]
        loads = [x for x in found if isinstance(x, Load)]
        varying = {x.array for x in loads if not set(self.index[-1:]).isdisjoint(walk(x))}
        return {int(x.array) for part in places for x in walk(part) if isinstance(x, Load)} - varying


def turns_rows(n: Node) -> bool:
    """Whether it is a transpose after which other elements than before lie beside each other."""
    return n.op is transpose and n.attrs["perm"][-1:] not in ((), (len(n.attrs["perm"]) - 1,))
