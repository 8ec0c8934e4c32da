"""Special functions: error functions, gamma functions and Bessel functions.

Guarantees: derivatives of any order in every operand that has a formula; asked for another one (the order of `zeta`) the rule
raises GradientError.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from loopwright.ir import special_functions as f
from loopwright.ir.builder import Ref
from loopwright.ir.errors import GradientError
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import Tangents, add, div, mul, neg, sign, sub
from loopwright.ir.ops.comparison import eq, lt
from loopwright.ir.ops.construct import full_like, zeros_like
from loopwright.ir.ops.elementwise import Draw, between, elementwise
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.transcendental import exp, sin
from loopwright.ir.source import user_source
from loopwright.ir.special_functions import Function, on_arrays
from loopwright.ir.types import FLOATS


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
erfinv = _special(f.erfinv, lambda x, out: _gaussian(out, math.sqrt(math.pi) / 2, 1), draw=between(-0.9, 0.9),
                  doc="The inverse of erf; infinite at -1 and 1, NaN beyond.")

# ---- gamma functions --------------------------------------------------------------------------------
lgamma = _special(f.lgamma, lambda x, out: digamma(x), draw=between(0.2, 12), doc="log |gamma(x)|; infinite at the poles.")


def _trigamma(x: Ref, out: Ref) -> Ref:
    """zeta(2, x); below 0 from its reflection, trigamma(x) + trigamma(1 - x) = (pi / sin(pi x))^2."""
    is_negative = lt(x, zeros_like(x))
    value = zeta(full_like(x, 2), select(is_negative, sub(full_like(x, 1), x), x))
    sine = div(full_like(x, math.pi), sin(mul(select(is_negative, x, full_like(x, 0.5)), full_like(x, math.pi))))
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

# ---- Bessel functions -------------------------------------------------------------------------------
i0e = _special(f.i0e, lambda x, out: sub(i1e(x), mul(sign(x), out)), doc="e^-|x| I0(x), I0 the modified Bessel function.")


def _i1e_derivative(x: Ref, out: Ref) -> Ref:
    """i0e - i1e (sign(x) + 1 / x); 1/2 at 0."""
    is_zero = eq(x, zeros_like(x))
    safe = select(is_zero, full_like(x, 1), x)
    slope = sub(i0e(safe), mul(out, add(sign(safe), div(full_like(x, 1), safe))))
    return select(is_zero, full_like(x, 0.5), slope)


i1e: Op = _special(f.i1e, _i1e_derivative, doc="e^-|x| I1(x), I1 the modified Bessel function.")
