"""Make one pass of reductions over the same loops."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from loopwright.ir.loops import Expr, Index, Load, Local, transform, walk
from loopwright.ir.nest import Allocate, For, Let, Prefetch, Reduction, Statement, Store


def join(body: Sequence[Statement], stage: int) -> tuple[Statement, ...]:
    """The statements with the reduction of this stage joined to the one before it, also where names that it does not need are
    given in between. ValueError says why that cannot be."""
    out: list[Statement] = []
    for s in body:
        if isinstance(s, Reduction) and s.name in (f"s{stage}", f"r{stage}"):
            out = _with_joined(out, s)
            continue
        out.append(dataclasses.replace(s, body=join(s.body, stage)) if isinstance(s, For) else s)
    return tuple(out)


def _with_joined(before: Sequence[Statement], s: Reduction) -> list[Statement]:
    """The statements before s, with s after the pass that it can join; rows that were allocated in between are so before it."""
    needed = {x.name for e in _values(s) for x in walk(e) if isinstance(x, Local)}
    end = len(before)
    while end and (isinstance(last := before[end - 1], Allocate) or (isinstance(last, Let) and last.name not in needed)):
        end -= 1
    begin = end
    while begin and isinstance(last := before[begin - 1], Reduction):
        begin -= 1
        if not last.joined:
            break
    run = [x for x in before[begin:end] if isinstance(x, Reduction)]
    rows = [x for x in before[end:] if isinstance(x, Allocate)]
    lets = [x for x in before[end:] if not isinstance(x, Allocate)]
    return [*before[:begin], *rows, *run, _joined(run, s), *lets]


def _joined(run: Sequence[Reduction], s: Reduction) -> Reduction:
    first = run[0] if run else s
    if not run or first.joined:
        raise ValueError("there is no reduction just before it")
    if [n for _, n in first.over] != [n for _, n in s.over] or (first.lanes, first.unroll) != (s.lanes, s.unroll):
        raise ValueError("the reduction before it has other loops")
    names = {x.name for x in run}
    if any(isinstance(x, Local) and x.name in names for e in _values(s) for x in walk(e)):
        raise ValueError("it depends on a reduction of that pass")
    other = {a: b for (a, _), (b, _) in zip(s.over, first.over, strict=True)}

    def renamed(e: Expr) -> Expr:
        return transform(e, lambda x: other.get(x) if isinstance(x, Index) else None)

    def moved(x: Store | Prefetch) -> Store | Prefetch:
        x = dataclasses.replace(x, index=tuple(map(renamed, x.index)))
        return dataclasses.replace(x, value=renamed(x.value)) if isinstance(x, Store) else x
    found = dataclasses.replace(s, over=first.over, body=renamed(s.body), also=tuple(map(moved, s.also)), joined=True)
    rows = {x.buffer: x.index for r in (*run, found) for x in r.also if isinstance(x, Store)}
    loads = [x for r in (*run, found) for e in _values(r) for x in walk(e) if isinstance(x, Load)]
    if any(x.index != rows.get(str(x.array), x.index) for x in loads):
        raise ValueError("it reads elsewhere a row that is filled in that pass")
    return found


def _values(s: Reduction) -> list[Expr]:
    """What is computed at each point."""
    return [s.body, *(x.value for x in s.also if isinstance(x, Store))]
