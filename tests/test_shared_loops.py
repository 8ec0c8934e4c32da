"""What threads share out gives the same bits however many they are."""
import numpy as np
import pytest

import loopwright as lw
from tests.threads import bits_of


def columns(x):
    """Means, norms, extremes of columns, and running sums down them."""
    axes = tuple(range(x.ndim - 1))
    centred = x - x.mean(axes)
    return centred / np.sqrt((centred ** 2).mean(axes) + 1e-3), (x > 3).any(axes), np.argmax(x, 0), np.cumsum(x, 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(40_000, 3), (6, 60, 70, 33), (700, 1234), (30, 20_001)])
def test_columns_are_those_of_one_thread(shape, dtype):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    found = bits_of(columns, x)
    assert found[0] == found[1] == found[2]
    for ours, theirs in zip(lw.jit(columns)(x), columns(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "u8"])
@pytest.mark.parametrize("shape", [(0, 9), (9, 0), (1, 40_000), (500, 601), (7, 3, 4000), (20_000, 5)])
def test_sorted_rows_are_those_of_one_thread(shape, dtype):
    def rows(x):
        return np.sort(x, -1), np.argsort(x, -1, kind="stable"), lw.lax.top_k(x, min(shape[-1], 3))[1]
    x = (np.random.default_rng(1).normal(size=shape) * 99).astype(dtype)
    found = bits_of(rows, x)
    assert found[0] == found[1] == found[2]
    for ours, theirs in zip(lw.jit(rows)(x), (np.sort(x, -1), np.argsort(x, -1, kind="stable")), strict=False):
        np.testing.assert_array_equal(ours, theirs)


def blurred(x):
    """A stencil, a transpose and maxima of windows of images, of which there may be few."""
    y = np.concatenate([x[:, 1:], x[:, :1]], 1) + np.concatenate([x[:, :, -1:], x[:, :, :-1]], 2)
    return y * 0.5 + x, x.transpose(0, 2, 1, 3) * 2, np.maximum(x[:, ::2, 1:], x[:, 1::2, :-1])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(1, 200, 201, 9), (3, 130, 75, 17), (2, 0, 8, 3), (0, 4, 4, 4), (300, 4, 5, 60)])
def test_images_are_those_of_one_thread_however_few(shape, dtype):
    x = np.random.default_rng(2).normal(size=shape).astype(dtype)
    found = bits_of(blurred, x)
    assert found[0] == found[1] == found[2]
    for ours, theirs in zip(lw.jit(blurred)(x), blurred(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
