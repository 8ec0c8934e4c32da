"""`x[key] = v` and `x += v` on traced arrays: the tracer is rebound to a functional update.

Guarantees: an argument, a view's base and an array of an outer traced function never change; of several values for one
element the last in C order stays; a value is converted to the array's dtype as NumPy's assignment does.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref, innermost, is_sealed
from loopwright.ir.dims import Shape
from loopwright.ir.errors import DTypeError, ShapeError, WriteError
from loopwright.ir.op import Op
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.indexing import scatter, scatter_add, scatter_max, scatter_min
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import inverse, pad, transpose
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL
from loopwright.tracer.indexing import Plan, are_same, guard_masks, plan, read_block
from loopwright.tracer.promotion import (
    as_operand,
    broadcast,
    convert,
    fits,
    lift,
    lift_to,
    newest_builder,
    reshape,
    shape_of,
)
from loopwright.tracer.tables import UFUNC_METHODS, UFUNCS, Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer, through_a_view


def check_writable(x: Any, what: str) -> None:
    """WriteError unless x may be rebound here."""
    if not isinstance(x, Tracer):
        raise WriteError(f"{user_source()}: {what} would store a traced value into a {type(x).__name__} that is not traced. "
                         f"Make the array inside the function with lw.numpy.zeros(...) or np.zeros_like(x), or write np.where.")
    if x.owner == "argument":
        raise WriteError(f"{user_source()}: {what} would write to an argument of {x.ref.builder.why or 'a traced function'}, "
                         f"which belongs to the caller. Write to a copy: x = x.copy() first (or x = x + v for x += v).")
    if x.owner == "view" and not x.claim():
        raise WriteError(f"{user_source()}: {what} would write through a view into another array. Write to that array itself "
                         f"(x[i, j] = v instead of x[i][j] = v), or take a copy first: y = x[i].copy().")
    if x.home is not innermost():
        raise WriteError(f"{user_source()}: {what} would change an array of an enclosing traced function from inside "
                         f"{_why(innermost())}. Return the new value from the inner function instead.")


def _why(builder: Builder | None) -> str:
    return builder.why if builder is not None and builder.why else "another trace"


# ---- x[key] = v ---------------------------------------------------------------------------------
@implements(operator.setitem)
def setitem(x: Tracer, key: Any, value: Any) -> None:
    """x[key] = value."""
    check_writable(x, "x[...] = v")
    waited = x.waited(value)
    mask = _traced_mask(key, value)
    if mask is not None and waited is None:
        return x.set_ref(_masked(x.ref, mask, value))
    guard_masks(key, x.ref.builder)
    p = plan(x.ref, key)
    if waited is not None and not are_same(waited[0], p, x.ref.builder):
        raise through_a_view(waited[1])
    x.set_ref(write(x.ref, p, _updates(x, value, p.shape)))


def _traced_mask(key: Any, value: Any) -> Traced | None:
    """The key, if it is one traced boolean array whose values are not known, or need not be: those computed of sizes would fix
    these, and one number goes to all elements."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if not isinstance(key, Tracer) or key.dtype != BOOL:
        return None
    if not key.ndim or (is_sealed() and isinstance(value, int | float | complex | np.generic)):
        return key
    return key if key.ref.builder.concrete(key.ref.value) is None else None


def _updates(x: Tracer, value: Any, shape: Shape) -> Ref:
    """A value at the dtype of x and broadcast to a shape; leading axes of size 1 may be too many, as in NumPy."""
    value = as_operand(value)
    builder = newest_builder((x, value))
    if isinstance(value, Tracer):
        ref = convert(value.ref, x.dtype)
    elif isinstance(value, np.ndarray):
        ref = lift(value, x.dtype, builder)
    else:
        return lift_to(value, x.dtype, shape, builder)
    scope = builder.scope
    extra = len(ref.shape) - len(shape)
    if extra > 0 and all(scope.equate(n, 1) for n in ref.shape[:extra]):
        ref = reshape(ref, ref.shape[extra:])
    if not fits(scope, ref.shape, shape):
        raise ShapeError(f"{user_source()}: could not broadcast input array from shape {scope.describe(ref.shape)} into shape "
                         f"{scope.describe(shape)}")
    return broadcast(ref, scope.canonical_shape(shape))


def write(x: Ref, p: Plan, updates: Ref) -> Ref:
    """x with the elements that a plan names replaced."""
    return _scattered(scatter, x, p, updates) if p.axes else write_block(x, p, updates)


def _scattered(op: Op, x: Ref, p: Plan, updates: Ref) -> Ref:
    """A scatter to the elements that a plan with advanced indices names: x is updated where it lies, also a part of rows."""
    if p.perm != tuple(range(len(p.perm))):  # index axes first, then the rest
        updates = transpose(updates, perm=inverse(p.perm))
    if p.own is None:
        block = op(read_block(x, p), updates, *p.indices, axes=p.axes, batch=0, mode="raise")
        return write_block(x, p, block)
    axes = tuple([p.own[a] for a in p.axes])
    rest = [s for a, s in enumerate(p.spans) if a not in axes]
    updates = reshape(updates, (*updates.shape[:p.index_rank], *[s.length for s in rest]))
    part: dict[str, Any] = {}
    if not p.is_whole(x.shape):
        part = {"start": tuple([s.start for s in rest]), "step": tuple([s.step for s in rest])}
    return op(x, updates, *p.indices, axes=axes, batch=0, mode="raise", **part)


