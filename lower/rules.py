"""The rules that write a kernel's default schedule: what is kept, which loop has lanes, how many vectors are in flight.

A rule reads the region and writes instructions; it never reaches past them. The aim is code that is good untuned:
rows stay in cache across a chain of row reductions, lanes run along contiguous memory, and what is expensive and read
twice is kept in a row.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

from loopwright.ir.dims import Extent, product
from loopwright.ir.graph import Graph
from loopwright.ir.loops import Expr, Index, Load, Prefix, Reduce, Scatter, When, walk, walk_all
from loopwright.ir.monoids import any_order
from loopwright.ir.nest import Allocate, For, Nest, Prefetch, Reduction
from loopwright.ir.ops.windows import windows
from loopwright.ir.schedule import (
    ByColumns,
    ComputeAt,
    FewColumns,
    Fuse,
    Inline,
    InPlace,
    InRuns,
    Instruction,
    Interleave,
    Jam,
    OnePass,
    Parallel,
    ParallelUpdates,
    PrefetchRow,
    Rfactor,
    Schedule,
    ShortRows,
    Unroll,
    Vectorize,
)
from loopwright.ir.types import BOOL
from loopwright.lower.chains import blocks_of_rows
from loopwright.lower.contractions import is_contraction, product_schedule
from loopwright.lower.few_columns import lanes_of_updates, one_of_few
from loopwright.lower.few_rules import few_in_rows, few_steps, few_updates, is_little, may_go_by_columns, squeeze
from loopwright.lower.fusing import expressions, together
from loopwright.lower.instructions import MOST_CHANNELS, MOST_COLUMNS, MOST_INTERLEAVED
from loopwright.lower.jamming import worth_of
from loopwright.lower.keeping import WORTH_KEEPING, placement_of, without_rows
from loopwright.lower.passes import (
    across_lanes,
    goes_across,
    has_brief_folds,
    nearer,
    pass_rules,
    probe,
)
from loopwright.lower.row_products import row_products
from loopwright.lower.scheduling import Scheduled, ScheduleError, build_nest, nest_or_none, with_in_place
from loopwright.lower.short_rules import short_rows
from loopwright.lower.survey import EXPENSIVE, Survey, own_cost, survey, widest
from loopwright.lower.target import Target
from loopwright.lower.tiling import every
from loopwright.lower.updates import goes_along

LONG = 1 << 15  # adds of a fold that may be worth several threads
TINY, TINY_ROW = 64, 16  # elements of a value, and of its last axis, that may live in registers


def default_schedule(region: Graph, target: Target) -> Schedule:
    """The schedule of a region that nobody has tuned."""
    s = _surveyed(region, target)
    schedule, scheduled = _for_any_sizes(s, target)
    if scheduled is None:
        return schedule
    few = _few_columns(s, schedule, scheduled, target)
    return (*schedule, *few, *squeeze(s, schedule, scheduled))


def squeezed_schedule(region: Graph, target: Target, whole: Schedule) -> Schedule | None:
    """The schedule of a region without axes of one element, of a kernel with this one; None where that is not allowed, as where
    one row is left of those that a loop went past."""
    try:
        own, _ = _for_any_sizes(_surveyed(region, target), target)
    except ScheduleError:
        return None
    if not any(isinstance(x, Parallel | Rfactor) for x in whole):
        own = tuple([x for x in own if not isinstance(x, Parallel | Rfactor)])
    for step in [x for x in whole if isinstance(x, InPlace)]:
        made = with_in_place(region, own, step)
        if made is None:
            return None
        own = made
    return own


def few_rows_schedule(region: Graph, target: Target) -> Schedule:
    """The schedule of a region that is a product, of few rows by the tile unit."""
    return _for_any_sizes(_surveyed(region, target), target, few_rows=True)[0]


def _for_any_sizes(s: Survey, target: Target, *, few_rows: bool = False) -> tuple[Schedule, Scheduled | None]:
    """What is the same for all sizes, and, where it is no product, a nest to begin with."""
    region = s.region
    placement = [placement_of(s, k) for k in range(len(s.stages))]
    if sum(map(is_contraction, region.nodes)) > 1 and (chain := chain_schedule(region, target)) is not None:
        return chain, None
    if any(map(is_contraction, region.nodes)) and s.loops == len(s.index) and not isinstance(s.root.expr, Scatter | Prefix):
        whole = fuse_rules(s, build_nest(region, tuple(placement), "probe"))
        product = product_schedule(region, (*placement, *whole), target, few_rows=few_rows)
        if product is not None:
            return product, None
    placement = without_rows(s, placement, lanes := _lanes_rules(s, placement, target))
    interleave: list[Instruction] = [Interleave()] if s.loops < len(s.index) else []
    schedule = (*placement, *interleave, *lanes, *_prefetch_rules(s, lanes, target), *_parallel_rules(s))
    scheduled = build_nest(region, schedule, "probe")
    if not _prefetches(scheduled.nest):  # no array lies as the rows do
        schedule = tuple([x for x in schedule if not isinstance(x, PrefetchRow)])
    schedule = nearer(s, (*schedule, *fuse_rules(s, scheduled)), scheduled.nest, target)
    schedule = (*schedule, *pass_rules(s, schedule, scheduled, target))
    schedule = (*schedule, *short_rows(s, schedule, target), *_shared_folds(s, schedule))
    return (*schedule, *_in_runs(s, schedule), *_by_owners(s, schedule), *_at_once(s, schedule, target)), scheduled


def _surveyed(region: Graph, target: Target) -> Survey:
    """What is read, with a short last axis spelled out, unless its loop can be made one with the one around it."""
    s = survey(region, MOST_COLUMNS, MOST_CHANNELS if target.has_masks else MOST_INTERLEAVED)
    flat, rank = survey(region, 0) if s.loops < len(s.index) else s, len(s.index)
    if flat.loops == s.loops:
        return s
    placement = [placement_of(flat, k) for k in range(len(flat.stages))]
    whole = fuse_rules(flat, build_nest(region, tuple(placement), "probe"))
    return flat if any(isinstance(x, Fuse) and x.loop + x.count == rank for x in whole) else s


def chain_schedule(region: Graph, target: Target) -> Schedule | None:
    """The schedule of several products, of which all but the last are kept as rows; None where their loops do not suit it."""
    s, products = survey(region), {k for k, n in enumerate(region.nodes) if is_contraction(n)}
    level, last = len(s.index) - 1, _number(s)
    if isinstance(s.root.expr, Scatter | Prefix) or s.loops < len(s.index) or level < 1:
        return None
    sums = [k for k, n in enumerate(region.nodes) if n.op is row_products]
    columns = {region.nodes[k].inputs[0] for k in sums}  # read down the rows, which have to be there
    placed = [placement_of(s, k) for k in range(len(s.stages))]
    placed = [ComputeAt(k, level) if k != last and (k in products or (x == Inline(k) and n.outputs[0] in columns)) else x
              for k, (x, n) in enumerate(zip(placed, region.nodes, strict=True))]
    lanes = [x for x in _lanes_rules(s, placed, target)
             if isinstance(x, Vectorize | Unroll) and x.stage not in {*products, last}]
    lanes += [Vectorize(k, level, target.vector_bits // (8 * widest(s))) for k in sums]
    try:
        whole = fuse_rules(s, build_nest(region, tuple(placed), "probe"))
        return blocks_of_rows(region, (*placed, *whole, *lanes), target)
    except ScheduleError:
        return None


# ---- lanes --------------------------------------------------------------------------------------
def _lanes_rules(s: Survey, placement: list[Instruction], target: Target) -> list[Instruction]:
    """Lanes run along the loop that reads memory contiguously: each reduction's last index, or the root's last axis."""
    region, root = s.region, s.region.results[0]
    lanes = target.vector_bits // (8 * widest(s))
    if _is_tiny(region):
        return _tiny_lanes(s, placement, lanes)
    if lanes < 2:
        return []
    if isinstance(s.root.expr, Prefix):
        running, last = s.root.expr, root.type.rank - 1
        in_turn = running.last == s.index[last] and (running.dtype == BOOL or not any_order(running.monoid, running.dtype))
        return [] if in_turn else [Vectorize(_number(s), last, lanes)]
    if isinstance(s.root.expr, Scatter):
        return _scatter_lanes(s, s.root.expr, lanes)
    folds = [k for k, reading in enumerate(s.stages) if isinstance(reading.expr, Reduce)]
    out: list[Instruction] = []
    across = bool(folds) and (goes_across(s, placement) or has_brief_folds(s, placement, lanes))
    if folds and not across and s.level == s.loops:
        lanes = target.vector_bits // (8 * widest(s, rows=s.level))
    if not across and _waits_for_memory(s):
        lanes = min(lanes, target.memory_bits // (8 * widest(s, in_memory=True)))
    if folds and not across:
        for k in folds:
            e = s.stages[k].expr
            assert isinstance(e, Reduce)
            together = _pass_with(s, k)
            most = 4 if e.monoid in ("argmax", "argmin") else 8 // len(together) if target.is_short_of_registers else 8
            each, unroll = lanes, _in_flight(s, max(most, 1), _pass_of(s, placement, together))
            if s.level < s.loops and _row_cost(s, k) < WORTH_KEEPING:
                each = min(lanes, target.memory_bits // (8 * widest(s, in_memory=True)))
                unroll = unroll if each == lanes else max(unroll, 4)
            out += [Vectorize(k, s.stages[k].node.outputs[0].type.rank + len(e.over) - 1, each), Unroll(k, unroll)]
        for k, rank in _filled_alone(s, placement):
            out += [Vectorize(k, rank - 1, lanes), Unroll(k, _in_flight(s, 4, _computed_by(s, placement, k)))]
        if s.level == s.loops or isinstance(s.root.expr, Reduce):  # a reduction of rows that have a value of their own
            return out
    if s.loops:
        own = range(len(s.stages)) if s.level == s.loops else _computed_by(s, placement, _number(s))
        columns = region.results[0].type.shape[-1] if s.loops < len(s.index) else 1
        most = 4 if columns == 1 else max(8 // int(str(columns)), 1)  # vectors in flight, of all columns
        out += [Vectorize(_number(s), s.loops - 1, lanes), Unroll(_number(s), _in_flight(s, most, own))]
    return out


def _filled_alone(s: Survey, placement: list[Instruction]) -> list[tuple[int, int]]:
    """The stages kept as rows that are filled in loops of their own, and their ranks."""
    alone = [x for x in placement if isinstance(x, ComputeAt) and x.within is None]
    ranks = [(x.stage, x.level, s.stages[x.stage].node.outputs[0].type.rank) for x in alone]
    return [(stage, rank) for stage, level, rank in ranks if rank > level]


def _prefetch_rules(s: Survey, lanes: list[Instruction], target: Target) -> list[Instruction]:
    """The last reduction that goes over each row asks for a later one, unless the processor is better left alone with that. Of
    several passes only the first waits for memory; what reads ahead of a single one by itself stops where a page ends."""
    if target.reads_ahead:
        return []
    wide = {x.stage for x in lanes if isinstance(x, Vectorize) and x.loop >= s.level}
    folds = [k for k, reading in enumerate(s.stages)
             if isinstance(reading.expr, Reduce) and k in wide and reading.node.outputs[0].type.rank == s.level]
    if target.reads_one_pass_ahead and len(folds) == 1 and sum(own_cost(x.expr) for x in s.stages) < EXPENSIVE:
        return []
    return [PrefetchRow(folds[-1])] if folds and s.level else []


def _parallel_rules(s: Survey) -> list[Instruction]:
    """Threads share out the outermost loop; of a scatter, that of what is there before."""
    if _is_tiny(s.region):
        return []
    if isinstance(s.root.expr, Scatter):
        return [Parallel((s.index[0].name,))] if s.index else []
    return [Parallel()] if s.loops > isinstance(s.root.expr, Prefix) else []


def _prefetches(nest: Nest) -> bool:
    """Whether some reduction asks for what is read later."""
    return any(isinstance(x, Prefetch) for r in every(nest.body) if isinstance(r, Reduction) for x in r.also)


def _is_tiny(region: Graph) -> bool:
    """Whether all that is computed is a few known numbers: a step of a loop, which keeps them in registers."""
    types = [v.type for n in region.nodes for v in (*n.inputs, *n.outputs)]
    return all(isinstance(t.size, int) and t.size <= TINY and all(isinstance(n, int) and n <= TINY_ROW for n in t.shape[-1:])
               for t in types)


def _tiny_lanes(s: Survey, placement: list[Instruction], lanes: int) -> list[Instruction]:
    """As many as there are elements, or fewer: a masked store is slow to read back, so the last elements have shorter vectors.
    Where some element is not read beside the one before it, as from the other end, each is better off alone; where it has
    folds or a row of its own, it must be."""
    if not s.index or isinstance(s.root.expr, Prefix | Scatter):
        return []
    size = s.root.node.outputs[0].type.shape[-1]
    fitting = min(lanes, 1 << size.bit_length() - 1) if isinstance(size, int) and size else 1  # none may have other axes
    if fitting == 1:
        return []
    body = probe(s, placement).body
    inside = [x for f in every(body) if isinstance(f, For) and f.index == s.index[-1] for x in every(f.body)]
    if any(isinstance(x, Allocate | Reduction) for x in inside) or not _side_by_side(expressions(body), s.index[-1]):
        return []
    return [Vectorize(_number(s), len(s.index) - 1, fitting)]


def _side_by_side(composed: Iterable[Expr], lane: Index) -> bool:
    """Whether every position reads what is its own of each array, or what all positions read."""
    found = [x for e in composed for x in walk(e)]
    apart = any(part != lane and lane in walk(part) for x in found if isinstance(x, Load) for part in x.index)
    across = any(lane in x.index[:-1] for x in found if isinstance(x, Load))
    return not apart and not across and not any(isinstance(x, When) and lane in walk(x.cond) for x in found)


def _number(s: Survey) -> int:
    return s.stages.index(s.root)


def _in_flight(s: Survey, most: int, stages: Iterable[int]) -> int:
    """Fewer vectors in flight for dearer bodies, of these stages: registers run out, and the latency is covered anyway; but in
    maps not before their formulas fill as much text as a kernel has, since one vector's are a long chain."""
    cost = sum(own_cost(s.stages[k].expr) for k in stages)
    long = 4 * EXPENSIVE if any(isinstance(reading.expr, Reduce) for reading in s.stages) else 8 * EXPENSIVE
    return most if cost < EXPENSIVE else 2 if cost < long else 1


