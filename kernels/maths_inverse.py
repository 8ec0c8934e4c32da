"""Inverses of sine, cosine and tangent.

Guarantees are those of `kernels.maths`.
"""
from __future__ import annotations

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_writer import Writer, cancelling, estrin, polynomial, quick_two_sum

INF, NAN = float("inf"), float("nan")
HALF_PI32 = (1.5707963705062866, -4.371139000186241e-08)
HALF_PI64 = (1.5707963267948966, 6.123233995736766e-17)

# From where on the arc tangent is taken beside that of which number, high and low.
ATAN2_STEPS = tuple((k / 2 - 0.25, k / 2, (t.ATAN_OF64[k], t.ATAN_LOST64[k])) for k in (1, 2))


def half_pi(m: Writer) -> tuple[float, float]:
    """pi / 2, high and low; twice that is pi to the same precision."""
    return HALF_PI32 if m.bits == 32 else HALF_PI64


# ---- sine and cosine ----------------------------------------------------------------------------
def _asin_rest(m: Writer, s: str, u: str) -> str:
    """asin(s) - s for u = s^2 <= 1/4."""
    return m.mul(m.mul(polynomial(m, u, t.ASIN32, t.ASIN64), u), s)


def _folded(m: Writer, x: str) -> tuple[str, str, str]:
    """Whether |x| > 1/2; then (1 - |x|) / 2, and else x^2; its root, which is |x| then."""
    a = m.abs(x)
    far = m.compare("gt", a, 0.5)
    u = m.select(far, m.fma(a, -0.5, 0.5), m.mul(x, x))
    return far, u, m.select(far, m.sqrt(u), a)


