"""Maps of elements: a chain of functions at three sizes, the prices of options, a long formula of three variables."""
from __future__ import annotations

from functools import partial

import numpy as np

import loopwright as lw
from benchmarks.contest import contest, gradient, torch_gradient
from benchmarks.harness import Timing
from loopwright.scipy.special import erf


def _chain(xp):
    return lambda x, y: xp.tanh(xp.exp(-x * x) * y + xp.sin(x))


def chain() -> list[Timing]:
    """tanh(exp(-x*x)*y + sin x) on 1e3, 1e6 and 1e7 float32."""
    found = []
    for n, name in ((1000, "1e3"), (1_000_000, "1e6"), (10_000_000, "1e7")):
        x, y = np.random.default_rng(0).normal(size=(2, n)).astype("float32")
        found += contest(f"chain of maps, {name} f32", (x, y), _chain(np), jax=lambda jax: _chain(jax.numpy),
                         torch=lambda torch, optimised: optimised(_chain(torch)))
    return found


def _options(xp, erf):
    """Call and put prices by Black and Scholes."""
    def prices(spot, strike, years):
        rate, volatility = 0.03, 0.2
        spread = volatility * xp.sqrt(years)
        d = (xp.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
        discounted = strike * xp.exp(-rate * years)
        call = spot * (0.5 + 0.5 * erf(d * 0.5 ** 0.5)) - discounted * (0.5 + 0.5 * erf((d - spread) * 0.5 ** 0.5))
        return call, call - spot + discounted
    return prices


def black_scholes() -> list[Timing]:
    """Prices of 1e6 calls and puts in float64."""
    rng, n = np.random.default_rng(0), 1_000_000
    args = rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2, n)
    return contest("Black-Scholes, 1e6 f64", args, _options(np, erf), tolerance=1e-12,
                   jax=lambda jax: _options(jax.numpy, jax.scipy.special.erf),
                   torch=lambda torch, optimised: optimised(_options(torch, torch.special.erf)))


def _polynomial(x, *coefficients):
    out = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        out = out * x + c
    return out


def _density(xp):
    """The density of sea water in kg/m3 of practical salinity, temperature in degrees Celsius (IPTS-68) pressure in bars: the
    equation of state of 1980. Source: Fofonoff and Millard, UNESCO technical papers in marine science 44 (1983), whose table
    has 1062.53817 for (35, 25, 1000)."""
    def of(s, t, p):
        root, at = s * xp.sqrt(s), _polynomial
        surface = at(t, 999.842594, 6.793952e-2, -9.09529e-3, 1.001685e-4, -1.120083e-6, 6.536332e-9) \
            + at(t, 0.824493, -4.0899e-3, 7.6438e-5, -8.2467e-7, 5.3875e-9) * s \
            + at(t, -5.72466e-3, 1.0227e-4, -1.6546e-6) * root + 4.8314e-4 * s * s
        modulus = at(t, 19652.21, 148.4206, -2.327105, 1.360477e-2, -5.155288e-5) \
            + at(t, 54.6746, -0.603459, 1.09987e-2, -6.167e-5) * s + at(t, 7.944e-2, 1.6483e-2, -5.3009e-4) * root \
            + p * (at(t, 3.239908, 1.43713e-3, 1.16092e-4, -5.77905e-7) + at(t, 2.2838e-3, -1.0981e-5, -1.6078e-6) * s
                   + 1.91075e-4 * root) \
            + p * p * (at(t, 8.50935e-5, -6.12293e-6, 5.2787e-8) + at(t, -9.9348e-7, 2.0816e-8, 9.1697e-10) * s)
        return surface / (1 - p / modulus)
    return of


def sea_water() -> list[Timing]:
    """The density of sea water at 1e6 points in float64, also where products may be added unrounded, as JAX does, and
    its slopes by all three variables."""
    rng, n = np.random.default_rng(0), 1_000_000
    args = rng.uniform(1, 40, n), rng.uniform(-2, 30, n), rng.uniform(0, 1000, n)
    name = "density of sea water, 1e6 f64"
    forward = contest(name, args, _density(np), tolerance=1e-12, jax=lambda jax: _density(jax.numpy),
                      torch=lambda torch, optimised: optimised(_density(torch)))
    forward += contest(f"{name}, fast_math", args, _density(np), tolerance=1e-12, jit=partial(lw.jit, fast_math=True),
                       in_numpy=False, jax=lambda jax: _density(jax.numpy))
    return forward + contest(f"gradient of {name}", (*args, rng.normal(size=n)), gradient(np, lw.grad, _density(np), 3),
                             tolerance=1e-9, in_numpy=False,
                             jax=lambda jax: gradient(jax.numpy, jax.grad, _density(jax.numpy), 3),
                             torch=lambda torch, optimised: torch_gradient(torch, optimised(_density(torch)), 3))


WORKLOADS = (chain, black_scholes, sea_water)
