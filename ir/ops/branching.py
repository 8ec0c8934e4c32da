"""switch: one of several regions, chosen by a number."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref, inline
from loopwright.ir.dims import Extent
from loopwright.ir.errors import DTypeError
from loopwright.ir.graph import Graph, Node, Value, renewed
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.comparison import eq, le
from loopwright.ir.ops.construct import full, full_like, scalar
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.ops.loop_rewriting import Part, Producer, absorbed, copied, needed, shrunk
from loopwright.ir.ops.masking import chosen_rows, pays, region, replaced_rows
from loopwright.ir.ops.reductions import reduce_any
from loopwright.ir.ops.regions import (
    blank,
    check_types,
    chosen,
    either,
    given,
    has,
    newest,
    rearranged,
    replaced,
    spread_out,
    tangent_type,
    types_of,
    unused,
)
from loopwright.ir.ops.scanning import each_node, refuse_unlike
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import reshape, transpose
from loopwright.ir.ops.transcendental import power
from loopwright.ir.types import BOOL, I64, ArrayType


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...]) -> tuple[ArrayType, ...]:
    if not types or types[0].shape or types[0].dtype != I64:
        raise DTypeError(f"switch: the index must be i64[], got {types[0] if types else 'nothing'}")
    for k, g in enumerate(regions):
        check_types(f"switch, parameters of branch {k}", types_of(g.params), types[1:])
        check_types(f"switch, results of branch {k}", types_of(regions[0].results), types_of(g.results))
    return tuple(types_of(regions[0].results))


def _numpy(index: np.ndarray, *operands: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    return tuple(Runner(regions[int(index)], sizes)(operands))


# ---- derivatives ----------------------------------------------------------------------------------
def _through_all(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
    """What depends on the operands in one branch or another."""
    found = [False] * len(n.outputs)
    for g in n.regions:
        found = either(found, through(g, flags))
    return found


def _reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
    """Every result depends on the index."""
    return [flags[0] or f for f in _through_all(n, flags[1:], through)]


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None]) -> tuple[list[Ref], list[Ref | None]]:
    active = has(tangents[1:])
    wanted = _through_all(n, active, engine.moving)
    regions = tuple([engine.jvp(g, active, wanted) for g in n.regions])
    outs = switch.all(*primals, *given(tangents[1:]), regions=regions)
    return outs[:len(wanted)], spread_out(outs[len(wanted):], wanted)


def _linearize(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None],
               behind: Builder) -> tuple[list[Ref], list[Ref | None]]:
    """Branches share the places of residuals of one type; those that are operands are not handed on."""
    active = has(tangents[1:])
    wanted = _through_all(n, active, engine.moving)
    pairs = [engine.linearize(g, active, wanted, [True] * len(active), "a branch") for g in n.regions]
    count = len(wanted)
    slots, takes = _slots([f.results[count:] for f, _ in pairs], [f.params for f, _ in pairs])
    regions = tuple([_keeping(f, count, slots, take) for (f, _), take in zip(pairs, takes, strict=True)])
    outs = switch.all(*primals, regions=regions)
    linear = tuple([_reading(g, n.regions[0].params, slots, take) for (_, g), take in zip(pairs, takes, strict=True)])
    moved = switch.all(primals[0], *primals[1:], *outs[count:], *given(tangents[1:]), into=behind, regions=linear)
    return outs[:count], spread_out(moved, wanted)


_Take = list[tuple[bool, int]]  # where each residual of a branch is: (is an operand, its number or that of its slot)


def _slots(residuals: Sequence[Sequence[Value]], params: Sequence[Sequence[Value]]) -> tuple[list[ArrayType], list[_Take]]:
    """Types of as many slots as some branch needs, and where the residuals of each branch are."""
    slots: list[ArrayType] = []
    takes = []
    for own, operands in zip(residuals, params, strict=True):
        free, take = list(range(len(slots))), []
        for v in own:
            if v in operands:
                take.append((True, operands.index(v)))
                continue
            t = tangent_type(v.type)
            slot = next((k for k in free if slots[k] == t), len(slots))
            if slot == len(slots):
                slots.append(t)
            else:
                free.remove(slot)
            take.append((False, slot))
        takes.append(take)
    return slots, takes


def _keeping(g: Graph, count: int, slots: Sequence[ArrayType], take: _Take) -> Graph:
    """A branch with its residuals in their slots, zeros in the others."""
    at = {slot: v for v, (is_operand, slot) in zip(g.results[count:], take, strict=True) if not is_operand}
    blanks = {k: Value(t) for k, t in enumerate(slots) if k not in at}
    nodes = [Node(full, (), {"value": scalar(0, v.type.dtype), "shape": v.type.shape, "dtype": v.type.dtype}, (v,))
             for v in blanks.values()]
    return Graph(g.params, (*g.nodes, *nodes), (*g.results[:count], *({**at, **blanks}[k] for k in range(len(slots)))))


def _reading(g: Graph, operands: Sequence[Value], slots: Sequence[ArrayType], take: _Take) -> Graph:
    """The linear part of a branch, over operands, slots and tangents."""
    params, spare = unused(types_of(operands)), unused(slots)
    to = {v: (params if is_operand else spare)[k] for v, (is_operand, k) in zip(g.params, take, strict=False)}
    return rearranged(replaced(g, to), [*params, *spare, *g.params[len(take):]])


def _transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: list[Ref | None]) -> list[Ref | None]:
    unknown = [isinstance(a, ArrayType) for a in args[1:]]
    varying = _through_all(n, unknown, engine.varying)
    arriving = [v and ct is not None for v, ct in zip(varying, cts, strict=True)]
    regions = tuple([engine.transpose(g, unknown, arriving) for g in n.regions])
    outs = switch.all(*(a for a in args if isinstance(a, Ref)), *given(chosen(cts, arriving)), regions=regions)
    return [None, *spread_out(outs, unknown)]


# ---- batching -------------------------------------------------------------------------------------
def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """With one index for all, batched branches. With an index each: every branch where that can do no harm, else one element
    after another or every branch for those that take it, so that what a branch not taken would do (fail, not end, be NaN) is
    not seen."""
    if not mapped[0]:
        wanted = _through_all(n, mapped[1:], engine.varying)
        regions = tuple([engine.batch(g, size, mapped[1:], wanted) for g in n.regions])
        return switch.all(*args, regions=regions), wanted
    if not all(map(is_harmless, n.regions)):
        own = [v.type for v, f in zip(n.inputs, mapped, strict=True) if f]
        return (_masked if size != 0 and pays(n.regions, own) else each_node)(engine, size, n, args, mapped)
    rows = [inline(engine.batch(g, size, mapped[1:], [True] * len(n.outputs)), args[1:], args[0].builder) for g in n.regions]
    found = rows[-1]
    for k in reversed(range(len(rows) - 1)):
        found = chosen_rows(le(args[0], full_like(args[0], k)), rows[k], found)
    return found, [True] * len(found)


def _masked(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """Each branch that some element takes, for all."""
    refuse_unlike(engine, n)
    scope, types = newest(args).scope, [ArrayType((size,), BOOL), *types_of(args[1:])]
    found: list[Ref] = []
    for k, g in enumerate(n.regions):
        branch = engine.batch(g, size, mapped[1:], [True] * len(n.outputs))

        def taken(active: Ref, *xs: Ref, branch: Graph = branch) -> list[Ref]:
            return inline(branch, replaced_rows(active, xs, mapped[1:]), active.builder)

        def skipped(active: Ref, *xs: Ref, branch: Graph = branch) -> list[Ref]:
            return [blank(tangent_type(v.type), active.builder) for v in branch.results]
        active = eq(args[0], full_like(args[0], k))
        some = convert(reduce_any(active, axes=(0,)), dtype=I64)
        rows = switch.all(some, active, *args[1:], regions=(region(skipped, types, scope), region(taken, types, scope)))
        found = chosen_rows(active, rows, found) if found else rows
    return found, [True] * len(found)


def is_harmless(g: Graph) -> bool:
    """Whether a graph can be run and differentiated for elements that do not need it: element by element, no error
    and no effect."""
    return not g.has_effects and all(
        (n.op.shape is same_shape and n.op is not power) or not n.inputs or n.op in (broadcast, reshape, transpose)
        for n in g.nodes)


# ---- rewriting ------------------------------------------------------------------------------------
def _prune(n: Node, wanted: Flags) -> Node | None:
    """Without results that are not wanted, and operands that no branch then needs."""
    params = [False] * (len(n.inputs) - 1)
    for g in n.regions:
        found = needed(g, chosen(g.results, wanted))
        params = either(params, [v in found for v in g.params])
    if all(wanted) and all(params):
        return None
    return Node(switch, (n.inputs[0], *chosen(n.inputs[1:], params)), {}, tuple(chosen(n.outputs, wanted)),
                tuple([shrunk(g, params, wanted) for g in n.regions]), n.source)


def _absorb(n: Node, producer: Producer) -> tuple[list[Node], dict[Value, Value]] | None:
    """The branch itself where the index is a number; else operands that are one number made inside the branches."""
    index = producer(n.inputs[0])
    if index is not None and index.op is full:
        g = renewed(n.regions[index.attrs["value"]])
        made = copied(g.nodes, dict(zip(g.params, n.inputs[1:], strict=True)))
        return made.nodes, {v: made.value[r] for v, r in zip(n.outputs, g.results, strict=True)}
    parts = [absorbed(Part(g, n.inputs[1:]), producer) for g in n.regions]
    if len({p.operands for p in parts}) != 1 or len(parts[0].operands) == len(n.inputs) - 1:
        return None
    regions = tuple([p.region for p in parts])
    return [Node(switch, (n.inputs[0], *parts[0].operands), {}, n.outputs, regions, n.source)], {}


switch = Op(
    name="switch",
    doc="The region of this number, run on the operands: switch(index: i64[], *operands), one region per branch, all of one "
        "type. The index is in range.",
    infer=_infer,
    numpy=_numpy,
    rules=NodeRules(jvp=_jvp, linearize=_linearize, transpose=_transpose, batch=_batch, reach=_reach, prune=_prune,
                    absorb=_absorb),
)
