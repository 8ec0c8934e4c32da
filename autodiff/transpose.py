"""Reverse mode: pull cotangents back through a linear graph.

Guarantees: the walk emits where its arguments live and builds no graph of its own; a cotangent of None is zero; what
the graph computes from known parameters alone is emitted only where a transpose needs it.

Masks sink: where a `select` made a cotangent zero, it stays exactly zero through everything that follows but a contraction
or a product of many, whatever inf or NaN the partial derivatives hold there. So `where(x > 0, sqrt(x), 0)` has gradient 0
at 0: `select(p, ct, 0) * r` is emitted as `select(p, ct * r, 0)`. Nothing is emitted for masks that no product follows.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from loopwright.autodiff.jvp import emit
from loopwright.autodiff.regions import WALKS, Regions, varying_values
from loopwright.ir.builder import Builder, Ref, attributed, pulling
from loopwright.ir.errors import GradientError
from loopwright.ir.graph import Graph, Node, Value, renewed
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.bitwise import bitwise_and, bitwise_not, bitwise_or
from loopwright.ir.ops.comparison import ne
from loopwright.ir.ops.construct import full, zeros_like
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.indexing import additions, scatter_add
from loopwright.ir.ops.regions import blank
from loopwright.ir.ops.selection import convert, select
from loopwright.ir.ops.structural import reshape, transpose
from loopwright.ir.types import ArrayType

_PERMUTATIONS = (transpose, reshape)  # one operand of any dtype, each element moved to one place


class _Support:
    """Where a cotangent can be other than zero: a bool array, emitted when it is first asked for."""

    def __init__(self, make: Callable[..., Ref], *of: _Support, key: object = None) -> None:
        self._make, self._of = make, of
        self._made: Ref | None = None
        self.key = key if key is not None else self  # equal keys: surely the same places

    def __call__(self) -> Ref:
        waiting = [self]  # what it is made of may be made of thousands, one of another: more than Python's calls go deep
        while waiting:
            last = waiting[-1]
            missing = [x for x in last._of if x._made is None]
            if last._made is None and not missing:
                last._made = last._make(*[x() for x in last._of])
            if last._made is None:
                waiting += missing
            else:
                waiting.pop()
        assert self._made is not None
        return self._made


class _Cotangent(NamedTuple):
    """`value` where `support` holds (None: everywhere), zero elsewhere; `whole` is the same as one array, if emitted."""

    value: Ref
    support: _Support | None
    whole: Ref | None


_Flow = dict[Value, _Cotangent]


def pull(graph: Graph, unknown: Sequence[bool], known: Sequence[Ref | np.ndarray], cotangents: Sequence[Ref | None],
         into: Builder) -> list[Ref | None]:
    """The cotangents of the parameters that are marked unknown; graph is linear in them, `known` holds the others.

    `into` is the newest builder among known and cotangents, or newer.
    """
    graph = renewed(graph)
    params = [v for v, u in zip(graph.params, unknown, strict=True) if u]
    rest = [v for v, u in zip(graph.params, unknown, strict=True) if not u]
    env = {v: x if isinstance(x, Ref) else into.capture(x) for v, x in zip(rest, known, strict=True)}
    moving = varying_values(graph, unknown)
    flow: _Flow = {}
    with pulling(), attributed() as attribute:
        for v, ct in zip(graph.results, cotangents, strict=True):
            if v in moving and ct is not None:
                here = Ref(into, into.lift(ct))
                _arrive(flow, v, _Cotangent(here, None, here))
        for n in _needed(graph, moving, flow):
            attribute(n.source)
            inputs = [blank(v.type, into) if v in moving else env[v] for v in n.inputs]  # a known output reads none of those
            env.update(zip(n.outputs, emit(n, inputs, into), strict=True))
        for n in reversed(graph.nodes):
            if n.op.rules is not None:
                if not flow.keys().isdisjoint(n.outputs):
                    attribute(n.source)
                    _pull_whole(n, flow, env, moving, into)
            elif (arrived := flow.get(n.outputs[0])) is not None:
                attribute(n.source)
                _pull_node(n, arrived, flow, env, moving)
        return [_whole(flow[v]) if v in flow else None for v in params]


def _needed(graph: Graph, moving: set[Value], flow: _Flow) -> list[Node]:
    """The nodes of known values that a transpose will read, in order."""
    reached = set(flow)
    kept = []
    for n in reversed(graph.nodes):
        if not reached.isdisjoint(n.outputs) or n.op.binds is not None:
            if any(v in reached and v not in moving for v in n.outputs) or n.op.binds is not None:
                kept.append(n)
            reached.update(n.inputs)
    return kept[::-1]


def _pull_whole(n: Node, flow: _Flow, env: dict[Value, Ref], moving: set[Value], into: Builder) -> None:
    """The same for an op with rules over whole nodes."""
    assert n.op.rules is not None
    if n.op.rules.transpose is None:
        raise GradientError(f"{n.source}: {n.op.name} is not linear, so it has no transpose.")
    args: list[Ref | ArrayType] = [v.type if v in moving else env[v] for v in n.inputs]
    cts = [_whole(flow[v]) if v in flow else None for v in n.outputs]
    found = n.op.rules.transpose(Regions(into.scope), n, args, cts)
    for v, ct in zip(n.inputs, found, strict=True):
        if v in moving and ct is not None:
            _arrive(flow, v, _Cotangent(ct, None, ct))


def _pull_node(n: Node, ct: _Cotangent, flow: _Flow, env: dict[Value, Ref], moving: set[Value]) -> None:
    """Add to the cotangents of n's operands what arrives at its result."""
    jointly = n.op.linear if n.op.jointly else ()
    along = [k for k, v in enumerate(n.inputs) if v in moving]
    if [k for k in along if k not in n.op.linear] or (len(along) > 1 and not n.op.jointly):
        raise GradientError(f"{n.source}: {n.op.name} is not linear in what is transposed here. Only linear functions have a "
                            f"transpose: linearize gives the linear part of any function.")
    args: list[Ref | ArrayType] = [v.type if v in moving or k in jointly else env[v] for k, v in enumerate(n.inputs)]
    for k in along:
        _arrive(flow, n.inputs[k], _pulled(n, k, args, ct))


