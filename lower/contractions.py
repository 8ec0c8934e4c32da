"""The rules that write the schedule of a matrix product with what it is computed from and what is made of it: blocks that
fit the caches, tiles that fit the registers.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, product
from loopwright.ir.graph import Graph, Node
from loopwright.ir.loops import Expr, Index, Load, walk
from loopwright.ir.nest import Block, For, Nest, Reduction
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.selection import convert
from loopwright.ir.schedule import FewTerms, Instruction, Pack, Parallel, Reorder, Schedule, Split, Tensorize
from loopwright.ir.types import BF16, F32, F64, I32, I64, U32, U64
from loopwright.lower.convolution_ops import grouped, one_group
from loopwright.lower.few_columns import FEATURES, one_of_few, spelled_out
from loopwright.lower.scheduling import build_nest, fits
from loopwright.lower.target import Target
from loopwright.lower.tiling import AMX, PARTS, SQUARE, block_of, factors, go_in_pairs, loops, may_fill, pairs_of
from loopwright.lower.window_rows import shares_windows

MOST_TERMS, FEWER_TERMS = 256, 128  # after which a tile's sums are added to memory; where there are few of them
PANEL_BYTES = 1 << 15  # of the columns' factors, which stay in the first cache from tile to tile
ROW_BYTES = 4096  # of a block's sums, which stay in the second cache with the factors of its rows
FEATURE_BYTES = 256  # of a row of a convolution's factors: those of 9 positions and 512 terms stay in the second cache
BLOCK_TERMS = 84 * 256  # of rows that take the columns' factors one tile after the other, from the second cache
UNIT_TERMS, UNIT_ROWS = 512, 256  # of a block for the tile unit: parts of the rows take two fifths of the second cache
FEW_TERMS, FEW_COLUMNS = 256, 512  # of such a block, if rows are few: parts of both sides stay in the second cache together
UNIT_BYTES, IMAGES = 1 << 20, 8  # of the columns' factors of a convolution; rows of an image that are packed together
FEW_IMAGES = 2  # of these, for vectors: with more, threads have too few to share of small images
LOW = 4, 2  # heights of tiles that have all rows of an image
WIDE, NARROW = (2, 6), (2, 4)  # vectors and positions of a spelled-out sum in flight, with 32 registers and with 16
KNOWN = 150  # terms of a convolution's sum that is spelled out, where this is known
FEWEST = 4  # rows, columns and terms: with fewer of any, what is copied in order is used too little


def is_contraction(n: Node) -> bool:
    """Whether a node may be computed in blocks: floats with one rounding for each product and sum, integers that wrap."""
    v = n.outputs[0].type
    multiplies = n.op in (one_group, grouped) or (n.op is dot_general and bool(n.attrs["contract"]))
    return multiplies and v.rank >= 2 and v.dtype in (F32, F64, I32, I64, U32, U64)


def product_schedule(region: Graph, placed: Schedule, target: Target, *, few_rows: bool = False) -> Schedule | None:
    """The schedule of a region around one contraction, from the placement of its stages and its fused loops; None where there
    is none, or its loops do not suit it. few_rows: of a product by the tile unit, whose columns' factors are used so little
    that they are divided where they are used, and not kept."""
    stages = [k for k, n in enumerate(region.nodes) if is_contraction(n)]
    if len(stages) != 1:
        return None
    stage = stages[0]
    nest = build_nest(region, placed, "probe").nest
    found = _loops_of(nest, stage)
    if found is None:
        return None
    (*outer, rows, columns), fold = found
    if not fold.over or _are_few(rows.extent, columns.extent) or _has_few_terms(region.nodes[stage], [n for _, n in fold.over]):
        return None
    try:
        left, right = factors(fold.body, rows.index, columns.index)
    except ValueError:
        return None
    is_product = region.nodes[stage].op is dot_general
    terms = _in_order_of_memory([k for k, _ in fold.over], left)
    sizes = rows.extent, columns.extent, dict(fold.over)[terms[-1]]
    read = {x for x in walk(right) if isinstance(x, Index)}
    pairs = has_pairs(target, fold.dtype) and go_in_pairs(left, right, fold.dtype)
    in_unit = target.has_tiles and fold.dtype == F32 and may_fill(sizes)
    tile = unit_tile(sizes[2], FEW_TERMS if few_rows else UNIT_TERMS) if in_unit else \
        (tile_of if is_product else high_tile_of)(target, fold.dtype.itemsize, columns.extent)
    order = [Reorder(tuple([k.name for k in terms]))] if len(terms) > 1 else []
    term = pairs_of(terms[-1]) if pairs and not in_unit else terms[-1]
    wide = max(1, (ROW_BYTES if is_product else FEATURE_BYTES) // (tile.columns * fold.dtype.itemsize)) * tile.columns
    over = [Block(k, n) for k, n in (*[x for x in fold.over if x[0] != terms[-1]], (terms[-1], sizes[2]))]
    if few_rows:
        wide = FEW_COLUMNS
    elif in_unit and not is_product:
        wide = _unit_columns(product(n for _, n in fold.over), tile)
    images = [f for f in outer[-1:] if f.index not in read and shares_windows(f.index, over, left)]
    tiled = (*placed, *order, *_blocks(stage, outer, rows, columns, term.name, read, tile, wide, pairs, images, few_rows))
    in_flight = WIDE if target.vector_registers > 16 else NARROW
    return (*tiled, *_few_terms(region, tiled, FewTerms(stage, tile.lanes, *in_flight)))


def _are_few(*extents: Extent) -> bool:
    return any(isinstance(n, int) and n < FEWEST for n in extents)


def _has_few_terms(n: Node, terms: Sequence[Extent]) -> bool:
    """Whether a sum surely has too few terms for tiles: a convolution's, of a little window of few features, is spelled out."""
    if n.op is dot_general:
        return _are_few(*terms)
    count = product(terms)
    return isinstance(count, int) and count <= KNOWN and terms[0] in FEATURES


