"""Special functions by SciPy's and JAX's names: `loopwright.scipy.special`.

Guarantees: they work on plain arrays, inside `jit` and under every transform; derivatives of any order are correct and free
of NaN where the function is smooth; accuracy is a few units in the last place unless a function says otherwise. Integers are
taken as float64.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, elementwise, inexact, quiet, real, stopped, xp
from loopwright.ir.ops import special, transcendental
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX
from loopwright.scipy.special_harmonics import bessel_jn, loggamma, sph_harm_y, wofz
from loopwright.scipy.special_hypergeometric import hyp1f1, hyp2f1
from loopwright.scipy.special_integrals import dawsn, exp1, expi, expn, fresnel, owens_t, sici, spence

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr", "erf",
    "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma", "gammainc", "gammaincc",
    "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_expit", "log_ndtr", "log_softmax",
    "loggamma", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma", "rel_entr", "sici",
    "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]

erf = elementwise(transcendental.erf)
erfc = elementwise(special.erfc)
erfcx = elementwise(special.erfcx)
erfinv = elementwise(special.erfinv)
gammaln = elementwise(special.lgamma)
digamma = elementwise(special.digamma)
i0e = elementwise(special.i0e)
i1e = elementwise(special.i1e)
ndtri = elementwise(special.ndtri, "p")
zeta = elementwise(special.zeta, "x", "q")
gammainc = elementwise(special.gammainc, "a", "x")
gammaincc = elementwise(special.gammaincc, "a", "x")
betainc = elementwise(special.betainc, "a", "b", "x")
entr = elementwise(special.entr)
xlogy = elementwise(special.xlogy, "x", "y")
xlog1py = elementwise(special.xlog1py, "x", "y")


# ---- logarithms and exponentials ------------------------------------------------------------------
@quiet
def expit(x: Any) -> Array:
    """1 / (1 + exp(-x)), with full precision in both tails."""
    x = inexact(x)
    if x.dtype in COMPLEX:
        return 1 / (1 + xp.exp(-x))
    z = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, z) / (1 + z)


@quiet
def log_expit(x: Any) -> Array:
    """log(expit(x)), with full precision in both tails."""
    x = inexact(x)
    return xp.where(x < 0, x, 0) - xp.log1p(xp.exp(xp.where(x < 0, x, -x)))


@quiet
def logit(x: Any) -> Array:
    """log(x / (1 - x)), the inverse of expit."""
    x = real("logit", x)
    is_middle = xp.abs(x - 0.5) < 0.25
    middle = 2 * xp.arctanh(xp.where(is_middle, 2 * x - 1, 0))
    return xp.where(is_middle, middle, xp.log(xp.where(is_middle, 0.75, x) / (1 - xp.where(is_middle, 0.25, x))))


@quiet
def rel_entr(p: Any, q: Any) -> Array:
    """p log(p / q); 0 where p is 0 and q >= 0, else inf outside the positive numbers."""
    p, q = real("rel_entr", p, q)
    both = (p > 0) & (q > 0)
    safe = xp.where(both, p, 1)
    value = safe * (xp.log(safe) - xp.log(xp.where(both, q, 1)))
    return xp.where(both, value, xp.where((p == 0) & (q >= 0), 0, xp.where(xp.isnan(p) | xp.isnan(q), math.nan, math.inf)))


@quiet
def kl_div(p: Any, q: Any) -> Array:
    """p log(p / q) - p + q"""
    return rel_entr(p, q) - p + q


@quiet
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False,
              where: Any = None) -> Any:
    """log(sum(b exp(a))) without overflow; -inf over no elements. return_sign: also the sign of the sum, whose size is meant.

    where: which elements count. Without return_sign a negative sum gives NaN.
    """
    a = inexact(a) if b is None else inexact(a, b)[0]
    weights = None if b is None else inexact(b, a)[0]
    if weights is not None:
        a, weights = xp.broadcast_arrays(a, weights)
        a = xp.where(weights != 0, a, -math.inf)
    if where is not None:
        a = xp.where(where, a, -math.inf)
    shift = _finite_max(a, axis)
    terms = xp.exp(a - shift)
    total = xp.sum(terms if weights is None else terms * weights, axis=axis, keepdims=True)
    is_complex = total.dtype in COMPLEX
    may_be_negative = weights is not None and not is_complex
    sign = total / xp.where(total == 0, 1, xp.abs(total)) if is_complex else xp.sign(total)
    size = xp.abs(total) if return_sign or may_be_negative else total
    is_empty = size == 0
    out = xp.where(is_empty, -math.inf, xp.log(xp.where(is_empty, 1, size)) + shift)
    if not keepdims:
        out, sign = _squeezed(out, axis), _squeezed(sign, axis)
    if return_sign:
        return out, sign
    return xp.where(sign < 0, math.nan, out) if may_be_negative else out


def _finite_max(x: Array, axis: Any) -> Array:
    """The maximum along an axis, held constant by derivatives; 0 where it is not finite."""
    largest = stopped(xp.max(xp.real(x), axis=axis, keepdims=True, initial=-math.inf))
    return xp.where(xp.isfinite(largest), largest, 0)


def _squeezed(x: Array, axis: Any) -> Array:
    return xp.squeeze(x, axis=tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, list) else axis)


@quiet
def softmax(x: Any, axis: Any = None, where: Any = None) -> Array:
    """exp(x) / sum(exp(x)) along an axis. where: which elements count; the others are 0."""
    x = inexact(x)
    if where is None:
        terms = xp.exp(x - _finite_max(x, axis))
        return terms / xp.sum(terms, axis=axis, keepdims=True)
    x = xp.where(where, x, -math.inf)
    terms = xp.where(where, xp.exp(x - _finite_max(x, axis)), 0)
    total = xp.sum(terms, axis=axis, keepdims=True)
    return terms / xp.where(total == 0, 1, total)


@quiet
def log_softmax(x: Any, axis: Any = None, where: Any = None) -> Array:
    """x - logsumexp(x) along an axis. where: which elements count; the others are -inf."""
    x = inexact(x)
    if where is None:
        shifted = x - _finite_max(x, axis)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
    shifted = xp.where(where, x, 0) - _finite_max(xp.where(where, x, -math.inf), axis)
    total = xp.sum(xp.where(where, xp.exp(shifted), 0), axis=axis, keepdims=True)
    return xp.where(where, shifted - xp.log(xp.where(total == 0, 1, total)), -math.inf)


@quiet
def boxcox(x: Any, lmbda: Any) -> Array:
    """(x^lmbda - 1) / lmbda, and its limit log(x) at lmbda = 0; NaN for x < 0."""
    x, lmbda = real("boxcox", x, lmbda)
    return _power_transform(xp.log(x), lmbda)


@quiet
def boxcox1p(x: Any, lmbda: Any) -> Array:
    """boxcox(1 + x, lmbda), exact near 0."""
    x, lmbda = real("boxcox1p", x, lmbda)
    return _power_transform(xp.log1p(x), lmbda)


def _power_transform(log: Array, lmbda: Array) -> Array:
    """expm1(lmbda log) / lmbda; where that has small parts log times the series of expm1(u) / u, which has derivatives in u."""
    u = lmbda * log
    is_near = (xp.abs(u) < 0.25) | (lmbda == 0)
    near = xp.where(is_near & xp.isfinite(log), u, 0)
    total: Array = xp.ones_like(near)
    for k in range(14, 1, -1):
        total = 1 + total * near / k
    return xp.where(is_near, log * total, xp.expm1(u) / xp.where(is_near, 1, lmbda))


# ---- gamma functions ------------------------------------------------------------------------------
@quiet
def gammasgn(x: Any) -> Array:
    """The sign of gamma(x): NaN at its poles below 0, the sign of x at 0."""
    x = real("gammasgn", x)
    whole = xp.floor(x)
    is_negative = (x < 0) & (whole - 2 * xp.floor(whole / 2) != 0)
    sign = xp.where(is_negative | ((x == 0) & xp.signbit(x)), x.dtype.type(-1), x.dtype.type(1))
    return xp.where(((x < 0) & (whole == x)) | xp.isnan(x), math.nan, sign)


@quiet
def gamma(x: Any) -> Array:
    """The gamma function, as exp(gammaln(x)): the relative error is about |gammaln(x)| units in the last place."""
    x = real("gamma", x)
    return gammasgn(x) * xp.exp(gammaln(x))


@quiet
def factorial(n: Any, exact: bool = False) -> Array:
    """n! = gamma(n + 1); 0 below 0."""
    if exact:
        raise NotImplementedError(f"{user_source()}: factorial: exact=True is not supported. Use math.factorial.")
    n = real("factorial", n)
    return xp.where(n < 0, 0, xp.exp(gammaln(n + 1)))


@quiet
def poch(z: Any, m: Any) -> Array:
    """gamma(z + m) / gamma(z)"""
    z, m = real("poch", z, m)
    return gammasgn(z + m) * gammasgn(z) * xp.exp(gammaln(z + m) - gammaln(z))


@quiet
def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """The number of ways to choose k of N; 0 where there is none."""
    N, k = real("comb", N, k)
    if repetition:
        return xp.where((k == 0) & (N >= 0), 1, comb(N + k - 1, k))
    is_possible = (k <= N) & (N >= 0) & (k >= 0)
    n, k = xp.where(is_possible, N, 0), xp.where(is_possible, k, 0)
    return xp.where(is_possible, xp.exp(-betaln(1 + n - k, 1 + k)) / (n + 1), 0)


@quiet
def betaln(a: Any, b: Any) -> Array:
    """log |beta(a, b)|, without cancellation for large a and b (Didonato and Morris)."""
    a, b = real("betaln", a, b)
    a, b = xp.minimum(a, b), xp.maximum(a, b)
    is_large, are_large = b >= _LARGE, a >= _LARGE
    return xp.where(are_large, _betaln_large(xp.where(are_large, a, _LARGE), xp.where(are_large, b, _LARGE)), xp.where(
        is_large, _betaln_mixed(xp.where(is_large & ~are_large, a, 1), xp.where(is_large, b, _LARGE)),
        _betaln_small(xp.where(is_large, 1, a), xp.where(is_large, 1, b))))


_LARGE = 10.0


def _betaln_small(a: Array, b: Array) -> Array:
    return gammaln(a) + (gammaln(b) - gammaln(a + b))


def _betaln_mixed(a: Array, b: Array) -> Array:
    """Stirling's formula for gammaln(b) - gammaln(a + b)."""
    total = a + b
    return gammaln(a) - (b - 0.5) * xp.log1p(a / b) - a * xp.log(total) + a + (_stirling_rest(b) - _stirling_rest(total))


