"""The power of -3/2 but for a factor, by the estimate of 1 / sqrt(x) that AVX and AVX-512 have instructions for.

With t = y^2 of an estimate y, x^(-3/2) is y t (1 - d)^(-3/2) where d = 1 - x t, which is at most 2^-13: of the binomial series
the first two terms, y t (5 - 3 x t) / 2, are off by 15/8 d^2, a relative 2^-25. Two thirds of it are y t (5/3 - x t), one
multiplication less: `lower/root_cubes.py` knows better places for that factor. The estimate of AVX is less near: d is up to
2^-10, and two thirds of the first three terms, y t (2/3 + d + 5/4 d^2), are off by a relative 2^-29.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.ops.elementwise import between, elementwise
from loopwright.ir.types import F32


def _numpy(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        made: np.ndarray = (2 / 3 / (x * np.sqrt(x))).astype(x.dtype)
        return made


root_cube = elementwise("root_cube", _numpy, 1, (F32,), doc="2/3 x^(-3/2), some units of float32 off.", draw=between(0.2, 4))
