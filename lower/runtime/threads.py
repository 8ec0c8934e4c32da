"""How many threads compute: the pool's, and no more of a library's.

Guarantees: what `choose` said holds before what the environment says, and that before how many processors there are.
"""
from __future__ import annotations

import os

VARIABLE = "LOOPWRIGHT_NUM_THREADS"


class _Choice:
    count: int | None = None


def choose(count: int | None) -> None:
    """So many from now on; None: as many as the environment says, or the processors that the process may use. ValueError for a
    count below 1."""
    _Choice.count = None if count is None else _positive(count, "the number of threads")


def chosen() -> int | None:
    """What a caller or the environment chose. ValueError for a variable below 1, or that is no number."""
    if _Choice.count is not None:
        return _Choice.count
    text = os.environ.get(VARIABLE)
    return _positive(int(text), VARIABLE) if text else None


def threads() -> int:
    """How many threads run a parallel loop, the caller's included."""
    count = chosen()
    if count is not None:
        return count
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _positive(count: int, what: str) -> int:
    if count < 1:
        raise ValueError(f"{what} must be at least 1, got {count}")
    return count
