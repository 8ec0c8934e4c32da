"""The versions of a jitted function that run on a GPU: found by key and guards, lowered and loaded when none fits.

Guarantees: a call runs where its arrays are, and is refused where they are on both sides; results are new CuPy arrays, or the
very arrays of arguments that were donated; nothing waits for the device but decisions of the host.
"""
from __future__ import annotations

import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate
from loopwright.ir.errors import ArgumentError
from loopwright.ir.signature import Version
from loopwright.ir.source import user_source
from loopwright.ir.types import F64, is_on_device
from loopwright.lower.runtime import lazy
from loopwright.tracer.pytree import LEAF, children_of, paths, unflatten
from loopwright.tracer.signatures import Call, Form
from loopwright.tuned import programs_for

if TYPE_CHECKING:
    from loopwright.lower.cuda.driver import Driver
    from loopwright.lower.cuda.frames import Frame
    from loopwright.lower.cuda.launcher import Launcher
    from loopwright.lower.tuning.stored import Program
    from loopwright.versions import Draft, Versions

KEEP = 64
_FLOAT = struct.Struct("d")
MOST_CAPTURED_BYTES = 4096  # of a NumPy array that a function captured, which is copied to the device at each call


@dataclass(frozen=True, eq=False)
class Prepared:
    """A version at some sizes: its program, the program's frame for them, and for each result its shape and dtype, or the
    number of the argument whose memory it takes."""

    draft: Draft
    launcher: Launcher
    frame: Frame
    results: tuple[tuple[tuple[int, ...], np.dtype] | int, ...]


@dataclass(frozen=True, eq=False)
class GPUEntry:
    """A version on a GPU. `programs`: those that tuning found, in the order in which they are tried. `launchers`: of each of
    these, and of the default (None), the newest first: a further one serves sizes that need wider indices. `prepared`: by
    sizes."""

    draft: Draft
    key: Any
    form: Form
    programs: tuple[Program, ...] = ()
    launchers: dict[Program | None, list[Launcher]] = field(default_factory=lambda: defaultdict(list))
    prepared: dict[tuple[int, ...], Prepared] = field(default_factory=dict)

    def matches(self, call: Call) -> bool:
        """Whether this version answers the call."""
        return bool(self.key == call.key) and self.draft.answers(call.flat(self.form))

    def chosen(self, sizes: Mapping[str, int]) -> Program | None:
        """The program for these sizes; None: the default."""
        return next((p for p in self.programs if all(g.constraint.holds(sizes) for g in p.guards)), None)


Answers = Callable[[Sequence[Any]], Any]  # a call's, given its leaves


