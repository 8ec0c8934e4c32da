"""Changes of dtype, and the rounding of half floats, which registers hold as f32.

Guarantees: float to integer saturates and takes NaN to 0; every conversion to a half float rounds once, from f64 too.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.types import BF16, BOOL, F16, F32, F64, I32, is_float
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.machine import Machine, register_type, suffix, vector_type
from loopwright.lower.codegen.text import Scope
from loopwright.lower.target import Target

HALF = (F16, BF16)


def machine_for(dtype: np.dtype, scope: Scope, lanes: int, target: Target, flags: str = "") -> Machine:
    """The machine that computes floats of dtype: halves in f32."""
    return Machine(scope, 64 if dtype == F64 else 32, lanes, target, flags)


def rounded(m: Machine, value: str, dtype: np.dtype) -> str:
    """An f32 register rounded to the precision of a half float."""
    if dtype == F16 and m.target.has_half:
        half = vector_type("half", m.lanes)
        return m.scope.emit(f"fpext {half} {m.scope.emit(f'fptrunc {m.float_type} {value} to {half}')} to {m.float_type}")
    if dtype == F16:
        return _from_half_bits(m, _to_half_bits(m, value))
    return m.from_bits(m.shl(_to_bfloat_bits(m, value), 16))


def to_memory(m: Machine, value: str, dtype: np.dtype) -> str:
    """The i16 bits of a half float in an f32 register, which is rounded already."""
    short = vector_type("i16", m.lanes)
    if dtype == F16 and m.target.has_half:
        half = vector_type("half", m.lanes)
        return m.scope.emit(f"bitcast {half} {m.scope.emit(f'fptrunc {m.float_type} {value} to {half}')} to {short}")
    bits = _to_half_bits(m, value) if dtype == F16 else _to_bfloat_bits(m, value)
    return m.scope.emit(f"trunc {m.int_type} {bits} to {short}")


def from_memory(m: Machine, bits: str, dtype: np.dtype) -> str:
    """The f32 register for i16 bits of a half float."""
    short = vector_type("i16", m.lanes)
    if dtype == F16 and m.target.has_half:
        half = vector_type("half", m.lanes)
        return m.scope.emit(f"fpext {half} {m.scope.emit(f'bitcast {short} {bits} to {half}')} to {m.float_type}")
    wide = m.scope.emit(f"zext {short} {bits} to {m.int_type}")
    return _from_half_bits(m, wide) if dtype == F16 else m.from_bits(m.shl(wide, 16))


def _to_half_bits(m: Machine, value: str) -> str:
    """The rounding of IEEE binary32 to binary16 in integers: normal, denormal (by adding 0.5) and overflow or NaN."""
    bits = m.bits_of(value)
    sign = m.iand(bits, -(1 << 31))
    size = m.ixor(bits, sign)
    odd = m.iand(m.lshr(size, 13), 1)
    normal = m.lshr(m.iadd(m.iadd(size, ((15 - 127) << 23) + 0xFFF), odd), 13)
    small = m.isub(m.bits_of(m.add(m.from_bits(size), 0.5)), 0x3F000000)
    huge = m.iselect(m.icompare("gt", size, 0x7F800000), 0x7E00, 0x7C00)
    result = m.iselect(m.icompare("lt", size, 0x38800000), small, normal)
    result = m.iselect(m.icompare("ge", size, 0x47800000), huge, result)
    return m.ior(result, m.lshr(sign, 16))


def _from_half_bits(m: Machine, bits: str) -> str:
    sign = m.shl(m.iand(bits, 0x8000), 16)
    size = m.shl(m.iand(bits, 0x7FFF), 13)
    exponent = m.iand(size, 0x0F800000)
    normal = m.iadd(size, (127 - 15) << 23)
    special = m.iadd(normal, (128 - 16) << 23)
    denormal = m.bits_of(m.sub(m.from_bits(m.iadd(normal, 1 << 23)), 2.0 ** -14))
    result = m.iselect(m.icompare("eq", exponent, 0x0F800000), special, normal)
    return m.from_bits(m.ior(m.iselect(m.icompare("eq", exponent, 0), denormal, result), sign))


def _to_bfloat_bits(m: Machine, value: str) -> str:
    bits = m.bits_of(value)
    odd = m.iand(m.lshr(bits, 16), 1)
    near = m.lshr(m.iadd(m.iadd(bits, 0x7FFF), odd), 16)
    quiet = m.ior(m.lshr(m.iand(bits, -(1 << 31)), 16), 0x7FC0)
    return m.iselect(m.compare("unordered", value, value), quiet, near)


def convert(scope: Scope, value: str, source: np.dtype, to: np.dtype, lanes: int, target: Target) -> str:
    """One register from dtype `source` to dtype `to`."""
    if source == to:
        return value
    here, there = (vector_type(register_type(d), lanes) for d in (source, to))
    if to == BOOL:
        zero = constant_text(0, register_type(source), lanes)
        return scope.emit(f"fcmp une {here} {value}, {zero}" if is_float(source) else f"icmp ne {here} {value}, {zero}")
    if is_float(source):
        return _from_float(scope, value, source, to, lanes, target)
    if not is_float(to):
        if source.itemsize >= to.itemsize and source != BOOL:
            return scope.emit(f"trunc {here} {value} to {there}") if source.itemsize > to.itemsize else value
        return scope.emit(f"{'sext' if source.kind == 'i' else 'zext'} {here} {value} to {there}")
    result = scope.emit(f"{'sitofp' if source.kind == 'i' else 'uitofp'} {here} {value} to {there}")
    return rounded(machine_for(to, scope, lanes, target), result, to) if to in HALF else result


def bitcast(scope: Scope, value: str, source: np.dtype, to: np.dtype, lanes: int, target: Target) -> str:
    """One register of the same bits at a dtype of the same width."""
    if source in HALF:
        value = to_memory(machine_for(source, scope, lanes, target), value, source)
    elif is_float(source) and not is_float(to):
        value = machine_for(source, scope, lanes, target).bits_of(value)
    if to in HALF:
        return from_memory(machine_for(to, scope, lanes, target), value, to)
    return machine_for(to, scope, lanes, target).from_bits(value) if is_float(to) and not is_float(source) else value


def _from_float(scope: Scope, value: str, source: np.dtype, to: np.dtype, lanes: int, target: Target) -> str:
    here, there = (vector_type(register_type(d), lanes) for d in (source, to))
    if not is_float(to):
        if lanes > 1 and target.is_x86:
            return _to_integers(scope, value, F64 if source == F64 else F32, to, lanes)
        sign = "u" if to.kind == "u" else "s"
        return scope.call(there, f"llvm.fpto{sign}i.sat.{suffix(there)}.{suffix(here)}", [(here, value)])
    m = Machine(scope, 32, lanes, target)
    if to == F64:
        return m.widen(value)
    if source == F64:
        value = _to_odd(m, value) if to == F16 else m.narrow(value)
    return rounded(m, value, to) if to in HALF else value


def _to_integers(scope: Scope, value: str, source: np.dtype, to: np.dtype, lanes: int) -> str:
    """Floats to integers, lane by lane, where the machine leaves open what does not fit and LLVM would ask of each lane alone:
    clamped to the floats next to the least and the greatest integer first. An integer that is no float is put in afterwards."""
    wide = I32 if to.itemsize < 4 else to  # which has an instruction
    here, between, there = (vector_type(register_type(d), lanes) for d in (source, wide, to))
    mask = vector_type("i1", lanes)
    least, most = int(np.iinfo(to).min), int(np.iinfo(to).max)
    greatest = source.type(most)
    if int(greatest) > most:
        greatest = np.nextafter(greatest, source.type(0))

    def constant(x: float) -> str:
        return constant_text(float(x), register_type(source), lanes)

    def clamped(x: str, compare: str, bound: str) -> str:  # NaN gives the bound
        test = scope.emit(f"fcmp {compare} {here} {x}, {bound}")
        return scope.emit(f"select {mask} {test}, {here} {x}, {here} {bound}")
    inside = clamped(clamped(value, "ogt", constant(least)), "olt", constant(greatest))
    result = scope.emit(f"fpto{'u' if wide.kind == 'u' else 's'}i {here} {inside} to {between}")
    if int(greatest) < most:
        beyond = scope.emit(f"fcmp ogt {here} {value}, {constant(greatest)}")
        result = scope.emit(f"select {mask} {beyond}, {between} {constant_text(most, register_type(wide), lanes)}, "
                            f"{between} {result}")
    if least:
        number = scope.emit(f"fcmp ord {here} {value}, {value}")
        result = scope.emit(f"select {mask} {number}, {between} {result}, {between} zeroinitializer")
    return result if wide == to else scope.emit(f"trunc {between} {result} to {there}")


def _to_odd(m: Machine, value: str) -> str:
    """f64 to f32 rounded to odd: where inexact, the neighbour with its last bit set, so that a second rounding is exact."""
    near = m.narrow(value)
    back = m.widen(near)
    wide = m.wide
    inexact = wide.compare("ne", back, value)
    even = m.icompare("eq", m.iand(m.bits_of(near), 1), 0)
    outward = wide.compare("gt", wide.abs(back), wide.abs(value))
    other = m.iadd(m.bits_of(near), m.iselect(outward, -1, 1))
    finite = m.compare("lt", m.abs(near), float("inf"))
    return m.select(m.both(m.both(inexact, even), finite), m.from_bits(other), near)
