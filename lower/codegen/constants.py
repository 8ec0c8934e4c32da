"""Constants as LLVM spells them, exactly."""
from __future__ import annotations

import math
import struct
from functools import lru_cache


def float_text(value: float, element: str) -> str:
    """A floating constant, exactly; f32 constants are rounded first."""
    if element == "float":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant_text(value: float | int | bool, element: str, lanes: int) -> str:
    """A constant of a scalar or vector type (without the type)."""
    if element in ("float", "double"):
        text = float_text(float(value), element)
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if lanes == 1 else f"splat ({element} {text})"


@lru_cache(maxsize=1024)
def array_text(doubles: bytes, element: str) -> str:
    """An array of numbers, which are told by their bits: equal numbers may be different zeros."""
    values = struct.unpack(f"<{len(doubles) // 8}d", doubles)
    return f"[{len(values)} x {element}] [{', '.join(f'{element} {float_text(v, element)}' for v in values)}]"
