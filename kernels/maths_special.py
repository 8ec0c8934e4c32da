"""The special functions of `ir.special_functions` on registers: in f64 for both widths, f32 is widened and rounded back; but
erfinv, which random numbers use, has a form of its own for f32, within 2.5 units in the last place."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from loopwright.ir import special_functions
from loopwright.ir import special_tables as t
from loopwright.kernels import maths
from loopwright.kernels.maths_writer import Writer, horner

NAMES = ("erfcx", "ndtri", "lgamma", "digamma", "zeta", "gammainc", "gammaincc", "gammainc_slope",
         "betainc", "i0e", "i1e")


class Registers:
    """A writer with the elementary functions of `kernels.maths`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def _applied(self, name: str, *args: Any) -> str:
        m = self._writer
        return m.apart(name, [a if isinstance(a, str) else m.constant(a) for a in args], maths.FUNCTIONS[name])

    def exp(self, a: Any) -> str:
        return self._applied("exp", a)

    def log(self, a: Any) -> str:
        return self._applied("log", a)

    def log1p(self, a: Any) -> str:
        return self._applied("log1p", a)

    def sin(self, a: Any) -> str:
        return self._applied("sin", a)

    def tan(self, a: Any) -> str:
        return self._applied("tan", a)

    def erf(self, a: Any) -> str:
        return self._applied("erf", a)

    def power(self, a: Any, b: Any) -> str:
        return self._applied("power", a, b)

    def rarely(self, mask: str, usual: str, unusual: Callable[[Any], str]) -> str:
        return self._writer.rarely(mask, usual, lambda inner: unusual(Registers(inner)))

    def repeat(self, floats: list[str], body: Callable[[Any, list[str]], tuple[str, list[str]]]) -> list[str]:
        return self._writer.repeat(floats, lambda inner, now: body(Registers(inner), now))


def _on_registers(function: special_functions.Function) -> Callable[..., str]:
    return maths.in_double(lambda m, *args: function(Registers(m), *args))


def _erfinv(m: Writer, x: str) -> str:
    """x p(w) for w = -log(1 - x^2) < 16, and beyond 6.25 of its root."""
    if m.bits == 64:
        double: str = special_functions.erfinv(Registers(m), x)
        return double
    w = m.neg(Registers(m).log(m.fma(m.neg(x), x, 1.0)))
    near = horner(m, m.sub(w, 3.125), t.ERFINV_SINGLE_NEAR)
    scale = m.rarely(m.compare("ge", w, 6.25), near,
                     lambda inner: horner(inner, inner.sub(inner.sqrt(w), 3.25), t.ERFINV_SINGLE_FAR))
    return m.select(m.compare("eq", m.abs(x), 1.0), m.copysign(math.inf, x), m.mul(x, scale))


FUNCTIONS: dict[str, Callable[..., str]] = {**{name: _on_registers(getattr(special_functions, name)) for name in NAMES},
                                            "erfinv": maths.native(_erfinv)}
