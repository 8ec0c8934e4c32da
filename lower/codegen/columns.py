"""Reductions of columns, row by row: the accumulators of a stripe of columns lie in the first cache while rows go past.

A loop with lanes whose body folds over other indices would walk down its columns vector by vector, and of each row read
a few lines at a time. Here the loops of a fold go outside: rows are folded in blocks, the vectors of the stripe inside.
Guarantees: an element's fold is the same wherever its stripe begins and however wide it is; sums of floats run in blocks
of blocks, as all others do.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.loops import Apply, Expr, Index, Load, Local, Reduce, transform, walk
from loopwright.ir.nest import For, Statement
from loopwright.lower.codegen.arithmetic import FORMULAS
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.evaluate import remember
from loopwright.lower.codegen.fold_states import Fold, Joint, State
from loopwright.lower.codegen.folds import cascade
from loopwright.lower.codegen.machine import register_type
from loopwright.lower.codegen.spans import Span, VectorSpan, cover
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Carried, Scope, alone, branch, loop
from loopwright.lower.fusing import by_rows
from loopwright.lower.passes import MOST_JOINED

ROWS = 8  # folded in registers: so many lines at a distance have places of their own in any first cache
OUTER_ROWS = 64  # where no lines of rows are read: an inner loop that ends costs about twelve cycles
WIDE = 256  # columns from which on the code goes through these without a loop: each load goes along a row of its own then
BLOCKS = (64, 32)  # blocks of rows, blocks of those: additions in a row
BYTES = 1 << 15  # of the accumulators of the first level

OverVectors = Callable[[Context, Span, Callable[[Context], None]], None]  # runs something for every vector of a span
Execute = Callable[[Context, Statement], Context]


@dataclass(frozen=True, eq=False)
class Column:
    """Folds of the loop's body that share a pass: the first statement that they are in, and their accumulators by level, then
    by component."""

    statement: int
    terms: tuple[Term, ...]
    folding: Joint
    kinds: tuple[str, ...]  # of the components
    index: str
    extent: Extent
    sizes: tuple[int, ...]  # rows of a block, by level from the second
    slots: tuple[tuple[str, ...], ...]
    few: str  # whether all rows make one block: then the first level is the last
    is_outer: bool  # of nothing in memory that has both rows and columns
    together: int  # rows that registers fold before the accumulators of the first level have them


def in_stripes(context: Context, statement: For, span: Span, over_vectors: OverVectors, execute: Execute) -> None:
    """The loop over `span`, stripe by stripe."""
    _Stripes(context, statement, over_vectors, execute).run(context, span)


class _Stripes:
    def __init__(self, context: Context, statement: For, over_vectors: OverVectors, execute: Execute) -> None:
        self.statement, self.name, self.body = statement, statement.index.name, statement.body
        self.over_vectors, self.execute = over_vectors, execute
        found = _passes(by_rows(self.body))
        whole = statement.lanes * statement.unroll
        folds = [e for _, joined in found for e in joined]
        widest = max(8 if e.dtype.itemsize == 8 or e.monoid.startswith("arg") else 4 for e in folds)
        room = BYTES // (widest * len(folds))
        self.width = max(room // whole, 1) * whole
        self.columns = [self._column(context, k, joined) for k, joined in found]

    def _column(self, context: Context, statement: int, joined: Sequence[Reduce]) -> Column:
        kernel, (index, extent) = context.kernel, joined[0].over[0]
        bodies = [_renamed(e.body, e.over[0][0], index) for e in joined]
        folds = [Fold(context, e.monoid, kernel.terms.of(b), e.dtype, ()) for e, b in zip(joined, bodies, strict=True)]
        folding = Joint(folds)
        is_outer = not any(_goes_both_ways(y, index, self.name) for b in bodies for y in walk(b))
        together = OUTER_ROWS if is_outer else 1 if _has_formulas(bodies) else ROWS
        sizes = _sizes(joined[0], together) if folding.cascades else ()
        kinds = tuple(kind for f in folds for kind in (register_type(f.work), *(["i64"] if f.positions else [])))
        places = [_stored(kind) for kind in kinds]
        slots = tuple(tuple(kernel.function.slot(self.width, place, 64) for place in places) for _ in range(1 + len(sizes)))
        few = "false"
        if sizes:
            few = kernel.root.emit(f"icmp sle i64 {kernel.extent(extent)}, {sizes[0]}")
            first = [kernel.root.emit(f"select i1 {few}, ptr {b}, ptr {a}") for a, b in zip(slots[0], slots[-1], strict=True)]
            slots = (tuple(first), *slots[1:])
        terms = tuple(map(kernel.terms.of, joined))
        return Column(statement, terms, folding, kinds, index.name, extent, sizes, slots, few, is_outer, together)

    def run(self, context: Context, span: Span) -> None:
        low, high = span

        def stripe(inner: Scope, at: str, state: list[str]) -> list[str]:
            here, part = context.at(inner), (at, _end(inner, at, self.width, high))
            for k, column in enumerate(self.columns):
                self._fold(here, column, part, self.columns[:k])

            def finish(c: Context) -> None:
                self._statements(c, at, self.columns, len(self.body))
            self.over_vectors(here, part, finish)
            return []
        loop(context.scope, low, high, str(self.width), (), stripe)

    def _statements(self, c: Context, first: str, done: Sequence[Column], end: int) -> Context:
        """The statements of the body up to one, with folds that are done read from their accumulators."""
        for k, statement in enumerate(self.body[:end]):
            self._remember(c, first, [x for x in done if x.statement == k])
            c = self.execute(c, statement)
        return c

    def _remember(self, c: Context, first: str, columns: Sequence[Column]) -> None:
        for x in columns:
            states = x.folding.split(self._load(c, x, len(x.sizes), first))
            for term, fold, state in zip(x.terms, x.folding.folds, states, strict=True):
                remember(c, term, fold.result(c, c.scope, state))

    # ---- one fold ------------------------------------------------------------------------------
    def _fold(self, here: Context, x: Column, part: Span, done: Sequence[Column]) -> None:
        """All rows, into the accumulators of the last level."""
        first = part[0]

        def rows(scope: Scope, level: int, low: str, high: str) -> None:
            if level == 0:
                self._blocks(here.at(scope), x, part, (low, high), done)
                return

            def add(c: Context) -> None:
                self._merge(c, x, level, first, self._load(c, x, level - 1, first))

            def block(inner: Scope, at: str, state: list[str]) -> list[str]:
                self._unless_few(here.at(inner), x, lambda c: self._clear(c, x, level - 1, part))
                rows(inner, level - 1, at, _end(inner, at, x.sizes[level - 1], high))
                self._unless_few(here.at(inner), x, lambda c: self._each(c, part, add))
                return []
            loop(scope, low, high, str(x.sizes[level - 1]), (), block)
        self._clear(here, x, len(x.sizes), part)
        rows(here.scope, len(x.sizes), "0", here.kernel.extent(x.extent))

    def _unless_few(self, here: Context, x: Column, run: Callable[[Context], None]) -> None:
        def many(scope: Scope) -> Carried:
            run(here.at(scope))
            return ()
        branch(here.scope, x.few, lambda scope: (), many)

    def _blocks(self, here: Context, x: Column, part: Span, span: Span, done: Sequence[Column]) -> None:
        """Some rows into the accumulators of the first level, a few at a time by registers: for all vectors, so that rows are
        read in one go, or, where there are none in memory, for one vector after the other."""
        low, high = span

        def folded(c: Context, begin: str, end: str, runs: bool) -> None:
            c = self._statements(c, part[0], done, x.statement)
            self._remember(c, part[0], [y for y in done if y.statement == x.statement])
            start = list(zip(x.folding.types(c), x.folding.zero(c), strict=True))

            def row(inner: Scope, at: str, state: State) -> State:
                return x.folding.step(c.bind_index(x.index, at, inner), state, x.index)

            def fold(scope: Scope, first: str, last: str, runs: bool) -> State:
                def straight(scope: Scope) -> Carried:
                    state = [value for _, value in start]
                    for k in range(x.together):
                        at = scope.emit(f"add nsw i64 {first}, {k}") if k else first
                        state = alone(scope, partial(row, at=at, state=state))
                    return list(zip(x.folding.types(c), state, strict=True))

                def in_turn(scope: Scope) -> Carried:
                    state = loop(scope, first, last, "1", start, row, runs=runs)
                    return list(zip(x.folding.types(c), state, strict=True))
                if x.together == 1:
                    return [value for _, value in straight(scope)]
                if not runs or x.is_outer or c.mask is not None:
                    return [value for _, value in in_turn(scope)]
                whole = scope.emit(f"icmp eq i64 {last}, {scope.emit(f'add nsw i64 {first}, {x.together}')}")
                wide = scope.emit(f"icmp sge i64 {scope.emit(f'sub i64 {part[1]}, {part[0]}')}, {WIDE}")
                return branch(scope, scope.emit(f"and i1 {whole}, {wide}"), straight, in_turn)
            state = cascade(c.scope, (begin, end), (x.together,) if x.is_outer else (), start, fold,
                            lambda scope, a, b: x.folding.merge(scope, a, b, c.lanes), runs)
            self._merge(c, x, 0, part[0], state)

        def block(inner: Scope, begin: str, state: list[str]) -> list[str]:
            end = _end(inner, begin, x.together, high)
            self.over_vectors(here.at(inner), part, lambda c: folded(c, begin, end, True))
            return []
        if x.is_outer:
            self.over_vectors(here, part, lambda c: folded(c, low, high, False))
        else:
            loop(here.scope, low, high, str(x.together), (), block)

    # ---- accumulators --------------------------------------------------------------------------
    def _clear(self, here: Context, x: Column, level: int, part: Span) -> None:
        def clear(c: Context) -> None:
            self._store(c, x, level, part[0], x.folding.zero(c))
        self._each(here, part, clear)

    def _each(self, here: Context, part: Span, run: Callable[[Context], None]) -> None:
        """`run` for each vector of the accumulators, which are near: one at a time is soon done, and little to compile."""
        cover(here, self.statement, [VectorSpan(*part, 1)], self.statement.lanes, run, here.scope)

    def _merge(self, c: Context, x: Column, level: int, first: str, state: State) -> None:
        old = self._load(c, x, level, first)
        self._store(c, x, level, first, x.folding.merge(c.scope, old, state, c.lanes))

    def _load(self, c: Context, x: Column, level: int, first: str) -> State:
        places = self._places(c, x, level, first)
        return [_load(c.scope, kind, at) for kind, at in zip(x.folding.types(c), places, strict=True)]

    def _store(self, c: Context, x: Column, level: int, first: str, state: State) -> None:
        for kind, at, value in zip(x.folding.types(c), self._places(c, x, level, first), state, strict=True):
            _store(c.scope, kind, value, at)

    def _places(self, c: Context, x: Column, level: int, first: str) -> list[str]:
        """Of each register of the state, in the accumulators that begin at column `first`. A stripe is whole vectors: those
        of inactive lanes are there too."""
        offset = c.scope.emit(f"sub nsw i64 {c.bindings[self.name].parts[0]}, {first}")
        found = []
        for slot, kind in zip(x.slots[level], x.kinds, strict=True):
            for part in range(c.parts):
                at = c.scope.emit(f"add nsw i64 {offset}, {part * c.lanes}") if part else offset
                found.append(c.scope.emit(f"getelementptr {_stored(kind)}, ptr {slot}, i64 {at}"))
        return found


def _stored(kind: str) -> str:
    """The type in memory of what is in registers: masks are bytes there."""
    return re.sub(r"\bi1\b", "i8", kind)


def _load(scope: Scope, kind: str, at: str) -> str:
    if (stored := _stored(kind)) == kind:
        return scope.emit(f"load {kind}, ptr {at}, align 4")
    return scope.emit(f"trunc {stored} {scope.emit(f'load {stored}, ptr {at}, align 1')} to {kind}")


def _store(scope: Scope, kind: str, value: str, at: str) -> None:
    if (stored := _stored(kind)) == kind:
        scope.do(f"store {kind} {value}, ptr {at}, align 4")
    else:
        scope.do(f"store {stored} {scope.emit(f'zext {kind} {value} to {stored}')}, ptr {at}, align 1")


def _passes(folds: Sequence[tuple[int, Reduce]]) -> list[tuple[int, list[Reduce]]]:
    """Folds over as many rows that nothing stands between, and of which none needs another: a few at a time."""
    found: list[tuple[int, list[Reduce]]] = []
    last = -1
    for k, e in folds:
        joined = found[-1][1] if found else []
        named = any(isinstance(x, Local) for x in walk(e.body))
        if joined and not named and k <= last + 1 and len(joined) < MOST_JOINED and joined[0].over[0][1] == e.over[0][1]:
            joined.append(e)
        else:
            found.append((k, [e]))
        last = k
    return found


def _goes_both_ways(x: Expr, row: Index, column: str) -> bool:
    """Whether it is read at other places for other rows, and for other columns."""
    found = {y.name for e in x.index for y in walk(e) if isinstance(y, Index)} if isinstance(x, Load) else set()
    return {row.name, column} <= found


def _renamed(e: Expr, old: Index, new: Index) -> Expr:
    return transform(e, lambda x: new if x == old else None)


def _has_formulas(bodies: Sequence[Expr]) -> bool:
    return any(isinstance(x, Apply) and x.fn in FORMULAS for b in bodies for x in walk(b))


def _sizes(e: Reduce, size: int) -> tuple[int, ...]:
    """Rows of the blocks of each level, from those that registers fold; blocks that a known number of rows fits into are left
    out."""
    sizes, extent = [], e.over[0][1]
    for count in BLOCKS:
        size *= count
        if not isinstance(extent, int) or extent > size:
            sizes.append(size)
    return tuple(sizes)


def _end(scope: Scope, begin: str, size: int, high: str) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add nsw i64 {begin}, {size}")), ("i64", high)])
