"""Kernels of users with `instead_of=`: one more way to compute what a program holds, found by structure, checked and measured
like any other, and never taken unless somebody says so."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.errors import ArgumentError, ScheduleError
from loopwright.lower import patterns
from loopwright.lower.covers import RULES, Cover, alternatives, implementations
from loopwright.lower.decisions import Apart, Use
from loopwright.lower.modules import alone, kernels_of, reimplemented
from loopwright.lower.tuning import tuner
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.workers import Workers
from tests.test_covers import TARGET, compiled, graph_of, lowered, normal

loop, total = lw.loops.loop, lw.loops.sum


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    """Patterns of one test alone."""
    monkeypatch.setattr(patterns, "_patterns", {})


def uses(g):
    return [x for c in alternatives(g, TARGET, True, RULES) for x in c.partition if isinstance(x, Use)]


def product(**options):
    @lw.kernel("f64[n, k], f64[k, m] -> f64[n, m]", instead_of=lambda a, b: a @ b, **options)
    def times(a, b, c):
        for i in loop(a.shape[0], parallel=True):
            for j in loop(b.shape[1], lanes=4):
                c[i, j] = total(a[i, p] * b[p, j] for p in loop(a.shape[1]))
    return times


def softmax(x):
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / np.sum(e, -1, keepdims=True)


def rows(factor=1.0, name="rows"):
    """A kernel for softmax that is wrong but for a factor of 1."""
    @lw.kernel("f64[n, m] -> f64[n, m]", instead_of=softmax, name=name)
    def kernel(x, y):
        n, m = x.shape
        for i in loop(n):
            top = lw.loops.let(lw.loops.max(x[i, j] for j in loop(m)))
            all_ = lw.loops.let(total(np.exp(x[i, j] - top) for j in loop(m)))
            for j in loop(m):
                y[i, j] = np.exp(x[i, j] - top) / all_ * factor
    return kernel


# ---- where patterns are -----------------------------------------------------------------------------
def test_a_kernel_is_one_more_way_to_make_a_kernel():
    times = product()
    x, w = normal(4, 5), normal(5, 6)
    g = graph_of(lambda x, w: np.tanh(x @ w), x, w)
    n = kernels_of(lowered(g).kernels)[0]
    ways = implementations(n, TARGET, True)
    assert [a["implementation"] for a in ways] == ["gemm", "generated", "native"]
    types = ([v.type for v in values] for values in (n.regions[0].params, n.regions[0].results))
    assert ways[2] == times.implementing(*types)
    np.testing.assert_allclose(compiled(g, RULES.using(n, ways[2]))(x, w), np.tanh(x @ w), rtol=1e-12)
    assert "native" not in str(lowered(g).kernels)


def test_a_kernel_is_one_more_cover():
    product()

    @lw.kernel("f64[k, m], f64[n, k] -> f64[n, m]", instead_of=lambda w, x: np.tanh(x @ w))
    def layer(w, x, y):
        for i in loop(x.shape[0], parallel=True):
            for j in loop(w.shape[1], lanes=4):
                y[i, j] = np.tanh(total(x[i, p] * w[p, j] for p in loop(x.shape[1])))
    x, w, v = normal(40, 5), normal(5, 6), normal(6, 5)
    g = graph_of(lambda x, w, v: np.tanh(x @ w) @ v, x, w, v)
    assert {(u.kernel, u.node) for u in uses(g)} == {("times", (0,)), ("times", (2,)), ("layer", (1,))}
    for decisions in [(Use((0,), "times"),), (Use((1,), "layer"),), (Use((1,), "layer"), Use((2,), "times"))]:
        cover = Cover(decisions)
        assert Cover.from_json(cover.to_json()) == cover
        assert str(lowered(g, cover).kernels).count("native") == len(decisions)
        np.testing.assert_allclose(compiled(g, cover)(x, w, v), np.tanh(x @ w) @ v, rtol=1e-12)
        for size in (0, 1, 3):
            np.testing.assert_allclose(compiled(g, cover)(x[:size], w, v), np.tanh(x[:size] @ w) @ v, rtol=1e-12)


def test_sizes_and_operands_are_what_they_are():
    """Known sizes, one array for two operands, operands in another order, a value that others read too."""
    product()
    x = normal(5, 5)
    g = graph_of(lambda x: (x @ x, x.T @ (x @ x) + 1), x)
    for use in uses(g):
        got = compiled(g, Cover((use,)))(x)
        np.testing.assert_allclose(got[0], x @ x, rtol=1e-12)
        np.testing.assert_allclose(got[1], x.T @ (x @ x) + 1, rtol=1e-12)
    assert uses(g)
    rows()
    g = graph_of(lambda x: (softmax(x), np.exp(x - np.max(x, -1, keepdims=True))), x)
    use, = uses(g)
    got = compiled(g, Cover((use,)))(x)
    np.testing.assert_allclose(got[0], softmax(x), rtol=1e-12)
    np.testing.assert_allclose(got[1], np.exp(x - np.max(x, -1, keepdims=True)), rtol=1e-12)


def test_several_results():
    @lw.kernel("f64[n, m] -> f64[n], f64[n, m]", instead_of=lambda x: (np.sum(x * 2, 1), np.exp(x * 2)))
    def both(x, s, e):
        n, m = x.shape
        for i in loop(n):
            s[i] = total(x[i, j] * 2 for j in loop(m))
            for j in loop(m):
                e[i, j] = np.exp(x[i, j] * 2)
    x = normal(4, 5)
    g = graph_of(lambda x: (np.exp(x * 2) + 1, np.sum(x * 2, 1) * 3), x)
    use, = uses(g)
    got = compiled(g, Cover((use,)))(x)
    np.testing.assert_allclose(got[0], np.exp(x * 2) + 1, rtol=1e-12)
    np.testing.assert_allclose(got[1], np.sum(x * 2, 1) * 3, rtol=1e-12)


def test_in_a_loop():
    product()
    xs, w = normal(3, 4, 4), normal(4, 4)

    def f(xs, w):
        return lw.lax.scan(lambda c, x: (np.tanh(c @ x), np.sum(c)), w, xs)
    g = graph_of(f, xs, w)
    use, = uses(g)
    assert len(use.node) == 3
    got = compiled(g, Cover((use,)))(xs, w)
    c = w
    for x in xs:
        c = np.tanh(c @ x)
    np.testing.assert_allclose(got[0], c, rtol=1e-12)


@pytest.mark.parametrize("f", [
    lambda x, w: x @ w.T, lambda x, w: (x.astype("f4") @ w.astype("f4")), lambda x, w: x * w, lambda x, w: np.sum(x @ w[0])])
def test_what_is_no_pattern(f):
    product()
    assert uses(graph_of(f, normal(4, 4), normal(4, 4))) == []


def test_conditions_must_be_known_to_hold():
    product(where="k <= 64, 4 divides m")
    f, x = (lambda x, w: x @ w + 1), normal(4, 8)
    known, unknown = (lw.make_graph(f, dynamic=d)(x, normal(8, 12)) for d in (False, True))
    assert len(uses(known)) == 1 and uses(unknown) == []
    for m in (normal(8, 11), normal(80, 12)):
        assert uses(lw.make_graph(f, dynamic=False)(normal(4, m.shape[0]), m)) == []
    with pytest.raises(ScheduleError, match="sizes are not known to be as it demands"):
        lowered(unknown, Cover((Use((0,), "times"),)))


def test_decisions_that_do_not_fit():
    product()
    g = graph_of(lambda x, w: np.tanh(x @ w), normal(4, 5), normal(5, 6))
    for decisions, why in (((Use((0,), "other"),), "no kernel other"), ((Use((1,), "times"),), "is not what times computes"),
                           ((Use((0,), "times"), Apart((0,))), "the kernel of a user computes the node"),
                           ((Use((7,), "times"),), "no such node")):
        with pytest.raises(ScheduleError, match=why):
            lowered(g, Cover(decisions))


# ---- measured ---------------------------------------------------------------------------------------
def test_a_wrong_kernel_is_found_out_and_a_right_one_is_measured():
    right, wrong = rows(), rows(1.001, "wrong")
    n, = kernels_of(lowered(graph_of(softmax, normal(30, 20))).kernels)
    ways = implementations(n, TARGET, True)
    assert [a["implementation"] for a in ways] == ["generated", "native", "native"]
    g = alone(n)
    programs = [reimplemented(g, dict.fromkeys(kernels_of(g), a)) for a in ways]
    candidates = [Candidate.of(x, dict.fromkeys(g.free_symbols, 20)) for x in programs]
    with Workers(1, check_seconds=60.0, time_seconds=60.0) as workers:
        found = workers.measure(candidates)
    assert found[0].failure is None and found[1].failure is None and found[1].samples
    assert found[2].failure.startswith("result 0 is wrong at (0, 0)")
    assert right.name == "rows" and wrong.name == "wrong"


def products_of_rows(x):
    """For each row the sum of its products with all rows, in as many steps as there are pairs."""
    return np.sum(x[:, None, :] * x[None, :, :], axis=1)


def quick(name, factor):
    @lw.kernel("f64[n, m] -> f64[n, m]", instead_of=products_of_rows, name=name)
    def kernel(x, y):
        n, m = x.shape
        s = lw.loops.local((m,), np.float64)
        for j in loop(m, lanes=4):
            s[j] = total(x[i, j] for i in loop(n)) * factor
        for i in loop(n):
            for j in loop(m, lanes=4):
                y[i, j] = x[i, j] * s[j]


def test_the_tuner_takes_a_better_kernel_and_says_why_it_leaves_a_wrong_one():
    quick("wrong", 1.01)
    quick("right", 1.0)
    x, failures, taken = normal(150, 40), [], []

    def listen(trial, progress):
        failures.extend([trial.failure] if trial.failure else [])
        taken.extend([trial] if "'right'" in trial.candidate else [])
        if failures and taken and progress.best < 0.5 * progress.default:  # on a busy machine another one may look so good, too
            raise KeyboardInterrupt
    g = graph_of(lambda x: np.tanh(products_of_rows(x) * 0.1), x)
    found = tuner.tune(g, dict(zip(g.free_symbols, x.shape, strict=True)), seconds=100.0, on_trial=listen)
    assert "native" in str(found.best) and found.best_seconds < 0.5 * found.default_seconds
    assert all("is wrong at" in failure for failure in failures)
    got = lw.parse(str(found.best)).compile()(x)
    np.testing.assert_allclose(got, np.tanh(products_of_rows(x) * 0.1), rtol=1e-9)


# ---- what does not fit its signature -----------------------------------------------------------------
DOUBLE = "define void @f(ptr %x, ptr %y, i64 %n) {\n  ret void\n}\n"


@pytest.mark.parametrize(("signature", "f", "options", "why"), [
    ("f64[n] -> f64[n]", lambda x: np.sum(x), {}, r"gives f64\[\], and 'f64\[n\] -> f64\[n\]' declares f64\[n\]"),
    ("f64[n] -> f64[n]", lambda x: x.astype("f4"), {}, r"gives f32\[n\]"),
    ("f64[n] -> f64[n]", lambda x: x, {}, "gives an operand"),
    ("f64[n], f64[n] -> f64[n]", lambda x, y: x * 2, {}, "does not read operand 1"),
    ("f64[n] -> f64[n]", lambda x: x + NUMBERS, {}, "reads an array from outside|101"),
    ("f64[n] -> f64[n]", lambda x: x * 2 if x.shape[0] > 7 else x, {}, "depends on sizes"),
    ("f64[n] -> f64[n]", lambda x: lw.lax.cond(x[0] > 0, lambda x: x + 1, lambda x: x - 1, x), {}, "control flow"),
    ("c128[n] -> c128[n]", lambda x: x * 2, {}, "complex numbers"),
    ("f64[n] -> f64[n]", lambda x: x * 2, {"where": "n < 64"}, "no list of conditions"),
    ("f64[n] -> f64[n]", lambda x: x * 2, {"where": "m <= 64"}, "speaks of m, which is no size of"),
    ("f64[n] -> f64[n]", None, {"where": "n <= 64"}, "instead_of= says, which is missing"),
])
def test_what_does_not_fit_the_signature(signature, f, options, why):
    with pytest.raises(ArgumentError, match=why):
        lw.kernel(signature, llvm=DOUBLE.replace("ptr %y", "ptr %y, ptr %z") if "," in signature else DOUBLE, instead_of=f,
                  **options)


NUMBERS = normal(101)


def test_a_bare_pointer_does_not_compete():
    with pytest.raises(ArgumentError, match="known to this process alone"):
        lw.kernel("f64[n] -> f64[n]", pointer=1 << 20, instead_of=lambda x: x * 2)
