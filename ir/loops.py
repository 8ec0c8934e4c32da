"""Loop expressions: what one element of an op's result is, as scalar expressions over loads and reductions.

From an op's `loop` rule, and from nothing else, come fusion, flops, bytes, access patterns, legality and code.
Every expression has a dtype; index arithmetic is the same language at dtype i64. Expressions are trees compared by
structure; `Index` names are unique within one kernel.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields as dataclass_fields
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.types import BOOL, I64, ArrayType

T = TypeVar("T")


def _hashed_once(cls: type[T]) -> type[T]:
    """Keep the structural hash: expressions share parts, and a hash that walked them all each time would be exponential."""
    names = [f.name for f in dataclass_fields(cls)]  # type: ignore[arg-type]

    def __hash__(self: Any) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = hash((cls.__name__, *(getattr(self, name) for name in names)))
            self.__dict__["_hash"] = known
        return known

    cls.__hash__ = __hash__  # type: ignore[method-assign]
    return cls


@dataclass(frozen=True, slots=True)
class Index:
    """A loop variable, i64."""

    name: str

    @property
    def dtype(self) -> np.dtype:
        return I64


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: bool | int | float | complex
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Size:
    """A size as a number, i64: constant over the whole call."""

    extent: Extent

    @property
    def dtype(self) -> np.dtype:
        return I64


@_hashed_once
@dataclass(frozen=True)
class Load:
    """The element of an array at an index. `array` is an operand number in an op's rule, a buffer's name in a nest."""

    array: int | str
    index: tuple[Expr, ...]
    dtype: np.dtype


@_hashed_once
@dataclass(frozen=True)
class Apply:
    """An elementwise op, by its name in the op table, on scalars. `convert` and `bitcast` take their target from dtype."""

    fn: str
    args: tuple[Expr, ...]
    dtype: np.dtype


@_hashed_once
@dataclass(frozen=True)
class When:
    """`then` where cond holds, else `other`; lazy: nothing is loaded for the branch not taken."""

    cond: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> np.dtype:
        return self.then.dtype


@_hashed_once
@dataclass(frozen=True)
class Bounded:
    """A data-dependent index into [0, extent): out of range it sets the error flag and is 0 instead, so memory is safe.
    The op has already wrapped negative indices. `site` numbers the user's line, given when a kernel is made."""

    index: Expr
    extent: Extent
    axis: int
    site: int = 0

    @property
    def dtype(self) -> np.dtype:
        return I64


@_hashed_once
@dataclass(frozen=True)
class Reduce:
    """Fold of body over every point of `over`, by a monoid: sum, prod, max, min, any, all, argmax, argmin.

    max and min propagate NaN. argmax and argmin run over one index, give the first position of the extreme (or of the
    first NaN) and have dtype i64. Sums of f16 and bf16 accumulate in f32; integer sums wrap. fused: products that are summed
    need not be rounded before, as those of contractions.
    """

    monoid: str
    over: tuple[tuple[Index, Extent], ...]
    body: Expr
    dtype: np.dtype
    fused: bool = False


@_hashed_once
@dataclass(frozen=True)
class Prefix:
    """Inclusive running fold (sum or prod) of body over `index` from 0 to `last`, both included."""

    monoid: str
    index: Index
    extent: Extent
    last: Expr
    body: Expr
    dtype: np.dtype


@_hashed_once
@dataclass(frozen=True)
class PartitionPoint:
    """How many positions of [0, extent), from the first on, pass a test that all others fail: found by halving, i64. Of a test
    that goes back and forth, some position where it does."""

    index: Index
    extent: Extent
    test: Expr

    @property
    def dtype(self) -> np.dtype:
        return I64


@_hashed_once
@dataclass(frozen=True)
class Scatter:
    """A whole array: starts as `base` (at `at`), then for every point of `over`, in C order, `[target]` is set to
    `value` (combine "set") or to what the function `combine` of two numbers makes of it and `value`; a point where `when` does
    not hold is skipped, its target and value unevaluated (None: no point is). Only as the outermost expression of an op."""

    at: tuple[Index, ...]
    base: Expr
    over: tuple[tuple[Index, Extent], ...]
    target: tuple[Expr, ...]
    value: Expr
    combine: str
    when: Expr | None = None

    @property
    def dtype(self) -> np.dtype:
        return self.base.dtype


@dataclass(frozen=True, slots=True)
class Local:
    """A value computed once per iteration of the enclosing loops of a nest, by name (a row's maximum)."""

    name: str
    dtype: np.dtype


Expr = Index | Literal | Size | Load | Apply | When | Bounded | Reduce | Prefix | PartitionPoint | Scatter | Local


@dataclass(frozen=True)
class LoopContext:
    """What a `loop` rule may ask: operand types, the result type, loads of operands, and fresh reduction indices.

    `load(k, index)` is operand k's element: a `Load`, or its producer's expression where that is fused.
    """

    types: tuple[ArrayType, ...]
    result: ArrayType
    load: Callable[[int, tuple[Expr, ...]], Expr]
    fresh: Callable[[], Index]


