"""Interleaved timing: every contender runs in every round, so that a slow moment of the machine hits all of them; in an order
drawn anew for each round, and when threads of the one before, which spin for a while after a call, sleep."""
from __future__ import annotations

import gc
import importlib
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import ModuleType

QUICK = False  # run everything just often enough to see that it runs
THREADS = 1  # that every contender has
TUNED = "loopwright tuned"
WARM = 0.005  # seconds of calls before a sample
TUNE = 0.0  # seconds for which programs are tuned, to take part beside the default ones


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median and quartiles over the rounds."""

    workload: str
    contender: str
    median: float
    low: float
    high: float
    note: str = ""

    def as_dict(self) -> dict:
        return asdict(self)


def optional(name: str) -> ModuleType | None:
    """A peer, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def interleaved(workload: str, contenders: Mapping[str, Callable[[], object]], *, rounds: int = 15,
                seconds: float = 0.02, notes: Mapping[str, str] | None = None) -> list[Timing]:
    """Time each contender in every round, each for about `seconds`, as its fastest call of three says, after calls that do not
    count."""
    rounds, seconds = (2, 0.0) if QUICK else (rounds, seconds)
    repeats = {}
    for name, f in contenders.items():
        f()
        fastest = min(_seconds(f) for _ in range(1 if QUICK else 3))
        repeats[name] = max(1, int(seconds / max(fastest, 1e-7)))
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    order, draw = list(contenders.items()), random.Random(workload)
    gc.disable()
    try:
        for _ in range(rounds):
            draw.shuffle(order)
            for name, f in order:
                n = repeats[name]
                rest()
                warm(f)
                start = time.perf_counter()
                for _ in range(n):
                    f()
                taken[name].append((time.perf_counter() - start) / n)
    finally:
        gc.enable()
    return [Timing(workload, name, statistics.median(t), *_quartiles(t), (notes or {}).get(name, ""))
            for name, t in taken.items()]


def rest() -> None:
    """Wait until other threads of this process sleep, a second at most: OpenBLAS's spin for a tenth of one after a call."""
    end = time.perf_counter() + 1
    while not QUICK and time.perf_counter() < end:
        before = time.process_time()
        time.sleep(0.005)
        if time.process_time() - before < 0.001:
            break


def warm(f: Callable[[], object]) -> None:
    """Call f for a while, once at least: what it reads is in the caches, and the clock runs again."""
    start = time.perf_counter()
    f()
    while not QUICK and time.perf_counter() - start < WARM:
        f()


def sampled(run: Callable[[], object], seconds: float = 0.02) -> Callable[[], float]:
    """What gives the seconds of a run, by as many as a sample takes, and then waits until its threads sleep."""
    run()
    repeats = 1 if QUICK else max(1, int(seconds / max(_seconds(run), 1e-7)))

    def sample() -> float:
        warm(run)
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        taken = (time.perf_counter() - start) / repeats
        rest()
        return taken
    return sample


def _seconds(f: Callable[[], object]) -> float:
    """What one call takes."""
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def once_each(workload: str, contenders: Mapping[str, Callable[[], float]], *, rounds: int = 5) -> list[Timing]:
    """For what cannot be repeated in place (a compile): each contender's call gives its own seconds, once per round."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 if QUICK else rounds):
        for name, f in contenders.items():
            taken[name].append(f())
    return [Timing(workload, name, statistics.median(t), *_quartiles(t)) for name, t in taken.items()]


def _quartiles(t: list[float]) -> tuple[float, float]:
    if len(t) < 2:
        return t[0], t[0]
    low, _, high = statistics.quantiles(t, n=4, method="inclusive")
    return low, high


def readable(seconds: float) -> str:
    """Seconds with a unit that suits them."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def table(timings: list[Timing]) -> str:
    """One line per contender; the ratio is loopwright's time over the contender's: below 1, loopwright is faster."""
    ours = {t.workload: t.median for t in timings if t.contender == "loopwright"}
    lines = [f"{'workload':34s} {'contender':12s} {'median':>10s} {'quartiles':>21s} {'ours / this':>12s}"]
    for t in timings:
        ratio = f"{ours[t.workload] / t.median:.3f}" if t.workload in ours else ""
        spread = f"{readable(t.low)} .. {readable(t.high)}"
        lines.append(f"{t.workload:34s} {t.contender:12s} {readable(t.median):>10s} {spread:>21s} {ratio:>12s}  {t.note}")
    return "\n".join(lines)
