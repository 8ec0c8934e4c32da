"""Products of matrices as programs call them: which code makes one, by its sizes.

    void @lw_product_f32_nn(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c)    C[m, n] = A B for each matrix of a batch
    void @lw_product_f32_tn(...)                            all contiguous; t: that side is stored transposed; so _nt, _tt, f64

The library (`lw_gemm_f32`) is made for large matrices and copies both sides first. Code of our own reads them where they lie,
if its target has vectors that may be cut: products of few rows or small ones by `small.py`, sums of which both factors lie
along memory by `dots.py`. Such products of a batch are shared out to threads.

Guarantees: equal inputs give equal bits, however many threads there are; sizes of zero are made here, too.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loopwright.lower.codegen import dots, small
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

FEW = 48  # rows that are not worth a copy of the other side
SMALL_BYTES = 1 << 17  # of a matrix that stays in the second cache, however many rows are multiplied with it
FORMS = tuple((left, right) for left in (False, True) for right in (False, True))  # whether each side is stored transposed
Test = tuple[str, str, int]  # a size, how it compares, with what


def name_of(dtype: np.dtype, form: tuple[bool, bool]) -> str:
    """The function for one form."""
    return f"lw_product_f{8 * dtype.itemsize}_{''.join('nt'[side] for side in form)}"


def products_text(dtype: np.dtype, target: Target) -> str:
    """The functions for all forms, and those that they call but for the library's, the pool's and the scratch memory's."""
    declarations, constants = set[str](), set[str]()
    texts = [_Product(dtype, target, form, declarations, constants).text() for form in FORMS]
    own = [small.small_text(dtype, target), dots.dots_text(dtype, target)] if _has_own(dtype, target) else []
    declared = {line for text in own for line in text.split("\n") if line.startswith("declare ")} | declarations
    defined = ["\n".join(line for line in text.split("\n") if not line.startswith("declare ")) for text in own]
    return "\n".join([*sorted(declared), *sorted(constants), *defined, *texts])


def _has_own(dtype: np.dtype, target: Target) -> bool:
    return (target.has_masks or "avx2" in target.enabled) and target.lanes(dtype) >= dots.COLUMNS


