"""Blocks of products that a mask leaves out, as the half of a causal attention's scores: they are not multiplied.

A comparison of rows and columns tells of a whole block whether it may hold somewhere in it: at the corner where it holds first.

Guarantees: every result is what it is with all blocks. What is left out are sums that nothing reads, and terms that are zeros
times finite numbers. Whether they are zeros may depend on a number of each row: an exponential of what a mask replaced is 0
where the row's maximum is not as small, and 0 / y where y is neither 0 nor NaN. That is found out for each block of rows.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import numpy as np

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.loops import (
    Apply,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    Size,
    When,
    integer,
    parts,
    plus,
    transform,
    walk,
    with_parts,
)
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Nest, Parts, Reduction, Statement, Store, altered
from loopwright.ir.types import BOOL, F32, F64, I64
from loopwright.lower.fusing import expressions
from loopwright.lower.tiling import Body, every, growth, read_by

OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
LEAST = {F32: -151.0, F64: -1076.0}  # of what is less exp and exp2 are 0
Tests = frozenset[Expr]  # comparisons that all hold
Names = Mapping[Expr, Expr]  # indices, and what stands for them


@dataclass(frozen=True)
class Need:
    """A number of each row, in the loop over rows with the statement `where`; how those of a block become one, from the best;
    and a test of that one."""

    value: Expr
    where: Statement
    best: float
    combine: str
    holds: Callable[[Expr], Expr]

    @classmethod
    def not_small(cls, value: Expr, where: Statement, most: float) -> Need:
        """exp(most - value) is 0."""
        a, b = Literal(most, value.dtype), Literal(LEAST[value.dtype], value.dtype)
        return cls(value, where, math.inf, "min", lambda x: _less(Apply("sub", (a, x), x.dtype), b))

    @classmethod
    def not_zero(cls, value: Expr, where: Statement) -> Need:
        return cls(_abs(value), where, math.inf, "min", lambda x: _less(Literal(0.0, x.dtype), x))

    @classmethod
    def finite(cls, value: Expr, where: Statement) -> Need:
        return cls(_abs(value), where, 0.0, "max", _is_finite)


@dataclass(frozen=True)
class Zero:
    """A factor is zero where one of some comparisons does not hold, if some numbers of its row are as they have to be."""

    tests: Tests = frozenset()
    needs: tuple[Need, ...] = ()


def skip(nest: Nest, stage: int) -> Nest:
    """The nest whose product of a stage goes past the blocks that masks leave out."""
    names = f"s{stage}_sums", f"r{stage}_sums", f"t{stage}"
    found = [s for s in every(nest.body) if isinstance(s, Contract) and s.buffer in names]
    if len(found) != 1 or found[0].when is not None:
        raise ValueError("there is no such product of blocks, or it goes past some already")
    product = found[0]
    masked = _Masked(nest, product, stage)
    sums, terms = masked.where_read(), masked.where_not_zero()
    body, when = nest.body, [] if sums is None else [sums]
    if terms is not None:
        test, needs = terms
        greatest, infinite = masked.greatest()
        body = _before(body, greatest, product, read_by(greatest.body)[0] - {k for k, _ in greatest.over})
        for k, need in enumerate(needs):
            body, holds = _worst(body, need, f"worst{stage}_{k}")
            test = _or(test, _not(holds))
        when.append(_or(test, infinite))
        if isinstance(product.left, Load) and product.left.array == f"{product.buffer}_left":
            body = _guarded(body, f"{product.buffer}_left", when[-1])
    if not when:
        raise ValueError("no mask leaves out blocks of its sums or terms")
    return altered(nest, body=_replaced(body, product, altered(product, when=reduce(_and, when))))


def leaves_out(nest: Nest, stage: int) -> bool:
    """Whether masks leave out blocks of a product."""
    try:
        skip(nest, stage)
    except ValueError:
        return False
    return True


class _Masked:
    """A product of blocks in a nest, and what is known of its sums and terms."""

    def __init__(self, nest: Nest, product: Contract, stage: int) -> None:
        self.nest, self.product, self.stage = nest, product, stage
        self.arrays = {b.name for b in nest.buffers}

    def _whole(self, side: Expr) -> Expr:
        """A side of the product before it is divided into parts, as its loops read it."""
        divided = {s.target: s.value for s in every(self.nest.body) if isinstance(s, Parts)}
        return divided.get(str(side.array), side) if isinstance(side, Load) else side

    @cached_property
    def _stores(self) -> dict[str, tuple[Store, Statement] | None]:
        """What is stored to each local buffer, and the statement that does, where that is one store."""
        found: dict[str, tuple[Store, Statement] | None] = {}
        for s in every(self.nest.body):
            for x in (s, *(s.also if isinstance(s, Reduction) else ())):
                if isinstance(x, Store):
                    plain = x.combine == "set" and x.when is None and x.buffer not in found
                    found[x.buffer] = (x, s) if plain else None
                elif isinstance(x, Contract):
                    found[x.buffer] = None
        return found

    # ---- sums ------------------------------------------------------------------------------------
    def where_read(self) -> Expr | None:
        """A test of blocks: whether any of their sums are read. None: all may be."""
        p, found = self.product, list[Expr]()
        for e in expressions(self.nest.body):
            for load, tests in _reads(e, p.buffer):
                names = _matched(load.index, p.at)
                known = [] if names is None else self._somewhere(_renamed(tests, names), (p.rows, p.columns))
                if not known:
                    return None
                found.append(reduce(_and, known))
        return reduce(_or, dict.fromkeys(found)) if found else None

    def _somewhere(self, tests: Iterable[Expr], blocks: Sequence[Block]) -> list[Expr]:
        """Tests of blocks, which fail where one of some comparisons holds nowhere in one."""
        around = {f.index for f in _path(self.nest.body, self.product) or ()}
        found = [_possible(t, blocks) for t in tests]
        return sorted((t for t in found if t is not None and self._is_known(t, around)), key=repr)

    def _is_known(self, test: Expr, around: set[Index]) -> bool:
        return all(x in around if isinstance(x, Index) else x.array in self.arrays if isinstance(x, Load)
                   else isinstance(x, Apply | Literal | Size) for x in walk(test))

    # ---- terms -----------------------------------------------------------------------------------
    def where_not_zero(self) -> tuple[Expr, tuple[Need, ...]] | None:
        """A test of blocks: whether any of their rows' factors are not zero; and what it needs. None: all may be."""
        p = self.product
        if len(p.over) != 1 or p.over[0].length is None or p.fresh is None or p.dtype not in LEAST or p.pairs:
            return None
        zero = self._zero(self._whole(p.left), {}, None)
        known = self._somewhere(zero.tests, (p.rows, p.over[0]))
        if not known or not self._reads_arrays() or not all(map(self._is_of_a_row, zero.needs)):
            return None
        test = reduce(_and, known)  # the block that begins a sum is always multiplied
        return test if p.fresh == Literal(False, BOOL) else _or(p.fresh, test), zero.needs

    def _reads_arrays(self) -> bool:
        """Whether the columns' factors are computed from the kernel's operands alone."""
        right = self._stored(self._whole(self.product.right), {})
        return right is not None and all(x.array in self.arrays if isinstance(x, Load) else not isinstance(x, Local)
                                         for x in walk(right[0]))

    def _is_of_a_row(self, need: Need) -> bool:
        """Whether a number is made in a loop over a block of the product's rows, or of those that are its terms."""
        p, path = self.product, _path(self.nest.body, need.where)
        if not path or path[-1].lanes > 1 or path[-1].origin not in (p.rows.origin, p.over[0].origin):
            return False
        return path[-1].origin in {f.index for f in path} and read_by(need.value)[0] <= {f.index for f in path}

    def greatest(self) -> tuple[Reduction, Expr]:
        """The fold of what is greatest among the columns' factors, and a test that one of them is not finite."""
        p, right = self.product, self._stored(self._whole(self.product.right), {})
        assert right is not None
        name = f"greatest{self.stage}"
        over = tuple([(Index(f"{name}_{k}"), b.extent) for k, b in enumerate((p.over[0], p.columns))])
        value = _abs(_with({p.over[0].index: over[0][0], p.columns.index: over[1][0]}, right[0]))
        return Reduction(name, "max", over, value, value.dtype, p.lanes, 4), _not(_is_finite(Local(name, value.dtype)))

    def _stored(self, e: Expr, names: Names) -> tuple[Expr, Names, Statement | None] | None:
        """What an element of a local buffer is, what stands for the indices of the loops that store it, and the statement that
        does; any other expression as it is."""
        if not isinstance(e, Load) or e.array in self.arrays:
            return e, names, None
        store, where = self._stores.get(str(e.array)) or (None, None)
        found = None if store is None else _matched(store.index, tuple([_with(names, x) for x in e.index]))
        return None if store is None or found is None else (store.value, found, where)

    def _zero(self, e: Expr, names: Names, where: Statement | None) -> Zero:
        """When a factor is zero, which a statement makes; names: what stands for the indices of that one's loops."""
        match e:
            case Load():
                stored = self._stored(e, names)
                return Zero() if stored is None or stored[0] is e else self._zero(*stored)
            case Apply(fn="select", args=(test, a, b)) | When(test, a, b) if _is(a, 0) or _is(b, 0):
                tests = _conjuncts(test, _is(b, 0))
                return Zero(_renamed(tests, names)) if tests else self._zero(a if _is(b, 0) else b, names, where)
            case Apply(fn="neg" | "convert", args=(a,)):
                return self._zero(a, names, where)
            case Apply(fn="exp" | "exp2", args=(Apply(fn="sub", args=(a, b)),)) if e.dtype in LEAST:
                tests, most = _replacing(a)
                return self._if(Zero(_renamed(tests, names)), b, names, where, lambda y, at: Need.not_small(y, at, most))
            case Apply(fn="exp" | "exp2", args=(a,)) if e.dtype in LEAST:
                tests, most = _replacing(a)
                return Zero(_renamed(tests, names)) if most < LEAST[e.dtype] else Zero()
            case Apply(fn="mul", args=(a, Literal() as b)) | Apply(fn="mul", args=(Literal() as b, a)) if np.isfinite(b.value):
                return self._zero(a, names, where)
            case Apply(fn="div", args=(a, b)):
                return self._if(self._zero(a, names, where), b, names, where, Need.not_zero)
            case Apply(fn="mul", args=(a, b)):
                first = self._if(self._zero(a, names, where), b, names, where, Need.finite)
                return first if first.tests else self._if(self._zero(b, names, where), a, names, where, Need.finite)
        return Zero()

    def _if(self, zero: Zero, of: Expr, names: Names, where: Statement | None,
            need: Callable[[Expr, Statement], Need]) -> Zero:
        """The same, if a number of the row is as it has to be, too."""
        stored = self._stored(of, names) if zero.tests else None
        at = None if stored is None else stored[2] or where
        return Zero() if stored is None or at is None else Zero(zero.tests, (*zero.needs, need(stored[0], at)))


