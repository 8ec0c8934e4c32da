"""Contractions whose operands have no axes to themselves: sums of products of elements, of every dtype and order of axes."""
import numpy as np
import pytest

import loopwright as lw

EQUATIONS = ("bi,bi->b", "bi,ib->b", "ib,bi->b", "bci,icb->bc", "bci,icb->cb", "cbij,ibjc->bc", "bi,ib->bi", "bi,ib->ib")
SIZES = [dict(zip("bcij", sizes, strict=True))
         for sizes in ((7, 5, 33, 2), (40, 2, 3, 3), (1, 4, 1, 2), (3, 2, 0, 2), (0, 2, 4, 3))]


def operands(equation, sizes, dtype):
    rng = np.random.default_rng(0)
    left, right = equation.split("->")[0].split(",")
    return [(rng.normal(size=[sizes[k] for k in labels]) * 4).astype(dtype) for labels in (left, right)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int32", "int64", "bool", "complex64"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_it_is_numpys(equation, dtype):
    f = lw.jit(lambda x, y: np.einsum(equation, x, y))
    tolerance = {"float16": 1e-2, "float32": 1e-4, "complex64": 1e-4, "float64": 1e-12}.get(dtype, 0)
    for sizes in SIZES:
        x, y = operands(equation, sizes, dtype)
        found, expected = f(x, y), np.einsum(equation, x, y)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=200 * tolerance)


def test_it_is_one_kernel_with_what_is_around_it():
    x, y = operands("bi,ib->b", {"b": 9, "i": 5}, "float64")
    f = lw.jit(lambda x, y: np.sqrt(np.einsum("bi,ib->b", x + 1, np.exp(y))) * 2)
    np.testing.assert_allclose(f(x * 0, y), np.sqrt(np.sum(np.exp(y), 0)) * 2)
    assert str(f.lower(x, y).kernels).count("= kernel(") == 1


def test_derivatives_are_those_outside_jit():
    x, y = operands("bi,ib->b", {"b": 3, "i": 4}, "float64")
    slopes = lw.grad(lambda x, y: np.sum(np.einsum("bi,ib->b", x, y) ** 2), argnums=(0, 1))
    for found, expected in zip(lw.jit(slopes)(x, y), slopes(x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
