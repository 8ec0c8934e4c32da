"""jit: one compile for all sizes, NumPy's values, what a trace may see, and what f.explain and f.lower show."""
import functools
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.runtime.linking import is_native
from tests.scale import examples


def same(got, expected):
    """Values and dtypes as NumPy's, bit for bit, and the type NumPy itself returns."""
    assert type(got) is type(expected)
    assert np.asarray(got).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(got, expected)


def test_one_compile_serves_every_size():
    @lw.jit
    def f(x, y):
        return (x - 1) * y + x

    rng = np.random.default_rng(0)
    for n, m in [(2, 3), (3, 2), (7, 7), (100, 2), (2, 1000), (33, 5)]:
        x, y = rng.normal(size=(n, m)), rng.normal(size=(n, m))
        same(f(x, y), (x - 1) * y + x)
    assert f.compiles == 1 and len(f.versions) == 1


@given(st.integers(0, 9), st.integers(0, 9))
@examples(40)
def test_elementwise_code_asks_nothing_about_sizes_0_and_1(n, m):
    x = np.arange(float(n * m)).reshape(n, m)
    same(_doubled(x), x + x)
    assert _doubled.compiles == 1


@lw.jit
def _doubled(x):
    """Twice x."""
    return x + x


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64", "uint8", "uint64", "float32", "float64"])
def test_each_dtype_and_rank_is_a_version_of_its_own(dtype):
    @lw.jit
    def f(x):
        return x * x

    for rank in range(3):
        x = np.ones((2,) * rank, dtype)
        same(f(x), x * x)
        same(f(np.ones((3,) * rank, dtype)), np.ones((3,) * rank, dtype) * np.ones((3,) * rank, dtype))
        assert f.compiles == rank + 1


# ---- what a trace may see ---------------------------------------------------------------------------
def test_a_trace_that_raises_leaves_nothing_behind():
    fails = True

    @lw.jit
    def f(x):
        if fails:
            raise RuntimeError("on purpose")
        return x + 1

    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            f(np.ones(2))
    assert f.compiles == 0
    fails = False
    same(f(np.ones(2)), np.full(2, 2.0))


def test_captured_arrays_are_read_at_every_call():
    w = np.arange(3.0)
    f = lw.jit(lambda x: x * w)
    x = np.ones(3)
    same(f(x), x * w)
    w -= 0.5
    same(f(x), x * w)
    assert f.compiles == 1


@pytest.mark.parametrize("make", [lambda w: w[::2], lambda w: w.astype(">f8"), lambda w: w[::-1],
                                  lambda w: w.reshape(2, 3).T[0]],
                         ids=["strided", "byte-swapped", "reversed", "column"])
def test_captured_arrays_of_any_layout_are_read_at_every_call(make):
    w = make(np.arange(6.0))
    f = lw.jit(lambda x: x + w)
    for _ in range(3):
        same(f(1.0), (1.0 + w).astype(float))
        w += 1
    assert f.compiles == 1


def test_a_captured_array_of_a_new_shape_is_traced_anew():
    holder = {"w": np.arange(3.0)}
    f = lw.jit(lambda x: x + holder["w"])
    same(f(1.0), 1.0 + holder["w"])
    holder["w"].resize(4, refcheck=False)
    same(f(1.0), 1.0 + holder["w"])
    assert f.compiles == 2


def test_results_of_captured_arrays_are_fresh():
    w = np.arange(3.0)
    f = lw.jit(lambda: (w, w))
    a, b = f()
    assert not np.shares_memory(a, w) and not np.shares_memory(a, b)
    same(a, w)


def test_the_contents_of_a_mask_are_guarded():
    mask = np.array([True, False, True])
    f = lw.jit(lambda x: x[mask])
    x = np.arange(3.0)
    same(f(x), x[mask])
    mask[1] = True
    same(f(x), x[mask])
    mask[1] = False
    same(f(x), x[mask])
    assert f.compiles == 2


@pytest.mark.parametrize("array", [np.array([True, False, True]), np.array([[1, 0, 1]]) > 0, np.array([True, False] * 3)[::2]],
                         ids=["straight", "of two axes", "strided"])
