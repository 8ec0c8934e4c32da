"""Programs that break designs like this one: each broke a forerunner, or nearly. Expectations are worked out by hand or in
plain NumPy loops.
"""
import warnings

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import ConcretizationError, LeakedValueError, WriteError

X = np.array([1.0, 2.0, 3.0, 4.0])
WAYS = {"plain": lambda f: f, "jit": lw.jit}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
take = lw.numpy.take  # NumPy's own does not see that an index is traced


# ---- whose value is whose ---------------------------------------------------------------------------
def test_perturbations_are_not_confused():
    assert lw.grad(lambda x: x * lw.grad(lambda y: x + y)(1.0))(2.0) == 1.0
    assert lw.grad(lambda x: x * lw.grad(lambda y: x * y * y)(x))(3.0) == 54.0  # x * (2 x x), so 6 x x
    assert lw.jvp(lambda x: lw.jvp(lambda y: x * y, (x,), (x,))[1], (3.0,), (1.0,))[1] == 6.0


def test_work_on_outer_values_alone_belongs_to_its_branch():
    """Everything that the branch reads is from outside; it still must not run, nor fail, where it is not taken."""
    f = lw.jit(lambda x, i: lax.cond(i < 4, lambda: x[i] * 2.0, lambda: -1.0))
    assert f(X, 2) == 6.0 and f(X, 9) == -1.0
    assert lw.jit(lw.grad(lambda x, i: lax.cond(i < 4, lambda: x[i] * 2.0, lambda: x[0])))(X, 9).tolist() == [1, 0, 0, 0]


def test_a_leaked_array_says_so_whatever_its_shape_meets():
    box = []
    lw.jit(lambda x: (box.append(x), x)[1])(X)
    for use in (lambda y: y * box[0], lambda y: y @ box[0], lambda y: np.sum(box[0]) + y, lambda y: np.stack([box[0], y])):
        for transform in (lw.jit, lw.grad, lw.vmap):
            with pytest.raises(LeakedValueError, match=r"traced inside jit of .* was used after that trace ended"):
                transform(use)(np.ones((2, 3)))


def test_a_traced_array_is_in_no_set_and_no_key():
    for look in (lambda x: {1: 2.0}[x], lambda x: {x}, hash):
        with pytest.raises(TypeError, match=r"test_pitfalls\.py:\d+: a traced array is unhashable"):
            lw.jit(lambda x, look=look: look(x), static_argnames="look")(1)


def test_an_inner_traced_value_is_not_for_the_outer_trace():
    def f(x):
        box = []
        lw.grad(lambda y: (box.append(y * x), y)[1])(1.0)
        return box[0] * x
    with pytest.raises(LeakedValueError, match=r"test_pitfalls\.py"):
        lw.grad(f)(2.0)


def test_a_jitted_function_that_captures_a_traced_value_is_traced_anew():
    box = {}
    scaled = lw.jit(lambda y: y * box["x"])

    def f(x):
        box["x"] = x
        return scaled(3.0) * x
    assert [lw.grad(f)(v) for v in (1.0, 2.0)] == [6.0, 12.0]
    assert scaled.compiles == 0
    with pytest.raises(LeakedValueError):
        scaled(3.0)


def test_a_captured_array_is_read_at_every_call():
    shift = np.ones(2)
    f = lw.jit(lambda x: x + shift)
    assert f(np.zeros(2)).tolist() == [1.0, 1.0]
    shift[0] = 5.0
    assert f(np.zeros(2)).tolist() == [5.0, 1.0] and f.compiles == 1


def test_one_jitted_loop_inlined_twice():
    """The trip counts of its two copies are two numbers."""
    root = lw.jit(lambda a: lax.while_loop(lambda s: np.abs(s * s - a) > 1e-13, lambda s: 0.5 * (s + a / s), a))

    def f(x):
        return root(x) * root(x * 100.0 + 1.0)

    def exact(x):
        return np.sqrt(x) * np.sqrt(x * 100 + 1)
    slope = (exact(2.0) * (1 / 2.0 + 100 / 201.0)) / 2
    for g in (lw.grad(f), lw.jit(lw.grad(f)), lambda x: lw.vmap(lw.grad(f))(np.array([x, 3.0]))[0]):
        np.testing.assert_allclose(g(2.0), slope, rtol=1e-12)


