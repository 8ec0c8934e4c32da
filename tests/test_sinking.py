"""Reshapes below maps, stacks of stacks of columns: NumPy's values, and one kernel where nothing is copied twice."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
import loopwright.numpy as lnp
from tests.scale import examples

FUNCTIONS = {
    "repeat": lambda x, y: np.repeat(x, 4, -1) * 2 + 1, "rows": lambda x, y: np.exp(np.repeat(x, 3, 0)) - 0.5,
    "beside a parameter": lambda x, y: np.maximum(np.repeat(x, 2, -1) - y, 0),
    "patches": lambda x, y: -x.reshape(x.shape[0], -1, 2).transpose(1, 0, 2).reshape(-1, 2 * x.shape[0]),
    "twice": lambda x, y: (lambda r: r * np.sin(r))(np.repeat(x, 2, -1) + 1),
    "chosen": lambda x, y: np.where(np.repeat(x, 2, -1) > 0, y, 0), "tile": lambda x, y: np.tile(x, (2, 3)) * 0.5,
    "converted": lambda x, y: np.repeat(x, 2, -1).astype("i4") // 2,
    "turns": lambda x, y: np.stack([np.stack([np.cos(x), -np.sin(x)], -1), np.stack([np.sin(x), np.cos(x)], -1)], -2),
    "three by two": lambda x, y: np.stack([np.stack([x, x + k], -1) for k in range(3)], -2),
    "in turn": lambda x, y: np.stack([np.stack([x, -x], -1) for k in range(2)], -2) * 3,
    "used twice": lambda x, y: (lambda r: (r, r * 2))(np.repeat(x, 2, -1)),
    "placed": lambda x, y: np.repeat(x, 2, -1) * lnp.arange(2 * x.shape[-1]),
}
ONE_KERNEL = ["repeat", "rows", "beside a parameter", "chosen", "converted", "turns", "three by two", "tile"]
JITTED = {name: lw.jit(lambda x, y, f=f: f(x, y)) for name, f in FUNCTIONS.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(30)
@given(n=st.integers(1, 9), m=st.integers(1, 60), seed=st.integers(0, 99))
def test_values(name, n, m, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 2 * m)).round(2), rng.normal(size=(n, 4 * m)).round(2)
    found, expected = JITTED[name](x, y), FUNCTIONS[name](x, y)
    for a, b in zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name):
    x, y = np.ones((3, 20)), np.ones((3, 40))
    assert str(JITTED[name].lower(x, y).kernels).count("= kernel(") == 1
