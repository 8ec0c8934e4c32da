"""Arrays of which some axes turn out to have one element: one compile for all, NumPy's values."""
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import Squeeze, from_json, to_json
from loopwright.lower import program
from loopwright.lower.partition import partition
from loopwright.lower.runtime import later
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from tests.bodies import asked_for
from tests.scale import examples

MOVES = {
    "reversed": lambda x: x[:, ::-1], "turned": lambda x: np.transpose(x, (2, 0, 1)), "planes": lambda x: np.transpose(x) + 1,
    "swapped": lambda x: np.transpose(x, (1, 0, 2)), "padded": lambda x: np.pad(x, ((0, 0), (2, 1), (1, 0))),
    "edges": lambda x: np.pad(x, ((1, 1), (0, 0), (2, 0)), mode="edge"), "tiled": lambda x: np.tile(x, (2, 1, 1)),
    "repeated": lambda x: np.repeat(x, 2, axis=1), "side by side": lambda x: np.concatenate([x, x[:, :1]], axis=1),
    "stacked": lambda x: np.stack([x, x * 2], axis=1), "rolled": lambda x: np.roll(x, 1, axis=0), "lower": lambda x: np.tril(x),
    "differences": lambda x: x[:, 1:] - x[:, :-1], "every other": lambda x: x[::2, ::2] + 1, "first": lambda x: x[..., 0],
    "columns scaled": lambda x: x * x[:1], "outer": lambda x: x[:, :, None] * x[:, None, :, ::-1],
    "positions": lambda x: x * (np.arange(x.shape[1], like=x)[:, None] + 1).astype(x.dtype), "rows": lambda x: x[::-1, -1],
    "chosen": lambda x: np.where(np.arange(x.shape[2], like=x) > 0, x[::-1], 0), "running": lambda x: np.cumsum(x, axis=1),
}
FOLDS = {
    f"{name} over {axis}": (lambda x, name=name, axis=axis: getattr(np, name)(x, axis=axis))
    for name in ("sum", "max", "min", "mean") for axis in (0, 1, 2, (0, 2), (1, 2), None)} | {
    f"{name} over {axis}": (lambda x, name=name, axis=axis: getattr(np, name)(x, axis=axis))
    for name in ("argmax", "argmin") for axis in (0, 1, 2)} | {
    "any": lambda x: np.any(x > 3, axis=1), "all": lambda x: np.all(x > -9, axis=(0, 2)),
    "norms": lambda x: np.linalg.norm(x, axis=0), "spread": lambda x: np.max(x, axis=1) - np.min(x, axis=1),
    "both": lambda x: (np.max(x, axis=0), np.min(x, axis=0)), "centred": lambda x: x - np.mean(x, axis=1, keepdims=True),
}
JITTED = {name: lw.jit(lambda *x, f=f: f(*x)) for name, f in (MOVES | FOLDS).items()}
SHAPES = st.tuples(*[st.sampled_from([1, 1, 2, 3, 70, 200])] * 3).filter(lambda s: np.prod(s) <= 50_000)


@pytest.fixture
def made(monkeypatch):
    return asked_for(monkeypatch)


def numbers(shape, seed, dtype):
    x = np.random.default_rng(seed).normal(size=shape) * 20
    return x > 0 if dtype == "?" else x.astype(dtype)


