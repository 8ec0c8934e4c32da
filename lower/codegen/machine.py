"""Typed instructions on one scalar or vector shape. `Machine` is also the writer that `kernels.maths` is written against."""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.types import BF16, BOOL, F16, F32, F64
from loopwright.kernels import maths_bits
from loopwright.lower.codegen import lookups
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.lookups import WHOLE_BITS
from loopwright.lower.codegen.text import Function, Scope, branch, repeat
from loopwright.lower.target import Target

# Of every function of the generator. Registers that do not fit lie on the stack, in lines of the cache: which caller it was no
# longer decides whether each load of one takes two.
ATTRIBUTES = 'nounwind alignstack(64) "prefer-vector-width"="512" "no-trapping-math"="true"'


@cache
def register_type(dtype: np.dtype) -> str:
    """The LLVM type of one element in a register: bool is i1, and half floats are held in f32, rounded."""
    if dtype == BOOL:
        return "i1"
    if dtype in (F16, BF16, F32):
        return "float"
    return "double" if dtype == F64 else f"i{8 * dtype.itemsize}"


@cache
def memory_type(dtype: np.dtype) -> str:
    """The LLVM type of one element in memory: half floats move as integers."""
    if dtype in (F32, F64):
        return register_type(dtype)
    return f"i{8 * dtype.itemsize}"


