"""What tuning found, as text and as one page of HTML that needs nothing else."""
from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loopwright.lower.tuning.results import KernelReport, Trial, Tuned
from loopwright.tuning_plots import Point, bars, lines, scatter

if TYPE_CHECKING:
    from loopwright.tuner import TunedAt

MOST_OPS = 6  # of a kernel that are named
MOST_REASONS = 8
COLUMNS = ("kernel", "runs", "default", "best", "times as fast", "of the roofline", "made by")


# ---- words ------------------------------------------------------------------------------------------
def amount(seconds: float) -> str:
    """A time with three digits, in the unit that suits it."""
    if not math.isfinite(seconds):
        return "-"
    scale, unit = next((x for x in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if seconds >= x[0]), (1e-9, "ns"))
    return f"{seconds / scale:.3g} {unit}" if seconds / scale < 1000 else f"{seconds / scale:.0f} {unit}"


def shown_sizes(sizes: Mapping[str, int]) -> str:
    """Sizes for a headline."""
    return f" ({', '.join([f'{s}={n}' for s, n in sizes.items()])})" if sizes else ""


def shown_kernel(k: KernelReport) -> str:
    """A kernel by its operations."""
    more = len(k.ops) - MOST_OPS
    return " ".join(k.ops[:MOST_OPS]) + (f" and {more} more" if more > 0 else "")


def times(k: KernelReport) -> str:
    """How many times as fast as its default a kernel is."""
    return f"{k.default / k.best:.2f}" if math.isfinite(k.default) and math.isfinite(k.best) else "-"


def share(k: KernelReport) -> str:
    """How much of the roofline a kernel attains."""
    return f"{k.roofline / k.best:.0%}" if math.isfinite(k.best) else "-"


def slowest_first(kernels: Sequence[KernelReport]) -> list[KernelReport]:
    """By the time that they take of a call; those that were not measured last."""
    return sorted(kernels, key=lambda k: -k.calls * k.best if math.isfinite(k.best) else 0.0)


def as_text(found: Sequence[TunedAt]) -> str:
    """The report in words."""
    return "\n\n".join(["\n".join(_section(x)) for x in found]) if found else "nothing was tuned"


def _section(x: TunedAt) -> list[str]:
    t = x.tuned
    lines = [f"{x.name}{shown_sizes(x.sizes)}: {_outcome(x)}",
             f"  {_spent(t)}"]
    if x.ranges:
        lines.append(f"  for {', '.join(_range(s, r) for s, r in x.ranges.items())}")
    if t.kernels:
        lines.append("  kernel                                    runs    default       best  times  roofline  made by")
    for k in slowest_first(t.kernels):
        lines.append(f"  {shown_kernel(k)[:40]:40} {k.calls:5} {amount(k.default):>10} {amount(k.best):>10} "
                     f"{times(k):>6} {share(k):>8}  {k.implementation}")
    lines += [f"  failed {count} times: {why}" for why, count in _failures(t.trials)]
    return lines


def _outcome(x: TunedAt) -> str:
    if not x.record.module:
        return f"nothing is faster than the default, which takes {amount(x.tuned.default_seconds)}"
    t, alone = x.tuned, ""
    if t.cover and t.cover.partition:
        alone = f"; its partition alone {t.default_seconds / t.partition_seconds:.2f} times"
    return f"{x.speedup:.2f} times as fast, {amount(t.default_seconds)} to {amount(t.best_seconds)}{alone}"


def _spent(t: Tuned) -> str:
    failed = sum(x.failure is not None for x in t.trials)
    stopped = " (interrupted)" if t.interrupted else ""
    return f"{len(t.trials)} trials, of which {failed} failed, in {t.seconds:.1f} s{stopped}; noise {t.noise:.1%}"


def _range(name: str, r: tuple[int, int | None]) -> str:
    return f"{name} from {r[0]}{f' to {r[1]}' if r[1] is not None else ''}"


def _failures(trials: Sequence[Trial]) -> list[tuple[str, int]]:
    return Counter(t.failure for t in trials if t.failure is not None).most_common(MOST_REASONS)


