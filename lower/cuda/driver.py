"""What the launcher asks of a device. CuPy answers it (`lower.runtime.gpu`); in the tests the CUDA emulator does.

Guarantees asked for: everything happens on the caller's current stream, in the order of the calls; memory that was given back
is not used again before what was asked of it so far is done.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Node


class Memory(Protocol):
    """Bytes on the device, given back when the last reference goes. Starts at a multiple of 64 bytes."""

    @property
    def address(self) -> int: ...


class Flags(Protocol):
    """Numbers that kernels store to and the host reads, without waiting: zero at first."""

    words: np.ndarray

    @property
    def address(self) -> int: ...


@dataclass(frozen=True)
class Located:
    """A C-contiguous array by where it is."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class Device:
    """What a device can do at most. name: tells devices apart whose times differ; processors: multiprocessors, of which each
    does `flops` additions and multiplications of f32 in a cycle; clock: cycles a second; bandwidth: bytes a second of its
    memory; cache: bytes that all of it shares; threads: that a processor holds."""

    name: str
    processors: int
    clock: float
    flops: int
    bandwidth: float
    cache: int
    threads: int = 2048


class LibraryCall(Protocol):
    """A call of a library for arrays of known sizes, by where they are. can_capture: whether it can be part of what is
    captured."""

    @property
    def can_capture(self) -> bool: ...

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None: ...


class Driver(Protocol):
    """A device. Addresses are integers; the arguments of a launch are 8 bytes each."""

    # ---- the device ----------------------------------------------------------------------------
    @property
    def device(self) -> Device:
        """What the device can do."""

    @property
    def origin(self) -> str:
        """The function that gives such a driver in another process, as `module:name`."""

    def elapsed(self, run: Callable[[], None]) -> float:
        """Seconds that the device takes for what `run` asks of it, when all of it is done."""

    # ---- programs ------------------------------------------------------------------------------
    def load(self, text: str, names: Sequence[str]) -> Mapping[str, Any]:
        """The functions of those names in CUDA text, by name."""

    def launch(self, function: Any, grid: int, threads: tuple[int, int], shared: int, arguments: Sequence[int]) -> None:
        """Run a function in `grid` blocks, with that many bytes of dynamic shared memory."""

    def library(self, n: Node, sizes: Mapping[str, int]) -> LibraryCall | None:
        """A kernel that is a call of a library, at sizes of which none is 0; None where there is no library for it."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """What runs again all launches and copies that `run` makes, which now are noted and not done."""

    # ---- memory --------------------------------------------------------------------------------
    def stream(self) -> int:
        """The caller's current stream."""

    def allocate(self, count: int) -> Memory:
        """So many bytes, of any contents."""

    def flags(self, count: int) -> Flags:
        """So many 64-bit numbers."""

    def copy(self, to: int, source: int, count: int) -> None:
        """Bytes on the device."""

    def read(self, x: Located) -> np.ndarray:
        """A copy of an array, when all that was asked for so far is done."""

    def write(self, to: Located, x: np.ndarray) -> None:
        """Store an array of the same shape and dtype."""

    def wait(self) -> None:
        """Until all that was asked for on this stream is done."""

    # ---- arrays as users have them -------------------------------------------------------------
    @property
    def kind(self) -> type[Any]:
        """The type of arrays of this device."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new array."""

    def native(self, x: Any) -> Any:
        """x itself where it is C-contiguous and starts at a multiple of 16 bytes, else a copy that is."""

    @property
    def address(self) -> Callable[[Any], int]:
        """Tells where the first element of an array is."""

    def is_alone(self, x: Any) -> bool:
        """Whether x has its memory for itself: it is no view."""

    def put(self, x: np.ndarray) -> Any:
        """A copy on the device."""

    def get(self, x: Any) -> np.ndarray:
        """A copy on the host."""
