"""Convolutions: against loops over every position in plain NumPy, and against JAX."""
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax, nn
from tests.scale import examples
from tests.windows import WAYS, convolved, differences, draw, pads_of, ways


# ---- values ---------------------------------------------------------------------------
@st.composite
def convolutions(draw, most=3):
    """Sizes and settings of a convolution; channels in front."""
    rank = draw(st.integers(0, most))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    which = draw(st.sampled_from(["one", "features", "batches"]))
    groups = 1 if which == "one" else draw(st.integers(1, 3))
    n, c, o = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    features, batches = (groups, 1) if which == "features" else (1, groups)
    lhs_dilation = each(1, 2) if draw(st.booleans()) else (1,) * rank
    kinds = ["pairs"] if any(d > 1 for d in lhs_dilation) else ["pairs", "SAME", "SAME_LOWER", "VALID"]
    padding = draw(st.sampled_from(kinds))
    if padding == "pairs":
        padding = [(draw(st.integers(-2, 3)), draw(st.integers(-2, 3))) for _ in range(rank)]
    return ((n * batches, c * features, *each(0, 6)), (o * groups, c, *each(1, 3)),
            {"window_strides": each(1, 3), "padding": padding, "lhs_dilation": lhs_dilation, "rhs_dilation": each(1, 2),
             "feature_group_count": features, "batch_group_count": batches})


def expected(x, kernel, s):
    base, dilation = s["lhs_dilation"], s["rhs_dilation"]
    pads = pads_of(s["padding"], x.shape[2:], kernel.shape[2:], s["window_strides"], dilation)
    return convolved(x, kernel, s["window_strides"], pads, base, dilation, s["feature_group_count"], s["batch_group_count"])


@examples(60)
@given(convolutions(), st.sampled_from(["f8", "f4", "i4", "c16"]))
def test_convolutions_are_loops(case, dtype):
    left, right, s = case
    x, kernel = draw(left, dtype), draw(right, dtype, seed=1)
    got = lax.conv_general_dilated(x, kernel, **s)
    want = expected(x, kernel, s)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-5 if dtype == "f4" else 1e-12)


@examples(15)
@given(convolutions(2), st.sampled_from(["f8", "f4", "c16"]))
def test_compiled_convolutions_are_loops(case, dtype):
    left, right, s = case
    x, kernel = draw(left, dtype), draw(right, dtype, seed=1)
    got = lw.jit(lambda x, k: lax.conv_general_dilated(x, k, **s))(x, kernel)
    want = expected(x, kernel, s)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-5 if dtype == "f4" else 1e-12)


@ways
@pytest.mark.parametrize("dtype", ["f2", "bfloat16", "i1", "u1", "i4", "i8", "f4", "c8"])
def test_dtypes(way, dtype):
    """Of the operands; sums of halves are made in f32, those of small integers wrap."""
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, kernel = draw((2, 3, 6), dtype), draw((4, 3, 3), dtype, seed=1)
    wide = {"f": "f8", "V": "f8", "i": "i8", "u": "i8", "c": "c16"}[dtype.kind]
    want = convolved(x.astype(wide), kernel.astype(wide), (2,), [(1, 1)], (1,), (1,))
    got = way(lambda x, k: lax.conv_general_dilated(x, k, (2,), [(1, 1)]))(x, kernel)
    assert got.dtype == dtype
    if dtype.kind in "iu":
        np.testing.assert_array_equal(got, want.astype(dtype))
    else:
        limit = {2: 1e-2 if dtype.kind == "V" else 2e-3}.get(dtype.itemsize, 1e-5)
        np.testing.assert_allclose(got.astype(wide), want, rtol=limit, atol=limit)


@ways
def test_wider_results(way):
    x, kernel = draw((1, 2, 6), "i1") * np.int8(30), draw((1, 2, 3), "i1", seed=1)
    got = way(lambda x, k: lax.conv(x, k, (1,), "VALID", preferred_element_type=np.int32))(x, kernel)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, convolved(x.astype("i4"), kernel.astype("i4"), (1,), [(0, 0)], (1,), (1,)))
    x, kernel = draw((1, 2, 6), "f4"), draw((1, 2, 3), "f4", seed=1)
    got = way(lambda x, k: lax.conv(x, k, (1,), "VALID", preferred_element_type=np.float64))(x, kernel)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, convolved(x.astype("f8"), kernel.astype("f8"), (1,), [(0, 0)], (1,), (1,)), rtol=1e-6)
    slope = way(lw.grad(lambda x: np.sum(lax.conv(x, kernel, (1,), "VALID", preferred_element_type=np.float64) ** 2)))(x)
    assert slope.dtype == np.float32