def integer(x: Extent) -> Expr:
    """A size as an index expression."""
    return Literal(x, I64) if isinstance(x, int) else Size(x)


def plus(a: Expr, b: Expr) -> Expr:
    """a + b on indices, folded where both are known."""
    match a, b:
        case Literal(x), Literal(y):
            return Literal(x + y, I64)
        case Literal(0), _:
            return b
        case _, Literal(0):
            return a
        case (Size() | Literal()), (Size() | Literal()):
            return integer(_extent(a) + _extent(b))
    return Apply("add", (a, b), I64)


def times(a: Expr, b: Expr) -> Expr:
    """a * b on indices, folded where both are known."""
    match a, b:
        case Literal(x), Literal(y):
            return Literal(x * y, I64)
        case (Literal(0), _) | (_, Literal(0)):
            return Literal(0, I64)
        case Literal(1), _:
            return b
        case _, Literal(1):
            return a
        case (Size() | Literal()), (Size() | Literal()):
            return integer(_extent(a) * _extent(b))
    return Apply("mul", (a, b), I64)


def minus(a: Expr, b: Expr) -> Expr:
    """a - b on indices."""
    return plus(a, times(b, Literal(-1, I64)))


def whole_number(e: Expr) -> int | None:
    """The whole number that a literal is, of any dtype."""
    if not isinstance(e, Literal) or isinstance(e.value, complex) or e.value % 1 != 0:
        return None
    return int(e.value)


def _extent(x: Expr) -> Extent:
    if isinstance(x, Size):
        return x.extent
    assert isinstance(x, Literal) and isinstance(x.value, int)
    return x.value


def less(a: Expr, b: Expr) -> Expr:
    """a < b on indices."""
    return Apply("lt", (a, b), BOOL)


def parts(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside e, indices of loops it declares aside."""
    return _PARTS[type(e)](e)


_PARTS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {  # the busiest function of a compile
    Load: attrgetter("index"),
    Apply: attrgetter("args"),
    When: attrgetter("cond", "then", "other"),
    Bounded: lambda e: (e.index,),
    Reduce: lambda e: (e.body,),
    Prefix: attrgetter("last", "body"),
    PartitionPoint: lambda e: (e.test,),
    Scatter: lambda e: (e.base, *e.target, e.value) if e.when is None else (e.base, *e.target, e.value, e.when),
    **dict.fromkeys((Index, Literal, Size, Local), lambda e: ()),
}


def with_parts(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """e around other parts, given in the order of `parts`."""
    match e:
        case Load():
            return Load(e.array, new, e.dtype)
        case Apply():
            return Apply(e.fn, new, e.dtype)
        case When():
            return When(*new)
        case Bounded():
            return Bounded(new[0], e.extent, e.axis, e.site)
        case Reduce():
            return Reduce(e.monoid, e.over, new[0], e.dtype, e.fused)
        case Prefix():
            return Prefix(e.monoid, e.index, e.extent, new[0], new[1], e.dtype)
        case PartitionPoint():
            return PartitionPoint(e.index, e.extent, new[0])
        case Scatter():
            base, *target = new
            when = None if e.when is None else target.pop()
            value = target.pop()
            return Scatter(e.at, base, e.over, tuple(target), value, e.combine, when)
    return e


def transform(e: Expr, change: Callable[[Expr], Expr | None], done: dict[int, tuple[Expr, Expr]] | None = None) -> Expr:
    """e with every part for which `change` gives something replaced by that, outermost first; shared parts stay shared."""
    done = {} if done is None else done
    known = done.get(id(e))
    if known is not None:
        return known[1]
    new = change(e)
    if new is None:
        old = parts(e)
        inner = tuple([transform(x, change, done) for x in old])
        new = e if all(a is b for a, b in zip(old, inner, strict=True)) else with_parts(e, inner)
    done[id(e)] = (e, new)  # e is kept, so that its id stays its own
    return new


def outermost(e: Expr, kind: type[T]) -> list[T]:
    """Every distinct part of e of a kind that is in no other part of that kind."""
    found: dict[T, None] = {}
    todo, seen = [e], {id(e)}
    while todo:
        x = todo.pop()
        if isinstance(x, kind):
            found[x] = None
            continue
        new = [y for y in parts(x) if id(y) not in seen]
        seen.update(map(id, new))
        todo.extend(new)
    return list(found)


def walk(e: Expr) -> list[Expr]:
    """Every distinct part of e, e included."""
    return walk_all((e,))


def walk_all(es: Iterable[Expr]) -> list[Expr]:
    """Every distinct part of some expressions, these included."""
    seen: dict[int, Expr] = {}
    for e in es:
        todo = [e]
        while todo:
            x = todo.pop()
            if id(x) not in seen:
                seen[id(x)] = x
                todo.extend(_PARTS[type(x)](x))
    return list(seen.values())
