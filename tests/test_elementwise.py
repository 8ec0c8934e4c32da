"""Elementwise ops at the edges: every dtype, NaN, infinities, signed zeros, denormals, extremes of integers, kinks."""
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from loopwright.autodiff.jvp import push, zeros
from loopwright.ir.builder import build
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.interpreter import evaluate
from loopwright.ir.loop_interpreter import run_loop
from loopwright.ir.ops import TABLE
from loopwright.ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
    COMPLEX,
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
    ArrayType,
)

UFUNCS = {
    "neg": np.negative, "abs": np.absolute, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "rint": np.rint, "sqrt": np.sqrt, "cbrt": np.cbrt, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite, "signbit": np.signbit, "bitwise_not": np.invert, "conj": np.conjugate,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "floor_divide": np.floor_divide,
    "remainder": np.remainder, "fmod": np.fmod, "power": np.power, "max": np.maximum, "min": np.minimum, "fmax": np.fmax,
    "fmin": np.fmin, "arctan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "nextafter": np.nextafter,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "left_shift": np.left_shift, "right_shift": np.right_shift,
}
INEXACT = (*FLOATS, *COMPLEX)
ACCEPTED = {
    **dict.fromkeys(("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos",
                     "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "div", "isnan", "isinf", "isfinite"),
                    INEXACT),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint", "cbrt", "hypot", "arctan2", "copysign", "nextafter", "signbit", "erf"),
                    FLOATS),
    **dict.fromkeys(("sign", "floor_divide", "remainder", "fmod"), (*INTEGERS, *FLOATS)),
    **dict.fromkeys(("neg", "abs", "sub", "power"), (*INTEGERS, *INEXACT)),
    **dict.fromkeys(("max", "min", "fmax", "fmin", "lt", "le"), (BOOL, *INTEGERS, *FLOATS)),
    **dict.fromkeys(("add", "mul", "eq", "ne"), DTYPES),
    **dict.fromkeys(("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"), (BOOL, *INTEGERS)),
    **dict.fromkeys(("left_shift", "right_shift"), INTEGERS),
    **dict.fromkeys(("real", "imag", "conj"), COMPLEX),
}
ARITY = {name: f.nin for name, f in UFUNCS.items()} | dict.fromkeys(("erf", "real", "imag"), 1)
PAIRS = [(name, dtype) for name in ACCEPTED for dtype in DTYPES]


def specials(dtype: np.dtype) -> np.ndarray:
    """The numbers of a dtype where rules go wrong."""
    if dtype == BOOL:
        return np.array([False, True])
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return np.array(sorted({info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 3, 7, 64, 100,
                                *((-1, -2, -7, -64) if info.min else ())}), dtype)
    finite = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 7.25, 88.0, 300.0, 60000.0]
    parts = np.array([*finite, *(-x for x in finite), np.inf, -np.inf, np.nan])
    if dtype in COMPLEX:
        few = parts[[0, 1, 4, 9, 13, 15, 20, -3, -2, -1]]
        z = np.empty((10, 10), dtype)
        z.real, z.imag = few[:, None], few
        return z.ravel()
    smallest = np.array([1, 2, 3], f"u{dtype.itemsize}").view(dtype)  # denormals
    return np.concatenate([parts.astype(dtype), smallest, -smallest])


def operands(name: str, dtype: np.dtype) -> list[np.ndarray]:
    """Every special number, or every pair of them."""
    x = specials(dtype)
    if ARITY[name] == 1:
        return [x]
    x = x[::5] if dtype in COMPLEX else x
    a, b = (np.ascontiguousarray(y.ravel()) for y in np.meshgrid(x, x, indexing="ij"))
    if name == "power" and dtype in INTEGERS:
        return [a[b >= 0], b[b >= 0]]
    return [a, b]


def run(name: str, *args: np.ndarray, **attrs: object) -> np.ndarray:
    """The op as a graph of one node, by the interpreter: warnings would be errors."""
    g = build(lambda *refs: [TABLE[name](*refs, **attrs)], [ArrayType(x.shape, x.dtype) for x in args])
    return evaluate(g, args)[0]


