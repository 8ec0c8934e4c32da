"""Transposed rows for compiled code: see lower/codegen/transposes.py. Each is compiled once."""
from __future__ import annotations

from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import transposes_code
from loopwright.lower.runtime.once import once
from loopwright.lower.target import Target, host_target

WAYS = ("columns_of_rows", "rows_of_columns")
NAMES = tuple(f"lw_{way}_{size}x{lanes}" for way in WAYS for size in (4, 8) for lanes in (4, 8, 16) if size * lanes <= 64)


def address(name: str) -> int:
    """The address of one of these functions."""
    return _library(name, host_target())[name]


@once
def _library(name: str, target: Target) -> Library:
    return load(transposes_code(name, target), {}, [name])
