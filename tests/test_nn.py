"""Functions of neural networks: values by their definitions, derivatives by differences, JAX where it is installed."""
import math

import numpy as np
import pytest

import loopwright as lw
from loopwright import nn

X = np.array([-800.0, -30.0, -7.5, -3.0, -2.0, -1.0, -0.6, -0.3, 0.0, 0.1, 0.5, 1.0, 1.5, 3.0, 4.0, 6.0, 30.0, 800.0])
INSIDE = np.array([-4.3, -2.7, -1.3, -0.4, 0.3, 0.8, 2.2, 4.1, 7.3])  # away from every kink


def sigmoid(x):
    return np.where(x > 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def softplus(x):
    return np.logaddexp(x, 0)


DEFINITIONS = {
    "identity": lambda x: x, "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.clip(x, 0, 6), "sigmoid": sigmoid,
    "hard_tanh": lambda x: np.clip(x, -1, 1), "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6, "softplus": softplus,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6, "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "log_sigmoid": lambda x: -softplus(-x), "silu": lambda x: x * sigmoid(x), "mish": lambda x: x * np.tanh(softplus(x)),
    "soft_sign": lambda x: x / (1 + np.abs(x)), "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "gelu": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (np.clip(x, -1, 1) + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: 0.5 * np.clip(x + 1, 0, 2),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_values_and_derivatives(name):
    f, want = getattr(nn, name), DEFINITIONS[name](X)
    for how in (f, lw.jit(f), lw.vmap(f)):
        np.testing.assert_allclose(how(X), want, rtol=1e-13, atol=1e-15)
    narrow = f(X[3:-3].astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, want[3:-3], rtol=2e-5, atol=1e-6)
    assert np.isnan(f(np.nan))
    h, first, second = 1e-5, lw.vmap(lw.grad(f)), lw.vmap(lw.grad(lw.grad(f)))
    np.testing.assert_allclose(first(INSIDE), (f(INSIDE + h) - f(INSIDE - h)) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(second(INSIDE), (first(INSIDE + h) - first(INSIDE - h)) / (2 * h), rtol=1e-6, atol=1e-7)
    for derivative in (first, second, lw.jit(second)):
        assert np.isfinite(derivative(X)).all()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_slopes_are_those_of_jax(name):
    jax = pytest.importorskip("jax", reason="compares with jax.nn where that is installed")
    with jax.enable_x64(True):
        want = jax.vmap(jax.grad(getattr(jax.nn, name)))(X)
    np.testing.assert_allclose(lw.vmap(lw.grad(getattr(nn, name)))(X), want, rtol=1e-9, atol=1e-14)


def test_exact_gelu_and_glu():
    scipy = pytest.importorskip("scipy.special")
    f = lw.jit(lambda x: nn.gelu(x, approximate=False))
    np.testing.assert_allclose(f(X), X * scipy.ndtr(X), rtol=1e-12)
    x = np.random.default_rng(0).normal(size=(3, 6))
    np.testing.assert_allclose(nn.glu(x), x[:, :3] * sigmoid(x[:, 3:]))
    np.testing.assert_allclose(lw.jit(lambda x: nn.glu(x, 1))(x), x[:, :3] * sigmoid(x[:, 3:]))
    with pytest.raises(lw.ShapeError, match="odd"):
        nn.glu(x, 0)


# ---- over an axis -----------------------------------------------------------------------------------
def masked_softmax(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    out = np.zeros(x.shape)
    for row in range(len(x)):
        terms = np.exp(x[row, mask[row]] - x[row, mask[row]].max(initial=0))
        out[row, mask[row]] = terms / terms.sum()
    return out


MASK = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], bool)


def test_softmax_and_its_logarithm():
    x = np.random.default_rng(0).normal(size=(3, 4)) * 300
    everything = np.ones(x.shape, bool)
    for mask, options in ((everything, {}), (MASK, {"where": MASK})):
        want = masked_softmax(x, mask)
        for how in (lambda f: f, lw.jit):
            soft = how(lambda x, options=options: nn.softmax(x, **options))(x)
            np.testing.assert_allclose(soft, want, rtol=1e-13, atol=1e-300)
            logs = how(lambda x, options=options: nn.log_softmax(x, **options))(x)
            np.testing.assert_allclose(np.exp(logs), want, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(nn.softmax(x, axis=0), masked_softmax(x.T, everything.T).T, rtol=1e-13)
    np.testing.assert_allclose(nn.softmax(x, axis=(0, 1)).sum(), 1)
    assert nn.log_softmax(np.array([800.3, 0.0]))[0] == 0


@pytest.mark.parametrize("options", [{}, {"where": MASK}])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_masked_derivatives_have_no_nan(name, options):
    rng = np.random.default_rng(1)
    x, along = rng.normal(size=(2, 3, 4))
    weights = rng.normal(size=(3, 4))

    def loss(x):
        y = getattr(nn, name)(x, axis=-1, **options)
        return np.sum(np.where(np.isfinite(y), y, 0) * (weights if y.ndim == 2 else weights[:, 0]))

    h, gradient = 1e-5, lw.grad(loss)
    assert math.isclose(np.sum(gradient(x) * along), (loss(x + h * along) - loss(x - h * along)) / (2 * h), rel_tol=1e-6)
    second = lw.grad(lambda x: np.sum(gradient(x) * along))(x)
    difference = (gradient(x + h * along) - gradient(x - h * along)) / (2 * h)
    np.testing.assert_allclose(second, difference, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(lw.jit(gradient)(x), gradient(x), rtol=1e-12, atol=1e-14)


def test_one_hot():
    classes = np.array([[0, 2], [5, -1]])
    want = np.array([[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]], float)
    np.testing.assert_array_equal(nn.one_hot(classes, 3), want)
    found = nn.one_hot(classes, 3, axis=0, dtype=np.int8)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.moveaxis(want, -1, 0))
    sized = lw.jit(lambda i, like: nn.one_hot(i, like.shape[0]))
    for n in (3, 6):
        np.testing.assert_array_equal(sized(classes, np.zeros(n)), nn.one_hot(classes, n))
    assert sized.compiles == 1


def test_standardize_and_logmeanexp():
    x = np.random.default_rng(2).normal(size=(3, 4)) + 5
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    for f in (nn.standardize, lw.jit(nn.standardize)):
        np.testing.assert_allclose(f(x), want, rtol=1e-12)
    first = x[:1, MASK[0]]
    want = (x[:1] - first.mean()) / np.sqrt(first.var() + 1e-5)
    np.testing.assert_allclose(nn.standardize(x[:1], where=MASK[:1]), want, rtol=1e-12)
    np.testing.assert_allclose(nn.standardize(x, mean=1.0, variance=4.0, epsilon=0.0), (x - 1) / 2)
    np.testing.assert_allclose(nn.logmeanexp(x + 900, axis=0), np.log(np.exp(x).mean(0)) + 900)
