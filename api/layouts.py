"""Arrays of other layouts on their way into compiled code, which reads contiguous ones.

Guarantees: the same numbers in an array of their own. NumPy's copies go through memory in the order of the result: a large
transposed array is copied in tiles instead, by a program of ours, on all threads.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from loopwright.ir.types import F32, F64, I32, I64
from loopwright.tracer.signatures import native_leaf
from loopwright.tuned import meeting

LARGE = 1 << 20  # bytes: what the caches hold NumPy copies as fast


def is_strided(x: Any) -> bool:
    """Whether x is an array whose elements do not lie one after another."""
    return type(x) is np.ndarray and not x.flags.c_contiguous


def straight(x: Any) -> Any:
    """A leaf of a call as compiled code takes it: itself, or a copy. An array in another order of axes, as `x.T` and arrays in
    Fortran's order are, is transposed."""
    if isinstance(x, np.ndarray) and x.nbytes >= LARGE and not x.flags.c_contiguous and x.dtype in (F32, F64, I32, I64):
        order = tuple(np.argsort([-step for step in x.strides], kind="stable").tolist())
        lying = x.transpose(order)
        if lying.flags.c_contiguous and lying.flags.aligned:
            with meeting(lambda versions, call, draft: ()):  # not a function of the user's: nobody tunes it
                return _turned(tuple(np.argsort(order).tolist()))(lying.view(np.ndarray))
    return native_leaf(x)


@cache
def _turned(axes: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    turned: Callable[[np.ndarray], np.ndarray] = import_module("loopwright.jitted").jit(lambda x: x.transpose(axes))
    return turned
