"""Structured control flow, with JAX's names, argument order and meaning: `loopwright.lax` has these functions.

Guarantees: inside a trace each function is one node of the graph (a loop in machine code under `jit`), and differentiates
and batches as such; without a traced operand it runs at once. Bodies are traced: Python runs once, not once per trip. Their
parameters are their own and may be written in place. Reverse mode works through every loop, with any number of trips.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from loopwright import eager
from loopwright.autodiff.calls import Operand, Place, name_of, operands, same, type_of
from loopwright.bounded import checked_bound, counted, in_segments
from loopwright.ir.builder import Ref, innermost
from loopwright.ir.dims import Dim, Extent, maximum
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Graph
from loopwright.ir.op import Op
from loopwright.ir.ops.control import scan as scan_op
from loopwright.ir.ops.control import switch as switch_op
from loopwright.ir.ops.control import while_ as while_op
from loopwright.ir.ops.gradients import stop_gradient as stop_gradient_op
from loopwright.ir.source import user_source
from loopwright.ir.tracebacks import user_frames
from loopwright.ir.types import BOOL, I64, is_integer
from loopwright.tracer.control import Carry, branches, check_pair, refuse_traced_length, row_types, scan_body, while_body
from loopwright.tracer.promotion import convert, lift_own
from loopwright.tracer.pytree import Structure, flatten, paths, unflatten
from loopwright.tracer.size import as_extent, sized
from loopwright.tracer.tables import xp
from loopwright.tracer.tracer import Tracer
from loopwright.transforms import vmap

__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "stop_gradient", "switch", "while_loop"]

Function = Callable[..., Any]


# ---- branches -------------------------------------------------------------------------------------
_NOT_GIVEN = object()


@user_frames()
def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any, operand: Any = _NOT_GIVEN) -> Any:
    """true_fun(*operands) if pred else false_fun(*operands); only one of them runs. pred: one bool, or a number (not 0).
    operand: one more, by name.

    The functions return the same structure, shapes and dtypes: else ArgumentError, ShapeError or DTypeError.

    >>> cond(True, lambda x: x + 1, lambda x: x - 1, 3.0)
    np.float64(4.0)
    """
    why = f"cond of {name_of(true_fun)} and {name_of(false_fun)}"
    choice = _scalar(pred, why, "the predicate")
    if type_of(choice).dtype != BOOL:
        choice = _one(choice != 0 if not isinstance(choice, Ref) else Tracer(choice) != 0)
    return _branch(choice, (false_fun, true_fun), (f"false_fun ({name_of(false_fun)})", f"true_fun ({name_of(true_fun)})"),
                   _with_named(operands, operand), why)


def _with_named(operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    return operands if operand is _NOT_GIVEN else (*operands, operand)


@user_frames()
def switch(index: Any, branches: Sequence[Function], *operands: Any, operand: Any = _NOT_GIVEN) -> Any:
    """branches[index](*operands), with the index clamped into range; only one branch runs. See cond.

    >>> switch(7, [np.sin, np.cos, lambda x: x * x], 3.0)
    np.float64(9.0)
    """
    if not branches:
        raise ArgumentError(f"{user_source()}: switch needs at least one branch.")
    why = f"switch of {', '.join([name_of(f) for f in branches])}"
    which = _scalar(index, why, "the index")
    if not is_integer(type_of(which).dtype):
        raise DTypeError(f"{user_source()}: {why}: the index must be an integer, got {type_of(which)}.")
    last = len(branches) - 1
    if isinstance(which, Ref):
        which = xp.clip(Tracer(which), 0, last).ref
    else:
        which = min(max(int(which), 0), last)  # type: ignore[arg-type]
    return _branch(which, branches, [f"branch {k} ({name_of(f)})" for k, f in enumerate(branches)],
                   _with_named(operands, operand), why)


def _one(x: Any) -> Operand:
    return x.ref if isinstance(x, Tracer) else x


def _scalar(x: Any, why: str, what: str) -> Operand:
    """A number that steers control flow."""
    value = operands([x], [what], why)[0]
    t = type_of(value)
    if t.shape:
        raise ShapeError(f"{user_source()}: {why}: {what} must be a scalar, got {t}. Reduce it with np.all or np.any, or use "
                         f"np.where to choose element by element.")
    return value


def _branch(choice: Operand, functions: Sequence[Function], names: Sequence[str], args: tuple[Any, ...], why: str) -> Any:
    leaves, structure = flatten(args)
    values = operands(leaves, paths(structure, "operand "), why)
    if innermost() is None:
        return eager.call(functions[int(choice)], values, structure, why)  # type: ignore[arg-type]
    made = branches(functions, names, structure, [type_of(x) for x in values], why)
    here = _place([choice, *values, *made.outer], why, made.graphs)
    index = convert(here.refs([choice])[0], I64)
    outs = _emitted(switch_op, here, [index, *here.refs([*values, *made.outer])], made.graphs)
    return unflatten(made.structure, here.results(outs)[0])


def _place(values: Sequence[Any], why: str, graphs: Sequence[Graph]) -> Place:
    return Place(values, why, next((g for g in graphs if g.free_symbols), None))


def _emitted(op: Op, here: Place, refs: Sequence[Ref], regions: tuple[Graph, ...], **attrs: Any) -> list[Ref]:
    return here.builder.bind_all(op, refs, attrs, regions)


# ---- loops ----------------------------------------------------------------------------------------
@user_frames()
def while_loop(cond_fun: Function, body_fun: Function, init_val: Any, *, max_steps: int | None = None) -> Any:
    """val = init_val; while cond_fun(val): val = body_fun(val); return val.

    cond_fun gives one bool. body_fun keeps the structure, shapes and dtypes of val: else ArgumentError, ShapeError or
    DTypeError. Works in reverse mode with any number of trips, of which it keeps what it reads. max_steps: the most
    trips there may be: more raise CheckError. Reverse mode then keeps the values of about sqrt(max_steps) trips at a time and
    computes trips again.

    >>> while_loop(lambda x: x < 100, lambda x: x * 2, 3)
    np.int64(192)
    """
    why = f"while_loop of {name_of(body_fun)}"
    most = None if max_steps is None else checked_bound(max_steps, why)
    leaves, structure = flatten(init_val)
    values = operands(leaves, paths(structure, "init_val"), why)
    carry = Carry(structure, [type_of(x) for x in values], why)
    if innermost() is None:
        holds = cond_fun if most is None else counted(cond_fun, most, why)
        return unflatten(structure, eager.while_loop(holds, body_fun, values, carry))
    test, step = while_body(cond_fun, body_fun, carry)
    if most is not None:
        return unflatten(structure, in_segments(while_loop, test, step, values, carry.types, most, why))
    here = _place([*values, *test.outer, *step.outer], why, (*test.graphs, *step.graphs))
    refs = here.refs([*test.outer, *step.outer]) + _started(here, values, carry)
    outs = _emitted(while_op, here, refs, (*test.graphs, *step.graphs), condition_constants=len(test.outer),
                    body_constants=len(step.outer))
    return unflatten(structure, here.results(outs)[0])


def _started(here: Place, values: Sequence[Operand], carry: Carry) -> list[Ref]:
    """The initial carry at the types of the carry."""
    return [convert(x, t.dtype, weak=t.weak) for x, t in zip(here.refs(values), carry.types, strict=True)]


class Counted(NamedTuple):
    """The carry of a fori_loop, as its errors name it."""

    i: Any
    val: Any


@user_frames()
def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, *, unroll: int | bool | None = None,
              max_steps: int | None = None) -> Any:
    """val = init_val; for i in range(lower, upper): val = body_fun(i, val); return val.

    With Python integers or sizes as bounds it is a scan, with traced integers or max_steps a while_loop. See scan for
    `unroll`, while_loop for `max_steps`.

    >>> fori_loop(1, 5, lambda i, x: x * i, 1.0)
    np.float64(24.0)
    """
    why = f"fori_loop of {name_of(body_fun)}"

    def after(c: Counted) -> Counted:
        val = body_fun(*c)
        if val is None and init_val is not None:
            raise ArgumentError(f"{user_source()}: {why}: the body returned None. Return the new value, also where the body "
                                f"stored into the one that it was given.")
        return Counted(c.i + 1, val)
    low, high = as_extent(lower), as_extent(upper)
    if low is not None and high is not None and max_steps is None:
        length = high - low
        count = length if Facts().prove("<=", 0, length) else maximum(length, 0)
        carry, _ = _scanned(lambda c, _: (after(c), None), Counted(lower, init_val), None, count, False,
                            1 if unroll is None else unroll, why)
        return carry.val
    for bound, what in ((lower, "lower"), (upper, "upper")):
        t = type_of(_scalar(bound, why, what))
        if not is_integer(t.dtype):
            raise DTypeError(f"{user_source()}: {why}: {what} must be an integer, got {t}.")
    return while_loop(lambda c: c.i < upper, _named(after, body_fun), Counted(lower, init_val), max_steps=max_steps).val


def _named(f: Function, like: Function) -> Function:
    f.__name__ = name_of(like)
    return f


@user_frames()
def scan(f: Function, init: Any, xs: Any = None, length: Any = None, reverse: bool = False,
         unroll: int | bool = 1) -> tuple[Any, Any]:
    """(carry, ys) after carry, y = f(carry, x) for every row x of xs, the last first if `reverse`; ys are the stacked y.

    xs: a container of arrays with the same number of rows; None with `length`, an integer or a size. f returns a pair and
    keeps the structure, shapes and dtypes of the carry: else ArgumentError, ShapeError or DTypeError. unroll: so many trips
    are written out in each trip of the loop, and those that are left after it; True, or at least the length, which is an
    integer then, writes every trip out. Values are the same.

    >>> scan(lambda total, x: (total + x, total), 0.0, np.arange(4.0))
    (np.float64(6.0), array([0., 0., 1., 3.]))
    """
    why = f"scan of {name_of(f)}"
    refuse_traced_length(length, why)
    count = as_extent(length) if length is not None else None
    if length is not None and count is None:
        count = operator.index(length)
    if isinstance(count, int) and count < 0:
        raise ShapeError(f"{user_source()}: {why}: length must not be negative, got {count}.")
    return _scanned(f, init, xs, count, reverse, unroll, why)


def _scanned(f: Function, init: Any, xs: Any, length: Extent | None, reverse: bool, unroll: int | bool,
             why: str) -> tuple[Any, Any]:
    leaves, structure = flatten(init)
    values = operands(leaves, paths(structure, "init"), why)
    arrays, rows = flatten(xs)
    stacks = operands(arrays, paths(rows, "xs"), why)
    length, types = row_types([type_of(x) for x in stacks], paths(rows, "xs"), length, same, why)
    if unroll is not False and innermost() is not None:
        if isinstance(length, int) and length > 0 and (unroll is True or unroll >= length > 1):
            return _written_out(f, init, arrays, rows, reversed(range(length)) if reverse else range(length), why)
        if unroll is not True and unroll > 1:
            return _in_groups(f, init, arrays, rows, length, reverse, unroll, why)
    carry = Carry(structure, [type_of(x) for x in values], why)
    if innermost() is None and length != 0:  # for no trip at all a trace tells the types
        found, ys = eager.scan(f, values, [np.asarray(x) for x in stacks], rows, int(length), reverse, carry)  # type: ignore
        return unflatten(structure, found), ys
    made = scan_body(f, carry, rows, types)
    here = _place([*values, *stacks, *made.outer, *_size_operand(length)], why, made.graphs)
    refs = here.refs(made.outer) + _started(here, values, carry) + here.refs(stacks)
    attrs = {"length": length, "reverse": bool(reverse), "constants": len(made.outer), "carry": len(values)}
    outs = _emitted(scan_op, here, refs, made.graphs, **attrs)
    found = here.results(outs)[0]
    return unflatten(structure, found[:len(values)]), unflatten(made.structure, found[len(values):])


def _written_out(f: Function, init: Any, arrays: Sequence[Any], rows: Structure, order: Iterable[int],
                 why: str) -> tuple[Any, Any]:
    """A scan without a loop over rows of the arrays, at least one, in this order; ys are stacked as the rows are."""
    carry, found, shape = init, {}, None
    for k in order:
        leaves, structure = flatten(carry)
        kept = Carry(structure, [type_of(x) for x in operands(leaves, paths(structure, "carry"), why)], why)
        new, y = check_pair(f(unflatten(structure, [_own(x) for x in leaves]), unflatten(rows, [x[k] for x in arrays])), why)
        carry = unflatten(structure, kept.taken(new))
        found[k], own = flatten(y)
        if shape is not None and own != shape:
            raise ArgumentError(f"{user_source()}: {why}: y must have one structure, got {shape} and {own}.")
        shape = own
    assert shape is not None
    return carry, unflatten(shape, [xp.stack(column) for column in zip(*[found[k] for k in sorted(found)], strict=True)])


def _own(x: Any) -> Any:
    """A value that the body of a loop may write."""
    return Tracer(x.ref) if isinstance(x, Tracer) else xp.array(x) if isinstance(x, np.ndarray) else x


def _in_groups(f: Function, init: Any, arrays: Sequence[Any], rows: Structure, length: Extent, reverse: bool, count: int,
               why: str) -> tuple[Any, Any]:
    """A scan of `count` trips in each trip of a loop. The rows that are left over go last: written out, or in a loop of their
    own where it is not known how many they are."""
    around = innermost()
    assert around is not None
    groups, rest = length // count, length % count
    whole, left = (sized(n, around.scope) for n in (groups * count, rest))

    def many(carry: Any, part: Any) -> tuple[Any, Any]:
        return _written_out(f, carry, flatten(part)[0], rows, reversed(range(count)) if reverse else range(count), why)
    main = [x[left:] if reverse else x[:whole] for x in arrays]
    parts = [xp.reshape(x, (sized(groups, around.scope), count, *x.shape[1:])) for x in main]
    carry, ys = _scanned(_named(many, f), init, unflatten(rows, parts), groups, reverse, 1, why)
    stacks, structure = flatten(ys)
    stacks = [xp.reshape(y, (whole, *y.shape[2:])) for y in stacks]
    if rest == 0:
        return carry, unflatten(structure, stacks)
    over = [x[:left] if reverse else x[whole:] for x in arrays]
    if isinstance(rest, int):
        carry, zs = _written_out(f, carry, over, rows, reversed(range(rest)) if reverse else range(rest), why)
    else:
        carry, zs = _scanned(f, carry, unflatten(rows, over), rest, reverse, 1, why)
    both = zip(stacks, flatten(zs)[0], strict=True)
    return carry, unflatten(structure, [xp.concatenate([z, y] if reverse else [y, z]) for y, z in both])


def _size_operand(length: Extent) -> list[Ref]:
    """A value of the trace that a symbolic size belongs to: the loop goes there at least."""
    around = innermost()
    return [lift_own(sized(length, around.scope), around)] if isinstance(length, Dim) and around is not None else []


@user_frames()
def map(f: Function, xs: Any, *, batch_size: int | None = None) -> Any:
    """The stacked f(x) for every row x of xs, one after another, or `batch_size` at once as by vmap.

    >>> map(lambda x: x * 2, np.arange(3.0))
    array([0., 2., 4.])
    """
    def one(_: Any, x: Any) -> tuple[Any, Any]:
        return (), f(x)
    one.__name__ = name_of(f)
    if batch_size is None:
        return scan(one, (), xs)[1]
    if batch_size < 1:
        raise ShapeError(f"{user_source()}: map of {name_of(f)}: batch_size must be at least 1, got {batch_size}.")
    leaves, rows = flatten(xs)
    why = f"map of {name_of(f)}"
    row_types([type_of(x) for x in operands(leaves, paths(rows, "xs"), why)], paths(rows, "xs"), None, same, why)
    whole = leaves[0].shape[0] // batch_size
    groups = [xp.reshape(x[:whole * batch_size], (whole, batch_size, *x.shape[1:])) for x in leaves]
    many = vmap(f)
    found, structure = flatten(scan(lambda _, x: ((), many(x)), (), unflatten(rows, groups))[1])
    found = [xp.reshape(y, (whole * batch_size, *y.shape[2:])) for y in found]
    if leaves[0].shape[0] % batch_size == 0:
        return unflatten(structure, found)
    rest = flatten(many(unflatten(rows, [x[whole * batch_size:] for x in leaves])))[0]
    return unflatten(structure, [xp.concatenate([y, z]) for y, z in zip(found, rest, strict=True)])


@user_frames()
def associative_scan(fn: Function, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Running results of an associative operation along an axis: out[k] = fn(out[k - 1], elems[k]), in about log2(n) steps
    that each work on whole arrays. The container of arrays `elems` is what fn takes twice and gives, for many elements at
    once. reverse: from the last to the first. A symbolic number of elements is fixed to this call's.

    >>> associative_scan(np.multiply, np.arange(1.0, 5.0))
    array([ 1.,  2.,  6., 24.])
    """
    leaves, structure = flatten(elems)
    why = f"associative_scan of {name_of(fn)}"
    if not leaves:
        raise ArgumentError(f"{user_source()}: {why}: there is nothing to run over: pass at least one array.")
    xs = [xp.moveaxis(x, axis, 0) for x in leaves]
    row_types([type_of(x) for x in operands(xs, paths(structure, "elems"), why)], paths(structure, "elems"), None, same, why)
    xs = [x[::-1] for x in xs] if reverse else xs

    def combined(a: list[Any], b: list[Any]) -> list[Any]:
        return flatten(fn(unflatten(structure, a), unflatten(structure, b)))[0]
    found = _running(combined, xs, operator.index(xs[0].shape[0]))
    found = [x[::-1] for x in found] if reverse else found
    return unflatten(structure, [xp.moveaxis(x, 0, axis) for x in found])


