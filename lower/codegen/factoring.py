"""Linear algebra of many small matrices as text: the lanes of a vector are matrices.

    i64 @lw_solve_f32_batch(i64 count, ptr a, ptr b, ptr out, i64 n, i64 m)
    i64 @lw_slogdet_f32_batch(i64 count, ptr a, ptr sign, ptr log, i64 n)
    i64 @lw_cholesky_f32_batch(i64 count, ptr a, ptr out, i64 n)
    i64 @lw_triangular_solve_f32_batch(i64 count, ptr a, ptr b, ptr out, i64 n, i64 m, i64 lower, i64 transposed, i64 unit)
    ... of f64                                              for count matrices what `@lw_solve_f32` etc. of `runtime.lapack` do

Matrices that are large, or few, go to LAPACK one by one, and so do those of small ones whose result hangs on how sums were
rounded, or that hold what is not finite: a pivot, or what a root is taken of, is not beyond CLOSE * n * epsilon times the
largest element. So it is LAPACK that says what is singular.

Guarantees: a matrix's result does not depend on what the other lanes hold; rows change places as in LAPACK, and an element's
terms are added in one order. The answer is 0, or that of LAPACK for one of the matrices, or -1 where memory is short.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from loopwright.kernels.maths_exponentials import log
from loopwright.lower.codegen.interleaving import interleaving_text
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type
from loopwright.lower.codegen.small import element, first_lanes, store_first
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop, repeat
from loopwright.lower.target import Target

LARGEST = 48, 12  # rows of matrices in lanes, and of these for each lane
MOST = 2 * 48 * 48  # numbers of a matrix and its right sides: vectors of so many lie in the second cache
CLOSE = 32
COLUMNS = 4  # that rows are changed in at a time: as many multiplications do not wait for each other


@dataclass(frozen=True)
class _Operation:
    """How it works on a block. (matrices, count, scratch) give the bits of lanes that are for LAPACK."""

    name: str
    sizes: tuple[str, ...]  # of its operands and results, as products: nm is n * m
    numbers: tuple[str, ...]  # that it is given
    rows: int  # that matrices may have for each that there is: of fewer larger ones LAPACK is sooner done
    block: Callable[[_Lanes, Scope, Sequence[str], str, str], str]


def factoring_text(dtype: np.dtype, target: Target) -> str:
    """The functions of one dtype, over those of `runtime.lapack`, the pool's and the scratch memory's."""
    lanes = _Lanes(dtype, target)
    texts = [interleaving_text(dtype, target, lanes.declarations, lanes.constants), _elimination(lanes)]
    for operation in OPERATIONS:
        texts += [_share(lanes, operation), _batch(lanes, operation)]
    return "\n".join([*sorted(lanes.declarations), *sorted(lanes.constants), *texts])


class _Lanes:
    """Vectors in scratch memory, one after the other, each with a number of every matrix of a block."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.dtype, self.target, self.count = dtype, target, target.lanes(dtype)
        self.declarations, self.constants = set[str](), set[str]()
        self.suffix, self.number = f"f{8 * dtype.itemsize}", memory_type(dtype)
        self.kind, self.whole = f"<{self.count} x {self.number}>", f"<{self.count} x i{8 * dtype.itemsize}>"
        self.mask = f"<{self.count} x i1>"

    def function(self) -> Function:
        return Function(self.declarations, self.constants)

    def machine(self, scope: Scope) -> Machine:
        return Machine(scope, 8 * self.dtype.itemsize, self.count, self.target)

    def at(self, scope: Scope, base: str, place: str) -> str:
        return element(scope, self.kind, base, place)

    def load(self, scope: Scope, base: str, place: str = "0") -> str:
        return scope.emit(f"load {self.kind}, ptr {self.at(scope, base, place)}, align 64")

    def store(self, scope: Scope, value: str, base: str, place: str = "0") -> None:
        scope.do(f"store {self.kind} {value}, ptr {self.at(scope, base, place)}, align 64")

    def every(self, scope: Scope, index: str) -> str:
        """A whole number in each lane."""
        one = scope.emit(f"insertelement {self.whole} poison, i{8 * self.dtype.itemsize} {self._narrow(scope, index)}, i32 0")
        return scope.emit(f"shufflevector {self.whole} {one}, {self.whole} poison, <{self.count} x i32> zeroinitializer")

    def _narrow(self, scope: Scope, index: str) -> str:
        return index if self.dtype.itemsize == 8 else scope.emit(f"trunc i64 {index} to i32")

    def interleave(self, scope: Scope, to: str, source: str, size: str, count: str) -> None:
        scope.do(f"call void @lw_interleave_{self.suffix}(ptr {to}, ptr {source}, i64 {size}, i64 {count})")

    def separate(self, scope: Scope, to: str, source: str, size: str, count: str) -> None:
        scope.do(f"call void @lw_separate_{self.suffix}(ptr {to}, ptr {source}, i64 {size}, i64 {count})")

    def limit(self, scope: Scope, largest: str) -> str:
        """What a pivot must be beyond; it has an inverse then."""
        m, info = self.machine(scope), np.finfo(self.dtype)
        order = scope.emit(f"sitofp i64 %n to {self.number}")
        one = scope.emit(f"insertelement {self.kind} poison, {self.number} {order}, i32 0")
        many = scope.emit(f"shufflevector {self.kind} {one}, {self.kind} poison, <{self.count} x i32> zeroinitializer")
        return m.maximum(m.mul(m.mul(many, CLOSE * float(info.eps)), largest), 4 * float(info.tiny))

    def bits(self, scope: Scope, mask: str) -> str:
        """A mask as a number."""
        return scope.emit(f"zext i{self.count} {scope.emit(f'bitcast {self.mask} {mask} to i{self.count}')} to i64")


