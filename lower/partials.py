"""Sums over rows in the pass that makes or reads the rows: each adds to the sum of its block as it goes past.

The gradient of a bias is the sum over rows of what the kernel before stores; that of a scale, of what it reads. As kernels of
their own these sums would read all of it again. Here such a sum becomes sums of blocks of rows, which are a further result of
that kernel, and the sum of these.

Guarantees: blocks are the same whatever the number of threads; no more rounding than a sum of the rows in order.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from loopwright.ir.dims import Shape, floordiv
from loopwright.ir.graph import Node, Value
from loopwright.ir.loops import Apply, Expr, Literal, LoopContext, Reduce, When, integer, less, plus, times
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.types import BF16, BOOL, F16, I64, ArrayType
from loopwright.lower.composition import Position
from loopwright.lower.groups import Group, turns_rows

if TYPE_CHECKING:
    from loopwright.lower.grouping import Grouping

ROWS = 32  # of a block
MOST_RESULTS = 8  # of a kernel that adds up along its loops


def _shape(x: ArrayType, axes: tuple[int, ...]) -> Shape:
    last = len(axes) - 1
    return (*x.shape[:last], floordiv(x.shape[last] + (ROWS - 1), ROWS), *x.shape[last + 1:])


def _sums(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    last = len(axes) - 1
    return np.add.reduceat(x, range(0, x.shape[last], ROWS), last, dtype=x.dtype) if x.size else x[..., :0, :]


def _loop(context: LoopContext, index: Position, axes: tuple[int, ...]) -> Expr:
    last, k = len(axes) - 1, context.fresh()
    x = context.types[0]
    row = plus(times(index[last], Literal(ROWS, I64)), k)
    element = context.load(0, (*index[:last], row, *index[last + 1:]))
    body = When(less(row, integer(x.shape[last])), element, Literal(0, x.dtype))
    return Reduce("sum", ((k, ROWS),), body, x.dtype)


block_sums = Op(
    name="block_sums",
    doc=f"Sums over blocks of {ROWS} positions of the last of the leading axes `axes`, the last block maybe shorter.",
    shape=_shape,
    dtype=lambda x, axes: x.dtype,
    numpy=_sums,
    loop=_loop,
)


def block_of(index: Position, axes: tuple[int, ...]) -> tuple[Position, Expr]:
    """Where the sum of an element's block is, and whether the element is the first of those that make it, in C order."""
    last = len(axes) - 1
    rows = Literal(ROWS, I64)
    first = Apply("eq", (Apply("remainder", (index[last], rows), I64), Literal(0, I64)), BOOL)
    return (*index[:last], Apply("floor_divide", (index[last], rows), I64), *index[last + 1:]), first


# ---- which sums ---------------------------------------------------------------------------------
def add_up_along(grouping: Grouping) -> None:
    """Move what sums over rows add up to the groups that have the rows at hand."""
    for group in tuple(grouping.order):
        for n in tuple(group.nodes):
            if _is_sum_of_rows(n) and grouping.groups_of[n] == [group] and grouping.decided.placing(n) is None:
                _move(grouping, group, n)


def _is_sum_of_rows(n: Node) -> bool:
    """A sum over the leading axes, of numbers that add up as they are."""
    if n.op is not reduce_sum:
        return False
    t, axes = n.inputs[0].type, n.attrs["axes"]
    rows = t.shape[len(axes) - 1] if axes else 0
    leading = tuple(sorted(axes)) == tuple(range(len(axes))) and 0 < len(axes) < t.rank
    return leading and (not isinstance(rows, int) or rows > ROWS) and t.dtype not in (BOOL, F16, BF16)


def _move(grouping: Grouping, group: Group, n: Node) -> None:
    """Let some other group add up what the sum n of this one sums, if one can."""
    needed = behind(n.inputs, group.nodes)
    read = {v for x in (*needed, n) for v in x.inputs} - {v for x in needed for v in x.outputs}
    if not all(grouping.is_map(x) for x in needed):
        return
    for host in _hosts(grouping, n, read):
        fits = grouping.has_room(host, len(needed) + 1) and _has_rows(host, n, read)
        if fits and _can_wait(grouping, host, group, read):
            _split(grouping, host, group, n, needed)
            return


def behind(values: Iterable[Value], nodes: Sequence[Node]) -> set[Node]:
    """The nodes of a group that values are computed from."""
    producer = {v: x for x in nodes for v in x.outputs}
    found, todo = set[Node](), list(values)
    while todo:
        x = producer.get(todo.pop())
        if x is not None and x not in found:
            found.add(x)
            todo.extend(x.inputs)
    return found


def _hosts(grouping: Grouping, n: Node, read: set[Value]) -> list[Group]:
    """Groups that make or read arrays behind what n sums, as large as that."""
    arrays = [v for v in read if v.type.shape == n.inputs[0].type.shape]
    near = [*(grouping.producer[v] for v in arrays if v in grouping.producer), *(x for v in arrays for x in grouping.users[v])]
    return sorted({g for x in near for g in grouping.groups_of[x]}, key=lambda g: -grouping.position[g.root])


def _has_rows(host: Group, n: Node, read: set[Value]) -> bool:
    """Whether the host's loops go through just the elements that n sums, row by row, with one of the arrays behind them at
    hand. Those that transpose go in tiles."""
    shape = n.inputs[0].type.shape
    if host.root.outputs[0].type.shape != shape or len(host.results) >= MOST_RESULTS or any(map(turns_rows, host.nodes)):
        return False
    return any(v.type.shape == shape and (v in host.results or host.index in host.positions.get(v, {})) for v in read)


def _can_wait(grouping: Grouping, host: Group, group: Group, read: set[Value]) -> bool:
    """Whether neither the group nor what is read for the sum waits for the host."""
    sources = [g for g in grouping.makers(read) if g is not host]
    return not any(grouping.leads_to(a, b) for a, b in [(group, host), *((host, g) for g in sources)])


def _split(grouping: Grouping, host: Group, group: Group, n: Node, needed: set[Node]) -> None:
    """Let the host add up, and n sum what comes of it."""
    t, axes = n.inputs[0].type, n.attrs["axes"]
    sums = Value(t.with_shape(_shape(t, axes)))
    part = Node(block_sums, n.inputs, {"axes": axes}, (sums,), (), n.source)
    whole = Node(n.op, (sums,), n.attrs, n.outputs, (), n.source)
    grouping.move_sum(group, n, whole, host, part, needed)
