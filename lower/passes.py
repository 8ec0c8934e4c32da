"""In which order fused loops go through what they read: columns row by row, reductions side by side, tiles."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import inf

from loopwright.ir.dims import Shape, product
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, Prefix, Reduce, Scatter, Size, walk
from loopwright.ir.nest import For, Nest
from loopwright.ir.schedule import (
    AddAlong,
    ByRows,
    Instruction,
    Interleave,
    OnePass,
    Parallel,
    Reorder,
    Schedule,
    Tiles,
    Vectorize,
)
from loopwright.lower.fusing import by_rows, expressions, transposed_loads
from loopwright.lower.joining import join
from loopwright.lower.scheduling import Scheduled, build_nest, nest_or_none
from loopwright.lower.survey import Survey
from loopwright.lower.target import Target
from loopwright.lower.tiling import growth, loops

FEW_ROWS = 16  # that reductions of columns fold in registers
MOST_JOINED = 4  # reductions that share a pass
MOST_TRANSPOSED = 4  # arrays of which a tile is kept
TILED = 6  # elements of less than a word in rows that are read across, from which on tiles take less time
WORD = 4  # bytes: shorter numbers that lie few apart are loaded with those between them
FEW_APART = 2  # elements between those of neighbouring lanes, of which a few loads are put together with any vectors


def pass_rules(s: Survey, schedule: Schedule, scheduled: Scheduled, target: Target) -> list[Instruction]:
    """In which order the fused loops go through what they read, where it is not the plain one."""
    folds = [(k, r.node.outputs[0].type.rank, [n for _, n in r.expr.over]) for k, r in enumerate(s.stages)
             if isinstance(r.expr, Reduce)]
    alike = [(a[0], b[0]) for a, b in pairwise(folds) if a[1:] == b[1:]]
    across = across_lanes(s, schedule) and not isinstance(s.root.expr, Scatter | Prefix)
    if not (alike or across or _reads_across(s, scheduled.nest)):
        return []
    nest = build_nest(s.region, schedule, "probe").nest
    if across and _goes_by_rows(nest):
        return [ByRows()]
    along = any(isinstance(x, AddAlong) for x in schedule)  # rows are added up in their order
    return [*_one_pass_rules(nest, alike), *([Tiles()] if not along and _goes_in_tiles(nest, target) else [])]


def across_lanes(s: Survey, schedule: Schedule) -> bool:
    """Whether the root's lanes hold the reductions."""
    lanes = any(isinstance(x, Vectorize) and (x.stage, x.loop) == (s.stages.index(s.root), s.loops - 1) for x in schedule)
    return lanes and s.level == s.loops


def _goes_by_rows(nest: Nest) -> bool:
    """Columns alone, that may be more than a step of the lanes, and more rows than registers fold. Inside another loop each
    part is likely small enough for the caches as it is."""
    outer = nest.body[0]
    if not isinstance(outer, For) or outer.lanes == 1:
        return False
    extents = [e.over[0][1] for _, e in by_rows(outer.body)]
    long = not isinstance(outer.extent, int) or outer.extent > 4 * outer.lanes
    return long and any(not isinstance(n, int) or n > FEW_ROWS for n in extents)


def _one_pass_rules(nest: Nest, alike: list[tuple[int, int]]) -> list[Instruction]:
    """Reductions one after the other, over the same loops, share a pass, a few at a time."""
    out: list[Instruction] = []
    together = {a: 1 for a, _ in alike}  # how many share the pass of a stage
    for a, b in alike:
        try:
            joined = join(nest.body, b)
        except ValueError:
            continue
        if joined != nest.body and together[a] < MOST_JOINED:
            out.append(OnePass(b))
            nest, together[b] = replace(nest, body=joined), together[a] + 1
    return out


def _goes_in_tiles(nest: Nest, target: Target) -> bool:
    """Whether the last two loops read a few arrays across, and may make tiles: whole ones, or most of one where lanes can be
    masked. Of fewer rows only where each would read words that the one before it has driven out of the cache."""
    body = nest.body
    while len(body) == 1 and isinstance(outer := body[0], For):
        inner, body = outer.body[0], outer.body
        if isinstance(inner, For) and inner.lanes > 1:
            loads, (rows, columns) = transposed_loads(outer), (outer.extent, inner.extent)
            if not 0 < len(loads) <= MOST_TRANSPOSED:
                return False
            size, elements = min(x.dtype.itemsize for x in loads), rows * columns
            fewest = min(inner.lanes, TILED) if target.has_masks and size < WORD else inner.lanes
            if isinstance(columns, int) and columns < fewest:
                return False
            driven_out = not isinstance(elements, int) or 2 * size * elements > target.cache_bytes  # with what is stored
            return not isinstance(rows, int) or rows >= fewest or (rows > 1 and size >= WORD and driven_out)
    return False


