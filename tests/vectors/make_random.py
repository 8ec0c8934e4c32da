"""Prints `random.json`: what jax.random gives with 64 bits and partitionable threefry. `python tests/vectors/make_random.py`.

Floating numbers are written as hexadecimal text, so that no bit is lost.
"""
import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)

SEEDS = (0, 1, 42, -1, 2 ** 32 + 5, 2 ** 63 - 1)
KEY = 42


def array(*rows, dtype="float64"):
    """An array among the arguments, as JSON."""
    return {"array": rows, "dtype": dtype}


def given(x):
    """An argument as it is passed: a shape, or an array."""
    if isinstance(x, dict):
        return np.array(x["array"], x["dtype"])
    return tuple(x) if isinstance(x, list) else x


# name of the entry: (function, positional arguments after the key, keywords)
CALLS = {
    "split": ("split", [5], {}), "split_shape": ("split", [[2, 3]], {}), "fold_in": ("fold_in", [7], {}),
    **{f"bits_{d}": ("bits", [[3, 5], d], {}) for d in ("uint8", "uint16", "uint32", "uint64")},
    **{f"uniform_{d}": ("uniform", [[12], d], {}) for d in ("float16", "float32", "float64")},
    "uniform_range": ("uniform", [[12], "float64", -4.0, 4.0], {}),
    **{f"randint_{d}": ("randint", [[8], 3, 100, d], {})
       for d in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")},
    "randint_full": ("randint", [[8], 0, 256, "uint8"], {}), "randint_wide": ("randint", [[8], -2 ** 62, 2 ** 62 + 7], {}),
    "randint_empty": ("randint", [[3], 5, 5], {}), "bernoulli": ("bernoulli", [0.3, [16]], {}),
    "bernoulli_high": ("bernoulli", [0.3, [16]], {"mode": "high"}), "rademacher": ("rademacher", [[9]], {}),
    "permutation": ("permutation", [11], {}), "choice": ("choice", [10, [2, 3]], {}),
    "choice_once": ("choice", [10, [2, 3]], {"replace": False}), "geometric": ("geometric", [0.3, [8]], {}),
    **{f"{name}_{d}": (name, [[12], d], {}) for d in ("float32", "float64")
       for name in ("normal", "exponential", "gumbel", "laplace", "logistic", "cauchy", "maxwell")},
    "normal_complex128": ("normal", [[6], "complex128"], {}), "gumbel_high": ("gumbel", [[12]], {"mode": "high"}),
    "truncated_normal": ("truncated_normal", [-1.0, 2.0, [12]], {}), "pareto": ("pareto", [2.5, [8]], {}),
    "rayleigh": ("rayleigh", [2.0, [8]], {}), "wald": ("wald", [2.0, [8]], {}), "lognormal": ("lognormal", [0.5, [8]], {}),
    "triangular": ("triangular", [1.0, 2.0, 5.0, [8]], {}), "weibull_min": ("weibull_min", [2.0, 3.0, [8]], {}),
    "double_sided_maxwell": ("double_sided_maxwell", [1.0, 2.0, [8]], {}),
    "double_sided_maxwell_rows": ("double_sided_maxwell", [array(0.0, 1.0), 2.0], {}),
    **{f"{name}_{d}": (name, [array(0.3, 1.0, 2.5, 30.0, dtype=d), None, d], {}) for d in ("float32", "float64")
       for name in ("gamma", "loggamma", "chisquare", "t")},
    "beta": ("beta", [0.5, array(1.0, 2.0, 0.1)], {}), "f": ("f", [3.0, array(1.0, 4.0)], {}),
    "dirichlet": ("dirichlet", [array(0.5, 1.0, 3.0), [2]], {}),
    "generalized_normal": ("generalized_normal", [1.5, [6]], {}), "ball": ("ball", [3, 2.0, [4]], {}),
    "poisson": ("poisson", [array(0.0, 0.5, 3.0, 9.5, 12.0, 400.0)], {}),
    "binomial_small": ("binomial", [array(0.0, 5.0, 12.0, 40.0), 0.2], {}),
    "binomial_large": ("binomial", [array(50.0, 1000.0, 1e6), array([0.3], [0.7])], {}),
    "binomial_float32": ("binomial", [20, 0.5, [16], "float32"], {}),
    "binomial_odd": ("binomial", [array(3.0, "nan", -1.0, "inf", 7.0, 7.0, 7.0),
                                  array(0.0, 0.5, 0.5, 0.5, "nan", -0.1, 1.0)], {}),
    "multinomial": ("multinomial", [array(10.0, 300.0), array([0.2, 0.5, 0.3], [0.0, 1.0, 0.0])], {}),
    "multinomial_shape": ("multinomial", [30.0, array(0.1, 0.2, 0.7)], {"shape": [2, 3]}),
    "multivariate_normal": ("multivariate_normal", [array(1.0, -2.0), array([2.0, 0.6], [0.6, 0.5]), [5]], {}),
    "multivariate_normal_rows": ("multivariate_normal", [array([1.0, -2.0], [0.0, 0.0]), array([2.0, 0.6], [0.6, 0.5])], {}),
    "orthogonal": ("orthogonal", [4], {}), "orthogonal_wide": ("orthogonal", [2, [3], "float64", 4], {}),
    "orthogonal_tall": ("orthogonal", [5, [], "float64", 2], {}),
    "categorical": ("categorical", [array([0.1, 0.5, 2.0], [1.0, 1.0, -3.0]), -1, [4, 2]], {}),
}


def listed(x):
    """An array as JSON: its dtype, its shape and its numbers as text."""
    x = np.asarray(x)
    flat = x.ravel().view(x.real.dtype) if x.dtype.kind == "c" else x.ravel()
    return {"dtype": str(x.dtype), "shape": list(x.shape),
            "values": [float(v).hex() if x.dtype.kind in "fc" else int(v) for v in flat]}


def main():
    """Print the vectors."""
    key = jax.random.key_data(jax.random.key(KEY))
    out = {"seeds": [[seed, listed(jax.random.key_data(jax.random.key(seed)))] for seed in SEEDS], "key": KEY, "calls": {}}
    for name, (function, args, kwargs) in CALLS.items():
        found = getattr(jax.random, function)(key, *map(given, args), **{k: given(x) for k, x in kwargs.items()})
        out["calls"][name] = [function, args, kwargs, listed(found)]
    json.dump(out, sys.stdout, indent=0)
    print()


if __name__ == "__main__":
    main()
