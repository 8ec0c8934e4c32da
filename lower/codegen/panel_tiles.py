"""Products with a matrix that stays, by the tile unit: parts of the matrix, made once, lie behind its panels.

First there is a line of numbers: 0 in its first one says that the parts are there. They are not where few rows are multiplied,
tiles are not full, or a number of the matrix is none that parts say. Rows that have such numbers are multiplied by vectors.

Guarantees: how a row is multiplied depends on the matrix and on that row, and on nothing else: programs give threads, or trips,
as many rows as they like.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, floordiv
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.tile_parts import LANES, LINE
from loopwright.lower.codegen.tile_unit import amx_functions, fill_tiles, store_sums, with_tiles
from loopwright.lower.tiling import PARTS, SQUARE

TALL = 256  # rows whose parts are made at once
FEWEST = 32  # rows of a product, with fewer of which parts of those of a thread take longer than vectors
NONE = 1.0  # in the first place of the line, or anything but 0: there are no parts


def parts_size(columns: Extent, terms: Extent) -> Extent:
    """How many numbers of f32 the parts of a matrix take, with the line before them."""
    whole = [floordiv(n + (SQUARE - 1), SQUARE) * SQUARE for n in (columns, terms)]
    return floordiv(whole[0] * whole[1] * PARTS, 2) + LANES


def _least(scope: Scope, a: str, b: str | int) -> str:
    return scope.call("i64", "llvm.smin.i64", [("i64", a), ("i64", str(b))])


def _up(scope: Scope, n: str, size: int) -> str:
    """A multiple of a power of two."""
    return scope.emit(f"and i64 {scope.emit(f'add i64 {n}, {size - 1}')}, -{size}")


class PanelTiles:
    """What functions of panels of so many columns do, whose arguments are called as in `panels.py`."""

    def __init__(self, wide: int) -> None:
        self.wide = wide

    def _line(self, scope: Scope) -> str:
        panels = scope.emit(f"udiv i64 {scope.emit(f'add i64 %n, {self.wide - 1}')}, {self.wide}")
        return element(scope, "float", "%panels", scope.emit(f"mul i64 {scope.emit(f'mul i64 {panels}, %k')}, {self.wide}"))

    def are_there(self, scope: Scope) -> str:
        """Whether there are parts."""
        return scope.emit(f"icmp eq i32 {scope.emit(f'load i32, ptr {self._line(scope)}, align {LINE}')}, 0")

    def parts(self, scope: Scope, column: str, term: str) -> str:
        """Where those of a square of terms and columns are."""
        before = scope.emit(f"mul i64 {column}, {_up(scope, '%k', SQUARE)}")
        at = scope.emit(f"add i64 {before}, {scope.emit(f'mul i64 {term}, {SQUARE}')}")
        past = scope.emit(f"add i64 {scope.emit(f'mul i64 {at}, {2 * PARTS}')}, {LINE}")
        return scope.emit(f"getelementptr i8, ptr {self._line(scope)}, i64 {past}")

    def copy(self, scope: Scope) -> None:
        """Make the parts, if %rows rows are worth it."""
        amx_functions(scope.function)
        line = self._line(scope)

        def square(inner: Scope, term: str, state: list[str], column: str) -> list[str]:
            terms, columns = (_least(inner, inner.emit(f"sub i64 {n}, {x}"), SQUARE) for n, x in (("%k", term), ("%n", column)))
            b = element(inner, "float", "%b", inner.emit(f"add i64 {inner.emit(f'mul i64 {term}, %n')}, {column}"))
            to = self.parts(inner, column, term)
            inner.do(f"call void @lw_amx_square{PARTS}(ptr {b}, ptr {to}, i64 %n, i64 {terms}, i64 {columns}, ptr {line})")
            return []

        def squares(inner: Scope, column: str, state: list[str]) -> list[str]:
            loop(inner, "0", "%k", str(SQUARE), (), partial(square, column=column))
            return []

        def all_of_them(inner: Scope) -> Carried:
            inner.do(f"store i32 0, ptr {line}, align {LINE}")
            loop(inner, "0", "%n", str(SQUARE), (), squares)
            return ()

        def none(inner: Scope) -> Carried:
            inner.do(f"store float {NONE:e}, ptr {line}, align {LINE}")
            return ()
        enough = scope.emit(f"icmp sge i64 %rows, {FEWEST}")
        fills = fill_tiles(scope, (str(LANES), "%n", "%k"))
        branch(scope, scope.emit(f"and i1 {enough}, {fills}"), all_of_them, none)

    def multiply(self, scope: Scope, by_vectors: Callable[[Scope], Carried],
                 row_by_vectors: Callable[[Scope, str], None]) -> None:
        """Panels from %begin to %end of all rows, by tiles where there are parts and memory for those of rows."""
        amx_functions(scope.function)
        long = _up(scope, "%k", SQUARE)
        apart = scope.emit(f"add i64 {scope.emit(f'mul i64 {long}, {PARTS}')}, {SQUARE}")  # numbers between rows of parts
        high = _up(scope, _least(scope, "%m", TALL), LANES)
        row = scope.emit(f"add i64 {scope.emit(f'mul i64 {apart}, 2')}, {4 * SQUARE}")
        odd = scope.function.slot(1, "i32", 4)

        def tiles(inner: Scope) -> Carried:
            block = inner.call("ptr", "lw_scratch_acquire", [("i64", inner.emit(f"mul i64 {high}, {row}"))])

            def made(here: Scope) -> Carried:
                sums = here.emit(f"getelementptr bfloat, ptr {block}, i64 {here.emit(f'mul i64 {high}, {apart}')}")
                rows = _Rows(self, block, sums, odd, apart, row_by_vectors)
                first, last = with_tiles(here.function)
                here.do(first)
                loop(here, "0", "%m", str(TALL), (), lambda at, r, _: rows.some(at, r))
                here.do(last)
                here.run("lw_scratch_release", [("ptr", block)])
                return ()
            branch(inner, inner.emit(f"icmp eq ptr {block}, null"), by_vectors, made, rare=True)
            return ()
        branch(scope, self.are_there(scope), tiles, by_vectors)

    def panels(self, scope: Scope, one: Callable[[Scope, str], None]) -> None:
        """Panels of tiles between %begin and %end."""
        begin, end = (scope.emit(f"mul i64 %{x}, {self.wide}") for x in ("begin", "end"))

        def panel(inner: Scope, column: str, state: list[str]) -> list[str]:
            one(inner, column)
            return []
        loop(scope, begin, _least(scope, end, "%n"), str(SQUARE), (), panel)


@dataclass(frozen=True)
class _Rows:
    """Blocks of rows of the left side: memory for their parts, and for sums that are not stored where they are wanted; what is
    told of a row that parts do not say; and how it is multiplied."""

    tiles: PanelTiles
    block: str
    sums: str
    odd: str
    apart: str
    row_by_vectors: Callable[[Scope, str], None]

    def some(self, scope: Scope, row: str) -> list[str]:
        """A block of rows: its parts, then panel after panel."""
        count = _least(scope, scope.emit(f"sub i64 %m, {row}"), TALL)
        scope.do(f"store i32 0, ptr {self.odd}, align 4")
        self._divide(scope, row, count)
        self.tiles.panels(scope, lambda inner, column: self._panel(inner, row, count, column))
        told = scope.emit(f"icmp ne i32 {scope.emit(f'load i32, ptr {self.odd}, align 4')}, 0")

        def odd_rows(inner: Scope) -> Carried:
            end = inner.emit(f"add i64 {row}, {count}")
            loop(inner, row, end, "1", (), lambda here, r, _: self._again(here, r))
            return ()
        branch(scope, told, odd_rows, rare=True)
        return []

    def _divide(self, scope: Scope, row: str, count: str) -> None:
        a = element(scope, "float", "%a", scope.emit(f"mul i64 {row}, %k"))
        scope.do(f"call void @lw_amx_rows{PARTS}(ptr {a}, ptr {self.block}, i64 {count}, i64 %k, i64 {self.apart}, i64 %k, "
                 f"ptr {self.odd})")

    def _again(self, scope: Scope, row: str) -> list[str]:
        """A row by vectors, if parts do not say it."""
        scope.do(f"store i32 0, ptr {self.odd}, align 4")
        self._divide(scope, row, "1")

        def by_vectors(inner: Scope) -> Carried:
            self.row_by_vectors(inner, row)
            return ()
        branch(scope, scope.emit(f"icmp ne i32 {scope.emit(f'load i32, ptr {self.odd}, align 4')}, 0"), by_vectors)
        return []

    def _panel(self, scope: Scope, row: str, count: str, column: str) -> None:
        left = scope.emit(f"sub i64 %n, {column}")
        c = element(scope, "float", "%c", scope.emit(f"add i64 {scope.emit(f'mul i64 {row}, %n')}, {column}"))
        right = self.tiles.parts(scope, column, "0")
        squares = scope.emit(f"udiv i64 {_up(scope, '%k', SQUARE)}, {SQUARE}")
        across, narrow = scope.emit(f"mul i64 {self.apart}, 2"), scope.emit(f"icmp sle i64 {left}, {LANES}")

        def products(inner: Scope, to: str, step: str) -> None:
            sides, once = f"ptr {self.block}, ptr {right}, ptr {to}", "i64 1, i64 0, i64 0"
            inner.do(f"call void @lw_amx_products{PARTS}({sides}, i64 {count}, i64 {squares}, {once}, {once}, i64 {across}, "
                     f"i64 {step}, i1 true, i1 {narrow}, ptr null)")

        def straight(inner: Scope) -> Carried:
            products(inner, c, inner.emit("mul i64 %n, 4"))
            return ()

        def copied(inner: Scope) -> Carried:
            products(inner, self.sums, str(4 * SQUARE))
            store_sums(inner, self.sums, c, count, left)
            return ()
        full = scope.emit(f"icmp eq i64 {scope.emit(f'and i64 {count}, {LANES - 1}')}, 0")
        wide = scope.emit(f"icmp sge i64 {left}, {SQUARE}")
        branch(scope, scope.emit(f"and i1 {full}, {wide}"), straight, copied)
