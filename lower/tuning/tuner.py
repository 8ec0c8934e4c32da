"""The loop that spends the seconds of a tuning: which kernel, or which cover of the graph, is tried next, and what is kept.

Whole programs decide. A kernel's best schedule, alone, is measured in the program before it is kept there; a cover of the graph
that comes close gets its own kernels tuned before it is measured again.

Guarantees: what is kept was checked against NumPy and measured, as a whole program, to be faster than the default by more than
the noise of that very measurement; else it is the default. It ends in about its time, or at Ctrl-C, with the best known then.
"""
from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loopwright.ir.attributes import Attributes, attributes_key
from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Graph, Node
from loopwright.lower.covers import Cover, alternatives, implementations, structure_of_kernel
from loopwright.lower.modules import alone, kernels_of, module_of_kernels
from loopwright.lower.program import cover_graph
from loopwright.lower.runtime import blas
from loopwright.lower.target import host_target
from loopwright.lower.tuning.candidates import Candidate, structure_of
from loopwright.lower.tuning.models import Learned, Roofline
from loopwright.lower.tuning.ranges import ranges_of
from loopwright.lower.tuning.records import Records, record_of
from loopwright.lower.tuning.results import KernelReport, Progress, Trial, Tuned
from loopwright.lower.tuning.search import KernelSearch
from loopwright.lower.tuning.sites import Site, sites_of
from loopwright.lower.tuning.timing import MOST_ROUNDS
from loopwright.lower.tuning.workers import Outcome, Workers

BATCH = 10  # schedules of a kernel that are measured together
COVERS = 4  # covers that are
FEW_ROUNDS = 9  # of candidates that are not yet known to be good
COVERS_UNTIL, KERNELS_UNTIL, RIVALS_UNTIL = 0.25, 0.65, 0.8  # of the time; the rest is the last measurement's
CLOSE = 1.3  # times the best: a cover whose own kernels are worth tuning
WORTH = 0.01  # of the program's time: what a kernel must seem to gain for the program to be measured with it
PATIENCE = 10.0  # times as long as the default took: a candidate is given up then
REMEMBERED = 3  # ways to make a kernel, of earlier tunings, that are tried first
FEWEST_SECONDS = 3.0  # that any candidate is given

Listener = Callable[[Trial, Progress], None]


def tune(g: Graph, sizes: Mapping[str, int], *, seconds: float, fast_math: bool = False, donated: Sequence[int] = (),
         workers: int = 2, starts: Sequence[Graph] = (), records: Records | None = None,
         values: Sequence[np.ndarray] | None = None, on_trial: Listener = lambda trial, progress: None) -> Tuned:
    """The fastest program for a graph that is found within the seconds, at these sizes. starts: modules of the same graph, as
    candidates. values: arguments for whole programs, where indices and ranges matter; single kernels, other sizes, and
    programs without them get drawn ones. records: of kernels, wherever they were: what was best is tried first, what failed not
    again; what is found is added. RuntimeError where the default program itself fails, with its reason."""
    with Workers(workers) as pool, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "arguments.npz") if values is not None else ""
        if values is not None:
            np.savez(path, *[np.asarray(x, v.type.dtype) for x, v in zip(values, g.params, strict=True)])
        return _Tuner(_Task(g, dict(sizes), fast_math, tuple(donated), path), seconds, pool, on_trial, records).run(starts)


@dataclass(frozen=True)
class _Task:
    """What is to be computed, and where."""

    g: Graph
    sizes: Mapping[str, int]
    fast_math: bool
    donated: tuple[int, ...]
    values: str = ""  # the file of the arguments

    def module(self, cover: Cover) -> Graph:
        """The program that a cover makes. ScheduleError where it makes none."""
        kernels, donations = cover_graph(self.g, host_target(), blas=blas.available(), donated=self.donated, cover=cover)
        return module_of_kernels(self.g, kernels, donations, self.fast_math)


