"""Special functions and distributions: mpmath and SciPy say the values in every way of running, differences the slopes."""
import math

import mpmath
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.ops import TABLE
from loopwright.ir.types import BF16, F16, F32
from loopwright.scipy import special, stats
from loopwright.tracer.tracer import Tracer

mpmath.mp.prec = 120


def ways(f):
    """A function run by NumPy and compiled."""
    return f, lw.jit(f)


def compiled(name: str):
    op = TABLE[name]
    return lw.jit(lambda x: Tracer(op(x.ref)))


# ---- accuracy of the ops ----------------------------------------------------------------------------
RNG = np.random.default_rng(0)
SMALL = 10.0 ** RNG.uniform(-20, 0, 15)
ACCURACY = {  # the function, where, and the greatest error in units in the last place
    "erfc": (mpmath.erfc, np.concatenate([RNG.uniform(-6, 26, 60), SMALL]), 6),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), np.concatenate([RNG.uniform(-26, 50, 60), SMALL, 1 / SMALL]), 6),
    "erfinv": (mpmath.erfinv, np.concatenate([RNG.uniform(-1, 1, 40), SMALL, 1 - 10 ** RNG.uniform(-15, 0, 15)]), 4),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), np.concatenate([RNG.uniform(0, 12, 80), 10 ** RNG.uniform(0, 4, 15),
               SMALL, 1 + SMALL, 2 - SMALL]), 5),
    "digamma": (mpmath.digamma, np.concatenate([RNG.uniform(0, 12, 80), 10 ** RNG.uniform(0, 8, 15), SMALL,
                RNG.uniform(1.46, 1.464, 20)]), 5),
    "i0e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x), np.concatenate([RNG.uniform(-20, 20, 60), SMALL]), 8),
    "i1e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), np.concatenate([RNG.uniform(-20, 20, 60), SMALL]), 10),
}


@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy(name):
    function, x, limit = ACCURACY[name]
    want = [function(mpmath.mpf(float(v))) for v in x]
    for got in (TABLE[name].numpy(x), compiled(name)(x)):
        for v, g, w in zip(x, got, want, strict=True):
            unit = float(np.spacing(abs(float(w)))) or 5e-324
            assert abs(mpmath.mpf(float(g)) - w) <= limit * unit, (v, float(g), float(w))


