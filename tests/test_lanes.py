"""Loops of single elements, side by side in lanes: NumPy's values, whatever the number of elements and of their trips."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.schedule import Inline, Parallel, Unroll, Vectorize
from loopwright.lower import program
from loopwright.lower.control import is_control
from loopwright.lower.kernel import kernel
from loopwright.lower.lanes import lane_nest
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.target import host_target
from tests.nests import run_nest
from tests.scale import examples

TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6])


def collatz(n):
    def step(s):
        return np.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1
    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]


def collatz_of(n):
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def root(x):
    """Newton's steps until they stay."""
    def on(s):
        return np.abs(s[0] - s[1]) > 2 * np.finfo(x.dtype).eps * s[0]
    return lax.while_loop(on, lambda s: ((s[0] + x / s[0]) / 2, s[0]), (x, x * 0))[0]


def gcd(a, b):
    return lax.while_loop(lambda s: s[1] != 0, lambda s: (s[1], s[0] % s[1]), (a, b))[0]


def triangle(n):
    """A loop in a loop: 1 + (1 + 2) + ... + (1 + ... + n)."""
    def row(s):
        return s[0] + 1, s[1] + lax.while_loop(lambda t: t[0] <= s[0], lambda t: (t[0] + 1, t[1] + t[0]), (1, 0))[1]
    return lax.while_loop(lambda s: s[0] <= n, row, (1, 0))[1]


def in_turn(n):
    """The end of one loop is the start of the next."""
    m = lax.while_loop(lambda k: k * k < n, lambda k: k + 1, 0)
    return lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] * 2), (m, 1))[1] + m


def walk(n):
    """Numbers in a table say where to go on."""
    def step(s):
        return lw.numpy.take(TABLE, s[0], mode="clip"), s[1] + s[0]
    return lax.while_loop(lambda s: s[1] < n, step, (0, 1))[1]


def walk_of(n):
    at, total = 0, 1
    while total < n:
        at, total = TABLE[min(at, len(TABLE) - 1)], total + at
    return total


def in_turn_of(n):
    m = int(np.ceil(np.sqrt(n)))
    return 2 ** m + m


INTEGERS = {
    "collatz": (collatz, collatz_of), "a loop in a loop": (triangle, lambda n: n * (n + 1) * (n + 2) // 6),
    "one after the other": (in_turn, in_turn_of), "a table": (walk, walk_of),
}


def kernels_of(f, *args):
    return program.lower_graph(lw.make_graph(f)(*args), host_target(), blas=True).kernels


def is_one_kernel(f, *args):
    g = kernels_of(f, *args)
    return not any(map(is_control, g.nodes)) and any(n.op is kernel and n.regions[0].nodes[0].op is scan for n in g.nodes)


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("name", INTEGERS)
def test_numbers(name, bits, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_VECTOR_BITS", str(bits))
    f, expected = INTEGERS[name]
    jitted = lw.jit(lw.vmap(f))
    for count in (0, 1, 3, 16, 33, 100):
        n = np.random.default_rng(count).integers(1, 60, count)
        np.testing.assert_array_equal(jitted(n), np.array([expected(int(x)) for x in n], int))
    assert jitted.compiles == 1
    assert is_one_kernel(lw.vmap(f), np.arange(1, 5))


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=70),
       st.sampled_from([np.int32, np.int64, np.uint32, np.uint64]))
def test_greatest_divisors(pairs, dtype):
    a, b = (np.array([p[k] for p in pairs], dtype) for k in (0, 1))
    np.testing.assert_array_equal(GCD(a, b), np.gcd(a, b))


GCD = lw.jit(lw.vmap(gcd))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_roots(dtype):
    x = np.random.default_rng(0).uniform(0.01, 1e6, 77).astype(dtype)
    for f in (root, lambda x: lax.fori_loop(0, (x * 0 + 40).astype(np.int64), lambda i, y: (y + x / y) / 2, x)):
        np.testing.assert_allclose(lw.jit(lw.vmap(f))(x), np.sqrt(x), rtol=4 * np.finfo(dtype).eps)
        assert is_one_kernel(lw.vmap(f), x)


def test_a_condition_that_is_false_at_once():
    f = lw.jit(lw.vmap(lambda x: lax.while_loop(lambda y: y < 0, lambda y: y / 0 + np.nan, x)))
    x = np.arange(40.0)
    np.testing.assert_array_equal(f(x), x)


def test_half_precision_bytes_and_truths():
    def f(h, b, t):
        s = lax.while_loop(lambda s: s[2] & (s[0] < 100), lambda s: (s[0] * 2, s[1] + np.uint8(100), s[1] < 250), (h, b, t))
        return s
    h, b, t = np.array([1, 3, 200], np.float16), np.array([0, 100, 200], np.uint8), np.array([True, True, False])
    got = lw.jit(lw.vmap(f))(h, b, t)
    for k in range(3):
        x, y, on = h[k], b[k], t[k]
        while on and x < 100:
            with np.errstate(all="ignore"):
                x, y, on = np.float16(x * np.float16(2)), np.uint8((int(y) + 100) % 256), y < 250
        assert (got[0][k], got[1][k], got[2][k]) == (x, y, on)


