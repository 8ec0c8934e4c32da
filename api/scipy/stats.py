"""Distributions by SciPy's and JAX's names: `loopwright.scipy.stats.norm.logpdf(x, loc, scale)` and so on.

A continuous distribution has `pdf`, `logpdf`, `cdf`, `logcdf`, `sf`, `logsf`, `ppf` and `isf`, a discrete one `pmf`, `logpmf`,
`cdf` and `sf`, as far as there are closed forms or special functions. Arguments are x, the shape parameters, loc and scale
(only loc for discrete ones), by position or name; they broadcast. Guarantees: -inf, 0 or 1 outside the support, without NaN in
derivatives there; NaN stays.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

from loopwright.arrays import Array, quiet, real, xp
from loopwright.ir.dataclass import dataclass
from loopwright.ir.source import user_source
from loopwright.scipy import special
from loopwright.scipy.joint import dirichlet, multinomial, multivariate_normal
from loopwright.scipy.samples import ModeResult, gaussian_kde, mode, rankdata, sem

__all__ = [
    "ModeResult", "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gaussian_kde",
    "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "lognorm", "mode", "multinomial", "multivariate_normal",
    "nbinom", "norm", "pareto", "poisson", "rankdata", "sem", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]

Formula = Callable[..., Array]


@dataclass(frozen=True, eq=False)
class _Distribution:
    """Name and shape parameters, the support (its ends and a point inside), and formulas of a point in it and the shapes."""

    name: str
    shapes: tuple[str, ...]
    support: Callable[..., tuple[Any, Any, Any]]
    formulas: dict[str, Formula] = field(repr=False)
    settings: tuple[tuple[str, float], ...] = (("loc", 0.0), ("scale", 1.0))

    def _arguments(self, method: str, x: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[Array]:
        """The operand, the shape parameters and the settings as arrays of one dtype."""
        names, defaults = (*self.shapes, *dict(self.settings)), dict(self.settings)
        given = dict(zip(names, args, strict=False))
        unknown = [k for k in named if k not in names or k in given]
        missing = [k for k in self.shapes if k not in given and k not in named]
        if unknown or missing or len(args) > len(names):
            raise TypeError(f"{user_source()}: {self.name}.{method} takes {', '.join(('x', *names))}, each once"
                            f"{': ' + ', '.join(missing) + ' is missing' if missing else ''}.")
        values = {**defaults, **given, **named}
        return list(real(f"{self.name}.{method}", x, *[values[k] for k in names]))

    def _formula(self, name: str) -> Formula:
        if name not in self.formulas:
            raise AttributeError(f"{user_source()}: {self.name}.{name} is not available: it has no closed form here.")
        return self.formulas[name]

    def _inside(self, z: Array, shapes: list[Array]) -> tuple[Array, Array, Array]:
        """z within the support, and where it is below and above."""
        low, high, middle = self.support(*shapes)
        below, above = z < low, z > high
        return xp.where(below | above, middle, z), below, above


def _exponential(x: Array) -> Array:
    """exp(x), whose slope is 0 where x is -inf, whatever the slope of x."""
    is_nothing = x == -math.inf
    return xp.where(is_nothing, 0, xp.exp(xp.where(is_nothing, 0, x)))


class Continuous(_Distribution):
    """A distribution with a density: that of loc + scale Z for a standard Z with the shape parameters."""

    def _standard(self, method: str, x: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        x, *shapes, loc, scale = self._arguments(method, x, args, named)
        return *self._inside((x - loc) / scale, shapes), shapes, scale

    @quiet
    def logpdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """The logarithm of the density."""
        return self._log_density("logpdf", x, args, named)

    def _log_density(self, method: str, x: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Array:
        z, below, above, shapes, scale = self._standard(method, x, args, named)
        return xp.where(below | above, -math.inf, self._formula("logpdf")(z, *shapes) - xp.log(scale))

    @quiet
    def pdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """The density."""
        return _exponential(self._log_density("pdf", x, args, named))

    @quiet
    def cdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """The distribution function: the probability of at most x."""
        z, below, above, shapes, _ = self._standard("cdf", x, args, named)
        return xp.where(below, 0, xp.where(above, 1, self._formula("cdf")(z, *shapes)))

    @quiet
    def sf(self, x: Any, *args: Any, **named: Any) -> Array:
        """The probability of more than x, with full precision where it is small."""
        z, below, above, shapes, _ = self._standard("sf", x, args, named)
        return xp.where(below, 1, xp.where(above, 0, self._formula("sf")(z, *shapes)))

    @quiet
    def logcdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """The logarithm of the distribution function."""
        z, below, above, shapes, _ = self._standard("logcdf", x, args, named)
        value = self.formulas["logcdf"](z, *shapes) if "logcdf" in self.formulas else self._logarithm("cdf", "sf", z, shapes)
        return xp.where(below, -math.inf, xp.where(above, 0, value))

    @quiet
    def logsf(self, x: Any, *args: Any, **named: Any) -> Array:
        """The logarithm of the probability of more than x."""
        z, below, above, shapes, _ = self._standard("logsf", x, args, named)
        value = self.formulas["logsf"](z, *shapes) if "logsf" in self.formulas else self._logarithm("sf", "cdf", z, shapes)
        return xp.where(below, 0, xp.where(above, -math.inf, value))

    def _logarithm(self, method: str, opposite: str, z: Array, shapes: list[Array]) -> Array:
        """The logarithm of a probability by the smaller one of it and its opposite."""
        p, rest = self._formula(method)(z, *shapes), self._formula(opposite)(z, *shapes)
        is_small = p < 0.5
        low = xp.where(p == 0, -math.inf, xp.log(xp.where(is_small & (p != 0), p, 1)))
        return xp.where(is_small, low, xp.log1p(-xp.where(is_small, 0, rest)))

    @quiet
    def ppf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The quantile: where the distribution function is q. NaN outside [0, 1]."""
        return self._quantile("ppf", q, args, named)

    @quiet
    def isf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The upper quantile: where `sf` is q. NaN outside [0, 1]."""
        return self._quantile("isf", q, args, named)

    def _quantile(self, method: str, q: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Array:
        q, *shapes, loc, scale = self._arguments(method, q, args, named)
        is_probability = (q >= 0) & (q <= 1)
        z = self._formula(method)(xp.where(is_probability, q, 0.5), *shapes)
        return xp.where(is_probability, loc + scale * z, math.nan)


class Discrete(_Distribution):
    """A distribution on whole numbers, moved by loc."""

    def _moved(self, method: str, k: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        k, *shapes, loc = self._arguments(method, k, args, named)
        return k - loc, shapes

    @quiet
    def logpmf(self, k: Any, *args: Any, **named: Any) -> Array:
        """The logarithm of the probability of k; -inf where k is no whole number of the support."""
        k, shapes = self._moved("logpmf", k, args, named)
        inside, below, above = self._inside(k, shapes)
        is_possible = ~(below | above) & ((xp.floor(k) == k) | xp.isnan(k))
        value = self._formula("logpmf")(xp.where(is_possible, inside, xp.floor(inside)), *shapes)
        return xp.where(is_possible, value, -math.inf)

    @quiet
    def pmf(self, k: Any, *args: Any, **named: Any) -> Array:
        """The probability of k."""
        return _exponential(self.logpmf(k, *args, **named))

    @quiet
    def cdf(self, k: Any, *args: Any, **named: Any) -> Array:
        """The probability of at most k."""
        k, shapes = self._moved("cdf", k, args, named)
        inside, below, above = self._inside(xp.floor(k), shapes)
        return xp.where(below, 0, xp.where(above, 1, self._formula("cdf")(inside, *shapes)))

    @quiet
    def sf(self, k: Any, *args: Any, **named: Any) -> Array:
        """The probability of more than k."""
        k, shapes = self._moved("sf", k, args, named)
        inside, below, above = self._inside(xp.floor(k), shapes)
        return xp.where(below, 1, xp.where(above, 0, self._formula("sf")(inside, *shapes)))

    @quiet
    def ppf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The least k of which the distribution function is q or more. NaN outside [0, 1]."""
        q, *shapes, loc = self._arguments("ppf", q, args, named)
        is_probability = (q >= 0) & (q <= 1)
        k = self._formula("ppf")(xp.where(is_probability, q, 0.5), *shapes)
        return xp.where(is_probability, loc + k, math.nan)

    @quiet
    def entropy(self, *args: Any, **named: Any) -> Array:
        """The mean of -logpmf."""
        _, *shapes, loc = self._arguments("entropy", 0, args, named)
        return self._formula("entropy")(*shapes) + 0 * loc


