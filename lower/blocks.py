"""Products of matrices in tiles, one for each block of a GPU's threads: checked, then done.

Guarantees of a nest that is accepted: the sums of a tile are in registers, each of them one thread's, which alone reads it;
what is copied to shared memory and what is summed is shared out evenly.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from loopwright.ir.dims import Extent, product
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X, THREAD_Y, InTiles
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, Local, When, minus, walk
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Let, Nest, Reduction, Statement, Store
from loopwright.ir.types import BF16, F16, F32, F64, I32, I64, U32, U64
from loopwright.lower.registers import changed, perfect
from loopwright.lower.tiling import block_of, factors

Loops = Sequence[tuple[Index, Extent]]
MOST_SHARED = 48 << 10  # bytes that a block has without asking
MOST_RING = 96 << 10  # bytes of stages that it asks for, which every device since sm_80 has
STAGES = 2  # copies of a depth: one is multiplied while the next comes
BYTES = 16  # of one access
HALVES = 8  # half floats of one access, by which rows of them are longer
WARP = 32


def in_tiles(nest: Nest, x: InTiles) -> Nest:
    """The nest with a sum of products in tiles. ValueError where it is none, or tiles do not suit the threads."""
    assert nest.threads is not None
    root, = nest.body if len(nest.body) == 1 else (None,)
    if not isinstance(root, For) or root.bind != (BLOCK,):
        raise ValueError("the root has no loops that are bound to blocks alone")
    over, innermost = perfect(root)
    s, after = _sum_of(innermost.body, x.stage)
    left, right = sides(s.body, over)
    groups = _groups(over, left, right)
    rows, columns = block_of_loops(groups[0], x.rows), block_of_loops(groups[1], x.columns)
    assert rows.origin is not None and columns.origin is not None
    high, wide, lanes = owned(x, left, right, s.dtype, nest.threads)
    sums = Buffer(f"{s.name}_sums", (x.rows, x.columns), s.dtype, "local", "registers", high * wide)
    at = minus(rows.index, rows.origin), minus(columns.index, columns.origin)
    terms = tuple([Block(k, n) for k, n in in_order_of_memory(s.over, left, right)])
    made = Contract(sums.name, at, rows, columns, terms, left, right, s.dtype, (high,), wide, depth=x.depth, unit=x.unit,
                    stages=x.stages)

    def read(e: Expr) -> Expr | None:
        return Load(sums.name, at, s.dtype) if isinstance(e, Local) and e.name == s.name else None
    inner = _loop(columns, tuple([changed(y, read) for y in after]), THREAD_X, lanes)
    body: tuple[Statement, ...] = (Allocate(sums), made, _loop(rows, (inner,), THREAD_Y))
    for part in (columns, rows):
        assert part.origin is not None and part.length is not None
        body = (For(part.origin, part.extent, body, step=part.length, bind=(BLOCK,)),)
    for k, n in reversed(groups[2]):
        body = (For(k, n, body, bind=(BLOCK,)),)
    return dataclasses.replace(nest, body=body)


def sides(e: Expr, over: Loops) -> tuple[Expr, Expr]:
    """The two sides of a product, that of the last loop on the right. What is made only where a condition holds is a side that
    is zero elsewhere: the one that knows the condition's loops."""
    if isinstance(e, When) and isinstance(e.other, Literal) and e.other.value == 0:
        left, right = sides(e.then, over)
        asked = {k for k, _ in over}.intersection(walk(e.cond))
        if asked.issubset(walk(right)):
            return left, When(e.cond, right, e.other)
        if over[-1][0] in asked:
            raise ValueError("it is made where a condition of rows and columns holds")
        return When(e.cond, left, e.other), right
    for row, _ in reversed(over[:-1]):
        try:
            return factors(e, row, over[-1][0])
        except ValueError:
            continue
    raise ValueError("it is no product of rows and columns")


def _groups(over: Loops, left: Expr, right: Expr) -> tuple[Loops, Loops, Loops]:
    """The loops of the left side alone, of the right side alone, and the others."""
    sides = [set(walk(e)) for e in (left, right)]
    rows = [x for x in over if x[0] in sides[0] - sides[1]]
    columns = [x for x in over if x[0] in sides[1] - sides[0]]
    if not rows or not columns:
        raise ValueError("there are no rows and columns")
    return rows, columns, [x for x in over if x not in rows and x not in columns]


def block_of_loops(group: Loops, size: int) -> Block:
    """A block of the positions of some loops, as those of one."""
    index = Index("_".join(k.name for k, _ in group))
    return Block(index, product(n for _, n in group), block_of(index.name, size), size, tuple(group) if len(group) > 1 else ())