def bits(x: np.ndarray) -> np.ndarray:
    """Equal exactly where the numbers are the same, zeros with their signs, NaN as one number."""
    if x.dtype in COMPLEX:
        return bits(x.view(F32 if x.dtype == C64 else F64))
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x).view(f"u{x.dtype.itemsize}") if x.dtype in INEXACT else x


@pytest.mark.parametrize(("name", "dtype"), PAIRS, ids=lambda p: SHORT.get(p, p))
def test_dtypes_are_accepted_or_refused_by_name(name, dtype):
    types = [ArrayType((3,), dtype)] * ARITY[name]
    if dtype in ACCEPTED[name]:
        assert TABLE[name].dtype(*types) == run(name, *[np.ones(3, dtype)] * ARITY[name]).dtype
    else:
        with pytest.raises(DTypeError, match=name):
            TABLE[name].dtype(*types)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, d in PAIRS if n in UFUNCS and d in ACCEPTED[n]],
                         ids=lambda p: SHORT.get(p, p))
def test_values_are_numpys(name, dtype):
    args = operands(name, dtype)
    got = run(name, *args)
    with np.errstate(all="ignore"):
        if dtype == BF16 and name != "nextafter":
            want = UFUNCS[name](*[x.astype(F32) for x in args])
            want = want.astype(BF16) if want.dtype == F32 else want
        else:
            want = UFUNCS[name](*args)
        if name == "nextafter":  # before NumPy 2.5 the first of two zeros of f16
            want = np.where(args[0] == args[1], args[1], want)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, d in PAIRS if d in ACCEPTED[n]], ids=lambda p: SHORT.get(p, p))
def test_scalars_mean_what_arrays_mean(name, dtype):
    args = [x[::7] for x in operands(name, dtype)]
    got, want = run_loop(TABLE[name], args), run(name, *args)
    if dtype in (BOOL, *INTEGERS) or got.dtype == BOOL:
        np.testing.assert_array_equal(got, want)
    else:  # NumPy's vector and scalar code may differ in the last place
        wide = np.complex128 if got.dtype in COMPLEX else np.float64
        tolerance = 8 * {BF16: 2.0**-8, F16: 2.0**-11, F32: 2.0**-24, C64: 2.0**-24}.get(dtype, 2.0**-53)
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=1e-300)


# ---- integers ---------------------------------------------------------------------------------------
def wrapped(x: int, dtype: np.dtype) -> int:
    """x modulo 2^width, in the dtype's range."""
    info = np.iinfo(dtype)
    return (x - int(info.min)) % (1 << info.bits) + int(info.min)


def truncated_remainder(x: int, y: int) -> int:
    return int(math.copysign(1, x)) * (abs(x) % abs(y)) if y else 0