def _continuous(name: str, *shapes: str, support: Callable[..., tuple[Any, Any, Any]] = lambda *_: (-math.inf, math.inf, 0.0),
                **formulas: Formula) -> Continuous:
    return Continuous(name, shapes, support, formulas)


def _discrete(name: str, *shapes: str, support: Callable[..., tuple[Any, Any, Any]] = lambda *_: (0.0, math.inf, 0.0),
              **formulas: Formula) -> Discrete:
    return Discrete(name, shapes, support, formulas, (("loc", 0.0),))


def _positive(*_: Any) -> tuple[Any, Any, Any]:
    return 0.0, math.inf, 1.0


def _log1mexp(z: Array) -> Array:
    """log(1 - exp(-z)) for z >= 0."""
    is_small = z < math.log(2)
    return xp.where(is_small, xp.log(-xp.expm1(-xp.where(is_small, z, 1))), xp.log1p(-xp.exp(-xp.where(is_small, 1, z))))


# ---- continuous -------------------------------------------------------------------------------------
norm = _continuous(
    "norm", logpdf=lambda z: -0.5 * (z * z) - 0.5 * math.log(2 * math.pi), cdf=special.ndtr, sf=lambda z: special.ndtr(-z),
    logcdf=special.log_ndtr, logsf=lambda z: special.log_ndtr(-z), ppf=special.ndtri, isf=lambda q: -special.ndtri(q))
