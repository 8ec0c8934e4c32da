"""Neighbours whose folds read alike are made at once: NumPy's values, whatever windows leave the array, and no more of them."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import ScheduleError
from loopwright.ir.schedule import Jam, from_json, to_json
from loopwright.lower.scheduling import build_nest
from tests.scale import examples
from tests.windows import convolved, draw, pads_of, reduced

LAST = ("NHWC", "HWIO", "NHWC")


def factors(f, *args):
    """How many positions each kernel of a function makes at once."""
    return [x.factor for k in lw.schedule(f, *args).kernels for x in k.schedule if isinstance(x, Jam)]


def jams(kernel):
    return any(isinstance(x, Jam) for x in kernel.schedule)


def depthwise(stride, padding, dilation):
    def f(x, w):
        return lax.conv_general_dilated(x, w, stride, padding, None, dilation, LAST, feature_group_count=x.shape[-1])
    return f


CONVOLUTIONS = [((1, 1), "SAME", (1, 1)), ((2, 3), "SAME_LOWER", (1, 2)), ((1, 2), "VALID", (2, 1)),
                ((1, 1), [(3, 0), (-1, 4)], (1, 2)), ((3, 1), [(0, -1), (2, 2)], (1, 1))]
DEPTHWISE = [lw.jit(depthwise(*settings)) for settings in CONVOLUTIONS]


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # sizes of 0 and 1 are programs of their own
@examples(25)
@given(st.integers(0, len(CONVOLUTIONS) - 1), st.integers(0, 2), st.integers(0, 9), st.integers(0, 23),
       st.sampled_from([1, 3, 16, 37, 80]), st.integers(1, 4), st.integers(1, 9), st.sampled_from(["f4", "f8"]))
def test_each_channel_by_itself(number, images, height, width, channels, high, wide, dtype):
    """One program of each setting for all sizes, of which some have no position whose window is whole."""
    stride, padding, dilation = CONVOLUTIONS[number]
    x, w = draw((images, height, width, channels), dtype), draw((high, wide, 1, channels), dtype, seed=1)
    pads = pads_of(padding, (height, width), (high, wide), stride, dilation)
    want = convolved(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), stride, pads, (1, 1), dilation, channels)
    got = DEPTHWISE[number](x, w)
    limit = 1e-5 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), rtol=limit, atol=limit)


@pytest.mark.parametrize("settings", CONVOLUTIONS[:2])
def test_a_rule_makes_neighbours_at_once(settings):
    x, w = draw((1, 9, 20, 40), "f4"), draw((3, 3, 1, 40), "f4")
    assert factors(depthwise(*settings), x, w)
    assert not factors(lambda x: np.sum(x, axis=1), draw((3, 4, 5)))  # nothing is read twice


def test_no_channels_are_no_vectors():
    f = lw.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 1, 1, 1), "SAME"), dynamic=False)
    assert f(np.ones((1, 3, 4, 0))).shape == (1, 3, 4, 0)


POOLS = {"largest": (lax.max, -np.inf, np.maximum), "sum": (lax.add, 0.0, np.add), "product": (lax.mul, 1.0, np.multiply)}
POOLED = {name: lw.jit(lambda x, f=f, start=start: lax.reduce_window(x, start, f, (1, 2, 3, 1), (1, 1, 2, 1), "SAME"))
          for name, (f, start, _) in POOLS.items()}


@examples(15)
@given(st.sampled_from(sorted(POOLS)), st.integers(0, 5), st.integers(0, 19), st.sampled_from([1, 2, 16, 35]))
def test_folds_over_windows(name, height, width, channels):
    x = draw((2, height, width, channels))
    pads = pads_of("SAME", x.shape, (1, 2, 3, 1), (1, 1, 2, 1), (1,) * 4)
    want = reduced(x, POOLS[name][1], POOLS[name][2], (1, 2, 3, 1), (1, 1, 2, 1), pads, (1,) * 4, (1,) * 4)
    np.testing.assert_allclose(POOLED[name](x), want, rtol=1e-12)


@pytest.mark.parametrize("factor", [2, 3, 5, 16])
def test_results_do_not_depend_on_how_many_are_made_at_once(factor):
    def convolution(x, w, b):
        y = depthwise((1, 1), "SAME", (1, 1))(x, w)
        return np.maximum(y + b, 0) * x
    s = lw.schedule(convolution, draw((1, 4, 30, 20)), draw((3, 3, 1, 20)), draw((20,)))
    next(k for k in s.kernels if jams(k)).jam(factor=factor)
    f, plain = s.compile(), lw.jit(convolution)
    for shape, window in (((1, 4, 30, 20), (3, 3)), ((2, 3, 1, 7), (2, 2)), ((1, 5, 17, 33), (1, 5)), ((1, 2, 9, 4), (9, 9))):
        x, w, b = draw(shape), draw((*window, 1, shape[-1]), seed=1), draw(shape[-1:], seed=2)
        np.testing.assert_array_equal(f(x, w, b), plain(x, w, b))


def test_products_that_a_user_sums_are_rounded_before():
    """Those of convolutions need not be."""
    x = np.array([[1 + 2.0 ** -12] * 40], "float32")
    rows = np.concatenate([x, -(x * x)])
    w = np.concatenate([x, np.ones_like(x)])
    np.testing.assert_array_equal(lw.jit(lambda x, w: np.sum(x * w, axis=0))(rows, w), np.zeros(40, "float32"))
    exact = np.sum(rows.astype("f8") * w.astype("f8"), axis=0)
    assert (exact != 0).all()  # a fused product shows it
    found = lw.jit(depthwise((1, 1), "VALID", (1, 1)))(rows[None, :, None], w[:, None, None])
    assert np.abs(found[0, 0, 0] - exact).max() <= np.abs(exact).max()


def test_what_cannot_be_made_at_once_is_refused():
    x, w = draw((1, 9, 20, 40), "f4"), draw((3, 3, 1, 40), "f4")
    kernel, = filter(jams, lw.schedule(depthwise((1, 1), "SAME", (1, 1)), x, w).kernels)
    assert from_json(to_json(kernel.schedule)) == kernel.schedule
    for factor in (0, 1, 17):
        with pytest.raises(ScheduleError, match=f"Jam\\(factor={factor}\\): 2 to 16 positions"):
            build_nest(kernel.region, (*kernel.schedule, Jam(factor)), "probe")
    s = lw.schedule(lambda x: x + 1, x)
    with pytest.raises(ScheduleError, match="no loop has a loop of vectors for its body"):
        s.kernel(0).jam(factor=2)
