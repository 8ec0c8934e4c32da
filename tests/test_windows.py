"""Convolutions, pooling and reductions over windows: against loops over every position in plain NumPy, and against JAX."""
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax, nn
from loopwright import numpy as lnp
from tests.scale import examples


def draw(shape, dtype="f8", seed=0):
    rng = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -4, 5, shape).astype(dtype)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype.kind == "c" else x).astype(dtype)


# ---- an independent meaning -------------------------------------------------------------------------
def pads_of(padding, sizes, windows, strides, dilation):
    """Pairs of pads, by XLA's definitions."""
    if not isinstance(padding, str):
        return list(padding)
    out = []
    for n, w, s, d in zip(sizes, windows, strides, dilation, strict=True):
        if padding == "VALID":
            out.append((0, 0))
            continue
        total = max((-(-n // s) - 1) * s + (w - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        out.append((small, large) if padding == "SAME" else (large, small))
    return out


def spread(x, base, pads, value):
    """x with value between its elements and around it; negative pads crop."""
    for a, (b, (low, high)) in enumerate(zip(base, pads, strict=True)):
        n = x.shape[a]
        line = np.full((*x.shape[:a], (n - 1) * b + 1 if n else 0, *x.shape[a + 1:]), value, x.dtype)
        line[(slice(None),) * a + (slice(None, None, b),)] = x
        full = [(0, 0)] * x.ndim
        full[a] = (max(low, 0), max(high, 0))
        x = np.pad(line, full, constant_values=value)
        keep = slice(max(-low, 0), max(x.shape[a] - max(-high, 0), max(-low, 0)))
        x = x[(slice(None),) * a + (keep,)]
    return x


def counts(x, windows, strides, dilation):
    return [max((n - ((w - 1) * d + 1)) // s + 1, 0) for n, w, s, d in zip(x.shape, windows, strides, dilation, strict=True)]


def reduced(x, init, f, windows, strides, pads, base, dilation):
    """One window after another."""
    x = spread(x, base, pads, init)
    out = np.zeros(counts(x, windows, strides, dilation), x.dtype)
    for at in np.ndindex(*out.shape):
        total = x.dtype.type(init)
        for k in np.ndindex(*windows):
            total = f(total, x[tuple(i * s + j * d for i, s, j, d in zip(at, strides, k, dilation, strict=True))])
        out[at] = total
    return out


def convolved(x, kernel, strides, pads, lhs_dilation, rhs_dilation, features=1, batches=1):
    """conv_general_dilated of x[n, c, *space] with kernel[o, i, *space], one position after another."""
    if batches > 1:
        parts = zip(np.split(x, batches, 0), np.split(kernel, batches, 0), strict=True)
        return np.concatenate([convolved(a, b, strides, pads, lhs_dilation, rhs_dilation) for a, b in parts], 1)
    if features > 1:
        parts = zip(np.split(x, features, 1), np.split(kernel, features, 0), strict=True)
        return np.concatenate([convolved(a, b, strides, pads, lhs_dilation, rhs_dilation) for a, b in parts], 1)
    x = spread(x, (1, 1, *lhs_dilation), [(0, 0), (0, 0), *pads], 0)
    window = kernel.shape[2:]
    space = counts(x, (1, 1, *window), (1, 1, *strides), (1, 1, *rhs_dilation))[2:]
    out = np.zeros((x.shape[0], kernel.shape[0], *space), x.dtype)
    for at in np.ndindex(*space):
        for k in np.ndindex(*window):
            place = tuple(i * s + j * d for i, s, j, d in zip(at, strides, k, rhs_dilation, strict=True))
            out[(..., *at)] += x[(..., *place)] @ kernel[(..., *k)].T
    return out


# ---- convolutions: values ---------------------------------------------------------------------------
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


WAYS = {"plain": lambda f: f, "jit": lw.jit}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


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


# ---- convolutions: derivatives ----------------------------------------------------------------------
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


def differences(f, x, step=1e-5):
    rows = np.eye(x.size).reshape(x.size, *x.shape) * step
    return np.reshape([(f(x + h) - f(x - h)) / (2 * step) for h in rows], x.shape)


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


# ---- convolutions: batches and loops ----------------------------------------------------------------
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


# ---- reductions over windows ------------------------------------------------------------------------
OPS = {"add": (np.add, 0, lambda a, b: a + b), "mul": (np.multiply, 1, lambda a, b: a * b), "max": (np.maximum, -np.inf, max),
       "min": (np.minimum, np.inf, min)}


@st.composite
def reductions(draw):
    rank = draw(st.integers(0, 3))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    padding = draw(st.sampled_from(["pairs", "SAME", "SAME_LOWER", "VALID"]))
    base = each(1, 2) if padding == "pairs" else (1,) * rank
    if padding == "pairs":
        padding = [(draw(st.integers(-2, 3)), draw(st.integers(-2, 3))) for _ in range(rank)]
    return each(0, 5), {"window_dimensions": each(1, 3), "window_strides": each(1, 3), "padding": padding,
                        "base_dilation": base, "window_dilation": each(1, 2)}


def looped(x, init, f, s):
    settings = s["window_dimensions"], s["window_strides"]
    pads = pads_of(s["padding"], x.shape, *settings, s["window_dilation"])
    return reduced(x, init, f, *settings, pads, s["base_dilation"], s["window_dilation"])


@examples(60)
@given(reductions(), st.sampled_from(sorted(OPS)), st.sampled_from(["f8", "f4", "i4", "u1"]), st.booleans(), st.booleans())
def test_reductions_are_loops(case, name, dtype, is_identity, compiled):
    """The initial value, whatever it is, stands where a window reaches past the array."""
    shape, s = case
    function, init, plain = OPS[name]
    x = draw(shape, dtype)
    if name in ("max", "min") and np.dtype(dtype).kind in "iu":
        init = np.iinfo(dtype).min if name == "max" else np.iinfo(dtype).max
    if not is_identity:
        init = 2
    f = WAYS["jit" if compiled and sum(map(len, s)) % 3 == 0 else "plain"](lambda x: lax.reduce_window(x, init, function, **s))
    with np.errstate(over="ignore"):
        got, want = f(x), looped(x, init, plain, s)
    assert got.dtype == x.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "f4" else 1e-12)


@ways
def test_bools_halves_and_complex_numbers(way):
    x = draw((3, 5)) > 0.3
    wide = np.lib.stride_tricks.sliding_window_view(x, (2, 2))
    for function, init, reduce in ((np.logical_or, False, np.any), (np.logical_and, True, np.all), (np.maximum, False, np.any)):
        got = way(lambda x, f=function, init=init: lax.reduce_window(x, init, f, (2, 2)))(x)
        assert got.dtype == bool
        np.testing.assert_array_equal(got, reduce(wide, (2, 3)))
    for dtype in ("f2", ml_dtypes.bfloat16):
        x = draw((40,), dtype)
        got = way(lambda x: lax.reduce_window(x, 0, np.add, (20,), (20,)))(x)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, np.sum(x.astype("f4").reshape(2, 20), 1).astype(x.dtype))
    z = draw((6,), "c16")
    np.testing.assert_allclose(way(lambda z: lax.reduce_window(z, 0, np.add, (3,)))(z), np.convolve(z, np.ones(3), "valid"))


@ways
def test_nan_is_kept(way):
    x = np.array([1.0, np.nan, 3.0, 2.0, 5.0])
    np.testing.assert_array_equal(way(lambda x: lax.reduce_window(x, -np.inf, np.maximum, (2,)))(x), [np.nan, np.nan, 3, 5])
    np.testing.assert_array_equal(way(lambda x: lax.reduce_window(x, 0.0, np.maximum, (2,)))(x), [np.nan, np.nan, 3, 5])
    empty = way(lambda x: lax.reduce_window(x, -np.inf, np.maximum, (2,), padding=[(2, 0)]))(x[:1])
    np.testing.assert_array_equal(empty, [-np.inf, 1.0])


def test_computations_by_any_name():
    x = draw((5,))
    for f in (np.add, lnp.add, lambda a, b: a + b, lambda a, b: b + a):
        np.testing.assert_allclose(lax.reduce_window(x, 0.0, f, (2,)), x[1:] + x[:-1])
    init = lw.jit(lambda x, start: lax.reduce_window(x, start, np.add, (2,)))
    np.testing.assert_allclose(init(x, 3.0), x[1:] + x[:-1] + 3.0)


def test_reductions_of_all_sizes_compile_once():
    f = lw.jit(lambda x, w: lax.reduce_window(x, -np.inf, np.maximum, (1, w.shape[0]), (1, 2), "SAME"))
    for n, m, w in ((3, 9, 2), (2, 8, 3), (5, 13, 4)):
        x = draw((n, m))
        pads = pads_of("SAME", (n, m), (1, w), (1, 2), (1, 1))
        np.testing.assert_array_equal(f(x, np.zeros(w)), reduced(x, -np.inf, max, (1, w), (1, 2), pads, (1, 1), (1, 1)))
    assert f.compiles == 1


REDUCTIONS = {
    "add": (np.add, 0.0, ((4, 5), (2, 3), (1, 2), "SAME", (1, 1), (1, 1))),
    "mul": (np.multiply, 1.0, ((6,), (3,), (2,), [(1, 2)], (1,), (1,))),
    "max": (np.maximum, -np.inf, ((4, 5), (2, 2), (1, 2), "VALID", (1, 1), (2, 1))),
    "min": (np.minimum, np.inf, ((7,), (3,), (2,), [(2, -1)], (2,), (2,))),
    "floor": (np.maximum, 0.1, ((6,), (2,), (1,), "SAME", (1,), (1,))),
    "factor": (np.multiply, 3.0, ((2, 3), (2, 2), (1, 1), "SAME", (1, 1), (1, 1))),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_of_reductions_are_differences(name):
    function, init, (shape, *settings) = REDUCTIONS[name]
    x, d = draw(shape), draw(shape, seed=1)

    def f(x):
        return lax.reduce_window(x, init, function, *settings)

    def loss(x):
        y = f(x)
        return np.sum(np.where(np.isfinite(y), np.sin(y), 0.0))
    gradient = lw.jit(lw.grad(loss))
    np.testing.assert_allclose(gradient(x), differences(loss, x), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(lw.jvp(loss, (x,), (d,))[1], np.sum(gradient(x) * d), rtol=1e-11)
    second = lw.jit(lambda x: lw.jvp(lw.grad(loss), (x,), (d,))[1])(x)
    np.testing.assert_allclose(second, (gradient(x + 1e-6 * d) - gradient(x - 1e-6 * d)) / 2e-6, rtol=1e-5, atol=1e-7)
    rows = draw((3, *shape), seed=2)
    np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(loss)))(rows), [gradient(r) for r in rows], rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(lw.vmap(f, -1, 0)(np.moveaxis(rows, 0, -1)), [f(r) for r in rows])


@ways
def test_the_first_of_equal_elements_has_the_derivative(way):
    x = np.array([1.0, 2.0, 2.0, 2.0, 0.0])
    got = way(lw.grad(lambda x: np.sum(lax.reduce_window(x, -np.inf, np.maximum, (3,)) * np.array([1.0, 10.0, 100.0]))))(x)
    np.testing.assert_array_equal(got, [0, 11, 100, 0, 0])
    got = way(lw.grad(lambda x: np.sum(nn.min_pool(x[:, None], (2,), (2,)))))(np.array([3.0, 3.0, 1.0, 2.0]))
    np.testing.assert_array_equal(got, [1, 0, 1, 0])


# ---- pooling ----------------------------------------------------------------------------------------
@ways
@pytest.mark.parametrize("padding", ["VALID", "SAME", [(1, 0), (0, 2)]], ids=str)
@pytest.mark.parametrize("strides", [None, (2, 1)], ids=str)
def test_pooling_is_loops(way, padding, strides):
    x = draw((2, 5, 6, 3))
    window, by = (1, 2, 3, 1), (1, *(strides or (1, 1)), 1)
    pads = pads_of(padding, x.shape, window, by, (1,) * 4) if isinstance(padding, str) else [(0, 0), *padding, (0, 0)]

    def plain(init, f, x=x):
        return reduced(x, init, f, window, by, pads, (1,) * 4, (1,) * 4)
    total = plain(0.0, lambda a, b: a + b)
    number = plain(0.0, lambda a, b: a + b, np.ones_like(x))
    args = ((2, 3), strides, padding)
    np.testing.assert_array_equal(way(lambda x: nn.max_pool(x, *args))(x), plain(-np.inf, max))
    np.testing.assert_array_equal(way(lambda x: nn.min_pool(x, *args))(x), plain(np.inf, min))
    np.testing.assert_allclose(way(lambda x: nn.avg_pool(x, *args))(x), total / 6, rtol=1e-12)
    np.testing.assert_allclose(way(lambda x: nn.avg_pool(x, *args, count_include_pad=False))(x), total / number, rtol=1e-12)
    products = way(lambda x: nn.pool(x, 1.0, np.multiply, *args))(x)
    np.testing.assert_allclose(products, plain(1.0, lambda a, b: a * b), rtol=1e-12)
    np.testing.assert_array_equal(way(lambda x: nn.max_pool(x[0], *args))(x), plain(-np.inf, max)[0])


@ways
def test_pooling_of_integers_and_several_batch_axes(way):
    x = draw((2, 3, 6, 2), "i4")
    want = x.reshape(2, 3, 3, 2, 2)
    got = way(lambda x: nn.max_pool(x, (2,), (2,)))(x)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want.max(3))
    mean = way(lambda x: nn.avg_pool(x, (2,), (2,)))(x)
    assert mean.dtype == np.float64
    np.testing.assert_array_equal(mean, want.mean(3))
    np.testing.assert_array_equal(way(lambda x: nn.max_pool(x, (2,), (2,)))(x[:0]), want.max(3)[:0])


def network(x, weights):
    """A small image network: convolutions, both kinds of pooling, a dense layer."""
    layout = ("NHWC", "HWIO", "NHWC")
    x = np.tanh(lax.conv_general_dilated(x, weights["first"], (1, 1), "SAME", dimension_numbers=layout))
    x = nn.max_pool(x, (2, 2), (2, 2))
    x = np.tanh(lax.conv_general_dilated(x, weights["second"], (1, 1), "VALID", dimension_numbers=layout))
    x = nn.avg_pool(x, (2, 2), (1, 1))
    return np.mean(x, axis=(1, 2)) @ weights["dense"]


def test_a_network_compiles_once_for_all_images():
    weights = {"first": draw((3, 3, 2, 4)), "second": draw((2, 2, 4, 3), seed=1), "dense": draw((3, 2), seed=2)}

    def loss(weights, x):
        return np.sum(network(x, weights) ** 2)
    gradient = lw.jit(lw.grad(loss))
    for n, h, w in ((1, 8, 8), (2, 9, 12), (3, 10, 7)):
        x = draw((n, h, w, 2))
        found = gradient(weights, x)
        for name, at in (("first", (1, 2, 0, 3)), ("second", (0, 1, 3, 2)), ("dense", (1, 1))):
            step = np.zeros_like(weights[name])
            step[at] = 1e-5
            up, down = ({**weights, name: weights[name] + k * step} for k in (1, -1))
            np.testing.assert_allclose(found[name][at], (loss(up, x) - loss(down, x)) / 2e-5, rtol=1e-5, atol=1e-8)
    assert gradient.compiles == 1


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


@examples(25)
@given(reductions(), st.sampled_from(sorted(OPS)))
def test_reductions_are_jaxs(case, name):
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")
    shape, s = case
    x = draw(shape)
    theirs = {"add": jax.lax.add, "mul": jax.lax.mul, "max": jax.lax.max, "min": jax.lax.min}[name]
    init = float(OPS[name][1])
    with jax.enable_x64(True):
        def f(x):
            return jax.lax.reduce_window(x, init, theirs, **s)
        np.testing.assert_allclose(lax.reduce_window(x, init, OPS[name][0], **s), f(x), rtol=1e-12)


@pytest.mark.parametrize("shape, settings", [
    ((6, 7), ((2, 3), (1, 2), "VALID")), ((6, 7), ((3, 2), (2, 2), "SAME")), ((9,), ((3,), (1,), [(1, 2)])),
    ((2, 8, 3), ((1, 2, 1), (1, 2, 1), "SAME")), ((7,), ((2,), (3,), "SAME_LOWER")),
], ids=str)
@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_gradients_of_reductions_are_jaxs(name, shape, settings):
    """Ties included: of zeros and ones."""
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")
    theirs = {"add": jax.lax.add, "max": jax.lax.max, "min": jax.lax.min}[name]
    function, init, _ = OPS[name]
    with jax.enable_x64(True):
        for x in (draw(shape), np.round(draw(shape))):
            want = jax.grad(lambda x: jax.numpy.sum(jax.numpy.cos(jax.lax.reduce_window(x, float(init), theirs, *settings))))(x)
            got = lw.grad(lambda x: np.sum(np.cos(lax.reduce_window(x, init, function, *settings))))(x)
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


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
    (lambda x: lax.reduce_window(x, 0.0, np.add, (2, 2)), lw.ShapeError, "window_dimensions must have one entry for each axis"),
    (lambda x: lax.reduce_window(x, 0.0, np.add, (1, 1, 0, 2)), lw.ShapeError, "at least one element"),
    (lambda x: lax.reduce_window(x, 0.0, np.subtract, (1, 1, 2, 2)), lw.ArgumentError, "must be a sum, product.*scan"),
    (lambda x: lax.reduce_window(x, x[0], np.add, (1, 1, 2, 2)), lw.ShapeError, "init_value must be a number"),
    (lambda x: nn.max_pool(x[0, 0, 0], (2, 2)), lw.ShapeError, "need an array of at least 3 axes"),
    (lambda x: nn.avg_pool(x, (2, 2), padding=[(0, 0)]), lw.ArgumentError, "for each of 4 axes"),
], ids=range(20))
def test_errors_name_the_line_and_the_fix(f, error, message):
    for way in WAYS.values():
        with pytest.raises(error, match=message) as caught:
            way(f)(X)
        assert "test_windows.py:" in str(caught.value)
