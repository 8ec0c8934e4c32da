"""What convolutions in groups read of some columns of a row of an image, copied to lines of the caches, between zeros.

Columns are sorted by what is left of their number by the stride: `half` of each kind; then come those for the next channel of
the groups, `term` elements on. A column is one number where all lanes multiply that, or a vector: neighbours of memory, or a
number of each group as often as that has features.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.context import counting, splat_register
from loopwright.lower.codegen.few_features import greatest, least
from loopwright.lower.codegen.interleaving import Lanes, added, product
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.tiny import chosen
from loopwright.lower.codegen.transposing import transposed

BLENDED = 4  # groups at most whose numbers are put together in a register

Span = tuple[str, str]  # the columns that are there
Copy = Callable[[Scope, "Row", str, str, Span], None]  # of what row, to where, which kind of columns, which of them


@dataclass(frozen=True)
class Lines:
    """How many elements are from each column, each kind of them, each channel, each row to the next."""

    width: str
    half: str
    term: str
    row: str


def ceiled(scope: Scope, a: str, b: str) -> str:
    """a / b for numbers from 0 and 1 on, rounded up."""
    return scope.emit(f"udiv i64 {scope.emit(f'sub i64 {added(scope, a, b)}, 1')}, {b}")


@dataclass(frozen=True)
class Columns:
    """Those of a strip: how many lie before the image, which may be less than none; how often, and with what left, strides are
    in those before it, and before its end."""

    before: str
    low: tuple[str, str]
    high: tuple[str, str]

    def there(self, scope: Scope, rest: str, half: str) -> Span:
        """Which of a kind are in the image."""
        def end(times: str, left: str) -> str:
            more = scope.emit(f"zext i1 {scope.emit(f'icmp slt i64 {rest}, {left}')} to i64")
            return least(scope, added(scope, times, more), half)
        return end(*self.low), end(*self.high)


def columns_of(scope: Scope, before: str) -> Columns:
    """Of a strip with so many columns before the image."""
    ends = [greatest(scope, x, "0") for x in (before, added(scope, before, "%width"))]
    low, high = ((scope.emit(f"udiv i64 {x}, %right"), scope.emit(f"urem i64 {x}, %right")) for x in ends)
    return Columns(before, low, high)


@dataclass(frozen=True)
class Row:
    """Of an image: where it is, the columns, and how many groups are read."""

    of: str
    columns: Columns
    groups: str


class Copies:
    """Of rows, for up to so many groups, of which one may have the features of whole vectors. What rows share is made here."""

    def __init__(self, scope: Scope, lanes: Lanes, lines: Lines, groups: str, is_one: str) -> None:
        self.lanes, self.lines, self.is_one = lanes, lines, is_one
        lane = counting(0, lanes.count, f"i{8 * lanes.dtype.itemsize}")
        self.masks = [scope.emit(f"icmp sge {lanes.whole} {lane}, {lanes.every(scope, product(scope, str(g), '%each'))}")
                      for g in range(1, BLENDED)]
        of_lane = scope.emit(f"udiv {lanes.whole} {lane}, {lanes.every(scope, '%each')}")
        self.first = scope.emit(f"mul {lanes.whole} {of_lane}, {lanes.every(scope, '%terms')}")
        alone = scope.emit(f"and i1 {scope.emit('icmp eq i64 %each, 1')}, {scope.emit('icmp eq i64 %terms, 1')}")
        self.ways: list[tuple[str, Copy]] = [(alone, self._neighbours)]
        if lanes.target.has_avx2:
            fits = scope.emit(f"icmp sle i64 {product(scope, groups, '%terms')}, {lanes.count}")
            self.ways.append((fits, self._permuted))
        few = [(scope.emit(f"icmp sle i64 {groups}, {g}"), partial(self._blended, g)) for g in (2, BLENDED)]
        self.ways += [*few, ("true", self._spread)]

    def copy(self, scope: Scope, row: Row, to: str) -> None:
        """Some columns of a row."""
        def numbers(inner: Scope) -> Carried:
            self._columns(inner, row, to, 1, self._numbers)
            return ()

        def vectors(inner: Scope) -> Carried:
            self._first_of(self.ways, inner, row, to)
            return ()
        branch(scope, self.is_one, numbers, vectors)

    def _first_of(self, ways: Sequence[tuple[str, Copy]], scope: Scope, row: Row, to: str) -> Carried:
        """The row in the first way whose condition holds; the last one's does."""
        (condition, way), *others = ways

        def this(inner: Scope) -> Carried:
            self._columns(inner, row, to, self.lanes.count, way)
            return ()
        if not others:
            return this(scope)
        branch(scope, condition, this, lambda inner: self._first_of(others, inner, row, to))
        return ()

    def _columns(self, scope: Scope, row: Row, to: str, width: int, way: Copy) -> None:
        """Every kind of columns, of so many elements each."""
        def columns(inner: Scope, rest: str, _: list[str]) -> list[str]:
            start = self._place(inner, to, product(inner, rest, self.lines.half, str(width)))
            way(inner, row, start, rest, row.columns.there(inner, rest, self.lines.half))
            return []
        loop(scope, "0", "%right", "1", (), columns)

    def clear(self, scope: Scope, rows: str, to: str, strip: Columns) -> None:
        """Zeros where rows have no columns, which is alike for all of so many."""
        def columns(outer: Scope, rest: str, _: list[str]) -> list[str]:
            low, high = strip.there(outer, rest, self.lines.half)
            for begin, end in (("0", low), (high, self.lines.half)):
                length = product(outer, outer.emit(f"sub i64 {end}, {begin}"), self.lines.width, str(self.lanes.dtype.itemsize))
                first = added(outer, product(outer, rest, self.lines.half), begin)
                start = self._place(outer, to, product(outer, first, self.lines.width))
                loop(outer, "0", product(outer, rows, "%terms"), "1", (), partial(line, start, length))
            return []

        def line(start: str, length: str, inner: Scope, t: str, _: list[str]) -> list[str]:
            place = self._place(inner, start, product(inner, t, self.lines.term))
            inner.run("llvm.memset.p0.i64", [("ptr", place), ("i8", "0"), ("i64", length), ("i1", "false")])
            return []
        loop(scope, "0", "%right", "1", (), columns)

    def _place(self, scope: Scope, base: str, at: str) -> str:
        return element(scope, self.lanes.number, base, at)

    def _source(self, scope: Scope, row: Row, column: str, rest: str) -> str:
        """Where the pixel of a column is."""
        at = scope.emit(f"sub i64 {added(scope, product(scope, column, '%right'), rest)}, {row.columns.before}")
        return self._place(scope, row.of, product(scope, at, "%channels"))

    # ---- numbers ----------------------------------------------------------------------------------
    def _numbers(self, scope: Scope, row: Row, to: str, rest: str, span: Span) -> None:
        """Channels of pixels become pixels of channels, as many at once as there are lanes."""
        (low, high), lanes = span, self.lanes

        def pixels(outer: Scope, first: str, _: list[str]) -> list[str]:
            count, last = outer.emit(f"sub i64 {high}, {first}"), outer.emit(f"sub i64 {high}, 1")
            given = [self._source(outer, row, least(outer, added(outer, first, k), last), rest) for k in range(lanes.count)]
            loop(outer, "0", "%terms", str(lanes.count), (), partial(channels, first, count, given))
            return []

        def channels(first: str, count: str, given: Sequence[str], inner: Scope, t: str, _: list[str]) -> list[str]:
            left = inner.emit(f"sub i64 %terms, {t}")
            mask = first_lanes(inner, left, lanes.count)
            rows = [load_first(inner, lanes.kind, self._place(inner, x, t), mask) for x in given]
            for k, column in enumerate(transposed(inner, lanes.kind, rows)):
                some = inner.emit(f"select i1 {inner.emit(f'icmp sgt i64 {left}, {k}')}, i64 {count}, i64 0")
                place = self._place(inner, to, added(inner, product(inner, added(inner, t, k), self.lines.term), first))
                store_first(inner, lanes.kind, column, place, first_lanes(inner, some, lanes.count))
            return []
        loop(scope, low, high, str(lanes.count), (), pixels)

    # ---- vectors ----------------------------------------------------------------------------------
    def _each(self, scope: Scope, to: str, span: Span, copy: Callable[[str, Scope, str, str], None]) -> None:
        """Every column of every channel: `copy` is told the channel, the column, and where that goes."""
        def term(outer: Scope, t: str, _: list[str]) -> list[str]:
            line = self._place(outer, to, product(outer, t, self.lines.term))

            def column(inner: Scope, k: str, _: list[str]) -> list[str]:
                copy(t, inner, k, self._place(inner, line, product(inner, k, str(self.lanes.count))))
                return []
            loop(outer, *span, "1", (), column)
            return []
        loop(scope, "0", "%terms", "1", (), term)

    def _neighbours(self, scope: Scope, row: Row, to: str, rest: str, span: Span) -> None:
        """Of groups with one channel and one feature."""
        mask = first_lanes(scope, row.groups, self.lanes.count)

        def copy(_: str, inner: Scope, k: str, place: str) -> None:
            store_first(inner, self.lanes.kind, load_first(inner, self.lanes.kind, self._source(inner, row, k, rest), mask),
                        place, None)
        self._each(scope, to, span, copy)

    def _permuted(self, scope: Scope, row: Row, to: str, rest: str, span: Span) -> None:
        """Of groups whose channels fit a vector."""
        mask = first_lanes(scope, product(scope, row.groups, "%terms"), self.lanes.count)

        def copy(t: str, inner: Scope, k: str, place: str) -> None:
            given = load_first(inner, self.lanes.kind, self._source(inner, row, k, rest), mask)
            index = inner.emit(f"add {self.lanes.whole} {self.first}, {self.lanes.every(inner, t)}")
            store_first(inner, self.lanes.kind, chosen(inner, self.lanes, [given], index), place, None)
        self._each(scope, to, span, copy)

    def _blended(self, count: int, scope: Scope, row: Row, to: str, rest: str, span: Span) -> None:
        """Of no more groups than so many."""
        last = scope.emit(f"sub i64 {row.groups}, 1")
        steps = [product(scope, least(scope, str(g), last), "%terms") for g in range(count)]

        def copy(t: str, inner: Scope, k: str, place: str) -> None:
            pixel = self._place(inner, self._source(inner, row, k, rest), t)
            value, *others = [self._number(inner, self._place(inner, pixel, step)) for step in steps]
            for mask, x in zip(self.masks, others, strict=False):
                value = inner.emit(f"select {self.lanes.mask} {mask}, {self.lanes.kind} {x}, {self.lanes.kind} {value}")
            store_first(inner, self.lanes.kind, value, place, None)
        self._each(scope, to, span, copy)

    def _spread(self, scope: Scope, row: Row, to: str, rest: str, span: Span) -> None:
        """Of any number of groups."""
        mask = first_lanes(scope, "%each", self.lanes.count)

        def copy(t: str, inner: Scope, k: str, place: str) -> None:
            pixel = self._place(inner, self._source(inner, row, k, rest), t)

            def group(here: Scope, g: str, _: list[str]) -> list[str]:
                store_first(here, self.lanes.kind, self._number(here, self._place(here, pixel, product(here, g, "%terms"))),
                            self._place(here, place, product(here, g, "%each")), mask)
                return []
            loop(inner, "0", row.groups, "1", (), group)
        self._each(scope, to, span, copy)

    def _number(self, scope: Scope, at: str) -> str:
        """The number there in every lane."""
        return splat_register(scope, self.lanes.number, scope.emit(f"load {self.lanes.number}, ptr {at}"), self.lanes.count)
