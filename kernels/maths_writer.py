"""What vector maths is written against: typed operations on registers of floats and of integers as wide.

A register is a name or constant text; a Python number stands for itself in every lane. The LLVM generator implements
this; another backend gets the same functions by implementing it again.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from loopwright.ir.dataclass import dataclass

F = str | float
I = str | int  # noqa: E741  (integer operands beside F, float operands)
W = TypeVar("W", bound="Writer")


class Writer(Protocol):
    """Floats of `bits` (32 or 64). Relations of `compare` are lt le eq ne gt ge (false for NaN but ne) and unordered.
    `parts` is k, integer-valued, and z in [3/4, 3/2) with a = z 2^k: -inf, 1 for zeros, inf, 1 for inf, and z is NaN below 0.
    `has_tables`: whether a table of 16 numbers takes about as long as an operation, for all numbers of lanes or for none;
    `has_short_tables`: whether one of 8 does; `has_rows`: whether each of many tables does that are read at one index.
    `apart` is body(a writer, *operands), floats all, written once for all that need it: name and bits say which it is."""

    @property
    def bits(self) -> int: ...
    @property
    def has_fma(self) -> bool: ...
    @property
    def has_tables(self) -> bool: ...
    @property
    def has_short_tables(self) -> bool: ...
    @property
    def has_rows(self) -> bool: ...
    @property
    def wide(self: W) -> W: ...
    def widen(self, a: str) -> str: ...
    def narrow(self, a: str) -> str: ...
    def constant(self, value: float) -> str: ...
    def integer(self, value: int) -> str: ...
    def add(self, a: F, b: F) -> str: ...
    def sub(self, a: F, b: F) -> str: ...
    def mul(self, a: F, b: F) -> str: ...
    def div(self, a: F, b: F) -> str: ...
    def fma(self, a: F, b: F, c: F) -> str: ...
    def neg(self, a: F) -> str: ...
    def abs(self, a: F) -> str: ...
    def sqrt(self, a: F) -> str: ...
    def copysign(self, a: F, b: F) -> str: ...
    def round(self, a: str) -> str: ...
    def trunc(self, a: str) -> str: ...
    def floor(self, a: str) -> str: ...
    def minimum(self, a: F, b: F) -> str: ...
    def maximum(self, a: F, b: F) -> str: ...
    def compare(self, relation: str, a: F, b: F) -> str: ...
    def icompare(self, relation: str, a: I, b: I) -> str: ...
    def ucompare(self, relation: str, a: I, b: I) -> str: ...
    def select(self, mask: str, a: F, b: F) -> str: ...
    def iselect(self, mask: str, a: I, b: I) -> str: ...
    def iadd(self, a: I, b: I) -> str: ...
    def isub(self, a: I, b: I) -> str: ...
    def imul(self, a: I, b: I) -> str: ...
    def iand(self, a: I, b: I) -> str: ...
    def ior(self, a: I, b: I) -> str: ...
    def ixor(self, a: I, b: I) -> str: ...
    def shl(self, a: I, b: I) -> str: ...
    def lshr(self, a: I, b: I) -> str: ...
    def ashr(self, a: I, b: I) -> str: ...
    def both(self, a: str, b: str) -> str: ...
    def either(self, a: str, b: str) -> str: ...
    def differ(self, a: str, b: str) -> str: ...
    def negate(self, a: str) -> str: ...
    def bits_of(self, a: str) -> str: ...
    def from_bits(self, a: str) -> str: ...
    def to_int(self, a: str) -> str: ...
    def to_float(self, a: str) -> str: ...
    def scale(self, a: str, n: str) -> str: ...
    def scale_down(self, a: str, n: str) -> str: ...
    def parts(self, a: str) -> tuple[str, str]: ...
    def exponent(self, a: str) -> str: ...
    def table(self, values: tuple[float, ...], index: str) -> str: ...
    def tables(self, values: Sequence[tuple[float, ...]], index: str) -> list[str]: ...
    def integer_table(self, values: tuple[int, ...], index: str) -> str: ...
    def rarely(self: W, mask: str, usual: str, unusual: Callable[[W], str]) -> str: ...
    def apart(self: W, name: str, operands: Sequence[str], body: Callable[..., str]) -> str: ...
    def repeat(self: W, floats: list[str], body: Callable[[W, list[str]], tuple[str, list[str]]]) -> list[str]: ...


def horner(m: Writer, x: str, coefficients: Sequence[F]) -> str:
    """A polynomial, highest coefficient first."""
    result: F = coefficients[0]
    for c in coefficients[1:]:
        result = m.fma(result, x, c)
    return result if isinstance(result, str) else m.constant(result)


def estrin(m: Writer, x: str, coefficients: Sequence[F]) -> str:
    """The same by pairs: half the waiting for long polynomials."""
    terms: list[F] = list(reversed(coefficients))
    power = x
    while len(terms) > 1:
        pairs: list[F] = [m.fma(terms[k + 1], power, terms[k]) for k in range(0, len(terms) - 1, 2)]
        terms = pairs + (terms[-1:] if len(terms) % 2 else [])
        power = m.mul(power, power) if len(terms) > 1 else power
    return terms[0] if isinstance(terms[0], str) else m.constant(terms[0])


def polynomial(m: Writer, x: str, single: tuple[float, ...], double: tuple[float, ...] = ()) -> str:
    """The polynomial of this width, in the order that suits it."""
    return horner(m, x, single) if m.bits == 32 else estrin(m, x, double)


@dataclass(frozen=True)
class Pieces:
    """A function of x >= 0 by 16 (8) intervals, in each of which 1 + slope x has the same exponent and two upper bits (one) of
    its significand: their centres and their coefficients, highest first."""

    slope: float
    tables: tuple[tuple[float, ...], ...]

    @property
    def bits(self) -> int:
        """How many upper bits."""
        return len(self.tables[0]).bit_length() - 3


def by_pieces(m: Writer, x: str, pieces: Pieces, *, beside_argument: bool = False) -> str:
    """The polynomial of the interval of x; x itself is the constant of the first one if it is to be `beside_argument`."""
    grown = m.fma(x, pieces.slope, 1.0)
    index = m.lshr(m.bits_of(grown), (23 if m.bits == 32 else 52) - pieces.bits)
    centre, *coefficients, constant = m.tables(pieces.tables, index)
    r = m.sub(x, centre)
    rest = (horner if m.bits == 32 else estrin)(m, r, coefficients)
    if beside_argument:
        constant = m.select(m.compare("lt", grown, 1 + 2.0 ** -pieces.bits), x, constant)
    return m.fma(rest, r, constant)


def odd(m: Writer, x: str, square: str, single: tuple[float, ...], double: tuple[float, ...] = ()) -> str:
    """x + x^3 P(x^2)."""
    return m.fma(m.mul(polynomial(m, square, single, double), square), x, x)


def two_sum(m: Writer, a: F, b: F) -> tuple[str, str]:
    """a + b rounded, and what rounding took away (Knuth)."""
    s = m.add(a, b)
    bb = m.sub(s, a)
    return s, m.add(m.sub(a, m.sub(s, bb)), m.sub(b, bb))


def quick_two_sum(m: Writer, a: F, b: F) -> tuple[str, str]:
    """The same for |a| >= |b| (Dekker)."""
    s = m.add(a, b)
    return s, m.sub(b, m.sub(s, a))


def two_product(m: Writer, a: F, b: F) -> tuple[str, str]:
    """a * b rounded, and what rounding took away; without a fused multiply-add by splitting (Dekker)."""
    p = m.mul(a, b)
    if m.has_fma:
        return p, m.fma(a, b, m.neg(p))
    if m.bits == 32:
        w = m.wide
        exact = w.mul(m.widen(_register(m, a)), m.widen(_register(m, b)))
        return p, m.narrow(w.sub(exact, m.widen(p)))
    (ah, al), (bh, bl) = _halves(m, a), _halves(m, b)
    e = m.sub(m.mul(ah, bh), p)
    return p, m.add(m.add(m.add(e, m.mul(ah, bl)), m.mul(al, bh)), m.mul(al, bl))


def _register(m: Writer, a: F) -> str:
    return a if isinstance(a, str) else m.constant(a)


def _halves(m: Writer, a: F) -> tuple[str, str]:
    """The upper 26 bits, cut off rather than rounded so that nothing overflows, and the rest."""
    x = _register(m, a) if not isinstance(a, str) else a
    high = m.from_bits(m.iand(m.bits_of(x), -(1 << 27)))
    return high, m.sub(x, high)


def cancelling(m: Writer, a: F, b: F, c: F) -> str:
    """a * b + c where the sum cancels most of the product: exact to the last bit of the product."""
    if m.has_fma:
        return m.fma(a, b, c)
    p, e = two_product(m, a, b)
    return m.add(m.add(p, c), e)
