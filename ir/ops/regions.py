"""What the rules of ops with regions share: flat lists cut into parts, and regions with their parameters in another order."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Flags
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


def replaced(g: Graph, to: Mapping[Value, Value]) -> Graph:
    """g reading other values in place of some."""
    nodes = tuple([Node(n.op, tuple([to.get(v, v) for v in n.inputs]), n.attrs, n.outputs, n.regions, n.source)
                   for n in g.nodes])
    return Graph(g.params, nodes, tuple([to.get(v, v) for v in g.results]), g.constraints)


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


def newest(refs: Iterable[object]) -> Builder:
    """The newest builder among the values that are known."""
    return max((x.builder for x in refs if isinstance(x, Ref)), key=lambda b: b.serial)


def tangent_type(t: ArrayType) -> ArrayType:
    """The type of a tangent or cotangent: a Python number's weak kind does not carry over."""
    return t.with_shape(t.shape)


def filled(xs: Iterable[Ref | None], like: Iterable[Ref | ArrayType | Value], into: Builder) -> list[Ref]:
    """Tangents with zeros for those that are None, of the types of `like`."""
    return [blank(tangent_type(t if isinstance(t, ArrayType) else t.type), into) if x is None else x
            for x, t in zip(xs, like, strict=True)]


def given(xs: Iterable[T | None]) -> list[T]:
    """Those that are not None."""
    return [x for x in xs if x is not None]


def has(xs: Iterable[object]) -> list[bool]:
    """Which are not None."""
    return [x is not None for x in xs]


def carried(body: Graph, constants: Sequence[bool], carry: Sequence[bool], xs: Sequence[bool],
            through: Callable[[Graph, Flags], list[bool]]) -> tuple[list[bool], list[bool]]:
    """The least flags of a carry that hold from trip to trip, and those of what a trip gives beside it."""
    now = list(carry)
    while True:
        out = through(body, [*constants, *now, *xs])
        grown = either(now, out[:len(now)])
        if grown == now:
            return now, out[len(now):]
        now = grown
