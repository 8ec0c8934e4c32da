"""Make one loop of adjacent loops: every access must hold their indices side by side, over the buffer's whole axes."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import field

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, product
from loopwright.ir.loops import (
    Apply,
    Expr,
    Index,
    Literal,
    Load,
    PartitionPoint,
    Prefix,
    Reduce,
    Size,
    When,
    integer,
    less,
    outermost,
    parts,
    plus,
    transform,
    walk,
    walk_all,
)
from loopwright.ir.nest import (
    Allocate,
    Buffer,
    Contract,
    For,
    Let,
    Nest,
    Parts,
    Passes,
    Prefetch,
    Reduction,
    Scan,
    Statement,
    Store,
    While,
)
from loopwright.ir.types import BOOL

MOST_TURNS = 3  # comparisons by which rows choose, in loops that are made one
Loops = Sequence[tuple[Index, Extent]]


def expressions(statements: Sequence[Statement]) -> Iterator[Expr]:
    """Every outermost expression of some statements, those inside loops included."""
    yield from values(statements)
    for _, index in writes(statements):
        yield from index


def values(statements: Sequence[Statement]) -> Iterator[Expr]:
    """Every expression that is computed for its value, not as a place to store to."""
    for s in statements:
        match s:
            case For():
                yield from values(s.body)
            case Store():
                yield from (s.value, *([] if s.when is None else [s.when]))
            case Let():
                yield s.value
            case While():
                yield from (*s.starts, s.condition, *s.following)
                yield from values(s.body)
            case Reduction():
                yield s.body
                yield from values(s.also)
            case Scan():
                yield s.body
            case Contract():
                yield from (s.left, s.right, *([] if s.when is None else [s.when]))
            case Parts():
                yield from (s.value, *([] if s.when is None else [s.when]))
            case Passes():
                yield from values((*s.products, *(f for folds in s.folds for f in folds), s.last, *s.body, *s.numbers))


def writes(statements: Sequence[Statement]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Every place that is stored to, or brought near: the buffer's name and the index."""
    for s in statements:
        match s:
            case For():
                yield from writes(s.body)
            case Store() | Prefetch():
                yield s.buffer, s.index
            case Reduction():
                yield from writes(s.also)
            case Scan():
                yield s.buffer, s.at
            case Contract():
                yield s.buffer, s.at
            case Parts():
                yield s.target, (s.at,)
            case Passes():
                yield from writes((*s.body, *s.numbers))


