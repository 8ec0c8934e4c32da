"""A loop as one loop of blocks, in which each part of its body is a loop of its own.

Guarantees: an iteration's parts run in order, and find what parts before made for that iteration: its rows and numbers are
kept for all iterations of a block.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.dataclass import dataclass
from loopwright.ir.loops import Expr, Index, Load, Local, Reduce, minus, transform, walk
from loopwright.ir.nest import Allocate, Buffer, For, Let, Nest, Prefetch, Reduction, Statement, Store, altered
from loopwright.lower.fusing import expressions
from loopwright.lower.tiling import KNOWN, Done, at_loop, block_of

Body = tuple[Statement, ...]

_KNOWN_PARTS: dict[tuple[object, ...], tuple[list[Statement], For]] = {}  # by the numbers of their statements, and all else


def distribute(nest: Nest, name: str, size: int, done: Done) -> Nest:
    """The nest with the loop over an index in blocks, of which every inner loop, and what stands between two of them, has a
    loop of its own. Their indices are numbered."""
    if size < 1:
        raise ValueError("a block has at least one position")
    return altered(nest, body=at_loop(nest.body, name, lambda f: _distributed(f, size), done))


def _distributed(f: For, size: int) -> For:
    if f.lanes > 1 or f.step > 1 or f.origin is not None or f.parallel:
        raise ValueError("the loop has lanes or threads, or is in blocks already")
    parts = _parts(f.body)
    if len(parts) < 2:
        raise ValueError("its body has one part")
    block = block_of(f.index.name, size)
    rows = {s.buffer.name: s.buffer for s in f.body if isinstance(s, Allocate)}
    numbers = _shared(parts)
    kept = [*rows.values(), *(Buffer(_all_of(x.name), (), x.dtype, "local") for x in numbers.values())]
    empty = [altered(f, index=Index(f"{f.index.name}_{k}"), body=(), origin=block, length=size) for k in range(len(parts))]
    shared = frozenset(rows), tuple(numbers.items())
    loops = [_loop_of(part, loop, f.index, *shared) for part, loop in zip(parts, empty, strict=True)]
    allocated = [Allocate(altered(b, shape=(size, *b.shape))) for b in kept]
    return altered(f, index=block, step=size, body=(*allocated, *loops))


def _loop_of(part: list[Statement], loop: For, old: Index, rows: frozenset[str], numbers: tuple[tuple[str, Local], ...]) -> For:
    """The loop with one part of the body, found once: nests that follow from each other share most parts."""
    key = tuple(map(id, part)), loop, old, rows, numbers
    known = _KNOWN_PARTS.get(key)
    if known is None:
        if len(_KNOWN_PARTS) >= KNOWN:
            _KNOWN_PARTS.clear()
        sums = [*map(_with_sums, part)]
        assert loop.origin is not None
        change = _Part(old, loop.index, loop.origin, rows, dict(numbers), _named(sums))
        body = (*map(change.statement, sums), *(change.keep(x) for name, x in numbers if name in change.own))
        known = _KNOWN_PARTS[key] = part, loop.with_body(body)  # the part is kept, so that its numbers stay its own
    return known[1]


def _parts(body: Sequence[Statement]) -> list[list[Statement]]:
    """Each loop, and the statements between loops."""
    parts: list[list[Statement]] = []
    for s in body:
        if not isinstance(s, For | Let | Reduction | Store | Allocate):
            raise ValueError("more than loops, names, reductions and stores is in it")
        if isinstance(s, Allocate):
            continue
        if isinstance(s, For) or not parts or isinstance(parts[-1][-1], For):
            parts.append([])
        parts[-1].append(s)
    return parts


def _with_sums(s: Statement) -> Statement:
    """A row of which every element is a reduction, with that as a statement of its own."""
    match s:
        case For(lanes=1, body=(Store(value=Reduce() as e) as store,)):
            name = store.buffer.replace("t", "r", 1)  # a stage's row and its sum
            fold = Reduction(name, e.monoid, e.over, e.body, e.dtype, fused=e.fused)
            return altered(s, body=(fold, altered(store, value=Local(name, e.dtype))))
    return s


def _named(part: Sequence[Statement]) -> set[str]:
    return {s.name for s in part if isinstance(s, Let | Reduction)}


def _shared(parts: Sequence[Sequence[Statement]]) -> dict[str, Local]:
    """The numbers that one part names and another reads."""
    found: dict[str, Local] = {}
    before: set[str] = set()
    for part in parts:
        read = {x for e in expressions(part) for x in walk(e) if isinstance(x, Local)}
        found.update((x.name, x) for x in sorted(read, key=lambda x: x.name) if x.name in before)
        before |= _named(part)
    return found


def _all_of(name: str) -> str:
    return f"{name}_all"


@dataclass(frozen=True)
class _Part:
    """What changes in a part: its index, and where rows and numbers of other parts are."""

    old: Index
    new: Index
    block: Index
    rows: frozenset[str]
    numbers: dict[str, Local]
    own: set[str]

    @property
    def place(self) -> Expr:
        return minus(self.new, self.block)

    def keep(self, x: Local) -> Store:
        return Store(_all_of(x.name), (self.place,), x)

    def expr(self, e: Expr) -> Expr:
        return transform(e, self._changed)

    def at(self, buffer: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        index = tuple(map(self.expr, index))
        return (self.place, *index) if buffer in self.rows else index

    def _changed(self, e: Expr) -> Expr | None:
        match e:
            case Load(array=str() as name) if name in self.rows:
                return Load(name, self.at(name, e.index), e.dtype)
            case Local(name=name) if name in self.numbers and name not in self.own:
                return Load(_all_of(name), (self.place,), e.dtype)
            case Index() if e == self.old:
                return self.new
        return None

    def statement(self, s: Statement) -> Statement:
        match s:
            case For():
                return s.with_body(tuple([self.statement(x) for x in s.body if not isinstance(x, Prefetch)]))
            case Let():
                return Let(s.name, self.expr(s.value))
            case Store():
                when = None if s.when is None else self.expr(s.when)
                return Store(s.buffer, self.at(s.buffer, s.index), self.expr(s.value), s.combine, when)
            case Reduction():
                also = [self.statement(x) for x in s.also]
                return altered(s, body=self.expr(s.body), also=tuple([x for x in also if isinstance(x, Store)]))
        raise ValueError("more than loops, names, reductions and stores is in it")
