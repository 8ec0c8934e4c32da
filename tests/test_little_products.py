"""Little products in loops: NumPy's values, no call left in the loop, signed zeros, and larger products as they were."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.little_products import without_little_products
from tests.scale import examples

SIDES = st.integers(1, 9)


def _ops(g):
    return [name for n in g.nodes for name in (n.op.name, *(m for r in n.regions for m in _ops(r)))]


@examples(60)
@given(m=SIDES, n=SIDES, k=SIDES, turned=st.tuples(st.booleans(), st.booleans()), dtype=st.sampled_from("fd"),
       vectors=st.tuples(st.booleans(), st.booleans()), is_while=st.booleans(), seed=st.integers(0, 99))
def test_products_in_loops_of_any_few_sizes(m, n, k, turned, dtype, vectors, is_while, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((5, m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    x, y = x[:, 0] if vectors[0] else x, y[:, 0] if vectors[1] else y
    x, y = x.swapaxes(-1, -2).copy() if turned[0] and not vectors[0] else x, y.T.copy() if turned[1] else y

    def step(total, x, y):
        a = x.T if turned[0] else x
        return total + (a + total.ravel()[0]) @ (y.T if turned[1] else y)

    def run(x, y):
        zero = np.zeros([size for size, is_vector in zip((m, n), vectors, strict=True) if not is_vector], dtype)
        if not is_while:
            return lw.lax.scan(lambda total, row: (step(total, row, y), total), zero, x)[0]
        after = lw.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, step(s[1], x[s[0]], y)), (0, zero))
        return after[1]

    expected = np.zeros([size for size, is_vector in zip((m, n), vectors, strict=True) if not is_vector])
    for row in x.astype("d"):
        expected = step(expected, row, y.astype("d"))
    found = lw.jit(run)(x, y)
    assert found.dtype == x.dtype
    assert np.allclose(found, expected, rtol=2e-4 if dtype == "f" else 1e-10, atol=1e-4 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize(("shape", "left"), [((3, 3), False), ((5, 5), False), ((6, 6), True)])
def test_which_products_are_calls(shape, left):
    g = lw.make_graph(lambda w, c: lw.lax.fori_loop(0, 9, lambda _, c: np.tanh(w @ c), c), dynamic=False)(
        np.ones(shape), np.ones(shape))
    assert ("dot_general" in _ops(without_little_products(g))) == left


def test_products_outside_loops_stay():
    g = lw.make_graph(lambda a, b: a @ b, dynamic=False)(np.ones((3, 3)), np.ones((3, 3)))
    assert without_little_products(g) is g


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_sums_of_negative_zeros_are_zero(shape):
    w, x = np.full((2, 2), -0.0), np.ones((3, *shape))
    seen = lw.jit(lambda w, xs: lw.lax.scan(lambda c, x: (c, w @ x), 0.0, xs)[1])(w, x)
    assert not np.signbit(seen).any()


def test_gradients():
    rng = np.random.default_rng(0)
    w, xs = rng.standard_normal((3, 3)), rng.standard_normal((6, 3))

    def loss(w, xs):
        return np.sum(lw.lax.scan(lambda c, x: (np.tanh(w @ c + x), c), np.zeros(3), xs)[1] ** 2)

    dw = lw.jit(lw.grad(loss))(w, xs)
    numeric = np.zeros_like(w)
    for at in np.ndindex(3, 3):
        step = np.zeros_like(w)
        step[at] = 1e-6
        numeric[at] = (loss(w + step, xs) - loss(w - step, xs)) / 2e-6
    assert np.allclose(dw, numeric, atol=1e-6)
