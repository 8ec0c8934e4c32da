"""NVIDIA's run-time compiler without a device: text to what a GPU would run, and what that costs.

The library is that of the wheel `nvidia-cuda-nvrtc`; where it is missing tests skip, but not on CI.
"""
import ctypes
import importlib.util
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

FLAGS = ("--fmad=false", "--std=c++17", "--diag-suppress=177", "--ptxas-options=-v")


class CompileError(Exception):
    """Text that does not compile, with the compiler's words."""


@dataclass(frozen=True)
class Resources:
    """What ptxas says of one function: registers a thread, bytes of stack, of spills, and of static shared memory."""

    registers: int
    stack: int
    spills: int
    shared: int


@cache
def library():
    """The library; skips where there is none, fails on CI."""
    spec = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cu13")
    folders = list(spec.submodule_search_locations) if spec else []
    found = [str(x) for folder in folders for x in sorted(Path(folder, "lib").glob("libnvrtc.so.*"))]
    if not found and os.environ.get("CI"):
        raise RuntimeError("nvidia-cuda-nvrtc is not installed")
    if not found:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    made = ctypes.CDLL(found[0])
    made.nvrtcGetErrorString.restype = ctypes.c_char_p
    return made


def _read(name, program):
    size = ctypes.c_size_t()
    assert getattr(library(), f"nvrtcGet{name}Size")(program, ctypes.byref(size)) == 0
    buffer = ctypes.create_string_buffer(size.value)
    assert getattr(library(), f"nvrtcGet{name}")(program, buffer) == 0
    return buffer.raw


def compile_text(text, architecture):
    """The PTX text, and each function's resources, for `sm_80` and its like."""
    nvrtc, program = library(), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    try:
        flags = [f"--gpu-architecture={architecture}", *FLAGS]
        status = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*map(str.encode, flags)))
        log = _read("ProgramLog", program).decode().rstrip("\0")
        if status:
            raise CompileError(f"{nvrtc.nvrtcGetErrorString(status).decode()}\n{log}")
        return _read("PTX", program).decode(), resources(log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def resources(log):
    """By function name, from the words of ptxas."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        def number(pattern, part=part):
            match = re.search(pattern, part)
            return int(match.group(1)) if match else 0
        found[part.split("'")[0]] = Resources(number(r"Used (\d+) registers"), number(r"(\d+) bytes stack frame"),
                                              number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes smem"))
    return found
