"""Tuning: `tune` measures other programs for a function and keeps the fastest; `tuning` does so for all that it meets.

Guarantees: what was found is in the user's cache directory, and in a file that the user names, before a call returns, also
after Ctrl-C; a function never gets a program that was not measured faster than its default, or that is for other sizes.
"""
from __future__ import annotations

import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate, symbol
from loopwright.ir.errors import ArgumentError, TuningError
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Graph, substitute_graph
from loopwright.ir.source import Source, user_source
from loopwright.ir.types import is_on_device
from loopwright.jitted import jit
from loopwright.lower.runtime import lazy, tuned
from loopwright.lower.runtime.dispatcher import NativeFunction
from loopwright.lower.tuning import tuner
from loopwright.lower.tuning.platforms import GPU, PROCESSOR
from loopwright.lower.tuning.records import Records
from loopwright.lower.tuning.results import Tuned
from loopwright.lower.tuning.stored import Program, RecordFile, Stored, TunedRecord, callbacks, reason, record_of
from loopwright.schedules import Schedules
from loopwright.tracer.pytree import take
from loopwright.tracer.signatures import Call
from loopwright.tuned import device_of, known_programs, meeting
from loopwright.tuning_progress import display
from loopwright.tuning_report import as_html, as_text
from loopwright.versions import Draft, Versions

FilePath = str | os.PathLike[str]


def tune(f: Callable[..., Any], *args: Any, seconds: float = 60.0, file: FilePath | None = None,
         ranges: Mapping[str, tuple[int, int]] | None = None, start: Schedules | None = None, progress: bool | None = None,
         **kwargs: Any) -> TuningResult:
    """Look for a faster program for calls of f like this one, by building and measuring others, for so many seconds.

    Afterwards f has it: where f is jitted, calls of sizes for which the program was measured to be no slower than the default
    (from about half of these sizes to twice) run it, in this process and, by the record that is kept in the user's cache
    directory, in later ones; other calls run the default as before. Programs are measured on these very arguments (single
    kernels, and other sizes, on drawn numbers), in processes of their own, and each is checked before its time counts. Ctrl-C
    ends the search and keeps what was found. The result tells what was found: `print(result.report())`.

    file: a file that gets the record as well, to be taken elsewhere (`python -m loopwright records merge`, `tuning(file=...)`).
    ranges: sizes to tune at, in place of those of the arguments: for names of sizes (as declared in jit's `shapes=`, or as
        `f.explain()` shows them) the least and the greatest; f is tuned at these and at their geometric mean.
    start: schedules by hand (`lw.schedule(f, *args)`, changed) that the search begins with.
    progress: whether to show on standard error how far it is; None: where that is a terminal.

    Calls with arrays on a GPU are tuned there. TuningError for a function whose program cannot run in another process, one
    that calls Python functions.

    >>> import numpy as np, loopwright as lw
    >>> f = lw.jit(lambda x: np.sum(np.exp(x), axis=0))
    >>> result = lw.tune(f, np.ones((300, 40)), seconds=1)
    >>> result.speedup >= 1.0 and f(np.zeros((2, 3))).tolist() == [2.0, 2.0, 2.0]
    True
    """
    function: Any = f if isinstance(f, NativeFunction) else jit(f)
    versions: Versions = function._versions
    call = versions.parameters.call(args, kwargs)
    if call.is_traced:
        raise TuningError(f"{user_source()}: {versions.parameters.name} cannot be tuned while it is traced. Tune it with "
                          f"arrays, outside the trace.")
    versions.parameters.check_declaration(call, lambda a, b: a == b)
    calls, end = _points(versions, call, ranges or {}), time.monotonic() + seconds
    found: list[TunedAt] = []
    for k, one in enumerate(calls):
        draft = versions.draft(one)
        share = (end - time.monotonic()) / (len(calls) - k)
        starts = [] if start is None else [_started(start, draft)]
        on_gpu = versions.on_gpu.takes(one)
        if on_gpu and starts:
            raise TuningError(f"{user_source()}: start: schedules by hand are for the CPU, and this call of "
                              f"{versions.parameters.name} runs on a GPU. Leave start= out.")
        found.append(tuned_at(versions, one, draft, share, files_of(draft, file, on_gpu), progress, starts,
                              is_real=not ranges))
        _taken(versions, one, draft, found[-1], on_gpu)
        if found[-1].tuned.interrupted:
            break
    return TuningResult(function, tuple(found))