def _product(scope: Scope, *factors: str) -> str:
    first, *rest = factors
    for x in rest:
        first = scope.emit(f"mul i64 {first}, {x}")
    return first


def _sum(scope: Scope, a: str, b: str | int) -> str:
    return scope.emit(f"add i64 {a}, {b}")


def _columns(scope: Scope, low: str, high: str, body: Callable[[Scope, str, int], None]) -> None:
    """body(scope, column, how many from there), some at a time and what is left one by one."""
    at = low
    for width in (COLUMNS, 1):
        def some(inner: Scope, column: str, state: list[str], width: int = width) -> list[str]:
            body(inner, column, width)
            return [_sum(inner, column, width)]
        at, = loop(scope, at, scope.emit(f"sub i64 {high}, {width - 1}"), str(width), [("i64", at)], some)


# ---- elimination ----------------------------------------------------------------------------------
def _elimination(lanes: _Lanes) -> str:
    """`i64 @lw_eliminate_f32(ptr a, ptr b, ptr l, ptr inverses, i64 n, i64 m)`: a becomes upper triangular, and b [n, m] is
    changed alike; l has room for n vectors; the inverses of the pivots, and then the sign of the exchange of rows. The bits of
    lanes that are for LAPACK."""
    function = lanes.function()
    root = function.root

    def larger(scope: Scope, at: str, state: list[str]) -> list[str]:
        m = lanes.machine(scope)
        return [m.maximum(m.abs(lanes.load(scope, "%a", at)), state[0])]
    largest, = loop(root, "0", _product(root, "%n", "%n"), "1", [(lanes.kind, "zeroinitializer")], larger)
    m = lanes.machine(root)
    step = partial(_step, lanes, lanes.limit(root, largest))
    start = [(lanes.mask, "splat (i1 true)"), (lanes.kind, m.constant(1.0))]
    good, sign = loop(root, "0", "%n", "1", start, step)
    lanes.store(root, sign, "%inverses", "%n")
    bits = lanes.bits(root, m.negate(good))
    header = f"internal i64 @lw_eliminate_{lanes.suffix}(ptr noalias %a, ptr noalias %b, ptr noalias %l, " \
        "ptr noalias %inverses, i64 %n, i64 %m)"
    return f"define {header} noinline {ATTRIBUTES} {{\n{function.body()}\n  ret i64 {bits}\n}}"


