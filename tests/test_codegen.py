"""Nests on their own: every elementwise function on every dtype at every tail, reductions, addressing, errors, targets."""
import dataclasses
import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.dims import symbol
from loopwright.ir.errors import DTypeError
from loopwright.ir.loops import Apply, Bounded, Index, Literal, Load, Local, Reduce, Size, When, integer, less, minus, plus
from loopwright.ir.nest import Allocate, Buffer, For, Let, Nest, Reduction, Scan, Store
from loopwright.ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTEGERS,
    SHORT,
    U8,
    U64,
    is_float,
)
from loopwright.lower.codegen import emit_nest, folds, streams, tiles
from loopwright.lower.codegen.machine import memory_type, vector_type
from loopwright.lower.codegen.memory import HALVED
from loopwright.lower.runtime.lazy import llvm
from loopwright.lower.target import Target, host_target
from tests.kernels import compile_nest, elementwise_nest, module_text, run_elementwise, target_of
from tests.memory import before_nobodys
from tests.scale import examples

N, M, K = symbol("n"), symbol("m"), symbol("k")
I, J, R = Index("i"), Index("j"), Index("r")  # noqa: E741
NUMPY = {"neg": np.negative, "div": np.divide, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
         "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
         "bitwise_not": np.invert}
UNARY_FLOAT = ("neg", "abs", "sign", "floor", "ceil", "trunc", "rint", "sqrt", "isnan", "isinf", "isfinite", "signbit")
BINARY_FLOAT = ("add", "sub", "mul", "div", "max", "min", "fmax", "fmin", "copysign", "nextafter", "eq", "ne", "lt", "le", "gt",
                "ge", "fmod", "remainder", "floor_divide")
UNARY_INTEGER = ("neg", "abs", "sign", "bitwise_not")
BINARY_INTEGER = ("add", "sub", "mul", "floor_divide", "remainder", "fmod", "max", "min", "bitwise_and", "bitwise_or",
                  "bitwise_xor", "left_shift", "right_shift", "eq", "lt", "ge")
BINARY_BOOL = ("add", "mul", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt")
MASKS = ("isnan", "isinf", "isfinite", "signbit", "eq", "ne", "lt", "le", "gt", "ge")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-7, 6e-8, 65504.0, 1e38, -1e-45]
WIDTHS = (512, 256, 128)


