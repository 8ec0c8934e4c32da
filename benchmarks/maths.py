"""Vector maths: each function on 1e5 elements, which stay in cache, in both widths.

NumPy's times are SciPy's for the error functions and the sigmoid, which NumPy has not.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from benchmarks.contest import contest
from benchmarks.harness import Timing
from loopwright import nn
from loopwright.scipy.special import erf, erfc

ELEMENTS = 100_000


@dataclass(frozen=True)
class Function:
    """How it is called in each library, by name where nothing else is said, and where its arguments lie."""

    name: str
    between: tuple[tuple[float, float], ...] = ((-5.0, 5.0),)
    torch: str | None = ""
    ours: Callable[..., Any] | None = None
    jax: str = ""
    numpy: Callable[..., Any] | None = None


POSITIVE, UNIT = ((0.05, 20.0),), ((-0.95, 0.95),)
FUNCTIONS = (
    Function("exp"), Function("exp2"), Function("expm1"), Function("log", POSITIVE), Function("log2", POSITIVE),
    Function("log10", POSITIVE), Function("log1p", POSITIVE), Function("sin"), Function("cos"), Function("tan"),
    Function("arcsin", UNIT), Function("arccos", UNIT), Function("arctan"), Function("arctan2", ((-3.0, 3.0), (-3.0, 3.0))),
    Function("sinh"), Function("cosh"), Function("tanh"), Function("arcsinh"), Function("arccosh", ((1.05, 20.0),)),
    Function("arctanh", UNIT), Function("power", ((0.05, 20.0), (-3.0, 3.0)), torch="pow"), Function("cbrt", torch=None),
    Function("hypot", ((-3.0, 3.0), (-3.0, 3.0))),
    Function("erf", ours=erf, jax="scipy.special.erf", numpy=special.erf),
    Function("erfc", ours=erfc, jax="scipy.special.erfc", numpy=special.erfc),
    Function("sigmoid", ours=nn.sigmoid, jax="nn.sigmoid", numpy=special.expit),
)


def _found(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def maths() -> list[Timing]:
    """A row for each function and width."""
    found = []
    for dtype, label, tolerance in ((np.float32, "f32", 1e-6), (np.float64, "f64", 1e-14)):
        for f in FUNCTIONS:
            rng = np.random.default_rng(0)
            args = tuple(rng.uniform(*ends, ELEMENTS).astype(dtype) for ends in f.between)
            by_hand = f.numpy or getattr(np, f.name)
            theirs = None if f.torch is None else lambda torch, optimised, f=f: getattr(torch, f.torch or f.name)
            found += contest(f"{f.name}, 1e5 {label}", args, f.ours or by_hand, numpy=by_hand, torch=theirs, compiles=False,
                             expected=by_hand(*(x.astype("float64") for x in args)), tolerance=tolerance,
                             jax=lambda jax, f=f: _found(jax, f.jax or f"numpy.{f.name}"))
    return found


WORKLOADS = (maths,)
