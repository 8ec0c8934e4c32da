"""Products of matrices as programs call them: which code makes one, by its sizes.

    void @lw_product_f32_nn(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c)    C[m, n] = A B for each matrix of a batch
    void @lw_product_f32_tn(...)                            all contiguous; t: that side is stored transposed; so _nt, _tt, f64
    void @lw_apart_f32_nn(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c, i64 a.line, i64 b.line, i64 a.outer, i64 b.outer,
                          i64 a.inner, i64 b.inner, i64 inner)      the same where lines of both sides, which are contiguous,
                                                            are any number of elements apart, and so are matrices, in a batch
                                                            of batches of `inner` each

The library (`lw_gemm_f32`) is made for large matrices and copies both sides first, as products in blocks do
(`large_products.py`), which make large products where there are 32 registers. Other code of our own reads both sides where they
lie, if its target has vectors that may be cut: many tiny products together by `tiny.py` and `abreast.py`, small ones by
`small.py`, sums of which both factors lie along memory by `dots.py`; or copies one side bit by bit, where there are not too
many rows or terms, by `chunks.py`. All of these are shared out to threads, by matrices of a batch, columns or rows. The library
has threads of its own, which spin when they are done: what our threads do next waits for them.

Guarantees: equal inputs give equal bits, however many threads there are; sizes of zero are made here, too.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.lower import large_products
from loopwright.lower.codegen import abreast, chunks, dots, panels, small, tiny
from loopwright.lower.codegen.interleaving import product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

FEW = 8  # rows that are not worth a copy of the other side, if that is in a cache
ALONG = 16  # rows, or columns, for which sums go along the terms, where both sides lie so
MANY = 192  # rows for which a few columns are worth turning
BRIEF = 128  # terms, with no more than which the library's copies of both sides cost as much as what it does better
NARROW = 128  # columns, for no more than which rows that lie along memory are not worth a copy
BLOCKS = 64  # rows, columns and terms, with fewer of any of which copies of both sides are used too little
LITTLE = 1 << 16  # multiplications, which no threads share
LEAST_ROWS = 96  # that a thread takes
NEAR, SMALL = 3 << 14, 1 << 17  # bytes of a matrix that is soon in the first cache again, or stays in the second
FORMS = tuple((left, right) for left in (False, True) for right in (False, True))  # whether each side is stored transposed
PAGE, APART = 4096, 192  # bytes; rows, with more of which results whole pages apart, in few sets of a cache, are made in blocks
Test = tuple[str, str, int]  # a size (nk, mnk: a product; page: the columns past whole pages), how it compares, with what
Way = tuple[list[list[Test]], Callable[[Scope, list[str], str], None]]  # cases of tests that hold; what then multiplies


def name_of(dtype: np.dtype, form: tuple[bool, bool], apart: bool = False) -> str:
    """The function for one form."""
    return f"lw_{'apart' if apart else 'product'}_f{8 * dtype.itemsize}_{''.join('nt'[side] for side in form)}"


def products_text(dtype: np.dtype, target: Target) -> str:
    """The functions for all forms, and those that they call but for the library's, the pool's and the scratch memory's."""
    declarations, constants = set[str](), set[str]()
    texts = [_Product(dtype, target, form, declarations, constants).text() for form in FORMS]
    if has_own(dtype, target):
        texts += [_Apart(dtype, target, form, declarations, constants).text() for form in FORMS]
    own = [small.small_text(dtype, target), dots.dots_text(dtype, target),
           *(chunks.chunks_text(dtype, target, turned) for turned in (False, True)),
           tiny.tiny_text(dtype, target), abreast.abreast_text(dtype, target),
           panels.panels_text(dtype, target, declarations, constants),
           *([large_products.large_products_text(dtype, target, FORMS, declarations, constants)]
             if has_blocks(dtype, target) else [])] if has_own(dtype, target) else []
    declared = {line for text in own for line in text.split("\n") if line.startswith("declare ")} | declarations
    defined = ["\n".join(line for line in text.split("\n") if not line.startswith("declare ")) for text in own]
    return "\n".join([*sorted(declared), *sorted(constants), *defined, *texts])


def has_own(dtype: np.dtype, target: Target) -> bool:
    """Whether there is code of our own, and with it that for right sides copied before: see `panels.py`."""
    return (target.has_masks or "avx2" in target.enabled) and target.lanes(dtype) >= dots.COLUMNS


