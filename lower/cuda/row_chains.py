"""What all ways to write a chain of products in passes share: sums that begin, what is known of a row, what is stored.

Rows and columns of a tile, and of the sums, are shared out among threads; a way says how, and writes the passes.
"""
from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from loopwright.ir.loops import Expr
from loopwright.ir.nest import Contract, Passes, Reduction, Running
from loopwright.ir.types import F32, F64
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.blocks import Run, at_position, store_sums
from loopwright.lower.cuda.context import Context, Share
from loopwright.lower.cuda.evaluate import value
from loopwright.lower.cuda.serial import Fold
from loopwright.lower.cuda.text import literal, register_type
from loopwright.lower.row_passes import REFERENCE


class RowPasses(ABC):
    """The passes of a block's rows. rows, tile: the rows and columns of a tile that are a thread's; rows_of_last, wide:
    those of the sums."""

    rows: Share
    tile: Share
    rows_of_last: Share
    wide: Share

    def __init__(self, context: Context, s: Passes) -> None:
        self.context, self.s, self.launch = context, s, context.launch

    def written(self, run: Run) -> None:
        s, block = self.s, self.context.block
        self.declare()
        if s.running is not None:
            self._in_one_pass(s.running)
            self._store(run)
            return
        for k, folds in enumerate(s.folds):
            block.line(f"// pass {k + 1}: {', '.join(f.monoid for f in folds)}")
            self.fold(folds)
        block.line("// the last pass")
        self.begin(s.last, self.rows_of_last, self.wide)
        self.tiles([s.last.left], lambda here: self.multiply(here, s.last.left))
        self._store(run)

    @abstractmethod
    def declare(self) -> None:
        """Shared memory."""

    @abstractmethod
    def tiles(self, exprs: Sequence[Expr], use: Callable[[Context], None]) -> None:
        """Tile after tile of the columns, with the products that expressions ask for."""

    @abstractmethod
    def fold(self, folds: Sequence[Reduction]) -> None:
        """A pass of folds: each thread has those of its rows afterwards."""

    @abstractmethod
    def together(self, f: Reduction, fold: Fold, state: Sequence[str]) -> None:
        """The folds of all threads that have parts of a row as one, which all of them have."""

    @abstractmethod
    def multiply(self, context: Context, left: Expr) -> None:
        """The last product's terms of a tile."""

    @abstractmethod
    def run_on(self, context: Context, running: Running, most: Fold, sums: Fold, state: Sequence[str]) -> None:
        """A tile of a softmax in one pass."""

    @abstractmethod
    def share(self) -> str:
        """The number of a thread among those that have parts of the same rows."""

    def begin(self, p: Contract, rows: Share, columns: Share, context: Context | None = None) -> None:
        """Sums that begin."""
        block = (context or self.context).block
        k = block.fresh("k")
        block.line("#pragma unroll")
        with block.inner(f"for (int {k} = 0; {k} < {rows.count * columns.count}; ++{k})") as inside:
            inside.line(f"{p.buffer}[{k}] = {literal(0, p.dtype)};")

    def row(self, context: Context, rows: Share, r: str) -> str:
        """Which row of the whole a thread's row is."""
        assert self.s.rows.origin is not None
        first = context.names[self.s.rows.origin.name]
        return context.block.let(self.launch.index_type, f"{first} + {position_of(rows, r)}", "i")

    def named(self, context: Context, r: str) -> Context:
        """What is known of a row: its folds."""
        for f in (f for folds in self.s.folds for f in folds):
            context = context.bind(f.name, f"{f.name}_rows[{r}]")
        return context.bind(REFERENCE, f"{REFERENCE}[{r}]")

    # ---- one pass --------------------------------------------------------------------------------
    def _in_one_pass(self, running: Running) -> None:
        """A softmax and its product: what was summed with a lesser maximum is scaled when a tile has a greater one. Where a row
        has seen nothing but -inf, differences are from 0, so that what comes later counts."""
        (high,), (total,) = self.s.folds
        block, rows, last = self.context.block, self.rows, self.s.last
        most, sums = (Fold(f.monoid, f.dtype, f.body.dtype, self.launch.library) for f in (high, total))
        block.line("// one pass: maximum, sum and products as they run")
        for name, dtype, zero in ((f"{high.name}_rows", most.work, most.zero()[0]), (REFERENCE, running.reference.dtype, "0")):
            block.line(f"{register_type(dtype)} {name}[{rows.count}] = {{{', '.join([zero] * rows.count)}}};")
        state = sums.declare(block, rows.count)
        self.begin(last, self.rows_of_last, self.wide)
        self.tiles([high.body, running.weight], lambda here: self.run_on(here, running, most, sums, state))
        self.together(total, sums, state)
        if running.divisor is not None:
            self._divided(running.divisor)

    def scaled(self, context: Context, running: Running, most: Fold, seen: str, state: Sequence[str]) -> None:
        """What was summed, for the maximum that a tile makes."""
        (high,), _ = self.s.folds
        block, library, dtype = context.block, self.launch.library, running.reference.dtype
        kind, lowest = register_type(dtype), literal(-math.inf, dtype)
        r, c = block.fresh("r"), block.fresh("c")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            now = f"{high.name}_rows[{r}]"
            before = each.let(most.kind, now)
            most.merge_into(each, (now,), (f"{seen}[{r}]",))
            found = value(self.named(context.at(each), r), running.reference)
            reference = each.let(kind, f"{found} == {lowest} ? {literal(0, dtype)} : {found}")
            less = f"{REFERENCE}[{r}] - {reference}"
            made = arithmetic.applied(library, "exp", F64 if dtype == F64 else F32, [less])
            scale = each.let(kind, f"{before} == {lowest} ? {literal(0, dtype)} : {made}")
            each.line(f"{REFERENCE}[{r}] = {reference};")
            with each.inner(f"if ({scale} != 1)") as greater:
                for name in state:
                    greater.line(f"{name}[{r}] *= {scale};")
                greater.line("#pragma unroll")
                with greater.inner(f"for (int {c} = 0; {c} < {self.wide.count}; ++{c})") as one:
                    one.line(f"{self.s.last.buffer}[{r} * {self.wide.count} + {c}] *= {scale};")

    def _divided(self, divisor: Expr) -> None:
        """The products, by what their weights were to be divided by."""
        block = self.context.block
        r, c = block.fresh("r"), block.fresh("c")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            by = value(self.named(self.context.at(each), r), divisor)
            each.line("#pragma unroll")
            with each.inner(f"for (int {c} = 0; {c} < {self.wide.count}; ++{c})") as one:
                one.line(f"{self.s.last.buffer}[{r} * {self.wide.count} + {c}] /= {by};")

    # ---- the end ---------------------------------------------------------------------------------
    def _store_numbers(self, run: Run) -> None:
        """What is of a row alone, by one of the threads that have it, in the first of its blocks."""
        s, block, launch = self.s, self.context.block, self.launch
        assert s.last.columns.origin is not None
        first = f"{self.context.names[s.last.columns.origin.name]} == 0 && {self.share()} == 0"
        with block.inner(f"if ({first})") as alone:
            r = alone.fresh("r")
            alone.line("#pragma unroll")
            with alone.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
                i = self.row(self.context.at(each), self.rows, r)
                with each.inner(f"if ({i} < {launch.extent(s.rows.extent)})") as some:
                    run(self.named(at_position(self.context.at(some), s.rows, i), r), s.numbers)

    def _store(self, run: Run) -> None:
        """What is made of the sums."""
        if self.s.numbers:
            self._store_numbers(run)
        s, rows, columns, kind = self.s, self.rows_of_last, self.wide, self.launch.index_type
        wide = s.last.columns
        assert wide.origin is not None
        ends, over = (self.launch.extent(s.rows.extent), self.launch.extent(wide.extent)), [(wide.index, wide.extent)]
        r, g = self.context.block.fresh("r"), self.context.block.fresh("g")
        self.context.block.line("#pragma unroll")
        with self.context.block.inner(f"for (int {r} = 0; {r} < {rows.count}; ++{r})") as each:
            i = self.row(self.context.at(each), rows, r)
            each.line("#pragma unroll")
            with each.inner(f"for (int {g} = 0; {g} < {columns.count // columns.lanes}; ++{g})") as group:
                j = group.let(kind, f"{self.context.names[wide.origin.name]} + {columns.start(g)}", "i")
                here = self.named(at_position(self.context.at(group), s.rows, i), r)

                def one(here: Context, lane: str) -> None:
                    here = at_position(here, wide, here.names[wide.index.name])
                    run(here.bind(s.last.buffer, f"{s.last.buffer}[{r} * {columns.count} + {g} * {columns.lanes} + {lane}]"),
                        s.body)
                store_sums(here, over, columns.lanes, (i, j), ends, s.body, one)


def position_of(share: Share, number: str) -> str:
    """Which row or column of a tile is a thread's own of this number."""
    if share.lanes == 1:
        return share.start(number)
    return f"{share.start(f'{number} / {share.lanes}')} + {number} % {share.lanes}"
