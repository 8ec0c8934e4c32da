"""The rule that writes the schedule of a chain of products for a GPU, and decides which chains are kernels at all.

A kernel in passes makes its products anew in each: with a maximum and a sum over rows, twice as many products as kernels of
their own would, which store what is as large as rows times columns, and read it again. Half floats are multiplied so quickly
that this is worth it. Of f32 and f64 it is where that array would be too large to be stored. A softmax in one pass makes no
product twice, and is always worth it; but it rounds otherwise than what is written, which takes `fast_math`.
"""
from __future__ import annotations

from collections.abc import Mapping

from loopwright.ir.dims import evaluate, product
from loopwright.ir.gpu_schedule import BLOCK, Bind, InPasses, Threads
from loopwright.ir.graph import Graph, Node
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.ir.schedule import ComputeAt, Inline, Instruction, Schedule
from loopwright.lower.contractions import is_contraction
from loopwright.lower.scheduling import fits
from loopwright.lower.survey import Survey, survey

MOST_STORED = 1 << 30  # bytes of what is rows times columns that kernels of their own may store in f32 and f64
FEWEST_BLOCKS = 64  # that give half of a GPU something to do
FEWEST = 16  # rows, columns and terms: of fewer, tiles would be empty for the most part
EDGE, LEAST = 64, 32  # rows and columns of a tile; rows where blocks are few
WIDTHS = (32, 64, 128)  # columns of the last product
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
    for threads, depth, unit in UNITS:
        has_many = _is_worth_it(products, last, sizes, unit)
        bound = [Bind(s.stages.index(s.root), a, (BLOCK,)) for a in range(s.loops - 1)]
        before = (*_placed(s, products, last), threads, *bound)
        ways = [(True, rows) for rows in (EDGE, LEAST) if fast_math] + [(False, rows) for rows in (EDGE, LEAST) if has_many]
        for running, rows in ways:
            x = InPasses(region.nodes.index(last), rows, EDGE, _width(last, sizes), depth, unit, running)
            if _blocks(last, x, sizes) >= FEWEST_BLOCKS and fits(region, (*before, x)):
                return (*before, x)
    return None


def _placed(s: Survey, products: list[Node], last: Node) -> list[Instruction]:
    """Folds of rows where the rows are, the last product where its elements are, all else where it is read."""
    placed: list[Instruction] = []
    for k, stage in enumerate(s.stages):
        folds = isinstance(stage.expr, Reduce) and (stage.node not in products or stage.node is last)
        is_kept = (folds or stage.node.outputs[0] in s.region.results) and stage is not s.root
        placed.append(ComputeAt(k, stage.node.outputs[0].type.rank) if is_kept else Inline(k))
    return placed


def _is_worth_it(products: list[Node], last: Node, sizes: Mapping[str, int], unit: str) -> bool:
    left = last.inputs[0].type.shape
    _, rows, columns = _counts(last, sizes)
    counts = rows, evaluate(product(left[a] for a, _ in last.attrs["contract"]), sizes), columns
    stored = evaluate(product(left), sizes) * max(n.outputs[0].type.dtype.itemsize for n in products)
    return min(counts) >= FEWEST and (unit != "" or stored > MOST_STORED)


def _counts(last: Node, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """How many products the last one is, of how many rows and columns."""
    shape, pairs = last.outputs[0].type.shape, len(last.attrs["batch"])
    outer, rows, columns = (evaluate(product(x), sizes) for x in (shape[:pairs], shape[pairs:-1], shape[-1:]))
    return outer, rows, columns


def _width(last: Node, sizes: Mapping[str, int]) -> int:
    """How many of the last product's columns a block has: all, if there are not too many."""
    columns = _counts(last, sizes)[2]
    return next((n for n in WIDTHS if n >= columns), WIDTHS[-1])


def _blocks(last: Node, x: InPasses, sizes: Mapping[str, int]) -> int:
    outer, rows, columns = _counts(last, sizes)
    return outer * -(-rows // x.rows) * -(-columns // x.width)


