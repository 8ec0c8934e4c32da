"""Sums over rows that the kernel with the rows adds up: which kernels do, and what comes out."""
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.expansion import expanded
from loopwright.ir.interpreter import evaluate
from loopwright.ir.schedule import AddAlong, FewColumns, Tiles
from loopwright.lower.partials import ROWS, block_sums
from loopwright.lower.partition import partition
from loopwright.lower.rules import default_schedule
from loopwright.lower.runtime.blas import VARIABLE
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.threads import bits_of


def kernels(f, *args, blas=True):
    return partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=blas).nodes


def adding(f, *args, blas=True):
    """Of the kernels, the ones that add up along their loops, with how many sums."""
    counts = [sum(isinstance(x, AddAlong) for x in n.attrs.get("schedule", ())) for n in kernels(f, *args, blas=blas)]
    return [c for c in counts if c]


def normalised(x, gain):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1) * gain


def slopes(x, gain, w):
    return lw.grad(lambda x, gain: np.sum(normalised(x, gain) * w), argnums=(0, 1))(x, gain)


def both(x, y):
    return x * y + 1, np.sum(x * y, axis=0)


def of_the_result(x, y):
    z = np.tanh(x) + y
    return z, np.sum(z * z, axis=0), np.sum(z, axis=0) / 2


def three_axes(x, y):
    return x - y, np.sum(x, axis=(0, 1)), np.sum(y, axis=0)


PROGRAMS = (both, of_the_result, three_axes)


# ---- which kernels ------------------------------------------------------------------------------
def test_the_gradient_of_a_layernorm_reads_its_arrays_once():
    x = np.ones((5, 40), "f4")
    assert adding(slopes, x, x[0], x) == [1]
    assert len(kernels(slopes, x, x[0], x)) == 2


def test_sums_join_the_kernel_that_stores_what_they_sum():
    assert adding(of_the_result, *np.ones((2, 5, 40))) == [2]


def test_what_shares_no_array_stays_apart():
    x, y = np.ones((2, 5, 40))
    assert adding(lambda x, y: (x + 1, np.sum(y, axis=0)), x, y) == []


def test_what_waits_for_the_sum_cannot_make_it():
    x = np.ones((5, 40))
    assert adding(lambda x: x - np.sum(x, axis=0), x) == []


@pytest.mark.parametrize("dtype", ["f2", "?"])
def test_sums_that_are_wider_than_their_numbers_stay_apart(dtype):
    x = np.ones((50, 40), dtype)
    assert adding(lambda x: (~x if dtype == "?" else -x, x.sum(axis=0, dtype=x.dtype)), x) == []


@pytest.mark.parametrize(("rows", "found"), [(ROWS, []), (ROWS + 1, [1])])
def test_sums_of_one_block_stay_apart(rows, found):
    def f(x, y):
        table = x[:rows] * y
        return table, np.sum(table, axis=0)
    assert adding(f, np.ones((50, 40)), np.ones((rows, 40))[:, :1]) == found


# ---- values -------------------------------------------------------------------------------------
@given(st.sampled_from(PROGRAMS), st.integers(0, 3 * ROWS + 1), st.integers(1, 40), st.sampled_from(["f4", "f8", "i4", "i8"]),
       st.integers(0, 9))
@examples(60)
def test_values(f, rows, columns, dtype, seed):
    random = np.random.default_rng(seed)
    shape = (3, rows, columns) if f is three_axes else (rows, columns)
    x, y = (random.normal(size=(2, *shape)) * 9).astype(dtype)
    with np.errstate(all="ignore"):
        wanted = f(x, y)
    for found, want in zip(compiled(f)(x, y), wanted, strict=True):
        assert found.dtype == want.dtype
        tolerance = 1e-4 if want.dtype == "f4" else 1e-11
        np.testing.assert_allclose(found, want, rtol=tolerance / 5, atol=tolerance)


_COMPILED = {f: lw.jit(f) for f in PROGRAMS}


def compiled(f):
    return _COMPILED[f]


@pytest.mark.parametrize("rows", [1, ROWS - 1, ROWS, ROWS + 1, 1000])
def test_gradients_of_a_layernorm(rows):
    random = np.random.default_rng(0)
    x, w, gain = random.normal(size=(rows, 33)), random.normal(size=(rows, 33)), random.normal(size=33)
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1)
    y, g = centred * scale, w * gain
    inner = g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)
    for found, want in zip(lw.jit(slopes)(x, gain, w), (inner * scale, (w * y).sum(0)), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-11)


