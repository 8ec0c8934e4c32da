"""Cost models: from what candidates will do (`features`) to seconds.

Guarantees: the same rows and times give the same predictions; a prediction is positive and finite.
"""
from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from loopwright.lower.runtime.lazy import xgboost
from loopwright.lower.target import Target
from loopwright.lower.tuning.features import COLUMN, LAST_CACHE

STEP = 1 / 3e9  # seconds of an operation on vectors
TURN = 1 / 1e9  # of a loop's step: a count, a branch
CALL = 1e-6  # of loops that threads share out
FASTEST = 4e9  # cycles a second
TOGETHER = 4  # operations on vectors in a cycle: two multiplications, each with an addition
NEAR_BYTES = 64  # that a cycle brings from the second cache
READING = 2.0  # times the rate of copies, of which each line that is written was read as well
ROUNDS = 3  # of a measurement of the machine
IN_CACHE, IN_LAST_CACHE, IN_MEMORY = 1 << 18, 1 << 21, 1 << 24  # bytes of arrays that lie there
FEWEST = 8  # measured candidates that trees are grown from, and again after as many more
TREES = {"max_depth": 5, "eta": 0.15, "min_child_weight": 1.0, "subsample": 0.9, "nthread": 1, "seed": 0, "verbosity": 0}
GROWN = 60


@cache
def bandwidth(size: int) -> float:
    """Bytes a second that this machine reads and writes when it copies an array of so many bytes, measured once."""
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    best, times = float("inf"), max(1, IN_MEMORY // (8 * size))
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(times):
            np.copyto(target, source)
        best = min(best, (time.perf_counter() - start) / times)
    return 2 * size / best


def least_seconds(operations: float, bytes_: float, lanes: int, target: Target, threads: int) -> float:
    """Seconds below which no program of this machine gets: its units are always busy, with so many numbers in a vector, or its
    memory is, where what the nearer caches hold comes from there."""
    clock = FASTEST * threads
    near, far = target.cache_bytes * threads, LAST_CACHE * target.cache_bytes
    moved = min(bytes_, near) / (NEAR_BYTES * clock)
    moved += max(min(bytes_, far) - near, 0) / (READING * threads * bandwidth(IN_LAST_CACHE))
    moved += max(bytes_ - max(near, far), 0) / (READING * threads * bandwidth(IN_MEMORY))
    return max(operations / (TOGETHER * lanes * clock), moved)


class Roofline:
    """Seconds by what takes longest: operations, or bytes from beyond each cache at the rate of what lies there."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def predict(self, x: np.ndarray) -> np.ndarray:
        """f64[n]: seconds of f64[n, features]."""
        operations = (_of(x, "work") + _of(x, "loads") + _of(x, "stores") + _of(x, "scattered")) * STEP + _of(x, "steps") * TURN
        bytes_ = _of(x, "past_first") / bandwidth(IN_CACHE) + _of(x, "past_second") / bandwidth(IN_LAST_CACHE) \
            + _of(x, "past_last") / bandwidth(IN_MEMORY)
        least, most = np.minimum(operations, bytes_), np.maximum(operations, bytes_)
        found: np.ndarray = (most + 0.1 * least) / self._share(x) + CALL  # the lesser one is not hidden entirely
        return found

    def _share(self, x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.clip(_of(x, "parallel"), 1, self.threads)
        return found

    def learn(self, x: np.ndarray, seconds: np.ndarray) -> None:
        """Nothing: the machine is known."""


def _of(x: np.ndarray, name: str) -> np.ndarray:
    found: np.ndarray = x[:, COLUMN[name]]
    return found


class Learned:
    """What the analytic prediction is off by, learned from what was measured by gradient-boosted trees (the extra `tune`).

    The trees give the logarithm of seconds over predicted seconds, so that kernels of all sizes teach one model. Where xgboost
    is not installed, and before the first times, it predicts as the analytic model does."""

    def __init__(self, analytic: Roofline) -> None:
        self.analytic = analytic
        self.rows: list[np.ndarray] = []
        self.off: list[float] = []
        self._trees: Any = None
        self._grown_from = 0

    def predict(self, x: np.ndarray) -> np.ndarray:
        """f64[n]: seconds of f64[n, features]."""
        predicted = self.analytic.predict(x)
        if len(self.rows) >= self._grown_from + FEWEST:
            self._grow()
        library = xgboost()
        if self._trees is None or library is None:
            return predicted
        found: np.ndarray = predicted * np.exp(self._trees.predict(library.DMatrix(_inputs(x, predicted))))
        return found

    def learn(self, x: np.ndarray, seconds: np.ndarray) -> None:
        """Take in times f64[n] of f64[n, features]."""
        predicted = self.analytic.predict(x)
        self.rows += list(_inputs(x, predicted))
        self.off += list(np.log(seconds / predicted))

    def _grow(self) -> None:
        self._grown_from, library = len(self.rows), xgboost()
        if library is not None:
            data = library.DMatrix(np.stack(self.rows), np.array(self.off))
            self._trees = library.train(TREES, data, GROWN)


def _inputs(x: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Features as trees take them: sizes by their logarithms, and with them what is predicted."""
    found: np.ndarray = np.column_stack([np.log1p(x), np.log(predicted)])
    return found
