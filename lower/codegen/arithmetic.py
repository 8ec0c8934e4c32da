"""Elementwise functions on registers, with NumPy's meaning for every dtype.

Guarantees: no instruction here traps or gives poison: integer division by zero is 0, INT_MIN / -1 wraps, over-wide
shifts give what NumPy gives. Floats round once per function (halves after it, in f32).
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import DTypeError
from loopwright.ir.threefry import threefry
from loopwright.ir.types import BOOL, FLOATS, INTEGERS
from loopwright.kernels import maths, maths_special
from loopwright.kernels.maths_powers import MOST, PLAIN, by_squares
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.conversions import HALF, from_memory, machine_for, rounded, to_memory
from loopwright.lower.codegen.integer_division import floor_divide, fmod, number_of, remainder, spelled
from loopwright.lower.codegen.machine import (
    SIGNED_COMPARE,
    UNSIGNED_COMPARE,
    Machine,
    any_lane,
    register_type,
    suffix,
    vector_type,
)
from loopwright.lower.codegen.text import Scope, repeat
from loopwright.lower.codegen.two_vectors import TwoVectors, fill_two
from loopwright.lower.target import Target

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Lanes:
    """Where an element of dtype is computed: `lanes` at a time at the end of `scope`."""

    scope: Scope
    dtype: np.dtype
    lanes: int
    target: Target
    flags: str = ""

    @property
    def kind(self) -> str:
        return vector_type(register_type(self.dtype), self.lanes)

    @property
    def signed(self) -> bool:
        return self.dtype.kind == "i"

    @property
    def bits(self) -> int:
        return 8 * self.dtype.itemsize

    @property
    def machine(self) -> Machine:
        return machine_for(self.dtype, self.scope, self.lanes, self.target, self.flags)

    def constant(self, value: float | int) -> str:
        return constant_text(value, register_type(self.dtype), self.lanes)

    def op(self, name: str, a: str, b: str | int) -> str:
        return self.scope.emit(f"{name} {self.kind} {a}, {b if isinstance(b, str) else self.constant(b)}")

    def compare(self, relation: str, a: str, b: str | int) -> str:
        names = SIGNED_COMPARE if self.signed else UNSIGNED_COMPARE
        return self.op(f"icmp {names[relation]}", a, b)

    def mask(self, op: str, a: str, b: str) -> str:
        return self.scope.emit(f"{op} {vector_type('i1', self.lanes)} {a}, {b}")

    def select(self, mask: str, a: str | int, b: str | int) -> str:
        first, second = (x if isinstance(x, str) else self.constant(x) for x in (a, b))
        return self.scope.emit(f"select {vector_type('i1', self.lanes)} {mask}, {self.kind} {first}, {self.kind} {second}")


Emit = Callable[..., str]  # (Lanes, *registers) -> register


def emitter(fn: str, dtype: np.dtype, *, apart: bool = False) -> Emit:
    """How fn is computed on operands of dtype; `apart`: by a call, if it is a formula. DTypeError where NumPy has no such
    function."""
    if apart and fn in FORMULAS and dtype in FLOATS:
        return _formula(lambda m, *args: m.apart(fn, args, FORMULAS[fn]))
    table = FLOAT if dtype in FLOATS else INTEGER if dtype in INTEGERS else BOOLEAN if dtype == BOOL else {}
    found = table.get(fn)
    if found is None:
        raise DTypeError(f"{fn} on {dtype}: the function is not defined for it")
    return found


# ---- floats -------------------------------------------------------------------------------------
def _float(function: Callable[..., str]) -> Emit:
    """A function of the machine; for half floats computed in f32 and rounded."""
    def emit(at: Lanes, *args: str) -> str:
        m = at.machine
        result = function(m, *args)
        return rounded(m, result, at.dtype) if at.dtype in HALF else result
    return emit


def _formula(function: Callable[..., str]) -> Emit:
    """The same as it is written, with `fast_math`, too: sums that keep what others lose would be 0 in another order."""
    def plain(m: Machine, *args: str) -> str:
        machine = TwoVectors if fill_two(m.lanes, m.bits, m.target) else Machine
        return function(machine(m.scope, m.bits, m.lanes, m.target), *args)
    return _float(plain)


def _exact(function: Callable[..., str]) -> Emit:
    """A function whose result is an operand, a mask or exact: nothing to round."""
    return lambda at, *args: function(at.machine, *args)


def whole_power(at: Lanes, x: str, n: int) -> str | None:
    """x^n by products, or None where the power of any exponent takes no longer; half floats round once."""
    if at.dtype not in FLOATS:
        return by_squares(partial(at.op, "mul"), x, n) if 1 <= n <= MOST else None
    found = maths.whole_power(n)
    return None if found is None else (_float if n in PLAIN else _formula)(found)(at, x)


def _sign(m: Machine, x: str) -> str:
    unit = m.select(m.compare("lt", x, 0.0), -1.0, m.select(m.compare("eq", x, 0.0), 0.0, x))
    return m.select(m.compare("gt", x, 0.0), 1.0, unit)


def _extreme(relation: str, other_if_nan: bool) -> Callable[[Machine, str, str], str]:
    """maximum and minimum give the NaN, fmax and fmin the other operand."""
    def function(m: Machine, a: str, b: str) -> str:
        if not other_if_nan and _is_number(b):
            return m.select(m.compare({"ge": "gt", "le": "lt"}[relation], b, a), b, a)
        nan = m.compare("unordered", b, b) if other_if_nan else m.compare("unordered", a, a)
        return m.select(m.either(m.compare(relation, a, b), nan), a, b)
    return function


def _is_number(text: str) -> bool:
    """Whether an operand is a known float other than NaN."""
    found = re.search(r"0x([0-9A-F]{16})", text)
    return "%" not in text and found is not None and int(found[1], 16) & (1 << 63) - 1 <= 0x7FF << 52


def _root_cube(m: Machine, x: str) -> str:
    """2/3 x^(-3/2): see `kernels/root_cube.py`."""
    y = m.root_estimate(x)
    t = m.mul(y, y)
    if m.target.has_masks:
        return m.mul(m.mul(y, t), m.sub(5 / 3, m.mul(x, t)))
    d = m.fma(m.neg(x), t, 1.0)
    return m.mul(m.mul(y, t), m.fma(d, m.fma(d, 1.25, 1.0), 2 / 3))


def _isinf(m: Machine, x: str) -> str:
    return m.compare("eq", m.abs(x), float("inf"))


def _isfinite(m: Machine, x: str) -> str:
    return m.compare("lt", m.abs(x), float("inf"))


def _signbit(m: Machine, x: str) -> str:
    return m.icompare("lt", m.bits_of(x), 0)


def _nextafter(at: Lanes, x: str, y: str) -> str:
    """A step of one in the bits, away from zero or toward it."""
    m = at.machine
    bits = _bits(at, x)
    outward = m.negate(m.differ(m.compare("lt", x, y), m.icompare("ge", bits, 0)))
    moved = _from_bits(at, m.iadd(bits, m.iselect(outward, 1, -1)))
    tiny = m.copysign(_from_bits(at, m.integer(1)), y)
    moved = m.select(m.compare("eq", x, 0.0), tiny, moved)
    moved = m.select(m.compare("eq", x, y), y, moved)
    return m.select(m.compare("unordered", x, y), m.add(x, y), moved)


def _bits(at: Lanes, x: str) -> str:
    m = at.machine
    if at.dtype not in HALF:
        return m.bits_of(x)
    return m.scope.emit(f"sext {vector_type('i16', m.lanes)} {to_memory(m, x, at.dtype)} to {m.int_type}")


def _from_bits(at: Lanes, bits: str) -> str:
    m = at.machine
    if at.dtype not in HALF:
        return m.from_bits(bits)
    return from_memory(m, m.scope.emit(f"trunc {m.int_type} {bits} to {vector_type('i16', m.lanes)}"), at.dtype)


FORMULAS: dict[str, Callable[..., str]] = {**maths.FUNCTIONS, **maths_special.FUNCTIONS}
FLOAT: dict[str, Emit] = {
    **{name: _formula(function) for name, function in FORMULAS.items()},
    "neg": _exact(Machine.neg), "abs": _exact(Machine.abs), "sign": _exact(_sign), "floor": _exact(Machine.floor),
    "ceil": _exact(Machine.ceil), "trunc": _exact(Machine.trunc), "rint": _exact(Machine.round),
    "sqrt": _float(Machine.sqrt), "root_cube": _float(_root_cube),
    "isnan": _exact(lambda m, x: m.compare("unordered", x, x)),
    "isinf": _exact(_isinf), "isfinite": _exact(_isfinite), "signbit": _exact(_signbit),
    "add": _float(Machine.add), "sub": _float(Machine.sub), "mul": _float(Machine.mul), "div": _float(Machine.div),
    "max": _exact(_extreme("ge", False)), "min": _exact(_extreme("le", False)),
    "fmax": _exact(_extreme("ge", True)), "fmin": _exact(_extreme("le", True)),
    "copysign": _exact(Machine.copysign), "nextafter": _nextafter,
    **{name: _exact(lambda m, a, b, name=name: m.compare(name, a, b)) for name in COMPARISONS},
}


# ---- integers -----------------------------------------------------------------------------------
def _left_shift(at: Lanes, a: str, b: str) -> str:
    number = number_of(b)
    if number is not None and 0 <= number < at.bits:
        return at.op("shl", a, spelled(at, number))
    fits = at.op("icmp ult", b, at.bits)
    return at.select(fits, at.op("shl", a, at.select(fits, b, 0)), 0)


def _right_shift(at: Lanes, a: str, b: str) -> str:
    number = number_of(b)
    if number is not None and 0 <= number < at.bits:
        return at.op("ashr" if at.signed else "lshr", a, spelled(at, number))
    fits = at.op("icmp ult", b, at.bits)
    if at.signed:
        return at.op("ashr", a, at.select(fits, b, at.bits - 1))
    return at.select(fits, at.op("lshr", a, at.select(fits, b, 0)), 0)


def _integer_power(at: Lanes, a: str, b: str) -> str:
    """Squaring; the caller has seen to negative exponents."""
    count = at.select(at.compare("lt", b, 0), 0, b) if at.signed else b

    def step(scope: Scope, now: list[str]) -> tuple[str, list[str]]:
        here = replace(at, scope=scope)
        result, base, left = now
        odd = here.op("icmp ne", here.op("and", left, 1), 0)
        result = here.select(odd, here.op("mul", result, base), result)
        left = here.op("lshr", left, 1)
        more = any_lane(scope, here.op("icmp ne", left, 0), at.lanes)
        return more, [result, here.op("mul", base, base), left]
    return repeat(at.scope, [(at.kind, at.constant(1)), (at.kind, a), (at.kind, count)], step)[0]


@dataclass(frozen=True)
class _Words:
    """The arithmetic of `ir.threefry` on registers."""

    at: Lanes

    def add(self, a: str, b: str | int) -> str:
        return self.at.op("add", a, b)

    def xor(self, a: str, b: str | int) -> str:
        return self.at.op("xor", a, b)

    def rotate(self, a: str, by: int) -> str:
        kind, count = self.at.kind, spelled(self.at, by)
        return self.at.scope.call(kind, f"llvm.fshl.{suffix(kind)}", [(kind, a), (kind, a), (kind, count)])


def _random_word(number: int) -> Emit:
    """A word of a block; the other one is computed with it, and not again."""
    def emit(at: Lanes, *words: str) -> str:
        key = (threefry, at.lanes, *words)
        block = at.scope.find(key)
        if block is None:
            block = at.scope.values[key] = threefry(_Words(at), *words)
        return str(block[number])
    return emit


def _integer_abs(at: Lanes, x: str) -> str:
    return at.select(at.compare("lt", x, 0), at.op("sub", at.constant(0), x), x) if at.signed else x


def _integer_sign(at: Lanes, x: str) -> str:
    below = at.select(at.compare("lt", x, 0), -1, 0) if at.signed else at.constant(0)
    return at.select(at.compare("gt", x, 0), 1, below)


def _integer_extreme(relation: str) -> Emit:
    return lambda at, a, b: at.select(at.compare(relation, a, b), a, b)


def _same(at: Lanes, x: str) -> str:
    return x


def _always(value: bool) -> Emit:
    return lambda at, x: constant_text(value, "i1", at.lanes)


def _plain(name: str) -> Emit:
    return lambda at, a, b: at.op(name, a, b)


def _comparisons() -> dict[str, Emit]:
    return {name: (lambda at, a, b, name=name: at.compare(name, a, b)) for name in COMPARISONS}


INTEGER: dict[str, Emit] = {
    "neg": lambda at, x: at.op("sub", at.constant(0), x), "abs": _integer_abs, "sign": _integer_sign,
    "floor": _same, "ceil": _same, "trunc": _same, "rint": _same,
    "isnan": _always(False), "isinf": _always(False), "isfinite": _always(True),
    "signbit": lambda at, x: at.compare("lt", x, 0), "bitwise_not": lambda at, x: at.op("xor", x, -1),
    "add": _plain("add"), "sub": _plain("sub"), "mul": _plain("mul"),
    "floor_divide": floor_divide, "remainder": remainder, "fmod": fmod,
    "power": _integer_power, "max": _integer_extreme("ge"), "min": _integer_extreme("le"),
    "fmax": _integer_extreme("ge"), "fmin": _integer_extreme("le"),
    "bitwise_and": _plain("and"), "bitwise_or": _plain("or"), "bitwise_xor": _plain("xor"),
    "left_shift": _left_shift, "right_shift": _right_shift,
    "threefry_first": _random_word(0), "threefry_second": _random_word(1), **_comparisons(),
}

BOOLEAN: dict[str, Emit] = {
    "abs": _same, "floor": _same, "ceil": _same, "trunc": _same,
    "isnan": _always(False), "isinf": _always(False), "isfinite": _always(True),
    "bitwise_not": lambda at, x: at.op("xor", x, constant_text(True, "i1", at.lanes)),
    "add": _plain("or"), "mul": _plain("and"), "max": _plain("or"), "min": _plain("and"),
    "fmax": _plain("or"), "fmin": _plain("and"),
    "bitwise_and": _plain("and"), "bitwise_or": _plain("or"), "bitwise_xor": _plain("xor"), **_comparisons(),
}
