"""What tuning tells: each trial, how far it is, and what came of it."""
from __future__ import annotations

from collections.abc import Mapping

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph
from loopwright.lower.covers import Cover


@dataclass(frozen=True)
class Trial:
    """One candidate. at: seconds since tuning began; what: "kernel", "partition" or "program"; kernel: the structure of the
    kernel that it is of; candidate: what is different, in short words; predicted: seconds by the cost model; seconds: of one
    run, infinite for a failure; failure: its reason."""

    at: float
    what: str
    kernel: str | None
    candidate: str
    predicted: float | None
    seconds: float
    failure: str | None = None


@dataclass(frozen=True)
class KernelReport:
    """One kernel, of those of equal structure: how often a call of the whole program runs it (`calls`), seconds of one run by
    default, of the best found and of what the machine allows (`roofline`), and what makes the best one."""

    structure: str
    ops: tuple[str, ...]
    calls: int
    default: float
    best: float
    roofline: float
    implementation: str


@dataclass(frozen=True)
class Progress:
    """How far tuning is. left: seconds; default, best: of one call of the whole program, 0.0 while nothing is known."""

    left: float
    default: float
    best: float
    kernels: tuple[KernelReport, ...]
    trials: int
    failures: int


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning a program at some sizes found.

    default, best: modules (`lower.modules`), the same one where nothing was faster by more than the noise; default_seconds,
    best_seconds: of one call; partition_seconds: of one with the best's partition, where the schedules are those of the rules;
    cover: None where the best is a program that was given; noise: of the measuring, relative; seconds: spent; ranges: for each
    free symbol, in order, where the best was measured to be no slower than the default; interrupted: whether somebody stopped
    it.
    """

    sizes: Mapping[str, int]
    default: Graph
    best: Graph
    cover: Cover | None
    default_seconds: float
    best_seconds: float
    partition_seconds: float
    noise: float
    seconds: float
    trials: tuple[Trial, ...]
    kernels: tuple[KernelReport, ...]
    ranges: tuple[tuple[int, int], ...]
    interrupted: bool = False
