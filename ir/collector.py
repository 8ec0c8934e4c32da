"""The garbage collector, paused while compilers allocate.

Guarantees: it is as before when the pause ends, however that ends; a child of a fork has it as the thread that forked had it.
"""
from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_pausing: set[int] = set()  # threads


@contextmanager
def collector_paused() -> Iterator[None]:
    """A trace, a walk or a lowering allocates many small live objects; without this, scanning them again and again is up to
    half of its time."""
    if not gc.isenabled():
        yield
        return
    thread = threading.get_ident()
    gc.disable()
    _pausing.add(thread)
    try:
        yield
    finally:
        _pausing.discard(thread)
        gc.enable()  # also while another thread is in such a pause: that is only slower


def _resume_in_child() -> None:
    """A fork takes over the pause of threads that the child does not have."""
    if _pausing and threading.get_ident() not in _pausing:
        _pausing.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)