def accesses(statements: Sequence[Statement]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Every place where a buffer is read or written: its name and the index."""
    yield from writes(statements)
    for e in expressions(statements):
        for x in walk(e):
            if isinstance(x, Load):
                yield str(x.array), x.index


def by_rows(body: Sequence[Statement]) -> list[tuple[int, Reduce]]:
    """The folds in a loop's body that may go row by row, each with the number of its statement: those with one loop, before
    which only names are given, and no fold that may not: it would be made again for each block of rows."""
    found: list[tuple[int, Reduce]] = []
    for k, s in enumerate(body):
        if isinstance(s, Let | Store):
            folds = [e for e in outermost(s.value, Reduce) if isinstance(e, Reduce)]
            found += [(k, e) for e in folds if len(e.over) == 1]
            if any(len(e.over) != 1 for e in folds):
                break
        if not isinstance(s, Let):
            break
    return found


def transposed_loads(outer: For) -> list[Load]:
    """In the body of a loop of vectors inside `outer`: what `outer` walks along its last axis, and the vectors along another.
    None of masks, which are no memory, and where the body is more than expressions, none at all."""
    inner, = outer.body if len(outer.body) == 1 else (None,)
    if not isinstance(inner, For) or inner.lanes == 1 or not all(isinstance(s, Let | Store) for s in inner.body):
        return []
    found = walk_all(expressions(inner.body))
    if any(isinstance(e, Reduce | Prefix | PartitionPoint) for e in found):
        return []
    return list(dict.fromkeys(e for e in found if isinstance(e, Load) and _is_across(e, outer.index, inner.index)))


def _is_across(e: Load, outer: Index, inner: Index) -> bool:
    """Whether `outer` alone walks the last axis and `inner` alone one before it."""
    places = [k for k, part in enumerate(e.index) for x in walk(part) if x in (outer, inner)]
    return e.dtype != BOOL and len(places) == 2 and e.index[-1] == outer and inner in e.index[:-1]


def _buffers(nest: Nest) -> dict[str, Buffer]:
    found = {b.name: b for b in nest.buffers}

    def visit(statements: Sequence[Statement]) -> None:
        for s in statements:
            if isinstance(s, Allocate):
                found[s.buffer.name] = s.buffer
            elif isinstance(s, For):
                visit(s.body)

    visit(nest.body)
    return found


@dataclass(frozen=True)
class Together:
    """Loops that become one at the same time: `runs`, each of adjacent loops that go as far as those of the others, and for
    each buffer that they index the axis where this begins."""

    runs: tuple[Loops, ...]
    begins: dict[str, int]

    @cached_property
    def index(self) -> tuple[tuple[Index, ...], ...]:
        """Those of each run's loops."""
        return tuple([tuple([k for k, _ in loops]) for loops in self.runs])

    def is_last(self, nest: Nest) -> bool:
        """Whether they go along the last axis of some buffer."""
        buffers = _buffers(nest)
        return any(a + len(self.runs[0]) == len(buffers[name].shape) for name, a in self.begins.items())

    @property
    def firsts(self) -> dict[Index, tuple[Index, ...]]:
        """The runs, by the index of the first loop."""
        return {run[0]: run for run in self.index}


def together(nest: Nest, loops: Loops) -> Together | None:
    """What becomes one loop where these do: they and all that index the same arrays in their place. None if some access splits
    them. Whole rows may be read further on, and few choices be made by the first index alone."""
    found = Together((tuple(loops),), {})
    every = list(accesses(nest.body))
    while True:
        begins = _begins(nest, found, every)
        if begins is None:
            return None
        more = _more_runs(nest, found, begins, every)
        if more is None:
            return None
        if not more:
            break
        found = Together((*found.runs, *more), {})
    used = {k for run in found.index for k in run}
    return None if _used_as_number(nest, used, set(found.firsts)) else Together(found.runs, begins)


def _begins(nest: Nest, known: Together, every: Sequence[tuple[str, tuple[Expr, ...]]]) -> dict[str, int] | None:
    """The axis of each buffer where some run of loops indexes it; None where a run is split."""
    begins: dict[str, int] = {}
    buffers, whole = _buffers(nest), tuple(n for _, n in known.runs[0])
    for name, index in every:
        first, run = _run_at(known, index)
        if run is None:
            continue
        if index[first + 1:first + len(run)] != run[1:] or begins.setdefault(name, first) != first:
            return None
        shape = tuple(buffers[name].shape[first:first + len(run)])
        if shape[1:] != whole[1:] or (isinstance(index[first], Index) and index[first] != run[0]):
            return None
    return begins


def _run_at(known: Together, index: tuple[Expr, ...]) -> tuple[int, tuple[Index, ...] | None]:
    """Where in an access the first index of a run is, and of which."""
    for a, e in enumerate(index):
        for run in known.index:
            if e in run or _rows_on(e, run[0]) is not None:
                return a, run
    return 0, None


def _more_runs(nest: Nest, known: Together, begins: dict[str, int],
               every: Sequence[tuple[str, tuple[Expr, ...]]]) -> list[Loops] | None:
    """Loops that index the same buffers in the place of those that are known; None where these are not adjacent, or not as
    long."""
    found: dict[tuple[Expr, ...], Loops] = {}
    taken, extents = {k for run in known.index for k in run}, [n for _, n in known.runs[0]]
    chains: list[Loops] | None = None
    for name, index in every:
        if name not in begins or _run_at(known, index)[1] is not None:
            continue
        place = index[begins[name]:begins[name] + len(extents)]
        if place in found:
            continue
        chains = _chains(nest.body) if chains is None else chains
        loops = next((c[a:a + len(place)] for c in chains for a in range(len(c))
                      if tuple(k for k, _ in c[a:a + len(place)]) == place), None)
        if loops is None or [n for _, n in loops] != extents or not taken.isdisjoint(place):
            return None
        taken |= {k for k, _ in loops}
        found[place] = loops
    return list(found.values())


def _chains(body: Sequence[Statement]) -> list[Loops]:
    """All loops, those that are directly inside each other, and those of one fold, side by side."""
    out: list[Loops] = [x.over for x in walk_all(expressions(body)) if isinstance(x, Reduce)]

    def visit(statements: Sequence[Statement], around: Loops) -> None:
        for s in statements:
            if isinstance(s, Reduction):
                out.append(s.over)
            elif isinstance(s, For):
                is_plain = s.origin is None and s.step == 1 and not s.bind and not s.of
                chain = (*around, (s.index, s.extent)) if is_plain else ()
                if len(s.body) == 1 and isinstance(s.body[0], For):
                    visit(s.body, chain)
                else:
                    out.append(chain)
                    visit(s.body, ())

    visit(body, ())
    return out


def _rows_on(e: Expr, row: Index) -> Extent | None:
    """How many rows after its own a position is."""
    found = _from(e, row)
    return found[1] if found is not None and found[0] == 1 else None


def _from(e: Expr, row: Index) -> tuple[int, Extent] | None:
    """An index expression as so many times a row's number, and a size; None for others."""
    match e:
        case Index():
            return (1, 0) if e == row else None
        case Literal(value=int() as n):
            return 0, n
        case Size(extent=extent):
            return 0, extent
        case Apply(fn="add", args=(a, b)):
            first, second = _from(a, row), _from(b, row)
            return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
        case Apply(fn="mul", args=(a, Literal(value=int() as by))):
            inner = _from(a, row)
            return None if inner is None else (inner[0] * by, inner[1] * by)
    return None


def _turn(e: Expr, row: Index) -> tuple[int, Extent] | None:
    """Of a comparison that depends on a row's number alone: whether it holds before (1) or from some row on (-1), and which."""
    if not isinstance(e, Apply) or e.fn != "lt" or row not in walk(e):
        return None
    a, b = (_from(x, row) for x in e.args)
    if a is None or b is None or a[0] - b[0] not in (1, -1):
        return None
    step, rest = a[0] - b[0], a[1] - b[1]
    return (1, rest * -1) if step == 1 else (-1, rest + 1)


def _used_as_number(nest: Nest, run: set[Index], firsts: set[Index]) -> bool:
    """Whether an index of the runs appears anywhere but as a whole position of an access, maybe further on, or in a choice."""
    if any(e in run for e in values(nest.body)):
        return True
    todo, seen = list(expressions(nest.body)), set[int]()
    turns = set[Expr]()
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, When) and any(_turn(x.cond, first) is not None for first in firsts):
            turns.add(x.cond)
            todo += [x.then, x.other]
        elif isinstance(x, Load):
            todo += [i for i in x.index if all(_rows_on(i, first) is None for first in firsts)]
        elif any(p in run for p in _direct(x)):
            return True
        else:
            todo += parts(x)
    return len(turns) > MOST_TURNS


