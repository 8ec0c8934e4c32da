"""Plots as SVG text: lines, points with the diagonal, and bars in pairs; logarithmic where values range far."""
from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence

from loopwright.ir.dataclass import dataclass

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 16, 46
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#718096", "#b7791f", "#319795")
MOST_LINES = len(COLOURS)
MOST_BARS = 16
FAR = 20.0  # times: values that differ by more are drawn on a logarithmic axis


@dataclass(frozen=True)
class Point:
    """A point, and what is said where the pointer rests on it."""

    x: float
    y: float
    title: str = ""


@dataclass(frozen=True)
class Axis:
    """Where values lie between two ends of the page."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, from_zero: bool = False, is_log: bool = False) -> Axis:
        """An axis that holds all values, with some space."""
        low, high = min(values), max(values)
        if is_log:
            return cls(low / 1.3, high * 1.3, start, end, True)
        low = 0.0 if from_zero else low
        return cls(low, high + 0.05 * ((high - low) or 1.0), start, end, False)

    def __call__(self, x: float) -> float:
        f: Callable[[float], float] = math.log if self.is_log else float
        return self.start + (f(x) - f(self.low)) / (f(self.high) - f(self.low)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if len(decades) > 4 else (1, 2, 5)
            return [t for d in decades for s in steps if self.low <= (t := s * 10.0 ** d) <= self.high]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(s for s in (1, 2, 5, 10) if (self.high - self.low) / (s * step) <= 6)
        return [k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def lines(found: Mapping[str, Sequence[Point]], across: str, up: str) -> str:
    """Steps of falling values over time, one line for each name; "" where there is nothing."""
    kept = dict(sorted(found.items(), key=lambda item: -len(item[1]))[:MOST_LINES])
    points = [p for series in kept.values() for p in series]
    if not points:
        return ""
    end = max(p.x for p in points)
    x = Axis.over([0.0, end], LEFT, WIDTH - RIGHT)
    y = Axis.over([p.y for p in points] + [0.0], HEIGHT - BOTTOM, TOP)
    body = _grid(x, y, across, up)
    for k, (name, series) in enumerate(kept.items()):
        steps = [f"{x(series[0].x):.1f},{y(series[0].y):.1f}"]
        for p in series[1:]:
            steps.append(f"H{x(p.x):.1f} V{y(p.y):.1f}")
        colour = COLOURS[k]
        body.append(f'<path d="M{" ".join(steps)} H{x(end):.1f}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [_dot(x(p.x), y(p.y), 2, colour, p.title) for p in series]
        body.append(_words(LEFT + 8, HEIGHT - BOTTOM - 8 - 16 * k, name, "start", colour))
    return _svg(body, HEIGHT)


def scatter(points: Sequence[Point], across: str, up: str) -> str:
    """Points, and the diagonal on which both values are equal; "" where there are none."""
    if not points:
        return ""
    values = [v for p in points for v in (p.x, p.y)]
    x, y = (Axis.over(values, a, b, is_log=True) for a, b in ((LEFT, WIDTH - RIGHT), (HEIGHT - BOTTOM, TOP)))
    body = _grid(x, y, across, up)
    body.append(_line(x.start, y.start, x.end, y.end, dashed=True))
    body += [_dot(x(p.x), y(p.y), 3, COLOURS[0], p.title) for p in points]
    return _svg(body, HEIGHT)


def bars(rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], across: str, shown: Callable[[float], str],
         limit: float | None = None) -> str:
    """Bars side by side for each row, one of each name; `limit`: a line to compare with. "" where there are none."""
    rows = rows[:MOST_BARS]
    if not rows:
        return ""
    each, left = 16, 250
    tall = TOP + len(rows) * (each * len(names) + 12) + BOTTOM
    values = [v for _, vs in rows for v in vs]
    is_log = min(values) > 0 and max(values) / min(values) > FAR
    ends = [*values, limit] if limit is not None else values
    x = Axis.over(ends, left, WIDTH - RIGHT - 70, from_zero=True, is_log=is_log)
    body, at = [], float(TOP)
    if limit is not None:
        body.append(_line(x(limit), TOP, x(limit), tall - BOTTOM, dashed=True))
    for name, vs in rows:
        body.append(_words(left - 8, at + each * len(names) / 2 + 4, name if len(name) <= 36 else name[:35] + "…", "end"))
        for k, v in enumerate(vs):
            wide = max(x(v) - left, 1)
            body.append(f'<rect x="{left}" y="{at:.1f}" width="{wide:.1f}" height="{each - 3}" fill="{COLOURS[k]}"/>')
            body.append(_words(left + wide + 5, at + each - 5, shown(v)))
            at += each
        at += 12
    body += [_words(left + 90 * k, tall - 12, name, "start", COLOURS[k]) for k, name in enumerate(names)]
    body.append(_words(WIDTH - RIGHT, tall - 12, f"{across}{', logarithmic' if is_log else ''}", "end"))
    return _svg(body, tall)


# ---- parts --------------------------------------------------------------------------------------------
def _grid(x: Axis, y: Axis, across: str, up: str) -> list[str]:
    body = []
    for t in x.ticks():
        body.append(_line(x(t), y.start, x(t), y.end))
        body.append(_words(x(t), y.start + 16, f"{t:g}", "middle"))
    for t in y.ticks():
        body.append(_line(x.start, y(t), x.end, y(t)))
        body.append(_words(x.start - 8, y(t) + 4, f"{t:g}", "end"))
    body.append(_words((x.start + x.end) / 2, HEIGHT - 8, across, "middle"))
    middle = (y.start + y.end) / 2
    body.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle" fill="#334">{up}</text>')
    return body


def _line(x: float, y: float, to_x: float, to_y: float, dashed: bool = False) -> str:
    style = 'stroke="#99a" stroke-dasharray="4 4"' if dashed else 'stroke="#e3e6ee"'
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" {style}/>'


def _dot(x: float, y: float, radius: int, colour: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"><title>{html.escape(title)}</title></circle>'


def _words(x: float, y: float, text: str, anchor: str = "start", colour: str = "#334") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'


def _svg(body: Sequence[str], tall: float) -> str:
    inside = "\n".join(body)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall:.0f}" width="{WIDTH}" height="{tall:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="12" role="img">\n{inside}\n</svg>')
