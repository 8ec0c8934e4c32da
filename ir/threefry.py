"""Threefry-2x32 with 20 rounds, written once against `Words`: NumPy's for its meaning, registers in kernels.

The algorithm is Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""
from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from loopwright.ir.types import U32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
Word = Any  # 32 bits: an array, or a register of the arithmetic


class Words(Protocol):
    """Arithmetic modulo 2^32; the second operand may be a number."""

    def add(self, a: Word, b: Word | int) -> Word: ...
    def xor(self, a: Word, b: Word | int) -> Word: ...
    def rotate(self, a: Word, by: int) -> Word: ...


class NumpyWords:
    """The arithmetic on uint32 arrays."""

    def add(self, a: Word, b: Word | int) -> Word:
        return np.add(a, np.asarray(b, U32))

    def xor(self, a: Word, b: Word | int) -> Word:
        return np.bitwise_xor(a, np.asarray(b, U32))

    def rotate(self, a: Word, by: int) -> Word:
        return np.bitwise_or(np.left_shift(a, U32.type(by)), np.right_shift(a, U32.type(32 - by)))


def threefry(m: Words, first: Word, second: Word, x: Word, y: Word) -> tuple[Word, Word]:
    """The block of counter (x, y) under the key (first, second)."""
    keys = (first, second, m.xor(m.xor(first, second), PARITY))
    x, y = m.add(x, first), m.add(y, second)
    for group in range(5):
        for by in ROTATIONS[group % 2]:
            x = m.add(x, y)
            y = m.xor(m.rotate(y, by), x)
        x = m.add(x, keys[(group + 1) % 3])
        y = m.add(y, m.add(keys[(group + 2) % 3], group + 1))
    return x, y
