"""The device that CuPy makes, over a stand-in for CuPy: what is asked of it, and what is made of the answers."""
import gc
import tempfile
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import lax
from loopwright.ir.errors import ArgumentError
from loopwright.ir.types import BF16
from loopwright.lower.cuda import lower_cuda
from loopwright.lower.cuda.launcher import Launcher
from loopwright.lower.runtime import gpu_library, lazy
from loopwright.lower.runtime.gpu import CupyDriver
from tests.cuda_templates import sizes_of
from tests.emulator import cupy, require_compiler
from tests.emulator.cublaslt import CublasLt
from tests.emulator.driver import launched
from tests.scale import examples
from tests.test_cuda_programs import agree
from tests.test_launcher import chain, traced


class Driver(CupyDriver):
    def load(self, text, names):
        cupy.count_parameters(text, names)
        return super().load(text, names)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    require_compiler()
    return made_driver(monkeypatch, tmp_path)


def made_driver(monkeypatch, folder):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(folder))
    monkeypatch.setattr(lazy, "cublas_lt", lambda: None)
    monkeypatch.setattr(gpu_library, "cupyx", lambda: SimpleNamespace(errstate=lambda linalg: nullcontext()))
    return Driver(cupy)


def check(driver, f, *args, want=None, times=3):
    want = f(*args) if want is None else want
    graph, args = traced(f, args)
    sizes = sizes_of(graph, [np.asarray(x) for x in args])
    launcher = Launcher(lower_cuda(graph, sizes), driver)
    for _ in range(times):
        for a, b in zip(launched(launcher, args, sizes), want if isinstance(want, tuple) else (want,), strict=True):
            b = np.stack([b.real, b.imag], -1) if np.asarray(b).dtype.kind == "c" else b
            agree(a, b, "through CuPy's names")
    return launcher


def test_launches_copies_and_numbers(driver):
    x = np.arange(20.0).reshape(4, 5)
    check(driver, lambda x, a: (np.cumsum(x, axis=1) * a, np.sum(x)), x, 2.5)
    check(driver, lambda x: lax.scan(lambda c, row: (c + row, c * row), np.zeros(5), x)[1], x,
          want=(np.cumsum(x, axis=0) - x) * x)
    check(driver, lambda x: x + 1, np.zeros(0))


def test_decisions_and_errors(driver):
    check(driver, lambda x, n: lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 2, s[1] + 1), (x, 0))[0], np.ones(3), 4,
          want=np.full(3, 16.0))
    launcher = check(driver, lambda x, k: x[k], np.arange(3.0), np.array([2, 0]))
    args = [np.arange(3.0), np.array([5, 0])]
    launched(launcher, args, dict(zip(launcher.program.kernels.free_symbols, (3, 2), strict=True)))
    with pytest.raises(IndexError, match="index 5"):
        launcher.raise_reported(0)


def test_what_the_device_can_do_is_asked_of_its_driver(driver):
    found = driver.device
    assert found.name == "NVIDIA H100, 132 multiprocessors, 1980 MHz"
    assert (found.processors, found.flops, found.cache, found.threads) == (132, 256, 50 << 20, 2048)
    assert found.processors * found.flops * found.clock == pytest.approx(66.9e12, rel=1e-3)  # NVIDIA says 67
    assert found.bandwidth == pytest.approx(3.35e12, rel=1e-2)
    assert driver.origin == "loopwright.lower.runtime.lazy:gpu"


def test_times_are_those_of_events(driver):
    done = []
    seconds = driver.elapsed(lambda: done.append(time.sleep(0.01)))
    assert done == [None] and 0.01 <= seconds < 1


def test_functions_at_the_address_of_one_that_is_gone_ask_for_shared_memory_themselves(driver):
    for k in range(3):
        text = f'extern "C" __global__ void reads_{k}(long long* to) {{ LW_SHARED(r); r[*to] = 7 + {k}; *to = r[*to]; }}'
        function = driver.load(text, [f"reads_{k}"])[f"reads_{k}"]
        to = driver.put(np.array([90_000]))
        driver.launch(function, 1, (1, 1), 100_000, [driver.address(to)])
        assert driver.get(to)[0] == 7 + k
        del function
        gc.collect()