@pytest.mark.parametrize("name", [*ACCURACY, "ndtri"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_narrow_dtypes_are_rounded_from_double(name, dtype):
    x = np.linspace(0.01, 0.99, 41).astype(dtype)
    want = TABLE[name].numpy(x.astype(float)).astype(dtype)
    for got in (TABLE[name].numpy(x), compiled(name)(x)):
        assert got.dtype == dtype
        eps = 2.0 ** -7 if dtype == BF16 else float(np.finfo(dtype).eps)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2 * eps)


def test_erfinv_of_single_numbers():
    """It has a form of its own."""
    x = np.concatenate([RNG.uniform(-1, 1, 9000), 1 - 10 ** RNG.uniform(-7, 0, 5000), 10 ** RNG.uniform(-40, 0, 5000)])
    x = np.concatenate([x[np.abs(x.astype(F32)) < 1], np.nextafter(np.float32([1, -1]), np.float32(0)), [-0.0]]).astype(F32)
    got, want = compiled("erfinv")(x), TABLE["erfinv"].numpy(x.astype(float))
    assert (np.abs(got - want) <= 2.5 * np.spacing(np.abs(want).astype(F32))).all()
    assert (np.signbit(got) == np.signbit(x)).all()


EDGES = np.array([-np.inf, -3.0, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 40.0, 1e300, np.inf, np.nan])


@pytest.mark.parametrize("name", ["erf", "erfc", "erfcx", "erfinv", "gammaln", "i0e", "i1e", "ndtr", "ndtri", "log_ndtr",
                                  "expit", "logit", "entr", "i0", "i1"])
def test_edges_are_those_of_scipy(name):
    scipy = pytest.importorskip("scipy.special")
    x = EDGES[1:] if name == "gammaln" else EDGES[np.abs(EDGES) < 1e3] if name in ("i0", "i1") else EDGES
    with np.errstate(all="ignore"):
        want = getattr(scipy, name)(x)
    for f in ways(getattr(special, name)):
        np.testing.assert_allclose(f(x), want, rtol=1e-13)


# ---- two and three operands -------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name):
    scipy = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(1)
    for low, high, tolerance in ((0.01, 1, 1e-12), (0.5, 30, 1e-12), (30, 3000, 1e-10)):
        a = np.exp(rng.uniform(np.log(low), np.log(high), 100))
        x = a * 10 ** rng.uniform(-0.7, 0.7, 100)
        for f in ways(getattr(special, name)):
            np.testing.assert_allclose(f(a, x), getattr(scipy, name)(a, x), rtol=tolerance, atol=1e-290)
    edges = [0.0, 1.0, 1.0, np.inf, -1.0, 2.0, np.nan], [1.0, 0.0, np.inf, 1.0, 1.0, -1.0, 1.0]
    np.testing.assert_array_equal(getattr(special, name)(*edges), getattr(scipy, name)(*edges))


def test_incomplete_gamma_of_large_numbers():
    """In no time. Five standard deviations away SciPy's lower function is far off: those numbers are integrals by mpmath."""
    scipy = pytest.importorskip("scipy.special")
    near = np.array([-1e9, -2, -1, -0.1, 0, 0.1, 1, 2, 1e9])
    for name in ("gammainc", "gammaincc"):
        for f in ways(getattr(special, name)):
            for a in (1e6, 3e7, 1e12, 1e18, 1e300):
                x = np.maximum(a + near * np.sqrt(a), a / 2)
                np.testing.assert_allclose(f(a, x), getattr(scipy, name)(a, x), rtol=1e-13, atol=1e-290)
    a, x = np.array([1e6, 3e7, 1e12]), np.array([995000.0, 29972614.0, 999995000000.0])
    for f in ways(special.gammainc):
        np.testing.assert_allclose(f(a, x), [2.7495803592700708e-7, 2.8452128032508092e-7, 2.8663967832502037e-7], rtol=1e-13)
    for f in ways(special.gammaincc):
        np.testing.assert_allclose(f(a, 2 * a - x), [2.9874901401146349e-7, 2.8886475184674387e-7, 2.8666346583725959e-7],
                                   rtol=1e-13)


def test_formulas_of_the_incomplete_gamma_function_meet():
    below, above = np.nextafter(1e6, 0), 1e6
    x = 1e6 + 1e3 * np.array([-5, -1, 0, 0.1, 2, 5])
    for f, tolerance in ((special.gammainc, 1e-11), (special.gammaincc, 1e-11), (lw.grad(special.gammainc), 1e-8)):
        each = lw.vmap(f, in_axes=(None, 0))
        np.testing.assert_allclose(each(below, x), each(above, x), rtol=tolerance)
    slope, density = (lw.vmap(lw.grad(special.gammainc, k), in_axes=(0, 0)) for k in (0, 1))
    a = np.array([1e6, 1e7, 1e9])
    np.testing.assert_allclose(slope(a, a), -density(a, a), rtol=1e-3)  # who moves both moves little


def test_incomplete_beta():
    scipy = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(2)
    for low, high, tolerance in ((0.05, 1, 1e-12), (0.5, 30, 1e-12), (30, 3000, 1e-10)):
        a, b = np.exp(rng.uniform(np.log(low), np.log(high), (2, 100)))
        x = np.clip(a / (a + b) * 10 ** rng.uniform(-0.3, 0.3, 100), 1e-9, 1 - 1e-9)
        for f in ways(special.betainc):
            np.testing.assert_allclose(f(a, b, x), scipy.betainc(a, b, x), rtol=tolerance, atol=1e-290)
    np.testing.assert_array_equal(special.betainc([1.0, 1.0, 0.5, -1.0], 2.0, [0.0, 1.0, 1.5, 0.5]), [0, 1, np.nan, np.nan])


@pytest.mark.parametrize("name, low", [("betaln", 0.1), ("beta", 0.1), ("zeta", 1.1), ("xlogy", 0.0), ("xlog1py", 0.0),
                                       ("rel_entr", 0.0), ("kl_div", 0.0), ("comb", 4.0), ("poch", 0.3)])
def test_pairs(name, low):
    scipy = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(3)
    x, y = rng.uniform(low, 30, 60), rng.uniform(0.0, 4, 60)
    if name in ("betaln", "beta"):
        x, y = np.exp(rng.uniform(-2, 9, (2, 60))) if name == "betaln" else np.exp(rng.uniform(-2, 3, (2, 60)))
    if name.startswith(("x", "rel", "kl")):
        x[:4], y[2:6] = 0, 0
    for f in ways(getattr(special, name)):
        np.testing.assert_allclose(f(x, y), getattr(scipy, name)(x, y), rtol=1e-11)


@pytest.mark.parametrize("name", ["gamma", "gammasgn", "digamma", "factorial"])
def test_on_both_sides_of_0(name):
    scipy = pytest.importorskip("scipy.special")
    x = np.array([-7.5, -3.3, -0.5, -1e-3, 0.25, 1.0, 1.5, 4.0, 30.0])
    for f in ways(getattr(special, name)):
        np.testing.assert_allclose(f(x), getattr(scipy, name)(x), rtol=1e-12)


def test_polygamma_and_others():
    scipy = pytest.importorskip("scipy.special")
    x = np.array([0.1, 0.7, 1.5, 3.0, 9.5, 40.0])
    for n in range(6):
        np.testing.assert_allclose(special.polygamma(n, x), scipy.polygamma(n, x), rtol=1e-12)
    order = np.arange(6)
    for f in ways(special.polygamma):
        np.testing.assert_allclose(f(order, x), scipy.polygamma(order, x), rtol=1e-12)
    np.testing.assert_allclose(special.multigammaln(x + 2, 3), scipy.multigammaln(x + 2, 3), rtol=1e-13)
    np.testing.assert_allclose(special.bernoulli(10), scipy.bernoulli(10), rtol=1e-11)
    p = 10.0 ** np.array([-300, -100, -20, -5, -0.5])
    for f in ways(special.ndtri):
        np.testing.assert_allclose(f(p), scipy.ndtri(p), rtol=1e-14)


# ---- derivatives ------------------------------------------------------------------------------------
SMOOTH = {"erf": (-2, 2), "erfc": (-2, 3), "erfcx": (-1, 3), "erfinv": (-0.9, 0.9), "gammaln": (0.3, 12), "digamma": (0.3, 12),
          "i0": (-4, 4), "i1": (-4, 4), "i0e": (0.3, 12), "i1e": (0.3, 12), "expit": (-4, 4), "logit": (0.1, 0.9),
          "log_expit": (-4, 4), "ndtr": (-3, 3), "ndtri": (0.1, 0.9), "log_ndtr": (-5, 3), "entr": (0.2, 3), "gamma": (0.5, 5)}


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_differences(name):
    f = getattr(special, name)
    x, h = np.linspace(*SMOOTH[name], 11), 1e-5
    first, second = lw.vmap(lw.grad(f)), lw.vmap(lw.grad(lw.grad(f)))
    np.testing.assert_allclose(first(x), (f(x + h) - f(x - h)) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(second(x), (first(x + h) - first(x - h)) / (2 * h), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(lw.jit(second)(x), second(x), rtol=1e-11, atol=1e-13)


def test_derivatives_of_the_incomplete_functions():
    a, b, x, h = 2.3, 3.1, np.array([0.4, 1.7, 6.0]), 1e-5
    for f in (special.gammainc, special.gammaincc):
        in_a, in_x = (lw.vmap(lw.grad(f, k), in_axes=(None, 0)) for k in (0, 1))
        np.testing.assert_allclose(in_a(a, x), (f(a + h, x) - f(a - h, x)) / (2 * h), rtol=1e-6)
        np.testing.assert_allclose(in_x(a, x), (f(a, x + h) - f(a, x - h)) / (2 * h), rtol=1e-6)
        both = lw.vmap(lw.grad(lw.grad(f, 0), 1), in_axes=(None, 0))
        np.testing.assert_allclose(both(a, x), (in_a(a, x + h) - in_a(a, x - h)) / (2 * h), rtol=1e-5)
    z = np.array([0.1, 0.5, 0.8])
    slope = lw.vmap(lw.grad(special.betainc, 2), in_axes=(None, None, 0))
    difference = (special.betainc(a, b, z + h) - special.betainc(a, b, z - h)) / (2 * h)
    np.testing.assert_allclose(slope(a, b, z), difference, rtol=1e-6)
    np.testing.assert_allclose(lw.grad(special.zeta, 1)(2.5, 1.3), -2.5 * special.zeta(3.5, 1.3))


def test_derivatives_without_a_formula_are_refused():
    for f, args in ((lw.grad(special.zeta), (2.5, 1.3)), (lw.grad(special.betainc), (2.0, 3.0, 0.5)),
                    (lw.grad(lw.grad(special.gammainc)), (2.0, 3.0))):
        with pytest.raises(lw.GradientError):
            f(*args)


def test_slopes_at_the_edges():
    assert lw.grad(special.i0)(0.0) == 0 and lw.grad(lw.grad(special.i0))(0.0) == 0.5 and lw.grad(special.i1)(0.0) == 0.5
    assert lw.grad(special.entr)(0.0) == math.inf
    assert lw.grad(special.xlogy, (0, 1))(0.0, 2.0) == (math.log(2.0), 0.0)
    for x in (-800.0, 800.0):
        assert np.isfinite(lw.grad(special.expit)(x)) and np.isfinite(lw.grad(special.log_expit)(x))


# ---- over an axis -----------------------------------------------------------------------------------
def test_logsumexp():
    scipy = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(3, 4)) * 500, rng.normal(size=(3, 4))
    for options in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"axis": (0, 1)}, {"axis": 1, "b": np.abs(b)}):
        for f in ways(lambda a, options=options: special.logsumexp(a, **options)):
            np.testing.assert_allclose(f(a), scipy.logsumexp(a, **options), rtol=1e-14)
    for got, want in zip(special.logsumexp(a, 1, b, return_sign=True), scipy.logsumexp(a, 1, b, return_sign=True), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)
    assert special.logsumexp(np.zeros(0)) == -math.inf and special.logsumexp([-np.inf, -np.inf]) == -math.inf
    assert special.logsumexp([np.inf, 0]) == math.inf
    mask = np.array([True, False, True, False])
    np.testing.assert_allclose(special.logsumexp(a, 1, where=mask), scipy.logsumexp(a[:, mask], 1), rtol=1e-14)
    gradient = lw.grad(lambda a: special.logsumexp(a, where=np.zeros(3, bool)))(np.ones(3))
    np.testing.assert_array_equal(gradient, 0)
    assert "abs" not in str(lw.make_graph(special.logsumexp)(np.ones(3)))  # the sum is of what is not negative


