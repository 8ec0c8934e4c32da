"""Special functions of real numbers, written once against `Arithmetic`: NumPy's for their meaning, registers in kernels.

Guarantees, f64: a few units in the last place over the whole range, but for zeros of log-gamma, digamma and the incomplete
functions, where the error is absolute; NaN stays; poles, infinities and domain errors as in SciPy.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from loopwright.ir import special_tables as t

Number = Any  # a register or constant of the arithmetic
INF, NAN = math.inf, math.nan


class Arithmetic(Protocol):
    """f64. minimum and maximum give the second operand where it is NaN. Relations of `compare` are lt le eq ne gt ge (false for
    NaN but ne) and unordered."""

    def constant(self, value: float) -> Any: ...
    def add(self, a: Any, b: Any) -> Any: ...
    def sub(self, a: Any, b: Any) -> Any: ...
    def mul(self, a: Any, b: Any) -> Any: ...
    def div(self, a: Any, b: Any) -> Any: ...
    def fma(self, a: Any, b: Any, c: Any) -> Any: ...
    def neg(self, a: Any) -> Any: ...
    def abs(self, a: Any) -> Any: ...
    def sqrt(self, a: Any) -> Any: ...
    def floor(self, a: Any) -> Any: ...
    def round(self, a: Any) -> Any: ...
    def copysign(self, a: Any, b: Any) -> Any: ...
    def minimum(self, a: Any, b: Any) -> Any: ...
    def maximum(self, a: Any, b: Any) -> Any: ...
    def compare(self, relation: str, a: Any, b: Any) -> Any: ...
    def select(self, mask: Any, a: Any, b: Any) -> Any: ...
    def both(self, a: Any, b: Any) -> Any: ...
    def either(self, a: Any, b: Any) -> Any: ...
    def bits_of(self, a: Any) -> Any: ...
    def from_bits(self, a: Any) -> Any: ...
    def iand(self, a: Any, b: Any) -> Any: ...
    def exp(self, a: Any) -> Any: ...
    def log(self, a: Any) -> Any: ...
    def log1p(self, a: Any) -> Any: ...
    def sin(self, a: Any) -> Any: ...
    def tan(self, a: Any) -> Any: ...
    def erf(self, a: Any) -> Any: ...
    def power(self, a: Any, b: Any) -> Any: ...
    def rarely(self, mask: Any, usual: Any, unusual: Callable[[Any], Any]) -> Any: ...
    def repeat(self, floats: list[Any], body: Callable[[Any, list[Any]], tuple[Any, list[Any]]]) -> list[Any]: ...


Function = Callable[..., Number]


# ---- polynomials ------------------------------------------------------------------------------------
def _polynomial(m: Arithmetic, x: Number, coefficients: tuple[float, ...]) -> Number:
    """Highest coefficient first."""
    result = m.fma(coefficients[0], x, coefficients[1])
    for c in coefficients[2:]:
        result = m.fma(result, x, c)
    return result


def _chebyshev(m: Arithmetic, x: Number, coefficients: tuple[float, ...]) -> Number:
    """A sum of Chebyshev polynomials by Clenshaw's recurrence."""
    twice = m.add(x, x)
    after, now = coefficients[-1], m.fma(coefficients[-1], twice, coefficients[-2])
    for c in reversed(coefficients[1:-2]):
        after, now = now, m.add(m.sub(m.mul(now, twice), after), c)
    return m.add(m.sub(m.mul(now, x), after), coefficients[0])


# ---- error function ---------------------------------------------------------------------------------
def _scaled_erfc(m: Arithmetic, x: Number) -> Number:
    """e^(x^2) erfc(x) for x >= 1/2: p(t) / (1 + 2 x) with t = (x - 3.75) / (x + 3.75) (Shepherd and Laframboise)."""
    p = _polynomial(m, m.sub(m.sub(1.0, m.div(7.5, m.add(x, 3.75))), 0.1), t.ERFCX)
    return m.div(p, m.fma(2.0, x, 1.0))


def _gaussian(m: Arithmetic, x: Number, sign: float) -> Number:
    """e^(sign x^2), in two factors: the square of the first is exact."""
    upper = m.from_bits(m.iand(m.bits_of(x), -(1 << 27)))
    rest = m.exp(m.mul(m.mul(m.sub(x, upper), m.add(x, upper)), sign))
    return m.mul(m.exp(m.mul(m.mul(upper, upper), sign)), rest)


