"""Draws from NumPy's global random state while a function is traced: whether it made them, or another thread.

A compiled call could not draw again, so a trace that draws is refused. The state is one for all threads: where it changed and
others may have changed it, the function is traced again while they wait to draw.

Guarantees: what draws is refused; what does not is not. Limits: with a NumPy whose lock of that state no thread may take
twice, it is refused where another thread draws meanwhile; a function that waits for a thread that draws waits for ever.
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.errors import TraceStateError
from loopwright.ir.source import user_source

T = TypeVar("T")
REENTRANT = type(threading.RLock())


def without_draws(run: Callable[[], T], why: str) -> T:
    """What `run` returns, which it does without drawing from NumPy's global state, else TraceStateError. `why`: whose trace it
    is, for messages."""
    before, found = _random_state(), run()
    if (after := _random_state()) == before or (before is None and _is_unused(after)):
        return found
    lock = np.random.mtrand.get_bit_generator().lock
    if threading.active_count() > 1 and isinstance(lock, REENTRANT):
        with lock:
            kept = np.random.get_state(legacy=False)
            np.random.random_sample()  # a seed that the trace sets gives another state than this one
            before, found = _random_state(), run()
            if _random_state() == before:
                np.random.set_state(kept)
                return found
    raise TraceStateError(
        f"{user_source()}: {why or 'a trace'} drew from NumPy's global random state (np.random). The numbers would be "
        f"compiled in and be the same at every call. Pass random numbers or a key as an argument; lw.random draws "
        f"from a key inside compiled functions.")


def _random_state() -> dict[str, Any] | None:
    """None while NumPy has not loaded its random numbers, which it does when they are first named: it takes a while."""
    return _plain(np.random.get_state(legacy=False)) if "numpy.random" in sys.modules else None


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _is_unused(state: dict[str, Any] | None) -> bool:
    """Whether nothing was drawn since NumPy seeded the generator."""
    return state is None or (state["state"]["pos"] == np.random.MT19937().state["state"]["pos"] and not state["has_gauss"])