def _loop(part: Block, body: tuple[Statement, ...], axis: str, lanes: int = 1) -> For:
    """The loop through a block that threads along an axis share out."""
    return For(part.index, part.extent, body, lanes, origin=part.origin, length=part.length, bind=(axis,), of=part.of)


def in_order_of_memory(over: Loops, left: Expr, right: Expr) -> Loops:
    """The terms, those last that memory of some side goes along."""
    along = {x.index[-1] for e in (left, right) for x in walk(e) if isinstance(x, Load) and x.index}
    return sorted(over, key=lambda term: term[0] in along)


def lanes_of(itemsize: int, most: int) -> int:
    """Elements of one access, of at most so many."""
    return min(max(BYTES // itemsize, 1), most)


def _sum_of(body: Sequence[Statement], stage: int) -> tuple[Reduction, Sequence[Statement]]:
    """The sum, and what is made of it."""
    s, *after = body
    if not isinstance(s, Reduction) or s.name not in (f"s{stage}", f"r{stage}"):
        raise ValueError("the loops of blocks do not begin with that sum")
    if s.monoid != "sum" or s.also or s.bind or not s.over or s.dtype not in (F32, F64, I32, I64, U32, U64):
        raise ValueError("it is no plain sum of numbers")
    if not all(isinstance(x, Let | Store) for x in after):
        raise ValueError("more than stores follows it")
    return s, after


def owned(x: InTiles, left: Expr, right: Expr, dtype: np.dtype, threads: tuple[int, int]) -> tuple[int, int, int]:
    """How many rows and columns of the sums a thread has, and of these how many neighbours. ValueError where the threads cannot
    share a tile out."""
    return _tensor_cores(x, left, right, threads) if x.unit else _alone(x, dtype, threads)


def _alone(x: InTiles, dtype: np.dtype, threads: tuple[int, int]) -> tuple[int, int, int]:
    """The same of a thread that makes one product at a time."""
    if x.rows < threads[1] or x.columns < threads[0]:
        raise ValueError("each thread has some of the sums")
    lanes = lanes_of(dtype.itemsize, BYTES)
    _check_copies(x, threads, x.depth * (x.rows + x.columns + 2 * lanes) * dtype.itemsize)
    high, wide = x.rows // threads[1], x.columns // threads[0]
    return high, wide, lanes_of(dtype.itemsize, wide)


def _tensor_cores(x: InTiles, left: Expr, right: Expr, threads: tuple[int, int]) -> tuple[int, int, int]:
    """The same of the threads of warps that multiply 16 rows and 8 columns at once."""
    kinds = [half_of(e) for e in (left, right)]
    if x.unit != "mma" or kinds[0] is None or kinds[0] != kinds[1]:
        raise ValueError("tensor cores (mma) multiply f16, or bf16, made f32")
    if threads[0] != WARP or threads[1] < 2 or x.rows < 32 or x.columns < 4 * threads[1] or x.depth < 16:
        raise ValueError("there are warps in two rows, and each has 16 rows, 8 columns and 16 terms")
    _check_copies(x, threads, (x.rows + x.columns) * (x.depth + HALVES) * 2)
    return x.rows // 16, x.columns // (2 * threads[1]), 2


def half_of(e: Expr) -> np.dtype | None:
    """The dtype of half floats that an f32 is made of, or is where a condition holds, and elsewhere 0."""
    if isinstance(e, When):
        return half_of(e.then) if isinstance(e.other, Literal) and e.other.value == 0 else None
    return e.args[0].dtype if isinstance(e, Apply) and e.fn == "convert" and e.dtype == F32 and e.args[0].dtype in (F16, BF16) \
        else None


def is_copied(e: Expr, unit: str) -> bool:
    """Whether a side is what lies in memory: its bits, for an instruction that multiplies half floats."""
    inner = e.args[0] if unit and isinstance(e, Apply) else e
    return isinstance(inner, Load) and inner.dtype.itemsize >= 2 and not any(isinstance(x, Load) for i in inner.index
                                                                             for x in walk(i))


def _check_copies(x: InTiles, threads: tuple[int, int], size: int) -> None:
    """ValueError unless each thread copies as much as the others; `size`: bytes of a stage."""
    if any(n < 1 or n & (n - 1) for n in (x.rows, x.columns, x.depth)):
        raise ValueError("rows, columns and depth are powers of two")
    if min(x.rows, x.columns) * x.depth < threads[0] * threads[1]:
        raise ValueError("threads have nothing to copy")
    most = MOST_SHARED if x.stages == STAGES else MOST_RING
    if x.stages < STAGES or x.stages * size > most:
        raise ValueError(f"there are {STAGES} stages or more, and what is copied takes no more than {most} bytes")
