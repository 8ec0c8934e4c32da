"""Vector maths: sequences of machine-neutral operations, one source for every width and backend.

Guarantees, f32 and f64: at most 2 ULP over the whole range; NaN, infinities, zeros with their sign, denormals and domain
errors as in C99; one operation order, so equal bits for any number of lanes. A few f32 functions
run in f64 and round. Machines without a fused multiply-add compute f32 in f64 throughout.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_division import floor_divide, fmod, remainder
from loopwright.kernels.maths_exponentials import (
    DOUBLE,
    INF,
    LOG2E,
    NAN,
    clamp,
    exp,
    exp2,
    expm1,
    expm1_near,
    log,
    log1p,
    log2,
    log10,
    reduced,
)
from loopwright.kernels.maths_hyperbolic import arccosh, arcsinh, arctanh, cosh, sinh, tanh
from loopwright.kernels.maths_inverse import arccos, arcsin, arctan, arctan2
from loopwright.kernels.maths_trigonometry import cos, sin, tan
from loopwright.kernels.maths_writer import (
    Writer,
    cancelling,
    estrin,
    horner,
    polynomial,
    quick_two_sum,
    two_product,
    two_sum,
)


# ---- error function, powers and roots -----------------------------------------------------------
def erf(m: Writer, x: str) -> str:
    """A polynomial below 1; beyond it 1 - e^-P(x), with P fitted to -log(1 - erf)."""
    a = m.abs(x)
    u = m.mul(x, x)
    if m.bits == 32:
        c = m.minimum(4.0, a)
        p = horner(m, m.sub(c, 2.375), t.ERFC32)
        small = m.fma(horner(m, u, t.ERF32), x, x)
    else:
        c = m.minimum(6.0, a)
        near, far = estrin(m, m.sub(c, 1.75), t.ERFC_NEAR64), estrin(m, m.sub(c, 4.25), t.ERFC_FAR64)
        p = m.select(m.compare("lt", c, 2.5), near, far)
        small = m.fma(estrin(m, u, t.ERF64), x, x)
    n, r = reduced(m, m.neg(p))
    far = m.sub(1.0, m.scale(m.add(expm1_near(m, r), 1.0), n))
    y = m.select(m.compare("lt", a, 1.0), small, m.copysign(far, x))
    return m.select(m.compare("unordered", x, x), x, y)


def _pow_log(m: Writer, x: str) -> tuple[str, str]:
    """log(x) of a positive finite x as high + low, to 2^-67. Source: the pow of ARM's optimized routines."""
    tiny = m.compare("lt", x, 2.0 ** -1022)
    bits = m.bits_of(m.select(tiny, m.mul(x, 2.0 ** 54), x))
    moved = m.isub(bits, 0x3FE6955500000000)
    whole = m.ashr(moved, 52)
    index = m.iand(m.lshr(moved, 45), 127)
    z = m.from_bits(m.isub(bits, m.shl(whole, 52)))
    k = m.sub(m.to_float(whole), m.select(tiny, 54.0, 0.0))
    r = cancelling(m, z, m.table(t.POW_INVERSE, index), -1.0)
    first = m.fma(k, DOUBLE.ln2[0], m.table(t.POW_HIGH, index))  # exact: both are multiples of 2^-42
    low = m.fma(k, DOUBLE.ln2[1], m.table(t.POW_LOW, index))
    high, e1 = quick_two_sum(m, first, r)  # first is 0 or larger than r
    half, e2 = two_product(m, m.mul(r, -0.5), r)
    total, e3 = two_sum(m, high, half)
    cube = m.mul(m.mul(r, r), r)
    rest = m.fma(cube, estrin(m, r, t.POW_64), m.add(m.add(low, e2), m.add(e1, e3)))
    return quick_two_sum(m, total, rest)


def _pow(m: Writer, x: str, y: str) -> str:
    """e^(y log|x|) in twice the precision, then the special cases of C99."""
    a = m.abs(x)
    high, low = _pow_log(m, a)
    high = m.select(m.compare("eq", a, 0.0), -INF, m.select(m.compare("eq", a, INF), INF, high))
    main, lost = two_product(m, y, high)
    usual = m.compare("lt", m.abs(main), 1000.0)
    rest = m.select(usual, m.fma(y, low, lost), 0.0)
    main = clamp(m, main, -1000.0, 1000.0)
    n = m.round(m.mul(main, LOG2E))
    r = m.fma(n, -DOUBLE.ln2[0], main)
    shift = m.fma(n, -DOUBLE.ln2[1], rest)
    r, e = quick_two_sum(m, r, shift)
    q = m.fma(estrin(m, r, t.EXP64), m.mul(r, r), e)
    return _pow_specials(m, x, y, m.scale(m.add(m.add(q, r), 1.0), n))


def _pow_specials(m: Writer, x: str, y: str, magnitude: str) -> str:
    """What C99 says of zeros, infinities, NaN and negative x, which all others need not wait for."""
    endless = 0x7F800000 if m.bits == 32 else 0x7FF << 52
    special = m.either(m.ucompare("ge", m.isub(m.bits_of(x), 1), endless - 1),
                       m.ucompare("ge", m.bits_of(m.abs(y)), endless))
    return m.rarely(special, magnitude, lambda inner: _pow_signed(inner, x, y, magnitude))


