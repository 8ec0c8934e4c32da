"""Exponentials and logarithms of both widths.

Guarantees are those of `kernels.maths`.
"""
from __future__ import annotations

from loopwright.ir.dataclass import dataclass
from loopwright.kernels import maths_tables as t
from loopwright.kernels.maths_writer import F, Writer, cancelling, estrin, horner, polynomial, quick_two_sum, two_product

INF, NAN = float("inf"), float("nan")
LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453, 2.3190468138462996e-17


@dataclass(frozen=True)
class Format:
    """Constants of a floating format. ln2 is split so that the high part times any exponent is exact."""

    mantissa: int
    bias: int
    ln2: tuple[float, float]
    overflow: float  # beyond it e^x is infinite; just above, so that clamping keeps infinity
    underflow: float  # below it e^x is 0
    plain: float  # from minus that to that e^x is a normal number
    largest: float  # beyond it sinh and cosh are infinite
    flat: float  # below -flat expm1 is -1 and beyond flat tanh is 1
    inverse: tuple[float, ...]
    log_of: tuple[float, ...]


SINGLE = Format(23, 127, (0.693145751953125, 1.4286068203094173e-06), 89.0, -105.0, 87.0, 89.69, 10.0,
                t.LOG_INVERSE32, t.LOG_OF32)
DOUBLE = Format(52, 1023, (0.6931471805582987, 1.6465949582897082e-12), 710.0, -746.0, 708.0, 710.75, 20.0,
                t.LOG_INVERSE64, t.LOG_OF64)


def format_of(m: Writer) -> Format:
    return SINGLE if m.bits == 32 else DOUBLE


def clamp(m: Writer, x: str, low: float, high: float) -> str:
    """x within [low, high]; NaN stays."""
    return m.maximum(low, m.minimum(high, x))


def beyond(m: Writer, x: str, end: float) -> str:
    """Whether x is outside [-end, end], or NaN."""
    return m.negate(m.compare("le", m.abs(x), end))


# ---- exponentials -------------------------------------------------------------------------------
def reduced(m: Writer, x: str) -> tuple[str, str]:
    """n and r with x = n ln 2 + r, |r| <= ln(2) / 2."""
    f = format_of(m)
    n = m.round(m.mul(x, LOG2E))
    r = m.fma(n, -f.ln2[0], x)
    return n, m.fma(n, -f.ln2[1], r)


def expm1_near(m: Writer, r: str) -> str:
    """e^r - 1 = r + r^2 q(r) for |r| <= ln(2) / 2."""
    q = polynomial(m, r, t.EXP32, t.EXP64)
    return m.fma(q, m.mul(r, r), r)


def _power_bits(m: Writer) -> int:
    """Powers of two are taken to a sixteenth, by a table, where that is quick: 4, else 0."""
    return 4 if m.has_tables else 0


def steps(m: Writer, x: F, factor: float = 1.0, bits: int | None = None) -> tuple[str, str]:
    """x factor to the nearest step of powers of two, 1 or a part of it by so many bits, and an integer whose low bits count
    these steps."""
    bits = _power_bits(m) if bits is None else bits
    magic = 1.5 * 2.0 ** (format_of(m).mantissa - bits)  # numbers beside it are multiples of the step
    beside = m.fma(x, factor, magic) if factor != 1.0 else m.add(x, magic)
    return m.sub(beside, magic), m.bits_of(beside)


def _power(m: Writer, index: str, last: str) -> str:
    """2^(last / 16), where the last four bits of both numbers are the same."""
    table = m.table(t.POWERS32 if m.bits == 32 else t.POWERS64, index)
    return m.from_bits(m.iadd(m.bits_of(table), m.shl(last, format_of(m).mantissa - 4)))


def grown(m: Writer, more: str, index: str, low: str | None = None) -> str:
    """(1 + more) 2^(steps), which is a normal number; more is small, and so is then its part in what rounding takes, where
    steps are sixteenths. low: what more has beyond its bits, elsewhere."""
    if not _power_bits(m):
        return m.from_bits(m.iadd(m.bits_of(_and_one(m, more, low)), m.shl(index, format_of(m).mantissa)))
    power = _power(m, index, index)
    return m.fma(more, power, power)


def _and_one(m: Writer, more: str, low: str | None) -> str:
    """1 + more + low."""
    if low is None:
        return m.add(more, 1.0)
    total, lost = quick_two_sum(m, 1.0, more)
    return m.add(total, m.add(lost, low))


