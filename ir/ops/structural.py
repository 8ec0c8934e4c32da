"""Ops that move elements without computing: transpose, reshape, slice, pad and concatenate.

Guarantees: all are linear; their index arithmetic divides only inside a group of axes that a reshape really mixes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Call, Extent, Shape, product, symbol, terms_of
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.facts import Facts
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext, When, integer, less, minus, plus, times
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import operand_dtype, spread
from loopwright.ir.ops.construct import scalar
from loopwright.ir.types import BOOL, I64, ArrayType


# ---- transpose ----------------------------------------------------------------------------------
def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes perm."""
    return tuple(perm.index(a) for a in range(len(perm)))


def _transpose_shape(x: ArrayType, perm: tuple[int, ...]) -> Shape:
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(f"transpose: {perm} must hold each axis of {x} once")
    return tuple(x.shape[a] for a in perm)


transpose: Op = Op(
    name="transpose",
    doc="Result axis k is operand axis perm[k].",
    shape=_transpose_shape,
    dtype=operand_dtype,
    numpy=lambda x, perm: np.transpose(x, perm),
    batch=lambda size, args, mapped, perm: transpose(args[0], perm=(0, *(a + 1 for a in perm))),
    loop=lambda context, index, perm: context.load(0, tuple(index[a] for a in inverse(perm))),
    linear=(0,), jointly=True, transpose={0: lambda ct, x, perm: transpose(ct, perm=inverse(perm))},
    examples=(Example(("f64[n, 2, m]",), {"perm": (2, 0, 1)}), Example(("f64[n, n, 1]",), {"perm": (1, 0, 2)}),
              Example(("f64[]",), {"perm": ()}), Example(("i32[0, n]",), {"perm": (1, 0)})),
)


def permute(x: Ref, perm: tuple[int, ...]) -> Ref:
    """x with its axes in another order; x itself where the order is its own."""
    return x if perm == tuple(range(len(perm))) else transpose(x, perm=perm)


def move_axis(x: Ref, source: int, target: int) -> Ref:
    """x with axis `source` moved to `target`, the others in order."""
    order = [a for a in range(len(x.shape)) if a != source]
    order.insert(target, source)
    return permute(x, tuple(order))


# ---- reshape ------------------------------------------------------------------------------------
def _of_one_size(a: Shape, b: Shape) -> bool:
    """Whether two shapes have as many elements, where every quotient among the sizes is exact: a trace guards that before it
    writes one. Sizes that both have may be left aside."""
    if product(a) == product(b):
        return True
    first, second = list(a), list(b)
    for n in a:
        if n in second:
            first.remove(n)
            second.remove(n)
    found: dict[tuple[Extent, Extent], None] = {}
    todo = [*a, *b]
    for n in todo:
        for atom in [x for atoms, _ in terms_of(n) for x in atoms]:
            if isinstance(atom, Call):
                todo += atom.args
                if atom.fn == "floordiv":
                    found[atom.args[1], atom.args[0]] = None
    facts = Facts(divides=sorted(found, key=lambda x: -len(str(x[1]))))  # what holds others cancels before they do
    return any(facts.canonical(product(x)) == facts.canonical(product(y)) for x, y in ((a, b), (first, second)))


def _reshape_shape(x: ArrayType, shape: Shape) -> Shape:
    if not _of_one_size(x.shape, shape):
        raise ShapeError(f"reshape: {x} has {x.size} elements, the new shape {shape} has {product(shape)}")
    return shape


def _groups(source: Sequence[Extent], target: Sequence[Extent]) -> Iterator[tuple[int, int]]:
    """Cut both shapes into the shortest runs of axes, (length in source, length in target), of equal products."""
    while source and target:
        p, q = next(((p, q) for total in range(2, len(source) + len(target) + 1) for p in range(1, min(total, len(source) + 1))
                     if 1 <= (q := total - p) <= len(target) and product(source[:p]) == product(target[:q])),
                    (len(source), len(target)))
        yield p, q
        source, target = source[p:], target[q:]


def _regroup(source: Sequence[Extent], target: Sequence[Extent], index: Sequence[Expr]) -> list[Expr]:
    """The index into source axes of the element at `index` of target axes; nothing is taken modulo the outermost."""
    flat: Expr = integer(0)
    for extent, i in zip(target, index, strict=True):
        flat = plus(times(flat, integer(extent)), i)
    inner: list[Expr] = []
    for extent in reversed(source[1:]):
        inner.append(Apply("remainder", (flat, integer(extent)), I64))
        flat = Apply("floor_divide", (flat, integer(extent)), I64)
    return [flat, *reversed(inner)]


