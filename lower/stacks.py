"""Folds over the axis along which arrays were put together one by one (`np.sum(np.stack([x, y], -1), -1)`), as maps of these.

The stack's elements lie in turn, and a fold would choose among the arrays for each.

Guarantees: the same values, up to the order in which sums add.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from loopwright.ir.graph import Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops import arithmetic
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.ops.reductions import reduce_max, reduce_min, reduce_prod
from loopwright.ir.ops.structural import concatenate, reshape
from loopwright.ir.types import BF16, BOOL, F16

MOST = 16  # arrays
COMBINING: dict[Op, Op] = {reduce_sum: arithmetic.add, reduce_prod: arithmetic.mul, reduce_max: arithmetic.max,
                           reduce_min: arithmetic.min}  # what makes one of two elements that are folded


def folds_along(n: Node, axis: int) -> bool:
    """Whether a node folds along an axis, maybe others too, numbers that are not rounded in between. axis: -1 is the last."""
    if n.op not in COMBINING or n.inputs[0].type.dtype in (BOOL, F16, BF16):
        return False
    return any(a == axis % n.inputs[0].type.rank for a in n.attrs["axes"])


def is_of_stack(n: Node, producer: Mapping[Value, Node]) -> bool:
    """Whether a fold goes over the axis of a stack."""
    stack = producer.get(n.inputs[0]) if n.op in COMBINING else None
    if stack is None or stack.op is not concatenate or len(stack.inputs) > MOST:
        return False
    axis = stack.attrs["axis"]
    return folds_along(n, axis) and all(v.type.shape[axis] == 1 for v in stack.inputs)


def of_each(n: Node, producer: Mapping[Value, Node]) -> list[Node]:
    """The nodes that combine the arrays of a stack, each without the stack's axis, and fold what comes of it."""
    stack, y, nodes = producer[n.inputs[0]], n.outputs[0], list[Node]()
    axis, t = stack.attrs["axis"], stack.inputs[0].type
    flat = t.with_shape((*t.shape[:axis], *t.shape[axis + 1:]))

    def made(op: Op, *inputs: Value, **attrs: object) -> Value:
        nodes.append(Node(op, inputs, attrs, (Value(flat),), (), n.source))
        return nodes[-1].outputs[0]
    arrays = [made(reshape, v, shape=flat.shape) for v in stack.inputs]
    whole = reduce(lambda a, b: made(COMBINING[n.op], a, b), arrays)
    axes = tuple([a - (a > axis) for a in n.attrs["axes"] if a != axis])
    last = Node(n.op, (whole,), {**n.attrs, "axes": axes}, (y,), (), n.source) if axes else \
        Node(reshape, (whole,), {"shape": y.type.shape}, (y,), (), n.source)
    return [*nodes, last]
