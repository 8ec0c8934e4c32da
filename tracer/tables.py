"""The tables of what NumPy's functions mean on traced values.

`tracer.py` looks functions up here; `ufuncs.py`, `functions_*.py`, `indexing.py` and `writing.py` fill the tables when the
package is imported. So an array's operators need not import what they call, and imports stay one-way.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.errors import ConcretizationError
from loopwright.ir.source import user_source

UFUNCS: dict[np.ufunc, Callable[..., Any]] = {}  # the function itself; keep_weak= is for operators
UFUNC_METHODS: dict[str, Callable[..., Any]] = {}  # "reduce", "accumulate", "outer", "at": called with the ufunc first
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}  # by NumPy function; indexing by operator.getitem and setitem

# Rules are written with NumPy's own functions, which dispatch on what they get; NumPy's stubs speak of ndarrays only.
xp: Any = np
Traced = Any  # a Tracer

_Function = TypeVar("_Function", bound=Callable[..., Any])


def implements(*functions: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Enter a function as the meaning of NumPy functions on traced values."""
    def enter(rule: _Function) -> _Function:
        for f in functions:
            FUNCTIONS[f] = rule
        return rule
    return enter


INSTEAD: dict[Callable[..., Any], str] = {
    np.bincount: "How many there are must be known: lw.ops.segment_sum(weights, x, number) adds, ones count.",
    np.histogram: "np.searchsorted gives each number its bin; lw.ops.segment_sum counts these.",
    np.put_along_axis: "Write x[rows, indices] = values with rows = lw.numpy.arange(n)[:, None].",
    np.fill_diagonal: "Write x[i, i] = values with i = lw.numpy.arange(n).",
    np.partition: "Write np.sort.",
}


def unsupported(what: str, instead: str = "") -> TypeError:
    """The error for what has no meaning on traced values yet."""
    return TypeError(f"{user_source()}: {what} is not supported on traced values{' yet' if not instead else ''}."
                     f"{' ' + instead if instead else ''}")


def call_ufunc(ufunc: np.ufunc, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` answers."""
    if (out := kwargs.pop("out", None)) is not None:
        raise _no_out(f"np.{ufunc.__name__}", out)
    rule = UFUNCS.get(ufunc)
    if rule is None:
        raise unsupported(f"np.{ufunc.__name__}")
    if method == "__call__":
        return rule(*args, **kwargs)
    if method not in UFUNC_METHODS:
        raise unsupported(f"np.{ufunc.__name__}.{method}")
    return UFUNC_METHODS[method](ufunc, *args, **kwargs)


def call_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `__array_function__` answers."""
    if (out := kwargs.pop("out", None)) is not None:
        raise _no_out(_name(function), out)
    rule = FUNCTIONS.get(function)
    if rule is None:
        raise unsupported(_name(function), INSTEAD.get(function, ""))
    return rule(*args, **kwargs)


def _name(function: Callable[..., Any]) -> str:
    """As programs write it."""
    return f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)


def _no_out(name: str, out: Any) -> TypeError:
    if any(isinstance(x, np.ndarray) for x in (out if isinstance(out, tuple) else (out,))):
        return ConcretizationError(
            f"{user_source()}: {name}(..., out=array) or an in-place operator (array += x) would store a traced value into a "
            f"real ndarray. Write array = array + x, or make the array inside the function with lw.numpy.zeros(...) or "
            f"np.zeros_like(x).")
    return TypeError(f"{user_source()}: {name}(out=...) is not supported on traced values. Write x[...] = {name}(...).")
