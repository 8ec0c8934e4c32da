"""Donated arguments: which results are made in their memory, and that values are what they are without donation.

The expectation is NumPy, or the same program without donation.
"""
import sys
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.types import DTYPES
from loopwright.lower.runtime import cache, fallback


def address(x):
    return x.__array_interface__["data"][0]


def donating(f, *labels):
    """f with these arguments donated, and no word about those that no result takes."""
    jitted = lw.jit(f, donate_argnums=labels)

    def call(*args):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lw.DonationWarning)
            return jitted(*args)
    return call


def incremented(x):
    return x + 1


def written(x):
    y = x.copy()
    y[0] = 5
    return y


def added_at(x):
    y = x.copy()
    y[1:] += y[:-1] * 0.5
    return y


# ---- where the memory is taken ----------------------------------------------------------------------
IN_PLACE = {
    "elementwise": incremented,
    "a chain": lambda x: np.sin(x * 2) / (1 + x * x) - x,
    "the argument itself": lambda x: x,
    "a constant": lambda x: np.zeros_like(x),
    "a row written": written,
    "read in full before": lambda x: np.exp(x) * 0 + 1 if x.ndim == 0 else np.ones_like(x) * np.sum(x),
    "a mask": lambda x: np.where(x > 1, x, -x),
    "small channels": lambda x: np.stack([x[..., 0] + 1, x[..., 0] * 2], axis=-1) if x.shape[-1] == 2 else x * 2,
    "a loop that updates rows": lambda x: lw.lax.fori_loop(0, x.shape[0], doubled_row, x),
    "a loop that makes all anew": lambda x: lw.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i, x),
    "an even number of trips": lambda x: lw.lax.fori_loop(0, 4, lambda i, c: np.cumsum(c, axis=0), x),
    "no trips": lambda x: lw.lax.fori_loop(0, 0, lambda i, c: c * 2, x),
    "a while": lambda x: lw.lax.while_loop(lambda c: np.sum(c) < 100, lambda c: c * 2 + 1, x),
    "a scan's carry": lambda x: lw.lax.scan(lambda c, k: (c + k, None), x, np.arange(5.0))[0],
}


def doubled_row(i, c):
    c = c.copy()
    c[i] = c[i] * 2 + i
    return c


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("shape", [(7,), (33,), (5, 3), (1,), (64, 65), (9, 2)])
def test_the_result_is_the_donated_array(name, shape):
    f = lw.jit(IN_PLACE[name], donate_argnums=0)
    x = np.random.default_rng(0).random(shape)
    want, at = lw.jit(IN_PLACE[name])(x.copy()), address(x)
    got = f(x)
    assert got is x and address(got) == at
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize])
def test_every_dtype(dtype):
    f = lw.jit(lambda x: x + x, donate_argnums=0)
    for n in (1, 7, 40):
        x = np.arange(n).astype(dtype)
        want = x + x
        assert f(x) is x
        np.testing.assert_array_equal(x, want)


def test_no_array_is_made_and_references_are_kept():
    f, x = lw.jit(incremented, donate_argnums=0), np.zeros(100_000)
    loop = lw.jit(lambda x: lw.lax.fori_loop(0, 3, lambda i, c: c + 1, x), donate_argnums=0)
    f(x), loop(x)
    before = sys.getrefcount(x)
    tracemalloc.start()
    try:
        for _ in range(10):
            assert f(x) is x and loop(x) is x
        assert tracemalloc.get_traced_memory()[1] < 10_000  # of 800,000 that one array takes
    finally:
        tracemalloc.stop()
    assert sys.getrefcount(x) == before and (x == 44).all()


def test_complex_results():
    x = np.random.default_rng(4).normal(size=(2, 9, 3))
    z = (x[0] + 1j * x[1]).astype(np.complex64)
    for f in (lambda z: z * z, lambda z: z + 1j, lambda z: np.conj(z) * 2, lambda z: np.exp(z) / (z + 2)):
        for dtype in (np.complex64, np.complex128):
            w = z.astype(dtype)
            want = f(w)
            assert lw.jit(f, donate_argnums=0)(w) is w
            np.testing.assert_allclose(w, want, rtol=1e-5 if dtype == np.complex64 else 1e-13)


