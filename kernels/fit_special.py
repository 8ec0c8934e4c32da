"""How the numbers of `ir.special_tables` were found: `python kernels/fit_special.py` prints that module.

Each polynomial interpolates its function at Chebyshev nodes in 300-bit arithmetic, around the middle of its interval.
"""
from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp

mp.mp.prec = 300
Function = Callable[[Any], Any]


def nodes(count: int) -> list[Any]:
    """The Chebyshev nodes of [-1, 1]."""
    return [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def chebyshev(f: Function, low: Any, high: Any, degree: int) -> list[Any]:
    """Coefficients of Chebyshev polynomials in t, x = middle + t radius; the first is that of T0."""
    count, middle, radius = degree + 1, (mp.mpf(high) + low) / 2, (mp.mpf(high) - low) / 2
    values = [f(middle + radius * t) for t in nodes(count)]
    sums = [mp.fsum(v * mp.cos(mp.pi * k * (2 * j + 1) / (2 * count)) for j, v in enumerate(values)) for k in range(count)]
    return [s * (1 if k == 0 else 2) / count for k, s in enumerate(sums)]


def polynomial(f: Function, low: Any, high: Any, degree: int) -> list[Any]:
    """Coefficients, highest first, of the polynomial in x - middle."""
    radius = (mp.mpf(high) - low) / 2
    out = [mp.mpf(0)] * (degree + 1)
    before, now = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]  # T0 and T1, lowest first
    for c in chebyshev(f, low, high, degree):
        for power, factor in enumerate(before):
            out[power] += c * factor
        doubled = [mp.mpf(0), *(2 * v for v in now)]
        before, now = now, [v - (before[j] if j < len(before) else 0) for j, v in enumerate(doubled)]
    return [v / radius ** k for k, v in enumerate(out)][::-1]


def inverse_erf(w: Any) -> Any:
    """erfinv(x) / x for x^2 = 1 - e^-w, by Newton's method on erfc."""
    if w < mp.mpf(10) ** -60:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.exp(-w) / (1 + x)  # 1 - x
    y = mp.mpf(x) if w < 2 else mp.sqrt(w) - mp.mpf(1) / 2
    for _ in range(60):
        step = (mp.erfc(y) - rest) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step / (1 + y * step)
    return y / x


def log_gamma_quotient(y: Any) -> Any:
    """log(gamma(y)) / ((y - 1) (y - 2))"""
    return mp.loggamma(y) / ((y - 1) * (y - 2))


def stirling_rest(u: Any) -> Any:
    """What Stirling's formula lacks, times x, for u = 1 / x^2."""
    if u < mp.mpf(10) ** -16:
        return mp.mpf(1) / 12 - u / 360
    x = 1 / mp.sqrt(u)
    return x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def digamma_rest(u: Any) -> Any:
    """(log(x) - 1 / (2 x) - digamma(x)) x^2 for u = 1 / x^2."""
    if u < mp.mpf(10) ** -16:
        return mp.mpf(1) / 12 - u / 120
    x = 1 / mp.sqrt(u)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) * x * x


DIGAMMA_ROOT = mp.findroot(mp.digamma, mp.mpf("1.4616321449683623"))


def bessel(order: int, at_infinity: bool) -> Function:
    """e^-x I(x), over x for the odd order; at infinity times sqrt(x), as a function of 1 / x."""
    def near(x: Any) -> Any:
        if order and x < mp.mpf(10) ** -30:
            return mp.mpf(0.5)
        return mp.exp(-x) * mp.besseli(order, x) / (x if order else 1)

    def far(v: Any) -> Any:
        return mp.exp(-1 / v) * mp.besseli(order, 1 / v) / mp.sqrt(v)
    return far if at_infinity else near


def exponential_integral(y: Any) -> Any:
    """(Ei(y) - log |y| - euler) / y"""
    if abs(y) < mp.mpf(10) ** -30:
        return mp.mpf(1) + y / 4
    return (mp.ei(y) - mp.euler - mp.log(abs(y))) / y


def scaled_e1(t: Any) -> Any:
    """x e^x E1(x) for t = (x - 4) / (x + 4)."""
    if t > 1 - mp.mpf(10) ** -20:
        return mp.mpf(1)
    x = 4 * (1 + t) / (1 - t)
    return x * mp.exp(x) * mp.e1(x)


def scaled_ei(v: Any) -> Any:
    """x e^-x Ei(x) for v = 1 / x."""
    if v < mp.mpf(10) ** -3:
        return mp.fsum(mp.factorial(k) * v ** k for k in range(40))
    return mp.exp(-1 / v) * mp.ei(1 / v) / v


