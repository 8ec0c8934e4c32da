"""NumPy's products of arrays on traced arrays: matmul and its kin, einsum, norms. All but outer products are `dot_general`."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, floordiv
from loopwright.ir.errors import ShapeError
from loopwright.ir.guards import Scope
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.convolution import conv
from loopwright.ir.ops.structural import transpose
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, F64, is_inexact
from loopwright.tracer.axes import as_axes, as_axis, as_tracer, as_tracers, refuse
from loopwright.tracer.functions_join import diagonal
from loopwright.tracer.promotion import (
    as_dtype,
    as_operand,
    broadcast,
    broadcast_shapes,
    convert,
    kind_of,
    lift,
    newest_builder,
    own_kind,
    reshape,
    resolve,
    result_kind,
    shape_of,
)
from loopwright.tracer.tables import UFUNCS, Traced, implements, xp
from loopwright.tracer.tracer import Tracer

Pairs = tuple[tuple[int, int], ...]


def _operands(*xs: Any, dtype: Any = None) -> list[Ref]:
    """Operands in one trace at their common dtype."""
    values = [as_operand(x) for x in xs]
    builder = newest_builder(values)
    common = as_dtype(dtype) if dtype is not None else result_kind(*map(own_kind, values))
    return [lift(v, common, builder) for v in values]


def _contract(x: Ref, y: Ref, contract: Pairs, batch: Pairs = (), what: str = "matmul") -> Ref:
    """dot_general, with the sizes of each pair proved equal or guarded."""
    scope = x.builder.scope
    for i, j in (*contract, *batch):
        if not scope.equate(x.shape[i], y.shape[j]):
            raise ShapeError(f"{user_source()}: {what}: axis {i} of the first operand, of shape {scope.describe(x.shape)}, "
                             f"must have the size of axis {j} of the second, of shape {scope.describe(y.shape)}")
    return dot_general(x, y, contract=contract, batch=batch, dtype=None)


def _permuted(x: Ref, perm: Sequence[int]) -> Ref:
    return x if tuple(perm) == tuple(range(len(perm))) else transpose(x, perm=tuple(perm))


# ---- matmul and its kin -------------------------------------------------------------------------
@implements(np.linalg.matmul)
def matmul(x1: Any, x2: Any, /, *, dtype: Any = None, axes: None = None, axis: None = None, keepdims: None = None,
           casting: str = "same_kind", order: str = "K", subok: bool = True, keep_weak: bool = False) -> Traced:
    if axes is not None or axis is not None or keepdims is not None:
        refuse("matmul", axes=axes, axis=axis, keepdims=keepdims)
    xs = [as_operand(x1), as_operand(x2)]
    kinds = (kind_of(xs[0]), kind_of(xs[1]))
    if shape_of(xs[0]) == () or shape_of(xs[1]) == ():
        raise ValueError(f"{user_source()}: matmul: an operand has rank 0, but matmul needs at least 1 dimension. Use `*`.")
    inputs, outputs = resolve(np.matmul, kinds, None if dtype is None else as_dtype(dtype))
    builder = newest_builder(xs)
    a, b = [lift(v, d, builder) for v, d in zip(xs, inputs, strict=True)]
    return Tracer(convert(_matmul(a, b), outputs[0]))


def _matmul(a: Ref, b: Ref) -> Ref:
    """Axes in front of the last two broadcast; an operand that has none of them is not copied."""
    if b.rank <= 2:
        return _contract(a, b, ((a.rank - 1, 0),))
    front = b.rank - 2
    if a.rank == 1:
        return _contract(a, b, ((0, front),))
    if a.rank == 2:
        out = _contract(a, b, ((1, front),))  # m, batch..., n
        return _permuted(out, (*range(1, front + 1), 0, front + 1))
    shape = broadcast_shapes(a.builder.scope, a.shape[:-2], b.shape[:-2])
    a, b = broadcast(a, (*shape, *a.shape[-2:])), broadcast(b, (*shape, *b.shape[-2:]))
    k = len(shape)
    return _contract(a, b, ((k + 1, k),), tuple((i, i) for i in range(k)))


UFUNCS[np.matmul] = matmul


def matvec(x1: Any, x2: Any, /, *, keep_weak: bool = False) -> Any:
    x, y = as_tracers(x1, x2)
    return (x @ y[..., None])[..., 0]


def vecmat(x1: Any, x2: Any, /, *, keep_weak: bool = False) -> Any:
    x, y = as_tracers(x1, x2)
    return (_conjugate(x)[..., None, :] @ y)[..., 0, :]


@implements(np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: Any = -1, keep_weak: bool = False) -> Traced:
    x, y = (xp.moveaxis(t, axis, -1) for t in as_tracers(x1, x2))
    return (_conjugate(x)[..., None, :] @ y[..., :, None])[..., 0, 0]


def _conjugate(x: Tracer) -> Traced:
    """NumPy's conjugates of booleans are int8, but its products do not take them."""
    return x if x.dtype == BOOL else xp.conjugate(x)


