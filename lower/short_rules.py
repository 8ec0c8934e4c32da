"""The rules for rows that may be short: how short they are where lanes go from row to row."""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.loops import Apply, Bounded, Expr, Index, Load, Prefix, Reduce, Scatter, walk
from loopwright.ir.nest import For, Reduction
from loopwright.ir.schedule import Instruction, Schedule, ShortRows, Tiles
from loopwright.ir.types import BOOL
from loopwright.lower.by_columns import adds_up
from loopwright.lower.fusing import expressions
from loopwright.lower.passes import TILED, WORD, across_lanes, scattered
from loopwright.lower.scheduling import build_nest
from loopwright.lower.short_rows import Beside, beside, reads_once, rows_of
from loopwright.lower.survey import EXPENSIVE, WEIGHTS, Survey, own_cost, widest
from loopwright.lower.target import Target

MOST_OF_SHORT_ROWS = 320  # cost of the code for them: it takes its time to compile, where rows turn out to be short
FEW_BYTES = 16  # as many elements go through tiles, where lanes of bytes are loaded and stored one by one
ALONG = 8  # elements, from which on the first truth of each row is sought along it, and bytes without masks are folded
ACROSS = 4  # elements that lie along memory, with fewer of which lanes go from row to row where folds go across


def short_rows(s: Survey, schedule: Schedule, target: Target) -> list[Instruction]:
    """Where rows are a few vectors at most lanes go from row to row; where they are shorter than one, if a copy of them would
    be read once; where they are a few elements, if they are what lies along memory and folds go across: vectors are gathered
    then, which takes longer than masked ones that are little used."""
    folds = [r for r in s.stages if isinstance(r.expr, Reduce)]
    cost = sum(own_cost(r.expr) for r in s.stages)
    few, lanes = (target.vector_bits // (8 * size) for size in (widest(s, across=True), widest(s, rows=s.level, across=True)))
    if not folds and cost <= MOST_OF_SHORT_ROWS:
        return _short_maps(s, schedule, few, target)
    if lanes < 2 or not folds or not s.level or isinstance(s.root.expr, Scatter | Prefix) or cost > MOST_OF_SHORT_ROWS:
        return []
    probe = ShortRows(lanes, lanes)
    outer = build_nest(s.region, (*schedule, probe), "probe").nest.body[0]
    if not isinstance(outer, For) or outer.short is None or (rows := beside(outer, probe)) is None:
        return []
    if sum(map(own_cost, expressions(rows.body))) > MOST_OF_SHORT_ROWS:
        return []
    if s.level < s.loops and reads_once(rows):
        below = lanes
    elif across_lanes(s, schedule):
        below = ACROSS
    elif 32 * few > target.vector_bits and not target.has_masks:
        below = ALONG
    else:
        below = _longest(outer, rows, few, lanes, is_cheap=cost < EXPENSIVE, has_masks=target.has_masks)
    is_long = any(isinstance(n, int) and n >= below for r in folds if isinstance(r.expr, Reduce) for _, n in r.expr.over)
    return [] if is_long else [ShortRows(lanes, below)]


def _longest(outer: For, rows: Beside, few: int, lanes: int, *, is_cheap: bool, has_masks: bool) -> int:
    """How long such rows are at most: where lanes run along a row, each pass waits for what was folded in the one before, and
    ends with all lanes; side by side each element that is read or stored is moved once more."""
    folds = [x for x in outer.body if isinstance(x, Reduction)]
    passes, moved = sum(not x.joined for x in folds), len(rows.read) + len(rows.written)
    if passes >= 2:
        return 12 * few if passes >= 2 * moved and not is_cheap else 4 * few
    if not is_cheap:
        return 4 * few
    monoids = {x.monoid for x in folds}
    if monoids & {"argmax", "argmin"}:
        return ALONG if all(x.body.dtype == BOOL for x in folds) else 2 * lanes
    if rows.written:
        return 2 * few if has_masks else few
    if monoids <= {"max", "min"}:
        return 3 * few // 2 if has_masks else 4 * few
    return few


def _short_maps(s: Survey, schedule: Schedule, lanes: int, target: Target) -> list[Instruction]:
    """Rows of maps that are read across, more than from row to row, at positions that are data, or in elements that lanes read
    one by one; rows of few elements, where what is done to each takes longer than bringing them side by side."""
    if isinstance(s.root.expr, Scatter | Prefix) or adds_up(s.region):  # which has ways of its own for few columns
        return []
    rows = rows_of(build_nest(s.region, schedule, "probe").nest)
    if rows is None or not isinstance(inner := rows.body[0], For):
        return []
    read = list(expressions(inner.body))
    along, down = scattered(read, {inner.index}), scattered(read, {rows.index})
    words = widest(s, in_memory=True, across=True) >= WORD
    across = along > (down if words else 0) or _reads_at(read, inner.index, rows.index)
    slow = any(isinstance(x, Apply) and x.dtype.kind == "f" and x.fn in WEIGHTS for r in s.stages for x in walk(r.expr))
    if not across and not slow:
        return []
    below = lanes if across else lanes // 2
    if not words and any(isinstance(x, Tiles) for x in schedule):
        below = TILED if target.has_masks else min(below, FEW_BYTES)
    short = ShortRows(min(lanes, target.vector_bits // 32), below)
    is_long = isinstance(inner.extent, int) and inner.extent >= below
    return [] if is_long or beside(rows, short) is None else [short]


def _reads_at(read: Sequence[Expr], along: Index, row: Index) -> bool:
    """Whether something is read at positions along rows that are data, the same for all rows."""
    places = [place for e in read for x in walk(e) if isinstance(x, Load) for place in x.index if isinstance(place, Bounded)]
    return any(along in (found := set(walk(place))) and row not in found for place in places)
