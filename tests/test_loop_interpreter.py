"""The loop interpreter on each kind of expression by hand: it is the judge of loop rules, so nothing here runs an op's own."""
import numpy as np
import pytest

from loopwright.ir.dims import symbol
from loopwright.ir.loop_interpreter import Environment, evaluate_expr, run_expr, run_loop
from loopwright.ir.loops import (
    Apply,
    Bounded,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    Prefix,
    Reduce,
    Scatter,
    Size,
    When,
    integer,
    less,
    plus,
)
from loopwright.ir.ops import TABLE
from loopwright.ir.types import BF16, BOOL, C128, F16, F32, F64, I8, I32, I64, ArrayType

X = np.array([3.0, -1.0, 4.0, -1.0, 5.0])
J, K = Index("j"), Index("k")


def value(expr: Expr, *arrays: np.ndarray, **environment: object) -> object:
    return evaluate_expr(expr, Environment(dict(enumerate(arrays)), **environment))


def fold(monoid: str, x: np.ndarray, dtype: np.dtype | None = None) -> object:
    return value(Reduce(monoid, ((K, len(x)),), Load(0, (K,), x.dtype), dtype or x.dtype), x)


def test_names_and_numbers():
    n = symbol("n")
    assert value(J, indices={"j": 3}) == 3
    assert value(Size(n * 2 + 1), sizes={"n": 4}) == 9
    assert value(Local("row", F32), locals={"row": np.float32(2)}) == 2
    for number, dtype in ((1.5, F32), (1.5, BF16), (7, I8), (True, BOOL), (1 + 2j, C128)):
        assert value(Literal(number, dtype)) == number
    assert value(Load(0, (plus(J, integer(1)),), F64), X, indices={"j": 1}) == 4


def test_apply_is_the_op_on_scalars():
    assert value(Apply("add", (Literal(100, I8), Literal(100, I8)), I8)) == -56
    assert value(Apply("convert", (Literal(1e9, F64),), I8)) == 127
    assert value(Apply("floor_divide", (Literal(1, I32), Literal(0, I32)), I32)) == 0


def test_a_wrong_dtype_is_found():
    with pytest.raises(AssertionError, match="states"):
        value(Apply("add", (Literal(1.0, F32), Literal(1.0, F32)), F64))
    with pytest.raises(TypeError, match="must be equal"):
        value(Apply("add", (Literal(1.0, F32), Literal(1.0, F64)), F64))
    with pytest.raises(AssertionError, match="states dtype"):
        value(Load(0, (J,), F32), X, indices={"j": 0})


def test_when_is_lazy():
    expr = When(less(J, integer(5)), Load(0, (J,), F64), Literal(0.0, F64))
    assert [value(expr, X, indices={"j": i}) for i in (4, 5, 99)] == [5, 0, 0]


@pytest.mark.parametrize(("i", "users"), [(-1, -6), (5, 5)])  # a negative index has been wrapped once
def test_a_load_outside_is_our_bug_and_a_bounded_index_the_users(i, users):
    with pytest.raises(AssertionError, match="a load of array 0"):
        value(Load(0, (J,), F64), X, indices={"j": i})
    with pytest.raises(IndexError, match=f"index {users} is out of bounds for axis 2 with size 5"):
        value(Load(0, (Bounded(J, 5, 2),), F64), X, indices={"j": i})


@pytest.mark.parametrize(("monoid", "function"), [
    ("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min), ("argmax", np.argmax), ("argmin", np.argmin),
])
def test_folds(monoid, function):
    dtype = I64 if monoid.startswith("arg") else None
    for x in (X, X.astype(F32), X.astype(F16), X.astype(I32), X.astype(I8)):
        assert fold(monoid, x, dtype) == function(x)
    with_nan = np.array([1.0, np.nan, 9.0, np.nan])
    np.testing.assert_equal(fold(monoid, with_nan, dtype), function(with_nan))


def test_folds_of_bool():
    for x in (np.array([True, False]), np.array([True]), np.array([False]), np.array([], bool)):
        assert fold("any", x) == np.any(x)
        assert fold("all", x) == np.all(x)


def test_folds_of_nothing_are_identities():
    assert (fold("sum", X[:0]), fold("prod", X[:0]), fold("max", X[:0]), fold("min", X[:0])) == (0, 1, -np.inf, np.inf)
    nothing = np.array([], I8)
    assert (fold("max", nothing), fold("min", nothing)) == (-128, 127)
    assert (fold("max", nothing.astype(bool)), fold("min", nothing.astype(bool))) == (False, True)


def test_integer_sums_wrap_and_half_sums_are_wide():
    assert fold("sum", np.array([100, 100], I8)) == -56
    assert fold("sum", np.full(4096, 1.0, F16)) == 4096  # 2048 + 1 is 2048 in float16
    assert fold("sum", np.full(1024, 1.0, BF16)) == 1024


def test_a_fold_over_two_indices_is_in_c_order():
    x = np.arange(6.0).reshape(2, 3)
    total = Reduce("sum", ((J, 2), (K, 3)), Load(0, (J, K), F64), F64)
    assert value(total, x) == 15
    first = Reduce("argmax", ((K, 3),), Load(0, (integer(1), K), F64), I64)
    assert value(first, x) == 2


def test_prefix_ends_at_last():
    running = Prefix("sum", K, 5, J, Load(0, (K,), F64), F64)
    assert [value(running, X, indices={"j": i}) for i in range(5)] == list(np.cumsum(X))
    assert value(Prefix("prod", K, 5, integer(2), Load(0, (K,), F64), F64), X) == -12


def scattered(combine: str, index: list[int], when: Expr | None = None) -> list[float]:
    expr = Scatter((J,), Literal(0.0, F64), ((K, 3),), (Bounded(Load(0, (K,), I64), 4, 0),), Load(1, (K,), F64), combine, when)
    arrays = {0: np.array(index), 1: np.array([1.0, 2.0, 3.0])}
    return list(run_expr(expr, (J,), ArrayType((4,), F64), Environment(arrays)))


def test_scatter_in_c_order():
    assert scattered("set", [2, 0, 2]) == [2, 0, 3, 0]
    assert scattered("add", [2, 0, 2]) == [2, 0, 4, 0]
    assert scattered("add", [2, 99, 2], less(Load(0, (K,), I64), integer(4))) == [0, 0, 4, 0]
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        scattered("set", [0, 4, 1])


def test_an_op_without_a_loop_rule_is_named():
    library_calls = [op for op in TABLE.values() if op.loop is None]
    for op in library_calls:
        with pytest.raises(ValueError, match=op.name):
            run_loop(op, [])
