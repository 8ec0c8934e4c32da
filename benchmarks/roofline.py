"""What this machine allows: the least time that a program could take on it, by what it must move and must compute.

Ceilings are measured in the same process, by one thread or by all that take part: copies or maxima, the faster, of as many
bytes as the program moves, and multiply-adds of whole registers. A program moves each argument and result once; it computes
what `loopwright.ir.cost` counts, where a transcendental function is ten operations (fewer than it takes anywhere), and a
`while` counts for one trip.
"""
from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

import loopwright as lw
from loopwright.ir.cost import flops
from loopwright.ir.expansion import expanded
from loopwright.ir.graph import Graph
from loopwright.lower.codegen.machine import suffix, vector_type
from loopwright.lower.runtime.engine import assemble, load
from loopwright.lower.target import host_target

LEAST_BYTES = 1 << 14  # less is gone before a clock can tell
TURNS, SUMS = 1 << 20, 12  # of a loop of multiply-adds; sums in it, more than wait for one another


def least_seconds(f: Callable[..., Any], args: tuple[Any, ...], threads: int) -> float:
    """Seconds that `f(*args)` takes at the ceilings of this machine."""
    graph = expanded(lw.make_graph(f, dynamic=False)(*args))
    moved = _moved(graph)
    wide = "float64" if any(v.type.dtype.name == "f64" for v in graph.params) else "float32"
    fastest = max(memory_speed(_rounded(moved), count) for count in {1, threads})
    return max(moved / fastest, int(flops(graph)) / arithmetic_speed(wide, threads))


def copy_seconds(f: Callable[..., Any], args: tuple[Any, ...], threads: int) -> float:
    """Seconds in which so many threads move as many bytes as `f(*args)` does."""
    moved = _moved(lw.make_graph(f, dynamic=False)(*args))
    return moved / memory_speed(_rounded(moved), threads)


def _moved(graph: Graph) -> int:
    """Bytes of arguments and results."""
    return sum(int(v.type.size) * v.type.dtype.itemsize for v in {*graph.params, *graph.results})


def _rounded(count: int) -> int:
    """So that few sizes are measured: the power of two above, and no less than a clock can tell."""
    return 1 << max(count - 1, LEAST_BYTES).bit_length()


@cache
def memory_speed(moved: int, threads: int) -> float:
    """Bytes a second, read and written, where that many bytes are copied, or read for their maximum, again and again."""
    parts = [np.ones((2, moved // 8 // threads), "float32") for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        def run(f: Callable[[np.ndarray], object]) -> None:
            waiting = [pool.submit(f, x) for x in parts[1:]]
            f(parts[0])
            for x in waiting:
                x.result()
        return moved / min(_best(partial(run, f)) for f in (lambda x: np.copyto(x[0], x[1]), np.max))


@cache
def arithmetic_speed(dtype: str, threads: int) -> float:
    """Operations a second of multiply-adds in registers: two each."""
    target = host_target()
    lanes = target.lanes(np.dtype(dtype))
    library = load(assemble(_sums(vector_type("float" if dtype == "float32" else "double", lanes), lanes)), {}, ("sums",))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library["sums"])
    parts = [np.ones(lanes * SUMS + 16, dtype) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        def all_at_once() -> None:
            for x in [pool.submit(run, x.ctypes.data, TURNS) for x in parts]:
                x.result()
        return 2 * lanes * SUMS * TURNS * threads / _best(all_at_once)


def _sums(kind: str, lanes: int) -> str:
    """A function that adds products to sums of one register each, so many times."""
    def each(line: str) -> str:
        return "\n".join(line.format(k=k, at=k * lanes) for k in range(SUMS))
    element, name = kind.split(" x ")[-1].rstrip(">"), f"llvm.fmuladd.{suffix(kind)}"
    return f"""
declare {kind} @{name}({kind}, {kind}, {kind})
define void @sums(ptr %x, i64 %turns) "prefer-vector-width"="512" {{
entry:
  %factor = load {kind}, ptr %x, align 4
  br label %turn
turn:
  %k = phi i64 [ 0, %entry ], [ %next, %turn ]
{each(f"  %s{{k}} = phi {kind} [ zeroinitializer, %entry ], [ %t{{k}}, %turn ]")}
{each(f"  %t{{k}} = call {kind} @{name}({kind} %factor, {kind} %factor, {kind} %s{{k}})")}
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %turns
  br i1 %more, label %turn, label %done
done:
{each(f"  %p{{k}} = getelementptr {element}, ptr %x, i64 {{at}}")}
{each(f"  store {kind} %t{{k}}, ptr %p{{k}}, align 4")}
  ret void
}}
"""


def _best(run: Callable[[], object], rounds: int = 9, seconds: float = 0.01) -> float:
    """Seconds of the fastest of some rounds."""
    run()
    start = time.perf_counter()
    run()
    repeats = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    return min(_timed(run, repeats) for _ in range(rounds)) / repeats


def _timed(run: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return time.perf_counter() - start
