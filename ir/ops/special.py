"""Special functions: error functions, gamma functions and Bessel functions.

Guarantees: derivatives of any order in every operand that has a formula; asked for another one (the order of `zeta`) the rule
raises GradientError.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from loopwright.ir import special_functions as f
from loopwright.ir.builder import Ref
from loopwright.ir.errors import GradientError
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import Tangents, add, along, div, mul, neg, rint, sign, sub
from loopwright.ir.ops.comparison import eq, lt
from loopwright.ir.ops.construct import full_like, zeros_like
from loopwright.ir.ops.elementwise import Draw, between, elementwise
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.transcendental import exp, log, log1p, sin
from loopwright.ir.source import user_source
from loopwright.ir.special_functions import Function, on_arrays
from loopwright.ir.types import BOOL, FLOATS


def _special(function: Function, derivative: Callable[[Ref, Ref], Ref], *, doc: str, draw: Draw | None = None) -> Op:
    """A function of one number, with its derivative from (x, out)."""
    return elementwise(function.__name__, on_arrays(function), 1, FLOATS, doc=doc, draw=draw,
                       jvp=lambda primals, tangents, out: mul(tangents[0], derivative(primals[0], out)))


def _gaussian(x: Ref, scale: float, factor: float) -> Ref:
    """scale e^(factor x^2)"""
    return mul(exp(mul(mul(x, x), full_like(x, factor))), full_like(x, scale))


# ---- error functions --------------------------------------------------------------------------------
erfc = _special(f.erfc, lambda x, out: _gaussian(x, -2 / math.sqrt(math.pi), -1),
                doc="1 - erf(x), with full precision where that is small.")
erfcx: Op = _special(f.erfcx, lambda x, out: sub(mul(mul(x, full_like(x, 2)), out), full_like(x, 2 / math.sqrt(math.pi))),
                     doc="e^(x^2) erfc(x), which neither overflows nor vanishes early for x > 0.")
ndtri = _special(f.ndtri, lambda x, out: _gaussian(out, math.sqrt(2 * math.pi), 0.5), draw=between(0.05, 0.95),
                 doc="The normal quantile: where the normal distribution function is x; infinite at 0 and 1, NaN beyond.")
erfinv = _special(f.erfinv, lambda x, out: _gaussian(out, math.sqrt(math.pi) / 2, 1), draw=between(-0.9, 0.9),
                  doc="The inverse of erf; infinite at -1 and 1, NaN beyond.")


# ---- products with logarithms -----------------------------------------------------------------------
def _with_logarithm(name: str, function: Callable[..., Ref], numpy: np.ufunc, pole: int, doc: str) -> Op:
    """x function(y), 0 where x is 0 and y no NaN, with the derivatives that the product has elsewhere."""
    def value(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * numpy(y)))

    def loop(context: LoopContext, index: tuple[Expr, ...]) -> Expr:
        x, y, dtype = context.load(0, index), context.load(1, index), context.result.dtype
        zero = Literal(0.0, dtype)
        is_zero = Apply("bitwise_and", (Apply("eq", (x, zero), BOOL), Apply("eq", (y, y), BOOL)), BOOL)
        return Apply("select", (is_zero, zero, Apply("mul", (x, Apply(name_of, (y,), dtype)), dtype)), dtype)

    def jvp(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
        x, y = primals
        return along(tangents, lambda t: mul(t, function(y)), lambda t: mul(t, div(x, add(y, full_like(y, pole)))))

    name_of = numpy.__name__
    return replace(elementwise(name, value, 2, FLOATS, doc=doc, draw={1: between(0.2, 4)}, jvp=jvp), loop=loop)


xlogy: Op = _with_logarithm("xlogy", log, np.log, 0, "x log(y); 0 where x is 0.")
xlog1py: Op = _with_logarithm("xlog1py", log1p, np.log1p, 1, "x log(1 + y); 0 where x is 0.")


def _entr_loop(context: LoopContext, index: tuple[Expr, ...]) -> Expr:
    x, dtype = context.load(0, index), context.result.dtype
    zero = Literal(0.0, dtype)
    value = Apply("neg", (Apply("mul", (x, Apply("log", (x,), dtype)), dtype),), dtype)
    value = Apply("select", (Apply("eq", (x, zero), BOOL), zero, value), dtype)
    return Apply("select", (Apply("lt", (x, zero), BOOL), Literal(-math.inf, dtype), value), dtype)


def _entr_numpy(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        value = np.where(x == 0, x.dtype.type(0), -(x * np.log(x)))
        return np.asarray(np.where(x < 0, x.dtype.type(-math.inf), value))


entr = replace(elementwise(
    "entr", _entr_numpy, 1, FLOATS, doc="-x log(x); 0 at 0, -inf below.", draw=between(0.2, 4),
    jvp=lambda primals, tangents, out: mul(tangents[0], neg(add(log(primals[0]), full_like(out, 1))))), loop=_entr_loop)

# ---- gamma functions --------------------------------------------------------------------------------
lgamma = _special(f.lgamma, lambda x, out: digamma(x), draw=between(0.2, 12), doc="log |gamma(x)|; infinite at the poles.")


def _trigamma(x: Ref, out: Ref) -> Ref:
    """zeta(2, x); below 0 from its reflection, trigamma(x) + trigamma(1 - x) = (pi / sin(pi x))^2."""
    is_negative = lt(x, zeros_like(x))
    value = zeta(full_like(x, 2), select(is_negative, sub(full_like(x, 1), x), x))
    off = select(is_negative, sub(x, rint(x)), full_like(x, 0.5))
    sine = div(full_like(x, math.pi), sin(mul(off, full_like(x, math.pi))))
    return select(is_negative, sub(mul(sine, sine), value), value)


digamma: Op = _special(f.digamma, _trigamma, draw=between(0.2, 12),
                       doc="The derivative of lgamma; NaN at 0, -1, -2 and so on.")


def _zeta_jvp(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
    s, q = primals
    if tangents[0] is not None:
        raise GradientError(f"{user_source()}: zeta(s, q) has no derivative in s here: stop the gradient of s.")
    return None if tangents[1] is None else mul(tangents[1], neg(mul(s, zeta(add(s, full_like(s, 1)), q))))


zeta: Op = elementwise(
    "zeta", on_arrays(f.zeta), 2, FLOATS, draw={0: between(1.5, 6), 1: between(0.3, 9)}, jvp=_zeta_jvp,
    doc="Hurwitz's zeta function, the sum of (q + k)^-s over k >= 0, for s > 1 and q > 0.",
)


# ---- incomplete functions ---------------------------------------------------------------------------
_incomplete = {0: between(0.3, 9), 1: between(0.3, 12)}


def _gamma_density(a: Ref, x: Ref) -> Ref:
    """x^(a - 1) e^-x / gamma(a)"""
    return exp(sub(sub(xlogy(sub(a, full_like(a, 1)), x), x), lgamma(a)))


def _incomplete_gamma(function: Function, sense: Callable[[Ref], Ref], doc: str) -> Op:
    def jvp(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
        return along(tangents, lambda t: mul(t, sense(gammainc_slope(*primals))),
                     lambda t: mul(t, sense(_gamma_density(*primals))))
    return elementwise(function.__name__, on_arrays(function), 2, FLOATS, draw=_incomplete, doc=doc, jvp=jvp)


gammainc = _incomplete_gamma(f.gammainc, lambda x: x, "The integral of t^(a - 1) e^-t from 0 to x, over gamma(a).")
gammaincc = _incomplete_gamma(f.gammaincc, neg, "The integral of t^(a - 1) e^-t from x to infinity, over gamma(a).")


def _gammainc_slope_jvp(primals: tuple[Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
    """In x the derivative of the density in a: density (log(x) - digamma(a))."""
    a, x = primals
    if tangents[0] is not None:
        raise GradientError(f"{user_source()}: the incomplete gamma function has no second derivative in its order here.")
    return None if tangents[1] is None else mul(tangents[1], mul(_gamma_density(a, x), sub(log(x), digamma(a))))


gammainc_slope: Op = elementwise(
    "gammainc_slope", on_arrays(f.gammainc_slope), 2, FLOATS, draw=_incomplete, jvp=_gammainc_slope_jvp,
    doc="The derivative of gammainc(a, x) in a.",
)


def _betainc_jvp(primals: tuple[Ref, Ref, Ref], tangents: Tangents, out: Ref) -> Ref | None:
    a, b, x = primals
    if tangents[0] is not None or tangents[1] is not None:
        raise GradientError(f"{user_source()}: betainc(a, b, x) has a derivative in x only: stop the gradients of a and b.")
    if tangents[2] is None:
        return None
    one = full_like(a, 1)
    beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
    return mul(tangents[2], exp(sub(add(xlogy(sub(a, one), x), xlog1py(sub(b, one), neg(x))), beta)))


betainc = elementwise(
    "betainc", on_arrays(f.betainc), 3, FLOATS, draw={0: between(0.3, 6), 1: between(0.3, 6), 2: between(0.05, 0.95)},
    jvp=_betainc_jvp, doc="The integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x, over beta(a, b).",
)

# ---- Bessel functions -------------------------------------------------------------------------------
i0e = _special(f.i0e, lambda x, out: sub(i1e(x), mul(sign(x), out)), doc="e^-|x| I0(x), I0 the modified Bessel function.")


def _i1e_derivative(x: Ref, out: Ref) -> Ref:
    """i0e - i1e (sign(x) + 1 / x); 1/2 at 0."""
    is_zero = eq(x, zeros_like(x))
    safe = select(is_zero, full_like(x, 1), x)
    slope = sub(i0e(safe), mul(out, add(sign(safe), div(full_like(x, 1), safe))))
    return select(is_zero, full_like(x, 0.5), slope)


i1e: Op = _special(f.i1e, _i1e_derivative, doc="e^-|x| I1(x), I1 the modified Bessel function.")
