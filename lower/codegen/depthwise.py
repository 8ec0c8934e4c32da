"""Convolutions whose channels are apart from each other, with large windows, as text: lanes go along channels.

    void @lw_depthwise_f32(i64 numbers..., ptr x, ptr w, ptr out, ptr error)         `NUMBERS` names them
    void @lw_depthwise_f64(...)      out[image, y, x, c]: channels are last in memory, of x too; the kernel's axes any number
                                     of elements apart

Every number of an image is in as many windows as these have positions. So a vector of channels of some rows is copied first,
between zeros, to where it lies along lines of the caches, which arrays seldom do; neighbours in the result then read neighbours
in the copy, where columns are sorted by what is left of their number by the stride. Some pixels at once share the kernel.

Guarantees: nothing outside the arrays is read or written; an element's sum is made in one order, however many threads there
are; no terms make zeros.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from loopwright.lower.codegen.few_features import by_images, fail, greatest, least, reach_of, rows_read
from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

# of the image and of the kernel; how high and wide the result is; strides; zeros before the image; how far rows of a window are
# apart; steps of the kernel's axes
NUMBERS = ("images", "height", "width", "channels", "rows", "columns", "high", "wide", "down", "right", "above", "before",
           "spread", "w.row", "w.column", "w.channel")
POINTERS = ("x", "w", "out", "error")
GIVEN = ", ".join([*(f"i64 %{x}" for x in NUMBERS), *(f"ptr %{x}" for x in POINTERS)])
COPIED = 1 << 17  # bytes of an image that are copied at once: they stay in the second cache
LEAST_ROWS = 4  # of the result, which a thread makes
_LINE = "ptr %base, ptr %turned, ptr %out, i64 %wide, i64 %channels, i64 %kept, i64 %rows, i64 %columns, i64 %below, " \
    "i64 %right, i64 %half"


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_depthwise_f{8 * dtype.itemsize}"


def most_pixels(target: Target) -> int:
    """How many pixels there are at once at most: a sum for each and the kernel's vector are in registers."""
    return 14 if target.vector_registers > 16 else 12


