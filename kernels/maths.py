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
    INF,
    LOG2E,
    NAN,
    beyond,
    clamp,
    exp,
    exp2,
    expm1,
    expm1_near,
    format_of,
    grown,
    grown_far,
    log,
    log1p,
    log2,
    log10,
    power_near,
    power_near_twice,
    reduced,
    steps,
    times_power,
)
from loopwright.kernels.maths_hyperbolic import arccosh, arcsinh, arctanh, cosh, sinh, tanh
from loopwright.kernels.maths_inverse import arccos, arcsin, arctan, arctan2
from loopwright.kernels.maths_powers import product_power
from loopwright.kernels.maths_trigonometry import cos, sin, tan
from loopwright.kernels.maths_writer import (
    Pieces,
    Writer,
    by_pieces,
    cancelling,
    estrin,
    horner,
    polynomial,
    quick_two_sum,
    two_product,
)

ERF = {32: Pieces(t.ERF_SLOPE32, t.ERF_PIECES32), 64: Pieces(t.ERF_SLOPE64, t.ERF_PIECES64)}
ERF_SHORT = Pieces(t.ERF_SHORT_SLOPE32, t.ERF_SHORT32)
ERFCX = {32: Pieces(t.ERFCX_SLOPE32, t.ERFCX_PIECES32), 64: Pieces(t.ERFCX_SLOPE64, t.ERFCX_PIECES64)}
ERFC_CENTRE32 = 2.2  # what -log(1 - erf) is fitted around
ERF_FLAT = {32: t.ERF_END32, 64: t.ERF_END64}  # from there on erf is 1
ERFC_PLAIN = {32: 9.19, 64: 26.54}  # up to there erfc is a normal number
ERFC_END = {32: t.ERFCX_END32, 64: t.ERFCX_END64}  # from there on it is 0


# ---- error function, powers and roots -----------------------------------------------------------
def erf(m: Writer, x: str) -> str:
    """Polynomials by pieces; x itself is what they are added to near 0."""
    a = m.abs(x)
    if not (m.has_rows or m.has_short_tables):
        return (_erf_single if m.bits == 32 else _erf_of_polynomials)(m, x, a)
    pieces = ERF[m.bits] if m.has_rows else ERF_SHORT
    return m.copysign(by_pieces(m, m.minimum(ERF_FLAT[m.bits], a), pieces, beside_argument=True), x)


def _erf_single(m: Writer, x: str, a: str) -> str:
    """f32: one polynomial below 1; beyond it 1 - e^-P(x)."""
    small = m.fma(horner(m, m.mul(x, x), t.ERF32), x, x)
    p = estrin(m, m.sub(m.minimum(ERF_FLAT[32], a), ERFC_CENTRE32), t.ERFC32)
    n, r = reduced(m, m.neg(p))
    power = m.from_bits(m.shl(m.iadd(m.to_int(n), format_of(m).bias), format_of(m).mantissa))
    far = m.fma(m.neg(expm1_near(m, r)), power, m.sub(1.0, power))
    return m.select(m.compare("lt", a, 1.0), small, m.copysign(far, x))


def _erf_of_polynomials(m: Writer, x: str, a: str) -> str:
    """f64: one polynomial below 1; beyond it 1 - e^-P(x), with P fitted to -log(1 - erf)."""
    u = m.mul(x, x)
    c = m.minimum(6.0, a)
    near, far = estrin(m, m.sub(c, t.ERFC_CENTRE64[0]), t.ERFC_NEAR64), estrin(m, m.sub(c, 4.25), t.ERFC_FAR64)
    p = m.select(m.compare("lt", c, 2.5), near, far)
    small = m.fma(estrin(m, u, t.ERF64), x, x)
    n, r = reduced(m, m.neg(p))
    far = m.sub(1.0, m.scale(m.add(expm1_near(m, r), 1.0), n))
    y = m.select(m.compare("lt", a, 1.0), small, m.copysign(far, x))
    return m.select(m.compare("unordered", x, x), x, y)


