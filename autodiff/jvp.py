"""Forward mode: push tangents through a graph.

Guarantees: the walk emits where its arguments live and builds no graph of its own; a tangent of None is zero; only
floating and complex values have tangents, of their own shape and dtype; an op that has no derivative raises
GradientError, and only when a tangent reaches it.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.autodiff.regions import WALKS, Regions
from loopwright.ir.builder import Builder, Ref, attributed
from loopwright.ir.errors import GradientError
from loopwright.ir.graph import Graph, Node, Value, renewed
from loopwright.ir.op import Op, home
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.construct import full
from loopwright.ir.source import Source
from loopwright.ir.types import ArrayType

Tangent = Ref | None


def push(graph: Graph, primals: Sequence[Ref], tangents: Sequence[Tangent], into: Builder,
         behind: Builder | None = None) -> tuple[list[Ref], list[Tangent]]:
    """The results of graph and their tangents. Nodes without operands go to `into`. `behind`, newer than every primal, is
    where all operations on tangents must go: loops are then run once for the primals, and once more for the tangents."""
    graph = renewed(graph)
    env = dict(zip(graph.params, primals, strict=True))
    moving = {v: t for v, t in zip(graph.params, tangents, strict=True) if t is not None}
    with attributed() as attribute:
        for n in graph.nodes:
            attribute(n.source)
            inputs = [env[v] for v in n.inputs]
            if n.op.rules is not None and not moving.keys().isdisjoint(n.inputs):
                along, engine = [moving.get(v) for v in n.inputs], Regions(into.scope)
                out, moved = (n.op.rules.jvp(engine, n, inputs, along) if behind is None
                              else n.op.rules.linearize(engine, n, inputs, along, behind))
                env.update(zip(n.outputs, out, strict=True))
                moving.update((v, t) for v, t in zip(n.outputs, moved, strict=True) if t is not None)
                continue
            env.update(zip(n.outputs, emit(n, inputs, into), strict=True))
            if n.op.rules is not None:
                continue
            result = n.outputs[0]
            if not moving.keys().isdisjoint(n.inputs) and result.type.is_inexact:
                t = _tangent(n.op, inputs, [moving.get(v) for v in n.inputs], env[result], n.attrs, n.source)
                if t is not None:
                    moving[result] = t
    return [env[v] for v in graph.results], [moving.get(v) for v in graph.results]


def emit(node: Node, inputs: Sequence[Ref], into: Builder) -> list[Ref]:
    """The node again, where its inputs live; without inputs, in `into`."""
    target = home(inputs) if inputs else into
    return target.bind_all(node.op, inputs, node.attrs, node.regions)


def _tangent(op: Op, primals: Sequence[Ref], tangents: Sequence[Tangent], out: Ref, attrs: Mapping[str, Any],
             source: Source | None) -> Tangent:
    if op.jvp is not None:
        return op.jvp(primals, tangents, out, **attrs)
    if any(t is not None and k not in op.linear for k, t in enumerate(tangents)):
        raise GradientError(f"{source}: {op.name} has no derivative. Keep it off the path from the differentiated arguments, "
                            f"or hold its operand constant.")
    if op.jointly:
        return op(*_with_zeros(op, primals, tangents), **attrs)
    total: Tangent = None
    for k in op.linear:
        if (t := tangents[k]) is not None:
            total = plus(total, op(*primals[:k], t, *primals[k + 1:], **attrs))
    return total


def _with_zeros(op: Op, primals: Sequence[Ref], tangents: Sequence[Tangent]) -> list[Ref]:
    """The operands of a jointly linear op, tangents for primals, zeros where there is none."""
    newest = home([t for t in tangents if t is not None])
    every = [zeros(x.type, newest) if t is None else t for x, t in zip(primals, tangents, strict=True)]
    return [every[k] if k in op.linear else x for k, x in enumerate(primals)]


def plus(a: Tangent, b: Tangent) -> Tangent:
    """a + b, where None is zero."""
    if a is None or b is None:
        return b if a is None else a
    return add(a, b)


def zeros(type: ArrayType, into: Builder) -> Ref:
    """Zeros of a type, emitted in `into`."""
    return filled(type, 0, into)


def filled(type: ArrayType, value: int, into: Builder) -> Ref:
    """An array of one whole number, emitted in `into`."""
    number = complex(value) if type.dtype.kind == "c" else float(value) if type.is_inexact else type.dtype.type(value).item()
    return full(into=into, value=number, shape=type.shape, dtype=type.dtype)


def tangent_type(type: ArrayType) -> ArrayType:
    """The type of a tangent or cotangent of a value: a Python number's weak kind does not carry over."""
    return ArrayType(type.shape, type.dtype)


def active(values: Sequence[Value]) -> tuple[bool, ...]:
    """Which values can have tangents."""
    return tuple(v.type.is_inexact for v in values)


WALKS.push = push
