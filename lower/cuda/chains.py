"""Chains of products in passes: rows for each block of threads, all columns in each pass, never rows times columns in memory.

A pass makes a tile of each product that it asks for as `blocks.py` does, sums in registers. What is folded over rows each
thread folds for its own elements of its rows, tile after tile; after a pass a table in shared memory puts those of a row
together, in order. The last pass computes the last product's left side from the tile, leaves it in shared memory, and
multiplies it there by its right side, which comes in stages. Past the edges nothing is folded, and that left side is zero.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dims import product
from loopwright.ir.loops import Expr, Local, walk
from loopwright.ir.nest import Contract, Passes, Reduction
from loopwright.ir.schedule import THREAD_X, THREAD_Y
from loopwright.lower.blocks import STAGES
from loopwright.lower.cuda.blocks import Run, Side, at_position, side_of, store_sums, through_stages
from loopwright.lower.cuda.context import PACK, Context, Share
from loopwright.lower.cuda.evaluate import evaluate
from loopwright.lower.cuda.multiplying import Alone, Means, TensorCores
from loopwright.lower.cuda.serial import Fold, element
from loopwright.lower.cuda.text import literal, register_type
from loopwright.lower.row_passes import itemsize, kept, near, padding, sharers

NEAR, KEPT = "lw_near", "lw_kept"


def passed(context: Context, s: Passes, run: Run) -> None:
    """All passes of this block's rows, and what is made of its sums."""
    _Passes(replace(context, free=(), repeats=True), s).written(run)
    context.launch.forget()


