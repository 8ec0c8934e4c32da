"""Elementwise functions on single numbers as C expressions, with NumPy's meaning for every dtype.

Guarantees: nothing here is undefined in C: integers wrap, division by zero is 0, INT_MIN / -1 wraps, over-wide shifts give
what NumPy gives, floats that do not fit saturate and NaN is 0. Floats round once per function (halves after it, in f32).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import DTypeError
from loopwright.ir.threefry import threefry
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, is_float
from loopwright.kernels import maths
from loopwright.kernels.maths_powers import MOST, by_squares
from loopwright.lower.cuda.maths import FORMULAS, Library
from loopwright.lower.cuda.text import HALF, INTEGER_TYPES, Block, register_type

# The very conversions of the machine; what stands in for them elsewhere has the same names.
LW_HALF = """#ifndef LW_EMULATED
__device__ __forceinline__ float lw_from_f16(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
__device__ __forceinline__ unsigned short lw_to_f16(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ __forceinline__ unsigned short lw_to_f16(double x) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}
#endif"""
LW_BFLOAT = """__device__ __forceinline__ float lw_from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}
__device__ __forceinline__ unsigned short lw_to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) return (unsigned short)(bits >> 16 | ((bits & 0xffffu) != 0 ? 0x40u : 0u));
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
__device__ __forceinline__ unsigned short lw_to_bf16(double x) { return lw_to_bf16((float)x); }"""
LW_EXTREME = """#ifndef LW_EMULATED
__device__ __forceinline__ float lw_max(float x, float y) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
#endif"""
# x / y from r, the reciprocal of y rounded to nearest, where no remainder leaves the range in which it is exact, else `rare`:
# the first quotient is off by less than two units, the second by less than one, the third is right (Markstein, 1990).
LW_OVER = """__device__ __forceinline__ T lw_over(T x, T y, T r, bool there, bool& rare) {
    rare |= there & !(((fabsE(x) >= SMALL) & (fabsE(x) <= LARGE)) | (BITS(x) == 0));
    const T first = x * r;
    const T second = fmaE(fmaE(-first, y, x), r, first);
    return fmaE(fmaE(-second, y, x), r, second);
}
__device__ __forceinline__ bool lw_is_near(T y) { return fabsE(y) >= LOW && fabsE(y) <= HIGH; }"""
_RANGES = {F32: (100, 100, 20, 24), F64: (900, 900, 50, 50)}  # powers of two: of x at least and at most, of y likewise
NAMES = {F16: "f16", BF16: "bf16"}


def from_memory(library: Library, text: str, dtype: np.dtype) -> str:
    """The register for an element in memory."""
    if dtype in HALF:
        return f"lw_from_{_half(library, dtype)}({text})"
    return f"{text} != 0" if dtype == BOOL else text


def to_memory(library: Library, value: str, dtype: np.dtype) -> str:
    """The element in memory for a register."""
    if dtype in HALF:
        return f"lw_to_{_half(library, dtype)}({value})"
    return value


def _half(library: Library, dtype: np.dtype) -> str:
    library.add(f"lw_{NAMES[dtype]}", LW_HALF if dtype == F16 else LW_BFLOAT)
    return NAMES[dtype]


def rounded(library: Library, value: str, dtype: np.dtype) -> str:
    """An f32 register at the precision of a half float."""
    name = _half(library, dtype)
    return f"lw_from_{name}(lw_to_{name}({value}))"


# ---- conversions --------------------------------------------------------------------------------
def convert(library: Library, value: str, source: np.dtype, to: np.dtype) -> str:
    """A register of dtype `source` as one of dtype `to`."""
    if source == to:
        return value
    if to == BOOL:
        return f"{value} != 0"
    if is_float(source) and not is_float(to):
        return f"{_saturated(library, source, to)}({value})"
    kind = register_type(to)
    if to in HALF:
        if source == F64:
            name = _half(library, to)
            return f"lw_from_{name}(lw_to_{name}({value}))"
        return rounded(library, f"(float){value}", to)
    return f"({kind}){value}" if kind != register_type(source) else value


def _saturated(library: Library, source: np.dtype, to: np.dtype) -> str:
    """A function from floats to integers: what is beyond the range is its end, NaN is 0."""
    kind, result = register_type(source), register_type(to)
    name = f"lw_{'f64' if source == F64 else 'f32'}_to_{to.name}"
    info = np.iinfo(to)
    low, high = float(info.min), float(info.max)  # high may round up: what is there does not fit
    least = f"({result})({info.min + 1}ll - 1)" if info.min else f"({result})0"
    most = f"({result}){info.max}{'ull' if to.kind == 'u' else 'll'}"
    end = "" if source == F64 else "f"
    return library.add(name, f"__device__ __forceinline__ {result} {name}({kind} x) {{\n    return x != x ? ({result})0 : "
                             f"x <= {low!r}{end} ? {least} : x >= {high!r}{end} ? {most} : ({result})x;\n}}")


def bitcast(library: Library, value: str, source: np.dtype, to: np.dtype) -> str:
    """The same bits at a dtype of the same width."""
    if source == to:
        return value
    if source == F16:  # the machine's conversion makes another NaN than NumPy has
        nan = f"(unsigned short)(__float_as_uint({value}) >> 16 & 0x8000u | 0x7e00u)"
        value = f"({value} != {value} ? {nan} : {to_memory(library, value, source)})"
    elif source in HALF:
        value = to_memory(library, value, source)
    elif source == F32:
        value = f"__float_as_int({value})"
    elif source == F64:
        value = f"__double_as_longlong({value})"
    if to in HALF:
        return from_memory(library, f"(unsigned short){value}", to)
    if to in (F32, F64):
        return f"__int_as_float((int){value})" if to == F32 else f"__longlong_as_double((long long){value})"
    return f"({register_type(to)}){value}"


# ---- functions ----------------------------------------------------------------------------------
Make = Callable[[Library, np.dtype, Sequence[str]], str]


def applied(library: Library, fn: str, dtype: np.dtype, args: Sequence[str]) -> str:
    """fn on operands of dtype, names or literals. DTypeError where NumPy has no such function."""
    if dtype in FLOATS:
        found = _on_floats(library, fn, dtype, args)
    else:
        table = INTEGER if dtype in INTEGERS else BOOLEAN if dtype == BOOL else {}
        found = table[fn](library, dtype, args) if fn in table else None
    if found is None:
        raise DTypeError(f"{fn} on {dtype}: the function is not defined for it")
    return found


def _text(template: str) -> Make:
    return lambda library, dtype, args: template.format(*args, t=register_type(dtype), u=_unsigned(dtype),
                                                        bits=8 * dtype.itemsize)


def _unsigned(dtype: np.dtype) -> str:
    return "unsigned long long" if dtype.itemsize == 8 else "unsigned"


# ---- floats -------------------------------------------------------------------------------------
def _on_floats(library: Library, fn: str, dtype: np.dtype, args: Sequence[str]) -> str | None:
    bits, end = (64, "") if dtype == F64 else (32, "f")
    if fn == "nextafter":
        return f"{_nextafter(library, dtype)}({', '.join(args)})"
    if fn in ("max", "min") and dtype != F64:
        return f"{library.add(f'lw_{fn}', LW_EXTREME.replace('max', fn))}({', '.join(args)})"
    if fn in EXACT:
        return EXACT[fn].format(*args, f=end, t=register_type(dtype))
    if fn in ROUNDED:
        result = ROUNDED[fn].format(*args, f=end)
    elif fn in OWN and dtype != F64:
        result = f"{OWN[fn]}({', '.join(args)})"
    elif fn in FORMULAS:
        result = f"{library.formula(fn, bits, len(args))}({', '.join(args)})"
    else:
        return None
    return rounded(library, result, dtype) if dtype in HALF else result


def whole_power(block: Block, library: Library, dtype: np.dtype, x: str, n: int) -> str | None:
    """x^n by products, or None where the power of any exponent takes no longer; half floats round once."""
    def multiplied(a: str, b: str) -> str:
        return block.let(register_type(dtype), applied(library, "mul", dtype, [a, b]))

    if dtype not in FLOATS:
        return by_squares(multiplied, x, n) if 1 <= n <= MOST else None
    found = maths.whole_power(n)
    if found is None:
        return None
    name = f"power_{n}" if n > 0 else f"power_minus_{-n}"
    result = f"{library.function(name, 64 if dtype == F64 else 32, 1, found)}({x})"
    return rounded(library, result, dtype) if dtype in HALF else result


OWN = {"exp": "expf"}  # functions of CUDA's for f32 that err by less than 2 units, of every f32, and are quicker than ours
ROUNDED = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "sqrt": "sqrt{f}({0})"}
EXACT = {
    "neg": "-{0}", "abs": "fabs{f}({0})", "floor": "floor{f}({0})", "ceil": "ceil{f}({0})", "trunc": "trunc{f}({0})",
    "rint": "rint{f}({0})", "copysign": "copysign{f}({0}, {1})",
    "sign": "{0} > 0 ? ({t})1 : {0} < 0 ? ({t})-1 : {0} == 0 ? ({t})0 : {0}",
    "isnan": "{0} != {0}", "isinf": "{0} - {0} != {0} - {0} && {0} == {0}", "isfinite": "{0} - {0} == 0",
    "signbit": "copysign{f}(({t})1, {0}) < 0",
    "max": "{0} >= {1} || {0} != {0} ? {0} : {1}", "min": "{0} <= {1} || {0} != {0} ? {0} : {1}",
    "fmax": "{0} >= {1} || {1} != {1} ? {0} : {1}", "fmin": "{0} <= {1} || {1} != {1} ? {0} : {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
}