class _Product:
    """The functions for one form."""

    def __init__(self, dtype: np.dtype, target: Target, form: tuple[bool, bool], declarations: set[str],
                 constants: set[str]) -> None:
        self.dtype, self.form, self.element = dtype, form, memory_type(dtype)
        self.name, self.bytes, self.lanes = name_of(dtype, form), dtype.itemsize, target.lanes(dtype)
        self.declarations, self.constants = declarations, constants
        self.ways = self._ways() if _has_own(dtype, target) else []

    def text(self) -> str:
        """The function, over that for some matrices of a batch and one for the pool."""
        one = "i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %c"
        some = Function(self.declarations, self.constants)
        loop(some.root, "%begin", "%end", "1", (), self._matrix)
        shared, whole = Function(self.declarations, self.constants), Function(self.declarations, self.constants)
        kinds = [text.split() for text in one.split(", ")]
        given = [shared.root.emit(f"load {kind}, ptr {small.element(shared.root, 'i64', '%context', str(k))}")
                 for k, (kind, _) in enumerate(kinds)]
        listed = ", ".join(f"{kind} {x}" for (kind, _), x in zip(kinds, given, strict=True))
        shared.root.do(f"call void @{self.name}_some({listed}, i64 %begin, i64 %end)")
        self._share_out(whole, kinds)
        return "\n".join(f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in (
            (f"internal void @{self.name}_some({one}, i64 %begin, i64 %end)", some),
            (f"internal void @{self.name}_shared(ptr %context, i64 %begin, i64 %end)", shared),
            (f"void @{self.name}(i64 %batch, {one})", whole)))

    def _share_out(self, f: Function, kinds: list[list[str]]) -> None:
        """All matrices of a batch: by the pool, if no library with threads of its own multiplies."""
        root = f.root

        def alone(scope: Scope) -> Carried:
            scope.do(f"call void @{self.name}_some({', '.join(map(' '.join, kinds))}, i64 0, i64 %batch)")
            return ()

        def together(scope: Scope) -> Carried:
            context = f.slot(len(kinds), "i64", 8)
            for k, (kind, x) in enumerate(kinds):
                scope.do(f"store {kind} {x}, ptr {small.element(scope, 'i64', context, str(k))}")
            work = scope.emit(f"mul i64 {scope.emit('mul i64 %m, %n')}, %k")
            scope.run("lw_loop", [("ptr", f"@{self.name}_shared"), ("ptr", context), ("i64", "%batch"), ("i64", work),
                                  ("i64", "1"), ("i64", "1")])
            return ()
        own = root.emit("icmp sgt i64 %batch, 1")
        fits = "false"
        for test, _ in self.ways:
            fits = root.emit(f"or i1 {fits}, {self._holds(root, test)}")
        branch(root, root.emit(f"and i1 {own}, {fits}"), together, alone)

    def _at(self, scope: Scope, base: str, place: str) -> str:
        return small.element(scope, self.element, base, place)

    def _matrix(self, scope: Scope, number: str, state: list[str]) -> list[str]:
        """One product."""
        places = []
        for base, sides in (("%a", "mk"), ("%b", "kn"), ("%c", "mn")):
            size = scope.emit(f"mul i64 %{sides[0]}, %{sides[1]}")
            places.append(self._at(scope, base, scope.emit(f"mul i64 {number}, {size}")))
        self._first(scope, places, self.ways)
        return []

    def _first(self, scope: Scope, places: list[str], ways: list[tuple[list[list[Test]], Callable[..., None]]]) -> None:
        """The first way whose test holds, else the library."""
        if not ways:
            self._library(scope, places)
            return
        (test, run), *others = ways

        def this(inner: Scope) -> Carried:
            run(inner, places)
            return ()

        def next_one(inner: Scope) -> Carried:
            self._first(inner, places, others)
            return ()
        branch(scope, self._holds(scope, test), this, next_one)

    def _holds(self, scope: Scope, cases: list[list[Test]]) -> str:
        """Whether all tests of one of some cases hold."""
        found = "false"
        for case in cases:
            all_of = "true"
            for size, relation, bound in case:
                value = scope.emit("mul i64 %n, %k") if size == "nk" else f"%{size}"
                all_of = scope.emit(f"and i1 {all_of}, {scope.emit(f'icmp {relation} i64 {value}, {bound}')}")
            found = scope.emit(f"or i1 {found}, {all_of}")
        return found

    def _ways(self) -> list[tuple[list[list[Test]], Callable[..., None]]]:
        """Our own code, and for which sizes."""
        half, wide = self.lanes // 2, 2 * self.lanes
        both: list[Test] = [("m", "sge", 2), ("n", "sge", 2)]
        if self.form[1]:
            few = 2 * self.lanes
            return [] if self.form[0] else [([[*both, ("m", "sle", few)], [*both, ("n", "sle", few)]], self._dots)]
        fits: list[Test] = [("nk", "sle", SMALL_BYTES // self.bytes)]
        least = wide if self.form[0] else half  # where rows lie across memory it must be worth reading them
        cases: list[list[Test]] = [[*both, ("m", "sle", FEW), ("n", "sge", half)], [*both, *fits, ("n", "sge", least)]]
        few_columns: list[Test] = [*both, ("n", "slt", half), ("m", "sge", 4), ("k", "sge", wide)]
        return [(cases, self._small), *([] if self.form[0] else [([few_columns], self._turned)])]

    def _small(self, scope: Scope, places: list[str]) -> None:
        a, b, c = places
        row, term = ("1", "%m") if self.form[0] else ("%k", "1")
        scope.do(f"call void @{small.name_of(self.dtype)}(i64 %m, i64 %n, i64 %k, ptr {a}, i64 {row}, i64 {term}, ptr {b}, "
                 f"ptr {c})")

    def _dots(self, scope: Scope, places: list[str]) -> None:
        given = ", ".join(f"ptr {x}" for x in places)
        scope.do(f"call void @{dots.name_of(self.dtype)}(i64 %m, i64 %n, i64 %k, {given})")

    def _turned(self, scope: Scope, places: list[str]) -> None:
        """Few columns, first copied so that each lies along memory."""
        size = scope.emit(f"mul i64 {scope.emit('mul i64 %n, %k')}, {self.bytes}")
        copy = scope.call("ptr", "lw_scratch_acquire", [("i64", size)])

        def column(outer: Scope, at: str, state: list[str]) -> list[str]:
            def term(inner: Scope, k: str, now: list[str]) -> list[str]:
                source = self._at(inner, places[1], inner.emit(f"add i64 {inner.emit(f'mul i64 {k}, %n')}, {at}"))
                to = self._at(inner, copy, inner.emit(f"add i64 {inner.emit(f'mul i64 {at}, %k')}, {k}"))
                inner.do(f"store {self.element} {inner.emit(f'load {self.element}, ptr {source}')}, ptr {to}")
                return []
            loop(outer, "0", "%k", "1", (), term)
            return []

        def make(inner: Scope) -> Carried:
            loop(inner, "0", "%n", "1", (), column)
            self._dots(inner, [places[0], copy, places[2]])
            inner.run("lw_scratch_release", [("ptr", copy)])
            return ()

        def without(inner: Scope) -> Carried:
            self._library(inner, places)
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {copy}, null"), without, make, rare=True)

    def _library(self, scope: Scope, places: list[str]) -> None:
        a, b, c = places
        turned = [str(int(side)) for side in self.form]
        rows = "%m" if self.form[0] else "%k", "%k" if self.form[1] else "%n"
        scope.run(f"lw_gemm_f{8 * self.bytes}", [
            ("i32", turned[0]), ("i32", turned[1]), ("i64", "%m"), ("i64", "%n"), ("i64", "%k"), ("ptr", a), ("i64", rows[0]),
            ("ptr", b), ("i64", rows[1]), ("ptr", c), ("i64", "%n")])
