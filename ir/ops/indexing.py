"""Reading and writing at indices that are data: gather, scatter and scatter_add.

Indices are i64 arrays of one shape, one for each indexed axis. The first `batch` axes are shared by the array and the
indices. What an index outside its axis does is the op's `mode`; a negative index counts from the end first (but for
wrap, where it is the same):
  raise                  IndexError, as NumPy
  fill                   gather gives NaN, the least signed or greatest unsigned integer, or True; scatters skip it
  zero                   gather gives 0 (the linear part of fill); scatters skip it
  clip                   the nearest position
  wrap                   modulo the size
  promise_in_bounds      as clip: the promise saves the check, not the memory
An axis of size 0 has no nearest position: clip and wrap then give 0 and write nothing.

Of the axes that are neither batch nor indexed a gather takes the whole. A scatter may write to a part of them: start + step*i
for each i, as a slice has it, where it has these attributes.

Guarantees: no element outside an array is touched; of several writes to one place the last in C order stays, and the
derivative reaches only that one.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.attributes import Attributes
from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, evaluate, product, symbol
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.graph import Node, Value
from loopwright.ir.loops import (
    Apply,
    Bounded,
    Expr,
    Index,
    Literal,
    LoopContext,
    Scatter,
    When,
    integer,
    less,
    minus,
    plus,
    times,
)
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.arithmetic import div, mul
from loopwright.ir.ops.broadcasting import broadcast, operand_dtype, spread
from loopwright.ir.ops.comparison import eq
from loopwright.ir.ops.construct import full, iota, scalar, zeros_like
from loopwright.ir.ops.selection import convert, select
from loopwright.ir.ops.structural import check_steps, pad, reshape, slice_, window
from loopwright.ir.types import BOOL, I64, INTEGERS, ArrayType, is_inexact

Axes = tuple[int, ...]
Steps = tuple[int, ...]
MODES = ("raise", "fill", "zero", "clip", "wrap", "promise_in_bounds")


# ---- which axis goes where ----------------------------------------------------------------------
@dataclass(frozen=True)
class Layout:
    """Where the axes of the array go in the moved elements: batch axes, index axes, then the rest of the array's."""

    axes: Axes
    batch: int
    array: int  # ranks
    indices: int

    @property
    def rest(self) -> Axes:
        """The array's axes that are taken whole."""
        return tuple(a for a in range(self.batch, self.array) if a not in self.axes)

    @property
    def order(self) -> Axes:
        """The array's axes as batch, indexed, rest."""
        return (*range(self.batch), *self.axes, *self.rest)

    def place(self, at: Sequence[Expr], positions: Sequence[Expr]) -> tuple[Expr, ...]:
        """The array's index for the moved element at `at`."""
        found: dict[int, Expr] = {a: at[a] for a in range(self.batch)}
        found |= dict(zip(self.axes, positions, strict=True))
        found |= dict(zip(self.rest, at[self.indices:], strict=True))
        return tuple(found[a] for a in range(self.array))


def layout_of(x: ArrayType | Ref, indices: Sequence[ArrayType | Ref], axes: Axes, batch: int) -> Layout:
    """Where the axes of x go."""
    return Layout(axes, batch, len(x.shape), len(indices[0].shape))


def _moved_shape(name: str, x: ArrayType, indices: tuple[ArrayType, ...], axes: Axes, batch: int, mode: str) -> Shape:
    if mode not in MODES:
        raise ValueError(f"{name}: mode must be one of {', '.join(MODES)}, got {mode!r}")
    if not indices or len(indices) != len(axes):
        raise ShapeError(f"{name}: one index for each of axes {axes}, at least one; got {len(indices)}")
    if len(set(axes)) != len(axes) or any(not batch <= a < x.rank for a in axes):
        raise ShapeError(f"{name}: axes {axes} must be distinct, past the {batch} batch axes and below the rank of {x}")
    for k, i in enumerate(indices):
        if i.dtype != I64:
            raise DTypeError(f"{name}: index {k} must be i64, got {i}")
        if i.shape != indices[0].shape:
            raise ShapeError(f"{name}: index {k} is {i}, index 0 is {indices[0]}: their shapes must be equal")
    if indices[0].shape[:batch] != x.shape[:batch] or indices[0].rank < batch:
        raise ShapeError(f"{name}: the first {batch} axes of {x} and of the indices {indices[0]} must be equal")
    return (*indices[0].shape, *(x.shape[a] for a in layout_of(x, indices, axes, batch).rest))


