"""NumPy's functions on traced arrays are NumPy's: values, shapes and dtypes, with plain and with symbolic sizes."""
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples
from tests.tracing import Traced, run, same

pytestmark = pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")  # since NumPy 2.5

RNG = np.random.default_rng(0)
V = RNG.normal(size=5)
M = RNG.normal(size=(3, 4))
S = RNG.normal(size=(4, 4))
T = RNG.normal(size=(2, 3, 4))
I = RNG.integers(-5, 6, size=(3, 4))  # noqa: E741
B = RNG.random((3, 4)) > 0.5
C = M + 1j * RNG.normal(size=(3, 4))
F = M.astype(np.float32)
H = M.astype(np.float16)
N = np.where(B, np.nan, M)
P = np.array([2, 0, 1])
Z = np.zeros((0, 3))
ONE = np.ones((1, 4))

QUANTILES = ("linear", "lower", "higher", "midpoint", "nearest")
EINSUMS = [
    ("ij,jk->ik", (M, S)), ("ij,jk", (M, S)), ("ii", (S,)), ("ii->i", (S,)), ("ij->ji", (M,)), ("ij->", (M,)),
    ("i,j", (V, V)), ("i,i", (V, V)), ("bij,bjk->bik", (T, T.transpose(0, 2, 1))),
    ("...ij,...jk->...ik", (T, T.transpose(0, 2, 1))), ("...j,j", (T, V[:4])), ("...j,j->...", (T, V[:4])),
    ("ij,jk,kl->il", (M, S, S)), ("ij,ij->j", (M, I)), ("iij->j", (np.stack([S] * 4, -1),)), ("ij,kj->k", (ONE, M)),
    ("i...->...", (T,)), ("bhqd,bhkd->bhqk", (T[None], T[None])), ("ij,ij,ij->i", (M, M, M)), ("ji", (M,)),
    ("ijk,ikj->", (T, T.transpose(0, 2, 1))), ("ij,jk,k->i", (M, S, V[:4])), ("bij,bj,i->b", (T, T[:, 0], V[:3])),
    ("i,j,ij,jk->k", (V[:3], V[:4], M, S)),
]
CASES = {
    "sum": [
        (lambda x: np.sum(x), (T,)), (lambda x: x.sum(1), (T,)),
        (lambda x: np.sum(x, axis=(0, -1), keepdims=True), (T,)), (lambda x: np.sum(x), (I.astype(np.int8),)),
        (lambda x: np.sum(x, 0), (B,)), (lambda x: np.sum(x), (Z,)), (lambda x: np.sum(x, dtype=np.float32), (M,)),
        (lambda x: np.sum(x, initial=3.0), (M,)), (lambda x: x.sum(()), (M,)),
        (lambda x, m: np.sum(x, where=m), (M, B)), (lambda x: np.sum(x, axis=0), (H,)),
        (lambda x: np.sum(x), (np.float64(3),)), (lambda x: np.add.reduce(x), (M,)),
        (lambda x: np.add.reduce(x, axis=None), (I.astype(np.uint8),)),
    ],
    "prod": [
        (lambda x: np.prod(x), (M,)), (lambda x: x.prod(axis=1), (I,)), (lambda x: np.multiply.reduce(x), (M,)),
        (lambda x: np.prod(x, axis=0), (Z,)),
    ],
    "max": [
        (lambda x: np.max(x), (M,)), (lambda x: x.max(0), (I,)), (lambda x: np.max(x, axis=1, keepdims=True), (N,)),
        (lambda x: np.maximum.reduce(x), (M,)), (lambda x: np.max(x, initial=0.5), (M,)),
        (lambda x: np.max(x, axis=1), (Z,)), (lambda x: np.max(x, axis=0, initial=2.0), (Z,)),
        (lambda x, m: np.max(x, initial=-9.0, where=m), (M, B)), (lambda x: np.amax(x), (B,)),
    ],
    "min": [
        (lambda x: np.min(x), (M,)), (lambda x: x.min(0), (I,)), (lambda x: np.minimum.reduce(x, axis=1), (M,)),
        (lambda x: np.ptp(x, axis=0), (M,)),
    ],
    "any": [
        (lambda x: np.any(x), (B,)), (lambda x: x.any(1), (I,)),
        (lambda x: np.all(x > 0, axis=0, keepdims=True), (M,)), (lambda x: x.all(), (Z,)),
        (lambda x: np.logical_and.reduce(x), (B,)), (lambda x: np.logical_or.reduce(x), (I,)),
    ],
    "position": [
        (lambda x: np.argmax(x), (M,)), (lambda x: x.argmin(axis=1), (M,)), (lambda x: np.argmax(x, axis=0), (N,)),
        (lambda x: np.argmax(x, axis=0, keepdims=True), (M,)), (lambda x: np.argmin(x), (I,)),
    ],
    "running": [
        (lambda x: np.cumsum(x), (M,)), (lambda x: x.cumsum(axis=0), (I.astype(np.int16),)),
        (lambda x: np.cumprod(x, 1), (M,)), (lambda x: np.add.accumulate(x), (M,)),
        (lambda x: np.maximum.accumulate(x, axis=1), (M,)), (lambda x: np.minimum.accumulate(x), (V,)),
        (lambda x: np.logical_and.accumulate(x), (B,)), (lambda x: np.logical_or.accumulate(x, axis=1), (B,)),
    ],
    "mean": [
        (lambda x: np.mean(x), (M,)), (lambda x: x.mean(0), (I,)),
        (lambda x: np.mean(x, axis=1, keepdims=True), (F,)), (lambda x: np.mean(x), (C,)),
        (lambda x: np.mean(x, dtype=np.float32), (M,)), (lambda x, m: np.mean(x, where=m), (M, B)),
        (lambda x: np.average(x, axis=0), (M,)), (lambda x, w: np.average(x, axis=1, weights=w), (M, V[:4] ** 2)),
        (lambda x, w: np.average(x, weights=w), (M, M ** 2)), (lambda x: np.mean(x), (B,)),
    ],
    "var": [
        (lambda x: np.var(x), (M,)), (lambda x: x.std(0), (I,)), (lambda x: np.var(x, axis=1, ddof=1), (M,)),
        (lambda x: x.var(), (C,)), (lambda x: np.std(x, axis=1, keepdims=True, ddof=1), (M,)),
        (lambda x, m: np.var(x, where=m), (M, B)),
    ],
    "nan": [
        (lambda x: np.nansum(x), (N,)), (lambda x: np.nanmean(x, axis=1), (N,)),
        (lambda x: np.nanmax(x, axis=0), (M,)), (lambda x: np.nanmin(x), (N,)), (lambda x: np.nanstd(x), (N,)),
        (lambda x: np.nanvar(x, ddof=1), (N,)), (lambda x: np.nanprod(x), (N,)), (lambda x: np.nancumsum(x), (N,)),
        (lambda x: np.nanmax(x), (I,)), (lambda x: np.nan_to_num(x, nan=2.0), (N,)),
        (lambda x: np.nan_to_num(x / 0), (M,)), (lambda x: np.isnan(x), (I,)),
    ],
    "count": [
        (lambda x: np.count_nonzero(x), (I,)), (lambda x: np.count_nonzero(x, axis=1), (B,)),
    ],
    "reshape": [
        (lambda x: np.reshape(x, (4, 3)), (M,)), (lambda x: x.reshape(-1), (T,)),
        (lambda x: x.reshape(2, -1, 2), (T,)), (lambda x: x.reshape(x.shape[0], -1), (T,)),
        (lambda x: np.reshape(x, (4, 3), order="F"), (M,)), (lambda x: x.ravel(), (M,)),
        (lambda x: np.ravel(x, order="F"), (M,)), (lambda x: x.flatten(), (T,)), (lambda x: x.reshape((3, 0)), (Z,)),
        (lambda x, y: x.reshape(y.shape), (M, M.reshape(2, 6))),
    ],
    "axes": [
        (lambda x: x.T, (T,)), (lambda x: np.transpose(x, (1, 0, 2)), (T,)), (lambda x: x.transpose(2, 0, 1), (T,)),
        (lambda x: x.mT, (T,)), (lambda x: np.swapaxes(x, 0, -1), (T,)), (lambda x: np.moveaxis(x, 0, -1), (T,)),
        (lambda x: np.moveaxis(x, [0, 1], [-1, 0]), (T,)), (lambda x: np.rollaxis(x, 2), (T,)),
        (lambda x: np.rollaxis(x, 0, 3), (T,)),
    ],
    "ones": [
        (lambda x: np.squeeze(x), (ONE,)), (lambda x: x.squeeze(0), (ONE,)),
        (lambda x: np.expand_dims(x, (0, 2)), (M,)), (lambda x: np.atleast_1d(x), (np.float64(2),)),
        (lambda x: np.atleast_2d(x), (V,)), (lambda x: np.atleast_3d(x), (M,)),
        (lambda x: np.broadcast_to(x, (2, 3, 4)), (M,)), (lambda x, y: np.broadcast_arrays(x, y)[0], (ONE, M)),
        (lambda x, y: x + y, (ONE, M)), (lambda x: np.broadcast_to(x, (3, 4)), (ONE,)),
    ],
    "repeat": [
        (lambda x: np.repeat(x, 3), (M,)), (lambda x: x.repeat(2, axis=1), (M,)),
        (lambda x: np.repeat(x, [1, 0, 2], axis=0), (M,)), (lambda x: np.tile(x, 2), (M,)),
        (lambda x: np.tile(x, (2, 1, 3)), (M,)), (lambda x: np.tile(x, (2, 2)), (V,)),
    ],
    "flip": [
        (lambda x: np.flip(x), (T,)), (lambda x: np.flip(x, 1), (T,)), (lambda x: np.fliplr(x), (M,)),
        (lambda x: np.flipud(x), (M,)), *[(lambda x, k=k: np.rot90(x, k), (M,)) for k in range(-1, 4)],
        *[(lambda x, k=k: np.roll(x, k), (M,)) for k in (-13, -2, 0, 3, 40)],
        (lambda x: np.roll(x, (1, -2), axis=(0, 1)), (M,)), (lambda x: np.roll(x, 2, 1), (M,)),
        (lambda x, k: np.roll(x, k, 0), (M, np.int64(2))),
    ],
    "split": [
        (lambda x: np.split(x, 2, axis=1)[1], (M,)), (lambda x: np.split(x, [1, 3])[1], (V,)),
        (lambda x: np.array_split(x, 3)[2], (V,)), (lambda x: np.hsplit(x, 2)[0], (M,)),
        (lambda x: np.vsplit(x, 3)[2], (M,)), (lambda x: np.array_split(x, [2, 9])[2], (V,)),
    ],
    "join": [
        (lambda x, y: np.concatenate([x, y]), (M, I)), (lambda x, y: np.concatenate((x, y), axis=1), (M, F)),
        (lambda x: np.concatenate([x, np.ones((2, 4))]), (M,)), (lambda x, y: np.stack([x, y], axis=1), (M, I)),
        (lambda x, y: np.vstack([x, y]), (V, V)), (lambda x, y: np.hstack([x, y]), (V, V)),
        (lambda x, y: np.hstack([x, y]), (M, M)), (lambda x, y: np.dstack([x, y]), (M, M)),
        (lambda x, y: np.column_stack([x, y]), (V, V)), (lambda x: np.append(x, 3), (M,)),
        (lambda x, y: np.block([[x, y], [y, x]]), (M, M)), (lambda x: np.concatenate([x, x], axis=None), (M,)),
        (lambda x: np.array_equal(x, x), (M,)),
    ],
    "pad": [
        (lambda x: np.pad(x, 1), (M,)), (lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=5), (I,)),
        (lambda x: np.pad(x, (1, 2), constant_values=(3, 4)), (M,)),
        *[(lambda x, m=m: np.pad(x, ((2, 3), (1, 4)), mode=m), (M,)) for m in ("edge", "wrap", "reflect", "symmetric")],
        (lambda x: np.pad(x, 12, mode="reflect"), (V,)), (lambda x: np.pad(x, {1: (1, 2)}), (M,)),
    ],
    "diagonal": [
        (lambda x: np.diagonal(x), (M,)), (lambda x: np.diagonal(x, 1), (M,)), (lambda x: np.diagonal(x, -2), (M,)),
        (lambda x: np.diagonal(x, 1, 0, 2), (T,)), (lambda x: np.trace(x), (M,)),
        (lambda x: np.trace(x, -1), (I.astype(np.int8),)), (lambda x: np.diag(x), (V,)),
        (lambda x: np.diag(x, 2), (V,)), (lambda x: np.diag(x, -1), (V,)), (lambda x: np.diag(x), (M,)),
        (lambda x: np.tril(x), (M,)), (lambda x: np.triu(x, 1), (T,)), (lambda x: np.tril(x, -1), (S,)),
        (lambda x: np.diagflat(x), (M,)), (lambda x: np.diagonal(x, 9), (M,)),
    ],
    "where": [
        (lambda m, x, y: np.where(m, x, y), (B, M, I)), (lambda x: np.where(x > 0, x, 0), (F,)),
        (lambda m, x: np.where(m, 1, x), (B, ONE)), (lambda x: np.where(x, 1, 2), (I,)),
        (lambda x: np.select([x > 1, x > 0], [x, 2 * x], 5), (M,)), (lambda x: np.clip(x, -0.5, 0.5), (M,)),
        (lambda x: x.clip(0), (I,)), (lambda x: np.clip(x, None, 1), (F,)),
        (lambda x: np.clip(x, min=0, max=2), (I,)),
    ],
    "round": [
        (lambda x: np.round(x), (M,)), (lambda x: np.round(x, 2), (M * 10,)), (lambda x: x.round(-1), (I * 7,)),
        (lambda x: np.around(x, 1), (F,)), (lambda x: np.fix(x), (M * 3,)), (lambda x: np.sinc(x), (I,)),
        (lambda x: np.round(x, 1), (C,)),
    ],
    "take": [
        (lambda x, i: np.take(x, i), (M, P)), (lambda x, i: np.take(x, i, axis=0), (T[:, :1] * 1, P[1:] % 2)),
        (lambda x, i: x.take(i, 1), (T, P)), (lambda x: np.take(x, 2, axis=1), (M,)),
        (lambda x: np.take(x, [7, -9], mode="wrap"), (V,)), (lambda x: np.take(x, [7, -9], mode="clip"), (V,)),
        (lambda x, i: np.take_along_axis(x, i, 1), (M, np.argsort(M, 1)[:, :2])),
        (lambda x, i: np.take_along_axis(x, i, 0), (M, I[:2] % 3)),
        (lambda x, v: np.searchsorted(x, v), (np.sort(V), M)),
        (lambda x, v: np.searchsorted(x, v, side="right"), (np.sort(I.ravel()), I)),
        (lambda x: np.isin(x, [1, 2]), (I,)), (lambda x, p, f: np.interp(x, p, f), (M, np.sort(V), V)),
        (lambda x, p, f: np.interp(x, p, f), (M, V[:1], V[1:2])),
    ],
    "sort": [
        (lambda x: np.sort(x), (M,)), (lambda x: np.sort(x, axis=0), (I,)), (lambda x: np.sort(x, axis=None), (N,)),
        (lambda x: x.argsort(kind="stable"), (M,)), (lambda x: np.argsort(x, axis=0, kind="stable"), (I,)),
        (lambda x: np.median(x), (M,)), (lambda x: np.median(x, axis=1), (M,)), (lambda x: np.median(x), (V,)),
        (lambda x: np.median(x, axis=0, keepdims=True), (I,)), (lambda x: np.median(x), (N,)),
        *[(lambda x, m=m: np.quantile(x, [0.1, 0.77], axis=0, method=m), (M,)) for m in QUANTILES],
        (lambda x: np.percentile(x, 30), (M,)), (lambda x: np.percentile(x, [30, 60], axis=(0, 2)), (T,)),
        (lambda x: np.quantile(x, 0.3, keepdims=True), (M,)),
    ],
    "diff": [
        (lambda x: np.diff(x), (M,)), (lambda x: np.diff(x, n=2, axis=0), (T.transpose(1, 0, 2),)),
        (lambda x: np.diff(x, prepend=0), (V,)), (lambda x: np.diff(x), (B,)), (lambda x: np.ediff1d(x), (M,)),
    ],
    "compare": [
        (lambda x, y: np.isclose(x, y), (M, M + 1e-9)), (lambda x, y: np.allclose(x, y), (M, M + 1e-3)),
        (lambda x: np.isclose(x, x, equal_nan=True), (N,)), (lambda x: np.iscomplexobj(x), (M,)),
        (lambda x: np.isreal(x), (C,)), (lambda x: np.real(x), (C,)), (lambda x: x.imag, (C,)),
        (lambda x: np.imag(x), (M,)), (lambda x: np.angle(x), (C,)), (lambda x: np.conj(x), (C,)),
    ],
    "matmul": [
        (lambda x, y: x @ y, (M, S)), (lambda x, y: x @ y, (T, S)), (lambda x, y: x @ y, (M, T.transpose(0, 2, 1))),
        (lambda x, y: x @ y, (T, T.transpose(0, 2, 1))), (lambda x, y: x @ y, (V, V)),
        (lambda x, y: np.matmul(x, y), (M, V[:4])), (lambda x, y: x @ y, (V[:3], M)), (lambda x, y: x @ y, (I, F.T)),
        (lambda x, y: x @ y, (T[:1], T.transpose(0, 2, 1))), (lambda x: x @ np.ones((4, 2)), (M,)),
        (lambda x, y: np.vecdot(x, y), (C, M)), (lambda x, y: x @ y, (I.astype(np.int8), I.T.astype(np.int8))),
        (lambda x, y: x @ y, (V[:3], T)),
    ],
    "dot": [
        (lambda x, y: np.dot(x, y), (M, T.transpose(0, 2, 1))), (lambda x, y: x.dot(y), (V, V)),
        (lambda x: np.dot(x, 3), (M,)), (lambda x, y: np.dot(x, y), (M, V[:4])),
        (lambda x, y: np.inner(x, y), (M, T)), (lambda x, y: np.vdot(x, y), (C, C)),
        (lambda x, y: np.outer(x, y), (V, M)), (lambda x, y: np.kron(x, y), (M, S)),
        (lambda x, y: np.tensordot(x, y), (T, T[0])),
        (lambda x, y: np.tensordot(x, y, axes=([0, 2], [1, 0])), (T, RNG.normal(size=(4, 2, 5)))),
        (lambda x, y: np.tensordot(x, y, 0), (V, V)), (lambda x, y: np.cross(x, y), (M[:, :3], S[:3, :3])),
        (lambda x, y: np.linalg.multi_dot([x, y, y]), (M, S)), (lambda x: np.linalg.matrix_power(x, 5), (S,)),
        (lambda x: np.polyval([1.0, 2.0, 3.0], x), (M,)), (lambda x, y: np.convolve(x, y), (V, V[:3])),
        (lambda x, y: np.convolve(x, y, mode="same"), (V, V[:2])),
        (lambda x, y: np.convolve(x, y, mode="valid"), (V[:2], V)),
        (lambda x, y: np.convolve(x, y, mode="same"), (V[:3], V)), (lambda x, y: np.convolve(x, y), (C[0], V)),
        (lambda x, y: np.convolve(x, y), (I[0].astype(np.int8), I[1].astype(np.int8))),
        (lambda x, y: np.convolve(x, y, mode="same"), (I[0] > 1, I[1] > 0)),
    ],
    "einsum": [
        *[(lambda *xs, s=s: np.einsum(s, *xs), xs) for s, xs in EINSUMS],
        (lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [2, 0]), (M, S)),
        (lambda x, y: np.einsum(x, [0, 1], y, [1, 2]), (M, S)),
    ],
    "norm": [
        (lambda x: np.linalg.norm(x), (M,)), (lambda x: np.linalg.norm(x, axis=1), (M,)),
        (lambda x: np.linalg.norm(x, 1, axis=0), (M,)), (lambda x: np.linalg.norm(x, np.inf), (V,)),
        (lambda x: np.linalg.norm(x, -np.inf), (V,)), (lambda x: np.linalg.norm(x, 3), (V,)),
        (lambda x: np.linalg.norm(x, "fro"), (C,)), (lambda x: np.linalg.norm(x, 1), (M,)),
        (lambda x: np.linalg.norm(x, np.inf, axis=(0, 1), keepdims=True), (M,)),
        (lambda x: np.linalg.norm(x, axis=(1, 2)), (T,)), (lambda x: np.linalg.norm(x), (I,)),
        (lambda x: np.linalg.norm(x, 0), (V,)), (lambda x: np.linalg.norm(x), (F,)),
    ],
    "like": [
        (lambda x: np.zeros_like(x), (I,)), (lambda x: np.ones_like(x, dtype=np.float32), (M,)),
        (lambda x: np.full_like(x, 7), (F,)), (lambda x: np.full_like(x, x[0]), (M,)), (lambda x: np.copy(x), (M,)),
        (lambda x: np.zeros((2, 3), like=x), (M,)), (lambda x: np.arange(5, like=x), (M,)),
        (lambda x: np.eye(3, 4, 1, like=x), (M,)), (lambda x: np.full((2, 2), 3, like=x), (M,)),
        (lambda x: np.ones(3, dtype=np.int32, like=x), (M,)), (lambda x: np.tri(3, like=x), (M,)),
        (lambda x: x.astype(np.int32), (M,)), (lambda x: x.astype(bool), (I,)),
        (lambda x, y: np.meshgrid(x, y)[0], (V, V[:3])),
        (lambda x, y: np.meshgrid(x, y, indexing="ij")[1], (V, V[:3])), (lambda x: np.arange(1, 9, 3, like=x), (M,)),
        (lambda x: np.arange(5, 0, -2, like=x), (M,)), (lambda x: np.arange(0.0, 1.0, 0.3, like=x), (M,)),
        (lambda x: np.identity(3, like=x), (M,)), (lambda x: np.linspace(x[0], x[1], 7), (V,)),
        (lambda x: np.linspace(x[0], 3, 4, endpoint=False), (V,)), (lambda x: np.array(x, like=x), (M,)),
    ],
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["plain", "symbolic"])
@pytest.mark.parametrize("name, number", [(name, k) for name, cases in CASES.items() for k in range(len(cases))])
def test_a_function_is_numpys(name, number, symbolic):
    f, arrays = CASES[name][number]
    with np.errstate(all="ignore"):
        expected = np.asarray(f(*[np.asarray(a) for a in arrays]))
    assert_same(run(f, *arrays, symbolic=symbolic), expected)


