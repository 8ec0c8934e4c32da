"""Vector maths against mpmath: at most 2 ULP everywhere, C99 at the special values."""
import mpmath as mp
import numpy as np
import pytest
from scipy import special

import loopwright as lw
from loopwright.ir.loops import Literal
from loopwright.ir.types import F16, F32, F64
from loopwright.kernels import maths_tables as tables
from tests.kernels import compile_nest, elementwise_nest, run_elementwise, target_of, without

UNARY = {
    "exp": mp.exp, "exp2": lambda x: mp.mpf(2) ** x, "expm1": mp.expm1, "log": mp.log, "log2": lambda x: mp.log(x, 2),
    "log10": mp.log10, "log1p": mp.log1p, "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "arcsin": mp.asin, "arccos": mp.acos,
    "arctan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "arcsinh": mp.asinh, "arccosh": mp.acosh,
    "arctanh": mp.atanh, "erf": mp.erf, "erfc": mp.erfc, "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
}
BINARY = {"power": lambda x, y: mp.power(x, y), "arctan2": mp.atan2, "hypot": mp.hypot}
SPECIAL = np.array([0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 27, 8, 1e15, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 5e-324,
                    1e300, -1e300, 700,
                    -700, 1e5, -1e5, 1e-20, 88.7, -103.9, 128, 1024, -150, np.pi, 3e38, 1 + 2**-23, 1 - 2**-24])
LIMIT = 2.0


def reference(fn):
    return erfc if fn == "erfc" else special.erf if fn == "erf" else getattr(np, fn)


def erfc(x):
    """SciPy's is 0 where the value is denormal."""
    return np.array([float(mp.erfc(float(v))) for v in x.clip(-40, 40)], x.dtype)


def exact(f, *args):
    """The value in high precision, or None where it is not a finite real."""
    try:
        r = f(*(mp.mpf(float(a)) for a in args))
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return None if isinstance(r, mp.mpc) or not mp.isfinite(r) else r


def worst_ulp(f, y, *args):
    worst = 0.0
    for at in range(len(y)):
        # A saturated result needs no digits; beyond 30 the error functions only cost mpmath time.
        settled = not np.isfinite(y[at]) or (f in (mp.erf, mp.erfc) and abs(args[0][at]) > 30)
        r = None if settled else exact(f, *(a[at] for a in args))
        if r is None:
            continue
        with np.errstate(all="ignore"):
            rounded = y.dtype.type(float(r))
        if np.isfinite(rounded):
            worst = max(worst, float(abs(mp.mpf(float(y[at])) - r) / mp.mpf(float(np.spacing(np.abs(rounded))))))
    return worst


def precision(fn, dtype):
    """Bits that show an ULP after all cancellation; sines of large numbers cancel most."""
    return 1300 if dtype == F64 else 400


def points(fn, dtype, seed=0, count=40):
    rng = np.random.default_rng(seed)
    parts = [rng.uniform(-1, 1, count), rng.uniform(-12, 12, count), rng.uniform(0.9, 1.1, count), rng.uniform(-90, 90, count),
             np.arange(1, count) * np.pi / 2, np.exp(rng.uniform(-60, 60, count)) * rng.choice([-1, 1], count),
             1 - np.exp(rng.uniform(-30, 0, count))]
    if dtype == F64:
        parts += [np.exp(rng.uniform(-700, 700, count)) * rng.choice([-1, 1], count), rng.uniform(-750, 750, count)]
    return np.concatenate(parts).astype(dtype)


def same(got, wanted, dtype):
    """Equal with sign, both NaN, or finite and within 3 of NumPy's own ULP."""
    with np.errstate(all="ignore"):
        near = np.isfinite(got) & np.isfinite(wanted) & (np.abs(got - wanted) <= 3 * np.spacing(np.abs(wanted)))
    exactly = (got == wanted) & (np.signbit(got) == np.signbit(wanted))
    return (np.isnan(got) & np.isnan(wanted)) | exactly | near & (wanted != 0)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", UNARY)
def test_unary_to_two_ulp(fn, dtype):
    f = run_elementwise(fn, [np.zeros(1, dtype)], dtype, target_of(512))
    x = points(fn, dtype)
    y, _ = f(x)
    with mp.workprec(precision(fn, dtype)):
        assert worst_ulp(UNARY[fn], y, x) <= LIMIT
    with np.errstate(all="ignore"):
        s = SPECIAL.astype(dtype)
        wanted = reference(fn)(s)
    got, _ = f(s)
    assert same(got, wanted, dtype).all(), list(zip(s[~same(got, wanted, dtype)], got[~same(got, wanted, dtype)], strict=True))


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("fn", UNARY)
def test_narrow_vectors_to_two_ulp(fn, bits, monkeypatch):
    to_two_ulp(fn, F64, target_of(bits, monkeypatch))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", UNARY)
