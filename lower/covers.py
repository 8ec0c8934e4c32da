"""How a graph becomes a program, as data: decisions of the partition, and how kernels are made; and what else could be chosen.

Guarantees: the empty cover is what rules alone decide; a cover that does not fit is refused (ScheduleError), and one that fits
computes the same values; `alternatives` fit, and differ in what their kernels compute.
"""
from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from loopwright.ir import loops, nest, schedule
from loopwright.ir.attributes import Attributes, map_extents
from loopwright.ir.cost import bytes_moved
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, symbol
from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.parser import parse_attribute
from loopwright.ir.printer import print_attribute
from loopwright.ir.schedule import InPlace
from loopwright.kernels.gemm import match_gemm
from loopwright.lower import natives
from loopwright.lower.blocking import blocked, chains
from loopwright.lower.decisions import (
    Again,
    Apart,
    Call,
    Chaining,
    Decision,
    Generate,
    InBlocks,
    Join,
    Taken,
    Use,
    Whole,
    family_of,
    from_data,
    to_data,
)
from loopwright.lower.kernel import kernel, program
from loopwright.lower.partition import Partition, partition, partitioned
from loopwright.lower.patterns import ways
from loopwright.lower.rules import default_schedule
from loopwright.lower.runtime import natives as codes
from loopwright.lower.runtime.cache import digest
from loopwright.lower.runtime.canonical import canonical
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import Target

NOMINAL = 1000  # of a size that nobody told: what alternatives are ranked by
MOST_TRIED = 128  # decisions that are looked at,
MOST_NODES = 6000  # or nodes that are partitioned anew for that
PROMISE = {Use: 16, Generate: 8, Call: 8, InBlocks: 4, Whole: 4, Join: 2, Again: 2, Apart: 1}  # by the bytes of a node
ROWS = (16, 64, 256)  # of blocks


@dataclass(frozen=True)
class Cover:
    """`partition`: decisions that rules would take otherwise, or take too. `kernels`: by `structure_of_kernel`, how a kernel is
    made instead. Sizes in there are those of the kernel: by name, or `_0`, `_1`, ... by number in the order of its symbols, so
    that it holds for other kernels of that structure."""

    partition: tuple[Decision, ...] = ()
    kernels: Mapping[str, Attributes] = field(default_factory=dict)

    def using(self, n: Node, attrs: Attributes) -> Cover:
        """This cover, with kernels like n made by `attrs`."""
        numbers: dict[str, Extent] = {s: symbol(f"_{k}") for k, s in enumerate(n.regions[0].symbols)}
        by_number = {name: map_extents(x, numbers) for name, x in attrs.items()}
        return dataclasses.replace(self, kernels={**self.kernels, structure_of_kernel(n): by_number})

    def to_json(self) -> str:
        """The cover as one line of JSON."""
        kernels = {structure: {name: print_attribute(x) for name, x in attrs.items()}
                   for structure, attrs in self.kernels.items()}
        return json.dumps({"partition": to_data(self.partition), "kernels": kernels})

    @staticmethod
    def from_json(text: str) -> Cover:
        """The cover that `to_json` wrote. ValueError for a decision that is not known, ParseError for what else is not."""
        data = json.loads(text)
        kernels = {structure: {name: parse_attribute(x, CLASSES) for name, x in attrs.items()}
                   for structure, attrs in data["kernels"].items()}
        return Cover(from_data(data["partition"]), kernels)


RULES = Cover()  # decides nothing


def _classes(*modules: object) -> dict[str, type]:
    """The dataclasses that attributes of these modules are made of."""
    return {name: x for m in modules for name, x in vars(m).items() if isinstance(x, type) and dataclasses.is_dataclass(x)}


CLASSES: Mapping[str, type] = _classes(loops, nest, schedule, natives, codes)


# ---- kernels ----------------------------------------------------------------------------------------
def structure_of_kernel(n: Node) -> str:
    """The same for kernels that compute the same in every process, whatever their sizes are called."""
    return digest(canonical(n.regions[0].key, {}))[:32]


def remade(g: Graph, attrs: Callable[[Node], Attributes]) -> Graph:
    """g with these attributes of its kernels, at any depth."""
    nodes = []
    for n in g.nodes:
        regions = n.regions if n.op is kernel else tuple([remade(r, attrs) for r in n.regions])
        nodes.append(Node(n.op, n.inputs, attrs(n) if n.op is kernel else n.attrs, n.outputs, regions, n.source))
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


def covered(g: Graph, kernels: Mapping[str, Attributes]) -> Graph:
    """A partitioned graph with kernels made as a cover says. ScheduleError where that does not fit."""
    def attrs(n: Node) -> Attributes:
        found = kernels.get(structure_of_kernel(n))
        return n.attrs if found is None else _fitted(n, found)
    return remade(g, attrs) if kernels else g


def _fitted(n: Node, found: Attributes) -> Attributes:
    """Attributes for a kernel, which still updates in place what it did."""
    who = f"{f'{n.source}: ' if n.source else ''}{found['implementation']} for a kernel of {structure_of_kernel(n)}"
    symbols = n.regions[0].symbols
    attrs = {name: map_extents(x, {f"_{k}": symbol(s) for k, s in enumerate(symbols)}) for name, x in found.items()}
    in_place = tuple([x for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace)])
    if found["implementation"] != "generated":
        if in_place:
            raise ScheduleError(f"{who}: the kernel updates an operand in place, which only generated ones do.")
        return attrs
    attrs["schedule"] = (*[x for x in attrs["schedule"] if not isinstance(x, InPlace)], *in_place)
    try:
        build_nest(n.regions[0], attrs["schedule"], "trial")
    except ScheduleError as error:
        raise ScheduleError(f"{who}: {error}") from None
    return attrs


