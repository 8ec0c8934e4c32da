"""How near programs on a GPU come to what the card does: `make bench-gpu`, at most eight minutes.

Every case is timed by the clock over many calls that nothing waits between, the median of some rounds: loopwright with CUDA
graphs and without, and CuPy, JAX, torch.compile and Triton where they are installed and find the card (`gpu_peers.py`). First
large arrays, beyond any cache, rows of fifty lengths from nothing, and after them the workloads that `make bench` times on the
processor, each result compared with the expected one; then all once more for the peers that take seconds to compile. Ceilings
are measured before: a copy, products of matrices by CuPy. benchmarks/gpu_results.json is written after every row. Peers that
fail are named with their error; a case that takes no peer's function is timed without it. `--quick` runs all cases once, at
tiny sizes, to see that they run.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks import contest, gpu_peers, graphs, irregular, maps, networks, products, reductions, sorting
from loopwright.lower.runtime import lazy

RESULTS = Path(__file__).parent / "gpu_results.json"
BUDGET = 450.0  # seconds after which nothing is begun
ROUND, ROUNDS, MOST_CALLS = 0.03, 5, 2000  # seconds of a round, their number, and the most calls of one
LENGTHS, MANY_LENGTHS = range(100, 600, 10), "fifty lengths of rows, with compiles"
TINY = 1e-6  # of the elements, when it is quick
OFTEN = (*maps.WORKLOADS, *reductions.WORKLOADS, *products.WORKLOADS, networks.mlp, networks.attention, networks.rnn,
         *graphs.WORKLOADS, irregular.transposed, irregular.bodies, irregular.mandelbrot, *sorting.WORKLOADS)


@dataclass(frozen=True)
class Case:
    """`f(xp, *args)` in NumPy's words. `make(rng, n)`: its arguments of about n elements. `moved(args)`: bytes that it must
    move, against the copy ceiling; `flops(args)`: against the matmul ceiling of the dtype. `numpy_alone`: peers
    cannot. `exactly`: JAX takes part a second time, which multiplies f32 as TF32 unless it is told otherwise."""

    name: str
    f: Any
    make: Any
    moved: Any = None
    flops: Any = None
    numpy_alone: bool = False
    exactly: bool = False
    elements: int = 10**8


def of(*shape_of, dtype="f4"):
    """Arguments of standard normal numbers, of shapes that are functions of n."""
    return lambda rng, n: [rng.standard_normal(shape(n), dtype="f4").astype(dtype) for shape in shape_of]


def rows(n):
    return max(n // 1000, 1), min(n, 1000)


def vector(n):
    return (n,)


def square(n):
    return (max(int(n ** 0.5), 1),) * 2


def twice(args):
    return 2 * args[0].nbytes


def once(args):
    return args[0].nbytes


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def layernorm(xp, x):
    centred = x - xp.mean(x, axis=1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + np.float32(1e-5))


def chain(xp, x):
    for _ in range(10):  # each step needs all of the one before
        x = xp.cumsum(x) * np.float32(0.5)
    return x


def loss(w1, w2, x, y):
    return lw.numpy.mean((np.tanh(x @ w1) @ w2 - y) ** 2)


def step(xp, w1, w2, x, y):
    g1, g2 = lw.grad(loss, argnums=(0, 1))(w1, w2, x, y)
    return w1 - np.float32(0.1) * g1, w2 - np.float32(0.1) * g2


def attention(xp, q, k, v):
    scores = q @ xp.swapaxes(k, -1, -2) * q.dtype.type(0.125)
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return (e / xp.sum(e, axis=-1, keepdims=True)) @ v


def mandelbrot(xp, x, y):
    def escape(a, b):
        def more(s):
            return (s[0] * s[0] + s[1] * s[1] < 4) & (s[2] < 200)
        return lw.lax.while_loop(more, lambda s: (s[0] * s[0] - s[1] * s[1] + a, 2 * s[0] * s[1] + b, s[2] + 1), (a, b, 0))[2]
    return lw.vmap(escape)(x, y)


CASES = [
    Case("elementwise", lambda xp, x: xp.tanh(x) * x + np.float32(1), of(vector), twice),
    Case("vector add", lambda xp, x, y: x + y, of(vector, vector), lambda args: 3 * args[0].nbytes),
    Case("sum", lambda xp, x: xp.sum(x), of(vector), once),
    Case("row sums", lambda xp, x: xp.sum(x, axis=1), of(rows), once),
    Case("column sums", lambda xp, x: xp.sum(x, axis=0), of(rows), once),
    Case("softmax", softmax, of(rows), twice),
    Case("layernorm", layernorm, of(rows), twice),
    Case("transpose", lambda xp, x: xp.transpose(x) * np.float32(2), of(square), twice),
    Case("running sum", lambda xp, x: xp.cumsum(x, axis=0), of(vector), twice),
    Case("gather of rows", lambda xp, x, k: x[k], lambda rng, n: [*of(rows)(rng, n), rng.integers(0, rows(n)[0], rows(n)[0])],
         twice),
    Case("matmul", lambda xp, a, b: a @ b, of(square, square), flops=lambda a: 2 * a[0].shape[0] ** 3, exactly=True,
         elements=4096**2),
    Case("matmul with epilogue", lambda xp, a, b, c: xp.tanh(a @ b + c), of(square, square, lambda n: square(n)[:1]),
         flops=lambda a: 2 * a[0].shape[0] ** 3, exactly=True, elements=4096**2),
    Case("matmul, f16", lambda xp, a, b: a @ b, of(square, square, dtype="f2"), flops=lambda a: 2 * a[0].shape[0] ** 3,
         elements=8192**2),
    Case("ten small kernels", chain, of(vector), elements=4096),
    Case("MLP training step", step, of(lambda n: (784, 512), lambda n: (512, 10), lambda n: (max(n // 784, 1), 784),
                                       lambda n: (max(n // 784, 1), 10)), numpy_alone=True, elements=784 * 256),
    Case("attention", attention, of(*[lambda n: (8, max(n // 512, 1), 64)] * 3), exactly=True, elements=512 * 1024),
    Case("attention, f16", attention, of(*[lambda n: (16, max(n // 1024, 1), 64)] * 3, dtype="f2"), elements=1024 * 4096),
    Case("mandelbrot", mandelbrot, of(vector, vector), numpy_alone=True, elements=10**6),
]


def workloads():
    """What `make bench` times, as entries that are not held there."""
    with contest.noted() as found:
        for make in OFTEN:
            make()
    return found


class Session:
    """The results of a run, on the disk after every row."""

    def __init__(self, path: Path, scale: float, budget: float, quick: bool) -> None:
        self.path, self.scale, self.quick, self.driver = path, scale, quick, lazy.gpu()
        self.end = time.perf_counter() + budget
        self.found: dict[str, Any] = {"device": self.driver.device.name, "ceilings": {}, "cases": []}

    def write(self):
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")

    def seconds(self, run, wait):
        """Of one call, while calls follow each other."""
        for _ in range(1 if self.quick else 3):
            run()
        wait()
        once = self.timed(run, wait, 1)
        count = max(1, min(MOST_CALLS, int(ROUND / max(once, 1e-7))))
        return once if self.quick else statistics.median([self.timed(run, wait, count) for _ in range(ROUNDS)])

    def timed(self, run, wait, count):
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        return (time.perf_counter() - start) / count

    # ---- ceilings --------------------------------------------------------------------------------
    def measure_ceilings(self):
        count = max(int(self.scale * 4 * 10**8), 64)
        source, target = (self.driver.allocate(count) for _ in range(2))
        taken = self.seconds(lambda: self.driver.copy(target.address, source.address, count), self.driver.wait)
        self.found["ceilings"]["copy, bytes per second"] = 2 * count / taken
        cupy = gpu_peers.peer("cupy")
        for dtype in ("float16", "float32") if cupy is not None else ():
            n = max(int(8192 * self.scale), 8)  # of random numbers: of ones the card makes more
            a = cupy.asarray(np.random.default_rng(0).standard_normal((n, n), dtype="f4").astype(dtype))
            taken = self.seconds(lambda a=a: cupy.matmul(a, a), self.driver.wait)
            self.found["ceilings"][f"matmul of {dtype}, flops per second"] = 2 * a.shape[0] ** 3 / taken
        self.write()

    # ---- cases -----------------------------------------------------------------------------------
    def measure(self, case, slow):
        """A case of large arrays."""
        args = case.make(np.random.default_rng(0), max(int(case.elements * self.scale), 4))
        for name, make in gpu_peers.of_case(case, args, self.driver, slow).items():
            self.row(case.name, name, make, lambda taken: self.shares(case, args, taken))

    def measure_lengths(self):
        """A softmax of rows of fifty lengths, from the first call on."""
        sizes = [self.driver.put(np.random.default_rng(n).standard_normal((64, n), dtype="f4")) for n in LENGTHS]
        for name, make in gpu_peers.from_nothing(softmax, sizes, self.driver).items():
            self.row(MANY_LENGTHS, name, make, lambda taken: {}, once=True)

    def measure_entry(self, entry, slow):
        """A workload of the processor's benchmarks."""
        if time.perf_counter() > self.end:
            return
        if entry.verify is None:
            entry = replace(entry, expected=contest.result(entry.expected, entry.ours, entry.args))
        for name, make in gpu_peers.of_entry(entry, self.driver, slow).items():
            self.row(entry.workload, name, make, lambda taken: {})

    def row(self, case, contender, make, shares, once=False):
        """Time what one contender makes; `once`: its first run."""
        if time.perf_counter() > self.end:
            return
        row = {"case": case, "contender": contender}
        try:
            run, wait = make()
            taken = self.timed(run, wait, 1) if once else self.seconds(run, wait)
            row |= {"seconds": taken, **shares(taken)}
        except Exception as error:  # a peer that does not run is a result too
            row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
        self.found["cases"].append(row)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)
        self.write()

    def shares(self, case, args, taken):
        ceilings = self.found["ceilings"]
        if case.moved is not None:
            return {"percent of copy": 100 * case.moved(args) / taken / ceilings["copy, bytes per second"]}
        if case.flops is not None and (best := ceilings.get(f"matmul of {args[0].dtype}, flops per second")):
            return {"percent of matmul": 100 * case.flops(args) / taken / best}
        return {}


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases and workloads; all of them where none is given")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of elements of cases")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds after which nothing is begun")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="every case once, tiny; workloads where they are named")
    options = parser.parse_args(words)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX takes most of the card's memory otherwise
    try:
        session = Session(options.results, TINY if options.quick else options.scale, options.budget, options.quick)
    except (ImportError, RuntimeError) as error:
        print(f"Nothing was measured: {error}")
        return
    session.measure_ceilings()
    cases = [case for case in CASES if not options.names or case.name in options.names]
    entries = [] if options.quick and not options.names else workloads()
    entries = [entry for entry in entries if not options.names or entry.workload in options.names]
    for slow in (False, True):
        for case in cases:
            session.measure(case, slow)
        if not slow and (not options.names or MANY_LENGTHS in options.names):
            session.measure_lengths()
        for entry in entries:
            session.measure_entry(entry, slow)
    if time.perf_counter() > session.end:
        print("The budget was used up: rows are missing.")


if __name__ == "__main__":
    main()
