"""Convolutions of images whose channels come first: those of images whose channels are last, on transposed arrays."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.lower.runtime import blas
from tests.scale import examples

needs_blas = pytest.mark.skipif(blas.found() is None, reason="without a BLAS convolutions are loops")
FIRST, LAST = {1: ("NCW", "OIW", "NCW"), 2: ("NCHW", "OIHW", "NCHW")}, {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}


def layer(names, stride=1, spread=1, groups=1):
    def f(x, w):
        rank = x.ndim - 2
        return lax.conv_general_dilated(x, w, (stride,) * rank, "SAME", rhs_dilation=(spread,) * rank,
                                        dimension_numbers=names[rank], feature_group_count=groups)
    return f


def last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


SETTINGS = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)]
PAIRS = {s: (lw.jit(layer(FIRST, *s)), lw.jit(layer(LAST, *s))) for s in SETTINGS}


def slopes(f):
    return lw.jit(lw.grad(lambda x, w, y: np.sum(f(x, w) * y), argnums=(0, 1)))


SLOPES = {s: [slopes(layer(names, *s)) for names in (FIRST, LAST)] for s in SETTINGS}


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
@examples(30)
@given(st.sampled_from(SETTINGS), st.integers(1, 3), st.integers(1, 12), st.integers(1, 20), st.integers(4, 19),
       st.integers(2, 4), st.integers(1, 2), st.integers(0, 99))
def test_the_same_as_with_channels_last(settings, images, channels, features, wide, window, rank, seed):
    rng, groups = np.random.default_rng(seed), settings[2]
    x = rng.normal(size=(images, groups * channels, *(wide, wide + 3)[:rank]))
    w = rng.normal(size=(groups * features, channels, *[window] * rank))
    kernel = np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2)))
    first, other = PAIRS[settings]
    got, want = first(x, w), other(last(x), kernel)
    np.testing.assert_allclose(last(got), want, atol=1e-10)
    given = rng.normal(size=got.shape)
    first, other = SLOPES[settings]
    by_first, by_last = first(x, w, given), other(last(x), kernel, last(given))
    np.testing.assert_allclose(last(by_first[0]), by_last[0], atol=1e-9)
    np.testing.assert_allclose(np.moveaxis(by_first[1], (0, 1), (-1, -2)), by_last[1], atol=1e-9)


@needs_blas
def test_windows_are_not_copied():
    x, w = np.ones((2, 16, 12, 12), "f4"), np.ones((32, 16, 3, 3), "f4")
    text = lw.jit(layer(FIRST), dynamic=False).lower(x, w).kernels
    assert "windows" not in text and "scan" not in text
    assert " transpose(" in text


@needs_blas
def test_of_few_channels_they_are():
    """They are asked for at the call."""
    few, many = (np.ones((2, c, 12, 12), "f4") for c in (3, 16))
    text = lw.jit(layer(FIRST), dynamic=False).lower(few, np.ones((32, 3, 3, 3), "f4")).kernels
    assert "windows" in text and "one_group" not in text
    text = lw.jit(layer(FIRST)).lower(many, np.ones((32, 16, 3, 3), "f4")).kernels
    assert "windows" in text and "one_group" in text and "= switch(" in text


@needs_blas
def test_what_windows_read_is_transposed_first():
    """A kernel that reads each element again and again does not read across memory."""
    x, w = np.ones((2, 12, 12, 16), "f4"), np.ones((3, 3, 16, 32), "f4")
    programs = {
        "one_group": lambda x, w: layer(LAST)(np.maximum(np.transpose(x, (0, 2, 3, 1)), 0), w),
        "window_max": lambda x, w: lax.reduce_window(np.transpose(x, (0, 3, 1, 2)), -np.inf, lax.max, (1, 1, 2, 2)),
    }
    for name, f in programs.items():
        args = (np.ones((2, 16, 12, 12), "f4"), w) if name == "one_group" else (x, w)
        kernels = lw.jit(f).lower(*args).kernels.split("= kernel(")
        assert all(" transpose(" not in k for k in kernels if f" {name}(" in k), name
