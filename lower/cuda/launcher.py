"""Runs a program for a GPU: launches and copies in order, library calls, and decisions that the host takes.

Guarantees: memory is that of the static plan, one block for a call; what is launched between two decisions of the host is
captured when it comes again with the same addresses, and replayed whenever it comes with these; an error that a kernel met
is raised at the next call on the same stream, before the next decision, or at once (`check_at_once`).
"""
from __future__ import annotations

import struct
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar, cast

from loopwright.ir.graph import Graph
from loopwright.lower.compile import SiteErrors, integer_powers
from loopwright.lower.cuda.driver import Driver, Flags
from loopwright.lower.cuda.frames import Frame
from loopwright.lower.cuda.program import CudaProgram
from loopwright.lower.plan import Plan, plan_memory

MOST_CAPTURED = 32  # graphs of one function
MOST_FRAMES = 64  # sizes of regions that are known only when they run
NUMBER = 16  # bytes of a number among the arguments, at most
WORDS = struct.Struct("qq")  # of them
AT_ONCE = 8  # numbers that one launch stores
ALIGNED = 256
PUT = "extern \"C\" __global__ void lw_put({}) {{\n{}}}\n".format(
    ", ".join(f"unsigned long long* to{k}, unsigned long long low{k}, unsigned long long high{k}" for k in range(AT_ONCE)),
    "".join(f"    to{k}[0] = low{k};\n    to{k}[1] = high{k};\n" for k in range(AT_ONCE)))
T = TypeVar("T")


class _Checks:
    at_once = False


_checks = _Checks()
_reporting: list[weakref.ref[Launcher]] = []  # those that have flags


def check_at_once(at_once: bool) -> None:
    """Whether calls wait for their end and raise the errors that kernels met."""
    _checks.at_once = at_once


