"""Make one pass of reductions over the same loops."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from loopwright.ir.loops import Expr, Index, Load, Local, transform, walk
from loopwright.ir.nest import Allocate, For, Let, Prefetch, Reduction, Statement, Store


def join(body: Sequence[Statement], name: str) -> tuple[Statement, ...]:
    """The statements with the reduction of this name joined to the one before it, also where names that it does not need are
    given in between. ValueError says why that cannot be."""
    out: list[Statement] = []
    for s in body:
        if isinstance(s, Reduction) and s.name == name:
            at = _end_of_pass(out, s)
            out.insert(at, _joined(out[:at], s))
            continue
        out.append(dataclasses.replace(s, body=join(s.body, name)) if isinstance(s, For) else s)
    return tuple(out)


def _end_of_pass(before: Sequence[Statement], s: Reduction) -> int:
    """How many statements end with the pass that s can join."""
    needed = {x.name for e in _values(s) for x in walk(e) if isinstance(x, Local)} | {x.buffer for x in s.also}
    at = len(before)
    while at and ((isinstance(last := before[at - 1], Let) and last.name not in needed)
                  or (isinstance(last, Allocate) and last.buffer.name not in needed)):
        at -= 1
    return at


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
