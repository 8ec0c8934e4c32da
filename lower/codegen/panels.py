"""Matrix products as text with a right side that was copied before: for products of many left sides with one matrix.

    void @lw_panels_f32(i64 n, i64 k, ptr b, ptr panels)      the copy of B[k, n]: panels of `panel_columns` columns, the last
                                                              filled up with anything, each term by term; and parts for the
                                                              tile unit, if so many `i64 rows` are worth them: the last
                                                              argument, where there is one, see `panel_tiles.py`
    void @lw_panel_product_f32_n(i64 m, i64 n, i64 k, ptr a, ptr b, ptr panels, ptr c)      C[m, n] = A B, all contiguous
    void @lw_panel_product_f32_t(...), f64                                                  A is stored transposed

No copy is made, and every tile reads the right side along memory. Many rows of many terms are multiplied by B as it is, as any
product is. Columns are shared out to threads.

Guarantees: nothing outside the arrays is read or written; an element's sum is made in one order, whatever m and n are and
however many threads there are; no terms make zeros; what C held before does not matter.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.ir.types import F32
from loopwright.lower.codegen import chunks
from loopwright.lower.codegen.chunks import DEPTH, ROWS, terms_of
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.panel_tiles import PanelTiles
from loopwright.lower.codegen.small import call_panel, element, widest
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

BRIEF = 256  # terms, with no more of which any number of rows is multiplied so, where there are 32 registers
_PRODUCT = "i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %panels, ptr %c"


def panel_columns(dtype: np.dtype, target: Target) -> int:
    """The columns of a panel."""
    return widest(target) * target.lanes(dtype)


def name_of(dtype: np.dtype, what: str) -> str:
    """The function's name; of products with `_n` or `_t` behind it."""
    return f"lw_{what}_f{8 * dtype.itemsize}"


def panels_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The functions. They call those of `small_text`, `chunks_text` and `products_text`, and the pool's."""
    made = _Panels(dtype, target, declarations, constants)
    return "\n".join([made.copying(), *(made.product(turned) for turned in (False, True))])


