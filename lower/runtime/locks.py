"""A lock that finalisers need: what they do waits for it, they do not.

The garbage collector runs finalisers in whichever thread makes an object next. One that waits for a lock stops its thread, and
with it all that this thread holds; where the lock's holder waits for that, neither ever goes on.
"""
from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class DeferringLock:
    """A reentrant lock. Guarantees: `when_free` never waits, and what it is given is done once, under the lock, by this thread
    or by the one that lets go of it."""

    def __init__(self) -> None:
        self._lock, self._left = threading.RLock(), deque[tuple[Callable[[int], None], int]]()

    def acquire(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()
        self._finish()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def when_free(self, do: Callable[[int], None], number: int) -> None:
        """Do something to a number: now, or where another thread holds the lock, when that lets go."""
        self._left.append((do, number))
        self._finish()

    def _finish(self) -> None:
        while self._left and self._lock.acquire(blocking=False):  # until nothing was left while we held it
            try:
                do, number = self._left.popleft()
            except IndexError:  # a finaliser in between did it
                pass
            else:
                do(number)
            finally:
                self._lock.release()
