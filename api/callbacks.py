"""Python functions called from programs: `pure_callback`, and what it shares with `loopwright.debug`."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.calls import Operand, name_of, operands, type_of
from loopwright.ir.builder import Ref, innermost
from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import ArgumentError
from loopwright.ir.op import Op
from loopwright.ir.ops import callbacks as ops
from loopwright.ir.source import user_source
from loopwright.tools import declared_types
from loopwright.tracer.promotion import lift_own
from loopwright.tracer.pytree import Structure, flatten, paths, unflatten
from loopwright.tracer.size import Size
from loopwright.tracer.tracer import Tracer

Function = Callable[..., Any]


@dataclass(frozen=True)
class Parts:
    """A call taken apart: `run` takes the arrays and numbers among its leaves; the others stay in it.

    is_flat: run(*values) is what the function itself would be called with.
    """

    values: list[Operand]
    run: Function
    is_flat: bool


def taken_apart(f: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any], why: str) -> Parts:
    """The call f(*args, **kwargs)."""
    leaves, structure = flatten((args, dict(kwargs)))
    data = [isinstance(x, (Tracer, np.ndarray, np.generic, bool, int, float, complex, Size)) for x in leaves]
    names = [path for path, d in zip(paths(structure), data, strict=True) if d]
    values = operands([x for x, d in zip(leaves, data, strict=True) if d], names, why)
    is_flat = all(data) and not kwargs and flatten(tuple(leaves))[1] == structure.children[0]
    fixed = [None if d else x for x, d in zip(leaves, data, strict=True)]  # the program holds no traced value

    def run(*xs: Any) -> Any:
        rest = iter(xs)
        positional, keywords = unflatten(structure, [next(rest) if d else x for x, d in zip(fixed, data, strict=True)])
        return f(*positional, **keywords)
    return Parts(values, f if is_flat else run, is_flat)


def called(op: Op, values: Sequence[Operand], run: Function, attrs: Callable[[], Mapping[str, Any]]) -> list[Any] | None:
    """The results of a node in the innermost trace; outside every trace `run` is called at once, and None given."""
    here = innermost()
    for x in values:
        if isinstance(x, Ref) and not x.builder.alive:
            raise x.builder.leaked()
    if here is None:
        run(*[ops.own(np.asarray(x, dtype=type_of(x).dtype)) for x in values])
        return None
    refs = [x if isinstance(x, (Ref, np.ndarray)) else lift_own(x, here) for x in values]
    return [Tracer(x) for x in here.bind_all(op, refs, attrs())]


def pure_callback(callback: Function, result_shape_dtypes: Any, *args: Any, vmap_method: str | None = None,
                  **kwargs: Any) -> Any:
    """callback(*args, **kwargs), computed by Python when the program runs.

    result_shape_dtypes: a container of `ShapeDtypeStruct`s, or of arrays or numbers like the results; sizes may be symbolic
    (`x.shape`). The function gets copies of arrays, NumPy scalars for rank 0, and must have no effect: it may be called more
    often than it stands there, or not at all. vmap_method says what it does with more axes: "sequential" (one call for each
    element; "sequential_unrolled" is the same), "expand_dims" (one call; all arguments get the axis in front, of size 1 where
    they are not mapped) or "broadcast_all" (one call; all have the whole axis). It has no derivative: wrap the call in
    `custom_jvp` or `custom_vjp`.

    ShapeError or DTypeError for results of other types, when it runs; GradientError where a derivative reaches it; what the
    function raises arrives as it is.

    >>> import numpy as np, loopwright as lw
    >>> lw.jit(lambda x: lw.pure_callback(np.sort, x, x) * 2)(np.array([3.0, 1.0]))
    array([2., 6.])
    """
    why = f"pure_callback of {name_of(callback)}"
    if not callable(callback):
        raise ArgumentError(f"{user_source()}: pure_callback expected a function, got {type(callback).__name__}.")
    if vmap_method is not None and vmap_method not in ops.VMAP_METHODS:
        raise ArgumentError(f"{user_source()}: {why}: vmap_method must be one of {', '.join(ops.VMAP_METHODS)}, got "
                            f"{vmap_method!r}.")
    like, structure = flatten(result_shape_dtypes)
    types = declared_types(like, paths(structure, "result_shape_dtypes"), why)
    parts = taken_apart(callback, args, kwargs, why)
    declared = [(t.shape, t.dtype) for t in types]
    run = _flat_results(parts.run, structure, why)
    found: list[np.ndarray] = []

    def now(*xs: Any) -> None:
        found.extend(ops.checked(run(*xs), declared, name_of(callback)))

    is_flat = parts.is_flat and (structure.leaf_count == 1 and not structure.children)
    outs = called(ops.pure_callback, parts.values, now, lambda: {
        "callback": ops.callback_of(callback, None if is_flat else run), "shapes": tuple([t.shape for t in types]),
        "dtypes": tuple([t.dtype for t in types]), "vmap_method": vmap_method})
    return unflatten(structure, [np.array(x)[()] for x in found] if outs is None else outs)


def _flat_results(f: Function, structure: Structure, why: str) -> Function:
    """f with the leaves of its result as a list."""
    def run(*xs: Any) -> list[Any]:
        leaves, given = flatten(f(*xs))
        if given != structure:
            raise ArgumentError(f"{why}: the function must give {structure}, as result_shape_dtypes declares, but it gave "
                                f"{given}.")
        return leaves
    return run
