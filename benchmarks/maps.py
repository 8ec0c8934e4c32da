"""Maps of elements: a chain of functions at three sizes, and the prices of options."""
from __future__ import annotations

import numpy as np

from benchmarks.contest import contest
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


WORKLOADS = (chain, black_scholes)