def test_operands_of_different_dtypes_are_promoted():
    assert lax.conv(draw((1, 1, 3), "f4"), draw((1, 1, 2)), (1,), "VALID").dtype == np.float64
    assert lw.jit(lambda x, k: lax.conv(x, k, (1,), "VALID"))(draw((1, 1, 3), "i4"), draw((1, 1, 2), "f4")).dtype == np.float64
    assert lax.conv([[[1.0, 2.0]]], [[[1, 1]]], (1,), "VALID").tolist() == [[[3.0]]]


LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NHWC", "OHWI", "NCHW"), ("HWNC", "OWIH", "CNWH"),
           ("CHWN", "IHWO", "NHWC"), ("WNHC", "WHOI", "HWCN")]


@ways
@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_layouts_are_orders_of_axes(way, layout):
    """Settings are in the kernel's order of spatial axes."""
    got = check_layout(way, layout, {"O": 6, "I": 2, "H": 3, "W": 2}, groups=2, pads=((1, 0), (2, 1)), by=(2, 1), apart=(1, 2))
    assert got.ndim == 4


@ways
@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_features_with_several_results_each(way, layout, dtype):
    """Every input feature is a group of its own, of three output features."""
    check_layout(way, layout, {"O": 12, "I": 1, "H": 3, "W": 2}, groups=4, pads=((1, 0), (2, 1)), by=(1, 2), dtype=dtype)


