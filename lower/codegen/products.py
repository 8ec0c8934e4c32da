"""Products of matrices as programs call them: which code makes one, by its sizes.

    void @lw_product_f32_nn(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c)    C[m, n] = A B for each matrix of a batch
    void @lw_product_f32_tn(...)                            all contiguous; t: that side is stored transposed; so _nt, _tt, f64
    void @lw_many_f32_n(...), @lw_summed_f32_nt(...)        of one left side for all: `one_by_many.py`; their sum: `summed.py`
    void @lw_apart_f32_nn(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c, i64 a.line, i64 b.line, i64 a.outer, i64 b.outer,
                          i64 a.inner, i64 b.inner, i64 inner)      the same where lines of both sides, which are contiguous,
                                                            are any number of elements apart, and so are matrices, in a batch
                                                            of batches of `inner` each

The library (`lw_gemm_f32`) is made for large matrices and copies both sides first, as products in blocks do
(`large_products.py`), which make large products where there are 32 registers. Other code of our own reads both sides where
they lie, if its target has vectors that may be cut: a few numbers by `few_numbers.py`, before anything is asked, many tiny
products together by `tiny.py` and `abreast.py`, small ones by `small.py`, few rows by `in_order.py`, sums of which both
factors lie along memory by `dots.py`, short rows times a vector by `by_vector.py`; or copies one side bit by bit, where there
are not too many rows or terms, by `chunks.py`, which makes half of a matrix times its transpose (`squares.py`);
`product_sizes.py` has the sizes for each. All of these are shared out to threads, by matrices of a batch, columns or rows,
many terms of few results by terms (`long_sums.py`), and so is what the library makes (`library_products.py`), but for huge
ones where it makes these: there it has threads of its own (`whole_products.py`).

Guarantees: equal inputs give equal bits, however many threads there are, but where the library has its own; sizes of zero are
made here, too.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.lower import large_products
from loopwright.lower.codegen import (
    abreast,
    by_vector,
    chunks,
    dots,
    few_channels,
    few_features,
    few_numbers,
    groupwise,
    in_order,
    kernel_slopes,
    library_products,
    long_sums,
    one_by_many,
    overlaps,
    panels,
    small,
    squares,
    summed,
    tiny,
    winograd,
)
from loopwright.lower.codegen.interleaving import product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.product_sizes import NOT_HUGE, TILED, Cases, Sizes, Way, has_few_rows, holds
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.tile_unit import fill_tiles
from loopwright.lower.codegen.whole_products import Whole
from loopwright.lower.runtime.blas_threads import MOST
from loopwright.lower.target import Target

FORMS = tuple((left, right) for left in (False, True) for right in (False, True))  # whether each side is stored transposed
LITTLE = 1 << 16  # multiplications, for which the library copies what it needs
TINY = 64  # numbers of a right side that is soon turned, for as many rows
Code = Callable[[Scope, list[str], str], None]  # places, rows
Columns = Callable[[Scope, list[str], str, tuple[str, str]], None]  # and from which column to which


def name_of(dtype: np.dtype, form: tuple[bool, bool], kind: str = "product") -> str:
    """The function of a kind (product, apart, each) for one form."""
    return f"lw_{kind}_f{8 * dtype.itemsize}_{''.join('nt'[side] for side in form)}"


def products_text(dtype: np.dtype, target: Target) -> str:
    """The functions for all forms, and those that they call but for the library's, the pool's and the scratch memory's."""
    declarations, constants = set[str](), set[str]()
    texts = [Product(dtype, target, form, declarations, constants).text() for form in FORMS]
    texts += [few_features.few_features_text(dtype, target, declarations, constants),
              groupwise.groupwise_text(dtype, target, declarations, constants),
              kernel_slopes.kernel_slopes_text(dtype, target, declarations, constants),
              overlaps.overlaps_text(dtype, target, declarations, constants)]
    if has_own(dtype, target):
        texts += [x(dtype, target, declarations, constants) for x in (winograd.winograd_text, few_channels.few_channels_text)]
        texts += [_Apart(dtype, target, form, declarations, constants).text() for form in FORMS]
        texts += [_Each(dtype, target, (left, False), declarations, constants).text() for left in (False, True)]
        texts += [one_by_many.one_by_many_text(dtype, target, left, partial(name_of, dtype), declarations, constants)
                  for left in (False, True)]
        texts += [summed.summed_text(dtype, target.lanes(dtype), form, partial(name_of, dtype), declarations, constants)
                  for form in summed.FORMS]
        texts += [long_sums.long_sums_text(dtype, target.lanes(dtype), form, name_of(dtype, form),
                                           name_of(dtype, form, "apart"), declarations, constants) for form in FORMS]
    own = [small.small_text(dtype, target), in_order.in_order_text(dtype, target), by_vector.by_vector_text(dtype, target),
           dots.dots_text(dtype, target),
           *(chunks.chunks_text(dtype, target, turned) for turned in (False, True)),
           one_by_many.copies_text(dtype, target), few_numbers.few_text(dtype, target),
           tiny.tiny_text(dtype, target), abreast.abreast_text(dtype, target),
           panels.panels_text(dtype, target, declarations, constants),
           library_products.library_products_text(dtype, declarations, constants),
           *([large_products.large_products_text(dtype, target, FORMS, declarations, constants)]
             if has_blocks(dtype, target) else [])] if has_own(dtype, target) else []
    declared = {line for text in own for line in text.split("\n") if line.startswith("declare ")} | declarations
    defined = ["\n".join(line for line in text.split("\n") if not line.startswith("declare ")) for text in own]
    return "\n".join([*sorted(declared), *sorted(constants), *defined, *texts])


