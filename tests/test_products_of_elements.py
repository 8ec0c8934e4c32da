"""Contractions whose operands have no axes to themselves: sums of products of elements, of every dtype and order of axes;
and those whose terms lie apart or between other axes."""
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
    x, y = operands("bi,bi->b", {"b": 9, "i": 5}, "float64")
    f = lw.jit(lambda x, y: np.sqrt(np.einsum("bi,bi->b", x + 1, np.exp(y))) * 2)
    np.testing.assert_allclose(f(x * 0, y), np.sqrt(np.sum(np.exp(y), 1)) * 2)
    assert str(f.lower(x, y).kernels).count("= kernel(") == 1


def test_derivatives_are_those_outside_jit():
    x, y = operands("bi,ib->b", {"b": 3, "i": 4}, "float64")
    slopes = lw.grad(lambda x, y: np.sum(np.einsum("bi,ib->b", x, y) ** 2), argnums=(0, 1))
    for found, expected in zip(lw.jit(slopes)(x, y), slopes(x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("terms", ["nir,njr->ij", "nri,njr->ij", "bnir,bnjr->bij", "nir,rjn->ij", "nmir,nmjr->ij",
                                   "nirs,jnsr->ij", "ij,njr->nir", "ji,njr->nir", "ij,njr->inr", "njr,ji->nir", "ij,njrs->nirs",
                                   "ij,njrs->nris", "bij,bnjr->bnir", "ij,jnr->nir"])
def test_terms_that_lie_apart_or_between_other_axes(terms):
    """Whatever the sizes are: one matrix times each of a batch, and its gradient, among them."""
    f, rng, letters = lw.jit(lambda a, b: np.einsum(terms, a, b)), np.random.default_rng(0), sorted(set(terms) - set(",->"))
    for sizes in ({}, {"n": 700, "r": 3}, {"n": 1, "i": 1}, {"n": 0}, {"r": 0}, {"i": 0}):
        drawn = {x: sizes.get(x, 2 + k) for k, x in enumerate(letters)}
        a, b = (rng.standard_normal([drawn[x] for x in side]) for side in terms.split("->")[0].split(","))
        np.testing.assert_allclose(f(a, b), np.einsum(terms, a, b), rtol=1e-11, atol=1e-11)


def test_the_gradient_of_one_matrix_that_multiplies_each_of_a_batch():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((50, 4, 2))
    found = lw.jit(lw.grad(lambda a, b: np.sum(np.sin(a @ b)), (0, 1)))(a, b)
    slope = np.cos(a @ b)
    np.testing.assert_allclose(found[0], np.einsum("nir,njr->ij", slope, b), rtol=1e-11)
    np.testing.assert_allclose(found[1], np.einsum("nir,ij->njr", slope, a), rtol=1e-11)
