"""What is named inside loops: their indices, reductions, running folds, and buffers that are stored to or brought near.

Guarantees: a loop's names are found once, as bits of a number. Names may share a bit: one that is set says that a name may be
there, and one that is not that it is not.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import or_

from loopwright.ir.nest import Allocate, Contract, For, Let, Reduction, Scan, Statement, Store
from loopwright.lower.fusing import writes

BITS = 256
MOST = 1 << 11  # loops that are remembered: nests that follow from each other share most

_bits: dict[str, int] = {}
_loops: dict[int, tuple[For, int]] = {}  # by number; the loop is kept, so that the number stays its own


def bits(names: Iterable[str]) -> int:
    """Some names as bits."""
    return reduce(or_, map(_bit, names), 0)


def _bit(name: str) -> int:
    return _bits.get(name) or _bits.setdefault(name, 1 << len(_bits) % BITS)


def may_name(f: For, wanted: int) -> bool:
    """Whether a loop may be that of one of these names, or hold it."""
    known = _loops.get(id(f))
    return bool((_of_loop(f) if known is None else known[1]) & wanted)


def _of_loop(f: For) -> int:
    """The names of a loop that is not known yet."""
    found = _bit(f.index.name)
    for s in f.body:
        if isinstance(s, For):
            known = _loops.get(id(s))
            found |= _of_loop(s) if known is None else known[1]
        elif isinstance(s, Store | Contract):
            found |= _bit(s.buffer)
        elif not isinstance(s, Allocate | Let):
            found |= bits(_own(s))
    if len(_loops) >= MOST:
        _loops.clear()
    _loops[id(f)] = f, found
    return found


def _own(s: Statement) -> list[str]:
    """What a statement that is no loop names."""
    own = [s.name] if isinstance(s, Reduction) else [s.index.name] if isinstance(s, Scan) else []
    return [*own, *(name for name, _ in writes((s,)))]


def named(body: Sequence[Statement], wanted: Collection[str]) -> set[str]:
    """Those of these names that are named by statements."""
    found, some = set[str](), bits(wanted)
    todo = [*body]
    while todo:
        s = todo.pop()
        if not isinstance(s, For):
            found.update([x for x in _own(s) if x in wanted])
        elif may_name(s, some):
            todo += s.body
            if s.index.name in wanted:
                found.add(s.index.name)
    return found
