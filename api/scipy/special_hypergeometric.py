"""Hypergeometric functions of real numbers, by SciPy's and JAX's names.

Guarantees: derivatives in every argument are those of the series that is summed. Methods are those of Pearson, Olver and Porter
(Numer. Algorithms 74, 2017); where sums of large terms of both signs cancel, digits are lost, as in SciPy and JAX.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from loopwright.arrays import Array, elementwise, quiet, real, stopped, xp
from loopwright.control_flow import fori_loop, while_loop
from loopwright.custom import custom_jvp
from loopwright.ir.ops import special
from loopwright.scipy.special_integrals import number_at
from loopwright.transforms import jvp

__all__ = ["hyp1f1", "hyp2f1"]

_lgamma, _digamma = elementwise(special.lgamma), elementwise(special.digamma)
_LEAST, _MOST = 16, 2000  # terms of a series: derivatives of one that ends need some that are 0


def _sign_of_gamma(x: Array) -> Array:
    odd = xp.remainder(xp.floor(x), 2) == 1
    return xp.where((x < 0) & odd, -xp.ones_like(x), xp.ones_like(x))


def _is_pole(x: Array) -> Array:
    """Where gamma has no value."""
    return (x <= 0) & (xp.floor(x) == x)


def _gamma_quotient(above: list[Array], below: list[Array]) -> Array:
    """Products of gamma functions over such; 0 where one below is infinite."""
    size, sign = xp.zeros_like(above[0]), xp.ones_like(above[0])
    is_zero = xp.zeros_like(above[0], dtype=bool)
    for x in below:
        is_zero = is_zero | _is_pole(x)
    for x, way in [*[(x, 1) for x in above], *[(x, -1) for x in below]]:
        safe = xp.where(_is_pole(x), 0.5, x)
        size, sign = size + way * _lgamma(safe), sign * _sign_of_gamma(safe)
    return xp.where(is_zero, 0, sign * xp.exp(size))


def _summed(ratio: Callable[[Array], Array], bound: Callable[[Array], Array], like: Array) -> Array:
    """1 + t(1) + t(2) + ... with t(k + 1) = ratio(k) t(k), until terms and `bound`, which is for t where one ratio is 0 and its
    derivative is not, no longer count."""
    eps = 2.0 ** -54 if like.dtype.itemsize == 8 else 2.0 ** -26

    def step(carry: Any) -> Any:
        k, term, size, total = carry
        number = xp.zeros_like(like) + k
        term = term * ratio(number)
        return k + 1, term, size * stopped(bound(number)), total + term

    def goes_on(carry: Any) -> Any:
        k, _, size, total = carry
        counts = xp.any(size > eps * xp.maximum(xp.abs(total), 1e-290 if like.dtype.itemsize == 8 else 1e-30))
        return (k < _LEAST) | (counts & (k < _MOST))
    one = xp.ones_like(like)
    zero = xp.zeros((), dtype=like.dtype)
    return while_loop(goes_on, step, (zero, one, one, one))[3]


def _not_zero(x: Array) -> Array:
    """x, or 1 in place of 0: what a sum that has ended is divided by."""
    return xp.where(x == 0, 1, x)


def _largest(*factors: Array) -> Array:
    """The size of a product whose factors may pass through 0."""
    out: Array = 1
    for x in factors:
        out = out * xp.maximum(xp.abs(x), 0.5)
    return out


def _slopes(f: Callable[..., Array], primals: tuple[Array, ...], which: int) -> Array:
    """The derivative of f in one argument, element by element."""
    ones = tuple([xp.ones_like(p) if k == which else xp.zeros_like(p) for k, p in enumerate(primals)])
    return jvp(f, primals, ones)[1]


# ---- 1F1 ------------------------------------------------------------------------------------------------------
_FAR = 100.0


def _confluent(a: Array, b: Array, x: Array) -> Array:
    """The series for |x| < 100 and where it ends, else what it tends to; of x < 0 by Kummer's transformation (DLMF 13.2.39,
    13.7.1)."""
    turned = (x < 0) & ~_is_pole(a)
    has_pole = _is_pole(b) & ~(_is_pole(a) & (a > b))
    y, first, below = xp.where(turned, -x, x), xp.where(turned, b - a, a), xp.where(has_pole, 0.5, b)
    is_short = _is_pole(first) | (y < _FAR)
    near, far = xp.where(is_short, y, 0), xp.where(is_short, _FAR, xp.minimum(y, 1e15))
    series = _summed(lambda k: (first + k) / _not_zero(below + k) * near / (k + 1),
                     lambda k: _largest(first + k) / xp.abs(_not_zero(below + k)) * near / (k + 1), a)
    tail = _summed(lambda k: (below - first + k) * (1 - first + k) / (k + 1) / far,
                   lambda k: _largest(below - first + k, 1 - first + k) / (k + 1) / far, a)
    growth = _gamma_quotient([below], [first]) * xp.exp((first - below) * xp.log(far)) * tail
    value = xp.where(is_short, xp.where(turned, xp.exp(-near), 1) * series, xp.where(turned, 1, xp.exp(far)) * growth)
    value = xp.where((x == -math.inf) & (a > 0), 0, value)
    return xp.where(has_pole, math.inf, value)


@custom_jvp
def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    return _confluent(a, b, x)


@_hyp1f1.defjvp
def _hyp1f1_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    a, b, x = primals
    by_a, by_b = (_slopes(_confluent, primals, k) for k in (0, 1))
    by_x = a / b * _hyp1f1(a + 1, b + 1, x)
    return _hyp1f1(a, b, x), by_a * tangents[0] + by_b * tangents[1] + by_x * tangents[2]


@quiet
def hyp1f1(a: Any, b: Any, x: Any) -> Array:
    """Kummer's function 1F1, the sum of (a)_k x^k / ((b)_k k!), for moderate a and b; infinite where b is 0, -1, ..."""
    return _hyp1f1(*xp.broadcast_arrays(*real("hyp1f1", a, b, x)))


