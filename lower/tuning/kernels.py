"""The kernels of programs under search: what is tried next of each, what came of it, and what later tunings are told.

Guarantees: times of one kernel compare, though they were measured apart: all are relative to its default, beside which they
were; a kernel whose default cannot run alone is left as it is.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from loopwright.ir.attributes import Attributes, attributes_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, Node
from loopwright.lower.covers import structure_of_kernel
from loopwright.lower.modules import alone
from loopwright.lower.tuning.candidates import structure_of
from loopwright.lower.tuning.platforms import PROCESSOR, Platform
from loopwright.lower.tuning.records import Records, record_of
from loopwright.lower.tuning.results import KernelReport
from loopwright.lower.tuning.search import KernelSearch
from loopwright.lower.tuning.sites import Site, sites_of
from loopwright.lower.tuning.workers import Outcome

BATCH = 10  # ways to make a kernel that are measured together
REMEMBERED = 3  # ways of earlier tunings that are tried first


@dataclass
class Searched:
    """Kernels of one structure: one of them, the sizes there, and how often a run of the program comes by any of them."""

    site: Site
    calls: float
    search: KernelSearch
    default: float = math.inf  # seconds of a run
    kept: float = math.inf  # of the way that the best program has
    is_done: bool = False
    fastest: Outcome | None = None
    failed: list[Outcome] = field(default_factory=list)
    taken: set[object] = field(default_factory=set)  # bests that were measured in a whole program

    @property
    def node(self) -> Node:
        """The kernel by default."""
        return self.site.node

    @property
    def best(self) -> Attributes:
        """The fastest way to make it."""
        return self.search.best[0]

    def promise(self) -> float:
        """Seconds of the program that more trials may save."""
        return self.calls * self.search.promise()

    def gain(self) -> float:
        """Seconds of the program that its best way seems to save; 0.0 where a program was measured with that."""
        return 0.0 if attributes_key(self.best) in self.taken else self.calls * (self.kept - self.search.best[1])

    def batch(self) -> list[Attributes]:
        """Ways to measure next, the default before them; none when all were."""
        proposed = self.search.propose(BATCH)
        self.is_done = not proposed
        return [self.node.attrs, *[a for a in proposed if a != self.node.attrs]] if proposed else []

    def alone(self, attrs: Attributes) -> Graph:
        """A program of the kernel made in a way."""
        n = self.node
        return alone(Node(n.op, n.inputs, attrs, n.outputs, n.regions, n.source))

    def learn(self, ways: Sequence[Attributes], outcomes: Sequence[Outcome]) -> None:
        """What became of a batch."""
        first = outcomes[0]
        if first.failure is not None:
            self.is_done = math.isinf(self.default)  # else it is the moment that is to blame
            return
        if math.isinf(self.default):
            self.default = self.kept = first.seconds
            self.search.learn(ways[0], first.seconds)
        for attrs, o in zip(ways[1:], outcomes[1:], strict=True):
            self.search.learn(attrs, o.seconds * self.default / first.seconds)  # as fast as the machine was at first
            if o.failure is not None:
                self.failed.append(o)
            elif self.best is attrs:
                self.fastest = o


class Kernels:
    """All kernels that were met, by structure. records: of kernels, wherever they were, before and after."""

    def __init__(self, records: Records | None, platform: Platform = PROCESSOR) -> None:
        self.platform, self.records = platform, records
        self.model = platform.model()
        self.known: dict[str, Searched] = {}
        self.found = 0  # for the seeds of their searches

    def of(self, g: Graph, sizes: Mapping[str, int]) -> dict[str, Searched]:
        """The kernels of a program, by structure; new ones are not known yet, as nobody may want to go on with them."""
        sites: dict[str, list[Site]] = {}
        for site in sites_of(g, sizes):
            sites.setdefault(structure_of_kernel(site.node), []).append(site)
        return {structure: self._searched(structure, several) for structure, several in sites.items()}

    def _searched(self, structure: str, sites: Sequence[Site]) -> Searched:
        calls, known = sum(s.calls for s in sites), self.known.get(structure)
        if known is None:
            site = max(sites, key=lambda s: math.prod(s.sizes.values()))
            return Searched(site, calls, self._search_of(site))
        known.calls = calls
        return known

    def _search_of(self, site: Site) -> KernelSearch:
        ways = self.platform.implementations(site.node, site.sizes)
        known = self.records.made(structure_of(alone(site.node)), self.platform.machine) if self.records else []
        right = [a for a, works in reversed(known) if works]
        self.found += 1
        search = KernelSearch(site.node, site.sizes, [*ways, *right[:REMEMBERED]], self.model, self.found, self.platform)
        for attrs, works in known:
            if not works:
                search.learn(attrs, math.inf)
        return search

    def remember(self) -> None:
        """Record of each kernel the fastest way to make it, and those that failed."""
        if self.records is not None:
            found = [o for k in self.known.values() for o in (k.fastest, *k.failed) if o is not None]
            for record in [record_of(o, self.platform.machine) for o in found]:
                if record is not None:
                    self.records.append(record)

    def reports(self, present: Mapping[str, Node]) -> tuple[KernelReport, ...]:
        """What is known of some kernels, each as it is made now."""
        known = [(s, self.known[s], n) for s, n in present.items() if s in self.known]
        return tuple([KernelReport(s, tuple([m.op.name for m in n.regions[0].nodes]), round(k.calls), k.default, k.kept,
                                   k.search.roofline, n.attrs["implementation"]) for s, k, n in known])


def difference(old: Attributes, new: Attributes) -> str:
    """What is different about a way to make a kernel, in few words."""
    if new["implementation"] != "generated" or old["implementation"] != "generated":
        return str(new["implementation"])
    before, after = set(old["schedule"]), set(new["schedule"])
    changed = [f"+{x}" for x in new["schedule"] if x not in before] + [f"-{x}" for x in old["schedule"] if x not in after]
    return " ".join(changed) or "the order of its schedule"
