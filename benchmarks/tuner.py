"""How fast the tuner searches: milliseconds of a candidate's replay, features and code, and how many are measured in a minute.

    python -m benchmarks.tuner [seconds of each kernel]
"""
from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.graphs import _mixture, _normal
from loopwright import lax, nn
from loopwright.ir.graph import Node
from loopwright.lower.modules import alone
from loopwright.lower.program import lower_graph
from loopwright.lower.target import host_target
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.features import features
from loopwright.lower.tuning.models import Roofline
from loopwright.lower.tuning.search import KernelSearch
from loopwright.lower.tuning.space import Space
from loopwright.lower.tuning.workers import Workers

CHANGES = 200  # of schedules, one after another


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


def _took(run: Callable[[], Any]) -> tuple[Any, float]:
    """What run gives, and the milliseconds of a processor that it takes, whatever else runs."""
    start = time.process_time()
    found = run()
    return found, 1e3 * (time.process_time() - start)


def candidates(n: Node) -> tuple[float, float]:
    """Milliseconds of a replay and of features, in the mean over schedules that follow from each other."""
    rng, space, target = np.random.default_rng(0), Space(n.regions[0], host_target()), host_target()
    pool, replays, described = [n.attrs["schedule"]], [], []
    for _ in range(CHANGES):
        old = pool[int(rng.integers(len(pool)))]
        new = space.mutated(old, space.replay(old), rng)
        made, replay = _took(lambda new=new: space.replay(new))
        if made is not None and new not in pool:
            pool.append(new)
            replays.append(replay)
            described.append(_took(lambda made=made: features(made.nest, {}, target))[1])
    return statistics.fmean(replays), statistics.fmean(described)


def measured(n: Node, seconds: float) -> tuple[float, float]:
    """Milliseconds that the text of a candidate takes, in the mean; candidates built, checked and measured in a minute."""
    search, count, texts = KernelSearch(n, {}, [n.attrs], Roofline()), 0, []
    with Workers() as pool:
        pool.measure([Candidate.of(alone(n), {})])  # the processes start
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds and (found := search.propose(10)):
            modules = [alone(Node(n.op, n.inputs, attrs, n.outputs, n.regions)) for attrs in found]
            for attrs, o in zip(found, pool.measure([Candidate.of(g, {}) for g in modules], 9), strict=True):
                search.learn(attrs, o.seconds)
                count += o.failure is None
            texts.append(_took(lambda modules=modules: lower_graph(modules[-1], host_target(), blas=True))[1])
        return statistics.fmean(texts), 60 * count / (time.perf_counter() - begun)


def main(seconds: float) -> None:
    """Print a line for each kernel."""
    print(f"{'':34}replay  features      text   candidates a minute")
    for name, (f, args) in KERNELS.items():
        n = _kernel(f, args)
        (replay, described), (text, count) = candidates(n), measured(n, seconds)
        print(f"{name:34}{replay:6.2f} {described:6.2f} ms {text:6.1f} ms {count:12.0f}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
