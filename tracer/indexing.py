"""`x[key]`: NumPy's indexing on traced arrays.

Guarantees: every key that NumPy takes and whose result has a size known from sizes is taken, with NumPy's placement of
advanced indices; positions that are numbers are checked against sizes by proof or guard, positions that are data when the
program runs, and both raise IndexError. A key is read in two stages: basic (slices, integers, new axes), then a gather.
"""
from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, floordiv
from loopwright.ir.errors import ConcretizationError, ShapeError
from loopwright.ir.guards import Scope
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.structural import concatenate, slice_, transpose
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, I64, is_integer
from loopwright.tracer.promotion import broadcast, broadcast_shapes, has_tracer, lift, reshape, stacked
from loopwright.tracer.size import Size, as_extent
from loopwright.tracer.tables import implements
from loopwright.tracer.tracer import Tracer

MOST = 1 << 60  # no axis is as long
FEW = 4  # positions of a list that are read one by one


@dataclass(frozen=True)
class Span:
    """`length` positions of an axis from `start` by `step`; one that is dropped is an integer index."""

    start: Extent
    step: int
    length: Extent
    dropped: bool = False


@dataclass(frozen=True)
class NewAxis:
    """None in a key."""


@dataclass(frozen=True)
class Gap:
    """An ellipsis that stands for no axis: advanced indices on its two sides are apart all the same."""


@dataclass(frozen=True)
class Positions:
    """An advanced index of one axis; on a new axis of size 1 for True and False."""

    index: Any  # a Tracer or an ndarray of integers
    on_new_axis: bool = False


@dataclass(frozen=True)
class Steps:
    """A list of integers that go up or down by the same step: a slice that ends inside the axis, whose result is a copy."""

    first: int
    step: int
    length: int


Entry = Span | NewAxis | Gap | Positions
Token = Any  # an item of a key: int, Dim, slice, None, Ellipsis, bool, or an array


@dataclass(frozen=True)
class Plan:
    """How a key reads an array of one shape.

    spans: the basic stage, one for each axis of the array. block: the axes that stage leaves, new axes included.
    axes, indices: the gather on the block. front: where among the block's other axes the index axes go.
    index_rank: their number. shape: the result's.
    """

    spans: tuple[Span, ...]
    block: Shape
    axes: tuple[int, ...]
    indices: tuple[Ref, ...]
    front: int
    index_rank: int
    shape: Shape

    @property
    def own(self) -> tuple[int, ...] | None:
        """The array's axis of each axis of the block; None where there are new ones."""
        found = tuple([a for a, s in enumerate(self.spans) if not s.dropped])
        return found if len(found) == len(self.block) else None

    @property
    def perm(self) -> tuple[int, ...]:
        """Result axes in the order of the gather's: index axes first, then the rest."""
        rank = len(self.shape)
        front, k = self.front, self.index_rank
        return (*range(k, k + front), *range(k), *range(k + front, rank))

    def is_whole(self, shape: Shape) -> bool:
        """Whether the basic stage takes every element in order."""
        return all(s.start == 0 and s.step == 1 and s.length == n for s, n in zip(self.spans, shape, strict=True))


# ---- parsing ------------------------------------------------------------------------------------
def plan(x: Ref, key: Any) -> Plan:
    """Read a key for an array."""
    scope = x.builder.scope
    tokens = _with_ellipsis(_tokens(key), x.shape)
    has_arrays = any(isinstance(t, (bool, np.bool_)) or (_is_array(t) and t.ndim > 0) for t in tokens)
    entries: list[Entry] = []
    axis = 0
    for t in tokens:
        made = _entries(t, x.shape, axis, scope)
        axis += sum(not isinstance(e, NewAxis | Gap) and not (isinstance(e, Positions) and e.on_new_axis) for e in made)
        entries += made
    return _arrange(x, entries, has_arrays)


def _tokens(key: Any) -> list[Token]:
    return [(_is_one_list(key) and _steps(t)) or _token(t) for t in (key if isinstance(key, tuple) else (key,))]


def _is_one_list(key: Any) -> bool:
    """Whether a key has one list, which is the only advanced index: where its axis was, that of the result is."""
    items = key if isinstance(key, tuple) else (key,)
    others = [t for t in items if not (t is None or t is Ellipsis or isinstance(t, slice))]
    return len(others) == 1 and isinstance(others[0], list)


