"""Products that sum over the rows which a kernel goes through: each row adds what it has to all of their elements.

Guarantees: an element's sum is made in the order of the rows, so that its bits do not depend on blocks or threads around.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Shape
from loopwright.ir.graph import Node
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, LoopContext, Reduce
from loopwright.ir.nest import Allocate, Buffer, For, Statement, Store
from loopwright.ir.op import Op
from loopwright.ir.types import ArrayType
from loopwright.lower.composition import Composer, Position


def _shape(left: ArrayType, right: ArrayType) -> Shape:
    return (*left.shape[:-2], left.shape[-1], right.shape[-1])


def _loop(context: LoopContext, index: Position) -> Expr:
    *batch, i, j = index
    k = context.fresh()
    factors = context.load(0, (*batch, k, i)), context.load(1, (*batch, k, j))
    dtype = context.result.dtype
    return Reduce("sum", ((k, context.types[0].shape[-2]),), Apply("mul", factors, dtype), dtype)


def _numpy(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.matmul(np.swapaxes(left, -1, -2), right)
    return found


row_products = Op(
    name="row_products",
    doc="result[b.., i, j] is the sum over rows k of left[b.., k, i] * right[b.., k, j].",
    shape=_shape,
    dtype=lambda left, right: left.dtype,
    numpy=_numpy,
    loop=_loop,
)


def operand_positions(index: Position) -> tuple[Position, Position]:
    """Where the rows of a kernel with these loops read both sides: at any column."""
    *row, _ = index
    return (*row, Index("left")), (*row, Index("right"))


@dataclass(frozen=True)
class RowSums:
    """The statements that make such a product: before the loop over rows, in it, and behind it."""

    before: tuple[Statement, ...]
    inside: tuple[Statement, ...]
    behind: tuple[Statement, ...]
    columns: Index  # of the loops before and behind


def row_sums(node: Node, stage: int, row: Position, output: str, composer: Composer) -> RowSums:
    """Of the product that is this stage. `row`: the indices of a row."""
    *batch, _ = row
    v, (left, right) = node.outputs[0], node.inputs
    shape, dtype = v.type.shape[-2:], v.type.dtype
    sums = Buffer(f"t{stage}", shape, dtype, "local")
    at, whole = ((Index(f"{letter}{stage}_0"), Index(f"{letter}{stage}_1")) for letter in "uw")

    def loops(index: tuple[Index, Index], body: Statement) -> Statement:
        return For(index[0], shape[0], (For(index[1], shape[1], (body,)),))
    product = Apply("mul", (composer.read(left, (*row, at[0])), composer.read(right, (*row, at[1]))), dtype)
    zero: Expr = Literal(0.0, dtype)
    return RowSums((Allocate(sums), loops(whole, Store(sums.name, whole, zero))),
                   (loops(at, Store(sums.name, at, product, "add")),),
                   (loops(whole, Store(output, (*batch, *whole), Load(sums.name, whole, dtype))),), whole[1])
