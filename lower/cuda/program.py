"""From a graph to the CUDA text of all its kernels.

Guarantees: kernels of equal structure are one; what is no kernel is named where it runs: calls of libraries, and loops and
branches, which the host runs (`launcher.py`). A kernel whose sizes only the run tells has 64-bit indices.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loopwright.ir.attributes import attributes_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.schedule import InPlace, Schedule
from loopwright.ir.source import Source
from loopwright.kernels.gemm import match_product
from loopwright.lower.control import is_control
from loopwright.lower.covers import RULES, Cover, alternatives_of, covered
from loopwright.lower.cuda.chain_rules import chain_in_passes
from loopwright.lower.cuda.convolutions import with_implicit_products
from loopwright.lower.cuda.emit import CudaKernel, emit_cuda
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.products import library_product, with_products
from loopwright.lower.cuda.rules import gpu_schedule
from loopwright.lower.cuda.sorting import sorting_kernel, sorts
from loopwright.lower.decisions import Decision
from loopwright.lower.donation import donate
from loopwright.lower.kernel import kernel, program, region_of
from loopwright.lower.partition import Partition, partitioned
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.target import Target

HOST = Target("", "", "", 256)  # what the partition asks of a machine
UNKNOWN = 1024  # a size that only the run tells, when schedules are chosen


@dataclass(frozen=True)
class CudaProgram:
    """`text`: one source with all kernels. `kernels`: the partitioned graph with its schedules. `made`: the launches of each
    of its generated kernels. `sites`: for each, the stages that its error sites are (-1: none); site 0 is no stage's.
    `donations`: which results lie in the memory of which arguments."""

    text: str
    kernels: Graph
    made: Mapping[Node, CudaKernel]
    sites: Mapping[Node, tuple[int, ...]]
    donations: Mapping[int, int]

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the indices of all kernels are wide enough for these sizes."""
        return all(not k.narrow or k.fits(sizes_in(n, k, sizes)) for n, k in self.made.items())

    def source(self, n: Node, site: int) -> Source | None:
        """The user's line of an error site of kernel n."""
        stage = self.sites[n][site]
        return n.regions[0].nodes[stage].source if stage >= 0 else n.source


