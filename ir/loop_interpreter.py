"""What a loop expression means, one element at a time with NumPy scalars: the second opinion on every loop rule.

Guarantees: every scalar has the dtype that its expression states; a `When` evaluates only the branch it takes; a load
outside its array is a bug in the rule (AssertionError), a `Bounded` index outside its axis is the user's (IndexError).
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, assert_never

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate
from loopwright.ir.loops import (
    Apply,
    Bounded,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    LoopContext,
    PartitionPoint,
    Prefix,
    Reduce,
    Scatter,
    Size,
    When,
)
from loopwright.ir.monoids import COMBINING, identity
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.ops.selection import bitcast, convert
from loopwright.ir.types import BF16, F16, F32, ArrayType, is_inexact


@dataclass(frozen=True)
class Environment:
    """What the names in an expression stand for."""

    arrays: Mapping[int | str, np.ndarray]
    indices: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    locals: Mapping[str, Any] = field(default_factory=dict)
    known: dict[int, Any] = field(default_factory=dict)  # what operations gave, by identity: expressions share parts

    def at(self, indices: Mapping[str, int]) -> Environment:
        """This environment with loop variables set."""
        return replace(self, indices={**self.indices, **indices}, known={})


def run_loop(op: Op, args: tuple[np.ndarray, ...] | list[np.ndarray], **attrs: Any) -> np.ndarray:
    """The result of op by its loop rule; attrs hold integer sizes. ValueError for an op without one."""
    if op.loop is None:
        raise ValueError(f"{op.name} has no loop rule")
    arrays = [np.asarray(a) for a in args]
    types = tuple(ArrayType(a.shape, a.dtype) for a in arrays)
    (result,) = op.result_types(types, (), attrs)
    names = itertools.count()
    context = LoopContext(types, result, lambda k, index: Load(k, index, types[k].dtype), lambda: Index(f"k{next(names)}"))
    at = tuple(Index(f"i{axis}") for axis in range(result.rank))
    expr = op.loop(context, at, **attrs)
    return run_expr(expr, at, result, Environment(dict(enumerate(arrays))))


def run_expr(expr: Expr, at: tuple[Index, ...], result: ArrayType, environment: Environment) -> np.ndarray:
    """The array whose element at each point of `at` is expr."""
    assert expr.dtype == result.dtype, f"the expression has dtype {expr.dtype}, the result is {result}"
    if isinstance(expr, Scatter):
        return _scatter(expr, result, environment)
    axes = tuple(zip(at, result.shape, strict=True))
    out = np.empty([evaluate(n, environment.sizes) for n in result.shape], result.dtype)
    with np.errstate(all="ignore"):
        for point in _points(axes, environment):
            out[tuple(point.values())] = _scalar(expr, environment.at(point))
    return out


def evaluate_expr(expr: Expr, environment: Environment) -> Any:
    """The NumPy scalar that expr is, without floating-point warnings."""
    with np.errstate(all="ignore"):
        return _scalar(expr, replace(environment, known={}))


def _scalar(expr: Expr, environment: Environment) -> Any:
    value = _evaluate(expr, environment)
    assert value.dtype == expr.dtype, f"{expr} states dtype {expr.dtype}, got {value.dtype}"
    return value


def _evaluate(expr: Expr, environment: Environment) -> Any:
    match expr:
        case Index(name):
            return np.int64(environment.indices[name])
        case Literal(value, dtype):
            return np.array(value, dtype)[()]
        case Size(extent):
            return np.int64(evaluate(extent, environment.sizes))
        case Local(name):
            return environment.locals[name]
        case Load():
            return _load(expr, environment)
        case Apply(fn, args, dtype):
            known = environment.known
            if id(expr) not in known:
                known[id(expr)] = apply(TABLE[fn], [_scalar(a, environment) for a in args], dtype)
            return known[id(expr)]
        case When(cond, then, other):
            return _scalar(then if _scalar(cond, environment) else other, environment)
        case Bounded():
            return _bounded(expr, environment)
        case Reduce(over=over, body=body):
            return _fold(expr, [_scalar(body, environment.at(p)) for p in _points(over, environment)])
        case Prefix(index=index, last=last, body=body):
            upto = int(_scalar(last, environment)) + 1
            return _fold(expr, [_scalar(body, environment.at({index.name: k})) for k in range(upto)])
        case PartitionPoint():
            return _partition_point(expr, environment)
        case Scatter():
            raise AssertionError("a scatter is a whole array, never an element")
        case _:
            assert_never(expr)


def apply(op: Op, args: list[Any], dtype: np.dtype) -> Any:
    """An elementwise op on scalars. The op's own dtype rule is checked: no operand is promoted in passing."""
    attrs = {"dtype": dtype} if op in (bitcast, convert) else {}
    (result,) = op.result_types([ArrayType((), a.dtype) for a in args], (), attrs)
    assert result.dtype == dtype, f"{op.name} of {[a.dtype for a in args]} is {result.dtype}, the expression states {dtype}"
    return np.asarray(op.numpy(*args, **attrs))[()]


