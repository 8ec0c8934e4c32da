"""Linear algebra of all matrices of a batch as text, shared by the pool.

    i64 @lw_solve_f32_batch(i64 count, ptr a, ptr b, ptr out, i64 n, i64 m)                     and so for all of OPERATIONS and
    i64 @lw_slogdet_f32_batch(i64 count, ptr a, ptr sign, ptr log, i64 n)                       f64: for count matrices what
    ...                                                                                         `@lw_solve_f32` etc. do

Small matrices that are not few are worked on in lanes, where there is code for it, and others by LAPACK, one by one: those
that are not large by several threads, for large ones LAPACK has threads of its own.

Guarantees: the answer is 0, or LAPACK's for one of the matrices, or -1 where memory is short.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.interleaving import Lanes, added, product
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop, repeat

LARGEST = 48, 12  # rows of matrices in lanes, and of these for each lane
MOST = 2 * 48 * 48  # numbers of a matrix and its right sides: vectors of so many lie in the second cache


Block = Callable[[Lanes, Scope, Sequence[str], str, str], str]


@dataclass(frozen=True)
class Operation:
    """How it works on a block, if in lanes. (matrices, count, scratch) give the bits of lanes that are for LAPACK."""

    name: str
    sizes: tuple[str, ...]  # of its operands and results, as products: nm is n * m; l, u and v: see `_shared`
    numbers: tuple[str, ...]  # that it is given
    block: Block | None = None
    rows: int = 0  # that matrices may have for each that there is: of fewer larger ones LAPACK is sooner done


def batch_text(lanes: Lanes, operation: Operation) -> str:
    """The function of one operation, and those that it gives to the pool."""
    texts = [_matrices(lanes, operation), _batch(lanes, operation)]
    return "\n".join([_blocks(lanes, operation, operation.block), *texts] if operation.block else texts)


def _parameters(operation: Operation) -> list[tuple[str, str]]:
    return [*(("ptr", f"%p{k}") for k in range(len(operation.sizes))), *(("i64", f"%{x}") for x in operation.numbers)]


def _size(scope: Scope, factors: str) -> str:
    return product(scope, *(f"%{x}" for x in factors)) if factors else "1"


def _one(lanes: Lanes, operation: Operation, scope: Scope, number: str) -> None:
    """LAPACK's answer for one matrix, kept where it is a failure."""
    given = [("ptr", element(scope, lanes.number, f"%p{k}", product(scope, number, _size(scope, factors))))
             for k, factors in enumerate(operation.sizes)]
    answer = scope.call("i64", f"lw_{operation.name}_{lanes.suffix}", [*given, *(("i64", f"%{x}") for x in operation.numbers)])

    def keep(inner: Scope) -> Carried:
        inner.do(f"store atomic i64 {answer}, ptr %status monotonic, align 8")
        return ()
    branch(scope, scope.emit(f"icmp ne i64 {answer}, 0"), keep, rare=True)


def _shared(lanes: Lanes, operation: Operation, kind: str) -> tuple[Function, str]:
    """A function that the pool calls with some of the matrices: it finds the others' arguments in a block."""
    function = lanes.function()
    given = [*_parameters(operation), ("ptr", "%status")]
    places = [f"  {name}.at = getelementptr i64, ptr %context, i64 {k}" for k, (_, name) in enumerate(given)]
    function.root.lines += [*places, *(f"  {name} = load {kind}, ptr {name}.at" for kind, name in given)]
    if "full" in operation.numbers:
        lanes.declarations.add("declare i64 @llvm.smin.i64(i64, i64)")
        function.root.lines += ["  %l = call i64 @llvm.smin.i64(i64 %m, i64 %n)", "  %is.full = icmp ne i64 %full, 0",
                                *(f"  %{x} = select i1 %is.full, i64 %{y}, i64 %l" for x, y in ("um", "vn"))]
    return function, f"void @lw_{operation.name}_{lanes.suffix}_{kind}(ptr %context, i64 %begin, i64 %end)"


