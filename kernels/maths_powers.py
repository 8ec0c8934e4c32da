"""Whole powers that are known when a kernel is written: products in twice the precision, where the result is a normal number.

x^2, x^3 and x^4 are plain products: what rounds before the last of them is within the bounds of vector maths (x^2 is off by
half a unit at most, its square by two units less a tenth, as the relative error doubles), and nothing in them is infinite or
denormal where the result is not. Longer products keep what each rounding took away. A negative power is one division by the
product, corrected by what that and the product lost, which for x^-2 is within the bounds as it is.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loopwright.kernels.maths_exponentials import format_of
from loopwright.kernels.maths_writer import Writer, two_product

PLAIN = (1, 2, 3, 4)
MOST = 64  # a longer product takes as long as a power of any exponent


def product_power(n: int, general: Callable[[Writer, str, str], str]) -> Callable[[Writer, str], str] | None:
    """x -> x^n for floats, or None where a power of any exponent takes no longer. `general` is such a power, for the rare
    arguments of which the product leaves the normal numbers."""
    if n in PLAIN:
        return lambda m, x: by_squares(m.mul, x, n)
    if n == -1:
        return lambda m, x: m.div(1.0, x)
    return partial(_compensated, n=n, general=general) if -MOST <= n <= MOST and n != 0 else None


def by_squares(mul: Callable[[str, str], str], x: str, n: int) -> str:
    """x^n for n >= 1 in a product's own rounding: the square of the power by half, times x where that leaves one."""
    power = x
    for bit in f"{n:b}"[1:]:
        power = mul(power, power)
        power = mul(power, x) if bit == "1" else power
    return power


def _compensated(m: Writer, x: str, n: int, general: Callable[[Writer, str, str], str]) -> str:
    high, low = _product(m, x, abs(n)) if n != -2 else (m.mul(x, x), 0.0)
    usual = m.add(high, low) if n > 0 else _inverse(m, high, low)
    f = format_of(m)
    end = f.bias - 2.0
    outside = m.negate(m.both(m.compare("ge", m.abs(high), 2.0 ** (f.mantissa + 2.0 - end)),
                              m.compare("le", m.abs(high), 2.0 ** end)))
    if n > 0:  # of zeros the product is right but for the sign
        outside = m.both(outside, m.compare("ne", x, 0.0))
        usual = m.copysign(usual, x) if n % 2 else usual
    return m.rarely(outside, usual, lambda inner: general(inner, x, inner.constant(float(n))))


def _product(m: Writer, x: str, n: int) -> tuple[str, str | float]:
    """x^n and what roundings took away."""
    high: str = x
    low: str | float = 0.0
    for bit in f"{n:b}"[1:]:
        whole, lost = two_product(m, high, high)
        high, low = whole, lost if low == 0.0 else m.fma(m.add(high, high), low, lost)
        if bit == "1":
            whole, lost = two_product(m, high, x)
            high, low = whole, m.fma(low, x, lost)
    return high, low


def _inverse(m: Writer, high: str, low: str | float) -> str:
    """1 / (high + low)."""
    q = m.div(1.0, high)
    if low == 0.0:
        return q
    return m.fma(m.neg(q), m.fma(low, q, m.fma(high, q, -1.0)), q)
