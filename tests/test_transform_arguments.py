"""Arguments and results of transforms: containers, dtypes, layouts, and whose memory they are."""
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import loopwright as lw
from loopwright.autodiff.calls import float0
from loopwright.ir.errors import ArgumentError, ConcretizationError, WriteError
from loopwright.jacobians import jacfwd, jacrev
from loopwright.transforms import grad, jvp, linearize, value_and_grad, vjp, vmap
from tests.test_transforms import close

Point = namedtuple("Point", "x y")


@dataclass
class Layer:
    w: np.ndarray
    b: np.ndarray


# ---- arguments ------------------------------------------------------------------------------------------
def test_gradients_have_the_container_and_dtype_of_the_argument():
    params = {"layers": [Layer(np.ones((2, 3), np.float32), np.zeros(3, np.float32)), Layer(np.ones((3, 1)), np.zeros(1))],
              "scale": Point(2.0, np.float32(3)), "none": None}

    def f(p, x):
        for layer in p["layers"]:
            x = np.tanh(x @ layer.w + layer.b)
        return np.sum(x) * p["scale"].x + p["scale"].y
    g = grad(f)(params, np.ones((5, 2)))
    assert type(g["layers"][0]) is Layer and type(g["scale"]) is Point and g["none"] is None
    assert g["layers"][0].w.dtype == np.float32 and g["layers"][0].w.shape == (2, 3) and g["layers"][1].w.dtype == np.float64
    assert type(g["scale"].x) is np.float64 and type(g["scale"].y) is np.float32 and g["scale"].y == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_dtypes_stay(dtype):
    x = np.arange(3).astype(dtype)
    assert grad(lambda x: np.sum(np.real(x * x)))(x).dtype == dtype
    for y in (*jvp(lambda x: x * x, (x,), (x,)), vjp(lambda x: x * x, x)[1](x)[0], vmap(lambda x: x * x)(x)):
        assert y.dtype == dtype
    scalar = np.dtype(dtype).type(2)
    assert type(grad(lambda x: np.real(x * x))(scalar)) is type(scalar)


def test_python_numbers():
    value, g = value_and_grad(lambda x: x * x)(3.0)
    assert type(value) is np.float64 and type(g) is np.float64
    assert type(grad(lambda x, y: np.sum(x * y), 1)(np.ones(3, np.float32), 2.0)) is np.float64
    assert grad(lambda x, y: np.sum(x * y))(np.ones(3, np.float32), 2.0).dtype == np.float32


def test_argnums():
    def f(x, y, z):
        return x * x * y + z
    assert grad(f, 1)(2.0, 3.0, 4.0) == 4 and grad(f, -1)(2.0, 3.0, 4.0) == 1
    assert grad(f, (0, 1))(2.0, 3.0, 4.0) == (12, 4) and grad(f, [2, 0])(2.0, 3.0, 4.0) == (1, 12)
    with pytest.raises(ArgumentError, match="argnums=3 names argument 3, but the call has 3"):
        grad(f, 3)(2.0, 3.0, 4.0)
    with pytest.raises(ArgumentError, match="names an argument twice"):
        grad(f, (0, -3))(2.0, 3.0, 4.0)


def test_what_is_not_differentiated():
    """Arrays are traced, with values; everything else is passed as it is."""
    def f(x, mode, *, n, table):
        assert mode == "sum" and type(n) is int
        return x * n * float(table["a"][1])
    assert grad(f)(2.0, "sum", n=3, table={"a": np.arange(2.0)}) == 3


def test_tables_are_read_at_traced_places():
    table, scores = np.arange(10.0) ** 2, np.array([0.1, 3.0, 0.2])
    assert grad(lambda w, t: np.sum(w * t[np.argmax(w)]))(scores, table).tolist() == [1, 1, 1]
    close(grad(lambda w, t: np.sum(w * t[np.argsort(w)]))(scores, table), [0, 4, 1])
    close(vmap(lambda t, k: t[k], (None, 0))(table, np.array([3, 5])), [9, 25])
    close(vmap(lambda k, *, t: t[k] * 2)(np.array([0, 1]), t=np.array([[3, 5.0], [7, 9]])), [6, 18])


def test_integers_with_values_index_real_arrays():
    labels = np.array([2, 0])
    close(grad(lambda w, y: np.sum(w * np.eye(3)[y]))(np.ones((2, 3)), labels), np.eye(3)[labels])
    with pytest.raises(ConcretizationError, match=r"test_transform_arguments\.py:\d+"):
        lw.jit(grad(lambda w, y: np.sum(w * np.eye(3)[y])))(np.ones((2, 3)), labels)
    with pytest.raises(ConcretizationError, match=r"test_transform_arguments\.py:\d+"):
        grad(lambda x: np.sum(np.asarray(x)))(np.ones(2))


