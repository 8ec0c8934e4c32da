"""Rows in registers: from pass to pass each thread keeps its own elements of a row. Checked, then done.

Guarantees of a nest that is accepted: a row in registers is stored once, before it is read; all passes over it are shared out
alike, so that threads read what they stored themselves; and what is stored may be computed anew in each pass, past the
elements that registers hold.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.gpu_schedule import THREAD_X
from loopwright.ir.loops import Expr, Index, Load, Local, transform, walk
from loopwright.ir.nest import Allocate, Buffer, For, Let, Nest, Reduction, Statement, Store
from loopwright.lower.fusing import accesses, values, writes

Change = Callable[[Expr], Expr | None]
Row = tuple[Expr, ...]  # which row of an array
MOST_EACH = 64  # elements of a row that a thread keeps


@dataclass(frozen=True)
class Pass:
    """Statements first to last of a body that the threads along x share out: a loop, or reductions of one pass. `body`: what
    is done for each element."""

    first: int
    last: int
    over: tuple[tuple[Index, Extent], ...]
    lanes: int
    body: tuple[Statement, ...]

    @property
    def index(self) -> tuple[Index, ...]:
        return tuple([k for k, _ in self.over])

    @property
    def shape(self) -> Shape:
        return tuple([n for _, n in self.over])


def perfect(s: For) -> tuple[list[tuple[Index, Extent]], For]:
    """The loops directly inside each other that are shared out as one, and the innermost."""
    over = [(s.index, s.extent)]
    while len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.bind == s.bind:
        s = inner
        over.append((s.index, s.extent))
    return over, s


def passes(body: Sequence[Statement]) -> list[Pass]:
    """The passes of a body, in order."""
    found: list[Pass] = []
    for k, s in enumerate(body):
        if isinstance(s, Reduction) and s.joined and found and found[-1].last == k:
            found[-1] = dataclasses.replace(found[-1], last=k + 1, body=(*found[-1].body, s))
        elif isinstance(s, Reduction) and s.bind == (THREAD_X,):
            found.append(Pass(k, k + 1, s.over, s.lanes, (s,)))
        elif isinstance(s, For) and s.bind == (THREAD_X,):
            over, innermost = perfect(s)
            found.append(Pass(k, k + 1, tuple(over), innermost.lanes, innermost.body))
    return found


def keep_row(nest: Nest, name: str, each: int) -> Nest:
    """The nest with a row in registers. ValueError where it may not be there."""
    if not 1 <= each <= MOST_EACH:
        raise ValueError(f"a thread keeps 1 to {MOST_EACH} elements of a row")
    is_parameter = any(b.name == name for b in nest.buffers)

    def visit(body: Sequence[Statement], inside: bool) -> tuple[Statement, ...] | None:
        """The body with the row, if it or a loop in it has one."""
        found = (_copied if is_parameter else _placed)(body, name, each) if inside else None
        if found is not None:
            number, changed = found
            row = changed[number]
            assert isinstance(row, Allocate)
            _check(changed, number, row.buffer)
            return changed
        for k, s in enumerate(body):
            if isinstance(s, For) and (new := visit(s.body, True)) is not None:
                return (*body[:k], dataclasses.replace(s, body=new), *body[k + 1:])
        return None
    body = visit(nest.body, False)
    if body is None:
        raise ValueError("no two passes read such a row" if is_parameter else "it is no local row")
    return dataclasses.replace(nest, body=body)


def _placed(body: Sequence[Statement], name: str, each: int) -> tuple[int, tuple[Statement, ...]] | None:
    """The body with the local row of this name in registers, and where it begins."""
    for k, s in enumerate(body):
        if isinstance(s, Allocate) and s.buffer.name == name:
            row = Allocate(dataclasses.replace(s.buffer, place="registers", each=each))
            return k, (*body[:k], row, *body[k + 1:])
    return None


def _copied(body: Sequence[Statement], name: str, each: int) -> tuple[int, tuple[Statement, ...]] | None:
    """The body with a row of a parameter copied to registers, before the first of the passes that read it, and where."""
    readers: dict[tuple[Row, Shape], list[Pass]] = {}
    for p in passes(body):
        found = [_row_of(x, p) for x in _loads(p, name)]
        for at in dict.fromkeys(at for at in found if at is not None):
            readers.setdefault((at, p.shape), []).append(p)
    several = [(at, found) for (at, _), found in readers.items() if len(found) > 1]
    if not several:
        return None
    at, readings = several[0]
    first, dtype = readings[0], _loads(readings[0], name)[0].dtype
    row = Buffer(f"t{name}", first.shape, dtype, "local", "registers", each)
    out = list(body)
    for p in readings:
        def change(x: Expr, p: Pass = p) -> Expr | None:
            is_read = isinstance(x, Load) and x.array == name and _row_of(x, p) == at
            return Load(row.name, p.index, dtype) if is_read else None
        out[p.first:p.last] = [changed(s, change) for s in body[p.first:p.last]]
    return first.first, (*out[:first.first], Allocate(row), _copy(row, name, at, first.lanes), *out[first.first:])


def _copy(row: Buffer, name: str, at: Row, lanes: int) -> Statement:
    """The pass that fills a row."""
    index = tuple([Index(f"{row.name}_{a}") for a in range(len(row.shape))])
    fill: Statement = Store(row.name, index, Load(name, (*at, *index), row.dtype))
    for a in reversed(range(len(index))):
        fill = For(index[a], row.shape[a], (fill,), lanes if a == len(index) - 1 else 1, bind=(THREAD_X,))
    return fill


def _loads(p: Pass, name: str) -> list[Load]:
    """What a pass loads of an array."""
    return [x for e in values(p.body) for x in walk(e) if isinstance(x, Load) and x.array == name]


def _row_of(x: Load, p: Pass) -> Row | None:
    """Which row a pass walks in this load, from end to end; None where it walks none, or data say which."""
    at, walked = x.index[:len(x.index) - len(p.over)], x.index[len(x.index) - len(p.over):]
    return at if walked == p.index and all(isinstance(k, Index) and k not in p.index for k in at) else None


def changed(s: Statement, change: Change) -> Statement:
    """A statement of a pass with other values."""
    match s:
        case For():
            return dataclasses.replace(s, body=tuple([changed(x, change) for x in s.body]))
        case Reduction():
            also = tuple([x for x in (changed(x, change) for x in s.also) if isinstance(x, Store)])
            return dataclasses.replace(s, body=transform(s.body, change), also=also)
        case Store():
            when = None if s.when is None else transform(s.when, change)
            return dataclasses.replace(s, value=transform(s.value, change), when=when)
        case Let():
            return dataclasses.replace(s, value=transform(s.value, change))
    return s


# ---- legality -----------------------------------------------------------------------------------
def _check(body: Sequence[Statement], number: int, row: Buffer) -> None:
    """ValueError where threads would read what others have."""
    found = passes(body)
    within = [p for p in found if row.name in {name for name, _ in accesses(body[p.first:p.last])}]
    some = {k for p in within for k in range(p.first, p.last)}
    others = [s for k, s in enumerate(body) if k not in some]
    rows = {s.buffer.name: s.buffer for s in body if isinstance(s, Allocate) and s.buffer.place == "registers"}
    if any(name == row.name for name, _ in accesses(others)):
        raise ValueError(f"{row.name} is read outside the passes that threads along x share out")
    for p in within:
        fine = p.shape == row.shape and all(isinstance(s, Let | Store | Reduction) for s in p.body)
        if not fine or any(at != p.index for name, at in accesses(p.body) if name == row.name):
            raise ValueError(f"a pass walks {row.name} other than from end to end")
        if p.lanes != within[0].lanes or row.each % p.lanes:
            raise ValueError(f"passes over {row.name} differ in their lanes, or {row.each} elements are no multiple of these")
        if any(other.each != row.each for other in rows_read(p.body, rows)):
            raise ValueError(f"a pass over {row.name} goes over another row, of which threads keep more or fewer elements")
    stores = [s for p in within for s in _stores(p.body) if s.buffer == row.name]
    if len(stores) != 1 or stores[0].combine != "set" or stores[0].when is not None:
        raise ValueError(f"{row.name} is not stored to once")
    _check_anew(body[within[0].first:], within, stores[0])


def _stores(body: Sequence[Statement]) -> list[Store]:
    return [x for s in body for x in (s.also if isinstance(s, Reduction) else (s,)) if isinstance(x, Store)]


def _check_anew(rest: Sequence[Statement], within: Sequence[Pass], s: Store) -> None:
    """ValueError where a later pass could not compute what is stored: it is made of names of its own pass, or of what is no
    longer there."""
    named = {x.name for p in within for x in p.body if isinstance(x, Let)}
    if any(isinstance(x, Local) and x.name in named for x in walk(s.value)):
        raise ValueError(f"{s.buffer} is computed from what one pass alone has")
    read = {str(x.array) for x in walk(s.value) if isinstance(x, Load)}
    if any(name in read for name, _ in writes(rest)):
        raise ValueError(f"what {s.buffer} is computed from is stored to")


def anew(e: Expr, rows: dict[str, tuple[tuple[Index, ...], Expr]]) -> Expr:
    """e with elements of rows computed again; `rows`: what is stored to each, at which index."""
    def change(x: Expr) -> Expr | None:
        if not isinstance(x, Load) or x.array not in rows:
            return None
        index, value = rows[str(x.array)]
        to = dict(zip(index, x.index, strict=True))
        return transform(value, lambda y: to.get(y) if isinstance(y, Index) else None)
    return transform(e, change)


def rows_read(body: Sequence[Statement], rows: dict[str, Buffer]) -> list[Buffer]:
    """The rows in registers that statements read or store."""
    return [rows[name] for name in dict.fromkeys(name for name, _ in accesses(body)) if name in rows]


def without_rows(s: Statement, rows: dict[str, tuple[tuple[Index, ...], Expr]]) -> Statement | None:
    """The statement past the elements that registers hold: what they would is computed anew, and stored nowhere."""
    if isinstance(s, Store) and s.buffer in rows:
        return None
    if isinstance(s, Reduction):
        s = dataclasses.replace(s, also=tuple([x for x in s.also if not (isinstance(x, Store) and x.buffer in rows)]))
    return changed(s, lambda x: anew(x, rows) if isinstance(x, Load) and x.array in rows else None)

