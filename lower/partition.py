"""Partition a graph into kernels: what is computed together, before how.

Guarantees: the result computes what the graph did; every node of it is a `kernel`, a reshape that moves no byte, or
control flow whose regions are partitioned alike; each runs after what it reads.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.selection import convert
from loopwright.ir.schedule import InPlace, Schedule
from loopwright.kernels.gemm import Match, match_gemm
from loopwright.lower.chain_gradients import with_gradients
from loopwright.lower.chains import chains
from loopwright.lower.complexes import without_complex
from loopwright.lower.contractions import products_in_pairs
from loopwright.lower.control import carried_by, is_control, is_loop, split_at_trips
from loopwright.lower.decisions import Chaining, Decided, Decision, Place, Taken
from loopwright.lower.few_features import by_features
from loopwright.lower.few_rows import by_rows, has_few_rows
from loopwright.lower.gradient_passes import with_gradients_in_passes
from loopwright.lower.grouping import Grouping, moves_nothing
from loopwright.lower.groups import Group
from loopwright.lower.hoisting import hoist
from loopwright.lower.kernel import in_order, kernel, merged, region_of
from loopwright.lower.lanes import is_of_elements, lane_schedule
from loopwright.lower.layouts import with_channels_last
from loopwright.lower.little_products import without_little_products
from loopwright.lower.patterns import occurrences, with_users_kernels
from loopwright.lower.preparation import prepare
from loopwright.lower.products_of_many import with_products_of_many
from loopwright.lower.puts import with_puts
from loopwright.lower.root_cubes import with_root_cubes
from loopwright.lower.rules import chain_schedule, default_schedule
from loopwright.lower.scheduling import ScheduleError, with_in_place
from loopwright.lower.target import Target
from loopwright.lower.turning import turned, with_copies
from loopwright.lower.unstacking import unstacked
from loopwright.lower.versions import is_last_use, stay
from loopwright.lower.written import by_pieces

ChainRule = Callable[[Graph], Schedule | None]  # the schedule of a region that is a chain of products; None: it is no kernel


def partition(g: Graph, target: Target, *, blas: bool, decisions: Sequence[Decision] = (), chained: bool = True,
              in_chain: ChainRule | None = None, match: Match = match_gemm) -> Graph:
    """g as kernels with default schedules, complex numbers as pairs of real ones; `blas` says whether matrix products may
    call the library, `match` which of them it makes, `chained` whether chains of them may be one kernel, and `in_chain` which,
    if that is not the target's rule: they go in passes then, and so do their gradients. ScheduleError for one of the
    `decisions` that does not fit."""
    return partitioned(g, target, blas=blas, decisions=decisions, chained=chained, in_chain=in_chain, match=match).kernels


@dataclass(frozen=True)
class Partition:
    """The `kernels` of a graph; by the first result of each that is in no region, the place of the node that it is made for;
    and, where kernels have no schedules yet, all that was decided, by rules too."""

    kernels: Graph
    places: Mapping[Value, Place]
    taken: tuple[Taken, ...]


def partitioned(g: Graph, target: Target, *, blas: bool, decisions: Sequence[Decision] = (),
                is_scheduled: bool = True, chained: bool = True, in_chain: ChainRule | None = None,
                match: Match = match_gemm, fast_math: bool = False) -> Partition:
    """What `partition` gives; without schedules, which take most of the time, with how it came about. fast_math: sums may be
    less accurate."""
    made = _Partition(target, blas, decisions, is_scheduled, chained, match, in_chain, fast_math)
    return Partition(made.whole(g), made.places, tuple(made.taken))


def _with_copies(g: Graph) -> Graph:
    """Every result becomes a value of its own that some kernel stores: parameters and repeats are copied."""
    taken: set[Value] = set()
    nodes, results = list(g.nodes), []
    roots = _storage_roots(g)
    for v in g.results:
        root = roots.get(v, v)
        if root in g.params or root in taken:
            copy = Value(v.type)
            nodes.append(Node(convert, (v,), {"dtype": v.type.dtype, "weak": v.type.weak}, (copy,)))
            v = root = copy
        taken.add(root)
        results.append(v)
    return Graph(g.params, tuple(nodes), tuple(results), g.constraints)


def _storage_roots(g: Graph) -> dict[Value, Value]:
    """For each value that is a reshape, the value whose bytes it has."""
    roots: dict[Value, Value] = {}
    for n in g.nodes:
        if moves_nothing(n):
            roots[n.outputs[0]] = roots.get(n.inputs[0], n.inputs[0])
    return roots


class _Partition:
    """A graph and its regions, which share schedules."""

    def __init__(self, target: Target, blas: bool, decisions: Sequence[Decision], is_scheduled: bool, chained: bool,
                 match: Match, in_chain: ChainRule | None = None, fast_math: bool = False) -> None:
        self.target, self.blas, self.decisions, self.is_scheduled, self.chained = target, blas, decisions, is_scheduled, chained
        self.match, self.in_chain, self.fast_math = match, in_chain, fast_math
        self.schedules: dict[Any, Schedule] = {}  # equal regions are scheduled once
        self.chains: dict[Any, Schedule | None] = {}
        self.used: set[Decision] = set()
        self.taken: list[Taken] = []
        self.places: dict[Value, Place] = {}

    def whole(self, g: Graph) -> Graph:
        """The partition, in which every decision has its node."""
        made = self.graph(unstacked(by_pieces(without_little_products(without_complex(g)))))
        for x in self.decisions:
            if x not in self.used and not isinstance(x, Chaining):
                raise ScheduleError(f"{x}: there is no such node.")
        return made

    def graph(self, g: Graph, carried: Mapping[int, Value] = {}, in_loop: bool = False, at: Place = ()) -> Graph:
        """g as kernels, reshapes, and control flow whose regions are of the same kind."""
        g = split_at_trips(with_puts(g, carried))
        if self.fast_math and self.target.estimates_roots:
            g = with_root_cubes(g)
        if self.blas and self.match is match_gemm:
            g = with_channels_last(g)
        g = _with_copies(prepare(hoist(g) if self.blas else g, self.blas, self.match))
        g = turned(g) if self.in_chain is None else g
        decided = Decided(g, self.decisions, at)
        self.used |= decided.used
        if not self.is_scheduled:
            self.taken += occurrences(g, self.blas, at)
        g = with_users_kernels(g, self.blas, decided)
        if self.blas and self.match is match_gemm:
            g = with_products_of_many(g, self.target, decided)
        if self.chained and self.in_chain is None:
            g = with_gradients(g, decided, self._chain_schedule, self.taken)
        elif self.chained:
            g = with_gradients_in_passes(g, decided, self._chain_schedule, self.taken)
        grouping = self._grouped(g, carried, in_loop, decided)
        self.taken += grouping.taken
        made: dict[Value, Value] = {v: v for v in g.params}
        out: list[Node] = []
        updates: dict[Node, Value] = {}
        for group in _sorted(grouping.order, grouping.position):
            if group.root in grouping.lone:
                out += self._by_rows(self._lone(group.root, made, grouping.place(group.root)))
            else:
                n = self._kernel(group, grouping, made)
                out += self._by_rows(n) if group.root in grouping.updates else self._chosen(n)
                if group.root in grouping.updates:
                    updates[out[-1]] = made[grouping.updates[group.root].base]
            if not at:
                self.places.update((v, grouping.place(group.root)) for v in out[-1].outputs[:1])
        found = Graph(g.params, tuple(out), tuple(made[v] for v in g.results), g.constraints)
        return _in_place(found, updates, carried) if self.is_scheduled and updates else found

    def _grouped(self, g: Graph, carried: Mapping[int, Value], in_loop: bool, decided: Decided) -> Grouping:
        """Which nodes one kernel computes, with those chains of products that are one kernel, whole."""
        chained = chains(g, halves=self.in_chain is not None) if self.chained else {}
        paired = products_in_pairs(g, self.target)
        while True:
            grouping = Grouping(g, self.blas, carried, in_loop, decided, chained, paired, is_noted=not self.is_scheduled,
                                match=self.match, in_turn=self.in_chain is None)
            apart = {end for end in chained.values() if not self._is_whole(grouping, end)}
            if not apart:
                return grouping
            chained = {n: end for n, end in chained.items() if end not in apart}

    def _is_whole(self, grouping: Grouping, end: Node) -> bool:
        """Whether one kernel computes all of the chain that ends there, and its loops suit that."""
        groups = grouping.groups_of[end]
        alone = len(groups) == 1 and all(grouping.groups_of[n] == groups for n, e in grouping.chained.items() if e is end)
        return alone and self._chain_schedule(_region_of(groups[0], grouping)[0]) is not None

    def _chain_schedule(self, region: Graph) -> Schedule | None:
        if region.key not in self.chains:
            rule = self.in_chain or self._of_target
            self.chains[region.key] = rule(region)
        return self.chains[region.key]

    def _of_target(self, region: Graph) -> Schedule | None:
        return None if self.blas and has_few_rows(region) else chain_schedule(region, self.target)

    def _chosen(self, n: Node) -> list[Node]:
        """A kernel, with what computes the same at other sizes."""
        if not self._is_plain(n):
            return self._by_rows(n)
        if self.blas and (few := by_features(n, self.target, self._apart().graph, self.fast_math)) != [n]:
            return few
        return with_copies(n, self.target, self.is_scheduled)

    def _is_plain(self, n: Node) -> bool:
        return self.in_chain is None and self.chains.get(n.regions[0].key) is None

    def _by_rows(self, n: Node) -> list[Node]:
        """A kernel; of a chain that may have few rows, with what computes it then."""
        if n.op is not kernel or not self.blas or self.in_chain is not None or self.chains.get(n.regions[0].key) is None:
            return [n]
        return by_rows(n, self.target, self._apart().graph)

    def _apart(self) -> _Partition:
        """What makes kernels of what computes the same at other sizes."""
        return _Partition(self.target, self.blas, (), self.is_scheduled, chained=False, match=self.match)

    def _region(self, n: Node, k: int, at: Place) -> Graph:
        """A region without what it knows of sizes, which is the entry's to check: so more regions are equal."""
        g = n.regions[k]
        return self.graph(Graph(g.params, g.nodes, g.results), carried_by(n, k), is_loop(n), (*at, k))

    def _kernel(self, group: Group, grouping: Grouping, made: dict[Value, Value]) -> Node:
        region, outside, results = _region_of(group, grouping)
        if region.key not in self.schedules:
            known = self.chains.get(region.key) or (default_schedule(region, self.target) if self.is_scheduled else ())
            self.schedules[region.key] = known
        attrs = {"implementation": "generated", "schedule": self.schedules[region.key]}
        inputs, values = tuple(made[v] for v in outside), tuple(Value(v.type) for v in results)
        made.update(zip(results, values, strict=True))
        return Node(kernel, inputs, attrs, values, (region,), group.root.source)

    def _lone(self, n: Node, made: dict[Value, Value], at: Place) -> Node:
        values, inputs = tuple(Value(v.type) for v in n.outputs), tuple(made[v] for v in n.inputs)
        made.update(zip(n.outputs, values, strict=True))
        if is_of_elements(n):
            region, outside = region_of([n], n.outputs)
            attrs = {"implementation": "generated", "schedule": lane_schedule(region, self.target)}
            return Node(kernel, tuple([made[v] for v in outside]), attrs, values, (region,), n.source)
        if is_control(n):
            regions = tuple([self._region(n, k, at) for k in range(len(n.regions))])
            return Node(n.op, inputs, n.attrs, values, regions, n.source)
        if moves_nothing(n):
            return Node(n.op, inputs, n.attrs, values, (), n.source)
        if n.op is kernel:
            return Node(kernel, inputs, n.attrs, values, n.regions, n.source)
        region, _ = region_of([n], n.outputs)
        name = "gemm" if self.match(n) else n.op.name
        return Node(kernel, tuple(dict.fromkeys(inputs)), {"implementation": name}, values, (region,), n.source)