# ---- writes -----------------------------------------------------------------------------------------
def test_an_alias_sees_what_is_written():
    def f(x):
        y = x * 1.0
        z = y
        y += 1.0
        return np.sum(z * y)
    assert f(X) == 54.0
    np.testing.assert_array_equal(lw.grad(f)(X), 2 * (X + 1))
    np.testing.assert_array_equal(lw.jit(lw.grad(f))(X), 2 * (X + 1))


@pytest.mark.parametrize("around", [
    lambda x, write: lax.cond(x[0] > 0, write, lambda: x[0]),
    lambda x, write: lax.fori_loop(0, 2, lambda i, c: c + write(), 0.0),
    lambda x, write: lax.while_loop(lambda c: c < 3.0, lambda c: c + write(), 0.0),
    lambda x, write: lw.vmap(lambda a: a * write())(x)[0],
    lambda x, write: lw.grad(lambda a: a * write())(x[1]),
], ids=["cond", "fori_loop", "while_loop", "vmap", "grad"])
def test_a_write_does_not_leave_a_body(around):
    def f(x):
        y = x * 1.0

        def write():
            y[0] = 7.0
            return y[0]
        around(x, write)
        return np.sum(y * x)
    for g in (lw.grad(f), lw.jit(f)):
        with pytest.raises(WriteError, match=r"test_pitfalls\.py"):
            g(X)


# ---- questions --------------------------------------------------------------------------------------
def test_questions_about_outer_values_inside_bodies():
    """Outside jit a gradient knows its values, wherever they are asked for."""
    scanned = lw.grad(lambda x: lax.scan(lambda c, a: (c * x if x > 0 else c + x, a), x, X)[0])
    assert scanned(2.0) == 5 * 2.0 ** 4 and scanned(-2.0) == 5.0
    mapped = lw.grad(lambda x: np.sum(lw.vmap(lambda a: a * x if x > 0 else a)(X)))
    assert mapped(2.0) == 10.0 and mapped(-2.0) == 0.0
    with pytest.raises(ConcretizationError, match=r"test_pitfalls\.py"):
        lw.jit(mapped)(2.0)
    with pytest.raises(ConcretizationError):
        lw.grad(lw.jit(lambda x: x if x > 0 else -x))(1.0)
    with pytest.raises(ConcretizationError):
        lw.grad(lambda x: lax.scan(lambda c, a: (c * x if c > 0 else c, a), x, X)[0])(2.0)


def test_questions_about_what_transforms_and_loops_gave():
    assert lw.grad(lambda x: x * 2 if lw.grad(lambda y: y * y * x)(x) > 3 else x)(2.0) == 2.0
    assert lw.grad(lambda x: x * 2 if lw.grad(lambda y: y * y * x)(x) > 9 else x)(2.0) == 1.0
    assert lw.grad(lambda x: x * 2 if lax.while_loop(lambda s: s < 10.0, lambda s: s * 2, x) > 15 else x)(2.0) == 2.0


def test_questions_about_sizes_inside_bodies():
    f = lw.jit(lambda x: lax.scan(lambda c, a: (c + (a if x.shape[0] > 2 else -a), a), 0.0 * x[0], x)[0])
    assert [f(X), f(X[:2]), f(X[:3])] == [10.0, -3.0, 6.0] and f.compiles == 2


def test_a_size_that_becomes_an_int_says_so():
    f = lw.jit(lambda x: x + np.zeros(x.shape[0]))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert f(np.ones(3)).shape == (3,) and f(np.ones(4)).shape == (4,)
    assert f.compiles == 2 and any("loopwright.numpy.zeros" in str(w.message) for w in found)
    g = lw.jit(lambda x: x + np.eye(x.shape[0]))
    with pytest.warns(lw.SpecialisationWarning, match=r"eye takes only .*loopwright\.numpy\.eye"):
        assert [g(np.ones((n, n))).shape for n in (3, 4)] == [(3, 3), (4, 4)]


