"""Control flow as users write it: functions of containers become regions.

Guarantees: what a function runs belongs to its region, outer traced values and arrays that it uses become operands, and
its parameters are its own (they may be written in place); all branches have one result type and every trip of a loop one
carry type, up to Python numbers, which take the dtype that they meet (NEP 50); user errors show both types and the path.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref, innermost
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.errors import ArgumentError, ConcretizationError, DTypeError, ShapeError
from loopwright.ir.graph import Graph, Value
from loopwright.ir.ops.regions import rearranged, unused
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, ArrayType
from loopwright.tracer.promotion import DEFAULT, WEAK, convert, kind_of, lift, result_kind
from loopwright.tracer.pytree import Structure, flatten, paths, unflatten
from loopwright.tracer.trace import Traced, as_ref, trace
from loopwright.tracer.tracer import Tracer

Outer = list[Ref | np.ndarray]


@dataclass(frozen=True)
class Regions:
    """Regions that take the same operands: those of the node, with what the functions captured beside them."""

    graphs: tuple[Graph, ...]
    outer: Outer
    structure: Structure


def _traced(f: Callable[..., Any], structure: Structure, types: Sequence[ArrayType], finish: Callable[[Any], Any],
            why: str) -> Traced:
    """The region of f, which takes a tuple of this structure; `finish` has the last word about its result."""
    made = trace(lambda leaves: finish(f(*unflatten(structure, leaves))), types, is_floor=True, owner="local", why=why)
    g = made.graph
    return Traced(Graph(g.params, g.nodes, g.results), made.outer, made.structure, made.builder)


def _kind(t: ArrayType) -> Any:
    return WEAK[t.dtype.kind] if t.weak else t.dtype


def _is_number(x: Any) -> bool:
    return isinstance(kind_of(x), type) if isinstance(x, (Tracer, int, float, complex)) else False


def _weak(x: Any) -> Any:
    """A leaf that a function returned; a Python number stays one."""
    if isinstance(x, Tracer) or not _is_number(x):
        return x
    here = innermost()
    assert here is not None
    return Tracer(convert(lift(x, DEFAULT[kind_of(x)], here), DEFAULT[kind_of(x)], weak=True))


def _at(x: Any, t: ArrayType) -> Any:
    """A leaf at the dtype that is expected of it, where it is a Python number that this dtype can hold."""
    if not _is_number(x) or result_kind(kind_of(x), _kind(t)) != t.dtype:
        return x
    here = innermost()
    assert here is not None
    ref = x.ref if isinstance(x, Tracer) else lift(x, t.dtype, here)
    return Tracer(convert(ref, t.dtype, weak=t.weak and not ref.shape))


def _type(x: Any) -> ArrayType:
    here = innermost()
    assert here is not None
    found = as_ref(x, here)
    return found.type if isinstance(found, Ref) else ArrayType(found.shape, found.dtype)


def _same_shape(a: ArrayType, b: ArrayType) -> bool:
    here = innermost()
    if here is None:
        return a.shape == b.shape
    return a.rank == b.rank and all(here.scope.equate(m, n) for m, n in zip(a.shape, b.shape, strict=True))


def _merged(outers: Sequence[Outer]) -> tuple[Outer, list[list[int]]]:
    """Everything captured, each once, and where each list's entries are."""
    merged: Outer = []
    places: dict[Any, int] = {}
    found = []
    for outer in outers:
        at = []
        for x in outer:
            key = x.value if isinstance(x, Ref) else id(x)
            if key not in places:
                places[key] = len(merged)
                merged.append(x)
            at.append(places[key])
        found.append(at)
    return merged, found


# ---- branches -------------------------------------------------------------------------------------
def branches(functions: Sequence[Callable[..., Any]], names: Sequence[str], structure: Structure, types: Sequence[ArrayType],
             why: str) -> Regions:
    """One region per function of the same operands. ArgumentError, ShapeError or DTypeError where their results differ.

    Parameters: the operands, then what the functions captured.
    """
    found: list[Traced] = []
    for f, name in zip(functions, names, strict=True):
        found.append(_traced(f, structure, types, _each(_weak), name))
    expected = _common(found, names, why)
    for k, (f, name) in enumerate(zip(functions, names, strict=True)):
        if [v.type for v in found[k].graph.results] != expected:
            found[k] = _traced(f, structure, types, _agreeing(expected, found[0], names[0], name, why), name)
    outer, places = _merged([t.outer for t in found])
    graphs = []
    for t, at in zip(found, places, strict=True):
        params = list(t.graph.params[:len(types)]) + unused(_type_outside(x) for x in outer)
        for i, v in zip(at, t.graph.params[len(types):], strict=True):
            params[len(types) + i] = v
        graphs.append(rearranged(t.graph, params))
    return Regions(tuple(graphs), outer, found[0].structure)


