"""Make one pass of reductions over the same loops."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from loopwright.ir.loops import Expr, Index, Local, transform, walk
from loopwright.ir.nest import For, Prefetch, Reduction, Statement


def join(body: Sequence[Statement], name: str) -> tuple[Statement, ...]:
    """The statements with the reduction of this name joined to the one before it. ValueError says why that cannot be."""
    out: list[Statement] = []
    for s in body:
        if isinstance(s, For):
            s = dataclasses.replace(s, body=join(s.body, name))
        elif isinstance(s, Reduction) and s.name == name:
            s = _joined(out, s)
        out.append(s)
    return tuple(out)


def _joined(before: Sequence[Statement], s: Reduction) -> Reduction:
    run: list[Reduction] = []
    for last in reversed(before):
        if not isinstance(last, Reduction):
            break
        run.append(last)
        if not last.joined:
            break
    first = run[-1] if run else s
    if not run or first.joined:
        raise ValueError("there is no reduction just before it")
    if [n for _, n in first.over] != [n for _, n in s.over] or (first.lanes, first.unroll) != (s.lanes, s.unroll):
        raise ValueError("the reduction before it has other loops")
    names = {x.name for x in run}
    if any(isinstance(x, Local) and x.name in names for x in walk(s.body)):
        raise ValueError("it depends on a reduction of that pass")
    if not all(isinstance(x, Prefetch) for r in (*run, s) for x in r.also):
        raise ValueError("a row is kept in that pass")
    other = {a: b for (a, _), (b, _) in zip(s.over, first.over, strict=True)}

    def renamed(e: Expr) -> Expr:
        return transform(e, lambda x: other.get(x) if isinstance(x, Index) else None)
    also = tuple(dataclasses.replace(x, index=tuple(map(renamed, x.index))) for x in s.also)
    return dataclasses.replace(s, over=first.over, body=renamed(s.body), also=also, joined=True)
