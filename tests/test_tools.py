"""Tools around transforms: eval_shape, linear_transpose, hvp, disable_jit."""
import threading

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax

A = np.arange(6.0).reshape(2, 3)
X = np.linspace(-1.0, 1.0, 3)
Struct = lw.ShapeDtypeStruct


# ---- eval_shape -------------------------------------------------------------------------------------
def test_eval_shape_computes_nothing():
    found = lw.eval_shape(lambda x, y: {"a": x @ y, "n": 3, "b": (x > 0, x.astype(np.float32))}, A, y=Struct((3, 5), "f8"))
    assert found == {"a": Struct((2, 5), np.float64), "n": Struct((), np.int64),
                     "b": (Struct((2, 3), bool), Struct((2, 3), "f4"))}
    huge = Struct((10**6, 10**6), np.float64)
    assert lw.eval_shape(lambda x: np.sum(np.sin(x), axis=0), huge).shape == (10**6,)
    assert "shape=(1000000, 1000000), dtype=float64" in repr(huge) and huge.ndim == 2 and len({huge, huge}) == 1
    with pytest.raises(lw.ConcretizationError):
        lw.eval_shape(lambda x: x if x > 0 else -x, 1.0)
    with pytest.raises(lw.ShapeError):
        lw.eval_shape(lambda x: x @ x, A)
    with pytest.raises(lw.ArgumentError, match="argument 0"):
        lw.eval_shape(np.sin, "text")
    with pytest.raises(lw.ArgumentError, match="integers and sizes"):
        lw.eval_shape(np.sin, Struct((2.5,), float))


def test_eval_shape_inside_a_trace_keeps_sizes():
    @lw.jit
    def f(x):
        s = lw.eval_shape(lambda y: np.concatenate([y, y]), x)
        again = lw.eval_shape(np.sin, s)
        assert again == s
        return x * s.shape[0]
    np.testing.assert_array_equal(f(X), X * 6)
    np.testing.assert_array_equal(f(np.ones(5)), np.full(5, 10.0))
    assert f.compiles == 1


# ---- linear_transpose -------------------------------------------------------------------------------
def test_linear_transpose():
    f = lw.linear_transpose(lambda x, y: {"s": A @ x + 2.0 * y, "t": np.sum(x)}, X, Struct((2,), np.float64))
    dx, dy = f({"s": np.array([1.0, -1.0]), "t": 10.0})
    np.testing.assert_allclose(dx, A.T @ [1.0, -1.0] + 10.0)
    np.testing.assert_allclose(dy, [2.0, -2.0])
    once = lw.linear_transpose(lambda x: lax.scan(lambda c, r: (c + r @ x, c), 0.0, A)[0], X)
    np.testing.assert_allclose(once(1.0)[0], A.sum(0))
    assert lw.linear_transpose(lambda x: np.zeros(2), 1.0)(np.ones(2)) == (0.0,)


def test_linear_transpose_inside_traces():
    def f(w, ct):
        return lw.linear_transpose(lambda x: np.sin(w) * x, w)(ct)[0]
    np.testing.assert_allclose(lw.jit(f)(X, X), np.sin(X) * X)
    np.testing.assert_allclose(lw.vmap(f)(X, X), np.sin(X) * X)
    np.testing.assert_allclose(lw.grad(lambda w: np.sum(f(w, X)))(X), np.cos(X) * X)


@pytest.mark.parametrize("f", [np.sin, lambda x: x * x, lambda x: 1.0 / (x + 5.0), lambda x: np.max(x), lambda x: x ** 2])
def test_what_is_not_linear_has_no_transpose(f):
    with pytest.raises(lw.GradientError, match=r"test_tools\.py:\d+: \w+ is not linear"):
        lw.linear_transpose(f, X)(f(X))


def test_linear_transpose_of_integers():
    with pytest.raises(lw.GradientError, match="argument 0 has type"):
        lw.linear_transpose(lambda x: x * 2, 3)
    with pytest.raises(lw.GradientError, match="result has type"):
        lw.linear_transpose(lambda x: x > 0, 3.0)
    with pytest.raises(lw.ArgumentError, match="containers"):
        lw.linear_transpose(lambda x: x * 2, 3.0)((1.0, 2.0))


# ---- hvp --------------------------------------------------------------------------------------------
def test_hvp():
    f = lambda x: np.sum(np.exp(x) * x[::-1])  # noqa: E731
    np.testing.assert_allclose(lw.hvp(f, (X,), (X,)), lw.hessian(f)(X) @ X)
    np.testing.assert_allclose(lw.jit(lambda x, v: lw.hvp(f, (x,), (v,)))(X, X), lw.hessian(f)(X) @ X)
    dx, dy = lw.hvp(lambda x, y: x ** 3 * y, (2.0, 3.0), (1.0, 10.0))
    assert (dx, dy) == (6 * 2.0 * 3.0 + 3 * 4.0 * 10.0, 3 * 4.0)
    with pytest.raises(lw.ArgumentError, match="primals"):
        lw.hvp(f, X, X)


# ---- disable_jit ------------------------------------------------------------------------------------
def test_disable_jit():
    seen = []

    @lw.jit
    def f(x, n=2):
        seen.append(x)
        return x * n
    assert f(2.0) == 4.0 and not isinstance(seen[0], float)
    with lw.disable_jit():
        assert f(3.0, n=5) == 15.0 and seen[1:] == [3.0]
        with lw.disable_jit(False):
            assert f(4.0) == 8.0 and seen[-1] == 4.0
        other = []
        thread = threading.Thread(target=lambda: other.append(f(2.0)))
        thread.start()
        thread.join()
        assert other == [4.0] and len(seen) == 3  # the other thread runs what was compiled
        assert lw.grad(lambda x: f(x) if x > 0 else x)(1.0) == 2.0
    count = len(seen)
    assert f(2.0) == 4.0 and len(seen) == count and f.compiles == 1
    with pytest.raises(ZeroDivisionError), lw.disable_jit():
        lw.jit(lambda x: x / 0)(1)
    assert f(2.0) == 4.0 and len(seen) == count