# ---- comparisons ------------------------------------------------------------------------------------
def _reads(e: Expr, buffer: str) -> list[tuple[Load, Tests]]:
    """The reads of a buffer, with the comparisons that hold where they count."""
    found, seen = list[tuple[Load, Tests]](), set[tuple[Expr, Tests]]()

    def visit(x: Expr, tests: Tests) -> None:
        if buffer not in read_by(x)[1] or (x, tests) in seen:
            return
        seen.add((x, tests))
        match x:
            case Load(array=name) if name == buffer:
                found.append((x, tests))
            case Apply(fn="select", args=(test, a, b)) | When(test, a, b):
                visit(test, tests)
                visit(a, tests | _conjuncts(test, True))
                visit(b, tests | _conjuncts(test, False))
            case _:
                for part in parts(x):
                    visit(part, tests)
    visit(e, Tests())
    return found


def _conjuncts(test: Expr, holds: bool) -> Tests:
    """Comparisons that all hold where a test does, or does not."""
    match test:
        case Apply(fn="bitwise_and", args=(a, b)) if holds:
            return _conjuncts(a, True) | _conjuncts(b, True)
        case Apply(fn="bitwise_or", args=(a, b)) if not holds:
            return _conjuncts(a, False) | _conjuncts(b, False)
        case Apply(fn="bitwise_not", args=(a,)):
            return _conjuncts(a, not holds)
        case Apply(fn=fn, args=(a, b)) if fn in OPPOSITE and a.dtype.kind in "iu":
            return Tests((test if holds else Apply(OPPOSITE[fn], (a, b), BOOL),))
    return Tests()