def _pass_with(s: Survey, fold: int) -> set[int]:
    """A reduction, and those that may share its pass."""
    together: set[int] = set()
    for k in [k for k, r in enumerate(s.stages) if isinstance(r.expr, Reduce)]:
        if together & _read_by(s, k):
            if fold in together:
                break
            together = set()
        together.add(k)
    return together


def _pass_of(s: Survey, placement: list[Instruction], folds: set[int]) -> set[int]:
    """The stages of which a pass with some reductions computes elements: these wait for as many others."""
    return {x for k in folds for x in _computed_by(s, placement, k)}


def _computed_by(s: Survey, placement: list[Instruction], stage: int) -> set[int]:
    """The stages of which a pass over a row computes elements: all that it reads, but rows that another pass keeps."""
    kept = {x.stage: x.within for x in placement if isinstance(x, ComputeAt)}
    return _read_by(s, stage, lambda k: _has_rows(s, k) and kept.get(k, stage) == stage)


def _read_by(s: Survey, stage: int, through: Callable[[int], bool] = lambda k: True) -> set[int]:
    """A stage, and the stages that it reads, through others."""
    number = {r.node.outputs[0]: k for k, r in enumerate(s.stages)}
    todo, seen = [stage], {stage}
    while todo:
        read = {number[v] for v in s.stages[todo.pop()].node.inputs if v in number} - seen
        read = {k for k in read if through(k)}
        todo += read
        seen |= read
    return seen