def test_kernels_wait_for_others_that_read_the_argument():
    def f(x):
        return x * 2, np.sum(x), np.sort(x)[:2], x[::-1] + x

    x = np.arange(7.0)
    want = f(x)
    x = x.copy()
    got = lw.jit(f, donate_argnums=0)(x)
    assert got[0] is x
    for r, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(r, w)


def test_kernels_that_others_need_do_not_wait():
    """The sum reads x and what is made of it: neither of the two results may lie in x before."""
    def f(x):
        y = np.sort(x) * 2
        return y, np.sum(x[::-1] * y)

    x = np.arange(7.0)
    got = donating(f, 0)(x.copy())
    for r, w in zip(got, f(x), strict=True):
        np.testing.assert_array_equal(r, w)


def test_effects_keep_their_order(capfd):
    def f(x):
        y = x + 1
        lw.debug.print("first {}", y[0])
        lw.debug.print("then {}", x[0])
        return y

    jitted = donating(f, 0)
    for k in range(3):
        np.testing.assert_array_equal(jitted(np.full(3, float(k))), np.full(3, k + 1.0))
    out = capfd.readouterr().out.split("\n")
    assert out[:6] == [f"{word} {k + (word == 'first')}.0" for k in range(3) for word in ("first", "then")]


def test_each_argument_serves_one_result_and_each_result_one_argument():
    f = lw.jit(lambda x, y: (y, x), donate_argnums=(0, 1))
    x, y = np.arange(5.0), np.ones(5)
    a, b = f(x, y)
    assert {id(a), id(b)} == {id(x), id(y)}
    np.testing.assert_array_equal(a, np.ones(5))
    np.testing.assert_array_equal(b, np.arange(5.0))
    x = np.arange(5.0)
    a, b, c = lw.jit(lambda x: (x, x, x + 1), donate_argnums=0)(x)  # results share no memory
    assert sum(r is x for r in (a, b, c)) == 1
    assert not any(np.shares_memory(p, q) for p, q in ((a, b), (a, c), (b, c)))
    for r, want in ((a, np.arange(5.0)), (b, np.arange(5.0)), (c, np.arange(1.0, 6.0))):
        np.testing.assert_array_equal(r, want)


def test_arguments_move_to_further_results_so_that_others_find_one():
    def f(x, y):
        a = np.sum(x, axis=0, keepdims=True) + y  # of y's memory alone
        return a, np.sum(a) + 0 * y, np.zeros_like(x)

    got = lw.jit(f, donate_argnums=(0, 1))
    x, y = np.arange(6.0), np.ones(6)
    want = f(x.copy(), y.copy())
    found = got(x, y)
    assert {id(r) for r in found} >= {id(x), id(y)}
    for r, w in zip(found, want, strict=True):
        np.testing.assert_array_equal(r, w)


def test_containers_keywords_and_names():
    def step(state, rate):
        return {"w": state["w"] - rate * state["v"], "v": state["v"] * 0.5, "n": state["n"] + 1}

    f = lw.jit(step, donate_argnames="state")
    for call in (lambda s: f(s, 0.1), lambda s: f(state=s, rate=0.1), lambda s: f(rate=0.1, state=s)):
        w, v = np.ones(9), np.full(9, 2.0)
        got = call({"w": w, "v": v, "n": 3})
        assert got["w"] is w and got["v"] is v and got["n"] == 4
        np.testing.assert_array_equal(w, np.full(9, 0.8))
        np.testing.assert_array_equal(v, np.ones(9))
    pairs = lw.jit(lambda p: [(a + 1, b * 2) for a, b in p], donate_argnums=0)
    given = [(np.ones(3), np.ones((2, 2))), (np.ones(3), np.zeros((2, 2)))]
    got = pairs(given)
    assert {id(a) for pair in got for a in pair} == {id(a) for pair in given for a in pair}


