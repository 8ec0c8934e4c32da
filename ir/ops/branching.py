"""switch: one of several regions, chosen by a number."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.errors import DTypeError
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Op
from loopwright.ir.ops.regions import check_types, types_of
from loopwright.ir.types import I64, ArrayType


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...]) -> tuple[ArrayType, ...]:
    if not types or types[0].shape or types[0].dtype != I64:
        raise DTypeError(f"switch: the index must be i64[], got {types[0] if types else 'nothing'}")
    for k, g in enumerate(regions):
        check_types(f"switch, parameters of branch {k}", types_of(g.params), types[1:])
        check_types(f"switch, results of branch {k}", types_of(regions[0].results), types_of(g.results))
    return tuple(types_of(regions[0].results))


def _numpy(index: np.ndarray, *operands: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    return tuple(Runner(regions[int(index)], sizes)(operands))


switch = Op(
    name="switch",
    doc="The region of this number, run on the operands: switch(index: i64[], *operands), one region per branch, all of one "
        "type. The index is in range.",
    infer=_infer,
    numpy=_numpy,
)