def _has_rows(s: Survey, stage: int) -> bool:
    return product(s.stages[stage].node.outputs[0].type.shape[s.level:]) != 1


def _waits_for_memory(s: Survey) -> bool:
    """Whether loops do so little that beyond the caches they take as long as memory does. A row that is divided is not such a
    loop: the steps of a division by one number are for whole registers. Nor are places compared, or rows found by numbers."""
    rows = s.level if s.level < s.loops else 0
    places = any(isinstance(r.expr, Reduce) and r.expr.monoid in ("argmax", "argmin") for r in s.stages)
    found = any(isinstance(y, Load) for r in s.stages for x in walk(r.expr) if isinstance(x, Load)
                for part in x.index for y in walk(part))
    each = [r for r in s.stages if isinstance(r.expr, Reduce) or product(r.node.outputs[0].type.shape[rows:]) != 1]
    return not places and not found and sum(own_cost(r.expr) for r in each) < (WORTH_KEEPING if rows else EXPENSIVE)


def _row_cost(s: Survey, stage: int) -> int:
    """The cost of one element of what a reduction reads of a row, rows that are filled on the way included."""
    return sum(own_cost(s.stages[k].expr) for k in _read_by(s, stage, lambda k: _has_rows(s, k)))


def _scatter_lanes(s: Survey, e: Scatter, lanes: int) -> list[Instruction]:
    """The update's last loop may have lanes where it walks the last axis of the target itself: no more than rows of few
    elements have, since what was stored under a mask is slow to read back."""
    out: list[Instruction] = [Vectorize(_number(s), len(s.index) - 1, lanes)] if s.index else []
    if e.over and e.target and goes_along(e.target[-1], e.over[-1][0]) and e.over[-1][0] not in walk_all(e.target[:-1]):
        lanes = lanes_of_updates(e.over[-1][1], lanes)
        if lanes == 1:
            return out
        unroll = Unroll(_number(s), _in_flight(s, 4, range(len(s.stages))))
        out += [Vectorize(_number(s), len(s.index) + len(e.over) - 1, lanes), unroll]
    return out


