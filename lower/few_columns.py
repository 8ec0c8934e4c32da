"""Loops along, and steps over, a last axis that turns out to have few elements, as the channels of images.

A loop over three elements inside one over pixels costs more than what it does, and numbers that lie three apart are
loaded one by one. Where the number of elements is known, they are spelled out, with lanes from pixel to pixel; where it is
known at the call only, a kernel has such bodies beside its own.

Guarantees: every element is computed by the same expression.
"""
from __future__ import annotations

from loopwright.ir.dims import Dim, substitute, symbols_in
from loopwright.ir.graph import Graph, substitute_graph
from loopwright.ir.nest import For, Nest, Store, altered
from loopwright.ir.schedule import (
    FewColumns,
    FewSteps,
    Fuse,
    Inline,
    InPlace,
    Interleave,
    Parallel,
    Schedule,
    ShortRows,
    Tiles,
    Unroll,
    Vectorize,
)
from loopwright.lower.placing import check
from loopwright.lower.tiling import every

VALUES = range(1, 5)  # of the symbol
COUNTS = range(1, 9)  # of elements that are spelled out


def few_positions(region: Graph, x: FewColumns | FewSteps) -> tuple[str, tuple[int, ...]] | None:
    """The symbol that says, alone, how many elements that axis has, and its values where these are few."""
    shape = (region.results[0] if isinstance(x, FewColumns) else region.params[x.operand]).type.shape
    names = sorted(symbols_in(shape[-1])) if len(shape) > 1 and isinstance(shape[-1], Dim) else []
    if len(names) != 1:
        return None
    values = tuple([k for k in VALUES if substitute(shape[-1], {names[0]: k}) in COUNTS])
    return (names[0], values) if values else None


def one_of_few(region: Graph, x: FewColumns | FewSteps) -> Graph | None:
    """The region where that axis has some such number of elements."""
    few = few_positions(region, x)
    return None if few is None else substitute_graph(region, {few[0]: few[1][len(few[1]) // 2]})


def with_few(region: Graph, x: FewColumns | FewSteps, nest: Nest, *, may_fail: bool, has_short: bool) -> Nest:
    """The nest of a region with other bodies for few positions, unless these could not do all that it does. may_fail: it may
    report errors; has_short: it has a way of its own for short rows."""
    few, inside = few_positions(region, x), every(nest.body)
    is_map = all(isinstance(s, For | Store) for s in inside)
    check(few is not None, x, "that axis is not one that may turn out to be short")
    check(not may_fail, x, "the kernel may fail")
    check(all(s.combine == "set" for s in inside if isinstance(s, Store)), x, "the kernel updates what is there")
    if isinstance(x, FewColumns):
        check(is_map and len(region.results) == 1, x, "the kernel does more than a map")
    check(is_map or not has_short, x, "the kernel has ways of its own for short rows, which round otherwise")
    return altered(nest, few=few)


def spelled_out(schedule: Schedule, region: Graph) -> Schedule:
    """The schedule of such a region, of a kernel with this one: where columns are few, lanes run along the axis before."""
    few = next(x for x in schedule if isinstance(x, FewColumns | FewSteps))
    if isinstance(few, FewSteps):
        return tuple([x for x in schedule if not isinstance(x, FewSteps | Tiles | ShortRows)])
    root = next(k for k, n in enumerate(region.nodes) if region.results[0] in n.outputs)
    loop = region.results[0].type.rank - 2
    lanes = Vectorize(root, loop, few.lanes), Unroll(root, few.unroll)
    shared = [Parallel()] if any(isinstance(x, Parallel) for x in schedule) else []
    outer = [x for x in schedule if isinstance(x, InPlace) or (isinstance(x, Fuse) and x.loop + x.count <= loop + 1)]
    return (*map(Inline, range(len(region.nodes))), Interleave(), *lanes, *shared, *outer)