def _betaln_large(a: Array, b: Array) -> Array:
    """Stirling's formula for all three."""
    rest = _stirling_rest(a) + (_stirling_rest(b) - _stirling_rest(a + b))
    return 0.5 * math.log(2 * math.pi) - 0.5 * xp.log(a) - a * xp.log1p(b / a) - (b - 0.5) * xp.log1p(a / b) + rest


def _stirling_rest(x: Array) -> Array:
    """gammaln(x) - (x - 1/2) log(x) + x - log(2 pi) / 2 for x >= 10: the sum of B(2 k) / (2 k (2 k - 1) x^(2 k - 1))."""
    inverse = 1 / x
    square = inverse * inverse
    out: Any = 1 / 156
    for c in (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        out = out * square + c
    return out * inverse


@quiet
def beta(a: Any, b: Any) -> Array:
    """gamma(a) gamma(b) / gamma(a + b), as the exponential of betaln."""
    a, b = real("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * xp.exp(betaln(a, b))


@quiet
def multigammaln(a: Any, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension d."""
    a = real("multigammaln", a)
    steps = np.arange(d, dtype=a.dtype) / 2
    return xp.sum(gammaln(a[..., None] - steps), axis=-1) + d * (d - 1) / 4 * math.log(math.pi)


@quiet
def polygamma(n: Any, x: Any) -> Array:
    """The n-th derivative of digamma, for x > 0 and whole n >= 0."""
    if isinstance(n, (int, np.integer)):
        if n == 0:
            return digamma(x)
        x = real("polygamma", x)
        return (-1) ** (int(n) + 1) * float(math.factorial(int(n))) * zeta(float(n + 1), x)
    if xp.asarray(n).dtype.kind not in "iu":
        raise TypeError("polygamma: the order must be integers")
    n, x = real("polygamma", n, x)
    n = stopped(n)
    sign = 1 - 2 * xp.abs(xp.floor(n / 2) * 2 + 1 - n)  # 1 for odd n
    order = xp.where(n == 0, 1, n)
    return xp.where(n == 0, digamma(x), sign * xp.exp(gammaln(order + 1)) * zeta(order + 1, x))


@quiet
def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B(0) to B(n), B(1) = -1/2, as float64[n + 1]."""
    numbers = [1.0, -0.5]
    for k in range(2, n + 1):
        sign = -1 if k % 4 == 0 else 1
        numbers.append(0.0 if k % 2 else sign * 2 * math.factorial(k) * float(zeta(float(k), 1.0)) / (2 * math.pi) ** k)
    return np.array(numbers[:n + 1])


# ---- Bessel functions -----------------------------------------------------------------------------
@quiet
def i0(x: Any) -> Array:
    """The modified Bessel function of the first kind of order 0."""
    x = real("i0", x)
    return xp.exp(_size(x)) * i0e(x)


@quiet
def i1(x: Any) -> Array:
    """The modified Bessel function of the first kind of order 1."""
    x = real("i1", x)
    return xp.exp(_size(x)) * i1e(x)


def _size(x: Array) -> Array:
    """|x| whose slope at 0 is 0, which is what cancels the kink of the scaled functions."""
    return x * xp.sign(x)


# ---- normal distribution --------------------------------------------------------------------------
@quiet
def ndtr(x: Any) -> Array:
    """The normal distribution function."""
    x = real("ndtr", x)
    return 0.5 * erfc(x * -math.sqrt(0.5))


@quiet
def log_ndtr(x: Any, series_order: int = 3) -> Array:
    """Its logarithm, with full precision in both tails. `series_order` is JAX's and not needed here."""
    x = real("log_ndtr", x)
    is_low = x < -1
    low = xp.where(is_low, x, -1)
    tail = xp.log(0.5 * erfcx(low * -math.sqrt(0.5))) - 0.5 * (low * low)
    return xp.where(is_low, tail, xp.log1p(-0.5 * erfc(xp.where(is_low, 0, x) * math.sqrt(0.5))))