def _reshape_loop(context: LoopContext, index: tuple[Expr, ...], shape: Shape) -> Expr:
    """Axes of size 1 cost nothing, equal axes keep their index, and only what is merged or split is divided."""
    source = [(a, n) for a, n in enumerate(context.types[0].shape) if n != 1]
    target = [(i, n) for i, n in zip(index, shape, strict=True) if n != 1]
    at: list[Expr] = [integer(0)] * context.types[0].rank
    for p, q in _groups([n for _, n in source], [n for _, n in target]):
        places = _regroup([n for _, n in source[:p]], [n for _, n in target[:q]], [i for i, _ in target[:q]])
        for (axis, _), place in zip(source[:p], places, strict=True):
            at[axis] = place
        source, target = source[p:], target[q:]
    return context.load(0, tuple(at))


reshape: Op = Op(
    name="reshape",
    doc="The same elements in C order under another shape.",
    shape=_reshape_shape,
    dtype=operand_dtype,
    numpy=np.reshape,
    batch=lambda size, args, mapped, shape: reshape(args[0], shape=(size, *shape)),
    loop=_reshape_loop,
    linear=(0,), jointly=True, transpose={0: lambda ct, x, shape: reshape(ct, shape=x.shape)},
    examples=(Example(("f64[2, 3]",), {"shape": (3, 2)}), Example(("f64[6]",), {"shape": (2, 1, 3)}),
              Example(("f64[4, 6, 5]",), {"shape": (2, 12, 5)}), Example(("f64[1, 4, 1, 6]",), {"shape": (2, 2, 1, 3, 2, 1)}),
              Example(("f64[0, 3]",), {"shape": (2, 0, 7)}), Example(("i32[1, 1]",), {"shape": ()}),
              Example(("f64[]",), {"shape": (1, 1)}), Example(("f64[n, m]",), {"shape": (symbol("n") * symbol("m"),)}),
              Example(("f64[2*n, m]",), {"shape": (symbol("n"), 2, 1, symbol("m"))}),
              Example(("f64[n, 2, m, m]",), {"shape": (symbol("n") * 2, symbol("m") * symbol("m"))})),
)


# ---- slice and pad ------------------------------------------------------------------------------
def check_steps(name: str, inner: Shape, start: Shape, step: tuple[int, ...], outer: Shape) -> None:
    """That position start + step*i lies inside `outer` for every i below `inner`, as far as the sizes tell."""
    if not len(inner) == len(outer) == len(start) == len(step):
        raise ShapeError(f"{name}: start {start}, step {step} and shape must have one entry for each axis of {outer}")
    if any(s == 0 for s in step):
        raise ShapeError(f"{name}: a step of {step} is zero")
    for axis, (n, first, by, size) in enumerate(zip(inner, start, step, outer, strict=True)):
        if _prove("<=", 0, n) is False:
            raise ShapeError(f"{name}: axis {axis} would have size {n}")
        if _prove("<=", 1, n) and any(_prove("<=", 0, at) is False or _prove("<", at, size) is False
                                      for at in (first, first + (n - 1) * by)):
            raise ShapeError(f"{name}: axis {axis} of size {size} has no {n} positions from {first} by {by}")


def _prove(relation: str, a: Extent, b: Extent) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a <= b if relation == "<=" else a < b
    return Facts().prove(relation, a, b)


def window(shape: Sequence[int], start: Sequence[int], step: Sequence[int]) -> tuple[slice, ...]:
    """Python slices that take shape[k] elements from start[k] by step[k]."""
    def one(n: int, first: int, by: int) -> slice:
        stop = first + n * by
        return slice(first, stop if stop >= 0 else None, by) if n else slice(0, 0)
    return tuple(map(one, shape, start, step))


def _slice_shape(x: ArrayType, start: Shape, step: tuple[int, ...], shape: Shape) -> Shape:
    check_steps("slice", shape, start, step, x.shape)
    return shape