def depthwise_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and those that it calls but for the pool's and the scratch memory's."""
    made = _Depthwise(dtype, target)
    functions = {header: Function(declarations, constants) for header in made.headers}
    for f, emit in zip(functions.values(), made.bodies, strict=True):
        emit(f.root)
    return "\n".join(f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in functions.items())


def _ceiled(scope: Scope, a: str, b: str) -> str:
    """a / b for numbers from 0 and 1 on, rounded up."""
    return scope.emit(f"udiv i64 {scope.emit(f'sub i64 {added(scope, a, b)}, 1')}, {b}")


class _Depthwise:
    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.dtype, self.target, self.most = dtype, target, most_pixels(target)
        self.element, self.lanes, self.size = memory_type(dtype), target.lanes(dtype), dtype.itemsize
        self.kind, name = vector_type(self.element, self.lanes), name_of(dtype)
        self.headers = [*(f"internal void @{name}_{n}({_LINE}) noinline" for n in range(1, self.most + 1)),
                        f"internal void @{name}_some(ptr %context, i64 %begin, i64 %end)", f"void @{name}({GIVEN})"]
        self.bodies: list[Callable[[Scope], None]] = [
            *(partial(self.line, n) for n in range(1, self.most + 1)), self.some, self.whole]

    def place(self, scope: Scope, base: str, at: str) -> str:
        return element(scope, self.element, base, at)

    # ---- the kernel -----------------------------------------------------------------------------
    def whole(self, root: Scope) -> None:
        """The kernel is copied, a vector of channels after the other, then threads share out rows of the result."""
        count = product(root, "%images", "%high", "%wide", "%channels")
        branch(root, root.emit(f"icmp sgt i64 {count}, 0"), self._all_rows)

    def _all_rows(self, scope: Scope) -> Carried:
        blocks = _ceiled(scope, "%channels", str(self.lanes))
        length = product(scope, blocks, "%rows", "%columns", str(self.lanes * self.size))
        turned = scope.call("ptr", "lw_scratch_acquire", [("i64", length)])

        def make(inner: Scope) -> Carried:
            loop(inner, "0", "%channels", str(self.lanes), [("ptr", turned)], self._turn)
            given = [text.split() for text in GIVEN.replace("ptr %w", f"ptr {turned}").split(", ")]
            context = inner.function.slot(len(given), "i64", 8)
            for k, (type, x) in enumerate(given):
                inner.do(f"store {type} {x}, ptr {element(inner, 'i64', context, str(k))}")
            units = product(inner, "%wide", "%channels", "%rows", "%columns")
            inner.run("lw_loop", [("ptr", f"@{name_of(self.dtype)}_some"), ("ptr", context),
                                  ("i64", product(inner, "%images", "%high")), ("i64", units), ("i64", str(LEAST_ROWS)),
                                  ("i64", "1")])
            inner.run("lw_scratch_release", [("ptr", turned)])
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {turned}, null"), fail, make, rare=True)
        return ()

    def _turn(self, scope: Scope, first: str, state: list[str]) -> list[str]:
        """A vector of channels at all positions of the kernel."""
        left = scope.emit(f"sub i64 %channels, {first}")
        mask, count = first_lanes(scope, left, self.lanes), least(scope, left, str(self.lanes))

        def column(inner: Scope, q: str, now: list[str], row: str) -> list[str]:
            start = self.place(inner, row, product(inner, q, "%w.column"))

            def together(here: Scope) -> Carried:
                store_first(here, self.kind, load_first(here, self.kind, start, mask), now[0], None)
                return ()

            def apart(here: Scope) -> Carried:
                here.do(f"store {self.kind} zeroinitializer, ptr {now[0]}, align {self.size}")

                def channel(each: Scope, c: str, _: list[str]) -> list[str]:
                    value = each.emit(f"load {self.element}, ptr {self.place(each, start, product(each, c, '%w.channel'))}")
                    each.do(f"store {self.element} {value}, ptr {self.place(each, now[0], c)}")
                    return []
                loop(here, "0", count, "1", (), channel)
                return ()
            branch(inner, inner.emit("icmp eq i64 %w.channel, 1"), together, apart)
            return [self.place(inner, now[0], str(self.lanes))]

        def row(outer: Scope, r: str, to: list[str]) -> list[str]:
            offset = added(outer, product(outer, r, "%w.row"), product(outer, first, "%w.channel"))
            return loop(outer, "0", "%columns", "1", [("ptr", to[0])], partial(column, row=self.place(outer, "%w", offset)))
        return loop(scope, "0", "%rows", "1", [("ptr", state[0])], row)

    # ---- rows of the result ---------------------------------------------------------------------
    def some(self, root: Scope) -> None:
        """Some rows of the result, of one image after another: as many at once as the copy of what they read has room for."""
        for k, x in enumerate((*NUMBERS, *POINTERS)):
            type = "ptr" if x in POINTERS else "i64"
            root.do(f"%{x} = load {type}, ptr {element(root, 'i64', '%context', str(k))}")
        reach, last = reach_of(root), product(root, root.emit("sub i64 %wide, 1"), "%right")
        padded = added(root, last, "%columns")
        self.half = _ceiled(root, padded, "%right")
        self.row = product(root, self.half, "%right", str(self.lanes))
        bytes_each = greatest(root, product(root, self.row, str(self.size)), "1")
        room = root.emit(f"sub i64 {root.emit(f'udiv i64 {COPIED}, {bytes_each}')}, {reach}")
        most = added(root, root.emit(f"sdiv i64 {greatest(root, room, '0')}, %down"), 1)
        copy = root.call("ptr", "lw_scratch_acquire", [("i64", product(root, rows_read(root, most, reach), bytes_each))])
        passes = _ceiled(root, "%wide", str(self.most))
        pixels = _ceiled(root, "%wide", greatest(root, passes, "1"))
        self.tiles = f"@{name_of(self.dtype)}_{self.most}"
        for n in range(1, self.most):
            fits = root.emit(f"icmp eq i64 {pixels}, {n}")
            self.tiles = root.emit(f"select i1 {fits}, ptr @{name_of(self.dtype)}_{n}, ptr {self.tiles}")

        def rows(scope: Scope, at: str, image: str, y: str, count: str) -> None:
            loop(scope, "0", "%channels", str(self.lanes), [("ptr", "%w")],
                 partial(self._channels, copy, (at, image, y), count, rows_read(scope, count, reach)))
        by_images(root, copy, most, rows)

    def _channels(self, copy: str, where: tuple[str, str, str], count: str, tall: str, scope: Scope, first: str,
                  state: list[str]) -> list[str]:
        """A vector of channels of rows that follow each other: what they read is copied."""
        (at, image, y), kept = where, scope.emit(f"sub i64 %channels, {first}")
        above = scope.emit(f"sub i64 {product(scope, y, '%down')}, %above")
        start = self.place(scope, "%x", added(scope, product(scope, image, "%height", "%width", "%channels"), first))
        mask = first_lanes(scope, kept, self.lanes)

        def copied(inner: Scope, row: str, _: list[str]) -> list[str]:
            line = added(inner, above, row)
            to, of = (self.place(inner, base, product(inner, *step)) for base, step in (
                (copy, (row, self.row)), (start, (line, "%width", "%channels"))))

            def there(here: Scope) -> Carried:
                loop(here, "0", "%right", "1", [("ptr", to)], partial(self._columns, of, mask))
                return ()
            branch(inner, inner.emit(f"icmp ult i64 {line}, %height"), there)
            return []
        loop(scope, "0", tall, "1", (), copied)

        def made(inner: Scope, k: str, _: list[str]) -> list[str]:
            line = added(inner, above, product(inner, k, "%down"))
            before = greatest(inner, inner.emit(f"sub i64 0, {line}"), "0")
            behind = greatest(inner, inner.emit(f"sub i64 %height, {line}"), "0")
            low, high = (least(inner, _ceiled(inner, n, "%spread"), "%rows") for n in (before, behind))
            down = added(inner, product(inner, k, "%down"), product(inner, low, "%spread"))
            given = [("ptr", self.place(inner, copy, product(inner, down, self.row))),
                     ("ptr", self.place(inner, state[0], product(inner, low, "%columns", str(self.lanes)))),
                     ("ptr", self.place(inner, "%out", added(inner, product(inner, added(inner, at, k), "%wide", "%channels"),
                                                             first))),
                     ("i64", "%wide"), ("i64", "%channels"), ("i64", kept), ("i64", inner.emit(f"sub i64 {high}, {low}")),
                     ("i64", "%columns"), ("i64", product(inner, self.row, "%spread")), ("i64", "%right"), ("i64", self.half)]
            inner.do(f"call void {self.tiles}({', '.join(f'{type} {x}' for type, x in given)})")
            return []
        loop(scope, "0", count, "1", (), made)
        return [self.place(scope, state[0], product(scope, "%rows", "%columns", str(self.lanes)))]

    def _columns(self, row: str, mask: str, scope: Scope, rest: str, state: list[str]) -> list[str]:
        """Every so many columns of a row of the image, between zeros."""
        def columns_before(end: str) -> str:
            """How many of these columns lie before one."""
            left = greatest(scope, scope.emit(f"sub i64 {end}, {rest}"), "0")
            return least(scope, _ceiled(scope, left, "%right"), self.half)
        low, high = columns_before("%before"), columns_before(added(scope, "%before", "%width"))

        def to(inner: Scope, column: str) -> str:
            return self.place(inner, state[0], product(inner, column, str(self.lanes)))

        def zero(inner: Scope, column: str, _: list[str]) -> list[str]:
            inner.do(f"store {self.kind} zeroinitializer, ptr {to(inner, column)}, align {self.size}")
            return []

        def copied(inner: Scope, column: str, _: list[str]) -> list[str]:
            at = inner.emit(f"sub i64 {added(inner, product(inner, column, '%right'), rest)}, %before")
            value = load_first(inner, self.kind, self.place(inner, row, product(inner, at, "%channels")), mask)
            store_first(inner, self.kind, value, to(inner, column), None)
            return []
        loop(scope, "0", low, "1", (), zero)
        loop(scope, low, high, "1", (), copied)
        loop(scope, high, self.half, "1", (), zero)
        return [to(scope, self.half)]

    # ---- a row ----------------------------------------------------------------------------------
    def line(self, pixels: int, root: Scope) -> None:
        """A row of the result, so many pixels at once; the last of them lie over those before."""
        mask, last = first_lanes(root, "%kept", self.lanes), root.emit(f"sub i64 %wide, {pixels}")
        run = product(root, "%right", str(self.lanes))

        def tile(scope: Scope, begin: str, _: list[str]) -> list[str]:
            at = least(scope, begin, last)
            start = self.place(scope, "%base", product(scope, at, str(self.lanes)))

            def rows(outer: Scope, row: str, now: list[str]) -> list[str]:
                below = self.place(outer, start, product(outer, row, "%below"))
                factors = self.place(outer, "%turned", product(outer, row, "%columns", str(self.lanes)))

                def some_columns(middle: Scope, rest: str, sums: list[str]) -> list[str]:
                    first = self.place(middle, below, product(middle, rest, "%half", str(self.lanes)))
                    own = self.place(middle, factors, product(middle, rest, str(self.lanes)))

                    def column(inner: Scope, q: str, both: list[str]) -> list[str]:
                        (x, w), machine = both[:2], Machine(inner, 8 * self.size, self.lanes, self.target)
                        factor = load_first(inner, self.kind, w, None)
                        values = [load_first(inner, self.kind, self.place(inner, x, str(k * self.lanes)), None)
                                  for k in range(pixels)]
                        return [self.place(inner, x, str(self.lanes)), self.place(inner, w, run),
                                *(machine.fma(v, factor, total) for v, total in zip(values, both[2:], strict=True))]
                    return loop(middle, rest, "%columns", "%right", [("ptr", first), ("ptr", own),
                                                                     *((self.kind, x) for x in sums)], column)[2:]
                several = least(outer, "%right", "%columns")
                return loop(outer, "0", several, "1", [(self.kind, x) for x in now], some_columns)
            sums = loop(scope, "0", "%rows", "1", [(self.kind, "zeroinitializer")] * pixels, rows)
            for k, x in enumerate(sums):
                place = self.place(scope, "%out", product(scope, added(scope, at, k), "%channels"))
                store_first(scope, self.kind, x, place, mask)
            return []
        loop(root, "0", "%wide", str(pixels), (), tile)
