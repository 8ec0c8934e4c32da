"""Random numbers: JAX's bits and values by vectors kept here, the same in every way of running, and their statistics."""
import json
import math
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright import random
from loopwright.ir.threefry import NumpyWords, threefry
from loopwright.lower.compile import host_target
from loopwright.lower.program import lower_graph

VECTORS = json.loads((Path(__file__).parent / "vectors" / "random.json").read_text())
KEY = random.key(VECTORS["key"])
# Values that are exact arithmetic on bits; the others go through functions that JAX rounds otherwise.
EXACT = ("split", "fold_in", "bits", "uniform_float", "randint", "bernoulli", "rademacher", "permutation", "choice",
         "geometric", "poisson", "binomial", "multinomial", "categorical")
TOLERANCE = {"float32": 1e-6, "float64": 1e-13, "complex128": 1e-13}


def array(x: dict) -> np.ndarray:
    """A vector as the array that it is."""
    dtype = np.dtype(x["dtype"])
    numbers = [float.fromhex(v) if isinstance(v, str) else v for v in x["values"]]
    flat = np.array(numbers, np.zeros(0, dtype).real.dtype if dtype.kind == "c" else dtype)
    return flat.view(dtype).reshape(x["shape"])


def given(x):
    """An argument as it is passed: a shape, or an array."""
    if isinstance(x, dict):
        return np.array(x["array"], x["dtype"])
    return tuple(x) if isinstance(x, list) else x


def assert_vector(name: str, found: np.ndarray, want: np.ndarray) -> None:
    assert found.dtype == want.dtype and found.shape == want.shape
    if name.startswith(EXACT):
        np.testing.assert_array_equal(found, want)
    else:
        tolerance = TOLERANCE[str(want.dtype)]
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance / 10)


# ---- the same as JAX --------------------------------------------------------------------------------
@pytest.mark.parametrize("seed, want", VECTORS["seeds"])
def test_seeds_give_the_keys_of_jax(seed, want):
    np.testing.assert_array_equal(random.key(seed), array(want))
    np.testing.assert_array_equal(random.PRNGKey(np.int64(seed)), array(want))
    np.testing.assert_array_equal(lw.jit(random.key)(np.int64(seed)), array(want))


@pytest.mark.parametrize("name", VECTORS["calls"])
def test_vectors(name):
    function, args, kwargs, want = VECTORS["calls"][name]
    found = getattr(random, function)(KEY, *map(given, args), **{k: given(x) for k, x in kwargs.items()})
    assert_vector(name, np.asarray(found), array(want))


@pytest.mark.parametrize("name", ["split_shape", "fold_in", "bits_uint8", "bits_uint64", "uniform_float16", "uniform_float32",
                                  "uniform_range", "randint_int8", "randint_uint64", "randint_full", "bernoulli_high",
                                  "permutation", "choice_once", "normal_float64", "truncated_normal", "gamma_float64",
                                  "binomial_small", "binomial_large", "binomial_odd", "multinomial", "multivariate_normal",
                                  "orthogonal_wide", "double_sided_maxwell_rows"])
def test_vectors_compiled(name):
    function, args, kwargs, want = VECTORS["calls"][name]
    kwargs = {k: given(x) for k, x in kwargs.items()}
    found = lw.jit(lambda key: getattr(random, function)(key, *map(given, args), **kwargs))(KEY)
    assert_vector(name, np.asarray(found), array(want))


