"""Gradients of convolutions by their kernels as text: products of rows of windows and features, over all pixels.

    void @lw_kernel_slopes_f32(i64 numbers..., ptr x, ptr dy, ptr out, ptr error)       `NUMBERS` names them
    void @lw_kernel_slopes_f64(...)     out[row, column, c, o] += x[image, y + row, x + column, c] * dy[image, y, x, o]

Windows are read where they lie in a few rows of an image, copied between zeros: a row of one is all of its positions and
features, which follow each other. Tiles of registers have rows by features, or, of few features, features by rows, and go past
the pixels of these few rows; sums of all tiles stay in the caches. Nothing is copied once for each position of a window.

Guarantees: nothing outside the arrays is read or written; a sum is made in one order, however many threads there are.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from loopwright.lower.codegen.few_features import NUMBERS as FORWARD
from loopwright.lower.codegen.few_features import copy_row, fail, greatest, least, reach_of, rows_read
from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.tile_functions import TileShape, tile_function
from loopwright.lower.target import Target

NUMBERS = tuple([x for x in FORWARD if not x.startswith("w.")])  # down and right: how far windows are apart
POINTERS = ("x", "dy", "out", "error")
MADE = ("sums", "lines", "across", "apart", "units", "turned")  # lines by how many across: sums of a row of the kernel
GIVEN = ", ".join([*(f"i64 %{x}" for x in NUMBERS), *(f"ptr %{x}" for x in POINTERS)])
PIXELS = 128  # gone past at once: what is read of them stays in the first cache
PARTS = 2  # vectors of a tile


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_kernel_slopes_f{8 * dtype.itemsize}"


def kernel_slopes_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and those that it calls but for the pool's and the scratch memory's."""
    whole, some = (Function(declarations, constants) for _ in range(2))
    made = _Slopes(dtype, target)
    made.whole(whole)
    made.some(some)
    headers = {f"internal void @{name_of(dtype)}_some(ptr %context, i64 %begin, i64 %end)": some,
               f"void @{name_of(dtype)}({GIVEN})": whole}
    return "\n".join([f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in headers.items()])


