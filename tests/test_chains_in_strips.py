"""Chains of kernels whose rows do not meet, in strips of rows: which chains these are; that values and bits stay the same."""
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.dims import symbol_of
from loopwright.ir.interpreter import evaluate
from loopwright.ir.verifier import verify
from loopwright.lower import compile, program, strips
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.threads import bits_of

HOST = host_target()
rng = np.random.default_rng(3)


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def slope(x):
    return lw.grad(lambda x: np.sum(softmax(x) ** 2))(x)


def normed(x):
    return (x - np.mean(x, axis=1, keepdims=True)) / (np.std(x, axis=1, keepdims=True) + 1)


def log_sums(x):
    top = np.max(x, axis=1, keepdims=True)
    return np.log(np.sum(np.exp(x - top), axis=1)) + top[:, 0], softmax(x)


def scaled(x):
    """With a table that every row reads whole, and what is stored on the way."""
    y = x - np.max(x, axis=1, keepdims=True)
    z = y * np.sum(np.exp(y), axis=1, keepdims=True)
    return z, z / np.sum(np.abs(z) + 1, axis=1, keepdims=True) * np.arange(x.shape[2], like=x)


PROGRAMS = {"softmax": softmax, "normed": normed, "sums and shares": log_sums, "scaled": scaled}
JITTED = {name: lw.jit(lambda x, f=f: f(x)) for name, f in PROGRAMS.items()}


@pytest.fixture(params=[0, 5000, 1 << 20], ids=lambda n: f"cache of {n}")
def cache(request, monkeypatch):
    """Compile for caches that hold nothing, some rows, and all."""
    target = dataclasses.replace(HOST, cache_bytes=request.param)
    monkeypatch.setattr(compile, "host_target", lambda: target)
    return target


def in_strips(f, *args, target=HOST):
    """The graph in strips, and the kernels of each."""
    kernels = program.lower_graph(lw.make_graph(f)(*args), target, blas=True).kernels
    g = strips.in_strips(kernels, target)
    return g, [[m.op.name for m in n.regions[0].nodes[0].regions[0].nodes] for n in g.nodes if n.op.name == "strips"]


def close(found, expected, single=False):
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4 if single else 1e-10, atol=1e-5 if single else 1e-12)


# ---- values -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PROGRAMS)
@examples(12)
@given(n=st.sampled_from([0, 1, 2, 3, 7, 33, 100]), m=st.integers(1, 20), k=st.sampled_from([1, 3, 16, 50]),
       seed=st.integers(0, 9), dtype=st.sampled_from(["f4", "f8"]))
def test_values_are_those_of_numpy(name, n, m, k, seed, dtype):
    x = np.random.default_rng(seed).normal(size=(n, m, k)).astype(dtype)
    close(JITTED[name](x), PROGRAMS[name](x), single=dtype == "f4")


@pytest.mark.parametrize("name", PROGRAMS)
def test_for_caches_of_any_size(name, cache):
    f = lw.jit(PROGRAMS[name])
    for n in (1, 2, 5, 31, 64, 0):
        x = rng.normal(size=(n, 9, 20))
        close(f(x), PROGRAMS[name](x))
    assert f.compiles == 1


@pytest.mark.parametrize("name", [*PROGRAMS, "slope"])
@pytest.mark.parametrize("shape", [(300, 20, 100), (7, 60, 900), (2, 30, 9000), (33, 3, 5000)])
def test_bits_do_not_depend_on_threads(name, shape):
    f = {**PROGRAMS, "slope": slope}[name]
    first, *others = bits_of(lambda x: lw.tree.leaves(f(x)), rng.normal(size=shape).astype("f4"))
    assert all(x == first for x in others)


def test_a_row_has_the_same_bits_among_others():
    """Strips have as many rows all: of one row alone, kernels might add up in another order."""
    f = lw.jit(lambda x: softmax(x))
    x = rng.normal(size=(41, 40, 700)).astype("f4")
    whole = f(x)
    for n in (40, 23, 2):
        np.testing.assert_array_equal(f(x[:n].copy()), whole[:n])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_means_the_same(name):
    x = rng.normal(size=(20, 9, 16))
    g, chains = in_strips(PROGRAMS[name], x, target=dataclasses.replace(HOST, cache_bytes=5000))
    verify(g)
    assert [set(c) for c in chains] == [{"kernel"}] and len(chains[0]) > 1
    sizes = {symbol_of(d): k for v in g.params for d, k in zip(v.type.shape, x.shape, strict=True)}
    close(tuple(evaluate(g, (x,), sizes)), tuple(lw.tree.leaves(PROGRAMS[name](x))))


