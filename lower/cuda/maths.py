"""Vector maths as functions on single numbers: the formulas of `kernels.maths`, written for CUDA.

The same source as on the CPU, so the same bounds, and nothing of the library's that needs a stack.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from hashlib import sha256

from loopwright.ir.dataclass import dataclass
from loopwright.kernels import maths, maths_bits, maths_special
from loopwright.lower.cuda.text import Block, float_literal

FORMULAS: dict[str, Callable[..., str]] = {**maths.FUNCTIONS, **maths_special.FUNCTIONS}
RELATIONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}


@dataclass
class Library:
    """The functions and tables that a program's kernels use, each once, in an order in which they may stand."""

    texts: dict[str, str] = field(default_factory=dict)

    def formula(self, fn: str, bits: int, arity: int) -> str:
        """The name of the function for fn on floats of 32 or 64 bits."""
        return self.function(fn, bits, arity, FORMULAS[fn])

    def function(self, name: str, bits: int, arity: int, body: Callable[..., str]) -> str:
        symbol, kind = f"lw_{name}_f{bits}", "float" if bits == 32 else "double"
        if symbol not in self.texts:
            block = Block()
            operands = [f"x{k}" for k in range(arity)]
            result = body(Machine(block, bits, self), *operands)
            listed = ", ".join(f"{kind} {x}" for x in operands)
            lines = "\n".join([*block.lines, f"    return {result};"])
            self.texts[symbol] = f"__device__ __forceinline__ {kind} {symbol}({listed}) {{\n{lines}\n}}"
        return symbol

    def add(self, name: str, text: str) -> str:
        """A text by its name, once."""
        self.texts.setdefault(name, text)
        return name


