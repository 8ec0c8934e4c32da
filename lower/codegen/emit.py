"""A scheduled nest to the text of LLVM functions.

Guarantees: the text is complete but for the declarations and globals that are named beside it (sets, so that many
kernels share a module); the kernel never touches memory outside its buffers; with equal inputs it gives equal bits
whether a parallel loop runs in one piece or in chunks.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import Load, When, walk
from loopwright.ir.nest import (
    Allocate,
    Buffer,
    Contract,
    For,
    Let,
    Nest,
    Parts,
    Prefetch,
    Reduction,
    Scan,
    Statement,
    Store,
    While,
    altered,
    one_pass,
)
from loopwright.ir.schedule import ShortRows
from loopwright.ir.types import I32
from loopwright.lower.codegen import far, streams
from loopwright.lower.codegen.at_once import at_once
from loopwright.lower.codegen.beside import choosing, side_by_side, test_of
from loopwright.lower.codegen.bodies import Large, in_few_columns
from loopwright.lower.codegen.columns import in_stripes
from loopwright.lower.codegen.context import Context, Kernel, Owned, Value
from loopwright.lower.codegen.far import from_afar
from loopwright.lower.codegen.folds import fold, fold_together
from loopwright.lower.codegen.forms import (
    condition_of,
    goes_down,
    has_windows,
    in_pairs,
    local_buffers,
    may_not_end,
    serial,
    without_condition,
)
from loopwright.lower.codegen.interleaved import columns_at, store_columns
from loopwright.lower.codegen.kernel_text import KernelText
from loopwright.lower.codegen.narrowing import copied
from loopwright.lower.codegen.outlines import Outlines, definition, stored
from loopwright.lower.codegen.owners import OWNERS, own_updates, owned_by, work_of_owners
from loopwright.lower.codegen.prefetches import prefetch
from loopwright.lower.codegen.running import running_fold
from loopwright.lower.codegen.runs import Updates
from loopwright.lower.codegen.scratch import with_scratch
from loopwright.lower.codegen.shares import is_outermost, rows_of, shares, shares_of_rows
from loopwright.lower.codegen.sharing import Given, Inside, fold_shared
from loopwright.lower.codegen.spans import VectorSpan, by_width, cover, masks_slowly, narrowing, short_spans, vector_spans
from loopwright.lower.codegen.streams import fence, is_past, past_caches
from loopwright.lower.codegen.stretches import has_stretches, in_stretches
from loopwright.lower.codegen.tensors import block_span, contract, padded, panel_of, parts, stretch, unit_count
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.tile_unit import ODD, suits
from loopwright.lower.codegen.tiles import in_tiles, is_far
from loopwright.lower.codegen.whiles import repeated
from loopwright.lower.codegen.work import maths_weight
from loopwright.lower.fusing import accesses, writes
from loopwright.lower.lanes import may_raise
from loopwright.lower.runtime.later import CHOSEN, amx_of, far_of, past_of, place_of, short_of
from loopwright.lower.short_rows import beside
from loopwright.lower.target import Target

TINY = 16  # elements of a buffer that may live in registers
FEW_VECTORS = 2  # of a row that is not worth loops of its own for what is done in stretches of it


def _without_mask(context: Context, reductions: Sequence[Reduction]) -> Context:
    """Where folds are done: in all lanes, active or not, if these read nothing of their own but from panels, which have
    something for each."""
    found, kernel = [x for r in reductions for x in walk(r.body)], context.kernel
    if context.mask is None or any(r.also for r in reductions) or any(map(may_raise, found)):
        return context
    names = {context.vector, *(name for name, value in context.bindings.items() if value.varies)}
    of_panels = all(kernel.buffers[str(x.array)].place == "panel" or names.isdisjoint(kernel.terms.of(x).free)
                    for x in found if isinstance(x, Load))
    return altered(context, mask=None) if of_panels else context


class Generator(Outlines):
    """The functions of one nest under construction."""

    def __init__(self, nest: Nest, target: Target, fast_math: bool, apart: bool | None,
                 streamed: frozenset[str] = frozenset()) -> None:
        super().__init__(nest, target, fast_math, streamed)
        self.apart, self.in_unit = apart, nest.instead is not None
        is_alone = apart is False and not self.in_unit
        self.past = past_caches(nest, target) if is_alone else ()  # results that may go past the caches
        self.far = from_afar(nest, target) if is_alone else None
        self.is_short: bool | None = None  # whether rows are, in a function of one of both
        self.of_one: list[str] = []  # that function, and those of loops in it
        sizes = [product(b.shape) for b in nest.buffers]
        self.is_tiny = all(isinstance(n, int) and n <= TINY for n in sizes)

    def run(self) -> KernelText:
        buffers = {b.name: b for b in self.nest.buffers}
        kernel = self.kernel(buffers, {b.name: f"%b{k}" for k, b in enumerate(self.nest.buffers)})
        context = Context(kernel, kernel.root, {}, streamed=self.streamed)
        name = amx_of(self.nest.name) if self.in_unit else self.nest.name

        def usual(scope: Scope) -> Carried:
            with_scratch(context.at(scope), local_buffers(self.nest.body),
                              lambda inside: self.statements(inside, self.nest.body, parallel=True))
            return ()

        def where_suited(scope: Scope) -> Carried:
            kernel.buffers[ODD], kernel.pointers[ODD] = Buffer(ODD, (1,), I32, "local"), "%odd"
            branch(scope, suits(context.at(scope), self.nest.body), usual, unsuited)
            return ()

        def unsuited(scope: Scope) -> Carried:
            scope.do("store i32 1, ptr %odd, align 4")
            return ()
        body = where_suited if self.in_unit else usual
        large = self._large()
        if not self.nest.few and not large and (self.nest.ones is None or self.apart is None):
            body(context.scope)
        else:
            in_few_columns(context, self.nest, large, self.arguments(), body, apart=self.apart is not None)
        if self.streamed:
            fence(context)
        self.finish(name, kernel)
        return self.text(self.functions)

    def _large(self) -> list[Large]:
        """The functions for large arrays."""
        name, found = self.nest.name, list[Large]()
        if self.past:
            found.append(Large(past_of(name), streams.MOVED,
                               lambda c: is_past(c, self.past, [c.kernel.pointers[b.name] for b in self.past])))
        if self.far is not None:
            found.append(Large(far_of(name), far.FAR))
        return found

    def text(self, functions: list[str]) -> KernelText:
        text = "\n\n".join(functions) + "\n"
        return KernelText(self.nest.name, text, frozenset(self.declarations), frozenset(self.constants))

    def finish(self, name: str, kernel: Kernel) -> None:
        given = [*self.arguments(), *([("ptr", "%odd")] if self.in_unit else [])]
        listed = ", ".join(f"{kind} {register}" for kind, register in given).replace("ptr %b", "ptr noalias %b")
        self.functions.append(definition(f"@{name}({listed})", kernel))

    # ---- statements -----------------------------------------------------------------------------
    def statements(self, context: Context, body: tuple[Statement, ...], *, parallel: bool = False) -> None:
        """The statements in order; names given by one are known to the next."""
        done = 0
        while done < len(body):
            if columns := columns_at(context, body, done):
                store_columns(context, columns)
                done += len(columns)
                continue
            joined = one_pass(body, done)
            if len(joined) > 1 or (joined and joined[0].shared):
                context = self.folded(context, joined)
            else:
                context = self.statement(context, body[done], parallel)
            done += max(len(joined), 1)

    def folded(self, context: Context, reductions: Sequence[Reduction]) -> Context:
        here, shared = _without_mask(context, reductions), reductions[0].shared
        values = fold_shared(here, reductions, self.outlined) if shared else fold_together(here, reductions)
        for r, value in zip(reductions, values, strict=True):
            context = self.named(context, r.name, value)
        return context

    def statement(self, context: Context, statement: Statement, parallel: bool) -> Context:
        kernel = context.kernel
        match statement:
            case For(parallel=True) if parallel:
                self.parallel(context, statement)
            case For(owned=True) if parallel:
                self.updates(context, statement)
            case For():
                span: Extent | tuple[str, str] = statement.extent
                if context.part is not None and context.part[0] == statement.index:
                    span = context.part[1]
                elif statement.origin is not None:
                    span = block_span(context, statement)
                self.counted(context, statement, span, parallel=parallel)
            case Store():
                stored(context, statement)
            case Prefetch():
                prefetch(context, statement)
            case Let(name=name, value=value):
                return self.named(context, name, context.evaluate(kernel.terms.of(value)))
            case Reduction(name=name, monoid=monoid, over=over, body=expr, dtype=dtype):
                folded = fold(_without_mask(context, (statement,)), monoid, over, kernel.terms.of(expr), dtype,
                              also=statement.also, lanes=statement.lanes, unroll=statement.unroll, fused=statement.fused)
                return self.named(context, name, folded)
            case Scan():
                running_fold(context, statement)
            case While():
                return repeated(context, statement)
            case Contract():
                contract(context, statement)
            case Parts():
                parts(context, statement)
            case Allocate():
                pass  # with_scratch has made it
        return context

    def named(self, context: Context, name: str, value: Value) -> Context:
        context.kernel.wrote(name)
        return context.bind(name, value)

    def counted(self, context: Context, statement: For, span: Extent | tuple[str, str], *, parallel: bool = False) -> None:
        """A loop over [0, extent) or over a stretch: plain, or unrolled vectors, single vectors and a masked end."""
        condition = condition_of(statement)
        test = None if condition is None else context.evaluate(context.kernel.terms.of(condition))
        if test is not None and not test.varies:
            def within(scope: Scope) -> Carried:
                self.counted(context.at(scope), without_condition(statement), span, parallel=parallel)
                return ()
            branch(context.scope, test.parts[0], within)
            context.kernel.forget()
            return
        if statement.short is not None:
            self.either(context, statement, span)
            return
        whole = span if isinstance(span, tuple) else ("0", context.kernel.extent(span))
        if context.owned is not None and context.owned.loop == statement.index:
            own_updates(context, statement, whole, self.listed)
        elif statement.runs:
            updates = Updates(statement, whole, lambda row, here, run: self.vectors(row, here, row.extent, run))
            updates.run(context, lambda here: self.plain(here, statement, span, parallel=parallel))
        elif statement.jam > 1:
            at_once(context, statement, whole, partial(self.plain, parallel=parallel))
        elif statement.tiled:
            in_tiles(context, statement, whole, lambda here, inner: self.statements(here, inner.body))
        elif statement.by_rows:
            in_stripes(context, statement, whole, partial(self.vectors, statement),
                       lambda here, inner: self.statement(here, inner, parallel=False))
        elif statement.padded:
            padded(context, statement, lambda here: self.statements(here, statement.body))
        elif not self.copied(context, statement, whole):
            self.plain(context, statement, span, parallel=parallel)

    def listed(self, context: Context, statement: For, count: str, number: Callable[[Scope, str], str]) -> None:
        """So many updates of a loop, of the numbers that positions have."""
        def one_by_one(here: Context) -> None:
            def body(inner: Scope, position: str, _: list[str]) -> list[str]:
                here.kernel.forget()
                self.statements(here.bind_index(statement.index.name, number(inner, position), inner), statement.body)
                return []
            loop(here.scope, "0", count, "1", (), body)
            here.kernel.forget()
        if statement.runs:
            updates = Updates(statement, ("0", count), lambda row, here, run: self.vectors(row, here, row.extent, run), number)
            updates.run(context, one_by_one)
        else:
            one_by_one(context)

    def plain(self, context: Context, statement: For, span: Extent | tuple[str, str], *, parallel: bool) -> None:
        """A loop from its beginning to its end, in stretches where these do different things. They begin anywhere in a line."""
        stretched = not self.is_tiny and has_stretches(context, statement)
        if stretched:
            context = altered(context, streamed=frozenset())

        def run(f: For, part: Extent | tuple[str, str], most: int | None = None, here: Context = context) -> None:
            self.vectors(f, here, part, lambda inside: self.statements(inside, f.body, parallel=parallel), most)
        if not stretched:
            run(statement, span)
            return
        whole = span if isinstance(span, tuple) else ("0", context.kernel.extent(span))
        if isinstance(span, tuple) or not context.bindings:
            in_stretches(context, statement, whole, run)
            return

        def within(scope: Scope) -> Carried:  # of a row that few vectors cover
            run(replace(statement, unroll=1), span, here=context.at(scope))
            return ()

        def apart(scope: Scope) -> Carried:
            here = context.at(scope)
            in_stretches(here, statement, whole, lambda f, part, most: run(f, part, most, here))
            return ()
        branch(context.scope, context.scope.emit(f"icmp slt i64 {whole[1]}, {FEW_VECTORS * statement.lanes}"), within, apart)
        context.kernel.forget()

    def copied(self, context: Context, statement: For, span: tuple[str, str]) -> bool:
        """Whether a loop is made in three parts: it copies what is there to a buffer of the kernel's, between constants."""
        if (statement.lanes, statement.unroll, statement.step) != (1, 1, 1) or len(statement.body) != 1:
            return False
        one, kernel = statement.body[0], context.kernel
        if not isinstance(one, Store) or one.when is not None or one.combine != "set" or not isinstance(one.value, When) \
                or kernel.buffers[one.buffer].role != "local":
            return False
        found = copied(context, kernel.terms.of(one.value), statement.index, span)
        if found is None:
            return False
        body, (low, high) = found
        inside, outside = ((replace(one, value=x),) for x in (body.expr, one.value.other))
        for begin, end, stores in ((span[0], low, outside), (low, high, inside), (high, span[1], outside)):
            self.vectors(statement.with_body(stores), context, (begin, end), partial(self.statements, body=stores))
        return True

    def either(self, context: Context, rows: For, span: Extent | tuple[str, str]) -> None:
        """A loop over rows: side by side where all are short, else one by one."""
        assert rows.short is not None
        long, way, kernel = replace(rows, short=None), ShortRows(*rows.short), context.kernel
        whole = span if isinstance(span, tuple) else ("0", kernel.extent(span))

        def in_blocks(scope: Scope) -> Carried:
            short = beside(rows, way)
            assert short is not None
            side_by_side(context.at(scope), short, whole, lambda here, body: self.statements(here, tuple(body)))
            return ()

        def one_by_one(scope: Scope) -> Carried:
            self.counted(context.at(scope), long, span)
            return ()
        test = test_of(context, rows, self.is_short)
        if isinstance(test, bool):
            (in_blocks if test else one_by_one)(context.scope)
            return
        branch(context.scope, test, in_blocks, one_by_one)
        kernel.forget()

    def vectors(self, statement: For, context: Context, span: Extent | tuple[str, str], run: Callable[[Context], None],
                most: int | None = None) -> None:
        """`run` for a loop's iterations, or its vectors; `most`: how many there are at most, if known."""
        lanes, place = statement.lanes, context.scope if isinstance(span, tuple) else context.kernel.root
        written = writes(statement.body) if lanes > 1 else ()
        keeps = {context.kernel.buffers[b].role for b, _ in written}  # a masked store is slow to read back
        updates = any(isinstance(s, Store) and s.combine != "set" for s in statement.body)  # which the next one reads
        unroll = statement.unroll if most is None or most >= 2 * lanes * statement.unroll else 1
        if isinstance(span, tuple) and most is not None and most < lanes:
            spans = [VectorSpan(*span, 1, span[1], masked=True)]
        elif isinstance(span, int) and self.is_tiny:
            spans = short_spans(span, lanes)
        else:
            spans = vector_spans(context, span, lanes, unroll, one_loop="local" not in keeps,
                                 halved=lanes > 1 and has_windows(statement), singles=updates)
        if spans and spans[-1].masked and self._masks_slowly(statement, context):
            spans = narrowing(spans, lanes, place)
        rest = lanes * self._registers({context.kernel.buffers[b].dtype.itemsize for b, _ in written}, lanes)

        def over(here: Context, parts: Sequence[VectorSpan]) -> None:
            cover(here, statement, parts, rest, run, place)
        if updates and len(spans) > 2 and not isinstance(span, int) and context.kernel.target.has_masks:
            by_width(context, spans, lanes, over)
        else:
            over(context, spans)

    def _masks_slowly(self, statement: For, context: Context) -> bool:
        """Whether elements that fill no vector are soonest done without masks, since little is computed of them."""
        dtypes = [context.kernel.buffers[b].dtype for b, _ in accesses(statement.body)]
        return masks_slowly(self.target, dtypes) and not maths_weight(statement.body)

    def _registers(self, stored: set[int], lanes: int) -> int:
        """How many vectors of a loop fill a register: several where they are short, as memory gives them. `stored`: bytes of
        its elements."""
        is_short = stored and 8 * max(stored) * lanes == self.target.memory_bits
        return self.target.vector_bits // self.target.memory_bits if is_short else 1

    # ---- parallel loops -------------------------------------------------------------------------
    def parallel(self, context: Context, statement: For) -> None:
        """A loop that threads share out: as it is, or, of one block of columns, by their rows, where these are many."""
        rows = rows_of(statement) if self.in_unit and panel_of(statement) else None
        if rows is None:
            self.shared_out(context, statement)
        else:
            self.by_rows(context, statement, rows)

    def by_rows(self, context: Context, blocks: For, rows: For) -> None:
        """A block of columns as a function over some of the rows: a thread copies all factors of the columns, and stores to
        memory that no other does. All rows are done as they are where threads share out something else."""
        alone = serial(blocks)

        def run(inside: Context, given: Sequence[str], begin: str, end: str) -> None:
            def all_of_them(scope: Scope) -> Carried:
                self.shared_out(inside.at(scope), blocks)
                return ()

            def some(scope: Scope) -> Carried:
                here, span = stretch(inside.at(scope), rows, (begin, end))
                with_scratch(altered(here, part=(rows.index, span)), local_buffers(alone.body),
                             lambda there: self.counted(there, alone, alone.extent))
                return ()
            count = inside.scope.emit(f"sub i64 {end}, {begin}")
            is_all = inside.scope.emit(f"icmp eq i64 {count}, {unit_count(inside, rows)}")
            branch(inside.scope, is_all, all_of_them, some)
            inside.kernel.forget()
        function, block = self.outlined(context, (), run)
        self.on_threads(context, (function, block), shares_of_rows(context, blocks, rows),
                        lambda inside, given: inside.run("lw_column_loop", given))

    def shared_out(self, context: Context, statement: For) -> None:
        """The loop as a function over [begin, end), which finds what it reads in a block on this one's stack: the pool runs it,
        in chunks where there is enough work."""
        pairs = in_pairs(statement)

        def run(inside: Context, given: Sequence[str], begin: str, end: str) -> None:
            if pairs is not None:
                self.pairs(inside, statement, pairs, (begin, end))
                return
            inside, span = stretch(inside, statement, (begin, end))
            own = [] if self.is_short and statement.short is not None else local_buffers(statement.body)
            with_scratch(inside, own, lambda here: self.counted(here, statement, span, parallel=True))
        function, block = self.of_rows(context, statement, run) if pairs is None else self.outlined(context, (), run)
        is_outer = is_outermost(statement, in_unit=self.in_unit)

        def in_chunks(inside: Scope, given: Given) -> None:
            def loops(inner: Scope, wide: bool = False) -> Carried:
                inner.run("lw_column_loop" if is_outer else "lw_wide_loop" if wide else "lw_loop", given)
                return ()
            if may_not_end(statement.body):
                self.declarations.add("declare i64 @lw_poll(ptr, ptr)")
                inside.run("lw_watched_loop", [*given, ("ptr", "@lw_poll"), ("ptr", "%error")])
            elif statement.tiled:
                branch(inside, is_far(context.at(inside), statement), partial(loops, wide=True), loops)
            else:
                loops(inside, wide=goes_down(statement))
        self.on_threads(context, (function, block), shares(context, statement, pairs, in_unit=self.in_unit), in_chunks)

    def updates(self, context: Context, statement: For) -> None:
        """The updates of a scatter as a function over [begin, end) of the numbers that rows have: each thread does those of its
        rows, where there is enough work, and all where there is one."""
        def run(inside: Context, given: Sequence[str], begin: str, end: str) -> None:
            def arm(owned: Owned | None, scope: Scope) -> Carried:
                self.counted(altered(inside.at(scope), owned=owned), statement, statement.extent)
                return ()
            every_row = inside.scope.emit(f"icmp eq i64 {inside.scope.emit(f'sub i64 {end}, {begin}')}, {OWNERS}")
            branch(inside.scope, every_row, partial(arm, None), partial(arm, owned_by(inside, statement, begin, end)))
            inside.kernel.forget()
        function, block = self.outlined(context, (), run)
        self.on_threads(context, (function, block), (str(OWNERS), work_of_owners(context, statement), "1", "1"),
                         lambda inside, given: inside.run("lw_wide_loop", given))

    def of_rows(self, context: Context, statement: For, run: Inside) -> tuple[str, str]:
        """A parallel loop's function and block. Where rows may be short, and code for these stands apart, the function is
        chosen here, before threads are."""
        rows = choosing(statement) if self.apart is not None and self.is_short is None else None
        test = None if rows is None else test_of(context, rows)
        if not isinstance(test, str):
            return self.outlined(context, (), run)
        self.is_short, number = self.apart, len(self.functions)
        function, block = self.outlined(context, (), run, short_of(self.nest.name) if self.apart else "")
        self.is_short, self.of_one = None, self.functions[number:]
        if self.apart:
            return function, block
        place = place_of(short_of(self.nest.name))
        self.constants.add(f"@{place} = external global ptr")
        return context.scope.call("ptr", CHOSEN, [("i1", test), ("ptr", f"@{place}"), ("ptr", function)]), block

    def pairs(self, context: Context, outer: For, inner: For, span: tuple[str, str]) -> None:
        """Positions of two loops, numbered in order, from one to another: of the first and the last row a part."""
        scope, index = context.scope, outer.index.name
        columns = scope.call("i64", "llvm.smax.i64", [("i64", context.kernel.extent(inner.extent)), ("i64", "1")])
        low = scope.emit(f"udiv i64 {span[0]}, {columns}")
        past = scope.emit(f"add i64 {span[1]}, {scope.emit(f'sub i64 {columns}, 1')}")
        high = scope.emit(f"udiv i64 {past}, {columns}")

        def row(here: Context) -> None:
            at, within = here.scope, here.bindings[index].parts[0]
            before = at.emit(f"mul i64 {within}, {columns}")
            begin = at.call("i64", "llvm.smax.i64", [("i64", at.emit(f"sub i64 {span[0]}, {before}")), ("i64", "0")])
            end = at.call("i64", "llvm.smin.i64", [("i64", at.emit(f"sub i64 {span[1]}, {before}")), ("i64", columns)])
            self.counted(here, inner, (begin, end))
        with_scratch(context, local_buffers(outer.body), lambda here: self.vectors(outer, here, (low, high), row))
