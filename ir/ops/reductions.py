"""Reductions over axes other than the sum, and running folds.

Guarantees: extremes propagate NaN; f16 and bf16 accumulate in f32 and round once; the derivatives of products are right
with zeros among the factors; ties share a cotangent evenly, of an extreme that is NaN each has NaN; every derivative can be
differentiated again.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.loops import Expr, LoopContext, Prefix, Reduce
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.arithmetic import div, mul
from loopwright.ir.ops.broadcasting import broadcast, converted, fold, operand_dtype, reduce_sum, reduced_shape, restore
from loopwright.ir.ops.comparison import eq, lt
from loopwright.ir.ops.construct import full_like, iota, zeros_like
from loopwright.ir.ops.elementwise import between
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import move_axis, pad, permute, reshape, reverse, section
from loopwright.ir.types import BF16, BOOL, COMPLEX, F16, F32, I64, ArrayType


def accumulator(dtype: np.dtype) -> np.dtype:
    """Where a fold of this dtype is made before it is rounded once."""
    return F32 if dtype in (F16, BF16) else dtype


def widened(x: np.ndarray) -> np.ndarray:
    """x at a dtype whose order NumPy knows well: that of bfloat16 has no place for NaN."""
    return x.astype(F32) if x.dtype == BF16 else x


def ordered_dtype(name: str) -> Callable[..., np.dtype]:
    """The operand's dtype, which must not be complex."""
    def rule(x: ArrayType, **attrs: Any) -> np.dtype:
        if x.dtype in COMPLEX:
            raise DTypeError(f"{name} is not defined for {x}: complex numbers have no order. "
                             f"Take np.abs, np.real or np.imag of them first.")
        return x.dtype
    return rule


def _reduction(name: str, loop: Callable[..., Expr], **rules: Any) -> Op:
    """An op that folds axes away; its dtype rule says which operands it takes."""
    def batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], axes: tuple[int, ...]) -> Ref:
        return op(args[0], axes=tuple(a + 1 for a in axes))
    op = Op(name=name, loop=loop, batch=batch, **rules)
    return op


# ---- extremes -----------------------------------------------------------------------------------
def _extreme(name: str, monoid: str, numpy: Callable[..., Any], noun: str, doc: str) -> Op:
    def shape(x: ArrayType, axes: tuple[int, ...]) -> Shape:
        kept = reduced_shape(x, axes)
        if product(x.shape[a] for a in axes) == 0:
            raise ShapeError(f"zero-size array to reduction operation {noun} which has no identity")
        return kept

    def loop(context: LoopContext, index: tuple[Expr, ...], axes: tuple[int, ...]) -> Expr:
        dtype = context.result.dtype
        return fold(context, index, axes, monoid if dtype != BOOL else "any" if monoid == "max" else "all", dtype)

    def jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, axes: tuple[int, ...]) -> Ref:
        whole = restore(out, primals[0], axes)
        is_other = lt(primals[0], whole) if monoid == "max" else lt(whole, primals[0])  # nothing is beside NaN: all share NaN
        shares = select(is_other, zeros_like(whole), full_like(whole, 1))
        count = select(eq(out, out), reduce_sum(shares, axes=axes), full_like(out, np.nan))
        return div(reduce_sum(select(is_other, zeros_like(tangents[0]), tangents[0]), axes=axes), count)

    return _reduction(
        name, loop, doc=doc, shape=shape, dtype=ordered_dtype(name), jvp=jvp,
        numpy=lambda x, axes: numpy(widened(x), axis=axes).astype(x.dtype),
        examples=(Example(("f64[n, 3]",), {"axes": (1,)}), Example(("f64[2, n, 3]",), {"axes": (2, 0)}),
                  Example(("f64[5]",), {"axes": (0,)}), Example(("f64[2, 1]",), {"axes": (1,)}),
                  Example(("f64[n, n]",), {"axes": ()}), Example(("f64[0, 3]",), {"axes": (1,)}),
                  *(Example((f"{d}[n, 3]",), {"axes": (1,)}) for d in ("f16", "bf16", "f32", "i8", "u64", "bool"))))


reduce_max = _extreme("reduce_max", "max", np.max, "maximum", "The greatest over axes, NaN if any is; ties share a cotangent.")
reduce_min = _extreme("reduce_min", "min", np.min, "minimum", "The least over axes, NaN if any is; ties share a cotangent.")


# ---- truth --------------------------------------------------------------------------------------
def _truth(name: str, monoid: str, numpy: Callable[..., Any], doc: str) -> Op:
    def dtype(x: ArrayType, axes: tuple[int, ...]) -> np.dtype:
        if x.dtype != BOOL:
            raise DTypeError(f"{name}: the operand must be bool, got {x}")
        return BOOL

    def loop(context: LoopContext, index: tuple[Expr, ...], axes: tuple[int, ...]) -> Expr:
        return fold(context, index, axes, monoid, BOOL)

    return _reduction(
        name, loop, doc=doc, shape=reduced_shape, dtype=dtype, numpy=lambda x, axes: numpy(x, axis=axes),
        examples=(Example(("bool[n, 3, m]",), {"axes": (2, 0)}), Example(("bool[n]",), {"axes": (0,)}),
                  Example(("bool[n, n]",), {"axes": ()}), Example(("bool[2, 0]",), {"axes": (1,)})))


