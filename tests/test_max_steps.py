"""Loops with a greatest number of trips: their values and derivatives are those of loops without, their memory is not."""
import subprocess
import sys

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.dims import evaluate, symbols_in
from loopwright.lower.plan import plan_memory
from tests.memory import IS_COUNTED

W = np.random.default_rng(1).normal(size=(3, 3)) * 0.5
X = np.array([0.3, -0.2, 1.1])
MOST = 20


def counting(**options):
    def f(x, n):
        def trip(s):
            return s[0] + 1, np.tanh(np.sin(s[1]) @ W + x)
        return np.sum(lax.while_loop(lambda s: s[0] < n, trip, (0, x), **options)[1] ** 2)
    return f


def from_constants(**options):
    """A container of a Python number, an array that no trace made, integers and a carry that stays."""
    def f(x, n):
        def trip(s):
            return {"k": s["k"] + 1, "v": s["v"] * 0.9 + x * s["f"], "f": s["f"], "i": s["i"] + s["k"].astype(np.int32)}
        start = {"k": np.int64(0), "v": np.ones(3), "f": 0.5, "i": np.int32(2)}
        out = lax.while_loop(lambda s: s["k"] < n, trip, start, **options)
        return np.sum(out["v"] * out["v"] * out["f"] + out["i"])
    return f


def counted(**options):
    def f(x, n):
        return np.sum(lax.fori_loop(0, n, lambda i, v: np.sin(v @ W) + x * i, x, **options))
    return f


def until(**options):
    """How often depends on what derivatives are taken of."""
    def f(x, n):
        limit = 0.8 ** (n + 1.0)
        return np.sum(lax.while_loop(lambda v: np.max(np.abs(v)) > limit, lambda v: v * (0.75 + 0.05 * x * x), x / 1.1,
                                     **options))
    return f


def nested(**options):
    def f(x, n):
        def outer(i, v):
            return lax.while_loop(lambda s: s[0] < i % 3 + 1, lambda s: (s[0] + 1, np.tanh(s[1] @ W + x)), (0, v), **options)[1]
        return np.sum(lax.fori_loop(0, n, outer, x, **options) ** 2)
    return f


def in_a_scan(**options):
    def f(x, n):
        def body(c, r):
            return counting(**options)(c, n) * r + c, c
        return np.sum(lax.scan(body, x, x)[1] ** 2)
    return f