class OnGPU:
    """What one jitted function has compiled for a GPU. `device`: where it runs; None: where its arrays are."""

    def __init__(self, versions: Versions, device: str | None, cuda_graphs: bool) -> None:
        self.versions, self.device, self.cuda_graphs = versions, device, cuda_graphs
        self.entries: tuple[GPUEntry, ...] = ()
        self._again: dict[tuple[Any, ...], Answers] = {}  # what answers calls of arrays, by their types, dtypes and shapes
        self._lock = threading.Lock()

    def takes(self, call: Call) -> bool:
        """Whether a call runs on the GPU. ArgumentError where its arrays are not in one place, or not where they are to be."""
        there = [x for x in call.flat() if is_on_device(x)]
        if self.device == "gpu":
            return True
        if there and self.device == "cpu":
            raise ArgumentError(f"{user_source()}: {self._named(call, on_device=True)} on a GPU, and {self._name} runs on the "
                                f"CPU (device='cpu'). Copy the array to the CPU, lw.device_put(x, 'cpu'), or omit device=.")
        if there and any(isinstance(x, np.ndarray) for x in call.flat()):
            raise ArgumentError(f"{user_source()}: {self._name} was given arrays on a GPU and on the CPU: "
                                f"{self._named(call, on_device=False)} a NumPy array. Copy it to the GPU first, "
                                f"x = lw.device_put(x, 'gpu'), or at each call: lw.jit({self._name}, device='gpu').")
        return bool(there)

    @property
    def _name(self) -> str:
        return self.versions.parameters.name

    def _named(self, call: Call, on_device: bool) -> str:
        """The first array argument on the device or on the CPU."""
        for label in call.labels():
            for k, x in enumerate(call.leaves.get(label, ())):
                if is_on_device(x) if on_device else isinstance(x, np.ndarray):
                    return f"{paths(call.structures[label], self.versions.parameters.described(label))[k]} is"
        raise AssertionError("no such array")

    def again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any] | None:
        """The answer to a call that is spelled as an earlier one, with arrays of the same shapes; None for another."""
        if not self._again:
            return None
        driver, key, leaves = lazy.gpu(), list[Any](kwargs), list[Any]()
        if not _spelled((*args, *kwargs.values()) if kwargs else args, driver.kind, key, leaves):
            return None
        answers = self._again.get(tuple(key))
        return (answers(leaves),) if answers is not None else None

    def run(self, call: Call) -> Any:
        """The answer to a call."""
        driver = lazy.gpu()
        for leaves in call.leaves.values():
            leaves[:] = [driver.put(x) if isinstance(x, np.ndarray) else x for x in leaves]
        entry = self.entry(call)
        leaves = call.flat(entry.form)
        prepared = self.prepared(entry, driver, entry.draft.sizes_of(leaves))
        if call.form == entry.form and not call.statics and not entry.draft.captured and not entry.draft.version.contents:
            self._note(call, prepared, driver)
        return self.execute(prepared, leaves, driver)

    def _note(self, call: Call, prepared: Prepared, driver: Driver) -> None:
        """Calls spelled as this one is are answered alike, whatever their numbers are."""
        key, leaves = list[Any](call.form.keywords), list[Any]()
        if _spelled([unflatten(call.structures[x], call.leaves[x]) for x in call.labels()], driver.kind, key, leaves):
            with self._lock:
                if len(self._again) >= KEEP:
                    self._again.clear()
                self._again[tuple(key)] = self._answers(prepared, leaves, driver)

    def _answers(self, prepared: Prepared, leaves: Sequence[Any], driver: Driver) -> Answers:
        """What runs a version on leaves of the same kinds as these: of arrays alone nothing is asked any more."""
        made, structure = prepared.results, prepared.draft.structure
        if prepared.draft.version.hidden or any(type(x) is not driver.kind for x in leaves) or \
                any(type(r) is int for r in made):
            return lambda leaves: self.execute(prepared, leaves, driver)
        native, empty, address, run, frame = driver.native, driver.empty, driver.address, prepared.launcher.run, prepared.frame

        def answer(leaves: Sequence[Any]) -> Any:
            arguments = [native(x) for x in leaves]  # copies live until all is asked for
            results = [empty(*r) for r in made]  # type: ignore[misc]
            run(frame, [*map(address, arguments)], [*map(address, results)])
            return results[0] if structure is LEAF else unflatten(structure, results)
        return answer

    def execute(self, prepared: Prepared, leaves: Sequence[Any], driver: Driver) -> Any:
        """Run a version on these leaves."""
        version, kind, address = prepared.draft.version, driver.kind, driver.address
        given = (*leaves, *version.hidden) if version.hidden else leaves
        arguments = [driver.native(x) if isinstance(x, kind) else driver.put(x) if isinstance(x, np.ndarray) else x
                     for x in given]  # copies live until all is asked for
        for a in prepared.launcher.program.donations.values():
            arguments[a] = _donated(arguments[a], [x for k, x in enumerate(arguments) if k != a], driver)
        results = [arguments[r] if type(r) is int else driver.empty(*r) for r in prepared.results]  # type: ignore[misc]
        addresses = [address(x) if isinstance(x, kind) else _bytes(x, v.type.dtype)
                     for x, v in zip(arguments, version.graph.params, strict=True)]
        prepared.launcher.run(prepared.frame, addresses, [address(x) for x in results])
        structure = prepared.draft.structure
        return results[0] if structure is LEAF else unflatten(structure, results)

    def find(self, call: Call) -> GPUEntry | None:
        """The version that answers a call, if there is one."""
        return next((e for e in self.entries if e.matches(call)), None)

    def entry(self, call: Call) -> GPUEntry:
        """The version for a call, traced if need be."""
        versions = self.versions
        if versions.parameters.shapes:
            versions.parameters.check_declaration(call, lambda a, b: a == b)
        if (found := self.find(call)) is not None:
            return found
        draft = versions.draft(call)
        self._refuse_large(draft.version)
        programs = programs_for(versions, call, draft)
        with self._lock:
            if (found := self.find(call)) is None:
                found = self._new(call, draft, programs)
        return found

    def _new(self, call: Call, draft: Draft, programs: Sequence[Program]) -> GPUEntry:
        found = GPUEntry(draft, call.key, call.form, tuple(programs))
        self.entries = (*self.entries, found)[-KEEP:]
        return found

    def retune(self, call: Call, draft: Draft, programs: Sequence[Program]) -> None:
        """Take these tuned programs of the draft in place of those that calls like this one had."""
        with self._lock:
            self.entries = tuple([e for e in self.entries if not e.matches(call)])
            self._new(call, draft, programs)
            self._again.clear()

    def prepared(self, entry: GPUEntry, driver: Driver, sizes: dict[str, int]) -> Prepared:
        """A version at these sizes."""
        key = tuple(sizes.values())
        found = entry.prepared.get(key)
        if found is None:
            launcher = self.launcher(entry, driver, sizes)
            taken = launcher.program.donations
            results = [taken.get(k) if k in taken else (tuple([evaluate(n, sizes) for n in v.type.shape]), v.type.dtype)
                       for k, v in enumerate(entry.draft.version.graph.results)]
            frame = launcher.frame(launcher.program.kernels, sizes)
            found = Prepared(entry.draft, launcher, frame, tuple([r for r in results if r is not None]))
            with self._lock:
                if len(entry.prepared) >= KEEP:
                    entry.prepared.clear()
                entry.prepared[key] = found
        return found

    def launcher(self, entry: GPUEntry, driver: Driver, sizes: dict[str, int]) -> Launcher:
        """The program of a version for these sizes."""
        chosen = entry.chosen(sizes)
        try:
            return self._launcher(entry, chosen, driver, sizes)
        except Exception as error:  # a record's program must not make the call fail: the default one answers it
            if chosen is None:
                raise
            self.versions.notes[f"ignored {chosen.where}: it does not compile: {type(error).__name__}: {error}"] = None
            return self._launcher(entry, None, driver, sizes)

    def _launcher(self, entry: GPUEntry, chosen: Program | None, driver: Driver, sizes: dict[str, int]) -> Launcher:
        known = entry.launchers[chosen]
        fitting = next((x for x in known if x.program.fits(sizes)), None)
        if fitting is None:
            version = entry.draft.version
            graph = version.graph if chosen is None else chosen.graph
            made = lazy.launcher(lazy.lower_cuda(graph, sizes, version.donated, version.fast_math), driver, self.cuda_graphs)
            with self._lock:
                fitting = next((x for x in known if x.program.fits(sizes)), None)
                if fitting is None:
                    fitting = made
                    known.insert(0, made)
                    self.versions.compiles += 1
        return fitting

    def _refuse_large(self, version: Version) -> None:
        for x in version.hidden:
            if isinstance(x, np.ndarray) and x.nbytes > MOST_CAPTURED_BYTES:
                raise ArgumentError(f"{user_source()}: {self._name} captures a NumPy array of {x.nbytes} bytes "
                                    f"({x.dtype}{list(x.shape)}), which would be copied to the GPU at every call. Copy it "
                                    f"once, outside: x = lw.device_put(x, 'gpu'); or pass it as an argument.")