def grown_far(m: Writer, more: str, n: str, index: str, low: str | None = None) -> str:
    """The same for all results: n is the power, from -(bias + mantissa + 8) to below twice the bias."""
    if not _power_bits(m):
        return times_power(m, _and_one(m, more, low), n)
    power = _power(m, index, m.iand(index, 15))
    return times_power(m, m.fma(more, power, power), n)


def times_power(m: Writer, a: str, n: str) -> str:
    """a 2^n of a positive a below 2 for an integer n down to -(bias + mantissa + 8); where steps are sixteenths, the integer
    below n.

    Processors take a hundred times longer where a product is denormal. Here that is a sum: beside a power of two as large as
    the least normal number, all made larger by as much, it is rounded where a denormal number ends, and has its bits there.
    """
    f = format_of(m)
    more, least = f.bias // 2, 1 - f.bias
    beside = 2.0 ** (least + more)
    tiny = m.compare("lt", n, float(least))
    n = m.select(tiny, m.add(n, float(more)), n)
    y = m.scale_down(a, n) if _power_bits(m) else m.scale(a, n)
    denormal = m.from_bits(m.isub(m.bits_of(m.add(y, beside)), m.bits_of(m.constant(beside))))
    return m.select(tiny, denormal, y)


def _exp_steps(m: Writer, x: str) -> tuple[str, str, str]:
    """n and index of `steps`, and e^r - 1 for the rest r."""
    f = format_of(m)
    n, index = steps(m, x, LOG2E)
    r = m.fma(n, -f.ln2[1], m.fma(n, -f.ln2[0], x))
    if _power_bits(m):
        q = horner(m, r, t.EXP_FINE32 if m.bits == 32 else t.EXP_FINE64)
    else:
        q = polynomial(m, r, t.EXP32, t.EXP64)
    return n, index, m.fma(q, m.mul(r, r), r)


def exp(m: Writer, x: str) -> str:
    """2^n e^r, in integers where the result is a normal number, and 0 far below; all other arguments are rare."""
    f = format_of(m)
    return _unless_rare(m, x, (f.underflow, f.plain, f.overflow), *_exp_steps(m, x))


def _unless_rare(m: Writer, x: str, ends: tuple[float, float, float], n: str, index: str, more: str) -> str:
    """(1 + more) 2^n, of an x from underflow, below which it is 0, as where masks put numbers, to overflow, beyond which it is
    infinite; it is surely a normal number from minus the end between these to that."""
    underflow, plain, overflow = ends
    something = m.compare("nlt", x, underflow)

    def far(inner: Writer) -> str:
        return inner.select(inner.compare("gt", x, overflow), INF, grown_far(inner, more, n, index))
    return m.rarely(m.both(something, beyond(m, x, plain)), m.select(something, grown(m, more, index), 0.0), far)


def _exp2_steps(m: Writer, x: str) -> tuple[str, str, str]:
    """n and index of `steps`, and 2^r - 1 for the rest r."""
    n, index = steps(m, x)
    return n, index, power_near(m, m.sub(x, n))


def power_near(m: Writer, r: str) -> str:
    """2^r - 1 for r within half a step of powers of two."""
    if _power_bits(m):
        return m.mul(horner(m, r, t.EXP2_FINE32 if m.bits == 32 else t.EXP2_FINE64), r)
    return m.mul(polynomial(m, r, t.EXP232, t.EXP264), r)


def power_near_twice(m: Writer, r: str, low: str) -> tuple[str, str]:
    """f64: the same for r + low, r within 1/2 and low far smaller, and what its bits do not hold."""
    high, lost = two_product(m, r, m.constant(LN2[0]))
    return high, m.fma(m.fma(estrin(m, r, t.EXP264[:-1]), r, LN2[1]), r, m.fma(low, LN2[0], lost))


def exp2(m: Writer, x: str) -> str:
    f = format_of(m)
    return _unless_rare(m, x, (-f.bias - f.mantissa - 3.0, f.bias - 2.0, f.bias + 2.0), *_exp2_steps(m, x))


def _expm1_by_table(m: Writer, x: str) -> str:
    """f64: (2^n - 1) + 2^n (e^r - 1), for x from -2 flat to where 2^n is finite."""
    f = format_of(m)
    n, index = steps(m, x, LOG2E)
    first = m.fma(n, -f.ln2[0], x)
    r = m.fma(n, -f.ln2[1], first)
    lost = m.add(m.table(t.POWERS_LOST64, index), m.fma(n, -f.ln2[1], m.sub(first, r)))
    power = _power(m, index, index)
    return m.fma(m.fma(horner(m, r, t.EXP_FINER64), m.mul(r, r), lost), power, cancelling(m, r, power, m.sub(power, 1.0)))