def has_own(dtype: np.dtype, target: Target) -> bool:
    """Whether there is code of our own, and with it that for right sides copied before: see `panels.py`."""
    return target.has_avx2 and target.lanes(dtype) >= dots.COLUMNS


def has_blocks(dtype: np.dtype, target: Target) -> bool:
    """Whether tiles of registers suffice for large products: 16 are fewer than the library's tiles make up for."""
    return has_own(dtype, target) and target.vector_registers > 16


class Product:
    """The functions for one form."""

    kind = "product"
    given = "i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %c"

    def __init__(self, dtype: np.dtype, target: Target, form: tuple[bool, bool], declarations: set[str],
                 constants: set[str]) -> None:
        self.dtype, self.form, self.element = dtype, form, memory_type(dtype)
        self.name, self.bytes, self.lanes = name_of(dtype, form, self.kind), dtype.itemsize, target.lanes(dtype)
        self.declarations, self.constants = declarations, constants
        self.shares_library, self.has_huge = has_own(dtype, target), not has_blocks(dtype, target)
        self.panel = small.widest(target) * self.lanes
        self.may_square = has_own(dtype, target) and form[0] != form[1] and self.kind == "product"
        self.in_blocks = has_blocks(dtype, target) and self.kind != "apart"
        self.in_tiles = self.in_blocks and target.has_tiles and self.bytes == 4
        self.lines = ("%a.line", "%b.line") if self.kind == "apart" else ("%m" if form[0] else "%k", "%k" if form[1] else "%n")
        self.sizes = Sizes(dtype, target, form)
        self.ways, self.of_copies, self.together = self._ways() if has_own(dtype, target) else ([], [], [])

    def _ways(self) -> tuple[list[Way], list[Way], list[tuple[Cases, str]]]:
        """Ways of its own, those of what it does with copies, and what multiplies matrices together."""
        return self.sizes.ways(self.in_blocks), [], self.sizes.together()

    # ---- functions --------------------------------------------------------------------------------
    def text(self) -> str:
        """The function, over those for some matrices of a batch, some columns and some rows of one, and what the pool calls of
        each."""
        one = self.given
        some, columns, rows, whole = (Function(self.declarations, self.constants) for _ in range(4))
        self._some(some.root)
        parts = [("some", some)]
        if self.ways:
            self._columns(columns.root)
            self._rows(rows.root)
            parts += [("columns", columns), ("rows", rows)]
        if self.may_square:
            square = Function(self.declarations, self.constants)
            panel, make = squares.panel_of(self, square.root), partial(squares.some_columns, self)
            squares.some_blocks(square.root, self.element, self.form[0], panel, make)
            parts += [("square", square)]
        given = [text.split() for text in one.split(", ")]
        Whole(self, whole, given).make()
        texts = [(f"internal void @{self.name}_{kind}({one}, i64 %begin, i64 %end)", f) for kind, f in parts]
        texts += [(f"internal void @{self.name}_{kind}_shared(ptr %context, i64 %begin, i64 %end)", self._shared(kind, given))
                  for kind, _ in parts]
        texts.append((f"void @{self.name}(i64 %batch, {one})", whole))
        return "\n".join(f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in texts)

    def _shared(self, kind: str, given: list[list[str]]) -> Function:
        """What the pool calls: it finds the arguments in a block."""
        f = Function(self.declarations, self.constants)
        found = [f.root.emit(f"load {type}, ptr {element(f.root, 'i64', '%context', str(k))}")
                 for k, (type, _) in enumerate(given)]
        listed = ", ".join(f"{type} {x}" for (type, _), x in zip(given, found, strict=True))
        f.root.do(f"call void @{self.name}_{kind}({listed}, i64 %begin, i64 %end)")
        return f

    def _columns(self, scope: Scope) -> None:
        """Some panels of one product."""
        begin, end = (scope.emit(f"mul i64 %{x}, {self.panel}") for x in ("begin", "end"))
        end = scope.call("i64", "llvm.smin.i64", [("i64", end), ("i64", "%n")])
        self._one_of(scope, self.way(scope, "in_order"), self._in_order, self.chunks, (begin, end))

    def _rows(self, scope: Scope) -> None:
        """Some rows of one product, made in the way of all."""
        a, c = (element(scope, self.element, x, scope.emit(f"mul i64 %begin, {step}"))
                for x, step in (("%a", "1" if self.form[0] else self.lines[0]), ("%c", "%n")))
        self._by_sizes(scope, [a, "%b", c], scope.emit("sub i64 %end, %begin"))

    def _some(self, scope: Scope) -> None:
        """Some products of a batch."""
        if not self.together:
            loop(scope, "%begin", "%end", "1", (), self._matrix)
            return
        given = self.given_together(scope.emit("sub i64 %end, %begin"), self._places(scope, "%begin"))

        def first(ways: Sequence[tuple[Cases, str]], inner: Scope) -> Carried:
            if not ways:
                loop(inner, "%begin", "%end", "1", (), self._matrix)
                return ()
            (cases, name), *others = ways

            def call(here: Scope) -> Carried:
                return [("i1", here.emit(f"call i1 @{name}({given})"))]
            done, = branch(inner, self.holds(inner, cases), call, otherwise=[("i1", "false")])
            branch(inner, inner.emit(f"xor i1 {done}, true"), partial(first, others))
            return ()
        first(self.together, scope)

    def given_together(self, count: str, places: Sequence[str]) -> str:
        """What code that multiplies so many matrices is given."""
        steps = ("1, i64 %m" if self.form[0] else "%k, i64 1"), ("%k, i64 1" if self.form[1] else "1, i64 %n")
        a, b, c = places
        return f"i64 {count}, i64 %m, i64 %n, i64 %k, ptr {a}, i64 {steps[0]}, ptr {b}, i64 {steps[1]}, ptr {c}"

    def _places(self, scope: Scope, number: str) -> list[str]:
        """Where the matrices of a product of a batch are."""
        places = []
        for base, sides in (("%a", "mk"), ("%b", "kn"), ("%c", "mn")):
            size = scope.emit(f"mul i64 %{sides[0]}, %{sides[1]}")
            places.append(element(scope, self.element, base, scope.emit(f"mul i64 {number}, {size}")))
        return places

    def _matrix(self, scope: Scope, number: str, state: list[str]) -> list[str]:
        """One product of a batch."""
        places = self._places(scope, number)
        if not self.may_square:
            self._by_sizes(scope, places, "%m")
            return []

        def square(inner: Scope) -> Carried:
            listed, blocks = ", ".join(f"ptr {x}" for x in places), squares.blocks_of(inner, squares.panel_of(self, inner))
            inner.do(f"call void @{self.name}_square(i64 %m, i64 %n, i64 %k, {listed}, i64 0, i64 {blocks})")
            return ()

        def unlike(inner: Scope) -> Carried:
            self._by_sizes(inner, places, "%m")
            return ()
        branch(scope, self.is_square(scope), square, unlike)
        return []

    def is_square(self, scope: Scope) -> str:
        """Whether the sides are one matrix, so that results on both sides of the diagonal are alike."""
        same, sides = scope.emit("icmp eq ptr %a, %b"), scope.emit("icmp eq i64 %m, %n")
        enough = self.holds(scope, self.sizes.square())
        return scope.emit(f"and i1 {scope.emit(f'and i1 {same}, {sides}')}, {enough}")

    def _one_of(self, scope: Scope, test: str | None, this: Columns, other: Columns, span: tuple[str, str]) -> None:
        """Some columns of one product, by this code where the test holds."""
        def run(code: Columns, inner: Scope) -> Carried:
            code(inner, ["%a", "%b", "%c"], "%m", span)
            return ()
        if test is None:
            run(other, scope)
        else:
            branch(scope, test, partial(run, this), partial(run, other))

    def way(self, scope: Scope, code: str) -> str | None:
        """Whether the sizes are those of a way, which are no other's before it; None where there is no such way."""
        return next((self.holds(scope, cases) for cases, x in self.ways if x == code), None)

    def _by_sizes(self, scope: Scope, places: list[str], rows: str) -> None:
        """So many rows from where the places are: by the tile unit, or in the first way whose test holds."""
        def in_a_way(inner: Scope) -> Carried:
            self._first(inner, places, rows, self.ways)
            return ()
        if (in_tiles := self.by_tiles(scope)) is None:
            in_a_way(scope)
        else:
            branch(scope, in_tiles, partial(self._in_blocks, places=places, rows=rows), in_a_way)

    # ---- which way --------------------------------------------------------------------------------
    def _first(self, scope: Scope, places: list[str], rows: str, ways: Sequence[Way]) -> None:
        """The first way whose test holds, else that of large products, for so many rows from where the places are."""
        if not ways:
            self._large(scope, places, rows)
            return
        (test, code), *others = ways
        run: Code = {"small": self._small, "in_order": self._in_order, "chunks": self.chunks, "dots": self._dots,
                     "turned": self._turned, "by_vector": self._by_vector}[code]

        def this(inner: Scope) -> Carried:
            run(inner, places, rows)
            return ()

        def next_one(inner: Scope) -> Carried:
            self._first(inner, places, rows, others)
            return ()
        branch(scope, self.holds(scope, test), this, next_one)

    def holds(self, scope: Scope, cases: Cases) -> str:
        """Whether all tests of one of some cases hold."""
        return holds(scope, cases, self.dtype)

    def by_tiles(self, scope: Scope) -> str | None:
        """Whether the tile unit makes a product in blocks sooner than any other way; None where there is none."""
        if not self.in_tiles:
            return None
        enough = self.holds(scope, self.sizes.in_tiles())
        return scope.emit(f"and i1 {enough}, {fill_tiles(scope, ('%m', '%n', '%k'))}")

    # ---- ways -------------------------------------------------------------------------------------
    @property
    def _steps(self) -> str:
        """How far apart rows and terms of the left side lie."""
        return f"i64 1, i64 {self.lines[0]}" if self.form[0] else f"i64 {self.lines[0]}, i64 1"

    def _small(self, scope: Scope, places: list[str], rows: str) -> None:
        a, b, c = places
        scope.do(f"call void @{small.name_of(self.dtype)}(i64 {rows}, i64 %n, i64 %k, ptr {a}, {self._steps}, ptr {b}, "
                 f"i64 {self.lines[1]}, ptr {c})")

    def chunks(self, scope: Scope, places: list[str], rows: str, span: tuple[str, str] = ("0", "%n")) -> None:
        a, b, c = places
        scope.do(f"call void @{chunks.name_of(self.dtype, self.form[1])}(i64 {rows}, i64 %n, i64 %k, ptr {a}, {self._steps}, "
                 f"ptr {b}, i64 {self.lines[1]}, ptr {c}, i64 {span[0]}, i64 {span[1]})")

    def _in_order(self, scope: Scope, places: list[str], rows: str, span: tuple[str, str] = ("0", "%n")) -> None:
        a, b, c = places
        scope.do(f"call void @{in_order.name_of(self.dtype)}(i64 {rows}, i64 %n, i64 %k, ptr {a}, {self._steps}, ptr {b}, "
                 f"i64 {self.lines[1]}, ptr {c}, i64 {span[0]}, i64 {span[1]})")

    def _dots(self, scope: Scope, places: list[str], rows: str, line: str = "") -> None:
        a, b, c = places
        scope.do(f"call void @{dots.name_of(self.dtype)}(i64 {rows}, i64 %n, i64 %k, ptr {a}, i64 {self.lines[0]}, ptr {b}, "
                 f"i64 {line or self.lines[1]}, ptr {c})")

    def _by_vector(self, scope: Scope, places: list[str], rows: str) -> None:
        a, b, c = places
        scope.do(f"call void @{by_vector.name_of(self.dtype)}(i64 {rows}, i64 %k, ptr {a}, i64 {self.lines[0]}, ptr {b}, "
                 f"ptr {c})")

    def _turned(self, scope: Scope, places: list[str], rows: str) -> None:
        """Few columns, first copied so that each lies along memory."""
        size = scope.emit(f"mul i64 {scope.emit('mul i64 %n, %k')}, {self.bytes}")
        copy = scope.call("ptr", "lw_scratch_acquire", [("i64", size)])

        def make(inner: Scope) -> Carried:
            self._exchanged(inner, places[1], copy, ("%k", "%n"), self.lines[1])
            self._dots(inner, [places[0], copy, places[2]], rows, "%k")
            inner.run("lw_scratch_release", [("ptr", copy)])
            return ()

        def without(inner: Scope) -> Carried:
            self._library(inner, places, rows)
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {copy}, null"), without, make, rare=True)

    def _exchanged(self, scope: Scope, side: str, copy: str, sizes: tuple[str, str], step: str) -> None:
        """A side of so many lines of so many elements, lines a step apart, copied so that its columns lie along memory."""
        lines, length = sizes

        def column(outer: Scope, at: str, state: list[str]) -> list[str]:
            def one(inner: Scope, line: str, now: list[str]) -> list[str]:
                source, to = (element(inner, self.element, x, inner.emit(f"add i64 {inner.emit(f'mul i64 {y}, {n}')}, {z}"))
                              for x, y, n, z in ((side, line, step, at), (copy, at, lines, line)))
                inner.do(f"store {self.element} {inner.emit(f'load {self.element}, ptr {source}')}, ptr {to}")
                return []
            loop(outer, "0", lines, "1", (), one)
            return []
        loop(scope, "0", length, "1", (), column)

    def _large(self, scope: Scope, places: list[str], rows: str) -> None:
        """In blocks, or, where there are few terms or columns or no memory for copies, by the library."""
        def by_library(inner: Scope) -> Carried:
            self._library(inner, places, rows)
            return ()
        if self.in_blocks:
            in_blocks = partial(self._in_blocks, places=places, rows=rows)
            branch(scope, self.holds(scope, self.sizes.fill_blocks()), in_blocks, by_library)
        else:
            by_library(scope)

    def _in_blocks(self, scope: Scope, places: list[str], rows: str) -> Carried:
        def without_memory(inner: Scope) -> Carried:
            self._library(inner, places, rows)
            return ()
        error = scope.function.slot(1, "i64", 8)
        scope.do(f"store i64 0, ptr {error}")
        few = scope.emit(f"icmp slt i64 %m, {TILED[0]}") if self.in_tiles and has_few_rows(self.form) else None
        large_products.call_large(scope, self.dtype, self.form, places, {"m": rows, "n": "%n", "k": "%k"}, error, few)
        branch(scope, scope.emit(f"icmp ne i64 {scope.emit(f'load i64, ptr {error}')}, 0"), without_memory, rare=True)
        return ()

    def _library(self, scope: Scope, places: list[str], rows: str) -> None:
        """The library, for which a tiny right side that is stored transposed is turned, where there are many rows."""
        if self.form != (False, True):
            self._called(scope, places, rows, self.form, self.lines)
            return
        copy = scope.function.slot(TINY, self.element, 64)

        def turned(inner: Scope) -> Carried:
            self._exchanged(inner, places[1], copy, ("%n", "%k"), self.lines[1])
            self._called(inner, [places[0], copy, places[2]], rows, (False, False), (self.lines[0], "%n"))
            return ()

        def as_it_is(inner: Scope) -> Carried:
            self._called(inner, places, rows, self.form, self.lines)
            return ()
        few, many = scope.emit(f"icmp sle i64 {product(scope, '%n', '%k')}, {TINY}"), scope.emit(f"icmp sge i64 %m, {TINY}")
        branch(scope, scope.emit(f"and i1 {few}, {many}"), turned, as_it_is)

    def _called(self, scope: Scope, places: list[str], rows: str, form: tuple[bool, bool], lines: tuple[str, str]) -> None:
        given = self.given_to_library(places, (rows, "%n"), form, lines)

        def in_parts(inner: Scope) -> Carried:
            inner.do(f"call void @{library_products.name_of(self.dtype)}({', '.join(map(' '.join, given))})")
            return ()

        def by_its_threads(inner: Scope) -> Carried:
            inner.run(self.gemm, [*given, ("i32", str(MOST))])
            return ()
        if self.shares_library and self.has_huge:
            branch(scope, self.holds(scope, [[NOT_HUGE]]), in_parts, by_its_threads)
        else:
            (in_parts if self.shares_library else by_its_threads)(scope)

    @property
    def gemm(self) -> str:
        return f"lw_gemm_f{8 * self.bytes}"

    def given_to_library(self, places: list[str], sizes: tuple[str, str], form: tuple[bool, bool],
                         lines: tuple[str, str]) -> list[tuple[str, str]]:
        """All but its threads, of results of these sizes in lines of %n."""
        a, b, c = places
        return [*(("i32", str(int(side))) for side in form), *(("i64", size) for size in (*sizes, "%k")), ("ptr", a),
                ("i64", lines[0]), ("ptr", b), ("i64", lines[1]), ("ptr", c), ("i64", "%n")]


