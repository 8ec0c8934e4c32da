"""Integer division on registers: NumPy's quotients and remainders, in floats where these are exact and one by one elsewhere."""
import numpy as np
import pytest

from loopwright.ir.loops import Literal
from loopwright.ir.types import I64, INTEGERS, U64
from loopwright.lower.target import host_target
from tests.kernels import compile_nest, elementwise_nest, run_elementwise


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_divisions_by_constants(dtype):
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    x = np.concatenate([rng.integers(info.min, info.max, 300, dtype, endpoint=True), np.arange(40).astype(dtype),
                        np.array([info.min, info.max - 1, info.max], dtype)])
    divisors = {0, 1, 2, 3, 7, 8, 64, 100, info.max, info.max - 1, info.min} | ({-1, -2, -3, -8} if info.min else set())
    target = host_target()
    for number in sorted(map(int, divisors)):
        for fn in ("floor_divide", "remainder", "fmod"):
            got = np.zeros_like(x)
            nest = elementwise_nest(fn, [dtype], dtype, target.lanes(dtype), 1, Literal(number, dtype))
            compile_nest(nest, target)(x, got, sizes=(len(x),))
            with np.errstate(all="ignore"):
                wanted = getattr(np, fn)(x, dtype.type(number))
            assert np.array_equal(got, wanted), (fn, number)


def _beside_multiples(dtype, bits, rng, count):
    """Dividends of up to so many bits next to multiples of their divisors, and others; of all magnitudes."""
    info = np.iinfo(dtype)
    x, y = ([int(v) >> info.bits - bits + int(k) for v, k in zip(rng.integers(info.min, info.max, count, dtype, endpoint=True),
                                                                rng.integers(0, bits, count), strict=True)] for _ in range(2))
    steps = rng.integers(-1, 3, count).tolist()
    moved = [v // (d or 1) * d + step if step < 2 else v for v, d, step in zip(x, y, steps, strict=True)]
    return np.array([min(max(v, info.min), info.max) for v in moved], dtype), np.array(y, dtype)


@pytest.mark.parametrize("fn", ["floor_divide", "remainder", "fmod"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_divisions_beside_multiples(dtype, fn):
    rng, divided = np.random.default_rng(1), run_elementwise(fn, [np.zeros(1, dtype)] * 2, dtype, host_target())
    for bits in {8 * dtype.itemsize, *([50, 51, 52] if dtype.itemsize == 8 else [])}:
        a, b = _beside_multiples(dtype, bits, rng, 4000)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(divided(a, b)[0], getattr(np, fn)(a, b))


@pytest.mark.parametrize("dtype", [I64, U64], ids=str)
@pytest.mark.parametrize("divisor", [3, 49, 1000003, 2**49 + 1, 2**50 - 1, 2**50, 2**50 + 1, 2**62 + 1, -3, -49, 1 - 2**50])
def test_large_integers_by_constants(dtype, divisor):
    if dtype == U64 and divisor < 0:
        divisor += 1 << 64
    top = [k for k in (2**50 // abs(divisor), 2**50 // abs(divisor) - 1, 1, 2, 3) if k > 0]
    near = [k * divisor + d for k in top for d in (-1, 0, 1)] + [2**50 - 1, 2**50, 2**50 + 1]
    info = np.iinfo(dtype)
    x = np.array([s * v for v in near for s in (1, -1) if info.min <= s * v <= info.max] * 8, dtype)
    target = host_target()
    for fn, model in (("floor_divide", np.floor_divide), ("remainder", np.remainder), ("fmod", np.fmod)):
        for each in (x, x[np.abs(x.astype(float)) < 2**50]):
            got = np.zeros_like(each)
            compile_nest(elementwise_nest(fn, [dtype], dtype, target.lanes(dtype), 1, Literal(divisor, dtype)), target)(
                each, got, sizes=(len(each),))
            assert np.array_equal(got, model(each, dtype.type(divisor))), fn