# ---- a page -----------------------------------------------------------------------------------------
_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #1d2330; }
h1, h2 { font-weight: 600; } h2 { margin-top: 2em; border-bottom: 1px solid #ccd; } figure { margin: 1.5em 0; }
figcaption { color: #556; } table { border-collapse: collapse; } td, th { padding: .2em .8em; text-align: right; }
td:first-child, th:first-child, td:last-child, th:last-child { text-align: left; } tr:nth-child(even) { background: #f3f5f9; }
svg { max-width: 100%; height: auto; } pre { background: #f3f5f9; padding: 1em; overflow: auto; font-size: 12px; }"""


def as_html(found: Sequence[TunedAt]) -> str:
    """The report as a page: text, tables and plots, in one file."""
    body = "\n".join([_page_section(x) for x in found]) or "<p>nothing was tuned</p>"
    where = "; ".join(dict.fromkeys([x.record.machine for x in found]))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>loopwright: tuning</title>\n'
            f"<style>{_STYLE}</style></head>\n"
            f"<body><h1>What tuning found</h1>\n<p>{_text(where)}</p>\n{body}\n</body></html>\n")


def _page_section(x: TunedAt) -> str:
    t = x.tuned
    parts = [f"<h2>{_text(x.name + shown_sizes(x.sizes))}</h2>", f"<p><b>{_text(_outcome(x))}</b>. {_spent(t)}.</p>"]
    if x.ranges:
        parts.append(f"<p>The program is for {_text(', '.join(_range(s, r) for s, r in x.ranges.items()))}.</p>")
    parts += [_kernel_table(t.kernels), *_plots(x), _failure_list(t.trials)]
    if x.record.module:
        parts.append(f"<details><summary>The program</summary><pre>{_text(str(t.best))}</pre></details>")
    return "\n".join([p for p in parts if p])


def _kernel_table(kernels: Sequence[KernelReport]) -> str:
    if not kernels:
        return ""
    head = "".join([f"<th>{c}</th>" for c in COLUMNS])
    rows = []
    for k in slowest_first(kernels):
        cells = (shown_kernel(k), k.calls, amount(k.default), amount(k.best), times(k), share(k), k.implementation)
        rows.append(f"<tr>{''.join([f'<td>{_text(str(c))}</td>' for c in cells])}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _failure_list(trials: Sequence[Trial]) -> str:
    found = _failures(trials)
    items = "".join([f"<li>{count} times: {_text(why)}</li>" for why, count in found])
    return f"<p>What failed:</p><ul>{items}</ul>" if found else ""


def _plots(x: TunedAt) -> list[str]:
    t = x.tuned
    drawn = [
        (progress_plot(t.trials, t.kernels, t.default_seconds), "The best time over the seconds, relative to the default's."),
        (accuracy_plot(t.trials), "What the cost model predicted of a candidate, and what was measured."),
        (roofline_plot(t.kernels), "What each kernel attains of the limit that this machine sets: default and best."),
        (time_plot(t.kernels), "Where the time of a call goes: default and best."),
    ]
    return [f"<figure>{svg}<figcaption>{caption}</figcaption></figure>" for svg, caption in drawn if svg]


def progress_plot(trials: Sequence[Trial], kernels: Sequence[KernelReport], default: float) -> str:
    """The best time so far, over the seconds, of the kernels that were tried and of whole programs, relative to the default."""
    known: dict[str | None, tuple[str, float]] = {k.structure: (shown_kernel(k), k.default) for k in kernels}
    known[None] = "whole programs", default
    found: dict[str, list[Point]] = {}
    for t in trials:
        who, base = known.get(t.kernel, ("", math.inf))
        if math.isfinite(t.seconds) and math.isfinite(base):
            points = found.setdefault(who, [Point(0.0, 1.0, "the default")])
            points.append(Point(t.at, min(t.seconds / base, points[-1].y), f"{t.candidate}: {amount(t.seconds)}"))
    return lines(found, "seconds", "best time / default")


def accuracy_plot(trials: Sequence[Trial]) -> str:
    """Predicted against measured, of all candidates with a prediction."""
    points = [Point(t.predicted * 1e6, t.seconds * 1e6, t.candidate) for t in trials
              if t.predicted and t.predicted > 0 and math.isfinite(t.predicted) and math.isfinite(t.seconds)]
    return scatter(points, "predicted, us", "measured, us")


def roofline_plot(kernels: Sequence[KernelReport]) -> str:
    """The share of the roofline that kernels attain."""
    rows = [(shown_kernel(k), (k.roofline / k.default, k.roofline / k.best)) for k in _measured(kernels) if k.roofline > 0]
    return bars(rows, ("default", "best"), "of the roofline", lambda x: f"{x:.0%}", limit=1.0)


def time_plot(kernels: Sequence[KernelReport]) -> str:
    """The time that kernels take of a call."""
    rows = [(shown_kernel(k), (k.calls * k.default, k.calls * k.best)) for k in _measured(kernels)]
    return bars(sorted(rows, key=lambda r: -r[1][0]), ("default", "best"), "time in a call", amount)


def _measured(kernels: Sequence[KernelReport]) -> list[KernelReport]:
    return [k for k in kernels if math.isfinite(k.default) and math.isfinite(k.best)]


def _text(x: str) -> str:
    return html.escape(x)
