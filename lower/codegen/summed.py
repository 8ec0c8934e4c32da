"""Sums of the products of many pairs of matrices as text (gradients of a matrix that is multiplied with each of many).

    void @lw_summed_f32_nt(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c)    C[m, n] = the sum of A B over the A and B of
    void @lw_summed_f32_nn(...), tt, f64                                           a batch, all contiguous; t: stored transposed

Matrices of few terms are copied beside each other first, several at a time, so that one product has terms enough. Parts of a
large batch are summed on their own, for threads. Of little matrices all numbers of one side are multiplied with all of the
other, as one product whose terms are the matrices; of its results few are added up.

Guarantees: nothing outside the matrices is read or written; parts depend on the sizes alone.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type, vector_type
from loopwright.lower.codegen.one_by_many import move_rows
from loopwright.lower.codegen.small import element, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop

FORMS = ((False, False), (False, True), (True, True))  # sides stored transposed; one left of (True, False) is one product
ENOUGH, TOGETHER = 128, 256  # terms of a product that needs no copies, and of one of copies
LITTLE, ROWS = 1 << 12, 8  # results of little matrices' product at most; how many vectors of them a moved row takes as long as
PARTS, WORK, TERMS = 16, 1 << 20, 512  # parts at most; multiplications that are worth them; terms of each
GIVEN = "i64 %batch, i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %c"
Name = Callable[[tuple[bool, bool]], str]  # of the function for a form of one product
_PART = GIVEN + ", i64 %each, ptr %results"


def name_of(dtype: np.dtype, form: tuple[bool, bool]) -> str:
    """The function for one form."""
    return f"lw_summed_f{8 * dtype.itemsize}_{''.join('nt'[side] for side in form)}"


def summed_text(dtype: np.dtype, lanes: int, form: tuple[bool, bool], product_name: Name, declarations: set[str],
                constants: set[str]) -> str:
    """The function for one form, over those for one product."""
    made = _Summed(dtype, lanes, form, product_name, lambda: Function(declarations, constants))
    return "\n".join([made.part(), made.of_pool(), made.whole()])


class _Summed:
    """The functions for one form."""

    def __init__(self, dtype: np.dtype, lanes: int, form: tuple[bool, bool], product_name: Name,
                 function: Callable[[], Function]) -> None:
        self.dtype, self.lanes, self.form, self.product_name, self.function = dtype, lanes, form, product_name, function
        self.name, self.element = name_of(dtype, form), memory_type(dtype)

    # ---- all matrices -----------------------------------------------------------------------------
    def whole(self) -> str:
        """The function: the first way whose test holds, or in parts."""
        function = self.function()
        root = function.root
        terms, size = product(root, "%batch", "%k"), product(root, "%m", "%n", "%k", "%k")
        vectors = root.emit(f"udiv i64 {added(root, product(root, '%n', '%k'), self.lanes - 1)}, {self.lanes}")
        moved = product(root, added(root, "%m", "%n"), str(ROWS))
        little = root.emit(f"icmp sle i64 {product(root, '%m', '%k', vectors)}, {moved}")
        little = root.emit(f"and i1 {little}, {root.emit(f'icmp sle i64 {size}, {LITTLE}')}")

        def one_product(form: tuple[bool, bool], sizes: tuple[str, str, str]) -> Callable[[Scope], Carried]:
            def run(scope: Scope) -> Carried:
                self._multiply(scope, form, sizes, ("%a", "%b", "%c"))
                return ()
            return run
        self._first(root, [
            (root.emit(f"icmp eq i64 {terms}, 0"), one_product(self.form, ("%m", "%n", "0"))),
            (root.emit("icmp eq i64 %batch, 1"), one_product(self.form, ("%m", "%n", "%k"))),
            (root.emit("icmp eq i64 %k, 1"), one_product((True, False), ("%m", "%n", "%batch"))),
            (little, partial(self._by_pairs, function))], partial(self._in_parts, function))
        return f"define void @{self.name}({GIVEN}) {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"

    def _first(self, scope: Scope, ways: Sequence[tuple[str, Callable[[Scope], Carried]]],
               last: Callable[[Scope], Carried]) -> Carried:
        if not ways:
            return last(scope)
        (test, way), *others = ways
        branch(scope, test, way, lambda inner: self._first(inner, others, last))
        return ()

    def _multiply(self, scope: Scope, form: tuple[bool, bool], sizes: tuple[str, str, str],
                  places: tuple[str, str, str]) -> None:
        """One product of a form."""
        given = [*(f"i64 {x}" for x in ("1", *sizes)), *(f"ptr {x}" for x in places)]
        scope.do(f"call void @{self.product_name(form)}({', '.join(given)})")

    def _by_pairs(self, function: Function, scope: Scope) -> Carried:
        """Of the products of all numbers of little matrices those of equal terms."""
        pairs, wide = function.slot(LITTLE, self.element, 64), product(scope, "%n", "%k")
        self._multiply(scope, (True, False), (product(scope, "%m", "%k"), wide, "%batch"), ("%a", "%b", pairs))
        (line, down), (column, across) = self._steps()

        def one(row: str, inner: Scope, at: str, state: list[str]) -> list[str]:
            def term(here: Scope, k: str, now: list[str]) -> list[str]:
                left, right = (added(here, product(here, x, step), product(here, k, along))
                               for x, step, along in ((row, line, down), (at, column, across)))
                place = element(here, self.element, pairs, added(here, product(here, left, wide), right))
                return [here.emit(f"fadd {self.element} {now[0]}, {here.emit(f'load {self.element}, ptr {place}')}")]
            total, = loop(inner, "0", "%k", "1", [(self.element, "-0.0")], term)
            place = element(inner, self.element, "%c", added(inner, product(inner, row, "%n"), at))
            inner.do(f"store {self.element} {total}, ptr {place}")
            return []

        def rows(outer: Scope, row: str, state: list[str]) -> list[str]:
            loop(outer, "0", "%n", "1", (), partial(one, row))
            return []
        loop(scope, "0", "%m", "1", (), rows)
        return ()

    def _steps(self) -> list[tuple[str, str]]:
        """How far apart rows of the left side and their terms lie, and columns of the right."""
        return [("1", "%m") if self.form[0] else ("%k", "1"), ("%k", "1") if self.form[1] else ("1", "%n")]

    # ---- all parts --------------------------------------------------------------------------------
    def _in_parts(self, function: Function, scope: Scope) -> Carried:
        work, terms = product(scope, "%batch", "%m", "%n", "%k"), product(scope, "%batch", "%k")
        most = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"udiv i64 {terms}, {TERMS}")), ("i64", str(PARTS))])
        most = scope.emit(f"select i1 {scope.emit(f'icmp sge i64 {work}, {WORK}')}, i64 {most}, i64 1")
        for least, x in (("smin", "%batch"), ("smax", "1")):
            most = scope.call("i64", f"llvm.{least}.i64", [("i64", most), ("i64", x)])
        each = scope.emit(f"udiv i64 {added(scope, '%batch', scope.emit(f'sub i64 {most}, 1'))}, {most}")
        count = scope.emit(f"udiv i64 {added(scope, '%batch', scope.emit(f'sub i64 {each}, 1'))}, {each}")
        branch(scope, scope.emit(f"icmp eq i64 {count}, 1"), partial(self._alone, "%batch"),
               partial(self._by_pool, function, each, count))
        return ()

    def _alone(self, each: str, scope: Scope) -> Carried:
        """In one part."""
        scope.do(f"call void @{self.name}_part({GIVEN}, i64 {each}, ptr %c, i64 0, i64 1)")
        return ()

    def _by_pool(self, function: Function, each: str, count: str, scope: Scope) -> Carried:
        size = product(scope, "%m", "%n")
        room = product(scope, scope.emit(f"sub i64 {count}, 1"), size, str(self.dtype.itemsize))
        results = scope.call("ptr", "lw_scratch_acquire", [("i64", room)])

        def shared(inner: Scope) -> Carried:
            context = function.slot(9, "i64", 8)
            values = [text.split()[1] for text in GIVEN.split(", ")] + [each, results]
            for k, (kind, x) in enumerate(zip(_kinds(), values, strict=True)):
                inner.do(f"store {kind} {x}, ptr {element(inner, 'i64', context, str(k))}")
            units = product(inner, each, "%m", "%n", "%k")
            inner.run("lw_loop", [("ptr", f"@{self.name}_shared"), ("ptr", context), ("i64", count), ("i64", units),
                                  ("i64", "1"), ("i64", "1")])

            def add(here: Scope, at: str, state: list[str]) -> list[str]:
                place = product(here, here.emit(f"sub i64 {at}, 1"), size)
                self._add(here, size, element(here, self.element, results, place), "%c")
                return []
            loop(inner, "1", count, "1", (), add)
            inner.run("lw_scratch_release", [("ptr", results)])
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {results}, null"), partial(self._alone, "%batch"), shared, rare=True)
        return ()

    def of_pool(self) -> str:
        """What the pool calls: it finds the arguments in a block."""
        function = self.function()
        root = function.root
        places = [element(root, "i64", "%context", str(k)) for k in range(len(_kinds()))]
        found = [f"{kind} {root.emit(f'load {kind}, ptr {x}')}" for kind, x in zip(_kinds(), places, strict=True)]
        root.do(f"call void @{self.name}_part({', '.join(found)}, i64 %begin, i64 %end)")
        return f"define internal void @{self.name}_shared(ptr %context, i64 %begin, i64 %end) {ATTRIBUTES} {{\n" \
            f"{function.body()}\n  ret void\n}}"

    # ---- some parts -------------------------------------------------------------------------------
    def part(self) -> str:
        """Some parts, of `each` matrices: the first makes C, others results of their own."""
        function = self.function()
        root, kind = function.root, self.dtype.itemsize
        self.size = product(root, "%m", "%n")
        few = root.emit(f"icmp slt i64 %k, {ENOUGH}")
        step = root.emit(f"select i1 {few}, i64 {root.emit(f'udiv i64 {TOGETHER}, %k')}, i64 1")
        self.step = root.call("i64", "llvm.umin.i64", [("i64", step), ("i64", "%each")])
        self.copies = [product(root, self.step, "%k", "%m"), product(root, self.step, "%k", "%n")]
        room = added(root, self.size, added(root, *self.copies))
        scratch = root.call("ptr", "lw_scratch_acquire", [("i64", product(root, room, str(kind)))])

        def one(scope: Scope, at: str, state: list[str]) -> list[str]:
            first = product(scope, at, "%each")
            last = scope.call("i64", "llvm.smin.i64", [("i64", added(scope, first, "%each")), ("i64", "%batch")])
            place = product(scope, scope.emit(f"sub i64 {at}, 1"), self.size)
            other = element(scope, self.element, "%results", place)
            to = scope.emit(f"select i1 {scope.emit(f'icmp eq i64 {at}, 0')}, ptr %c, ptr {other}")
            branch(scope, scope.emit(f"icmp eq ptr {scratch}, null"), partial(self._by_elements, (first, last), to),
                   partial(self._by_products, (first, last), to, scratch), rare=True)
            return []
        loop(root, "%begin", "%end", "1", (), one)

        def release(scope: Scope) -> Carried:
            scope.run("lw_scratch_release", [("ptr", scratch)])
            return ()
        branch(root, root.emit(f"icmp ne ptr {scratch}, null"), release)
        header = f"internal void @{self.name}_part({_PART}, i64 %begin, i64 %end)"
        return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"

    def _by_products(self, span: tuple[str, str], to: str, scratch: str, scope: Scope) -> Carried:
        """Several matrices at a time."""
        starts = [self.size, added(scope, self.size, self.copies[0])]
        copies = [element(scope, self.element, scratch, start) for start in starts]

        def some(inner: Scope, at: str, state: list[str]) -> list[str]:
            left = inner.emit(f"sub i64 {span[1]}, {at}")
            count = inner.call("i64", "llvm.smin.i64", [("i64", left), ("i64", self.step)])
            a, b = (self._side(inner, side, number, count, at, copy)
                    for side, number, copy in zip(("%a", "%b"), ("%m", "%n"), copies, strict=True))
            is_first = inner.emit(f"icmp eq i64 {at}, {span[0]}")
            made = inner.emit(f"select i1 {is_first}, ptr {to}, ptr {scratch}")
            self._multiply(inner, self.form, ("%m", "%n", product(inner, count, "%k")), (a, b, made))

            def more(here: Scope) -> Carried:
                self._add(here, self.size, scratch, to)
                return ()
            branch(inner, inner.emit(f"xor i1 {is_first}, true"), more)
            return []
        loop(scope, *span, self.step, (), some)
        return ()

    def _side(self, scope: Scope, side: str, rows: str, count: str, at: str, copy: str) -> str:
        """Where the matrices of a side are one: those with the terms first are, as they lie."""
        matrix = product(scope, rows, "%k")
        here = element(scope, self.element, side, product(scope, at, matrix))
        if self.form[side == "%b"] == (side == "%a"):
            return here

        def copied(inner: Scope) -> Carried:
            move_rows(inner, self.dtype, (count, rows, "%k"), (here, "%k", matrix), (copy, product(inner, count, "%k"), "%k"))
            return [("ptr", copy)]
        found, = branch(scope, scope.emit(f"icmp sgt i64 {count}, 1"), copied, otherwise=[("ptr", here)])
        return found

    def _add(self, scope: Scope, size: str, source: str, to: str) -> None:
        """Add numbers to others."""
        def some(width: int, inner: Scope, at: str, state: list[str]) -> list[str]:
            kind, place = vector_type(self.element, width), element(inner, self.element, to, at)
            x, y = (load_first(inner, kind, p, None) for p in (element(inner, self.element, source, at), place))
            store_first(inner, kind, inner.emit(f"fadd {kind} {y}, {x}"), place, None)
            return []
        full = scope.emit(f"and i64 {size}, {-self.lanes}")
        loop(scope, "0", full, str(self.lanes), (), partial(some, self.lanes))
        loop(scope, full, size, "1", (), partial(some, 1))

    def _by_elements(self, span: tuple[str, str], to: str, scope: Scope) -> Carried:
        """Number by number, where memory is short."""
        steps = self._steps()

        def one(row: str, inner: Scope, column: str, state: list[str]) -> list[str]:
            def matrix(outer: Scope, at: str, total: list[str]) -> list[str]:
                def term(here: Scope, k: str, now: list[str]) -> list[str]:
                    factors = []
                    for side, index, rows, (line, across) in zip(("%a", "%b"), (row, column), ("%m", "%n"), steps, strict=True):
                        place = added(here, product(here, at, rows, "%k"), product(here, index, line))
                        there = element(here, self.element, side, added(here, place, product(here, k, across)))
                        factors.append(here.emit(f"load {self.element}, ptr {there}"))
                    made = here.emit(f"fmul {self.element} {factors[0]}, {factors[1]}")
                    return [here.emit(f"fadd {self.element} {now[0]}, {made}")]
                return loop(outer, "0", "%k", "1", [(self.element, total[0])], term)
            total, = loop(inner, *span, "1", [(self.element, "0.0")], matrix)
            place = element(inner, self.element, to, added(inner, product(inner, row, "%n"), column))
            inner.do(f"store {self.element} {total}, ptr {place}")
            return []

        def rows(outer: Scope, row: str, state: list[str]) -> list[str]:
            loop(outer, "0", "%n", "1", (), partial(one, row))
            return []
        loop(scope, "0", "%m", "1", (), rows)
        return ()


def _kinds() -> list[str]:
    return [text.split()[0] for text in _PART.split(", ")]
