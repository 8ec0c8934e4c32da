"""For which sizes which code makes a product of matrices, as it was measured (decision 020).

Guarantees: sizes that no test here holds for are those of large products.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.types import F32
from loopwright.lower.codegen import abreast, by_vector, chunks, in_order, small, tiny
from loopwright.lower.codegen.interleaving import product
from loopwright.lower.codegen.text import Scope
from loopwright.lower.target import Target
from loopwright.lower.tiling import may_fill

FEW = 8  # rows that are not worth a copy of the other side, if that is in a cache; terms for which no rows are
THIN = 6  # terms of columns that are read side by side
ALONG = 16  # rows, or columns, for which sums go along the terms, where both sides lie so
SOME = 96  # rows for which half a vector of columns is worth turning
MANY = 192  # columns, with fewer of which rows that lie across memory are not worth a copy
BRIEF = 128  # terms, with no more than which the library's copies of both sides cost as much as what it does better
NARROW = 128  # columns, for no more than which rows that lie along memory are not worth a copy in blocks
BLOCKS = 64  # rows, columns and terms, with fewer of any of which copies of both sides are used too little
TILED = 192, 3 << 23  # rows, and multiplications, with fewer of which the tile unit's parts of both sides are used too little
FEW_TILED = 64, 256, 1 << 25  # rows, columns or terms, and multiplications, if the columns' parts are not kept
ORDERED = (2, 1 << 19), (1, 3 << 19)  # rows, and bytes of a matrix beyond which few of them read it in the order of memory
NEAR, SMALL = 3 << 14, 1 << 17  # bytes of a matrix that is soon in the first cache again, or stays in the second
ASIDE = 320  # columns, of lines that lie apart, which the library takes no sooner, since they are copied for it
SOON_TURNED = 1 << 20  # multiplications, with more of which a library turns rows that lie across memory sooner
LARGE_SQUARE = 224, 320  # columns of a matrix times its transpose, whose parts the library makes sooner than what copies one
# side makes all of it: of more, of lines that lie along the terms, there is no difference
MANY_TERMS = 1536  # of such lines, with fewer of which there is none either
SHORT = 256  # numbers of a row, of no more than which several are added up at once
PAGE, APART = 4096, 192  # bytes; rows, with more of which results whole pages apart, in few sets of a cache, are made in blocks
Test = tuple[str, str, int]  # a size (mn, nk, mnk: a product; page: the columns past whole pages), how it compares, with what
Cases = list[list[Test]]  # all tests of one of which hold
NOT_HUGE: Test = "mnk", "slt", 1 << 29  # copies for each thread's part of more take longer than the library's threads spin
Way = tuple[Cases, str]  # when, and what then multiplies: small, chunks, in_order, dots, turned or by_vector


def has_few_rows(form: tuple[bool, bool]) -> bool:
    """Whether the tile unit has a way of its own for few rows: columns whose terms lie together take longer to divide."""
    return not form[1]


def holds(scope: Scope, cases: Cases, dtype: np.dtype) -> str:
    """Whether all tests of one of some cases hold for %m, %n and %k."""
    found = "false"
    for case in cases:
        all_of = "true"
        for size, relation, bound in case:
            value = product(scope, *(f"%{x}" for x in size)) if size in ("mn", "nk", "mnk") else \
                scope.emit(f"and i64 %n, {PAGE // dtype.itemsize - 1}") if size == "page" else f"%{size}"
            all_of = scope.emit(f"and i1 {all_of}, {scope.emit(f'icmp {relation} i64 {value}, {bound}')}")
        found = scope.emit(f"or i1 {found}, {all_of}")
    return found


def in_tiles_at(form: tuple[bool, bool], m: int, n: int, k: int, target: Target) -> bool:
    """Whether the tile unit makes a product of f32 of these sizes, if it can say its numbers."""
    known = {"m": m, "n": n, "k": k, "mnk": m * n * k}
    cases = Sizes(F32, target, form).in_tiles() if target.has_tiles else []
    return may_fill((m, n, k)) and any(all(known[size] >= bound for size, _, bound in case) for case in cases)


@dataclass(frozen=True)
class Sizes:
    """The tables of one form: whether each side is stored transposed."""

    dtype: np.dtype
    target: Target
    form: tuple[bool, bool]

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.dtype)

    @property
    def least(self) -> int:
        """Columns; where rows lie across memory it must be worth reading them."""
        return 2 * self.lanes if self.form[0] else self.lanes // 2

    @property
    def _held(self) -> int:
        return small.held_numbers(self.dtype, self.target)

    def ways(self, in_blocks: bool) -> list[Way]:
        """Our own code for contiguous matrices; the last is that by chunks. in_blocks: blocks make what is left."""
        half, wide, least = self.lanes // 2, 2 * self.lanes, self.least
        both: list[Test] = [("m", "sge", 2), ("n", "sge", 2)]
        some: list[Test] = [("m", "sle", chunks.ROWS), *([("page", "ne", 0)] if in_blocks else [])]
        narrow: Cases = [[("n", "slt", MANY) if self.form[0] else ("n", "sle", NARROW)]]
        limits = [[("m", "sle", APART)], some, [("k", "sle", BRIEF)], *narrow]
        if self.target.is_short_of_registers:
            limits = [[("nk", "sle", self._held), most] for most in (("mn", "sle", self._held), ("n", "sle", wide))]
            limits = [[*limit, ("mnk", "sle", SOON_TURNED)] for limit in limits] if self.form[0] else limits
        low = FEW if self.form[1] else 2
        in_chunks: Way = [[("m", "sge", low), ("n", "sge", least), ("k", "sge", 1), *limit] for limit in limits], "chunks"
        if self.form[1]:
            along: list[Way] = [] if self.form[0] else [(self._brief_sides(), "dots"), (self._short_rows(), "by_vector")]
            return [*along, in_chunks]
        near: Test = "nk", "sle", NEAR // self.dtype.itemsize
        fits: Test = "nk", "sle", SMALL // self.dtype.itemsize
        few: list[Test] = [*both, ("m", "slt", FEW), ("n", "sge", half)]
        straight = [*([*few, test] for test in chunks.stays(self.dtype, self.target)),
                    [near, ("n", "sge", least)],  # of one row, too
                    [*both, fits, ("m", "slt", 2 * FEW), ("n", "sge", half)],
                    [*both, ("k", "sle", FEW), ("m", "sle", 2 * FEW), ("n", "sge", half)]]
        ordered: Way = [[("m", "sge", rows), ("m", "sle", in_order.ROWS), ("nk", "sgt", size // self.dtype.itemsize),
                         ("n", "sge", wide), ("k", "sgt", THIN)] for rows, size in ORDERED], "in_order"
        soon: Way = [[near, ("n", "sgt", max(half, least - 1))]], "small"  # most little ones: asked first
        if self.form[0]:
            return [soon, ordered, (straight, "small"), in_chunks]
        straight.append([fits, ("m", "sgt", chunks.ROWS), ("k", "sgt", BRIEF), ("n", "sge", least)])
        turned: Way = [[*both, ("n", columns, half), ("m", "sge", rows), ("k", "sge", wide)]
                       for columns, rows in (("slt", 3), ("eq", SOME))], "turned"
        return [soon, ordered, turned, (straight, "small"), (self._short_rows(), "by_vector"), in_chunks]

    def ways_apart(self) -> list[Way]:
        """Those that read lines of the right side, which lie anywhere, once, or twice, or few."""
        once: list[Test] = [("m", "sge", FEW), ("n", "sge", self.least), ("k", "sge", 1)]
        briefly: Cases = [[*once, ("k", "sle", BRIEF)]] if self.form[1] else []
        held: list[Test] = [("nk", "sle", self._held), ("n", "sle", ASIDE)] if self.target.is_short_of_registers else []
        limits: Cases = [[*once, ("m", "sle", chunks.ROWS)], *briefly]
        in_chunks: Way = [[*limit, *one] for limit in limits for one in ([[x] for x in held] or [[]])], "chunks"
        if self.form[1]:
            return [in_chunks] if self.form[0] else [(self._brief_sides(), "dots"), in_chunks]
        straight: Cases = [[("m", "slt", FEW), ("n", "sge", self.lanes // 2)],
                           [("nk", "sle", PAGE // self.dtype.itemsize), ("n", "sge", self.least)]]
        return [(straight, "small"), in_chunks]

    def _short_rows(self) -> Cases:
        """Where rows times a vector are added up beside each other: of 3 numbers the library takes no longer."""
        some: list[Test] = [("n", "eq", 1), ("m", "sge", self.lanes), ("k", "sle", SHORT)]
        return [*([*some, ("k", "eq", k)] for k in by_vector.dense_widths(self.lanes)), [*some, ("k", "sgt", 4)]]

    def _brief_sides(self) -> Cases:
        """Where sums go along the terms: few rows, or few columns."""
        lanes, half = self.lanes, self.lanes // 2
        short = ("m", ALONG, lanes), ("n", ALONG, 4 * lanes), ("n", half - 1, lanes)
        return [[("m", "sge", 2), ("n", "sge", 2), (side, "sle", most), ("k", "sge", terms)] for side, most, terms in short]

    def together(self) -> list[tuple[Cases, str]]:
        """The functions that multiply many matrices together, and for which sizes, as far as these say. Where columns fill
        vectors, matrices one by one soon take no longer."""
        sides: list[Test] = [(side, "sge", 1) for side in "mnk"]

        def up_to(narrow: int, terms: int, others: int) -> Cases:
            few: list[Test] = [] if self.form[1] else [("n", "slt", narrow)]
            return [[*sides, *few, ("mnk", "sle", terms * self.lanes)], [*sides, ("mnk", "sle", others * self.lanes)]]
        return [(up_to(self.lanes, 16, 8), tiny.name_of(self.dtype)),
                (up_to(self.lanes // 2, 32, 12), abreast.name_of(self.dtype))]

    def in_tiles(self) -> Cases:
        """Products that are worth the tile unit's parts of both sides: of so much, and more."""
        usual: Cases = [[("m", "sge", TILED[0]), ("n", "sge", BLOCKS), ("k", "sge", BLOCKS), ("mnk", "sge", TILED[1])]]
        few, across, much = FEW_TILED
        return [*usual, [("m", "sge", few), ("n", "sge", across), ("k", "sge", across), ("mnk", "sge", much)]] \
            if has_few_rows(self.form) else usual

    def fill_blocks(self) -> Cases:
        """Large products that are worth copies of both sides; rows that lie across memory take longer to copy."""
        return [[("m", "sge", BLOCKS), ("n", "sge", MANY if self.form[0] else BLOCKS), ("k", "sge", BLOCKS)]]

    def square(self) -> Cases:
        """Products of a matrix and its transpose of which half are made: of more than one panel."""
        return [[("n", "sgt", small.widest(self.target) * self.lanes), ("k", "sge", BLOCKS)]]

    def large_square(self) -> Cases:
        """Those of which the library makes half, if it makes large products: of what no cache holds, and several parts."""
        fewest, most = LARGE_SQUARE
        along: list[Test] = [("n", "sle", most), ("k", "sge", MANY_TERMS)] if self.form[1] else []
        return [[("n", "sge", fewest), ("nk", "sgt", self._held), *along]]