def erfc(m: Arithmetic, x: Number) -> Number:
    """1 - erf(x) below 1/2; beyond it e^(-x^2) erfcx(x)."""
    c = m.maximum(0.5, m.minimum(28.0, x))
    far = m.mul(_gaussian(m, c, -1.0), _scaled_erfc(m, c))
    return m.select(m.compare("lt", x, 0.5), m.sub(1.0, m.erf(x)), far)


def erfcx(m: Arithmetic, x: Number) -> Number:
    """e^(x^2) erfc(x)"""
    near = m.mul(_gaussian(m, m.maximum(-28.0, m.minimum(0.5, x)), 1.0), m.sub(1.0, m.erf(x)))
    return m.select(m.compare("lt", x, 0.5), near, _scaled_erfc(m, m.maximum(0.5, x)))


def _inverse_erf(m: Arithmetic, w: Number) -> Number:
    """erfinv(x) / x for w = -log(1 - x^2), as polynomials in w or its root (Giles)."""
    near = _polynomial(m, m.sub(w, 3.125), t.ERFINV_NEAR)
    return m.rarely(m.compare("ge", w, 6.25), near, lambda inner: _inverse_erf_far(inner, w))


def _inverse_erf_far(m: Arithmetic, w: Number) -> Number:
    root = m.sqrt(w)
    middle = _polynomial(m, m.sub(root, 3.25), t.ERFINV_MIDDLE)
    far = _polynomial(m, m.sub(root, 5.03125), t.ERFINV_FAR)
    return m.select(m.compare("lt", w, 16.0), middle, far)


def erfinv(m: Arithmetic, x: Number) -> Number:
    a = m.abs(x)
    w = m.neg(m.log(m.mul(m.sub(1.0, a), m.add(1.0, a))))
    return m.select(m.compare("eq", a, 1.0), m.copysign(INF, x), m.mul(x, _inverse_erf(m, w)))


def ndtri(m: Arithmetic, p: Number) -> Number:
    """The normal quantile: sqrt(2) erfinv(2 p - 1), whose 1 - x^2 is 4 p (1 - p)."""
    w = m.neg(m.add(m.log(m.mul(p, m.sub(1.0, p))), 2 * math.log(2)))
    root = m.sqrt(w)
    tail = _polynomial(m, m.div(m.sub(root, 13.0), m.add(root, 13.0)), t.ERFINV_TAIL)
    scale = m.select(m.compare("lt", w, 36.75390625), _inverse_erf(m, w), tail)
    y = m.mul(m.mul(m.sub(m.add(p, p), 1.0), math.sqrt(2)), scale)
    return m.select(m.compare("eq", p, 0.0), -INF, m.select(m.compare("eq", p, 1.0), INF, y))


# ---- gamma function ---------------------------------------------------------------------------------
HALF_LOG_2PI = 0.9189385332046727


def _shifted(m: Arithmetic, a: Number) -> tuple[Number, Number]:
    """For a in [0, 8): y in [1, 3) that differs from it by a whole number, and the steps down to it (0 below 3)."""
    steps = m.maximum(0.0, m.sub(m.floor(m.minimum(8.0, a)), 2.0))
    return m.select(m.compare("lt", a, 1.0), m.add(a, 1.0), m.sub(m.minimum(8.0, a), steps)), steps


def _lgamma_positive(m: Arithmetic, a: Number) -> Number:
    """For a >= 0. Below 8: from (y - 1) (y - 2) p(y) on [1, 3) by gamma(y + 1) = y gamma(y); then Stirling's formula."""
    y, steps = _shifted(m, a)
    product: Number = 1.0
    for k in range(5):
        product = m.select(m.compare("lt", float(k), steps), m.mul(product, m.add(y, float(k))), product)
    is_small, is_large = m.compare("lt", a, 1.0), m.compare("ge", a, 8.0)
    logarithm = m.log(m.select(m.either(is_small, is_large), a, product))
    u = m.select(is_small, a, m.sub(y, 1.0))
    low, high = _polynomial(m, m.sub(y, 1.5), t.LGAMMA_LOW), _polynomial(m, m.sub(y, 2.5), t.LGAMMA_HIGH)
    base = m.mul(m.mul(u, m.sub(u, 1.0)), m.select(m.compare("lt", y, 2.0), low, high))
    near = m.add(base, m.select(is_small, m.neg(logarithm), logarithm))
    inverse = m.div(1.0, m.maximum(8.0, a))
    rest = m.fma(_polynomial(m, m.sub(m.mul(inverse, inverse), 1 / 128), t.STIRLING), inverse, HALF_LOG_2PI - 0.5)
    far = m.add(m.mul(m.sub(a, 0.5), m.sub(logarithm, 1.0)), rest)
    return m.select(is_large, far, near)