class _Slopes:
    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.dtype, self.target, self.kind, self.bytes = dtype, target, memory_type(dtype), dtype.itemsize
        self.lanes, height = target.lanes(dtype), (target.vector_registers - PARTS - 1) // PARTS
        self.heights, self.panel = (height, height // 2, height // 4), PARTS * target.lanes(dtype)

    # ---- all of it --------------------------------------------------------------------------------
    def whole(self, function: Function) -> None:
        """Threads share out tiles of rows; the sums of all are copied to where the result is."""
        root = function.root
        run = product(root, "%columns", "%channels")
        turned = root.emit(f"icmp slt i64 {self._cost(root, '%features', run)}, {self._cost(root, run, '%features')}")
        lines, width = (root.emit(f"select i1 {turned}, i64 {a}, i64 {b}") for a, b in (("%features", run), (run, "%features")))
        apart = self._whole_lanes(root, width)
        units = added(root, self._stacked(root, lines), 1)
        size = product(root, "%rows", self._of_row(root, lines, apart), str(self.bytes))
        sums = root.call("ptr", "lw_scratch_acquire", [("i64", size)])

        def make(scope: Scope) -> Carried:
            scope.run("llvm.memset.p0.i64", [("ptr", sums), ("i8", "0"), ("i64", size), ("i1", "false")])
            given = [*(text.split() for text in GIVEN.split(", ")), ("ptr", sums),
                     *(("i64", x) for x in (lines, width, apart, units, scope.emit(f"zext i1 {turned} to i64")))]
            context = function.slot(len(given), "i64", 8)
            for k, (type, x) in enumerate(given):
                scope.do(f"store {type} {x}, ptr {element(scope, 'i64', context, str(k))}")
            pixels = product(scope, "%images", "%high", "%wide")
            work = product(scope, pixels, width, str(self.heights[0]))

            def shared(inner: Scope) -> Carried:
                inner.run("lw_wide_loop", [("ptr", f"@{name_of(self.dtype)}_some"), ("ptr", context),
                                           ("i64", product(inner, "%rows", units)), ("i64", work), ("i64", "1"), ("i64", "1")])
                return ()
            branch(scope, scope.emit(f"icmp sgt i64 {pixels}, 0"), shared)
            branch(scope, turned, partial(self._store, sums, run, apart, True), partial(self._store, sums, run, apart, False))
            scope.run("lw_scratch_release", [("ptr", sums)])
            return ()
        branch(root, root.emit(f"icmp eq ptr {sums}, null"), fail, make, rare=True)

    def _cost(self, scope: Scope, lines: str, width: str) -> str:
        """What tiles of so many lines and columns take: empty lanes, and rows past the last, as others."""
        lower = scope.emit(f"udiv i64 {added(scope, lines, self.heights[-1] - 1)}, {self.heights[-1]}")
        return product(scope, lower, self._whole_lanes(scope, width))

    def _whole_lanes(self, scope: Scope, width: str) -> str:
        return scope.emit(f"and i64 {added(scope, width, self.lanes - 1)}, {-self.lanes}")

    def _stacked(self, scope: Scope, lines: str) -> str:
        """How many tiles of the first height there are: what the lower ones, each once, have no room for."""
        left = scope.emit(f"sub i64 {lines}, {sum(self.heights[1:]) - self.heights[0] + 1}")
        return greatest(scope, scope.emit(f"sdiv i64 {left}, {self.heights[0]}"), "0")

    def _of_row(self, scope: Scope, lines: str, apart: str) -> str:
        """How many sums a row of the kernel has, with those past its end."""
        return product(scope, added(scope, lines, self.heights[0]), apart)

    def _store(self, sums: str, run: str, apart: str, turned: bool, scope: Scope) -> Carried:
        """The sums to where the result is."""
        lines = "%features" if turned else run
        size = self._of_row(scope, lines, apart)

        def row(outer: Scope, number: str, state: list[str]) -> list[str]:
            of, to = (element(outer, self.kind, base, product(outer, number, step))
                      for base, step in ((sums, size), ("%out", product(outer, run, "%features"))))

            def line(inner: Scope, at: str, now: list[str]) -> list[str]:
                found = element(inner, self.kind, of, product(inner, at, apart))
                if not turned:
                    place = element(inner, self.kind, to, product(inner, at, "%features"))
                    length = product(inner, "%features", str(self.bytes))
                    inner.run("llvm.memcpy.p0.p0.i64", [("ptr", place), ("ptr", found), ("i64", length), ("i1", "false")])
                    return []

                def one(last: Scope, k: str, _: list[str]) -> list[str]:
                    value = last.emit(f"load {self.kind}, ptr {element(last, self.kind, found, k)}")
                    place = element(last, self.kind, to, added(last, product(last, k, "%features"), at))
                    last.do(f"store {self.kind} {value}, ptr {place}")
                    return []
                loop(inner, "0", run, "1", (), one)
                return []
            loop(outer, "0", lines, "1", (), line)
            return []
        loop(scope, "0", "%rows", "1", (), row)
        return ()

    # ---- some tiles -------------------------------------------------------------------------------
    def some(self, function: Function) -> None:
        """Some tiles of rows, over a few rows of one image after the other."""
        root = function.root
        for k, x in enumerate((*NUMBERS, *POINTERS, *MADE)):
            type = "ptr" if x in (*POINTERS, "sums") else "i64"
            root.do(f"%{x} = load {type}, ptr {element(root, 'i64', '%context', str(k))}")
        root.do(f"%reach = add i64 0, {reach_of(root)}")
        root.do("%padded = add i64 0, " + added(root, product(root, root.emit("sub i64 %wide, 1"), "%right"), "%columns"))
        root.do("%line = mul i64 %padded, %channels")
        fits = root.emit(f"udiv i64 {PIXELS}, {greatest(root, '%wide', '1')}")
        root.do(f"%most = add i64 0, {least(root, greatest(root, fits, '1'), '%high')}")
        of_image = added(root, product(root, rows_read(root, "%most", "%reach"), "%line"), 2 * self.panel)
        panels = root.emit(f"mul i64 {self._panels(root)}, {self.panel}")
        of_features = added(root, product(root, "%most", "%wide", panels), self.heights[0])
        size = product(root, added(root, of_image, of_features), str(self.bytes))
        copy = root.call("ptr", "lw_scratch_acquire", [("i64", size)])
        dy = element(root, self.kind, copy, of_image)

        def run(scope: Scope) -> Carried:
            scope.run("llvm.memset.p0.i64", [("ptr", copy), ("i8", "0"), ("i64", size), ("i1", "false")])

            def image(outer: Scope, number: str, state: list[str]) -> list[str]:
                def rows(inner: Scope, y: str, now: list[str]) -> list[str]:
                    self._rows(inner, number, y, (copy, dy))
                    return []
                loop(outer, "0", "%high", "%most", (), rows)
                return []
            loop(scope, "0", "%images", "1", (), image)
            scope.run("lw_scratch_release", [("ptr", copy)])
            return ()
        branch(root, root.emit(f"icmp eq ptr {copy}, null"), fail, run, rare=True)

    def _panels(self, scope: Scope) -> str:
        return scope.emit(f"udiv i64 {added(scope, '%features', self.panel - 1)}, {self.panel}")

    def _rows(self, scope: Scope, image: str, y: str, copies: tuple[str, str]) -> None:
        """A few rows of an image: what is read of them is copied, then tiles go past it."""
        count = least(scope, scope.emit(f"sub i64 %high, {y}"), "%most")
        pixels, copy, dy = product(scope, count, "%wide"), *copies
        start = element(scope, self.kind, "%x", product(scope, image, "%height", "%width", "%channels"))
        read = partial(copy_row, self.kind, self.bytes, start, copy, product(scope, y, "%down"), "%padded")
        loop(scope, "0", rows_read(scope, count, "%reach"), "1", (), read)
        first = added(scope, product(scope, image, "%high"), y)
        source = element(scope, self.kind, "%dy", product(scope, first, "%wide", "%features"))
        turned = scope.emit("icmp ne i64 %turned, 0")
        given = copy, dy, source, pixels, count
        branch(scope, turned, partial(self._by_features, *given), partial(self._by_windows, *given))

    def _by_features(self, copy: str, dy: str, source: str, pixels: str, count: str, scope: Scope) -> Carried:
        """Features by elements of windows."""
        length = product(scope, pixels, "%features", str(self.bytes))
        scope.run("llvm.memcpy.p0.p0.i64", [("ptr", dy), ("ptr", source), ("i64", length), ("i1", "false")])

        def panel(inner: Scope, at: str, parts: int) -> None:
            def tile(last: Scope, row: str, line: str, height: int) -> None:
                below = added(last, product(last, row, "%spread", "%line"), at)
                steps = [product(last, *x) for x in (("%wide", "%features"), ("%down", "%line"), ("%right", "%channels"))]
                shape = TileShape(self.dtype, height, parts, self.lanes, 1, None, None, 0, False, False, False)
                sides = element(last, self.kind, dy, line), element(last, self.kind, copy, below)
                self._call(last, shape, sides, (row, line, at), count, steps[:2], ("%features", steps[2]))
            self._tiles(inner, tile)
        self._across(scope, panel)
        return ()

    def _by_windows(self, copy: str, dy: str, source: str, pixels: str, count: str, scope: Scope) -> Carried:
        """Elements of windows by features, which are copied in panels."""
        size = product(scope, "%most", "%wide", str(self.panel))

        def panel(inner: Scope, at: str, parts: int) -> None:
            number = inner.emit(f"udiv i64 {at}, {self.panel}")
            features = element(inner, self.kind, dy, product(inner, number, size))
            left = least(inner, inner.emit(f"sub i64 %features, {at}"), str(self.panel))
            length = product(inner, left, str(self.bytes))

            def pixel(last: Scope, k: str, state: list[str]) -> list[str]:
                to = element(last, self.kind, features, product(last, k, str(self.panel)))
                found = element(last, self.kind, source, added(last, product(last, k, "%features"), at))
                last.run("llvm.memcpy.p0.p0.i64", [("ptr", to), ("ptr", found), ("i64", length), ("i1", "false")])
                return []
            loop(inner, "0", pixels, "1", (), pixel)

            def tile(last: Scope, row: str, line: str, height: int) -> None:
                below = added(last, product(last, row, "%spread", "%line"), line)
                steps = [product(last, *x) for x in (("%down", "%line"), ("%wide", str(self.panel)), ("%right", "%channels"))]
                shape = TileShape(self.dtype, height, parts, self.lanes, 1, None, PARTS, 0, False, False, False)
                sides = element(last, self.kind, copy, below), features
                self._call(last, shape, sides, (row, line, at), count, steps[:2], (steps[2],))
            self._tiles(inner, tile)
        self._across(scope, panel)
        return ()

    def _across(self, scope: Scope, run: Callable[[Scope, str, int], None]) -> None:
        """Panels of columns, the last of which may have half the vectors."""
        def panel(inner: Scope, at: str, state: list[str]) -> list[str]:
            few = inner.emit(f"icmp sle i64 {inner.emit(f'sub i64 %across, {at}')}, {self.lanes}")

            def of(parts: int, arm: Scope) -> Carried:
                run(arm, at, parts)
                return ()
            branch(inner, few, partial(of, 1), partial(of, PARTS))
            return []
        loop(scope, "0", "%across", str(self.panel), (), panel)

    def _tiles(self, scope: Scope, run: Callable[[Scope, str, str, int], None]) -> None:
        """The tiles that this thread has, of one panel: for each row of the kernel those of the first height, then lower."""
        stacked = self._stacked(scope, "%lines")

        def unit(inner: Scope, number: str, state: list[str]) -> list[str]:
            row = inner.emit(f"udiv i64 {number}, %units")
            line = product(inner, inner.emit(f"sub i64 {number}, {product(inner, row, '%units')}"), str(self.heights[0]))
            full = inner.emit(f"icmp slt i64 {line}, {product(inner, stacked, str(self.heights[0]))}")

            def high(arm: Scope) -> Carried:
                run(arm, row, line, self.heights[0])
                return ()

            def rest(arm: Scope) -> Carried:
                at = line
                for height, lower in zip(self.heights[1:], (*self.heights[2:], 0), strict=True):
                    more = arm.emit(f"icmp sgt i64 {arm.emit(f'sub i64 %lines, {at}')}, {lower}")

                    def one(deep: Scope, height: int = height, at: str = at) -> Carried:
                        run(deep, row, at, height)
                        return [("i64", added(deep, at, height))]
                    at, = branch(arm, more, one, otherwise=[("i64", at)])
                return ()
            branch(inner, full, high, rest)
            return []
        loop(scope, "%begin", "%end", "1", (), unit)

    def _call(self, scope: Scope, shape: TileShape, sides: tuple[str, str], place: tuple[str, str, str], count: str,
              steps: list[str], paces: tuple[str, ...]) -> None:
        """Add a tile's products of these pixels to its sums: `count` rows of pixels, which lie steps apart on both sides."""
        name, declarations, texts = tile_function(shape, self.target)
        scope.function.declarations |= declarations
        scope.function.constants |= texts
        row, line, at = place
        past = added(scope, product(scope, row, self._of_row(scope, "%lines", "%apart")), product(scope, line, "%apart"))
        sums = element(scope, self.kind, "%sums", added(scope, past, at))
        given = [*(f"ptr {x}" for x in (*sides, sums)), *(f"i64 {x}" for x in ("%wide", count, *steps)), "i1 false",
                 "i64 %apart", *(f"i64 {x}" for x in paces)]
        scope.do(f"call void @{name}({', '.join(given)})")
