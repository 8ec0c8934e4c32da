"""Convolutions by hand-written code, of few features or channels, and gradients: against loops over every position."""
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.types import F32
from loopwright.lower.codegen.products import has_own
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.threads import bits_of
from tests.windows import convolved, draw, spread

LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}


def forward(x, kernel, settings):
    """Features last."""
    return lax.conv_general_dilated(x, kernel, *settings[:2], rhs_dilation=settings[2], dimension_numbers=LAYOUTS[x.ndim - 2])


def expected(x, kernel, settings):
    strides, pads, dilation = settings
    x, kernel = np.moveaxis(x, -1, 1), np.moveaxis(kernel, (-1, -2), (0, 1))
    found = convolved(x, kernel, strides, pads, (1,) * len(strides), dilation)
    return np.moveaxis(found, 1, -1)


def seen(x, dy, window, settings):
    """For each position of the window, what the elements of dy see there."""
    strides, pads, dilation = settings
    x = spread(x, (1,) * x.ndim, [(0, 0), *pads, (0, 0)], 0)
    for at in np.ndindex(*window):
        place = [slice(k * d, k * d + n * s, s) for k, d, n, s in zip(at, dilation, dy.shape[1:], strides, strict=False)]
        if dy.size:
            yield at, x[:, *place]


def slopes(x, dy, shape, settings):
    """The gradient of sum(conv(x, kernel) * dy) by the kernel, one position after another."""
    found, axes = np.zeros(shape, dy.dtype), tuple(range(dy.ndim - 1))
    for at, part in seen(x, dy, shape[:-2], settings):
        found[at] = np.tensordot(part, dy, (axes, axes))
    return found


def image_slopes(x, kernel, dy, settings):
    """That by the image: each element, by its number, gets what it is multiplied by; number 0 is what is around it."""
    found, numbers = np.zeros(x.size + 1, dy.dtype), np.arange(1, x.size + 1).reshape(x.shape)
    for at, part in seen(numbers, dy, kernel.shape[:-2], settings):
        np.add.at(found, part, dy @ kernel[at].T)
    return found[1:].reshape(x.shape)


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 2))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    settings = each(1, 3), tuple((draw(st.integers(-2, 3)), draw(st.integers(-2, 3))) for _ in range(rank)), \
        (*(draw(st.integers(1, 2)) for _ in range(rank - 1)), 1)
    sizes = [((draw(st.integers(0, 3)), *each(0, 12), c), (*each(1, 4), c, draw(st.integers(0, 21))))
             for c in (draw(st.integers(0, 3)), draw(st.integers(4, 40)))]
    return settings, sizes


def near(got, want, x):
    assert got.shape == want.shape and got.dtype == x.dtype
    limit = 1e-11 if x.dtype == "f8" else 1e-4
    np.testing.assert_allclose(got, want, rtol=limit, atol=limit * np.abs(want).max(initial=1))


NOTHING = [((0, 0, 0, 0), (1, 1, 0, 0)), ((0, 0, 0, 4), (1, 1, 4, 0)), ((2, 1, 3, 9), (1, 3, 9, 3))]


@examples(20)
@example((((1, 2), ((0, 0), (-1, 0)), (1, 1)), NOTHING), "f4")
@given(cases(), st.sampled_from(["f4", "f8"]))
def test_values_and_slopes(case, dtype):
    settings, sizes = case
    values = lw.jit(lambda x, k: forward(x, k, settings))
    gradients = lw.jit(lambda x, k, dy: lw.vjp(lambda x, k: forward(x, k, settings), x, k)[1](dy))
    for image, kernel in sizes:
        x, k = draw(image, dtype), draw(kernel, dtype, seed=1)
        want = expected(x.astype("f8"), k.astype("f8"), settings)
        near(values(x, k), want, x)
        dy = draw(want.shape, dtype, seed=2)
        by_image, by_kernel = gradients(x, k, dy)
        near(by_image, image_slopes(x.astype("f8"), k.astype("f8"), dy.astype("f8"), settings), x)
        near(by_kernel, slopes(x.astype("f8"), dy.astype("f8"), kernel, settings), x)


@pytest.mark.parametrize("features", [1, 2, 3, 4, 5, 9, 20, 33])
@pytest.mark.parametrize("image", [(2, 9, 14, 16), (1, 40, 65, 9)], ids=str)
def test_every_number_of_features(image, features):
    x, k = draw(image, "f4"), draw((3, 3, image[-1], features), "f4", seed=1)
    want = expected(x.astype("f8"), k.astype("f8"), ALIKE)
    dy = draw(want.shape, "f4", seed=2)
    near(SAME(x, k), want, x)
    near(SLOPES(x, k, dy), slopes(x.astype("f8"), dy.astype("f8"), k.shape, ALIKE), x)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("channels", [1, 2, 3, 7, 16, 17])
