"""Functions of the complex plane, spherical harmonics and Bessel functions, by SciPy's and JAX's names.

Guarantees: they differentiate to any order, complex ones as functions of complex numbers (`holomorphic=True`).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, elementwise, entered, inexact, quiet, real, xp
from loopwright.control_flow import fori_loop, scan
from loopwright.custom import custom_jvp
from loopwright.ir.errors import ArgumentError
from loopwright.ir.ops import arithmetic, special
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX
from loopwright.scipy.special_integrals import number_at
from loopwright.tracer.tracer import Tracer

__all__ = ["bessel_jn", "loggamma", "sph_harm_y", "wofz"]

_lgamma = elementwise(special.lgamma)


def _complex(re: Array, im: Array) -> Array:
    return entered(arithmetic.complex, re, im)


# ---- Faddeeva's function ------------------------------------------------------------------------------------
def _weideman(count: int) -> tuple[float, np.ndarray]:
    """The scale and the coefficients, highest first, of Weideman's rational approximation (SIAM J. Numer. Anal. 31, 1994)."""
    scale, half = math.sqrt(count / math.sqrt(2)), 2 * count
    t = scale * np.tan(np.arange(1 - half, half) * (math.pi / (2 * half)))
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale * scale + t * t)])
    return scale, np.fft.fft(np.fft.fftshift(f)).real[count:0:-1] / (2 * half)


_SCALE, _WEIDEMAN = _weideman(40)


def _wofz_upper(z: Array) -> Array:
    """For Im(z) >= 0."""
    is_far = xp.abs(z) > 1e7
    near = xp.where(is_far, z.dtype.type(0), z)
    below = _SCALE - 1j * near
    ratio = (_SCALE + 1j * near) / below
    total: Array = xp.zeros_like(near)
    for c in _WEIDEMAN.tolist():
        total = total * ratio + c
    value = (2 * total / below + 1 / math.sqrt(math.pi)) / below
    far = xp.where(is_far, z, z.dtype.type(1))
    return xp.where(is_far, 1j / math.sqrt(math.pi) / far, value)


@custom_jvp
def _wofz(z: Array) -> Array:
    is_low = xp.imag(z) < 0
    upper = _wofz_upper(xp.where(is_low, -z, z))
    return xp.where(is_low, 2 * xp.exp(-z * z) - upper, upper)


@_wofz.defjvp
def _wofz_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value = _wofz(*primals)
    return value, tangents[0] * (2j / math.sqrt(math.pi) - 2 * primals[0] * value)


@quiet
def wofz(z: Any) -> Array:
    """Faddeeva's function e^(-z^2) erfc(-iz), complex. The error is about 1e-14 of |w(z)|: of a much smaller real or
    imaginary part fewer digits are right."""
    z = inexact(z)
    return _wofz(z if z.dtype in COMPLEX else _complex(z, xp.zeros_like(z)))


# ---- log-gamma ------------------------------------------------------------------------------------------------
_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)  # g = 7, 9 terms


def _lanczos(z: Array) -> Array:
    """For Re(z) >= 1/2 (Lanczos 1964, in Godfrey's coefficients)."""
    z = z - 1
    total: Array = _LANCZOS[0] + sum(c / (z + k) for k, c in enumerate(_LANCZOS[1:], 1))
    shifted = z + 7.5
    return 0.5 * math.log(2 * math.pi) + (z + 0.5) * xp.log(shifted) - shifted + xp.log(total)


def _log_sine(z: Array) -> Array:
    """log(sin(pi z)), without overflow, and without the turns that _reflected adds."""
    x, y = xp.real(z), xp.imag(z)
    x = math.pi * (x - 2 * xp.floor(x / 2))
    less = xp.expm1(-2 * math.pi * xp.abs(y))
    turned = _complex(xp.sin(x) * (2 + less), xp.copysign(xp.cos(x) * -less, y * xp.cos(x)))
    return math.pi * xp.abs(y) - math.log(2) + xp.log(turned)


def _complex_loggamma(z: Array) -> Array:
    """Hare's reflection formula (J. Algorithms 25, 1997) left of 1/2."""
    x, y = xp.real(z), xp.imag(z)
    is_left, is_pole = x < 0.5, (y == 0) & (x <= 0) & (xp.floor(x) == x)
    right = _lanczos(xp.where(is_left, 1 - z, z))
    left = xp.where(is_left & ~is_pole, z, z.dtype.type(0.25))
    turns = xp.copysign(2 * math.pi, y) * xp.floor(0.5 * xp.real(left) + 0.25)
    reflected = _complex(xp.full_like(x, math.log(math.pi)), turns) - _log_sine(left) - right
    return xp.where(is_pole, z.dtype.type(complex(math.nan, math.nan)), xp.where(is_left, reflected, right))


