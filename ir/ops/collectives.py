"""Collectives: what the elements of a mapped axis do together.

A collective stands in a graph while the function of a `vmap` that names its axis is traced and transformed; batching that axis
turns it into ordinary ops, so nothing that is run or compiled has one. The operand `index` is the element's number along the
axis: it belongs to the trace of that `vmap`, which keeps a collective inside it, whatever else it works on.

Guarantees: a collective under any other batching is the same collective of larger arrays; its derivatives are collectives.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dims import Extent
from loopwright.ir.errors import CollectiveError, DTypeError, ShapeError
from loopwright.ir.graph import Graph, Node
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.arithmetic import div, mul
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum, spread
from loopwright.ir.ops.comparison import eq, lt
from loopwright.ir.ops.construct import full_like, size_value, zeros_like
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.reductions import reduce_max, reduce_min
from loopwright.ir.ops.selection import convert, select
from loopwright.ir.ops.structural import move_axis
from loopwright.ir.source import Source
from loopwright.ir.types import BOOL, I64, ArrayType

Tangents = list[Ref | None]
_Rule = Callable[..., Ref]


# ---- where they stand -----------------------------------------------------------------------------
def collective_across(g: Graph, axis: str | None) -> Node | None:
    """A collective across a mapped axis, at any depth."""
    for n in g.nodes:
        if axis is not None and n.op.across is not None and n.attrs[n.op.across] == axis:
            return n
        for region in n.regions:
            if (found := collective_across(region, axis)) is not None:
                return found
    return None


def refuse_collectives(g: Graph, axis: str | None, source: Source | None, why: str) -> None:
    """CollectiveError where elements that go their own ways would meet. `source` is where they part."""
    found = collective_across(g, axis)
    if found is not None:
        raise CollectiveError(
            f"{found.source}: {found.op.name} across a mapped axis cannot stand here, for {why} (at {source}), and all "
            f"elements must reach it together. Take the collective before the branch or loop, or make the predicate the same "
            f"for all elements (lax.pmax or lax.psum of it).")


# ---- what they share ------------------------------------------------------------------------------
def _no_value(*arrays: np.ndarray, **attrs: Any) -> NoReturn:
    raise CollectiveError("a collective has a value only for all elements of its axis together")


def _check(name: str, x: ArrayType, index: ArrayType) -> None:
    if index.shape or index.dtype != I64:
        raise DTypeError(f"{name}: the element's number must be i64[], got {index}")
    if x.dtype == BOOL and name in ("psum", "psum_scatter"):
        raise DTypeError(f"{name}: sums of bool have no meaning at bool: convert it to integers first")


def _same_type(name: str) -> Callable[..., tuple[ArrayType, ...]]:
    def infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], **attrs: Any) -> tuple[ArrayType, ...]:
        _check(name, types[0], types[1])
        return (types[0].with_shape(types[0].shape),)
    return infer


def _along(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes over an operand with one more axis in front."""
    return {k: a + 1 if k == "at" else a for k, a in attrs.items()}


def _collective(name: str, doc: str, together: _Rule, infer: Callable[..., tuple[ArrayType, ...]], alike: bool,
                same: _Rule | None = None, tangent: _Rule | None = None, transpose: _Rule | None = None) -> Op:
    """An op across a mapped axis.

    together   (x, *other operands, **attrs) -> what it gives on x with the mapped axis in front; `alike`: the same for all
               elements, so without that axis, else with it.
    same       (x, size) -> that where all elements have the same x; left out where x is repeated for it.
    tangent    (primals, tangent, result, **attrs) -> the tangent; left out where the op is linear in x.
    transpose  (cotangent, *other operands, **attrs) -> the cotangent of x.
    """
    def batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
        if n.attrs["axis"] != engine.axis:
            assert mapped[0] and not any(mapped[1:]), "the other operands of a collective belong to its axis"
            return [op(*args, **_along(n.attrs))], [True]
        if same is not None and not mapped[0]:
            return [same(args[0], size)], [False]
        x, = spread(size, (args[0],), (mapped[0],))
        return [together(x, *args[1:], **n.attrs)], [not alike]

    def jvp(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents,
            behind: Builder | None = None) -> tuple[list[Ref], Tangents]:
        out, t = op(*primals, **n.attrs), tangents[0]
        assert t is not None, "only the first operand of a collective has a tangent"
        return [out], [op(t, *primals[1:], **n.attrs) if tangent is None else tangent(primals, t, out, **n.attrs)]

    def back(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: Tangents) -> Tangents:
        assert transpose is not None and cts[0] is not None
        return [transpose(cts[0], *args[1:], **n.attrs), *[None] * (len(args) - 1)]

    def reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
        return [flags[0] if alike else any(flags)]

    op = Op(name=name, doc=doc, infer=infer, numpy=_no_value, across="axis", alike=alike,
            rules=NodeRules(jvp=jvp, linearize=jvp, batch=batch, reach=reach, transpose=back if transpose else None))
    return op