@contextmanager
def tuning(seconds: float = 60.0, file: FilePath | None = None, progress: bool | None = None) -> Iterator[Tuning]:
    """Inside, on this thread, jitted functions that are compiled are tuned first, each for so many seconds at the sizes of its
    call, unless a record has these sizes already. `as` gives what was found: `.results`, `.report()`. A function that cannot
    be tuned is compiled as always, and its `explain()` says why. Ctrl-C keeps what was found, and goes on to the caller.

    seconds: 0 tunes nothing: records are used, those of `file` too.
    file: as in `tune`; its records count as well as those of the cache directory.

    >>> import numpy as np, loopwright as lw
    >>> with lw.tuning(seconds=1) as found:
    ...     lw.jit(lambda x: np.tanh(x) + 1)(np.zeros(3))
    array([1., 1., 1.])
    >>> len(found.results)
    1
    """
    made = Tuning(seconds, file, progress)
    with meeting(made.met):
        yield made


@dataclass(frozen=True, eq=False)
class TunedAt:
    """What tuning a function at some sizes found. ranges: of each size, where the program holds."""

    name: str
    tuned: Tuned
    record: TunedRecord
    programs: Sequence[Program] = field(repr=False)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes that it was tuned at."""
        return self.tuned.sizes

    @property
    def ranges(self) -> dict[str, tuple[int, int | None]]:
        """The sizes that the program is for, from and up to, where it is another one than the default."""
        return dict(zip(self.tuned.sizes, self.record.ranges, strict=True)) if self.record.module else {}

    @property
    def speedup(self) -> float:
        """How many times as fast as the default it is, 1.0 where nothing was faster by more than the noise."""
        return self.record.speedup

    def __repr__(self) -> str:
        sizes = ", ".join([f"{name}={n}" for name, n in self.sizes.items()])
        return f"<{self.name}{f' ({sizes})' if sizes else ''}, tuned: {self.speedup:.2f} times as fast>"


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What `tune` found: the function, compiled, and what was found at each of the sizes."""

    function: Any
    found: tuple[TunedAt, ...]

    @property
    def speedup(self) -> float:
        """How many times as fast as the default the function is (the geometric mean, where it was tuned at several sizes)."""
        return _mean(self.found)

    @property
    def interrupted(self) -> bool:
        """Whether somebody stopped it before its time."""
        return any(x.tuned.interrupted for x in self.found)

    def report(self, path: FilePath | None = None) -> str:
        """What was found, in words. path: writes a page with plots there as well (HTML that needs nothing else)."""
        return _report(self.found, path)

    def __repr__(self) -> str:
        return f"<{self.found[0].name}, tuned: {self.speedup:.2f} times as fast>"


class Tuning:
    """A block that tunes what it meets. See `tuning`."""

    def __init__(self, seconds: float, file: FilePath | None, progress: bool | None) -> None:
        self.seconds, self.file, self.progress = seconds, file, progress
        self.results: list[TunedAt] = []

    @property
    def speedup(self) -> float:
        """The geometric mean of what all functions gained."""
        return _mean(self.results)

    def report(self, path: FilePath | None = None) -> str:
        """As `TuningResult.report`, of all functions."""
        return _report(self.results, path)

    def met(self, versions: Versions, call: Call, draft: Draft) -> Sequence[Program]:
        """The programs for a function that is about to be compiled."""
        device = device_of(versions, call)
        files = files_of(draft, self.file, bool(device))
        programs, records = known_programs(versions, draft, files, device=device)
        sizes = tuple(_sizes(draft, call).values())
        if self.seconds <= 0 or any(r.holds(sizes) for r in records):
            return programs
        try:
            found = tuned_at(versions, call, draft, self.seconds, files, self.progress)
        except TuningError as error:
            versions.notes[f"not tuned: {error}"] = None
            return programs
        except Exception as error:  # the user's call goes on with the default
            warnings.warn(f"{versions.parameters.name} is not tuned: {reason(error)}", RuntimeWarning, stacklevel=2)
            versions.notes[f"not tuned: {reason(error)}"] = None
            return programs
        self.results.append(found)
        if found.tuned.interrupted:
            _taken(versions, call, draft, found, bool(device))
            raise KeyboardInterrupt
        return found.programs