# ---- 2F1 ------------------------------------------------------------------------------------------------------
_NEAR = 0.9  # from here to 1 by functions of 1 - x


def _gauss_series(a: Array, b: Array, c: Array, x: Array) -> Array:
    def bound(k: Array) -> Array:
        """Of a sum that ends and would not converge, only its own terms."""
        factors = xp.where(xp.abs(x) < 1, _largest(a + k, b + k), xp.abs((a + k) * (b + k)))
        return factors / xp.abs(_not_zero(c + k)) * xp.abs(x) / (k + 1)
    return _summed(lambda k: (a + k) * (b + k) / _not_zero(c + k) * x / (k + 1), bound, a)


def _across(a: Array, b: Array, c: Array, s: Array) -> Array:
    """For 1 - x = s and c - a - b no integer (DLMF 15.8.4)."""
    d = c - a - b
    regular = _gamma_quotient([c, d], [c - a, c - b]) * _gauss_series(a, b, 1 - d, s)
    return regular + xp.exp(d * xp.log(s)) * _gamma_quotient([c, -d], [a, b]) * _gauss_series(c - a, c - b, 1 + d, s)


def _across_integer(a: Array, b: Array, c: Array, s: Array) -> Array:
    """For 1 - x = s and c - a - b an integer m (DLMF 15.8.10; Abramowitz and Stegun 15.3.11, of m < 0 by 15.3.3)."""
    d = xp.round(c - a - b)
    first, second = xp.where(d < 0, c - a, a), xp.where(d < 0, c - b, b)
    m = xp.abs(d)

    def step(k: Any, carry: Any) -> Any:
        term, total, power, finite = carry
        n = number_at(k, s)
        psi = _digamma(first + m + n) + _digamma(second + m + n) - _digamma(n + 1) - _digamma(n + m + 1)
        total = total + term * (xp.log(s) + psi)
        finite = finite + xp.where(n < m, power, 0)
        term = term * (first + m + n) * (second + m + n) / ((n + 1) * (n + m + 1)) * s
        below = xp.where(n + 1 - m == 0, 1, n + 1 - m)
        return term, total, power * (first + n) * (second + n) / ((n + 1) * below) * s, finite
    one, zero = xp.ones_like(s), xp.zeros_like(s)
    start = xp.exp(-_lgamma(m + 1))
    _, total, _, finite = fori_loop(0, 30, step, (start, zero, one, zero))
    ends = xp.where(m > 0, _gamma_quotient([xp.where(m > 0, m, 1), c], [first + m, second + m]) * finite, 0)
    odd = 1 - 2 * xp.remainder(m, 2)
    value = ends - odd * s ** m * _gamma_quotient([c], [first, second]) * total
    return xp.where(d < 0, s ** d, 1) * value


