"""Arrays of a few columns as an array for each column, where columns are put together and taken apart again.

`vmap` of a function of short vectors (the state of a differential equation) stacks numbers along a new last axis, computes with
that array, takes its columns, and carries it through loops. Column by column all of this is plain maps, each element of which
reads what lies beside it; together it would be a choice among columns for each element, and strided loads.

Guarantees: the same values, bit for bit; what something else reads whole is put together for it; arrays whose columns nothing
takes stay as they are, and so do functions that would become much longer.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.control import scan, switch, while_
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.regions import split
from loopwright.ir.ops.structural import concatenate, pad, reshape, slice_
from loopwright.ir.rewriting import simplify
from loopwright.ir.source import Source
from loopwright.ir.types import ArrayType

MOST_COLUMNS = 8
MOST_NODES = 512  # that the columns of arrays which belong together become


def unstacked(g: Graph) -> Graph:
    """g and the bodies of its loops by columns, where that is worth it; g itself where nothing is."""
    made = _Columns(g, {})
    return simplify(made.graph(g.params, made.results())) if made.is_changed else g


class _Columns:
    """A graph on its way to columns. `carried`: parameters that may come as columns if the result after them goes so."""

    def __init__(self, g: Graph, carried: Mapping[Value, Value]) -> None:
        self.g = g
        self.producer = {n.outputs[0]: n for n in g.nodes if len(n.outputs) == 1}
        self.apart = self._worth_it(self._found(carried), carried)
        self.is_changed = bool(self.apart)
        self.nodes: list[Node] = []
        self.source: Source | None = None
        self.columns: dict[Value, tuple[Value, ...]] = {}
        self.taken: dict[tuple[Value, int], Value] = {}  # columns of what stays whole
        self.wholes: dict[Value, Value] = {}
        for v in g.params:
            if v in self.apart:
                self.columns[v] = tuple([Value(_column_type(v)) for _ in range(_width(v))])
        for n in g.nodes:
            self.source = n.source
            self._rewrite(n)

    def graph(self, params: Iterable[Value], results: Iterable[Value]) -> Graph:
        return Graph(tuple(params), tuple(self.nodes), tuple(results), self.g.constraints)

    def results(self) -> list[Value]:
        """The graph's results, whole."""
        return [self._whole(v) for v in self.g.results]

    # ---- which arrays ---------------------------------------------------------------------------
    def _found(self, carried: Mapping[Value, Value]) -> set[Value]:
        """Stacks of columns and what is computed from them element by element, through carries too."""
        found: set[Value] = set()
        before = -1
        while len(found) > before:
            before = len(found)
            for v, n in self.producer.items():
                if v not in found and _width(v) and (_is_stack(n) or (not found.isdisjoint(n.inputs) and _is_map(n))):
                    found.add(v)
            found |= {v for v, following in carried.items() if following in found}
        return found

    def _worth_it(self, found: set[Value], carried: Mapping[Value, Value]) -> set[Value]:
        """Of these, such as belong together with one whose columns are taken."""
        group = {v: {v} for v in found}
        for v in found:
            for x in (carried[v],) if v in carried else self.producer[v].inputs:
                if x in found and x not in group[v]:
                    group[v] |= group[x]
                    group.update(dict.fromkeys(group[v], group[v]))
        taken = {id(group[n.inputs[0]]) for n in self.g.nodes if _takes_column(n) and n.inputs[0] in found}
        return {v for v in found if id(group[v]) in taken and len(group[v]) * _width(v) <= MOST_NODES}

    # ---- nodes ----------------------------------------------------------------------------------
    def _rewrite(self, n: Node) -> None:
        v = n.outputs[0] if n.outputs else None
        if v in self.apart:
            self.columns[v] = tuple([self._computed(n, j) for j in range(_width(v))])
        elif n.op is scan:
            self._loop(n)
        elif _takes_column(n) and n.inputs[0] in self.columns:
            self._take(n)
        else:
            regions = n.regions
            if n.op in (while_, switch):
                regions = tuple([unstacked(r) for r in regions])
                self.is_changed |= regions != n.regions
            self.nodes.append(Node(n.op, tuple([self._whole(x) for x in n.inputs]), n.attrs, n.outputs, regions, n.source))

    def _emit(self, op: Op, inputs: Sequence[Value], type: ArrayType, **attrs: object) -> Value:
        v = Value(type)
        self.nodes.append(Node(op, tuple(inputs), attrs, (v,), (), self.source))
        return v

    def _computed(self, n: Node, j: int) -> Value:
        """Column j of what n makes."""
        if n.op is concatenate:
            return self._joined(n.inputs, j)
        if n.op is pad:
            x, at = n.inputs[0], n.attrs["start"][-1]
            return self._column(x, j - at) if 0 <= j - at < x.type.shape[-1] else self._filled(n, n.attrs["value"])
        type = _column_type(n.outputs[0])
        return self._emit(n.op, [self._column(x, j) for x in n.inputs], type, **n.attrs)

    def _joined(self, parts: Iterable[Value], j: int) -> Value:
        """Column j of parts side by side."""
        for x in parts:
            width = x.type.shape[-1]
            if j < width:
                return self._column(x, j)
            j -= width
        raise AssertionError(f"no column {j}")

    def _filled(self, n: Node, value: object) -> Value:
        type = _column_type(n.outputs[0])
        return self._emit(full, (), type, value=value, shape=type.shape, dtype=type.dtype)

    def _column(self, v: Value, j: int) -> Value:
        """Column j of any array."""
        if v in self.columns:
            return self.columns[v][j]
        if (v, j) not in self.taken:
            self.taken[v, j] = self._taken(v, j)
        return self.taken[v, j]

    def _taken(self, v: Value, j: int) -> Value:
        n, type = self.producer.get(v), _column_type(v)
        if n is not None and n.op is full:
            return self._filled(n, n.attrs["value"])
        if n is not None and n.op is broadcast and v.type.rank - 1 not in n.attrs["axes"]:
            return self._emit(broadcast, [self._whole(n.inputs[0])], type, shape=type.shape, axes=n.attrs["axes"])
        rank = v.type.rank
        if v.type.shape[-1] != 1:
            shape = (*type.shape, 1)
            v = self._emit(slice_, [self._whole(v)], v.type.with_shape(shape), start=(*[0] * (rank - 1), j), step=(1,) * rank,
                           shape=shape)
        return self._emit(reshape, [self._whole(v)], type, shape=type.shape)

    def _whole(self, v: Value) -> Value:
        """v as one array."""
        if v not in self.columns:
            return v
        if v not in self.wholes:
            shape = (*v.type.shape[:-1], 1)
            parts = [self._emit(reshape, [c], c.type.with_shape(shape), shape=shape) for c in self.columns[v]]
            self.wholes[v] = self._emit(concatenate, parts, v.type, axis=v.type.rank - 1)
        return self.wholes[v]

    def _take(self, n: Node) -> None:
        """A column, or part of it."""
        x, start, step, shape = n.inputs[0], *(n.attrs[name] for name in ("start", "step", "shape"))
        column = self.columns[x][start[-1]]
        if column.type.shape != shape[:-1] or any(s != 1 for s in step[:-1]):
            column = self._emit(slice_, [column], column.type.with_shape(shape[:-1]), start=start[:-1], step=step[:-1],
                                shape=shape[:-1])
        self.nodes.append(Node(reshape, (column,), {"shape": shape}, n.outputs, (), n.source))

    def _loop(self, n: Node) -> None:
        """A scan, which carries columns where its body takes and makes them."""
        body, = n.regions
        constants, carry, rows = split(body.params, n.attrs["constants"], n.attrs["carry"])
        carried = {v: after for v, after in zip(carry, body.results, strict=False) if _width(v)}
        inner = _Columns(body, carried)
        apart = [v in inner.columns for v in carry]
        fixed, initial, xs = split(n.inputs, len(constants), len(carry))
        operands, params, outputs = [self._whole(v) for v in fixed], list(constants), list[Value]()
        results, made = list[Value](), iter(body.results)
        for v, x, out, is_apart in zip(carry, initial, n.outputs, apart, strict=False):
            after = next(made)
            if is_apart:
                self.columns[out] = tuple([Value(c.type) for c in inner.columns[v]])
                operands += [self._column(x, j) for j in range(_width(x))]
            else:
                operands.append(self._whole(x))
            params += inner.columns[v] if is_apart else (v,)
            results += inner.columns[after] if is_apart else (inner._whole(after),)
            outputs += self.columns[out] if is_apart else (out,)
        results += [inner._whole(v) for v in made]
        region = inner.graph((*params, *rows), results) if inner.is_changed else body
        self.is_changed |= inner.is_changed
        attrs = {**n.attrs, "carry": len(params) - len(constants)}
        self.nodes.append(Node(scan, (*operands, *(self._whole(v) for v in xs)), attrs,
                               (*outputs, *n.outputs[len(carry):]), (region,), n.source))