def values(dtype, n, seed=0):
    """n values of dtype, the special ones often among them."""
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return rng.integers(0, 2, n).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        edges = rng.choice(np.array([info.min, info.max, 0, 1, 2, 3, info.max // 2, 7], dtype), n)
        edges = np.where(rng.random(n) < 0.2, np.array(-1).astype(dtype), edges)
        spread = rng.integers(info.min, info.max, n, endpoint=True, dtype=dtype)
        return np.where(rng.random(n) < 0.5, edges, spread).astype(dtype)
    with np.errstate(all="ignore"):
        return np.where(rng.random(n) < 0.4, rng.choice(SPECIAL, n), rng.normal(size=n) * 5).astype(dtype)


def numpy_of(fn):
    return NUMPY.get(fn) or getattr(np, fn)


def equal(got, wanted):
    """Bit for bit, but for the sign and payload of NaN."""
    if got.dtype not in FLOATS:
        return np.array_equal(got, wanted)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def check_tails(fn, dtype, arity, target):
    lanes = target.lanes(dtype)
    result = BOOL if fn in MASKS else dtype
    f = run_elementwise(fn, [np.zeros(1, dtype)] * arity, result, target, unroll=2)
    for n in (0, 1, lanes - 1, lanes, lanes + 1, 1000):
        args = [values(dtype, n, seed=n + 7 * k) for k in range(arity)]
        with np.errstate(all="ignore"):
            wanted = numpy_of(fn)(*args).astype(result)
            if fn == "sign":
                wanted = wanted + np.zeros((), dtype)  # ml_dtypes gives -0 for -0 where NumPy's own floats give 0
        if fn in ("max", "min", "fmax", "fmin"):  # which zero wins is the machine's choice in NumPy
            args = [a + np.zeros((), a.dtype) if dtype in FLOATS else a for a in args]
            with np.errstate(all="ignore"):
                wanted = numpy_of(fn)(*args)
        got, error = f(*args)
        assert error == [0, 0, 0, 0]
        assert equal(got, wanted), [(*x, g, w) for *x, g, w in zip(*args, got, wanted, strict=True) if not equal(
            np.array([g]), np.array([w]))][:5]


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype, bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    for fn in UNARY_FLOAT:
        check_tails(fn, dtype, 1, target)
    for fn in BINARY_FLOAT:
        if dtype == BF16 and fn in ("fmod", "remainder", "floor_divide"):
            continue  # ml_dtypes defines these for bfloat16 by other steps: test_compiled_ops compares them in f32
        check_tails(fn, dtype, 2, target)


@pytest.mark.parametrize("fn", ["max", "min"])
@pytest.mark.parametrize("known", [0.0, -0.0, 1.5, np.inf, np.nan])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_extremes_with_a_known_number(fn, known, dtype):
    """NaN wins, and of equal zeros the first operand."""
    x = np.array([np.nan, -np.inf, -1, -0.0, 0.0, 1.5, 2, np.inf] * 5, dtype)
    nest = elementwise_nest(fn, [dtype], dtype, host_target().lanes(dtype), literal=Literal(known, dtype))
    got = np.zeros_like(x)
    assert compile_nest(nest, host_target())(x, got, sizes=(x.size,)) == [0, 0, 0, 0]
    relation = np.greater_equal if fn == "max" else np.less_equal
    wanted = np.where(relation(x, known) | np.isnan(x), x, dtype.type(known))
    assert equal(got, wanted)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype, bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    for fn in UNARY_INTEGER:
        check_tails(fn, dtype, 1, target)
    for fn in BINARY_INTEGER:
        check_tails(fn, dtype, 2, target)


def test_bools():
    for fn in BINARY_BOOL:
        check_tails(fn, BOOL, 2, host_target())


@pytest.mark.parametrize("bits", WIDTHS)
def test_conversions(bits, monkeypatch):
    """Every pair of dtypes; out of range floats saturate and NaN is 0."""
    target = target_of(bits, monkeypatch)
    real = [d for d in DTYPES if d.kind != "c"]
    for source, to in itertools.product(real, real):
        if source == to:
            continue
        x = values(source, 100)
        got, _ = run_elementwise("convert", [x], to, target)(x)
        with np.errstate(all="ignore"):
            wanted = saturated(x, to) if source in FLOATS and to in INTEGERS else x.astype(to)
        assert equal(got, wanted), (source, to, [t for t in zip(x, got, wanted, strict=True) if not equal(
            np.array([t[1]]), np.array([t[2]]))][:4])


def saturated(x, to):
    info = np.iinfo(to)
    wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.array([info.max if v >= info.max else info.min if v <= info.min else int(v) for v in wide], to)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers(dtype):
    rng = np.random.default_rng(0)
    x, y = values(dtype, 100), rng.integers(0, 9, 100).astype(dtype)
    f = run_elementwise("power", [x, y], dtype, host_target())
    got, error = f(x, y)
    assert np.array_equal(got, x ** y) and not any(error)
    if dtype.kind == "i":
        y[40] = -2
        assert f(x, y)[1] == [1, 0, -1, 0]


def test_a_function_that_numpy_does_not_have():
    with pytest.raises(DTypeError, match="bitwise_not on float32"):
        run_elementwise("bitwise_not", [np.zeros(1, F32)], F32, host_target())


# ---- reductions ---------------------------------------------------------------------------------
X2 = Buffer("x", (N, M), F32, "input")


def load(name, *index, dtype=F32):
    return Load(name, index, dtype)


def out(*shape, dtype=F32):
    return Buffer("y", shape, dtype, "output")


def row_reduction(monoid, dtype, result, lanes, unroll):
    fold = Reduction("s", monoid, ((J, M),), load("x", I, J, dtype=dtype), result, lanes, unroll)
    return Nest("rows", (Buffer("x", (N, M), dtype, "input"), out(N, dtype=result)), ("n", "m"),
                (For(I, N, (fold, Store("y", (I,), Local("s", result)))),))


SHAPES = ((3, 1), (2, 15), (4, 16), (2, 17), (3, 129), (20, 1000))


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [F32, F64, F16, I8, I32, U64], ids=str)
def test_row_reductions(monoid, dtype, bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    result = I64 if monoid.startswith("arg") else dtype
    lanes = min(target.lanes(dtype), target.lanes(F32)) if dtype == F16 else target.lanes(dtype)
    for unroll in (1, 4):
        f = compile_nest(row_reduction(monoid, dtype, result, lanes, unroll), target)
        for n, m in SHAPES:
            x = np.random.default_rng(m).integers(0 if dtype == U64 else -4, 5, (n, m)).astype(dtype)
            if dtype in FLOATS and monoid == "prod":
                x = np.sign(x) * dtype.type(1)
            for case in range(2 if dtype in FLOATS else 1):
                if case:
                    x[:, m // 2] = np.nan
                y = np.zeros(n, result)
                f(x, y, sizes=(n, m))
                keyword = {} if monoid in ("max", "min", "argmax", "argmin") else {"dtype": dtype}
                assert np.array_equal(y, getattr(np, monoid)(x, axis=1, **keyword), equal_nan=dtype in FLOATS and result != I64)


@pytest.mark.parametrize("dtype", [F32, F64, I8], ids=str)
def test_positions_of_rows_of_more_turns_than_are_counted(dtype, monkeypatch):
    """After so many turns the numbers of vectors begin anew; among equals, and among NaNs, the first counts."""
    monkeypatch.setattr(folds, "COUNTED", 3)
    rng, target = np.random.default_rng(5), host_target()
    f = {m: compile_nest(row_reduction(m, dtype, I64, target.lanes(dtype), 4), target) for m in ("argmax", "argmin")}
    for n in (1, 63, 64, 700, 5000):
        x = rng.integers(0, 40, (30, n)).astype(dtype)
        if is_float(dtype):
            x[rng.random((30, n)) < 1 / n] = np.nan
        for monoid, kernel in f.items():
            got = np.zeros(30, I64)
            kernel(x, got, sizes=(30, n))
            assert np.array_equal(got, getattr(np, monoid)(x, axis=1)), (monoid, n)


def test_argmax_of_nothing_but_the_identity():
    f = compile_nest(row_reduction("argmax", F32, I64, 16, 4), host_target())
    for m in (1, 5, 16, 100):
        y = np.full(2, 9)
        f(np.full((2, m), -np.inf, F32), y, sizes=(2, m))
        assert list(y) == [0, 0]


def test_any_and_all():
    for monoid in ("any", "all"):
        f = compile_nest(row_reduction(monoid, BOOL, BOOL, 64, 2), host_target())
        for n, m in ((3, 0), *SHAPES):
            x = np.random.default_rng(m).random((n, m)) < (0.01 if monoid == "any" else 0.99)
            y = np.zeros(n, bool)
            f(x, y, sizes=(n, m))
            assert np.array_equal(y, getattr(x, monoid)(axis=1))


@pytest.mark.parametrize("m", [0, 1, 100, 4097, 300_001, 3_000_001])
def test_sums_are_as_accurate_as_pairwise(m):
    x = np.random.default_rng(0).random((1, m)).astype(F32)
    for lanes, unroll in ((16, 8), (16, 1), (1, 1)):
        y = np.zeros(1, F32)
        compile_nest(row_reduction("sum", F32, F32, lanes, unroll), host_target())(x, y, sizes=(1, m))
        assert abs(float(y[0]) - x.astype(F64).sum()) <= 4e-7 * max(m, 1) / 2


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("bits", WIDTHS)
def test_column_sums(bits, by_rows, monkeypatch):
    target = target_of(bits, monkeypatch)
    body = Store("y", (J,), Reduce("sum", ((I, N),), load("x", I, J), F32))
    columns = For(J, M, (body,), target.lanes(F32), 4, by_rows=by_rows)
    f = compile_nest(Nest("columns", (X2, out(M)), ("n", "m"), (columns,)), target)
    for n, m in ((3, 0), (0, 5), (2, 1), (3, 15), (1000, 16), (2, 17), (30000, 70), (40, 7001), (7, 300), (9, 256), (517, 259)):
        x = np.random.default_rng(n).random((n, m)).astype(F32)
        y = np.ones(m, F32)
        f(x, y, sizes=(n, m))
        assert np.allclose(y, x.astype(F64).sum(0), rtol=1e-6)


def transposing(dtype, target):
    """y = x.T in tiles."""
    inner = For(J, M, (Store("y", (I, J), Load("x", (J, I), dtype)),), target.lanes(dtype), 4)
    return Nest("tiles", (Buffer("x", (M, N), dtype, "input"), Buffer("y", (N, M), dtype, "output")), ("n", "m"),
                (For(I, N, (inner,), parallel=True, tiled=True),))


@pytest.mark.parametrize("dtype", [U8, F32, F64])
@pytest.mark.parametrize("bits", WIDTHS)
def test_tiles(dtype, bits, monkeypatch):
    """Of any part of one, rows and columns that are there are read and written, no others."""
    target = target_of(bits, monkeypatch)
    nest = transposing(dtype, target)
    f, place, place_result = compile_nest(nest, target), before_nobodys(1 << 20), before_nobodys(1 << 20)
    for n, m in ((0, 3), (3, 0), (1, 1), (8, 16), (33, 17), (16, 1041), (5, 70), (70, 5), (21, 52), (13, 11), (300, 301)):
        x = place(np.random.default_rng(n).integers(0, 100, (m, n)).astype(dtype))
        y = place_result(np.ones((n, m), dtype))
        f(x, y, sizes=(n, m))
        assert np.array_equal(y, x.T)


@pytest.mark.parametrize("dtype", [U8, F32, F64])
@pytest.mark.parametrize("bits", WIDTHS)
def test_tiles_of_large_results_go_past_the_caches(dtype, bits, monkeypatch):
    """Where their rows begin lines; others are stored as ever."""
    target = target_of(bits, monkeypatch)
    monkeypatch.setattr(streams, "PAST_CACHES", 1)
    nest = transposing(dtype, target)
    assert ("!nontemporal" in emit_nest(nest, target).text) == target.is_x86
    f = compile_nest(nest, target)
    for n, m, offset in ((64, 64, 0), (64, 128, 4), (130, 1088, 0), (130, 1090, 0), (300, 192, 0)):
        x = np.random.default_rng(n).integers(0, 100, (m, n)).astype(dtype)
        y = aligned(n * m + offset, dtype)[offset:].reshape(n, m)
        f(x, y, sizes=(n, m))
        assert np.array_equal(y, x.T)


@pytest.mark.parametrize("dtype", [U8, F32, F64])
@pytest.mark.parametrize("bits", WIDTHS)
def test_tiles_of_large_arrays_read_them_in_the_order_of_memory_first(dtype, bits, monkeypatch):
    """All of the array that lies in the rows and columns of a block, and nothing outside it."""
    target = target_of(bits, monkeypatch)
    monkeypatch.setattr(tiles, "FAR", 1)
    nest = transposing(dtype, target)
    f, place = compile_nest(nest, target), before_nobodys(1 << 23)
    for n, m in ((0, 70), (64, 64), (63, 300), (130, 520), (1041, 77), (700, 1100)):
        x, y = place(np.random.default_rng(n).integers(0, 100, (m, n)).astype(dtype)), np.ones((n, m), dtype)
        f(x, y, sizes=(n, m))
        assert np.array_equal(y, x.T)


def test_what_is_read_beside_a_large_transposed_array_is_asked_for(monkeypatch):
    monkeypatch.setattr(tiles, "FAR", 1)
    for f in (lambda x, y: x.T + y * 0.8161, lambda x, y: x.T * y + x.T, lambda x, y: x.T + y[:, :1] + y[0]):
        compiled = lw.jit(f)
        for n, m in ((64, 64), (70, 333), (513, 130)):
            x, y = np.random.default_rng(n).normal(size=(m, n)), np.random.default_rng(m).normal(size=(n, m))
            np.testing.assert_allclose(compiled(x, y), f(x, y), rtol=1e-14)
    asked = lw.jit(lambda x, y: x.T + y * 0.8162).lower(x, y).llvm
    assert "llvm.prefetch" in asked
    assert "llvm.prefetch" not in lw.jit(lambda x: x.T * 0.8162).lower(x).llvm


def aligned(size, dtype):
    """An array that begins a line."""
    raw = np.ones(size * dtype.itemsize + 64, "u1")
    first = -raw.ctypes.data % 64
    return raw[first:first + size * dtype.itemsize].view(dtype)


@pytest.mark.parametrize("bits", WIDTHS)
def test_matrix_product(bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    a, b = Buffer("a", (N, K), F32, "input"), Buffer("b", (K, M), F32, "input")
    term = Apply("mul", (load("a", I, R), load("b", R, J)), F32)
    body = Store("y", (I, J), Reduce("sum", ((R, K),), term, F32))
    loops = For(I, N, (For(J, M, (body,), target.lanes(F32), 4),), parallel=True)
    f = compile_nest(Nest("product", (a, b, out(N, M)), ("n", "m", "k"), (loops,)), target)
    for n, m, k in ((33, 71, 50), (1, 1, 1), (2, 3, 0), (0, 4, 5), (100, 100, 100)):
        x, w = (np.random.default_rng(0).normal(size=s).astype(F32) for s in ((n, k), (k, m)))
        y = np.ones((n, m), F32)
        f(x, w, y, sizes=(n, m, k))
        assert np.allclose(y, x @ w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("columns", [M, 24], ids=["symbolic", "known"])
def test_softmax_rows(columns, parallel):
    """A maximum, exponentials kept in a local row while they are summed, and a division."""
    lanes = host_target().lanes(F32)
    exponential = Apply("exp", (Apply("sub", (load("x", I, J), Local("top", F32)), F32),), F32)
    body = (
        Allocate(Buffer("row", (columns,), F32, "local")),
        Reduction("top", "max", ((J, columns),), load("x", I, J), F32, lanes, 4),
        Reduction("total", "sum", ((J, columns),), load("row", J), F32, lanes, 2, also=(Store("row", (J,), exponential),)),
        Let("inverse", Apply("div", (Literal(1.0, F32), Local("total", F32)), F32)),
        For(J, columns, (Store("y", (I, J), Apply("mul", (load("row", J), Local("inverse", F32)), F32)),), lanes, 4),
    )
    nest = Nest("softmax", (Buffer("x", (N, columns), F32, "input"), out(N, columns)), ("n", "m"),
                (For(I, N, body, parallel=parallel),))
    if columns is M:
        assert "@lw_scratch_acquire" in emit_nest(nest, host_target()).text
        return
    f = compile_nest(nest, host_target())
    for n in (0, 1, 7, 5000):
        x = np.random.default_rng(n).normal(size=(n, 24)).astype(F32) * 9
        y = np.zeros_like(x)
        f(x, y, sizes=(n, 24))
        e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
        assert np.allclose(y, e / e.sum(1, keepdims=True), rtol=2e-6, atol=1e-12)


# ---- division by one number ---------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@examples(60)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["any", "near", "special", "middle", "ends"]))
def test_division_by_one_number_rounds_as_division(dtype, kind, seed):
    """Bit for bit: patterns of all exponents, dividends that are products of the divisor and their neighbours, specials; and
    where no vector is divided: dividends of all exponents in the middle half, or of the first and last of them."""
    rng, unsigned = np.random.default_rng(seed), np.dtype(f"u{dtype.itemsize}")
    y = rng.integers(0, np.iinfo(unsigned).max, 1, unsigned).view(dtype) if kind == "any" else rng.normal(size=1).astype(dtype)
    if kind == "special":
        y = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max, -np.finfo(dtype).tiny, 3], dtype), 1)
    x = rng.integers(0, np.iinfo(unsigned).max, 999, unsigned).view(dtype)
    with np.errstate(all="ignore"):
        if kind == "near":
            x = np.nextafter(rng.normal(size=999).astype(dtype) * y, rng.choice(np.array([-1, 0, 1], dtype), 999) * np.inf)
        if kind in ("middle", "ends"):
            half, limit = (64, 60) if dtype == F32 else (512, 500)
            pick = (lambda low, high, n: rng.integers(low, high, n)) if kind == "middle" else \
                (lambda low, high, n: rng.choice([low, high - 1], n))
            x, y = (np.ldexp((1 + rng.random(n)) * rng.choice([-1, 1], n), pick(*ends, n)).astype(dtype)
                    for n, ends in ((999, (1 - half, half)), (1, (-limit, limit - 1))))
            x[-3:] = [0.0, np.inf, np.nan]
        else:
            x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).smallest_subnormal]
        want = x / y
    got = np.empty_like(x)
    _by_one_number(dtype)(x, y, got, sizes=(len(x),))
    different = (got.view(unsigned) != want.view(unsigned)) & ~(np.isnan(got) & np.isnan(want))
    assert not different.any(), (x[different][0], y, got[different][0], want[different][0])


@functools.cache
def _by_one_number(dtype):
    quotient = Apply("div", (Load("x", (I,), dtype), Load("d", (integer(0),), dtype)), dtype)
    loop = For(I, N, (Store("y", (I,), quotient),), host_target().lanes(dtype), 2)
    buffers = (Buffer("x", (N,), dtype, "input"), Buffer("d", (1,), dtype, "input"), Buffer("y", (N,), dtype, "output"))
    target = host_target()
    if target.divides_soon:  # what other processors do is tested there, too
        target = dataclasses.replace(target, cpu="znver4")
    return compile_nest(Nest("quotients", buffers, ("n",), (loop,)), target)


# ---- addresses, masks, errors -------------------------------------------------------------------
INDICES = Buffer("indices", (N,), I64, "input")
SOURCE = Buffer("source", (M,), F32, "input")


@pytest.mark.parametrize("bits", WIDTHS)
def test_gather_reports_the_first_index_out_of_range(bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    at = Bounded(load("indices", I, dtype=I64), M, 0, 6)
    nest = Nest("gather", (INDICES, SOURCE, out(N)), ("n", "m"),
                (For(I, N, (Store("y", (I,), load("source", at)),), target.lanes(F32), 2),))
    f = compile_nest(nest, target)
    source = np.random.default_rng(0).normal(size=50).astype(F32)
    for n in (0, 1, 15, 16, 17, 100):
        indices, y = np.random.default_rng(n).integers(0, 50, n), np.zeros(n, F32)
        assert f(indices, source, y, sizes=(n, 50)) == [0, 0, 0, 0]
        assert np.array_equal(y, source[indices])
    indices[77], indices[80], indices[99] = 50, -3, 51
    assert f(indices, source, y, sizes=(100, 50)) == [7, 50, 0, 50]
    assert f(indices, source, y, sizes=(77, 50)) == [0, 0, 0, 0]
    assert f(indices, np.zeros(0, F32), y, sizes=(5, 0))[0] == 7


@pytest.mark.parametrize("bits", WIDTHS)
def test_padding_loads_nothing_outside(bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    inside = Apply("bitwise_and", (Apply("le", (Literal(2, I64), I), BOOL), less(I, Size(N + 2))), BOOL)
    value = When(inside, load("x", plus(I, Literal(-2, I64))), Literal(9.0, F32))
    nest = Nest("pad", (Buffer("x", (N,), F32, "input"), out(N + 5)), ("n",),
                (For(I, N + 5, (Store("y", (I,), value),), target.lanes(F32), 2),))
    f = compile_nest(nest, target)
    for n in (0, 1, 15, 16, 17, 100):
        x, y = np.random.default_rng(n).normal(size=n).astype(F32), np.zeros(n + 5, F32)
        f(x, y, sizes=(n,))
        assert np.array_equal(y, np.pad(x, (2, 3), constant_values=9))


@pytest.mark.parametrize("dtype", [F32, U8, F64, BOOL, F16, BF16], ids=str)
@pytest.mark.parametrize("bits", WIDTHS)
def test_reversed_strided_and_transposed_loads(dtype, bits, monkeypatch):
    target = target_of(bits, monkeypatch)
    lanes = min(16, target.lanes(dtype))
    x2 = Buffer("x", (N, M), dtype, "input")
    n, m = 37, 53
    x = values(U8, n * m).reshape(n, m).astype(dtype)
    views = {
        "reversed": (load("x", I, minus(Size(M - 1), J), dtype=dtype), (N, M), x[:, ::-1]),
        "transposed": (load("x", J, I, dtype=dtype), (M, N), x.T),
        "strided": (load("x", I, Apply("mul", (J, Literal(2, I64)), I64), dtype=dtype), (N, M // 2), x[:, :m // 2 * 2:2]),
    }
    for value, shape, wanted in views.values():
        nest = Nest("view", (x2, out(*shape, dtype=dtype)), ("n", "m"),
                    (For(I, shape[0], (For(J, shape[1], (Store("y", (I, J), value),), lanes, 2),)),))
        y = np.zeros(wanted.shape, dtype)
        compile_nest(nest, target)(x, y, sizes=(n, m))
        assert y.tobytes() == wanted.tobytes()


def test_scatter_skips_and_adds():
    at = Bounded(load("indices", I, dtype=I64), M, 0)
    nest = Nest("scatter", (INDICES, Buffer("v", (N,), F32, "input"), out(M)), ("n", "m"), (
        For(J, M, (Store("y", (J,), Literal(0.0, F32)),), 16),
        For(I, N, (Store("y", (at,), load("v", I), "add", when=less(I, Literal(60, I64))),))))
    indices, v = np.random.default_rng(0).integers(0, 50, 100), np.random.default_rng(1).normal(size=100).astype(F32)
    indices[70] = 99
    y, wanted = np.ones(50, F32), np.zeros(50, F32)
    assert compile_nest(nest, host_target())(indices, v, y, sizes=(100, 50)) == [0, 0, 0, 0]
    np.add.at(wanted, indices[:60], v[:60])
    assert np.array_equal(y, wanted)


def test_scatter_with_lanes_keeps_the_last_update():
    at = Bounded(load("indices", I, dtype=I64), M, 0)
    nest = Nest("scatter", (INDICES, Buffer("v", (N,), F32, "input"), out(M)), ("n", "m"),
                (For(I, N, (Store("y", (at,), load("v", I), when=less(I, Literal(90, I64))),), 16),))
    indices, v = np.random.default_rng(0).integers(0, 20, 100), np.arange(100).astype(F32)
    y, wanted = np.zeros(20, F32), np.zeros(20, F32)
    compile_nest(nest, host_target())(indices, v, y, sizes=(100, 20))
    for k in range(90):
        wanted[indices[k]] = v[k]
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize("dtype", [F32, F16, I8], ids=str)
def test_scans_along_and_across_lanes(dtype):
    x = np.random.default_rng(0).integers(-4, 4, (37, 53)).astype(dtype)
    buffers = (Buffer("x", (N, M), dtype, "input"), out(N, M, dtype=dtype))
    along = For(I, N, (Scan("sum", J, M, load("x", I, J, dtype=dtype), "y", (I, J), dtype),))
    across = For(J, M, (Scan("prod", I, N, load("x", I, J, dtype=dtype), "y", (I, J), dtype),), 16, 2)
    with np.errstate(all="ignore"):
        cases = ((along, x.cumsum(1, dtype=dtype)), (across, x.cumprod(0, dtype=dtype)))
    for loop, wanted in cases:
        y = np.zeros_like(x)
        compile_nest(Nest("scan", buffers, ("n", "m"), (loop,)), host_target())(x, y, sizes=x.shape)
        assert np.array_equal(y, wanted, equal_nan=dtype in FLOATS)


def test_a_parallel_loop_with_lanes_gives_the_same_bits_in_chunks():
    value = Apply("sin", (load("x", I),), F32)
    nests = [Nest("chunks", (Buffer("x", (N,), F32, "input"), out(N)), ("n",),
                  (For(I, N, (Store("y", (I,), value),), 16, 2, parallel=p),)) for p in (False, True)]
    x = np.random.default_rng(0).normal(size=300_001).astype(F32)
    results = []
    for nest in nests:
        results.append(np.zeros_like(x))
        compile_nest(nest, host_target())(x, results[-1], sizes=(len(x),))
    assert results[0].tobytes() == results[1].tobytes()


# ---- other machines -----------------------------------------------------------------------------
def test_text_for_arm_assembles():
    binding = llvm()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = Target("aarch64-unknown-linux-gnu", "generic", "+neon", 128)
    machine = binding.Target.from_triple(target.triple).create_target_machine(cpu=target.cpu, features=target.features)
    body = Store("y", (I,), Apply("power", (Apply("sin", (load("x", I),), F32), load("x", I)), F32))
    for nest in (Nest("waves", (Buffer("x", (N,), F32, "input"), out(N)), ("n",), (For(I, N, (body,), 4, 2),)),
                 row_reduction("argmax", F16, I64, 4, 2), row_reduction("sum", F64, F64, 2, 4)):
        module = binding.parse_assembly(module_text(nest, target))
        module.triple = target.triple
        module.verify()
        assert machine.emit_assembly(module)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8])
def test_both_numbers_of_pairs_are_loaded_once(dtype):
    """As vectors that lie beside each other, or halves of them, for each that is stored."""
    x = np.random.default_rng(0).integers(0, 100, (1003, 2)).astype(dtype)
    f = lw.jit(lambda x: x[:, 1] * x.dtype.type(2) + x[:, 0], shapes="n 2")
    target, element = host_target(), memory_type(np.dtype(dtype))
    lanes = target.lanes(np.dtype(dtype))
    parts = 1 + (target.is_short_of_registers and (lanes, np.dtype(dtype).itemsize) == HALVED)
    kind, read = vector_type(element, lanes), vector_type(element, lanes // parts)
    text = f.lower(x).llvm
    loop = text[text.index("@kernel_0_range0("):].partition("\n}\n")[0]
    assert loop.count(f"load {read}, ptr") == 2 * parts * loop.count(f"store {kind} ") > 0
    assert np.array_equal(f(x), x[:, 1] * x.dtype.type(2) + x[:, 0])


def test_every_dtype_has_lanes():
    assert [host_target().lanes(d) * max(d.itemsize, 1) for d in DTYPES if d.kind != "c"] == [
        host_target().vector_bits // 8] * (len(SHORT) - 2)


def test_numbers_of_a_few_lie_in_registers():
    """Loops find them there; where there are more, LLVM decides."""
    few = lw.jit(lambda x: np.maximum(x * 3 + 2, 1)).lower(np.ones((3, 50), np.float32)).llvm
    many = lw.jit(lambda x: np.tanh(np.sin(x)) + np.log1p(x) * np.exp(x)).lower(np.ones(50, np.float32)).llvm
    kernel = few[few.index("define internal"):]
    assert "splat (float" not in kernel and "splat (i32" not in kernel and kernel.count("load ptr, ptr @numbers_") >= 1
    assert "splat (" in many


def test_one_number_in_vectors_of_several_widths_and_kinds():
    def f(x, y):
        return np.where(y > 3, x * np.float32(3) + y * 3, np.float64(3)), (y * 3) & 3, np.sum(x * np.float32(3), axis=-1)
    x = np.linspace(-1, 1, 7 * 37, dtype=np.float32).reshape(7, 37)
    y = np.arange(7 * 37, dtype=np.int32).reshape(7, 37)
    for a, b in zip(lw.jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "int64"])
def test_ends_of_rows_of_every_length(dtype):
    """What fills no vector, as each processor does it: masked, in fewer lanes, element by element, in parts."""
    f = lw.jit(lambda x, v: (np.where(x > v, x, v), x[:, 1:] != v[1:]))
    rng = np.random.default_rng(0)
    for n in range(1, 71):
        x, v = (rng.integers(0, 9, shape).astype(dtype) for shape in ((3, n), (n,)))
        got, other = f(x, v)
        np.testing.assert_array_equal(got, np.where(x > v, x, v), strict=True)
        np.testing.assert_array_equal(other, x[:, 1:] != v[1:], strict=True)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32"])
def test_folds_of_rows_of_every_length(dtype):
    def folds(x):
        return np.max(x, 1), np.min(x, 1), np.any(x, 1), np.all(x > 1, 1), np.sum(x, 1), np.count_nonzero(x, axis=1)
    f = lw.jit(folds)
    rng = np.random.default_rng(0)
    for n in (*range(1, 42), 47, 63, 64, 65, 100, 257):
        x = rng.integers(-3 if dtype[0] == "i" else 0, 9, (5, n)).astype(dtype)
        for got, expected in zip(f(x), folds(x), strict=True):
            np.testing.assert_array_equal(got, expected)
        for g in (np.max, np.any):
            np.testing.assert_array_equal(lw.jit(lambda x, g=g: g(x, 1))(x), g(x, 1))
