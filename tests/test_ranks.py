"""What stands at ranks of rows against a sort: dtypes, ties, NaN, rows in and out of order, ranks in any order and again."""
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.ops.sorting import ranked
from loopwright.ir.parser import parse_type
from loopwright.kernels.ranking import FEW
from loopwright.tracer.tracer import Tracer
from tests.scale import examples
from tests.test_top_k import DTYPES, rows

LENGTHS = (1, 2, 100, FEW, FEW + 1, 3 * FEW, 20_000)


@cache
def compiled(dtype):
    return lw.jit(lambda x, ranks: Tracer(ranked(x.ref, ranks.ref)))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@examples(40)
@given(n=st.sampled_from(LENGTHS), arrangement=st.sampled_from(["random", "ties", "rising", "falling", "equal", "ends"]),
       special=st.booleans(), m=st.integers(0, 5), seed=st.integers(0, 99))
def test_what_stands_at_ranks(dtype, n, arrangement, special, m, seed):
    rng = np.random.default_rng(seed)
    x = rows(rng, dtype, n, "random" if arrangement in ("equal", "ends") else arrangement, special)
    if arrangement == "equal":
        x[:] = x[:, :1]
    elif arrangement == "ends":  # of some rows all but few are one element
        x[:, n // 50:] = x[:, :1]
    ranks = rng.choice([0, 1, n // 2, (n - 1) // 2, n - 1, int(rng.integers(n))], m) % n
    with np.errstate(invalid="ignore"):
        wanted = np.sort(x.astype("f4") if x.dtype == ml_dtypes.bfloat16 else x, -1)[:, ranks].astype("f8")
    np.testing.assert_array_equal(compiled(dtype)(x, ranks).astype("f8"), wanted)


def test_rows_of_any_period_are_no_worse_than_sorted_ones():
    """Elements that stand apart as those of a sample, in rows of which most are NaN, and ranks that are far from each other."""
    x = np.arange(40_000.0) % 157
    mostly_nan = np.where(np.arange(40_000) % 10 < 9, np.nan, x)
    infinite = np.where(x < 70, -np.inf, np.where(x > 80, np.inf, x))
    ranks = np.array([39_999, 0, 20_000, 3_999, 4_000, 20_000])
    for row in (x, mostly_nan, infinite, -infinite, x[::-1] * 1e-310):
        np.testing.assert_array_equal(compiled("f8")(row[None], ranks), np.sort(row)[None, ranks])


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 1500), (2, 3, 4)])
def test_transforms(shape):
    x, ranks = np.random.default_rng(0).permuted(np.arange(float(np.prod(shape)))).reshape(shape), np.array([2, 0, 3])
    found, tangent = lw.jvp(lambda x: compiled("f8")(x, ranks), (x,), (2 * x + 1,))
    np.testing.assert_array_equal(found, np.sort(x, -1)[..., ranks])
    np.testing.assert_array_equal(tangent, 2 * found + 1)
    weights = np.arange(1.0, 4)
    gradient = lw.grad(lambda x: np.sum(compiled("f8")(x, ranks) * weights))(x)
    expected = np.zeros(shape)
    np.put_along_axis(expected, np.argsort(x, -1)[..., ranks], np.broadcast_to(weights, found.shape), -1)
    np.testing.assert_array_equal(gradient, expected)
    np.testing.assert_array_equal(lw.vmap(lambda r: compiled("f8")(x, r))(np.array([[0, 1], [3, 3]])),
                                  np.stack([np.sort(x, -1)[..., [0, 1]], np.sort(x, -1)[..., [3, 3]]]))


def test_what_has_no_ranks():
    for types, error, message in ((("f32[]", "i64[2]"), ShapeError, "must have rows"),
                                  (("f32[3]", "i64[2, 2]"), ShapeError, "one axis"),
                                  (("f32[3]", "i32[2]"), DTypeError, "must be i64")):
        with pytest.raises(error, match=message):
            build(lambda x, ranks: [ranked(x, ranks)], [parse_type(t) for t in types])