def assert_same(got, expected):
    rtol = 3e-3 if expected.dtype == np.float16 else 1e-5 if expected.dtype in (np.float32, np.complex64) else 1e-12
    same(got, expected, rtol if expected.dtype.kind in "fc" else 0)


def doubled(x):
    """Each element twice along every axis of at least two: equal sizes stay equal, and what was sorted stays sorted."""
    for axis, n in enumerate(x.shape):
        x = np.repeat(x, 2, axis=axis) if n > 1 else x
    return x


@pytest.mark.parametrize("name", CASES)
def test_a_trace_serves_other_sizes_that_its_guards_admit(name):
    served = 0
    for f, arrays in CASES[name]:
        t = Traced(f, arrays, symbolic=True)
        larger = [doubled(a) for a in t.arrays]
        sizes = {f"d{k}_{axis}": n for k, a in enumerate(larger) for axis, n in enumerate(a.shape)}
        if all(g.constraint.holds(sizes) for g in t.scope.guards):
            with np.errstate(all="ignore"):
                expected = np.asarray(f(*larger))
            assert_same(t(*larger), expected)
            served += 1
    assert served >= len(CASES[name]) // 4, f"only {served} of {len(CASES[name])} traces were general"


DTYPES = st.sampled_from(["?", "i1", "u2", "i4", "i8", "f4", "f8", "c16"])
REDUCTIONS = [np.sum, np.prod, np.mean, np.max, np.min, np.any, np.all, np.var, np.count_nonzero]