def _turn(m: Arithmetic, a: Number) -> Number:
    """pi times the distance of a to the nearest whole number, with a sign: sin and tan of pi a up to a sign and exactly."""
    return m.mul(m.sub(a, m.round(a)), math.pi)


def lgamma(m: Arithmetic, x: Number) -> Number:
    """log |gamma(x)|; below 0 by gamma(x) gamma(-x) = -pi / (x sin(pi x))."""
    a = m.abs(x)
    positive = _lgamma_positive(m, a)
    sine = m.abs(m.sin(_turn(m, a)))
    negative = m.sub(m.log(m.div(math.pi, m.mul(a, sine))), positive)
    y = m.select(m.compare("lt", x, 0.0), negative, positive)
    return m.select(m.compare("eq", a, INF), INF, y)


def _digamma_positive(m: Arithmetic, a: Number) -> Number:
    """For a > 0. Below 8: from (y - root) p(y) on [1, 3) by digamma(y + 1) = digamma(y) + 1 / y."""
    y, steps = _shifted(m, a)
    numerator: Number = 0.0
    divisor: Number = 1.0
    for k in range(5):  # numerator / divisor = 1 / y + 1 / (y + 1) + ...
        more, term = m.compare("lt", float(k), steps), m.add(y, float(k))
        numerator = m.select(more, m.fma(numerator, term, divisor), numerator)
        divisor = m.select(more, m.mul(divisor, term), divisor)
    is_small = m.compare("lt", a, 1.0)
    sums = m.div(m.select(is_small, -1.0, numerator), m.select(is_small, a, divisor))
    low, high = _polynomial(m, m.sub(y, 1.5), t.DIGAMMA_LOW), _polynomial(m, m.sub(y, 2.5), t.DIGAMMA_HIGH)
    distance = m.sub(m.sub(y, t.DIGAMMA_ROOT[0]), t.DIGAMMA_ROOT[1])
    near = m.fma(distance, m.select(m.compare("lt", y, 2.0), low, high), sums)
    large = m.maximum(8.0, a)
    inverse = m.div(1.0, large)
    square = m.mul(inverse, inverse)
    rest = m.fma(_polynomial(m, m.sub(square, 1 / 128), t.DIGAMMA_REST), square, m.mul(inverse, 0.5))
    return m.select(m.compare("ge", a, 8.0), m.sub(m.log(large), rest), near)


def digamma(m: Arithmetic, x: Number) -> Number:
    """The derivative of lgamma; NaN at 0 and below it at whole numbers."""
    a = m.abs(x)
    positive = _digamma_positive(m, a)
    angle = _turn(m, a)
    negative = m.add(positive, m.add(m.div(1.0, a), m.div(math.pi, m.tan(angle))))
    y = m.select(m.compare("gt", x, 0.0), positive, negative)
    return m.select(m.both(m.compare("le", x, 0.0), m.compare("eq", m.round(a), a)), NAN, y)


BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
             -3617 / 10670622842880000, 43867 / 5109094217170944000)  # B(2 k) / (2 k)!


