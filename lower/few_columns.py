"""Loops along, steps over and folds of a last axis that turns out to have few elements, as the channels of images and the
coordinates of points; sums over little windows of such.

A loop over three elements inside one over pixels costs more than what it does, and numbers that lie three apart are
loaded one by one. Where the number of elements is known, they are spelled out, with lanes from pixel to pixel; where it is
known at the call only, a kernel has such bodies beside its own. So are the terms of a convolution's sum, which are not worth
copying to where tiles read them.

Guarantees: every element is computed by the same expression; the terms of a convolution are added in another order.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product as pairs_of

from loopwright.ir.dims import Dim, Extent, product, substitute, symbol_of, symbols_in
from loopwright.ir.graph import Graph, substitute_graph
from loopwright.ir.nest import For, Nest, Store, Values, altered
from loopwright.ir.ops.reductions import FOLDS, reduce_prod
from loopwright.ir.schedule import (
    ByColumns,
    ComputeAt,
    FewColumns,
    FewInRows,
    FewSteps,
    FewTerms,
    FewUpdates,
    Fuse,
    Inline,
    InPlace,
    Interleave,
    Jam,
    Parallel,
    Schedule,
    ShortRows,
    Squeeze,
    Tiles,
    Unroll,
    Vectorize,
)
from loopwright.lower.by_columns import adds_up, folds_columns, in_columns, is_sum, sums_apart
from loopwright.lower.convolution_ops import one_group, terms_of
from loopwright.lower.placing import check
from loopwright.lower.tiling import every

VALUES = range(1, 5)  # of the symbol
COUNTS = range(1, 9)  # of elements that are spelled out
ADDED = range(2, 9)  # of the symbol, where rows are added up
FEATURES, WINDOWS = VALUES, (3, 5, 7)  # of a convolution that has bodies of its own: along each axis
WORDS = 16  # lanes of numbers of 4 bytes, of the longest vectors
SPELLED = 50  # terms of its sum: with more, tiles are as quick
UPDATED = *range(1, 9), 16  # elements of a row of updates
Few = FewColumns | FewSteps | FewTerms | FewInRows | FewUpdates | ByColumns
_FOLDS = *FOLDS, reduce_prod


def few_cases(region: Graph, x: Few) -> tuple[Values, ...]:
    """The values of symbols for which the region has a body of its own."""
    if isinstance(x, ByColumns):
        return _few_to_fold(region)
    if isinstance(x, FewInRows):
        return _few_in_rows(region)
    if isinstance(x, FewUpdates):
        name = symbol_of(region.results[0].type.shape[-1])
        return tuple([((name, k),) for k in UPDATED]) if name else ()
    return _few_terms(region, x) if isinstance(x, FewTerms) else _few_positions(region, x)


def _few_to_fold(region: Graph) -> tuple[Values, ...]:
    """Those of the only axis of a fold down columns, of the last one of what all is folded, or of rows that are added up."""
    shape, adds = region.results[0].type.shape, adds_up(region)
    sizes = {n.inputs[0].type.shape[-1] for n in region.nodes if folds_columns(n)} if not shape else {shape[-1]}
    name = symbol_of(sizes.pop()) if len(sizes) == 1 and (adds or len(shape) < 2) else None
    return tuple([((name, k),) for k in (VALUES if len(shape) == 1 else ADDED) if k > 1]) if name else ()


def _few_in_rows(region: Graph) -> tuple[Values, ...]:
    """Those of the last axis of all that is folded, along which nothing is stored."""
    folds = [n for n in region.nodes if n.op in _FOLDS]
    sizes = {n.inputs[0].type.shape[-1] for n in folds}
    name = symbol_of(sizes.pop()) if len(sizes) == 1 else None
    along = all(n.attrs["axes"] == (n.inputs[0].type.rank - 1,) for n in folds)
    stored = {s for v in region.results for x in v.type.shape for s in symbols_in(x)}
    return tuple([((name, k),) for k in VALUES if k > 1]) if name and along and name not in stored and stored else ()


def _few_positions(region: Graph, x: FewColumns | FewSteps) -> tuple[Values, ...]:
    """Those of the symbol that says, alone, how many elements that axis has; where a map has a known number of columns, those
    of what it reads."""
    shape = (region.results[0] if isinstance(x, FewColumns) else region.params[x.operand]).type.shape
    sizes = {shape[-1]} if len(shape) > 1 else set()
    if isinstance(x, FewColumns) and sizes <= set(COUNTS):
        sizes = {v.type.shape[-1] for v in region.params if v.type.rank > 1 and isinstance(v.type.shape[-1], Dim)}
    size = sizes.pop() if len(sizes) == 1 else 0
    names = sorted(symbols_in(size)) if isinstance(size, Dim) else []
    if len(names) != 1:
        return ()
    return tuple([((names[0], k),) for k in VALUES if substitute(size, {names[0]: k}) in COUNTS])


def _few_terms(region: Graph, x: FewTerms) -> tuple[Values, ...]:
    """Those of the symbols, each of which is the size of one axis of a convolution's kernel."""
    n = region.nodes[x.stage]
    sizes = terms_of(n) if n.op is one_group else (0,)
    names = [symbol_of(size) for size in sizes]
    found = []
    for k, w in pairs_of([k for k in FEATURES if sizes[0] == k or names[0]], WINDOWS):
        values = {name: w for name in names[1:] if name} | {name: k for name in names[:1] if name}
        terms = product(substitute(size, values) for size in sizes)
        if values and isinstance(terms, int) and terms <= SPELLED:
            found.append(tuple(values.items()))
    return tuple(dict.fromkeys(found))


