"""Chains of products in passes: rows for each block of threads, all columns in each pass, never rows times columns in memory.

A pass makes a tile of each product that it asks for as `blocks.py` does, sums in registers. What is folded over rows each
thread folds for its own elements of its rows, tile after tile; after a pass a table in shared memory puts those of a row
together, in order. The last pass computes the last product's left side from the tile, leaves it in shared memory, and
multiplies it there by its right side, which comes in stages. Past the edges nothing is folded, and that left side is zero.
Where each warp has rows of its own, `warp_chains.py` writes them otherwise.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dims import product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Expr, Local, walk
from loopwright.ir.nest import Contract, Passes, Reduction, Running
from loopwright.ir.types import F32
from loopwright.lower.blocks import STAGES
from loopwright.lower.cuda.blocks import Run, Side, at_position, side_of, through_stages
from loopwright.lower.cuda.context import PACK, Context
from loopwright.lower.cuda.evaluate import evaluate, value
from loopwright.lower.cuda.folds import ALL
from loopwright.lower.cuda.multiplying import Alone, Means, TensorCores
from loopwright.lower.cuda.row_chains import RowPasses, position_of
from loopwright.lower.cuda.serial import Fold, element
from loopwright.lower.cuda.text import register_type
from loopwright.lower.cuda.warp_chains import ByWarps
from loopwright.lower.row_passes import WEIGHT, by_warps, itemsize, kept, near, padding, sharers

NEAR, KEPT = "lw_near", "lw_kept"
NARROW = 64  # columns of the last product


def passed(context: Context, s: Passes, run: Run) -> None:
    """All passes of this block's rows, and what is made of its sums."""
    launch = context.launch
    way = ByWarps if by_warps((launch.x, launch.y), s) else Together
    way(replace(context, free=(), repeats=True), s).written(run)
    launch.forget()


