"""Random NumPy programs as users write them, jitted once and called at many sizes, against NumPy itself.

The programs that once went wrong stand here by themselves, each at the sizes that showed it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw

# Each a function of arrays and the shapes of its arguments at successive calls.
ONCE_WRONG: dict[str, tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], ...], ...]]] = {
    "a quotient of sizes that is 1": (lambda x: np.squeeze(x[::2][::-1]) * 1, (((31,),), ((1,),), ((0,),), ((2,),), ((3,),))),
    "a quotient of sizes beside 1": (lambda x: np.squeeze(x[1::3, None, :]) * 1, (((2, 2),), ((3, 2),), ((5, 2),), ((0, 2),))),
    "a quotient of sizes broadcast": (lambda x, y: np.maximum(x[1::3, :-3], y),
                                      (((2, 4), (1, 2, 2, 1)), ((4, 10), (2, 1, 7)), ((4, 10), (2, 1, 1)))),
    "a quotient that is 1 beside a vector": (lambda x, y: np.hypot(x[1::3], y), (((9,), (3,)), ((2,), (9,)), ((5,), (2,)))),
    "a step to an only element": (lambda x: np.minimum(x[2::3], x[:1]), (((1,),), ((3,),), ((4,),), ((0,),))),
    "sizes equal by bounds": (lambda x, y: x @ np.concatenate([x[1:], y[:1]]), (((0,), (0,)), ((5,), (1,)), ((1,), (4,)))),
    "a quotient of sums": (lambda x: np.reshape(x[1:], (-1, x[1:].shape[0])), (((2,),), ((31,),), ((3,),))),
    "a quotient of products of sums": (lambda x: np.reshape(x[1:], (-1, x.shape[0] - 1)),
                                       (((2, 3),), ((4, 5),), ((7, 1),), ((7, 0),))),
    "a quotient by a sum": (lambda x: np.reshape(x, (-1, x.shape[0] - 1)), (((2, 3),), ((3, 4),), ((7, 6),), ((7, 0),))),
    "a reduction of rows of matrices that have a value of their own": (
        lambda x: np.any(np.exp(x - np.max(x, axis=(1, 2), keepdims=True)) > 0.4, axis=-1),
        (((3, 5, 8),), ((2, 1, 33),), ((1, 9, 1),))),
    "a reduction of all axes of a short root": (
        lambda x: np.sum((x.mean(-1, keepdims=True) ** 2)[..., None] * x.mean(-1, keepdims=True)[..., None, :], axis=-1) * 0.2,
        (((4, 2, 1),), ((4, 2, 3),), ((0, 2, 1),))),
}


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_programs_that_were_wrong_once(name: str) -> None:
    f, calls = ONCE_WRONG[name]
    jitted = lw.jit(f)
    rng = np.random.default_rng(0)
    for shapes in calls:
        args = [rng.normal(size=shape) for shape in shapes]
        try:
            want = f(*args)
        except ValueError:
            with pytest.raises(ValueError):
                jitted(*args)
            continue
        got = jitted(*args)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
