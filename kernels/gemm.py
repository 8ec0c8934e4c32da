"""Matrix products by the library: which contractions are one, and the call.

A contraction is a (batched) matrix product of contiguous arrays when its batch axes lead in order on both sides and the
other axes of each side are its free axes and its contracted axes, one group after the other, paired in order. It is one of
matrices that lie apart when each side's last axes are its free or its contracted ones, and each of these groups, as the batch
axes or two runs of them, lies together.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.graph import Node
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import BF16, F16, F32, F64
from loopwright.kernels.products_of_many import one_by_many, sum_of_products


@dataclass(frozen=True)
class Apart:
    """How many elements lines of the left and of the right side are apart, and matrices, in a batch of batches of `count`:
    those of one batch, and batches."""

    lines: tuple[Extent, Extent]
    inner: tuple[Extent, Extent]
    outer: tuple[Extent, Extent]
    count: Extent


@dataclass(frozen=True)
class Gemm:
    """C[batch, m, n] = op(A) op(B); `transposed` operands are stored k x m and n x k. suffix: the dtype that sums have; apart:
    how operands lie that are not contiguous matrices; kind: many, where A is one matrix for all of the batch; summed, where C
    is one, the sum of all products."""

    suffix: str
    transposed: tuple[bool, bool]
    batch: Extent
    m: Extent
    n: Extent
    k: Extent
    apart: Apart | None = None
    kind: str = "product"


Match = Callable[[Node], Gemm | None]


def match_gemm(node: Node) -> Gemm | None:
    """The product of f32 or f64 that node is, or None."""
    if node.op in (one_by_many, sum_of_products):
        return _of_many(node)
    return match_product(node) if node.op is dot_general and node.inputs[0].type.dtype in (F32, F64) else None


def numbers_of_rows(gemm: Gemm) -> int | None:
    """Which operand has the numbers, where a product adds up rows of one matrix, each times a number."""
    if gemm.batch != 1:
        return None
    return 1 if gemm.n == 1 and gemm.transposed[0] else 0 if gemm.m == 1 and not gemm.transposed[1] else None


def match_product(node: Node) -> Gemm | None:
    """The product of floats that node is, or None: of half floats with sums in f32, which the result has or is rounded from."""
    if node.op is not dot_general:
        return None
    dtype, out = node.inputs[0].type.dtype, node.outputs[0].type.dtype
    if dtype not in (F16, BF16, F32, F64) or out not in (dtype, *((F32,) if dtype in (F16, BF16) else ())):
        return None
    return _laid_out(node, "f64" if out == F64 else "f32")


def _of_many(node: Node) -> Gemm:
    right, made, transposed = node.inputs[1].type.shape, node.outputs[0].type, node.attrs["transposed"]
    suffix, batch = "f64" if made.dtype == F64 else "f32", product(right[:-2])
    *_, rows, columns = made.shape
    if node.op is one_by_many:
        return Gemm(suffix, (transposed, False), batch, rows, columns, right[-2], kind="many")
    return Gemm(suffix, transposed, batch, rows, columns, right[-1 if transposed[1] else -2], kind="summed")


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


# ---- matrices that lie apart -----------------------------------------------------------------------
def match_apart(node: Node) -> Gemm | None:
    """The product of f32 or f64 of matrices that lie apart that node is, or None."""
    if node.op is not dot_general or node.inputs[0].type.dtype not in (F32, F64) or match_gemm(node) is not None:
        return None
    contract, batch = node.attrs["contract"], node.attrs["batch"]
    shapes = [v.type.shape for v in node.inputs]
    sides = [_sides(shape, [p[k] for p in batch], [p[k] for p in contract]) for k, shape in enumerate(shapes)]
    split = next((s for s in range(len(batch)) if all(_together([p[k] for p in part]) for k in (0, 1)
                                                      for part in (batch[:s], batch[s:]))), None)
    if not contract or split is None or any(x is None for x in sides):
        return None
    (left, right), inner = [x for x in sides if x is not None], batch[split:]

    def steps(part: Sequence[tuple[int, int]]) -> tuple[Extent, Extent]:
        return _after(shapes[0], part[-1][0]) if part else 0, _after(shapes[1], part[-1][1]) if part else 0

    def size(axes: Iterable[tuple[int, int]]) -> Extent:
        return product(shapes[0][a] for a, _ in axes)
    apart = Apart((left.line, right.line), steps(inner), steps(batch[:split]), size(inner))
    suffix = "f64" if node.inputs[0].type.dtype == F64 else "f32"
    return Gemm(suffix, (not left.terms_last, right.terms_last), size(batch), left.free, right.free, size(contract), apart)


@dataclass(frozen=True)
class _Side:
    """One side of a product: how far its lines are apart, whether terms are what lies together in one, and how many free
    positions there are."""

    line: Extent
    terms_last: bool
    free: Extent


def _sides(shape: Shape, batch: list[int], terms: list[int]) -> _Side | None:
    """A side of which one group of axes is last, and each lies together; None where that is not so."""
    free = [a for a in range(len(shape)) if a not in batch and a not in terms]
    if not free or not terms or not _together(free) or not _together(terms) or len(shape) - 1 not in (free[-1], terms[-1]):
        return None
    terms_last = terms[-1] == len(shape) - 1
    return _Side(_after(shape, (free if terms_last else terms)[-1]), terms_last, product(shape[a] for a in free))


def _together(axes: Sequence[int]) -> bool:
    """Whether axes lie one after the other."""
    return all(b == a + 1 for a, b in pairwise(axes))


def _after(shape: Shape, axis: int) -> Extent:
    """How many elements positions of an axis are apart."""
    return product(shape[axis + 1:])