def test_guards_of_an_inner_function_are_decided_by_the_sizes_around_it():
    """What the outer function knows of its sizes answers the inner one's question: no guard is left."""
    inner = lw.jit(lambda y: y * 2.0 if y.shape[0] > 3 else -y)
    f = lw.jit(lambda x: inner(lw.numpy.concatenate([x, x, np.ones(4)])))
    for n in (0, 1, 5):
        np.testing.assert_array_equal(f(np.ones(n)), [2.0] * (2 * n + 4))
    assert f.compiles == 1 and "guard" not in f.explain(np.ones(2))
    g = lw.jit(lambda x: inner(x))
    assert [g(np.ones(n))[0] for n in (1, 4, 2, 7)] == [-1.0, 2.0, -1.0, 2.0] and g.compiles == 2
    assert "test_pitfalls.py" in g.explain(np.ones(2)).split("guard", 1)[1]


def test_sizes_that_are_equal_once_compile_once():
    """f of n and m must not take the equality of one call for a property of all, nor compile for each n."""
    f = lw.jit(lambda x, y: np.sum(x) * np.sum(y))
    for n, m in ((3, 3), (4, 5), (6, 6), (7, 2)):
        assert f(np.ones(n), np.ones(m)) == n * m
    assert f.compiles == 1
    g = lw.jit(lambda x, y: x + y)
    for n in (3, 4, 7):
        g(np.ones(n), np.ones(n))
    assert g.compiles == 1


# ---- loops ------------------------------------------------------------------------------------------
def first_of(x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + take(x, s[0])), (np.int64(0), np.float64(0)))[1]


def rest_of(x, start):
    return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] + take(x, s[0])), (start, np.float64(0)))[1]


@ways
def test_finished_elements_read_nothing(way):
    np.testing.assert_array_equal(way(lw.vmap(first_of, in_axes=(None, 0)))(X, np.array([4, 2, 0, 1])), [10, 3, 0, 1])
    np.testing.assert_array_equal(way(lw.vmap(rest_of, in_axes=(None, 0)))(X, np.array([3, 0, 4])), [4, 10, 0])
    slopes = way(lw.vmap(lw.grad(first_of), in_axes=(None, 0)))(X, np.array([4, 2, 0]))
    np.testing.assert_array_equal(slopes, [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])


@ways
def test_inner_loops_of_finished_elements_end(way):
    def f(a):
        def outer(s):
            start = np.where(s < 10.0, 3.0, 11.0)
            return lax.while_loop(lambda u: u != 0.0, lambda u: np.where(u > 10.0, u, u - 1.0), start) + s * 2.0
        return lax.while_loop(lambda s: s < 10.0, outer, a)
    np.testing.assert_array_equal(way(lw.vmap(f))(np.array([9.0, 1.0, 12.0])), [18.0, 16.0, 12.0])
    np.testing.assert_array_equal(way(lw.vmap(lw.grad(f)))(np.array([9.0, 1.0, 12.0])), [2.0, 16.0, 1.0])


def rooted(a):
    return lax.while_loop(lambda s: s > 0.5, lambda s: s - np.sqrt(s - 0.4) * 0.9, a)


@ways
@pytest.mark.parametrize("g", [lw.vmap(lw.grad(rooted)), lw.grad(lambda v: np.sum(lw.vmap(rooted)(v)))],
                         ids=["vmap of grad", "grad of vmap"])
def test_no_nan_of_finished_elements_enters_a_gradient(way, g):
    """Past its end an element would take the root of a negative number."""
    starts, want = np.array([2.0, 0.6, 0.1]), []
    for s in starts:
        slope = 1.0
        while s > 0.5:
            slope *= 1 - 0.45 / np.sqrt(s - 0.4)
            s = s - np.sqrt(s - 0.4) * 0.9
        want.append(slope)
    np.testing.assert_allclose(way(g)(starts), want, rtol=1e-12)


