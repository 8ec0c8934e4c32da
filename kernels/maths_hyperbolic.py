"""Hyperbolic functions and their inverses.

Guarantees are those of `kernels.maths`.
"""
from __future__ import annotations

from dataclasses import replace

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_exponentials import (
    LOG2E,
    NAN,
    clamp,
    expm1_near,
    format_of,
    log,
    log1p,
    log_core,
    reduced,
    split,
    steps,
)
from loopwright.kernels.maths_writer import (
    Pieces,
    Writer,
    by_pieces,
    cancelling,
    horner,
    odd,
    polynomial,
    quick_two_sum,
)

TANH32, TANH64 = Pieces(t.TANH_SLOPE32, t.TANH_PIECES32), Pieces(t.TANH_SLOPE64, t.TANH_PIECES64)
TANH_SHORT = Pieces(t.TANH_SHORT_SLOPE32, t.TANH_SHORT32)
FLAT = {32: t.TANH_END32, 64: t.TANH_END64}  # from there on tanh is 1


def _hyperbolic(m: Writer, x: str, sign: float) -> str:
    """(e^x + sign e^-x) / 2 with x = n ln 2 + r, from the even and the odd part of e^r; halves, as 2^n overflows early."""
    f = format_of(m)
    n, r = reduced(m, clamp(m, x, -f.largest, f.largest))
    up, down = m.scale(m.constant(0.25), n), m.scale(m.constant(0.25), m.neg(n))
    whole, slope = m.add(up, down), m.sub(up, down)
    whole, slope = (whole, slope) if sign > 0 else (slope, whole)
    u = m.mul(r, r)
    beside = m.mul(polynomial(m, u, t.COSH32, t.COSH64), u)  # cosh r - 1
    more = m.mul(polynomial(m, u, t.SINH32, t.SINH64), u)  # sinh r / r - 1
    rest = m.fma(slope, r, m.fma(whole, beside, m.mul(m.mul(slope, r), more)))
    half = m.add(whole, rest)
    return m.add(half, half)


