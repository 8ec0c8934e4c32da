"""What tracing, sizes and guards promise. Each test's docstring is the promise, in short.

Elsewhere: questions about sizes and declared names in test_guards.py; the layouts and contents of captured arrays, versions,
eviction, keywords, defaults, methods and pickles in test_jit.py; static arguments in test_static_arguments.py; two threads in
test_threads.py; views and writes also in test_indexing.py and test_numpy_functions.py.
"""
import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples


def numpys(f, *args):
    with np.errstate(all="ignore"):
        return f(*args)


# ---- sizes ------------------------------------------------------------------------------------------
def test_a_size_is_no_int_and_specialises_only_where_it_must():
    """A Size is never an int; comparisons make guards; int(), float(), hash() and indices specialise with the line recorded."""
    seen = []

    @lw.jit
    def f(x):
        n = x.shape[0]
        seen.append((isinstance(n, int), n > 1, isinstance(n + 1, int)))
        return x * n
    for n in (2, 3, 50):
        x = np.arange(float(n))
        np.testing.assert_array_equal(f(x), x * n)
    assert seen == [(False, True, False)] and f.compiles == 1
    for use in (int, float, hash, lambda n: [1.0] * 99 + [2.0] if n is None else list(range(100))[n], lambda n: len(range(n))):
        g = lw.jit(lambda x, use=use: x * float(use(x.shape[0])))
        for n in (2, 3, 2):
            x = np.arange(float(n))
            np.testing.assert_array_equal(g(x), x * float(use(n)))
        assert g.compiles == 2
        assert __file__.rsplit("/", 1)[-1] in g.explain(np.ones(2))


def test_a_size_in_a_ufunc_is_a_traced_scalar():
    """In a ufunc (`np.sqrt(n)`) a size is a traced scalar: it specialises nothing."""
    f = lw.jit(lambda x: x / np.sqrt(x.shape[0]) + np.maximum(x.shape[0], 3))
    for n in (2, 5, 9):
        x = np.arange(float(n))
        np.testing.assert_array_equal(f(x), x / np.sqrt(n) + max(n, 3))
    assert f.compiles == 1


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9)), min_size=2, max_size=6))
@examples(15)
def test_no_compile_for_new_sizes_that_satisfy_the_guards(sizes):
    """No compile for any new sizes >= 2 that satisfy the recorded guards; f.compiles counts every compile."""
    for n, m in sizes:
        x, y = np.arange(float(n * m)).reshape(n, m), np.arange(float(m))
        np.testing.assert_allclose(SYMBOLIC(x, y), np.sum(np.tanh(x) * y, axis=0) / n + x[1:, ::-1].sum(0), rtol=1e-12)
    assert SYMBOLIC.compiles == 1


SYMBOLIC = lw.jit(lambda x, y: np.sum(np.tanh(x) * y, axis=0) / x.shape[0] + x[1:, ::-1].sum(0))


def test_many_versions_warn_once_and_the_oldest_go():
    """Warn at 8 versions with what is to blame, evict beyond 64."""
    f = lw.jit(lambda x: x + 1, dynamic=False)
    with pytest.warns(lw.RecompilationWarning, match="8 compiled versions; dynamic=False") as caught:
        for n in range(1, 67):
            assert f(np.zeros(n)).shape == (n,)
    assert len(caught) == 1 and f.compiles == 66 and len(f.versions) == 64
    f(np.zeros(66))
    assert f.compiles == 66
    f(np.zeros(1))  # gone, so compiled anew
    assert f.compiles == 67 and len(f.versions) == 64


def test_sizes_0_and_1_are_special_only_where_asked():
    """0 and 1 are specialised only where the trace asked (broadcasting)."""
    f = lw.jit(lambda x: np.sum(x * x + 1))
    for n in (5, 0, 1, 7):
        assert f(np.ones(n)) == 2 * n
    assert f.compiles == 1
    g = lw.jit(lambda x, y: x + y)
    for n, m in ((4, 4), (4, 1), (1, 4), (7, 7), (9, 1), (1, 9)):
        np.testing.assert_array_equal(g(np.ones(n), np.arange(float(m))), np.ones(n) + np.arange(float(m)))
    assert g.compiles <= 4


