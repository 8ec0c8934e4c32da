"""Linear algebra of many small matrices as text: the lanes of a vector are matrices. See `batches.py`.

Matrices whose result hangs on how sums were rounded, or that hold what is not finite, are LAPACK's: where a pivot, or what a
root is taken of, is not beyond CLOSE * n * epsilon times the largest element. So it is LAPACK that says what is singular.

Guarantees: a matrix's result does not depend on what the other lanes hold; rows change places as in LAPACK, and an element's
terms are added in one order.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.kernels.maths_exponentials import log
from loopwright.lower.codegen.batches import Operation, batch_text
from loopwright.lower.codegen.interleaving import Lanes, added, interleaving_text, product
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.small import first_lanes, store_first
from loopwright.lower.codegen.text import Scope, loop
from loopwright.lower.target import Target

CLOSE = 32
COLUMNS = 4  # that rows are changed in at a time: as many multiplications do not wait for each other


def factoring_text(dtype: np.dtype, target: Target) -> str:
    """The functions of one dtype, over those of `runtime.lapack`, the pool's and the scratch memory's."""
    lanes = Lanes(dtype, target)
    texts = [interleaving_text(lanes), _elimination(lanes), *(batch_text(lanes, operation) for operation in OPERATIONS)]
    return "\n".join([*sorted(lanes.declarations), *sorted(lanes.constants), *texts])


def _limit(lanes: Lanes, scope: Scope, largest: str) -> str:
    """What a pivot must be beyond; it has an inverse then."""
    m, info = lanes.machine(scope), np.finfo(lanes.dtype)
    order = scope.emit(f"sitofp i64 %n to {lanes.number}")
    one = scope.emit(f"insertelement {lanes.kind} poison, {lanes.number} {order}, i32 0")
    many = scope.emit(f"shufflevector {lanes.kind} {one}, {lanes.kind} poison, <{lanes.count} x i32> zeroinitializer")
    return m.maximum(m.mul(m.mul(many, CLOSE * float(info.eps)), largest), 4 * float(info.tiny))


def _columns(scope: Scope, low: str, high: str, body: Callable[[Scope, str, int], None]) -> None:
    """body(scope, column, how many from there), some at a time and what is left one by one."""
    at = low
    for width in (COLUMNS, 1):
        def some(inner: Scope, column: str, state: list[str], width: int = width) -> list[str]:
            body(inner, column, width)
            return [added(inner, column, width)]
        at, = loop(scope, at, scope.emit(f"sub i64 {high}, {width - 1}"), str(width), [("i64", at)], some)


# ---- elimination ----------------------------------------------------------------------------------
def _elimination(lanes: Lanes) -> str:
    """`i64 @lw_eliminate_f32(ptr a, ptr b, ptr l, ptr inverses, i64 n, i64 m)`: a becomes upper triangular, and b [n, m] is
    changed alike; l has room for n vectors; the inverses of the pivots, and then the sign of the exchange of rows. The bits of
    lanes that are for LAPACK."""
    function = lanes.function()
    root = function.root

    def larger(scope: Scope, at: str, state: list[str]) -> list[str]:
        m = lanes.machine(scope)
        return [m.maximum(m.abs(lanes.load(scope, "%a", at)), state[0])]
    largest, = loop(root, "0", product(root, "%n", "%n"), "1", [(lanes.kind, "zeroinitializer")], larger)
    m = lanes.machine(root)
    step = partial(_step, lanes, _limit(lanes, root, largest))
    start = [(lanes.mask, "splat (i1 true)"), (lanes.kind, m.constant(1.0))]
    good, sign = loop(root, "0", "%n", "1", start, step)
    lanes.store(root, sign, "%inverses", "%n")
    bits = lanes.bits(root, m.negate(good))
    header = f"internal i64 @lw_eliminate_{lanes.suffix}(ptr noalias %a, ptr noalias %b, ptr noalias %l, " \
        "ptr noalias %inverses, i64 %n, i64 %m)"
    return f"define {header} noinline {ATTRIBUTES} {{\n{function.body()}\n  ret i64 {bits}\n}}"


def _step(lanes: Lanes, limit: str, scope: Scope, k: str, state: list[str]) -> list[str]:
    """One column: the row with its largest element comes up, and is taken from those below."""
    m = lanes.machine(scope)
    below, corner = added(scope, k, 1), added(scope, product(scope, k, "%n"), k)
    first, here = lanes.load(scope, "%a", corner), lanes.every(scope, k)

    def search(inner: Scope, i: str, best: list[str]) -> list[str]:
        m = lanes.machine(inner)
        x = lanes.load(inner, "%a", added(inner, product(inner, i, "%n"), k))
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
        x = lanes.load(inner, "%a", added(inner, product(inner, i, "%n"), k))
        own = m.select(m.icompare("eq", chosen, lanes.every(inner, i)), first, x)
        lanes.store(inner, m.neg(m.mul(own, inverse)), "%l", i)
        return []
    loop(scope, below, "%n", "1", (), factor)
    _columns(scope, below, "%n", partial(_change, lanes, chosen, k, "%a", "%n"))
    _columns(scope, "0", "%m", partial(_change, lanes, chosen, k, "%b", "%m"))
    fits = m.both(m.compare("gt", size, limit), m.compare("lt", size, float("inf")))
    stays = m.icompare("eq", chosen, here)
    return [m.both(state[0], fits), m.select(stays, state[1], m.neg(state[1]))]


def _change(lanes: Lanes, chosen: str, k: str, base: str, length: str, scope: Scope, column: str, width: int) -> None:
    """Some columns: row k and the chosen one change places, and the new row k times l is added to those below."""
    step = product(scope, length, str(lanes.count * lanes.dtype.itemsize))
    top = lanes.at(scope, base, added(scope, product(scope, k, length), column))
    under, below = scope.emit(f"getelementptr i8, ptr {top}, i64 {step}"), added(scope, k, 1)
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


def _eliminate(lanes: Lanes, scope: Scope, a: str, b: str, l: str, inverses: str, k: str) -> str:  # noqa: E741
    return scope.emit(f"call i64 @lw_eliminate_{lanes.suffix}(ptr {a}, ptr {b}, ptr {l}, ptr {inverses}, i64 %n, i64 {k})")


def _places(lanes: Lanes, scope: Scope, scratch: str, *sizes: str) -> list[str]:
    """Where so many vectors lie one after the other; behind each is room for squares that reach over."""
    places = [scratch]
    for size in sizes[:-1]:
        places.append(lanes.at(scope, places[-1], added(scope, size, lanes.count)))
    return places


@dataclass(frozen=True)
class _Order:
    """Whether rows follow from the first on, and how far apart the rows and the columns of their matrix are."""

    forward: str
    row: str
    column: str


def _substitute(lanes: Lanes, scope: Scope, a: str, b: str, inverses: str, order: _Order) -> None:
    """Each row of b less what is known of it, times the inverse."""
    def row(outer: Scope, done: str, state: list[str]) -> list[str]:
        back = outer.emit(f"sub i64 %n, {added(outer, done, 1)}")
        i, low, high = (outer.emit(f"select i1 {order.forward}, i64 {x}, i64 {y}")
                        for x, y in ((done, back), ("0", added(outer, back, 1)), (done, "%n")))
        line, inverse = lanes.at(outer, a, product(outer, i, order.row)), lanes.load(outer, inverses, i)

        def some(inner: Scope, column: str, width: int) -> None:
            own = lanes.at(inner, b, added(inner, product(inner, i, "%m"), column))

            def term(deep: Scope, j: str, sums: list[str]) -> list[str]:
                m, factor = lanes.machine(deep), lanes.load(deep, line, product(deep, j, order.column))
                known = lanes.at(deep, b, added(deep, product(deep, j, "%m"), column))
                return [m.fma(m.neg(factor), lanes.load(deep, known, str(c)), x) for c, x in enumerate(sums)]
            sums = loop(inner, low, high, "1", [(lanes.kind, lanes.load(inner, own, str(c))) for c in range(width)], term)
            for c, x in enumerate(sums):
                lanes.store(inner, lanes.machine(inner).mul(x, inverse), own, str(c))
        _columns(outer, "0", "%m", some)
        return []
    loop(scope, "0", "%n", "1", (), row)


def _solve(lanes: Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """Elimination, then row after row from the last."""
    square, sides = product(scope, "%n", "%n"), product(scope, "%n", "%m")
    a, b, l, inverses = _places(lanes, scope, scratch, square, sides, "%n", "%n")  # noqa: E741
    lanes.interleave(scope, a, matrices[0], square, count)
    lanes.interleave(scope, b, matrices[1], sides, count)
    bits = _eliminate(lanes, scope, a, b, l, inverses, "%m")

    _substitute(lanes, scope, a, b, inverses, _Order("false", "%n", "1"))
    lanes.separate(scope, matrices[2], b, sides, count)
    return bits


def _triangular_solve(lanes: Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """Substitution alone."""
    square, sides = product(scope, "%n", "%n"), product(scope, "%n", "%m")
    a, b, inverses = _places(lanes, scope, scratch, square, sides, "%n")
    lanes.interleave(scope, a, matrices[0], square, count)
    lanes.interleave(scope, b, matrices[1], sides, count)
    is_lower, is_transposed, is_unit = (scope.emit(f"icmp ne i64 %{x}, 0") for x in ("lower", "transposed", "unit"))

    def invert(inner: Scope, i: str, state: list[str]) -> list[str]:
        m = lanes.machine(inner)
        own, one = lanes.load(inner, a, product(inner, i, added(inner, "%n", 1))), m.constant(1.0)
        lanes.store(inner, m.div(1.0, inner.emit(f"select i1 {is_unit}, {lanes.kind} {one}, {lanes.kind} {own}")), inverses, i)
        return []
    loop(scope, "0", "%n", "1", (), invert)
    row, column = (scope.emit(f"select i1 {is_transposed}, i64 {x}, i64 {y}") for x, y in (("1", "%n"), ("%n", "1")))
    _substitute(lanes, scope, a, b, inverses, _Order(scope.emit(f"xor i1 {is_lower}, {is_transposed}"), row, column))
    lanes.separate(scope, matrices[2], b, sides, count)
    return "0"


def _slogdet(lanes: Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """The signs and the logarithms of the pivots."""
    square = product(scope, "%n", "%n")
    a, l, inverses = _places(lanes, scope, scratch, square, "%n", "%n")  # noqa: E741
    lanes.interleave(scope, a, matrices[0], square, count)
    bits = _eliminate(lanes, scope, a, a, l, inverses, "0")

    def one(inner: Scope, i: str, state: list[str]) -> list[str]:
        m, pivot = lanes.machine(inner), lanes.load(inner, a, added(inner, product(inner, i, "%n"), i))
        sign = m.select(m.compare("lt", pivot, 0.0), m.neg(state[0]), state[0])
        return [sign, m.add(state[1], log(m, m.abs(pivot)))]
    start = [(lanes.kind, lanes.load(scope, inverses, "%n")), (lanes.kind, "zeroinitializer")]
    mask = first_lanes(scope, count, lanes.count)
    for found, place in zip(loop(scope, "0", "%n", "1", start, one), matrices[1:], strict=True):
        store_first(scope, lanes.kind, found, place, mask)
    return bits


def _cholesky(lanes: Lanes, scope: Scope, matrices: Sequence[str], count: str, scratch: str) -> str:
    """Column after column, each taken from those behind it, of the lower triangle."""
    square = product(scope, "%n", "%n")
    a, l = _places(lanes, scope, scratch, square, "%n")  # noqa: E741
    lanes.interleave(scope, a, matrices[0], square, count)

    def larger(inner: Scope, i: str, state: list[str]) -> list[str]:
        m = lanes.machine(inner)
        return [m.maximum(lanes.load(inner, a, product(inner, i, added(inner, "%n", 1))), state[0])]
    largest, = loop(scope, "0", "%n", "1", [(lanes.kind, "zeroinitializer")], larger)
    limit = _limit(lanes, scope, largest)

    def column(outer: Scope, k: str, state: list[str]) -> list[str]:
        m, below = lanes.machine(outer), added(outer, k, 1)
        line = lanes.at(outer, a, product(outer, k, "%n"))
        square = lanes.load(outer, line, k)
        root = m.sqrt(square)
        inverse = m.div(1.0, root)
        lanes.store(outer, root, line, k)

        def factor(inner: Scope, i: str, none: list[str]) -> list[str]:
            m, place = lanes.machine(inner), lanes.at(inner, a, added(inner, product(inner, i, "%n"), k))
            x = m.mul(lanes.load(inner, place), inverse)
            lanes.store(inner, x, place)
            lanes.store(inner, m.neg(x), l, i)
            lanes.store(inner, "zeroinitializer", line, i)
            return []
        loop(outer, below, "%n", "1", (), factor)

        def some(inner: Scope, j: str, width: int) -> None:
            right = [lanes.load(inner, l, added(inner, j, c)) for c in range(width)]

            def row(deep: Scope, i: str, none: list[str]) -> list[str]:
                m, place = lanes.machine(deep), lanes.at(deep, a, added(deep, product(deep, i, "%n"), j))
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
    Operation("solve", ("nn", "nm", "nm"), ("n", "m"), _solve, 8),
    Operation("triangular_solve", ("nn", "nm", "nm"), ("n", "m", "lower", "transposed", "unit"), _triangular_solve, 2),
    Operation("slogdet", ("nn", "", ""), ("n",), _slogdet, 8),
    Operation("cholesky", ("nn", "nn"), ("n",), _cholesky, 3),
    Operation("eigh", ("nn", "n", "nn"), ("n",)),
    Operation("eigenvalues", ("nn", "n"), ("n",)),
    Operation("svd", ("mn", "mu", "l", "vn"), ("m", "n", "full")),
    Operation("singular_values", ("mn", "l"), ("m", "n", "full")),
    Operation("qr", ("mn", "mu", "un"), ("m", "n", "full")),
    Operation("qr_triangle", ("mn", "un"), ("m", "n", "full")),
    Operation("pinv", ("mn", "", "nm"), ("m", "n")),
)