def _in_runs(s: Survey, schedule: Schedule) -> list[Instruction]:
    """Updates of one place go together, where some in turn may be."""
    if not isinstance(s.root.expr, Scatter) or nest_or_none(s.region, (*schedule, InRuns())) is None:
        return []
    return [InRuns()]


def _by_owners(s: Survey, schedule: Schedule) -> list[Instruction]:
    """Threads share out updates, where they can."""
    if not isinstance(s.root.expr, Scatter) or _is_tiny(s.region) \
            or nest_or_none(s.region, (*schedule, ParallelUpdates())) is None:
        return []
    return [ParallelUpdates()]


# ---- fused loops --------------------------------------------------------------------------------
def fuse_rules(s: Survey, scheduled: Scheduled) -> list[Instruction]:
    """Fuse each maximal run of loops that every access keeps together."""
    out: list[Instruction] = []
    if isinstance(s.root.expr, Scatter | Prefix):
        return out
    rank, shape = s.loops, s.region.results[0].type.shape
    axes, taken = list(zip(s.index[:rank], shape, strict=False)), set[Index]()
    for first, last in ((0, s.level), (s.level, rank)):
        out += _runs(scheduled.nest, axes, (first, last), _number(s), 0, taken)
    for stage, over in scheduled.folds.items():
        out += _runs(scheduled.nest, list(over), (0, len(over)), stage, s.stages[stage].node.outputs[0].type.rank, taken)
    return out


