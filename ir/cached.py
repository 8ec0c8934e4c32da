"""Attributes computed at their first use.

Guarantees: no lock is held while they are computed, so a child of a fork never waits for a thread that it does not have.
`functools.cached_property` of Python 3.11 holds one lock for all objects of a class.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """A property that is computed once. Two threads may both compute it; all see the value that was first."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return value