uniform = _continuous(
    "uniform", support=lambda: (0.0, 1.0, 0.5), logpdf=lambda z: z - z, cdf=lambda z: z, sf=lambda z: 1 - z, ppf=lambda q: q,
    isf=lambda q: 1 - q)
expon = _continuous(
    "expon", support=_positive, logpdf=lambda z: -z, cdf=lambda z: -xp.expm1(-z), sf=lambda z: xp.exp(-z), logcdf=_log1mexp,
    logsf=lambda z: -z, ppf=lambda q: -xp.log1p(-q), isf=lambda q: -xp.log(q))
gamma = _continuous(
    "gamma", "a", support=_positive, logpdf=lambda z, a: special.xlogy(a - 1, z) - z - special.gammaln(a),
    cdf=lambda z, a: special.gammainc(a, z), sf=lambda z, a: special.gammaincc(a, z))
chi2 = _continuous(
    "chi2", "df", support=_positive,
    logpdf=lambda z, df: special.xlogy(df / 2 - 1, z / 2) - z / 2 - special.gammaln(df / 2) - math.log(2),
    cdf=lambda z, df: special.gammainc(df / 2, z / 2), sf=lambda z, df: special.gammaincc(df / 2, z / 2))
beta = _continuous(
    "beta", "a", "b", support=lambda a, b: (0.0, 1.0, 0.5),
    logpdf=lambda z, a, b: special.xlogy(a - 1, z) + special.xlog1py(b - 1, -z) - special.betaln(a, b),
    cdf=lambda z, a, b: special.betainc(a, b, z), sf=lambda z, a, b: special.betainc(b, a, 1 - z))
laplace = _continuous(
    "laplace", logpdf=lambda z: -xp.abs(z) - math.log(2), cdf=lambda z: _laplace_cdf(z), sf=lambda z: _laplace_cdf(-z),
    ppf=lambda q: _laplace_ppf(q), isf=lambda q: -_laplace_ppf(q))
