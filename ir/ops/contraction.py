"""Contractions: products summed over paired axes.

Guarantees: f16 and bf16 accumulate in f32 and round once; small integers accumulate in i32, so that a wider result
dtype shows the sums and the operands' own wraps; on bool a product is `and` and a sum is `or`, as in np.matmul.
"""
from __future__ import annotations

import math

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.loops import Apply, Expr, LoopContext, Reduce
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import converted
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import permute
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, U8, U16, ArrayType

Pairs = tuple[tuple[int, int], ...]


# ---- which axis goes where ----------------------------------------------------------------------
def _free(rank: int, side: int, contract: Pairs, batch: Pairs) -> tuple[int, ...]:
    """The axes of one side that no pair takes, in order."""
    taken = {pair[side] for pair in (*batch, *contract)}
    return tuple([a for a in range(rank) if a not in taken])


def _flipped(pairs: Pairs) -> Pairs:
    return tuple((right, left) for left, right in pairs)


def _shifted(pairs: Pairs, left: int, right: int) -> Pairs:
    return tuple((a + left, b + right) for a, b in pairs)


def _dot_shape(lhs: ArrayType, rhs: ArrayType, contract: Pairs, batch: Pairs, dtype: np.dtype | None = None) -> Shape:
    pairs = (*batch, *contract)
    for side, x in enumerate((lhs, rhs)):
        axes, rank = [pair[side] for pair in pairs], len(x.shape)
        if len(set(axes)) != len(axes) or [a for a in axes if not 0 <= a < rank]:
            raise ShapeError(f"dot_general: axes {axes} of operand {side} must be distinct and below the rank of {x}")
    for left, right in pairs:
        if lhs.shape[left] != rhs.shape[right]:
            raise ShapeError(f"dot_general: axis {left} of {lhs} pairs with axis {right} of {rhs}: their sizes must be equal, "
                             f"got {lhs.shape[left]} and {rhs.shape[right]}")
    return (*[lhs.shape[left] for left, _ in batch], *[lhs.shape[a] for a in _free(lhs.rank, 0, contract, batch)],
            *[rhs.shape[a] for a in _free(rhs.rank, 1, contract, batch)])


def _dot_dtype(lhs: ArrayType, rhs: ArrayType, contract: Pairs, batch: Pairs, dtype: np.dtype | None = None) -> np.dtype:
    if lhs.dtype != rhs.dtype:
        raise DTypeError(f"dot_general: operands must have one dtype, got {lhs} and {rhs}")
    return lhs.dtype if dtype is None else dtype


def product_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which products are made and summed for a result of `dtype`."""
    if dtype in (F16, BF16):
        return F32
    return I32 if dtype in (I8, I16, U8, U16) else dtype


# ---- meaning ------------------------------------------------------------------------------------
def _dot_numpy(lhs: np.ndarray, rhs: np.ndarray, contract: Pairs, batch: Pairs, dtype: np.dtype | None = None) -> np.ndarray:
    """As one batched matrix product, so that BLAS does the work."""
    result = lhs.dtype if dtype is None else dtype
    accumulator = product_dtype(result)
    left_free, right_free = _free(lhs.ndim, 0, contract, batch), _free(rhs.ndim, 1, contract, batch)
    shape = (*(lhs.shape[a] for a, _ in batch), *(lhs.shape[a] for a in left_free), *(rhs.shape[a] for a in right_free))
    b = (math.prod(lhs.shape[a] for a, _ in batch),) if batch else ()  # NumPy is faster at two axes than at three
    k = math.prod(lhs.shape[a] for a, _ in contract)
    m, n = math.prod(lhs.shape[a] for a in left_free), math.prod(rhs.shape[a] for a in right_free)
    left = np.transpose(lhs, (*(a for a, _ in batch), *left_free, *(a for a, _ in contract))).reshape(*b, m, k)
    right = np.transpose(rhs, (*(a for _, a in batch), *(a for _, a in contract), *right_free)).reshape(*b, k, n)
    product: np.ndarray = np.matmul(left.astype(accumulator, copy=False), right.astype(accumulator, copy=False))
    return product.astype(result, copy=False).reshape(shape)


def _dot_loop(context: LoopContext, index: tuple[Expr, ...], contract: Pairs, batch: Pairs,
              dtype: np.dtype | None = None) -> Expr:
    """result[b.., m.., n..] = sum over k.. of lhs * rhs."""
    lhs, rhs = context.types
    result = context.result.dtype
    accumulator = product_dtype(result)
    inner = tuple((context.fresh(), lhs.shape[left]) for left, _ in contract)
    free = _free(lhs.rank, 0, contract, batch), _free(rhs.rank, 1, contract, batch)
    split = len(batch) + len(free[0])
    outer = index[len(batch):split], index[split:]

    def factor(side: int) -> Expr:
        at: dict[int, Expr] = dict(zip(free[side], outer[side], strict=True))
        at |= {pair[side]: i for pair, i in zip(batch, index, strict=False)}
        at |= {pair[side]: k for pair, (k, _) in zip(contract, inner, strict=True)}
        return converted(context.load(side, tuple(at[a] for a in range(context.types[side].rank))), accumulator)

    product: Expr = Apply("mul", (factor(0), factor(1)), accumulator)
    if inner:
        product = Reduce("any" if accumulator == BOOL else "sum", inner, product, accumulator, fused=True)
    return converted(product, result)


# ---- derivatives and batching -------------------------------------------------------------------
def _dot_transpose_lhs(ct: Ref, lhs: ArrayType | Ref, rhs: Ref, contract: Pairs, batch: Pairs,
                       dtype: np.dtype | None = None) -> Ref:
    """ct has the axes batch, lhs free, rhs free: contract it with rhs over rhs's free ones."""
    first = len(ct.shape) - len(_free(len(rhs.shape), 1, contract, batch))
    return _cotangent(ct, first, lhs, rhs, contract, batch)


