"""Sums over pairs of points, as of forces: against NumPy in float64; what is dear is computed once for each pair."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples

WEIGHTS = {"tanh": np.tanh, "gauss": lambda r2: np.exp(-r2), "power": lambda r2: r2 ** -1.3, "root": lambda r2: 1 / np.sqrt(r2)}


def by_columns(weight):
    def f(p, m):
        d = [c[None] - c[:, None] for c in p.T]
        w = m[None] * weight(sum(x * x for x in d) + 1e-2)
        return np.stack([np.sum(w * x, 1) for x in d], 1)
    return f


def together(weight):
    def f(p, m):
        d = p[None] - p[:, None]
        return 1.5 * np.sum((m[None] * weight(np.sum(d * d, -1) + 1e-2))[:, :, None] * d, 1)
    return f


def points(n, columns, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, columns)).astype("f4"), rng.uniform(0.1, 1, n).astype("f4")


@pytest.mark.parametrize("form", [by_columns, together])
@pytest.mark.parametrize("name", WEIGHTS)
def test_forces(form, name):
    program = form(WEIGHTS[name])
    compiled = {fast: lw.jit(program, fast_math=fast) for fast in (False, True)}

    @examples(10)
    @given(st.integers(1, 70) | st.just(300), st.integers(1, 4), st.integers(0, 99), st.booleans())
    def check(n, columns, seed, fast):
        p, m = points(n, columns, seed)
        want = program(p.astype("f8"), m.astype("f8"))
        np.testing.assert_allclose(compiled[fast](p, m), want, rtol=1e-4, atol=1e-4 * max(np.abs(want).max(), 1))
    check()


def test_what_is_dear_is_computed_once_for_each_pair():
    """And not again for each column of the result, though that is scaled after the sum."""
    f = lw.jit(together(np.tanh))
    before, last = str(f.lower(*points(50, 3, 0)).kernels).rsplit(" = kernel(", 1)
    assert "tanh(" in before and "tanh(" not in last and "reduce_sum(" in last


@pytest.mark.parametrize("n", [64, 1500])
def test_potential(n):
    def potential(p, m):
        d = p[None] - p[:, None]
        return np.sum(m[None] * m[:, None] / np.sqrt(np.sum(d * d, -1) + 1e-2))
    p, m = points(n, 3, 0)
    d = (p[None] - p[:, None]).astype("f8")
    w = m[None] * m[:, None] / (np.sum(d * d, -1) + 1e-2) ** 1.5
    want = 2 * np.sum(w[:, :, None] * d, 1)
    for fast in (False, True):
        got = lw.jit(lw.grad(potential), fast_math=fast)(p, m)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5 * np.abs(want).max())
