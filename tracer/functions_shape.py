"""NumPy's functions that move elements and change shapes, on traced arrays.

Guarantees: what is a view in NumPy is a view here (it is read again after its base was written, and writes through it are
refused); a shape that must divide or equal another is proved or guarded.
"""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Call, Extent, Shape, floordiv, largest, modulo, product, terms_of
from loopwright.ir.errors import ShapeError
from loopwright.ir.guards import BEYOND, Scope
from loopwright.ir.ops.structural import reverse, section, transpose
from loopwright.ir.source import user_source
from loopwright.tracer.axes import (
    along,
    as_axes,
    as_axis,
    as_extents,
    as_shape,
    as_size,
    as_tracer,
    as_tracers,
    folded_axes,
    known_list,
)
from loopwright.tracer.promotion import broadcast, broadcast_shapes, fits, reshape
from loopwright.tracer.size import as_extent, sized
from loopwright.tracer.tables import Traced, implements, unsupported, xp
from loopwright.tracer.tracer import Tracer


# ---- reshape ------------------------------------------------------------------------------------
def resolve_shape(scope: Scope, old: Shape, shape: Shape) -> Shape:
    """A new shape with -1 replaced, that surely has as many elements."""
    _learn_quotients(scope, shape)
    total = product(old)
    shape = scope.canonical_shape(shape)
    unknown = [k for k, n in enumerate(shape) if n == -1]
    if len(unknown) > 1:
        raise ValueError(f"{user_source()}: can only specify one unknown dimension")
    if unknown:
        known = scope.canonical(product(n for n in shape if n != -1))
        if scope.decide("==", known, 0) or not scope.decide("divides", known, total):
            raise _cannot_reshape(scope, old, shape)
        rest = scope.canonical(floordiv(scope.canonical(total), known))
        shape = tuple(rest if n == -1 else n for n in shape)
        if not _equate_runs(scope, old, shape):
            scope.equate(rest * known, total)  # a quotient by a sum does not cancel: that fixes the sizes
    elif not (_equate_runs(scope, old, shape) or scope.equate(product(shape), total)):
        raise _cannot_reshape(scope, old, shape)
    return scope.canonical_shape(shape)


