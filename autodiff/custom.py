"""Functions with rules of their own, traced: containers become flat lists, and rules become regions.

Guarantees: a call traces its function and rules at once, and no Python object stays in the graph; values that Python may ask
for where the call stands (`if x > 0` under `grad` outside `jit`) it may ask for in functions and rules too; what a rule
returns is checked against the function, and errors show both. A rule that calls its own function gets that function with
its rules, as often as derivatives can be taken where the call stands.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopwright.autodiff.calls import (
    Operand,
    Place,
    argument_names,
    concrete,
    float0,
    operands,
    same,
    type_of,
)
from loopwright.autodiff.jvp import tangent_type, zeros
from loopwright.ir.builder import Builder, Ref, innermost, running
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.graph import Graph, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.custom import custom_jvp, custom_vjp
from loopwright.ir.ops.gradients import stop_gradient
from loopwright.ir.ops.recomputation import Policy, checkpoint
from loopwright.ir.ops.regions import chosen, rearranged
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX, ArrayType, native
from loopwright.tracer.promotion import convert
from loopwright.tracer.pytree import LEAF, Structure, flatten, paths, unflatten
from loopwright.tracer.trace import Traced, as_ref, trace
from loopwright.tracer.tracer import Tracer

Function = Callable[..., Any]


# ---- how often derivatives can be taken -------------------------------------------------------------
class _Open(threading.local):
    """The functions whose rules are being traced on this thread, each with the levels of its call."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, int]] = []


_open = _Open()


def levels(function: object) -> int:
    """How many derivatives may still be taken of a call made here: one for each trace that runs around it; in a rule of the
    function itself, one less than around that rule. A call without any is an ordinary one."""
    for other, around in reversed(_open.calls):
        if other is function:
            return around - 1
    return running.count(threading.get_ident())


@contextmanager
def _rules_of(function: object) -> Iterator[None]:
    _open.calls.append((function, levels(function)))
    try:
        yield
    finally:
        _open.calls.pop()


# ---- calls ------------------------------------------------------------------------------------------
class Call:
    """The arguments of a call, and where its regions are traced."""

    def __init__(self, f: Function, args: tuple[Any, ...], why: str) -> None:
        self.why = why
        leaves, self.structure = flatten(args)
        self.names = argument_names(self.structure)
        self.values: list[Operand] = operands(leaves, self.names, why)
        self.types = [type_of(x) for x in self.values]
        self.known = [concrete(x) for x in self.values]
        self.active = [t.is_inexact for t in self.types]
        self.primal = self.traced(lambda xs: f(*unflatten(self.structure, xs)), (), why)

    @property
    def results(self) -> list[ArrayType]:
        """The types of the results."""
        return [v.type for v in self.primal.graph.results]

    @property
    def result(self) -> Structure:
        """The container of the results."""
        return self.primal.structure

    def traced(self, f: Function, more: Sequence[ArrayType], why: str) -> Traced:
        """A region of f, which takes a list: the arguments, then values of `more` types."""
        return region(f, [*self.types, *more], [*self.known, *[None] * len(more)], why)

    def emitted(self, op: Op, made: Sequence[Traced], owns: Sequence[tuple[int, int]], constant: bool = False,
                **attrs: Any) -> Any:
        """The results of a node. See `emitted`."""
        return unflatten(self.result, emitted(op, self.values, made, owns, self.why, constant, **attrs))


def emitted(op: Op, values: Sequence[Operand], made: Sequence[Traced], owns: Sequence[tuple[int, int]], why: str,
            constant: bool = False, **attrs: Any) -> list[Any]:
    """The results of a node with regions. owns: of each region, how many parameters stand before and after what it captured.
    constant: derivatives hold what was captured constant."""
    outer = _merged(made)
    regions = tuple([_over(t, outer, *own) for t, own in zip(made, owns, strict=True)])
    here = Place([*values, *outer], why, next((g for g in regions if g.free_symbols), None))
    captured = [stop_gradient(x) if constant and x.type.is_inexact else x for x in here.refs(outer)]
    return here.results(here.builder.bind_all(op, [*here.refs(values), *captured], attrs, regions))[0]


