"""Loops over vectors of symbolic size: sizes that a register has room for run in a body of their own, with the same values."""
import mmap
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.ops.control import scan
from loopwright.ir.verifier import verify
from loopwright.lower import program
from loopwright.lower.control import padded_scan
from loopwright.lower.kernel import kernel
from loopwright.lower.padding import padded, unpadded
from loopwright.lower.target import host_target
from tests.scale import examples

SIZES = (*range(10), 15, 16, 17, 31, 32, 33)
masked = pytest.mark.skipif(not host_target().has_avx2, reason="loads of a few elements are not cheap on this processor")


def lowered(f, *args):
    return program.lower_graph(lw.make_graph(f)(*args), host_target(), blas=True).kernels


def has_short_body(f, *args):
    def inside(g):
        return any(n.op is padded_scan or any(map(inside, n.regions)) for n in g.nodes)
    return inside(lowered(f, *args))


def loop(f, init, xs, reverse=False):
    """`lax.scan` in Python."""
    carry, rows = init, []
    for k in reversed(range(len(xs[0]))) if reverse else range(len(xs[0])):
        carry, ys = f(carry, tuple(x[k] for x in xs))
        rows.append(ys)
    return carry, tuple(np.array(ys) for ys in zip(*(rows[::-1] if reverse else rows), strict=True))


def check(got, want, rtol=1e-13):
    for a, b in zip(got, want, strict=True):
        assert a.shape == np.shape(b) and a.dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


# ---- values ---------------------------------------------------------------------------------------
def mixed(run):
    """Several carries, vectors and a number, of which one changes places with another; rows of each kind."""
    def f(w, a, b, s, xs, ts):
        def step(carry, row):
            a, b, s = carry
            x, t = row
            new = a * w + x * t
            return (b - t, new, s + t), (new, s, a)
        (a, b, s), ys = run(step, (a, b, s), (xs, ts))
        return a, b, s, *ys
    return f


@pytest.mark.parametrize("reverse", [False, True])
def test_sizes_around_the_lanes(reverse):
    f = lw.jit(mixed(lambda *a: lax.scan(*a, reverse=reverse)))
    rng = np.random.default_rng(0)
    for n in SIZES:
        for length in (1, 2, 5):
            args = (*rng.normal(size=(3, n)), 0.5, rng.normal(size=(length, n)), rng.normal(size=length))
            check(f(*args), mixed(lambda *a: loop(*a, reverse=reverse))(*args))
    assert f.compiles <= 3  # one for nearly all sizes


DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64")


