"""Arguments of our own functions as arrays, and ops that NumPy has no function for.

Guarantees: on plain arrays a function is computed at once by NumPy, without floating-point warnings, and gives NumPy scalars
for rank 0; on traced arrays it is entered in their trace. Integers and bools become float64, Python numbers take the other
operands' dtype.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from loopwright import numpy as lnp
from loopwright.ir.errors import DTypeError
from loopwright.ir.op import Op
from loopwright.ir.ops.gradients import stop_gradient
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX, F64, is_inexact
from loopwright.tracer.axes import as_tracers
from loopwright.tracer.promotion import (
    as_operand,
    broadcast_shapes,
    has_tracer,
    lift_to,
    newest_builder,
    result_type,
    shape_of,
)
from loopwright.tracer.tracer import Tracer

xp: Any = lnp  # NumPy's names, on plain and traced arrays alike
Array = Any  # an ndarray, a NumPy scalar or a traced array

_F = TypeVar("_F", bound=Callable[..., Any])


def quiet(f: _F) -> _F:
    """f without NumPy's floating-point warnings: infinities and NaN are results here."""
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **kwargs)
    return call  # type: ignore[return-value]


def inexact_type(*xs: Any) -> np.dtype:
    """The floating dtype that operands are computed at."""
    dtype = result_type(*[as_operand(x) for x in xs])
    return dtype if is_inexact(dtype) else F64


def inexact(*xs: Any) -> Any:
    """The operands as arrays of one floating dtype, each at its own shape: one array, or a tuple of them."""
    dtype = inexact_type(*xs)
    out = tuple([x.astype(dtype) if isinstance(x, Tracer) else xp.asarray(x, dtype=dtype) for x in xs])
    return out[0] if len(out) == 1 else out


def real(name: str, *xs: Any) -> Any:
    """The same for functions of real numbers. DTypeError for complex operands."""
    if (dtype := inexact_type(*xs)) in COMPLEX:
        raise DTypeError(f"{user_source()}: {name} is not defined for {dtype}: it takes real numbers.")
    return inexact(*xs)


def elementwise(op: Op, *names: str) -> Callable[..., Any]:
    """An elementwise op of real numbers as users call it; `names` are those of its operands, x alone by default."""
    names = names or ("x",)

    @quiet
    def call(*xs: Any, **named: Any) -> Any:
        missing = names[len(xs):]
        if set(named) != set(missing) or len(xs) > len(names):
            raise TypeError(f"{user_source()}: {op.name} takes {', '.join(names)}, each once.")
        xs = (*xs, *[named[name] for name in missing])
        dtype = inexact_type(*xs)
        if dtype in COMPLEX:
            raise DTypeError(f"{user_source()}: {op.name} is not defined for {dtype}: it takes real numbers.")
        if not has_tracer(xs):
            return np.asarray(op.numpy(*np.broadcast_arrays(*[np.asarray(x, dtype) for x in xs])))[()]
        values = [as_operand(x) for x in xs]
        builder = newest_builder(values)
        shape = broadcast_shapes(builder.scope, *[shape_of(x) for x in values])
        return Tracer(op(*[lift_to(x, dtype, shape, builder) for x in values]))
    call.__name__, call.__doc__ = op.name, op.doc
    operands = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    call.__signature__ = inspect.Signature(operands)  # type: ignore[attr-defined]
    return call


def entered(op: Op, *xs: Array, **attrs: Any) -> Array:
    """An elementwise op on arrays of the dtypes that it takes."""
    xs = tuple(xp.broadcast_arrays(*xs)) if len(xs) > 1 else xs
    if not any(isinstance(x, Tracer) for x in xs):
        return np.asarray(op.numpy(*[np.asarray(x) for x in xs], **attrs))[()]
    return Tracer(op(*[x.ref for x in as_tracers(*xs)], **attrs))


def stopped(x: Any) -> Any:
    """x, held constant by derivatives."""
    return Tracer(stop_gradient(x.ref)) if isinstance(x, Tracer) else x
