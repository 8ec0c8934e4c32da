"""Folds down columns that turn out to be few: a fold for each, with lanes down the rows, all in one pass.

Lanes along three columns are idle but for three. Where the number of columns is known, each is a fold of its own, whose vectors
are made of what lies side by side in memory.

Guarantees: every element is computed by the same expression; sums are made in another order.
"""
from __future__ import annotations

from typing import Any, NoReturn

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Expr, Index, LoopContext, When, integer, less, whole_number
from loopwright.ir.op import Op
from loopwright.ir.types import ArrayType
from loopwright.lower.composition import Position, fresh_indices, reads


def in_columns(region: Graph) -> Graph | None:
    """The region, whose result has one axis of few positions, with a value for each of these; None where a column asks for
    more than columns."""
    try:
        return _Columns(region).graph()
    except _Whole:
        return None


class _Whole(Exception):
    """A column that asks for all columns of another value."""


class _Columns:
    def __init__(self, region: Graph) -> None:
        self.region, self.nodes = region, list[Node]()
        self.producer = {n.outputs[0]: n for n in region.nodes}
        self.made: dict[tuple[Value, int | None], Value] = {}

    def graph(self) -> Graph:
        result = self.region.results[0]
        columns = tuple([self.column(result, c) for c in range(int(str(result.type.shape[-1])))])
        whole = Value(result.type)
        self.nodes.append(Node(_stacked(result.type), columns, {}, (whole,)))
        return Graph(self.region.params, tuple(self.nodes), (whole,))

    def column(self, v: Value, c: int | None) -> Value:
        """A column of what a node computes, or a single number of its."""
        if (v, c) not in self.made:
            self.made[v, c] = self._column(self.producer[v], c)
        return self.made[v, c]

    def _column(self, n: Node, c: int | None) -> Value:
        v = n.outputs[0]
        free = tuple([Index(f"i{a}") for a in range(v.type.rank)])
        index: Position = free if c is None else (*free[:-1], integer(c))
        found: dict[tuple[int, int | None], Value] = {}
        for operand, at in reads(n, index, fresh_indices())[1]:
            x = n.inputs[operand]
            which = None if x in self.region.params or not at else _place(at)
            found[operand, which] = x if x in self.region.params else self.column(x, which)
        shape = v.type.shape if c is None else v.type.shape[:-1]
        made = Value(v.type.with_shape(shape))
        self.nodes.append(Node(self._op(n, c, list(found), made.type), tuple(found.values()), n.attrs, (made,), (), n.source))
        return made

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


def _stacked(made: ArrayType) -> Op:
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