# ---- what nodes do -----------------------------------------------------------------------------------
def _width(v: Value) -> int:
    """How many columns a value has, if they are few, known, and of more than a number each; else 0."""
    shape = v.type.shape
    return shape[-1] if len(shape) > 1 and isinstance(shape[-1], int) and 1 < shape[-1] <= MOST_COLUMNS else 0


def _column_type(v: Value) -> ArrayType:
    return v.type.with_shape(v.type.shape[:-1])


def _is_stack(n: Node) -> bool:
    """Whether n puts columns side by side, each of which is an array already."""
    last = n.outputs[0].type.rank - 1
    if n.op is concatenate:
        return n.attrs["axis"] == last and all(v.type.shape[-1] == 1 for v in n.inputs)
    x = n.inputs[0] if n.op is pad else None
    return x is not None and x.type.shape == (*n.outputs[0].type.shape[:-1], 1) and all(s == 1 for s in n.attrs["step"])


def _takes_column(n: Node) -> bool:
    """Whether n is a slice of one column, or of a part of it."""
    return n.op is slice_ and n.attrs["shape"] != () and n.attrs["shape"][-1] == 1 and isinstance(n.attrs["start"][-1], int)


def _is_map(n: Node) -> bool:
    """Whether each element of n depends on the same elements of its operands alone."""
    return n.op.shape is same_shape