UFUNCS[np.vecdot] = vecdot
UFUNCS.update({getattr(np, f.__name__): f for f in (matvec, vecmat) if hasattr(np, f.__name__)})  # from NumPy 2.2


@implements(np.dot)
def dot(a: Any, b: Any, out: None = None) -> Any:
    refuse("dot", out=out)
    x, y = _operands(a, b)
    if not x.shape or not y.shape:
        return UFUNCS[np.multiply](Tracer(x), Tracer(y))
    return Tracer(_contract(x, y, ((len(x.shape) - 1, max(len(y.shape) - 2, 0)),), what="dot"))


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    x, y = _operands(a, b)
    if not x.shape or not y.shape:
        return UFUNCS[np.multiply](Tracer(x), Tracer(y))
    return Tracer(_contract(x, y, ((len(x.shape) - 1, len(y.shape) - 1),), what="inner"))


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    x, y = (xp.ravel(Tracer(r)) for r in _operands(a, b))
    return dot(_conjugate(x), y)


@implements(np.linalg.outer)
def vectors_outer(x1: Any, x2: Any, /) -> Any:
    x, y = as_tracers(x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"{user_source()}: linalg.outer takes vectors, not arrays with {x.ndim} and {y.ndim} axes; np.outer "
                         f"flattens them")
    return outer(x, y)


@implements(np.outer)
def outer(a: Any, b: Any, out: None = None) -> Any:
    refuse("outer", out=out)
    x, y = as_tracers(a, b)
    return xp.ravel(x)[:, None] * xp.ravel(y)[None, :]


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Traced:
    x, y = _operands(a, b)
    if isinstance(axes, (tuple, list)):
        left, right = (side if isinstance(side, (tuple, list)) else (side,) for side in axes)
        if len(left) != len(right):
            raise ValueError(f"{user_source()}: tensordot: axes={axes} names {len(left)} axes of the first operand and "
                             f"{len(right)} of the second; each is summed with one of the other")
        pairs = tuple((as_axis(i, len(x.shape)), as_axis(j, len(y.shape))) for i, j in zip(left, right, strict=True))
    else:
        n = operator.index(axes)
        pairs = tuple((len(x.shape) - n + k, k) for k in range(n))
    return Tracer(_contract(x, y, pairs, what="tensordot"))


@implements(np.kron)
def kron(a: Any, b: Any) -> Traced:
    x, y = as_tracers(a, b)
    rank = max(x.ndim, y.ndim)
    left, right = ((*[1] * (rank - t.ndim), *t.ref.shape) for t in (x, y))
    out = (Tracer(reshape(x.ref, tuple(n for m in left for n in (m, 1))))
           * Tracer(reshape(y.ref, tuple(n for m in right for n in (1, m)))))
    return Tracer(reshape(out.ref, tuple(n * m for n, m in zip(left, right, strict=True))))


@implements(np.cross)
def cross(a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1, axis: Any = None) -> Traced:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = as_tracers(a, b)
    x, y = xp.moveaxis(x, as_axis(axisa, x.ndim), -1), xp.moveaxis(y, as_axis(axisb, y.ndim), -1)
    scope = x.ref.builder.scope
    if not all(scope.decide("==", t.ref.shape[-1], 3) for t in (x, y)):
        raise ValueError(f"{user_source()}: incompatible dimensions for cross product (dimension must be 3)")
    (x0, x1, x2), (y0, y1, y2) = ([t[..., k] for k in range(3)] for t in (x, y))
    out = xp.stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], axis=-1)
    return xp.moveaxis(out, -1, as_axis(axisc, out.ndim))


