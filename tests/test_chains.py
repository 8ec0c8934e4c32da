"""Chains of products as one kernel: the values of NumPy at any sizes, and what is no such chain stays apart."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import ScheduleError
from loopwright.ir.interpreter import evaluate
from loopwright.ir.nest import Contract, For, Nest, Store
from loopwright.ir.ops.control import switch
from loopwright.ir.schedule import Distribute, Inline
from loopwright.lower import blocking, program
from loopwright.lower.codegen import emit_nest
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from loopwright.lower.tuning.space import Space
from tests.scale import examples

HOST = host_target()
rng = np.random.default_rng(0)


def nodes_of(f, *args, blas=True):
    """The kernels that a function becomes where there are many rows."""
    found = []
    for n in program.lower_graph(lw.make_graph(f)(*args), HOST, blas=blas).kernels.nodes:
        found += n.regions[1].nodes if n.op is switch else [n] if n.regions and n.inputs else []
    return found


def kernels_of(f, *args, blas=True):
    """Their regions."""
    return [n.regions[0] for n in nodes_of(f, *args, blas=blas)]


def softmax(s):
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / 8.0) @ v


def causal(q, k, v):
    s = q @ np.swapaxes(k, -1, -2)
    t, n = s.shape[-2:]
    xp = np if isinstance(s, np.ndarray) else lw.numpy
    return softmax(np.where(xp.arange(n) <= xp.arange(t)[:, None] + n - t, s, -1e9)) @ v


def biased(q, k, v):
    """Numbers of columns, and of rows, are added on the way; the queries are computed, and the result goes on."""
    s = np.tanh(q) @ np.swapaxes(k, -1, -2) + k[..., 0][..., None, :] * q[..., :1]
    return np.maximum(softmax(s) @ v, 0) + 1.0


def shared(q, k, v):
    """One head of keys for all of the queries."""
    return softmax(q @ np.swapaxes(k[..., :1, :, :], -1, -2)) @ v


def centred(q, k, v):
    """Row sums of another kind, and a product of products on each row's way."""
    s = q @ np.swapaxes(k, -1, -2)
    d = s - np.mean(s, axis=-1, keepdims=True)
    return (d / (1 + np.sum(d * d, axis=-1, keepdims=True))) @ v


def twice(q, k, v):
    """Rows of two products meet in a third one."""
    s, u = q @ np.swapaxes(k, -1, -2), np.sin(q) @ np.swapaxes(k, -1, -2)
    return ((s - np.max(s, axis=-1, keepdims=True)) * u) @ v


def scaled_after(q, k, v):
    """What is divided by the row's sum is the product."""
    s = q @ np.swapaxes(k, -1, -2)
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return (e @ v) / np.sum(e, axis=-1, keepdims=True)


FUNCTIONS = {f.__name__: f for f in (attention, causal, biased, shared, centred, twice, scaled_after)}
SIZES = ((2, 3, 7, 5, 3, 2), (1, 1, 1, 1, 1, 1), (1, 2, 100, 33, 16, 40), (3, 1, 40, 129, 5, 70), (1, 1, 200, 600, 65, 5),
         (0, 2, 4, 3, 2, 2), (2, 2, 0, 3, 2, 2), (2, 1, 9, 4, 0, 3), (1, 2, 5, 6, 3, 0))