def _type_outside(x: Ref | np.ndarray) -> ArrayType:
    return x.type if isinstance(x, Ref) else ArrayType(x.shape, x.dtype.newbyteorder("="))


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def finish(tree: Any) -> Any:
        leaves, structure = flatten(tree)
        return unflatten(structure, [change(x) for x in leaves])
    return finish


def _common(found: Sequence[Traced], names: Sequence[str], why: str) -> list[ArrayType]:
    """The result types of all branches: Python numbers take the dtype of arrays that they meet."""
    first = found[0]
    for t, name in zip(found, names, strict=True):
        if t.structure != first.structure:
            raise ArgumentError(f"{user_source()}: {why}: branches must return one structure, but {names[0]} returned "
                                f"{first.structure} and {name} returned {t.structure}.")
    common = []
    for row in zip(*(t.graph.results for t in found), strict=True):
        kinds = [_kind(v.type) for v in row]
        strong = [k for k in kinds if not isinstance(k, type)]
        best = strong[0] if strong else result_kind(*kinds)
        fits = result_kind(*kinds) == best
        common.append(ArrayType(row[0].type.shape, best, not strong) if fits else row[0].type)
    return common


def _agreeing(expected: Sequence[ArrayType], first: Traced, first_name: str, name: str, why: str) -> Callable[[Any], Any]:
    """The result of a branch at the types that are expected of it."""
    def finish(tree: Any) -> Any:
        leaves, structure = flatten(tree)
        leaves = [_at(x, t) for x, t in zip(leaves, expected, strict=True)]
        for x, t, other, path in zip(leaves, expected, first.graph.results, paths(structure, "result"), strict=True):
            own = _type(x)
            if own.dtype != t.dtype or not _same_shape(own, t):
                error = DTypeError if own.dtype != t.dtype else ShapeError
                raise error(f"{user_source()}: {why}: branches must return one type, but {path} of {first_name} is "
                            f"{other.type} and that of {name} is {own}. Convert with x.astype(...), or broadcast to one shape.")
        return unflatten(structure, leaves)
    return finish


# ---- loops ----------------------------------------------------------------------------------------
class Carry:
    """The carry of a loop under construction: its structure and types, and how results of the body must fit them."""

    def __init__(self, structure: Structure, types: Sequence[ArrayType], why: str) -> None:
        self.structure, self.types, self.why = structure, list(types), why
        self.promoted = list(types)

    def taken(self, tree: Any) -> list[Any]:
        """The leaves of a new carry at the types of the carry. What a Python number must become is noted in `promoted`."""
        leaves, structure = flatten(tree)
        self.check_structure(structure)
        found = []
        for k, (x, path) in enumerate(zip(leaves, paths(structure, "carry"), strict=True)):
            x = _at(_weak(x), self.types[k])
            self.promoted[k] = self.promotion(self.types[k], _type(x), path)
            found.append(x)
        return found

    def check_structure(self, structure: Structure) -> None:
        """ArgumentError for a new carry of another structure."""
        if structure != self.structure:
            raise ArgumentError(f"{user_source()}: {self.why}: the new carry must have the structure of the initial one, "
                                f"{self.structure}, but the body returned {structure}.")

    def promotion(self, old: ArrayType, new: ArrayType, path: str) -> ArrayType:
        """The type of one leaf of the carry, given that a trip turns `old` into `new`."""
        if not _same_shape(old, new):
            raise ShapeError(f"{user_source()}: {self.why}: {path} is {old} before a trip and {new} after it, but its shape "
                             f"must stay the same. Start from an array of the final shape, or reshape what the body returns.")
        if (old.dtype, old.weak) == (new.dtype, new.weak):
            return old
        if old.weak and result_kind(_kind(old), _kind(new)) == new.dtype:
            return ArrayType(old.shape, new.dtype, new.weak)
        raise DTypeError(f"{user_source()}: {self.why}: {path} is {old} before a trip and {new} after it, but its dtype must "
                         f"stay the same. Convert the initial value, or what the body returns, with x.astype(...).")