class Launcher:
    """A program on a device. `captures`: whether launches are captured and replayed."""

    def __init__(self, program: CudaProgram, driver: Driver, *, captures: bool = True) -> None:
        self.program, self.driver, self.captures = program, driver, captures
        kernels = tuple(dict.fromkeys(program.made.values()))
        names = dict.fromkeys(["lw_put", *(x.name for k in kernels for x in k.launches)])
        self.functions = driver.load(f"{program.text}\n{PUT}", tuple(names))
        reporting = [n for n, k in program.made.items() if "lw_report(" in k.text]
        self.reports = {n: 4 * k for k, n in enumerate(reporting)}  # the place of each kernel's error in the flags
        self.flags: dict[int, Flags] = {}  # by stream
        self.replays = 0
        self._plans: dict[int, Plan] = {}
        self._frames: OrderedDict[Hashable, Frame] = OrderedDict()
        self._seen: OrderedDict[Hashable, bool] = OrderedDict()
        self._captured: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, arguments: Sequence[int | bytes], results: Sequence[int], sizes: Mapping[str, int]) -> None:
        """Run for arrays at these addresses; a number may be given by its bytes. Results may lie where arguments do that were
        donated to them, and nowhere else where arguments are."""
        self.run(self.frame(self.program.kernels, sizes), arguments, results)

    def run(self, frame: Frame, arguments: Sequence[int | bytes], results: Sequence[int]) -> None:
        """The same, for the frame of the program at these sizes."""
        stream = self.driver.stream()
        if _reporting:
            raise_reported(stream)
        kinds = [*map(type, arguments)]
        before = -(-kinds.count(bytes) * NUMBER // ALIGNED) * ALIGNED
        block = self.driver.allocate(before + frame.bytes) if before + frame.bytes else None
        base = block.address if block else 0
        addresses = self._put(arguments, base) if before else cast(Sequence[int], arguments)
        frame.run(addresses, results, base + before, base + before + frame.shared, self.error_address(stream))
        if _checks.at_once and self.reports:
            self.driver.wait()
            self.raise_reported(stream)

    def _put(self, arguments: Sequence[int | bytes], base: int) -> list[int]:
        """The addresses of arguments; numbers among them are stored on the device, from `base` on: as parameters of a kernel,
        so that nothing waits and no buffer need outlive the call."""
        addresses: list[int] = []
        numbers: list[tuple[int, bytes]] = []
        for x in arguments:
            if isinstance(x, bytes):
                numbers.append((base + NUMBER * len(numbers), x))
            addresses.append(numbers[-1][0] if isinstance(x, bytes) else x)
        for first in range(0, len(numbers), AT_ONCE):
            few = numbers[first:first + AT_ONCE]
            padded = (*few, *[few[0]] * (AT_ONCE - len(few)))
            words = [word for at, x in padded for word in (at, *WORDS.unpack(x.ljust(NUMBER, b"\0")))]
            self.driver.launch(self.functions["lw_put"], 1, (1, 1), 0, words)
        return addresses

    # ---- what frames ask for -------------------------------------------------------------------
    def frame(self, g: Graph, sizes: Mapping[str, int]) -> Frame:
        """A graph at these sizes of its symbols."""
        told = tuple([sizes[s] for s in g.free_symbols])
        return self._kept(self._frames, (id(g), told), MOST_FRAMES, lambda: Frame(self, g, sizes))

    def plan(self, g: Graph) -> Plan:
        """Where the values of a graph are."""
        if id(g) not in self._plans:
            self._plans[id(g)] = plan_memory(g)
        return self._plans[id(g)]

    def error_address(self, stream: int) -> int:
        """Where kernels that run on a stream report errors."""
        if not self.reports:
            return 0
        with self._lock:
            if stream not in self.flags:
                self.flags[stream] = self.driver.flags(4 * len(self.reports))
                _reporting.append(weakref.ref(self, _reporting.remove))
            return self.flags[stream].address

    def replayed(self, key: Hashable, run: Callable[[], None]) -> None:
        """Do what `run` does, which is the same launches with the same arguments whenever the key is the same."""
        with self._lock:
            replay = self._captured.get(key)
            if replay is not None:
                self._captured.move_to_end(key)
        if replay is None:
            if key not in self._seen:  # what is captured was run before: all it needs is loaded
                self._kept(self._seen, key, 2 * MOST_CAPTURED, lambda: True)
                run()
                return
            replay = self._kept(self._captured, key, MOST_CAPTURED, lambda: self.driver.capture(run))
        self.replays += 1
        replay()

    def _kept(self, kept: OrderedDict[Hashable, T], key: Hashable, most: int, make: Callable[[], T]) -> T:
        """The value of a key, made when it is first asked for; those that were not used for longest are forgotten."""
        with self._lock:
            if key in kept:
                kept.move_to_end(key)
                return kept[key]
        made = make()
        with self._lock:
            kept[key] = made
            while len(kept) > most:
                kept.popitem(last=False)
        return made

    # ---- errors --------------------------------------------------------------------------------
    def raise_reported(self, stream: int) -> None:
        """Raise the first error, in program order, that kernels on this stream are known to have met; it is then forgotten."""
        flags = self.flags.get(stream)
        if flags is None or not flags.words.any():
            return
        node, at = next((n, at) for n, at in self.reports.items() if flags.words[at])
        error = flags.words[at:at + 4].tobytes()
        flags.words[:] = 0
        sources = tuple([self.program.source(node, site) for site in range(len(self.program.sites[node]))])
        SiteErrors(sources, integer_powers(node.regions[0]))(error)


def raise_reported(stream: int) -> None:
    """Raise an error that a kernel of any program on this stream is known to have met."""
    for reference in tuple(_reporting):
        if (launcher := reference()) is not None:
            launcher.raise_reported(stream)


def segments(launcher: Launcher, sizes: Mapping[str, int]) -> list[str]:
    """What runs between decisions of the host, and what each of these is, as lines."""
    return launcher.frame(launcher.program.kernels, sizes).described()