def arcsin(m: Writer, x: str) -> str:
    """Beyond 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    high, low = half_pi(m)
    far, u, s = _folded(m, x)
    rest = _asin_rest(m, s, u)
    turned, lost = quick_two_sum(m, high, m.mul(s, -2.0))
    turned = m.add(turned, m.add(lost, m.fma(rest, -2.0, low)))
    return m.copysign(m.select(far, turned, m.add(s, rest)), x)


def arccos(m: Writer, x: str) -> str:
    """pi/2 - asin(x); beyond 1/2 from 2 asin(sqrt((1 - |x|) / 2)), taken from pi where x is negative."""
    high, low = half_pi(m)
    far, u, s = _folded(m, x)
    rest = _asin_rest(m, s, u)
    negative = m.compare("lt", x, 0.0)
    factor = m.select(far, 2.0, -1.0)
    factor = m.select(negative, m.neg(factor), factor)
    whole = m.select(negative, 2 * high, 0.0), m.select(negative, 2 * low, 0.0)
    return m.add(m.fma(s, factor, m.select(far, whole[0], high)), m.fma(rest, factor, m.select(far, whole[1], low)))


# ---- tangent ------------------------------------------------------------------------------------
def arctan(m: Writer, x: str) -> str:
    a = m.abs(x)
    return m.copysign(_arctan_single(m, a) if m.bits == 32 else _arctan_double(m, a), x)


def _arctan_single(m: Writer, a: str) -> str:
    """Beyond 1: pi/2 + atan(-1 / a)."""
    steep = m.compare("gt", a, 1.0)
    q = m.select(steep, m.div(-1.0, a), a)
    rest = m.mul(m.mul(polynomial(m, u := m.mul(q, q), t.ATAN_WIDE32), u), q)
    high, low = (m.select(steep, half, 0.0) for half in HALF_PI32)
    return m.add(m.add(high, q), m.add(rest, low))


def _arctan_double(m: Writer, a: str) -> str:
    """atan(c) + atan((a - c) / (1 + a c)) with c the half that is next to a - 3/16, and infinity instead of 15/2."""
    magic, last = 1.5 * 2.0 ** 51, 7.5  # numbers beside it are halves
    beside = m.add(m.sub(m.minimum(last + 0.25, a), 3 / 16), magic)
    c, index = m.sub(beside, magic), m.bits_of(beside)
    endless = m.compare("ge", c, last)
    up = m.select(endless, a, m.fma(c, a, 1.0))
    q = m.div(m.select(endless, -1.0, m.sub(a, c)), up)
    u = m.mul(q, q)
    of, lost = m.tables((t.ATAN_OF64, t.ATAN_LOST64), index)
    rest = m.fma(m.mul(polynomial(m, u, (), t.ATAN_MIDDLE64), u), q, lost)
    return m.add(of, m.add(q, rest))


def arctan2(m: Writer, y: str, x: str) -> str:
    return _arctan2_single(m, y, x) if m.bits == 32 else _arctan2_double(m, y, x)


def _arctan2_single(m: Writer, y: str, x: str) -> str:
    """The angle of the point that lies below the diagonal of the first quadrant, turned to where (x, y) is."""
    a, b = m.abs(y), m.abs(x)
    steep = m.compare("gt", a, b)
    down, up = m.select(steep, b, a), m.select(steep, a, b)
    endless = m.both(m.compare("eq", down, INF), m.compare("eq", up, INF))
    down, up = m.select(endless, 1.0, down), m.select(m.either(endless, m.compare("eq", up, 0.0)), 1.0, up)
    q = m.div(down, up)
    left = m.icompare("lt", m.bits_of(x), 0)
    q = m.select(m.either(m.both(steep, m.negate(left)), m.both(left, m.negate(steep))), m.neg(q), q)
    rest = m.mul(m.mul(polynomial(m, u := m.mul(q, q), t.ATAN_WIDE32), u), q)
    high, low = (m.select(steep, half, m.select(left, 2 * half, 0.0)) for half in HALF_PI32)
    angle = m.add(m.add(high, q), m.add(rest, low))
    return m.select(m.compare("unordered", x, y), NAN, m.copysign(angle, y))


def _arctan2_double(m: Writer, y: str, x: str) -> str:
    """Numbers of which the larger one is very large or small are rare."""
    least, most = 0x07B << 52, 0x7E7 << 52  # the bits of 2^-900 and 2^1000
    a, b = m.abs(y), m.abs(x)
    large = m.bits_of(m.select(m.compare("gt", a, b), a, b))
    rare = m.ucompare("gt", m.isub(large, least), most - least)
    usual = _angle(m, y, x, *_below_diagonal(m, a, b))
    return m.rarely(rare, usual, lambda inner: inner.apart("arctan2_far", (y, x), _arctan2_far))


def _below_diagonal(m: Writer, a: str, b: str) -> tuple[str, str, str]:
    """Whether a is larger than b; the smaller one, and the other."""
    steep = m.compare("gt", a, b)
    return steep, m.select(steep, b, a), m.select(steep, a, b)


def _angle(m: Writer, y: str, x: str, steep: str, down: str, up: str) -> str:
    """The angle of (x, y), down / up being its tangent in the eighth of the plane where it is below 1: that of 0, 1/2 or 1 plus
    atan of the small rest."""
    c, angle = m.constant(0.0), (m.constant(0.0), m.constant(0.0))
    for first, middle, of in ATAN2_STEPS:
        beyond = m.compare("ge", down, m.mul(up, first))
        c = m.select(beyond, middle, c)
        angle = m.select(beyond, of[0], angle[0]), m.select(beyond, of[1], angle[1])
    rest = m.div(cancelling(m, m.neg(c), up, down), m.fma(c, down, up))
    u = m.mul(rest, rest)
    tail = m.fma(m.mul(estrin(m, u, t.ATAN64), u), rest, angle[1])
    high, low = quick_two_sum(m, angle[0], rest)
    low = m.add(low, tail)
    left = m.icompare("lt", m.bits_of(x), 0)
    backwards = m.differ(steep, left)
    high, low = m.select(backwards, m.neg(high), high), m.select(backwards, m.neg(low), low)
    base, base_low = (m.select(steep, half, m.select(left, 2 * half, 0.0)) for half in HALF_PI64)
    turned, lost = quick_two_sum(m, base, high)
    return m.copysign(m.add(turned, m.add(lost, m.add(low, base_low))), y)


def _arctan2_far(m: Writer, y: str, x: str) -> str:
    a, b = m.abs(y), m.abs(x)
    steep, down, up = _below_diagonal(m, a, b)
    both = m.both(m.compare("eq", a, INF), m.compare("eq", b, INF))
    down, up = m.select(both, 1.0, down), m.select(both, 1.0, up)
    angle = _angle(m, y, x, steep, *_moderate(m, down, up))
    return m.select(m.compare("unordered", x, y), NAN, angle)


def _moderate(m: Writer, down: str, up: str) -> tuple[str, str]:
    """Scaled by a power of two so that neither sums nor quotients overflow or lose denormal bits; inf and 0 as 1."""
    small = m.compare("lt", up, 2.0 ** -900)
    big = m.compare("gt", up, 2.0 ** 1000)
    factor = m.select(small, 2.0 ** 120, m.select(big, 2.0 ** -4, 1.0))  # a result that is denormal has all its bits
    up = m.select(m.compare("eq", up, 0.0), 1.0, up)
    down, up = m.mul(down, factor), m.mul(up, factor)
    endless = m.compare("eq", up, INF)
    return m.select(endless, 0.0, down), m.select(endless, 1.0, up)
