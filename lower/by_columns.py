"""Folds of columns that turn out to be few: one down each, or one of all, with lanes down the rows, all in one pass.

Lanes along three columns are idle but for three. Where the number of columns is known, each is a fold of its own, whose vectors
are made of what lies side by side in memory. A kernel that adds up along its rows makes such sums apart from the rest.

Guarantees: every element is computed by the same expression; sums are made in another order.
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NoReturn

from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Expr, Index, LoopContext, When, integer, less, whole_number
from loopwright.ir.op import Op
from loopwright.ir.source import Source
from loopwright.ir.types import ArrayType
from loopwright.lower.composition import Position, fresh_indices, reads
from loopwright.lower.partials import block_sums
from loopwright.lower.row_products import row_products
from loopwright.lower.stacks import COMBINING, folds_along


def in_columns(region: Graph) -> Graph | None:
    """The region, whose result has a last axis of few positions, or folds one, with a value for each of them; None where a
    column asks for more than columns."""
    try:
        return _Columns(region).graph()
    except _Whole:
        return None


def adds_up(region: Graph) -> bool:
    """Whether a kernel adds up rows that it goes past, in blocks, beside what it stores of them."""
    sums = {v for n in region.nodes if n.op is block_sums for v in n.outputs}
    others = any(n.op is row_products for n in region.nodes)
    return not others and region.results[0] not in sums and not sums.isdisjoint(region.results)


def sums_apart(region: Graph) -> tuple[Graph, ...]:
    """The parts, in order, of a region that adds up along its rows: sums of what is not stored, all else, and sums of what was
    stored, which they read. What they take and give are the region's parameters and results."""
    adding = {n.outputs[0]: n for n in region.nodes if n.op is block_sums and n.outputs[0] in region.results}
    after = [n for n in adding.values() if n.inputs[0] in region.results]
    before = [(v,) for v, n in adding.items() if n not in after]
    rest = tuple([v for v in region.results if v not in adding])
    parts = [remove_dead(Graph(region.params, region.nodes, results)) for results in (*before, rest)]
    return (*parts, *(Graph(n.inputs, (n,), n.outputs) for n in after))


def is_sum(part: Graph) -> bool:
    """Whether a part is such a sum."""
    return any(n.op is block_sums and part.results == n.outputs for n in part.nodes)


class _Whole(Exception):
    """A column that asks for all columns of another value."""


class _Columns:
    def __init__(self, region: Graph) -> None:
        self.region, self.nodes = region, list[Node]()
        self.producer = {n.outputs[0]: n for n in region.nodes}
        self.made: dict[tuple[Value, int | None], Value] = {}

    def graph(self) -> Graph:
        result = self.region.results[0]
        whole = self.column(result, None) if result.type.rank == 0 else self._stacked(result)
        return Graph(self.region.params, tuple(self.nodes), (whole,))

    def _stacked(self, result: Value) -> Value:
        columns = [self.column(result, c) for c in range(int(str(result.type.shape[-1])))]
        return self._made(_stack(result.type), columns, result.type)

    def _made(self, op: Op, inputs: Iterable[Value], type: ArrayType, source: Source | None = None, **attrs: Any) -> Value:
        made = Value(type)
        self.nodes.append(Node(op, tuple(inputs), attrs, (made,), (), source))
        return made

    def column(self, v: Value, c: int | None) -> Value:
        """A column of what a node computes, or a single number of its."""
        if (v, c) not in self.made:
            self.made[v, c] = self._column(self.producer[v], c)
        return self.made[v, c]

    def _column(self, n: Node, c: int | None) -> Value:
        v = n.outputs[0]
        if c is None and folds_columns(n):
            return self._folded(n)
        free = tuple([Index(f"i{a}") for a in range(v.type.rank)])
        index: Position = free if c is None else (*free[:-1], integer(c))
        found: dict[tuple[int, int | None], Value] = {}
        for operand, at in reads(n, index, fresh_indices())[1]:
            x = n.inputs[operand]
            which = None if x in self.region.params or not at else _place(at)
            found[operand, which] = x if x in self.region.params else self.column(x, which)
        type = v.type if c is None else v.type.with_shape(v.type.shape[:-1])
        return self._made(self._op(n, c, list(found), type), found.values(), type, n.source, **n.attrs)

    def _folded(self, n: Node) -> Value:
        """A fold over columns and other axes: of the columns, one after another, along those axes."""
        x, combine = n.inputs[0], COMBINING[n.op]
        type = x.type.with_shape(x.type.shape[:-1])
        columns = [self._made(_taken(c, type), [x], type) if x in self.region.params else self.column(x, c)
                   for c in range(int(str(x.type.shape[-1])))]
        whole = reduce(lambda a, b: self._made(combine, [a, b], type, n.source), columns)
        axes = tuple([a for a in n.attrs["axes"] if a != x.type.rank - 1])
        return self._made(n.op, [whole], n.outputs[0].type, n.source, **{**n.attrs, "axes": axes}) if axes else whole

    def _op(self, n: Node, c: int | None, found: list[tuple[int, int | None]], made: ArrayType) -> Op:
        types, result, params = tuple([v.type for v in n.inputs]), n.outputs[0].type, self.region.params

        def loop(context: LoopContext, index: Position, **attrs: Any) -> Expr:
            def load(k: int, at: Position) -> Expr:
                if n.inputs[k] in params or not at:
                    return context.load(found.index((k, None)), at)
                return context.load(found.index((k, _place(at))), at[:-1])
            assert n.op.loop is not None
            whole = index if c is None else (*index, integer(c))
            return n.op.loop(LoopContext(types, result, load, context.fresh), whole, **attrs)
        return Op(name=n.op.name, doc=n.op.doc, infer=lambda types, regions, **attrs: (made,), numpy=_never, loop=loop)


def _place(at: Position) -> int:
    """The column that is read there."""
    place = whole_number(at[-1])
    if place is None:
        raise _Whole
    return place


def folds_columns(n: Node) -> bool:
    """Whether a node folds along the last axis of an operand of several."""
    return folds_along(n, -1) and n.inputs[0].type.rank > 1


def _taken(c: int, made: ArrayType) -> Op:
    """A column of an array."""
    def loop(context: LoopContext, index: Position) -> Expr:
        return context.load(0, (*index, integer(c)))
    return Op(name="column", doc="A column.", infer=lambda types, regions: (made,), numpy=_never, loop=loop)


def _stack(made: ArrayType) -> Op:
    """Columns side by side."""
    def loop(context: LoopContext, index: Position) -> Expr:
        count = len(context.types)
        found = context.load(count - 1, index[:-1])
        for c in reversed(range(count - 1)):
            found = When(less(index[-1], integer(c + 1)), context.load(c, index[:-1]), found)
        return found
    return Op(name="stack", doc="Columns side by side.", infer=lambda types, regions: (made,), numpy=_never, loop=loop)


def _never(*args: Any, **attrs: Any) -> NoReturn:
    raise AssertionError("what is made of columns is lowered, and not evaluated")