class _Passes:
    def __init__(self, context: Context, s: Passes) -> None:
        self.context, self.s, self.launch = context, s, context.launch
        self.threads = self.launch.x, self.launch.y
        of_tile, of_last = self._means(s.products[0]), self._means(s.last)
        self.rows, self.tile, self.wide = of_tile.rows, of_tile.columns, of_last.columns

    def _means(self, p: Contract) -> Means:
        return TensorCores(self.context, p) if p.unit else Alone(self.context, p)

    def written(self, run: Run) -> None:
        s, block, last = self.s, self.context.block, self.s.last
        self.launch.library.add("lw_pack", PACK)
        element, (high, long) = self._means(last).element, kept(s)
        block.line(f"__shared__ __align__(16) unsigned char {NEAR}[{near(self.threads, s)}];")
        block.line(f"__shared__ __align__(16) {element} {KEPT}[{high}][{long}];")
        for k, folds in enumerate(s.folds):
            block.line(f"// pass {k + 1}: {', '.join(f.monoid for f in folds)}")
            self._fold(folds)
        block.line("// the last pass")
        _zeros(self.context, last, self.rows.count * self.wide.count)
        self._tiles([last.left], lambda here: self._multiply(here))
        self._store(run)

    # ---- tiles ---------------------------------------------------------------------------------
    def _tiles(self, exprs: Sequence[Expr], use: Callable[[Context], None]) -> None:
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
        _zeros(context, p, self.rows.count * self.tile.count)
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

    def _each(self, context: Context, run: Callable[[Context, str], None]) -> None:
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
        i = self._row(context, r)
        j = context.block.let(launch.index_type, f"{context.names[s.columns.origin.name]} + {_at(self.tile, c)}", "i")
        ends = launch.extent(s.rows.extent), launch.extent(s.columns.extent)
        with context.block.inner(f"if ({i} < {ends[0]} && {j} < {ends[1]})") as some:
            here = self._named(at_position(at_position(context.at(some), s.rows, i), s.columns, j), r)
            for p in s.products:
                here = here.bind(p.buffer, f"{p.buffer}[{r} * {self.tile.count} + {c}]")
            run(here)

    def _row(self, context: Context, r: str) -> str:
        """Which row of the whole a thread's row is."""
        assert self.s.rows.origin is not None
        return context.block.let(self.launch.index_type, f"{context.names[self.s.rows.origin.name]} + {_at(self.rows, r)}", "i")

    def _named(self, context: Context, r: str) -> Context:
        """What is known of a row: its folds."""
        for f in (f for folds in self.s.folds for f in folds):
            context = context.bind(f.name, f"{f.name}_rows[{r}]")
        return context

    # ---- folds ---------------------------------------------------------------------------------
    def _fold(self, folds: Sequence[Reduction]) -> None:
        """A pass of folds: each thread has those of its rows afterwards."""
        block = self.context.block
        made = [Fold(f.monoid, f.dtype, f.body.dtype, self.launch.library) for f in folds]
        states = [f.declare(block, self.rows.count) for f in made]

        def one(here: Context, row: str) -> None:
            for f, fold, state in zip(folds, made, states, strict=True):
                fold.step(here.block, state, row, element(here, fold, self.launch.terms.of(f.body), evaluate), "")
        self._tiles([f.body for f in folds], lambda here: self._each(here, one))
        for f, fold, state in zip(folds, made, states, strict=True):
            self._together(f, fold, state)

    def _together(self, f: Reduction, fold: Fold, state: Sequence[str]) -> None:
        """The folds of all threads that have parts of a row as one, through a table."""
        block, count = self.context.block, sharers(self.threads, self.s.last.unit)
        assert isinstance(self.s.rows.length, int)
        table, r = block.fresh("table"), block.fresh("r")
        block.line(f"{register_type(f.dtype)} {f.name}_rows[{self.rows.count}];")
        block.line(f"{fold.kind} (*const {table})[{count + 1}] = ({fold.kind} (*)[{count + 1}]){NEAR};")
        share = f"(int){THREAD_Y} / 2 * 4 + (int){THREAD_X} % 4" if self.s.last.unit else f"(int){THREAD_X}"
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            found, = fold.joined(each, [f"({name} + {r})" for name in state], 1)
            each.line(f"{table}[{_at(self.rows, r)}][{share}] = {found};")
        block.line("__syncthreads();")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            whole, k = each.variable(fold.kind, f"{table}[{_at(self.rows, r)}][0]", "all"), each.fresh("k")
            with each.inner(f"for (int {k} = 1; {k} < {count}; ++{k})") as inside:
                fold.merge_into(inside, (whole,), (f"{table}[{_at(self.rows, r)}][{k}]",))
            each.line(f"{f.name}_rows[{r}] = {fold.result(each, (whole,))};")
        block.line("__syncthreads();")

    # ---- the last product ----------------------------------------------------------------------
    def _multiply(self, context: Context) -> None:
        """The last product's terms of a tile: its left side to shared memory, then products."""
        last, block, columns = self.s.last, context.block, self.s.columns
        means, factor = self._means(last), self._means(last).factor(last.left)
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
            through_stages(here, [side], [(columns.index, columns.extent)], (str(columns.length), last.depth), f"{origin} + ",
                           multiply)

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
                group.line(f"*({pack}*)&{KEPT}[{_at(outer, a)}][{inner.start(g)}] = whole;")

    def _store(self, run: Run) -> None:
        """What is made of the sums."""
        s, rows, columns, kind = self.s, self.rows, self.wide, self.launch.index_type
        wide = s.last.columns
        assert wide.origin is not None
        ends, over = (self.launch.extent(s.rows.extent), self.launch.extent(wide.extent)), [(wide.index, wide.extent)]
        r, g = self.context.block.fresh("r"), self.context.block.fresh("g")
        self.context.block.line("#pragma unroll")
        with self.context.block.inner(f"for (int {r} = 0; {r} < {rows.count}; ++{r})") as each:
            i = self._row(self.context.at(each), r)
            each.line("#pragma unroll")
            with each.inner(f"for (int {g} = 0; {g} < {columns.count // columns.lanes}; ++{g})") as group:
                j = group.let(kind, f"{self.context.names[wide.origin.name]} + {columns.start(g)}", "i")
                here = self._named(at_position(self.context.at(group), s.rows, i), r)

                def one(here: Context, lane: str) -> None:
                    here = at_position(here, wide, here.names[wide.index.name])
                    run(here.bind(s.last.buffer, f"{s.last.buffer}[{r} * {columns.count} + {g} * {columns.lanes} + {lane}]"),
                        s.body)
                store_sums(here, over, columns.lanes, (i, j), ends, s.body, one)


def _at(share: Share, number: str) -> str:
    """Which row or column of a tile is a thread's own of this number."""
    if share.lanes == 1:
        return share.start(number)
    return f"{share.start(f'{number} / {share.lanes}')} + {number} % {share.lanes}"


def _zeros(context: Context, p: Contract, count: int) -> None:
    """Sums that begin."""
    k = context.block.fresh("k")
    context.block.line("#pragma unroll")
    with context.block.inner(f"for (int {k} = 0; {k} < {count}; ++{k})") as inside:
        inside.line(f"{p.buffer}[{k}] = {literal(0, p.dtype)};")


def _staged(context: Context, p: Contract, side: Side, start: int, name: str = "") -> int:
    """Name the stages of a side, from a byte of the shared memory for copies on, and what a thread copies; their bytes."""
    element, name = side.means.element, name or side.name
    high, long = (p.depth, side.size) if side.lies_across else (side.size, p.depth)
    stage = f"[{high}][{long + padding(p)}]"
    context.block.line(f"{element} (*const {name}){stage} = ({element} (*){stage})({NEAR} + {start});")
    context.block.line(f"{element} {name}_next[{side.count * side.lanes}];")
    return STAGES * high * (long + padding(p)) * itemsize(p)
