"""Arithmetic: sums, products, quotients, rounding, extremes, signs, and the parts of complex numbers.

Guarantees: integers wrap, and division of integers by zero gives 0; every rule is differentiable to any order; at ties
and kinks the derivatives are JAX's.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.op import Op
from loopwright.ir.ops.bitwise import bitwise_or
from loopwright.ir.ops.broadcasting import broadcast, repeated
from loopwright.ir.ops.comparison import eq, isnan, le, lt
from loopwright.ir.ops.construct import full_like, zeros_like
from loopwright.ir.ops.elementwise import INEXACT, NUMBERS, ORDERED, REAL, between, elementwise, no_tangent, real_part
from loopwright.ir.ops.selection import convert, select
from loopwright.ir.types import BOOL, C64, C128, COMPLEX, F32, F64, FLOATS

Tangents = tuple[Ref | None, ...]


def along(tangents: Tangents, *partials: Callable[[Ref], Ref]) -> Ref | None:
    """The sum of each operand's contribution to the tangent; None where every tangent is zero."""
    terms = [partial(t) for t, partial in zip(tangents, partials, strict=True) if t is not None]
    return reduce(add, terms) if terms else None


# ---- ring ---------------------------------------------------------------------------------------
add = elementwise(
    "add", np.add, 2, (BOOL, *NUMBERS), doc="x + y; integers wrap; on bool, or.",
    # Linear, but the rule spares zeros where one operand is constant.
    jvp=lambda primals, tangents, out: along(tangents, lambda t: t, lambda t: t),
    linear=(0, 1), jointly=True, transpose={0: lambda ct, x, y: ct, 1: lambda ct, x, y: ct},
)
neg: Op = elementwise(
    "neg", np.negative, 1, NUMBERS, doc="-x; integers wrap.",
    linear=(0,), jointly=True, transpose={0: lambda ct, x: neg(ct)},
)
sub = elementwise(
    "sub", np.subtract, 2, NUMBERS, doc="x - y; integers wrap.",
    jvp=lambda primals, tangents, out: difference(*tangents),
    linear=(0, 1), jointly=True, transpose={0: lambda ct, x, y: ct, 1: lambda ct, x, y: neg(ct)},
)


def difference(a: Ref | None, b: Ref | None) -> Ref | None:
    """a - b, where None is zero."""
    if b is None:
        return a
    return neg(b) if a is None else sub(a, b)


mul: Op = elementwise(
    "mul", np.multiply, 2, (BOOL, *NUMBERS), doc="x * y; integers wrap; on bool, and.",
    linear=(0, 1), transpose={0: lambda ct, x, y: mul(ct, y), 1: lambda ct, x, y: mul(ct, x)},
)

# ---- quotients ----------------------------------------------------------------------------------
_nonzero = {1: between(1, 4)}


