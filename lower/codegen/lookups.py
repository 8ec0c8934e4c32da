"""Tables of numbers that each lane reads at an index of its own.

Guarantees: numbers exactly as they are; of an index only the low bits count, but for `integers`.

Where the machine has instructions that permute registers, a table is registers, and one or two instructions. Elsewhere lanes
read memory one by one: for a single number, or for a row of all tables' numbers at that index, which lie together, two at a
time; two shuffles make columns of four of those. That takes three instructions for each table, where numbers one by one take
fourteen.
"""
from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

from loopwright.lower.codegen.constants import array_text, constant_text

if TYPE_CHECKING:
    from loopwright.lower.codegen.machine import Machine

WHOLE_BITS = 512  # of a register that has instructions for tables
MOST_HALVES = 32  # singles of a table in registers of eight


def table(m: Machine, values: tuple[float, ...], index: str) -> str:
    """values[index mod their number], a power of two."""
    if _permutes(m, len(values)):
        return m.in_rows(lambda one, index: _permuted(one, values, index), (f"i{m.bits}", index))
    if _permutes_halves(m, len(values)):
        return m.in_rows(lambda one, index: _permuted_halves(one, values, index), ("i32", index), row=8)
    return _read(m, m.element, _global(m, values), m.iand(index, len(values) - 1))


def tables(m: Machine, values: Sequence[tuple[float, ...]], index: str) -> list[str]:
    """The same of several tables of as many numbers."""
    count = len(values[0])
    if m.bits == 32 or m.lanes % 2 or len(values) == 1 or _permutes(m, count):
        return [table(m, one, index) for one in values]
    width = 1 << (len(values) - 1).bit_length()  # of a row
    name = _global(m, tuple(chain.from_iterable((*row, *[0.0] * (width - len(row))) for row in zip(*values, strict=True))))
    rows = m.shl(m.iand(index, count - 1), (8 * width).bit_length() - 1)
    ats = [m.scope.emit(f"extractelement {m.int_type} {rows}, i64 {lane}") for lane in range(m.lanes)]
    places = [m.scope.emit(f"getelementptr i8, ptr {name}, i64 {at}") for at in ats]
    return [column for k in range(0, len(values), 2) for column in _columns(m, places, k)][:len(values)]


def _columns(m: Machine, places: Sequence[str], first: int) -> list[str]:
    """Two neighbours of each row, as columns."""
    ats = [_at(m, place, first) for place in places]
    pairs = [m.scope.emit(f"load <2 x double>, ptr {at}, align 16, !invariant.load !{{}}") for at in ats]
    even, odd = (_joined(m, pairs[which::2]) for which in (0, 1))
    return [m.shuffled(even, odd, m.float_type, [k for own in range(which, m.lanes, 2) for k in (own, m.lanes + own)])
            for which in (0, 1)]


def _at(m: Machine, place: str, number: int) -> str:
    return m.scope.emit(f"getelementptr i8, ptr {place}, i64 {8 * number}") if number else place


def _joined(m: Machine, parts: Sequence[str]) -> str:
    """Vectors end to end: as many as a power of two."""
    lanes = 2
    while len(parts) > 1:
        lanes *= 2
        kind = f"<{lanes // 2} x {m.element}>"
        parts = [m.shuffled(a, b, kind, range(lanes)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def integers(m: Machine, values: tuple[int, ...], index: str) -> str:
    """values[index] for an index that is in range."""
    name = _array(m, f"[{len(values)} x i{m.bits}] [{', '.join(f'i{m.bits} {v}' for v in values)}]")
    return _read(m, f"i{m.bits}", name, index)


def _read(m: Machine, element: str, name: str, index: str) -> str:
    """A number for each lane, one by one."""
    where = m.scope.emit(f"getelementptr {element}, ptr {name}, {m.int_type} {index}")
    if m.lanes == 1:
        return m.scope.emit(f"load {element}, ptr {where}, align {m.bits // 8}")
    kind = f"<{m.lanes} x {element}>"
    end = f"v{m.lanes}{element if element.startswith('i') else f'f{m.bits}'}.v{m.lanes}p0"
    return m.scope.call(kind, f"llvm.masked.gather.{end}", [
        (f"<{m.lanes} x ptr>", where), ("i32", str(m.bits // 8)), (f"<{m.lanes} x i1>", constant_text(True, "i1", m.lanes)),
        (kind, "zeroinitializer")])


# ---- registers that are permuted ----------------------------------------------------------------
def _permutes(m: Machine, count: int) -> bool:
    return m.is_whole and count * m.bits <= 4 * WHOLE_BITS


def _permutes_halves(m: Machine, count: int) -> bool:
    return m.bits == 32 and m.lanes % 8 == 0 and "avx2" in m.target.enabled and count <= MOST_HALVES


def _permuted(m: Machine, values: tuple[float, ...], index: str) -> str:
    """A table that fits up to four registers; the instructions ignore the index's high bits."""
    kind = m.float_type
    part = _rows_of(m, values)
    if len(part) == 1:
        end = "sf" if m.bits == 32 else "df"
        return m.scope.call(kind, f"llvm.x86.avx512.permvar.{end}.512", [(kind, part[0]), (m.int_type, index)])
    end = "ps" if m.bits == 32 else "pd"
    found = [m.scope.call(kind, f"llvm.x86.avx512.vpermi2var.{end}.512", [(kind, a), (m.int_type, index), (kind, b)])
             for a, b in zip(part[::2], part[1::2], strict=True)]
    return _chosen(m, found, index, 2 * m.lanes)


def _permuted_halves(m: Machine, values: tuple[float, ...], index: str) -> str:
    """The same for registers of eight singles."""
    kind = m.float_type
    found = [m.scope.call(kind, "llvm.x86.avx2.permps", [(kind, part), (m.int_type, index)]) for part in _rows_of(m, values)]
    return _chosen(m, found, index, m.lanes)


def _rows_of(m: Machine, values: tuple[float, ...]) -> list[str]:
    """A table's registers; a short one repeats."""
    values = values * max(1, m.lanes // len(values))
    name, kind, size = _global(m, values), m.float_type, m.lanes * m.bits // 8
    places = [f"getelementptr (i8, ptr {name}, i64 {size * k})" for k in range(len(values) // m.lanes)]
    return [m.scope.emit(f"load {kind}, ptr {place}, align {size}, !invariant.load !{{}}") for place in places]


def _chosen(m: Machine, found: list[str], index: str, size: int) -> str:
    """found[index // size mod their number], by halves."""
    while len(found) > 1:
        upper = m.icompare("ne", m.iand(index, size), 0)
        found = [m.select(upper, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
        size *= 2
    return found[0]


# ---- constants ----------------------------------------------------------------------------------
def _global(m: Machine, values: tuple[float, ...]) -> str:
    return _array(m, array_text(struct.pack(f"<{len(values)}d", *values), m.element))


def _array(m: Machine, initial: str) -> str:
    name = f"@table_{_digest(initial):016x}"
    m.scope.function.constants.add(f"{name} = private unnamed_addr constant {initial}, align 64")
    return name


@lru_cache(maxsize=1024)
def _digest(text: str) -> int:
    """A stable number for text, so that equal tables share one name in a module."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")
