"""Pooling and reductions over windows: against loops over every position in plain NumPy, and against JAX."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax, nn
from loopwright import numpy as lnp
from tests.scale import examples
from tests.windows import WAYS, differences, draw, pads_of, reduced, ways

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


@examples(60)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 2), st.integers(9, 80), st.sampled_from(sorted(OPS)),
       st.sampled_from(["f8", "f4", "i4", "u1"]))
def test_windows_of_rows(window, stride, pad, wide, name, dtype):
    """Images of one channel after another, as wide as several vectors."""
    function, init, plain = OPS[name]
    if np.dtype(dtype).kind != "f" and name in ("max", "min"):
        init = np.iinfo(dtype).min if name == "max" else np.iinfo(dtype).max
    x, pads = draw((2, 11, wide), dtype), [(0, 0), (pad, pad), (pad, pad)]
    sizes = (1, window, window), (1, stride, stride)
    got = lw.jit(lambda x: lax.reduce_window(x, init, function, *sizes, pads))(x)
    with np.errstate(over="ignore"):
        want = reduced(x, init, plain, *sizes, pads, (1,) * 3, (1,) * 3)
    np.testing.assert_allclose(got, want, rtol=1e-4 if dtype == "f4" else 1e-12, atol=1e-5)


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
X = np.ones((2, 3, 8, 8))


@pytest.mark.parametrize("f, error, message", [
    (lambda x: lax.reduce_window(x, 0.0, np.add, (2, 2)), lw.ShapeError, "window_dimensions must have one entry for each axis"),
    (lambda x: lax.reduce_window(x, 0.0, np.add, (1, 1, 0, 2)), lw.ShapeError, "at least one element"),
    (lambda x: lax.reduce_window(x, 0.0, np.subtract, (1, 1, 2, 2)), lw.ArgumentError, "must be a sum, product.*scan"),
    (lambda x: lax.reduce_window(x, x[0], np.add, (1, 1, 2, 2)), lw.ShapeError, "init_value must be a number"),
    (lambda x: nn.max_pool(x[0, 0, 0], (2, 2)), lw.ShapeError, "need an array of at least 3 axes"),
    (lambda x: nn.avg_pool(x, (2, 2), padding=[(0, 0)]), lw.ArgumentError, "for each of 4 axes"),
], ids=range(6))
def test_errors_name_the_line_and_the_fix(f, error, message):
    for way in WAYS.values():
        with pytest.raises(error, match=message) as caught:
            way(f)(X)
        assert "test_windows.py:" in str(caught.value)
