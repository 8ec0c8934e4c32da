"""What loops, branches and effects promise. Each test's docstring is the promise, in short.

Elsewhere: loops of plain functions in test_control_flow.py and test_control_lowering.py (Ctrl-C too); batches of
loops in test_control_batching.py and test_masked_batches.py; collectives in test_named_axes.py; keys and bits in
test_random.py; ties, kinks and masks in test_gradients.py.
"""
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.interpreter import evaluate

# ---- signals ----------------------------------------------------------------------------------------
FOREVER = """
    import os, signal, threading, time
    import numpy as np
    import loopwright as lw
    from loopwright import lax

    {body}

    def limit(value):
        return np.float64(value)

    before = f(*({arguments}), limit({short}))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it otherwise
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    try:
        f(*({arguments}), limit({long}))
    except KeyboardInterrupt:
        waited = time.perf_counter() - start
        assert 0.4 < waited < 1.5, waited
    else:
        raise AssertionError("not interrupted")
    after = f(*({arguments}), limit({short}))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    print("interrupted")
"""
WHILE = "lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, np.sin(s[1]) + x), (0.0, x))[1]"
PROGRAMS = {
    "a batch with one condition": (f"g = lambda x, limit: {WHILE}\nf = lw.jit(lambda x, l: (lw.vmap(g, (0, None))(x, l),))",
                                   "np.ones(5),"),
    "a batch with a condition for each": (
        "g = lambda x, l: lax.while_loop(lambda s: s[0] < l * x, lambda s: (s[0] + 1, np.sin(s[1])), (0.0, x))[1]\n"
        "f = lw.jit(lambda x, l: (lw.vmap(g, (0, None))(x, l),))", "np.arange(1.0, 4.0),"),
    "a batch of products, masked": (
        "w = np.eye(8) * 0.5\n"
        "g = lambda x, l: lax.while_loop(lambda s: s[0] < l * x[0], lambda s: (s[0] + 1, np.tanh(s[1] @ w)), (0.0, x))[1]\n"
        "f = lw.jit(lambda x, l: (lw.vmap(g, (0, None))(x, l),))", "np.ones((6, 8)),"),
    "tangents": (f"g = lambda x, limit: {WHILE}\nf = lw.jit(lambda x, l: lw.jvp(lambda x: g(x, l), (x,), (x,)))",
                 "np.ones(3),"),
    "a counted loop": ("f = lw.jit(lambda x, l: (lax.fori_loop(0, l.astype(np.int64), lambda i, c: np.sin(c) + i, x),))",
                       "np.ones(3),", "3", "1e15"),
    "kernels on all threads": (f"f = lw.jit(lambda x, limit: ({WHILE},))", "np.ones(3_000_000),"),
    "a loop that calls Python": (
        "g = lambda s: np.asarray(s) * 0.5\n"
        "f = lw.jit(lambda x, l: (lax.while_loop(lambda s: s[0] < l, lambda s: (s[0] + 1, lw.pure_callback(g, s[1], s[1])), "
        "(0.0, x))[1],))", "np.ones(3),"),
    "donated": ("g = lambda x, limit: lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, np.sin(s[1])), (0.0, x))[1]\n"
                "h = lw.jit(g, donate_argnums=0)\nf = lambda x, l: (h(x, l),)", "np.ones(3),"),
    "outside jit": (f"f = lambda x, limit: ({WHILE},)", "np.ones(3),"),
}


def ended(script, **parts):
    """Run the script in a process of its own: it must end well and say nothing."""
    text = textwrap.dedent(script)
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip() == "interrupted" and not done.stderr, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_ends_loops_of_every_kind(name):
    """KeyboardInterrupt arrives within a second, no result is written, the function stays usable."""
    body, arguments, *bounds = PROGRAMS[name]
    short, long = bounds or ("3", "np.inf")
    ended(FOREVER, body=body, arguments=arguments, short=short, long=long)


def test_ctrl_c_ends_a_gradient_through_a_loop():
    """The trips of a backward loop are as many as there were forward: its tape is bounded, its time is not."""
    body = ("@lw.checkpoint\ndef step(i, c):\n    for _ in range(20):\n        c = np.sin(c) * 0.5\n    return c\n"
            "g = lambda x, n: np.sum(lax.fori_loop(0, n.astype(np.int64), step, x))\n"
            "f = lw.jit(lambda x, l: (lw.grad(g)(x, l),))")
    ended(FOREVER, body=body, arguments="np.ones(200_000),", short="3.0", long="400.0")


# ---- loops under vmap -------------------------------------------------------------------------------
def test_bodies_of_loops_with_common_trip_counts_stay_batched():
    """`vmap` of a loop whose trip count is not batched batches its body, so contractions stay batched."""
    w = np.random.default_rng(0).normal(size=(4, 4)) * 0.3
    x = np.random.default_rng(1).normal(size=(5, 4))

    def folded(x):
        return lax.fori_loop(0, 3, lambda i, c: np.tanh(w @ c), x)

    def scanned(x):
        return lax.scan(lambda c, r: (np.tanh(w @ c) * r, None), x, np.arange(3.0))[0]

    for f in (folded, scanned):
        g = lw.make_graph(lw.vmap(f))(x)
        loop, = (n for n in g.nodes if n.op.name == "scan")
        products = [n for n in loop.regions[0].nodes if n.op.name == "dot_general"]
        assert [len(n.outputs[0].type.shape) for n in products] == [2]
        for way in (lw.vmap(f), lw.jit(lw.vmap(f))):
            np.testing.assert_allclose(way(x), np.stack([f(row) for row in x]), rtol=1e-13)