@st.composite
def array_and_axes(draw):
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    x = np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape) * 2
    axes = draw(st.none() | st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda a: a % len(shape)).map(tuple)
                if shape else st.none())
    return np.asarray(x).astype(draw(DTYPES)), axes


@examples(150)
@given(array_and_axes(), st.sampled_from(REDUCTIONS), st.booleans(), st.booleans())
def test_reductions_over_any_axes(case, reduction, keepdims, symbolic):
    x, axes = case
    if x.dtype.kind == "c" and reduction in (np.max, np.min):
        return

    def f(x):
        return reduction(x, axis=axes, keepdims=keepdims)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.asarray(f(x))
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error).split(" which")[0]):
            run(f, x, symbolic=symbolic)
        return
    assert_same(run(f, x, symbolic=symbolic), expected)


@examples(60)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.permutations(range(4)), st.booleans())
def test_shape_functions_compose(shape, order, symbolic):
    x = np.arange(np.prod(shape)).reshape(shape)
    perm = [a for a in order if a < len(shape)]

    def f(x):
        y = np.transpose(x, perm).reshape(-1, x.shape[perm[-1]])
        z = np.moveaxis(y[..., None], 0, -1)
        return np.concatenate([np.flip(z, 0), np.roll(z, 1, 0)], axis=1).swapaxes(0, 2).ravel()
    same(run(f, x, symbolic=symbolic), f(x))