def test_registered_containers_are_donated():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    lw.register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, items: Pair(*items))
    p = Pair(np.ones(4), np.zeros(4))
    q = lw.jit(lambda p: Pair(p.a + 1, p.b - 1), donate_argnums=0)(p)
    assert q.a is p.a and q.b is p.b and (q.a == 2).all() and (q.b == -1).all()


def test_a_label_counted_from_the_end_and_an_unknown_one():
    x = np.ones(3)
    assert lw.jit(lambda a, b: b + a, donate_argnums=-1)(np.ones(3), x) is x
    with pytest.raises((ValueError, TypeError), match="nobody"):
        lw.jit(lambda a: a, donate_argnames="nobody")
    with pytest.raises((ValueError, TypeError), match="2"):
        lw.jit(lambda a: a, donate_argnums=2)


def test_static_and_donated_exclude_each_other():
    with pytest.raises(ValueError, match="cannot be both static and donated"):
        lw.jit(lambda x, n: x * n, static_argnums=1, donate_argnums=1)


# ---- where it is not --------------------------------------------------------------------------------
def read_only(x):
    y = x.copy()
    y.flags.writeable = False
    return y


def misaligned(x):
    data = np.zeros(x.nbytes + 1, np.uint8)
    y = np.frombuffer(data.data, x.dtype, x.size, 1).reshape(x.shape)
    y[...] = x
    return y


COPIED = {
    "read-only": read_only,
    "a view": lambda x: np.concatenate([x, x])[:len(x)],
    "a reshape": lambda x: x.copy().reshape(-1).reshape(x.shape),
    "strided": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "misaligned": misaligned,
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "of a buffer": lambda x: np.frombuffer(bytearray(x.tobytes()), x.dtype),
    "a subclass": lambda x: x.copy().view(np.memmap),
}


@pytest.mark.parametrize("f", [incremented, written, IN_PLACE["a while"]])
@pytest.mark.parametrize("kind", COPIED)
def test_what_must_not_be_written_is_copied(f, kind):
    x = np.arange(1.0, 10.0)
    jitted = lw.jit(f, donate_argnums=0)
    want, given = lw.jit(f)(x.copy()), COPIED[kind](x)
    for _ in range(2):  # first through Python, then where a version is known
        got = jitted(given)
        assert type(got) is np.ndarray and got.flags.owndata and got.flags.writeable and not np.shares_memory(got, given)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.asarray(given), x)


def test_arrays_that_overlap():
    def plain(x, y):
        return x + 1, y * 2 + np.sum(x)

    f = lw.jit(plain, donate_argnums=(0, 1))
    base = np.arange(10.0)
    for x, y in ((base[:6], base[2:8]), (base, base[:]), (base[:], base)):
        kept, want = base.copy(), plain(x, y)
        got = f(x, y)
        for r, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(r, w)
        if not any(r is base for r in got):
            np.testing.assert_array_equal(base, kept)
        base = np.arange(10.0)


def test_the_same_array_twice():
    """It serves one result at most, and none where one of the two is not donated."""
    def plain(x, y):
        return x + 1, y * 2 + np.sum(x)

    x = np.arange(10.0)
    want = plain(x, x)
    for donated in ((0,), (1,), (0, 1)):
        x = np.arange(10.0)
        got = lw.jit(plain, donate_argnums=donated)(x, x)
        assert sum(r is x for r in got) == (len(donated) == 2) and not np.shares_memory(*got)
        for r, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(r, w)
    got = lw.jit(plain, donate_argnums=(0, 1))(x[::-1], x)  # the first is copied anyway, so the second is alone
    assert got[1] is x


def test_arrays_that_only_touch_do_not_overlap():
    f = lw.jit(lambda x, y: x * y, donate_argnums=0)
    x = np.arange(8.0)
    assert f(x, np.ones(8)) is x
    nothing = np.empty(0)
    assert f(nothing, np.empty(0)) is nothing


