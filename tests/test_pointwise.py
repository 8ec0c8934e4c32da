"""Convolutions with windows of one element, features last, and their gradients: products of the elements at every step."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.ops.control import scan
from loopwright.ir.ops.convolution import conv
from loopwright.ir.ops.windows import windows
from loopwright.lower.convolution_ops import one_group
from loopwright.lower.preparation import prepare

RNG = np.random.default_rng(7)


def convolved(padding, strides):
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def by_hand(x, w, padding, strides):
    if not isinstance(padding, str):
        x = np.pad(x, ((0, 0), *padding, (0, 0)))
    return x[:, ::strides[0], ::strides[1]] @ w[0, 0]


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("padding", ["SAME", "VALID", [(0, 0), (0, 0)], [(0, 3), (0, 1)], [(2, 0), (1, 1)]])
def test_any_sizes_and_slopes(padding, strides):
    f = lw.jit(convolved(padding, strides))
    slopes = lw.jit(lw.grad(lambda x, w, c: np.sum(convolved(padding, strides)(x, w) * c), (0, 1)))
    for n, height, width, features, made in ((2, 7, 8, 5, 3), (1, 8, 7, 33, 20), (3, 2, 2, 2, 4), (0, 4, 5, 3, 2)):
        x, w = RNG.normal(size=(n, height, width, features)), RNG.normal(size=(1, 1, features, made))
        expected = by_hand(x, w, padding, strides)
        np.testing.assert_allclose(f(x, w), expected, rtol=1e-12, atol=1e-12)
        c = RNG.normal(size=expected.shape)
        dx, dw = slopes(x, w, c)
        dy, dv = RNG.normal(size=x.shape), RNG.normal(size=w.shape)
        along = np.sum(by_hand(dy, w, padding, strides) * c) + np.sum(by_hand(x, dv, padding, strides) * c)
        np.testing.assert_allclose(np.sum(dx * dy) + np.sum(dw * dv), along, rtol=1e-9, atol=1e-9)
    if padding in ("SAME", "VALID"):
        assert f.compiles == 1


def test_elements_between_steps_are_not_read():
    x, w = np.full((1, 5, 4, 3), np.nan, "float32"), RNG.normal(size=(1, 1, 3, 2)).astype("float32")
    x[:, ::2, ::2] = RNG.normal(size=(1, 3, 2, 3))
    np.testing.assert_allclose(lw.jit(convolved("SAME", (2, 2)))(x, w), by_hand(x, w, "SAME", (2, 2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_it_is_a_product_without_windows(padding):
    x, w = np.ones((2, 5, 6, 3)), np.ones((1, 1, 3, 4))
    f = convolved(padding, (2, 2))
    for program in (f, lw.grad(lambda x, w: np.sum(f(x, w) ** 2), (0, 1))):
        g = prepare(lw.make_graph(program)(x, w), blas=True)
        assert not {windows, one_group, conv, scan} & {n.op for n in g.nodes}


def test_a_window_as_large_as_the_image():
    """One for each image: a product over all of its elements."""
    f = lw.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    for height, width, features, made in ((3, 4, 5, 6), (2, 7, 1, 33), (2, 2, 18, 2)):
        x, w = RNG.normal(size=(3, height, width, features)), RNG.normal(size=(height, width, features, made))
        np.testing.assert_allclose(f(x, w)[:, 0, 0], np.einsum("nyxc,yxco->no", x, w), rtol=1e-11, atol=1e-11)
