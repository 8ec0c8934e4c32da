"""Elementary functions of complex numbers on pairs of real ones.

Guarantees: the branches are NumPy's, told apart by the signs of zeros on the cuts; within a few units in the last place of
|result|, without overflow on the way where the result has none. Limits: powers whose exponent is no whole number below 100
go through exp(y log x), and lose as many bits as y log x has before its point; `arccos` and `arccosh` of 1 with a subnormal
imaginary part lose one part of the result. At infinities and NaN the results are those of C99's annex G where they are
definite; which part of an indefinite result is NaN, and the signs of zeros beside NaN, may differ from NumPy's.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loopwright.ir.ops import arithmetic, comparison, transcendental
from loopwright.ir.ops.bitwise import bitwise_and, right_shift
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.construct import full
from loopwright.ir.types import F32, F64, I64
from loopwright.lower.pairs import Pair, Part, call, pair_where, where

LN2 = math.log(2)
MOST_POWER = 100  # whole exponents below it are multiplied out, as NumPy does


# ---- real building blocks -------------------------------------------------------------------------
def _is_single(x: Part) -> bool:
    return x.dtype == F32


def _hypot(x: Part, y: Part) -> Part:
    return call(transcendental.hypot, x, y)


def _larger(x: Part, y: Part) -> Part:
    return call(arithmetic.max, x, y)


def _copysign(x: Part, y: Part) -> Part:
    return call(arithmetic.copysign, x, y)


def _arctan2(y: Part, x: Part) -> Part:
    return call(transcendental.arctan2, y, x)


def _sqrt(x: Part) -> Part:
    return call(transcendental.sqrt, x)


def _times(a: Part, b: Part) -> Part:
    """a * b, and zero where either is zero, whatever the other."""
    signed_zero = _copysign(a.like(0), a) * _copysign(b.like(1), b)
    return where(a.equals(0) | b.equals(0), signed_zero, a * b)


def _stretched(x: Part) -> tuple[Part, Part]:
    """(x', f) with e^x = e^x' f and no overflow in e^x' where the product with a sine may have none."""
    limit, step = (80.0, 60.0) if _is_single(x) else (700.0, 600.0)
    is_large = abs(x) > limit
    return where(is_large, x - _copysign(x.like(step), x), x), where(is_large, x.like(math.exp(step)), 1)


def _with_ends(z: Pair, w: Pair, indefinite: Part) -> Pair:
    """w = f(z), where f grows with |re z|: infinite with it though the angle be no number, but not so `indefinite`."""
    at_end = call(comparison.isinf, z.re) & call(comparison.isnan, w.re)
    no_angle = indefinite & call(comparison.isfinite, z.re) & ~call(comparison.isfinite, z.im)
    re = where(no_angle, w.re.like(math.nan), where(at_end, w.re.like(math.inf), w.re))
    return Pair(re, where(no_angle, w.im.like(math.nan), w.im))


def _scaling(x: Part, y: Part) -> tuple[Part, Part, int]:
    """(|larger part|, a power of two with an exponent of +-k or 0 that brings hypot(x, y) into the normal numbers, k)."""
    k = 64 if _is_single(x) else 128
    info = np.finfo(x.dtype)
    most = _larger(abs(x), abs(y))
    down = where(most > float(info.max) / 4, most.like(2.0 ** -k), 1)
    return most, where(most < float(info.tiny) * 2.0 ** 30, most.like(2.0 ** k), down), k


def _log_length(x: Part, y: Part) -> Part:
    """log(hypot(x, y)): exact near length 1, and past the ends of the range of hypot."""
    most, scale, k = _scaling(x, y)
    least = call(arithmetic.min, abs(x), abs(y))
    length = _hypot(x * scale, y * scale)
    shift = where(scale < 1, x.like(k * LN2), where(scale > 1, x.like(-k * LN2), 0))
    near_one = (length > 0.5) & (length < 2.0) & scale.equals(1)
    by_excess = call(transcendental.log1p, (most - 1) * (most + 1) + least * least) * 0.5
    return where(near_one, by_excess, call(transcendental.log, length) + shift)


# ---- exponentials and logarithms ------------------------------------------------------------------
def exp(z: Pair) -> Pair:
    """e^re (cos im + i sin im)"""
    x, factor = _stretched(_larger(z.re, z.re.like(0)))
    grown = call(transcendental.exp, where(z.re < 0, z.re, x))
    re = _times(grown, call(transcendental.cos, z.im)) * factor
    im = _times(grown, call(transcendental.sin, z.im)) * factor
    return _with_ends(z, Pair(re, im), z.re.equals(z.re))


def exp2(z: Pair) -> Pair:
    """e^(z log 2)"""
    return exp(z.scaled(LN2))


def expm1(z: Pair) -> Pair:
    """expm1(re) cos(im) - 2 sin(im/2)^2 + i e^re sin(im)"""
    half = call(transcendental.sin, z.im * 0.5)
    re = call(transcendental.expm1, z.re) * call(transcendental.cos, z.im) - half * half * 2
    return Pair(re, where(z.im.equals(0), z.im, call(transcendental.exp, z.re) * call(transcendental.sin, z.im)))


def log(z: Pair) -> Pair:
    """log|z| + i arg z"""
    return Pair(_log_length(z.re, z.im), _arctan2(z.im, z.re))


def log1p(z: Pair) -> Pair:
    """|1 + z|^2 = 1 + re (re + 2) + im^2, exact near 0."""
    is_small = _larger(abs(z.re), abs(z.im)) < 0.5
    near = call(transcendental.log1p, z.re * (z.re + 2) + z.im * z.im) * 0.5
    return Pair(where(is_small, near, _log_length(z.re + 1, z.im)), _arctan2(z.im, z.re + 1))


def sqrt(z: Pair) -> Pair:
    """The root with re >= 0; im has z's sign."""
    most, scale, k = _scaling(z.re, z.im)
    x, y = z.re * scale, z.im * scale
    root = _sqrt((abs(x) + _hypot(x, y)) * 0.5)
    other = abs(y) / (root * 2)
    right = ~call(comparison.signbit, x)
    back = where(scale < 1, x.like(2.0 ** (k // 2)), where(scale > 1, x.like(2.0 ** (-k // 2)), 1))
    re, im = where(right, root, other) * back, _copysign(where(right, other, root), z.im) * back
    infinite, zero = call(comparison.isinf, z.im), most.equals(0)
    return Pair(where(infinite, abs(z.im), where(zero, z.re.like(0), re)), where(infinite | zero, z.im, im))


# ---- powers -----------------------------------------------------------------------------------------
def power(x: Pair, y: Pair) -> Pair:
    """As NumPy: whole exponents below 100 are multiplied out; z^0 is 1; 0 to a power with re > 0 is 0, to another NaN."""
    known = _whole(y)
    if known is not None:
        return _multiplied_out(x, known)
    wide = _general_power(x, y)
    n = call(arithmetic.rint, y.re)
    is_whole = y.im.equals(0) & n.equals(y.re) & (abs(n) < MOST_POWER)
    result = pair_where(is_whole, _whole_power(x, where(is_whole, n, 0)), wide)
    is_zero = x.re.equals(0) & x.im.equals(0)
    at_zero = pair_where(y.re > 0, x.constant(0), x.constant(complex(math.nan, math.nan)))
    result = pair_where(is_zero, at_zero, result)
    return pair_where(y.re.equals(0) & y.im.equals(0), x.constant(1), result)


def _general_power(x: Pair, y: Pair) -> Pair:
    """Singles in double precision, which costs little beside the functions and spares their loss."""
    return exp(y.to(F64) * log(x.to(F64))).to(x.re.dtype)


def _whole(y: Pair) -> int | None:
    """The whole number below 100 that every element of y is, if that is known."""
    re, im = _constant(y.re), _constant(y.im)
    return int(re) if re is not None and im == 0 and re == round(re) and abs(re) < MOST_POWER else None


def _constant(x: Part) -> float | None:
    node = x.ref.builder.producer.get(x.ref.value)
    while node is not None and node.op is broadcast:
        node = x.ref.builder.producer.get(node.inputs[0])
    value = node.attrs["value"] if node is not None and node.op is full else None
    return float(value) if value is not None and math.isfinite(value) else None


def _multiplied_out(x: Pair, n: int) -> Pair:
    """Squares and products."""
    if n == 0:
        return x.constant(1)
    result, square, left = None, x, abs(n)
    while True:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        if not left:
            break
        square = square * square
    assert result is not None
    if n > 0:
        return result
    is_zero = x.re.equals(0) & x.im.equals(0)
    return pair_where(is_zero, x.constant(complex(math.nan, math.nan)), x.constant(1) / result)


def _whole_power(x: Pair, n: Part) -> Pair:
    """Squares and products by the bits of each n."""
    left, square, result = Part(call(arithmetic.abs, n).to(I64).ref), x, x.constant(1)
    for bit in range((MOST_POWER - 1).bit_length()):
        square = square * square if bit else square
        is_set = call(bitwise_and, call(right_shift, left, left.like(bit)), left.like(1)).equals(1)
        result = pair_where(is_set, result * square, result)
    return pair_where(n < 0, x.constant(1) / result, result)


# ---- hyperbolic and trigonometric functions -----------------------------------------------------------
def sinh(z: Pair) -> Pair:
    """sinh(re) cos(im) + i cosh(re) sin(im)"""
    x, factor = _stretched(z.re)
    grown = call(transcendental.sinh, x)
    re = _times(grown, call(transcendental.cos, z.im)) * factor
    im = _times(call(transcendental.cosh, x), call(transcendental.sin, z.im)) * factor
    return _with_ends(z, Pair(re, im), z.re.differs(0))


def cosh(z: Pair) -> Pair:
    """cosh(re) cos(im) + i sinh(re) sin(im)"""
    x, factor = _stretched(z.re)
    grown = call(transcendental.cosh, x)
    re = _times(grown, call(transcendental.cos, z.im)) * factor
    im = _times(call(transcendental.sinh, x), call(transcendental.sin, z.im)) * factor
    return _with_ends(z, Pair(re, im), z.re.differs(0))


def tanh(z: Pair) -> Pair:
    """W. Kahan, "Branch cuts for complex elementary functions", 1987: by the tangent of im, bounded in re."""
    x, y = z.re, z.im
    is_far = abs(x) > (11.0 if _is_single(x) else 22.0)
    t = call(transcendental.tan, y)
    s = call(transcendental.sinh, where(is_far, x.like(0), x))
    beta = t * t + 1
    below = beta * s * s + 1
    cross = call(transcendental.sin, y) * call(transcendental.cos, y)
    far = Pair(_copysign(x.like(1), x), _times(cross, call(transcendental.exp, abs(x) * -2) * 4))
    near = Pair(beta * _sqrt(s * s + 1) * s / below, where(y.equals(0), y, t / below))
    w = pair_where(is_far, far, near)
    no_angle = call(comparison.isfinite, x) & ~call(comparison.isfinite, y)
    re = where(no_angle & x.differs(0), x.like(math.nan), where(x.equals(0), x, w.re))
    return Pair(re, where(no_angle, x.like(math.nan), w.im))


def arcsin(z: Pair) -> Pair:
    """Odd, and conj(z) goes to the conjugate."""
    re, _, im = _arc(z)
    return Pair(_copysign(re, z.re), _copysign(im, z.im))


def arccos(z: Pair) -> Pair:
    """arccos(-z) = pi - arccos(z)"""
    _, re, im = _arc(z)
    return Pair(where(call(comparison.signbit, z.re), math.pi - re, re), -_copysign(im, z.im))


def arccosh(z: Pair) -> Pair:
    """The turn of arccos by a right angle that has re >= 0."""
    w = arccos(z)
    return Pair(abs(w.im), _copysign(w.re, z.im))


def arctanh(z: Pair) -> Pair:
    """log1p(4 x / ((1 - x)^2 + y^2)) / 4 + i arctan2(2 y, (1 - x)(1 + x) - y^2) / 2, in the first quadrant."""
    x, y = abs(z.re), abs(z.im)
    eps = float(np.finfo(x.dtype).eps)
    is_thin = y < eps
    re = call(transcendental.log1p, x * 4 / ((x - 1) * (x - 1) + where(is_thin, y.like(0), y * y))) * 0.25
    re = where(x.equals(1) & is_thin, (LN2 - call(transcendental.log, y)) * 0.5, re)
    im = _arctan2(y * 2, (1 - x) * (x + 1) - where(is_thin, y.like(0), y * y)) * 0.5
    im = where(x.equals(1) & is_thin, y.like(math.pi / 4), im)
    im = where(y.equals(0) & (x <= 1), y, im)
    most, length = _larger(x, y), _hypot(x * 0.5, y * 0.5)
    is_far, is_small = most > 1 / eps, most < math.sqrt(eps) / 4
    far_re = where(call(comparison.isinf, most), x.like(0), x * 0.5 / length / length * 0.5)
    re = where(is_small, x, where(is_far, far_re, re))
    im = where(is_small, y, where(is_far, y.like(math.pi / 2), im))
    return Pair(_copysign(re, z.re), _copysign(im, z.im))


def _arc(z: Pair) -> tuple[Part, Part, Part]:
    """The real parts of arcsin and arccos and the imaginary part of both, in the first quadrant: T. Hull, T. Fairgrieve
    and P. Tang, "Implementing the complex arcsine and arccosine functions using exception handling", 1997."""
    x, y = abs(z.re), abs(z.im)
    eps = float(np.finfo(x.dtype).eps)
    most = _larger(x, y)
    is_far, is_small = most > 2 / math.sqrt(eps), most < math.sqrt(eps) / 4
    right, left = _hypot(x + 1, y), _hypot(x - 1, y)
    a = (right + left) * 0.5
    re_sine, re_cosine = _arc_real(x, y, a, right + (x + 1), left + abs(x - 1))
    im = _arc_imaginary(x, y, a, right + (x + 1), left + abs(x - 1))
    re_sine = where(is_small, x, where(is_far, _arctan2(x, y), re_sine))
    re_cosine = where(is_small, math.pi / 2 - x, where(is_far, _arctan2(y, x), re_cosine))
    im = where(is_small, y, where(is_far, _log_length(x, y) + LN2, im))
    return re_sine, re_cosine, im


def _arc_real(x: Part, y: Part, a: Part, far: Part, near: Part) -> tuple[Part, Part]:
    """By the sine itself where it is well below 1, else by the tangent."""
    sine, is_inside = x / a, x <= 1
    inside = _sqrt((a + x) * 0.5 * (y * y / far + near))
    outside = y * _sqrt(((a + x) / far + (a + x) / near) * 0.5)
    cosine = where(is_inside, inside, outside)
    by_sine = sine <= 0.6417
    return (where(by_sine, call(transcendental.arcsin, sine), _arctan2(x, cosine)),
            where(by_sine, call(transcendental.arccos, sine), _arctan2(cosine, x)))


def _arc_imaginary(x: Part, y: Part, a: Part, far: Part, near: Part) -> Part:
    """log(a + sqrt(a^2 - 1)), by the excess of a over 1 where that is small."""
    excess = (y * y / far + where(x < 1, y * y / near, near)) * 0.5
    by_excess = call(transcendental.log1p, excess + _sqrt(excess * (a + 1)))
    return where(a <= 1.5, by_excess, call(transcendental.log, a + _sqrt(a * a - 1)))


# ---- by symmetry ----------------------------------------------------------------------------------------
def turned(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """-i f(i z): sine from sinh, tangent from tanh."""
    def rule(z: Pair) -> Pair:
        w = function(Pair(-z.im, z.re))
        return Pair(w.im, -w.re)
    return rule


def mirrored(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """f of z with its parts exchanged, exchanged back: i conj f(i conj z) of an odd f."""
    def rule(z: Pair) -> Pair:
        w = function(Pair(z.im, z.re))
        return Pair(w.im, w.re)
    return rule


def at_turned(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """f(i z): cosine from cosh."""
    return lambda z: function(Pair(-z.im, z.re))


def times(function: Callable[[Pair], Pair], factor: float) -> Callable[[Pair], Pair]:
    """f(z) times a number: logarithms to other bases."""
    return lambda z: function(z).scaled(factor)
