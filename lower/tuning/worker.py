"""A worker process: reads requests as JSON lines, answers each with one.

    {"check": candidate}          -> {"failure": null or words}
    {"time": [candidate, ...]}    -> {"running": k} lines before contender k runs, then {"samples": [[seconds]], "noise": x}

A check's answer has "is_last" where the device is of no more use to this process, whose owner ends it then. It says {} when it
is ready. Whatever a candidate does to this process is for `workers` to see.
"""
from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import field
from functools import cache, lru_cache
from importlib import import_module
from queue import SimpleQueue
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph
from loopwright.lower.cuda.driver import Driver
from loopwright.lower.runtime.pool import set_threads
from loopwright.lower.tuning.candidates import (
    KNOWN,
    Candidate,
    Roundings,
    arguments,
    difference,
    loaded,
    reference,
    roundings,
    save,
    structure_of,
)
from loopwright.lower.tuning.execution import Arrays, Executable
from loopwright.lower.tuning.gpu_execution import DeviceExecutable
from loopwright.lower.tuning.timing import interleaved

if sys.platform != "win32":
    import resource

KEPT = 64  # programs that stay loaded


def main() -> None:
    """Serve until the requests end. Standard output is for answers alone: what candidates print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who may want to know what was found
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _limit_memory(int(sys.argv[1]))
    set_threads(int(sys.argv[2]))
    _device(sys.argv[3])  # so that nobody waits for it later
    print("{}", file=answers, flush=True)
    requests = SimpleQueue[str]()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        line = requests.get()
        print(json.dumps(_answered(json.loads(line), answers)), file=answers, flush=True)


def _listen(requests: SimpleQueue[str]) -> None:
    """Hand requests on; the end of them is that of the owner, and of this process, whatever runs in it."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _limit_memory(most: int) -> None:
    if sys.platform != "win32" and most:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answered(request: dict[str, Any], answers: Any) -> dict[str, Any]:
    if "check" in request:
        failure = _checked(_candidate(request["check"]))
        return {"failure": failure, **({"is_last": True} if failure and not _is_well() else {})}
    contenders = [_built(_candidate(c)) for c in request["time"]]

    def before(k: int) -> None:
        print(json.dumps({"running": k}), file=answers, flush=True)
    found = interleaved([c.run for c in contenders], before, request["rounds"], request["sample"])
    return {"samples": found.samples, "noise": found.noise}


def _candidate(x: dict[str, Any]) -> Candidate:
    return Candidate(x["text"], tuple([(name, size) for name, size in x["sizes"]]), x["values"], x["expected"])


@cache
def _device(origin: str) -> Driver | None:
    """What runs candidates here; None: the processor."""
    module, _, name = origin.partition(":")
    return getattr(import_module(module), name)() if origin else None


def _is_well() -> bool:
    """Whether the device still answers: what touched memory that is not there ends all that its process asks of it."""
    driver = _device(sys.argv[3])
    try:
        if driver is not None:
            driver.wait()
    except Exception:  # whatever it is called: the process is of no more use
        return False
    return True


@lru_cache(maxsize=KEPT)
def _built(candidate: Candidate) -> Executable | DeviceExecutable:
    driver = _device(sys.argv[3])
    return Executable(candidate, _shared) if driver is None else DeviceExecutable(candidate, driver)


@lru_cache(maxsize=KNOWN)
def _shared(arrays: Arrays) -> Arrays:
    """The arrays of all programs that compute the like."""
    return arrays


@lru_cache(maxsize=1)
def _kept(path: str, written: int, dtypes: tuple[np.dtype, ...]) -> list[np.ndarray]:
    """The results in a file that was written at this time."""
    return loaded(path, dtypes)


@dataclass(frozen=True)
class _Computation:
    """What many candidates compute alike."""

    structure: str
    sizes: tuple[tuple[str, int], ...]
    values: str
    graph: Graph = field(compare=False)


def _computation(candidate: Candidate, g: Graph) -> _Computation:
    return _Computation(structure_of(g), candidate.sizes, candidate.values, g)


@lru_cache(maxsize=KNOWN)
def _expected(what: _Computation) -> list[np.ndarray]:
    sizes = dict(what.sizes)
    return reference(what.graph, arguments(what.graph, sizes, what.values), sizes)


@lru_cache(maxsize=KNOWN)
def _roundings(what: _Computation) -> list[Roundings]:
    sizes = dict(what.sizes)
    return roundings(what.graph, arguments(what.graph, sizes, what.values), sizes)


def _results(candidate: Candidate, g: Graph) -> list[np.ndarray]:
    """What a candidate's results are to be."""
    if candidate.expected and os.path.exists(candidate.expected):
        return _kept(candidate.expected, os.stat(candidate.expected).st_mtime_ns, tuple([v.type.dtype for v in g.results]))
    found = _expected(_computation(candidate, g))
    if candidate.expected:
        save(candidate.expected, found)
    return found


def _checked(candidate: Candidate) -> str | None:
    """What is wrong with a candidate, in words. Any exception is about the candidate, and is its failure."""
    try:
        made = _built(candidate)
        made.run()
        expected = _results(candidate, made.graph)
        if difference(made.results, expected) is None:
            return None
        return difference(made.results, expected, _roundings(_computation(candidate, made.graph)))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