def _replacing(e: Expr) -> tuple[Tests, float]:
    """Comparisons that all hold where a value is not replaced by constants, and the greatest of these."""
    match e:
        case Apply(fn="select", args=(test, value, Literal(int() | float() as most))) \
                | When(test, value, Literal(int() | float() as most)):
            kept = True
        case Apply(fn="select", args=(test, Literal(int() | float() as most), value)) \
                | When(test, Literal(int() | float() as most), value):
            kept = False
        case _:
            return Tests(), -math.inf
    tests, more = _replacing(value)
    return _conjuncts(test, kept) | tests, max(float(most), more)


def _possible(test: Expr, blocks: Sequence[Block]) -> Expr | None:
    """Whether a comparison may hold somewhere in blocks of positions, by the corner where it holds first."""
    assert isinstance(test, Apply)
    less, more = test.args if test.fn in ("lt", "le") else reversed(test.args)
    corner: dict[Expr, Expr] = {}
    for b in blocks:
        steps = growth(less, b.index), growth(more, b.index)
        if steps[0] is None or steps[1] is None or b.origin is None or b.length is None:
            return None
        if steps[0] != steps[1]:
            corner[b.index] = b.origin if steps[0] > steps[1] else plus(b.origin, integer(b.length - 1))
    return _with(corner, test) if corner else None


