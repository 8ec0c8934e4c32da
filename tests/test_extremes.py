"""The first extreme of rows of floats, which a turn of a loop is searched for: ties, NaNs, infinities, all lengths."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples
from tests.threads import bits_of

FOLDS = {"argmax": np.argmax, "argmin": np.argmin}
ROWS = {(name, kind): lw.jit(lambda x, f=f, kind=kind: f(x * 2 if kind == "computed" else x, axis=-1))
        for name, f in FOLDS.items() for kind in ("read", "computed")}
AT_MOST = 2500  # more than ten turns of the loop


def numbers(rng, shape, dtype, kind):
    """Numbers of which many are equal, or some are NaN, or most are the worst there are."""
    x = rng.normal(size=shape) * 3
    if kind == "ties":
        x = np.round(x)
    if kind in ("nans", "worst"):
        x = np.where(rng.random(shape) < 0.01, np.nan, x)
    if kind == "worst":
        x = np.where(rng.random(shape) < 0.99, rng.choice([-np.inf, np.inf]), x)
    if kind == "zeros":
        x = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
    return x.astype(dtype)


@given(st.sampled_from(sorted(ROWS)), st.integers(0, 5), st.integers(1, AT_MOST), st.sampled_from(["f4", "f8", "f2"]),
       st.sampled_from(["any", "ties", "nans", "worst", "zeros"]), st.integers(0, 99))
@examples(300)
def test_positions_are_numpys(which, rows, length, dtype, kind, seed):
    x = numbers(np.random.default_rng(seed), (rows, length), dtype, kind)
    np.testing.assert_array_equal(ROWS[which](x), FOLDS[which[0]](x * 2 if which[1] == "computed" else x, axis=-1))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33, 48, 64, 80, 96, 127, 128, 129, 192, 1000])
@pytest.mark.parametrize("kind", ["ties", "nans"])
def test_rows_of_known_length(length, kind):
    """Their last vectors are so many at once."""
    x = numbers(np.random.default_rng(length), 9 * length, "f4", kind)
    f = lw.jit(lambda x: (np.argmax(x.reshape(-1, length), axis=1), np.argmin(x.reshape(-1, length) * 2, axis=1)))
    high, low = f(x)
    np.testing.assert_array_equal(high, np.argmax(x.reshape(-1, length), axis=1))
    np.testing.assert_array_equal(low, np.argmin(x.reshape(-1, length), axis=1))


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("at", [0, 15, 63, 64, 999_999])
def test_a_long_array_has_its_extreme_anywhere(name, at):
    f, x = lw.jit(FOLDS[name]), np.zeros(1_000_000, "f4")
    x[at] = 1 if name == "argmax" else -1
    assert f(x) == at
    x[at] = np.nan
    assert f(x) == at


def test_an_extreme_beside_its_position():
    """Folds that share a pass keep positions of all lanes."""
    x = numbers(np.random.default_rng(1), (7, 300), "f4", "nans")
    most, first = lw.jit(lambda x: (np.max(x, axis=1), np.argmax(x, axis=1)))(x)
    np.testing.assert_array_equal(most, np.max(x, axis=1))
    np.testing.assert_array_equal(first, np.argmax(x, axis=1))


# ---- the first truth ------------------------------------------------------------------------------
TRUTHS = {(name, kind): lw.jit(lambda x, t, f=f, kind=kind: f(x if kind == "read" else x.astype("f4") * t > 0.5, axis=-1))
          for name, f in FOLDS.items() for kind in ("read", "computed")}


@given(st.sampled_from(sorted(TRUTHS)), st.integers(0, 5), st.integers(1, AT_MOST), st.sampled_from([0, 1e-3, 0.1, 0.9, 1]),
       st.integers(0, 99))
@examples(200)
def test_the_first_truth(which, rows, length, share, seed):
    x, t = np.random.default_rng(seed).random((rows, length)) < share, np.float32(0.75)
    np.testing.assert_array_equal(TRUTHS[which](x, t), FOLDS[which[0]](x, axis=-1))


@pytest.mark.parametrize("at", [0, 7, 31, 32, 100_001, 299_999, None])
def test_the_first_truth_of_an_array_that_threads_share(at):
    x = np.zeros(300_000, bool)
    if at is not None:
        x[at:] = True
    for found in bits_of(lambda x: (np.argmax(x), np.argmin(~x)), x):
        assert [np.frombuffer(b, np.int64).item() for b in found] == [np.argmax(x)] * 2


def test_what_may_raise_is_computed_for_all_points():
    """A position that is not there is an error wherever the first truth is."""
    f = lw.jit(lambda x, at: np.argmax(x[at]))
    x = np.array([True, False])
    assert f(x, np.array([1, 0, 1])) == 1
    with pytest.raises(IndexError):
        f(x, np.array([0] + 40 * [1] + [2]))
