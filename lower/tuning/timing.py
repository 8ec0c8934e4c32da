"""Interleaved timing: every contender runs in every round, so that a slow moment of the machine hits all of them.

Guarantees: the order of each round is drawn, so that nobody always follows the same one; the first contender runs twice in
each, as two, and how far apart these two come out is the noise: a difference that is smaller is none. Contenders that are
surely slow leave early.
"""
from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from loopwright.ir.dataclass import dataclass

SAMPLE_SECONDS = 1e-3  # that one sample takes at least
LONG_SAMPLE_SECONDS = 20e-3  # about as long as the threads of other libraries spin after a call
FEWEST_ROUNDS, MOST_ROUNDS = 3, 31
LEAST_NOISE = 0.01  # what two measurements of a program differ by on a machine that is quiet while one of them lasts
SURELY = 0.7  # of the rounds: who is faster wins so many at least
SLOW = {1: 4.0, FEWEST_ROUNDS: 2.0, 5: 1.3}  # by rounds: contenders leave then that never took less than so many times the best
Run = Callable[[int], float]  # how often to run -> seconds for all


@dataclass(frozen=True)
class Timings:
    """Seconds of one run in each round, by contender; `noise`: the relative difference of one program from itself,
    or what chance makes of its samples if that is more."""

    samples: tuple[tuple[float, ...], ...]
    noise: float

    def faster(self, a: int, b: int) -> bool:
        """Whether contender a is faster than b by more than the noise."""
        return is_faster(self.samples[a], self.samples[b], self.noise)


def is_faster(a: Sequence[float], b: Sequence[float], noise: float) -> bool:
    """Whether samples of the same rounds show that the first program is faster: by more than the noise, and in most rounds. A
    program that is fast in a few, and slow where anything else runs beside it, is not."""
    pairs = [*zip(a, b, strict=False)]  # one that left early has fewer
    won = sum(x < y for x, y in pairs)
    return centre(a) * (1 + max(noise, LEAST_NOISE)) < centre(b) and won >= SURELY * len(pairs)


def centre(samples: Sequence[float]) -> float:
    """The median of the faster half: what disturbs a program makes it slower only."""
    ordered = sorted(samples)
    return statistics.median(ordered[:(len(ordered) + 1) // 2])


def error(samples: Sequence[float]) -> float:
    """How far off `centre` may be by chance, relative to it: the width of the faster half over the root of its length."""
    ordered = sorted(samples)[:(len(samples) + 1) // 2]
    return (ordered[-1] - ordered[0]) / centre(samples) / math.sqrt(len(ordered))


def interleaved(runs: Sequence[Run], before: Callable[[int], None] = lambda k: None, rounds: int = MOST_ROUNDS,
                sample: float = SAMPLE_SECONDS) -> Timings:
    """Time some programs against each other. `before(k)` is called before each sample of contender k. sample: seconds that one
    takes; where it is of many runs, one before them is not timed, which finds in the caches what others left."""
    first = [0, *range(len(runs))]  # the first one twice
    warm: list[float] = []
    counts: list[int] = []
    found: list[list[float]] = [[] for _ in first]
    for k, run in enumerate(runs):
        before(k)
        run(1)
        warm.append(max(run(1), 1e-9))
        counts.append(max(1, round(sample / warm[k])))
    left, draw = list(range(len(first))), random.Random(len(first))
    for r in range(rounds):
        if r in SLOW:
            best = min(centre(found[place]) for place in left)
            left = [place for place in left if place < 2 or min(warm[first[place]], *found[place]) < SLOW[r] * best]
        for place in draw.sample(left, len(left)):
            k = first[place]
            before(k)
            if counts[k] > 1:
                runs[k](1)
            found[place].append(runs[k](counts[k]) / counts[k])
    twice = [centre(found[0]), centre(found[1])]
    noise = abs(twice[0] - twice[1]) / min(twice)
    return Timings(tuple([tuple(samples) for samples in found[1:]]), max(noise, error(found[0]), error(found[1])))