def _slice_loop(context: LoopContext, index: tuple[Expr, ...], start: Shape, step: tuple[int, ...], shape: Shape) -> Expr:
    return context.load(0, tuple(plus(integer(s), times(i, integer(by))) for i, s, by in zip(index, start, step, strict=True)))


slice_: Op = Op(
    name="slice",
    doc="result[i] = x[start + step*i]; steps may be negative.",
    shape=_slice_shape,
    dtype=operand_dtype,
    numpy=lambda x, start, step, shape: x[window(shape, start, step)],
    batch=lambda size, args, mapped, start, step, shape:
        slice_(args[0], start=(0, *start), step=(1, *step), shape=(size, *shape)),
    loop=_slice_loop,
    linear=(0,), jointly=True,
    transpose={0: lambda ct, x, start, step, shape: pad(ct, shape=x.shape, start=start, step=step, value=0)},
    examples=(Example(("f64[n, 5]",), {"start": (symbol("n") - 1, 1), "step": (-1, 2), "shape": (symbol("n"), 2)}),
              Example(("f64[7, 4]",), {"start": (5, 3), "step": (-2, -1), "shape": (3, 4)}),
              Example(("f64[5]",), {"start": (4,), "step": (-1,), "shape": (5,)}),
              Example(("f64[5]",), {"start": (5,), "step": (1,), "shape": (0,)}),
              Example(("f64[0]",), {"start": (-1,), "step": (-1,), "shape": (0,)}),
              Example(("f64[]",), {"start": (), "step": (), "shape": ()}),
              Example(("bool[6]",), {"start": (1,), "step": (3,), "shape": (2,)})),
)


def section(x: Ref, axis: int, start: Extent, size: Extent, step: int = 1) -> Ref:
    """`size` positions of one axis from `start` by `step`; the other axes whole."""
    shape = x.shape
    return slice_(x, start=tuple(start if a == axis else 0 for a in range(len(shape))),
                  step=tuple(step if a == axis else 1 for a in range(len(shape))),
                  shape=tuple(size if a == axis else n for a, n in enumerate(shape)))


def reverse(x: Ref, axis: int) -> Ref:
    """x backwards along one axis."""
    return section(x, axis, x.shape[axis] - 1, x.shape[axis], -1)


def _pad_shape(x: ArrayType, shape: Shape, start: Shape, step: tuple[int, ...], value: Any) -> Shape:
    check_steps("pad", x.shape, start, step, shape)
    return shape


def _pad_numpy(x: np.ndarray, shape: tuple[int, ...], start: tuple[int, ...], step: tuple[int, ...], value: Any) -> np.ndarray:
    out = np.full(shape, value, x.dtype)
    out[window(x.shape, start, step)] = x
    return out


def _pad_loop(context: LoopContext, index: tuple[Expr, ...], shape: Shape, start: Shape, step: tuple[int, ...],
              value: Any) -> Expr:
    """The element of x where the position is one of x's, else the value; of each axis only the tests that can fail."""
    x = context.types[0]
    at: list[Expr] = []
    tests: list[Expr] = []
    for i, n, first, by, size in zip(index, x.shape, start, step, shape, strict=True):
        distance = minus(i, integer(first)) if by > 0 else minus(integer(first), i)
        least, most = (first * -1, size - 1 - first) if by > 0 else (first - size + 1, first)
        place = distance if abs(by) == 1 else Apply("floor_divide", (distance, integer(abs(by))), I64)
        at.append(place)
        tests += [] if _prove("<=", 0, least) else [less(integer(-1), distance)]
        if abs(by) > 1:
            tests.append(Apply("eq", (Apply("remainder", (distance, integer(abs(by))), I64), integer(0)), BOOL))
        tests += [] if _prove("<", most, n * abs(by)) else [less(place, integer(n))]
    inside = context.load(0, tuple(at))
    for test in reversed(tests):
        inside = When(test, inside, Literal(scalar(value, x.dtype), x.dtype))
    return inside


