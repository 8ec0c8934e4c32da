"""CUDA text under construction: braces, lines, and names that are given once.

Guarantees: a name is declared before it is used and visible where it is used: what a block computed is known to the
blocks inside it and to no others.
"""
from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from loopwright.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64

HALF = (F16, BF16)
INTEGER_TYPES = {I8: "signed char", I16: "short", I32: "int", I64: "long long", U8: "unsigned char", U16: "unsigned short",
                 U32: "unsigned", U64: "unsigned long long"}


def register_type(dtype: np.dtype) -> str:
    """The C type of a number: half floats are held in f32, rounded."""
    if dtype == BOOL:
        return "bool"
    return "float" if dtype in (*HALF, F32) else "double" if dtype == F64 else INTEGER_TYPES[dtype]


def memory_type(dtype: np.dtype) -> str:
    """The C type of an element in memory: bool is a byte, half floats are their bits."""
    return "unsigned char" if dtype == BOOL else "unsigned short" if dtype in HALF else register_type(dtype)


def literal(value: complex | float | int | bool, dtype: np.dtype) -> str:
    """A constant, exactly."""
    exact = np.asarray(value).astype(dtype)
    if dtype == BOOL:
        return "true" if exact else "false"
    if dtype in INTEGER_TYPES:
        return _integer(int(exact), dtype)
    return float_literal(float(exact), 64 if dtype == F64 else 32)


def float_literal(value: float, bits: int) -> str:
    """An exact constant; f32 constants are rounded first."""
    if bits == 32:
        with np.errstate(all="ignore"):
            value = float(np.float32(value))
    if not np.isfinite(value):
        if bits == 32:
            return f"__uint_as_float(0x{struct.unpack('<I', struct.pack('<f', value))[0]:08x}u)"
        return f"__longlong_as_double({_integer(struct.unpack('<q', struct.pack('<d', value))[0], I64)})"
    text = repr(value) if abs(value) < 1e5 and value == round(value, 3) else _hexadecimal(value)
    text = text + ("f" if bits == 32 else "")
    return f"({text})" if text.startswith("-") else text


def _hexadecimal(value: float) -> str:
    digits, exponent = value.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}p{exponent}"


def _integer(value: int, dtype: np.dtype) -> str:
    if dtype == I64:
        return "(-0x7fffffffffffffffll - 1)" if value == -1 << 63 else f"({value}ll)" if value < 0 else f"{value}ll"
    if dtype == I32:
        return "(-0x7fffffff - 1)" if value == -1 << 31 else f"({value})" if value < 0 else str(value)
    if dtype in (U32, U64):
        return f"{value}{'u' if dtype == U32 else 'ull'}"
    return f"({INTEGER_TYPES[dtype]})({value})"


class Block:
    """Lines between two braces. `values`: what was computed here, by key, for this block and those inside it."""

    def __init__(self, parent: Block | None = None) -> None:
        self.parent = parent
        self.lines: list[str] = []
        self.values: dict[object, str] = {}
        self.numbers: Iterator[int] = parent.numbers if parent else itertools.count()
        self.depth: int = parent.depth + 1 if parent else 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, prefix: str = "v") -> str:
        return f"{prefix}{next(self.numbers)}"

    def let(self, kind: str, value: str, prefix: str = "v") -> str:
        """A constant of that value."""
        name = self.fresh(prefix)
        self.line(f"const {kind} {name} = {value};")
        return name

    def variable(self, kind: str, value: str, prefix: str = "v") -> str:
        """A variable that starts as the value."""
        name = self.fresh(prefix)
        self.line(f"{kind} {name} = {value};")
        return name

    def find(self, key: object) -> str | None:
        block: Block | None = self
        while block is not None:
            if key in block.values:
                return block.values[key]
            block = block.parent
        return None

    @contextmanager
    def inner(self, header: str) -> Iterator[Block]:
        """A block inside this one: `header {`."""
        inside = Block(self)
        yield inside
        self.line(f"{header} {{")
        self.lines += inside.lines
        self.line("}")

    def otherwise(self, inside: Block) -> None:
        """Continue the block that was just closed with an else."""
        self.lines[-1] += " else {"
        self.lines += inside.lines
        self.line("}")
