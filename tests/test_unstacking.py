"""Arrays of a few columns by columns: the same values, no stack left inside a loop, and nothing where no column is taken."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.graph import Graph
from loopwright.lower.unstacking import unstacked
from tests.scale import examples


def _ops(g: Graph) -> list[str]:
    return [name for n in g.nodes for name in (n.op.name, *(m for r in n.regions for m in _ops(r)))]


def _lorenz(s):
    return np.stack([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])


def _step(s, _):
    k = _lorenz(s)
    return s + 0.01 * (k + _lorenz(s + 0.01 * k)) / 2, s[0]


def _path(x):
    return lw.lax.scan(_step, x, None, length=20)


def _by_hand(x):
    seen = []
    for _ in range(20):
        seen.append(x[0])
        x = _step(x, None)[0]
    return x, np.stack(seen)


def test_a_loop_carries_columns() -> None:
    x = np.random.default_rng(0).normal(size=(37, 3))
    body = next(n for n in unstacked(lw.make_graph(lw.vmap(_path))(x)).nodes if n.op.name == "scan").regions[0]
    assert "concatenate" not in _ops(body) and "slice" not in _ops(body)
    assert [v.type.rank for v in body.results] == [1] * 4


@pytest.mark.parametrize("n", [0, 1, 5, 16, 1000])
def test_paths_are_those_of_each_point(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(n, 3))
    last, seen = lw.jit(lw.vmap(_path))(x)
    assert last.shape == (n, 3) and seen.shape == (n, 20)
    for k in range(n):
        one, its = _by_hand(x[k])
        assert np.array_equal(last[k], one) and np.array_equal(seen[k], its)


def test_a_loop_carries_what_is_stacked_along_the_first_axis() -> None:
    f = lw.jit(lambda x: _path(x))
    for n in (37, 0, 1, 500):
        x = np.random.default_rng(n).normal(size=(3, n))
        for got, expected in zip(f(x), _by_hand(x), strict=True):
            np.testing.assert_array_equal(got, expected)
    body = next(n for n in unstacked(lw.make_graph(_path)(x)).nodes if n.op.name == "scan").regions[0]
    assert "concatenate" not in _ops(body) and "slice" not in _ops(body)
    assert [v.type.rank for v in body.results] == [1] * 4 and f.compiles == 1


@pytest.mark.parametrize("axis", [0, -1])
def test_loops_that_carry_nothing(axis: int) -> None:
    """Their rows have an axis more."""
    def one(x):
        a, b = (x[0], x[1]) if axis == 0 else (x[:, 0], x[:, 1])
        y = np.stack([b, a * 2, a - b], axis=axis)
        return y * (y[:1] + y[2] if axis == 0 else y[:, :1] + y[:, 2:])
    for t in (3, 7):
        x = np.random.default_rng(t).normal(size=(t, 2, 5) if axis == 0 else (t, 5, 2))
        np.testing.assert_array_equal(lw.jit(lambda x: lw.lax.map(one, x))(x), np.stack([one(row) for row in x]))


def test_stacks_along_the_first_axis_outside_loops_stay() -> None:
    g = lw.make_graph(lambda x, y: np.stack([x, y])[0] + np.stack([x, y])[1])(np.ones((5, 3)), np.ones((5, 3)))
    assert "concatenate" in _ops(g) and unstacked(g) is g


def test_gradients_through_a_loop_of_columns() -> None:
    x = np.random.default_rng(1).normal(size=(9, 3))
    def loss(x):
        return np.sum(np.sin(_path(x)[0]))
    batched = lw.jit(lw.vmap(lw.grad(loss)))(x)
    assert np.allclose(batched, np.stack([lw.grad(loss)(row) for row in x]), rtol=1e-12)


def test_stacks_whose_columns_nothing_takes_stay() -> None:
    g = lw.make_graph(lambda x, y: np.exp(np.stack([x, y], axis=-1)) + 1)(np.ones(5), np.ones(5))
    assert unstacked(g) is g


def test_what_is_read_whole_is_put_together() -> None:
    def f(x, y):
        z = np.stack([x, x * y, y], axis=-1)
        w = z * z + 1
        return w @ np.ones((3, 2)), w[:, 1] - w[:, 2], np.sort(w, axis=-1)
    x, y = np.random.default_rng(2).normal(size=(2, 33))
    for got, expected in zip(lw.jit(f)(x, y), f(x, y), strict=True):
        assert np.allclose(got, expected, rtol=1e-14)


def test_loops_that_run_on_data_and_branches() -> None:
    def body(s):
        z = np.stack([s[:, 1], s[:, 0] + s[:, 1]], axis=-1)
        w = z * 0.5
        return np.stack([w[:, 0] + 1, w[:, 1]], axis=-1)
    def f(x):
        y = lw.lax.while_loop(lambda s: np.max(s) > 3, body, x)
        return lw.lax.cond(np.sum(y) > 0, body, lambda s: s - 1, y)
    def by_hand(x):
        while np.max(x) > 3:
            x = body(x)
        return body(x) if np.sum(x) > 0 else x - 1
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(6, 2)) * 10
        assert np.allclose(lw.jit(f)(x), by_hand(x), rtol=1e-13)


def _until(x):
    """Steps of sizes of their own, until each has come far enough; what is carried is a vector and two numbers."""
    def body(c):
        s, t, h = c
        k = _lorenz(s)
        error = np.sqrt(((_lorenz(s + h * k) - k) ** 2).sum()) * h
        good = error < 0.5
        return np.where(good, s + h * k, s), np.where(good, t + h, t), np.where(good, h * 1.1, h * 0.5)
    return lw.lax.while_loop(lambda c: c[1] < 0.3, body, (x, np.sum(x) * 0.0, np.sum(x) * 0.0 + 0.05))


def test_vectors_in_loops_that_run_on_data_are_in_one_kernel() -> None:
    x = np.random.default_rng(3).normal(size=(70, 3))
    compiled = lw.jit(lw.vmap(_until))
    states, times, steps = compiled(x)
    text = compiled.lower(x).kernels
    loop = next(line for line in text.splitlines() if "= scan(" in line)
    assert loop.startswith("      ")  # not between kernels, but inside one
    for k in range(70):
        for got, expected in zip((states[k], times[k], steps[k]), _until(x[k]), strict=True):
            assert np.allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("fold", [np.sum, np.prod, np.max, np.min])
def test_folds_of_columns(fold) -> None:
    def f(x, y):
        z = np.stack([x, y], axis=-1)
        return fold(z, axis=-1), z[:, 0] + z[:, 1]
    values = np.array([-0.0, 0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(invalid="ignore"):
        for got, expected in zip(lw.jit(f)(x, y), f(x, y), strict=True):
            assert np.array_equal(got, expected, equal_nan=True)
            if fold in (np.sum, np.prod):  # which zero is the greater is left open
                assert np.array_equal(np.signbit(got)[expected == 0], np.signbit(expected)[expected == 0])


_COLUMNWISE = [np.sin, np.abs, np.negative, lambda x: x * 2 + 1, lambda x: np.where(x > 0, x, -2.0),
               lambda x: x.astype(np.float32)]


def test_stacks_of_columns_with_sums_of_their_rows():
    def f(x):
        columns = [x[:, j] for j in range(5)]
        columns.append(x[:, 0] + 1)
        columns.append(x.sum(-1) + x[::-1, 0])
        z = np.stack([columns[(2 + j) % 7] for j in range(5)], axis=-1)
        columns.append(x[:, 0] + 1)
        return z, columns[-1], x
    for n in (0, 1, 7, 40):
        x = np.random.default_rng(n).normal(size=(n, 5))
        for got, expected in zip(lw.jit(f)(x), f(x), strict=True):
            np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("axis", [0, -1])
@examples(20)
@given(data=st.data())
def test_random_loops(axis: int, data: st.DataObject) -> None:
    """What a loop carries is put together along one axis and taken apart along either."""
    n, k, m = data.draw(st.integers(0, 20)), data.draw(st.integers(2, 4)), data.draw(st.sampled_from([(), (2,), (3,)]))
    plan = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.integers(0, 99)), min_size=2, max_size=8))
    lies = (k, *m, n) if axis == 0 else (n, *m, k)

    def take(z, j):
        return z[j] if axis == 0 else z[..., j]

    def body(_, z):
        arrays, columns = [z], [take(z, j) for j in range(k)]
        for kind, a, b in plan:
            y, c = arrays[a % len(arrays)], columns[b % len(columns)]
            if kind == 0:
                arrays.append(np.stack([columns[(a + j * b) % len(columns)] for j in range(k)], axis=axis))
            elif kind == 1:
                arrays.append(_COLUMNWISE[b % len(_COLUMNWISE)](y).astype(np.float64))
            elif kind == 2:
                arrays.append(y * arrays[b % len(arrays)] + np.expand_dims(c, axis))
            elif kind == 3:
                columns.append(take(y, b % k) * np.float64(0.5))
            elif kind == 4:
                columns.append(y.max(axis) + take(y[:, ::-1] if axis == 0 else y[::-1], b % k))
            else:
                arrays.append(y[::-1] if a % 2 else y[..., ::-1])
        return np.tanh(arrays[-1]) + np.expand_dims(columns[-1], axis) * 0.1

    x = np.random.default_rng(n).normal(size=lies)
    expected = x
    with np.errstate(all="ignore"):
        for _ in range(3):
            expected = body(0, expected)
        np.testing.assert_allclose(lw.jit(lambda x: lw.lax.fori_loop(0, 3, body, x))(x), expected, rtol=1e-5, atol=1e-5)


@examples(40)
@given(data=st.data())
def test_random_programs(data: st.DataObject) -> None:
    """Stacks, maps of them, columns and parts of columns, whole arrays and reductions, in any order."""
    n, k = data.draw(st.integers(0, 40)), data.draw(st.integers(2, 5))
    plan = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=14))

    def f(x):
        columns, arrays = [x[:, j] for j in range(k)], [x]
        for kind, a, b in plan:
            z, c = arrays[a % len(arrays)], columns[b % len(columns)]
            if kind == 0:
                arrays.append(np.stack([columns[(a + j * b) % len(columns)] for j in range(k)], axis=-1))
            elif kind == 1:
                arrays.append(_COLUMNWISE[b % len(_COLUMNWISE)](z).astype(np.float64))
            elif kind == 2:
                arrays.append(z * arrays[b % len(arrays)] + c[:, None])
            elif kind == 3:
                columns.append(z[:, b % k] + 1)
            else:
                columns.append(z.sum(-1) + z[::-1, b % k])
        return arrays[-1], columns[-1], arrays[len(arrays) // 2]

    x = np.random.default_rng(n).normal(size=(n, k))
    with np.errstate(all="ignore"):
        for got, expected in zip(lw.jit(f)(x), f(x), strict=True):
            assert np.allclose(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("fold", [np.sum, np.max, np.min, np.prod])
@examples(15)
@given(n=st.integers(1, 40), m=st.integers(1, 30), dtype=st.sampled_from(["f4", "f8", "i4"]), times=st.integers(1, 3),
       axes=st.sampled_from([None, -1, (0, -1), (1, 2)]), seed=st.integers(0, 99))
def test_folds_of_what_is_made_of_a_stack(fold, n, m, dtype, times, axes, seed) -> None:
    """Maps, repeats and other shapes of it."""
    x, y = (np.random.default_rng(seed).normal(size=(2, n, m)) * 3).astype(dtype)
    fold = np.sum if dtype == "i4" and fold is np.prod else fold

    def f(x, y):
        z = np.repeat(np.stack([x, y, x - y], axis=-1) * 2 + 1, times, axis=1) / 4
        z = 1 + z / 1000 if fold is np.prod else z  # whose products are numbers of usual size in any order
        return fold(z, axis=axes), fold(np.reshape(z, (-1, 3)), axis=-1)
    g = lw.jit(f)
    for a, b in zip(g(x, y), f(x, y), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3 if fold is np.sum else 0)


def test_a_fold_of_everything_leaves_no_stack() -> None:
    def f(x, y):
        return np.sum(np.repeat(np.stack([x, y], axis=-1), 3, axis=0) * 2)
    x = np.ones((30, 40))
    assert "concatenate" in _ops(lw.make_graph(f)(x, x))
    assert "concatenate" not in _ops(unstacked(lw.make_graph(f)(x, x)))
    assert lw.jit(f)(x, x) == f(x, x)