def vector_type(element: str, lanes: int) -> str:
    """`<16 x float>`; one lane is the element itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@lru_cache(maxsize=256)
def suffix(kind: str) -> str:
    """How intrinsics spell a type: v16f32."""
    lanes, element = kind[1:-1].split(" x ") if kind.startswith("<") else ("", kind)
    return (f"v{lanes}" if lanes else "") + {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(element, element)


FLOAT_COMPARE = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge", "unordered": "uno",
                 "nlt": "uge"}  # nlt: not less, or NaN
SIGNED_COMPARE = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne", "gt": "sgt", "ge": "sge"}
UNSIGNED_COMPARE = {"lt": "ult", "le": "ule", "eq": "eq", "ne": "ne", "gt": "ugt", "ge": "uge"}


@dataclass(frozen=True)
class Machine:
    """Floats of `bits` (32 or 64) and integers as wide, `lanes` at a time, written at the end of `scope`."""

    scope: Scope
    bits: int
    lanes: int
    target: Target
    flags: str = ""  # fast-math flags, with a blank after them

    @cached_property
    def element(self) -> str:
        return "float" if self.bits == 32 else "double"

    @cached_property
    def float_type(self) -> str:
        return vector_type(self.element, self.lanes)

    @cached_property
    def int_type(self) -> str:
        return vector_type(f"i{self.bits}", self.lanes)

    @cached_property
    def mask_type(self) -> str:
        return vector_type("i1", self.lanes)

    @property
    def has_fma(self) -> bool:
        return self.target.has_fma

    @property
    def has_tables(self) -> bool:
        return self.target.has_masks

    @property
    def has_short_tables(self) -> bool:
        return self.has_tables or (self.bits == 32 and "avx2" in self.target.enabled)

    @property
    def has_rows(self) -> bool:
        return self.has_tables or self.bits == 64

    def constant(self, value: float) -> str:
        return constant_text(value, self.element, self.lanes)

    def integer(self, value: int) -> str:
        return constant_text(value, f"i{self.bits}", self.lanes)

    def _f(self, x: str | float) -> str:
        return x if isinstance(x, str) else self.constant(x)

    def _i(self, x: str | int) -> str:
        return x if isinstance(x, str) else self.integer(x)

    def _binary(self, op: str, a: str | float, b: str | float) -> str:
        return self.scope.emit(f"{op} {self.flags}{self.float_type} {self._f(a)}, {self._f(b)}")

    def add(self, a: str | float, b: str | float) -> str:
        return self._binary("fadd", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        return self._binary("fsub", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        return self._binary("fmul", a, b)

    def div(self, a: str | float, b: str | float) -> str:
        return self._binary("fdiv", a, b)

    def intrinsic(self, name: str, *args: str | float) -> str:
        kind = self.float_type
        return self.scope.call(kind, f"llvm.{name}.{suffix(kind)}", [(kind, self._f(x)) for x in args])

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        """a * b + c, rounded once where the machine can."""
        return self.intrinsic("fma", a, b, c) if self.has_fma else self.add(self.mul(a, b), c)

    def neg(self, a: str | float) -> str:
        return self.scope.emit(f"fneg {self.flags}{self.float_type} {self._f(a)}")

    def abs(self, a: str | float) -> str:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: str | float) -> str:
        return self.intrinsic("sqrt", a)

    def root_estimate(self, a: str) -> str:
        """1 / sqrt(a) in f32, as near as `Target.estimates_roots` says."""
        row = self.target.vector_bits // 32
        if self.lanes >= row:
            return self.in_rows(Machine._estimate, ("float", a), row=row)
        wide = vector_type("float", 4)
        if self.lanes == 1:
            found = replace(self, lanes=4)._estimate(self.scope.emit(f"insertelement {wide} poison, float {a}, i32 0"))
            return self.scope.emit(f"extractelement {wide} {found}, i32 0")
        if self.lanes >= 4:
            return self._estimate(a)
        found = replace(self, lanes=4)._estimate(self.shuffled(a, "poison", self.float_type, range(4)))
        return self.shuffled(found, "poison", wide, range(self.lanes))

    def _estimate(self, a: str) -> str:
        """Of 4, 8 or 16 lanes."""
        kind, width = self.float_type, "i16" if self.lanes > 8 else "i8"
        if not self.target.has_masks:
            name = "llvm.x86.avx.rsqrt.ps.256" if self.lanes == 8 else "llvm.x86.sse.rsqrt.ps"
            return self.scope.call(kind, name, [(kind, a)])
        return self.scope.call(kind, f"llvm.x86.avx512.rsqrt14.ps.{32 * self.lanes}", [
            (kind, a), (kind, "zeroinitializer"), (width, "-1")])

    def copysign(self, a: str | float, b: str | float) -> str:
        return self.intrinsic("copysign", a, b)

    def round(self, a: str) -> str:
        """To the nearest integer, ties to even."""
        return self._rounded("roundeven", a)

    def trunc(self, a: str) -> str:
        return self._rounded("trunc", a)

    def floor(self, a: str) -> str:
        return self._rounded("floor", a)

    def ceil(self, a: str) -> str:
        return self._rounded("ceil", a)

    def _rounded(self, name: str, a: str) -> str:
        if self.target.is_x86 and "sse4.1" not in self.target.enabled:
            return self._rounded_without_instruction(name, a)
        return self.intrinsic(name, a)

    def _rounded_without_instruction(self, name: str, a: str) -> str:
        """SSE2 has no rounding; adding and taking away 2^(p-1) rounds to even, and a step of one corrects the others."""
        big = 2.0 ** (23 if self.bits == 32 else 52)
        size = self.abs(a)
        even = self.sub(self.add(size, big), big)
        if name == "trunc":
            even = self.select(self.compare("gt", even, size), self.sub(even, 1.0), even)
        result = self.copysign(even, a)
        if name == "floor":
            result = self.copysign(self.select(self.compare("gt", result, a), self.sub(result, 1.0), result), a)
        elif name == "ceil":
            result = self.copysign(self.select(self.compare("lt", result, a), self.add(result, 1.0), result), a)
        return self.select(self.compare("lt", size, big), result, a)

    def minimum(self, a: str | float, b: str | float) -> str:
        """a < b ? a : b, so b where either is NaN."""
        return self.select(self.compare("lt", a, b), a, b)

    def maximum(self, a: str | float, b: str | float) -> str:
        """a > b ? a : b, so b where either is NaN."""
        return self.select(self.compare("gt", a, b), a, b)

    def compare(self, relation: str, a: str | float, b: str | float) -> str:
        return self.scope.emit(f"fcmp {FLOAT_COMPARE[relation]} {self.float_type} {self._f(a)}, {self._f(b)}")

    def icompare(self, relation: str, a: str | int, b: str | int) -> str:
        return self.scope.emit(f"icmp {SIGNED_COMPARE[relation]} {self.int_type} {self._i(a)}, {self._i(b)}")

    def ucompare(self, relation: str, a: str | int, b: str | int) -> str:
        return self.scope.emit(f"icmp {UNSIGNED_COMPARE[relation]} {self.int_type} {self._i(a)}, {self._i(b)}")

    def select(self, mask: str, a: str | float, b: str | float) -> str:
        kind = self.float_type
        return self.scope.emit(f"select {self.mask_type} {mask}, {kind} {self._f(a)}, {kind} {self._f(b)}")

    def iselect(self, mask: str, a: str | int, b: str | int) -> str:
        kind = self.int_type
        return self.scope.emit(f"select {self.mask_type} {mask}, {kind} {self._i(a)}, {kind} {self._i(b)}")

    def _integer(self, op: str, a: str | int, b: str | int) -> str:
        return self.scope.emit(f"{op} {self.int_type} {self._i(a)}, {self._i(b)}")

    def iadd(self, a: str | int, b: str | int) -> str:
        return self._integer("add", a, b)

    def isub(self, a: str | int, b: str | int) -> str:
        return self._integer("sub", a, b)

    def imul(self, a: str | int, b: str | int) -> str:
        return self._integer("mul", a, b)

    def iand(self, a: str | int, b: str | int) -> str:
        return self._integer("and", a, b)

    def ior(self, a: str | int, b: str | int) -> str:
        return self._integer("or", a, b)

    def ixor(self, a: str | int, b: str | int) -> str:
        return self._integer("xor", a, b)

    def shl(self, a: str | int, b: str | int) -> str:
        return self._integer("shl", a, b)

    def lshr(self, a: str | int, b: str | int) -> str:
        return self._integer("lshr", a, b)

    def ashr(self, a: str | int, b: str | int) -> str:
        return self._integer("ashr", a, b)

    def both(self, a: str, b: str) -> str:
        return self.scope.emit(f"and {self.mask_type} {a}, {b}")

    def either(self, a: str, b: str) -> str:
        return self.scope.emit(f"or {self.mask_type} {a}, {b}")

    def differ(self, a: str, b: str) -> str:
        """Which of two masks holds, where only one does."""
        return self.scope.emit(f"xor {self.mask_type} {a}, {b}")

    def negate(self, a: str) -> str:
        return self.scope.emit(f"xor {self.mask_type} {a}, {constant_text(True, 'i1', self.lanes)}")

    def bits_of(self, a: str) -> str:
        return self.scope.emit(f"bitcast {self.float_type} {a} to {self.int_type}")

    def from_bits(self, a: str) -> str:
        return self.scope.emit(f"bitcast {self.int_type} {a} to {self.float_type}")

    def to_int(self, a: str) -> str:
        """An integer-valued float of at most 31 (f32) or 51 (f64) bits as an integer."""
        if self.bits == 64 and self.target.is_x86 and "avx512dq" not in self.target.enabled:
            # No packed conversion: the low bits of x + 1.5 * 2^52 are the integer.
            magic = 1.5 * 2.0 ** 52
            return self.isub(self.bits_of(self.add(a, magic)), struct.unpack("<q", struct.pack("<d", magic))[0])
        number = self.scope.emit(f"fptosi {self.float_type} {a} to {self.int_type}")
        return self.scope.emit(f"freeze {self.int_type} {number}")  # any integer will do for NaN, but one

    def to_float(self, a: str) -> str:
        return self.scope.emit(f"sitofp {self.int_type} {a} to {self.float_type}")

    @property
    def is_whole(self) -> bool:
        """Whether the lanes fill registers that have instructions of their own for tables and powers of two."""
        return self.target.has_masks and self.lanes * self.bits % WHOLE_BITS == 0

    def scale(self, a: str, n: str) -> str:
        """a * 2^n for an integer-valued float n whose result may overflow or be denormal; |n| below 2 * 1022 (126)."""
        if self.is_whole:
            return self.in_rows(Machine._scaled, (self.element, a), (self.element, n))
        return maths_bits.scale(self, a, n)

    def scale_down(self, a: str, n: str) -> str:
        """a * 2^floor(n), for n as in `scale` but not an integer."""
        return self.scale(a, n if self.is_whole else self.floor(n))

    def parts(self, a: str) -> tuple[str, str]:
        """k, integer-valued, and z in [3/4, 3/2) with a = z 2^k; k is -inf for zeros and inf for inf, z is NaN below 0."""
        if self.is_whole:
            kind = self.element, a
            z = self.in_rows(Machine._significand, kind)
            return self.sub(self.in_rows(Machine._exponent, kind), self.in_rows(Machine._exponent, (self.element, z))), z
        return maths_bits.parts(self, a)

    def exponent(self, a: str) -> str:
        """floor(log2 |a|) as a float; -inf for zeros, inf for infinities."""
        if self.is_whole:
            return self.in_rows(Machine._exponent, (self.element, a))
        return maths_bits.exponent(self, a)

    def table(self, values: tuple[float, ...], index: str) -> str:
        """values[index mod their number], a power of two."""
        return lookups.table(self, values, index)

    def tables(self, values: Sequence[tuple[float, ...]], index: str) -> list[str]:
        """The same of several tables of as many numbers."""
        return lookups.tables(self, values, index)

    def integer_table(self, values: tuple[int, ...], index: str) -> str:
        """values[index] for an index that is in range."""
        return lookups.integers(self, values, index)

    def in_rows(self, each: Callable[..., str], *operands: tuple[str, str], row: int = 0) -> str:
        """each(a machine of one whole register, *parts), for one register of the operands, (element, value), after another."""
        row = row or WHOLE_BITS // self.bits
        if self.lanes == row:
            return each(self, *(x for _, x in operands))
        one = replace(self, lanes=row)
        found = [each(one, *(self.shuffled(x, "poison", vector_type(kind, self.lanes), range(k, k + row))
                             for kind, x in operands)) for k in range(0, self.lanes, row)]
        while len(found) > 1:
            kind = vector_type(self.element, self.lanes // len(found))
            found = [self.shuffled(a, b, kind, range(2 * self.lanes // len(found)))
                     for a, b in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    def shuffled(self, a: str, b: str, kind: str, order: Sequence[int]) -> str:
        lanes = f"<{len(order)} x i32> <{', '.join(f'i32 {k}' for k in order)}>"
        return self.scope.emit(f"shufflevector {kind} {a}, {kind} {b}, {lanes}")

    def _scaled(self, a: str, n: str) -> str:
        (end, width), kind = ("ps", "i16") if self.bits == 32 else ("pd", "i8"), self.float_type
        return self.scope.call(kind, f"llvm.x86.avx512.mask.scalef.{end}.512", [
            (kind, a), (kind, n), (kind, "zeroinitializer"), (width, "-1"), ("i32", "4")])

    def _exponent(self, a: str) -> str:
        (end, width), kind = ("ps", "i16") if self.bits == 32 else ("pd", "i8"), self.float_type
        return self.scope.call(kind, f"llvm.x86.avx512.mask.getexp.{end}.512", [
            (kind, a), (kind, "zeroinitializer"), (width, "-1"), ("i32", "4")])

    def _significand(self, a: str) -> str:
        """In [3/4, 3/2), without a sign; NaN below 0."""
        (end, width), kind = ("ps", "i16") if self.bits == 32 else ("pd", "i8"), self.float_type
        return self.scope.call(kind, f"llvm.x86.avx512.mask.getmant.{end}.512", [
            (kind, a), ("i32", "15"), (kind, "zeroinitializer"), (width, "-1"), ("i32", "4")])

    @property
    def wide(self) -> Machine:
        """The same lanes in f64."""
        return replace(self, bits=64)

    def widen(self, a: str) -> str:
        return self.scope.emit(f"fpext {self.float_type} {a} to {self.wide.float_type}")

    def narrow(self, a: str) -> str:
        """An f64 value of `wide`, rounded."""
        return self.scope.emit(f"fptrunc {self.wide.float_type} {a} to {self.float_type}")

    def any(self, mask: str) -> str:
        """Whether any lane is set, as a branch condition."""
        return any_lane(self.scope, mask, self.lanes)

    def rarely(self, mask: str, usual: str, unusual: Callable[[Machine], str]) -> str:
        """usual, but unusual() in the lanes of mask, which is computed only when there are any."""
        kind = self.float_type

        def replaced(scope: Scope) -> list[tuple[str, str]]:
            inner = replace(self, scope=scope)
            return [(kind, inner.select(mask, unusual(inner), usual))]
        return branch(self.scope, self.any(mask), replaced, None, [(kind, usual)], rare=True)[0]

    def apart(self, name: str, operands: Sequence[str], body: Callable[..., str]) -> str:
        """body(machine, *operands) by a call of a function that all kernels of a module share."""
        made = _apart(name, self.bits, self.lanes, self.target, self.flags, len(operands), body)
        function, kind = self.scope.function, self.float_type
        function.declarations |= made.declarations
        function.constants |= made.texts
        listed = ", ".join(f"{kind} {x}" for x in operands)
        return self.scope.emit(f"call {_convention(self.target, self.lanes * self.bits)}{kind} @{made.name}({listed})")

    def repeat(self, floats: list[str], body: Callable[[Machine, list[str]], tuple[str, list[str]]]) -> list[str]:
        """do (mask, floats) = body(machine, floats) while any lane of mask."""
        def step(scope: Scope, now: list[str]) -> tuple[str, list[str]]:
            inner = replace(self, scope=scope)
            mask, new = body(inner, now)
            return inner.any(mask), new
        return repeat(self.scope, [(self.float_type, x) for x in floats], step)


@dataclass(frozen=True)
class Apart:
    """A function of its own: its name, and what a module needs for it: declarations, its text and the constants in it."""

    name: str
    declarations: frozenset[str]
    texts: frozenset[str]


def _convention(target: Target, size: int) -> str:
    """Calls that leave half of the vector registers as they are: what is live around a call stays where it is. With AVX alone a
    function with a result of less than 256 bits ends by clearing all upper halves, even what it has restored: it is a C one."""
    clears = "avx" in target.enabled and not target.has_masks and size < 256
    return "" if clears else "intel_ocl_bicc " if target.is_x86 else "aarch64_vector_pcs " if target.is_arm64 else ""


_known_apart: dict[object, Apart] = {}  # a bounded memory: names are those of formulas


def _apart(name: str, bits: int, lanes: int, target: Target, flags: str, arity: int, body: Callable[..., str]) -> Apart:
    key = name, bits, lanes, target, flags
    if key not in _known_apart:
        function = Function(set(), set())
        m = Machine(function.root, bits, lanes, target, flags)
        kind, operands = m.float_type, [f"%x{k}" for k in range(arity)]
        symbol = f"lw_{name}_{suffix(kind)}{'_fast' if flags else ''}"
        result = body(m, *operands)
        listed = ", ".join(f"{kind} {x}" for x in operands)
        header = f"define internal {_convention(target, lanes * bits)}{kind} @{symbol}({listed})"
        text = f"{header} memory(none) willreturn {ATTRIBUTES} {{\n{function.body()}\n  ret {kind} {result}\n}}"
        _known_apart[key] = Apart(symbol, frozenset(function.declarations), frozenset((*function.constants, text)))
    return _known_apart[key]


def any_lane(scope: Scope, mask: str, lanes: int) -> str:
    """Whether any lane of a vector of i1 is set."""
    if lanes == 1:
        return mask
    bits = scope.emit(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    return scope.emit(f"icmp ne i{lanes} {bits}, 0")
