"""Images of which the number of channels is known at the call only: one compile for all, NumPy's values."""
import mmap
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import (
    ByColumns,
    FewColumns,
    FewInRows,
    FewSteps,
    FewTerms,
    FewUpdates,
    Fuse,
    Inline,
    InPlace,
    Parallel,
    Tensorize,
    from_json,
    to_json,
)
from loopwright.lower import program
from loopwright.lower.codegen import bodies
from loopwright.lower.partition import partition
from loopwright.lower.runtime.later import is_squeezed
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from tests.bodies import asked_for
from tests.scale import examples

FUNCTIONS = {
    "channels reversed": lambda x: x[..., ::-1], "columns reversed": lambda x: x[:, ::-1], "turned": lambda x: np.rot90(x),
    "side by side": lambda x: np.concatenate([x, x[:, :1]], axis=1), "twice": lambda x: np.repeat(x, 2, axis=2),
    "two of each": lambda x: np.concatenate([x, x], axis=-1),
    "one more": lambda x: np.concatenate([x, x[..., :1]], axis=-1), "one less": lambda x: x[..., :-1] * x[..., -1:],
    "padded": lambda x: np.pad(x, ((1, 1), (2, 1), (0, 0)), mode="edge"), "masked": lambda x: x * x[..., :1],
    "scaled": lambda x: x * (np.arange(x.shape[-1], like=x) + 1).astype(x.dtype), "shifted": lambda x: x[:, 1:] - x[:, :-1],
    "divided": lambda x: (x.astype("float32") / np.float32(9) - 1) / (np.arange(x.shape[-1], like=x) + 1).astype("float32"),
    "chosen": lambda x: np.where(np.arange(x.shape[-1], like=x) > 0, x, 0), "rolled": lambda x: np.roll(x, 1, axis=-1),
    "narrower": lambda x: x[:, :-1] * 2, "every other": lambda x: x[::2, ::2], "first": lambda x: x[..., 0] + 1,
    "planes": lambda x: np.transpose(x[:, ::-1], (2, 0, 1)) + 1,
    "last and first": lambda x: np.stack([x[..., -1], x[..., 0]], axis=-1), "turned planes": lambda x: np.transpose(x) * 2,
    "table": lambda x: np.reshape(x, (-1, x.shape[-1]))[:, -1] * 3,
}
FOLDS = {
    "product of channels": lambda x: np.sum(x[..., 0] * x[..., -1]), "two results": lambda x: (x[..., 0] + 1, x[..., 0] * 2),
    "extremes": lambda x: (np.min(x[..., 0]), np.max(x[..., -1])), "rows": lambda x: np.sum(x[:, :, 0], axis=1),
    "columns": lambda x: np.mean(x[:, :, -1], axis=0), "least": lambda x: np.argmin(x[..., 0], axis=1),
    "running": lambda x: np.cumsum(x[..., 0], axis=1),
    "scaled": lambda x: x[..., 0] / np.max(x[..., -1], axis=1, keepdims=True),
}
DOWN = {
    "sum": lambda x: np.sum(x, axis=0), "mean": lambda x: np.mean(x, axis=0), "max": lambda x: np.max(x, axis=0),
    "min": lambda x: np.min(x, axis=0), "argmax": lambda x: np.argmax(x, axis=0), "any": lambda x: np.any(x > 60, axis=0),
    "of products": lambda x: np.sum(x[::2] * x[::2, ::-1], axis=0), "spread": lambda x: np.max(x, axis=0) - np.min(x, axis=0),
    "scaled": lambda x: np.sum(x * np.arange(x.shape[1], like=x).astype(x.dtype), axis=0),
    "shares": lambda x: np.max(x / np.sum(np.abs(x), axis=1, keepdims=True), axis=0),
    "norms": lambda x: np.sqrt(np.sum(x.astype("f8") ** 2, axis=0)), "product": lambda x: np.prod(x > 9, axis=0),
    "two axes": lambda x: np.mean(np.reshape(x, (-1, 2, x.shape[1])), axis=(0, 1)),
}
FOLDED_DOWN = {name: lw.jit(lambda x, f=f: f(x)) for name, f in DOWN.items()}
JITTED = {name: lw.jit(lambda x, f=f: f(x)) for name, f in FUNCTIONS.items()}
FOLDED = {name: lw.jit(lambda x, f=f: f(x)) for name, f in FOLDS.items()}
WIDE = lw.jit(lambda x: x[..., ::-1] * np.arange(x.shape[-1], like=x).astype("float32"))