pad: Op = Op(
    name="pad",
    doc="An array of `shape` full of `value`, with x[i] at start + step*i; linear when the value is 0, as tangents have it.",
    shape=_pad_shape,
    dtype=operand_dtype,
    numpy=_pad_numpy,
    batch=lambda size, args, mapped, shape, start, step, value:
        pad(args[0], shape=(size, *shape), start=(0, *start), step=(1, *step), value=value),
    loop=_pad_loop,
    jvp=lambda primals, tangents, out, shape, start, step, value:
        pad(tangents[0], shape=shape, start=start, step=step, value=0),
    linear=(0,), jointly=True,
    transpose={0: lambda ct, x, shape, start, step, value: slice_(ct, start=start, step=step, shape=x.shape)},
    examples=(Example(("f64[n, 2]",), {"shape": (symbol("n") * 2 + 1, 5), "start": (1, 3), "step": (2, -2), "value": 0}),
              Example(("f64[3]",), {"shape": (8,), "start": (6,), "step": (-3,), "value": 0}),
              Example(("f64[2, 1]",), {"shape": (2, 4), "start": (1, 3), "step": (-1, 1), "value": 0}),
              Example(("f64[0]",), {"shape": (3,), "start": (1,), "step": (1,), "value": 0}),
              Example(("f64[]",), {"shape": (), "start": (), "step": (), "value": 0})),
)


# ---- concatenate --------------------------------------------------------------------------------
MOST_OPERANDS = 1024


def _concatenate_shape(*xs: ArrayType, axis: int) -> Shape:
    if not 1 <= len(xs) <= MOST_OPERANDS:
        raise ShapeError(f"concatenate: takes 1 to {MOST_OPERANDS} operands, got {len(xs)}")
    if not 0 <= axis < xs[0].rank:
        raise ShapeError(f"concatenate: axis {axis} must be below the rank of {xs[0]}")
    for k, x in enumerate(xs):
        if x.rank != xs[0].rank or any(m != n for a, (m, n) in enumerate(zip(x.shape, xs[0].shape, strict=True)) if a != axis):
            raise ShapeError(f"concatenate: operand {k} is {x}, operand 0 is {xs[0]}: they may differ only along axis {axis}")
    return tuple(sum((x.shape[axis] for x in xs), 0) if a == axis else n for a, n in enumerate(xs[0].shape))


def _concatenate_dtype(*xs: ArrayType, axis: int) -> np.dtype:
    for k, x in enumerate(xs):
        if x.dtype != xs[0].dtype:
            raise DTypeError(f"concatenate: operand {k} has dtype {x.dtype}, operand 0 has {xs[0].dtype}: they must be equal")
    return xs[0].dtype


def _concatenate_loop(context: LoopContext, index: tuple[Expr, ...], axis: int) -> Expr:
    """Halves of halves: the operand is found in as many comparisons as the logarithm of their number."""
    ends: list[Extent] = [0]
    for x in context.types:
        ends.append(ends[-1] + x.shape[axis])

    def among(low: int, high: int) -> Expr:
        if high - low == 1:
            return context.load(low, (*index[:axis], minus(index[axis], integer(ends[low])), *index[axis + 1:]))
        middle = (low + high) // 2
        match index[axis], ends[middle]:
            case Literal(int(at)), int(end):
                return among(low, middle) if at < end else among(middle, high)
        return When(less(index[axis], integer(ends[middle])), among(low, middle), among(middle, high))
    return among(0, len(context.types))


def _concatenate_transpose(number: int, ct: Ref, *xs: Ref | ArrayType, axis: int) -> Ref:
    before = sum((x.shape[axis] for x in xs[:number]), 0)
    return section(ct, axis, before, xs[number].shape[axis])


_transposes: dict[int, Callable[..., Ref]] = {k: partial(_concatenate_transpose, k) for k in range(MOST_OPERANDS)}

concatenate: Op = Op(
    name="concatenate",
    doc="Operands one after another along an axis.",
    shape=_concatenate_shape,
    dtype=_concatenate_dtype,
    numpy=lambda *xs, axis: np.concatenate(xs, axis=axis),
    batch=lambda size, args, mapped, axis: concatenate(*spread(size, args, mapped), axis=axis + 1),
    loop=_concatenate_loop,
    linear=tuple(_transposes), jointly=True, transpose=_transposes,
    examples=(Example(("f64[n]", "f64[m]"), {"axis": 0}),
              Example(("f64[n, 2, 3]", "f64[n, m, 3]", "f64[n, 1, 3]"), {"axis": 1}),
              Example(("f64[n, n]", "f64[n, n]"), {"axis": 1}), Example(("f64[2]", "f64[0]", "f64[1]"), {"axis": 0}),
              Example(("i8[n]",), {"axis": 0})),
)