def in_groups(x):
    """Means and deviations of four groups of columns, whose sums of single columns are reshaped between kernels."""
    n, m, k = x.shape
    y = x.reshape(n, m, 4, k // 4)
    y = y - np.mean(y, axis=(1, 3), keepdims=True)
    return (y / np.sqrt(np.mean(y * y, axis=(1, 3), keepdims=True) + 1e-3)).reshape(n, m, k)


def test_a_chain_goes_through_reshapes(cache):
    f, slope_of = lw.jit(lambda x: in_groups(x)), lw.jit(lw.grad(lambda x: np.sum(in_groups(x) ** 3)))
    for n, m, k in ((1, 9, 20), (2, 700, 64), (31, 5, 8), (0, 3, 4), (5, 1, 12)):
        x = rng.normal(size=(n, m, k))
        close(f(x), in_groups(x))
        e = 1e-6 * rng.normal(size=x.shape)
        np.testing.assert_allclose(np.sum(slope_of(x) * e), (np.sum(in_groups(x + e) ** 3) - np.sum(in_groups(x - e) ** 3)) / 2,
                                   rtol=1e-5, atol=1e-10)
    assert f.compiles == 1


def test_a_reshape_that_others_read_ends_a_chain():
    def told(x):
        n, _, k = x.shape
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        groups = np.sum(e, axis=1).reshape(n, 4, k // 4)
        sums = np.broadcast_to(np.sum(groups, axis=2)[:, :, None], (n, 4, k // 4)).reshape(n, k)
        return e / sums[:, None, :], groups
    f = lw.jit(told)
    for n, m, k in ((31, 5, 8), (2, 700, 64), (1, 9, 20)):
        x = rng.normal(size=(n, m, k))
        close(f(x), told(x))
    g, chains = in_strips(told, x)
    verify(g)
    assert all("reshape" not in chain for chain in chains) and any(n.op.name == "reshape" for n in g.nodes)


def test_where_reshapes_stand():
    x = rng.normal(size=(20, 9, 16))
    g, chains = in_strips(in_groups, x)
    verify(g)
    assert [set(c) for c in chains] == [{"kernel", "reshape"}] and chains[0][0] == chains[0][-1] == "kernel"
    sizes = {symbol_of(d): k for v in g.params for d, k in zip(v.type.shape, x.shape, strict=True)}
    close(*evaluate(g, (x,), sizes), in_groups(x))
    first, *others = bits_of(lambda x: [in_groups(x)], rng.normal(size=(7, 60, 900)).astype("f4"))
    assert all(x == first for x in others)


# ---- which chains -------------------------------------------------------------------------------
@pytest.mark.parametrize("f", [
    lambda x: np.exp(x - np.mean(x, axis=0)),  # rows meet
    lambda x: x - np.max(x), lambda x: np.cumsum(np.exp(x - np.mean(x, axis=1, keepdims=True)), axis=0),
    lambda x: (x - np.mean(x, axis=1, keepdims=True))[::-1] * 2,
    lambda x: np.sum(np.exp(x), axis=-1),  # one kernel
])
def test_what_stays_whole(f):
    x = rng.normal(size=(30, 8, 9))
    assert not in_strips(f, x)[1]
    close(lw.jit(f)(x), f(x))


def test_axes_that_are_numbered_as_a_shape():
    """Of 2x3 positions, each summed along axes 2 and 3: (2, 3) is both."""
    def f(x):
        y = np.exp(x - np.max(x, axis=1, keepdims=True))
        return y / np.sum(y, axis=1, keepdims=True), np.sum(y, axis=(2, 3)) * 2
    x = rng.normal(size=(2, 3, 4, 5))
    close(lw.jit(f, shapes="2 3 m k")(x), f(x))


def test_donated_arrays_stay_whole():
    f, x = lw.jit(lambda x: softmax(x) * 2, donate_argnums=0), rng.normal(size=(300, 30, 50))
    want = softmax(x) * 2
    close(f(x), want)


def test_explanations_tell():
    f, g = lw.jit(softmax), lw.jit(lambda x: x - np.max(x))
    x = rng.normal(size=(30, 8, 9))
    f(x), g(x)
    assert "no row of kernels 0, 1, 2, 3 needs another" in f.explain(x) and "needs another" not in g.explain(x)


def test_the_line_of_an_error_is_told():
    def f(x, i):
        y = (x - np.max(x, axis=1, keepdims=True))[:, :, i]
        return y / np.sum(np.exp(y), axis=1, keepdims=True)
    x = rng.normal(size=(900, 8, 90))
    for count in (1, 2):
        lw.set_threads(count)
        with pytest.raises(IndexError, match=r"index 90 is out of bounds for axis 2 with size 90.*test_chains_in_strips"):
            lw.jit(f)(x, np.array([3, 90]))
    lw.set_threads(None)
