"""Short last axes and small elements: stacks of columns, repeats, rows read across, with NumPy's values at every length."""
import ctypes
import mmap
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples

DTYPES = ["f4", "f8", "f2", "u1", "bool"]
MOVES = {
    "flip": lambda x: x[..., ::-1], "transpose": lambda x: np.swapaxes(x, -1, -2), "every third": lambda x: x[..., ::3],
    "first axis last": lambda x: np.moveaxis(x, 0, -1), "column": lambda x: x[..., 0], "roll": lambda x: np.roll(x, 1, -1),
    "down": lambda x: x[..., ::-1, :], "both": lambda x: np.swapaxes(x, -1, -2)[..., ::-1, ::2],
    "last axis first": lambda x: np.moveaxis(x, -1, 0), "channels": lambda x: x[..., 0] & x[..., -1] if x.dtype.kind != "f"
    else x[..., 0] - x[..., -1],
}
PIXELS = {  # maps of pixels
    "scaled": lambda x, w: x * w, "moved": lambda x, w: (x - w) * w + x, "mirrored": lambda x, w: x[:, ::-1] + w,
    "channels back": lambda x, w: x[..., ::-1], "every second": lambda x, w: x[::2, ::2] * w,
    "crop": lambda x, w: x[1:, :-1] - w,
    "masked": lambda x, w: np.where(x[..., :1] > w[0], x, w), "converted": lambda x, w: x.astype("f4") / np.float32(3) - w,
    "divided": lambda x, w: np.sqrt(x.astype("f8") / (w + np.float32(1)) + 1) / x.shape[2],
    "one channel": lambda x, w: x[..., 0] + w[0], "alike": lambda x, w: x + x, "far back": lambda x, w: x[:, ::-2, ::-1] * w,
}
MACHINES = {"host": {}, "without masks": {"LOOPWRIGHT_VECTOR_BITS": "256"}}


def array(shape, dtype, seed):
    return np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


@pytest.fixture(params=MACHINES)
def machine(request, monkeypatch):
    for name, value in MACHINES[request.param].items():
        monkeypatch.setenv(name, value)
    return request.param


@cache
def stacks(count, axis, *call):
    def stacked(x, y):
        columns = [x if k % 3 == 0 else y[k % 2] if k % 3 == 1 else x + y[1] for k in range(count)]
        return np.stack(columns, axis), np.stack(columns[::-1], axis)
    return stacked, lw.jit(stacked)


@cache
def repeats(count, *call):
    def repeated(x, y):
        return np.repeat(x, count, -1), np.repeat(x + y[0], count, 0), np.repeat(np.repeat(y, count, 1), 2, 0)
    return repeated, lw.jit(repeated)


@cache
def moves(name, *call):
    return lw.jit(lambda x: MOVES[name](x))


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16, 17])
@pytest.mark.parametrize("axis", [-1, 0])
def test_stacks_of_columns(machine, count, axis):
    @examples(12)
    @given(n=st.integers(0, 200), dtype=st.sampled_from(DTYPES), rows=st.sampled_from([(), (3,)]), seed=st.integers(0, 99))
    def check(n, dtype, rows, seed):
        x, y = array((*rows, n), dtype, seed), array((2, *rows, n), dtype, seed + 1)
        plain, ours = stacks(count, axis, machine, dtype, rows)
        same(ours(x, y), plain(x, y))
    check()


