"""Calls with arrays on a GPU, which may be the emulator: where they run, what is refused, donation, captured arrays."""
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import loopwright as lw
from benchmarks import gpu as benchmark
from benchmarks import gpu_peers
from loopwright import lax
from loopwright.ir.errors import ArgumentError
from loopwright.lower.runtime import lazy
from tests.devices import device, emulator_alone, require_device


@pytest.fixture
def gpu(monkeypatch):
    require_device()
    driver = device()
    monkeypatch.setattr(lazy, "gpu", lambda: driver)
    return driver


def put(*xs):
    return lw.device_put(xs)


def test_arrays_on_the_gpu_run_there(gpu):
    @lw.jit
    def f(x, a, *, more):
        return {"sum": np.sum(x * a, axis=1), "both": [x + more["b"], more["b"][::-1]]}

    x, b = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    on_gpu, there = put(x, b)
    found = f(on_gpu, 2, more={"b": there})
    want = f(x, 2, more={"b": b})
    assert f.compiles == 2 and all(isinstance(y, gpu.kind) for y in (found["sum"], *found["both"]))
    np.testing.assert_allclose(found["sum"].get(), want["sum"])
    for a, c in zip(found["both"], want["both"], strict=True):
        np.testing.assert_array_equal(a.get(), c)
    longer = np.ones((5, 6))
    np.testing.assert_array_equal(f(put(longer)[0], 3, more={"b": put(np.ones(6))[0]})["sum"].get(), np.full(5, 18.0))
    assert f.compiles == 2  # for new sizes nothing is compiled


def test_a_number_stays_on_the_gpu(gpu):
    found = lw.jit(np.sum)(put(np.ones(3))[0])
    assert isinstance(found, gpu.kind) and found.shape == () and found.get() == 3


def test_views_are_read_as_numpy_would(gpu):
    x = put(np.arange(20.0, dtype="f4").reshape(4, 5))[0]
    f = lw.jit(lambda x: x * 2)
    for key in (np.s_[1:], np.s_[:, 1:], np.s_[::-1], np.s_[::2, ::-2], np.s_[1], np.s_[1, 2]):
        np.testing.assert_array_equal(f(x[key]).get(), x.get()[key] * 2)


def test_guards_and_declarations_hold_there_too(gpu):
    f = lw.jit(lambda x: x * 2 if x.shape[0] > 3 else x + 1)
    np.testing.assert_array_equal(f(put(np.ones(5))[0]).get(), np.full(5, 2.0))
    np.testing.assert_array_equal(f(put(np.ones(2))[0]).get(), np.full(2, 2.0))
    assert f.compiles == 2
    with pytest.raises(lw.ShapeDeclarationError):
        lw.jit(lambda x, y: x + y, shapes=("n", "n"))(*put(np.ones(3), np.ones(4)))
    assert lw.jit(lambda x: x, dynamic=False)(put(np.ones(3))[0]).shape == (3,)


def test_calls_alike_are_answered_alike(gpu):
    f = lw.jit(lambda x, y=2.0: x * y)
    for dtype, n in (("f8", 3), ("f8", 3), ("f4", 3), ("f8", 4), ("f8", 3), ("f4", 3)):
        x = put(np.ones(n, dtype))[0]
        found = f(x)
        assert (found.dtype, found.shape, found.get().sum()) == (dtype, (n,), 2 * n)
        assert f(x, 3.0).get().sum() == f(x, y=3.0).get().sum() == f(x, x).get().sum() * 3 == 3 * n
    for _ in range(2):
        with pytest.raises(ArgumentError, match="NumPy array"):
            f(x, np.ones(3))
    assert f(np.ones(3)).tolist() == [2, 2, 2]
    outer = lw.jit(lambda z: z + f(put(np.ones(3))[0]))  # while another is traced
    np.testing.assert_array_equal(outer(put(np.ones(3))[0]).get(), np.full(3, 3.0))


# ---- where ----------------------------------------------------------------------------------------
def test_arrays_on_both_sides_are_refused_with_the_fix(gpu):
    def total(x, rest):
        return x + rest["y"]
    x, y = put(np.ones(3))[0], np.ones(3)
    with pytest.raises(ArgumentError, match=r"test_devices.*argument rest\['y'\] is a NumPy array.*device_put.*device='gpu'"):
        lw.jit(total)(x, {"y": y})
    with pytest.raises(ArgumentError, match=r"argument x is on a GPU.*device='cpu'"):
        lw.jit(total, device="cpu")(x, {"y": 1.0})
    np.testing.assert_array_equal(lw.jit(total, device="gpu")(x, {"y": y}).get(), np.full(3, 2.0))
    np.testing.assert_array_equal(lw.jit(total, device="gpu")(y, {"y": y}).get(), np.full(3, 2.0))
    np.testing.assert_array_equal(lw.jit(total, device="cpu")(y, {"y": y}), np.full(3, 2.0))
    with pytest.raises(ArgumentError, match="got 'tpu'"):
        lw.jit(total, device="tpu")