@cache
def from_environment(seconds: float) -> Callable[[Versions, Call, Draft], Sequence[Program]]:
    """What becomes of functions where the environment asks that all are tuned."""
    return Tuning(seconds, None, None).met


# ---- one function at some sizes -----------------------------------------------------------------------
_lock = threading.Lock()  # what two threads measure at a time would be of no use


def _renew() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)  # another thread may have held it


def tuned_at(versions: Versions, call: Call, draft: Draft, seconds: float, files: Sequence[Path],
             progress: bool | None, starts: Sequence[Graph] = (), *, is_real: bool = True) -> TunedAt:
    """Tune a version at the sizes of a call, and keep what is found in all files. is_real: whether the call's arrays hold what
    they would. TuningError where that cannot be,
    KeyboardInterrupt where somebody stopped it before anything was known."""
    version, sizes = draft.version, _sizes(draft, call)
    name = versions.parameters.name
    if strange := callbacks(version.graph):
        raise TuningError(f"{user_source()}: {name} cannot be tuned: it calls {', '.join(sorted(strange))}, "
                          f"which this process alone has, and programs are measured in others. Tune the functions around that.")
    driver = lazy.gpu() if versions.on_gpu.takes(call) else None
    platform = PROCESSOR if driver is None else GPU(driver.device, driver.origin)
    device = platform.machine if driver is not None else ""
    starts = [*starts, *[p.graph for p in known_programs(versions, draft, files, device=device)[0]]]
    values = [driver.get(x) if driver is not None and isinstance(x, driver.kind) else x
              for x in (*call.flat(), *version.hidden)]
    kernels = tuned.kernels_file()
    with _lock, display(name, sizes, seconds, progress) as shown:
        try:
            found = tuner.tune(version.graph, sizes, seconds=seconds, fast_math=version.fast_math, donated=version.donated,
                               starts=starts, records=None if kernels is None else Records(kernels),
                               values=values if is_real else None, on_trial=shown, platform=platform)
        except RuntimeError as error:
            raise TuningError(f"{user_source()}: {name} cannot be tuned: {error}") from error
    if not math.isfinite(found.default_seconds):
        raise KeyboardInterrupt  # before anything was known
    is_faster = found.best_seconds < found.default_seconds and found.best is not found.default
    record = record_of(version, found.best, list(sizes.values()), found.ranges, default=found.default_seconds,
                       best=found.best_seconds if is_faster else found.default_seconds, noise=found.noise, spent=found.seconds,
                       device=device)
    _keep(record, files)
    taken = [p for e in versions.on_gpu.entries for p in e.programs] if device else [e.tuned for e in versions.entries]
    here = [Stored(p.record, p.where) for p in taken if p is not None]  # if the disk has none
    programs, _ = known_programs(versions, draft, files, [*here, Stored(record, Source("<this process>", 0))], device=device)
    if record.module and all(p.record != record for p in programs):
        warnings.warn(f"{name}: the program that was found does not serve, as explain() says.", RuntimeWarning, stacklevel=2)
    return TunedAt(name, found, record, programs)


def _taken(versions: Versions, call: Call, draft: Draft, found: TunedAt, on_gpu: bool) -> None:
    """Let calls like this one have what was found."""
    if on_gpu:
        versions.on_gpu.retune(call, draft, found.programs)
    else:
        versions.retune(call, draft, found.programs, found.record.structure)