def zeta(m: Arithmetic, s: Number, q: Number) -> Number:
    """The sum of (q + k)^-s over k >= 0, by Euler and Maclaurin from q + 12 on. NaN for s < 1, and for q < 0 but poles."""
    total: Number = 0.0
    for k in range(12):
        total = m.add(total, m.power(m.add(q, float(k)), m.neg(s)))
    a = m.add(q, 12.0)
    last = m.power(a, m.neg(s))
    total = m.add(total, m.fma(last, 0.5, m.div(m.mul(last, a), m.sub(s, 1.0))))
    factor, tail = m.div(m.mul(last, s), a), 0.0
    square = m.mul(a, a)
    for k, bernoulli in enumerate(BERNOULLI):
        tail = m.fma(factor, bernoulli, tail)
        factor = m.div(m.mul(factor, m.mul(m.add(s, 2.0 * k + 1.0), m.add(s, 2.0 * k + 2.0))), square)
    total = m.add(total, m.select(m.compare("eq", last, 0.0), 0.0, tail))
    total = m.select(m.compare("le", q, 0.0), m.select(m.compare("eq", m.floor(q), q), INF, NAN), total)
    total = m.select(m.compare("eq", s, 1.0), INF, m.select(m.compare("lt", s, 1.0), NAN, total))
    first = m.select(m.compare("lt", q, 1.0), INF, m.select(m.compare("eq", q, 1.0), 1.0, 0.0))
    total = m.select(m.compare("eq", s, INF), first, total)
    return m.select(m.compare("unordered", s, q), NAN, total)


# ---- incomplete functions ---------------------------------------------------------------------------
EPSILON = 2.0 ** -53


def _gamma_density(m: Arithmetic, a: Number, x: Number) -> Number:
    """x^a e^-x / gamma(a), around the maximum at a by Stirling's formula where a is large."""
    large = m.maximum(8.0, a)
    off = m.div(m.sub(x, large), large)
    inverse = m.div(1.0, large)
    rest = m.mul(_polynomial(m, m.sub(m.mul(inverse, inverse), 1 / 128), t.STIRLING), inverse)
    far = m.mul(m.exp(m.sub(m.mul(large, m.sub(m.log1p(off), off)), rest)), m.sqrt(m.mul(large, 1 / (2 * math.pi))))
    near = m.exp(m.sub(m.sub(m.mul(a, m.log(x)), x), _lgamma_positive(m, a)))
    return m.select(m.compare("lt", a, 8.0), near, far)


def _gamma_series(m: Arithmetic, a: Number, x: Number) -> list[Number]:
    """The sum of x^n / ((a + 1) ... (a + n)), and its derivative in a; for x < a + 1."""
    def body(m: Arithmetic, now: list[Number]) -> tuple[Number, list[Number]]:
        total, slope, term, change, n = now
        n = m.add(n, 1.0)
        divisor = m.add(a, n)
        term, change = m.div(m.mul(term, x), divisor), m.add(change, m.div(1.0, divisor))
        total, slope = m.add(total, term), m.sub(slope, m.mul(term, change))
        return m.compare("gt", m.mul(term, m.add(change, 1.0)), m.mul(total, EPSILON)), [total, slope, term, change, n]
    one, zero = m.constant(1.0), m.constant(0.0)
    return m.repeat([one, zero, one, zero, zero], body)[:2]


def _gamma_fraction(m: Arithmetic, a: Number, x: Number) -> list[Number]:
    """Legendre's continued fraction of the upper function over the density, and its derivative in a; for x >= a + 1."""
    def body(m: Arithmetic, now: list[Number]) -> tuple[Number, list[Number]]:
        value, slope, c, dc, d, dd, n = now
        n = m.add(n, 1.0)
        top = m.mul(n, m.sub(a, n))
        base = m.add(m.sub(x, a), m.fma(2.0, n, 1.0))
        d2 = m.div(1.0, m.fma(top, d, base))
        dd = m.neg(m.mul(m.mul(d2, d2), m.sub(m.fma(top, dd, m.mul(n, d)), 1.0)))
        dc = m.sub(m.div(m.sub(n, m.div(m.mul(top, dc), c)), c), 1.0)
        c = m.add(base, m.div(top, c))
        step, change = m.mul(d2, c), m.fma(dd, c, m.mul(d2, dc))
        slope = m.fma(slope, step, m.mul(value, change))
        value = m.mul(value, step)
        off = m.maximum(m.abs(m.sub(step, 1.0)), m.abs(change))
        more = m.both(m.compare("gt", off, 4 * EPSILON), m.compare("lt", n, 1e6))
        return more, [value, slope, c, dc, d2, dd, n]
    base = m.add(m.sub(x, a), 1.0)
    d = m.div(1.0, base)
    square = m.mul(d, d)
    return m.repeat([d, square, m.constant(1e300), m.constant(0.0), d, square, m.constant(0.0)], body)[:2]