def reciprocal(block: Block, library: Library, dtype: np.dtype, y: str) -> tuple[str, str]:
    """What quotients with one divisor share: its reciprocal, and whether that serves."""
    work = F64 if dtype == F64 else F32
    kind, end = register_type(work), "" if work == F64 else "f"
    text = LW_OVER.replace("T ", f"{kind} ").replace("fabsE", f"fabs{end}").replace("fmaE", f"fma{end}")
    for name, sign, power in zip(("SMALL", "LARGE", "LOW", "HIGH"), "-+-+", _RANGES[work], strict=True):
        text = text.replace(name, f"0x1p{sign}{power}{end}")
    library.add(f"lw_over_{kind}", text.replace("BITS", "__double_as_longlong" if work == F64 else "__float_as_int"))
    return block.let(kind, f"1 / {y}"), block.let("bool", f"lw_is_near({y})")


def divided(library: Library, dtype: np.dtype, x: str, y: str, reciprocal: str, there: str, rare: str) -> str:
    """x / y by the reciprocal of y; where that does not serve, and the quotient is wanted, `rare` becomes true."""
    result = f"lw_over({x}, {y}, {reciprocal}, {there}, {rare})"
    return rounded(library, result, dtype) if dtype in HALF else result


def _nextafter(library: Library, dtype: np.dtype) -> str:
    """A step of one in the bits, away from zero or toward it."""
    kind, name = register_type(dtype), f"lw_nextafter_{dtype.name}"
    bits = np.dtype(f"i{dtype.itemsize}")
    integer = INTEGER_TYPES[bits]
    moved = bitcast(library, f"({integer})({bitcast(library, 'x', dtype, bits)} + (x < y == x > 0 ? 1 : -1))", bits, dtype)
    least = bitcast(library, f"({integer})1", bits, dtype)
    end = "" if dtype == F64 else "f"
    return library.add(name, f"__device__ __forceinline__ {kind} {name}({kind} x, {kind} y) {{\n"
                       f"    if (x != x || y != y) return x + y;\n    if (x == y) return y;\n"
                       f"    if (x == 0) return copysign{end}({least}, y);\n    return {moved};\n}}")