implements(np.linalg.cross)(lambda x1, x2, /, *, axis=-1: cross(x1, x2, axis=axis))


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: None = None) -> Any:
    refuse("linalg.multi_dot", out=out)
    if len(arrays) < 2:
        raise ValueError(f"{user_source()}: multi_dot needs at least two arrays")
    result = arrays[0]
    for x in arrays[1:]:
        result = dot(result, x)
    return result


# ---- einsum -------------------------------------------------------------------------------------
Label = Any  # a letter, an integer, or a place in the ellipsis
Term = tuple[Ref, list[Label]]


@implements(np.einsum)
def einsum(*operands: Any, out: None = None, dtype: Any = None, order: str = "K", casting: str = "safe",
           optimize: Any = False) -> Traced:
    """Pairs, those of fewest labels first: each is one dot_general, after sums over labels that nobody else names."""
    refuse("einsum", out=out)
    inputs, output, arrays = _subscripts(operands)
    terms = [_single(x, labels) for x, labels in zip(_operands(*arrays, dtype=dtype), inputs, strict=True)]
    terms = _without_ones(terms)
    while len(terms) > 1:
        i, j = min(combinations(range(len(terms)), 2), key=lambda pair: _degree(terms, pair[0], pair[1], output))
        terms = [_pair(terms[i], terms[j], _named_elsewhere(terms, i, j, output)),
                 *[x for k, x in enumerate(terms) if k not in (i, j)]]
    result, labels = _summed(terms[0], set(output))
    missing = [label for label in output if label not in labels]
    if missing:
        raise ValueError(f"{user_source()}: einsum: the output names {missing}, which no operand has")
    if len(set(output)) < len(output):
        raise ValueError(f"{user_source()}: einsum: the output {output} names an axis more than once")
    return Tracer(_permuted(result, [labels.index(label) for label in output]))


def _named_elsewhere(terms: list[Term], i: int, j: int, output: list[Label]) -> set[Label]:
    """The labels of the output and of all terms but those two."""
    return {label for k, (_, labels) in enumerate(terms) if k not in (i, j) for label in labels} | set(output)


def _degree(terms: list[Term], i: int, j: int, output: list[Label]) -> tuple[int, int]:
    """How many loops the product of two terms has, and how many axes its result: whatever the sizes are."""
    labels = {*terms[i][1], *terms[j][1]}
    return len(labels), len(labels & _named_elsewhere(terms, i, j, output))