@pytest.fixture
def made(monkeypatch):
    return asked_for(monkeypatch)


def view(x, kind):
    """The same numbers, lying otherwise."""
    if kind == "steps":
        y = np.zeros((x.shape[0], x.shape[1], 2 * x.shape[2] + 1), x.dtype)[..., 1::2]
        y[...] = x
        return y
    if kind == "offset":
        y = np.zeros(x.size + 3, x.dtype)[3:].reshape(x.shape)
        y[...] = x
        return y
    return np.asfortranarray(x) if kind == "fortran" else x


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(12)
@given(c=st.integers(1, 6), n=st.integers(0, 95), m=st.integers(2, 70), seed=st.integers(0, 99),
       dtype=st.sampled_from(["u1", "f4", "f8", "i2"]), kind=st.sampled_from(["", "steps", "offset", "fortran"]))
def test_images_of_any_number_of_channels(name, c, n, m, seed, dtype, kind):
    x = (np.random.default_rng(seed).normal(size=(n + (name == "padded"), m, c)) * 50).astype("i4").astype(dtype)
    expected, found = FUNCTIONS[name](x), JITTED[name](view(x, kind))
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if name == "divided":
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


def between(t, i, j):
    first = t[i]
    return first - t[j]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1"])
def test_rows_by_index(dtype, made):
    f, rng = lw.jit(between), np.random.default_rng(2)
    for c in (1, 2, 3, 4, 5):
        t = rng.normal(size=(70, c)).astype("i4").astype(dtype)
        for n in (0, 3000, 6007):
            i, j = rng.integers(-70, 70, (2, n))
            np.testing.assert_array_equal(f(t, i, j), t[i] - t[j])
    assert f.compiles == 1 and {x[-1] for x in made if "few" in x} == {"2", "3", "4"} - ({"4"} if t.itemsize > 2 else set())


@pytest.mark.parametrize("c", [1, 2, 3, 4, 5])
def test_rows_out_of_range_say_where(c):
    """In bodies of their own, too: with the line, the index and the size."""
    f, t, rng = lw.jit(between), np.ones((70, c)), np.random.default_rng(c)
    line = between.__code__.co_firstlineno + 1
    for at, bad in ((1, 70), (2, -71)):
        places = rng.integers(-70, 70, (2, 5000))
        places[at - 1, 4321] = bad
        with pytest.raises(IndexError, match=rf"index {bad} is out of bounds for axis 0 with size 70 .*:{line + at - 1}\b"):
            f(t, *places)
    assert f(t, *rng.integers(-70, 70, (2, 5000))).shape == (5000, c)


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_bits_are_those_of_the_usual_body(c, monkeypatch):
    x = np.random.default_rng(c).normal(size=(64, 80, c)).astype("f4")

    def f(x):
        return np.tanh(x[:, ::-1] / 3) * np.exp(x[..., ::-1])
    few = lw.jit(lambda x: f(x))(x)
    monkeypatch.setattr(bodies, "MANY", 1 << 40)
    np.testing.assert_array_equal(lw.jit(lambda x: f(x) + 0)(x), few)


def test_the_first_call_with_so_many_channels_compiles_for_them(made):
    f = lw.jit(lambda x: x[..., ::-1] + 1)
    for c in (7, 3, 3, 2, 9, 4, 3, 1):
        x = np.random.default_rng(c).normal(size=(60, 90, c))
        np.testing.assert_array_equal(f(x), x[..., ::-1] + 1)
    few, ones = [f"kernel_0_few.k.{c}" for c in (2, 3, 4)], [name for name in set(made) if is_squeezed(name)]
    assert f.compiles == 1 and set(made) == {*few, *ones} and len(ones) == 1
    assert "kernel_0_few.k.3" in f.lower(x).llvm


