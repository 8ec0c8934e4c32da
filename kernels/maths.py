"""Vector maths: sequences of machine-neutral operations, one source for every width and backend.

Guarantees, f32 and f64: at most 2 ULP over the whole range; NaN, infinities, zeros with their sign, denormals and domain
errors as in C99; one operation order, so equal bits for any number of lanes. f32 functions without a form of their own
run in f64 and round. Machines without a fused multiply-add compute f32 in f64 throughout.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_division import floor_divide, fmod, remainder
from loopwright.kernels.maths_trigonometry import arccos, arcsin, arctan, arctan2, cos, sin, tan
from loopwright.kernels.maths_writer import (
    Writer,
    cancelling,
    estrin,
    horner,
    quick_two_sum,
    two_product,
    two_sum,
)

INF, NAN = float("inf"), float("nan")
LOG2E = 1.4426950408889634


@dataclass(frozen=True)
class Format:
    """Constants of a floating format. ln2 is split so that the high part times any exponent is exact."""

    mantissa: int
    bias: int
    ln2: tuple[float, float]
    log10_2: tuple[float, float]
    log2_e: tuple[float, float]  # in this format, high and low
    log10_e: tuple[float, float]
    overflow: float  # beyond it e^x is infinite; just above, so that clamping keeps infinity
    underflow: float  # below it e^x is 0
    flat: float  # below -flat expm1 is -1 and beyond flat tanh is 1
    exp: tuple[float, ...]
    exp2: tuple[float, ...]
    log: tuple[float, ...]
    inverse: tuple[float, ...]
    log_of: tuple[float, ...]
    log2_of: tuple[float, ...]
    log10_of: tuple[float, ...]


SINGLE = Format(23, 127, (0.693145751953125, 1.4286068203094173e-06), (0.301025390625, 4.605038981195214e-06),
                (1.4426950216293335, 1.9259629911266175e-08), (0.4342944920063019, -1.0103050052231683e-08),
                89.0, -105.0, 10.0, t.EXP32, t.EXP232, t.LOG32, t.LOG_INVERSE32, t.LOG_OF32, t.LOG2_OF32, t.LOG10_OF32)
DOUBLE = Format(52, 1023, (0.6931471805598903, 5.497923018708371e-14), (0.30102999566383914, 1.42050232272661e-13),
                (1.4426950408889634, 2.0355273740931033e-17), (0.4342944819032518, 1.098319650216765e-17),
                710.0, -746.0, 20.0, t.EXP64, t.EXP264, t.LOG64, t.LOG_INVERSE64, t.LOG_OF64, t.LOG2_OF64, t.LOG10_OF64)


def format_of(m: Writer) -> Format:
    return SINGLE if m.bits == 32 else DOUBLE


def clamp(m: Writer, x: str, low: float, high: float) -> str:
    """x within [low, high]; NaN stays."""
    return m.maximum(low, m.minimum(high, x))


# ---- exponentials -------------------------------------------------------------------------------
def _reduced(m: Writer, x: str) -> tuple[str, str]:
    """n and r with x = n ln 2 + r, |r| <= ln(2) / 2."""
    f = format_of(m)
    n = m.round(m.mul(x, LOG2E))
    r = m.fma(n, -f.ln2[0], x)
    return n, m.fma(n, -f.ln2[1], r)


def _expm1_near(m: Writer, r: str) -> str:
    """e^r - 1 = r + r^2 q(r) for |r| <= ln(2) / 2."""
    q = (horner if m.bits == 32 else estrin)(m, r, format_of(m).exp)
    return m.fma(q, m.mul(r, r), r)


def _exp_parts(m: Writer, x: str) -> tuple[str, str]:
    """p in [0.7, 1.42] and n with e^x = p 2^n."""
    f = format_of(m)
    n, r = _reduced(m, clamp(m, x, f.underflow, f.overflow))
    return m.add(_expm1_near(m, r), 1.0), n


def exp(m: Writer, x: str) -> str:
    return m.scale(*_exp_parts(m, x))


def exp2(m: Writer, x: str) -> str:
    f = format_of(m)
    x = clamp(m, x, -f.bias - f.mantissa - 3.0, f.bias + 2.0)
    n = m.round(x)
    r = m.sub(x, n)
    q = (horner if m.bits == 32 else estrin)(m, r, f.exp2)
    return m.scale(m.fma(q, r, 1.0), n)


def _expm1_core(m: Writer, x: str) -> str:
    """e^x - 1 for x below overflow and above -flat, as (2^(n-1) p + (2^(n-1) - 1/2)) 2, which does not overflow early."""
    f = format_of(m)
    n, r = _reduced(m, x)
    p = _expm1_near(m, r)
    half = m.from_bits(m.shl(m.iadd(m.to_int(n), f.bias - 1), f.mantissa))
    y = m.fma(p, half, m.sub(half, 0.5))
    return m.add(y, y)


def expm1(m: Writer, x: str) -> str:
    f = format_of(m)
    y = _expm1_core(m, clamp(m, x, -2 * f.flat, f.overflow))
    return m.select(m.compare("lt", m.abs(x), 2.0 ** -(f.mantissa + 3)), x, y)


def tanh(m: Writer, x: str) -> str:
    """t / (t + 2) with t = e^(2|x|) - 1; the quotient takes back what rounding took from it and from its divisor."""
    f = format_of(m)
    size = m.minimum(f.flat, m.abs(x))
    u = _expm1_core(m, m.add(size, size))
    divisor, lost = two_sum(m, u, 2.0)
    inverse = m.div(1.0, divisor)
    y = m.mul(u, inverse)
    off = m.sub(cancelling(m, m.neg(y), divisor, u), m.mul(y, lost))
    y = m.fma(off, inverse, y)
    y = m.select(m.compare("lt", size, 2.0 ** -(f.mantissa // 2 + 2)), size, y)
    return m.copysign(y, x)


def _half_exp(m: Writer, x: str) -> str:
    """e^x / 2, which overflows where sinh and cosh do."""
    f = format_of(m)
    n, r = _reduced(m, clamp(m, x, f.underflow, f.overflow + 1.0))
    return m.scale(m.add(_expm1_near(m, r), 1.0), m.sub(n, 1.0))


def _sinh(m: Writer, x: str) -> str:
    size = m.abs(x)
    e = _half_exp(m, size)
    big = m.copysign(m.sub(e, m.div(0.25, e)), x)
    u = m.mul(x, x)
    small = m.fma(m.mul(estrin(m, u, t.SINH64), u), x, x)
    return m.select(m.compare("lt", size, 1.0), small, big)


def _cosh(m: Writer, x: str) -> str:
    e = _half_exp(m, m.abs(x))
    return m.add(e, m.div(0.25, e))


# ---- logarithms ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Split:
    """x = 2^k c (1 + r) with c an entry of the table, number `index`; `correction` is r^2 q(r), so that
    log(1 + r) = r + correction."""

    k: str
    index: str
    r: str
    correction: str


def _split(m: Writer, x: str, low: str | None = None, *, normal: bool = False) -> Split:
    """Take x (+ low, far smaller) apart. x is positive and finite; with low it is normal."""
    f = format_of(m)
    offset = None
    if low is None and not normal:
        tiny = m.compare("lt", x, 2.0 ** (1 - f.bias))
        x = m.select(tiny, m.mul(x, 2.0 ** (f.mantissa + 2)), x)
        offset = m.select(tiny, float(f.mantissa + 2), 0.0)
    bits = m.bits_of(x)
    first = (f.bias << f.mantissa) - (1 << (f.mantissa - 1))  # the bits of 0.75
    whole = m.ashr(m.isub(bits, first), f.mantissa)
    z_bits = m.isub(bits, m.shl(whole, f.mantissa))
    index = m.lshr(z_bits, f.mantissa - 4)
    inverse = m.table(f.inverse, index)
    r = cancelling(m, m.from_bits(z_bits), inverse, -1.0)
    if low is not None:
        small = m.iselect(m.icompare("gt", whole, f.bias - 3), f.bias - 3, whole)
        unit = m.from_bits(m.shl(m.isub(f.bias, small), f.mantissa))
        r = m.fma(m.mul(low, unit), inverse, r)
    q = (horner if m.bits == 32 else estrin)(m, r, f.log)
    k = m.to_float(whole)
    return Split(m.sub(k, offset) if offset is not None else k, index, r, m.mul(q, m.mul(r, r)))


def _log_specials(m: Writer, x: str, y: str) -> str:
    """-inf at 0, inf at inf, NaN below 0 and at NaN."""
    y = m.select(m.compare("eq", x, INF), INF, y)
    y = m.select(m.compare("eq", x, 0.0), -INF, y)
    return m.select(m.compare("ge", x, 0.0), y, NAN)


def _log_core(m: Writer, s: Split) -> str:
    f = format_of(m)
    high = m.fma(s.k, f.ln2[0], m.table(f.log_of, s.index))
    low = m.fma(s.k, f.ln2[1], m.add(s.correction, s.r))
    return m.add(high, low)


def log(m: Writer, x: str) -> str:
    return _log_specials(m, x, _log_core(m, _split(m, x)))


def log1p(m: Writer, x: str) -> str:
    f = format_of(m)
    u, low = two_sum(m, x, 1.0)
    low = m.select(m.compare("lt", x, 2.0 ** (f.mantissa + 4)), low, 0.0)
    y = _log_core(m, _split(m, u, low))
    return m.copysign(_log_specials(m, u, m.select(m.compare("lt", m.abs(x), 2.0 ** -(f.mantissa + 3)), x, y)), x)


def _log_to_base(m: Writer, x: str, factor: tuple[float, float], of: tuple[float, ...],
                 unit: tuple[float, float] | None) -> str:
    """log(x) times factor; unit is the logarithm of 2 to the base (None: 1)."""
    s = _split(m, x)
    high = m.table(of, s.index)
    high = m.add(s.k, high) if unit is None else m.fma(s.k, unit[0], high)
    main, rest = two_product(m, s.r, factor[0])
    low = m.fma(s.correction, factor[0], m.fma(s.r, factor[1], rest))
    if unit is not None:
        low = m.fma(s.k, unit[1], low)
    total, lost = two_sum(m, high, main)
    return _log_specials(m, x, m.add(total, m.add(lost, low)))


def log2(m: Writer, x: str) -> str:
    f = format_of(m)
    return _log_to_base(m, x, f.log2_e, f.log2_of, None)


def log10(m: Writer, x: str) -> str:
    f = format_of(m)
    return _log_to_base(m, x, f.log10_e, f.log10_of, f.log10_2)


def _arcsinh(m: Writer, x: str) -> str:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))); for large a log(a) + log(2)."""
    a = m.abs(x)
    square = m.mul(a, a)
    near = log1p(m, m.add(a, m.div(square, m.add(m.sqrt(m.add(square, 1.0)), 1.0))))
    far = m.add(log(m, a), DOUBLE.ln2[0] + DOUBLE.ln2[1])
    return m.copysign(m.select(m.compare("lt", a, 2.0 ** 28), near, far), x)


