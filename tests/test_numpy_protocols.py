"""What traced arrays answer to Python and to NumPy's protocols, and what `docs/numpy.md` says about the rest."""
import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
import loopwright.numpy as lnp
from loopwright.ir.builder import Builder, tracing
from loopwright.ir.errors import ConcretizationError
from loopwright.ir.types import F64, I64, ArrayType
from loopwright.tracer.tracer import Tracer
from tests.tracing import Traced, run, same

X = np.arange(12.0).reshape(3, 4)
LINE = r"test_numpy_protocols\.py:\d+: "


@pytest.mark.parametrize("ask, what", [
    (lambda x: 1 if x > 0 else 2, "a Python truth test"), (int, "int"), (float, "float"), (complex, "complex"),
    (lambda x: x.item(), r"x\.item"), (lambda x: x.tolist(), "tolist"), (math.sqrt, "float"), (lambda x: f"{x:.2f}", "format"),
])
def test_values_asked_of_a_compiled_trace_are_refused_with_three_ways_out(ask, what):
    with pytest.raises(ConcretizationError, match=LINE + rf".*{what}.*jit of f.*np\.where.*static argument.*move this line"):
        run(lambda x: ask(x[0, 0]) * x, X)


def test_values_are_given_where_the_trace_knows_them():
    builder = Builder(why="grad of f")
    with tracing(builder):
        x = Tracer(builder.param(ArrayType((), F64), np.float64(3.0)), "argument")
        n = Tracer(builder.param(ArrayType((), I64), np.int64(2)), "argument")
        assert x > 2 and int(x * 2) == 6 and float(x) == 3.0 and [1, 2, 3][n] == 3 and complex(x) == 3 and x.item() == 3.0
        assert f"{x:.1f}" == "3.0" and list(range(n)) == [0, 1] and math.sqrt(x * 3) == 3
        v = Tracer(builder.param(ArrayType((3,), F64), np.array([1.0, -1.0, 2.0])), "argument")
        assert v[v > 0].shape == (2,) and np.nonzero(v > 0)[0].tolist() == [0, 2] and v.tolist() == [1, -1, 2]
        assert [float(y) for y in v] == [1, -1, 2] and 2.0 in v
        assert builder.demanded
        with pytest.raises(ConcretizationError, match=r"derivative would be lost.*lw\.numpy\.array"):
            np.asarray(v)


@pytest.mark.parametrize("f", [np.array, np.asarray, np.float64, lambda x: X[x.astype(int)]])
def test_numpys_array_of_a_traced_value_is_refused(f):
    with pytest.raises((ConcretizationError, IndexError, TypeError)):
        run(lambda x: f(x[0]), X)


def test_truth_and_conversion_of_several_elements():
    with pytest.raises(ValueError, match="more than one element is ambiguous"):
        run(lambda x: bool(x), X)
    with pytest.raises(ValueError, match="empty array is ambiguous"):
        run(lambda x: bool(x[:0]), X)
    with pytest.raises(TypeError, match="only 0-dimensional arrays"):
        run(lambda x: float(x[0]), X)
    with pytest.raises(TypeError, match="scalar index"):
        run(lambda x: [1, 2][x[0, 0]], X)
    with pytest.raises(TypeError, match="unsized"):
        run(lambda x: len(x[0, 0]), X)


def test_traced_arrays_are_not_hashable_nor_pickled_but_copied():
    def f(x):
        with pytest.raises(TypeError, match="a traced array is unhashable"):
            hash(x)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(x)
        y = copy.deepcopy(x)
        y[0] = 1
        return y + copy.copy(x)
    run(f, X)


def test_foreign_operands_get_their_turn():
    class Other:
        __array_ufunc__ = None

        def __radd__(self, x):
            return x * 10
    same(run(lambda x: x + Other(), X), X * 10)
    with pytest.raises(TypeError, match="unsupported operand"):
        run(lambda x: x + "a", X)
    with pytest.raises(TypeError, match="expected an array or a number, got object"):
        run(lambda x: np.add(x, object()), X)


def test_unknown_functions_are_refused_by_name():
    with pytest.raises(TypeError, match=LINE + r"np\.linalg\.eigvals is not supported on traced values yet"):
        run(lambda x: np.linalg.eigvals(x), X)
    with pytest.raises(TypeError, match=r"np\.sum\(out=\.\.\.\) is not supported|np\.sum.*real ndarray"):
        run(lambda x: np.sum(x, axis=0, out=np.zeros(4)), X)


@pytest.mark.parametrize("f", [np.nonzero, np.argwhere, np.flatnonzero, np.unique, lambda x: x[x > 0], np.where,
                               lambda x: x.nonzero()])
def test_shapes_that_depend_on_values_name_what_keeps_the_size(f):
    with pytest.raises(ConcretizationError, match=LINE + r".*np\.where.*size="):
        run(lambda x: f(x), X)