def _few_terms(region: Graph, tiled: Schedule, x: FewTerms) -> list[Instruction]:
    """That sums over few terms have bodies of their own, where sizes say only at the call whether there are few."""
    one = one_of_few(region, x)
    return [] if one is None or not fits(one, spelled_out((*tiled, x), one)) else [x]


def has_pairs(target: Target, dtype: np.dtype) -> bool:
    """Whether an instruction sums the products of pairs of integers, or of bf16."""
    return target.is_x86 if dtype.kind != "f" else target.has_masks and "avx512bf16" in target.enabled


def products_in_pairs(g: Graph, target: Target) -> set[Node]:
    """The products of bf16, summed in f32, for which the target has an instruction: half the time of a library's for f32."""
    if not has_pairs(target, F32):
        return set()
    widened = {n.outputs[0] for n in g.nodes
               if n.op is convert and (n.inputs[0].type.dtype, n.outputs[0].type.dtype) == (BF16, F32)}
    return {n for n in g.nodes if n.op is dot_general and widened.issuperset(n.inputs)}


def _in_order_of_memory(terms: Sequence[Index], left: Expr) -> list[Index]:
    """The indices of a sum, that last which goes along the rows' memory."""
    along = {x.index[-1] for x in walk(left) if isinstance(x, Load) and x.index}
    return sorted(terms, key=lambda k: k in along)


def _loops_of(nest: Nest, stage: int) -> tuple[list[For], Reduction] | None:
    """The loops around a reduction, directly inside one another, where nothing comes before it."""
    chain = loops(nest.body)
    if len(chain) < 2 or len(nest.body) != 1 or any(a.body != (b,) for a, b in pairwise(chain)):
        return None
    first, *after = chain[-1].body
    if not isinstance(first, Reduction) or first.name not in (f"s{stage}", f"r{stage}"):
        return None
    return None if any(isinstance(s, Reduction) for s in after) else (chain, first)


@dataclass(frozen=True)
class Tile:
    """Of the registers: how many rows, in descending steps, by how many columns of how many lanes; after how many terms sums
    are added to memory; how many rows a block has; and the unit that multiplies, if that is not one for vectors."""

    heights: tuple[int, ...]
    lanes: int
    columns: int
    depth: int
    high: int
    unit: str = ""