class _Apart(Product):
    """The functions for one form of sides whose lines and matrices lie apart; what is read again and again is copied."""

    kind = "apart"
    given = Product.given + ", i64 %a.line, i64 %b.line, i64 %a.outer, i64 %b.outer, i64 %a.inner, i64 %b.inner, i64 %inner"

    def _ways(self) -> tuple[list[Way], list[Way], list[tuple[Cases, str]]]:
        return self.sizes.ways_apart(), self.sizes.ways(self.in_blocks), []

    def _places(self, scope: Scope, number: str) -> list[str]:
        quotient = scope.emit(f"udiv i64 {number}, %inner")
        rest = scope.emit(f"sub i64 {number}, {scope.emit(f'mul i64 {quotient}, %inner')}")
        places = []
        for side in ("%a", "%b"):
            outer, inner = scope.emit(f"mul i64 {quotient}, {side}.outer"), scope.emit(f"mul i64 {rest}, {side}.inner")
            places.append(element(scope, self.element, side, scope.emit(f"add i64 {outer}, {inner}")))
        size = scope.emit("mul i64 %m, %n")
        return [*places, element(scope, self.element, "%c", scope.emit(f"mul i64 {number}, {size}"))]

    def _large(self, scope: Scope, places: list[str], rows: str) -> None:
        """As any product, of copies of sides whose lines are not one after the other; by the library where that is little, or
        where there is no memory."""
        lines = ("%k", rows) if self.form[0] else (rows, "%k"), ("%n", "%k") if self.form[1] else ("%k", "%n")
        sizes = [scope.emit(f"mul i64 {count}, {length}") for count, length in lines]
        size = scope.emit(f"mul i64 {scope.emit(f'add i64 {sizes[0]}, {sizes[1]}')}, {self.bytes}")
        little = scope.emit(f"icmp sle i64 {product(scope, rows, '%n', '%k')}, {LITTLE}")

        def acquired(inner: Scope) -> Carried:
            return [("ptr", inner.call("ptr", "lw_scratch_acquire", [("i64", size)]))]
        copy, = branch(scope, scope.emit(f"xor i1 {little}, true"), acquired, otherwise=[("ptr", "null")])

        def by_library(inner: Scope) -> Carried:
            self._library(inner, places, rows)
            return ()

        def by_copies(inner: Scope) -> Carried:
            to = copy, element(inner, self.element, copy, sizes[0])
            a, b = (self._dense(inner, *x) for x in zip(places, to, self.lines, lines, strict=False))
            inner.do(f"call void @{name_of(self.dtype, self.form)}(i64 1, i64 {rows}, i64 %n, i64 %k, ptr {a}, ptr {b}, "
                     f"ptr {places[2]})")
            inner.run("lw_scratch_release", [("ptr", copy)])
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {copy}, null"), by_library, by_copies)

    def _dense(self, scope: Scope, side: str, to: str, step: str, line: tuple[str, str]) -> str:
        """Where lines of a side, as many and as long, are one after the other."""
        count, length = line

        def one(inner: Scope, at: str, state: list[str]) -> list[str]:
            target, source = (element(inner, self.element, x, inner.emit(f"mul i64 {at}, {n}"))
                              for x, n in ((to, length), (side, step)))
            size = inner.emit(f"mul i64 {length}, {self.bytes}")
            inner.run("llvm.memcpy.p0.p0.i64", [("ptr", target), ("ptr", source), ("i64", size), ("i1", "false")])
            return []

        def copied(inner: Scope) -> Carried:
            loop(inner, "0", count, "1", (), one)
            return [("ptr", to)]
        found, = branch(scope, scope.emit(f"icmp ne i64 {step}, {length}"), copied, otherwise=[("ptr", side)])
        return found


class _Each(Product):
    """The functions for one form of one left side for all of a batch, matrix by matrix."""

    kind = "each"

    def _ways(self) -> tuple[list[Way], list[Way], list[tuple[Cases, str]]]:
        return self.sizes.ways(self.in_blocks), [], []

    def _places(self, scope: Scope, number: str) -> list[str]:
        return ["%a", *super()._places(scope, number)[1:]]
