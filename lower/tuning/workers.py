"""Worker processes that check and time candidates, and what becomes of those that end them.

Guarantees: a candidate that crashes its worker, or takes too long, costs itself alone: the worker is started anew, the others
go on; every candidate has an outcome, samples or a reason; no worker outlives its owner.
"""
from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from queue import SimpleQueue
from typing import Any

from loopwright.ir.dataclass import dataclass
from loopwright.lower.runtime.threads import threads
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.execution import Arrays, Executable
from loopwright.lower.tuning.timing import MOST_ROUNDS, SAMPLE_SECONDS, centre, interleaved, is_faster

START_SECONDS = 60.0
BATCH = 16  # candidates that are timed against each other
_START = "from loopwright.lower.tuning.worker import main; main()"


@dataclass(frozen=True)
class Outcome:
    """What is known of a candidate: seconds of one run in each round, or why there are none. `noise` is that of the round."""

    candidate: Candidate
    samples: tuple[float, ...] = ()
    noise: float = 0.0
    failure: str | None = None

    @property
    def seconds(self) -> float:
        """The time of one run; infinite for a failure."""
        return float("inf") if self.failure is not None or not self.samples else centre(self.samples)

    def is_faster(self, than: Outcome) -> bool:
        """Whether it is surely faster than one that was timed in the same rounds."""
        return self.failure is None and is_faster(self.samples, than.samples, max(self.noise, than.noise))


class Ended(Exception):
    """A worker died or was killed; why, in words. `running`: the contender that it ran then."""

    def __init__(self, why: str, running: int | None) -> None:
        super().__init__(why)
        self.running = running


class Worker:
    """One process, started when it is first asked something. most_bytes: of its address space; 0: no limit. origin: what
    runs programs there, as `module:name` of what gives its driver; "": the processor."""

    def __init__(self, most_bytes: int = 0, origin: str = "") -> None:
        self.most_bytes, self.origin = most_bytes, origin
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; Ended where the process ends, or says nothing for so many seconds."""
        running: int | None = None
        if self._process is None:
            self._start()
            self._line(START_SECONDS, running)  # it is ready
        self._say(request)
        while True:
            answer: dict[str, Any] = json.loads(self._line(seconds, running))
            if "running" not in answer:
                if answer.pop("is_last", False):
                    self.close()
                return answer
            running = answer["running"]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> None:
        command = [sys.executable, "-c", _START, str(self.most_bytes), str(threads()), self.origin]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._unread = b""

    def _say(self, request: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its answer will say so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _line(self, seconds: float, running: int | None) -> bytes:
        """The next line that it says."""
        process = self._process
        assert process is not None and process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not ready.select(max(deadline - time.monotonic(), 0.0)):
                    self.close()
                    raise Ended(f"did not end within {seconds:g} s", running)
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    why = _described(process.wait())
                    self.close()
                    raise Ended(why, running)
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _described(status: int) -> str:
    """How a process ended."""
    return f"crashed with {signal.Signals(-status).name}" if status < 0 else f"ended the process with exit code {status}"


class Workers:
    """Some worker processes. Use it in a `with`: they end with it."""

    def __init__(self, count: int = 2, check_seconds: float = 20.0, time_seconds: float = 20.0, most_bytes: int = 0,
                 origin: str = "") -> None:
        self.check_seconds, self.time_seconds = check_seconds, time_seconds
        self._origin = origin
        self._workers = [Worker(most_bytes, origin) for _ in range(count)]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.close()

    def measure(self, candidates: Sequence[Candidate], rounds: int = MOST_ROUNDS,
                sample: float = SAMPLE_SECONDS) -> list[Outcome]:
        """What becomes of each candidate. All are checked, by all workers at once; then those that are right are timed by one
        worker, while the others wait, in batches that each have the first of them."""
        outcomes = dict(enumerate(self._check(candidates)))
        right = [k for k, o in outcomes.items() if o.failure is None]
        for start in range(1, max(len(right), 2), BATCH - 1):
            batch = [*right[:1], *right[start:start + BATCH - 1]]
            for k, outcome in zip(batch, self._time([candidates[k] for k in batch], rounds, sample), strict=True):
                outcomes[k] = outcome
        return [outcomes[k] for k in range(len(candidates))]

    def here(self, candidates: Sequence[Candidate], rounds: int = MOST_ROUNDS,
             sample: float = SAMPLE_SECONDS) -> list[Outcome]:
        """The same of candidates that are known to be right, timed where they will be used: in this process, with its threads
        and beside all else that runs in it. The clock of a device is the same everywhere: a worker reads it."""
        if self._origin:
            return self.measure(candidates, rounds, sample)
        shared: Callable[[Arrays], Arrays] = cache(lambda arrays: arrays)
        made = [Executable(c, shared) for c in candidates]
        found = interleaved([x.run for x in made], rounds=rounds, sample=sample)
        return [Outcome(c, samples, found.noise) for c, samples in zip(candidates, found.samples, strict=True)]

    def _check(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        free = SimpleQueue[Worker]()
        for worker in self._workers:
            free.put(worker)

        def one(candidate: Candidate) -> Outcome:
            worker = free.get()
            try:
                return Outcome(candidate, failure=worker.ask({"check": asdict(candidate)}, self.check_seconds)["failure"])
            except Ended as ended:
                return Outcome(candidate, failure=str(ended))
            finally:
                free.put(worker)
        with ThreadPoolExecutor(len(self._workers)) as threads:
            return list(threads.map(one, candidates))

    def _time(self, candidates: Sequence[Candidate], rounds: int, sample: float) -> list[Outcome]:
        """Outcomes of candidates that are timed together. One that ends the worker is left out, and the others go on."""
        if not candidates:
            return []
        try:
            request = {"time": [asdict(c) for c in candidates], "rounds": rounds, "sample": sample}
            found = self._workers[0].ask(request, self.time_seconds)
        except Ended as ended:
            k = ended.running
            if k is None:  # while it was built: nobody knows which
                if len(candidates) == 1:
                    return [Outcome(candidates[0], failure=str(ended))]
                return [self._time([c], rounds, sample)[0] for c in candidates]
            rest = self._time([*candidates[:k], *candidates[k + 1:]], rounds, sample)
            return [*rest[:k], Outcome(candidates[k], failure=str(ended)), *rest[k:]]
        return [Outcome(c, tuple(samples), found["noise"]) for c, samples in zip(candidates, found["samples"], strict=True)]