class _Panels:
    """The functions of one dtype."""

    def __init__(self, dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> None:
        self.dtype, self.target, self.kind = dtype, target, memory_type(dtype)
        self.lanes, self.wide = target.lanes(dtype), panel_columns(dtype, target)
        self.tiles = PanelTiles(self.wide) if target.has_tiles and dtype == F32 else None
        self.long = terms_of(target)
        self.declarations, self.constants = declarations, constants

    def _function(self) -> Function:
        return Function(self.declarations, self.constants)

    def copying(self) -> str:
        """What copies a matrix."""
        f = self._function()

        def panel(scope: Scope, at: str, state: list[str]) -> list[str]:
            to = element(scope, self.kind, "%panels", scope.emit(f"mul i64 {at}, %k"))
            scope.do(f"call void @{chunks.name_of(self.dtype, False)}_copy(ptr {to}, i64 {self.wide}, ptr %b, i64 0, i64 %k, "
                     f"i64 {at}, i64 {self._vectors(scope, at)}, i64 %n, i64 %n)")
            return []
        loop(f.root, "0", "%n", str(self.wide), (), panel)
        rows = ""
        if self.tiles is not None:
            self.tiles.copy(f.root)
            rows = ", i64 %rows"
        return _defined(f"void @{name_of(self.dtype, 'panels')}(i64 %n, i64 %k, ptr %b, ptr %panels{rows})", f)

    def _vectors(self, scope: Scope, at: str) -> str:
        """How many vectors the panel at a column has."""
        left = scope.emit(f"sub i64 %n, {at}")
        vectors = scope.emit(f"udiv i64 {scope.emit(f'add i64 {left}, {self.lanes - 1}')}, {self.lanes}")
        return _least(scope, vectors, widest(self.target))

    # ---- products ---------------------------------------------------------------------------------
    def product(self, turned: bool) -> str:
        """The function for one form of the left side, over that for some panels, and what the pool calls of it."""
        name, given = f"{name_of(self.dtype, 'panel_product')}_{'nt'[turned]}", [x.split() for x in _PRODUCT.split(", ")]
        some, shared, whole = self._function(), self._function(), self._function()

        def rows(scope: Scope, row: str, state: list[str]) -> list[str]:
            self._rows(turned, scope, row, _least(scope, scope.emit(f"sub i64 %m, {row}"), ROWS))
            return []

        def by_vectors(scope: Scope) -> Carried:
            loop(scope, "0", "%m", str(ROWS), (), rows)
            return ()
        if self.tiles is None or turned:
            by_vectors(some.root)
        else:
            self.tiles.multiply(some.root, by_vectors, lambda scope, row: self._rows(turned, scope, row, "1"))
        found = [shared.root.emit(f"load {kind}, ptr {element(shared.root, 'i64', '%context', str(k))}")
                 for k, (kind, _) in enumerate(given)]
        listed = ", ".join(f"{kind} {x}" for (kind, _), x in zip(given, found, strict=True))
        shared.root.do(f"call void @{name}_some({listed}, i64 %begin, i64 %end)")
        self._whole(whole, name, given, turned)
        return "\n".join([
            _defined(f"internal void @{name}_some({_PRODUCT}, i64 %begin, i64 %end)", some),
            _defined(f"internal void @{name}_shared(ptr %context, i64 %begin, i64 %end)", shared),
            _defined(f"void @{name}({_PRODUCT})", whole)])

    def _whole(self, f: Function, name: str, given: list[list[str]], turned: bool) -> None:
        def by_panels(scope: Scope) -> Carried:
            context = f.slot(len(given), "i64", 8)
            for k, (kind, x) in enumerate(given):
                scope.do(f"store {kind} {x}, ptr {element(scope, 'i64', context, str(k))}")
            count = scope.emit(f"udiv i64 {scope.emit(f'add i64 %n, {self.wide - 1}')}, {self.wide}")
            work = scope.emit(f"mul i64 {scope.emit(f'mul i64 %m, {self.wide}')}, %k")
            scope.run("lw_loop", [("ptr", f"@{name}_shared"), ("ptr", context), ("i64", count), ("i64", work), ("i64", "1"),
                                  ("i64", "1")])
            return ()

        def without_panels(scope: Scope) -> Carried:
            scope.do(f"call void @lw_product_f{8 * self.dtype.itemsize}_{'nt'[turned]}n(i64 1, i64 %m, i64 %n, i64 %k, ptr %a, "
                     "ptr %b, ptr %c)")
            return ()
        root = f.root
        brief = BRIEF if self.target.vector_registers > 16 else 0
        few = root.emit(f"or i1 {root.emit(f'icmp sle i64 %m, {ROWS}')}, {root.emit(f'icmp sle i64 %k, {brief}')}")
        if self.tiles is not None and not turned:
            few = root.emit(f"or i1 {few}, {self.tiles.are_there(root)}")
        branch(root, root.emit(f"and i1 {few}, {root.emit('icmp sge i64 %k, 1')}"), by_panels, without_panels)

    def _rows(self, turned: bool, scope: Scope, row: str, count: str) -> None:
        """Some panels of a block of rows."""
        steps = ("1", "%m") if turned else ("%k", "1")
        a, c = (element(scope, self.kind, x, scope.emit(f"mul i64 {row}, {step}"))
                for x, step in (("%a", steps[0]), ("%c", "%n")))
        begin, end = (scope.emit(f"mul i64 %{x}, {self.wide}") for x in ("begin", "end"))
        end = _least(scope, end, "%n")

        def depth(inner: Scope, term: str, now: list[str]) -> list[str]:
            last = _least(inner, inner.emit(f"add i64 {term}, {DEPTH}"), "%k")
            loop(inner, begin, end, str(self.wide), (), partial(self._panel, (a, c), steps, count, (term, last)))
            return []
        loop(scope, "0", "%k", str(DEPTH), (), depth)

    def _panel(self, sides: tuple[str, str], steps: tuple[str, str], count: str, span: tuple[str, str], scope: Scope, at: str,
               state: list[str]) -> list[str]:
        """A panel, some terms after others, so that these are in the first cache."""
        vectors, left = self._vectors(scope, at), scope.emit(f"sub i64 %n, {at}")
        panel = element(scope, self.kind, "%panels", scope.emit(f"mul i64 {at}, %k"))
        c = element(scope, self.kind, sides[1], at)

        def terms(inner: Scope, term: str, now: list[str]) -> list[str]:
            many = _least(inner, inner.emit(f"sub i64 {span[1]}, {term}"), self.long)
            a = element(inner, self.kind, sides[0], inner.emit(f"mul i64 {term}, {steps[1]}"))
            b = element(inner, self.kind, panel, inner.emit(f"mul i64 {term}, {self.wide}"))
            again = inner.emit(f"icmp ne i64 {term}, 0")

            def one(arm: Scope, v: int) -> Carried:
                call_panel(arm, self.dtype, v, (many, a, b, str(self.wide), c, count, left, again), steps)
                return ()
            for v in range(1, widest(self.target) + 1):
                branch(inner, inner.emit(f"icmp eq i64 {vectors}, {v}"), partial(one, v=v))
            return []
        loop(scope, *span, str(self.long), (), terms)
        return []


def _least(scope: Scope, a: str, b: str | int) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", str(b))])


def _defined(header: str, f: Function) -> str:
    return f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}"
