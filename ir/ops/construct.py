"""Arrays made from nothing: constants, positions, and sizes as numbers. `into=` says where they are emitted."""
from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext, integer
from loopwright.ir.op import Example, Op
from loopwright.ir.types import F32, I64


def _unmapped(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], **attrs: Any) -> Ref:
    raise AssertionError("an op without operands is never batched")


def _full_loop(context: LoopContext, index: tuple[Expr, ...], value: Any, shape: Shape, dtype: np.dtype) -> Expr:
    return Literal(value, dtype)


full = Op(
    name="full",
    doc="An array of one value.",
    shape=lambda value, shape, dtype: shape,
    dtype=lambda value, shape, dtype: dtype,
    numpy=lambda value, shape, dtype: np.full(shape, value, dtype),
    batch=_unmapped,
    loop=_full_loop,
    examples=(Example((), {"value": 1.5, "shape": (2, 3), "dtype": F32}),),
)


def _iota_loop(context: LoopContext, index: tuple[Expr, ...], shape: Shape, axis: int, dtype: np.dtype) -> Expr:
    return index[axis] if dtype == I64 else Apply("convert", (index[axis],), dtype)


def _iota_numpy(shape: tuple[int, ...], axis: int, dtype: np.dtype) -> np.ndarray:
    row = np.arange(shape[axis]).astype(dtype).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.broadcast_to(row, shape)


iota = Op(
    name="iota",
    doc="Each element is its own position along `axis`.",
    shape=lambda shape, axis, dtype: shape,
    dtype=lambda shape, axis, dtype: dtype,
    numpy=_iota_numpy,
    batch=_unmapped,
    loop=_iota_loop,
    examples=(Example((), {"shape": (2, 3), "axis": 1, "dtype": I64}),),
)

size_value = Op(
    name="size_value",
    doc="A size as a number: i64[].",
    shape=lambda size: (),
    dtype=lambda size: I64,
    numpy=lambda size: np.array(size, I64),
    batch=_unmapped,
    loop=lambda context, index, size: integer(size),
    examples=(Example((), {"size": 3}),),
)


def full_like(x: Ref, value: Any) -> Ref:
    """An array of one value, of x's shape and dtype, where x lives."""
    return full(into=x.builder, value=scalar(value, x.dtype), shape=x.shape, dtype=x.dtype)


def zeros_like(x: Ref) -> Ref:
    """Zeros of x's shape and dtype, where x lives."""
    return full_like(x, 0)


def scalar(value: Any, dtype: np.dtype) -> Any:
    """The Python number that a constant of this dtype holds exactly."""
    is_plain = type(value) is int or (type(value) is float and value != 0)  # zeros of both signs are equal
    return _known_scalar(value, dtype) if is_plain else _scalar(value, dtype)


def _scalar(value: Any, dtype: np.dtype) -> Any:
    with np.errstate(all="ignore"):
        held = np.asarray(value).astype(dtype)
    kind = {"b": bool, "i": int, "u": int, "c": complex}.get(dtype.kind, float)
    return kind(held[()])


_known_scalar = lru_cache(maxsize=1 << 12, typed=True)(_scalar)
