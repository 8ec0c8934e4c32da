"""Hyperbolic functions and their inverses.

Guarantees are those of `kernels.maths`.
"""
from __future__ import annotations

from dataclasses import replace

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_exponentials import (
    NAN,
    clamp,
    expm1_twice,
    format_of,
    log,
    log1p,
    log_core,
    reduced,
    split,
)
from loopwright.kernels.maths_writer import Pieces, Writer, by_pieces, cancelling, odd, polynomial, quick_two_sum, two_sum

TANH32, TANH64 = Pieces(t.TANH_SLOPE32, t.TANH_PIECES32), Pieces(t.TANH_SLOPE64, t.TANH_PIECES64)
FLAT = {32: 9.5, 64: 19.07}  # from there on tanh is 1


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
    if m.bits == 64 and not m.has_tables:
        return _tanh_of_exponential(m, x)
    pieces = TANH32 if m.bits == 32 else TANH64
    return m.copysign(by_pieces(m, m.minimum(FLAT[m.bits], m.abs(x)), pieces), x)


def _tanh_of_exponential(m: Writer, x: str) -> str:
    """f64: t / (t + 2) with t = e^(2|x|) - 1; the quotient takes back what rounding took from it and from both."""
    size = m.minimum(format_of(m).flat, m.abs(x))
    u, more = expm1_twice(m, m.add(size, size))
    divisor, lost = quick_two_sum(m, 2.0, u)  # which of them is larger makes no difference: the sum less 2 is exact
    inverse = m.div(1.0, divisor)
    y = m.mul(u, inverse)
    off = m.add(m.fma(m.neg(y), lost, cancelling(m, m.neg(y), divisor, u)), more)
    return m.copysign(m.fma(off, inverse, y), x)


# ---- inverses -----------------------------------------------------------------------------------
def _log_beside_one(m: Writer, u: str, low: str, large: str, x: str) -> str:
    """log(1 + u + low); log(2 x) where large."""
    v, lost = two_sum(m, u, 1.0)
    v, lost = m.select(large, x, v), m.select(large, 0.0, m.add(lost, low))
    s = split(m, v, lost)
    return log_core(m, replace(s, k=m.add(s.k, m.select(large, 1.0, 0.0))))


def _is_large(m: Writer, a: str) -> str:
    """Whether the square of a makes 1 vanish."""
    return m.compare("ge", a, 2.0 ** (format_of(m).mantissa // 2 + 2))


def arcsinh(m: Writer, x: str) -> str:
    """log(a + sqrt(a^2 + 1)); in f32 a polynomial below 1, in f64 as log1p(a + a^2 / (1 + sqrt(1 + a^2)))."""
    a = m.abs(x)
    large = _is_large(m, a)
    square = m.mul(a, a)
    root = m.sqrt(m.add(square, 1.0))
    if m.bits == 32:
        more, low = quick_two_sum(m, a, m.sub(root, 1.0))
        y = _log_beside_one(m, more, low, large, a)
        y = m.select(m.compare("lt", a, 1.0), odd(m, a, square, t.ASINH32), y)
    else:
        more, low = quick_two_sum(m, a, m.div(square, m.add(root, 1.0)))
        y = _log_beside_one(m, more, low, large, a)
        y = m.select(m.compare("lt", a, 2.0 ** -28), a, y)
    return m.copysign(y, x)


def arccosh(m: Writer, x: str) -> str:
    """log1p(d + sqrt(2 d + d^2)) with d = x - 1."""
    d = m.sub(x, 1.0)
    u, low = two_sum(m, d, m.sqrt(m.fma(d, d, m.add(d, d))))
    y = _log_beside_one(m, u, low, _is_large(m, x), x)
    return m.select(m.compare("ge", x, 1.0), y, NAN)


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
