"""`make bench`, or `python -m benchmarks [--threads N] [--tune SECONDS] [name ...]`: time the workloads, print the tables,
write benchmarks/results.json and the tables of docs/performance.md.

JAX, PyTorch and numba take part where they are installed (`pip install '.[bench]'`). `--threads N`: every contender has N
threads on N processors; without it, one per processor. `--tune SECONDS`: each program takes part as it is compiled by default,
and tuned for so long. `--quick` runs everything once or twice, to see that it runs, and
judges nothing.
"""
from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from llvmlite.binding import get_host_cpu_name

from benchmarks import harness, report

THREADS = ("LOOPWRIGHT_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tune", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    harness.QUICK, harness.TUNE = options.quick, options.tune
    harness.THREADS = threads = limit_threads(options.threads)
    import benchmarks.workloads as workloads  # now that the libraries will find their limits
    if unknown := sorted(set(options.names) - workloads.WORKLOADS.keys()):
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(workloads.WORKLOADS)}")
    timings: list[harness.Timing] = []
    for name in options.names or workloads.WORKLOADS:
        found = workloads.WORKLOADS[name]()
        timings += found
        print(harness.table(found), flush=True)
        print(flush=True)
    print("\n".join([report.summary(timings), report.tuned_summary(timings)]))
    if not harness.QUICK:
        report.write(timings, threads, {"processor": processor(), **workloads.versions()})


def limit_threads(count: int | None) -> int:
    """Leave `count` processors to this process (JAX counts those) and say so to the libraries, before they are imported."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if count is None:
        return len(available)
    if not 1 <= count <= len(available):
        raise SystemExit(f"--threads {count}: there are {len(available)} processors")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, available[-count:])
    os.environ |= dict.fromkeys(THREADS, str(count))
    return count


def processor() -> str:
    """Its name, where the system tells, and LLVM's name for its kind: makers give one name to processors of several years."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {get_host_cpu_name()}"


if __name__ == "__main__":
    main(sys.argv[1:])