def _step(lanes: _Lanes, limit: str, scope: Scope, k: str, state: list[str]) -> list[str]:
    """One column: the row with its largest element comes up, and is taken from those below."""
    m = lanes.machine(scope)
    below, corner = _sum(scope, k, 1), _sum(scope, _product(scope, k, "%n"), k)
    first, here = lanes.load(scope, "%a", corner), lanes.every(scope, k)

    def search(inner: Scope, i: str, best: list[str]) -> list[str]:
        m = lanes.machine(inner)
        x = lanes.load(inner, "%a", _sum(inner, _product(inner, i, "%n"), k))
        is_larger = m.compare("gt", m.abs(x), best[0])
        return [m.select(is_larger, m.abs(x), best[0]), m.select(is_larger, x, best[1]),
                m.iselect(is_larger, lanes.every(inner, i), best[2])]
    size, pivot, chosen = loop(scope, below, "%n", "1", [
        (lanes.kind, m.abs(first)), (lanes.kind, first), (lanes.whole, here)], search)
    inverse = m.div(1.0, pivot)
    lanes.store(scope, inverse, "%inverses", k)
    lanes.store(scope, pivot, "%a", corner)

    def factor(inner: Scope, i: str, none: list[str]) -> list[str]:
        m = lanes.machine(inner)
        x = lanes.load(inner, "%a", _sum(inner, _product(inner, i, "%n"), k))
        own = m.select(m.icompare("eq", chosen, lanes.every(inner, i)), first, x)
        lanes.store(inner, m.neg(m.mul(own, inverse)), "%l", i)
        return []
    loop(scope, below, "%n", "1", (), factor)
    _columns(scope, below, "%n", partial(_change, lanes, chosen, k, "%a", "%n"))
    _columns(scope, "0", "%m", partial(_change, lanes, chosen, k, "%b", "%m"))
    fits = m.both(m.compare("gt", size, limit), m.compare("lt", size, float("inf")))
    stays = m.icompare("eq", chosen, here)
    return [m.both(state[0], fits), m.select(stays, state[1], m.neg(state[1]))]


def _change(lanes: _Lanes, chosen: str, k: str, base: str, length: str, scope: Scope, column: str, width: int) -> None:
    """Some columns: row k and the chosen one change places, and the new row k times l is added to those below."""
    step = _product(scope, length, str(lanes.count * lanes.dtype.itemsize))
    top = lanes.at(scope, base, _sum(scope, _product(scope, k, length), column))
    under, below = scope.emit(f"getelementptr i8, ptr {top}, i64 {step}"), _sum(scope, k, 1)
    old = [lanes.load(scope, top, str(c)) for c in range(width)]

    def find(inner: Scope, i: str, state: list[str]) -> list[str]:
        m = lanes.machine(inner)
        is_chosen = m.icompare("eq", chosen, lanes.every(inner, i))
        found = [m.select(is_chosen, lanes.load(inner, state[0], str(c)), x) for c, x in enumerate(state[1:])]
        return [inner.emit(f"getelementptr i8, ptr {state[0]}, i64 {step}"), *found]
    _, *new = loop(scope, below, "%n", "1", [("ptr", under), *((lanes.kind, x) for x in old)], find)

    def add(inner: Scope, i: str, state: list[str]) -> list[str]:
        m = lanes.machine(inner)
        is_chosen = m.icompare("eq", chosen, lanes.every(inner, i))
        factor = lanes.load(inner, "%l", i)
        for c in range(width):
            x = m.select(is_chosen, old[c], lanes.load(inner, state[0], str(c)))
            lanes.store(inner, m.fma(factor, new[c], x), state[0], str(c))
        return [inner.emit(f"getelementptr i8, ptr {state[0]}, i64 {step}")]
    loop(scope, below, "%n", "1", [("ptr", under)], add)
    for c in range(width):
        lanes.store(scope, new[c], top, str(c))


def _eliminate(lanes: _Lanes, scope: Scope, a: str, b: str, l: str, inverses: str, k: str) -> str:  # noqa: E741
    return scope.emit(f"call i64 @lw_eliminate_{lanes.suffix}(ptr {a}, ptr {b}, ptr {l}, ptr {inverses}, i64 %n, i64 {k})")


def _places(lanes: _Lanes, scope: Scope, scratch: str, *sizes: str) -> list[str]:
    """Where so many vectors lie one after the other; behind each is room for squares that reach over."""
    places = [scratch]
    for size in sizes[:-1]:
        places.append(lanes.at(scope, places[-1], _sum(scope, size, lanes.count)))
    return places


@dataclass(frozen=True)
class _Order:
    """Whether rows follow from the first on, and how far apart the rows and the columns of their matrix are."""

    forward: str
    row: str
    column: str