def _started(start: Schedules, draft: Draft) -> Graph:
    """The program of schedules by hand, in terms of a version's symbols. ArgumentError where they are of another function."""
    version, names = start.version, draft.version.graph.free_symbols
    if tuned.structure(version) != tuned.structure(draft.version):
        raise ArgumentError(f"{user_source()}: start: the schedules are of {version.name} for other arguments, or of another "
                            f"function. Give those of lw.schedule(f, *args) for the same f and arguments.")
    to = {old: symbol(new) for old, new in zip(version.graph.free_symbols, names, strict=True)}
    return substitute_graph(start.module, to)


def _sizes(draft: Draft, call: Call) -> dict[str, int]:
    """The sizes of a program's symbols, in order."""
    sizes = draft.sizes_of(call.flat())
    return {s: sizes[s] for s in draft.version.graph.free_symbols}


def files_of(draft: Draft, file: FilePath | None, on_gpu: bool = False) -> list[Path]:
    """Where the records of a version are kept: the file that the user names, and that of the cache directory."""
    folder = tuned.directory()
    own = [] if folder is None else [folder / f"{tuned.structure(draft.version, on_gpu)}{tuned.SUFFIX}"]
    return [*([Path(file)] if file is not None else []), *own]


def _keep(record: TunedRecord, files: Sequence[Path]) -> None:
    for path in files:
        try:
            RecordFile(path).append([record])
        except OSError as error:
            warnings.warn(f"what tuning found is not kept in {path}: {error}", RuntimeWarning, stacklevel=2)


def _mean(found: Sequence[TunedAt]) -> float:
    return math.exp(sum(math.log(x.speedup) for x in found) / max(len(found), 1))


def _report(found: Sequence[TunedAt], path: FilePath | None) -> str:
    if path is not None:
        Path(path).write_text(as_html(found), "utf-8")
    return as_text(found)


# ---- sizes ----------------------------------------------------------------------------------------------
def _points(versions: Versions, call: Call, ranges: Mapping[str, tuple[int, int]]) -> list[Call]:
    """Calls like this one, of the least sizes, of the greatest, and of those between."""
    if not ranges:
        return [call]
    draft = versions.draft(call)
    free = draft.version.graph.free_symbols
    for name, (low, high) in ranges.items():
        if name not in free:
            raise ArgumentError(f"{user_source()}: ranges: {versions.parameters.name} has no size {name!r}; its sizes are "
                                f"{', '.join(free) or 'all fixed'}.")
        if not 0 < low <= high:
            raise ArgumentError(f"{user_source()}: ranges: {name} must have a least size above 0 and a greatest, got "
                                f"{low}, {high}.")
    sizes = [{name: round(low ** (1 - t) * high ** t) for name, (low, high) in ranges.items()} for t in (0.0, 0.5, 1.0)]
    different = [x for k, x in enumerate(sizes) if x not in sizes[:k]]
    return [_resized(versions, call, draft, x) for x in different]


def _resized(versions: Versions, call: Call, draft: Draft, sizes: Mapping[str, int]) -> Call:
    """The call with arrays of other sizes, of which nobody reads more than the shapes; sizes that are tied stay tied."""
    facts, leaves = Facts(), call.flat()
    for g in draft.version.guards:
        facts.learn(g.constraint)
    every = {**draft.sizes_of(leaves), **sizes}
    shapes = {k: list(x.shape) for k, x in enumerate(leaves) if isinstance(x, np.ndarray) or is_on_device(x)}
    for name, (k, axis) in draft.sizes.items():
        shapes[k][axis] = evaluate(facts.canonical(symbol(name)), every)
    resized = [_like(x, shapes[k]) if k in shapes else x for k, x in enumerate(leaves)]
    args, kwargs = call.rebuild(call.form, resized, take)
    return versions.parameters.call(args, kwargs)


def _like(x: Any, shape: Sequence[int]) -> Any:
    """An array of any contents where x is."""
    if is_on_device(x):
        return lazy.gpu().empty(tuple(shape), x.dtype)
    return np.broadcast_to(np.zeros((), x.dtype), shape)
