"""Functions with fast_math are as accurate as without: what keeps the errors of sums is not reordered."""
import numpy as np
import pytest

import loopwright as lw

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "arcsinh": np.arcsinh,
    "arctan": np.arctan, "cbrt": np.cbrt, "power -1.3": lambda x: x ** -1.3, "power 2.5": lambda x: x ** 2.5,
    "power 7": lambda x: x ** 7, "power -3": lambda x: x ** -3, "power x": lambda x: x ** x,
    "arctan2": lambda x: np.arctan2(x, x[::-1]), "hypot": lambda x: np.hypot(x, x[::-1]),
    "lgamma": lw.scipy.special.gammaln, "erf": lw.scipy.special.erf, "erfc": lw.scipy.special.erfc,
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name, dtype):
    x = np.random.default_rng(0).uniform(0.1, 5, 1000).astype(dtype)
    exact, fast = (lw.jit(FUNCTIONS[name], fast_math=fast)(x) for fast in (False, True))
    assert fast.dtype == exact.dtype
    assert (np.abs(fast - exact) <= 4 * np.spacing(np.abs(exact))).all()