@quiet
def loggamma(x: Any) -> Array:
    """The principal branch of the logarithm of gamma: of real x > 0 as gammaln, else NaN; of complex x with a cut along the
    negative numbers. The error of complex ones is about 1e-15 of the largest of 1, |x log(x)| and the value."""
    x = inexact(x)
    if x.dtype in COMPLEX:
        return _complex_loggamma(x)
    return xp.where(x == 0, math.inf, xp.where(x > 0, _lgamma(xp.where(x > 0, x, 1)), math.nan))


# ---- spherical harmonics --------------------------------------------------------------------------------------
@quiet
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: None = None, n_max: int | None = None) -> Array:
    """The spherical harmonics of degree n and order m, |m| <= n, at the polar angle theta and the azimuth phi, as SciPy's:
    complex, with the phase of Condon and Shortley; 0 for other orders. n_max: the greatest degree, which a traced n needs.

    >>> round(float(sph_harm_y(1, 0, 0.0, 0.0).real) ** 2 * 4 * np.pi, 12)
    3.0
    """
    if diff_n is not None:
        raise NotImplementedError(f"{user_source()}: sph_harm_y: diff_n is not supported. Take derivatives by lw.jvp or "
                                  f"lw.grad.")
    if n_max is None:
        if isinstance(n, Tracer):
            raise ArgumentError(f"{user_source()}: sph_harm_y: a traced degree needs n_max=: the number of steps of a "
                                f"recurrence cannot be data.")
        n_max = int(np.max(n, initial=0))
    theta, phi = real("sph_harm_y", theta, phi)
    degree, order = (x.astype(theta.dtype) if isinstance(x, Tracer) else np.asarray(x, theta.dtype) for x in (n, m))
    degree, order, theta, phi = xp.broadcast_arrays(xp.minimum(degree, n_max), order, theta, phi)
    size, sine, cosine = xp.abs(order), xp.sin(theta), xp.cos(theta)

    def step(k: Any, carry: Any) -> Any:
        """Normalised Legendre functions of degree l: along the diagonal up to l = m, then up in degree (DLMF 14.10.3)."""
        before, now = carry
        degree_now = number_at(k, theta) + 1
        is_diagonal, is_done = degree_now <= size, degree_now > degree
        diagonal = -now * sine * xp.sqrt((2 * degree_now + 1) / (2 * degree_now))
        squares = xp.where(is_diagonal, 1, degree_now ** 2 - size ** 2)
        lower = xp.where(is_diagonal, 0, (degree_now - 1) ** 2 - size ** 2)
        up = xp.sqrt((4 * degree_now ** 2 - 1) / squares) * (
            cosine * now - xp.sqrt(lower / (4 * (degree_now - 1) ** 2 - 1)) * before)
        found = xp.where(is_diagonal, diagonal, up)
        return (xp.where(is_done, before, xp.where(is_diagonal, 0, now)), xp.where(is_done, now, found))
    start = xp.full_like(theta, math.sqrt(0.25 / math.pi))
    value = fori_loop(0, n_max, step, (xp.zeros_like(theta), start))[1]
    value = xp.where(size <= degree, value, 0)
    sign = 1 - 2 * xp.remainder(size, 2)
    turned = _complex(value * xp.cos(size * phi), value * xp.sin(size * phi))
    return xp.where(order < 0, sign * xp.conjugate(turned), turned)


# ---- Bessel functions -----------------------------------------------------------------------------------------
@quiet
def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Array:
    """[v + 1, ...]: the Bessel functions of the first kind of orders 0 to v, of real z, by Miller's recurrence down
    from n_iter: right for |z| up to about n_iter / 2.

    >>> bessel_jn(np.array([0.0, 1.0]), v=1).round(6)
    array([[1.      , 0.765198],
           [0.      , 0.440051]])
    """
    z = real("bessel_jn", z)
    if not 0 <= v <= n_iter:
        raise ArgumentError(f"{user_source()}: bessel_jn: v must be from 0 to n_iter, got v={v} and n_iter={n_iter}.")
    numbers = xp.arange(n_iter + 1).astype(z.dtype)
    quarter, half = z * z / 4, z / 2

    def down(carry: Any, k: Any) -> Any:
        """J(k) k! (2 / z)^k, which neither overflows nor needs z != 0."""
        after, second = carry
        now = after - quarter / ((k + 1) * (k + 2)) * second
        return (now, after), now

    def up(power: Any, k: Any) -> Any:
        return power * half / (k + 1), power
    ones = xp.ones_like(z)
    scaled = scan(down, (ones, ones), numbers, reverse=True)[1]
    values = scaled * scan(up, ones, numbers)[1]
    even = xp.where(numbers == 0, 1, 2 - 2 * xp.remainder(numbers, 2)).reshape((-1, *[1] * z.ndim))
    return values[:v + 1] / xp.sum(values * even, axis=0)