@ways
@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_kernels_of_one_position(way, layout, dtype):
    for groups, by in ((1, (1, 1)), (2, (1, 1)), (1, (2, 1))):
        check_layout(way, layout, {"O": 6, "I": 4 // groups, "H": 1, "W": 1}, groups=groups, by=by, dtype=dtype)


def check_layout(way, layout, kernel_sizes, *, groups, pads=((0, 0), (0, 0)), by=(1, 1), apart=(1, 1), dtype="f8"):
    """A convolution of 2 images of 6 x 5 with 4 features, with axes in some order, and with the numbers of their axes."""
    space = [c for c in layout[1] if c not in "OI"]
    orders = ("NC" + "".join(space), "OI" + "".join(space), "NC" + "".join(space))
    sizes = {"N": 2, "C": 4, "H": 6, "W": 5}
    x = draw(tuple(sizes[c] for c in orders[0]), dtype)
    kernel = draw(tuple(kernel_sizes[c] for c in orders[1]), dtype, seed=1)
    want = convolved(x, kernel, by, pads, (1, 1), apart, features=groups)
    moved = [np.transpose(a, [o.index(c) for c in text]) for a, o, text in zip((x, kernel), orders, layout, strict=False)]
    got = way(lambda x, k: lax.conv_general_dilated(x, k, by, pads, None, apart, layout, feature_group_count=groups))(*moved)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "f4" else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(got, np.transpose(want, [orders[2].index(c) for c in layout[2]]), **close)
    numbers = lax.conv_dimension_numbers(moved[0].shape, moved[1].shape, layout)
    again = lax.conv_general_dilated(*moved, by, pads, None, apart, numbers, groups)
    np.testing.assert_allclose(again, got, **close)
    return got


def test_one_compile_for_all_sizes():
    """Of images, batches, channels and kernels; padding "SAME" and strides included."""
    f = lw.jit(lambda x, k: lax.conv_general_dilated(x, k, (2, 1), "SAME", rhs_dilation=(1, 2)))
    g = lw.jit(lw.grad(lambda x, k: np.sum(lax.conv_general_dilated(x, k, (2, 1), "SAME", rhs_dilation=(1, 2)) ** 2), (0, 1)))
    for n, c, o, space, size in ((2, 3, 4, (8, 9), (3, 2)), (1, 2, 2, (11, 6), (2, 3)), (5, 4, 3, (7, 7), (3, 3)),
                                 (2, 2, 5, (20, 12), (5, 4))):
        x, k = draw((n, c, *space)), draw((o, c, *size), seed=1)
        s = {"window_strides": (2, 1), "padding": "SAME", "lhs_dilation": (1, 1), "rhs_dilation": (1, 2),
             "feature_group_count": 1, "batch_group_count": 1}
        want = expected(x, k, s)
        np.testing.assert_allclose(f(x, k), want, rtol=1e-11, atol=1e-11)
        dx, dk = g(x, k)
        np.testing.assert_allclose([np.sum(dx * x), np.sum(dk * k)], 2 * np.sum(want ** 2), rtol=1e-10)
    assert f.compiles == 1 and g.compiles == 1


def test_groups_of_a_symbolic_number():
    """A depthwise convolution, whose number of groups is the number of channels."""
    f = lw.jit(lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", feature_group_count=x.shape[1]))
    for c in (2, 3, 5):
        x, k = draw((2, c, 7)), draw((2 * c, 1, 3), seed=1)
        np.testing.assert_allclose(f(x, k), convolved(x, k, (1,), [(1, 1)], (1,), (1,), features=c), rtol=1e-12, atol=1e-12)
    assert f.compiles == 1


@ways
def test_padding_by_traced_sizes(way):
    def full(x, k):
        return lax.conv_general_dilated(x, k, (1,), [(k.shape[2] - 1, k.shape[2] - 1)])
    f = way(full)
    for n, m in ((5, 2), (4, 3), (3, 4)):
        x, k = draw((1, 1, n)), draw((1, 1, m), seed=1)
        np.testing.assert_allclose(f(x, k)[0, 0], np.convolve(x[0, 0], k[0, 0, ::-1]), rtol=1e-12)


# ---- derivatives ----------------------------------------------------------------------
@examples(25)
@given(convolutions(2), st.sampled_from(["f8", "c16"]))
def test_reverse_mode_is_forward_mode_turned_around(case, dtype):
    """Convolutions are linear in each operand, so that their tangents are convolutions; and cotangents pair with those."""
    left, right, s = case
    x, kernel, dx, dk = draw(left, dtype), draw(right, dtype, 1), draw(left, dtype, 2), draw(right, dtype, 3)

    def f(x, k):
        return lax.conv_general_dilated(x, k, **s)
    y, dy = lw.jvp(f, (x, kernel), (dx, dk))
    np.testing.assert_allclose(dy, expected(dx, kernel, s) + expected(x, dk, s), rtol=1e-11, atol=1e-11)
    ct = draw(y.shape, dtype, 4)
    cx, ck = lw.vjp(f, x, kernel)[1](ct)
    assert cx.shape == left and ck.shape == right
    np.testing.assert_allclose(np.sum(cx * dx) + np.sum(ck * dk), np.sum(ct * dy), rtol=1e-10, atol=1e-10)


CASES = {
    "plain": ((2, 2, 5), (3, 2, 3), {"window_strides": (1,), "padding": "VALID"}),
    "same": ((1, 2, 5, 4), (2, 2, 3, 2), {"window_strides": (2, 1), "padding": "SAME"}),
    "lower": ((2, 1, 6), (2, 1, 2), {"window_strides": (2,), "padding": "SAME_LOWER"}),
    "cropped": ((1, 2, 6), (1, 2, 2), {"window_strides": (1,), "padding": [(-1, -2)]}),
    "dilated": ((1, 1, 4), (2, 1, 3),
                {"window_strides": (3,), "padding": [(2, 3)], "lhs_dilation": (2,), "rhs_dilation": (2,)}),
    "features": ((1, 4, 5), (6, 2, 2), {"window_strides": (2,), "padding": [(1, 1)], "feature_group_count": 2}),
    "depthwise": ((2, 3, 5), (3, 1, 2), {"window_strides": (1,), "padding": "SAME", "feature_group_count": 3}),
    "batches": ((4, 2, 5), (4, 2, 2), {"window_strides": (1,), "padding": "VALID", "batch_group_count": 2}),
    "pointwise": ((2, 3, 4), (2, 3, 1), {"window_strides": (1,), "padding": "SAME"}),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_differences(name):
    """First derivatives of a loss that is not linear, and second ones along a direction, compiled and not."""
    left, right, s = CASES[name]
    x, kernel, dx, dk = draw(left), draw(right, seed=1), draw(left, seed=2), draw(right, seed=3)

    def loss(x, k):
        return np.sum(np.sin(lax.conv_general_dilated(x, k, **s)))
    gradient = lw.jit(lw.grad(loss, (0, 1)))
    gx, gk = gradient(x, kernel)
    np.testing.assert_allclose(gx, differences(lambda x: loss(x, kernel), x), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(gk, differences(lambda k: loss(x, k), kernel), rtol=1e-6, atol=1e-8)
    second = lw.jit(lambda x, k: lw.jvp(lw.grad(loss, (0, 1)), (x, k), (dx, dk))[1])(x, kernel)
    turned = lw.grad(lambda x, k: lw.jvp(loss, (x, k), (dx, dk))[1], (0, 1))(x, kernel)
    ahead, behind = gradient(x + 1e-5 * dx, kernel + 1e-5 * dk), gradient(x - 1e-5 * dx, kernel - 1e-5 * dk)
    for got, same, up, down in zip(second, turned, ahead, behind, strict=True):
        np.testing.assert_allclose(got, (up - down) / 2e-5, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(got, same, rtol=1e-10, atol=1e-10)


# ---- batches and loops ----------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("axes", [(0, None), (None, 1), (1, 0), (2, 2), (-1, -1)])
def test_vmap_over_any_axes(name, axes):
    left, right, s = CASES[name]
    xs, ks = draw((3, *left)), draw((3, *right), seed=1)

    def f(x, k):
        return lax.conv_general_dilated(x, k, **s)
    args = [np.moveaxis(a, 0, axis) if axis is not None else a[0] for a, axis in zip((xs, ks), axes, strict=True)]
    want = np.stack([f(xs[i if axes[0] is not None else 0], ks[i if axes[1] is not None else 0]) for i in range(3)], 1)
    np.testing.assert_allclose(lw.vmap(f, axes, 1)(*args), want, rtol=1e-12, atol=1e-12)
    if axes == (1, 0):
        np.testing.assert_allclose(lw.jit(lw.vmap(f, axes, 1))(*args), want, rtol=1e-12, atol=1e-12)
        gradient = lw.grad(lambda x, k: np.sum(f(x, k) ** 2), (0, 1))
        each = [np.stack(g) for g in zip(*[gradient(x, k) for x, k in zip(xs, ks, strict=True)], strict=True)]
        for got, one in zip(lw.jit(lw.vmap(gradient, axes))(*args), each, strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-11, atol=1e-11)
        twice = lw.vmap(lw.vmap(f, (0, None)), (None, 0))(xs, ks)
        np.testing.assert_allclose(twice[1, 2], f(xs[2], ks[1]), rtol=1e-12, atol=1e-12)


def test_inside_loops_and_branches():
    def run(x, k):
        def step(x, _):
            y = np.tanh(lax.conv_general_dilated(x, k, (1,), "SAME"))
            return y, lax.cond(np.sum(y) > 0, lambda: nn.max_pool(y.transpose((0, 2, 1)), (2,)).sum(), lambda: np.sum(y))
        return lax.scan(step, x, None, length=3)

    def plain(x, k):
        rows = []
        for _ in range(3):
            x = np.tanh(convolved(x, k, (1,), [(1, 1)], (1,), (1,)))
            pairs = np.maximum(x[..., 1:], x[..., :-1])
            rows.append(np.sum(pairs) if np.sum(x) > 0 else np.sum(x))
        return x, np.array(rows)
    f = lw.jit(run)
    slope = lw.jit(lw.grad(lambda x, k: np.sum(run(x, k)[0] ** 2) + np.sum(run(x, k)[1]), 1))
    for n in (5, 7):
        x, k = draw((2, 2, n)), draw((2, 2, 3), seed=1) * 0.7
        for got, want in zip(f(x, k), plain(x, k), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
        want = differences(lambda k, x=x: np.sum(plain(x, k)[0] ** 2) + np.sum(plain(x, k)[1]), k)
        np.testing.assert_allclose(slope(x, k), want, rtol=1e-5, atol=1e-7)
    assert f.compiles == 1 and slope.compiles == 1


# ---- transposed convolutions ------------------------------------------------------------------------
@ways
@pytest.mark.parametrize("stride, size, padding, apart", [(s, k, p, d) for s, k, p, d in itertools.product(
    (1, 2, 3), (1, 2, 3, 4), ("SAME", "VALID"), (1, 2)) if p == "VALID" or s <= (k - 1) * d + 1])
def test_conv_transpose_is_the_gradient_of_a_convolution(way, stride, size, padding, apart):
    """Of one from as many elements as conv_transpose makes."""
    y, kernel = draw((2, 4, 3)), draw((size, 2, 3), seed=1)
    layout = ("NHC", "HIO", "NHC")
    got = way(lambda y, k: lax.conv_transpose(y, k, (stride,), padding, (apart,), layout, transpose_kernel=True))(y, kernel)
    n = got.shape[1]
    assert n == 4 * stride if padding == "SAME" else n == 4 * stride + max((size - 1) * apart + 1 - stride, 0)
    pads = pads_of(padding, (n,), (size,), (stride,), (apart,))

    def loss(x):
        x, k = np.moveaxis(x, 2, 1), np.moveaxis(kernel, (2, 1), (0, 1))
        return np.sum(np.moveaxis(convolved(x, k, (stride,), pads, (1,), (apart,)), 1, 2)[:, :4] * y)
    np.testing.assert_allclose(got, differences(loss, np.zeros((2, n, 2)), 1.0), rtol=1e-9, atol=1e-9)


@examples(15)
@given(st.tuples(st.integers(1, 5), st.integers(1, 5)), st.tuples(st.integers(1, 4), st.integers(1, 4)),
       st.tuples(st.integers(1, 3), st.integers(1, 3)), st.sampled_from(["SAME", "VALID"]), st.integers(1, 3),
       st.integers(1, 18))
def test_slopes_of_transposed_convolutions_by_their_kernels(size, window, strides, padding, channels, features):
    """Channels last. What is summed over are the image's elements, not the zeros between them."""
    x, kernel = draw((2, *size, channels)), draw((*window, channels, features), seed=1)

    def made(kernel):
        return lax.conv_transpose(x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    ct = draw(made(kernel).shape, seed=2)
    f = lw.jit(lw.grad(lambda kernel: np.sum(made(kernel) * ct)))
    want = [np.sum(made(unit.reshape(kernel.shape)) * ct) for unit in np.eye(kernel.size)]
    np.testing.assert_allclose(f(kernel), np.reshape(want, kernel.shape), rtol=1e-9, atol=1e-9)


def test_the_slope_of_a_transposed_convolution_by_its_kernel_is_one_pass():
    x, kernel = draw((2, 5, 6, 3)).astype("f4"), draw((4, 4, 3, 7), seed=1).astype("f4")
    layout = ("NHWC", "HWIO", "NHWC")
    f = lw.jit(lw.grad(lambda x, k: np.sum(lax.conv_transpose(x, k, (2, 2), "SAME", dimension_numbers=layout) ** 2), 1))
    kernels = f.lower(x, kernel).kernels
    assert kernels.count("kernel_slopes(") == 1 and kernels.count("overlap_rows(") == 1  # the convolution itself


# ---- JAX ----------------------------------------------------------------------------------------------
@examples(25)
@given(convolutions(2))
def test_convolutions_are_jaxs(case):
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")
    left, right, s = case
    if not isinstance(s["padding"], str):  # JAX refuses to crop more than there is
        assume(all(-min(p) <= (n - 1) * d + 1 and -sum(p) <= (n - 1) * d + 1 and n
                   for n, d, p in zip(left[2:], s["lhs_dilation"], s["padding"], strict=True)))
    x, kernel = draw(left), draw(right, seed=1)
    with jax.enable_x64(True):
        def theirs(x, k):
            return jax.lax.conv_general_dilated(x, k, **s)
        want = theirs(x, kernel)
        np.testing.assert_allclose(lax.conv_general_dilated(x, kernel, **s), want, rtol=1e-11, atol=1e-11)
        got = lw.grad(lambda x, k: np.sum(lax.conv_general_dilated(x, k, **s) ** 3), (0, 1))(x, kernel)
        want = jax.grad(lambda x, k: jax.numpy.sum(theirs(x, k) ** 3), (0, 1))(x, kernel)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(0, 1), (2, 1)]], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("size", [(1, 2), (3, 2), (4, 5)], ids=str)
@pytest.mark.parametrize("consistent", [False, True])
def test_conv_transpose_is_jaxs(padding, strides, size, consistent):
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")
    x, kernel = draw((1, 4, 3, 2)), draw((*size, 2, 3), seed=1)
    with jax.enable_x64(True):
        for turn, apart in ((False, None), (False, (2, 1)), (True, None)):
            k = kernel if not turn else np.swapaxes(kernel, 2, 3)
            args = (strides, padding, apart, None, turn)
            want = jax.lax.conv_transpose(x, k, *args, use_consistent_padding=consistent)
            got = lax.conv_transpose(x, k, *args, use_consistent_padding=consistent)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)


# ---- errors -------------------------------------------------------------------------------------------
X, K = np.ones((2, 3, 8, 8)), np.ones((4, 3, 3, 3))


@pytest.mark.parametrize("f, error, message", [
    (lambda x: lax.conv(x, K[0], (1, 1), "SAME"), lw.ShapeError, "one rank.*got ranks 4 and 3"),
    (lambda x: lax.conv(x[:, :2], K, (1, 1), "SAME"), lw.ShapeError, "lhs has 2 features.*dimension_numbers"),
    (lambda x: lax.conv(x, K, (1, 1), "FULL"), lw.ArgumentError, r"'SAME', 'SAME_LOWER', 'VALID' or a pair .* got 'FULL'"),
    (lambda x: lax.conv(x, K, (1, 1), [(1, 1)]), lw.ArgumentError, r"a pair \(low, high\) for each of 2 axes"),
    (lambda x: lax.conv(x, K, (1,), "SAME"), lw.ShapeError, "window_strides must be 2 positive integers"),
    (lambda x: lax.conv(x, K, (1, 0), "SAME"), lw.ShapeError, "window_strides must be 2 positive integers"),
    (lambda x: lax.conv_general_dilated(x, K, (1, 1), "SAME", (2, 2)), lw.ArgumentError, "no meaning with lhs_dilation.*pairs"),
    (lambda x: lax.conv_general_dilated(x, K, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO")), lw.ArgumentError,
     "three strings"),
    (lambda x: lax.conv_general_dilated(x, K, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHHC")), lw.ArgumentError,
     "'NHHC'.*each spatial letter"),
    (lambda x: lax.conv_general_dilated(x, K[:, :1], (1, 1), "SAME", feature_group_count=2), lw.ShapeError,
     "lhs has . features, and must have .* 1, in each of 2 groups"),
    (lambda x: lax.conv_general_dilated(x, K[:, :1], (1, 1), "SAME", feature_group_count=3), lw.ShapeError,
     "4 output features cannot be split into 3 groups"),
    (lambda x: lax.conv_general_dilated(x, K, (1, 1), "SAME", feature_group_count=3, batch_group_count=2), lw.ArgumentError,
     "one of them must be 1"),
    (lambda x: lax.conv_general_dilated(x, K, (1, 1), "SAME", feature_group_count=0), lw.ArgumentError, "must be positive"),
    (lambda x: lax.conv_transpose(x[..., None, None], K[..., None, None], (1,) * 4, "SAME"), lw.ArgumentError,
     "pass dimension_numbers"),
], ids=range(14))
def test_errors_name_the_line_and_the_fix(f, error, message):
    for way in WAYS.values():
        with pytest.raises(error, match=message) as caught:
            way(f)(X)
        assert "test_convolutions.py:" in str(caught.value)


@pytest.mark.parametrize("shape, features, window, step", [
    ((1, 13, 13, 520), 33, 3, 1), ((1, 9, 20, 300), 33, 3, 2), ((1, 17, 90, 20), 70, 7, 1), ((2, 30, 100, 24), 40, 3, 1),
    ((3, 5, 4, 64), 96, 3, 1), ((1, 1, 1, 64), 64, 3, 1), ((2, 12, 11, 32), 48, 2, 1)])
def test_lines_of_images_that_windows_share(shape, features, window, step):
    """Some lines together, in stripes and parts of the terms: of images that are no multiple of those."""
    rng = np.random.default_rng(0)
    x, kernel = (rng.normal(size=size).astype("f4") for size in (shape, (window, window, shape[-1], features)))
    low = (window - 1) // 2
    pads = ((low, window - 1 - low),) * 2
    want = convolved(np.moveaxis(x, -1, 1).astype("f8"), np.moveaxis(kernel, (-1, -2), (0, 1)).astype("f8"), (step, step), pads,
                     (1, 1), (1, 1))
    for dynamic in (True, False):
        f = lw.jit(lambda x, kernel: lax.conv_general_dilated(x, kernel, (step, step), pads,
                                                              dimension_numbers=("NHWC", "HWIO", "NHWC")), dynamic=dynamic)
        np.testing.assert_allclose(f(x, kernel), np.moveaxis(want, 1, -1), rtol=0, atol=3e-6 * np.abs(want).max())
