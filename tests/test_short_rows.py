"""Rows of every length, shorter than vectors and longer: one compile for all, NumPy's values."""
import ctypes
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import Inline, Parallel, ShortRows, Vectorize, from_json, to_json
from loopwright.lower.codegen.transposes import SIZES, WAYS, name_of
from loopwright.lower.partition import partition
from loopwright.lower.runtime import transposes
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from tests.scale import examples


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layernorm(x):
    return (x - np.mean(x, axis=-1, keepdims=True)) / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-3)


def slopes_of_softmax(x):
    p = softmax(x)
    return 2 * p * (p - np.sum(p * p, axis=-1, keepdims=True))


def entropy(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    total = np.sum(e, axis=-1)
    return np.log(total) - np.sum(e * (x - np.max(x, axis=-1, keepdims=True)), axis=-1) / total


FUNCTIONS = {
    "sum": lambda x: np.sum(x, axis=-1), "max": lambda x: np.max(x, axis=-1), "any": lambda x: np.any(x > 1, axis=-1),
    "all": lambda x: np.all(x > -1, axis=-1), "argmax": lambda x: np.argmax(x, axis=-1),
    "argmin": lambda x: np.argmin(x, axis=-1), "prod": lambda x: np.prod(x, axis=-1),
    "norm": lambda x: np.sqrt(np.sum(x * x, axis=-1)),
    "logsumexp": lambda x: np.log(np.sum(np.exp(x - np.max(x, axis=-1, keepdims=True)), axis=-1)),
    "softmax": softmax, "layernorm": layernorm, "shifted": lambda x: x[..., ::-1] - np.max(x, axis=-1, keepdims=True),
    "several": lambda x: (np.max(x, axis=-1), np.argmin(x, axis=-1), x / np.sum(np.abs(x), axis=-1, keepdims=True)),
    "kept": lambda x: (np.exp(x - np.max(x, axis=-1, keepdims=True)),
                       np.sum(np.exp(x - np.max(x, axis=-1, keepdims=True)), axis=-1)),
    "masked": lambda x: np.sum(x, axis=-1, where=x > 0, initial=1), "two axes": lambda x: np.sum(np.exp(x), axis=(-1, -2)),
    "upside down": lambda x: softmax(x[::-1]), "two results": lambda x: (softmax(x), x - np.min(x, axis=-1, keepdims=True)),
    "scaled": lambda x: x / np.sum(np.abs(x), axis=-1, keepdims=True) + np.max(x, axis=-1, keepdims=True),
    "slopes of softmax": slopes_of_softmax, "entropy": entropy, "variance": lambda x: np.var(x, axis=-1),
    "turned": lambda x: np.exp(x - np.max(x, axis=-1, keepdims=True))[..., ::-1],
}
DTYPES = ["f4", "f8", "f2", "i4", "i8", "u1"]
JITTED = {(name, dtype, rank): lw.jit(lambda x, f=f: f(x))
          for name, f in FUNCTIONS.items() for dtype in DTYPES for rank in (2, 3)}


def close(found, expected, dtype):
    for a, b in zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]:
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-2 if dtype == "f2" else 2e-5, atol=1e-3 if dtype == "f2" else 1e-5)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(25)
@given(n=st.integers(0, 70), m=st.one_of(st.integers(1, 20), st.integers(1, 80), st.integers(1, 220)),
       dtype=st.sampled_from(DTYPES), outer=st.sampled_from([(), (3,)]), seed=st.integers(0, 99))
def test_rows_of_every_length(name, n, m, dtype, outer, seed):
    x = (np.random.default_rng(seed).normal(size=(*outer, n, m)) * 3).round(2)
    if name == "prod" and dtype[0] == "f":
        x = 1 + x / 64  # of long rows, too, a number
    x = (np.abs(x) if dtype == "u1" else x).astype(dtype)
    if name in ("max", "any", "all", "argmax", "argmin") and dtype[0] == "f" and seed % 3 == 0:
        x[..., seed % max(n, 1):, seed % m] = np.nan
    with np.errstate(all="ignore"):
        close(JITTED[name, dtype, x.ndim](x), FUNCTIONS[name](x), dtype)