# ---- distributions ----------------------------------------------------------------------------------
CONTINUOUS = {"norm": (), "uniform": (), "expon": (), "gamma": (2.3,), "chi2": (3.5,), "beta": (2.0, 3.5), "laplace": (),
              "cauchy": (), "logistic": (), "gumbel_r": (), "gumbel_l": (), "pareto": (2.5,), "lognorm": (0.7,), "t": (4.5,),
              "gennorm": (1.7,), "truncnorm": (-1.2, 2.5), "vonmises": (1.3,), "wrapcauchy": (0.4,)}
DISCRETE = {"bernoulli": (0.3,), "poisson": (3.5,), "geom": (0.3,), "binom": (8, 0.3), "nbinom": (4, 0.3),
            "betabinom": (8, 2.0, 3.0)}
POINTS = np.array([-7.0, -1.5, -0.2, 0.0, 0.2, 0.5, 0.9, 1.0, 1.3, 2.0, 5.0, 30.0, np.nan])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distributions(name):
    scipy = pytest.importorskip("scipy.stats")
    ours, theirs, shapes = getattr(stats, name), getattr(scipy, name), CONTINUOUS[name]
    for method in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf") if "cdf" in ours.formulas else ("logpdf", "pdf"):
        want = getattr(theirs, method)(POINTS, *shapes, 0.5, 2.0)
        for f in ways(lambda x, method=method: getattr(ours, method)(x, *shapes, loc=0.5, scale=2.0)):
            np.testing.assert_allclose(f(POINTS), want, rtol=1e-8 if method.startswith("log") else 1e-11)
        assert not np.isnan(lw.vmap(lw.grad(lambda x, method=method: getattr(ours, method)(x, *shapes)))(POINTS[:-1])).any()
    q = np.array([-0.1, 0.0, 1e-10, 0.1, 0.5, 0.75, 1.0, 1.1])
    for method in {"ppf", "isf"} & set(ours.formulas):
        for f in ways(lambda q, method=method: getattr(ours, method)(q, *shapes, 0.5, 2.0)):
            np.testing.assert_allclose(f(q), getattr(theirs, method)(q, *shapes, 0.5, 2.0), rtol=1e-11)


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if "cdf" in getattr(stats, name).formulas])
def test_densities_are_slopes_of_distribution_functions(name):
    ours, shapes = getattr(stats, name), CONTINUOUS[name]
    x = np.array([0.13, 0.4, 0.77]) + (1 if name == "pareto" else 0)
    np.testing.assert_allclose(lw.vmap(lw.grad(lambda x: ours.cdf(x, *shapes)))(x), ours.pdf(x, *shapes), rtol=1e-11)
    if name == "t":
        np.testing.assert_allclose(lw.grad(lambda x: ours.cdf(x, *shapes))(0.0), ours.pdf(0.0, *shapes), rtol=1e-13)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions(name):
    scipy = pytest.importorskip("scipy.stats")
    ours, theirs, shapes = getattr(stats, name), getattr(scipy, name), DISCRETE[name]
    k = np.array([-1, 0, 1, 2, 2.5, 3, 7, 8, 9, 20])
    for method in {"logpmf", "pmf", "cdf", "sf"} & {"logpmf", "pmf", *ours.formulas}:
        for loc in (0, 1):
            for f in ways(lambda k, method=method, loc=loc: getattr(ours, method)(k, *shapes, loc=loc)):
                np.testing.assert_allclose(f(k), getattr(theirs, method)(k, *shapes, loc), rtol=1e-11)


