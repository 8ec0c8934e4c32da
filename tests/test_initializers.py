"""Initial weights: moments and shapes by definition, numbers that JAX gave for the same key."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.nn import initializers

KEY = lw.random.key(3)
SHAPE = (3, 4, 4, 6)
VECTORS = {  # jax.nn.initializers of JAX 0.10, float64, PRNGKey(3): the first two numbers and the last
    "glorot_uniform": [0.16340867259164532, -0.020927623623931187, 0.05354910374961923],
    "he_normal": [0.2392892171511175, -0.026036197100622424, 0.06741777656531253],
    "orthogonal": [0.14794825237581155, -0.03993321352400266, -0.0035775537906298943],
}
SCALED = {"glorot": (1.0, lambda i, o: (i + o) / 2), "xavier": (1.0, lambda i, o: (i + o) / 2), "lecun": (1.0, lambda i, o: i),
          "he": (2.0, lambda i, o: i), "kaiming": (2.0, lambda i, o: i)}


@pytest.mark.parametrize("name", VECTORS)
def test_numbers_are_those_of_jax(name):
    init = getattr(initializers, name)()
    for f in (init, lw.jit(init, static_argnums=1)):
        np.testing.assert_allclose(f(KEY, SHAPE).ravel()[[0, 1, -1]], VECTORS[name], rtol=1e-12)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_variances(name, kind):
    scale, fan = SCALED[name]
    x = getattr(initializers, f"{name}_{kind}")()(KEY, (5, 200, 120))
    want = scale / fan(5 * 200, 5 * 120)
    assert x.shape == (5, 200, 120) and x.dtype == np.float64
    np.testing.assert_allclose(np.var(x), want, rtol=0.03)
    assert abs(np.mean(x)) < 0.01 * np.sqrt(want)
    assert np.max(np.abs(x)) <= np.sqrt(want) * (np.sqrt(3) if kind == "uniform" else 2 / 0.8796)


def test_modes_and_axes_of_variance_scaling():
    for mode, n in (("fan_in", 3 * 7), ("fan_out", 200 * 7), ("fan_avg", 7 * 203 / 2), ("fan_geo_avg", 7 * np.sqrt(600))):
        init = initializers.variance_scaling(2.0, mode, "normal", in_axis=0, out_axis=(1,), batch_axis=2)
        np.testing.assert_allclose(np.var(init(KEY, (3, 200, 50, 7))), 2 / n, rtol=0.02)


def test_plain_numbers():
    assert (initializers.zeros(KEY, (2, 3)) == np.zeros((2, 3))).all()
    assert initializers.ones(KEY, (2,), np.float32).dtype == np.float32
    assert (initializers.constant(-7, np.float32)(KEY, (2,)) == np.float32([-7, -7])).all()
    x = initializers.uniform(3.0)(KEY, (2000,))
    assert x.min() >= 0 and 2.9 < x.max() < 3
    np.testing.assert_allclose(np.std(initializers.normal(0.5)(KEY, (20_000,))), 0.5, rtol=0.02)
    x = initializers.truncated_normal(2.0, lower=-1, upper=0.5)(KEY, (2000,))
    assert -2 <= x.min() < -1.9 and 0.9 < x.max() <= 1


@pytest.mark.parametrize(("shape", "axis"), [((4, 6), -1), ((6, 4), -1), ((5, 5), 0), ((2, 3, 4), -1), ((3, 2, 4), 1)])
def test_orthogonal_matrices(shape, axis):
    x = np.moveaxis(initializers.orthogonal(2.0, axis)(KEY, shape), axis, -1).reshape(-1, shape[axis])
    product = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    np.testing.assert_allclose(product, 4 * np.eye(min(x.shape)), atol=1e-12)


@pytest.mark.parametrize("window", [(3,), (4, 3), (1, 2, 3)])
def test_orthogonal_matrices_in_the_middle_of_windows(window):
    x = initializers.delta_orthogonal()(KEY, (*window, 3, 4))
    middle = tuple((n - 1) // 2 for n in window)
    np.testing.assert_allclose(x[middle] @ x[middle].T, np.eye(3), atol=1e-12)
    rest = x.copy()
    rest[middle] = 0
    assert not rest.any()


def test_errors_name_the_fix():
    with pytest.raises(lw.ShapeError, match="two axes or more"):
        initializers.he_normal()(KEY, (3,))
    with pytest.raises(lw.ShapeError, match="two axes or more"):
        initializers.orthogonal()(KEY, (3,))
    with pytest.raises(lw.ShapeError, match="no more inputs"):
        initializers.delta_orthogonal()(KEY, (3, 5, 4))
    with pytest.raises(ValueError, match="mode must be"):
        initializers.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(ValueError, match="distribution must be"):
        initializers.variance_scaling(1.0, "fan_in", "cauchy")


def test_every_name_of_jax_is_here():
    theirs = pytest.importorskip("jax.nn.initializers", reason="the list of names")
    names = {name for name in dir(theirs) if not name.startswith("_")} - {"Initializer"}
    assert names <= set(initializers.__all__)
