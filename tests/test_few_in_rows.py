"""Rows of two to four numbers that are folded, as points are: one compile for all lengths, NumPy's values."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import FewInRows, Inline, Parallel, from_json, to_json
from loopwright.lower.partition import partition
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from tests.bodies import asked_for
from tests.scale import examples

FOLDS = {
    "sum": lambda x: np.sum(x, axis=-1), "product": lambda x: np.prod(x, axis=-1), "most": lambda x: np.max(x, axis=-1),
    "least": lambda x: np.min(x, axis=-1), "any": lambda x: np.any(x > 1, axis=-1), "all": lambda x: np.all(x > -1, axis=-1),
    "norm": lambda x: np.sqrt(np.sum(x * x, axis=-1)), "both moments": lambda x: (np.mean(x, axis=-1), np.std(x, axis=-1)),
    "logarithm": lambda x: np.log(np.sum(np.exp(x - np.max(x, axis=-1, keepdims=True)), axis=-1)) + np.max(x, axis=-1),
    "apart": lambda x: np.sum((x[:, None] - x[None, :3]) ** 2, axis=-1), "by columns": lambda x: np.sum(x * x[:1], axis=-1),
    "of every other": lambda x: np.sum(x[::2], axis=-1), "twice": lambda x: np.max(np.sum(np.stack([x, -x]), axis=-1), axis=0),
}
COMPILED = {name: lw.jit(f) for name, f in FOLDS.items()}


def check(found, expected, dtype):
    for a, b in zip(*([x] if not isinstance(x, tuple) else x for x in (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12 if dtype == "f8" else 2e-5, atol=1e-12 if dtype == "f8" else 2e-5)


@given(st.sampled_from(sorted(FOLDS)), st.integers(1, 5), st.sampled_from([1, 700, 1365, 1366, 2049, 4096]),
       st.sampled_from(["f4", "f8"]), st.booleans(), st.integers(0, 99))
@examples(150)
def test_values(name, length, rows, dtype, has_nans, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, length)).astype(dtype)
    x = np.where(rng.random(x.shape) < 0.01, np.nan, x).astype(dtype) if has_nans else x
    check(COMPILED[name](x), FOLDS[name](x.astype("f8")), dtype)


@pytest.mark.parametrize("name", sorted(FOLDS.keys() - {"any", "all"}))
def test_gradients(name):
    def loss(x):
        found = FOLDS[name](x)
        return sum(np.sum(np.sin(y)) for y in (found if isinstance(found, tuple) else [found]))
    gradient = lw.jit(lw.grad(loss))
    for length in (2, 3, 4, 7):
        x = np.random.default_rng(length).normal(size=(2000, length))
        step = np.random.default_rng(1).normal(size=x.shape)
        slope = (loss(x + 1e-6 * step) - loss(x - 1e-6 * step)) / 2e-6
        assert np.sum(gradient(x) * step) == pytest.approx(slope, rel=1e-4)


def kernels(f, *args):
    nodes = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True).nodes
    return [(n.regions[0], n.attrs["schedule"]) for n in nodes if "schedule" in n.attrs]


def test_the_schedule_says_so():
    (region, schedule), = kernels(FOLDS["norm"], np.ones((5, 7), "f4"))
    assert FewInRows() in schedule and from_json(to_json(schedule)) == schedule
    assert build_nest(region, schedule, "k").nest.few == tuple([(("m", k),) for k in (2, 3, 4)])
    for f in (lambda x: x / np.sum(x, axis=1, keepdims=True), lambda x: np.sum(x, axis=0), lambda x: np.sum(x)):
        assert not any(FewInRows() in schedule for _, schedule in kernels(f, np.ones((5, 7), "f4")))
    (region, _), = kernels(lambda x: x * 2, np.ones((5, 7), "f4"))
    with pytest.raises(ScheduleError, match="turn out to be so short"):
        build_nest(region, (*map(Inline, range(len(region.nodes))), Parallel(), FewInRows()), "k")


def test_a_body_is_made_when_a_call_needs_it(monkeypatch):
    f, made = lw.jit(FOLDS["norm"]), asked_for(monkeypatch)
    x = np.random.default_rng(0).normal(size=(3000, 3)).astype("f4")
    check(f(x[:500]), FOLDS["norm"](x[:500]), "f4")
    assert not any("few" in name for name in made)
    check(f(x), FOLDS["norm"](x), "f4")
    assert [name for name in made if "few" in name] == ["kernel_0_few.m.3"] and f.compiles == 1
