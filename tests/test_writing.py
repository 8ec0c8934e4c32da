"""x[key] = v and x += v on traced arrays do what NumPy does to a fresh array, and refuse what they cannot do."""
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
import loopwright.numpy as lnp
from loopwright.ir.builder import Builder, tracing
from loopwright.ir.errors import ConcretizationError, WriteError
from loopwright.ir.types import F64, ArrayType
from loopwright.tracer.tracer import Tracer
from tests.scale import examples
from tests.test_indexing import shape_and_key
from tests.tracing import run, same


def written(x, key, value):
    y = x.copy()
    y[key] = value
    return y


@examples(200)
@given(shape_and_key(), st.booleans(), st.booleans(), st.data())
def test_writes_what_numpy_writes(case, symbolic, is_scalar, data):
    shape, key = case
    x = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 10.0)
    try:
        target = x[key].shape
    except IndexError:
        return
    value = 7 if is_scalar else np.arange(np.prod(target, dtype=int)).reshape(target)
    if not is_scalar and target and data.draw(st.booleans()):
        value = value[..., :1] if target[-1] else value  # broadcast along the last axis
    same(run(lambda x: written(x, key, value), x, symbolic=symbolic), written(x, key, value))
    if not is_scalar:
        same(run(lambda x, v: written(x, key, v), x, value, symbolic=symbolic), written(x, key, value))


@examples(60)
@given(shape_and_key(), st.booleans())
def test_in_place_operators_on_a_part(case, symbolic):
    shape, key = case
    x = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 10.0)

    def f(x):
        y = x.copy()
        y[key] += 3
        y[key] *= 2.0
        return y
    try:
        expected = f(x)
    except IndexError:
        return
    same(run(f, x, symbolic=symbolic), expected)


@examples(60)
@given(shape_and_key(), st.booleans())
def test_add_at_counts_every_duplicate(case, symbolic):
    shape, key = case
    x = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 10.0)

    def f(x):
        y = x.copy()
        np.add.at(y, key, 2.0)
        np.subtract.at(y, key, 0.5)
        return y
    try:
        expected = f(x)
    except IndexError:
        return
    same(run(f, x, symbolic=symbolic), expected)


