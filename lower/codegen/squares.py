"""Products of a matrix and its transpose (`x.T @ x`): what lies right of the diagonal is like what lies below it, which alone
is made, in blocks of columns from the diagonal down.

Guarantees: the result is symmetric to the last bit.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Scope, loop

LEAST = 96  # columns, half of which are worth it
MANY, PANELS = 640, 3  # from how many columns on so many panels are a block: the left side is copied for each
TOGETHER = 16  # rows below the diagonal that are copied to columns together
Chunks = Callable[[Scope, list[str], str, tuple[str, str]], None]  # places, rows, columns from and to


def width_of(scope: Scope, panel: int) -> str:
    """The columns of a block."""
    return scope.emit(f"select i1 {scope.emit(f'icmp sge i64 %n, {MANY}')}, i64 {PANELS * panel}, i64 {panel}")


def blocks_of(scope: Scope, panel: int) -> str:
    """How many blocks there are."""
    width = width_of(scope, panel)
    return scope.emit(f"udiv i64 {added(scope, '%n', scope.emit(f'sub i64 {width}, 1'))}, {width}")


def some_blocks(scope: Scope, kind: str, is_turned: bool, panel: int, chunks: Chunks) -> None:
    """Blocks from %begin to %end of C[n, n], of elements of a type; is_turned: the left side is stored transposed."""
    width = width_of(scope, panel)

    def block(outer: Scope, number: str, state: list[str]) -> list[str]:
        first = product(outer, number, width)
        last = outer.call("i64", "llvm.smin.i64", [("i64", added(outer, first, width)), ("i64", "%n")])
        a = element(outer, kind, "%a", first if is_turned else product(outer, first, "%k"))
        c = element(outer, kind, "%c", product(outer, first, "%n"))
        chunks(outer, [a, "%b", c], outer.emit(f"sub i64 %n, {first}"), (first, last))
        _copy(outer, kind, first, last)
        return []
    loop(scope, "%begin", "%end", "1", (), block)


def _copy(scope: Scope, kind: str, first: str, last: str) -> None:
    """What a block has below its columns, to their rows."""
    def rows(outer: Scope, low: str, state: list[str]) -> list[str]:
        high = outer.call("i64", "llvm.smin.i64", [("i64", added(outer, low, TOGETHER)), ("i64", "%n")])

        def column(inner: Scope, j: str, state: list[str]) -> list[str]:
            def one(within: Scope, i: str, state: list[str]) -> list[str]:
                source, to = (element(within, kind, "%c", added(within, product(within, x, "%n"), y))
                              for x, y in ((i, j), (j, i)))
                within.do(f"store {kind} {within.emit(f'load {kind}, ptr {source}')}, ptr {to}")
                return []
            loop(inner, low, high, "1", (), one)
            return []
        loop(outer, first, last, "1", (), column)
        return []
    loop(scope, last, "%n", str(TOGETHER), (), rows)