LARGE = 1e6  # series and fraction take some 9 sqrt(a) terms
NARROW = 0.05  # of a: from farther away large functions are 0 and 1
TEMME = (-281 / 151559100, -571 / 261273600, 1 / 25515, -139 / 777600, 1 / 2835, 1 / 864, -2 / 135, 1 / 12, -1 / 3)
TEMME_NEXT = (-77 / 77760, 1 / 378, -1 / 288, -1 / 540)  # over a


def _gamma_large(m: Arithmetic, a: Number, x: Number, is_low: Number) -> tuple[Number, Number]:
    """As `_gamma_parts` gives them, for a >= LARGE: erfc(sqrt(a h)) / 2 with h = mu - log(1 + mu), mu = x / a - 1, and what
    is left as a series in sqrt(2 h) (Temme)."""
    mu = m.maximum(-NARROW, m.minimum(NARROW, m.div(m.sub(x, a), a)))
    half = _polynomial(m, mu, tuple([(-1.0) ** k / k for k in range(14, 1, -1)]))  # h / mu^2
    logarithm = _polynomial(m, mu, tuple([(-1.0) ** k / (k + 1) for k in range(13, -1, -1)]))  # log(1 + mu) / mu
    root = m.sqrt(m.add(half, half))
    eta, squared = m.mul(mu, root), m.mul(a, m.mul(half, m.mul(mu, mu)))
    density = m.div(m.exp(m.neg(squared)), m.sqrt(m.mul(a, 2 * math.pi)))
    rest = m.add(_polynomial(m, eta, TEMME), m.div(_polynomial(m, eta, TEMME_NEXT), a))
    distance, off = m.copysign(m.sqrt(squared), mu), m.mul(density, rest)
    side = m.select(is_low, -1.0, 1.0)
    value = m.fma(erfc(m, m.mul(side, distance)), 0.5, m.mul(side, off))
    logarithm, ratio = m.mul(logarithm, mu), m.div(logarithm, root)
    bend = _polynomial(m, eta, tuple([k * c for k, c in zip(range(len(TEMME) - 1, 0, -1), TEMME, strict=False)]))
    change = m.sub(m.mul(m.sub(logarithm, m.div(0.5, a)), rest), m.div(m.mul(bend, m.fma(eta, 0.5, ratio)), a))
    return value, m.mul(m.mul(side, density), m.add(ratio, change))


def _gamma_parts(m: Arithmetic, a: Number, x: Number) -> tuple[Number, Number, Number]:
    """Where the series serves; the lower function there and the upper one elsewhere; and its derivative in a."""
    defined = m.both(m.compare("gt", a, 0.0), m.both(m.compare("gt", x, 0.0), m.compare("lt", m.maximum(a, x), INF)))
    far, beyond = m.select(defined, a, 1.0), m.select(defined, x, 1.0)
    is_low, is_large = m.compare("lt", beyond, m.add(far, 1.0)), m.compare("ge", far, LARGE)
    a, x = m.select(is_large, 1.0, far), m.select(is_large, m.select(is_low, 1.0, 3.0), beyond)
    value, slope = _gamma_summed(m, a, x, is_low)
    value = m.rarely(is_large, value, lambda inner: _gamma_large(inner, far, beyond, is_low)[0])
    return is_low, value, m.rarely(is_large, slope, lambda inner: _gamma_large(inner, far, beyond, is_low)[1])


def _gamma_summed(m: Arithmetic, a: Number, x: Number, is_low: Number) -> tuple[Number, Number]:
    """As `_gamma_parts` gives them, by the series and the fraction."""
    density = _gamma_density(m, a, x)
    total, slope = _gamma_series(m, a, m.select(is_low, x, 0.5))
    fraction, fraction_slope = _gamma_fraction(m, a, m.select(is_low, m.add(a, 2.0), x))
    low, high = m.div(m.mul(density, total), a), m.mul(density, fraction)
    growth = m.sub(m.log(x), _digamma_positive(m, a))
    low_slope = m.add(m.mul(low, m.sub(growth, m.div(1.0, a))), m.div(m.mul(density, slope), a))
    high_slope = m.fma(high, growth, m.mul(density, fraction_slope))
    return m.select(is_low, low, high), m.select(is_low, low_slope, high_slope)


