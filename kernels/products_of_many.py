"""The ops of products of many matrices, of which `lower/products_of_many.py` makes calls."""
from __future__ import annotations

import numpy as np

from loopwright.ir.dims import Shape
from loopwright.ir.loops import Apply, Expr, LoopContext, Reduce
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.types import ArrayType


# ---- one by many --------------------------------------------------------------------------------
def _one_shape(left: ArrayType, right: ArrayType, transposed: bool) -> Shape:
    return (*right.shape[:-2], left.shape[int(transposed)], right.shape[-1])


def _one_numpy(left: np.ndarray, right: np.ndarray, transposed: bool) -> np.ndarray:
    made: np.ndarray = np.matmul(left.T if transposed else left, right)
    return made


def _one_loop(context: LoopContext, index: tuple[Expr, ...], transposed: bool) -> Expr:
    *batch, i, j = index
    k, dtype = context.fresh(), context.result.dtype
    factors = context.load(0, (k, i) if transposed else (i, k)), context.load(1, (*batch, k, j))
    return Reduce("sum", ((k, context.types[1].shape[-2]),), Apply("mul", factors, dtype), dtype, fused=True)


one_by_many = Op(
    name="one_by_many",
    doc="result[b.., i, j] is the sum over k of left[i, k] * right[b.., k, j]; left is stored [k, i] if it is `transposed`.",
    shape=_one_shape, dtype=operand_dtype, numpy=_one_numpy, loop=_one_loop,
)


# ---- sums of products ---------------------------------------------------------------------------
def _sum_shape(left: ArrayType, right: ArrayType, transposed: tuple[bool, bool]) -> Shape:
    return left.shape[-1 if transposed[0] else -2], right.shape[-2 if transposed[1] else -1]


def _sum_numpy(left: np.ndarray, right: np.ndarray, transposed: tuple[bool, bool]) -> np.ndarray:
    sides = [x.swapaxes(-1, -2) if turned else x for x, turned in zip((left, right), transposed, strict=True)]
    made: np.ndarray = np.matmul(*sides).sum(tuple(range(left.ndim - 2)))
    return made


def _sum_loop(context: LoopContext, index: tuple[Expr, ...], transposed: tuple[bool, bool]) -> Expr:
    (i, j), k, dtype, shape = index, context.fresh(), context.result.dtype, context.types[0].shape
    batch = [context.fresh() for _ in shape[:-2]]
    left = context.load(0, (*batch, *((k, i) if transposed[0] else (i, k))))
    right = context.load(1, (*batch, *((j, k) if transposed[1] else (k, j))))
    over = (*zip(batch, shape[:-2], strict=True), (k, shape[-2 if transposed[0] else -1]))
    return Reduce("sum", over, Apply("mul", (left, right), dtype), dtype, fused=True)


sum_of_products = Op(
    name="sum_of_products",
    doc="result[i, j] is the sum over b.. and k of left[b.., i, k] * right[b.., k, j]; `transposed` sides are stored "
        "[b.., k, i] and [b.., j, k].",
    shape=_sum_shape, dtype=operand_dtype, numpy=_sum_numpy, loop=_sum_loop,
)