def has_blocks(dtype: np.dtype, target: Target) -> bool:
    """Whether tiles of registers suffice for large products: 16 are fewer than the library's tiles make up for."""
    return has_own(dtype, target) and target.vector_registers > 16


class _Product:
    """The functions for one form."""

    apart = False  # whether lines and matrices are any number of elements apart
    of_copies: list[Way] = []  # ways to multiply copies, beside its own
    given = "i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %c"

    def __init__(self, dtype: np.dtype, target: Target, form: tuple[bool, bool], declarations: set[str],
                 constants: set[str]) -> None:
        self.dtype, self.form, self.element = dtype, form, memory_type(dtype)
        self.name, self.bytes, self.lanes = name_of(dtype, form, self.apart), dtype.itemsize, target.lanes(dtype)
        self.declarations, self.constants = declarations, constants
        self.in_blocks = has_blocks(dtype, target) and not self.apart
        self.lines = ("%a.line", "%b.line") if self.apart else ("%m" if form[0] else "%k", "%k" if form[1] else "%n")
        self.ways, self.together = (self._ways(target), self._together()) if has_own(dtype, target) else ([], [])

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
        given = [text.split() for text in one.split(", ")]
        self._whole(whole, given)
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

    def _whole(self, f: Function, given: list[list[str]]) -> None:
        """All matrices of a batch, or all of one: by the pool, unless the library multiplies, which has threads too."""
        root, wide = f.root, small.WIDEST * self.lanes

        def shared(kind: str, count: str, work: Sequence[str], least: tuple[int, int], scope: Scope) -> Carried:
            context = f.slot(len(given), "i64", 8)
            for k, (type, x) in enumerate(given):
                scope.do(f"store {type} {x}, ptr {element(scope, 'i64', context, str(k))}")
            each = scope.emit(f"mul i64 {scope.emit(f'mul i64 {work[0]}, {work[1]}')}, %k")
            units = scope.emit(f"udiv i64 {each}, {self.lanes // 2}")  # as many multiplications take as long as other work
            scope.run("lw_loop", [("ptr", f"@{self.name}_{kind}_shared"), ("ptr", context), ("i64", count), ("i64", units),
                                  *(("i64", str(x)) for x in least)])
            return ()

        def alone(scope: Scope) -> Carried:
            scope.do(f"call void @{self.name}_some({', '.join(map(' '.join, given))}, i64 0, i64 %batch)")
            return ()

        def one(scope: Scope) -> Carried:
            count = scope.emit(f"udiv i64 {scope.emit(f'add i64 %n, {wide - 1}')}, {wide}")
            *before, last = [self._holds(scope, test) for test, _ in self.ways]
            for x in before:
                last = scope.emit(f"and i1 {last}, {scope.emit(f'xor i1 {x}, true')}")
            last = scope.emit(f"and i1 {last}, {scope.emit(f'icmp sgt i64 {count}, 1')}")
            branch(scope, last, partial(shared, "columns", count, ("%m", str(wide)), (1, 1)), rows)
            return ()

        def rows(scope: Scope) -> Carried:
            work, least = ("1", "%n"), (LEAST_ROWS, small.HIGHEST)
            branch(scope, self._is_own(scope), partial(shared, "rows", "%m", work, least), alone)
            return ()

        def several(scope: Scope) -> Carried:
            own = self._is_own(scope)
            for cases, _ in self.together:
                own = scope.emit(f"or i1 {own}, {self._holds(scope, cases)}")
            branch(scope, own, partial(shared, "some", "%batch", ("%m", "%n"), (1, 1)), alone)
            return ()

        def by_pool(scope: Scope) -> Carried:
            branch(scope, scope.emit("icmp eq i64 %batch, 1"), one, several)
            return ()
        if self.ways:
            branch(root, root.emit(f"icmp sle i64 {product(root, '%batch', '%m', '%n', '%k')}, {LITTLE}"), alone, by_pool)
        else:
            alone(root)

    def _is_own(self, scope: Scope) -> str:
        """Whether code of our own multiplies."""
        own = "false"
        for test, _ in (*self.ways, *self.of_copies):
            own = scope.emit(f"or i1 {own}, {self._holds(scope, test)}")
        return own

    def _columns(self, scope: Scope) -> None:
        """Some panels of one product."""
        wide = small.WIDEST * self.lanes
        begin, end = (scope.emit(f"mul i64 %{x}, {wide}") for x in ("begin", "end"))
        end = scope.call("i64", "llvm.smin.i64", [("i64", end), ("i64", "%n")])
        self._chunks(scope, ["%a", "%b", "%c"], "%m", (begin, end))

    def _rows(self, scope: Scope) -> None:
        """Some rows of one product, made in the way of all."""
        a, c = (element(scope, self.element, x, scope.emit(f"mul i64 %begin, {step}"))
                for x, step in (("%a", "1" if self.form[0] else self.lines[0]), ("%c", "%n")))
        self._first(scope, [a, "%b", c], scope.emit("sub i64 %end, %begin"), self.ways)

    def _some(self, scope: Scope) -> None:
        """Some products of a batch."""
        if not self.together:
            loop(scope, "%begin", "%end", "1", (), self._matrix)
            return
        count = scope.emit("sub i64 %end, %begin")
        steps = ("1, i64 %m" if self.form[0] else "%k, i64 1"), ("%k, i64 1" if self.form[1] else "1, i64 %n")
        a, b, c = self._places(scope, "%begin")
        given = f"i64 {count}, i64 %m, i64 %n, i64 %k, ptr {a}, i64 {steps[0]}, ptr {b}, i64 {steps[1]}, ptr {c}"

        def first(ways: Sequence[tuple[list[list[Test]], str]], inner: Scope) -> Carried:
            if not ways:
                loop(inner, "%begin", "%end", "1", (), self._matrix)
                return ()
            (cases, name), *others = ways

            def call(here: Scope) -> Carried:
                return [("i1", here.emit(f"call i1 @{name}({given})"))]
            done, = branch(inner, self._holds(inner, cases), call, otherwise=[("i1", "false")])
            branch(inner, inner.emit(f"xor i1 {done}, true"), partial(first, others))
            return ()
        first(self.together, scope)

    def _places(self, scope: Scope, number: str) -> list[str]:
        """Where the matrices of a product of a batch are."""
        places = []
        for base, sides in (("%a", "mk"), ("%b", "kn"), ("%c", "mn")):
            size = scope.emit(f"mul i64 %{sides[0]}, %{sides[1]}")
            places.append(element(scope, self.element, base, scope.emit(f"mul i64 {number}, {size}")))
        return places

    def _matrix(self, scope: Scope, number: str, state: list[str]) -> list[str]:
        """One product of a batch."""
        self._first(scope, self._places(scope, number), "%m", self.ways)
        return []

    # ---- which way --------------------------------------------------------------------------------
    def _ways(self, target: Target) -> list[Way]:
        """Our own code, and for which sizes; the last is that by chunks."""
        half, wide = self.lanes // 2, 2 * self.lanes
        both: list[Test] = [("m", "sge", 2), ("n", "sge", 2)]
        least = wide if self.form[0] else half  # where rows lie across memory it must be worth reading them
        some: list[Test] = [("m", "sle", chunks.ROWS), *([("page", "ne", 0)] if self.in_blocks else [])]
        limits: list[list[Test]] = [[("m", "sle", APART)], some, [("k", "sle", BRIEF)],
                                    *([] if self.form[0] else [[("n", "sle", NARROW)]])]
        low = FEW if self.form[1] else 2
        in_chunks: Way = [[("m", "sge", low), ("n", "sge", least), ("k", "sge", 1), *limit] for limit in limits], self._chunks
        if self.form[1]:
            return [in_chunks] if self.form[0] else [(self._brief_sides(), self._dots), in_chunks]
        near: Test = "nk", "sle", NEAR // self.bytes
        fits: Test = "nk", "sle", SMALL // self.bytes
        few: list[Test] = [*both, ("m", "slt", FEW), ("n", "sge", half)]
        straight = [*([*few, test] for test in chunks.stays(self.dtype, target)),
                    [near, ("n", "sge", least)],  # of one row, too
                    [*both, fits, ("m", "slt", 2 * FEW), ("n", "sge", half)]]
        if self.form[0]:
            return [(straight, self._small), in_chunks]
        straight.append([fits, ("m", "sgt", chunks.ROWS), ("k", "sgt", BRIEF), ("n", "sge", least)])
        narrow: Way = [[*both, ("n", "slt", half), ("m", "sge", MANY), ("k", "sge", wide)]], self._turned
        return [(straight, self._small), narrow, in_chunks]

    def _brief_sides(self) -> list[list[Test]]:
        """Where sums go along the terms: few rows, or few columns."""
        lanes, half = self.lanes, self.lanes // 2
        short = ("m", ALONG, lanes), ("n", ALONG, 4 * lanes), ("n", half - 1, lanes)
        return [[("m", "sge", 2), ("n", "sge", 2), (side, "sle", most), ("k", "sge", terms)] for side, most, terms in short]

    def _together(self) -> list[tuple[list[list[Test]], str]]:
        """What multiplies many matrices together, and for which sizes, as far as these say. Where columns fill vectors,
        matrices one by one soon take no longer."""
        sides: list[Test] = [(side, "sge", 1) for side in "mnk"]

        def up_to(narrow: int, terms: int, others: int) -> list[list[Test]]:
            few: list[Test] = [] if self.form[1] else [("n", "slt", narrow)]
            return [[*sides, *few, ("mnk", "sle", terms * self.lanes)], [*sides, ("mnk", "sle", others * self.lanes)]]
        return [(up_to(self.lanes, 16, 8), tiny.name_of(self.dtype)),
                (up_to(self.lanes // 2, 32, 12), abreast.name_of(self.dtype))]

    def _first(self, scope: Scope, places: list[str], rows: str, ways: Sequence[Way]) -> None:
        """The first way whose test holds, else that of large products, for so many rows from where the places are."""
        if not ways:
            self._large(scope, places, rows)
            return
        (test, run), *others = ways

        def this(inner: Scope) -> Carried:
            run(inner, places, rows)
            return ()

        def next_one(inner: Scope) -> Carried:
            self._first(inner, places, rows, others)
            return ()
        branch(scope, self._holds(scope, test), this, next_one)

    def _holds(self, scope: Scope, cases: list[list[Test]]) -> str:
        """Whether all tests of one of some cases hold."""
        found = "false"
        for case in cases:
            all_of = "true"
            for size, relation, bound in case:
                value = product(scope, *(f"%{x}" for x in size)) if size in ("nk", "mnk") else \
                    scope.emit(f"and i64 %n, {PAGE // self.bytes - 1}") if size == "page" else f"%{size}"
                all_of = scope.emit(f"and i1 {all_of}, {scope.emit(f'icmp {relation} i64 {value}, {bound}')}")
            found = scope.emit(f"or i1 {found}, {all_of}")
        return found

    # ---- ways -------------------------------------------------------------------------------------
    @property
    def _steps(self) -> str:
        """How far apart rows and terms of the left side lie."""
        return f"i64 1, i64 {self.lines[0]}" if self.form[0] else f"i64 {self.lines[0]}, i64 1"

    def _small(self, scope: Scope, places: list[str], rows: str) -> None:
        a, b, c = places
        scope.do(f"call void @{small.name_of(self.dtype)}(i64 {rows}, i64 %n, i64 %k, ptr {a}, {self._steps}, ptr {b}, "
                 f"i64 {self.lines[1]}, ptr {c})")

    def _chunks(self, scope: Scope, places: list[str], rows: str, span: tuple[str, str] = ("0", "%n")) -> None:
        a, b, c = places
        scope.do(f"call void @{chunks.name_of(self.dtype, self.form[1])}(i64 {rows}, i64 %n, i64 %k, ptr {a}, {self._steps}, "
                 f"ptr {b}, i64 {self.lines[1]}, ptr {c}, i64 {span[0]}, i64 {span[1]})")

    def _dots(self, scope: Scope, places: list[str], rows: str, line: str = "") -> None:
        a, b, c = places
        scope.do(f"call void @{dots.name_of(self.dtype)}(i64 {rows}, i64 %n, i64 %k, ptr {a}, i64 {self.lines[0]}, ptr {b}, "
                 f"i64 {line or self.lines[1]}, ptr {c})")

    def _turned(self, scope: Scope, places: list[str], rows: str) -> None:
        """Few columns, first copied so that each lies along memory."""
        size = scope.emit(f"mul i64 {scope.emit('mul i64 %n, %k')}, {self.bytes}")
        copy = scope.call("ptr", "lw_scratch_acquire", [("i64", size)])

        def column(outer: Scope, at: str, state: list[str]) -> list[str]:
            def term(inner: Scope, k: str, now: list[str]) -> list[str]:
                down = inner.emit(f"mul i64 {k}, {self.lines[1]}")
                source = element(inner, self.element, places[1], inner.emit(f"add i64 {down}, {at}"))
                to = element(inner, self.element, copy, inner.emit(f"add i64 {inner.emit(f'mul i64 {at}, %k')}, {k}"))
                inner.do(f"store {self.element} {inner.emit(f'load {self.element}, ptr {source}')}, ptr {to}")
                return []
            loop(outer, "0", "%k", "1", (), term)
            return []

        def make(inner: Scope) -> Carried:
            loop(inner, "0", "%n", "1", (), column)
            self._dots(inner, [places[0], copy, places[2]], rows, "%k")
            inner.run("lw_scratch_release", [("ptr", copy)])
            return ()

        def without(inner: Scope) -> Carried:
            self._library(inner, places, rows)
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {copy}, null"), without, make, rare=True)

    def _large(self, scope: Scope, places: list[str], rows: str) -> None:
        """In blocks, or, where there are few terms or columns or no memory for copies, by the library."""
        def by_library(inner: Scope) -> Carried:
            self._library(inner, places, rows)
            return ()

        def in_blocks(inner: Scope) -> Carried:
            error = inner.function.slot(1, "i64", 8)
            inner.do(f"store i64 0, ptr {error}")
            large_products.call_large(inner, self.dtype, self.form, places, {"m": rows, "n": "%n", "k": "%k"}, error)
            branch(inner, inner.emit(f"icmp ne i64 {inner.emit(f'load i64, ptr {error}')}, 0"), by_library, rare=True)
            return ()
        if self.in_blocks:
            columns = MANY if self.form[0] else BLOCKS  # rows that lie across memory take longer to copy
            test: list[Test] = [("m", "sge", BLOCKS), ("n", "sge", columns), ("k", "sge", BLOCKS)]
            branch(scope, self._holds(scope, [test]), in_blocks, by_library)
        else:
            by_library(scope)

    def _library(self, scope: Scope, places: list[str], rows: str) -> None:
        a, b, c = places
        turned, lines = [str(int(side)) for side in self.form], self.lines
        scope.run(f"lw_gemm_f{8 * self.bytes}", [
            ("i32", turned[0]), ("i32", turned[1]), ("i64", rows), ("i64", "%n"), ("i64", "%k"), ("ptr", a), ("i64", lines[0]),
            ("ptr", b), ("i64", lines[1]), ("ptr", c), ("i64", "%n")])


class _Apart(_Product):
    """The functions for one form of sides whose lines and matrices lie apart; what is read again and again is copied."""

    apart = True
    given = _Product.given + ", i64 %a.line, i64 %b.line, i64 %a.outer, i64 %b.outer, i64 %a.inner, i64 %b.inner, i64 %inner"

    def _places(self, scope: Scope, number: str) -> list[str]:
        quotient = scope.emit(f"udiv i64 {number}, %inner")
        rest = scope.emit(f"sub i64 {number}, {scope.emit(f'mul i64 {quotient}, %inner')}")
        places = []
        for side in ("%a", "%b"):
            outer, inner = scope.emit(f"mul i64 {quotient}, {side}.outer"), scope.emit(f"mul i64 {rest}, {side}.inner")
            places.append(element(scope, self.element, side, scope.emit(f"add i64 {outer}, {inner}")))
        size = scope.emit("mul i64 %m, %n")
        return [*places, element(scope, self.element, "%c", scope.emit(f"mul i64 {number}, {size}"))]

    def _together(self) -> list[tuple[list[list[Test]], str]]:
        return []

    def _ways(self, target: Target) -> list[Way]:
        """Those that read lines of the right side once, or twice, or few."""
        self.of_copies = super()._ways(target)
        half = self.lanes // 2
        least = 2 * self.lanes if self.form[0] else half
        once: list[Test] = [("m", "sge", FEW), ("n", "sge", least), ("k", "sge", 1)]
        in_chunks: Way = [[*once, ("m", "sle", chunks.ROWS)], *([[*once, ("k", "sle", BRIEF)]] if self.form[1] else [])], \
            self._chunks
        if self.form[1]:
            return [in_chunks] if self.form[0] else [(self._brief_sides(), self._dots), in_chunks]
        straight: list[list[Test]] = [[("m", "slt", FEW), ("n", "sge", half)],
                                      [("nk", "sle", PAGE // self.bytes), ("n", "sge", least)]]
        return [(straight, self._small), in_chunks]

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
            a, b = (self._in_order(inner, *x) for x in zip(places, to, self.lines, lines, strict=False))
            inner.do(f"call void @{name_of(self.dtype, self.form)}(i64 1, i64 {rows}, i64 %n, i64 %k, ptr {a}, ptr {b}, "
                     f"ptr {places[2]})")
            inner.run("lw_scratch_release", [("ptr", copy)])
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {copy}, null"), by_library, by_copies)

    def _in_order(self, scope: Scope, side: str, to: str, step: str, line: tuple[str, str]) -> str:
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
