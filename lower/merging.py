"""Groups side by side in the body of a loop: maps over the same positions as one kernel, which reads what they share once."""
from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.ir.dims import Shape
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.lower.instructions import is_short
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.survey import EXPENSIVE, own_cost

if TYPE_CHECKING:
    from loopwright.lower.grouping import Grouping
    from loopwright.lower.groups import Group

MOST_RESULTS = 8  # of a kernel that groups side by side became
MOST_COST = 4 * EXPENSIVE  # of one position of such a kernel: dearer ones have fewer vectors in flight
MOST_TRIED = 4  # groups that a group may come to stand beside


def merge(grouping: Grouping) -> None:
    """Maps over the same positions become one group: one loop instead of several, which reads what they share once."""
    hosts: dict[Shape, list[Group]] = {}
    for group in tuple(grouping.order):
        if not _is_plain_map(grouping, group):
            continue
        alike = hosts.setdefault(group.root.outputs[0].type.shape, [])
        host = next((h for h in reversed(alike[-MOST_TRIED:]) if _side_by_side(grouping, h, group)), None)
        if host is None:
            alike.append(group)
        else:
            _absorb(grouping, host, group)


def _is_plain_map(grouping: Grouping, group: Group) -> bool:
    special = group.root in grouping.lone or group.root in grouping.updates or group.level is not None
    if special or isinstance(group.expr, Reduce | Prefix | Scatter) or grouping.decided.placing(group.root) is not None:
        return False
    return not is_short(group.root.outputs[0].type.shape)  # lanes along another axis suit those better


def _side_by_side(grouping: Grouping, a: Group, b: Group) -> bool:
    """Whether one loop can do what both do: neither waits for a third that waits for the other, and what one reads of the
    other it reads where its loop is."""
    nodes, results = dict.fromkeys((*a.nodes, *b.nodes)), (*a.results, *b.results)
    if len(nodes) > MOST_NODES or len(results) > MOST_RESULTS:
        return False
    if any(p != a.index for v in results for p in (*grouping.positions_of(v, a), *grouping.positions_of(v, b))):
        return False
    if sum(own_cost(grouping.form(n).expr) for n in nodes) > MOST_COST:
        return False
    return not any(grouping.leads_to(other, goal) for start, goal in ((a, b), (b, a))
                   for other in start.readers if other is not goal)


def _absorb(grouping: Grouping, host: Group, group: Group) -> None:
    """Do all that `group` does in `host`."""
    sources = grouping.makers(group.positions)
    grouping.leave_to_rules(host.root)
    grouping.leave_to_rules(group.root)
    host.nodes = list(dict.fromkeys((*host.nodes, *group.nodes)))
    for v, positions in group.positions.items():
        host.positions.setdefault(v, {}).update(positions)
    grouping.order.remove(group)
    for n in group.nodes:
        grouping.groups_of[n] = list(dict.fromkeys([host if x is group else x for x in grouping.groups_of[n]]))
    for other in sources:
        if group in other.readers:
            other.readers = other.readers - {group} | {host}
    host.readers = (host.readers | group.readers) - {host, group}
    host.results = [v for v in (*host.results, *group.results) if grouping.is_stored(v, host)]