def scan_body(f: Callable[[Any, Any], Any], carry: Carry, rows: Structure, row_types: Sequence[ArrayType]) -> Regions:
    """The region of a function (carry, row) -> (carry, row). Parameters: what it captured, carry, rows.

    The structure is that of its second result; the carry's types may have been promoted.
    """
    why, count = carry.why, len(carry.types)
    structure = Structure(tuple, None, (carry.structure, rows))

    def finish(result: Any) -> Any:
        new, y = check_pair(result, why)
        return carry.taken(new), y

    made = _until_stable(lambda: _traced(f, structure, [*carry.types, *row_types], finish, f"the body of {why}"), carry)
    n = count + len(row_types)
    graph = rearranged(made.graph, [*made.graph.params[n:], *made.graph.params[:n]])
    return Regions((graph,), made.outer, made.structure.children[1])


def while_body(condition: Callable[[Any], Any], body: Callable[[Any], Any], carry: Carry) -> tuple[Regions, Regions]:
    """The regions of a condition and a body of a carry. Parameters: what each captured, then the carry."""
    why, alone = carry.why, Structure(tuple, None, (carry.structure,))
    step = _until_stable(lambda: _traced(body, alone, carry.types, carry.taken, f"the body of {why}"), carry)
    test = _traced(condition, alone, carry.types, lambda x: check_truth(x, why), f"the condition of {why}")
    return _loop_regions(test, len(carry.types)), _loop_regions(step, len(carry.types))


def _loop_regions(made: Traced, count: int) -> Regions:
    params: tuple[Value, ...] = (*made.graph.params[count:], *made.graph.params[:count])
    return Regions((rearranged(made.graph, params),), made.outer, made.structure)


def _until_stable(make: Callable[[], Traced], carry: Carry) -> Traced:
    """Trace again while Python numbers of the carry become arrays of some dtype."""
    while True:
        made = make()
        if carry.promoted == carry.types:
            return made
        carry.types = list(carry.promoted)


def check_pair(result: Any, why: str) -> tuple[Any, Any]:
    """What the body of a scan returned. ArgumentError unless it is a pair."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise ArgumentError(f"{user_source()}: {why}: the body must return a pair (carry, y), got {type(result).__name__}. "
                            f"Return (carry, None) where there is nothing to stack.")
    return result[0], result[1]


def check_truth(x: Any, why: str) -> Any:
    """What a condition returned. DTypeError unless it is one bool."""
    t = x.type if isinstance(x, Tracer) else None
    if isinstance(x, (np.ndarray, np.generic, bool, int, float)):
        t = ArrayType(np.shape(x), np.asarray(x).dtype)
    if t is None or t.dtype != BOOL or t.shape:
        raise DTypeError(f"{user_source()}: {why}: the condition must be one bool (bool[]), got {t or type(x).__name__}. "
                         f"Compare (x > 0), or reduce with np.all or np.any.")
    return x


def row_types(types: Iterable[ArrayType], names: Iterable[str], length: Extent | None, same: Callable[[Extent, Extent], bool],
              why: str) -> tuple[Extent, list[ArrayType]]:
    """The number of rows of every array, on which all must agree, and the types of their rows."""
    rows, first = [], "length="
    for t, name in zip(types, names, strict=True):
        if not t.shape:
            raise ShapeError(f"{user_source()}: {why}: {name} has type {t}, which has no axis to run over. Close over it, or "
                             f"put it into the carry.")
        if length is None:
            length, first = t.shape[0], name
        elif not same(length, t.shape[0]):
            raise ShapeError(f"{user_source()}: {why}: every array must have the same number of rows, but {first} has {length} "
                             f"and {name} has type {t}.")
        rows.append(t.with_shape(t.shape[1:]))
    if length is None:
        raise ArgumentError(f"{user_source()}: {why}: there is nothing to run over: pass arrays, or length=.")
    return length, rows


def refuse_traced_length(x: Any, why: str) -> None:
    """ConcretizationError for a number of trips that is data."""
    if isinstance(x, Tracer):
        raise ConcretizationError(f"{user_source()}: {why}: length must be an integer or a size, not a traced value. "
                                  f"lax.fori_loop and lax.while_loop run a number of trips that is data.")
