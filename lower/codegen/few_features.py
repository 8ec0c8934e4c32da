"""Convolutions of few output features as text: sums go along the window's rows, which lie along memory.

    void @lw_few_features_f32(i64 numbers..., ptr x, ptr w, ptr out, ptr error)         `NUMBERS` names them
    void @lw_few_features_f64(...)      out[image, y, x, o]: x's features are last in memory, and out's; the kernel's axes any
                                        number of elements apart

Lanes along features would be empty but for a few. Here they go along a row of a window, all of its positions and features:
pixels by features in registers, added up at the end. The kernel is turned first, so that its rows lie along memory, too; of
images with padding a few rows are copied between zeros, and then read by all windows that they are in. Of single numbers at
each pixel lanes are pixels.

Guarantees: nothing outside the arrays is read or written; an element's sum is made in one order, however many threads there
are; no terms make zeros.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen.dots import added as sums_of
from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop, repeat
from loopwright.lower.target import Target

# of the image and of the kernel; how high and wide the result is; strides; zeros before the image; how far rows of a window are
# apart; steps of the kernel's axes
NUMBERS = ("images", "height", "width", "channels", "rows", "columns", "features", "high", "wide", "down", "right", "above",
           "before", "spread", "w.feature", "w.row", "w.column", "w.channel")
POINTERS = ("x", "w", "out", "error")
GIVEN = ", ".join([*(f"i64 %{x}" for x in NUMBERS), *(f"ptr %{x}" for x in POINTERS)])
BY_FEATURES = ("feature", "row", "column", "channel")  # the order of the kernel's axes
MOST = 4  # features at once
COPIED = 1 << 17  # bytes of an image that are copied at once: they stay in the second cache
LEAST_ROWS = 4  # of the result, which a thread makes
_TILE = "ptr %base, ptr %turned, ptr %out, i64 %wide, i64 %pixels, i64 %step, i64 %jump, i64 %rows, i64 %below, i64 %run, " \
    "i64 %features"

Rows = Callable[[Scope, str, str, str, str], None]  # where the first row of an image that is read lies, how long its rows are,
# which row of the result is the first, how many there are


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_few_features_f{8 * dtype.itemsize}"


def pixels_of(target: Target, features: int) -> int:
    """How many pixels a tile has: sums, and all factors of a term, fit the registers."""
    return {1: 8, 2: 8, 3: 6, 4: 6}[features] if target.vector_registers > 16 else {1: 6, 2: 4, 3: 3, 4: 2}[features]


def few_features_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and those that it calls but for the pool's and the scratch memory's."""
    tiles = [_Tiles(dtype, target, n, Function(declarations, constants)).text() for n in range(1, MOST + 1)]
    tiles.append(_Pixels(dtype, target, Function(declarations, constants)).text())
    rows = rows_text(name_of(dtype), dtype, BY_FEATURES, partial(_call_tiles, dtype), declarations, constants)
    return "\n".join([*tiles, rows])


def rows_text(name: str, dtype: np.dtype, order: Sequence[str], tiles: Rows, declarations: set[str],
              constants: set[str]) -> str:
    """The function of this name, some rows of whose result `tiles` makes, and what the pool calls: the kernel is copied in an
    `order` of its axes."""
    whole, some = (Function(declarations, constants) for _ in range(2))
    _whole(name, dtype, order, whole)
    _some(dtype, tiles, some)
    headers = {f"internal void @{name}_some(ptr %context, i64 %begin, i64 %end)": some, f"void @{name}({GIVEN})": whole}
    return "\n".join(f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in headers.items())


def fail(scope: Scope) -> Carried:
    """Report that there is no memory."""
    scope.do("store atomic i64 -1, ptr %error monotonic, align 8")
    return ()


def least(scope: Scope, a: str, b: str) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", b)])


def greatest(scope: Scope, a: str, b: str) -> str:
    return scope.call("i64", "llvm.smax.i64", [("i64", a), ("i64", b)])


# ---- all of it --------------------------------------------------------------------------------------
def _whole(name: str, dtype: np.dtype, order: Sequence[str], function: Function) -> None:
    """The kernel is copied, then threads share out rows of the result, if there are any."""
    root = function.root
    count = product(root, "%images", "%high", "%wide", "%features")
    branch(root, root.emit(f"icmp sgt i64 {count}, 0"), partial(_all_rows, name, dtype, order))


