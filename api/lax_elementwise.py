"""Functions of single elements, with JAX's names and meaning: `loopwright.lax` has them.

Guarantees: unlike NumPy's functions they do not promote. Arrays must have one dtype, else DTypeError, and a Python number
takes it; shapes must have one rank and equal sizes or 1 on each axis, else ShapeError, and a number goes with any. NaN,
infinities, ties and slopes are JAX's; integers divided by 0, which XLA leaves open, give 0.
"""
from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.arrays import Array, entered, quiet, stopped, xp
from loopwright.custom import custom_jvp
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.op import Op
from loopwright.ir.ops import arithmetic, special, transcendental
from loopwright.ir.ops.elementwise import BITS, INEXACT, NUMBERS, ORDERED, REAL, Dtypes
from loopwright.ir.ops.selection import bitcast, convert
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, COMPLEX, DTYPES, F32, F64, FLOATS, I64, INTEGERS, SHORT, is_integer
from loopwright.scipy.special import polygamma as _polygamma
from loopwright.tracer.promotion import as_dtype, as_operand, kind_of, result_kind
from loopwright.tracer.tracer import Tracer

__all__ = [
    "RoundingMethod", "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e",
    "betainc", "bitcast_convert_type", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp",
    "clz", "complex", "conj", "convert_element_type", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "floor", "ge", "gt", "igamma", "igamma_grad_a", "igammac", "imag", "integer_pow", "is_finite", "le",
    "lgamma", "log", "log1p", "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter", "polygamma",
    "population_count", "pow", "random_gamma_grad", "real", "reciprocal", "reduce_precision", "rem", "round", "rsqrt", "select",
    "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub",
    "tan", "tanh", "zeta",
]

# ---- operands of one dtype --------------------------------------------------------------------------
def agreed(name: str, accepts: Dtypes, *xs: Any) -> list[Array]:
    """The operands as arrays of one dtype among `accepts`, and of shapes that go together."""
    values = [as_operand(x) for x in xs]
    kinds = [kind_of(x) for x in values]
    known = {k for k in kinds if not isinstance(k, type)}
    dtype = result_kind(*kinds)
    if len(known) > 1 or (known and dtype not in known):
        found = ", ".join(k.__name__ if isinstance(k, type) else str(k) for k in kinds)
        raise DTypeError(f"{user_source()}: lax.{name} takes operands of one dtype, got {found}. Convert one with "
                         f"lax.convert_element_type, or use np's function, which promotes.")
    if dtype not in accepts:
        raise DTypeError(f"{user_source()}: lax.{name} is not defined for {dtype}; it takes "
                         f"{', '.join(SHORT[d] for d in accepts)}.")
    arrays = [x.astype(dtype) if isinstance(x, Tracer) else xp.asarray(x, dtype=dtype) for x in values]
    check_ranks(name, arrays)
    return arrays


def check_ranks(name: str, arrays: list[Array]) -> None:
    """ShapeError unless all ranks but 0 are one: what sizes must be is broadcasting's to say."""
    if len({x.ndim for x in arrays if x.ndim}) > 1:
        found = ", ".join(str(x.shape) for x in arrays)
        raise ShapeError(f"{user_source()}: lax.{name} takes operands of one shape, got {found}. "
                         f"Add axes with lax.broadcast_in_dim, or use np's function, which broadcasts.")


def _of_op(op: Op) -> Callable[..., Array]:
    return lambda *xs: entered(op, *xs)


# ---- formulas ---------------------------------------------------------------------------------------
def _logistic(x: Array) -> Array:
    if x.dtype in COMPLEX:
        return 1 / (1 + xp.exp(-x))
    z = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1 / (1 + z), z / (1 + z))


def _div(x: Array, y: Array) -> Array:
    """Integers toward zero."""
    return (x - xp.fmod(x, y)) // y if is_integer(x.dtype) else x / y


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"u{dtype.itemsize}")


def _shift_right_logical(x: Array, y: Array) -> Array:
    unsigned = _unsigned(x.dtype)
    return (x.astype(unsigned) >> y.astype(unsigned)).astype(x.dtype)


def _shift_right_arithmetic(x: Array, y: Array) -> Array:
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return (x.astype(signed) >> y.astype(signed)).astype(x.dtype)


def _population_count(x: Array) -> Array:
    """Sums of neighbouring bits, then of pairs, and so on (Warren, Hacker's Delight, 5-1)."""
    dtype, bits = x.dtype, 8 * x.dtype.itemsize
    x = x.astype(_unsigned(dtype))
    width = 1
    while width < bits:
        mask = x.dtype.type(sum(((1 << width) - 1) << k for k in range(0, bits, 2 * width)))
        x = (x & mask) + ((x >> x.dtype.type(width)) & mask)
        width *= 2
    return x.astype(dtype)


