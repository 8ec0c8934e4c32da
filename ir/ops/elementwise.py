"""The template of elementwise ops: operands of one shape and one dtype. Broadcasting and promotion are the tracer's.

Guarantees: the shape, dtype, batch and loop rules and the examples of every such op follow from its name, its number of
operands and the dtypes it accepts; its numpy rule returns exactly the dtype that its dtype rule states.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, evaluate
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.loops import Apply, Expr, LoopContext
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.types import BF16, BOOL, C64, COMPLEX, F32, F64, FLOATS, INTEGERS, SHORT, ArrayType

Dtypes = tuple[np.dtype, ...]
Draw: TypeAlias = "Callable[[np.random.Generator, ArrayType], np.ndarray]"  # quoted: np.random is slow to import

INEXACT: Dtypes = (*FLOATS, *COMPLEX)
REAL: Dtypes = (*INTEGERS, *FLOATS)
NUMBERS: Dtypes = (*REAL, *COMPLEX)
ORDERED: Dtypes = (BOOL, *REAL)
BITS: Dtypes = (BOOL, *INTEGERS)
EXAMPLE_SHAPES = {F64: ("n, 3", "", "n, 1, m"), F32: ("n",)}


# ---- what follows from the template ---------------------------------------------------------------
def same_shape(*types: ArrayType, **attrs: Any) -> Shape:
    """The one shape of all operands."""
    for k, t in enumerate(types):
        if t is not types[0] and t.shape != types[0].shape:
            raise ShapeError(f"operand {k} has type {t}, operand 0 has {types[0]}: their shapes must be equal")
    return types[0].shape


def same_dtype(*types: ArrayType, **attrs: Any) -> np.dtype:
    """The one dtype of all operands."""
    for k, t in enumerate(types):
        if t is not types[0] and t.dtype != types[0].dtype:
            raise DTypeError(f"operand {k} has dtype {t.dtype}, operand 0 has {types[0].dtype}: they must be equal")
    return types[0].dtype


def same(dtype: np.dtype) -> np.dtype:
    """The result has the operands' dtype."""
    return dtype


def truth(dtype: np.dtype) -> np.dtype:
    """The result is bool."""
    return BOOL


def real_part(dtype: np.dtype) -> np.dtype:
    """The dtype of a complex number's parts; a real dtype is its own."""
    return (F32 if dtype == C64 else F64) if dtype in COMPLEX else dtype


def _dtype_rule(name: str, arity: int, accepts: Dtypes, result: Callable[[np.dtype], np.dtype]) -> Callable[..., np.dtype]:
    known = frozenset(accepts)

    def rule(*types: ArrayType) -> np.dtype:
        if len(types) != arity:
            raise TypeError(f"{name} takes {arity} operands, got {len(types)}")
        dtype = same_dtype(*types)
        if dtype not in known:
            raise DTypeError(f"{name} is not defined for {types[0]}; it takes {', '.join(SHORT[d] for d in accepts)}")
        return result(dtype)
    return rule


def _through_f32(numpy: Callable[..., Any]) -> Callable[..., Any]:
    """bfloat16 is computed in float32 and rounded once."""
    def rule(*arrays: np.ndarray, **attrs: Any) -> Any:
        if arrays[0].dtype != BF16:
            return numpy(*arrays, **attrs)
        out = numpy(*[x.astype(F32) for x in arrays], **attrs)
        return out.astype(BF16) if out.dtype == F32 else out
    return rule


def elementwise_loop(name: str) -> Callable[..., Expr]:
    """out[i] = name(operand 0 [i], operand 1 [i], ...)"""
    def loop(context: LoopContext, index: tuple[Expr, ...], **attrs: Any) -> Expr:
        return Apply(name, tuple(context.load(k, index) for k in range(len(context.types))), context.result.dtype)
    return loop


def _examples(arity: int, accepts: Dtypes, draw: dict[int, Draw]) -> tuple[Example, ...]:
    """Ranks 0 to 3 with sizes 1, 3 and any at f64 and f32; one axis of any size at every other dtype."""
    shapes = {d: EXAMPLE_SHAPES.get(d, ("n",)) for d in accepts}
    return tuple(Example((f"{SHORT[d]}[{shape}]",) * arity, draw=draw) for d in accepts for shape in shapes[d])


def elementwise(name: str, numpy: Callable[..., Any], arity: int, accepts: Dtypes, *, doc: str,
                result: Callable[[np.dtype], np.dtype] = same, draw: Draw | dict[int, Draw] | None = None, steps: bool = False,
                **rules: Any) -> Op:
    """An op that works element by element on `arity` operands of one dtype among `accepts`.

    `draw` makes every operand of its examples, or those it names, where normal numbers would not do. `steps`: the op
    moves by units in the last place, so bfloat16 is not computed in float32.
    """
    draws = draw if isinstance(draw, dict) else dict.fromkeys(range(arity), draw) if draw else {}
    return pointwise(name=name, doc=doc, dtype=_dtype_rule(name, arity, accepts, result),
                     numpy=numpy if steps else _through_f32(numpy), examples=_examples(arity, accepts, draws), **rules)


def pointwise(*, name: str, loop: Callable[..., Expr] | None = None, **rules: Any) -> Op:
    """An op that works element by element, whatever its dtypes: its shape and batch rules, and its loop rule unless its
    elements are made of those of other ops."""
    def batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], **attrs: Any) -> Ref:
        return op(*spread(size, args, mapped), **attrs)
    op = Op(name=name, shape=same_shape, batch=batch, loop=loop or elementwise_loop(name), **rules)
    return op


# ---- derivatives ----------------------------------------------------------------------------------
def no_tangent(primals: tuple[Ref, ...], tangents: tuple[Ref | None, ...], out: Ref, **attrs: Any) -> None:
    """Constant almost everywhere."""


# ---- numbers for examples -------------------------------------------------------------------------
def between(low: float, high: float) -> Draw:
    """Numbers in [low, high): integers at an integer dtype; complex ones have both parts there."""
    def draw(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
        shape = tuple(evaluate(n, {}) for n in t.shape)
        if t.dtype in INTEGERS:
            return np.asarray(rng.integers(int(low), int(high), shape)).astype(t.dtype)
        x = np.asarray(rng.uniform(low, high, shape))
        return (x + 1j * rng.uniform(low, high, shape) if t.dtype in COMPLEX else x).astype(t.dtype)
    return draw