def _subscripts(operands: tuple[Any, ...]) -> tuple[list[list[Label]], list[Label], list[Any]]:
    """Labels of each operand and of the output; an ellipsis becomes labels counted from the right."""
    if isinstance(operands[0], str):
        text, arrays = operands[0].replace(" ", ""), list(operands[1:])
        left, arrow, right = text.partition("->")
        inputs: list[list[Any]] = [_letters(part) for part in left.split(",")]
        output = _letters(right) if arrow else None
    else:
        arrays = list(operands[0:len(operands) // 2 * 2:2])
        inputs = [list(labels) for labels in operands[1::2]]
        output = list(operands[-1]) if len(operands) % 2 else None
    if len(inputs) != len(arrays):
        raise ValueError(f"{user_source()}: einsum: {len(inputs)} subscripts for {len(arrays)} operands")
    named = [_expanded(labels, xp.ndim(x)) for labels, x in zip(inputs, arrays, strict=True)]
    most = max((sum(isinstance(k, tuple) for k in labels) for labels in named), default=0)
    if output is None:
        counts = [label for labels in named for label in labels if not isinstance(label, tuple)]
        output = [Ellipsis, *sorted(label for label in set(counts) if counts.count(label) == 1)]
    return named, _expanded(output, len([k for k in output if k is not Ellipsis]) + most), arrays


def _letters(text: str) -> list[Any]:
    labels: list[Any] = []
    for k, part in enumerate(text.split("...")):
        if wrong := [c for c in part if not (c.isascii() and c.isalpha())]:
            raise ValueError(f"{user_source()}: einsum: invalid subscript {wrong[0]!r} in {text!r}; subscripts are letters")
        labels += [Ellipsis, *part] if k else list(part)
    return labels


def _expanded(labels: list[Any], rank: int) -> list[Label]:
    """Labels with the ellipsis written out; axis k from its right end is the label ("...", k)."""
    named = [k for k in labels if k is not Ellipsis]
    extra = rank - len(named)
    if extra < 0 or (extra and Ellipsis not in labels):
        raise ValueError(f"{user_source()}: einsum: subscripts {labels} name {len(named)} axes of an operand with {rank}")
    at = labels.index(Ellipsis) if Ellipsis in labels else len(labels)
    return [*named[:at], *[("...", extra - 1 - k) for k in range(extra)], *named[at:]]


def _single(x: Ref, labels: list[Label]) -> Term:
    """A repeated label takes the diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if not x.builder.scope.equate(x.shape[i], x.shape[j]):
                raise ShapeError(f"{user_source()}: einsum: axes {i} and {j} share a label but differ in "
                                 f"{x.builder.scope.describe(x.shape)}")
            x = diagonal(Tracer(x), 0, i, j).ref
            labels = [*[k for a, k in enumerate(labels) if a not in (i, j)], label]
    return x, labels


def _without_ones(terms: list[Term]) -> list[Term]:
    """An axis of size 1 broadcasts against a larger one of the same label: drop it where another operand has the label."""
    scope = terms[0][0].builder.scope
    sizes: dict[Label, Extent] = {}
    for x, labels in terms:
        for label, n in zip(labels, x.shape, strict=True):
            sizes[label] = _joint(scope, sizes[label], n) if label in sizes else n
    sizes = {label: scope.canonical(n) for label, n in sizes.items()}  # a later label may have told what an earlier one is
    return [_dropped(x, [k for k, label in enumerate(labels) if x.shape[k] == 1 and sizes[label] != 1], labels)
            for x, labels in terms]


def _joint(scope: Scope, n: Extent, m: Extent) -> Extent:
    return broadcast_shapes(scope, (n,), (m,))[0]


def _dropped(x: Ref, axes: list[int], labels: list[Label]) -> Term:
    kept = [k for k in range(len(labels)) if k not in axes]
    return reshape(x, tuple(x.shape[k] for k in kept)), [labels[k] for k in kept]


def _summed(term: Term, needed: set[Label]) -> Term:
    x, labels = term
    axes = tuple(k for k, label in enumerate(labels) if label not in needed)
    return (reduce_sum(x, axes=axes), [label for label in labels if label in needed]) if axes else term


def _pair(first: Term, second: Term, needed: set[Label]) -> Term:
    x, left = _summed(first, needed | set(second[1]))
    y, right = _summed(second, needed | set(left))
    shared = [label for label in left if label in right]
    batch = tuple((left.index(k), right.index(k)) for k in shared if k in needed)
    contract = tuple((left.index(k), right.index(k)) for k in shared if k not in needed)
    out = _contract(x, y, contract, batch, what="einsum")
    free = [k for k in left if k not in shared] + [k for k in right if k not in shared]
    return out, [k for k in shared if k in needed] + free


# ---- norms --------------------------------------------------------------------------------------
@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Traced:
    t = as_tracer(x)
    t = t if is_inexact(t.dtype) else t.astype(F64)
    if axis is None and (ord is None or (ord == 2 and t.ndim == 1) or (ord == "fro" and t.ndim == 2)):
        return _euclidean(t, tuple(range(t.ndim)), keepdims)
    axes = as_axes(axis, t.ndim)
    if len(axes) == 1:
        return _vector_norm(t, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(t, ord, axes, keepdims)
    raise ValueError(f"{user_source()}: Improper number of dimensions to norm.")


def _euclidean(x: Tracer, axes: tuple[int, ...], keepdims: bool) -> Traced:
    squares = xp.square(xp.real(x)) + xp.square(xp.imag(x)) if xp.iscomplexobj(x) else xp.square(x)
    return xp.sqrt(xp.sum(squares, axis=axes, keepdims=keepdims))


def _vector_norm(x: Tracer, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Traced:
    match ord:
        case None | 2:
            return _euclidean(x, axes, keepdims)
        case math.inf:
            return _greatest(xp.abs(x), axes[0], keepdims)
        case _ if ord == -math.inf:
            return xp.min(xp.abs(x), axis=axes, keepdims=keepdims)
        case 0:
            return xp.sum(x != 0, axis=axes, keepdims=keepdims).astype(xp.real(x).dtype)
        case 1:
            return xp.sum(xp.abs(x), axis=axes, keepdims=keepdims)
        case str():
            raise ValueError(f"{user_source()}: Invalid norm order {ord!r} for vectors")
    return xp.sum(xp.abs(x) ** ord, axis=axes, keepdims=keepdims) ** (1 / ord)


def _greatest(x: Tracer, axis: int, keepdims: bool = False) -> Traced:
    """The greatest of numbers that are not negative, 0 of none."""
    if x.ref.builder.scope.decide("==", x.ref.shape[axis], 0):
        return xp.sum(x, axis=axis, keepdims=keepdims)
    return xp.max(x, axis=axis, keepdims=keepdims)


def _matrix_norm(x: Tracer, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Traced:
    row, column = axes
    if ord is None or ord == "fro":
        return _euclidean(x, axes, keepdims)
    if ord in (2, -2, "nuc"):
        values = xp.linalg.svdvals(xp.moveaxis(x, axes, (-2, -1)))
        out = xp.sum(values, axis=-1) if ord == "nuc" else _greatest(values, -1) if ord == 2 else xp.min(values, axis=-1)
        return xp.expand_dims(out, axes) if keepdims else out
    sums = {1: (row, column), -1: (row, column), math.inf: (column, row), -math.inf: (column, row)}
    if ord not in sums:
        raise ValueError(f"{user_source()}: Invalid norm order {ord!r} for matrices.")
    first, second = sums[ord]
    totals = xp.sum(xp.abs(x), axis=first, keepdims=True)
    out = _greatest(totals, second, True) if ord > 0 else xp.min(totals, axis=second, keepdims=True)
    return out if keepdims else xp.squeeze(out, axes).copy()


implements(np.linalg.vector_norm)(
    lambda x, /, *, axis=None, keepdims=False, ord=2:
    _vector_norm_of(as_tracer(x), ord, axis, keepdims))
implements(np.linalg.matrix_norm)(
    lambda x, /, *, keepdims=False, ord="fro": norm(x, ord, (-2, -1), keepdims))


def _vector_norm_of(x: Tracer, ord: Any, axis: Any, keepdims: bool) -> Traced:
    x = x if is_inexact(x.dtype) else x.astype(F64)
    return _vector_norm(x, ord, as_axes(axis, x.ndim), keepdims)


# ---- the rest -----------------------------------------------------------------------------------
@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """Horner's rule over coefficients of a known number."""
    out: Any = 0
    for c in p if isinstance(p, Tracer) else as_operand(p):
        out = out * x + c
    return out


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Traced:
    """One image of one feature, and a window of the reversed shorter operand."""
    x, y = _operands(a, v)
    scope = x.builder.scope
    if scope.decide("<", x.shape[0], y.shape[0]):
        x, y = y, x
    if scope.decide("==", y.shape[0], 0):
        raise ValueError(f"{user_source()}: convolve needs arrays that are not empty")
    n, m = x.shape[0], y.shape[0]
    placed = {"full": (m - 1, n + m - 1), "same": (floordiv(m, 2), n), "valid": (0, n - m + 1)}  # start and length
    if mode not in placed:
        raise ValueError(f"{user_source()}: mode must be 'full', 'same' or 'valid', got {mode!r}")
    low, count = placed[mode]
    axes = (0, 1, 2, 3)  # of groups, images, features and positions
    image, window = reshape(x, (1, 1, 1, n)), reshape(Tracer(y)[::-1].ref, (1, 1, 1, m))
    made = conv(image, window, lhs_axes=axes, rhs_axes=axes, out_axes=axes, count=(count,), low=(low,), stride=(1,),
                lhs_dilation=(1,), rhs_dilation=(1,), dtype=None)
    return Tracer(reshape(made, (count,)))