def test_jax_where_it_is_installed():
    jax = pytest.importorskip("jax", reason="compares with jax.random where that is installed")
    key = random.key(7)
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        for shape in ((), (0,), (1,), (129,), (3, 1, 5)):
            np.testing.assert_array_equal(random.uniform(key, shape), jax.random.uniform(key, shape))
            np.testing.assert_array_equal(random.bits(key, shape, "uint16"), jax.random.bits(key, shape, "uint16"))
            np.testing.assert_allclose(random.normal(key, shape), jax.random.normal(key, shape), rtol=1e-13)
        x = np.arange(2000.0)
        np.testing.assert_array_equal(random.permutation(key, x), jax.random.permutation(key, x))
        grid = np.arange(24.0).reshape(4, 6)
        for options in ({}, {"axis": 1}, {"axis": 1, "independent": True}):
            want = jax.random.permutation(key, grid, **options)
            np.testing.assert_array_equal(random.permutation(key, grid, **options), want)
        p = np.array([0.1, 0.2, 0.3, 0.4])
        for options in ({}, {"replace": False}, {"p": p}, {"p": p, "replace": False}):
            want = jax.random.choice(key, grid, (2, 2), **options)
            np.testing.assert_array_equal(random.choice(key, grid, (2, 2), **options), want)
        logits = np.log(np.arange(1.0, 13.0)).reshape(3, 4)
        for options in ({}, {"axis": 0}, {"shape": (5, 3)}, {"shape": (2, 3), "replace": False}):
            want = jax.random.categorical(key, logits, **options)
            np.testing.assert_array_equal(random.categorical(key, logits, **options), want)
        low, high = np.array([1, 2, 3]), np.array([[4], [50]])
        np.testing.assert_array_equal(random.randint(key, (2, 3), low, high), jax.random.randint(key, (2, 3), low, high))


# ---- the same in every way of running ---------------------------------------------------------------
def test_one_compile_draws_for_every_size():
    def f(key, x):
        a, b = random.split(key)
        n = x.shape[0]
        return (random.normal(a, x.shape) + x, random.permutation(b, x), random.randint(a, x.shape, 0, n),
                random.split(key, n), random.choice(b, x, (3,)), random.uniform(a, (n, 2), np.float32))
    compiled = lw.jit(f)
    for n in (5, 9, 40):
        for got, want in zip(compiled(KEY, np.arange(float(n))), f(KEY, np.arange(float(n))), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-14)
    assert compiled.compiles == 1


def test_vmap_of_keys_is_a_loop_over_keys():
    keys = random.split(KEY, 4)

    def f(key):
        return (random.normal(key, (3,)), random.permutation(key, 6), random.bits(key), random.split(key),
                random.bernoulli(key, 0.3))
    for how in (lw.vmap(f), lw.jit(lw.vmap(f))):
        for k, results in enumerate(zip(*how(keys), strict=True)):
            for got, want in zip(results, f(keys[k]), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-14)


def test_the_contents_of_a_captured_key_are_no_constant():
    key = random.key(0).copy()
    draw = lw.jit(lambda x: x + random.uniform(key, x.shape))
    first = draw(np.zeros(4))
    key[:] = random.key(1)
    np.testing.assert_array_equal(draw(np.zeros(4)), random.uniform(random.key(1), (4,)))
    assert not np.array_equal(first, draw(np.zeros(4)))


def test_draws_are_one_kernel_with_what_uses_them():
    for draw in (random.uniform, random.normal):
        graph = lw.make_graph(lambda key, x, draw=draw: x * draw(key, x.shape))(KEY, np.zeros(8))
        assert len(lower_graph(graph, host_target(), blas=True).kernels.nodes) == 1


def test_the_block_of_the_paper():
    """Test vectors of the paper's library."""
    words = np.array([[0, 0xffffffff, 0x13198a2e], [0, 0xffffffff, 0x03707344], [0, 0xffffffff, 0x243f6a88],
                      [0, 0xffffffff, 0x85a308d3]], np.uint32)
    first, second = threefry(NumpyWords(), *words)
    assert list(map(hex, first)) == ["0x6b200159", "0x1cb996fc", "0xc4923a9c"]
    assert list(map(hex, second)) == ["0x99ba4efe", "0xbb002be7", "0x483df7a0"]


