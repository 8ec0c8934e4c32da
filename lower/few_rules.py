"""The rules for what turns out to be few at a call: steps over few elements, folds down few columns, axes of one element.

Each reads what the schedule is without, and gives the instruction that goes beside it, if any.
"""
from __future__ import annotations

from loopwright.ir.loops import Load, Prefix, Reduce, Scatter, When, walk
from loopwright.ir.nest import For, Reduction, Store
from loopwright.ir.ops.windows import windows
from loopwright.ir.schedule import FewInRows, FewSteps, FewUpdates, Fuse, Instruction, Schedule, ShortRows, Squeeze, Vectorize
from loopwright.lower.by_columns import adds_up
from loopwright.lower.contractions import is_contraction
from loopwright.lower.few_columns import few_cases, go_by_columns
from loopwright.lower.fusing import expressions
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.partials import block_sums
from loopwright.lower.row_products import row_products
from loopwright.lower.scheduling import Scheduled, build_nest
from loopwright.lower.squeezing import ones_of
from loopwright.lower.survey import Survey
from loopwright.lower.tiling import every

MOST_CHOICES = 24  # between parts of arrays, as pads and stores make them, where each of a few columns is spelled out
MOST_FOLDS = 2  # of each of a few columns: accumulators of all are in registers
_OF_WINDOWS = (windows, block_sums, row_products)


def may_go_by_columns(s: Survey, *, across: bool, apart: bool) -> bool:
    """Whether there may be few columns that are folded, a few folds in a pass, and none needs the others. across: lanes along
    the root hold its folds, or these are of everything; apart: the last loop is one of its own."""
    if adds_up(s.region):
        return apart and go_by_columns(s.region)
    folds = sum(isinstance(r.expr, Reduce) for r in s.stages)
    if not across or len(s.region.results) > 1 or folds > MOST_FOLDS or isinstance(s.root.expr, Scatter | Prefix):
        return False
    return go_by_columns(s.region)


def is_little(s: Survey, scheduled: Scheduled) -> bool:
    """Whether another body for each number of columns is worth the time that it takes to compile."""
    choices = sum(isinstance(x, When) for e in expressions(scheduled.nest.body) for x in walk(e))
    return choices <= MOST_CHOICES and len(s.region.nodes) <= 2 * MOST_NODES


def few_steps(s: Survey, schedule: Schedule, scheduled: Scheduled) -> list[Instruction]:
    """Such steps over the last axis of an operand."""
    body = scheduled.nest.body
    is_map = all(isinstance(x, For | Store) for x in every(body))
    if not is_little(s, scheduled):
        return []
    if isinstance(s.root.expr, Scatter) or (not is_map and any(isinstance(x, ShortRows) for x in schedule)):
        return []
    lanes = {s.index[s.loops - 1]} if s.loops else set()
    lanes |= {x.over[-1][0] for x in every(body) if isinstance(x, Reduction) and x.lanes > 1}
    loads = [x for e in expressions(body) for x in walk(e) if isinstance(x, Load) and x.index]
    apart = {x.array for x in loads for lane in lanes
             if lane not in walk(x.index[-1]) and any(lane in walk(part) for part in x.index[:-1])}
    steps = [FewSteps(k) for k in range(len(s.region.params)) if f"x{k}" in apart]
    return [*[x for x in steps if few_cases(s.region, x)][:1]]


def few_in_rows(s: Survey, schedule: Schedule) -> list[Instruction]:
    """Such folds of rows, where short ones go side by side."""
    is_short = any(isinstance(x, ShortRows) for x in schedule)
    return [FewInRows()] if is_short and few_cases(s.region, FewInRows()) else []


def few_updates(s: Survey, schedule: Schedule) -> list[Instruction]:
    """Such updates of rows, by lanes that go along them."""
    e = s.root.expr
    if not isinstance(e, Scatter) or e.combine == "set" or not e.over or e.target[-1:] != (e.over[-1][0],):
        return []
    along = any(isinstance(x, Vectorize) and x.loop == len(s.index) + len(e.over) - 1 for x in schedule)
    return [FewUpdates()] if along and few_cases(s.region, FewUpdates()) else []


def squeeze(s: Survey, schedule: Schedule, scheduled: Scheduled) -> list[Instruction]:
    """Kernels with loops inside others, where the inner ones may turn out to have one trip."""
    if all(v.type.rank < 2 for v in (*s.region.params, *s.region.results)):
        return []
    if isinstance(s.root.expr, Scatter) or any(n.op in _OF_WINDOWS or is_contraction(n) for n in s.region.nodes):
        return []
    fused = [x for x in schedule if isinstance(x, Fuse)]
    if any(x.count == len(s.index) for x in fused) and not scheduled.folds:  # one loop
        return []
    nest = build_nest(s.region, schedule, "probe").nest if fused else scheduled.nest
    return [] if ones_of(s.region, nest) is None else [Squeeze()]
