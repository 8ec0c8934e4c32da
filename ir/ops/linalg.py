"""Linear algebra as LAPACK has it: factorisations and solutions of real matrices, f32 or f64. Library calls.

Guarantees: the last two axes are a matrix, those before them a batch that all operands share; LinAlgError where NumPy's
function raises it. Factorisations of a symmetric matrix read its lower triangle, as NumPy's; their derivatives take the
symmetric part of a direction. Where eigenvalues or singular values are equal, their vectors have no derivative: infinite
or NaN.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dims import Extent, Shape, evaluate, minimum
from loopwright.ir.dims import product as number
from loopwright.ir.errors import DTypeError, GradientError, ShapeError
from loopwright.ir.graph import Graph, Node
from loopwright.ir.op import Engine, Example, Flags, NodeRules, Op
from loopwright.ir.ops import matrices as m
from loopwright.ir.ops.arithmetic import add, div, mul, neg, sub
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.comparison import eq
from loopwright.ir.ops.construct import full_like, zeros_like
from loopwright.ir.ops.elementwise import between
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import move_axis, reshape, section
from loopwright.ir.types import F32, F64, ArrayType

FIRST_FAILURE_AXIS = -100  # what compiled code reports in place of an axis: minus the number of the message
FAILURES = ("Singular matrix", "Matrix is not positive definite", "Eigenvalues did not converge", "SVD did not converge")
SINGULAR, NOT_POSITIVE, NO_EIGENVALUES, NO_SINGULAR_VALUES = range(len(FAILURES))
Pair = list[Ref | None]


# ---- types ----------------------------------------------------------------------------------------
def _check(name: str, x: ArrayType, is_square: bool) -> None:
    if x.rank < 2:
        raise ShapeError(f"{name}: {x} must have at least two axes")
    if is_square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: the matrices of {x} must be square")
    if x.dtype not in (F32, F64):
        raise DTypeError(f"{name}: {x} must be f32 or f64")


def _system(name: str) -> Callable[..., Shape]:
    """The shape of x in a x = b."""
    def shape(a: ArrayType, b: ArrayType, **attrs: Any) -> Shape:
        _check(name, a, True)
        if b.rank != a.rank or b.shape[:-1] != a.shape[:-1] or b.dtype != a.dtype:
            raise ShapeError(f"{name}: {b} must have the batch, rows and dtype of {a}")
        return b.shape
    return shape


def _dtype(a: ArrayType, *rest: ArrayType, **attrs: Any) -> np.dtype:
    return a.dtype


# ---- batches --------------------------------------------------------------------------------------
def _batch_system(op: Callable[[], Op]) -> Callable[..., Ref]:
    """Where one matrix serves all, their right sides are more columns of it."""
    def batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], **attrs: Any) -> Ref:
        a, b = args
        if mapped[0]:
            return op()(*spread(size, args, mapped), **attrs)
        last = len(b.shape) - 1
        wide = move_axis(b, 0, last - 1)  # batch..., rows, size, columns
        flat = reshape(wide, shape=(*wide.shape[:-2], number(wide.shape[-2:])))
        return move_axis(reshape(op()(a, flat, **attrs), shape=wide.shape), last - 1, 0)
    return batch


def _slanted(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
    """Far from a matrix of lower rank."""
    shape = tuple([evaluate(n, {}) for n in t.shape])
    return np.asarray(rng.normal(size=shape) / 4 + 2 * np.eye(shape[-2], shape[-1]), t.dtype)


# ---- systems --------------------------------------------------------------------------------------
def triangle(a: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """The part of a that a triangular solve reads."""
    part = np.tril(a) if lower else np.triu(a)
    rows = np.arange(a.shape[-1])
    if unit:
        part[..., rows, rows] = 1
    return part


def solve_triangular(a: np.ndarray, b: np.ndarray, lower: bool, transposed: bool, unit: bool) -> np.ndarray:
    """Substitution, row after row; a zero on the diagonal gives infinities."""
    part = triangle(a, lower, unit)
    part, forward = (part.swapaxes(-1, -2), not lower) if transposed else (part, lower)
    x = np.array(b)
    n = a.shape[-1]
    for i in range(n) if forward else range(n - 1, -1, -1):
        known = slice(0, i) if forward else slice(i + 1, n)
        rest = (part[..., i, None, known] @ x[..., known, :])[..., 0, :]
        x[..., i, :] = (x[..., i, :] - rest) / part[..., i, i, None]
    return x


def _triangular_jvp(primals: tuple[Ref, ...], tangents: Pair, out: Ref, lower: bool, transposed: bool,
                    unit: bool) -> Ref | None:
    da, db = tangents
    if da is not None:
        keep = {(True, False): m.lower, (True, True): m.strictly_lower, (False, False): m.upper,
                (False, True): m.strictly_upper}[lower, unit]
        part = m.swap(keep(da)) if transposed else keep(da)
        moved = m.product(part, out)
        db = neg(moved) if db is None else sub(db, moved)
    return None if db is None else triangular_solve(primals[0], db, lower=lower, transposed=transposed, unit=unit)


triangular_solve: Op = Op(
    name="triangular_solve",
    doc="The x with a x = b, or a^T x = b if transposed, for the lower or upper triangle of a, with ones on its diagonal if "
        "unit. No error where the diagonal has a zero: infinities.",
    shape=_system("triangular_solve"), dtype=_dtype,
    numpy=solve_triangular,
    batch=_batch_system(lambda: triangular_solve),
    jvp=_triangular_jvp,
    linear=(1,),
    transpose={1: lambda ct, a, b, lower, transposed, unit:
               triangular_solve(a, ct, lower=lower, transposed=not transposed, unit=unit)},
    examples=tuple(Example((f"{d}[{k}n, n]", f"{d}[{k}n, 2]"), {"lower": low, "transposed": t, "unit": u}, {0: _slanted})
                   for d, k, low, t, u in (("f64", "", True, False, False), ("f64", "k, ", False, False, True),
                                           ("f32", "", True, True, True), ("f64", "", False, True, False))),
)


def _solve_jvp(primals: tuple[Ref, ...], tangents: Pair, out: Ref) -> Ref | None:
    """a dx = db - da x."""
    da, db = tangents
    if da is not None:
        db = neg(m.product(da, out)) if db is None else sub(db, m.product(da, out))
    return None if db is None else solve(primals[0], db)


solve: Op = Op(
    name="solve",
    doc="The x with a x = b. LinAlgError where a is singular.",
    shape=_system("solve"), dtype=_dtype,
    numpy=np.linalg.solve,
    batch=_batch_system(lambda: solve),
    jvp=_solve_jvp,
    linear=(1,),
    transpose={1: lambda ct, a, b: solve(m.swap(a), ct)},
    examples=tuple(Example(operands, {}, {0: _slanted}) for operands in (
        ("f64[n, n]", "f64[n, 2]"), ("f64[k, n, n]", "f64[k, n, 1]"), ("f32[2, 2]", "f32[2, m]"))),
)


def _pinv_shape(a: ArrayType, rcond: ArrayType) -> Shape:
    _check("pinv", a, False)
    if rcond.shape != a.shape[:-2] or rcond.dtype != a.dtype:
        raise ShapeError(f"pinv: {rcond} must be one number for each matrix of {a}, of its dtype")
    return (*a.shape[:-2], a.shape[-1], a.shape[-2])


def _pinv_jvp(primals: tuple[Ref, ...], tangents: Pair, p: Ref) -> Ref | None:
    """Golub and Pereyra 1973, for a rank that stays: -p da p + p p^T da^T (1 - a p) + (1 - p a) da^T p^T p."""
    a, da = primals[0], tangents[0]
    if da is None:
        return None
    turned = m.swap(da)
    beside = m.product(m.product(p, m.swap(p)), turned)
    below = m.product(turned, m.product(m.swap(p), p))
    outside = sub(beside, m.product(m.product(beside, a), p))
    inside = sub(below, m.product(p, m.product(a, below)))
    return add(neg(m.product(p, m.product(da, p))), add(outside, inside))


pinv: Op = Op(
    name="pinv",
    doc="The pseudo-inverse of a; singular values up to rcond times the largest count as zero.",
    shape=_pinv_shape, dtype=_dtype,
    numpy=lambda a, rcond: np.linalg.pinv(a, rcond=rcond),
    batch=lambda size, args, mapped: pinv(*spread(size, args, mapped)),
    jvp=_pinv_jvp,
    examples=tuple(Example((f"{d}[{batch}{rows}]", f"{d}[{batch[:-2]}]"), {}, {0: _slanted, 1: between(1e-6, 1e-5)})
                   for d, batch, rows in (("f64", "", "n, 2"), ("f64", "k, ", "2, 3"), ("f32", "", "n, n"))),
)


# ---- several results ------------------------------------------------------------------------------
Derivative = Callable[..., Pair]


def _rules(op: Callable[[], Op], derivative: Derivative, alone: Callable[[], Op] | None = None, kept: int = 0) -> NodeRules:
    """The rules of an op of one matrix: `derivative(da, a, *results, **attrs)` gives the tangents. alone: the op that gives the
    result `kept` and no other."""
    def jvp(engine: Engine, n: Node, primals: list[Ref], tangents: Pair) -> tuple[list[Ref], Pair]:
        a, da = primals[0], tangents[0]
        out = op().all(a, **n.attrs)
        moved: Pair = [None] * len(out)
        return out, moved if da is None else derivative(da, a, *out, **n.attrs)

    def linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Pair, behind: Builder) -> tuple[list[Ref], Pair]:
        return jvp(engine, n, primals, tangents)

    def batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
        out = op().all(args[0], **n.attrs)
        return out, [True] * len(out)

    def reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
        return [flags[0]] * len(n.outputs)

    def prune(n: Node, wanted: Flags) -> Node | None:
        if alone is None or any(is_wanted != (k == kept) for k, is_wanted in enumerate(wanted)):
            return None
        return Node(alone(), n.inputs, n.attrs, (n.outputs[kept],), (), n.source)

    return NodeRules(jvp=jvp, linearize=linearize, batch=batch, reach=reach, prune=prune)


def _alone(name: str, doc: str, whole: Op, kept: int, numpy: Callable[..., Any]) -> Op:
    """The op that gives one result of another: as soon as it has a tangent, it is that other one."""
    def infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], **attrs: Any) -> tuple[ArrayType, ...]:
        return (whole.result_types(types, regions, attrs)[kept],)

    def jvp(engine: Engine, n: Node, primals: list[Ref], tangents: Pair) -> tuple[list[Ref], Pair]:
        assert whole.rules is not None
        if tangents[0] is None:
            return own.all(primals[0], **n.attrs), [None]
        out, moved = whole.rules.jvp(engine, n, primals, tangents)
        return [out[kept]], [moved[kept]]

    def linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Pair, behind: Builder) -> tuple[list[Ref], Pair]:
        return jvp(engine, n, primals, tangents)
    plain = _rules(lambda: own, lambda *args, **attrs: [None])
    own = Op(name=name, doc=doc, infer=infer, numpy=lambda a, **attrs: (numpy(a, **attrs),),
             rules=NodeRules(jvp=jvp, linearize=linearize, batch=plain.batch, reach=plain.reach))
    return own


def _symmetric(x: Ref) -> Ref:
    """The symmetric part: directions in which a matrix stays symmetric."""
    return m.scaled(add(x, m.swap(x)), 0.5)


def _cholesky_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...]) -> tuple[ArrayType, ...]:
    _check("cholesky", types[0], True)
    return (ArrayType(types[0].shape, types[0].dtype),)


def _cholesky_tangents(da: Ref, a: Ref, out: Ref) -> Pair:
    """dL = L phi(L^-1 dA L^-T); phi takes the lower triangle with half of the diagonal."""
    half = triangular_solve(out, _symmetric(da), lower=True, transposed=False, unit=False)
    inner = triangular_solve(out, m.swap(half), lower=True, transposed=False, unit=False)
    return [m.product(out, sub(m.lower(inner), m.scaled(m.diagonal_only(inner), 0.5)))]


cholesky: Op = Op(
    name="cholesky",
    doc="The lower triangular L with L L^T = a, from a's lower triangle.",
    infer=_cholesky_infer,
    numpy=np.linalg.cholesky,
    rules=_rules(lambda: cholesky, _cholesky_tangents),
)


def _slogdet_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...]) -> tuple[ArrayType, ...]:
    _check("slogdet", types[0], True)
    return (ArrayType(types[0].shape[:-2], types[0].dtype),) * 2


slogdet: Op = Op(
    name="slogdet",
    doc="The sign of the determinant of a, and the logarithm of its absolute value; 0 and -inf where a is singular.",
    infer=_slogdet_infer,
    numpy=lambda a: tuple(np.linalg.slogdet(a)),
    rules=_rules(lambda: slogdet, lambda da, a, sign, log: [None, m.trace(solve(a, da))]),
)


def _inverse_differences(columns: Ref, rows: Ref) -> Ref:
    """1 / (columns - rows) off the diagonal, infinite where they are equal; zero on the diagonal."""
    gap = sub(columns, rows)
    return sub(div(full_like(gap, 1), add(gap, m.identity_like(gap))), m.identity_like(gap))


def _eigh_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...]) -> tuple[ArrayType, ...]:
    a = types[0]
    _check("eigh", a, True)
    return ArrayType(a.shape[:-1], a.dtype), ArrayType(a.shape, a.dtype)


def _eigh_tangents(da: Ref, a: Ref, w: Ref, v: Ref) -> Pair:
    """In the basis of the vectors: eigenvalues move by the diagonal, vectors turn by the rest over the gaps."""
    inner = m.product(m.swap(v), m.product(_symmetric(da), v))
    turning = mul(_inverse_differences(m.as_rows(w, inner.shape), m.as_columns(w, inner.shape)), inner)
    return [m.diagonal(inner), m.product(v, turning)]


eigh: Op = Op(
    name="eigh",
    doc="The eigenvalues of a symmetric matrix, rising, and its eigenvectors as columns; from a's lower triangle.",
    infer=_eigh_infer,
    numpy=lambda a: tuple(np.linalg.eigh(a)),
    rules=_rules(lambda: eigh, _eigh_tangents, lambda: eigenvalues),
)
eigenvalues: Op = _alone("eigenvalues", "The eigenvalues of a symmetric matrix, rising; from a's lower triangle.", eigh, 0,
                         np.linalg.eigvalsh)


def _svd_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], full: bool) -> tuple[ArrayType, ...]:
    a = types[0]
    _check("svd", a, False)
    *front, rows, columns = a.shape
    k = minimum(rows, columns)
    shapes = (rows, rows if full else k), (k,), (columns if full else k, columns)
    return tuple(ArrayType((*front, *s), a.dtype) for s in shapes)


def _outside(x: Ref, basis: Ref, s: Ref) -> Ref:
    """(x - basis basis^T x) / s, column by column; zero where s is."""
    rest = sub(x, m.product(basis, m.product(m.swap(basis), x)))
    below = m.as_rows(s, rest.shape)
    is_zero = eq(below, zeros_like(below))
    return select(is_zero, zeros_like(rest), div(rest, select(is_zero, full_like(below, 1), below)))


def _svd_tangents(da: Ref, a: Ref, u: Ref, s: Ref, vt: Ref, full: bool) -> Pair:
    """As of eigh; and what da adds outside the spaces of u and v."""
    rows, columns = a.shape[-2:]
    if full and rows != columns:
        raise GradientError("svd: the vectors of the null space (full_matrices=True) have no derivative. Use "
                            "full_matrices=False.")
    v = m.swap(vt)
    inner = m.product(m.swap(u), m.product(da, v))
    across, down = m.as_rows(s, inner.shape), m.as_columns(s, inner.shape)
    gaps = _inverse_differences(mul(across, across), mul(down, down))
    right, left = mul(inner, across), mul(down, inner)
    du = m.product(u, mul(gaps, add(right, m.swap(right))))
    dv = m.product(v, mul(gaps, add(left, m.swap(left))))
    if not m.same_or_less(rows, columns):
        du = add(du, _outside(m.product(da, v), u, s))
    if not m.same_or_less(columns, rows):
        dv = add(dv, _outside(m.product(m.swap(da), u), v, s))
    return [du, m.diagonal(inner), m.swap(dv)]


svd: Op = Op(
    name="svd",
    doc="u, s, v^T with u diag(s) v^T = a, and s falling; min(m, n) columns of u and rows of v^T, or all if full.",
    infer=_svd_infer,
    numpy=lambda a, full: tuple(np.linalg.svd(a, full_matrices=full)),
    rules=_rules(lambda: svd, _svd_tangents, lambda: singular_values, 1),
)
singular_values: Op = _alone("singular_values", "The singular values of a, falling. full: of which svd they are.", svd, 1,
                             lambda a, full: np.linalg.svd(a, compute_uv=False))


def _qr_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], full: bool) -> tuple[ArrayType, ...]:
    a = types[0]
    _check("qr", a, False)
    *front, rows, columns = a.shape
    k = rows if full else minimum(rows, columns)
    return ArrayType((*front, rows, k), a.dtype), ArrayType((*front, k, columns), a.dtype)


def _qr_tangents(da: Ref, a: Ref, q: Ref, r: Ref, full: bool) -> Pair:
    """From the leading square of r, which must be regular; then r = q^T a."""
    rows, columns = a.shape[-2:]
    if full and not m.same_or_less(rows, columns):
        raise GradientError("qr: the columns beyond those of the matrix (mode='complete') have no derivative. Use "
                            "mode='reduced'.")
    last, k = len(a.shape) - 1, minimum(rows, columns)
    square, moved = (x if x.shape[-1] == k else section(x, last, 0, k) for x in (r, da))
    slope = m.swap(triangular_solve(square, m.swap(moved), lower=False, transposed=True, unit=False))  # da r^-1
    inner = m.product(m.swap(q), slope)
    below = m.strictly_lower(inner)
    turning = sub(below, m.swap(below))
    dq = add(m.product(q, sub(turning, inner)), slope)
    return [dq, m.upper(add(m.product(m.swap(dq), a), m.product(m.swap(q), da)))]


qr: Op = Op(
    name="qr",
    doc="q, r with q r = a, q's columns orthonormal and r upper triangular; min(m, n) columns of q, or m if full.",
    infer=_qr_infer,
    numpy=lambda a, full: tuple(np.linalg.qr(a, mode="complete" if full else "reduced")),
    rules=_rules(lambda: qr, _qr_tangents, lambda: qr_triangle, 1),
)
qr_triangle: Op = _alone("qr_triangle", "r with q r = a, upper triangular; min(m, n) rows, or m if full.", qr, 1,
                         lambda a, full: np.linalg.qr(a, mode="complete" if full else "reduced")[1])