class Together(RowPasses):
    """All warps make each tile together."""

    def __init__(self, context: Context, s: Passes) -> None:
        super().__init__(context, s)
        self.threads = self.launch.x, self.launch.y
        of_tile, of_last = self._means(s.products[0]), self._means(s.last)
        self.launch.at_once = 2 if fits_twice(s) else 1
        self.rows, self.tile, self.rows_of_last, self.wide = of_tile.rows, of_tile.columns, of_last.rows, of_last.columns
        self.unit = s.products[0].unit

    def _means(self, p: Contract) -> Means:
        return TensorCores(self.context, p) if p.unit else Alone(self.context, p)

    def declare(self) -> None:
        s, block = self.s, self.context.block
        self.launch.library.add("lw_pack", PACK)
        element, (high, long) = self._means(s.last).element, kept(s)
        block.line(f"__shared__ __align__(16) unsigned char {NEAR}[{near(self.threads, s)}];")
        block.line(f"__shared__ __align__(16) {element} {KEPT}[{high}][{long}];")

    # ---- tiles ---------------------------------------------------------------------------------
    def tiles(self, exprs: Sequence[Expr], use: Callable[[Context], None]) -> None:
        """Tile after tile of the columns, with the products that expressions ask for."""
        columns, kind = self.s.columns, self.launch.index_type
        assert columns.origin is not None
        asked = {x.name for e in exprs for x in walk(e) if isinstance(x, Local)}
        first, end = self.context.block.fresh("first"), self.launch.extent(columns.extent)
        self.launch.forget()
        with self.context.block.inner(f"for ({kind} {first} = 0; {first} < {end}; {first} += {columns.length})") as inside:
            here = self.context.at(inside).bind(columns.origin.name, first)
            for p in self.s.products:
                if p.buffer in asked:
                    self._product(here, p)
            use(here)
        self.launch.forget()

    def _product(self, context: Context, p: Contract) -> None:
        """A product's tile, in registers."""
        block, means = context.block, self._means(p)
        block.line(f"{register_type(p.dtype)} {p.buffer}[{self.rows.count * self.tile.count}];")
        self.begin(p, self.rows, self.tile, context)
        with block.inner("") as inside:
            here = context.at(inside)
            sides = [side_of(here, p, name, e, at, means) for name, e, at in (("left", p.left, p.rows),
                                                                              ("right", p.right, p.columns))]
            start = 0
            for side in sides:
                start += _staged(here, p, side, start)
            terms = self.launch.extent(product(k.extent for k in p.over))
            through_stages(here, sides, [(k.index, k.extent) for k in p.over], (terms, p.depth), "",
                           lambda there, stage, _: means.multiply(there, p, f"[{stage}]", [x.lies_across for x in sides]))

    def each(self, context: Context, run: Callable[[Context, str], None]) -> None:
        """Something for each element of a tile that there is, given the number of its row among the thread's."""
        r, c = context.block.fresh("r"), context.block.fresh("c")
        context.block.line("#pragma unroll")
        with context.block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            each.line("#pragma unroll")
            with each.inner(f"for (int {c} = 0; {c} < {self.tile.count}; ++{c})") as one:
                self._element(context.at(one), (r, c), lambda here: run(here, r))

    def _element(self, context: Context, at: tuple[str, str], run: Callable[[Context], None]) -> None:
        """Something for one of a thread's elements of a tile, if it is one of the whole."""
        (r, c), s, launch = at, self.s, self.launch
        assert s.columns.origin is not None
        i = self.row(context, self.rows, r)
        j = context.block.let(launch.index_type, f"{context.names[s.columns.origin.name]} + {position_of(self.tile, c)}", "i")
        ends = launch.extent(s.rows.extent), launch.extent(s.columns.extent)
        with context.block.inner(f"if ({i} < {ends[0]} && {j} < {ends[1]})") as some:
            here = self.named(at_position(at_position(context.at(some), s.rows, i), s.columns, j), r)
            for p in s.products:
                here = here.bind(p.buffer, f"{p.buffer}[{r} * {self.tile.count} + {c}]")
            run(here.bind(WEIGHT, f"{WEIGHT}[{r} * {self.tile.count} + {c}]"))

    # ---- folds ---------------------------------------------------------------------------------
    def fold(self, folds: Sequence[Reduction]) -> None:
        """A pass of folds: each thread has those of its rows afterwards."""
        block = self.context.block
        made = [Fold(f.monoid, f.dtype, f.body.dtype, self.launch.library) for f in folds]
        states = [f.declare(block, self.rows.count) for f in made]

        def one(here: Context, row: str) -> None:
            for f, fold, state in zip(folds, made, states, strict=True):
                fold.step(here.block, state, row, element(here, fold, self.launch.terms.of(f.body), evaluate), "")
        self.tiles([f.body for f in folds], lambda here: self.each(here, one))
        for f, fold, state in zip(folds, made, states, strict=True):
            self.together(f, fold, state)

    def together(self, f: Reduction, fold: Fold, state: Sequence[str]) -> None:
        """The folds of all threads that have parts of a row as one, through a table."""
        block, count = self.context.block, sharers(self.threads, self.unit)
        assert isinstance(self.s.rows.length, int)
        table, r = block.fresh("table"), block.fresh("r")
        block.line(f"{register_type(f.dtype)} {f.name}_rows[{self.rows.count}];")
        block.line(f"{fold.kind} (*const {table})[{count + 1}] = ({fold.kind} (*)[{count + 1}]){NEAR};")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            found, = fold.joined(each, [f"({name} + {r})" for name in state], 1)
            each.line(f"{table}[{position_of(self.rows, r)}][{self.share()}] = {found};")
        block.line("__syncthreads();")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            whole, k = each.variable(fold.kind, f"{table}[{position_of(self.rows, r)}][0]", "all"), each.fresh("k")
            with each.inner(f"for (int {k} = 1; {k} < {count}; ++{k})") as inside:
                fold.merge_into(inside, (whole,), (f"{table}[{position_of(self.rows, r)}][{k}]",))
            each.line(f"{f.name}_rows[{r}] = {fold.result(each, (whole,))};")
        block.line("__syncthreads();")

    # ---- one pass --------------------------------------------------------------------------------
    def run_on(self, context: Context, running: Running, most: Fold, sums: Fold, state: Sequence[str]) -> None:
        (high,), _ = self.s.folds
        seen = most.declare(context.block, self.rows.count)
        self.each(context, lambda here, row: most.step(here.block, seen, row, element(
            here, most, self.launch.terms.of(high.body), evaluate), ""))
        self._agree(context, most, seen[0])
        self.scaled(context, running, most, seen[0], state)
        context.block.line(f"{register_type(running.weight.dtype)} {WEIGHT}[{self.rows.count * self.tile.count}];")
        self.each(context, lambda here, row: self._weigh(here, running, sums, state, row))
        self.multiply(context, running.left)

    def _weigh(self, context: Context, running: Running, sums: Fold, state: Sequence[str], row: str) -> None:
        """A term of the sum, and of the products."""
        context.block.line(f"{context.names[WEIGHT]} = {value(context, running.weight)};")
        sums.step(context.block, state, row, element(context, sums, self.launch.terms.of(
            Local(WEIGHT, running.weight.dtype)), evaluate), "")

    def _agree(self, context: Context, most: Fold, seen: str) -> None:
        """The greatest of each row's elements, for all threads that have some."""
        block, of_warp = context.block, 4 if self.s.last.unit else self.launch.x
        assert isinstance(self.s.rows.length, int)
        r, d = block.fresh("r"), block.fresh("d")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            each.line("#pragma unroll")
            with each.inner(f"for (int {d} = {of_warp // 2}; {d} > 0; {d} /= 2)") as step:
                other = step.let(most.kind, f"__shfl_xor_sync({ALL}, {seen}[{r}], {d})")
                most.merge_into(step, (f"{seen}[{r}]",), (other,))
        if not self.s.last.unit:
            return
        warps, table, k = self.launch.y // 2, block.fresh("table"), block.fresh("k")
        block.line(f"__shared__ {most.kind} {table}[{self.s.rows.length}][{warps + 1}];")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            each.line(f"if ({THREAD_X} % 4 == 0) {table}[{position_of(self.rows, r)}][{THREAD_Y} / 2] = {seen}[{r}];")
        block.line("__syncthreads();")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            each.line("#pragma unroll")
            with each.inner(f"for (int {k} = 0; {k} < {warps}; ++{k})") as one:
                most.merge_into(one, (f"{seen}[{r}]",), (f"{table}[{position_of(self.rows, r)}][{k}]",))

    # ---- the last product ----------------------------------------------------------------------
    def multiply(self, context: Context, left: Expr) -> None:
        """The last product's terms of a tile: its left side to shared memory, then products."""
        last, block, columns = self.s.last, context.block, self.s.columns
        means, factor = self._means(last), self._means(last).factor(left)
        assert columns.origin is not None and isinstance(columns.length, int)
        side = side_of(context, last, "right", last.right, last.columns, means)
        self._keep(context, means, factor)
        origin = context.names[columns.origin.name]
        with block.inner("") as inside:
            here = context.at(inside)
            _staged(here, last, side, 0, "right_stages")
            side = replace(side, name="right_stages")

            def multiply(there: Context, stage: str, first: str) -> None:
                long, across = kept(self.s)[1], last.unit == ""
                there.block.line(f"{means.element} (*const left)[{long}] = ({means.element} (*)[{long}])"
                                 f"&{KEPT}{f'[{first}][0]' if across else f'[0][{first}]'};")
                there.block.line(f"auto* const right = right_stages[{stage}];")
                means.multiply(there, last, "", [across, side.lies_across])
            # what is kept is there for all when the threads meet after the first terms were copied
            over = columns.of or [(columns.index, columns.extent)]
            through_stages(here, [side], over, (str(columns.length), last.depth), f"{origin} + ", multiply)

    def _keep(self, context: Context, means: Means, factor: Expr) -> None:
        """The left side of a tile, in shared memory; zero past the edges."""
        rows, columns, block, last = self.rows, self.tile, context.block, self.s.last
        inner, outer = (columns, rows) if last.unit else (rows, columns)  # neighbours in shared memory, and others
        a, g = block.fresh("a"), block.fresh("g")
        pack = f"lw_pack<{means.element}, {inner.lanes}>"
        block.line("#pragma unroll")
        with block.inner(f"for (int {a} = 0; {a} < {outer.count}; ++{a})") as other:
            other.line("#pragma unroll")
            with other.inner(f"for (int {g} = 0; {g} < {inner.count // inner.lanes}; ++{g})") as group:
                group.line(f"{pack} whole;")
                e = group.fresh("e")
                group.line("#pragma unroll")
                with group.inner(f"for (int {e} = 0; {e} < {inner.lanes}; ++{e})") as lane:
                    b = lane.let("int", f"{g} * {inner.lanes} + {e}", "at")
                    lane.line(f"whole.at[{e}] = 0;")
                    self._element(context.at(lane), (a, b) if last.unit else (b, a), lambda here: here.block.line(
                        f"whole.at[{e}] = {means.stored(here, factor)};"))
                group.line(f"*({pack}*)&{KEPT}[{position_of(outer, a)}][{inner.start(g)}] = whole;")

    def share(self) -> str:
        """The number of a thread among those that have parts of the same rows."""
        return f"(int){THREAD_Y} / 2 * 4 + (int){THREAD_X} % 4" if self.unit else f"(int){THREAD_X}"


def fits_twice(s: Passes) -> bool:
    """Whether half of the registers hold a block's sums, so that another one computes while threads of this one wait."""
    assert isinstance(s.last.columns.length, int)
    plain = len(s.products) == 1 and s.last.dtype == F32 and not s.columns.of  # places of several loops take registers
    return plain and s.last.columns.length <= NARROW


def _staged(context: Context, p: Contract, side: Side, start: int, name: str = "") -> int:
    """Name the stages of a side, from a byte of the shared memory for copies on, and what a thread copies; their bytes."""
    element, name = side.means.element, name or side.name
    high, long = (p.depth, side.size) if side.lies_across else (side.size, p.depth)
    stage = f"[{high}][{long + padding(p)}]"
    context.block.line(f"{element} (*const {name}){stage} = ({element} (*){stage})({NEAR} + {start});")
    context.block.line(f"{element} {name}_next[{side.count * side.lanes}];")
    return STAGES * high * (long + padding(p)) * itemsize(p)