cauchy = _continuous(
    "cauchy", logpdf=lambda z: -math.log(math.pi) - xp.log1p(z * z), cdf=lambda z: xp.arctan2(1, -z) / math.pi,
    sf=lambda z: xp.arctan2(1, z) / math.pi, ppf=lambda q: _cauchy_ppf(q), isf=lambda q: -_cauchy_ppf(q))
logistic = _continuous(
    "logistic", logpdf=lambda z: special.log_expit(z) + special.log_expit(-z), cdf=special.expit,
    sf=lambda z: special.expit(-z), logcdf=special.log_expit, logsf=lambda z: special.log_expit(-z), ppf=special.logit,
    isf=lambda q: -special.logit(q))
gumbel_r = _continuous(
    "gumbel_r", logpdf=lambda z: -z - xp.exp(-z), cdf=lambda z: xp.exp(-xp.exp(-z)), sf=lambda z: -xp.expm1(-xp.exp(-z)),
    logcdf=lambda z: -xp.exp(-z), logsf=lambda z: _log1mexp(xp.exp(-z)), ppf=lambda q: -xp.log(-xp.log(q)),
    isf=lambda q: -xp.log(-xp.log1p(-q)))
gumbel_l = _continuous(
    "gumbel_l", logpdf=lambda z: z - xp.exp(z), cdf=lambda z: -xp.expm1(-xp.exp(z)), sf=lambda z: xp.exp(-xp.exp(z)),
    logcdf=lambda z: _log1mexp(xp.exp(z)), logsf=lambda z: -xp.exp(z), ppf=lambda q: xp.log(-xp.log1p(-q)),
    isf=lambda q: xp.log(-xp.log(q)))
pareto = _continuous(
    "pareto", "b", support=lambda b: (1.0, math.inf, 2.0), logpdf=lambda z, b: xp.log(b) - (b + 1) * xp.log(z),
    cdf=lambda z, b: -xp.expm1(-b * xp.log(z)), sf=lambda z, b: xp.exp(-b * xp.log(z)), logsf=lambda z, b: -b * xp.log(z),
    logcdf=lambda z, b: _log1mexp(b * xp.log(z)), ppf=lambda q, b: xp.exp(-xp.log1p(-q) / b),
    isf=lambda q, b: xp.exp(-xp.log(q) / b))
lognorm = _continuous(
    "lognorm", "s", support=_positive,
    logpdf=lambda z, s: xp.where(z == 0, -math.inf, norm.logpdf(_log(z) / s) - _log(z) - xp.log(s)),
    cdf=lambda z, s: xp.where(z == 0, 0, special.ndtr(_log(z) / s)),
    sf=lambda z, s: xp.where(z == 0, 1, special.ndtr(-_log(z) / s)),
    logcdf=lambda z, s: xp.where(z == 0, -math.inf, special.log_ndtr(_log(z) / s)),
    logsf=lambda z, s: xp.where(z == 0, 0, special.log_ndtr(-_log(z) / s)),
    ppf=lambda q, s: xp.exp(s * special.ndtri(q)), isf=lambda q, s: xp.exp(-s * special.ndtri(q)))
t = _continuous(
    "t", "df",
    logpdf=lambda z, df: -special.betaln(df / 2, 0.5) - 0.5 * xp.log(df) - (df + 1) / 2 * xp.log1p(z * z / df),
    cdf=lambda z, df: _t_cdf(z, df), sf=lambda z, df: _t_cdf(-z, df))
gennorm = _continuous(
    "gennorm", "beta", logpdf=lambda z, b: xp.log(b / 2) - special.gammaln(1 / b) - xp.abs(z) ** b,
    cdf=lambda z, b: _gennorm_cdf(z, b), sf=lambda z, b: _gennorm_cdf(-z, b))
