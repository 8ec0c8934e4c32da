"""Sorts of a GPU: rows of every length in three orders of warps, what compilers make of them, and that they are captured."""
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.ops.sorting import argsort, ranked, sort, top_k
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, I8, I64, SHORT, U32, ArrayType
from loopwright.lower.cuda import lower_cuda
from tests.devices import require_device
from tests.emulator import FORWARD, ORDERS
from tests.emulator.programs import compiled, run_program
from tests.scale import examples
from tests.test_cuda_text import ARCHITECTURES, check_resources
from tests.test_launcher import check

DTYPES = (F32, F64, F16, BF16, I8, I64, U32, BOOL)
LENGTHS = (0, 1, 2, 5, 31, 32, 33, 200, 512, 513, 2047, 2048, 2049, 4096, 4100, 9000)


@pytest.fixture(autouse=True)
def _device():
    require_device()


def drawn(rng, shape, dtype, values):
    """Some of few values, signed zeros and NaN among them, or all kinds of bits."""
    if values:
        x = rng.integers(-2, 3, shape).astype(np.float32) * (-1) ** rng.integers(0, 2, shape)
        x[rng.random(shape) < 0.1] = np.nan if dtype in (F16, BF16, F32, F64) else 3
        return np.abs(x).astype(dtype) if dtype in (U32, BOOL) else x.astype(dtype)
    return rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0] if dtype != BOOL else \
        rng.integers(0, 2, shape).astype(bool)


def compare(rows, length, dtype, *, values, known, order, seed):
    """All four of an array; `known`: whether the program knows how long rows are."""
    rng = np.random.default_rng(seed)
    x, k = drawn(rng, (rows, length), dtype, values), min(length, 3)
    ranks = rng.integers(0, max(length, 1), 3 * (length > 0))
    types = ArrayType((symbol("n"), length if known else symbol("m")), dtype), ArrayType((len(ranks),), I64)
    graph = build(lambda x, r: [sort(x, axis=1), argsort(x, axis=1), top_k(x, k=k), ranked(x, r)], types)
    made = lower_cuda(graph, {"n": rows, "m": length})
    found = run_program(made, compiled(made), [x, ranks], {"n": rows, "m": length}, order)
    wide = x.astype(np.float32) if dtype in (F16, BF16) else x
    at = np.argsort(wide, axis=1, kind="stable")
    best = length - 1 - np.argsort(wide[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :k]
    in_order = np.take_along_axis(x, at, axis=1)
    for got, want in zip(found, (in_order, at, best, in_order[:, ranks]), strict=True):
        assert got.tobytes() == np.ascontiguousarray(want).tobytes(), f"{rows} rows of {length} {dtype}: {got} for {want}"


@examples(30)
@given(st.integers(1, 3), st.sampled_from(LENGTHS), st.sampled_from(DTYPES), st.booleans(), st.booleans(),
       st.sampled_from(ORDERS), st.integers(0, 2**32 - 1))
def test_rows_of_any_length_are_moved_as_they_are(rows, length, dtype, values, known, order, seed):
    compare(rows, length, dtype, values=values, known=known, order=order, seed=seed)


def test_one_program_sorts_rows_of_every_length():
    f = lw.jit(lambda x: (np.sort(x, axis=0), np.median(x, axis=1), np.argsort(x)))
    rng = np.random.default_rng(0)
    for shape in ((3, 7), (600, 40), (2, 3000)):
        check(f, rng.standard_normal(shape), times=3)
    text = f.lower(rng.standard_normal((2, 7)), device="gpu").cuda
    assert "library call" not in text


@pytest.mark.parametrize("dtype", DTYPES, ids=SHORT.get)
def test_sorts_need_no_stack(dtype):
    types = ArrayType((symbol("n"), symbol("m")), dtype), ArrayType((3,), I64)
    graph = build(lambda x, r: [sort(x, axis=1), argsort(x, axis=1), top_k(x, k=3), ranked(x, r)], types)
    text = lower_cuda(graph, {"n": 30, "m": 3000}).text
    check_resources(text, ARCHITECTURES[dtype.itemsize % 2], most=64)
    assert len(re.findall(r"__global__", text)) == 25  # six of each, and one that looks ranks up


def test_positions_beyond_32_bits():
    types = [ArrayType((5000,), F32)]
    made = lower_cuda(build(lambda x: [argsort(x, axis=0)], types), {})
    assert made.fits({}) and "long long* at_0" not in made.text
    unknown = lower_cuda(build(lambda x: [argsort(x, axis=0)], [ArrayType((symbol("n"),), F32)]), {"n": 2**32 - 1})
    assert "long long* at_0" in unknown.text
    x = np.random.default_rng(0).standard_normal(5000, "f4")
    found, = run_program(unknown, compiled(unknown), [x], {"n": 5000}, FORWARD)
    np.testing.assert_array_equal(found, np.argsort(x, kind="stable"))
