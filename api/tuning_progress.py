"""How far tuning is, live: a table on a terminal where `rich` is installed, else a line now and then."""
from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from loopwright.lower.runtime.lazy import rich
from loopwright.lower.tuning.results import KernelReport, Progress, Trial
from loopwright.tuning_report import COLUMNS, amount, share, shown_kernel, shown_sizes, slowest_first, times

LINE_SECONDS = 2.0  # between plain lines
REFRESH_SECONDS = 0.25
MOST_KERNELS = 12
Shown = Callable[[Trial, Progress], None]


@contextmanager
def display(name: str, sizes: Mapping[str, int], seconds: float, wanted: bool | None,
            file: TextIO | None = None) -> Iterator[Shown]:
    """What is to be called with each trial. wanted: None asks whether `file` (standard error) is a terminal."""
    file = file or sys.stderr
    who, start = f"{name}{shown_sizes(sizes)}", Progress(seconds, math.inf, math.inf, (), 0, 0)
    if not (file.isatty() if wanted is None else wanted):
        yield lambda trial, progress: None
    elif file.isatty() and rich() is not None:
        with table(who, file, start) as shown:
            yield shown
    else:
        print(headline(who, start), file=file, flush=True)
        yield _Lines(who, file)


def headline(who: str, p: Progress) -> str:
    """How far it is, in one line."""
    if not p.trials:
        return f"{who}: measuring the default, {p.left:.0f} s left"
    return (f"{who}: {p.default / p.best:.2f} times as fast ({amount(p.default)} to {amount(p.best)}), "
            f"{max(p.left, 0):.0f} s left, {p.trials} trials, {p.failures} failed")


class _Lines:
    """A line now and then, of the whole and of the kernel that is tried."""

    def __init__(self, who: str, file: TextIO) -> None:
        self.who, self.file = who, file
        self.next = time.monotonic()

    def __call__(self, trial: Trial, progress: Progress) -> None:
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + LINE_SECONDS
        own = [k for k in progress.kernels if k.structure == trial.kernel]
        print("; ".join([headline(self.who, progress), *map(_kernel, own)]), file=self.file, flush=True)


def _kernel(k: KernelReport) -> str:
    return f"{shown_kernel(k)}: {times(k)} times as fast, {share(k)} of the roofline"


@contextmanager
def table(who: str, file: TextIO, start: Progress) -> Iterator[Shown]:
    """A table that changes as trials come: each kernel against its default and the roofline, and the last failure."""
    module: Any = rich()
    failure: list[str] = []
    last = -math.inf
    console = module.console.Console(file=file, markup=False, highlight=False)
    with module.live.Live(_table(module, who, start, failure), console=console, auto_refresh=False) as live:
        def shown(trial: Trial, progress: Progress) -> None:
            nonlocal last
            if trial.failure is not None:
                failure[:] = [f"failed: {trial.candidate}: {trial.failure}"]
            if time.monotonic() > last + REFRESH_SECONDS:
                last = time.monotonic()
                live.update(_table(module, who, progress, failure), refresh=True)
        yield shown


def _table(module: Any, who: str, p: Progress, failure: list[str]) -> Any:
    made = module.table.Table(title=headline(who, p), caption="\n".join(failure) or None, title_justify="left",
                              caption_justify="left")
    for column in COLUMNS:
        made.add_column(column, justify="left" if column in ("kernel", "made by") else "right")
    for k in slowest_first(p.kernels)[:MOST_KERNELS]:
        made.add_row(shown_kernel(k), str(k.calls), amount(k.default), amount(k.best), times(k), share(k), k.implementation)
    return made
