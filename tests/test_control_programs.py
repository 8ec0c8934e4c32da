"""Random programs of nested loops, branches and updates, compiled and in NumPy."""
import random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import loopwright as lw
from tests.loops import is_traced, rows_of, scan, switch, while_
from tests.scale import examples


class Program:
    """A function of (vector, matrix, number, integer) that a seed writes: the same steps on traced values and on arrays."""

    def __init__(self, seed, depth, steps):
        self.seed, self.depth, self.steps = seed, depth, steps

    def __call__(self, x, m, a, i):
        """The same four after some steps. Numbers stay within [-1, 1], the integer within [0, 3]."""
        draw, at = random.Random(self.seed), (x, m, a, i)
        for _ in range(self.steps):
            kinds = PLAIN if self.depth == 0 else PLAIN + NESTED
            at = draw.choice(kinds)(draw, self, *at)
        return at

    def inner(self, draw):
        return Program(draw.random(), self.depth - 1, draw.choice((1, 2, 3)))


def elementwise(draw, p, x, m, a, i):
    k = draw.choice((0.5, -0.7, 0.9))
    return draw.choice((
        lambda: (np.tanh(x * k + a), m, a, i), lambda: (x, m * k, np.tanh(a + x[i]), i),
        lambda: (np.where(x > a, x * k, x), m, a, i), lambda: (x, np.tanh(m + x[None, :]), a * k, i),
        lambda: (x[::-1] * k, m, a, i), lambda: (np.abs(x), m, -a, (i + 1) % 4)))()


def summing(draw, p, x, m, a, i):
    return draw.choice((
        lambda: (np.tanh(np.sum(m, axis=0)), m, a, i), lambda: (x, m, np.tanh(np.sum(x)), i),
        lambda: (np.sort(x), m, np.max(x), i), lambda: (np.tanh(x @ (m.T @ m)), m, a, i)))()


def indexing(draw, p, x, m, a, i):
    return draw.choice((
        lambda: (m[i % 3], m, x[i], i), lambda: (x, m, m[i % 3, i], i), lambda: (x[(np.arange(4) + i) % 4], m, a, i)))()


def updating(draw, p, x, m, a, i):
    x, m = x.copy(), m.copy()
    k, j = draw.choice((
        lambda: (i, a), lambda: (i, x[(i + 1) % 4]), lambda: (np.array([0, 2]) + i % 2, a), lambda: (0, a),
        lambda: ((np.array([1, 1]) + i) % 4, x[:2] * 0.5)))()
    if draw.random() < 0.5:
        x[k] = j
    else:
        m[i % 3, k] = j
    return x, m, a, i


def scanning(draw, p, x, m, a, i):
    body, reverse = p.inner(draw), draw.random() < 0.5
    (x, a, i), (ys, zs) = scan(lambda m, x, a, i, row: _step(body, m, x, a, i, row), [m], [x, a, i], [m], reverse=reverse)
    return x, ys, np.tanh(a + np.sum(zs)), i


def _step(body, m, x, a, i, row):
    x, m, a, i = body(np.tanh(x + row), m, a, i)
    return (x, a, i), (m[i % 3], a)


def carrying(draw, p, x, m, a, i):
    body = p.inner(draw)
    carry, _ = scan(lambda x, m, a, i, _: (body(x, m, a, i), ()), [], [x, m, a, i], [np.zeros(draw.choice((1, 3, 8)))])
    return tuple(carry)


def looping(draw, p, x, m, a, i):
    body, most = p.inner(draw), draw.choice((0, 1, 4))
    x, m, a, i, _ = while_(lambda x, m, a, i, k: (k < most + i) & (a < 2), lambda x, m, a, i, k: (*body(x, m, a, i), k + 2), [],
                           [x, m, a, i, 0 * i])
    return x, m, a, i


def branching(draw, p, x, m, a, i):
    branches = [p.inner(draw) for _ in range(draw.choice((2, 3)))]
    return tuple(switch(i % len(branches), branches, x, m, a, i))


def sizing(draw, p, x, m, a, i):
    def use(rows, x):
        (c,), (ys,) = scan(lambda c, r: ((c * 0.5 + r,), (c * r,)), [], [x], [np.cos(rows * 1.0)])
        return np.tanh(c + np.sum(ys, axis=0))
    return rows_of(i * 1, use, x) if is_traced([i]) else _no_rows(use, i, x), m, a, i


def _no_rows(use, i, x):
    """NumPy cannot stack no rows."""
    return use(np.arange(i, dtype=np.int64), x) if i else np.tanh(x)


PLAIN = (elementwise, summing, indexing, updating)
NESTED = (scanning, carrying, looping, branching, sizing)


@given(st.integers(0, 10**9), st.integers(1, 3))
@example(504, 1)  # a region is older than an equality of sizes
@example(2992, 3)  # LLVM pushes arguments of a function that calls ours, see bridges.py
@examples(25)
def test_random_programs_mean_what_they_mean_in_numpy(seed, depth):
    program, rng = Program(seed, depth, 5), np.random.default_rng(seed)
    compiled = lw.jit(program)
    for _ in range(2):
        args = rng.uniform(-1, 1, 4), rng.uniform(-1, 1, (3, 4)), rng.uniform(-1, 1), int(rng.integers(0, 4))
        args = args[0], args[1], np.float64(args[2]), np.int64(args[3])
        for got, want in zip(compiled(*args), program(*args), strict=True):
            assert np.asarray(got).dtype == np.asarray(want).dtype and np.shape(got) == np.shape(want)
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 10**9), st.integers(0, 2))
@examples(12)
def test_the_text_of_random_programs_parses_back(seed, depth):
    """And gives the same bits; Python's numbers among arguments and results stay such."""
    f, rng = lw.jit(Program(seed, depth, 3)), np.random.default_rng(seed)
    args = np.tanh(rng.normal(size=4)), np.tanh(rng.normal(size=(3, 4))), float(np.tanh(rng.normal())), seed % 4
    want, versions = f(*args), f._versions
    captured = versions.draft(versions.parameters.call(args, {})).version.hidden
    found = lw.parse(f.lower(*args).module).compile()(*map(np.asarray, args), *captured)
    for a, b in zip(found, want, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
