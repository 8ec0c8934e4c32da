"""Folds of pairs of rows, with lanes along the pairs: the same values at all sizes, both kernels where sizes are unknown."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.turning import turned

FOLDS = {
    "distances": lambda x, y: np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)),
    "sums of absolute differences": lambda x, y: np.abs(x[:, None] - y[None]).sum(-1),
    "greatest differences": lambda x, y: np.abs(x[:, None] - y[None]).max(-1),
    "least sums": lambda x, y: (x[:, None] + y[None]).min(-1),
    "nearest": lambda x, y: np.argmin(((x[:, None] - y[None]) ** 2).sum(-1), 1),
    "different": lambda x, y: (x[:, None] != y[None]).sum(-1),
    "some less": lambda x, y: (x[:, None] < y[None]).any(-1),
    "all less": lambda x, y: (x[:, None] < y[None]).all(-1),
    "kernel": lambda x, y: np.exp(-0.1 * ((x[:, None] - y[None]) ** 2).sum(-1)).sum(1),
    "weighted": lambda x, y: (np.abs(x[:, None] - y[None]) * x[0]).sum(-1),
    "of itself": lambda x, y: ((x[:, None] - x[None]) ** 2).sum(-1),
}
JITTED = {name: lw.jit(f) for name, f in FOLDS.items()}  # which keep their programs from size to size
SIZES = st.sampled_from((1, 2, 3, 5, 15, 16, 17, 33, 70))


@pytest.mark.parametrize("name", FOLDS)
@settings(deadline=None, max_examples=30)
@given(rows=SIZES, columns=SIZES, terms=st.sampled_from((1, 2, 3, 15, 16, 17, 64, 65, 257)), dtype=st.sampled_from("fdi"),
       seed=st.integers(0, 99))
def test_means_what_numpy_says(name, rows, columns, terms, dtype, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-9, 9, (n, terms)).astype(dtype) for n in (rows, columns))
    got, want = JITTED[name](x, y), FOLDS[name](x, y)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5)


def program(f, *arrays):
    """The text of a function's program."""
    return str(lw.jit(f).lower(*arrays).kernels)


def test_both_are_compiled_where_sizes_are_unknown():
    x = np.ones((50, 3), np.float32)
    assert "= switch(" in program(FOLDS["distances"], x, x)


@pytest.mark.parametrize(("shape", "count"), [((200, 100, 8), 2), ((200, 100, 300), 1), ((200, 4, 64), 1), ((2, 100, 64), 1),
                                              ((5, 5, 5), 1)])
def test_known_sizes_choose(shape, count):
    rows, columns, terms = shape

    def f(x, y):
        return FOLDS["distances"](np.reshape(x, (rows, terms)), np.reshape(y, (columns, terms)))
    x, y = np.ones((rows, terms), np.float32), np.zeros((columns, terms), np.float32)
    text = program(f, x, y)
    assert "= switch(" not in text and text.count("= kernel(") == count
    np.testing.assert_allclose(lw.jit(f)(x, y), np.full((rows, columns), terms ** 0.5), rtol=1e-6)


def test_batches_and_nothing():
    f = lw.jit(lambda x, y: np.abs(x[:, :, None] - y[:, None]).sum(-1))
    rng = np.random.default_rng(0)
    for batch, rows, columns, terms in ((3, 20, 30, 4), (2, 20, 30, 100), (0, 4, 4, 4), (2, 3, 4, 0), (2, 5, 0, 3)):
        x, y = rng.normal(size=(batch, rows, terms)), rng.normal(size=(batch, columns, terms))
        np.testing.assert_allclose(f(x, y), np.abs(x[:, :, None] - y[:, None]).sum(-1), rtol=1e-12)


def test_gradients():
    def f(x, y):
        return np.exp(-((x[:, None] - y[None]) ** 2).sum(-1)).sum()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(50, 3))
    differences = x[:, None] - y[None]
    want = (-2 * differences * np.exp(-(differences ** 2).sum(-1))[..., None]).sum(1)
    np.testing.assert_allclose(lw.jit(lw.grad(f))(x, y), want, rtol=1e-10)


def test_sums_are_as_accurate_as_numpys():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(40, 250)).astype(np.float32) for _ in range(2))
    exact = ((x.astype(float)[:, None] - y.astype(float)[None]) ** 2).sum(-1)
    ours, numpys = (np.abs(f(x, y) - exact).max() for f in (lw.jit(lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1)),
                                                            lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1)))
    assert ours <= 1.5 * numpys


def test_long_chains_of_folds_are_looked_through_for_a_while():
    """Of each the operand leads back to all before it, by two ways."""
    def f(x):
        for _ in range(600):
            x = x - np.sum(x, -1, keepdims=True)
        return x
    g = lw.make_graph(f)(np.ones((20, 20, 20)))
    assert turned(g) is g