def test_threads_do_not_change_a_bit():
    x, y = np.random.default_rng(0).normal(size=(2, 3001, 257)).astype("f4")
    found = []
    try:
        for n in (1, 2, 3):
            lw.set_threads(n)
            found.append(compiled(of_the_result)(x, y))
    finally:
        lw.set_threads(None)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("shape", "others"), [((128, 10), 512), ((100, 512), 512), ((1000, 40), 70), ((3, 90, 60), 300)])
def test_blocks_of_products_in_tiles_stay_with_one_thread(monkeypatch, shape, others):
    """Threads share out tiles of a few rows; rows of a block of sums are of several tiles."""
    monkeypatch.setenv(VARIABLE, "none")  # so that the product is made in the kernel that adds up

    def slopes(g, w, h):
        s = (g @ w.T) * (h > 0)
        return s, s.sum(tuple(range(s.ndim - 1)))
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype("f4") for s in (shape, (others, shape[-1]), (*shape[:-1], others))]
    assert adding(slopes, *args, blas=False)
    found = bits_of(slopes, *args)
    assert found[0] == found[1] == found[2]
    for got, want in zip(lw.jit(slopes)(*args), slopes(*(x.astype("f8") for x in args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_long_sums_are_as_exact_as_numpys():
    x = np.random.default_rng(0).random((20000, 9)).astype("f4")
    exact = x.astype("f8").sum(0)
    _, ours = lw.jit(lambda x: (x * 2, np.sum(x, axis=0)))(x)
    assert np.abs(ours - exact).max() <= np.abs(x.sum(0) - exact).max()


def test_vmap_and_derivatives_of_both():
    x, y = np.random.default_rng(0).normal(size=(2, 4, 37, 3))
    for a, b in zip(lw.jit(lw.vmap(both))(x, y), map(np.stack, zip(*map(both, x, y), strict=True)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    _, tangents = lw.jvp(lw.jit(both), (x[0], y[0]), (y[0], x[0]))
    np.testing.assert_allclose(tangents[1], (x[0] ** 2 + y[0] ** 2).sum(0), atol=1e-12)


# ---- the instruction ----------------------------------------------------------------------------
def adding_kernel():
    return next(n for n in kernels(both, *np.ones((2, 5, 40))) if any(isinstance(x, AddAlong) for x in n.attrs["schedule"]))


def test_block_sums_mean_the_same_to_the_interpreter():
    region = adding_kernel().regions[0]
    x, y = np.random.default_rng(0).normal(size=(2, 70, 6))
    _, found = evaluate(region, (x, y), dict(zip(region.symbols, (70, 6), strict=True)))
    np.testing.assert_allclose(found, [(x * y)[k:k + ROWS].sum(0) for k in range(0, 70, ROWS)])


def test_blocks_that_a_kernel_adds_up_alone_are_folds():
    """One of few columns had lanes that a fold cannot have."""
    rows = adding_kernel().regions[0].params[0].type
    region = build(lambda x: [block_sums(x, axes=(0,))], [rows])
    assert not any(isinstance(x, FewColumns) for x in default_schedule(region, host_target()))


def test_only_blocks_of_the_roots_rows_are_added_up():
    n = adding_kernel()
    wrong = tuple(dataclasses.replace(x, stage=0) if isinstance(x, AddAlong) else x for x in n.attrs["schedule"])
    with pytest.raises(ScheduleError, match="AddAlong"):
        build_nest(n.regions[0], wrong, "k")
    with pytest.raises(ScheduleError, match="in their order"):
        build_nest(n.regions[0], (*n.attrs["schedule"], Tiles()), "k")
    assert any(x.op is block_sums for x in n.regions[0].nodes)


# ---- beside other ways ----------------------------------------------------------------------------
@pytest.mark.parametrize("columns", [1, 3, 8, 20, 100])
def test_what_adds_up_has_no_ways_for_short_rows(columns):
    """Deviations of powers, beside what they are powers of, were a ScheduleError."""
    def f(y):
        d = y[None] - y[:, None]
        cubes = d ** 3
        return np.stack([d, cubes - np.mean(cubes, axis=0, keepdims=True)], -1)
    y = np.random.default_rng(columns).normal(size=(40, columns))
    np.testing.assert_allclose(lw.jit(f)(y), f(y), atol=1e-12)
