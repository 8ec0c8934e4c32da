"""What happens to loops before they are lowered, seen in the text of their graphs; and what they cost."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.cost import bytes_moved, flops
from loopwright.ir.dims import symbol
from loopwright.ir.errors import ArgumentError, DTypeError
from loopwright.ir.rewriting import simplify
from loopwright.tracer.pytree import flatten

X, ROWS = np.linspace(0.5, 1.5, 5), np.linspace(-1.0, 1.0, 20).reshape(4, 5)


def loops_of(f, *args):
    """The outermost loops of the simplified graph."""
    return [n for n in simplify(lw.make_graph(f)(*args)).nodes if n.op.name in ("scan", "while")]


def ops_inside(loop):
    return [n.op.name for r in loop.regions for n in r.nodes]


# ---- costs ----------------------------------------------------------------------------------------
def test_the_cost_of_a_loop_is_that_of_a_trip_times_its_length():
    def f(x, xs):
        return lax.scan(lambda c, r: (lax.fori_loop(0, 7, lambda i, v: v * x + r, c), None), x, xs)[0]
    width, length = symbol("n"), symbol("m")
    g = simplify(lw.make_graph(f)(X, ROWS))
    assert flops(g) == 14 * width * length  # 7 times a product and a sum
    assert bytes_moved(g) == 7 * 8 * (3 + 3) * width * length
    text = lw.jit(f).explain(X, ROWS)
    assert "(scan): m = 4 trips, 14*m*n = 280 flops, 224*m*n = 4,480 bytes" in text  # one kernel moves less


def test_the_cost_of_a_while_is_said_to_be_that_of_one_trip():
    text = lw.jit(lambda x: lax.while_loop(lambda v: np.sum(v) > 1, lambda v: v * 0.5, x)).explain(X)
    assert "(while): 2*n + 1 = 11 flops, 24*n + 1 = 121 bytes per trip" in text
    gradient = lw.jit(lw.grad(lambda x: lax.while_loop(lambda v: v > 1, lambda v: v * 0.5, x))).explain(np.float64(50))
    assert "trips, " in gradient and " bytes per trip" in gradient


# ---- what comes out of a loop ---------------------------------------------------------------------
def test_work_that_is_the_same_in_every_trip_comes_out():
    def f(x, xs):
        return lax.scan(lambda c, r: (c * np.sum(np.exp(x)) + r, c), x, xs)
    loop, = loops_of(f, X, ROWS)
    assert set(ops_inside(loop)) == {"broadcast", "mul", "add"}

    def g(x):
        return lax.while_loop(lambda v: np.sum(v) < np.sum(np.exp(x)), lambda v: v + np.sin(x) ** 2, x)
    loop, = loops_of(g, X)
    assert not {"exp", "sin"} & set(ops_inside(loop))
    np.testing.assert_allclose(lw.jit(g)(X), g(X))


def test_work_comes_out_of_two_loops():
    def f(x, xs):
        def outer(c, r):
            return lax.fori_loop(0, 3, lambda i, v: v * np.tanh(x) + np.cos(r), c), None
        return lax.scan(outer, x, xs)[0]
    loop, = loops_of(f, X, ROWS)
    assert ops_inside(loop) == ["cos", "scan"]
    inner = loop.regions[0].nodes[1]
    assert ops_inside(inner) == ["mul", "add"]


def test_what_may_fail_stays():
    def f(x, i, n):
        return lax.fori_loop(0, n, lambda k, v: v + x[i], 0.0)
    assert lw.jit(f)(X, 9, 0) == 0.0
    with pytest.raises(IndexError):
        lw.jit(f)(X, 9, 1)


# ---- what goes away -------------------------------------------------------------------------------
def test_carries_that_nobody_reads_go_away():
    def f(x, xs):
        def body(c, r):
            a, b, unread, pair = c
            return (a * r, b + 1, np.sin(unread) + a, (pair[1], pair[0])), (a, np.cos(b) * r)
        (a, _, _, _), (ys, _) = lax.scan(body, (x, x, x, (x, x)), xs)
        return a, ys
    loop, = loops_of(f, X, ROWS)
    assert len(loop.outputs) == 2 and ops_inside(loop) == ["mul"]


def test_carries_that_only_feed_each_other_go_away():
    def f(x):
        def body(s):
            k, a, b, c = s
            return k + 1, np.sin(b), np.cos(a), c * x
        return lax.while_loop(lambda s: s[0] < 5, body, (0, x, x, x))[3]
    loop, = loops_of(f, X)
    assert len(loop.outputs) == 2 and not {"sin", "cos"} & set(ops_inside(loop))


def test_carries_that_stay_are_constants():
    def f(x, xs):
        (a, b), _ = lax.scan(lambda c, r: ((c[0] * np.exp(c[1]) + r, c[1]), None), (x, x * 2), xs)
        return a, b
    loop, = loops_of(f, X, ROWS)
    assert len(loop.outputs) == 1 and ops_inside(loop) == ["mul", "add"]  # and then their exp comes out


def test_a_loop_that_nobody_reads_goes_away():
    assert loops_of(lambda x, xs: (lax.scan(lambda c, r: (c + r, None), x, xs)[0], x * 2)[1], X, ROWS) == []


def test_the_gradient_stacks_only_what_it_reads():
    def f(x, xs):
        return np.sum(lax.scan(lambda c, r: (np.sin(c) * x + r, None), x, xs)[0])
    forward, _ = loops_of(lw.grad(f), X, ROWS)
    assert sum(v.type.rank == 2 for v in forward.outputs) <= 2  # the carry, or its sin and cos


# ---- unrolling ------------------------------------------------------------------------------------
def stepping(unroll, reverse=False):
    def f(c, x):
        def body(c, r):
            a, n = c
            a[0] = a[0] * 0.5 + r[0]  # a carry is the body's own, in each of the trips that are written out
            return (a + r, n + 1), {"before": c[0], "n": n, "r": r * 2}
        return lax.scan(body, (c, 0), x, reverse=reverse, unroll=unroll)
    return f


def plain_stepping(c, x, reverse):
    n, before, ns = 0, [], []
    for r in x[::-1] if reverse else x:
        c = c.copy()
        c[0] = c[0] * 0.5 + r[0]
        before.append(c)
        ns.append(n)
        c, n = c + r, n + 1
    order = slice(None, None, -1 if reverse else 1)
    rows = np.stack(before)[order] if before else np.zeros((0, len(c)))
    return (c, n), {"before": rows, "n": np.array(ns, int)[order], "r": x * 2}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [2, 3, 5, 8])
def test_unrolled_loops_have_the_same_values(unroll, reverse):
    f = lw.jit(stepping(unroll, reverse))
    for n in (2, 3, 4, 7, 8, 11):
        x = np.arange(2.0 * n).reshape(n, 2) / 7 - 1
        got, want = f(np.ones(2), x), plain_stepping(np.ones(2), x, reverse)
        for a, b in zip(*(flatten(t)[0] for t in (got, want)), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)
            np.testing.assert_allclose(a, b, rtol=1e-13)
        eager = stepping(unroll, reverse)(np.ones(2), x)
        np.testing.assert_allclose(eager[1]["before"], want[1]["before"], rtol=1e-13)
    assert f.compiles <= 2  # the number of rows is a size; that of groups may be 1
    assert f(np.ones(2), np.zeros((0, 2)))[1]["before"].shape == (0, 2)


@pytest.mark.parametrize("length", [6, 7])
def test_a_loop_is_unrolled_and_so_is_what_is_left(length):
    def f(x):
        return lax.scan(lambda c, _: (np.sin(c) * x, None), x, length=length, unroll=3)[0]
    loop, = loops_of(f, X)
    assert loop.attrs["length"] == 2 and ops_inside(loop).count("sin") == 3
    g = simplify(lw.make_graph(f)(X))
    assert sum(n.op.name == "sin" for n in g.nodes) == length % 3
    want = X
    for _ in range(length):
        want = np.sin(want) * X
    np.testing.assert_allclose(lw.jit(f)(X), want, rtol=1e-13)
    np.testing.assert_allclose(lw.jit(lambda x: lax.fori_loop(0, length, lambda i, c: np.sin(c) * x, x, unroll=3))(X), want,
                               rtol=1e-13)


def test_gradients_of_unrolled_loops():
    def f(unroll):
        def loss(x, xs):
            last, rows = lax.scan(lambda c, r: (np.tanh(c * x + r), c * r), x, xs, unroll=unroll)
            return np.sum(last) + np.sum(np.sin(rows))
        return lw.jit(lw.grad(loss, argnums=(0, 1)))
    for rows in (ROWS, ROWS[:3]):
        for a, b in zip(f(3)(X, rows), f(1)(X, rows), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.parametrize("unroll", [2, True])
def test_a_carry_that_changes_is_an_error_in_unrolled_loops_too(unroll):
    with pytest.raises(DTypeError, match=r"test_loop_rewriting\.py.*carry\[0\].*f64\[\].*i64\[\]"):
        lw.jit(lambda: lax.scan(lambda c, _: ((c[1], c[0]), None), (np.float64(1.0), np.int64(1)), length=4, unroll=unroll))()
    with pytest.raises(ArgumentError, match="structure"):
        lw.jit(lambda x: lax.scan(lambda c, _: ([c], None), x, length=4, unroll=unroll))(1.0)
