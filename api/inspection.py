"""Seeing inside: graphs of functions, and what was compiled, as text."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from loopwright.ir.cost import bytes_moved, flops, trips
from loopwright.ir.dims import Extent, evaluate, symbols_in
from loopwright.ir.graph import Graph, Node
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.parser import parse
from loopwright.lower.control import is_control
from loopwright.tracer.pytree import take
from loopwright.tracer.signatures import Parameters
from loopwright.tracer.trace import trace
from loopwright.versions import Entry, Versions

__all__ = ["Lowered", "explain", "lowered", "make_graph", "parse"]


def make_graph(f: Callable[..., Any], *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (),
               shapes: Any = None, dynamic: bool = True) -> Callable[..., Graph]:
    """A function of f's arguments that gives the graph of f for them, as traced: one symbol per size, nothing computed.

    Captured arrays are its trailing parameters. `print` shows it and `parse` reads that text back.
    """
    parameters = Parameters(f, static_argnums, static_argnames, shapes, dynamic)

    def graph(*args: Any, **kwargs: Any) -> Graph:
        call = parameters.call(args, kwargs)
        parameters.check_declaration(call, lambda a, b: a == b)
        types, symbols = parameters.types(call)

        def run(tracers: list[Any]) -> Any:
            positional, keywords = call.rebuild(call.form, tracers, take)
            return f(*positional, **keywords)

        traced = trace(run, types, scope=symbols.scope, is_floor=True, is_sealed=True, why=f"make_graph of {parameters.name}")
        symbols.check_free(parameters.name)
        return traced.graph
    return graph


@dataclass(frozen=True)
class Lowered:
    """The stages of one version as text: the simplified graph, its kernels, LLVM text, assembly of this machine."""

    graph: str
    kernels: str
    llvm: str
    asm: str


@dataclass(frozen=True)
class Machine:
    """What a kernel hardly beats: bytes and float32 operations per second, as measured here."""

    bandwidth: float
    operations: float


@cache
def machine() -> Machine:
    """Measured once: a copy of 32 MiB, and a product of matrices that fit the cache."""
    source, target = np.zeros(1 << 25, np.uint8), np.ones(1 << 25, np.uint8)
    square = np.ones((512, 512), np.float32)
    return Machine(2 * source.nbytes / _best(lambda: np.copyto(target, source)), 2 * 512 ** 3 / _best(lambda: square @ square))


def _best(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(6):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def lowered(versions: Versions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Lowered:
    """See `jit`'s `lower`."""
    entry = versions.entry(versions.parameters.call(args, kwargs))
    compiled = entry.compiled
    return Lowered(str(entry.draft.version.graph), str(compiled.kernels), compiled.llvm, compiled.asm)


def explain(versions: Versions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """See `jit`'s `explain`."""
    chosen, sizes = None, {}
    if args or kwargs:
        call = versions.parameters.call(args, kwargs)
        chosen = versions.entry(call)
        sizes = chosen.sizes_of(call)
    count = len(versions.entries)
    lines = [f"{versions.parameters.name} ({versions.parameters.source}): {count} version{'s' * (count != 1)}, "
             f"{versions.compiles} compile{'s' * (versions.compiles != 1)}"]
    for number, entry in enumerate(versions.entries):
        lines += _version_lines(number, entry, sizes if entry is chosen else None)
    return "\n".join(lines)


def _version_lines(number: int, entry: Entry, sizes: Mapping[str, int] | None) -> list[str]:
    version = entry.draft.version
    types = ", ".join(str(v.type) for v in version.graph.params[:len(version.graph.params) - len(version.hidden)])
    mark = "" if sizes is None else "   <- answers these arguments"
    lines = [f"version {number}: ({types}) -> ({', '.join(str(v.type) for v in version.graph.results)}){mark}"]
    if not entry.draft.is_direct:
        lines.append("  called through Python: an argument or result holds a container other than tuple, list and dict")
    lines += [f"  static: {x!r}" for x in version.objects]
    lines += [f"  guard: {g}" for g in version.guards]
    lines += [f"  reads a captured array at every call: {v.type}" for v in version.graph.params[-len(version.hidden):]
              if version.hidden]
    lines += [f"  result {k} takes the memory of argument {a}" for k, a in entry.compiled.donations.items()]
    for k, node in enumerate(entry.compiled.kernels.nodes):
        lines += _kernel_lines(k, node, sizes)
    return lines


def _kernel_lines(k: int | str, node: Node, sizes: Mapping[str, int] | None, indent: str = "  ") -> list[str]:
    if is_control(node):  # what is inside counts for one trip
        lines = [f"{indent}kernel {k} ({node.op.name}):{_all_trips(node, sizes)}"]
        for r, region in enumerate(node.regions):
            name = f"{k}.{r}" if len(node.regions) > 1 else str(k)
            for inner, n in enumerate(region.nodes):
                lines += _kernel_lines(f"{name}.{inner}", n, None, indent + "  ")
        return lines
    ops = [n.op.name for region in node.regions for n in region.nodes] or [node.op.name]
    work, traffic = flops(node), bytes_moved(node)
    implementation = node.attrs.get("implementation", node.op.name)
    lines = [f"{indent}kernel {k} ({implementation}): {' '.join(ops)}",
             f"{indent}  {_amount(work, sizes)} flops, {_amount(traffic, sizes)} bytes"]
    if sizes is not None:
        lines.append(f"{indent}  {_limit(evaluate(work, sizes), evaluate(traffic, sizes))}")
    return lines


def _all_trips(node: Node, sizes: Mapping[str, int] | None) -> str:
    """How often a loop runs, and what that costs; of one whose trip count is data, what a trip costs."""
    work = f"{_amount(flops(node), sizes)} flops, {_amount(bytes_moved(node), sizes)} bytes"
    if node.op is scan:
        return f" {_amount(trips(node), sizes)} trips, {work}"
    return f" {work} per trip" if node.op is while_ else ""


def _amount(x: Extent, sizes: Mapping[str, int] | None) -> str:
    if sizes is None or isinstance(x, int) or not symbols_in(x) <= sizes.keys():  # of what a region counts
        return str(x)
    return f"{x} = {evaluate(x, sizes):,}"


def _limit(work: int, traffic: int) -> str:
    here = machine()
    arithmetic, memory = work / here.operations, traffic / here.bandwidth
    binding = (f"memory at {here.bandwidth / 1e9:.1f} GB/s" if memory >= arithmetic
               else f"arithmetic at {here.operations / 1e9:.1f} Gflop/s")
    return f"estimated limit: {max(arithmetic, memory) * 1e6:.2f} us ({binding})"
