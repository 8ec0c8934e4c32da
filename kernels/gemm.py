"""Matrix products by the library: which contractions are one, and the call.

A contraction is a (batched) matrix product of contiguous arrays when its batch axes lead in order on both sides and the
other axes of each side are its free axes and its contracted axes, one group after the other, paired in order.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopwright.ir.dims import Extent, product
from loopwright.ir.graph import Node
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import BF16, F16, F32, F64


@dataclass(frozen=True)
class Gemm:
    """C[batch, m, n] = op(A) op(B); `transposed` operands are stored k x m and n x k. suffix: the dtype that sums have."""

    suffix: str
    transposed: tuple[bool, bool]
    batch: Extent
    m: Extent
    n: Extent
    k: Extent


Match = Callable[[Node], Gemm | None]


def match_gemm(node: Node) -> Gemm | None:
    """The product of f32 or f64 that node is, or None."""
    return match_product(node) if node.op is dot_general and node.inputs[0].type.dtype in (F32, F64) else None


def match_product(node: Node) -> Gemm | None:
    """The product of floats that node is, or None: of half floats with sums in f32, which the result has or is rounded from."""
    if node.op is not dot_general:
        return None
    dtype, out = node.inputs[0].type.dtype, node.outputs[0].type.dtype
    if dtype not in (F16, BF16, F32, F64) or out not in (dtype, *((F32,) if dtype in (F16, BF16) else ())):
        return None
    return _laid_out(node, "f64" if out == F64 else "f32")


def _laid_out(node: Node, suffix: str) -> Gemm | None:
    """The product that the axes make, or None."""
    lhs, rhs = (v.type for v in node.inputs)
    contract, batch = node.attrs["contract"], node.attrs["batch"]
    if not contract or tuple(batch) != tuple((a, a) for a in range(len(batch))):
        return None
    left = _group([a for a, _ in contract], len(batch), lhs.rank, last=True)
    right = _group([b for _, b in contract], len(batch), rhs.rank, last=False)
    if left is None or right is None:
        return None
    free = [product(x for a, x in enumerate(t.shape) if a >= len(batch) and a not in paired)
            for t, paired in ((lhs, [a for a, _ in contract]), (rhs, [b for _, b in contract]))]
    return Gemm(suffix, (left, right), product(lhs.shape[:len(batch)]), free[0], free[1],
                product(lhs.shape[a] for a, _ in contract))


def _group(contracted: list[int], first: int, rank: int, *, last: bool) -> bool | None:
    """Whether the side is stored transposed: False where the contracted axes are at the usual end (`last` or first)."""
    at_end = list(range(rank - len(contracted), rank))
    at_start = list(range(first, first + len(contracted)))
    if contracted == (at_end if last else at_start):
        return False
    return True if contracted == (at_start if last else at_end) else None
