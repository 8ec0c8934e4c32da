"""Donated arguments of programs whose results need more than their own element: the same bits as without donation."""
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.runtime import pool
from tests.scale import examples
from tests.test_donation import IN_PLACE, added_at, donating, incremented
from tests.test_random_user_programs import SIZES, Program, reference

NEIGHBOURS = {
    "reversed": lambda x: x[::-1], "rolled": lambda x: np.roll(x, 1, axis=0), "a sum of neighbours": lambda x: x + x[::-1],
    "a stencil": lambda x: np.concatenate([x[1:], x[:1]]) - 2 * x + np.concatenate([x[-1:], x[:-1]]),
    "sorted": lambda x: np.sort(x, axis=0), "sorted places": lambda x: np.take(x, np.argsort(x[:, 0]), axis=0),
    "cumulative": lambda x: np.cumsum(x, axis=0), "along rows": lambda x: np.cumsum(x, axis=1) + x,
    "softmax": lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
    "centred": lambda x: x - x.mean(0), "over all": lambda x: x / (1 + np.sum(np.abs(x))),
    "a product": lambda x: (x @ x.T) @ x, "an outer sum": lambda x: x[:1] + x[:, :1] * x,
    "a padded part": lambda x: np.pad(x[1:], ((0, 1), (0, 0))), "indexed": lambda x: x[np.arange(x.shape[0], like=x)[::-1]],
    "shifted in itself": lambda x: added_at(x), "transposed twice": lambda x: np.sin(x.T).T,
    "a transposed sum": lambda x: x + np.reshape(x.T, x.shape), "two results": lambda x: (x + 1, x[::-1] * 2),
    "read again": lambda x: (np.tanh(x), np.cumsum(np.tanh(x), axis=0) + x),
    "a scan over rows": lambda x: lw.lax.scan(lambda c, r: (c + r, c * r), x[0] * 0, x)[1] if x.shape[0] else x,
    "rows of a neighbour": lambda x: lw.lax.fori_loop(1, x.shape[0], lambda i, c: row_of_neighbour(i, c, x), x),
    "a branch": lambda x: lw.lax.cond(np.sum(x) > 0, lambda v: v[::-1] + v, lambda v: v * 2, x),
    "a loop around a product": lambda x: lw.lax.fori_loop(0, 3, lambda i, c: np.tanh(c[::-1] + c.sum(0)), x),
}


def row_of_neighbour(i, c, x):
    c = c.copy()
    c[i] = c[i - 1] + x[-1 - i]
    return c


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_results_that_need_neighbours(name):
    f, plain = donating(NEIGHBOURS[name], 0), lw.jit(NEIGHBOURS[name])
    rng = np.random.default_rng(1)
    for shape in ((5, 4), (33, 17), (1, 4), (6, 1), (1, 1), (2, 2), (64, 64)):
        x = rng.normal(size=shape)
        want, got = plain(x), f(x.copy())
        for r, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
            np.testing.assert_array_equal(r, w)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about means of nothing
@examples(15)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=92)  # lanes that another instruction asks for
def test_random_programs_give_the_same_bits_with_every_argument_donated(seed):
    rng = np.random.default_rng(seed)
    program = Program(rng)
    f = program.function()
    plain, donated = lw.jit(f), donating(f, *range(len(program.shapes)))
    for _ in range(4):
        args = program.arguments({name: int(rng.choice(SIZES)) for name in "nmk"})
        if reference(f, args) is None:
            continue
        try:
            wants = plain(*[a.copy() for a in args])
        except lw.WriteError:  # a view that was written through a reshape, whose meaning depends on the layout
            return
        gots = donated(*[a.copy() for a in args])
        for got, want in zip(gots, wants, strict=True):
            assert np.shape(got) == np.shape(want) and got.dtype == want.dtype, program.source
            assert np.array_equal(got, want, equal_nan=True), f"{program.source}{[a.shape for a in args]}"
        arrays = [r for r in gots if isinstance(r, np.ndarray)]
        assert not any(np.shares_memory(a, b) for k, a in enumerate(arrays) for b in arrays[:k]), program.source


STEPS = (lambda x, y, c: x * c + y, lambda x, y, c: x[::-1] - y, lambda x, y, c: np.cumsum(x) * 0.3 + c,
         lambda x, y, c: np.tanh(x + y), lambda x, y, c: np.where(x > c, y, x), lambda x, y, c: x - np.mean(y),
         lambda x, y, c: added_at(x) + c)


@st.composite
def looped(draw):
    """A program of loops and branches around steps of two vectors."""
    steps = draw(st.lists(st.tuples(st.sampled_from(range(len(STEPS))), st.sampled_from(("plain", "fori", "while", "scan",
                                                                                            "cond")), st.integers(0, 3)),
                          min_size=1, max_size=4))

    def f(x, y):
        for number, form, trips in steps:
            step = STEPS[number]
            if form == "plain":
                x, y = step(x, y, 0.5), x
            elif form == "fori":
                x, y = lw.lax.fori_loop(0, trips, lambda i, s, g=step: (g(*s, 0.1 * i), s[0]), (x, y))
            elif form == "while":
                last = lw.lax.while_loop(lambda s, n=trips: s[0] < n, lambda s, g=step: (s[0] + 1, g(s[1], s[2], 0.3), s[1]),
                                         (0, x, y))
                x, y = last[1], last[2]
            elif form == "scan":
                x, y = lw.lax.scan(lambda s, r, g=step: (g(s, s, r), r * 2), x, y)
            else:
                x = lw.lax.cond(np.sum(x) > 0, lambda a, b, g=step: g(a, b, 0.2), lambda a, b: a * b, x, y)
        return x, y
    return f


@examples(10)
@given(f=looped(), seed=st.integers(0, 2**32 - 1))
def test_random_loops_give_the_same_bits_with_every_argument_donated(f, seed):
    rng = np.random.default_rng(seed)
    plain, donated = lw.jit(f), donating(f, 0, 1)
    for n in (2, 9, 33, 1, 40):
        x, y = rng.normal(size=n), rng.normal(size=n)
        for got, want in zip(donated(x.copy(), y.copy()), plain(x, y), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.fixture
def two_threads():
    pool.set_threads(2)
    yield
    pool.set_threads(None)


@pytest.mark.parametrize("f", [incremented, IN_PLACE["a chain"], NEIGHBOURS["a stencil"], NEIGHBOURS["reversed"],
                               NEIGHBOURS["softmax"], NEIGHBOURS["two results"]])
def test_large_arrays_on_two_threads(two_threads, f):
    x = np.random.default_rng(2).normal(size=(1031, 517))
    plain, donated = lw.jit(f), donating(f, 0)
    want, given = plain(x), x.copy()
    got = donated(given)
    for r, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        np.testing.assert_array_equal(r, w)
