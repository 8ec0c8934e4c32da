"""Rows of memory transposed to a block of vectors, and back, as text:

    void @lw_columns_of_rows_4x16(ptr rows, i64 step, i64 count, i64 n, ptr columns)     for 16 lanes of 4 bytes
    void @lw_rows_of_columns_4x16(...)

`count` rows of n elements, `step` elements apart. columns[e * lanes + r] is element e of row r; there is room for n elements
rounded up to lanes, and for all lanes, though there may be fewer rows. What the next block's rows have there is asked for:
pieces of sixteen rows are no order that a processor follows by itself.

Guarantees: of rows nothing is touched but their elements; lanes without a row get some row's elements, or zeros.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopwright.lower.codegen.context import counting, splat_register
from loopwright.lower.codegen.machine import ATTRIBUTES, suffix, vector_type
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.transposing import transposed
from loopwright.lower.target import Target

WAYS = ("columns_of_rows", "rows_of_columns")
SIZES = tuple((size, lanes) for size in (4, 8) for lanes in (4, 8, 16) if size * lanes <= 64)
FEWEST = 4  # elements of a row, of a register's 16, up to which columns are gathered one by one
PAIRED = 16  # lanes, of which half are a vector of their own
NARROW = {True: range(1, 7), False: range(1, 5)}  # elements of rows that lie side by side, which are as many vectors as they
# have elements: where an instruction takes its lanes from two registers, and elsewhere


def name_of(way: str, size: int, lanes: int) -> str:
    """The function for so many lanes of elements of `size` bytes."""
    return f"lw_{way}_{size}x{lanes}"


def transposes_text(target: Target) -> str:
    """All of these functions whose vectors fit a register."""
    declarations: set[str] = set()
    texts = [_Transpose(size, lanes, target.has_masks, declarations).text(way) for size, lanes in SIZES
             if 8 * size * lanes <= target.vector_bits for way in WAYS]
    return "\n".join([*sorted(declarations), *texts])


class _Transpose:
    def __init__(self, size: int, lanes: int, has_masks: bool, declarations: set[str]) -> None:
        self.size, self.lanes, self.has_masks = size, lanes, has_masks
        self.element = f"i{8 * size}"
        self.kind, self.mask = vector_type(self.element, lanes), vector_type("i1", lanes)
        self.function = Function(declarations, set())

    def text(self, way: str) -> str:
        root, back = self.function.root, way == WAYS[1]
        ways: list[tuple[str, Callable[[Scope], None]]] = [("true", partial(self._tiles, back=back))]
        if self.lanes == PAIRED:
            ways.append((root.emit(f"icmp sle i64 %n, {self.lanes // 2}"), partial(self._in_pairs, back=back)))
        ways.append((root.emit(f"icmp sle i64 %n, {self.lanes * FEWEST // 16}"), partial(self._one_by_one, back=back)))
        dense = root.emit("icmp eq i64 %step, %n")
        ways += [(root.emit(f"and i1 {dense}, {root.emit(f'icmp eq i64 %n, {n}')}"), partial(self._narrow, n=n, back=back))
                 for n in NARROW[self.has_masks]]
        self._first_of(root, ways)
        header = f"void @{name_of(way, self.size, self.lanes)}(ptr %rows, i64 %step, i64 %count, i64 %n, ptr %columns)"
        self.function, done = Function(root.function.declarations, set()), self.function
        return f"define {header} {ATTRIBUTES} {{\n{done.body()}\n  ret void\n}}"

    def _first_of(self, scope: Scope, ways: Sequence[tuple[str, Callable[[Scope], None]]]) -> None:
        """The last way whose condition holds; the first one's does."""
        *others, (condition, way) = ways

        def chosen(inside: Scope) -> Carried:
            way(inside)
            return ()

        def next_one(inside: Scope) -> Carried:
            self._first_of(inside, others)
            return ()
        if others:
            branch(scope, condition, chosen, next_one)
        else:
            way(scope)

    def _tiles(self, scope: Scope, back: bool) -> None:
        loop(scope, "0", "%n", str(self.lanes), (), self._rows_of if back else self._columns_of)

    def _narrow(self, scope: Scope, n: int, back: bool) -> None:
        """Rows of n elements, one right behind the other: n vectors in memory, of which the columns are woven."""
        rows = scope.call("i64", "llvm.smin.i64", [("i64", "%count"), ("i64", str(self.lanes))])
        total = scope.emit(f"trunc i64 {scope.emit(f'mul i64 {rows}, {n}')} to i32")
        words, ends = vector_type("i32", self.lanes), [("i32", str(self.size))]
        limit = splat_register(scope, "i32", total, self.lanes)
        places = [scope.emit(f"getelementptr {self.element}, ptr %rows, i64 {k * self.lanes}") for k in range(n)]
        masks = [scope.emit(f"icmp slt {words} {counting(k * self.lanes, self.lanes, 'i32')}, {limit}") for k in range(n)]
        for place in places:
            self._ask(scope, place, write=back)
        if back:
            columns = [self._load(scope, self._column(scope, "0", k)) for k in range(n)]
            for k, (place, mask) in enumerate(zip(places, masks, strict=True)):
                order = [divmod(k * self.lanes + at, n)[::-1] for at in range(self.lanes)]
                scope.run(f"llvm.masked.store.{suffix(self.kind)}.p0", [
                    (self.kind, self._woven(scope, columns, order)), ("ptr", place), *ends, (self.mask, mask)])
        else:
            vectors = [scope.call(self.kind, f"llvm.masked.load.{suffix(self.kind)}.p0", [
                ("ptr", place), *ends, (self.mask, mask), (self.kind, "zeroinitializer")])
                for place, mask in zip(places, masks, strict=True)]
            for k in range(n):
                order = [divmod(row * n + k, self.lanes) for row in range(self.lanes)]
                self._store(scope, self._woven(scope, vectors, order), self._column(scope, "0", k))

    def _woven(self, scope: Scope, vectors: Sequence[str], order: Sequence[tuple[int, int]]) -> str:
        """A vector of elements of others: of which, and which."""
        found = vectors[0]
        for k, vector in enumerate(vectors[1:], 1):
            places = [at + self.lanes if which == k else at if which == 0 and k == 1 else lane
                      for lane, (which, at) in enumerate(order)]
            text = ", ".join(f"i32 {x}" for x in places)
            found = scope.emit(f"shufflevector {self.kind} {found}, {self.kind} {vector}, <{self.lanes} x i32> <{text}>")
        return found

    def _one_by_one(self, scope: Scope, back: bool) -> None:
        """Elements of all rows, one after the other."""
        wide, many = vector_type("i64", self.lanes), vector_type("ptr", self.lanes)
        steps = scope.emit(f"mul {wide} {splat_register(scope, 'i64', '%step', self.lanes)}, {counting(0, self.lanes)}")
        there = scope.emit(f"icmp slt {wide} {counting(0, self.lanes)}, {splat_register(scope, 'i64', '%count', self.lanes)}")

        def one(inner: Scope, at: str, state: list[str]) -> list[str]:
            first = inner.emit(f"getelementptr {self.element}, ptr %rows, i64 {at}")
            places = inner.emit(f"getelementptr {self.element}, ptr {first}, {wide} {steps}")
            column, end = self._column(inner, at), [("i32", str(self.size)), (self.mask, there)]
            if back:
                inner.run(f"llvm.masked.scatter.{suffix(self.kind)}.{suffix(many)}",
                          [(self.kind, self._load(inner, column)), (many, places), *end])
            else:
                found = inner.call(self.kind, f"llvm.masked.gather.{suffix(self.kind)}.{suffix(many)}",
                                   [(many, places), *end, (self.kind, "zeroinitializer")])
                self._store(inner, found, column)
            return []
        loop(scope, "0", "%n", "1", (), one)

    def _in_pairs(self, scope: Scope, back: bool) -> None:
        """Rows that fill half a register at most: two in each."""
        half, number = self.lanes // 2, self.lanes // 2
        kind, mask = vector_type(self.element, half), vector_type("i1", half)
        wide = vector_type("i64", half)
        there = scope.emit(f"icmp slt {wide} {counting(0, half)}, {splat_register(scope, 'i64', '%n', half)}")
        align = ("i32", str(self.size))
        if back:
            columns = [self._load(scope, self._column(scope, "0", k)) for k in range(half)]
            for k, pair in enumerate(transposed(scope, self.kind, columns)):
                for row, start in ((k, 0), (k + number, half)):
                    self._ask(scope, self._row(scope, str(row), "0"), write=True)
                    order = ", ".join(f"i32 {start + x}" for x in range(half))
                    one = scope.emit(f"shufflevector {self.kind} {pair}, {self.kind} poison, <{half} x i32> <{order}>")
                    is_there = splat_register(scope, "i1", scope.emit(f"icmp slt i64 {row}, %count"), half)
                    scope.run(f"llvm.masked.store.{suffix(kind)}.p0", [
                        (kind, one), ("ptr", self._row(scope, str(row), "0")), align,
                        (mask, scope.emit(f"and {mask} {there}, {is_there}"))])
            return
        last, pairs = scope.emit("sub i64 %count, 1"), []
        both = ", ".join(f"i32 {x}" for x in range(self.lanes))
        for k in range(half):
            rows = [self._row(scope, scope.call("i64", "llvm.smin.i64", [("i64", str(row)), ("i64", last)]), "0")
                    for row in (k, k + number)]
            for place in rows:
                self._ask(scope, place, write=False)
            low, high = (scope.call(kind, f"llvm.masked.load.{suffix(kind)}.p0", [
                ("ptr", place), align, (mask, there), (kind, "zeroinitializer")]) for place in rows)
            pairs.append(scope.emit(f"shufflevector {kind} {low}, {kind} {high}, <{self.lanes} x i32> <{both}>"))
        for k, register in enumerate(transposed(scope, self.kind, pairs)):
            self._store(scope, register, self._column(scope, "0", k))

    def _columns_of(self, scope: Scope, at: str, state: list[str]) -> list[str]:
        """A tile; the last row is in the place of those behind it."""
        mask, place, found = self._there(scope, at), self._row(scope, "0", at), []
        for k in range(self.lanes):
            self._ask(scope, place, write=False)
            found.append(scope.call(self.kind, f"llvm.masked.load.{suffix(self.kind)}.p0", [
                ("ptr", place), ("i32", str(self.size)), (self.mask, mask), (self.kind, "zeroinitializer")]))
            more = scope.emit(f"select i1 {scope.emit(f'icmp sgt i64 %count, {k + 1}')}, i64 %step, i64 0")
            place = scope.emit(f"getelementptr {self.element}, ptr {place}, i64 {more}")
        for k, register in enumerate(transposed(scope, self.kind, found)):
            self._store(scope, register, self._column(scope, at, k))
        return []

    def _rows_of(self, scope: Scope, at: str, state: list[str]) -> list[str]:
        """A tile, of rows that are there."""
        mask = self._there(scope, at)
        found = transposed(scope, self.kind, [self._load(scope, self._column(scope, at, k)) for k in range(self.lanes)])

        def store(inner: Scope, k: int) -> Carried:
            inner.run(f"llvm.masked.store.{suffix(self.kind)}.p0", [
                (self.kind, found[k]), ("ptr", self._row(inner, str(k), at)), ("i32", str(self.size)), (self.mask, mask)])
            return ()

        def square(inner: Scope) -> Carried:
            for k in range(self.lanes):
                inner.do(f"store {self.kind} {found[k]}, ptr {self._row(inner, str(k), at)}, align {self.size}")
            return ()

        def cut(inner: Scope) -> Carried:
            for k in range(self.lanes):
                store(inner, k)
            return ()

        def whole(inner: Scope) -> Carried:
            for k in range(self.lanes):
                self._ask(inner, self._row(inner, str(k), at), write=True)
            if self.has_masks:
                return cut(inner)
            end = inner.emit(f"add i64 {at}, {self.lanes}")
            branch(inner, inner.emit(f"icmp sle i64 {end}, %n"), square, cut)
            return ()

        def some(inner: Scope) -> Carried:
            for k in range(self.lanes):
                branch(inner, inner.emit(f"icmp slt i64 {k}, %count"), partial(store, k=k))
            return ()
        branch(scope, scope.emit(f"icmp sge i64 %count, {self.lanes}"), whole, some)
        return []

    def _ask(self, scope: Scope, place: str, *, write: bool) -> None:
        """Bring the same place of the next block's rows near. Changes no value, wherever that is."""
        ahead = scope.emit(f"mul i64 %step, {self.lanes}")
        line = scope.emit(f"getelementptr {self.element}, ptr {place}, i64 {ahead}")
        scope.run("llvm.prefetch.p0", [("ptr", line), ("i32", str(int(write))), ("i32", "3"), ("i32", "1")])

    def _there(self, scope: Scope, at: str) -> str:
        """Which elements from one on rows have."""
        left = scope.emit(f"sub i64 %n, {at}")
        wide = vector_type("i64", self.lanes)
        return scope.emit(f"icmp slt {wide} {counting(0, self.lanes)}, {splat_register(scope, 'i64', left, self.lanes)}")

    def _row(self, scope: Scope, row: str, at: str) -> str:
        offset = scope.emit(f"add i64 {scope.emit(f'mul i64 {row}, %step')}, {at}")
        return scope.emit(f"getelementptr {self.element}, ptr %rows, i64 {offset}")

    def _column(self, scope: Scope, at: str, further: int = 0) -> str:
        offset = scope.emit(f"mul i64 {scope.emit(f'add i64 {at}, {further}')}, {self.lanes}")
        return scope.emit(f"getelementptr {self.element}, ptr %columns, i64 {offset}")

    def _load(self, scope: Scope, place: str) -> str:
        return scope.emit(f"load {self.kind}, ptr {place}, align {self.size}")

    def _store(self, scope: Scope, register: str, place: str) -> None:
        scope.do(f"store {self.kind} {register}, ptr {place}, align {self.size}")
