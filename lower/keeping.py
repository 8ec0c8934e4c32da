"""Which values of a region are kept, and where: at their rank, once per row, or not at all.

What is expensive and read twice is kept in a row, which the first reduction that reads it fills on its way.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopwright.ir.graph import Value
from loopwright.ir.loops import Index, Reduce
from loopwright.ir.schedule import AddAlong, ComputeAt, Inline, Instruction, Vectorize
from loopwright.lower.composition import Position, fresh_indices, reads
from loopwright.lower.partials import block_sums
from loopwright.lower.row_products import row_products
from loopwright.lower.survey import EXPENSIVE, Reading, Survey, own_cost

WORTH_KEEPING = 5  # of an element of a row: it is stored to and read from the first cache


def placement_of(s: Survey, stage: int) -> Instruction:
    """Results and reductions are kept at their rank; so is what is worth more than a load, once per row."""
    reading = s.stages[stage]
    v = reading.node.outputs[0]
    if v is s.region.results[0]:
        return Inline(stage)
    if reading.node.op in (block_sums, row_products):
        return AddAlong(stage)
    if v in s.region.results or isinstance(reading.expr, Reduce):
        return ComputeAt(stage, v.type.rank)
    aligned = all(position == s.index[:v.type.rank] for _, position in reading.readers) \
        and v.type.shape == s.region.results[0].type.shape[:v.type.rank]
    if 0 < v.type.rank == s.level < s.loops and aligned and own_cost(reading.expr):
        return ComputeAt(stage, s.level)
    if _worth_a_row(s, reading):
        return ComputeAt(stage, s.level, within=_first_fold(s, reading))
    return Inline(stage)


def _worth_a_row(s: Survey, reading: Reading) -> bool:
    """Whether an expensive stage is read in several passes over the same row."""
    v = reading.node.outputs[0]
    positions = {position for _, position in reading.readers}
    least = WORTH_KEEPING if s.level < s.loops else EXPENSIVE  # folds alone may share a pass, where it is computed once
    if own_cost(reading.expr) < least or v.type.rank <= s.level or s.level == 0 or len(positions) < 2:
        return False
    if v.type.shape[:s.level] != s.region.results[0].type.shape[:s.level]:
        return False  # the loops go past it, or not to its end
    return all(p[:s.level] == s.index[:s.level] and all(isinstance(x, Index) for x in p[s.level:]) for p in positions)


def _first_fold(s: Survey, reading: Reading) -> int | None:
    """The reduction that can fill the row on its way: the first to read it, at every point just where it fills it."""
    row = reading.node.outputs[0]
    for k, candidate in enumerate(s.stages):
        if not isinstance(candidate.expr, Reduce) or candidate is s.root:
            continue
        e, read = reads(candidate.node, s.index[:candidate.node.outputs[0].type.rank], fresh_indices("f"))
        assert isinstance(e, Reduce)
        found = _read_at(s, candidate, read, row)
        if found:
            filled, shape = (*s.index[:s.level], *(i for i, _ in e.over)), tuple(n for _, n in e.over)
            once = candidate.node.outputs[0].type.rank == s.level and shape == row.type.shape[s.level:]
            return k if once and found == {filled} else None
    return None


def _read_at(s: Survey, reader: Reading, read: Iterable[tuple[int, Position]], row: Value) -> set[Position]:
    """Where the row is read, however many stages lie between."""
    producers, fresh = {x.node.outputs[0]: x for x in s.stages}, fresh_indices("g")
    todo, found = [(reader.node.inputs[k], at) for k, at in read], set[Position]()
    seen = set(todo)
    while todo:
        v, at = todo.pop()
        if v is row:
            found.add(at)
        elif v in producers:
            node = producers[v].node
            new = {(node.inputs[k], position) for k, position in reads(node, at, fresh)[1]} - seen
            seen |= new
            todo.extend(new)
    return found


def without_rows(s: Survey, placement: list[Instruction], lanes: Sequence[Instruction]) -> list[Instruction]:
    """Nothing is kept for a row where each lane has one: folds of a row are one pass, which computes it once."""
    if s.level != s.loops or not any(isinstance(x, Vectorize) and x.stage == s.stages.index(s.root) for x in lanes):
        return placement
    return [Inline(x.stage) if isinstance(x, ComputeAt) and not isinstance(s.stages[x.stage].expr, Reduce)
            and s.stages[x.stage].node.outputs[0].type.rank > x.level else x for x in placement]