# ---- positions at once ------------------------------------------------------------------------
def _at_once(s: Survey, schedule: Schedule, target: Target) -> list[Instruction]:
    """Neighbours whose folds read alike, as many as have registers for their sums."""
    if s.loops < 2 or s.level < s.loops or any(isinstance(x, ShortRows) for x in schedule):
        return []
    factor = worth_of(build_nest(s.region, schedule, "probe").nest, target.vector_registers)
    return [Jam(factor)] if factor > 1 else []


# ---- few columns --------------------------------------------------------------------------------
def _few_columns(s: Survey, schedule: Schedule, scheduled: Scheduled, target: Target) -> list[Instruction]:
    """Maps whose last loop may turn out to have few positions, if these are spelled out where they are known; what reads
    numbers that lie as far apart as a last axis is long, which may turn out to be little. Windows' loops are divided where
    they leave an array, which is worth more."""
    rank, folds = len(s.index), any(isinstance(r.expr, Reduce | Prefix | Scatter) for r in s.stages)
    if any(n.op is windows for n in s.region.nodes):
        return []
    if updates := few_updates(s, schedule):
        return updates
    fused = any(isinstance(x, Fuse) and (not rank or x.loop + x.count == rank) for x in schedule)
    across = folds and (across_lanes(s, schedule) or not (rank or fused))
    if len(scheduled.sites) == 1 and may_go_by_columns(s, across=across, apart=not fused):
        return [ByColumns()]
    if len(s.region.results) > 1 or folds:
        return few_in_rows(s, schedule) or few_steps(s, schedule, scheduled)
    if not is_little(s, scheduled):
        return []
    region = None if fused else one_of_few(s.region, FewColumns(1, 1))
    known = None if region is None or s.loops < rank else _surveyed(region, target)
    if known is not None and known.loops < rank:
        lanes = _lanes_rules(known, [Inline(k) for k in range(len(s.stages))], target)
        both = ((x, y) for x in lanes for y in lanes)
        return [FewColumns(x.lanes, y.factor) for x, y in both if isinstance(x, Vectorize) and isinstance(y, Unroll)]
    return few_steps(s, schedule, scheduled)