def _pow_signed(m: Writer, x: str, y: str, magnitude: str) -> str:
    whole = m.compare("eq", m.trunc(y), y)
    half = m.mul(y, 0.5)
    odd = m.both(whole, m.compare("ne", m.trunc(half), half))
    odd = m.both(odd, m.compare("lt", m.abs(y), INF))
    result = m.select(m.both(odd, m.icompare("lt", m.bits_of(x), 0)), m.neg(magnitude), magnitude)
    below = m.both(m.compare("lt", x, 0.0), m.compare("lt", m.abs(x), INF))
    result = m.select(m.both(below, m.negate(whole)), NAN, result)
    result = m.select(m.compare("unordered", x, y), NAN, result)
    one = m.either(m.compare("eq", x, 1.0), m.compare("eq", y, 0.0))
    one = m.either(one, m.both(m.compare("eq", x, -1.0), m.compare("eq", m.abs(y), INF)))
    return m.select(one, 1.0, result)


def _pow_single(m: Writer, x: str, y: str) -> str:
    """2^(y log2|x|), the logarithm in twice the precision: k + T + r (L + r q(r))."""
    k, z = m.parts(m.abs(x))
    index = m.lshr(m.bits_of(z), 18)
    r = m.fma(z, m.table(t.POW_INVERSE32, index), -1.0)  # exact
    first = m.add(k, m.table(t.POW_HIGH32, index))  # exact: both are multiples of 2^-16
    q = horner(m, r, t.POW32)
    slope = m.fma(r, q, t.LOG2E32[0])
    rest = m.add(m.fma(r, q, m.sub(t.LOG2E32[0], slope)), t.LOG2E32[1])
    main, lost = two_product(m, r, slope)
    high, e = quick_two_sum(m, first, main)  # first is 0 or larger
    low = m.add(m.add(e, m.table(t.POW_LOW32, index)), m.fma(r, rest, lost))
    main, lost = two_product(m, y, high)
    n = m.round(clamp(m, main, -250.0, 250.0))
    f = m.maximum(m.add(m.sub(main, n), m.fma(y, low, lost)), -1.0)  # which it is where nothing is left
    return _pow_specials(m, x, y, m.scale(m.fma(horner(m, f, t.EXP232), f, 1.0), n))


def _cbrt(m: Writer, x: str) -> str:
    """2^q cbrt(c) (1 + u)^(1/3) with |x| = 8^q c (1 + u), where c is of a table."""
    q = m.floor(m.fma(m.exponent(x), 1 / 3, 1 / 6))
    a = m.scale(m.abs(x), m.mul(q, -3.0))
    single = m.bits == 32
    index = m.lshr(m.bits_of(a), 20 if single else 50)
    u = cancelling(m, a, m.table(t.CBRT_INVERSE32 if single else t.CBRT_INVERSE64, index), -1.0)
    root = m.table(t.CBRT_OF32 if single else t.CBRT_OF64, index)
    root = m.scale(m.fma(polynomial(m, u, t.CBRT32, t.CBRT64), m.mul(u, root), root), q)
    return m.select(m.compare("eq", m.add(x, x), x), x, m.copysign(root, x))  # 0 and infinities


def _hypot(m: Writer, x: str, y: str) -> str:
    """sqrt(x^2 + y^2), scaled by a power of two so that nothing overflows or vanishes."""
    a, b = m.abs(x), m.abs(y)
    large = m.maximum(a, b)
    small = m.minimum(a, b)
    huge, tiny = m.compare("gt", large, 2.0 ** 500), m.compare("lt", large, 2.0 ** -400)
    factor = m.select(huge, 2.0 ** -600, m.select(tiny, 2.0 ** 600, 1.0))
    back = m.select(huge, 2.0 ** 600, m.select(tiny, 2.0 ** -600, 1.0))
    large, small = m.mul(large, factor), m.mul(small, factor)
    root = m.mul(m.sqrt(m.fma(large, large, m.mul(small, small))), back)
    root = m.select(m.compare("unordered", a, b), NAN, root)
    return m.select(m.either(m.compare("eq", a, INF), m.compare("eq", b, INF)), INF, root)


# ---- the table ----------------------------------------------------------------------------------
def in_double(function: Callable[..., str]) -> Callable[..., str]:
    """A function of f64 for both widths: f32 is widened and rounded back."""
    def either(m: Writer, *args: str) -> str:
        return function(m, *args) if m.bits == 64 else m.narrow(function(m.wide, *(m.widen(a) for a in args)))
    return either


def native(function: Callable[..., str]) -> Callable[..., str]:
    """A function with a form for each width; f32 needs the fused multiply-add, else it runs in f64."""
    through = in_double(function)
    return lambda m, *args: function(m, *args) if m.has_fma else through(m, *args)


def power(m: Writer, x: str, y: str) -> str:
    return _pow_single(m, x, y) if m.bits == 32 else _pow(m, x, y)


FUNCTIONS: dict[str, Callable[..., str]] = {
    "exp": native(exp), "exp2": native(exp2), "expm1": native(expm1), "log": native(log), "log2": native(log2),
    "log10": native(log10), "log1p": native(log1p), "tanh": native(tanh), "erf": native(erf),
    "sin": native(sin), "cos": native(cos), "tan": native(tan), "sinh": native(sinh), "cosh": native(cosh),
    "arcsin": native(arcsin), "arccos": native(arccos), "arctan": native(arctan), "arctan2": native(arctan2),
    "arcsinh": native(arcsinh), "arccosh": native(arccosh), "arctanh": native(arctanh),
    "power": native(power), "cbrt": native(_cbrt), "hypot": in_double(_hypot),
    "fmod": in_double(fmod), "remainder": remainder, "floor_divide": floor_divide,
}
