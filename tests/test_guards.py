"""Guards: what a trace asked about sizes decides which calls a version answers, and nothing else does."""
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.interpreter import evaluate
from loopwright.ir.parser import parse
from loopwright.ir.verifier import verify
from loopwright.tracer.pytree import flatten
from tests.scale import examples


def guards_of(f):
    return {str(g.constraint) for v in f.versions for g in v.guards}


def test_a_question_splits_the_sizes_in_two():
    @lw.jit
    def f(x):
        return x + 1 if x.shape[0] > 3 else x - 1

    for n in (0, 1, 2, 3, 4, 5, 100):
        x = np.arange(float(n))
        np.testing.assert_array_equal(f(x), x + 1 if n > 3 else x - 1)
    assert f.compiles == 2
    assert guards_of(f) == {"n >= 4", "n <= 3"} or len(guards_of(f)) == 2


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8))
@examples(40)
def test_broadcasting_makes_at_most_one_version_per_kind_of_size(shapes):
    f = lw.jit(lambda x, y: x + y)
    kinds = set()
    for n, m in shapes:
        if n != m and 1 not in (n, m):
            with pytest.raises(lw.ShapeError, match=r"shapes .*\d"):
                f(np.ones(n), np.ones(m))
            continue
        x, y = np.arange(float(n)), np.arange(float(m))
        np.testing.assert_array_equal(f(x, y), x + y)
        kinds.add("equal" if n == m else "left" if n == 1 else "right")
    assert f.compiles == len(kinds)


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # each way through it is a version
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=8))
@examples(40)
def test_python_over_sizes_is_right_for_every_call(calls):
    def plain(x, k):
        n = x.shape[0]
        if n % 2 == 0:
            x = x * 2
        if n // 3 > k.shape[0]:
            x = x + 1
        return x * min(n, 5) - len(k)

    f = lw.jit(plain)
    for n, m in calls:
        x, k = np.arange(float(n)), np.ones(m)
        np.testing.assert_array_equal(f(x, k), plain(x, k))
    compiled = f.compiles
    for n, m in calls:
        f(np.arange(float(n)), np.ones(m))
    assert f.compiles == compiled


def test_guards_name_the_users_line():
    @lw.jit
    def f(x):
        if x.shape[0] == 3:
            return x * 2
        return x

    f(np.ones(3))
    f(np.ones(4))
    line = inspect.getsourcelines(f.__wrapped__)[1] + 2
    assert [g.source.line for v in f.versions for g in v.guards] == [line, line]
    assert all(g.source.file == __file__ for v in f.versions for g in v.guards)


def test_equal_sizes_asked_for_share_one_symbol():
    f = lw.jit(lambda x, y: x + y)
    f(np.ones(3), np.ones(3))
    (version,) = f.versions
    assert len(version.graph.symbols) == 1 and len(version.guards) == 1
    assert len({n for leaf in version.signature.positional for n in map(str, leaf.type.shape)}) == 2


def test_equal_sizes_not_asked_for_stay_two():
    f = lw.jit(lambda x, y: (x + 1, y + 1))
    f(np.ones(3), np.ones(3))
    f(np.ones(3), np.ones(4))
    assert f.compiles == 1 and not guards_of(f)


def test_int_of_a_size_specialises():
    f = lw.jit(lambda x: x * int(x.shape[0]))
    for n in (2, 3, 2):
        np.testing.assert_array_equal(f(np.ones(n)), np.full(n, float(n)))
    assert f.compiles == 2 and guards_of(f) == {"n == 2", "n == 3"}


# ---- declared shapes --------------------------------------------------------------------------------
def test_declared_names_bind_across_arguments():
    @lw.jit(shapes=("n k", "k"))
    def f(x, w):
        return x * w

    for n, k in ((2, 3), (3, 2), (1, 1), (0, 4)):
        x, w = np.ones((n, k)), np.arange(float(k))
        np.testing.assert_array_equal(f(x, w), x * w)
    assert f.compiles == 1
    with pytest.raises(lw.ShapeDeclarationError, match=r"argument w of f: declared 'k' with k = 3 from axis 1 of argument x"):
        f(np.ones((2, 3)), np.ones(4))
    with pytest.raises(lw.ShapeDeclarationError, match=r"argument x of f: declared 'n k' \(2 axes\), got shape \(3,\)"):
        f(np.ones(3), np.ones(3))
    np.testing.assert_array_equal(f(np.ones((2, 3)), np.ones(3)), np.ones((2, 3)))
    assert f.compiles == 1


def test_declared_names_are_the_symbols():
    f = lw.jit(lambda x, w: x * w, shapes=("batch width", "width"))
    f(np.ones((2, 3)), np.ones(3))
    assert f.versions[0].graph.symbols == ("batch", "width")


def test_declared_integers_and_blanks():
    f = lw.jit(lambda x, y: x + y, shapes={"x": "_ 3"})
    f(np.ones((2, 3)), np.ones((2, 3)))
    f(np.ones((5, 3)), np.ones((5, 3)))
    assert f.compiles == 1
    with pytest.raises(lw.ShapeDeclarationError, match="declared '_ 3', got shape"):
        f(np.ones((3, 2)), 1.0)