def half_of_expm1(m: Writer, x: str) -> str:
    """(e^x - 1) / 2 for x below overflow and above -2 flat, as 2^(n-1) p + (2^(n-1) - 1/2), which does not overflow early."""
    f = format_of(m)
    n, r = reduced(m, x)
    more = m.mul(polynomial(m, r, t.EXP32, t.EXP64), m.mul(r, r))  # beside r
    half = m.from_bits(m.shl(m.iadd(m.to_int(n), f.bias - 1), f.mantissa))
    return m.fma(more, half, m.fma(r, half, m.sub(half, 0.5)))


def expm1(m: Writer, x: str) -> str:
    f = format_of(m)
    if m.bits == 32 or not m.has_tables:
        y = half_of_expm1(m, clamp(m, x, -2 * f.flat, f.overflow))
        return m.select(m.compare("lt", m.abs(x), 2.0 ** -(f.mantissa + 3)), x, m.add(y, y))
    usual = m.copysign(_expm1_by_table(m, m.maximum(-2 * f.flat, x)), x)
    return m.rarely(m.compare("gt", x, f.plain), usual, lambda inner: inner.apart("expm1_far", (x,), exp))


# ---- logarithms ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Base:
    """Logarithms to one base: that of 2, high and low; log(1 + r) = factor r + r rest(r); 1 / c and log c of the table."""

    unit: tuple[float, float]
    factor: float
    rest: tuple[float, ...]
    inverse: tuple[float, ...]
    of: tuple[float, ...]


LOG2 = {32: Base((1.0, 0.0), 1.4426950216293335, t.LOG2_32, t.LOG2_INVERSE32, t.LOG2_OF32),
        64: Base((1.0, 0.0), LOG2E, t.LOG2_64, t.LOG2_INVERSE64, t.LOG2_OF64)}
LOG10 = {32: Base((0.301025390625, 4.605038981195214e-06), 0.4342944920063019, t.LOG10_32, t.LOG10_INVERSE32, t.LOG10_OF32),
         64: Base((0.30102999566383914, 1.42050232272661e-13), 0.4342944819032518, t.LOG10_64, t.LOG10_INVERSE64,
                  t.LOG10_OF64)}


@dataclass(frozen=True)
class Split:
    """x = 2^k c (1 + r) with c an entry of the table, and its logarithm; k is -inf at 0 and inf at inf, r NaN below 0."""

    k: str
    of: str
    r: str


def split(m: Writer, x: str, low: str | None = None, base: Base | None = None) -> Split:
    """Take x (+ low, far smaller) apart; the logarithm is the natural one without a base."""
    f = format_of(m)
    k, z = m.parts(x)
    near, of = m.tables((base.inverse, base.of) if base else (f.inverse, f.log_of), m.lshr(m.bits_of(z), f.mantissa - 4))
    r = cancelling(m, z, near, -1.0)
    if low is not None:  # which is 0 where k is -inf
        r = m.fma(m.scale(low, m.minimum(f.bias - 1.0, m.neg(k))), near, r)
    return Split(k, of, r)


def log_core(m: Writer, s: Split) -> str:
    f = format_of(m)
    correction = m.mul(polynomial(m, s.r, t.LOG32, t.LOG64), m.mul(s.r, s.r))
    high = m.fma(s.k, f.ln2[0], s.of)
    low = m.fma(s.k, f.ln2[1], m.add(correction, s.r))
    return m.add(high, low)


def log(m: Writer, x: str) -> str:
    return log_core(m, split(m, x))


def log1p(m: Writer, x: str, more: str | None = None) -> str:
    """log(1 + x), or log(1 + x + more) with more far smaller than x."""
    u = m.add(x, 1.0)
    low = m.sub(x, m.sub(u, 1.0))  # exact but where 1 no longer counts
    low = low if more is None else m.add(low, more)
    low = m.select(m.compare("lt", x, 2.0 ** (format_of(m).mantissa + 4)), low, 0.0)
    return m.copysign(log_core(m, split(m, u, low)), x)


def _log_to_base(m: Writer, x: str, base: Base) -> str:
    s = split(m, x, base=base)
    high = m.fma(s.k, base.unit[0], s.of) if base.unit[1] else m.add(s.k, s.of)
    low = m.mul(polynomial(m, s.r, base.rest, base.rest), s.r)
    low = m.fma(s.k, base.unit[1], low) if base.unit[1] else low
    return m.add(high, m.fma(s.r, base.factor, low))


def log2(m: Writer, x: str) -> str:
    return _log_to_base(m, x, LOG2[m.bits])


def log10(m: Writer, x: str) -> str:
    return _log_to_base(m, x, LOG10[m.bits])
