"""The tables of docs/performance.md, from results.json: every row of the last run of each workload on each processor,
lost ones included."""
from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.chart import draw
from benchmarks.goals import GOALS, Goal
from benchmarks.harness import TUNED, Timing, readable

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
# machine: what it is, its processor first; runs: by the number of threads, timings; scaling: the same, of threads beside one
Machine = dict[str, Any]
ENOUGH, NEAR_COPIES = 1.7, 0.85  # threads are to gain so much, or to be so near to copies
BEGIN, END = "<!-- from benchmarks/results.json: begin -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Row:
    """A workload's timings in one run: ours, and the peer with the least median."""

    workload: str
    ours: Timing
    best: Timing | None
    least: float | None  # seconds that the machine allows

    @property
    def ratio(self) -> float | None:
        return self.ours.median / self.best.median if self.best is not None else None


@dataclass(frozen=True)
class Scaling:
    """A program's seconds on one thread and on several; how many times as fast these are: the rounds' median and quartiles;
    what copies by all of them take, of its seconds."""

    workload: str
    one: float
    several: float
    gain: float
    low: float
    high: float
    copies: float

    @property
    def verdict(self) -> str:
        return "met" if self.gain >= ENOUGH or self.copies >= NEAR_COPIES else "**missed**"

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.workload, readable(self.one), readable(self.several), f"{self.gain:.2f}",
                f"{self.low:.2f} to {self.high:.2f}", f"{self.copies:.0%}", self.verdict)


def rows(timings: list[Timing]) -> list[Row]:
    """One row per workload that loopwright takes part in, those with goals first. Loopwright in other ways is no peer."""
    measured = dict.fromkeys(t.workload for t in timings)
    names = [*(n for n in GOALS if n in measured), *(n for n in measured if n not in GOALS)]
    found = []
    for name in names:
        of = {t.contender: t for t in timings if t.workload == name}
        if "loopwright" in of:
            peers = [t for who, t in of.items() if who in PEERS]
            least = of["roofline"].median if "roofline" in of else None
            found.append(Row(name, of["loopwright"], min(peers, key=lambda t: t.median, default=None), least))
    return found


PEERS = ("numpy", "scipy", "numba", "numba fastmath", "jax", "torch", "torch.compile", "c")