def _clz(x: Array) -> Array:
    """The zeros that are left when each bit below the first is set."""
    dtype, bits = x.dtype, 8 * x.dtype.itemsize
    x = x.astype(_unsigned(dtype))
    width = 1
    while width < bits:
        x = x | (x >> x.dtype.type(width))
        width *= 2
    return _population_count(~x).astype(dtype)


def _mulhi(x: Array, y: Array) -> Array:
    dtype, bits = x.dtype, 8 * x.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{dtype.kind}8")
        return ((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(dtype)
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    high = a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half)
    if dtype.kind == "u":
        return high
    return high.astype(dtype) - xp.where(x < 0, y, dtype.type(0)) - xp.where(y < 0, x, dtype.type(0))


def _logical(ufunc: Any, of_bools: Any) -> Callable[..., Array]:
    return lambda *xs: (of_bools if xs[0].dtype == BOOL else ufunc)(*xs)


# ---- the table: a name, the dtypes it takes, its function of arrays of one dtype, and what it is --------
def _named(call: Callable[..., Array], name: str, doc: str) -> None:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc


def _unary(name: str, accepts: Dtypes, rule: Callable[[Array], Array], doc: str) -> Callable[[Any], Array]:
    @quiet
    def call(x: Any) -> Array:
        return rule(*agreed(name, accepts, x))
    _named(call, name, doc)
    return call


def _binary(name: str, accepts: Dtypes, rule: Callable[[Array, Array], Array], doc: str) -> Callable[[Any, Any], Array]:
    @quiet
    def call(x: Any, y: Any) -> Array:
        return rule(*agreed(name, accepts, x, y))
    _named(call, name, doc)
    return call


# numbers
neg = _unary("neg", NUMBERS, xp.negative, "-x")
abs = _unary("abs", NUMBERS, xp.absolute, "|x|; of complex x the modulus.")
sign = _unary("sign", NUMBERS, xp.sign, "-1, 0 or 1; of complex x, x / |x|.")
square = _unary("square", NUMBERS, xp.square, "x x")
floor = _unary("floor", FLOATS, xp.floor, "The greatest integer <= x.")
ceil = _unary("ceil", FLOATS, xp.ceil, "The least integer >= x.")
is_finite = _unary("is_finite", FLOATS, xp.isfinite, "Whether x is neither NaN nor infinite.")
add = _binary("add", NUMBERS, xp.add, "x + y")
sub = _binary("sub", NUMBERS, xp.subtract, "x - y")
mul = _binary("mul", NUMBERS, xp.multiply, "x y")
div = _binary("div", NUMBERS, _div, "x / y; of integers the quotient toward zero.")
rem = _binary("rem", REAL, xp.fmod, "x - y trunc(x / y): the sign is x's.")
max = _binary("max", ORDERED, xp.maximum, "The greater; NaN if either is. Ties share the derivative.")
min = _binary("min", ORDERED, xp.minimum, "The lesser; NaN if either is. Ties share the derivative.")
nextafter = _binary("nextafter", FLOATS, xp.nextafter, "The next number after the first toward the second.")
# comparisons
eq = _binary("eq", DTYPES, xp.equal, "x == y")
ne = _binary("ne", DTYPES, xp.not_equal, "x != y")
lt = _binary("lt", ORDERED, xp.less, "x < y")
le = _binary("le", ORDERED, xp.less_equal, "x <= y")
gt = _binary("gt", ORDERED, xp.greater, "x > y")
ge = _binary("ge", ORDERED, xp.greater_equal, "x >= y")
# exponentials and angles
exp = _unary("exp", INEXACT, xp.exp, "e to the x.")
exp2 = _unary("exp2", INEXACT, xp.exp2, "2 to the x.")
expm1 = _unary("expm1", INEXACT, xp.expm1, "e to the x, minus 1, exact near 0.")
log = _unary("log", INEXACT, xp.log, "The natural logarithm.")
log1p = _unary("log1p", INEXACT, xp.log1p, "log(1 + x), exact near 0.")
sqrt = _unary("sqrt", INEXACT, xp.sqrt, "The square root.")
sin = _unary("sin", INEXACT, xp.sin, "The sine.")
cos = _unary("cos", INEXACT, xp.cos, "The cosine.")
tan = _unary("tan", INEXACT, xp.tan, "The tangent.")
sinh = _unary("sinh", INEXACT, xp.sinh, "The hyperbolic sine.")
cosh = _unary("cosh", INEXACT, xp.cosh, "The hyperbolic cosine.")
tanh = _unary("tanh", INEXACT, xp.tanh, "The hyperbolic tangent.")
asin = _unary("asin", INEXACT, xp.arcsin, "The inverse of sin.")
acos = _unary("acos", INEXACT, xp.arccos, "The inverse of cos.")
atan = _unary("atan", INEXACT, xp.arctan, "The inverse of tan.")
asinh = _unary("asinh", INEXACT, xp.arcsinh, "The inverse of sinh.")
acosh = _unary("acosh", INEXACT, xp.arccosh, "The inverse of cosh.")
atanh = _unary("atanh", INEXACT, xp.arctanh, "The inverse of tanh.")
atan2 = _binary("atan2", FLOATS, xp.arctan2, "The angle of the point (y, x), the first operand being y.")
rsqrt = _unary("rsqrt", INEXACT, lambda x: 1 / xp.sqrt(x), "1 / sqrt(x)")
reciprocal = _unary("reciprocal", INEXACT, lambda x: 1 / x, "1 / x")
cbrt = _unary("cbrt", FLOATS, xp.cbrt, "The real cube root.")
logistic = _unary("logistic", INEXACT, _logistic, "1 / (1 + exp(-x)), with full precision in both tails.")
# special functions
erf = _unary("erf", FLOATS, _of_op(transcendental.erf), "The error function.")
erfc = _unary("erfc", FLOATS, _of_op(special.erfc), "1 - erf(x), with full precision where that is small.")
erf_inv = _unary("erf_inv", FLOATS, _of_op(special.erfinv), "The inverse of erf.")
lgamma = _unary("lgamma", FLOATS, _of_op(special.lgamma), "log |gamma(x)|")
digamma = _unary("digamma", FLOATS, _of_op(special.digamma), "The derivative of lgamma.")
igamma = _binary("igamma", FLOATS, _of_op(special.gammainc), "The lower incomplete gamma function, over gamma(a).")
igammac = _binary("igammac", FLOATS, _of_op(special.gammaincc), "The upper incomplete gamma function, over gamma(a).")
igamma_grad_a = _binary("igamma_grad_a", FLOATS, _of_op(special.gammainc_slope), "The derivative of igamma in a.")
zeta = _binary("zeta", FLOATS, _of_op(special.zeta), "Hurwitz's zeta function of x > 1 and q > 0.")
bessel_i0e = _unary("bessel_i0e", FLOATS, _of_op(special.i0e), "exp(-|x|) I0(x)")
bessel_i1e = _unary("bessel_i1e", FLOATS, _of_op(special.i1e), "exp(-|x|) I1(x)")
# bits
bitwise_not = _unary("bitwise_not", BITS, xp.invert, "Every bit flipped; on bool, not.")
bitwise_and = _binary("bitwise_and", BITS, xp.bitwise_and, "Bits set in both.")
bitwise_or = _binary("bitwise_or", BITS, xp.bitwise_or, "Bits set in either.")
bitwise_xor = _binary("bitwise_xor", BITS, xp.bitwise_xor, "Bits set in one alone.")
shift_left = _binary("shift_left", INTEGERS, xp.left_shift, "x with its bits moved up y places; 0 past the width.")
shift_right_logical = _binary(
    "shift_right_logical", INTEGERS, _shift_right_logical, "x with its bits moved down y places, and zeros above them.")
shift_right_arithmetic = _binary(
    "shift_right_arithmetic", INTEGERS, _shift_right_arithmetic,
    "x with its bits moved down y places, and copies of the highest above them.")
population_count = _unary("population_count", INTEGERS, _population_count, "The number of bits set.")
clz = _unary("clz", INTEGERS, _clz, "The number of zero bits above the highest that is set.")
mulhi = _binary("mulhi", INTEGERS, _mulhi, "The upper half of the bits of x y.")
# complex numbers
complex = _binary("complex", (F32, F64), _of_op(arithmetic.complex), "x + iy.")
real = _unary("real", COMPLEX, xp.real, "The real part.")
imag = _unary("imag", COMPLEX, xp.imag, "The imaginary part.")


@quiet
def betainc(a: Any, b: Any, x: Any) -> Array:
    """The incomplete beta function of a, b and x, over beta(a, b)."""
    return entered(special.betainc, *agreed("betainc", FLOATS, a, b, x))


@quiet
def polygamma(m: Any, x: Any) -> Array:
    """The m-th derivative of digamma, m being whole numbers at the dtype of x."""
    m, x = agreed("polygamma", FLOATS, m, x)
    return _polygamma(stopped(m).astype(I64), x)


@quiet
def random_gamma_grad(a: Any, x: Any) -> Array:
    """The derivative in a of a gamma variate x of shape parameter a, whose quantile stays."""
    a, x = agreed("random_gamma_grad", FLOATS, a, x)
    return -igamma_grad_a(a, x) * xp.exp(x + lgamma(a) - (a - 1) * xp.log(x))


# ---- of their own form --------------------------------------------------------------------------------
class RoundingMethod(enum.Enum):
    """Where round takes halves."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


@quiet
def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest integer; halves go away from 0, or to the even one.

    >>> round(np.array([0.5, 2.5, -2.5]))
    array([ 1.,  3., -3.])
    """
    x, = agreed("round", FLOATS, x)
    if RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN:
        return xp.rint(x)
    whole = xp.trunc(x)
    return xp.where(xp.abs(x - whole) >= 0.5, whole + xp.sign(x), whole)


@quiet
def pow(x: Any, y: Any) -> Array:
    """x to the y, for floating or complex x; y of the same dtype, or integers."""
    x, = agreed("pow", INEXACT, x)
    if not isinstance(y, (int, float)) and is_integer(as_operand(y).dtype):
        y = (y if isinstance(y, Tracer) else np.asarray(y)).astype(x.dtype)
    return xp.power(*agreed("pow", INEXACT, x, y))


@quiet
def integer_pow(x: Any, y: int) -> Array:
    """x to a Python integer, by squaring. Integers take no negative one.

    >>> integer_pow(np.array([2.0, 3.0]), -2)
    array([0.25      , 0.11111111])
    """
    x, = agreed("integer_pow", NUMBERS, x)
    count = operator.index(y)
    if count < 0 and is_integer(x.dtype):
        raise DTypeError(f"{user_source()}: lax.integer_pow: integers cannot be raised to the power {count}.")
    out, square_, left = None, x, count if count >= 0 else -count
    while left:
        if left % 2:
            out = square_ if out is None else out * square_
        left //= 2
        square_ = square_ * square_ if left else square_
    out = xp.ones_like(x) if out is None else out
    return 1 / out if count < 0 else out


@quiet
def clamp(min: Any, x: Any, max: Any) -> Array:
    """min(max(x, min), max); the bounds are numbers or have the shape of x. The derivative at a bound is 0.

    >>> clamp(0.0, np.array([-1.0, 0.5, 2.0]), 1.0)
    array([0. , 0.5, 1. ])
    """
    low, x, high = agreed("clamp", ORDERED, min, x, max)
    for bound in (low, high):
        if bound.ndim and bound.shape != x.shape:
            raise ShapeError(f"{user_source()}: lax.clamp: bounds must be numbers or have the shape {x.shape} of x, got "
                             f"{bound.shape}.")
    outside = xp.where(x > high, high, xp.where(x < low, xp.minimum(low, high), stopped(x)))
    return xp.where((low < x) & (x < high), x, outside)


def _cases(name: str, which: Any, cases: tuple[Any, ...]) -> tuple[Array, list[Array]]:
    """The chooser and the cases, all of one shape and dtype."""
    arrays = agreed(name, DTYPES, *cases)
    which = which if isinstance(which, Tracer) else xp.asarray(which)
    if any(x.shape != arrays[0].shape for x in arrays) or (which.ndim and which.shape != arrays[0].shape):
        raise ShapeError(f"{user_source()}: lax.{name}: the cases must have one shape, and the chooser that shape or none, got "
                         f"{', '.join(str(x.shape) for x in arrays)} and {which.shape}. np.where broadcasts.")
    return which, arrays


@quiet
def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """on_true where pred holds, else on_false, which have one shape and dtype; pred: bools of that shape, or one."""
    which, (a, b) = _cases("select", pred, (on_true, on_false))
    if which.dtype != BOOL:
        raise DTypeError(f"{user_source()}: lax.select: the predicate must be bool, got {which.dtype}.")
    return xp.where(which, a, b)


@quiet
def select_n(which: Any, *cases: Any) -> Array:
    """cases[which], element by element; the cases have one shape and dtype. which: bools for two cases or fewer, or integers,
    of that shape or one; numbers outside stand for the first or last case.

    >>> select_n(np.array([0, 2, 1]), np.zeros(3), np.ones(3), np.full(3, 2.0))
    array([0., 2., 1.])
    """
    if not cases:
        raise TypeError(f"{user_source()}: lax.select_n takes at least one case.")
    which, arrays = _cases("select_n", which, cases)
    if which.dtype == BOOL and len(arrays) <= 2:
        return xp.where(which, arrays[-1], arrays[0])
    if not is_integer(which.dtype):
        raise DTypeError(f"{user_source()}: lax.select_n: `which` must be bool for two cases, or integers, got {which.dtype} "
                         f"for {len(arrays)}.")
    out = arrays[0]
    for k, case in enumerate(arrays[1:], 1):
        out = xp.where(which >= k, case, out)
    return out


# ---- dtypes -------------------------------------------------------------------------------------------
def conj(x: Any) -> Array:
    """The complex conjugate, complex for real x, too."""
    x, = agreed("conj", (F32, F64, *COMPLEX), x)
    return xp.conjugate(x if x.dtype in COMPLEX else x.astype(np.complex64 if x.dtype == F32 else np.complex128))


@quiet
def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """The numbers at another dtype: floats toward zero into integers, the real part of complex numbers into real ones."""
    dtype, x = as_dtype(new_dtype), as_operand(operand)
    if isinstance(x, Tracer):
        return x.astype(dtype)
    return np.asarray(convert.numpy(np.asarray(x), dtype=dtype))[()]


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The same bytes at another dtype, of integers and real floats. One that is k times narrower adds a last axis of size k;
    one that is k times wider takes a last axis of size k away.

    >>> bitcast_convert_type(np.float32(1.0), np.uint32)
    np.uint32(1065353216)
    """
    x, dtype = as_operand(operand), as_dtype(new_dtype)
    x = x if isinstance(x, Tracer) else np.asarray(x)
    if x.dtype not in REAL or dtype not in REAL:
        raise DTypeError(f"{user_source()}: lax.bitcast_convert_type takes integers and real floats, got {x.dtype} to {dtype}.")
    size, new = x.dtype.itemsize, dtype.itemsize
    if size == new:
        return entered(bitcast, x, dtype=dtype)
    whole, part = (np.dtype(f"u{n}") for n in ((size, new) if size > new else (new, size)))
    shifts = np.arange(whole.itemsize // part.itemsize).astype(whole) * whole.type(8 * part.itemsize)
    if size > new:
        return entered(bitcast, (entered(bitcast, x, dtype=whole)[..., None] >> shifts).astype(part), dtype=dtype)
    if not x.ndim or x.shape[-1] != len(shifts):
        raise ShapeError(f"{user_source()}: lax.bitcast_convert_type of {x.dtype} to {dtype} needs a last axis of size "
                         f"{len(shifts)}, got shape {x.shape}.")
    bits = entered(bitcast, x, dtype=part).astype(whole) << shifts
    return entered(bitcast, xp.sum(bits, axis=-1, dtype=whole), dtype=dtype)


@quiet
def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """Floats rounded to the nearest that have so many bits in exponent and mantissa, ties to even; those too large become
    infinite, those too small 0. Derivatives are those of x, and not rounded.

    >>> reduce_precision(np.array([1.2345678, 1e9]), 5, 10)
    array([1.234375,      inf])
    """
    x, = agreed("reduce_precision", (F32, F64), operand)
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ValueError(f"{user_source()}: lax.reduce_precision takes exponent_bits of at least 1 and mantissa_bits of at "
                         f"least 0, got {exponent_bits} and {mantissa_bits}.")
    return _rounded(x, exponent_bits, mantissa_bits)


@functools.partial(custom_jvp, nondiff_argnums=(1, 2))
def _rounded(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    own, out = np.finfo(x.dtype), x
    if mantissa_bits < own.nmant:
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        bits, drop = entered(bitcast, x, dtype=unsigned), own.nmant - mantissa_bits
        odd = (bits >> unsigned.type(drop)) & unsigned.type(1)
        kept = (bits + (unsigned.type((1 << (drop - 1)) - 1) + odd)) & unsigned.type((1 << 8 * unsigned.itemsize) - (1 << drop))
        out = xp.where(xp.isfinite(x), entered(bitcast, kept, dtype=x.dtype), x)
    if exponent_bits < own.nexp:
        bias = (1 << (exponent_bits - 1)) - 1
        most, least = math.ldexp(2.0 - 2.0 ** -mantissa_bits, bias), math.ldexp(1.0, 1 - bias)
        out = xp.where(xp.abs(out) > most, xp.copysign(x.dtype.type(math.inf), out), out)
        out = xp.where(xp.abs(out) < least, xp.copysign(x.dtype.type(0), out), out)
        out = xp.where(xp.isnan(x), x, out)
    return out


@_rounded.defjvp
def _rounded_jvp(exponent_bits: int, mantissa_bits: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _rounded(*primals, exponent_bits, mantissa_bits), tangents[0]
