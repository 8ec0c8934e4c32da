"""Arrays of a few columns as an array for each column, where columns are put together and taken apart again.

`vmap` of a function of short vectors (the state of a differential equation) stacks numbers along a new last axis, computes with
that array, takes its columns, and carries it through loops. Column by column all of this is plain maps, each element of which
reads what lies beside it; together it would be a choice among columns for each element, and strided loads. `np.stack` of arrays
does the same along the first axis. What a loop carries so is taken apart as well, since each trip is one kernel then.

Guarantees: the same values, bit for bit but for sums over columns and other axes, which add in another order; what something
else reads whole is put together for it; arrays whose columns nothing takes stay as they are, and so do functions that would
become much longer.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from loopwright.ir.attributes import Attributes
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.construct import full, scalar
from loopwright.ir.ops.control import scan, switch, while_
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.regions import split
from loopwright.ir.ops.structural import concatenate, pad, reshape, slice_
from loopwright.ir.rewriting import simplify
from loopwright.ir.source import Source
from loopwright.ir.types import ArrayType
from loopwright.lower.stacks import COMBINING, folds_along

MOST_COLUMNS = 8
MOST_ROUNDS = 3  # columns that a loop takes may come as columns from the loop around it
MOST_NODES = 1024  # that the columns of arrays which belong together become


def unstacked(g: Graph) -> Graph:
    """g and the bodies of its loops by columns, where that is worth it; g itself where nothing is."""
    for along in (LAST, FIRST):
        for _ in range(MOST_ROUNDS):
            made = _Columns(g, along)
            if not made.is_changed:
                break
            g = simplify(made.graph(g.params, made.results()))
    return g


@dataclass(frozen=True)
class _Axis:
    """The axis along which columns are beside one another: the last one, or the first."""

    at: int  # among an array's axes

    def of(self, rank: int) -> int:
        """Counted from the front."""
        return self.at % rank

    def rest(self, xs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Without this axis's."""
        return xs[:-1] if self.at else xs[1:]

    def joined(self, xs: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        """With x as this axis's."""
        return (*xs, x) if self.at else (x, *xs)

    def column(self, v: Value) -> ArrayType:
        """The type of a column."""
        return v.type.with_shape(self.rest(v.type.shape))


LAST, FIRST = _Axis(-1), _Axis(0)


class _Columns:
    """A graph on its way to columns.

    `offered`: parameters of a loop's body that may come as columns, with the result that then has to go so as well, if there is
    one. `given`: parameters that do come so. `is_body`: of a loop, where columns may be single numbers.
    """

    def __init__(self, g: Graph, along: _Axis, offered: Mapping[Value, Value | None] = {}, given: Iterable[Value] = (),
                 is_body: bool = False) -> None:
        self.g, self.along, self.least_rank = g, along, 1 if is_body else 2
        self.producer = {n.outputs[0]: n for n in g.nodes if len(n.outputs) == 1}
        chosen = self._worth_it(self._found(offered), offered) if is_body or along is LAST else set[Value]()
        self.apart = chosen | set(given)
        self.is_changed = bool(self.apart)
        self.nodes: list[Node] = []
        self.source: Source | None = None
        self.taken: dict[tuple[Value, int], Value] = {}  # columns of what stays whole
        self.wholes: dict[Value, Value] = {}
        self.columns = {v: tuple([Value(along.column(v)) for _ in range(self._width(v))]) for v in g.params if v in self.apart}
        for n in g.nodes:
            self.source = n.source
            self._rewrite(n)

    def graph(self, params: Iterable[Value], results: Iterable[Value]) -> Graph:
        return Graph(tuple(params), tuple(self.nodes), tuple(results), self.g.constraints)

    def results(self) -> list[Value]:
        """The graph's results, whole."""
        return [self._whole(v) for v in self.g.results]

    def parts(self, v: Value) -> tuple[Value, ...]:
        """The columns of v, or v alone where it stays whole."""
        return self.columns.get(v) or (self._whole(v),)

    # ---- which arrays ---------------------------------------------------------------------------
    def _width(self, v: Value) -> int:
        """How many columns a value has, if they are few and known; else 0."""
        shape = v.type.shape
        width = shape[self.along.at] if len(shape) >= self.least_rank else 0
        return width if isinstance(width, int) and 1 < width <= MOST_COLUMNS else 0

    def _found(self, offered: Mapping[Value, Value | None]) -> set[Value]:
        """Stacks of columns and what is computed from them element by element, through carries too."""
        found = {v for v, after in offered.items() if after is None and self._width(v)}
        before = -1
        while len(found) > before:
            before = len(found)
            for v, n in self.producer.items():
                follows = not found.isdisjoint(n.inputs) and (_is_map(n) or _keeps_columns(n, self.along))
                if v not in found and self._width(v) and (follows or _is_stack(n, self.along)):
                    found.add(v)
            found |= {v for v, after in offered.items() if after in found}
        return found

    def _worth_it(self, found: set[Value], offered: Mapping[Value, Value | None]) -> set[Value]:
        """Of these, such as belong together with one whose columns are taken."""
        group = {v: {v} for v in found}
        for v in found:
            for x in (offered[v],) if v in offered else self.producer[v].inputs:
                if x in found and x not in group[v]:
                    group[v] |= group[x]
                    group.update(dict.fromkeys(group[v], group[v]))
        taken = {id(group[n.inputs[0]]) for n in self.g.nodes if _takes_columns(n, self.along) and n.inputs[0] in found}
        return {v for v in found if id(group[v]) in taken and len(group[v]) * self._width(v) <= MOST_NODES}

    # ---- nodes ----------------------------------------------------------------------------------
    def _rewrite(self, n: Node) -> None:
        if n.outputs and n.outputs[0] in self.apart:
            self.columns[n.outputs[0]] = tuple([self._computed(n, j) for j in range(self._width(n.outputs[0]))])
        elif n.op is scan:
            self._scan(n)
        elif n.op is while_:
            self._while(n)
        elif _takes_columns(n, self.along) and n.inputs[0] in self.columns:
            self._take(n) if n.op is slice_ else self._fold(n)
        else:
            regions = n.regions
            if n.op is switch and self.along is LAST:
                regions = tuple([unstacked(r) for r in regions])
                self.is_changed |= regions != n.regions
            self._add(n.op, [self._whole(x) for x in n.inputs], n.attrs, n.outputs, regions)

    def _add(self, op: Op, inputs: Iterable[Value], attrs: Attributes, outputs: Iterable[Value],
             regions: tuple[Graph, ...] = ()) -> None:
        self.nodes.append(Node(op, tuple(inputs), attrs, tuple(outputs), regions, self.source))

    def _emit(self, op: Op, inputs: Iterable[Value], type: ArrayType, **attrs: Any) -> Value:
        v = Value(type)
        self._add(op, inputs, attrs, (v,))
        return v

    def _computed(self, n: Node, j: int) -> Value:
        """Column j of what n makes."""
        if n.op is concatenate:
            return self._column(n.inputs[j], 0)
        if n.op is pad:
            its = n.attrs["start"][self.along.at]
            return self._column(n.inputs[0], 0) if j == its else self._filled(n.outputs[0], n.attrs["value"])
        type = self.along.column(n.outputs[0])
        attrs = n.attrs if _is_map(n) else {**n.attrs, "shape": type.shape}
        if n.op is broadcast:
            attrs = {**attrs, "axes": tuple([a if self.along is LAST else a - 1 for a in self.along.rest(n.attrs["axes"])])}
        return self._emit(n.op, [self._column(x, j) for x in n.inputs], type, **attrs)

    def _filled(self, v: Value, value: float) -> Value:
        """A column like v's of one number."""
        type = self.along.column(v)
        return self._emit(full, (), type, value=scalar(value, type.dtype), shape=type.shape, dtype=type.dtype)

    def _column(self, v: Value, j: int) -> Value:
        """Column j of any array."""
        if v in self.columns:
            return self.columns[v][j]
        if (v, j) not in self.taken:
            self.taken[v, j] = self._taken(v, j)
        return self.taken[v, j]

    def _taken(self, v: Value, j: int) -> Value:
        n, along, type = self.producer.get(v), self.along, self.along.column(v)
        if n is not None and n.op is full:
            return self._filled(n.outputs[0], n.attrs["value"])
        if n is not None and n.op is broadcast:
            x, axes = n.inputs[0], n.attrs["axes"]
            lies = along.of(v.type.rank)
            others = tuple([a - (a > lies) for a in axes if a != lies])
            if lies not in axes:
                return self._emit(broadcast, [self._whole(x)], type, shape=type.shape, axes=others)
            if x.type.shape[along.at] == v.type.shape[along.at]:
                return self._emit(broadcast, [self._column(x, j)], type, shape=type.shape, axes=others)
        rank = v.type.rank
        if v.type.shape[along.at] != 1:
            shape = along.joined(type.shape, 1)
            v = self._emit(slice_, [v], v.type.with_shape(shape), start=along.joined((0,) * (rank - 1), j), step=(1,) * rank,
                           shape=shape)
        return self._emit(reshape, [v], type, shape=type.shape)

    def _whole(self, v: Value) -> Value:
        """v as one array."""
        if v not in self.columns:
            return v
        if v not in self.wholes:
            shape = self.along.joined(self.along.rest(v.type.shape), 1)
            parts = [self._emit(reshape, [c], c.type.with_shape(shape), shape=shape) for c in self.columns[v]]
            self.wholes[v] = self._emit(concatenate, parts, v.type, axis=self.along.of(v.type.rank))
        return self.wholes[v]

    def _take(self, n: Node) -> None:
        """A column, or part of it."""
        column = self.columns[n.inputs[0]][n.attrs["start"][self.along.at]]
        start, step, shape = (self.along.rest(n.attrs[name]) for name in ("start", "step", "shape"))
        if column.type.shape != shape or any(s != 1 for s in step):
            column = self._emit(slice_, [column], column.type.with_shape(shape), start=start, step=step, shape=shape)
        self._add(reshape, [column], {"shape": n.attrs["shape"]}, n.outputs)

    def _fold(self, n: Node) -> None:
        """The columns one after another, then along the other axes; sums begin with 0, since -0.0 would stay."""
        whole, *rest = self.columns[n.inputs[0]]
        at = self.along.of(n.inputs[0].type.rank)
        others = tuple([a - (a > at) for a in n.attrs["axes"] if a != at])
        if n.op is reduce_sum:
            whole = self._emit(add, [self._filled(n.inputs[0], 0), whole], whole.type)
        for x in rest if others else rest[:-1]:
            whole = self._emit(COMBINING[n.op], [whole, x], whole.type)
        if others:
            self._add(n.op, [whole], {**n.attrs, "axes": others}, n.outputs)
        else:
            self._add(COMBINING[n.op], [whole, rest[-1]], {}, n.outputs)

    # ---- loops ----------------------------------------------------------------------------------
    def _given(self, v: Value, x: Value, inner: _Columns) -> list[Value]:
        """What a body is given for its parameter v, where x is the operand."""
        return [self._column(x, j) for j in range(len(inner.columns[v]))] if v in inner.columns else [self._whole(x)]

    def _come(self, out: Value, v: Value, inner: _Columns) -> list[Value]:
        """What a loop gives for its result `out`, which is the region's result v or rows of it."""
        if v not in inner.columns:
            return [out]
        self.columns[out] = tuple([Value(self.along.column(out)) for _ in inner.columns[v]])
        return [*self.columns[out]]

    def _scan(self, n: Node) -> None:
        """Columns of what stays in the loop, and of what it carries if its body makes them; rows too where nothing is carried:
        trips are elements of arrays then, along another axis than the first."""
        body, = n.regions
        constants, carry, rows = split(body.params, n.attrs["constants"], n.attrs["carry"])
        of_rows = not carry and self.along is LAST
        offered: dict[Value, Value | None] = dict.fromkeys((*constants, *rows) if of_rows else constants)
        inner = _Columns(body, self.along, {**offered, **dict(zip(carry, body.results, strict=False))}, is_body=True)
        self.is_changed |= inner.is_changed
        stay = [v for v, after in zip(carry, body.results, strict=False) if v not in inner.columns]
        operands = [self._given(v, x, inner) for v, x in zip(body.params, n.inputs, strict=True)]
        results, outputs = list[Value](), list[Value]()
        for k, (v, out) in enumerate(zip(body.results, n.outputs, strict=True)):
            is_whole = carry[k] in stay if k < len(carry) else not of_rows
            results += [inner._whole(v)] if is_whole else inner.parts(v)
            outputs += [out] if is_whole else self._come(out, v, inner)
        params = [inner.columns.get(v, (v,)) for v in body.params]
        counts = {"constants": sum(map(len, params[:len(constants)])),
                  "carry": sum(map(len, params[len(constants):len(constants) + len(carry)]))}
        region = inner.graph(chain(*params), results) if inner.is_changed else body
        self._add(scan, chain(*operands), {**n.attrs, **counts}, outputs, (region,))

    def _while(self, n: Node) -> None:
        condition, body = n.regions
        asked, constants, carry = split(n.inputs, n.attrs["condition_constants"], n.attrs["body_constants"])
        fixed, before = split(body.params, len(constants))
        offered = {**dict.fromkeys(fixed), **dict(zip(before, body.results, strict=True))}
        inner = _Columns(body, self.along, offered, is_body=True)
        self.is_changed |= inner.is_changed
        now = condition.params[len(asked):]
        given = [v for v, x in zip(now, before, strict=True) if x in inner.columns]
        test = _Columns(condition, self.along, given=given, is_body=True)
        self.is_changed |= test.is_changed
        operands = [self._given(v, x, inner) for v, x in zip((*fixed, *before), (*constants, *carry), strict=True)]
        results, outputs = list[Value](), list[Value]()
        for v, after, out in zip(before, body.results, n.outputs, strict=True):
            results += inner.parts(after) if v in inner.columns else [inner._whole(after)]
            outputs += self._come(out, after, inner) if v in inner.columns else [out]
        params = [inner.columns.get(v, (v,)) for v in body.params]
        known = [test.columns.get(v, (v,)) for v in condition.params]
        regions = (test.graph(chain(*known), test.results()) if test.is_changed else condition,
                   inner.graph(chain(*params), results) if inner.is_changed else body)
        attrs = {**n.attrs, "body_constants": sum(map(len, params[:len(fixed)]))}
        self._add(while_, (*(self._whole(v) for v in asked), *chain(*operands)), attrs, outputs, regions)


# ---- what nodes do -----------------------------------------------------------------------------------
def _is_stack(n: Node, along: _Axis) -> bool:
    """Whether n puts columns side by side, or one among numbers."""
    shape = n.outputs[0].type.shape
    if n.op is concatenate:
        return n.attrs["axis"] == along.of(len(shape)) and all(v.type.shape[along.at] == 1 for v in n.inputs)
    return n.op is pad and n.inputs[0].type.shape == along.joined(along.rest(shape), 1) and \
        isinstance(n.attrs["start"][along.at], int)


def _takes_columns(n: Node, along: _Axis) -> bool:
    """Whether n is a slice of one column, or of a part of it, or folds the columns."""
    if n.op is slice_:
        return n.attrs["shape"] != () and n.attrs["shape"][along.at] == 1 and isinstance(n.attrs["start"][along.at], int)
    return folds_along(n, along.at)


def _keeps_columns(n: Node, along: _Axis) -> bool:
    """Whether n repeats columns, or gives each of them another shape."""
    if n.op not in (reshape, broadcast) or n.inputs[0].type.rank < 2:
        return False
    x, y = n.inputs[0].type, n.outputs[0].type
    same = y.rank > 1 and x.shape[along.at] == y.shape[along.at]
    return same and (n.op is reshape or n.attrs["axes"][along.at] == along.of(y.rank))


def _is_map(n: Node) -> bool:
    """Whether each element of n depends on the same elements of its operands alone."""
    return n.op.shape is same_shape
