"""The walks of jvp, linearize, transpose and batch over whole graphs: composition, masks, zeros, source lines, speed.

The rules of single ops are tested with the op table; here graphs of several nodes are.
"""
import time

import numpy as np
import pytest

from loopwright.autodiff import batching
from loopwright.autodiff.jvp import filled, push, tangent_type, zeros
from loopwright.autodiff.linearize import linearize, pull_back, push_forward
from loopwright.autodiff.transpose import pull
from loopwright.ir.builder import build
from loopwright.ir.collector import collector_paused
from loopwright.ir.dims import symbol
from loopwright.ir.elimination import remove_dead
from loopwright.ir.errors import GradientError
from loopwright.ir.interpreter import evaluate
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.parser import parse_type
from loopwright.ir.types import F64, ArrayType
from loopwright.ir.verifier import verify

T = type("Ops", (), {name: staticmethod(op) for name, op in TABLE.items()})


ROWS = symbol("rows")


def graph(rule, *types):
    g = build(rule, [parse_type(t) for t in types])
    verify(g)
    return g


def total(x):
    return T.reduce_sum(x, axes=tuple(range(len(x.shape))))


# ---- transforms as graphs, checked after every step ---------------------------------------------------
def jvp_of(g):
    """Primals, then tangents -> tangents."""
    n = len(g.params)

    def rule(*refs):
        results, moved = push(g, refs[:n], refs[n:], refs[0].builder)
        return [zeros(y.type, refs[0].builder) if t is None else t for y, t in zip(results, moved, strict=True)]
    return checked(build(rule, [v.type for v in g.params] + [tangent_type(v.type) for v in g.params]))


def grad_of(g):
    """Primals -> the gradient of the sum of all results."""
    def rule(*refs):
        into = refs[0].builder
        results, linear = linearize(g, refs, [True] * len(refs), into)
        found = pull_back(linear, [filled(y.type, 1, into) for y in results], into)
        return [zeros(x.type, into) if ct is None else ct for x, ct in zip(refs, found, strict=True)]
    return checked(build(rule, [v.type for v in g.params]))


def linearized(g):
    """jvp_of, by way of linearize."""
    n = len(g.params)

    def rule(*refs):
        into = refs[0].builder
        results, linear = linearize(g, refs[:n], [True] * n, into)
        moved = push_forward(linear, refs[n:], into)
        return [zeros(y.type, into) if t is None else t for y, t in zip(results, moved, strict=True)]
    return checked(build(rule, [v.type for v in g.params] * 2))


def batch_of(g, size=ROWS):
    """Every parameter and result has one more axis in front; results that do not depend on it repeat."""
    def rule(*refs):
        results, has = batching.push(g, size, refs, [True] * len(refs), refs[0].builder)
        return [y if h else T.broadcast(y, shape=(size, *y.shape), axes=tuple(range(1, 1 + len(y.shape))))
                for y, h in zip(results, has, strict=True)]
    return checked(build(rule, [ArrayType((size, *v.type.shape), v.type.dtype) for v in g.params]))


def checked(g):
    verify(g)
    return remove_dead(g)


def difference(f, xs, along, h=1e-6):
    def at(s):
        return f([x + s * d for x, d in zip(xs, along, strict=True)])
    return [(a - b) / (2 * h) for a, b in zip(at(h), at(-h), strict=True)]


PROGRAMS = {
    "chain": graph(lambda x: [T.tanh(T.mul(x, T.sin(x)))], "f64[n]"),
    "two operands": graph(lambda x, y: [T.div(T.exp(x), T.add(T.mul(y, y), filled(y.type, 2, y.builder)))], "f64[n]", "f64[n]"),
    "reduced": graph(lambda x: [T.mul(total(x), total(T.mul(x, x)))], "f64[n, 3]"),
    "moved": graph(lambda x: [T.mul(T.transpose(x, perm=(1, 0)), T.reshape(T.sin(x), shape=(3, symbol("n"))))], "f64[n, 3]"),
    "contracted": graph(lambda x, y: [T.tanh(T.mul(T.exp(x), y))], "f64[3, n]", "f64[3, n]"),
    "two results": graph(lambda x, y: [T.sin(x), T.mul(x, y)], "f64[n]", "f64[n]"),
    "passed through": graph(lambda x, y: [y, x, x], "f64[n]", "f64[]"),
    "chosen": graph(lambda x, y: [T.select(T.lt(x, y), T.mul(x, y), T.sin(y))], "f64[n]", "f64[n]"),
    "constant": graph(lambda x: [T.floor(x), filled(x.type, 3, x.builder)], "f64[n]"),
    "scalar": graph(lambda x: [T.exp(T.neg(T.mul(x, x)))], "f64[]"),
}
EVERY = pytest.mark.parametrize("g", PROGRAMS.values(), ids=PROGRAMS)