def _all_rows(name: str, dtype: np.dtype, order: Sequence[str], root: Scope) -> Carried:
    each = product(root, "%rows", "%columns", "%channels")
    turned = root.call("ptr", "lw_scratch_acquire", [("i64", product(root, each, "%features", str(dtype.itemsize)))])

    def make(scope: Scope) -> Carried:
        _copied(scope, memory_type(dtype), order, "%w", turned)
        given = [text.split() for text in GIVEN.replace("ptr %w", f"ptr {turned}").split(", ")]
        context = scope.function.slot(len(given), "i64", 8)
        for k, (type, x) in enumerate(given):
            scope.do(f"store {type} {x}, ptr {element(scope, 'i64', context, str(k))}")
        units = product(scope, "%wide", "%features", each)
        scope.run("lw_loop", [("ptr", f"@{name}_some"), ("ptr", context), ("i64", product(scope, "%images", "%high")),
                              ("i64", units), ("i64", str(LEAST_ROWS)), ("i64", "1")])
        scope.run("lw_scratch_release", [("ptr", turned)])
        return ()
    branch(root, root.emit(f"icmp eq ptr {turned}, null"), fail, make, rare=True)
    return ()


def _copied(scope: Scope, kind: str, order: Sequence[str], source: str, to: str) -> str:
    """Copy a kernel with its axes in this order; where the copy ends."""
    axis, *others = order

    def one(inner: Scope, k: str, state: list[str]) -> list[str]:
        at = element(inner, kind, source, product(inner, k, f"%w.{axis}"))
        if others:
            return [_copied(inner, kind, others, at, state[0])]
        inner.do(f"store {kind} {inner.emit(f'load {kind}, ptr {at}')}, ptr {state[0]}")
        return [element(inner, kind, state[0], "1")]
    return loop(scope, "0", f"%{axis}s", "1", [("ptr", to)], one)[0]


def _some(dtype: np.dtype, tiles: Rows, function: Function) -> None:
    """Some rows of the result, of one image after another: as many at once as the copy of what they read has room for."""
    root, kind, size = function.root, memory_type(dtype), dtype.itemsize
    for k, x in enumerate((*NUMBERS, *POINTERS)):
        type = "ptr" if x in POINTERS else "i64"
        root.do(f"%{x} = load {type}, ptr {element(root, 'i64', '%context', str(k))}")
    reach = reach_of(root)
    padded = added(root, product(root, root.emit("sub i64 %wide, 1"), "%right"), "%columns")
    tall = added(root, product(root, root.emit("sub i64 %high, 1"), "%down"), reach)
    inside = root.emit("icmp eq i64 %above, 0")
    for test in ("eq i64 %before, 0", f"sle i64 {padded}, %width", f"sle i64 {tall}, %height"):
        inside = root.emit(f"and i1 {inside}, {root.emit(f'icmp {test}')}")
    line = product(root, root.emit(f"select i1 {inside}, i64 %width, i64 {padded}"), "%channels")
    room = root.emit(f"sub i64 {root.emit(f'udiv i64 {COPIED // size}, {greatest(root, line, str(1))}')}, {reach}")
    fits = added(root, root.emit(f"sdiv i64 {greatest(root, room, '0')}, %down"), 1)
    most = root.emit(f"select i1 {inside}, i64 %high, i64 {fits}")
    length = root.emit(f"select i1 {inside}, i64 0, i64 {rows_read(root, fits, reach)}")
    copy = root.call("ptr", "lw_scratch_acquire", [("i64", product(root, length, line, str(size)))])

    def rows(scope: Scope, at: str, image: str, y: str, count: str) -> None:
        first, whole = product(scope, y, "%down"), product(scope, "%width", "%channels")
        start = element(scope, kind, "%x", product(scope, image, "%height", whole))

        def copied(inner: Scope) -> Carried:
            loop(inner, "0", rows_read(inner, count, reach), "1", (), partial(copy_row, kind, size, start, copy, first, padded))
            return [("ptr", copy)]
        base, = branch(scope, scope.emit(f"xor i1 {inside}, true"), copied,
                       otherwise=[("ptr", element(scope, kind, start, product(scope, first, whole)))])
        tiles(scope, base, line, at, count)
    by_images(root, copy, most, rows)


