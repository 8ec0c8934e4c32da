"""The memory plan: where every value of a partitioned graph lives, over symbolic sizes.

Guarantees: two values share scratch bytes only when the one is dead before the other is stored; a result lives in the
caller's array; a value that is a reshape of another has that one's bytes. Scratch belongs to one activation. Control
flow gets the memory that its regions need, once for all its trips, as one slot of the graph around it.

A slot may serve values whose sizes cannot be compared: it is as large as the largest of them, which costs no more than a
slot for each. Which of the free slots serves a value is judged at a nominal size of every symbol.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, floordiv, maximum, summed
from loopwright.ir.graph import Graph, Node, Value
from loopwright.lower.control import blocks, carry_count, is_control, sized, strips
from loopwright.lower.versions import in_place, roots_of

MOST_TRIED = 4  # free slots, and sizes that one held, that are compared with a need by proof
NOMINAL = 64  # every symbol, where sizes that cannot be compared are
MOST_GROWTH = NOMINAL // 2  # between the sizes of values that share a slot: an axis more or less is too much
ON_STACK = 256  # bytes: slots of at most this known size are the function's own, so that values can live in registers



@dataclass(frozen=True)
class Argument:
    """The bytes of the caller's argument."""

    number: int


@dataclass(frozen=True)
class ResultMemory:
    """The bytes of the caller's result array."""

    number: int


@dataclass(frozen=True)
class Scratch:
    """A slot of this activation's scratch memory."""

    slot: int


Place = Argument | ResultMemory | Scratch


@dataclass(frozen=True)
class Plan:
    """A place for every value, the place of the memory that a node of control flow works in, and the bytes of every slot."""

    places: dict[Value, Place]
    slots: tuple[Extent, ...]
    workspaces: dict[Node, Scratch] = field(default_factory=dict)

    @cached_property
    def bytes(self) -> Extent:
        """The scratch memory of all slots that are not on the stack."""
        return total(self.slots)


@dataclass(frozen=True)
class Regions:
    """The memory of a node of control flow: a plan for each region, which take turns in the same bytes, and after them the
    second buffer of each carry that does not stay in place."""

    plans: tuple[Plan, ...]
    spare: tuple[Extent, ...]
    in_place: tuple[bool, ...] = ()

    @property
    def shared(self) -> Extent:
        """The bytes that the regions take turns in."""
        need: Extent = 0
        for plan in self.plans:
            need = plan.bytes if need == 0 else need if plan.bytes == 0 else maximum(need, plan.bytes)
        return need

    @property
    def bytes(self) -> Extent:
        """All that the node needs."""
        return self.shared + total(self.spare)


def rounded(need: Extent) -> Extent:
    """As a multiple of 64, which keeps every slot on lines of its own."""
    return floordiv(need + 63, 64) * 64


def on_stack(need: Extent) -> bool:
    """Whether a slot is small enough for the function's own stack."""
    return isinstance(need, int) and need <= ON_STACK


def total(slots: Iterable[Extent]) -> Extent:
    """The bytes of these slots, those on the stack aside."""
    return summed(rounded(need) for need in slots if not on_stack(need))


def plan_memory(g: Graph) -> Plan:
    """Walk the kernels in order; a slot whose value was read for the last time serves the next value that fits."""
    return _Planner(g).plan()


def plan_regions(n: Node) -> Regions:
    """The memory of a node of control flow. One whose size is known only then takes it from the system then."""
    if n.op is sized or n.op is blocks or n.op is strips:
        return Regions((), ())
    stays = in_place(n)
    spare = [0 if stays[k] else bytes_of(v) for k, v in enumerate(n.outputs[:carry_count(n)])]
    return Regions(tuple([plan_memory(r) for r in n.regions]), tuple(spare), stays)


def bytes_of(v: Value) -> Extent:
    """What a value takes."""
    return v.type.size * v.type.dtype.itemsize


@lru_cache(maxsize=1 << 12)
def nominal(need: Extent) -> int:
    """A size with NOMINAL for every symbol, to compare what no proof does."""
    return evaluate(need, defaultdict(lambda: NOMINAL))