def nearer(s: Survey, schedule: Schedule, plain: Nest, target: Target) -> Schedule:
    """With the loop that goes along the memory of what is read moved to right around that of the vectors, where that lets the
    two go in tiles. plain: the nest without fused loops."""
    if s.loops < 3 or s.level < s.loops or isinstance(s.root.expr, Scatter | Prefix) or not _reads_across(s, plain):
        return schedule
    nest = build_nest(s.region, schedule, "probe").nest
    if _goes_in_tiles(nest, target):
        return schedule
    names = [f.index.name for f in loops(nest.body)]
    for k, name in enumerate(names[:-2]):
        order = (*names[:k], *names[k + 1:-1], name, names[-1])
        moved = (*[x for x in schedule if x != Parallel()], Reorder(order))
        made = nest_or_none(s.region, moved)
        if made is not None and _goes_in_tiles(made, target):
            return (*moved, *([Parallel(order[:-1])] if Parallel() in schedule else []))
    return schedule


def _reads_across(s: Survey, nest: Nest) -> bool:
    """Whether a loop other than the last walks something element by element."""
    return any(isinstance(x, Load) and x.index and x.index[-1] in s.index[:s.loops - 1]
               for e in expressions(nest.body) for x in walk(e)) if s.loops > 1 else False


def goes_across(s: Survey, placement: list[Instruction]) -> bool:
    """Whether lanes across the root's last axis, with serial reductions inside, read memory better than lanes along the
    reductions: the fewer scattered reads win, and a tie goes to the reductions."""
    if not s.loops or s.level != s.loops:
        return False
    nest = probe(s, placement)
    composed, shapes = list(expressions(nest.body)), {b.name: b.shape for b in nest.buffers}
    folds = [x for e in composed for x in walk(e) if isinstance(x, Reduce)]
    lasts = {s.index[s.loops - 1]}
    inner = _fold_indices(s, placement, folds)
    return scattered(composed, lasts, shapes) < scattered(composed, inner)


def has_brief_folds(s: Survey, placement: list[Instruction], lanes: int) -> bool:
    """Whether reductions would leave half of such vectors empty, as windows over the last axes do, and lanes across the root's
    last axis read what lies few elements apart. Rows, short as they may be, are transposed."""
    folds = [r.expr.over for r in s.stages if isinstance(r.expr, Reduce)]
    brief = all(isinstance(n, int) and n <= max(lanes // 2, FEW_APART) for over in folds for _, n in over)
    if not s.loops or s.level != s.loops or not brief:
        return False
    nest, along = probe(s, placement), s.index[s.loops - 1]
    shapes, composed = {b.name: b.shape for b in nest.buffers}, list(expressions(nest.body))
    loads = [x for e in composed for x in walk(e) if isinstance(x, Load)]
    rows = {f.over[0][0] for e in composed for f in walk(e) if isinstance(f, Reduce) and len(f.over) == 1}
    return not any(x.index and not rows.isdisjoint(walk(x.index[-1])) for x in loads) \
        and all(_step(x, along, shapes.get(str(x.array), ())) <= max(lanes // 4, FEW_APART) for x in loads)


def _step(x: Load, along: Index, shape: Shape) -> float:
    """How many elements apart neighbours along an index are; without end where that is not known, or they are words' parts."""
    steps = [growth(part, along) for part in x.index]
    if x.dtype.itemsize < WORD or None in steps or len(shape) != len(steps):
        return inf
    apart = sum((n * product(shape[a + 1:]) for a, n in enumerate(steps) if n), 0)
    return abs(apart) if isinstance(apart, int) else inf


def probe(s: Survey, placement: list[Instruction]) -> Nest:
    interleave = (Interleave(),) if s.loops < len(s.index) else ()
    return build_nest(s.region, (*placement, *interleave), "probe").nest


def _fold_indices(s: Survey, placement: list[Instruction], folds: list[Reduce]) -> set[Index]:
    nest = probe(s, placement)
    found = {f.over[-1][0] for f in folds if f.over}
    todo = list(nest.body)
    while todo:
        statement = todo.pop()
        todo.extend(getattr(statement, "body", ()) if isinstance(getattr(statement, "body", ()), tuple) else ())
        over = getattr(statement, "over", ())
        found |= {over[-1][0]} if over else set()
    return found


def scattered(composed: Iterable[Expr], along: set[Index], shapes: Mapping[str, Shape] = {}) -> int:
    """Distinct loads that an index of `along` steps through other than one element at a time, or one pair: of arrays whose
    `shapes` end with the two parts of a complex number."""
    loads = {id(x): x for e in composed for x in walk(e) if isinstance(x, Load)}.values()
    return sum(1 for x in loads if any(k in along for part in x.index for k in walk(part))
               and not _contiguous(x.index[:-1] if _is_part(x, shapes) else x.index, along))


def _is_part(x: Load, shapes: Mapping[str, Shape]) -> bool:
    """Whether it is the real or the imaginary part of a number that lies in memory."""
    shape = shapes.get(str(x.array), ())
    return len(shape) > 1 and shape[-1] == 2 and isinstance(x.index[-1], Literal)


def _contiguous(index: tuple[Expr, ...], along: set[Index]) -> bool:
    front = any(k in along for part in index[:-1] for k in walk(part))
    first = index[-1]
    while isinstance(first, Apply) and first.fn == "add":  # a window's place, its offset, and what lies outside
        first = first.args[isinstance(first.args[0], Literal | Size)]
    return first in along and not front