def _substitute(lanes: _Lanes, scope: Scope, a: str, b: str, inverses: str, order: _Order) -> None:
    """Each row of b less what is known of it, times the inverse."""
    def row(outer: Scope, done: str, state: list[str]) -> list[str]:
        back = outer.emit(f"sub i64 %n, {_sum(outer, done, 1)}")
        i, low, high = (outer.emit(f"select i1 {order.forward}, i64 {x}, i64 {y}")
                        for x, y in ((done, back), ("0", _sum(outer, back, 1)), (done, "%n")))
        line, inverse = lanes.at(outer, a, _product(outer, i, order.row)), lanes.load(outer, inverses, i)

        def some(inner: Scope, column: str, width: int) -> None:
            own = lanes.at(inner, b, _sum(inner, _product(inner, i, "%m"), column))

            def term(deep: Scope, j: str, sums: list[str]) -> list[str]:
                m, factor = lanes.machine(deep), lanes.load(deep, line, _product(deep, j, order.column))
                known = lanes.at(deep, b, _sum(deep, _product(deep, j, "%m"), column))
                return [m.fma(m.neg(factor), lanes.load(deep, known, str(c)), x) for c, x in enumerate(sums)]
            sums = loop(inner, low, high, "1", [(lanes.kind, lanes.load(inner, own, str(c))) for c in range(width)], term)
            for c, x in enumerate(sums):
                lanes.store(inner, lanes.machine(inner).mul(x, inverse), own, str(c))
        _columns(outer, "0", "%m", some)
        return []
    loop(scope, "0", "%n", "1", (), row)


