"""The op table: every operation of the IR, by name."""
from __future__ import annotations

from types import ModuleType

from loopwright.ir.op import Op
from loopwright.ir.ops import (
    arithmetic,
    bitwise,
    broadcasting,
    callbacks,
    checks,
    collectives,
    comparison,
    construct,
    contraction,
    control,
    convolution,
    custom,
    fft,
    gradients,
    implicit,
    indexing,
    linalg,
    random,
    recomputation,
    reductions,
    selection,
    sorting,
    special,
    structural,
    transcendental,
    windows,
)


def _ops_of(*modules: ModuleType) -> dict[str, Op]:
    table: dict[str, Op] = {}
    for module in modules:
        for op in vars(module).values():
            if isinstance(op, Op) and table.setdefault(op.name, op) is not op:
                raise ValueError(f"two ops are called {op.name}")
    return table


TABLE = _ops_of(
    callbacks, checks,
    arithmetic, bitwise, broadcasting, collectives, comparison, construct, contraction, control, custom, gradients, implicit,
    indexing, fft, linalg, random, recomputation, reductions, selection, sorting, special, structural, transcendental, windows,
    convolution,
)
