"""A GPU through CuPy: what `lower.cuda.driver.Driver` asks for.

Guarantees: text is compiled by NVRTC with our own options (CuPy's would flush denormals) once for each architecture, and its
machine code kept on the disk; memory is CuPy's pool's; everything goes to the caller's current CuPy stream.
"""
from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from loopwright.ir.dims import evaluate
from loopwright.ir.errors import ArgumentError
from loopwright.ir.graph import Node
from loopwright.ir.source import user_source
from loopwright.lower.cuda.driver import Device, Flags, LibraryCall, Located, Memory
from loopwright.lower.runtime import cache, lazy
from loopwright.lower.runtime.gpu_library import Function, function_of
from loopwright.lower.runtime.gpu_products import Products

OPTIONS = ("--fmad=false", "--std=c++17", "--diag-suppress=177")
MOST_SHARED = 48 << 10  # bytes of dynamic shared memory that a function has unless it asks for more
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of the driver API
ARRAY_ALIGNED = 16
ATTRIBUTES = {"kilohertz": 13, "memory_kilohertz": 36, "bus_bits": 37, "processors": 16, "cache": 38, "threads": 39,
              "major": 75, "minor": 76}  # cudaDeviceAttr, by what it tells
LANES = ((86, 128), (62, 64), (61, 128), (0, 64))  # f32 units of a multiprocessor, by compute capability from on


class _Block:
    """Bytes of CuPy's pool."""

    __slots__ = ("address", "pointer")

    def __init__(self, pointer: Any) -> None:
        self.pointer, self.address = pointer, pointer.ptr


class _Pinned:
    """Numbers in the host's memory, which a device reaches at the same address."""

    def __init__(self, pointer: Any, count: int) -> None:
        self.pointer = pointer
        self.words = np.frombuffer(pointer, np.int64, count)
        self.words[:] = 0

    @property
    def address(self) -> int:
        return int(self.pointer.ptr)


class _Function:
    """A function of a module, which stays loaded as long. `shared`: bytes of dynamic shared memory that it has leave for."""

    def __init__(self, function: Any) -> None:
        self.function, self.pointer, self.shared = function, int(function.ptr), MOST_SHARED


class _Parameters:
    """Parameters of a launch, 8 bytes each. `address`: of the pointers to them, as a launch asks for."""

    def __init__(self, count: int) -> None:
        self.values = (ctypes.c_int64 * count)()
        first = ctypes.addressof(self.values)
        self.pointers = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.address = ctypes.addressof(self.pointers)


class _CupyCall:
    """A call of CuPy's functions."""

    can_capture = False

    def __init__(self, driver: CupyDriver, function: Function, n: Node, sizes: Mapping[str, int]) -> None:
        self.driver, self.function = driver, function
        self.laid = [[(tuple([evaluate(n, sizes) for n in v.type.shape]), v.type.dtype) for v in values]
                     for values in (n.inputs, n.outputs)]

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        arrays = [[self.driver.array(Located(at, *x)) for at, x in zip(addresses, laid, strict=True)]
                  for addresses, laid in zip((inputs, outputs), self.laid, strict=True)]
        self.function(self.driver.cupy, *arrays)


