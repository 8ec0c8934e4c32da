"""Chains of kernels in loops over blocks: the values of NumPy whatever the size of a block, and only where axes are apart."""
import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import DTypeError
from loopwright.ir.interpreter import evaluate
from loopwright.ir.parser import parse
from loopwright.ir.verifier import verify
from loopwright.lower import blocking, compile, partition, program
from loopwright.lower.control import blocks
from loopwright.lower.target import host_target
from tests.programs import programs
from tests.scale import examples

HOST = host_target()
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def kernels_of_their_own(monkeypatch):
    """Products are library calls, also those that one kernel could compute."""
    monkeypatch.setattr(partition, "chains", lambda g, halves: {})


@pytest.fixture(params=[0, 1000, 1 << 20], ids=lambda n: f"cache of {n}")
def cache(request, monkeypatch):
    """Compile for caches that are too small for anything, too small for most, and large."""
    monkeypatch.setattr(compile, "host_target", lambda: dataclasses.replace(HOST, cache_bytes=request.param))
    monkeypatch.setattr(blocking, "FEWEST_ROWS", 1 if request.param == 0 else 3)
    return request.param


def kernels_of(f, *args):
    """The kernels that a function becomes, and the loops around them."""
    return program.lower_graph(lw.make_graph(f)(*args), compile.host_target(), blas=True).kernels


def loops(f, *args):
    """The loops over blocks in what a function becomes, those inside others too."""
    def inside(g):
        return [x for n in g.nodes for x in ([n] if n.op is blocks else []) + [y for r in n.regions for y in inside(r)]]
    return inside(kernels_of(f, *args))


def softmax(s):
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / 8.0) @ v


def network(x, w, b, u):
    return np.tanh(x @ w + b) @ u


def masked(q, k, v, mask):
    return softmax(np.where(mask, q @ np.swapaxes(k, -1, -2), -1e9)) @ v


def normal(*shape):
    return rng.normal(size=shape)


def heads(b, h, t, s):
    return normal(b, h, t, 3), normal(b, h, s, 3), normal(b, h, s, 2)


def layers(n):
    return normal(n, 4), normal(4, 30), normal(30), normal(30, 2)