@pytest.mark.parametrize("name", MOVES)
@examples(15)
@given(shape=SHAPES, seed=st.integers(0, 99), dtype=st.sampled_from(["f4", "f8", "i1", "i2"]))
def test_moves(name, shape, seed, dtype):
    x = numbers(shape, seed, dtype)
    if name == "running" and dtype[0] == "i":
        x = x.astype("i8")
    expected, found = MOVES[name](x), JITTED[name](x)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3) if name == "running" else \
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", FOLDS)
@examples(12)
@given(shape=SHAPES, seed=st.integers(0, 99), dtype=st.sampled_from(["f4", "f8", "i1", "?"]), some=st.booleans())
def test_folds(name, shape, seed, dtype, some):
    x = numbers(shape, seed, "f4" if dtype == "?" and name in ("norms", "spread", "centred") else dtype)
    if some and x.dtype.kind == "f":
        x[tuple(n // 2 for n in shape)] = np.nan
    expected, found = FOLDS[name](x), JITTED[name](x)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (expected, found)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(b.astype("f8"), np.asarray(a, "f8"), rtol=1e-4, atol=1e-4 * np.sqrt(x.size))


@pytest.mark.parametrize("shape", [(0, 1, 70), (5000, 1, 0), (1, 0, 1)])
def test_nothing(shape):
    x = np.zeros(shape, "f4")
    for name in ("reversed", "tiled", "padded", "sum over 0", "sum over 2"):
        np.testing.assert_array_equal(JITTED[name](x), (MOVES | FOLDS)[name](x))


@examples(20)
@given(n=st.sampled_from([1, 5000]), m=st.sampled_from([1, 1, 3]), bad=st.integers(-3, 3), seed=st.integers(0, 9))
def test_indices_are_checked(n, m, bad, seed):
    x, at = numbers((n, m), seed, "f4"), np.array([0, bad])
    f = CHECKED
    if -m <= bad < m:
        np.testing.assert_array_equal(f(x, at), x[:, at])
        return
    with pytest.raises(IndexError, match=f"index {bad} is out of bounds for axis 1 with size {m}"):
        f(x, at)


CHECKED = lw.jit(lambda x, at: x[:, at])


def test_a_body_for_each_set_of_ones(made):
    f = lw.jit(lambda x: np.sum(x * 2, axis=1))
    for shape in ((70, 80, 3), (5000, 2, 1), (5000, 3, 1), (1, 5000, 1), (70, 1, 80), (2, 3, 1)):
        x = numbers(shape, 1, "f8")
        np.testing.assert_allclose(f(x), np.sum(x * 2, axis=1))
    assert f.compiles == 1 and len({name for name in made if later.is_squeezed(name)}) == 3
    assert ".ones" not in f.lower(x).llvm.replace(f"@{later.place_of('kernel_0.ones0')}", "")


def test_results_in_donated_arguments():
    f = lw.jit(lambda x: x * (np.arange(x.shape[1], like=x) + 2).astype(x.dtype)[:, None], donate_argnums=0)
    for shape in ((50, 60, 3), (5000, 1, 1), (1, 5000, 1), (60, 80, 1)):
        x = numbers(shape, 2, "f8")
        expected = x * (np.arange(shape[1]) + 2)[:, None]
        np.testing.assert_array_equal(f(x), expected)


def test_threads_share_the_loop():
    x, found = numbers((400_000, 1, 2), 3, "f4"), []
    for count in (1, 3):
        lw.set_threads(count)
        found += [JITTED["sum over 0"](x), JITTED["reversed"](x)]
    lw.set_threads(None)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])


def kernel(f, *args):
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    (region, schedule), = [(k.regions[0], k.attrs["schedule"]) for k in graph.nodes if k.regions]
    return region, schedule


def test_the_schedule_says_so():
    x = np.ones((5, 6, 7), "f4")
    region, schedule = kernel(MOVES["swapped"], x)
    assert Squeeze() in schedule and from_json(to_json(schedule)) == schedule
    assert build_nest(region, schedule, "k").nest.ones is not None
    region, schedule = kernel(lambda x: x + 1, x)  # one loop
    assert Squeeze() not in schedule
    with pytest.raises(ScheduleError, match="no size"):
        build_nest(region, (*schedule, Squeeze()), "k")
    region, schedule = kernel(lambda x: np.sum(x, 0), np.ones(5))
    assert Squeeze() not in schedule


def test_kernels_for_known_sizes():
    """As candidates of tuning are made: no body but the one that is needed."""
    graph = expanded(lw.make_graph(MOVES["swapped"])(np.ones((5, 6, 7), "f4")))
    made = [program.lower_graph(graph, host_target(), blas=True, sizes={"n": 70, "m": 80, "k": k}).text for k in (1, 3)]
    assert all(".ones" not in text for text in made) and made[0] != made[1]
    assert re.findall(r"define void @kernel_0(\w+)\(", made[0]) == []
