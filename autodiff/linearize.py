"""Linearisation: the results of a graph, and the graph of its derivative at that point.

Guarantees: no split into known and unknown parts is written anywhere. The jvp rules run with primals where they live
and tangents in a newer builder, so every op that touches a tangent lands in the linear graph, everything else stays
with the primals, and what the linear graph captures are the residuals.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loopwright.autodiff.calls import Place
from loopwright.autodiff.jvp import push, tangent_type
from loopwright.autodiff.transpose import pull
from loopwright.ir.builder import Builder, Ref, inline
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, substitute_graph


@dataclass(frozen=True)
class Linear:
    """`graph`: tangents of the active arguments, then residuals -> tangents of the active results."""

    graph: Graph
    residuals: tuple[Ref | np.ndarray, ...]
    arguments: tuple[bool, ...]
    results: tuple[bool, ...]

    @property
    def is_unknown(self) -> tuple[bool, ...]:
        """Which parameters of the graph it is linear in."""
        return (True,) * sum(self.arguments) + (False,) * len(self.residuals)


def linearize(graph: Graph, primals: Sequence[Ref], arguments: Sequence[bool], into: Builder) -> tuple[list[Ref], Linear]:
    """The results, emitted where primals live, and the derivative with respect to the arguments that are marked."""
    behind = Builder(into.scope, into.why)
    tangents = [behind.param(tangent_type(x.type)) if a else None for x, a in zip(primals, arguments, strict=True)]
    results, moved = push(graph, primals, tangents, into, behind)
    linear, residuals = behind.finish([t for t in moved if t is not None])
    return results, Linear(linear, tuple(residuals), tuple(arguments), tuple(t is not None for t in moved))


def kept(linear: Linear, place: Place, results: Sequence[Ref]) -> tuple[list[Any], Linear]:
    """The results, and the derivative over residuals, as they outlive the place: where it is run at once, trip counts that were
    symbols are known."""
    counts = {s: x for s, x in place.builder.scope.counts.items() if s in linear.graph.free_symbols}
    values = place.values([*results, *place.refs(linear.residuals), *counts.values()])
    out, rest = values[:len(results)], values[len(results):]
    residuals, found = rest[:len(linear.residuals)], rest[len(linear.residuals):]
    sizes = {} if place.is_traced else {s: int(x) for s, x in zip(counts, found, strict=True)}
    graph = substitute_graph(linear.graph, sizes) if sizes else linear.graph
    return out, replace(linear, graph=graph, residuals=tuple(residuals))


def pull_back(linear: Linear, cotangents: Sequence[Ref | None], into: Builder) -> list[Ref | None]:
    """The cotangent of every argument (None: zero) from those of every result."""
    arriving = [ct for ct, a in zip(cotangents, linear.results, strict=True) if a]
    found = iter(pull(linear.graph, linear.is_unknown, linear.residuals, arriving, into))
    return [next(found) if a else None for a in linear.arguments]


def push_forward(linear: Linear, tangents: Sequence[Ref], into: Builder) -> list[Ref | None]:
    """The tangent of every result (None: zero) from those of the active arguments."""
    found = iter(inline(linear.graph, [*tangents, *linear.residuals], into))
    return [next(found) if a else None for a in linear.results]
