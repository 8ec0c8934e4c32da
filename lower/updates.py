"""Updates of a scatter that may follow one another: which loop goes from one to the next, and what says that both are of one
place."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, Scatter, Size, outermost, transform, walk, walk_all
from loopwright.ir.nest import For, Statement, Store, altered
from loopwright.ir.types import BOOL, is_integer


def goes_along(place: Expr, index: Index) -> bool:
    """Whether a place on an axis is the index of a loop, or that from a number on which is known before."""
    if isinstance(place, Apply) and place.fn == "add":
        return index in place.args and all(isinstance(x, Literal | Size) for x in place.args if x != index)
    return place == index


def keys_of(where: Iterable[Expr], index: Index) -> list[Load]:
    """What is read at an index of a loop to know where an update goes, and whether: equal for updates of one place."""
    return list(dict.fromkeys([x for e in where for x in outermost(e, Load) if index in walk(x)]))


def loop_of_runs(s: Scatter, loops: Sequence[Index]) -> Index | str:
    """Of the loops of a scatter's updates, from the outside, that in which several in turn may be of one place: the one around
    rows, if these are the target's; else why there is none."""
    if s.combine == "set":
        return "the last update of a place counts"
    if not loops:
        return "there is one update"
    is_row = len(loops) > 1 and s.target[-1] == loops[-1]
    index, positions = (loops[-2], s.target[:-1]) if is_row else (loops[-1], s.target)
    where = [*positions, *([] if s.when is None else [s.when])]
    if is_row and loops[-1] in walk_all(where):
        return "where a row goes depends on its elements"
    beside = [transform(e, lambda x: Literal(0, x.dtype) if isinstance(x, Load) else None) for e in where]
    if not keys_of(positions, index) or index in walk_all(beside):
        return "each update has a place of its own"
    keys = keys_of(where, index)
    if any(isinstance(x, Index) and x not in loops for x in walk_all(keys)):
        return "a place is found by a loop of its own"
    if not all(x.dtype == BOOL or is_integer(x.dtype) for x in keys):
        return "places are made of numbers that are no integers, which seldom are equal"
    return index


def row_and_update(f: For) -> tuple[For | None, Store] | None:
    """The loop over a row inside a loop of updates, if there is one, and the update; None where that holds anything else."""
    row = f.body[0] if isinstance(f.body[0], For) else None
    body = f.body if row is None else row.body
    return (row, body[0]) if len(f.body) == len(body) == 1 and isinstance(body[0], Store) else None


def loops_of(f: For) -> Iterator[For]:
    """A loop, and those directly inside one another in it."""
    yield f
    if len(f.body) == 1 and isinstance(f.body[0], For):
        yield from loops_of(f.body[0])


def update_of(f: For) -> Store:
    """What is inside loops of updates."""
    *_, last = loops_of(f)
    update = last.body[0]
    assert isinstance(update, Store)
    return update


def loop_of_owners(f: For) -> For | str:
    """Of the loops of a scatter's updates, that in which it is known which row each one goes to, and whether: else why there is
    none."""
    update = update_of(f)
    if not update.index:
        return "the result is a number"
    found = walk_all([update.index[0], *([] if update.when is None else [update.when])])
    *_, last = [x for x in loops_of(f) if x is f or x.index in found]
    if any(isinstance(x, Index) and x not in {y.index for y in loops_of(f)} for x in found):
        return "a row is found by a loop of its own"
    return last


def by_owners(f: For) -> For | str:
    """Loops of updates of which each thread does those of its rows; else why it cannot."""
    if (places := update_of(f).index) and goes_along(places[0], f.index):
        return altered(f, parallel=True)
    found = loop_of_owners(f)
    return found if isinstance(found, str) else altered(f, owned=True)


def are_whole(body: Iterable[Statement]) -> bool:
    """Whether loops of updates that go in runs hold these alone."""
    return all(row_and_update(s) is not None if s.runs else are_whole(s.body) for s in body if isinstance(s, For))
