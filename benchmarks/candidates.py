"""What a candidate of the tuner costs it: milliseconds of a replay, of features, and of the text of one that is measured."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from loopwright.ir.graph import Node
from loopwright.lower.modules import alone
from loopwright.lower.program import lower_graph
from loopwright.lower.runtime import blas
from loopwright.lower.target import host_target
from loopwright.lower.tuning import features, space
from loopwright.lower.tuning.platforms import PROCESSOR
from loopwright.lower.tuning.results import Tuned
from loopwright.lower.tuning.sites import sites_of
from loopwright.lower.tuning.tuner import new_garbage

CHANGES = 200  # of schedules, one after another
TEXTS = 8  # of those whose text is made


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a processor, in the mean over schedules that follow from each other."""

    replay: float
    features: float
    text: float


@dataclass
class Spent:
    """What a search spends: milliseconds of a processor of every replay that came to a nest, and of all features."""

    replays: list[float] = field(default_factory=list)
    features: list[float] = field(default_factory=list)

    @property
    def each(self) -> float:
        """Those of one replay and its features, in the mean."""
        return _mean(self.replays) + _mean(self.features)


@contextmanager
def in_search() -> Iterator[Spent]:
    """What searches inside spend on candidates, beside the processes that measure others meanwhile."""
    spent = Spent()

    def timed(run: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
        def timing(*args: Any) -> Any:
            found, milliseconds = _took(partial(run, *args))
            spent.append(milliseconds)
            return found
        return timing
    with (patch.object(space, "build_nest", timed(space.build_nest, spent.replays)),
          patch.object(features, "features", timed(features.features, spent.features))):
        yield spent


def cost(n: Node, sizes: Mapping[str, int]) -> Cost:
    """What the candidates of a generated kernel cost."""
    with new_garbage():
        return _cost(n, sizes)


def _cost(n: Node, sizes: Mapping[str, int]) -> Cost:
    rng, schedules, target = np.random.default_rng(0), space.Space(n.regions[0], host_target()), host_target()
    pool, replays, described = [n.attrs["schedule"]], [], []
    for _ in range(CHANGES):
        old = pool[int(rng.integers(len(pool)))]
        new = schedules.mutated(old, schedules.replay(old), rng)
        made, replay = _took(lambda new=new: schedules.replay(new))
        if made is not None and new not in pool:
            pool.append(new)
            replays.append(replay)
            described.append(_took(lambda made=made: features.features(made.nest, sizes, target))[1])
    texts = [_took(lambda schedule=schedule: lower_graph(_made(n, schedule), target, blas=blas.available(), sizes=sizes))[1]
             for schedule in pool[-TEXTS:]]
    return Cost(_mean(replays), _mean(described), _mean(texts))


def of_largest(found: Tuned) -> Cost | None:
    """That of the kernel of a program with the most operations that can be generated; None where none can."""
    ways = [(s, a) for s in sites_of(found.default, found.sizes) for a in PROCESSOR.implementations(s.node, s.sizes)
            if a["implementation"] == "generated"]
    site, attrs = max(ways, key=lambda x: len(x[0].node.regions[0].nodes), default=(None, None))
    if site is None:
        return None
    n = site.node
    return cost(Node(n.op, n.inputs, attrs, n.outputs, n.regions), site.sizes)


def a_minute(found: Tuned) -> float:
    """Candidates that were built, checked and measured in a minute."""
    return 60 * sum(t.failure is None for t in found.trials) / found.seconds


def _made(n: Node, schedule: Any) -> Any:
    return alone(Node(n.op, n.inputs, {**n.attrs, "schedule": schedule}, n.outputs, n.regions))


def _mean(x: list[float]) -> float:
    return statistics.fmean(x) if x else 0.0


def _took(run: Callable[[], Any]) -> tuple[Any, float]:
    """What run gives, and the milliseconds of a processor that it takes, whatever else runs, as threads of a library that spin
    when it has multiplied."""
    start = time.thread_time()
    found = run()
    return found, 1e3 * (time.thread_time() - start)