def write_block(x: Ref, p: Plan, block: Ref) -> Ref:
    """x with what its basic stage takes replaced by a block: select(in block, block spread out, x)."""
    block = reshape(block, tuple(s.length for s in p.spans))
    if p.is_whole(x.shape):
        return block
    attrs: dict[str, Any] = {"shape": x.shape, "start": tuple(s.start for s in p.spans), "step": tuple(s.step for s in p.spans)}
    inside = full(into=block.builder, value=True, shape=block.shape, dtype=BOOL)
    return select(pad(inside, **attrs, value=False), pad(block, **attrs, value=0), x)


def _masked(x: Ref, mask: Tracer, value: Any) -> Ref:
    """x[mask] = value, where value is a number, broadcasts against the axes after the mask's, or has the shape of x."""
    scope, m = x.builder.scope, mask.ref
    value = as_operand(value)
    rest = x.shape[len(m.shape):]
    if len(m.shape) > len(x.shape) or any(not scope.equate(a, b) for a, b in zip(m.shape, x.shape, strict=False)):
        raise IndexError(f"{user_source()}: boolean index of shape {scope.describe(m.shape)} did not match indexed array of "
                         f"shape {scope.describe(x.shape)}")
    own = shape_of(value)
    if own and own != x.shape and not fits(scope, own, rest):
        raise ShapeError(f"{user_source()}: x[mask] = v with a traced mask takes a number, a value for each selected element's "
                         f"remaining axes {scope.describe(rest)}, or an array of x's shape {scope.describe(x.shape)} from "
                         f"which the selected elements are taken; got shape {scope.describe(own)}.")
    builder = newest_builder((mask, value))
    shape = x.shape
    flags = reshape(m, (*m.shape, *[1] * len(rest)))
    return select(broadcast(flags, shape), lift_to(value, x.dtype, shape, builder), x)


# ---- x += v -------------------------------------------------------------------------------------
@implements(operator.iadd)
def in_place(ufunc: np.ufunc, x: Tracer, other: Any) -> Traced:
    """`x += v` and its kin: a rank-0 value that is no view is a number, and is replaced; a local array is rebound at its own
    dtype and shape; for a view the result waits for the store that Python makes right after it in `x[i] += v`."""
    if not x.ndim and x.owner != "view":
        return UFUNCS[ufunc](x, other, keep_weak=True)
    is_view = x.owner == "view" and not x.claim()
    if not is_view:
        check_writable(x, f"an in-place operator ({_symbol(ufunc)})")
    out = UFUNCS[ufunc](x, other)
    scope = x.ref.builder.scope
    if out.ref.shape != x.ref.shape:
        raise ShapeError(f"{user_source()}: non-broadcastable output operand with shape {scope.describe(x.ref.shape)} does not "
                         f"match the broadcast shape {scope.describe(out.ref.shape)}")
    if not np.can_cast(out.dtype, x.dtype, "same_kind"):
        raise DTypeError(f"{user_source()}: Cannot cast ufunc '{ufunc.__name__}' output from {out.dtype} to {x.dtype} with "
                         f"casting rule 'same_kind'. Write x = x {_symbol(ufunc)[:-1]} v.")
    ref = convert(out.ref, x.dtype)
    (x.wait if is_view else x.set_ref)(ref)
    return x


_SYMBOLS = {np.add: "+=", np.subtract: "-=", np.multiply: "*=", np.true_divide: "/=", np.floor_divide: "//=",
            np.remainder: "%=", np.power: "**=", np.matmul: "@=", np.bitwise_and: "&=", np.bitwise_or: "|=",
            np.bitwise_xor: "^=", np.left_shift: "<<=", np.right_shift: ">>="}


def _symbol(ufunc: np.ufunc) -> str:
    return _SYMBOLS[ufunc]


# ---- functions that write -----------------------------------------------------------------------
_SCATTERS = {np.add: scatter_add, np.subtract: scatter_add, np.maximum: scatter_max, np.minimum: scatter_min}


def _at(ufunc: np.ufunc, x: Any, key: Any, value: Any = None) -> None:
    """np.add.at, subtract, maximum and minimum: every one of several values for one element counts."""
    check_writable(x, f"np.{ufunc.__name__}.at")
    if ufunc not in _SCATTERS:
        raise unsupported(f"np.{ufunc.__name__}.at")
    guard_masks(key, x.ref.builder)
    p = plan(x.ref, key)
    updates = _updates(x, value, p.shape)
    if ufunc is np.subtract:
        ufunc, updates = np.add, UFUNCS[np.negative](Tracer(updates)).ref
    if p.axes:
        x.set_ref(_scattered(_SCATTERS[ufunc], x.ref, p, updates))
    else:
        x.set_ref(write_block(x.ref, p, UFUNCS[ufunc](Tracer(read_block(x.ref, p)), Tracer(updates)).ref))


UFUNC_METHODS["at"] = _at


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """dst[...] = src where a condition holds."""
    check_writable(dst, "np.copyto")
    if where is True:
        dst[...] = src
    else:
        dst[...] = xp.where(where, src, dst)


@implements(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    """a[mask] = values, for one value or values of a's shape."""
    check_writable(a, "np.putmask")
    a[...] = xp.where(mask, values, a)
