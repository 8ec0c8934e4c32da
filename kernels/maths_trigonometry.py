"""Sines and tangents.

Arguments are reduced by pi / 2 in four parts up to 1.6 million and by 2 / pi to 192 bits beyond (Payne and Hanek), so
that no argument loses precision.
"""
from __future__ import annotations

import itertools

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_writer import Writer, cancelling, horner, polynomial, quick_two_sum, two_product, two_sum

INF, NAN = float("inf"), float("nan")
TWO_OVER_PI = 0.6366197723675814
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
HALF_PI_REST = -1.4973849048591698e-33  # of pi / 2, beyond both
# pi / 2: three parts of 33 bits, whose products with 20-bit numbers are exact, and a rest.
HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
NEAR64 = 2.0 ** 20 * 1.5
# For f32 with fma: Cody and Waite's three constants, good to 71476.
HALF_PI_SINGLE = (float.fromhex("0x1.921fb0p+0"), float.fromhex("0x1.5110b4p-22"), float.fromhex("0x1.846988p-48"))
NEAR32 = 71476.0


def _reduce(m: Writer, x: str) -> tuple[str, str, str]:
    """f64: the quadrant as an integer-valued float, and the rest as high + low, for |x| < NEAR64."""
    n = m.round(m.mul(x, TWO_OVER_PI))
    if m.has_fma:
        return (n, *_without(m, x, n, (*HALF_PI, HALF_PI_REST)))
    r = m.sub(x, m.mul(n, HALF_PI_PARTS[0]))
    r, e1 = two_sum(m, r, m.mul(n, -HALF_PI_PARTS[1]))
    r, e2 = two_sum(m, r, m.mul(n, -HALF_PI_PARTS[2]))
    low = m.add(m.fma(n, -HALF_PI_PARTS[3], e2), e1)
    return (n, *quick_two_sum(m, r, low))


def _without(m: Writer, x: str, n: str, parts: tuple[float, float, float]) -> tuple[str, str]:
    """x - n pi / 2 in parts, high + low, by fused operations: what is left by the first part is exact."""
    first = m.fma(n, -parts[0], x)
    r = m.fma(n, -parts[1], first)
    taken = m.sub(first, r)
    low = m.add(m.fma(n, -parts[1], taken), m.sub(m.sub(first, taken), r))
    return r, m.fma(n, -parts[2], low)


def _reduce_far(m: Writer, x: str) -> tuple[str, str, str]:
    """The same for |x| >= NEAR64: the bits of 2 / pi that matter, times the significand, modulo 4."""
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
    n = m.to_float(m.iand(quadrant, 3))
    return tuple(m.select(sign, m.neg(v), v) for v in (n, main, low))  # type: ignore[return-value]


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


def _sin_cos(m: Writer, r: str, low: str | None) -> tuple[str, str]:
    """sin and cos of r + low for |r| <= pi / 4."""
    if low is not None:
        (sine, more), (cosine, rest) = _sin_cos_twice(m, r, low)
        return m.add(sine, more), m.add(cosine, rest)
    u = m.mul(r, r)
    cube = m.mul(polynomial(m, u, t.SIN32, t.SIN64), m.mul(u, r))
    one = m.fma(u, -0.5, 1.0)
    return m.add(cube, r), m.fma(m.mul(u, u), polynomial(m, u, t.COS32, t.COS64), one)


