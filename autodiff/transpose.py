"""Reverse mode: pull cotangents back through a linear graph.

Guarantees: the walk emits where its arguments live and builds no graph of its own; a cotangent of None is zero; what
the graph computes from known parameters alone is emitted only where a transpose needs it.

Masks sink: where a `select` made a cotangent zero, it stays exactly zero through every elementwise op and every
permutation of elements that follows, whatever inf or NaN that op's other operands hold there. So `where(x > 0, sqrt(x),
0)` has gradient 0 at 0: `select(p, ct, 0) * r` is emitted as `select(p, ct * r, 0)`.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.autodiff.jvp import emit
from loopwright.ir.builder import Builder, Ref, attributed
from loopwright.ir.graph import Graph, Node, Value, dependents
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.bitwise import bitwise_and, bitwise_not, bitwise_or
from loopwright.ir.ops.construct import full, zeros_like
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.selection import select
from loopwright.ir.ops.structural import reshape, transpose
from loopwright.ir.types import ArrayType

_PERMUTATIONS = (transpose, reshape)  # one operand, each element moved to one place


@dataclass(frozen=True, slots=True)
class _Cotangent:
    """`value` where `support` holds (None: everywhere), zero elsewhere; `whole` is the same as one array, if emitted."""

    value: Ref
    support: Ref | None
    whole: Ref | None


_Flow = dict[Value, _Cotangent]


def pull(graph: Graph, unknown: Sequence[bool], known: Sequence[Ref | np.ndarray], cotangents: Sequence[Ref | None],
         into: Builder) -> list[Ref | None]:
    """The cotangents of the parameters that are marked unknown; graph is linear in them, `known` holds the others.

    `into` is the newest builder among known and cotangents, or newer.
    """
    params = [v for v, u in zip(graph.params, unknown, strict=True) if u]
    rest = [v for v, u in zip(graph.params, unknown, strict=True) if not u]
    env = {v: x if isinstance(x, Ref) else into.capture(x) for v, x in zip(rest, known, strict=True)}
    moving = dependents(graph, params)
    flow: _Flow = {}
    for v, ct in zip(graph.results, cotangents, strict=True):
        if v in moving and ct is not None:
            here = Ref(into, into.lift(ct))
            _arrive(flow, v, _Cotangent(here, None, here))
    with attributed() as attribute:
        for n in _needed(graph, moving, flow):
            attribute(n.source)
            env.update(zip(n.outputs, emit(n, [env[v] for v in n.inputs], into), strict=True))
        for n in reversed(graph.nodes):
            if (ct := flow.get(n.outputs[0])) is not None:
                attribute(n.source)
                _pull_node(n, ct, flow, env, moving)
    return [_whole(flow[v]) if v in flow else None for v in params]


def _needed(graph: Graph, moving: set[Value], flow: _Flow) -> list[Node]:
    """The nodes of known values that a transpose will read, in order."""
    reached = set(flow)
    kept = []
    for n in reversed(graph.nodes):
        if n.outputs[0] in reached:
            reached.update(n.inputs)
            if n.outputs[0] not in moving:
                kept.append(n)
    return kept[::-1]


def _pull_node(n: Node, ct: _Cotangent, flow: _Flow, env: dict[Value, Ref], moving: set[Value]) -> None:
    """Add to the cotangents of n's operands what arrives at its result."""
    jointly = n.op.linear if n.op.jointly else ()
    args: list[Ref | ArrayType] = [v.type if v in moving or k in jointly else env[v] for k, v in enumerate(n.inputs)]
    support = _carried(n, ct.support, args)
    value = _whole(ct) if support is None else ct.value
    for k, v in enumerate(n.inputs):
        if v in moving:
            part = n.op.transpose[k](value, *args, **n.attrs)
            _arrive(flow, v, ct if part is ct.value and support is ct.support else _masked(part, support))


def _carried(n: Node, support: Ref | None, args: Sequence[Ref | ArrayType]) -> Ref | None:
    """Where the cotangents of n's operands can be other than zero, if a mask may sink through n."""
    if support is None or n.op in _PERMUTATIONS:
        return support if support is None else n.op.transpose[0](support, *args, **n.attrs)
    return support if is_elementwise(n.op) else None


def is_elementwise(op: Op) -> bool:
    """Whether element i of the result depends on element i of each operand alone."""
    return op.shape is same_shape


def _masked(part: Ref, support: Ref | None) -> _Cotangent:
    """What a transpose gave, with a `select` against zero that it ends in read as a mask."""
    producer = part.builder.producer
    node = producer.get(part.value)
    if node is None or node.op is not select:
        return _Cotangent(part, support, part if support is None else None)
    pred, on, off = (Ref(part.builder, v) for v in node.inputs)
    if _is_zero(producer.get(off.value)):
        keep, value = pred, on
    elif _is_zero(producer.get(on.value)):
        keep, value = bitwise_not(pred), off
    else:
        return _Cotangent(part, support, part if support is None else None)
    if support is None:
        return _Cotangent(value, keep, part)
    return _Cotangent(value, bitwise_and(support, keep), None)


def _is_zero(node: Node | None) -> bool:
    return node is not None and node.op is full and node.attrs["value"] == 0


def _arrive(flow: _Flow, v: Value, ct: _Cotangent) -> None:
    before = flow.get(v)
    flow[v] = ct if before is None else _sum(before, ct)


def _sum(a: _Cotangent, b: _Cotangent) -> _Cotangent:
    """a + b: zero only where both are."""
    if a.support is not None and b.support is not None:
        if a.support.value is b.support.value:
            return _Cotangent(add(a.value, b.value), a.support, None)
        total = add(_whole(a), _whole(b))
        return _Cotangent(total, bitwise_or(a.support, b.support), total)
    total = add(_whole(a), _whole(b))
    return _Cotangent(total, None, total)


def _whole(ct: _Cotangent) -> Ref:
    """The cotangent as one array."""
    if ct.whole is not None:
        return ct.whole
    assert ct.support is not None
    return select(ct.support, ct.value, zeros_like(ct.value))