def erfc(m: Writer, x: str) -> str:
    """2^n y, in integers where it is a normal number; 2 less that for negative x."""
    f = format_of(m)
    y, beside = _erfc_steps(m, m.minimum(ERFC_PLAIN[m.bits], m.abs(x)))
    y = m.from_bits(m.iadd(m.bits_of(y), m.shl(m.bits_of(beside), f.mantissa)))
    y = m.select(m.compare("lt", x, 0.0), m.sub(2.0, y), y)
    rare = m.negate(m.compare("le", x, ERFC_PLAIN[m.bits]))
    return m.rarely(rare, y, lambda inner: inner.apart("erfc_far", (x,), _erfc_far))


def _erfc_steps(m: Writer, a: str) -> tuple[str, str]:
    """y and a number whose low bits count n, with erfc(a) = 2^n y for a >= 0: e^(a^2) erfc(a) is polynomials by pieces."""
    f = format_of(m)
    magic = 1.5 * 2.0 ** f.mantissa  # numbers beside it are integers
    high, low = two_product(m, a, a)
    beside = m.fma(high, -LOG2E, magic)
    n = m.sub(beside, magic)
    r = m.sub(m.fma(n, -f.ln2[1], m.fma(n, -f.ln2[0], m.neg(high))), low)
    scaled = by_pieces(m, a, ERFCX[m.bits])
    return m.fma(expm1_near(m, r), scaled, scaled), beside


def _erfc_far(m: Writer, x: str) -> str:
    """The same for x > 0 where it may be a denormal number or 0."""
    y, beside = _erfc_steps(m, m.minimum(ERFC_END[m.bits], x))
    return times_power(m, y, m.sub(beside, 1.5 * 2.0 ** format_of(m).mantissa))


def _log2_twice(m: Writer, x: str) -> tuple[str, str]:
    """log2(x) of a positive x in twice the precision: k + T + r (L + r (M + r q(r))); in f32 without M."""
    single = m.bits == 32
    tops, rests, slope = ((t.POW_HIGH32, t.POW_LOW32, t.POW_SLOPE32) if single else
                          (t.POW_HIGH64, t.POW_LOW64, t.POW_SLOPE64))
    k, z = m.parts(x)
    index = m.lshr(m.bits_of(z), 18 if single else 47)
    near, top, rest = m.tables((t.POW_INVERSE, tops, rests), index)
    r = cancelling(m, z, near, -1.0)  # exact
    first = m.add(k, top)  # exact
    if single:
        factor, low = _beside(m, slope, horner(m, r, t.POW32), r)
    else:
        bend, bent = _beside(m, t.POW_BEND64, estrin(m, r, t.POW_FINE64), r)
        factor, low = _beside(m, slope, bend, r)
        low = m.fma(r, bent, low)
    main, lost = two_product(m, r, factor)
    high, e = quick_two_sum(m, first, main)  # first is 0 or larger
    return high, m.add(m.add(e, rest), m.fma(r, low, lost))


def _beside(m: Writer, whole: tuple[float, float], a: str, b: str) -> tuple[str, str]:
    """whole, high and low, plus a b, which is far smaller: rounded, and the rest."""
    if m.has_fma:
        total = m.fma(a, b, whole[0])
        return total, m.add(m.fma(a, b, m.sub(whole[0], total)), whole[1])
    product, lost = two_product(m, a, b)
    total, e = quick_two_sum(m, whole[0], product)
    return total, m.add(e, m.add(lost, whole[1]))


def _power_steps(m: Writer, y: str, high: str, low: str, end: float) -> tuple[str, str, str, str, str | None]:
    """Of 2^(y (high + low)): y high within [-end, end]; n and index of `steps`, and 2^r - 1 for the rest r, and what its bits
    do not hold, where steps are not small: powers of integers that f64 holds are to be exact."""
    main, lost = two_product(m, y, high)
    rest = m.fma(y, low, lost)
    n, index = steps(m, clamp(m, main, -end, end) if end < INF else main)
    if m.bits == 64 and not m.has_tables:
        r, lost = quick_two_sum(m, m.sub(main, n), rest)
        if end < INF:
            r, lost = m.maximum(r, -1.0), m.select(m.compare("le", m.abs(main), end), lost, 0.0)
        return main, n, index, *power_near_twice(m, r, lost)
    r = m.add(m.sub(main, n), rest)
    more = power_near(m, m.maximum(r, -1.0) if end < INF else r)  # nothing may be left of it
    return main, n, index, m.add(more, m.table(t.POWERS_LOST64, index)) if m.bits == 64 else more, None


