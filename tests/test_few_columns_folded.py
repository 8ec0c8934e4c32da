"""Arrays of a few columns that are folded whole, and sums of their rows beside what is stored: one compile, NumPy's values."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import AddAlong, ByColumns, from_json, to_json
from loopwright.lower.partition import partition
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from tests.bodies import asked_for
from tests.scale import examples
from tests.threads import bits_of

WHOLE = {  # of an array, a row and a column
    "distances": lambda x, w, v: np.sum((x - w) * (x - w)), "farthest": lambda x, w, v: np.max(np.abs(x - w)),
    "weighted": lambda x, w, v: np.sum(x * v[:, None]), "mean": lambda x, w, v: np.mean(x * w),
    "least": lambda x, w, v: np.min(x + w), "product": lambda x, w, v: np.prod(1 + (x * w) / x.size),
    "centred": lambda x, w, v: np.sum((x - np.mean(x * w)) * v[:, None]),
    "norms": lambda x, w, v: np.sum(np.sqrt(np.sum(x * x * w * w, axis=1))),
    "every other": lambda x, w, v: np.sum((x - w)[::2] * 3),
    "shares": lambda x, w, v: np.max(x / np.sum(np.abs(x * w) + 1, axis=1, keepdims=True)),
}
BESIDE = {
    "stored": lambda x, w, v: (x * 2 + w, np.mean(x * 2 + w, axis=0)),
    "read": lambda x, w, v: (x * v[:, None], np.sum(x, axis=0)),
    "both": lambda x, w, v: (x * w, np.sum(x * w, axis=0), np.sum(np.abs(x), axis=0)),
    "neither": lambda x, w, v: (x + w, np.sum((x + w) * v[:, None], axis=0)),
}
JITTED = {name: lw.jit(lambda x, w, v, f=f: f(x, w, v)) for name, f in (WHOLE | BESIDE).items()}


@pytest.fixture
def made(monkeypatch):
    return asked_for(monkeypatch)


def arguments(c, n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return tuple([(rng.normal(size=shape) * 9).astype(dtype) for shape in ((n, c), (c,), (n,))])


def kernels(f, *args):
    return [n for n in partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True).nodes if n.regions]


@pytest.mark.parametrize("name", WHOLE | BESIDE)
@examples(12)
@given(c=st.integers(1, 10), n=st.sampled_from([1, 40, 700, 2048, 5002, 9001]), seed=st.integers(0, 99),
       dtype=st.sampled_from(["f4", "f8", "i4"]))
def test_few_columns_folded(name, c, n, seed, dtype):
    args = arguments(c, n, dtype, seed)
    expected, found = (WHOLE | BESIDE)[name](*args), JITTED[name](*args)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (expected, found)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = np.max(np.abs(args[0].astype("f8"))) * args[0].size
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-7 * scale if a.dtype.kind == "f" else 0)


@pytest.mark.parametrize("name", ["distances", "farthest", "stored", "neither"])
def test_bodies_are_made_when_needed(name, made):
    f = lw.jit(lambda x, w, v: (WHOLE | BESIDE)[name](x, w, v))
    for c in (12, 3, 9, 3, 7):
        args = arguments(c, 6000, "f8")
        expected, found = (WHOLE | BESIDE)[name](*args), f(*args)
        np.testing.assert_allclose(*(np.hstack([np.ravel(y) for y in (x if isinstance(x, tuple) else (x,))])
                                     for x in (found, expected)), rtol=1e-9)
    first = [x for x in made if x.startswith("kernel_0")]
    assert f.compiles == 1 and sorted(set(first)) == [f"kernel_0_few.m.{c}" for c in (3, 7)]


def test_the_instruction_is_data():
    for f, along in ((WHOLE["distances"], False), (BESIDE["stored"], True)):
        n = kernels(f, *arguments(3, 50, "f4"))[0]
        schedule = n.attrs["schedule"]
        assert ByColumns() in schedule and any(isinstance(x, AddAlong) for x in schedule) == along
        assert from_json(to_json(schedule)) == schedule
        assert len(build_nest(n.regions[0], schedule, "k").nest.few) == 7


def test_one_loop_over_all_elements_does_without():
    n, = kernels(lambda x: np.sum(x * x), np.ones((50, 3)))
    assert ByColumns() not in n.attrs["schedule"]
    with pytest.raises(ScheduleError, match="no sum or axis may turn out to be so short"):
        build_nest(kernels(lambda x, y: (x - y)[:, None] * 2, np.ones(5), np.ones(5))[0].regions[0], (ByColumns(),), "k")


@pytest.mark.parametrize("c", [2, 3, 8])
@pytest.mark.parametrize("name", ["distances", "stored", "both", "neither"])
def test_threads_agree(name, c):
    def both(x, w, v):
        return (WHOLE | BESIDE)[name](x, w, v), v
    first, *others = bits_of(lambda *args: lw.tree.leaves(both(*args)), *arguments(c, 40_000, "f4"))
    assert all(x == first for x in others)


def test_in_the_memory_of_an_argument():
    f = lw.jit(lambda x, y: (x + y, np.sum(y, axis=0)), donate_argnums=0)
    for c in (3, 5, 12):
        x, y = arguments(c, 4000, "f8")[0], arguments(c, 4000, "f8", seed=1)[0]
        expected = x + y, np.sum(y, axis=0)
        found = f(x, y)
        assert found[0] is x
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9)


def test_the_gradient_of_a_layer_of_few():
    def loss(w, x):
        return np.sum(np.tanh(x + w) ** 2)
    slope = lw.jit(lw.grad(loss))
    for c in (2, 3, 4, 6):
        x, w, _ = arguments(c, 5000, "f8")
        y = np.tanh(x + w)
        np.testing.assert_allclose(slope(w, x), np.sum(2 * y * (1 - y * y), axis=0), rtol=1e-9)
    assert slope.compiles == 1
