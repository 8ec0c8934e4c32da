"""What backward parts keep of forward parts: the minimum cut, what it chooses, and that results are the same bits."""
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir import backward, cuts, residuals
from loopwright.ir.backward import recomputing
from loopwright.ir.cuts import UNBOUNDED, Network
from loopwright.ir.dims import evaluate as number
from loopwright.ir.dims import symbols_in
from loopwright.ir.expansion import expanded
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import evaluate
from loopwright.ir.residuals import Forward, total
from loopwright.ir.verifier import verify
from loopwright.tracer.pytree import flatten
from tests.scale import examples

ROWS = np.random.default_rng(0).normal(size=(6, 3))
SQUARE = np.random.default_rng(1).normal(size=(3, 3)) * 0.5


# ---- minimum cuts -----------------------------------------------------------------------------------
@st.composite
def networks(draw):
    """A number of vertices, and arcs with capacities. Vertex 0 is the source, 1 the sink."""
    count = draw(st.integers(2, 8))
    vertex = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(vertex, vertex, st.sampled_from([0, 1, 1, 2, 3, 5, 7, UNBOUNDED])), max_size=20))


def cost(side, arcs):
    return sum(c for a, b, c in arcs if not side[a] and side[b])


@examples(300)
@given(networks())
def test_a_cut_is_the_best_of_all_subsets(drawn):
    count, arcs = drawn
    network = Network(count)
    for arc in arcs:
        network.add(*arc)
    found = network.sink_side(0, 1)
    sides = [[False, True, *(bool(k >> i & 1) for i in range(count - 2))] for k in range(1 << (count - 2))]
    best = min(sides, key=lambda s: (cost(s, arcs), sum(s)))
    assert cost(found, arcs) == cost(best, arcs)
    assert cost(best, arcs) >= UNBOUNDED or found == best


def every_choice(ahead, wanted):
    """What each set of values that could be kept costs, where the wanted values can be had of it."""
    values = [v for v in ahead.producer if v not in ahead.at_hand]
    for k in range(1 << len(values)):
        kept = {v for i, v in enumerate(values) if k >> i & 1}
        price, todo, seen = sum(map(ahead._keeping, kept)), list(wanted), set()
        while todo:
            v = todo.pop()
            if v in seen or v in kept or v in ahead.at_hand:
                continue
            seen.add(v)
            price += ahead.again.get(v, UNBOUNDED)
            todo += ahead.producer[v].inputs
        if price < UNBOUNDED:
            yield price


@st.composite
def straight_programs(draw):
    """A function of one array and one matrix, and which of its values are results."""
    steps = draw(st.lists(st.tuples(st.sampled_from(["exp", "sin", "mul", "sum", "dot", "convert"]), st.integers(0, 20),
                                    st.integers(0, 20)), min_size=1, max_size=6))

    def f(x, w):
        values = [x, x * 0.5]
        for name, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            made = {"exp": lambda a=a: np.exp(a), "sin": lambda a=a: np.sin(a), "mul": lambda a=a, b=b: a * b,
                    "sum": lambda a=a, b=b: a - np.sum(b, axis=0), "dot": lambda a=a: a @ w,
                    "convert": lambda a=a: a.astype(np.float32).astype(np.float64)}
            values.append(made[name]())
        return values[2:]
    g = lw.make_graph(f)(ROWS, SQUARE)
    return g, draw(st.lists(st.integers(0, len(g.results) - 1), min_size=1, max_size=3, unique=True))


@examples(80)
@given(straight_programs(), st.sampled_from([1, 100]))
def test_a_choice_costs_no_more_than_any_other(drawn, size):
    g, picked = drawn
    wanted = list(dict.fromkeys([g.results[k] for k in picked]))
    ahead = Forward(g, g.params, dict.fromkeys(g.symbols, size))
    choice = ahead.choose(wanted, None)
    assert set(choice.kept).isdisjoint(choice.wanted) or all(k.value in ahead.producer for k in choice.kept)
    have = {*choice.held, *(k.value for k in choice.kept)}
    for n in [n for n in g.nodes if n in choice.again]:
        assert have.issuperset(n.inputs)
        have.update(n.outputs)
    assert have.issuperset(v for v in wanted if v not in g.params)
    price = sum(ahead._keeping(k.value) for k in choice.kept) + sum(ahead.again[v] for n in choice.again for v in n.outputs)
    if len(ahead.producer) <= 12:
        assert price == min(every_choice(ahead, wanted))


