"""The memory plan: where every value of a partitioned graph lives, over symbolic sizes.

Guarantees: two values share scratch bytes only when the one is dead before the other is stored; a result lives in the
caller's array; a value that is a reshape of another has that one's bytes. Scratch belongs to one activation.
"""
from __future__ import annotations

from dataclasses import dataclass

from loopwright.ir.dims import Extent
from loopwright.ir.graph import Graph, Value

MOST_TRIED = 4  # sizes of free slots that are compared with a need by proof


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
    """A place for every value, and the bytes of every scratch slot (each is rounded up to a multiple of 64)."""

    places: dict[Value, Place]
    slots: tuple[Extent, ...]


def plan_memory(g: Graph) -> Plan:
    """Walk the kernels in order; a slot whose value was read for the last time serves the next value that fits."""
    return _Planner(g).plan()


class _Planner:
    def __init__(self, g: Graph) -> None:
        self.g = g
        self.root: dict[Value, Value] = {}
        for n in g.nodes:
            if not n.regions:  # a reshape
                self.root[n.outputs[0]] = self.root.get(n.inputs[0], n.inputs[0])
        self.last: dict[Value, int] = {}
        for k, n in enumerate(g.nodes):
            for v in n.inputs:
                self.last[self._stored(v)] = k
        self.places: dict[Value, Place] = {v: Argument(k) for k, v in enumerate(g.params)}
        for k, v in enumerate(g.results):
            self.places[self._stored(v)] = ResultMemory(k)
        self.slots: list[Extent] = []
        self.free: dict[Extent, list[int]] = {}  # free slots by size
        self.fits: dict[tuple[Extent, Extent], bool] = {}

    def _stored(self, v: Value) -> Value:
        return self.root.get(v, v)

    def plan(self) -> Plan:
        for k, n in enumerate(self.g.nodes):
            if n.regions:
                for v in n.outputs:
                    self._place(v)
                dead = {self._stored(v) for v in (*n.inputs, *n.outputs) if self.last.get(self._stored(v), k) <= k}
                self._release(dead)
        for v, root in self.root.items():
            self.places[v] = self.places[root]
        return Plan(self.places, tuple(self.slots))

    def _place(self, v: Value) -> None:
        if v in self.places:
            return
        need = v.type.size * v.type.dtype.itemsize
        others = [size for size, slots in self.free.items() if slots][-MOST_TRIED:]
        for size in (need, *others):
            if self.free.get(size) and self._fits(need, size):
                self.places[v] = Scratch(self.free[size].pop())
                return
        self.places[v] = Scratch(len(self.slots))
        self.slots.append(need)

    def _fits(self, need: Extent, size: Extent) -> bool:
        if (need, size) not in self.fits:
            self.fits[need, size] = need == size or self.g.facts.prove("<=", need, size) is True
        return self.fits[need, size]

    def _release(self, dead: set[Value]) -> None:
        slots = {place.slot for v in dead if isinstance(place := self.places[v], Scratch)}
        for slot in sorted(slots):
            self.free.setdefault(self.slots[slot], []).append(slot)
