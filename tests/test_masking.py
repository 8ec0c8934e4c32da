"""Blocks of products that masks leave out: NumPy's values at any sizes, for numbers that are not finite, too."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.schedule import Skip
from loopwright.lower.scheduling import build_nest
from tests.scale import examples
from tests.test_chains import nodes_of

NAMES = ("causal", "ahead", "behind", "window", "lengths", "turned", "linear", "unscaled", "finite", "near", "inverse")
LEFT_OUT = {"linear": 1, "inverse": 1}  # products of which blocks are left out: not both


def attention(name, xp):
    """One head of attention with a mask, or of what is like it, of any sizes."""
    def softmax(s):
        e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    def f(q, k, v, lengths):
        s = q @ xp.swapaxes(k, -1, -2)
        row, column = xp.arange(s.shape[-2])[:, None], xp.arange(s.shape[-1])
        match name:
            case "causal":
                return softmax(xp.where(column <= row, s, -np.inf)) @ v
            case "ahead":  # of some first rows everything is left out
                return softmax(xp.where(column < row - 40, s, -np.inf)) @ v
            case "behind":
                return softmax(xp.where(row <= column, s * 0.5, -np.inf)) @ v
            case "window":
                return softmax(xp.where((column <= row) & (row - column < 50), s, -np.inf)) @ v
            case "lengths":
                return softmax(xp.where(column < lengths[:, None, None], s, -np.inf)) @ v
            case "turned":
                return softmax(xp.where(column > row, -np.inf, s)) @ v
            case "linear":
                return xp.where(column <= row, s / (1 + xp.sum(s * s, axis=-1, keepdims=True)), 0) @ v
            case "unscaled":
                e = xp.exp(xp.where(column <= row, s, -np.inf))
                return (e / xp.sum(e, axis=-1, keepdims=True)) @ v
            case "finite":
                return softmax(xp.where(column <= row, s, -1e9)) @ v
            case "near":  # of some rows what stands for nothing is the greatest
                return softmax(xp.where(column <= row, s * 100, -800.0)) @ v
            case "inverse":
                e = xp.exp(xp.where(column <= row, s, -np.inf))
                return (e * (1 / xp.sum(e, axis=-1, keepdims=True))) @ v
    return f


def operands(rng, sizes, dtype="float64"):
    b, t, n, d = sizes
    x = [rng.normal(size=(b, m, d)).astype(dtype) for m in (t, n, n)]
    return [*x, rng.integers(0, n + 1, b)]


def agree(f, expected, tolerance=1e-9):
    np.testing.assert_array_equal(np.isnan(f), np.isnan(expected))
    np.testing.assert_allclose(f, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_left_out(name):
    args = operands(np.random.default_rng(0), (2, 300, 400, 16))
    kernels = [n for n in nodes_of(attention(name, lw.numpy), *args) if "schedule" in n.attrs]
    assert sum(isinstance(x, Skip) for n in kernels for x in n.attrs["schedule"]) == LEFT_OUT.get(name, 2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(sizes=st.tuples(st.integers(1, 3), st.integers(1, 330), st.integers(1, 330), st.integers(1, 40)),
       seed=st.integers(0, 99), odd=st.sampled_from([None, np.nan, np.inf, -np.inf, 1e308]), which=st.integers(0, 2))
@examples(8)
def test_the_values_of_numpy(name, sizes, seed, odd, which):
    rng = np.random.default_rng(seed)
    args = operands(rng, sizes)
    if odd is not None:
        args[which][tuple(rng.integers(n) for n in args[which].shape)] = odd
    agree(FUNCTIONS[name](*args), attention(name, np)(*args))


FUNCTIONS = {name: lw.jit(attention(name, lw.numpy)) for name in NAMES}


@pytest.mark.parametrize("name", [x for x in NAMES if x != "ahead"])
@given(sizes=st.tuples(*[st.integers(1, n) for n in (2, 200, 200, 20)]), seed=st.integers(0, 99))
@examples(4)
def test_gradients(name, sizes, seed):
    """Along one direction, against differences of NumPy's values."""
    rng = np.random.default_rng(seed)
    b, t, n, d = sizes
    *args, lengths = operands(rng, (b, min(t, n), n, d))  # each row has columns
    lengths = np.maximum(lengths, 1)
    along = [rng.normal(size=x.shape) for x in args]
    slope = sum(np.sum(g * y) for g, y in zip(GRADIENTS[name](*args, lengths), along, strict=True))
    ends = [np.sum(np.sin(attention(name, np)(*[x + step * y for x, y in zip(args, along, strict=True)], lengths)))
            for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-4)