def sizes_of(made):
    """Of the symbols for which there are bodies."""
    return sorted({tuple(map(int, name.split(".")[2::2])) for name in made if "_few" in name})


def test_kernels_of_other_symbols_wait(made):
    f = lw.jit(lambda x, y: (x[..., ::-1] + 1, y[..., ::-1] * 2, x[..., 0] - 1))
    f(np.ones((60, 90, 3)), np.ones((40, 90, 7)))
    assert sorted(name for name in made if "_few" in name) == ["kernel_0_few.k.3", "kernel_2_few.k.3"]
    f(np.ones((60, 90, 3)), np.ones((40, 90, 3)))
    assert f.compiles == 1 and "kernel_1_few.r.3" in made


def test_large_kernels_and_many_choices_have_no_such_bodies(made):
    def padded(x):
        return sum(np.pad(x[1 + k:-1, k:-1], ((k, 2), (1, k), (0, 0))) for k in range(26))

    def grown(x):
        return sum((x[..., ::-1] * k + x) * x for k in range(40))
    for f in (padded, grown):
        x = np.random.default_rng(0).normal(size=(60, 90, 3)) * 0.1
        np.testing.assert_allclose(lw.jit(f)(x), f(x), rtol=1e-12)
    assert not any("_few" in name for name in made)


def test_steps_are_known_by_the_first_call_with_such(made):
    f = lw.jit(lambda x: x[..., 0] + 1)
    for c in (7, 3, 9, 3):
        x = (np.arange(60 * 90 * c).reshape(60, 90, c) % 251).astype("u1")
        np.testing.assert_array_equal(f(x), x[..., 0] + 1)
    assert f.compiles == 1 and set(made) == {"kernel_0_few.k.3"}


@pytest.mark.parametrize("name", FOLDS)
@examples(12)
@given(c=st.integers(1, 6), n=st.integers(1, 95), m=st.integers(1, 90), seed=st.integers(0, 99),
       dtype=st.sampled_from(["f4", "f8", "i4", "u1"]))
def test_folds_of_channels(name, c, n, m, seed, dtype):
    x = (np.random.default_rng(seed).normal(size=(n, m, c)) * 9 + 40).astype(dtype)
    expected, found = FOLDS[name](x), FOLDED[name](x)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (expected, found)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=1e-5)


@pytest.mark.parametrize("c", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["product of channels", "two results", "extremes"])
def test_bits_of_folds_are_those_of_the_usual_body(name, c, monkeypatch, made):
    x = np.random.default_rng(c).normal(size=(80, 90, c)).astype("f4")
    few = lw.jit(lambda x: FOLDS[name](x))(x)
    assert made
    monkeypatch.setattr(bodies, "MANY", 1 << 40)
    usual = lw.jit(lambda x: FOLDS[name](x + 0))(x)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (few, usual)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", DOWN)
@examples(15)
@given(c=st.integers(1, 6), n=st.sampled_from([2, 40, 700, 2048, 5002, 9000]), seed=st.integers(0, 99),
       dtype=st.sampled_from(["f4", "f8", "i4", "i1"]), some=st.booleans())