def _sin_cos_twice(m: Writer, r: str, low: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The same, each as a sum of which the second part is far smaller."""
    u = m.mul(r, r)
    cube = m.mul(polynomial(m, u, t.SIN32, t.SIN64), m.mul(u, r))
    half = m.mul(u, 0.5)
    one = m.sub(1.0, half)
    lost = m.sub(m.sub(1.0, one), half)
    tail = m.fma(m.mul(u, u), polynomial(m, u, t.COS32, t.COS64), m.fma(m.neg(r), low, lost))
    return (r, m.fma(low, one, cube)), (one, tail)


def _turned(m: Writer, n: str, s: str, c: str, quarter: int) -> str:
    """sin(r + (n + quarter) pi / 2)."""
    q = m.iadd(m.to_int(n), quarter)
    y = m.select(m.icompare("eq", m.iand(q, 1), 0), s, c)
    return m.from_bits(m.ixor(m.bits_of(y), m.shl(m.iand(q, 2), m.bits - 2)))


def _circular(m: Writer, x: str, quarter: int) -> str:
    """sin (quarter 0) or cos (1)."""
    x = m.select(m.compare("lt", m.abs(x), INF), x, NAN)
    if m.bits == 32:
        return _circular_single(m, x, quarter)
    n, r, low = _reduce(m, x)
    usual = _turned(m, n, *_sin_cos(m, r, low), quarter)

    def far(inner: Writer, x: str) -> str:
        n, r, low = _reduce_far(inner, x)
        return inner.add(_turned(inner, n, *_sin_cos(inner, r, low), quarter), inner.sub(x, x))
    return m.rarely(m.compare("gt", m.abs(x), NEAR64), usual, lambda inner: inner.apart(f"circular{quarter}_far", (x,), far))


def _reduce_single(m: Writer, x: str) -> tuple[str, str]:
    """f32: the quadrant and the rest, for |x| < NEAR32."""
    n = m.round(m.mul(x, TWO_OVER_PI))
    r = x
    for part in HALF_PI_SINGLE:
        r = m.fma(n, -part, r)
    return n, r


def _circular_single(m: Writer, x: str, quarter: int) -> str:
    n, r = _reduce_single(m, x)
    usual = _turned(m, n, *_sin_cos(m, r, None), quarter)

    def in_double(inner: Writer, x: str) -> str:
        return inner.narrow(_circular(inner.wide, inner.widen(x), quarter))
    return m.rarely(m.compare("gt", m.abs(x), NEAR32), usual,
                    lambda inner: inner.apart(f"circular{quarter}_wide", (x,), in_double))


def sin(m: Writer, x: str) -> str:
    y = _circular(m, x, 0)
    return m.select(m.compare("eq", x, 0.0), x, y)


def cos(m: Writer, x: str) -> str:
    return _circular(m, x, 1)


def tan(m: Writer, x: str) -> str:
    bounded = m.select(m.compare("lt", m.abs(x), INF), x, NAN)
    y = _tan_single(m, bounded) if m.bits == 32 else _tan_double(m, bounded)
    return m.select(m.compare("eq", x, 0.0), x, y)


def _tan_single(m: Writer, x: str) -> str:
    """r + r^3 P(r^2), and -1 over that in odd quadrants; both with what rounding took from r, whose slope is 1 + tan(r)^2."""
    n = m.round(m.mul(x, TWO_OVER_PI))
    r, lost = _without(m, x, n, HALF_PI_SINGLE)
    u = m.mul(r, r)
    cube = m.mul(m.mul(horner(m, u, t.TAN32), u), r)
    near = m.add(r, cube)
    y = m.add(r, m.add(cube, m.fma(m.mul(near, near), lost, lost)))
    usual = m.select(m.icompare("ne", m.iand(m.to_int(n), 1), 0), m.div(-1.0, y), y)

    def in_double(inner: Writer, x: str) -> str:
        return inner.narrow(_tan_double(inner.wide, inner.widen(x)))
    return m.rarely(m.compare("gt", m.abs(x), NEAR32), usual, lambda inner: inner.apart("tan_wide", (x,), in_double))


def _tan_double(m: Writer, x: str) -> str:
    """sin / cos, turned over in odd quadrants; the quotient takes back what rounding took from it and from both."""

    def ratio(inner: Writer, n: str, r: str, low: str) -> str:
        (s, s_low), (c, c_low) = (quick_two_sum(inner, *pair) for pair in _sin_cos_twice(inner, r, low))
        odd = inner.icompare("ne", inner.iand(inner.to_int(n), 1), 0)
        above, above_low = inner.select(odd, inner.neg(c), s), inner.select(odd, inner.neg(c_low), s_low)
        below, below_low = inner.select(odd, s, c), inner.select(odd, s_low, c_low)
        inverse = inner.div(1.0, below)
        y = inner.mul(above, inverse)
        rest = inner.fma(inner.neg(y), below_low, cancelling(inner, inner.neg(y), below, above))
        return inner.fma(inner.add(rest, above_low), inverse, y)

    def far(inner: Writer, x: str) -> str:
        return ratio(inner, *_reduce_far(inner, x))
    return m.rarely(m.compare("gt", m.abs(x), NEAR64), ratio(m, *_reduce(m, x)),
                    lambda inner: inner.apart("tan_far", (x,), far))