# ---- positions ----------------------------------------------------------------------------------
def _numpy_positions(shape: tuple[int, ...], indices: Sequence[np.ndarray], axes: Axes, batch: int,
                     mode: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Positions inside their axes, and which of them count. IndexError for the first offence under mode raise."""
    positions, counts = [], np.ones(indices[0].shape, bool)
    for i, axis in zip(indices, axes, strict=True):
        n = shape[axis]
        wrapped = np.where(i < 0, i + n, i) if mode != "wrap" else np.mod(i, max(n, 1))
        inside = (wrapped >= 0) & (wrapped < n)
        if mode == "raise" and not inside.all():
            raise IndexError(f"index {i[~inside][0]} is out of bounds for axis {axis - batch} with size {n}")
        positions.append(np.clip(wrapped, 0, max(n - 1, 0)))
        counts &= inside if mode in ("fill", "zero") else n > 0
    return positions, counts


def _flat_places(positions: Sequence[np.ndarray], counts: np.ndarray, batch: int) -> tuple[np.ndarray, ...]:
    """The array's index, batch axes first, of every index that counts, in C order."""
    kept = np.flatnonzero(counts)
    shared = np.unravel_index(kept, counts.shape)[:batch] if batch else ()
    return (*shared, *(p.reshape(-1)[kept] for p in positions))


def _position(index: Expr, size: Extent, axis: int, mode: str) -> tuple[Expr, list[Expr]]:
    """The position along an axis, and the tests that must hold before anything is touched there."""
    some = [] if isinstance(size, int) and size > 0 else [less(integer(0), integer(size))]
    if mode == "wrap":
        return Apply("remainder", (index, integer(size)), I64), some
    wrapped = _select(less(index, integer(0)), plus(index, integer(size)), index)
    if mode == "raise":
        return Bounded(wrapped, size, axis), []
    if mode in ("fill", "zero"):
        return wrapped, [less(integer(-1), wrapped), less(wrapped, integer(size))]
    last = minus(integer(size), integer(1))
    nearest = _select(less(wrapped, integer(size)), wrapped, last)
    return _select(less(nearest, integer(0)), integer(0), nearest), some


def _select(cond: Expr, then: Expr, other: Expr) -> Expr:
    return Apply("select", (cond, then, other), I64)


def positions_of(context: LoopContext, first: int, at: tuple[Expr, ...], x: ArrayType, axes: Axes, batch: int,
               mode: str) -> tuple[list[Expr], list[Expr]]:
    """The positions that the indices, operands from `first` on, give at `at`; and every test."""
    found = [_position(context.load(first + k, at), x.shape[a], a - batch, mode) for k, a in enumerate(axes)]
    return [position for position, _ in found], [test for _, tests in found for test in tests]


# ---- gather -------------------------------------------------------------------------------------
def fill_value(dtype: np.dtype) -> Any:
    """What a gather under mode fill gives outside the array: as JAX."""
    if is_inexact(dtype):
        return scalar(math.nan, dtype)
    if dtype in INTEGERS:
        return int(np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max)
    return True


def _outside(dtype: np.dtype, mode: str) -> Any:
    return fill_value(dtype) if mode == "fill" else scalar(0, dtype)


def _gather_numpy(x: np.ndarray, *indices: np.ndarray, axes: Axes, batch: int, mode: str) -> np.ndarray:
    layout = Layout(axes, batch, x.ndim, indices[0].ndim)
    positions, counts = _numpy_positions(x.shape, indices, axes, batch, mode)
    shape = (*indices[0].shape, *(x.shape[a] for a in layout.rest))
    out = np.full(shape, _outside(x.dtype, mode), x.dtype)
    to = _flat_places(positions, counts, batch)
    flat = out.reshape(counts.size, *(x.shape[a] for a in layout.rest))  # a view: out is contiguous
    flat[np.flatnonzero(counts)] = np.transpose(x, layout.order)[to]
    return out


def _gather_loop(context: LoopContext, index: tuple[Expr, ...], axes: Axes, batch: int, mode: str) -> Expr:
    x = context.types[0]
    layout = layout_of(x, context.types[1:], axes, batch)
    positions, tests = positions_of(context, 1, index[:layout.indices], x, axes, batch, mode)
    outside = Literal(_outside(x.dtype, mode), x.dtype)
    found = context.load(0, layout.place(index, positions))
    for test in reversed(tests):
        found = When(test, found, outside)
    return found


def _gather_batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], axes: Axes, batch: int, mode: str) -> Ref:
    """Where only the indices are mapped and none are batched, they have one more axis and x is read in place."""
    if batch == 0 and not mapped[0]:
        return gather(args[0], *spread(size, args[1:], mapped[1:]), axes=axes, batch=0, mode=mode)
    return gather(*spread(size, args, mapped), axes=tuple(a + 1 for a in axes), batch=batch + 1, mode=mode)


