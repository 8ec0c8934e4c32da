"""Reductions of everything: the pool shares out their points in blocks that depend on sizes alone."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.schedule import Inline, Rfactor, Vectorize
from loopwright.lower.codegen.sharing import MOST_BLOCKS, POINTS
from loopwright.lower.scheduling import build_nest
from tests.scale import examples

BLOCK = MOST_BLOCKS * POINTS
SIZES = (0, 1, 999, BLOCK * 3 - 1, BLOCK * 3, BLOCK * 3 + 1, BLOCK * 4 + 12345)


def rules(f, *args):
    return [x for k in lw.schedule(f, *args).kernels for x in k.schedule if isinstance(x, Rfactor)]


@pytest.fixture(params=[1, 2])
def threads(request):
    lw.set_threads(request.param)
    yield request.param
    lw.set_threads(None)


def numbers(x):
    """Reductions of one vector, of which some share a pass."""
    return np.sum(np.tanh(x) * x), np.max(x), np.argmin(x), np.any(x > 3), np.all(x < 9), np.prod(1 + x * 1e-9), np.var(x)


@pytest.mark.parametrize("n", SIZES[1:])
def test_every_kind_of_fold_is_that_of_numpy(threads, n):
    x = np.random.default_rng(n).normal(size=n)
    compiled = lw.jit(numbers)
    for found, expected in zip(compiled(x), numbers(x), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-9)  # a product of many rounds often
    assert rules(compiled, x)


@given(st.integers(BLOCK * 2, BLOCK * 5), st.sampled_from(["f4", "f8", "i4", "i8"]), st.integers(0, 99))
@examples(6)
def test_bits_do_not_depend_on_threads(n, dtype, seed):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=n) * 1000).astype(dtype)
    total = lw.jit(lambda x: (np.sum(x), np.argmax(x), np.sum(x * x)))
    found = []
    try:
        for count in (1, 2, 3):
            lw.set_threads(count)
            found.append([np.asarray(y).tobytes() for y in total(x)])
    finally:
        lw.set_threads(None)
    assert found[0] == found[1] == found[2]
    assert total(x)[1] == np.argmax(x)
    np.testing.assert_allclose(total(x)[0], np.sum(x, dtype="f8" if dtype[0] == "f" else None), rtol=1e-3)


def test_sums_of_several_axes_are_shared_out_along_the_first():
    x = np.random.default_rng(0).normal(size=(700, 90, 11))
    f = lw.jit(lambda x: np.sum(x[:, :-1, 1:] * 2))
    np.testing.assert_allclose(f(x), np.sum(x[:, :-1, 1:] * 2), rtol=1e-12)
    assert rules(f, x)
    for shape in ((0, 3, 4), (3, 1, 1), (1, 1000, 1000)):
        y = np.ones(shape)
        assert f(y) == np.sum(y[:, :-1, 1:] * 2)


def test_a_position_among_equals_is_the_first():
    """Blocks of nothing but the identity, and the same greatest value in several blocks."""
    f = lw.jit(lambda x: np.argmax(x))
    x = np.full(BLOCK * 3, -np.inf)
    assert f(x) == 0
    x[[BLOCK * 2, BLOCK + 7, BLOCK * 3 - 1]] = 1.0
    assert f(x) == BLOCK + 7
    x[BLOCK * 2 + 5] = np.nan
    assert f(x) == BLOCK * 2 + 5


def test_sums_are_as_accurate_as_pairwise_ones():
    x = np.full(1 << 22, 0.1, "f4")
    assert abs(float(lw.jit(np.sum)(x)) - float(np.sum(x, dtype="f8"))) <= 4 * np.spacing(np.float32(419430.4))


def test_where_it_is_not_allowed():
    x = np.ones((3, 4))
    region = lw.schedule(lambda x: np.sum(x, axis=1), x).kernel(0).region
    with pytest.raises(ScheduleError, match=r"Rfactor.*outside all loops"):
        build_nest(region, (Inline(0), Rfactor(0)), "k")
    short = lw.jit(lambda x: np.sum(x), dynamic=False)
    assert not rules(short, x)
    total = lw.schedule(lambda x: np.sum(x), np.ones(3)).kernel(0).region
    assert build_nest(total, (Inline(0), Vectorize(0, 0, 8), Rfactor(0)), "k").nest.body[0].shared
