"""Windows that lie on each other, added up row by row by hand-written code: see `codegen/overlaps.py`.

Guarantees: the same sums in another order.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.dims import Extent, Shape
from loopwright.ir.graph import Node
from loopwright.ir.op import Op
from loopwright.ir.ops.windows import overlap_add
from loopwright.ir.types import ArrayType


def _as_windows(shape: Shape) -> Shape:
    """As overlap_add has it: positions in windows last."""
    *places, rows, columns, features = shape
    return (*places, features, rows, columns)


def _shape(x: ArrayType, **attrs: Any) -> Shape:
    return overlap_add.result_types((x.with_shape(_as_windows(x.shape)),), (), {"axes": (0, 1), **attrs})[0].shape


def _numpy(x: np.ndarray, **attrs: Any) -> np.ndarray:
    found: np.ndarray = overlap_add.numpy(np.moveaxis(x, -1, 2), axes=(0, 1), **attrs)
    return found


overlap_rows = Op(
    name="overlap_rows",
    doc="overlap_add of windows along two axes, whose own axes are rows, columns and features, by hand-written code.",
    shape=_shape,
    dtype=lambda x, **attrs: x.dtype,
    numpy=_numpy,
)


def is_rows(rank: int, dilation: tuple[int, ...]) -> bool:
    """Whether windows of so many axes have rows whose elements lie beside each other in the result, too."""
    return rank == 2 and dilation[-1] == 1


def numbers(n: Node) -> tuple[Extent, ...]:
    """What the code is told."""
    a, (tall, long, _) = n.attrs, n.outputs[0].type.shape
    return (*n.inputs[0].type.shape, tall, long, *a["stride"], *a["low"], a["dilation"][0])