def operands(g, rng, n=4):
    shapes = [tuple(n if not isinstance(s, int) else s for s in v.type.shape) for v in g.params]
    return [rng.normal(size=s) for s in shapes]


@EVERY
@pytest.mark.parametrize("n", [0, 1, 4])
def test_jvp_linearize_and_differences_agree_to_third_order(g, n):
    rng = np.random.default_rng(0)
    xs = operands(g, rng, n)
    for _ in range(3):
        along = [rng.normal(size=x.shape) for x in xs]
        forward = evaluate(jvp_of(g), [*xs, *along])
        for got, want in zip(forward, difference(lambda at, g=g: evaluate(g, at), xs, along), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
        for got, want in zip(evaluate(linearized(g), [*xs, *along]), forward, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        g, xs = jvp_of(g), [*xs, *along]


@EVERY
@pytest.mark.parametrize("n", [0, 1, 4])
def test_gradients_to_third_order_are_differences_of_sums(g, n):
    rng = np.random.default_rng(1)
    xs = operands(g, rng, n)
    for _ in range(3):
        found = evaluate(grad_of(g), xs)
        along = [rng.normal(size=x.shape) for x in xs]
        want = difference(lambda at, g=g: [sum(np.sum(y) for y in evaluate(g, at))], xs, along)[0]
        np.testing.assert_allclose(sum(np.sum(ct * d) for ct, d in zip(found, along, strict=True)), want, rtol=1e-5, atol=1e-5)
        g = grad_of(g)


@EVERY
@pytest.mark.parametrize("outer", [grad_of, jvp_of, batch_of])
@pytest.mark.parametrize("inner", [grad_of, jvp_of, batch_of])
def test_every_pair_of_engines_commutes_with_stacking(g, outer, inner):
    """batch(outer(inner(g))) on stacked rows is outer(inner(g)) on each row."""
    rng = np.random.default_rng(2)
    both = outer(inner(g) if inner is not batch_of else batch_of(g, 2))
    both = batch_of(g, 2) if outer is inner is batch_of else both
    rows = [[rng.normal(size=tuple({"n": 3, "rows": 2}.get(str(s), s) for s in v.type.shape)) for v in both.params]
            for _ in range(3)]
    each = [evaluate(both, row) for row in rows]
    together = evaluate(batch_of(both, 3), [np.stack(column) for column in zip(*rows, strict=True)])
    for k, got in enumerate(together):
        np.testing.assert_allclose(got, np.stack([row[k] for row in each]), rtol=1e-12, atol=1e-12)


def test_gradients_commute_with_batching():
    g = PROGRAMS["two operands"]
    xs = operands(batch_of(g, 3), np.random.default_rng(3))
    for a, b in zip(evaluate(grad_of(batch_of(g, 3)), xs), evaluate(batch_of(grad_of(g), 3), xs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


# ---- what is not computed -----------------------------------------------------------------------------
def test_zero_tangents_emit_nothing():
    g = PROGRAMS["two operands"]

    def rule(x, y, dx):
        return push(g, [x, y], [dx, None], x.builder)[1]
    emitted = checked(build(rule, [v.type for v in g.params] + [g.params[0].type]))
    assert [n.op.name for n in emitted.nodes].count("div") <= 1


def test_what_no_argument_reaches_has_no_tangent():
    g = PROGRAMS["constant"]

    def rule(x, dx):
        _, moved = push(g, [x], [dx], x.builder)
        assert moved == [None, None]
        _, linear = linearize(g, [x], [True], x.builder)
        assert linear.results == (False, False) and pull_back(linear, [None, None], x.builder) == [None]
        return []
    build(rule, [g.params[0].type] * 2)


def test_unmapped_work_is_done_once():
    g = graph(lambda x, y: [T.mul(x, T.exp(T.sin(y)))], "f64[]", "f64[]")

    def rule(x, y):
        return batching.push(g, 5, [x, y], [True, False], x.builder)[0]
    batched = build(rule, [ArrayType((5,), F64), ArrayType((), F64)])
    assert {n.op.name: n.outputs[0].type.shape for n in batched.nodes}["exp"] == ()


def test_residuals_are_what_the_linear_part_reads():
    g = graph(lambda x: [T.exp(T.sin(x))], "f64[n]")

    def rule(x):
        _, linear = linearize(g, [x], [True], x.builder)
        assert len(linear.residuals) <= 2
        assert all(n.op.linear for n in linear.graph.nodes)
        return [x]
    build(rule, [g.params[0].type])


def test_known_parts_of_a_linear_graph_are_emitted_only_where_read():
    g = graph(lambda x, c: [T.mul(x, T.exp(c)), T.mul(x, T.sin(c))], "f64[]", "f64[]")

    def rule(c, ct):
        return pull(g, [True, False], [c], [ct, None], c.builder)
    names = [n.op.name for n in build(rule, [ArrayType((), F64)] * 2).nodes]
    assert "exp" in names and "sin" not in names


def test_emitted_nodes_keep_the_line_of_the_node_they_come_from():
    g = graph(lambda x: [T.tanh(x)], "f64[]")
    source = g.nodes[0].source
    for transformed in (jvp_of(g), batch_of(g, 2)):
        assert {n.source for n in transformed.nodes} == {source}
    assert source in {n.source for n in grad_of(g).nodes}


def test_an_op_without_a_derivative_names_itself_and_the_line():
    lost = Op(name="lost", doc="No derivative.", shape=lambda x: x.shape, dtype=lambda x: x.dtype, numpy=np.sqrt)
    g = graph(lambda x, y: [T.mul(lost(x), y)], "f64[]", "f64[]")

    def rule(x, y, d, inert):
        return push(g, [x, y], [None, d] if inert else [d, None], x.builder)[1]
    types = [ArrayType((), F64)] * 3
    with pytest.raises(GradientError, match=r"test_autodiff_engines\.py:\d+: lost has no derivative"):
        build(lambda x, y, d: rule(x, y, d, False), types)
    assert build(lambda x, y, d: rule(x, y, d, True), types).nodes  # nothing reaches it


# ---- masks --------------------------------------------------------------------------------------------
def where_positive(f):
    """sum(where(x > 0, f(x), 0))"""
    def rule(x):
        nothing = filled(x.type, 0, x.builder)
        return [total(T.select(T.lt(nothing, x), f(x), nothing))]
    return graph(rule, "f64[n]")


def one(x):
    return filled(x.type, 1, x.builder)


MASKED = {  # f, f', f''
    "sqrt": (T.sqrt, lambda x: 0.5 / np.sqrt(x), lambda x: -0.25 * x ** -1.5),
    "log": (T.log, lambda x: 1 / x, lambda x: -1 / x ** 2),
    "reciprocal": (lambda x: T.div(one(x), x), lambda x: -1 / x ** 2, lambda x: 2 / x ** 3),
    "chain": (lambda x: T.exp(T.mul(T.sqrt(x), T.log(x))), None, None),
    "asin": (lambda x: T.arcsin(T.sqrt(T.mul(x, filled(x.type, 1, x.builder)))), None, None),
    "acosh": (lambda x: T.arccosh(T.add(T.sqrt(x), one(x))), None, None),
    "pow": (lambda x: T.power(x, T.div(one(x), T.add(one(x), one(x)))),
            lambda x: 0.5 / np.sqrt(x), lambda x: -0.25 * x ** -1.5),
    "used twice": (lambda x: T.add(T.sqrt(x), T.mul(T.sqrt(x), T.log(x))), None, None),
    "moved": (lambda x: T.reshape(T.transpose(T.sqrt(T.reshape(x, shape=(1, *x.shape))), perm=(1, 0)), shape=x.shape),
              lambda x: 0.5 / np.sqrt(x), lambda x: -0.25 * x ** -1.5),
}
POINTS = np.array([0.3, 0.0, -0.0, -1.0, 0.7, -np.inf])


@pytest.mark.parametrize("f, first, second", MASKED.values(), ids=MASKED)
def test_what_where_did_not_take_stays_out_of_gradients(f, first, second):
    g = where_positive(f)
    taken = POINTS > 0
    by_difference = difference(lambda at: evaluate(graph(lambda x: [f(x)], "f64[n]"), at), [POINTS[taken]], [1.0])[0]
    want = np.zeros_like(POINTS)
    want[taken] = by_difference if first is None else first(POINTS[taken])
    np.testing.assert_allclose(evaluate(grad_of(g), [POINTS])[0], want, rtol=1e-7)
    again = evaluate(grad_of(grad_of(g)), [POINTS])[0]
    assert np.all(np.isfinite(again)) and np.all(again[~taken] == 0)
    if second is not None:
        np.testing.assert_allclose(again[taken], second(POINTS[taken]), rtol=1e-7)
    assert np.all(np.isfinite(evaluate(grad_of(grad_of(grad_of(g))), [POINTS])[0]))
    rows = np.stack([POINTS, POINTS])
    np.testing.assert_allclose(evaluate(batch_of(grad_of(g), 2), [rows])[0], np.stack([want, want]), rtol=1e-7)
    np.testing.assert_allclose(evaluate(grad_of(batch_of(g, 2)), [rows])[0], np.stack([want, want]), rtol=1e-7)


def test_two_masks_keep_what_either_keeps():
    def rule(x):
        nothing = filled(x.type, 0, x.builder)
        root = T.sqrt(x)
        return [total(T.add(T.select(T.lt(one(x), x), root, nothing), T.select(T.lt(nothing, x), T.mul(root, root), nothing)))]
    x = np.array([-1.0, 0.0, 0.25, 4.0])
    np.testing.assert_allclose(evaluate(grad_of(graph(rule, "f64[n]")), [x])[0], [0, 0, 1, 1.25])


def test_the_other_branch_is_masked_by_the_negation():
    def rule(x):
        nothing = filled(x.type, 0, x.builder)
        return [total(T.select(T.le(x, nothing), T.mul(x, x), T.sqrt(x)))]
    x = np.array([-1.0, 0.0, 0.25])
    np.testing.assert_allclose(evaluate(grad_of(graph(rule, "f64[n]")), [x])[0], [-2, 0, 1])


def test_a_mask_hides_nothing_that_is_not_masked():
    """sqrt(x) is also used outside where: its infinite slope at 0 is the true one."""
    def rule(x):
        nothing = filled(x.type, 0, x.builder)
        root = T.sqrt(x)
        return [total(T.add(root, T.select(T.lt(nothing, x), root, nothing)))]
    np.testing.assert_array_equal(evaluate(grad_of(graph(rule, "f64[n]")), [np.array([0.0, 1.0])])[0], [np.inf, 1.0])


# ---- speed --------------------------------------------------------------------------------------------
def test_gradients_of_long_chains_are_linear_in_their_length():
    """In units of building the program itself, so that a slow or busy machine changes nothing."""
    def chain(x, length):
        for _ in range(length // 2):
            x = T.tanh(T.mul(x, x))
        return [x]

    def best(f):
        times = []
        for _ in range(3):
            start = time.process_time()
            f()
            times.append(time.process_time() - start)
        return min(times)
    scalar = [ArrayType((), F64)]
    with collector_paused():
        g = build(lambda x: chain(x, 1000), scalar)
        built = best(lambda: build(lambda x: chain(x, 1000), scalar))
        first = remove_dead(build(lambda x: grad_rule(g, x), scalar))
        assert best(lambda: build(lambda x: grad_rule(g, x), scalar)) < 20 * built
        assert best(lambda: build(lambda x: grad_rule(first, x), scalar)) < 80 * built


def grad_rule(g, x):
    results, linear = linearize(g, [x], [True], x.builder)
    return pull_back(linear, [filled(results[0].type, 1, x.builder)], x.builder)
