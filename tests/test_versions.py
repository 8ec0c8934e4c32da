"""Loops that write to arrays they carry: the values are NumPy's, and no trip walks through a whole array, backwards neither."""
import re

import numpy as np
import pytest

import loopwright as lw
from loopwright.lax import fori_loop


def looped(body):
    """A function of an array and of what else a trip reads, by fori_loop; and the same by Python's loop."""
    def traced(x, *others):
        return fori_loop(1, x.shape[0] - 1, lambda i, x: body(i, x, *others), x)

    def plain(x, *others):
        x = x.copy()
        for i in range(1, x.shape[0] - 1):
            x = body(i, x, *others)
        return x
    return traced, plain


def part_of_a_column(i, x, y):
    x[1:-1, i] = 0.5 * x[1:-1, i - 1] + y[1:-1, i]
    return x


def part_of_a_row_backwards(i, x, y):
    x[i, -2:0:-1] = x[i - 1, 1:-1] * y[i, i]
    return x


def every_other(i, x, y):
    x[::2, i] = y[::2, i + 1] - x[1, i]
    return x


def number_in_a_row(i, x, y):
    x[0, i] = x[1, i - 1] + y[0, i]
    return x


def two_in_turn(i, x, y):
    x[i, i] = y[i, i - 1]
    x[i, i + 1] = x[i, i] * 0.5
    return x


def three_in_turn(i, x, y):
    x[i] = x[i - 1] * 0.5
    x[i, 1:] += y[i, 1:]
    x[:, i] = x[:, i - 1] + 0.25
    return x


def swap(i, x, y):
    x[i], x[i - 1] = x[i - 1] * y[i], x[i].copy()
    return x


def borders(i, x, y):
    x[0] = y[i]
    x[1:, -1] = 0.5
    x[i, 0] += 1.5
    return x


def read_between(i, x, y):
    x[i, 1] = y[i, 0]
    y = y[i] + x[i, 1]
    x[i, 2:] = y[2:]
    return x


def added_twice(i, x, y):
    np.add.at(x, (np.array([1, 1, 2]), slice(1, 4)), y[i, 1:4])
    return x


BODIES = [part_of_a_column, part_of_a_row_backwards, every_other, number_in_a_row, two_in_turn, three_in_turn, swap, borders,
          read_between, added_twice]


@pytest.mark.parametrize("shape", [(6, 6), (9, 12), (40, 50)])
@pytest.mark.parametrize("body", BODIES)
def test_values_are_numpys(body, shape):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    traced, plain = looped(body)
    before = x.copy()
    np.testing.assert_allclose(lw.jit(traced)(x, y), plain(x, y), rtol=1e-13)
    np.testing.assert_array_equal(x, before)
    batch = lw.jit(lw.vmap(traced))(np.stack([x, y]), np.stack([y, x]))
    np.testing.assert_allclose(batch, [plain(x, y), plain(y, x)], rtol=1e-13)