@examples(60)
@given(st.data())
def test_matmul_broadcasts_its_stacks(data):
    sizes = {"b": 2, "m": 3, "k": 4, "n": 2}
    left = data.draw(st.sampled_from(["k", "mk", "bmk", "1mk", "bbmk", "b1mk"]))
    right = data.draw(st.sampled_from(["k", "kn", "bkn", "1kn", "b1kn"]))
    x, y = (np.random.default_rng(0).normal(size=[sizes.get(c, 1) for c in s]) for s in (left, right))
    same(run(lambda x, y: x @ y, x, y, symbolic=data.draw(st.booleans())), x @ y, 1e-12)


MAKE_ARRAYS = {  # of all their arguments, so that Python numbers have dtypes of their own
    "dot": lambda x, s: np.dot(s, x), "inner": lambda x, s: np.inner(x, s), "einsum": lambda x, s: np.einsum(",ij->ij", s, x),
    "tensordot": lambda x, s: np.tensordot(x, s, 0), "stack": lambda x, s: np.stack([x[0, 0], s]),
    "polyval": lambda x, s: np.polyval([s, 1, s], x), "linspace": lambda x, s: np.linspace(x[0, 0], s, 4),
    "append": lambda x, s: np.append(x, s), "outer": lambda x, s: np.outer(x, s)}


