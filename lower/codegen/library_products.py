"""Products that the library makes, on one thread of its own: the pool shares them out, by rows or columns of the result.

    void @lw_shared_gemm_f32(i32 ta, i32 tb, i64 m, i64 n, i64 k, ptr a, i64 lda, ptr b, i64 ldb, ptr c, i64 ldc), f64
                                                                what `lw_gemm_f32` says (runtime/blas.py)

A library's own threads spin for a while when they are done, which our threads wait for, and how many they are decides bits.

Guarantees: the parts of a product depend on its sizes alone.
"""
from __future__ import annotations

import numpy as np

from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Function, Scope, branch

LEAST = 1 << 19  # multiplications that are worth several threads
LEAST_OF_VECTOR = 1 << 18  # of a matrix times a vector, each of which reads a number
LINES = 256  # of a part: the library copies all of the other side for each
PARTS = 64  # at most
VECTOR = 1 << 16  # elements of a matrix times a vector, which copies nothing
STRETCH, STRETCHES = 256, 4  # neighbouring elements of its rows at least, and parts at most, where it is read across
TOGETHER = 16  # rows or columns of a part are a multiple of these
GIVEN = "i32 %ta, i32 %tb, i64 %m, i64 %n, i64 %k, ptr %a, i64 %lda, ptr %b, i64 %ldb, ptr %c, i64 %ldc"


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_shared_gemm_f{8 * dtype.itemsize}"


def library_products_text(dtype: np.dtype, declarations: set[str], constants: set[str]) -> str:
    """The function, and what the pool calls of it."""
    kind, name, gemm = memory_type(dtype), name_of(dtype), f"lw_gemm_f{8 * dtype.itemsize}"
    given = [text.split() for text in GIVEN.split(", ")]
    whole, part = (Function(declarations, constants) for _ in range(2))
    root = whole.root

    def call(scope: Scope, values: dict[str, str]) -> None:
        scope.run(gemm, [*((type, values.get(x, x)) for type, x in given), ("i32", "1")])

    def alone(scope: Scope) -> Carried:
        call(scope, {})
        return ()

    def shared(scope: Scope) -> Carried:
        def pick(condition: str, yes: str, no: str) -> str:
            return scope.emit(f"select i1 {condition}, i64 {yes}, i64 {no}")
        by_rows, turned = scope.emit("icmp sge i64 %m, %n"), [scope.emit(f"icmp ne i32 %{side}, 0") for side in ("ta", "tb")]
        lies_along = scope.emit(f"select i1 {by_rows}, i1 {turned[0]}, i1 {scope.emit(f'xor i1 {turned[1]}, true')}")
        steps = (pick(by_rows, pick(turned[0], "1", "%lda"), "0"), pick(by_rows, "0", pick(turned[1], "%ldb", "1")),
                 pick(by_rows, "%ldc", "1"))
        count, others = pick(by_rows, "%m", "%n"), pick(by_rows, "%n", "%m")
        is_vector = scope.emit(f"icmp eq i64 {others}, 1")
        enough = added(scope, scope.emit(f"udiv i64 {VECTOR}, %k"), 1)
        least = pick(is_vector, pick(lies_along, str(STRETCH), enough), str(LINES))
        most = pick(scope.emit(f"and i1 {is_vector}, {lies_along}"), str(STRETCHES), str(PARTS))
        worth = scope.emit(f"udiv i64 {added(scope, count, scope.emit(f'sub i64 {least}, 1'))}, {least}")
        parts = scope.call("i64", "llvm.smin.i64", [("i64", worth), ("i64", most)])
        even = scope.emit(f"udiv i64 {added(scope, count, scope.emit(f'sub i64 {parts}, 1'))}, {parts}")
        grain = scope.emit(f"and i64 {added(scope, even, TOGETHER - 1)}, {-TOGETHER}")
        rows = scope.emit(f"zext i1 {by_rows} to i64")
        context = whole.slot(len(given) + 4, "i64", 8)
        for k, (type, x) in enumerate([*given, *(("i64", x) for x in (*steps, rows))]):
            scope.do(f"store {type} {x}, ptr {element(scope, 'i64', context, str(k))}")
        scope.run("lw_parallel_for", [("ptr", f"@{name}_part"), ("ptr", context), ("i64", count), ("i64", grain)])
        return ()
    one = root.emit(f"icmp eq i64 {root.call('i64', 'llvm.smin.i64', [('i64', '%m'), ('i64', '%n')])}, 1")
    least = root.emit(f"select i1 {one}, i64 {LEAST_OF_VECTOR}, i64 {LEAST}")
    branch(root, root.emit(f"icmp slt i64 {product(root, '%m', '%n', '%k')}, {least}"), alone, shared)

    inner = part.root
    types = [*given, *(("i64", x) for x in ("a.step", "b.step", "c.step", "rows"))]
    found = {x: inner.emit(f"load {type}, ptr {element(inner, 'i64', '%context', str(k))}")
             for k, (type, x) in enumerate(types)}
    length, by_rows = inner.emit("sub i64 %end, %begin"), inner.emit(f"icmp ne i64 {found['rows']}, 0")
    found["%m"] = inner.emit(f"select i1 {by_rows}, i64 {length}, i64 {found['%m']}")
    found["%n"] = inner.emit(f"select i1 {by_rows}, i64 {found['%n']}, i64 {length}")
    for side in "abc":
        found[f"%{side}"] = element(inner, kind, found[f"%{side}"], inner.emit(f"mul i64 %begin, {found[f'{side}.step']}"))
    call(inner, found)
    texts = (f"{name}_part(ptr %context, i64 %begin, i64 %end)", part), (f"{name}({GIVEN})", whole)
    return "\n".join(f"define internal void @{header} {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}" for header, f in texts)
