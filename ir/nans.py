"""Where a NaN came from.

Guarantees: `watched` is of its thread alone; a NaN that is found is one that a result holds, made by an operation none of whose
operands held one, the first such in program order; in loops, in the first trip that made it. Nothing is computed twice for
its effects.
"""
from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from loopwright.ir.graph import Graph, Node, Value, binding, silent
from loopwright.ir.interpreter import bind_sizes, hunting, run_node
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.types import ArrayType, is_inexact


class _State(threading.local):
    depth = 0


_state = _State()


@contextmanager
def watched() -> Iterator[None]:
    """Inside, on this thread, results that hold a NaN are looked into."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


def is_watching() -> bool:
    """Whether this thread is inside `watched`."""
    return _state.depth > 0


def holds_nan(xs: Iterable[Any]) -> bool:
    """Whether some array or number holds a NaN."""
    return any(is_inexact(x.dtype) and bool(np.isnan(x).any()) for x in map(np.asarray, xs))


def explain(g: Graph, args: Sequence[Any], sizes: Mapping[str, int], why: str) -> None:
    """FloatingPointError with the operation that made the NaN of a result; nothing where it was in the arguments."""
    arrays = [np.asarray(x, v.type.dtype) for x, v in zip(args, g.params, strict=True)]
    if not _hunt(silent(g), arrays, sizes):
        raise FloatingPointError(f"{why} gave a NaN in compiled code that NumPy does not give: please report it, with the "
                                 f"program and its arguments.")


def _hunt(g: Graph, args: Sequence[np.ndarray], sizes: Mapping[str, int]) -> bool:
    """Whether a result of g holds a NaN, if all of those were in the arguments; else FloatingPointError."""
    bound = bind_sizes(g, [x.shape for x in args], sizes)
    env: dict[Value, np.ndarray] = dict(zip(g.params, args, strict=True))
    at = {}  # the sizes that each node ran with
    with np.errstate(all="ignore"):
        for n in g.nodes:
            at[n] = dict(bound)
            env.update(zip(n.outputs, run_node(n, [env[v] for v in n.inputs], bound), strict=True))
            bound.update(dict.fromkeys(binding(n), int(env[n.inputs[0]])) if n.op.binds else ())
        bad = {v for v in env if holds_nan([env[v]])}
        for n in _makers(g, bad):
            inputs = [env[v] for v in n.inputs]
            if n.regions:
                with hunting(_hunt):
                    run_node(n, inputs, at[n])
            _found(n, inputs, next(env[v] for v in n.outputs if v in bad))
    return any(v in bad for v in g.results)


def _makers(g: Graph, bad: set[Value]) -> list[Node]:
    """The nodes that results have NaN from and that had none to begin with, in order."""
    needed = bad.intersection(g.results)
    found = []
    for n in reversed(g.nodes):
        if not needed.isdisjoint(n.outputs):
            before = bad.intersection(n.inputs)
            needed |= before
            found += [] if before else [n]
    return found[::-1]


def _found(n: Node, inputs: Sequence[np.ndarray], result: np.ndarray) -> NoReturn:
    """Name the operation and what it was given."""
    at = tuple([int(k) for k in np.argwhere(np.isnan(result))[0]]) if result.ndim else ()
    where = f" at index {at[0] if len(at) == 1 else at} of its result" if at else ""
    given = [x[at] if n.op.shape is same_shape else x for x in inputs]
    shown = f" from {', '.join(map(_brief, given))}" if inputs else ""
    raise FloatingPointError(f"{n.source}: {n.op.name} made a NaN{where}{shown}")


def _brief(x: Any) -> str:
    x = np.asarray(x)
    if not x.ndim:
        return str(x)
    return f"{ArrayType(x.shape, x.dtype)} {np.array2string(x, threshold=8, edgeitems=2, precision=6)}".replace("\n", "")