@pytest.mark.parametrize("name", MAKE_ARRAYS)
@pytest.mark.parametrize("x", [I.astype(np.int8), F, H, C.astype(np.complex64)], ids=lambda x: str(x.dtype))
@pytest.mark.parametrize("number", [2, 2.5, True, 1 - 2j])
def test_numbers_beside_arrays_have_the_dtypes_that_numpy_gives_them(name, x, number):
    f = MAKE_ARRAYS[name]
    expected = f(x, number)
    for found in (lw.jit(lambda x: f(x, number))(x), lw.jit(f)(x, number)):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5 if x.dtype != np.float16 else 1e-2)


@pytest.mark.parametrize("widths", [(4, 5, 6, 7), ((3, 4, 5), (0, 1, 2)), ((1, 2, 3),), ((1,), (2, 3)), ((1, 2),) * 3])
def test_widths_that_do_not_broadcast_to_pairs_are_refused(widths):
    with pytest.raises(ValueError, match=r"broadcast|inhomogeneous"):
        np.pad(M, widths)
    for f in (lambda x: np.pad(x, widths), lambda x: np.pad(x, 1, constant_values=widths)):
        with pytest.raises(ValueError, match="does not fit an array with 2 axes"):
            lw.jit(f)(M)


def test_what_only_vectors_have_is_refused_for_matrices():
    with pytest.raises(ValueError, match=r"linalg\.outer takes vectors"):
        lw.jit(np.linalg.outer)(M, V)
    with pytest.raises(TypeError, match=r"mode='mean', stat_length=1"):
        lw.jit(lambda x: np.pad(x, 1, mode="mean", stat_length=1))(M)


