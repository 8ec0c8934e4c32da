"""A call under a transform: its operands as values, its function traced, and the place where the transform emits.

Guarantees: with a traced operand the transform is emitted into the newest trace that an operand belongs to, and gives
tracers; without one it is run at once by NumPy, and gives fresh, writeable, C-contiguous arrays that share no memory with
the operands or each other, and NumPy scalars for rank 0. Every array argument reaches the function as a traced value, also
where the transform leaves it alone; numbers, strings and other objects that it leaves alone are passed as they are.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.jvp import tangent_type, zeros
from loopwright.autodiff.named_axes import NamedAxis, identity, named
from loopwright.ir import nans
from loopwright.ir.builder import Builder, Ref, innermost
from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Dim, Extent
from loopwright.ir.elimination import remove_dead
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Scope
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.construct import iota, size_value
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX, I64, ArrayType, is_on_device, native
from loopwright.tracer.promotion import convert, exact, lift_own
from loopwright.tracer.pytree import Structure, flatten, paths, unflatten
from loopwright.tracer.signatures import number_type
from loopwright.tracer.size import Size
from loopwright.tracer.trace import Traced, check_array, trace
from loopwright.tracer.tracer import Tracer

Operand = Ref | np.ndarray | np.generic | bool | int | float | complex
Function = Callable[..., Any]

float0 = np.dtype([("float0", np.void, 0)])  # JAX's dtype of the tangents of integers: there is nothing in them


def name_of(f: Any) -> str:
    """A function's name for messages."""
    return getattr(f, "__name__", type(f).__name__)


def applied(transform: str, f: Any) -> str:
    """What a transform of f is called in messages. ArgumentError where f cannot be called."""
    if not callable(f):
        raise ArgumentError(f"{user_source()}: {transform} expected a function, got {type(f).__name__}.")
    return f"{transform} of {name_of(f)}"


# ---- operands -------------------------------------------------------------------------------------
def operands(leaves: Sequence[Any], names: Sequence[str], why: str) -> list[Operand]:
    """The leaves of arguments as values; `names` are theirs for messages."""
    out = []
    for x, name in zip(leaves, names, strict=True):
        try:
            out.append(_operand(x))
        except (ArgumentError, DTypeError, OverflowError) as error:
            raise type(error)(f"{user_source()}: {why}: {name}: {error}") from None
    return out


def _operand(x: Any) -> Operand:
    known: Operand = x
    if isinstance(x, Tracer):
        return x.ref
    if isinstance(x, np.ndarray):
        check_array(x)
        return np.asarray(x, dtype=native(x.dtype))
    if isinstance(x, Size):
        return lift_own(x)
    if isinstance(x, np.generic):
        check_array(np.asarray(x))
    elif isinstance(x, int):
        exact(x, I64)
    elif is_on_device(x):
        raise ArgumentError("outside jit, transforms run on the CPU, and this array is on a GPU. Use lw.jit(lw.grad(f)), or "
                            "take the array to the CPU: lw.device_put(x, 'cpu').")
    elif not isinstance(x, (float, complex)):
        raise ArgumentError(f"expected an array, a number or a container of them, got {type(x).__name__}. Convert it, register "
                            f"its type with register_pytree_node, or close over it if it is a setting rather than data.")
    return known


def type_of(x: Operand) -> ArrayType:
    """The type of an operand; Python numbers are weak."""
    if isinstance(x, np.ndarray):
        return ArrayType(x.shape, x.dtype)
    return x.type if isinstance(x, Ref) else number_type(x)


def concrete(x: Operand) -> Any:
    """What Python sees of an operand that is asked for its value: an array, or the outer value to ask in turn."""
    return x if isinstance(x, (Ref, np.ndarray)) else np.asarray(x, dtype=type_of(x).dtype)


# ---- where a transform emits ------------------------------------------------------------------------
class Place:
    """Where a transform emits: the newest trace among its operands, else a graph of its own that is run at once."""

    def __init__(self, values: Sequence[Any], why: str, graph: Graph | None = None) -> None:
        traced = [x.builder for x in values if isinstance(x, Ref)]
        around = innermost()
        if not traced and around is not None and graph is not None and graph.symbols:
            traced = [around]  # sizes of the trace around it are all that it depends on
        self.is_traced = bool(traced)
        self.builder = max(traced, key=lambda b: b.serial) if traced else Builder(Scope(), why)

    def refs(self, xs: Sequence[Operand]) -> list[Ref]:
        """Operands as values here: arrays are held by reference, numbers become constants."""
        return [x if isinstance(x, Ref) else self.builder.capture(x) if isinstance(x, np.ndarray) else lift_own(x, self.builder)
                for x in xs]

    def values(self, results: Sequence[Ref]) -> list[Any]:
        """Results as values that outlive the place: refs of a running trace, or arrays."""
        if self.is_traced:
            return list(results)
        graph, captured = self.builder.finish(results)
        graph = remove_dead(graph)
        found = evaluate(graph, captured)
        if nans.is_watching() and nans.holds_nan(found):
            nans.explain(graph, captured, {}, self.builder.why)
        return _fresh(found, captured)

    def results(self, results: Sequence[Ref], tangents: Sequence[Ref | None] = (),
                types: Sequence[ArrayType] = ()) -> tuple[list[Any], list[Any]]:
        """Results and tangents as users get them. Tangents are of `types`: None is zeros, and integers get dtype float0."""
        moving = [zeros(tangent_type(t), self.builder) if x is None else x
                  for x, t in zip(tangents, types, strict=True) if t.is_inexact]
        out = [given(x) for x in self.values([*results, *moving])]
        rest = iter(out[len(results):])
        return out[:len(results)], [next(rest) if t.is_inexact else self._nothing(t) for t in types]

    def _nothing(self, t: ArrayType) -> np.ndarray:
        return np.zeros([self.builder.scope.value(n) for n in t.shape], float0)


