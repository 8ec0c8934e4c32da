"""The loop that spends the seconds of a tuning: which kernel, or which cover of the graph, is tried next, and what is kept.

Whole programs decide. A kernel's best schedule, alone, is measured in the program before it is kept there; a cover of the graph
that comes close gets its own kernels tuned before it is measured again.

Guarantees: what is kept was checked against NumPy and measured, as a whole program, to be faster than the default by more than
the noise of that very measurement, in a process of its own and in this one; else it is the default. It ends in about its time,
or at Ctrl-C, with the best known then.
"""
from __future__ import annotations

import dataclasses
import gc
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from loopwright.ir.attributes import Attributes, attributes_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Graph, Node
from loopwright.lower.covers import Cover, covered, structure_of_kernel
from loopwright.lower.decisions import Decision
from loopwright.lower.modules import kernels_of
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.kernels import Kernels, Searched, difference
from loopwright.lower.tuning.platforms import PROCESSOR, Platform
from loopwright.lower.tuning.ranges import ranges_of
from loopwright.lower.tuning.records import Records
from loopwright.lower.tuning.results import Progress, Trial, Tuned
from loopwright.lower.tuning.timing import LONG_SAMPLE_SECONDS, MOST_ROUNDS, SAMPLE_SECONDS
from loopwright.lower.tuning.workers import Outcome, Workers

COVERS = 4  # covers that are measured together
FINALS = 3  # programs that were the best, of which the last measurement takes one
SELDOM = 50_000  # objects that are made, and not freed, between two looks for garbage
FEW_ROUNDS = 9  # of candidates that are not yet known to be good
COVERS_UNTIL, KERNELS_UNTIL, RIVALS_UNTIL = 0.25, 0.65, 0.8  # of the time; the rest is the last measurement's
CLOSE = 1.3  # times the best: a cover whose own kernels are worth tuning
WORTH = 0.01  # of the program's time: what a kernel must seem to gain for the program to be measured with it
PATIENCE = 10.0  # times as long as the default took: a candidate is given up then
STOPPED_SECONDS = 1.0  # of the last measurement where somebody stopped it
FEWEST_SECONDS = 3.0  # that any candidate is given

Listener = Callable[[Trial, Progress], None]


def tune(g: Graph, sizes: Mapping[str, int], *, seconds: float, fast_math: bool = False, donated: Sequence[int] = (),
         workers: int = 2, starts: Sequence[Graph] = (), records: Records | None = None,
         values: Sequence[np.ndarray] | None = None, on_trial: Listener = lambda trial, progress: None,
         platform: Platform = PROCESSOR) -> Tuned:
    """The fastest program for a graph that is found within the seconds, at these sizes. starts: modules of the same graph, as
    candidates. values: arguments for whole programs, where indices and ranges matter; single kernels, other sizes, and
    programs without them get drawn ones. records: of kernels, wherever they were: what was best is tried first, what failed not
    again; what is found is added. platform: where the program runs. RuntimeError where the default
    program itself fails, with its reason."""
    with new_garbage(), Workers(workers, origin=platform.origin) as pool, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "arguments.npz") if values is not None else ""
        if values is not None:
            np.savez(path, *[np.asarray(x, v.type.dtype) for x, v in zip(values, g.params, strict=True)])
        task = _Task(g, dict(sizes), fast_math, tuple(donated), path, platform, os.path.join(folder, "results.npz"))
        return _Tuner(task, seconds, pool, on_trial, records).run(starts)