AS_NUMPY = {  # where a simpler formula would differ: other dtypes, infinite points, numbers out of range
    "an element of quantile": lambda x: [np.quantile(x, 0.4, method=m) for m in ("lower", "higher", "nearest")],
    "an element of percentile": lambda x: np.percentile(x, [30, 60], axis=0, method="lower"),
    "levels that are integers": lambda x: (np.quantile(x, 1), np.quantile(x, [0, 1], axis=1), np.median(x)),
    "points at infinity": lambda x: np.interp(x, [-np.inf, 0, np.inf], [10.0, 3.0, 3.0]),
    "points at both ends": lambda x: np.interp(x, [-np.inf, np.inf], [10.0, 10.0]),
    "bounds that no integer has": lambda x: (np.clip(x, -2**40, 2**70), np.clip(x, None, 2**40), np.clip(x, 1, 2**70)),
    "numbers beside floats": lambda x: np.isclose(x, 0.1, rtol=0, atol=0) | np.isclose(x, 2) | np.isclose(1, x),
    "a mean that is known": lambda x: np.var(x, axis=1, mean=np.mean(x, axis=1, keepdims=True)),
    "means at other dtypes": lambda x: [f(x, axis=1, dtype=d) for f in (np.mean, np.var) for d in ("f4", "c8")],
    "means of whole numbers": lambda x: (np.mean(x, 1, dtype=np.int64), np.mean(np.abs(x), dtype=np.uint8)),
    "initial values at the dtype of the sum": lambda x: (np.prod(np.sign(x) * 2, 0, initial=2.5), np.max(x, initial=2.5)),
    "running truths": lambda x: (np.cumsum(x, 1, dtype=bool), np.nancumprod(x, 0, dtype=bool)),
    "truths from a first one": lambda x: (np.logical_or.reduce(x, initial=2.5), np.logical_and.reduce(x, 1, initial=0)),
    "diagonals of the last axes": lambda x: np.linalg.diagonal(np.stack([x, -x]), offset=1),
    "norms of nothing": lambda x: [np.linalg.norm(x[:0, :0], p, (0, 1)) for p in (1, 2, np.inf)]
                                  + [np.linalg.norm(x[:, :0], np.inf, 1)],
    "products of truths": lambda x: (np.vdot(x > 0, x > 1), np.vecdot(x > 0, x < 2)),
}