def region(f: Function, types: Sequence[ArrayType], known: Sequence[Any], why: str) -> Traced:
    """A region of f, which takes a list of values of these types. See tracer.trace for `known`."""
    made = trace(f, types, concrete=known, is_floor=True, why=why)
    g = made.graph
    return Traced(Graph(g.params, g.nodes, g.results), made.outer, made.structure, made.builder)


def _key(x: Ref | np.ndarray) -> Any:
    return x.value if isinstance(x, Ref) else id(x)


def _merged(made: Sequence[Traced]) -> list[Ref | np.ndarray]:
    """Everything that regions captured, each once."""
    return list({_key(x): x for t in made for x in t.outer}.values())


def _over(t: Traced, outer: Sequence[Ref | np.ndarray], before: int, after: int) -> Graph:
    """A region that takes everything captured between its own parameters."""
    own, mine = t.graph.params, {_key(x): v for x, v in zip(t.outer, t.graph.params[before + after:], strict=True)}
    rest = [mine[_key(x)] if _key(x) in mine else Value(_type_outside(x)) for x in outer]
    return rearranged(t.graph, [*own[:before], *rest, *own[before:before + after]])


def _type_outside(x: Ref | np.ndarray) -> ArrayType:
    return x.type if isinstance(x, Ref) else ArrayType(x.shape, native(x.dtype))


def call_with_jvp(function: object, f: Function, rule: Function, args: tuple[Any, ...], why: str,
                  constant: bool = False) -> Any:
    """f(*args), with rule(primals, tangents) -> (result, its tangent) for its derivative. constant: what f and the rule capture
    is held constant; else a derivative that reaches it is refused."""
    with _rules_of(function):
        call = Call(f, args, why)
        directions = [tangent_type(t) for t in chosen(call.types, call.active)]
        count = len(call.types)

        def ruled(xs: list[Tracer]) -> list[Tracer]:
            along = _with_nothing(xs[count:], call.active)
            found = rule(unflatten(call.structure, xs[:count]), unflatten(call.structure, along))
            return _pair(found, call)
        made = call.traced(ruled, directions, f"the rule of {why}")
    return call.emitted(custom_jvp, [call.primal, made], [(count, 0), (count, len(directions))], constant, operands=count)


def _with_nothing(xs: Sequence[Tracer], active: Sequence[bool]) -> list[Any]:
    """Tangents of all leaves: those of integers have dtype float0, and nothing in them."""
    rest = iter(xs)
    return [next(rest) if a else np.zeros((), float0) for a in active]


def _pair(found: Any, call: Call) -> list[Tracer]:
    """The results and tangents that a jvp rule returned, flat."""
    why = f"the rule of {call.why}"
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise ArgumentError(f"{user_source()}: {why} must return a pair (result, tangent of the result), got "
                            f"{type(found).__name__}.")
    results = fitted(found[0], call.result, call.results, "result", why)
    along = [tangent_type(t) for t in call.results]
    return [*results, *fitted(found[1], call.result, along, "tangent", why)]


def call_with_vjp(function: object, f: Function, forward: Function, backward: Function, args: tuple[Any, ...],
                  why: str) -> Any:
    """f(*args), with forward(*args) -> (result, residuals) and backward(residuals, cotangent) -> cotangents of args."""
    with _rules_of(function):
        call = Call(f, args, why)
        kept: list[Structure] = []

        def ahead(xs: list[Tracer]) -> list[Any]:
            found = forward(*unflatten(call.structure, xs))
            if not isinstance(found, (tuple, list)) or len(found) != 2:
                raise ArgumentError(f"{user_source()}: the forward rule of {why} must return a pair (result, residuals), got "
                                    f"{type(found).__name__}.")
            residuals, structure = flatten(found[1])
            kept.append(structure)
            return [*fitted(found[0], call.result, call.results, "result", f"the forward rule of {why}"), *residuals]
        first = call.traced(ahead, (), f"the forward rule of {why}")
        residuals = [v.type for v in first.graph.results[len(call.results):]]

        def behind(xs: list[Tracer]) -> list[Tracer]:
            count = len(residuals)
            arriving = _with_nothing(xs[count:], [t.is_inexact for t in call.results])
            found = backward(unflatten(kept[0], xs[:count]), unflatten(call.result, arriving))
            return _cotangents(found, call)
        arriving = [tangent_type(t) for t in call.results if t.is_inexact]
        second = region(behind, [*residuals, *arriving], [None] * (len(residuals) + len(arriving)),
                        f"the backward rule of {why}")
    count = len(call.types)
    owns = [(count, 0), (count, 0), (0, len(residuals) + len(arriving))]
    return call.emitted(custom_vjp, [call.primal, first, second], owns, operands=count)


