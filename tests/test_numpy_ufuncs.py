"""Universal functions and operators on traced arrays: NumPy's values and dtypes for every dtype, scalar and pair."""
import operator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import DTypeError
from loopwright.tracer.tables import UFUNCS
from tests.scale import examples
from tests.tracing import Traced, run, same

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
NO_MATRICES = sorted((u for u in UFUNCS if u.signature is None), key=lambda u: u.__name__)
UNARY = [u for u in NO_MATRICES if u.nin == 1]
BINARY = [u for u in NO_MATRICES if u.nin == 2]
RTOL = {"f2": 2e-3, "c8": 1e-5, "f4": 1e-5}
# Undefined in NumPy, or ours by decision: complex numbers have no order here; 1 // 0 of integers is 0.
NO_ORDER = {np.maximum, np.minimum, np.fmax, np.fmin, np.less, np.less_equal, np.greater, np.greater_equal}


def values(dtype, seed=0):
    d = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if d.kind == "b":
        return np.array([False, True, True, False, True, False])
    if d.kind in "iu":
        return np.array([1, 3, 2, 5, 0 if d.kind == "u" else -3, 7], d)
    x = np.array([0.5, -0.25, 2.0, -0.0, np.inf, np.nan] if d.kind == "f" else rng.normal(size=6) + 1j * rng.normal(size=6))
    return x.astype(d)


def numpy_or_error(f, *arrays):
    try:
        with np.errstate(all="ignore"):
            return f(*arrays)
    except (TypeError, ValueError, OverflowError) as error:
        return error


def check(f, *arrays):
    expected = numpy_or_error(f, *arrays)
    if isinstance(expected, Exception):
        kind = (TypeError, ValueError, OverflowError) if isinstance(expected, TypeError) else type(expected)
        with pytest.raises(kind):
            run(f, *arrays)
        return
    got = run(f, *arrays)
    pairs = zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
    for g, e in pairs:
        tolerance = RTOL.get(np.dtype(e.dtype).str[1:], 1e-13)
        same(g, e, tolerance if np.asarray(e).dtype.kind in "fc" else 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ufunc", UNARY, ids=lambda u: u.__name__)
def test_unary(ufunc, dtype):
    x = values(dtype)
    if ufunc is np.reciprocal and x.dtype.kind in "iub":
        x = x[x != 0]
    check(ufunc, x)


MIXED = [("i1", "u1"), ("i8", "u8"), ("u8", "i8"), ("f4", "i4"), ("f2", "f4"), ("?", "i2"), ("c8", "f8"), ("i8", "f4")]


@pytest.mark.parametrize("first, second", [(d, d) for d in DTYPES] + MIXED)
@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_binary(ufunc, first, second):
    x, y = values(first), values(second, 1)[::-1].copy()
    if ufunc in NO_ORDER and "c" in first + second:
        with pytest.raises(DTypeError):
            run(ufunc, x, y)
        return
    if ufunc in (np.power, np.left_shift, np.right_shift) and y.dtype.kind in "iu":
        y = np.abs(y)
    check(ufunc, x, y)


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
             operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.and_, operator.or_,
             operator.xor, operator.lshift, operator.rshift, divmod]
SCALARS = [2, 0, True, 1.5, 1e300, 1 + 2j, -1, 300, 2.0, 0.5, np.float32(1.5), np.int8(3), np.float64(0.1), np.uint8(200),
           np.bool_(True)]


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i8", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda f: f.__name__)
def test_operators_with_scalars(op, dtype):
    x = values(dtype)
    for s in SCALARS:
        if ("c" in dtype or isinstance(s, complex)) and op in (operator.lt, operator.le, operator.gt, operator.ge):
            continue
        for f in (lambda x, s=s: op(x, s), lambda x, s=s: op(s, x)):
            check(f, x)


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.negative, np.exp, np.less, np.maximum, np.isnan])
def test_bfloat16_resolves_as_numpy_resolves_it(ufunc):
    x = np.array([1.5, -2.25, 0.0], ml_dtypes.bfloat16)
    for others in ([x], [np.float32(2)], [np.arange(3)]) if ufunc.nin == 2 else ([],):
        expected = ufunc(x, *others)
        got = run(lambda x, others=others: ufunc(x, *others), x)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=1e-2)


SHAPES = st.lists(st.sampled_from([1, 1, 2, 3, 0]), max_size=3)


@examples(60)
@given(SHAPES, SHAPES, st.booleans())
def test_broadcasting(a, b, symbolic):
    x, y = np.arange(np.prod(a, dtype=int)).reshape(a), np.arange(np.prod(b, dtype=int)).reshape(b) + 0.5
    try:
        expected = x * y
    except ValueError:
        with pytest.raises(ValueError, match="could not be broadcast together with shapes"):
            run(operator.mul, x, y, symbolic=symbolic)
        return
    same(run(operator.mul, x, y, symbolic=symbolic), expected)