@ways
def test_branches_that_are_not_taken_leave_no_nan(way):
    def f(x):
        return lax.cond(x > 0, lambda v: np.log(v), lambda v: v * 0.0, x)
    assert way(lw.grad(f))(-1.0) == 0.0
    np.testing.assert_array_equal(way(lw.vmap(lw.grad(f)))(np.array([-1.0, 0.0, 4.0])), [0.0, 0.0, 0.25])
    np.testing.assert_array_equal(way(lw.grad(lambda v: np.sum(lw.vmap(f)(v))))(np.array([-1.0, 0.0, 4.0])), [0.0, 0.0, 0.25])


def test_constants_inside_a_branch():
    nan = np.float64(np.nan)
    assert lw.grad(lambda x: lax.cond(x > 0, lambda: x * nan, lambda: x))(-2.0) == 1.0
    assert np.isnan(lw.grad(lambda x: lax.cond(x > 0, lambda: x * nan, lambda: x))(2.0))


@ways
def test_loops_of_no_trip(way):
    assert way(lw.grad(lambda x: lax.while_loop(lambda s: s < 0, lambda s: s * x, x)))(3.0) == 1.0
    assert way(lw.grad(lambda x: lax.scan(lambda c, a: (c * a, c), x, np.zeros(0))[0]))(3.0) == 1.0
    assert way(lw.grad(lambda x, n: lax.fori_loop(3, n, lambda i, c: c * x, x)))(3.0, 2) == 1.0


@ways
def test_a_loop_in_a_branch_that_is_not_taken(way):
    """Its trip count is 0 then."""
    def f(x, p):
        return lax.cond(p, lambda: lax.while_loop(lambda s: s < 100.0, lambda s: s * x, x), lambda: x * 3.0)
    assert way(lw.grad(f))(3.0, False) == 3.0
    np.testing.assert_allclose(way(lw.grad(f))(3.0, True), 5 * 3.0 ** 4)
    np.testing.assert_allclose(way(lw.vmap(lw.grad(f)))(np.array([3.0, 3.0]), np.array([True, False])), [405.0, 3.0])


@ways
def test_integers_beside_floats_in_a_carry(way):
    def f(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (np.int64(0), 1.0 * x))[1]
    assert way(lw.grad(lw.grad(f)))(2.0) == 12 * 2.0 ** 2


@ways
def test_trip_counts_that_differ_inside_a_loop(way):
    """What the inner loop stacks has another length in every trip of the outer one."""
    def f(x):
        def body(c, r):
            c = lax.while_loop(lambda s: s > 1.0, lambda s: s * 0.5 * x, c + r)
            return c, c * r
        return np.sum(lax.scan(body, x, np.array([0.5, 30.0, 2.0, 0.0]))[1])

    def slope(x):
        c, d, total = x, 1.0, 0.0
        for r in (0.5, 30.0, 2.0, 0.0):
            c = c + r
            while c > 1.0:
                c, d = c * 0.5 * x, d * 0.5 * x + c * 0.5
            total += d * r
        return total
    np.testing.assert_allclose(way(lw.grad(f))(1.1), slope(1.1), rtol=1e-12)
    np.testing.assert_allclose(way(lw.vmap(lw.grad(f)))(np.array([1.1, 0.3])), [slope(1.1), slope(0.3)], rtol=1e-12)


@ways
def test_the_last_of_several_writes_to_one_place_has_the_gradient(way):
    def f(x):
        def body(i, c):
            c[np.array([1, 1, 0])] = x[:3] * c[3]
            return c
        return lax.fori_loop(0, 2, body, np.array([0.0, 0.0, 5.0, 2.0])) @ np.array([10.0, 100.0, 0.0, 0.0])
    np.testing.assert_array_equal(way(lw.grad(f))(X), [0.0, 200.0, 20.0, 0.0])


def test_containers_of_traced_values_are_not_compared():
    """`in`, `==` and `count` on lists of traced values would emit operations, or ask for values."""
    g = lw.make_graph(lambda x: lax.scan(lambda c, r: ((c[0], c[1] + r, c[0]), None), (x[0], x[1], x[0]), x)[0])(X)
    assert not any("eq" in n.op.name for n in g.nodes) and "eq(" not in str(g)
