"""Numbers computed of sizes that Python asks for under jit: each size has a trace of its own then, and none gets another's."""
import numpy as np
import pytest

import loopwright as lw

PROGRAMS = {
    "a branch": lambda x, xp: x * 2 if x.shape[0] / 2 > 3 else x,
    "a float": lambda x, xp: x * float(x.shape[0] / 2),
    "an integer": lambda x, xp: x[:int(x.shape[0] / 2)],
    "a power": lambda x, xp: x * int(2.0 ** x.shape[0]),
    "a comparison of np.arange": lambda x, xp: np.where(np.arange(x.shape[0]) > 0, x, 0),
    "a sum": lambda x, xp: x if xp.sum(xp.arange(x.shape[0])) > 20 else -x,
    "positions": lambda x, xp: x[xp.arange(x.shape[0]) % 2 == 0],
    "a NumPy number": lambda x, xp: x / np.float32(np.sqrt(x.shape[0])),
    "a half": lambda x, xp: x * np.float16(x.shape[0] * 0.5),
    "an array": lambda x, xp: x + np.asarray(x.shape[0] / 4),
    "np.arange of half": lambda x, xp: x + np.sum(np.arange(x.shape[0] / 2)),
    "a loop of a size": lambda x, xp: x + float(xp.sum(xp.cumsum(xp.ones(x.shape[0])))),
}


@pytest.mark.filterwarnings("ignore::loopwright.SpecialisationWarning")
@pytest.mark.parametrize("sizes", [(10, 4, 7, 1, 10), (1, 3, 2), (3, 1, 8)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_another_size_has_its_own(name, sizes):
    f = lw.jit(lambda x: PROGRAMS[name](x, lw.numpy))
    for n in sizes:
        x = np.arange(1.0, n + 1)
        np.testing.assert_allclose(f(x), PROGRAMS[name](x, np))


def test_numbers_of_data_have_no_array():
    """Neither under jit, where they are not known, nor under grad, where their slope would be lost."""
    def scaled(x):
        return np.sum(x * np.float32(np.sum(x) / x.shape[0]))
    for f in (lw.jit(scaled), lw.grad(scaled), lw.jit(lw.grad(scaled))):
        with pytest.raises(lw.ConcretizationError, match="was asked for its NumPy array"):
            f(np.ones(3))
    assert lw.grad(lambda x: np.sum(x / np.float32(np.sqrt(x.shape[0]))))(np.ones(4)).tolist() == [0.5] * 4


def test_masks_of_positions_serve_all_sizes():
    @lw.jit
    def f(x):
        x = x.copy()
        x[lw.numpy.arange(x.shape[0]) % 2 == 0] = 0
        return x
    for n in (10, 4, 7, 1):
        x = np.arange(1.0, n + 1)
        np.testing.assert_array_equal(f(x), np.where(np.arange(n) % 2 == 0, 0, x))
    assert f.compiles == 1


def test_directions_of_known_size_fix_sizes():
    """A product of sizes, or the lesser of two, is a number then: a constant's size."""
    x, weights = np.random.default_rng(0).normal(size=(5, 3)), np.array([1.0, 2.0, 3.0])
    flat = np.arange(15.0)
    pulled = lw.jit(lambda x: lw.vjp(np.ravel, x)[1](flat)[0])
    np.testing.assert_array_equal(pulled(x), flat.reshape(5, 3))
    np.testing.assert_array_equal(pulled(x.T), flat.reshape(3, 5))

    def weighted(x):
        return np.sum(np.linalg.svd(x, compute_uv=False) * weights)
    grad = lw.jit(lw.grad(weighted))
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(grad(x), u * weights @ vt, rtol=1e-10)
    np.testing.assert_allclose(grad(x.T), (u * weights @ vt).T, rtol=1e-10)
    slope = lw.jit(lw.grad(lambda x: np.sum(lw.grad(weighted)(x) ** 3)))(x)
    step = 1e-6 * flat.reshape(5, 3)
    change = np.sum(lw.grad(weighted)(x + step) ** 3) - np.sum(lw.grad(weighted)(x - step) ** 3)
    np.testing.assert_allclose(np.sum(slope * step) * 2, change, rtol=1e-5)
