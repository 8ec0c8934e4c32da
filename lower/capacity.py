"""How much one kernel computes: how many nodes, how dear ones, and how far from what it stores.

A large formula is one kernel, as what its parts passed on would be stored and read again; a long narrow way through a program
is cut where little passes. What costs no more to make than to read is made wherever it is read, and does not count.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.ir.graph import Node
from loopwright.ir.loops import Prefix, Scatter, When, walk
from loopwright.ir.ops.structural import slice_
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.survey import EXPENSIVE, own_cost

if TYPE_CHECKING:
    from loopwright.lower.grouping import Grouping
    from loopwright.lower.groups import Group

MOST_IN_MAPS = 1024  # nodes of a kernel without rows, on a processor
MOST_DEAR = 16  # of these as dear as an exponential, beyond MOST_NODES of any
MOST_DEEP = 48  # between a node and what is stored: expressions are handled by ten calls inside calls for each


def is_free(grouping: Grouping, n: Node) -> bool:
    """Whether it is a constant or a slice of what the graph is given: as dear to read as to make at each place."""
    return not n.inputs or (n.op is slice_ and n.inputs[0] not in grouping.producer)


def has_place(grouping: Grouping, n: Node, group: Group) -> bool:
    """Whether the group takes n: of cheap operations far more than of dear ones, with which few vectors are in flight, and of
    pads and joined parts, whose makers would all wait for it."""
    if is_free(grouping, n):
        return True
    has_rows = group.level is not None or isinstance(group.expr, Prefix | Scatter)
    most = MOST_NODES
    if grouping.in_turn and not has_rows and group.dear < MOST_DEAR and len(group.depths) >= MOST_NODES \
            and not any(isinstance(x, When) for x in walk(grouping.form(n).expr)):
        most = MOST_IN_MAPS
    return len(group.depths) < most and _depth(grouping, n, group) < MOST_DEEP


def count(grouping: Grouping, n: Node, group: Group) -> None:
    """Note what n takes of the group, of which it becomes a node."""
    if not is_free(grouping, n):
        group.depths[n] = _depth(grouping, n, group)
        group.dear += own_cost(grouping.form(n).expr) >= EXPENSIVE


def _depth(grouping: Grouping, n: Node, group: Group) -> int:
    """How many of the group's nodes would lie between n and what it stores."""
    readers = [u for v in n.outputs for u in grouping.users.get(v, []) if u in group.depths]
    return max((1 + group.depths[u] for u in readers), default=0)