def _arccosh(m: Writer, x: str) -> str:
    """log1p(d + sqrt(2 d + d^2)) with d = x - 1."""
    d = m.sub(x, 1.0)
    near = log1p(m, m.add(d, m.sqrt(m.fma(d, d, m.add(d, d)))))
    far = m.add(log(m, x), DOUBLE.ln2[0] + DOUBLE.ln2[1])
    y = m.select(m.compare("lt", x, 2.0 ** 28), near, far)
    return m.select(m.compare("ge", x, 1.0), y, NAN)


def _arctanh(m: Writer, x: str) -> str:
    """log1p(2 a / (1 - a)) / 2."""
    a = m.abs(x)
    return m.copysign(m.mul(log1p(m, m.div(m.add(a, a), m.sub(1.0, a))), 0.5), x)


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
    n, r = _reduced(m, m.neg(p))
    far = m.sub(1.0, m.scale(m.add(_expm1_near(m, r), 1.0), n))
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
    rest = m.fma(cube, estrin(m, r, t.POW64), m.add(m.add(low, e2), m.add(e1, e3)))
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
    q = m.fma(estrin(m, r, DOUBLE.exp), m.mul(r, r), e)
    return _pow_specials(m, x, y, m.scale(m.add(m.add(q, r), 1.0), n))


