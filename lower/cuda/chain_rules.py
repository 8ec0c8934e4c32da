"""The rule that writes the schedule of a chain of products for a GPU, and decides which chains are kernels at all.

A kernel in passes makes its products anew in each: with a maximum and a sum over rows, twice as many products as kernels of
their own would, which store what is as large as rows times columns, and read it again. Where warps have rows of their own this
is worth it: on an H200, scores of f16, 64 terms and columns, a thread has 28 instructions for a score, 4 of them of tensor
cores, and 2.0 ps were measured. Kernels of their own take 2.3 ps, as reckoned: 4 transfers at 4.3 TB/s and 2 products at
600 TFLOP/s. All else, tiles that all warps make together and products of f32
and f64, takes longer (8.9 ps for these scores were measured), and goes in passes where that array would be too large to be
stored. A softmax in one pass makes no product twice, and is always worth it; but it rounds otherwise than what is written,
which takes `fast_math`.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from loopwright.ir.dims import evaluate, product
from loopwright.ir.gpu_schedule import BLOCK, Bind, InPasses, Threads
from loopwright.ir.graph import Graph, Node
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.ir.nest import For, Passes
from loopwright.ir.schedule import ComputeAt, Inline, Instruction, Schedule
from loopwright.ir.types import F32
from loopwright.lower.contractions import is_contraction
from loopwright.lower.row_passes import by_warps
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.survey import Survey, survey

MOST_STORED = 1 << 30  # bytes of what is rows times columns that kernels of their own may store, but for those of warps' rows
FEWEST_BLOCKS = 64  # that give half of a GPU something to do
MANY_WARPS = 1024  # that give all of it two blocks of four each
FEWEST = 16  # rows, columns and terms: of fewer, tiles would be empty for the most part
EDGE, LEAST = 64, 32  # rows and columns of a tile; rows where blocks are few
WIDTHS = (32, 64, 128)  # columns of the last product
WARPS = Threads(32, 4)  # each of which has 16 or 32 rows of its own
UNITS = ((Threads(32, 8), 32, "mma"), (Threads(16, 16), 16, ""))


def chain_in_passes(region: Graph, sizes: Mapping[str, int], fast_math: bool = False) -> Schedule | None:
    """The schedule of a region that is a chain of products; None where it is none, or kernels of their own are better at these
    sizes. fast_math: whether sums of scaled terms may stand for what is written."""
    products = [n for n in region.nodes if is_contraction(n)]
    if len(products) < 2:
        return None
    s, last = survey(region), products[-1]
    if isinstance(s.root.expr, Scatter | Prefix) or s.loops < len(s.index) or s.loops < 2:
        return None
    placed, bound = _placed(s, products, last), [Bind(s.stages.index(s.root), a, (BLOCK,)) for a in range(s.loops - 1)]
    for threads, x in _tiles(region, products, last, sizes):
        schedule = (*placed, threads, *bound, x)
        allowed = fast_math if x.running else _is_worth_it(products, last, sizes, threads)
        least = MANY_WARPS // threads.y if x.rows > 16 * threads.y and threads == WARPS else FEWEST_BLOCKS
        if allowed and _blocks(last, x, sizes) >= least and _fits(region, schedule):
            return schedule
    return None


def _tiles(region: Graph, products: list[Node], last: Node, sizes: Mapping[str, int]) -> Iterator[tuple[Threads, InPasses]]:
    """Threads and tiles, the best ones first: warps with rows of their own, many in passes if registers hold their sums, but
    few in one pass, so that more of them run; all warps together; threads alone."""
    width, stage = _width(last, sizes), region.nodes.index(last)
    depth = EDGE if max(_terms(n, sizes) for n in products[:-1]) > LEAST else LEAST
    columns = EDGE if width <= EDGE or len(products) == 2 else LEAST
    few = InPasses(stage, 16 * WARPS.y, columns, width, depth, "mma")
    yield WARPS, replace(few, running=True)
    if width <= EDGE and _is_light(region, products):
        yield WARPS, InPasses(stage, 32 * WARPS.y, EDGE, width, depth, "mma")
    yield WARPS, few
    for threads, least, unit in UNITS:
        for rows in (EDGE, LEAST):
            made = InPasses(stage, rows, EDGE, width, least, unit)
            yield threads, replace(made, running=True)
            yield threads, made


def _is_light(region: Graph, products: list[Node]) -> bool:
    """Whether registers hold twice as many rows: one product, all half floats after it, and no array as large is read."""
    first, sides = products[0].outputs[0].type, {v for n in products for v in n.inputs}
    wide = [v for n in region.nodes for v in n.outputs if v.type.shape == first.shape and v not in sides]
    read = [v for v in region.params if v not in sides and set(first.shape[-2:]) <= set(v.type.shape)]
    return len(products) == 2 and not read and sum(v.type.dtype == F32 for v in wide) == 1


def _fits(region: Graph, schedule: Schedule) -> bool:
    """Whether a schedule makes a nest, and with `WARPS` one whose warps have rows of their own."""
    try:
        nest = build_nest(region, schedule, "probe").nest
    except ScheduleError:
        return False
    body = nest.body
    while isinstance(loop := body[0], For):
        body = loop.body
    made = next(x for x in body if isinstance(x, Passes))
    return WARPS not in schedule or by_warps((WARPS.x, WARPS.y), made)


def _placed(s: Survey, products: list[Node], last: Node) -> list[Instruction]:
    """Folds of rows where the rows are, the last product where its elements are, all else where it is read."""
    placed: list[Instruction] = []
    for k, stage in enumerate(s.stages):
        folds = isinstance(stage.expr, Reduce) and (stage.node not in products or stage.node is last)
        is_kept = (folds or stage.node.outputs[0] in s.region.results) and stage is not s.root
        placed.append(ComputeAt(k, stage.node.outputs[0].type.rank) if is_kept else Inline(k))
    return placed


def _is_worth_it(products: list[Node], last: Node, sizes: Mapping[str, int], threads: Threads) -> bool:
    """Whether passes take less than kernels of their own, or these would store too much."""
    left = last.inputs[0].type.shape
    _, rows, columns = _counts(last, sizes)
    counts = rows, _terms(last, sizes), columns
    stored = evaluate(product(left), sizes) * max(n.outputs[0].type.dtype.itemsize for n in products)
    return min(counts) >= FEWEST and (threads == WARPS or stored > MOST_STORED)


def _counts(last: Node, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """How many products the last one is, of how many rows and columns."""
    shape, pairs = last.outputs[0].type.shape, len(last.attrs["batch"])
    outer, rows, columns = (evaluate(product(x), sizes) for x in (shape[:pairs], shape[pairs:-1], shape[-1:]))
    return outer, rows, columns


def _terms(n: Node, sizes: Mapping[str, int]) -> int:
    """Over how many terms a product sums."""
    return evaluate(product(n.inputs[0].type.shape[a] for a, _ in n.attrs["contract"]), sizes)


def _width(last: Node, sizes: Mapping[str, int]) -> int:
    """How many of the last product's columns a block has: all, if there are not too many."""
    columns = _counts(last, sizes)[2]
    return next((n for n in WIDTHS if n >= columns), WIDTHS[-1])


def _blocks(last: Node, x: InPasses, sizes: Mapping[str, int]) -> int:
    outer, rows, columns = _counts(last, sizes)
    return outer * -(-rows // x.rows) * -(-columns // x.width)