def test_each_element_stops_on_its_own_condition():
    """Only a batched predicate makes a loop per element, or a masked batch where the body multiplies matrices, by cost; meaning
    is identical."""
    w = np.random.default_rng(0).normal(size=(8, 8)) * 0.3

    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, np.tanh(w @ s[1]) + x), (0, x))

    x, n = np.random.default_rng(1).normal(size=(6, 8)), np.array([3, 0, 7, 1, 20, 2])
    for got in (lw.vmap(f)(x, n), lw.jit(lw.vmap(f))(x, n)):
        for k in range(6):
            want = f(x[k], n[k])
            assert got[0][k] == want[0] == n[k]
            np.testing.assert_allclose(got[1][k], want[1], rtol=1e-12)


# ---- effects ----------------------------------------------------------------------------------------
WAYS = {"outside jit": lambda f: f, "compiled": lw.jit}


@pytest.mark.parametrize("way", WAYS)
def test_effects_happen_once_in_program_order(way):
    """Effects are kept, once, in program order: in loops, in the branch that is taken, where nothing reads a result."""
    seen = []

    def f(x):
        lw.debug.callback(lambda v: seen.append(("first", float(v))), x[0])

        def body(i, c):
            lw.debug.callback(lambda i, v: seen.append(("trip", int(i), float(v))), i, c)
            return c * 2
        y = lax.fori_loop(0, 3, body, x[1])
        lax.cond(y > 100, lambda: lw.debug.callback(lambda: seen.append("large")),
                 lambda: lw.debug.callback(lambda v: seen.append(("small", float(v))), y))
        lw.debug.callback(lambda: seen.append("last"))
        return x

    g = WAYS[way](f)
    for _ in range(2):
        seen.clear()
        g(np.array([5.0, 1.0]))
        assert seen == [("first", 5.0), ("trip", 0, 1.0), ("trip", 1, 2.0), ("trip", 2, 4.0), ("small", 8.0), "last"]


@pytest.mark.parametrize("way", WAYS)
def test_transforms_neither_repeat_nor_drop_effects(way):
    seen = []

    def f(x):
        def body(c, r):
            lw.debug.callback(lambda v: seen.append(float(v)), r + c * 0)
            return np.sin(c) * r, None
        return lax.scan(body, x, np.array([1.0, 2.0]))[0]

    for transform, times in ((lw.grad, 1), (lambda f: lambda x: lw.jvp(f, (x,), (1.0,)), 1), (lw.value_and_grad, 1),
                             (lambda f: lw.grad(lw.grad(f)), 1), (lambda f: lw.grad(lw.checkpoint(f)), 1),
                             (lambda f: lambda x: lw.vmap(f)(np.ones(3) * x), 3)):
        seen.clear()
        WAYS[way](transform(f))(0.5)
        assert sorted(seen) == sorted([1.0, 2.0] * times)


def test_what_a_callback_raises_arrives_and_the_function_stays_usable():
    class Stop(Exception):
        pass

    def check(v):
        if v > 2:
            raise Stop(float(v))

    def body(i, c):
        lw.debug.callback(check, c)
        return c + 1

    f = lw.jit(lambda x: lax.fori_loop(0, 5, body, x))
    for _ in range(3):
        with pytest.raises(Stop, match=r"3\.0"):
            f(0.0)
        assert f(-4.0) == 1


def test_a_callback_may_call_its_own_function():
    """Scratch memory belongs to an activation: a callback that calls its own function does not disturb it."""
    def more(x, n):
        return f(x * 2, n - 1) if n > 0 else x

    @lw.jit
    def f(x, n):
        y = np.sort(np.cumsum(x)) + 1
        inner = lw.pure_callback(more, x, x, n)
        return np.cumsum(y)[::-1] + inner

    def plain(x, n):
        return np.cumsum(np.sort(np.cumsum(x)) + 1)[::-1] + (plain(x * 2, n - 1) if n > 0 else x)

    x = np.random.default_rng(0).normal(size=3000)
    for _ in range(2):
        np.testing.assert_allclose(f(x, 3), plain(x, 3), rtol=1e-10)
    errors = []

    def work():
        try:
            np.testing.assert_allclose(f(x, 3), plain(x, 3), rtol=1e-10)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not errors


def test_callbacks_are_named_and_bound_by_name():
    """Callbacks are named symbols: equality needs the name, running needs `parse(text, bind={...})`."""
    def double(x):
        return x * 2

    g = lw.make_graph(lambda x: lw.pure_callback(double, x, x) + 1)(np.ones(3))
    text = str(g)
    assert "double" in text and "object at" not in text and "0x" not in text
    name = next(n.attrs["callback"].name for n in g.nodes if n.op.name == "pure_callback")
    again = lw.parse(text, bind={name: lambda x: x * 3})
    assert again == g and hash(again) == hash(g) and str(again) == text
    np.testing.assert_array_equal(evaluate(g, [np.ones(3)])[0], np.full(3, 3.0))
    np.testing.assert_array_equal(evaluate(again, [np.ones(3)])[0], np.full(3, 4.0))