def _is(e: Expr, value: float) -> bool:
    return isinstance(e, Literal) and bool(np.equal(e.value, value))


def _is_finite(e: Expr) -> Expr:
    """Of what is not negative."""
    return _less(e, Literal(math.inf, e.dtype))


def _less(a: Expr, b: Expr) -> Expr:
    return Apply("lt", (a, b), BOOL)


def _abs(e: Expr) -> Expr:
    return Apply("abs", (e,), e.dtype)


def _and(a: Expr, b: Expr) -> Expr:
    return Apply("bitwise_and", (a, b), BOOL)


def _or(a: Expr, b: Expr) -> Expr:
    return Apply("bitwise_or", (a, b), BOOL)


def _not(a: Expr) -> Expr:
    return Apply("bitwise_not", (a,), BOOL)


# ---- indices ----------------------------------------------------------------------------------------
def _matched(pattern: Sequence[Expr], found: Sequence[Expr]) -> dict[Expr, Expr] | None:
    """What stands for the indices of some expressions in others; None where these differ in more than that."""
    names: dict[Expr, Expr] = {}

    def match(a: Expr, b: Expr) -> bool:
        if isinstance(a, Index):
            return names.setdefault(a, b) == b
        inner = parts(b)
        return type(a) is type(b) and len(parts(a)) == len(inner) and with_parts(a, inner) == b \
            and all(map(match, parts(a), inner))
    return names if len(pattern) == len(found) and all(map(match, pattern, found)) else None


def _renamed(tests: Tests, names: Names) -> Tests:
    return Tests([_with(names, t) for t in tests])


def _with(names: Names, e: Expr) -> Expr:
    return transform(e, names.get) if names else e


# ---- statements -------------------------------------------------------------------------------------
def _path(body: Body, wanted: Statement) -> list[For] | None:
    """The loops around a statement, outer ones first."""
    for s in body:
        if s is wanted:
            return []
        if isinstance(s, For) and (inner := _path(s.body, wanted)) is not None:
            return [s, *inner]
    return None


def _before(body: Body, new: Statement, product: Contract, needed: frozenset[Index]) -> Body:
    """The statements with one more in the outermost loops that have these indices, before that with a product."""
    path = _path(body, product)
    if path and any(f.index in needed for f in path):
        return tuple([s.with_body(_before(s.body, new, product, needed - {s.index})) if s is path[0] else s for s in body])
    at = next(k for k, s in enumerate(body) if s is product or (path and s is path[0]))
    return (*body[:at], new, *body[at:])


def _worst(body: Body, need: Need, name: str) -> tuple[Body, Expr]:
    """The statements, which find out the worst of a block's rows, and a test that it is as it has to be."""
    dtype, at, path = need.value.dtype, (Literal(0, I64),), _path(body, need.where)
    assert path is not None
    begin = Allocate(Buffer(name, (1,), dtype, "local")), Store(name, at, Literal(need.best, dtype))
    worse = Store(name, at, need.value, need.combine)

    def visit(body: Body) -> Body:
        found = list[Statement]()
        for s in body:
            if isinstance(s, For):
                inner = visit(s.body)
                s = s.with_body((*begin, *inner) if s.index == path[-1].origin and s in path else inner)
            found += [s, worse] if s is need.where else [s]
        return tuple(found)
    return visit(body), need.holds(Load(name, at, dtype))


def _guarded(body: Body, buffer: str, when: Expr) -> Body:
    """The statements, of which those that store to a buffer, or to what it is made of, do so under a condition."""
    def change(s: Statement) -> Statement:
        stored = s.buffer if isinstance(s, Store) else s.target if isinstance(s, Parts) else ""
        return altered(s, when=when) if stored in (buffer, f"{buffer}_whole") else s
    return _each(body, change)


def _replaced(body: Body, old: Contract, new: Contract) -> Body:
    return _each(body, lambda s: new if s is old else s)


def _each(body: Body, change: Callable[[Statement], Statement]) -> Body:
    return tuple([s.with_body(_each(s.body, change)) if isinstance(s, For) else change(s) for s in body])
