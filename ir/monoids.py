"""The monoids of folds: which function of two numbers each applies, and its identity. `argmax` and `argmin` apply none: they
keep the first position of an extreme."""
from __future__ import annotations

import numpy as np

from loopwright.ir.types import BOOL, is_float, is_inexact

COMBINING = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "bitwise_or", "all": "bitwise_and"}


def any_order(monoid: str, dtype: np.dtype) -> bool:
    """Whether a fold is the same in any order: extremes, and integers, which wrap."""
    return monoid not in ("sum", "prod") or not is_inexact(dtype)


def identity(monoid: str, dtype: np.dtype) -> float | int | bool:
    """What a fold of nothing gives, and what leaves every other number as it is, -0.0 aside: a sum of nothing is 0.0."""
    if monoid in ("sum", "any"):
        return 0
    if monoid in ("prod", "all"):
        return 1
    lowest = monoid in ("max", "argmax")
    if dtype == BOOL:
        return not lowest
    if is_float(dtype):
        return float("-inf") if lowest else float("inf")
    return int(np.iinfo(dtype).min if lowest else np.iinfo(dtype).max)
