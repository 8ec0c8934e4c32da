"""vmap of control flow: each element as if it were alone, whatever the others do."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.interpreter import evaluate
from loopwright.ir.rewriting import simplify
from loopwright.ir.verifier import verify

X = np.array([1.0, 2.0, 3.0, 4.0])
take = lw.numpy.take  # NumPy's own does not see that an index is traced


def assert_elementwise(f, *args, in_axes=0, rtol=1e-12):
    """vmap(f), interpreted and compiled, and its gradients, are f's and its gradient's on one element after another."""
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    size = next(np.shape(x)[a] for x, a in zip(args, axes, strict=True) if a is not None)
    rows = [[x if a is None else np.take(x, k, axis=a) for x, a in zip(args, axes, strict=True)] for k in range(size)]
    mapped = lw.vmap(f, in_axes=in_axes)
    want = np.stack([f(*row) for row in rows])
    for g in (mapped, lw.jit(mapped)):
        np.testing.assert_allclose(g(*args), want, rtol=rtol)
    verify(simplify(verify(lw.make_graph(mapped)(*args))))
    if args[0].dtype.kind != "f":
        return
    gradients = np.stack([lw.grad(f)(*row) for row in rows])
    each = lw.vmap(lw.grad(f), in_axes=in_axes)
    np.testing.assert_allclose(each(*args), gradients, rtol=rtol)
    np.testing.assert_allclose(lw.jit(each)(*args), gradients, rtol=rtol)
    verify(simplify(verify(lw.make_graph(each)(*args))))
    whole = lw.grad(lambda first, *rest: np.sum(mapped(first, *rest)))(*args)
    want = gradients.sum(axis=0) if axes[0] is None else np.moveaxis(gradients, 0, axes[0])
    np.testing.assert_allclose(whole, want, rtol=rtol)
    np.testing.assert_allclose(lw.jit(lw.grad(lambda first, *rest: np.sum(mapped(first, *rest))))(*args), want, rtol=rtol)


# ---- where all elements go on alike -----------------------------------------------------------------
def test_scans_and_counted_loops_batch_their_bodies():
    def f(x, w):
        return np.sum(lax.scan(lambda c, r: (np.tanh(w @ c + r), np.sum(c)), x, w)[0])
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    assert_elementwise(f, x, w, in_axes=(0, None), rtol=1e-10)
    assert_elementwise(f, x.T, w, in_axes=(1, None), rtol=1e-10)
    assert_elementwise(f, x, rng.normal(size=(5, 3, 3)), rtol=1e-10)
    loops = [n for n in lw.make_graph(lw.vmap(f, in_axes=(0, None)))(x, w).nodes if n.op.name == "scan"]
    assert len(loops) == 1 and "dot_general" in str(loops[0].regions[0])  # still one product for all


def test_while_with_a_common_condition_batches_its_body():
    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x), (0, 1.0))[1]
    assert_elementwise(f, X, np.int64(3), in_axes=(0, None))
    g = lw.make_graph(lw.vmap(f, in_axes=(0, None)))(X, 3)
    assert [n.op.name for n in g.nodes].count("while") == 1


def test_what_is_not_mapped_is_not_batched():
    def f(x, y):
        last, rows = lax.scan(lambda c, r: (c * r, c), 1.0, y)
        return x * last + rows[1]
    loop = next(n for n in lw.make_graph(lw.vmap(f, in_axes=(0, None)))(X, X).nodes if n.op.name == "scan")
    assert all(v.type.rank <= 1 for v in loop.outputs)


# ---- where each has its own condition ---------------------------------------------------------------
def test_uneven_while_loops():
    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, np.sin(s[1]) * x), (0, x))[1]
    for n in (np.array([0, 3, 1, 2]), np.zeros(4, int), np.array([5, 0, 0, 0])):
        assert_elementwise(f, X, n)


def test_finished_elements_read_nothing():
    """Masked loops read past the end, or fail, for elements that are done."""
    def first(n, x):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + take(x, s[0])), (np.int64(0), 0.0))[1]

    def rest(start, x):
        return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] + take(x, s[0])), (start, 0.0))[1]
    for g in (lambda f: f, lw.jit):
        np.testing.assert_array_equal(g(lw.vmap(first, in_axes=(0, None)))(np.array([4, 2, 0, 1]), X), [10, 3, 0, 1])
        np.testing.assert_array_equal(g(lw.vmap(rest, in_axes=(0, None)))(np.array([3, 0, 7]), X), [4, 10, 0])


def test_elements_that_fail_do():
    f = lw.jit(lw.vmap(lambda n, x: lax.fori_loop(0, n, lambda i, c: c + x[i], 0.0), in_axes=(0, 0)))
    rows = np.ones((3, 4))
    np.testing.assert_array_equal(f(np.array([4, 0, 2]), rows), [4.0, 0.0, 2.0])
    with pytest.raises(IndexError):
        f(np.array([4, 0, 5]), rows)


def test_inner_loops_of_finished_elements_do_not_run_on():
    """The inner loop ends only for a state at which the outer still runs."""
    def f(a):
        def outer(s):
            start = np.where(s < 10.0, 3.0, 11.0)
            return lax.while_loop(lambda u: u != 0.0, lambda u: np.where(u > 10.0, u, u - 1.0), start) + s * 2.0
        return lax.while_loop(lambda s: s < 10.0, outer, a)
    assert_elementwise(f, np.array([9.0, 1.0, 20.0]))


def test_no_nan_from_finished_elements():
    def f(a):
        return lax.while_loop(lambda s: s > 0.5, lambda s: s - np.sqrt(s - 0.4) * 0.9, a)
    assert_elementwise(f, np.array([2.0, 0.6, 0.1, 0.45]), rtol=1e-9)


def test_second_derivatives_of_uneven_loops():
    def f(x):
        return lax.while_loop(lambda s: s < 100.0, lambda s: s * x, x)
    x = np.array([3.0, 2.0, 11.0, 200.0])
    orders = [lambda y: y ** 5, lambda y: y ** 7, lambda y: y ** 2, lambda y: y]
    want = [20 * 3.0 ** 3, 42 * 2.0 ** 5, 2.0, 0.0]
    np.testing.assert_allclose([f(v) for v in x], [g(v) for g, v in zip(orders, x, strict=True)])
    for g in (lw.vmap(lw.grad(lw.grad(f))), lw.grad(lambda x: np.sum(lw.vmap(lw.grad(f))(x))),
              lw.grad(lambda x: np.sum(lw.grad(lambda y: np.sum(lw.vmap(f)(y)))(x))),
              lambda x: np.diag(lw.hessian(lambda y: np.sum(lw.vmap(f)(y)))(x))):
        np.testing.assert_allclose(g(x), want)
        np.testing.assert_allclose(lw.jit(g)(x), want)


def test_a_hessian_vector_product_through_a_dynamic_fold():
    def f(x, n):
        return lax.fori_loop(0, n, lambda i, c: c * take(x, i) + np.sin(c), 1.0)
    x, v = np.array([0.5, -1.5, 2.0]), np.array([1.0, -0.5, 0.25])
    for n in (0, 2, 3):
        def product(y, n):
            return lw.grad(lambda z: lw.grad(f)(z, n) @ v)(y)
        step = 1e-5
        want = (lw.grad(f)(x + step * v, n) - lw.grad(f)(x - step * v, n)) / (2 * step)
        np.testing.assert_allclose(lw.jit(product)(x, np.int64(n)), want, rtol=1e-6, atol=1e-9)
    counts = np.array([0, 2, 3])
    found = lw.vmap(lambda n, y: lw.grad(lambda z: lw.grad(f)(z, n) @ v)(y), in_axes=(0, None))(counts, x)
    np.testing.assert_allclose(found, [lw.jit(product)(x, np.int64(n)) for n in counts], rtol=1e-12)


def test_two_uneven_loops_one_after_the_other():
    def f(x):
        first = lax.while_loop(lambda s: s < 10.0, lambda s: s * x, x)
        middle = np.sin(first) * x + 3.0
        second = lax.while_loop(lambda s: s > 1.0, lambda s: s * 0.5 + 0.1 * np.cos(s * x), middle)
        return second * first
    assert_elementwise(f, np.array([1.5, 2.0, 4.0, 30.0]), rtol=1e-9)
    x = np.array([1.5, 2.0, 4.0])
    want = [lw.grad(lw.grad(f))(v) for v in x]
    np.testing.assert_allclose(lw.vmap(lw.grad(lw.grad(f)))(x), want, rtol=1e-9)
    np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(lw.grad(f))))(x), want, rtol=1e-8)


def test_vmap_of_vmap():
    def f(x, y):
        return lax.while_loop(lambda s: s < y, lambda s: s * x, x)
    y = np.array([3.0, 10.0, 50.0])
    want = np.array([[f(a, b) for b in y] for a in X + 0.5])
    both = lw.vmap(lw.vmap(f, in_axes=(None, 0)), in_axes=(0, None))
    gradient = lw.vmap(lw.vmap(lw.grad(f), in_axes=(None, 0)), in_axes=(0, None))
    slopes = np.array([[lw.grad(f)(a, b) for b in y] for a in X + 0.5])
    for g in (lambda h: h, lw.jit):
        np.testing.assert_allclose(g(both)(X + 0.5, y), want)
        np.testing.assert_allclose(g(gradient)(X + 0.5, y), slopes)


# ---- branches ---------------------------------------------------------------------------------------
def test_each_element_takes_its_branch():
    def f(x, n):
        return lax.switch(n, [lambda v: np.log(v), lambda v: np.sqrt(v) * v, lambda v: np.sum(v * np.arange(3.0))], x)
    x = np.array([-1.0, 2.0, 3.0, 0.0])
    with np.errstate(all="raise"):
        found = lw.vmap(f)(x, np.array([2, 0, 1, 2]))
        np.testing.assert_allclose(found, [-3.0, np.log(2.0), 3 * np.sqrt(3.0), 0.0])
        slopes = lw.vmap(lw.grad(f))(x, np.array([2, 0, 1, 2]))
    np.testing.assert_allclose(slopes, [3.0, 0.5, 1.5 * np.sqrt(3.0), 3.0])
    np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(f)))(x, np.array([2, 0, 1, 2])), slopes)
    np.testing.assert_allclose(lw.grad(lambda v: np.sum(lw.vmap(f)(v, np.array([2, 0, 1, 2]))))(x), slopes)


def test_branches_that_are_not_taken_fail_for_nobody():
    rows = np.arange(6.0)

    def f(i, x):
        return lax.cond(i < 6, lambda: take(x, i), lambda: -1.0)
    where = np.array([2, 9, 5, -7 + 6])
    for g in (lw.vmap(f, in_axes=(0, None)), lw.jit(lw.vmap(f, in_axes=(0, None)))):
        np.testing.assert_array_equal(g(where, rows), [2.0, -1.0, 5.0, 5.0])
    power = lw.jit(lw.vmap(lambda a, b: lax.cond(b >= 0, lambda: a ** b, lambda: a * 0)))
    np.testing.assert_array_equal(power(np.array([2, 3]), np.array([3, -1])), [8, 0])


def test_branches_with_loops_inside():
    def f(x):
        return lax.cond(x > 0, lambda: lax.while_loop(lambda s: s < 9.0, lambda s: s * (1.0 + x), 1.0), lambda: x * 2)
    assert_elementwise(f, np.array([0.5, -1.0, 2.0]))


def test_simple_branches_are_chosen_element_by_element():
    g = lw.make_graph(lw.vmap(lambda x: lax.cond(x > 0, lambda: np.sin(x), lambda: x * 2)))(X)
    assert "select" in str(g) and not any(n.regions for n in g.nodes)


def test_conditions_of_many_are_still_one():
    """A predicate that is not mapped stays a branch."""
    def f(x, p):
        return lax.cond(p, lambda: np.cumsum(x), lambda: x)
    rows = np.arange(6.0).reshape(2, 3)
    mapped = lw.vmap(f, in_axes=(0, None))
    np.testing.assert_array_equal(lw.jit(mapped)(rows, True), np.cumsum(rows, axis=1))
    np.testing.assert_array_equal(evaluate(lw.make_graph(mapped)(rows, True), [rows, np.bool_(False)])[0], rows)
