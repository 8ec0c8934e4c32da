"""Square matrices in registers, transposed.

    transposed(scope, "<16 x float>", rows)     16 registers, the columns of a matrix of 16 registers

Rows go in pairs that lie a power of 2 apart; of each pair two shuffles make two other rows. They are those that processors have
an instruction for, without a register that says what goes where: parts of 128 bits are interleaved within themselves, and whole
parts change places after it.

Guarantees: bits move as they are, those of NaNs too.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from loopwright.lower.codegen.machine import suffix
from loopwright.lower.codegen.text import Scope

PART = 128  # bits
_FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}  # of an element


def transposed(scope: Scope, kind: str, rows: Sequence[str]) -> list[str]:
    """The columns of a matrix that has as many rows as `kind`, a type of vectors, has lanes."""
    lanes, found, distance = len(rows), list(rows), 1
    part = min(lanes, PART // _bits(kind))
    while distance < lanes:
        for k in range(lanes):
            if k & distance == 0:
                pair = f"{kind} {found[k]}, {kind} {found[k + distance]}"
                found[k], found[k + distance] = (scope.emit(f"shufflevector {pair}, <{lanes} x i32> <{order}>")
                                                 for order in _orders(lanes, part, distance))
        distance *= 2
        if distance < lanes:
            found = [_apart(scope, kind, x, lanes) for x in found]
    return [found[_mirrored(k, part)] for k in range(lanes)]


def _bits(kind: str) -> int:
    """Of one element."""
    element = kind[:-1].split(" x ")[1]
    return _FLOATS.get(element) or int(element[1:])


def _apart(scope: Scope, kind: str, register: str, lanes: int) -> str:
    """The same register, behind which LLVM does not look: it would seek one shuffle in place of several in a row, in vain, for
    half of the time that such a loop takes to compile."""
    floats = f"<{lanes * _bits(kind) // 32} x float>"
    if kind == floats:
        return scope.call(kind, f"llvm.arithmetic.fence.{suffix(kind)}", [(kind, register)])
    fenced = _apart(scope, floats, scope.emit(f"bitcast {kind} {register} to {floats}"), lanes * _bits(kind) // 32)
    return scope.emit(f"bitcast {floats} {fenced} to {kind}")


@cache
def _orders(lanes: int, part: int, distance: int) -> tuple[str, str]:
    """What two rows become: their elements by number, those of the second after the first's."""
    if distance < part:  # within parts: blocks of `distance` elements of the lower halves in turn, then of the upper halves
        blocks = [first + k for first in range(0, lanes, part) for k in range(0, part // 2, distance)]
        low = [x for k in blocks for x in (*range(k, k + distance), *range(lanes + k, lanes + k + distance))]
        step = part // 2
    else:  # every other part, then the rest
        low = [first + k for first in range(0, 2 * lanes, 2 * part) for k in range(part)]
        step = part
    first, second = (", ".join([f"i32 {x + more}" for x in low]) for more in (0, step))
    return first, second


def _mirrored(k: int, part: int) -> int:
    """Which row is the column k: interleaving leaves them in the order of the reversed bits of their places within a part."""
    bits = part.bit_length() - 1
    return k - k % part + sum(1 << bits - 1 - bit for bit in range(bits) if k >> bit & 1)
