"""Functions of single elements by JAX's names: NumPy and SciPy say the values, differences the slopes, JAX what is refused."""

import ml_dtypes
import numpy as np
import pytest
import scipy.special as scs

import loopwright as lw
from loopwright import lax

X = np.array([-3.7, -2.5, -1.0, -0.6, -0.2, 0.0, 0.3, 0.5, 0.9, 1.0, 2.5, 4.2])
POSITIVE = np.array([1e-3, 0.2, 0.5, 0.9, 1.0, 1.7, 3.0, 12.0])
UNIT = np.linspace(-0.95, 0.95, 9)
ABOVE = 1 + POSITIVE
EDGES = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e300, -1e-300])
REAL = {  # the numbers that a function of real numbers is tested on, and what it is
    "neg": (X, np.negative), "abs": (X, np.abs), "sign": (X, np.sign), "square": (X, np.square), "floor": (X, np.floor),
    "ceil": (X, np.ceil), "exp": (X, np.exp), "exp2": (X, np.exp2), "expm1": (X, np.expm1), "log": (POSITIVE, np.log),
    "log1p": (POSITIVE, np.log1p), "sqrt": (POSITIVE, np.sqrt), "sin": (X, np.sin), "cos": (X, np.cos), "tan": (X, np.tan),
    "sinh": (X, np.sinh), "cosh": (X, np.cosh), "tanh": (X, np.tanh), "asin": (UNIT, np.arcsin), "acos": (UNIT, np.arccos),
    "atan": (X, np.arctan), "asinh": (X, np.arcsinh), "acosh": (ABOVE, np.arccosh), "atanh": (UNIT, np.arctanh),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)), "reciprocal": (POSITIVE, lambda x: 1 / x), "cbrt": (X, np.cbrt),
    "logistic": (X, scs.expit), "erf": (X, scs.erf), "erfc": (X, scs.erfc), "erf_inv": (UNIT, scs.erfinv),
    "lgamma": (POSITIVE, scs.gammaln), "digamma": (POSITIVE, scs.digamma), "bessel_i0e": (X, scs.i0e),
    "bessel_i1e": (X, scs.i1e), "round": (X, lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
}
PAIRS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod, "max": np.maximum,
    "min": np.minimum,
    "atan2": np.arctan2, "nextafter": np.nextafter, "pow": np.power, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "igamma": scs.gammainc, "igammac": scs.gammaincc,
}
LEFT, RIGHT = np.array([0.5, 1.0, 2.5, 3.0, 7.25]), np.array([1.5, 1.0, 0.75, 4.0, 2.0])


def ways(f):
    """A function run by NumPy, compiled, and for each row of a batch."""
    return f, lw.jit(f), lw.vmap(f)


