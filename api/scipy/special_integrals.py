"""Integrals by SciPy's and JAX's names: exponential, sine, cosine and Fresnel integrals, and those of Dawson, Spence and Owen.

Guarantees: a few units in the last place, but near zeros (of expi at 0.3725, of cosine integrals) where the error is absolute;
infinities, NaN and poles as in SciPy; derivatives are those of the integrands, to any order. Real numbers only.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, elementwise, quiet, real, stopped, xp
from loopwright.control_flow import fori_loop
from loopwright.custom import custom_jvp
from loopwright.ir import special_tables as t
from loopwright.ir.ops import special, transcendental
from loopwright.tracer.tracer import Tracer

__all__ = ["dawsn", "exp1", "expi", "expn", "fresnel", "owens_t", "sici", "spence"]

One = tuple[Array]
_erf, _erfc = elementwise(transcendental.erf), elementwise(special.erfc)
_lgamma, _digamma = elementwise(special.lgamma), elementwise(special.digamma)


def _series(table: tuple[float, ...], x: Array, low: float, high: float) -> Array:
    """The sum of Chebyshev polynomials over an interval by Clenshaw's recurrence."""
    s = (2 * x - (low + high)) / (high - low)
    twice = 2 * s
    after: Array = table[-1] + 0 * s
    now = table[-2] + table[-1] * twice
    for c in reversed(table[1:-2]):
        after, now = now, c + (now * twice - after)
    return table[0] + (now * s - after)


# ---- exponential integrals ------------------------------------------------------------------------------
def _e1(x: Array) -> Array:
    """For x > 0."""
    near, far = xp.minimum(x, 1), xp.maximum(x, 1)
    small = near * _series(t.EIN, near, 0, 1) - np.euler_gamma - xp.log(near)
    finite = xp.where(xp.isinf(far), 1, far)
    large = xp.exp(-finite) / finite * _series(t.EXP1_FAR, 1 - 8 / (finite + 4), -0.6, 1)
    return xp.where(x > 1, xp.where(xp.isinf(x), 0, large), small)


def _ei(x: Array) -> Array:
    """For x > 0."""
    near, middle, far = xp.minimum(x, 8), xp.clip(x, 8, 24), xp.maximum(x, 24)
    small = xp.log(near) + np.euler_gamma + near * xp.exp(near) * _series(t.EI_NEAR, near, 0, 8)
    large = xp.where(x > 24, _series(t.EI_FAR, 1 / far, 0, 1 / 24), _series(t.EI_MIDDLE, 1 / middle, 1 / 24, 1 / 8))
    half = xp.exp(xp.maximum(x, 8) / 2)  # in two factors: the quotient overflows later than the exponential
    return xp.where(x > 8, xp.where(xp.isinf(x), x, half / xp.maximum(x, 8) * large * half), small)


@custom_jvp
def _expi(x: Array) -> Array:
    size = xp.abs(x)
    safe = xp.where(size > 0, size, 1)
    value = xp.where(x > 0, _ei(xp.where(x > 0, safe, 1)), -_e1(xp.where(x < 0, safe, 1)))
    return xp.where(x == 0, -math.inf, xp.where(size > 0, value, math.nan))


@_expi.defjvp
def _expi_jvp(primals: One, tangents: One) -> tuple[Array, Array]:
    return _expi(*primals), tangents[0] * (xp.exp(primals[0]) / primals[0])


@quiet
def expi(x: Any) -> Array:
    """The exponential integral Ei: of e^t / t from -inf to x, as a principal value for x > 0."""
    return _expi(real("expi", x))


@custom_jvp
def _exp1(x: Array) -> Array:
    return xp.where(x == 0, math.inf, xp.where(x > 0, _e1(xp.where(x > 0, x, 1)), math.nan))


@_exp1.defjvp
def _exp1_jvp(primals: One, tangents: One) -> tuple[Array, Array]:
    return _exp1(*primals), tangents[0] * -(xp.exp(-primals[0]) / primals[0])


@quiet
def exp1(x: Any) -> Array:
    """The exponential integral E1: of e^-t / t from x to infinity; NaN below 0."""
    return _exp1(real("exp1", x))


def number_at(k: Any, like: Array) -> Array:
    """The number of a trip at the dtype of an array."""
    return (k if isinstance(k, Tracer) else np.asarray(k)).astype(like.dtype)


def _expn_series(n: Array, x: Array) -> Array:
    """For n >= 1 and 0 < x <= 1 (DLMF 8.19.8)."""
    def step(k: Any, carry: Any) -> Any:
        power, total = carry  # (-x)^k / k!
        distance = k - n + 1
        total = total - xp.where(distance == 0, 0, power / xp.where(distance == 0, 1, distance))
        return power * -x / (k + 1), total
    one = xp.ones_like(x) + 0 * n
    total = fori_loop(0, 20, lambda k, carry: step(number_at(k, x), carry), (one, 0 * one))[1]
    odd = 1 - 2 * xp.remainder(n - 1, 2)
    return total + odd * xp.exp((n - 1) * xp.log(x) - _lgamma(n)) * (_digamma(n) - xp.log(x))


