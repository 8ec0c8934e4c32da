"""What has bitten other compilers: each trap once, through compiled code, against NumPy.

Other traps have their tests elsewhere: special values of every op in every pair in test_compiled_ops.py; layouts of arguments
in test_jit.py::test_every_layout_gives_the_same_values_from_one_compile; NaN through the branch of `where` not taken, ties
and kinks in test_gradients.py; forks while other threads compile in test_threads.py; static arguments in
test_static_arguments.py; a size that no argument tells in test_dispatcher.py.
"""
import math
import warnings

import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.runtime.pool import set_threads
from tests.forking import check_in_child, needs_fork, of_threads

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def same(got, expected):
    """NumPy's type, dtype, shape and bits; NaN equals NaN."""
    assert type(got) is type(expected) and got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got[expected == 0]), np.signbit(expected[expected == 0]))


def numpys(f, *args):
    with np.errstate(all="ignore"):
        return f(*args)


# ---- integers ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_zero_is_0_and_the_least_integer_by_minus_1_wraps(dtype):
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, info.max, 0, 1, 5, *([-1, -7] if info.min else [])], dtype)
    x, y = (z.ravel() for z in np.meshgrid(values, values))

    def all_of(x, y):
        return x // y, x % y, np.fmod(x, y), np.divmod(x, y), np.abs(x), -x, x // y[0], x % 0, x // 0
    got, expected = lw.jit(all_of)(x, y), numpys(all_of, x, y)
    for a, b in zip((*got[:3], *got[3], *got[4:]), (*expected[:3], *expected[3], *expected[4:]), strict=True):
        same(a, b)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_wide_and_negative_shifts(dtype):
    bits = 8 * np.dtype(dtype).itemsize
    values = np.array([0, 1, 5, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    counts = np.array([0, 1, bits - 1, bits, bits + 1, 100, *([-1, -bits] if dtype[0] == "i" else [])], dtype)
    x, n = (z.ravel() for z in np.meshgrid(values, counts))
    for shift in (np.left_shift, np.right_shift):
        same(lw.jit(lambda x, n, shift=shift: shift(x, n))(x, n), shift(x, n))


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_floats_out_of_range_saturate_and_nan_is_0(source, target):
    info = np.iinfo(target)
    with np.errstate(all="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 3.7, -3.7, 0.5, -0.0, info.max, info.min] * 4, source)

    def saturated(v):
        if math.isnan(v):
            return 0
        return min(max(int(v) if math.isfinite(v) else int(math.copysign(2**70, v)), info.min), info.max)
    same(lw.jit(lambda x: x.astype(target))(x), np.array([saturated(float(v)) for v in x], target))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x, y = (rng.integers(info.min, info.max, 37, dtype, endpoint=True) for _ in range(2))
    for f in (np.add, np.subtract, np.multiply, lambda x, y: x ** np.abs(y % 7), lambda x, y: x.sum(dtype=dtype),
              lambda x, y: np.prod(x, dtype=dtype), lambda x, y: np.cumsum(x, dtype=dtype)):
        same(lw.jit(lambda x, y, f=f: f(x, y))(x, y), numpys(f, x, y))


# ---- floats -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_in_extremes(dtype):
    for n in (1, 3, 16, 33, 100):
        for at in {0, n // 2, n - 1}:
            x, y = np.arange(n, dtype=dtype) + 1, np.full(n, 5, dtype)
            x[at] = np.nan
            for f in (np.maximum, np.minimum, np.fmax, np.fmin):
                same(lw.jit(lambda x, y, f=f: f(x, y))(x, y), f(x, y))
                same(lw.jit(lambda x, y, f=f: f(y, x))(x, y), f(y, x))
            if at:
                continue
            for f in (np.max, np.min, np.argmax, np.argmin):
                same(lw.jit(lambda x, f=f: f(x))(x), f(x))
                same(lw.jit(lambda x, f=f: f(x))(x[::-1]), f(x[::-1]))


def test_extremes_of_nan_in_every_row_and_column():
    x = np.random.default_rng(0).normal(size=(9, 40))
    x[3, 7] = x[8, 39] = x[0, 0] = np.nan
    for f in (np.max, np.min, np.argmax, np.argmin, np.sort, np.argsort):
        for axis in (0, 1):
            same(lw.jit(lambda x, f=f, axis=axis: f(x, axis=axis))(x), f(x, axis=axis))


NEGATIVE_ZERO = -0.0
ZEROS = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 5e-324, -5e-324])


@pytest.mark.parametrize("f", [
    lambda x: x + 0.0, lambda x: x + -0.0, lambda x: 0.0 + x, lambda x: x - 0.0, lambda x: x - NEGATIVE_ZERO, lambda x: 0.0 - x,
    lambda x: NEGATIVE_ZERO - x, lambda x: np.negative(-x), lambda x: x * 1.0, lambda x: x * -1.0, lambda x: x * 0.0,
    lambda x: x / 1.0, lambda x: x / -1.0, lambda x: 0.0 / x, lambda x: x - x, lambda x: x / x, lambda x: np.equal(x, x),
    lambda x: np.not_equal(x, x), lambda x: -(x - 1.0), lambda x: 1.0 - x, lambda x: (x + 1.0) - 1.0, lambda x: x * 2.0 / 2.0,
    lambda x: x ** 1, lambda x: x ** 2, lambda x: x ** 0, lambda x: abs(x), lambda x: abs(-x), lambda x: np.sqrt(x) ** 2,
    lambda x: np.floor(x), lambda x: np.rint(x), lambda x: np.where(x == 0, x, -x), lambda x: x + (-x),
    lambda x: np.copysign(x, -x), lambda x: np.sign(x), lambda x: x[::-1][::-1], lambda x: np.sum(x[:1]) + x,
    lambda x: np.sum(x[:0]) + x, lambda x: np.maximum(x, x), lambda x: x * 3.0 - x * 3.0,
])
def test_rewrites_keep_signs_of_zeros_nan_and_infinities(f):
    same(lw.jit(f)(ZEROS), numpys(f, ZEROS))
    some = lw.jit(lambda x: f(x) + 0)(ZEROS)  # inside a larger kernel as well
    np.testing.assert_array_equal(some, numpys(f, ZEROS) + 0)


def test_nothing_is_contracted_or_reassociated():
    rng = np.random.default_rng(0)
    x, y, z = (np.exp(rng.normal(size=1001) * 20) * rng.choice([-1, 1], 1001) for _ in range(3))
    small = [numpys(lambda a: a.astype("f4"), a) for a in (x, y, z)]
    for f in (lambda x, y, z: x * y + z, lambda x, y, z: x * y - x * y, lambda x, y, z: (x + y) + z,
              lambda x, y, z: x + (y + z), lambda x, y, z: x * (y * z), lambda x, y, z: x / y,
              lambda x, y, z: x / 3.0 + z / 7.0, lambda x, y, z: (x - z) + (z - x)):
        same(lw.jit(f)(x, y, z), numpys(f, x, y, z))
        same(lw.jit(f)(*small), numpys(f, *small))


def test_denormals_are_not_flushed():
    for dtype, least in (("f4", 1e-45), ("f8", 5e-324), ("f2", 6e-8)):
        x = np.full(37, least, dtype)
        same(lw.jit(lambda x: x + x)(x), x + x)
        same(lw.jit(lambda x: x / 1 * 3)(x), x / 1 * 3)
        assert lw.jit(lambda x: np.sum(x))(x) == np.sum(x) > 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "float64"])
