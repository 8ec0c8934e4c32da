"""The transforms that users call: grad, value_and_grad, jvp, vjp, linearize, vmap.

Guarantees: names, argument order and meaning are JAX's; each takes and gives functions of containers of arrays; they
compose with each other and with `jit` in any order. Outside `jit` derivatives see values, so Python control flow works in
the differentiated function; `vmap`, and everything inside `jit`, sees types and sizes only. A gradient has the container,
shape and dtype of its argument.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Sequence
from typing import Any

from loopwright.autodiff import batching
from loopwright.autodiff.calls import (
    Call,
    Function,
    Inputs,
    Place,
    applied,
    directions,
    element_call,
    given,
    inputs,
    name_of,
    part,
    rebuilt,
    result_structure,
    same,
    traced_call,
    type_of,
)
from loopwright.autodiff.jvp import filled, push
from loopwright.autodiff.linearize import Linear, kept, pull_back, push_forward
from loopwright.autodiff.linearize import linearize as linearize_graph
from loopwright.ir.builder import Ref
from loopwright.ir.collector import collector_paused
from loopwright.ir.dims import Extent
from loopwright.ir.errors import ArgumentError, GradientError, ShapeError
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.structural import move_axis
from loopwright.ir.source import user_source
from loopwright.ir.tracebacks import user_frames
from loopwright.ir.types import COMPLEX, FLOATS, ArrayType
from loopwright.tracer.pytree import LEAF, Structure, broadcast_prefix, flatten, paths, unflatten
from loopwright.tracer.size import Size


# ---- gradients ------------------------------------------------------------------------------------
def value_and_grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False) -> Function:
    """A function that gives (f's value, its gradient with respect to the positional arguments that `argnums` names).

    f must return a real scalar. With has_aux it returns (scalar, aux), and the value is that pair. The gradient has the
    container and dtypes of the argument (a tuple of them where argnums is a sequence). Complex arguments have the gradient
    df/dx - i df/dy; holomorphic=True differentiates complex to complex. allow_int gives integers gradients of dtype float0.
    GradientError for integer arguments and for results that are no scalar.

    >>> value_and_grad(lambda x: x * x)(3.0)
    (np.float64(9.0), np.float64(6.0))
    """
    why = applied("grad", f)

    @functools.wraps(f, updated=())
    @user_frames()
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        some = part(f, argnums, args, kwargs, why)
        for x, name in zip(some.values, some.names, strict=True):
            check_input(type_of(x), name, why, holomorphic, allow_int)
        call = traced_call(some, why)
        _check_scalar(call, result_structure(call, has_aux), holomorphic)
        results, gradients = _gradient(call)
        return unflatten(call.traced.structure, results), rebuilt(some, argnums, gradients)
    return value_and_gradient


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
         allow_int: bool = False) -> Function:
    """A function that gives the gradient of f; see value_and_grad. With has_aux it gives (gradient, aux).

    >>> grad(lambda x: x * x if x > 0 else -x)(3.0)
    np.float64(6.0)
    """
    both = value_and_grad(f, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(f, updated=())
    @user_frames()
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found
    return gradient


def check_input(t: ArrayType, name: str, why: str, holomorphic: bool, allow_int: bool) -> None:
    """GradientError unless an argument of type t has a gradient."""
    if holomorphic and t.dtype not in COMPLEX:
        raise GradientError(f"{user_source()}: {why} with holomorphic=True: {name} has type {t}, expected a complex dtype. "
                            f"Convert it with x.astype(complex), or leave holomorphic out.")
    if not t.is_inexact and not allow_int:
        raise GradientError(f"{user_source()}: {why}: {name} has type {t}, and only floating or complex numbers have "
                            f"gradients. Convert it to float (x.astype(float), or 3.0 for 3), choose other arguments with "
                            f"argnums=, or pass allow_int=True for empty gradients.")


def check_output(t: ArrayType, why: str, holomorphic: bool) -> None:
    """GradientError unless a result of type t can be differentiated in reverse."""
    if t.dtype in (COMPLEX if holomorphic else FLOATS):
        return
    if t.dtype in COMPLEX:
        fix = "Return np.real(...) or np.abs(...), or pass holomorphic=True."
    elif t.dtype in FLOATS:
        fix = "Leave holomorphic out."
    else:
        fix = "Convert it to float; integers and comparisons are constant almost everywhere."
    raise GradientError(f"{user_source()}: {why} needs a {'complex' if holomorphic else 'real floating'} result, but the "
                        f"function returned {t}. {fix}")


def _check_scalar(call: Call, result: Structure, holomorphic: bool) -> None:
    if result is not LEAF:
        raise GradientError(f"{user_source()}: {call.why} needs one scalar, but the function returned {result}. Return the "
                            f"scalar alone, or (scalar, aux) with has_aux=True.")
    t = call.graph.results[0].type
    if t.shape:
        raise GradientError(f"{user_source()}: {call.why} needs a scalar, but the function returned {t}, of shape "
                            f"{call.place.builder.scope.describe(t.shape)}. Reduce it (np.sum, np.mean), or use vjp or jacrev "
                            f"for the derivative of an array.")
    check_output(t, call.why, holomorphic)


def _gradient(call: Call) -> tuple[list[Any], list[Any]]:
    """The results of the call, and the gradient of its first with respect to each leaf."""
    into = call.place.builder
    with collector_paused():
        results, linear = linearize_graph(call.graph, call.primals, call.active, into)
        one = filled(results[0].type, 1, into)
        found = pull_back(linear, [one, *[None] * (len(results) - 1)], into)
        return call.place.results(results, found[:len(call.types)], call.types)


# ---- forward and reverse at a point ---------------------------------------------------------------
@user_frames()
def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """(f(*primals), its derivative in the direction of tangents), and aux where has_aux says that f returns (result, aux).

    >>> jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    (np.float64(6.0), np.float64(3.0))
    """
    why = applied("jvp", f)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{user_source()}: {why}: primals and tangents are tuples with one entry for each argument of the "
                            f"function, got {type(primals).__name__} and {type(tangents).__name__}.")
    some = inputs(f, tuple(primals), {}, why)
    along = directions(tuple(tangents), some.structure, some.names, [type_of(x) for x in some.values], why, "tangent")
    call = traced_call(some, why, tangents=along)
    result = result_structure(call, has_aux)
    with collector_paused():
        rest = iter(call.place.refs(along))
        results, moved = push(call.graph, call.primals, [next(rest) if a else None for a in call.active], call.place.builder)
        n = result.leaf_count
        out, found = call.place.results(results, moved[:n], [x.type for x in results[:n]])
    return _with_aux(call, out, has_aux, unflatten(result, found))


@user_frames()
def vjp(f: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(f(*primals), a function from the cotangent of the result to a tuple of cotangents of the primals), and aux.

    >>> y, pull = vjp(np.sin, 0.0)
    >>> pull(2.0)
    (np.float64(2.0),)
    """
    return vjp_of(inputs(f, primals, {}, why := applied("vjp", f)), has_aux, why)


def vjp_of(some: Inputs, has_aux: bool, why: str) -> tuple[Any, ...]:
    """vjp of a call, with respect to its values."""
    call, out, linear, result, types = _linearized(some, has_aux, why)

    def pullback(cotangent: Any) -> Any:
        why = f"the pullback of {name_of(some.f)}"
        arriving = directions(cotangent, result, paths(result, "result"), types, why, "cotangent")
        place = Place([*arriving, *linear.residuals], why, linear.graph)
        with collector_paused():
            rest = iter(place.refs(arriving))
            every = [next(rest) if t.is_inexact else None for t in types] + [None] * (len(linear.results) - len(types))
            found = pull_back(linear, every, place.builder)
            return unflatten(some.structure, place.results([], found[:len(call.types)], call.types)[1])
    return _with_aux(call, out, has_aux, pullback)


@user_frames()
def linearize(f: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(f(*primals), its derivative there as a function of tangents), and aux: a jvp whose primal part runs once.

    >>> y, push = linearize(lambda x: x * x, 3.0)
    >>> push(1.0)
    np.float64(6.0)
    """
    return linearize_of(inputs(f, primals, {}, why := applied("linearize", f)), has_aux, why)


def linearize_of(some: Inputs, has_aux: bool, why: str) -> tuple[Any, ...]:
    """linearize of a call, with respect to its values."""
    call, out, linear, result, types = _linearized(some, has_aux, why)

    def pushforward(*tangents: Any) -> Any:
        why = f"the pushforward of {name_of(some.f)}"
        along = directions(tangents, some.structure, some.names, call.types, why, "tangent")
        place = Place([*along, *linear.residuals], why, linear.graph)
        with collector_paused():
            moved = push_forward(linear, place.refs(along), place.builder)
            return unflatten(result, place.results([], moved[:len(types)], types)[1])
    return _with_aux(call, out, has_aux, pushforward)


def _linearized(some: Inputs, has_aux: bool, why: str) -> tuple[Call, list[Any], Linear, Structure, list[ArrayType]]:
    """The call, its results, the derivative there, and the structure and types of the results that are not aux."""
    call = traced_call(some, why)
    result = result_structure(call, has_aux)
    with collector_paused():
        results, linear = linearize_graph(call.graph, call.primals, call.active, call.place.builder)
        types = [x.type for x in results[:result.leaf_count]]
        out, linear = kept(linear, call.place, results)
    return call, [given(x) for x in out], linear, result, types


def _with_aux(call: Call, out: Sequence[Any], has_aux: bool, second: Any) -> tuple[Any, ...]:
    """(result, second), or (result, second, aux)."""
    tree = unflatten(call.traced.structure, out)
    return (tree[0], second, tree[1]) if has_aux else (tree, second)


# ---- batching -------------------------------------------------------------------------------------
def vmap(f: Function, in_axes: Any = 0, out_axes: Any = 0, axis_name: Hashable | None = None,
         axis_size: int | None = None) -> Function:
    """f over one more axis of its arguments, all elements at once.

    in_axes: the axis of each argument that is mapped: an integer, None (not mapped), or a container of these that matches
    the arguments as far as it goes. Keyword arguments are mapped over axis 0. out_axes: where the axis goes in each result;
    None for one that is the same for all elements. axis_name: what lax.psum and the other collectives in f call the axis.
    axis_size: its size, needed where nothing is mapped. ShapeError where sizes differ.

    >>> vmap(lambda x, y: x * y, in_axes=(0, None))(np.arange(3.0), 2.0)
    array([0., 2., 4.])
    >>> from loopwright import lax
    >>> vmap(lambda x: x / lax.psum(x, "rows"), axis_name="rows")(np.arange(5.0))
    array([0. , 0.1, 0.2, 0.3, 0.4])
    """
    why = applied("vmap", f)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)

    @functools.wraps(f, updated=())
    @user_frames()
    def mapped(*args: Any, **kwargs: Any) -> Any:
        _, whole = flatten((args, kwargs))
        axes = _axes(in_axes, whole.children[0], why, "in_axes") + [0] * whole.children[1].leaf_count
        some = inputs(f, args, kwargs, why, [k for k, axis in enumerate(axes) if axis is not None])
        types = [type_of(x) for x in some.values]
        over = [_axis(t, axis, name, why) for t, axis, name in
                zip(types, [a for a in axes if a is not None], some.names, strict=True)]
        size = _size([t.shape[a] for t, a in zip(types, over, strict=True)], over, some.names, axis_size, why)
        call = element_call(some, why, [_element(t, a) for t, a in zip(types, over, strict=True)], size, axis_name)
        to = _axes(out_axes, call.traced.structure, why, "out_axes")
        return unflatten(call.traced.structure, _mapped(call, over, size, to))
    return mapped


def _mapped(call: Call, over: Sequence[int], size: Extent, to: Sequence[int | None]) -> list[Any]:
    """The results of the call over every element of the axes `over`, with the mapped axis where `to` says."""
    n, index = len(over), len(call.inputs.places) if call.axis is not None else -1
    with collector_paused():
        refs = [move_axis(x, a, 0) for x, a in zip(call.primals[:n], over, strict=True)] + call.primals[n:]
        mapped = [k < n or k == index for k in range(len(refs))]
        results, has = batching.push(call.graph, size, refs, mapped, call.place.builder, call.axis)
        every = zip(results, has, to, paths(call.traced.structure, "result"), strict=True)
        return call.place.results([_placed(x, h, axis, size, name, call.why) for x, h, axis, name in every])[0]


def _placed(x: Ref, has_axis: bool, axis: int | None, size: Extent, name: str, why: str) -> Ref:
    """A result with the mapped axis at `axis`; what does not depend on it is repeated."""
    if axis is None:
        if has_axis:
            raise ArgumentError(f"{user_source()}: {why}: out_axes is None for a result that depends on the mapped arguments: "
                                f"{name}, which is {_element(x.type, 0)} for each of {size} elements. Give it an axis, or "
                                f"reduce it over the axis outside.")
        return x
    rank = len(x.shape) + (not has_axis)
    if not -rank <= axis < rank:
        one = _element(x.type, 0) if has_axis else x.type
        raise ShapeError(f"{user_source()}: {why}: out_axes {axis} is out of range for a result of rank {rank}: {name} is "
                         f"{one} for each of {size} elements. Choose an axis from {-rank} to {rank - 1}.")
    if not has_axis:
        x = broadcast(x, shape=(size, *x.shape), axes=tuple(range(1, rank)))
    return move_axis(x, 0, axis % rank)


def _axes(axes: Any, structure: Structure, why: str, what: str) -> list[Any]:
    """One axis or None per leaf."""
    try:
        return broadcast_prefix(axes, structure, lambda a: a is None or (isinstance(a, int) and not isinstance(a, bool)))
    except ArgumentError as error:
        raise ArgumentError(f"{user_source()}: {why}: {what}: {error} An axis is an integer or None.") from None


def _axis(t: ArrayType, axis: int, name: str, why: str) -> int:
    if not -t.rank <= axis < t.rank:
        raise ShapeError(f"{user_source()}: {why}: {name} has type {t}, which has no axis {axis} to map over. Choose another "
                         f"axis in in_axes, or None to pass it whole to every element.")
    return axis % t.rank


def _size(sizes: Sequence[Extent], axes: Sequence[int], names: Sequence[str], axis_size: Any, why: str) -> Extent:
    """The size of the mapped axis, on which all arguments must agree."""
    found = [(n, f"axis {a} of {name}") for n, a, name in zip(sizes, axes, names, strict=True)]
    if axis_size is not None:
        found.insert(0, (axis_size.extent if isinstance(axis_size, Size) else operator.index(axis_size), "axis_size"))
    if not found:
        raise ArgumentError(f"{user_source()}: {why}: nothing is mapped: give an argument an axis in in_axes, or axis_size.")
    size, first = found[0]
    for other, name in found[1:]:
        if not same(size, other):
            raise ShapeError(f"{user_source()}: {why}: mapped sizes must be equal, but {first} has size {size} and {name} has "
                             f"size {other}.")
    return size


def _element(t: ArrayType, axis: int) -> ArrayType:
    return t.with_shape(t.shape[:axis] + t.shape[axis + 1:])
