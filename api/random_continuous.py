"""Distributions of floating numbers: by formula from uniform ones, and by rejection.

Guarantees: the numbers are JAX's up to rounding; samples differentiate in the parameters of their distribution, those by
rejection as what keeps the probability of less than the sample.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, inexact_type, quiet, stopped, xp
from loopwright.ir.errors import ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import C64, COMPLEX, F32, F64
from loopwright.random_bits import fractions, limits
from loopwright.random_keys import Key, checked, extents, float_type, pair, parameters, shape_with
from loopwright.random_rejection import draw_gamma
from loopwright.scipy.special import erf, erfinv, gammainc, gammaln, softmax
from loopwright.tracer.promotion import as_dtype
from loopwright.tracer.tracer import Tracer


# ---- uniform numbers ------------------------------------------------------------------------------
@quiet
def uniform(key: Key, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Array:
    """Uniform numbers in [minval, maxval)."""
    found = float_type("uniform", dtype)
    unit = fractions(checked(key), shape_with("uniform", shape, minval, maxval), found)
    if isinstance(minval, (int, float)) and isinstance(maxval, (int, float)) and (minval, maxval) == (0, 1):
        return unit
    low, high = parameters(found, minval, maxval)
    return xp.maximum(low, unit * (high - low) + low)


def signs(key: Key, shape: tuple[Any, ...], dtype: np.dtype) -> Array:
    """-1 or 1, equally likely."""
    return (2 * (uniform(key, shape) < 0.5).astype(dtype) - 1).astype(dtype)


# ---- by formula -----------------------------------------------------------------------------------
@quiet
def normal(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Normal numbers of mean 0 and variance 1; complex ones have parts of variance 1/2."""
    found = F64 if dtype is None else as_dtype(dtype)
    if found in COMPLEX:
        part = F32 if found == C64 else F64
        re, im = (normal(k, shape, part).astype(found) for k in pair(key))
        return (re + 1j * im) / found.type(math.sqrt(2))
    found = float_type("normal", found)
    low = float(np.nextafter(found.type(-1), found.type(0)))
    return found.type(math.sqrt(2)) * erfinv(uniform(key, shape, found, low, 1.0))