@pytest.mark.parametrize("name", AS_NUMPY)
@pytest.mark.parametrize("x", [I.astype(np.int8), I, F, np.float32([[0.1, 2.0]])], ids=["i1", "i8", "f4", "tenth"])
def test_special_cases_are_numpys(name, x):
    f = AS_NUMPY[name]
    expected, found = f(x), lw.jit(f)(x)
    many = isinstance(expected, (list, tuple))
    for e, y in zip(expected, found, strict=True) if many else [(expected, found)]:
        assert y.dtype == e.dtype
        np.testing.assert_allclose(y, e, rtol=1e-6)


@pytest.mark.parametrize(("f", "error"), [
    (lambda x: np.take_along_axis(x, x > 0, 1), IndexError), (lambda x: np.take_along_axis(x, np.argsort(x), None), ValueError),
    (lambda x: np.quantile(x, 1.5), ValueError), (lambda x: np.percentile(x, [50, 101]), ValueError),
    (lambda x: np.select([x], [x]), TypeError), (lambda x: np.rollaxis(x, 0, -5), np.exceptions.AxisError),
    (lambda x: np.var(x, ddof=1, correction=1), ValueError), (lambda x: np.nanvar(x, dtype=int), TypeError),
    (lambda x: np.sum(x, where=np.ones((1, 3, 4), bool)), ValueError), (lambda x: x[[0, 1], [0, 1, 2]], IndexError),
    (lambda x: np.max(x.astype(np.uint8), initial=-1), OverflowError), (lambda x: np.add.accumulate(np.sum(x)), TypeError),
    (lambda x: np.stack([x, x], dtype=int), TypeError),
    (lambda x: np.concatenate([x, x], dtype="f4", casting="safe"), TypeError),
    (lambda x: np.hstack([x, x], dtype=complex, casting="equiv"), TypeError), (lambda x: np.clip(x, 1, 2, min=0), ValueError),
    (lambda x: np.convolve(x[0], x[0, :0]), ValueError), (lambda x: np.isin(x, x, kind="quicksort"), ValueError),
    (lambda x: np.pad(x, "1"), TypeError), (lambda x: np.pad(x, 1.5), TypeError),
    (lambda x: np.linalg.norm(x[0], "fro"), ValueError), (lambda x: np.linalg.multi_dot([x]), ValueError)])
