"""Two nested loops in tiles: arrays that the outer one walks element by element are read along it and transposed in registers.

Blocks of large arrays are first read in the order of memory, which is how processors prefetch, and stay in the second cache. A
group of tiles is transposed to memory on the stack, then the body goes through it row by row: of each row it reads and writes a
few lines in a go, since rows that are a power of two apart would drive one another's lines out of the caches. Of large arrays,
what the next group reads is asked for. Where results are larger than caches, their lines are written past them.

Guarantees: every element is computed once, as in the plain loops; of a tile only rows and columns that are there are read, the
last column again in the place of those that are not.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.dims import product
from loopwright.ir.loops import Index, Load, walk_all
from loopwright.ir.nest import For, Store, altered
from loopwright.lower.codegen.addresses import offset_of
from loopwright.lower.codegen.context import Context, Value
from loopwright.lower.codegen.evaluate import remember
from loopwright.lower.codegen.machine import memory_type, vector_type
from loopwright.lower.codegen.memory import filled, loaded, locate_load, to_register
from loopwright.lower.codegen.prefetches import LINE
from loopwright.lower.codegen.spans import Span, masked
from loopwright.lower.codegen.streams import fence, streams
from loopwright.lower.codegen.tensors import block_span
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.transposing import turning_function
from loopwright.lower.fusing import expressions, transposed_loads

BLOCK = 1024  # of the inner loop: its lines of the transposed arrays stay in the second cache while the outer goes on
FAR_BLOCK, BLOCK_LINES = 256, 16  # of large arrays: so many positions, and lines at each, stay there (256 KiB)
FAR = 1 << 22  # bytes of an array that is likely to come from memory
MANY = 64  # positions of either loop, for which that matters
MANY_LANES = 8  # of which a tile gains where not all of its rows or columns are there, too
FEW = 4  # but of fewer rows than one in so many of a tile's each is read by itself
LINES = (2, 4)  # that a group's rows have of the transposed arrays, and of the others

Real = tuple[str, Scope]  # where the columns that are there end, and where that is known


def in_tiles(context: Context, outer: For, span: Span, run: Callable[[Context, For], None]) -> None:
    """The loops of `outer` over `span` and of the one inside it; `run` does the inner one's body."""
    inner = outer.body[0]
    assert isinstance(inner, For) and inner.lanes > 1
    terms = [context.kernel.terms.of(e) for e in transposed_loads(outer)]
    _Tiles(context, outer, inner, terms, run).blocks(context, span)


def is_far(context: Context, outer: For) -> str:
    """Whether some array that is transposed is read best in the order of memory, as an i1: it is likely to come from there, in
    more and longer pieces than processors follow by themselves."""
    inner, scope, found = outer.body[0], context.scope, "false"
    assert isinstance(inner, For)
    for e in transposed_loads(outer):
        buffer = loaded(context, context.kernel.terms.of(e))
        size = context.kernel.extent(product(buffer.shape) * buffer.dtype.itemsize)
        found = scope.emit(f"or i1 {found}, {scope.emit(f'icmp sge i64 {size}, {FAR}')}")
    for f in (outer, inner):
        found = scope.emit(f"and i1 {found}, {scope.emit(f'icmp sge i64 {context.kernel.extent(f.extent)}, {MANY}')}")
    return found


