"""CUDA text run on the CPU: every thread a fiber, blocks one after another, warps in a chosen order.

Arrays lie between pages that nobody may touch, at their end or at their start, and in bytes that are looked at afterwards;
what a kernel does not store is nonsense. g++ compiles; where it is missing tests skip, but not on CI.
"""
import ctypes
import hashlib
import heapq
import mmap
import os
import platform
import shutil
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
FORWARD, REVERSE, SHUFFLED = 0, 1, 2
ORDERS = (FORWARD, REVERSE, SHUFFLED)
PAGE = mmap.PAGESIZE
NONSENSE = 0xA5
NOBODY = 0  # who may touch pages: PROT_NONE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class EmulatorError(Exception):
    """What a kernel did that it must not."""


def require_compiler():
    """Skip where g++ or the processor is missing; on CI that is an error."""
    missing = "g++ is not installed" if shutil.which("g++") is None else \
        "" if platform.machine() in ("x86_64", "AMD64") else "fibers are switched on x86-64 alone"
    if missing and os.environ.get("CI"):
        raise RuntimeError(f"the emulator cannot run here: {missing}")
    if missing:
        pytest.skip(missing)


class Places:
    """Pages for arrays. Those that were given back are handed out again, the lowest first, as a device's pool of memory does:
    calls that ask for the same have the same addresses, from the second on. Nobody may touch them meanwhile."""

    def __init__(self):
        self.free = defaultdict(list)  # heaps of addresses, by length

    def take(self, length):
        if self.free[length]:
            base = heapq.heappop(self.free[length])
        else:
            base = _LIBC.mmap(None, length, NOBODY, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        _LIBC.mprotect(base + PAGE, length - 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE)
        return base

    def give_back(self, base, length):
        _LIBC.mprotect(base, length, NOBODY)
        heapq.heappush(self.free[length], base)

    def __del__(self):
        for length, heap in self.free.items():
            for base in heap:
                _LIBC.munmap(base, length)


class Guarded:
    """An array between two pages that nobody may touch, as close to the one after it as 16 bytes allow, or just after one."""

    def __init__(self, like, at_start, places=None):
        like = np.asarray(like, order="C")
        self.like, self.places, size = like, places or Places(), like.nbytes
        pages = -(-size // PAGE) + 1
        self.length = (pages + 2) * PAGE
        self.base = self.places.take(self.length)
        inner = (ctypes.c_uint8 * (pages * PAGE)).from_address(self.base + PAGE)
        self.bytes = np.frombuffer(inner, np.uint8)
        self.bytes[:] = NONSENSE
        self.start = 0 if at_start else (pages * PAGE - size) & -16
        self.stop = self.start + size
        self.bytes[self.start:self.stop] = like.reshape(-1).view(np.uint8)

    @property
    def address(self):
        return self.base + PAGE + self.start

    def array(self):
        """What is there now; EmulatorError where bytes beside it were written."""
        beside = (self.bytes[:self.start], self.bytes[self.stop:])
        if any(np.any(x != NONSENSE) for x in beside):
            raise EmulatorError(f"bytes beside an array of {self.like.dtype}{self.like.shape} were written")
        return self.bytes[self.start:self.stop].copy().view(self.like.dtype).reshape(self.like.shape)

    def close(self):
        del self.bytes
        self.places.give_back(self.base, self.length)


class Emulator:
    """Compiled text. `names`: its `__global__` functions."""

    def __init__(self, text, names, flags=("-O1",)):
        require_compiler()
        source = "\n".join([text, *(f"LW_LAUNCHED({name})" for name in names)])
        header = (HERE / "emulator.h").read_text()
        key = hashlib.sha256("\0".join([source, header, *flags]).encode()).hexdigest()[:24]
        folder = Path(tempfile.gettempdir()) / f"loopwright-emulator-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise EmulatorError(f"{folder} belongs to someone else")
        library = folder / f"{key}.so"
        if not library.exists():
            made = library.with_suffix(f".{os.getpid()}.so")
            command = ["g++", "-std=c++17", *flags, "-w", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing",
                       "-fno-exceptions", "-fno-rtti", "-ffp-contract=off", "-fsanitize=alignment",
                       "-fsanitize-undefined-trap-on-error", *_fused(), "-include", str(HERE / "emulator.h"),
                       "-x", "c++", "-", "-o", str(made)]
            done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
            if done.returncode:
                raise EmulatorError(f"{done.stderr[:4000]}\n{source}")
            made.rename(library)
        self.library = ctypes.CDLL(str(library))

    def launch(self, name, grid, threads, arguments, shared=0, order=FORWARD):
        """Run a function; arguments are addresses (Guarded arrays) and numbers, each a long long."""
        if grid == 0:
            return
        values = [ctypes.c_longlong(x.address if isinstance(x, Guarded) else x) for x in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(v) for v in values])
        text = ctypes.create_string_buffer(256)
        function = getattr(self.library, f"launch_{name}")
        if function(grid, *threads, ctypes.c_long(shared), order, pointers, text):
            raise EmulatorError(f"{name}: {text.value.decode()}")


def _fused():
    """Without the instruction a fused multiply-add is a slow function."""
    try:
        return ["-mfma"] if " fma " in Path("/proc/cpuinfo").read_text() else []
    except OSError:
        return []