MODELS = {
    "add": lambda x, y, width: x + y,
    "sub": lambda x, y, width: x - y,
    "mul": lambda x, y, width: x * y,
    "floor_divide": lambda x, y, width: x // y if y else 0,
    "remainder": lambda x, y, width: x % y if y else 0,
    "fmod": lambda x, y, width: truncated_remainder(x, y),
    "power": lambda x, y, width: pow(x, y, 1 << 64),
    "left_shift": lambda x, y, width: x << y if 0 <= y < width else 0,
    "right_shift": lambda x, y, width: x >> y if 0 <= y < width else -(x < 0),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_integers_are_python_integers_wrapped(name, dtype):
    a, b = operands(name, dtype)
    want = [wrapped(MODELS[name](int(x), int(y), 8 * dtype.itemsize), dtype) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(run(name, a, b), np.array(want, dtype))


@pytest.mark.parametrize("dtype", [I8, I32, I64], ids=str)
def test_a_negative_exponent_of_integers_is_refused(dtype):
    with pytest.raises(ValueError, match="negative integer powers"):
        run("power", np.array([2], dtype), np.array([-1], dtype))


@pytest.mark.parametrize("dtype", [I8, I32, I64], ids=str)
def test_the_least_integer_wraps(dtype):
    least = np.array([np.iinfo(dtype).min], dtype)
    assert run("neg", least) == run("abs", least) == run("floor_divide", least, -np.ones(1, dtype)) == least


# ---- convert ----------------------------------------------------------------------------------------
def converted(x: object, source: np.dtype, target: np.dtype) -> object:
    """One number at another dtype, by Python's exact arithmetic where the target is exact."""
    number = complex(x) if source in COMPLEX else float(x) if source in FLOATS else int(x)
    if target == BOOL:
        return number != 0
    real = number.real
    if target not in INTEGERS:
        return number if target in COMPLEX else real
    info = np.iinfo(target)
    if source not in INEXACT:
        return wrapped(int(real), target)
    if math.isnan(real):
        return 0
    return int(max(min(Fraction(math.trunc(real)) if math.isfinite(real) else real, info.max), info.min))


@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_conversion_saturates_rounds_and_wraps(source, target):
    x = specials(source)
    got = run("convert", x, dtype=target)
    want = [converted(y, source, target) for y in x]
    assert got.dtype == target
    if target in INTEGERS or target == BOOL:
        np.testing.assert_array_equal(got, np.array(want, target))
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(bits(got), bits(np.array(want, C128 if target in COMPLEX else F64).astype(target)))


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_conversion_saturates_at_the_very_edge(target):
    info = np.iinfo(target)
    high = 2.0 ** (info.bits - (info.min < 0))
    x = np.array([high, np.nextafter(high, 0), float(info.min), np.nextafter(float(info.min), -np.inf), 1e300, -1e300])
    want = [info.max, int(np.nextafter(high, 0)), info.min, info.min, info.max, info.min]
    np.testing.assert_array_equal(run("convert", x, dtype=target), np.array(want, target))


def test_a_weak_conversion_marks_the_type():
    (t,) = TABLE["convert"].result_types([ArrayType((), F32)], (), {"dtype": F64, "weak": True})
    assert t == ArrayType((), F64, weak=True)
    assert TABLE["convert"].result_types([t], (), {"dtype": F64}) == (ArrayType((), F64),)


def test_large_integers_keep_their_bits_between_integer_dtypes():
    x = np.array([2**63 + 1, 2**64 - 1, 5], U64)
    np.testing.assert_array_equal(run("convert", x, dtype=I64), [-(2**63) + 1, -1, 5])
    np.testing.assert_array_equal(run("convert", x, dtype=U8), [1, 255, 5])


# ---- select, real, imag, erf --------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_select_passes_bits_unchanged(dtype):
    x = specials(dtype)
    pred = np.arange(len(x)) % 2 == 0
    np.testing.assert_array_equal(bits(run("select", pred, x, x[::-1].copy())), bits(np.where(pred, x, x[::-1])))


def test_select_wants_a_bool_and_one_dtype():
    with pytest.raises(DTypeError, match="must be bool"):
        run("select", np.ones(2, I32), np.ones(2), np.ones(2))
    with pytest.raises(DTypeError, match="must be equal"):
        run("select", np.ones(2, bool), np.ones(2), np.ones(2, F32))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_parts_of_complex_numbers(dtype):
    z = specials(dtype)
    np.testing.assert_array_equal(bits(run("real", z)), bits(z.real.copy()))
    np.testing.assert_array_equal(bits(run("imag", z)), bits(z.imag.copy()))


def test_erf_is_accurate_to_two_units_in_the_last_place():
    x = np.concatenate([np.linspace(-6.5, 6.5, 501), 10.0 ** np.linspace(-300, 0, 61)])
    for number, got in zip(x, run("erf", x), strict=True):
        exact = mpmath.erf(mpmath.mpf(float(number)))
        assert abs(mpmath.mpf(float(got)) - exact) <= 2 * np.spacing(abs(float(exact)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_erf_at_every_dtype(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -3.0], dtype)
    want = np.array([math.erf(float(v)) for v in x]).astype(dtype)
    np.testing.assert_array_equal(bits(run("erf", x)), bits(want))


# ---- refusals ---------------------------------------------------------------------------------------
def test_operands_must_agree():
    with pytest.raises(ShapeError, match="must be equal"):
        run("add", np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match="must be equal"):
        run("add", np.ones((2, 1)), np.ones((1, 2)))
    with pytest.raises(DTypeError, match="must be equal"):
        run("add", np.ones(2), np.ones(2, F32))


# ---- derivatives where differences cannot tell ----------------------------------------------------------
def partials(name: str, *args: float, order: int = 1) -> list[float]:
    """The derivative of that order of op at a point, along each operand alone."""
    types = [ArrayType((), F64)] * len(args)
    found = []
    for k in range(len(args)):
        g = build(lambda *refs: [TABLE[name](*refs)], types)
        for _ in range(order):
            g = build(along(g, k), types)
        found.append(float(evaluate(g, args)[0]))
    return found


def along(g, k):
    """A rule for the derivative of g with respect to parameter k."""
    def rule(*refs):
        one = TABLE["full"](into=refs[k].builder, value=1.0, shape=(), dtype=F64)
        (y,), (t,) = push(g, refs, [one if i == k else None for i in range(len(refs))], refs[k].builder)
        return [zeros(y.type, y.builder) if t is None else t]
    return rule


@pytest.mark.parametrize(("name", "at", "want"), [
    ("max", (2.0, 2.0), [0.5, 0.5]), ("min", (2.0, 2.0), [0.5, 0.5]), ("max", (3.0, 2.0), [1, 0]), ("min", (3.0, 2.0), [0, 1]),
    ("max", (0.0, -0.0), [0.5, 0.5]), ("fmax", (2.0, 2.0), [0, 1]), ("fmin", (2.0, 2.0), [0, 1]),
    ("fmax", (math.nan, 2.0), [0, 1]), ("fmax", (2.0, math.nan), [1, 0]), ("fmin", (2.0, math.nan), [1, 0]),
    ("abs", (0.0,), [1]), ("abs", (-2.0,), [-1]), ("sign", (0.0,), [0]), ("floor", (1.0,), [0]), ("rint", (0.5,), [0]),
    ("remainder", (6.0, 3.0), [1, -2]), ("remainder", (-1.0, 3.0), [1, 1]), ("fmod", (-7.0, 3.0), [1, 2]),
    ("fmod", (6.0, 3.0), [1, -2]), ("hypot", (0.0, 0.0), [0.5, 0.5]), ("hypot", (3.0, 4.0), [0.6, 0.8]),
    ("copysign", (2.0, -0.0), [-1, 0]), ("copysign", (-2.0, -1.0), [1, 0]), ("power", (2.0, 0.0), [0, math.log(2)]),
    ("power", (0.0, 2.0), [0, 0]), ("power", (0.0, 1.0), [1, 0]), ("power", (0.0, 0.0), [0, 0]),
    ("power", (-2.0, 3.0), [12, math.nan]),
    ("sqrt", (0.0,), [math.inf]), ("nextafter", (1.0, 2.0), [1, 0]), ("floor_divide", (7.0, 2.0), [0, 0]),
    ("arctan2", (0.0, -1.0), [-1, 0]), ("erf", (40.0,), [0]), ("tanh", (400.0,), [0]), ("log1p", (0.0,), [1]),
])
def test_derivatives_at_kinks_and_edges(name, at, want):
    np.testing.assert_allclose(partials(name, *at), want, rtol=1e-15, atol=0)


@pytest.mark.parametrize(("at", "want"), [
    ((0.0, 2.0), [2, 0]), ((0.0, 1.0), [0, 0]), ((0.0, 0.0), [0, 0]), ((3.0, 2.0), [2, 9 * math.log(3)**2]),
])
def test_second_derivatives_of_power_are_free_of_nan(at, want):
    np.testing.assert_allclose(partials("power", *at, order=2), want, rtol=1e-14)


def test_the_modulus_of_a_complex_number_is_flat_at_zero():
    t = ArrayType((3,), C128)
    def rule(z, dz):
        return [push(build(lambda z: [TABLE["abs"](z)], [t]), [z], [dz], z.builder)[1][0]]
    z, dz = np.array([0, 3 + 4j, -2]), np.array([1 + 1j, 5j, 1j])
    np.testing.assert_allclose(evaluate(build(rule, [t, t]), [z, dz])[0], [0, 4, 0])