def _gauss(a: Array, b: Array, c: Array, x: Array, knows_integers: bool) -> Array:
    """By the series where that is short or ends; knows_integers: at integers c - a - b by a formula that holds there alone, so
    that it has no derivative in them."""
    c = xp.where(_is_pole(c) & ~((_is_pole(a) & (a > c)) | (_is_pole(b) & (b > c))), math.nan, c)
    is_power = (c == a) | (c == b)
    ends_turned = (is_power | ((_is_pole(c - a) | _is_pole(c - b)) & ~(_is_pole(a) | _is_pole(b)))) & (x < 1)
    factor = xp.where(ends_turned, xp.exp((c - a - b) * xp.log(xp.where(ends_turned, 1 - x, 1))), 1)
    a, b = xp.where(ends_turned, c - a, a), xp.where(ends_turned, c - b, b)
    ends = _is_pole(a) | _is_pole(b)
    is_low = (x < 0) & ~ends  # Pfaff's transformation (DLMF 15.8.1)
    factor = factor * xp.where(is_low, xp.exp(-a * xp.log1p(-xp.where(is_low, x, 0))), 1)
    z, b = xp.where(is_low, x / (x - 1), x), xp.where(is_low, c - b, b)
    d = c - a - b
    distance = xp.abs(d - xp.round(d))
    is_close, is_integer = distance < 1e-4, distance < 1e-12
    is_high = (z > _NEAR) & (z < 1) & ~ends & (~is_close | (is_integer if knows_integers else False))
    s = xp.where(is_high, xp.where(is_low, 1 / (1 - x), 1 - z), 0.05)
    value = _gauss_series(a, b, c, xp.where(is_high | ((z >= 1) & ~ends), 0, z))
    is_broken = is_high & ~is_close
    value = xp.where(is_broken, _across(*_masked(is_broken, a, b, c), s), value)
    if knows_integers:
        is_whole = is_high & is_close
        value = xp.where(is_whole, _across_integer(*_masked(is_whole, a, b, c, whole=True), s), value)
    is_one = (x == 1) & ~ends
    at_one = xp.where(d > 0, _gamma_quotient([c, xp.where(d > 0, d, 1)], [c - a, c - b]), math.inf)
    value = xp.where(is_one, at_one, xp.where((x > 1) & ~ends, math.inf, value))
    return xp.where(xp.isnan(c) & ~xp.isnan(a + b + x), math.inf, factor * value)


def _masked(mask: Array, a: Array, b: Array, c: Array, whole: bool = False) -> tuple[Array, Array, Array]:
    """Arguments that do no harm where they are not meant."""
    return xp.where(mask, a, 0.25), xp.where(mask, b, 0.5), xp.where(mask, c, 1.75 if whole else 1.125)


def _without_integers(a: Array, b: Array, c: Array, x: Array) -> Array:
    return _gauss(a, b, c, x, False)


@custom_jvp
def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    return _gauss(a, b, c, x, True)


@_hyp2f1.defjvp
def _hyp2f1_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    a, b, c, x = primals
    slopes = [*[_slopes(_without_integers, primals, k) for k in range(3)], a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)]
    return _hyp2f1(*primals), sum(slope * t for slope, t in zip(slopes, tangents, strict=True))


@quiet
def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Array:
    """Gauss's function 2F1, the sum of (a)_k (b)_k x^k / ((c)_k k!) and what continues it to x < -1, for moderate a, b and c;
    infinite where c is 0, -1, ..., and for x > 1 unless a sum ends. Where c - a - b is within 1e-4 of an integer but none, and
    in derivatives in a, b and c at integers, x must stay below 0.98 (or above -49)."""
    return _hyp2f1(*xp.broadcast_arrays(*real("hyp2f1", a, b, c, x)))