# ---- sums and extremes ----------------------------------------------------------------------------
def _times(x: Ref, size: Extent) -> Ref:
    """size * x, as a sum of so many would be."""
    return mul(x, broadcast(convert(size_value(into=x.builder, size=size), dtype=x.dtype), shape=x.shape, axes=()))


psum: Op = _collective(
    "psum", "psum(x, index): the sum of x over all elements of a mapped axis.",
    together=lambda x, index, axis: reduce_sum(x, axes=(0,)), same=_times, infer=_same_type("psum"), alike=True,
    transpose=lambda ct, index, axis: psum(ct, index, axis=axis),
)


def _extreme(name: str, reduce: Op, doc: str) -> Op:
    def tangent(primals: Sequence[Ref], t: Ref, out: Ref, axis: str) -> Ref:
        """As of reduce_max: the elements that have the extreme share the derivative."""
        x, index = primals
        is_other, nothing = lt(x, out) if reduce is reduce_max else lt(out, x), zeros_like(x)
        count = psum(select(is_other, nothing, full_like(x, 1)), index, axis=axis)
        shared = psum(select(is_other, nothing, t), index, axis=axis)
        return div(shared, select(eq(out, out), count, full_like(out, np.nan)))
    return _collective(name, doc, together=lambda x, index, axis: reduce(x, axes=(0,)), same=lambda x, size: x,
                       infer=_same_type(name), alike=True, tangent=tangent)


pmax = _extreme("pmax", reduce_max, "pmax(x, index): the greatest x of all elements of a mapped axis; ties share a cotangent.")
pmin = _extreme("pmin", reduce_min, "pmin(x, index): the least x of all elements of a mapped axis; ties share a cotangent.")


# ---- moves ----------------------------------------------------------------------------------------
def _gathered_type(types: Sequence[ArrayType], regions: tuple[Graph, ...], axis: str, size: Extent,
                   at: int) -> tuple[ArrayType, ...]:
    x = types[0]
    _check("all_gather", x, types[1])
    if not 0 <= at <= x.rank:
        raise ShapeError(f"all_gather: {at} is no place for an axis among those of {x}")
    return (x.with_shape((*x.shape[:at], size, *x.shape[at:])),)


all_gather: Op = _collective(
    "all_gather", "all_gather(x, index): x of all elements, along a new axis `at` of that size.",
    together=lambda x, index, axis, size, at: move_axis(x, 0, at), infer=_gathered_type, alike=True,
    transpose=lambda ct, index, axis, size, at: psum_scatter(ct, index, axis=axis, size=size, at=at),
)


def _scattered_type(types: Sequence[ArrayType], regions: tuple[Graph, ...], axis: str, size: Extent,
                    at: int) -> tuple[ArrayType, ...]:
    x = types[0]
    _check("psum_scatter", x, types[1])
    if not 0 <= at < x.rank or x.shape[at] != size:
        raise ShapeError(f"psum_scatter: axis {at} of {x} must have the size of the mapped axis, {size}")
    return (x.with_shape((*x.shape[:at], *x.shape[at + 1:])),)


psum_scatter: Op = _collective(
    "psum_scatter", "psum_scatter(x, index): the sum of x over all elements, of which each gets its own place along axis `at`.",
    together=lambda x, index, axis, size, at: move_axis(reduce_sum(x, axes=(0,)), at, 0), infer=_scattered_type, alike=False,
    transpose=lambda ct, index, axis, size, at: all_gather(ct, index, axis=axis, size=size, at=at),
)


def _permuted_type(types: Sequence[ArrayType], regions: tuple[Graph, ...], axis: str) -> tuple[ArrayType, ...]:
    _check("ppermute", types[0], types[1])
    for t in types[2:]:
        if t.rank != 1 or t.dtype != I64:
            raise DTypeError(f"ppermute: partners must be i64[n], got {t}")
    return (types[0].with_shape(types[0].shape),)


ppermute: Op = _collective(
    "ppermute", "ppermute(x, index, source, target): x of element source[index]; 0 where that is no element. target is that "
                "the other way round.",
    together=lambda x, index, source, target, axis: gather(x, source, axes=(0,), batch=0, mode="zero"), infer=_permuted_type,
    alike=False, transpose=lambda ct, index, source, target, axis: ppermute(ct, index, target, source, axis=axis),
)
