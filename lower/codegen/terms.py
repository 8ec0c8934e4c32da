"""Loop expressions made unique: equal expressions are one `Term`, so that work on them is linear in their number.

Each term knows what it reads: free indices and locals, buffers, and whether evaluating it can load, raise an error or
loop (`effects`), which is what decides where its code may stand.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.loops import (
    Apply,
    Bounded,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    PartitionPoint,
    Prefix,
    Reduce,
    Scatter,
    Size,
    When,
    parts,
)
from loopwright.ir.types import COMPLEX, INTEGERS

NONE: frozenset[str] = frozenset()
Linear = tuple[dict["Term", Extent], Extent]  # coefficients of terms, and a constant


@dataclass(eq=False, slots=True)
class Term:
    """One distinct expression. `buffers` are all it loads; `extents` those of the `Bounded` indices outside any load."""

    number: int
    expr: Expr
    args: tuple[Term, ...]
    free: frozenset[str]
    buffers: frozenset[str]
    locals: frozenset[str]
    reads: frozenset[str]  # both of these
    extents: frozenset[Extent]
    effects: bool

    @property
    def dtype(self) -> np.dtype:
        return self.expr.dtype


class Terms:
    """The terms of one kernel."""

    def __init__(self) -> None:
        self._by_object: dict[int, tuple[Expr, Term]] = {}  # the expression is kept: its id stays taken
        self._by_key: dict[object, Term] = {}
        self._linear: dict[int, Linear] = {}

    def of(self, expr: Expr) -> Term:
        """The term of an expression."""
        found = self._by_object.get(id(expr))
        if found is None:
            found = (expr, self._intern(expr))
            self._by_object[id(expr)] = found
        return found[1]

    def _intern(self, expr: Expr) -> Term:
        assert expr.dtype not in COMPLEX, "complex numbers are pairs of real ones before there are kernels"
        assert not isinstance(expr, Scatter), "a Scatter is scheduled as loops of stores; a nest holds none"
        args = tuple([self.of(a) for a in parts(expr)])
        key = (type(expr), _ATTRIBUTES[type(expr)](expr), tuple([a.number for a in args]))
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = _term(len(self._by_key), expr, args)
        return found

    def linear(self, term: Term) -> Linear:
        """term as a sum of terms with constant sizes as coefficients; indices and opaque terms are its atoms."""
        found = self._linear.get(term.number)
        if found is None:
            found = self._linear[term.number] = self._decompose(term)
        return found

    def _decompose(self, term: Term) -> Linear:
        match term.expr:
            case Literal(value=value):
                return {}, int(value)  # type: ignore[arg-type]  # an index is a whole number
            case Size(extent=extent):
                return {}, extent
            case Apply(fn="add"):
                return add_linear(self.linear(term.args[0]), self.linear(term.args[1]))
            case Apply(fn="sub"):
                return add_linear(self.linear(term.args[0]), scale_linear(self.linear(term.args[1]), -1))
            case Apply(fn="neg"):
                return scale_linear(self.linear(term.args[0]), -1)
            case Apply(fn="mul"):
                return self._product(term)
        return {term: 1}, 0

    def _product(self, term: Term) -> Linear:
        first, second = (self.linear(a) for a in term.args)
        if not second[0]:
            return scale_linear(first, second[1])
        return scale_linear(second, first[1]) if not first[0] else ({term: 1}, 0)


def add_linear(a: Linear, b: Linear) -> Linear:
    """The sum; atoms that cancel vanish."""
    if not b[0] or not a[0]:
        return a[0] or b[0], a[1] + b[1]
    total = dict(a[0])
    for term, coefficient in b[0].items():
        total[term] = total.get(term, 0) + coefficient
    return {t: c for t, c in total.items() if not (isinstance(c, int) and c == 0)}, a[1] + b[1]


def scale_linear(a: Linear, by: Extent) -> Linear:
    """The product with a constant size."""
    if isinstance(by, int) and by in (0, 1):
        return a if by else ({}, 0)
    return {t: c * by for t, c in a[0].items()}, a[1] * by  # a size is not 0 everywhere


def _bits(expr: Literal) -> bytes:
    return np.asarray(expr.value).astype(expr.dtype).tobytes()


# What tells expressions of one type and equal parts apart.
_ATTRIBUTES: dict[type, Callable[[Any], object]] = {
    Index: attrgetter("name"),
    Local: attrgetter("name", "dtype"),
    Literal: lambda e: (e.dtype, _bits(e)),
    Size: attrgetter("extent"),
    Load: attrgetter("array"),
    Apply: attrgetter("fn", "dtype"),
    When: lambda e: None,
    Bounded: attrgetter("extent", "axis", "site"),
    Reduce: attrgetter("monoid", "over", "dtype"),
    Prefix: attrgetter("monoid", "index", "extent", "dtype"),
    PartitionPoint: attrgetter("index", "extent"),
}


def _term(number: int, expr: Expr, args: tuple[Term, ...]) -> Term:
    free = union([a.free for a in args])
    buffers = union([a.buffers for a in args])
    names = union([a.locals for a in args])
    extents: frozenset[Extent] = frozenset().union(*[a.extents for a in args])
    effects = any(a.effects for a in args)
    match expr:
        case Index(name=name):
            free = frozenset((name,))
        case Local(name=name):
            free = names = frozenset((name,))
        case Load(array=array):
            assert isinstance(array, str), "operands are buffers by name in a nest"
            buffers, extents, effects = buffers | {array}, frozenset(), True
        case Bounded(extent=extent):
            extents, effects = extents | {extent}, True
        case Apply(fn="power", dtype=dtype) if dtype in INTEGERS:
            effects = True
        case Reduce(over=over):
            free, effects = free - {k.name for k, _ in over}, True
        case PartitionPoint(index=index):
            free, effects = free - {index.name}, True
        case Prefix(index=index):
            free, effects = args[0].free | (args[1].free - {index.name}), True
    return Term(number, expr, args, free, buffers, names, union((buffers, names)), extents, effects)


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """All names together."""
    total = NONE
    for names in sets:
        if names and names is not total:
            total = total | names if total else names
    return total


