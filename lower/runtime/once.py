"""What a process makes once, whichever of its threads ask first."""
from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

from loopwright.lower.runtime.lazy import LLVM_LOCK

P = ParamSpec("P")
R = TypeVar("R")


class once(Generic[P, R]):
    """A function whose answers are kept, as by `functools.cache`; threads that ask meanwhile wait for the one that makes it.

    Loaded code needs this: of two libraries made at a time one would be unloaded, into which other code may point by then.
    """

    def __init__(self, make: Callable[P, R]) -> None:
        self._make, self._answers = make, dict[tuple[object, ...], R]()
        update_wrapper(self, make)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (*args, *kwargs.items())
        with LLVM_LOCK:
            if key not in self._answers:
                self._answers[key] = self._make(*args, **kwargs)
            return self._answers[key]

    @property
    def is_made(self) -> bool:
        """Whether there is an answer to anything."""
        return bool(self._answers)