def test_captured_arrays_are_read_at_every_call():
    table = np.arange(4.0)
    t = Traced(lambda x: x + table, [X], False)
    same(t(), X + table)
    table *= 2
    same(t(), X + table)


def test_boolean_masks_of_the_program_guard_their_contents():
    mask = np.array([True, False, True])
    t = Traced(lambda x: x[mask], [X], False)
    same(t(), X[mask])
    (array, contents), = t.scope.contents
    assert array is mask and contents == mask.tobytes()


def test_byte_swapped_and_read_only_captures():
    swapped = np.arange(4.0).astype(">f8")
    swapped.flags.writeable = False
    same(run(lambda x: x * swapped, X), X * np.arange(4.0))


# ---- loopwright.numpy ---------------------------------------------------------------------------
def test_every_public_name_is_there_and_is_numpys_on_plain_arrays():
    for name in lnp.__all__:
        assert getattr(lnp, name) is not None or getattr(np, name) is None
    assert set(dir(lnp)) == set(lnp.__all__)
    same(lnp.sin(X), np.sin(X))
    same(lnp.zeros((2, 2)), np.zeros((2, 2)))
    same(lnp.linalg.norm(X), np.linalg.norm(X))
    same(lnp.add.outer([1, 2], [3]), np.add.outer([1, 2], [3]))
    assert lnp.float32 is np.float32 and lnp.pi == math.pi and lnp.add.nin == 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lnp.nothing  # noqa: B018


CASES = [
    (lambda x: lnp.array([x[0, 0], 1.0, 2]), [0.0, 1.0, 2.0]),
    (lambda x: lnp.array([[x[0, 0], x[0, 1]], [1, 2]], dtype=np.float32), np.array([[0, 1], [1, 2]], np.float32)),
    (lambda x: lnp.add([x[0, 0], 1.0], 2), [2.0, 3.0]),
    (lambda x: lnp.take(X, x[0].astype(int) % 3, axis=0), X[[0, 1, 2, 0]]),
    (lambda x: lnp.asarray(X)[x[0].astype(int) % 3], X[[0, 1, 2, 0]]),
    (lambda x: lnp.zeros(x.shape), np.zeros((3, 4))),
    (lambda x: lnp.eye(x.shape[0], k=1), np.eye(3, k=1)),
    (lambda x: lnp.full(x.shape[0], x[0, 1]), np.ones(3)),
    (lambda x: lnp.full(x.shape[0], 2, dtype="f4"), np.full(3, 2, dtype="f4")),
    (lambda x: lnp.arange(x.shape[0]), np.arange(3)),
    (lambda x: lnp.arange(1, x.shape[1] * 2, 3), np.arange(1, 8, 3)),
    (lambda x: lnp.arange(x.shape[1], 0, -1, dtype=float), np.arange(4, 0, -1, dtype=float)),
    (lambda x: lnp.linspace(0, 1, x.shape[1]), np.linspace(0, 1, 4)),
    (lambda x: lnp.linspace(0, x[0], x.shape[0], endpoint=False), np.linspace(0, X[0], 3, endpoint=False)),
    (lambda x: lnp.tri(x.shape[0], x.shape[1], 1), np.tri(3, 4, 1)),
    (lambda x: lnp.identity(x.shape[0]), np.identity(3)),
    (lambda x: lnp.indices(x.shape), np.indices((3, 4))),
    (lambda x: lnp.fromfunction(lambda i, j: i * 2 + j, x.shape), np.fromfunction(lambda i, j: i * 2 + j, (3, 4))),
    (lambda x: lnp.nonzero(x > 4, size=9, fill_value=-1)[1], [1, 2, 3, 0, 1, 2, 3, -1, -1]),
    (lambda x: lnp.nonzero(x > 4, size=3)[0], [1, 1, 1]),
    (lambda x: lnp.take(x, [1, 9], axis=1, mode="fill"), np.stack([X[:, 1], np.full(3, np.nan)], 1)),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_by_name_works_what_the_protocols_cannot_reach(number):
    f, expected = CASES[number]
    same(run(f, X, symbolic=True), expected, 1e-15 if np.asarray(expected).dtype.kind == "f" else 0)


def test_the_document_speaks_of_every_limit_tested_here():
    text = (Path(__file__).parent.parent / "docs" / "numpy.md").read_text()
    for word in ("np.zeros(n)", "np.asarray", "math.", "isinstance", "out=", "np.take", "like=", "size=", "np.arange(n)"):
        assert word in text


def test_round_takes_numbers():
    def f(x):
        return round(np.sum(x), 1)
    x = np.array([0.25, 0.5])
    assert lw.jit(f)(x) == f(x)
    assert lw.grad(lambda x: x * round(x))(2.4) == 2.0
    with pytest.raises(TypeError, match="takes numbers"):
        lw.jit(lambda x: round(x, 1))(x)
    with pytest.raises(lw.ConcretizationError, match="round"):
        lw.jit(lambda x: round(x))(2.4)
