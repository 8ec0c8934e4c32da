"""Control flow: switch, scan and while as nodes with regions, and trips, which makes a size of a number.

Regions are closed graphs over the symbols of the graph around them. `switch` and `scan` have modules of their own.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.dims import Dim, symbol_of
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Op
from loopwright.ir.ops.branching import switch
from loopwright.ir.ops.regions import check_types, split, types_of
from loopwright.ir.ops.scanning import scan
from loopwright.ir.types import BOOL, I64, ArrayType

__all__ = ["scan", "switch", "trips", "while_"]


# ---- while ----------------------------------------------------------------------------------------
def _while_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], condition_constants: int,
                 body_constants: int) -> tuple[ArrayType, ...]:
    condition, body = regions
    for_condition, for_body, carry = split(types, condition_constants, body_constants)
    check_types("while, parameters of the condition", types_of(condition.params), [*for_condition, *carry])
    check_types("while, the condition", [ArrayType((), BOOL)], types_of(condition.results))
    check_types("while, parameters of the body", types_of(body.params), [*for_body, *carry])
    check_types("while, the new carry", carry, types_of(body.results))
    return tuple(types_of(body.results))


def _while_numpy(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], condition_constants: int,
                 body_constants: int) -> tuple[Any, ...]:
    for_condition, for_body, state = split(arrays, condition_constants, body_constants)
    holds, step = (Runner(g, sizes) for g in regions)
    while holds([*for_condition, *state])[0]:
        state = step([*for_body, *state])
    return tuple(state)


while_ = Op(
    name="while",
    doc="while(*condition constants, *body constants, *carry) with regions condition(condition constants, carry) -> bool[] and "
        "body(body constants, carry) -> carry, run while the condition holds. Results: the carry. The attributes are counts.",
    infer=_while_infer,
    numpy=_while_numpy,
)


# ---- trips ----------------------------------------------------------------------------------------
def _trips_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], size: Dim) -> tuple[ArrayType, ...]:
    if len(types) != 1 or types[0].shape or types[0].dtype != I64:
        raise DTypeError(f"trips: the count must be i64[], got {', '.join(map(str, types))}")
    if symbol_of(size) is None:
        raise ShapeError(f"trips: {size} must be one symbol")
    return (types[0],)


trips = Op(
    name="trips",
    doc="The count, i64[], itself; from here on the symbol `size` is that number: a loop whose trip count is data has arrays "
        "with a row per trip. Such arrays are never results of a whole program.",
    infer=_trips_infer,
    numpy=lambda count, size: count,
    binds="size",
)
