"""Running products of complex numbers: a library call, since a product of pairs is no fold of single numbers."""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.errors import ShapeError
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.types import C64, C128, F32, F64, ArrayType


def _shape(x: ArrayType) -> Any:
    if x.rank < 2 or x.shape[-1] != 2:
        raise ShapeError(f"running_product: the last axis of {x} must hold pairs")
    return x.shape


def _numpy(x: np.ndarray) -> np.ndarray:
    pairs = np.ascontiguousarray(x).view(C64 if x.dtype == F32 else C128)
    return np.cumprod(pairs, axis=-2).view(x.dtype)


running_product = Op(
    name="running_product",
    doc="Running products along the last axis but one of complex numbers, which the last axis holds as pairs.",
    shape=_shape, dtype=operand_dtype, numpy=_numpy,
)


def running_product_text(dtype: np.dtype) -> tuple[str, str]:
    """`void @name(ptr in, ptr out, i64 n)`: the running products of one row of n pairs; and its name first."""
    kind, name = {F32: ("float", "lw_products_f32"), F64: ("double", "lw_products_f64")}[dtype]
    size = dtype.itemsize
    return name, f"""define internal void @{name}(ptr %in, ptr %out, i64 %n) nounwind {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %following, %body ]
  %re = phi {kind} [ 1.0, %entry ], [ %re.next, %body ]
  %im = phi {kind} [ 0.0, %entry ], [ %im.next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = mul i64 %i, {2 * size}
  %from = getelementptr i8, ptr %in, i64 %at
  %from.im = getelementptr i8, ptr %from, i64 {size}
  %to = getelementptr i8, ptr %out, i64 %at
  %to.im = getelementptr i8, ptr %to, i64 {size}
  %x = load {kind}, ptr %from
  %y = load {kind}, ptr %from.im
  %first = icmp eq i64 %i, 0
  %rx = fmul {kind} %re, %x
  %iy = fmul {kind} %im, %y
  %ry = fmul {kind} %re, %y
  %ix = fmul {kind} %im, %x
  %product.re = fsub {kind} %rx, %iy
  %product.im = fadd {kind} %ry, %ix
  %re.next = select i1 %first, {kind} %x, {kind} %product.re
  %im.next = select i1 %first, {kind} %y, {kind} %product.im
  store {kind} %re.next, ptr %to
  store {kind} %im.next, ptr %to.im
  %following = add i64 %i, 1
  br label %head
done:
  ret void
}}"""