def given(x: Any) -> Any:
    """A value as users get it."""
    return Tracer(x) if isinstance(x, Ref) else x if x.ndim else x[()]


def _fresh(results: Sequence[np.ndarray], operands: Sequence[Any]) -> list[np.ndarray]:
    """Results with memory of their own."""
    taken = {id(x) for x in operands}
    out = []
    for x in results:
        own = x.base is None and x.flags.c_contiguous and x.flags.writeable and id(x) not in taken
        out.append(x if own else np.array(x, order="C", copy=True))
        taken.add(id(x))
    return out


# ---- traced calls ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Inputs:
    """The arguments of a call: `values` are what the transform is about, the leaves of `structure`; `fixed` are the other
    arrays."""

    f: Function
    leaves: list[Any]
    whole: Structure
    places: list[int]  # where among leaves the values, then the fixed arrays, are
    names: list[str]
    values: list[Operand]
    fixed: list[Operand]
    structure: Structure

    def __call__(self, some: Sequence[Any]) -> Any:
        """f, with other leaves for the values and the fixed arrays."""
        every = list(self.leaves)
        for k, x in zip(self.places, some, strict=True):
            every[k] = x
        args, kwargs = unflatten(self.whole, every)
        return self.f(*args, **kwargs)


def inputs(f: Function, args: tuple[Any, ...], kwargs: dict[str, Any], why: str, chosen: Sequence[int] | None = None,
           structure: Structure | None = None) -> Inputs:
    """Take a call apart. chosen: which leaves the transform is about, in its order, all of them when left out."""
    leaves, whole = flatten((args, kwargs))
    chosen = range(len(leaves)) if chosen is None else chosen
    names = leaf_names(whole)
    rest = sorted({k for k, x in enumerate(leaves) if isinstance(x, np.ndarray)}.difference(chosen))
    values, fixed = (operands([leaves[k] for k in some], [names[k] for k in some], why) for some in (chosen, rest))
    return Inputs(f, leaves, whole, [*chosen, *rest], [names[k] for k in chosen], values, fixed,
                  structure or whole.children[0])


def leaf_names(whole: Structure) -> list[str]:
    """Names of the leaves of (args, kwargs), for messages."""
    args, kwargs = whole.children
    return [*argument_names(args), *paths(kwargs, "keyword argument ")]


def argument_names(structure: Structure) -> list[str]:
    """Names of the leaves of a tuple of arguments, for messages."""
    return [f"argument {i}{path}" for i, c in enumerate(structure.children) for path in paths(c)]


