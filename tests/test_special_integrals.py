"""Integrals, hypergeometric functions, complex functions: mpmath and SciPy say the values, differences the slopes."""
import mpmath
import numpy as np
import pytest
import scipy.special as scs

import loopwright as lw
from loopwright.scipy import special

mpmath.mp.prec = 120
RNG = np.random.default_rng(0)
SMALL, MIDDLE, LARGE = 10.0 ** RNG.uniform(-8, 0, 20), RNG.uniform(0, 12, 60), 10.0 ** RNG.uniform(1, 2.8, 20)
POSITIVE = np.concatenate([SMALL, MIDDLE, LARGE, [0.5, 1.0, 1.5, 2.0, 3.0, 6.0, 8.0, 24.0]])
REAL = np.concatenate([POSITIVE, -POSITIVE])
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.5, 800.0, -800.0, 1e-300, 5e-324])


def dawson(x):
    return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)


def part(name, k):
    return lambda x: getattr(special, name)(x)[k]


ONE = {  # the function, mpmath's, where, and the greatest error: relative, absolute
    "exp1": (special.exp1, mpmath.e1, POSITIVE, 1e-15, 0), "expi": (special.expi, mpmath.ei, REAL, 5e-15, 5e-15),
    "dawsn": (special.dawsn, dawson, REAL, 2e-15, 0),
    "spence": (special.spence, lambda x: mpmath.polylog(2, 1 - x).real, POSITIVE, 1e-15, 0),
    "si": (part("sici", 0), mpmath.si, REAL, 1e-15, 0), "ci": (part("sici", 1), mpmath.ci, POSITIVE, 3e-15, 3e-15),
    "fresnel_s": (part("fresnel", 0), mpmath.fresnels, REAL, 2e-15, 5e-14),
    "fresnel_c": (part("fresnel", 1), mpmath.fresnelc, REAL, 2e-15, 5e-14),
}
SCIPY = {"si": lambda x: scs.sici(x)[0], "ci": lambda x: scs.sici(x)[1], "fresnel_s": lambda x: scs.fresnel(x)[0],
         "fresnel_c": lambda x: scs.fresnel(x)[1]}


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name):
    f, exact, x, relative, absolute = ONE[name]
    want = np.array([float(exact(mpmath.mpf(float(v)))) for v in x])
    compiled = lw.jit(f)
    for how in (f, compiled, lw.vmap(f)):
        np.testing.assert_allclose(how(x), want, rtol=relative, atol=max(absolute, 1e-300))
    with np.errstate(all="ignore"):
        edges = SCIPY.get(name, getattr(scs, name, None))(EDGES)
    for how in (f, compiled):
        np.testing.assert_allclose(how(EDGES), edges, rtol=1e-14, atol=1e-300)
    narrow = f(x.astype(np.float32))
    assert narrow.dtype == np.float32
    near = np.abs(x) < 50
    wide = np.array([float(exact(mpmath.mpf(float(v)))) for v in x[near].astype(np.float32)])
    np.testing.assert_allclose(narrow[near], wide, rtol=2e-5, atol=3e-5)


@pytest.mark.parametrize("name", ONE)
def test_slopes_of_any_order(name):
    f = ONE[name][0]
    x, h = np.array([0.05, 0.3, 0.9, 1.0, 1.02, 2.5, 7.9]), 1e-4
    first, second = lw.vmap(lw.grad(f)), lw.vmap(lw.grad(lw.grad(f)))
    np.testing.assert_allclose(first(x), (f(x + h) - f(x - h)) / (2 * h), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second(x), (first(x + h) - first(x - h)) / (2 * h), rtol=1e-4, atol=1e-4)
    assert np.isfinite(lw.vmap(lw.grad(lw.grad(lw.grad(f))))(x)).all()