def test_captures(driver):
    captured, capture = [], driver.capture
    driver.capture = lambda run: captured.append(run) or capture(run)
    launcher = check(driver, chain, np.ones((3, 5)), times=6)
    assert (launcher.replays > 0) == bool(captured)
    x, y = driver.put(np.ones((3, 5))), driver.empty((3, 5), np.dtype("f8"))
    for k in range(4):
        x[...] = k
        sizes = dict(zip(launcher.program.kernels.free_symbols, (3, 5), strict=True))
        launcher([driver.address(x)], [driver.address(y)], sizes)
        agree(driver.get(y), chain(np.full((3, 5), float(k))), "a replay")
    assert captured


def test_errors_in_captured_loops_reach_the_caller(driver):
    def f(x, k):
        return lax.scan(lambda c, row: (c + x[row], c), np.zeros(()), k)[0]
    launcher = check(driver, f, np.arange(3.0), np.array([2, 0, 1]), want=np.float64(3), times=2)
    x, k, y = driver.put(np.arange(3.0)), driver.put(np.array([2, 0, 1])), driver.empty((), np.dtype("f8"))
    sizes = dict(zip(launcher.program.kernels.free_symbols, (3, 3), strict=True))
    before = launcher.replays
    for bad in (0, 0, 0, 7):
        k[1] = bad
        launcher([driver.address(x), driver.address(k)], [driver.address(y)], sizes)
    assert launcher.replays > before  # the kernels of the loop are captured, on a stream of their own
    with pytest.raises(IndexError, match="index 7"):
        launcher.raise_reported(0)


def test_machine_code_is_kept(driver):
    check(driver, lambda x: x * 3, np.ones(3))
    count = len(cupy.sources)
    check(driver, lambda x: x * 3, np.ones(3))
    assert len(cupy.sources) == count


LIBRARY = {
    "product": lambda x: x @ x.T @ x,
    "batched product": lambda x: (x[None] * 2) @ x[None], "fft": lambda x: np.fft.fft(x, axis=0), "rfft": np.fft.rfft,
    "irfft": lambda x: np.fft.irfft(np.fft.rfft(x), 5), "cholesky": lambda x: np.linalg.cholesky(x @ x.T + 9 * np.eye(4)),
    "solve": lambda x: np.linalg.solve(x @ x.T + 9 * np.eye(4), x), "svdvals": lambda x: np.linalg.svd(x)[1],
    "r": lambda x: np.abs(np.linalg.qr(x)[1]), "slogdet": lambda x: np.linalg.slogdet(x + 9 * np.eye(4))[1],
    "eigvalsh": lambda x: np.linalg.eigvalsh(x + x.T),
    "whole svd": lambda x: (lambda u, s, vt: (u * s) @ vt)(*np.linalg.svd(x)),
    "whole qr": lambda x: (lambda q, r: q @ r)(*np.linalg.qr(x)),
    "whole eigh": lambda x: (lambda w, v: (v * w) @ v.T)(*np.linalg.eigh(x + x.T)),
    "complete": lambda x: np.abs(np.linalg.qr(x[:, :2], "complete")[1]), "cumprod": lambda x: np.cumprod(x + 1j, axis=1),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_libraries(driver, monkeypatch, name):
    answered, library = [], driver.library
    monkeypatch.setattr(driver, "library", lambda *args: answered.append(library(*args)) or answered[-1])
    check(driver, LIBRARY[name], np.random.default_rng(0).normal(size=(4, 4)), times=2)
    assert answered and all(answered)  # by CuPy's functions, not on the host


# ---- products by cuBLASLt -------------------------------------------------------------------------
def with_library(driver, **options):
    driver.products.library = found = CublasLt(**options)
    return found


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", BF16])
def test_products_by_the_library_are_told_of_transposes(driver, dtype):
    library, rng = with_library(driver), np.random.default_rng(0)
    x, y, z = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((3, 5), (5, 4), (3, 4)))

    def compare(f, *args, **options):
        check(driver, f, *args, want=f(*[a.astype("f8") for a in args]), **options)
    compare(lambda x, y: x @ y, x, y)
    compare(lambda x, z: x.T @ z, x, z)
    compare(lambda y, z: z @ y.T, y, z)
    compare(lambda x, y: np.einsum("ki,jk->ij", y, x), x, y)
    a, b = rng.integers(-4, 5, (2, 3, 5)).astype(dtype), rng.integers(-4, 5, (2, 5, 4)).astype(dtype)
    compare(lambda a, b: a @ b, a, b)
    compare(lambda a, b: np.swapaxes(np.swapaxes(b, 1, 2) @ np.swapaxes(a, 1, 2), 1, 2), a, b)
    compare(lambda x, y: np.minimum(x @ y, 2) @ y.T @ (y @ y.T), x, y, times=5)  # captured, with kernels between
    assert {call[3] for call in library.calls} == {1, 2}
    assert len(library.asked) == len(set(library.asked))  # what suits is asked once for a shape
    driver.products._plans.clear()
    gc.collect()
    assert not library.made, "descriptors were left"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@examples(6)
