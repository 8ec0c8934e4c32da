"""What a call takes of the system's memory, for scripts that run in a process of their own; arrays before memory that is
nobody's."""
import ctypes
import mmap
import os
import re
import sys
from collections.abc import Callable

import numpy as np

CLEAR = "/proc/self/clear_refs"
IS_COUNTED = os.access(CLEAR, os.W_OK)  # Linux keeps the greatest resident size, and starts again when it is told to


def growth(call: Callable[[], object]) -> int:
    """The bytes by which the resident memory of this process grows at most while `call` runs."""
    with open(CLEAR, "w") as file:
        file.write("5")
    before = _peak()
    call()
    return _peak() - before


def _peak() -> int:
    with open("/proc/self/status") as file:
        found = re.search(r"VmHWM:\s*(\d+) kB", file.read())
    assert found is not None
    return 1024 * int(found[1])


def before_nobodys(size: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function that copies arrays of up to `size` bytes, each to where memory ends: on Linux, who reads on dies."""
    page = mmap.PAGESIZE
    length = -(-size // page) * page
    memory = mmap.mmap(-1, length + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if sys.platform == "linux":
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + length), page, 0) == 0

    def copy(x: np.ndarray) -> np.ndarray:
        if not x.size:
            return x
        placed = np.frombuffer(memory, x.dtype, x.size, length - x.nbytes).reshape(x.shape)
        placed[...] = x
        return placed
    return copy
