"""Random programs with control flow under random stacks of up to four transforms.

The expectation is JAX in float64 where it is installed, and differences of plain Python loops in extended precision: neither
comes from this package.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.control import Ours, Plain, jax_engine
from tests.scale import examples
from tests.test_random_programs import COSTLY, TRANSFORMS, Differences, N, stacked

MOST_TRIPS = 9
JAX = jax_engine(MOST_TRIPS)
WEIGHTS = np.random.default_rng(1).normal(size=(N, N)) * 0.4


# ---- straight steps: vector of N -> vector of N ---------------------------------------------------------
STRAIGHT = (
    lambda E, x, c: E.np.sin(x) * c, lambda E, x, c: E.np.tanh(x * c), lambda E, x, c: x / (1.0 + x * x),
    lambda E, x, c: E.np.sqrt(1.0 + x * x), lambda E, x, c: E.np.exp(-x * x) + c * x, lambda E, x, c: WEIGHTS @ x,
    lambda E, x, c: E.np.cumsum(x) * 0.3, lambda E, x, c: x[::-1] * c, lambda E, x, c: x - E.np.mean(x),
    lambda E, x, c: E.np.sum(x * x) * 0.1 + x, lambda E, x, c: E.np.where(x > c, E.np.sin(x), x * c),
    lambda E, x, c: E.np.concatenate([x[1:], x[:1]]) * x, lambda E, x, c: E.np.log(1.5 + E.np.tanh(x)),
)


# ---- control flow around another step -------------------------------------------------------------------
def scanned(E, x, c, f):
    last, rows = E.scan(lambda s, r: (E.np.sin(s) * c + r, s * r), x[0] * c, x)
    return rows + f(E, x, c) * last


def scanned_back(E, x, c, f):
    last, rows = E.scan(lambda v, r: (f(E, v, c) * 0.5 + r, E.np.sum(v) * r), x, x * c, reverse=True)
    return last + rows


def counted(E, x, c, f):
    return E.fori_loop(0, 3, lambda i, v: f(E, v, c) * 0.7 + x[i], x)


def counted_by_data(E, x, c, f):
    trips = E.np.where(x[1] > 0, 3, 1)
    return E.fori_loop(0, trips, lambda i, v: f(E, v, c) * 0.7 + x * c, x)


def until_small(E, x, c, f):
    return E.while_loop(lambda v: E.np.sum(v * v) > 1.0,
                        lambda v: v * 0.6 + 0.05 * E.np.tanh(f(E, v, c)), E.np.tanh(x) * 4.0)


def until_small_or_late(E, x, c, f):
    start = (0, E.np.tanh(x) * 3.0, x[0] * 0.0 + 1.0)
    last = E.while_loop(lambda s: (s[0] < 4) & (E.np.sum(s[1] * s[1]) > 2.0),
                        lambda s: (s[0] + 1, s[1] * 0.7 + 0.1 * E.np.sin(f(E, s[1], c)), s[2] * x[1]), start)
    return last[1] * last[2]


def never(E, x, c, f):
    return E.while_loop(lambda v: E.np.sum(v * v) < -1.0, lambda v: f(E, v, c), x) * c


def branched(E, x, c, f):
    return E.cond(E.np.sum(x) > 0.01,  # not 0: what was centred is on both sides of it
                   lambda v: f(E, v, c), lambda v: E.np.cos(v) * x, x)


def branched_over_nothing(E, x, c, f):
    y = f(E, x, c)
    return E.cond(x[0] > c, lambda: y * x, lambda: x * 0.5)


def switched(E, x, c, f):
    index = E.np.where(x[0] > 0, 1, 0) + E.np.where(x[1] > 0, 1, 0)
    return E.switch(index, [lambda v: v * c, lambda v: f(E, v, c), lambda v: E.np.sin(v) * E.np.sum(v)], x)


def mapped(E, x, c, f):
    y = f(E, x, c)
    return E.map(lambda r: r * E.np.sum(y) * 0.3 + E.np.sin(r * c), x)


def running(E, x, c, f):
    return E.associative_scan(lambda a, b: a * b, E.np.tanh(f(E, x, c)) + c)


def while_in_scan(E, x, c, f):
    def body(v, r):
        v = E.while_loop(lambda u: E.np.sum(u * u) > 1.5, lambda u: u * (0.5 + 0.1 * E.np.tanh(r)), E.np.tanh(v + r) * 3.0)
        return v * c, E.np.sum(v) * r
    last, rows = E.scan(body, x, f(E, x, c))
    return last + rows


def cond_in_scan(E, x, c, f):
    def body(v, r):
        return E.cond(r > 0, lambda u: f(E, u, c) * 0.6, lambda u: u + r * x, v), v[0] * r
    last, rows = E.scan(body, x, x)
    return last * 0.5 + rows


AROUND = (scanned, scanned_back, counted, counted_by_data, until_small, until_small_or_late, never, branched,
          branched_over_nothing, switched, mapped, running, while_in_scan, cond_in_scan)


def step(rng, depth):
    """A straight step, or control flow around another."""
    if depth == 0:
        return STRAIGHT[rng.integers(len(STRAIGHT))]
    around, inner = AROUND[rng.integers(len(AROUND))], step(rng, depth - 1 if rng.random() < 0.4 else 0)
    return lambda E, x, c: around(E, x, c, inner)


def program(rng):
    """A chain of steps, at least one of them control flow."""
    first = [step(rng, 0)] if rng.random() < 0.5 else []
    parts = [(f, float(rng.uniform(0.3, 1.1))) for f in (*first, step(rng, int(rng.integers(1, 3))))]

    def f(E, x):
        for part, c in parts:
            x = part(E, x, c)
        return x
    return f


def draw(rng):
    """A program, a stack of transforms and a point. Three that cost a derivative per element are too many for differences."""
    names, costly = [], 0
    for name in rng.choice(sorted(TRANSFORMS), rng.integers(1, 5)):
        if name in COSTLY and costly == 2:
            continue
        names.append(str(name))
        costly += name in COSTLY
    return program(rng), names, rng.normal(size=N)


def check(f, names, x, want):
    got = stacked(Ours, lambda y: f(Ours, y), names)(x)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6 * np.max(np.abs(want), initial=1.0), err_msg=str(names))


@pytest.mark.skipif(JAX is None, reason="JAX is not installed; differences are the expectation then")
@examples(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_control_flow_under_stacks_of_transforms_is_that_of_jax(seed):
    f, names, x = draw(np.random.default_rng(seed))
    want = JAX.run(stacked(JAX, lambda y: f(JAX, y), names), x)
    assume(np.all(np.isfinite(want)) and np.max(np.abs(want), initial=0.0) < 1e8)
    check(f, names, x, want)


class Exact(Differences, Plain):
    """Plain loops and differences."""


@examples(30)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_control_flow_under_stacks_of_transforms_has_the_derivatives_of_differences(seed):
    f, names, x = draw(np.random.default_rng(seed))
    assume(sum(name not in ("jit", "vmap", "vmap of columns") for name in names) <= 2)
    wide, narrow = (np.asarray(stacked(Exact(h), lambda y, h=h: f(Exact(h), y), names)(x.astype(np.longdouble)))
                    for h in (2e-3, 1e-3))
    scale = np.max(np.abs(narrow), initial=1.0)
    assume(np.all(np.isfinite(narrow)) and scale < 1e6 and np.max(np.abs(wide - narrow), initial=0.0) < 1e-7 * scale)
    check(f, names, x, narrow.astype(float))