def test_equality_unifies_and_divisibility_is_a_fact():
    """An equality guard unifies its symbols; with k | n, k*(n//k) is n, and reshape(n, h, -1) adds it."""
    @lw.jit
    def heads(x):
        n, d = x.shape
        y = x.reshape(n, 4, -1)
        return y.reshape(x.shape) + x, 4 * y.shape[2] == d
    for n, d in ((3, 8), (5, 12), (2, 4)):
        x = np.arange(float(n * d)).reshape(n, d)
        both, known = heads(x)
        np.testing.assert_array_equal(both, 2 * x)
        assert known
    assert heads.compiles == 1
    equal = lw.jit(lambda x, y: np.concatenate([x, y]).reshape(2, -1)[0] + y if x.shape[0] == y.shape[0] else x.sum() + y)
    for n, m in ((3, 3), (4, 4), (3, 5), (6, 2)):
        x, y = np.arange(float(n)), np.ones(m)
        np.testing.assert_array_equal(equal(x, y), x + y if n == m else x.sum() + y)
    assert equal.compiles == 2


def test_guards_of_nested_traces_are_checked_once_at_the_outermost_entry():
    """Guards met in nested jit and transforms speak of the outermost function's sizes; nested jit inlines."""
    inner = lw.jit(lambda x: x * 2 if x.shape[0] > 4 else x * 3)
    f = lw.jit(lambda x: lw.vmap(lambda r: inner(r))(x).sum() + inner(x[0])[0])
    for n, m in ((2, 5), (9, 6), (3, 4), (3, 2), (7, 7)):
        x = np.arange(float(n * m)).reshape(n, m) + 1
        k = 2 if m > 4 else 3
        assert f(x) == (x * k).sum() + x[0, 0] * k
    assert f.compiles == 2 and inner.compiles == 0
    assert str(f.explain(np.ones((2, 5)))).count("guard: m >= 5   # ") == 1


def test_a_trace_that_raises_is_not_cached():
    """A trace that raises is not cached, and leaves the state of tracing as it was."""
    calls = []

    @lw.jit
    def f(x):
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("once")
        return x + 1
    with pytest.raises(KeyError):
        f(np.ones(2))
    np.testing.assert_array_equal(f(np.ones(2)), np.full(2, 2.0))
    assert len(calls) == 2 and f.compiles == 1


def test_transforms_outside_jit_compile_nothing_and_see_values():
    """Outside jit, grad, jvp, vjp and linearize see integer shapes and values and run the interpreter silently; vmap and
    anything inside jit see no values, and the error for a Python `if` says so."""
    shapes = []

    def f(x):
        shapes.append(type(x.shape[0]))
        return np.sum(x ** 2) if x[0] > 0 else np.sum(-np.log(x))
    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(lw.grad(f)(x), 2 * x)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(lw.grad(f)(np.array([0.0, 0.0])), [-np.inf, -np.inf])
    assert lw.jvp(f, (x,), (np.ones(2),))[1] == 6.0
    assert set(shapes) == {int}
    for hidden in (lambda: lw.jit(f)(x), lambda: lw.grad(lw.jit(f))(x), lambda: lw.vmap(f)(x[None]),
                   lambda: lw.jit(lw.grad(f))(x)):
        with pytest.raises(lw.ConcretizationError, match=r"test_semantics_tracing\.py"):
            hidden()


# ---- captured values --------------------------------------------------------------------------------
def test_captured_arrays_are_seen_as_they_are_at_every_call():
    """An ndarray that is no argument is a hidden parameter by reference: `w -= lr * g` is seen, and it is never printed."""
    w = np.arange(1000.0)
    loss = lw.jit(lambda x: np.sum((x * w) ** 2))
    step = lw.jit(lw.grad(lambda x: np.sum((x * w) ** 2)))
    x = np.ones(1000)
    for _ in range(3):
        np.testing.assert_allclose(loss(x), np.sum(w ** 2), rtol=1e-14)
        np.testing.assert_allclose(step(x), 2 * w ** 2, rtol=1e-14)
        w -= 0.25 * w
    assert loss.compiles == 1 and step.compiles == 1
    assert "999" not in str(loss.lower(x).graph)


def test_captured_scalars_and_rebound_names_are_fixed_at_trace_time():
    """Captured Python scalars and rebound names are fixed at trace time."""
    scale, w = 2.0, np.ones(2)
    f = lw.jit(lambda x: x * scale + w)
    np.testing.assert_array_equal(f(np.ones(2)), [3, 3])
    scale, w = 5.0, np.zeros(2)
    np.testing.assert_array_equal(f(np.ones(2)), [3, 3])