class _Tiles:
    def __init__(self, context: Context, outer: For, inner: For, terms: list[Term],
                 run: Callable[[Context, For], None]) -> None:
        self.row, self.column, self.lanes = outer.index.name, inner.index.name, inner.lanes
        self.outer, self.inner, self.terms, self.run = outer, inner, terms, run
        self.line = max(LINE // max(t.dtype.itemsize for t in terms), self.lanes)
        self.rows, self.columns = [n * self.line for n in LINES]  # of a group
        kernel = context.kernel
        self.ragged = kernel.target.has_masks and self.lanes >= MANY_LANES
        self.slots = [kernel.function.slot(self.rows * self.columns, memory_type(t.dtype), 64) for t in terms]
        self.streams = False
        loads = [e for e in walk_all(expressions(inner.body)) if isinstance(e, Load) and e.index]
        self.others = [kernel.terms.of(e) for e in dict.fromkeys(loads) if e.index[-1] == inner.index and outer.index in e.index
                       and kernel.buffers[str(e.array)].role == "input"]

    def blocks(self, context: Context, span: Span) -> None:
        """Tiles, block by block of columns; then the rows that are left."""
        scope = context.scope
        low, extent = block_span(context, self.inner)
        real = extent
        if self.inner.padded:  # to the end of the block
            extent = scope.emit(f"add nsw i64 {low}, {self.inner.length}")
            real = _least(scope, extent, context.kernel.extent(self.inner.extent))
        wide = altered(context, lanes=self.lanes, parts=1, vector=self.column)
        whole = self._whole(scope, *span)
        far = self.far = is_far(context, self.outer)
        across = scope.emit(f"select i1 {far}, i64 {FAR_BLOCK}, i64 {BLOCK}")
        count = scope.call("i64", "llvm.smax.i64", [("i64", scope.emit(f"sub nsw i64 {whole}, {span[0]}")), ("i64", "1")])
        down = scope.emit(f"select i1 {far}, i64 {BLOCK_LINES * self.line}, i64 {count}")

        def block(outer: Scope, first: str, state: list[str]) -> list[str]:
            rows = (first, _end(outer, first, down, whole))

            def some(mid: Scope, begin: str, state: list[str]) -> list[str]:
                columns = (begin, _end(mid, begin, across, extent))
                branch(mid, far, lambda inner: self._touch(wide.at(inner), rows, (begin, _least(inner, columns[1], real))))
                loop(mid, *rows, str(self.rows), (), lambda inner, at, state: self._groups(
                    wide.at(inner), (at, _end(inner, at, self.rows, rows[1])), columns, (real, scope)))
                return []
            loop(outer, low, extent, across, (), some)
            return []
        context.kernel.forget()
        loop(scope, span[0], whole, down, (), block)
        if self.ragged:
            whole = self._rest_in_tiles(wide, (whole, span[1]), (low, extent), (real, scope))
        self._without_tiles(wide, (whole, span[1]), (low, extent), (real, scope))
        if self.streams:
            fence(context)
        context.kernel.forget()

    def _touch(self, context: Context, rows: Span, columns: Span) -> Carried:
        """Read a byte of each line of a block, row of memory by row of memory. Prefetches of ours start none of its own."""
        def column(outer: Scope, at: str, state: list[str]) -> list[str]:
            def line(inner: Scope, first: str, state: list[str]) -> list[str]:
                here = altered(context, vector=self.row).bind_index(self.column, at, outer).bind_index(self.row, first, inner)
                for term in self.terms:
                    inner.emit(f"load volatile i8, ptr {locate_load(here.at(inner), term).pointer}")
                return []
            loop(outer, *rows, str(self.line), (), line)
            return []
        context.kernel.forget()
        loop(context.scope, *columns, "1", (), column)
        context.kernel.forget()
        return ()

    def _ask(self, context: Context, row: str, columns: Span) -> Carried:
        """Ask for what the next group reads in place of this row: pieces of rows are too short for processors to find."""
        further = context.scope.emit(f"add nsw i64 {row}, {self.rows}")

        def line(inner: Scope, column: str, state: list[str]) -> list[str]:
            here = context.bind_index(self.row, further, context.scope).bind_index(self.column, column, inner)
            for address in [locate_load(here, term) for term in self.others]:
                if address.offsets is None and address.stride == 1:
                    inner.run("llvm.prefetch.p0", [("ptr", address.pointer), ("i32", "0"), ("i32", "2"), ("i32", "1")])
            return []
        context.kernel.forget()
        loop(context.scope, *columns, str(self.lanes), (), line)
        context.kernel.forget()
        return ()

    def _groups(self, context: Context, rows: Span, columns: Span, real: Real) -> list[str]:
        """Some rows: groups of tiles, then the columns that are left."""
        scope, (low, high) = context.scope, columns
        end = self._whole(scope, low, _least(scope, high, real[0]))
        loop(scope, low, end, str(self.columns), (), lambda inner, at, state: self._group(
            context.at(inner), rows, (at, _end(inner, at, self.columns, end)), real))
        if not (self.inner.padded or self.ragged):
            self._without_tiles(context, rows, (end, high), real)
            return []
        self._last_columns(context, rows, (end, high), real)
        return []

    def _last_columns(self, context: Context, rows: Span, columns: Span, real: Real) -> None:
        """Some rows in tiles of which not all columns are there."""
        last = context.scope.emit(f"sub nsw i64 {real[0]}, 1")
        loop(context.scope, *columns, str(self.columns), (), lambda inner, at, state: self._group(
            context.at(inner), rows, (at, _end(inner, at, self.columns, columns[1])), real, last))

    def _rest_in_tiles(self, context: Context, rows: Span, columns: Span, real: Real) -> str:
        """Less than a tile's rows, unless they are very few; where those that are left begin."""
        scope, (low, high) = context.scope, rows
        some = scope.emit(f"icmp sge i64 {scope.emit(f'sub nsw i64 {high}, {low}')}, {self.lanes // FEW}")
        end = scope.emit(f"select i1 {some}, i64 {high}, i64 {low}")

        def run(inner: Scope) -> Carried:
            self._last_columns(context.at(inner), rows, columns, real)
            return ()
        context.kernel.forget()
        branch(scope, some, run)
        context.kernel.forget()
        return end

    def _group(self, context: Context, rows: Span, columns: Span, real: Real, last: str | None = None) -> list[str]:
        """Tiles, transposed; then the body, row by row. The `last` column is in the place of those behind it."""
        def row(outer: Scope, at: str, state: list[str], streamed: frozenset[str]) -> list[str]:
            if self.others:
                branch(outer, self.far, lambda inner: self._ask(context.at(inner), at, columns))

            def vector(inner: Scope, column: str, state: list[str]) -> list[str]:
                here = context.bind_index(self.row, at, outer).bind_index(self.column, column, inner)
                if last is not None:
                    here = altered(masked(here, self.column, *real), padded=self.inner.padded)
                place = self._place(inner, rows, columns, at, column)
                for term, slot in zip(self.terms, self.slots, strict=True):
                    element = memory_type(term.dtype)
                    pointer = inner.emit(f"getelementptr {element}, ptr {slot}, i64 {place}")
                    raw = inner.emit(f"load {vector_type(element, self.lanes)}, ptr {pointer}, align {term.dtype.itemsize}")
                    found = to_register(here, inner, raw, term.dtype)
                    remember(here, term, Value((found,), term.dtype, self.lanes, inner))
                self.run(altered(here, streamed=streamed), self.inner)
                return []
            loop(outer, *columns, str(self.lanes), (), vector)
            return []

        def body(streamed: frozenset[str]) -> Callable[[Scope], Carried]:
            def run(scope: Scope) -> Carried:
                context.kernel.forget()
                loop(scope, *rows, "1", (), lambda outer, at, state: row(outer, at, state, streamed))
                return ()
            return run
        for term, slot in zip(self.terms, self.slots, strict=True):
            self._transpose(altered(context, vector=self.row), term, slot, (rows, columns), last)
        first = context.bind_index(self.row, rows[0], context.scope).bind_index(self.column, columns[0], context.scope)
        past = streams(first, self.row, self.inner.body) if last is None else None
        if past is None:
            body(frozenset())(context.scope)
        else:
            self.streams = True
            stored = frozenset([s.buffer for s in self.inner.body if isinstance(s, Store)])
            branch(context.scope, past, body(stored), body(frozenset()))
        return []

    def _without_tiles(self, context: Context, rows: Span, columns: Span, real: Real) -> None:
        """The body for one vector of columns after the other, in each row."""
        def vector(outer: Scope, column: str, state: list[str]) -> list[str]:
            here = altered(context.bind_index(self.column, column, outer), padded=self.inner.padded)
            here = masked(here, self.column, *real)

            def row(inner: Scope, at: str, state: list[str]) -> list[str]:
                self.run(here.bind_index(self.row, at, inner), self.inner)
                return []
            context.kernel.forget()
            loop(outer, *rows, "1", (), row)
            return []
        loop(context.scope, *columns, str(self.lanes), (), vector)

    def _whole(self, scope: Scope, low: str, high: str) -> str:
        """The end of the last whole tile from low."""
        count = scope.emit(f"sub nsw i64 {high}, {low}")
        return scope.emit(f"add nsw i64 {low}, {scope.emit(f'and i64 {count}, {-self.lanes}')}")

    def _place(self, scope: Scope, rows: Span, columns: Span, row: str, column: str) -> str:
        """Where an element of a group is in the slots."""
        above = scope.emit(f"mul nsw i64 {scope.emit(f'sub nsw i64 {row}, {rows[0]}')}, {self.columns}")
        return scope.emit(f"add nsw i64 {above}, {scope.emit(f'sub nsw i64 {column}, {columns[0]}')}")

    def _transpose(self, context: Context, term: Term, slot: str, spans: tuple[Span, Span], last: str | None) -> None:
        """A group's rows and columns of an array, read along the rows' index, to memory that vectors of columns are read from;
        the `last` column is in the place of those behind it."""
        scope, buffer, (rows, columns) = context.scope, loaded(context, term), spans
        name, declarations, texts = turning_function(memory_type(buffer.dtype), self.lanes, self.columns, context.kernel.target)
        scope.function.declarations |= declarations
        scope.function.constants |= texts
        here = context.bind_index(self.row, rows[0], scope).bind_index(self.column, columns[0], scope)
        pointer, (terms, _) = locate_load(here, term).pointer, offset_of(context, buffer, term.args)
        apart, = (c for t, c in terms.items() if isinstance(t.expr, Index) and t.expr.name == self.column)
        numbers, places = (scope.emit(f"sub nsw i64 {end}, {begin}") for begin, end in spans)
        lines = scope.emit(f"add nsw i64 {scope.emit(f'sub nsw i64 {last}, {columns[0]}')}, 1") if last is not None else places
        counts = ", ".join(f"i64 {x}" for x in (context.kernel.extent(apart), lines, places, numbers))
        call = f"call void @{name}(ptr {pointer}, {counts}, ptr {slot})"

        def run(inner: Scope) -> Carried:
            inner.do(call)
            return ()
        some = filled(context, term.args)
        if some is None:
            run(scope)
        else:
            branch(scope, some, run)


def _end(scope: Scope, begin: str, size: int | str, high: str) -> str:
    return _least(scope, scope.emit(f"add nsw i64 {begin}, {size}"), high)


def _least(scope: Scope, a: str, b: str) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", b)])
