"""linear_solve: the solution of a linear system that a function applies, found by another function.

Guarantees: derivatives are those of the solution, whatever finds it: no transform looks inside the solver. With A x = b,
dx solves A dx = db - dA x, and the cotangent of b solves the transposed system; both are linear_solve again, so derivatives
have any order.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref, inline
from loopwright.ir.dims import Extent
from loopwright.ir.errors import GradientError
from loopwright.ir.graph import Graph, Node
from loopwright.ir.interpreter import Runner
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.arithmetic import difference
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.regions import check_types, filled, given, has, newest, spread_out, tangent_type, types_of
from loopwright.ir.types import ArrayType

Tangents = list[Ref | None]


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], vectors: int) -> tuple[ArrayType, ...]:
    """Regions: (b, constants) -> A b; -> the solution of A x = b, and aux; and where given, both for the transpose of A."""
    expected = [tangent_type(t) for t in types[:vectors]]
    for region in regions:
        check_types("linear_solve, parameters", types, types_of(region.params))
        check_types("linear_solve, results", expected, types_of(region.results[:vectors]))
    return tuple(types_of(regions[1].results))


def _run(*arrays: np.ndarray, regions: tuple[Graph, ...], sizes: Mapping[str, int], vectors: int) -> tuple[Any, ...]:
    return tuple(Runner(regions[1], sizes)(arrays))


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents) -> tuple[list[Ref], Tangents]:
    found = linear_solve.all(*primals, regions=n.regions, **n.attrs)
    count, flags = n.attrs["vectors"], _constants_only(n, tangents)
    moved: Tangents = [None] * count
    if any(wanted := engine.moving(n.regions[0], flags)):
        region = engine.jvp(n.regions[0], flags, wanted)
        at = [*found[:count], *primals[count:], *given(tangents[count:])]
        moved = spread_out(inline(region, at, newest(at))[count:], wanted)
    return found, _solved(n, primals, tangents, moved, newest(tangents))


def _linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents,
               behind: Builder) -> tuple[list[Ref], Tangents]:
    found = linear_solve.all(*primals, regions=n.regions, **n.attrs)
    count, flags = n.attrs["vectors"], _constants_only(n, tangents)
    moved: Tangents = [None] * count
    if any(wanted := engine.moving(n.regions[0], flags)):
        forward, linear = engine.linearize(n.regions[0], flags, wanted, [True] * len(flags))
        at = [*found[:count], *primals[count:]]
        residuals = inline(forward, at, newest(at))[count:]
        moved = spread_out(inline(linear, [*residuals, *given(tangents[count:])], behind), wanted)
    return found, _solved(n, primals, tangents, moved, behind)


def _constants_only(n: Node, tangents: Tangents) -> list[bool]:
    """Which parameters of the first region move while its vectors stand."""
    return [False] * n.attrs["vectors"] + has(tangents[n.attrs["vectors"]:])


def _solved(n: Node, primals: list[Ref], tangents: Tangents, moved: Tangents, into: Builder) -> Tangents:
    """The tangents of the results: those of the solution solve A dx = db - dA x. The others are constant."""
    count = n.attrs["vectors"]
    right = [difference(db, dax) for db, dax in zip(tangents[:count], moved, strict=True)]
    if not any(has(right)):
        return [None] * len(n.outputs)
    sides = filled(right, n.inputs[:count], into)
    found = linear_solve.all(*sides, *primals[count:], into=into, regions=n.regions, **n.attrs)
    return [*found[:count], *[None] * (len(found) - count)]


def _transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: Tangents) -> Tangents:
    count = n.attrs["vectors"]
    constants = [a for a in args[count:] if isinstance(a, Ref)]
    if len(constants) < len(args) - count:
        raise GradientError(f"{n.source}: custom_linear_solve is linear in the right-hand side b, and not in the values that "
                            f"matvec and solve close over.")
    if len(n.regions) < 4:
        raise GradientError(f"{n.source}: reverse mode (grad, vjp, jacrev) reaches a custom_linear_solve that says nothing of "
                            f"the transposed system. Pass transpose_solve=, or symmetric=True where the system is its own "
                            f"transpose.")
    have = [*constants, *given(cts)]
    sides = filled(cts[:count], n.outputs[:count], newest(have))
    matvec, solve, vecmat, transpose_solve = n.regions
    found = linear_solve.all(*sides, *constants, into=newest(have), regions=(vecmat, transpose_solve, matvec, solve), **n.attrs)
    return [*found[:count], *[None] * len(constants)]


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """All vectors get the axis, as solutions have it wherever one does; constants as they are."""
    count = n.attrs["vectors"]
    flags = [*[True] * count, *mapped[count:]]
    regions = tuple([engine.batch(r, size, flags, [True] * len(r.results)) for r in n.regions])
    sides = spread(size, tuple(args[:count]), tuple(mapped[:count]))
    return linear_solve.all(*sides, *args[count:], regions=regions, **n.attrs), [True] * len(n.outputs)


def _reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
    return [any(flags)] * len(n.outputs)


linear_solve = Op(
    name="linear_solve",
    doc="The solution of A x = b and what else the second region gives. Operands: the `vectors` arrays of b, then constants, "
        "and so for each region. Regions: A x; the solver; where there is a transpose, the same for that of A.",
    infer=_infer,
    numpy=_run,
    expand=lambda n: n.regions[1],
    rules=NodeRules(jvp=_jvp, linearize=_linearize, transpose=_transpose, batch=_batch, reach=_reach),
)