# ---- batches of batches -------------------------------------------------------------------------------
def test_axes_in_and_out():
    a, b = np.random.default_rng(0).integers(1, 99, (2, 3, 5)), np.arange(1, 4)
    want = np.gcd(a, b[None, :, None])
    f = lw.vmap(lw.vmap(lw.vmap(gcd, (0, None)), (0, 0)), (0, None))
    np.testing.assert_array_equal(lw.jit(f)(a, b), want)
    assert is_one_kernel(f, a, b)
    g = lw.jit(lw.vmap(lw.vmap(gcd, (None, 0)), (0, None)))
    np.testing.assert_array_equal(g(b, np.arange(7)), np.gcd(b[:, None], np.arange(7)))


def test_nothing_is_transposed():
    a = np.arange(1, 13).reshape(3, 4)
    names = [n.op.name for k in kernels_of(lw.vmap(lw.vmap(gcd)), a, a).nodes for r in k.regions for n in r.nodes]
    assert names == ["scan"]


def test_maps_in_reverse():
    def f(n):
        return lax.scan(lambda c, x: ((), collatz(x)), (), n, reverse=True)[1]
    n = np.arange(1, 50)
    np.testing.assert_array_equal(lw.jit(f)(n), [collatz_of(int(x)) for x in n])


# ---- derivatives ------------------------------------------------------------------------------------
def test_derivatives():
    """Of x halved until it is below 1: a power of two."""
    def f(x):
        return lax.while_loop(lambda y: y > 1, lambda y: y / 2, x) ** 2
    x = np.array([0.3, 1.5, 7.0, 100.0])
    scale = 2.0 ** -np.maximum(np.ceil(np.log2(x)), 0)
    np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(f)))(x), 2 * x * scale**2)
    np.testing.assert_allclose(lw.jit(lambda x: lw.jvp(lw.vmap(f), (x,), (np.ones(4),))[1])(x), 2 * x * scale**2)


# ---- what stays a loop between kernels ----------------------------------------------------------------
def test_indices_that_may_be_out_of_range():
    def f(n):
        return lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] + 1, s[1] + lw.numpy.asarray(TABLE)[s[0]]), (0, 0))[1]
    g = lw.jit(lw.vmap(f))
    np.testing.assert_array_equal(g(np.array([1, 3, 8, 31])), [3, 3, 8, 31])
    with pytest.raises(IndexError, match="index 8 is out of bounds"):
        g(np.array([1, 32]))
    assert not is_one_kernel(lw.vmap(f), np.array([1, 32]))


def test_elements_that_are_arrays():
    def f(x):
        return lax.while_loop(lambda y: np.sum(y) > 1, lambda y: y / 2, x)
    x = np.random.default_rng(0).uniform(1, 9, (5, 3))
    np.testing.assert_array_equal(lw.jit(lw.vmap(f))(x), [row / 2 ** np.ceil(np.log2(np.sum(row))) for row in x])
    assert not is_one_kernel(lw.vmap(f), x)


# ---- the nest -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("f", "args"), [(gcd, (np.arange(12) * 7, np.arange(12) * 3 + 1)), (triangle, (np.arange(9),)),
                                         (walk, (np.arange(9),))])
def test_the_nest_means_the_same(f, args):
    g = kernels_of(lw.vmap(f), *args)
    at, = [i for i, n in enumerate(g.nodes) if n.regions[0].nodes[0].op is scan]
    k = g.nodes[at]
    given = evaluate(Graph(g.params, g.nodes[:at], k.inputs), [*args, TABLE][:len(g.params)])
    nest = build_nest(k.regions[0], k.attrs["schedule"], "nest").nest
    out = [np.zeros(len(args[0]), v.type.dtype) for v in k.outputs]
    run_nest(nest, given, out, {s: len(args[0]) for s in k.regions[0].symbols})
    np.testing.assert_array_equal(out[0], lw.vmap(f)(*args))


def test_schedules():
    k, = kernels_of(lw.vmap(gcd), np.arange(4), np.arange(4)).nodes
    region = k.regions[0]
    assert region.nodes[0].regions[0].nodes[0].op is while_
    assert lane_nest(region, (), "plain").body[0].lanes == 1
    assert lane_nest(region, (Vectorize(0, 0, 4), Unroll(0, 3)), "wide").body[0].unroll == 3
    assert lane_nest(region, (Parallel(),), "shared").body[0].parallel
    for x in (Vectorize(0, 1, 4), Inline(0), Parallel(("i0",))):
        with pytest.raises(ScheduleError, match="lanes along their last loop"):
            build_nest(region, (x,), "refused")