@pytest.mark.parametrize(("size", "lanes"), [x for x in SIZES if 8 * x[0] * x[1] <= host_target().vector_bits])
def test_rows_become_columns_and_come_back(size, lanes):
    """Of the rows nothing else is written, and nothing past the last, which a page ends with, is read."""
    to, back = (ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p])(
        transposes.address(name_of(way, size, lanes))) for way in WAYS)
    page, dtype = mmap.mmap(-1, 16384 + mmap.PAGESIZE), f"i{size}"
    for n in range(1, 2 * lanes + 2):
        for count in (1, 2, lanes - 1, lanes, lanes + 3):
            for step in (n, n + 2):
                length, some = (count - 1) * step + n, min(count, lanes)
                rows = np.frombuffer(page, dtype, length, len(page) - size * length)
                rows[:] = np.arange(length) + 1
                columns = np.zeros((n + lanes, lanes), dtype)
                to(rows.ctypes.data, step, count, n, columns.ctypes.data)
                expected = np.lib.stride_tricks.as_strided(rows, (some, n), (step * size, size)).T
                np.testing.assert_array_equal(columns[:n, :some], expected)
                target = -rows
                back(target.ctypes.data, step, count, n, columns.ctypes.data)
                for at in range(length):
                    row, column = divmod(at, step)
                    assert target[at] == (rows[at] if row < some and column < n else -rows[at])
    del rows


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_panels_have_room_for_squares(dtype):
    """Of maps whose rows count as short where they are half a vector long."""
    f = lw.jit(lambda x: x[:, -1] / np.sum(x[0, -1]))
    for m in range(1, 20):
        x = np.random.default_rng(m).uniform(1, 2, size=(40, 3, m)).astype(dtype)
        np.testing.assert_allclose(f(x), x[:, -1] / np.sum(x[0, -1]), rtol=1e-6)
    (_, schedule), = kernels(lambda x, y: x[:, -1] / y[0], np.ones((5, 6, 7), dtype), np.ones(3, dtype))
    short, = [x for x in schedule if isinstance(x, ShortRows)]
    assert short.below < short.lanes


@pytest.mark.parametrize("m", [1, 2, 5, 10, 33])
@pytest.mark.parametrize("name", ["softmax", "layernorm", "logsumexp", "argmax"])
def test_bits_do_not_depend_on_threads(name, m):
    x, found = np.random.default_rng(m).normal(size=(200_000 // m, m)).astype("f4"), []
    for count in (1, 3):
        lw.set_threads(count)
        found.append(JITTED[name, "f4", 2](x))
    lw.set_threads(None)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("m", [1, 4, 9])
def test_gradients(m):
    x = np.random.default_rng(m).normal(size=(30, m))
    slope = lw.jit(lw.grad(lambda x: np.sum(softmax(x)[:, 0] ** 2)))(x)
    p = softmax(x)
    expected = 2 * p[:, :1] ** 2 * ((np.arange(m) == 0) - p)
    np.testing.assert_allclose(slope, expected, atol=1e-13)


def kernels(f, *args):
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    return [(k.regions[0], k.attrs["schedule"]) for k in graph.nodes]


def test_what_waits_for_more_passes_goes_side_by_side_in_longer_rows():
    def below(f):
        (_, schedule), = kernels(f, np.ones((5, 40), "f4"))
        return next(x.below for x in schedule if isinstance(x, ShortRows))
    entropy_, softmax_, shifted, total = map(below, (
        entropy, softmax, lambda x: x - np.max(x, axis=-1, keepdims=True), lambda x: np.sum(x, axis=-1)))
    assert entropy_ > softmax_ > shifted >= total


def test_the_schedule_says_so():
    (region, schedule), = kernels(softmax, np.ones((5, 40), "f4"))
    short, = [x for x in schedule if isinstance(x, ShortRows)]
    assert from_json(to_json(schedule)) == schedule
    assert build_nest(region, schedule, "k").nest.body[0].short == (short.lanes, short.below)
    (_, columns), = kernels(lambda x: np.sum(x, axis=0), np.ones((5, 40), "f4"))
    assert not any(isinstance(x, ShortRows) for x in columns)
    (region, _), = kernels(lambda x: x + 1, np.ones(40, "f4"))
    plain = Inline(0), Vectorize(0, 0, 8), Parallel()
    assert build_nest(region, (*plain, ShortRows(8, 8)), "k").nest == build_nest(region, plain, "k").nest


@pytest.mark.parametrize(("terms", "columns"), [(8, 100), (100, 8), (8, 8), (15, 17)])
def test_known_rows_of_which_one_is_long(terms, columns):
    """A loop over a row that is known to be long beside a fold that is short."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, terms)).astype("f4"), rng.normal(size=(terms, columns)).astype("f4")

    def f(x, y):
        x, y = np.reshape(x, (50, terms)), np.reshape(y, (terms, columns))
        return np.sqrt(((x[:, :, None] - y[None]) ** 2).sum(1))
    np.testing.assert_allclose(lw.jit(f)(x, y), f(x, y), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8", "c16"])
def test_columns_at_positions_that_are_data(dtype):
    f = lw.jit(lambda x, columns: x[:, columns])
    rng = np.random.default_rng(0)
    (_, schedule), = kernels(lambda x, columns: x[:, columns], np.ones((5, 4), "f4"), np.zeros(2, int))
    assert any(isinstance(x, ShortRows) for x in schedule)
    for n, m, k in ((1, 1, 1), (15, 3, 2), (16, 3, 3), (33, 5, 7), (200, 4, 15), (200, 9, 16), (40, 9, 40)):
        x, columns = rng.integers(0, 99, (n, m)).astype(dtype), rng.integers(-m, m, k)
        np.testing.assert_array_equal(f(x, columns), x[:, columns])
        columns[rng.integers(k)] = m
        with pytest.raises(IndexError, match=f"index {m} is out of bounds for axis 1 with size {m}"):
            f(x, columns)
