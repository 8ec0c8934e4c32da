"""Reshapes below the maps and folds that read them: what has only been moved is not stored for these."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.dims import symbol
from loopwright.lower.sinking import _alike
from tests.scale import examples

FOLDS = {
    "sum of a repeat": lambda x: np.sum(np.repeat(x, 2, 0) * 3), "rows of a repeat": lambda x: np.sum(np.repeat(x, 3, 1), 1),
    "columns of a repeat": lambda x: np.max(np.repeat(x, 2, 0) + 1, 0),
    "any of a tile": lambda x: np.any(np.tile(x, (2, 3)) > 2),
    "squares": lambda x: np.sum(np.repeat(x, 2, 1) ** 2), "mean of a tile": lambda x: np.mean(np.tile(x, (3, 1)) - 1),
    "kept axes": lambda x: np.min(np.repeat(x, 2, 0)[:, None], (0, 1)), "all of it": lambda x: np.sum(np.ravel(x[::-1].T)),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_of_what_was_moved_and_reshaped_is_one_kernel(name):
    f = lw.jit(FOLDS[name])
    assert f.lower(np.ones((4, 5))).kernels.count("= kernel(") == 1


@examples(25)
@given(st.sampled_from(sorted(FOLDS)), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["f4", "f8", "i8"]))
def test_folds_of_what_was_moved_have_numpys_values(name, n, m, dtype):
    x = np.random.default_rng(n * 100 + m).integers(-9, 9, (n, m)).astype(dtype)
    np.testing.assert_array_equal(JITTED[name](x), FOLDS[name](x))


JITTED = {name: lw.jit(f) for name, f in FOLDS.items()}


def test_gradients_of_what_is_repeated_store_no_repeat():
    f = lw.jit(lw.grad(lambda x: np.sum(np.repeat(x, 2, 1) ** 2)))
    x = np.arange(12.0).reshape(3, 4)
    assert f.lower(x).kernels.count("= kernel(") == 1
    np.testing.assert_array_equal(f(x), 4 * x)


REPEATS = {
    "images": (lambda x: np.repeat(np.repeat(x, 2, 1), 3, 2), (2, 3, 4, 5)),
    "rows": (lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1), (4, 5)),
    "tiles of repeats": (lambda x: np.tile(np.repeat(x, 2, 1), (3, 1)), (4, 5)),
    "of one row": (lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1), (1, 5)),
    "new axes": (lambda x: np.broadcast_to(np.repeat(x, 2, 0)[:, None], (8, 6, 5)), (4, 5)),
}


@pytest.mark.parametrize("name", REPEATS)
def test_what_is_repeated_again_is_written_once(name):
    f, shape = REPEATS[name]
    x = np.arange(float(np.prod(shape))).reshape(shape)
    program = lw.jit(f)
    assert program.lower(x).kernels.count("= kernel(") == 1
    np.testing.assert_array_equal(program(x), f(x))


def test_a_fold_of_a_fold_is_one():
    f = lw.jit(lambda x: np.sum(np.sum(x, 2), 0))
    g = lw.jit(lw.grad(lambda x: np.sum(np.repeat(np.repeat(x, 2, 1), 2, 2) ** 2)))
    x = np.arange(60.0).reshape(3, 4, 5)
    assert f.lower(x).kernels.count("= kernel(") == g.lower(x[None]).kernels.count("= kernel(") == 1
    np.testing.assert_array_equal(f(x), x.sum((0, 2)))
    np.testing.assert_array_equal(g(x[None]), 8 * x[None])
    both = lw.jit(lambda x: (np.sum(x, 2), np.max(np.max(x, 2), 0), np.max(np.sum(x, 0), 0)))
    for got, want in zip(both(x), (x.sum(2), x.max((0, 2)), x.sum(0).max(0)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_else_is_read_stays():
    """A fold over part of what a reshape merged, and what another array is added to."""
    x = np.arange(24.0).reshape(2, 3, 4)
    for f in (lambda x: np.sum(np.reshape(np.repeat(x, 2, 0), (4, 12))[:, ::5], 1),
              lambda x: np.sum(np.reshape(np.transpose(x, (2, 0, 1)), (4, 3, 2)), 1),
              lambda x: (np.repeat(x, 2, 0) + 1, np.sum(np.repeat(x, 2, 0)))):
        for got, want in zip(lw.jit(f)(x), f(x), strict=True):
            np.testing.assert_array_equal(got, want)


def test_axes_of_a_reshape_that_hold_the_same():
    n, m = symbol("n"), symbol("m")

    def runs(before, behind):
        return [(list(a), list(b)) for a, b in _alike(before, behind)]
    assert runs((n, m, 2, 3), (n, 2 * m, 3)) == [([0], [0]), ([1, 2], [1]), ([3], [2]), ([], [])]
    assert runs((2, 6), (4, 3)) == [([0, 1], [0, 1]), ([], [])]
    assert runs((n, m), (n * m,)) == [([0, 1], [0]), ([], [])]
    assert runs((n, 1, m), (n, m, 1)) == [([0], [0]), ([1], []), ([2], [1]), ([], [2])]
    assert runs((n, 2, m), (2 * n, 1, m)) == [([0, 1], [0]), ([], [1]), ([2], [2]), ([], [])]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "bool", "f2"])
@pytest.mark.parametrize("fold", [np.sum, np.max, np.min])
def test_folds_over_a_stack_are_maps_of_its_arrays(fold, dtype):
    x, y, z = (np.random.default_rng(k).integers(0, 9, (6, 7)).astype(dtype) for k in range(3))
    for axis, axes in ((2, 2), (0, (0, 2)), (1, None), (2, (0, 1))):
        def f(x, y, z, axis=axis, axes=axes):
            return fold(np.stack([x, y, z], axis), axis=axes, keepdims=True)
        got, want = lw.jit(f)(x, y, z), f(x, y, z)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    pairs = lw.jit(lambda x, y: fold(np.stack([x, y], -1), -1)).lower(np.ones((3, 4)), np.ones((3, 4))).kernels
    assert "concatenate" not in pairs and pairs.count("= kernel(") == 1