# ---- integers -----------------------------------------------------------------------------------
def _function(name: str, body: str, signed: str = "") -> Make:
    """A function of the dtype by its body, for signed integers by another."""
    def make(library: Library, dtype: np.dtype, args: Sequence[str]) -> str:
        kind, symbol = register_type(dtype), f"lw_{name}_{dtype.name}"
        listed = ", ".join(f"{kind} {x}" for x in "ab"[:len(args)])
        text = (signed if signed and dtype.kind == "i" else body)
        text = text.replace("T", kind).replace("U", _unsigned(dtype))
        library.add(symbol, f"__device__ __forceinline__ {kind} {symbol}({listed}) {{ {text} }}")
        return f"{symbol}({', '.join(args)})"
    return make


@dataclass(frozen=True)
class _Words:
    """The arithmetic of `ir.threefry` on `unsigned`, at the end of a block."""

    block: Block

    def add(self, a: str, b: str | int) -> str:
        return self.block.let("unsigned", f"{a} + {b}")

    def xor(self, a: str, b: str | int) -> str:
        return self.block.let("unsigned", f"{a} ^ {b}")

    def rotate(self, a: str, by: int) -> str:
        return self.block.let("unsigned", f"{a} << {by} | {a} >> {32 - by}")


def _random_word(template: str) -> Make:
    """A word of a block, from both in one number."""
    def make(library: Library, dtype: np.dtype, args: Sequence[str]) -> str:
        block = Block()
        x, y = threefry(_Words(block), *"abxy")
        lines = "\n".join([*block.lines, f"    return (unsigned long long){x} << 32 | {y};"])
        library.add("lw_threefry", "__device__ __forceinline__ unsigned long long lw_threefry(unsigned a, unsigned b, "
                                   f"unsigned x, unsigned y) {{\n{lines}\n}}")
        return template.format(f"lw_threefry({', '.join(args)})")
    return make