# ---- what is chosen ---------------------------------------------------------------------------------
def chosen(f, *args, wanted=None, size=1000):
    """The ops whose results are kept, and those run again, for the results of f."""
    g = lw.make_graph(f)(*args)
    choice = Forward(g, g.params, dict.fromkeys(g.symbols, size)).choose(g.results if wanted is None else wanted(g), None)
    return sorted(k.made_by for k in choice.kept), sorted(n.op.name for n in choice.again)


def test_a_cheap_map_of_an_argument_is_computed_again():
    assert chosen(lambda x: -x * x, ROWS) == ([], ["mul", "neg"])


def test_of_a_chain_the_least_is_kept():
    def f(x, w):
        h = x @ w
        e = np.exp(h)
        return [h, e, e * h]
    assert chosen(f, ROWS, SQUARE) == (["dot_general"], ["exp", "mul"])


def test_a_small_value_stands_for_the_large_ones_that_it_is_spread_to():
    assert chosen(lambda x: np.sum(x, axis=1, keepdims=True) * np.ones_like(x), ROWS)[0] == ["reshape"]


def test_two_values_of_one_that_costs_no_more():
    kept, again = chosen(lambda x, w: [(h := x @ w) * 2.0, h + 1.0], ROWS, SQUARE)
    assert (kept, set(again)) == (["dot_general"], {"full", "mul", "add"})


def test_narrow_results_are_kept_of_wide_ones():
    kept, again = chosen(lambda x, w: (x @ w) > 0, ROWS, SQUARE)
    assert (kept, again) == (["lt"], [])


def test_what_is_not_a_map_of_elements_is_never_run_again():
    def f(x, w):
        k = np.argsort(x[:, 0])
        return [np.sum(x, axis=0), x @ w, np.sort(x, axis=0), np.cumsum(x, axis=0), x[k], np.linalg.inv(x.T @ x)]
    kept, again = chosen(f, ROWS, SQUARE)
    assert again == [] and len(kept) == 6


def test_what_is_far_from_what_is_kept_is_not_computed_again():
    def f(x, w):
        for _ in range(40):
            x = np.exp(x)
        return x
    kept, again = chosen(f, ROWS, SQUARE)
    assert kept == ["exp"] and again == []


def test_what_must_not_be_kept_is_computed_again():
    g = lw.make_graph(lambda x, w: np.sum(x @ w, axis=0))(ROWS, SQUARE)
    last, = g.results
    choice = Forward(g, g.params, {}, lambda v: v is last).choose([last], None)
    assert [k.made_by for k in choice.kept] == ["dot_general"] and [n.op.name for n in choice.again] == ["reduce_sum"]


# ---- programs ---------------------------------------------------------------------------------------
def network(x, w):
    for _ in range(3):
        x = np.tanh(np.exp(-(x @ w) ** 2) * 0.5 + x)
    return np.mean(x * x)


def norm(x, w):
    m = np.mean(x, -1, keepdims=True)
    v = np.mean((x - m) ** 2, -1, keepdims=True)
    return np.sum(((x - m) / np.sqrt(v + 1e-3) * w[0]) ** 3)


def attention(x, w):
    q, k = x @ w, x @ w.T
    e = np.exp(q @ k.T - np.max(q @ k.T, -1, keepdims=True))
    return np.sum((e / np.sum(e, -1, keepdims=True) @ x) ** 2)


def looped(x, w):
    def body(c, r):
        h = np.sin(c @ w) * r
        return np.exp(-h * h) * h, np.sum(np.cos(h) * h)
    c, ys = lax.scan(body, x[0], x)
    return np.sum(c * c) + np.sum(ys * ys)


