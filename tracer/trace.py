"""The one place where user functions run on tracers.

Guarantees: the thread's trace state and the garbage collector are as before when `trace` returns or raises; every
result is a value of the traced graph; what the function captured is listed, never copied; a trace whose graph will be
compiled (a sealed one) raises when it drew from NumPy's global random state, because a compiled call could not draw again.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from loopwright.ir.builder import Builder, Ref, tracing
from loopwright.ir.collector import collector_paused
from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import ArgumentError, DTypeError
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Scope
from loopwright.ir.source import user_source
from loopwright.ir.tracebacks import user_frames
from loopwright.ir.types import SHORT, ArrayType, is_on_device, native
from loopwright.tracer.draws import without_draws
from loopwright.tracer.promotion import lift_own
from loopwright.tracer.pytree import Structure, flatten, paths
from loopwright.tracer.size import Size
from loopwright.tracer.tracer import Tracer


@dataclass(frozen=True, eq=False)
class Traced:
    """A finished trace: `graph` takes the parameters, then `outer`; `structure` is the result's."""

    graph: Graph
    outer: list[Ref | np.ndarray]
    structure: Structure
    builder: Builder


def trace(f: Callable[[list[Tracer]], Any], types: Sequence[ArrayType], *, concrete: Sequence[Any] | None = None,
          scope: Scope | None = None, is_floor: bool = False, is_sealed: bool = False, owner: str = "argument",
          why: str = "") -> Traced:
    """Run f on one tracer per type and close the graph of what it returns.

    concrete: per parameter the array it stands for (or None): Python may then ask for its values. scope: where guards
    go; that of the enclosing trace when left out. is_floor: everything run inside belongs to this graph. is_sealed: the graph
    will be compiled, so Python sees no value from outside. owner: that of the parameters (see Tracer). why: whose trace it
    is, for messages ("jit of f").
    """
    def once() -> Traced:
        builder = Builder(scope, why)
        with tracing(builder, is_floor, is_sealed):
            return _traced(f, types, concrete if concrete is not None else [None] * len(types), builder, owner, why)

    with user_frames(), collector_paused():
        return without_draws(once, why) if is_sealed else once()


def _traced(f: Callable[[list[Tracer]], Any], types: Sequence[ArrayType], concrete: Sequence[Any], builder: Builder,
            owner: str, why: str) -> Traced:
    """`trace` in its builder: tracers are gone before the collector goes on."""
    params = [Tracer(builder.param(t, v), owner=owner) for t, v in zip(types, concrete, strict=True)]
    leaves, structure = flatten(f(params))
    graph, outer = builder.finish(_results(leaves, structure, builder, why))
    return Traced(graph, outer, structure, builder)


def as_ref(x: Any, builder: Builder) -> Ref | np.ndarray:
    """What a function returned, as a value: numbers become constants, arrays are captured by reference."""
    if isinstance(x, Tracer):
        return x.ref
    if isinstance(x, np.ndarray):
        check_array(x)
        return x
    if is_on_device(x):
        check_dtype(x)
        return cast(np.ndarray, x)
    if isinstance(x, np.generic):
        check_array(np.asarray(x))
    elif not isinstance(x, (bool, int, float, complex, Size)):
        raise ArgumentError(f"expected an array, a number or a container of them, got {type(x).__name__} ({x!r:.60}).")
    return lift_own(x, builder)


def check_array(x: np.ndarray) -> None:
    """Refuse arrays that bring their own arithmetic, and dtypes that loopwright does not have."""
    kind = type(x)
    if kind is not np.ndarray and _has_own_arithmetic(kind):
        raise ArgumentError(f"a {kind.__name__} is not supported: its own arithmetic would be lost. "
                            f"Pass np.asarray(x){' and the mask' if isinstance(x, np.ma.MaskedArray) else ''}.")
    check_dtype(x)


def check_dtype(x: np.ndarray) -> None:
    """Refuse dtypes that loopwright does not have."""
    if x.dtype not in SHORT and native(x.dtype) not in SHORT:
        raise DTypeError(f"dtype {x.dtype} is not supported. The dtypes are {', '.join(map(str, SHORT))}.")


def _has_own_arithmetic(kind: type[np.ndarray]) -> bool:
    return (issubclass(kind, (np.ma.MaskedArray, np.matrix)) or kind.__array_ufunc__ is not np.ndarray.__array_ufunc__
            or kind.__array_function__ is not np.ndarray.__array_function__)


def _results(leaves: list[Any], structure: Structure, builder: Builder, why: str) -> list[Ref | np.ndarray]:
    refs = []
    for k, x in enumerate(leaves):
        try:
            refs.append(as_ref(x, builder))
        except (ArgumentError, DTypeError) as error:
            path = paths(structure, "result")[k]
            raise type(error)(f"{user_source()}: {path} of {why or 'a traced function'}: {error}") from None
    return refs
