"""The tables of docs/performance.md, from results.json: every row of the last run of each workload on each processor,
lost ones included."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chart import draw
from benchmarks.goals import GOALS, Goal
from benchmarks.harness import TUNED, Timing, readable

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
Machine = dict[str, Any]  # machine: what it is, its processor first; runs: by the number of threads, timings
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
    runs = next((dict(x["runs"]) for x in old if x["machine"] == machine), {})
    again = {t.workload for t in timings}
    kept = [t for t in runs.get(str(threads), []) if t["workload"] not in again]
    runs[str(threads)] = kept + [t.as_dict() for t in timings]
    others = [x for x in old if x["machine"]["processor"] != machine["processor"]]
    return sorted([*others, {"machine": machine, "runs": runs}], key=lambda x: x["machine"]["processor"], reverse=True)


def page(text: str, results: list[Machine]) -> str:
    """docs/performance.md with its tables made anew."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    parts = []
    for found in results:
        processor, *others = found["machine"].items()
        parts.append(f"### {processor[1]}\n\n{', '.join(f'{name} {value}' for name, value in others)}.\n")
        parts += [_section(found, threads, [Timing(**t) for t in runs]) for threads, runs in sorted(found["runs"].items())]
    return before + BEGIN + "\n".join(parts) + END + after


def _section(of: Machine, threads: str, timings: list[Timing]) -> str:
    """The tables of a machine for so many threads."""
    title, file = "One thread" if threads == "1" else f"{threads} threads", picture(of, threads)
    shown = f"![]({file.name})\n\n" if file.exists() else ""
    tuned = tuned_summary(timings)
    return f"#### {title}\n\n{shown}{summary(timings)}" + (f"\n#### {title}, tuned\n\n{tuned}" if tuned else "")


def picture(of: Machine, threads: str) -> Path:
    """The bars of a machine for so many threads."""
    words = re.findall(r"\w+", re.sub(r"\(\w+\)", "", of["machine"]["processor"]).lower())
    return PAGE.parent / f"performance-{'-'.join(words)}-{threads}.png"


def write(timings: list[Timing], threads: int, machine: dict[str, str]) -> None:
    """Keep a run's timings, and show them."""
    results = merged(json.loads(RESULTS.read_text()) if RESULTS.exists() else [], timings, threads, machine)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    mine = next(x for x in results if x["machine"] == machine)
    draw(rows([Timing(**t) for t in mine["runs"][str(threads)]]), picture(mine, str(threads)))
    PAGE.write_text(page(PAGE.read_text(), results))
