"""Division of vectors by one number, and what is left: its reciprocal once, then multiplications, rounded as division is.

With r = RN(1/y) and what that lost, s = RN(r * RN(1 - y * r)), q = RN(x * r + RN(x * s)) is a neighbour of the quotient, for
which Markstein's theorem holds: RN(q + r * RN(x - q * y)) is RN(x / y) (Muller et al., Handbook of Floating-Point Arithmetic,
2nd ed., section 4.7). It needs that nothing under- or overflows on the way: y is within [2^-L, 2^L), x within [2^-63, 2^65) in
f32, [2^-511, 2^513) in f64: the exponents in the middle half. Where some lane is not, as a zero, all vectors of the iteration
are divided.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from loopwright.ir.types import F32, F64
from loopwright.kernels.maths_division import divisor_of, fmod_by, with_divisors_sign
from loopwright.lower.codegen.context import Context, Value, splat, splat_register
from loopwright.lower.codegen.machine import Machine
from loopwright.lower.codegen.text import Carried, Scope, branch, deepest

WIDE = 512  # bits of a vector whose division takes longer than the steps; of f64 half of it, where no loop has its own divisors
LIMIT = {F32: 60, F64: 500}  # L


def _has_one_divisor(context: Context, x: Value, y: Value) -> bool:
    kernel = context.kernel
    return x.varies and not y.varies and x.dtype in LIMIT and kernel.target.has_fma


def _machine(context: Context, dtype: np.dtype, scope: Scope, lanes: int) -> Machine:
    """Which does as it is told, with `fast_math`, too."""
    return replace(context.writer(dtype, scope, lanes), flags="").machine


def quotient_by_one(context: Context, x: Value, y: Value) -> Value | None:
    """x / y where y is one number for all lanes; None where division itself is better."""
    kernel = context.kernel
    if not _has_one_divisor(context, x, y) or kernel.target.divides_soon or kernel.flags:  # which let LLVM use the reciprocal
        return None
    bits = x.lanes * x.dtype.itemsize * 8
    least = WIDE if x.dtype == F32 or y.scope.repeats else WIDE // 2
    if bits < least or bits != kernel.target.vector_bits:
        return None
    if context.mask is not None:  # the rest of a row is a vector or two
        return None
    key = "reciprocal", y.parts[0], x.dtype, x.lanes
    if (steps := y.scope.find(key)) is None:
        steps = y.scope.values[key] = _reciprocal(context, x, y)
    at = context.writer(x.dtype, deepest(x.scope, y.scope), x.lanes).machine
    return Value(_quotients(at, x.parts, *steps), x.dtype, x.lanes, at.scope)


def fmod_by_one(context: Context, x: Value, y: Value) -> Value | None:
    """fmod(x, y) where y is one number for all lanes, without a division for each; None where they have to divide."""
    if not _has_one_divisor(context, x, y):
        return None
    key = "divisor", y.parts[0], x.dtype
    if (found := y.scope.find(key)) is None:
        found = y.scope.values[key] = divisor_of(_machine(context, y.dtype, y.scope, 1), y.parts[0])
    divisor, reciprocal = (splat(Value((r,), y.dtype, 1, y.scope), x.lanes) for r in found)
    at = _machine(context, x.dtype, deepest(x.scope, y.scope), x.lanes)
    return Value(tuple([fmod_by(at, part, divisor, reciprocal) for part in x.parts]), x.dtype, x.lanes, at.scope)


def remainder_by_one(context: Context, x: Value, y: Value) -> Value | None:
    """The same with the sign of y."""
    rest = fmod_by_one(context, x, y)
    if rest is None:
        return None
    at, sign = _machine(context, x.dtype, rest.scope, x.lanes), splat(y, x.lanes)
    return replace(rest, parts=tuple([with_divisors_sign(at, part, sign) for part in rest.parts]))


BY_ONE = {"div": quotient_by_one, "fmod": fmod_by_one, "remainder": remainder_by_one}


def _reciprocal(context: Context, x: Value, y: Value) -> tuple[str, tuple[str, str], str, int]:
    """In all lanes: the divisor; r and s; the bit that exponents in the middle have, or 0 where y is outside. That bit."""
    alone = context.writer(y.dtype, y.scope, 1).machine
    kind, divisor = alone.element, y.parts[0]
    near = alone.div(1.0, divisor)
    lost = alone.mul(near, alone.fma(alone.neg(divisor), near, 1.0))
    reciprocal = splat_register(y.scope, kind, near, x.lanes), splat_register(y.scope, kind, lost, x.lanes)
    least, count = _range(x.dtype)
    fits = alone.ucompare("lt", alone.isub(alone.shl(alone.bits_of(divisor), 1), least), count)
    top = 1 << (x.dtype.itemsize * 8 - 2)
    wanted = splat_register(y.scope, alone.int_type, alone.iselect(fits, top, 0), x.lanes)
    divisors = splat_register(y.scope, kind, divisor, x.lanes) if divisor.startswith("%") else f"splat ({kind} {divisor})"
    return divisors, reciprocal, wanted, top


def _range(dtype: np.dtype) -> tuple[int, int]:
    """The bits of 2^-L without its sign, and how many such patterns there are up to 2^L."""
    bits = np.array([2.0 ** -LIMIT[dtype], 2.0 ** LIMIT[dtype]], dtype).view(f"u{dtype.itemsize}")
    return 2 * int(bits[0]), 2 * int(bits[1] - bits[0])


def _quotients(m: Machine, parts: Sequence[str], y: str, r: tuple[str, str], wanted: str, top: int) -> tuple[str, ...]:
    """The steps, or divisions where a lane of some part needs that: one question for all parts. Exponents whose first two bits
    differ, those in the middle, have the first bit once the second is added."""
    middle = reduce(m.iand, [m.iadd(m.bits_of(x), top // 2) for x in parts])
    outside = m.icompare("eq", m.iand(middle, wanted), 0)

    def divided(scope: Scope) -> Carried:
        inner = replace(m, scope=scope)
        return [(m.float_type, inner.div(x, y)) for x in parts]

    def stepped(scope: Scope) -> Carried:
        inner = replace(m, scope=scope)
        near = [inner.fma(x, r[0], inner.mul(x, r[1])) for x in parts]
        return [(m.float_type, inner.fma(inner.fma(inner.neg(q), y, x), r[0], q)) for q, x in zip(near, parts, strict=True)]
    return tuple(branch(m.scope, m.any(outside), divided, stepped, rare=True))
