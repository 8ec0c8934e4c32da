"""Gradients of chains of products for a GPU in passes: kernels that make the rows anew, so that nothing as large is stored.

In the gradient of an attention the weights of each query are read by three products. Here each is a kernel of its own, which
makes a tile of the weights where it takes it in (`row_passes.py`): the product of rows, that for the queries, which also stores
the numbers of each row, as its maximum and its sum; and the products that sum over rows, those for the keys and the values. To
these the numbers are given, so that their tiles, of a block of keys by all queries, ask for no fold.

Guarantees: those of `chain_gradients.py`; every operation is the graph's own, on equal operands.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.selection import convert
from loopwright.ir.schedule import Schedule
from loopwright.lower.chain_gradients import MOST, Known
from loopwright.lower.contractions import is_contraction
from loopwright.lower.decisions import Call, Decided, Generate, Taken
from loopwright.lower.kernel import kernel, merged, region_of

ScheduleOf = Callable[[Graph], Schedule | None]


def with_gradients_in_passes(g: Graph, decided: Decided, schedule_of: ScheduleOf, taken: list[Taken]) -> Graph:
    """g with gradients of chains as kernels in passes, where all of one have schedules."""
    known = Known(g, in_passes=True)
    for end, sums in known.gradients():
        if not known.position.keys() >= {end, *sums} or isinstance(decided.multiplying(end), Call):
            continue
        kernels = _Gradient(known, end, sums).kernels(decided, schedule_of)
        values = {n: k.outputs[0] for n, k in kernels.items()}
        new = known.replaced(list(kernels.values()), values, decided) if kernels else None
        if new is None:
            continue
        both = Generate(decided.place(end)), Call(decided.place(end))
        types = [str(v.type) for k in kernels.values() for v in k.inputs]
        taken.append(Taken(both[0], both, end.outputs[0], ("gradient", *types)))
        for n, k in kernels.items():
            decided.replaced(n, k)
        known = Known(new, in_passes=True)
    return known.g


class _Gradient:
    """A product of rows, and products that sum over such rows."""

    def __init__(self, known: Known, end: Node, sums: Mapping[Node, int]) -> None:
        self.known, self.end, self.sums = known, end, sums
        own = [known.rows_behind(n, side) for n, side in sums.items()]
        self.rows = frozenset.union(known.rows_behind(end), *own)
        self.made = {end, *sums}
        self.inside = known.with_maps({*self.rows, *self.made})

    def kernels(self, decided: Decided, schedule_of: ScheduleOf) -> dict[Node, Node]:
        """The kernels, that of rows first, each by the node whose result is its first; none where one has no schedule, or
        others need what they make on the way."""
        if not self._is_alone(decided):
            return {}
        numbers = self._numbers()
        given = [v for v in numbers if self._is_of_another(v)]
        stored = {v: Value(v.type) for v in numbers if v not in given}
        rounded = {n: self._rounded(n) for n in self.made}
        found = {rounded[self.end]: self._kernel([self.end, rounded[self.end]], given, stored, schedule_of)}
        for n, side in self.sums.items():
            nodes = [n, rounded[n]]
            k = self._kernel(_of_left_rows(nodes) if side else nodes, numbers, {}, schedule_of)
            found[rounded[n]] = _with_inputs(k, stored) if k else None
        return {n: k for n, k in found.items() if k} if all(found.values()) else {}

    def _is_alone(self, decided: Decided) -> bool:
        """Whether what is not stored then is needed by chains alone, which make it for themselves, and nothing else is decided
        of it."""
        known = self.known
        needed = {m for end in known.ends - self.made for m in {end, *known.rows_behind(end)}}
        others = {n for n in self.rows for u in known.users.get(n.outputs[0], []) if u not in self.inside and u not in needed}
        rank = self.end.inputs[0].type.rank
        return all(n in known.chains and n.outputs[0].type.rank < rank for n in others) \
            and not any(n.outputs[0] in known.results for n in self.rows) \
            and not any(decided.placing(n) for n in (self.rows | self.made) - needed)

    def _numbers(self) -> list[Value]:
        """What is of a row alone, and read for each of its elements."""
        shape = self.end.inputs[0].type.shape
        made = [v for n in self.rows if not is_contraction(n) for v in n.outputs if v.type.rank < len(shape)]
        reads = {v for n in self.rows if n.outputs[0].type.shape == shape for v in n.inputs}
        return sorted([v for v in made if v in reads], key=lambda v: self.known.position[self.known.producer[v]])

    def _is_of_another(self, v: Value) -> bool:
        """Whether another chain, which is no gradient, has a number of its rows on its way: it stores it."""
        return self.known.chains.get(self.known.producer[v], self.end) is not self.end

    def _rounded(self, n: Node) -> Node:
        """What a product is rounded to half floats by, if that is all that reads it; else the product."""
        v, readers = n.outputs[0], self.known.users.get(n.outputs[0], [])
        alone = len(readers) == 1 and readers[0].op is convert and v not in self.known.results
        return readers[0] if alone and readers[0].outputs[0].type.dtype == n.inputs[0].type.dtype else n

    def _kernel(self, product: Sequence[Node], given: Iterable[Value], stored: Mapping[Value, Value],
                schedule_of: ScheduleOf) -> Node | None:
        """The kernel of a product, and of what rounds it, which is given some values, and stores others."""
        n, last = product[0], product[-1]
        before = self._behind([*n.inputs, *stored], set(given))
        region, outside = region_of([*before, *dict.fromkeys(product)], (last.outputs[0], *stored))
        region = merged(region)
        schedule = schedule_of(region) if len(region.nodes) <= MOST else None
        if schedule is None:
            return None
        attrs = {"implementation": "generated", "schedule": schedule}
        return Node(kernel, outside, attrs, (last.outputs[0], *stored.values()), (region,), n.source)

    def _behind(self, values: Sequence[Value], given: set[Value]) -> list[Node]:
        """What values are computed from inside, up to what is given, in order."""
        found, todo = dict[Node, None](), list(values)
        while todo:
            v = todo.pop()
            n = self.known.producer.get(v)
            if n is not None and v not in given and n in self.inside and n not in found:
                found[n] = None
                todo.extend(n.inputs)
        return sorted(found, key=self.known.position.__getitem__)


def _of_left_rows(product: Sequence[Node]) -> list[Node]:
    """A product with its sides exchanged, and what rounds it: what they make has its last two axes exchanged, too."""
    n, *after = dict.fromkeys(product)
    turned = {name: tuple([(b, a) for a, b in n.attrs[name]]) for name in ("batch", "contract")}
    *batch, a, b = n.outputs[0].type.shape
    made = Value(n.outputs[0].type.with_shape((*batch, b, a)))
    nodes = [Node(n.op, (n.inputs[1], n.inputs[0]), {**n.attrs, **turned}, (made,), (), n.source)]
    for x in after:
        rounded = Value(x.outputs[0].type.with_shape(made.type.shape))
        nodes.append(Node(x.op, (made,), x.attrs, (rounded,), (), x.source))
    return nodes


def _with_inputs(n: Node, others: Mapping[Value, Value]) -> Node:
    """A node that reads other values for some."""
    return Node(n.op, tuple([others.get(v, v) for v in n.inputs]), n.attrs, n.outputs, n.regions, n.source)