def _equate_runs(scope: Scope, old: Shape, new: Shape) -> bool:
    """Equate the shortest runs of axes that have as many elements in this call: (k, l) becomes (n, m) by k = n and l = m, where
    the products alone would fix all four. False where there are no such runs, or the products are one already."""
    if scope.canonical(product(old)) == scope.canonical(product(new)):
        return False
    sizes, wanted = ([scope.hint(n) for n in shape] for shape in (old, new))
    runs: list[tuple[Extent, Extent]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        p, q = i + 1, j + 1
        while (a := math.prod(sizes[i:p])) != (b := math.prod(wanted[j:q])):
            p, q = (p + 1, q) if a < b else (p, q + 1)
            if p > len(old) or q > len(new):
                return False
        runs.append((product(old[i:p]), product(new[j:q])))
        i, j = p, q
    runs += [(product(old[i:]), 1), (product(new[j:]), 1)]
    return all(scope.hint(a) == scope.hint(b) for a, b in runs) and all(scope.equate(a, b) for a, b in runs)


def _learn_quotients(scope: Scope, shape: Shape) -> None:
    """A quotient n // k in a new shape is most often exact. Where it is for this call, that becomes a fact, by which
    k * (n // k) is n; a shape that fits without it needs no such fact, so nothing is learned where it is not exact."""
    for n in shape:
        for atoms, _ in terms_of(n):
            for atom in atoms:
                if isinstance(atom, Call) and atom.fn == "floordiv" and scope.hint(modulo(*atom.args)) == 0:
                    scope.decide("divides", atom.args[1], atom.args[0])


def _cannot_reshape(scope: Scope, old: Shape, shape: Shape) -> ShapeError:
    size = scope.describe((product(old),))[1:-2]
    return ShapeError(f"{user_source()}: cannot reshape array of size {size} and shape {scope.describe(old)} into shape "
                      f"{scope.describe(shape)}")


@implements(np.reshape)
def reshape_(a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: bool | None = None) -> Traced:
    x = as_tracer(a)
    shape = as_extents(shape if shape is not None else newshape)
    if order == "F":
        out = xp.transpose(reshape_(xp.transpose(x), tuple(reversed(_sizes(x, shape)))))
        return out.copy() if copy else out
    if order != "C":
        raise unsupported(f"np.reshape(order={order!r})", "The memory layout is not known while tracing: use order='C' or 'F'.")
    new = resolve_shape(x.ref.builder.scope, x.ref.shape, shape)
    is_surely_view = x.contiguous or x.ndim <= 1 or new == x.ref.shape
    out = x.made(lambda ref: reshape(ref, new), layout_decides=not is_surely_view)
    out.contiguous = x.contiguous
    return out.copy() if copy else out


def _sizes(x: Tracer, shape: Shape) -> list[Any]:
    scope = x.ref.builder.scope
    return [sized(n, scope) for n in shape]


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Traced:
    x = as_tracer(a)
    if order == "F":
        return ravel(xp.transpose(x))
    if order == "K" or order == "A":
        raise unsupported(f"np.ravel(order={order!r})", "The memory layout is not known while tracing: use order='C' or 'F'.")
    flat = (product(x.ref.shape),)
    is_surely_view = x.contiguous or (x.ndim <= 1 and x.owner == "local")
    out = x.made(lambda ref: reshape(ref, flat), layout_decides=not is_surely_view)
    out.contiguous = x.contiguous
    return out


# ---- order of axes ------------------------------------------------------------------------------
def _permuted(x: Tracer, perm: tuple[int, ...]) -> Traced:
    if perm == tuple(range(len(perm))):
        return x.made(lambda ref: ref)
    return x.made(lambda ref: transpose(ref, perm=perm))


@implements(np.transpose)
def transpose_(a: Any, axes: Any = None) -> Traced:
    x = as_tracer(a)
    if axes is None:
        return _permuted(x, tuple(reversed(range(x.ndim))))
    perm = as_axes(axes, x.ndim)
    if len(perm) != x.ndim:
        raise ValueError(f"{user_source()}: axes don't match array")
    return _permuted(x, perm)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any, /) -> Traced:
    x = as_tracer(x)
    if x.ndim < 2:
        raise ValueError(f"{user_source()}: input array must be at least 2-dimensional, but it is {x.ndim}")
    return swapaxes(x, -1, -2)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Traced:
    x = as_tracer(a)
    i, j = as_axis(axis1, x.ndim), as_axis(axis2, x.ndim)
    perm = list(range(x.ndim))
    perm[i], perm[j] = j, i
    return _permuted(x, tuple(perm))


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Traced:
    x = as_tracer(a)
    sources, targets = as_axes(source, x.ndim), as_axes(destination, x.ndim)
    if len(sources) != len(targets):
        raise ValueError(f"{user_source()}: `source` and `destination` arguments must have the same number of elements")
    perm = [k for k in range(x.ndim) if k not in sources]
    for target, k in sorted(zip(targets, sources, strict=True)):
        perm.insert(target, k)
    return _permuted(x, tuple(perm))


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Traced:
    x = as_tracer(a)
    axis = as_axis(axis, x.ndim)
    if not -x.ndim <= start <= x.ndim:
        raise AxisError(f"{user_source()}: 'start' arg requires {-x.ndim} <= start < {x.ndim + 1}, but {start} was passed in")
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if axis < start else start)


# ---- axes of size 1, and repeats ----------------------------------------------------------------
@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Traced:
    x = as_tracer(a)
    scope, shape = x.ref.builder.scope, x.ref.shape
    axes = tuple(k for k, n in enumerate(shape) if scope.equate(n, 1)) if axis is None else folded_axes(axis, x.ndim)
    if not all(scope.equate(shape[k], 1) for k in axes):
        raise ValueError(f"{user_source()}: cannot select an axis to squeeze out which has size not equal to one: "
                         f"axis {axis} of {scope.describe(shape)}")
    kept = tuple(n for k, n in enumerate(x.ref.shape) if k not in axes)
    return x.made(lambda ref: reshape(ref, kept))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Traced:
    x = as_tracer(a)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = as_axes(tuple(axis) if isinstance(axis, list) else axis, x.ndim + count)
    left = iter(x.ref.shape)
    shape = tuple(1 if k in axes else next(left) for k in range(x.ndim + count))
    return x.made(lambda ref: reshape(ref, shape))