@dataclass(frozen=True)
class Machine:
    """The writer of `kernels.maths_writer` for one number: floats of `bits` and integers as wide, at the end of `block`."""

    block: Block
    bits: int
    library: Library

    @property
    def has_fma(self) -> bool:
        return True

    @property
    def has_tables(self) -> bool:
        return False

    @property
    def has_short_tables(self) -> bool:
        return self.has_tables

    @property
    def has_rows(self) -> bool:
        return self.has_tables

    @property
    def kind(self) -> str:
        return "float" if self.bits == 32 else "double"

    @property
    def int_kind(self) -> str:
        return "int" if self.bits == 32 else "long long"

    @property
    def end(self) -> str:
        """What C's names of functions of floats end in."""
        return "f" if self.bits == 32 else ""

    def constant(self, value: float) -> str:
        return float_literal(value, self.bits)

    def integer(self, value: int) -> str:
        return f"({value}{'' if self.bits == 32 else 'll'})" if value >= -(1 << (self.bits - 1)) + 1 else \
            f"(-{(1 << (self.bits - 1)) - 1}{'' if self.bits == 32 else 'll'} - 1)"

    def _f(self, x: str | float) -> str:
        return x if isinstance(x, str) else self.constant(x)

    def _i(self, x: str | int) -> str:
        return x if isinstance(x, str) else self.integer(x)

    def _float(self, text: str) -> str:
        return self.block.let(self.kind, text)

    def _int(self, text: str) -> str:
        return self.block.let(self.int_kind, text)

    def _mask(self, text: str) -> str:
        return self.block.let("bool", text)

    def add(self, a: str | float, b: str | float) -> str:
        return self._float(f"{self._f(a)} + {self._f(b)}")

    def sub(self, a: str | float, b: str | float) -> str:
        return self._float(f"{self._f(a)} - {self._f(b)}")

    def mul(self, a: str | float, b: str | float) -> str:
        return self._float(f"{self._f(a)} * {self._f(b)}")

    def div(self, a: str | float, b: str | float) -> str:
        return self._float(f"{self._f(a)} / {self._f(b)}")

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        return self._float(f"fma{self.end}({self._f(a)}, {self._f(b)}, {self._f(c)})")

    def neg(self, a: str | float) -> str:
        return self._float(f"-{self._f(a)}")

    def abs(self, a: str | float) -> str:
        return self._float(f"fabs{self.end}({self._f(a)})")

    def sqrt(self, a: str | float) -> str:
        return self._float(f"sqrt{self.end}({self._f(a)})")

    def copysign(self, a: str | float, b: str | float) -> str:
        return self._float(f"copysign{self.end}({self._f(a)}, {self._f(b)})")

    def round(self, a: str) -> str:
        return self._float(f"rint{self.end}({a})")

    def trunc(self, a: str) -> str:
        return self._float(f"trunc{self.end}({a})")

    def floor(self, a: str) -> str:
        return self._float(f"floor{self.end}({a})")

    def minimum(self, a: str | float, b: str | float) -> str:
        """a < b ? a : b, so b where either is NaN."""
        return self._float(f"{self._f(a)} < {self._f(b)} ? {self._f(a)} : {self._f(b)}")

    def maximum(self, a: str | float, b: str | float) -> str:
        """a > b ? a : b, so b where either is NaN."""
        return self._float(f"{self._f(a)} > {self._f(b)} ? {self._f(a)} : {self._f(b)}")

    def compare(self, relation: str, a: str | float, b: str | float) -> str:
        x, y = self._f(a), self._f(b)
        if relation == "unordered":
            return self._mask(f"{x} != {x}" if x == y else f"{x} != {x} || {y} != {y}")
        if relation == "nlt":
            return self._mask(f"!({x} < {y})")
        return self._mask(f"{x} {RELATIONS[relation]} {y}")

    def icompare(self, relation: str, a: str | int, b: str | int) -> str:
        return self._mask(f"{self._i(a)} {RELATIONS[relation]} {self._i(b)}")

    def ucompare(self, relation: str, a: str | int, b: str | int) -> str:
        unsigned = f"(unsigned {self.int_kind})"
        return self._mask(f"{unsigned}{self._i(a)} {RELATIONS[relation]} {unsigned}{self._i(b)}")

    def select(self, mask: str, a: str | float, b: str | float) -> str:
        return self._float(f"{mask} ? {self._f(a)} : {self._f(b)}")

    def iselect(self, mask: str, a: str | int, b: str | int) -> str:
        return self._int(f"{mask} ? {self._i(a)} : {self._i(b)}")

    def _wrapped(self, op: str, a: str | int, b: str | int) -> str:
        """An operation of two's complement: C leaves overflow of signed numbers undefined."""
        unsigned = f"(unsigned {self.int_kind})"
        return self._int(f"({self.int_kind})({unsigned}{self._i(a)} {op} {unsigned}{self._i(b)})")

    def iadd(self, a: str | int, b: str | int) -> str:
        return self._wrapped("+", a, b)

    def isub(self, a: str | int, b: str | int) -> str:
        return self._wrapped("-", a, b)

    def imul(self, a: str | int, b: str | int) -> str:
        return self._wrapped("*", a, b)

    def iand(self, a: str | int, b: str | int) -> str:
        return self._int(f"{self._i(a)} & {self._i(b)}")

    def ior(self, a: str | int, b: str | int) -> str:
        return self._int(f"{self._i(a)} | {self._i(b)}")

    def ixor(self, a: str | int, b: str | int) -> str:
        return self._int(f"{self._i(a)} ^ {self._i(b)}")

    def shl(self, a: str | int, b: str | int) -> str:
        return self._int(f"({self.int_kind})((unsigned {self.int_kind}){self._i(a)} << {self._i(b)})")

    def lshr(self, a: str | int, b: str | int) -> str:
        return self._int(f"({self.int_kind})((unsigned {self.int_kind}){self._i(a)} >> {self._i(b)})")

    def ashr(self, a: str | int, b: str | int) -> str:
        return self._int(f"{self._i(a)} >> {self._i(b)}")

    def both(self, a: str, b: str) -> str:
        return self._mask(f"{a} && {b}")

    def either(self, a: str, b: str) -> str:
        return self._mask(f"{a} || {b}")

    def differ(self, a: str, b: str) -> str:
        return self._mask(f"{a} != {b}")

    def negate(self, a: str) -> str:
        return self._mask(f"!{a}")

    def bits_of(self, a: str) -> str:
        return self._int(f"{'__float_as_int' if self.bits == 32 else '__double_as_longlong'}({a})")

    def from_bits(self, a: str) -> str:
        return self._float(f"{'__int_as_float' if self.bits == 32 else '__longlong_as_double'}({a})")

    def to_int(self, a: str) -> str:
        """An integer-valued float as an integer; any one for NaN."""
        return self._int(f"{'__float2int_rn' if self.bits == 32 else '__double2ll_rn'}({a})")

    def to_float(self, a: str) -> str:
        return self._float(f"({self.kind}){a}")

    def scale(self, a: str, n: str) -> str:
        """a * 2^n for an integer-valued float n whose result may overflow or be denormal."""
        return maths_bits.scale(self, a, n)

    def scale_down(self, a: str, n: str) -> str:
        return self.scale(a, self.floor(n))

    def parts(self, a: str) -> tuple[str, str]:
        """k and z in [3/4, 3/2) with a = z 2^k; k is -inf for zeros and inf for inf, z is NaN below 0."""
        return maths_bits.parts(self, a)

    def exponent(self, a: str) -> str:
        """floor(log2 |a|) as a float; -inf for zeros, inf for infinities."""
        return maths_bits.exponent(self, a)

    def table(self, values: tuple[float, ...], index: str) -> str:
        """values[index mod their number], a power of two."""
        name = self._array(self.kind, [float_literal(v, self.bits) for v in values])
        return self._float(f"{name}[{index} & {len(values) - 1}]")

    def tables(self, values: Sequence[tuple[float, ...]], index: str) -> list[str]:
        """The same of several tables."""
        return [self.table(one, index) for one in values]

    def integer_table(self, values: tuple[int, ...], index: str) -> str:
        return self._int(f"{self._array(self.int_kind, list(map(self.integer, values)))}[{index}]")

    def _array(self, kind: str, values: Sequence[str]) -> str:
        text = f"[{len(values)}] = {{{', '.join(values)}}};"
        name = f"lw_table_{sha256((kind + text).encode()).hexdigest()[:12]}"
        return self.library.add(name, f"__device__ const {kind} {name}{text}")

    @property
    def wide(self) -> Machine:
        return Machine(self.block, 64, self.library)

    def widen(self, a: str) -> str:
        return self.block.let("double", f"(double){a}")

    def narrow(self, a: str) -> str:
        return self.block.let("float", f"(float){a}")

    def rarely(self, mask: str, usual: str, unusual: Callable[[Machine], str]) -> str:
        """usual, but unusual() where the mask holds."""
        result = self.block.variable(self.kind, usual)
        with self.block.inner(f"if ({mask})") as inside:
            inside.line(f"{result} = {unusual(Machine(inside, self.bits, self.library))};")
        return result

    def apart(self, name: str, operands: Sequence[str], body: Callable[..., str]) -> str:
        return self._float(f"{self.library.function(name, self.bits, len(operands), body)}({', '.join(operands)})")

    def repeat(self, floats: list[str], body: Callable[[Machine, list[str]], tuple[str, list[str]]]) -> list[str]:
        """do (mask, floats) = body(machine, floats) while the mask holds."""
        state = [self.block.variable(self.kind, x) for x in floats]
        with self.block.inner("for (;;)") as inside:
            mask, new = body(Machine(inside, self.bits, self.library), state)
            held = [inside.let(self.kind, x) for x in new]
            for name, x in zip(state, held, strict=True):
                inside.line(f"{name} = {x};")
            inside.line(f"if (!{mask}) break;")
        return state
