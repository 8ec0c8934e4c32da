"""Several positions of a loop at once in the loop of vectors that is its body: what their folds read alike is read once.

Guarantees: each position stores what it stores alone, folded in the same order. Nothing that is stored is read in the loop.
"""
from __future__ import annotations

from loopwright.ir.loops import Expr, Index, Load, Local, Reduce, When, integer, outermost, plus, transform, walk
from loopwright.ir.nest import For, Let, Nest, Reduction, Statement, Store, altered
from loopwright.lower.fusing import expressions

USUAL, MOST = 4, 16  # positions at once


def jam(nest: Nest, factor: int) -> Nest:
    """The nest with `factor` positions at once of the loop around its loop of vectors. ValueError where there is none."""
    if not 1 < factor <= MOST:
        raise ValueError(f"2 to {MOST} positions are made at once")
    body = tuple([_jammed(s, factor) for s in nest.body])
    if body == nest.body:
        raise ValueError("no loop has a loop of vectors for its body, in which each is made of folds of its own")
    return altered(nest, body=body)


def _jammed(s: Statement, factor: int) -> Statement:
    if not isinstance(s, For) or len(s.body) != 1 or not isinstance(inner := s.body[0], For):
        return s
    return altered(s, jam=factor) if may_jam(s) else s.with_body((_jammed(inner, factor),))


def may_jam(f: For) -> bool:
    """Whether several positions of a loop may be made at once."""
    inner = f.body[0] if len(f.body) == 1 else None
    if not isinstance(inner, For) or inner.lanes == 1 or _is_special(f) or _is_special(inner) or f.lanes > 1:
        return False
    read = {x.array for e in expressions(inner.body) for x in walk(e) if isinstance(x, Load)}
    return all(isinstance(s, Let) or (isinstance(s, Reduction) and not s.also) or (
        isinstance(s, Store) and s.when is None and s.combine == "set" and s.buffer not in read) for s in inner.body) \
        and bool(_folds(f))


def _is_special(f: For) -> bool:
    """Whether a loop is gone through in a way of its own."""
    return f.origin is not None or f.step != 1 or f.by_rows or f.tiled or f.padded or f.short is not None or bool(f.bind)


def worth_of(nest: Nest, registers: int) -> int:
    """How many positions are well made at once with so many registers of vectors, half of them for sums."""
    body = nest.body
    while len(body) == 1 and isinstance(f := body[0], For):
        if may_jam(f):
            inner, = f.body
            assert isinstance(inner, For)
            row = max(-(-inner.extent // inner.lanes), 1) if isinstance(inner.extent, int) else inner.unroll
            return max(min(USUAL, registers // (2 * min(inner.unroll, row))), 1) if _are_alike(f) else 1
        body = f.body
    return 1


def _are_alike(f: For) -> bool:
    """Whether folds of neighbours read something alike: all of them the same, or windows that overlap."""
    def alike(r: Reduction, x: Load) -> bool:
        over, parts = {k for k, _ in r.over}, [set(walk(part)) for part in x.index]
        own = [part for part in parts if f.index in part]
        return any(over & part for part in own or parts)
    return any(alike(r, x) for r in _folds(f) for x in walk(r.body) if isinstance(x, Load))


def tests_of(f: For) -> list[tuple[Expr, Reduction]]:
    """The tests by which folds of a loop have points for some of its positions, each with its fold."""
    found: list[tuple[Expr, Reduction]] = []
    for r in _folds(f):
        e = r.body
        while isinstance(e, When):
            if f.index in walk(e.cond):
                found.append((e.cond, r))
            e = e.then
    return found


def together(f: For, factor: int) -> For:
    """The loop over whole blocks of `factor` positions, where tests of folds hold: they are not asked."""
    inner, = f.body
    assert isinstance(inner, For)
    every, body = _with_folds(inner.body), list[Statement]()
    own = {s.name for s in every if isinstance(s, Let | Reduction)}
    for s in every:
        s = altered(s, body=_untested(s.body, f.index)) if isinstance(s, Reduction) else s
        body += [_moved(s, f.index, step, own) for step in range(factor)]
    return altered(f, body=(inner.with_body(tuple(body)),), step=factor, jam=1)


def _folds(f: For) -> list[Reduction]:
    """The folds in the loop of vectors."""
    inner, = f.body
    assert isinstance(inner, For)
    return [s for s in _with_folds(inner.body) if isinstance(s, Reduction)]


def _with_folds(body: tuple[Statement, ...]) -> list[Statement]:
    """Statements in which each fold is one of its own."""
    names, found = dict[Reduce, str](), list[Statement]()

    def named(e: Expr) -> Expr | None:
        return Local(names[e], e.dtype) if isinstance(e, Reduce) else None
    for s in body:
        if isinstance(s, Let | Store):
            for r in outermost(s.value, Reduce):
                if r not in names:
                    names[r] = f"j{len(names)}"
                    found.append(Reduction(names[r], r.monoid, r.over, r.body, r.dtype, fused=r.fused))
            s = altered(s, value=transform(s.value, named))
        found.append(s)
    return found


def _moved(s: Statement, index: Index, step: int, own: set[str]) -> Statement:
    """A statement as it is some steps further on, where names in the loop, its own, are others; folds are in the pass of the
    first."""
    place = plus(index, integer(step))

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Local) and e.name in own:
            return Local(f"{e.name}_{step}", e.dtype)
        return place if e == index else None
    match s:
        case Reduction():
            joined = s.joined or step > 0
            return altered(s, name=f"{s.name}_{step}", body=transform(s.body, change), joined=joined)
        case Let():
            return altered(s, name=f"{s.name}_{step}", value=transform(s.value, change))
    assert isinstance(s, Store)
    return altered(s, index=tuple([transform(e, change) for e in s.index]), value=transform(s.value, change))


def _untested(e: Expr, index: Index) -> Expr:
    """What a fold folds where tests of an index hold."""
    if not isinstance(e, When):
        return e
    then = _untested(e.then, index)
    return then if index in walk(e.cond) else When(e.cond, then, e.other)