def _gather_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref | None, ...], out: Ref, axes: Axes, batch: int, mode: str) -> Ref:
    return gather(_given(tangents[0]), *primals[1:], axes=axes, batch=batch, mode="zero" if mode == "fill" else mode)


def _given(t: Ref | None) -> Ref:
    assert t is not None, "a jvp rule was asked about tangents that are all zero"
    return t


def _gather_transpose(ct: Ref, x: ArrayType, *indices: Ref, axes: Axes, batch: int, mode: str) -> Ref:
    return scatter_add(_zeros(x, ct.builder), ct, *indices, axes=axes, batch=batch, mode=mode)


def _zeros(x: ArrayType | Ref, into: Builder) -> Ref:
    return full(into=into, value=scalar(0, x.dtype), shape=x.shape, dtype=x.dtype)


def _picks(low: int, high: int) -> Callable[[np.random.Generator, ArrayType], np.ndarray]:
    """Indices in [low, high) for examples."""
    return lambda rng, t: np.asarray(rng.integers(low, high, [evaluate(n, {}) for n in t.shape]), I64)


def _attrs(axes: Axes, batch: int = 0, mode: str = "raise") -> dict[str, Any]:
    return {"axes": axes, "batch": batch, "mode": mode}


gather: Op = Op(
    name="gather",
    doc="x at indices along `axes`; result axes: batch, the other index axes, the rest of x's. Modes as the module says.",
    shape=lambda x, *indices, axes, batch, mode: _moved_shape("gather", x, indices, axes, batch, mode),
    dtype=operand_dtype,
    numpy=_gather_numpy,
    batch=_gather_batch,
    loop=_gather_loop,
    jvp=_gather_jvp,
    linear=(0,), jointly=True, transpose={0: _gather_transpose},
    examples=(
        Example(("f64[5]", "i64[n]"), _attrs((0,)), {1: _picks(-5, 5)}),
        Example(("f64[n, 3]", "i64[]"), _attrs((1,)), {1: _picks(-3, 3)}),
        Example(("f64[n, 3]", "i64[m, 2]"), _attrs((1,)), {1: _picks(-3, 3)}),
        Example(("f64[2, n, 3]", "i64[m]", "i64[m]"), _attrs((2, 0)), {1: _picks(-3, 3), 2: _picks(-2, 2)}),
        Example(("f64[n, 4, m]", "i64[n, 2]"), _attrs((1,), 1), {1: _picks(-4, 4)}),
        Example(("f64[n, m, 2, 3]", "i64[n, m]"), _attrs((3,), 2), {1: _picks(-3, 3)}),
        Example(("f64[2, 3, 4]", "i64[2]", "i64[2]"), _attrs((2, 1), 1), {1: _picks(-4, 4), 2: _picks(-3, 3)}),
        Example(("f64[0, 2]", "i64[0]"), _attrs((0,)), {}),
        Example(("f64[4]", "i64[n]"), _attrs((0,), mode="zero"), {1: _picks(-9, 9)}),
        Example(("f64[n]", "i64[m]"), _attrs((0,), mode="clip"), {1: _picks(-9, 9)}),
        Example(("f64[n, m]", "i64[3]", "i64[3]"), _attrs((0, 1), mode="wrap"), {1: _picks(-9, 9), 2: _picks(-9, 9)}),
        Example(("f64[n, 1]", "i64[n, 2]"), _attrs((1,), 1, "promise_in_bounds"), {1: _picks(0, 1)}),
        *(Example((f"{d}[3]", "i64[n]"), _attrs((0,), mode="fill"), {1: _picks(-9, 9)}) for d in ("i8", "u16", "bool")),
        *(Example((f"{d}[3, n]", "i64[4]"), _attrs((0,)), {1: _picks(-3, 3)}) for d in ("f16", "bf16", "f32", "c128", "i32")),
    ),
)


