"""scan: a region run a known number of times, with a carry from each run to the next and one row of each array per run."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dims import Extent
from loopwright.ir.dims import evaluate as evaluate_extent
from loopwright.ir.errors import ShapeError
from loopwright.ir.graph import Graph, Node, Value, silent
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.collectives import collective_across, refuse_collectives
from loopwright.ir.ops.indexing import additions, scatter_add
from loopwright.ir.ops.loop_rewriting import (
    Part,
    Producer,
    absorbed,
    hoisted,
    live_carry,
    needed,
    shrunk,
    unchanged_carry,
    with_constants,
)
from loopwright.ir.ops.regions import (
    blank,
    carried,
    check_types,
    chosen,
    filled,
    given,
    has,
    newest,
    others,
    rearranged,
    split,
    spread_out,
    types_of,
    unused,
)
from loopwright.ir.ops.structural import move_axis
from loopwright.ir.types import ArrayType

T = TypeVar("T")


def row_type(t: ArrayType) -> ArrayType:
    """The type of one row."""
    return t.with_shape(t.shape[1:])


def stack_type(t: ArrayType, length: Extent) -> ArrayType:
    """The type of `length` rows."""
    return t.with_shape((length, *t.shape))


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], length: Extent, reverse: bool, constants: int,
           carry: int) -> tuple[ArrayType, ...]:
    body, = regions
    fixed, xs = split(types, constants + carry)
    for k, t in enumerate(xs):
        if not t.shape or (isinstance(t.shape[0], int) and isinstance(length, int) and t.shape[0] != length):
            raise ShapeError(f"scan: array {k} is {t}, it must have {length} rows")
    check_types("scan, parameters of the body", types_of(body.params), [*fixed, *map(row_type, xs)])
    new, ys = split(body.results, carry)
    check_types("scan, the new carry", fixed[constants:], types_of(new))
    return (*types_of(new), *(stack_type(y.type, length) for y in ys))


def _numpy(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], length: int, reverse: bool,
           constants: int, carry: int) -> tuple[Any, ...]:
    body, = regions
    fixed, state, xs = split(arrays, constants, carry)
    ys = [np.zeros((length, *(evaluate_extent(n, sizes) for n in v.type.shape)), v.type.dtype) for v in body.results[carry:]]
    run = Runner(body, sizes)
    for k in reversed(range(length)) if reverse else range(length):
        out = run([*fixed, *state, *(np.asarray(x[k]) for x in xs)])
        state = out[:carry]
        for y, row in zip(ys, out[carry:], strict=True):
            y[k] = row
    return (*state, *ys)


# ---- derivatives ----------------------------------------------------------------------------------
def _parts(n: Node, xs: Iterable[T]) -> tuple[list[T], list[T], list[T]]:
    """What belongs to constants, carry and xs."""
    constants, carry, rows = split(xs, n.attrs["constants"], n.attrs["carry"])
    return constants, carry, rows


def _reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
    carry, ys = carried(n.regions[0], *_parts(n, flags), through)
    return [*carry, *ys]


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None]) -> tuple[list[Ref], list[Ref | None]]:
    """One loop over both."""
    body, (ac, ak, ax) = n.regions[0], _parts(n, has(tangents))
    ak, ay = carried(body, ac, ak, ax, engine.moving)
    made = engine.jvp(body, [*ac, *ak, *ax], [*ak, *ay])
    c, k, x, dc, dk, dx = split(made.params, len(ac), len(ak), len(ax), sum(ac), sum(ak))
    k2, y, dk2, dy = split(made.results, len(ak), len(ay), sum(ak))
    region = rearranged(made, [*c, *dc, *k, *dk, *x, *dx], [*k2, *dk2, *y, *dy])
    (pc, pk, px), (tc, tk, tx) = _parts(n, primals), _parts(n, tangents)
    start = filled(chosen(tk, ak), chosen(pk, ak), newest(tangents))
    outs = scan.all(*pc, *given(tc), *pk, *start, *px, *given(tx), regions=(region,),
                    **{**n.attrs, "constants": len(c) + len(dc), "carry": len(k) + len(dk)})
    carry, moved, ys, rows = split(outs, len(k), len(dk), len(y))
    return carry + ys, spread_out(moved, ak) + spread_out(rows, ay)


def _linearize(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None],
               behind: Builder) -> tuple[list[Ref], list[Ref | None]]:
    """One loop that stacks what the other, over tangents alone, reads. Nothing that is at hand already is stacked."""
    body, (ac, ak, ax) = n.regions[0], _parts(n, has(tangents))
    ak, ay = carried(body, ac, ak, ax, engine.moving)
    free = [*[True] * len(ac), *[False] * len(ak), *[True] * len(ax), *[False] * len(ak), *[True] * len(ay)]
    forward, linear = engine.linearize(body, [*ac, *ak, *ax], [*ak, *ay], free, "each trip of a loop")
    count = len(ak) + len(ay)
    params, residuals = list(forward.params), forward.results[count:]
    at_hand = {v: k for k, v in enumerate(params) if not len(ac) <= k < len(ac) + len(ak)}
    rows = forward.results[len(ak):count]
    stacked = [v for v in residuals if v not in at_hand and v not in rows]
    outs = scan.all(*primals, regions=(rearranged(forward, params, [*forward.results[:count], *stacked]),), **n.attrs)
    found = {**dict(zip((*rows, *stacked), outs[len(ak):], strict=True)), **{v: primals[k] for v, k in at_hand.items()}}
    fixed = [at_hand.get(v, len(ac)) < len(ac) for v in residuals]
    r, dc, dk, dx = split(linear.params, len(residuals), sum(ac), sum(ak))
    region = rearranged(linear, [*chosen(r, fixed), *dc, *dk, *others(r, fixed), *dx])
    (_, pk, _), (tc, tk, tx) = _parts(n, primals), _parts(n, tangents)
    values = [found[v] for v in residuals]
    moved = scan.all(*chosen(values, fixed), *given(tc), *filled(chosen(tk, ak), chosen(pk, ak), behind),
                     *others(values, fixed), *given(tx), into=behind, regions=(region,),
                     **{**n.attrs, "constants": sum(fixed) + len(dc), "carry": len(dk)})
    return outs[:count], spread_out(moved[:len(dk)], ak) + spread_out(moved[len(dk):], ay)


def _transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: list[Ref | None]) -> list[Ref | None]:
    """The loop backwards: cotangents of constants add up, those of the carry are the carry, those of rows are stacked."""
    body = n.regions[0]
    (c, k, x), (lc, lk, lx) = _parts(n, args), _parts(n, [isinstance(a, ArrayType) for a in args])
    mk, my = carried(body, lc, lk, lx, engine.varying)
    into = newest([*args, *cts])
    ctk, cty = split(cts, len(k))
    arriving = [m and ct is not None for m, ct in zip(my, cty, strict=True)]
    back = engine.transpose(body, [*lc, *mk, *lx], [*mk, *arriving])
    dc, dk, _ = split(back.results, sum(lc), sum(mk))
    region, sums = _summing(back, dc)
    bc, bk, bx, bck, bcy = split(back.params, lc.count(False), mk.count(False), lx.count(False), sum(mk))
    region = rearranged(region, [*bc, *sums, *bck, *bk, *bx, *bcy])
    known = [a for a in c if isinstance(a, Ref)]
    rows = [*_known_carry(n, args, mk, into), *(a for a in x if isinstance(a, Ref))]
    start = [*(blank(v.type, into) for v in dc), *filled(chosen(ctk, mk), chosen(body.results[:len(k)], mk), into)]
    outs = scan.all(*known, *start, *rows, *given(chosen(cty, arriving)), into=into, regions=(region,), constants=len(known),
                    length=n.attrs["length"], reverse=not n.attrs["reverse"], carry=len(start))
    oc, ok, ox = split(outs, len(dc), len(dk))
    return [*spread_out(oc, lc), *spread_out(ok, mk), *spread_out(ox, lx)]


def _summing(g: Graph, first: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """g with its first results added to values of before, which are new parameters: at the positions that they have some at."""
    sums, totals = unused(types_of(first)), list(unused(types_of(first)))
    producer, nodes = {v: n for n in g.nodes for v in n.outputs}, list(g.nodes)
    for k, (before, v) in enumerate(zip(sums, first, strict=True)):
        steps = additions(v, producer)
        for operands, attrs in steps:
            nodes.append(Node(scatter_add, (before, *operands), attrs, tuple(unused([v.type])), (), producer[v].source))
            before, = nodes[-1].outputs
        if steps:
            totals[k] = before
        else:
            nodes.append(Node(add, (before, v), {}, (totals[k],)))
    return Graph(g.params, tuple(nodes), (*totals, *g.results[len(first):])), sums


def _known_carry(n: Node, args: list[Ref | ArrayType], moving: list[bool], into: Builder) -> list[Ref]:
    """What each part of the carry that is known is at the start of each trip."""
    if all(moving):
        return []
    body, (c, k, _) = n.regions[0], _parts(n, args)
    before = others(body.params[len(c):len(c) + len(k)], moving)
    region = silent(rearranged(body, body.params, [*body.results[:len(k)], *before]))
    start = [a if isinstance(a, Ref) else blank(a, into) for a in args]  # what is known depends on none of those
    return scan.all(*start, into=into, regions=(region,), **n.attrs)[len(k):]


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """The same loop over a batched body. Where it is a map of loops that each element leaves on its own, a loop around it."""
    if n.attrs["carry"] == 0 and _goes_own_ways(n.regions[0]) and collective_across(n.regions[0], engine.axis) is None:
        return each_node(engine, size, n, args, mapped)
    body, (fc, fk, fx) = n.regions[0], _parts(n, mapped)
    has_k, has_y = carried(body, fc, fk, fx, engine.varying)
    region = engine.batch(body, size, [*fc, *has_k, *fx], [*has_k, *has_y])
    c, k, x = _parts(n, args)
    start = [spread(size, (a,), (f,))[0] if h else a for a, f, h in zip(k, fk, has_k, strict=True)]
    rows = [move_axis(a, 0, 1) if f else a for a, f in zip(x, fx, strict=True)]
    outs = scan.all(*c, *start, *rows, regions=(region,), **n.attrs)
    ys = [move_axis(y, 1, 0) if f else y for y, f in zip(outs[len(k):], has_y, strict=True)]
    return [*outs[:len(k)], *ys], [*has_k, *has_y]


def _goes_own_ways(body: Graph) -> bool:
    """Whether the body of a map holds a loop whose number of trips is data, in whatever many maps."""
    return any(m.op.rules is not None and (m.op.rules.own_trips or (m.op is scan and m.attrs["carry"] == 0
                                                                     and _goes_own_ways(m.regions[0]))) for m in body.nodes)


def each(size: Extent, g: Graph, args: Sequence[Ref], mapped: Flags) -> list[Ref]:
    """g on one element of the mapped arguments after another: the meaning of a batch, whatever g holds."""
    region = rearranged(g, [*others(g.params, mapped), *chosen(g.params, mapped)])
    return scan.all(*others(args, mapped), *chosen(args, mapped), regions=(region,), length=size, reverse=False,
                    constants=list(mapped).count(False), carry=0)


def each_node(engine: Engine, size: Extent, n: Node, args: Sequence[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """The same of one node, in which elements go their own ways."""
    refuse_unlike(engine, n)
    return each(size, _alone(n), args, mapped), [True] * len(n.outputs)


def refuse_unlike(engine: Engine, n: Node) -> None:
    """CollectiveError where elements meet in a node in which they go their own ways."""
    refuse_collectives(_alone(n), engine.axis, n.source, f"each element goes its own way through the {n.op.name} around it")


def _alone(n: Node) -> Graph:
    """A graph of one node."""
    params, results = unused(types_of(n.inputs)), unused(types_of(n.outputs))
    return Graph(tuple(params), (Node(n.op, tuple(params), n.attrs, tuple(results), n.regions, n.source),), tuple(results))


# ---- rewriting ------------------------------------------------------------------------------------
def _made(n: Node, part: Part, rest: Sequence[Value], outputs: Sequence[Value], carry: int) -> Node:
    """A scan like n of another region, whose constants are the part's."""
    attrs = {**n.attrs, "constants": len(part.operands), "carry": carry}
    return Node(scan, (*part.operands, *rest), attrs, tuple(outputs), (part.region,), n.source)


