"""What loops of a nest are like, as far as it decides how they are emitted.

Guarantees: nothing is changed; what is answered holds for all sizes.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopwright.ir.loops import Bounded, Expr, Load, Prefix, Reduce, walk, walk_all
from loopwright.ir.nest import Allocate, Buffer, For, Let, Reduction, Scan, Statement, Store, While
from loopwright.lower.fusing import expressions, writes

MANY = 256  # iterations of a loop that keep all threads busy, whatever is inside


def may_not_end(body: Sequence[Statement]) -> bool:
    """Whether the trips of a loop inside are data."""
    return any(isinstance(s, While) or (isinstance(s, For) and may_not_end(s.body)) for s in body)


def condition_of(statement: For) -> Expr | None:
    """The condition of all that a loop does, where that is one store, and the condition is the same each time."""
    inner: Statement = statement
    indices = set[Expr]()
    while isinstance(inner, For) and len(inner.body) == 1 and not inner.parallel:
        indices.add(inner.index)
        inner, = inner.body
    if not isinstance(inner, Store) or inner.when is None:
        return None
    found = walk(inner.when)
    return None if any(x in indices or isinstance(x, Bounded) for x in found) else inner.when


def without_condition(statement: For) -> For:
    inner, = statement.body
    assert isinstance(inner, For | Store)
    return statement.with_body((without_condition(inner) if isinstance(inner, For) else replace(inner, when=None),))


def has_windows(f: For) -> bool:
    """Whether each element is a fold over several indices: what stands around it takes as long for one vector as for two."""
    return any(isinstance(x, Reduce) and len(x.over) > 1 for x in walk_all(expressions(f.body)))


def in_pairs(f: For) -> For | None:
    """The loop that is all of a loop's body, where that one may have few iterations, and those of both may go to any thread:
    they store elements of their own, and read none that others store."""
    if (isinstance(f.extent, int) and f.extent >= MANY) or len(f.body) != 1 or not isinstance(f.body[0], For):
        return None
    inner, stores = f.body[0], list(writes(f.body))
    plain = all(x.lanes == 1 and x.step == 1 and x.origin is None and x.short is None and x.together == 1
                and not (x.tiled or x.by_rows or x.padded or x.of) for x in (f, inner))
    own = all(isinstance(s, For | Store | Let | Allocate) for s in _inside(inner)) and all(
        s.combine == "set" for s in _inside(inner) if isinstance(s, Store))
    kept = {s.buffer.name for s in _inside(inner) if isinstance(s, Allocate)}
    apart = all(b in kept or {f.index, inner.index} <= set(index) for b, index in stores)
    read = {x.array for x in walk_all(expressions(f.body)) if isinstance(x, Load)}
    fine = plain and own and apart and not read & {b for b, _ in stores if b not in kept}
    return inner if fine and condition_of(f) is None else None


def _inside(f: For) -> list[Statement]:
    return [x for s in f.body for x in ([s, *_inside(s)] if isinstance(s, For) else [s])]


def goes_down(f: For) -> bool:
    """Whether vectors of a loop go through rows, of each of which they read a piece."""
    inner = any(isinstance(s, For | Reduction | Scan) for s in f.body)
    return f.lanes > 1 and (inner or any(isinstance(x, Reduce | Prefix) for x in walk_all(expressions(f.body))))


def serial(f: For) -> For:
    """The loop, and those inside, without threads."""
    return replace(f, parallel=False, body=tuple([serial(s) if isinstance(s, For) else s for s in f.body]))


def local_buffers(body: Sequence[Statement]) -> list[Buffer]:
    """The local buffers of statements, those of parallel loops aside: they belong to each thread."""
    found: list[Buffer] = []
    for statement in body:
        if isinstance(statement, Allocate):
            found.append(statement.buffer)
        elif isinstance(statement, For) and not statement.parallel:
            found += local_buffers(statement.body)
    return found