# ---- scatters -----------------------------------------------------------------------------------
def _scatter_shape(name: str) -> Callable[..., Shape]:
    def shape(base: ArrayType, updates: ArrayType, *indices: ArrayType, axes: Axes, batch: int, mode: str, start: Shape = (),
              step: Steps = ()) -> Shape:
        moved = _moved_shape(name, base, indices, axes, batch, mode)
        if start or step:
            lead = indices[0].rank
            check_steps(name, updates.shape[lead:], start, step, moved[lead:])
            moved = (*moved[:lead], *updates.shape[lead:])
        if updates.shape != moved:
            raise ShapeError(f"{name}: the updates are {updates}, what the indices name in {base} has shape {moved}")
        return base.shape
    return shape


def _scatter_dtype(base: ArrayType, updates: ArrayType, *indices: ArrayType, **attrs: Any) -> np.dtype:
    if base.dtype != updates.dtype:
        raise DTypeError(f"a scatter's base and updates must have one dtype, got {base} and {updates}")
    return base.dtype


_AT = {"add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at}


def _scatter_numpy(combine: str) -> Callable[..., np.ndarray]:
    def numpy(base: np.ndarray, updates: np.ndarray, *indices: np.ndarray, axes: Axes, batch: int, mode: str,
              start: tuple[int, ...] = (), step: Steps = ()) -> np.ndarray:
        layout = Layout(axes, batch, base.ndim, indices[0].ndim)
        positions, counts = _numpy_positions(base.shape, indices, axes, batch, mode)
        out = np.array(base)  # a copy, also of a scalar
        view, to = np.transpose(out, layout.order), _flat_places(positions, counts, batch)
        rest = updates.shape[layout.indices:]
        if start:
            view = view[(*[slice(None)] * (batch + len(axes)), *window(rest, start, step))]
        flat = updates.reshape(counts.size, *rest)[np.flatnonzero(counts)]
        if combine == "set":
            view[to] = flat
        else:
            _AT[combine](view, to, flat)
        return out
    return numpy


def _scatter_loop(combine: str) -> Callable[..., Expr]:
    def loop(context: LoopContext, index: tuple[Expr, ...], axes: Axes, batch: int, mode: str, start: Shape = (),
             step: Steps = ()) -> Expr:
        base, updates = context.types[:2]
        layout = layout_of(base, context.types[2:], axes, batch)
        over = tuple((context.fresh(), n) for n in updates.shape)
        at = tuple(k for k, _ in over)
        positions, tests = positions_of(context, 2, at[:layout.indices], base, axes, batch, mode)
        when: Expr | None = None
        for test in tests:
            when = test if when is None else Apply("bitwise_and", (when, test), BOOL)
        whole = tuple(i for i in index if isinstance(i, Index))
        assert len(whole) == len(index), "a scatter is the outermost expression of its kernel"
        rest = at[layout.indices:] if not start else tuple([
            plus(integer(first), times(i, integer(by))) for i, first, by in zip(at[layout.indices:], start, step, strict=True)])
        target = layout.place((*at[:layout.indices], *rest), positions)
        return Scatter(whole, context.load(0, index), over, target, context.load(1, at), combine, when)
    return loop


def _scatter(name: str, combine: str, doc: str, dtypes: Sequence[str] = ("f16", "bf16", "f32", "c128", "i8", "bool"),
             **rules: Any) -> Op:
    def batched(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], axes: Axes, batch: int, **attrs: Any) -> Ref:
        return op(*spread(size, args, mapped), axes=tuple(a + 1 for a in axes), batch=batch + 1, **attrs)

    op = Op(
        name=name, doc=doc, shape=_scatter_shape(name), dtype=_scatter_dtype, numpy=_scatter_numpy(combine),
        loop=_scatter_loop(combine), batch=batched, **rules,
        examples=(
            Example(("f64[5]", "f64[n]", "i64[n]"), _attrs((0,)), {2: _picks(-5, 5)}),
            Example(("f64[n, 3]", "f64[n]", "i64[]"), _attrs((1,)), {2: _picks(-3, 3)}),
            Example(("f64[n, 3]", "f64[m, 2, n]", "i64[m, 2]"), _attrs((1,)), {2: _picks(-3, 3)}),
            Example(("f64[2, n, 3]", "f64[m, n]", "i64[m]", "i64[m]"), _attrs((2, 0)), {2: _picks(-3, 3), 3: _picks(-2, 2)}),
            Example(("f64[n, 4, m]", "f64[n, 5, m]", "i64[n, 5]"), _attrs((1,), 1), {2: _picks(-4, 4)}),
            Example(("f64[2, 1, 3]", "f64[2]", "i64[2]", "i64[2]"), _attrs((2, 1), 1), {2: _picks(-3, 3), 3: _picks(-1, 1)}),
            Example(("f64[0, 2]", "f64[0, 2]", "i64[0]"), _attrs((0,)), {}),
            Example(("f64[4]", "f64[n]", "i64[n]"), _attrs((0,), mode="fill"), {2: _picks(-9, 9)}),
            Example(("f64[4, n]", "f64[6, n]", "i64[6]"), _attrs((0,), mode="zero"), {2: _picks(-9, 9)}),
            Example(("f64[n]", "f64[m]", "i64[m]"), _attrs((0,), mode="clip"), {2: _picks(-9, 9)}),
            Example(("f64[n, m]", "f64[7]", "i64[7]", "i64[7]"), _attrs((1, 0), mode="wrap"),
                    {2: _picks(-9, 9), 3: _picks(-9, 9)}),
            Example(("f64[n + 3, 4]", "f64[n]", "i64[]"), _attrs((1,)) | {"start": (2,), "step": (1,)}, {2: _picks(-4, 4)}),
            Example(("f64[3, n + 1, 7]", "f64[2, n, 3]", "i64[2]"), _attrs((0,)) | {"start": (symbol("n"), 1), "step": (-1, 2)},
                    {2: _picks(-3, 3)}),
            Example(("f64[n, 4, 5]", "f64[n, 2, 1]", "i64[n, 2]"), _attrs((1,), 1) | {"start": (4,), "step": (1,)},
                    {2: _picks(-4, 4)}),
            *(Example((f"{d}[3]", f"{d}[n]", "i64[n]"), _attrs((0,)), {2: _picks(-3, 3)})
              for d in dtypes),
        ))
    return op