def _direct(x: Expr) -> Iterator[Expr]:
    match x:
        case Load() | Index():
            return
    for f in dataclasses.fields(x):
        value = getattr(x, f.name)
        yield from (v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Index))


@dataclass(frozen=True)
class Fused:
    """What nests with the same accesses share when adjacent loops of theirs become one: see `together`; and expressions
    and statements, as they were and are, by number."""

    known: Together | None
    done: dict[int, tuple[Expr, Expr]] = field(default_factory=dict)
    statements: dict[int, tuple[Statement, tuple[Statement, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, nest: Nest, loops: Loops) -> Fused:
        return cls(together(nest, loops) if len(loops) > 1 else None)

    @property
    def renamed(self) -> dict[str, str]:
        """The names of the new loops, by those of the last of the loops that they are made of."""
        return {} if self.known is None else {run[-1].name: _name(run).name for run in self.known.index}


def fuse_loops(nest: Nest, fused: Fused) -> Nest | None:
    """The nest with these adjacent loops as one, or None where an access does not allow it."""
    return None if fused.known is None else _Fuser(fused, fused.known).nest(nest)


def _name(run: Sequence[Index]) -> Index:
    """That of the one loop."""
    return Index("_".join(k.name for k in run))


class _Fuser:
    def __init__(self, fused: Fused, known: Together) -> None:
        self.fused, self.known, self.begins = fused, known, known.begins
        self.firsts, self.count = known.firsts, len(known.runs[0])
        self.lasts = {run[-1]: run for run in known.index}
        self.inside = {k for run in known.index for k in run[:-1]}
        self.extent = product(n for _, n in known.runs[0])
        self.row = product(n for _, n in known.runs[0][1:])
        self.done = fused.done

    def nest(self, nest: Nest) -> Nest:
        return Nest(nest.name, tuple(map(self.buffer, nest.buffers)), nest.symbols, self.body(nest.body))

    def buffer(self, b: Buffer) -> Buffer:
        if b.name not in self.begins:
            return b
        a = self.begins[b.name]
        run = product(b.shape[a:a + self.count])
        return Buffer(b.name, (*b.shape[:a], run, *b.shape[a + self.count:]), b.dtype, b.role)

    def at(self, name: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if name not in self.begins:
            return tuple(map(self.expr, index))
        a = self.begins[name]
        rows, run = next((rows, run) for first, run in self.firsts.items() if (rows := _rows_on(index[a], first)) is not None)
        index = tuple(map(self.expr, index))
        return (*index[:a], plus(_name(run), integer(rows * self.row)), *index[a + self.count:])

    def expr(self, e: Expr) -> Expr:
        return transform(e, self._changed, self.done)

    def _changed(self, e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.array in self.begins:
            return Load(e.array, self.at(str(e.array), e.index), e.dtype)
        if isinstance(e, When):
            for first, run in self.firsts.items():
                if (turn := _turn(e.cond, first)) is not None:
                    index, at = _name(run), integer(turn[1] * self.row)
                    cond = less(index, at) if turn[0] == 1 else less(plus(at, integer(-1)), index)
                    return When(cond, self.expr(e.then), self.expr(e.other))
        if isinstance(e, Reduce):
            return dataclasses.replace(e, over=self.over(e.over), body=self.expr(e.body))
        return None

    def over(self, loops: Loops) -> tuple[tuple[Index, Extent], ...]:
        """A fold's loops, with a run of them as one."""
        a = next((a for a, (k, _) in enumerate(loops) if k in self.firsts), None)
        if a is None:
            return tuple(loops)
        return (*loops[:a], (_name(self.firsts[loops[a][0]]), self.extent), *self.over(loops[a + self.count:]))

    def body(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(x for s in statements for x in self.statement(s))

    def statement(self, s: Statement) -> tuple[Statement, ...]:
        found = self.fused.statements.get(id(s))
        if found is None:
            found = self.fused.statements[id(s)] = s, self._statement(s)  # s is kept, so that its id stays its own
        return found[1]

    def _statement(self, s: Statement) -> tuple[Statement, ...]:
        match s:
            case For() if s.index in self.lasts:
                index = _name(self.lasts[s.index])
                return (dataclasses.replace(s, index=index, extent=self.extent, body=self.body(s.body)),)
            case For() if s.index in self.inside:
                inner = self.body(s.body)  # exactly the run's next loop: they are adjacent
                return tuple(dataclasses.replace(f, parallel=s.parallel) if isinstance(f, For) else f for f in inner)
            case For():
                return (dataclasses.replace(s, body=self.body(s.body)),)
            case Store():
                when = None if s.when is None else self.expr(s.when)
                return (Store(s.buffer, self.at(s.buffer, s.index), self.expr(s.value), s.combine, when),)
            case Prefetch():
                return (dataclasses.replace(s, index=self.at(s.buffer, s.index)),)
            case Let():
                return (Let(s.name, self.expr(s.value)),)
            case Scan():
                return (dataclasses.replace(s, body=self.expr(s.body), at=self.at(s.buffer, s.at)),)
            case Allocate():
                return (Allocate(self.buffer(s.buffer)),)
            case While():
                return (self._while(s),)
            case Reduction():
                return (self._reduction(s),)
            case Contract() | Parts() | Passes():
                raise AssertionError("loops are fused before they are in blocks")

    def _while(self, s: While) -> While:
        return While(s.names, tuple(map(self.expr, s.starts)), self.expr(s.condition), tuple(map(self._while, s.body)),
                     tuple(map(self.expr, s.following)), s.ends)

    def _reduction(self, s: Reduction) -> Reduction:
        also = tuple(x for x in self.body(s.also) if isinstance(x, Store | Prefetch))
        return dataclasses.replace(s, over=self.over(s.over), body=self.expr(s.body), also=also)
