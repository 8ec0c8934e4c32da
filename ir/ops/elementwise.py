"""Elementwise ops: operands of one shape, and (but for select and convert) of one dtype. Broadcasting is the tracer's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.loops import Apply, Expr, LoopContext
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.construct import full_like
from loopwright.ir.types import FLOATS, ArrayType


def same_shape(*types: ArrayType, **attrs: Any) -> Shape:
    """The one shape of all operands."""
    for k, t in enumerate(types):
        if t.shape != types[0].shape:
            raise ShapeError(f"operand {k} has shape {t}, operand 0 has {types[0]}: they must be equal")
    return types[0].shape


def same_dtype(*types: ArrayType, **attrs: Any) -> np.dtype:
    """The one dtype of all operands."""
    for k, t in enumerate(types):
        if t.dtype != types[0].dtype:
            raise DTypeError(f"operand {k} has dtype {t.dtype}, operand 0 has {types[0].dtype}: they must be equal")
    return types[0].dtype


def elementwise_loop(name: str) -> Callable[..., Expr]:
    """out[i] = name(operand 0 [i], operand 1 [i], ...)"""
    def loop(context: LoopContext, index: tuple[Expr, ...], **attrs: Any) -> Expr:
        return Apply(name, tuple(context.load(k, index) for k in range(len(context.types))), context.result.dtype)
    return loop


def elementwise(name: str, numpy: Callable[..., Any], *, doc: str, dtype: Callable[..., np.dtype] = same_dtype, **rules: Any) -> Op:
    """An op that works element by element: its shape, batch and loop rules follow from that."""
    def batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], **attrs: Any) -> Ref:
        return op(*spread(size, args, mapped), **attrs)
    op = Op(name=name, doc=doc, shape=same_shape, dtype=dtype, numpy=numpy, batch=batch, loop=elementwise_loop(name), **rules)
    return op


def float_dtype(*types: ArrayType, **attrs: Any) -> np.dtype:
    """The one floating dtype of all operands."""
    dtype = same_dtype(*types)
    if dtype not in FLOATS:
        raise DTypeError(f"needs floating operands, got {types[0]}")
    return dtype


add = elementwise(
    "add", np.add, doc="x + y; integers wrap.",
    linear=(0, 1), jointly=True,
    transpose={0: lambda ct, x, y: ct, 1: lambda ct, x, y: ct},
    examples=(Example(("f64[n, 3]", "f64[n, 3]")), Example(("f64[]", "f64[]")), Example(("i32[n]", "i32[n]"))),
)
sub = elementwise(
    "sub", np.subtract, doc="x - y; integers wrap.",
    linear=(0, 1), jointly=True,
    transpose={0: lambda ct, x, y: ct, 1: lambda ct, x, y: neg(ct)},
    examples=(Example(("f64[n, 3]", "f64[n, 3]")),),
)
neg = elementwise(
    "neg", np.negative, doc="-x; integers wrap.",
    linear=(0,), jointly=True, transpose={0: lambda ct, x: neg(ct)},
    examples=(Example(("f64[n, 3]",)),),
)
mul = elementwise(
    "mul", np.multiply, doc="x * y; integers wrap.",
    linear=(0, 1),
    transpose={0: lambda ct, x, y: mul(ct, y), 1: lambda ct, x, y: mul(ct, x)},
    examples=(Example(("f64[n, 3]", "f64[n, 3]")),),
)
tanh = elementwise(
    "tanh", np.tanh, doc="Hyperbolic tangent.", dtype=float_dtype,
    # d tanh(x) = (1 - tanh(x)^2) dx reuses the result, so x need not be kept.
    jvp=lambda primals, tangents, out: mul(tangents[0], sub(full_like(out, 1), mul(out, out))),
    examples=(Example(("f64[n, 3]",)), Example(("f64[]",))),
)
