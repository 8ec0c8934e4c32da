"""Indices out of range raise also where what is read is the same at every index."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw

ALIKE: dict[str, Callable[[Any, Any], Any]] = {
    "a number as one row": lambda x, i: np.reshape(x[0], 1)[i],
    "an only row": lambda x, i: x[None][i],
    "rows of an only row": lambda x, i: np.take(x[None], i, axis=0),
    "an axis kept by a sum": lambda x, i: np.sum(x, keepdims=True)[i],
    "broadcast rows": lambda x, i: np.broadcast_to(x, (3, 3))[i],
    "zeros": lambda x, i: np.zeros_like(x)[i],
    "a map of constants": lambda x, i: np.sin(np.ones_like(x))[i],
    "an only column after the first": lambda x, i: x[None].T[0][i],
    "take of a number": lambda x, i: np.take(x[0], i),
    "a compress of a number": lambda x, i: np.compress([False, True], x[0], axis=0) * i,
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_alike_at_every_index_is_checked_too(name: str) -> None:
    f, x = lw.jit(ALIKE[name]), np.arange(3.0)
    for i in (0, -1, 1, 3, -4, np.array([0, 7]), np.array([[0], [-1]])):
        try:
            want = ALIKE[name](x, i)
        except IndexError as error:
            with pytest.raises(IndexError, match=re.escape(str(error))):
                f(x, i)
        else:
            np.testing.assert_array_equal(f(x, i), want)


def test_a_fused_read_is_checked_once_for_each_index() -> None:
    f = lw.jit(lambda x, i, j: np.exp(np.tanh(x[None, None])[i, j] * 2) + 1)
    np.testing.assert_allclose(f(np.arange(3.0), 0, -1), np.exp(np.tanh(np.arange(3.0)) * 2) + 1)
    for i, j in ((1, 0), (0, 1)):
        with pytest.raises(IndexError, match="index 1 is out of bounds for axis"):
            f(np.arange(3.0), i, j)