def gradient(name):
    f = attention(name, lw.numpy)
    return lw.jit(lw.grad(lambda q, k, v, lengths: lw.numpy.sum(lw.numpy.sin(f(q, k, v, lengths))), argnums=(0, 1, 2)))


GRADIENTS = {name: gradient(name) for name in NAMES}


def test_gradients_leave_blocks_out():
    args = operands(np.random.default_rng(0), (2, 300, 400, 16))
    found = [sum(isinstance(x, Skip) for x in n.attrs["schedule"]) for n in nodes_of(GRADIENTS["causal"], *args)
             if "schedule" in n.attrs]
    assert max(found) == 4  # all but the product that gives gradients of factors which are zero


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("odd", [None, np.inf, np.nan])
def test_rows_that_are_not_numbers(odd):
    """They make all columns' gradients NaN, those of blocks that are left out, too."""
    *args, lengths = operands(np.random.default_rng(0), (1, 200, 200, 8))
    if odd is not None:
        args[0][0, 20, 0] = odd
    found = GRADIENTS["causal"](*args, lengths)[2]
    assert np.isnan(found).all() == (odd is not None) and np.isnan(found).any() == (odd is not None)


def test_the_attention_of_nn():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 200, 3, 16)) for _ in range(3))
    for options in ({"is_causal": True}, {"local_window_size": 30}, {"key_value_seq_lengths": np.array([40, 170])}):
        f = lw.jit(lambda q, k, v, options=options: lw.nn.dot_product_attention(q, k, v, **options))
        assert sum(isinstance(x, Skip) for n in nodes_of(f, q, k, v) for x in n.attrs.get("schedule", ())) == 2
        row, column = np.arange(200)[:, None], np.arange(200)
        kept = {"is_causal": column <= row, "local_window_size": abs(row - column) <= 30,
                "key_value_seq_lengths": column < np.array([40, 170])[:, None, None, None]}[next(iter(options))]
        s = np.where(kept, np.einsum("bthd,bshd->bhts", q, k) / 4, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        expected = np.einsum("bhts,bshd->bthd", e / e.sum(-1, keepdims=True), v)
        np.testing.assert_allclose(f(q, k, v), expected, rtol=1e-9, atol=1e-9)


def test_threads():
    args = operands(np.random.default_rng(3), (3, 500, 700, 24), "float32")
    found = []
    try:
        for threads in (1, 2):
            lw.set_threads(threads)
            found.append(FUNCTIONS["causal"](*args))
    finally:
        lw.set_threads(None)
    np.testing.assert_array_equal(*found)


def test_a_product_without_a_mask_has_no_such_blocks():
    def f(q, k, v):
        s = q @ lw.numpy.swapaxes(k, -1, -2)
        return (s / (1 + lw.numpy.sum(s * s, axis=-1, keepdims=True))) @ v
    node, = nodes_of(f, *[np.ones((2, 300, 16))] * 3)
    with pytest.raises(ScheduleError, match="no mask leaves out blocks"):
        build_nest(node.regions[0], (*node.attrs["schedule"], Skip(0)), "probe")
    with pytest.raises(ScheduleError, match="there is no such product"):
        build_nest(node.regions[0], (*node.attrs["schedule"], Skip(1)), "probe")
