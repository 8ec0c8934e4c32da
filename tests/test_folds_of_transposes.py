"""Folds of what lies in memory beside what is transposed: tiles copy that first. NumPy's values, for every size."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.ops.structural import transpose
from loopwright.ir.schedule import AddAlong, Tiles
from loopwright.lower.partition import partition
from loopwright.lower.target import host_target
from tests.scale import examples


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


PAIRS = {
    "all": lambda x, y: np.sum(x * y.T), "greatest": lambda x, y: np.max(np.abs(x - y.T)),
    "rows": lambda x, y: np.sum(x * y.T, axis=1), "columns": lambda x, y: np.sum(x * y.T, axis=0),
    "chains": lambda x, y: softmax(x + np.cos(y.T)), "both": lambda x, y: np.sum(x.T * y, axis=1),
    "stored": lambda x, y: (x + y.T, np.sum(x + y.T, axis=0)), "first": lambda x, y: np.argmax(x + y.T, axis=1),
    "last": lambda x, y: np.sum(y.T, axis=0) + np.sum(np.exp(x) * np.sqrt(np.abs(y.T)), axis=0),
}
JITTED = {name: lw.jit(f) for name, f in PAIRS.items()}
TURNED = lw.jit(lambda x, y: np.sum(x * np.transpose(y, (2, 0, 1)), axis=(0, 2)))


def close(found, expected):
    for a, b in zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PAIRS)
@examples(15)
@given(n=st.integers(1, 70), m=st.integers(1, 70), dtype=st.sampled_from(["f4", "f8"]), seed=st.integers(0, 99))
def test_pairs_of_every_shape(name, n, m, dtype, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, m)).astype(dtype), rng.normal(size=(m, n)).astype(dtype)
    close(JITTED[name](x, y), PAIRS[name](x, y))


@examples(15)
@given(shape=st.tuples(*[st.integers(1, 12)] * 3), seed=st.integers(0, 99))
def test_three_axes(shape, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=shape), rng.normal(size=(*shape[1:], shape[0]))
    close(TURNED(x, y), np.sum(x * np.transpose(y, (2, 0, 1)), axis=(0, 2)))


def test_gradients():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 40))
    close(lw.jit(lw.grad(lambda x: np.sum((x - x.T) ** 2)))(x), 4 * (x - x.T))


def kernels(f, *shapes):
    graph = partition(expanded(lw.make_graph(f)(*[np.ones(shape, "f4") for shape in shapes])), host_target(), blas=True)
    return [({n.op for n in k.regions[0].nodes}, k.attrs["schedule"]) for k in graph.nodes]


@pytest.mark.parametrize("name", ["all", "greatest", "rows", "columns"])
def test_what_is_transposed_is_copied_in_tiles(name):
    (copied, schedule), *rest = kernels(PAIRS[name], (40, 50), (50, 40))
    assert copied == {transpose} and Tiles() in schedule and not any(isinstance(x, AddAlong) for x in schedule)
    assert rest and not any(transpose in ops for ops, _ in rest)


@pytest.mark.parametrize("f", [lambda x: np.sum(x.T, axis=1), lambda x: np.sum(np.exp(x.T)), lambda x: np.max(x.T * 2, axis=0)])
def test_what_is_transposed_alone_is_folded_where_it_lies(f):
    assert len(kernels(f, (40, 50))) == 1
    assert len(kernels(lambda x, y: np.sum(x.T * y.T, axis=1), (40, 50), (40, 50))) == 1


def test_long_chains_of_what_is_transposed():
    """To look behind a value takes no longer where each is read twice."""
    def f(x, y):
        z = x.T
        for _ in range(200):
            z = z * 0.5 + z * 0.25
        return np.sum(z * y + y)
    x, y = np.random.default_rng(0).normal(size=(2, 7, 5))
    close(lw.jit(f)(x, y.T.copy()), f(x, y.T))
