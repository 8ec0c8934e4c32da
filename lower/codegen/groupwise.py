"""Convolutions in groups as text: lanes go along the output features, of several groups where each has few.

    void @lw_groupwise_f32(i64 numbers..., ptr x, ptr w, ptr out, ptr error)         `NUMBERS` names them
    void @lw_groupwise_f64(...)      out[image, y, x, f]: channels are last in memory, those of a group together, of x too; the
                                     kernel's axes any number of elements apart

Every number of an image is in as many windows as these have positions. So what a vector of features reads of some rows is
copied first, between zeros, to where it lies along lines of the caches, which arrays seldom do: the number that each lane
multiplies, for one channel of the groups after another; where all lanes multiply the same, that alone. Neighbours in the result
then read neighbours in the copy, where columns are sorted by what is left of their number by the stride. Some pixels at once
share the kernel.

Guarantees: nothing outside the arrays is read or written; an element's sum is made in one order, however many threads there
are; no terms make zeros.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.context import splat_register
from loopwright.lower.codegen.few_features import by_images, fail, greatest, least, reach_of
from loopwright.lower.codegen.group_lines import Columns, Copies, Lines, Row, ceiled, columns_of
from loopwright.lower.codegen.interleaving import Lanes, added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

# of the image; channels and features of a group, all features; of the kernel; how high and wide the result is; strides; zeros
# before the image; how far rows of a window are apart; steps of the kernel's axes
NUMBERS = ("images", "height", "width", "channels", "terms", "each", "features", "rows", "columns", "high", "wide", "down",
           "right", "above", "before", "spread", "w.row", "w.column", "w.term", "w.feature", "w.group")
POINTERS = ("x", "w", "out", "error")
GIVEN = ", ".join([*(f"i64 %{x}" for x in NUMBERS), *(f"ptr %{x}" for x in POINTERS)])
COPIED = 1 << 15  # bytes of an image that are copied at once, if more than a tile is: they stay in the first cache
LEAST_ROWS = 4  # of the result, which a thread makes
_SHARED = ("features", "all.rows", "terms", "columns", "ring", "spread", "below", "beside", "right", "half")  # by all tiles
_TILE = "ptr %copy, ptr %out, ptr %turned, ptr %shared, i64 %kept, i64 %rows, i64 %slot"


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_groupwise_f{8 * dtype.itemsize}"


def most_pixels(target: Target) -> int:
    """How many pixels there are at once at most: a sum for each and the kernel's vector are in registers."""
    return 14 if target.vector_registers > 16 else 12


