"""Products in loops by matrices that stay, which are copied once; sums of products over all trips, which are one product."""
import ctypes
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.types import F32
from loopwright.lower.codegen.panel_tiles import parts_size
from loopwright.lower.codegen.panels import panel_columns
from loopwright.lower.codegen.products import has_own
from loopwright.lower.hoisting import hoist
from loopwright.lower.kernel import kernel
from loopwright.lower.panels import panel_product, panels, with_panels
from loopwright.lower.partition import partition
from loopwright.lower.runtime import blas, support
from loopwright.lower.target import host_target
from tests.scale import examples

needs_blas = pytest.mark.skipif(os.environ.get(blas.VARIABLE) == "none", reason="no BLAS wanted here")
has_none = os.environ.get(blas.VARIABLE) == "none" or not has_own(F32, host_target())
needs_own = pytest.mark.skipif(has_none, reason="no code of our own")
SIDES = st.one_of(st.integers(0, 9), st.integers(10, 140), st.sampled_from([255, 256, 280, 281, 300, 600]))
RNG = np.random.default_rng(5)


def surrounded(shape, dtype):
    """An array of normal numbers inside NaN."""
    whole = np.full(int(np.prod(shape)) + 64, np.nan, dtype)
    whole[32:-32] = RNG.standard_normal(shape).reshape(-1)
    return whole[32:-32].reshape(shape)


