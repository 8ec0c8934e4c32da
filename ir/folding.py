"""Constants: `full` arrays, and applications to nothing but them.

Guarantees: an application to constants becomes a constant only where every element of its result is the same number, by
the op's own NumPy meaning, and where NumPy rounds that operation exactly, so that folding changes no bit (of the payload
of a NaN aside). No check is lost: a read at a data-dependent index is never folded.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.ir.attributes import Attributes, attribute_key, extents_in
from loopwright.ir.cost import TRANSCENDENTAL, element
from loopwright.ir.dims import Extent, product
from loopwright.ir.elimination import Rewriter
from loopwright.ir.graph import Node, Value
from loopwright.ir.loops import Apply, Bounded, Expr, Index, Load, Reduce
from loopwright.ir.op import Op
from loopwright.ir.ops.construct import full, scalar
from loopwright.ir.types import COMPLEX, ArrayType

ORDERLESS = 3  # equal numbers, which come to one sum in any order
# NumPy may fuse the products of other complex operations in some lanes and not in others.
COMPLEX_EXACT = frozenset(("add", "sub", "neg", "conj", "real", "imag", "convert", "select", "eq", "ne"))


def constant(m: Rewriter, v: Value) -> Any:
    """The one Python number that every element of v is, or None when it is not known to be a constant."""
    node = m.producer.get(v)
    return scalar(node.attrs["value"], v.type.dtype) if node is not None and node.op is full else None


def holds(m: Rewriter, v: Value, number: float) -> bool:
    """Whether v is that constant bit for bit; of a complex constant, 0.0 and -0.0 ask for both parts."""
    node = m.producer.get(v)
    if node is None or node.op is not full:
        return False
    dtype = v.type.dtype
    wanted = scalar(number, dtype)
    if dtype in COMPLEX:
        wanted = complex(number, number) if number == 0 else None
    return wanted is not None and attribute_key(scalar(node.attrs["value"], dtype)) == attribute_key(wanted)


def emit_constant(m: Rewriter, value: Any, type: ArrayType) -> Value:
    """A full array of this type."""
    return m.apply(full, (), {"value": scalar(value, type.dtype), "shape": type.shape, "dtype": type.dtype}, type)


def fold(m: Rewriter, op: Op, inputs: tuple[Value, ...], attrs: Attributes, type: ArrayType) -> Value | None:
    """The constant that op gives on constants, if it is one."""
    if not inputs or type.weak or not all(v in m.producer and m.producer[v].op is full for v in inputs):
        return None
    expr = element(Node(op, inputs, attrs, (Value(type),)))
    index = tuple([Index(f"i{a}") for a in range(type.rank)])
    match expr:
        case Load(array=int(k), index=at) if not any(map(_is_checked, at)):
            return emit_constant(m, constant(m, inputs[k]), type)
        case Apply(fn, args) if _is_exact(fn, inputs) and all(isinstance(a, Load) and a.index == index for a in args):
            value = _compute(m, op, inputs, attrs)
            return None if value is None else emit_constant(m, value, type)
        case Reduce(monoid="sum", over=over, body=Load()) if len(inputs) == 1 and (count := _few(over)) is not None:
            one, dtype = np.full(count, constant(m, inputs[0]), inputs[0].type.dtype), type.dtype
            with np.errstate(all="ignore"):
                return emit_constant(m, np.sum(one, dtype=dtype), type)
    return None


def _few(over: Sequence[tuple[Index, Extent]]) -> int | None:
    """How many numbers there are to add up, where that is few enough for all orders to agree."""
    count = product([n for _, n in over])
    return count if isinstance(count, int) and 1 <= count <= ORDERLESS else None


def _is_checked(e: Expr) -> bool:
    match e:
        case Bounded():
            return True
        case Apply(args=args) | Load(index=args):
            return any(map(_is_checked, args))
    return False


def _is_exact(fn: str, inputs: tuple[Value, ...]) -> bool:
    if any(v.type.dtype in COMPLEX for v in inputs):
        return fn in COMPLEX_EXACT
    return fn not in TRANSCENDENTAL


def _compute(m: Rewriter, op: Op, inputs: tuple[Value, ...], attrs: Attributes) -> Any:
    if any(True for a in attrs.values() for _ in extents_in(a)):
        return None
    try:
        with np.errstate(all="ignore"):
            return op.numpy(*[np.array(constant(m, v), v.type.dtype) for v in inputs], **attrs)
    except ValueError:
        return None  # an integer to a negative power: the call must raise it, not the compilation