def _region_of(group: Group, grouping: Grouping) -> tuple[Graph, tuple[Value, ...], list[Value]]:
    """What a group computes, what it reads, and its results."""
    results = [group.root.outputs[0], *(v for v in group.results if v is not group.root.outputs[0])]
    region, outside = region_of(sorted(group.nodes, key=grouping.position.__getitem__), results)
    ordered = in_order(merged(region))
    number = {v: k for k, v in enumerate(region.params)}
    return ordered, tuple([outside[number[v]] for v in ordered.params]), results


def _in_place(g: Graph, updates: Mapping[Node, Value], carried: Mapping[int, Value]) -> Graph:
    """g with kernels that update operands of theirs where these lie, if nothing else or later reads that memory. Those of a
    parameter do only if all that follows stays in its bytes."""
    made: dict[Node, Node] = {}
    for k, n in enumerate(g.nodes):
        if n in updates and is_last_use(g, k, updates[n]):
            schedule = with_in_place(n.regions[0], n.attrs["schedule"], InPlace(n.inputs.index(updates[n])))
            if schedule is not None:
                made[n] = Node(n.op, n.inputs, {**n.attrs, "schedule": schedule}, n.outputs, n.regions, n.source)
    changed = Graph(g.params, tuple([made.get(n, n) for n in g.nodes]), g.results, g.constraints)
    kept = {v for v, stays in zip(carried.values(), stay(changed, carried), strict=True) if stays}
    for n in [n for n in made if updates[n] in g.params and updates[n] not in kept]:
        del made[n]
    return Graph(g.params, tuple([made.get(n, n) for n in g.nodes]), g.results, g.constraints)


def _sorted(groups: list[Group], position: dict[Node, int]) -> list[Group]:
    """Groups so that each comes after those it reads: depth first, in program order."""
    feeds: dict[Group, list[Group]] = {g: [] for g in groups}
    for g in groups:
        for reader in g.readers:
            feeds[reader].append(g)
    done: dict[Group, None] = {}
    for start in sorted(groups, key=lambda g: position[g.root]):
        todo = [start]
        while todo:
            group = todo[-1]
            waiting = [x for x in feeds[group] if x not in done]
            if waiting:
                todo.extend(waiting)
            else:
                done[todo.pop()] = None
    return list(done)


