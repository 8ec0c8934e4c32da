"""The device that CuPy makes, over a stand-in for CuPy: what is asked of it, and what is made of the answers."""
import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from loopwright import lax
from loopwright.ir.errors import ArgumentError
from loopwright.lower.cuda import lower_cuda
from loopwright.lower.cuda.launcher import Launcher
from loopwright.lower.runtime import gpu_library, lazy
from loopwright.lower.runtime.gpu import CupyDriver
from tests.cuda_templates import sizes_of
from tests.emulator import cupy, require_compiler
from tests.emulator.driver import launched
from tests.test_cuda_programs import agree
from tests.test_launcher import chain, traced


class Driver(CupyDriver):
    def load(self, text, names):
        cupy.count_parameters(text, names)
        return super().load(text, names)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    require_compiler()
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(gpu_library, "cublas", lambda: None)
    monkeypatch.setattr(gpu_library, "cupyx", lambda: SimpleNamespace(errstate=lambda linalg: nullcontext()))
    lazy.cublas.cache_clear()
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


def test_machine_code_is_kept(driver):
    check(driver, lambda x: x * 3, np.ones(3))
    count = len(cupy.sources)
    check(driver, lambda x: x * 3, np.ones(3))
    assert len(cupy.sources) == count


LIBRARY = {
    "sort": lambda x: np.sort(x, axis=0), "argsort": lambda x: np.argsort(x, axis=1), "product": lambda x: x @ x.T @ x,
    "batched product": lambda x: (x[None] * 2) @ x[None], "fft": lambda x: np.fft.fft(x, axis=0), "rfft": np.fft.rfft,
    "irfft": lambda x: np.fft.irfft(np.fft.rfft(x), 5), "cholesky": lambda x: np.linalg.cholesky(x @ x.T + 9 * np.eye(4)),
    "solve": lambda x: np.linalg.solve(x @ x.T + 9 * np.eye(4), x), "svd": lambda x: np.linalg.svd(x)[1],
    "qr": lambda x: np.abs(np.linalg.qr(x)[1]), "slogdet": lambda x: np.linalg.slogdet(x + 9 * np.eye(4))[1],
    "eigh": lambda x: np.linalg.eigvalsh(x + x.T), "cumprod": lambda x: np.cumprod(x + 1j, axis=1),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_libraries(driver, monkeypatch, name):
    answered, call = [], driver.call
    monkeypatch.setattr(driver, "call", lambda *args: answered.append(call(*args)) or answered[-1])
    check(driver, LIBRARY[name], np.random.default_rng(0).normal(size=(4, 4)), times=2)
    assert answered and all(answered)  # by CuPy's functions, not on the host


class CuBLAS:
    """cublas<t>gemmStridedBatched as its manual says: column-major C = op(A) op(B), op(A) of m x k, op(B) of k x n."""

    def __init__(self):
        self.calls, self.stream, self.workspace = [], None, None

    def cublasCreate_v2(self, handle):
        handle._obj.value = 7
        return 0

    def cublasSetStream_v2(self, handle, stream):
        self.stream, self.workspace = stream.value, None  # which the manual says it resets
        return 0

    def cublasSetWorkspace_v2(self, handle, memory, count):
        self.workspace = memory.value
        return 0

    def cublasSgemmStridedBatched(self, *args):
        return self.gemm(np.float32, *args)

    def cublasDgemmStridedBatched(self, *args):
        return self.gemm(np.float64, *args)

    def gemm(self, dtype, handle, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, count):
        assert handle.value == 7 and self.workspace and alpha._obj.value == 1 and beta._obj.value == 0
        self.calls.append((m.value, n.value, k.value, count.value))

        def matrix(at, ld, step, rows, columns, number):
            held = np.ctypeslib.as_array((ctypes.c_uint8 * (ld.value * columns * dtype().itemsize)).from_address(
                at.value + number * step.value * dtype().itemsize)).view(dtype)
            return held.reshape(columns, ld.value).T[:rows]
        cupy._do(self.stream or 0, lambda: [self.one(matrix, j, ta, tb, m, n, k, (a, lda, sa), (b, ldb, sb), (c, ldc, sc))
                                            for j in range(count.value)])
        return 0

    def one(self, matrix, j, ta, tb, m, n, k, a, b, c):
        left = matrix(*a, k.value, m.value, j).T if ta.value else matrix(*a, m.value, k.value, j)
        right = matrix(*b, n.value, k.value, j).T if tb.value else matrix(*b, k.value, n.value, j)
        matrix(*c, m.value, n.value, j)[...] = left @ right


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_by_cublas_are_told_of_transposes(driver, dtype):
    driver.products.library = library = CuBLAS()
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=shape).astype(dtype) for shape in ((3, 5), (5, 4), (3, 4)))
    check(driver, lambda x, y: x @ y, x, y)
    check(driver, lambda x, z: x.T @ z, x, z)
    check(driver, lambda y, z: z @ y.T, y, z)
    check(driver, lambda x, y: np.einsum("ki,jk->ij", y, x), x, y)
    a, b = rng.normal(size=(2, 3, 5)).astype(dtype), rng.normal(size=(2, 5, 4)).astype(dtype)
    check(driver, lambda a, b: a @ b, a, b)
    check(driver, lambda a, b: np.swapaxes(np.swapaxes(b, 1, 2) @ np.swapaxes(a, 1, 2), 1, 2), a, b)
    check(driver, lambda x, y: np.tanh(x @ y) @ y.T @ (y @ y.T), x, y, times=5)  # captured, with kernels between
    assert {count for *_, count in library.calls} >= {1, 2}


def test_arrays_on_another_device_are_refused(driver):
    with pytest.raises(ArgumentError, match=r"on GPU 1, and the current one is GPU 0.*Device\(1\)"):
        driver.native(SimpleNamespace(device=SimpleNamespace(id=1)))