def test_transforms_outside_jit_name_the_fix(gpu):
    x = put(np.ones(3))[0]
    with pytest.raises(ArgumentError, match=r"lw\.jit\(lw\.grad\(f\)\)"):
        lw.grad(lambda x: np.sum(x))(x)


def test_transforms_inside_jit(gpu):
    x, w = np.random.default_rng(0).normal(size=(2, 5, 3))
    f = lambda x, w: lw.numpy.sum(np.tanh(x * w) ** 2)  # noqa: E731
    for made in (lw.grad(f), lw.vmap(lw.grad(f)), lw.vmap(f, in_axes=1), lw.hessian(lambda x, w: f(x, w))):
        found, want = lw.jit(made)(*put(x, w)), lw.jit(made)(x, w)
        np.testing.assert_allclose(found.get(), want, rtol=1e-12, atol=1e-14)


def test_random_bits_are_the_same(gpu):
    key = lw.random.key(3)
    f = lw.jit(lambda key: lw.random.normal(key, (7, 5)))
    np.testing.assert_allclose(f(put(key)[0]).get(), f(key), rtol=1e-14)


def test_containers_come_back_and_go(gpu):
    tree = {"a": np.ones(3), "b": (2.0, np.arange(4))}
    there = lw.device_put(tree)
    assert isinstance(there["a"], gpu.kind) and lw.device_put(there)["a"] is there["a"]
    back = lw.device_put(there, "cpu")
    np.testing.assert_array_equal(back["b"][1], np.arange(4))
    assert lw.devices() == ("cpu", "gpu")
    with pytest.raises(ArgumentError, match="device_put expected"):
        lw.device_put(tree, "tpu")


# ---- captured arrays ------------------------------------------------------------------------------
def test_captured_arrays(gpu):
    w, small, large = put(np.arange(4.0))[0], np.ones(4), np.ones(1000)
    f = lw.jit(lambda x: (x * w, x + small))
    found = f(put(np.full(4, 3.0))[0])
    np.testing.assert_array_equal(found[0].get(), 3 * np.arange(4.0))
    np.testing.assert_array_equal(found[1].get(), np.full(4, 4.0))
    small += 1  # held by reference
    np.testing.assert_array_equal(f(put(np.full(4, 3.0))[0])[1].get(), np.full(4, 5.0))
    with pytest.raises(ArgumentError, match=r"captures a NumPy array of 8000 bytes.*device_put"):
        lw.jit(lambda x: x + large)(put(np.ones(1000))[0])
    with pytest.raises(ArgumentError, match="captures an array on a GPU"):
        lw.jit(lambda x: x + w)(np.ones(4))


# ---- donation -------------------------------------------------------------------------------------
def test_a_donated_array_is_the_result(gpu):
    step = lw.jit(lambda w, g: w - 0.1 * g, donate_argnums=0)
    w, g = put(np.ones(5), np.full(5, 2.0))
    found = step(w, g)
    assert found is w
    np.testing.assert_allclose(w.get(), np.full(5, 0.8))
    wide = put(np.ones(8))[0]
    part = wide[2:7]
    found = step(part, g)
    assert found is not part  # a view is copied
    np.testing.assert_array_equal(wide.get(), np.ones(8))
    np.testing.assert_allclose(step(g, g).get(), np.full(5, 1.8))
    np.testing.assert_array_equal(g.get(), np.full(5, 2.0))  # the other argument is the same memory: a copy was donated


# ---- errors, captures, words ----------------------------------------------------------------------
def test_checks_are_raised_when_asked(gpu):
    f = lw.jit(lambda x, k: x[k])
    x, good, bad = put(np.arange(4.0), np.array([1]), np.array([9]))
    f(x, bad)
    with pytest.raises(IndexError, match=r"index 9 is out of bounds for axis 0 with size 4 .*test_devices"):
        f(x, good)
    lw.set_checks("sync")
    try:
        with pytest.raises(IndexError):
            f(x, bad)
    finally:
        lw.set_checks("async")
    assert f(x, good).get() == 1
    with pytest.raises(ArgumentError, match="set_checks expected"):
        lw.set_checks("never")


@emulator_alone
def test_captures_may_be_left_out(gpu):
    def f(x):
        return np.cumsum(np.cumsum(x * 2)[::-1])
    x = put(np.arange(5.0))[0]
    for options, replayed in (({}, True), ({"cuda_graphs": False}, False)):
        gpu.log.clear()
        g, y = lw.jit(f, **options), None
        for _ in range(8):
            y = g(x)
        np.testing.assert_array_equal(y.get(), f(np.arange(5.0)))
        assert any(line.startswith("replay") for line in gpu.log) is replayed


def test_explain_and_lower_tell_of_the_gpu(gpu):
    f = lw.jit(lambda x: np.abs(np.fft.fft(np.cumsum(x))) + lax.while_loop(lambda s: s < 5, lambda s: s * 2, np.sum(x)))
    x = put(np.ones(3))[0]
    f(x)
    text = f.explain(x)
    assert "version 0 on the GPU: (f64[" in text
    assert "then a library call: transform" in text and "then the host reads whether a loop goes on" in text
    assert "__global__" in f.lower(x, device="gpu").cuda


