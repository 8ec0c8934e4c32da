"""Convolutions with windows of 3x3 as text, in Winograd's form F(4x4, 3x3): a quarter of the multiplications.

    void @lw_winograd_f32(i64 numbers..., ptr x, ptr w, ptr out, ptr error)             the arguments of `few_features.py`
    void @lw_winograd_f64(...)                                                          strides and spreads are 1

The result is cut into tiles of 4x4 pixels. The 6x6 pixels that a tile reads, and the kernel, are brought to 36 points; at each
point all tiles times the kernel are a product of matrices, over channels; the 36 sums of a tile are brought back to its pixels.
Some tiles at once: all that is made of them stays in the second cache.

Guarantees: nothing outside the arrays is read or written; an element's sum is made in one order, however many threads there
are. An element is rounded as the sums of its whole tile are, though, and what is infinite or NaN spoils the tiles that read it:
see decision 041.

The form: A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen.few_features import GIVEN, fail, greatest, least
from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, suffix, vector_type
from loopwright.lower.codegen.small import call_panel, element, first_lanes, load_first, store_first, widest
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

TILE, WINDOW, SIDE = 4, 3, 6  # pixels of the result, of a window, and of what a tile reads
POINTS = SIDE * SIDE
OF_IMAGE = ((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1))
OF_KERNEL = ((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
             (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1))
OF_RESULT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
KEPT = 1 << 19  # bytes of what is made of some tiles
FEWEST = 32  # tiles at once: they read the kernel's points together
PARTS = 16  # of a result that has as many tiles
TERMS = 96  # of a product at a time: a panel of the kernel's points then stays in the first cache
Matrix = Sequence[Sequence[float]]
Grid = list[list[str]]


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_winograd_f{8 * dtype.itemsize}"


def winograd_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and those that it calls but for the pool's, the scratch memory's and those of `small.py`."""
    return _Winograd(dtype, target, declarations, constants).text()


