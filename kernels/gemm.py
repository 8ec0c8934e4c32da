"""Matrix products by the library: which contractions are one, and the call.

A contraction is a (batched) matrix product of contiguous arrays when its batch axes lead in order on both sides and the
other axes of each side are its free axes and its contracted axes, one group after the other, paired in order.
"""
from __future__ import annotations

from dataclasses import dataclass

from loopwright.ir.dims import Extent, product
from loopwright.ir.graph import Node
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import F32, F64


@dataclass(frozen=True)
class Gemm:
    """C[batch, m, n] = op(A) op(B); `transposed` operands are stored k x m and n x k."""

    suffix: str
    transposed: tuple[bool, bool]
    batch: Extent
    m: Extent
    n: Extent
    k: Extent


def match_gemm(node: Node) -> Gemm | None:
    """The product that node is, or None."""
    if node.op is not dot_general:
        return None
    lhs, rhs = (v.type for v in node.inputs)
    out = node.outputs[0].type.dtype
    if out not in (F32, F64) or lhs.dtype != out or rhs.dtype != out:
        return None
    contract, batch = node.attrs["contract"], node.attrs["batch"]
    if not contract or tuple(batch) != tuple((a, a) for a in range(len(batch))):
        return None
    left = _group([a for a, _ in contract], len(batch), lhs.rank, last=True)
    right = _group([b for _, b in contract], len(batch), rhs.rank, last=False)
    if left is None or right is None:
        return None
    free = [product(x for a, x in enumerate(t.shape) if a >= len(batch) and a not in paired)
            for t, paired in ((lhs, [a for a, _ in contract]), (rhs, [b for _, b in contract]))]
    return Gemm("f32" if out == F32 else "f64", (left, right), product(lhs.shape[:len(batch)]), free[0], free[1],
                product(lhs.shape[a] for a, _ in contract))


def _group(contracted: list[int], first: int, rank: int, *, last: bool) -> bool | None:
    """Whether the side is stored transposed: False where the contracted axes are at the usual end (`last` or first)."""
    at_end = list(range(rank - len(contracted), rank))
    at_start = list(range(first, first + len(contracted)))
    if contracted == (at_end if last else at_start):
        return False
    return True if contracted == (at_start if last else at_end) else None