def test_errors_of_values_name_the_line():
    with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 0 with size 3 \(at .*arguments\.py:\d+\)"):
        grad(lambda x: x[np.array(7)])(np.ones(3))
    with pytest.raises(IndexError, match=r"test_transform_arguments\.py"):
        vmap(lambda x, k: x[k], (None, 0))(np.ones(3), np.array([1, 7]))


def test_arrays_that_are_not_differentiated_cannot_be_written():
    def f(x, y):
        y[0] = 5
        return np.sum(x * y)
    y = np.ones(3)
    for call in (lambda: grad(f)(np.ones(3), y), lambda: vmap(f, (0, None))(np.ones((2, 3)), y)):
        with pytest.raises(WriteError, match=r"test_transform_arguments\.py:\d+"):
            call()
    assert y[0] == 1


def test_aux():
    def f(x):
        return x * x, {"twice": 2 * x, "name": np.arange(3)}
    g, aux = grad(f, has_aux=True)(3.0)
    assert g == 6 and aux["twice"] == 6 and aux["name"].tolist() == [0, 1, 2]
    (value, aux), g = value_and_grad(f, has_aux=True)(3.0)
    assert (value, g, aux["twice"]) == (9, 6, 6)
    y, t, aux = jvp(f, (3.0,), (1.0,), has_aux=True)
    assert (y, t, aux["twice"]) == (9, 6, 6)
    y, pull, aux = vjp(f, 3.0, has_aux=True)
    assert (y, pull(1.0), aux["twice"]) == (9, (6,), 6)
    y, push, aux = linearize(f, 3.0, has_aux=True)
    assert (y, push(1.0), aux["twice"]) == (9, 6, 6)
    assert grad(lambda x: grad(f, has_aux=True)(x)[1]["twice"] * x)(3.0) == 12
    with pytest.raises(ArgumentError, match=r"has_aux=True: the function must return a pair"):
        grad(lambda x: x, has_aux=True)(1.0)


def test_integers_have_empty_gradients_where_allowed():
    g = grad(lambda n, x: x * n, argnums=(0, 1), allow_int=True)(3, 2.0)
    assert g[0].dtype == float0 and g[0].shape == () and g[1] == 3
    cts = vjp(lambda n, x: x * n, np.arange(3), np.ones(3))[1](np.ones(3))
    assert cts[0].dtype == float0 and cts[0].shape == (3,)
    y, t = jvp(lambda x: (x, np.floor(x).astype(int)), (np.ones(2),), (np.ones(2),))
    assert y[1].dtype == int and t[1].dtype == float0
    assert jvp(lambda x, n: x * n, (2.0, 3), (1.0, np.zeros((), float0)))[1] == 3
    assert vjp(lambda x: (x * 2, np.floor(x).astype(int)), 2.0)[1]((1.0, np.zeros((), float0))) == (2,)


# ---- results --------------------------------------------------------------------------------------------
def assert_own(results, *arguments):
    results = list(results)
    for k, x in enumerate(results):
        assert type(x) is np.ndarray and x.flags.c_contiguous and x.flags.writeable
        assert not any(np.shares_memory(x, y) for y in (*results[:k], *arguments))


def test_results_share_no_memory():
    x = np.arange(6.0).reshape(2, 3)
    assert_own(jvp(lambda x: x, (x,), (x,)), x)
    assert_own(vjp(lambda x: x.T, x)[1](x.T.copy()), x)
    assert_own([vmap(lambda x: x)(x), *vmap(lambda x: (x, x))(x)], x)
    assert_own(grad(lambda x, y: np.sum(x + y), (0, 1))(x, x), x)
    y, pull = vjp(lambda x: x, x)
    assert_own([y, *pull(x)], x)
    assert_own([vmap(lambda r: r, out_axes=1)(x)], x)
    for y in (grad(np.sum)(x[:, 0]), vmap(lambda a: a)(np.ones(2))):
        assert y.flags.c_contiguous
    assert isinstance(jvp(np.sin, (0.0,), (1.0,))[0], np.float64)


@pytest.mark.parametrize("layout", [lambda x: x[::-1], lambda x: x[:, ::2], lambda x: x.T, lambda x: x.astype(">f8"),
                                    lambda x: np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
                                    lambda x: np.lib.stride_tricks.as_strided(x, (3, 3), (0, 8))])
def test_any_layout_of_arguments(layout):
    x = layout(np.arange(12.0).reshape(3, 4))
    plain = np.array(x, dtype=float)
    close(grad(lambda x: np.sum(x * x * x))(x), 3 * plain ** 2)
    close(vmap(lambda r: r * r)(x), plain ** 2)
    close(jvp(np.sin, (x,), (x,))[1], np.cos(plain) * plain)


def test_names_and_documents_are_kept():
    def f(x, y):
        """My words."""
    for transform in (grad, value_and_grad, vmap, jacfwd, jacrev):
        g = transform(f)
        assert g.__name__ == "f" and "My words" in g.__doc__
