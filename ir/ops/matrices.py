"""Matrices as the rules of linear algebra write them: the last two axes are rows and columns, all before them a batch."""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.ops.arithmetic import mul
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.comparison import eq, le, lt
from loopwright.ir.ops.construct import full_like, iota, zeros_like
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import permute
from loopwright.ir.types import I64


def swap(x: Ref) -> Ref:
    """The transpose of each matrix."""
    rank = len(x.shape)
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))


def product(a: Ref, b: Ref) -> Ref:
    """a @ b, matrix by matrix."""
    front = len(a.shape) - 2
    return dot_general(a, b, contract=((front + 1, front),), batch=tuple((k, k) for k in range(front)), dtype=None)


def _where(x: Ref, question: Callable[[Ref, Ref], Ref]) -> Ref:
    """x where question(row, column) holds, else zero."""
    rank = len(x.shape)
    row, column = (iota(into=x.builder, shape=x.shape, axis=rank - k, dtype=I64) for k in (2, 1))
    return select(question(row, column), x, zeros_like(x))


def lower(x: Ref) -> Ref:
    """What is on and below the diagonal."""
    return _where(x, lambda i, j: le(j, i))


def strictly_lower(x: Ref) -> Ref:
    """What is below the diagonal."""
    return _where(x, lambda i, j: lt(j, i))


def upper(x: Ref) -> Ref:
    """What is on and above the diagonal."""
    return _where(x, lambda i, j: le(i, j))


def strictly_upper(x: Ref) -> Ref:
    """What is above the diagonal."""
    return _where(x, lambda i, j: lt(i, j))


def diagonal_only(x: Ref) -> Ref:
    """What is on the diagonal."""
    return _where(x, eq)


def identity_like(x: Ref) -> Ref:
    """Ones on the diagonal, zeros elsewhere."""
    return diagonal_only(full_like(x, 1))


def diagonal(x: Ref) -> Ref:
    """The diagonal of each square matrix as a vector."""
    return reduce_sum(diagonal_only(x), axes=(len(x.shape) - 1,))


def trace(x: Ref) -> Ref:
    """The sum of the diagonal."""
    rank = len(x.shape)
    return reduce_sum(diagonal_only(x), axes=(rank - 2, rank - 1))


def as_rows(v: Ref, shape: Shape) -> Ref:
    """Matrices of a shape whose element i, j is v[j]."""
    rank = len(shape)
    return broadcast(v, shape=shape, axes=(*range(rank - 2), rank - 1))


def as_columns(v: Ref, shape: Shape) -> Ref:
    """Matrices of a shape whose element i, j is v[i]."""
    return broadcast(v, shape=shape, axes=tuple(range(len(shape) - 1)))


def scaled(x: Ref, factor: float) -> Ref:
    """factor * x."""
    return mul(x, full_like(x, factor))


def same_or_less(a: Extent, b: Extent) -> bool:
    """Whether a <= b is known from the sizes alone."""
    return a == b or (isinstance(a, int) and isinstance(b, int) and a <= b)