def sinh(m: Writer, x: str) -> str:
    return m.select(m.compare("lt", m.abs(x), 2.0 ** -(format_of(m).mantissa // 2 + 1)), x, _hyperbolic(m, x, -1.0))


def cosh(m: Writer, x: str) -> str:
    return _hyperbolic(m, x, 1.0)


def tanh(m: Writer, x: str) -> str:
    """Polynomials by pieces; from FLAT on it is 1."""
    if not m.has_short_tables:
        return _tanh_of_quotients(m, x)
    pieces = TANH_SHORT if not m.has_tables else TANH32 if m.bits == 32 else TANH64
    return m.copysign(by_pieces(m, m.minimum(FLAT[m.bits], m.abs(x)), pieces), x)


def _tanh_of_quotients(m: Writer, x: str) -> str:
    """x + x^3 P(x^2) / Q(x^2) below 1, beyond it 1 - 2 / (e^2x + 1): one quotient, which is not the larger part."""
    f = format_of(m)
    a = m.minimum(FLAT[m.bits], m.abs(x))
    near, u, twice = m.compare("lt", a, 1.0), m.mul(a, a), m.add(a, a)
    n, index = steps(m, a, 2 * LOG2E, 0)
    more = expm1_near(m, m.fma(n, -f.ln2[1], m.fma(n, -f.ln2[0], twice)))
    power = m.from_bits(m.shl(m.iadd(index, f.bias), f.mantissa))
    top = m.select(near, m.mul(polynomial(m, u, t.TANH_TOP32, t.TANH_TOP64), m.mul(u, a)), -2.0)
    bottom = m.select(near, polynomial(m, u, t.TANH_BOTTOM32, t.TANH_BOTTOM64), m.fma(more, power, m.add(power, 1.0)))
    return m.copysign(m.add(m.select(near, a, 1.0), m.div(top, bottom)), x)


# ---- inverses -----------------------------------------------------------------------------------
def _is_large(m: Writer, a: str) -> str:
    """Whether the square of a makes 1 vanish."""
    return m.compare("ge", a, 2.0 ** (format_of(m).mantissa // 2 + 2))


def arcsinh(m: Writer, x: str) -> str:
    return m.copysign((_arcsinh_single if m.bits == 32 else _arcsinh_double)(m, m.abs(x)), x)


def _arcsinh_single(m: Writer, a: str) -> str:
    """A polynomial, and where it is 1 or more log(a + sqrt(a^2 + 1))."""
    square = m.mul(a, a)
    y = _log_of_sum(m, a, m.sqrt(m.add(square, 1.0)))
    return m.select(m.compare("lt", a, 1.1875), odd(m, a, square, t.ASINH32), y)


def _arcsinh_double(m: Writer, a: str) -> str:
    """log(a + sqrt(a^2 + 1)), with what rounding takes, which is all that is left of small numbers."""
    square = m.fma(a, a, 1.0)
    root, low = _root_twice(m, square, cancelling(m, a, a, m.sub(1.0, square)))
    v, lost = quick_two_sum(m, root, a)
    return _log_twice(m, a, v, m.add(lost, low))


def arccosh(m: Writer, x: str) -> str:
    y = (_arccosh_single if m.bits == 32 else _arccosh_double)(m, x, m.sub(x, 1.0))
    return m.select(m.compare("ge", x, 1.0), y, NAN)


def _arccosh_single(m: Writer, x: str, d: str) -> str:
    """sqrt(2 d) times a polynomial in d = x - 1, and where it is 1 or more log(x + sqrt(x^2 - 1))."""
    twice = m.add(d, d)
    beside = m.compare("lt", d, 0.5625)
    root = m.sqrt(m.select(beside, twice, m.fma(d, d, twice)))
    near = m.fma(m.mul(root, d), horner(m, d, t.ACOSH32), root)
    return m.select(beside, near, _log_of_sum(m, x, root))


def _arccosh_double(m: Writer, x: str, d: str) -> str:
    """log(x + sqrt(d^2 + 2 d)) with d = x - 1, and what rounding takes."""
    twice = m.add(d, d)
    square = m.fma(d, d, twice)
    root, low = _root_twice(m, square, cancelling(m, d, d, m.sub(twice, square)))
    v, lost = quick_two_sum(m, x, root)
    return _log_twice(m, x, v, m.add(lost, low))


def _log_of_sum(m: Writer, a: str, root: str) -> str:
    """f32: the logarithm of a + root where it is 1 or more; what rounding takes from the sum is too little to count there."""
    root = m.select(_is_large(m, a), a, root)
    s = split(m, m.fma(root, 0.5, m.mul(a, 0.5)))
    return log_core(m, replace(s, k=m.add(s.k, 1.0)))


def _root_twice(m: Writer, square: str, low: str) -> tuple[str, str]:
    """f64: sqrt(square + low), and what rounding takes from it, which needs few bits: the inverse is exact for powers of two
    and straight between them, within an eighth."""
    root = m.sqrt(square)
    half_inverse = m.from_bits(m.isub(0x7FD << 52, m.bits_of(root)))
    return root, m.mul(m.add(cancelling(m, m.neg(root), root, square), low), half_inverse)


def _log_twice(m: Writer, a: str, v: str, low: str) -> str:
    """f64: log(v + low); log(2 a) where a is large."""
    large = _is_large(m, a)
    s = split(m, m.select(large, a, v), m.select(large, 0.0, low))
    return log_core(m, replace(s, k=m.add(s.k, m.select(large, 1.0, 0.0))))


def arctanh(m: Writer, x: str) -> str:
    return m.copysign((_arctanh_single if m.bits == 32 else _arctanh_double)(m, m.abs(x)), x)


def _arctanh_single(m: Writer, a: str) -> str:
    """A polynomial below 1/2, and beyond it log((1 + a) / (1 - a)) / 2."""
    below = m.sub(1.0, a)
    above, lost = quick_two_sum(m, 1.0, a)
    quotient = m.div(above, below)
    lost = m.add(m.fma(m.minimum(2.0 ** 26, quotient), m.neg(below), above), lost)
    y = m.fma(lost, 2 / 7, m.mul(log(m, quotient), 0.5))  # lost / above / 2, where above is 7/4 to a seventh
    return m.select(m.compare("lt", a, 0.5), odd(m, a, m.mul(a, a), t.ATANH32), y)


def _arctanh_double(m: Writer, a: str) -> str:
    """log1p(2 a / (1 - a)) / 2, with what rounding took from the quotient."""
    twice = m.add(a, a)
    below, lost = quick_two_sum(m, 1.0, m.neg(a))
    inverse = m.div(1.0, below)
    quotient = m.mul(twice, inverse)
    rest = m.fma(m.neg(quotient), lost, cancelling(m, m.neg(quotient), below, twice))
    return m.mul(log1p(m, quotient, m.mul(rest, inverse)), 0.5)
