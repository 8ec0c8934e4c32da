"""Products of a matrix and its transpose (`x.T @ x`): what lies right of the diagonal is like what lies below it, which alone
is made, in blocks of columns from the diagonal down; on the diagonal a block is made panel by panel.

Guarantees: the result is symmetric to the last bit.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Scope, branch, loop

if TYPE_CHECKING:
    from loopwright.lower.codegen.products import Product

LARGE = 96  # columns of a panel that the library makes
MANY, PANELS = 640, 3  # from how many columns on so many panels are a block: the left side is copied for each
TOGETHER = 16  # rows below the diagonal that are copied to columns together
Part = Callable[[Scope, list[str], str, tuple[str, str], bool], None]  # places, rows, columns from and to, on the diagonal?


def by_library(made: Product, scope: Scope) -> str | None:
    """Whether the library makes the parts; None where our own blocks make large products."""
    return made.holds(scope, made.sizes.large_square()) if made.has_huge else None


def panel_of(made: Product, scope: Scope) -> str:
    """The columns of a panel: more where the library makes the parts."""
    large = by_library(made, scope)
    return str(made.panel) if large is None else scope.emit(f"select i1 {large}, i64 {LARGE}, i64 {made.panel}")


def some_columns(made: Product, scope: Scope, places: list[str], rows: str, span: tuple[str, str], on_diagonal: bool) -> None:
    """Some rows of some columns. How the library adds up an element may depend on where it is."""
    if (large := by_library(made, scope)) is None:
        made.chunks(scope, places, rows, span)
        return

    def library(inner: Scope) -> Carried:
        a, b, c = places
        b = element(inner, made.element, b, product(inner, span[0], made.lines[1]) if made.form[1] else span[0])
        c, count = element(inner, made.element, c, span[0]), inner.emit(f"sub i64 {span[1]}, {span[0]}")
        inner.run(made.gemm, [*made.given_to_library([a, b, c], (rows, count), made.form, made.lines), ("i32", "1")])
        if on_diagonal:
            _mirror(inner, made.element, c, count)
        return ()

    def chunk(inner: Scope) -> Carried:
        made.chunks(inner, places, rows, span)
        return ()
    branch(scope, large, library, chunk)


def width_of(scope: Scope, panel: str) -> str:
    """The columns of a block."""
    wide = product(scope, str(PANELS), panel)
    return scope.emit(f"select i1 {scope.emit(f'icmp sge i64 %n, {MANY}')}, i64 {wide}, i64 {panel}")


def blocks_of(scope: Scope, panel: str) -> str:
    """How many blocks there are."""
    width = width_of(scope, panel)
    return scope.emit(f"udiv i64 {added(scope, '%n', scope.emit(f'sub i64 {width}, 1'))}, {width}")


def some_blocks(scope: Scope, kind: str, is_turned: bool, panel: str, make: Part) -> None:
    """Blocks from %begin to %end of C[n, n], of elements of a type; is_turned: the left side is stored transposed."""
    width = width_of(scope, panel)

    def part(within: Scope, rows: tuple[str, str], columns: tuple[str, str], below: str, on_diagonal: bool) -> None:
        """Some rows of some columns, and their like: of the rows from `below` on."""
        a = element(within, kind, "%a", rows[0] if is_turned else product(within, rows[0], "%k"))
        c = element(within, kind, "%c", product(within, rows[0], "%n"))
        make(within, [a, "%b", c], within.emit(f"sub i64 {rows[1]}, {rows[0]}"), columns, on_diagonal)
        _copy(within, kind, columns, (below, rows[1]))

    def block(outer: Scope, number: str, state: list[str]) -> list[str]:
        first = product(outer, number, width)
        last = _next(outer, first, width)
        several = outer.emit(f"and i1 {outer.emit(f'icmp ne i64 {width}, {panel}')}, {outer.emit(f'icmp slt i64 {last}, %n')}")
        high = outer.emit(f"select i1 {several}, i64 {last}, i64 %n")

        def one(inner: Scope, at: str, state: list[str]) -> list[str]:
            end = _next(inner, at, panel)
            part(inner, (at, high), (at, end), end, True)
            return []

        def rest(inner: Scope) -> Carried:
            part(inner, (last, "%n"), (first, last), last, False)
            return ()
        loop(outer, first, last, panel, (), one)
        branch(outer, several, rest, lambda inner: ())
        return []
    loop(scope, "%begin", "%end", "1", (), block)


def _next(scope: Scope, at: str, step: str) -> str:
    """A step further on, but not past the last column."""
    return scope.call("i64", "llvm.smin.i64", [("i64", added(scope, at, step)), ("i64", "%n")])


def _mirror(scope: Scope, kind: str, corner: str, count: str) -> None:
    """What lies left of the diagonal of so many rows to its right, in lines %n apart."""
    def row(outer: Scope, i: str, state: list[str]) -> list[str]:
        def one(inner: Scope, j: str, state: list[str]) -> list[str]:
            source, to = (element(inner, kind, corner, added(inner, product(inner, x, "%n"), y)) for x, y in ((i, j), (j, i)))
            inner.do(f"store {kind} {inner.emit(f'load {kind}, ptr {source}')}, ptr {to}")
            return []
        loop(outer, "0", i, "1", (), one)
        return []
    loop(scope, "0", count, "1", (), row)


def _copy(scope: Scope, kind: str, columns: tuple[str, str], below: tuple[str, str]) -> None:
    """What some columns have in some rows, to their rows."""
    def rows(outer: Scope, low: str, state: list[str]) -> list[str]:
        high = outer.call("i64", "llvm.smin.i64", [("i64", added(outer, low, TOGETHER)), ("i64", below[1])])

        def column(inner: Scope, j: str, state: list[str]) -> list[str]:
            def one(within: Scope, i: str, state: list[str]) -> list[str]:
                source, to = (element(within, kind, "%c", added(within, product(within, x, "%n"), y))
                              for x, y in ((i, j), (j, i)))
                within.do(f"store {kind} {within.emit(f'load {kind}, ptr {source}')}, ptr {to}")
                return []
            loop(inner, low, high, "1", (), one)
            return []
        loop(outer, *columns, "1", (), column)
        return []
    loop(scope, *below, str(TOGETHER), (), rows)