@given(st.tuples(*[st.integers(1, 9)] * 4), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_what_the_library_adds_is_what_is_added(dtype, shape, added, biased, batched, seed):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        driver = made_driver(patch, folder)
        library, rng = with_library(driver), np.random.default_rng(seed)
        q, m, n, k = shape
        front = (q,) if batched else ()
        x, y, c, b = (rng.normal(size=s).astype(dtype) for s in ((*front, m, k), (*front, k, n), (*front, m, n), (n,)))
        y[..., 0, 0] = np.nan

        def f(x, y, *more):
            found = x @ y
            for z in more:
                found = found + z
            return found
        args = [x, y, *([c] if added else []), *([b] if biased else [])]
        check(driver, f, *args, times=4)
        assert library.calls and all(call[4:] == (4 if biased else 1, float(added)) for call in library.calls)


def test_what_the_library_does_not_do_is_a_kernel(driver):
    library, rng = with_library(driver), np.random.default_rng(0)
    x, y, b, c = (rng.normal(size=s).astype("f4") for s in ((3, 5), (5, 3), (3,), (3, 3)))
    for f in (lambda x, y, b, c: x @ y + b + c, lambda x, y, b, c: x @ y + b[:, None], lambda x, y, b, c: c - x @ y,
              lambda x, y, b, c: x @ y + (x @ y).T, lambda x, y, b, c: np.maximum(x @ y + b, 0), lambda x, y, b, c: 2 * (x @ y),
              lambda x, y, b, c: (x @ y + c, x @ y + b)):
        check(driver, f, x, y, b, c, times=1)
    halves = [a.astype("f2") for a in (x, y, b)]
    check(driver, lambda x, y, b: x @ y + b, *halves, times=1)  # which rounds twice
    assert {call[4:] for call in library.calls} == {(1, 0.0)}


def test_products_without_an_algorithm_are_cupys(driver):
    library, x = with_library(driver, lacks=lambda key: True), np.arange(6.0).reshape(2, 3)
    check(driver, lambda x, c: x @ x.T + c + c[0], x, np.ones((2, 2)))
    check(driver, lambda x: x @ x.T, x.astype(BF16), want=x @ x.T)
    assert library.made and not library.calls


def test_arrays_on_another_device_are_refused(driver, monkeypatch):
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 2)
    driver = Driver(cupy)
    with pytest.raises(ArgumentError, match=r"on GPU 1, and the current one is GPU 0.*Device\(1\)"):
        driver.native(SimpleNamespace(device=SimpleNamespace(id=1)))