def _pow_specials(m: Writer, x: str, y: str, magnitude: str) -> str:
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
    """f32 in f64 as 2^(y log2|x|), where a plain logarithm is precise enough; powers of two are exact."""
    w = m.wide
    wx, wy = m.widen(x), m.widen(y)
    a = w.abs(wx)
    s = _split(w, a, normal=True)
    logarithm = w.fma(w.add(s.r, s.correction), LOG2E, w.add(s.k, w.table(DOUBLE.log2_of, s.index)))
    logarithm = w.select(w.compare("eq", a, 0.0), -INF, w.select(w.compare("eq", a, INF), INF, logarithm))
    return m.narrow(_pow_specials(w, wx, wy, exp2(w, w.mul(wy, logarithm))))


def _cbrt(m: Writer, x: str) -> str:
    """Newton's iteration for m^(-1/3), then one for the root itself."""
    a = m.abs(x)
    tiny = m.compare("lt", a, 2.0 ** -1022)
    bits = m.bits_of(m.select(tiny, m.mul(a, 2.0 ** 54), a))
    exponent = m.isub(m.lshr(bits, 52), 1023)
    exponent = m.isub(exponent, m.iselect(tiny, 54, 0))
    third = m.floor(m.mul(m.add(m.to_float(exponent), 0.5), 1 / 3))
    rest = m.sub(m.to_float(exponent), m.mul(third, 3.0))
    significand = m.from_bits(m.ior(m.iand(bits, (1 << 52) - 1), 1023 << 52))
    y = horner(m, significand, t.CBRT64)
    for _ in range(2):  # y (4 - m y^3) / 3
        off = cancelling(m, m.mul(m.mul(y, y), significand), m.neg(y), 1.0)
        y = m.fma(m.mul(y, 1 / 3), off, y)
    two = m.compare("eq", rest, 2.0)
    one = m.compare("eq", rest, 1.0)
    number = m.mul(significand, m.select(two, 4.0, m.select(one, 2.0, 1.0)))
    factor = m.select(two, 0.6299605249474366, m.select(one, 0.7937005259840998, 1.0))  # 4^(-1/3), 2^(-1/3)
    y = m.mul(y, factor)
    root = m.mul(number, m.mul(y, y))
    square, lost = two_product(m, root, root)
    off = m.sub(cancelling(m, m.neg(square), root, number), m.mul(lost, root))
    root = m.fma(m.mul(off, 1 / 3), m.mul(y, y), root)
    root = m.copysign(m.scale(root, third), x)
    special = m.either(m.compare("eq", a, 0.0), m.negate(m.compare("lt", a, INF)))
    return m.select(special, x, root)


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
    "sin": native(sin), "cos": native(cos), "tan": in_double(tan), "sinh": in_double(_sinh), "cosh": in_double(_cosh),
    "arcsin": in_double(arcsin), "arccos": in_double(arccos), "arctan": in_double(arctan), "arctan2": in_double(arctan2),
    "arcsinh": in_double(_arcsinh), "arccosh": in_double(_arccosh), "arctanh": in_double(_arctanh),
    "power": power, "cbrt": in_double(_cbrt), "hypot": in_double(_hypot),
    "fmod": in_double(fmod), "remainder": remainder, "floor_divide": floor_divide,
}
