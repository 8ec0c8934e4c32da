"""Exponentials and logarithms of both widths.

Guarantees are those of `kernels.maths`.
"""
from __future__ import annotations

from dataclasses import dataclass

from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_writer import Writer, cancelling, estrin, horner, two_product, two_sum

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
def reduced(m: Writer, x: str) -> tuple[str, str]:
    """n and r with x = n ln 2 + r, |r| <= ln(2) / 2."""
    f = format_of(m)
    n = m.round(m.mul(x, LOG2E))
    r = m.fma(n, -f.ln2[0], x)
    return n, m.fma(n, -f.ln2[1], r)


def expm1_near(m: Writer, r: str) -> str:
    """e^r - 1 = r + r^2 q(r) for |r| <= ln(2) / 2."""
    q = (horner if m.bits == 32 else estrin)(m, r, format_of(m).exp)
    return m.fma(q, m.mul(r, r), r)


def _exp_parts(m: Writer, x: str) -> tuple[str, str]:
    """p in [0.7, 1.42] and n with e^x = p 2^n."""
    f = format_of(m)
    n, r = reduced(m, clamp(m, x, f.underflow, f.overflow))
    return m.add(expm1_near(m, r), 1.0), n


def exp(m: Writer, x: str) -> str:
    return m.scale(*_exp_parts(m, x))


def exp2(m: Writer, x: str) -> str:
    f = format_of(m)
    x = clamp(m, x, -f.bias - f.mantissa - 3.0, f.bias + 2.0)
    n = m.round(x)
    r = m.sub(x, n)
    q = (horner if m.bits == 32 else estrin)(m, r, f.exp2)
    return m.scale(m.fma(q, r, 1.0), n)


def expm1_core(m: Writer, x: str) -> str:
    """e^x - 1 for x below overflow and above -flat, as (2^(n-1) p + (2^(n-1) - 1/2)) 2, which does not overflow early."""
    f = format_of(m)
    n, r = reduced(m, x)
    p = expm1_near(m, r)
    half = m.from_bits(m.shl(m.iadd(m.to_int(n), f.bias - 1), f.mantissa))
    y = m.fma(p, half, m.sub(half, 0.5))
    return m.add(y, y)


def expm1(m: Writer, x: str) -> str:
    f = format_of(m)
    y = expm1_core(m, clamp(m, x, -2 * f.flat, f.overflow))
    return m.select(m.compare("lt", m.abs(x), 2.0 ** -(f.mantissa + 3)), x, y)


# ---- logarithms ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Split:
    """x = 2^k c (1 + r) with c an entry of the table, number `index`; `correction` is r^2 q(r), so that
    log(1 + r) = r + correction."""

    k: str
    index: str
    r: str
    correction: str


def split(m: Writer, x: str, low: str | None = None, *, coefficients: tuple[float, ...] = (), normal: bool = False) -> Split:
    """Take x (+ low, far smaller) apart. x is positive and finite; with low it is normal. coefficients: of q."""
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
    q = (horner if m.bits == 32 else estrin)(m, r, coefficients or f.log)
    k = m.to_float(whole)
    return Split(m.sub(k, offset) if offset is not None else k, index, r, m.mul(q, m.mul(r, r)))


def log_specials(m: Writer, x: str, y: str) -> str:
    """-inf at 0, inf at inf, NaN below 0 and at NaN."""
    y = m.select(m.compare("eq", x, INF), INF, y)
    y = m.select(m.compare("eq", x, 0.0), -INF, y)
    return m.select(m.compare("ge", x, 0.0), y, NAN)


def log_core(m: Writer, s: Split) -> str:
    f = format_of(m)
    high = m.fma(s.k, f.ln2[0], m.table(f.log_of, s.index))
    low = m.fma(s.k, f.ln2[1], m.add(s.correction, s.r))
    return m.add(high, low)


def log(m: Writer, x: str) -> str:
    return log_specials(m, x, log_core(m, split(m, x)))


def log1p(m: Writer, x: str) -> str:
    f = format_of(m)
    u, low = two_sum(m, x, 1.0)
    low = m.select(m.compare("lt", x, 2.0 ** (f.mantissa + 4)), low, 0.0)
    y = log_core(m, split(m, u, low))
    return m.copysign(log_specials(m, u, m.select(m.compare("lt", m.abs(x), 2.0 ** -(f.mantissa + 3)), x, y)), x)


def _log_to_base(m: Writer, x: str, factor: tuple[float, float], of: tuple[float, ...],
                 unit: tuple[float, float] | None) -> str:
    """log(x) times factor; unit is the logarithm of 2 to the base (None: 1)."""
    s = split(m, x)
    high = m.table(of, s.index)
    high = m.add(s.k, high) if unit is None else m.fma(s.k, unit[0], high)
    main, rest = two_product(m, s.r, factor[0])
    low = m.fma(s.correction, factor[0], m.fma(s.r, factor[1], rest))
    if unit is not None:
        low = m.fma(s.k, unit[1], low)
    total, lost = two_sum(m, high, main)
    return log_specials(m, x, m.add(total, m.add(lost, low)))


def log2(m: Writer, x: str) -> str:
    f = format_of(m)
    return _log_to_base(m, x, f.log2_e, f.log2_of, None)


def log10(m: Writer, x: str) -> str:
    f = format_of(m)
    return _log_to_base(m, x, f.log10_e, f.log10_of, f.log10_2)
