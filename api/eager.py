"""Control flow outside every trace: plain Python loops over the user's functions.

Guarantees: the checks, and the dtypes that Python numbers take, are those of a trace; parameters are copies, which may be
written in place; results share no memory with anything. Values are real, so what a body closes over may be indexed by its
parameters, and Python's own control flow works in it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.calls import Operand, operands, type_of
from loopwright.ir.errors import ArgumentError
from loopwright.ir.source import user_source
from loopwright.tracer.control import Carry, check_pair, check_truth
from loopwright.tracer.promotion import WEAK, result_kind
from loopwright.tracer.pytree import Structure, flatten, paths, unflatten

Function = Callable[..., Any]


def own(x: Any) -> Any:
    """A value that may be written: an array's copy, a NumPy scalar for rank 0."""
    return x if not isinstance(x, np.ndarray) else x.copy() if x.ndim else x[()]


def result(x: Operand) -> Any:
    """A leaf as users get it from a call: Python numbers at NumPy's default dtype."""
    return np.array(x, dtype=type_of(x).dtype)[()]


def call(f: Function, leaves: Sequence[Operand], structure: Structure, why: str) -> Any:
    """f on its own copies of the leaves."""
    found, shape = flatten(f(*unflatten(structure, [own(x) for x in leaves])))
    return unflatten(shape, [result(x) for x in operands(found, paths(shape, "result"), why)])


def while_loop(condition: Function, body: Function, leaves: Sequence[Operand], carry: Carry) -> list[Operand]:
    """The carry when the condition no longer holds."""
    now = list(leaves)
    while check_truth(condition(unflatten(carry.structure, [own(x) for x in now])), carry.why):
        now = _next(body(unflatten(carry.structure, [own(x) for x in now])), carry)
    return _settled(now, carry)


def scan(f: Function, leaves: Sequence[Operand], stacks: Sequence[np.ndarray], rows: Structure, length: int, reverse: bool,
         carry: Carry) -> tuple[list[Any], Any]:
    """The last carry, and the stacked rows, of at least one trip."""
    now, structure, found = list(leaves), None, []
    for k in reversed(range(length)) if reverse else range(length):
        given = unflatten(carry.structure, [own(x) for x in now]), unflatten(rows, [own(x[k]) for x in stacks])
        new, y = check_pair(f(*given), carry.why)
        now = _next(new, carry)
        ys, shape = flatten(y)
        if structure is not None and shape != structure:
            raise ArgumentError(f"{user_source()}: {carry.why}: y must have one structure, got {structure} and {shape}.")
        structure = shape
        found.append(operands(ys, paths(shape, "y"), carry.why))
    assert structure is not None
    columns = zip(*(reversed(found) if reverse else found), strict=True)
    return _settled(now, carry), unflatten(structure, [_stacked(column) for column in columns])


def _stacked(column: Sequence[Operand]) -> np.ndarray:
    """Rows as one array; Python numbers among them take the dtype of the others."""
    kinds = {WEAK[t.dtype.kind] if t.weak else t.dtype for t in map(type_of, column)}
    return np.stack([np.asarray(x) for x in column], dtype=result_kind(*kinds), casting="unsafe")


def _next(tree: Any, carry: Carry) -> list[Operand]:
    """The carry after a trip, at the types of the carry."""
    leaves, structure = flatten(tree)
    carry.check_structure(structure)
    names = paths(structure, "carry")
    found = operands(leaves, names, carry.why)
    for k, (x, name) in enumerate(zip(found, names, strict=True)):
        t, old = type_of(x), carry.types[k]
        if t.weak and not old.weak and result_kind(WEAK[t.dtype.kind], old.dtype) == old.dtype:
            found[k] = np.array(x, dtype=old.dtype)[()]
        else:
            carry.types[k] = carry.promotion(old, t, name)
    return found


def _settled(now: Sequence[Operand], carry: Carry) -> list[Any]:
    """The carry at its dtypes: one that was a Python number until the end has NumPy's default."""
    return [np.array(x, dtype=t.dtype)[()] for x, t in zip(now, carry.types, strict=True)]
