"""Chains of products for a GPU in passes over their columns, one block of rows to each block of threads: checked, then done.

Guarantees of a nest that is accepted: what is folded over a row, and what is multiplied last, is computed from products of
that row, of numbers that nothing stores to; each element of a result is one thread's; what is copied and what is summed is
shared out evenly. Every operation is the region's own, but for chains in one pass, which say so.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Set
from math import prod

from loopwright.ir.gpu_schedule import BLOCK, InPasses, InTiles
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, Local, Prefix, Reduce, When, transform, walk
from loopwright.ir.nest import Allocate, Block, Buffer, Contract, For, Let, Nest, Passes, Reduction, Running, Statement, Store
from loopwright.ir.types import F32, F64
from loopwright.lower.blocks import (
    BYTES,
    HALVES,
    MOST_RING,
    MOST_SHARED,
    STAGES,
    Loops,
    block_of_loops,
    half_of,
    in_order_of_memory,
    lanes_of,
    owned,
    sides,
)
from loopwright.lower.fusing import values
from loopwright.lower.registers import perfect

FOLDS = ("sum", "prod", "max", "min", "any", "all")


def in_passes(nest: Nest, x: InPasses) -> Nest:
    """The nest with a chain of products in passes. ValueError where it is none, or its tiles do not suit the threads."""
    root, = nest.body if len(nest.body) == 1 else (None,)
    if not isinstance(root, For) or root.bind != (BLOCK,):
        raise ValueError("the root has no loops that are bound to blocks alone")
    around, innermost = perfect(root)
    folds, numbers, last, inner = _parts(innermost.body, x.stage)
    _check_stores(inner.body[1:], [*(k for k, _ in around), inner.index])
    _check_stores(numbers, [k for k, _ in around])
    chain = _Chain(last.over, around)
    groups = _by_pass([dataclasses.replace(f, over=last.over, body=chain.with_products(f.body, f.over)) for f in folds])
    left, right = sides(chain.with_products(last.body, last.over), [*around, (inner.index, inner.extent)])
    if not chain.products:
        raise ValueError("its rows are no products")
    _check_loads(nest, [f.body for f in folds] + [last.body, *values((*inner.body[1:], *numbers))])
    rights = {k for e in (right, *(r for _, r in chain.sides)) for k in walk(e)}
    rows = block_of_loops([loop for loop in around if loop[0] not in rights], x.rows)
    columns, wide = block_of_loops(last.over, x.columns), block_of_loops([(inner.index, inner.extent)], x.width)
    products = tuple([_contract(nest, x, e, parts, rows, columns, f"p{k}")
                      for k, (e, parts) in enumerate(zip(chain.products, chain.sides, strict=True))])
    whole = Reduce("sum", last.over, last.body, last.dtype, last.fused)
    total = _contract(nest, _of_last(x, left, right), whole, (left, right), rows, wide, f"{last.name}_sums")
    after = tuple([_with_values(s, _reads(last.name, total)) for s in inner.body[1:]])
    running = _running(groups, left) if x.running else None
    made = Passes(rows, columns, products, groups, total, after, tuple(numbers), running)
    assert nest.threads is not None
    _check_unit(made, {f.name for f in folds})
    _check_shared(nest.threads, made)
    sums = Buffer(total.buffer, (x.rows, x.width), last.dtype, "local", "registers", prod((*total.heights, total.lanes)))
    body: tuple[Statement, ...] = (Allocate(sums), made)
    for part in (wide, rows):
        assert part.origin is not None and part.length is not None
        body = (For(part.origin, part.extent, body, step=part.length, bind=(BLOCK,)),)
    for k, n in reversed([loop for loop in around if loop[0] in rights]):
        body = (For(k, n, body, bind=(BLOCK,)),)
    return dataclasses.replace(nest, body=body)


def _parts(body: Sequence[Statement], stage: int) -> tuple[list[Reduction], list[Statement], Reduction, For]:
    """The folds of a row, the stores of its numbers, the last product's sum, and the loop that it is in. Numbers of a row are
    computed where they are read."""
    named: dict[str, Expr] = {}

    def inlined(e: Expr) -> Expr:
        return transform(e, lambda y: named.get(y.name) if isinstance(y, Local) else None)
    folds: list[Reduction] = []
    numbers: list[Statement] = []
    *before, inner = body
    for s in before:
        if isinstance(s, Let):
            named[s.name] = inlined(s.value)
        elif isinstance(s, Reduction) and not s.also and not s.bind and len(s.over) == 1 and s.monoid in FOLDS:
            folds.append(dataclasses.replace(s, body=inlined(s.body)))
        elif isinstance(s, Store):
            numbers.append(_with_values(s, inlined))
        else:
            raise ValueError("more than folds of its rows comes before the last product")
    if not isinstance(inner, For) or inner.bind or not isinstance(last := inner.body[0], Reduction):
        raise ValueError("no loop over columns, which nobody shares out, holds the last product")
    if last.name not in (f"s{stage}", f"r{stage}") or last.monoid != "sum" or last.also or not last.over:
        raise ValueError("the last loop does not begin with that sum")
    if any([n for _, n in f.over] != [n for _, n in last.over] for f in folds):
        raise ValueError("other rows than its own are folded")
    after = tuple([_with_values(s, inlined) for s in inner.body[1:]])
    last = dataclasses.replace(last, body=inlined(last.body))
    return folds, numbers, last, dataclasses.replace(inner, body=(last, *after))


def _with_values(s: Statement, change: Callable[[Expr], Expr]) -> Statement:
    if not isinstance(s, Let | Store) or (isinstance(s, Store) and s.when is not None):
        raise ValueError("more than stores follows it")
    return dataclasses.replace(s, value=change(s.value))


def _reads(name: str, total: Contract) -> Callable[[Expr], Expr]:
    """What follows a sum, with the name of its tile for its own."""
    def read(y: Expr) -> Expr | None:
        return Local(total.buffer, y.dtype) if isinstance(y, Local) and y.name == name else None
    return lambda e: transform(e, read)


class _Chain:
    """The products that a chain's rows are computed from, as sums over the terms of canonical names, and their sides."""

    def __init__(self, columns: Loops, around: Loops) -> None:
        self.columns, self.around = columns, around
        self.products: list[Reduce] = []
        self.sides: list[tuple[Expr, Expr]] = []

    def with_products(self, e: Expr, over: Loops) -> Expr:
        """e at the chain's own columns, with names for sums of products."""
        return transform(_at(e, {a: b for (a, _), (b, _) in zip(over, self.columns, strict=True)}), self._named)

    def _named(self, e: Expr) -> Expr | None:
        if isinstance(e, Prefix):
            raise ValueError("it holds a running fold")
        if not isinstance(e, Reduce):
            return None
        to = {k: Index(f"{self.columns[0][0].name}_{a}") for a, (k, _) in enumerate(e.over)}
        e = Reduce(e.monoid, tuple([(to[k], n) for k, n in e.over]), _at(e.body, to), e.dtype, e.fused)
        if e not in self.products:
            if e.monoid != "sum" or any(isinstance(y, Reduce | Prefix) for y in walk(e.body)):
                raise ValueError("its rows are computed from folds that are no sums of products")
            self.sides.append(sides(e.body, [*self.around, *self.columns]))
            self.products.append(e)
        return Local(f"p{self.products.index(e)}", e.dtype)