def test_samples_are_differentiable_in_their_parameters():
    value = random.normal(KEY)
    gradient = lw.grad(lambda m, s: m + s * random.normal(KEY), (0, 1))(1.0, 2.0)
    np.testing.assert_allclose(gradient, (1.0, value))
    low = random.uniform(KEY)
    np.testing.assert_allclose(lw.grad(lambda b: random.uniform(KEY, (), minval=0.0, maxval=b))(3.0), low)
    slope = lw.grad(lambda a: random.truncated_normal(KEY, a, 3.0))(0.5)
    step = 1e-6
    difference = (random.truncated_normal(KEY, 0.5 + step, 3.0) - random.truncated_normal(KEY, 0.5 - step, 3.0)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


# ---- distributions ----------------------------------------------------------------------------------
MOMENTS = {  # mean and variance
    "uniform": ((), 1 / 2, 1 / 12), "normal": ((), 0, 1), "exponential": ((), 1, 1), "laplace": ((), 0, 2),
    "gumbel": ((), 0.5772156649, math.pi ** 2 / 6), "logistic": ((), 0, math.pi ** 2 / 3), "rademacher": ((), 0, 1),
    "pareto": ((5.0,), 1.25, 5 / 48), "rayleigh": ((2.0,), 2 * math.sqrt(math.pi / 2), (4 - math.pi) / 2 * 4),
    "wald": ((2.0,), 2, 8), "geometric": ((0.3,), 1 / 0.3, 0.7 / 0.09), "lognormal": ((0.5,), math.exp(0.125), 0.36470),
    "triangular": ((1.0, 2.0, 5.0), 8 / 3, 13 / 18), "bernoulli": ((0.3,), 0.3, 0.21),
    "maxwell": ((), 2 * math.sqrt(2 / math.pi), 3 - 8 / math.pi),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    parameters, mean, variance = MOMENTS[name]
    count = 40_000
    x = np.asarray(getattr(random, name)(random.key(3), *parameters, shape=(count,)), float)
    assert abs(x.mean() - mean) < 6 * math.sqrt(variance / count)
    np.testing.assert_allclose(x.var(), variance, rtol=0.12)


def test_a_normal_sample_passes_the_test_of_kolmogorov():
    stats = pytest.importorskip("scipy.stats", reason="the distribution functions of SciPy")
    assert stats.kstest(random.normal(random.key(5), (20_000,)), "norm").pvalue > 1e-3
    assert stats.kstest(random.uniform(random.key(6), (20_000,)), "uniform").pvalue > 1e-3
    assert stats.kstest(random.laplace(random.key(7), (20_000,)), "laplace").pvalue > 1e-3


def test_truncated_normal_stays_inside():
    x = random.truncated_normal(KEY, 1.0, 1.5, (1000,))
    assert x.min() > 1.0 and x.max() < 1.5
    assert random.truncated_normal(KEY, np.zeros(3), 1.0).shape == (3,)


def test_permutation_permutes():
    for n in (0, 1, 2, 1700):
        np.testing.assert_array_equal(np.sort(random.permutation(KEY, n)), np.arange(n))


# ---- errors -----------------------------------------------------------------------------------------
def test_errors_name_the_fix():
    with pytest.raises(lw.ArgumentError, match="Use vmap to draw from several keys"):
        random.normal(random.split(KEY, 3))
    with pytest.raises(lw.ArgumentError, match=r"Make one with random\.key"):
        random.normal(np.zeros(2))
    with pytest.raises(lw.ArgumentError, match="a seed is one integer"):
        random.key(np.zeros(3))
    with pytest.raises(OverflowError):
        random.key(2 ** 63)
    with pytest.raises(lw.DTypeError, match="makes floating numbers"):
        random.uniform(KEY, (2,), np.int32)
    with pytest.raises(lw.DTypeError, match="makes integers"):
        random.randint(KEY, (2,), 0, 3, np.float32)
    with pytest.raises(lw.ShapeError, match="do not broadcast"):
        random.truncated_normal(KEY, np.zeros(3), 1.0, (2,))
    with pytest.raises(ValueError, match="without replacement"):
        random.choice(KEY, 3, (4,), replace=False)
    with pytest.raises(lw.ArgumentError, match="static argument"):
        lw.jit(lambda n: random.permutation(KEY, n))(3)


# ---- distributions by rejection ---------------------------------------------------------------------
REJECTED = {
    "gamma": (np.array([0.3, 1.0, 2.5, 30.0]),), "loggamma": (np.array([0.01, 0.3, 1.0, 2.5]),), "beta": (0.5, np.ones(6)),
    "dirichlet": (np.array([[0.5, 1.0, 3.0]]),), "t": (np.full(6, 3.0),), "chisquare": (np.full(6, 3.0),),
    "f": (3.0, np.ones(6)), "poisson": (np.array([0.0, 0.5, 3.0, 9.5, 12.0, 400.0]),),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejection_is_that_of_jax(name):
    jax = pytest.importorskip("jax", reason="compares with jax.random where that is installed")
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        want = np.asarray(getattr(jax.random, name)(KEY, *REJECTED[name]))
    found = getattr(random, name)(KEY, *REJECTED[name])
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_rejection_compiles_and_batches():
    a = np.array([0.3, 2.5, 30.0])
    np.testing.assert_allclose(lw.jit(random.gamma)(KEY, a), random.gamma(KEY, a), rtol=1e-13)
    keys = random.split(KEY, 2)
    np.testing.assert_allclose(lw.vmap(lambda k: random.poisson(k, a))(keys), [random.poisson(k, a) for k in keys])


@pytest.mark.parametrize("name, parameters, mean, variance", [
    ("gamma", (2.5,), 2.5, 2.5), ("gamma", (0.4,), 0.4, 0.4), ("beta", (2.0, 3.0), 0.4, 0.04), ("chisquare", (3.0,), 3, 6),
    ("t", (9.0,), 0, 9 / 7), ("poisson", (3.5,), 3.5, 3.5), ("poisson", (40.0,), 40, 40)])
def test_moments_of_rejection(name, parameters, mean, variance):
    x = np.asarray(getattr(random, name)(random.key(3), *parameters, shape=(20_000,)), float)
    assert abs(x.mean() - mean) < 6 * math.sqrt(variance / 20_000)
    np.testing.assert_allclose(x.var(), variance, rtol=0.15)


def test_gamma_is_differentiable_in_its_parameter():
    """The slope keeps the distribution function of the sample: d gammainc(a, x(a)) / d a = 0."""
    special = pytest.importorskip("scipy.special")
    a, h = np.array([0.3, 1.0, 2.5, 30.0]), 1e-6
    x = random.gamma(KEY, a)
    want = (special.gammaincinv(a + h, special.gammainc(a, x)) - special.gammaincinv(a - h, special.gammainc(a, x))) / (2 * h)
    np.testing.assert_allclose(lw.grad(lambda a: np.sum(random.gamma(KEY, a)))(a), want, rtol=1e-5)
    np.testing.assert_allclose(lw.grad(lambda a: np.sum(random.loggamma(KEY, a)))(a), want / x, rtol=1e-5)


def test_points_in_a_ball():
    x = random.ball(KEY, 3, shape=(500,))
    assert x.shape == (500, 3) and np.all(np.linalg.norm(x, axis=-1) <= 1)
    assert abs(np.mean(np.linalg.norm(x, axis=-1) ** 3) - 0.5) < 0.08


# ---- counts, vectors and matrices -------------------------------------------------------------------
@pytest.mark.parametrize("n, p", [(5, 0.3), (12, 0.9), (100, 0.5), (1000, 0.02), (40, 0.9)])
def test_binomial_counts(n, p):
    stats = pytest.importorskip("scipy.stats", reason="the distribution functions of SciPy")
    x = random.binomial(random.key(4), n, p, (20_000,))
    assert x.min() >= 0 and x.max() <= n and np.all(x == np.floor(x))
    assert abs(x.mean() - n * p) < 6 * math.sqrt(n * p * (1 - p) / 20_000)
    grid = np.arange(n + 1)
    observed, expected = np.bincount(x.astype(int), minlength=n + 1), 20_000 * stats.binom.pmf(grid, n, p)
    kept = expected > 5
    assert stats.chi2.sf(((observed - expected)[kept] ** 2 / expected[kept]).sum(), kept.sum() - 1) > 1e-4


def test_multinomial_counts():
    p = np.array([0.1, 0.2, 0.0, 0.7])
    x = random.multinomial(random.key(4), np.full(5000, 20), p, shape=(5000, 4))
    assert x.dtype == np.float64 and np.all(x.sum(-1) == 20) and np.all(x[:, 2] == 0)
    np.testing.assert_allclose(x.mean(0), 20 * p, atol=6 * math.sqrt(20 * 0.25 / 5000))
    compiled = lw.jit(lambda key, n, p: random.multinomial(key, n, p))
    for n in (3, 4):
        p = np.full(n, 1 / n)
        np.testing.assert_array_equal(compiled(KEY, 9, p), random.multinomial(KEY, 9, p))
    assert compiled.compiles == 1


def test_normal_vectors():
    mean, cov = np.array([1.0, -2.0, 0.5]), np.array([[2.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 1.0]])
    for method in ("cholesky", "eigh", "svd"):
        x = random.multivariate_normal(random.key(1), mean, cov, (20_000,), method=method)
        np.testing.assert_allclose(x.mean(0), mean, atol=0.06)
        np.testing.assert_allclose(np.cov(x.T), cov, atol=0.08)
    assert random.multivariate_normal(KEY, np.zeros((4, 1, 3)), np.stack([cov, cov])).shape == (4, 2, 3)
    assert random.multivariate_normal(KEY, mean, cov, (0,)).shape == (0, 3)
    singular = random.multivariate_normal(KEY, np.zeros(2), np.ones((2, 2)), (5,), method="svd")
    np.testing.assert_allclose(singular[:, 0], singular[:, 1])
    weights = np.array([0.3, -1.0, 2.0])

    def f(mean, cov):
        return np.sum(weights * random.multivariate_normal(KEY, mean, cov))
    along, step = np.array([[0.3, 0.1, 0.2], [0.1, -0.2, 0.0], [0.2, 0.0, 0.4]]), 1e-6
    want = (f(mean, cov + step * along) - f(mean, cov - step * along)) / (2 * step)
    np.testing.assert_allclose(lw.grad(f)(mean, cov), weights)
    np.testing.assert_allclose(np.sum(along * lw.grad(f, 1)(mean, cov)), want, rtol=1e-6)
    np.testing.assert_allclose(lw.jit(lw.grad(f, 1))(mean, cov), lw.grad(f, 1)(mean, cov), rtol=1e-10)


def test_one_compile_draws_vectors_of_every_size():
    draw = lw.jit(lambda key, mean, cov, x: random.multivariate_normal(key, mean, cov, x.shape))
    for n, count in ((2, 3), (4, 5), (3, 7)):
        mean, cov = np.arange(float(n)), np.eye(n) + 0.1
        want = random.multivariate_normal(KEY, mean, cov, (count,))
        np.testing.assert_allclose(draw(KEY, mean, cov, np.zeros(count)), want, rtol=1e-12)
    assert draw.compiles == 1


def test_orthogonal_matrices():
    for n, m in ((3, 3), (5, 2), (2, 4)):
        q = random.orthogonal(KEY, n, (6,), m=m)
        assert q.shape == (6, n, m)
        gram = q @ np.swapaxes(q, -1, -2) if n <= m else np.swapaxes(q, -1, -2) @ q
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(min(n, m)), gram.shape), atol=1e-14)
    corner = random.orthogonal(random.key(2), 3, (4000,))[:, 0, 0]  # of a point on the sphere: uniform in [-1, 1]
    assert abs(corner.mean()) < 6 / math.sqrt(3 * 4000) and abs((corner ** 2).mean() - 1 / 3) < 0.03


def test_counts_and_vectors_under_vmap_of_keys():
    keys = random.split(KEY, 3)

    def f(key):
        return (random.binomial(key, np.array([9.0, 400.0]), 0.4), random.multivariate_normal(key, np.zeros(2), np.eye(2)),
                random.double_sided_maxwell(key, 0.0, 1.0, (2,)), random.multinomial(key, 7, np.array([0.3, 0.7])))
    for k, results in enumerate(zip(*lw.jit(lw.vmap(f))(keys), strict=True)):
        for got, want in zip(results, f(keys[k]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13)


def test_every_name_of_jax_is_here():
    jax = pytest.importorskip("jax", reason="compares with jax.random where that is installed")
    about_keys = {"key_dtype", "key_impl"}  # of other generators, which do not exist here
    assert {n for n in dir(jax.random) if not n.startswith("_") and not n.endswith("_p")} - about_keys <= set(random.__all__)


def test_errors_of_counts_and_vectors():
    with pytest.raises(lw.ShapeError, match="mean must have shape"):
        random.multivariate_normal(KEY, np.zeros(2), np.eye(3))
    with pytest.raises(ValueError, match="method must be"):
        random.multivariate_normal(KEY, np.zeros(2), np.eye(2), method="qr")
    with pytest.raises(lw.ShapeError, match="do not broadcast"):
        random.multivariate_normal(KEY, np.zeros((2, 2)), np.eye(2), (3,))
    with pytest.raises(lw.ShapeError, match="needs an axis of probabilities"):
        random.multinomial(KEY, 3, 0.5)
    with pytest.raises(lw.DTypeError, match="makes floating numbers"):
        random.binomial(KEY, 3, 0.5, dtype=np.int64)
    np.testing.assert_array_equal(random.clone(KEY), KEY)
