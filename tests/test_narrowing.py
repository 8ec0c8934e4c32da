"""Folds over windows: what lies outside is left out by the bounds of loops, for any sizes, and touches no value."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax

RNG = np.random.default_rng(3)


def reference(x, w, stride, low, count, dilation, fold):
    """The fold over positions that are on the image of f(element, weight), channel by channel, in float64."""
    out = np.full((x.shape[0], *count, x.shape[-1]), 0.0 if fold is np.add else -np.inf)
    for i, j in np.ndindex(*w.shape[:2]):
        for y, z in np.ndindex(*count):
            at = y * stride[0] + i * dilation - low[0], z * stride[1] + j * dilation - low[1]
            if all(0 <= a < n for a, n in zip(at, x.shape[1:3], strict=True)):
                one = x[:, at[0], at[1]].astype("float64")
                out[:, y, z] = fold(out[:, y, z], one * w[i, j, 0] if fold is np.add else one)
    return out


def image(shape, special):
    x = RNG.normal(size=shape).astype("float32")
    if special:
        x[0, 0, 0], x[0, -1, shape[2] // 2], x[0, shape[1] // 2, -1] = np.nan, np.inf, -np.inf
    return x


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_each_channel_by_itself(stride, dilation, special):
    """One program for windows that reach far past the image and for those of more positions than a block of a sum."""
    channels = 20

    @lw.jit
    def f(x, w):
        return lax.conv_general_dilated(x, w, stride, [(4, 4), (5, 5)], rhs_dilation=(dilation, dilation),
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=channels)
    sizes = [((1, 9, 8), (3, 3)), ((2, 5, 7), (2, 5)), ((1, 3, 2), (4, 3)), ((1, 40, 11), (17, 2)), ((1, 12, 45), (2, 19))]
    for shape, window in sizes:
        x, w = image((*shape, channels), special), RNG.normal(size=(*window, 1, channels)).astype("float32")
        found = f(x, w)
        with np.errstate(invalid="ignore"):
            expected = reference(x, w, stride, (4, 5), found.shape[1:3], dilation, np.add)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert f.compiles == 1


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("pads", [((4, 4), (5, 5)), ((-1, 2), (1, -2)), ((0, 0), (0, 0))])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (2, 3)])
def test_rows_that_are_copied_for_products(stride, pads, special):
    """One program, of images that windows reach far past, and of any number of features: what is copied ends where they do."""
    @lw.jit
    def f(x, w):
        return lax.conv_general_dilated(x, w, stride, pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    sizes = [((1, 9, 8), (3, 3), 3, 5), ((2, 5, 7), (2, 5), 17, 33), ((1, 4, 5), (3, 2), 40, 4), ((1, 7, 90), (3, 3), 2, 20),
             ((2, 9, 6), (3, 4), 300, 3)]
    for shape, window, features, out in sizes:
        x, w = image((*shape, features), special), RNG.normal(size=(*window, features, out)).astype("float32")
        found = f(x, w)
        with np.errstate(invalid="ignore"):
            wide = np.pad(x.astype("float64"), ((0, 0), (12, 12), (12, 12), (0, 0)))[:, 12 - pads[0][0]:, 12 - pads[1][0]:]
            down, along = (n * by for n, by in zip(found.shape[1:3], stride, strict=True))
            expected = sum(wide[:, i:i + down:stride[0], j:j + along:stride[1]] @ w[i, j] for i, j in np.ndindex(*window))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert f.compiles == 1


@pytest.mark.parametrize("special", [False, True])
def test_the_greatest_of_a_window(special):
    @lw.jit
    def f(x):
        return lax.reduce_window(x, -np.inf, np.maximum, (1, 3, 3, 1), (1, 2, 1, 1), [(0, 0), (2, 2), (1, 1), (0, 0)])
    for shape in ((1, 9, 8), (2, 1, 1), (1, 4, 3)):
        x = image((*shape, 5), special)
        found = f(x)
        with np.errstate(invalid="ignore"):
            expected = reference(x, np.ones((3, 3, 1)), (2, 1), (2, 1), found.shape[1:3], 1, np.maximum)
        np.testing.assert_array_equal(found, expected.astype("float32"))


def test_no_windows_and_empty_images():
    @lw.jit
    def f(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                        feature_group_count=4)
    w = np.ones((3, 3, 1, 4), "float32")
    assert f(np.ones((0, 5, 5, 4), "float32"), w).shape == (0, 5, 5, 4)
    assert f(np.ones((2, 5, 0, 4), "float32"), w).shape == (2, 5, 0, 4)
