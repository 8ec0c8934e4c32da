"""Derivatives of control flow: programs that have broken others, each against numbers found another way."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.autodiff.jvp import tangent_type, zeros
from loopwright.autodiff.linearize import linearize, pull_back
from loopwright.ir.builder import build
from loopwright.ir.interpreter import evaluate
from loopwright.ir.rewriting import simplify
from loopwright.ir.verifier import verify
from tests.control import Ours, Plain
from tests.test_random_programs import Differences

X = np.array([0.7, -1.2, 2.0, 0.4])
ALONG = np.array([0.3, 1.0, -0.5, 0.2])


class Exact(Differences, Plain):
    """Plain loops and differences."""


def difference(f, x, order):
    """The derivative of f(engine, x) along ALONG, of this order, from plain loops in extended precision."""
    exact = Exact(3e-4)

    def g(y):
        return f(exact, y)
    for _ in range(order):
        g = (lambda h: lambda y: exact.along(h, y, ALONG.astype(np.longdouble)))(g)
    return np.asarray(g(x.astype(np.longdouble)), float)


# ---- one program for each kind of loop ------------------------------------------------------------------
def scanned(E, x):
    last, rows = E.scan(lambda c, r: (c * r + E.np.sin(c), c * c), x[0], x)
    return last + E.np.sum(rows)


def scanned_back_over_a_closure(E, x):
    w = x * 2.0
    last, rows = E.scan(lambda c, r: (E.np.tanh(c * w[1] + r * w), E.np.sum(c) * r), x, x, reverse=True)
    return E.np.sum(last * w) + E.np.sum(rows)


def product_of_a_dynamic_loop(E, x):
    n = E.np.where(E.np.sum(x) > -100, 4, 0)
    return E.fori_loop(0, n, lambda i, p: p * x[i], 1.0)


def newton(E, x):
    a = E.np.sum(x * x)
    return E.while_loop(lambda s: E.np.abs(s * s - a) > 1e-12, lambda s: 0.5 * (s + a / s), a * 0.5 + 1.0)


def while_of_two_carries(E, x):
    start = (0, x[0] * x[0] + 0.3, x)
    _, total, v = E.while_loop(lambda s: (s[0] < 5) & (s[1] < 30.0),
                               lambda s: (s[0] + 1, s[1] * 1.7 + E.np.sum(s[2] * x), s[2] * 0.5 + s[1]), start)
    return total + E.np.sum(E.np.sin(v))


def while_in_scan(E, x):
    def body(c, r):
        inner = E.while_loop(lambda s: s < 10.0, lambda s: s * (1.5 + r * r) + 0.01 * x[0], E.np.abs(c) + 0.5)
        return inner / 8.0, c
    last, rows = E.scan(body, x[0], x)
    return last + E.np.sum(rows * x)


def while_in_while(E, x):
    def outer(s):
        inner = E.while_loop(lambda u: u[0] < s[0] + 1, lambda u: (u[0] + 1, E.np.sin(u[1]) + x[1] * 0.1), (0, s[1]))
        return s[0] + 1, inner[1] * 1.1 + x[0]
    return E.while_loop(lambda s: s[0] < 3, outer, (0, x[2]))[1]


def cond_of_loops(E, x):
    return E.cond(x[0] > 0, lambda v: E.while_loop(lambda s: s < 9.0, lambda s: s * (1.3 + v[3]), E.np.sum(v * v)),
                  lambda v: E.scan(lambda c, r: (c * r, c), 1.0, v)[0], x)


def cond_with_unlike_residuals(E, x):
    return E.np.sum(E.switch(E.np.where(x[0] > 0, 2, 0), [
        lambda v: v, lambda v: E.np.outer(v, v)[0], lambda v: E.np.tanh(E.np.outer(E.np.sin(v), v)) @ v], x))


PROGRAMS = (scanned, scanned_back_over_a_closure, product_of_a_dynamic_loop, newton, while_of_two_carries, while_in_scan,
            while_in_while, cond_of_loops, cond_with_unlike_residuals)
each_program = pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
CLOSE = {1: 1e-7, 2: 1e-5}


@each_program
@pytest.mark.parametrize("x", [X, -X], ids=["x", "-x"])
def test_first_and_second_derivatives_are_differences(f, x):
    def g(y):
        return f(Ours, y)

    def along(h):
        return lambda y: lw.jvp(h, (y,), (ALONG,))[1]
    first, second = difference(f, x, 1), difference(f, x, 2)
    np.testing.assert_allclose(g(x), f(Plain, x), rtol=1e-12)
    for derivative in (along(g), lambda y: lw.grad(g)(y) @ ALONG, lambda y: lw.linearize(g, y)[1](ALONG),
                       lambda y: lw.vjp(g, y)[1](1.0)[0] @ ALONG):
        np.testing.assert_allclose(derivative(x), first, rtol=CLOSE[1], atol=1e-8)
    for derivative in (along(along(g)), along(lambda y: lw.grad(g)(y) @ ALONG), lambda y: lw.grad(along(g))(y) @ ALONG,
                       lambda y: lw.grad(lambda z: lw.grad(g)(z) @ ALONG)(y) @ ALONG,
                       lambda y: ALONG @ lw.hessian(g)(y) @ ALONG):
        np.testing.assert_allclose(derivative(x), second, rtol=CLOSE[2], atol=1e-6)


@each_program
def test_compiled_gradients_are_those_of_the_interpreter(f):
    def gradient(y):
        return lw.grad(lambda z: f(Ours, z))(y)

    def product(y):
        return lw.grad(lambda z: gradient(z) @ ALONG)(y)
    for g in (gradient, product):
        np.testing.assert_allclose(lw.jit(g)(X), g(X), rtol=1e-9, atol=1e-12)


@each_program
def test_gradients_are_graphs_that_hold_for_every_trip_count(f):
    """One graph of the gradient, whatever the values: trip counts are symbols of it."""
    g = verify(lw.make_graph(lw.grad(lambda y: f(Ours, y)))(X))
    for graph in (g, verify(simplify(g))):
        for x in (X, -X, X * 0.1):
            np.testing.assert_allclose(evaluate(graph, [x])[0], lw.grad(lambda y: f(Ours, y))(x), rtol=1e-9, atol=1e-12)


def test_third_derivative_through_newtons_method():
    def root(a):
        return lax.while_loop(lambda s: np.abs(s * s - a) > 1e-13, lambda s: 0.5 * (s + a / s), a)
    g = root
    for order, want in enumerate((0.5, -0.25, 0.375), 1):
        g = lw.grad(g)
        np.testing.assert_allclose(g(2.0), want * 2.0 ** (0.5 - order), rtol=1e-9)
        np.testing.assert_allclose(lw.jit(g)(2.0), want * 2.0 ** (0.5 - order), rtol=1e-9)


def test_the_gradient_of_a_product_over_a_dynamic_loop():
    """Where others give [32, 8, 2]."""
    f = lw.grad(lambda x, n: lax.fori_loop(0, n, lambda i, p: p * x[i], 1.0))
    for g in (f, lw.jit(f)):
        np.testing.assert_array_equal(g(np.full(3, 4.0), np.int64(3)), [16.0, 16.0, 16.0])
        np.testing.assert_array_equal(g(np.full(3, 4.0), np.int64(1)), [1.0, 0.0, 0.0])
        np.testing.assert_array_equal(g(np.full(3, 4.0), np.int64(0)), [0.0, 0.0, 0.0])


def test_the_gradient_of_an_early_exit():
    """The first element over a bound, found by a loop that leaves: the gradient reaches what was read, not what was skipped."""
    def f(x):
        i, total = lax.while_loop(lambda s: x[s[0]] < 1.0, lambda s: (s[0] + 1, s[1] + x[s[0]] ** 2), (0, 0.0))
        return total * x[i]
    x = np.array([0.5, 0.25, 3.0, 9.0])
    want = [2 * 0.5 * 3, 2 * 0.25 * 3, 0.5 ** 2 + 0.25 ** 2, 0.0]
    for g in (lw.grad(f), lw.jit(lw.grad(f))):
        np.testing.assert_allclose(g(x), want)


def test_values_that_are_read_and_then_overwritten():
    """Where others lose the value that was read."""
    def f(x):
        def body(i, c):
            c[i + 1] = np.sin(c[i]) * c[i + 1]
            return c
        return np.sum(lax.fori_loop(0, x.shape[0] - 1, body, x * 1.0))

    def plain(x):
        c = x.copy()
        for i in range(len(x) - 1):
            c[i + 1] = np.sin(c[i]) * c[i + 1]
        return np.sum(c)
    want = Differences(1e-3).grad(plain)(X.astype(np.longdouble)).astype(float)
    for g in (lw.grad(f), lw.jit(lw.grad(f))):
        np.testing.assert_allclose(g(X), want, rtol=1e-9)


@pytest.mark.parametrize("value", [2.0, 0.6, 0.1])
def test_loops_of_no_trip_have_derivatives(value):
    def f(a):
        return lax.while_loop(lambda s: s > 0.5, lambda s: s - np.sqrt(s - 0.4) * 0.9, a)

    def plain(a):
        while a > 0.5:
            a = a - np.sqrt(a - np.longdouble("0.4")) * np.longdouble("0.9")
        return a
    want = float(Differences(1e-4).along(plain, np.longdouble(value), np.longdouble(1)))
    np.testing.assert_allclose(lw.grad(f)(value), want, rtol=1e-6)
    np.testing.assert_allclose(lw.jit(lw.grad(f))(value), want, rtol=1e-6)


def test_scans_of_no_trip_have_derivatives():
    def f(x, rows):
        last, ys = lax.scan(lambda c, a: (c * a, c), x, rows)
        return last + np.sum(ys)
    for g in (lw.grad(f, argnums=(0, 1)), lw.jit(lw.grad(f, argnums=(0, 1)))):
        first, second = g(3.0, np.zeros(0))
        assert first == 1.0 and second.shape == (0,)


def test_integers_go_along():
    def f(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x, s[2] ^ True), (np.int64(0), 1.0 * x, True))[1]
    for g in (f, lw.jit(f)):
        assert lw.grad(g)(2.0) == 4 * 2.0 ** 3
        assert lw.grad(lw.grad(g))(2.0) == 12 * 2.0 ** 2


def test_what_does_not_move_has_no_derivative():
    def f(x):
        n = lax.fori_loop(0, 3, lambda i, c: c + np.floor(x), 0.0)
        return n * x
    assert lw.grad(f)(2.5) == 6.0
    assert lw.grad(lambda x: lax.while_loop(lambda c: c < x, lambda c: c + 1.0, 0.0))(2.5) == 0.0


def test_stop_gradient():
    def f(x):
        return lax.scan(lambda c, r: (c * r + lax.stop_gradient(c), None), 1.0, x)[0]
    x = np.array([2.0, 3.0, 5.0])
    carries = [1.0, 3.0, 12.0]
    want = [carries[0] * 3 * 5, carries[1] * 5, carries[2]]
    for g in (lw.grad(f), lw.jit(lw.grad(f))):
        np.testing.assert_allclose(g(x), want)
    assert lax.stop_gradient({"a": 1, "b": X})["b"] is X
    assert lw.jvp(lambda x: lax.stop_gradient(x) * x, (3.0,), (1.0,)) == (9.0, 3.0)


def test_pullbacks_may_be_called_again_and_elsewhere():
    def f(x):
        return lax.while_loop(lambda s: np.sum(s) < 50.0, lambda s: s * x, x)
    x = np.array([1.5, 2.0])
    _, pull = lw.vjp(f, x)
    jacobian = lw.jacfwd(f)(x)
    for ct in np.eye(2):
        np.testing.assert_allclose(pull(ct)[0], ct @ jacobian)
    np.testing.assert_allclose(lw.vmap(pull)(np.eye(2))[0], jacobian)
    np.testing.assert_allclose(lw.jacrev(f)(x), jacobian)
    np.testing.assert_allclose(lw.jit(lw.jacrev(f))(x), jacobian)

    def twice(x):
        y, pull = lw.vjp(f, x)
        return np.sum(pull(y)[0] * pull(x)[0])
    np.testing.assert_allclose(twice(x), np.sum((f(x) @ jacobian) * (x @ jacobian)))
    np.testing.assert_allclose(lw.jit(twice)(x), twice(x))
    np.testing.assert_allclose(lw.jit(lw.grad(twice))(x), lw.grad(twice)(x))
    np.testing.assert_allclose(
        lw.jit(lambda x: (lambda pull: lax.scan(lambda c, ct: (c + pull(ct)[0], None), x * 0, np.stack([x, x * 2]))[0])(
            lw.vjp(f, x)[1]))(x), 3 * x @ jacobian)


def test_known_values_steer_python_in_bodies():
    rows = np.array([1.0, 2.0])
    f = lw.grad(lambda x: lax.scan(lambda c, a: (c * x if x > 0 else c + x, a), x, rows)[0])
    assert (f(2.0), f(-2.0)) == (12.0, 3.0)
    assert lw.grad(lambda x: np.sum(lw.vmap(lambda a: a * x if x > 0 else a)(rows)))(2.0) == 3.0
    assert lw.grad(lambda x: x * 2 if lax.while_loop(lambda s: s < 10.0, lambda s: s * 2, x) > 3 else x)(2.0) == 2.0
    g = lw.grad(lambda x: x * 2 if lw.grad(lambda y: lax.while_loop(lambda s: s < 10.0, lambda s: s * y, y))(x) > 3 else x)
    assert g(2.0) == 2.0
    with pytest.raises(lw.ConcretizationError):
        lw.jit(lw.grad(lambda x: lax.scan(lambda c, a: (c * x if x > 0 else c, a), x, rows)[0]))(2.0)


def test_cond_takes_nothing_from_the_branch_that_is_not_taken():
    f = lw.grad(lambda x: lax.cond(x > 0, np.log, lambda v: v * 0.0, x))
    for g in (f, lw.jit(f), lambda x: lw.vmap(f)(np.array([x, 1.0]))[0], lambda x: lw.jit(lw.vmap(f))(np.array([x, 1.0]))[0]):
        assert (g(-1.0), g(0.0), g(2.0)) == (0.0, 0.0, 0.5)


def test_residuals_of_loops_are_not_stacked_twice():
    """What a linear loop reads and the loop was given, or gives anyway, is not stored again; constants are never stored."""
    def f(x):
        last, ys = lax.scan(lambda c, r: (c * r * 2.0, c), 1.0, x)
        return last * np.sum(ys)
    g = simplify(lw.make_graph(lw.value_and_grad(f))(X))
    forward = next(n for n in g.nodes if n.op.name == "scan")
    assert len(forward.outputs) == 2  # the carry and ys: c * r is computed again


def test_a_transposed_loop_with_a_known_counter():
    """Linear in x alone: the counter is known, and read by the transpose."""
    def linear(E, x):
        return E.fori_loop(0, 3, lambda i, c: c * 2.0 + x * i, x)
    g = lw.make_graph(lambda x: linear(Ours, x))(X)

    def rule(ct):
        _, found = linearize(g, [zeros(tangent_type(g.params[0].type), ct.builder)], [True], ct.builder)
        return [pull_back(found, [ct], ct.builder)[0]]
    back, = evaluate(build(rule, [g.results[0].type]), [X])
    np.testing.assert_allclose(back, linear(Plain, np.eye(4)) @ X)


def test_gradients_of_containers_of_parameters():
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(3, 3)) * 0.5, "u": rng.normal(size=(3, 2)), "b": np.zeros(3)}
    rows = rng.normal(size=(6, 2))

    def loss(p, rows):
        def cell(h, r):
            h = np.tanh(p["w"] @ h + p["u"] @ r + p["b"])
            return h, np.sum(h * h)
        return np.sum(lax.scan(cell, rows[0, 0] * p["b"], rows)[1])
    found, compiled = lw.grad(loss)(params, rows), lw.jit(lw.grad(loss))(params, rows)
    for name, x in params.items():
        direction = rng.normal(size=x.shape)
        step = 1e-5 * direction
        want = (loss({**params, name: x + step}, rows) - loss({**params, name: x - step}, rows)) / 2e-5
        np.testing.assert_allclose(np.sum(found[name] * direction), want, rtol=1e-6)
        np.testing.assert_allclose(compiled[name], found[name], rtol=1e-9)