class CupyDriver:
    """The GPU that is CuPy's current device. `cupy`: the module."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.runtime, self.driver = cupy, cupy.cuda.runtime, cupy.cuda.driver
        self.address, self._stream, self._alloc = attrgetter("data.ptr"), cupy.cuda.get_current_stream, cupy.cuda.alloc
        self.kind, self._has_several = cupy.ndarray, self.runtime.getDeviceCount() > 1
        self.products = Products(cupy, lazy.cublas_lt())
        self._blanks: dict[int, list[_Parameters]] = defaultdict(list)  # not in use, by the number of parameters
        self._local = threading.local()

    # ---- the device ----------------------------------------------------------------------------
    @property
    def device(self) -> Device:
        runtime, number = self.runtime, self.runtime.getDevice()
        ask = {name: runtime.deviceGetAttribute(key, number) for name, key in ATTRIBUTES.items()}
        name = runtime.getDeviceProperties(number)["name"].decode()
        clock, version = 1e3 * ask["kilohertz"], 10 * ask["major"] + ask["minor"]
        lanes = next(count for least, count in LANES if version >= least)
        bandwidth = 2 * 1e3 * ask["memory_kilohertz"] * ask["bus_bits"] / 8  # two transfers in a cycle
        whole = f"{name}, {ask['processors']} multiprocessors, {clock / 1e6:.0f} MHz"
        return Device(whole, ask["processors"], clock, 2 * lanes, bandwidth, ask["cache"], ask["threads"])

    @property
    def origin(self) -> str:
        return f"{lazy.__name__}:gpu"

    def elapsed(self, run: Callable[[], None]) -> float:
        events, stream = [self.cupy.cuda.Event() for _ in range(2)], self.cupy.cuda.get_current_stream()
        events[0].record(stream)
        run()
        events[1].record(stream)
        events[1].synchronize()
        return float(self.cupy.cuda.get_elapsed_time(*events)) / 1e3

    # ---- programs ------------------------------------------------------------------------------
    def load(self, text: str, names: Sequence[str]) -> Mapping[str, Any]:
        module = self.cupy.cuda.function.Module()
        module.load(self._machine_code(text, f"sm_{self.cupy.cuda.Device().compute_capability}"))
        return {name: _Function(module.get_function(name)) for name in names}

    def _machine_code(self, text: str, architecture: str) -> bytes:
        nvrtc = self.cupy.cuda.nvrtc
        key = cache.digest(text, architecture, repr(OPTIONS), repr(nvrtc.getVersion()))
        entry = cache.read(key)
        if entry is None:
            program = nvrtc.createProgram(text, "kernels.cu", (), ())
            try:
                nvrtc.compileProgram(program, (f"--gpu-architecture={architecture}", *OPTIONS))
                entry = cache.Entry(nvrtc.getCUBIN(program))
            except nvrtc.NVRTCError as error:
                raise RuntimeError(f"NVRTC {nvrtc.getVersion()} refused kernels for {architecture}: {error}\n"
                                   f"{nvrtc.getProgramLog(program)}") from error
            finally:
                nvrtc.destroyProgram(program)
            cache.write(key, entry)
        return entry.code

    def launch(self, function: Any, grid: int, threads: tuple[int, int], shared: int, arguments: Sequence[int]) -> None:
        if not hasattr(self._local, "is_ready"):  # the driver's own functions need the context that the runtime's make
            self.runtime.memGetInfo()
            self._local.is_ready = True
        if shared > function.shared:
            self.driver.funcSetAttribute(function.pointer, MAX_DYNAMIC_SHARED, shared)
            function.shared = shared
        blanks = self._blanks[len(arguments)]
        parameters = blanks.pop() if blanks else _Parameters(len(arguments))  # no other thread has it meanwhile
        parameters.values[:] = list(arguments)
        x, y = threads
        self.driver.launchKernel(function.pointer, grid, 1, 1, x, y, 1, shared, self.stream(), parameters.address, 0)
        blanks.append(parameters)

    def library(self, n: Node, sizes: Mapping[str, int]) -> LibraryCall | None:
        if n.attrs["implementation"] == "gemm" and (made := self.products.call(n, sizes, self)) is not None:
            return made
        function = function_of(n)
        return None if function is None else _CupyCall(self, function, n, sizes)

    def array(self, x: Located) -> Any:
        """CuPy's array of what is there."""
        memory = self.cupy.cuda.UnownedMemory(x.address, x.bytes, self, self.runtime.getDevice())
        return self.cupy.ndarray(x.shape, x.dtype, self.cupy.cuda.MemoryPointer(memory, 0))

    def workspace(self, count: int) -> int:
        """What products of matrices work in on this stream: so many bytes. A capture has its own, since it may run beside any
        other."""
        known: dict[int, tuple[int, Any]] = self._local.__dict__.setdefault("workspaces", {})
        stream = self.stream()
        if known.get(stream, (-1,))[0] < count:
            known[stream] = count, self.cupy.cuda.alloc(count)
        return int(known[stream][1].ptr)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            if self.products.workspace:
                self.workspace(self.products.workspace)  # nothing is allocated in a capture
            stream.begin_capture()
            try:
                run()
            finally:
                graph = stream.end_capture()
                _, workspace = self._local.__dict__.get("workspaces", {}).pop(stream.ptr, (0, None))

        launch, what, current = self.runtime.graphLaunch, graph.graphExec, self._stream

        def replay(_held: Any = (graph, workspace)) -> None:
            launch(what, current().ptr)
        return replay

    # ---- memory --------------------------------------------------------------------------------
    def stream(self) -> int:
        number: int = self._stream().ptr
        return number

    def allocate(self, count: int) -> Memory:
        return _Block(self._alloc(count))

    def flags(self, count: int) -> Flags:
        return _Pinned(self.cupy.cuda.alloc_pinned_memory(8 * count), count)

    def copy(self, to: int, source: int, count: int) -> None:
        self._copied(to, source, count, self.runtime.memcpyDeviceToDevice)

    def read(self, x: Located) -> np.ndarray:
        found = np.empty(x.shape, x.dtype)
        self._copied(found.ctypes.data, x.address, x.bytes, self.runtime.memcpyDeviceToHost)
        self.wait()
        return found

    def write(self, to: Located, x: np.ndarray) -> None:
        x = np.ascontiguousarray(x)
        self._copied(to.address, x.ctypes.data, x.nbytes, self.runtime.memcpyHostToDevice)
        self.wait()  # before x goes

    def _copied(self, to: int, source: int, count: int, kind: int) -> None:
        if count:
            self.runtime.memcpyAsync(to, source, count, kind, self.stream())

    def wait(self) -> None:
        self.runtime.streamSynchronize(self.stream())

    # ---- arrays --------------------------------------------------------------------------------
    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return self.kind(shape, dtype)

    def native(self, x: Any) -> Any:
        if self._has_several and x.device.id != self.runtime.getDevice():
            raise ArgumentError(f"{user_source()}: an array is on GPU {x.device.id}, and the current one is GPU "
                                f"{self.runtime.getDevice()}. Call inside `with cupy.cuda.Device({x.device.id}):`.")
        return x if x.flags.c_contiguous and x.data.ptr % ARRAY_ALIGNED == 0 else self.cupy.array(x, order="C", copy=True)

    def is_alone(self, x: Any) -> bool:
        return x.base is None

    def put(self, x: np.ndarray) -> Any:
        return self.cupy.asarray(x)

    def get(self, x: Any) -> np.ndarray:
        return np.asarray(self.cupy.asnumpy(x))
