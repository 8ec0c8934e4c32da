"""What was compiled, in words: `f.explain()`.

Guarantees: every version, with its guards and the user's lines, what it keeps for derivatives and what it computes again,
and its kernels with their costs: polynomials in the sizes, and numbers where a call gives them.
"""
from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.gpu_versions import GPUEntry
from loopwright.ir.cost import bytes_moved, flops, trips
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, symbols_in
from loopwright.ir.graph import Node, Value
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.residuals import Choice, total
from loopwright.ir.schedule import ComputeAt, Distribute, Tensorize
from loopwright.ir.signature import Version
from loopwright.kernels.gemm import match_gemm
from loopwright.lower.codegen.product_sizes import in_tiles_at
from loopwright.lower.control import blocks, is_control
from loopwright.lower.epilogues import what_has_epilogues
from loopwright.lower.padding import unpadded
from loopwright.lower.runtime.lazy import segments
from loopwright.lower.strips import what_is_in_strips
from loopwright.lower.target import host_target
from loopwright.versions import Draft, Entry, Versions

if TYPE_CHECKING:
    from loopwright.lower.tuning.stored import Program


def explain(versions: Versions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """See `jit`'s `explain`."""
    chosen: Entry | GPUEntry | None = None
    sizes: Mapping[str, int] = {}
    if args or kwargs:
        call = versions.parameters.call(args, kwargs)
        chosen = versions.on_gpu.entry(call) if versions.on_gpu.takes(call) else versions.entry(call)
        sizes = chosen.draft.sizes_of(call.flat(chosen.form))
    count = len(versions.entries) + len(versions.on_gpu.entries)
    lines = [f"{versions.parameters.name} ({versions.parameters.source}): {count} version{'s' * (count != 1)}, "
             f"{versions.compiles} compile{'s' * (versions.compiles != 1)}"]
    for number, entry in enumerate(versions.entries):
        lines += _version_lines(number, entry, sizes if entry is chosen else None)
    for number, found in enumerate(versions.on_gpu.entries):
        lines += _gpu_lines(number, found, sizes if found is chosen else None)
    lines += [f"tuning: {note}" for note in versions.notes]
    return "\n".join(lines)


def _version_lines(number: int, entry: Entry, sizes: Mapping[str, int] | None) -> list[str]:
    version = entry.draft.version
    types = ", ".join(str(v.type) for v in version.graph.params[:len(version.graph.params) - len(version.hidden)])
    mark = "" if sizes is None else "   <- answers these arguments"
    lines = [f"version {number}: ({types}) -> ({', '.join(str(v.type) for v in version.graph.results)}){mark}"]
    if not entry.draft.is_direct:
        lines.append("  called through Python: an argument or result holds a container other than tuple, list and dict")
    if entry.tuned is not None:
        lines.append(f"  tuned{_tuning(version, entry.tuned)}")
    lines += [f"  static: {x!r}" for x in version.objects]
    lines += [f"  guard: {g}" for g in version.guards]
    lines += [f"  reads a captured array at every call: {v.type}" for v in version.graph.params[-len(version.hidden):]
              if version.hidden]
    lines += [f"  result {k} takes the memory of argument {a}" for k, a in entry.compiled.donations.items()]
    lines += _kept_lines(entry.draft, sizes)
    kernels = entry.compiled.kernels
    target = host_target()
    divided, chains = (set(), []) if entry.compiled.donations else what_is_in_strips(kernels, target)
    joined = {} if entry.compiled.donations else what_has_epilogues(kernels, target)
    large = {v: n for v, n in joined.items() if not any(v in chain for chain in chains)}
    kernel_of: dict[Value, int] = {}
    for k, node in enumerate(unpadded(kernels).nodes):
        kernel_of.update(dict.fromkeys(node.outputs, k))
        lines += _kernel_lines(k, node, sizes)
        if not divided.isdisjoint(node.outputs):
            lines.append("    no row needs another: threads take some rows each through all trips")
        if any(sizes is None or evaluate(large[v], sizes) for v in node.outputs if v in large):
            where = ", where it is large" if sizes is None else ""
            lines.append(f"    a product and what alone reads it are one kernel, in the place of two{where}")
        for chain in [x for x in chains if x[-1] in node.outputs]:
            through = ", ".join(str(kernel_of[v]) for v in chain)
            lines.append(f"  no row of kernels {through} needs another: threads take some rows each through all of them")
    return lines


def _tuning(version: Version, found: Program) -> str:
    """At which sizes a program was tuned, and what it gained."""
    record = found.record
    at = ", ".join([f"{s}={n}" for s, n in zip(version.graph.free_symbols, record.sizes, strict=True)])
    return (f"{f' at {at}' if at else ''}: {record.speedup:.2f} times as fast as the default was "
            f"({record.default * 1e6:.2f} us to {record.best * 1e6:.2f} us)   # {found.where}")


def _gpu_lines(number: int, entry: GPUEntry, sizes: Mapping[str, int] | None) -> list[str]:
    version = entry.draft.version
    types = ", ".join(str(v.type) for v in version.graph.params[:len(version.graph.params) - len(version.hidden)])
    mark = "" if sizes is None else "   <- answers these arguments"
    lines = [f"version {number} on the GPU: ({types}) -> ({', '.join(str(v.type) for v in version.graph.results)}){mark}"]
    lines += [f"  guard: {g}" for g in version.guards]
    here = None if sizes is None else entry.chosen(sizes)
    for p, launcher in [(q, x) for q in (*entry.programs, None) for x in entry.launchers.get(q, ())]:
        if p is not None:
            lines.append(f"  tuned{_tuning(version, p)}{'   <- runs these sizes' if p is here else ''}")
        lines += [f"  result {k} takes the memory of argument {a}" for k, a in launcher.program.donations.items()]
        for k, node in enumerate(launcher.program.kernels.nodes):
            lines += _kernel_lines(k, node, None)
        if sizes is not None:
            lines += [f"  then {x}" for x in segments(launcher, sizes)]
        lines.append(f"  replayed {launcher.replays} times")
    return lines


# ---- what is kept for derivatives -------------------------------------------------------------------
def _kept_lines(draft: Draft, sizes: Mapping[str, int] | None) -> list[str]:
    """What the backward part of each derivative, and loops and branches for theirs, keep and compute again."""
    parts = [(f"the backward part of line {c.source}", c) for c in draft.residuals]
    found: dict[str, None] = {}  # a loop that is differentiated alike in several places is said once
    for who, choice in (*parts, *((f"{who} of line {c.source}", c) for who, c in draft.tapes)):
        if choice.wanted:
            found.setdefault("\n".join(_choice_lines(who, choice, sizes)))
    return list(found)


def _choice_lines(who: str, choice: Choice, sizes: Mapping[str, int] | None) -> list[str]:
    kept, wanted = (_amount(total(vs), sizes) for vs in ([k.value for k in choice.kept], choice.wanted))
    lines = [f"  {who} keeps {kept} bytes of the {wanted} bytes that it reads"]
    alike = Counter((str(k.value.type), f"of {k.made_by}, line {k.source}" if k.source else "that it is given")
                    for k in choice.kept)
    lines += [f"    keeps {f'{count} times ' if count > 1 else ''}{kind} {origin}" for (kind, origin), count in alike.items()]
    ops = Counter(n.op.name for n in choice.again)
    if ops:
        shown = ", ".join([f"{name} ({count} times)" if count > 1 else name for name, count in sorted(ops.items())])
        lines.append(f"    computes again: {shown}")
    return lines


# ---- kernels ----------------------------------------------------------------------------------------
def _kernel_lines(k: int | str, node: Node, sizes: Mapping[str, int] | None, indent: str = "  ") -> list[str]:
    if is_control(node):  # what is inside counts for one trip
        lines = [f"{indent}kernel {k} ({node.op.name}):{_all_trips(node, sizes)}"]
        regions = node.regions[0].nodes[0].regions if node.op is blocks else node.regions
        for r, region in enumerate(regions):
            name = f"{k}.{r}" if len(regions) > 1 else str(k)
            for inner, n in enumerate(region.nodes):
                lines += _kernel_lines(f"{name}.{inner}", n, None, indent + "  ")
        return lines
    ops = [n.op.name for region in node.regions for n in region.nodes] or [node.op.name]
    work, traffic = flops(node), bytes_moved(node)
    implementation = node.attrs.get("implementation", node.op.name)
    lines = [f"{indent}kernel {k} ({implementation}): {' '.join(ops)}",
             f"{indent}  {_amount(work, sizes)} flops, {_amount(traffic, sizes)} bytes"]
    lines += [f"{indent}  {line}" for line in (*_block_lines(node, sizes), *_unit_lines(node, sizes))]
    if sizes is not None:
        lines.append(f"{indent}  {_limit(evaluate(work, sizes), evaluate(traffic, sizes))}")
    return lines


def _block_lines(node: Node, sizes: Mapping[str, int] | None) -> list[str]:
    """What a kernel that goes through blocks of rows keeps of them."""
    schedule = node.attrs.get("schedule", ())
    rows = [x.size for x in schedule if isinstance(x, Distribute)]
    kept = [node.regions[0].nodes[x.stage].outputs[0] for x in schedule if isinstance(x, ComputeAt)] if rows else []
    return [f"in blocks of {n} rows, so that {_amount(total(kept), sizes)} bytes of what is computed on the way are not stored"
            for n in rows]


def _unit_lines(node: Node, sizes: Mapping[str, int] | None) -> list[str]:
    """Whether a tile unit multiplies: in a kernel whose schedule says so, or by the code that makes products of these sizes."""
    target = host_target()
    in_schedule = any(isinstance(x, Tensorize) and x.unit for x in node.attrs.get("schedule", ()))
    gemm = match_gemm(node.regions[0].nodes[0]) if node.attrs.get("implementation") == "gemm" and sizes is not None else None
    if gemm is not None and gemm.suffix == "f32" and gemm.batch == 1 and gemm.apart is None and sizes is not None:
        m, n, k = (evaluate(x, sizes) for x in (gemm.m, gemm.n, gemm.k))
        is_so = in_tiles_at(gemm.transposed, m, n, k, target)
        return ["by the tile unit (AMX), where three bf16 say each number"] if is_so else []
    return ["by the tile unit (AMX), where tiles are full and three bf16 say each number"] \
        if in_schedule and target.has_tiles else []


def _all_trips(node: Node, sizes: Mapping[str, int] | None) -> str:
    """How often a loop runs, and what that costs; of one whose trip count is data, what a trip costs; how far a block goes."""
    if node.op is blocks:
        rows, total = (_amount(node.attrs[name], sizes) for name in ("rows", "total"))
        return f" at most {rows} of {total} positions of axis {node.attrs['axis']} at a time, so that less leaves the caches"
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


# ---- this machine -----------------------------------------------------------------------------------
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