def _steps(t: Any) -> Steps | None:
    """What a list is as a slice; None where it is none, or where it begins from one end and ends from the other."""
    if not isinstance(t, list) or not t or any(type(i) is not int for i in t) or len({i < 0 for i in t}) > 1:
        return None
    steps = {b - a for a, b in pairwise(t)} or {1}
    step = steps.pop()
    return Steps(t[0], step, len(t)) if step and not steps else None


def _token(t: Any) -> Token:
    if t is None or t is Ellipsis or isinstance(t, (slice, bool, np.bool_, Tracer)):
        return t
    extent = as_extent(t)
    if extent is not None:
        return extent
    if isinstance(t, (list, tuple)):
        if has_tracer(t):
            return stacked(t)
        t = np.asarray(t)
        return t.astype(I64) if t.size == 0 and t.dtype == np.float64 else t
    if isinstance(t, np.ndarray):
        return bool(t) if t.ndim == 0 and t.dtype == BOOL else t
    if hasattr(t, "__index__"):
        return operator.index(t)
    raise IndexError(f"{user_source()}: only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
                     f"boolean arrays are valid indices, got {type(t).__name__}")


def _is_array(t: Token) -> bool:
    return isinstance(t, (np.ndarray, Tracer))


def _consumes(t: Token) -> int:
    """How many axes of the array a token takes."""
    if t is None or t is Ellipsis or isinstance(t, (bool, np.bool_)):
        return 0
    return t.ndim if _is_array(t) and t.dtype == BOOL else 1


def _with_ellipsis(tokens: list[Token], shape: Shape) -> list[Token]:
    """The same with one full slice for every axis that no token takes; an ellipsis stays where there is none."""
    at = [k for k, t in enumerate(tokens) if t is Ellipsis]
    if len(at) > 1:
        raise IndexError(f"{user_source()}: an index can only have a single ellipsis ('...')")
    missing = len(shape) - sum(map(_consumes, tokens))
    if missing < 0:
        raise IndexError(f"{user_source()}: too many indices for array: array is {len(shape)}-dimensional, "
                         f"but {len(shape) - missing} were indexed")
    k = at[0] if at else len(tokens)
    return [*tokens[:k], *[slice(None)] * missing, *tokens[k + (missing > 0):]]


def _entries(t: Token, shape: Shape, axis: int, scope: Scope) -> list[Entry]:
    if t is None:
        return [NewAxis()]
    if t is Ellipsis:
        return [Gap()]
    if isinstance(t, (bool, np.bool_)):
        return [Positions(np.zeros(int(t), I64), on_new_axis=True)]
    if isinstance(t, slice):
        return [_span(t, shape[axis], scope)]
    if isinstance(t, Steps):
        first, _ = (_position(t.first + k * t.step, shape[axis], axis, scope) for k in (0, t.length - 1))
        return [Span(scope.canonical(first), t.step, t.length)]
    if not _is_array(t):
        return [Span(_position(t, shape[axis], axis, scope), 1, 1, dropped=True)]
    if t.dtype == BOOL:
        return list(_mask(t, shape, axis, scope))
    if not is_integer(t.dtype):
        raise IndexError(f"{user_source()}: arrays used as indices must be of integer (or boolean) type, got {t.dtype}")
    return [Positions(t)]


def _position(i: Extent, n: Extent, axis: int, scope: Scope) -> Extent:
    """An integer index as a position from the start."""
    if scope.decide("<=", 0, i):
        if scope.decide("<", i, n):
            return i
    elif scope.decide("<=", i * -1, n):
        return n + i
    sizes = scope.describe((n,))[1:-2]
    raise IndexError(f"{user_source()}: index {i} is out of bounds for axis {axis} with size {sizes}")


def _span(s: slice, n: Extent, scope: Scope) -> Span:
    """Python's rules for slices, with questions about sizes."""
    step = 1 if s.step is None else _bound(s.step)
    step = scope.value(step)
    if step == 0:
        raise ValueError(f"{user_source()}: slice step cannot be zero")
    low, high = (0, n) if step > 0 else (-1, n - 1)
    start = (low if step > 0 else high) if s.start is None else _clamped(_bound(s.start), n, low, high, scope)
    stop = (high if step > 0 else low) if s.stop is None else _clamped(_bound(s.stop), n, low, high, scope)
    distance = stop - start if step > 0 else start - stop
    if not scope.decide("<=", 0, distance):
        return Span(0, 1, 0)
    by = abs(step)
    length = distance if by == 1 else floordiv(distance + (by - 1), by)
    return Span(scope.canonical(start), step, scope.canonical(length))


