"""Convolutions with channels apart from each other, and large windows, by hand-written code: NumPy's sums for any sizes."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.codegen.products import has_own
from loopwright.lower.runtime import blas
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.threads import bits_of

needs_own = pytest.mark.skipif(blas.found() is None or not has_own(np.dtype("f4"), host_target()),
                               reason="our own products need a BLAS beside them, and vectors")
SETTINGS = [((1, 1), 1), ((2, 2), 1), ((1, 3), 1), ((2, 1), 2), ((1,), 1), ((2,), 1)]  # strides, how far rows are apart


def layer(stride, spread, padding, kernel_order="HWIO"):
    axes = "HW"[2 - len(stride):]
    names = f"N{axes}C", kernel_order.replace("HW", axes), f"N{axes}C"
    spreads = (spread, 1)[2 - len(stride):]

    def f(x, kernel):
        return lw.lax.conv_general_dilated(x, kernel, stride, padding, rhs_dilation=spreads, dimension_numbers=names,
                                           feature_group_count=x.shape[-1])
    return f


def expected(x, kernel, stride, spread, padding):
    """Of a kernel of (..., 1, channels), in float64."""
    spreads, window = (spread, 1)[2 - len(stride):], kernel.shape[:-2]
    x = np.pad(x.astype("f8"), [(0, 0), *padding, (0, 0)])
    count = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[1:], window, stride, spreads, strict=False)]
    out = np.zeros((len(x), *count, x.shape[-1]))
    for at in np.ndindex(*window):
        places = [slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(at, spreads, count, stride, strict=True)]
        out += x[(slice(None), *places)] * kernel[(*at, 0)].astype("f8")
    return out


PADDED = {(key, pad): lw.jit(layer(*key, [(pad, pad + 1)] * len(key[0]))) for key in SETTINGS for pad in (0, 3)}


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # each dtype is a program of its own
@examples(60)
@given(key=st.sampled_from(list(PADDED)), images=st.integers(1, 3), high=st.integers(9, 30), wide=st.integers(13, 45),
       window=st.sampled_from([(4, 4), (5, 5), (7, 7), (4, 9), (9, 9), (1, 3)]), channels=st.integers(1, 70),
       dtype=st.sampled_from(["f4", "f8"]), seed=st.integers(0, 99))
def test_any_sizes(key, images, high, wide, window, channels, dtype, seed):
    (stride, spread), pad = key
    rng, rank = np.random.default_rng(seed), len(stride)
    shape, window = ((high + 9, wide), window) if rank == 2 else ((wide + 9,), (12 + window[0],))
    x = rng.normal(size=(images, *shape, channels)).astype(dtype)
    kernel = rng.normal(size=(*window, 1, channels)).astype(dtype)
    want = expected(x, kernel, stride, spread, [(pad, pad + 1)] * rank)
    np.testing.assert_allclose(PADDED[key](x, kernel), want, rtol=1e-9 if dtype == "f8" else 2e-4,
                               atol=1e-9 if dtype == "f8" else 2e-4)


@needs_own
def test_it_is_chosen_where_numbers_are_in_many_windows():
    x = np.ones((2, 20, 20, 32), "f4")
    for window, stride, chosen in ((7, 1, True), (4, 1, True), (3, 1, False), (5, 2, False), (8, 2, True)):
        kernel = np.ones((window, window, 1, 32), "f4")
        text = str(lw.jit(layer((stride, stride), 1, "VALID"), dynamic=False).lower(x, kernel).module)
        assert ("depthwise" in text) == chosen


@needs_own
def test_sums_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(3, 40, 41, 72)).astype("f4"), rng.normal(size=(7, 5, 1, 72)).astype("f4")
    one, *others = bits_of(layer((1, 2), 1, "SAME"), x, kernel)
    assert all(y == one for y in others)


def test_what_is_around_it():
    """Kernels however they lie, what is made of the result, batches of images, gradients."""
    rng = np.random.default_rng(1)
    x, kernel, bias = rng.normal(size=(2, 15, 16, 24)), rng.normal(size=(5, 5, 1, 24)), rng.normal(size=24)
    pads, f = [(2, 2), (2, 2)], layer((1, 1), 1, [(2, 2), (2, 2)])
    want = expected(x, kernel, (1, 1), 1, pads)
    np.testing.assert_allclose(lw.jit(lambda x, k, b: np.maximum(f(x, k) + b, 0))(x, kernel, bias), np.maximum(want + bias, 0),
                               atol=1e-12)
    turned = layer((1, 1), 1, pads, "OIHW")
    np.testing.assert_allclose(lw.jit(turned)(x, np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))), want, atol=1e-12)
    np.testing.assert_allclose(lw.jit(lw.vmap(f, in_axes=(0, None)))(x[:, None], kernel)[:, 0], want, atol=1e-12)
    slopes = lw.jit(lw.grad(lambda x, k: (f(x, k) ** 2).sum(), argnums=(0, 1)))(x, kernel)
    step = 1e-6
    for k, (at, array) in enumerate((((1, 7, 0, 3), x), ((0, 4, 0, 20), kernel))):
        moved = [array.copy(), array.copy()]
        for side, by in zip(moved, (step, -step), strict=True):
            side[at] += by
        two = [(expected(*((m, kernel) if k == 0 else (x, m)), (1, 1), 1, pads) ** 2).sum() for m in moved]
        np.testing.assert_allclose(slopes[k][at], (two[0] - two[1]) / (2 * step), rtol=1e-5)


def test_images_without_pixels():
    f = lw.jit(layer((1, 1), 1, [(2, 2), (2, 2)]))
    kernel = np.ones((5, 5, 1, 24), "f4")
    assert f(np.ones((0, 9, 9, 24), "f4"), kernel).shape == (0, 9, 9, 24)
    np.testing.assert_array_equal(f(np.ones((1, 1, 3, 24), "f4"), kernel), np.full((1, 1, 3, 24), 3, "f4"))
