"""What this machine allows: the least time that a program could take on it, by what it must move and must compute.

Ceilings are measured in the same process: copies or maxima, the faster, of as many bytes as the program moves, by one thread or
by all that take part, and NumPy's products of large matrices. A program moves each argument and result once; it computes what
`loopwright.ir.cost` counts, where a transcendental function is ten operations (fewer than it takes anywhere), and a `while`
counts for one trip.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

import loopwright as lw
from loopwright.ir.cost import flops
from loopwright.ir.expansion import expanded

LEAST_BYTES = 1 << 14  # less is gone before a clock can tell
SIDE = 1024  # of the matrices whose product shows how fast numbers multiply


def least_seconds(f: Callable[..., Any], args: tuple[Any, ...], threads: int) -> float:
    """Seconds that `f(*args)` takes at the ceilings of this machine."""
    graph = expanded(lw.make_graph(f, dynamic=False)(*args))
    moved = sum(int(v.type.size) * v.type.dtype.itemsize for v in {*graph.params, *graph.results})
    wide = "float64" if any(v.type.dtype.name == "f64" for v in graph.params) else "float32"
    fastest = max(memory_speed(_rounded(moved), count) for count in {1, threads})
    return max(moved / fastest, int(flops(graph)) / product_speed(wide))


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
def product_speed(dtype: str) -> float:
    """Operations a second of a large matrix product, with as many threads as NumPy's library has."""
    x = np.ones((SIDE, SIDE), dtype)
    return 2 * SIDE**3 / _best(partial(np.matmul, x, x, out=np.empty_like(x)))


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