@pytest.mark.parametrize("cupy", [None, SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))])
def test_what_is_missing_is_said(monkeypatch, cupy):
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # None: it cannot be imported
    lazy.gpu.cache_clear()
    missing, words = (RuntimeError, "finds no GPU.*driver") if cupy else (ImportError, r"pip install 'loopwright\[gpu\]'")
    assert lw.devices() == ("cpu",)
    f = lw.jit(lambda x: x + 1, device="gpu")
    for call in (lambda: lw.device_put(np.ones(3)), lambda: f(np.ones(3))):
        with pytest.raises(missing, match=words):
            call()
    assert "__global__" in f.lower(np.ones(3), device="gpu").cuda
    lazy.gpu.cache_clear()


# ---- the benchmark --------------------------------------------------------------------------------
@emulator_alone
def test_the_benchmark_measures_every_case(gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "ROUND", 0.0)
    monkeypatch.setattr(gpu_peers, "peer", lambda name: None)
    path = tmp_path / "results.json"
    benchmark.main(["--quick", "--results", str(path)])
    found = json.loads(path.read_text())
    assert found["ceilings"]["copy, bytes per second"] > 0
    assert {row["case"] for row in found["cases"]} == {benchmark.MANY_LENGTHS, *(case.name for case in benchmark.CASES)}
    assert not [row for row in found["cases"] if "error" in row]
    assert sum("percent of copy" in row for row in found["cases"]) >= 18


def test_peers_take_part_and_their_failures_are_results(gpu, monkeypatch, tmp_path):
    stream = SimpleNamespace(synchronize=lambda: None)
    cupy = SimpleNamespace(**{name: getattr(np, name) for name in ("asarray", "tanh", "ones", "matmul", "exp", "max", "sum")},
                           float16=np.float16, cuda=SimpleNamespace(get_current_stream=lambda: stream))
    jax = SimpleNamespace(numpy=np, jit=lambda f: f, devices=lambda kind: [kind], device_put=lambda x, device: x,
                          block_until_ready=lambda x: x, config=SimpleNamespace(update=lambda *x: None),
                          default_matmul_precision=lambda name: lambda f: f)
    peers = {"cupy": cupy, "jax": jax, "torch": SimpleNamespace()}
    monkeypatch.setattr(gpu_peers, "peer", peers.get)
    path, names = tmp_path / "results.json", ["softmax", "matmul with epilogue", "products of heads, 128x12x64 f32"]
    benchmark.main(["--quick", "--results", str(path), *names])
    rows = json.loads(path.read_text())["cases"]
    found = {(row["case"], row["contender"]): row.get("error", "") for row in rows}
    ours = {"loopwright", "loopwright, no CUDA graphs"}
    assert set(found) == {(names[1], "jax.jit, products of f32 as f32"),
                          *((case, who) for case in names[:2] for who in (*ours, "cupy", "jax.jit", "torch.compile")),
                          *((names[2], who) for who in ("loopwright", "cupy", "jax.jit", "torch", "torch.compile"))}
    assert {who for (_, who), error in found.items() if error} == {"torch", "torch.compile"}
    assert [row["contender"] for row in rows][-3:] == ["torch.compile"] * 3  # those that are slow to compile come last
    session = benchmark.Session(path, 1.0, 60.0, quick=True)
    session.measure_entry(replace(benchmark.workloads()[0], expected=np.zeros(1000, "f4")), slow=False)
    assert "AssertionError" in session.found["cases"][0]["error"]


def test_no_row_is_begun_when_the_budget_is_used_up(gpu, monkeypatch, tmp_path, capsys):
    path = tmp_path / "results.json"
    benchmark.main(["--quick", "--budget", "0", "--results", str(path)])
    assert json.loads(path.read_text())["cases"] == [] and "budget was used up" in capsys.readouterr().out


def test_every_workload_has_a_name_of_its_own():
    names = [entry.workload for entry in benchmark.workloads()]
    assert len(names) == len(set(names)) > 30 and not set(names) & {case.name for case in benchmark.CASES}


@pytest.mark.parametrize("case", benchmark.CASES, ids=lambda case: case.name)
def test_benchmarks_mean_what_numpy_means(case):
    args = case.make(np.random.default_rng(0), 2000)
    found = lw.jit(lambda *xs: case.f(np, *xs))(*args)
    if not case.numpy_alone:
        want = case.f(np, *[x.astype("f8") if x.dtype == "f4" else x for x in args])
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_the_benchmark_says_why_it_measures_nothing(monkeypatch, capsys):
    def missing():
        raise RuntimeError("no card")
    monkeypatch.setattr(lazy, "gpu", missing)
    benchmark.main([])
    assert "Nothing was measured: no card" in capsys.readouterr().out