def _at_edges(m: Arithmetic, a: Number, x: Number, inside: Number, lower: float, upper: float) -> Number:
    """`inside` for positive finite a and x, `lower` where x is 0 or a infinite, `upper` where x is infinite or a is 0."""
    y = m.select(m.either(m.compare("eq", x, 0.0), m.compare("eq", a, INF)), lower, NAN)
    y = m.select(m.either(m.compare("eq", x, INF), m.both(m.compare("eq", a, 0.0), m.compare("gt", x, 0.0))), upper, y)
    defined = m.both(m.both(m.compare("gt", a, 0.0), m.compare("gt", x, 0.0)), m.compare("lt", m.maximum(a, x), INF))
    y = m.select(defined, inside, y)
    outside = m.either(m.compare("lt", a, 0.0), m.compare("lt", x, 0.0))
    return m.select(m.either(outside, m.compare("unordered", a, x)), NAN, y)


def gammainc(m: Arithmetic, a: Number, x: Number) -> Number:
    """The integral of t^(a - 1) e^-t from 0 to x, over gamma(a)."""
    is_low, value, _ = _gamma_parts(m, a, x)
    return _at_edges(m, a, x, m.select(is_low, value, m.sub(1.0, value)), 0.0, 1.0)


def gammaincc(m: Arithmetic, a: Number, x: Number) -> Number:
    """1 - gammainc(a, x)"""
    is_low, value, _ = _gamma_parts(m, a, x)
    return _at_edges(m, a, x, m.select(is_low, m.sub(1.0, value), value), 1.0, 0.0)


def gammainc_slope(m: Arithmetic, a: Number, x: Number) -> Number:
    """The derivative of gammainc in a."""
    is_low, _, slope = _gamma_parts(m, a, x)
    return _at_edges(m, a, x, m.select(is_low, slope, m.neg(slope)), 0.0, 0.0)


def betainc(m: Arithmetic, a: Number, b: Number, x: Number) -> Number:
    """The integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x, over beta(a, b), by its continued fraction (Lentz)."""
    inside = m.both(m.both(m.compare("gt", a, 0.0), m.compare("gt", b, 0.0)), m.compare("lt", m.maximum(a, b), INF))
    inside = m.both(inside, m.both(m.compare("gt", x, 0.0), m.compare("lt", x, 1.0)))
    p, q, z = m.select(inside, a, 1.0), m.select(inside, b, 1.0), m.select(inside, x, 0.5)
    swapped = m.compare("gt", z, m.div(m.add(p, 1.0), m.add(m.add(p, q), 2.0)))
    logarithms = m.fma(p, m.log(z), m.mul(q, m.log1p(m.neg(z))))
    beta = m.add(_lgamma_positive(m, p), m.sub(_lgamma_positive(m, q), _lgamma_positive(m, m.add(p, q))))
    factor = m.exp(m.sub(logarithms, beta))
    p, q = m.select(swapped, q, p), m.select(swapped, p, q)
    z = m.select(swapped, m.sub(1.0, z), z)
    value = m.div(m.mul(factor, _beta_fraction(m, p, q, z)), p)
    y = m.select(swapped, m.sub(1.0, value), value)
    y = m.select(inside, y, m.select(m.compare("eq", x, 0.0), 0.0, m.select(m.compare("eq", x, 1.0), 1.0, NAN)))
    positive = m.both(m.compare("gt", a, 0.0), m.compare("gt", b, 0.0))
    return m.select(positive, y, NAN)


def _beta_fraction(m: Arithmetic, a: Number, b: Number, x: Number) -> Number:
    total = m.add(a, b)

    def body(m: Arithmetic, now: list[Number]) -> tuple[Number, list[Number]]:
        value, c, d, n = now
        n = m.add(n, 1.0)
        twice = m.fma(2.0, n, a)
        even = m.div(m.mul(m.mul(n, m.sub(b, n)), x), m.mul(m.sub(twice, 1.0), twice))
        odd = m.div(m.mul(m.mul(m.neg(m.add(a, n)), m.add(total, n)), x), m.mul(twice, m.add(twice, 1.0)))
        for top in (even, odd):
            d = m.div(1.0, _not_zero(m, m.fma(top, d, 1.0)))
            c = _not_zero(m, m.add(m.div(top, c), 1.0))
            step = m.mul(d, c)
            value = m.mul(value, step)
        more = m.both(m.compare("gt", m.abs(m.sub(step, 1.0)), 2 * EPSILON), m.compare("lt", n, 1e6))
        return more, [value, c, d, n]
    first = m.div(1.0, _not_zero(m, m.sub(1.0, m.div(m.mul(total, x), m.add(a, 1.0)))))
    return m.repeat([first, m.constant(1.0), first, m.constant(0.0)], body)[0]


