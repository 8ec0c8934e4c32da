"""Loops whose rows do not meet run in strips of rows: which loops these are, and that their values are those of whole loops."""
import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.dims import symbol_of
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.control import scan
from loopwright.ir.verifier import verify
from loopwright.lower import program, strips
from loopwright.lower.control import padded_scan, strip_scan
from loopwright.lower.panels import with_panels
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.threads import bits_of

r = np.random.default_rng(7)
SMALL_CACHE = dataclasses.replace(host_target(), cache_bytes=1 << 12)


def numbers(*shape, dtype=np.float64):
    return r.normal(size=shape).astype(dtype)


@contextlib.contextmanager
def threads(count):
    lw.set_threads(count)
    try:
        yield
    finally:
        lw.set_threads(None)


def python_scan(step, state, xs, length=None, reverse=False):
    """`lax.scan` in Python."""
    rows, several = [], isinstance(xs, tuple)
    order = range(length if xs is None else len(xs[0] if several else xs))
    for k in reversed(order) if reverse else order:
        state, y = step(state, None if xs is None else tuple(x[k] for x in xs) if several else xs[k])
        rows.append(y)
    return state, None if rows[0] is None else np.stack(rows[::-1] if reverse else rows)


# ---- programs -------------------------------------------------------------------------------------
def network(run):
    def f(h, w, xs):
        def step(h, x):
            h = np.tanh(h @ w + x)
            return h, h
        return run(step, h, xs)
    return f


def gates(run):
    def f(h, c, w, u, b, xs):
        m = h.shape[1]

        def step(state, x):
            h, c = state
            z = x @ w + h @ u + b
            c = c / (1 + np.exp(-z[:, :m])) + np.tanh(z[:, m:2 * m])
            h = np.tanh(c) / (1 + np.exp(-z[:, 2 * m:]))
            return (h, c), h
        (h, c), ys = run(step, (h, c), xs)
        return h, c, ys
    return f


def shared_inputs(run):
    """Inputs that all rows have in common, and others, backwards."""
    def f(h, k, ts, xs):
        def step(h, row):
            t, x = row
            return h * k[:, None] + t * x, h - t
        return run(step, h, (ts, xs), reverse=True)
    return f


def vectors(run):
    def f(x, y):
        def step(state, _):
            x, y = state
            return (x + 0.1 * y, y - 0.1 * np.sin(x)), x
        (x, y), ys = run(step, (x, y), None, length=70)
        return x, y, ys
    return f


PROGRAMS = {
    "network": (network, lambda n, q, m: (numbers(n, m), numbers(m, m) / m, numbers(q, n, m))),
    "gates": (gates, lambda n, q, m: (numbers(n, m), numbers(n, m), numbers(2, 3 * m) / m, numbers(m, 3 * m) / m,
                                      numbers(3 * m), numbers(q, n, 2))),
    "shared inputs": (shared_inputs, lambda n, q, m: (numbers(n, m), numbers(n), numbers(q, m), numbers(q, n, m))),
    "vectors": (vectors, lambda n, q, m: (numbers(n * m), numbers(n * m))),
}
CACHED = {name: lw.jit(make(lax.scan)) for name, (make, _) in PROGRAMS.items()}


def close(got, want):
    for a, b in zip(got, want, strict=True):
        assert a.shape == np.shape(b) and a.dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("count", [1, 2, 3])
@given(n=st.sampled_from([0, 1, 2, 7, 8, 9, 16, 17, 31, 40, 100, 257]), q=st.integers(1, 40),
       m=st.sampled_from([1, 3, 8, 17, 64]))
@examples(12)
def test_values_are_those_of_a_python_loop(name, count, n, q, m):
    make, arguments = PROGRAMS[name]
    args = arguments(n, q, m)
    with threads(count), np.errstate(all="ignore"):
        close(CACHED[name](*args), make(python_scan)(*args))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [40, 300])
def test_bits_do_not_depend_on_threads(name, n):
    args = [x.astype("f") for x in PROGRAMS[name][1](n, 60, 64)]
    first, *others = bits_of(PROGRAMS[name][0](lax.scan), *args)
    assert all(x == first for x in others)


def test_gradients_and_batches():
    def loss(w, h, xs):
        return (network(lax.scan)(h, w, xs)[1] ** 2).sum()
    w, h, xs = numbers(24, 24) / 9, numbers(40, 24), numbers(50, 40, 24)
    found = []
    for count in (1, 2):
        with threads(count):
            found.append(lw.jit(lw.grad(loss, (0, 1, 2)))(w, h, xs))
    close(found[0], found[1])
    close(found[0], lw.grad(loss, (0, 1, 2))(w, h, xs))
    one = network(lax.scan)
    every = lw.jit(lw.vmap(lambda h, xs: one(h, w, xs), (0, 0)))(h, xs.swapaxes(0, 1).copy())
    want = network(python_scan)(h, w, xs)
    close(every, (want[0], want[1].swapaxes(0, 1)))