@contextmanager
def new_garbage() -> Iterator[None]:
    """Inside, garbage is looked for among what is made there, and seldom: a search makes many objects that it keeps, and a
    collection that goes through all others, of libraries too, takes as long as tens of candidates."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@dataclass(frozen=True)
class _Task:
    """What is to be computed, and where."""

    g: Graph
    sizes: Mapping[str, int]
    fast_math: bool
    donated: tuple[int, ...]
    values: str = ""  # the file of the arguments
    platform: Platform = PROCESSOR
    expected: str = ""  # the file of the results, which the default makes, as it is measured first

    def module(self, cover: Cover) -> Graph:
        """The program that a cover makes. ScheduleError where it makes none."""
        return self.platform.module(self.g, self.sizes, self.donated, self.fast_math, cover)


@dataclass(frozen=True)
class _Program:
    """A module, and the cover that makes it; None of one that was given."""

    cover: Cover | None
    module: Graph

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Those about the partition, as far as they are known."""
        return self.cover.partition if self.cover else ()

    def using(self, ways: Sequence[tuple[Node, Attributes]]) -> _Program | None:
        """The same with kernels made otherwise; None where that does not fit."""
        own = Cover()
        for n, attrs in ways:
            own = own.using(n, attrs)
        cover = self.cover and dataclasses.replace(self.cover, kernels={**self.cover.kernels, **own.kernels})
        try:
            return _Program(cover, covered(self.module, own.kernels))
        except ScheduleError:
            return None