SIZES = ((4, 5), (9, 2), (1, 1))
CASES = {
    "attention": (attention, [heads(2, 3, 7, 5), heads(1, 1, 1, 1), heads(3, 1, 40, 9), heads(1, 4, 33, 2), heads(2, 2, 0, 3),
                              heads(0, 2, 4, 3)]),
    "attention to itself": (lambda x: attention(x, x, x), [(normal(2, t, 4),) for t in (1, 5, 18, 0)]),
    "attention without batches": (attention, [(normal(t, 3), normal(6, 3), normal(6, 2)) for t in (1, 7, 100)]),
    "attention with a mask of rows": (masked, [(*heads(1, 2, t, s), normal(t, s) > 0) for t, s in SIZES]),
    "attention with a mask for each": (masked, [(*heads(1, 2, t, s), normal(1, 2, 1, s) > 0) for t, s in SIZES]),
    "a network": (network, [layers(n) for n in (1, 2, 17, 300, 0)]),
    "a network with sums of rows": (lambda x, w, b, u: (network(x, w, b, u), np.sum(np.tanh(x @ w), -1)),
                                    [layers(n) for n in (1, 2, 17, 300)]),
    "a network with a sum over rows after it": (lambda x, w, b, u: np.sum(network(x, w, b, u), 0),
                                                [layers(n) for n in (1, 2, 17, 300)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_those_of_numpy(name, cache):
    f, calls = CASES[name]
    jitted = lw.jit(f)
    for args in calls:
        try:
            want = f(*args)
        except ValueError:  # an extreme of no elements
            with pytest.raises(ValueError):
                jitted(*args)
            continue
        for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (jitted(*args), want)], strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert loops(f, *calls[0])


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_sound(name, cache):
    """The loops verify, and mean in the interpreter what they compile to."""
    f, calls = CASES[name]
    kernels = kernels_of(f, *calls[0])
    verify(kernels)
    got, want = evaluate(kernels, calls[0]), f(*calls[0])
    for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_gradients(cache):
    q, k, v, w = normal(2, 2, 9, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 4), normal(2, 2, 9, 4)
    loss = lambda q, k, v: np.sum(attention(q, k, v) * w)  # noqa: E731
    found = lw.jit(lw.grad(loss, (0, 1, 2)))(q, k, v)
    for x, g, place in ((q, found[0], 0), (k, found[1], 1), (v, found[2], 2)):
        d, args = normal(*x.shape), [q, k, v]
        sides = []
        for step in (1e-6, -1e-6):
            args[place] = x + step * d
            sides.append(loss(*args))
        np.testing.assert_allclose(np.sum(g * d), (sides[0] - sides[1]) / 2e-6, rtol=1e-6)


def test_what_stays_is_small():
    """One axis inside the other, each as far as its positions are apart."""
    q = normal(2, 3, 7, 4)
    assert [n.attrs["axis"] for n in loops(attention, q, q, q)] == [0, 1, 2]
    assert [n.attrs["axes"] for n in loops(network, *layers(50))] == [(0, None, None, None)]


def test_long_chains_are_equal_parts():
    """A network of equal layers has one function for its parts."""
    def f(x, w):
        for _ in range(24):
            x = np.tanh(x @ w)
        return x
    x, w = normal(40, 4), normal(4, 4)
    parts = [n.regions[0].key for n in loops(f, x, w)]
    assert len(parts) == 6 and len(set(parts)) == 1
    np.testing.assert_allclose(lw.jit(f)(x, w), f(x, w), rtol=1e-10, atol=1e-10)


TOGETHER = {
    "a sum over the rows": lambda x, w: np.exp(x @ w) / np.sum(np.exp(x @ w), 0) @ w.T,
    "rows in another order": lambda x, w: np.tanh(x @ w)[::-1] @ w.T,
    "rows before": lambda x, w: np.cumsum(x @ w, axis=0) @ w.T,
    "the number of the row": lambda x, w: (x @ w + lw.numpy.arange(x.shape[0])[:, None]) @ w.T,
    "rows chosen by numbers": lambda x, w: (x @ w)[np.array([1, 0, 1])] @ w.T,
    "a product that adds rows up": lambda x, w: (np.tanh(x @ w).T @ x).T @ w,
}


@pytest.mark.parametrize("name", TOGETHER)
def test_axes_whose_positions_need_each_other(name, cache):
    f, x, w = TOGETHER[name], normal(40, 4), normal(4, 4)
    np.testing.assert_allclose(lw.jit(f)(x, w), f(x, w), rtol=1e-11, atol=1e-11)


def test_constant_sizes(cache):
    f = lw.jit(attention, dynamic=False)
    for b in (1, 2):
        args = normal(b, 1, 6, 3), normal(b, 1, 5, 3), normal(b, 1, 5, 2)
        np.testing.assert_allclose(f(*args), attention(*args), rtol=1e-12, atol=1e-12)


def test_donated_arguments_are_left_whole(cache):
    f = lw.jit(lambda x, w: np.tanh(x @ w) @ w, donate_argnums=0)
    x, w = normal(50, 4), normal(4, 4)
    want = np.tanh(x @ w) @ w
    np.testing.assert_allclose(f(x.copy(), w), want, rtol=1e-12, atol=1e-12)


def depends_on_rounding(g, v):
    """Whether v is computed from numbers that are rounded: the last bit of one may decide a comparison."""
    behind = {v}
    for n in reversed(g.nodes):
        if not behind.isdisjoint(n.outputs):
            behind.update(n.inputs)
    return any(x.type.dtype.kind not in "biu" for x in behind)


def test_graphs_that_nobody_simplified_are_partitioned():
    g = parse("graph(%x: f64[]) {\n  %t: f64[] = transpose(%x) {perm=()}\n  %y: f64[] = log1p(%t)\n  return %y\n}")
    assert evaluate(partition.partition(g, HOST, blas=True), [np.array(1.0)]) == [np.log1p(1.0)]


@examples(40)
@given(program_=programs(), seed=st.integers(0, 2**32 - 1))
def test_random_programs_in_blocks_of_one(program_, seed):
    """Every chain that may be divided is, into blocks as small as can be. NumPy rounds an array and parts of it unlike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking, "_pays", lambda run: len(run) > 1)
        patch.setattr(blocking, "FEWEST_ROWS", 1)
        try:
            kernels = partition.partition(program_.graph, HOST, blas=True)
        except DTypeError:  # no machine code for complex numbers
            return
        divided = blocking.blocked(kernels, dataclasses.replace(HOST, cache_bytes=0))
    verify(divided)
    draw = np.random.default_rng(seed)
    sizes = program_.sizes(draw)
    args = program_.arguments(draw, sizes)
    if any(x.dtype.kind == "c" for x in args):  # complex numbers are pairs in kernels
        args = [np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x for x in args]
    try:
        wanted = evaluate(kernels, args, sizes)
    except ValueError as error:  # NumPy refuses integers to negative powers, and so do blocks
        with pytest.raises(ValueError, match=re.escape(str(error))):
            evaluate(divided, args, sizes)
        return
    found = evaluate(divided, args, sizes)
    for v, a, b in zip(program_.graph.results, found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if b.dtype.kind in "biu":
            if not depends_on_rounding(program_.graph, v):
                np.testing.assert_array_equal(a, b)
        else:
            near = 100 * float(ml_dtypes.finfo(b.dtype).eps)
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=near, atol=near)
