"""The special functions of `ir.special_functions` on registers: in f64 for both widths, f32 is widened and rounded back."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.ir import special_functions
from loopwright.kernels import maths
from loopwright.kernels.maths_writer import Writer

NAMES = ("erfcx", "erfinv", "ndtri", "lgamma", "digamma", "zeta", "gammainc", "gammaincc", "gammainc_slope",
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

    def repeat(self, floats: list[str], body: Callable[[Any, list[str]], tuple[str, list[str]]]) -> list[str]:
        return self._writer.repeat(floats, lambda inner, now: body(Registers(inner), now))


def _on_registers(function: special_functions.Function) -> Callable[..., str]:
    return maths.in_double(lambda m, *args: function(Registers(m), *args))


FUNCTIONS: dict[str, Callable[..., str]] = {name: _on_registers(getattr(special_functions, name)) for name in NAMES}
