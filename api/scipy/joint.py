"""Distributions of vectors by SciPy's names, for `loopwright.scipy.stats`: each is a namespace of functions.

Guarantees: axes that SciPy takes as batches broadcast; -inf or 0 where a vector is outside the support, without NaN in
derivatives there; derivatives in vectors and parameters.
"""
from __future__ import annotations

import math
from typing import Any

from loopwright.arrays import Array, quiet, real, xp
from loopwright.ir.errors import ShapeError
from loopwright.ir.source import user_source
from loopwright.scipy import special
from loopwright.scipy.linalg import solve_triangular

SLACK = 1e-6  # by which the sum of probabilities may differ from 1, as in JAX


class multivariate_normal:
    """The normal distribution of vectors f[..., n] around mean f[..., n], with the covariance f[..., n, n] or a number."""

    @staticmethod
    @quiet
    def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Array:
        """The logarithm of the density: f[...]. A mean of rank 0 is that of a number. LinAlgError for a covariance that is not
        positive definite.

        >>> import numpy as np
        >>> float(multivariate_normal.logpdf(np.zeros(2), np.zeros(2), np.eye(2)).round(6))
        -1.837877
        """
        if allow_singular is not None:
            raise NotImplementedError(f"{user_source()}: multivariate_normal: allow_singular is not supported.")
        x, mean, cov = real("multivariate_normal.logpdf", x, mean, cov)
        away = x - mean
        if mean.ndim == 0:
            return -0.5 * (away * away / cov + xp.log(2 * math.pi * cov))
        n = mean.shape[-1]
        if cov.ndim == 0:
            return -0.5 * (xp.sum(away * away, axis=-1) / cov + n * xp.log(2 * math.pi * cov))
        factor = xp.linalg.cholesky(cov)
        solved = solve_triangular(factor, away[..., None], lower=True)[..., 0]
        logs = xp.sum(xp.log(xp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        return -0.5 * (xp.sum(solved * solved, axis=-1) + n * math.log(2 * math.pi)) - logs

    @staticmethod
    def pdf(x: Any, mean: Any, cov: Any) -> Array:
        """The density."""
        return xp.exp(multivariate_normal.logpdf(x, mean, cov))


class dirichlet:
    """The Dirichlet distribution of probabilities f[n] or f[n, ...] (the first axis sums to 1) with parameters alpha f[n]."""

    @staticmethod
    @quiet
    def logpdf(x: Any, alpha: Any) -> Array:
        """The logarithm of the density: f[...], -inf where x is not positive or does not sum to 1. The last probability may be
        left out. ShapeError for other lengths.

        >>> float(dirichlet.logpdf([0.25, 0.75], [1.0, 1.0]))
        0.0
        """
        x, alpha = real("dirichlet.logpdf", x, alpha)
        if x.ndim == 0 or alpha.ndim != 1 or not (x.shape[0] == alpha.shape[0] or x.shape[0] + 1 == alpha.shape[0]):
            raise ShapeError(f"{user_source()}: dirichlet: alpha must be a vector and x have its length, or one less, on its "
                             f"first axis, got {x.shape} and {alpha.shape}.")
        if x.shape[0] != alpha.shape[0]:
            x = xp.concatenate([x, 1 - xp.sum(x, axis=0, keepdims=True)], axis=0)
        is_inside = xp.all(x > 0, axis=0) & (xp.abs(xp.sum(x, axis=0) - 1) < SLACK)
        powers = xp.reshape(alpha, (-1, *[1] * (x.ndim - 1))) - 1
        value = xp.sum(powers * xp.log(xp.where(x > 0, x, 1)), axis=0)
        rest = special.gammaln(xp.sum(alpha)) - xp.sum(special.gammaln(alpha))
        return xp.where(is_inside, value + rest, -math.inf)

    @staticmethod
    def pdf(x: Any, alpha: Any) -> Array:
        """The density."""
        return xp.exp(dirichlet.logpdf(x, alpha))


class multinomial:
    """Counts f[..., k] of n draws with probabilities p f[..., k]."""

    @staticmethod
    @quiet
    def logpmf(x: Any, n: Any, p: Any) -> Array:
        """The logarithm of the probability: f[...], -inf where the counts are no whole numbers from 0 on, or do not sum to n.

        >>> float(multinomial.logpmf([1, 1], 2, [0.5, 0.5]).round(6))
        -0.693147
        """
        x, n, p = real("multinomial.logpmf", x, n, p)
        is_count = xp.all((x >= 0) & (xp.floor(x) == x), axis=-1) & (xp.sum(x, axis=-1) == n)
        counts = xp.where(x >= 0, x, 0)
        value = special.gammaln(n + 1) + xp.sum(special.xlogy(counts, p) - special.gammaln(counts + 1), axis=-1)
        return xp.where(is_count, value, -math.inf)

    @staticmethod
    def pmf(x: Any, n: Any, p: Any) -> Array:
        """The probability."""
        return xp.exp(multinomial.logpmf(x, n, p))
