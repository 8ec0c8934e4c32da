"""Gradients of chains of products in the kernel that has the rows.

In the gradient of an attention the weights of each query are read by three products: that for the queries is one of rows
(`lower/chains.py`), those for the keys and the values sum over all rows. One kernel makes the weights of a block of rows, where
they are needed elsewhere as well once more, and takes the block into all three. So no array of queries times keys is stored.

Guarantees: what such a kernel reads does not wait for what it makes; nothing is put there that others read, too, but where they
are chains of their own, which store as little.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from loopwright.ir.cached import cached_property
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value, acts, readers_of
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.structural import transpose
from loopwright.ir.schedule import Schedule
from loopwright.ir.types import BF16, F16
from loopwright.lower.chains import behind, chains, makes_rows, takes_rows
from loopwright.lower.composition import fresh_indices, reads
from loopwright.lower.contractions import is_contraction
from loopwright.lower.decisions import Call, Decided, Generate, Taken
from loopwright.lower.kernel import MOST_NODES, kernel, merged, region_of
from loopwright.lower.row_products import row_products
from loopwright.lower.survey import EXPENSIVE, own_cost, root_index

MOST = 2 * MOST_NODES  # that such a kernel computes: it keeps rows between its parts
MOST_AGAIN = 256  # terms of a product that is made once more: its result is stored and read twice in that time


def with_gradients(g: Graph, decided: Decided, schedule_of: Callable[[Graph], Schedule | None],
                   taken: list[Taken]) -> Graph:
    """g with gradients of chains as kernels, where these have schedules."""
    known = Known(g)
    for end, sums in known.gradients():
        if not known.position.keys() >= {end, *sums}:
            continue  # an earlier kernel makes one of them
        choice = decided.multiplying(end)
        made = None if isinstance(choice, Call) else known.kernel(end, sums, decided, schedule_of)
        values = None if made is None else dict(zip((end, *sums), made.outputs, strict=True))
        new = None if made is None or values is None else known.replaced([made], values, decided)
        if made is None or new is None:
            continue
        both = Generate(decided.place(end)), Call(decided.place(end))
        taken.append(Taken(both[0], both, end.outputs[0], ("gradient", *[str(v.type) for v in made.inputs])))
        decided.replaced(end, made)
        known = Known(new)
    return known.g


def sums_rows(n: Node, side: int, in_passes: bool = False) -> bool:
    """Whether a product sums over the rows of one side, the last axis but one after those of batches: (b.., k, s) and
    (b.., k, a) make (b.., s, a), or (b.., a, s) where it is the right side. in_passes: k may be several axes, and that side
    half floats."""
    if n.op is not dot_general or not is_contraction(n) or n.outputs[0].type.dtype.kind != "f":
        return False
    t, pairs = n.inputs[side].type, len(n.attrs["batch"])
    axes = tuple(p[side] for p in (*n.attrs["batch"], *n.attrs["contract"]))
    few = in_passes or len(n.attrs["contract"]) == 1
    return few and axes == tuple(range(t.rank - 1)) and n.outputs[0].type.rank == pairs + 2 and t.rank > 2 \
        and n.inputs[0].type.dtype == n.inputs[1].type.dtype \
        and t.dtype in (n.outputs[0].type.dtype, *((F16, BF16) if in_passes else ()))


class Known:
    """A graph, and what is asked about it. in_passes: whether rows may be half floats, and several axes."""

    def __init__(self, g: Graph, in_passes: bool = False) -> None:
        self.g, self.in_passes = g, in_passes
        self.producer = {v: n for n in g.nodes for v in n.outputs}
        self.users = readers_of(g)
        self.results = set(g.results)
        self.position = {n: k for k, n in enumerate(g.nodes)}

    @cached_property
    def chains(self) -> dict[Node, Node]:
        """What belongs to chains of products that are one kernel each."""
        return chains(self.g, self.in_passes)

    @cached_property
    def ends(self) -> set[Node]:
        """The products that those end in."""
        return set(self.chains.values())

    def _is_number(self, n: Node) -> bool:
        """Whether a node makes a number for each row, in a chain that stores no more than that."""
        return n in self.chains and not is_contraction(n)

    def gradients(self) -> list[tuple[Node, dict[Node, int]]]:
        """Products of rows, those of most products behind them first, and with each the products that sum over such rows, and
        which side of theirs has the rows."""
        sides = {n: side for n in self.g.nodes for side in (1, 0)
                 if sums_rows(n, side, self.in_passes) and self.rows_behind(n, side)}
        sums = {n: self.rows_behind(n, side) for n, side in sides.items()}
        ends = {n: self.rows_behind(n) for n in self.g.nodes if takes_rows(n, self.in_passes)} if sums else {}
        found = []
        for end in sorted(ends, key=lambda n: -len(_products(ends[n]))):
            own = _products(ends[end])
            mine = [n for n, rows in sums.items() if n is not end and _products(rows) <= own and not self._waits(end, n)]
            if mine:
                found.append((end, {n: sides[n] for n in mine}))
                sums = {n: rows for n, rows in sums.items() if n not in mine}
        return found

    def rows_behind(self, n: Node, side: int = 0) -> frozenset[Node]:
        """What makes one side of a product from products as large, these included; nothing where that is more than a kernel
        computes."""
        rows, found = n.inputs[side].type, set[Node]()
        for x in sorted(behind(n.inputs[side], self.producer, MOST), key=self.position.__getitem__):
            if makes_rows(x, rows) or (not is_contraction(x) and any(self.producer.get(v) in found for v in x.inputs)):
                found.add(x)
        return frozenset(found)

    def _waits(self, a: Node, b: Node) -> bool:
        """Whether one of two nodes waits for the other."""
        first, last = sorted((a, b), key=self.position.__getitem__)
        return first in self._before([last], first)

    def _before(self, nodes: Iterable[Node], earliest: Node) -> set[Node]:
        """What nodes wait for, from the earliest on."""
        found, todo, least = set[Node](), list(nodes), self.position[earliest]
        while todo:
            for v in todo.pop().inputs:
                made = self.producer.get(v)
                if made is not None and made not in found and self.position[made] >= least:
                    found.add(made)
                    todo.append(made)
        return found

    # ---- the kernel ------------------------------------------------------------------------------
    def kernel(self, end: Node, sums: Mapping[Node, int], decided: Decided,
               schedule_of: Callable[[Graph], Schedule | None]) -> Node | None:
        """The kernel of a gradient; None where it has no schedule, or others need what it makes on the way."""
        made = (end, *sums)
        rows = frozenset.union(self.rows_behind(end), *[self.rows_behind(n, side) for n, side in sums.items()])
        inside = self.with_maps({*rows, *made})
        if not self.is_worth_it(rows, set(made), inside, decided):
            return None
        over_rows = {n: _over_rows(n, side) for n, side in sums.items()}
        nodes = [x for n in sorted(inside, key=self.position.__getitem__) for x in over_rows.get(n, [n])]
        results = (end.outputs[0], *[new[-1].outputs[0] for new in over_rows.values()])
        region, outside = region_of(nodes, results)
        if not {self.producer.get(v) for v in outside}.isdisjoint(made):
            return None
        region = merged(region)
        schedule = schedule_of(region) if len(region.nodes) <= MOST else None
        if schedule is None:
            return None
        attrs = {"implementation": "generated", "schedule": schedule}
        return Node(kernel, outside, attrs, results, (region,), end.source)

    def is_worth_it(self, rows: frozenset[Node], made: set[Node], inside: set[Node], decided: Decided) -> bool:
        """Whether what the kernel keeps for itself is stored nowhere else, products that are made once more are short, and
        nothing else is decided of what it takes in."""
        ends = self._ends_above(rows, inside)
        if ends is None or any(n.outputs[0] in self.results for n in rows):
            return False
        needed = {m for u in ends for m in self.rows_behind(u)}
        terms = [n.inputs[0].type.shape[a] for n in needed & _products(rows) for a, _ in n.attrs["contract"]]
        if any(isinstance(x, int) and x > MOST_AGAIN for x in terms):
            return False
        return not any(decided.placing(n) for n in (rows | made) - needed)

    def _ends_above(self, rows: frozenset[Node], inside: set[Node]) -> set[Node] | None:
        """The chains' ends that read rows, or what is made of these for them alone; None where something else reads some."""
        todo = [u for n in rows if not self._is_number(n) for u in self.users.get(n.outputs[0], [])]
        seen, ends = set(inside), set[Node]()
        while todo:
            n = todo.pop()
            if n in seen or self._is_number(n):
                continue
            seen.add(n)
            if n in self.ends:
                ends.add(n)
            elif is_contraction(n) or n.op.loop is None or n.outputs[0] in self.results:
                return None
            else:
                todo += self.users.get(n.outputs[0], [])
        return ends

    def with_maps(self, nodes: set[Node]) -> set[Node]:
        """These and what they read that only they read, or that is cheaper to compute again than to store."""
        inside, todo = set(nodes), sorted(nodes, key=self.position.__getitem__)
        while todo:
            for v in todo.pop().inputs:
                n = self.producer.get(v)
                if n is not None and n not in inside and self._is_cheap(n, inside):
                    inside.add(n)
                    todo.append(n)
        return inside

    def _is_cheap(self, n: Node, inside: set[Node]) -> bool:
        if n.op.loop is None or is_contraction(n) or n.outputs[0] in self.results:
            return False
        index = tuple(root_index(Graph(n.inputs, (n,), n.outputs)))
        e = reads(n, index, fresh_indices())[0]
        if isinstance(e, Reduce | Prefix | Scatter) or own_cost(e) >= EXPENSIVE:
            return False
        alone = all(u in inside for u in self.users.get(n.outputs[0], []))
        return alone or sum(v.type.rank > 0 for v in dict.fromkeys(n.inputs)) <= 1

    def replaced(self, made: Sequence[Node], values: Mapping[Node, Value], decided: Decided) -> Graph | None:
        """The graph with kernels, which make these values, in the place of the nodes whose results, or their transposes, the
        values are, and before them what they read; None where something with effects would have to change its place."""
        first = min(values, key=self.position.__getitem__)
        early = self._before(made, first)
        if any(map(acts, early)):
            return None
        at, turned = self.position[first], []
        for n, v in values.items():
            if v is not n.outputs[0]:
                turned.append(_turned(v, n))
                decided.replaced(n, turned[-1])
        moved = [n for n in self.g.nodes[at:] if n in early]
        rest = [n for n in self.g.nodes[at:] if n not in early and n not in values]
        nodes = (*self.g.nodes[:at], *moved, *made, *turned, *rest)
        return remove_dead(Graph(self.g.params, nodes, self.g.results, self.g.constraints))


def _products(rows: Iterable[Node]) -> set[Node]:
    return {n for n in rows if is_contraction(n)}


def _over_rows(n: Node, side: int) -> list[Node]:
    """A product that sums over the rows of one side, as the op of that name: rows of columns of that side."""
    rows, other = n.inputs[side], n.inputs[1 - side]
    own = [p[1 - side] for p in (*n.attrs["batch"], *n.attrs["contract"])]
    perm = (*own, *[a for a in range(other.type.rank) if a not in own])
    nodes = []
    if perm != tuple(range(other.type.rank)):
        turned = Value(other.type.with_shape(tuple([other.type.shape[a] for a in perm])))
        nodes, other = [Node(transpose, (other,), {"perm": perm}, (turned,), (), n.source)], turned
    *batch, a, b = n.outputs[0].type.shape
    v = Value(n.outputs[0].type.with_shape((*batch, b, a))) if side else n.outputs[0]
    return [*nodes, Node(row_products, (rows, other), {}, (v,), (), n.source)]


def _turned(v: Value, n: Node) -> Node:
    """What a node makes from it with the last two axes exchanged."""
    *batch, a, b = range(v.type.rank)
    return Node(transpose, (v,), {"perm": (*batch, b, a)}, n.outputs, (), n.source)
