"""Chains of matrix products: products of rows that are computed from other products' rows, as attention's are, in one kernel.

A kernel of a chain goes through blocks of rows. A block's rows of each product before the last one are made in tiles of
registers, and stay in the caches; then what is folded over each row and what is made of it is computed; then the next product
takes it in. What all blocks read, the products' columns, is copied in order once.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.ir.dims import Extent
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.nest import Allocate, For, Nest, Reduction, Statement
from loopwright.ir.ops.construct import iota
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.schedule import Distribute, Instruction, Pack, Parallel, Reorder, Schedule, Skip, Split, Tensorize
from loopwright.ir.types import BF16, F16, F32, ArrayType
from loopwright.lower.contractions import FEWEST, ROW_BYTES, UNIT_TERMS, Tile, is_contraction, tile_of, unit_tile
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.masking import leaves_out
from loopwright.lower.row_products import row_products
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import Target
from loopwright.lower.tiling import block_of, loops

WIDE = 1 << 10  # columns: more than a vector's
MOST_ROWS = 30  # of a block: what is kept of long rows stays in the second cache, beside the columns' factors
MOST_SUMS = 504  # rows of a block of sums over rows, which take a panel one tile after the other
MASKED_TERMS = 256  # of the tile unit, where masks may leave some out
UNIT_HIGH, MOST_VALUES = (64, 32), 3  # rows of a block where the tile unit multiplies: of few values, of more
MOST_KEPT = 170  # rows of all values that are kept for a block


# ---- which products -----------------------------------------------------------------------------
def chains(g: Graph, halves: bool = False) -> dict[Node, Node]:
    """Products whose rows another product takes in, and what is folded over such rows on the way, with that product: its left
    side is computed from each row alone. halves: that side may be half floats, whose products are summed in f32."""
    producer = {v: n for n in g.nodes for v in n.outputs}
    found: dict[Node, Node] = {}
    for n in g.nodes:
        if takes_rows(n, halves):
            left = n.inputs[0].type
            rows = [x for x in behind(n.inputs[0], producer) if makes_rows(x, left) or _folds_rows(x, left)]
            if len({is_contraction(x) for x in rows}) == 2:
                found.update((x, n) for x in rows if x not in found)
    return found


def takes_rows(n: Node, halves: bool = False) -> bool:
    """Whether a product sums over the last axis of its left side, and its rows are that side's."""
    if n.op is not dot_general or not is_contraction(n) or n.outputs[0].type.dtype.kind != "f":
        return False
    left, pairs = n.inputs[0].type, len(n.attrs["batch"])
    plain = tuple(a for a, _ in n.attrs["batch"]) == tuple(range(pairs)) and len(n.attrs["contract"]) == 1
    return plain and n.attrs["contract"][0][0] == left.rank - 1 and n.outputs[0].type.rank == left.rank >= 2 \
        and n.inputs[0].type.dtype in (n.outputs[0].type.dtype, *((F16, BF16) if halves else ()))


def behind(v: Value, producer: Mapping[Value, Node], most: int = MOST_NODES) -> list[Node]:
    """What the side of a product is computed from, up to other products, these included; nothing where that is more than
    `most`."""
    todo, found = [v], dict[Node, None]()
    while todo:
        made = producer.get(todo.pop())
        if made is None or made in found or made.op.loop is None:
            continue
        found[made] = None
        if len(found) > most:
            return []
        if not is_contraction(made):
            todo.extend(made.inputs)
    return list(found)


def makes_rows(n: Node, left: ArrayType) -> bool:
    """Whether a node is a product as large as the left side of another one."""
    made = n.outputs[0].type
    return is_contraction(n) and n.op is dot_general and made.shape == left.shape \
        and (made.dtype == left.dtype or left.dtype in (F16, BF16))


def _folds_rows(n: Node, left: ArrayType) -> bool:
    return not is_contraction(n) and n.attrs.get("axes") == (left.rank - 1,) and n.inputs[0].type.shape == left.shape \
        and n.outputs[0].type.rank < left.rank