@pytest.mark.parametrize("body", BODIES)
def test_gradients_are_differences(body):
    rng = np.random.default_rng(1)
    x, y, w = rng.normal(size=(3, 6, 7))
    traced, plain = looped(body)
    found = lw.jit(lw.grad(lambda x, y: np.sum(traced(x, y) * w), (0, 1)))(x, y)
    for k, g in enumerate(found):
        step = rng.normal(size=x.shape)
        ends = [np.sum(plain(*(a + (h * step if j == k else 0) for j, a in enumerate((x, y)))) * w) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(np.sum(g * step), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-7)


def lines_of_loops(text):
    """The heads of kernels in the regions of loops: what each makes, and its schedule."""
    return [line for line in text.splitlines() if re.match(r" {6,}%.* = kernel\(", line)]


def whole(text):
    """Those that make a matrix anew in each trip."""
    made = [line for line in lines_of_loops(text) if re.search(r"f64\[\w+, \w+\] = kernel", line)]
    return [line for line in made if "InPlace" not in line]


@pytest.mark.parametrize("body", [b for b in BODIES if b is not read_between])
def test_no_trip_makes_an_array_anew(body):
    x, y = np.ones((2, 9, 8))
    traced, _ = looped(body)
    assert whole(str(lw.jit(traced).lower(x, y).kernels)) == []


@pytest.mark.parametrize("body", [part_of_a_column, part_of_a_row_backwards, number_in_a_row, two_in_turn])
def test_nor_does_one_backwards(body):
    x, y = np.ones((2, 9, 8))
    traced, _ = looped(body)
    assert whole(str(lw.jit(lw.grad(lambda x, y: np.sum(traced(x, y)), (0, 1))).lower(x, y).kernels)) == []


def test_constants_that_are_read_by_place_get_their_gradients_in_place():
    def f(a, b):
        return fori_loop(0, a.shape[0], lambda i, s: s + a[i, i] * b[i, 1:-1] @ a[1:-1, i], 0.0)
    a, b = np.random.default_rng(2).normal(size=(2, 12, 12))
    g = lw.jit(lw.grad(f, (0, 1)))
    assert whole(str(g.lower(a, b).kernels)) == []
    batched = lw.jit(lw.vmap(lw.grad(f, (0, 1))))
    assert not re.search(r"f64\[\w+, \w+, \w+\] = kernel(?!.*InPlace)", "\n".join(lines_of_loops(str(
        batched.lower(np.stack([a, b]), np.stack([b, a])).kernels))))
    da, db = g(a, b)
    np.testing.assert_allclose(batched(np.stack([a, b]), np.stack([b, a])), np.stack([(da, db), g(b, a)], 1), rtol=1e-12)
    want = np.zeros((2, 12, 12))
    for i in range(12):
        want[0, i, i] += b[i, 1:-1] @ a[1:-1, i]
        want[0, 1:-1, i] += a[i, i] * b[i, 1:-1]
        want[1, i, 1:-1] += a[i, i] * a[1:-1, i]
    np.testing.assert_allclose([da, db], want, rtol=1e-12)


def test_updates_one_after_another_copy_once_outside_loops():
    def f(x, i, v):
        x = x.copy()
        for k in range(5):
            x[i[k]] = v[k]
        return x
    x, i, v = np.arange(40.0), np.array([3, 1, 3, 0, 7]), np.arange(5.0)
    compiled = lw.jit(f)
    np.testing.assert_array_equal(compiled(x, i, v), f(x, i, v))
    assert str(compiled.lower(x, i, v).kernels).count("InPlace") == 4
    np.testing.assert_array_equal(x, np.arange(40.0))


def test_a_version_that_is_a_result_too_is_kept():
    def f(x, i):
        x = x.copy()
        x[i] = 1.0
        y = x.copy()
        x[i + 1] = 2.0
        return y, x, x[i] + y[i + 1]
    x = np.zeros(30)
    for got, want in zip(lw.jit(f)(x, 4), f(x, 4), strict=True):
        np.testing.assert_array_equal(got, want)


def test_donated_memory_is_written_after_its_last_read():
    @lw.jit(donate_argnums=(0,))
    def f(x, i):
        x = x.copy()
        last = x[i]
        x[i] = 5.0
        x[i + 1] = last
        return x, np.sum(x) - last
    x = np.arange(200.0)
    want = x.copy()
    want[3], want[4] = 5.0, 3.0
    y, total = f(x, 3)
    np.testing.assert_array_equal(y, want)
    assert total == want.sum() - 3.0


@pytest.mark.parametrize("kept", [0, 1])
def test_an_outer_loop_keeps_what_inner_ones_update(kept):
    def inner(i, x):
        x[i] = x[i - 1] + 1.0
        return x

    def outer(t, x):
        x = fori_loop(1, x.shape[0], inner, x)
        if kept:
            x[t] = 0.5 * x[t]
        return fori_loop(2, x.shape[0], inner, x)

    def plain(x):
        x = x.copy()
        for t in range(3):
            for i in range(1, len(x)):
                x[i] = x[i - 1] + 1.0
            x[t] *= 0.5 if kept else 1.0
            for i in range(2, len(x)):
                x[i] = x[i - 1] + 1.0
        return x
    x = np.random.default_rng(3).normal(size=50)
    before = x.copy()
    np.testing.assert_allclose(lw.jit(lambda x: fori_loop(0, 3, outer, x))(x), plain(x))
    np.testing.assert_array_equal(x, before)


def test_a_store_before_an_inner_loop_that_stores():
    def inner(i):
        def body(j, x):
            x[i, j] += x[i, j - 1]
            x[i, j] /= 3.0
            return x
        return body

    def outer(i, x):
        x[i, 1:-1] += x[i - 1, 1:-1] + x[i + 1, 1:-1]
        return fori_loop(1, x.shape[1] - 1, inner(i), x)

    def plain(x):
        x = x.copy()
        for i in range(1, x.shape[0] - 1):
            x[i, 1:-1] += x[i - 1, 1:-1] + x[i + 1, 1:-1]
            for j in range(1, x.shape[1] - 1):
                x = inner(i)(j, x)
        return x
    x = np.random.default_rng(4).normal(size=(7, 9))
    f = lw.jit(lambda x: fori_loop(1, x.shape[0] - 1, outer, x))
    np.testing.assert_allclose(f(x), plain(x), rtol=1e-13)
    assert whole(str(f.lower(x).kernels)) == []


def each_of_the_other(i, a, b):
    a[i, 1:], b[i - 1] = b[i, 1:] + 1.0, a[i] * 0.5
    return a, b


def jacobi(i, a, b):
    b[1:-1, 1:-1] = a[:-2, 1:-1] + a[2:, 1:-1] - 2 * a[1:-1, 2:]
    a[1:-1, 1:-1] = b[1:-1, :-2] * 0.5 + b[i, 0]
    return a, b


def of_itself(i, a, b):
    a[1:-1] = 0.5 * (a[2:] + a[:-2]) + b[i]
    b[1:, ::2] = a[:-1, ::2]
    return a, b


def over_one_another(i, a, b):
    a[:, 1:] = b[:, :-1] + i
    a[1:, 0] = 0.25
    b[:-1] = a[1:] * 0.5
    a[:2] = b[1:3]
    return a, b


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(5, 6), (40, 64), (300, 70)])
@pytest.mark.parametrize("body", [each_of_the_other, jacobi, of_itself, over_one_another])
def test_two_arrays(body, shape, threads):
    def plain(a, b):
        a, b = a.copy(), b.copy()
        for i in range(1, 4):
            a, b = body(i, a, b)
        return a, b

    def f(a, b):
        return fori_loop(1, 4, lambda i, s: body(i, *s), (a, b))
    a, b = np.random.default_rng(5).normal(size=(2, *shape))
    lw.set_threads(threads)
    try:
        found = lw.jit(f)(a, b)
    finally:
        lw.set_threads(None)
    for got, want in zip(found, plain(a, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    if body is jacobi:
        assert whole(str(lw.jit(f).lower(a, b).kernels)) == []
    slopes = lw.jit(lw.grad(lambda a, b: sum(np.sum(x * x) for x in f(a, b)), (0, 1)))(a, b)
    step = np.random.default_rng(6).normal(size=(2, *shape))
    ends = [sum(np.sum(x * x) for x in plain(a + h * step[0], b + h * step[1])) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.sum(np.stack(slopes) * step), (ends[0] - ends[1]) / 2e-6, rtol=1e-5)