def part(f: Function, argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> Inputs:
    """The inputs of a call, about the positional arguments that argnums names, in its order."""
    numbers = list(argnums) if isinstance(argnums, Sequence) else [argnums]
    for i in numbers:
        if not hasattr(i, "__index__"):
            raise ArgumentError(f"{user_source()}: {why}: argnums={argnums!r} must be a number or several, counted from 0.")
        if not -len(args) <= i < len(args):
            raise ArgumentError(f"{user_source()}: {why}: argnums={argnums} names argument {i}, but the call has {len(args)} "
                                f"positional arguments. Differentiated arguments are passed by position.")
    numbers = [i % len(args) for i in numbers]
    if len(set(numbers)) < len(numbers):
        raise ArgumentError(f"{user_source()}: {why}: argnums={argnums} names an argument twice.")
    _, structure = flatten(tuple([args[i] for i in numbers]))
    ends = list(itertools.accumulate([flatten(x)[1].leaf_count for x in args], initial=0))
    return inputs(f, args, kwargs, why, [k for i in numbers for k in range(ends[i], ends[i + 1])], structure)


def rebuilt(some: Inputs, argnums: int | Sequence[int], leaves: Sequence[Any]) -> Any:
    """One entry for each value of a `part`, in the containers of its arguments."""
    tree = unflatten(some.structure, leaves)
    return tree if isinstance(argnums, Sequence) else tree[0]


@dataclass(frozen=True)
class Call:
    """A function traced on its inputs, and where its transform goes. Parameters of the graph: values, fixed arrays, the
    element's number on `axis` where the call is over an axis with a name, and what the function captured."""

    inputs: Inputs
    traced: Traced
    place: Place
    why: str
    axis: str | None = None
    size: Extent = 0

    @property
    def graph(self) -> Graph:
        return self.traced.graph

    @cached_property
    def types(self) -> list[ArrayType]:
        """The types of the values."""
        return [type_of(x) for x in self.inputs.values]

    @cached_property
    def primals(self) -> list[Ref]:
        """What to pass for each parameter of the graph."""
        here = self.place.builder
        index = [] if self.axis is None else [iota(into=here, shape=(self.size,), axis=0, dtype=I64)]
        return self.place.refs([*self.inputs.values, *self.inputs.fixed, *index, *self.traced.outer])

    @property
    def active(self) -> list[bool]:
        """Which parameters of the graph have tangents: the inexact values."""
        return [t.is_inexact for t in self.types] + [False] * (len(self.graph.params) - len(self.types))


def traced_call(some: Inputs, why: str, tangents: Sequence[Operand] = ()) -> Call:
    """Trace a call."""
    values, fixed = some.values, some.fixed
    types, known = map(type_of, [*values, *fixed]), map(concrete, [*values, *fixed])
    traced = trace(some, list(types), concrete=list(known), why=why)
    return Call(some, traced, Place([*values, *fixed, *traced.outer, *tangents], why, traced.graph), why)


def element_call(some: Inputs, why: str, elements: Sequence[ArrayType], size: Extent, name: Hashable | None) -> Call:
    """Trace a call for one of `size` elements: `elements` are the types of their values, of which Python sees nothing. `name`
    is what collectives call the axis."""
    values, fixed = some.values, some.fixed
    types, known = [*elements, *map(type_of, fixed)], [*[None] * len(values), *map(concrete, fixed)]
    axis = None if name is None else identity(name)

    def inside(xs: list[Tracer]) -> Any:
        with named(NamedAxis(name, axis or "", size, xs[-1].ref)):
            return some(xs[:-1])
    if axis is None:
        traced = trace(some, types, concrete=known, why=why)
    else:
        traced = trace(inside, [*types, ArrayType((), I64)], concrete=[*known, None], why=why)
    where = [*values, *fixed, *traced.outer]
    if isinstance(size, Dim) and not any(isinstance(x, Ref) for x in where):
        where.append(_sized_here(size))
    return Call(some, traced, Place(where, why, traced.graph), why, axis, size)


def _sized_here(size: Extent) -> Ref:
    """A value of the trace that a symbolic size belongs to."""
    around = innermost()
    assert around is not None, "symbolic sizes belong to a trace"
    return size_value(into=around, size=size)


def result_structure(call: Call, has_aux: bool) -> Structure:
    """The structure of the result proper, aux aside."""
    found = call.traced.structure
    if not has_aux:
        return found
    if found.type is not tuple or len(found.children) != 2:
        raise ArgumentError(f"{user_source()}: {call.why} with has_aux=True: the function must return a pair (result, aux), "
                            f"got {found}.")
    return found.children[0]


# ---- tangents and cotangents that users pass --------------------------------------------------------
def directions(tree: Any, structure: Structure, names: Sequence[str], types: Sequence[ArrayType], why: str,
               what: str) -> list[Operand]:
    """The tangents or cotangents (`what`) of the inexact leaves, checked against the types that they must have."""
    leaves, found = flatten(tree)
    if found != structure:
        raise ArgumentError(f"{user_source()}: {why}: expected {what}s in the containers {structure}, got {found}.")
    out = []
    for x, name, t in zip(leaves, names, types, strict=True):
        if t.is_inexact:
            out.append(_direction(operands([x], [f"the {what} of {name}"], why)[0], f"{why}: the {what} of {name}", t))
        elif getattr(x, "dtype", None) != float0:
            raise DTypeError(f"{user_source()}: {why}: {name} has type {t}, and integers have no {what}s: convert it to float, "
                             f"close over it, or pass np.zeros(shape, lw.float0).")
    return out


def _direction(x: Operand, name: str, t: ArrayType) -> Operand:
    """x at t's dtype if it is a Python number, else as it is, if it has type t."""
    found = type_of(x)
    if len(found.shape) != len(t.shape) or not all(same(a, b) for a, b in zip(found.shape, t.shape, strict=True)):
        raise ShapeError(f"{user_source()}: {name} has type {found}, but its shape must be that of {t}.")
    if found.weak and (t.dtype in COMPLEX or found.dtype not in COMPLEX):
        return convert(x, t.dtype) if isinstance(x, Ref) else t.dtype.type(x)
    if found.dtype != t.dtype:
        raise DTypeError(f"{user_source()}: {name} has type {found}, but its dtype must be that of {t}. "
                         f"Convert it with x.astype(...).")
    return x


def same(a: Extent, b: Extent) -> bool:
    """Whether two sizes are equal: by proof or guard of the running trace where they are symbolic."""
    around = innermost()
    return a == b if around is None else around.scope.equate(a, b)