# ---- their schedule -----------------------------------------------------------------------------
def blocks_of_rows(region: Graph, placed: Schedule, target: Target) -> Schedule | None:
    """The schedule of a region of several products, from the placement of its stages, of which products are rows but for the
    last one, its fused loops and the lanes of its folds; None where its loops do not suit it."""
    *around, rows = _chain(build_nest(region, placed, "probe").nest, f"i{region.results[0].type.rank - 2}")
    bytes_each = region.results[0].type.dtype.itemsize
    tile = tile_of(target, bytes_each, WIDE)
    has_positions = any(n.op is iota for n in region.nodes)
    in_unit = target.has_tiles and region.results[0].type.dtype == F32
    kept = sum(isinstance(s, Allocate) for s in rows.body)
    most = min(MOST_ROWS, MOST_KEPT // max(1, kept))
    high = UNIT_HIGH[kept > MOST_VALUES] if in_unit else most // tile.heights[0] * tile.heights[0]
    schedule: list[Instruction] = [*placed, Distribute(rows.index.name, high)]
    nest = build_nest(region, tuple(schedule), "probe").nest
    for k, n in enumerate(region.nodes):
        found = _loops_of(nest, k) if is_contraction(n) else ()
        if found is None:
            return None
        if found:
            own = unit_tile(found[2].over[-1][1], MASKED_TERMS if has_positions else UNIT_TERMS) \
                if in_unit and found[2].dtype == F32 else tile
            schedule += _product(k, *found, around[-1].index.name if around else "", own, bytes_each)
    sums = [k for k, n in enumerate(region.nodes) if n.op is row_products]
    for k in sums:
        schedule += _row_sums(k, nest, tile, bytes_each)
    shared = *[f.index.name for f in around[:1]], *([] if sums else [block_of(rows.index.name, high).name])
    nest = build_nest(region, (*schedule, Parallel(shared)), "probe").nest
    masked = [Skip(k) for k, n in enumerate(region.nodes)
              if has_positions and (k in sums or is_contraction(n)) and leaves_out(nest, k)]
    return (*schedule, *masked, Parallel(shared))


def _chain(nest: Nest, row: str) -> list[For]:
    """The loops inside one another up to that over rows, which may be one with loops around it."""
    def down(body: Sequence[Statement]) -> list[For]:
        for s in body:
            if isinstance(s, For) and s.index.name.split("_")[-1] == row:
                return [s]
            if isinstance(s, For) and (inner := down(s.body)):
                return [s, *inner]
        return []
    return down(nest.body)


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


def _row_sums(stage: int, nest: Nest, tile: Tile, bytes_each: int) -> list[Instruction]:
    """A product that sums over rows: a block of them is its terms."""
    row, column = f"u{stage}_0", f"u{stage}_1"
    term, columns = next((f, inner.body[0]) for f in loops(nest.body) for inner in f.body
                         if isinstance(inner, For) and inner.index.name == row)
    assert isinstance(columns, For) and term.origin is not None
    wide, high = _width(columns.extent, tile, bytes_each), MOST_SUMS // tile.heights[0] * tile.heights[0]
    return [Split(row, high), Split(column, wide),
            Reorder((block_of(column, wide).name, block_of(row, high).name, row, column, term.index.name)),
            Tensorize(stage, tile.heights, tile.columns, tile.lanes, tile.depth, 2), Pack("right", term.origin.name, stage)]


def _width(extent: Extent, tile: Tile, bytes_each: int) -> int:
    """How many columns a block has: more than a panel."""
    wide = max(2, ROW_BYTES // (tile.columns * bytes_each)) * tile.columns
    return min(wide, max(-(-extent // tile.columns), 2) * tile.columns) if isinstance(extent, int) else wide


def _product(stage: int, rows: For, columns: For, fold: Reduction, outer: str, tile: Tile,
             bytes_each: int) -> list[Instruction]:
    row, column, term = rows.index.name, columns.index.name, fold.over[-1][0].name
    wide = _width(columns.extent, tile, bytes_each)
    return [Split(column, wide), Reorder((block_of(column, wide).name, row, column)),
            Tensorize(stage, tile.heights, tile.columns, tile.lanes, tile.depth, 2, unit=tile.unit),
            Pack("right", outer, stage), Pack("left", block_of(term, tile.depth).name)]