class _Winograd:
    def __init__(self, dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> None:
        self.dtype, self.target, self.declarations, self.constants = dtype, target, declarations, constants
        self.number, self.bytes, self.lanes = memory_type(dtype), dtype.itemsize, target.lanes(dtype)
        self.kind, self.name = vector_type(self.number, self.lanes), name_of(dtype)
        self.wide = widest(target) * self.lanes

    def text(self) -> str:
        """All functions."""
        given = [x.split() for x in f"{GIVEN}, i64 %some, i64 %tiles, i64 %apart, ptr %points".split(", ")]
        parts: list[tuple[str, Callable[[Scope], None]]] = [
            (f"void @{self.name}({GIVEN})", partial(self._whole, given)),
            (f"internal void @{self.name}_kernel(ptr %context, i64 %begin, i64 %end)", partial(self._kernel, given)),
            (f"internal void @{self.name}_tiles(ptr %context, i64 %begin, i64 %end)", partial(self._tiles, given)),
            (f"internal void @{self.name}_there(ptr %from, i64 %row, ptr %to, i64 %step, i64 %channels) noinline", self._there),
            (f"internal void @{self.name}_back(ptr %from, i64 %step, ptr %to, i64 %row, i64 %high, i64 %wide, i64 %features) "
             "noinline", self._back)]
        made = []
        for header, write in parts:
            f = Function(self.declarations, self.constants)
            write(f.root)
            made.append(f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}")
        return "\n".join(made)

    # ---- all of it --------------------------------------------------------------------------------
    def _whole(self, given: list[list[str]], root: Scope) -> None:
        """The kernel's points, then all tiles: threads share out both."""
        pixels = product(root, "%images", "%high", "%wide", "%features")
        branch(root, root.emit(f"icmp sgt i64 {pixels}, 0"), partial(self._made, given))

    def _made(self, given: list[list[str]], root: Scope) -> Carried:
        across, down = (root.emit(f"udiv i64 {added(root, x, TILE - 1)}, {TILE}") for x in ("%wide", "%high"))
        root.do(f"%tiles = mul i64 {product(root, across, down)}, %images")
        both = product(root, added(root, "%channels", "%features"), str(POINTS * self.bytes))
        share = root.emit(f"udiv i64 %tiles, {PARTS}")
        fitting = least(root, root.emit(f"udiv i64 {KEPT}, {both}"), share)
        root.do(f"%some = add i64 {greatest(root, fitting, str(FEWEST))}, 0")
        padded = root.emit(f"and i64 {added(root, '%features', self.wide - 1)}, {-self.wide}")
        root.do(f"%apart = mul i64 %channels, {padded}")
        size = product(root, "%apart", str(POINTS * self.bytes))
        root.do(f"%points = call ptr @lw_scratch_acquire(i64 {size})")
        root.function.declare("ptr", "lw_scratch_acquire", [("i64", "")])

        def make(scope: Scope) -> Carried:
            context = scope.function.slot(len(given), "i64", 8)
            for k, (type, x) in enumerate(given):
                scope.do(f"store {type} {x}, ptr {element(scope, 'i64', context, str(k))}")
            each = product(scope, "%features", str(2 * POINTS))
            past = scope.emit(f"sub i64 {added(scope, '%tiles', '%some')}, 1")
            blocks = scope.emit(f"udiv i64 {past}, %some")
            work = product(scope, "%some", "%channels", "%features", str(POINTS))
            for name, count, units in (("kernel", "%channels", each), ("tiles", blocks, work)):
                scope.run("lw_loop", [("ptr", f"@{self.name}_{name}"), ("ptr", context), ("i64", count), ("i64", units),
                                      ("i64", "1"), ("i64", "1")])
            scope.run("lw_scratch_release", [("ptr", "%points")])
            return ()
        branch(root, root.emit("icmp eq ptr %points, null"), fail, make, rare=True)
        return ()

    def _arguments(self, given: list[list[str]], root: Scope) -> None:
        for k, (type, x) in enumerate(given):
            root.do(f"{x} = load {type}, ptr {element(root, 'i64', '%context', str(k))}")

    # ---- transforms -------------------------------------------------------------------------------
    def _machine(self, scope: Scope) -> Machine:
        return Machine(scope, 8 * self.bytes, self.lanes, self.target)

    def _combined(self, scope: Scope, row: Sequence[float], values: Sequence[str]) -> str:
        """The sum of values, each times its factor; there is one that is not zero."""
        m, total = self._machine(scope), ""
        for factor, x in sorted(zip(row, values, strict=True), key=lambda pair: abs(pair[0]) != 1):
            if factor == 0:
                continue
            if not total:
                total = x if factor == 1 else m.neg(x) if factor == -1 else m.mul(x, float(factor))
            elif abs(factor) == 1:
                total = m.add(total, x) if factor == 1 else m.sub(total, x)
            else:
                total = m.fma(x, float(factor), total)
        return total

    def _both_ways(self, scope: Scope, matrix: Matrix, grid: Grid) -> Grid:
        """matrix grid matrix'"""
        columns = [[self._combined(scope, row, column) for row in matrix] for column in zip(*grid, strict=True)]
        return [[self._combined(scope, row, line) for row in matrix] for line in zip(*columns, strict=True)]

    def _in_vectors(self, scope: Scope, count: str, body: Callable[[Scope, str, str | None], None]) -> None:
        """The body for each vector of so many elements; for the last with a mask."""
        whole = scope.emit(f"and i64 {count}, {-self.lanes}")
        rest = scope.emit(f"sub i64 {count}, {whole}")

        def vector(inner: Scope, at: str, state: list[str]) -> list[str]:
            body(inner, at, None)
            return []

        def last(inner: Scope) -> Carried:
            body(inner, whole, first_lanes(inner, rest, self.lanes))
            return ()
        loop(scope, "0", whole, str(self.lanes), (), vector)
        branch(scope, scope.emit(f"icmp ne i64 {rest}, 0"), last)

    def _at(self, scope: Scope, base: str, *places: str) -> str:
        for place in places:
            base = element(scope, self.number, base, place)
        return base

    def _kernel(self, given: list[list[str]], root: Scope) -> None:
        """The points of some channels: panels of features, in them the channels."""
        self._arguments(given, root)
        kind = vector_type("i64", self.lanes)
        one = root.emit(f"insertelement {kind} poison, i64 %w.feature, i32 0")
        all_ones = root.emit(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")
        steps = root.emit(f"mul {kind} {all_ones}, <{', '.join(f'i64 {k}' for k in range(self.lanes))}>")

        def channel(scope: Scope, c: str, state: list[str]) -> list[str]:
            def vector(inner: Scope, at: str, mask: str | None) -> None:
                first = self._at(inner, "%w", product(inner, c, "%w.channel"), product(inner, at, "%w.feature"))
                places = [self._at(inner, first, product(inner, str(r), "%w.row"), product(inner, str(q), "%w.column"))
                          for r in range(WINDOW) for q in range(WINDOW)]
                found = self._features(inner, places, mask, steps)
                made = self._both_ways(inner, OF_KERNEL, [found[k:k + WINDOW] for k in range(0, len(found), WINDOW)])
                panel = inner.emit(f"and i64 {at}, {-self.wide}")
                to = self._at(inner, "%points", product(inner, panel, "%channels"), product(inner, c, str(self.wide)),
                              inner.emit(f"sub i64 {at}, {panel}"))
                for k, value in enumerate([x for row in made for x in row]):
                    store_first(inner, self.kind, value, self._at(inner, to, product(inner, str(k), "%apart")), mask)
            self._in_vectors(scope, "%features", vector)
            return []
        loop(root, "%begin", "%end", "1", (), channel)

    def _features(self, scope: Scope, places: Sequence[str], mask: str | None, steps: str) -> list[str]:
        """A number of each of some features, from each place on: they lie side by side, or any number of elements apart."""
        many = vector_type("ptr", self.lanes)
        kept = mask or f"<{', '.join(['i1 true'] * self.lanes)}>"

        def side_by_side(inner: Scope) -> Carried:
            return [(self.kind, load_first(inner, self.kind, place, mask)) for place in places]

        def apart(inner: Scope) -> Carried:
            each = [inner.emit(f"getelementptr {self.number}, ptr {place}, {vector_type('i64', self.lanes)} {steps}")
                    for place in places]
            return [(self.kind, inner.call(self.kind, f"llvm.masked.gather.{suffix(self.kind)}.{suffix(many)}", [
                (many, x), ("i32", str(self.bytes)), (vector_type("i1", self.lanes), kept), (self.kind, "zeroinitializer")]))
                for x in each]
        return branch(scope, scope.emit("icmp eq i64 %w.feature, 1"), side_by_side, apart)

    def _there(self, root: Scope) -> None:
        """What a tile reads, brought to its points: `step` apart."""
        def vector(scope: Scope, at: str, mask: str | None) -> None:
            places = [[self._at(scope, "%from", at, product(scope, str(y), "%row"), product(scope, str(x), "%channels"))
                       for x in range(SIDE)] for y in range(SIDE)]
            made = self._both_ways(scope, OF_IMAGE, [[load_first(scope, self.kind, x, mask) for x in row] for row in places])
            for k, value in enumerate([x for row in made for x in row]):
                store_first(scope, self.kind, value, self._at(scope, "%to", at, product(scope, str(k), "%step")), mask)
        self._in_vectors(root, "%channels", vector)

    def _back(self, root: Scope) -> None:
        """A tile's points brought back to the pixels that are there."""
        whole = root.emit(f"icmp eq i64 {root.emit('add i64 %high, %wide')}, {2 * TILE}")

        def vector(scope: Scope, at: str, mask: str | None) -> None:
            places = [self._at(scope, "%from", at, product(scope, str(k), "%step")) for k in range(POINTS)]
            points = [load_first(scope, self.kind, x, mask) for x in places]
            made = self._both_ways(scope, OF_RESULT, [points[k:k + SIDE] for k in range(0, POINTS, SIDE)])

            def put(inner: Scope, y: int, x: int) -> Carried:
                to = self._at(inner, "%to", at, product(inner, str(y), "%row"), product(inner, str(x), "%features"))
                store_first(inner, self.kind, made[y][x], to, mask)
                return ()
            pixels = [(y, x) for y in range(TILE) for x in range(TILE)]

            def all_of_them(inner: Scope) -> Carried:
                for y, x in pixels:
                    put(inner, y, x)
                return ()

            def some(inner: Scope) -> Carried:
                for y, x in pixels:
                    tests = [inner.emit(f"icmp sgt i64 %{size}, {k}") for size, k in (("high", y), ("wide", x))]
                    branch(inner, inner.emit(f"and i1 {tests[0]}, {tests[1]}"), partial(put, y=y, x=x))
                return ()
            branch(scope, whole, all_of_them, some)
        self._in_vectors(root, "%features", vector)

    # ---- tiles ------------------------------------------------------------------------------------
    def _tiles(self, given: list[list[str]], root: Scope) -> None:
        """Some blocks of tiles."""
        self._arguments(given, root)
        root.do("%n = add i64 %features, 0")  # as products call it
        steps = [product(root, "%some", x) for x in ("%channels", "%features")]
        sizes = [product(root, x, str(POINTS * self.bytes)) for x in (*steps, "%channels")]
        block = root.call("ptr", "lw_scratch_acquire", [("i64", added(root, added(root, *sizes[:2]), sizes[2]))])
        sums = root.emit(f"getelementptr i8, ptr {block}, i64 {sizes[0]}")
        edge = root.emit(f"getelementptr i8, ptr {sums}, i64 {sizes[1]}")

        def run(scope: Scope) -> Carried:
            loop(scope, "%begin", "%end", "1", (), partial(self._block, (block, steps[0]), (sums, steps[1]), edge))
            scope.run("lw_scratch_release", [("ptr", block)])
            return ()
        branch(root, root.emit(f"icmp eq ptr {block}, null"), fail, run, rare=True)

    def _block(self, there: tuple[str, str], back: tuple[str, str], edge: str, scope: Scope, number: str,
               state: list[str]) -> list[str]:
        """Some tiles."""
        first = product(scope, number, "%some")
        count = least(scope, scope.emit(f"sub i64 %tiles, {first}"), "%some")
        across, down = (scope.emit(f"udiv i64 {added(scope, x, TILE - 1)}, {TILE}") for x in ("%wide", "%high"))

        def place(inner: Scope, k: str) -> tuple[str, str, str]:
            """A tile's image, and where it begins there."""
            row = inner.emit(f"udiv i64 {added(inner, first, k)}, {across}")
            x = inner.emit(f"sub i64 {added(inner, first, k)}, {product(inner, row, across)}")
            image = inner.emit(f"udiv i64 {row}, {down}")
            y = inner.emit(f"sub i64 {row}, {product(inner, image, down)}")
            return image, product(inner, y, str(TILE)), product(inner, x, str(TILE))

        def bring(inner: Scope, k: str, now: list[str]) -> list[str]:
            image, y, x = place(inner, k)
            base, row = self._read(inner, image, inner.emit(f"sub i64 {y}, %above"), inner.emit(f"sub i64 {x}, %before"), edge)
            to = self._at(inner, there[0], product(inner, k, "%channels"))
            inner.do(f"call void @{self.name}_there(ptr {base}, i64 {row}, ptr {to}, i64 {there[1]}, i64 %channels)")
            return []

        def take(inner: Scope, k: str, now: list[str]) -> list[str]:
            image, y, x = place(inner, k)
            line = product(inner, added(inner, product(inner, image, "%high"), y), "%wide")
            to = self._at(inner, "%out", product(inner, added(inner, line, x), "%features"))
            high, wide = (inner.emit(f"sub i64 {size}, {at}") for size, at in (("%high", y), ("%wide", x)))
            since, row = self._at(inner, back[0], product(inner, k, "%features")), product(inner, "%wide", "%features")
            inner.do(f"call void @{self.name}_back(ptr {since}, i64 {back[1]}, ptr {to}, i64 {row}, "
                     f"i64 {least(inner, high, str(TILE))}, i64 {least(inner, wide, str(TILE))}, i64 %features)")
            return []

        def multiply(inner: Scope, point: str, now: list[str]) -> list[str]:
            sides = [self._at(inner, base, product(inner, point, step)) for base, step in (there, back)]
            self._product(inner, sides, self._at(inner, "%points", product(inner, point, "%apart")), count)
            return []
        loop(scope, "0", count, "1", (), bring)
        loop(scope, "0", str(POINTS), "1", (), multiply)
        loop(scope, "0", count, "1", (), take)
        return []

    def _read(self, scope: Scope, image: str, y: str, x: str, edge: str) -> tuple[str, str]:
        """Where the pixels that a tile reads begin, and how far apart rows of them are: in the image, or a copy with zeros."""
        spare = [scope.emit(f"sub i64 {size}, {SIDE}") for size in ("%height", "%width")]
        tests = [f"sge i64 {y}, 0", f"sge i64 {x}, 0", f"sle i64 {y}, {spare[0]}", f"sle i64 {x}, {spare[1]}"]
        inside = "true"
        for test in tests:
            inside = scope.emit(f"and i1 {inside}, {scope.emit(f'icmp {test}')}")
        start = self._at(scope, "%x", product(scope, image, "%height", "%width", "%channels"))
        length = product(scope, "%channels", str(self.bytes))

        def in_image(inner: Scope) -> Carried:
            first = product(inner, added(inner, product(inner, y, "%width"), x), "%channels")
            return [("ptr", self._at(inner, start, first)), ("i64", product(inner, "%width", "%channels"))]

        def copied(inner: Scope) -> Carried:
            def pixel(outer: Scope, k: str, now: list[str]) -> list[str]:
                down = outer.emit(f"udiv i64 {k}, {SIDE}")
                at = added(outer, y, down), added(outer, x, outer.emit(f"sub i64 {k}, {product(outer, down, str(SIDE))}"))
                known = [outer.emit(f"icmp ult i64 {p}, {size}") for p, size in zip(at, ("%height", "%width"), strict=True)]
                to = self._at(outer, edge, product(outer, k, "%channels"))

                def copy(here: Scope) -> Carried:
                    line = added(here, product(here, at[0], "%width"), at[1])
                    source = self._at(here, start, product(here, line, "%channels"))
                    here.run("llvm.memcpy.p0.p0.i64", [("ptr", to), ("ptr", source), ("i64", length), ("i1", "false")])
                    return ()

                def clear(here: Scope) -> Carried:
                    here.run("llvm.memset.p0.i64", [("ptr", to), ("i8", "0"), ("i64", length), ("i1", "false")])
                    return ()
                branch(outer, outer.emit(f"and i1 {known[0]}, {known[1]}"), copy, clear)
                return []
            loop(inner, "0", str(POINTS), "1", (), pixel)
            return [("ptr", edge), ("i64", product(inner, "%channels", str(SIDE)))]
        base, row = branch(scope, inside, in_image, copied)
        return base, row

    def _product(self, scope: Scope, sides: list[str], points: str, count: str) -> None:
        """All of some tiles times the kernel, at one point."""
        def panel(inner: Scope, at: str, state: list[str]) -> list[str]:
            left = inner.emit(f"sub i64 %features, {at}")
            vectors = inner.emit(f"udiv i64 {added(inner, left, self.lanes - 1)}, {self.lanes}")
            vectors = least(inner, vectors, str(widest(self.target)))
            right, c = self._at(inner, points, product(inner, at, "%channels")), self._at(inner, sides[1], at)

            def terms(here: Scope, term: str, now: list[str]) -> list[str]:
                many = least(here, here.emit(f"sub i64 %channels, {term}"), str(TERMS))
                a, b = self._at(here, sides[0], term), self._at(here, right, product(here, term, str(self.wide)))
                again = here.emit(f"icmp ne i64 {term}, 0")

                def one(arm: Scope, v: int) -> Carried:
                    call_panel(arm, self.dtype, v, (many, a, b, str(self.wide), c, count, left, again), ("%channels", "1"))
                    return ()
                for v in range(1, widest(self.target) + 1):
                    branch(here, here.emit(f"icmp eq i64 {vectors}, {v}"), partial(one, v=v))
                return []
            loop(inner, "0", "%channels", str(TERMS), (), terms)
            return []
        loop(scope, "0", "%features", str(self.wide), (), panel)