# ---- which loops ------------------------------------------------------------------------------------
def divided(f, *args, target=None):
    """The graph in strips, and the loops in them."""
    target = target or host_target()
    kernels = program.lower_graph(lw.make_graph(f)(*args), target, blas=True).kernels
    g = strips.in_strips(with_panels(kernels, target), target)
    return g, [m for n in g.nodes if n.op.name == "strips" for m in n.regions[0].nodes[0].regions[0].nodes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_in_strips_are_graphs_with_the_same_values(name):
    make, arguments = PROGRAMS[name]
    args = arguments(20, 9, 16)
    g, loops = divided(make(lax.scan), *args, target=SMALL_CACHE)
    assert [n.op for n in loops] == [strip_scan]
    verify(g)
    sizes = {symbol_of(d): k for v, x in zip(g.params, args, strict=True) for d, k in zip(v.type.shape, x.shape, strict=True)
             if symbol_of(d)}
    close(evaluate(g, args, sizes), make(python_scan)(*args))


@pytest.mark.parametrize("step, state", [
    (lambda s, x: (np.tanh(s @ s / 640 + x), s), (64, 64)),  # the state is the matrix
    (lambda s, x: (s - s.mean(0) + x, s), (64, 64)),
    (lambda s, x: (s + x, s.sum()), (64, 64)),
    (lambda s, x: (np.roll(s, 1, 0) + x, s), (64, 64)),
    (lambda s, x: (s[::-1] + x, s), (64, 64)),
    (lambda s, x: (np.cumsum(s, 0) * 0.1 + x, s), (64, 64)),
    (lambda s, x: (s * x[0, 0], s), ()),
    (lambda s, x: (s + x[:, 0].sum(), s), (8,)),
])
def test_rows_that_meet_stay_together(step, state):
    f = lambda s, xs: lax.scan(step, s, xs)  # noqa: E731
    args = numbers(*state), numbers(70, 64, 64)
    assert not divided(f, *args)[1]
    with threads(2):
        close(lw.jit(f)(*args), python_scan(step, *args))


def test_loops_inside_loops_stay_whole():
    def f(s, xs):
        return lax.scan(lambda s, _: (lax.scan(lambda s, x: (s * 0.5 + x, None), s, xs)[0], None), s, None, length=3)[0]
    args = numbers(30, 30), numbers(20, 30, 30)
    assert not divided(f, *args)[1]
    close([lw.jit(f)(*args)], [f(*args)])


def test_a_donated_state_is_one_strip():
    f = lw.jit(lambda s, xs: lax.scan(lambda s, x: (s * 0.5 + x, None), s, xs)[0], donate_argnums=0)
    s, xs = numbers(300, 30), numbers(20, 300, 30)
    want = python_scan(lambda s, x: (s * 0.5 + x, None), s, xs)[0]
    close([f(s.copy(), xs)], [want])


def test_short_vectors_keep_their_body():
    _, loops = divided(vectors(lax.scan), numbers(20), numbers(20))
    padded = [n for n in program.lower_graph(lw.make_graph(vectors(lax.scan))(numbers(20), numbers(20)), host_target(),
                                             blas=True).kernels.nodes if n.op in (scan, padded_scan)]
    assert [len(n.regions) for n in loops] == [len(n.regions) for n in padded]


def test_explanations_tell():
    f, g = lw.jit(network(lax.scan)), lw.jit(lambda s: lax.scan(lambda s, _: (s - s.mean(0), None), s, None, length=3)[0])
    f(*(args := PROGRAMS["network"][1](20, 9, 16)))
    g(s := numbers(20, 16))
    assert "no row needs another" in f.explain(*args)
    assert "no row needs another" not in g.explain(s)


# ---- errors -----------------------------------------------------------------------------------------
def test_the_line_of_an_error_is_told_by_any_thread():
    def f(s, k, xs):
        def step(s, x):
            s = np.tanh(s + x)
            return s[:, k], None
        return lax.scan(step, s, xs)[0]
    s, k, xs = numbers(5000, 4), np.array([0, 1, 9, 3]), numbers(50, 5000, 4)
    with threads(2), pytest.raises(IndexError, match="test_strips"):
        lw.jit(f)(s, k, xs)