@pytest.mark.parametrize("name", REAL)
def test_functions_of_one_number(name):
    f = getattr(lax, name)
    x, want = REAL[name]
    compiled = lw.jit(f)
    for g in (f, compiled, lw.vmap(f)):
        np.testing.assert_allclose(g(x), want(x), rtol=1e-13, atol=1e-15)
    narrow = compiled(x.astype(np.float32))
    assert narrow.dtype == np.float32 and f(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow, want(x.astype(np.float32).astype(float)), rtol=2e-5, atol=1e-6)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(compiled(EDGES), f(EDGES), rtol=1e-13)
    inside, h = x[np.abs(x - np.round(2 * x) / 2) > 1e-2], 1e-6
    np.testing.assert_allclose(lw.vmap(lw.grad(f))(inside), (f(inside + h) - f(inside - h)) / (2 * h), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_numbers(name):
    f = getattr(lax, name)
    for g in ways(f):
        np.testing.assert_allclose(g(LEFT, RIGHT), PAIRS[name](LEFT, RIGHT), rtol=1e-13)
    np.testing.assert_allclose(lw.jit(f)(LEFT, 2.0), PAIRS[name](LEFT, 2.0), rtol=1e-13)
    h, out = 1e-6, f(LEFT, RIGHT)
    if out.dtype == bool or name in ("max", "min", "nextafter"):
        return
    at = slice(2, None)
    by_left = (f(LEFT + h, RIGHT) - f(LEFT - h, RIGHT)) / (2 * h)
    by_right = (f(LEFT, RIGHT + h) - f(LEFT, RIGHT - h)) / (2 * h)
    if name != "igamma" and name != "igammac":
        np.testing.assert_allclose(lw.vmap(lw.grad(f))(LEFT, RIGHT)[at], by_left[at], rtol=1e-6)
    np.testing.assert_allclose(lw.vmap(lw.grad(f, 1))(LEFT, RIGHT)[at], by_right[at], rtol=1e-6, atol=1e-9)


INTEGERS = [np.dtype(d) for d in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]


def integers(dtype):
    info = np.iinfo(dtype)
    return np.array([info.min, info.max, 0, 1, 2, 5, 77, info.max // 3, info.min // 3], dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bits(dtype):
    x = integers(dtype)
    bits = 8 * dtype.itemsize
    unsigned = [int(v) % (1 << bits) for v in x]
    counts = np.array([0, 1, 3, bits - 1, bits, bits + 1 if bits < 64 else 65, 0, 2, 5]).astype(dtype)

    def wrapped(values):
        return np.array([v % (1 << bits) for v in values], f"u{dtype.itemsize}").view(dtype)
    cases = {
        "population_count": ((x,), [bin(v).count("1") for v in unsigned]),
        "clz": ((x,), [bits - v.bit_length() for v in unsigned]),
        "bitwise_not": ((x,), [~v for v in unsigned]),
        "shift_right_logical": ((x, counts), [v >> int(k) if k < bits else 0 for v, k in zip(unsigned, counts, strict=True)]),
        "shift_left": ((x, counts), [v << int(k) if k < bits else 0 for v, k in zip(unsigned, counts, strict=True)]),
        "shift_right_arithmetic": ((x, counts), [
            (v - (v >> bits - 1 << bits)) >> min(int(k), bits) for v, k in zip(unsigned, counts, strict=True)]),
        "mulhi": ((x, x[::-1]), [int(a) * int(b) >> bits for a, b in zip(x, x[::-1], strict=True)]),
        "div": ((x, counts + dtype.type(1)), [int(abs(int(a)) // (int(b) + 1)) * (1 if a >= 0 else -1)
                                              for a, b in zip(x, counts, strict=True)]),
        "rem": ((x, counts + dtype.type(1)), [int(np.fmod(a, b + dtype.type(1))) for a, b in zip(x, counts, strict=True)]),
    }
    for name, (args, want) in cases.items():
        for g in ways(getattr(lax, name)):
            got = g(*args)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, wrapped(want), err_msg=name)


def test_halves_and_powers():
    x = np.array([-2.5, -0.5, 0.49999999999999994, 0.5, 1.5, 4503599627370497.0, np.nan, np.inf, -np.inf])
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    for f in (lax.round, lw.jit(lax.round)):
        np.testing.assert_array_equal(f(x), [-3, -1, 0, 1, 2, 4503599627370497.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(lax.round(x, even), np.rint(x))
    for power in (-3, -1, 0, 1, 2, 7, 12):
        for g in ways(lambda x, power=power: lax.integer_pow(x, power)):
            np.testing.assert_allclose(g(X[X != 0]), X[X != 0] ** power, rtol=1e-14)
        assert lw.grad(lambda x, power=power: lax.integer_pow(x, power))(1.5) == pytest.approx(power * 1.5 ** (power - 1))
    np.testing.assert_array_equal(lax.integer_pow(np.array([3, -2]), 5), [243, -32])
    assert lw.grad(lw.grad(lambda x: lax.integer_pow(x, 2)))(0.0) == 2.0
    np.testing.assert_array_equal(lw.jit(lax.pow)(np.array([2.0, -3.0]), np.array([3, -1])), [8, -1 / 3])
    with pytest.raises(lw.DTypeError, match="raised to the power -1"):
        lax.integer_pow(np.array([2]), -1)


def test_clamp():
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan])
    for g in (lax.clamp, lw.jit(lax.clamp)):
        np.testing.assert_array_equal(g(0.0, x, 1.0), np.clip(x, 0, 1))
        np.testing.assert_array_equal(g(np.zeros(6), x, np.float64(1)), np.clip(x, 0, 1))
        np.testing.assert_array_equal(g(2, np.array([1, 5, 9]), 6), [2, 5, 6])
        np.testing.assert_array_equal(g(3.0, x[:-1], 1.0), np.ones(5))  # the upper bound counts
    slopes = lw.vmap(lw.grad(lambda x: lax.clamp(0.0, x, 1.0)))(x[:-1])
    np.testing.assert_array_equal(slopes, [0, 0, 1, 0, 0])
    of_low = lw.vmap(lw.grad(lambda low, x: lax.clamp(low, x, 1.0)), (None, 0))
    np.testing.assert_array_equal(of_low(0.0, x[:-1]), [1, 0, 0, 0, 0])
    with pytest.raises(lw.ShapeError, match=r"lax.clamp: bounds must be numbers"):
        lax.clamp(np.zeros((1,)), x, 1.0)


def test_choices():
    a, b, c = np.arange(4.0), np.arange(4.0) + 10, np.arange(4.0) + 20
    p, which = np.array([True, False, True, False]), np.array([0, 1, 2, 9])
    for jit in (lambda f: f, lw.jit):
        np.testing.assert_array_equal(jit(lax.select)(p, a, b), np.where(p, a, b))
        np.testing.assert_array_equal(jit(lax.select)(True, a, b), a)
        np.testing.assert_array_equal(jit(lax.select_n)(p, a, b), np.where(p, b, a))
        np.testing.assert_array_equal(jit(lax.select_n)(which, a, b, c), [0, 11, 22, 23])
        np.testing.assert_array_equal(jit(lax.select_n)(-3, a, b, c), a)
    np.testing.assert_array_equal(lw.vmap(lax.select_n, (0, 0, 0, 0))(which, a, b, c), [0, 11, 22, 23])
    slope = lw.grad(lambda a: lax.select(p, a, b).sum())(a)
    np.testing.assert_array_equal(slope, p)
    for bad, error in (((p, a, b[:2]), lw.ShapeError), ((p, a, 1.0), lw.ShapeError), ((which, a, b), lw.DTypeError),
                       ((p, a, b.astype(np.float32)), lw.DTypeError)):
        with pytest.raises(error, match=r"test_lax_elementwise.py.*lax.select"):
            lax.select(*bad)
    with pytest.raises(lw.DTypeError, match="for 3"):
        lax.select_n(p, a, b, c)


def test_complex_numbers():
    re, im = np.array([1.0, -0.0, np.inf, 2.0]), np.array([2.0, -0.0, np.nan, -np.inf])
    for f in (lax.complex, lw.jit(lax.complex)):
        z = f(re, im)
        assert z.dtype == complex and f(re.astype("f4"), im.astype("f4")).dtype == np.complex64
        np.testing.assert_array_equal(z.real, re)
        np.testing.assert_array_equal(z.imag, im)
        assert np.signbit(z.imag[1]) and np.signbit(z.real[1])
    z = np.array([1 + 2j, -0.5 + 0.1j, 2j])
    for name in ("exp", "log", "sqrt", "sin", "tanh", "neg", "abs", "square", "sign"):
        f, g = getattr(lax, name), getattr(np, {"neg": "negative"}.get(name, name))
        np.testing.assert_allclose(lw.jit(f)(z), g(z), rtol=1e-13)
    np.testing.assert_array_equal(lw.jit(lax.conj)(z), z.conj())
    assert lax.conj(np.float32(2)).dtype == np.complex64
    value, slope = lw.value_and_grad(lambda a, b: abs(lax.complex(a, b)) ** 2, (0, 1))(3.0, 4.0)
    assert value == pytest.approx(25) and np.allclose(slope, (6, 8))
    second = lw.vmap(lw.grad(lambda a, b: lax.imag(lax.exp(lax.complex(a, b)))))(re[:1], im[:1])
    np.testing.assert_allclose(second, np.exp(1.0) * np.sin(2.0))


def test_dtypes():
    x = np.array([1.7, -2.9, np.nan, 1e30])
    for jit in (lambda f: f, lw.jit):
        np.testing.assert_array_equal(jit(lambda x: lax.convert_element_type(x, np.int32))(x), [1, -2, 0, 2 ** 31 - 1])
        assert jit(lambda x: lax.convert_element_type(x, "complex64"))(x).dtype == np.complex64
    assert lax.convert_element_type(3, np.float32).dtype == np.float32
    assert lw.grad(lambda x: lax.convert_element_type(x, np.float32))(2.0) == 1.0


@pytest.mark.parametrize("source", ["f2", "f4", "u1", "u4", "i8", "bf16"])
@pytest.mark.parametrize("to", ["f2", "f8", "i1", "i4", "u8", "bf16"])
def test_bits_of_numbers(source, to):
    source, to = (np.dtype(ml_dtypes.bfloat16 if d == "bf16" else d) for d in (source, to))
    x = np.random.default_rng(0).integers(1, 100, (3, 8)).astype(source)
    ratio = to.itemsize // source.itemsize
    x = x.reshape(3, 8 // ratio, ratio) if ratio > 1 else x
    want = x.view(to)[..., 0] if ratio > 1 else x.view(to) if ratio == 1 else x[..., None].view(to)
    for f in (lax.bitcast_convert_type, lw.jit(lax.bitcast_convert_type, static_argnums=1)):
        got = f(x, to)
        assert got.dtype == to and got.shape == want.shape
        if not (np.isnan(want.astype(float)).any() and to.itemsize == 2):  # payloads of NaN may be lost in halves
            assert got.tobytes() == np.ascontiguousarray(want).tobytes()


def test_bits_have_shapes_and_no_slope():
    with pytest.raises(lw.ShapeError, match="needs a last axis of size 4"):
        lax.bitcast_convert_type(np.zeros((3, 2), np.int8), np.float32)
    with pytest.raises(lw.DTypeError, match="takes integers and real floats"):
        lax.bitcast_convert_type(np.zeros(3, complex), np.float32)
    assert lw.grad(lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, np.int64), np.float64) + x)(2.0) == 1.0
    np.testing.assert_array_equal(lw.vmap(lambda x: lax.bitcast_convert_type(x, np.int8))(np.ones(3, np.float32)),
                                  np.ones((3, 1), np.float32).view(np.int8))


NARROW = np.concatenate([np.random.default_rng(1).standard_normal(200) * 10.0 ** np.random.default_rng(2).uniform(-9, 9, 200), [
    np.nan, np.inf, -np.inf, -0.0, 0.0, 65519.0, 65520.0, 6.1e-5, 5e-8, 3.3e38]]).astype(np.float32)


@pytest.mark.parametrize("bits, dtype, least", [((5, 10), np.float16, 2.0 ** -14), ((8, 7), ml_dtypes.bfloat16, 2.0 ** -126)])
def test_reduced_precision(bits, dtype, least):
    with np.errstate(all="ignore"):
        want = NARROW.astype(dtype).astype(np.float32)
    want = np.where(np.abs(want) < least, np.copysign(0, want), want)
    for f in (lax.reduce_precision, lw.jit(lax.reduce_precision, static_argnums=(1, 2))):
        np.testing.assert_array_equal(f(NARROW, *bits), want)
    np.testing.assert_array_equal(lax.reduce_precision(X, 11, 52), X)
    assert lw.grad(lambda x: lax.reduce_precision(x, 5, 10))(1.2345678) == 1.0


@pytest.mark.parametrize("bits", [(5, 10), (8, 7), (8, 23), (4, 3), (11, 52), (5, 2), (8, 0)])
def test_reduced_precision_is_that_of_jax(bits):
    jax = pytest.importorskip("jax", reason="compares with jax.lax where that is installed")
    np.testing.assert_array_equal(lax.reduce_precision(NARROW, *bits), jax.lax.reduce_precision(NARROW, *bits))


def test_one_trace_serves_all_sizes():
    f = lw.jit(lambda x, y: lax.mul(lax.exp(lax.neg(x)), lax.max(y, 0.5)))
    for n in (3, 7, 0, 12):
        x, y = np.linspace(0, 1, n), np.linspace(0, 2, n)
        np.testing.assert_allclose(f(x, y), np.exp(-x) * np.maximum(y, 0.5))
    assert f.compiles <= 2

    def body(i, x):
        return lax.add(lax.mul(x, 0.5), lax.convert_element_type(i, x.dtype))
    np.testing.assert_allclose(lw.jit(lambda x: lax.fori_loop(0, 3, body, x))(np.ones(2)), [2.625, 2.625])


@pytest.mark.parametrize("call, error, message", [
    (lambda: lax.add(np.ones(3, "f4"), np.ones(3)), lw.DTypeError, r"lax.add takes operands of one dtype, got float32"),
    (lambda: lax.add(np.ones(3, int), 1.5), lw.DTypeError, r"got int64, float"),
    (lambda: lax.mul(np.ones((2, 3)), np.ones(3)), lw.ShapeError, r"lax.mul takes operands of one shape, got \(2, 3\), \(3,\)"),
    (lambda: lax.exp(np.arange(3)), lw.DTypeError, r"lax.exp is not defined for int64; it takes f16"),
    (lambda: lax.bitwise_and(np.ones(3), np.ones(3)), lw.DTypeError, r"lax.bitwise_and is not defined for float64"),
    (lambda: lw.jit(lax.add)(np.ones(3), np.ones(4)), lw.ShapeError, "broadcast"),
    (lambda: lw.jit(lax.lt)(np.ones(3, complex), np.ones(3, complex)), lw.DTypeError, "lax.lt is not defined for complex128"),
], ids=range(7))
def test_errors_name_the_line_and_the_fix(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_lax_elementwise.py" in str(caught.value)


def test_special_functions_of_more_operands():
    a, b, x = np.array([0.5, 2.0, 3.5]), np.array([1.5, 0.5, 2.0]), np.array([0.2, 0.5, 0.9])
    np.testing.assert_allclose(lw.jit(lax.betainc)(a, b, x), scs.betainc(a, b, x), rtol=1e-12)
    np.testing.assert_allclose(lw.jit(lax.zeta)(a + 1, b), scs.zeta(a + 1, b), rtol=1e-12)
    np.testing.assert_allclose(lw.jit(lax.polygamma)(np.array([0.0, 1, 2]), b), scs.polygamma([0, 1, 2], b), rtol=1e-12)
    h = 1e-5
    np.testing.assert_allclose(lax.igamma_grad_a(a, x), (scs.gammainc(a + h, x) - scs.gammainc(a - h, x)) / (2 * h), rtol=1e-7)
    p = scs.gammainc(a, x)
    slope = (scs.gammaincinv(a + h, p) - scs.gammaincinv(a - h, p)) / (2 * h)
    np.testing.assert_allclose(lax.random_gamma_grad(a, x), slope, rtol=1e-6)


UNARY = [*REAL, "population_count", "clz", "bitwise_not", "conj", "real", "imag", "is_finite"]
TWO = [*PAIRS, "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical", "shift_right_arithmetic",
       "mulhi"]


@pytest.mark.parametrize("name", [*UNARY, *TWO])
def test_values_and_dtypes_are_those_of_jax(name):
    """What JAX refuses is refused, but negated bools and such; it orders complex numbers, which have no order here."""
    jax = pytest.importorskip("jax", reason="compares with jax.lax where that is installed")
    for dtype in ("bool", "i4", "u1", "f4", "f8", "c8"):
        if (name, dtype) in (("abs", "u1"), ("neg", "bool")) or (dtype == "c8" and name in ("max", "min", "atan2")):
            continue
        x, y = np.array([1, 3, 2, 1]).astype(dtype), np.array([1, 1, 2, 3]).astype(dtype)
        args = (x, y) if name in TWO else (x / np.asarray(4, dtype) if dtype[0] in "fc" and name != "acosh" else x,)
        with jax.enable_x64(True):
            try:
                want = np.asarray(getattr(jax.lax, name)(*args))
            except TypeError:
                with pytest.raises(TypeError):
                    getattr(lax, name)(*args)
                continue
        got = getattr(lax, name)(*args)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