@pytest.mark.parametrize("count", [1, 3, 4, 8, 15, 20])
def test_repeats(machine, count):
    @examples(12)
    @given(n=st.integers(0, 150), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
    def check(n, dtype, seed):
        x, y = array(n, dtype, seed), array((2, n), dtype, seed + 1)
        plain, ours = repeats(count, machine, dtype)
        same(ours(x, y), plain(x, y))
    check()


@pytest.mark.parametrize("name", MOVES)
def test_rows_of_small_elements(machine, name):
    @examples(30)
    @given(n=st.integers(1, 90), m=st.one_of(st.integers(1, 20), st.integers(1, 130)), dtype=st.sampled_from(DTYPES),
           rows=st.sampled_from([(), (3,)]), seed=st.integers(0, 99))
    def check(n, m, dtype, rows, seed):
        x = array((*rows, n, m), dtype, seed)
        same([moves(name, machine, dtype, rows)(x)], [MOVES[name](x)])
    check()


@cache
def pixels(name, channels, is_known, *call):
    return lw.jit(PIXELS[name], shapes=(f"h w {channels}", str(channels)) if is_known else None)


@pytest.fixture(scope="module")
def alone():
    """A function that copies an array to where a page of its own begins, or ends: memory around it is nobody's."""
    page, pages, libc = mmap.PAGESIZE, 64, ctypes.CDLL(None)
    memory = mmap.mmap(-1, (pages + 2) * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if sys.platform == "linux":
        for k in (0, pages + 1):
            assert libc.mprotect(ctypes.c_void_p(address + k * page), page, 0) == 0

    def copy(x, at_end):
        placed = np.frombuffer(memory, x.dtype, x.size, page + at_end * (pages * page - x.nbytes)).reshape(x.shape)
        placed[...] = x
        return placed
    return copy


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
@pytest.mark.parametrize("name", PIXELS)
def test_pixels(machine, alone, name, channels, is_known):
    @examples(12)
    @given(h=st.integers(1, 5), w=st.one_of(st.integers(1, 20), st.integers(1, 70)), dtype=st.sampled_from(DTYPES[:-1]),
           at_end=st.booleans(), seed=st.integers(0, 99))
    def check(h, w, dtype, at_end, seed):
        image, weights = alone(array((h, w, channels), dtype, seed), at_end), array(channels, dtype, seed + 1)
        with np.errstate(over="ignore"):
            same([pixels(name, channels, is_known, machine, dtype)(image, weights)], [PIXELS[name](image, weights)])
    check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_found_by_numbers(machine, dtype):
    f = lw.jit(lambda x, i, j: (x[i], x[i, j], np.take_along_axis(x, i[:, None] % x.shape[1], 1)))
    for seed, (n, m) in enumerate([(1, 1), (3, 7), (100, 3), (65, 129)]):
        rng = np.random.default_rng(seed)
        x, i, j = array((n, m), dtype, seed), rng.integers(-n, n, 150), rng.integers(0, m, 150)
        x = array((max(n, 150), m), dtype, seed) if n == 100 else x
        if len(x) < len(i):
            i, j = i[:len(x)], j[:len(x)]
        same(f(x, i, j), (x[i], x[i, j], np.take_along_axis(x[:len(i)], i[:, None] % m, 1)))


# ---- positions compared with a number -------------------------------------------------------------
PLACES = {
    "padded": lambda x: np.pad(x, ((0, 0), (1, 2))), "cropped": lambda x: x[:, 1:], "cropped twice": lambda x: x[2:, 1:-1] * 2,
    "lower": lambda x: np.tril(x, 1), "upper": lambda x: np.triu(x, -2), "joined": lambda x: np.concatenate([x[:, 1:], x], 1),
    "before": lambda x: np.where(np.arange(x.shape[1], like=x) < x.shape[0], x, 1),
    "after": lambda x: np.where(np.arange(x.shape[1], like=x) - 3 >= x.shape[0], x, 1),
    "backwards": lambda x: np.where(x.shape[1] - np.arange(x.shape[1], like=x) > 4, x, 1),
    "every other": lambda x: np.where(np.arange(x.shape[1], like=x) * 2 > x.shape[0], x, 1),
    "by data": lambda x: np.where(np.arange(x.shape[1], like=x) < np.sum(x != 0, axis=1, keepdims=True) // 2, x, 1),
    "sums of cropped": lambda x: np.sum(x[:, 1:], axis=0), "greatest of cropped": lambda x: np.max(x[:, 1:], axis=1),
}
PLACED = {name: lw.jit(lambda x, f=f: f(x)) for name, f in PLACES.items()}


@pytest.mark.parametrize("name", PLACES)
@examples(20)
@given(n=st.integers(1, 40), m=st.integers(2, 300), dtype=st.sampled_from(["i1", "u1", "i2", "f4", "f8"]),
       seed=st.integers(0, 9))
def test_positions(name, n, m, dtype, seed):
    x = array((n + (name == "cropped twice"), m + 1), dtype, seed)
    expected, found = PLACES[name](x), PLACED[name](x)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("limit", [-2**63, -2**63 + 1, -1, 0, 5, 100, 2**63 - 1])
def test_positions_and_any_number(limit):
    x, limit = array((3, 100), "i1", 0), np.array([limit, limit])
    np.testing.assert_array_equal(BELOW(x, limit), np.where(np.arange(100) < np.max(limit), x, 1))


BELOW = lw.jit(lambda x, limit: np.where(np.arange(x.shape[1], like=x) < np.max(limit), x, 1))
