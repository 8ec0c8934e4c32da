"""Which result takes the memory of which donated argument.

Guarantees: a result is stored into an argument's bytes only after the last read of the argument, or by the kernel (or loop)
that reads it last, if that reads each element before it stores that element and nowhere later; each argument serves one
result, of its own shape and dtype. The caller gives both the same buffer. Kernels wait for others that read an argument
where nothing else decides their order; those with effects keep theirs.
"""
from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from loopwright.ir.graph import Graph, Node, Value, acts
from loopwright.ir.schedule import InPlace, Schedule, Tensorize
from loopwright.lower.control import initial_carries, is_control
from loopwright.lower.kernel import kernel
from loopwright.lower.scheduling import with_in_place
from loopwright.lower.versions import read_before, roots_of

Usual = Callable[[Graph], Schedule] | None  # None: no kernel uses one


def donate(g: Graph, whole: Graph, donated: Sequence[int],
           usual: Usual = None) -> tuple[Graph, dict[int, int]]:
    """g, the kernels of `whole`, working in donated memory where they can; and for each result that lies there the number of
    the argument. usual: the schedule of a region without a tile unit, whose kernels may have to be done again."""
    if not donated:
        return g, {}
    finder, order = _Finder(g, whole, usual), _Order(g)
    options = {a: finder.options(a) for a in donated}
    taken: dict[int, int] = {}  # result -> argument
    for a in donated:
        _match(a, options, taken, set())
    for k, a in taken.items():
        order.put_last(finder.made[k], finder.readers(a))
    for a in sorted(set(donated).difference(taken.values())):
        further = (k for k in finder.fitting(a) if k not in taken and finder.way(a, k) is not None)
        found = next((k for k in further if order.put_last(finder.made[k], finder.readers(a))), None)
        if found is not None:
            taken[found] = a
    steps = [step for k, a in taken.items() for step in finder.way(a, k) or ()]
    return _rewritten(g, order.nodes(), steps, usual), dict(sorted(taken.items()))


_Way = tuple[tuple[Node, InPlace], ...]  # kernels that must be told


