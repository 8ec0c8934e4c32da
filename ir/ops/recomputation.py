"""checkpoint: a function that is computed again in reverse mode, so that little is kept for it.

Guarantees: between the forward and the backward pass nothing is kept but operands and what the policy names; the backward
pass computes the rest again, in a node of its own, which no pass merges with the forward one. Derivatives of any order
are checkpointed alike.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dims import Extent, symbols_in
from loopwright.ir.elimination import live, remove_dead
from loopwright.ir.graph import Graph, Node, Value, silent
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Engine, Example, Flags, NodeRules, Op
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.regions import check_types, given, has, newest, replaced, spread_out, types_of
from loopwright.ir.types import ArrayType


def _is_dot(n: Node) -> bool:
    return n.op is dot_general


def _is_dot_without_batch(n: Node) -> bool:
    return n.op is dot_general and not n.attrs["batch"]


POLICIES: Mapping[str, Callable[[Node], bool]] = {
    "nothing_saveable": lambda n: False,
    "dots_saveable": _is_dot,
    "checkpoint_dots": _is_dot,
    "dots_with_no_batch_dims_saveable": _is_dot_without_batch,
    "checkpoint_dots_with_no_batch_dims": _is_dot_without_batch,
    "everything_saveable": lambda n: True,
}
BY_NAMES: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {  # of the name of a value, None where it has none
    "save_only_these_names": lambda name, names: name in names,
    "save_any_names_but_these": lambda name, names: name is not None and name not in names,
    "save_anything_except_these_names": lambda name, names: name not in names,
}
Policy = str | tuple[str, tuple[str, ...]]  # one of POLICIES, or one of BY_NAMES with the names
_Through = Callable[[Graph, Flags], list[bool]]


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], policy: Policy) -> tuple[ArrayType, ...]:
    check_types("checkpoint, parameters", types, types_of(regions[0].params))
    return tuple(types_of(regions[0].results))


def _run(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], policy: Policy) -> tuple[Any, ...]:
    return tuple(Runner(regions[0], sizes)(arrays))


def _reach(n: Node, flags: Flags, through: _Through) -> list[bool]:
    return through(n.regions[0], flags)


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None]) -> tuple[list[Ref], list[Ref | None]]:
    active = has(tangents)
    wanted = engine.moving(n.regions[0], active)
    region = engine.jvp(n.regions[0], active, wanted)
    outs = checkpoint.all(*primals, *given(tangents), regions=(region,), **n.attrs)
    return outs[:len(wanted)], spread_out(outs[len(wanted):], wanted)


def _linearize(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None],
               behind: Builder) -> tuple[list[Ref], list[Ref | None]]:
    """The linear part is a node that starts from the operands again, and so is its transpose."""
    active, count = has(tangents), len(n.outputs)
    wanted = engine.moving(n.regions[0], active)
    forward, linear = engine.linearize(n.regions[0], active, wanted, [True] * len(active))
    kept = _kept(forward, forward.results[count:], _saving(forward, n.attrs["policy"]))
    ahead = remove_dead(Graph(forward.params, forward.nodes, (*forward.results[:count], *kept)))
    outs = checkpoint.all(*primals, regions=(ahead,), **n.attrs)
    again = _joined(silent(forward), forward.results[count:], kept, linear)
    moved = checkpoint.all(*primals, *outs[count:], *given(tangents), into=behind, regions=(again,), **n.attrs)
    return outs[:count], spread_out(moved, wanted)


def _saving(g: Graph, policy: Policy) -> Callable[[Node], bool]:
    """Whether a policy keeps what a node of g makes."""
    if isinstance(policy, str):
        return POLICIES[policy]
    rule, names = policy
    name = {n.inputs[0]: n.attrs["name"] for n in g.nodes if n.op is checkpoint_name}
    return lambda n: n.op is not checkpoint_name and any(BY_NAMES[rule](name.get(v), names) for v in n.outputs)


def _kept(g: Graph, residuals: Sequence[Value], saves: Callable[[Node], bool]) -> list[Value]:
    """What a policy keeps of the values that residuals come from."""
    bound, needed, kept = g.bound, set(residuals), []
    for n in reversed(g.nodes):
        mine = [v for v in n.outputs if v in needed]
        if not mine:
            continue
        if saves(n) and n.inputs and not any(s in bound for v in mine for x in v.type.shape for s in symbols_in(x)):
            kept += mine
        else:
            needed.update(n.inputs)
    return kept[::-1]


def _joined(forward: Graph, residuals: Sequence[Value], kept: Sequence[Value], linear: Graph) -> Graph:
    """(parameters, kept values, tangents) -> tangents: what is not kept is computed again."""
    given_values = {v: Value(v.type) for v in kept}
    ahead = replaced(forward, given_values)
    to = {p: given_values.get(v, v) for p, v in zip(linear.params, residuals, strict=False)}
    behind = replaced(linear, to)
    params = (*forward.params, *given_values.values(), *linear.params[len(residuals):])
    return Graph(params, live([*ahead.nodes, *behind.nodes], behind.results), behind.results)


def _transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: list[Ref | None]) -> list[Ref | None]:
    unknown = [isinstance(a, ArrayType) for a in args]
    region = engine.transpose(n.regions[0], unknown, has(cts))
    operands = [*(a for a in args if isinstance(a, Ref)), *given(cts)]
    return spread_out(checkpoint.all(*operands, into=newest(operands), regions=(region,), **n.attrs), unknown)


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    wanted = engine.varying(n.regions[0], mapped)
    region = engine.batch(n.regions[0], size, mapped, wanted)
    return checkpoint.all(*args, regions=(region,), **n.attrs), wanted


checkpoint = Op(
    name="checkpoint",
    doc="Its region, run on the operands. Reverse mode keeps the operands and what `policy` names; the rest is computed again.",
    infer=_infer,
    numpy=_run,
    expand=lambda n: n.regions[0],
    apart=True,
    rules=NodeRules(jvp=_jvp, linearize=_linearize, transpose=_transpose, batch=_batch, reach=_reach),
)

checkpoint_name: Op = Op(
    name="checkpoint_name",
    doc="x itself, under a name that policies of checkpoint speak of.",
    shape=lambda x, name: x.shape,
    dtype=lambda x, name: x.dtype,
    numpy=lambda x, name: x,
    batch=lambda size, args, mapped, name: checkpoint_name(*args, name=name),
    loop=lambda context, index, name: context.load(0, index),
    jvp=lambda primals, tangents, out, name: tangents[0],
    expand=lambda n: Graph((p := Value(n.inputs[0].type),), (), (p,)),
    examples=(Example(("f64[n, 3]",), {"name": "hidden"}), Example(("f32[]",), {"name": "last"})),
)