truncnorm = _continuous(
    "truncnorm", "a", "b", support=lambda a, b: (a, b, xp.where(a > 0, a, xp.where(b < 0, b, 0))),
    logpdf=lambda z, a, b: norm.logpdf(z) - _log_between(a, b), cdf=lambda z, a, b: xp.exp(_truncnorm_part(z, a, b)),
    sf=lambda z, a, b: xp.exp(_truncnorm_part(-z, -b, -a)), logcdf=lambda z, a, b: _truncnorm_logcdf(z, a, b),
    logsf=lambda z, a, b: _truncnorm_logcdf(-z, -b, -a))
vonmises = _continuous(
    "vonmises", "kappa",
    logpdf=lambda z, kappa: kappa * (xp.cos(z) - 1) - xp.log(2 * math.pi * special.i0e(kappa)))
wrapcauchy = _continuous(
    "wrapcauchy", "c", support=lambda c: (0.0, 2 * math.pi, math.pi),
    logpdf=lambda z, c: xp.log((1 - c * c) / (2 * math.pi)) - xp.log(1 + c * c - 2 * c * xp.cos(z)))


def _gennorm_cdf(z: Array, b: Array) -> Array:
    """Half the probability of Gamma(1 / b) beyond |z|^b, on the side of z; at 0, where that has no slope, a line."""
    tail = 0.5 * special.gammaincc(1 / b, xp.abs(xp.where(z == 0, 1, z)) ** b)
    line = 0.5 + z * xp.exp(xp.log(b / 2) - special.gammaln(1 / b))
    return xp.where(z == 0, line, xp.where(z > 0, 1 - tail, tail))


def _log_between(a: Array, b: Array) -> Array:
    """log(ndtr(b) - ndtr(a)) for a < b, by the tail that is nearer."""
    is_right = a > 0
    low, high = xp.where(is_right, -b, a), xp.where(is_right, -a, b)
    return special.log_ndtr(high) + _log1mexp(special.log_ndtr(high) - special.log_ndtr(low))


def _truncnorm_part(z: Array, a: Array, b: Array) -> Array:
    """The logarithm of the probability of at most z."""
    is_outside = (z <= a) | (z >= b)
    value = _log_between(a, xp.where(is_outside, b, z)) - _log_between(a, b)
    return xp.where(is_outside, xp.where(z <= a, -math.inf, 0), value)


def _truncnorm_logcdf(z: Array, a: Array, b: Array) -> Array:
    """The same by the smaller one of this probability and the rest."""
    below, above = _truncnorm_part(z, a, b), _truncnorm_part(-z, -b, -a)
    is_small = (below < -math.log(2)) | (above == 0)
    return xp.where(is_small, below, xp.log1p(-xp.exp(xp.where(is_small, -1, above))))


def _laplace_cdf(z: Array) -> Array:
    return xp.where(z > 0, 1 - 0.5 * xp.exp(-xp.where(z > 0, z, 0)), 0.5 * xp.exp(xp.where(z > 0, 0, z)))


def _laplace_ppf(q: Array) -> Array:
    is_low = q < 0.5
    return xp.where(is_low, xp.log(2 * xp.where(is_low, q, 0.5)), -xp.log(2 * (1 - xp.where(is_low, 0.5, q))))


def _cauchy_ppf(q: Array) -> Array:
    is_low = q < 0.5
    size = 1 / xp.tan(math.pi * xp.where(is_low, q, 1 - q))
    return xp.where(is_low, -size, size)


def _log(z: Array) -> Array:
    """log(z) for z > 0; a harmless number at 0, where the caller knows the answer."""
    return xp.log(xp.where(z == 0, 1, z))