@pytest.mark.parametrize("features", [7, 8, 17, 64])
def test_few_channels(channels, features, strides):
    settings = strides, ((3, 2), (0, 4)), (1, 1)
    f = lw.jit(lambda x, k: forward(x, k, settings))
    for dtype in ("f4", "f8"):
        x, k = draw((2, 19, 23, channels), dtype), draw((5, 4, channels, features), dtype, seed=1)
        near(f(x, k), expected(x.astype("f8"), k.astype("f8"), settings), x)


ALIKE = (1, 1), ((1, 1), (1, 1)), (1, 1)  # as many pixels as before
SAME = lw.jit(lambda x, k: forward(x, k, ALIKE))
SLOPES = lw.jit(lambda x, k, dy: lw.vjp(lambda k: forward(x, k, ALIKE), k)[1](dy)[0])


@pytest.mark.parametrize("features", [3, 40])
def test_equal_bits_on_any_number_of_threads(features):
    x, k = draw((3, 40, 41, 24), "f4"), draw((3, 3, 24, features), "f4", seed=1)

    def f(x, k):
        found, pull = lw.vjp(lambda k: forward(x, k, ALIKE), k)
        return found, pull(found)[0]
    first, *others = bits_of(f, x, k)
    assert all(x == first for x in others)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("features", [3, 40])
def test_a_pixel_spoils_its_own_windows_alone(bad, features):
    x, k = draw((1, 13, 15, 16), "f4"), draw((3, 3, 16, features), "f4", seed=1)
    x[0, 6, 14, 3] = bad
    with np.errstate(invalid="ignore"):
        want = expected(x, k, ALIKE)
    np.testing.assert_array_equal(np.isfinite(SAME(x, k)), np.isfinite(want))
    spoiled = np.zeros(k.shape, bool)
    spoiled[:, 1:, 3] = True  # its column is the last, which windows have in the middle or at the end
    np.testing.assert_array_equal(~np.isfinite(SLOPES(x, k, np.ones((1, 13, 15, features), "f4"))), spoiled)


def test_operands_that_are_no_contiguous_arrays():
    x, k = draw((15, 13, 2, 16), "f4").transpose(2, 1, 0, 3)[:, ::-1], draw((5, 3, 3, 16), "f4", seed=1).transpose(1, 2, 3, 0)
    near(SAME(x, k), expected(x.astype("f8"), k.astype("f8"), ALIKE), x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("image", "window"), [
    ((1, 7, 300, 1), (3, 3)), ((3, 20, 129, 1), (1, 9)), ((2, 5, 3, 1), (5, 2))], ids=str)
def test_single_numbers(image, window, dtype):
    x, k = draw(image, dtype), draw((*window, 1, 1), dtype, seed=1)
    for settings in (ALIKE, ((1, 2), ((0, 3), (2, 0)), (2, 1)), ((2, 1), ((3, 3), (-1, 2)), (1, 1))):
        f = lw.jit(lambda x, k, settings=settings: forward(x, k, settings))
        near(f(x, k), expected(x.astype("f8"), k.astype("f8"), settings), x)


CONVOLVED = {mode: lw.jit(lambda x, y, mode=mode: np.convolve(x, y, mode)) for mode in ("full", "same", "valid")}


@examples(30)
@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from(["full", "same", "valid"]), st.sampled_from(["f4", "f8"]))
def test_convolve_is_numpys(n, m, mode, dtype):
    x, y = draw((n,), dtype), draw((m,), dtype, seed=1)
    got, want = CONVOLVED[mode](x, y), np.convolve(x.astype("f8"), y.astype("f8"), mode)
    near(got, want, x)


# ---- patches ----------------------------------------------------------------------------------------
@cache
def layer(strides, padding, layout):
    """Windows of any size, at these steps."""
    names = LAYOUTS[len(strides)]
    return lw.jit(lambda x, k, bias: np.maximum(lax.conv_general_dilated(
        x, k, strides, padding, dimension_numbers=(names[0], layout, names[2])) + bias, 0))


def with_axes(x, names, order):
    return np.ascontiguousarray(x.transpose([names.index(k) for k in order]))


