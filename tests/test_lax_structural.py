"""Shapes, reductions, sorts, products and indexing by JAX's names: NumPy says the values, differences the slopes, and JAX both
where it is installed."""

import numpy as np
import pytest
import scipy.special as scs

import loopwright as lw
from loopwright import lax

RNG = np.random.default_rng(0)
A, B, V = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 5)), RNG.standard_normal(6)
T, U = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 4, 3))
BITS = RNG.integers(-50, 50, (3, 4))
TIED = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [4.0, -1.0, 2.0, 4.0]])
ELEMENT = lax.GatherDimensionNumbers((), (0,), (0,))
CASES = {  # what is called, of the names of `lax`; its operands; NumPy's value
    "broadcast": (lambda m, x: m.broadcast(x, (2, 1)), (V,), lambda x: np.broadcast_to(x, (2, 1, 6))),
    "broadcast_in_dim": (lambda m, x: m.broadcast_in_dim(x, (6, 2), (0,)), (V,), lambda x: np.repeat(x[:, None], 2, 1)),
    "broadcast_like": (lambda m, x, y: m.broadcast_like(x, y), (A[0], A), lambda x, y: np.broadcast_to(x, y.shape)),
    "broadcast_to_rank": (lambda m, x: m.broadcast_to_rank(x, 3), (V,), lambda x: x[None, None]),
    "collapse": (lambda m, x: m.collapse(x, 1, 3), (T,), lambda x: x.reshape(2, 12)),
    "reshape": (lambda m, x: m.reshape(x, (4, 3), (1, 0)), (A,), lambda x: x.T.reshape(4, 3)),
    "expand_dims": (lambda m, x: m.expand_dims(x, (0, 2)), (A,), lambda x: x[None, :, None]),
    "squeeze": (lambda m, x: m.squeeze(m.expand_dims(x, (0, 2)), (0, 2)), (A,), lambda x: x),
    "transpose": (lambda m, x: m.transpose(x, (2, 0, 1)), (T,), lambda x: x.transpose(2, 0, 1)),
    "rev": (lambda m, x: m.rev(x, (0, 2)), (T,), lambda x: x[::-1, :, ::-1]),
    "concatenate": (lambda m, x, y: m.concatenate([x, y, x], 1), (A, A[:, :2]), lambda x, y: np.concatenate([x, y, x], 1)),
    "stack": (lambda m, x, y: m.stack([x, y], 1), (A, 2 * A), lambda x, y: np.stack([x, y], 1)),
    "unstack": (lambda m, x: m.unstack(x, 1)[2], (A,), lambda x: x[:, 2]),
    "split": (lambda m, x: m.split(x, (1, 3), 1)[1], (A,), lambda x: x[:, 1:]),
    "tile": (lambda m, x: m.tile(x, (2, 3)), (A,), lambda x: np.tile(x, (2, 3))),
    "slice": (lambda m, x: m.slice(x, (1, 0), (3, 4), (1, 2)), (A,), lambda x: x[1:3, :4:2]),
    "slice_in_dim": (lambda m, x: m.slice_in_dim(x, -3, None, 2, 1), (A,), lambda x: x[:, -3::2]),
    "index_in_dim": (lambda m, x: m.index_in_dim(x, -1, 1), (A,), lambda x: x[:, -1:]),
    "pad": (lambda m, x: m.pad(x, 0.5, ((1, 2, 1), (-1, 1, 0))), (A,), lambda x: _padded(x)),
    "full_like": (lambda m, x: m.full_like(x, 3.5) * x, (A,), lambda x: 3.5 * x),
    "sum": (lambda m, x: m.reduce_sum(x, (0, 2)), (T,), lambda x: x.sum((0, 2))),
    "prod": (lambda m, x: m.reduce_prod(x, (1,)), (A,), lambda x: x.prod(1)),
    "max": (lambda m, x: m.reduce_max(x, (1,)), (A,), lambda x: x.max(1)),
    "min": (lambda m, x: m.reduce_min(x, (0, 1)), (A,), lambda x: x.min()),
    "and": (lambda m, x: m.reduce_and(x, (1,)), (BITS,), lambda x: np.bitwise_and.reduce(x, 1)),
    "or": (lambda m, x: m.reduce_or(x, (0,)), (BITS,), lambda x: np.bitwise_or.reduce(x, 0)),
    "xor": (lambda m, x: m.reduce_xor(x, (0, 1)), (BITS,), lambda x: np.bitwise_xor.reduce(x, (0, 1))),
    "all": (lambda m, x: m.reduce_and(x > 0, (1,)), (BITS,), lambda x: (x > 0).all(1)),
    "parity": (lambda m, x: m.reduce_xor(x > 0, (1,)), (BITS,), lambda x: np.bitwise_xor.reduce(x > 0, 1)),
    "argmax": (lambda m, x: m.argmax(x, 1, np.int32), (TIED,), lambda x: x.argmax(1).astype(np.int32)),
    "argmin": (lambda m, x: m.argmin(x, 0, np.int8), (TIED,), lambda x: x.argmin(0).astype(np.int8)),
    "reduce": (lambda m, x: m.reduce(x, 1.0, m.mul, (0, 2)), (T,), lambda x: x.prod((0, 2))),
    "cumsum": (lambda m, x: m.cumsum(x, 1), (A,), lambda x: x.cumsum(1)),
    "cumsum_int8": (lambda m, x: m.cumsum(m.convert_element_type(x, np.int8), 1, True), (BITS,),
                    lambda x: x[:, ::-1].astype(np.int8).cumsum(1, dtype=np.int8)[:, ::-1]),
    "cumprod": (lambda m, x: m.cumprod(x, 0, reverse=True), (A,), lambda x: x[::-1].cumprod(0)[::-1]),
    "cummax": (lambda m, x: m.cummax(x, 1), (A,), lambda x: np.maximum.accumulate(x, 1)),
    "cummin": (lambda m, x: m.cummin(x, 1, reverse=True), (A,), lambda x: np.minimum.accumulate(x[:, ::-1], 1)[:, ::-1]),
    "cumlogsumexp": (lambda m, x: m.cumlogsumexp(x, 1), (A,), lambda x: np.logaddexp.accumulate(x, 1)),
    "sort": (lambda m, x: m.sort(x, 0), (A,), lambda x: np.sort(x, 0)),
    "sort_two": (lambda m, x, y: m.sort((x, y), num_keys=2)[1], (TIED, A), lambda x, y: _by_two_keys(x, y)),
    "sort_key_val": (lambda m, x, y: m.sort_key_val(x, y, 1)[1], (TIED, A),
                     lambda x, y: np.take_along_axis(y, np.argsort(x, 1, kind="stable"), 1)),
    "top_k": (lambda m, x: m.top_k(x, 2)[0], (A,), lambda x: -np.sort(-x, 1)[:, :2]),
    "top_k_places": (lambda m, x: m.top_k(x, 3)[1], (TIED,),
                     lambda x: np.argsort(-x, 1, kind="stable")[:, :3].astype(np.int32)),
    "approx_max_k": (lambda m, x: m.approx_max_k(x, 2)[0], (A,), lambda x: -np.sort(-x, 1)[:, :2]),
    "approx_min_k": (lambda m, x: m.approx_min_k(x, 2)[0], (A,), lambda x: np.sort(x, 1)[:, :2]),
    "dot": (lambda m, x, y: m.dot(x, y), (A, B), lambda x, y: x @ y),
    "dot_vector": (lambda m, x, y: m.dot(x, y), (A[0], B), lambda x, y: x @ y),
    "dot_general": (lambda m, x, y: m.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))), (T, U),
                    lambda x, y: np.einsum("bij,bjk->bik", x, y)),
    "dot_crossed": (lambda m, x, y: m.dot_general(x, y, (((1, 2), (2, 1)), ((), ()))), (T, U),
                    lambda x, y: np.einsum("bij,cji->bc", x, y)),
    "batch_matmul": (lambda m, x, y: m.batch_matmul(x, y), (T, U), lambda x, y: x @ y),
    "ragged_dot": (lambda m, x, y: m.ragged_dot(x, y, np.array([1, 2])), (A, RNG.standard_normal((2, 4, 5))),
                   lambda x, y: np.concatenate([x[:1] @ y[0], x[1:] @ y[1]])),
    "dynamic_slice": (lambda m, x: m.dynamic_slice(x, (1, 9), (2, 3)), (A,), lambda x: x[1:3, 1:4]),
    "dynamic_slice_in_dim": (lambda m, x: m.dynamic_slice_in_dim(x, -2, 2, 1), (A,), lambda x: x[:, -2:]),
    "dynamic_index_in_dim": (lambda m, x: m.dynamic_index_in_dim(x, 7, 0, False), (A,), lambda x: x[2]),
    "dynamic_update_slice": (lambda m, x, y: m.dynamic_update_slice(x, y, (1, 1)), (A, B[:2, :2]), lambda x, y: _updated(x, y)),
    "dynamic_update_slice_in_dim": (lambda m, x, y: m.dynamic_update_slice_in_dim(x, y, 5, 0), (A, A[:2] * 2),
                                    lambda x, y: np.concatenate([x[:1], y])),
    "dynamic_update_index_in_dim": (lambda m, x, y: m.dynamic_update_index_in_dim(x, y, 1, 1), (A, A[:, 0] * 2),
                                    lambda x, y: np.concatenate([x[:, :1], y[:, None], x[:, 2:]], 1)),
    "index_take": (lambda m, x: m.index_take(x, (np.array([0, 2, -1]), np.array([3, 0, 5])), (0, 1)), (A,),
                   lambda x: x[[0, 2, 2], [3, 0, 1]]),
}


