"""Sines and tangents.

Arguments are reduced by pi (sines) or pi / 2 in parts up to 1.6 million (f32: 71476), and by 2 / pi to 192 bits beyond (Payne
and Hanek), so that no argument loses precision.
"""
from __future__ import annotations

import itertools

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_writer import Writer, polynomial, quick_two_sum, two_product, two_sum

TWO_OVER_PI = 0.6366197723675814
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
# The same for f64 with fma; none negative, as what 0 times them is taken from leaves -0.
HALF_PI_DOUBLE = (1.5707963267948966, 6.123233995736765e-17, 1.082856673921914e-32)
# pi / 2: three parts of 33 bits, whose products with 20-bit numbers are exact, and a rest.
HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
NEAR64 = 2.0 ** 20 * 1.5
# For f32 with fma: Cody and Waite's three constants, good to 71476.
HALF_PI_SINGLE = (float.fromhex("0x1.921fb0p+0"), float.fromhex("0x1.5110b4p-22"), float.fromhex("0x1.846988p-48"))
NEAR32 = 71476.0


def _is_far(m: Writer, x: str) -> str:
    """Whether only `_reduce_far` takes x; infinities too."""
    return m.compare("gt", m.abs(x), NEAR32 if m.bits == 32 else NEAR64)


def _whole(m: Writer, x: str, factor: float, more: float = 0.0) -> tuple[str, str]:
    """x factor + more to the nearest integer: as a float, and the last bits of it as an integer."""
    magic = 1.5 * 2.0 ** (23 if m.bits == 32 else 52)
    beside = m.add(m.fma(x, factor, more), magic) if more else m.fma(x, factor, magic)
    return m.sub(beside, magic), m.bits_of(beside)


def _without(m: Writer, x: str, n: str) -> tuple[str, str]:
    """x - n pi / 2, |x| < NEAR64, as high + low."""
    if m.has_fma:
        return _without_fused(m, x, n, HALF_PI_SINGLE if m.bits == 32 else HALF_PI_DOUBLE)
    return _without_unfused(m, x, n, HALF_PI_PARTS)


def _without_unfused(m: Writer, x: str, n: str, parts: tuple[float, ...]) -> tuple[str, str]:
    r = m.sub(x, m.mul(n, parts[0]))
    r, e1 = two_sum(m, r, m.mul(n, -parts[1]))
    r, e2 = two_sum(m, r, m.mul(n, -parts[2]))
    r, low = quick_two_sum(m, r, m.add(m.fma(n, -parts[3], e2), e1))
    return m.select(m.compare("eq", n, 0.0), x, r), low  # -0 stays


def _without_fused(m: Writer, x: str, n: str, parts: tuple[float, ...]) -> tuple[str, str]:
    """What is left by the first part is exact."""
    first = m.fma(n, -parts[0], x)
    r = m.fma(n, -parts[1], first)
    taken = m.sub(first, r)
    low = m.add(m.fma(n, -parts[1], taken), m.sub(m.sub(first, taken), r))
    return r, m.fma(n, -parts[2], low)


def _reduce_far(m: Writer, x: str) -> tuple[str, str, str]:
    """f64, |x| >= NEAR64: a quadrant, an integer, and the rest as high + low; the bits of 2 / pi that matter, times the
    significand, modulo 4."""
    bits = m.bits_of(x)
    exponent = m.isub(m.iand(m.lshr(bits, 52), 2047), 1023)
    exponent = m.iselect(m.icompare("lt", exponent, 20), 20, exponent)
    exponent = m.iselect(m.icompare("gt", exponent, 1023), 1023, exponent)
    number = m.ior(m.iand(bits, (1 << 52) - 1), 1 << 52)
    start = m.iadd(exponent, 64 - 52 - 2)
    word, shift = m.ashr(start, 6), m.iand(start, 63)
    words = [m.integer_table(t.TWO_OVER_PI, m.iadd(word, k)) for k in range(4)]
    w = [m.ior(m.shl(a, shift), m.lshr(m.lshr(b, 1), m.isub(63, shift))) for a, b in itertools.pairwise(words)]
    middle, carry = _add_carry(m, m.imul(number, w[1]), _high_product(m, number, w[2]))
    high = m.iadd(m.iadd(m.imul(number, w[0]), _high_product(m, number, w[1])), carry)
    quadrant = m.ashr(m.iadd(high, 1 << 61), 62)
    fraction = m.isub(high, m.shl(quadrant, 62))
    hi, lo = _fraction(m, fraction, middle)
    main, lost = two_product(m, hi, HALF_PI[0])
    low = m.add(m.fma(hi, HALF_PI[1], lost), m.mul(lo, HALF_PI[0]))
    main, low = quick_two_sum(m, main, low)
    sign = m.icompare("lt", bits, 0)
    quadrant = m.iselect(sign, m.isub(0, quadrant), quadrant)
    return quadrant, m.select(sign, m.neg(main), main), m.select(sign, m.neg(low), low)


