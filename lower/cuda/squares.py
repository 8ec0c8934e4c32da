"""Squares of the last two loops of arrays that are read across, through shared memory: both sides of it go along memory.
Which loop comes before the last is the schedule's to say (`Reorder`).

Guarantees: each thread issues all of its loads of a square before it waits for the first; no two threads of a warp meet in one
bank of shared memory while accesses have 4 bytes, or are of one element; elements past the ends are neither read nor stored.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Index, Load
from loopwright.ir.nest import For, Let, Statement, Store
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import WARP, Context
from loopwright.lower.cuda.packs import (
    Over,
    Pack,
    Run,
    aligned,
    declare_packs,
    each_lane,
    eager,
    known_lanes,
    load_packs,
    packs,
    singles,
    unravelled,
)
from loopwright.lower.cuda.text import Block, memory_type, register_type
from loopwright.lower.fusing import transposed_loads

SQUARE_BYTES = 4  # of one access
MOST_SHARED = 48 << 10  # bytes of squares, of one block


@dataclass(frozen=True)
class Square:
    """A square of so many rows and columns, which blocks of `y` rows of threads make. tiles: what is read across, each with its
    array in shared memory. i, j: the loops of its rows and columns, and where these begin."""

    edge: int
    y: int
    tiles: tuple[tuple[Term, str], ...]
    i: tuple[Index, Extent, str]
    j: tuple[Index, Extent, str]

    def each(self, context: Context, rows: tuple[Index, Extent, str], columns: tuple[Index, Extent, str], lanes: int,
             run: Callable[[Context, str, str, str], None], everywhere: bool = False) -> None:
        """A thread's accesses of so many elements along the columns, those inside both ends or everywhere: `run` is given the
        number of the access, and its row and its first column in the square."""
        launch, block, kind = context.launch, context.block, context.launch.index_type
        steps, u = self.edge // (WARP * lanes), block.fresh("u")
        block.line("#pragma unroll")
        with block.inner(f"for (int {u} = 0; {u} < {self.count(lanes)}; ++{u})") as inside:
            step, along = (f"{u} / {steps}", f"{u} % {steps} * {WARP} + (int){THREAD_X}") if steps > 1 else \
                (u, f"(int){THREAD_X}")
            r = inside.let("int", f"{step} * {self.y} + (int){THREAD_Y}", "k")
            c = inside.let("int", f"({along}) * {lanes}" if lanes > 1 else along, "k")
            if everywhere:
                run(context.at(inside), u, r, c)
                return
            row, column = inside.let(kind, f"{rows[2]} + {r}", "i"), inside.let(kind, f"{columns[2]} + {c}", "i")
            test = f"{row} < {launch.extent(rows[1])} && {column} < {launch.extent(columns[1])}"
            with inside.inner(f"if ({test})") as own:
                here = replace(context.at(own), repeats=True).bind(rows[0].name, row).bind(columns[0].name, column)
                run(here, u, r, c)

    def count(self, lanes: int) -> int:
        """A thread's accesses."""
        return self.edge * self.edge // (WARP * self.y * lanes)


