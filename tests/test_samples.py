"""Statistics of samples: SciPy says the values, differences the slopes."""

import numpy as np
import pytest
import scipy.stats as ss

import loopwright as lw
from loopwright import nn
from loopwright.scipy import stats

RNG = np.random.default_rng(0)
X = RNG.integers(0, 5, (4, 9))
DATA, WEIGHTS = RNG.normal(size=(2, 12)), RNG.random(12)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_ranks(method, axis):
    for x in (X, X.astype(np.float32), RNG.normal(size=(3, 5))):
        want = ss.rankdata(x, method, axis=axis)
        np.testing.assert_array_equal(stats.rankdata(x, method, axis=axis), want)
    compiled = lw.jit(lambda x: stats.rankdata(x, method, axis=axis))(X)
    np.testing.assert_array_equal(compiled, ss.rankdata(X, method, axis=axis))
    np.testing.assert_array_equal(stats.rankdata([1.0, np.nan, 2.0], method), [np.nan] * 3)


MODES = lw.jit(stats.mode, static_argnames=("axis", "keepdims"))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_modes(axis, keepdims):
    want = ss.mode(X, axis=axis, keepdims=keepdims)
    for how in (stats.mode, MODES):
        got = how(X, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(got.mode, want.mode)
        np.testing.assert_array_equal(got.count, want.count)
    assert stats.mode(np.array([1.0, np.nan, np.nan])).count == 2
    with pytest.raises(lw.ShapeError, match=r"stats.mode: no numbers lie along axis 0"):
        stats.mode(np.zeros((0, 2)))


def test_one_trace_serves_all_sizes():
    f = lw.jit(lambda x: (stats.mode(x)[0], stats.rankdata(x), stats.sem(x)))
    for n in (5, 6, 8):
        x = RNG.integers(0, 3, n) * 1.0
        mode, ranks, error = f(x)
        assert mode == ss.mode(x).mode
        np.testing.assert_array_equal(ranks, ss.rankdata(x))
        np.testing.assert_allclose(error, ss.sem(x), rtol=1e-13)
    assert f.compiles == 1
    np.testing.assert_array_equal(lw.vmap(stats.rankdata)(X), ss.rankdata(X, axis=1))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_standard_errors(axis):
    x = RNG.normal(size=(4, 6))
    np.testing.assert_allclose(lw.jit(stats.sem, static_argnums=1)(x, axis), ss.sem(x, axis), rtol=1e-13)
    np.testing.assert_allclose(stats.sem(x, axis, ddof=0, keepdims=True), ss.sem(x, axis, ddof=0, keepdims=True), rtol=1e-13)
    x[1, 2] = np.nan
    np.testing.assert_allclose(stats.sem(x, axis), ss.sem(x, axis), rtol=1e-13)
    omitted = np.asarray(ss.sem(x, axis, nan_policy="omit"))
    np.testing.assert_allclose(stats.sem(x, axis, nan_policy="omit"), omitted, rtol=1e-13)
    with pytest.raises(ValueError, match=r"test_samples.py.*nan_policy must be 'propagate' or 'omit'"):
        stats.sem(x, nan_policy="raise")


LOG_DENSITY = lw.jit(lambda kde, x: kde.logpdf(x))


# ---- densities ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bw_method", [None, "scott", "silverman", 0.4, lambda kde: kde.n ** -0.3])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("data", [DATA, DATA[0]], ids=["points", "numbers"])
def test_densities(data, weights, bw_method):
    ours, theirs = stats.gaussian_kde(data, bw_method, weights), ss.gaussian_kde(data, bw_method, weights)
    points = RNG.normal(size=(2, 7)) if data.ndim == 2 else RNG.normal(size=7)
    for name in ("covariance", "inv_cov", "neff", "weights"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)
    np.testing.assert_allclose(ours(points), theirs(points), rtol=1e-12)
    np.testing.assert_allclose(LOG_DENSITY(ours, points), theirs.logpdf(points), rtol=1e-11)
    d = ours.d
    np.testing.assert_allclose(ours.integrate_gaussian(np.ones(d), 2 * np.eye(d)), theirs.integrate_gaussian(
        np.ones(d), 2 * np.eye(d)), rtol=1e-12)
    other, other_of_theirs = stats.gaussian_kde(2 * data, 0.5), ss.gaussian_kde(2 * data, 0.5)
    np.testing.assert_allclose(ours.integrate_kde(other), theirs.integrate_kde(other_of_theirs), rtol=1e-12)
    if d == 1:
        np.testing.assert_allclose(ours.integrate_box_1d(-1, 0.5), theirs.integrate_box_1d(-1, 0.5), rtol=1e-12)


def test_densities_differentiate_and_are_drawn_from():
    def loss(data, x):
        return stats.gaussian_kde(data).logpdf(x).sum()
    x, h = RNG.normal(size=(2, 3)), 1e-6
    direction = RNG.normal(size=DATA.shape)
    slope = lw.jit(lw.grad(loss))(DATA, x)
    want = (ss.gaussian_kde(DATA + h * direction).logpdf(x).sum() - ss.gaussian_kde(DATA - h * direction).logpdf(x).sum())
    np.testing.assert_allclose(np.sum(slope * direction), want / (2 * h), rtol=1e-6)
    kde = stats.gaussian_kde(DATA, 0.2)
    drawn = kde.resample(lw.random.PRNGKey(0), (4000,))
    assert drawn.shape == (2, 4000)
    np.testing.assert_allclose(drawn.mean(1), DATA.mean(1), atol=0.08)
    batch = lw.vmap(lambda data: stats.gaussian_kde(data)(x))(np.stack([DATA, 2 * DATA]))
    np.testing.assert_allclose(batch[1], ss.gaussian_kde(2 * DATA)(x), rtol=1e-12)


@pytest.mark.parametrize("call, error, message", [
    (lambda: stats.gaussian_kde(np.ones(1)), lw.ShapeError, "at least two points"),
    (lambda: stats.gaussian_kde(DATA, weights=np.ones(3)), lw.ShapeError, "weights must be one for each of 12 points"),
    (lambda: stats.gaussian_kde(DATA, "broad"), ValueError, "bw_method must be"),
    (lambda: stats.gaussian_kde(DATA)(np.ones((3, 2))), lw.ShapeError, "points must be columns of 2 numbers"),
    (lambda: stats.gaussian_kde(DATA).integrate_box_1d(0, 1), lw.ShapeError, "integrate_box_1d is for numbers"),
    (lambda: stats.gaussian_kde(DATA).integrate_gaussian(np.ones(3), np.eye(3)), lw.ShapeError, "must be of 2 dimensions"),
    (lambda: stats.rankdata(X, "median"), ValueError, "method must be one of"),
], ids=range(7))
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_samples.py" in str(caught.value)


# ---- distributions ----------------------------------------------------------------------------------------
def test_quantiles_of_bernoulli_and_entropy_of_poisson():
    q, p = np.array([-0.1, 0.0, 0.2, 0.7, 0.700001, 1.0, 1.5, np.nan]), np.array([0.3, 0.0, 1.0, 1.5])[:, None]
    want = ss.bernoulli.ppf(q, p)
    got = lw.jit(stats.bernoulli.ppf)(q, p)
    usual = (q > 0)[None, :] & (q < 1) & (np.abs(q - 0.7) > 1e-3)
    np.testing.assert_array_equal(got[np.broadcast_to(usual, got.shape)], want[np.broadcast_to(usual, got.shape)])
    assert stats.bernoulli.ppf(0.9, 0.3, loc=2) == 3 and np.isnan(stats.bernoulli.ppf(0.5, -1))
    mu, k = np.array([1e-3, 0.5, 1.0, 9.9, 99.0, 199.0, 201.0, 1e4]), np.arange(12_000)[:, None]
    log_p = ss.poisson.logpmf(k, mu)
    want = -np.sum(np.exp(log_p) * log_p, axis=0)
    for how in (stats.poisson.entropy, lw.jit(stats.poisson.entropy)):
        np.testing.assert_allclose(how(mu), want, rtol=2e-10)
    assert stats.poisson.entropy(0.0) == 0
    h = 1e-5
    slope = (ss.poisson.entropy(3 + h) - ss.poisson.entropy(3 - h)) / (2 * h)
    np.testing.assert_allclose(lw.grad(stats.poisson.entropy)(3.0), slope, rtol=1e-6)
    assert np.isnan(stats.poisson.entropy(-1.0))


def test_log_of_one_less_an_exponential():
    x = np.array([1e-300, 1e-20, 1e-3, 0.5, 0.6931, 0.7, 3.0, 40.0, 800.0, np.inf])
    with np.errstate(all="ignore"):
        want = np.where(x < 0.5, np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))
    for how in (nn.log1mexp, lw.jit(nn.log1mexp)):
        np.testing.assert_allclose(how(x), want, rtol=1e-14)
    np.testing.assert_allclose(lw.vmap(lw.grad(nn.log1mexp))(x[1:-1]), 1 / np.expm1(np.minimum(x[1:-1], 700)), rtol=1e-13,
                               atol=1e-300)
    assert nn.log1mexp(0.0) == -np.inf and np.isnan(nn.log1mexp(-1.0)) and nn.tanh(0.5) == np.tanh(0.5)
