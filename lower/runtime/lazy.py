"""The one module that imports inside functions: the compiler and optional libraries are loaded when first needed.

Guarantees: importing loopwright imports none of them; what `llvm()` returns is initialised for this machine.
"""
from __future__ import annotations

import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from loopwright.ir.graph import Graph
    from loopwright.ir.signature import Version
    from loopwright.lower.compile import Compiled
    from loopwright.lower.cuda import CudaProgram
    from loopwright.lower.cuda.driver import Driver
    from loopwright.lower.cuda.launcher import Launcher
    from loopwright.lower.program import Program
    from loopwright.lower.target import Target
    from loopwright.lower.tuning.stored import Program as Tuned
    from loopwright.lower.tuning.stored import Stored, TunedRecord

# Held around every call into LLVM, so that a fork, which waits for it, never finds LLVM in the middle of something.
LLVM_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LLVM_LOCK.acquire, after_in_parent=LLVM_LOCK.release, after_in_child=LLVM_LOCK.release)


@cache
def llvm() -> Any:
    """`llvmlite.binding`, ready to parse text and to emit native code."""
    import llvmlite.binding as binding
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    return binding


@cache
def llvm_version() -> str:
    """Names what generates code: llvmlite's version and LLVM's."""
    import llvmlite
    return f"llvmlite {llvmlite.__version__}, LLVM {llvm().llvm_version_info}"


def compile_version(version: Version) -> Compiled:
    """Machine code for a version: see lower.compile."""
    from loopwright.lower.compile import compile_version
    return compile_version(version)


def lower_graph(graph: Graph, target: Target, *, blas: bool, fast_math: bool, donated: Sequence[int]) -> Program:
    """The program of a graph, of which versions that come from the disk need none, what short rows need apart: see
    lower.program."""
    from loopwright.lower.program import lower_graph
    return lower_graph(graph, target, blas=blas, fast_math=fast_math, donated=donated, apart=True)


def module_of(graph: Graph, program: Callable[[], Program], fast_math: bool) -> Graph:
    """The program of a graph, made unless the graph is one, as a graph of one node: see lower.modules."""
    from loopwright.lower.modules import is_module, module_of
    return graph if is_module(graph) else module_of(graph, program(), fast_math)


def lower_cuda(graph: Graph, sizes: Mapping[str, int], donated: Sequence[int] = (), fast_math: bool = False) -> CudaProgram:
    """The CUDA text of a graph's kernels: see lower.cuda."""
    from loopwright.lower.cuda import lower_cuda
    return lower_cuda(graph, sizes, donated, fast_math)


def launcher(program: CudaProgram, driver: Driver, captures: bool) -> Launcher:
    """A program on a device: see lower.cuda.launcher."""
    from loopwright.lower.cuda.launcher import Launcher
    return Launcher(program, driver, captures=captures)


def check_at_once(at_once: bool) -> None:
    """Whether calls on a GPU wait to raise errors: see lower.cuda.launcher."""
    from loopwright.lower.cuda.launcher import check_at_once
    check_at_once(at_once)


def segments(launcher: Launcher, sizes: Mapping[str, int]) -> list[str]:
    """What runs between decisions of the host: see lower.cuda.launcher."""
    from loopwright.lower.cuda.launcher import segments
    return segments(launcher, sizes)


@cache
def gpu() -> Driver:
    """The GPU, through CuPy. ImportError where CuPy is missing, RuntimeError where no device answers: both say what to do."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(f"loopwright runs on GPUs through CuPy, which cannot be imported ({error}). Install it with "
                          f"pip install 'loopwright[gpu]'.") from error
    if not cupy.cuda.is_available():
        raise RuntimeError("CuPy is installed but finds no GPU. loopwright needs an NVIDIA GPU and a driver for CUDA 12 or "
                           "later; nvidia-smi shows both. Without one, leave out device= and pass NumPy arrays.")
    from loopwright.lower.runtime.gpu import CupyDriver
    return CupyDriver(cupy)


def assembled(text: str, target: Target | None = None) -> bytes:
    """The object code of LLVM text, from the disk where it is known: see cache.py."""
    from loopwright.lower.runtime.cache import assembled
    return assembled(text, target)


def assembled_each(texts: Sequence[str], target: Target) -> list[bytes]:
    """The same of several texts: see cache.py."""
    from loopwright.lower.runtime.cache import assembled_each
    return assembled_each(texts, target)


def factoring_code(name: str, dtype: np.dtype, target: Target) -> bytes:
    """The object code of one function for batches of small factorisations: see lower.codegen.factoring."""
    return _function_code(name, target, _factoring_text, dtype, target)


def products_code(name: str, dtype: np.dtype, target: Target) -> bytes:
    """The object code of one function of matrix products: see lower.codegen.products."""
    return _function_code(name, target, _products_text, dtype, target)


def transposes_code(name: str, target: Target) -> bytes:
    """The object code of one function that transposes rows: see lower.codegen.transposes."""
    return _function_code(name, target, _transposes_text, target)


def _factoring_text(dtype: np.dtype, target: Target) -> str:
    from loopwright.lower.codegen.factoring import factoring_text
    return factoring_text(dtype, target)


def _products_text(dtype: np.dtype, target: Target) -> str:
    from loopwright.lower.codegen.products import products_text
    return products_text(dtype, target)


def _transposes_text(target: Target) -> str:
    from loopwright.lower.codegen.transposes import transposes_text
    return transposes_text(target)


def _function_code(name: str, target: Target, text: Callable[..., str], *given: object) -> bytes:
    """The object code of one function of a library, which is `text(*given)`, with all that it calls: see cache.py."""
    from loopwright.lower.runtime.cache import function_code
    return function_code(name, lambda: _pieces(text, *given)[name], target)


@cache
def _pieces(text: Callable[..., str], *given: object) -> Mapping[str, Sequence[str]]:
    """A library's text in pieces: see pieces.py."""
    from loopwright.lower.runtime.pieces import pieces
    return pieces(text(*given))


def stored_programs(version: Version, files: Sequence[Path], more: Sequence[Stored],
                    device: str) -> tuple[list[Tuned], list[TunedRecord], list[str]]:
    """The programs that files hold for a version: see lower.tuning.stored."""
    from loopwright.lower.tuning.stored import programs
    return programs(version, files, more, device)


@cache
def rich() -> Any | None:
    """`rich`, with what shows a changing table; None where it is not installed."""
    try:
        import rich.console
        import rich.live
        import rich.table
    except ImportError:
        return None
    return rich


@cache
def cupyx() -> Any:
    """What CuPy has beside NumPy's functions."""
    import cupyx
    return cupyx


@cache
def cupyx_linalg() -> Any:
    """CuPy's functions by SciPy's names."""
    import cupyx.scipy.linalg
    return cupyx.scipy.linalg


@cache
def cublas_lt() -> Any | None:
    """cuBLASLt by ctypes, from where CuPy finds it; None where it is not to be found."""
    import ctypes
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
        return ctypes.CDLL(load_nvidia_dynamic_lib("cublasLt").abs_path)
    except (ImportError, RuntimeError, OSError):  # the second is pathfinder's for a library that is nowhere
        return None


def digest(text: str) -> str:
    """The SHA-256 of text."""
    from hashlib import sha256
    return sha256(text.encode()).hexdigest()