def sizes_in(n: Node, k: CudaKernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of kernel n as its text calls them: kernels of equal structure are one, whatever their symbols are."""
    return {own: sizes[s] for own, s in zip(k.symbols, n.regions[0].symbols, strict=True)}


class Hints(dict[str, int]):
    """The sizes of one call; one that is not told has a size of its own."""

    def __missing__(self, name: str) -> int:
        return UNKNOWN


def lower_cuda(g: Graph, sizes: Mapping[str, int], donated: Sequence[int] = (), fast_math: bool = False) -> CudaProgram:
    """The program of a graph for a GPU, its schedules good at these sizes of its symbols, its indices wide enough for them.
    `donated`: arguments whose memory results may take. Of a graph that is a program already (`lower.modules`) all is
    decided. DTypeError where it holds a dtype that has no machine code.

    >>> import numpy as np, loopwright as lw
    >>> from loopwright.lower.cuda import lower_cuda
    >>> graph = lw.make_graph(lambda x: np.tanh(x) + 1)(np.ones(5, "f4"))
    >>> "kernel_0(" in lower_cuda(graph, {"n": 5}).text
    True
    """
    made = _Program(Hints(sizes), fast_math)
    if len(g.nodes) == 1 and g.nodes[0].op is program:
        once = g.nodes[0]
        return made.finished(once.regions[0], dict(once.attrs["donations"]))
    return made.finished(*made.chosen(g, donated, RULES))


def cover_cuda(g: Graph, sizes: Mapping[str, int], donated: Sequence[int] = (), fast_math: bool = False,
               cover: Cover = RULES) -> tuple[Graph, Mapping[int, int]]:
    """The kernels of a graph with their schedules for a GPU, and which results lie in which donated arguments, with what
    `cover` decides. ScheduleError for a cover that does not fit."""
    return _Program(Hints(sizes), fast_math).chosen(g, donated, cover)


def alternatives_cuda(g: Graph, sizes: Mapping[str, int], cover: Cover, fast_math: bool = False) -> list[Cover]:
    """Covers that differ from this one by one decision, or by one about all nodes of a kind: see `covers.alternatives`."""
    made = _Program(Hints(sizes), fast_math)
    return alternatives_of(g, lambda decisions: made.partitioned(g, decisions, is_scheduled=False), cover, sizes)


class _Program:
    def __init__(self, sizes: Hints, fast_math: bool = False) -> None:
        self.sizes, self.fast_math, self.library = sizes, fast_math, Library()
        self.known: dict[Any, tuple[CudaKernel, tuple[int, ...]]] = {}
        self.schedules: dict[Any, Schedule] = {}
        self.made: dict[Node, CudaKernel] = {}
        self.sites: dict[Node, tuple[int, ...]] = {}

    def chosen(self, g: Graph, donated: Sequence[int], cover: Cover) -> tuple[Graph, Mapping[int, int]]:
        """Kernels and their schedules."""
        made = self.partitioned(g, cover.partition).kernels
        kernels, donations = donate(self.graph(with_products(made, self.sizes)), g, donated)
        return covered(kernels, cover.kernels), donations

    def partitioned(self, g: Graph, decisions: Sequence[Decision], *, is_scheduled: bool = True) -> Partition:
        """Kernels, of which some are chains of products."""
        g = with_implicit_products(g, self.sizes)
        return partitioned(g, HOST, blas=True, decisions=decisions, is_scheduled=is_scheduled, match=match_product,
                           in_chain=lambda region: chain_in_passes(region, self.sizes, self.fast_math))

    def finished(self, kernels: Graph, donations: Mapping[int, int]) -> CudaProgram:
        """The program of these kernels."""
        self.emit(kernels)
        steps = "\n".join(f"// {line}" for line in self.steps(kernels, ""))
        texts = [*self.library.texts.values(), *(k.text for k in dict.fromkeys(self.made.values()))]
        return CudaProgram("\n\n".join([steps, *texts]) + "\n", kernels, self.made, self.sites, donations)

    def graph(self, g: Graph) -> Graph:
        nodes = [part for n in g.nodes for part in (_apart(n) if n.attrs.get("implementation") == "generated" else [n])]
        return Graph(g.params, tuple(map(self.node, nodes)), g.results, g.constraints)

    def node(self, n: Node) -> Node:
        """A node with the GPU's schedules for the CPU's."""
        if n.op is not kernel:
            return Node(n.op, n.inputs, n.attrs, n.outputs, tuple(map(self.graph, n.regions)), n.source)
        if n.attrs["implementation"] != "generated":
            return n
        region, kept = n.regions[0], tuple(x for x in n.attrs["schedule"] if isinstance(x, InPlace))
        key = region.key, attributes_key({"kept": kept})
        if key not in self.schedules:
            self.schedules[key] = _in_place(region, gpu_schedule(region, self.sizes, self.fast_math), kept)
        return Node(n.op, n.inputs, {**n.attrs, "schedule": self.schedules[key]}, n.outputs, n.regions, n.source)

    def emit(self, g: Graph) -> None:
        """The text of each kernel, those of regions too."""
        for n in g.nodes:
            if n.op is kernel and (n.attrs["implementation"] == "generated" or sorts(n)):
                self.made[n], self.sites[n] = self.kernel(n)
            elif n.op is not kernel:
                for region in n.regions:
                    self.emit(region)

    def kernel(self, n: Node) -> tuple[CudaKernel, tuple[int, ...]]:
        """The text of a kernel: with 32-bit indices where its sizes are told and so small."""
        is_told = all(s in self.sizes for s in n.regions[0].symbols)
        if is_told:
            made, sites = self.emitted(n, wide=False)
            if made.fits(sizes_in(n, made, self.sizes)):
                return made, sites
        return self.emitted(n, wide=True)

    def emitted(self, n: Node, wide: bool) -> tuple[CudaKernel, tuple[int, ...]]:
        key = n.regions[0].key, attributes_key(n.attrs), wide
        if key not in self.known:
            name = f"kernel_{len(self.known)}"
            if sorts(n):
                self.known[key] = sorting_kernel(n, name, self.library, wide=wide), ()
            else:
                scheduled = build_nest(n.regions[0], n.attrs["schedule"], name)
                self.known[key] = emit_cuda(scheduled.nest, self.library, wide=wide), scheduled.sites
        return self.known[key]

    # ---- what runs when ------------------------------------------------------------------------
    def steps(self, g: Graph, indent: str) -> Iterator[str]:
        """A line for each node, in order."""
        for n in g.nodes:
            types = f"{', '.join(str(v.type) for v in n.inputs)} -> {', '.join(str(v.type) for v in n.outputs)}"
            if n in self.made:
                for x in self.made[n].launches:
                    blocks = evaluate(x.grid, sizes_in(n, self.made[n], self.sizes))
                    if x.numbers and not blocks:
                        continue  # one of those that other sizes are for
                    grid = blocks if x.numbers else x.grid
                    yield f"{indent}{x.name}<<<{grid}, {x.threads[0]} * {x.threads[1]}>>> ({blocks} blocks now): {types}"
            elif n.op is kernel:
                name = n.attrs["implementation"]
                called = f"{library_product(n.regions[0])} (cuBLASLt)" if name == "gemm" else name
                yield f"{indent}library call, no kernel: {called}: {types}"
            elif is_control(n):
                yield f"{indent}{n.op.name}, run by the host: {types}"
                for region in n.regions:
                    yield from self.steps(region, indent + "  ")
            else:
                yield f"{indent}{n.op.name}, the same bytes: {types}"


def _apart(n: Node) -> list[Node]:
    """A kernel without those results that its root's loops do not walk, and these as kernels of their own, which read what
    it then stores for them."""
    region = n.regions[0]
    root = region.results[0].type.shape
    if all(v.type.shape == root[:v.type.rank] for v in region.results):
        return [n]
    known = dict(zip((*region.params, *region.results), (*n.inputs, *n.outputs), strict=True))
    apart = [v for v in region.results if v.type.shape != root[:v.type.rank]]
    others = [next(m for m in region.nodes if v in m.outputs) for v in apart]
    kept = dict.fromkeys([*(v for v in region.results if v not in apart), *(v for m in others for v in m.inputs)])
    results = [v for v in kept if v not in region.params]
    known |= {v: Value(v.type) for v in results if v not in known}
    made = [_part(n, [m for m in region.nodes if m not in others], results, known)]
    return [*made, *(_part(n, [m], m.outputs, known) for m in others)]


def _part(n: Node, nodes: Sequence[Node], results: Sequence[Value], known: Mapping[Value, Value]) -> Node:
    """A kernel of some of n's nodes."""
    region, outside = region_of(nodes, results)
    attrs = {**n.attrs, "schedule": ()}
    return Node(n.op, tuple([known[v] for v in outside]), attrs, tuple([known[v] for v in results]), (region,), n.source)


def _in_place(region: Graph, schedule: Schedule, kept: Schedule) -> Schedule:
    """The schedule with those updates in place that it allows."""
    for x in kept:
        try:
            build_nest(region, (*schedule, x), "trial")
        except ScheduleError:
            continue
        schedule = (*schedule, x)
    return schedule