@examples(60)
@given(st.sampled_from([((2, 2), "HWIO"), ((4, 4), "OHWI"), ((3, 1), "HWIO"), ((2, 4), "OIHW"), ((4,), "WIO"), ((4,), "OIW")]),
       st.sampled_from(["SAME", "VALID"]), st.integers(-1, 1), st.integers(0, 3), st.integers(1, 40), st.integers(60, 70),
       st.sampled_from(["f4", "f8"]), st.integers(0, 99))
@example(((4, 4), "OHWI"), "VALID", 0, 1, 3, 64, "f4", 0)
@example(((2, 2), "HWIO"), "SAME", 0, 0, 12, 64, "f8", 0)
@example(((4,), "OIW"), "SAME", 0, 3, 12, 70, "f4", 0)  # zeros after the last element, and none before
def test_windows_that_lie_side_by_side(case, padding, more, left, channels, made, dtype, seed):
    """Windows as large as the steps are, or nearly; images that they fill, or nearly. One compile serves all."""
    (strides, layout), r = case, np.random.default_rng(seed)
    names = LAYOUTS[len(strides)]
    window = [max(s + more * (k == 0), 1) for k, s in enumerate(strides)]
    extent = [s * r.integers(1, 5) + left for s in strides]
    x = r.normal(size=(r.integers(0, 4), *extent, channels)).astype(dtype)
    kernel, bias = r.normal(size=(*window, channels, made)).astype(dtype), r.normal(size=made).astype(dtype)
    count = [-(-n // s) if padding == "SAME" else (n - w) // s + 1 for n, s, w in zip(extent, strides, window, strict=True)]
    over = [max((c - 1) * s + w - n, 0) for c, s, w, n in zip(count, strides, window, extent, strict=True)]
    pads = [(n // 2, n - n // 2) if padding == "SAME" else (0, 0) for n in over]
    want = np.maximum(expected(x.astype("f8"), kernel.astype("f8"), (strides, pads, (1,) * len(strides))) + bias, 0)
    near(layer(strides, padding, layout)(x, with_axes(kernel, names[1], layout), bias), want, x)


def test_patches_are_a_product_where_that_is_worth_a_copy():
    def made(window, features, extent=32):
        f = layer((4, 4), "SAME", "HWIO")
        text = lw.jit(f, dynamic=False).lower(np.ones((1, extent, extent, 3), "f4"), np.ones((*window, 3, features), "f4"),
                                              np.ones(features, "f4")).module
        return "gemm" in re.findall(r'implementation="(\w+)"', text)
    assert made((4, 4), 96)
    assert not made((4, 5), 96) and not made((4, 4), 96, 33) and not made((4, 4), 32)


# ---- what is chosen ---------------------------------------------------------------------------------
def test_known_numbers_of_features_choose_at_once():
    def f(x, k):
        return np.maximum(forward(x, k, ALIKE), 0)
    own = has_own(F32, host_target())
    few = ["few_features", "generated"] if own else ["generated"]
    direct = ["few_channels", "generated"] if own and host_target().is_short_of_registers else ["generated"]
    for channels, features, made in ((16, 3, few), (20, 64, ["generated"]), (16, 64, direct), (3, 9, direct),
                                     (1, 9, ["generated"])):
        x = np.ones((1, 9, 9, channels), "f4")
        text = lw.jit(f, dynamic=False).lower(x, np.ones((3, 3, channels, features), "f4")).module
        assert re.findall(r'implementation="(\w+)"', text) == made


def test_programs_that_cut_patches_are_text():
    f, args = layer((4, 4), "VALID", "OHWI"), (draw((2, 8, 12, 5), "f4"), draw((64, 4, 4, 5), "f4", seed=1), draw((64,), "f4"))
    np.testing.assert_array_equal(lw.parse(f.lower(*args).module).compile()(*args), f(*args))


@pytest.mark.parametrize("features", [3, 64])
def test_programs_with_such_kernels_are_text(features):
    x, k = draw((2, 9, 8, 16), "f4"), draw((3, 3, 16, features), "f4", seed=1)
    dy = draw((2, 9, 8, features), "f4", seed=2)
    for f, args in ((SAME, (x, k)), (SLOPES, (x, k, dy))):
        np.testing.assert_array_equal(lw.parse(f.lower(*args).module).compile()(*args), f(*args))


def test_one_compile_serves_few_and_many_features():
    f = lw.jit(lambda x, k: np.maximum(forward(x, k, ALIKE), 0))
    x = draw((2, 9, 8, 16), "f4")
    for features in (3, 64, 12):
        k = draw((3, 3, 16, features), "f4", seed=1)
        near(f(x, k), np.maximum(expected(x.astype("f8"), k.astype("f8"), ALIKE), 0), x)
    assert f.compiles == 1
