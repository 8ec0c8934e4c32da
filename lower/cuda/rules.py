"""The rules that write a kernel's default schedule for a GPU, from the same survey of its region as the CPU's.

Which template suits depends on sizes: the rules look at those of one call, and what they write is right for all. Elements go
to threads in the order of memory; rows that are folded go to a thread, a warp or a block, by their length; columns to the
threads of a warp, and their rows to its fellows in the block; folds of everything to all blocks.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, product
from loopwright.ir.gpu_schedule import (
    BLOCK,
    THREAD_X,
    THREAD_Y,
    Bind,
    ByOwner,
    InAnyOrder,
    InRegisters,
    InShared,
    InTiles,
    Threads,
)
from loopwright.ir.graph import Graph, Value
from loopwright.ir.loops import Apply, Bounded, Expr, Index, Load, PartitionPoint, Prefix, Reduce, Scatter, walk
from loopwright.ir.nest import Contract, For, Statement
from loopwright.ir.ops.control import scan
from loopwright.ir.schedule import (
    ComputeAt,
    Inline,
    Instruction,
    Interleave,
    OnePass,
    Reorder,
    Schedule,
    Tiles,
    Unroll,
    Vectorize,
)
from loopwright.ir.types import F32, F64, I64, U64
from loopwright.lower.binding import MOST_COPY, is_order_free, owner
from loopwright.lower.blocks import STAGES, is_copied
from loopwright.lower.contractions import is_contraction
from loopwright.lower.convolution_ops import MOST_POSITIONS, grouped, one_feature, one_group
from loopwright.lower.cuda.chain_rules import chain_in_passes
from loopwright.lower.cuda.columns import parts_of_columns
from loopwright.lower.cuda.context import WARP
from loopwright.lower.cuda.running import EACH
from loopwright.lower.fusing import expressions, transposed_loads
from loopwright.lower.keeping import placement_of
from loopwright.lower.lanes import lane_schedule
from loopwright.lower.passes import MOST_JOINED, goes_across
from loopwright.lower.registers import perfect
from loopwright.lower.rules import fuse_rules
from loopwright.lower.scheduling import build_nest, fits
from loopwright.lower.survey import EXPENSIVE, Survey, own_cost, survey
from loopwright.lower.target import Target

THREADS = 256
BYTES = 16  # of one access
MOST_LANES = 8
SHORT_ROW, WARP_ROW, BLOCK_ROW = 16, 1024, 8192  # elements that one thread, one warp, a block of THREADS folds
FEW_ROWS, MANY_THREADS, ACCESSES = 512, 1 << 15, 4  # rows, threads that busy a GPU; wide accesses of a thread in a row
LONG_ROW = 1 << 16  # elements of rows that several blocks fold where rows are few
FEWEST_OWN = 128  # threads that have elements of their own
MOST_TURNS, WARP_TURN = 128, 8  # updates that one owner goes through, and of which a warp looks at so many as fast as at one
FEW = 4096  # elements that one block folds alone
TILES, MANY_BLOCKS = (128, 64, 32), 128  # edges of tiles of products; blocks that are worth it
MOST_KEPT = 64  # registers of a thread that hold rows
MOST_SHARED = 48 << 10  # bytes that a block has without asking
FEW_COLUMNS, LONG_COLUMN = 1 << 15, 1 << 8  # that leave blocks idle; that are worth a second pass
COLUMN_BYTES, COLUMN_FLIGHT = 16, 64  # of a thread's access, and of all those that wait together, where columns are folded
MANY_COLUMN_BLOCKS = 512  # that are enough for a GPU
MOST_SQUARES = 4  # arrays of which shared memory holds a square
SQUARE, SQUARE_ROWS = 64, 16  # edge of large squares, and rows of 32 threads that make one; of small ones half of both
MANY_SQUARES, MOST_WORDS = 512, 3  # large ones that are enough for a GPU; words of an element's operands
GRID, ROWS, SQUARES = (BLOCK, THREAD_X), (BLOCK, THREAD_Y), (BLOCK, THREAD_Y, THREAD_X)


def gpu_schedule(region: Graph, sizes: Mapping[str, int], fast_math: bool = False) -> Schedule:
    """The schedule of a region for a GPU, good at these sizes of its symbols, right at all. fast_math: whether sums of scaled
    terms may stand for what is written, and sums of floats depend on the order in which threads come."""
    if region.nodes[0].op is scan:
        return _elements(region)
    chain = chain_in_passes(region, sizes, fast_math)
    if chain is not None:
        return chain
    s = survey(region)
    placement = [placement_of(s, k) for k in range(len(s.stages))]
    number = s.stages.index(s.root)
    interleave: list[Instruction] = [Interleave()] if s.loops < len(s.index) else []
    if isinstance(s.root.expr, Scatter):
        return (*_flat(placement), *_scatter(s, number, s.root.expr, sizes, fast_math))
    if isinstance(s.root.expr, Prefix):
        return (*_flat(placement), *_running(s, number, s.root.expr, sizes))
    folds = {k: r.expr for k, r in enumerate(s.stages) if isinstance(r.expr, Reduce)}
    tiles = _in_tiles(s, number, placement, next(iter(folds)), sizes) if len(folds) == 1 and not interleave else None
    if tiles is not None:
        return tiles
    if not folds:
        before = [*_flat(placement), *interleave]
        return (*before, *_elementwise(s, number, before, sizes))
    if s.level == 0:
        made = [*_flat(placement), *interleave, *_everything(s, number, folds, sizes)]
    elif goes_across(s, placement):
        made = [*_flat(placement), *interleave, *_columns(s, number, folds, sizes)]
    else:
        made = _rows(s, number, placement, interleave, folds, sizes)
    schedule = tuple(made)
    schedule = (*schedule, *fuse_rules(s, build_nest(region, schedule, "probe")))
    return _in_registers(s, _in_one_pass(region, schedule, folds), sizes)


def _in_one_pass(region: Graph, schedule: Schedule, folds: Mapping[int, Reduce]) -> Schedule:
    """The schedule with folds after one another in one pass, a few at a time, where they may."""
    shared = 1
    for (_, before), (stage, e) in pairwise(folds.items()):
        if not fits(region, (*schedule, OnePass(stage))):
            shared = 1
            continue
        alike = [n for _, n in before.over] == [n for _, n in e.over]
        shared = shared + 1 if alike and shared < MOST_JOINED else 1
        schedule = (*schedule, OnePass(stage)) if shared > 1 else schedule
    return schedule


def _in_registers(s: Survey, schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """The schedule with rows in registers while these last: those that it keeps, then parameters' that several passes read."""
    threads = next(x for x in schedule if isinstance(x, Threads))
    lanes = next((x.lanes for x in schedule if isinstance(x, Vectorize)), 1)
    rows: list[tuple[str, Value, InShared | None]] = [(f"t{x.stage}", s.stages[x.stage].node.outputs[0], x)
                                                      for x in schedule if isinstance(x, InShared)]
    rows += [(f"x{k}", v, None) for k, v in enumerate(s.region.params)]
    left = MOST_KEPT
    for name, v, shared in rows:
        length = evaluate(product(v.type.shape[s.level if v.type.rank > s.level else 0:]), sizes)
        slots = 1 << (-(-length // (threads.x * lanes)) - 1).bit_length() if length else 1
        cost = slots * lanes * max(v.type.dtype.itemsize // 4, 1)
        trial = (*(x for x in schedule if x is not shared), InRegisters(name, slots * lanes))
        if cost <= left and fits(s.region, trial):
            left, schedule = left - cost, trial
    return schedule


def _flat(placement: Sequence[Instruction]) -> list[Instruction]:
    """Without rows of their own: where threads go over elements alone they compute them anew."""
    return [Inline(x.stage) if isinstance(x, ComputeAt) and x.within is not None else x for x in placement]


def _bytes(s: Survey) -> int:
    """Of the widest element that is loaded or stored."""
    values = [*s.region.params, *s.region.results]
    rank = max(v.type.rank for v in values)
    return max(v.type.dtype.itemsize for v in values if v.type.rank == rank)


def _lanes(s: Survey) -> int:
    return max(1, min(MOST_LANES, BYTES // _bytes(s)))


def _in_flight(s: Survey, lanes: int) -> int:
    """Accesses that wait together; dear bodies keep the threads busy, and need the registers."""
    cost = sum(own_cost(reading.expr) for reading in s.stages)
    return max(2, 8 // lanes) if cost < EXPENSIVE else 1


# ---- templates ----------------------------------------------------------------------------------
def _elements(region: Graph) -> Schedule:
    """A thread for each element that runs loops of its own."""
    vectorize = lane_schedule(region, Target("", "", "", BYTES * 8))[0]
    assert isinstance(vectorize, Vectorize)
    return (Threads(THREADS), *(Bind(0, loop, GRID) for loop in range(vectorize.loop + 1)))


def _elementwise(s: Survey, number: int, before: Sequence[Instruction], sizes: Mapping[str, int]) -> list[Instruction]:
    """Neighbouring elements to neighbouring threads; in squares where arrays are read across."""
    grid: list[Instruction] = [Threads(THREADS), *(Bind(number, a, GRID) for a in range(s.loops))]
    fused = fuse_rules(s, build_nest(s.region, (*before, *grid), "probe"))
    body = build_nest(s.region, (*before, *grid, *fused), "probe").nest.body
    squares = [(x, edge) for x in read_across(body) if (edge := _edge_of_squares(s, x, sizes))]
    if squares:
        best, edge = max(squares, key=lambda found: sum(x.dtype.itemsize for x in found[0].loads))
        threads, lanes = Threads(32, SQUARE_ROWS * edge // SQUARE), Vectorize(number, s.loops - 1, edge)
        return [threads, *(Bind(number, a, SQUARES) for a in range(s.loops)), lanes, *fused, *best.order, Tiles()]
    wide, found = _lanes(s), [x for e in expressions(body) for x in walk(e)]
    alone = any(isinstance(x, Reduce | Prefix | PartitionPoint) or _is_long_division(x) for x in found)
    if s.loops and wide > 1 and not alone:
        some = any(isinstance(x, Bounded) for x in found)  # what is reported takes registers
        grid += [Vectorize(number, s.loops - 1, wide), Unroll(number, 1 if some else _in_flight(s, wide))]
    return [*grid, *fused]


def _is_long_division(e: Expr) -> bool:
    """A division of 64-bit integers: a GPU has no instruction for it, and calls a function."""
    return isinstance(e, Apply) and e.fn in ("floor_divide", "remainder", "fmod") and e.dtype in (I64, U64)


@dataclass(frozen=True)
class Across:
    """What the last of some loops directly inside each other reads across, and another, of `rows`, along memory. `columns`: the
    extent of the last, `others` that of the rest together; `order`: what puts rows before the last."""

    rows: Extent
    columns: Extent
    others: Extent
    loads: list[Load]
    order: list[Instruction]


def read_across(body: Sequence[Statement]) -> list[Across]:
    """Of a loop that is alone what its loops read across, for each loop that goes along some of it: the innermost first."""
    if len(body) != 1 or not isinstance(outermost := body[0], For):
        return []
    over, last = perfect(outermost)
    found: list[Across] = []
    for k in reversed(range(len(over) - 1)):
        names = tuple([index.name for index, _ in (*over[k + 1:-1], over[k])])
        if loads := transposed_loads(For(*over[k], (replace(last, lanes=32),))):
            others = product(n for _, n in (*over[:k], *over[k + 1:-1]))
            found.append(Across(over[k][1], last.extent, others, loads, [Reorder(names)] if len(names) > 1 else []))
    return found


def _edge_of_squares(s: Survey, x: Across, sizes: Mapping[str, int]) -> int:
    """The edge of squares, of some size, of a few arrays: the larger one where all of a GPU has some, registers and shared
    memory hold them, and the body is not dear. 0 where there are none."""
    rows, columns, others = [evaluate(n, sizes) for n in (x.rows, x.columns, x.others)]
    if min(rows, columns) < 32 or len(x.loads) > MOST_SQUARES:
        return 0
    rank = s.root.node.outputs[0].type.rank
    words = sum(max(v.type.dtype.itemsize // 4, 1) for v in s.region.params if v.type.rank >= rank)
    few = others * -(-rows // SQUARE) * -(-columns // SQUARE) < MANY_SQUARES
    large = SQUARE * (SQUARE + 1) * sum(e.dtype.itemsize for e in x.loads) > 3 * MOST_SHARED // 4
    dear = sum(own_cost(reading.expr) for reading in s.stages) >= EXPENSIVE
    return 32 if few or large or dear or words > MOST_WORDS else SQUARE


def _everything(s: Survey, number: int, folds: Mapping[int, Reduce], sizes: Mapping[str, int]) -> list[Instruction]:
    """Folds to single numbers: each block a part, then the parts."""
    most = max(_size(e, sizes) for e in folds.values())
    threads = Threads(4 * THREADS if 4 * THREADS < most <= FEW else THREADS)
    out: list[Instruction] = [threads, *(Bind(number, a, GRID) for a in range(s.loops))]
    for k, e in folds.items():
        rank = s.stages[k].node.outputs[0].type.rank
        alone = _size(e, sizes) <= FEW or rank > 0
        if rank == 0:
            out += [Bind(k, j, (THREAD_X,) if alone else GRID) for j in range(len(e.over))]
            out += [Vectorize(k, len(e.over) - 1, _lanes(s)), Unroll(k, 4)]
    return out


def _columns(s: Survey, number: int, folds: Mapping[int, Reduce], sizes: Mapping[str, int]) -> list[Instruction]:
    """Neighbouring columns to neighbouring threads; long columns in parts, of several neighbours a thread where that leaves
    blocks enough."""
    few = all(_size(e, sizes) <= SHORT_ROW for e in folds.values())
    shape = s.root.node.outputs[0].type.shape[:s.loops]
    columns, wide = evaluate(product(shape), sizes), _columns_beside(evaluate(shape[-1], sizes))
    out: list[Instruction] = [Threads(THREADS) if few else Threads(wide, THREADS // wide)]
    out += [Bind(number, a, GRID) for a in range(s.loops)]
    parts = (BLOCK, THREAD_Y) if columns < FEW_COLUMNS else (THREAD_Y,)
    for k, e in () if few else folds.items():
        if s.stages[k].node.outputs[0].type.rank == s.loops:
            rows = _size(e, sizes)
            in_parts = parts if rows > LONG_COLUMN else (THREAD_Y,)
            out += [Bind(k, s.loops + j, in_parts) for j in range(len(e.over))]
            lanes = _column_lanes(s, columns, rows, wide) if BLOCK in in_parts else 1
            out += [Vectorize(k, s.loops + len(e.over) - 1, lanes)] if lanes > 1 else []
            out.append(Unroll(k, _rows_in_flight(s, lanes)))
    return out


def _columns_beside(count: int) -> int:
    """Threads along x for so many columns that lie beside one another: the others of a block have rows that follow."""
    return next((n for n in (4, 8, 16) if count <= n), 32)


def _column_lanes(s: Survey, columns: int, rows: int, wide: int) -> int:
    """The columns of a thread: as many as wide accesses have, where few threads are left without any and blocks are many."""
    parts = evaluate(parts_of_columns(rows, columns, THREADS // wide), {})
    lanes = max(1, min(MOST_LANES, COLUMN_BYTES // _bytes(s)))
    while lanes > 1 and ((columns % (wide * lanes) and columns < 4 * wide * lanes) or
                         -(-columns // (wide * lanes)) * parts < MANY_COLUMN_BLOCKS):
        lanes //= 2
    return lanes if sum(own_cost(reading.expr) for reading in s.stages) < EXPENSIVE else 1


def _rows_in_flight(s: Survey, lanes: int) -> int:
    """Rows whose loads a thread makes before it folds the first."""
    if sum(own_cost(reading.expr) for reading in s.stages) >= EXPENSIVE:
        return 2
    return max(1, min(8, COLUMN_FLIGHT // (lanes * _bytes(s))))


def _in_tiles(s: Survey, number: int, placement: Sequence[Instruction], stage: int,
              sizes: Mapping[str, int]) -> Schedule | None:
    """A contraction in tiles, by tensor cores where these multiply such numbers: the widest that leave no block idle. None
    where there is none, or few sums. Other sums of products keep what additions round away, which tiles do not."""
    if not is_contraction(s.stages[stage].node):
        return None
    bound = [Bind(number, a, (BLOCK,)) for a in range(s.loops)]
    for threads, depth, unit in ((Threads(32, 8), 32, "mma"), (Threads(16, 16), 16, "")):
        schedule: Schedule = (*_flat(placement), threads, *bound)
        least = InTiles(stage, TILES[-1], TILES[-1], depth, unit)
        if s.loops > 1 and fits(s.region, (*schedule, least)):
            schedule = (*schedule, *fuse_rules(s, build_nest(s.region, schedule, "probe")))
            edges = _edges(s, (*schedule, least), stage, sizes)
            trials = [(*schedule, replace(least, rows=edge, columns=edge, stages=stages)) for edge in edges
                      for stages in (*_ring(s.region, (*schedule, least), edge), STAGES)]
            return next((trial for trial in trials if fits(s.region, trial)), None)
    return None


def _ring(region: Graph, schedule: Schedule, edge: int) -> tuple[int, ...]:
    """How many stages copies go through that run ahead: none where nothing is only copied."""
    root = build_nest(region, schedule, "probe").nest.body[0]
    assert isinstance(root, For)
    made = [x for x in perfect(root)[1].body if isinstance(x, Contract)]
    ahead = any(is_copied(e, x.unit) for x in made for e in (x.left, x.right))
    return (3 if edge == TILES[0] else 4,) if ahead else ()


def _edges(s: Survey, schedule: Schedule, stage: int, sizes: Mapping[str, int]) -> Sequence[int]:
    """The edges of tiles that give every part of a GPU some and are not half empty, the widest first, and the least."""
    root, e = build_nest(s.region, schedule, "probe").nest.body[0], s.stages[stage].expr
    assert isinstance(root, For) and isinstance(e, Reduce)
    *outer, rows, columns = [evaluate(n, sizes) for _, n in perfect(root)[0]]
    if min(rows, columns) < TILES[-1] // 4 or _size(e, sizes) < SHORT_ROW:
        return ()
    return [n for n in TILES if n == TILES[-1] or (
        n < 2 * min(rows, columns) and prod([*outer, -(-rows // n), -(-columns // n)]) >= MANY_BLOCKS)]


def _rows(s: Survey, number: int, placement: Sequence[Instruction], interleave: Sequence[Instruction],
          folds: Mapping[int, Reduce], sizes: Mapping[str, int]) -> list[Instruction]:
    """Each row to a thread, a warp or a block, which keeps what is dear and read twice in shared memory."""
    length = max(_size(e, sizes) for e in folds.values())
    overlap = all(s.stages[k].node.op in (one_feature, one_group, grouped) for k in folds)  # neighbours read side by side
    if length >= LONG_ROW and evaluate(product(s.root.node.outputs[0].type.shape[:s.level]), sizes) < MANY_BLOCKS:
        made = _rows_in_parts(s, number, placement, interleave, folds)
        if fits(s.region, tuple(made)):
            return made
    rows = evaluate(product(s.root.node.outputs[0].type.shape[:s.level]), sizes)
    threads = _row_threads(s, rows, length)
    if (length <= MOST_POSITIONS if overlap else threads.x == 1):
        out: list[Instruction] = [*_flat(placement), *interleave, Threads(THREADS)]
        return [*out, *(Bind(number, a, GRID) for a in range(s.level))]
    kept = _kept(s, placement, threads.y, sizes)
    out = [*kept, *interleave, threads, *(Bind(number, a, ROWS if threads.y > 1 else (BLOCK,)) for a in range(s.level))]
    for stage, first, count in _along(s, number, kept, folds):
        out += [Bind(stage, first + j, (THREAD_X,)) for j in range(count)]
        out += [Vectorize(stage, first + count - 1, _lanes(s)), Unroll(stage, 4)]
    return [*out, *(InShared(x.stage) for x in kept if isinstance(x, ComputeAt) and _is_row(s, x))]


def _row_threads(s: Survey, rows: int, length: int) -> Threads:
    """The threads of a row: so many that each makes a few wide accesses, more where rows are few."""
    if length > WARP_ROW or (length > THREADS and rows < FEW_ROWS):
        return Threads(THREADS if length <= BLOCK_ROW else 2 * THREADS)
    writes = s.loops > s.level  # which is quick where neighbouring threads store neighbours
    if length <= (SHORT_ROW if rows >= MANY_THREADS and not writes else 2):
        return Threads(1, THREADS)
    x = 4
    while x < WARP and (x * ACCESSES * _lanes(s) < length or (x < length and rows * x < MANY_THREADS)):
        x *= 2
    return Threads(x, THREADS // x)


def _rows_in_parts(s: Survey, number: int, placement: Sequence[Instruction], interleave: Sequence[Instruction],
                   folds: Mapping[int, Reduce]) -> list[Instruction]:
    """Each of few long rows to several blocks, which keep nothing of it: what is read twice is computed twice."""
    placed = [Inline(x.stage) if isinstance(x, ComputeAt) and _is_row(s, x) else x for x in _flat(placement)]
    out = [*placed, *interleave, Threads(THREADS), *(Bind(number, a, (BLOCK,)) for a in range(s.level))]
    for stage, first, count in _along(s, number, placed, folds):
        out += [Bind(stage, first + j, GRID) for j in range(count)]
        out += [Vectorize(stage, first + count - 1, _lanes(s)), Unroll(stage, 4)]
    return out


def _along(s: Survey, number: int, placement: Sequence[Instruction], folds: Mapping[int, Reduce]) -> list[tuple[int, int, int]]:
    """The loops along rows: stage, the first loop's number, and how many."""
    found = [(k, s.level, len(e.over)) for k, e in folds.items() if s.stages[k].node.outputs[0].type.rank == s.level]
    for x in placement:
        if isinstance(x, ComputeAt) and x.within is None and _is_row(s, x):
            found.append((x.stage, x.level, s.stages[x.stage].node.outputs[0].type.rank - x.level))
    if s.loops > s.level:
        found.append((number, s.level, s.loops - s.level))
    return found


def _is_row(s: Survey, x: ComputeAt) -> bool:
    return s.stages[x.stage].node.outputs[0].type.rank > x.level


def _kept(s: Survey, placement: Sequence[Instruction], rows: int, sizes: Mapping[str, int]) -> list[Instruction]:
    """The placement with the rows that shared memory holds."""
    left, out = MOST_SHARED, list[Instruction]()
    for x in placement:
        if isinstance(x, ComputeAt) and _is_row(s, x):
            v = s.stages[x.stage].node.outputs[0]
            size = rows * (v.type.dtype.itemsize * evaluate(product(v.type.shape[x.level:]), sizes) + BYTES)
            left -= size if size <= left else 0
            out.append(x if size <= left + size and size <= MOST_SHARED else Inline(x.stage))
        else:
            out.append(x)
    return out


def _scatter(s: Survey, number: int, e: Scatter, sizes: Mapping[str, int], fast_math: bool) -> list[Instruction]:
    """A copy of the base; then updates: where they are many in any order, if that gives equal bits; else in order, by threads
    that have elements of their own, or where these are few by warps that own stretches."""
    rank, lanes = len(s.index), max(1, min(MOST_LANES, BYTES // e.dtype.itemsize))
    out: list[Instruction] = [Threads(THREADS), *(Bind(number, a, GRID) for a in range(rank))]
    if rank and lanes > 1:
        out += [Vectorize(number, rank - 1, lanes), Unroll(number, 2)]
    loops = {k for k, _ in e.over}
    own = {owner(x, loops) for x in e.target}
    width, count = (evaluate(product(n for k, n in e.over if k in some), sizes) for some in (own, loops))
    turns = count // max(width, 1)  # that an owner goes through all
    if loops and not loops <= own and is_order_free(e.combine, e.dtype) and \
            (turns if width >= FEWEST_OWN else count // WARP_TURN) > MOST_TURNS:
        size = evaluate(product(s.root.node.outputs[0].type.shape), sizes)
        loose = fast_math and e.combine == "add" and e.dtype in (F32, F64)
        return [*out, InAnyOrder(MOST_COPY if size <= MOST_COPY and 4 * size <= count else 0, loose)]
    if not loops <= own and width < FEWEST_OWN:
        return [*out, ByOwner()]
    return [*out, *(Bind(number, rank + j, GRID) for j, (k, _) in enumerate(e.over) if k in own)]


def _running(s: Survey, number: int, e: Prefix, sizes: Mapping[str, int]) -> list[Instruction]:
    """Rows to blocks of threads, one long row to all blocks; along other axes to a thread each."""
    rank = len(s.index)
    assert isinstance(e.last, Index)
    axis = s.index.index(e.last)
    if axis == rank - 1:
        length, count = evaluate(e.extent, sizes), evaluate(product(s.root.node.outputs[0].type.shape[:axis]), sizes)
        alone = rank > 1 or length <= FEW
        most = 4 * THREADS if alone and count < FEW_ROWS else THREADS
        x = min(most, max(WARP, 1 << (-(-length // EACH) - 1).bit_length())) if length else WARP
        if count >= MANY_THREADS and length <= WARP:
            return [Threads(THREADS), *(Bind(number, a, GRID) for a in range(axis))]
        y = THREADS // x if count >= FEW_ROWS and x < THREADS else 1
        rows = [Bind(number, a, ROWS if y > 1 else (BLOCK,)) for a in range(axis)]
        return [Threads(x, y), *rows, Bind(number, axis, (THREAD_X,) if alone else GRID)]
    others = [n for a, n in enumerate(s.root.node.outputs[0].type.shape) if a != axis]
    if evaluate(product(others), sizes) >= MANY_THREADS or evaluate(e.extent, sizes) <= LONG_COLUMN:
        return [Threads(THREADS), *(Bind(number, a, GRID) for a in range(rank) if a != axis)]
    wide = _columns_beside(evaluate(others[-1], sizes))
    return [Threads(wide, THREADS // wide), *(Bind(number, a, GRID if a != axis else (BLOCK, THREAD_Y)) for a in range(rank))]


def _size(e: Reduce, sizes: Mapping[str, int]) -> int:
    extents: list[Extent] = [n for _, n in e.over]
    return evaluate(product(extents), sizes)