def _quotient_tangent(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
    """d(x / y) = (dx - (x / y) dy) / y, with one division where both change: the result is what dy needs of x. Where y repeats
    few elements it is dx r - x (dy r r) with r = 1 / y, which is made of those: nothing is divided for each element."""
    (x, y), (dx, dy) = primals, tangents
    few, slope = repeated(y), repeated(dy)
    if few is not None and y.dtype in (F32, F64) and (dy is None or slope is not None):
        (divisor, places), (change, _) = few, slope or few
        r = div(full_like(divisor, 1), divisor)
        return along(tangents, lambda t: mul(t, broadcast(r, **places)),
                     lambda _: mul(x, broadcast(neg(mul(mul(change, r), r)), **places)))
    if dx is not None and dy is not None:
        return div(sub(dx, mul(dy, out)), y)
    return along(tangents, lambda t: div(t, y), lambda t: mul(t, neg(div(out, y))))


div: Op = elementwise(
    "div", np.divide, 2, INEXACT, doc="x / y, true division.", draw=_nonzero,
    jvp=_quotient_tangent, linear=(0,), transpose={0: lambda ct, x, y: div(ct, y)},
)
floor_divide = elementwise(
    "floor_divide", np.floor_divide, 2, REAL, doc="floor(x / y); integers by 0 give 0, and the least by -1 wraps.",
    draw=_nonzero, jvp=no_tangent,
)
remainder = elementwise(
    "remainder", np.remainder, 2, REAL, doc="x - y * floor(x / y): the sign is y's; integers by 0 give 0.", draw=_nonzero,
    jvp=lambda primals, tangents, out: along(tangents, lambda t: t, lambda t: mul(t, neg(floor_divide(*primals)))),
)
fmod = elementwise(
    "fmod", np.fmod, 2, REAL, doc="x - y * trunc(x / y): the sign is x's; integers by 0 give 0.", draw=_nonzero,
    jvp=lambda primals, tangents, out: along(tangents, lambda t: t, lambda t: mul(t, neg(_quotient(primals, out)))),
)


def _quotient(primals: tuple[Ref, Ref], fmod: Ref) -> Ref:
    """trunc(x / y) from the exact remainder: trunc of the rounded quotient may be one too large."""
    return rint(div(sub(primals[0], fmod), primals[1]))


# ---- rounding to integers -------------------------------------------------------------------------
floor = elementwise("floor", np.floor, 1, FLOATS, doc="The greatest integer <= x.", jvp=no_tangent)
ceil = elementwise("ceil", np.ceil, 1, FLOATS, doc="The least integer >= x.", jvp=no_tangent)
trunc = elementwise("trunc", np.trunc, 1, FLOATS, doc="The nearest integer toward zero.", jvp=no_tangent)
rint = elementwise("rint", np.rint, 1, FLOATS, doc="The nearest integer; halves go to the even one.", jvp=no_tangent)


# ---- extremes -------------------------------------------------------------------------------------
def _shared(x: Ref, y: Ref, wins: Ref) -> Ref:
    """x's share of an extreme of x and y: 1 where it wins, 1/2 where they tie, else 0 (NaN included)."""
    half = select(eq(x, y), full_like(x, 0.5), zeros_like(x))
    return select(wins, full_like(x, 1), half)


def _extreme_jvp(beats: Callable[[Ref, Ref], Ref]) -> Callable[..., Ref | None]:
    def jvp(primals: tuple[Ref, ...], tangents: Tangents, out: Ref) -> Ref | None:
        x, y = primals
        return along(tangents, lambda t: mul(t, _shared(x, y, beats(x, y))), lambda t: mul(t, _shared(y, x, beats(y, x))))
    return jvp


def _known_extreme_jvp(beats: Callable[[Ref, Ref], Ref]) -> Callable[..., Ref | None]:
    """fmax and fmin: x where it beats y or y is NaN, else y, ties included."""
    def jvp(primals: tuple[Ref, ...], tangents: Tangents, out: Ref) -> Ref | None:
        first = bitwise_or(beats(*primals), isnan(primals[1]))
        return along(tangents, lambda t: select(first, t, zeros_like(t)), lambda t: select(first, zeros_like(t), t))
    return jvp


def _greater(x: Ref, y: Ref) -> Ref:
    return lt(y, x)


max = elementwise("max", np.maximum, 2, ORDERED, doc="The greater; NaN if either is.", jvp=_extreme_jvp(_greater))
min = elementwise("min", np.minimum, 2, ORDERED, doc="The lesser; NaN if either is.", jvp=_extreme_jvp(lt))
fmax = elementwise("fmax", np.fmax, 2, ORDERED, doc="The greater; the other where one is NaN.",
                   jvp=_known_extreme_jvp(_greater))
fmin = elementwise("fmin", np.fmin, 2, ORDERED, doc="The lesser; the other where one is NaN.",
                   jvp=_known_extreme_jvp(lt))


# ---- signs ----------------------------------------------------------------------------------------
def _abs_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref) -> Ref:
    x, t = primals[0], tangents[0]
    if x.dtype not in COMPLEX:
        return select(le(zeros_like(x), x), t, neg(t))  # the slope at 0 is the right one, as in JAX
    # d|x| = re(conj(x) dx) / |x|, and 0 at 0.
    length = select(eq(out, zeros_like(out)), full_like(out, 1), out)
    return real(mul(t, div(conj(x), convert(length, dtype=x.dtype))))


abs = elementwise(
    "abs", np.absolute, 1, NUMBERS, doc="|x|; the least integer wraps to itself; of complex x the real modulus.",
    result=real_part, jvp=_abs_jvp,
)
sign = elementwise("sign", np.sign, 1, REAL, doc="-1, 0 or 1; NaN stays.", jvp=no_tangent)
copysign: Op = elementwise(
    "copysign", np.copysign, 2, FLOATS, doc="|x| with the sign bit of y.",
    jvp=lambda primals, tangents, out: along(
        tangents[:1], lambda t: mul(_abs_jvp(primals[:1], (t,), out), copysign(full_like(out, 1), primals[1]))),
)


def _nextafter(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of equal numbers the second: before NumPy 2.5 of f16 the first, which shows where they are zeros."""
    found: np.ndarray = np.where(x == y, y, np.nextafter(x, y))
    return found


nextafter = elementwise(
    "nextafter", _nextafter, 2, FLOATS, doc="The next number after x toward y, at x's dtype.", steps=True,
    jvp=lambda primals, tangents, out: tangents[0],
)


# ---- parts of complex numbers ---------------------------------------------------------------------
def _complex_type(part: np.dtype) -> np.dtype:
    return C64 if part == F32 else C128


def _complex_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty(np.shape(x), _complex_type(x.dtype))
    out.real, out.imag = x, y
    return out


# Transposes are bilinear, without conjugates: re(sum(ct * f(d))) == re(sum(transpose(ct) * d)).
real = elementwise(
    "real", np.real, 1, COMPLEX, doc="The real part.", result=real_part,
    linear=(0,), jointly=True, transpose={0: lambda ct, x: convert(ct, dtype=x.dtype)},
)
imag = elementwise(
    "imag", np.imag, 1, COMPLEX, doc="The imaginary part.", result=real_part,
    linear=(0,), jointly=True,
    transpose={0: lambda ct, x: _times_minus_i(convert(ct, dtype=x.dtype))},
)
conj: Op = elementwise(
    "conj", np.conjugate, 1, COMPLEX, doc="The complex conjugate.",
    linear=(0,), jointly=True, transpose={0: lambda ct, x: conj(ct)},
)


complex: Op = elementwise(
    "complex", _complex_numpy, 2, (F32, F64), doc="x + iy.", result=_complex_type,
    linear=(0, 1), jointly=True, transpose={0: lambda ct, x, y: real(ct), 1: lambda ct, x, y: neg(imag(ct))},
)


def _times_minus_i(x: Ref) -> Ref:
    return mul(x, full_like(x, -1j))
