"""Gradients of chains of products in one kernel: the derivatives that NumPy finds, and no array of rows by columns stored."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.backward import recomputing
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.control import switch
from loopwright.ir.schedule import AddAlong, from_json, to_json
from loopwright.lower import program
from loopwright.lower.covers import Cover
from loopwright.lower.decisions import Call, Generate
from loopwright.lower.partition import partitioned
from loopwright.lower.row_products import row_products
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.test_chains import SIZES, attention, causal, centred, nodes_of, scaled_after

HOST = host_target()
rng = np.random.default_rng(0)


def masked(q, k, v):
    """A bias for each head, and weights of which some are dropped."""
    xp = np if isinstance(q, np.ndarray) else lw.numpy
    s = q @ np.swapaxes(k, -1, -2) - xp.arange(k.shape[-2]) * 0.25
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    w = e / np.sum(e, axis=-1, keepdims=True)
    return np.where(np.abs(s) < 1.5, w * 1.25, 0) @ v


def several_heads(q, k, v):
    """Heads are the last axis but one, as layers make them."""
    q, k, v = (np.swapaxes(x, 1, 2) * 1.0 for x in (q, k, v))
    s = np.einsum("bqhd,bkhd->bhqk", q, k)
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return np.swapaxes(np.einsum("bhqk,bkhd->bqhd", e / np.sum(e, axis=-1, keepdims=True), v), 1, 2)


FUNCTIONS = {f.__name__: f for f in (attention, causal, masked, several_heads, centred, scaled_after)}


def gradient_of(f):
    return lambda q, k, v, w: lw.grad(lambda *args: np.sum(f(*args) * w), (0, 1, 2))(q, k, v)


def arguments(sizes, dtype=np.float64):
    b, h, t, s, d, e = sizes
    return [rng.normal(size=x).astype(dtype) for x in ((b, h, t, d), (b, h, s, d), (b, h, s, e), (b, h, t, e))]


def by_numpy(f, args):
    """The derivatives as a graph that NumPy evaluates, in f64."""
    wide = [x.astype(np.float64) for x in args]
    g = lw.make_graph(gradient_of(f))(*wide)
    return evaluate(g, wide)


def by_hand(q, k, v, w):
    s = q @ np.swapaxes(k, -1, -2) / 8.0
    e = np.exp(s - np.max(s, axis=-1, keepdims=True, initial=-np.inf))
    p = e / np.sum(e, axis=-1, keepdims=True)
    dp = w @ np.swapaxes(v, -1, -2)
    ds = p * (dp - np.sum(dp * p, axis=-1, keepdims=True)) / 8.0
    return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ w


def of_gradients(nodes):
    return [n for n in nodes if n.regions and any(m.op is row_products for m in n.regions[0].nodes)]


JITTED = {name: lw.jit(gradient_of(f)) for name, f in FUNCTIONS.items()}


@pytest.mark.parametrize("sizes", SIZES)
def test_the_gradient_of_attention(sizes):
    args = arguments(sizes)
    for got, want in zip(JITTED["attention"](*args), by_hand(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@examples(20)
@given(sizes=st.tuples(*[st.integers(0, n) for n in (2, 2, 190, 140, 70, 40)]), name=st.sampled_from(sorted(FUNCTIONS)))
def test_any_sizes(sizes, name):
    if 0 in (sizes[3], sizes[4]):
        return  # an extreme of no elements; a column that is read
    args = arguments(sizes)
    for got, want in zip(JITTED[name](*args), by_numpy(FUNCTIONS[name], args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision(name):
    args = arguments((1, 2, 97, 70, 20, 33), np.float32)
    for got, want in zip(JITTED[name](*args), by_numpy(FUNCTIONS[name], args), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("name", ["attention", "causal", "masked", "several_heads", "scaled_after"])
def test_nothing_of_rows_by_columns_is_stored(name):
    """Whatever the kernels of a gradient give each other has fewer axes, or fewer elements."""
    nodes = nodes_of(gradient_of(FUNCTIONS[name]), *arguments((2, 3, 40, 50, 6, 7)))
    assert len(of_gradients(nodes)) == 1
    n, = of_gradients(nodes)
    rows = {m.inputs[0].type.shape for m in n.regions[0].nodes if m.op is row_products}
    assert len(rows) == 1 and not any(v.type.shape in rows for m in nodes for v in m.outputs)


def test_rows_that_the_forward_part_needs_are_made_again():
    """The loss is not linear in what attention gives: two chains, each with the weights for itself."""
    def loss(q, k, v):
        return np.sum(np.tanh(attention(q, k, v)) ** 2)
    args = arguments((2, 2, 60, 50, 9, 7))[:3]
    nodes = nodes_of(lw.value_and_grad(loss, (0, 1, 2)), *args)
    assert len(of_gradients(nodes)) == 1
    assert sum(m.op.name == "exp" for n in nodes for m in n.regions[0].nodes) == 2
    value, found = lw.jit(lw.value_and_grad(loss, (0, 1, 2)))(*args)
    np.testing.assert_allclose(value, loss(*args), rtol=1e-12)
    want = evaluate(lw.make_graph(lw.grad(loss, (0, 1, 2)))(*args), args)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["attention", "causal", "several_heads"])
def test_what_calls_would_keep_for_the_backward_part_is_made_again(name):
    args = arguments((2, 3, 96, 90, 40, 24), np.float32)
    f = lw.jit(lw.value_and_grad(lambda q, k, v: np.sum(FUNCTIONS[name](q, k, v) ** 2), (0, 1, 2)))
    value, found = f(*args[:3])
    expected = np.sum(np.asarray(FUNCTIONS[name](*[x.astype(np.float64) for x in args[:3]])) ** 2)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    for a, b in zip(found, lw.grad(lambda q, k, v: np.sum(FUNCTIONS[name](q, k, v) ** 2), (0, 1, 2))(
            *[x.astype(np.float64) for x in args[:3]]), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * np.abs(b).max())
    sizes = dict(zip("nmkpsa", (2, 3, 96, 40, 90, 24), strict=True))
    graph = expanded(lw.make_graph(lw.value_and_grad(lambda *x: np.sum(FUNCTIONS[name](*x) ** 2), (0, 1, 2)))(*args[:3]))
    kept, _ = recomputing(graph, {x: sizes.get(x, 50) for x in graph.free_symbols})
    kernels = program.lower_graph(kept, HOST, blas=True).kernels.nodes
    assert of_gradients([m for n in kernels if n.op is switch for m in n.regions[1].nodes])


def layers(q, k, v, w):
    """Two attentions, the second on what the first gives, which a result shows as well."""
    def loss(q, k, v):
        first = attention(q, k, v)
        return np.sum(attention(first, k, v) * w), first
    return lw.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)


def test_one_after_the_other():
    args = arguments((1, 2, 30, 30, 5, 5))
    found = lw.tree.leaves(lw.jit(layers)(*args))
    want = evaluate(lw.make_graph(layers)(*args), args)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    assert len(of_gradients(nodes_of(layers, *args))) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_threads(dtype):
    args = arguments((2, 3, 300, 200, 40, 33), dtype)
    found = []
    try:
        for threads in (1, 2, 3):
            lw.set_threads(threads)
            found.append(JITTED["attention"](*args))
    finally:
        lw.set_threads(None)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def with_weights(q, k, v, w):
    """The weights themselves are a result."""
    def loss(q, k, v):
        s = q @ np.swapaxes(k, -1, -2)
        e = np.exp(s - np.max(s, axis=-1, keepdims=True))
        p = e / np.sum(e, axis=-1, keepdims=True)
        return np.sum((p @ v) * w), p
    return lw.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)


def with_bias(q, k, v, w):
    """The gradient of a bias for each pair is as large as the weights."""
    def loss(q, k, v, b):
        s = q @ np.swapaxes(k, -1, -2) + b
        e = np.exp(s - np.max(s, axis=-1, keepdims=True))
        return np.sum((e / np.sum(e, axis=-1, keepdims=True) @ v) * w)
    return lw.grad(loss, (0, 1, 2, 3))(q, k, v, q[..., :1] + k[..., 0][..., None, :])


@pytest.mark.parametrize("f", [with_weights, with_bias])
def test_what_others_read_stays_apart(f):
    args = arguments((2, 2, 30, 20, 6, 7))
    assert not of_gradients(nodes_of(f, *args))
    for got, want in zip(lw.tree.leaves(lw.jit(f)(*args)), evaluate(lw.make_graph(f)(*args), args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def test_long_products_are_not_made_again():
    """A loss that needs the weights twice, of products of more terms than storing them is worth."""
    def loss(q, k, v):
        return np.sum(np.tanh(attention(q, k, v)))
    counts = []
    for d in (64, 600):
        args = [np.zeros((2, 2, 40, d)), np.zeros((2, 2, 20, d)), np.zeros((2, 2, 20, 8))]
        graph = lw.make_graph(lw.grad(loss, (0, 1, 2)), dynamic=False)(*args)
        counts.append(len(of_gradients(partitioned(graph, HOST, blas=True).kernels.nodes)))
    assert counts == [1, 0]


def test_it_is_a_decision():
    """The library multiplies where that is decided; said explicitly, what the rule decides is the same."""
    args = arguments((1, 2, 30, 20, 6, 7))
    graph = lw.make_graph(gradient_of(attention))(*args)
    taken = [t for t in partitioned(graph, HOST, blas=True, is_scheduled=False).taken if t.kind[0] == "gradient"]
    assert len(taken) == 1 and {type(x) for x in taken[0].others} == {Generate, Call}
    generate, call = sorted(taken[0].others, key=lambda x: isinstance(x, Call))
    assert taken[0].decision == generate
    counts = [sum(n.op is switch for n in program.lower_graph(graph, HOST, blas=True, cover=Cover((x,))).kernels.nodes)
              for x in (generate, call)]
    assert counts == [1, 0]


def test_explain_says_what_is_not_stored():
    args = arguments((1, 2, 40, 20, 6, 7))
    f = lw.jit(gradient_of(attention))
    f(*args)
    assert "rows, so that" in f.explain(*args) and "are not stored" in f.explain(*args)


def test_its_schedule_is_data():
    n, = of_gradients(nodes_of(gradient_of(attention), *arguments((1, 2, 30, 20, 6, 7))))
    schedule = n.attrs["schedule"]
    again = from_json(to_json(schedule))
    assert again == schedule
    assert build_nest(n.regions[0], again, "k").nest == build_nest(n.regions[0], schedule, "k").nest
    wrong = tuple(AddAlong(0) if isinstance(x, AddAlong) else x for x in schedule)
    with pytest.raises(ScheduleError, match="AddAlong"):
        build_nest(n.regions[0], wrong, "k")


def test_the_region_means_the_same_to_the_interpreter():
    args = arguments((1, 2, 9, 5, 3, 4))
    kernels = program.lower_graph(lw.make_graph(gradient_of(attention))(*args), HOST, blas=True).kernels
    for got, want in zip(evaluate(kernels, args), by_hand(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_in_loops_and_under_vmap():
    args = arguments((2, 2, 20, 20, 6, 6))

    def steps(q, k, v, w):
        return lax.scan(lambda x, _: (x + gradient_of(attention)(x, k, v, w)[0], None), q, None, length=3)[0]
    want = args[0]
    for _ in range(3):
        want = want + by_hand(want, *args[1:])[0]
    np.testing.assert_allclose(lw.jit(steps)(*args), want, rtol=1e-10, atol=1e-11)
    for got, want in zip(lw.jit(lw.vmap(gradient_of(attention)))(*args), by_hand(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)