def _not_zero(m: Arithmetic, x: Number) -> Number:
    return m.select(m.compare("eq", x, 0.0), 1e-300, x)


# ---- Bessel functions -------------------------------------------------------------------------------
def _bessel(m: Arithmetic, a: Number, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Number, Number, Number]:
    """The series below 8, the one beyond it over sqrt(a), and where that holds."""
    inverse = m.div(1.0, m.maximum(8.0, a))
    below = _chebyshev(m, m.fma(m.minimum(8.0, a), 0.25, -1.0), near)
    return below, m.mul(_chebyshev(m, m.fma(inverse, 16.0, -1.0), far), m.sqrt(inverse)), m.compare("gt", a, 8.0)


def i0e(m: Arithmetic, x: Number) -> Number:
    """e^-|x| I0(x)"""
    near, far, is_far = _bessel(m, m.abs(x), t.I0E_NEAR, t.I0E_FAR)
    return m.select(is_far, far, near)


def i1e(m: Arithmetic, x: Number) -> Number:
    """e^-|x| I1(x)"""
    a = m.abs(x)
    near, far, is_far = _bessel(m, a, t.I1E_NEAR, t.I1E_FAR)
    return m.copysign(m.select(is_far, far, m.mul(near, a)), x)


# ---- NumPy's arithmetic -----------------------------------------------------------------------------
_erf_each = np.frompyfunc(math.erf, 1, 1)


class NumpyArithmetic:
    """Arithmetic on float64 arrays."""

    add, sub, mul, div = np.add, np.subtract, np.multiply, np.divide
    neg, abs, sqrt, floor, round = np.negative, np.abs, np.sqrt, np.floor, np.rint
    copysign, minimum, maximum = np.copysign, np.minimum, np.maximum
    both, either, iand = np.logical_and, np.logical_or, np.bitwise_and
    exp, log, log1p, sin, tan, power = np.exp, np.log, np.log1p, np.sin, np.tan, np.power
    _relations: dict[str, Callable[[Any, Any], Any]] = {
        "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
        "ge": np.greater_equal, "unordered": lambda a, b: np.isnan(a) | np.isnan(b)}

    def constant(self, value: float) -> Any:
        return np.float64(value)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return np.add(np.multiply(a, b), c)

    def erf(self, a: Any) -> Any:
        return np.asarray(_erf_each(a), np.float64)

    def compare(self, relation: str, a: Any, b: Any) -> Any:
        return self._relations[relation](a, b)

    def select(self, mask: Any, a: Any, b: Any) -> Any:
        return np.where(mask, a, b)

    def bits_of(self, a: Any) -> Any:
        return np.asarray(a, np.float64).view(np.int64)

    def from_bits(self, a: Any) -> Any:
        return np.asarray(a, np.int64).view(np.float64)

    def rarely(self, mask: Any, usual: Any, unusual: Callable[[Any], Any]) -> Any:
        return np.where(mask, unusual(self), usual)

    def repeat(self, floats: list[Any], body: Callable[[Any, list[Any]], tuple[Any, list[Any]]]) -> list[Any]:
        """do (mask, floats) = body(self, floats) while any of mask."""
        while True:
            mask, floats = body(self, floats)
            if not np.any(mask):
                return floats


def on_arrays(function: Function) -> Callable[..., np.ndarray]:
    """A function on arrays of a floating dtype, computed in f64 and rounded once."""
    def call(*xs: np.ndarray) -> np.ndarray:
        dtype = np.asarray(xs[0]).dtype
        with np.errstate(all="ignore"):
            out = function(NumpyArithmetic(), *[np.asarray(x).astype(np.float64) for x in xs])
        return np.asarray(out).astype(dtype)
    return call