def _pulled(n: Node, k: int, args: Sequence[Ref | ArrayType], ct: _Cotangent) -> _Cotangent:
    """The cotangent of n's operand k from that of its result."""
    rule, support = n.op.transpose[k], ct.support
    if support is None:
        return _masked(rule(ct.value, *args, **n.attrs), None, is_whole=True)
    if is_elementwise(n.op):
        # Factors that are no constants may be inf or NaN where the mask does not hold: what they multiply is not whole.
        whole = ct.whole if n.op.jointly else None
        arriving = ct.value if whole is None else whole
        part = rule(arriving, *args, **n.attrs)
        return ct if part is arriving else _masked(part, support, is_whole=whole is not None)
    part = rule(_whole(ct), *args, **n.attrs)
    return _Cotangent(part, _moved(n, k, args, support) if n.op.jointly else None, part)


def _moved(n: Node, k: int, args: Sequence[Ref | ArrayType], support: _Support) -> _Support:
    """The places that a linear op with coefficients 0 and 1 takes the places of a support to."""
    def make(places: Ref) -> Ref:
        if n.op in _PERMUTATIONS:
            return n.op.transpose[k](places, *args, **n.attrs)
        count = n.op.transpose[k](convert(places, dtype=n.outputs[0].type.dtype), *args, **n.attrs)
        return ne(count, zeros_like(count))
    return _Support(make, support)


def is_elementwise(op: Op) -> bool:
    """Whether element i of the result depends on element i of each operand alone."""
    return op.shape is same_shape


def _masked(part: Ref, support: _Support | None, is_whole: bool) -> _Cotangent:
    """What a transpose gave, with a `select` against zero that it ends in read as a mask."""
    producer = part.builder.producer
    node = producer.get(part.value)
    whole = part if is_whole else None
    if node is not None and node.op is select:
        pred, on, off = (Ref(part.builder, v) for v in node.inputs)
        if _is_zero(producer.get(off.value)):
            return _Cotangent(on, _both(support, _Support(lambda: pred, key=(pred.value, True))), whole)
        if _is_zero(producer.get(on.value)):
            return _Cotangent(off, _both(support, _Support(lambda: bitwise_not(pred), key=(pred.value, False))), whole)
    return _Cotangent(part, support, whole)


def _both(a: _Support | None, b: _Support) -> _Support:
    return b if a is None else _Support(bitwise_and, a, b)


def _is_zero(node: Node | None) -> bool:
    return node is not None and node.op is full and node.attrs["value"] == 0


def _arrive(flow: _Flow, v: Value, ct: _Cotangent) -> None:
    before = flow.get(v)
    flow[v] = ct if before is None else _sum(before, ct)


def _sum(a: _Cotangent, b: _Cotangent) -> _Cotangent:
    """a + b: zero only where both are."""
    first, second = a.support, b.support
    if first is not None and second is not None:
        if first.key == second.key and (a.whole is None or b.whole is None):
            return _Cotangent(add(a.value, b.value), first, None)
        total = _added(_whole(a), _whole(b))
        return _Cotangent(total, first if first.key == second.key else _Support(bitwise_or, first, second), total)
    total = _added(_whole(a), _whole(b))
    return _Cotangent(total, None, total)


def _added(a: Ref, b: Ref) -> Ref:
    """a + b. What is added to zeros at one position, as the transpose of reading does, is added to the other where it lies:
    a loop that reads an array position by position would else add up whole arrays."""
    for total, other in ((a, b), (b, a)):
        steps = additions(other.value, other.builder.producer)
        if steps and all(not attrs["batch"] and operands[1].type.size == 1 for operands, attrs in steps):
            for operands, attrs in steps:
                total = scatter_add(total, *(Ref(other.builder, v) for v in operands), **attrs)
            return total
    return add(a, b)


def _whole(ct: _Cotangent) -> Ref:
    """The cotangent as one array."""
    if ct.whole is not None:
        return ct.whole
    assert ct.support is not None
    return select(ct.support(), ct.value, zeros_like(ct.value))


WALKS.pull = pull
