"""Matrix products as text that copies one side in chunks of the first cache, each just before all rows are multiplied with it.

    void @lw_chunks_f32_n(i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, i64 b.line, ptr c, i64 begin, i64 end)
    void @lw_chunks_f32_t(...), f64     some columns of C[m, n] = A B or A B^T: C contiguous; lines of B, n x k for `_t`,
                                        any number of elements apart, as are A's rows, and terms; columns from a whole panel's
                                        to one's

While tiles multiply with a chunk they ask the caches for the next.

Guarantees: nothing outside the matrices is read or written; an element's sum is made in one order, whichever columns are made
with it, and whatever m is where C has no more columns than a panel; what C held before does not matter. There is at least one
term.
"""
from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type, vector_type
from loopwright.lower.codegen.small import (
    LINE,
    Ahead,
    asks_ahead,
    call_panel,
    element,
    first_lanes,
    heights,
    held_numbers,
    is_far,
    load_first,
    panels,
    widest,
)
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.transposing import transposed
from loopwright.lower.target import Target

LONG, SHORT, FEWEST = 128, 64, 16  # terms of a chunk: a block has whole chunks
ROWS = 280  # that are multiplied with a chunk: it is worth its copy then
FAR = 1920  # bytes between a row's terms, which processors then do not see coming
MANY, SOME = 160, 48  # columns that are worth a copy; that are where the second cache does not hold the left side
HELD = 1.25  # times the second cache: of a left side that is held
DEPTH = 512  # terms of a block: its rows of the left side stay in the second cache
SOON = 32  # terms of a block for as many rows: processors see coming what lies along so many rows of the right side


def terms_of(target: Target) -> int:
    """The terms of a chunk, which takes at most two thirds of the first cache."""
    return LONG if 3 * LONG * widest(target) * target.vector_bits // 8 <= 2 * target.near_cache_bytes else SHORT


def stays(dtype: np.dtype, target: Target) -> list[tuple[str, str, int]]:
    """Tests of sizes, one of which holds where a right side comes from a cache, or lies along memory in one panel."""
    return [("nk", "sle", held_numbers(dtype, target)), ("n", "sle", widest(target) * target.lanes(dtype))]


def name_of(dtype: np.dtype, turned: bool) -> str:
    """The function's name."""
    return f"lw_chunks_f{8 * dtype.itemsize}_{'nt'[turned]}"


def chunks_text(dtype: np.dtype, target: Target, turned: bool) -> str:
    """One function, and that which copies. They call those of `small_text`, each other's, and the scratch memory's."""
    declarations, constants = set[str](), set[str]()
    copy = _Copy(dtype, target, turned, Function(declarations, constants)).text()
    made = _Chunks(dtype, target, turned, Function(declarations, constants)).text()
    return "\n".join([*sorted(declarations), *sorted(constants), copy, made])


@dataclass(frozen=True)
class _Block:
    """Some rows and terms: where the left side of both and the sums begin, how far apart rows and terms of the left side are;
    how many rows there are; where the terms begin and end."""

    left: str
    steps: tuple[str, str]
    sums: str
    count: str
    span: tuple[str, str]


