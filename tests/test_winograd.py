"""Convolutions of windows of 3x3 in Winograd's form, which programs with fast_math have: against loops over every position."""
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
from tests.windows import convolved, draw

own = pytest.mark.skipif(not has_own(F32, host_target()), reason="there is no code of our own for products on this processor")
SAME = (1, 1), (1, 1)


def program(pads, layout="HWIO"):
    def f(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), pads, dimension_numbers=("NHWC", layout, "NHWC"))
    return f


def expected(x, kernel, pads):
    """In float64; and the sums of the absolute values, by which errors count."""
    x, kernel = np.moveaxis(x, -1, 1).astype("f8"), np.moveaxis(kernel, (-1, -2), (0, 1)).astype("f8")
    return [np.moveaxis(convolved(a, b, (1, 1), pads, (1, 1), (1, 1)), 1, -1)
            for a, b in ((x, kernel), (np.abs(x), np.abs(kernel)))]


def near(got, found, dtype):
    want, sizes = found
    assert got.shape == want.shape and got.dtype == dtype
    limit = 1e-5 if dtype == "f4" else 1e-14  # 2.6e-6 of float32 was the largest of normal numbers
    assert (np.abs(got - want) <= limit * np.abs(sizes).max(initial=1)).all()


@st.composite
def cases(draw):
    pads = tuple((draw(st.integers(-2, 3)), draw(st.integers(-2, 3))) for _ in range(2))
    sizes = [(draw(st.integers(0, 3)), draw(st.integers(4, 23)), draw(st.integers(4, 23)), draw(st.integers(8, 70)))
             for _ in range(2)]
    return pads, [(size, draw(st.integers(8, 70))) for size in sizes]


@own
@examples(20)
@example((SAME, [((2, 16, 16, 16), 64), ((1, 9, 13, 17), 130)]), "f4")
@example((((0, 0), (0, 0)), [((1, 18, 18, 8), 8), ((3, 10, 11, 100), 65)]), "f4")
@given(cases(), st.sampled_from(["f4", "f8"]))
def test_any_sizes(case, dtype):
    pads, sizes = case
    f = lw.jit(program(pads), fast_math=True)
    for size, features in sizes:  # the first compile serves both
        x, kernel = draw(size, dtype), draw((3, 3, size[-1], features), dtype, seed=1)
        near(f(x, kernel), expected(x, kernel, pads), dtype)
    assert f.compiles <= 2  # no images may be a rank of their own


@own
@pytest.mark.parametrize("layout", ["HWIO", "HWOI", "OIHW", "IHWO", "WHOI"])
def test_kernels_lie_in_memory_in_any_way(layout):
    x, kernel = draw((2, 13, 14, 19), "f4"), draw((3, 3, 19, 37), "f4", seed=1)
    given = np.ascontiguousarray(np.transpose(kernel, ["HWIO".index(k) for k in layout]))
    near(lw.jit(program(SAME, layout), fast_math=True)(x, given), expected(x, kernel, SAME), "f4")


def made(f, *args):
    text = str(lw.jit(f, fast_math=True, dynamic=False).lower(*args).module)
    return 'implementation="winograd"' in text


@own
def test_what_has_this_form():
    def f(strides=(1, 1), **settings):
        return lambda x, k: lax.conv_general_dilated(x, k, strides, SAME, dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                                     **settings)
    x, k = np.ones((1, 16, 16, 16), "f"), np.ones((3, 3, 16, 16), "f")
    assert made(f(), x, k)
    assert made(lambda x, k: np.maximum(f()(x, k) + 1, 0), x, k)
    assert not made(f(strides=(2, 2)), x, k) and not made(f(rhs_dilation=(2, 2)), x, k)
    assert not made(f(), x, k[:, :2]) and not made(f(), x, np.ones((5, 3, 16, 16), "f"))
    assert not made(f(), x[..., :4], k[:, :, :4]) and not made(f(), x, k[..., :4])
    assert not made(f(), x[:, :4, :4], k)  # few pixels
    assert f"{2 * 16 * 16 * 16 * 9 * 16} flops" in lw.jit(f(), fast_math=True, dynamic=False).explain(x, k)
    exact = lw.jit(f()).lower(x, k).module
    assert "winograd" not in str(exact)
    assert "winograd" in str(lw.jit(f(), fast_math=True).lower(x, k).module)  # chosen at the call


@own
def test_threads_change_nothing():
    x, kernel = draw((3, 40, 30, 24), "f4"), draw((3, 3, 24, 40), "f4", seed=1)
    first, *others = bits_of(program(SAME), x, kernel, fast_math=True)
    assert all(other == first for other in others)


@own
def test_what_follows_and_gradients():
    x, kernel, b = draw((2, 12, 15, 20), "f8"), draw((3, 3, 20, 33), "f8", seed=1), draw((33,), "f8", seed=2)

    def loss(x, kernel, b):
        return (np.maximum(program(SAME)(x, kernel) + b, 0) ** 2).sum()
    got = lw.jit(lw.grad(loss, (0, 1, 2)), fast_math=True)(x, kernel, b)
    want = lw.jit(lw.grad(loss, (0, 1, 2)))(x, kernel, b)
    for a, c in zip(got, want, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-11, atol=1e-11 * np.abs(c).max())


@own
def test_batches_and_text():
    x, kernel = draw((3, 2, 10, 11, 16), "f4"), draw((3, 3, 16, 24), "f4", seed=1)
    f = lw.jit(lw.vmap(program(SAME), (0, None)), fast_math=True)
    for got, one in zip(f(x, kernel), x, strict=True):
        near(got, expected(one, kernel, SAME), "f4")
    g = lw.jit(program(SAME), fast_math=True)
    np.testing.assert_array_equal(lw.parse(g.lower(x[0], kernel).module).compile()(x[0], kernel), g(x[0], kernel))


@own
def test_nothing_outside_is_read():
    """Infinite numbers around the arrays would show in all that is summed with them."""
    around = np.full(40_000, np.inf, "f4")
    x = around[100:100 + 2 * 9 * 10 * 18].reshape(2, 9, 10, 18)
    kernel = np.full(20_000, np.nan, "f4")[60:60 + 9 * 18 * 26].reshape(3, 3, 18, 26)
    x[...], kernel[...] = draw(x.shape, "f4"), draw(kernel.shape, "f4", seed=1)
    near(lw.jit(program(SAME), fast_math=True)(x, kernel), expected(x, kernel, SAME), "f4")
