"""Threads share out the updates of a scatter by the rows that they go to: the bits of updates one by one, on any number of
threads."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import ops
from loopwright.ir.errors import ScheduleError
from loopwright.ir.schedule import ParallelUpdates, from_json, to_json
from loopwright.lower.codegen.owners import BLOCK, FEWEST_FOR_LIGHT, SPREAD, STRETCH_LOG
from tests.scale import examples

ROWS = 2 * FEWEST_FOR_LIGHT << STRETCH_LOG - 2  # of one float: enough for updates that take little
RNG = np.random.default_rng(3)


@pytest.fixture(params=[1, 2, 3, 7], autouse=True)
def threads(request):
    lw.set_threads(request.param)
    yield request.param
    lw.set_threads(None)


def places(kind, rows, count, rng):
    """Of rows, some of them too far on: sorted, of the first ones most of all, one alone, or any."""
    ids = rng.integers(0, rows + 1, count)
    match kind:
        case "sorted":
            return np.sort(ids)
        case "first":
            return np.minimum(rows ** rng.random(count), rows).astype(int) - 1
        case "same":
            return np.full(count, rows // 2)
    return ids


def added(start, ids, x):
    """NumPy's updates, in their order, of those rows that there are."""
    out, there = start.copy(), (ids >= 0) & (ids < len(start))
    np.add.at(out, ids[there], x[there])
    return out


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # each number of rows is a program of its own
@examples(12)
@given(kind=st.sampled_from(["sorted", "first", "same", "any"]), rows=st.sampled_from([100, 1000, 5000]),
       width=st.sampled_from([16, 33, 100]), count=st.sampled_from([BLOCK - 1, BLOCK, 3 * BLOCK + 1, 20_000]),
       dtype=st.sampled_from(["f4", "f8", "i4", "f2"]), seed=st.integers(0, 99))
def test_rows_that_are_added_up(threads, kind, rows, width, count, dtype, seed):
    rng = np.random.default_rng(seed)
    x, ids = (rng.normal(size=(count, width)) * 3).astype(dtype), places(kind, rows, count, rng)
    got = lw.jit(lambda x, ids: ops.segment_sum(x, ids, rows))(x, ids)
    np.testing.assert_array_equal(got, added(np.zeros((rows, width), dtype), ids, x))


def test_numbers_that_are_added_up():
    ids, x = RNG.integers(0, ROWS, 300_000), RNG.normal(size=300_000).astype("f4")
    np.testing.assert_array_equal(lw.jit(lambda x, ids: ops.segment_sum(x, ids, ROWS))(x, ids),
                                  added(np.zeros(ROWS, "f4"), ids, x))


def test_of_rows_that_are_set_the_last_one_stays():
    @lw.jit
    def put(x, ids, rows):
        x = x + 0
        x[ids] = rows
        return x
    x, rows = RNG.normal(size=(2, 3000, 40))
    for ids in (RNG.integers(-3000, 3000, 3000), np.sort(RNG.integers(0, 3000, 3000))):
        expected = x.copy()
        expected[ids] = rows
        np.testing.assert_array_equal(put(x, ids, rows), expected)


def test_places_of_several_axes():
    @lw.jit
    def in_rows_and_columns(x, i, j, v):
        np.add.at(x := x + 0, (i, j), v)
        return x

    @lw.jit
    def of_tables(x, ids, v):
        np.add.at(x := x + 0, ids, v)
        return x
    x, v = RNG.normal(size=(2000, 50)), RNG.normal(size=(9000, 50))
    i, j = RNG.integers(0, 2000, 9000), RNG.integers(0, 50, 9000)
    np.testing.assert_array_equal(in_rows_and_columns(x, i, j, v[:, 0]), _at(x, (i, j), v[:, 0]))
    np.testing.assert_array_equal(of_tables(x, i.reshape(300, 30), v.reshape(300, 30, 50)), _at(x, i, v))
    cubes, w = RNG.normal(size=(40, 70, 50)), RNG.normal(size=(9000, 50))
    np.testing.assert_array_equal(in_rows_and_columns(cubes, i % 40, j, w), _at(cubes, (i % 40, j), w))


def _at(x, where, v):
    out = x.copy()
    np.add.at(out, where, v)
    return out


def test_scatters_of_a_batch_are_shared_out_by_what_they_are_of():
    f = lw.jit(lw.vmap(lambda x, ids: ops.segment_sum(x, ids, 50)))
    x, ids = RNG.normal(size=(30, 500, 20)), RNG.integers(0, 50, (30, 500))
    np.testing.assert_array_equal(f(x, ids), [added(np.zeros((50, 20)), k, r) for k, r in zip(ids, x, strict=True)])


def test_gradients_of_rows_that_were_picked():
    f = lw.jit(lw.grad(lambda table, ids, c: (table[ids] * c).sum()))
    table, ids, c = RNG.normal(size=(4000, 64)), RNG.integers(0, 4000, 9000), RNG.normal(size=(9000, 64))
    np.testing.assert_array_equal(f(table, ids, c), added(np.zeros_like(table), ids, c))


def test_what_is_not_there_is_told_as_on_one_thread():
    @lw.jit
    def put(x, ids, rows):
        np.add.at(x := x + 0, ids, rows)
        return x
    x, rows, ids = np.zeros((3000, 40)), np.ones((9000, 40)), RNG.integers(0, 3000, 9000)
    np.testing.assert_array_equal(put(x, ids, rows), _at(x, ids, rows))
    ids[[5000, 8000]] = 3007, -5000
    with pytest.raises(IndexError, match="index 3007 is out of bounds for axis 0 with size 3000"):
        put(x, ids, rows)


def test_updates_that_depend_on_a_condition():
    @lw.jit
    def f(x, ids, keep):
        return ops.segment_sum(x, np.where(keep, ids, -1), 3000)
    x, ids, keep = RNG.normal(size=(9000, 40)), RNG.integers(0, 3000, 9000), RNG.random(9000) < 0.5
    np.testing.assert_array_equal(f(x, ids, keep), added(np.zeros((3000, 40)), ids[keep], x[keep]))


def test_the_instruction():
    def f(x, ids):
        return ops.segment_sum(x, ids, 3000)
    x, ids = np.ones((40, 5)), np.zeros(40, int)
    kernel = lw.schedule(f, x, ids).kernels[0]
    assert ParallelUpdates() in kernel.schedule
    assert from_json(to_json(kernel.schedule)) == kernel.schedule
    assert "lw_wide_loop" in lw.jit(f).lower(x, ids).llvm
    with pytest.raises(ScheduleError, match="the root is no scatter"):
        lw.schedule(lambda x: x + 1, x).kernel(0).parallel_updates()


def test_numbers_of_stretches_are_spread_evenly():
    """Of any stretches in order each half of the numbers has about half."""
    for first in (0, 1000, 123_457):
        for count in (8, 25, 64, 1000):
            numbers = ((np.arange(first, first + count, dtype=np.uint64) * SPREAD) & 0xFFFFFFFF) >> 26
            assert abs(np.mean(numbers < 32) - 0.5) <= 1.5 / count + 0.02


def test_chains_of_lookups_compile_in_time_linear_in_their_length():
    """Every read of one repeats the index of the one before: written out in full, of 40 these are 2**40."""
    def f(x):
        for k in range(40):
            x = x[np.roll(np.arange(6), k)] * 0.5
        return np.sum(x * x)
    x = RNG.normal(size=(6, 3))
    np.testing.assert_allclose(lw.jit(lw.grad(f))(x), 2 * x * 0.25**40, rtol=1e-12)