def sine_integral(u: Any) -> Any:
    """Si(x) / x for u = x^2."""
    x = mp.sqrt(u)
    return mp.si(x) / x if u > mp.mpf(10) ** -30 else mp.mpf(1)


def cosine_integral(u: Any) -> Any:
    """(log(x) + euler - Ci(x)) / x^2 for u = x^2."""
    x = mp.sqrt(u)
    return (mp.euler + mp.log(x) - mp.ci(x)) / u if u > mp.mpf(10) ** -30 else mp.mpf(1) / 4


def sine_auxiliary(is_f: bool) -> Function:
    """x f(x) and x^2 g(x) of DLMF 6.2.17 and 18, for v = 36 / x^2."""
    def function(v: Any) -> Any:
        if v < mp.mpf(10) ** -25:
            return mp.mpf(1)
        x = 6 / mp.sqrt(v)
        s, c = mp.pi / 2 - mp.si(x), mp.ci(x)
        return x * (c * mp.sin(x) + s * mp.cos(x)) if is_f else x * x * (s * mp.sin(x) - c * mp.cos(x))
    return function


def fresnel_near(u: Any) -> tuple[Any, Any]:
    """S(x) / x^3 and C(x) / x for u = x^4."""
    x = u ** mp.mpf(0.25)
    return (mp.fresnels(x) / x ** 3, mp.fresnelc(x) / x) if u > mp.mpf(10) ** -40 else (mp.pi / 6, mp.mpf(1))


def fresnel_auxiliary(v: Any) -> tuple[Any, Any]:
    """pi x f(x) and pi^2 x^3 g(x) of DLMF 7.2.10 and 11, for v = 16 / x^4."""
    if v < mp.mpf(10) ** -30:
        return mp.mpf(1), mp.mpf(1)
    x = 2 / v ** mp.mpf(0.25)
    s, c, angle = mp.fresnels(x) - 0.5, mp.fresnelc(x) - 0.5, mp.pi * x * x / 2
    return (mp.pi * x * (c * mp.sin(angle) - s * mp.cos(angle)),
            -mp.pi ** 2 * x ** 3 * (c * mp.cos(angle) + s * mp.sin(angle)))


def dawson(x: Any) -> Any:
    """e^(-x^2) times the integral of e^(t^2) from 0 to x."""
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def dawson_near(u: Any) -> Any:
    """dawson(x) / x for u = x^2."""
    return dawson(mp.sqrt(u)) / mp.sqrt(u) if u > mp.mpf(10) ** -40 else mp.mpf(1)


def dawson_far(v: Any) -> Any:
    """2 x dawson(x) for v = 9 / x^2."""
    x = 3 / mp.sqrt(v) if v > mp.mpf(10) ** -15 else mp.mpf(0)
    return 2 * x * dawson(x) if x else 1 + v / 18


def dilogarithm(w: Any) -> Any:
    """-Li2(-w) / w"""
    return -mp.polylog(2, -w) / w if abs(w) > mp.mpf(10) ** -30 else 1 - w / 4