PROGRAMS = [counting, from_constants, counted, until, nested, in_a_scan]
WAYS = {
    "value": lambda f: f,
    "jit": lambda f: lw.jit(f),
    "grad": lambda f: lw.grad(f),
    "jit of grad": lambda f: lw.jit(lw.grad(f)),
    "jvp": lambda f: lambda x, n: lw.jvp(lambda y: f(y, n), (x,), (X + 1,))[1],
    "hessian": lambda f: lw.jit(lw.hessian(f)),
    "grad of grad": lambda f: lw.jit(lw.grad(lambda x, n: np.sum(lw.grad(f)(x, n) ** 2))),
    "vmap of grad": lambda f: lambda x, n: lw.jit(lw.vmap(lw.grad(f)))(np.stack([x, x * 0.8]), np.array([n, n // 2])),
    "grad of vmap": lambda f: lw.jit(lw.grad(lambda x, n: np.sum(lw.vmap(f, (None, 0))(x, np.stack([n, n // 2]))))),
}


LARGE = ("hessian", "grad of grad", "vmap of grad")


@pytest.mark.parametrize(("make", "way"), [
    (f, w) for f in PROGRAMS for w in WAYS if f in (counting, until) or w not in LARGE])
def test_results_are_those_of_the_loop_without_a_bound(make, way):
    bounded, free = WAYS[way](make(max_steps=MOST)), WAYS[way](make())
    for n in (0, 7):
        np.testing.assert_allclose(bounded(X, n), free(X, n), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("most", [1, 2, 3, 16, 17])
def test_all_the_trips_that_are_allowed(most):
    f = lw.jit(lw.value_and_grad(counting(max_steps=most)))
    for got, want in zip(f(X, most), lw.value_and_grad(counting())(X, most), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11)


def test_a_loop_of_no_trips():
    assert lax.while_loop(lambda x: x < 0, lambda x: x + 1, 3, max_steps=0) == 3
    assert lw.jit(lambda x: lax.while_loop(lambda x: x < 0, lambda x: x + 1, x, max_steps=0))(3.5) == 3.5


def test_gradients_against_differences():
    f, step = counting(max_steps=MOST), 1e-5
    found = lw.jit(lw.grad(f))(X, 9)
    for k, e in enumerate(np.eye(3) * step):
        assert found[k] == pytest.approx((f(X + e, 9) - f(X - e, 9)) / (2 * step), rel=1e-7)


@pytest.mark.parametrize("way", ["value", "jit", "grad", "jit of grad", "hessian"])
@pytest.mark.parametrize("make", [counting, counted])
def test_more_trips_are_an_error(make, way):
    f = WAYS[way](make(max_steps=MOST))
    f(X, MOST)
    with pytest.raises(lw.CheckError, match=rf"{__file__}:\d+: .*_loop of (trip|<lambda>) needs more than max_steps=20 trips"):
        f(X, MOST + 1)
    f(X, MOST)


def test_the_error_names_the_element_of_a_batch():
    f = lw.jit(lw.vmap(counting(max_steps=MOST), (None, 0)))
    with pytest.raises(lw.CheckError, match="first fails at index 1"):
        f(X, np.array([3, 21, 20]))


@pytest.mark.parametrize(("bound", "said"), [(-1, "not be negative, got -1"), (2.5, "must be an integer .* got float")])
def test_bounds_that_are_none(bound, said):
    for f in (counting(max_steps=bound), lw.jit(counting(max_steps=bound)), counted(max_steps=bound)):
        with pytest.raises(lw.ArgumentError, match=said):
            f(X, 3)


def test_a_traced_bound_is_refused():
    with pytest.raises(lw.ArgumentError, match="max_steps must be an integer"):
        lw.jit(lambda n: lax.while_loop(lambda x: x < n, lambda x: x + 1, 0, max_steps=n))(3)


def test_carries_that_change_say_so():
    with pytest.raises(lw.ShapeError, match="while_loop of"):
        lw.jit(lambda x: lax.while_loop(lambda v: v[0] < 1, lambda v: v[:1], x, max_steps=4))(X)
    with pytest.raises(lw.DTypeError, match="the condition must be one bool"):
        lw.jit(lambda x: lax.while_loop(lambda v: v, lambda v: v + 1, x, max_steps=4))(X)


def test_the_body_is_traced_once():
    calls = []

    def body(s):
        calls.append(1)
        return s[0] + 1, s[1] * 0.5
    lw.jit(lambda x: lax.while_loop(lambda s: s[0] < 5, body, (np.int64(0), x), max_steps=9))(X)
    assert len(calls) == 1


def test_effects_happen_once():
    seen = []

    def body(s):
        lw.debug.callback(lambda k: seen.append(int(k)), s[0])
        return s[0] + 1, np.sin(s[1])
    f = lw.jit(lw.grad(lambda x: np.sum(lax.while_loop(lambda s: s[0] < 7, body, (0, x), max_steps=9)[1])))
    f(X)
    assert seen == list(range(7))


def test_a_static_loop_is_in_segments_too():
    def f(x, **options):
        return np.sum(lax.fori_loop(2, 12, lambda i, v: np.sin(v @ W) + x * i, x, **options))
    found = lw.jit(lw.grad(lambda x: f(x, max_steps=10)))(X)
    np.testing.assert_allclose(found, lw.grad(f)(X), rtol=1e-11)
    rows = lw.jit(lw.grad(lambda x: np.sum(lax.fori_loop(0, x.shape[0], lambda i, v: v * x[i], 1.0, max_steps=5))))
    np.testing.assert_allclose(rows(X), np.prod(X) / X, rtol=1e-12)
    with pytest.raises(lw.CheckError):
        rows(np.ones(6))


# ---- memory -----------------------------------------------------------------------------------------
def deepest(g, sizes, trips):
    """The bytes that a graph takes at most, with so many trips in loops from the outside to the inside."""
    inside = 0
    for n in g.nodes:
        own = {**sizes, **dict.fromkeys(symbols_in(n.attrs["size"]), trips[0])} if n.op.name == "sized" else sizes
        left = trips[1:] if n.op.name == "sized" else trips
        inside = max([inside, *(deepest(r, own, left) for r in n.regions if n.op.name != "kernel")])
    return evaluate(plan_memory(g).bytes, sizes) + inside


def scratch(f, trips, width=1000):
    versions = lw.jit(f)._versions
    call = versions.parameters.call((np.ones(width), 5), {})
    entry = versions.entry(call)
    return deepest(entry.compiled.kernels, entry.sizes_of(call), trips) / (8 * width)


def wide(**options):
    def f(x, n):
        return np.sum(lax.fori_loop(0, n, lambda i, v: np.sin(v) * x, x, **options))
    return lw.grad(f)


def test_memory_grows_with_the_root_of_the_trips():
    free = [scratch(wide(), (n,)) for n in (16, 64, 256)]
    bounded = [scratch(wide(max_steps=n), (round(n ** 0.5),) * 2) for n in (16, 64, 256)]
    assert free[2] - free[1] >= 256 - 64
    assert bounded[2] - bounded[1] < 4 * 8
    assert 1.5 < (bounded[2] - bounded[1]) / (bounded[1] - bounded[0]) < 2.5


MEASURED = """
import sys
import numpy as np
import loopwright as lw
from tests.memory import growth
from tests.test_max_steps import wide

trips, bound = 400, int(sys.argv[1])
f = lw.jit(wide(max_steps=bound) if bound else wide())
f(np.ones(2), trips)
x = np.ones(50_000)
print(growth(lambda: f(x, trips)) / x.nbytes)
"""


def carries_of_memory(bound):
    """By how much the peak of memory grows in a process that takes the gradient, in sizes of the carry."""
    run = subprocess.run([sys.executable, "-c", MEASURED, str(bound)], capture_output=True, text=True, timeout=300, check=True)
    return float(run.stdout)


@pytest.mark.skipif(not IS_COUNTED, reason="the system does not say what memory a process had at most")
def test_the_system_counts_what_the_plan_says():
    assert carries_of_memory(400) < 5 * 20
    assert carries_of_memory(0) > 350
