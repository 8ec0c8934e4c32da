"""What the rules of ops with regions share: flat lists cut into parts, and regions with their parameters in another order."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.graph import Graph, Value
from loopwright.ir.ops.construct import full, scalar
from loopwright.ir.types import ArrayType

T = TypeVar("T")


def split(xs: Iterable[T], *counts: int) -> list[list[T]]:
    """Parts of these lengths, and the rest."""
    xs, parts, at = list(xs), [], 0
    for n in counts:
        parts.append(xs[at:at + n])
        at += n
    return [*parts, xs[at:]]


def chosen(xs: Iterable[T], flags: Sequence[bool]) -> list[T]:
    """Those that are marked."""
    return [x for x, f in zip(xs, flags, strict=True) if f]


def others(xs: Iterable[T], flags: Sequence[bool]) -> list[T]:
    """Those that are not marked."""
    return [x for x, f in zip(xs, flags, strict=True) if not f]


def spread_out(xs: Iterable[T], flags: Sequence[bool]) -> list[T | None]:
    """One for each flag that is set, in order; None for the others."""
    rest = iter(xs)
    return [next(rest) if f else None for f in flags]


def either(a: Sequence[bool], b: Sequence[bool]) -> list[bool]:
    """Where one of two flags is set."""
    return [x or y for x, y in zip(a, b, strict=True)]


def rearranged(g: Graph, params: Iterable[Value], results: Iterable[Value] | None = None) -> Graph:
    """g with other parameters (its own in any order, and new ones that it does not use) and results."""
    return Graph(tuple(params), g.nodes, g.results if results is None else tuple(results), g.constraints)


def unused(types: Iterable[ArrayType]) -> list[Value]:
    """Parameters that a region takes and does not use."""
    return [Value(t) for t in types]


def types_of(xs: Iterable[Value | Ref]) -> list[ArrayType]:
    """The types of values."""
    return [x.type for x in xs]


def blank(t: ArrayType, into: Builder) -> Ref:
    """Zeros of a type."""
    return full(into=into, value=scalar(0, t.dtype), shape=t.shape, dtype=t.dtype)


def check_types(what: str, expected: Sequence[ArrayType], found: Sequence[ArrayType]) -> None:
    """ShapeError or DTypeError unless values of the types found fit; symbolic sizes are told apart by whoever knows more."""
    if len(expected) != len(found):
        raise ShapeError(f"{what}: expected {len(expected)} values, got {len(found)}")
    for k, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a.dtype != b.dtype:
            raise DTypeError(f"{what}: value {k} is {b}, expected {a}")
        if a.rank != b.rank or any(m != n for m, n in zip(a.shape, b.shape, strict=True)
                                   if isinstance(m, int) and isinstance(n, int)):
            raise ShapeError(f"{what}: value {k} is {b}, expected {a}")