def summary(timings: list[Timing]) -> str:
    """A table in Markdown: ours beside the best peer, the goal, whether it is met, how much of the roofline ours reaches."""
    lines = ["| workload | loopwright | quartiles | best peer | its median | ratio | goal | | of roofline |", "|---" * 9 + "|"]
    for row in rows(timings):
        goal, ratio = GOALS.get(row.workload), row.ratio
        peer = ("", "") if row.best is None else (row.best.contender, readable(row.best.median))
        cells = (row.workload, readable(row.ours.median), f"{readable(row.ours.low)} to {readable(row.ours.high)}", *peer,
                 "" if ratio is None else f"{ratio:.2f}", _aim(goal), _verdict(goal, row),
                 "" if row.least is None else f"{row.least / row.ours.median:.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tuned_summary(timings: list[Timing]) -> str:
    """A table in Markdown of the programs that were tuned, beside the default one and the best peer, and how the search went;
    "" without any."""
    lines = ["| workload | default | tuned | tuned / default | tuned / best peer | | search |", "|---" * 7 + "|"]
    for row in rows(timings):
        of = {t.contender: t for t in timings if t.workload == row.workload}
        if (found := of.get(TUNED)) is not None:
            peer = "" if row.best is None else f"{found.median / row.best.median:.2f} ({row.best.contender})"
            beaten = row.best is None or found.median <= row.best.median
            cells = (row.workload, readable(row.ours.median), readable(found.median), f"{found.median / row.ours.median:.2f}",
                     peer, "faster" if beaten else "**slower**", found.note)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _aim(goal: Goal | None) -> str:
    if goal is None:
        return ""
    return f"{goal.ratio:g}" if goal.ratio is not None else readable(goal.seconds or 0.0)


def _verdict(goal: Goal | None, row: Row) -> str:
    """Against the goal; without one, against the peer."""
    if goal is None:
        return "" if row.ratio is None else "faster" if row.ratio <= 1 else "**slower**"
    if goal.seconds is not None:
        return "met" if row.ours.median <= goal.seconds else "**missed**"
    return "" if row.ratio is None or goal.ratio is None else "met" if row.ratio <= goal.ratio else "**missed**"


def merged(old: list[Machine], timings: list[Timing], threads: int, machine: dict[str, str]) -> list[Machine]:
    """results.json with a run's timings in place of earlier ones of the same workloads on the same machine. Of a processor only
    the last state of its libraries is kept."""
    old_runs = _of(old, machine).get("runs", {})
    again = {t.workload for t in timings}
    kept = [t for t in old_runs.get(str(threads), []) if t["workload"] not in again]
    return _replaced(old, machine, runs=old_runs | {str(threads): kept + [t.as_dict() for t in timings]})


def with_scaling(old: list[Machine], found: list[Scaling], threads: int, machine: dict[str, str]) -> list[Machine]:
    """The same for what threads gain."""
    all_rows = _of(old, machine).get("scaling", {})
    rows = {x["workload"]: x for x in all_rows.get(str(threads), [])} | {x.workload: asdict(x) for x in found}
    return _replaced(old, machine, scaling=all_rows | {str(threads): list(rows.values())})


def _of(old: list[Machine], machine: dict[str, str]) -> Machine:
    return next((x for x in old if x["machine"] == machine), {})


def _replaced(old: list[Machine], machine: dict[str, str], **part: Any) -> list[Machine]:
    others = [x for x in old if x["machine"]["processor"] != machine["processor"]]
    new = {"machine": machine, "runs": {}} | _of(old, machine) | part
    return sorted([*others, new], key=lambda x: x["machine"]["processor"], reverse=True)


def page(text: str, results: list[Machine]) -> str:
    """docs/performance.md with its tables made anew."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    parts = []
    for found in results:
        processor, *others = found["machine"].items()
        parts.append(f"### {processor[1]}\n\n{', '.join(f'{name} {value}' for name, value in others)}.\n")
        parts += [_section(found, threads, [Timing(**t) for t in runs]) for threads, runs in sorted(found["runs"].items())]
        parts += [scaling_section(threads, [Scaling(**x) for x in rows]) for threads, rows in found.get("scaling", {}).items()]
    return before + BEGIN + "\n".join(parts) + END + after


def _section(of: Machine, threads: str, timings: list[Timing]) -> str:
    """The tables of a machine for so many threads."""
    title, file = "One thread" if threads == "1" else f"{threads} threads", picture(of, threads)
    shown = f"![]({file.name})\n\n" if file.exists() else ""
    tuned = tuned_summary(timings)
    return f"#### {title}\n\n{shown}{summary(timings)}" + (f"\n#### {title}, tuned\n\n{tuned}" if tuned else "")


def scaling_section(threads: str, found: list[Scaling]) -> str:
    """The table of what threads gain."""
    lines = [f"| workload | one thread | {threads} threads | gain | quartiles | copies take | |", "|---" * 7 + "|",
             *(f"| {' | '.join(x.cells)} |" for x in found)]
    return f"#### One thread and {threads} in turns\n\n" + "\n".join(lines) + "\n"


def picture(of: Machine, threads: str) -> Path:
    """The bars of a machine for so many threads."""
    words = re.findall(r"\w+", re.sub(r"\(\w+\)", "", of["machine"]["processor"]).lower())
    return PAGE.parent / f"performance-{'-'.join(words)}-{threads}.png"


def write(timings: list[Timing], threads: int, machine: dict[str, str]) -> None:
    """Keep a run's timings, and show them."""
    results = merged(_read(), timings, threads, machine)
    mine = next(x for x in results if x["machine"] == machine)
    draw(rows([Timing(**t) for t in mine["runs"][str(threads)]]), picture(mine, str(threads)))
    _keep(results)


def write_scaling(found: list[Scaling], threads: int, machine: dict[str, str]) -> None:
    """The same for what threads gain."""
    _keep(with_scaling(_read(), found, threads, machine))


def _read() -> list[Machine]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def _keep(results: list[Machine]) -> None:
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), results))