# name: (function, low, high, degree)
POLYNOMIALS: dict[str, tuple[Function, Any, Any, int]] = {
    # (1 + 2 x) e^(x^2) erfc(x) for t = (x - 3.75) / (x + 3.75)
    "ERFCX": (lambda t: (lambda x: (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x))(3.75 * (1 + t) / (1 - t)), -0.8, 1, 26),
    # erfinv(x) / x in w = -log(1 - x^2), and in the root of w
    "ERFINV_NEAR": (inverse_erf, 0, 6.25, 24),
    "ERFINV_MIDDLE": (lambda s: inverse_erf(s * s), 2.5, 4, 18),
    "ERFINV_FAR": (lambda s: inverse_erf(s * s), 4, 6.0625, 18),
    # the same to 24 bits, for which w is below 16
    "ERFINV_SINGLE_NEAR": (inverse_erf, 0, 6.25, 10),
    "ERFINV_SINGLE_FAR": (lambda s: inverse_erf(s * s), 2.5, 4, 8),
    # in t = (s - 13) / (s + 13) for the root s of w
    "ERFINV_TAIL": (lambda t: inverse_erf((13 * (1 + t) / (1 - t)) ** 2), -0.375, 0.375, 25),
    "LGAMMA_LOW": (log_gamma_quotient, 1, 2, 22),
    "LGAMMA_HIGH": (log_gamma_quotient, 2, 3, 18),
    "STIRLING": (stirling_rest, 0, mp.mpf(1) / 64, 7),
    "DIGAMMA_LOW": (lambda y: mp.digamma(y) / (y - DIGAMMA_ROOT), 1, 2, 23),
    "DIGAMMA_HIGH": (lambda y: mp.digamma(y) / (y - DIGAMMA_ROOT), 2, 3, 19),
    "DIGAMMA_REST": (digamma_rest, 0, mp.mpf(1) / 64, 8),
}
# In Chebyshev polynomials of t = x / 4 - 1, and of t = 16 / x - 1.
SERIES: dict[str, tuple[Function, Any, Any, int]] = {
    "I0E_NEAR": (bessel(0, False), 0, 8, 29),
    "I0E_FAR": (bessel(0, True), 0, mp.mpf(1) / 8, 24),
    "I1E_NEAR": (bessel(1, False), 0, 8, 28),
    "I1E_FAR": (bessel(1, True), 0, mp.mpf(1) / 8, 24),
}
# In Chebyshev polynomials over the interval; e^-x and its like are part of what is fitted where the docstring says so.
INTEGRALS: dict[str, tuple[Function, Any, Any, int]] = {
    "EIN": (lambda x: exponential_integral(-x), 0, 1, 12),
    "EI_NEAR": (lambda x: mp.exp(-x) * exponential_integral(x), 0, 8, 23),
    "EI_MIDDLE": (scaled_ei, mp.mpf(1) / 24, mp.mpf(1) / 8, 24),
    "EI_FAR": (scaled_ei, 0, mp.mpf(1) / 24, 21),
    "EXP1_FAR": (scaled_e1, mp.mpf(-3) / 5, 1, 34),
    "SI_NEAR": (sine_integral, 0, 36, 13),
    "CI_NEAR": (cosine_integral, 0, 36, 12),
    "SI_F": (sine_auxiliary(True), 0, 1, 34),
    "SI_G": (sine_auxiliary(False), 0, 1, 39),
    "FRESNEL_S": (lambda u: fresnel_near(u)[0], 0, 16, 13),
    "FRESNEL_C": (lambda u: fresnel_near(u)[1], 0, 16, 13),
    "FRESNEL_F": (lambda v: fresnel_auxiliary(v)[0], 0, 1, 31),
    "FRESNEL_G": (lambda v: fresnel_auxiliary(v)[1], 0, 1, 36),
    "DAWSON_NEAR": (dawson_near, 0, 9, 24),
    "DAWSON_FAR": (dawson_far, 0, 1, 39),
    "SPENCE": (dilogarithm, mp.mpf(-1) / 2, mp.mpf(1) / 2, 25),
}


def error(f: Function, low: Any, high: Any, approximation: Function) -> float:
    """The largest relative error over a grid."""
    low, high = mp.mpf(low), mp.mpf(high)
    points = [low + (high - low) * (k + mp.mpf(1) / 3) / 40 for k in range(40)]
    return float(max(abs(approximation(x) / f(x) - 1) for x in points))


def show(name: str, values: list[Any]) -> None:
    """One tuple as source."""
    lines = textwrap.wrap(", ".join(repr(float(v)) for v in values), 120)
    print(f"{name} = (\n    " + "\n    ".join(lines) + ",\n)")


def _polynomial_at(c: Sequence[Any], middle: Any) -> Callable[[Any], Any]:
    return lambda x: mp.polyval([mp.mpf(float(v)) for v in c], x - middle)


def _series_at(c: Sequence[Any], middle: Any, radius: Any) -> Callable[[Any], Any]:
    return lambda x: mp.fsum(v * mp.chebyt(k, (x - middle) / radius) for k, v in enumerate(c))


def main() -> None:
    """Print the module."""
    print('"""Numbers of the special functions, printed by `kernels/fit_special.py`, which says what each is.\n')
    print('Polynomials are highest coefficient first, in the distance from the middle of their interval; series begin with T0.')
    print('The comment is the largest relative error of what is fitted.\n"""')
    for name, (f, low, high, degree) in POLYNOMIALS.items():
        c, middle = polynomial(f, low, high, degree), (mp.mpf(low) + high) / 2
        print(f"# {name}: {error(f, low, high, _polynomial_at(c, middle)):.1e}")
        show(name, c)
    for name, (f, low, high, degree) in (SERIES | INTEGRALS).items():
        c, middle, radius = chebyshev(f, low, high, degree), (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
        print(f"# {name}: {error(f, low, high, _series_at(c, middle, radius)):.1e}")
        show(name, c)
    root = float(DIGAMMA_ROOT)
    show("DIGAMMA_ROOT", [root, DIGAMMA_ROOT - root])


if __name__ == "__main__":
    main()
