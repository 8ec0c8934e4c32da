"""Remainders of floats, exactly, and NumPy's floor division from them."""
from __future__ import annotations

from loopwright.kernels.maths_writer import Writer, cancelling

INF, NAN = float("inf"), float("nan")
LEAST = {32: 2.0 ** -126, 64: 2.0 ** -1022}  # the least normal numbers
FAR = {32: 2.0 ** 23, 64: 2.0 ** 52}  # quotients up to here have no digits after the point that rounding may lose


def fmod(m: Writer, x: str, y: str) -> str:
    """x - y trunc(x / y), exact. Larger quotients are taken in steps of about 2^50."""
    if m.bits == 32 and not m.has_fma:
        return m.narrow(fmod(m.wide, m.widen(x), m.widen(y)))
    a, b = m.abs(x), m.abs(y)
    quotient = m.div(a, b)
    far = m.both(m.compare("ge", quotient, FAR[m.bits]), m.both(m.compare("lt", a, INF), m.compare("gt", b, 0.0)))
    rest = m.rarely(far, _step(m, a, b, quotient), lambda inner: inner.apart("fmod_far", (a, b), _far))
    rest = m.select(m.compare("eq", b, INF), a, rest)
    bad = m.either(m.compare("eq", a, INF), m.compare("eq", b, 0.0))
    bad = m.either(bad, m.compare("unordered", a, b))
    return m.select(bad, NAN, m.copysign(rest, x))


def _far(m: Writer, a: str, b: str) -> str:
    return _long_division(m, a, b) if m.bits == 64 else m.narrow(_long_division(m.wide, m.widen(a), m.widen(b)))


def _step(m: Writer, a: str, b: str, quotient: str) -> str:
    """The remainder for a quotient that is not far, which rounding may have made one too large."""
    rest = cancelling(m, m.neg(m.trunc(quotient)), b, a)
    rest = m.select(m.compare("lt", rest, 0.0), m.add(rest, b), rest)
    return m.select(m.compare("ge", rest, b), m.sub(rest, b), rest)


def _long_division(m: Writer, a: str, b: str) -> str:
    """Remainders by b 2^d, for d falling to 0."""
    divisor = _exponent(m, b)
    defined = m.both(m.compare("lt", a, INF), m.compare("gt", b, 0.0))

    def body(inner: Writer, now: list[str]) -> tuple[str, list[str]]:
        distance = inner.isub(inner.isub(_exponent(inner, now[0]), divisor), 50)
        distance = inner.iselect(inner.icompare("gt", distance, 0), distance, 0)
        half = inner.ashr(distance, 1)  # in two steps: from the least to the greatest number it is further than `scale` goes
        scaled = inner.scale(inner.scale(b, inner.to_float(half)), inner.to_float(inner.isub(distance, half)))
        rest = inner.select(defined, _step(inner, now[0], scaled, inner.div(now[0], scaled)), 0.0)
        return inner.both(defined, inner.compare("ge", rest, b)), [rest]  # a lane without a remainder never waits
    return m.repeat([m.select(defined, a, 0.0)], body)[0]


def _exponent(m: Writer, a: str) -> str:
    """floor(log2 a) of a positive f64, denormals included."""
    tiny = m.compare("lt", a, 2.0 ** -1022)
    bits = m.bits_of(m.select(tiny, m.mul(a, 2.0 ** 54), a))
    return m.isub(m.lshr(bits, 52), m.iselect(tiny, 1023 + 54, 1023))


# ---- by one number ------------------------------------------------------------------------------
NEAR = {32: 2.0 ** 20, 64: 2.0 ** 49}  # quotients that products with a reciprocal make larger by less than 1


def divisor_of(m: Writer, y: str) -> tuple[str, str]:
    """|y|, and slightly more than 1 / |y|: what products take for quotients is then never too small. Of an infinity a number
    and 0, so that nothing is taken away; of 0 NaN and 0. In place of a denormal reciprocal infinity: all quotients are far."""
    b = m.abs(y)
    reciprocal = m.mul(m.div(1.0, b), 1.0 + 4.0 / FAR[m.bits])
    reciprocal = m.select(m.compare("lt", reciprocal, LEAST[m.bits]), INF, reciprocal)
    nothing = m.either(m.compare("eq", b, INF), m.compare("eq", b, 0.0))
    reciprocal = m.select(m.either(nothing, m.compare("unordered", b, b)), 0.0, reciprocal)
    b = m.select(m.compare("eq", b, INF), 1.0, b)
    return m.select(m.compare("eq", b, 0.0), NAN, b), reciprocal


def fmod_by(m: Writer, x: str, divisor: str, reciprocal: str) -> str:
    """fmod(x, y), of what `divisor_of` gives. Infinities and NaN give NaN by themselves."""
    a = m.abs(x)
    quotient = m.mul(a, reciprocal)
    far = m.both(m.negate(m.compare("lt", quotient, NEAR[m.bits])), m.compare("lt", a, INF))
    rest = m.fma(m.neg(m.trunc(quotient)), divisor, a)
    rest = m.select(m.compare("lt", rest, 0.0), m.add(rest, divisor), rest)
    return m.copysign(m.rarely(far, rest, lambda inner: inner.apart("fmod_far", (a, divisor), _far)), x)


# ---- NumPy's functions --------------------------------------------------------------------------
def remainder(m: Writer, x: str, y: str) -> str:
    """The remainder with the divisor's sign, as NumPy (and Python) define it."""
    return with_divisors_sign(m, fmod(m, x, y), y)


def with_divisors_sign(m: Writer, rest: str, y: str) -> str:
    """The remainder, of fmod's."""
    crosses = m.both(m.compare("ne", rest, 0.0), _other_sign(m, rest, y))
    moved = m.select(crosses, m.add(rest, y), rest)
    return m.select(m.compare("eq", rest, 0.0), m.copysign(0.0, y), moved)


def _other_sign(m: Writer, a: str, b: str) -> str:
    return m.icompare("lt", m.ixor(m.bits_of(a), m.bits_of(b)), 0)


def floor_divide(m: Writer, x: str, y: str) -> str:
    """NumPy's: the quotient of x - remainder, to the nearest whole number; x / y for y = 0."""
    rest = fmod(m, x, y)
    crosses = m.both(m.compare("ne", rest, 0.0), _other_sign(m, rest, y))
    quotient = m.div(m.sub(x, rest), y)
    quotient = m.select(crosses, m.sub(quotient, 1.0), quotient)
    low = m.floor(quotient)
    whole = m.select(m.compare("gt", m.sub(quotient, low), 0.5), m.add(low, 1.0), low)
    plain = m.div(x, y)
    whole = m.select(m.compare("eq", quotient, 0.0), m.copysign(0.0, plain), whole)
    return m.select(m.compare("eq", y, 0.0), plain, whole)
