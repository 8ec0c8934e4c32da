"""Calls of CUDA's libraries for kernels that are one: products of matrices by cuBLAS, the others by CuPy's functions.

cuBLAS is called by ctypes: CuPy refuses to call it while a stream is captured. f32 is multiplied as f32, never as TF32.
"""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.graph import Node
from loopwright.ir.types import BF16, F32
from loopwright.kernels.gemm import match_gemm
from loopwright.lower.cuda.driver import Located
from loopwright.lower.fourier import READS_PAIRS, WRITES_PAIRS
from loopwright.lower.runtime.lazy import cublas, cupyx, cupyx_linalg

WORKSPACE = 8 << 20  # bytes
MOST_EXTENT = (1 << 31) - 1  # cuBLAS's sizes have 32 bits


class Products:
    """Products of matrices by cuBLAS, where its library is found."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.library = cublas()
        self._handles: dict[int, ctypes.c_void_p] = {}  # by device
        self._lock = threading.Lock()

    @property
    def is_available(self) -> bool:
        return self.library is not None

    def workspace(self) -> Any:
        """Memory that a call works in."""
        return self.cupy.cuda.alloc(WORKSPACE)

    def run(self, n: Node, inputs: Sequence[Located], outputs: Sequence[Located], stream: int, workspace: Any) -> bool:
        """C = op(A) op(B) for each matrix of a batch; False where sizes are too large. cuBLAS is column-major: it is told of
        the transposes, C' = op(B)' op(A)'."""
        assert self.library is not None
        once = n.regions[0].nodes[0]
        gemm = match_gemm(once)
        assert gemm is not None
        a, b = (inputs[n.regions[0].params.index(v)] for v in once.inputs)
        batch, m, columns, k = extents(once, a, b)
        if max(batch, m, columns, k) > MOST_EXTENT:
            return False
        real: Any = ctypes.c_float if gemm.suffix == "f32" else ctypes.c_double
        multiply = self.library.cublasSgemmStridedBatched if gemm.suffix == "f32" else self.library.cublasDgemmStridedBatched
        (ta, tb), one, zero = gemm.transposed, real(1), real(0)
        pointer, number, step = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
        with self._lock:
            handle = self._handle()
            _check(self.library.cublasSetStream_v2(handle, pointer(stream)), "cublasSetStream")
            _check(self.library.cublasSetWorkspace_v2(handle, pointer(workspace.ptr), ctypes.c_size_t(WORKSPACE)),
                   "cublasSetWorkspace")
            _check(multiply(handle, number(tb), number(ta), number(columns), number(m), number(k), ctypes.byref(one),
                            pointer(b.address), number(k if tb else columns), step(k * columns),
                            pointer(a.address), number(m if ta else k), step(m * k), ctypes.byref(zero),
                            pointer(outputs[0].address), number(columns), step(m * columns), number(batch)), "gemm")
        return True

    def _handle(self) -> ctypes.c_void_p:
        device = self.cupy.cuda.runtime.getDevice()
        if device not in self._handles:
            assert self.library is not None
            self._handles[device] = ctypes.c_void_p()
            _check(self.library.cublasCreate_v2(ctypes.byref(self._handles[device])), "cublasCreate")
        return self._handles[device]


def extents(once: Node, a: Located, b: Located) -> tuple[int, int, int, int]:
    """The batch, rows, columns and summed products of a product of matrices."""
    batch = int(np.prod(a.shape[:len(once.attrs["batch"])], dtype=np.int64))
    k = int(np.prod([a.shape[axis] for axis, _ in once.attrs["contract"]], dtype=np.int64))
    m, columns = (int(np.prod(x.shape, dtype=np.int64)) // (batch * k) for x in (a, b))
    return batch, m, columns, k


def _check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"{what} failed with cuBLAS status {status}.")


# ---- CuPy's functions -------------------------------------------------------------------------------
Function = Callable[..., Any]


def called(cupy: Any, n: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Run a kernel by CuPy's function for it; False where there is none."""
    once = n.regions[0].nodes[0]
    function = _FUNCTIONS.get(n.attrs["implementation"])
    operands = [inputs[n.regions[0].params.index(v)] for v in once.inputs]
    if function is None or any(x.dtype == BF16 for x in operands):
        return False
    try:
        found = function(cupy, once, outputs, *operands)
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(f"{error} (at {once.source})") from None
    for out, x in zip(outputs, found if isinstance(found, tuple) else (found,), strict=True):
        out[...] = x
    return True


def _product(cupy: Any, once: Node, outputs: Sequence[Any], a: Any, b: Any) -> Any:
    gemm = match_gemm(once)
    assert gemm is not None
    (ta, tb), batch, k = gemm.transposed, len(once.attrs["batch"]), 1
    for axis, _ in once.attrs["contract"]:
        k *= a.shape[axis]
    front = a.shape[:batch]
    a = cupy.swapaxes(a.reshape(*front, k, -1), -1, -2) if ta else a.reshape(*front, -1, k)
    b = cupy.swapaxes(b.reshape(*front, -1, k), -1, -2) if tb else b.reshape(*front, k, -1)
    return cupy.matmul(a, b).reshape(outputs[0].shape)


def _transform(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    kind, axis = once.attrs["kind"], once.attrs["axis"]
    points = (x if kind == "rfft" else outputs[0]).shape[axis]
    given = x.view(np.complex64 if x.dtype == F32 else np.complex128)[..., 0] if kind in READS_PAIRS else x
    out = getattr(cupy.fft, kind)(given, points, axis=axis, norm=once.attrs["norm"])
    return cupy.ascontiguousarray(out)[..., None].view(x.dtype) if kind in WRITES_PAIRS else out


def _running_product(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    pair = np.complex64 if x.dtype == F32 else np.complex128
    return cupy.cumprod(x.view(pair)[..., 0], axis=-1)[..., None].view(x.dtype)


def _strict(name: str, **options: str) -> Function:
    """A function of cupy.linalg that raises where NumPy's does. `options`: its arguments by the attributes they come from."""
    def run(cupy: Any, once: Node, outputs: Sequence[Any], *xs: Any) -> Any:
        with cupyx().errstate(linalg="raise"):
            found = getattr(cupy.linalg, name)(*xs, **{k: once.attrs[a] for k, a in options.items()})
        return tuple(found) if isinstance(found, tuple) else found
    return run


def _sorted(name: str) -> Function:
    return lambda cupy, once, outputs, x: getattr(cupy, name)(x, axis=once.attrs["axis"])


def _triangular(cupy: Any, once: Node, outputs: Sequence[Any], a: Any, b: Any) -> Any:
    options = {"trans": int(once.attrs["transposed"]), "lower": once.attrs["lower"], "unit_diagonal": once.attrs["unit"]}
    return cupyx_linalg().solve_triangular(a, b, **options)


def _qr(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    return tuple(cupy.linalg.qr(x, mode="complete" if once.attrs["full"] else "reduced"))


_FUNCTIONS: Mapping[str, Function] = {
    "gemm": _product, "transform": _transform, "running_product": _running_product,
    "sort": _sorted("sort"), "argsort": _sorted("argsort"),
    "cholesky": _strict("cholesky"), "solve": _strict("solve"), "eigh": _strict("eigh"), "slogdet": _strict("slogdet"),
    "svd": _strict("svd", full_matrices="full"), "pinv": _strict("pinv"), "qr": _qr,
    "triangular_solve": _triangular,
}