def until(x, w):
    return np.sum(lax.while_loop(lambda v: np.sum(v * v) > 0.1, lambda v: np.tanh(np.sin(v) * x[1] @ w), x[0]) ** 2)


def data_sized(x, w):
    def body(c, r):
        n = np.where(r[0] > 0, 2, 4)
        return np.tanh(lax.fori_loop(0, n, lambda i, v: np.sin(v @ w) * np.exp(-v * v), c) + r), c
    c, ys = lax.scan(body, x[0], x)
    return np.sum(c) + np.sum(ys * ys)


def branched(x, w):
    return np.sum(lax.cond(x[0, 0] > 9, lambda v: v * 2, lambda v: np.exp(np.sin(v @ w)) * np.sin(v), x) ** 2)


PROGRAMS = [network, norm, attention, looped, until, data_sized, branched]
SECOND = [network, norm, looped, until, data_sized]


def draft(f, *args):
    """The version that a call would compile."""
    versions = lw.jit(f)._versions
    return versions.draft(versions.parameters.call(args, {}))


@pytest.fixture(params=["as priced", "memory dear"])
def priced(request, monkeypatch):
    """What a byte is worth."""
    if request.param == "memory dear":
        monkeypatch.setattr(residuals, "PER_BYTE", 1 << 20)
    return request.param


def nothing_again(monkeypatch):
    """From here on everything wanted is kept, if it can be."""
    monkeypatch.setattr(residuals, "MOST_OPERATIONS", -1)


def results_of(made, args):
    graph = verify(made.version.graph)
    assert lw.parse(str(graph)) == graph
    return evaluate(graph, args)