def implementations(n: Node, target: Target, blas: bool) -> list[Attributes]:
    """Ways to make a kernel, of which the first is how it is made now: loops by rule, the library, users' kernels."""
    region = n.regions[0]
    in_place = tuple([x for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace)])
    found: list[Attributes] = [n.attrs]
    if all(m.op.loop is not None for m in region.nodes) and _is_one_kernel(n, target):
        found.append({"implementation": "generated", "schedule": (*default_schedule(region, target), *in_place)})
    if not in_place:
        found += [{"implementation": "gemm"}] if blas and len(region.nodes) == 1 and match_gemm(region.nodes[0]) else []
        found += ways(n, blas)
    return [x for k, x in enumerate(found) if x not in found[:k]]


def _is_one_kernel(n: Node, target: Target) -> bool:
    """Whether loops can make the kernel: a user's may compute what takes several."""
    region = n.regions[0]
    return "code" not in n.attrs or [k.regions for k in partition(region, target, blas=False).nodes] == [(region,)]


# ---- partitions -------------------------------------------------------------------------------------
def chosen(made: Partition, decisions: Sequence[Decision]) -> dict[Value, Chaining]:
    """What is decided of chains of kernels, by their first result. ScheduleError for a node that no kernel is made for."""
    first = {place: v for v, place in made.places.items()}
    found: dict[Value, Chaining] = {}
    for x in decisions:
        if isinstance(x, Chaining):
            if x.node not in first:
                raise ScheduleError(f"{x}: no kernel is made for that node.")
            if found.setdefault(first[x.node], x) != x:
                raise ScheduleError(f"{x}: {found[first[x.node]]} says otherwise.")
    return found


def alternatives(g: Graph, target: Target, blas: bool, cover: Cover, sizes: Mapping[str, int] = {},
                 fast_math: bool = False) -> list[Cover]:
    """Covers that differ from this one by one decision, or by one about all nodes of a kind, and have other kernels, each
    once: first those whose kernels move fewest bytes, at these `sizes`. Of large graphs, decisions about products and large
    values alone are looked at."""
    def make(decisions: Sequence[Decision]) -> Partition:
        return partitioned(g, target, blas=blas, decisions=decisions, is_scheduled=False, fast_math=fast_math)
    return alternatives_of(g, make, cover, sizes, target)


def alternatives_of(g: Graph, make: Callable[[Sequence[Decision]], Partition], cover: Cover, sizes: Mapping[str, int],
                    target: Target | None = None) -> list[Cover]:
    """The same for partitions that `make` makes. target: for which chains of kernels may be loops over blocks; None: they are
    left alone."""
    if any(n.op is program for n in g.nodes):
        return []
    known = defaultdict(lambda: NOMINAL, sizes)
    made = make(cover.partition)
    seen, found = {_kernels(made, cover.partition, target)}, []
    for more in _steps(made, cover, known, target is not None)[:min(MOST_TRIED, MOST_NODES // max(g.size(), 1))]:
        about = {(x.node, family_of(x)) for x in more}
        decisions = (*(x for x in cover.partition if (x.node, family_of(x)) not in about), *more)
        try:
            kernels = _kernels(make(decisions), decisions, target)
        except ScheduleError:
            continue
        if kernels not in seen:
            seen.add(kernels)
            found.append((evaluate(bytes_moved(kernels), known), dataclasses.replace(cover, partition=decisions)))
    return [x for _, x in sorted(found, key=lambda pair: pair[0])]


def _steps(made: Partition, cover: Cover, sizes: Mapping[str, int], in_blocks: bool) -> list[tuple[Decision, ...]]:
    """What could be decided next, what promises most first: one decision, or the same about all nodes of a kind."""
    single: list[tuple[int, tuple[Decision, ...]]] = []
    alike: dict[Any, list[tuple[int, Decision]]] = defaultdict(list)
    for t in (*made.taken, *(_chainings(made) if in_blocks else ())):
        for k, x in enumerate(t.others):
            if x != t.decision and x not in cover.partition:
                promise = evaluate(t.value.type.size, sizes) * t.value.type.dtype.itemsize * PROMISE[type(x)]
                single.append((promise, (x,)))
                alike[t.kind, k, type(x)].append((promise, x))
    several = [(sum(p for p, _ in xs), tuple([x for _, x in xs])) for xs in alike.values() if len(xs) > 1]
    return [xs for _, xs in sorted([*several, *single], key=lambda pair: -pair[0])]


def _kernels(made: Partition, decisions: Sequence[Decision], target: Target | None) -> Graph:
    return made.kernels if target is None else blocked(made.kernels, target, chosen(made, decisions))


def _chainings(made: Partition) -> list[Taken]:
    """What is decided of each chain of kernels by rule, and what else could be."""
    found = []
    for v, is_divided in chains(made.kernels):
        at = made.places[v]
        others: tuple[Decision, ...] = (Whole(at), *[InBlocks(at, rows) for rows in ROWS]) if is_divided else (InBlocks(at),)
        found.append(Taken(InBlocks(at) if is_divided else Whole(at), others, v, ("chain", is_divided)))
    return found
