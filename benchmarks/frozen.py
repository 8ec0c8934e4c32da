"""Programs by default and tuned, beside the default of an older loopwright, which runs in a process of its own: all take turns.

    git worktree add /tmp/older d5257e7 && pip install --no-deps --target /tmp/frozen /tmp/older
    python -m benchmarks.frozen /tmp/frozen [--tune SECONDS] [part of a workload's name ...]

d5257e7 is the last state before there were other schedules than the default ones. What earlier tunings found is left aside;
without `--tune` the two defaults are compared.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

import loopwright as lw
from benchmarks import graphs, harness, networks, products
from benchmarks.contest import Entry, mapped, noted

ROUNDS = 15
LINE = 64  # bytes


def entries() -> dict[str, Entry]:
    """The programs that tuning is measured on, by name; their arrays begin where a line of memory does, in both processes."""
    with noted() as found:
        for workload in (products.convolution, networks.mlp, networks.attention, *graphs.WORKLOADS):
            workload()
    return {e.workload: replace(e, args=mapped(on_lines, e.args)) for e in found}


def on_lines(x: np.ndarray) -> np.ndarray:
    """A copy of an array that begins where a line of memory does: a sum over 256 KB takes 1.5 of the time elsewhere."""
    memory = np.empty(x.nbytes + LINE, "uint8")
    first = -memory.ctypes.data % LINE
    found = memory[first:first + x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def serve(workload: str) -> None:
    """Give a sample's seconds for each line that is read."""
    e = entries()[workload]
    f = e.jit(e.ours)
    sample = harness.sampled(lambda: f(*e.args))
    for _ in sys.stdin:
        print(json.dumps(sample()), flush=True)


@contextmanager
def older(folder: str, workload: str) -> Iterator[Callable[[], float]]:
    """What gives the seconds of a run by the loopwright that is installed in a folder."""
    path = os.pathsep.join([folder, str(Path(__file__).parent.parent)])
    command = [sys.executable, "-c", f"from benchmarks import frozen; frozen.serve({workload!r})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": path}) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def sample() -> float:
            print(file=stdin, flush=True)
            line = stdout.readline()
            if not line:
                raise RuntimeError(f"the loopwright in {folder} does not run {workload!r}: its error is above")
            return float(json.loads(line))
        yield sample
        stdin.close()


def compared(folder: str, e: Entry, tune: float) -> str:
    """A line of the table: microseconds of each, and the ratios to the older default."""
    default, tuned = e.jit(e.ours), e.jit(e.ours)
    contenders = {"default": harness.sampled(lambda: default(*e.args))}
    if tune:
        lw.tune(tuned, *e.args, seconds=tune, progress=False)
        contenders["tuned"] = harness.sampled(lambda: tuned(*e.args))
    with older(folder, e.workload) as frozen:
        frozen()
        found = harness.once_each(e.workload, {"frozen": frozen, **contenders}, rounds=ROUNDS)
    times = [harness.readable(t.median) for t in found] + [""] * (3 - len(found))
    ratios = [f"{t.median / found[0].median:.2f}" for t in found[1:]]
    return f"{e.workload:52}" + "".join(f"{x:>10}" for x in (*times, *ratios))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen")
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--tune", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_intermixed_args(arguments)
    os.environ["LOOPWRIGHT_TUNE"] = "off"
    print(f"{'':52}" + "".join(f"{x:>10}" for x in ("frozen", "default", "tuned", "d/frozen", "t/frozen")))
    for name, e in entries().items():
        if not options.names or any(part in name for part in options.names):
            print(compared(options.folder, e, options.tune), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