def test_positions_where_all_is_the_identity(dtype):
    """The first position is right where no element is better than the value that a fold starts from."""
    info = np.array([False, True]) if dtype == "bool" else (
        np.array([-np.inf, np.inf], dtype) if dtype[0] == "f" else np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype))
    for f, value in ((np.argmax, info[0]), (np.argmin, info[1])):
        for axis in (0, 1, None):
            g = lw.jit(lambda x, f=f, axis=axis: f(x, axis=axis))
            for shape in ((4, 6), (5, 17), (40, 3), (3, 130), (1, 1)):
                x = np.full(shape, value)
                same(g(x), f(x, axis=axis))
                x[-1, -1] = info[0] if value == info[1] else info[1]
                same(g(x), f(x, axis=axis))


# ---- sums -------------------------------------------------------------------------------------------
def adversaries(n, dtype):
    rng = np.random.default_rng(n)
    yield "equal", np.full(n, 0.1, dtype)
    yield "uniform", rng.uniform(0, 1, n).astype(dtype)
    yield "of all sizes", np.exp(rng.normal(size=n) * 3).clip(0, 100).astype(dtype)
    ramp = np.linspace(0, 1, n).astype(dtype)
    yield "rising", ramp
    yield "falling", ramp[::-1].copy()
    cancelling = rng.normal(size=n).astype(dtype)
    yield "cancelling", np.concatenate([cancelling[:n // 2], -cancelling[:n - n // 2]])
    yield "one large", np.concatenate([np.array([2.0 ** 11], dtype), np.full(n - 1, 2.0 ** -4, dtype)])


@pytest.mark.parametrize(("dtype", "n"), [("float32", 1_000_003), ("float32", 4097), ("float64", 300_001), ("float16", 30_000)])
def test_sums_are_at_least_as_accurate_as_numpys(dtype, n):
    """Against the exact sum: at most NumPy's error, or the error that NumPy's pairwise algorithm guarantees."""
    total = lw.jit(lambda x: np.sum(x))
    for name, x in adversaries(n, dtype):
        exact = math.fsum(map(float, x))
        numpy = float(numpys(np.sum, x))
        if not math.isfinite(numpy):
            continue
        allowed = max(abs(numpy - exact), bound(x, dtype))
        assert abs(float(total(x)) - exact) <= allowed, (name, float(total(x)), numpy, exact)


def bound(x, dtype):
    """What pairwise summation guarantees: blocks of 128 by 8 accumulators, which are 19 additions in a row, and one more for
    each doubling; half a unit of the sum of magnitudes for each. f16 is added at f32 and rounded once."""
    wide = np.float32 if dtype == "float16" else np.dtype(dtype)
    magnitude = math.fsum(map(abs, map(float, x)))
    rounding = float(np.finfo(dtype).eps) * abs(math.fsum(map(float, x))) if dtype == "float16" else 0.0
    return float(np.finfo(wide).eps) / 2 * magnitude * (19 + math.log2(max(len(x) / 128, 1))) + rounding


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_sums_over_either_axis_are_at_least_as_accurate(dtype, axis):
    """NumPy adds rows one after the other along the first axis; both orders have to do better or as well."""
    n = 20_000
    for name, row in adversaries(n, dtype):
        x = np.stack([row, row[::-1], row * row.dtype.type(0.5)])
        x = np.ascontiguousarray(x.T) if axis == 0 else x
        for f in (np.sum, np.mean):
            got, numpy = lw.jit(lambda x, f=f: f(x, axis=axis))(x), numpys(lambda x, f=f: f(x, axis=axis), x)
            for k in range(3):
                one = np.take(x, k, axis=1 - axis)
                exact = math.fsum(map(float, one)) / (n if f is np.mean else 1)
                if np.isfinite(float(numpy[k])):
                    allowed = max(abs(float(numpy[k]) - exact), bound(one, dtype) / (n if f is np.mean else 1))
                    assert abs(float(got[k]) - exact) <= allowed, (name, f.__name__, float(got[k]), float(numpy[k]), exact)


def test_sums_of_infinities_and_nan():
    for values in ([np.inf], [-np.inf], [np.inf, -np.inf], [np.nan], []):
        x = np.zeros(1000)
        x[100:100 + len(values)] = values
        same(lw.jit(lambda x: np.sum(x))(x), numpys(np.sum, x))
        rows = np.stack([x] * 5)
        same(lw.jit(lambda x: np.sum(x, axis=0))(rows), numpys(lambda r: np.sum(r, axis=0), rows))


# ---- shapes and layouts -----------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (1, 0), (), (1,), (1, 1, 1)])
def test_empty_and_0d_arrays(shape):
    x = np.full(shape, 2.0)
    functions = [lambda x: x + 1, lambda x: x * x - x, lambda x: np.sum(x), lambda x: np.prod(x), lambda x: x.reshape(-1),
                 lambda x: x.T, lambda x: np.any(x > 0), lambda x: np.all(x > 0), lambda x: x[...], lambda x: x[None],
                 lambda x: np.concatenate([x.reshape(-1), x.reshape(-1)]), lambda x: np.where(x > 1, x, 0.0)]
    if shape:
        functions += [lambda x: np.sum(x, axis=0), lambda x: np.sum(x, axis=-1), lambda x: x[:0],
                      lambda x: np.cumsum(x, axis=0), lambda x: np.sort(x, axis=-1), lambda x: np.flip(x),
                      lambda x: x.reshape(-1) @ x.reshape(-1)]
    for k, f in enumerate(functions):
        got, expected = lw.jit(f)(x), f(x)
        assert isinstance(got, np.ndarray if expected.shape else np.generic), k
        np.testing.assert_array_equal(got, expected, err_msg=str(k))
        assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(lw.jit(lw.grad(lambda x: np.sum(x * x)))(x), 2 * x)


def test_extremes_of_nothing_are_numpys_error():
    for f in (np.max, np.min, np.argmax):
        with pytest.raises(ValueError, match=r"zero-size|empty sequence"):
            lw.jit(lambda x, f=f: f(x))(np.zeros((0, 2)))


def arranged(x):
    """x by value, in memory as NumPy allows it."""
    yield "reversed", np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    wide[::2, ::3] = x
    yield "strided", wide[::2, ::3]
    yield "fortran", np.asfortranarray(x)
    frozen = x.copy()
    frozen.setflags(write=False)
    yield "read-only", frozen
    yield "byte-swapped", x.astype(x.dtype.newbyteorder())
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(x.tobytes(), np.uint8)
    yield "misaligned", raw.view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "uint64", "complex128"])
def test_layouts_in_kernels_of_every_kind(dtype):
    """Elementwise, reduced over each axis, contracted, indexed: one compile each for all layouts."""
    x = np.random.default_rng(0).integers(0, 9, (6, 11)).astype(dtype)
    for f in (lambda x: x * x, lambda x: np.sum(x, axis=0), lambda x: np.sum(x, axis=1), lambda x: x @ x.T,
              lambda x: x[::-1, 2:], lambda x: x[[2, 0]]):
        g = lw.jit(f)
        expected = f(x)
        for name, given in arranged(x):
            np.testing.assert_array_equal(g(given), expected, err_msg=name)
        assert g.compiles == 1


def test_overlapping_arguments():
    base = np.arange(12.0)
    f = lw.jit(lambda x, y: (x + y, y - x, x))
    results = f(base[:10], base[2:])
    for got, expected in zip(results, (base[:10] + base[2:], base[2:] - base[:10], base[:10]), strict=True):
        same(got, expected)
        assert not np.shares_memory(got, base)
    same(lw.jit(lambda x, y: x * y)(base, base), base * base)


def test_zero_strides():
    x = np.broadcast_to(np.array([[1.5], [2.5]]), (2, 700))
    same(lw.jit(lambda x: x + 1)(x), x + 1)
    same(lw.jit(lambda x: np.sum(x, axis=1))(x), np.sum(x, axis=1))


# ---- indices ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.maximum, np.minimum])
def test_updates_at_indices_count_every_one(ufunc):
    i, k = np.array([[0, 3, 3], [0, -2, 1]]), np.array([2, 2, 0])
    x, v = np.arange(20.0).reshape(5, 4), np.array([[9.0, np.nan, 31.0], [-1.0, 2.5, 7.0]])

    def rows(x, v):
        x = x.copy()
        ufunc.at(x, i, v[..., None])
        return x

    def elements(x, v):
        x = x.copy()
        ufunc.at(x, (slice(1, 4), k), v[0])
        ufunc.at(x, (slice(None), 1), 6)
        return x
    for f in (rows, elements):
        same(lw.jit(f)(x, v), f(x, v))
        same(lw.jit(f)(x.astype("i4"), np.nan_to_num(v).astype("i4")), f(x.astype("i4"), np.nan_to_num(v).astype("i4")))
    slopes = lw.jit(lw.grad(lambda x, v: np.sum(rows(x, v) ** 2), argnums=(0, 1)))(x, np.nan_to_num(v))
    step = 1e-6

    def slope(argument, at):
        args = [x, np.nan_to_num(v)]
        moved = [[a.copy() for a in args] for _ in range(2)]
        moved[0][argument][at] += step
        moved[1][argument][at] -= step
        high, low = (np.sum(rows(*a) ** 2) for a in moved)
        return (high - low) / (2 * step)
    for argument, at in ((0, (0, 1)), (0, (3, 2)), (0, (4, 0)), (1, (0, 0)), (1, (0, 2)), (1, (1, 2))):
        np.testing.assert_allclose(slopes[argument][at], slope(argument, at), rtol=1e-5, atol=1e-5)


def test_duplicate_indices():
    """The last update in C order wins; `x[i] += v` is `x[i] = x[i] + v`; np.add.at accumulates."""
    i = np.array([[0, 3, 3], [0, 3, 1]])
    v = np.arange(6.0).reshape(2, 3) + 10

    def stores(x, v, i):
        x = x.copy()
        x[i] = v
        return x

    def adds(x, v, i):
        x = x.copy()
        x[i] += v
        return x

    def accumulates(x, v, i):
        x = x.copy()
        np.add.at(x, i, v)
        return x
    x = np.arange(5.0)
    for f in (stores, adds, accumulates):
        same(lw.jit(f)(x, v, i), f(x, v, i))
        same(lw.jit(lambda x, v, f=f: f(x, v, i))(x, v), f(x, v, i))
    weights = np.arange(1.0, 6.0)
    ct = lw.jit(lw.grad(lambda x, v: np.sum(stores(x, v, i) * weights), argnums=1))(x, v)
    np.testing.assert_array_equal(ct, [[0, 0, 0], [1, 4, 2]])


def test_long_duplicates_are_in_order_whatever_the_threads():
    rng = np.random.default_rng(0)
    i, v = rng.integers(0, 50, 100_000), rng.normal(size=100_000)
    expected = np.zeros(50)
    expected[i] = v

    @lw.jit
    def f(x, i, v):
        x = x.copy()
        x[i] = v
        return x
    for count in (1, 2):
        set_threads(count)
        try:
            same(f(np.zeros(50), i, v), expected)
        finally:
            set_threads(None)


def test_indices_at_the_edges():
    x = np.arange(5.0)
    for i in (-5, -1, 0, 4):
        same(lw.jit(lambda x, i: x[i])(x, i), x[i])
        same(lw.jit(lambda x, i: x[i])(x, np.array([i, 0])), x[[i, 0]])
    for i in (-6, 5, 2**40, -2**62):
        for index in (i, np.array([0, i])):
            with pytest.raises(IndexError, match=f"index {i} is out of bounds for axis 0 with size 5"):
                lw.jit(lambda x, i: x[i])(x, index)


# ---- the process ------------------------------------------------------------------------------------
def test_no_warning_of_numpys_comes_from_compiled_code():
    x = np.array([0.0, -1.0, np.inf, np.nan, 1e308, 5e-324] * 5)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        lw.jit(lambda x: (1 / x, x / 0, np.log(x), np.sqrt(x), x * x, np.exp(x), np.sum(x), x.astype("i4"), x.astype("f4"),
                          x - x, np.float32(3) * x, np.arccosh(x), x % 0, x // 0))(x)
        lw.jit(lambda i: (i // 0, i % 0, np.abs(i) // (i - i)))(np.array([1, 0, -2]))
        lw.grad(lambda x: np.sum(np.sqrt(x) / x))(x)


@needs_fork
@of_threads
def test_a_forked_child_runs_parallel_kernels_compiled_before_and_after():
    x = np.arange(3e6)
    f = lw.jit(lambda x: np.sum(np.sqrt(x) * 2))
    before = f(x)

    def check():
        assert f(x) == before and np.isclose(lw.jit(lambda x: np.sum(np.sqrt(x) * 3))(x), before * 1.5)
    check_in_child(check)
    assert f(x) == before


@pytest.mark.parametrize("f", [
    lambda x: np.sum(x), lambda x: np.sum(x, axis=0), lambda x: np.sum(x, axis=1),
    lambda x: np.exp(x - np.max(x, axis=1, keepdims=True)), lambda x: x @ x[:500].T, lambda x: np.cumsum(x, axis=0),
    lambda x: np.var(x, axis=0), lambda x: np.sort(x, axis=1),
])
def test_results_are_bit_equal_across_calls_and_numbers_of_threads(f):
    x = np.random.default_rng(0).normal(size=(1500, 500)).astype(np.float32)
    g = lw.jit(f)
    bits = []
    try:
        for count in (1, 2, 3):
            set_threads(count)
            bits += [g(x).tobytes(), g(x).tobytes()]
    finally:
        set_threads(None)
    assert len(set(bits)) == 1
