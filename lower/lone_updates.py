"""Scatters of one update to each row of a constant, as maps: the gradient of picking an element of each row, as for labels.

Such a scatter fills an array, which what follows reads again; as a map it is computed there, and by all threads.

Guarantees: the same values and errors; a scatter whose indices may be wrong stays one where the array may hold nothing.
"""
from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from loopwright.ir.dims import Shape
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Node
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext, integer
from loopwright.ir.op import Op
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.indexing import Axes, layout_of, positions_of, scatter, scatter_add
from loopwright.ir.types import BOOL, ArrayType

_COMBINE = {scatter: "set", scatter_add: "add"}


def _shape(*types: ArrayType, shape: Shape, **attrs: Any) -> Shape:
    return shape


def _numpy(updates: np.ndarray, *indices: np.ndarray, axes: Axes, batch: int, mode: str, shape: tuple[int, ...], value: Any,
           combine: str) -> np.ndarray:
    op = next(x for x, name in _COMBINE.items() if name == combine)
    return np.asarray(op.numpy(np.full(shape, value, updates.dtype), updates, *indices, axes=axes, batch=batch, mode=mode))


def _loop(context: LoopContext, index: tuple[Expr, ...], axes: Axes, batch: int, mode: str, shape: Shape, value: Any,
          combine: str) -> Expr:
    """The update of the row at the position that is its own, the constant elsewhere."""
    dtype, layout = context.result.dtype, layout_of(context.result, context.types[1:], axes, batch)
    own = (*index[:batch], *(integer(0) for _ in range(layout.indices - batch)))
    positions, tests = positions_of(context, 1, own, context.result, axes, batch, mode)
    hits = [*tests, *(Apply("eq", (index[a], at), BOOL) for a, at in zip(axes, positions, strict=True))]
    update, before = context.load(0, (*own, *(index[a] for a in layout.rest))), Literal(value, dtype)
    new = update if combine == "set" else Apply("add", (before, update), dtype)
    return Apply("select", (reduce(lambda a, b: Apply("bitwise_and", (a, b), BOOL), hits), new, before), dtype)


lone_updates = Op(
    name="lone_updates",
    doc="A scatter of updates into an array of one value, with one position for each index of the first `batch` axes.",
    shape=_shape,
    dtype=lambda updates, *indices, **attrs: updates.dtype,
    numpy=_numpy,
    loop=_loop,
)


def as_map(n: Node, base: Node | None, facts: Facts) -> Node:
    """A scatter into what `base` makes as a map, if it is one."""
    if n.op not in _COMBINE or base is None or base.op is not full or n.outputs[0].type.dtype == BOOL or "start" in n.attrs:
        return n
    batch, shape = n.attrs["batch"], n.outputs[0].type.shape
    if any(extent != 1 for extent in n.inputs[2].type.shape[batch:]):
        return n
    if n.attrs["mode"] == "raise" and not all(facts.prove("<=", 1, extent) for extent in shape[batch:]):
        return n
    attrs = {**n.attrs, "shape": shape, "value": base.attrs["value"], "combine": _COMBINE[n.op]}
    return Node(lone_updates, n.inputs[1:], attrs, n.outputs, (), n.source)