@pytest.mark.parametrize(("a", "b"), [(3.0, np.inf), (-9.0, -5.0), (-np.inf, np.inf), (-np.inf, -2.0), (8.0, 9.0), (30, 31)])
def test_truncated_tails(a, b):
    scipy = pytest.importorskip("scipy.stats")
    x = np.linspace(max(a, -10.0) - 1, min(b, 35.0) + 1, 23)
    for method in ("logpdf", "cdf", "sf", "logcdf", "logsf"):
        for f in ways(lambda x, method=method: getattr(stats.truncnorm, method)(x, a, b)):
            np.testing.assert_allclose(f(x), getattr(scipy.truncnorm, method)(x, a, b), rtol=1e-8)
        assert not np.isnan(lw.vmap(lw.grad(lambda x, m=method: getattr(stats.truncnorm, m)(x, a, b)))(x)).any()


def differences(f, x, h=1e-6):
    return np.reshape([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(x.size).reshape(-1, *x.shape)], x.shape)


def test_normal_vectors():
    scipy = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 3))
    x, mean, cov = rng.normal(size=(5, 3)), rng.normal(size=3), a @ a.T + np.eye(3)
    for f, theirs in ((stats.multivariate_normal.logpdf, scipy.multivariate_normal.logpdf),
                      (stats.multivariate_normal.pdf, scipy.multivariate_normal.pdf)):
        for way in (f, lw.jit(f), lambda *args, f=f: lw.vmap(f, (0, None, None))(*args)):
            np.testing.assert_allclose(way(x, mean, cov), theirs(x, mean, cov), rtol=1e-12)
            np.testing.assert_allclose(way(x, mean, 2.0), theirs(x, mean, 2 * np.eye(3)), rtol=1e-12)
        np.testing.assert_allclose(f(1.5, 0.5, 4.0), scipy.norm.logpdf(1.5, 0.5, 2) if f is stats.multivariate_normal.logpdf
                                   else scipy.norm.pdf(1.5, 0.5, 2), rtol=1e-14)
    batch = np.stack([cov, 2 * cov])
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(x[:2], mean, batch),
                               [scipy.multivariate_normal.logpdf(v, mean, c) for v, c in zip(x[:2], batch, strict=True)],
                               rtol=1e-12)

    def symmetric(c):
        return stats.multivariate_normal.logpdf(x[0], mean, (c + c.T) / 2)

    for f, at in ((lambda v: stats.multivariate_normal.logpdf(v, mean, cov), x[0]),
                  (lambda m: stats.multivariate_normal.logpdf(x[0], m, cov), mean), (symmetric, cov)):
        for way in (lw.grad(f), lw.jit(lw.grad(f))):
            np.testing.assert_allclose(way(at), differences(f, at), rtol=1e-6, atol=1e-8)
    with pytest.raises(np.linalg.LinAlgError):
        stats.multivariate_normal.logpdf(x, mean, -cov)