def _expn_fraction(n: Array, x: Array) -> Array:
    """For n >= 1 and x > 1, from the last of 90 terms (DLMF 8.19.17 in its contracted form)."""
    def step(k: Any, below: Any) -> Any:
        j = 90 - k
        return x + n + 2 * (j - 1) - j * (n + j - 1) / below
    return xp.exp(-x) / fori_loop(0, 90, lambda k, below: step(number_at(k, x), below), x + n + 180)


@custom_jvp
def _expn(n: Array, x: Array) -> Array:
    is_small, is_large = (x > 0) & (x <= 1), (x > 1) & (x < math.inf)
    order = xp.where(n >= 1, n, 1)
    small = _expn_series(order, xp.where(is_small, x, 1))
    large = _expn_fraction(order, xp.where(is_large, x, 2))
    inside = xp.where(is_small, small, xp.where(is_large, large, 0))
    inside = xp.where(n == 0, xp.exp(-x) / x, inside)
    at_zero = xp.where(n > 1, 1 / xp.where(n > 1, n - 1, 1), math.inf)
    value = xp.where(x == 0, at_zero, inside)
    return xp.where((n < 0) | (x < 0) | xp.isnan(n) | xp.isnan(x), math.nan, value)


@_expn.defjvp
def _expn_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    n, x = primals
    below = _expn(xp.maximum(n - 1, 0), x)
    return _expn(n, x), -tangents[1] * xp.where(n == 0, xp.exp(-x) * (1 + x) / (x * x), below)


@quiet
def expn(n: Any, x: Any) -> Array:
    """The exponential integrals E_n: of e^(-x t) / t^n from 1 to infinity, for whole n >= 0 and x >= 0; else NaN. No derivative
    in n."""
    n, x = real("expn", n, x)
    n, x = xp.broadcast_arrays(n, x)
    return _expn(stopped(n), x)


# ---- sine and cosine integrals, Fresnel integrals ----------------------------------------------------------
@custom_jvp
def _sici(x: Array) -> tuple[Array, Array]:
    size = xp.abs(x)
    near, far = xp.minimum(size, 6), xp.clip(size, 6, 1e300 if x.dtype.itemsize == 8 else 1e30)
    u, v = near * near, 36 / far / far
    f, g = _series(t.SI_F, v, 0, 1) / far, _series(t.SI_G, v, 0, 1) / far / far
    sine, cosine = xp.sin(far), xp.cos(far)
    si = xp.where(size > 6, math.pi / 2 - f * cosine - g * sine, near * _series(t.SI_NEAR, u, 0, 36))
    ci = xp.where(size > 6, f * sine - g * cosine,
                  np.euler_gamma + xp.log(near) - u * _series(t.CI_NEAR, u, 0, 36))
    ci = xp.where(x == math.inf, 0, xp.where(x == -math.inf, math.nan, ci))
    return xp.copysign(xp.where(xp.isinf(x), math.pi / 2, si), x), ci


@_sici.defjvp
def _sici_jvp(primals: One, tangents: One) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    x, = primals
    return _sici(x), (tangents[0] * xp.sinc(x / math.pi), tangents[0] * (xp.cos(x) / x))


@quiet
def sici(x: Any) -> tuple[Array, Array]:
    """The sine integral, of sin(t) / t from 0 to x, and the cosine integral, of cos(t) / t from infinity to |x|."""
    si, ci = _sici(real("sici", x))
    return si, ci


@custom_jvp
def _fresnel(x: Array) -> tuple[Array, Array]:
    size = xp.abs(x)
    near, far = xp.minimum(size, 2), xp.clip(size, 2, 1e60 if x.dtype.itemsize == 8 else 1e8)
    u, v = near ** 4, (2 / far) ** 4
    f = _series(t.FRESNEL_F, v, 0, 1) / (math.pi * far)
    g = _series(t.FRESNEL_G, v, 0, 1) / (math.pi ** 2 * far * far * far)
    angle = math.pi / 2 * xp.remainder(far * far, 4)
    sine, cosine = xp.sin(angle), xp.cos(angle)
    s = xp.where(size > 2, 0.5 - f * cosine - g * sine, near ** 3 * _series(t.FRESNEL_S, u, 0, 16))
    c = xp.where(size > 2, 0.5 + f * sine - g * cosine, near * _series(t.FRESNEL_C, u, 0, 16))
    s, c = (xp.where(xp.isinf(x), 0.5, part) for part in (s, c))
    return xp.copysign(s, x), xp.copysign(c, x)


@_fresnel.defjvp
def _fresnel_jvp(primals: One, tangents: One) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    angle = math.pi / 2 * primals[0] * primals[0]
    return _fresnel(*primals), (tangents[0] * xp.sin(angle), tangents[0] * xp.cos(angle))


