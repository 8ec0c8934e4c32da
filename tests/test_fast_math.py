"""With fast_math functions are as accurate as without, since what keeps the errors of sums is not reordered, and NaN and
infinities mean what they do."""
import numpy as np
import pytest

import loopwright as lw

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "arcsinh": np.arcsinh,
    "arctan": np.arctan, "cbrt": np.cbrt, "power -1.3": lambda x: x ** -1.3, "power 2.5": lambda x: x ** 2.5,
    "power 7": lambda x: x ** 7, "power -3": lambda x: x ** -3, "power x": lambda x: x ** x,
    "arctan2": lambda x: np.arctan2(x, x[::-1]), "hypot": lambda x: np.hypot(x, x[::-1]),
    "remainder": lambda x: np.remainder(x * 64 - 90, 0.7), "fmod": lambda x: np.fmod(x * 64 - 90, 6.25),
    "lgamma": lw.scipy.special.gammaln, "erf": lw.scipy.special.erf, "erfc": lw.scipy.special.erfc,
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name, dtype):
    x = np.random.default_rng(0).uniform(0.1, 5, 1000).astype(dtype)
    exact, fast = (lw.jit(FUNCTIONS[name], fast_math=fast)(x) for fast in (False, True))
    assert fast.dtype == exact.dtype
    assert (np.abs(fast - exact) <= 4 * np.spacing(np.abs(exact))).all()


SPECIAL = np.tile(np.array([-np.inf, -200, -100, -88.5, -1, 0, 1e-40, 1, 100, 200, 1e38, np.inf, np.nan], "f4"), 8)
INFINITE = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "inverse": lambda x: 1 / x, "quotient": lambda x: x / (x + 1),
    "root": lambda x: np.sqrt(np.abs(x)), "masks": lambda x: np.exp(np.where(x > 0, x - 300, -np.inf)),
    "no NaN": lambda x: np.where(np.isnan(x + 1), 0, x), "is infinite": lambda x: np.isinf(x * 2),
    "maximum": lambda x: np.max(np.where(x > 0, -np.inf, x).reshape(8, 13)[:, :8], 1), "softplus": lambda x: np.logaddexp(0, x),
    "sums": lambda x: np.log(np.sum(np.exp(x.reshape(8, 13)[:, :8] - 200), 1)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", INFINITE)
def test_infinities(name):
    f = INFINITE[name]
    np.testing.assert_allclose(lw.jit(f, fast_math=True)(SPECIAL), f(SPECIAL), rtol=1e-5)


def test_masked_attention():
    def f(q, k, v):
        scores = q @ k.T / 8
        scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
        e = np.exp(scores - np.max(scores, -1, keepdims=True))
        return e / np.sum(e, -1, keepdims=True) @ v
    args = [np.random.default_rng(k).normal(size=(100, 16)).astype("f4") for k in range(3)]
    np.testing.assert_allclose(lw.jit(f, fast_math=True)(*args), f(*args), rtol=1e-4, atol=1e-5)
    slope = lw.jit(lw.grad(lambda *a: np.sum(f(*a) ** 2)), fast_math=True)(*args)
    np.testing.assert_allclose(slope, lw.jit(lw.grad(lambda *a: np.sum(f(*a) ** 2)))(*args), rtol=1e-3, atol=1e-5)