@dataclass
class _Kernel:
    """Kernels of one structure under search: one of them, the sizes there, and how often a run comes by any of them."""

    site: Site
    calls: float
    search: KernelSearch
    default: float = math.inf
    now: float = math.inf  # of what the kept program uses, in the same measurements
    is_done: bool = False
    fastest: Outcome | None = None
    failed: list[Outcome] = field(default_factory=list)
    tried: set[object] = field(default_factory=set)  # bests that were measured in a whole program


@dataclass(frozen=True)
class _Program:
    """A cover, and the module that it makes."""

    cover: Cover
    module: Graph


class _Tuner:
    def __init__(self, task: _Task, seconds: float, pool: Workers, listener: Listener, records: Records | None = None) -> None:
        self.task, self.seconds, self.pool, self.listener, self.records = task, seconds, pool, listener, records
        self.start = time.monotonic()
        self.model = Learned(Roofline(os.cpu_count() or 1))
        self.trials: list[Trial] = []
        self.kernels: dict[str, _Kernel] = {}  # by structure, of all programs that were the best for a while
        self.present: dict[str, Node] = {}  # of the best program
        self.default = self.best = _Program(Cover(), task.module(Cover()))
        self.default_seconds = self.best_seconds = math.inf
        self.noise = 0.0
        self.known = {str(self.default.module)}  # programs that were measured
        self.waiting: list[Cover] | None = None  # covers to measure; None: they follow from the best
        self.rivals: list[tuple[float, _Program]] = []  # covers that came close, with their time relative to the best's then

    # ---- the whole -----------------------------------------------------------------------------
    def run(self, starts: Sequence[Graph]) -> Tuned:
        interrupted, ranges = False, tuple([(n, n) for n in map(self.task.sizes.__getitem__, self.task.g.free_symbols)])
        try:
            self._begin()
            self._race([_Program(self.best.cover, g) for g in starts], "the start that was given")
            self._search()
            self._decide()
            if self.best is not self.default:
                ranges = ranges_of(self.task.g, self.default.module, self.best.module, self.task.sizes, self.pool,
                                   seconds=self._left(), each=self.best_seconds)
        except KeyboardInterrupt:
            interrupted = True
        self._remember()
        return Tuned(self.task.sizes, self.default.module, self.best.module, self.best.cover, self.default_seconds,
                     self.best_seconds, self.noise, time.monotonic() - self.start, tuple(self.trials), self._reports(), ranges,
                     interrupted)

    def _left(self) -> float:
        return self.seconds - (time.monotonic() - self.start)

    def _is_before(self, part: float) -> bool:
        return self._left() > (1 - part) * self.seconds

    def _begin(self) -> None:
        begun = time.monotonic()
        outcome, = self._measure([self.default.module])
        if outcome.failure is not None:
            raise RuntimeError(f"the default program cannot be measured: {outcome.failure}")
        limit = max(FEWEST_SECONDS, PATIENCE * (time.monotonic() - begun))
        self.pool.check_seconds = self.pool.time_seconds = limit
        self.default_seconds = self.best_seconds = outcome.seconds
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
        """Measure the best beside the default, whole, as long as it takes to know."""
        if self.best is self.default:
            return
        default, best = self._measure([self.default.module, self.best.module], MOST_ROUNDS)
        if default.failure is not None or best.failure is not None:
            self.best, self.best_seconds = self.default, self.default_seconds
            return
        self.noise = default.noise
        self.default_seconds, self.best_seconds = default.seconds, best.seconds
        self._note("program", None, "the best, at last", None, best)
        if best.seconds * (1 + self.noise) >= default.seconds:
            self.best, self.best_seconds = self.default, default.seconds

    def _remember(self) -> None:
        """Record of each kernel the fastest way to make it, and those that failed."""
        if self.records is not None:
            found = [o for k in self.kernels.values() for o in (k.fastest, *k.failed) if o is not None]
            for record in filter(None, map(record_of, found)):
                self.records.append(record)

    # ---- whole programs --------------------------------------------------------------------------
    def _race(self, programs: Sequence[_Program], what: str) -> list[float]:
        """Measure programs beside the best, of which one may take its place; their times relative to it."""
        fresh = [p for p in programs if str(p.module) not in self.known]
        if not fresh:
            return []
        self.known.update([str(p.module) for p in fresh])
        first, *found = self._measure([self.best.module, *[p.module for p in fresh]], FEW_ROUNDS)
        if first.failure is not None:  # it ran before: the machine is to blame, and nothing is known of the others
            return []
        self.best_seconds = first.seconds  # as the machine is now
        if self.best is self.default:
            self.default_seconds = first.seconds
        for p, o in zip(fresh, found, strict=True):
            self._note("program", None, what or _words(p.cover), None, o)
        ratios = [o.seconds / first.seconds for o in found]
        ratio, winner = min(zip(ratios, fresh, strict=True), key=lambda x: x[0])
        self.rivals += [(r, p) for r, p in zip(ratios, fresh, strict=True) if p is not winner and r < CLOSE]
        if ratio * (1 + first.noise) < 1:
            self._keep(winner, ratio)
        elif ratio < CLOSE:
            self.rivals.append((ratio, winner))
        return ratios

    def _keep(self, p: _Program, ratio: float) -> None:
        self.rivals = [(r / ratio, other) for r, other in self.rivals if r / ratio < CLOSE]
        self.best_seconds *= ratio
        self.waiting = None if p.cover.partition != self.best.cover.partition else self.waiting
        self.best = p
        self._find_kernels()

    def _program(self, cover: Cover) -> _Program | None:
        try:
            return _Program(cover, self.task.module(cover))
        except ScheduleError:
            return None

    def _try_covers(self) -> bool:
        """Measure some covers that differ by one decision from the best; False when there are none left."""
        if self.waiting is None:
            self.waiting = alternatives(self.task.g, host_target(), blas.available(), self.best.cover, self.task.sizes)
        if not self.waiting:
            return False
        now, self.waiting = self.waiting[:COVERS], self.waiting[COVERS:]
        self._race([p for p in map(self._program, now) if p is not None], "")
        return True

    def _try_rival(self) -> bool:
        """Tune the kernels of a cover that came close, one batch each, then measure it again; False when there is none."""
        if not self.rivals:
            return False
        self.rivals.sort(key=lambda x: x[0])
        _, rival = self.rivals.pop(0)
        own = self._kernels_of(rival.module)
        cover = rival.cover
        for structure, kernel in own.items():
            if structure not in self.kernels and self._is_before(RIVALS_UNTIL):
                self._measure_kernel(structure, kernel)
                cover = cover.using(kernel.site.node, kernel.search.best[0])
        p = self._program(cover)
        self._race([p] if p else [], "")
        return True

    # ---- kernels ---------------------------------------------------------------------------------
    def _kernels_of(self, g: Graph) -> dict[str, _Kernel]:
        """The kernels of a program by structure; those that are known as they are."""
        found: dict[str, list[Site]] = {}
        for site in sites_of(g, self.task.sizes):
            found.setdefault(structure_of_kernel(site.node), []).append(site)
        out = {}
        for structure, sites in found.items():
            calls = sum(s.calls for s in sites)
            known = self.kernels.get(structure)
            if known is None:
                site = max(sites, key=lambda s: math.prod(s.sizes.values()))
                known = _Kernel(site, calls, self._search_of(site))
            known.calls = calls
            out[structure] = known
        return out

    def _search_of(self, site: Site) -> KernelSearch:
        ways = implementations(site.node, host_target(), blas.available())
        known = self.records.made(structure_of(alone(site.node))) if self.records else []
        right = [a for a, works in reversed(known) if works]
        search = KernelSearch(site.node, site.sizes, [*ways, *right[:REMEMBERED]], self.model, seed=len(self.trials))
        for attrs, works in known:
            if not works:
                search.learn(attrs, math.inf)
        return search

    def _find_kernels(self) -> None:
        self.present = {structure_of_kernel(n): n for n in kernels_of(self.best.module)}
        self.kernels |= self._kernels_of(self.best.module)

    def _try_kernels(self) -> bool:
        """Measure a batch for the kernel that promises most for the whole; False when none promises anything."""
        left = {s: k for s, k in self.kernels.items() if s in self.present and not k.is_done}
        if not left:
            return False
        structure, kernel = max(left.items(), key=lambda x: x[1].calls * x[1].search.promise())
        self._measure_kernel(structure, kernel)
        attrs, seconds = kernel.search.best
        key = attributes_key(attrs)
        if (kernel.now - seconds) * kernel.calls > WORTH * self.best_seconds and key not in kernel.tried:
            kernel.tried.add(key)
            before = self.best
            p = self._program(self.best.cover.using(kernel.site.node, attrs))
            self._race([p] if p else [], f"with {_difference(kernel.site.node.attrs, attrs)}")
            if self.best is not before:
                kernel.now = seconds
        return True

    def _measure_kernel(self, structure: str, kernel: _Kernel) -> None:
        """A batch of candidates for a kernel beside what it is by default."""
        node = kernel.site.node
        proposed = kernel.search.propose(BATCH)
        kernel.is_done = not proposed
        if not proposed:
            return
        proposed = [a for a in proposed if a != node.attrs]
        given = [node.attrs, *proposed]
        predicted = [kernel.search.predicted(a) for a in given]
        first, *found = self._measure([alone(_with_attributes(node, a)) for a in given], FEW_ROUNDS, kernel.site.sizes)
        if kernel.default == math.inf:
            kernel.default = kernel.now = first.seconds
            kernel.search.learn(node.attrs, first.seconds)
        scale = kernel.default / first.seconds  # as fast as the machine was at first
        for attrs, o, guess in zip(proposed, found, predicted[1:], strict=True):
            kernel.search.learn(attrs, o.seconds * scale)
            if o.failure is not None:
                kernel.failed.append(o)
            elif kernel.search.best[0] is attrs:
                kernel.fastest = o
            self._note("kernel", structure, _difference(node.attrs, attrs), guess, o)

    # ---- measuring -------------------------------------------------------------------------------
    def _measure(self, modules: Sequence[Graph], rounds: int = FEW_ROUNDS,
                 sizes: Mapping[str, int] | None = None) -> list[Outcome]:
        whole = sizes is None  # else kernels of their own
        given = [Candidate.of(g, sizes or {}) if not whole else Candidate.of(g, self.task.sizes, self.task.values)
                 for g in modules]
        return self.pool.measure(given, rounds)

    def _note(self, what: str, kernel: str | None, candidate: str, predicted: float | None, o: Outcome) -> None:
        trial = Trial(time.monotonic() - self.start, what, kernel, candidate, predicted, o.seconds, o.failure)
        self.trials.append(trial)
        failures = sum(t.failure is not None for t in self.trials)
        self.listener(trial, Progress(max(self._left(), 0.0), self.default_seconds, self.best_seconds, self._reports(),
                                      len(self.trials), failures))

    def _reports(self) -> tuple[KernelReport, ...]:
        """The kernels of the best program."""
        known = [(s, self.kernels[s], n) for s, n in self.present.items() if s in self.kernels]
        return tuple([KernelReport(s, tuple([m.op.name for m in n.regions[0].nodes]), round(k.calls), k.default, k.now,
                                   k.search.roofline, n.attrs["implementation"]) for s, k, n in known])


def _with_attributes(n: Node, attrs: Attributes) -> Node:
    return Node(n.op, n.inputs, attrs, n.outputs, n.regions, n.source)


def _difference(old: Attributes, new: Attributes) -> str:
    """What is different about a candidate, in few words."""
    if new["implementation"] != "generated" or old["implementation"] != "generated":
        return str(new["implementation"])
    before, after = set(old["schedule"]), set(new["schedule"])
    changed = [f"+{x}" for x in new["schedule"] if x not in before] + [f"-{x}" for x in old["schedule"] if x not in after]
    return " ".join(changed) or "the order of its schedule"


def _words(cover: Cover) -> str:
    """A cover in words: its decisions about the partition."""
    return " ".join(map(str, cover.partition)) or "kernels made in other ways"
