"""What candidates cost: from what they will do (`features`) to seconds.

Guarantees: the same rows and times give the same predictions; a prediction is positive and finite.
"""
from __future__ import annotations

import time
from functools import cache

import numpy as np

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


def _of(x: np.ndarray, name: str) -> np.ndarray:
    found: np.ndarray = x[:, COLUMN[name]]
    return found