def test_without_tables_in_registers_to_two_ulp(fn, dtype, monkeypatch):
    target = target_of(128, monkeypatch)
    to_two_ulp(fn, dtype, without(target, features=target.features.replace("+avx2", "-avx2")))


def to_two_ulp(fn, dtype, target):
    f = run_elementwise(fn, [np.zeros(1, dtype)], dtype, target)
    x = points(fn, dtype, seed=1, count=12)
    y, _ = f(x)
    with mp.workprec(precision(fn, dtype)):
        assert worst_ulp(UNARY[fn], y, x) <= LIMIT
    with np.errstate(all="ignore"):
        special = SPECIAL.astype(dtype)
        wanted = reference(fn)(special)
    assert same(f(special)[0], wanted, dtype).all()


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize(("dtype", "most"), [(F32, 45_000), (F64, 1_000_000)], ids=str)
def test_sines_beside_multiples_of_a_right_angle(dtype, most, bits, monkeypatch):
    """Where next to nothing is left of the argument; and tangents as far from 0 as from infinity."""
    rng, target = np.random.default_rng(3), target_of(bits, monkeypatch)
    with mp.workprec(300):
        x = np.array([float(mp.pi / 2 * int(k)) for k in rng.integers(1, most, 150)]).astype(dtype)
        x = np.concatenate([x, rng.uniform(-most, most, 150).astype(dtype)])
        for fn in ("sin", "cos", "tan"):
            assert worst_ulp(UNARY[fn], run_elementwise(fn, [x], dtype, target)(x)[0], x) <= LIMIT


@pytest.mark.parametrize("bits", [512, 256, 128])
def test_angles_that_are_denormal(bits, monkeypatch):
    y = np.array([5e-324, 2.5e-320, 1e-310, 2.0867757868529472e-162, 3e-200, 1e-300, 5e-324])
    x = np.array([1.0, 1.7, 3.0, 5.4588557380765035e150, 1e110, 1.7e308, 2e-323])
    got, _ = run_elementwise("arctan2", [y, x], F64, target_of(bits, monkeypatch))(y, x)
    with mp.workprec(400):
        assert worst_ulp(mp.atan2, got, y, x) <= LIMIT


@pytest.mark.parametrize(("bits", "n"), [(512, 150), (256, 30), (128, 30)])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", BINARY)
def test_binary_to_two_ulp(fn, dtype, bits, n, monkeypatch):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(0, 3, n), np.exp(rng.uniform(-30, 30, n)), rng.uniform(0.99, 1.01, n), rng.normal(size=n)])
    y = np.concatenate([rng.uniform(-9, 9, n), rng.uniform(-9, 9, n), rng.uniform(-3000, 3000, n), rng.normal(size=n)])
    if fn == "power":
        x = np.abs(x)
    x, y = x.astype(dtype), y.astype(dtype)
    f = run_elementwise(fn, [x, y], dtype, target_of(bits, monkeypatch))
    with mp.workprec(400):
        assert worst_ulp(BINARY[fn], f(x, y)[0], x, y) <= LIMIT
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL.astype(dtype) if dtype == F64 else SPECIAL.clip(-3e38, 3e38).astype(dtype),
                                          SPECIAL.astype(dtype) if dtype == F64 else SPECIAL.clip(-3e38, 3e38).astype(dtype)))
    with np.errstate(all="ignore"):
        wanted = getattr(np, fn)(a, b)
    got, _ = f(a, b)
    ok = same(got, wanted, dtype)
    assert ok.all(), list(zip(a[~ok], b[~ok], got[~ok], wanted[~ok], strict=True))[:10]


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("fn", "slopes", "end"), [
    ("tanh", (tables.TANH_SLOPE32, tables.TANH_SHORT_SLOPE32, tables.TANH_SLOPE64), 19.1),
    ("erf", (tables.ERF_SLOPE32, tables.ERF_SHORT_SLOPE32, tables.ERF_SLOPE64), 6.1),
    ("erfc", (tables.ERFCX_SLOPE32, tables.ERFCX_SLOPE32, tables.ERFCX_SLOPE64), 27.25)])
