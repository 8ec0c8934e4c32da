"""The names of mapped axes: which a collective may speak of where it is called.

Guarantees: a name means the innermost `vmap` around the call that gave it; it ends with the trace of that function; names are
known to their own thread alone.
"""
from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from loopwright.ir.builder import Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.errors import AxisNameError
from loopwright.ir.source import user_source


@dataclass(frozen=True, eq=False)
class NamedAxis:
    """A mapped axis in the trace of its function: `identity` is its name in graphs, which no other axis has; `index` is the
    number of the element, i64[]."""

    name: Hashable
    identity: str
    size: Extent
    index: Ref


class _Known(threading.local):
    axes: tuple[NamedAxis, ...] = ()  # the innermost last


_known = _Known()
_numbers = itertools.count(1)


def identity(name: Hashable) -> str:
    """A name in graphs for an axis that is about to be mapped."""
    return f"{name}.{next(_numbers)}"


@contextmanager
def named(axis: NamedAxis) -> Iterator[None]:
    """Inside, the name means this axis."""
    before = _known.axes
    _known.axes = (*before, axis)
    try:
        yield
    finally:
        _known.axes = before


def axis_of(name: Hashable, why: str) -> NamedAxis:
    """The axis that a name means here. AxisNameError where there is none."""
    for axis in reversed(_known.axes):
        if axis.name == name:
            return axis
    names = ", ".join(dict.fromkeys([repr(axis.name) for axis in _known.axes]))
    found = f"the names here are {names}" if names else "no axis has a name here"
    raise AxisNameError(f"{user_source()}: {why}: no vmap around this call named its axis {name!r}: {found}. Name it by "
                        f"vmap(f, axis_name={name!r}), and call {why} inside f.")
