"""Products of a batch, or one, shared out to threads: by matrices, by terms, by rows or by columns, as their sizes are.

Guarantees: what is little is made where it is; so are blocks and the library's products, which share themselves out, but
those of a batch of many, or that would be one part each.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from loopwright.lower.codegen import few_numbers, long_sums, small, squares
from loopwright.lower.codegen.interleaving import product
from loopwright.lower.codegen.library_products import LINES
from loopwright.lower.codegen.product_sizes import NOT_HUGE, Cases, Test
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Function, Scope, branch
from loopwright.lower.runtime.pool_text import THRESHOLD

if TYPE_CHECKING:
    from loopwright.lower.codegen.products import Product

LEAST_ROWS = 24  # that a thread takes
WIDE, HIGH = 192, 128  # columns that threads share out evenly; rows for which each of them may as well read all columns
TALL, BROAD = 1024, 256  # rows that threads share out as they lie, unless each has few columns of a side that is not turned
MATRICES, SHARED = 8, 1 << 18  # products with no more results, no fewer of which threads take whole
ONE_PART: list[Test] = [("m", "sle", LINES), ("n", "sle", LINES)]  # of what the library makes


class Whole:
    """All matrices of a batch, or all of one: by the pool, unless blocks or the library's products share themselves out."""

    def __init__(self, product: Product, function: Function, given: list[list[str]]) -> None:
        self.product, self.function, self.given = product, function, given

    def make(self) -> None:
        """The function: little is done where it is."""
        root = self.function.root
        if self.product.ways:
            work = product(root, "%batch", "%m", "%n", "%k")
            little = root.emit(f"icmp slt i64 {work}, {THRESHOLD}")

            def some(scope: Scope) -> Carried:
                branch(scope, little, self._alone, self._by_pool)
                return ()
            if self.product.kind == "product":
                branch(root, root.emit(f"icmp sle i64 {work}, {few_numbers.MOST}"), self._few, some)
            else:
                some(root)
        else:
            self._alone(root)

    def _alone(self, scope: Scope) -> Carried:
        scope.do(f"call void @{self.product.name}_some({', '.join(map(' '.join, self.given))}, i64 0, i64 %batch)")
        return ()

    def _few(self, scope: Scope) -> Carried:
        given = self.product.given_together("%batch", ("%a", "%b", "%c"))
        scope.do(f"call void @{few_numbers.name_of(self.product.dtype)}({given})")
        return ()

    def _by_pool(self, scope: Scope) -> Carried:
        if self.product.kind == "each":
            return self._several(scope)
        one = self._at_once if self.product.kind == "apart" else self._one
        branch(scope, scope.emit("icmp eq i64 %batch, 1"), one, self._several)
        return ()

    def _shared(self, scope: Scope, kind: str, count: str, work: Sequence[str], least: tuple[int, int] = (1, 1),
                by: str = "lw_loop") -> Carried:
        """Parts of one kind, by the pool; each as much work as a product of two sizes and the terms."""
        context = self.function.slot(len(self.given), "i64", 8)
        for k, (type, x) in enumerate(self.given):
            scope.do(f"store {type} {x}, ptr {element(scope, 'i64', context, str(k))}")
        units = product(scope, *work, "%k")
        scope.run(by, [("ptr", f"@{self.product.name}_{kind}_shared"), ("ptr", context), ("i64", count), ("i64", units),
                              *(("i64", str(x)) for x in least)])
        return ()

    def _several(self, scope: Scope) -> Carried:
        made = self.product
        own = self._is_one_of(scope, [*made.ways, *made.of_copies, *made.together])
        if made.in_blocks or made.has_huge:  # few large ones share themselves out
            cases: Cases = [[("batch", "sge", MATRICES), ("mn", "sle", SHARED)]]
            if made.has_huge:
                cases = [[*case, NOT_HUGE] for case in (*cases, ONE_PART)]
            own = scope.emit(f"or i1 {own}, {made.holds(scope, cases)}")
        if made.may_square:  # what is made by half is made where it is
            own = scope.emit(f"or i1 {own}, {made.is_square(scope)}")
        branch(scope, own, partial(self._shared, kind="some", count="%batch", work=("%m", "%n")), self._alone)
        return ()

    def _one(self, scope: Scope) -> Carried:
        def by_terms(inner: Scope) -> Carried:
            return [("i1", inner.emit(f"call i1 @{self.product.name}_long({self.product.given})"))]
        has_parts = self.product.holds(scope, long_sums.tests(self.product.form))
        if self.product.may_square and (halved := squares.by_library(self.product, scope)) is not None:
            halved = scope.emit(f"and i1 {halved}, {self.product.is_square(scope)}")
            has_parts = scope.emit(f"and i1 {has_parts}, {scope.emit(f'xor i1 {halved}, true')}")
        done, = branch(scope, has_parts, by_terms, otherwise=[("i1", "false")])
        branch(scope, scope.emit(f"xor i1 {done}, true"), self._at_once)
        return ()

    def _at_once(self, scope: Scope) -> Carried:
        if (in_tiles := self.product.by_tiles(scope)) is not None:  # blocks share themselves out
            branch(scope, in_tiles, self._alone, self._by_ways)
            return ()
        return self._by_ways(scope)

    def _by_ways(self, scope: Scope) -> Carried:
        if not self.product.may_square:
            return self._unlike(scope)

        def square(inner: Scope) -> Carried:
            panel = squares.panel_of(self.product, inner)
            half = inner.emit(f"udiv i64 {squares.width_of(inner, panel)}, 2")
            return self._shared(inner, "square", squares.blocks_of(inner, panel), ("%n", half))
        branch(scope, self.product.is_square(scope), square, self._unlike)
        return ()

    def _unlike(self, scope: Scope) -> Carried:
        """By columns, where the last way is taken, which copies chunks of them; by rows where these are many, which takes less
        where results are larger than caches, or another way is taken."""
        made, panel = self.product, self.product.panel
        count = scope.emit(f"udiv i64 {scope.emit(f'add i64 %n, {panel - 1}')}, {panel}")
        *before, in_chunks = [made.holds(scope, cases) for cases, _ in made.ways]
        for x in before:
            in_chunks = scope.emit(f"and i1 {in_chunks}, {scope.emit(f'xor i1 {x}, true')}")
        several = scope.emit(f"icmp sgt i64 {count}, 1")
        wide, low = scope.emit(f"icmp sge i64 %n, {WIDE}"), scope.emit(f"icmp slt i64 %m, {HIGH}")
        by_columns = scope.emit(f"and i1 {scope.emit(f'and i1 {in_chunks}, {several}')}, {scope.emit(f'or i1 {wide}, {low}')}")
        flat = scope.emit(f"icmp slt i64 %m, {TALL}")
        if not made.form[1]:
            flat = scope.emit(f"or i1 {flat}, {scope.emit(f'icmp sle i64 %n, {BROAD}')}")
        by_columns = scope.emit(f"and i1 {by_columns}, {flat}")

        columns = partial(self._shared, kind="columns", count=count, work=("%m", str(panel)))
        rows = partial(self._shared, kind="rows", count="%m", work=("%n",), least=(LEAST_ROWS, small.HIGHEST))

        def some(inner: Scope) -> Carried:
            branch(inner, self._is_one_of(inner, made.ways), rows, self._alone)
            return ()

        def by_rows(inner: Scope) -> Carried:
            branch(inner, in_chunks, partial(rows, by="lw_wide_loop"), some)
            return ()

        def others(inner: Scope) -> Carried:
            branch(inner, by_columns, columns, by_rows)
            return ()

        def turned(inner: Scope) -> Carried:
            return self._in_shares(inner, "turned", rows, others)
        return self._in_shares(scope, "in_order", columns, turned)

    def _in_shares(self, scope: Scope, code: str, parts: Callable[..., Carried], others: Callable[[Scope], Carried]) -> Carried:
        """Parts, one for each thread, where this way is taken: it reads far along memory, or begins with a copy."""
        if (test := self.product.way(scope, code)) is None:
            return others(scope)
        branch(scope, test, partial(parts, by="lw_wide_loop"), others)
        return ()

    def _is_one_of(self, scope: Scope, ways: Sequence[tuple[Cases, str]]) -> str:
        own = "false"
        for cases, _ in ways:
            own = scope.emit(f"or i1 {own}, {self.product.holds(scope, cases)}")
        return own
