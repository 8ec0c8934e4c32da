"""Division of vectors by one number: its reciprocal once, then multiplications, rounded as division is.

With r = RN(1/y) and what that lost, s = RN(r * RN(1 - y * r)), q = RN(x * r + RN(x * s)) is a neighbour of the quotient, for
which Markstein's theorem holds: RN(q + r * RN(x - q * y)) is RN(x / y) (Muller et al., Handbook of Floating-Point Arithmetic,
2nd ed., section 4.7). It needs that nothing under- or overflows on the way, so lanes with x or y outside [2^-L, 2^L) are
divided, but for x = +0 and positive y, which come out right.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.types import F32, F64
from loopwright.lower.codegen.context import Context, Value, splat_register
from loopwright.lower.codegen.machine import Machine

WIDE = 512  # bits of a vector whose division takes longer than the steps
NAN_BITS = -1  # of a dividend that is NaN whatever is done
LIMIT = {F32: 60, F64: 500}  # L


def by_one_divisor(context: Context, x: Value, y: Value) -> Value | None:
    """x / y where y is one number for all lanes; None where division itself is better."""
    kernel = context.kernel
    if y.varies or not x.varies or x.dtype not in LIMIT or kernel.flags or not kernel.target.has_fma:
        return None
    if x.lanes * x.dtype.itemsize * 8 != WIDE:
        return None
    alone = context.writer(y.dtype, y.scope, 1).machine
    kind, divisor = alone.element, y.parts[0]
    near = alone.div(1.0, divisor)
    lost = alone.mul(near, alone.fma(alone.neg(divisor), near, 1.0))
    reciprocal = splat_register(y.scope, kind, near, x.lanes), splat_register(y.scope, kind, lost, x.lanes)
    least, count = _range(x.dtype)
    fits = alone.ucompare("lt", alone.isub(alone.shl(alone.bits_of(divisor), 1), least), count)
    allowed = splat_register(y.scope, alone.int_type, alone.iselect(fits, count, 0), x.lanes)
    positive = alone.both(fits, alone.compare("gt", divisor, 0.0))
    exempt = splat_register(y.scope, alone.int_type, alone.iselect(positive, 0, NAN_BITS), x.lanes)
    divisors = splat_register(y.scope, kind, divisor, x.lanes) if divisor.startswith("%") else f"splat ({kind} {divisor})"
    at = context.writer(x.dtype, x.scope if x.scope.depth > y.scope.depth else y.scope, x.lanes).machine
    parts = tuple(_quotient(at, part, divisors, reciprocal, least, allowed, exempt) for part in x.parts)
    return Value(parts, x.dtype, x.lanes, at.scope)


def _range(dtype: np.dtype) -> tuple[int, int]:
    """The bits of 2^-L without its sign, and how many such patterns there are up to 2^L."""
    bits = np.array([2.0 ** -LIMIT[dtype], 2.0 ** LIMIT[dtype]], dtype).view(f"u{dtype.itemsize}")
    return 2 * int(bits[0]), 2 * int(bits[1] - bits[0])


def _quotient(m: Machine, x: str, y: str, r: tuple[str, str], least: int, allowed: str, exempt: str) -> str:
    bits = m.bits_of(x)
    outside = m.both(m.ucompare("ge", m.isub(m.shl(bits, 1), least), allowed), m.icompare("ne", bits, exempt))
    usual = m.select(outside, 0.0, x)  # steps with denormal numbers would take a hundred times longer
    q = m.fma(usual, r[0], m.mul(usual, r[1]))
    q = m.fma(m.fma(m.neg(q), y, usual), r[0], q)
    return m.rarely(outside, q, lambda inner: inner.div(x, y))