def _prune(n: Node, wanted: Flags) -> Node | None:
    """Without the parts of the carry, rows and constants that nothing wanted depends on."""
    body, (c, k, x) = n.regions[0], _parts(n, n.inputs)
    ys = wanted[len(k):]
    carry = live_carry([(body, len(c))], wanted[:len(k)], (), chosen(body.results[len(k):], ys))
    results = [*carry, *ys]
    found = needed(body, chosen(body.results, results))
    params = [v in found for v in body.params]
    params[len(c):len(c) + len(k)] = carry
    if all(results) and all(params):
        return None
    kept = _parts(n, params)
    part = Part(shrunk(body, params, results), tuple(chosen(c, kept[0])))
    return _made(n, part, [*chosen(k, carry), *chosen(x, kept[2])], chosen(n.outputs, results), sum(carry))


def _absorb(n: Node, producer: Producer) -> tuple[list[Node], dict[Value, Value]] | None:
    """With carry that never changes as constants, and constants that are one number inside."""
    body, (c, k, x) = n.regions[0], _parts(n, n.inputs)
    fixed = unchanged_carry(body, len(c), len(k))
    whole = [*fixed, *[False] * (len(n.outputs) - len(k))]
    part = absorbed(Part(with_constants(body, len(c), fixed, whole), (*c, *chosen(k, fixed))), producer)
    if len(part.operands) == len(c) and not any(fixed):
        return None
    node = _made(n, part, [*others(k, fixed), *x], others(n.outputs, whole), fixed.count(False))
    return [node], dict(zip(chosen(n.outputs, whole), chosen(k, fixed), strict=True))


def _hoist(n: Node) -> list[Node] | None:
    c, k, x = _parts(n, n.inputs)
    part, before = hoisted(Part(n.regions[0], tuple(c)))
    return [*before, _made(n, part, [*k, *x], n.outputs, len(k))] if before else None


scan = Op(
    name="scan",
    doc="scan(*constants, *carry, *xs) with the region body(constants, carry, a row of each x) -> (carry, a row of each y), "
        "run `length` times, over rows from the last to the first if `reverse`. Results: the last carry, then ys, each with "
        "`length` rows. `constants` and `carry` are counts.",
    infer=_infer,
    numpy=_numpy,
    rules=NodeRules(jvp=_jvp, linearize=_linearize, transpose=_transpose, batch=_batch, reach=_reach, prune=_prune,
                    absorb=_absorb, hoist=_hoist),
)
