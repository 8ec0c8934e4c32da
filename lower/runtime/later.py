"""Functions of a program that are compiled when a call first needs them: those for short rows, for few columns, for arrays
larger than caches, and whole kernels for large products.

    ptr @lw_rows_chosen(i1 short, ptr place, ptr long)

The program has a place for the address of each; where it finds none it asks Python, once, before threads share the loop. All
of a kind are compiled at once: those that have a word in common, the last one of their names.

Guarantees: rows that are short are always done by that function, unless there is no memory to compile it; the code lives as
long as the program's.
"""
from __future__ import annotations

import _thread
import ctypes
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakValueDictionary

from loopwright.lower.runtime.engine import Library

MADE = "lw_rows_made"
CHOSEN = "lw_rows_chosen"
CHOSEN_TEXT = f"""
declare void @{MADE}(ptr)
define ptr @{CHOSEN}(i1 %short, ptr %place, ptr %long) nounwind {{
entry:
  br i1 %short, label %look, label %usual
look:
  %there = load atomic ptr, ptr %place acquire, align 8
  %missing = icmp eq ptr %there, null
  br i1 %missing, label %make, label %known
make:
  call void @{MADE}(ptr %place)
  %made = load ptr, ptr %place, align 8
  %none = icmp eq ptr %made, null
  br i1 %none, label %usual, label %done
done:
  ret ptr %made
known:
  ret ptr %there
usual:
  ret ptr %long
}}
"""


def short_of(kernel: str) -> str:
    """The function of a kernel for short rows."""
    return f"{kernel}_short"


def few_of(kernel: str, values: Sequence[tuple[str, int]]) -> str:
    """The function of a kernel for few columns, by the sizes that say how many."""
    return f"{kernel}_few.{'.'.join([f'{symbol}.{k}' for symbol, k in values])}"


def squeezed_of(kernel: str, which: int) -> str:
    """The function of a kernel where some sizes are 1, a bit for each."""
    return f"{kernel}.ones{which}"


def past_of(kernel: str) -> str:
    """The function of a kernel for results that are larger than caches, a kind of its own."""
    return f"{kernel}_past{kernel.rpartition('_')[2]}"


def far_of(kernel: str) -> str:
    """The function of a kernel for arrays that are larger than the near caches, a kind of its own."""
    return f"{kernel}_far{kernel.rpartition('_')[2]}"


def whole_of(kernel: str) -> str:
    """The function of a kernel that is compiled when it is first called, a kind of its own."""
    return f"{kernel}_whole{kernel.rpartition('_')[2]}"


def amx_of(kernel: str) -> str:
    """The function of a kernel that uses the tile unit, a kind of its own."""
    return f"{kernel}_amx{kernel.rpartition('_')[2]}"


def usual_of(kernel: str) -> str:
    """The function of a kernel for what the tile unit does not do, a kind of its own."""
    return f"{kernel}_usual{kernel.rpartition('_')[2]}"


def is_squeezed(function: str) -> bool:
    """Whether it is one of those."""
    return ".ones" in function


def place_of(function: str) -> str:
    """Where the program finds its address."""
    return f"lw_rows_of_{function}"


def kind_of(function: str) -> str:
    """What is compiled at once."""
    return function.rpartition("_")[2]


class Later:
    """Such functions, which `load_code` loads, given names of one kind."""

    def __init__(self, functions: Sequence[str], load_code: Callable[[Sequence[str]], Library]) -> None:
        self.functions, self.load_code = functions, load_code
        self.places = (ctypes.c_void_p * len(functions))()
        self.libraries: list[Library] = []  # of two threads that asked at once both
        for address in self.addresses().values():
            _known[address] = self

    def addresses(self) -> Mapping[str, int]:
        """By symbol."""
        first, size = ctypes.addressof(self.places), ctypes.sizeof(ctypes.c_void_p)
        return {place_of(name): first + k * size for k, name in enumerate(self.functions)}

    def make(self, place: int) -> None:
        """Those of the kind that the address of a place asks for."""
        asked = (place - ctypes.addressof(self.places)) // ctypes.sizeof(ctypes.c_void_p)
        names = [name for name in self.functions if kind_of(name) == kind_of(self.functions[asked])]
        library = self.load_code(names)
        self.libraries.append(library)
        for name in names:
            self.places[self.functions.index(name)] = library[name]


_known: WeakValueDictionary[int, Later] = WeakValueDictionary()  # by the address of each place


def _made(place: int) -> None:
    try:
        _known[place].make(place)
    except KeyboardInterrupt:  # it cannot pass through compiled code: another thread raises it again when Python goes on
        _thread.start_new_thread(_thread.interrupt_main, ())


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_made)


def asking() -> int:
    """The address of what compiled code calls to ask for such a function."""
    return ctypes.cast(_CALLBACK, ctypes.c_void_p).value or 0