def _load(expr: Load, environment: Environment) -> Any:
    array = environment.arrays[expr.array]
    at = tuple([int(_scalar(i, environment)) for i in expr.index])
    within = len(at) == array.ndim and all(0 <= i < n for i, n in zip(at, array.shape, strict=True))
    assert within, f"a load of array {expr.array} with shape {array.shape} at {at}"
    return array[at]


def _bounded(expr: Bounded, environment: Environment) -> Any:
    index, size = _scalar(expr.index, environment), evaluate(expr.extent, environment.sizes)
    if not 0 <= index < size:
        index = index - size if index < 0 else index  # a negative one has had the size added: name the user's
        raise IndexError(f"index {index} is out of bounds for axis {expr.axis} with size {size}")
    return index


def _points(over: tuple[tuple[Index, Extent], ...], environment: Environment) -> Iterator[dict[str, int]]:
    """Every point of the index space, in C order."""
    names = [index.name for index, _ in over]
    for point in itertools.product(*[range(evaluate(extent, environment.sizes)) for _, extent in over]):
        yield dict(zip(names, point, strict=True))


def _partition_point(expr: PartitionPoint, environment: Environment) -> Any:
    at, left = 0, evaluate(expr.extent, environment.sizes)
    while left:
        half = (left + 1) // 2
        at += half if _scalar(expr.test, environment.at({expr.index.name: at + half - 1})) else 0
        left -= half
    return np.int64(at)


def _fold(expr: Reduce | Prefix, values: list[Any]) -> Any:
    if expr.monoid in ("argmax", "argmin"):
        return np.int64(getattr(np, expr.monoid)(np.array(values, expr.body.dtype)))
    wide = F32 if expr.dtype in (F16, BF16) and expr.monoid == "sum" else expr.dtype
    total = np.array(identity(expr.monoid, wide), wide)[()]
    if isinstance(expr, Prefix) and expr.monoid == "sum" and is_inexact(wide):
        total = -total  # -0.0, which leaves -0.0 as it is
    for x in values:
        assert x.dtype == expr.dtype, f"a {expr.monoid} at {expr.dtype} of {x.dtype}"
        total = apply(TABLE[COMBINING[expr.monoid]], [total, x.astype(wide)], wide)
    return total.astype(expr.dtype)


def _scatter(expr: Scatter, result: ArrayType, environment: Environment) -> np.ndarray:
    out = run_expr(expr.base, expr.at, result, environment)
    with np.errstate(all="ignore"):
        _update(out, expr, environment)
    return out


def _update(out: np.ndarray, expr: Scatter, environment: Environment) -> None:
    for point in _points(expr.over, environment):
        here = environment.at(point)
        if expr.when is not None and not _scalar(expr.when, here):
            continue
        target = tuple([int(_scalar(i, here)) for i in expr.target])
        assert all(0 <= i < n for i, n in zip(target, out.shape, strict=True)), f"a scatter into {out.shape} at {target}"
        value = _scalar(expr.value, here)
        out[target] = value if expr.combine == "set" else apply(TABLE[expr.combine], [out[target], value], out.dtype)
