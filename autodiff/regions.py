"""The engine that rules of nodes with regions are given: the walks of this package as functions from graph to graph.

Guarantees: a region that is made is closed, over the symbols of the graph around it; what a region leaves for its linear part
(its residuals) has types that hold outside the region: arrays whose size is a trip count inside it are computed again from
what they came from, and so is what `ir.residuals` finds cheaper than to keep.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.builder import Builder, Ref, build, inline, innermost, source_here, tracing
from loopwright.ir.dims import Extent, symbols_in
from loopwright.ir.graph import Graph, Node, Value, binding, renewed, silenced, symbols_of
from loopwright.ir.guards import Scope
from loopwright.ir.op import Flags
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.elementwise import no_tangent
from loopwright.ir.ops.regions import blank, chosen, split, spread_out
from loopwright.ir.residuals import Choice, Forward
from loopwright.ir.types import ArrayType


class Walks:
    """The walks over graphs, entered by the modules that own them, so that imports stay one-way."""

    push: Callable[..., tuple[list[Ref], list[Ref | None]]]
    pull: Callable[..., list[Ref | None]]
    batch: Callable[..., tuple[list[Ref], list[bool]]]


WALKS = Walks()


class Regions:
    """An `ir.op.Engine`. `scope` is that of the trace around: its equalities of sizes hold inside regions too."""

    def __init__(self, scope: Scope, axis: str | None = None) -> None:
        self.scope, self.axis = scope, axis

    def _build(self, rule: Callable[..., Sequence[Ref]], types: Sequence[ArrayType]) -> Graph:
        g = build(rule, types, self.scope)
        return Graph(g.params, g.nodes, g.results)

    def jvp(self, graph: Graph, active: Flags, wanted: Flags) -> Graph:
        """See ir.op.Engine."""
        count = len(graph.params)

        def rule(*refs: Ref) -> list[Ref]:
            into = _here()
            results, moved = WALKS.push(graph, refs[:count], spread_out(refs[count:], active), into)
            return [*results, *_filled(results, moved, wanted, into)]
        return self._build(rule, [*(v.type for v in graph.params), *map(_tangent_type, chosen(graph.params, active))])

    def linearize(self, graph: Graph, active: Flags, wanted: Flags, at_hand: Flags, shown: str = "") -> tuple[Graph, Graph]:
        """See ir.op.Engine."""
        front = Builder(self.scope, "a region")
        with tracing(front, is_floor=True):
            primals = [front.param(v.type) for v in graph.params]
            behind = Builder(self.scope, "a region")
            tangents = [behind.param(_tangent_type(v)) if a else None for v, a in zip(graph.params, active, strict=True)]
            results, moved = WALKS.push(graph, primals, tangents, front, behind)
            linear, residuals = behind.finish(_filled(results, moved, wanted, behind))
            forward, outer = front.finish([*results, *residuals])
        assert not outer, "a region captured an outer value"
        return self._kept(forward, linear, len(results), sum(active), at_hand, shown)

    def _kept(self, forward: Graph, linear: Graph, results: int, tangents: int, at_hand: Flags,
              shown: str) -> tuple[Graph, Graph]:
        """Choose what is kept; the linear part computes the rest again. Its parameters: residuals, then tangents."""
        wanted = forward.results[results:]
        free = [v for v, is_free in zip((*forward.params, *forward.results), at_hand, strict=False) if is_free]
        choice, again = self._chosen(forward, wanted, set(linear.free_symbols), free)
        kept = choice.operands
        if shown:
            self.scope.choices.append((shown, choice))

        def rule(*refs: Ref) -> list[Ref]:
            into = _here()
            env = dict(zip(kept, refs, strict=False))
            for n in again:
                env.update(zip(n.outputs, _emit(n, [env[v] for v in n.inputs], into), strict=True))
            return inline(linear, [*refs[len(kept):], *(env[v] for v in wanted)], into)
        types = [*(v.type for v in kept), *(v.type for v in linear.params[:tangents])]
        return (Graph(forward.params, forward.nodes, (*forward.results[:results], *kept)), renewed(self._build(rule, types)))

    def _chosen(self, g: Graph, wanted: Sequence[Value], symbols: set[str],
                at_hand: Sequence[Value]) -> tuple[Choice, list[Node]]:
        """What to keep, and the nodes that make the wanted values of it; those that bind the symbols they use are among them.
        Arrays with a size that is bound here cannot be kept."""
        own = {s for n in g.nodes for s in binding(n)}
        needs = dict.fromkeys(wanted)
        ahead = Forward(g, at_hand, self.scope.hints, lambda v: any(not own.isdisjoint(symbols_in(x)) for x in v.type.shape))
        while True:
            choice = ahead.choose(needs, source_here())
            used = symbols.union(*map(symbols_of, choice.again)) & own
            binders = [n for n in g.nodes if not used.isdisjoint(binding(n))] if used else []
            missing = [v for n in binders for v in n.inputs if v not in needs]
            if not missing:
                run = {*choice.again, *binders}
                return choice, [silenced(n) for n in g.nodes if n in run]
            needs.update(dict.fromkeys(missing))

    def transpose(self, graph: Graph, unknown: Flags, arriving: Flags) -> Graph:
        """See ir.op.Engine."""
        known = [v for v, u in zip(graph.params, unknown, strict=True) if not u]

        def rule(*refs: Ref) -> list[Ref]:
            into = _here()
            have, cts = split(refs, len(known))
            found = WALKS.pull(graph, unknown, have, spread_out(cts, arriving), into)
            return [blank(_tangent_type(v), into) if ct is None else ct
                    for v, ct in zip(chosen(graph.params, unknown), found, strict=True)]
        return self._build(rule, [*(v.type for v in known), *map(_tangent_type, chosen(graph.results, arriving))])

    def batch(self, graph: Graph, size: Extent, mapped: Flags, wanted: Flags) -> Graph:
        """See ir.op.Engine."""
        def rule(*refs: Ref) -> list[Ref]:
            results, has = WALKS.batch(graph, size, refs, mapped, _here(), self.axis)
            assert all(w or not h for w, h in zip(wanted, has, strict=True)), "a result is mapped that should not be"
            return [spread(size, (x,), (h,))[0] if w else x for x, w, h in zip(results, wanted, has, strict=True)]
        types = [v.type.with_shape((size, *v.type.shape)) if m else v.type for v, m in zip(graph.params, mapped, strict=True)]
        return self._build(rule, types)

    def moving(self, graph: Graph, active: Flags) -> list[bool]:
        """See ir.op.Engine."""
        found = reached(graph, active, self.moving, _carries_tangents)
        return [v in found for v in graph.results]

    def varying(self, graph: Graph, mapped: Flags) -> list[bool]:
        """See ir.op.Engine."""
        found = reached(graph, mapped, self.varying, self._differs)
        return [v in found for v in graph.results]

    def _differs(self, n: Node, v: Value) -> bool:
        """Whether the elements of the axis that is being batched may have results of their own."""
        return not n.op.alike or n.op.across is None or n.attrs[n.op.across] != self.axis


def reached(graph: Graph, flags: Flags, through: Callable[[Graph, Flags], list[bool]],
            passes: Callable[[Node, Value], bool] = lambda n, v: True) -> set[Value]:
    """Every value that depends on a marked parameter; `passes` says whether a node's output lets it through. What is as large
    as a marked count depends on that count."""
    found, symbols = set(chosen(graph.params, flags)), set[str]()
    for n in graph.nodes:
        if n.op.binds is not None and not found.isdisjoint(n.inputs):
            symbols.update(binding(n))
        if symbols and not symbols.isdisjoint(symbols_of(n)):
            found.update([v for v in n.outputs if passes(n, v)])
        elif not found.isdisjoint(n.inputs):
            own = n.outputs if n.op.rules is None else chosen(
                n.outputs, n.op.rules.reach(n, [v in found for v in n.inputs], through))
            found.update([v for v in own if passes(n, v)])
    return found


def varying_values(graph: Graph, flags: Flags) -> set[Value]:
    """Every value that depends on a marked parameter."""
    return reached(graph, flags, Regions(Scope()).varying)


def _carries_tangents(n: Node, v: Value) -> bool:
    return v.type.is_inexact and n.op.jvp is not no_tangent


def _here() -> Builder:
    """The region that is being built."""
    here = innermost()
    assert here is not None
    return here


def _filled(results: Sequence[Ref], moved: Sequence[Ref | None], wanted: Flags, into: Builder) -> list[Ref]:
    """The tangents of the wanted results."""
    return [blank(_tangent_type(x), into) if t is None else t
            for x, t in chosen(zip(results, moved, strict=True), wanted)]


def _tangent_type(x: Value | Ref) -> ArrayType:
    return x.type.with_shape(x.type.shape)


def _emit(n: Node, inputs: Sequence[Ref], into: Builder) -> list[Ref]:
    return into.bind_all(n.op, inputs, n.attrs, n.regions)