def _winners(updates: ArrayType | Ref, base: ArrayType | Ref, indices: tuple[Ref, ...], axes: Axes, batch: int,
             mode: str) -> Ref:
    """Which updates stay: bool, the updates' shape. Each index writes its number, and reads what is left there."""
    into, layout = _newest(indices), layout_of(base, indices, axes, batch)
    shape = indices[0].shape
    numbers = reshape(iota(into=into, shape=(product(shape),), axis=0, dtype=I64), shape=shape)
    sheet = full(into=into, value=-1, shape=tuple(base.shape[a] for a in layout.order[:batch + len(axes)]), dtype=I64)
    places = tuple(range(batch, batch + len(axes)))
    left = scatter(sheet, numbers, *indices, axes=places, batch=batch, mode=mode)
    read = gather(left, *indices, axes=places, batch=batch, mode="fill" if mode == "zero" else mode)
    stays = eq(read, numbers)
    return broadcast(stays, shape=updates.shape, axes=tuple(range(layout.indices)))


def _newest(refs: Sequence[Ref]) -> Builder:
    return max((x.builder for x in refs), key=lambda b: b.serial)


def _scatter_transpose_base(ct: Ref, base: ArrayType | Ref, updates: ArrayType | Ref, *indices: Ref, **attrs: Any) -> Ref:
    """Nothing of the base is left where an update was written."""
    return scatter(ct, _zeros(updates, ct.builder), *indices, **attrs)


def _scatter_transpose_updates(ct: Ref, base: ArrayType | Ref, updates: ArrayType | Ref, *indices: Ref, axes: Axes, batch: int,
                               mode: str, **part: Any) -> Ref:
    read = _where_updates_go(ct, updates, indices, axes, batch, "zero" if mode == "fill" else mode, **part)
    if all(n == 1 for n in indices[0].shape[batch:]):
        return read  # nothing else is written there
    return select(_winners(updates, base, indices, axes, batch, mode), read, zeros_like(read))


def _where_updates_go(x: Ref, updates: ArrayType | Ref, indices: tuple[Ref, ...], axes: Axes, batch: int, mode: str,
                      start: Shape = (), step: Steps = ()) -> Ref:
    """The elements of x that updates are for."""
    layout = layout_of(x, indices, axes, batch)
    if start:
        parts = {a: (first, by, n) for a, first, by, n in zip(layout.rest, start, step, updates.shape[layout.indices:],
                                                              strict=True)}
        first, by, shape = zip(*[parts.get(a, (0, 1, n)) for a, n in enumerate(x.shape)], strict=True)
        x = slice_(x, start=first, step=by, shape=shape)
    return gather(x, *indices, axes=axes, batch=batch, mode=mode)


