"""Convolutions in groups, and of channels apart with large windows, by hand-written code: NumPy's sums for any sizes."""
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


def layer(stride, spread, padding, kernel_order="HWIO", each=1):
    """each: channels of a group."""
    axes = "HW"[2 - len(stride):]
    names = f"N{axes}C", kernel_order.replace("HW", axes), f"N{axes}C"
    spreads = (spread, 1)[2 - len(stride):]

    def f(x, kernel):
        return lw.lax.conv_general_dilated(x, kernel, stride, padding, rhs_dilation=spreads, dimension_numbers=names,
                                           feature_group_count=x.shape[-1] // each)
    return f


def expected(x, kernel, stride, spread, padding):
    """Of a kernel of (..., channels of a group, features), in float64."""
    spreads, window, (terms, features) = (spread, 1)[2 - len(stride):], kernel.shape[:-2], kernel.shape[-2:]
    x = np.pad(x.astype("f8"), [(0, 0), *padding, (0, 0)])
    groups = x.shape[-1] // terms
    count = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[1:], window, stride, spreads, strict=False)]
    out = np.zeros((len(x), *count, groups, features // groups))
    for at in np.ndindex(*window):
        places = [slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(at, spreads, count, stride, strict=True)]
        some = x[(slice(None), *places)].reshape(*out.shape[:-1], terms)
        out += np.einsum("...gc,cgo->...go", some, kernel[at].astype("f8").reshape(terms, groups, features // groups))
    return out.reshape(len(x), *count, features)


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


GROUPS = {(key, each): lw.jit(layer(*key, [(1, 2)] * len(key[0]), each=each))
          for key in SETTINGS for each in (1, 2, 3, 4, 8, 17)}


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
@examples(80)
@given(key=st.sampled_from(list(GROUPS)), images=st.integers(1, 2), high=st.integers(1, 20), wide=st.integers(1, 40),
       window=st.sampled_from([(3, 3), (2, 3), (5, 5), (1, 3), (7, 2)]), groups=st.integers(2, 9), features=st.integers(2, 40),
       dtype=st.sampled_from(["f4", "f8"]), seed=st.integers(0, 99))
def test_groups_of_any_sizes(key, images, high, wide, window, groups, features, dtype, seed):
    (stride, spread), each = key
    rng, rank = np.random.default_rng(seed), len(stride)
    shape, window = ((high + 14, wide + 5), window) if rank == 2 else ((wide + 9,), window[:1])
    x = rng.normal(size=(images, *shape, groups * each)).astype(dtype)
    kernel = rng.normal(size=(*window, each, groups * features)).astype(dtype)
    want = expected(x, kernel, stride, spread, [(1, 2)] * rank)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == "f8" else {"rtol": 5e-4, "atol": 5e-4}
    np.testing.assert_allclose(GROUPS[key](x, kernel), want, **tolerance)


@needs_own
def test_it_is_chosen_where_numbers_are_in_many_windows():
    x = np.ones((2, 20, 20, 32), "f4")
    for window, stride, chosen in ((7, 1, True), (4, 1, True), (3, 1, False), (5, 2, False), (8, 2, True)):
        kernel = np.ones((window, window, 1, 32), "f4")
        text = str(lw.jit(layer((stride, stride), 1, "VALID"), dynamic=False).lower(x, kernel).module)
        assert ("depthwise" in text) == chosen


@needs_own
@pytest.mark.parametrize(("each", "features"), [(8, 64), (4, 32), (16, 96), (32, 128)])
def test_groups_have_no_products(each, features):
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(2, 20, 40, 64)).astype("f4"), rng.normal(size=(3, 3, each, features)).astype("f4")
    program = lw.jit(layer((1, 1), 1, "SAME", each=each)).lower(x, kernel)
    text = str(program.module)
    assert "groupwise" in text and "dot_general" not in text
    one, *others = bits_of(layer((1, 1), 1, "SAME", each=each), x, kernel)
    assert all(y == one for y in others)


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


def test_gradients_of_groups():
    """Against the sum over groups of convolutions of one, kernels however they lie."""
    rng = np.random.default_rng(1)
    x, kernel, given = rng.normal(size=(2, 9, 11, 24)), rng.normal(size=(3, 3, 8, 36)), rng.normal(size=(2, 9, 11, 36))
    whole, alone = layer((1, 1), 1, "SAME", each=8), layer((1, 1), 1, "SAME", each=8)

    def apart(x, kernel):
        return np.concatenate([alone(x[..., 8 * g:8 * g + 8], kernel[..., 12 * g:12 * g + 12]) for g in range(3)], -1)
    first, second = (lw.jit(lw.grad(lambda x, k, f=f: (f(x, k) * given).sum(), argnums=(0, 1)))(x, kernel)
                     for f in (whole, apart))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    turned = lw.jit(layer((1, 1), 1, "SAME", "OIHW", each=8))
    np.testing.assert_allclose(turned(x, np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))), lw.jit(whole)(x, kernel),
                               atol=1e-11)


def test_images_without_pixels():
    f = lw.jit(layer((1, 1), 1, [(2, 2), (2, 2)]))
    kernel = np.ones((5, 5, 1, 24), "f4")
    assert f(np.ones((0, 9, 9, 24), "f4"), kernel).shape == (0, 9, 9, 24)
    np.testing.assert_array_equal(f(np.ones((1, 1, 3, 24), "f4"), kernel), np.full((1, 1, 3, 24), 3, "f4"))