def test_pieces_where_they_meet(fn, slopes, end, dtype, bits, monkeypatch):
    """On both sides of the intervals' ends, in their middles, and where results turn into constants or denormals."""
    ends = np.array([2.0 ** (k // 4) * (1 + k % 4 / 4) for k in range(17)])
    ends = np.append(ends, (ends[1:] + ends[:-1]) / 2) - 1
    ends = np.concatenate([ends / slope for slope in (slopes[2:] if dtype == F64 else slopes[:2])])
    ends = np.append(ends, [9.19, 10.09, 26.54, 3.97, 6.0, 9.5, 19.5]).astype(dtype)
    x = np.concatenate([ends, np.nextafter(ends, dtype.type(0)), np.nextafter(ends, dtype.type(99)), ends * dtype.type(0.999)])
    x = np.concatenate([x[x < end], -x[x < end]])
    y, _ = run_elementwise(fn, [x], dtype, target_of(bits, monkeypatch))(x)
    with mp.workprec(300):
        assert worst_ulp(UNARY[fn], y, x) <= LIMIT


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_functions_that_become_constant_are_exactly_that(dtype, bits, monkeypatch):
    """As programs take the difference from 1; and nothing before is beyond that."""
    target = target_of(bits, monkeypatch)
    far = np.concatenate([np.linspace(30, 120, 40), [1e3, 1e30, np.inf]]).astype(dtype)
    x, before = np.concatenate([far, -far]), np.linspace(2, 20, 3000).astype(dtype)
    for fn, right, left in (("tanh", 1, -1), ("erf", 1, -1), ("erfc", 0, 2)):
        f = run_elementwise(fn, [x], dtype, target)
        assert f(before)[0].max() <= 1, fn
        y, _ = f(x)
        assert np.array_equal(y, np.where(x > 0, right, left).astype(dtype)), fn


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_lengths_of_any_size(dtype, bits, monkeypatch):
    """Sums of squares that are denormal, overflow, or lose bits, beside usual ones in the same vector."""
    rng, top = np.random.default_rng(7), 140 if dtype == F32 else 1060
    x, y = (rng.choice([-1, 1], 3000) * np.exp2(rng.uniform(-top, top, 3000).clip(-top, top * 0.9)) for _ in range(2))
    x[::3] = y[::3] * rng.uniform(0.1, 3, 1000)
    x[1::7], y[1::5], x[2::97], y[3::89] = 0, 0, np.inf, np.nan
    x, y = x.astype(dtype), y.astype(dtype)
    got, _ = run_elementwise("hypot", [x, y], dtype, target_of(bits, monkeypatch))(x, y)
    wide = np.longdouble if np.finfo(np.longdouble).nmant > 52 else F64
    with np.errstate(all="ignore"):
        wanted = np.hypot(x.astype(wide), y.astype(wide))
        rounded = wanted.astype(dtype)
        near = np.abs(got - wanted) <= LIMIT * np.spacing(np.where(np.isfinite(rounded), rounded, 0))
    fine = np.where(np.isfinite(rounded), near, (got == rounded) | np.isnan(got) & np.isnan(rounded))
    assert fine.all(), list(zip(x[~fine][:5], y[~fine][:5], got[~fine][:5], rounded[~fine][:5], strict=True))


def test_powers_of_small_integers_are_exact():
    x, y = (v.ravel().astype(F64) for v in np.meshgrid(np.arange(1, 16), np.arange(0, 13)))
    f = run_elementwise("power", [x, y], F64, target_of(512))
    assert np.array_equal(f(x, y)[0], [float(int(a) ** int(b)) for a, b in zip(x, y, strict=True)])
    for dtype in (F32, F64):
        whole = np.arange(-126, 128).astype(dtype)
        got, _ = run_elementwise("exp2", [whole], dtype, target_of(512))(whole)
        assert np.array_equal(got, np.ldexp(dtype.type(1), whole.astype(int)))


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
def test_whole_powers_known_when_compiled(dtype, bits, monkeypatch):
    """Products: with NumPy's signs, zeros, infinities and denormals."""
    rng, target, info = np.random.default_rng(4), target_of(bits, monkeypatch), np.finfo(dtype)
    for n in (-64, -17, -7, -4, -3, -2, -1, 1, 2, 3, 4, 5, 7, 10, 31, 64):
        sizes = np.exp2((rng.uniform(info.minexp - info.nmant - 2, info.maxexp + 1, 60) / n).clip(-1023, 1023))
        with np.errstate(all="ignore"):
            x = np.concatenate([sizes * rng.choice([-1, 1], 60), rng.normal(size=30), SPECIAL, -SPECIAL]).astype(dtype)
            wanted = np.power(x.astype(F64), n).astype(dtype)
        nest = elementwise_nest("power", [dtype], dtype, target.lanes(dtype), 2, Literal(float(n), dtype))
        got = np.zeros_like(x)
        compile_nest(nest, target)(x, got, sizes=(len(x),))
        assert same(got, wanted, dtype).all(), (n, x[~same(got, wanted, dtype)], got[~same(got, wanted, dtype)])
        with mp.workprec(120):
            assert worst_ulp(lambda v, n=n: mp.power(v, n), got, x) <= LIMIT


@pytest.mark.parametrize("n", [3, 4, -2])
def test_powers_by_plain_products_at_every_significand(n):
    """Their error is the same at all exponents."""
    x = np.arange(1 << 23, dtype=np.uint32)
    for exponent in (127, 128):
        x = (x & np.uint32((1 << 23) - 1) | np.uint32(exponent << 23)).view(F32)
        exact = x.astype(F64) ** n
        error = np.abs(lw.jit(lambda x: x ** n)(x) - exact) / np.spacing(exact.astype(F32))
        assert error.max() <= LIMIT
        x = x.view(np.uint32)


def test_whole_powers_of_integers_known_when_compiled():
    x = np.random.default_rng(4).integers(-2**31, 2**31, 999).astype(np.int32)
    for n in (0, 1, 2, 3, 5, 8, 31, 64, 65):
        f = lw.jit(lambda x, n=n: x ** n)
        assert np.array_equal(f(x), x ** n) and f(x[:0]).shape == (0,)


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", ["fmod", "remainder", "floor_divide"])
def test_remainders_are_exact(fn, dtype, bits, monkeypatch):
    rng = np.random.default_rng(3)
    top = 80 if dtype == F32 else 600
    x = np.concatenate([rng.uniform(-9, 9, 300), rng.normal(size=300) * np.exp(rng.uniform(-top, top, 300)),
                        np.arange(-50, 50)])
    y = np.concatenate([rng.uniform(-3, 3, 300), rng.normal(size=300) * np.exp(rng.uniform(-top, top, 300)),
                        rng.choice([-3, -2, 1, 2, 3, 7], 100)])
    s = SPECIAL if dtype == F64 else SPECIAL.clip(-3e38, 3e38)
    grid = [v.ravel() for v in np.meshgrid(s, s)]
    x, y = np.concatenate([x, grid[0]]).astype(dtype), np.concatenate([y, grid[1]]).astype(dtype)
    got, _ = run_elementwise(fn, [x, y], dtype, target_of(bits, monkeypatch))(x, y)
    with np.errstate(all="ignore"):
        wanted = getattr(np, fn)(x, y)
    ok = (np.isnan(got) & np.isnan(wanted)) | ((got == wanted) & (np.signbit(got) == np.signbit(wanted)))
    assert ok.all(), list(zip(x[~ok], y[~ok], got[~ok], wanted[~ok], strict=True))[:10]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", [np.fmod, np.remainder], ids=lambda fn: fn.__name__)
def test_remainders_by_one_number_are_exact(fn, dtype):
    """A scalar, and a number that the program knows: quotients are products with a reciprocal, near ones right below a whole
    number and right above it, and far ones."""
    rng, eps, least = np.random.default_rng(5), np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal
    by = [1, 0.3, -2.5, 2 * np.pi, 7, 2.0 ** -10, np.finfo(dtype).max, np.finfo(dtype).tiny, least, 3 * least, np.inf, -np.inf,
          0, -0.0, np.nan, *(rng.normal(size=20) * np.exp(rng.uniform(-60, 60, 20)))]
    f = lw.jit(fn)
    for y in np.array(by, dtype):
        with np.errstate(all="ignore"):
            whole = np.round(2.0 ** rng.uniform(0, 60, 500)) * np.float64(y)
            around = whole * (1 + eps * rng.integers(-3, 4, 500))
            x = np.concatenate([around, rng.normal(size=500) * 100, SPECIAL]).astype(dtype)
            wanted = fn(x, y)
        for got in (f(x, y), lw.jit(lambda x, y=y: fn(x, y))(x)):
            ok = (np.isnan(got) & np.isnan(wanted)) | ((got == wanted) & (np.signbit(got) == np.signbit(wanted)))
            assert ok.all(), (y, list(zip(x[~ok], got[~ok], wanted[~ok], strict=True))[:10])


SINGLE = {**{fn: reference(fn) for fn in UNARY}, "cbrt": np.cbrt, "erfc": special.erfc}
EDGES = (1, 0.5, 0.25, 0.75, 1.5, 2, 4, 8, 0.046875, 9.01, 10, 88.7, 2.0**-126, 2.0**-149, np.pi / 4, np.pi / 2, np.pi,
         3.97, 10.05, 1.1875, 1.5625)


def every_kind_of_single(step):
    """Bit patterns of all exponents and signs, the neighbours of where formulas change, and special values."""
    patterns = np.arange(0, 2**32, step, dtype=np.int64).astype(np.uint32).view(F32)
    edges = np.array(EDGES, F32).view(np.int32)[:, None] + np.arange(-40, 40, dtype=np.int32)
    edges = edges.astype(np.int32).view(F32).ravel()
    return np.concatenate([patterns, edges, -edges, SPECIAL.clip(-3e38, 3e38).astype(F32), SPECIAL[[13, 14]].astype(F32)])


def check_single(fn, got, wanted):
    """Against f64, whose own error does not show here: within 2 ULP, the same NaN, infinities and signs of zeros."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(F32)
        spacing = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 0))).astype(F64)
        near = np.abs(got.astype(F64) - wanted) <= LIMIT * spacing
    exactly = (got == rounded) & (np.signbit(got) == np.signbit(rounded))
    fine = (np.isnan(got) & np.isnan(wanted)) | exactly | (np.isfinite(rounded) & near & (wanted != 0))
    assert fine.all(), (fn, np.flatnonzero(~fine)[:5], got[~fine][:5], wanted[~fine][:5])


@pytest.mark.parametrize("bits", [512, 256, 128])
def test_singles_of_every_kind(bits, monkeypatch):
    target, x = target_of(bits, monkeypatch), every_kind_of_single(2**32 // 100_003 if bits > 128 else 2**32 // 10_007)
    for fn, function in SINGLE.items():
        f = run_elementwise(fn, [x], F32, target)
        got, _ = f(x)
        with np.errstate(all="ignore"):
            check_single(fn, got, function(x.astype(F64)))
        for start in (1, 5, 14):  # the same bits at every place of a vector and in its tail
            assert np.array_equal(f(x[-90 + start:])[0], got[-90 + start:], equal_nan=True), fn


@pytest.mark.parametrize("bits", [512, 256, 128])
def test_doubles_of_every_kind(bits, monkeypatch):
    """Against long doubles, which NumPy computes in 64 bits on this kind of machine."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long doubles are no longer than doubles here")
    rng, target, n = np.random.default_rng(6), target_of(bits, monkeypatch), 4000
    x = np.concatenate([rng.uniform(-1, 1, n), rng.uniform(-12, 12, n), rng.uniform(0.5, 2, n), rng.uniform(-750, 750, n),
                        np.exp(rng.uniform(-745, 709, n)), 1 - np.exp(rng.uniform(-36, 0, n)), SPECIAL])
    wide = x.astype(np.longdouble)
    for fn in set(UNARY) - {"erf", "erfc", "sin", "cos", "tan"}:
        f = run_elementwise(fn, [x], F64, target)
        got, _ = f(x)
        with np.errstate(all="ignore"):
            wanted = reference(fn)(wide)
            rounded = wanted.astype(F64)
            near = np.abs(got - wanted) <= LIMIT * np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 0)))
        fine = (np.isnan(got) & np.isnan(rounded)) | ((got == rounded) & (np.signbit(got) == np.signbit(rounded)))
        fine |= np.isfinite(rounded) & near & (wanted != 0)
        assert fine.all(), (fn, x[~fine][:5], got[~fine][:5], rounded[~fine][:5])
        for start in (1, 3, 6):  # the same bits at every place of a vector and in its tail
            assert np.array_equal(f(x[-50 + start:])[0], got[-50 + start:], equal_nan=True), fn


@pytest.mark.parametrize("bits", [512, 256, 128])
def test_powers_and_angles_of_singles_of_every_kind(bits, monkeypatch):
    target, rng = target_of(bits, monkeypatch), np.random.default_rng(5)
    some = every_kind_of_single(2**32 // 20_011)
    grid = [v.ravel() for v in np.meshgrid(*2 * [np.concatenate([SPECIAL.clip(-3e38, 3e38), [np.inf, -np.inf]]).astype(F32)])]
    near = rng.uniform(0.9, 1.1, 20_000).astype(F32)
    with np.errstate(all="ignore"):
        full = [(x, (rng.uniform(-150, 150, len(x)) / np.log2(x.astype(F64))).astype(F32)) for x in (near, np.abs(some))]
        pairs = [(some, rng.permutation(some)), grid, *full,
                 (some, rng.integers(-9, 9, len(some)).astype(F32))]
    for fn in ("power", "arctan2", "hypot"):
        f = run_elementwise(fn, [some, some], F32, target)
        for x, y in pairs:
            with np.errstate(all="ignore"):
                check_single(fn, f(x, y)[0], getattr(np, fn)(x.astype(F64), y.astype(F64)))