reduce_any = _truth("reduce_any", "any", np.any, doc="Whether one holds; false of none.")
reduce_all = _truth("reduce_all", "all", np.all, doc="Whether every one holds; true of none.")


# ---- positions of extremes ----------------------------------------------------------------------
def _position(name: str, numpy: Callable[..., Any], doc: str) -> Op:
    check = ordered_dtype(name)

    def shape(x: ArrayType, axis: int) -> Shape:
        kept = reduced_shape(x, (axis,))
        if x.shape[axis] == 0:
            raise ShapeError(f"attempt to get {name} of an empty sequence")
        return kept

    def dtype(x: ArrayType, axis: int) -> np.dtype:
        check(x)
        return I64

    def loop(context: LoopContext, index: tuple[Expr, ...], axis: int) -> Expr:
        k = context.fresh()
        return Reduce(name, ((k, context.types[0].shape[axis]),), context.load(0, (*index[:axis], k, *index[axis:])), I64)

    op = Op(
        name=name, doc=doc, shape=shape, dtype=dtype, loop=loop,
        numpy=lambda x, axis: numpy(widened(x), axis=axis).astype(I64),
        batch=lambda size, args, mapped, axis: op(args[0], axis=axis + 1),
        examples=(Example(("f64[n, 3]",), {"axis": 1}), Example(("f64[4, n]",), {"axis": 0}), Example(("f64[1]",), {"axis": 0}),
                  *(Example((f"{d}[n, 5]",), {"axis": 1}, {0: between(0, 2)}) for d in ("i32", "u8", "bool")),
                  Example(("bf16[n, 3]",), {"axis": 1})))
    return op


argmax = _position("argmax", np.argmax, doc="The first position of the greatest, or of the first NaN, along an axis: i64.")
argmin = _position("argmin", np.argmin, doc="The first position of the least, or of the first NaN, along an axis: i64.")


# ---- running folds ------------------------------------------------------------------------------
def _same_shape(x: ArrayType, axis: int) -> Shape:
    if not 0 <= axis < x.rank:
        raise ShapeError(f"axis {axis} must be below the rank of {x}")
    return x.shape


def _number_dtype(x: ArrayType, axis: int) -> np.dtype:
    if x.dtype == BOOL:
        raise DTypeError(f"running sums and products of {x} have no meaning at bool: convert it to integers first")
    return x.dtype


def _running(name: str, monoid: str, numpy: Callable[..., Any], doc: str, **rules: Any) -> Op:
    def meaning(x: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(numpy(x, axis=axis, dtype=accumulator(x.dtype))).astype(x.dtype, copy=False)

    def loop(context: LoopContext, index: tuple[Expr, ...], axis: int) -> Expr:
        return _prefix(context, index, axis, monoid, accumulator(context.types[0].dtype))
    return _run(name, "c128", doc=doc, dtype=_number_dtype, numpy=meaning, loop=loop, **rules)


def _prefix(context: LoopContext, index: tuple[Expr, ...], axis: int, monoid: str, inside: np.dtype) -> Expr:
    """The fold up to a position of an axis, made at the dtype `inside`."""
    k, x = context.fresh(), context.types[0]
    body = converted(context.load(0, (*index[:axis], k, *index[axis + 1:])), inside)
    return converted(Prefix(monoid, k, x.shape[axis], index[axis], body, inside), x.dtype)


def _run(name: str, also: str, **rules: Any) -> Op:
    """An op that folds along an axis and keeps every step. `also`: a dtype that it takes, beside numbers."""
    op = Op(
        name=name, shape=_same_shape, batch=lambda size, args, mapped, axis: op(args[0], axis=axis + 1),
        examples=(Example(("f64[n]",), {"axis": 0}), Example(("f64[n, 3, m]",), {"axis": 1}),
                  Example(("f64[n, n]",), {"axis": 0}), Example(("f64[2, 0]",), {"axis": 1}),
                  Example(("f64[n, 1]",), {"axis": 1}), Example((f"{also}[3]",), {"axis": 0}),
                  *(Example((f"{d}[n]",), {"axis": 0}) for d in ("f16", "bf16", "f32", "i8", "u32"))),
        **rules)
    return op


def _cumsum_transpose(ct: Ref, x: ArrayType, axis: int) -> Ref:
    return reverse(cumsum(reverse(ct, axis), axis=axis), axis)


def _cumprod_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, axis: int) -> Ref:
    """d y_i = sum over j <= i of dx_j * P[j, i], with P[j, i] the product of x_k over k <= i but j: no division, so zeros
    do no harm. P costs n^2 numbers."""
    x = move_axis(primals[0], axis, len(primals[0].shape) - 1)
    *rest, n = x.shape
    last = len(rest)
    square = (*rest, n, n)
    row, column = (iota(into=x.builder, shape=square, axis=last + k, dtype=I64) for k in (0, 1))
    factors = broadcast(x, shape=square, axes=(*range(last), last + 1))
    products = cumprod(select(eq(row, column), full_like(factors, 1), factors), axis=last + 1)
    weights = select(lt(column, row), zeros_like(products), products)
    t = broadcast(move_axis(tangents[0], axis, last), shape=square, axes=(*range(last), last))
    return move_axis(reduce_sum(mul(t, weights), axes=(last,)), last, axis)


