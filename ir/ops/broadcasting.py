"""Broadcasting and its transpose, summing: each is written with the other."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import ShapeError
from loopwright.ir.loops import Expr, LoopContext, Reduce
from loopwright.ir.op import Example, Op
from loopwright.ir.types import ArrayType


def _reduced_shape(x: ArrayType, axes: tuple[int, ...]) -> Shape:
    if len(set(axes)) != len(axes) or any(not 0 <= a < x.rank for a in axes):
        raise ShapeError(f"axes {axes} must be distinct and below rank {x.rank} of {x}")
    return tuple(n for a, n in enumerate(x.shape) if a not in axes)


def _reduce_loop(monoid: str) -> Callable[..., Expr]:
    def loop(context: LoopContext, index: tuple[Expr, ...], axes: tuple[int, ...]) -> Expr:
        shape = context.types[0].shape
        over = tuple((context.fresh(), shape[a]) for a in sorted(axes))
        at: list[Expr] = list(index)
        for (k, _), a in zip(over, sorted(axes), strict=True):
            at.insert(a, k)
        return Reduce(monoid, over, context.load(0, tuple(at)), context.result.dtype)
    return loop


def reduction(name: str, monoid: str, numpy: Callable[..., Any], *, doc: str, **rules: Any) -> Op:
    """An op that folds axes away by a monoid; its dtype is the operand's."""
    def batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], axes: tuple[int, ...]) -> Ref:
        return op(args[0], axes=tuple(a + 1 for a in axes))
    op = Op(name=name, doc=doc, shape=_reduced_shape, dtype=lambda x, axes: x.dtype, numpy=numpy, batch=batch,
            loop=_reduce_loop(monoid), **rules)
    return op


def operand_dtype(x: ArrayType, *rest: ArrayType, **attrs: Any) -> np.dtype:
    """The dtype of operand 0."""
    return x.dtype


# ---- broadcast ----------------------------------------------------------------------------------
def _broadcast_shape(x: ArrayType, shape: Shape, axes: tuple[int, ...]) -> Shape:
    if len(axes) != x.rank or any(b <= a for a, b in zip(axes, axes[1:], strict=False)) or any(a >= len(shape) for a in axes):
        raise ShapeError(f"broadcast: axes {axes} must be {x.rank} rising axes below {len(shape)}")
    for k, a in enumerate(axes):
        if x.shape[k] != shape[a]:
            raise ShapeError(f"broadcast: operand axis {k} has size {x.shape[k]}, result axis {a} has size {shape[a]}")
    return shape


def _broadcast_numpy(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    kept = [x.shape[axes.index(a)] if a in axes else 1 for a in range(len(shape))]
    return np.broadcast_to(np.reshape(x, kept), shape)


def _broadcast_transpose(ct: Ref, x: ArrayType, shape: Shape, axes: tuple[int, ...]) -> Ref:
    return reduce_sum(ct, axes=tuple(a for a in range(len(shape)) if a not in axes)) if len(axes) < len(shape) else ct


broadcast = Op(
    name="broadcast",
    doc="Operand axis k becomes result axis axes[k]; the other result axes repeat.",
    shape=_broadcast_shape,
    dtype=operand_dtype,
    numpy=_broadcast_numpy,
    batch=lambda size, args, mapped, shape, axes: broadcast(args[0], shape=(size, *shape), axes=(0, *(a + 1 for a in axes))),
    loop=lambda context, index, shape, axes: context.load(0, tuple(index[a] for a in axes)),
    linear=(0,), jointly=True, transpose={0: _broadcast_transpose},
    examples=(Example(("f64[3]",), {"shape": (2, 3, 4), "axes": (1,)}), Example(("f64[]",), {"shape": (3,), "axes": ()})),
)


def spread(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...]) -> list[Ref]:
    """Give every operand the mapped axis in front: those without one repeat."""
    return [a if m else broadcast(a, shape=(size, *a.shape), axes=tuple(range(1, len(a.shape) + 1)))
            for a, m in zip(args, mapped, strict=True)]


def restore(y: Ref, like: ArrayType, axes: tuple[int, ...]) -> Ref:
    """Broadcast a reduction's result back to the operand's shape."""
    return broadcast(y, shape=like.shape, axes=tuple(a for a in range(like.rank) if a not in axes))


reduce_sum = reduction(
    "reduce_sum", "sum", lambda x, axes: np.sum(x, axis=axes, dtype=x.dtype), doc="Sum over axes, at the operand's dtype.",
    linear=(0,), jointly=True, transpose={0: lambda ct, x, axes: restore(ct, x, axes)},
    examples=(Example(("f64[n, 3, m]",), {"axes": (0, 2)}), Example(("f64[n]",), {"axes": (0,)})),
)