def _running(fn: Callable[[list[Any], list[Any]], list[Any]], xs: list[Any], count: int) -> list[Any]:
    """Running results over the first axis: of pairs first, and from those the ones between."""
    if count < 2:
        return xs
    odd = _running(fn, fn([x[0:count - 1:2] for x in xs], [x[1:count:2] for x in xs]), count // 2)
    between = fn([y[:(count - 1) // 2] for y in odd], [x[2:count:2] for x in xs]) if count > 2 else [x[2:] for x in xs]
    even = [xp.concatenate([x[:1], y]) for x, y in zip(xs, between, strict=True)]
    return [_interleaved(a, b, count) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any, count: int) -> Any:
    """even[0], odd[0], even[1], odd[1], ..., `count` in all."""
    half = count // 2
    pairs = xp.stack([even[:half], odd], axis=1)
    both = xp.reshape(pairs, (2 * half, *odd.shape[1:]))
    return xp.concatenate([both, even[half:]]) if count % 2 else both


# ---- derivatives ----------------------------------------------------------------------------------
def stop_gradient(x: Any) -> Any:
    """x itself; every derivative holds it constant. x: a container of arrays.

    >>> from loopwright import grad
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    leaves, structure = flatten(x)
    return unflatten(structure, [Tracer(stop_gradient_op(y.ref)) if isinstance(y, Tracer) and y.type.is_inexact else y
                                 for y in leaves])