def test_exponential_integrals_of_other_orders():
    n = np.array([0, 1, 2, 3, 5, 10, 50, 1000])[:, None]
    x = np.concatenate([EDGES, POSITIVE])
    with np.errstate(all="ignore"):
        want = scs.expn(n, x)
    for how in (special.expn, lw.jit(special.expn)):
        np.testing.assert_allclose(how(n, x), want, rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(special.expn(2, np.array([0.25, 3.0], np.float32)), scs.expn(2, [0.25, 3.0]), rtol=1e-6)
    x = np.array([0.2, 0.9, 1.0, 1.7, 6.0])
    first, second = lw.vmap(lw.grad(special.expn, 1), (None, 0)), lw.vmap(lw.grad(lw.grad(special.expn, 1), 1), (None, 0))
    np.testing.assert_allclose(first(3, x), -scs.expn(2, x), rtol=1e-13)
    np.testing.assert_allclose(second(3, x), scs.expn(1, x), rtol=1e-13)
    np.testing.assert_allclose(second(1, x), np.exp(-x) * (1 + x) / (x * x), rtol=1e-13)


def test_owens_function():
    h = np.concatenate([EDGES, RNG.normal(size=60) * 3])
    a = np.concatenate([EDGES, RNG.normal(size=30) * 2, [1.0, -1.0]])[:, None]
    for how in (special.owens_t, lw.jit(special.owens_t)):
        np.testing.assert_allclose(how(h, a), scs.owens_t(h, a), rtol=0, atol=3e-16)
    h, a, d = np.array([-1.3, 0.0, 0.4, 2.0]), np.array([0.5, -0.7, 1.0, 2.5]), 1e-5
    by_h, by_a = lw.vmap(lw.grad(special.owens_t, (0, 1)))(h, a)
    np.testing.assert_allclose(by_h, (scs.owens_t(h + d, a) - scs.owens_t(h - d, a)) / (2 * d), atol=1e-9)
    np.testing.assert_allclose(by_a, (scs.owens_t(h, a + d) - scs.owens_t(h, a - d)) / (2 * d), atol=1e-9)
    assert np.isfinite(lw.hessian(lambda v: special.owens_t(v[0], v[1]))(np.array([0.0, 1.0]))).all()


def test_power_transforms():
    x, lmbda = np.array([0.0, 0.3, 1.0, 1.0 + 1e-9, 2.5, 40.0, -1.0]), np.array([-1.5, 0.0, 1e-9, 0.5, 2.0])[:, None]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(lw.jit(special.boxcox)(x, lmbda), scs.boxcox(x, lmbda), rtol=1e-14)
        np.testing.assert_allclose(special.boxcox1p(x - 0.5, lmbda), scs.boxcox1p(x - 0.5, lmbda), rtol=1e-14)
    assert lw.grad(special.boxcox, 1)(2.0, 0.0) == pytest.approx(np.log(2) ** 2 / 2)
    assert lw.grad(lw.grad(special.boxcox, 1), 1)(2.0, 0.0) == pytest.approx(np.log(2) ** 3 / 3)
    assert lw.grad(special.boxcox1p)(0.5, 2.0) == pytest.approx(1.5)


# ---- hypergeometric functions ------------------------------------------------------------------------
def exactly(f, *args):
    return np.array([float(f(*map(float, v))) for v in zip(*args, strict=True)])


def test_kummers_function():
    a, b = RNG.uniform(-4, 5, 150), RNG.uniform(0.2, 6, 150)
    x = np.concatenate([RNG.uniform(-30, 30, 110), RNG.uniform(-400, 400, 40)])
    for how in (special.hyp1f1, lw.jit(special.hyp1f1)):
        np.testing.assert_allclose(how(a, b, x), exactly(mpmath.hyp1f1, a, b, x), rtol=2e-13)
    whole = np.round(a), np.round(b) + 1
    np.testing.assert_allclose(special.hyp1f1(*whole, x / 10), exactly(mpmath.hyp1f1, *whole, x / 10), rtol=2e-12)
    assert special.hyp1f1(np.float32(0.5), np.float32(1.5), np.float32(-2)).dtype == np.float32
    for args, want in (((1, 0, 0.5), np.inf), ((-1, -2, 0.5), 1.25), ((1, 2, np.inf), np.inf), ((1, 2, -np.inf), 0),
                       ((1, 2, 0), 1), ((0, 2, 5), 1), ((-2, 1.5, 500), scs.hyp1f1(-2, 1.5, 500)), ((1, 2, np.nan), np.nan)):
        np.testing.assert_allclose(special.hyp1f1(*args), want, rtol=1e-14)


GAUSS = lw.jit(special.hyp2f1)


@pytest.mark.parametrize("kind", ["any", "integers", "integer differences", "sums that end"])
def test_gausss_function(kind):
    a, b, c = RNG.uniform(-3, 3, 80), RNG.uniform(-3, 3, 80), RNG.uniform(0.2, 6, 80)
    x = np.concatenate([RNG.uniform(-3, 1, 40), 1 - 10 ** RNG.uniform(-5, 0, 20), -10 ** RNG.uniform(0, 4, 20)])
    if kind == "integers":
        a, b, c = np.round(a), np.round(b), np.round(c) + 1
    elif kind == "integer differences":
        a, c = a + 0.3, a + 0.3 + b + RNG.integers(-3, 4, 80)
    elif kind == "sums that end":
        a, x = -np.abs(np.round(a)), x * 2
    want = exactly(mpmath.hyp2f1, a, b, c, x)
    usual = np.abs(want) > 1e-9
    for how in (special.hyp2f1, GAUSS):
        np.testing.assert_allclose(how(a, b, c, x)[usual], want[usual], rtol=2e-11, atol=1e-14)  # terms of 1 may cancel


def test_edges_of_gausss_function():
    for args in ((1, 1, 2, 1.5), (1, 1, 2, 1.0), (0.5, 0.3, 2, 1.0), (-2, 3, 1.5, 2.5), (1, 2, -1, 0.5), (-1, 2, -3, 0.5),
                 (1, 2, 3, np.nan), (1, 2, 3, 0), (0, 2, 3, 5.0), (1, 2, 2, 0.99)):
        np.testing.assert_allclose(special.hyp2f1(*args), scs.hyp2f1(*args), rtol=1e-13)


@pytest.mark.parametrize("f, args", [
    (special.hyp1f1, (0.7, 1.9, 2.5)), (special.hyp1f1, (0.7, 1.9, -12.0)), (special.hyp1f1, (-2.0, 1.9, 1.5)),
    (special.hyp1f1, (0.7, 1.9, 0.0)), (special.hyp1f1, (0.7, 1.9, 130.0)), (special.hyp2f1, (0.7, 0.4, 1.9, 0.96)),
    (special.hyp2f1, (0.7, 0.4, 1.9, -3.0)), (special.hyp2f1, (-2.0, 0.4, 1.9, 0.0))], ids=range(8))
def test_slopes_in_every_argument(f, args):
    slopes = lw.grad(f, tuple(range(len(args))))(*args)
    exact = {special.hyp1f1: mpmath.hyp1f1, special.hyp2f1: mpmath.hyp2f1}[f]
    for k, slope in enumerate(slopes):
        want = mpmath.diff(lambda v, k=k: exact(*args[:k], v, *args[k + 1:]), args[k])
        np.testing.assert_allclose(slope, float(want), rtol=2e-9)
    last = len(args) - 1
    if f is special.hyp1f1:
        curve = lw.grad(lw.grad(f, last), last)(*args)
        np.testing.assert_allclose(curve, float(mpmath.diff(lambda v: exact(*args[:-1], v), args[-1], 2)), rtol=2e-8)


# ---- complex numbers -----------------------------------------------------------------------------------
Z = (RNG.normal(size=150) * np.exp(RNG.uniform(-3, 3, 150)) + 1j * RNG.normal(size=150) * np.exp(RNG.uniform(-3, 3, 150)))


@pytest.mark.parametrize("name", ["wofz", "loggamma"])
def test_functions_of_complex_numbers(name):
    f, want = getattr(special, name), getattr(scs, name)(Z)
    usual = np.isfinite(want) & (np.abs(want) < 1e200)
    for how in (f, lw.jit(f)):
        np.testing.assert_allclose(how(Z)[usual], want[usual], rtol=1e-12, atol=1e-14)
    z, h = Z[np.abs(Z.imag) < 5][:20], 1e-6
    slopes = lw.vmap(lw.grad(f, holomorphic=True))(z)
    np.testing.assert_allclose(slopes, (f(z + h) - f(z - h)) / (2 * h), rtol=1e-6, atol=1e-7)
    assert f(z.astype(np.complex64)).dtype == np.complex64


def test_edges_of_complex_functions():
    x = np.array([-1.5, -2, 0, 1, 2.0, 30.0, np.inf, np.nan])
    np.testing.assert_allclose(special.loggamma(x), scs.loggamma(x), rtol=1e-14)
    z = np.array([-1.5 + 0j, -1.5 - 0j, -7.25 + 1e-9j, 1e-8 + 1e-8j, 40 + 3j, -3.5 + 60j])
    np.testing.assert_allclose(special.loggamma(z), scs.loggamma(z), rtol=1e-12)
    x = np.array([0.0, 0.5, -1.0, 5.0, 1e9, -1e9])
    np.testing.assert_allclose(special.wofz(x), scs.wofz(x), rtol=1e-13, atol=1e-15)


def test_spherical_harmonics():
    n = RNG.integers(0, 9, 100)
    m = np.clip(RNG.integers(-8, 9, 100), -n, n)
    theta, phi = RNG.uniform(0, np.pi, 100), RNG.uniform(0, 2 * np.pi, 100)
    want = scs.sph_harm_y(n, m, theta, phi)
    np.testing.assert_allclose(special.sph_harm_y(n, m, theta, phi), want, atol=1e-14)
    f = lw.jit(lambda n, m, theta, phi: special.sph_harm_y(n, m, theta, phi, n_max=8))
    for count in (100, 7, 30):
        np.testing.assert_allclose(f(n[:count], m[:count], theta[:count], phi[:count]), want[:count], atol=1e-14)
    assert f.compiles == 1 and special.sph_harm_y(1, 2, 0.3, 0.2) == 0
    h = 1e-6
    slope = lw.vmap(lw.grad(lambda n, m, t, p: special.sph_harm_y(n, m, t, p, n_max=8).real, 2))(n, m, theta, phi)
    np.testing.assert_allclose(
        slope, (scs.sph_harm_y(n, m, theta + h, phi) - scs.sph_harm_y(n, m, theta - h, phi)).real / (2 * h), atol=1e-6)
    with pytest.raises(lw.ArgumentError, match="a traced degree needs n_max="):
        lw.jit(special.sph_harm_y)(n, m, theta, phi)
    with pytest.raises(NotImplementedError, match="diff_n"):
        special.sph_harm_y(1, 0, 0.1, 0.2, 1)


def test_bessel_functions():
    z = np.concatenate([RNG.uniform(-20, 20, 50), [0.0, 1e-9, 1e-3]])
    want = scs.jv(np.arange(7)[:, None], z)
    for how in (special.bessel_jn, lw.jit(special.bessel_jn, static_argnames=("v",))):
        np.testing.assert_allclose(how(z, v=6), want, atol=2e-15)
    np.testing.assert_allclose(lw.grad(lambda z: special.bessel_jn(z, v=0)[0])(2.5), -scs.j1(2.5), rtol=1e-13)
    np.testing.assert_allclose(lw.jacfwd(lambda z: special.bessel_jn(z, v=2))(0.0), [0, 0.5, 0])
    with pytest.raises(lw.ArgumentError, match="v must be from 0 to n_iter"):
        special.bessel_jn(1.0, v=60)


# ---- together --------------------------------------------------------------------------------------------
def test_one_trace_serves_all_sizes_in_loops_too():
    f = lw.jit(lambda x: special.exp1(x) + special.hyp1f1(0.5, 1.5, -x) * special.dawsn(x) + special.expn(3, x))
    for n in (3, 5, 8):
        x = np.linspace(0.1, 4, n)
        want = scs.exp1(x) + scs.hyp1f1(0.5, 1.5, -x) * scs.dawsn(x) + scs.expn(3, x)
        np.testing.assert_allclose(f(x), want, rtol=1e-12)
    assert f.compiles == 1
    total = lw.jit(lambda x: lw.lax.fori_loop(0, 3, lambda i, s: special.spence(1 + s * s), x))(0.5)
    want = 0.5
    for _ in range(3):
        want = scs.spence(1 + want * want)
    np.testing.assert_allclose(total, want, rtol=1e-13)
    assert special.exp1(np.zeros((0, 2))).shape == (0, 2) and special.hyp2f1(1.0, 1.0, 2.0, np.zeros(0)).shape == (0,)
    with pytest.raises(lw.DTypeError, match="expi is not defined for complex128"):
        special.expi(1j)


@pytest.mark.parametrize("name", ["exp1", "expi", "dawsn", "spence", "sici", "fresnel"])
def test_values_and_slopes_are_those_of_jax(name):
    jax = pytest.importorskip("jax", reason="compares with jax.scipy.special where that is installed")
    x = np.array([0.1, 0.7, 1.3, 2.9, 6.5])
    with jax.enable_x64(True):
        theirs = getattr(jax.scipy.special, name)
        want, slopes = theirs(x), jax.jvp(theirs, (x,), (np.ones(5),))[1]
    np.testing.assert_allclose(getattr(special, name)(x), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lw.jvp(getattr(special, name), (x,), (np.ones(5),))[1], slopes, rtol=1e-9, atol=1e-12)