class _Tuner:
    def __init__(self, task: _Task, seconds: float, pool: Workers, listener: Listener, records: Records | None = None) -> None:
        self.task, self.seconds, self.pool, self.listener = task, seconds, pool, listener
        self.start = time.monotonic()
        self.trials: list[Trial] = []
        self.kernels = Kernels(records, task.platform)  # of all programs that were the best for a while
        self.present: dict[str, Node] = {}  # of the best program
        self.default = self.best = _Program(Cover(), task.module(Cover()))
        self.default_seconds = self.best_seconds = self.partition_seconds = math.inf
        self.noise = 0.0
        self.earlier: list[_Program] = []  # what was the best for a while, oldest first; not the default
        self.known = {str(self.default.module)}  # programs that were measured
        self.waiting: list[Cover] | None = None  # covers to measure; None: they follow from the best
        self.rivals: list[tuple[float, _Program]] = []  # covers that came close, with their time relative to the best's then

    # ---- the whole -----------------------------------------------------------------------------
    def run(self, starts: Sequence[Graph]) -> Tuned:
        interrupted, ranges = False, tuple([(n, n) for n in map(self.task.sizes.__getitem__, self.task.g.free_symbols)])
        try:
            self._begin()
            self._race([_Program(None, g) for g in starts], "the start that was given")
            self._search()
            self._decide()
            if self.best is not self.default:
                ranges = ranges_of(self.task.g, self.default.module, self.best.module, self.task.sizes, self.pool,
                                   seconds=self._left(), each=self.best_seconds)
        except KeyboardInterrupt:
            interrupted = True
            self._stop()
        self.kernels.remember()
        return Tuned(self.task.sizes, self.default.module, self.best.module, self.best.cover, self.default_seconds,
                     self.best_seconds, self.partition_seconds, self.noise, time.monotonic() - self.start, tuple(self.trials),
                     self.kernels.reports(self.present), ranges, interrupted)

    def _left(self) -> float:
        return self.seconds - (time.monotonic() - self.start)

    def _is_before(self, part: float) -> bool:
        return self._left() > (1 - part) * self.seconds

    def _begin(self) -> None:
        begun = time.monotonic()
        outcome, = self._measure([self.default])
        if outcome.failure is not None:
            raise RuntimeError(f"the default program cannot be measured: {outcome.failure}")
        limit = max(FEWEST_SECONDS, PATIENCE * (time.monotonic() - begun))
        self.pool.check_seconds = self.pool.time_seconds = limit
        self.default_seconds = self.best_seconds = self.partition_seconds = outcome.seconds
        self.noise = outcome.noise
        self._find_kernels()

    def _search(self) -> None:
        while self._is_before(COVERS_UNTIL) and self._try_covers():
            pass
        while self._is_before(KERNELS_UNTIL) and self._try_kernels():
            pass
        while self._is_before(RIVALS_UNTIL) and self._try_rival():
            pass
        while self._is_before(RIVALS_UNTIL) and (self._try_kernels() or self._try_covers()):
            pass

    def _decide(self) -> None:
        """Measure the default beside those that were the best, whole: where a program that hangs or crashes costs itself alone,
        then those that were faster there where they will be used. What is faster in both is kept; else the default."""
        if self.best is self.default:
            return
        finals = [self.best, *self.earlier[::-1]][:FINALS]
        parted = self._covering(Cover(self.best.decisions)) if self.best.decisions else None
        known = self._measure([self.default, *finals, *([parted] if parted else [])], *self._plan(FINALS + 2))
        before, apart = known[0], known[len(finals) + 1:]
        right = [p for p, o in zip(finals, known[1:], strict=False) if o.is_faster(before)]
        plan = self._plan(len(right) + 2)
        self.best, self.best_seconds, self.partition_seconds = self.default, self.default_seconds, self.default_seconds
        if not right:
            return
        default, *found = self.pool.here([self._candidate(p) for p in (self.default, *right)], *plan)
        self.default_seconds = self.best_seconds = self.partition_seconds = default.seconds
        self.noise = max(before.noise, default.noise)
        for p, o in sorted(zip(right, found, strict=True), key=lambda x: x[1].seconds):
            self._note("program", None, "one of the best, where it will be used", None, o)
            if self.best is self.default and o.is_faster(default):
                self.best, self.best_seconds = p, o.seconds
        if self.best is finals[0]:
            self.partition_seconds *= min(apart[0].seconds / before.seconds, 1.0) if apart else 1.0

    def _stop(self) -> None:
        """Keep the best of now if a short measurement where it will be used shows that it is faster."""
        if self.best is not self.default:
            both = [self._candidate(p) for p in (self.default, self.best)]
            rounds = int(STOPPED_SECONDS / (3 * max(self.default_seconds, SAMPLE_SECONDS)))
            default, best = self.pool.here(both, max(FEW_ROUNDS, min(rounds, MOST_ROUNDS)), SAMPLE_SECONDS)
            is_faster = best.is_faster(default)
            self.best = self.best if is_faster else self.default
            self.default_seconds, self.best_seconds = default.seconds, (best if is_faster else default).seconds
            self.partition_seconds = default.seconds

    def _plan(self, runs: int) -> tuple[int, float]:
        """The rounds of so many runs, and the seconds of a sample, that half of what is left of the time is enough for."""
        most = self._left() / 2 / runs
        sample = min(max(most / MOST_ROUNDS, SAMPLE_SECONDS), LONG_SAMPLE_SECONDS)
        return max(FEW_ROUNDS, min(int(most / max(self.default_seconds, sample)), MOST_ROUNDS)), sample

    # ---- whole programs --------------------------------------------------------------------------
    def _race(self, programs: Sequence[_Program | None], what: str = "") -> None:
        """Measure programs beside the best: one may take its place, others that come close are its rivals."""
        fresh = [p for p in programs if p is not None and str(p.module) not in self.known]
        if not fresh:
            return
        self.known.update([str(p.module) for p in fresh])
        first, *found = self._measure([self.best, *fresh], FEW_ROUNDS)
        if first.failure is not None:  # it ran before: the machine is to blame, and nothing is known of the others
            return
        self.best_seconds = first.seconds  # as the machine is now
        if self.best is self.default:
            self.default_seconds = first.seconds
        for p, o in zip(fresh, found, strict=True):
            self._note("program", None, what or _words(p), None, o)
        ratios = [o.seconds / first.seconds for o in found]
        surely = [(ratio, p) for ratio, p, o in zip(ratios, fresh, found, strict=True) if o.is_faster(first)]
        self.rivals += [(ratio, p) for ratio, p in zip(ratios, fresh, strict=True) if ratio < CLOSE]
        if surely:
            ratio, p = min(surely, key=lambda x: x[0])
            self._keep(p, ratio)

    def _keep(self, p: _Program, ratio: float) -> None:
        """Let p be the best, of which the time relative to that of the one before is known."""
        self.rivals = [(r / ratio, other) for r, other in self.rivals if other is not p and r / ratio < CLOSE]
        self.best_seconds *= ratio
        self.earlier += [self.best] if self.best is not self.default else []
        if p.decisions != self.best.decisions:
            self.waiting = None
        self.best = p
        self._find_kernels()

    def _find_kernels(self) -> None:
        self.present = {structure_of_kernel(n): n for n in kernels_of(self.best.module)}
        self.kernels.known |= self.kernels.of(self.best.module, self.task.sizes)

    def _covering(self, cover: Cover) -> _Program | None:
        try:
            return _Program(cover, self.task.module(cover))
        except ScheduleError:
            return None

    def _try_covers(self) -> bool:
        """Measure some covers that differ by one decision from the best; False when there are none left."""
        if self.waiting is None:
            cover = self.best.cover or Cover()
            self.waiting = self.task.platform.alternatives(self.task.g, cover, self.task.sizes, self.task.fast_math)
        if not self.waiting:
            return False
        now, self.waiting = self.waiting[:COVERS], self.waiting[COVERS:]
        self._race([*map(self._covering, now)])
        return True

    def _try_rival(self) -> bool:
        """Tune the kernels of a cover that came close, one batch each, then measure it again; False when there is none."""
        if not self.rivals:
            return False
        self.rivals.sort(key=lambda x: x[0])
        _, rival = self.rivals.pop(0)
        ways = []
        for structure, kernel in self.kernels.of(rival.module, self.task.sizes).items():
            if structure not in self.kernels.known and self._is_before(RIVALS_UNTIL):
                self._measure_kernel(structure, kernel)
                ways.append((kernel.node, kernel.best))
        self._race([rival.using(ways)])
        return True

    # ---- kernels ---------------------------------------------------------------------------------
    def _try_kernels(self) -> bool:
        """Measure a batch for the kernel that promises most for the whole, and its best way in the program where that seems
        worth it; False when there are none left."""
        left = {s: k for s, k in self.kernels.known.items() if s in self.present and not k.is_done}
        if not left:
            return False
        structure, kernel = max(left.items(), key=lambda x: x[1].promise())
        self._measure_kernel(structure, kernel)
        if kernel.gain() > WORTH * self.best_seconds:
            attrs, seconds = kernel.search.best
            kernel.taken.add(attributes_key(attrs))
            before = self.best
            self._race([before.using([(kernel.node, attrs)])], f"with {difference(kernel.node.attrs, attrs)}")
            if self.best is not before:
                kernel.kept = seconds
        return True

    def _measure_kernel(self, structure: str, kernel: Searched) -> None:
        """A batch of ways to make a kernel beside what it is by default."""
        ways = kernel.batch()
        if not ways:
            return
        predicted = [kernel.search.predicted(a) for a in ways]
        found = self.pool.measure([Candidate.of(kernel.alone(a), kernel.site.sizes) for a in ways], FEW_ROUNDS)
        kernel.learn(ways, found)
        for attrs, o, guess in [*zip(ways, found, predicted, strict=True)][1:]:
            self._note("kernel", structure, difference(kernel.node.attrs, attrs), guess, o)

    # ---- measuring -------------------------------------------------------------------------------
    def _measure(self, programs: Sequence[_Program], rounds: int = FEW_ROUNDS, sample: float = SAMPLE_SECONDS) -> list[Outcome]:
        return self.pool.measure([self._candidate(p) for p in programs], rounds, sample)

    def _candidate(self, p: _Program) -> Candidate:
        return Candidate.of(p.module, self.task.sizes, self.task.values, self.task.expected)

    def _note(self, what: str, kernel: str | None, candidate: str, predicted: float | None, o: Outcome) -> None:
        trial = Trial(time.monotonic() - self.start, what, kernel, candidate, predicted, o.seconds, o.failure)
        self.trials.append(trial)
        failures = sum(t.failure is not None for t in self.trials)
        self.listener(trial, Progress(max(self._left(), 0.0), self.default_seconds, self.best_seconds,
                                      self.kernels.reports(self.present), len(self.trials), failures))


def _words(p: _Program) -> str:
    """What is decided about the partition of a program."""
    return " ".join(map(str, p.decisions)) or "kernels made in other ways"