def _at(e: Expr, to: Mapping[Index, Index]) -> Expr:
    return transform(e, lambda y: to.get(y) if isinstance(y, Index) else None)


def _by_pass(folds: Sequence[Reduction]) -> tuple[tuple[Reduction, ...], ...]:
    """The folds, each in the first pass that has all that it reads."""
    found: list[list[Reduction]] = []
    number: dict[str, int] = {}
    for f in folds:
        k = max([number[y.name] + 1 for y in walk(f.body) if isinstance(y, Local) and y.name in number], default=0)
        found += [[]] if k == len(found) else []
        found[k].append(f)
        number[f.name] = k
    return tuple(map(tuple, found))


def _of_last(x: InPasses, left: Expr, right: Expr) -> InPasses:
    """The tiles of the last product: without tensor cores where its sides are no half floats, at half the depth."""
    return x if half_of(left) and half_of(right) else dataclasses.replace(x, unit="", depth=x.depth // (2 if x.unit else 1))


def _contract(nest: Nest, x: InPasses, e: Reduce, parts: tuple[Expr, Expr], rows: Block, columns: Block, name: str) -> Contract:
    """A product's tile. ValueError where the threads cannot share it out."""
    assert nest.threads is not None and columns.length is not None
    if e.dtype not in (F32, F64):
        raise ValueError("its products are no floats of 32 or 64 bits")
    depth = min(x.depth, 32) if x.unit else x.depth  # what is copied at once is checked for all of the chain
    high, wide, _ = owned(InTiles(x.stage, x.rows, columns.length, depth, x.unit), *parts, e.dtype, nest.threads)
    terms = tuple([Block(k, n) for k, n in in_order_of_memory(e.over, *parts)])
    return Contract(name, (), rows, columns, terms, *parts, e.dtype, (high,), wide, depth=x.depth, unit=x.unit)


# ---- in one pass --------------------------------------------------------------------------------
REFERENCE, WEIGHT = "reference", "weight"


def _running(groups: Sequence[Sequence[Reduction]], left: Expr) -> Running:
    """How the passes of a softmax are one. ValueError where they are none of one."""
    folds = [f for folds in groups for f in folds]
    if [f.monoid for f in folds] != ["max", "sum"] or len(groups) != 2:
        raise ValueError("rows are folded otherwise than by a maximum and then a sum")
    high, total = folds
    match total.body:
        case Apply(fn="exp", args=(Apply(fn="sub", args=(x, reference), dtype=dtype),)) \
                if x == high.body and _is_of_row(reference, {high.name}):
            weight = Apply("exp", (Apply("sub", (x, Local(REFERENCE, reference.dtype)), dtype),), total.body.dtype)
            return Running(reference, weight, *_quotient(left, total.body, {high.name, total.name}))
    raise ValueError("the sum is none of exponentials of differences from the maximum")


def _quotient(left: Expr, weight: Expr, known: set[str]) -> tuple[Expr, Expr | None]:
    """A side that is a weight, converted or divided by what is a row's: with a name for the weight, and by what."""
    if left == weight:
        return Local(WEIGHT, weight.dtype), None
    match left:
        case Apply(fn="convert", args=(inner,)):
            made, divisor = _quotient(inner, weight, known)
            return Apply("convert", (made,), left.dtype), divisor
        case Apply(fn="div", args=(inner, divisor)) if _is_of_row(divisor, known):
            made, other = _quotient(inner, weight, known)
            if other is None and left.dtype == inner.dtype:
                return made, divisor
    raise ValueError("the last product's side is no quotient of a weight and a number of its row")


def _is_of_row(e: Expr, known: set[str]) -> bool:
    """Whether an expression is made of these numbers of a row alone."""
    return all(isinstance(y, Apply | Literal | When) or (isinstance(y, Local) and y.name in known) for y in walk(e))


# ---- legality -----------------------------------------------------------------------------------
def _check_unit(s: Passes, folds: Set[str]) -> None:
    """ValueError where tensor cores do not make the last product, but the others, and a thread has not the rows there of which
    it has the folds that are asked for."""
    read = {y.name for e in values(s.body) for y in walk(e) if isinstance(y, Local)}
    if s.last.unit != s.products[0].unit and (s.running is not None or not read.isdisjoint(folds)):
        raise ValueError("what follows the last product, which is none of half floats, reads folds of threads that have others")


def _check_stores(body: Sequence[Statement], loops: Sequence[Index]) -> None:
    """ValueError where two places of the loops store to one element."""
    for s in body:
        if isinstance(s, Store) and (s.combine != "set" or any(k not in s.index for k in loops)):
            raise ValueError(f"several threads would store to an element of {s.buffer}")


def _check_loads(nest: Nest, exprs: Sequence[Expr]) -> None:
    """ValueError where something is read that the kernel stores to."""
    inputs = {b.name for b in nest.buffers if b.role == "input"}
    if any(isinstance(y, Load) and y.array not in inputs for e in exprs for y in walk(e)):
        raise ValueError("it reads what it stores, or what is kept elsewhere")


def _check_shared(threads: tuple[int, int], s: Passes) -> None:
    """ValueError where what is copied, and what is kept, does not fit into shared memory."""
    length, depth = s.columns.length, s.last.depth
    assert isinstance(length, int)
    if len({p.dtype for p in (*s.products, s.last)}) > 1:
        raise ValueError("its products differ in their types")
    if by_warps(threads, s) and near_warps(s) <= MOST_RING:
        return
    if length < depth:
        raise ValueError("a tile has fewer columns than terms are copied at a time")
    assert isinstance(s.rows.length, int)
    agreeing = s.rows.length * (threads[1] // 2 + 1) * 4 if s.running is not None and s.last.unit else 0
    if near(threads, s) + prod(kept(s)) * itemsize(s.last) + agreeing > MOST_SHARED:
        raise ValueError(f"what is copied and kept takes more than {MOST_SHARED} bytes")


def by_warps(threads: tuple[int, int], s: Passes) -> bool:
    """Whether each warp has rows of its own, 16 or 32, where tensor cores make all products: then nothing of a row goes through
    shared memory. Places of several loops would take too many registers there."""
    read = {y.name for y in walk(s.last.left) if isinstance(y, Local)}
    return {p.unit for p in (*s.products, s.last)} == {"mma"} and not s.columns.of \
        and s.rows.length in (16 * threads[1], 32 * threads[1]) and not read.isdisjoint(p.buffer for p in s.products)


def near_warps(s: Passes) -> int:
    """Bytes of shared memory that hold what is copied where each warp has rows of its own: of each product two stages of both
    sides, of the last one the right side of a tile."""
    parts = [(STAGES, n, p.depth) for p in s.products for n in (p.rows.length, p.columns.length)]
    return sum(k * side_bytes(n, depth) for k, n, depth in (*parts, (1, s.last.columns.length, s.columns.length))
               if n is not None and depth is not None)


def side_bytes(positions: int, terms: int) -> int:
    """Bytes of half floats, whichever of both lie side by side."""
    return 2 * max(positions * (terms + HALVES), terms * (positions + HALVES))


def itemsize(s: Contract) -> int:
    """Bytes of an element in shared memory."""
    return 2 if s.unit else s.dtype.itemsize


def padding(s: Contract) -> int:
    """By how many elements rows in shared memory are longer."""
    return HALVES if s.unit else lanes_of(s.dtype.itemsize, BYTES)


def kept(s: Passes) -> tuple[int, int]:
    """The extents of the array that holds the last product's left side: for tensor cores rows by columns, else turned."""
    rows, columns = s.rows.length, s.columns.length
    assert isinstance(rows, int) and isinstance(columns, int)
    return (rows, columns + padding(s.last)) if s.last.unit else (columns, rows + padding(s.last))


def sharers(threads: tuple[int, int], unit: str) -> int:
    """How many threads have parts of the same rows."""
    return threads[0] * threads[1] // 16 if unit else threads[0]


def near(threads: tuple[int, int], s: Passes) -> int:
    """Bytes of shared memory that hold what is copied, or the folds of all threads."""
    assert isinstance(s.rows.length, int)

    def stages(p: Contract, lengths: Sequence[int]) -> int:
        pad = padding(p)
        return STAGES * itemsize(p) * sum(max(n * (p.depth + pad), p.depth * (n + pad)) for n in lengths)
    copied = [stages(p, [n for n in (p.rows.length, p.columns.length) if n is not None]) for p in s.products]
    assert isinstance(s.last.columns.length, int)
    table = s.rows.length * (sharers(threads, s.products[0].unit) + 1) * 8
    return max(*copied, stages(s.last, [s.last.columns.length]), table)