def _dot_transpose_rhs(ct: Ref, lhs: Ref, rhs: ArrayType | Ref, contract: Pairs, batch: Pairs,
                       dtype: np.dtype | None = None) -> Ref:
    """The same with lhs, over lhs's free axes."""
    return _cotangent(ct, len(batch), rhs, lhs, _flipped(contract), _flipped(batch))


def _cotangent(ct: Ref, first: int, to: ArrayType | Ref, other: Ref, contract: Pairs, batch: Pairs) -> Ref:
    """The cotangent of one operand from the result's and the other operand, whose free axes are ct's from `first` on; pairs
    are (axis of `to`, axis of `other`). Of the two orders of factors, the one whose product has `to`'s order of axes."""
    free, other_free = _free(len(to.shape), 0, contract, batch), _free(len(other.shape), 1, contract, batch)
    over = tuple((first + k, a) for k, a in enumerate(other_free))
    along = tuple((k, right) for k, (_, right) in enumerate(batch))
    factor = other if other.dtype == ct.dtype else convert(other, dtype=ct.dtype)
    shared, contracted = [left for left, _ in batch], [left for left, _ in sorted(contract, key=lambda pair: pair[1])]
    in_order, order = list(range(len(to.shape))), [*shared, *free, *contracted]
    if order != in_order == [*shared, *contracted, *free]:
        bar = dot_general(factor, ct, contract=_flipped(over), batch=_flipped(along), dtype=None)
    else:
        bar = permute(dot_general(ct, factor, contract=over, batch=along, dtype=None), tuple(map(order.index, in_order)))
    return bar if bar.dtype == to.dtype else convert(bar, dtype=to.dtype)


def _dot_batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], contract: Pairs, batch: Pairs,
               dtype: np.dtype | None = None) -> Ref:
    """Both mapped: one more batch pair. One mapped: one more free axis, the first of its side, moved to the front."""
    lhs, rhs = args
    left, right = map(int, mapped)
    contract, batch = _shifted(contract, left, right), _shifted(batch, left, right)
    if all(mapped):
        return dot_general(lhs, rhs, contract=contract, batch=((0, 0), *batch), dtype=dtype)
    out = dot_general(lhs, rhs, contract=contract, batch=batch, dtype=dtype)
    new = len(batch) + (0 if left else len(_free(len(lhs.shape), 0, contract, batch)))
    return permute(out, (new, *(a for a in range(len(out.shape)) if a != new)))


dot_general: Op = Op(
    name="dot_general",
    doc="Products of lhs and rhs summed over `contract`, pairs (lhs axis, rhs axis); `batch` pairs run in step. Result axes: "
        "batch, lhs free, rhs free. `dtype` is the result's, wider than the operands', or None for theirs.",
    shape=_dot_shape,
    dtype=_dot_dtype,
    numpy=_dot_numpy,
    batch=_dot_batch,
    loop=_dot_loop,
    linear=(0, 1), transpose={0: _dot_transpose_lhs, 1: _dot_transpose_rhs},
    examples=(
        Example(("f64[m, k]", "f64[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": None}),
        Example(("f64[b, m, k]", "f64[n, k, b]"), {"contract": ((2, 1),), "batch": ((0, 2),), "dtype": None}),
        Example(("f64[k, m, n]", "f64[n, k]"), {"contract": ((0, 1), (2, 0)), "batch": (), "dtype": None}),  # crossed pairs
        Example(("f64[k, m, n]", "f64[n, k, m]"), {"contract": ((2, 0),), "batch": ((1, 2), (0, 1)), "dtype": None}),
        Example(("f64[m]", "f64[n, 1]"), {"contract": (), "batch": (), "dtype": None}),
        Example(("f64[n, n]", "f64[n]"), {"contract": ((1, 0),), "batch": (), "dtype": None}),
        Example(("f64[n]", "f64[n]"), {"contract": ((0, 0),), "batch": (), "dtype": None}),
        Example(("f64[n]", "f64[n]"), {"contract": (), "batch": ((0, 0),), "dtype": None}),
        Example(("f64[]", "f64[]"), {"contract": (), "batch": (), "dtype": None}),
        Example(("f64[2, 0]", "f64[0, n]"), {"contract": ((1, 0),), "batch": (), "dtype": None}),
        Example(("f32[m, k]", "f32[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": F64}),
        Example(("c128[m, k]", "c128[n, k]"), {"contract": ((1, 1),), "batch": (), "dtype": None}),
        Example(("i8[m, k]", "i8[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": None}),
        Example(("i8[m, k]", "i8[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": I32}),
        Example(("f16[m, k]", "f16[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": None}),
        Example(("bf16[m, k]", "bf16[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": F32}),
        Example(("bool[m, k]", "bool[k, n]"), {"contract": ((1, 0),), "batch": (), "dtype": None}),
    ),
)