def groupwise_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and those that it calls but for the pool's and the scratch memory's."""
    made = _Groupwise(dtype, target)
    functions = {header: Function(declarations, constants) for header in made.headers}
    for f, emit in zip(functions.values(), made.bodies, strict=True):
        emit(f.root)
    return "\n".join(f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in functions.items())


def around(scope: Scope, place: str, ring: str) -> str:
    """A place less than twice around."""
    past = scope.emit(f"icmp sge i64 {place}, {ring}")
    return scope.emit(f"select i1 {past}, i64 {scope.emit(f'sub i64 {place}, {ring}')}, i64 {place}")


@dataclass(frozen=True)
class _Units:
    """What is copied once: groups whose features are in one vector, or a group of more; how many features and vectors."""

    groups: str
    span: str
    vectors: str
    is_one: str  # group


@dataclass(frozen=True)
class _Strip:
    """Some columns of rows that follow each other: how, and where to, rows are copied that windows reach, around a ring; how
    high and wide a part of the result is made at once, and what makes so many pixels of it."""

    units: _Units
    lines: Lines
    copies: Copies
    copy: str
    reach: str
    ring: str
    high: str
    wide: str
    pixels: str
    made: str
    shared: str


class _Groupwise:
    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.dtype, self.target, self.most = dtype, target, most_pixels(target)
        self.element, self.lanes, self.size = memory_type(dtype), target.lanes(dtype), dtype.itemsize
        self.kind, name = vector_type(self.element, self.lanes), name_of(dtype)
        tiles = [(n, width) for n in range(1, self.most + 1) for width in (1, self.lanes)]
        self.headers = [*(f"internal void {self.tile_of(*x)}({_TILE}) noinline" for x in tiles),
                        f"internal void @{name}_some(ptr %context, i64 %begin, i64 %end)", f"void @{name}({GIVEN})"]
        self.bodies: list[Callable[[Scope], None]] = [*(partial(self.tile, *x) for x in tiles), self.some, self.whole]

    def tile_of(self, pixels: int, width: int) -> str:
        """The function for so many pixels of a row of the result, that reads so many numbers for each."""
        return f"@{name_of(self.dtype)}_{pixels}_{width}"

    def place(self, scope: Scope, base: str, at: str) -> str:
        return element(scope, self.element, base, at)

    def units(self, scope: Scope) -> _Units:
        groups = greatest(scope, scope.emit(f"udiv i64 {self.lanes}, %each"), "1")
        span = product(scope, groups, "%each")
        return _Units(groups, span, ceiled(scope, span, str(self.lanes)), scope.emit(f"icmp eq i64 {groups}, 1"))

    # ---- the kernel -----------------------------------------------------------------------------
    def whole(self, root: Scope) -> None:
        """The kernel is copied, a vector of features after the other, then threads share out rows of the result."""
        count = product(root, "%images", "%high", "%wide", "%features")
        branch(root, root.emit(f"icmp sgt i64 {count}, 0"), self._all_rows)

    def _all_rows(self, scope: Scope) -> Carried:
        units = self.units(scope)
        vectors = product(scope, ceiled(scope, "%features", units.span), units.vectors)
        length = product(scope, vectors, "%rows", "%terms", "%columns", str(self.lanes * self.size))
        turned = scope.call("ptr", "lw_scratch_acquire", [("i64", length)])

        def make(inner: Scope) -> Carried:
            loop(inner, "0", "%features", units.span, [("ptr", turned)], partial(self._turn, units))
            given = [text.split() for text in GIVEN.replace("ptr %w", f"ptr {turned}").split(", ")]
            context = inner.function.slot(len(given), "i64", 8)
            for k, (type, x) in enumerate(given):
                inner.do(f"store {type} {x}, ptr {element(inner, 'i64', context, str(k))}")
            work = product(inner, "%wide", "%features", "%rows", "%columns", "%terms")
            inner.run("lw_loop", [("ptr", f"@{name_of(self.dtype)}_some"), ("ptr", context),
                                  ("i64", product(inner, "%images", "%high")), ("i64", work), ("i64", str(LEAST_ROWS)),
                                  ("i64", "1")])
            inner.run("lw_scratch_release", [("ptr", turned)])
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {turned}, null"), fail, make, rare=True)
        return ()

    def _turn(self, units: _Units, scope: Scope, base: str, state: list[str]) -> list[str]:
        """The vectors of some features at all positions and channels of the kernel."""
        def vector(inner: Scope, k: str, to: list[str]) -> list[str]:
            first, kept = self._features_of(inner, units, base, k)
            return loop(inner, "0", "%terms", "1", [("ptr", to[0])], partial(term, first, kept))

        def term(first: str, kept: str, outer: Scope, t: str, to: list[str]) -> list[str]:
            def row(middle: Scope, r: str, now: list[str]) -> list[str]:
                start = self.place(middle, "%w", added(middle, product(middle, r, "%w.row"), product(middle, t, "%w.term")))
                return loop(middle, "0", "%columns", "1", [("ptr", now[0])], partial(self._turned, start, first, kept))
            return loop(outer, "0", "%rows", "1", [("ptr", to[0])], row)
        return loop(scope, "0", units.vectors, "1", [("ptr", state[0])], vector)

    def _features_of(self, scope: Scope, units: _Units, base: str, k: str) -> tuple[str, str]:
        """The first feature of a vector of those from the base on, and how many it has."""
        before = product(scope, k, str(self.lanes))
        first = added(scope, base, before)
        left = least(scope, scope.emit(f"sub i64 {units.span}, {before}"), scope.emit(f"sub i64 %features, {first}"))
        return first, greatest(scope, least(scope, left, str(self.lanes)), "0")

    def _turned(self, start: str, first: str, kept: str, scope: Scope, q: str, state: list[str]) -> list[str]:
        """A vector of features at one position, one channel."""
        to, column = state[0], self.place(scope, start, product(scope, q, "%w.column"))

        def together(here: Scope) -> Carried:
            given = load_first(here, self.kind, self.place(here, column, first), first_lanes(here, kept, self.lanes))
            store_first(here, self.kind, given, to, None)
            return ()

        def apart(here: Scope) -> Carried:
            here.do(f"store {self.kind} zeroinitializer, ptr {to}, align {self.size}")

            def feature(each: Scope, k: str, _: list[str]) -> list[str]:
                f = added(each, first, k)
                group, own = (each.emit(f"{op} i64 {f}, %each") for op in ("udiv", "urem"))
                at = added(each, product(each, group, "%w.group"), product(each, own, "%w.feature"))
                value = each.emit(f"load {self.element}, ptr {self.place(each, column, at)}")
                each.do(f"store {self.element} {value}, ptr {self.place(each, to, k)}")
                return []
            loop(here, "0", kept, "1", (), feature)
            return ()
        is_near = scope.emit(f"and i1 {scope.emit('icmp eq i64 %w.feature, 1')}, {scope.emit('icmp eq i64 %w.group, %each')}")
        branch(scope, is_near, together, apart)
        return [self.place(scope, to, str(self.lanes))]

    # ---- rows of the result ---------------------------------------------------------------------
    def some(self, root: Scope) -> None:
        """Some rows of the result, of one image after another."""
        for k, x in enumerate((*NUMBERS, *POINTERS)):
            type = "ptr" if x in POINTERS else "i64"
            root.do(f"%{x} = load {type}, ptr {element(root, 'i64', '%context', str(k))}")
        strip = self._strip(root)
        last = root.emit(f"sub i64 %wide, {strip.wide}")

        def rows(scope: Scope, at: str, image: str, y: str, count: str) -> None:
            def columns(inner: Scope, begin: str, _: list[str]) -> list[str]:
                begin = least(inner, begin, last)  # the last of them lie over those before
                given = columns_of(inner, inner.emit(f"sub i64 %before, {product(inner, begin, '%right')}"))
                strip.copies.clear(inner, strip.ring, strip.copy, given)
                loop(inner, "0", "%features", strip.units.span, [("ptr", "%w")],
                     partial(self._features, strip, (at, image, y, count), (begin, given)))
                return []
            loop(scope, "0", "%wide", strip.wide, (), columns)
        by_images(root, strip.copy, "%high", rows)

    def _strip(self, root: Scope) -> _Strip:
        """As wide as the result, if what that reads has room, else a tile; and as high as then has room, or a row."""
        units, reach = self.units(root), reach_of(root)
        pixels = ceiled(root, "%wide", greatest(root, ceiled(root, "%wide", str(self.most)), "1"))
        made = self._tiles(root, self.most, units)
        for n in range(1, self.most):
            fits = root.emit(f"icmp eq i64 {pixels}, {n}")
            made = root.emit(f"select i1 {fits}, ptr {self._tiles(root, n, units)}, ptr {made}")
        width = root.emit(f"select i1 {units.is_one}, i64 1, i64 {self.lanes}")
        whole = self._half(root, "%wide")
        length = product(root, whole, "%right", width, "%terms", reach, str(self.size))
        wide = root.emit(f"select i1 {root.emit(f'icmp sle i64 {length}, {COPIED}')}, i64 %wide, i64 {pixels}")
        half = self._half(root, wide)
        term = product(root, half, "%right", width)
        lines = Lines(width, half, term, product(root, term, "%terms"))
        room = root.emit(f"udiv i64 {COPIED}, {greatest(root, product(root, lines.row, str(self.size)), '1')}")
        more = root.emit(f"sdiv i64 {greatest(root, root.emit(f'sub i64 {room}, {reach}'), '0')}, %down")
        high = least(root, added(root, more, 1), "%high")
        ring = added(root, reach, product(root, root.emit(f"sub i64 {high}, 1"), "%down"))
        copy = root.call("ptr", "lw_scratch_acquire", [("i64", product(root, lines.row, ring, str(self.size)))])
        copies = Copies(root, Lanes(self.dtype, self.target), lines, units.groups, units.is_one)
        shared = root.function.slot(len(_SHARED), "i64", 8)
        for k, x in enumerate(("%features", "%rows", "%terms", "%columns", ring, "%spread", lines.row, lines.term, "%right",
                               half)):
            root.do(f"store i64 {x}, ptr {element(root, 'i64', shared, str(k))}")
        return _Strip(units, lines, copies, copy, reach, ring, high, wide, pixels, made, shared)

    def _half(self, scope: Scope, pixels: str) -> str:
        """How many columns of each kind so many pixels read."""
        return ceiled(scope, added(scope, product(scope, scope.emit(f"sub i64 {pixels}, 1"), "%right"), "%columns"), "%right")

    def _tiles(self, scope: Scope, pixels: int, units: _Units) -> str:
        one, several = (self.tile_of(pixels, width) for width in (1, self.lanes))
        return scope.emit(f"select i1 {units.is_one}, ptr {one}, ptr {several}")

    def _features(self, strip: _Strip, rows: tuple[str, str, str, str], columns: tuple[str, Columns], scope: Scope, base: str,
                  state: list[str]) -> list[str]:
        """Some features of some columns of rows that follow each other."""
        (at, image, y, count), (begin, given) = rows, columns
        above = scope.emit(f"sub i64 {product(scope, y, '%down')}, %above")
        channel = product(scope, scope.emit(f"udiv i64 {base}, %each"), "%terms")
        start = self.place(scope, "%x", added(scope, product(scope, image, "%height", "%width", "%channels"), channel))
        groups = ceiled(scope, least(scope, scope.emit(f"sub i64 %features, {base}"), strip.units.span), "%each")

        def some(outer: Scope, k: str, done: list[str]) -> list[str]:
            past = least(outer, added(outer, k, strip.high), count)
            end = added(outer, product(outer, outer.emit(f"sub i64 {past}, 1"), "%down"), strip.reach)
            first = greatest(outer, done[0], product(outer, k, "%down"))
            loop(outer, first, end, "1", [("i64", outer.emit(f"urem i64 {first}, {strip.ring}"))], copied)
            loop(outer, k, past, "1", (), row)
            return [end]

        def row(inner: Scope, k: str, _: list[str]) -> list[str]:
            pixel = added(inner, product(inner, added(inner, at, k), "%wide"), begin)
            to = added(inner, product(inner, pixel, "%features"), base)
            first = product(inner, k, "%down")
            low, high = self._rows_there(inner, strip.reach, added(inner, above, first))
            slot = inner.emit(f"urem i64 {added(inner, first, product(inner, low, '%spread'))}, {strip.ring}")
            loop(inner, "0", strip.units.vectors, "1", [("ptr", state[0])],
                 partial(self._vector, strip, (low, high, slot), base, to))
            return []

        def copied(inner: Scope, number: str, slot: list[str]) -> list[str]:
            line = added(inner, above, number)

            def there(here: Scope) -> Carried:
                of = self.place(here, start, product(here, line, "%width", "%channels"))
                to = self.place(here, strip.copy, product(here, slot[0], strip.lines.row))
                strip.copies.copy(here, Row(of, given, groups), to)
                return ()
            branch(inner, inner.emit(f"icmp ult i64 {line}, %height"), there)
            return [around(inner, added(inner, slot[0], 1), strip.ring)]
        loop(scope, "0", count, strip.high, [("i64", "0")], some)
        return [self.place(scope, state[0],
                           product(scope, strip.units.vectors, "%rows", "%terms", "%columns", str(self.lanes)))]

    def _rows_there(self, scope: Scope, reach: str, line: str) -> tuple[str, str]:
        """From which to which row of a window these are in the image, where the window begins with this line of it."""
        def some(inner: Scope) -> Carried:
            before = greatest(inner, inner.emit(f"sub i64 0, {line}"), "0")
            behind = greatest(inner, inner.emit(f"sub i64 %height, {line}"), "0")
            return [("i64", least(inner, ceiled(inner, n, "%spread"), "%rows")) for n in (before, behind)]
        past = scope.emit(f"icmp sgt i64 {added(scope, line, reach)}, %height")
        is_cut = scope.emit(f"or i1 {scope.emit(f'icmp slt i64 {line}, 0')}, {past}")
        low, high = branch(scope, is_cut, some, otherwise=[("i64", "0"), ("i64", "%rows")])
        return low, high

    def _vector(self, strip: _Strip, rows: tuple[str, str, str], base: str, to: str, scope: Scope, k: str,
                state: list[str]) -> list[str]:
        """Some pixels of a row of the result, of a vector of features; rows: of windows, and where in the ring they begin."""
        (low, high, slot), (own, kept) = rows, self._features_of(scope, strip.units, base, k)
        factors = self.place(scope, state[0], product(scope, low, "%columns", str(self.lanes)))
        out = self.place(scope, "%out", added(scope, to, scope.emit(f"sub i64 {own}, {base}")))
        given = [("ptr", factors), ("ptr", strip.shared), ("i64", kept), ("i64", scope.emit(f"sub i64 {high}, {low}")),
                 ("i64", slot)]
        last = scope.emit(f"sub i64 {strip.wide}, {strip.pixels}")

        def tile(inner: Scope, begin: str, _: list[str]) -> list[str]:
            begin = least(inner, begin, last)
            places = [("ptr", self.place(inner, strip.copy, product(inner, begin, strip.lines.width))),
                      ("ptr", self.place(inner, out, product(inner, begin, "%features")))]
            inner.do(f"call void {strip.made}({', '.join(f'{type} {x}' for type, x in (*places, *given))})")
            return []
        loop(scope, "0", strip.wide, strip.pixels, (), tile)
        return [self.place(scope, state[0], product(scope, "%rows", "%terms", "%columns", str(self.lanes)))]

    # ---- a tile ---------------------------------------------------------------------------------
    def tile(self, pixels: int, width: int, root: Scope) -> None:
        """So many pixels of a row of the result."""
        for k, x in enumerate(_SHARED):
            root.do(f"%{x} = load i64, ptr {element(root, 'i64', '%shared', str(k))}")
        run, several = product(root, "%right", str(self.lanes)), least(root, "%right", "%columns")

        def value(scope: Scope, at: str) -> str:
            if width > 1:
                return load_first(scope, self.kind, at, None)
            return splat_register(scope, self.element, scope.emit(f"load {self.element}, ptr {at}"), self.lanes)

        def term(outer: Scope, t: str, sums: list[str]) -> list[str]:
            beside = self.place(outer, "%copy", product(outer, t, "%beside"))
            factors = self.place(outer, "%turned", product(outer, t, "%all.rows", "%columns", str(self.lanes)))
            state = [("i64", "%slot"), ("ptr", factors), *((self.kind, x) for x in sums)]
            return loop(outer, "0", "%rows", "1", state, partial(row, beside))[2:]

        def row(beside: str, middle: Scope, _: str, state: list[str]) -> list[str]:
            slot, factors, *sums = state
            start = self.place(middle, beside, product(middle, slot, "%below"))
            following = around(middle, added(middle, slot, "%spread"), "%ring")
            made = loop(middle, "0", several, "1", [(self.kind, x) for x in sums], partial(some_columns, start, factors))
            return [following, self.place(middle, factors, product(middle, "%columns", str(self.lanes))), *made]

        def some_columns(beside: str, factors: str, middle: Scope, rest: str, sums: list[str]) -> list[str]:
            first = self.place(middle, beside, product(middle, rest, "%half", str(width)))
            own = self.place(middle, factors, product(middle, rest, str(self.lanes)))

            def column(inner: Scope, q: str, both: list[str]) -> list[str]:
                (x, w), machine = both[:2], Machine(inner, 8 * self.size, self.lanes, self.target)
                factor = load_first(inner, self.kind, w, None)
                values = [value(inner, self.place(inner, x, str(k * width))) for k in range(pixels)]
                return [self.place(inner, x, str(width)), self.place(inner, w, run),
                        *(machine.fma(v, factor, total) for v, total in zip(values, both[2:], strict=True))]
            return loop(middle, rest, "%columns", "%right", [("ptr", first), ("ptr", own),
                                                             *((self.kind, x) for x in sums)], column)[2:]
        sums = loop(root, "0", "%terms", "1", [(self.kind, "zeroinitializer")] * pixels, term)
        mask = first_lanes(root, "%kept", self.lanes)
        for k, x in enumerate(sums):
            store_first(root, self.kind, x, self.place(root, "%out", product(root, str(k), "%features")), mask)
