"""Complex numbers as pairs of real values under construction, with operators, so that formulas read as formulas.

Guarantees: `Part` is a real (or bool) array of a builder, and numbers beside it are constants of its dtype; `Pair` adds,
multiplies and divides as NumPy does: products by the plain formula, quotients by Smith's algorithm.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.op import Op
from loopwright.ir.ops import arithmetic, bitwise, comparison
from loopwright.ir.ops.construct import full_like
from loopwright.ir.ops.selection import convert, select
from loopwright.ir.ops.structural import concatenate, reshape, section


@dataclass(frozen=True)
class Part:
    """One real array."""

    ref: Ref

    @property
    def dtype(self) -> np.dtype:
        return self.ref.dtype

    def lift(self, x: Part | float) -> Ref:
        """x as an array like this one."""
        return x.ref if isinstance(x, Part) else full_like(self.ref, x)

    def like(self, x: float) -> Part:
        """A constant like this one."""
        return Part(full_like(self.ref, x))

    def to(self, dtype: np.dtype) -> Part:
        """The same numbers at a dtype."""
        return self if dtype == self.dtype else Part(convert(self.ref, dtype=dtype))

    def _with(self, op: Op, other: Part | float) -> Part:
        return Part(op(self.ref, self.lift(other)))

    def __add__(self, y: Part | float) -> Part:
        return self._with(arithmetic.add, y)

    def __sub__(self, y: Part | float) -> Part:
        return self._with(arithmetic.sub, y)

    def __rsub__(self, y: float) -> Part:
        return self.like(y) - self

    def __mul__(self, y: Part | float) -> Part:
        return self._with(arithmetic.mul, y)

    def __truediv__(self, y: Part | float) -> Part:
        return self._with(arithmetic.div, y)

    def __rtruediv__(self, y: float) -> Part:
        return self.like(y) / self

    def __neg__(self) -> Part:
        return Part(arithmetic.neg(self.ref))

    def __abs__(self) -> Part:
        return Part(arithmetic.abs(self.ref))

    def __lt__(self, y: Part | float) -> Part:
        return self._with(comparison.lt, y)

    def __le__(self, y: Part | float) -> Part:
        return self._with(comparison.le, y)

    def __gt__(self, y: Part | float) -> Part:
        return Part(comparison.lt(self.lift(y), self.ref))

    def __and__(self, y: Part) -> Part:
        return self._with(bitwise.bitwise_and, y)

    def __or__(self, y: Part) -> Part:
        return self._with(bitwise.bitwise_or, y)

    def __invert__(self) -> Part:
        return Part(bitwise.bitwise_not(self.ref))

    def equals(self, y: Part | float) -> Part:
        """Where the two are equal."""
        return self._with(comparison.eq, y)

    def differs(self, y: Part | float) -> Part:
        """Where the two are not equal."""
        return self._with(comparison.ne, y)


def call(op: Op, *parts: Part) -> Part:
    """An elementwise op on parts."""
    return Part(op(*[p.ref for p in parts]))


def where(condition: Part, a: Part, b: Part | float) -> Part:
    """a where the condition holds, else b."""
    return Part(select(condition.ref, a.ref, a.lift(b)))


@dataclass(frozen=True)
class Pair:
    """One complex array: re + i im."""

    re: Part
    im: Part

    def __add__(self, y: Pair) -> Pair:
        return Pair(self.re + y.re, self.im + y.im)

    def __sub__(self, y: Pair) -> Pair:
        return Pair(self.re - y.re, self.im - y.im)

    def __neg__(self) -> Pair:
        return Pair(-self.re, -self.im)

    def __mul__(self, y: Pair) -> Pair:
        return Pair(self.re * y.re - self.im * y.im, self.re * y.im + self.im * y.re)

    def __truediv__(self, y: Pair) -> Pair:
        """Smith's algorithm (R. Smith, "Algorithm 116: complex division", 1962): dividing by the larger part first."""
        by_real = abs(y.im) <= abs(y.re)
        large, small = where(by_real, y.re, y.im), where(by_real, y.im, y.re)
        ratio = small / large
        scale = 1 / (large + small * ratio)
        re = where(by_real, self.re, self.im) + where(by_real, self.im, self.re) * ratio
        im = where(by_real, self.im, self.im * ratio) - where(by_real, self.re * ratio, self.re)
        is_zero = y.re.equals(0) & y.im.equals(0)
        return pair_where(is_zero, Pair(self.re / abs(y.re), self.im / abs(y.re)), Pair(re * scale, im * scale))

    def scaled(self, by: Part | float) -> Pair:
        """Both parts times a real number."""
        return Pair(self.re * by, self.im * by)

    def to(self, part: np.dtype) -> Pair:
        """The same numbers with parts at a dtype."""
        return Pair(self.re.to(part), self.im.to(part))

    def constant(self, value: complex) -> Pair:
        """A constant like this one."""
        return Pair(self.re.like(value.real), self.im.like(value.imag))


@dataclass(frozen=True)
class Whole(Pair):
    """A complex array that lies in memory: its pairs are the last axis of `pairs`, and its parts are read from there."""

    pairs: Ref


def whole(pairs: Ref) -> Whole:
    """The complex numbers whose parts are the last axis."""
    shape = pairs.shape[:-1]
    re, im = (Part(reshape(section(pairs, len(shape), k, 1), shape=shape)) for k in (0, 1))
    return Whole(re, im, pairs)


def joined(x: Pair) -> Ref:
    """The pairs of a complex array along a last axis."""
    if isinstance(x, Whole):
        return x.pairs
    shape = x.re.ref.shape
    return concatenate(*[reshape(p.ref, shape=(*shape, 1)) for p in (x.re, x.im)], axis=len(shape))


def pair_where(condition: Part, a: Pair, b: Pair) -> Pair:
    """a where the condition holds, else b."""
    return Pair(where(condition, a.re, b.re), where(condition, a.im, b.im))


def as_pair(x: Part | Pair) -> Pair:
    """A real number is one without an imaginary part."""
    return x if isinstance(x, Pair) else Pair(x, x.like(0))


def is_true(x: Pair) -> Part:
    """Where x is not zero, as NumPy counts truth: NaN is true."""
    return x.re.differs(0) | x.im.differs(0)
