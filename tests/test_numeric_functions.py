"""Slopes, integrals, covariances and bins against NumPy: each compiled once and called at many sizes, and differentiated."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw

RNG = np.random.default_rng(0)

OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "gradient": np.gradient,
    "gradient of an axis": lambda x: np.gradient(x, 0.5, axis=0),
    "gradient of axes": lambda x: np.gradient(x, 0.5, 2.0, axis=(1, 0)),
    "gradient of second order": lambda x: np.gradient(x, 0.25, edge_order=2, axis=0),
    "gradient of uneven points": lambda x: np.gradient(x, np.linspace(0, 1, int(x.shape[0])) ** 2, axis=0, edge_order=2),
    "gradient at traced points": lambda x: np.gradient(x, np.cumsum(np.abs(x[:, 0]) + 1), axis=0),
    "trapezoid": np.trapezoid,
    "trapezoid of an axis": lambda x: np.trapezoid(x, dx=0.5, axis=0),
    "trapezoid of points": lambda x: np.trapezoid(x, x[0] * 2),
    "trapezoid of points of rows": lambda x: np.trapezoid(x, x * 2, axis=0),
    "cov": np.cov,
    "cov of columns": lambda x: np.cov(x, rowvar=False, bias=True),
    "cov of two": lambda x: np.cov(x[0], x[1], ddof=0),
    "corrcoef": np.corrcoef,
    "corrcoef of columns": lambda x: np.corrcoef(x, rowvar=False),
    "unstack": lambda x: np.unstack(x[:2], axis=0),
    "vsplit": lambda x: np.vsplit(x, [1]),
}
if hasattr(np, "unstack"):  # from NumPy 2.1
    OF_ROWS["unstack"] = lambda x: np.unstack(x[:2], axis=0)
SHAPES = ((4, 5), (3, 3), (7, 4), (5, 3))


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
def test_of_rows_as_numpy(name: str, dtype: str) -> None:
    f = OF_ROWS[name]
    jitted = lw.jit(f)
    for shape in SHAPES:
        x = RNG.normal(size=shape) * 9
        x = (x + 1j * RNG.normal(size=shape) if dtype == "c16" else x).astype(dtype)
        got, want = jitted(x), f(x)
        assert isinstance(got, tuple | list) == isinstance(want, tuple | list)
        many = isinstance(want, tuple | list)
        for g, w in zip(got if many else (got,), want if many else (want,), strict=True):
            assert g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_allclose(g, w, rtol=1e-4 if dtype == "f4" else 1e-11, atol=1e-5 if dtype == "f4" else 1e-11)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1"])
def test_digitize(right: bool, dtype: str) -> None:
    x = np.arange(-3, 9).astype(dtype) if dtype != "u1" else np.arange(12, dtype="u1")
    for bins in ([0, 2, 2, 5], [5, 2, 2, -1], [3], [-1, 7]):
        want = np.digitize(x, bins, right)
        np.testing.assert_array_equal(lw.jit(lambda x, bins=bins: np.digitize(x, bins, right))(x), want)
        np.testing.assert_array_equal(lw.jit(lambda x, b: np.digitize(x, b, right))(x, np.array(bins)), want)


def test_positions_without_nan() -> None:
    x = RNG.normal(size=(4, 5))
    x[RNG.random(x.shape) < 0.4] = np.nan
    x[:, 2], x[1] = 0.5, 2.0
    for f in (np.nanargmax, np.nanargmin):
        for axis in (None, 0, -1):
            np.testing.assert_array_equal(lw.jit(lambda x, f=f, axis=axis: f(x, axis=axis))(x), f(x, axis=axis))
        np.testing.assert_array_equal(lw.jit(lambda x, f=f: f(x, axis=0, keepdims=True))(x), f(x, axis=0, keepdims=True))


@pytest.mark.parametrize("name", ["gradient of an axis", "gradient at traced points", "trapezoid of points", "cov", "corrcoef"])
def test_their_derivatives(name: str) -> None:
    f, x, d = OF_ROWS[name], RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5))
    _, slope = lw.jvp(f, (x,), (d,))
    np.testing.assert_allclose(slope, (f(x + 1e-6 * d) - f(x - 1e-6 * d)) / 2e-6, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("f", "said"), [
    (lambda x: np.gradient(x[:1]), "Shape of array too small"),
    (lambda x: np.gradient(x, np.ones(9)), "distances must match"),
    (lambda x: np.gradient(x, edge_order=3), "not supported"),
    (lambda x: np.cov(x[None, None]), "at most 2 dimensions"),
    (lambda x: np.vsplit(x, 2), "2 or more dimensions"),
])
def test_what_numpy_refuses(f: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        lw.jit(f)(np.arange(4.0))
