"""Random bits for an array of any shape, by threefry.

Guarantees: element i of an array, counted in C order, gets the block with counter i, whatever the shape: the bits are
JAX's with `jax_threefry_partitionable=True`. On traced keys every step is an elementwise op on positions, so that drawing
fuses with its consumer.
"""
from __future__ import annotations

import math
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from loopwright.ir.builder import Builder, Ref, innermost
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.ops.arithmetic import add, mul
from loopwright.ir.ops.bitwise import right_shift
from loopwright.ir.ops.construct import full, full_like, iota, size_value
from loopwright.ir.ops.random import threefry_first, threefry_second
from loopwright.ir.threefry import NumpyWords, threefry
from loopwright.ir.types import BF16, I32, I64, U32, U64
from loopwright.tracer.axes import as_shape
from loopwright.tracer.promotion import broadcast, convert
from loopwright.tracer.tracer import Tracer


# ---- counters -------------------------------------------------------------------------------------
def counters(key: Any, shape: Shape) -> tuple[Any, Any]:
    """The high and low words of the position of every element, where the key lives."""
    if isinstance(key, Tracer):
        return _traced_counters(innermost() or key.ref.builder, shape)
    sizes = [n for n in shape if isinstance(n, int)]
    assert len(sizes) == len(shape), "a symbolic size outside its trace"
    flat = np.arange(math.prod(sizes), dtype=U64).reshape(sizes)
    return (flat >> U64.type(32)).astype(U32), flat.astype(U32)


def _traced_counters(into: Builder, shape: Shape) -> tuple[Ref, Ref]:
    """The high word is 0 while the size stays below 2^32: a guard where the size is symbolic."""
    shape = into.scope.canonical_shape(shape)
    if into.scope.decide("<", product(shape), 2 ** 32):
        low = _positions(into, shape, U32)
        return full_like(low, 0), low
    flat = _positions(into, shape, U64)
    return convert(right_shift(flat, full_like(flat, 32)), U32), convert(flat, U32)


def _positions(into: Builder, shape: Shape, dtype: np.dtype) -> Ref:
    """Each element's position in C order, modulo the dtype's range."""
    terms = []
    for axis in range(len(shape)):
        at = iota(into=into, shape=shape, axis=axis, dtype=dtype)
        stride = product(shape[axis + 1:])
        terms.append(at if isinstance(stride, int) and stride == 1 else mul(at, _like_size(at, stride)))
    return reduce(add, terms) if terms else full(into=into, value=0, shape=(), dtype=dtype)


def _like_size(x: Ref, n: Extent) -> Ref:
    number = size_value(into=x.builder, size=n)
    return broadcast(convert(number, x.dtype), x.shape)


# ---- draws ----------------------------------------------------------------------------------------
def blocks(key: Any, shape: Shape) -> tuple[Any, Any]:
    """uint32[shape] twice: the block of every position under a key."""
    x, y = counters(key, shape)
    return encrypt(key, x, y)


def encrypt(key: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The block of the counter (x, y) under a key, on plain or traced words."""
    if not isinstance(key, Tracer):
        return threefry(NumpyWords(), key[0], key[1], x, y)
    return _traced_block(key[0].ref, key[1].ref, x, y)


def _traced_block(first: Ref, second: Ref, x: Ref, y: Ref) -> tuple[Tracer, Tracer]:
    words = (broadcast(first, x.shape), broadcast(second, x.shape), x, y)
    return Tracer(threefry_first(*words)), Tracer(threefry_second(*words))


def random_bits(key: Any, width: int, shape: Shape) -> Any:
    """Unsigned integers of 8, 16, 32 or 64 random bits."""
    return joined(*blocks(key, shape), width)


def joined(first: Any, second: Any, width: int) -> Any:
    """The bits of a block as one unsigned integer."""
    if width == 64:
        return (first.astype(U64) << U64.type(32)) | second.astype(U64)
    return (first ^ second).astype(np.dtype(f"u{width // 8}"))


def fraction(drawn: Any, dtype: np.dtype) -> Any:
    """k 2^-m in [0, 1) with m bits of mantissa: what JAX makes by writing k into the mantissa of 1 and subtracting 1."""
    width, mantissa = 8 * drawn.dtype.itemsize, limits(dtype).nmant
    number = (drawn >> drawn.dtype.type(width - mantissa)).astype(I32 if width < 64 else I64)  # signed: quicker to convert
    return number.astype(dtype) * dtype.type(2.0 ** -mantissa)


def fractions(key: Any, shape: Any, dtype: np.dtype) -> Any:
    """Fractions in [0, 1)."""
    return fraction(random_bits(key, fraction_width(dtype), as_shape(shape)), dtype)


def fraction_width(dtype: np.dtype) -> int:
    """The random bits that a fraction takes."""
    return 8 if limits(dtype).nmant < 8 else 8 * dtype.itemsize


def limits(dtype: np.dtype) -> Any:
    """What numbers a floating dtype holds."""
    return ml_dtypes.finfo(dtype) if dtype == BF16 else np.finfo(dtype)  # type: ignore[no-untyped-call]


# ---- a key for every element ----------------------------------------------------------------------
def encrypt_each(keys: tuple[Any, Any], number: int) -> tuple[Any, Any]:
    """The block of one counter under each of many keys: uint32 arrays of their words."""
    first, second = keys
    if not isinstance(first, Tracer):
        zeros = np.zeros(np.shape(first), U32)
        return threefry(NumpyWords(), first, second, zeros, zeros + U32.type(number))
    return _traced_block(first.ref, second.ref, full_like(first.ref, 0), full_like(first.ref, number))


def fraction_each(keys: tuple[Any, Any], dtype: np.dtype) -> Any:
    """A fraction under each key."""
    return fraction(joined(*encrypt_each(keys, 0), fraction_width(dtype)), dtype)
