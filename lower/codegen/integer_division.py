"""Integer division on registers: quotients and remainders as NumPy rounds them; both are 0 where the divisor is.

No processor divides vectors of integers, but all divide vectors of floats. Let |a| and |b| be less than 2^(p - 2), for floats
of p bits. Where a / b is no integer, it is at least 1 / |b| from each, which is more than its rounding moves it: the rounded
quotient lies between the same integers. What is left, a - q b, is exact. Integers of up to 16 bits divide in f32, of 32 in f64;
so do those of 64 bits where all of a vector are near enough to zero, which one question finds out: else each is divided alone.

Constants are multiplied by. For integers of 64 bits the reciprocal, rounded, does: (a + 1/2) / b is at least 1 / (2 |b|) from
each integer, and where |a| < 2^50 both roundings of (a + 1/2) RN(1 / b) move it by less.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import copysign
from typing import TYPE_CHECKING

from loopwright.ir.types import F32, F64
from loopwright.lower.codegen.conversions import machine_for
from loopwright.lower.codegen.machine import Machine, any_lane, register_type
from loopwright.lower.codegen.text import Carried, Scope, branch

if TYPE_CHECKING:
    from loopwright.lower.codegen.arithmetic import Lanes

NEAR = 50  # bits of integers that divide in f64
_UNITS = 1.5 * 2.0 ** 52  # the last place of such a float is 1: integers of up to 51 bits are added to its bits
Round = Callable[[Machine, str], str]  # of a quotient: Machine.floor or Machine.trunc


def floor_divide(at: Lanes, a: str, b: str) -> str:
    """The quotient rounded down."""
    digits = _digits(b)
    if digits is not None:
        return at.op("ashr" if at.signed else "lshr", a, spelled(at, digits))
    return _divided(at, a, b, Machine.floor)[0]


def remainder(at: Lanes, a: str, b: str) -> str:
    """What is left then, which has the sign of b."""
    digits = _digits(b)
    if digits is not None:
        return at.op("and", a, (1 << digits) - 1)
    return _divided(at, a, b, Machine.floor)[1]


def fmod(at: Lanes, a: str, b: str) -> str:
    """What is left where the quotient is rounded toward zero."""
    return _divided(at, a, b, Machine.trunc)[1]


def number_of(b: str) -> int | None:
    """The integer that an operand is, where it is a constant."""
    found = re.fullmatch(r"(?:splat \(i\d+ )?(-?\d+)\)?", b)
    return int(found[1]) if found else None


def spelled(at: Lanes, number: int) -> str:
    """A constant in plain sight of LLVM: no number in a register."""
    return str(number) if at.lanes == 1 else f"<{', '.join([f'{register_type(at.dtype)} {number}'] * at.lanes)}>"


def _digits(b: str) -> int | None:
    """k of a constant 2^k."""
    number = number_of(b) or 0
    return number.bit_length() - 1 if number > 0 and number & number - 1 == 0 else None


def _divided(at: Lanes, a: str, b: str, round: Round) -> tuple[str, str]:
    """The quotient and what is left, which are computed together."""
    key = (_divided, at.dtype, at.lanes, a, b, round)
    found: tuple[str, str] | None = at.scope.find(key)
    if found is None:
        found = at.scope.values[key] = _division(at, a, b, round)
    return found


def _division(at: Lanes, a: str, b: str, round: Round) -> tuple[str, str]:
    number = number_of(b)
    is_constant = number not in (None, 0, -1)
    if at.lanes == 1 or (is_constant and (at.bits < 64 or abs(number or 0) >> NEAR)):
        return _by_integers(at, a, b, round)
    if at.bits < 64:
        divisor, none, minus = _safe(at, b)
        return _with_exceptions(at, a, _by_floats(at, a, divisor, round), none, minus)
    return _where_near(at, a, b, round, number if is_constant else None)


def _safe(at: Lanes, b: str) -> tuple[str, str, str | None]:
    """A divisor that does not trap; where b is 0, and where it is -1, if it may be: a / -1 is -a, which wraps."""
    none = at.op("icmp eq", b, 0)
    safe = at.select(none, 1, b)
    if not at.signed:
        return safe, none, None
    minus = at.op("icmp eq", b, -1)
    return at.select(minus, 1, safe), none, minus


def _with_exceptions(at: Lanes, a: str, found: tuple[str, str], none: str, minus: str | None) -> tuple[str, str]:
    """The quotient by a safe divisor and what it leaves, where that is another than b. Nothing is left of a / 1."""
    quotient, rest = found
    if minus is not None:
        quotient = at.select(minus, at.op("sub", at.constant(0), a), quotient)
    return at.select(none, 0, quotient), rest


def _by_integers(at: Lanes, a: str, b: str, round: Round) -> tuple[str, str]:
    """By the processor's division, or, of constants, LLVM's multiplications."""
    number = number_of(b)
    if number is not None and number not in (0, -1):
        found = _toward_zero(at, a, spelled(at, number))
    else:
        divisor, none, minus = _safe(at, b)
        found = _with_exceptions(at, a, _toward_zero(at, a, divisor), none, minus)
    if not at.signed or round is Machine.trunc:
        return found
    quotient, rest = found
    below = _crosses(at, rest, b)
    return at.op("sub", quotient, at.select(below, 1, 0)), at.op("add", rest, at.select(below, b, 0))


def _toward_zero(at: Lanes, a: str, b: str) -> tuple[str, str]:
    quotient = at.op("sdiv" if at.signed else "udiv", a, b)
    return quotient, at.op("sub", a, at.op("mul", quotient, b))


def _crosses(at: Lanes, rest: str, b: str) -> str:
    """What is left toward zero is not 0 and has the other sign than b."""
    number = number_of(b)
    if number:
        return at.compare("lt" if number > 0 else "gt", rest, 0)
    return at.mask("and", at.op("icmp ne", rest, 0), at.compare("lt", at.op("xor", rest, b), 0))


def _by_floats(at: Lanes, a: str, b: str, round: Round) -> tuple[str, str]:
    """In f32 or f64: b is not 0."""
    m = machine_for(F32 if at.bits <= 16 else F64, at.scope, at.lanes, at.target)
    sign = "s" if at.signed else "u"
    x, y = (at.scope.emit(f"{sign}itofp {at.kind} {v} to {m.float_type}") for v in (a, b))
    quotient = round(m, m.div(x, y))
    rest = m.sub(x, m.mul(quotient, y))
    first, second = (at.scope.emit(f"fpto{sign}i {m.float_type} {v} to {at.kind}") for v in (quotient, rest))
    return first, second


def _where_near(at: Lanes, a: str, b: str, round: Round, number: int | None) -> tuple[str, str]:
    """Of 64 bits: in f64 where it holds them all. number: b, if that is known and is near."""
    def moved(v: str) -> str:
        return at.op("add", v, 1 << NEAR) if at.signed else v
    both = moved(a) if number is not None else at.op("or", moved(a), moved(b))
    outside = at.op("icmp ugt", both, (1 << NEAR + at.signed) - 1)

    def far(scope: Scope) -> Carried:
        return [(at.kind, v) for v in _by_integers(replace(at, scope=scope), a, b, round)]

    def near(scope: Scope) -> Carried:
        return [(at.kind, v) for v in _by_doubles(replace(at, scope=scope), a, b, round, number)]
    quotient, rest = branch(at.scope, any_lane(at.scope, outside, at.lanes), far, near, rare=True)
    return quotient, rest


def _by_doubles(at: Lanes, a: str, b: str, round: Round, number: int | None) -> tuple[str, str]:
    """Of 64 bits that are near. What rounds a quotient by a constant down needs no division."""
    m = machine_for(F64, at.scope, at.lanes, at.target)

    def of(v: str) -> str:
        return m.sub(m.from_bits(m.iadd(m.bits_of(m.constant(_UNITS)), v)), _UNITS)
    x = of(a)
    if number is not None and round is Machine.floor:
        quotient, none = m.floor(m.mul(m.add(x, copysign(0.5, number)), 1 / number)), None
        divisor = m.constant(float(number))
    else:
        none = at.op("icmp eq", b, 0)
        divisor = of(at.select(none, 1, b))
        quotient = round(m, m.div(x, divisor))
    found = m.to_int(quotient), m.to_int(m.sub(x, m.mul(quotient, divisor)))
    return found if none is None else (at.select(none, 0, found[0]), at.select(none, 0, found[1]))