def test_a_number_inside_the_donated_array_is_read_as_it_was():
    """A view of rank 0 is a number of the donated array: overwriting it would change what later kernels read."""
    def f(x, s):
        y = x * 2 + 1
        return y, np.cumsum(y)[::-1] * s

    x = np.arange(8.0)
    want = f(x.copy(), 3.0)
    got = lw.jit(f, donate_argnums=0)(x, x[3:4].reshape(()))
    for r, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(r, w)
    assert got[0] is not x


def test_an_array_that_is_captured_too_is_copied():
    weights = np.arange(5.0)
    number = weights[2:3].reshape(())

    def f(x):
        y = x + 1
        return y, np.cumsum(y)[::-1] * weights * number

    jitted = lw.jit(f, donate_argnums=0)
    for x in (weights, weights[:], np.arange(5.0)):
        want = f(x.copy())
        got = jitted(x)
        assert (got[0] is x) == (not np.shares_memory(x, weights))
        np.testing.assert_array_equal(weights, np.arange(5.0))
        for r, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(r, w)


def test_numbers_of_rank_0_are_never_written():
    x = np.array(2.0)
    assert lw.jit(incremented, donate_argnums=0)(x) == 3 and x == 2
    assert lw.jit(incremented, donate_argnums=0)(2.0) == 3


# ---- errors, transforms, threads, the disk -----------------------------------------------------------
def test_an_error_half_way_leaves_array_and_function_usable():
    f = lw.jit(lambda x, i: (x * 2, x[i]), donate_argnums=0)
    g = lw.jit(lambda x, i: (x + 1, x[i]), donate_argnums=0)
    for h in (f, g):
        x = np.arange(6.0)
        before = sys.getrefcount(x)
        for _ in range(3):
            with pytest.raises(IndexError, match="index 9 is out of bounds"):
                h(x, np.array([0, 9, 1, 2, 3, 4]))
        assert sys.getrefcount(x) == before and x.shape == (6,) and x.flags.writeable
        x[...] = np.arange(6.0)
        assert h(x, np.arange(6))[0] is x
        np.testing.assert_array_equal(x, np.arange(6.0) * 2 if h is f else np.arange(1.0, 7.0))


def test_inside_transforms_and_other_traces_donation_says_nothing():
    f = lw.jit(incremented, donate_argnums=0)
    x = np.arange(5.0)
    kept = x.copy()
    for got, want in ((lw.vmap(f)(x), x + 1), (lw.grad(lambda x: np.sum(f(x) ** 2))(x), 2 * (x + 1)),
                      (lw.jit(lambda x: f(x) + x)(x), 2 * x + 1), (lw.jvp(f, (x,), (x,))[1], x),
                      (lw.jit(lw.vmap(f))(x), x + 1), (lw.jacfwd(f)(x), np.eye(5))):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(x, kept)
    with lw.disable_jit():
        assert f(x) is not x
    np.testing.assert_array_equal(x, kept)
    outer = lw.jit(lambda x: f(x) * 2, donate_argnums=0)  # of the outermost function alone
    assert outer(x) is x
    np.testing.assert_array_equal(x, (kept + 1) * 2)


def test_the_gradient_step_of_a_training_loop_is_made_in_place():
    @lw.jit(donate_argnums=0)
    def step(w, x, y):
        return w - 0.1 * lw.grad(lambda w: np.mean((x @ w - y) ** 2))(w)

    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(20, 4)), np.zeros(4)
    y, want = x @ np.arange(4.0), np.zeros(4)
    for _ in range(5):
        want = want - 0.1 * (2 / 20) * x.T @ (x @ want - y)
        assert step(w, x, y) is w
        np.testing.assert_allclose(w, want, rtol=1e-12, atol=1e-14)


