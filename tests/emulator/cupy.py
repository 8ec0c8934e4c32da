"""As much of CuPy as our device is made of, over the emulator: names, the order of arguments and what comes back are CuPy's.

It shows that `lower.runtime.gpu` means what it should where CuPy does; what CuPy and a card do is not shown.
"""
import ctypes
import itertools
import time
import weakref
from types import SimpleNamespace

import numpy as np

from tests.emulator import FORWARD, Emulator, Places
from tests.emulator.driver import Memory

PLACES = Places()


class ndarray(np.ndarray):
    def __new__(cls, shape, dtype=float, memptr=None):
        dtype, memptr = np.dtype(dtype), memptr or alloc(int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize)
        count = int(np.prod(shape, dtype=int)) * dtype.itemsize
        made = np.frombuffer((ctypes.c_uint8 * count).from_address(memptr.ptr), np.uint8).view(dtype).reshape(shape).view(cls)
        made.memptr = memptr
        return made

    data = property(lambda self: SimpleNamespace(ptr=self.__array_interface__["data"][0]))
    device = SimpleNamespace(id=0)
    base = property(lambda self: None if hasattr(self, "memptr") else self)


class MemoryPointer:
    def __init__(self, memory, offset):
        self.mem, self.ptr = memory, memory.ptr + offset


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        assert ptr > 0 and size > 0 and device_id == 0
        self.ptr = ptr


def alloc(count):
    memory = Memory(count, PLACES)
    memory.ptr = memory.address
    return MemoryPointer(memory, 0)


def alloc_pinned_memory(count):
    kind = type("Pinned", (ctypes.c_char * count,), {})
    made = kind()
    made.ptr = ctypes.addressof(made)
    return made


# ---- streams and graphs -----------------------------------------------------------------------------
class Stream:
    current = None

    def __init__(self, ptr=None, non_blocking=False):
        self.ptr, self.noted = id(self) if ptr is None else ptr, None

    def __enter__(self):
        self.before, Stream.current = Stream.current, self

    def __exit__(self, *error):
        Stream.current = self.before

    def begin_capture(self):
        assert self.noted is None and self.ptr, "the legacy stream cannot be captured"
        self.noted = []

    def end_capture(self):
        noted, self.noted = self.noted, None
        graphs[len(graphs) + 1] = noted
        return SimpleNamespace(graphExec=len(graphs))


class Event:
    """The host's clock: everything is done when it was asked for."""

    def record(self, stream):
        assert stream is get_current_stream() and stream.noted is None
        self.at = time.perf_counter()

    def synchronize(self):
        self.is_over = True


def get_elapsed_time(start, end):
    assert end.is_over
    return 1e3 * (end.at - start.at)


def _graph_launch(graph, stream):
    assert stream == get_current_stream().ptr and get_current_stream().noted is None
    for action in graphs[graph]:
        action()


graphs = {}
ATTRIBUTES = {13: 1_980_000, 36: 2_619_000, 37: 5120, 16: 132, 38: 50 << 20, 39: 2048, 75: 9, 76: 0}  # of an H100
NULL = Stream(0)


def get_current_stream():
    return Stream.current or NULL


def _do(stream, action):
    here = get_current_stream()
    assert stream == here.ptr
    if here.noted is None:
        action()
    else:
        here.noted.append(action)


def _waits(stream):
    assert get_current_stream().noted is None and stream == get_current_stream().ptr


# ---- programs ---------------------------------------------------------------------------------------
class Module:
    def load(self, cubin):
        assert isinstance(cubin, bytes)
        names, text = cubin.decode().split("\0")
        self.emulator = Emulator(text, names.split(), ("-O0",))

    def get_function(self, name):
        return Function(self, name)


class Function:
    """At the address of an earlier one that is gone, if there is one; `leave`: bytes of dynamic shared memory."""

    def __init__(self, module, name):
        self.module, self.emulator, self.name, self.leave = module, module.emulator, name, 48 << 10
        self.ptr = next(k for k in itertools.count(1) if k not in functions)
        functions[self.ptr] = self


functions = weakref.WeakValueDictionary()
sources = {}


def _create(text, name, headers, include_names):
    sources[len(sources) + 1] = text
    return len(sources)


def _compile(program, options):
    assert options[0] == "--gpu-architecture=sm_90" and "--fmad=false" in options and isinstance(options, tuple)


def _cubin(program):
    text, found = sources[program], []
    for part in text.split('extern "C" __global__ void ')[1:]:
        found.append((part.split(")", 1)[1] if part.startswith("__launch_bounds__") else part).split("(")[0].strip())
    return (" ".join(found) + "\0" + text).encode()


def _launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra):
    assert gy == gz == bz == 1 and extra == 0 and gx > 0
    emulator, name = functions[f].emulator, functions[f].name
    assert shared <= functions[f].leave
    pointers = (ctypes.c_void_p * _parameters[name]).from_address(params)[:]  # what they point to is copied, as a launch does
    values = (ctypes.c_int64 * len(pointers))(*[ctypes.c_int64.from_address(p).value for p in pointers])
    _do(stream, lambda: emulator.launch(name, gx, (bx, by), list(values), shared, FORWARD))


def _set_attribute(f, attribute, value):
    assert attribute == 8
    functions[f].leave = value


_parameters = {}


def _copy(to, source, count, kind, stream):
    if kind != "device":
        _waits(stream)
    _do(stream, lambda: ctypes.memmove(to, source, count))


def count_parameters(text, names):
    """What a launch cannot tell: how many parameters each function has."""
    for name in names:
        _parameters[name] = text.split(f"{name}(", 1)[1].split(") {")[0].count(",") + 1


def asarray(x):
    made = ndarray(x.shape, x.dtype)
    made[...] = x
    return made


class NVRTCError(Exception):
    pass


cuda = SimpleNamespace(
    function=SimpleNamespace(Module=Module), Stream=Stream, Event=Event, get_elapsed_time=get_elapsed_time,
    get_current_stream=get_current_stream, alloc=alloc,
    alloc_pinned_memory=alloc_pinned_memory, MemoryPointer=MemoryPointer, UnownedMemory=UnownedMemory,
    Device=lambda: SimpleNamespace(compute_capability="90"),
    nvrtc=SimpleNamespace(createProgram=_create, compileProgram=_compile, getCUBIN=_cubin, destroyProgram=lambda p: None,
                          getVersion=lambda: (12, 9), NVRTCError=NVRTCError, getProgramLog=lambda p: ""),
    driver=SimpleNamespace(launchKernel=_launch, funcSetAttribute=_set_attribute),
    runtime=SimpleNamespace(memcpyAsync=_copy, memcpyDeviceToDevice="device", memcpyDeviceToHost="to host",
                            memcpyHostToDevice="to device", streamSynchronize=_waits, getDevice=lambda: 0,
                            getDeviceCount=lambda: 1, graphLaunch=_graph_launch, memGetInfo=lambda: None,
                            deviceGetAttribute=lambda key, device: ATTRIBUTES[key],
                            getDeviceProperties=lambda device: {"name": b"NVIDIA H100"}))
linalg, fft = np.linalg, np.fft
matmul, swapaxes, cumprod, ascontiguousarray = (
    np.matmul, np.swapaxes, np.cumprod, np.ascontiguousarray)
empty = ndarray


def array(x, order, copy):
    return asarray(np.array(x, order=order))


def asnumpy(x):
    return np.array(x).view(np.ndarray)
