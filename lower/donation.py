"""Which result takes the memory of which donated argument.

Guarantees: a result is stored into an argument's bytes only after the last read of the argument, or by the kernel (or loop)
that reads it last, if that reads each element before it stores that element and nowhere later; each argument serves one
result, of its own shape and dtype. The caller gives both the same buffer.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.control import while_
from loopwright.ir.schedule import InPlace
from loopwright.lower.control import carry_count, in_place, is_control
from loopwright.lower.kernel import kernel
from loopwright.lower.scheduling import ScheduleError, build_nest


def donate(g: Graph, whole: Graph, donated: Sequence[int]) -> tuple[Graph, dict[int, int]]:
    """g, the kernels of `whole`, working in donated memory where they can; and for each result that lies there the number of
    the argument."""
    finder = _Finder(g, whole)
    options = {a: finder.options(a) for a in donated}
    taken: dict[int, int] = {}  # result -> argument
    for a in donated:
        _match(a, options, taken, set())
    steps = [(n, step) for k, a in taken.items() for n, step in options[a][k]]
    return _rewritten(g, steps), dict(sorted(taken.items()))


_Way = tuple[tuple[Node, InPlace], ...]  # kernels that must be told


def _match(a: int, options: Mapping[int, Mapping[int, _Way]], taken: dict[int, int], tried: set[int]) -> bool:
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
    def __init__(self, g: Graph, whole: Graph) -> None:
        self.g, self.whole = g, whole
        self.root: dict[Value, Value] = {}
        self.made: dict[Value, int] = {}  # when each value is stored
        self.last: dict[Value, int] = {}  # when it is read for the last time
        for k, n in enumerate(g.nodes):
            if not n.regions:  # a reshape: the same bytes
                self.root[n.outputs[0]] = self._stored(n.inputs[0])
                continue
            self.made.update((v, k) for v in n.outputs)
            self.last.update((self._stored(v), k) for v in n.inputs)

    def _stored(self, v: Value) -> Value:
        return self.root.get(v, v)

    def options(self, a: int) -> dict[int, _Way]:
        """The results that can lie in argument a, first those that are made from it, and how."""
        v, t = self.g.params[a], self.whole.params[a].type
        last = self.last.get(v, -1)
        within: dict[int, _Way] = {}
        after: dict[int, _Way] = {}
        for k, (r, shown) in enumerate(zip(self.g.results, self.whole.results, strict=True)):
            if not t.shape or (shown.type.shape, shown.type.dtype) != (t.shape, t.dtype):
                continue
            stored = self._stored(r)
            made = self.made[stored]
            if last < made:
                after[k] = ()
            elif last == made and (way := self._within(self.g.nodes[made], v, stored)) is not None:
                within[k] = way
        return {**within, **after}

    def _within(self, n: Node, v: Value, r: Value) -> _Way | None:
        """How n can store r over v, which it is the last to read."""
        if [x for x in n.inputs if self._stored(x) is v] != [v] or v.type != r.type:
            return None
        if is_control(n):
            return () if _carries_in_place(n, v, r) else None
        if n.attrs["implementation"] != "generated":
            return None
        step = InPlace(n.inputs.index(v), n.outputs.index(r))
        try:
            build_nest(n.regions[0], (*n.attrs["schedule"], step), "trial")
        except ScheduleError:
            return None
        return ((n, step),)


def _carries_in_place(n: Node, v: Value, r: Value) -> bool:
    """Whether r is a carry that begins as v and stays where it is."""
    stays, number = in_place(n), n.outputs.index(r)
    if number >= len(stays) or not stays[number]:
        return False
    first = len(n.inputs) - carry_count(n) if n.op is while_ else int(n.attrs["constants"])
    return n.inputs[first + number] is v


def _rewritten(g: Graph, steps: Iterable[tuple[Node, InPlace]]) -> Graph:
    """g with these steps at the end of the schedules of its kernels."""
    more: dict[Node, tuple[InPlace, ...]] = {}
    for n, step in steps:
        more[n] = (*more.get(n, ()), step)
    nodes = [Node(kernel, n.inputs, {**n.attrs, "schedule": (*n.attrs["schedule"], *more[n])}, n.outputs, n.regions, n.source)
             if n in more else n for n in g.nodes]
    return Graph(g.params, tuple(nodes), g.results, g.constraints)