def by_images(root: Scope, copy: str, most: str, rows: Callable[[Scope, str, str, str, str], None]) -> None:
    """`rows` for those of the result from `%begin` to `%end`, told where they begin, of which image, where in it, and how many:
    at most so many at once, with scratch memory for a copy, if there is any."""
    def some(scope: Scope, state: list[str]) -> tuple[str, list[str]]:
        at, = state
        image = scope.emit(f"udiv i64 {at}, %high")
        y = scope.emit(f"sub i64 {at}, {product(scope, image, '%high')}")
        count = least(scope, least(scope, scope.emit(f"sub i64 %end, {at}"), scope.emit(f"sub i64 %high, {y}")), most)
        rows(scope, at, image, y, count)
        following = added(scope, at, count)
        return scope.emit(f"icmp slt i64 {following}, %end"), [following]

    def every(scope: Scope) -> Carried:
        repeat(scope, [("i64", "%begin")], some)
        return ()

    def run(scope: Scope) -> Carried:
        branch(scope, scope.emit("icmp slt i64 %begin, %end"), every)
        scope.run("lw_scratch_release", [("ptr", copy)])
        return ()
    branch(root, root.emit(f"icmp eq ptr {copy}, null"), fail, run, rare=True)


def reach_of(scope: Scope) -> str:
    """How many rows of an image a window is high."""
    return added(scope, product(scope, greatest(scope, scope.emit("sub i64 %rows, 1"), "0"), "%spread"), 1)


def rows_read(scope: Scope, count: str, reach: str) -> str:
    """How many rows of an image windows read that are so high, for so many rows of them."""
    return added(scope, product(scope, scope.emit(f"sub i64 {count}, 1"), "%down"), reach)


def copy_row(kind: str, size: int, start: str, copy: str, first: str, padded: str, scope: Scope, row: str,
              state: list[str]) -> list[str]:
    """A row of an image, which begins at `start`, between zeros."""
    to = element(scope, kind, copy, product(scope, row, padded, "%channels"))
    y = scope.emit(f"sub i64 {added(scope, first, row)}, %above")
    there = scope.emit(f"icmp ult i64 {y}, %height")

    def zeros(inner: Scope, at: str, pixels: str) -> None:
        length = product(inner, pixels, "%channels", str(size))
        place = element(inner, kind, to, product(inner, at, "%channels"))
        inner.run("llvm.memset.p0.i64", [("ptr", place), ("i8", "0"), ("i64", length), ("i1", "false")])

    def read(inner: Scope) -> Carried:
        before = least(inner, greatest(inner, "%before", "0"), padded)
        skipped = greatest(inner, inner.emit("sub i64 0, %before"), "0")
        left = least(inner, inner.emit(f"sub i64 %width, {skipped}"), inner.emit(f"sub i64 {padded}, {before}"))
        pixels = greatest(inner, left, "0")
        place = element(inner, kind, start, product(inner, added(inner, product(inner, y, "%width"), skipped), "%channels"))
        after = added(inner, before, pixels)
        zeros(inner, "0", before)
        target = element(inner, kind, to, product(inner, before, "%channels"))
        length = product(inner, pixels, "%channels", str(size))
        inner.run("llvm.memcpy.p0.p0.i64", [("ptr", target), ("ptr", place), ("i64", length), ("i1", "false")])
        zeros(inner, after, inner.emit(f"sub i64 {padded}, {after}"))
        return ()

    def nothing(inner: Scope) -> Carried:
        zeros(inner, "0", padded)
        return ()
    branch(scope, there, read, nothing)
    return []


def _call_tiles(dtype: np.dtype, scope: Scope, base: str, line: str, at: str, count: str) -> None:
    """Features as even as they can be, up to `MOST` at once."""
    passes = greatest(scope, scope.emit(f"udiv i64 {added(scope, '%features', MOST - 1)}, {MOST}"), "1")
    past = scope.emit(f"sub i64 {added(scope, '%features', passes)}, 1")
    some = scope.emit(f"udiv i64 {past}, {passes}")
    step = product(scope, "%right", "%channels")
    row = product(scope, scope.emit("sub i64 %wide, 1"), step)
    jump = scope.emit(f"sub i64 {product(scope, '%down', line)}, {row}")
    out = element(scope, memory_type(dtype), "%out", product(scope, at, "%wide", "%features"))
    given = ("ptr", base), ("ptr", "%w"), ("ptr", out), ("i64", "%wide"), ("i64", product(scope, count, "%wide")), \
        ("i64", step), ("i64", jump), ("i64", "%rows"), ("i64", product(scope, "%spread", line)), \
        ("i64", product(scope, "%columns", "%channels")), ("i64", "%features")

    def call(inner: Scope, features: int) -> Carried:
        inner.do(f"call void @{name_of(dtype)}_{features}({', '.join(f'{type} {x}' for type, x in given)})")
        return ()

    def tiles(inner: Scope) -> Carried:
        for features in range(1, MOST + 1):
            branch(inner, inner.emit(f"icmp eq i64 {some}, {features}"), partial(call, features=features))
        return ()

    def pixels(inner: Scope) -> Carried:
        inner.do(f"call void @{name_of(dtype)}_pixels({', '.join(f'{type} {x}' for type, x in given)}, i64 {count}, "
                 f"i64 {product(inner, '%down', line)})")
        return ()
    single = scope.emit(f"icmp eq i64 {product(scope, '%features', '%channels', '%right')}, 1")
    branch(scope, single, pixels, tiles)