def _bound(x: Any) -> Extent:
    """A bound or step of a slice; integers beyond any axis become those that code computes with."""
    extent = as_extent(x)
    try:
        extent = operator.index(x) if extent is None else extent
        return min(max(extent, -MOST), MOST) if isinstance(extent, int) else extent
    except ConcretizationError:
        raise ConcretizationError(
            f"{user_source()}: a slice with a traced bound would have a shape that depends on data. Take a window of fixed "
            f"size with x[start + np.arange(size)] or lax.dynamic_slice(x, starts, sizes), or mask with "
            f"np.where(np.arange(n) < stop, x, 0).") from None


def _clamped(x: Extent, n: Extent, low: Extent, high: Extent, scope: Scope) -> Extent:
    """A slice bound from the start, inside [low, high]."""
    if scope.decide("<", x, 0):
        return x + n if scope.decide("<=", low, x + n) else low
    return x if scope.decide("<=", x, high) else high


def _mask(mask: np.ndarray | Tracer, shape: Shape, axis: int, scope: Scope) -> list[Positions]:
    """A boolean array whose values are known, as one array of positions for each of its axes."""
    sizes = mask.shape if isinstance(mask, np.ndarray) else mask.ref.shape
    for k, m in enumerate(sizes):
        if m != 0 and not scope.equate(shape[axis + k], m):  # NumPy takes one of no elements for any
            raise IndexError(f"{user_source()}: boolean index did not match indexed array along axis {axis + k}; the size is "
                             f"{scope.describe((shape[axis + k],))[1:-2]} but the boolean size is {scope.describe((m,))[1:-2]}")
    return [Positions(p) for p in np.nonzero(known_contents(mask, "x[mask]"))]


def known_contents(x: np.ndarray | Tracer, what: str) -> np.ndarray:
    """The elements of an array that decide a shape. An array of the program is guarded; a traced one must be known."""
    if isinstance(x, np.ndarray):
        return x
    value = x.ref.builder.concrete(x.ref.value)
    if value is None:
        raise ConcretizationError(
            f"{user_source()}: {what} has a shape that depends on the values of a traced array, which "
            f"{x.ref.builder.why or 'this trace'} does not know. Use np.where(mask, x, other) to keep the shape; "
            f"x[mask] = value and np.sum(x, where=mask) work; np.nonzero(mask, size=n) of loopwright.numpy gives a fixed size.")
    return np.asarray(value)


def content_guard(builder: Builder, array: np.ndarray) -> None:
    """Record that the trace holds only while this array has these bytes."""
    if not any(known is array for known, _ in builder.scope.contents):
        builder.scope.contents.append((array, array.tobytes()))


# ---- arranging ----------------------------------------------------------------------------------
def _arrange(x: Ref, entries: Sequence[Entry], has_arrays: bool) -> Plan:
    """Lay the entries out: what the basic stage leaves, which of its axes are gathered, and where the result goes."""
    scope = x.builder.scope
    spans: list[Span] = []
    block: list[Extent] = []
    axes: list[int] = []
    operands: list[Any] = []
    advanced: list[int] = []  # numbers of the entries that count as advanced
    front = -1
    for k, e in enumerate(entries):
        if isinstance(e, Positions) or (has_arrays and isinstance(e, Span) and e.dropped):
            advanced.append(k)
            front = len(block) - len(axes) if front < 0 else front
        if isinstance(e, Positions):
            axes.append(len(block))
            operands.append(e.index)
            size = 1 if e.on_new_axis else x.shape[len(spans)]
            spans += [] if e.on_new_axis else [Span(0, 1, size)]
            block.append(size)
        elif isinstance(e, NewAxis):
            block.append(1)
        elif isinstance(e, Span):
            spans.append(e)
            block += [] if e.dropped else [e.length]
    if advanced != list(range(advanced[0], advanced[-1] + 1) if advanced else []):
        front = 0
    indices = _indices(operands, x, scope)
    index_shape = indices[0].shape if indices else ()
    rest = [n for a, n in enumerate(block) if a not in axes]
    front = max(front, 0)
    shape = (*rest[:front], *index_shape, *rest[front:])
    return Plan(tuple(spans), tuple(block), tuple(axes), indices, front, len(index_shape), scope.canonical_shape(shape))


def _indices(operands: Sequence[Any], x: Ref, scope: Scope) -> tuple[Ref, ...]:
    """Advanced indices at i64 and their common shape."""
    refs = [lift(i, I64, x.builder) for i in operands]
    if not refs:
        return ()
    try:
        shape = broadcast_shapes(scope, *[r.shape for r in refs])
    except ShapeError as error:
        raise IndexError(f"{error} (shape mismatch of indexing arrays)") from None
    return tuple(broadcast(r, shape) for r in refs)