X = np.arange(12.0).reshape(3, 4)
M = X % 5 > 2
CASES = [
    lambda x, m: written(x, m, -1.0),
    lambda x, m: written(x, (m,), 5),
    lambda x, m: written(x, m[0][:3] if isinstance(x, np.ndarray) else m[0, :3], 2.5),
    lambda x, m: written(x, x > 4, 0),
    lambda x, m: written(x.astype(np.int32), m, 3.7),
    lambda x, m: written(x, (slice(None), slice(None, None, -2)), x[:, :2]),
    lambda x, m: written(x, ..., 4),
    lambda x, m: written(x, (0, 1), x[1, 1]),
    lambda x, m: written(x, (slice(1, 1), 2), 3),
    lambda x, m: written(x.astype(np.float32), 1, x[0] + 0.1),
    lambda x, m: written(x, [0, 0, 2], np.array([[1.0], [2.0], [3.0]])),
    lambda x, m: written(x, (slice(None), [3, 0, 3]), np.arange(3.0)),
    lambda x, m: written(x, (None, 2), x[None, :1] * 2),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_writes_of_other_kinds(number, symbolic):
    same(run(CASES[number], X, M, symbolic=symbolic), CASES[number](X, M))


def test_values_of_x_shape_are_taken_where_a_traced_mask_holds():
    same(run(lambda x, m: written(x, m, x * 2), X, M), np.where(M, X * 2, X))


def test_operators_in_place():
    def f(x):
        y = x + 0
        z = y  # the same array
        y += 1
        y *= x
        y -= np.float32(2)
        y /= 4
        y **= 2
        y //= 0.5
        y %= 7
        return z
    same(run(f, X), f(X))

    def g(i):
        j = i.copy()
        j <<= 2
        j |= 1
        j &= 6
        j ^= 3
        j >>= 1
        j @= np.ones((4, 4), int)
        return j
    i = np.arange(12).reshape(3, 4)
    same(run(g, i), g(i))


def test_in_place_keeps_the_dtype_or_refuses():
    same(run(lambda x: (y := x.astype(np.float32), y.__iadd__(x), y)[2], X), X.astype(np.float32) * 2)
    with pytest.raises(TypeError, match="same_kind"):
        run(lambda x: x.astype(np.int64).__itruediv__(2), X)
    with pytest.raises(ValueError, match="non-broadcastable output"):
        run(lambda x: (x[0] + 0).__iadd__(x), X)


def test_numbers_are_replaced_not_written():
    def f(x):
        total = x[0, 0]
        for k in range(3):
            total += x[k]
        return total
    same(run(f, X), f(X))


def test_functions_that_write():
    def f(x, m):
        y = np.zeros_like(x)
        np.copyto(y, x, where=m)
        z = x.copy()
        np.putmask(z, m, 3)
        w = x.copy()
        w.fill(2.5)
        v = x[:, ::-1].copy()
        v.sort()
        return y, z, w, v
    for got, expected in zip(run(f, X, M), f(X, M), strict=True):
        same(got, expected)


def test_creation_inside_a_trace_can_be_written():
    def f(x):
        out = lnp.zeros(x.shape)
        for k in range(3):
            out[k] = x[k] * k
        table = lnp.array([[1.0, 2.0, 3.0, 4.0]])
        table[0, 0] = x[0, 1]
        return out + table
    expected = X * np.arange(3)[:, None] + np.array([[1.0, 2, 3, 4]])
    same(run(f, X, symbolic=True), expected)


# ---- views --------------------------------------------------------------------------------------
VIEWS = [lambda x: x[1:], lambda x: x.T, lambda x: x[::-1, 1], lambda x: np.swapaxes(x, 0, 1)[1:], lambda x: x[None, 1:2][0],
         lambda x: np.broadcast_to(x, (2, 3, 4)), np.flip, np.diagonal, lambda x: np.expand_dims(x, 0),
         lambda x: np.split(x, 3)[1], lambda x: x.reshape(4, 3), lambda x: x.ravel(), lambda x: np.moveaxis(x, 0, 1)]


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_a_view_follows_its_base(number):
    def f(x):
        y = x.copy()
        v = VIEWS[number](y)
        y[1, 1] = -5
        first = v + 0
        y += 1
        return first, v
    for got, expected in zip(run(f, X), f(X), strict=True):
        same(got, expected)


COPIES = [lambda x: x[[0, 1]], lambda x: x[np.array([True, False, True])], lambda x: x + 0, lambda x: x.copy(),
          lambda x: x.flatten(), lambda x: np.repeat(x, 2), lambda x: x[1, 1], lambda x: np.take(x, [1]), lambda x: np.sort(x)]


@pytest.mark.parametrize("number", range(len(COPIES)))
def test_a_copy_does_not_follow(number):
    def f(x):
        y = x.copy()
        c = COPIES[number](y)
        y[...] = 9
        return c
    x = np.arange(9.0).reshape(3, 3)
    same(run(f, x), f(x))


def test_a_reshape_whose_layout_is_not_known_is_refused_after_a_write():
    def f(x):
        y = x * 2  # laid out like x, in C or Fortran order
        v = y.reshape(-1)
        y[0] = 0
        return v
    with pytest.raises(WriteError, match="depends on the memory layout"):
        run(f, X)


@pytest.mark.parametrize("write", [
    lambda x: x.__setitem__(0, 1), lambda x: x.__iadd__(1), lambda x: np.add.at(x, 0, 1), lambda x: x.sort(),
    lambda x: x.fill(0)])
def test_arguments_are_protected(write):
    with pytest.raises(WriteError, match=r"test_writing\.py:\d+: .*argument of jit of f.*x = x\.copy\(\)"):
        run(lambda x: write(x), X)


def test_writes_through_a_view_are_refused():
    def through(x):
        y = x.copy()
        y[0][1] = 2
    with pytest.raises(WriteError, match=r"through a view.*x\[i, j\] = v"):
        run(through, X)


def inner_of(x):
    y = np.zeros_like(x)[1:, 1:]
    for k in range(2):
        y[:, k:] += x[1:, 1:][:, k:]
    y[0] = 7
    return y


def row_alone(x):
    v = x.copy()[0]
    v += 1
    return v


def turned(x):
    y = (x + 1).reshape(-1, 2).T
    y[0] = 5
    z = y[1:]
    del y
    z[0] += 1
    return z


def chosen(x):
    y = (x + 1)[:, 1:]
    y[y > 3] = 0
    np.add.at(y, [0, 0], 1)
    return y


def with_views(x):
    y = (x + 1)[::-1]
    z = y[0]
    y[0, 1] = 9
    return np.vstack([y, z])


def of_what_is_gone(x):
    y = x + 1
    z = y[0]
    y[0] = 1
    del y
    z += 2
    return z


@pytest.mark.parametrize("f", [inner_of, row_alone, turned, chosen, with_views, of_what_is_gone])
def test_views_of_what_nothing_else_can_read_are_written(f):
    x = np.arange(12.0).reshape(3, 4)
    same(run(f, x), f(x))


def sibling(x):
    y = x + 1
    a, b = y[0], y[0, 1:]
    del y
    a[2] = 1
    return b


def argument(x):
    x = x[0]
    x[1] = 2.0
    return x


@pytest.mark.parametrize("f", [sibling, argument])
def test_views_of_what_others_read_are_not(f):
    with pytest.raises(WriteError, match=r"test_writing.py:\d+: .*through a view"):
        run(f, np.arange(12.0).reshape(3, 4))


def row_of(x):
    y = x.copy()
    r = y[1]
    r += 1.0
    return y


def rows_of(x):
    y = x.copy()
    for r in y:
        r *= 2.0
    return y


def number_of(x):
    y = x.copy()
    r = y[1, 2, ...]
    r += 1.0
    return y


def transposed_of(x):
    y = x.copy()
    r = y.T
    r -= 1.0
    return y


def argument_of(x):
    r = x[0]
    r += 1.0
    return x


def view_of_view(x):
    y = x.copy()
    r = y[1]
    q = r[1:]
    q += 1.0
    return r


@pytest.mark.parametrize("f", [row_of, rows_of, number_of, transposed_of, argument_of, view_of_view])
def test_operators_in_place_on_views_are_refused_when_what_they_would_change_is_read(f):
    x = np.arange(12.0).reshape(3, 4)
    with pytest.raises(WriteError, match=r"test_writing.py:\d+: `y \+= v` on a view"):
        run(f, x)


def stored_elsewhere(x):
    y = x.copy()
    r = y[0]
    r += 1.0
    y[1] = r
    return y


def stored_under_a_mask(x):
    y = x.copy()
    r = y[0]
    r += 1.0
    y[y > 100] = r
    return y


@pytest.mark.parametrize("f", [stored_elsewhere, stored_under_a_mask])
def test_operators_in_place_on_views_are_refused_where_the_result_is_stored_at_another_place(f):
    with pytest.raises(WriteError, match=r"test_writing.py:\d+: `y \+= v` on a view"):
        run(f, np.arange(12.0).reshape(3, 4))


def test_results_of_operators_in_place_are_views_yet():
    def g(x, k):
        y = x + 1
        r = y[k - 1]
        s = r
        r += 1
        y[k - 1] = r
        y[0] = 3
        return np.vstack([y, r, s])
    x = np.arange(12.0).reshape(3, 4)
    same(lw.jit(g)(x, 1), g(x, 1))
    same(lw.jit(g)(x, 2), g(x, 2))


def test_operators_in_place_on_views_that_are_stored_are_not():
    def g(x):
        y = x.copy()
        y[1] += 1.0
        y[..., 2] *= 3.0
        r = y[1]
        r += 1.0
        y[1] = r
        y[...] += 1.0
        n = y[1, 2]
        n += 5.0
        return y + n
    x = np.arange(12.0).reshape(3, 4)
    same(run(g, x), g(x))


def test_an_outer_array_is_not_written_from_inside():
    outer = Builder(why="jit of f")
    with tracing(outer):
        x = Tracer(outer.param(ArrayType((3,), F64))).copy()
        inner = Builder(why="vmap of g")
        with tracing(inner), pytest.raises(WriteError, match="from inside vmap of g"):
            x[0] = 1.0


def test_a_local_array_may_hold_values_of_an_inner_trace():
    outer = Builder(why="jit of f")
    with tracing(outer):
        w = Tracer(outer.param(ArrayType((3,), F64)))
        inner = Builder(why="vmap of g")
        with tracing(inner):
            v = Tracer(inner.param(ArrayType((), F64)))
            buffer = np.zeros_like(w)
            buffer[1] = v
            assert buffer.ref.builder is inner


def test_stores_into_real_arrays_name_what_works():
    def store(x):
        np.zeros(3)[0] = x[0, 0]
    with pytest.raises(ValueError, match="setting an array element") as caught:  # NumPy's words; ours are its cause
        run(store, X)
    assert isinstance(caught.value.__cause__ or caught.value.__context__, ConcretizationError)
    assert "lw.numpy.zeros" in str(caught.value.__cause__ or caught.value.__context__)

    def add(x):
        total = np.zeros(4)
        total += x[0]
    with pytest.raises(ConcretizationError, match=r"array \+= x"):
        run(add, X)
    with pytest.raises(WriteError, match=r"np\.add\.at would store"):
        run(lambda x: np.add.at(np.zeros(4), 0, x[0, 0]), X)


def test_a_value_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"could not broadcast input array from shape \(3,\) into shape \(4,\)"):
        run(lambda x: written(x, 0, np.ones(3)), X)
    with pytest.raises(OverflowError, match="300 out of bounds"):
        run(lambda x: written(x.astype(np.uint8), 0, 300), X)


