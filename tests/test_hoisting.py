"""Matrix products out of loops: which are made before the first trip, and that values and gradients are those of NumPy."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.kernel import kernel
from loopwright.lower.partition import partition
from loopwright.lower.target import host_target
from tests.loops import agree, scan


def inside(f, *args):
    """How many matrix products the library makes: before the first loop, and in each trip of it."""
    graph = partition(lw.make_graph(f)(*args), host_target(), blas=True)
    at = next(k for k, n in enumerate(graph.nodes) if n.regions and n.op is not kernel)

    def count(nodes):
        return sum(n.attrs.get("implementation") == "gemm" for n in nodes)
    return count(graph.nodes[:at]), count(graph.nodes[at].regions[0].nodes)


def recurrent(h, w, u, x, reverse=False):
    (h,), (hs,) = scan(lambda w, u, h, x: ((np.tanh(h @ w + x @ u),), (h,)), [w, u], [h], [x], reverse)
    return h, hs


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 6])
def test_products_of_rows_are_made_for_all_rows_at_once(length, reverse):
    rng = np.random.default_rng(0)
    h, w, u = rng.normal(size=(4, 7)), rng.normal(size=(7, 7)), rng.normal(size=(5, 7))

    def f(h, w, u, x):
        return recurrent(h, w, u, x, reverse)
    x = rng.normal(size=(length, 4, 5))
    compiled = agree(f, h, w, u, x, rtol=1e-12)
    assert inside(f, h, w, u, x) == (1, 1) or length == 1
    last, hs = compiled(h, w, u, x[:0])
    assert np.array_equal(last, h) and hs.shape == (0, 4, 7)


def test_products_of_a_matrix_and_each_row():
    def f(h, w, u, x):
        (h,), (hs, ys) = scan(lambda w, u, h, x: ((np.sin(w @ h + u @ x),), (h, x @ u.T)), [w, u], [h], [x])
        return h, hs, ys
    rng = np.random.default_rng(0)
    args = rng.normal(size=7), rng.normal(size=(7, 7)), rng.normal(size=(7, 5)), rng.normal(size=(6, 5))
    agree(f, *args, rtol=1e-12)
    assert inside(f, *args) == (2, 1)


def test_products_in_inner_loops():
    def outer(w, h, xs):
        (h,), (ys,) = scan(lambda w, h, x: ((h + x @ w,), (h @ w.T,)), [w], [h], [xs])
        return (h,), (ys,)

    def f(w, h, xs):
        (h,), (ys,) = scan(outer, [w], [h], [xs])
        return h, ys
    rng = np.random.default_rng(0)
    args = rng.normal(size=(5, 5)) / 3, rng.normal(size=(4, 5)), rng.normal(size=(3, 6, 4, 5))
    agree(f, *args, rtol=1e-11)


def test_products_that_would_take_much_memory_stay():
    def f(c, u, x):
        (c,), _ = scan(lambda u, c, x: ((c + np.max(x @ u),), ()), [u], [c], [x])
        return (c,)
    rng = np.random.default_rng(0)
    args = np.float64(1), rng.normal(size=(5, 700)), rng.normal(size=(6, 4, 5))
    agree(f, *args, rtol=1e-12)
    assert inside(f, *args) == (0, 1)


def test_what_is_read_transposed_is_transposed_once():
    def f(c, w, x):
        (c,), (ys,) = scan(lambda w, c, x: ((np.cos(c @ w.T + x),), (c @ w,)), [w], [c], [x])
        return c, ys
    rng = np.random.default_rng(0)
    args = rng.normal(size=(4, 5)), rng.normal(size=(5, 5)), rng.normal(size=(6, 4, 5))
    agree(f, *args, rtol=1e-12)
    graph = partition(lw.make_graph(f)(*args), host_target(), blas=True)
    loop = graph.nodes[-1]
    products = [n.regions[0].nodes[0] for n in loop.regions[0].nodes if n.attrs["implementation"] == "gemm"]
    assert [n.attrs["contract"] for n in products] == [((1, 0),)] * 2


def test_gradients_of_products_outside_agree_with_differences():
    def cost(w, u, h, x):
        return np.sum(recurrent(h, w, u, x)[1] ** 2)
    rng = np.random.default_rng(0)
    args = rng.normal(size=(3, 3)), rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(5, 4, 2))
    slopes = lw.jit(lw.grad(cost, argnums=(0, 1, 2, 3)))(*args)
    for k, (a, slope) in enumerate(zip(args, slopes, strict=True)):
        d = rng.normal(size=a.shape)
        ends = [cost(*[b + t * d if i == k else b for i, b in enumerate(args)]) for t in (1e-6, -1e-6)]
        np.testing.assert_allclose(np.sum(slope * d), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def test_sums_of_what_products_outside_read_are_made_outside():
    def loss(h, w, u, b, x):
        def step(w, u, b, h, x):
            h = np.tanh(h @ w + x @ u + b)
            return (h,), (h,)
        (h,), (hs,) = scan(step, [w, u, b], [h], [x])
        return np.sum(hs * hs) + np.sum(h)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s) * 0.5 for s in ((4, 7), (7, 7), (5, 7), (7,), (6, 4, 5))]
    gradient = lw.grad(loss, argnums=(1, 2, 3))
    agree(gradient, *args, rtol=1e-12)
    graph = partition(lw.make_graph(gradient)(*args), host_target(), blas=True)
    loops = [n for n in graph.nodes if n.regions and n.op is not kernel]
    assert [n.attrs["carry"] for n in loops] == [1, 1]  # the state, and what comes back to it
    slope = gradient(*args)[2]
    for k in range(7):
        d = np.zeros(7)
        d[k] = 1e-6
        up, down = (loss(args[0], args[1], args[2], args[3] + s * d, args[4]) for s in (1, -1))
        assert abs(slope[k] - (up - down) / 2e-6) < 1e-7 * max(abs(slope[k]), 1)


def test_sums_in_loops_without_products_stay():
    def f(c, h, x):
        (c, h), (hs,) = scan(lambda c, h, x: ((c + np.sum(h * x, axis=0), np.sin(h + x)), (h * x,)), [], [c, h], [x])
        return c, h, hs
    rng = np.random.default_rng(0)
    args = rng.normal(size=3), rng.normal(size=(4, 3)), rng.normal(size=(6, 4, 3))
    agree(f, *args, rtol=1e-12)
    loop, = [n for n in partition(lw.make_graph(f)(*args), host_target(), blas=True).nodes if n.attrs.get("carry")]
    assert loop.attrs["carry"] == 2