def test_one_trace_serves_every_size_that_its_guards_admit():
    t = Traced(lambda x, y: np.tanh(x[:, 1:] * y - x.shape[0]).sum(-1), [np.ones((3, 4)), np.ones(3)], symbolic=True)
    for n, m in ((2, 3), (7, 5), (1, 2)):
        x, y = np.random.default_rng(n).normal(size=(n, m)), np.arange(m - 1.0)
        sizes = {"d0_0": n, "d0_1": m, "d1_0": m - 1}
        if all(g.constraint.holds(sizes) for g in t.scope.guards):
            np.testing.assert_allclose(t(x, y), np.tanh(x[:, 1:] * y - n).sum(-1))
    assert all(g.constraint.holds({"d0_0": 9, "d0_1": 6, "d1_0": 5}) for g in t.scope.guards)


def weak_run(f, *arrays, weak):
    return Traced(f, [np.asarray(a) for a in arrays], False, weak).builder


def test_weak_scalars_do_not_widen_arrays_and_stay_weak_among_themselves():
    x = np.ones(3, np.float32)
    assert run(lambda x, s: x * s, x, 2.5, weak=(1,)).dtype == np.float32
    assert run(lambda x, s: x * (s * 2 + 1), x, 2.5, weak=(1,)).dtype == np.float32
    assert run(lambda x, s: x + s, x, 2, weak=(1,)).dtype == np.float32
    assert run(lambda x, s: x.astype(np.int8) / s, x, 2, weak=(1,)).dtype == np.dtype("f8")
    assert run(lambda x, s: np.sin(s) * x, x, 2.5, weak=(1,)).dtype == np.float64  # a function by name gives a NumPy scalar
    assert run(lambda x, s: (s / 2) * x, x, 3, weak=(1,)).dtype == np.float32
    assert run(lambda x, s: (-s) ** 2 * x, x, 3.0, weak=(1,)).dtype == np.float32
    assert run(lambda x, s: abs(s) * x, x, 3.0, weak=(1,)).dtype == np.float32


def test_keywords_of_universal_functions():
    x = np.arange(3.0)
    same(run(lambda x: np.add(x, 1, dtype=np.float32), x), np.add(x, 1, dtype=np.float32))
    with pytest.raises(TypeError, match=r"where=.*np\.where"):
        run(lambda x: np.add(x, 1, where=x > 1), x)
    with pytest.raises(TypeError, match="real ndarray"):
        run(lambda x: np.add(x, 1, out=np.zeros(3)), x)
    with pytest.raises(TypeError, match=r"np\.gcd is not supported on traced values yet"):
        run(lambda x: np.gcd(x, x), np.arange(3))
    with pytest.raises(TypeError, match="boolean subtract"):
        run(lambda x: x - x, np.array([True]))


def test_outer_products_of_universal_functions():
    x, y = np.arange(3.0), np.arange(4)
    same(run(lambda x, y: np.subtract.outer(x, y), x, y), np.subtract.outer(x, y))


def test_integers_to_negative_powers_are_refused():
    with pytest.raises(ValueError, match="negative integer powers"):
        run(lambda x: x ** -1, np.arange(3))


def test_arrays_with_their_own_arithmetic_are_refused():
    with pytest.raises(TypeError, match="MaskedArray"):
        run(lambda x: x + np.ma.masked_array([1.0, 2.0], [True, False]), np.ones(2))


@pytest.mark.parametrize("number", [-1, 300, 2**62])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u8", "i8", "?"])
def test_python_integers_beyond_an_array_are_compared(number, dtype):
    x = np.arange(3).astype(dtype)
    for ufunc in (np.equal, np.not_equal, np.less, np.greater_equal):
        assert lw.jit(ufunc)(x, number).tolist() == ufunc(x, number).tolist()
        assert lw.jit(ufunc)(number, x).tolist() == ufunc(number, x).tolist()


def test_a_forbidden_cast_of_a_python_number_is_an_error():
    for f in (lambda x: np.add(x, 1, casting="equiv"), lambda x: np.arctan2(x, 1, dtype=np.float16, casting="equiv")):
        for g in (f, lw.jit(f)):
            with pytest.raises(TypeError, match="equiv"):
                g(np.ones(3, np.uint16))


@pytest.mark.parametrize("values", [np.array([1, 2, 200], np.uint8), 1, True, np.float32([0.5, 1, 2])])
@pytest.mark.parametrize("dtype", ["f8", "u2", "i8"])
def test_subtraction_at_indices(values, dtype):
    def f(x, k, v):
        y = x.copy()
        np.subtract.at(y, k, v)
        return y
    x, k = np.full(3, 300, dtype), np.array([0, 0, 2])
    if dtype == "f8" or np.asarray(values).dtype.kind != "f":
        assert lw.jit(lambda x, k: f(x, k, values))(x, k).tolist() == f(x, k, values).tolist()