def of_views(draw, x, k):
    """Views of views, copies and writes, by chance; what nothing refers to any more is gone."""
    pool = {"a": x + 1, "b": x * 2}
    for _ in range(draw.randrange(3, 10)):
        v, to = pool[draw.choice(sorted(pool))], draw.choice("cdef")
        part = draw.choice([0, -1, k, slice(1, None), slice(None, None, -1), slice(None, None, 2)])
        match draw.randrange(8 if v.ndim else 1):
            case 0:
                pool[to] = draw.choice([np.copy, lambda v: v * 2])(v)
            case 1 | 2:
                pool[to] = draw.choice([lambda v: v[part], lambda v: v.T, lambda v: v[..., :-1], lambda v: v.reshape(-1)])(v)  # noqa: B023
            case 3:
                pool.pop(draw.choice(sorted(pool)))
            case 4 | 5:
                v[part] = draw.choice([3.0, 7.0])
            case 6:
                v[part] += 2.0
            case 7:
                row = v[0]
                row *= 3.0
                v[draw.choice([0, -1])] = row
                del row
        del v
        pool = pool or {"a": x - 1}
    return np.concatenate([pool[name].reshape(-1).copy() for name in sorted(pool)])


@examples(60)
@given(st.integers(0, 10**6))
def test_random_views_and_writes(seed):
    x = np.arange(12.0).reshape(3, 4)
    try:
        want = of_views(random.Random(seed), x, 1)
    except IndexError:  # of an array of less than two rows
        return
    try:
        got = lw.jit(of_views, static_argnums=0)(random.Random(seed), x, 1)
    except WriteError:  # a view that something else could tell
        return
    np.testing.assert_array_equal(got, want)
