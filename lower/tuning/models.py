"""Cost models: from what a candidate will do (`features`) to seconds."""
from __future__ import annotations

import time
from functools import cache

import numpy as np

from loopwright.lower.tuning.features import COLUMN

STEP = 1 / 3e9  # seconds of a vector operation, of two a cycle with latencies
TURN = 1 / 1e9  # of a loop's step: a branch, a count
ROUNDS = 3


@cache
def bandwidth(size: int) -> float:
    """Bytes a second that this machine copies of arrays of so many bytes, measured once."""
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * size / best


class Roofline:
    """Seconds by what takes longest: operations, or bytes from beyond each cache at the rate of what lies there."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def predict(self, x: np.ndarray) -> np.ndarray:
        """f64[n] seconds of f64[n, features]."""
        def of(name: str) -> np.ndarray:
            found: np.ndarray = x[:, COLUMN[name]]
            return found
        operations = (of("work") + of("loads") + of("stores") + of("scattered")) * STEP + of("steps") * TURN
        memory = of("past_first") / bandwidth(1 << 18) + of("past_second") / bandwidth(1 << 22) \
            + of("past_last") / bandwidth(1 << 24)
        share = np.clip(of("parallel"), 1, self.threads)
        found: np.ndarray = np.maximum(operations, memory) / share + 0.1 * np.minimum(operations, memory) / share
        return found

    def learn(self, x: np.ndarray, seconds: np.ndarray) -> None:
        """Nothing: the machine is known."""
