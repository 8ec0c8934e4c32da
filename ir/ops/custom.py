"""Functions with derivatives of their own, and functions that are computed again in reverse mode.

Guarantees: a node does what its first region does; no transform looks inside that region for a derivative where a rule is
given. Regions are closed: what the functions captured is among the operands, after the `operands` that the rules are about.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.builder import Builder, Ref, inline
from loopwright.ir.dims import Extent
from loopwright.ir.errors import GradientError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.broadcasting import reduce_sum, spread
from loopwright.ir.ops.control import while_
from loopwright.ir.ops.elementwise import no_tangent
from loopwright.ir.ops.regions import (
    check_types,
    chosen,
    either,
    filled,
    given,
    newest,
    spread_out,
    tangent_type,
    types_of,
)
from loopwright.ir.types import ArrayType

T = TypeVar("T")
Tangents = list[Ref | None]
Through = Callable[[Graph, Flags], list[bool]]


def _run(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], **attrs: Any) -> tuple[Any, ...]:
    return tuple(Runner(regions[0], sizes)(arrays))


def _inexact(xs: Iterable[Value | ArrayType]) -> list[bool]:
    return [(x if isinstance(x, ArrayType) else x.type).is_inexact for x in xs]


def _tangent_types(xs: Iterable[Value | ArrayType]) -> list[ArrayType]:
    """Those of the values that have tangents."""
    types = [x if isinstance(x, ArrayType) else x.type for x in xs]
    return [tangent_type(t) for t in types if t.is_inexact]


def _all_or_none(n: Node, flags: Flags, through: Through) -> list[bool]:
    """A rule may give a derivative where the function seems to have none."""
    return [any(flags)] * len(n.outputs)


def _directions(n: Node, tangents: Sequence[Ref | None], into: Builder) -> list[Ref]:
    """A tangent for each operand that a rule is about."""
    count = n.attrs["operands"]
    if any(t is not None for t in tangents[count:]):
        raise GradientError(
            f"{n.source}: a derivative reaches a value that a function with {n.op.name} rules closes over, or takes in "
            f"nondiff_argnums. The rule says how to differentiate with respect to the other arguments only: pass the value as "
            f"one of those, or hold it constant by lax.stop_gradient.")
    own = n.inputs[:count]
    return filled(chosen(tangents[:count], _inexact(own)), chosen(own, _inexact(own)), into)


def _moved(n: Node, tangents: Sequence[Ref]) -> Tangents:
    """The tangents of all results, given those of the inexact ones."""
    return spread_out(tangents, _inexact(n.outputs))


def _transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: Tangents) -> Tangents:
    """A linear function is transposed as it stands."""
    unknown = [isinstance(a, ArrayType) for a in args]
    arriving = [ct is not None for ct in cts]
    known = [a for a in args if isinstance(a, Ref)]
    region = engine.transpose(n.regions[0], unknown, arriving)
    return spread_out(inline(region, [*known, *given(cts)], newest([*known, *given(cts)])), unknown)


# ---- a rule for forward mode ----------------------------------------------------------------------
def _jvp_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], operands: int) -> tuple[ArrayType, ...]:
    """Regions: operands -> results; operands, tangents -> results, tangents: of those that are inexact."""
    primal, rule = regions
    results = types_of(primal.results)
    check_types("custom_jvp, parameters", types, types_of(primal.params))
    check_types("custom_jvp, parameters of the rule", [*types, *_tangent_types(types[:operands])], types_of(rule.params))
    check_types("custom_jvp, results of the rule", [*results, *_tangent_types(results)], types_of(rule.results))
    return tuple(results)


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents) -> tuple[list[Ref], Tangents]:
    along = _directions(n, tangents, newest(tangents))
    outs = inline(n.regions[1], [*primals, *along], newest([*primals, *along]))
    count = len(n.outputs)
    return outs[:count], _moved(n, outs[count:])


def _jvp_linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents,
                   behind: Builder) -> tuple[list[Ref], Tangents]:
    """The rule is linear in tangents, so it is its own derivative there, at any tangents: at zeros."""
    rule, count = n.regions[1], len(n.outputs)
    along, here = _directions(n, tangents, behind), newest(primals)
    flags = [False] * len(primals) + [True] * len(along)
    _check_linear(rule, flags)
    wanted = [False] * count + [True] * (len(rule.results) - count)
    forward, linear = engine.linearize(rule, flags, wanted, [True] * len(flags))
    outs = inline(forward, [*primals, *filled([None] * len(along), along, here)], here)
    return outs[:count], _moved(n, inline(linear, [*outs[len(rule.results):], *along], behind))


def _check_linear(rule: Graph, flags: Flags) -> None:
    """GradientError where a rule is surely not linear in its tangents."""
    moving = set(chosen(rule.params, flags))
    for n in rule.nodes:
        along = [k for k, v in enumerate(n.inputs) if v in moving]
        if not along or n.op.jvp is no_tangent:
            continue
        moving.update([v for v in n.outputs if v.type.is_inexact])
        is_linear = set(along) <= set(n.op.linear) and (n.op.jointly or len(along) == 1)
        if n.op.rules is None and n.outputs[0].type.is_inexact and not is_linear:
            raise _not_linear(n, f"{n.op.name} is applied to them here")
    _check_loops(rule, flags)


def _not_linear(n: Node, what: str) -> GradientError:
    return GradientError(f"{n.source}: a custom_jvp rule, like the tangent_solve of custom_root, must be linear in the "
                         f"tangents, but {what}. Apply that to primals only, and solve linear systems by iteration through "
                         f"lax.custom_linear_solve.")


def _check_loops(g: Graph, flags: Flags) -> list[bool]:
    """Which results depend on tangents. GradientError where the number of trips of a loop does."""
    found = set(chosen(g.params, flags))
    for n in g.nodes:
        along = [v in found for v in n.inputs]
        if n.op.rules is None:
            found.update(n.outputs if any(along) else ())
        elif any(along):
            out = n.op.rules.reach(n, along, _check_loops)
            found.update(chosen(n.outputs, out))
            constants = n.attrs.get("condition_constants", 0)
            if n.op is while_ and _check_loops(n.regions[0], [*along[:constants], *out])[0]:
                raise _not_linear(n, "how often this loop runs depends on them")
    return [v in found for v in g.results]


def _jvp_batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    primal, rule = n.regions
    own, count = n.inputs[:n.attrs["operands"]], len(n.outputs)
    flags = [*mapped, *chosen(mapped[:len(own)], _inexact(own))]
    found = engine.varying(rule, flags)
    moved = [bool(f) for f in spread_out(chosen(found[count:], [True] * (len(found) - count)), _inexact(n.outputs))]
    wanted = either(either(engine.varying(primal, mapped), found[:count]), moved)
    regions = (engine.batch(primal, size, mapped, wanted),
               engine.batch(rule, size, flags, [*wanted, *chosen(wanted, _inexact(n.outputs))]))
    return custom_jvp.all(*args, regions=regions, **n.attrs), wanted


custom_jvp = Op(
    name="custom_jvp",
    doc="Its first region, run on the operands; the second is its derivative: (operands, tangents of the first `operands` that "
        "are inexact) -> (results, tangents of those that are inexact). Operands after the first `operands` are constant.",
    infer=_jvp_infer,
    numpy=_run,
    expand=lambda n: n.regions[0],
    rules=NodeRules(jvp=_jvp, linearize=_jvp_linearize, transpose=_transpose, batch=_jvp_batch, reach=_all_or_none),
)


# ---- a rule for reverse mode ----------------------------------------------------------------------
def _vjp_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], operands: int) -> tuple[ArrayType, ...]:
    """Regions: operands -> results; operands -> results, residuals; constants, residuals, cotangents -> cotangents."""
    primal, forward, backward = regions
    results = types_of(primal.results)
    check_types("custom_vjp, parameters", types, types_of(primal.params))
    check_types("custom_vjp, parameters of the forward rule", types, types_of(forward.params))
    check_types("custom_vjp, results of the forward rule", results, types_of(forward.results[:len(results)]))
    residuals = types_of(forward.results[len(results):])
    check_types("custom_vjp, parameters of the backward rule", [*types[operands:], *residuals, *_tangent_types(results)],
                types_of(backward.params))
    check_types("custom_vjp, results of the backward rule", _tangent_types(types[:operands]), types_of(backward.results))
    return tuple(results)


def _no_forward_mode(n: Node) -> GradientError:
    return GradientError(f"{n.source}: forward mode (jvp, jacfwd, linearize, hessian) reaches a function with custom_vjp "
                         f"rules, which say what its reverse mode is and nothing else. Use grad, vjp or jacrev, or give the "
                         f"derivative by custom_jvp, which serves both.")


def _refuse_forward(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents) -> tuple[list[Ref], Tangents]:
    raise _no_forward_mode(n)


def _vjp_linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents,
                   behind: Builder) -> tuple[list[Ref], Tangents]:
    """The forward rule at once; the backward rule waits in a node for its transpose."""
    _, forward, backward = n.regions
    along, count = _directions(n, tangents, behind), len(n.outputs)
    outs = inline(forward, primals, newest(primals))
    known = [*primals[n.attrs["operands"]:], *outs[count:]]
    return outs[:count], _moved(n, pullback.all(*known, *along, into=behind, regions=(backward,), known=len(known)))


def _vjp_batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    primal, forward, backward = n.regions
    count, own = len(n.outputs), n.attrs["operands"]
    ahead = engine.varying(forward, mapped)
    wanted = either(engine.varying(primal, mapped), ahead[:count])
    flags = [*mapped[own:], *ahead[count:], *chosen(wanted, _inexact(n.outputs))]
    regions = (engine.batch(primal, size, mapped, wanted), engine.batch(forward, size, mapped, [*wanted, *ahead[count:]]),
               _batched_backward(engine, size, backward, flags, chosen(mapped[:own], _inexact(n.inputs[:own]))))
    return custom_vjp.all(*args, regions=regions, **n.attrs), wanted


def _batched_backward(engine: Engine, size: Extent, backward: Graph, flags: Flags, mapped: Flags) -> Graph:
    """Cotangents of operands that all elements share are added up."""
    found = either(engine.varying(backward, flags), mapped)
    g = engine.batch(backward, size, flags, found)
    totals = {v: Value(w.type) for v, w, f, m in zip(g.results, backward.results, found, mapped, strict=True) if f and not m}
    sums = [Node(reduce_sum, (v,), {"axes": (0,)}, (total,)) for v, total in totals.items()]
    results = [v if m else totals.get(v, v) for v, m in zip(g.results, mapped, strict=True)]
    return Graph(g.params, (*g.nodes, *sums), tuple(results))


custom_vjp = Op(
    name="custom_vjp",
    doc="Its first region, run on the operands. In reverse mode the second is run instead, operands -> (results, residuals), "
        "and the third gives (constants, residuals, cotangents of inexact results) -> cotangents of the inexact ones among the "
        "first `operands`. The other operands are the constants.",
    infer=_vjp_infer,
    numpy=_run,
    expand=lambda n: n.regions[0],
    rules=NodeRules(jvp=_refuse_forward, linearize=_vjp_linearize, transpose=_transpose, batch=_vjp_batch, reach=_all_or_none),
)


# ---- a linear function that is known by its transpose -----------------------------------------------
def _pullback_infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], known: int) -> tuple[ArrayType, ...]:
    backward, = regions
    check_types("pullback, known operands", types[:known], types_of(backward.params[:known]))
    check_types("pullback, tangents", types[known:], types_of(backward.results))
    return tuple(types_of(backward.params[known:]))


def _refuse(*arrays: np.ndarray, **attrs: Any) -> tuple[Any, ...]:
    raise GradientError("forward mode reached a function with custom_vjp rules; use reverse mode, or custom_jvp rules")


def _refuse_expansion(n: Node) -> Graph:
    raise _no_forward_mode(n)


def _pullback_linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents,
                        behind: Builder) -> tuple[list[Ref], Tangents]:
    raise _no_forward_mode(n)


def _pullback_transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: Tangents) -> Tangents:
    known = n.attrs["known"]
    have = [a for a in args[:known] if isinstance(a, Ref)]
    if len(have) < known:
        raise _no_forward_mode(n)
    into = newest([*have, *cts])
    return [None] * known + list(inline(n.regions[0], [*have, *filled(cts, n.outputs, into)], into))


def _pullback_batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    known, count = n.attrs["known"], len(n.outputs)
    moving = spread(size, tuple(args[known:]), tuple(mapped[known:]))
    region = engine.batch(n.regions[0], size, [*mapped[:known], *[True] * count], [True] * len(moving))
    return pullback.all(*args[:known], *moving, regions=(region,), **n.attrs), [True] * count


pullback = Op(
    name="pullback",
    doc="The linear function of the operands after the first `known` whose transpose is the region: (known, cotangents of the "
        "results) -> cotangents of those operands. It can be transposed, and not run.",
    infer=_pullback_infer,
    numpy=_refuse,
    expand=_refuse_expansion,
    rules=NodeRules(jvp=_refuse_forward, linearize=_pullback_linearize, transpose=_pullback_transpose, batch=_pullback_batch,
                    reach=_all_or_none),
)
