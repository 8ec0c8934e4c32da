"""Chains of matrix products: products of rows that are computed from other products' rows, as attention's are, in one kernel.

A kernel of a chain goes through blocks of rows. A block's rows of each product before the last one are made in tiles of
registers, and stay in the caches; then what is folded over each row and what is made of it is computed; then the next product
takes it in. What all blocks read, the products' columns, is copied in order once.
"""
from __future__ import annotations

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.nest import For, Nest, Reduction
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.schedule import Distribute, Instruction, Pack, Parallel, Reorder, Schedule, Split, Tensorize
from loopwright.lower.contractions import DEPTH, FEWEST, ROW_BYTES, Tile, is_contraction, tile_of
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import Target
from loopwright.lower.tiling import block_of, loops

WIDE = 1 << 10  # columns: more than a vector's
MOST_ROWS = 84  # of a block: what is kept of long rows stays in the second cache


# ---- which products -----------------------------------------------------------------------------
def chains(g: Graph) -> dict[Node, Node]:
    """Products whose rows another product takes in, and what is folded over such rows on the way, with that product: its left
    side is computed from each row alone."""
    producer = {v: n for n in g.nodes for v in n.outputs}
    found: dict[Node, Node] = {}
    for n in g.nodes:
        if _takes_rows(n):
            behind = _behind(n, producer)
            if len({is_contraction(x) for x in behind}) == 2:
                found.update((x, n) for x in behind if x not in found)
    return found


def _takes_rows(n: Node) -> bool:
    """Whether a product sums over the last axis of its left side, and its rows are that side's."""
    if n.op is not dot_general or not is_contraction(n) or n.outputs[0].type.dtype.kind != "f":
        return False
    left, pairs = n.inputs[0].type, len(n.attrs["batch"])
    plain = tuple(a for a, _ in n.attrs["batch"]) == tuple(range(pairs)) and len(n.attrs["contract"]) == 1
    return plain and n.attrs["contract"][0][0] == left.rank - 1 and n.outputs[0].type.rank == left.rank >= 2 \
        and n.inputs[0].type.dtype == n.outputs[0].type.dtype


def _behind(n: Node, producer: dict[Value, Node]) -> list[Node]:
    """The products behind the left side of one that are as large as it, and the folds of rows between; none where more is
    between than a kernel computes."""
    left = n.inputs[0].type
    todo, seen, found = [n.inputs[0]], set[Value](), list[Node]()
    while todo:
        v = todo.pop()
        made = producer.get(v)
        if v in seen or made is None or made.op.loop is None:
            continue
        seen.add(v)
        if len(seen) > MOST_NODES:
            return []
        if is_contraction(made):
            if v.type == left and made.op is dot_general:
                found.append(made)
            continue
        if made.attrs.get("axes") == (left.rank - 1,) and made.inputs[0].type.shape == left.shape and v.type.rank < left.rank:
            found.append(made)
        todo.extend(made.inputs)
    return found


# ---- their schedule -----------------------------------------------------------------------------
def blocks_of_rows(region: Graph, placed: Schedule, target: Target) -> Schedule | None:
    """The schedule of a region of several products, from the placement of its stages, of which products are rows but for the
    last one, its fused loops and the lanes of its folds; None where its loops do not suit it."""
    *around, rows = _chain(build_nest(region, placed, "probe").nest)
    bytes_each = region.results[0].type.dtype.itemsize
    tile = tile_of(target, bytes_each, WIDE)
    high = MOST_ROWS // tile.heights[0] * tile.heights[0]
    schedule: list[Instruction] = [*placed, Distribute(rows.index.name, high)]
    nest = build_nest(region, tuple(schedule), "probe").nest
    for k, n in enumerate(region.nodes):
        found = _loops_of(nest, k) if is_contraction(n) else ()
        if found is None:
            return None
        schedule += _product(k, *found, around[-1].index.name if around else "", tile, bytes_each) if found else []
    shared = *[f.index.name for f in around[:1]], block_of(rows.index.name, high).name
    build_nest(region, (*schedule, Parallel(shared)), "probe")
    return (*schedule, Parallel(shared))


def _chain(nest: Nest) -> list[For]:
    """The loops that stand directly inside one another, up to the first that holds more than a loop."""
    found, body = list[For](), nest.body
    while len(body) == 1 and isinstance(body[0], For):
        found.append(body[0])
        body = body[0].body
    return found


def _loops_of(nest: Nest, stage: int) -> tuple[For, For, Reduction] | None:
    """The loops over rows and columns around a product, and its sum."""
    for f in loops(nest.body):
        for inner in f.body:
            folds = [s for s in inner.body if isinstance(s, Reduction)] if isinstance(inner, For) else []
            if isinstance(inner, For) and len(folds) == 1 and folds[0].name in (f"s{stage}", f"r{stage}"):
                extents = (f.extent, inner.extent, *(n for _, n in folds[0].over))
                few = any(isinstance(n, int) and n < FEWEST for n in extents)
                return None if few or len(folds[0].over) != 1 else (f, inner, folds[0])
    return None


def _product(stage: int, rows: For, columns: For, fold: Reduction, outer: str, tile: Tile,
             bytes_each: int) -> list[Instruction]:
    row, column, term = rows.index.name, columns.index.name, fold.over[-1][0].name
    wide = max(2, ROW_BYTES // (tile.columns * bytes_each)) * tile.columns
    if isinstance(columns.extent, int):
        wide = min(wide, max(-(-columns.extent // tile.columns), 2) * tile.columns)  # more than a panel
    return [Split(column, wide), Reorder((block_of(column, wide).name, row, column)),
            Tensorize(stage, tile.heights, tile.columns, tile.lanes, DEPTH, 2),
            Pack("right", outer, stage), Pack("left", block_of(term, DEPTH).name)]