def test_dirichlet_and_multinomial():
    scipy = pytest.importorskip("scipy.stats")
    alpha, x = np.array([1.0, 2.5, 0.7]), np.array([[0.2, 0.6], [0.3, 0.3], [0.5, 0.1]])
    for f in ways(lambda x: stats.dirichlet.logpdf(x, alpha)):
        np.testing.assert_allclose(f(x), [scipy.dirichlet.logpdf(v, alpha) for v in x.T], rtol=1e-12)
        np.testing.assert_allclose(f(x[:2]), f(x), rtol=1e-12)
        np.testing.assert_array_equal(f(np.array([[0.5, -0.1, 0.0], [0.5, 0.6, 0.5], [0.5, 0.5, 0.5]])), -np.inf)
    np.testing.assert_allclose(stats.dirichlet.pdf(x, alpha), np.exp(stats.dirichlet.logpdf(x, alpha)))
    np.testing.assert_allclose(lw.grad(lambda a: stats.dirichlet.logpdf(x[:, 0], a))(alpha),
                               differences(lambda a: stats.dirichlet.logpdf(x[:, 0], a), alpha), rtol=1e-6)
    assert not np.isnan(lw.grad(lambda x: stats.dirichlet.logpdf(x, alpha))(np.array([0.0, 0.5, 0.5]))).any()
    with pytest.raises(lw.ShapeError, match="alpha must be a vector"):
        stats.dirichlet.logpdf(x[:1], alpha)
    p, counts = np.array([0.2, 0.3, 0.5]), np.array([[1, 2, 3], [6, 0, 0], [1, 2, 4], [-1, 3, 4], [1, 2, 3]])
    for f in ways(lambda k: stats.multinomial.logpmf(k, 6, p)):
        np.testing.assert_allclose(f(counts), scipy.multinomial.logpmf(counts, 6, p), rtol=1e-12)
    assert stats.multinomial.logpmf([0.5, 5.5, 0.0], 6, p) == -np.inf
    np.testing.assert_allclose(stats.multinomial.pmf(counts, 6, p), scipy.multinomial.pmf(counts, 6, p), rtol=1e-12)
    np.testing.assert_allclose(lw.grad(lambda p: stats.multinomial.logpmf(counts[0], 6, p))(p), counts[0] / p, rtol=1e-12)


def test_errors():
    with pytest.raises(TypeError, match=r"gamma\.pdf takes x, a, loc, scale, each once: a is missing"):
        stats.gamma.pdf(1.0)
    with pytest.raises(AttributeError, match="no closed form"):
        stats.gamma.ppf(0.5, 2.0)
    with pytest.raises(lw.DTypeError, match="real numbers"):
        special.gammaln(1j)
