"""Symbolic sizes as users meet them: arithmetic, comparisons that become guards, specialisation and its warning."""
import math
import types
import warnings

import numpy as np
import pytest

import loopwright as lw
import loopwright.numpy as lnp
from loopwright.ir.dims import symbol
from loopwright.ir.facts import Constraint, Facts
from loopwright.ir.guards import Scope
from loopwright.tracer.size import Size, SpecialisationWarning
from tests.tracing import Traced, run, same

X = np.arange(20.0).reshape(4, 5)


def size(hint=5, name="n"):
    return Size(symbol(name), Scope(hints={name: hint}))


def guards(n):
    return [str(g.constraint) for g in n.scope.guards]


def test_arithmetic_stays_symbolic():
    n = size()
    assert str(n + 1) == str(1 + n) == "n + 1"
    assert str(2 * n - n) == "n" and n - n == 0 and type(n - n) is int
    assert str((n * n) // n) == "n" and str(-n) == "-n" and str(n ** 2) == "n*n" and str(10 - n) == "-n + 10"
    assert str(n * np.int64(3)) == "3*n" and str(np.prod((n, 3, 2))) == "6*n"
    assert str(divmod(2 * n, 2)[0]) == "n" and divmod(2 * n, 2)[1] == 0
    assert not isinstance(n, int)
    assert guards(n) == ["n >= 1"]  # that the division was one


def test_comparisons_are_guards():
    n = size()
    assert n > 3 and n >= 4 and n == 5.5 - 0.5 and not n < 5 and n != 6 and n < 5.5 and n <= math.inf and not n < math.nan
    assert guards(n) == ["n >= 4", "n == 5"]


def test_truth_minimum_and_membership():
    n, m = size(), size(3, "m")
    m.scope = n.scope
    n.scope.hints["m"] = 3
    assert n and min(n, m) is m and max(n, m) is n
    assert len(guards(n)) == 2


@pytest.mark.parametrize("specialise", [int, float, complex, hash, range, math.sqrt, lambda n: [0] * n, lambda n: {n: 1},
                                        lambda n: np.zeros(6)[n]])
def test_what_needs_an_integer_specialises(specialise):
    n = size()
    specialise(n)
    assert guards(n) == ["n == 5"]


def test_a_size_in_array_arithmetic_is_a_python_number():
    same(run(lambda x: x.astype(np.float32) * x.shape[0], X, symbolic=True), X.astype(np.float32) * 4)
    same(run(lambda x: x / x.shape[1] + np.sqrt(x.shape[0]), X, symbolic=True), X / 5 + np.sqrt(4))
    same(run(lambda x: np.float32(2) * x.shape[0] * x, X, symbolic=True), np.float32(2) * 4 * X)
    same(run(lambda x: np.arange(20).reshape(4, 5) % x.shape[0] + x, X, symbolic=True), np.arange(20).reshape(4, 5) % 4 + X)
    same(run(lambda x: x * (x.shape[0] / x.shape[1]), X, symbolic=True), X * (4 / 5))
    same(run(lambda x: x * (1.5 * x.shape[0] ** 0.5), X, symbolic=True), X * (1.5 * 2.0))
    t = Traced(lambda x: x * x.shape[0] + np.maximum(x.shape[0], x.shape[1]), [X], True)
    assert not t.scope.guards
    same(t(np.ones((2, 3))), np.ones((2, 3)) * 2 + 3)


def test_sizes_shape_arrays():
    def f(x):
        n, m = x.shape
        return x.reshape(m, n) + np.ones((m, 1), like=x) + lnp.arange(n)
    t = Traced(f, [X], True)
    assert not t.scope.guards
    y = np.ones((7, 2))
    same(t(y), y.reshape(2, 7) + 1 + np.arange(7))


def test_attributes():
    def f(x):
        assert x.ndim == 2 and len(x) == 4 and x.size == 20 and x.nbytes == 160 and x.itemsize == 8 and np.shape(x) == (4, 5)
        assert np.size(x, 1) == 5 and np.ndim(x) == 2 and np.result_type(x, np.float32) == np.float64
        return sum(row[0] for row in x)
    same(run(f, X, symbolic=True), X[:, 0].sum())


def test_divisibility_is_a_guard_and_then_a_fact():
    t = Traced(lambda x: x.reshape(x.shape[0] // 2, 2, -1).sum(1).reshape(-1), [X], True)
    assert [str(g.constraint) for g in t.scope.guards if g.constraint.relation == "divides"] == ["2 divides d0_0"]
    same(t(np.arange(18.0).reshape(6, 3)), np.arange(18.0).reshape(3, 2, 3).sum(1).reshape(-1))


def test_a_zero_divisor_raises():
    n = size(0)
    with pytest.raises(ZeroDivisionError, match=r"test_numpy_sizes\.py:\d+"):
        3 // n


CREATORS = [np.zeros, np.empty, np.ones, np.eye, lambda n: np.full(n, 2.0), lambda n: np.linspace(0, 1, n),
            lambda n: np.zeros((n, 2)), lambda n: np.indices((n,))]


@pytest.mark.parametrize("number", range(len(CREATORS)))
def test_creation_by_numpy_specialises_with_one_warning(number):
    n = size()

    def direct(n):
        return np.zeros(n) if number == 0 else np.empty((n,)) if number == 1 else CREATORS[number](n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert direct(n).shape[0] in (5, 1)
    assert [w.category for w in caught] == [SpecialisationWarning]
    assert "loopwright.numpy." in str(caught[0].message) and caught[0].filename == __file__
    assert guards(n) == ["n == 5"]


def test_what_must_be_an_integer_by_itself_does_not_warn():
    n = size()
    range(n), int(n), [0, 1, 2, 3, 4, 5][n]
    assert guards(n) == ["n == 5"]


def test_numpys_arange_of_a_size_is_one_of_numbers():
    n = size()
    with pytest.warns(SpecialisationWarning, match=r"arange .*loopwright\.numpy\.arange"):
        numbers = [np.arange(n), np.arange(1, n + 1), np.arange(n - 1, -1, -1), np.arange(0, 2 * n, 3), np.arange(n, step=2)]
    for found, wanted in zip(numbers, [range(5), range(1, 6), range(4, -1, -1), range(0, 10, 3), range(0, 5, 2)], strict=True):
        np.testing.assert_array_equal(found, np.array(wanted), strict=True)
    assert guards(n) == ["n == 5"]


def test_arange_however_it_is_reached_is_one_of_numbers():
    n, libraries, held = size(), [np], types.SimpleNamespace(xp=np)
    with pytest.warns(SpecialisationWarning, match="arange"):
        found = libraries[0].arange(n)
    np.testing.assert_array_equal(found, np.arange(5), strict=True)
    n = size()
    with pytest.warns(SpecialisationWarning, match="arange"):
        found = held.xp.arange(n)
    np.testing.assert_array_equal(found, np.arange(5), strict=True)


def test_arange_of_a_size_compiles_for_each_size():
    f = lw.jit(lambda x: x * np.sin(np.arange(x.shape[0])))
    with pytest.warns(SpecialisationWarning):
        for n in (3, 4):
            np.testing.assert_allclose(f(np.ones(n)), np.sin(np.arange(n)))
    assert f.compiles == 2


def test_an_array_of_sizes_says_what_works():
    with pytest.raises(TypeError, match=r"loopwright\.numpy\.array"):
        run(lambda x: x + np.array([x.shape[1], 1, 2, 3, 4]), X, symbolic=True)


def test_formatting_names_the_symbol():
    n = size()
    assert f"{n + 1}" == "n + 1" and f"{n:04d}" == "0005" and repr(n) == "n" and not guards(n)


def test_a_reshape_takes_quotients_of_quotients():
    """That 4 divides m makes 4 * (m // 4) * n of the new shape m * n, by which what is left is a quotient, too."""
    f = lw.jit(lambda x, y: np.reshape(y, (x.shape[0], -1, 4, x.shape[1] // 4)) * 2)
    for rows, columns, rest in ((2, 8, (3, 16)), (3, 12, (3, 5, 24)), (2, 8, (6, 8))):
        y = np.arange(float(math.prod(rest))).reshape(rest)
        same(f(np.zeros((rows, columns)), y), np.reshape(y, (rows, -1, 4, columns // 4)) * 2)
    assert f.compiles == 2  # of two axes, and of three


def test_a_product_of_sizes_that_is_one_makes_each_one():
    """squeeze asks whether n*m*k is 1; where it is, the result has no axes, and the guard holds each size."""
    f = lw.jit(lambda x: np.squeeze(np.reshape(x, -1)))
    for shape in ((1, 1, 1), (2, 1, 3), (1, 1, 1), (1, 4, 1)):
        x = np.arange(float(math.prod(shape))).reshape(shape)
        same(f(x), np.squeeze(x.reshape(-1)))
    n, m = symbol("n"), symbol("m")
    facts = Facts()
    facts.learn(Constraint("==", n * m, 1))
    assert facts.canonical(n + 2 * m) == 3


# ---- numbers beyond int64 ---------------------------------------------------------------------------
@pytest.mark.parametrize("f", [
    lambda x: np.roll(x, 2**70), lambda x: np.roll(x, -2**70), lambda x: np.roll(x, x.shape[0] * 2**70 + 1),
    lambda x: x * (x.shape[0] * 2**70), lambda x: x * (x.shape[0] * 2**62), lambda x: x + (x.shape[0] + 2**70),
    lambda x: x * (x.shape[0] * x.shape[0] * 2**60), lambda x: x[:x.shape[0] * 2**70], lambda x: x * 1j * (x.shape[0] - 2**65),
    lambda x: x if x.shape[0] * 2**70 > 2**73 else -x, lambda x: x * (2**70 % x.shape[0]), lambda x: x[2**70 % x.shape[0]:]])
def test_sizes_times_large_numbers_are_pythons_numbers(f):
    g = lw.jit(f)
    for n in (5, 7, 12):
        np.testing.assert_array_equal(g(np.arange(float(n))), f(np.arange(float(n))))


def test_large_sizes_of_integer_arrays_name_the_line():
    with pytest.raises(OverflowError, match=r"test_numpy_sizes.py:\d+: Python integer 5902958103587056517120 out of bounds"):
        lw.jit(lambda x: x * (x.shape[0] * 2**70))(np.arange(5))


def test_powers_of_sizes_do_not_wrap():
    """One version serves the sizes whose powers int64 holds."""
    def f(x):
        n = x.shape[0]
        return x[:2] * n**3, x[:2] / ((n - 1) * (n - 2) * (n - 3)), x[:2] * (n * n)
    g = lw.jit(f)
    for n in (5, 7, 1000, 1_000_000, 2_500_000, 3_000_000, 9):
        for a, b in zip(g(np.ones(n)), f(np.ones(n)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert g.compiles == 4
