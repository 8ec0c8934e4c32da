"""What control flow means: each function eagerly, in an interpreted graph, simplified, and compiled, against Python loops."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import VerificationError
from loopwright.ir.interpreter import evaluate
from loopwright.ir.parser import parse
from loopwright.ir.rewriting import simplify
from loopwright.ir.verifier import verify
from loopwright.tracer.pytree import flatten

X = np.array([0.5, -1.0, 2.0, 3.0])


def graph_of(f, *args):
    """The graph of f, checked, with a text that reads back."""
    g = lw.make_graph(f)(*args)
    assert parse(str(verify(g))) == g
    return g


def assert_everywhere(f, *args, want):
    """f gives what is wanted in every way of running it."""
    want = [np.asarray(x) for x in flatten(want)[0]]
    g = graph_of(f, *args)
    small = verify(simplify(g))
    assert simplify(small) == small
    leaves = flatten(args)[0]
    for found in (flatten(f(*args))[0], evaluate(g, leaves), evaluate(small, leaves), flatten(lw.jit(f)(*args))[0]):
        assert len(found) == len(want)
        for a, b in zip(found, want, strict=True):
            assert np.asarray(a).dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-14)


# ---- cond and switch ------------------------------------------------------------------------------
@pytest.mark.parametrize("x", [X, -X])
def test_cond_runs_one_branch(x):
    def f(x):
        return lax.cond(np.sum(x) > 0, lambda a, b: (a * 2, b), lambda a, b: (a - 1, b + x[0]), x, x[1])
    assert_everywhere(f, x, want=(x * 2, x[1]) if np.sum(x) > 0 else (x - 1, x[1] + x[0]))


def test_predicates_may_be_numbers():
    assert lax.cond(3, lambda: 1, lambda: 2) == 1
    assert_everywhere(lambda n: lax.cond(n, lambda: 1.5, lambda: 2.5), np.int32(0), want=2.5)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_clamps_its_index(index):
    branches = [lambda x: x + 1, np.sin, lambda x: x * x]
    want = branches[min(max(index, 0), 2)](X)
    assert_everywhere(lambda i, x: lax.switch(i, branches, x), np.int64(index), X, want=want)
    np.testing.assert_array_equal(lax.switch(index, branches, X), want)


def test_unsigned_indices_are_clamped_too():
    assert lw.jit(lambda i: lax.switch(i, [lambda: 1, lambda: 2, lambda: 3]))(np.uint64(2**63 + 5)) == 3


def test_a_branch_that_is_not_taken_raises_no_error():
    def f(x, i):
        return lax.cond(i < 4, lambda: x[i], lambda: 0.0)
    assert lw.jit(f)(X, 7) == 0.0
    assert evaluate(graph_of(f, X, 7), [X, np.int64(7)])[0] == 0.0
    with pytest.raises(IndexError):
        lw.jit(lambda x, i: lax.cond(i > 4, lambda: x[i], lambda: 0.0))(X, 7)


def test_python_numbers_in_branches_take_the_dtype_of_the_other():
    def f(x):
        return lax.cond(x[0] > 0, lambda: x[0], lambda: 0.0)
    assert graph_of(f, X.astype(np.float32)).results[0].type.dtype == np.float32


def test_a_constant_predicate_leaves_its_branch():
    small = simplify(graph_of(lambda x: lax.cond(True, lambda: x * 2, lambda: np.sin(x)), X))
    assert [n.op.name for n in small.nodes] == ["full", "mul"]


# ---- loops ----------------------------------------------------------------------------------------
def test_while_loop():
    def f(x):
        return lax.while_loop(lambda s: (s[0] < 5) & (s[1] < 40), lambda s: (s[0] + 1, s[1] * x), (0, x))
    assert_everywhere(f, 3.0, want=(3, 81.0))
    assert_everywhere(f, 100.0, want=(0, 100.0))


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_containers(reverse):
    def f(x):
        def body(carry, row):
            new = {"sum": carry["sum"] + row["a"], "product": carry["product"] * row["b"][0]}
            return new, (carry["sum"], None, [row["a"] * 2])
        return lax.scan(body, {"sum": 0.0, "product": 1.0}, {"a": x, "b": (x + 1,)}, reverse=reverse)
    rows = X[::-1] if reverse else X
    before = np.cumsum(rows) - rows
    want = {"sum": np.sum(X), "product": np.prod(X + 1)}, ((before[::-1] if reverse else before), None, [X * 2])
    assert_everywhere(f, X, want=want)


def test_scan_by_length():
    assert_everywhere(lambda x: lax.scan(lambda c, _: (c * 2, c), x, length=4), 1.5, want=(24.0, 1.5 * 2.0 ** np.arange(4)))
    assert_everywhere(lambda x: lax.scan(lambda c, _: (c + 1, None), x[0], length=x.shape[0])[0], X, want=4.5)


@pytest.mark.parametrize("unroll", [1, 2, 4, 9, True, False])
def test_unrolling_changes_nothing(unroll):
    def f(x):
        return lax.scan(lambda c, r: (c * 0.5 + r, c), x[0], x, length=4, reverse=True, unroll=unroll)
    want = f(X)
    assert_everywhere(f, X, want=want)


def test_loops_of_no_trip():
    empty = np.zeros((0, 3))
    assert_everywhere(lambda x, c: lax.scan(lambda c, r: (c + r, (c, np.sum(r))), c, x), empty, np.ones(3),
                      want=(np.ones(3), (np.zeros((0, 3)), np.zeros(0))))
    assert_everywhere(lambda x: lax.fori_loop(5, 2, lambda i, c: c + 1, x), 1.0, want=1.0)
    assert_everywhere(lambda x: lax.fori_loop(3, x.shape[0], lambda i, c: c + 1, 2.0), empty, want=2.0)
    assert_everywhere(lambda n: lax.fori_loop(5, n, lambda i, c: c + 1, 2.0), np.int64(2), want=2.0)


def test_one_loop_for_all_sizes():
    f = lw.jit(lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i] * i, 0.0))
    for n in (2, 5, 9):
        assert f(np.arange(float(n))) == sum(float(i) ** 2 for i in range(n))
    assert f.compiles == 1


def test_bounds_of_fori_loop_may_be_data():
    assert_everywhere(lambda n, x: lax.fori_loop(1, n, lambda i, c: c * x + i, 1.0), np.int32(4), 2.0,
                      want=((1 * 2.0 + 1) * 2 + 2) * 2 + 3)


def test_python_bounds_count_as_python_numbers():
    x = np.ones(3, np.float32)
    assert graph_of(lambda x: lax.fori_loop(0, 3, lambda i, c: c + x * i, x), x).results[0].type.dtype == np.float32


def test_initial_numbers_take_the_dtype_of_the_body():
    x = np.arange(3, dtype=np.float32)
    want = np.float32(3), np.array([0, 0, 1], np.float32)
    assert_everywhere(lambda x: lax.scan(lambda c, r: (c + r, c), 0.0, x), x, want=want)
    assert_everywhere(lambda x: lax.scan(lambda c, r: (c + r, None), 0, x)[0], x, want=np.float32(3))
    assert_everywhere(lambda n: lax.while_loop(lambda c: c < n, lambda c: c + 1.5, 0), 4, want=4.5)


def test_map_and_batches_of_it():
    rows = np.arange(15.0).reshape(5, 3)
    want = rows * np.sum(rows, axis=1, keepdims=True)
    for size in (None, 1, 2, 5, 8):
        def f(x, size=size):
            return lax.map(lambda r: r * np.sum(r), x, batch_size=size)
        np.testing.assert_allclose(f(rows), want)
        np.testing.assert_allclose(lw.jit(f)(rows), want)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_of_matrices(n, reverse):
    rng = np.random.default_rng(n)
    elems = {"a": rng.normal(size=(2, n, 2, 2)), "b": rng.normal(size=(2, n, 2, 1))}

    def after(x, y):
        return {"a": y["a"] @ x["a"], "b": y["a"] @ x["b"] + y["b"]}
    order = range(n)[::-1] if reverse else range(n)
    now, rows = None, {}
    for k in order:
        row = {name: x[:, k] for name, x in elems.items()}
        now = row if now is None else after(now, row)
        rows[k] = now
    want = {name: np.stack([rows[k][name] for k in range(n)], axis=1) for name in elems}
    found = lax.associative_scan(after, elems, reverse=reverse, axis=1)
    compiled = lw.jit(lambda e: lax.associative_scan(after, e, reverse=reverse, axis=1))(elems)
    for name in elems:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-10)
        np.testing.assert_allclose(compiled[name], want[name], rtol=1e-10)


def test_loops_nest():
    def f(x):
        def row(total, r):
            steps = lax.while_loop(lambda s: s[1] < 20.0, lambda s: (s[0] + 1, s[1] * (1.5 + r)), (0, 1.0 + total * 0))[0]
            return total + lax.cond(steps > 4, lambda: r, lambda: lax.fori_loop(0, 2, lambda i, c: c * r + i, 1.0)), steps
        return lax.scan(row, 0.0, x)

    x, total, counts = np.array([0.1, 0.9, 3.0]), 0.0, []
    for r in x:
        s, n = 1.0, 0
        while s < 20:
            n, s = n + 1, s * (1.5 + r)
        total += r if n > 4 else (1.0 * r + 0) * r + 1
        counts.append(n)
    assert_everywhere(f, x, want=(total, np.array(counts)))


def test_every_dtype_goes_round():
    def f(x):
        return lax.scan(lambda c, r: (r, c), x[0], x)
    for dtype in ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32"):
        x = np.array([1, 0, 1], dtype)
        assert_everywhere(f, x, want=(x[2], x[[0, 0, 1]]))
    for dtype in ("complex64", "complex128"):
        x = np.array([1j, 0, 1 - 1j], dtype)
        assert_everywhere(f, x, want=(x[2], x[[0, 0, 1]]))


# ---- whose values are whose -----------------------------------------------------------------------
def test_bodies_may_write_their_parameters():
    def f(x):
        def body(i, c):
            c[i] = c[i] * 2
            c += 1
            return c
        return lax.fori_loop(0, 3, body, x)
    want = X.copy()
    for i in range(3):
        want[i] *= 2
        want += 1
    before = X.copy()
    assert_everywhere(f, X, want=want)
    np.testing.assert_array_equal(X, before)


def test_rows_and_operands_may_be_written():
    def row(c, r):
        r[0] = c
        return c + 1, r

    def branch(y):
        y[0] = 7.0
        return y
    rows = np.ones((2, 2))
    assert_everywhere(lambda x: lax.scan(row, 5.0, x), rows, want=(7.0, np.array([[5.0, 1.0], [6.0, 1.0]])))
    assert_everywhere(lambda x: lax.cond(x[2] > 0, branch, lambda y: y, x), X, want=np.array([7.0, -1.0, 2.0, 3.0]))
    assert np.all(rows == 1) and X[0] == 0.5


def test_a_new_carry_may_be_an_array_of_outside():
    table = np.ones(2)

    def body(i, c):
        c[0] += 5.0
        return table
    lax.fori_loop(0, 3, body, np.zeros(2))
    np.testing.assert_array_equal(table, 1.0)


def test_writing_an_array_of_the_enclosing_function_is_refused():
    def f(x):
        y = x * 1.0

        def branch():
            y[0] = 7.0
            return y[0]
        return lax.cond(x[0] > 0, branch, lambda: x[0]) + np.sum(y)
    for g in (lw.jit(f), lw.grad(f)):
        with pytest.raises(lw.WriteError, match="enclosing"):
            g(X)


def test_values_of_a_body_do_not_leak():
    kept = []

    def f(x):
        lax.scan(lambda c, r: (kept.append(r), (c, r))[1], 0.0, x)
        return kept[0] * 2
    with pytest.raises(lw.LeakedValueError):
        lw.jit(f)(X)


def test_captured_arrays_are_read_at_every_call():
    table = np.arange(4.0)
    f = lw.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + lw.numpy.take(table, i), 0.0))
    assert f(np.int64(3)) == 3.0
    table[0] = 10.0
    assert f(np.int64(3)) == 13.0


def test_questions_about_sizes_in_bodies_are_guards():
    f = lw.jit(lambda x: lax.scan(lambda c, r: (c + (r if x.shape[0] > 2 else -r), None), 0.0, x)[0])
    assert (f(np.ones(4)), f(np.ones(5)), f.compiles) == (4.0, 5.0, 1)
    assert (f(np.ones(2)), f.compiles) == (-2.0, 2)


def test_jitted_functions_inside_bodies():
    inner = lw.jit(lambda c, r: c * 0.5 + r)
    want = ((0.25 - 1.0) * 0.5 + 2.0) * 0.5 + 3.0
    assert_everywhere(lambda x: lax.scan(lambda c, r: (inner(c, r), c), 0.0, x)[0], X, want=want)


def test_outside_traces_values_are_real():
    seen = []

    def body(i, c):
        seen.append(float(c))
        return c + X[i] if c < 1 else c
    assert lax.fori_loop(0, 3, body, 0.25) == 0.25 + 0.5 - 1.0 + 2.0
    assert seen == [0.25, 0.75, -0.25]


# ---- errors ---------------------------------------------------------------------------------------
BOTH = pytest.mark.parametrize("run", [lambda f, *args: f(*args), lambda f, *args: lw.jit(f)(*args)], ids=["eager", "jit"])


@BOTH
@pytest.mark.parametrize("body, error, words", [
    (lambda c: {"a": c["a"], "b": np.concatenate([c["b"], c["b"]])}, lw.ShapeError,
     ["carry['b'] is f64[", "] before a trip and f64[", "] after it", "reshape"]),
    (lambda c: {"a": c["a"] + 1j, "b": c["b"]}, lw.DTypeError, ["carry['a'] is f32[]", "c64[]", "x.astype(...)"]),
    (lambda c: (c["a"], c["b"]), lw.ArgumentError, ["structure", "dict", "tuple"]),
])
def test_a_carry_that_changes_shows_both_types_and_the_path(run, body, error, words):
    with pytest.raises(error) as caught:
        run(lambda a, b: lax.while_loop(lambda c: c["a"] < 3, body, {"a": a, "b": b}), np.float32(1), np.ones(2))
    assert all(w in str(caught.value) for w in [*words, "test_control_flow.py"]), caught.value


@BOTH
@pytest.mark.parametrize("stop", [3, np.int64(3)], ids=["scan", "while"])
def test_a_carry_of_fori_loop_that_changes_is_named_as_users_know_it(run, stop):
    def f(x, n):
        return lax.fori_loop(0, 3 if isinstance(stop, int) else n, lambda i, val: {"a": val["a"].astype(np.float32)}, {"a": x})
    with pytest.raises(lw.DTypeError, match=r"test_control_flow\.py:\d+.*carry\.val\['a'\] is f64\[.\] .* f32\[.\] after it"):
        run(f, X, stop)


@pytest.mark.parametrize("other, error, words", [
    (lambda x: x.astype(np.float32), lw.DTypeError, ["result of false_fun", "is f64[n]", "of true_fun", "is f32[n]", "astype"]),
    (lambda x: np.sum(x), lw.ShapeError, ["f64[n]", "f64[]", "broadcast to one shape"]),
    (lambda x: (x, x), lw.ArgumentError, ["structure", "tuple"]),
])
def test_branches_that_disagree_show_both(other, error, words):
    with pytest.raises(error) as caught:
        lw.jit(lambda x: lax.cond(x[0] > 0, other, lambda x: x, x))(X)
    assert all(w in str(caught.value) for w in [*words, "test_control_flow.py"]), caught.value


@BOTH
def test_what_cannot_be_control_flow_says_so(run):
    for f, error, words in (
            (lambda x: lax.cond(x > 0, lambda: 1, lambda: 2), lw.ShapeError, "np.where"),
            (lambda x: lax.switch(x[0], [lambda: 1]), lw.DTypeError, "integer"),
            (lambda x: lax.switch(0, []), lw.ArgumentError, "at least one branch"),
            (lambda x: lax.while_loop(lambda c: c, lambda c: c, x[0]), lw.DTypeError, "one bool"),
            (lambda x: lax.while_loop(lambda c: c > 0, lambda c: c, x), lw.DTypeError, "one bool"),
            (lambda x: lax.scan(lambda c, r: c, 0.0, x), lw.ArgumentError, "pair"),
            (lambda x: lax.scan(lambda c, r: (c, r), 0.0, x[0]), lw.ShapeError, "no axis"),
            (lambda x: lax.scan(lambda c, r: (c, r), 0.0), lw.ArgumentError, "nothing to run over"),
            (lambda x: lax.scan(lambda c, r: (c, r), 0.0, (x, x[:2])), lw.ShapeError, "same number of rows"),
            (lambda x: lax.scan(lambda c, r: (c, r), 0.0, x, length=7), lw.ShapeError, "same number of rows"),
            (lambda x: lax.scan(lambda c, r: (c, r), 0.0, None, length=-1), lw.ShapeError, "negative"),
            (lambda x: lax.fori_loop(0, x[0], lambda i, c: c, 0.0), lw.DTypeError, "integer"),
            (lambda x: lax.cond(x[0] > 0, lambda a: a, lambda a: a, "text"), lw.ArgumentError, "operand"),
            (lambda x: lax.map(np.sin, x, batch_size=0), lw.ShapeError, "batch_size")):
        with pytest.raises(error, match=words):
            run(f, X)


def test_a_length_that_is_data_says_what_to_use():
    with pytest.raises(lw.ConcretizationError, match="fori_loop"):
        lw.jit(lambda n: lax.scan(lambda c, _: (c, None), 0.0, None, length=n))(3)


def test_python_questions_about_parameters_say_whose_they_are():
    with pytest.raises(lw.ConcretizationError, match="the body of scan of body"):
        def body(c, r):
            return (c if r > 0 else -c), r
        lw.grad(lambda x: lax.scan(body, 1.0, x)[0])(X)


# ---- the IR ---------------------------------------------------------------------------------------
def test_dead_carries_constants_and_results_go():
    def f(x):
        def body(i, c):
            used, dead, same = c
            return used + x[i] * same[0], dead * np.sin(used), same
        return lax.fori_loop(0, 4, body, (0.0, 1.0, x * 2))[0]
    loop, = [n for n in simplify(graph_of(f, X)).nodes if n.op.name == "scan"]
    assert len(loop.outputs) == 2 and "sin" not in str(loop.regions[0])
    np.testing.assert_allclose(lw.jit(f)(X), np.sum(X * X[0] * 2))


def test_work_that_every_trip_repeats_runs_once():
    def f(x, n):
        return lax.while_loop(lambda c: c < np.sum(np.exp(x)), lambda c: c + np.sum(np.tanh(x) ** 2), 0.5)
    g = simplify(graph_of(f, X, 3))
    outside = [n.op.name for n in g.nodes]
    assert {"exp", "tanh", "reduce_sum"} <= set(outside) and "reduce_sum" not in str(g.nodes[-1].regions)
    np.testing.assert_allclose(evaluate(g, [X, np.int64(3)])[0], f(X, 3))


def test_what_may_fail_stays_in_the_loop():
    def f(x, i, n):
        return lax.fori_loop(0, n, lambda k, c: c + x[i], 0.0)
    assert lw.jit(f)(X, 9, 0) == 0.0
    with pytest.raises(IndexError):
        lw.jit(f)(X, 9, 1)


def test_the_verifier_looks_into_regions():
    text = """graph(%x: f64[]) {
      %0: i64[] = full() {value=0, shape=(), dtype=i64}
      %1: f64[] = switch(%0, %x) [
        graph(%x: f64[]) { return %x },
        graph(%x: f32[]) { return %x },
      ]
      return %1
    }"""
    with pytest.raises(VerificationError, match="branch 1"):
        verify(parse(text))


def test_a_loop_of_a_size_that_is_data_reads_back_and_runs():
    text = """graph<t>(%n: i64[], %x: f64[]) {
      %0: i64[] = trips(%n) {size=t}
      %1: f64[], %2: f64[t] = scan(%x) {length=t, reverse=False, constants=0, carry=1} [
        graph(%c: f64[]) {
          %0: f64[] = add(%c, %c)
          return %0, %c
        },
      ]
      %3: f64[] = reduce_sum(%2) {axes=(0,)}
      return %3
    }"""
    g = verify(parse(text))
    assert parse(str(g)) == g and g.free_symbols == () and g.bound == {"t"}
    for n in (0, 1, 4):
        assert evaluate(g, [np.int64(n), np.float64(1.0)])[0] == 2.0 ** n - 1
        assert evaluate(simplify(g), [np.int64(n), np.float64(1.0)])[0] == 2.0 ** n - 1
