"""The machine code of kernels that users bring: where it is, and how it is called from Python.

Guarantees: a library is looked up once in a process; LLVM text is compiled once, with LLVM's usual passes, and kept on disk
by content; what cannot be found is a KernelError that names it.
"""
from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from loopwright.ir.attributes import Callback
from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import KernelError
from loopwright.ir.graph import Graph
from loopwright.lower.runtime import cache as disk
from loopwright.lower.runtime import support
from loopwright.lower.runtime.engine import Library, assemble, exported, load, optimised
from loopwright.lower.runtime.lazy import digest
from loopwright.lower.runtime.once import once
from loopwright.lower.target import host_target

PREFIX = "lw_native_"
ERROR_WORDS = 7  # see docs/architecture.md


@dataclass(frozen=True)
class LibraryFunction:
    """A function of a shared library. `stamp`: when the file was modified, in ns, and its bytes; () where it is no file."""

    library: str
    symbol: str
    stamp: tuple[int, ...] = ()


@dataclass(frozen=True)
class LlvmFunction:
    """A function that LLVM text defines."""

    symbol: str
    text: str


@dataclass(frozen=True)
class Pointer:
    """The address of machine code in this process; `keep` owns it."""

    address: int
    keep: Any = None

    def __call__(self, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        run(self.address, arrays, sizes)


def pointer_of(x: Any) -> Pointer | None:
    """A bare address: an integer, a ctypes function, or an object with an `address`; None for anything else."""
    where = x if isinstance(x, int) else getattr(x, "address", None)
    if where is None and type(x).__module__.partition(".")[0] in ("ctypes", "_ctypes"):
        where = ctypes.cast(x, ctypes.c_void_p).value
    return Pointer(where, x) if isinstance(where, int) and where else None


Foreign = LibraryFunction | LlvmFunction | Callback


def symbol_of(code: object) -> str:
    """The symbol under which compiled code calls a kernel: the same in every process."""
    return PREFIX + digest(code.name if isinstance(code, Callback) else repr(code))[:32]


def functions(g: Graph) -> Iterator[tuple[str, int]]:
    """The functions that a graph calls, at any depth, by symbol."""
    for n in g.nodes:
        code = n.attrs.get("code")
        if isinstance(code, LibraryFunction | LlvmFunction | Callback):
            yield symbol_of(code), address(code)
        for region in n.regions:
            yield from functions(region)


def address(code: Foreign) -> int:
    """Where the machine code is."""
    match code:
        case LibraryFunction(library, symbol):
            return _of_library(library, symbol)
        case LlvmFunction(symbol, text):
            return compiled(text, symbol)[symbol]
        case Callback(name, function):
            if not isinstance(function, Pointer):
                raise KernelError(f"the program calls the bare pointer {name}, which text does not hold. Give it with "
                                  f"parse(text, bind={{{name!r}: pointer}}).")
            return function.address


@cache
def _opened(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise KernelError(f"the library {path} cannot be loaded: {error}. Give the path of a shared library built for this "
                          f"machine, or a name that the system's loader finds.") from None


@cache
def _of_library(path: str, symbol: str) -> int:
    library = _opened(path)
    try:
        found = ctypes.cast(library[symbol], ctypes.c_void_p).value
    except AttributeError:
        found = None
    if not found:
        raise KernelError(f"the library {path} has no function {symbol}. List what it exports with `nm -D`; names of C++ are "
                          f'mangled unless they are declared extern "C".')
    return found


# ---- LLVM text --------------------------------------------------------------------------------------
@cache
def signatures(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The functions that LLVM text defines and exports: the types of results and arguments. KernelError, with LLVM's words, for
    text that is not valid."""
    try:
        return exported(text)
    except RuntimeError as error:
        raise KernelError(f"LLVM refuses the text of the kernel: {str(error).strip()}") from None


@once
def compiled(text: str, symbol: str) -> Library:
    """LLVM text as loaded code that exports a function."""
    target = host_target()
    key = disk.digest("native", text, repr(target), disk.environment(), disk.source_digest())
    entry = disk.read(key)
    if entry is None:
        entry = disk.Entry(assemble(optimised(text, target), target))
        disk.write(key, entry)
    return load(entry.code, {}, [symbol])


# ---- calls from Python ------------------------------------------------------------------------------
def run(where: int, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
    """Call a kernel on arrays, outputs last."""
    kinds = [ctypes.c_void_p] * len(arrays) + [ctypes.c_int64] * len(sizes)
    ctypes.CFUNCTYPE(None, *kinds)(where)(*[x.ctypes.data for x in arrays], *sizes)


def run_entry(text: str, arrays: Sequence[np.ndarray]) -> None:
    """Run `void @run(ptr arrays, ptr error)`. IndexError where it reports an index."""
    error = (ctypes.c_int64 * ERROR_WORDS)()
    pointers = (ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays])
    library = _entry(text)  # held while it runs: others may be kept in its place meanwhile
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library["run"])(pointers, error)
    site, index, axis, size, *_ = error
    if site < 0:
        raise MemoryError
    if site:
        raise IndexError(f"index {index - size if index < 0 else index} is out of bounds for axis {axis} with size {size}")


@lru_cache(maxsize=64)
def _entry(text: str) -> Library:
    called = [name for line in text.split("\n") if line.startswith("declare ") for name in re.findall(r"@(lw_\w+)\(", line)]
    where = {name: found for name in called if (found := support.address(name)) is not None}
    return load(disk.assembled(text), where, ["run"])