def derivatives(f):
    yield lw.value_and_grad(f, (0, 1))
    if f in SECOND:
        yield lw.grad(lambda x, w: np.sum(lw.grad(f)(x, w) ** 2), (0, 1))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_the_same_bits(f, priced, monkeypatch):
    for order, g in enumerate(derivatives(f), 1):
        first, compiled = results_of(draft(g, ROWS, SQUARE), [ROWS, SQUARE]), lw.jit(g)(ROWS, SQUARE)
        with monkeypatch.context() as patch:
            nothing_again(patch)
            second = results_of(draft(g, ROWS, SQUARE), [ROWS, SQUARE])
            other = lw.jit(g)(ROWS, SQUARE)
        for a, b in zip(first, second, strict=True):
            if order == 1 or f not in (looped, until, data_sized):
                np.testing.assert_array_equal(a, b, strict=True)
            np.testing.assert_allclose(a, b, rtol=2e-14)  # cotangents of what loops compute again are added in another order
        for a, b in zip(flatten(compiled)[0], flatten(other)[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-14)  # kernels sum in an order that depends on what is fused


def slope(f, along, x, w):
    """The derivative of f in one direction of x, from differences of order 4."""
    h = 1e-3
    at = [f(x + k * h * along, w) for k in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_slopes(f, priced):
    along = np.random.default_rng(2).normal(size=ROWS.shape)
    for g, h in zip([f, lambda x, w: np.sum(lw.grad(f)(x, w) ** 2)], derivatives(f), strict=False):
        found = lw.jit(h)(ROWS, SQUARE)
        found = found[1][0] if g is f else found[0]
        np.testing.assert_allclose(np.sum(found * along), slope(g, along, ROWS, SQUARE), rtol=1e-7)


def unrepeatable(g):
    """The ops, at any depth, that are no maps, and how often each stands there."""
    ahead, found = Forward(g, (), {}), {}
    for n in g.nodes:
        if ahead._operations(n) is None and not n.regions:
            found[n.op.name] = found.get(n.op.name, 0) + 1
        for r in n.regions:
            for name, count in unrepeatable(r).items():
                found[name] = found.get(name, 0) + count
    return found


@pytest.mark.parametrize("f", [f for f in PROGRAMS if f is not data_sized], ids=lambda f: f.__name__)
def test_reductions_and_products_are_never_run_again(f, monkeypatch):
    """Arrays with a size of data cannot be kept outside their loop, data_sized computes them again."""
    monkeypatch.setattr(residuals, "PER_BYTE", 1 << 20)
    for g in derivatives(f):
        with monkeypatch.context() as patch:
            nothing_again(patch)
            before = unrepeatable(draft(g, ROWS, SQUARE).version.graph)
        assert unrepeatable(draft(g, ROWS, SQUARE).version.graph) == before


def test_python_is_called_once(monkeypatch):
    monkeypatch.setattr(residuals, "PER_BYTE", 1 << 20)
    calls, seen = [], []

    def double(x):
        calls.append(1)
        return np.asarray(x) * 2.0

    def body(c, r):
        lw.debug.callback(lambda r: seen.append(float(r)), r[0])
        lw.check(np.all(r < 100), "rows are small")
        scale = lw.pure_callback(double, lw.ShapeDtypeStruct((3,), np.float64), lax.stop_gradient(r))
        return np.exp(np.sin(c * scale)) * c, np.sum(np.sin(c))
    f = lw.jit(lw.grad(lambda x: np.sum(lax.scan(body, x[0], x)[1])))
    f(ROWS)
    assert len(calls) == len(seen) == len(ROWS)
    assert seen == list(ROWS[:, 0])


# ---- loops ------------------------------------------------------------------------------------------
def test_loops_stack_what_the_cut_keeps():
    made = draft(lw.grad(looped), ROWS, SQUARE)
    (who, tape), = made.tapes
    assert who == "each trip of a loop"
    assert len(tape.wanted) > len(tape.kept)
    assert [k.made_by for k in tape.kept if k.value.type.rank] == ["dot_general"]
    forward, back = [n for n in made.version.graph.nodes if n.op.name == "scan"]
    assert len(forward.outputs) - forward.attrs["carry"] <= 1 + len(tape.kept)
    assert {"sin", "exp", "cos"} <= {n.op.name for n in back.regions[0].nodes}


def test_rows_that_a_loop_gives_anyway_are_not_kept_beside_it():
    """The slope of a recurrent step comes from the state that it gives; the state before it is all that is stacked."""
    def states(h, w, x):
        def step(h, row):
            h = np.tanh(h @ w + row)
            return h, h
        return np.sum(lax.scan(step, h, x)[1] ** 2)
    made = draft(lw.grad(states, (0, 1, 2)), ROWS[0], SQUARE, ROWS)
    (_, tape), = made.tapes
    assert [k.made_by for k in tape.kept] == ["argument"]
    forward, _ = [n for n in made.version.graph.nodes if n.op.name == "scan"]
    assert len(forward.outputs) == 3  # the last state, all states, and those before
    plain = lw.grad(states, (0, 1, 2))(ROWS[0], SQUARE, ROWS)
    for a, b in zip(lw.jit(lw.grad(states, (0, 1, 2)))(ROWS[0], SQUARE, ROWS), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_sizes_of_data_stay_inside():
    for f in (until, data_sized):
        for g in derivatives(f):
            for _, tape in draft(g, ROWS, SQUARE).tapes:
                shapes = [s for k in tape.kept for s in k.value.type.shape]
                assert f is until or not any(name.startswith("trips") for s in shapes for name in symbols_in(s))


def test_one_compile_for_all_sizes():
    f = lw.jit(lw.grad(network, (0, 1)))
    for count in (6, 1, 50, 0):
        x = np.random.default_rng(count).normal(size=(count, 3))
        found = f(x, SQUARE)
        with np.errstate(all="ignore"):
            want = lw.grad(network, (0, 1))(x, SQUARE)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)
    assert f._versions.compiles <= 2


def test_vmap_of_gradients():
    found = lw.jit(lw.vmap(lw.grad(looped), (0, None)))(np.stack([ROWS, ROWS[::-1]]), SQUARE)
    for a, x in zip(found, (ROWS, ROWS[::-1]), strict=True):
        np.testing.assert_allclose(a, lw.grad(looped)(x.copy(), SQUARE), rtol=1e-11)


def test_a_realistic_network_keeps_a_third():
    made = draft(lw.grad(network), np.ones((1000, 100)), np.ones((100, 100)))
    choice, = made.residuals
    sizes = dict.fromkeys(made.version.graph.symbols, 100)
    assert 3 * number(total(k.value for k in choice.kept), sizes) <= number(total(choice.wanted), sizes)


# ---- how long it takes ------------------------------------------------------------------------------
def lines_run(f, modules):
    """How many lines of these modules f runs."""
    files, count = {m.__file__ for m in modules}, 0

    def line(frame, event, arg):
        nonlocal count
        count += event == "line"
        return line
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: line if frame.f_code.co_filename in files else None)
    try:
        f()
    finally:
        sys.settrace(before)
    return count


def chain(length):
    def f(x):
        for k in range(length):
            x = np.sin(x) * x if k % 3 else np.exp(-x)
        return np.sum(x)
    return f


def long_loops(length):
    def f(x):
        return np.sum(lax.scan(lambda c, _: (chain(length)(c) * c, None), x, length=3)[0])
    return f


@pytest.mark.parametrize("make", [chain, long_loops])
@pytest.mark.parametrize("order", [1, 2])
def test_the_work_grows_with_the_program(make, order):
    counts = []
    for length in (40, 160):
        f = make(length)
        for _ in range(order):
            f = (lambda g: lambda x: np.sum(lw.grad(g)(x)))(f)
        versions = lw.jit(f)._versions
        counts.append(lines_run(lambda v=versions: v.draft(v.parameters.call((ROWS[0],), {})), [cuts, residuals, backward]))
    assert counts[1] < 6 * counts[0]


def test_graphs_without_backward_parts_stay():
    g = expanded(lw.make_graph(looped)(ROWS, SQUARE))
    made, choices = recomputing(g, {})
    assert isinstance(made, Graph) and made == g and choices == []


# ---- what users see ---------------------------------------------------------------------------------
def here(f):
    """The line of the only statement of f."""
    return f"{__file__}:{f.__code__.co_firstlineno + 1}"


def test_explain_says_what_is_kept():
    def layer(x, w):
        return np.exp(np.sin(x @ w))

    def loss(x, w):
        return np.sum(layer(x, w) ** 2)
    f = lw.jit(lw.grad(loss, 1))
    text = f.explain(np.ones((10, 3)), SQUARE)
    assert f"the backward part of line {here(loss)} keeps 8*n*p = 240 bytes of the " in text
    assert f"    keeps f64[n, p] of dot_general, line {here(layer)}\n    computes again: cos, exp, " in text
    said = f.explain()
    assert "keeps 8*n*p bytes of the 16*n*p bytes that it reads" in said and " = 240 bytes" not in said


def test_explain_says_what_loops_and_branches_keep():
    def body(c, r):
        return np.exp(np.sin(c * r)) * c, None

    def loss(x):
        return np.sum(lax.scan(body, np.ones_like(x[0]), x)[0])
    text = lw.jit(lw.grad(loss)).explain(ROWS)
    assert f"each trip of a loop of line {here(loss)} keeps 8*m = 24 bytes of the " in text
    assert "    keeps f64[m] that it is given\n" in text

    def split(x):
        return np.sum(lax.cond(x[0] > 0, lambda v: np.exp(np.sin(v)), lambda v: v, x))
    text = lw.jit(lw.grad(split)).explain(ROWS[0])
    assert f"a branch of line {here(split)} keeps 0 bytes of the 16*n = 48 bytes that it reads\n" in text
    assert "    computes again: cos, exp, sin\n" in text


def test_explain_says_nothing_of_derivatives_where_there_are_none():
    text = lw.jit(network).explain(ROWS, SQUARE)
    assert "keeps" not in text and "computes again" not in text


def test_explain_leaves_out_what_a_checkpoint_does_not_keep():
    text = lw.jit(lw.grad(lambda x, w: np.sum(lw.checkpoint(lambda v: np.exp(v @ w) @ w)(x)))).explain(ROWS, SQUARE)
    assert "each trip" not in text and "a branch" not in text