def test_versions_of_known_contents_answer_by_themselves(array, monkeypatch):
    """Compiled code compares what the array holds, its shape and its dtype; of arrays in pieces Python does."""
    mask = array.copy() if array.flags.c_contiguous else np.repeat(array, 2)[::2]
    f = lw.jit(lambda x: x[mask].sum())
    x = np.arange(1.0, 4.0).reshape(mask.shape)
    same(f(x), x[mask].sum())
    asked = []
    monkeypatch.setattr(f, "slow", lambda *args, slow=f.slow: (asked.append(args), slow(*args))[1])
    same(f(x), x[mask].sum())
    assert not is_native() or bool(asked) != mask.flags.c_contiguous
    mask[...] = True
    same(f(x), x[mask].sum())
    assert asked


def test_a_known_array_of_another_shape_is_traced_anew():
    held = np.array([True, False, True, True])
    g = lw.jit(lambda x: x[held])
    same(g(np.arange(4.0)), np.arange(4.0)[held])
    held.resize(2, refcheck=False)
    same(g(np.arange(2.0)), np.arange(2.0)[held])
    assert g.compiles == 2


def test_a_mask_that_the_function_makes_needs_no_check():
    f = lw.jit(lambda x: x[np.array([True, False, True])])
    same(f(np.arange(3.0)), np.array([0.0, 2.0]))
    held = np.array([True, False, True])
    g = lw.jit(lambda x: x[held])
    same(g(np.arange(3.0)), np.array([0.0, 2.0]))
    assert [len(e.draft.version.contents) for h in (f, g) for e in h._versions.entries] == [0, 1]


# ---- nested jit -------------------------------------------------------------------------------------
def test_nested_jit_inlines():
    inner = lw.jit(lambda x, k=2.0: {"y": x * k})
    outer = lw.jit(lambda x: inner(x)["y"] + inner(x, k=3.0)["y"] + inner(np.ones(3))["y"])
    for n in (3, 3):
        x = np.arange(float(n))
        same(outer(x), x * 2.0 + x * 3.0 + 2.0)
    assert outer.compiles == 1 and inner.compiles == 0


def test_nested_jit_shares_the_sizes_of_the_outer_trace():
    inner = lw.jit(lambda x, y: x + y)
    outer = lw.jit(lambda x, y: inner(x, y) * x)
    for n in (2, 5):
        same(outer(np.ones(n), np.ones(n)), np.full(n, 2.0))
    assert outer.compiles == 1
    same(outer(np.ones(1), np.ones(4)), np.full(4, 2.0))
    assert outer.compiles == 2


def test_nested_jit_of_plain_arrays_inlines_also_when_it_was_compiled_before():
    w = np.arange(3.0)
    inner = lw.jit(lambda w: w * 2)
    same(inner(w), w * 2)
    outer = lw.jit(lambda x: x + inner(w))
    same(outer(1.0), 1.0 + w * 2)
    w += 1  # read at every call, not compiled in
    same(outer(1.0), 1.0 + w * 2)
    same(inner(w), w * 2)
    assert (outer.compiles, inner.compiles) == (1, 1)


def test_under_grad_alone_compiled_code_answers_plain_arrays():
    calls = []
    inner = lw.jit(lambda w: calls.append(1) or w * 2)
    loss = lw.grad(lambda x: x * x * np.float64(inner(3.0)))
    same(loss(2.0), np.float64(24.0))
    inner(3.0)
    traced = len(calls)
    same(loss(2.0), np.float64(24.0))
    assert len(calls) == traced and inner.compiles == 1


def test_a_size_is_a_number_to_a_nested_jit():
    inner = lw.jit(lambda x, n: x / n)
    f = lw.jit(lambda x: inner(x, x.shape[0]))
    for n in (2, 4):
        same(f(np.ones(n, np.float32)), np.ones(n, np.float32) / n)
    assert f.compiles == 1


def test_nested_jit_sees_no_values():
    @lw.jit
    def clipped(x):
        return x if x > 0 else -x

    for run in (clipped, lw.jit(lambda x: clipped(x)), lw.grad(clipped), lw.grad(lambda x: clipped(x * 2) + x)):
        with pytest.raises(lw.ConcretizationError, match="jit of clipped"):
            run(3.0)
    assert clipped.compiles == 0


def test_nested_jit_sees_no_values_of_what_it_closes_over():
    def outer(x):
        return lw.jit(lambda y: y if x > 0 else -y)(2.0) * x
    with pytest.raises(lw.ConcretizationError):
        lw.grad(outer)(3.0)