def call_checkpointed(f: Function, args: tuple[Any, ...], policy: Policy, why: str) -> Any:
    """f(*args), computed again in reverse mode."""
    call = Call(f, args, why)
    return call.emitted(checkpoint, [call.primal], [(len(call.types), 0)], policy=policy)


# ---- what rules return ------------------------------------------------------------------------------
def fitted(tree: Any, structure: Structure, types: Sequence[ArrayType], what: str, why: str,
           like: str = "the function's result") -> list[Tracer]:
    """The leaves of a result or tangent at the types that it must have. Tangents of integers are left out."""
    leaves, found = flatten(tree)
    if found != structure:
        raise ArgumentError(f"{user_source()}: {why} must return a {what} in the containers of {like}, {structure}, "
                            f"but returned {found}.")
    every = zip(leaves, types, paths(structure, what), strict=True)
    return [_fit(x, t, path, why) for x, t, path in every if what == "result" or t.is_inexact]


def _fit(x: Any, t: ArrayType, name: str, why: str) -> Tracer:
    """A value of type t: a Python number takes its dtype."""
    here = _here()
    found = as_ref(x, here)
    ref = found if isinstance(found, Ref) else here.capture(found)
    own = ref.type
    if own.rank != t.rank or not all(same(a, b) for a, b in zip(own.shape, t.shape, strict=True)):
        raise ShapeError(f"{user_source()}: {why}: {name} has type {own}, but its shape must be that of {t}. Reshape it, "
                         f"or sum it over the axes that were broadcast.")
    fits = own.dtype == t.dtype or (own.weak and t.is_inexact and (t.dtype in COMPLEX or own.dtype not in COMPLEX))
    if not fits:
        raise DTypeError(f"{user_source()}: {why}: {name} has type {own}, but its dtype must be that of {t}. Convert it with "
                         f"x.astype(...).")
    return Tracer(convert(ref, t.dtype, weak=t.weak))


def _here() -> Builder:
    here = innermost()
    assert here is not None
    return here


def _cotangents(found: Any, call: Call) -> list[Tracer]:
    """The cotangents that a backward rule returned, of the inexact arguments; None is zero."""
    why = f"the backward rule of {call.why}"
    expected = call.structure
    if not isinstance(found, (tuple, list)) or len(found) != len(expected.children):
        raise ArgumentError(f"{user_source()}: {why} must return a tuple with one cotangent for each of "
                            f"{len(expected.children)} arguments, got {_described(found)}. "
                            f"The cotangent of an argument may be None, for zero.")
    leaves, structure = flatten(tuple(found))
    aligned = _aligned(structure, expected, iter(leaves), why, expected)
    out = []
    for x, t, name in zip(aligned, call.types, call.names, strict=True):
        if t.is_inexact:
            to = tangent_type(t)
            out.append(Tracer(zeros(to, _here())) if x is None else _fit(x, to, f"the cotangent of {name}", why))
        elif x is not None and getattr(x, "dtype", None) != float0:
            raise DTypeError(f"{user_source()}: {why}: {name} has type {t}, and integers have no cotangents: return "
                             f"None for it.")
    return out


def _described(x: Any) -> str:
    return f"{len(x)} entries" if isinstance(x, (tuple, list)) else type(x).__name__


def _aligned(found: Structure, expected: Structure, leaves: Iterator[Any], why: str, whole: Structure) -> list[Any]:
    """One leaf, or None, for each leaf of `expected`."""
    if found.type is type(None) and expected.type is not type(None):
        return [None] * expected.leaf_count
    if expected is LEAF and found is LEAF:
        return [next(leaves)]
    if expected is LEAF or (found.type, found.meta, len(found.children)) != (expected.type, expected.meta,
                                                                            len(expected.children)):
        raise ArgumentError(f"{user_source()}: {why} must return cotangents in the containers of the arguments, {whole}, but "
                            f"where those have {expected} it returned {found}.")
    return [x for f, e in zip(found.children, expected.children, strict=True) for x in _aligned(f, e, leaves, why, whole)]
