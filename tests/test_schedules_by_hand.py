"""`lw.schedule`: the kernels of a function are shown, changed, kept and replayed; results stay those of the function, and what
a kernel does not allow is refused by name."""
import dataclasses
import json

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir import schedule as instructions
from loopwright.ir.schedule import ByRows, ComputeAt, Fuse, Inline, Parallel, Unroll, Vectorize


def normal(*shape, dtype=np.float64):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def test_it_shows_kernels_with_their_stages_and_instructions():
    s = lw.schedule(lambda x: np.exp(x @ x.T) + 1, normal(40, 30))
    shown = str(s)
    assert "(dot_general): gemm" in shown and "kernel 1 (exp full add): generated" in shown
    assert "%0: f64[" in shown and "= exp(%x0)" in shown and "  Vectorize(stage=2, loop=1, lanes=" in shown
    assert len(s) == len(s.kernels) == 2 and not s.kernel(0).is_generated and s.kernel(-1).ops == ["exp", "full", "add"]


@pytest.mark.parametrize("lanes", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("factor", [1, 3, 8])
def test_results_do_not_depend_on_vectors(lanes, factor):
    s = lw.schedule(softmax, normal(5, 33))
    for stage in (0, 4):  # the maximum and the sum of each row
        s.kernel(0).vectorize(stage=stage, loop=1, lanes=lanes).unroll(stage=stage, factor=factor if lanes > 1 else 1)
    f = s.compile()
    for shape in ((5, 33), (1, 1), (7, 100)):
        np.testing.assert_allclose(f(normal(*shape)), softmax(normal(*shape)), rtol=1e-12)


def test_instructions_take_the_place_of_what_they_contradict():
    k = lw.schedule(lambda x: np.exp(x) + 1, normal(40, 30)).kernel(0)
    before = k.schedule
    assert k.vectorize(stage=2, loop=1, lanes=2) is k
    assert [x for x in k.schedule if isinstance(x, Vectorize)] == [Vectorize(2, 1, 2)]
    assert [type(x) for x in k.schedule] == [type(x) for x in before]
    k.remove("fuse").remove("parallel")
    assert not any(isinstance(x, (Fuse, Parallel)) for x in k.schedule)
    k.compute_at(stage=0, level=1)
    assert ComputeAt(0, 1) in k.schedule and Inline(0) not in k.schedule
    k.inline(stage=0).parallel()
    assert Inline(0) in k.schedule and ComputeAt(0, 1) not in k.schedule and Parallel() in k.schedule


def test_a_kernel_of_ones_own_makes_a_kernel():
    def f(a, b):
        return np.tanh(a @ b)
    a, b = normal(30, 20), normal(20, 40)

    @lw.kernel("f64[n, k], f64[k, m] -> f64[n, m]")
    def product(a, b, c):
        for i in lw.loops.loop(a.shape[0], parallel=True):
            for j in lw.loops.loop(b.shape[1], lanes=4):
                c[i, j] = lw.loops.sum(a[i, p] * b[p, j] for p in lw.loops.loop(a.shape[1]))
    s = lw.schedule(f, a, b)
    assert s.kernel(0).use(product).attrs["implementation"] == "native" and "native" in str(s.kernel(0))
    assert "LoopFunction" in str(s.module)
    for n, k, m in ((30, 20, 40), (1, 1, 1), (7, 0, 3)):
        found = s.compile()(normal(n, k), normal(k, m))
        np.testing.assert_allclose(found, f(normal(n, k), normal(k, m)), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(lw.parse(str(s.module)).compile()(a, b), s.compile()(a, b))
    assert s.kernel(0).use("generated").is_generated
    np.testing.assert_allclose(s.compile()(a, b), f(a, b), rtol=1e-12)
    assert s.kernel(0).use("gemm").attrs["implementation"] == "gemm"
    wrong = lw.kernel("f64[n, k], f64[k] -> f64[n]")(lambda a, x, y: None)
    for what in (wrong, "sort", lw.kernel("f64[n, n], f64[n, n] -> f64[n, n]")(lambda a, b, c: None)):
        with pytest.raises(lw.ScheduleError, match=r"kernel 0 \(dot_general\) cannot be made by"):
            s.kernel(0).use(what)


def test_loops_in_blocks():
    def f(x):
        return np.exp(x) * np.sum(x, axis=1)[:, None]
    s = lw.schedule(f, normal(40, 30))
    k = s.kernel(0).split(loop="i0", size=16)
    assert k.schedule[-1].size == 16 and k.split(loop="i0", size=8).schedule[-1].size == 8 and "size=16" not in str(k)
    for shape in ((40, 30), (1, 1), (17, 5)):
        np.testing.assert_allclose(s.compile()(normal(*shape)), f(normal(*shape)), rtol=1e-12)


def test_the_last_stage_and_its_last_loop_are_meant_where_none_is_said():
    k = lw.schedule(lambda x: np.sum(x * 2, axis=1), normal(40, 30)).kernel(0)
    k.vectorize(lanes=4).unroll(factor=2)
    assert {Vectorize(2, 1, 4), Unroll(2, 2)} <= set(k.schedule)


def test_every_instruction_has_a_method():
    k = lw.schedule(lambda x: x + 1, normal(3)).kernel(0)
    kinds = [x for x in vars(instructions).values() if isinstance(x, type) and dataclasses.is_dataclass(x)]
    assert len(kinds) >= 12
    for kind in kinds:
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
        assert name in dir(k) and getattr(k, name).__doc__ == kind.__doc__


def test_the_scheduled_function_is_called_as_the_function():
    @lw.jit
    def f(x, scale, *, shift):
        return {"a": x * scale["by"] + shift, "b": (np.sum(x),)}
    x = normal(6)
    s = lw.schedule(f, x, {"by": 2.0}, shift=1)
    s.kernel(0).vectorize(lanes=2)
    g = s.compile()
    found = g(x[:4], {"by": 3.0}, shift=5)
    np.testing.assert_allclose(found["a"], x[:4] * 3 + 5, rtol=1e-12)
    np.testing.assert_allclose(found["b"][0], np.sum(x[:4]), rtol=1e-12)
    assert g(x.astype(np.float32), {"by": 3.0}, shift=5)["a"].dtype == np.float32  # answered by the function as it was
    np.testing.assert_allclose(lw.grad(lambda x: g(x, {"by": 3.0}, shift=5)["b"][0])(x), np.ones(6))


def test_statics_captured_arrays_and_guards():
    table = normal(4)

    def f(x, n):
        return x[:n] * table[:n] if x.shape[0] > 3 else x * n
    g = lw.jit(f, static_argnames="n")
    s = lw.schedule(g, normal(5), 2)
    s.kernel(0).unroll(factor=2)
    h = s.compile()
    for x, n in ((normal(5), 2), (normal(9), 2), (normal(3), 2), (normal(5), 3)):
        np.testing.assert_array_equal(h(x, n), f(x, n))
    table[:] = 1.0
    np.testing.assert_array_equal(h(normal(5), 2), normal(5)[:2])


def test_kernels_inside_loops_have_schedules():
    def f(x):
        return lw.lax.scan(lambda c, r: (np.tanh(c + r), np.sum(c)), x[0], x)
    s = lw.schedule(f, normal(4, 300))
    assert len(s) >= 2
    for k in s.kernels:
        if k.is_generated and any(isinstance(y, Vectorize) for y in k.schedule):
            k.set(tuple([dataclasses.replace(y, lanes=2) if isinstance(y, Vectorize) else y for y in k.schedule]))
    assert "lanes=2" in str(s.module)
    for a, b in zip(s.compile()(normal(4, 300)), f(normal(4, 300)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_its_module_is_text_with_these_schedules():
    s = lw.schedule(softmax, normal(3, 4))
    s.kernel(0).vectorize(stage=4, loop=1, lanes=2)
    text = str(s.module)
    assert "lanes=2" in text and lw.parse(text) == s.module
    np.testing.assert_array_equal(lw.parse(text).compile()(normal(3, 4)), s.compile()(normal(3, 4)))


def test_schedules_are_kept_by_structure(tmp_path):
    def f(x, w):
        return np.exp(x @ w) + 1, np.sum(x * 2, axis=1)
    s = lw.schedule(f, normal(5, 4), normal(4, 3))
    s.kernel(1).vectorize(lanes=4)
    path = tmp_path / "schedules.jsonl"
    s.save(path)
    assert [json.loads(line)["ops"] for line in path.read_text().splitlines()] == [k.ops for k in s.kernels if k.is_generated]

    def g(y, v):  # other names, sizes, and one kernel less
        return np.exp(y @ v) + 1
    t = lw.schedule(g, normal(9, 8), normal(8, 7)).load(path)
    assert t.kernel(1).schedule == s.kernel(1).schedule
    with pytest.raises(lw.ArgumentError, match="holds schedules of 2 kernels, and none of them"):
        lw.schedule(lambda x: np.sin(x), normal(3)).load(path)
    for text in ("no json", "[]", "{}", '{"structure": "s", "schedule": [["Zz", {}]]}'):
        (tmp_path / "other").write_text(text)
        with pytest.raises(lw.ArgumentError, match="other is no file of schedules"):
            lw.schedule(g, normal(9, 8), normal(8, 7)).load(tmp_path / "other")
    path.write_text(path.read_text().replace('"lanes": 4', '"lanes": 5'))
    with pytest.raises(lw.ScheduleError, match="lanes must be a power of two"):
        lw.schedule(g, normal(9, 8), normal(8, 7)).load(path)


def kernel():
    return lw.schedule(lambda x: np.exp(x @ x.T) + 1, normal(40, 30)).kernel(1)


@pytest.mark.parametrize(("change", "error", "message"), [
    (lambda k: k.tiles(), lw.ScheduleError, r"kernel 1 \(exp full add\): Tiles\(\): nothing is read across"),
    (lambda k: k.vectorize(stage=0, lanes=4), lw.ScheduleError, r"Vectorize\(stage=0, loop=1, lanes=4\): it changes nothing"),
    (lambda k: k.vectorize(loop=0, lanes=4), lw.ScheduleError, "Vectors run along the last axis"),
    (lambda k: k.vectorize(loop=7, lanes=4), lw.ScheduleError, "stage 2 has 2 loops"),
    (lambda k: k.unroll(stage=7, factor=2), lw.ScheduleError, "there is no such stage; there are 3"),
    (lambda k: k.vectorize(), lw.ArgumentError, r"Vectorize\(stage, loop, lanes\): .*missing"),
    (lambda k: k.fuse(stage=2, loop=0, count=3), lw.ScheduleError, "stage 2 has 2 loops"),
    (lambda k: k.fuse(stage=2, loop=0, count=0), lw.ScheduleError, "stage 2 has 2 loops to be made one"),
    (lambda k: k.reorder(()), lw.ScheduleError, "it names no loops"),
    (lambda k: k.add_along(stage=1), lw.ScheduleError, "it sums neither the root's rows nor blocks of them"),
    (lambda k: k.in_place(operand=0), lw.ScheduleError, "InPlace says where the program keeps its values"),
    (lambda k: k.threads(x=32), lw.ScheduleError, r"Threads\(x=32, y=1\): it is for a GPU"),
    (lambda k: k.remove("fuse").reorder(("i1", "i0")), lw.ScheduleError, "i1 has lanes, so it stays the innermost"),
    (lambda k: k.split(loop="zz", size=4), lw.ScheduleError, r"Split\(loop='zz', size=4\): there is no loop 'zz'"),
    (lambda k: k.remove("tiles"), lw.ScheduleError, "there is no tiles to remove; there are Inline"),
    (lambda k: k.set((ByRows(),)), lw.ScheduleError, r"ByRows\(\): "),
    (lambda k: k._whole.kernel(0).parallel(), lw.ScheduleError, "calls gemm: no schedule makes it"),
    (lambda k: k._whole.kernel(2), lw.ArgumentError, "there are 2 kernels, numbered from 0, got number 2"),
    (lambda k: k.tile(4), AttributeError, "no schedule instruction 'tile'; there are inline, ")])
def test_what_is_refused_is_named(change, error, message):
    k = kernel()
    with pytest.raises(error, match=message) as e:
        change(k)
    assert error is AttributeError or f"{__file__}:" in str(e.value)
