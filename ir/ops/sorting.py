"""Sorting: stable, NaN last, 0.0 and -0.0 equal, as NumPy's stable kind. Library calls: they have no loop rule."""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Shape
from loopwright.ir.errors import ShapeError
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.ops.elementwise import between
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.reductions import widened
from loopwright.ir.ops.structural import move_axis
from loopwright.ir.types import I64, ArrayType

_EXAMPLES = (
    Example(("f64[n]",), {"axis": 0}), Example(("f64[n, 4, m]",), {"axis": 1}), Example(("f64[n, n]",), {"axis": 0}),
    Example(("f64[2, 0]",), {"axis": 1}), Example(("f64[n, 1]",), {"axis": 1}),
    *(Example((f"{d}[3, n]",), {"axis": 1}) for d in ("f16", "bf16", "f32", "c128")),
    *(Example((f"{d}[n]",), {"axis": 0}, {0: between(0, 3)}) for d in ("i8", "i64", "u32")), Example(("bool[n]",), {"axis": 0}),
)


def _same_shape(x: ArrayType, axis: int) -> Shape:
    if not 0 <= axis < x.rank:
        raise ShapeError(f"axis {axis} must be below the rank of {x}")
    return x.shape


def _sort_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, axis: int) -> Ref:
    """A tangent goes where its primal goes."""
    last = len(out.shape) - 1
    order = move_axis(argsort(primals[0], axis=axis), axis, last)
    moved = gather(move_axis(tangents[0], axis, last), order, axes=(last,), batch=last, mode="promise_in_bounds")
    return move_axis(moved, last, axis)


def _argsort_dtype(x: ArrayType, **attrs: Any) -> np.dtype:
    return I64


sort: Op = Op(
    name="sort",
    doc="x sorted along an axis.",
    shape=_same_shape, dtype=operand_dtype,
    numpy=lambda x, axis: np.sort(widened(x), axis=axis, kind="stable").astype(x.dtype, copy=False),
    batch=lambda size, args, mapped, axis: sort(args[0], axis=axis + 1),
    jvp=_sort_jvp,
    examples=_EXAMPLES,
)
argsort: Op = Op(
    name="argsort",
    doc="The positions that sort x along an axis: i64; equal elements keep their order.",
    shape=_same_shape, dtype=_argsort_dtype,
    numpy=lambda x, axis: np.argsort(widened(x), axis=axis, kind="stable").astype(I64, copy=False),
    batch=lambda size, args, mapped, axis: argsort(args[0], axis=axis + 1),
    examples=_EXAMPLES,
)
