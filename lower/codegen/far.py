"""Maps of arrays that the near caches cannot hold: in vectors half as wide, on processors that wait long for wide ones there.

Guarantees: each element is computed as in wide vectors.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.loops import Apply, Load, Reduce, walk, walk_all
from loopwright.ir.nest import For, Let, Nest, Statement, Store, altered
from loopwright.lower.codegen.work import maths_weight
from loopwright.lower.fusing import expressions
from loopwright.lower.target import Target
from loopwright.lower.tiling import loops

FAR = 8 << 20  # bytes of all arrays of a kernel, from which on few are in the second cache when they are needed again
MOST_STEPS = 16  # of the computation of one element: with more, vectors half as wide take longer than memory


def from_afar(nest: Nest, target: Target) -> Nest | None:
    """The nest in narrow vectors; None where these are not sooner there, or are no less wide."""
    if target.far_bits == target.vector_bits or not all(map(_is_map, nest.body)) or maths_weight(nest.body):
        return None
    if sum(isinstance(x, Apply) for x in walk_all(expressions(nest.body))) > MOST_STEPS or _goes_down(nest.body):
        return None
    found = altered(nest, body=tuple([_narrow(s, target) for s in nest.body]))
    return found if found.body != nest.body else None


def _is_map(s: Statement) -> bool:
    """Whether a statement is loops around stores, each vector of which is one element of the result after the other."""
    if isinstance(s, For):
        whole = s.jam == 1 and not (s.tiled or s.by_rows or s.padded or s.runs)
        return whole and all(map(_is_map, s.body))
    return isinstance(s, Let) or (isinstance(s, Store) and s.combine == "set")


def _goes_down(body: Sequence[Statement]) -> bool:
    """Whether a fold reads down columns, one number of each row, that no lanes go along: rows side by side have them."""
    wide = {f.index for f in loops(body) if f.lanes > 1}
    folds = [x for x in walk_all(expressions(body)) if isinstance(x, Reduce)]
    for x in folds:
        over = {k for k, _ in x.over}
        for load in [e for e in walk(x.body) if isinstance(e, Load) and len(e.index) > 1]:
            *rows, last = [set(walk(e)) for e in load.index]
            if last.isdisjoint(over | wide) and not over.isdisjoint(set().union(*rows)):
                return True
    return False


def _narrow(s: Statement, target: Target) -> Statement:
    if not isinstance(s, For):
        return s
    if 8 * s.lanes * _widest(s.body) <= target.far_bits:
        return s.with_body(tuple([_narrow(x, target) for x in s.body]))
    return altered(s, lanes=target.far_bits // (8 * _widest(s.body)))


def _widest(body: Sequence[Statement]) -> int:
    """Bytes of the widest element that is read."""
    return max([x.dtype.itemsize for x in walk_all(expressions(body)) if isinstance(x, Load)], default=1)
