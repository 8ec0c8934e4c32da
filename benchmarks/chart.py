"""The table as bars: loopwright's time over the best peer's, and the goals."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.goals import GOALS
from benchmarks.harness import optional

if TYPE_CHECKING:
    from benchmarks.report import Row

FASTER, SLOWER, GOAL = "#2b6cb0", "#c05621", "#1a202c"


def draw(rows: Sequence[Row], file: Path) -> None:
    """Write the bars of all rows that have a peer as a PNG, where matplotlib is installed."""
    if optional("matplotlib") is None:
        print(f"{file.name} stays as it is: matplotlib is not installed")
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [(row, row.ratio) for row in rows if row.ratio is not None]
    figure = Figure(figsize=(9, 1.2 + 0.22 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.barh(range(len(shown)), [ratio for _, ratio in shown], height=0.7,
              color=[FASTER if ratio <= 1 else SLOWER for _, ratio in shown])
    for y, (row, _) in enumerate(shown):
        goal = GOALS.get(row.workload)
        if goal is not None and goal.ratio is not None:
            axes.plot([goal.ratio] * 2, [y - 0.45, y + 0.45], color=GOAL, linewidth=2)
    axes.set_xscale("log")
    axes.axvline(1, color=GOAL, linewidth=0.8)
    axes.set_yticks(range(len(shown)), [f"{row.workload} ({row.best.contender})" for row, _ in shown if row.best], fontsize=7)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("loopwright / the best peer (in brackets), in time; marks: goals")
    figure.savefig(file, dpi=110, metadata={"Software": ""})
