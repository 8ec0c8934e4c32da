"""Products of matrices in tiles, one for each block of a GPU's threads: checked, then done.

Guarantees of a nest that is accepted: the sums of a tile are in registers, each of them one thread's, which alone reads it;
what is copied to shared memory and what is summed is shared out evenly.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from loopwright.ir.loops import Expr, Load, Local, minus
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Let, Nest, Reduction, Statement, Store
from loopwright.ir.schedule import BLOCK, THREAD_X, THREAD_Y, InTiles
from loopwright.ir.types import F32, F64, I32, I64, U32, U64
from loopwright.lower.registers import changed, perfect
from loopwright.lower.tiling import block_of, factors

MOST_SHARED = 48 << 10  # bytes that a block has without asking
STAGES = 2  # copies of a depth: one is multiplied while the next comes
BYTES = 16  # of one access


def in_tiles(nest: Nest, x: InTiles) -> Nest:
    """The nest with a sum of products in tiles. ValueError where it is none, or tiles do not suit the threads."""
    assert nest.threads is not None
    root, = nest.body if len(nest.body) == 1 else (None,)
    if not isinstance(root, For) or root.bind != (BLOCK,):
        raise ValueError("the root has no loops that are bound to blocks alone")
    over, innermost = perfect(root)
    s, after = _sum_of(innermost.body, x.stage)
    if len(over) < 2:
        raise ValueError("there are no rows and columns")
    _check_shares(x, s, nest.threads)
    (row, rows), (column, columns) = over[-2:]
    left, right = factors(s.body, row, column)
    top, side = block_of(row.name, x.rows), block_of(column.name, x.columns)
    threads, high = nest.threads, x.rows // nest.threads[1]
    sums = Buffer(f"{s.name}_sums", (x.rows, x.columns), s.dtype, "local", "registers", high * (x.columns // threads[0]))
    at = minus(row, top), minus(column, side)
    made = Contract(sums.name, at, Block(row, rows, top, x.rows), Block(column, columns, side, x.columns),
                    tuple([Block(k, n) for k, n in s.over]), left, right, s.dtype, (high,), x.columns // threads[0],
                    depth=x.depth)

    def read(e: Expr) -> Expr | None:
        return Load(sums.name, at, s.dtype) if isinstance(e, Local) and e.name == s.name else None
    lanes = lanes_of(s.dtype.itemsize, x.columns // threads[0])
    made_of = tuple([changed(y, read) for y in after])
    inner = For(column, columns, made_of, lanes, origin=side, length=x.columns, bind=(THREAD_X,))
    stores = For(row, rows, (inner,), origin=top, length=x.rows, bind=(THREAD_Y,))
    body: tuple[Statement, ...] = (For(side, columns, (Allocate(sums), made, stores), step=x.columns, bind=(BLOCK,)),)
    body = (For(top, rows, body, step=x.rows, bind=(BLOCK,)),)
    for k, n in reversed(over[:-2]):
        body = (For(k, n, body, bind=(BLOCK,)),)
    return dataclasses.replace(nest, body=body)


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


def _check_shares(x: InTiles, s: Reduction, threads: tuple[int, int]) -> None:
    """ValueError unless each thread copies as much as the others, and has as many sums."""
    if any(n < 1 or n & (n - 1) for n in (x.rows, x.columns, x.depth)) or x.rows < threads[1] or x.columns < threads[0]:
        raise ValueError("rows, columns and depth are powers of two, and each thread has some of the sums")
    if min(x.rows, x.columns) * x.depth < threads[0] * threads[1]:
        raise ValueError("threads have nothing to copy")
    lanes = lanes_of(s.dtype.itemsize, BYTES)
    if STAGES * x.depth * (x.rows + x.columns + 2 * lanes) * s.dtype.itemsize > MOST_SHARED:
        raise ValueError(f"what is copied takes more than {MOST_SHARED} bytes")
