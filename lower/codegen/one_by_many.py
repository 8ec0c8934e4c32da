"""Products of one matrix and each of many as text.

    void @lw_many_f32_n(i64 batch, i64 m, i64 n, i64 k, ptr a, ptr b, ptr c)         C[m, n] = A B for each B and C of a batch
    void @lw_many_f32_t(...), f64                                                    all contiguous; t: A is stored transposed

Columns are rows of one product. Narrow matrices are copied side by side, as many at a time as make panels of columns, and
multiplied as one; the results are taken apart again. Others are multiplied one by one, where they lie. A large left side that
is stored transposed is turned first.

Guarantees: nothing outside the matrices is read or written; which are multiplied together depends on the sizes alone.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type, vector_type
from loopwright.lower.codegen.small import WIDEST, element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.transposing import transposed
from loopwright.lower.target import Target

WIDE = 64  # rows and terms, with no fewer of which even matrices wider than a vector are worth a copy, if they fill half of one
LARGE, MANY = 1 << 10, 1 << 8  # elements of a left side and columns in all, from which on turning it is little
GROUPS = 8  # no fewer of which threads take whole: others share each product
TOGETHER = 4  # rows that are moved in each turn of a loop
GIVEN = "i64 %batch, i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %c"
Name = Callable[[tuple[bool, bool], str], str]  # of the function for a form of products, of a kind


def name_of(dtype: np.dtype, left: bool) -> str:
    """The function, where the left side is stored transposed, or not."""
    return f"lw_many_f{8 * dtype.itemsize}_{'nt'[left]}"


def one_by_many_text(dtype: np.dtype, target: Target, left: bool, product_name: Name, declarations: set[str],
                     constants: set[str]) -> str:
    """The function for one form, over those for one product and for each of many."""
    functions = [Function(declarations, constants) for _ in range(3)]
    return "\n".join([_Groups(dtype, target, left, product_name, functions[0]).text(),
                      _groups_of_pool(name_of(dtype, left), functions[1]),
                      _Whole(dtype, target, left, product_name, functions[2]).text()])


class _Whole:
    """The function for one form."""

    def __init__(self, dtype: np.dtype, target: Target, left: bool, product_name: Name, function: Function) -> None:
        self.dtype, self.lanes, self.left, self.function = dtype, target.lanes(dtype), left, function
        self.name, self.product_name = name_of(dtype, left), product_name

    def text(self) -> str:
        root = self.function.root
        branch(root, root.emit("icmp eq i64 %batch, 1"), self._one, self._not_one)
        return f"define void @{self.name}({GIVEN}) {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _one(self, scope: Scope) -> Carried:
        scope.do(f"call void @{self.product_name((self.left, False), 'product')}({GIVEN})")
        return ()

    def _not_one(self, scope: Scope) -> Carried:
        branch(scope, scope.emit("icmp eq i64 %n, 1"), self._columns, self._many if self.left else self._several)
        return ()

    def _columns(self, scope: Scope) -> Carried:
        rows = self.product_name((False, not self.left), "product")
        scope.do(f"call void @{rows}(i64 1, i64 %batch, i64 %m, i64 %k, ptr %b, ptr %a, ptr %c)")
        return ()

    def _many(self, scope: Scope) -> Carried:
        """By rows that lie along memory, where turning the left side is little."""
        tests = [(x, "sge", str(self.lanes)) for x in ("%m", "%k")]
        tests += [(product(scope, "%m", "%k"), "sge", str(LARGE)), (product(scope, "%batch", "%n"), "sge", str(MANY))]
        size = product(scope, "%m", "%k", str(self.dtype.itemsize))

        def acquired(inner: Scope) -> Carried:
            return [("ptr", inner.call("ptr", "lw_scratch_acquire", [("i64", size)]))]
        copy, = branch(scope, _all_of(scope, tests), acquired, otherwise=[("ptr", "null")])

        def turned(inner: Scope) -> Carried:
            inner.do(f"call void @{_turned_name(self.dtype)}(i64 %k, i64 %m, ptr %a, ptr {copy})")
            inner.do(f"call void @{name_of(self.dtype, False)}({GIVEN.replace('%a', copy)})")
            inner.run("lw_scratch_release", [("ptr", copy)])
            return ()
        branch(scope, scope.emit(f"icmp eq ptr {copy}, null"), self._several, turned)
        return ()

    def _several(self, scope: Scope) -> Carried:
        """In groups, or one by one."""
        some = [("%n", "sgt", "0"), ("%m", "sgt", "0"), ("%k", "sgt", "0")]
        narrow = _all_of(scope, [*some, ("%n", "sle", str(self.lanes))])
        half = _all_of(scope, [*some, ("%n", "sle", str(3 * self.lanes // 2)), *((x, "sge", str(WIDE)) for x in ("%m", "%k"))])
        branch(scope, narrow if self.left else scope.emit(f"or i1 {narrow}, {half}"), self._groups, self._each)
        return ()

    def _each(self, scope: Scope) -> Carried:
        scope.do(f"call void @{self.product_name((self.left, False), 'each')}({GIVEN})")
        return ()

    def _groups(self, scope: Scope) -> Carried:
        each = _matrices(scope, self.lanes)
        count = scope.emit(f"udiv i64 {added(scope, '%batch', scope.emit(f'sub i64 {each}, 1'))}, {each}")

        def in_turn(inner: Scope) -> Carried:
            inner.do(f"call void @{self.name}_groups({GIVEN}, i64 0, i64 {count})")
            return ()

        def by_pool(inner: Scope) -> Carried:
            context = self.function.slot(len(_given()), "i64", 8)
            for k, (kind, x) in enumerate(_given()):
                inner.do(f"store {kind} {x}, ptr {element(inner, 'i64', context, str(k))}")
            units = product(inner, each, "%m", "%n", "%k")
            inner.run("lw_loop", [("ptr", f"@{self.name}_groups_shared"), ("ptr", context), ("i64", count), ("i64", units),
                                  ("i64", "1"), ("i64", "1")])
            return ()
        branch(scope, scope.emit(f"icmp slt i64 {count}, {GROUPS}"), in_turn, by_pool)
        return ()


def _all_of(scope: Scope, tests: Sequence[tuple[str, str, str]]) -> str:
    found = "true"
    for x, relation, y in tests:
        found = scope.emit(f"and i1 {found}, {scope.emit(f'icmp {relation} i64 {x}, {y}')}")
    return found


def _given() -> list[list[str]]:
    return [text.split() for text in GIVEN.split(", ")]


# ---- groups -------------------------------------------------------------------------------------
def _matrices(scope: Scope, lanes: int) -> str:
    """How many matrices a group has."""
    wide = scope.emit(f"select i1 {scope.emit(f'icmp sle i64 %n, {lanes}')}, i64 {WIDEST * lanes}, i64 {2 * WIDEST * lanes}")
    return scope.emit(f"udiv i64 {wide}, %n")


def _groups_of_pool(name: str, function: Function) -> str:
    """What the pool calls: it finds the arguments in a block."""
    root = function.root
    found = [root.emit(f"load {kind}, ptr {element(root, 'i64', '%context', str(k))}") for k, (kind, _) in enumerate(_given())]
    listed = ", ".join(f"{kind} {x}" for (kind, _), x in zip(_given(), found, strict=True))
    root.do(f"call void @{name}_groups({listed}, i64 %begin, i64 %end)")
    return f"define internal void @{name}_groups_shared(ptr %context, i64 %begin, i64 %end) {ATTRIBUTES} {{\n" \
        f"{function.body()}\n  ret void\n}}"


class _Groups:
    """The function that makes some groups, for one form."""

    def __init__(self, dtype: np.dtype, target: Target, left: bool, product_name: Name, function: Function) -> None:
        self.dtype, self.name, self.function = dtype, name_of(dtype, left), function
        self.one, self.others = (product_name((left, False), kind) for kind in ("product", "each"))
        self.element, self.lanes, root = memory_type(dtype), target.lanes(dtype), function.root
        self.each = _matrices(root, self.lanes)
        self.columns = product(root, self.each, "%n")
        self.results = product(root, self.columns, "%m")

    def text(self) -> str:
        root = self.function.root
        size = product(root, added(root, self.results, product(root, self.columns, "%k")), str(self.dtype.itemsize))
        scratch = root.call("ptr", "lw_scratch_acquire", [("i64", size)])
        branch(root, root.emit(f"icmp eq ptr {scratch}, null"), self._apart, partial(self._together, scratch), rare=True)
        header = f"internal void @{self.name}_groups({GIVEN}, i64 %begin, i64 %end)"
        return f"define {header} {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _apart(self, scope: Scope) -> Carried:
        """One by one, where memory is short."""
        first, last = (product(scope, x, self.each) for x in ("%begin", "%end"))
        last = scope.call("i64", "llvm.smin.i64", [("i64", last), ("i64", "%batch")])
        scope.do(f"call void @{self.others}_some({GIVEN.partition(', ')[2]}, i64 {first}, i64 {last})")
        return ()

    def _together(self, scratch: str, scope: Scope) -> Carried:
        loop(scope, "%begin", "%end", "1", (), partial(self._group, scratch))
        scope.run("lw_scratch_release", [("ptr", scratch)])
        return ()

    def _group(self, scratch: str, scope: Scope, number: str, state: list[str]) -> list[str]:
        first = product(scope, number, self.each)
        left = scope.emit(f"sub i64 %batch, {first}")
        count = scope.call("i64", "llvm.smin.i64", [("i64", left), ("i64", self.each)])
        columns = product(scope, count, "%n")
        b, c = (element(scope, self.element, side, product(scope, first, x, "%n")) for side, x in (("%b", "%k"), ("%c", "%m")))
        right = element(scope, self.element, scratch, self.results)
        move_rows(scope, self.dtype, (count, "%k", "%n"), (b, "%n", product(scope, "%k", "%n")), (right, columns, "%n"))
        scope.do(f"call void @{self.one}(i64 1, i64 %m, i64 {columns}, i64 %k, ptr %a, ptr {right}, ptr {scratch})")
        move_rows(scope, self.dtype, (count, "%m", "%n"), (scratch, columns, "%n"), (c, "%n", product(scope, "%m", "%n")))
        return []


# ---- copies -------------------------------------------------------------------------------------
def _rows_name(dtype: np.dtype) -> str:
    return f"lw_rows_of_many_f{8 * dtype.itemsize}"


def copies_text(dtype: np.dtype, target: Target) -> str:
    """What copies, for all forms."""
    declarations, constants = set[str](), set[str]()
    texts = [made(dtype, target, Function(declarations, constants)) for made in (_rows_text, _turned_text)]
    return "\n".join([*sorted(declarations), *sorted(constants), *texts])


def move_rows(scope: Scope, dtype: np.dtype, sizes: tuple[str, str, str], source: tuple[str, str, str],
              target: tuple[str, str, str]) -> None:
    """Some matrices, of some rows of some numbers: from where they are, how far apart rows and matrices are there, to where."""
    given = [*(f"i64 {x}" for x in sizes), *(f"ptr {x}, i64 {row}, i64 {matrix}" for x, row, matrix in (source, target))]
    scope.do(f"call void @{_rows_name(dtype)}({', '.join(given)})")


def _turned_name(dtype: np.dtype) -> str:
    return f"lw_turned_f{8 * dtype.itemsize}"


def _turned_text(dtype: np.dtype, target: Target, function: Function) -> str:
    """`void @lw_turned_f32(i64 rows, i64 columns, ptr from, ptr to)`, or f64: a matrix transposed, of a square of vectors at
    least. The last squares are as far in as they have to be."""
    lanes, kind = target.lanes(dtype), memory_type(dtype)
    last = {x: function.root.emit(f"sub i64 %{x}, {lanes}") for x in ("rows", "columns")}

    def square(row: str, scope: Scope, at: str, state: list[str]) -> list[str]:
        column = scope.call("i64", "llvm.smin.i64", [("i64", at), ("i64", last["columns"])])
        first = element(scope, kind, "%from", added(scope, product(scope, row, "%columns"), column))
        to = element(scope, kind, "%to", added(scope, product(scope, column, "%rows"), row))
        lines = [element(scope, kind, first, product(scope, "%columns", str(k))) for k in range(lanes)]
        found = [load_first(scope, vector_type(kind, lanes), x, None) for x in lines]
        for k, x in enumerate(transposed(scope, vector_type(kind, lanes), found)):
            store_first(scope, vector_type(kind, lanes), x, element(scope, kind, to, product(scope, "%rows", str(k))), None)
        return []

    def squares(scope: Scope, at: str, state: list[str]) -> list[str]:
        row = scope.call("i64", "llvm.smin.i64", [("i64", at), ("i64", last["rows"])])
        loop(scope, "0", "%columns", str(lanes), (), partial(square, row))
        return []
    loop(function.root, "0", "%rows", str(lanes), (), squares)
    header = f"internal void @{_turned_name(dtype)}(i64 %rows, i64 %columns, ptr noalias %from, ptr noalias %to)"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _rows_text(dtype: np.dtype, target: Target, function: Function) -> str:
    """`void @lw_rows_of_many_f32(i64 count, i64 rows, i64 n, ptr from, i64 from.row, i64 from.matrix, ptr to, i64 to.row, i64
    to.matrix)`, or f64: rows of some matrices to where they are to lie."""
    _first_width(function.root, memory_type(dtype), [2 << x for x in range(target.lanes(dtype).bit_length() - 1)])
    header = f"internal void @{_rows_name(dtype)}(i64 %count, i64 %rows, i64 %n, ptr noalias %from, i64 %from.row, " \
        "i64 %from.matrix, ptr noalias %to, i64 %to.row, i64 %to.matrix) noinline"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _first_width(scope: Scope, kind: str, widths: Sequence[int]) -> None:
    """Rows as the narrowest vectors that hold one: most of wide ones would go past the end of a line."""
    width, *others = widths
    if not others:
        _all_rows(scope, kind, width, long=True)
        return

    def narrow(inner: Scope) -> Carried:
        _all_rows(inner, kind, width, long=False)
        return ()

    def wide(inner: Scope) -> Carried:
        _first_width(inner, kind, others)
        return ()
    branch(scope, scope.emit(f"icmp sle i64 %n, {width}"), narrow, wide)


def _all_rows(scope: Scope, kind: str, width: int, *, long: bool) -> None:
    """long: rows of any length, else of one vector."""
    vector, whole = vector_type(kind, width), scope.emit(f"and i64 %rows, {-TOGETHER}")
    last = scope.emit(f"and i64 {scope.emit('sub i64 %n, 1')}, {-width}") if long else "0"
    mask = first_lanes(scope, scope.emit(f"sub i64 %n, {last}"), width)

    def one(inner: Scope, x: str, y: str) -> None:
        def part(here: Scope, at: str, state: list[str]) -> list[str]:
            source, to = (element(here, kind, place, at) for place in (x, y))
            store_first(here, vector, load_first(here, vector, source, None), to, None)
            return []
        if long:
            loop(inner, "0", last, str(width), (), part)
            x, y = (element(inner, kind, place, last) for place in (x, y))
        store_first(inner, vector, load_first(inner, vector, x, mask), y, mask)

    def matrix(outer: Scope, at: str, state: list[str]) -> list[str]:
        first = [element(outer, kind, f"%{side}", product(outer, at, f"%{side}.matrix")) for side in ("from", "to")]

        def some(inner: Scope, row: str, state: list[str], count: int) -> list[str]:
            x, y = (element(inner, kind, base, product(inner, row, f"%{side}.row"))
                    for base, side in zip(first, ("from", "to"), strict=True))
            one(inner, x, y)
            for _ in range(1, count):
                x, y = (element(inner, kind, place, f"%{side}.row") for place, side in ((x, "from"), (y, "to")))
                one(inner, x, y)
            return []
        loop(outer, "0", whole, str(TOGETHER), (), partial(some, count=TOGETHER))
        loop(outer, whole, "%rows", "1", (), partial(some, count=1))
        return []
    loop(scope, "0", "%count", "1", (), matrix)