def _solve(lanes: _Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """Elimination, then row after row from the last."""
    square, sides = _product(scope, "%n", "%n"), _product(scope, "%n", "%m")
    a, b, l, inverses = _places(lanes, scope, scratch, square, sides, "%n", "%n")  # noqa: E741
    lanes.interleave(scope, a, matrices[0], square, count)
    lanes.interleave(scope, b, matrices[1], sides, count)
    bits = _eliminate(lanes, scope, a, b, l, inverses, "%m")

    _substitute(lanes, scope, a, b, inverses, _Order("false", "%n", "1"))
    lanes.separate(scope, matrices[2], b, sides, count)
    return bits


def _triangular_solve(lanes: _Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """Substitution alone."""
    square, sides = _product(scope, "%n", "%n"), _product(scope, "%n", "%m")
    a, b, inverses = _places(lanes, scope, scratch, square, sides, "%n")
    lanes.interleave(scope, a, matrices[0], square, count)
    lanes.interleave(scope, b, matrices[1], sides, count)
    is_lower, is_transposed, is_unit = (scope.emit(f"icmp ne i64 %{x}, 0") for x in ("lower", "transposed", "unit"))

    def invert(inner: Scope, i: str, state: list[str]) -> list[str]:
        m = lanes.machine(inner)
        own, one = lanes.load(inner, a, _product(inner, i, _sum(inner, "%n", 1))), m.constant(1.0)
        lanes.store(inner, m.div(1.0, inner.emit(f"select i1 {is_unit}, {lanes.kind} {one}, {lanes.kind} {own}")), inverses, i)
        return []
    loop(scope, "0", "%n", "1", (), invert)
    row, column = (scope.emit(f"select i1 {is_transposed}, i64 {x}, i64 {y}") for x, y in (("1", "%n"), ("%n", "1")))
    _substitute(lanes, scope, a, b, inverses, _Order(scope.emit(f"xor i1 {is_lower}, {is_transposed}"), row, column))
    lanes.separate(scope, matrices[2], b, sides, count)
    return "0"


def _slogdet(lanes: _Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """The signs and the logarithms of the pivots."""
    square = _product(scope, "%n", "%n")
    a, l, inverses = _places(lanes, scope, scratch, square, "%n", "%n")  # noqa: E741
    lanes.interleave(scope, a, matrices[0], square, count)
    bits = _eliminate(lanes, scope, a, a, l, inverses, "0")

    def one(inner: Scope, i: str, state: list[str]) -> list[str]:
        m, pivot = lanes.machine(inner), lanes.load(inner, a, _sum(inner, _product(inner, i, "%n"), i))
        sign = m.select(m.compare("lt", pivot, 0.0), m.neg(state[0]), state[0])
        return [sign, m.add(state[1], log(m, m.abs(pivot)))]
    start = [(lanes.kind, lanes.load(scope, inverses, "%n")), (lanes.kind, "zeroinitializer")]
    mask = first_lanes(scope, count, lanes.count)
    for found, place in zip(loop(scope, "0", "%n", "1", start, one), matrices[1:], strict=True):
        store_first(scope, lanes.kind, found, place, mask)
    return bits


def _cholesky(lanes: _Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """Column after column, each taken from those behind it, of the lower triangle."""
    square = _product(scope, "%n", "%n")
    a, l = _places(lanes, scope, scratch, square, "%n")  # noqa: E741
    lanes.interleave(scope, a, matrices[0], square, count)

    def larger(inner: Scope, i: str, state: list[str]) -> list[str]:
        m = lanes.machine(inner)
        return [m.maximum(lanes.load(inner, a, _product(inner, i, _sum(inner, "%n", 1))), state[0])]
    largest, = loop(scope, "0", "%n", "1", [(lanes.kind, "zeroinitializer")], larger)
    limit = lanes.limit(scope, largest)

    def column(outer: Scope, k: str, state: list[str]) -> list[str]:
        m, below = lanes.machine(outer), _sum(outer, k, 1)
        line = lanes.at(outer, a, _product(outer, k, "%n"))
        square = lanes.load(outer, line, k)
        root = m.sqrt(square)
        inverse = m.div(1.0, root)
        lanes.store(outer, root, line, k)

        def factor(inner: Scope, i: str, none: list[str]) -> list[str]:
            m, place = lanes.machine(inner), lanes.at(inner, a, _sum(inner, _product(inner, i, "%n"), k))
            x = m.mul(lanes.load(inner, place), inverse)
            lanes.store(inner, x, place)
            lanes.store(inner, m.neg(x), l, i)
            lanes.store(inner, "zeroinitializer", line, i)
            return []
        loop(outer, below, "%n", "1", (), factor)

        def some(inner: Scope, j: str, width: int) -> None:
            right = [lanes.load(inner, l, _sum(inner, j, c)) for c in range(width)]

            def row(deep: Scope, i: str, none: list[str]) -> list[str]:
                m, place = lanes.machine(deep), lanes.at(deep, a, _sum(deep, _product(deep, i, "%n"), j))
                left = m.neg(lanes.load(deep, l, i))
                for c, x in enumerate(right):
                    lanes.store(deep, m.fma(left, x, lanes.load(deep, place, str(c))), place, str(c))
                return []
            loop(inner, j, "%n", "1", (), row)
        _columns(outer, below, "%n", some)
        fits = m.both(m.compare("gt", square, limit), m.compare("lt", square, float("inf")))
        return [m.both(state[0], fits)]
    good, = loop(scope, "0", "%n", "1", [(lanes.mask, "splat (i1 true)")], column)
    lanes.separate(scope, matrices[1], a, square, count)
    return lanes.bits(scope, lanes.machine(scope).negate(good))


OPERATIONS = (
    _Operation("solve", ("nn", "nm", "nm"), ("n", "m"), 8, _solve),
    _Operation("triangular_solve", ("nn", "nm", "nm"), ("n", "m", "lower", "transposed", "unit"), 2, _triangular_solve),
    _Operation("slogdet", ("nn", "", ""), ("n",), 8, _slogdet),
    _Operation("cholesky", ("nn", "nn"), ("n",), 2, _cholesky),
)


# ---- batches --------------------------------------------------------------------------------------
def _parameters(operation: _Operation) -> list[tuple[str, str]]:
    return [*(("ptr", f"%p{k}") for k in range(len(operation.sizes))), *(("i64", f"%{x}") for x in operation.numbers)]


def _header(operation: _Operation) -> str:
    return ", ".join(f"{kind} {name}" for kind, name in _parameters(operation))


def _size(scope: Scope, factors: str) -> str:
    return _product(scope, *(f"%{x}" for x in factors)) if factors else "1"


def _one(lanes: _Lanes, operation: _Operation, scope: Scope, number: str, status: str) -> None:
    """LAPACK's answer for one matrix, kept where it is a failure."""
    given = [("ptr", element(scope, lanes.number, f"%p{k}", _product(scope, number, _size(scope, factors))))
             for k, factors in enumerate(operation.sizes)]
    answer = scope.call("i64", f"lw_{operation.name}_{lanes.suffix}", [*given, *(("i64", f"%{x}") for x in operation.numbers)])

    def keep(inner: Scope) -> Carried:
        inner.do(f"store atomic i64 {answer}, ptr {status} monotonic, align 8")
        return ()
    branch(scope, scope.emit(f"icmp ne i64 {answer}, 0"), keep, rare=True)


def _share(lanes: _Lanes, operation: _Operation) -> str:
    """What the pool calls: some matrices, block after block."""
    function = lanes.function()
    root = function.root
    loaded = [f"  {name} = load {kind}, ptr {name}.at" for kind, name in _parameters(operation)]
    places = [f"  {name}.at = getelementptr i64, ptr %context, i64 {k}"
              for k, (_, name) in enumerate([*_parameters(operation), ("ptr", "%status")])]
    root.lines += [*places, *loaded, "  %status = load ptr, ptr %status.at"]
    vectors = "64"
    for size in (*operation.sizes, "n", "n"):
        vectors = _sum(root, vectors, _sum(root, _size(root, size), lanes.count))
    whole = _product(root, vectors, str(lanes.count * lanes.dtype.itemsize))
    scratch = root.call("ptr", "lw_scratch_acquire", [("i64", whole)])

    def block(scope: Scope, at: str, state: list[str]) -> list[str]:
        left = scope.emit(f"sub i64 %end, {at}")
        count = scope.call("i64", "llvm.smin.i64", [("i64", left), ("i64", str(lanes.count))])
        matrices = [element(scope, lanes.number, f"%p{k}", _product(scope, at, _size(scope, factors)))
                    for k, factors in enumerate(operation.sizes)]
        bits = operation.block(lanes, scope, matrices, count, scratch)
        own = scope.emit(f"sub i64 {scope.emit(f'shl i64 1, {count}')}, 1")
        branch(scope, scope.emit(f"icmp ne i64 {scope.emit(f'and i64 {bits}, {own}')}, 0"),
               partial(others, at, scope.emit(f"and i64 {bits}, {own}")), rare=True)
        return []

    def others(at: str, bits: str, scope: Scope) -> Carried:
        def lane(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
            number = inner.call("i64", "llvm.cttz.i64", [("i64", state[0]), ("i1", "true")])
            _one(lanes, operation, inner, _sum(inner, at, number), "%status")
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
    header = f"internal void @lw_{operation.name}_{lanes.suffix}_share(ptr %context, i64 %begin, i64 %end)"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


def _batch(lanes: _Lanes, operation: _Operation) -> str:
    """The whole batch, in lanes or by LAPACK."""
    function = lanes.function()
    root, given = function.root, _parameters(operation)
    status, context = function.slot(1, "i64", 8), function.slot(len(given) + 1, "i64", 8)
    root.do(f"store i64 0, ptr {status}")
    few = _product(root, "%count", str(operation.rows))
    columns = _sum(root, "%n", "%m") if "m" in operation.numbers else "%n"
    most = min(LARGEST[0], LARGEST[1] * lanes.count)
    suits = root.emit(f"icmp sle i64 %n, {root.call('i64', 'llvm.smin.i64', [('i64', few), ('i64', str(most))])}")
    for test in ("sge i64 %n, 1", "sge i64 %m, 1")[:1 + ("m" in operation.numbers)]:
        suits = root.emit(f"and i1 {suits}, {root.emit(f'icmp {test}')}")
    fits = root.emit(f"icmp sle i64 {_product(root, '%n', columns)}, {MOST}")
    suits = root.emit(f"and i1 {suits}, {fits}")

    def in_lanes(scope: Scope) -> Carried:
        for k, (kind, name) in enumerate([*given, ("ptr", status)]):
            scope.do(f"store {kind} {name}, ptr {element(scope, 'i64', context, str(k))}")
        each = scope.emit(f"udiv i64 {_product(scope, '%n', _sum(scope, '%n', 8), columns, '4')}, {lanes.count}")
        scope.run("lw_loop", [("ptr", f"@lw_{operation.name}_{lanes.suffix}_share"), ("ptr", context), ("i64", "%count"),
                              ("i64", _sum(scope, each, 1)), ("i64", str(lanes.count)), ("i64", str(lanes.count))])
        return ()

    def by_lapack(scope: Scope) -> Carried:
        def one(inner: Scope, number: str, state: list[str]) -> list[str]:
            _one(lanes, operation, inner, number, status)
            return []
        loop(scope, "0", "%count", "1", (), one)
        return ()
    branch(root, suits, in_lanes, by_lapack)
    answer = root.emit(f"load i64, ptr {status}")
    header = f"i64 @lw_{operation.name}_{lanes.suffix}_batch(i64 %count, {_header(operation)})"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret i64 {answer}\n}}"