@quiet
def truncated_normal(key: Key, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Normal numbers of mean 0 and variance 1, given that they lie in (lower, upper)."""
    found = float_type("truncated_normal", dtype)
    shape = shape_with("truncated_normal", shape, lower, upper)
    lower, upper = parameters(found, lower, upper)
    root = found.type(math.sqrt(2))
    out = root * erfinv(uniform(key, shape, found, erf(lower / root), erf(upper / root)))
    return xp.minimum(xp.maximum(out, xp.nextafter(lower, found.type(math.inf))), xp.nextafter(upper, found.type(-math.inf)))


@quiet
def lognormal(key: Key, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Array:
    """exp of normal numbers of standard deviation sigma."""
    found, shape = float_type("lognormal", dtype), shape_with("lognormal", shape, sigma)
    return xp.exp(normal(key, shape, found) * parameters(found, sigma))


@quiet
def exponential(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Density exp(-x) on [0, inf)."""
    return -xp.log1p(-uniform(key, shape, float_type("exponential", dtype)))


@quiet
def gumbel(key: Key, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Array:
    """Density exp(-x - exp(-x)). mode "high" resolves the upper tail below the spacing of uniform numbers."""
    found, shape = float_type("gumbel", dtype), extents(shape)
    held = limits(found)
    if mode in (None, "low"):
        return -xp.log(-xp.log(uniform(key, shape, found, float(held.tiny), 1.0)))
    if mode != "high":
        raise ValueError(f"{user_source()}: random.gumbel: mode must be 'high' or 'low', got {mode!r}.")
    drawn = uniform(key, (2, *shape), found)
    x = xp.where(drawn[0] >= 0.5, drawn[0], drawn[0] + found.type(2.0 ** -held.nmant) * drawn[1] + found.type(held.tiny))
    return -xp.log(-xp.log1p(-x))


@quiet
def laplace(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Density exp(-|x|) / 2."""
    found = float_type("laplace", dtype)
    u = uniform(key, shape, found, float(found.type(-1) + limits(found).epsneg), 1.0)
    return xp.sign(u) * xp.log1p(-xp.abs(u))


@quiet
def logistic(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Distribution function 1 / (1 + exp(-x))."""
    found = float_type("logistic", dtype)
    x = uniform(key, shape, found, float(limits(found).tiny), 1.0)
    return xp.log(x) - xp.log1p(-x)


@quiet
def cauchy(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Density 1 / (pi (1 + x^2))."""
    found = float_type("cauchy", dtype)
    u = uniform(key, shape, found, float(limits(found).eps), 1.0)
    return xp.tan(found.type(math.pi) * (u - found.type(0.5)))


@quiet
def pareto(key: Key, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density b x^(-b - 1) on [1, inf)."""
    found, shape = float_type("pareto", dtype), shape_with("pareto", shape, b)
    return xp.exp(exponential(key, shape, found) / parameters(found, b))


@quiet
def weibull_min(key: Key, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Distribution function 1 - exp(-(x / scale)^concentration)."""
    found = float_type("weibull_min", dtype)
    scale, concentration = parameters(found, scale, concentration)
    return xp.power(-xp.log1p(-uniform(key, shape, found)), 1.0 / concentration) * scale


@quiet
def rayleigh(key: Key, scale: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density x / scale^2 exp(-x^2 / (2 scale^2)) on [0, inf)."""
    found, shape = float_type("rayleigh", dtype), shape_with("rayleigh", shape, scale)
    return parameters(found, scale) * xp.sqrt(xp.log(uniform(key, shape, found)) * found.type(-2))


@quiet
def wald(key: Key, mean: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Inverse Gaussian numbers of a mean and shape parameter 1."""
    found, shape = float_type("wald", dtype), shape_with("wald", shape, mean)
    first, second = pair(checked(key))
    mean, v, z = parameters(found, mean), normal(first, shape, found), uniform(second, shape, found)
    y, square = v * v, mean * mean
    x = mean + square * y / 2 - mean / 2 * xp.sqrt(4 * mean * y + square * (y * y))
    return xp.where(z <= mean / (mean + x), x, square / x)


@quiet
def triangular(key: Key, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Array:
    """A density that rises linearly from left to mode and falls to right."""
    found, shape = float_type("triangular", dtype), shape_with("triangular", shape, left, mode, right)
    left, mode, right = parameters(found, left, mode, right)
    u = uniform(key, shape, found)
    rising = left + xp.sqrt(u * (right - left) * (mode - left))
    falling = right - xp.sqrt((1 - u) * (right - left) * (right - mode))
    return xp.where(u < (mode - left) / (right - left), rising, falling)


@quiet
def maxwell(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """The length of a vector of three normal numbers."""
    found, shape = float_type("maxwell", dtype), extents(shape)
    drawn = normal(key, (*shape, 3), found)
    return xp.sqrt(xp.sum(drawn * drawn, axis=-1))


@quiet
def double_sided_maxwell(key: Key, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Array:
    """[*shape, *parameters]: density proportional to z^2 exp(-z^2 / 2) with z = (x - loc) / scale. Where shape is (), the
    parameters' own takes its place."""
    found, own = float_type("double_sided_maxwell", dtype), shape_with("double_sided_maxwell", None, loc, scale)
    shape = (*(extents(shape) or own), *own)
    first, second = pair(checked(key))
    loc, scale = parameters(found, loc, scale)
    return signs(second, shape, found) * maxwell(first, shape, found) * scale + loc


# ---- vectors and matrices -------------------------------------------------------------------------
@quiet
def multivariate_normal(key: Key, mean: Any, cov: Any, shape: Any = None, dtype: Any = None,
                        method: str = "cholesky") -> Array:
    """[*shape, n]: normal numbers of means mean [..., n] and covariances cov [..., n, n].

    method: the factor of cov, by "cholesky", or by "eigh" or "svd" where it is singular. ShapeError where shapes do not fit.
    """
    at = inexact_type(mean, cov)
    found = at if dtype is None else float_type("multivariate_normal", dtype)
    mean, cov = parameters(at, mean, cov)
    if method not in ("cholesky", "eigh", "svd"):
        raise ValueError(f"{user_source()}: random.multivariate_normal: method must be 'cholesky', 'eigh' or 'svd', got "
                         f"{method!r}.")
    if not mean.ndim or cov.ndim < 2 or any(n != mean.shape[-1] for n in cov.shape[-2:]):
        raise ShapeError(f"{user_source()}: random.multivariate_normal: mean must have shape (..., n) and cov (..., n, n), got "
                         f"{mean.shape} and {cov.shape}.")
    batch = shape_with("multivariate_normal", shape, mean[..., 0], cov[..., 0, 0])
    drawn = normal(key, (*batch, mean.shape[-1]), found)
    return (mean + xp.squeeze(_factor(cov, method) @ drawn[..., None], -1)).astype(found)


def _factor(cov: Array, method: str) -> Array:
    """A matrix A with A A^T = cov."""
    if method == "cholesky":
        return xp.linalg.cholesky((cov + xp.swapaxes(cov, -1, -2)) / 2)
    if method == "eigh":
        values, vectors = xp.linalg.eigh((cov + xp.swapaxes(cov, -1, -2)) / 2)
    else:
        vectors, values, _ = xp.linalg.svd(cov)
    return vectors * xp.sqrt(values[..., None, :])


@quiet
def orthogonal(key: Key, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Array:
    """[*shape, n, m]: matrices with orthonormal rows or columns, the fewer of them, uniform among all such matrices; m is n by
    default. By QR of normal numbers, signs by the diagonal of R (Mezzadri, 2007)."""
    columns = n if m is None else m
    tall = normal(key, (*extents(shape), max(n, columns), min(n, columns)), dtype)
    q, r = xp.linalg.qr(tall)
    out = q * xp.sign(xp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return xp.swapaxes(out, -1, -2) if n < columns else out


# ---- by rejection ---------------------------------------------------------------------------------
@quiet
def gamma(key: Key, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density x^(a - 1) exp(-x) / gamma(a) on [0, inf). Its derivative in a keeps the probability of less than the sample."""
    found, shape = float_type("gamma", dtype), shape_with("gamma", shape, a)
    a = xp.broadcast_to(parameters(found, a), shape)
    sample = draw_gamma(checked(key), stopped(a), logarithm=False)
    return sample + _implicit_change(sample, a) if isinstance(a, Tracer) else sample


@quiet
def loggamma(key: Key, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The logarithm of a gamma number, which keeps its precision where that is as good as 0."""
    found, shape = float_type("loggamma", dtype), shape_with("loggamma", shape, a)
    a = xp.broadcast_to(parameters(found, a), shape)
    sample = draw_gamma(checked(key), stopped(a), logarithm=True)
    if not isinstance(a, Tracer):
        return sample
    size = xp.maximum(xp.exp(sample), found.type(limits(found).tiny))
    return sample + _implicit_change(size, a) / size


def _implicit_change(sample: Array, a: Array) -> Array:
    """Nothing, with the derivative -(d gammainc / d a) / density that the sample has."""
    held = stopped(a)
    density = xp.exp((held - 1) * xp.log(sample) - sample - gammaln(held))
    p = gammainc(a, sample)
    return -(p - stopped(p)) / density


@quiet
def chisquare(key: Key, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The sum of df squares of normal numbers."""
    found = float_type("chisquare", dtype)
    return xp.exp(loggamma(key, parameters(found, df) / 2, shape, found)) * 2


@quiet
def f(key: Key, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The quotient of two chi-square numbers, each over its degrees of freedom."""
    found, shape = float_type("f", dtype), shape_with("f", shape, dfnum, dfden)
    below, above = pair(checked(key))
    top, bottom = parameters(found, dfnum, dfden)
    return (chisquare(above, top, shape, found) / top) / (chisquare(below, bottom, shape, found) / bottom)


@quiet
def t(key: Key, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Student's t with df degrees of freedom."""
    found, shape = float_type("t", dtype), shape_with("t", shape, df)
    first, second = pair(checked(key))
    half = parameters(found, df) / 2
    return normal(first, shape, found) * xp.sqrt(half / gamma(second, half, shape, found))


@quiet
def beta(key: Key, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1]."""
    found, shape = float_type("beta", dtype), shape_with("beta", shape, a, b)
    first, second = pair(checked(key))
    one, other = loggamma(first, a, shape, found), loggamma(second, b, shape, found)
    largest = xp.maximum(one, other)
    one, other = xp.exp(one - largest), xp.exp(other - largest)
    return one / (one + other)


@quiet
def dirichlet(key: Key, alpha: Any, shape: Any = None, dtype: Any = None) -> Array:
    """[*shape, k]: shares that sum to 1, with concentrations alpha along the last axis."""
    found = float_type("dirichlet", dtype)
    alpha = parameters(found, alpha)
    if not alpha.ndim:
        raise ShapeError(f"{user_source()}: random.dirichlet: alpha needs an axis of concentrations, got a number.")
    batch = alpha.shape[:-1] if shape is None else extents(shape)
    return softmax(loggamma(key, alpha, (*batch, alpha.shape[-1]), found), -1)


@quiet
def generalized_normal(key: Key, p: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Density proportional to exp(-|x|^p)."""
    found, shape = float_type("generalized_normal", dtype), extents(shape)
    first, second = pair(checked(key))
    p = parameters(found, p)
    return signs(second, shape, found) * gamma(first, 1 / p, shape, found) ** (1 / p)


@quiet
def ball(key: Key, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Array:
    """[*shape, d]: points uniform in the unit ball of the p-norm."""
    found, shape = float_type("ball", dtype), extents(shape)
    first, second = pair(checked(key))
    g, e = generalized_normal(first, p, (*shape, d), found), exponential(second, shape, found)
    return g / ((xp.sum(xp.abs(g) ** p, -1) + e) ** (1 / p))[..., None]