def test_contents_that_the_trace_needs_become_a_guard():
    """Where the trace needs contents (a mask, pad widths), those bytes become a guard."""
    x = np.arange(3.0)
    for f, setting, other in (
            (np.pad, [1, 2], [4, 2]), (np.repeat, [1, 2, 0], [2, 2, 2]), (np.tile, [1, 2], [2, 2]),
            (np.reshape, [1, 3], [3, 1]), (np.roll, 1, 2), (np.broadcast_to, [2, 3], [4, 3]),
            (lambda x, w: np.transpose(np.stack([x, x]), w), [0, 1], [1, 0]),
            (lambda x, w: np.split(x, w)[0], [1, 2], [2, 2])):
        w = np.array(setting)
        g = lw.jit(lambda x, f=f, w=w: f(x, w))
        np.testing.assert_array_equal(g(x), f(x, w))
        w[...] = other
        np.testing.assert_array_equal(g(x), f(x, w))


def test_what_numpy_cannot_hand_over():
    """Each of them works, specialises with one warning, or raises naming the spelling that works."""
    x = np.arange(6.0).reshape(2, 3)
    with pytest.warns(lw.SpecialisationWarning, match=r"loopwright\.numpy\.zeros") as caught:
        zeros = lw.jit(lambda x: x[:, 0] + np.zeros(x.shape[0]))
        np.testing.assert_array_equal(zeros(x), x[:, 0])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = lw.jit(lambda x: x[:, 0] + lw.numpy.zeros(x.shape[0]) + np.ones(x.shape[0], like=x))
        for n in (2, 5):
            np.testing.assert_array_equal(ours(np.ones((n, 3))), np.full(n, 2.0))
        assert ours.compiles == 1
        alike = lw.jit(lambda x: (np.zeros(x.shape[0], like=x), np.empty((2, x.shape[1]), like=x) * 0,
                                  np.arange(x.shape[0], like=x)))
        for n, m in ((2, 3), (5, 4), (2, 9)):
            for got, expected in zip(alike(np.ones((n, m))), (np.zeros(n), np.zeros((2, m)), np.arange(n)), strict=True):
                np.testing.assert_array_equal(got, expected)
        assert alike.compiles == 1
    for f, spelling in ((lambda x: np.array(x), r"lw\.numpy\.array"), (lambda x: np.asarray(x), r"lw\.numpy\.array"),
                        (lambda x: np.float64(x[0, 0]), r"astype|lw\.numpy"),
                        (lambda x: math.sin(x[0, 0]), r"np\.where|static"),
                        (lambda x: 1.0 if x[0, 0] > 0 else 2.0, r"np\.where")):
        with pytest.raises(lw.ConcretizationError, match=spelling):
            lw.jit(f)(x)
    assert lw.jit(lambda x: x * isinstance(x, np.ndarray))(x).sum() == 0


def test_stores_into_real_arrays_raise():
    """Inside a trace `lw.numpy` creation functions return traced arrays, so stores work; `ndarray += traced`, `out=ndarray`
    and a store into a real ndarray raise."""
    x = np.arange(3.0)

    def store(make):
        def f(x):
            y = make(3)
            y[0] = x[2]
            y += x
            return y
        return f
    np.testing.assert_array_equal(lw.jit(store(lw.numpy.zeros))(x), [2, 1, 2])

    def adds(x):
        y = np.zeros(3)
        y += x
        return y
    for f in (adds, lambda x: np.add(x, 1, out=np.zeros(3)), lambda x: np.sum(x, out=np.zeros(()))):
        for transform in (lw.jit, lw.grad):
            with pytest.raises(TypeError, match=r"lw\.numpy\.zeros|out="):
                transform(f)(x)
    with pytest.raises((TypeError, ValueError)) as caught:  # NumPy wraps what the traced value says
        lw.jit(store(np.zeros))(x)
    assert "lw.numpy.zeros" in str(caught.value) + str(caught.value.__cause__)


