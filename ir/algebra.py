"""Local algebra: a table of identities, one rule a line.

Guarantees: every identity holds bit for bit, for NaN (its payload and sign aside), infinities, -0.0 and wrapping
integers; where the types of both sides differ (a Python number's weak kind) a rule does not apply; no rule makes more
nodes than it removes, but for a choice of constants that others read, too. `x - x` is not 0, `x * 0` is not 0 and `x + 0.0`
is not x.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from operator import eq, le, lt, ne
from typing import Any

import numpy as np

from loopwright.ir.attributes import Attributes, attribute_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Shape
from loopwright.ir.elimination import Rewriter
from loopwright.ir.folding import constant, fold, holds
from loopwright.ir.graph import Value
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.ops.construct import scalar
from loopwright.ir.types import BF16, BOOL, COMPLEX, F16, F32, F64, FLOATS, ArrayType


@dataclass(frozen=True)
class New:
    """An application to put in the place of another."""

    op: str
    inputs: tuple[Value, ...]
    attrs: Attributes


Found = Value | New | None
Rule = Callable[..., Found]


def new(op: str, *inputs: Value, **attrs: Any) -> New:
    return New(op, inputs, attrs)


def when(condition: bool, value: Value) -> Value | None:
    return value if condition else None


def operand(m: Rewriter, v: Value, op: str) -> Value | None:
    """The only operand of the node that makes v, if it is of that op."""
    node = m.producer.get(v)
    return node.inputs[0] if node is not None and node.op.name == op else None


def through(op: str, make: Callable[..., Found]) -> Rule:
    """A rule on a unary op over another: make(inner operand, inner attributes, **outer attributes)."""
    def rule(m: Rewriter, x: Value, **attrs: Any) -> Found:
        node = m.producer.get(x)
        return make(node.inputs[0], node.attrs, **attrs) if node is not None and node.op.name == op else None
    return rule


def negated(op: str, result: str, which: int) -> Rule:
    """A rule on a binary op whose operand `which` is a negation: result(x, y) on what is under it."""
    def rule(m: Rewriter, *pair: Value) -> Found:
        under = operand(m, pair[which], op)
        return None if under is None else new(result, *(under if k == which else v for k, v in enumerate(pair)))
    return rule


# ---- conversions --------------------------------------------------------------------------------
_DIGITS = {F16: 11, BF16: 8, F32: 24, F64: 53}
_PART = {np.dtype("complex64"): F32, np.dtype("complex128"): F64}


def is_exact(a: np.dtype, b: np.dtype) -> bool:
    """Whether every number of dtype a is one of dtype b, of the same kind: floats stay floats, integers integers."""
    if a == b or a.kind == "b":
        return True
    if a in FLOATS and b in FLOATS:
        return _DIGITS[a] <= _DIGITS[b] and not (a == F16 and b == BF16) and not (a == BF16 and b == F16)
    if a in COMPLEX and b in COMPLEX:
        return is_exact(_PART[a], _PART[b])
    if a.kind in "iu" and b.kind in "iu":
        low, high = np.iinfo(a).min, np.iinfo(a).max
        return bool(np.iinfo(b).min <= low and high <= np.iinfo(b).max)
    return False


def _convert_twice(m: Rewriter, x: Value, **attrs: Any) -> Found:
    inner = operand(m, x, "convert")
    return new("convert", inner, **attrs) if inner is not None and is_exact(inner.type.dtype, x.type.dtype) else None


def _convert_choice(m: Rewriter, x: Value, **attrs: Any) -> Found:
    """A choice of two integers, made of fewer bits: of these, converted."""
    node, to = m.producer.get(x), attrs["dtype"]
    if node is None or node.op.name != "select" or x.type.dtype.kind not in "iu" or to.kind not in "iu" \
            or to.itemsize >= x.type.dtype.itemsize or any(constant(m, v) is None for v in node.inputs[1:]):
        return None
    convert = TABLE["convert"]
    made = [m.apply(convert, (v,), attrs, convert.result_types((v.type,), (), attrs)[0]) for v in node.inputs[1:]]
    return new("select", node.inputs[0], *made)


# ---- movement -----------------------------------------------------------------------------------
def _transpose_broadcast(x: Value, inner: Attributes, perm: tuple[int, ...]) -> Found:
    """The axes of the operand must keep their order, for a broadcast does not permute."""
    axes = tuple(perm.index(a) for a in inner["axes"])
    if any(b < a for a, b in pairwise(axes)):
        return None
    return new("broadcast", x, shape=tuple(inner["shape"][a] for a in perm), axes=axes)


def _slice_whole(m: Rewriter, x: Value, start: Shape, step: tuple[int, ...], shape: Shape) -> Found:
    return when(x.type.shape == shape and all(s == 1 for s in step) and all(s == 0 for s in start), x)


def _slice_of_slice(x: Value, inner: Attributes, start: Shape, step: tuple[int, ...], shape: Shape) -> Found:
    first = tuple([a + by * b for a, by, b in zip(inner["start"], inner["step"], start, strict=True)])
    return new("slice", x, start=first, step=tuple([a * b for a, b in zip(inner["step"], step, strict=True)]), shape=shape)


def _canonical_constant(m: Rewriter, value: Any, shape: Shape, dtype: np.dtype) -> Found:
    exact = scalar(value, dtype)
    return None if attribute_key(exact) == attribute_key(value) else new("full", value=exact, shape=shape, dtype=dtype)


def _chosen(m: Rewriter, p: Value, a: Value, b: Value) -> Found:
    known = constant(m, p)
    return None if known is None else a if known else b


def _swapped(m: Rewriter, p: Value, a: Value, b: Value) -> Found:
    under = operand(m, p, "bitwise_not")
    return None if under is None else new("select", under, b, a)


def _predicate(m: Rewriter, p: Value, a: Value, b: Value) -> Found:
    first, second = constant(m, a), constant(m, b)
    if a.type != p.type or first is None or second is None or first == second:
        return None
    return p if first else new("bitwise_not", p)


def _of_truths(compare: Callable[[Any, Any], Any], m: Rewriter, x: Value, y: Value) -> Found:
    """A comparison of truths, as numbers, with one number."""
    for k, (v, other) in enumerate(((x, y), (y, x))):
        p, number = operand(m, v, "convert"), constant(m, other)
        if p is not None and number is not None and p.type.dtype == BOOL:
            of_false, of_true = (bool(compare(number, n) if k else compare(n, number)) for n in (0, 1))
            return None if of_false == of_true else p if of_true else new("bitwise_not", p)
    return None


def _is_real(v: Value) -> bool:
    return v.type.dtype not in COMPLEX


RULES: Mapping[str, tuple[Rule, ...]] = {
    "full": (_canonical_constant,),                                                      # one spelling of a constant
    "size_value": (lambda m, size: new("full", value=size, shape=(), dtype=np.dtype("int64"))
                   if isinstance(size, int) else None,),                                 # a known size is a constant
    "add": (
        lambda m, x, y: when(holds(m, y, -0.0), x),                                      # x + -0.0 = x
        lambda m, x, y: when(holds(m, x, -0.0), y),                                      # -0.0 + y = y
        negated("neg", "sub", 1),                                                        # x + -y = x - y
    ),
    "sub": (
        lambda m, x, y: when(holds(m, y, 0.0), x),                                       # x - 0.0 = x
        lambda m, x, y: new("neg", y) if holds(m, x, -0.0) else None,                    # -0.0 - y = -y
        negated("neg", "add", 1),                                                        # x - -y = x + y
    ),
    "mul": (
        lambda m, x, y: when(holds(m, y, 1.0), x),                                       # x * 1 = x
        lambda m, x, y: when(holds(m, x, 1.0), y),                                       # 1 * y = y
        lambda m, x, y: new("neg", x) if _is_signed(x) and holds(m, y, -1.0) else None,  # x * -1 = -x
        lambda m, x, y: new("neg", y) if _is_signed(x) and holds(m, x, -1.0) else None,  # -1 * y = -y
        lambda m, x, y: _both_negated(m, x, y, "mul"),                                   # -x * -y = x * y
    ),
    "div": (
        lambda m, x, y: when(holds(m, y, 1.0), x),                                       # x / 1 = x
        lambda m, x, y: _both_negated(m, x, y, "div") if _is_real(x) else None,          # -x / -y = x / y
    ),
    "neg": (lambda m, x: operand(m, x, "neg"),),                                         # -(-x) = x
    "conj": (lambda m, x: operand(m, x, "conj"),),                                       # conj(conj(x)) = x
    "abs": (
        through("neg", lambda x, inner: new("abs", x) if _is_signed(x) else None),       # |-x| = |x|
        through("abs", lambda x, inner: new("abs", x)),                                  # ||x|| = |x|
    ),
    "bitwise_not": (lambda m, x: operand(m, x, "bitwise_not"),),                         # ~~x = x
    "bitwise_and": (lambda m, x, y: when(x is y, x),),                                   # x & x = x
    "bitwise_or": (lambda m, x, y: when(x is y, x),),                                    # x | x = x
    "max": (lambda m, x, y: when(x is y, x),),                                           # max(x, x) = x
    "min": (lambda m, x, y: when(x is y, x),),                                           # min(x, x) = x
    "fmax": (lambda m, x, y: when(x is y, x),),                                          # fmax(x, x) = x
    "fmin": (lambda m, x, y: when(x is y, x),),                                          # fmin(x, x) = x
    **{op.__name__: (partial(_of_truths, op),) for op in (eq, ne, lt, le)},              # p != 0 = p, p < 1 = ~p
    "select": (
        lambda m, p, a, b: when(a is b, a),                                              # p ? a : a = a
        _chosen,                                                                         # true ? a : b = a
        _swapped,                                                                        # ~p ? a : b = p ? b : a
        _predicate,                                                                      # p ? true : false = p
    ),
    "convert": (
        lambda m, x, **attrs: x,                                                         # to its own dtype (types agree)
        _convert_twice,                                                                  # through a dtype that holds it
        _convert_choice,                                                                 # of p ? 255 : 0, to fewer bits
    ),
    "reshape": (
        lambda m, x, shape: x,                                                           # to its own shape (types agree)
        through("reshape", lambda x, inner, shape: new("reshape", x, shape=shape)),      # the last shape decides
    ),
    "transpose": (
        lambda m, x, perm: when(perm == tuple(range(len(perm))), x),                     # axes stay in place
        through("transpose", lambda x, inner, perm:
                new("transpose", x, perm=tuple(inner["perm"][a] for a in perm))),        # one permutation after another
        through("broadcast", _transpose_broadcast),                                      # repeat along the moved axes
    ),
    "broadcast": (
        lambda m, x, shape, axes: x,                                                     # to its own shape (types agree)
        through("broadcast", lambda x, inner, shape, axes:
                new("broadcast", x, shape=shape, axes=tuple(axes[a] for a in inner["axes"]))),  # repeat once
    ),
    "slice": (
        _slice_whole,                                                                    # all of it, forwards
        through("slice", _slice_of_slice),                                               # one window of another
    ),
    "pad": (lambda m, x, shape, start, step, value: _slice_whole(m, x, start, step, shape),),  # by nothing
    "concatenate": (lambda m, *xs, axis: when(len(xs) == 1, xs[0]),),                    # of one array
}


def _is_signed(v: Value) -> bool:
    return v.type.dtype.kind == "i" or v.type.dtype in FLOATS


def _both_negated(m: Rewriter, x: Value, y: Value, op: str) -> Found:
    a, b = operand(m, x, "neg"), operand(m, y, "neg")
    return new(op, a, b) if a is not None and b is not None else None


def simplified(m: Rewriter, op: Op, inputs: tuple[Value, ...], attrs: Attributes, type: ArrayType) -> Value | None:
    """A value that stands for op on inputs by the table or by folding constants, or None."""
    folded = fold(m, op, inputs, attrs, type)
    if folded is not None:
        return folded
    for rule in RULES.get(op.name, ()):
        found = rule(m, *inputs, **attrs)
        if isinstance(found, New):
            return m.apply(TABLE[found.op], found.inputs, found.attrs, type)
        if found is not None and found.type == type:
            return found
    return None
