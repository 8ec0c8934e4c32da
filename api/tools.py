"""Tools around transforms: shapes without values, the transpose of a linear function, Hessians times vectors; kept memory."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.calls import (
    Function,
    Operand,
    Place,
    argument_names,
    directions,
    leaf_names,
    name_of,
    operands,
    type_of,
)
from loopwright.autodiff.transpose import pull
from loopwright.ir.collector import collector_paused
from loopwright.ir.errors import ArgumentError, GradientError
from loopwright.ir.source import user_source
from loopwright.ir.types import ArrayType, native
from loopwright.lower.runtime import scratch
from loopwright.tracer.pytree import flatten, paths, unflatten
from loopwright.tracer.size import as_extent, sized
from loopwright.tracer.trace import Traced, trace
from loopwright.transforms import grad, jvp


class ShapeDtypeStruct:
    """A shape and a dtype, where an array would do: `eval_shape` takes and gives them.

    >>> import numpy as np, loopwright as lw
    >>> lw.eval_shape(np.sum, lw.ShapeDtypeStruct((3, 4), np.float32))
    ShapeDtypeStruct(shape=(), dtype=float32)
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Sequence[Any], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"


def declared_types(leaves: Sequence[Any], names: Sequence[str], why: str) -> list[ArrayType]:
    """The types of arrays, numbers and ShapeDtypeStructs."""
    out = []
    for x, name in zip(leaves, names, strict=True):
        if not isinstance(x, ShapeDtypeStruct):
            out.append(type_of(operands([x], [name], why)[0]))
            continue
        shape = [as_extent(n) for n in x.shape]
        if None in shape:
            raise ArgumentError(f"{user_source()}: {why}: {name}: a shape holds integers and sizes, got {x.shape}.")
        out.append(ArrayType(tuple([n for n in shape if n is not None]), native(x.dtype)))
    return out


def _abstract(f: Function, args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> tuple[list[ArrayType], Traced]:
    """The types of a call's leaves, and f traced on them without their values."""
    leaves, structure = flatten((args, kwargs))
    types = declared_types(leaves, leaf_names(structure), why)

    def run(xs: list[Any]) -> Any:
        positional, keywords = unflatten(structure, xs)
        return f(*positional, **keywords)
    return types, trace(run, types, is_floor=True, why=why)


def eval_shape(fun: Function, *args: Any, **kwargs: Any) -> Any:
    """What fun(*args, **kwargs) would return, with a ShapeDtypeStruct for each array: traced, not computed.

    Arguments may be ShapeDtypeStructs where arrays would be. Inside a trace sizes may be symbolic.

    >>> eval_shape(lambda x: x @ x.T, np.ones((3, 4)))
    ShapeDtypeStruct(shape=(3, 3), dtype=float64)
    """
    _, made = _abstract(fun, args, kwargs, f"eval_shape of {name_of(fun)}")
    scope = made.builder.scope
    return unflatten(made.structure, [ShapeDtypeStruct([n if isinstance(n, int) else sized(n, scope) for n in v.type.shape],
                                                       v.type.dtype) for v in made.graph.results])


def linear_transpose(fun: Function, *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The transpose of a linear function: a function from a cotangent of its result to a tuple, one for each argument.

    primals, arrays or ShapeDtypeStructs, say the types of the arguments; their values are not looked at. GradientError where
    fun is not linear, or not of floating or complex numbers.

    >>> linear_transpose(lambda x: 3.0 * x, 1.0)(2.0)
    (np.float64(6.0),)
    """
    why = f"linear_transpose of {name_of(fun)}"
    types, made = _abstract(fun, primals, {}, why)
    structure = flatten(primals)[1]
    results = [v.type for v in made.graph.results]
    named = [*zip(types, argument_names(structure), strict=True), *zip(results, paths(made.structure, "result"), strict=True)]
    for t, name in named:
        if not t.is_inexact:
            raise GradientError(f"{user_source()}: {why}: {name} has type {t}, and only floating or complex numbers can be "
                                f"transposed. Convert it to float.")
    unknown = [True] * len(types) + [False] * len(made.outer)

    def transposed(cotangent: Any) -> tuple[Any, ...]:
        arriving = directions(cotangent, made.structure, paths(made.structure, "result"), results, why, "cotangent")
        values: list[Operand] = [*arriving, *made.outer]
        place = Place(values, why, made.graph)
        with collector_paused():
            refs = place.refs(values)
            found = pull(made.graph, unknown, refs[len(arriving):], refs[:len(arriving)], place.builder)
            out: tuple[Any, ...] = unflatten(structure, place.results([], found, types)[1])
        return out
    return transposed


def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of f at primals, times tangents: the derivative of f's gradient in that direction, without the matrix.

    f gives a real scalar. The result is like grad's: that of the only argument, or a tuple with one entry for each.

    >>> hvp(lambda x: np.sum(x ** 3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    if not isinstance(primals, (tuple, list)) or not primals:
        raise ArgumentError(f"{user_source()}: hvp of {name_of(f)}: primals is a tuple with one entry for each argument.")
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(f, argnums), tuple(primals), tuple(tangents))[1]


def release_memory() -> None:
    """Give memory that is kept for later calls back to the system: scratch memory, and that of large results which nobody holds
    any more. At most 256 MiB is kept.

    >>> import numpy as np, loopwright as lw
    >>> float(lw.jit(lambda x: np.sum(np.sort(x)))(np.ones(100_000)))
    100000.0
    >>> lw.release_memory()
    """
    scratch.trim()
