"""`make bench`, or `python -m benchmarks [name ...]`: time the workloads, print the table, write benchmarks/results.json.

JAX and PyTorch take part where they are installed (`pip install '.[bench]'`). `--quick` runs everything once or twice, to
see that it runs, and judges nothing.
"""
from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import numpy as np

import loopwright as lw
from benchmarks import call, compile, core, harness, scan, starting

WORKLOADS = {f.__name__: f for f in (*call.WORKLOADS, *core.WORKLOADS, *compile.WORKLOADS, *scan.WORKLOADS,
                                  *starting.WORKLOADS)}
RESULTS = Path(__file__).parent / "results.json"


def main(arguments: list[str]) -> None:
    names = [a for a in arguments if not a.startswith("-")] or list(WORKLOADS)
    harness.QUICK = "--quick" in arguments
    timings: list[harness.Timing] = []
    for name in names:
        found = WORKLOADS[name]()
        timings += found
        print(harness.table(found), flush=True)
        print(flush=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
               "numpy": np.__version__, "loopwright": lw.__version__}
    if not harness.QUICK:
        RESULTS.write_text(json.dumps({"machine": machine, "timings": [t.as_dict() for t in timings]}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