def _at_least(rank: int, x: Tracer) -> Traced:
    if x.ndim >= rank:
        return x
    if rank == 3 and x.ndim == 2:
        return expand_dims(x, 2)
    if rank == 3 and x.ndim == 1:
        return expand_dims(x, (0, 2))
    return expand_dims(x, tuple(range(rank - x.ndim)))


def _each_at_least(rank: int, arrays: tuple[Any, ...]) -> Any:
    out = tuple(_at_least(rank, x) for x in as_tracers(*arrays))
    return out[0] if len(out) == 1 else out


implements(np.atleast_1d)(lambda *arys: _each_at_least(1, arys))
implements(np.atleast_2d)(lambda *arys: _each_at_least(2, arys))
implements(np.atleast_3d)(lambda *arys: _each_at_least(3, arys))


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Traced:
    x = as_tracer(array)
    scope, target = x.ref.builder.scope, as_shape(shape)
    if not fits(scope, x.ref.shape, target):
        raise ShapeError(f"{user_source()}: cannot broadcast an array of shape {scope.describe(x.ref.shape)} to shape "
                         f"{scope.describe(target)}")
    target = scope.canonical_shape(target)
    return x.made(lambda ref: broadcast(ref, target))


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Traced, ...]:
    xs = as_tracers(*args)
    shape = broadcast_shapes(xs[0].ref.builder.scope, *[x.ref.shape for x in xs])
    return tuple(x.made(lambda ref: broadcast(ref, shape)) for x in xs)


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Traced:
    ref, k = along(as_tracer(a).ref, axis)
    x = Tracer(ref)
    times = as_extent(repeats)
    if times is None:
        counts = np.asarray(known_list(repeats))
        return xp.take(x, xp.repeat(xp.arange(int(x.shape[k])), counts), axis=k)
    if isinstance(times, int) and not 0 <= times < BEYOND:
        raise ValueError(f"{user_source()}: repeats may not contain negative values, nor greater than sizes are, got {times}")
    shape = x.ref.shape
    spread = broadcast(reshape(x.ref, (*shape[:k + 1], 1, *shape[k + 1:])), (*shape[:k + 1], times, *shape[k + 1:]))
    return Tracer(reshape(spread, (*shape[:k], shape[k] * times, *shape[k + 1:])))


@implements(np.tile)
def tile(A: Any, reps: Any) -> Traced:
    x, times = as_tracer(A).ref, as_shape(reps)
    rank = max(len(x.shape), len(times))
    shape = (*[1] * (rank - len(x.shape)), *x.shape)
    times = (*[1] * (rank - len(times)), *times)
    pairs = list(zip(times, shape, strict=True))
    x = reshape(x, tuple(k for t, n in pairs for k in ([n] if t == 1 else [1, n])))  # axes of one element would divide loops
    x = broadcast(x, tuple(k for t, n in pairs for k in ([n] if t == 1 else [t, n])))
    return Tracer(reshape(x, tuple(t * n for t, n in zip(times, shape, strict=True))))


# ---- reversal and rotation ----------------------------------------------------------------------
@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Traced:
    x = as_tracer(m)
    axes = as_axes(axis, x.ndim)

    def derive(ref: Ref) -> Ref:
        for k in axes:
            ref = reverse(ref, k)
        return ref
    return x.made(derive)


implements(np.fliplr)(lambda m: flip(m, 1))
implements(np.flipud)(lambda m: flip(m, 0))


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Traced:
    x = as_tracer(m)
    i, j = as_axes(tuple(axes), x.ndim)
    match k % 4:
        case 0:
            return x.made(lambda ref: ref)
        case 2:
            return flip(x, (i, j))
        case 1:
            return swapaxes(flip(x, j), i, j)
    return flip(swapaxes(x, i, j), j)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Traced:
    x = as_tracer(a)
    if axis is None:
        flat = Tracer(reshape(x.ref, (product(x.ref.shape),)))
        return Tracer(reshape(roll(flat, shift, 0).ref, x.ref.shape))
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    count = max(len(axes), len(shifts))
    for number in range(count):  # one shift serves all axes, and one axis takes all shifts
        x = _rolled(x, shifts[number % len(shifts)], as_axis(axes[number % len(axes)], x.ndim))
    return x.copy() if x is a else x


