"""Broadcasting and its transpose, summing: each is written with the other."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, symbol
from loopwright.ir.errors import ShapeError
from loopwright.ir.loops import Apply, Expr, LoopContext, Reduce
from loopwright.ir.op import Example, Op
from loopwright.ir.types import BF16, BOOL, F16, F32, ArrayType


def reduced_shape(x: ArrayType, axes: tuple[int, ...]) -> Shape:
    """The shape without axes."""
    if len(set(axes)) != len(axes) or any(not 0 <= a < x.rank for a in axes):
        raise ShapeError(f"axes {axes} must be distinct and below the rank of {x}")
    return tuple(n for a, n in enumerate(x.shape) if a not in axes)


def operand_dtype(x: ArrayType, *rest: ArrayType, **attrs: Any) -> np.dtype:
    """The dtype of operand 0."""
    return x.dtype


# ---- broadcast ----------------------------------------------------------------------------------
def _broadcast_shape(x: ArrayType, shape: Shape, axes: tuple[int, ...]) -> Shape:
    if len(axes) != x.rank or [a for a, b in zip(axes, (*axes[1:], len(shape)), strict=False) if b <= a]:
        raise ShapeError(f"broadcast: axes {axes} must be {x.rank} rising axes below {len(shape)}")
    for k, a in enumerate(axes):
        if x.shape[k] is not shape[a] and x.shape[k] != shape[a]:
            raise ShapeError(f"broadcast: operand axis {k} has size {x.shape[k]}, result axis {a} has size {shape[a]}")
    return shape


def _broadcast_numpy(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    kept = [x.shape[axes.index(a)] if a in axes else 1 for a in range(len(shape))]
    return np.broadcast_to(np.reshape(x, kept), shape)


def _broadcast_transpose(ct: Ref, x: ArrayType, shape: Shape, axes: tuple[int, ...]) -> Ref:
    return reduce_sum(ct, axes=tuple(a for a in range(len(shape)) if a not in axes)) if len(axes) < len(shape) else ct


broadcast: Op = Op(
    name="broadcast",
    doc="Operand axis k becomes result axis axes[k]; the other result axes repeat.",
    shape=_broadcast_shape,
    dtype=operand_dtype,
    numpy=_broadcast_numpy,
    batch=lambda size, args, mapped, shape, axes: broadcast(args[0], shape=(size, *shape), axes=(0, *(a + 1 for a in axes))),
    loop=lambda context, index, shape, axes: context.load(0, tuple(index[a] for a in axes)),
    linear=(0,), jointly=True, transpose={0: _broadcast_transpose},
    examples=(Example(("f64[3]",), {"shape": (2, 3, 4), "axes": (1,)}), Example(("f64[]",), {"shape": (3,), "axes": ()}),
              Example(("f64[n, 1]",), {"shape": (symbol("n"), 2, 1), "axes": (0, 2)}),
              Example(("f64[n]",), {"shape": (symbol("n"), symbol("n")), "axes": (1,)}),
              Example(("f64[n]",), {"shape": (symbol("n"),), "axes": (0,)}),
              Example(("i32[2]",), {"shape": (0, 2), "axes": (1,)})),
)


def repeated(x: Ref | None) -> tuple[Ref, Mapping[str, Any]] | None:
    """The few elements that x repeats, and the attributes of the broadcast that does it; None where it is none."""
    node = None if x is None else x.builder.producer.get(x.value)
    if x is None or node is None or node.op is not broadcast or node.inputs[0].type.rank == x.rank:
        return None
    return Ref(x.builder, node.inputs[0]), node.attrs


def spread(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...]) -> list[Ref]:
    """Give every operand the mapped axis in front: those without one repeat."""
    return [a if m else broadcast(a, shape=(size, *a.shape), axes=tuple(range(1, len(a.shape) + 1)))
            for a, m in zip(args, mapped, strict=True)]


def restore(y: Ref, like: ArrayType | Ref, axes: tuple[int, ...]) -> Ref:
    """Broadcast a reduction's result back to the operand's shape."""
    return broadcast(y, shape=like.shape, axes=tuple(a for a in range(len(like.shape)) if a not in axes))


def fold(context: LoopContext, index: tuple[Expr, ...], axes: tuple[int, ...], monoid: str, accumulator: np.dtype) -> Expr:
    """The monoid over the axes that vanish, made in `accumulator` and rounded once; the element itself where none does."""
    x = context.types[0]
    over = tuple((context.fresh(), x.shape[a]) for a in sorted(axes))
    at: list[Expr] = list(index)
    for (k, _), a in zip(over, sorted(axes), strict=True):
        at.insert(a, k)
    element = context.load(0, tuple(at))
    if not over:
        return element
    return converted(Reduce(monoid, over, converted(element, accumulator), accumulator), x.dtype)


def converted(x: Expr, dtype: np.dtype) -> Expr:
    """x at a dtype."""
    return x if x.dtype == dtype else Apply("convert", (x,), dtype)


def _sum_loop(context: LoopContext, index: tuple[Expr, ...], axes: tuple[int, ...]) -> Expr:
    dtype = context.result.dtype
    return fold(context, index, axes, "any" if dtype == BOOL else "sum", dtype)


def _sum_numpy(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.sum(x, axis=axes, dtype=F32 if x.dtype in (F16, BF16) else x.dtype)).astype(x.dtype)


reduce_sum: Op = Op(
    name="reduce_sum",
    doc="Sum over axes, at the operand's dtype: integers wrap, f16 and bf16 accumulate in f32 and round once, bool is any.",
    shape=reduced_shape,
    dtype=operand_dtype,
    numpy=_sum_numpy,
    batch=lambda size, args, mapped, axes: reduce_sum(args[0], axes=tuple(a + 1 for a in axes)),
    loop=_sum_loop,
    linear=(0,), jointly=True, transpose={0: lambda ct, x, axes: restore(ct, x, axes)},
    examples=(Example(("f64[n, 3, m]",), {"axes": (0, 2)}), Example(("f64[n]",), {"axes": (0,)}),
              Example(("f64[n, n]",), {"axes": (1,)}), Example(("f64[2, 0, 1]",), {"axes": (1,)}),
              Example(("f64[n, 1]",), {"axes": ()}), Example(("f64[2, m, 3]",), {"axes": (2, 0)}),
              Example(("f32[n, m]",), {"axes": (0,)}), Example(("f16[n, 3]",), {"axes": (0,)}),
              Example(("bf16[n, 3]",), {"axes": (1,)}), Example(("i8[n]",), {"axes": (0,)}),
              Example(("c128[2, n]",), {"axes": (1,)})),
)