def test_declarations_mirror_containers():
    f = lw.jit(lambda p, x: x * p["w"] + p["b"], shapes=({"w": "k", "b": None}, "n k"))
    f({"w": np.ones(3), "b": 1.0}, np.ones((2, 3)))
    with pytest.raises(lw.ShapeDeclarationError, match=r"axis 0 of argument p\['w'\]"):
        f({"w": np.ones(3), "b": 1.0}, np.ones((2, 4)))
    with pytest.raises(lw.ShapeDeclarationError, match="declared a dict"):
        f(np.ones(3), np.ones((2, 3)))


@pytest.mark.parametrize(("body", "needs"), [
    (lambda x, y: x * int(x.shape[0]), "n == 3"), (lambda x, y: x * len(range(x.shape[1])), "m == 2"),
    (lambda x, y: x[0] + y, r"\w+ == \w+")])
def test_a_trace_that_fixes_a_declared_size_is_an_error(body, needs):
    f = lw.jit(body, shapes=("n m", "k"))
    with pytest.raises(lw.ShapeDeclarationError, match=rf"test_guards\.py:\d+: .* this line needs {needs}"):
        f(np.ones((3, 2)), np.ones(2))
    assert f.compiles == 0


def test_declared_sizes_may_be_compared():
    f = lw.jit(lambda x: x + 1 if x.shape[0] > 3 else x, shapes="n")
    np.testing.assert_array_equal(f(np.ones(4)), np.full(4, 2.0))
    np.testing.assert_array_equal(f(np.ones(3)), np.ones(3))


def test_declarations_hold_inside_other_traces():
    inner = lw.jit(lambda x, y: x * y, shapes=("n", "n"))
    outer = lw.jit(lambda x, y: inner(x, y) + 1)
    np.testing.assert_array_equal(outer(np.ones(3), np.ones(3)), np.full(3, 2.0))
    np.testing.assert_array_equal(outer(np.ones(4), np.ones(4)), np.full(4, 2.0))
    assert outer.compiles == 1
    with pytest.raises(lw.ShapeDeclarationError, match="argument y of <lambda>"):
        outer(np.ones(3), np.ones(4))


@pytest.mark.parametrize("layers", [0, 1, 2, 5, 30])
@pytest.mark.parametrize("late", [0, 1, 40])
@pytest.mark.parametrize("transform", [lambda f: f, lw.grad, lambda f: lw.grad(lambda *a: lw.grad(f)(*a)[0][0].sum())],
                         ids=["itself", "grad", "grad of grad"])
def test_sizes_found_equal_while_a_trace_runs_are_one_size_in_the_whole_graph(layers, late, transform):
    """Layers make sizes equal one after another; `late` operations in a row come before, between and after those."""
    def f(parameters, x):
        x = lax.fori_loop(0, 2, lambda i, x: x + x, x)  # a region, with the sizes as they are before
        for w, b in parameters:
            for _ in range(late):
                x = x + 1.0
            x = x + np.tanh(x @ w + np.broadcast_to(b, (x.shape[0], b.shape[0])))
        return np.sum(x * x)

    parameters = [(np.eye(3) + k, np.arange(3.0)) for k in range(layers + 1)]
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    graph = verify(lw.make_graph(transform(f))(parameters, x))
    assert len(graph.free_symbols) == 2
    assert parse(str(graph)) == graph
    leaves = [a for pair in parameters for a in pair]
    for found, expected in zip(evaluate(graph, [*leaves, x]), flatten(transform(f)(parameters, x))[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_a_reshape_equates_sizes_in_the_order_of_the_axes():
    f = lw.jit(lambda x, y: y.reshape(x.shape) + x)
    for shape in [(4, 6), (5, 7), (3, 3), (1, 8)]:
        x, y = np.random.default_rng(0).normal(size=(2, *shape))
        np.testing.assert_array_equal(f(x, y), x + y)
    assert f.compiles <= 2  # one size of 1 may be a version of its own
    x = np.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(f(x, x.reshape(4, 3)), x + x)


def test_a_reshape_that_the_product_allows_asks_nothing_of_the_axes():
    f = lw.jit(lambda x: x.reshape(x.shape[1], x.shape[0]) * 2)
    for shape in [(4, 4), (5, 7), (3, 9)]:
        x = np.random.default_rng(0).normal(size=shape)
        np.testing.assert_array_equal(f(x), x.reshape(shape[::-1]) * 2)
    assert f.compiles == 1


def test_halves_of_what_was_halved_and_cut():
    def pooled(x):
        return np.max(x.reshape(x.shape[0] // 2, 2, x.shape[1] // 2, 2), axis=(1, 3))

    def f(x):
        return pooled(pooled(x)[4:, 4:])
    compiled = lw.jit(f)
    for n in (24, 28, 40):
        x = np.random.default_rng(n).normal(size=(n, n + 4))
        np.testing.assert_array_equal(compiled(x), f(x))
    assert compiled.compiles == 1