def _rolled(x: Tracer, shift: Any, axis: int) -> Traced:
    """x[..., (i - shift) mod n, ...]: two slices where the shift is a number no greater than the size."""
    scope, n = x.ref.builder.scope, x.ref.shape[axis]
    if scope.decide("==", n, 0):
        return x
    by = as_extent(shift)
    if by is None:
        return xp.take(x, _wrapped_positions(x, shift, n), axis=axis)
    if largest(by) >= BEYOND:
        n = scope.settled(n)
        by = scope.settled(by) % n
    cut = scope.canonical(by * -1 if scope.decide("<=", by, 0) else n - by)
    if not (scope.decide("<=", 0, cut) and scope.decide("<=", cut, n)):
        cut = scope.canonical((by * -1) % n)
    head, tail = section(x.ref, axis, 0, cut), section(x.ref, axis, cut, n - cut)
    return xp.concatenate((Tracer(tail), Tracer(head)), axis=axis)


def _wrapped_positions(x: Tracer, shift: Any, n: Extent) -> Traced:
    from_start = xp.arange(sized(n, x.ref.builder.scope), like=x)
    return xp.remainder(from_start - shift, sized(n, x.ref.builder.scope))


# ---- joining and splitting ----------------------------------------------------------------------
def _sections(n: Extent, indices_or_sections: Any, scope: Scope, exact: bool) -> list[tuple[Extent, Extent]]:
    """Start and end of each part."""
    parts = as_extent(indices_or_sections)
    if parts is None:
        bounds = [0, *map(as_size, known_list(indices_or_sections)), n]
        return list(itertools.pairwise(bounds))
    count = scope.value(parts)
    if count <= 0:
        raise ValueError(f"{user_source()}: number sections must be larger than 0.")
    if scope.decide("divides", count, n):
        each = scope.canonical(floordiv(scope.canonical(n), count))
        return [(each * k, each * (k + 1)) for k in range(count)]
    if exact:
        raise ValueError(f"{user_source()}: array split does not result in an equal division")
    size = scope.value(n)
    each, extra = divmod(size, count)
    ends = [0]
    for k in range(count):
        ends.append(ends[-1] + each + (k < extra))
    return list(itertools.pairwise(ends))


def _split(ary: Any, indices_or_sections: Any, axis: Any, exact: bool) -> list[Traced]:
    x = as_tracer(ary)
    k = as_axis(axis, x.ndim)
    scope = x.ref.builder.scope
    parts = _sections(x.ref.shape[k], indices_or_sections, scope, exact)
    before = (slice(None),) * k
    return [x[(*before, slice(sized(a, scope), sized(b, scope)))] for a, b in parts]


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Traced]:
    return _split(ary, indices_or_sections, axis, exact=True)


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Traced]:
    return _split(ary, indices_or_sections, axis, exact=False)


def _split_of_rank(name: str, rank: int, ary: Any, sections: Any, axis: int) -> Any:
    if xp.ndim(ary) < rank:
        raise ValueError(f"{user_source()}: {name} only works on arrays of {rank} or more dimensions")
    return split(ary, sections, axis)


implements(np.vsplit)(lambda ary, sections: _split_of_rank("vsplit", 2, ary, sections, 0))
implements(np.dsplit)(lambda ary, sections: _split_of_rank("dsplit", 3, ary, sections, 2))
implements(np.hsplit)(lambda ary, sections: _split_of_rank("hsplit", 1, ary, sections, 1 if xp.ndim(ary) > 1 else 0))


if hasattr(np, "unstack"):  # from NumPy 2.1
    implements(np.unstack)(lambda x, /, *, axis=0: tuple(xp.moveaxis(as_tracer(x), axis, 0)))


@implements(np.shape)
def shape(a: Any) -> tuple[Any, ...]:
    return as_tracer(a).shape


@implements(np.ndim)
def ndim(a: Any) -> int:
    return as_tracer(a).ndim


@implements(np.size)
def size(a: Any, axis: Any = None) -> Any:
    x = as_tracer(a)
    if axis is None:
        return x.size
    return sized(product(x.ref.shape[k] for k in as_axes(axis, x.ndim)), x.ref.builder.scope)