def on_a_line(count, dtype):
    """So many NaN, which begin a line of the caches as a program's own arrays do, and the array of NaN that they are in."""
    around = np.full(count + 128, np.nan, dtype)
    start = 32 + (-around.ctypes.data // around.itemsize) % 16
    return around[start:start + count], around


def call(name, *args):
    kinds = [ctypes.c_int64 if isinstance(x, int) else ctypes.c_void_p for x in args]
    ctypes.CFUNCTYPE(None, *kinds)(support.address(name))(*[x if isinstance(x, int) else x.ctypes.data for x in args])


@needs_own
@examples(100)
@given(kind=st.sampled_from(["f32", "f64"]), side=st.sampled_from("nt"), m=SIDES, n=SIDES, k=SIDES)
def test_products_by_copies_of_any_sizes(kind, side, m, n, k):
    dtype = np.dtype("f4" if kind == "f32" else "f8")
    a, b = surrounded((m, k) if side == "n" else (k, m), dtype), surrounded((k, n), dtype)
    wide, has_parts = panel_columns(dtype, host_target()), host_target().has_tiles and kind == "f32"
    room = -(-n // wide) * wide * k + (parts_size(n, k) if has_parts else 0)
    (copied, around), c = on_a_line(room, dtype), surrounded((m, n), dtype)
    call(f"lw_panels_{kind}", n, k, b, copied, *([m] if has_parts else []))
    call(f"lw_panel_product_{kind}_{side}", m, n, k, a, b, copied, c)
    assert all(np.isnan(x[:32]).all() and np.isnan(x[-32:]).all() for x in (around, c.base))
    whole = n // wide * wide
    np.testing.assert_array_equal(copied[:whole * k], panels.numpy(b, summed=1, wide=wide)[:whole * k])
    expected = (a.T if side == "t" else a).astype("float64") @ b.astype("float64")
    near = (1e-6 if kind == "f32" else 1e-14) * (4 + k)
    np.testing.assert_allclose(c, expected, rtol=near, atol=near)


# ---- programs ---------------------------------------------------------------------------------------
def states(h, w, x):
    def step(h, x):
        h = np.tanh(h @ w + x)
        return h, h
    return lax.scan(step, h, x)[1]


def states_by_hand(h, w, x):
    out = [h := np.tanh(h @ w + x[t]) for t in range(len(x))]
    return np.array(out).reshape(x.shape)


def operands(trips, rows, n, dtype="float32"):
    return [RNG.normal(size=s).astype(dtype) for s in ((rows, n), (n, n), (trips, rows, n))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_recurrent_network_of_any_sizes(dtype):
    f = lw.jit(states)
    for sizes in ((4, 3, 5), (3, 2, 70), (2, 7, 16), (3, 0, 4), (0, 2, 3), (2, 300, 33)):
        args = operands(*sizes, dtype)
        args[1] /= sizes[2] ** 0.5
        np.testing.assert_allclose(f(*args), states_by_hand(*args), rtol=2e-5, atol=2e-5)
    assert f.compiles == 1


def test_special_values_stay_in_their_columns():
    f = lw.jit(lambda h, w, x: lax.scan(lambda h, x: (h, h @ w + x), h, x)[1])
    h, w, x = operands(2, 3, 37)
    w[4, 36], w[:, 20], h[2] = np.nan, np.inf, 0
    with np.errstate(invalid="ignore"):
        expected = np.array([h @ w + row for row in x])
    np.testing.assert_allclose(f(h, w, x), expected, rtol=1e-4, atol=1e-4)


def test_loops_in_loops_and_loops_that_ask():
    def f(h, w, v, limit):
        def outer(h, _):
            h = lax.fori_loop(0, 3, lambda i, h: np.tanh(h @ w), h)
            return lax.while_loop(lambda h: np.sum(h * h) > limit, lambda h: (h @ v) / 2, h), None
        return lax.scan(outer, h, None, length=3)[0]

    def by_hand(h, w, v, limit):
        for _ in range(3):
            for _ in range(3):
                h = np.tanh(h @ w)
            while np.sum(h * h) > limit:
                h = h @ v / 2
        return h
    args = RNG.normal(size=(4, 9)), RNG.normal(size=(9, 9)), np.linalg.qr(RNG.normal(size=(9, 9)))[0], 0.5
    np.testing.assert_allclose(lw.jit(f)(*args), by_hand(*args), rtol=1e-10)


def nodes_of(g):
    return [m for n in g.nodes for m in (n, *(x for r in n.regions if n.op is not kernel for x in nodes_of(r)))]


@needs_own
def test_copies_are_made_before_the_outermost_loop():
    def f(h, w):
        def outer(h, _):
            return lax.while_loop(lambda h: np.sum(h) > 1, lambda h: np.tanh(h @ w), h), None
        return lax.scan(outer, h, None, length=3)[0]
    g = with_panels(partition(lw.make_graph(f)(*operands(1, 3, 4)[:2]), host_target(), blas=True), host_target())
    first = [n.attrs.get("implementation") for n in g.nodes]
    assert first.count(panels.name) == 1 and first.index(panels.name) < [n.op for n in g.nodes].index(scan)
    inside = [n.attrs.get("implementation") for n in nodes_of(g) if n.op is kernel]
    assert inside.count(panels.name) == inside.count(panel_product.name) == 1 and "gemm" not in inside
    assert any(n.op is while_ for n in nodes_of(g))


# ---- sums of products -------------------------------------------------------------------------------
def slopes_by_hand(h, w, x, cotangent):
    seen = states_by_hand(h, w, x)
    slope, dw, dx = np.zeros_like(h), np.zeros_like(w), np.empty_like(x)
    for t in reversed(range(len(x))):
        dx[t] = slope = (slope + cotangent[t]) * (1 - seen[t] ** 2)
        dw += (seen[t - 1] if t else h).T @ slope
        slope = slope @ w.T
    return slope, dw, dx


@pytest.mark.parametrize("which", [(0, 1, 2), (1,), (1, 2)])
def test_slopes_of_a_recurrent_network(which):
    f = lw.jit(lambda h, w, x, c: lw.grad(lambda h, w, x: np.sum(states(h, w, x) * c), argnums=which)(h, w, x))
    for sizes in ((5, 3, 4), (3, 1, 20), (0, 2, 3), (4, 0, 3)):
        args = [*operands(*sizes, "float64"), operands(*sizes, "float64")[2]]
        expected = slopes_by_hand(*args)
        for found, k in zip(f(*args), which, strict=True):
            np.testing.assert_allclose(found, expected[k], rtol=1e-9, atol=1e-12)
    assert f.compiles == 1


def products_inside(f, *args):
    """The products in the loop and those beside it, once the graph is hoisted."""
    g = hoist(lw.make_graph(f)(*args))
    loop, = [n for n in g.nodes if n.op is scan]
    return [sum(n.op is dot_general for n in x) for x in (loop.regions[0].nodes, g.nodes)]


@needs_blas
@pytest.mark.parametrize("reverse", [False, True])
def test_what_trips_add_up_is_one_product(reverse):
    def f(start, x, y):
        return lax.scan(lambda s, row: (s + row[0].T @ row[1], None), start, (x, y), reverse=reverse)[0]
    start, x, y = RNG.normal(size=(4, 5)), RNG.normal(size=(6, 3, 4)), RNG.normal(size=(6, 3, 5))
    assert products_inside(f, start, x, y) == [0, 1]
    compiled = lw.jit(f)
    for n in (6, 1, 0):
        expected = start + np.einsum("tik,til->kl", x[:n], y[:n])
        np.testing.assert_allclose(compiled(start, x[:n], y[:n]), expected, rtol=1e-12)
    x[2, 1, 0] = np.nan
    assert np.isnan(compiled(start, x, y)).tolist() == [[True] * 5, *[[False] * 5] * 3]


@needs_blas
def test_sums_that_are_read_on_the_way_stay():
    def f(start, x, y):
        def step(s, row):
            s = s + row[0].T @ row[1]
            return s, np.sum(s)
        return lax.scan(step, start, (x, y))
    start, x, y = RNG.normal(size=(4, 5)), RNG.normal(size=(6, 3, 4)), RNG.normal(size=(6, 3, 5))
    assert products_inside(f, start, x, y) == [1, 0]
    every = start + np.cumsum(np.einsum("tik,til->tkl", x, y), axis=0)
    found = lw.jit(f)(start, x, y)
    np.testing.assert_allclose(found[0], every[-1], rtol=1e-12)
    np.testing.assert_allclose(found[1], every.sum(axis=(1, 2)), rtol=1e-11)
