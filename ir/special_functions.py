"""Special functions of real numbers, written once against `Arithmetic`: NumPy's for their meaning, a code generator's for kernels.

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
    """f64. Relations of `compare` are lt le eq ne gt ge (false for NaN but ne) and unordered."""

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
def erfc(m: Arithmetic, x: Number) -> Number:
    """1 - erf(x) below 1/2; beyond it e^(-x^2) p(t) / (1 + 2 x) with t = (x - 3.75) / (x + 3.75) (Shepherd and Laframboise)."""
    c = m.maximum(0.5, m.minimum(28.0, x))
    p = _polynomial(m, m.div(m.sub(c, 3.75), m.add(c, 3.75)), t.ERFCX)
    upper = m.from_bits(m.iand(m.bits_of(c), -(1 << 27)))  # its square is exact
    rest = m.exp(m.neg(m.mul(m.sub(c, upper), m.add(c, upper))))
    far = m.mul(m.mul(m.exp(m.neg(m.mul(upper, upper))), rest), m.div(p, m.fma(2.0, c, 1.0)))
    return m.select(m.compare("lt", x, 0.5), m.sub(1.0, m.erf(x)), far)


def erfinv(m: Arithmetic, x: Number) -> Number:
    """x p(w) with w = -log(1 - x^2), or with its root (Giles)."""
    a = m.abs(x)
    w = m.neg(m.log(m.mul(m.sub(1.0, a), m.add(1.0, a))))
    root = m.sqrt(w)
    near = _polynomial(m, m.sub(w, 3.125), t.ERFINV_NEAR)
    middle = _polynomial(m, m.sub(root, 3.25), t.ERFINV_MIDDLE)
    far = _polynomial(m, m.sub(root, 5.03125), t.ERFINV_FAR)
    p = m.select(m.compare("lt", w, 6.25), near, m.select(m.compare("lt", w, 16.0), middle, far))
    return m.select(m.compare("eq", a, 1.0), m.copysign(INF, x), m.mul(x, p))


# ---- gamma function ---------------------------------------------------------------------------------
HALF_LOG_2PI = 0.9189385332046727


def _shifted(m: Arithmetic, a: Number) -> tuple[Number, Number]:
    """For a in [0, 8): y in [1, 3) that differs from it by a whole number, and the steps down to it (0 below 3)."""
    steps = m.maximum(0.0, m.sub(m.floor(m.minimum(a, 8.0)), 2.0))
    return m.select(m.compare("lt", a, 1.0), m.add(a, 1.0), m.sub(m.minimum(a, 8.0), steps)), steps


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
    inverse = m.div(1.0, m.maximum(a, 8.0))
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
    large = m.maximum(a, 8.0)
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
    """The sum of (q + k)^-s over k >= 0, by Euler and Maclaurin from q + 12 on. NaN for s < 1, and where q < 0 is no whole number."""
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
    total = m.select(m.compare("eq", s, INF), m.select(m.compare("lt", q, 1.0), INF, m.select(m.compare("eq", q, 1.0), 1.0, 0.0)), total)
    return m.select(m.compare("unordered", s, q), NAN, total)


# ---- Bessel functions -------------------------------------------------------------------------------
def _bessel(m: Arithmetic, a: Number, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Number, Number, Number]:
    """The series below 8, the one beyond it over sqrt(a), and where that holds."""
    inverse = m.div(1.0, m.maximum(a, 8.0))
    below = _chebyshev(m, m.fma(m.minimum(a, 8.0), 0.25, -1.0), near)
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
    _relations = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
                  "ge": np.greater_equal, "unordered": lambda a, b: np.isnan(a) | np.isnan(b)}

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