def _padded(x):
    out = np.full((8, 4), 0.5)
    out[1:6:2, :3] = x[:, 1:]
    return out


def _by_two_keys(x, y):
    return np.stack([b[np.lexsort((b, a))] for a, b in zip(x, y, strict=True)])


def _updated(x, y):
    out = x.copy()
    out[1:, 1:3] = y
    return out


def along(f, args, directions, h=1e-6):
    """The derivative of f by differences."""
    ahead, behind = ([a + s * h * d for a, d in zip(args, directions, strict=True)] for s in (1, -1))
    return (f(*ahead) - f(*behind)) / (2 * h)


@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes(name):
    call, args, want = CASES[name]
    expected = np.asarray(want(*args))

    def f(*xs):
        return call(lax, *xs)
    for g in (f, lw.jit(f)):
        got = g(*args)
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    batched = tuple([np.stack([x, x * 2, x * 3]) for x in args])
    np.testing.assert_allclose(lw.vmap(f)(*batched), np.stack([f(*[b[k] for b in batched]) for k in range(3)]),
                               rtol=1e-12, atol=1e-12)
    if any(a.dtype.kind != "f" for a in args) or expected.dtype.kind != "f":
        return
    directions = tuple([np.cos(np.arange(a.size)).reshape(a.shape) for a in args])
    if name not in ("sort_two", "sort_key_val"):  # whose order jumps at ties
        tangent = lw.jvp(f, args, directions)[1]
        np.testing.assert_allclose(tangent, along(f, args, directions), rtol=1e-6, atol=1e-8)
        weight = np.sin(np.arange(expected.size)).reshape(expected.shape)
        slopes = lw.jit(lw.grad(lambda x: (f(*x) * weight).sum()))(args)
        inner = sum([(s * d).sum() for s, d in zip(slopes, directions, strict=True)])
        np.testing.assert_allclose(inner, (tangent * weight).sum(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_jax(name):
    jax = pytest.importorskip("jax", reason="compares with jax.lax where that is installed")
    call, args, _ = CASES[name]
    with jax.enable_x64(True):
        want = np.asarray(call(jax.lax, *map(jax.numpy.asarray, args)))
    got = call(lax, *args)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


WINDOWS = {  # gather: array, indices, numbers (offset, collapsed, index axes, axes in step), sizes; the scatters take the same
    "rows": ((5, 3), [[2], [0], [9]], ((1,), (0,), (0,), (), ()), (1, 3)),
    "windows": ((5, 6), [[[1, 2], [4, 5]]], ((1, 3), (), (0, 1), (), ()), (2, 3)),
    "front": ((5, 6), [[2], [1]], ((0, 1), (), (1,), (), ()), (5, 2)),
    "part": ((5, 6), [[2], [1]], ((1,), (1,), (1,), (), ()), (3, 1)),
    "elements": ((4, 5), [[[1, 2], [3, 4], [-1, 0]]], ((), (0, 1), (1, 0), (), ()), (1, 1)),
    "in step": ((2, 5, 3), [[[1], [2]], [[3], [7]]], ((2,), (1,), (1,), (0,), (0,)), (1, 1, 3)),
}


def gathered(x, indices, numbers, sizes, mode):
    """By its definition, one element after another."""
    how = lax.GatherDimensionNumbers(*numbers)
    batch = indices.shape[:-1]
    kept = [a for a in range(x.ndim) if a not in how.collapsed_slice_dims and a not in how.operand_batching_dims]
    rank = len(batch) + len(kept)
    others = [k for k in range(rank) if k not in how.offset_dims]
    shape = [0] * rank
    for k, n in zip(others, batch, strict=True):
        shape[k] = n
    for k, a in zip(how.offset_dims, kept, strict=True):
        shape[k] = sizes[a]
    out, places = np.full(shape, np.nan), np.full((*shape, x.ndim), -1)
    for at in np.ndindex(*shape):
        g = tuple([at[k] for k in others])
        start = [0] * x.ndim
        for k, a in enumerate(how.start_index_map):
            start[a] = indices[g][k]
        inside = all(0 <= s <= n - size for s, n, size in zip(start, x.shape, sizes, strict=True))
        if mode == "fill" and not inside:
            continue
        start = [min(max(s, 0), n - size) for s, n, size in zip(start, x.shape, sizes, strict=True)]
        for a, b in zip(how.operand_batching_dims, how.start_indices_batching_dims, strict=True):
            start[a] = g[b]
        for k, a in zip(how.offset_dims, kept, strict=True):
            start[a] += at[k]
        out[at], places[at] = x[tuple(start)], start
    return out, places


@pytest.mark.parametrize("mode", ["fill", "clip"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, mode):
    shape, indices, numbers, sizes = WINDOWS[name]
    x, indices = RNG.standard_normal(shape), np.array(indices)
    want, places = gathered(x, indices, numbers, sizes, mode)

    def f(x, indices):
        return lax.gather(x, indices, lax.GatherDimensionNumbers(*numbers), sizes, mode=mode)
    for g in (f, lw.jit(f)):
        np.testing.assert_array_equal(g(x, indices), want)
    np.testing.assert_array_equal(lw.vmap(f, (0, None))(np.stack([x, 2 * x]), indices)[1], 2 * want)
    np.testing.assert_array_equal(lw.vmap(f, (None, 0))(x, np.stack([indices, indices]))[1], want)
    weight = np.cos(np.arange(want.size)).reshape(want.shape)
    slope, added = np.zeros(shape), x.copy()
    for at in np.ndindex(*want.shape):
        if (places[at] >= 0).all():
            slope[tuple(places[at])] += weight[at]
            added[tuple(places[at])] += weight[at]
    np.testing.assert_allclose(lw.jit(lw.grad(lambda x: (np.nan_to_num(f(x, indices)) * weight).sum()))(x), slope, atol=1e-14)
    how = lax.ScatterDimensionNumbers(*numbers)

    def g(x, indices, weight):
        return lax.scatter_add(x, indices, weight, how, mode=mode)
    for add in (g, lw.jit(g)):
        np.testing.assert_allclose(add(x, indices, weight), added, atol=1e-14)
    np.testing.assert_allclose(lax.scatter_sub(x, indices, -weight, how, mode=mode), added, atol=1e-14)
    touched, quarter = slope != 0, np.full(want.shape, 0.25)
    for write, value in ((lax.scatter, quarter.flat[0] if want.size else 0), (lax.scatter_max, np.maximum(x, 0.25)),
                         (lax.scatter_min, np.minimum(x, 0.25))):
        np.testing.assert_array_equal(write(x, indices, quarter, how, mode=mode), np.where(touched, value, x))
    times = lax.scatter_mul(x, indices, quarter, how, mode=mode)
    assert (times[touched] != x[touched]).all() and np.array_equal(times[~touched], x[~touched])


@pytest.mark.parametrize("mode", ["fill", "clip"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_jax(name, mode):
    jax = pytest.importorskip("jax", reason="compares with jax.lax where that is installed")
    shape, indices, numbers, sizes = WINDOWS[name]
    x, indices = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.array(indices, np.int32)
    want = jax.lax.gather(x, indices, jax.lax.GatherDimensionNumbers(*numbers), sizes, mode=mode)
    np.testing.assert_array_equal(lax.gather(x, indices, lax.GatherDimensionNumbers(*numbers), sizes, mode=mode), want)
    updates = np.arange(want.size, dtype=np.float32).reshape(want.shape)
    for which in ("scatter_add", "scatter_max", "scatter_min", "scatter_sub"):
        wanted = getattr(jax.lax, which)(x, indices, updates, jax.lax.ScatterDimensionNumbers(*numbers), mode=mode)
        np.testing.assert_array_equal(
            getattr(lax, which)(x, indices, updates, lax.ScatterDimensionNumbers(*numbers), mode=mode), wanted)


def test_starts_may_be_data():
    @lw.jit
    def f(x, start, y):
        return lax.dynamic_slice(x, (start, 1), (2, 2)), lax.dynamic_update_slice(x, y, np.stack([start, start]))
    for start, at in ((0, 0), (1, 1), (5, 1), (-1, 1), (-2, 1), (-9, 0)):
        part, whole = f(A, start, np.ones((2, 2)))
        np.testing.assert_array_equal(part, A[at:at + 2, 1:3])
        column = min(start if start >= 0 else max(start + 4, 0), 2)
        want = A.copy()
        want[at:at + 2, column:column + 2] = 1
        np.testing.assert_array_equal(whole, want)
    np.testing.assert_array_equal(lw.vmap(lambda i: lax.dynamic_slice_in_dim(V, i, 2))(np.arange(3)), [V[:2], V[1:3], V[2:4]])

    def windows(x):
        return lax.map(lambda i: lax.dynamic_slice_in_dim(x, i, 3).sum() ** 2, np.arange(4)).sum()
    h = 1e-6
    want = [(windows(V + h * e) - windows(V - h * e)) / (2 * h) for e in np.eye(6)]
    np.testing.assert_allclose(lw.jit(lw.grad(windows))(V), want, rtol=1e-6)

    def filled(n):
        out = lw.numpy.zeros(8)
        return lax.fori_loop(0, n, lambda i, out: lax.dynamic_update_index_in_dim(out, i * 1.0, i, 0), out)
    np.testing.assert_array_equal(lw.jit(filled)(5), [0, 1, 2, 3, 4, 0, 0, 0])


def test_one_trace_serves_all_sizes():
    @lw.jit
    def f(x, i):
        n = x.shape[0]
        y = lax.pad(x, 0.0, [(1, 2, 1)])
        z = lax.dynamic_update_slice(x, x[:2] * 2, (i,))
        numbers = lax.iota(np.int32, n) + lax.broadcasted_iota(np.int32, (3, n), 1)[0]
        square = lax.dot_general(x, x, (((0,), (0,)), ((), ())))
        return (y, z, lax.broadcast_in_dim(x, (2, n), (1,)), lax.cumsum(x, reverse=True), lax.slice_in_dim(x, 1, n), numbers,
                square, lax.reduce(x, 0.0, lax.add, (0,)), lax.full((n, 2), 7), lax.rev(x, (0,)), lax.top_k(x, 2)[0])
    for n in (5, 9, 12):
        x = RNG.standard_normal(n)
        y, z, b, c, s, i, d, r, full, back, top = f(x, 1)
        want = np.zeros(2 * n + 2)
        want[1:2 * n:2] = x
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(z, np.concatenate([x[:1], 2 * x[:2], x[3:]]))
        np.testing.assert_array_equal(b, np.stack([x, x]))
        np.testing.assert_allclose(c, x[::-1].cumsum()[::-1])
        np.testing.assert_array_equal(s, x[1:])
        np.testing.assert_array_equal(i, 2 * np.arange(n, dtype=np.int32))
        np.testing.assert_allclose([d, r], [x @ x, x.sum()])
        assert full.shape == (n, 2) and (full == 7).all() and full.dtype == np.int64
        np.testing.assert_array_equal(back, x[::-1])
        np.testing.assert_array_equal(top, -np.sort(-x)[:2])
    assert f.compiles == 1


def test_a_value_of_padding_may_be_traced_and_has_a_slope():
    f = lw.jit(lambda x, v: lax.pad(x, v, [(2, 1, 2)]))
    np.testing.assert_array_equal(f(V, 3.0), lax.pad(V, 3.0, [(2, 1, 2)]))
    assert lw.grad(lambda v: lax.pad(V, v, [(2, 1, 2)]).sum())(1.0) == 2 + 1 + 2 * 5
    np.testing.assert_array_equal(lax.pad(np.zeros((0, 2)), 1.0, [(1, 1, 3), (0, 0, 0)]), np.ones((2, 2)))
    np.testing.assert_array_equal(lax.pad(np.arange(5), 0, [(-2, -1, 0)]), [2, 3])


def test_reductions_of_containers_and_of_nothing():
    total, product = lax.reduce((A, A), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,))
    np.testing.assert_allclose(total, A.sum(1))
    np.testing.assert_allclose(product, A.prod(1))
    assert lax.reduce_max(np.zeros(0), (0,)) == -np.inf and lax.reduce_min(np.zeros(0, np.int8), (0,)) == 127
    assert lax.reduce_sum(np.ones(3, np.int8), (0,)).dtype == np.int8
    np.testing.assert_array_equal(lax.reduce_sum(A, ()), A)
    assert lax.reduce(np.zeros((0,)), 3.0, lax.add, (0,)) == 3.0
    slopes = lw.vmap(lw.grad(lambda x: lax.reduce_max(x, (0,))))(TIED)
    np.testing.assert_allclose(slopes[0], [0, 0.5, 0.5, 0])


def test_order_of_numbers():
    x = np.array([3.0, np.nan, -np.inf, np.inf, -0.0, 1.0])
    np.testing.assert_array_equal(lw.jit(lax.sort)(x), np.sort(x))
    np.testing.assert_array_equal(lw.jit(lambda x: lax.top_k(x, 3)[0])(x), [np.nan, np.inf, 3.0])
    np.testing.assert_array_equal(lax.top_k(np.array([1, 200, 3], np.uint8), 2)[0], [200, 3])
    np.testing.assert_array_equal(lax.top_k(np.array([-128, 5, 127], np.int8), 3)[1], [2, 1, 0])
    np.testing.assert_allclose(lw.grad(lambda x: lax.top_k(x, 2)[0] @ np.array([1.0, 10.0]))(V),
                               np.eye(6)[np.argsort(-V)[0]] + 10 * np.eye(6)[np.argsort(-V)[1]])
    np.testing.assert_allclose(lax.cumlogsumexp(np.array([-1e4, 0.0, 1e4]), reverse=True), [1e4, 1e4, 1e4])
    np.testing.assert_allclose(lax.cumlogsumexp(V), [scs.logsumexp(V[:k]) for k in range(1, 7)])


def test_products_in_other_dtypes():
    x = np.full((2, 300), 100, np.int8)
    for jit in (lambda f: f, lw.jit):
        got = jit(lambda x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.int32))(x)
        assert got.dtype == np.int32 and (got == 3_000_000).all()
    assert lax.dot(A.astype(np.float32), B.astype(np.float32), precision=lax.Precision.HIGHEST).dtype == np.float32
    z = A + 1j
    np.testing.assert_allclose(lw.jit(lax.dot)(z, B + 0j), z @ B)


@pytest.mark.parametrize("kind, f", [("FFT", np.fft.fft2), ("ifft", np.fft.ifft2), ("RFFT", np.fft.rfft2)])
def test_fourier_transforms(kind, f):
    np.testing.assert_allclose(lax.fft(T, kind, (3, 4)), f(T), atol=1e-12)
    np.testing.assert_allclose(lw.jit(lambda x: lax.fft(x, lax.FftType[kind.upper()], (3, 4)))(T), f(T), atol=1e-12)
    np.testing.assert_allclose(lax.fft(np.fft.rfft2(T), "IRFFT", (3, 4)), T, atol=1e-12)
    with pytest.raises(lw.ShapeError, match=r"lax.fft: the last axes"):
        lax.fft(T, kind, (4, 4))


def test_the_rest():
    assert lax.dtype(np.float32(1)) == np.float32 and lax.dtype(1) == np.int64 and lax.dtype(1j) == np.complex128
    assert lax.broadcast_shapes((2, 1, 3), (4, 1), ()) == (2, 4, 3) and lax.broadcast_shapes() == ()
    assert lax.optimization_barrier({"a": (A, 1)})["a"][0] is A
    assert lax.platform_dependent(2.0, cpu=lambda x: x + 1, cuda=lambda x: x - 1) == 3.0
    assert lax.platform_dependent(2.0, tpu=lambda x: x + 1, default=lambda x: x * 4) == 8.0
    assert lax.empty((2, 3), np.int32).shape == (2, 3)
    np.testing.assert_array_equal(lw.jit(lambda v: lax.full((2,), v))(3.0), [3.0, 3.0])


@pytest.mark.parametrize("call, error, message", [
    (lambda: lax.concatenate([A, A.astype(np.float32)], 0), lw.DTypeError, "lax.concatenate takes arrays of one dtype"),
    (lambda: lax.broadcast_in_dim(V, (2, 6), (1, 0)), lw.ShapeError, "broadcast_dimensions must be one rising axis"),
    (lambda: lax.broadcast_shapes((2,), (3,)), lw.ShapeError, "do not go together"),
    (lambda: lax.transpose(A, (0, 0)), lw.ShapeError, "is no order of the 2 axes"),
    (lambda: lax.slice(A, (0, 2), (3, 5)), lw.ShapeError, "axis 1 of size 4 has no places from 2 to 5"),
    (lambda: lw.jit(lambda x: lax.slice(x, (0, 2), (3, 5)))(A), lw.ShapeError, "axis 1 of size"),
    (lambda: lax.index_in_dim(A, 3), IndexError, "out of bounds for axis 0 of size 3"),
    (lambda: lax.split(V, (2, 2)), lw.ShapeError, "must sum to the 6 places"),
    (lambda: lax.pad(A, 0, [(0, 0, 0)]), lw.ShapeError, "lax.pad takes one value, and for each of the 2 axes"),
    (lambda: lax.pad(V, 0.0, [(-4, -4, 0)]), lw.ShapeError, "takes more away"),
    (lambda: lax.pad(np.arange(3), 0.5, [(1, 0, 0)]), lw.DTypeError, "lax.pad takes operands of one dtype"),
    (lambda: lax.top_k(V, 7), lw.ShapeError, "has no 7 elements"),
    (lambda: lax.sort((A, V)), lw.ShapeError, "arrays of one shape"),
    (lambda: lax.dot(T, A), lw.ShapeError, "takes vectors and matrices"),
    (lambda: lax.dot(A, A), lw.ShapeError, "contracted axes"),
    (lambda: lax.reduce_and(V, (0,)), lw.DTypeError, "takes bools and integers"),
    (lambda: lax.reduce_sum(A, (0, 0)), lw.ShapeError, "name one twice"),
    (lambda: lax.reduce((A, V), (0.0, 0.0), lax.add, (0,)), lw.ArgumentError, "arrays of one shape"),
    (lambda: lax.dynamic_slice(A, (0,), (2, 2)), lw.ShapeError, "takes a start and a size for each of the 2 axes"),
    (lambda: lax.dynamic_slice(A, (0, 0), (4, 2)), lw.ShapeError, "a window of 4 places does not fit axis 0"),
    (lambda: lax.dynamic_slice(A, (0.5, 0), (2, 2)), lw.DTypeError, "must be an integer"),
    (lambda: lax.dynamic_update_slice(V, np.ones(2, np.float32), (0,)), lw.DTypeError, "arrays of one dtype"),
    (lambda: lax.gather(V, np.array([1]), ELEMENT, (1,), mode="wrap"), ValueError, "mode must be"),
    (lambda: lax.gather(V, np.array([1.0]), ELEMENT, (1,)), lw.ShapeError, "takes integers"),
    (lambda: lax.platform_dependent(1, tpu=abs), lw.ArgumentError, "no function for cpu"),
    (lambda: lax.ragged_dot(A, B, np.array([1])), lw.ShapeError, "ragged_dot takes"),
], ids=range(26))
def test_errors_name_the_line_and_the_fix(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_lax_structural.py" in str(caught.value)