def in_squares(context: Context, over: Over, edge: int, body: Sequence[Statement], run: Run) -> None:
    """Squares of the last two loops: what is walked along the first of them is read so, into shared memory, and from there
    along the last. edge: theirs, if shared memory holds so large ones."""
    launch, block = context.launch, context.block
    (i, height), (j, width) = over[-2:]
    exprs, stores = [x.value for x in body if isinstance(x, Let | Store)], [x for x in body if isinstance(x, Store)]
    always = [t for e in exprs for t in eager(launch.terms.of(e))]
    loads = [launch.terms.of(e) for e in transposed_loads(For(i, height, (For(j, width, tuple(body), lanes=WARP),)))]
    loads = [t for t in loads if t in always or all(isinstance(x.expr, Index) for x in t.args)]  # whose ends are plain
    edge = edge if edge > WARP and edge * (edge + 4) * sum(t.dtype.itemsize for t in loads) <= MOST_SHARED else WARP
    context, top, left = _corner(context, over, edge)
    narrowest = min([launch.buffers[x].dtype.itemsize for t in loads for x in t.buffers], default=SQUARE_BYTES)
    lanes = max(1, min(edge // WARP, SQUARE_BYTES // narrowest))
    pitch = edge + max(1, 4 // (lanes * narrowest))  # an odd number of words from thread to thread
    square = Square(edge, launch.y, tuple([(t, block.fresh("tile")) for t in loads]), (i, height, top), (j, width, left))
    for t, tile in square.tiles:
        block.line(f"__shared__ {memory_type(t.dtype)} {tile}[{edge}][{pitch}];")

    across = packs(context, [(j, width), (i, height)], lanes, [t.expr for t in loads], [])
    others = singles(context, {i.name, j.name}, exprs)
    along = [p for p in packs(context, [(i, height), (j, width)], lanes, exprs, stores)
             if isinstance(p.at, Store) or (p.at not in loads and any(p.at == x.at for x in others))]
    one = [Pack(t, str(t.expr.array), ()) for t in loads if isinstance(t.expr, Load)], [p for p in others if p.at not in loads]
    if lanes == 1 or len(across) < len(loads):
        _made(context, over, always, square, 1, *one, run)
        return
    condition = aligned(context, [*across, *along], lanes)
    with block.inner(f"if ({condition or 'true'})") as inside:
        _made(context.at(inside), over, always, square, lanes, across, along, run)
    if condition:
        other = Block(block)
        _made(context.at(other), over, always, square, 1, *one, run)
        block.otherwise(other)


def _inside(context: Context, over: Over, t: Term) -> str:
    """Whether a place lies inside an array that ends before the loops do; "" where it does not."""
    assert isinstance(t.expr, Load)
    launch, extents = context.launch, dict(over)
    ends = zip(t.args, launch.buffers[str(t.expr.array)].shape, strict=True)
    return " && ".join(f"{context.names[x.expr.name]} < {launch.extent(n)}" for x, n in ends
                       if isinstance(x.expr, Index) and extents.get(x.expr) != n)


def _corner(context: Context, over: Over, edge: int) -> tuple[Context, str, str]:
    """The loops around the squares, and where the rows and columns of this block's begin: neighbouring blocks go along rows."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    (i, height), (j, width) = over[-2:]
    squares = [*over[:-2], *((k, (n + (edge - 1)) // edge) for k, n in ((i, height), (j, width)))]
    launch.grid = product(n for _, n in squares)
    context = unravelled(context, squares, launch.thread("blockIdx.x"))
    top, left = [block.let(kind, f"{context.names[k.name]} * {edge}", "at") for k in (i, j)]
    return replace(context, names={**context.names, i.name: "", j.name: ""}), top, left


def _made(context: Context, over: Over, always: Sequence[Term], square: Square, lanes: int, across: Sequence[Pack],
          along: Sequence[Pack], run: Run) -> None:
    """One square by accesses of so many elements: loads of all, then those across to shared memory, then what is made."""
    launch, block = context.launch, context.block
    slots = f"[{square.count(lanes)}]"
    loaded = {**declare_packs(context, across, lanes, slots, is_zero=True), **declare_packs(context, along, lanes, slots)}
    launch.forget()

    def take(here: Context, u: str, r: str, c: str) -> None:
        for p in across:
            assert isinstance(p.at, Term)
            load_packs(here, [p], lanes, loaded, f"[{u}]", "" if p.at in always else _inside(here, over, p.at))

    def keep(here: Context, u: str, r: str, c: str) -> None:
        load_packs(here, along, lanes, loaded, f"[{u}]")

    def put(here: Context, u: str, r: str, c: str) -> None:
        for t, tile in square.tiles:
            for e in range(lanes):
                here.block.line(f"{tile}[{r}][{c}{f' + {e}' if e else ''}] = {loaded[t.number]}[{u}].at[{e}];")

    def use(here: Context, u: str, r: str, c: str) -> None:
        def one(lane: Context, e: str) -> None:
            for t, tile in square.tiles:
                at = f"{tile}[{c}{f' + {e}' if lanes > 1 else ''}][{r}]"
                text = arithmetic.from_memory(launch.library, at, t.dtype)
                lane.block.values[lane.key(t)] = lane.block.let(register_type(t.dtype), text)
            run(lane, e)
        if lanes > 1:
            each_lane(here, [(square.j[0], square.j[1])], lanes, along, loaded, f"[{u}]", one)
        else:
            known_lanes(here, along, loaded, f"[{u}]", "0")
            one(here, "0")
    square.each(context, square.j, square.i, lanes, take)
    if any(isinstance(p.at, Term) for p in along):
        square.each(context, square.i, square.j, lanes, keep)
    square.each(context, square.j, square.i, lanes, put, everywhere=True)
    block.line("__syncthreads();")
    square.each(context, square.i, square.j, lanes, use)
    launch.forget()