def _largest(needs: Sequence[Extent]) -> Extent:
    """The largest of some sizes, as a tree of comparisons: no deeper than it must be."""
    if len(needs) == 1:
        return needs[0]
    half = len(needs) // 2
    return maximum(_largest(needs[:half]), _largest(needs[half:]))


class _Planner:
    def __init__(self, g: Graph) -> None:
        self.g = g
        self.root = roots_of(g)
        self.last: dict[Value, int] = {}
        for k, n in enumerate(g.nodes):
            for v in n.inputs:
                self.last[self._stored(v)] = k
        self.places: dict[Value, Place] = {v: Argument(k) for k, v in enumerate(g.params)}
        for k, v in enumerate(g.results):
            self.places[self._stored(v)] = ResultMemory(k)
        self.slots: list[list[Extent]] = []  # what each has to hold in turn
        self.free: list[tuple[int, int]] = []  # the free slots with their nominal bytes, by these
        self.fits: dict[tuple[Extent, Extent], bool] = {}
        self.workspaces: dict[Node, Scratch] = {}

    def _stored(self, v: Value) -> Value:
        return self.root.get(v, v)

    def plan(self) -> Plan:
        for k, n in enumerate(self.g.nodes):
            if n.regions:
                for v in n.outputs:
                    self._place(v)
                if is_control(n):
                    self._give_workspace(n)
                dead = {self._stored(v) for v in (*n.inputs, *n.outputs) if self.last.get(self._stored(v), k) <= k}
                self._release(dead)
        for v, root in self.root.items():
            self.places[v] = self.places[root]
        return Plan(self.places, tuple(map(_largest, self.slots)), self.workspaces)

    def _place(self, v: Value) -> None:
        if v not in self.places and v not in self.root:
            self.places[v] = Scratch(self._slot(bytes_of(v)))

    def _give_workspace(self, n: Node) -> None:
        need = plan_regions(n).bytes
        if need != 0:
            self.workspaces[n] = Scratch(self._slot(need))
            self._free(self.workspaces[n].slot)  # again as soon as the node is done, before anything else is placed

    def _slot(self, need: Extent) -> int:
        """A free slot that holds so much already, else the one that has to grow least, else a new one."""
        size = nominal(need)
        at = bisect_left(self.free, (size, 0))
        near = [k for k in (*range(at, at + MOST_TRIED), at - 1) if 0 <= k < len(self.free)]
        found = next((k for k in near if self._holds(self.slots[self.free[k][1]], need)), None)
        if found is None:
            found = min([k for k in near if self._may_grow(k, need, size)], default=None,
                        key=lambda k: max(size, self.free[k][0]) / max(1, min(size, self.free[k][0])))
        if found is None:
            self.slots.append([need])
            return len(self.slots) - 1
        slot = self.free.pop(found)[1]
        held = self.slots[slot]
        if not self._holds(held, need):
            last = [x for x in held[-MOST_TRIED:] if not self._fits(x, need)]
            self.slots[slot] = [*held[:-MOST_TRIED], *last, need]
        return slot

    def _holds(self, held: Sequence[Extent], need: Extent) -> bool:
        """Whether a slot that held such values surely has room."""
        return need in held or any(self._fits(need, x) for x in held[-MOST_TRIED:])

    def _may_grow(self, k: int, need: Extent, size: int) -> bool:
        """Whether free slot k may serve a need that is not known to fit."""
        other, slot = self.free[k]
        low, high = sorted((size, other))
        return high <= MOST_GROWTH * low and not any(map(on_stack, (need, *self.slots[slot])))

    def _fits(self, need: Extent, size: Extent) -> bool:
        if need == size:
            return True
        if (need, size) not in self.fits:
            fits = on_stack(need) == on_stack(size) and nominal(need) < nominal(size)
            self.fits[need, size] = fits and self.g.facts.prove("<=", need, size) is True
        return self.fits[need, size]

    def _free(self, slot: int) -> None:
        insort(self.free, (max(map(nominal, self.slots[slot])), slot))

    def _release(self, dead: set[Value]) -> None:
        for slot in sorted({place.slot for v in dead if isinstance(place := self.places[v], Scratch)}):
            self._free(slot)
