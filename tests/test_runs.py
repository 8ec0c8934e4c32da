"""Updates of one place that follow one another go into registers: the bits of updates one by one, whichever way is taken."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import ops
from loopwright.ir.errors import ScheduleError
from loopwright.ir.schedule import InRuns
from loopwright.lower.codegen.runs import FEWEST
from tests.scale import examples

COUNT = 7
AT = {"segment_sum": np.add, "segment_prod": np.multiply, "segment_max": np.maximum, "segment_min": np.minimum}
SEGMENTS = {name: lw.jit(lambda x, ids, name=name: getattr(ops, name)(x, ids, COUNT)) for name in AT}


def in_turn(name, start, x, ids):
    """Updates one by one, in order, those outside of the array left out."""
    out = start.copy()
    for row, k in zip(x, ids, strict=True):
        if 0 <= k < COUNT:
            out[k] = AT[name](out[k], row)
    return out


def drawn_ids(kind, count, rng):
    """Places that are all the same, sorted, in short runs, or anything; some of them outside of the array."""
    ids = rng.integers(-1, COUNT + 1, count)
    match kind:
        case "sorted":
            return np.sort(ids)
        case "runs":
            return np.repeat(ids, rng.integers(1, 9, count))[:count]
        case "same":
            return np.full(count, rng.integers(-1, COUNT + 1))
    return ids


def instructions(f, *args):
    return [x for k in lw.schedule(f, *args).kernels for x in k.schedule]


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # each dtype and rank is a program of its own
@examples(60)
@given(name=st.sampled_from(list(AT)), kind=st.sampled_from(["sorted", "runs", "same", "any"]),
       count=st.sampled_from([0, 1, 2, FEWEST - 1, FEWEST, FEWEST + 1, 1000]),
       width=st.sampled_from([None, 1, 3, 8, 12, 16, 24, 33, 100]), dtype=st.sampled_from(["f2", "f4", "f8", "i4", "u1"]),
       seed=st.integers(0, 99))
def test_the_bits_of_updates_one_by_one(name, kind, count, width, dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count,) if width is None else (count, width)) * 3
    x, ids = x.astype("i4").astype(dtype) if dtype in ("i4", "u1") else x.astype(dtype), drawn_ids(kind, count, rng)
    start = SEGMENTS[name](x[:0], ids[:0])  # what a segment without rows has
    with np.errstate(all="ignore"):
        want = in_turn(name, start, x, ids)
    np.testing.assert_array_equal(SEGMENTS[name](x, ids), want)


def histogram(places, counts):
    counts = counts.copy()
    np.add.at(counts, places, 1)
    return counts


RNG = np.random.default_rng(5)
PLACES = {
    "floats, to bins": (lambda x: (x * COUNT).astype(int), np.sort(RNG.random(1000))),
    "halves, rounded": (lambda x: np.round(x).astype(int), np.sort(RNG.random(1000) * 6).astype("f2")),
    "a test of floats": (lambda x: np.where(x > 0.5, 3, 1), RNG.random(1000)),
    "a fold of rows": (lambda x: np.sum(x, axis=1), np.sort(RNG.integers(0, 3, (1000, 3)), axis=0)),
    "the greatest of a few": (lambda x: np.argmax(np.stack([x, 2 * x - 1], -1), -1), np.sort(RNG.random(1000))),
    "a search": (lambda x: np.searchsorted(np.linspace(0, 1, COUNT), x), np.sort(RNG.random(1000))),
    "a running sum": (lambda x: np.cumsum(x), (np.arange(1000) % 180 == 7).astype(int)),
    "a formula of integers": (lambda x: (x * 7 + 3) % COUNT, np.sort(RNG.integers(0, 50, 1000))),
    "truths": (lambda x: x.astype(int), np.sort(RNG.random(1000) > 0.5)),
    "bytes": (lambda x: x, np.sort(RNG.integers(0, COUNT, 1000)).astype("u1")),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_may_be_computed_of_anything(name):
    place, x = PLACES[name]

    def counted(x, weights):
        counts = lw.numpy.zeros(COUNT)
        np.add.at(counts, place(x), weights)
        return counts

    def rows(x, weights):
        found = lw.numpy.zeros((COUNT, 3))
        np.add.at(found, place(x), np.stack([weights, 2 * weights, -weights], -1))
        return found
    weights = RNG.normal(size=1000)
    for f in (counted, rows):
        np.testing.assert_array_equal(lw.jit(f)(x, weights), f(x, weights))


def test_errors_are_those_of_the_first_update_that_has_one():
    f = lw.jit(histogram)
    for places in (np.sort(np.arange(1000) % COUNT), np.arange(1000) % COUNT):
        np.testing.assert_array_equal(f(places, np.zeros(COUNT, int)), histogram(places, np.zeros(COUNT, int)))
        wrong = places.copy()
        wrong[[500, 998]] = COUNT + 4, COUNT + 9
        with pytest.raises(IndexError, match=f"index {COUNT + 4} is out of bounds"):
            f(wrong, np.zeros(COUNT, int))
    assert InRuns() in instructions(histogram, np.zeros(5, int), np.zeros(COUNT, int))


def test_masked_updates_of_a_run():
    @lw.jit
    def f(x, ids, keep):
        return ops.segment_sum(x, np.where(keep, ids, -1), COUNT)
    rng = np.random.default_rng(3)
    for kind in ("sorted", "same", "any"):
        ids, keep, x = drawn_ids(kind, 1000, rng), rng.random(1000) < 0.9, rng.normal(size=(1000, 5))
        np.testing.assert_array_equal(f(x, ids, keep), in_turn("segment_sum", np.zeros((COUNT, 5)), x[keep], ids[keep]))


def test_runs_are_of_updates_that_combine_at_places_which_are_read():
    x, ids = np.ones((40, 5)), np.zeros(40, int)

    def added(x, ids):
        return ops.segment_sum(x, ids, COUNT)

    def stored(x, ids):
        x = x.copy()
        x[ids] = 1.0
        return x
    assert InRuns() in instructions(added, x, ids)
    assert InRuns() not in instructions(stored, x, ids)
    with pytest.raises(ScheduleError, match="the last update of a place counts"):
        lw.schedule(stored, x, ids).kernel(0).in_runs()
    with pytest.raises(ScheduleError, match="the root is no scatter"):
        lw.schedule(lambda x: x + 1, x).kernel(0).in_runs()


def test_loops_of_updates_keep_their_order():
    x, ids = RNG.normal(size=(300, 6, 5)), RNG.integers(0, COUNT, (300, 6))

    def added(h, ids, x):
        h = h.copy()
        np.add.at(h, ids, x)
        return h

    def stored(h, ids, x):
        h = h.copy()
        h[ids] = x
        return h
    h = np.zeros((COUNT, 5))
    for f in (added, stored):
        with pytest.raises(ScheduleError, match="updates of a scatter come in their order"):
            lw.schedule(f, h, ids, x).kernel(0).reorder(loops=("k1", "k0"))
        if f is added:
            with pytest.raises(ScheduleError, match="a row of updates that are done together has one loop"):
                lw.schedule(f, h, ids, x).kernel(0).remove("vectorize").remove("unroll").split(loop="k2", size=2)
        for loop, size in (("k0", 64), ("k1", 2)):
            s = lw.schedule(f, h, ids, x)
            s.kernel(0).split(loop=loop, size=size)
            for places in (ids, np.sort(ids, axis=0), np.sort(ids, axis=1)):
                np.testing.assert_array_equal(s.compile()(h, places, x), f(h, places, x))
