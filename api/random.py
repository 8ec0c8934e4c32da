"""Random numbers from keys: `loopwright.random`, by JAX's names.

A key is a `uint32[2]` array; the same key gives the same numbers, on plain arrays, inside `jit` and under `vmap` of keys
alike. Guarantees: the bits are those of JAX's threefry2x32 with `jax_threefry_partitionable=True` and x64 enabled, and so
are the values of every distribution where its arithmetic is exact; the others differ by rounding. Default dtypes are float64
and int64. Sizes in `shape` may be symbolic. Every function uses up its key: split it first to draw again.

>>> key = PRNGKey(0)
>>> uniform(key, (2,))
array([0.41845711, 0.21629545])
"""
from __future__ import annotations

from loopwright.random_continuous import (
    ball,
    beta,
    cauchy,
    chisquare,
    dirichlet,
    double_sided_maxwell,
    exponential,
    f,
    gamma,
    generalized_normal,
    gumbel,
    laplace,
    loggamma,
    logistic,
    lognormal,
    maxwell,
    multivariate_normal,
    normal,
    orthogonal,
    pareto,
    rayleigh,
    t,
    triangular,
    truncated_normal,
    uniform,
    wald,
    weibull_min,
)
from loopwright.random_discrete import (
    bernoulli,
    binomial,
    bits,
    categorical,
    choice,
    geometric,
    multinomial,
    permutation,
    poisson,
    rademacher,
    randint,
)
from loopwright.random_keys import PRNGKey, clone, fold_in, key, key_data, split, wrap_key_data

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "clone",
    "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal", "geometric",
    "gumbel", "key", "key_data", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher", "randint",
    "rayleigh", "split", "t", "triangular", "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]