# ---- tiles ------------------------------------------------------------------------------------------
class _Tiles:
    """The function of so many features at once: tiles of pixels that follow each other in the result, from row to row. What is
    read of the kernel stays in the first cache from tile to tile."""

    def __init__(self, dtype: np.dtype, target: Target, features: int, function: Function) -> None:
        self.dtype, self.target, self.features, self.function = dtype, target, features, function
        self.element, self.lanes, self.bytes = memory_type(dtype), target.lanes(dtype), dtype.itemsize
        self.kind, self.pixels = vector_type(self.element, self.lanes), pixels_of(target, features)
        self.slot = function.slot(-(-self.pixels * features // self.lanes) * self.lanes + MOST, self.element, 64)

    def text(self) -> str:
        """The function."""
        root = self.function.root
        self.each = product(root, "%rows", "%run")
        self.whole = root.emit(f"and i64 %run, {-self.lanes}")
        rest = root.emit(f"sub i64 %run, {self.whole}")
        self.mask, self.has_rest = first_lanes(root, rest, self.lanes), root.emit(f"icmp ne i64 {rest}, 0")
        self.last = root.emit("sub i64 %features, 1")
        loop(root, "0", "%features", str(self.features), (), self._some)
        return f"define internal void @{name_of(self.dtype)}_{self.features}({_TILE}) noinline {ATTRIBUTES} {{\n" \
            f"{self.function.body()}\n  ret void\n}}"

    def _some(self, scope: Scope, first: str, state: list[str]) -> list[str]:
        """Some features of all pixels; features past the last are that one again."""
        numbers = [least(scope, added(scope, first, k), self.last) for k in range(self.features)]
        lines = [element(scope, self.element, "%turned", product(scope, k, self.each)) for k in numbers]
        kept = first_lanes(scope, scope.emit(f"sub i64 %features, {first}"), self.features)
        loop(scope, "0", "%pixels", str(self.pixels), [("i64", "0"), ("ptr", "%base")], partial(self._tile, first, lines, kept))
        return []

    def _tile(self, first: str, lines: list[str], kept: str, scope: Scope, at: str, state: list[str]) -> list[str]:
        """The sums of some pixels; those past the last are that one again."""
        (column, place), places = state, list[str]()
        for k in range(self.pixels):
            places.append(place)
            more = scope.emit(f"icmp slt i64 {added(scope, at, k + 1)}, %pixels")
            following = added(scope, column, 1)
            ends = scope.emit(f"icmp eq i64 {following}, %wide")
            by = scope.emit(f"select i1 {ends}, i64 %jump, i64 %step")
            place = element(scope, self.element, place, scope.emit(f"select i1 {more}, i64 {by}, i64 0"))
            column = scope.emit(f"select i1 {ends}, i64 0, i64 {following}")
        zeros = [(self.kind, "zeroinitializer")] * (self.pixels * self.features)
        sums = loop(scope, "0", "%rows", "1", zeros, partial(self._row, places, lines))
        for k in range(0, len(sums), self.lanes):
            total = sums_of(scope, self.kind, self.lanes, sums[k:k + self.lanes])
            scope.do(f"store {self.kind} {total}, ptr {element(scope, self.element, self.slot, str(k))}, align 64")
        count = least(scope, scope.emit(f"sub i64 %pixels, {at}"), str(self.pixels))
        kind = vector_type(self.element, self.features)

        def store(inner: Scope, k: str, _: list[str]) -> list[str]:
            found = element(inner, self.element, self.slot, product(inner, k, str(self.features)))
            to = element(inner, self.element, "%out", added(inner, product(inner, added(inner, at, k), "%features"), first))
            if self.features == 1:
                inner.do(f"store {self.element} {inner.emit(f'load {self.element}, ptr {found}')}, ptr {to}")
            else:
                store_first(inner, kind, load_first(inner, kind, found, None), to, kept)
            return []
        loop(scope, "0", count, "1", (), store)
        return [column, place]

    def _row(self, places: list[str], lines: list[str], scope: Scope, row: str, sums: list[str]) -> list[str]:
        """The terms of a row of the windows."""
        below, along = product(scope, row, "%below"), product(scope, row, "%run")
        places = [element(scope, self.element, x, below) for x in places]
        lines = [element(scope, self.element, x, along) for x in lines]

        def terms(inner: Scope, at: str, now: list[str], mask: str | None = None) -> list[str]:
            machine = Machine(inner, 8 * self.bytes, self.lanes, self.target)
            pixels, kernel = ([load_first(inner, self.kind, element(inner, self.element, x, at), mask) for x in some]
                              for some in (places, lines))
            return [machine.fma(x, y, now[i * self.features + j]) for i, x in enumerate(pixels) for j, y in enumerate(kernel)]

        def rest(inner: Scope) -> Carried:
            return [(self.kind, x) for x in terms(inner, self.whole, sums, self.mask)]
        sums = loop(scope, "0", self.whole, str(self.lanes), [(self.kind, x) for x in sums], terms)
        return branch(scope, self.has_rest, rest, otherwise=[(self.kind, x) for x in sums])


class _Pixels:
    """The function for windows that move by one number, and one feature: some vectors of pixels of a row at once."""

    def __init__(self, dtype: np.dtype, target: Target, function: Function) -> None:
        self.dtype, self.target, self.function = dtype, target, function
        self.element, self.lanes, self.bytes = memory_type(dtype), target.lanes(dtype), dtype.itemsize
        self.kind, self.vectors = vector_type(self.element, self.lanes), 8

    def text(self) -> str:
        """The function."""
        loop(self.function.root, "0", "%count", "1", (), self._line)
        header = f"internal void @{name_of(self.dtype)}_pixels({_TILE}, i64 %count, i64 %further) noinline {ATTRIBUTES}"
        return f"define {header} {{\n{self.function.body()}\n  ret void\n}}"

    def _line(self, scope: Scope, y: str, state: list[str]) -> list[str]:
        """A row of the result: whole groups of vectors, then those that are left, with the last of them cut."""
        base = element(scope, self.element, "%base", product(scope, y, "%further"))
        out, together = element(scope, self.element, "%out", product(scope, y, "%wide")), self.vectors * self.lanes
        whole = scope.emit(f"sub i64 %wide, {scope.emit(f'urem i64 %wide, {together}')}")

        def group(inner: Scope, at: str, now: list[str]) -> list[str]:
            self._sums(inner, at, (base, out), [None] * self.vectors)
            return []

        def rest(inner: Scope, at: str, now: list[str]) -> list[str]:
            self._sums(inner, at, (base, out), [first_lanes(inner, inner.emit(f"sub i64 %wide, {at}"), self.lanes)])
            return []
        loop(scope, "0", whole, str(together), (), group)
        loop(scope, whole, "%wide", str(self.lanes), (), rest)
        return []

    def _sums(self, scope: Scope, at: str, sides: tuple[str, str], masks: list[str | None]) -> None:
        base, out = (element(scope, self.element, x, at) for x in sides)

        def row(outer: Scope, r: str, sums: list[str]) -> list[str]:
            start = element(outer, self.element, base, product(outer, r, "%below"))
            along = element(outer, self.element, "%turned", product(outer, r, "%run"))

            def term(inner: Scope, k: str, now: list[str]) -> list[str]:
                machine = Machine(inner, 8 * self.bytes, self.lanes, self.target)
                factor = inner.emit(f"load {self.element}, ptr {element(inner, self.element, along, k)}")
                one = inner.emit(f"insertelement {self.kind} poison, {self.element} {factor}, i32 0")
                many = inner.emit(f"shufflevector {self.kind} {one}, {self.kind} poison, <{self.lanes} x i32> zeroinitializer")
                place = element(inner, self.element, start, k)
                places = [element(inner, self.element, place, str(v * self.lanes)) for v in range(len(masks))]
                return [machine.fma(many, load_first(inner, self.kind, at, mask), x)
                        for at, mask, x in zip(places, masks, now, strict=True)]
            return loop(outer, "0", "%run", "1", [(self.kind, x) for x in sums], term)
        sums = loop(scope, "0", "%rows", "1", [(self.kind, "zeroinitializer")] * len(masks), row)
        for v, (mask, x) in enumerate(zip(masks, sums, strict=True)):
            store_first(scope, self.kind, x, element(scope, self.element, out, str(v * self.lanes)), mask)
