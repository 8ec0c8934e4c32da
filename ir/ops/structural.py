"""Ops that move elements without computing: reshape, transpose and their kin."""
from __future__ import annotations

import numpy as np

from loopwright.ir.dims import Shape, product
from loopwright.ir.errors import ShapeError
from loopwright.ir.loops import Apply, Expr, LoopContext, integer, plus, times
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.types import I64, ArrayType


# ---- transpose ----------------------------------------------------------------------------------
def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes perm."""
    return tuple(perm.index(a) for a in range(len(perm)))


transpose = Op(
    name="transpose",
    doc="Result axis k is operand axis perm[k].",
    shape=lambda x, perm: tuple(x.shape[a] for a in perm),
    dtype=operand_dtype,
    numpy=np.transpose,
    batch=lambda size, args, mapped, perm: transpose(args[0], perm=(0, *(a + 1 for a in perm))),
    loop=lambda context, index, perm: context.load(0, tuple(index[a] for a in inverse(perm))),
    linear=(0,), jointly=True, transpose={0: lambda ct, x, perm: transpose(ct, perm=inverse(perm))},
    examples=(Example(("f64[n, 2, m]",), {"perm": (2, 0, 1)}),),
)


# ---- reshape ------------------------------------------------------------------------------------
def _reshape_shape(x: ArrayType, shape: Shape) -> Shape:
    if product(shape) != x.size:
        raise ShapeError(f"reshape: {x} has {x.size} elements, the new shape {shape} has {product(shape)}")
    return shape


def _reshape_loop(context: LoopContext, index: tuple[Expr, ...], shape: Shape) -> Expr:
    """Axes that both sides share keep their index; the rest goes through the flat position."""
    source = context.types[0].shape
    front = 0
    while front < min(len(source), len(shape)) and source[front] == shape[front]:
        front += 1
    flat: Expr = integer(0)
    for x, extent in zip(index[front:], shape[front:], strict=True):
        flat = plus(times(flat, integer(extent)), x)
    inner: list[Expr] = []
    for k, extent in reversed(list(enumerate(source))[front:]):
        inner.append(flat if k == front else Apply("remainder", (flat, integer(extent)), I64))
        flat = Apply("floor_divide", (flat, integer(extent)), I64)
    return context.load(0, (*index[:front], *reversed(inner)))


reshape = Op(
    name="reshape",
    doc="The same elements in C order under another shape.",
    shape=_reshape_shape,
    dtype=operand_dtype,
    numpy=np.reshape,
    batch=lambda size, args, mapped, shape: reshape(args[0], shape=(size, *shape)),
    loop=_reshape_loop,
    linear=(0,), jointly=True, transpose={0: lambda ct, x, shape: reshape(ct, shape=x.shape)},
    examples=(Example(("f64[2, 3]",), {"shape": (3, 2)}), Example(("f64[6]",), {"shape": (2, 1, 3)})),
)