def _matrices(lanes: Lanes, operation: Operation) -> str:
    """Each by LAPACK."""
    function, header = _shared(lanes, operation, "matrices")

    def one(scope: Scope, number: str, state: list[str]) -> list[str]:
        _one(lanes, operation, scope, number)
        return []
    loop(function.root, "%begin", "%end", "1", (), one)
    return f"define internal {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _blocks(lanes: Lanes, operation: Operation, work: Block) -> str:
    """As many as there are lanes at a time."""
    function, header = _shared(lanes, operation, "blocks")
    root = function.root
    vectors = "64"
    for size in (*operation.sizes, "n", "n"):
        vectors = added(root, vectors, added(root, _size(root, size), lanes.count))
    whole = product(root, vectors, str(lanes.count * lanes.dtype.itemsize))
    scratch = root.call("ptr", "lw_scratch_acquire", [("i64", whole)])

    def block(scope: Scope, at: str, state: list[str]) -> list[str]:
        left = scope.emit(f"sub i64 %end, {at}")
        count = scope.call("i64", "llvm.smin.i64", [("i64", left), ("i64", str(lanes.count))])
        matrices = [element(scope, lanes.number, f"%p{k}", product(scope, at, _size(scope, factors)))
                    for k, factors in enumerate(operation.sizes)]
        bits = work(lanes, scope, matrices, count, scratch)
        own = scope.emit(f"sub i64 {scope.emit(f'shl i64 1, {count}')}, 1")
        branch(scope, scope.emit(f"icmp ne i64 {scope.emit(f'and i64 {bits}, {own}')}, 0"),
               partial(others, at, scope.emit(f"and i64 {bits}, {own}")), rare=True)
        return []

    def others(at: str, bits: str, scope: Scope) -> Carried:
        def lane(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
            number = inner.call("i64", "llvm.cttz.i64", [("i64", state[0]), ("i1", "true")])
            _one(lanes, operation, inner, added(inner, at, number))
            rest = inner.emit(f"and i64 {state[0]}, {inner.emit(f'sub i64 {state[0]}, 1')}")
            return inner.emit(f"icmp ne i64 {rest}, 0"), [rest]
        repeat(scope, [("i64", bits)], lane)
        return ()

    def blocks(scope: Scope) -> Carried:
        loop(scope, "%begin", "%end", str(lanes.count), (), block)
        scope.run("lw_scratch_release", [("ptr", scratch)])
        return ()

    def full(scope: Scope) -> Carried:
        scope.do("store atomic i64 -1, ptr %status monotonic, align 8")
        return ()
    branch(root, root.emit(f"icmp eq ptr {scratch}, null"), full, blocks, rare=True)
    return f"define internal {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _batch(lanes: Lanes, operation: Operation) -> str:
    """The whole batch, in lanes or by LAPACK."""
    function = lanes.function()
    root, given = function.root, _parameters(operation)
    status, context = function.slot(1, "i64", 8), function.slot(len(given) + 1, "i64", 8)
    root.do(f"store i64 0, ptr {status}")
    for k, (kind, name) in enumerate([*given, ("ptr", status)]):
        root.do(f"store {kind} {name}, ptr {element(root, 'i64', context, str(k))}")
    columns = added(root, "%n", "%m") if "m" in operation.numbers else "%n"
    one, name = product(root, "%n", added(root, "%n", 8), columns), f"@lw_{operation.name}_{lanes.suffix}"

    def shared(scope: Scope, kind: str, each: str, together: int) -> Carried:
        scope.run("lw_loop", [("ptr", f"{name}_{kind}"), ("ptr", context), ("i64", "%count"), ("i64", added(scope, each, 1)),
                              ("i64", str(together)), ("i64", str(together))])
        return ()

    def in_lanes(scope: Scope) -> Carried:
        return shared(scope, "blocks", scope.emit(f"udiv i64 {product(scope, one, '4')}, {lanes.count}"), lanes.count)

    def by_lapack(scope: Scope) -> Carried:
        def alone(inner: Scope) -> Carried:
            inner.do(f"call void {name}_matrices(ptr {context}, i64 0, i64 %count)")
            return ()
        def one_thread_each(inner: Scope) -> Carried:
            inner.run("lw_blas_enter", [("i32", "1")])
            shared(inner, "matrices", product(inner, one, "64"), 1)
            inner.run("lw_blas_leave", [])
            return ()
        is_small = scope.emit(f"icmp sle i64 {columns}, {2 * LARGEST[0]}")
        branch(scope, is_small, one_thread_each, alone)
        return ()
    if operation.block:
        branch(root, _suits(root, lanes, operation, columns), in_lanes, by_lapack)
    else:
        by_lapack(root)
    answer = root.emit(f"load i64, ptr {status}")
    header = f"i64 {name}_batch(i64 %count, {', '.join(f'{kind} {x}' for kind, x in given)})"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret i64 {answer}\n}}"


def _suits(scope: Scope, lanes: Lanes, operation: Operation, columns: str) -> str:
    """Whether matrices are worked on in lanes."""
    most = str(min(LARGEST[0], LARGEST[1] * lanes.count))
    rows = scope.call("i64", "llvm.smin.i64", [("i64", product(scope, "%count", str(operation.rows))), ("i64", most)])
    tests = [f"sle i64 %n, {rows}", f"sle i64 {product(scope, '%n', columns)}, {MOST}",
             *(f"sge i64 %{x}, 1" for x in operation.numbers if x in "nm")]
    holds = "true"
    for test in tests:
        holds = scope.emit(f"and i1 {holds}, {scope.emit(f'icmp {test}')}")
    return holds
