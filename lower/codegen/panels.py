"""Matrix products as text with a right side that was copied before: for products of many left sides with one matrix.

    void @lw_panels_f32(i64 n, i64 k, ptr b, ptr panels)      the copy of B[k, n]: panels of `panel_columns` columns, the last
                                                              filled up with anything, each term by term
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

from loopwright.ir.dims import Extent, floordiv
from loopwright.ir.types import F32
from loopwright.lower.codegen import chunks
from loopwright.lower.codegen.chunks import DEPTH, ROWS, terms_of
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.product_sizes import holds
from loopwright.lower.codegen.small import WIDEST, call_panel, element, widths_of
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.tile_unit import LANES, amx_functions, fill_tiles, store_sums
from loopwright.lower.target import Target
from loopwright.lower.tiling import PARTS, SQUARE

TALL = 256  # rows of a block whose parts are made at once
ODD = 1.0  # where parts would be: they are not there
BRIEF = 256  # terms, with no more of which any number of rows is multiplied so, where there are 32 registers
_PRODUCT = "i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %panels, ptr %c"


def panel_columns(dtype: np.dtype, target: Target) -> int:
    """The columns of a panel."""
    return WIDEST * target.lanes(dtype)


def parts_size(columns: Extent, terms: Extent) -> Extent:
    """How many numbers of f32 the parts of a matrix take, and the line before them, in which 0 says that they are there."""
    whole = [floordiv(n + (SQUARE - 1), SQUARE) * SQUARE for n in (columns, terms)]
    return floordiv(whole[0] * whole[1] * PARTS, 2) + LANES


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
        self.in_tiles = target.has_tiles and dtype == F32
        self.lanes, self.wide = target.lanes(dtype), panel_columns(dtype, target)
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
        if self.in_tiles:
            amx_functions(f)
            odd = self._odd(f.root)
            f.root.do(f"store i32 0, ptr {odd}, align 64")

            def square(scope: Scope, term: str, state: list[str], at: str) -> list[str]:
                left = [scope.emit(f"sub i64 {n}, {x}") for n, x in (("%k", term), ("%n", at))]
                terms, columns = (_least(scope, x, SQUARE) for x in left)
                place = scope.emit(f"add i64 {scope.emit(f'mul i64 {term}, %n')}, {at}")
                to = self._parts(scope, odd, at, term)
                given = f"ptr {element(scope, self.kind, '%b', place)}, ptr {to}, i64 %n, i64 {terms}, i64 {columns}"
                scope.do(f"call void @lw_amx_square({given}, ptr {odd})")
                return []

            def squares(scope: Scope, at: str, state: list[str]) -> list[str]:
                loop(scope, "0", "%k", str(SQUARE), (), partial(square, at=at))
                return []
            loop(f.root, "0", "%n", str(SQUARE), (), squares)
        return _defined(f"void @{name_of(self.dtype, 'panels')}(i64 %n, i64 %k, ptr %b, ptr %panels)", f)

    def _vectors(self, scope: Scope, at: str) -> str:
        """How many vectors the panel at a column has."""
        left = scope.emit(f"sub i64 %n, {at}")
        vectors = scope.emit(f"udiv i64 {scope.emit(f'add i64 {left}, {self.lanes - 1}')}, {self.lanes}")
        return _least(scope, vectors, WIDEST)

    # ---- in the tile unit -------------------------------------------------------------------------
    def _odd(self, scope: Scope) -> str:
        """Where the line before the parts is."""
        panels = scope.emit(f"udiv i64 {scope.emit(f'add i64 %n, {self.wide - 1}')}, {self.wide}")
        return element(scope, self.kind, "%panels", scope.emit(f"mul i64 {scope.emit(f'mul i64 {panels}, %k')}, {self.wide}"))

    def _parts(self, scope: Scope, odd: str, column: str, term: str) -> str:
        """Where the parts of a square of terms and columns are."""
        long = scope.emit(f"and i64 {scope.emit(f'add i64 %k, {SQUARE - 1}')}, -{SQUARE}")
        before = scope.emit(f"mul i64 {column}, {long}")
        at = scope.emit(f"add i64 {before}, {scope.emit(f'mul i64 {term}, {SQUARE}')}")
        past = scope.emit(f"mul i64 {at}, {2 * PARTS}")
        return scope.emit(f"getelementptr i8, ptr {odd}, i64 {scope.emit(f'add i64 {past}, 64')}")

    def _suits(self, scope: Scope) -> str:
        """Whether parts are there, and worth those of the left side."""
        there = scope.emit(f"icmp eq i32 {scope.emit(f'load i32, ptr {self._odd(scope)}, align 64')}, 0")
        enough = holds(scope, [[("m", "sge", LANES), ("n", "sge", LANES), ("k", "sge", SQUARE)]], self.dtype)
        fills = fill_tiles(scope, ("%m", "%n", "%k"))
        return scope.emit(f"and i1 {there}, {scope.emit(f'and i1 {enough}, {fills}')}")

    def _by_tiles(self, scope: Scope) -> Carried:
        """Some panels of all rows, a block of these at a time; whether these have parts that say all of them."""
        amx_functions(scope.function)
        long = scope.emit(f"and i64 {scope.emit(f'add i64 %k, {SQUARE - 1}')}, -{SQUARE}")
        apart = scope.emit(f"add i64 {scope.emit(f'mul i64 {long}, {PARTS}')}, {SQUARE}")
        most = _least(scope, "%m", TALL)
        high = scope.emit(f"and i64 {scope.emit(f'add i64 {most}, {LANES - 1}')}, -{LANES}")
        row = scope.emit(f"add i64 {scope.emit(f'mul i64 {apart}, 2')}, {4 * SQUARE}")
        size = scope.emit(f"mul i64 {high}, {row}")
        block = scope.call("ptr", "lw_scratch_acquire", [("i64", size)])
        odd = scope.function.slot(1, "i32", 4)

        def without(inner: Scope) -> Carried:
            return [("i1", "false")]

        def within(inner: Scope) -> Carried:
            sums = inner.emit(f"getelementptr bfloat, ptr {block}, i64 {inner.emit(f'mul i64 {high}, {apart}')}")
            inner.do(f"store i32 0, ptr {odd}, align 4")
            loop(inner, "0", "%m", str(TALL), (), partial(self._tile_rows, block, sums, odd, apart))
            inner.run("lw_scratch_release", [("ptr", block)])
            return [("i1", inner.emit(f"icmp eq i32 {inner.emit(f'load i32, ptr {odd}, align 4')}, 0"))]
        return [("i1", x) for x in branch(scope, scope.emit(f"icmp eq ptr {block}, null"), without, within, rare=True)]

    def _tile_rows(self, block: str, sums: str, odd: str, apart: str, scope: Scope, row: str, state: list[str]) -> list[str]:
        """A block of rows: its parts, then panel after panel."""
        count = _least(scope, scope.emit(f"sub i64 %m, {row}"), TALL)
        a = element(scope, self.kind, "%a", scope.emit(f"mul i64 {row}, %k"))
        scope.do(f"call void @lw_amx_rows(ptr {a}, ptr {block}, i64 {count}, i64 %k, i64 {apart}, i64 %k, ptr {odd})")
        across = scope.emit(f"mul i64 {apart}, 2")
        squares = scope.emit(f"udiv i64 {scope.emit(f'add i64 %k, {SQUARE - 1}')}, {SQUARE}")
        begin, end = (scope.emit(f"mul i64 %{x}, {self.wide}") for x in ("begin", "end"))
        there = self._odd(scope)

        def panel(inner: Scope, at: str, now: list[str]) -> list[str]:
            left = inner.emit(f"sub i64 %n, {at}")
            c = element(inner, self.kind, "%c", inner.emit(f"add i64 {inner.emit(f'mul i64 {row}, %n')}, {at}"))
            right = self._parts(inner, there, at, "0")
            narrow = inner.emit(f"icmp sle i64 {left}, {LANES}")

            def products(arm: Scope, to: str, step: str) -> None:
                sides, once = f"ptr {block}, ptr {right}, ptr {to}", "i64 1, i64 0, i64 0"
                arm.do(f"call void @lw_amx_products({sides}, i64 {count}, i64 {squares}, {once}, {once}, i64 {across}, "
                       f"i64 {step}, i1 true, i1 {narrow}, ptr {right})")

            def straight(arm: Scope) -> Carried:
                products(arm, c, arm.emit("mul i64 %n, 4"))
                return ()

            def copied(arm: Scope) -> Carried:
                products(arm, sums, str(4 * SQUARE))
                store_sums(arm, sums, c, count, left)
                return ()
            full = inner.emit(f"icmp eq i64 {inner.emit(f'and i64 {count}, {LANES - 1}')}, 0")
            wide = inner.emit(f"icmp sge i64 {left}, {SQUARE}")
            branch(inner, inner.emit(f"and i1 {full}, {wide}"), straight, copied)
            return []
        loop(scope, begin, _least(scope, end, "%n"), str(SQUARE), (), panel)
        return []

    # ---- products ---------------------------------------------------------------------------------
    def product(self, turned: bool) -> str:
        """The function for one form of the left side, over that for some panels, and what the pool calls of it."""
        name, given = f"{name_of(self.dtype, 'panel_product')}_{'nt'[turned]}", [x.split() for x in _PRODUCT.split(", ")]
        some, shared, whole = self._function(), self._function(), self._function()

        def by_vectors(scope: Scope) -> Carried:
            loop(scope, "0", "%m", str(ROWS), (), partial(self._rows, turned))
            return ()
        if self.in_tiles and not turned:
            done, = branch(some.root, self._suits(some.root), self._by_tiles, otherwise=[("i1", "false")])
            branch(some.root, done, lambda scope: (), by_vectors)
        else:
            by_vectors(some.root)
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
        branch(root, root.emit(f"and i1 {few}, {root.emit('icmp sge i64 %k, 1')}"), by_panels, without_panels)

    def _rows(self, turned: bool, scope: Scope, row: str, state: list[str]) -> list[str]:
        """Some panels of a block of rows."""
        count = _least(scope, scope.emit(f"sub i64 %m, {row}"), ROWS)
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
        return []

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
            for v in widths_of(self.target):
                branch(inner, inner.emit(f"icmp eq i64 {vectors}, {v}"), partial(one, v=v))
            return []
        loop(scope, *span, str(self.long), (), terms)
        return []


def _least(scope: Scope, a: str, b: str | int) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", str(b))])


def _defined(header: str, f: Function) -> str:
    return f"define {header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}"
