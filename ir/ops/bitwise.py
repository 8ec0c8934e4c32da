"""Bits of integers; on bool the logical operations. No tangents."""
from __future__ import annotations

import numpy as np

from loopwright.ir.ops.elementwise import BITS, between, elementwise
from loopwright.ir.types import INTEGERS

_shifts = {1: between(0, 70)}  # past every width

bitwise_not = elementwise("bitwise_not", np.bitwise_not, 1, BITS, doc="Every bit flipped; on bool, not.")
bitwise_and = elementwise("bitwise_and", np.bitwise_and, 2, BITS, doc="Bits set in both; on bool, and.")
bitwise_or = elementwise("bitwise_or", np.bitwise_or, 2, BITS, doc="Bits set in either; on bool, or.")
bitwise_xor = elementwise("bitwise_xor", np.bitwise_xor, 2, BITS, doc="Bits set in one alone; on bool, !=.")
left_shift = elementwise(
    "left_shift", np.left_shift, 2, INTEGERS, draw=_shifts,
    doc="x << y; a count that is negative or no less than the width gives 0.",
)
right_shift = elementwise(
    "right_shift", np.right_shift, 2, INTEGERS, draw=_shifts,
    doc="x >> y, arithmetic for signed x; a count that is negative or no less than the width gives 0, or -1 for x < 0.",
)