def _fraction(m: Writer, high: str, low: str) -> tuple[str, str]:
    """The signed 128-bit number (high, low) times 2^-126 as two floats."""
    negative = m.icompare("lt", high, 0)
    borrow = m.iselect(m.icompare("eq", low, 0), 1, 0)
    size = m.iselect(negative, m.iadd(m.ixor(high, -1), borrow), high)
    rest = m.iselect(negative, m.isub(0, low), low)
    top = m.to_float(m.iand(size, -2048))
    bottom = m.to_float(m.iand(size, 2047))
    tail = m.mul(m.to_float(m.lshr(rest, 11)), 2.0 ** -53)
    s, e = quick_two_sum(m, top, bottom)
    s, e = quick_two_sum(m, s, m.add(e, tail))
    unit = m.select(negative, -(2.0 ** -62), 2.0 ** -62)
    return m.mul(s, unit), m.mul(e, unit)


def _high_product(m: Writer, a: str, b: str) -> str:
    """The upper 64 bits of the unsigned product, by 32-bit halves."""
    mask = (1 << 32) - 1
    al, ah, bl, bh = m.iand(a, mask), m.lshr(a, 32), m.iand(b, mask), m.lshr(b, 32)
    low, cross = m.imul(al, bl), m.imul(ah, bl)
    middle = m.iadd(cross, m.lshr(low, 32))
    other = m.iadd(m.imul(al, bh), m.iand(middle, mask))
    return m.iadd(m.iadd(m.imul(ah, bh), m.lshr(middle, 32)), m.lshr(other, 32))


def _add_carry(m: Writer, a: str, b: str) -> tuple[str, str]:
    total = m.iadd(a, b)
    return total, m.iselect(m.ucompare("lt", total, a), 1, 0)


# ---- sine and cosine ----------------------------------------------------------------------------
def _sine(m: Writer, r: str, turns: str) -> str:
    """sin(r) for |r| <= pi / 2, with the other sign where turns is odd."""
    u = m.mul(r, r)
    sixth, rest = t.SIXTH32 if m.bits == 32 else t.SIXTH64
    beside = m.fma(u, sixth, m.mul(u, m.fma(polynomial(m, u, t.SIN32, t.SIN64), u, rest)))  # sin(r) / r - 1
    y = m.fma(beside, r, r)
    return m.copysign(y, m.from_bits(m.ixor(m.bits_of(r), m.shl(turns, m.bits - 1))))  # -0 has its own


def _circular(m: Writer, x: str, quarter: int) -> str:
    """sin (quarter 0) or cos (1), the sine of x + pi / 2: rounding of the rest is less than an ULP of the result."""
    n, turns = _whole(m, x, TWO_OVER_PI / 2, quarter / 2)
    n = m.sub(n, 0.5) if quarter else n
    if m.has_fma:
        r = x
        for part in HALF_PI_SINGLE if m.bits == 32 else HALF_PI_DOUBLE:
            r = m.fma(n, -2 * part, r)
    else:
        r, _ = _without_unfused(m, x, n, tuple(2 * part for part in HALF_PI_PARTS))
    return m.rarely(_is_far(m, x), _sine(m, r, turns), lambda inner: inner.apart(
        f"circular{quarter}_far", (x,), lambda last, x: _circular_far(last, x, quarter)))


def _circular_far(m: Writer, x: str, quarter: int) -> str:
    if m.bits == 32:
        return m.narrow(_circular(m.wide, m.widen(x), quarter))
    quadrant, r, low = _reduce_far(m, x)
    quadrant = m.iadd(quadrant, quarter)
    size = m.abs(r)  # cos(r) is the sine of pi / 2 - |r|
    beside, lost = quick_two_sum(m, HALF_PI[0], m.neg(size))
    beside = m.add(beside, m.add(lost, m.sub(HALF_PI[1], m.mul(m.copysign(1.0, r), low))))
    odd = m.icompare("ne", m.iand(quadrant, 1), 0)
    return m.add(_sine(m, m.select(odd, beside, r), m.ashr(quadrant, 1)), m.sub(x, x))  # NaN for infinities


def sin(m: Writer, x: str) -> str:
    return _circular(m, x, 0)


def cos(m: Writer, x: str) -> str:
    return _circular(m, x, 1)


# ---- tangent ------------------------------------------------------------------------------------
def _tangent(m: Writer, r: str, low: str, quadrant: str) -> str:
    """tan(r + low) for |r| <= pi / 4, or -1 over that in odd quadrants. low counts about 1 + 3/2 r^2 times, the slope."""
    u = m.mul(r, r)
    rest = m.fma(m.mul(polynomial(m, u, t.TAN32, t.TAN64), u), r, m.mul(low, m.fma(u, 1.5, 1.0)))
    y = m.copysign(m.add(r, rest), r)  # -0 stays
    return m.select(m.icompare("ne", m.iand(quadrant, 1), 0), m.div(-1.0, y), y)


def tan(m: Writer, x: str) -> str:
    n, quadrant = _whole(m, x, TWO_OVER_PI)
    y = _tangent(m, *_without(m, x, n), quadrant)
    return m.rarely(_is_far(m, x), y, lambda inner: inner.apart("tan_far", (x,), _tan_far))


def _tan_far(m: Writer, x: str) -> str:
    if m.bits == 32:
        return m.narrow(tan(m.wide, m.widen(x)))
    quadrant, r, low = _reduce_far(m, x)
    return m.add(_tangent(m, r, low, quadrant), m.sub(x, x))  # NaN for infinities