def refuse_captured(version: Version, name: str) -> None:
    """A function that runs on the CPU can read no captured array on a GPU."""
    if any(map(is_on_device, version.hidden)):
        raise ArgumentError(f"{user_source()}: {name} captures an array on a GPU; its arguments are on the CPU. Pass arrays "
                            f"on the GPU, lw.device_put(x, 'gpu'), or capture one on the CPU.")


def _spelled(xs: Iterable[Any], array: type, key: list[Any], leaves: list[Any]) -> bool:
    """Add the leaves of arguments, and to a key all that decides which version takes them; False where they hold what is told
    apart in another way."""
    for x in xs:
        kind = type(x)
        if kind is array:
            key.append(x.dtype)
            key.append(x.shape)
            leaves.append(x)
        elif kind is float or kind is bool or (kind is int and -(1 << 63) <= x < 1 << 63):
            key.append(kind)
            leaves.append(x)
        elif kind is tuple or kind is list:
            key += (kind, len(x))
            if not _spelled(x, array, key, leaves):
                return False
        elif kind is dict:
            children, names = children_of(x)  # type: ignore[misc]
            key += (kind, names)
            if not _spelled(children, array, key, leaves):
                return False
        else:
            return False
    return True


def _bytes(x: Any, dtype: np.dtype) -> bytes:
    """A number's bytes."""
    return _FLOAT.pack(x) if dtype == F64 else np.asarray(x, dtype).tobytes()


def _donated(x: Any, others: Sequence[Any], driver: Driver) -> Any:
    """An array that has its memory for itself, else a copy of it."""
    begin = driver.address(x)
    overlaps = [y for y in others if isinstance(y, driver.kind)
                and driver.address(y) < begin + x.nbytes and begin < driver.address(y) + y.nbytes]
    if driver.is_alone(x) and not overlaps:
        return x
    made = driver.empty(x.shape, x.dtype)
    driver.copy(driver.address(made), begin, x.nbytes)
    return made