@quiet
def fresnel(x: Any) -> tuple[Array, Array]:
    """The Fresnel integrals S and C: of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
    s, c = _fresnel(real("fresnel", x))
    return s, c


# ---- Dawson, Spence, Owen ------------------------------------------------------------------------------------
@custom_jvp
def _dawsn(x: Array) -> Array:
    size = xp.abs(x)
    near, far = xp.minimum(size, 3), xp.maximum(size, 3)
    value = xp.where(size > 3, _series(t.DAWSON_FAR, 9 / far / far, 0, 1) / far / 2,
                     near * _series(t.DAWSON_NEAR, near * near, 0, 9))
    return xp.copysign(value, x)


@_dawsn.defjvp
def _dawsn_jvp(primals: One, tangents: One) -> tuple[Array, Array]:
    value = _dawsn(*primals)
    return value, tangents[0] * (1 - 2 * primals[0] * value)


@quiet
def dawsn(x: Any) -> Array:
    """Dawson's integral: e^(-x^2) times the integral of e^(t^2) from 0 to x."""
    return _dawsn(real("dawsn", x))


@custom_jvp
def _spence(x: Array) -> Array:
    """Cephes: from Landen's and Euler's identities to w between -1/2 and 1/2."""
    safe = xp.where(x > 0, x, 1)
    turned = xp.where(safe > 1.5, 1 / safe, safe)  # spence(x) + spence(1/x) = -log(x)^2 / 2
    is_low = turned < 0.5  # spence(x) + spence(1 - x) = pi^2 / 6 - log(x) log(1 - x)
    w = xp.where(is_low, -turned, turned - 1)
    value = -w * _series(t.SPENCE, xp.clip(w, -0.5, 0.5), -0.5, 0.5)
    low = xp.where(is_low, turned, 0.25)
    value = xp.where(is_low, math.pi ** 2 / 6 - xp.log(low) * xp.log1p(-low) - value, value)
    value = xp.where(safe > 1.5, -0.5 * xp.log(safe) ** 2 - value, value)
    return xp.where(x == 0, math.pi ** 2 / 6, xp.where(x > 0, value, math.nan))


def _spence_slope(x: Array) -> Array:
    """log(x) / (1 - x), by its series where that loses digits."""
    w = x - 1
    is_near = xp.abs(w) < 0.125
    near, far = xp.where(is_near, w, 0), xp.where(is_near, 2, x)
    total: Array = xp.zeros_like(x)
    for k in range(18, 0, -1):
        total = (-1) ** k / k + near * total
    return xp.where(is_near, total, xp.log(far) / (1 - far))


@_spence.defjvp
def _spence_jvp(primals: One, tangents: One) -> tuple[Array, Array]:
    return _spence(*primals), tangents[0] * _spence_slope(*primals)


@quiet
def spence(x: Any) -> Array:
    """Spence's function, the dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x; NaN below 0."""
    return _spence(real("spence", x))


_OWEN = np.polynomial.legendre.leggauss(20)


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    """Gauss's rule for |a| <= 1; for others by T(h, a) + T(a h, 1 / a) (Patefield and Tandy 2000)."""
    size, slope = xp.abs(h), xp.abs(a)
    is_steep = slope > 1
    inner_h, inner_a = xp.where(is_steep, slope * size, size), xp.where(is_steep, 1 / xp.where(is_steep, slope, 1), slope)
    inner_h = xp.where(xp.isfinite(inner_h), inner_h, 100)
    inside: Array = xp.zeros_like(h)
    for node, weight in zip(*_OWEN, strict=True):
        u = inner_a * ((1 + node) / 2)
        inside = inside + weight / 2 * xp.exp(-0.5 * inner_h * inner_h * (1 + u * u)) / (1 + u * u)
    inside = inner_a * inside / (2 * math.pi)
    root = math.sqrt(0.5)
    p, q = size * root, xp.where(xp.isnan(slope * size), 0, slope * size) * root
    small = 0.25 * (1 - _erf(p) * _erf(q)) - inside
    large = 0.25 * (_erfc(p) + _erfc(q) - _erfc(p) * _erfc(q)) - inside
    value = xp.where(is_steep, xp.where(q <= 0.67 * root, small, large), inside)
    return xp.where(xp.isnan(h) | xp.isnan(a), math.nan, xp.copysign(value, a))


@_owens_t.defjvp
def _owens_t_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    h, a = primals
    by_h = -xp.exp(-0.5 * h * h) * _erf(a * h * math.sqrt(0.5)) / (2 * math.sqrt(2 * math.pi))
    by_a = xp.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a))
    return _owens_t(h, a), tangents[0] * by_h + tangents[1] * by_a


@quiet
def owens_t(h: Any, a: Any) -> Array:
    """Owen's T: of e^(-h^2 (1 + u^2) / 2) / (2 pi (1 + u^2)) from 0 to a. The error is absolute, about 1e-16."""
    h, a = real("owens_t", h, a)
    h, a = xp.broadcast_arrays(h, a)
    return _owens_t(h, a)
