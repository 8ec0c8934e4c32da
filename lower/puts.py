"""Writes to a part of what a loop carries, `x[0] = v` or `x[1:-1] = v`, as scatters: as maps they would walk through all of x.

Guarantees: the same values. Only where all that a trip makes of the carry is such writes and scatters, which then stay in its
memory (`lower.versions`), and where what is written is not computed of x itself, but for few places: it would be stored twice.
"""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loopwright.ir.dims import Shape
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Expr, Index, LoopContext, Scatter, integer, plus, times
from loopwright.ir.op import Op
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.indexing import SCATTERS
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import pad, window
from loopwright.ir.types import ArrayType
from loopwright.lower.versions import first_versions
from loopwright.lower.written import Window, written


def _loop(context: LoopContext, index: tuple[Expr, ...], start: Shape, step: tuple[int, ...]) -> Expr:
    over = tuple([(context.fresh(), n) for n in context.types[1].shape])
    at = tuple([k for k, _ in over])
    target = tuple([plus(integer(first), times(k, integer(by))) for k, first, by in zip(at, start, step, strict=True)])
    whole = tuple([k for k in index if isinstance(k, Index)])
    return Scatter(whole, context.load(0, index), over, target, context.load(1, at), "set", None)


def _numpy(x: np.ndarray, block: np.ndarray, start: tuple[int, ...], step: tuple[int, ...]) -> np.ndarray:
    out = np.array(x)
    out[window(block.shape, start, step)] = block
    return out


put = Op(
    name="put",
    doc="x with block[i] at start + step*i, as a scatter.",
    shape=lambda x, block, start, step: x.shape,
    dtype=lambda x, block, start, step: x.dtype,
    numpy=_numpy,
    loop=_loop,
)


def with_puts(g: Graph, carried: Mapping[int, Value]) -> Graph:
    """The body of a loop with such scatters; carried: the parameter that a result will be, by its number."""
    made = {v: n for n in g.nodes for v in n.outputs}
    found: dict[Value, dict[Node, tuple[Node, ...]]] = {}
    versions: dict[Value, list[Value]] = {}
    for k, v in carried.items():
        x, found[v], versions[v] = g.results[k], {}, []
        while x is not v and (n := made.get(x)) is not None and (n.op in SCATTERS or (nodes := _as_put(n, made))):
            versions[v].append(x)
            if n.op in SCATTERS:
                x = n.inputs[0]
            else:
                found[v][n], x = nodes, n.inputs[2]
        if x is not v or not found[v]:
            del found[v], versions[v]
    apart = {n for n in g.nodes if n.op in SCATTERS}.union(*found.values())
    changed: dict[Node, tuple[Node, ...]] = {}
    for v, puts in found.items():
        reads = first_versions(g, [v, *versions[v][::-1]], apart)
        if all(_is_narrow(n, made) or n.inputs[1] not in reads for n in puts):
            changed.update(puts)
    if not changed:
        return g
    return remove_dead(Graph(g.params, tuple([m for n in g.nodes for m in changed.get(n, (n,))]), g.results, g.constraints))


def _is_narrow(n: Node, made: Mapping[Value, Node]) -> bool:
    """Whether one position along some axis is written."""
    into = written(n, made)
    return into is not None and any(a == 1 != b for a, b in zip(into.shape, n.outputs[0].type.shape, strict=True))


def _as_put(n: Node, made: Mapping[Value, Node]) -> tuple[Node, ...]:
    """A write as a scatter; empty where n is none."""
    into, value = (written(n, made), made.get(n.inputs[1])) if n.op is select else (None, None)
    if into is None or value is None:
        return ()
    if value.op is full:
        block = Value(ArrayType(into.shape, value.outputs[0].type.dtype))
        before = Node(full, (), {**value.attrs, "shape": into.shape}, (block,), (), value.source)
        return before, _put(n, block, into)
    return (_put(n, value.inputs[0], into),) if value.op is pad and Window.of(value) == into else ()


def _put(n: Node, block: Value, into: Window) -> Node:
    return Node(put, (n.inputs[2], block), {"start": into.start, "step": into.step}, n.outputs, (), n.source)