def _same(library: Library, dtype: np.dtype, args: Sequence[str]) -> str:
    return args[0]


def _signed(signed: str, unsigned: str) -> Make:
    return lambda library, dtype, args: _text(signed if dtype.kind == "i" else unsigned)(library, dtype, args)


COMPARISONS: dict[str, Make] = {"eq": _text("{0} == {1}"), "ne": _text("{0} != {1}"), "lt": _text("{0} < {1}"),
                                "le": _text("{0} <= {1}"), "gt": _text("{0} > {1}"), "ge": _text("{0} >= {1}")}
_QUOTIENT = "if (b == 0) return 0; if (b == (T)-1) return (T)(0 - (U)a); "  # the least number by -1 wraps
INTEGER: dict[str, Make] = {
    "neg": _text("({t})(0 - ({u}){0})"), "abs": _signed("({t})({0} < 0 ? 0 - ({u}){0} : ({u}){0})", "{0}"),
    "sign": _text("({t})(({0} > 0) - ({0} < 0))"), "floor": _same, "ceil": _same, "trunc": _same, "rint": _same,
    "isnan": _text("false"), "isinf": _text("false"), "isfinite": _text("true"), "signbit": _text("{0} < 0"),
    "bitwise_not": _text("({t})~{0}"), "add": _text("({t})(({u}){0} + ({u}){1})"), "sub": _text("({t})(({u}){0} - ({u}){1})"),
    "mul": _text("({t})(({u}){0} * ({u}){1})"),
    "floor_divide": _function("floor_divide", "return b == 0 ? (T)0 : (T)(a / b);",
                              _QUOTIENT + "return (T)(a / b - (a % b != 0 && (a % b ^ b) < 0));"),
    "remainder": _function("remainder", "return b == 0 ? (T)0 : (T)(a % b);",
                           "if (b == 0 || b == (T)-1) return 0; const T r = (T)(a % b); "
                           "return (T)(r != 0 && (r ^ b) < 0 ? r + b : r);"),
    "fmod": _function("fmod", "return b == 0 ? (T)0 : (T)(a % b);", "return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b);"),
    "power": _function("power", "U r = 1; U x = (U)a; "
                       "for (U n = b > 0 ? (U)b : 0; n != 0; n >>= 1) { if (n & 1) r *= x; x *= x; } return (T)r;"),
    "max": _text("{0} >= {1} ? {0} : {1}"), "min": _text("{0} <= {1} ? {0} : {1}"),
    "fmax": _text("{0} >= {1} ? {0} : {1}"), "fmin": _text("{0} <= {1} ? {0} : {1}"),
    "bitwise_and": _text("({t})({0} & {1})"), "bitwise_or": _text("({t})({0} | {1})"), "bitwise_xor": _text("({t})({0} ^ {1})"),
    "left_shift": _text("({u}){1} < {bits} ? ({t})(({u}){0} << {1}) : ({t})0"),
    "right_shift": _signed("({t})({0} >> (({u}){1} < {bits} ? (int){1} : {bits} - 1))",
                           "({u}){1} < {bits} ? ({t})({0} >> {1}) : ({t})0"),
    "threefry_first": _random_word("(unsigned)({} >> 32)"), "threefry_second": _random_word("(unsigned){}"),
    **COMPARISONS,
}
BOOLEAN: dict[str, Make] = {
    "abs": _same, "floor": _same, "ceil": _same, "trunc": _same, "isnan": _text("false"), "isinf": _text("false"),
    "isfinite": _text("true"), "bitwise_not": _text("!{0}"), "add": _text("{0} || {1}"), "mul": _text("{0} && {1}"),
    "max": _text("{0} || {1}"), "min": _text("{0} && {1}"), "fmax": _text("{0} || {1}"), "fmin": _text("{0} && {1}"),
    "bitwise_and": _text("{0} && {1}"), "bitwise_or": _text("{0} || {1}"), "bitwise_xor": _text("{0} != {1}"), **COMPARISONS,
}
