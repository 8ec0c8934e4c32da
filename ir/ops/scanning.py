"""scan: a region run a known number of times, with a carry from each run to the next and one row of each array per run."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.dims import evaluate as evaluate_extent
from loopwright.ir.errors import ShapeError
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Op
from loopwright.ir.ops.regions import check_types, split, types_of
from loopwright.ir.types import ArrayType


def row_type(t: ArrayType) -> ArrayType:
    """The type of one row."""
    return t.with_shape(t.shape[1:])


def stack_type(t: ArrayType, length: Extent) -> ArrayType:
    """The type of `length` rows."""
    return t.with_shape((length, *t.shape))


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], length: Extent, reverse: bool, constants: int,
           carry: int) -> tuple[ArrayType, ...]:
    body, = regions
    fixed, xs = split(types, constants + carry)
    for k, t in enumerate(xs):
        if not t.shape or (isinstance(t.shape[0], int) and isinstance(length, int) and t.shape[0] != length):
            raise ShapeError(f"scan: array {k} is {t}, it must have {length} rows")
    check_types("scan, parameters of the body", types_of(body.params), [*fixed, *map(row_type, xs)])
    new, ys = split(body.results, carry)
    check_types("scan, the new carry", fixed[constants:], types_of(new))
    return (*types_of(new), *(stack_type(y.type, length) for y in ys))


def _numpy(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], length: int, reverse: bool,
           constants: int, carry: int) -> tuple[Any, ...]:
    body, = regions
    fixed, state, xs = split(arrays, constants, carry)
    ys = [np.zeros((length, *(evaluate_extent(n, sizes) for n in v.type.shape)), v.type.dtype) for v in body.results[carry:]]
    run = Runner(body, sizes)
    for k in reversed(range(length)) if reverse else range(length):
        out = run([*fixed, *state, *(np.asarray(x[k]) for x in xs)])
        state = out[:carry]
        for y, row in zip(ys, out[carry:], strict=True):
            y[k] = row
    return (*state, *ys)


scan = Op(
    name="scan",
    doc="scan(*constants, *carry, *xs) with the region body(constants, carry, a row of each x) -> (carry, a row of each y), "
        "run `length` times, over rows from the last to the first if `reverse`. Results: the last carry, then ys, each with "
        "`length` rows. `constants` and `carry` are counts.",
    infer=_infer,
    numpy=_numpy,
)
