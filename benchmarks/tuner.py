"""How fast the tuner searches: milliseconds of a candidate's replay, features and code, and how many are measured in a minute.

    python -m benchmarks.tuner [seconds of each kernel]
"""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.candidates import cost
from benchmarks.graphs import _mixture, _normal
from loopwright import lax, nn
from loopwright.ir.graph import Node
from loopwright.lower.modules import alone
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.models import Roofline
from loopwright.lower.tuning.search import KernelSearch
from loopwright.lower.tuning.workers import Workers


def _convolution(x, w):
    return np.maximum(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), 0)


def _attention(q, k, v):
    return nn.softmax(q @ k.transpose(0, 2, 1)) @ v


KERNELS: dict[str, tuple[Callable[..., Any], Sequence[np.ndarray]]] = {
    "softmax, 1000x700": (nn.softmax, (_normal(1000, 700),)),
    "norm, gate and softmax, 1000x700": (_mixture(np), (_normal(1000, 700), _normal(700), _normal(700))),
    "convolution, 28x28x32": (_convolution, (_normal(1, 28, 28, 32), _normal(3, 3, 32, 32))),
    "attention, 8x64x32": (_attention, (_normal(8, 64, 32),) * 3),
}


def _kernel(f: Callable[..., Any], args: Sequence[np.ndarray]) -> Node:
    """The largest generated kernel, of these very sizes."""
    kernels = lw.schedule(lw.jit(f, dynamic=False), *args).kernels
    return max([k._node for k in kernels if k.is_generated], key=lambda n: len(n.regions[0].nodes))


def measured(n: Node, seconds: float) -> float:
    """Candidates built, checked and measured in a minute."""
    search, count = KernelSearch(n, {}, [n.attrs], Roofline()), 0
    with Workers() as pool:
        pool.measure([Candidate.of(alone(n), {})])  # the processes start
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds and (found := search.propose(10)):
            modules = [alone(Node(n.op, n.inputs, attrs, n.outputs, n.regions)) for attrs in found]
            for attrs, o in zip(found, pool.measure([Candidate.of(g, {}) for g in modules], 9), strict=True):
                search.learn(attrs, o.seconds)
                count += o.failure is None
        return 60 * count / (time.perf_counter() - begun)


def main(seconds: float) -> None:
    """Print a line for each kernel."""
    print(f"{'':34}replay  features      text   candidates a minute")
    for name, (f, args) in KERNELS.items():
        n = _kernel(f, args)
        one, count = cost(n, {}), measured(n, seconds)
        print(f"{name:34}{one.replay:6.2f} {one.features:6.2f} ms {one.text:6.1f} ms {count:12.0f}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