def _of_vectors(heights: tuple[int, ...], lanes: int, vectors: int, bytes_each: int, most_terms: int = MOST_TERMS) -> Tile:
    columns = lanes * vectors
    depth = min(PANEL_BYTES // (columns * bytes_each), most_terms)
    return Tile(heights, lanes, columns, depth, BLOCK_TERMS // depth // heights[0] * heights[0])


def unit_tile(terms: Extent, most: int = UNIT_TERMS) -> Tile:
    """Of the tile unit: the more terms and rows there are, the less often sums and columns' factors are loaded."""
    depth = min(-(-terms // SQUARE) * SQUARE, most) if isinstance(terms, int) else most
    return Tile((SQUARE,), SQUARE // 2, SQUARE, depth, UNIT_ROWS, AMX)


def tile_of(target: Target, bytes_each: int, columns: Extent) -> Tile:
    """Sums fill the registers but those for one row's factor and the columns' own. Tiles as wide as they are high load least
    for each product."""
    lanes = max(1, target.vector_bits // (8 * bytes_each))
    most = 4 if target.vector_registers > 16 else 2
    vectors = next((v for v in (1, 2) if isinstance(columns, int) and columns <= v * lanes and v < most), most)
    height = (target.vector_registers - vectors - 1) // vectors
    lower = (2,) if vectors > 2 else (4, 3)
    heights = tuple(sorted({height, *(h for h in lower if h < height), 1}, reverse=True))
    return _of_vectors(heights, lanes, vectors, bytes_each, FEWER_TERMS if target.is_short_of_registers else MOST_TERMS)


def high_tile_of(target: Target, bytes_each: int, columns: Extent) -> Tile:
    """Where rows are few, as an image's: two vectors wide, as high as fits or as divides the rows of an image evenly. It reads
    the columns' factors less often, and rows are a larger share of what it reads."""
    tile = tile_of(target, bytes_each, columns)
    if target.vector_registers <= 16 or tile.columns < 2 * tile.lanes:
        return tile
    height = (target.vector_registers - 3) // 2
    return _of_vectors((*range(height, height // 2 - 1, -1), *(h for h in LOW if h < height // 2)), tile.lanes, 2, bytes_each)


def _unit_columns(terms: Extent, tile: Tile) -> int:
    """How many columns of a convolution have factors that stay in the second cache."""
    most = UNIT_BYTES // (PARTS * BF16.itemsize * terms) if isinstance(terms, int) else 0
    return max(most // tile.columns, 2) * tile.columns


def _blocks(stage: int, outer: Sequence[For], rows: For, columns: For, term: str, read: set[Index], tile: Tile,
            wide: int, pairs: bool, images: Sequence[For], few_rows: bool) -> list[Instruction]:
    """Blocks of so many columns, of which the factors are packed once; blocks of rows in them; tiles. What the columns' factors
    do not depend on stands inside. images: the loop over rows of an image whose windows share these, which are packed for some
    of them. few_rows: the columns' factors are packed for each block of terms."""
    column, row = columns.index.name, rows.index.name
    if isinstance(columns.extent, int):
        wide = min(wide, -(-columns.extent // tile.columns) * tile.columns)
    block, stripe = block_of(column, wide).name, block_of(row, tile.high).name
    around = [f.index.name for f in outer if f.index in read]
    inside = [f.index.name for f in outer if f.index not in read]
    shared = tuple(around[:1] or inside[-1:]) or (block, stripe)
    if images:
        *others, image = inside
        lines = IMAGES if tile.unit else FEW_IMAGES
        several = block_of(image, lines).name
        return [Split(column, wide), Split(row, tile.high), Split(image, lines),
                Reorder((*around, block, *others, several, stripe, image, row, column)),
                Tensorize(stage, tile.heights, tile.columns, tile.lanes, tile.depth, 2, pairs, tile.unit), Pack("right", block),
                Pack("left", stripe), Parallel(tuple(around[:1]) or (*others[-1:], several))]
    terms = block_of(term, tile.depth).name
    return [Split(column, wide), Split(row, tile.high), Reorder((*around, block, *inside, stripe, row, column)),
            Tensorize(stage, tile.heights, tile.columns, tile.lanes, tile.depth, 2, pairs, tile.unit),
            Pack("right", terms if few_rows else block), Pack("left", terms), Parallel(shared)]
