"""What threads gain: every program on one thread and on all, in turns, in one process.

    python -m benchmarks.scaling [--threads N] [--quick] [part of a workload's name ...]

Runs of the benchmarks with one thread and with two are minutes apart, and a shared machine changes meanwhile; here each round
takes both, and what counts is the ratio in each round. A row takes 2 ms or more on one thread.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence

import loopwright as lw
from benchmarks import harness, report
from benchmarks.__main__ import limit_threads, processor
from benchmarks.contest import Entry, noted
from benchmarks.report import Scaling

LEAST = 2e-3  # seconds on one thread
ROUNDS = 21


def entries(parts: Sequence[str]) -> Iterator[Entry]:
    """The contests whose names have one of these parts, or all."""
    from benchmarks import graphs, irregular, learning, maps, maths, networks, products, reductions, sorting, typical
    for module in (maps, maths, reductions, products, networks, graphs, irregular, sorting, typical, learning):
        for workload in module.WORKLOADS:
            with noted() as found:
                workload()
            yield from [e for e in found if not parts or any(part in e.workload for part in parts)]


def compared(e: Entry, threads: int) -> Scaling | None:
    """A row, or None for what takes less."""
    from benchmarks import roofline
    f = e.jit(e.ours)
    one, several = (_on(n, harness.sampled(lambda: f(*e.args))) for n in (1, threads))
    if one() < LEAST and not harness.QUICK:
        return None
    rounds = [(one(), several()) for _ in range(2 if harness.QUICK else ROUNDS)]
    low, gain, high = statistics.quantiles([a / b for a, b in rounds], n=4, method="inclusive")
    of_one, of_several = (statistics.median(x) for x in zip(*rounds, strict=True))
    copies = roofline.copy_seconds(e.ours, e.args, threads)
    return Scaling(e.workload, of_one, of_several, gain, low, high, copies / of_several)


def _on(threads: int, sample: Callable[[], float]) -> Callable[[], float]:
    def run() -> float:
        lw.set_threads(threads)
        return sample()
    return run


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    harness.QUICK, threads = options.quick, limit_threads(options.threads)
    from benchmarks import workloads  # now that the libraries will find their limits
    found = []
    for e in entries(options.names):
        row = compared(e, threads)
        if row is not None:
            found.append(row)
            print(" | ".join(row.cells), flush=True)
    if not harness.QUICK:
        report.write_scaling(found, threads, {"processor": processor(), **workloads.versions()})


if __name__ == "__main__":
    main(sys.argv[1:])
