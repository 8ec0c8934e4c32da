"""Control flow: switch, scan and while as nodes with regions, and trips, which makes a size of a number.

Regions are closed graphs over the symbols of the graph around them. `switch` and `scan` have modules of their own.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.builder import Builder, Ref, inline
from loopwright.ir.dims import Dim, Extent, symbol_of
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.graph import Graph, Node, Value, fresh_symbol, silent
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.branching import switch
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.construct import full
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
from loopwright.ir.ops.masking import chosen_rows, pays, region, replaced_rows
from loopwright.ir.ops.reductions import reduce_any
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
from loopwright.ir.ops.scanning import each_node, refuse_unlike, scan
from loopwright.ir.types import BOOL, I64, ArrayType

__all__ = ["scan", "switch", "trips", "while_"]

T = TypeVar("T")
_COUNT = ArrayType((), I64)


# ---- while ----------------------------------------------------------------------------------------
def _while_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], condition_constants: int,
                 body_constants: int) -> tuple[ArrayType, ...]:
    condition, body = regions
    for_condition, for_body, carry = split(types, condition_constants, body_constants)
    check_types("while, parameters of the condition", types_of(condition.params), [*for_condition, *carry])
    check_types("while, the condition", [ArrayType((), BOOL)], types_of(condition.results))
    check_types("while, parameters of the body", types_of(body.params), [*for_body, *carry])
    check_types("while, the new carry", carry, types_of(body.results))
    return tuple(types_of(body.results))


def _while_numpy(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], condition_constants: int,
                 body_constants: int) -> tuple[Any, ...]:
    for_condition, for_body, state = split(arrays, condition_constants, body_constants)
    holds, step = (Runner(g, sizes) for g in regions)
    while holds([*for_condition, *state])[0]:
        state = step([*for_body, *state])
    return tuple(state)


def _parts(n: Node, xs: Iterable[T]) -> tuple[list[T], list[T], list[T]]:
    """What belongs to the condition's constants, the body's constants and the carry."""
    for_condition, for_body, carry = split(xs, n.attrs["condition_constants"], n.attrs["body_constants"])
    return for_condition, for_body, carry


def _reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
    """Where the condition depends on something, every result does."""
    fh, fc, fk = _parts(n, flags)
    fk, _ = carried(n.regions[1], fc, fk, [], through)
    return [True] * len(fk) if through(n.regions[0], [*fh, *fk])[0] else fk


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None]) -> tuple[list[Ref], list[Ref | None]]:
    """One loop over both."""
    condition, body = n.regions
    _, ac, ak = _parts(n, has(tangents))
    ak, _ = carried(body, ac, ak, [], engine.moving)
    made = engine.jvp(body, [*ac, *ak], ak)
    c, k, dc, dk = split(made.params, len(ac), len(ak), sum(ac))
    step = rearranged(made, [*c, *dc, *k, *dk])
    test = rearranged(condition, [*condition.params, *unused(types_of(dk))])
    (ph, pc, pk), (_, tc, tk) = _parts(n, primals), _parts(n, tangents)
    start = filled(chosen(tk, ak), chosen(pk, ak), newest(tangents))
    outs = while_.all(*ph, *pc, *given(tc), *pk, *start, regions=(test, step), condition_constants=len(ph),
                      body_constants=len(c) + len(dc))
    return outs[:len(k)], spread_out(outs[len(k):], ak)


def _linearize(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None],
               behind: Builder) -> tuple[list[Ref], list[Ref | None]]:
    """Count the trips, then run as many again as a scan, whose rules stack what its linear part needs."""
    body = n.regions[1]
    _, ac, ak = _parts(n, has(tangents))
    ak, _ = carried(body, ac, ak, [], engine.moving)
    results, count = _counted(n, primals)
    length = fresh_symbol()
    trips(count, size=length)
    (_, pc, pk), (_, tc, tk) = _parts(n, primals), _parts(n, tangents)
    if not any(ak):
        return results, [None] * len(results)
    attrs = {"length": length, "reverse": False, "constants": len(pc), "carry": len(pk)}
    again = Node(scan, (*n.inputs[len(n.inputs) - len(pc) - len(pk):],), attrs, n.outputs, (silent(body),), n.source)
    assert scan.rules is not None
    _, moved = scan.rules.linearize(engine, again, [*pc, *pk], [*tc, *tk], behind)
    return results, moved


def _counted(n: Node, args: Sequence[Ref]) -> tuple[list[Ref], Ref]:
    """The results of a while, and how often its body ran."""
    condition, body = n.regions
    before, one, after = Value(_COUNT), Value(_COUNT), Value(_COUNT)
    counting = (Node(full, (), {"value": 1, "shape": (), "dtype": I64}, (one,)), Node(add, (before, one), {}, (after,)))
    step = Graph((*body.params, before), (*body.nodes, *counting), (*body.results, after))
    test = rearranged(condition, [*condition.params, *unused([_COUNT])])
    *results, count = while_.all(*args, blank(_COUNT, newest(args)), regions=(test, step), **n.attrs)
    return results, count


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """One loop over a batched body while all elements go on alike. Where each has its own condition, a loop for each, or one
    that goes on while some element does."""
    condition, body = n.regions
    fh, fc, fk = _parts(n, mapped)
    has_k, _ = carried(body, fc, fk, [], engine.varying)
    if engine.varying(condition, [*fh, *has_k])[0]:
        own = [v.type for v, f in zip(n.inputs, [*fh, *fc, *[True] * len(fk)], strict=True) if f]
        return (_masked if size != 0 and pays(n.regions, own) else each_node)(engine, size, n, args, mapped)
    step = engine.batch(body, size, [*fc, *has_k], has_k)
    test = engine.batch(condition, size, [*fh, *has_k], [False])
    h, c, k = _parts(n, args)
    start = [spread(size, (a,), (f,))[0] if b else a for a, f, b in zip(k, fk, has_k, strict=True)]
    return while_.all(*h, *c, *start, regions=(test, step), **n.attrs), has_k


def _masked(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """One loop, whose first carry says which elements go on. The carry of the others stays."""
    refuse_unlike(engine, n)
    (fh, fc, fk), (h, c, k) = _parts(n, mapped), _parts(n, args)
    own = [True] * len(k)
    test = engine.batch(n.regions[0], size, [*fh, *own], [True])
    step = engine.batch(n.regions[1], size, [*fc, *own], own)
    start = spread(size, tuple(k), tuple(fk))
    first = inline(test, [*h, *start], newest(args))

    def trip(*refs: Ref) -> list[Ref]:
        ph, pc, (active, *now) = split(refs, len(h), len(c))
        then = inline(step, replaced_rows(active, [*pc, *now], [*fc, *own]), active.builder)
        now = chosen_rows(active, then, now)
        return [*inline(test, [*ph, *now], active.builder), *now]
    scope, carry = newest(args).scope, types_of([*first, *start])
    regions = (region(lambda active, *_: [reduce_any(active, axes=(0,))], carry, scope),
               region(trip, [*types_of([*h, *c]), *carry], scope))
    outs = while_.all(*h, *c, *first, *start, regions=regions, condition_constants=0, body_constants=len(h) + len(c))
    return outs[1:], own


def _made(n: Node, test: Part, step: Part, carry: Sequence[Value], outputs: Sequence[Value]) -> Node:
    """A while like n of other regions, whose constants are those of the parts."""
    attrs = {"condition_constants": len(test.operands), "body_constants": len(step.operands)}
    return Node(while_, (*test.operands, *step.operands, *carry), attrs, tuple(outputs), (test.region, step.region), n.source)


def _prune(n: Node, wanted: Flags) -> Node | None:
    """Without the parts of the carry and the constants that neither the condition nor anything wanted depends on."""
    condition, body = n.regions
    h, c, k = _parts(n, n.inputs)
    carry = live_carry([(condition, len(h)), (body, len(c))], wanted, condition.results, ())
    for_test, for_step = needed(condition, condition.results), needed(body, chosen(body.results, carry))
    keep_h, keep_c = [v in for_test for v in condition.params[:len(h)]], [v in for_step for v in body.params[:len(c)]]
    if all([*carry, *keep_h, *keep_c]):
        return None
    test = Part(shrunk(condition, [*keep_h, *carry], [True]), tuple(chosen(h, keep_h)))
    step = Part(shrunk(body, [*keep_c, *carry], carry), tuple(chosen(c, keep_c)))
    return _made(n, test, step, chosen(k, carry), chosen(n.outputs, carry))


def _absorb(n: Node, producer: Producer) -> tuple[list[Node], dict[Value, Value]] | None:
    """With carry that never changes as constants, and constants that are one number inside."""
    condition, body = n.regions
    h, c, k = _parts(n, n.inputs)
    fixed = unchanged_carry(body, len(c), len(k))
    constant = chosen(k, fixed)
    test = absorbed(Part(with_constants(condition, len(h), fixed), (*h, *constant)), producer)
    step = absorbed(Part(with_constants(body, len(c), fixed, fixed), (*c, *constant)), producer)
    if len(test.operands) + len(step.operands) == len(h) + len(c) and not any(fixed):
        return None
    node = _made(n, test, step, others(k, fixed), others(n.outputs, fixed))
    return [node], dict(zip(chosen(n.outputs, fixed), constant, strict=True))


def _hoist(n: Node) -> list[Node] | None:
    h, c, k = _parts(n, n.inputs)
    test, before = hoisted(Part(n.regions[0], tuple(h)))
    step, more = hoisted(Part(n.regions[1], tuple(c)))
    return [*before, *more, _made(n, test, step, k, n.outputs)] if before or more else None


while_ = Op(
    name="while",
    doc="while(*condition constants, *body constants, *carry) with regions condition(condition constants, carry) -> bool[] and "
        "body(body constants, carry) -> carry, run while the condition holds. Results: the carry. The attributes are counts.",
    infer=_while_infer,
    numpy=_while_numpy,
    rules=NodeRules(jvp=_jvp, linearize=_linearize, batch=_batch, reach=_reach, prune=_prune, absorb=_absorb,
                    hoist=_hoist, own_trips=True),
)


# ---- trips ----------------------------------------------------------------------------------------
def _trips_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], size: Dim) -> tuple[ArrayType, ...]:
    if len(types) != 1 or types[0].shape or types[0].dtype != I64:
        raise DTypeError(f"trips: the count must be i64[], got {', '.join(map(str, types))}")
    if symbol_of(size) is None:
        raise ShapeError(f"trips: {size} must be one symbol")
    return (types[0],)


trips = Op(
    name="trips",
    doc="The count, i64[], itself; from here on the symbol `size` is that number: a loop whose trip count is data has arrays "
        "with a row per trip. Such arrays are never results of a whole program.",
    infer=_trips_infer,
    numpy=lambda count, size: count,
    binds="size",
)