def one_of_few(region: Graph, x: Few) -> Graph | None:
    """The region in one of these cases."""
    few = few_cases(region, x)
    return substitute_graph(region, dict(few[len(few) // 2])) if few else None


def go_by_columns(region: Graph) -> bool:
    """Whether the folds of a region go column by column where there are few."""
    one = one_of_few(region, ByColumns())
    if one is None:
        return False
    folded = [g for g in sums_apart(one) if is_sum(g)] if adds_up(one) else [one]
    return all(len(g.results) == 1 and in_columns(g) is not None for g in folded)


def with_few(region: Graph, x: Few, nest: Nest, fused: Sequence[Fuse], *, may_fail: bool, has_short: bool) -> Nest:
    """The nest of a region with other bodies for few positions, unless these could not do all that it does. fused: its loops
    that are one; may_fail: it may report errors; has_short: it has a way of its own for short rows."""
    few, inside = few_cases(region, x), every(nest.body)
    if may_fail and not isinstance(x, FewUpdates):
        few = _worth_it(few, region)
    is_map = all(isinstance(s, For | Store) for s in inside)
    check(bool(few), x, "no sum or axis may turn out to be so short")
    adds = isinstance(x, FewUpdates) or (isinstance(x, ByColumns) and adds_up(region))
    updates = any(s.combine != "set" for s in inside if isinstance(s, Store))
    check(adds or not updates, x, "the kernel updates what is there")
    check(updates or not isinstance(x, FewUpdates), x, "the kernel combines nothing with what is there")
    if isinstance(x, ByColumns):
        check(not may_fail, x, "the kernel may fail")
        check(go_by_columns(region), x, "columns need one another")
    if isinstance(x, FewColumns):
        check(is_map and len(region.results) == 1, x, "the kernel does more than a map")
    other = is_map or not has_short or isinstance(x, FewInRows)
    check(other, x, "the kernel has ways of its own for short rows, which round otherwise")
    return altered(nest, few=few, few_from=_filling(region, x, fused) if isinstance(x, FewColumns) else (0, 0))


def _worth_it(few: tuple[Values, ...], region: Graph) -> tuple[Values, ...]:
    """Of these, such as gain for rows by index: those of four words are as quick by masked vectors."""
    if region.results[0].type.dtype.itemsize < 4:
        return few
    return tuple([values for values in few if all(k < VALUES[-1] for _, k in values)])


def _filling(region: Graph, x: FewColumns, fused: Sequence[Fuse]) -> tuple[Extent, int]:
    """How far the loop with lanes goes, and from where on that is worth them: of short numbers, of which a row of few columns
    is one vector that is quickly masked, it fills more of one."""
    *outer, _ = region.results[0].type.shape
    first = next((f.loop for f in fused if f.loop + f.count == len(outer)), len(outer) - 1)
    return product(outer[first:]), x.lanes // (4 if x.lanes <= WORDS else 2)


def lanes_of_updates(size: Extent, lanes: int) -> int:
    """As many as rows of a few elements have, or the next power of two: a store under a mask is slow to read back, with all
    that it may have covered."""
    return min(1 << (size - 1).bit_length(), lanes) if isinstance(size, int) and size > 0 else lanes


def _in_whole_vectors(schedule: Schedule, region: Graph) -> Schedule:
    """With few lanes past the last element of a row of updates, whose loop is the root's last, and no trips: it is one vector
    then, or some at once."""
    along, size = max([x for x in schedule if isinstance(x, Vectorize)], key=lambda x: x.loop), region.results[0].type.shape[-1]
    lanes = lanes_of_updates(size, along.lanes)
    others = [x for x in schedule if x != along and not (isinstance(x, Unroll) and x.stage == along.stage)]
    if lanes == 1:
        return tuple(others)
    at_once = [Unroll(along.stage, size // lanes)] if isinstance(size, int) and size > lanes else []
    return (*others, replace(along, lanes=lanes), *at_once)


def spelled_out(schedule: Schedule, region: Graph) -> Schedule:
    """The schedule of such a region, of a kernel with this one: where columns are few, lanes run along the axis before."""
    few = next(x for x in schedule if isinstance(x, Few))
    if isinstance(few, ByColumns | FewInRows):
        return tuple([x for x in schedule if not isinstance(x, ByColumns | FewInRows | Squeeze)])
    if isinstance(few, FewUpdates):
        return _in_whole_vectors(tuple([x for x in schedule if x != few]), region)
    if isinstance(few, FewSteps):
        return tuple([x for x in schedule if not isinstance(x, FewSteps | Tiles | ShortRows | Squeeze)])
    root = next(k for k, n in enumerate(region.nodes) if region.results[0] in n.outputs)
    loop = region.results[0].type.rank - (1 if isinstance(few, FewTerms) else 2)
    lanes = Vectorize(root, loop, few.lanes), Unroll(root, few.unroll)
    shared = [Parallel()] if any(isinstance(x, Parallel) for x in schedule) else []
    if isinstance(few, FewTerms):
        kept = [x for x in schedule if isinstance(x, Inline | ComputeAt | InPlace)]
        return (*kept, *lanes, *shared, Jam(few.factor))
    outer = [x for x in schedule if isinstance(x, InPlace) or (isinstance(x, Fuse) and x.loop + x.count <= loop + 1)]
    return (*map(Inline, range(len(region.nodes))), Interleave(), *lanes, *shared, *outer)