def _match(a: int, options: Mapping[int, Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Find a result for an argument, moving others to further options of theirs if need be."""
    for k in options[a]:
        if k in tried:
            continue
        tried.add(k)
        if k not in taken or _match(taken[k], options, taken, tried):
            taken[k] = a
            return True
    return False


class _Finder:
    def __init__(self, g: Graph, whole: Graph, usual: Usual) -> None:
        self.g, self.whole, self.usual = g, whole, usual
        self.root = roots_of(g)
        self.read: defaultdict[Value, list[int]] = defaultdict(list)  # the nodes that read each stored value, in order
        stored: dict[Value, int] = {}
        for k, n in enumerate(g.nodes):
            if not n.regions:  # a reshape: the same bytes
                continue
            stored.update((v, k) for v in n.outputs if v not in self.root)
            for v in dict.fromkeys(map(self._stored, n.inputs)):
                self.read[v].append(k)
        self.made = [stored[self._stored(r)] for r in g.results]  # the node that stores each result

    def _stored(self, v: Value) -> Value:
        return self.root.get(v, v)

    def readers(self, a: int) -> Sequence[int]:
        """The nodes that read argument a, in order."""
        return self.read[self.g.params[a]]

    def fitting(self, a: int) -> list[int]:
        """The results of argument a's shape and dtype, first those that are made from it."""
        t, found = self.whole.params[a].type, range(len(self.g.results))
        alike = [k for k in found if t.shape and (x := self.whole.results[k].type).shape == t.shape and x.dtype == t.dtype]
        return sorted(alike, key=lambda k: not self._is_made_from(k, a))

    def _is_made_from(self, k: int, a: int) -> bool:
        """Whether what computes result k reads argument a, of a kernel with several results for this one."""
        n, v = self.g.nodes[self.made[k]], self.g.params[a]
        if n.op is not kernel or len(n.outputs) == 1:
            return self.made[k] in self.readers(a)
        region = n.regions[0]
        needed = {region.results[n.outputs.index(self._stored(self.g.results[k]))]}
        for m in reversed(region.nodes):
            if not needed.isdisjoint(m.outputs):
                needed.update(m.inputs)
        return any(self._stored(x) is v and p in needed for x, p in zip(n.inputs, region.params, strict=True))

    def options(self, a: int) -> list[int]:
        """The results that can lie in argument a as things are ordered."""
        last = max(self.readers(a), default=-1)
        return [k for k in self.fitting(a) if last <= self.made[k] and self.way(a, k) is not None]

    def way(self, a: int, k: int) -> _Way | None:
        """How result k can be stored over argument a, where no node reads that later."""
        n, v, r = self.g.nodes[self.made[k]], self.g.params[a], self._stored(self.g.results[k])
        if self.made[k] not in self.readers(a):
            return ()
        if [x for x in n.inputs if self._stored(x) is v] != [v] or v.type != r.type:
            return None
        if is_control(n):
            return () if _carries(n, v, r) else None
        if n.attrs["implementation"] != "generated":
            return None
        step = InPlace(n.inputs.index(v), n.outputs.index(r))
        return None if _in_place(n, n.attrs["schedule"], step, self.usual) is None else ((n, step),)


def _in_place(n: Node, now: Schedule, step: InPlace, usual: Usual) -> Schedule | None:
    """The schedule of a kernel with a result in an operand's memory; None where that is not allowed."""
    made = with_in_place(n.regions[0], now, step)
    if made is None and usual is not None and any(isinstance(x, Tensorize) and x.unit for x in now):
        return with_in_place(n.regions[0], usual(n.regions[0]), step)
    return made


def _carries(n: Node, v: Value, r: Value) -> bool:
    """Whether r is a carry that begins as v: a loop takes it where it lies."""
    number, initial = n.outputs.index(r), initial_carries(n)
    return number < len(initial) and initial[number] is v


class _Order:
    """The order of nodes: what they read comes before them, effects keep theirs, and what was put last waits."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.later: list[set[int]] = [set() for _ in g.nodes]
        made = {v: k for k, n in enumerate(g.nodes) for v in n.outputs}
        for k, n in enumerate(g.nodes):
            for v in n.inputs:
                if v in made:
                    self.later[made[v]].add(k)
        for k, others in read_before(g):
            for other in others:
                self.later[other].add(k)
        effects = [k for k, n in enumerate(g.nodes) if acts(n)]
        for k, following in itertools.pairwise(effects):
            self.later[k].add(following)

    def put_last(self, last: int, others: Iterable[int]) -> bool:
        """Let these nodes come before the last one, if none of them waits for it."""
        before = {k for k in others if k != last}
        reached, ahead = {last}, [last]
        while ahead and reached.isdisjoint(before):
            new = self.later[ahead.pop()] - reached
            reached |= new
            ahead += new
        if not reached.isdisjoint(before):
            return False
        for k in before:
            self.later[k].add(last)
        return True

    def nodes(self) -> list[Node]:
        """All nodes, as near to their own order as may be."""
        waits = [0] * len(self.later)
        for later in self.later:
            for k in later:
                waits[k] += 1
        ready, out = [k for k, count in enumerate(waits) if count == 0], []
        while ready:
            k = heapq.heappop(ready)
            out.append(self.g.nodes[k])
            for x in self.later[k]:
                waits[x] -= 1
                if waits[x] == 0:
                    heapq.heappush(ready, x)
        return out


def _rewritten(g: Graph, order: Iterable[Node], steps: Iterable[tuple[Node, InPlace]],
               usual: Usual) -> Graph:
    """g in this order, with these steps at the end of the schedules of its kernels."""
    schedules: dict[Node, Schedule] = {}
    for n, step in steps:
        now: Schedule = schedules[n] if n in schedules else n.attrs["schedule"]
        schedules[n] = _in_place(n, now, step, usual) or (*now, step)
    nodes = [Node(kernel, n.inputs, {**n.attrs, "schedule": schedules[n]}, n.outputs, n.regions, n.source)
             if n in schedules else n for n in order]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)
