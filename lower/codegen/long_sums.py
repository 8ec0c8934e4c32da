"""Products of many terms and few results (updates of small weights by large batches, `x.T @ x` of a table): parts of the terms
make results of their own, which the pool shares out like the matrices of a batch; then these are added up.

    i1 @lw_product_f32_nn_long(i64 m, i64 n, i64 k, ptr a, ptr b, ptr c)      false, and nothing is done, where memory is short

Guarantees: the parts depend on the sizes alone.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type, vector_type
from loopwright.lower.codegen.product_sizes import Cases, Test
from loopwright.lower.codegen.small import element, load_first, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop

FEWEST = 512  # terms of a part
FEW = 1 << 10  # results, of no more than which there may be many parts: theirs of the right side soon lie in the first cache
PARTS = {True: 256, False: 16}  # at most, and what is left: of few results, and of more
LONG = 3 * FEWEST  # terms that are enough for parts
RESULTS = 1 << 17  # at most
MOST = 320  # rows and columns, with more of which these are shared out
TOGETHER = 8  # terms of a part are a multiple of these
VECTOR = 1024  # of one row or column
WORK = 3 << 19  # multiplications that are worth several threads
GIVEN = "i64 %m, i64 %n, i64 %k, ptr %a, ptr %b, ptr %c"


def tests(form: tuple[bool, bool]) -> Cases:
    """Cases of tests of a product's sizes, one of which holds where it is made so. The terms of one column lie across the left
    side's rows then: rows along which they lie are shared out as they are."""
    both: list[Test] = [("k", "sge", LONG), ("mn", "sle", RESULTS), ("mnk", "sge", WORK)]
    column: Cases = [[*both, ("m", "sle", VECTOR), ("n", "eq", 1)]] if form[0] else []
    return [[*both, ("m", "sle", MOST), ("n", "sle", MOST), ("m", "sgt", 1), ("n", "sgt", 1)], *column]


def long_sums_text(dtype: np.dtype, lanes: int, form: tuple[bool, bool], name: str, apart: str, declarations: set[str],
                   constants: set[str]) -> str:
    """The function for one form over `name`, which multiplies contiguous matrices, and `apart`, which multiplies others."""
    function, kind = Function(declarations, constants), memory_type(dtype)
    root = function.root
    size = product(root, "%m", "%n")
    most = root.emit(f"select i1 {root.emit(f'icmp sle i64 {size}, {FEW}')}, i64 {PARTS[True]}, i64 {PARTS[False]}")
    worth = root.call("i64", "llvm.smin.i64", [("i64", root.emit(f"udiv i64 %k, {FEWEST}")), ("i64", most)])
    zeros = root.call("i64", "llvm.ctlz.i64", [("i64", worth), ("i1", "true")])
    parts = root.emit(f"shl i64 1, {root.emit(f'sub i64 63, {zeros}')}")  # a power of 2, for threads of as equal work
    terms = root.emit(f"and i64 {root.emit(f'udiv i64 %k, {parts}')}, {-TOGETHER}")
    done = product(root, parts, terms)
    rest = root.emit(f"sub i64 %k, {done}")
    steps = [terms if along else product(root, terms, other) for along, other in ((not form[0], "%m"), (form[1], "%n"))]
    copy = root.call("ptr", "lw_scratch_acquire", [("i64", product(root, added(root, parts, 1), size, str(dtype.itemsize)))])

    def multiply(scope: Scope, count: str, length: str, places: tuple[str, str, str]) -> None:
        given = f"i64 {count}, i64 %m, i64 %n, i64 {length}, " + ", ".join(f"ptr {x}" for x in places)
        if form == (True, False):  # parts of both sides are matrices of a batch
            scope.do(f"call void @{name}({given})")
            return
        lines = "%m" if form[0] else "%k", "%k" if form[1] else "%n"
        away = [*lines, "0", "0", *steps, count]
        scope.do(f"call void @{apart}({given}, {', '.join(f'i64 {x}' for x in away)})")

    def summed(scope: Scope, count: str) -> None:
        def at(width: int, inner: Scope, place: str, state: list[str]) -> list[str]:
            whole = vector_type(kind, width)

            def add(within: Scope, part: str, now: list[str]) -> list[str]:
                there = element(within, kind, copy, added(within, product(within, part, size), place))
                return [within.emit(f"fadd {whole} {now[0]}, {load_first(within, whole, there, None)}")]
            first = load_first(inner, whole, element(inner, kind, copy, place), None)
            total, = loop(inner, "1", count, "1", [(whole, first)], add)
            store_first(inner, whole, total, element(inner, kind, "%c", place), None)
            return []
        full = scope.emit(f"and i64 {size}, {-lanes}")
        loop(scope, "0", full, str(lanes), (), partial(at, lanes))
        loop(scope, full, size, "1", (), partial(at, 1))

    def make(scope: Scope) -> Carried:
        multiply(scope, parts, terms, ("%a", "%b", copy))

        def last(inner: Scope) -> Carried:
            sides = zip(("%a", "%b"), steps, strict=True)
            a, b = (element(inner, kind, side, product(inner, parts, step)) for side, step in sides)
            multiply(inner, "1", rest, (a, b, element(inner, kind, copy, product(inner, parts, size))))
            return [("i64", added(inner, parts, 1))]
        count, = branch(scope, scope.emit(f"icmp sgt i64 {rest}, 0"), last, otherwise=[("i64", parts)])
        summed(scope, count)
        scope.run("lw_scratch_release", [("ptr", copy)])
        return ()
    made = root.emit(f"icmp ne ptr {copy}, null")
    branch(root, made, make)
    return f"define internal i1 @{name}_long({GIVEN}) {ATTRIBUTES} {{\n{function.body()}\n  ret i1 {made}\n}}"