def test_a_nested_jit_may_close_over_traced_values():
    def f(x):
        return lw.jit(lambda y: y * x)(x + 1)
    same(lw.jit(f)(3.0), np.float64(12.0))
    same(lw.grad(f)(3.0), np.float64(7.0))
    same(lw.jit(lw.grad(lw.jit(f)))(3.0), np.float64(7.0))


def test_derivatives_run_inside_jit():
    f = lw.jit(lw.grad(lambda x: x * x * x))
    same(f(2.0), np.float64(12.0))
    same(f(3.0), np.float64(27.0))
    assert f.compiles == 1


# ---- many versions ----------------------------------------------------------------------------------
def test_many_versions_warn_once_with_the_guard_to_blame():
    @lw.jit
    def f(x):
        return x * int(x.shape[0])

    for n in range(2, 9):
        f(np.ones(n))
    with pytest.warns(lw.RecompilationWarning, match=r"f has 8 compiled versions; the guard `n == 8`, asked at .*test_jit\.py"):
        f(np.ones(9))
    f(np.ones(10))
    assert f.compiles == 9


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
def test_the_oldest_version_is_evicted_beyond_64():
    @functools.partial(lw.jit, static_argnums=1)
    def f(x, k):
        return x + k

    for k in range(70):
        same(f(1, k), np.int64(1 + k))
    assert len(f.versions) == 64 and f.compiles == 70
    same(f(1, 69), np.int64(70))
    assert f.compiles == 70
    same(f(1, 0), np.int64(1))
    assert f.compiles == 71


def test_without_dynamic_each_shape_is_compiled():
    @lw.jit(dynamic=False)
    def f(x):
        return x * len(x)
    for n in (2, 3, 2, 3):
        same(f(np.ones(n)), np.ones(n) * n)
    assert f.compiles == 2 and all(not v.graph.symbols for v in f.versions)


# ---- seeing inside ----------------------------------------------------------------------------------
def test_make_graph_prints_and_reads_back():
    params = {"w": np.ones((2, 3), np.float32), "b": np.ones(3, np.float32)}
    graph = lw.make_graph(lambda p, s: p["w"] * s + p["b"])(params, 2.0)
    text = str(graph)
    assert "mul" in text and "f32[" in text and lw.parse(text) == graph
    assert lw.make_graph(lambda x: x)(np.ones(3)).nodes == ()


def test_make_graph_goes_through_transforms_and_jit():
    graph = lw.make_graph(lw.jit(lw.grad(lambda x: x * x)))(3.0)
    assert lw.parse(str(graph)) == graph and len(graph.results) == 1


def test_lower_gives_every_stage_as_text():
    f = lw.jit(lambda x: x * 2 + 1)
    stages = f.lower(np.ones(3))
    assert lw.parse(stages.graph) == f.versions[0].graph
    assert all(isinstance(t, str) and t for t in (stages.graph, stages.kernels, stages.llvm, stages.asm))
    assert "define" in stages.llvm and "entry" in stages.asm


def test_explain_names_guards_with_the_users_line_and_kernels_with_costs():
    @lw.jit
    def f(x, y):
        return np.exp(x) * y

    line = inspect.currentframe().f_lineno - 2
    text = f.explain(np.ones((4, 3)), np.ones((4, 3)))
    assert "f (" in text and "1 version, 1 compile" in text and "answers these arguments" in text
    assert f"test_jit.py:{line}" in text and "==" in text
    assert "exp" in text and "flops" in text and "bytes" in text and "estimated limit" in text
    f(np.ones(3), np.ones(3))
    assert "2 versions" in f.explain() and "answers these arguments" not in f.explain()


def test_an_index_out_of_range_is_numpys_error_with_the_users_line():
    f = lw.jit(lambda x, i: x[i] + 1)
    line = inspect.currentframe().f_lineno - 1
    x = np.arange(3.0)
    for bad in (np.array([0, 7]), np.array([-4, 0]), 3, -4):
        with pytest.raises(IndexError) as expected:
            x[bad]
        with pytest.raises(IndexError) as got:
            f(x, bad)
        assert str(got.value).startswith(str(expected.value)) and f"test_jit.py:{line}" in str(got.value)
    same(f(x, np.array([-3, 2])), np.array([1.0, 3.0]))