class _Chunks:
    """The function for one form of the right side."""

    def __init__(self, dtype: np.dtype, target: Target, turned: bool, function: Function) -> None:
        self.dtype, self.target, self.turned, self.function = dtype, target, turned, function
        self.kind, self.lanes, self.long = memory_type(dtype), target.lanes(dtype), terms_of(target)
        self.chunk = function.slot(self.long * widest(target) * self.lanes, self.kind, 64)
        self.far = is_far(function.root, dtype, target, "%m", "%n")
        self.depth = str(DEPTH) if turned else self._depth(function.root)
        self.length = str(self.long) if turned else self._length(function.root)

    def text(self) -> str:
        root = self.function.root
        branch(root, root.emit("icmp sgt i64 %end, %begin"), self._whole)
        header = f"void @{name_of(self.dtype, self.turned)}(i64 %m, i64 %n, i64 %k, ptr noalias %a, i64 %a.row, i64 %a.term, " \
            "ptr noalias %b, i64 %b.line, ptr noalias %c, i64 %begin, i64 %end)"
        return f"define {header} {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _depth(self, scope: Scope) -> str:
        """The terms of a block: few where few rows wait for B, which is read row by row then, panel after panel."""
        sizes, found, far = {"n": "%n", "nk": scope.emit("mul i64 %n, %k")}, str(DEPTH), "true"
        for side, _, most in stays(self.dtype, self.target):
            far = scope.emit(f"and i1 {far}, {scope.emit(f'icmp sgt i64 {sizes[side]}, {most}')}")
        for terms in (2 * SOON, SOON):
            few = scope.emit(f"and i1 {far}, {scope.emit(f'icmp sle i64 %m, {terms}')}")
            found = scope.emit(f"select i1 {few}, i64 {terms}, i64 {found}")
        return found

    def _length(self, scope: Scope) -> str:
        """The terms of a chunk: where rows of B are a large power of 2 apart no more than the few sets of the second cache hold
        where all of them go; whole chunks fill a block."""
        step = scope.emit(f"mul i64 %b.line, {self.dtype.itemsize}")
        power = scope.emit(f"and i64 {step}, {scope.emit(f'sub i64 0, {step}')}")
        power = scope.call("i64", "llvm.umax.i64", [("i64", power), ("i64", "1")])
        fits = scope.emit(f"udiv i64 {self.target.cache_bytes // 2}, {power}")
        most = _least(scope, self.depth, self.long)
        return _least(scope, scope.call("i64", "llvm.umax.i64", [("i64", fits), ("i64", str(FEWEST))]), most)

    def _whole(self, scope: Scope) -> Carried:
        """Blocks of rows, in them blocks of terms. Rows with terms far apart are copied, where there are columns enough."""
        most = even(scope, "%m", ROWS, heights(self.target, widest(self.target))[0])
        apart = scope.emit(f"add i64 {_least(scope, '%k', DEPTH)}, {2 * self.lanes - 1}")
        apart = scope.emit(f"and i64 {apart}, {-self.lanes}")
        far = scope.emit(f"icmp sge i64 %a.term, {FAR // self.dtype.itemsize}")
        across = scope.emit(f"and i1 {scope.emit('icmp eq i64 %a.row, 1')}, {far}")
        size = scope.emit(f"mul i64 {scope.emit('mul i64 %a.term, %k')}, {self.dtype.itemsize}")  # of all threads' rows
        beyond = scope.emit(f"icmp ugt i64 {size}, {int(HELD * self.target.cache_bytes)}")
        enough = scope.emit(f"select i1 {beyond}, i64 {SOME}, i64 {MANY}")
        many = scope.emit(f"icmp sge i64 {scope.emit('sub i64 %end, %begin')}, {enough}")

        def acquire(arm: Scope) -> Carried:
            size = arm.emit(f"mul i64 {arm.emit(f'add i64 {most}, {self.lanes}')}, {apart}")
            size = arm.emit(f"mul i64 {size}, {self.dtype.itemsize}")
            return [("ptr", arm.call("ptr", "lw_scratch_acquire", [("i64", size)]))]
        copy, = branch(scope, scope.emit(f"and i1 {across}, {many}"), acquire, otherwise=[("ptr", "null")])
        loop(scope, "0", "%m", most, (), partial(self._rows, most, copy, apart))

        def release(arm: Scope) -> Carried:
            arm.run("lw_scratch_release", [("ptr", copy)])
            return ()
        branch(scope, scope.emit(f"icmp ne ptr {copy}, null"), release)
        return ()

    def _rows(self, most: str, copy: str, apart: str, scope: Scope, row: str, state: list[str]) -> list[str]:
        """The blocks of some rows."""
        count = _least(scope, scope.emit(f"sub i64 %m, {row}"), most)
        c = element(scope, self.kind, "%c", scope.emit(f"mul i64 {row}, %n"))
        copied = scope.emit(f"icmp ne ptr {copy}, null")
        steps = (scope.emit(f"select i1 {copied}, i64 {apart}, i64 %a.row"),
                 scope.emit(f"select i1 {copied}, i64 1, i64 %a.term"))

        def depth(inner: Scope, term: str, now: list[str]) -> list[str]:
            end = _least(inner, inner.emit(f"add i64 {term}, {self.depth}"), "%k")

            def make(arm: Scope) -> Carried:
                many = arm.emit(f"add i64 {arm.emit(f'sub i64 {end}, {term}')}, {self.lanes - 1}")
                vectors = arm.emit(f"udiv i64 {many}, {self.lanes}")
                arm.do(f"call void @{name_of(self.dtype, True)}_copy(ptr {copy}, i64 {apart}, ptr %a, i64 {row}, i64 {count}, "
                       f"i64 {term}, i64 {vectors}, i64 %k, i64 %a.term)")
                return ()
            branch(inner, copied, make)
            place = inner.emit(f"add i64 {inner.emit(f'mul i64 {row}, %a.row')}, {inner.emit(f'mul i64 {term}, %a.term')}")
            a = inner.emit(f"select i1 {copied}, ptr {copy}, ptr {element(inner, self.kind, '%a', place)}")
            panels(inner, self.dtype, self.target, widest(self.target), ("%begin", "%end"),
                   partial(self._panel, _Block(a, steps, c, count, (term, end))))
            return []
        loop(scope, "0", "%k", self.depth, (), depth)
        return []

    def _panel(self, block: _Block, scope: Scope, v: int, at: str, left: str) -> None:
        """A panel of a block, chunk by chunk."""
        sums, wide = element(scope, self.kind, block.sums, at), str(widest(self.target) * self.lanes)

        def chunk(inner: Scope, term: str, now: list[str]) -> list[str]:
            many = _least(inner, inner.emit(f"sub i64 %k, {term}"), self.length)
            past = inner.emit(f"mul i64 {inner.emit(f'sub i64 {term}, {block.span[0]}')}, {block.steps[1]}")
            a, again = element(inner, self.kind, block.left, past), inner.emit(f"icmp ne i64 {term}, 0")
            ahead = self._ahead(inner, v, at, term, block) if v == widest(self.target) and asks_ahead(self.target) else None
            if self.turned:
                inner.do(f"call void @{name_of(self.dtype, True)}_copy(ptr {self.chunk}, i64 {wide}, ptr %b, i64 {term}, "
                         f"i64 {many}, i64 {at}, i64 {v}, i64 %n, i64 %b.line)")
                given = many, a, self.chunk, wide, sums, block.count, left, again
                call_panel(inner, self.dtype, v, given, block.steps, ahead, far=self.far)
                return []
            b = element(inner, self.kind, "%b", inner.emit(f"add i64 {inner.emit(f'mul i64 {term}, %b.line')}, {at}"))
            given = many, a, b, "%b.line", sums, block.count, left, again
            call_panel(inner, self.dtype, v, given, block.steps, ahead, self.chunk)
            height = heights(self.target, v)[0]
            a, c = (element(inner, self.kind, x, inner.emit(f"mul i64 {step}, {height}"))
                    for x, step in ((a, block.steps[0]), (sums, "%n")))
            rest = inner.emit(f"sub i64 {block.count}, {height}")
            call_panel(inner, self.dtype, v, (many, a, self.chunk, wide, c, rest, left, again), block.steps,
                       ahead and replace(ahead, number=inner.emit(f"add i64 {ahead.more}, 1")), far=self.far)
            return []
        loop(scope, *block.span, self.length, (), chunk)

    def _ahead(self, scope: Scope, v: int, at: str, term: str, block: _Block) -> Ahead:
        """The next chunk, which may be that of the next panel."""
        columns, (first, end) = v * self.lanes, block.span
        following, further = scope.emit(f"add i64 {term}, {self.length}"), scope.emit(f"add i64 {at}, {columns}")
        here = scope.emit(f"icmp slt i64 {following}, {end}")
        row = scope.emit(f"select i1 {here}, i64 {following}, i64 {first}")
        column = scope.emit(f"select i1 {here}, i64 {at}, i64 {further}")
        if self.turned:
            row, column = column, row
        lines, each = (self.long, self.long // columns) if self.turned else (columns, 1)
        lines = lines * self.dtype.itemsize // LINE
        place = element(scope, self.kind, "%b", scope.emit(f"add i64 {scope.emit(f'mul i64 {row}, %b.line')}, {column}"))
        height = heights(self.target, v)[0]
        tiles = scope.emit(f"udiv i64 {scope.emit(f'add i64 {block.count}, {height - 1}')}, {height}")
        more = scope.call("i64", "llvm.smax.i64", [("i64", scope.emit(f"sub i64 {lines}, {tiles}")), ("i64", "0")])
        more = _least(scope, more, 2)
        step = scope.emit(f"mul i64 %b.line, {self.dtype.itemsize}")
        return Ahead(place, step, lines, each.bit_length() - 1, "0", more)


def _least(scope: Scope, a: str, b: str | int) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", str(b))])


def even(scope: Scope, size: str, most: int, step: int) -> str:
    """The length of blocks of at most so many positions, whole steps, which are as even as they can be; 1 at least."""
    def at_least_one(x: str, y: str | int) -> str:
        before = scope.emit(f"sub i64 {y}, 1")
        found = scope.emit(f"udiv i64 {scope.emit(f'add i64 {x}, {before}')}, {y}")
        return scope.call("i64", "llvm.smax.i64", [("i64", found), ("i64", "1")])
    steps = at_least_one(at_least_one(size, at_least_one(size, most)), step)
    return scope.emit(f"mul i64 {steps}, {step}")


class _Copy:
    """Copies some terms of a panel, `apart` elements from one to the next: `void (ptr chunk, i64 apart, ptr b, i64 term,
    i64 count, i64 column, i64 vectors, i64 n, i64 line)`; lines of B are so many elements apart."""

    def __init__(self, dtype: np.dtype, target: Target, turned: bool, function: Function) -> None:
        self.dtype, self.turned, self.function, self.lanes = dtype, turned, function, target.lanes(dtype)
        self.element = memory_type(dtype)
        self.kind = vector_type(self.element, self.lanes)

    def text(self) -> str:
        root = self.function.root
        loop(root, "0", "%vectors", "1", (), self._vector)
        header = f"void @{name_of(self.dtype, self.turned)}_copy(ptr noalias %chunk, i64 %apart, ptr noalias %b, i64 %term, " \
            "i64 %count, i64 %column, i64 %vectors, i64 %n, i64 %line)"
        return f"define internal {header} noinline {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _vector(self, scope: Scope, number: str, state: list[str]) -> list[str]:
        past = scope.emit(f"mul i64 {number}, {self.lanes}")
        column, to = scope.emit(f"add i64 %column, {past}"), element(scope, self.element, "%chunk", past)
        (self._across if self.turned else self._along)(scope, column, to)
        return []

    def _along(self, scope: Scope, column: str, to: str) -> None:
        mask = first_lanes(scope, scope.emit(f"sub i64 %n, {column}"), self.lanes)
        first = element(scope, self.element, "%b", scope.emit(f"add i64 {scope.emit('mul i64 %term, %line')}, {column}"))

        def term(inner: Scope, at: str, state: list[str]) -> list[str]:
            value = load_first(inner, self.kind, element(inner, self.element, first, inner.emit(f"mul i64 {at}, %line")), mask)
            self._store(inner, value, to, at)
            return []
        loop(scope, "0", "%count", "1", (), term)

    def _across(self, scope: Scope, column: str, to: str) -> None:
        """In squares, transposed in registers; columns past the last are that one again."""
        last, lines = scope.emit("sub i64 %n, 1"), list[str]()
        for k in range(self.lanes):
            line = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add i64 {column}, {k}")), ("i64", last)])
            first = scope.emit(f"mul i64 {line}, %line")
            lines.append(element(scope, self.element, "%b", scope.emit(f"add i64 {first}, %term")))

        def square(inner: Scope, at: str, state: list[str]) -> list[str]:
            mask = first_lanes(inner, inner.emit(f"sub i64 %count, {at}"), self.lanes)
            found = [load_first(inner, self.kind, element(inner, self.element, line, at), mask) for line in lines]
            for k, value in enumerate(transposed(inner, self.kind, found)):
                self._store(inner, value, to, inner.emit(f"add i64 {at}, {k}"))
            return []
        loop(scope, "0", "%count", str(self.lanes), (), square)

    def _store(self, scope: Scope, value: str, to: str, term: str) -> None:
        place = element(scope, self.element, to, scope.emit(f"mul i64 {term}, %apart"))
        scope.do(f"store {self.kind} {value}, ptr {place}, align {self.dtype.itemsize}")