def test_a_donation_that_is_of_no_use_is_named_once():
    def total(first, second):
        return np.sum(first) + second

    f = lw.jit(total, donate_argnums=(0, 1))
    with pytest.warns(lw.DonationWarning, match=r"total: no result can take the memory of donated argument first \(f64\[\w+\]\)"
                      ) as caught:
        f(np.ones(3), np.ones(4))  # the line
    assert len(caught) == 1 and caught[0].filename == __file__
    lines = Path(__file__).read_text("utf-8").split("\n")
    assert lines[caught[0].lineno - 1].endswith("# the line")
    f(np.ones(5), np.ones(6))  # compiled, so said already
    nested = lw.jit(lambda tree: np.sum(tree["a"][1]), donate_argnames=["tree"])
    with pytest.warns(lw.DonationWarning, match=r"argument tree\['a'\]\[1\]"):
        nested({"a": (1.0, np.ones(3))})
    converted = lw.jit(lambda x: x.astype(np.float32), donate_argnums=0)
    with pytest.warns(lw.DonationWarning):  # another dtype
        assert converted(np.ones(3)).dtype == np.float32


def test_versions_for_donated_and_undonated_calls_are_apart(tmp_path, monkeypatch):
    """On the disk, too: the key of the code holds what was donated, and what was loaded donates as what was compiled."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))

    def make(*donated):
        return lw.jit(lambda x, y: (x * y + 1, 1 - y * 2), donate_argnums=donated)

    def check(f, donated, from_cache):
        x, y = np.arange(5.0), np.ones(5)
        got = f(x, y)
        assert f._versions.entries[0].compiled.from_cache == from_cache
        for number, array in enumerate((x, y)):
            assert any(r is array for r in got) == (number in donated)
        np.testing.assert_array_equal(got[0], np.arange(5.0) + 1)
        np.testing.assert_array_equal(got[1], -np.ones(5))

    for from_cache in (False, True):
        for donated in ((), (0,), (1,), (0, 1)):
            check(make(*donated), donated, from_cache)


def test_calls_through_python_donate_as_compiled_ones_do():
    def same_form(x, y, s):
        return x * y, (y + s)[::-1]

    f = lw.jit(same_form, donate_argnums=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.DonationWarning)
        f(np.ones(3), np.ones(3), np.array(1.0))
    compiled = f._versions.entries[0].compiled

    def in_python(*args):
        library = compiled.library
        return fallback.call(compiled.version, library["entry"], library.keep["lw_raise"], args, {}, compiled.donations)

    base = np.arange(12.0)
    for make in (lambda: (np.arange(5.0), np.ones(5), np.array(2.0)), lambda: (base[:5], np.ones(5), np.array(2.0)),
                 lambda: (*[np.arange(5.0)] * 2, np.array(2.0)), lambda: (read_only(base[:5]), base[5:10], np.array(2.0)),
                 lambda: (lambda x: (x, np.ones(5), x[2:3].reshape(())))(np.arange(5.0))):
        answers = []
        for call in (f, in_python):
            args = make()
            wants = same_form(args[0].copy(), args[1].copy(), args[2].copy())
            got = call(*args)
            for r, w in zip(got, wants, strict=True):
                np.testing.assert_array_equal(r, w)
            answers.append([[r is a for a in args] for r in got])
        assert answers[0] == answers[1]
    np.testing.assert_array_equal(base, np.arange(12.0))


def test_explain_says_what_is_donated():
    f = lw.jit(lambda x, y: (np.sum(x), y + x), donate_argnums=1)
    assert "result 1 takes the memory of argument 1" in f.explain(np.ones(3), np.ones(3))


def test_many_threads_donate_their_own_arrays():
    f = lw.jit(lambda x, y: (x * 2 + y, np.sum(x)), donate_argnums=0)
    wrong = []

    def work(k):
        x, y = np.full(5000, float(k)), np.ones(5000)
        for _ in range(50):
            value = x[0]
            r, s = f(x, y)
            if r is not x or r[0] != value * 2 + 1 or s != value * 5000 or r[-1] != r[0]:
                wrong.append(k)
            x[...] = k

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong


def test_nans_are_found_in_donated_memory():
    f = lw.jit(lambda x: np.log(x), donate_argnums=0)
    x = np.array([1.0, -1.0])
    with lw.debug_nans(), pytest.raises(FloatingPointError, match="log"):
        f(x)