def _t_cdf(z: Array, df: Array) -> Array:
    """Half the incomplete beta function of df / (df + z^2), on the side of z; around 0, where that has no slope, its series."""
    is_near = z * z < 0.01
    far = xp.where(is_near, 1, z)
    tail = 0.5 * special.betainc(df / 2, 0.5, df / (df + far * far))
    near = xp.where(is_near, z, 0)
    square, term, total = -(near * near) / df, near, near
    for k in range(8):  # term / z = ((df + 1) / 2) ... ((df + 1) / 2 + k) (-z^2 / df)^(k + 1) / (k + 1)!
        term = term * square * ((df + 1) / 2 + k) / (k + 1)
        total = total + term / (2 * k + 3)
    middle = 0.5 + total * xp.exp(-special.betaln(df / 2, 0.5)) / xp.sqrt(df)
    return xp.where(is_near, middle, xp.where(z > 0, 1 - tail, tail))


def _poisson_entropy(mu: Array) -> Array:
    """The sum, up to where nothing is left for mu < 200, and Stirling's series from there (Evans, Boersma, Blachman and Jagers
    1988), whose error is below 1e-9."""
    is_large = mu > 200
    small = xp.where((mu >= 0) & ~is_large, mu, 1)[..., None]
    k = xp.arange(380).astype(mu.dtype)
    log_p = special.xlogy(k, small) - special.gammaln(k + 1) - small
    total = -xp.sum(xp.exp(log_p) * xp.where(log_p == -math.inf, 0, log_p), axis=-1)
    large = xp.where(is_large, mu, 200)
    tail = 1 / (12 * large) + 1 / (24 * large ** 2) + 19 / (360 * large ** 3)
    value = xp.where(is_large, 0.5 * xp.log(2 * math.pi * math.e * large) - tail, total)
    return xp.where(mu >= 0, value, math.nan)


# ---- discrete ---------------------------------------------------------------------------------------
bernoulli = _discrete(
    "bernoulli", "p", support=lambda p: (0.0, 1.0, 0.0), logpmf=lambda k, p: special.xlogy(k, p) + special.xlog1py(1 - k, -p),
    cdf=lambda k, p: xp.where(k < 1, 1 - p, 1), sf=lambda k, p: xp.where(k < 1, p, 0),
    ppf=lambda q, p: xp.where((p < 0) | (p > 1) | xp.isnan(p), math.nan, xp.where(q <= 1 - p, q - q, q - q + 1)))
poisson = _discrete(
    "poisson", "mu", logpmf=lambda k, mu: special.xlogy(k, mu) - special.gammaln(k + 1) - mu,
    cdf=lambda k, mu: special.gammaincc(k + 1, mu), sf=lambda k, mu: special.gammainc(k + 1, mu),
    entropy=lambda mu: _poisson_entropy(mu))
geom = _discrete(
    "geom", "p", support=lambda p: (1.0, math.inf, 1.0), logpmf=lambda k, p: special.xlog1py(k - 1, -p) + xp.log(p),
    cdf=lambda k, p: -xp.expm1(special.xlog1py(k, -p)), sf=lambda k, p: xp.exp(special.xlog1py(k, -p)))
binom = _discrete(
    "binom", "n", "p", support=lambda n, p: (0.0, n, 0.0),
    logpmf=lambda k, n, p: special.xlogy(k, p) + special.xlog1py(n - k, -p) - xp.log1p(n) - special.betaln(n - k + 1, k + 1),
    cdf=lambda k, n, p: xp.where(k < n, special.betainc(xp.where(k < n, n - k, 1), k + 1, 1 - p), 1),
    sf=lambda k, n, p: xp.where(k < n, special.betainc(k + 1, xp.where(k < n, n - k, 1), p), 0))
nbinom = _discrete(
    "nbinom", "n", "p",
    logpmf=lambda k, n, p: special.xlogy(n, p) + special.xlog1py(k, -p) - xp.log(n + k) - special.betaln(n, k + 1),
    cdf=lambda k, n, p: special.betainc(n, k + 1, p), sf=lambda k, n, p: special.betainc(k + 1, n, 1 - p))
betabinom = _discrete(
    "betabinom", "n", "a", "b", support=lambda n, a, b: (0.0, n, 0.0),
    logpmf=lambda k, n, a, b: special.betaln(k + a, n - k + b) - special.betaln(a, b) - xp.log1p(n) - special.betaln(
        n - k + 1, k + 1))