@examples(40)
@given(st.sampled_from(DTYPES), st.integers(0, 33), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_every_dtype(dtype, n, length, reverse, seed):
    def f(run):
        def g(a, b, xs):
            def step(carry, row):
                a, b = carry
                x, = row
                c = a ^ x if x.dtype.kind in "bui" else a + x
                return (b, c), (c > b, a)
            (a, b), ys = run(step, (a, b), (xs,), reverse=reverse)
            return a, b, *ys
        return g
    rng = np.random.default_rng(seed)
    a, b, *xs = (rng.normal(size=(2 + length, n)) * 9).astype(dtype)
    args = a, b, np.array(xs)
    check(lw.jit(f(lax.scan))(*args), f(loop)(*args), rtol=0)


def test_two_sizes():
    def f(run):
        def g(a, b, xs, ys):
            (a, b), rows = run(lambda c, r: ((c[0] * r[0] + 1, np.sin(c[1]) + r[1]), (c[1], c[0])), (a, b), (xs, ys))
            return a, b, *rows
        return g
    ours, rng = lw.jit(f(lax.scan)), np.random.default_rng(0)
    for n, m in ((2, 3), (3, 20), (20, 3), (8, 8), (40, 41), (5, 0)):
        args = rng.normal(size=n), rng.normal(size=m), rng.normal(size=(4, n)), rng.normal(size=(4, m))
        check(ours(*args), f(loop)(*args))


def test_dtypes_of_other_widths_together():
    def f(run):
        def g(a, k, xs):
            (a, k), rows = run(lambda c, r: ((np.where(c[1] > 2, c[0], c[0] + r[0]), c[1] + np.int8(1)), (c[0] > 0,)),
                               (a, k), (xs,))
            return a, k, *rows
        return g
    ours, rng = lw.jit(f(lax.scan)), np.random.default_rng(0)
    for n in SIZES:
        args = rng.normal(size=n), np.arange(n).astype("int8"), rng.normal(size=(4, n))
        check(ours(*args), f(loop)(*args))


@masked
def test_memory_outside_arrays_is_left_alone():
    """Rows that end where a page does, and numbers after a result's end."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    import ctypes
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    if sys.platform == "linux" and libc.mprotect(ctypes.c_void_p(address + page), page, 0):
        pytest.skip("pages cannot be protected")
    f = lw.jit(mixed(lax.scan))
    for n in range(1, 9):
        for dtype in ("float64", "float32"):
            size = np.dtype(dtype).itemsize
            xs = np.frombuffer(memory, dtype, 3 * n, page - 3 * n * size).reshape(3, n)
            xs[:] = np.arange(3 * n).reshape(3, n)
            a = np.frombuffer(memory, dtype, n, page - n * size)
            args = np.ones(n, dtype), a, a + 1, np.dtype(dtype).type(2), xs, np.arange(3, dtype=dtype)
            check(f(*args), mixed(loop)(*args), rtol=1e-6)
    del xs, a, args


# ---- transforms -----------------------------------------------------------------------------------
def decay(run):
    def f(c, w, xs):
        c, (ys,) = run(lambda c, r: ((c := np.tanh(c * w) + r[0]), (c * c,)), c, (xs,))
        return c, ys
    return f


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 9, 16, 17])
def test_gradients_against_differences(n):
    def loss(run):
        return lambda *args: sum(np.sum(np.cos(x)) for x in decay(run)(*args))
    rng = np.random.default_rng(n)
    args = [rng.normal(size=n), rng.normal(size=n), rng.normal(size=(4, n))]
    slopes, eps = lw.jit(lw.grad(loss(lax.scan), argnums=(0, 1, 2)))(*args), 1e-6
    for k, slope in enumerate(slopes):
        for at in np.ndindex(args[k].shape):
            ends = []
            for step in (eps, -eps):
                moved = [x.copy() for x in args]
                moved[k][at] += step
                ends.append(loss(loop)(*moved))
            np.testing.assert_allclose(slope[at], (ends[0] - ends[1]) / (2 * eps), rtol=1e-6, atol=1e-8)


def test_one_gradient_for_every_size():
    def f(scan):
        return lambda *args: np.sum(decay(scan)(*args)[1])
    slope, rng = lw.jit(lw.grad(f(lax.scan), argnums=(0, 1))), np.random.default_rng(0)
    for n in SIZES:
        c, w, xs = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(6, n))
        got = slope(c, w, xs)
        each = [lw.grad(f(lax.scan), argnums=(0, 1))(c[k], w[k], xs[:, k]) for k in range(n)]  # as loops of numbers
        check(got, [np.array([x[k] for x in each]) for k in range(2)], rtol=1e-12)
    assert slope.compiles <= 3


@pytest.mark.parametrize("n", [1, 3, 8, 9])
def test_vmap_and_second_derivatives(n):
    rng = np.random.default_rng(n)
    c, w, xs = rng.normal(size=(2, n)), rng.normal(size=n), rng.normal(size=(5, n))
    got = lw.jit(lw.vmap(lambda c: decay(lax.scan)(c, w, xs)))(c)
    each = [decay(loop)(row, w, xs) for row in c]
    check(got, [np.array([x[k] for x in each]) for k in range(2)])
    numbers = lw.jit(lw.vmap(decay(lax.scan), in_axes=(0, 0, 1), out_axes=(0, 1)))(c[0], w, xs)
    check(numbers, decay(loop)(c[0], w, xs))

    def slope(c):
        return lw.grad(lambda c: np.sum(decay(lax.scan)(c, w, xs)[1]))(c)
    tangent = rng.normal(size=n)
    _, second = lw.jit(lambda c: lw.jvp(slope, (c,), (tangent,)))(c[0])
    differences = (slope(c[0] + 1e-6 * tangent) - slope(c[0] - 1e-6 * tangent)) / 2e-6
    np.testing.assert_allclose(second, differences, rtol=1e-6, atol=1e-7)


def test_loops_inside_loops_and_branches():
    def f(run, cond):
        def outer(c, row):
            x, = row
            c, (ys,) = run(lambda c, r: ((c := c * 0.5 + r[0]), (c,)), c, (np.stack([x, x + 1, x * 2]),))
            return c, (ys, cond(c.sum() > 0, lambda c: run(lambda c, r: (c - r[0], (c,)), c, (np.stack([x, x]),))[0],
                                lambda c: c + 1, c))
        return lambda c, xs: (lambda r: (r[0], *r[1]))(run(outer, c, (xs,)))
    ours, rng = lw.jit(f(lax.scan, lax.cond)), np.random.default_rng(0)
    for n in (1, 2, 5, 8, 9, 30):
        args = rng.normal(size=n), rng.normal(size=(3, n))
        check(ours(*args), f(loop, lambda p, a, b, *x: a(*x) if p else b(*x))(*args))


# ---- which loops ----------------------------------------------------------------------------------
def step_loop(step):
    return lambda c, xs: lax.scan(step, c, xs)


VECTOR, ROWS = np.ones(3), np.ones((5, 3))


@masked
@pytest.mark.parametrize("step", [
    lambda c, x: (c * x, c), lambda c, x: (np.sin(c) + x.astype("float32"), x), lambda c, x: (np.where(c > x, c, x), ()),
    lambda c, x: (np.zeros_like(c) + x, c > 0)])
def test_elementwise_steps_have_a_short_body(step):
    assert has_short_body(step_loop(step), VECTOR, ROWS)


@pytest.mark.parametrize("step", [
    lambda c, x: (x - c / np.sum(c), c), lambda c, x: (c[::-1] + x, c), lambda c, x: (np.cumsum(c) + x, ()),
    lambda c, x: (x[np.argsort(c)], c), lambda c, x: (c * x, np.sum(c)), lambda c, x: (c + 1, np.outer(c, x))])
def test_other_steps_have_none_and_their_values(step):
    f, jitted = step_loop(step), lw.jit(step_loop(step))
    assert not has_short_body(f, VECTOR, ROWS)
    rng = np.random.default_rng(0)
    c, xs = rng.normal(size=3), rng.normal(size=(5, 3))
    want_c, want_y = loop(lambda c, r: (lambda n, y: (n, () if isinstance(y, tuple) else (y,)))(*step(c, r[0])), c, (xs,))
    got_c, got_y = jitted(c, xs)
    check([got_c], [want_c])
    if not isinstance(got_y, tuple):
        check([got_y], want_y)


def test_powers_of_integers_do_not_raise_for_padding():
    def f(run):
        return lambda c, xs: run(lambda c, r: (c ** r[0] - 1, (c,)), c, (xs,))[0]
    c, xs = np.array([2, 3, 5]), np.array([[1, 2, 0], [1, 1, 2]])
    for n in range(1, 4):
        np.testing.assert_array_equal(lw.jit(f(lax.scan))(c[:n], xs[:, :n]), f(loop)(c[:n], (xs[:, :n],)[0]))


def test_numbers_matrices_and_few_trips_have_none():
    assert not has_short_body(lambda c: lax.fori_loop(0, 10, lambda k, c: c * 0.5, c), VECTOR)
    assert not has_short_body(step_loop(lambda c, x: (c * x, c)), np.float64(1), np.ones(4))
    assert not has_short_body(step_loop(lambda c, x: (c * x, c)), np.ones((2, 3)), np.ones((5, 2, 3)))


# ---- the graph ------------------------------------------------------------------------------------
def test_the_graph_is_verified_and_goes_back():
    target = host_target()
    g = unpadded(lowered(decay(lax.scan), VECTOR, VECTOR, ROWS))
    assert any(n.op is scan for n in g.nodes)
    short = padded(g, target)
    verify(short)
    assert str(unpadded(short)) == str(g)
    if target.has_masks:
        node = next(n for n in short.nodes if n.op is padded_scan)
        assert all(n.op is kernel for r in node.regions for n in r.nodes)
        assert node.attrs["lanes"] == target.vector_bits // 64


def test_explanations_count_a_trip_once():
    f = lw.jit(decay(lax.scan))
    f(VECTOR, VECTOR, ROWS)
    text = f.explain(VECTOR, VECTOR, ROWS)
    assert "(scan): 5 trips" in text or "(scan):" in text
    assert "padded" not in text
