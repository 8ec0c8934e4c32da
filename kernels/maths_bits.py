"""Powers of two and the parts of a float by the bits of its format, for machines without instructions of their own."""
from __future__ import annotations

from loopwright.kernels.maths_writer import Writer

INF, NAN = float("inf"), float("nan")


def _format(m: Writer) -> tuple[int, int]:
    """The bias of exponents, and the bits below them."""
    return (127, 23) if m.bits == 32 else (1023, 52)


def scale(m: Writer, a: str, n: str) -> str:
    """a * 2^n for an integer-valued float n, by halves of n, as the result may overflow or be denormal."""
    bias, mantissa = _format(m)
    whole = m.to_int(n)
    half = m.ashr(whole, 1)
    first = m.from_bits(m.shl(m.iadd(half, bias), mantissa))
    second = m.from_bits(m.shl(m.iadd(m.isub(whole, half), bias), mantissa))
    return m.mul(m.mul(a, first), second)


def parts(m: Writer, a: str) -> tuple[str, str]:
    """k, integer-valued, and z in [3/4, 3/2) with a = z 2^k; k is -inf for zeros and inf for inf, z is NaN below 0."""
    bias, mantissa = _format(m)
    tiny, bits = _normal(m, a)
    first = (bias << mantissa) - (1 << (mantissa - 1))  # the bits of 3/4
    whole = m.ashr(m.isub(bits, first), mantissa)
    z = m.from_bits(m.isub(bits, m.shl(whole, mantissa)))
    k = m.sub(m.to_float(whole), m.select(tiny, mantissa + 2.0, 0.0))
    k = m.select(m.compare("eq", a, INF), INF, k)
    return m.select(m.compare("eq", a, 0.0), -INF, k), m.select(m.compare("ge", a, 0.0), z, NAN)


def exponent(m: Writer, a: str) -> str:
    """floor(log2 |a|) as a float; -inf for zeros, inf for infinities."""
    bias, mantissa = _format(m)
    size = m.abs(a)
    tiny, bits = _normal(m, size)
    k = m.to_float(m.isub(m.lshr(bits, mantissa), bias))
    k = m.sub(k, m.select(tiny, mantissa + 2.0, 0.0))
    k = m.select(m.compare("lt", size, INF), k, size)
    return m.select(m.compare("eq", size, 0.0), -INF, k)


def _normal(m: Writer, a: str) -> tuple[str, str]:
    """Whether a is denormal, and its bits, of a * 2^(mantissa + 2) where it is."""
    bias, mantissa = _format(m)
    tiny = m.compare("lt", a, 2.0 ** (1 - bias))
    return tiny, m.bits_of(m.select(tiny, m.mul(a, 2.0 ** (mantissa + 2)), a))
