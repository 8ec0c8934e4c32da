"""How much one kernel computes: large formulas, deep ones, dear ones; what costs nothing is stored nowhere."""
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.ops.structural import slice_
from loopwright.lower.capacity import MOST_DEAR, MOST_DEEP
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.partition import partition
from loopwright.lower.target import host_target
from tests.scale import examples


def kernels(f, *args):
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    return [n.regions[0] for n in graph.nodes if n.regions]


def wide(x, width=20, rounds=8, step=lambda a, b, c: a * b + c):
    """Of so many intermediate values in each round, all of which the next round reads."""
    t = [x * (k / width) + 0.5 for k in range(width)]
    for _ in range(rounds):
        t = [step(a, b, c) * 0.25 for a, b, c in zip(t, t[1:] + t[:1], t[2:] + t[:2], strict=True)]
    return sum(t)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_wide_formula_is_one_kernel(dtype):
    x = np.linspace(0, 1, 999, dtype=dtype)
    kernel, = kernels(wide, x)
    assert len(kernel.nodes) > 500
    np.testing.assert_array_equal(lw.jit(wide)(x), wide(x))


def test_so_is_its_sum():
    def total(x):
        return np.sum(wide(x))
    x = np.linspace(0, 1, 999)
    assert len(kernels(total, x)) == 1
    np.testing.assert_allclose(lw.jit(total)(x), total(x), rtol=1e-13)


def test_rows_with_values_of_their_own_are_in_less():
    def centred(x):
        y = wide(x, width=9, rounds=6)
        return y - np.max(y, axis=1, keepdims=True)
    x = np.linspace(0, 1, 600).reshape(20, 30)
    assert max(len(k.nodes) for k in kernels(centred, x) if any(n.op.name == "reduce_max" for n in k.nodes)) <= 2 * MOST_NODES
    np.testing.assert_array_equal(lw.jit(centred)(x), centred(x))


def test_dear_operations_are_in_less():
    def dear(x):
        return wide(x, width=12, rounds=4, step=lambda a, b, c: np.tanh(a * b) + np.exp(-c))
    x = np.linspace(0, 1, 500)
    for k in kernels(dear, x):
        assert sum(n.op.name in ("tanh", "exp") for n in k.nodes) <= max(MOST_DEAR, MOST_NODES)
        assert len(k.nodes) <= 4 * MOST_NODES
    np.testing.assert_allclose(lw.jit(dear)(x), dear(x), rtol=1e-13)


def deep(x):
    for k in range(300):
        x = x * 0.5 + k
    return x


def depth(g):
    found = {}
    for n in g.nodes:
        found.update(dict.fromkeys(n.outputs, 1 + max((found.get(v, 0) for v in n.inputs), default=0)))
    return max(found.values())


@pytest.mark.parametrize("f", [deep, lw.grad(lambda x: np.sum(deep(x) ** 2))])
def test_a_deep_formula_is_cut(f):
    x = np.linspace(0, 1, 500)
    found = kernels(f, x)
    assert len(found) > 1 and max(map(depth, found)) <= MOST_DEEP + 2
    if f is deep:
        np.testing.assert_array_equal(lw.jit(f)(x), deep(x))


def test_constants_and_slices_of_arguments_are_made_where_they_are_read():
    def f(x, y):
        flat = 3.0 * np.ones_like(x)
        parts = [x[k:k - 9 or None] for k in range(9)]
        a = sum(p * flat[k:k - 9 or None] for k, p in enumerate(parts))
        b = [np.cumsum(p, axis=0) + flat[2:-7] for p in parts[:3]]
        return a @ y, b, parts[4] + np.sum(flat)
    x, y = np.linspace(0, 1, 600).reshape(30, 20), np.linspace(1, 2, 60).reshape(20, 3)
    for k in kernels(f, x, y):
        made = {v: n for n in k.nodes for v in n.outputs}
        stored = [made[v] for v in k.results if v in made]
        assert not any(not n.inputs or (n.op is slice_ and n.inputs[0] in k.params) for n in stored)
    (a, b, c), (p, q, r) = lw.jit(f)(x, y), f(x, y)
    for got, want in zip((a, *b, c), (p, *q, r), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@examples(8)
@given(st.integers(0, 10**6))
def test_large_random_formulas(seed):
    draw = random.Random(seed)
    rank, steps = draw.choice((1, 2)), draw.randrange(80, 200)

    def f(x, row, n):
        """Values of x's shape, of which each step makes one more; some are read beside their place."""
        values = [x, x + row]
        for _ in range(steps):
            a, b, c = (values[-draw.randrange(1, min(len(values), 12) + 1)] for _ in range(3))
            made = draw.choice([lambda a, b, c: a * 0.5 + b, lambda a, b, c: np.where(a > b, c, a), lambda a, b, c: a - c * row,
                                lambda a, b, c: np.maximum(a, b) * 0.75, lambda a, b, c: np.roll(a, 1, axis=0) - b,
                                lambda a, b, c: np.concatenate([a[1:], b[:1]]), lambda a, b, c: a[::-1] + 0.25,
                                lambda a, b, c: np.sqrt(np.abs(a)) + c, lambda a, b, c: a + np.max(b, axis=0) * 0.125])
            values.append(np.clip(made(a, b, c), -n, n))
        return values[-1], values[-3], np.sum(values[-5], axis=0)
    r = np.random.default_rng(seed)
    x, row = r.normal(size=(7, 5)[:rank]), r.normal(size=(5,)[:rank - 1])
    state = draw.getstate()
    want = f(x, row, 9.0)
    draw.setstate(state)
    for got, expected in zip(lw.jit(f, static_argnums=2)(x, row, 9.0), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
