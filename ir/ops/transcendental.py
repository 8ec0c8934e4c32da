"""Roots, powers, exponentials, logarithms, trigonometric and hyperbolic functions and their inverses, and erf.

Guarantees: derivatives are holomorphic on complex numbers, with the same branches as the functions; a rule uses the
result wherever that spares keeping an operand, and leaves the tangent multiplied by one known factor.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import Tangents, add, along, div, mul, neg, sub
from loopwright.ir.ops.comparison import eq
from loopwright.ir.ops.construct import full_like, scalar, zeros_like
from loopwright.ir.ops.elementwise import INEXACT, NUMBERS, Draw, between, elementwise
from loopwright.ir.ops.selection import select
from loopwright.ir.types import BOOL, F64, FLOATS, ArrayType, is_integer


def _function(name: str, numpy: Callable[..., object], derivative: Callable[[Ref, Ref], Ref], *, doc: str,
              draw: Draw | None = None, accepts: tuple[np.dtype, ...] = INEXACT) -> Op:
    """A function of one number, with its derivative from (x, out)."""
    return elementwise(name, numpy, 1, accepts, doc=doc, draw=draw,
                       jvp=lambda primals, tangents, out: mul(tangents[0], derivative(primals[0], out)))


def _one(x: Ref) -> Ref:
    return full_like(x, 1)


def _over(x: Ref, scale: float = 1.0) -> Ref:
    """scale / x"""
    return div(full_like(x, scale), x)


_positive, _inside, _above_one = between(0.2, 4), between(-0.9, 0.9), between(1.1, 4)

# ---- roots ----------------------------------------------------------------------------------------
sqrt = _function("sqrt", np.sqrt, lambda x, out: _over(out, 0.5), doc="The square root; NaN below 0.", draw=_positive)
cbrt = _function("cbrt", np.cbrt, lambda x, out: _over(mul(out, out), 1 / 3), doc="The real cube root.", draw=_positive,
                 accepts=FLOATS)
hypot = elementwise(
    "hypot", np.hypot, 2, FLOATS, doc="sqrt(x*x + y*y) without overflow on the way.",
    jvp=lambda primals, tangents, out: along(
        tangents, lambda t: mul(t, _cosine(primals[0], out)), lambda t: mul(t, _cosine(primals[1], out))),
)


def _cosine(side: Ref, length: Ref) -> Ref:
    """side / length; at the origin the sides share, as in JAX."""
    is_origin = eq(length, zeros_like(length))
    return select(is_origin, full_like(length, 0.5), div(side, select(is_origin, _one(length), length)))


# ---- exponentials and logarithms --------------------------------------------------------------------
exp = _function("exp", np.exp, lambda x, out: out, doc="e to the x.")
exp2 = _function("exp2", np.exp2, lambda x, out: mul(out, full_like(out, math.log(2))), doc="2 to the x.")
expm1 = _function("expm1", np.expm1, lambda x, out: add(out, _one(out)), doc="e to the x, minus 1, exact near 0.")
log = _function("log", np.log, lambda x, out: _over(x), doc="The natural logarithm.", draw=_positive)
log2 = _function("log2", np.log2, lambda x, out: _over(x, 1 / math.log(2)), doc="The logarithm to base 2.", draw=_positive)
log10 = _function("log10", np.log10, lambda x, out: _over(x, 1 / math.log(10)), doc="The logarithm to base 10.",
                  draw=_positive)
log1p = _function("log1p", np.log1p, lambda x, out: _over(add(x, _one(x))), doc="log(1 + x), exact near 0.", draw=_positive)


# ---- power ----------------------------------------------------------------------------------------
def _power_jvp(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
    """y x^(y-1) dx + log(x) x^y dy. At y = 0 the exponent, and at x = 0 the logarithm, give way to finite ones, since
    their factor is 0 there."""
    x, y = primals

    def by_base(t: Ref) -> Ref:
        one = _one(y)
        return mul(t, mul(y, power(x, select(eq(y, zeros_like(y)), one, sub(y, one)))))

    def by_exponent(t: Ref) -> Ref:
        return mul(t, mul(log(select(eq(x, zeros_like(x)), _one(x), x)), out))

    return along(tangents, by_base, by_exponent)


def _draw_exponent(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
    return between(0, 4)(rng, t) if is_integer(t.dtype) else between(-3, 3)(rng, t)


def _draw_base(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
    return between(0, 6)(rng, t) if is_integer(t.dtype) else _positive(rng, t)


power = elementwise(
    "power", np.power, 2, NUMBERS, jvp=_power_jvp, draw={0: _draw_base, 1: _draw_exponent},
    doc="x to the y; integers wrap, and a negative exponent of integers is a ValueError.",
)

# ---- trigonometry -----------------------------------------------------------------------------------
sin = _function("sin", np.sin, lambda x, out: cos(x), doc="The sine of x radians.")
cos: Op = _function("cos", np.cos, lambda x, out: neg(sin(x)), doc="The cosine of x radians.")
tan = _function("tan", np.tan, lambda x, out: add(_one(out), mul(out, out)), doc="The tangent of x radians.", draw=_inside)


def _one_minus_square(x: Ref) -> Ref:
    """1 - x^2, without its cancellation near 1."""
    one = _one(x)
    return mul(sub(one, x), add(one, x))


def _square_plus_one(x: Ref) -> Ref:
    return add(mul(x, x), _one(x))


arcsin = _function("arcsin", np.arcsin, lambda x, out: _over(sqrt(_one_minus_square(x))), doc="The inverse sine.", draw=_inside)
arccos = _function("arccos", np.arccos, lambda x, out: _over(sqrt(_one_minus_square(x)), -1), doc="The inverse cosine.",
                   draw=_inside)
arctan = _function("arctan", np.arctan, lambda x, out: _over(_square_plus_one(x)), doc="The inverse tangent.", draw=_inside)


def _arctan2_jvp(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
    y, x = primals
    square = add(mul(x, x), mul(y, y))
    return along(tangents, lambda t: mul(t, div(x, square)), lambda t: mul(t, neg(div(y, square))))


arctan2 = elementwise("arctan2", np.arctan2, 2, FLOATS, doc="The angle of the point (operand 1, operand 0).", jvp=_arctan2_jvp)

# ---- hyperbolic functions -----------------------------------------------------------------------------
sinh = _function("sinh", np.sinh, lambda x, out: cosh(x), doc="The hyperbolic sine.")
cosh: Op = _function("cosh", np.cosh, lambda x, out: sinh(x), doc="The hyperbolic cosine.")
tanh = _function("tanh", np.tanh, lambda x, out: _one_minus_square(out), doc="The hyperbolic tangent.")
arcsinh = _function("arcsinh", np.arcsinh, lambda x, out: _over(sqrt(_square_plus_one(x))), doc="The inverse hyperbolic sine.",
                    draw=_inside)
# The product of two roots has arccosh's branch on complex numbers; the root of the product has not.
arccosh = _function("arccosh", np.arccosh, lambda x, out: _over(mul(sqrt(sub(x, _one(x))), sqrt(add(x, _one(x))))),
                    doc="The inverse hyperbolic cosine; NaN below 1.", draw=_above_one)
arctanh = _function("arctanh", np.arctanh, lambda x, out: _over(_one_minus_square(x)), doc="The inverse hyperbolic tangent.",
                    draw=_inside)


# ---- erf --------------------------------------------------------------------------------------------
_erf_each = np.frompyfunc(math.erf, 1, 1)


def _erf_numpy(x: np.ndarray) -> np.ndarray:
    return np.asarray(_erf_each(np.asarray(x).astype(F64))).astype(x.dtype)


erf = _function(
    "erf", _erf_numpy, lambda x, out: mul(exp(neg(mul(x, x))), full_like(x, 2 / math.sqrt(math.pi))), accepts=FLOATS,
    doc="The error function, 2 / sqrt(pi) times the integral of exp(-t*t) from 0 to x.",
)


# ---- log(exp(x) + exp(y)) -----------------------------------------------------------------------
def _logaddexp(name: str, numpy: Callable[..., object], exponential: Op, scale: float, *, doc: str) -> Op:
    """max + scale * log1p(b ** -|x - y|), where equal numbers, infinities among them, have no difference.

    The derivative is b ** (x - out) dx + b ** (y - out) dy: smooth at x == y, where the parts of the formula are not.
    """
    def loop(context: LoopContext, index: tuple[Expr, ...]) -> Expr:
        dtype = context.result.dtype

        def apply(fn: str, *args: Expr) -> Expr:
            return Apply(fn, args, BOOL if fn == "eq" else dtype)

        x, y = context.load(0, index), context.load(1, index)
        apart = apply("select", apply("eq", x, y), Literal(0.0, dtype), apply("sub", x, y))
        tail = apply("log1p", apply(exponential.name, apply("neg", apply("abs", apart))))
        return apply("add", apply("max", x, y), apply("mul", tail, Literal(scalar(scale, dtype), dtype)))

    def share(x: Ref, out: Ref) -> Ref:
        return exponential(select(eq(x, out), zeros_like(x), sub(x, out)))

    return elementwise(
        name, numpy, 2, FLOATS, doc=doc, loop=loop,
        jvp=lambda primals, tangents, out: along(tangents, *(lambda t, x=x: mul(t, share(x, out)) for x in primals)))


logaddexp = _logaddexp("logaddexp", np.logaddexp, exp, 1.0, doc="log(exp(x) + exp(y)) without overflow.")
logaddexp2 = _logaddexp("logaddexp2", np.logaddexp2, exp2, 1 / math.log(2), doc="log2(2 ** x + 2 ** y) without overflow.")