def test_what_numpy_refuses_is_refused(f, error):
    for g in (f, lw.jit(f)):
        with pytest.raises(error):
            g(M)


@pytest.mark.parametrize("f", [np.isposinf, np.isneginf])
def test_infinities_have_no_out(f):
    """It would be left as it is."""
    with pytest.raises(TypeError, match="out="):
        lw.jit(lambda x: f(x, np.zeros(3, bool)))(np.ones(3))


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"])
@pytest.mark.parametrize("x", [N, np.where(I > 3, np.nan, C), I, np.full((3, 4), np.nan)], ids=["gaps", "complex", "i8", "all"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_keywords_of_reductions_without_nan(name, x):
    f, is_moment, is_extreme = getattr(np, name), name in ("nanmean", "nanvar", "nanstd"), name in ("nanmax", "nanmin")
    if is_extreme and x.dtype.kind == "c":
        return  # without an order
    options = [{}, {"where": B}] if is_moment else [{"initial": 3}, {"initial": 2, "where": B}]
    options += [{"correction": 0.5}, {"ddof": 9, "where": B}] if name in ("nanvar", "nanstd") else []
    options += [{"initial": np.nan}] if is_extreme and x.dtype.kind == "f" else []
    for kept in options:
        for axis in (None, 1):
            expected, found = f(x, axis, **kept), lw.jit(lambda x: f(x, axis, **kept))(x)  # noqa: B023
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_einsum_makes_no_larger_product_than_it_must():
    """Of two matrices and a vector, from the left: two products with the vector."""
    a, b, v = np.ones((5, 4, 3)), np.ones((5, 3, 2)), np.ones((5, 2))
    graph = lw.make_graph(lambda a, b, v: np.einsum("bij,bjk,bk->bi", a, b, v))(a, b, v)
    assert [n.outputs[0].type.rank for n in graph.nodes if n.op.name == "dot_general"] == [2, 2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_the_dtype_of_quantiles_is_that_of_elements_and_levels(dtype):
    x = (np.random.default_rng(0).normal(size=(4, 6)) * 3).astype(dtype)
    for level in (0.25, 1, [0.25, 0.5], np.array([0.25], np.float32), np.float32(0.5)):
        for method in QUANTILES:
            def both(x, q=level, how=method):
                return np.quantile(x, q, axis=1, method=how), np.percentile(x, np.multiply(q, 100), axis=1, method=how)

            for a, b in zip(both(x), lw.jit(both)(x), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(b, a, rtol=5e-3 if dtype == np.float16 else 1e-5, atol=1e-6)
    large = np.array([65504.0, 65504.0], np.float16)
    assert lw.jit(np.median)(large) == np.median(large) == 65504