def _scatter_add_transpose_updates(ct: Ref, base: ArrayType | Ref, updates: ArrayType | Ref, *indices: Ref, mode: str,
                                   **attrs: Any) -> Ref:
    return _where_updates_go(ct, updates, indices, mode="zero" if mode == "fill" else mode, **attrs)


scatter = _scatter(
    "scatter", "set",
    "base with `updates`, shaped as gather's result, written at indices along `axes`; the last in C order stays.",
    linear=(0, 1), jointly=True, transpose={0: _scatter_transpose_base, 1: _scatter_transpose_updates})

scatter_add = _scatter(
    "scatter_add", "add",
    "base with `updates`, shaped as gather's result, added at indices along `axes`, one after another in C order.",
    linear=(0, 1), jointly=True,
    transpose={0: lambda ct, base, updates, *indices, **attrs: ct, 1: _scatter_add_transpose_updates})


def additions(v: Value, producer: Mapping[Value, Node]) -> list[tuple[tuple[Value, ...], Attributes]]:
    """The scatter_adds to zeros that make v, as operands after the base and attributes: to x they give x + v. Empty where v is
    made otherwise."""
    steps: list[tuple[tuple[Value, ...], Attributes]] = []
    around: Node | None = None
    while (n := producer.get(v)) is not None:
        if n.op is full and n.attrs["value"] == 0:
            return steps[::-1]
        attrs: Attributes | None = None
        if n.op is scatter_add:
            attrs = n.attrs if around is None else _spread_out(n, around)
        if attrs is not None:
            steps.append((n.inputs[1:], attrs))
        elif n.op is pad and n.attrs["value"] == 0 and around is None:
            around = n
        else:
            return []
        v = n.inputs[0]
    return []


def _spread_out(n: Node, around: Node) -> Attributes | None:
    """The attributes of a scatter into the array that a pad makes in place of what this spreads out; None if there is none."""
    x, attrs = around.inputs[0].type, around.attrs
    start, step = attrs["start"], attrs["step"]
    rest = layout_of(x, [v.type for v in n.inputs[2:]], n.attrs["axes"], n.attrs["batch"]).rest
    if "start" in n.attrs or any(start[a] != 0 or step[a] != 1 or x.shape[a] != attrs["shape"][a]
                                 for a in range(x.rank) if a not in rest):
        return None
    return {**n.attrs, "start": tuple([start[a] for a in rest]), "step": tuple([step[a] for a in rest])}


# ---- scatters that are not linear -----------------------------------------------------------------
def _scatter_tangent(tangents: Sequence[Ref | None], primals: Sequence[Ref], **attrs: Any) -> Ref:
    """The tangents of base and updates added up where the updates go; None is zero."""
    first, second = (t if t is not None else zeros_like(x) for t, x in zip(tangents, primals[:2], strict=True))
    return scatter_add(first, second, *primals[2:], **attrs)


def _scatter_extreme_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref | None, ...], out: Ref, **attrs: Any) -> Ref:
    """Those that equal the extreme share it."""
    base, updates, *indices = primals
    wins = eq(base, out), eq(updates, _where_updates_go(out, updates, tuple(indices), **attrs))
    count = scatter_add(*(convert(w, dtype=out.dtype) for w in wins), *indices, **attrs)
    kept = [None if t is None else select(w, t, zeros_like(t)) for w, t in zip(wins, tangents[:2], strict=True)]
    return div(_scatter_tangent(kept, primals, **attrs), count)


def _scatter_mul_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref | None, ...], out: Ref, **attrs: Any) -> Ref:
    """The product times the sum of relative changes: not for factors of 0."""
    relative = [None if t is None else div(t, x) for t, x in zip(tangents[:2], primals[:2], strict=True)]
    return mul(out, _scatter_tangent(relative, primals, **attrs))


_ORDERED_EXAMPLES = ("f16", "bf16", "f32", "i8", "bool")
scatter_max = _scatter(
    "scatter_max", "max", "base with the greatest of each element and the updates for it.", _ORDERED_EXAMPLES,
    jvp=_scatter_extreme_jvp)
scatter_min = _scatter(
    "scatter_min", "min", "base with the least of each element and the updates for it.", _ORDERED_EXAMPLES,
    jvp=_scatter_extreme_jvp)
scatter_mul = _scatter(
    "scatter_mul", "mul", "base with each element times the updates for it, one after another in C order; derivatives take all "
    "factors for nonzero.", jvp=_scatter_mul_jvp)

SCATTERS = (scatter, scatter_add, scatter_max, scatter_min, scatter_mul)