def test_folds_down_columns(name, c, n, seed, dtype, some):
    x = (np.random.default_rng(seed).normal(size=(n, c)) * 9 + 40).astype(dtype)
    if some and x.dtype.kind == "f":
        x[n // 3, c // 2] = np.nan
    expected, found = DOWN[name](x), FOLDED_DOWN[name](x)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_folds_down_columns_are_made_when_needed(made):
    f = lw.jit(lambda x: np.max(x * 3, axis=0))
    for c in (7, 3, 9, 3, 4):
        x = np.random.default_rng(c).normal(size=(6000, c))
        np.testing.assert_array_equal(f(x), np.max(x * 3, axis=0))
    assert f.compiles == 1 and sorted(set(made)) == [f"kernel_0_few.m.{c}" for c in (3, 4)]
    (_, schedule), = kernels(lambda x: np.max(x * 3, axis=0), x)
    assert ByColumns() in schedule and from_json(to_json(schedule)) == schedule
    for f in (lambda x: np.max(x, axis=1), lambda x: np.cumsum(x, axis=0), lambda x: np.max(x[:, 1:], axis=(0, 1))):
        assert not any(ByColumns() in schedule for _, schedule in kernels(f, x))


def test_small_images_do_without(made):
    x = np.arange(30.0).reshape(2, 5, 3)
    np.testing.assert_array_equal(lw.jit(lambda x: x[..., ::-1] + 2)(x), x[..., ::-1] + 2)
    assert not made


def test_threads_share_the_pixels():
    x, found = np.random.default_rng(0).normal(size=(700, 400, 3)).astype("f4"), []
    for count in (1, 3):
        lw.set_threads(count)
        found.append(WIDE(x))
    lw.set_threads(None)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("step", [2, 3, 4, -2, -3, -4])
def test_steps_at_a_pages_end(step, dtype):
    """Rows of every length, of which vectors reach past the end, and before the beginning."""
    page = mmap.mmap(-1, 8192 + mmap.PAGESIZE)
    f = lw.jit(lambda x: x[:, ::step] * 2)
    for n in range(1, 80):
        size = 5 * n
        x = np.frombuffer(page, dtype, size, len(page) - size * np.dtype(dtype).itemsize).reshape(5, n)
        x[...] = np.arange(size).reshape(5, n)
        np.testing.assert_array_equal(f(x), x[:, ::step] * 2)
    del x


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_nothing_past_the_end_is_read(c):
    size = c * 4096
    page = mmap.mmap(-1, 2 * size + mmap.PAGESIZE)
    x = np.frombuffer(page, "u1", size, len(page) - size).reshape(64, 64, c)
    for name in ("channels reversed", "columns reversed", "one more", "one less", "every other"):
        np.testing.assert_array_equal(JITTED[name](x), FUNCTIONS[name](x))
    del x


def test_results_in_donated_arguments():
    f = lw.jit(lambda x: x * (np.arange(x.shape[-1], like=x) + 2).astype(x.dtype), donate_argnums=0)
    for c in (3, 5):
        x = np.random.default_rng(c).normal(size=(60, 50, c))
        expected = x * (np.arange(c) + 2)
        np.testing.assert_array_equal(f(x), expected)


def kernels(f, *args):
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    nodes = [k for n in graph.nodes for k in (n, *(inner for r in n.regions for inner in r.nodes))]
    return [(k.regions[0], k.attrs["schedule"]) for k in nodes if "schedule" in k.attrs]


FOUR = tuple([(("k", n),) for n in (1, 2, 3, 4)])


def test_the_schedule_says_so():
    (region, schedule), = kernels(FUNCTIONS["columns reversed"], np.ones((5, 6, 7), "f4"))
    few, = [x for x in schedule if isinstance(x, FewColumns)]
    assert from_json(to_json(schedule)) == schedule
    assert build_nest(region, schedule, "k").nest.few == FOUR
    (region, schedule), = kernels(FUNCTIONS["planes"], np.ones((5, 6, 7), "u1"))
    assert from_json(to_json(schedule)) == schedule and FewSteps(0) in schedule
    assert build_nest(region, schedule, "k").nest.few == FOUR
    with pytest.raises(ScheduleError, match="one axis"):
        build_nest(region, (*schedule, few), "k")
    (_, schedule), = kernels(FUNCTIONS["first"], np.ones((5, 6, 7)))
    assert FewSteps(0) in schedule
    (_, schedule), = kernels(FOLDS["product of channels"], np.ones((5, 6, 7)))
    assert FewSteps(0) in schedule
    for f in (lambda x: x[::-1] + 1, lambda x: np.sum(x, axis=0), lambda x: np.ravel(x)[::-1]):  # one loop, a fold, one axis
        assert not any(isinstance(x, FewColumns) for _, schedule in kernels(f, np.ones((5, 6, 7), "f4")) for x in schedule)
    (region, _), = kernels(lambda x: np.sum(x, axis=-1), np.ones((5, 6, 7), "f4"))
    with pytest.raises(ScheduleError, match="more than a map"):
        build_nest(region, (Inline(0), FewColumns(8, 2)), "k")
    (region, schedule), = kernels(FOLDS["rows"], np.ones((5, 6, 7), "f4"))
    with pytest.raises(ScheduleError, match="short rows"):
        build_nest(region, (*[x for x in schedule if x != FewInRows()], FewSteps(0)), "k")
    (region, _), = kernels(lambda x: x + 1, np.ones(40, "f4"))
    with pytest.raises(ScheduleError, match="turn out to be so short"):
        build_nest(region, (*map(Inline, range(len(region.nodes))), few), "k")


@pytest.mark.parametrize("f", [
    lambda x: x[:, :-1] + 1, lambda x: x[:, 1:] - x[:, :-1], lambda x: x[:-1, 2:] * 2, lambda x: np.roll(x, 2, axis=1)])
def test_what_lies_in_one_run_is_one_loop(f):
    """Whether the number of channels is known or not."""
    x = np.ones((5, 6, 3), "u1")
    for graph in (lw.make_graph(f)(x), lw.make_graph(lambda x: f(np.reshape(x, (5, 6, 3))))(x)):
        kernel, = [n for n in partition(expanded(graph), host_target(), blas=True).nodes if n.regions]
        assert any(isinstance(x, Fuse) and x.loop + x.count == 3 for x in kernel.attrs["schedule"])


def test_all_bodies_at_once():
    """As candidates of tuning are made, in one text."""
    graph = expanded(lw.make_graph(FUNCTIONS["columns reversed"])(np.ones((5, 6, 7), "f4")))
    made = program.lower_graph(graph, host_target(), blas=True)
    assert not made.apart and all(f"define void @kernel_0_few.k.{k}(" in made.text for k in (1, 2, 3, 4))
    once = program.lower_graph(graph, host_target(), blas=True, apart=True)
    names = [name for name in once.apart if "_few" in name]
    assert names == [f"kernel_0_few.k.{k}" for k in (1, 2, 3, 4)] and "few.k.2(" not in once.text
    assert once.later(names).count("define void @") == 4
    for n, names in (3, ["few.k.3"]), (7, []):  # with sizes, those alone that these need
        text = program.lower_graph(graph, host_target(), blas=True, sizes={"k": n}).text
        assert re.findall(r"define void @kernel_0_([\w.]+)\(", text) == names


# ---- windows of few features ----------------------------------------------------------------------
def convolved(x, kernel, stride, dilation):
    """With half a window of zeros on each side."""
    reach = [d * (n - 1) for n, d in zip(kernel.shape, dilation, strict=False)]
    padded = np.pad(x, ((0, 0), *((r // 2, r // 2) for r in reach), (0, 0)))
    axes = tuple(range(1, x.ndim - 1))
    seen = np.lib.stride_tricks.sliding_window_view(padded, [r + 1 for r in reach], axis=axes)
    at = tuple(slice(None, None, n) for n in stride)
    seen = seen[(slice(None), *at, slice(None), *(slice(None, None, d) for d in dilation))]
    return np.tensordot(seen, np.moveaxis(kernel, -2, 0), axes=x.ndim - 1)


def layer(stride, dilation):
    """A convolution with features last, a bias and the positive part."""
    names = "NHWDC"[:len(stride) + 1] + "C", "HWD"[:len(stride)] + "IO"

    def f(x, kernel, bias):
        reach = [d * (n - 1) // 2 for n, d in zip(kernel.shape, dilation, strict=False)]
        found = lw.lax.conv_general_dilated(x, kernel, stride, [(r, r) for r in reach], rhs_dilation=dilation,
                                            dimension_numbers=(names[0], names[1], names[0]))
        return np.maximum(found + bias, 0)
    return f


LAYERS = {key: lw.jit(layer(*key)) for key in [((1, 1), (1, 1)), ((2, 2), (1, 1)), ((1, 2), (2, 1)), ((1,), (1,)), ((3,), (1,)),
                                               ((1, 1, 1), (1, 1, 1))]}


@examples(60)
@given(st.sampled_from(sorted(LAYERS)), st.integers(1, 6), st.sampled_from([1, 3, 5, 7, 9]), st.integers(1, 70), st.booleans(),
       st.sampled_from(["f4", "f8"]), st.integers(0, 99))
def test_convolutions_of_few_features(key, features, window, made, few, dtype, seed):
    """One compile serves all numbers of features and windows; images are large enough for bodies of their own, or small."""
    stride, dilation = key
    r, rank = np.random.default_rng(seed), len(stride)
    extent = {1: 1200, 2: 37, 3: 11}[rank] if few else 6
    x = r.standard_normal((4, *[extent + k for k in range(rank)], features)).astype(dtype)
    kernel = r.standard_normal((*[window] * rank, features, made)).astype(dtype)
    bias = r.standard_normal(made).astype(dtype)
    want = np.maximum(convolved(x.astype("f8"), kernel.astype("f8"), stride, dilation) + bias, 0)
    np.testing.assert_allclose(LAYERS[key](x, kernel, bias), want, rtol=1e-9 if dtype == "f8" else 2e-4,
                               atol=1e-9 if dtype == "f8" else 2e-4)


DIRECTLY = host_target().is_short_of_registers  # several channels, if they are few, have code of their own


def test_the_first_call_with_such_windows_compiles_for_them(made):
    f = lw.jit(layer((1, 1), (1, 1)))
    for window, features, names in ((3, 8, []), (7, 4, []), (5, 3, []), (3, 3, [(3, 3, 3)]), (5, 2, [(3, 3, 3), (5, 5, 2)]),
                                    (7, 1, [(3, 3, 3), (5, 5, 2), (7, 7, 1)])):
        f(np.ones((4, 40, 40, features), "f4"), np.ones((window, window, features, 9), "f4"), np.ones(9, "f4"))
        assert sizes_of(made) == [found for found in names if found[-1] == 1 or not DIRECTLY]
    assert f.compiles == 1


def test_known_windows_of_many_features_are_made_in_tiles():
    cases = [(1, 3, False), (1, 5, False), (1, 7, False), (20, 3, True), (64, 3, True)]
    cases += [] if DIRECTLY else [(3, 3, False), (4, 5, False), (3, 7, False), (4, 7, True), (8, 3, True)]
    for features, window, tiles in cases:
        args = np.ones((4, 20, 20, features), "f4"), np.ones((window, window, features, 32), "f4"), np.ones(32, "f4")
        graph = lw.make_graph(layer((1, 1), (1, 1)), dynamic=False)(*args)
        kernel, = [n for n in partition(expanded(graph), host_target(), blas=True).nodes if n.regions]
        assert any(isinstance(x, Tensorize) for x in kernel.attrs["schedule"]) == tiles
        assert not any(isinstance(x, FewTerms) for x in kernel.attrs["schedule"])


def test_windows_of_few_features_in_a_schedule():
    args = np.ones((4, 20, 20, 1), "f4"), np.ones((3, 3, 1, 32), "f4"), np.ones(32, "f4")
    (region, schedule), = [k for k in kernels(layer((1, 1), (1, 1)), *args) if any(isinstance(x, FewTerms) for x in k[1])]
    few, = [x for x in schedule if isinstance(x, FewTerms)]
    assert from_json(to_json(schedule)) == schedule
    cases = build_nest(region, schedule, "k").nest.few
    assert {tuple([n for _, n in x]) for x in cases} == {(w, w, k) for w in (3, 5, 7) for k in (1, 2, 3, 4) if w * w * k <= 50}
    other = next(k for k in range(len(region.nodes)) if k != few.stage)
    with pytest.raises(ScheduleError, match="turn out to be so short"):
        build_nest(region, tuple([replace(x, stage=other) if x is few else x for x in schedule]), "k")


# ---- updates of rows of few elements ------------------------------------------------------------
def added(total, i, rows):
    total = np.copy(total)
    np.add.at(total, i, rows)
    return total


def extremes(total, i, rows):
    total = np.copy(total)
    np.maximum.at(total, i, rows)
    return total


UPDATES = {f: lw.jit(lambda total, i, rows, f=f: f(total, i, rows)) for f in (added, extremes)}


@examples(40)
@given(st.sampled_from([(added, "f4"), (added, "f8"), (added, "i2"), (added, "c8"), (extremes, "f4"), (extremes, "i2")]),
       st.integers(1, 9) | st.just(16), st.integers(1, 9), st.integers(0, 60) | st.just(6000), st.booleans(),
       st.integers(0, 99))
def test_rows_of_few_elements_are_updated(case, width, count, updates, in_order, seed):
    (f, dtype), r = case, np.random.default_rng(seed)
    i = r.integers(-count, count, updates)
    i = np.sort(i) if in_order else i
    total, rows = ((r.normal(size=(n, width)) * 50).astype(dtype) for n in (count, updates))
    np.testing.assert_allclose(UPDATES[f](total, i, rows), f(total, i, rows), rtol=1e-3, atol=1e-2)


def test_the_first_call_with_so_few_elements_compiles_for_them(made):
    f = lw.jit(lambda total, i, rows: added(total, i, rows))
    for width, names in ((9, []), (1, [(1,)]), (24, [(1,)]), (2, [(1,), (2,)]), (16, [(1,), (2,), (16,)])):
        f(np.zeros((9, width), "f4"), np.zeros(6000, "i8"), np.ones((6000, width), "f4"))
        assert sizes_of(made) == names
    assert f.compiles == 1


def test_errors_of_updates_of_few_elements_name_the_index():
    f = lw.jit(lambda total, i, rows: added(total, i, rows))
    for width in (9, 1, 2, 3, 8, 16):
        i = np.zeros(6000, "i8")
        i[-1] = 9
        with pytest.raises(IndexError, match=r"index 9 is out of bounds for axis 0 with size 9"):
            f(np.zeros((9, width), "f4"), i, np.ones((6000, width), "f4"))
        with pytest.raises(IndexError, match=r"index 0 is out of bounds for axis 0 with size 0"):
            f(np.zeros((0, width), "f4"), np.zeros(6000, "i8"), np.ones((6000, width), "f4"))


def test_threads_share_out_what_is_there_before_updates():
    i, rows = np.array([5, 5, 399_999]), np.arange(9, dtype="f4").reshape(3, 3)
    f = lw.jit(lambda total, i, rows: added(total + 1, i, rows))
    total = np.arange(1_200_000, dtype="f4").reshape(400_000, 3)
    try:
        for count in (1, 2):
            lw.set_threads(count)
            np.testing.assert_array_equal(f(total, i, rows), added(total + 1, i, rows))
    finally:
        lw.set_threads(None)
    (_, schedule), = kernels(lambda total, i, rows: added(total + 1, i, rows), total, i, rows)
    assert Parallel(("i0",)) in schedule
    looped = kernels(lambda total, i, rows: lax.fori_loop(0, 3, lambda k, x: added(x, i, rows), total), total, i, rows)
    in_place, = [schedule for _, schedule in looped if any(isinstance(x, InPlace) for x in schedule)]
    assert not any(isinstance(x, Parallel) for x in in_place)


def test_updates_in_a_schedule():
    graph = lw.make_graph(added)(np.zeros((9, 7), "f4"), np.zeros(60, "i8"), np.ones((60, 7), "f4"))
    kernel, = [n for n in partition(expanded(graph), host_target(), blas=True).nodes if n.regions]
    schedule = kernel.attrs["schedule"]
    assert FewUpdates() in schedule and from_json(to_json(schedule)) == schedule
    with pytest.raises(ScheduleError, match="combines nothing"):
        (region, map_schedule), = kernels(lambda x: x * 2, np.ones((60, 7), "f4"))
        build_nest(region, (*[x for x in map_schedule if not isinstance(x, FewColumns | FewSteps)], FewUpdates()), "k")