def arguments(sizes, dtype=np.float64):
    b, h, t, s, d, e = sizes
    return [rng.normal(size=shape).astype(dtype) for shape in ((b, h, t, d), (b, h, s, d), (b, h, s, e))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_kernel_has_the_values_of_numpy(name):
    f = FUNCTIONS[name]
    jitted = lw.jit(f)
    for sizes in SIZES:
        if name == "biased" and sizes[4] == 0:
            continue  # it reads a column
        args = arguments(sizes)
        np.testing.assert_allclose(jitted(*args), f(*args), rtol=1e-11, atol=1e-12)
    assert len(kernels_of(f, *arguments(SIZES[0]))) == len(kernels_of(f, *arguments(SIZES[0]), blas=False)) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision(name):
    f, args = FUNCTIONS[name], arguments((1, 2, 97, 70, 20, 33), np.float32)
    got, want = lw.jit(f)(*args), f(*[x.astype(np.float64) for x in args])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@examples(20)
@given(sizes=st.tuples(*[st.integers(0, n) for n in (2, 2, 190, 140, 20, 40)]), name=st.sampled_from(sorted(FUNCTIONS)))
def test_any_sizes(sizes, name):
    if 0 in (sizes[3], sizes[4]):
        return  # an extreme of no elements
    f, args = FUNCTIONS[name], arguments(sizes)
    np.testing.assert_allclose(JITTED[name](*args), f(*args), rtol=1e-10, atol=1e-11)


JITTED = {name: lw.jit(f) for name, f in FUNCTIONS.items()}


def test_few_rows():
    """The library multiplies; of a known number of rows only one way is compiled."""
    f = lw.jit(attention)
    for rows in (1, 2, 31, 32, 33):
        args = arguments((2, 2, rows, 50, 8, 6))
        np.testing.assert_allclose(f(*args), attention(*args), rtol=1e-11, atol=1e-12)
    for rows, found in ((31, []), (32, ["kernel"])):
        args = arguments((2, 2, rows, 50, 8, 6))
        graph = lw.make_graph(attention, dynamic=False)(*args)
        kernels = program.lower_graph(graph, HOST, blas=True).kernels
        assert [n.op.name for n in kernels.nodes if sum(m.op.name == "dot_general" for m in n.regions[0].nodes) > 1] == found
        np.testing.assert_allclose(evaluate(kernels, args)[0], attention(*args), rtol=1e-11, atol=1e-12)
    args = arguments((2, 2, 31, 50, 8, 6))
    kernels = program.lower_graph(lw.make_graph(attention)(*args), HOST, blas=True).kernels
    np.testing.assert_allclose(evaluate(kernels, args)[0], attention(*args), rtol=1e-11, atol=1e-12)


def test_no_axes_before_the_rows():
    args = [x[0, 0] for x in arguments((1, 1, 300, 40, 8, 6))]
    np.testing.assert_allclose(lw.jit(attention)(*args), attention(*args), rtol=1e-11, atol=1e-12)
    assert len(kernels_of(attention, *args)) == 1


def test_constant_sizes():
    f = lw.jit(attention, dynamic=False)
    for sizes in ((1, 2, 30, 20, 8, 6), (1, 2, 30, 20, 2, 6)):
        args = arguments(sizes)
        np.testing.assert_allclose(f(*args), attention(*args), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads):
    """Heads are shared out, or the rows of the only one."""
    f = lw.jit(attention)
    try:
        lw.set_threads(threads)
        for sizes in ((2, 3, 130, 140, 40, 33), (1, 1, 900, 140, 40, 33), (1, 2, 500, 140, 40, 33)):
            args = arguments(sizes)
            np.testing.assert_allclose(f(*args), attention(*args), rtol=1e-11, atol=1e-12)
    finally:
        lw.set_threads(None)


def test_gradients():
    q, k, v = arguments((2, 2, 9, 5, 3, 4))
    w = rng.normal(size=(2, 2, 9, 4))
    loss = lambda q, k, v: np.sum(attention(q, k, v) * w)  # noqa: E731
    found = lw.jit(lw.grad(loss, (0, 1, 2)))(q, k, v)
    for place, g in enumerate(found):
        d, sides = rng.normal(size=g.shape), []
        for step in (1e-6, -1e-6):
            args = [q, k, v]
            args[place] = args[place] + step * d
            sides.append(loss(*args))
        np.testing.assert_allclose(np.sum(g * d), (sides[0] - sides[1]) / 2e-6, rtol=1e-6)


def test_in_loops_and_under_vmap():
    q, k, v = arguments((1, 3, 20, 20, 6, 6))
    want = q
    for _ in range(3):
        want = attention(want, k, v)

    def layers(q, k, v):
        return lax.scan(lambda x, _: (attention(x, k, v), None), q, None, length=3)[0]
    np.testing.assert_allclose(lw.jit(layers)(q, k, v), want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(lw.jit(lw.vmap(attention, (1, 1, 1), 1))(q, k, v), attention(q, k, v), rtol=1e-11, atol=1e-12)


APART = {
    "no fold of rows": (lambda q, k, v: np.tanh(q @ np.swapaxes(k, -1, -2)) @ v, 3),
    "rows that are a result": (lambda q, k, v: (p := softmax(q @ np.swapaxes(k, -1, -2)), p @ v), 3),
    "rows in another order": (lambda q, k, v: softmax(q @ np.swapaxes(k, -1, -2))[..., ::-1, :] @ v, 5),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_no_chain(name):
    """The products are library calls as before."""
    f, count = APART[name]
    args = arguments((2, 2, 30, 20, 6, 7))
    for got, want in zip(lw.tree.leaves(lw.jit(f)(*args)), lw.tree.leaves(f(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking, "_pays", lambda run: False)
        assert len(kernels_of(f, *args)) == count


def test_an_index_out_of_range_names_its_line():
    """What computes the operands of a chain reports as it does elsewhere."""
    def f(table, rows, k, v):
        return attention(table[rows], k, v)
    table = rng.normal(size=(10, 4))
    k, v = rng.normal(size=(6, 4)), rng.normal(size=(6, 3))
    rows = np.arange(8)
    jitted = lw.jit(f)
    np.testing.assert_allclose(jitted(table, rows, k, v), f(table, rows, k, v), rtol=1e-11, atol=1e-12)
    with pytest.raises(IndexError, match="test_chains"):
        jitted(table, rows + 5, k, v)


def test_neighbours_of_the_schedule_are_the_same_program():
    """The search may change what the rules chose, and what is legal means the same."""
    args = arguments((1, 2, 60, 50, 20, 30), np.float32)
    n, = nodes_of(attention, *args)
    space, schedule = Space(n.regions[0], HOST), n.attrs["schedule"]
    made = space.replay(schedule)
    legal = [x for x in space.neighbours(schedule, made) if space.replay(x) is not None]
    assert len(legal) > 10
    for x in legal[::8]:
        assert emit_nest(space.replay(x).nest, HOST).text


# ---- the instruction ----------------------------------------------------------------------------
def region_of_softmax():
    region, = kernels_of(softmax, rng.normal(size=(50, 7)))
    return region


def schedule_of_softmax():
    kernels = program.lower_graph(lw.make_graph(softmax)(rng.normal(size=(50, 7))), HOST, blas=True).kernels
    return kernels.nodes[0].attrs["schedule"]


def test_parts_of_a_loop_become_loops():
    plain = tuple(x for x in schedule_of_softmax() if type(x).__name__ in ("Inline", "ComputeAt", "Vectorize"))
    nest = build_nest(region_of_softmax(), (*plain, Distribute("i0", 8)), "softmax").nest
    outer, = nest.body
    names = [s.index.name for s in outer.body if isinstance(s, For)]
    assert (outer.index.name, outer.step, names) == ("i0_by8", 8, ["i0_0", "i0_1"])
    assert emit_nest(nest, HOST).text


@pytest.mark.parametrize("instructions, why", [
    ((Distribute("i0", 0),), "at least one"), ((Distribute("i7", 4),), "no loop"), ((Distribute("i1", 4),), "lanes"),
    ((Distribute("i0", 8), Distribute("i0_by8", 4)), "in blocks already"),
    ((Distribute("i0", 8), Distribute("i0_0", 4)), "in blocks already")])
def test_what_it_needs(instructions, why):
    plain = tuple(x for x in schedule_of_softmax() if type(x).__name__ in ("Inline", "ComputeAt", "Vectorize"))
    with pytest.raises(ScheduleError, match=why):
        build_nest(region_of_softmax(), (*plain, *instructions), "softmax")


def test_sums_stay_where_rows_are_kept():
    """No copy of a product's block is made that nothing else is done with."""
    f, args = attention, arguments((1, 1, 100, 100, 8, 8))
    n, = nodes_of(f, *args)
    nest = build_nest(n.regions[0], n.attrs["schedule"], "attention").nest
    contracts = [s for s in statements(nest) if isinstance(s, Contract)]
    first, last = (s.buffer for s in contracts)
    stored = [s.buffer for s in statements(nest) if isinstance(s, Store)]
    assert first not in stored and first + "_left" in stored and last + "_left" in stored and "y0" in stored
    assert not any(isinstance(x, Inline) and n.regions[0].nodes[x.stage].op.name == "exp" for x in n.attrs["schedule"])


def statements(nest: Nest):
    found, todo = [], list(nest.body)
    while todo:
        s = todo.pop(0)
        found.append(s)
        todo = [*s.body, *todo] if isinstance(s, For) else todo
    return found