cumsum = _running("cumsum", "sum", np.cumsum, doc="Running sums along an axis, each position included.",
                  linear=(0,), jointly=True, transpose={0: _cumsum_transpose})
cumprod = _running("cumprod", "prod", np.cumprod, doc="Running products along an axis, each position included.",
                   jvp=_cumprod_jvp)


def _running_extreme(name: str, monoid: str, numpy: Callable[..., Any], doc: str) -> Op:
    def loop(context: LoopContext, index: tuple[Expr, ...], axis: int) -> Expr:
        dtype = context.types[0].dtype
        return _prefix(context, index, axis, monoid if dtype != BOOL else "any" if monoid == "max" else "all", dtype)

    def jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, axis: int) -> Ref:
        """A tangent goes where its primal goes: of equal elements the last one's, and a NaN's from there on."""
        x, last = primals[0], len(out.shape) - 1
        place = iota(into=x.builder, shape=x.shape, axis=axis, dtype=I64)
        is_number = eq(x, x)
        begins = select(is_number, eq(x, out), full_like(is_number, True))
        at = move_axis(cummax(select(begins, place, zeros_like(place)), axis=axis), axis, last)
        moved = gather(move_axis(tangents[0], axis, last), at, axes=(last,), batch=last, mode="promise_in_bounds")
        return move_axis(moved, last, axis)
    return _run(name, "bool", doc=doc, dtype=ordered_dtype(name), loop=loop, jvp=jvp,
                numpy=lambda x, axis: numpy(widened(x), axis=axis).astype(x.dtype, copy=False))


cummax = _running_extreme("cummax", "max", np.maximum.accumulate, "The greatest so far along an axis, NaN from the first on.")
cummin = _running_extreme("cummin", "min", np.minimum.accumulate, "The least so far along an axis, NaN from the first on.")


# ---- product ------------------------------------------------------------------------------------
def _products_before(x: Ref, axis: int) -> Ref:
    """The product of everything before each position; 1 at the first. Defined for an empty axis too."""
    n, rank = x.shape[axis], len(x.shape)
    longer = pad(x, shape=tuple(m + 1 if a == axis else m for a, m in enumerate(x.shape)),
                 start=tuple(int(a == axis) for a in range(rank)), step=(1,) * rank, value=1)
    return section(cumprod(longer, axis=axis), axis, 0, n)


def _merged(x: Ref, axes: tuple[int, ...]) -> Ref:
    """x with axes made into one, the last."""
    rest = tuple(a for a in range(len(x.shape)) if a not in axes)
    moved = permute(x, (*rest, *axes))
    return moved if len(axes) == 1 else reshape(moved, shape=(*(x.shape[a] for a in rest), product(x.shape[a] for a in axes)))


def _prod_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, axes: tuple[int, ...]) -> Ref:
    """Each factor's weight is the product of all before it and all after it, so zeros do no harm."""
    x, t = _merged(primals[0], axes), _merged(tangents[0], axes)
    last = len(x.shape) - 1
    weights = mul(_products_before(x, last), reverse(_products_before(reverse(x, last), last), last))
    return reduce_sum(mul(t, weights), axes=(last,))


def _prod_loop(context: LoopContext, index: tuple[Expr, ...], axes: tuple[int, ...]) -> Expr:
    dtype = context.result.dtype
    return fold(context, index, axes, "all" if dtype == BOOL else "prod", accumulator(dtype))


reduce_prod = _reduction(
    "reduce_prod", _prod_loop,
    doc="Product over axes, at the operand's dtype: integers wrap, f16 and bf16 multiply in f32 and round once.",
    shape=reduced_shape, dtype=operand_dtype, jvp=_prod_jvp,
    numpy=lambda x, axes: np.prod(x, axis=axes, dtype=accumulator(x.dtype)).astype(x.dtype),
    examples=(Example(("f64[n, 3, m]",), {"axes": (2, 0)}), Example(("f64[n]",), {"axes": (0,)}),
              Example(("f64[n, n]",), {"axes": (1,)}), Example(("f64[2, 0, 1]",), {"axes": (1,)}),
              Example(("f64[n, 1]",), {"axes": ()}), Example(("f64[4]",), {"axes": (0,)}, {0: between(0, 1)}),
              *(Example((f"{d}[n, 3]",), {"axes": (1,)}) for d in ("f16", "bf16", "f32", "i8", "u32", "c128"))),
)

FOLDS = (reduce_sum, reduce_max, reduce_min, reduce_any, reduce_all)  # each may be made over some axes first