def are_same(p: Plan | None, q: Plan, builder: Builder) -> bool:
    """Whether two keys surely name the same elements of one array; None is no key's."""
    canonical = builder.scope.facts.canonical_attribute
    if p is None or canonical(_basic(p)) != canonical(_basic(q)):
        return False
    if any(r.builder is not builder for r in (*p.indices, *q.indices)):
        return False
    pairs = {(a.value, b.value) for a, b in zip(p.indices, q.indices, strict=True) if a.value is not b.value}
    seen = set(pairs)
    while pairs:
        a, b = pairs.pop()
        m, n = builder.producer.get(a), builder.producer.get(b)
        if m is None or n is None or m.op is not n.op or m.regions or n.regions or m.outputs.index(a) != n.outputs.index(b) \
                or canonical(tuple(m.attrs.items())) != canonical(tuple(n.attrs.items())):
            return False
        more = {(v, w) for v, w in zip(m.inputs, n.inputs, strict=True) if v is not w} - seen
        pairs |= more
        seen |= more
    return True


def _basic(p: Plan) -> tuple[Any, ...]:
    return p.axes, p.shape, tuple([(s.start, s.step, s.length) for s in p.spans])


# ---- reading ------------------------------------------------------------------------------------
def read_block(x: Ref, p: Plan) -> Ref:
    """The basic stage."""
    return reshape(_taken(x, p), p.block)


def _taken(x: Ref, p: Plan) -> Ref:
    """What it takes, with an axis of size 1 for each integer."""
    if p.is_whole(x.shape):
        return x
    return slice_(x, start=tuple(s.start for s in p.spans), step=tuple(s.step for s in p.spans),
                  shape=tuple(s.length for s in p.spans))


def read(x: Ref, p: Plan, mode: str = "raise") -> Ref:
    """The elements that a plan names."""
    if not p.axes:
        return read_block(x, p)
    if p.own is None:
        out = gather(read_block(x, p), *p.indices, axes=p.axes, batch=0, mode=mode)
    else:  # so that a gradient is added to the array itself
        out = gather(_taken(x, p), *p.indices, axes=tuple([p.own[a] for a in p.axes]), batch=0, mode=mode)
        out = reshape(out, (*p.indices[0].shape, *[n for a, n in enumerate(p.block) if a not in p.axes]))
    return out if p.perm == tuple(range(len(p.perm))) else transpose(out, perm=p.perm)


@implements(operator.getitem)
def getitem(x: Tracer, key: Any) -> Tracer:
    """x[key]: a view for basic keys, else a new array; a rank-0 result of integers alone is a number."""
    ref = x.ref
    guard_masks(key, ref.builder)
    if (side_by_side := _one_by_one(ref, key)) is not None:
        axis, keys = side_by_side
        return x.made(lambda base: concatenate(*[read(base, plan(base, k)) for k in keys], axis=axis), is_view=False)
    p = plan(ref, key)
    is_copy = _is_one_list(key) or any(r.shape for r in p.indices) or (not p.shape and Ellipsis not in _plain(key))
    return x.made(lambda base: read(base, p), is_view=not is_copy, plan=p)


def _one_by_one(x: Ref, key: Any) -> tuple[int, list[Any]] | None:
    """Of a key with one list of a few integers that is no slice: the axis of the result that it is for, and a key for each."""
    items = key if isinstance(key, tuple) else (key,)
    listed = next((k for k, t in enumerate(items) if isinstance(t, list)), 0) if _is_one_list(key) else None
    if listed is None or not 1 < len(items[listed]) <= FEW or any(type(i) is not int for i in items[listed]):
        return None
    if _steps(items[listed]) is not None:
        return None
    keys = [(*items[:listed], [i], *items[listed + 1:]) for i in items[listed]]
    tokens = [t for t in _with_ellipsis(_tokens(keys[0]), x.shape) if t is not Ellipsis]
    return next(k for k, t in enumerate(tokens) if isinstance(t, Steps)), keys


def guard_masks(key: Any, builder: Builder) -> None:
    """Boolean arrays of the program decide shapes, so their bytes are guarded."""
    for t in key if isinstance(key, tuple) else (key,):
        if isinstance(t, np.ndarray) and t.dtype == BOOL:
            content_guard(builder, t)


def _plain(key: Any) -> list[Any]:
    """The items of a key that are no arrays: `in` compares arrays element by element."""
    return [t for t in (key if isinstance(key, tuple) else (key,)) if not isinstance(t, (np.ndarray, Tracer, Size, list))]