def _pow(m: Writer, x: str, y: str) -> str:
    """2^(y log2 x), in integers where the result is a normal number and x positive; all other arguments are rare."""
    main, _, index, more, low = _power_steps(m, y, *_log2_twice(m, x), INF)
    rare = beyond(m, main, format_of(m).bias - 2.0)  # which it is for 0, infinity, NaN and negative x, too
    return m.rarely(rare, grown(m, more, index, low), lambda inner: inner.apart("power_far", (x, y), _pow_far))


def _pow_far(m: Writer, x: str, y: str) -> str:
    """2^(y log2|x|), then the special cases of C99: zeros, infinities, NaN and negative x."""
    _, n, index, more, low = _power_steps(m, y, *_log2_twice(m, m.abs(x)), 1.2 * format_of(m).bias)
    magnitude = grown_far(m, more, n, index, low)
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


def _cbrt(m: Writer, x: str) -> str:
    """2^q cbrt(c) (1 + u)^(1/3) with |x| = 8^q c (1 + u), where c is of a table."""
    q = m.floor(m.fma(m.exponent(x), 1 / 3, 1 / 6))
    a = m.scale(m.abs(x), m.mul(q, -3.0))
    single = m.bits == 32
    index = m.lshr(m.bits_of(a), 20 if single else 50)
    near, root = m.tables((t.CBRT_INVERSE32, t.CBRT_OF32) if single else (t.CBRT_INVERSE64, t.CBRT_OF64), index)
    u = cancelling(m, a, near, -1.0)
    root = m.scale(m.fma(polynomial(m, u, t.CBRT32, t.CBRT64), m.mul(u, root), root), q)
    return m.select(m.compare("eq", m.add(x, x), x), x, m.copysign(root, x))  # 0 and infinities


def _hypot(m: Writer, x: str, y: str) -> str:
    """sqrt(x^2 + y^2) where the sum neither overflows nor loses bits; it is that of 0 too, and all other arguments are rare."""
    single = m.bits == 32
    least, most = (0x0D800000, 0x7F7FFFFF) if single else (0x07B << 52, (0x7FF << 52) - 1)  # from 2^-100 (2^-900)
    square = m.fma(x, x, m.mul(y, y))
    outside = m.ucompare("gt", m.isub(m.bits_of(square), least), most - least)
    rare = m.both(outside, m.compare("ne", square, m.add(m.abs(x), m.abs(y))))
    return m.rarely(rare, m.sqrt(square), lambda inner: inner.apart("hypot_far", (x, y), _hypot_far))


def _hypot_far(m: Writer, x: str, y: str) -> str:
    """The same scaled by a power of two, so that nothing overflows or vanishes; infinite where one is, whatever the other."""
    a, b = m.abs(x), m.abs(y)
    large, small = m.maximum(a, b), m.minimum(a, b)
    step = 2.0 ** (90 if m.bits == 32 else 600)
    up, down = m.compare("lt", large, step ** -0.5), m.compare("gt", large, 1.0)
    factor = m.select(up, step, m.select(down, 1 / step, 1.0))
    back = m.select(up, 1 / step, m.select(down, step, 1.0))
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


FUNCTIONS: dict[str, Callable[..., str]] = {
    "exp": native(exp), "exp2": native(exp2), "expm1": native(expm1), "log": native(log), "log2": native(log2),
    "log10": native(log10), "log1p": native(log1p), "tanh": native(tanh), "erf": native(erf), "erfc": native(erfc),
    "sin": native(sin), "cos": native(cos), "tan": native(tan), "sinh": native(sinh), "cosh": native(cosh),
    "arcsin": native(arcsin), "arccos": native(arccos), "arctan": native(arctan), "arctan2": native(arctan2),
    "arcsinh": native(arcsinh), "arccosh": native(arccosh), "arctanh": native(arctanh),
    "power": native(_pow), "cbrt": native(_cbrt), "hypot": native(_hypot),
    "fmod": fmod, "remainder": remainder, "floor_divide": floor_divide,
}


def whole_power(n: int) -> Callable[..., str] | None:
    """x -> x^n for one n, or None where the power of any exponent takes no longer."""
    product = product_power(n, lambda m, x, y: m.apart("power_far", (x, y), _pow_far))
    return None if product is None else native(product)