# ---- folds of everything -----------------------------------------------------------------------
def _shared_folds(s: Survey, schedule: Schedule) -> list[Instruction]:
    """Reductions outside all loops go to all threads, unless they surely have few points."""
    if s.loops or isinstance(s.root.expr, Scatter | Prefix):
        return []
    joined = {x.stage for x in schedule if isinstance(x, OnePass)}
    return [Rfactor(k) for k, r in enumerate(s.stages) if isinstance(r.expr, Reduce) and k not in joined and _is_long(r.expr)]


def _is_long(e: Reduce) -> bool:
    points = product(n for _, n in e.over)
    return not isinstance(points, int) or points * (1 + own_cost(e.body)) >= LONG


def _runs(nest: Nest, loops: list[tuple[Index, Extent]], part: tuple[int, int], stage: int, offset: int,
          taken: set[Index]) -> list[Instruction]:
    """Of some of a stage's loops. `taken`: loops that instructions make one."""
    out: list[Instruction] = []
    start, last = part
    while start < last - 1:
        end, known = start + 1, None
        while end < last and loops[start][0] not in taken and (more := together(nest, loops[start:end + 1])) is not None:
            end, known = end + 1, more
        if known is not None and (len(known.runs) == 1 or known.is_last(nest)):  # else rows' sums do not wait for one another
            out.append(Fuse(stage, offset + start, end - start))
            taken |= {k for run in known.index for k in run}
        start = end
    return out