# ---- writes -----------------------------------------------------------------------------------------
def test_views_remember_their_base():
    """Reading a view after its base was written re-derives it, or raises where NumPy's answer depends on layout; writing
    through a view raises."""
    def reads(x):
        y = x * 1
        row, rest, turned = y[0], y[:, 1:], y.T
        y[0, 1] = 9.0
        return row, rest, turned, y
    x = np.arange(6.0).reshape(2, 3)
    for got, expected in zip(lw.jit(reads)(x), reads(x), strict=True):
        np.testing.assert_array_equal(got, expected)

    def reshaped(x):
        y = x.T * 1
        flat = y.reshape(-1)
        y[0, 0] = 9.0
        return flat

    def through(x):
        y = x * 1
        y[0][1] = 9.0
        return y
    for f in (reshaped, through):
        with pytest.raises(lw.WriteError, match=r"test_semantics_tracing\.py"):
            lw.jit(f)(x)


@pytest.mark.parametrize("transform", [lw.jit, lw.vmap, lambda f: lw.grad(lambda x: np.sum(f(x))),
                                       lambda f: lw.jit(lambda x: lw.vmap(f)(x))])
def test_arguments_are_protected_and_so_is_what_is_closed_over(transform):
    """Arguments of transforms are protected; writing a closed-over traced array of an outer function raises."""
    x = np.arange(6.0).reshape(2, 3)

    def writes(x):
        x[0] = 1.0
        return x

    def adds(x):
        x += 1
        return x

    def outer(x):
        y = x * 1

        def inner(z):
            y[0] = 0.0
            return z
        return lw.vmap(inner)(y)
    for f in (writes, adds):
        with pytest.raises(lw.WriteError, match="copy"):
            transform(f)(x)
    with pytest.raises(lw.WriteError):
        transform(outer)(np.ones((2, 3, 3)))
    assert x[0, 0] == 0.0


def test_the_gradient_reaches_only_the_update_that_stayed():
    """With duplicate indices the last update in C order wins, and the gradient reaches only the update that stayed."""
    def f(v):
        y = v[:1] * 0 + lw.numpy.zeros(4)
        y[np.array([1, 1, 2])] = v
        return np.sum(y * np.array([1.0, 10.0, 100.0, 1000.0]))
    for g in (lw.grad(f), lw.jit(lw.grad(f)), lambda v: lw.vmap(lw.grad(f))(v[None])[0]):
        np.testing.assert_array_equal(g(np.ones(3)), [0, 10, 100])


# ---- calls ------------------------------------------------------------------------------------------
class Model:
    def __init__(self, scale):
        self.scale = scale

    @lw.jit
    def double(self_x, y=2.0):  # noqa: N805, RUF100
        """Twice."""
        return self_x * y


@lw.jit
def module_level(x):
    """Its document."""
    return x + 1


def test_names_documents_pickles_and_copies():
    """A jitted function keeps name, signature and doc, and pickles and copies by qualified name."""
    assert module_level.__name__ == "module_level" and module_level.__doc__ == "Its document."
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert copy.copy(module_level) is module_level and copy.deepcopy([module_level])[0] is module_level
    assert Model.double.__name__ == "double" and Model.double(3.0, y=3.0) == 9.0


def test_dict_leaves_go_in_sorted_key_order():
    """Dict leaves go in sorted-key order (insertion order if keys do not compare)."""
    f = lw.jit(lambda d: {k: v * 2 for k, v in d.items()})
    for d in ({"b": 1.0, "a": 2.0}, {"a": 2.0, "b": 1.0}):
        assert f(d) == {"a": 4.0, "b": 2.0}
    assert f.compiles == 1
    assert list(lw.jit(lambda d: d)({"b": 1.0, 1: 2.0})) == ["b", 1]


def test_unknown_objects_raise_with_their_path():
    """Unknown objects as arguments or results raise with their path."""
    with pytest.raises(lw.ArgumentError, match=r"\['a'\]\[1\]"):
        lw.jit(lambda d: d)({"a": [1.0, object()]})
    with pytest.raises(lw.ArgumentError, match=r"\[0\]\['k'\]"):
        lw.jit(lambda x: [{"k": object()}])(1.0)


def test_numpys_random_state_is_watched():
    """If NumPy's global random state changed during a trace, the trace raises, naming lw.random."""
    with pytest.raises(lw.TraceStateError, match=r"lw\.random"):
        lw.jit(lambda x: x + np.random.rand())(1.0)  # noqa: NPY002, RUF100
    rng = np.random.default_rng(0)
    assert np.isfinite(lw.jit(lambda x: x + rng.random())(1.0))
