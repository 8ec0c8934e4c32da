"""Channels in groups: what is computed of an array with a divided last axis is computed of the array as it was."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples


def normalised(x, scale, shift, groups):
    y = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    axes = (*range(1, y.ndim - 2), y.ndim - 1)
    y = (y - np.mean(y, axes, keepdims=True)) / np.sqrt(np.var(y, axes, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * scale + shift


def groups_of(x, groups):
    return x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)


PROGRAMS = {
    "normalised": lambda x, s: normalised(x, s, s - 1, 2),
    "a maximum of each group": lambda x, s: groups_of(x, 2) - np.max(groups_of(x, 2), (1, 2, 4), keepdims=True),
    "a fold of what was not mapped": lambda x, s: np.min(groups_of(x, 2), (2, 4)),
    "folds over groups, and both": lambda x, s: [np.sum(groups_of(x, 2) * s[0], axes) for axes in ((1, 3), (1, 3, 4))],
    "a factor for each group": lambda x, s: (groups_of(x, 2) * s[:2, None]).reshape(x.shape) + s,
    "a factor for each place in a group": lambda x, s: np.sum(groups_of(x, 2) * s[:x.shape[-1] // 2], (2, 4)),
    "two arrays": lambda x, s: np.sum(groups_of(x, 2) * groups_of(x + s, 2), (0, 1, 4)),
    "turned": lambda x, s: np.transpose(groups_of(x, 2) - np.mean(groups_of(x, 2), (1, 2, 4), keepdims=True)),
    "a mean of each group of each pixel": lambda x, s: groups_of(x, 2) - np.mean(groups_of(x, 2), 4, keepdims=True),
}
JITTED = {name: lw.jit(f) for name, f in PROGRAMS.items()}
SLOPES = {name: lw.jit(lw.grad(lambda x, s, f=f: sum(np.sum(np.sin(y)) for y in lw.tree.leaves(f(x, s)))))
          for name, f in PROGRAMS.items()}


def arguments(n, h, w, half, dtype="f8"):
    rng = np.random.default_rng([n, h, w, half])
    return rng.normal(size=(n, h, w, 2 * half)).astype(dtype), rng.normal(size=2 * half).astype(dtype)


@examples(40)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 20))
def test_channels_in_groups_have_numpys_values(name, n, h, w, half):
    x, s = arguments(n, h, w, half)
    for got, want in zip(lw.tree.leaves(JITTED[name](x, s)), lw.tree.leaves(PROGRAMS[name](x, s)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_their_gradients_are_those_of_differences(name):
    x, s = arguments(2, 3, 4, 3)
    d, step = np.random.default_rng(0).normal(size=x.shape), 1e-6

    def f(x):
        return sum(np.sum(np.sin(y)) for y in lw.tree.leaves(PROGRAMS[name](x, s)))
    expected = (f(x + step * d) - f(x - step * d)) / (2 * step)
    np.testing.assert_allclose(np.sum(SLOPES[name](x, s) * d), expected, rtol=1e-5, atol=1e-7)


def written(f, *args):
    """The shapes of what kernels write."""
    text = f.lower(*args).kernels
    return [line.split(" = kernel(")[0].split(": ", 1)[1] for line in text.splitlines() if " = kernel(" in line]


def test_a_normalisation_in_groups_goes_through_the_array_three_times_and_writes_it_once():
    x, s = arguments(2, 3, 4, 16, "f4")
    f = lw.jit(lambda x, scale, shift: normalised(x, scale, shift, 4))
    shapes = written(f, x, s, s)
    assert len(shapes) == 5
    assert [shape for shape in shapes if "m" in shape] == ["f32[n, m, k, p]"]


def test_what_each_pixel_folds_of_its_own_is_left_in_groups():
    """A mean over a group's channels alone is a row's, whose elements lie side by side."""
    x, s = arguments(2, 3, 4, 16, "f4")
    assert written(JITTED["a mean of each group of each pixel"], x, s) == ["f32[n, m, k, 2, floordiv(p, 2)]"]


def test_means_of_halves_are_rounded_once():
    x = np.full((1, 40, 50, 8), 1.001, "f2")
    f = lw.jit(lambda x: np.sum(groups_of(x, 2), (1, 2, 4)))
    np.testing.assert_array_equal(f(x), np.sum(groups_of(x, 2).astype("f4"), (1, 2, 4)).astype("f2"))


def test_what_a_map_reads_of_repeated_channels_is_written_for_each_channel_alone():
    def f(x, s):
        return x * np.repeat(s, 2, 1)[:, None]
    x, s = np.ones((3, 5, 8), "f4"), np.arange(12, dtype="f4").reshape(3, 4)
    program = lw.jit(f)
    np.testing.assert_array_equal(program(x, s), f(x, s))
    assert sorted(shape.count(",") for shape in written(program, x, s)) == [2, 2]


def test_groups_are_divided_again():
    """Of what is mapped in groups, parts of each group are mapped, too."""
    def f(x, s):
        y = groups_of(x, 2) - np.mean(groups_of(x, 2), (1, 2, 4), keepdims=True)
        z = groups_of(y, 3)
        return np.sum(z * s[:3, None] - np.mean(z, (1, 2, 5), keepdims=True), (1, 2, 5)), z * s[:3, None]
    x, s = arguments(2, 3, 4, 6)
    for got, want in zip(lw.jit(f)(x, s), f(x, s), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
