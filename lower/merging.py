"""Groups side by side: maps over the same positions, and folds over the same loops, as one kernel, which reads what they share
once."""
from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.ir.dims import Shape
from loopwright.ir.graph import Value
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.lower.contractions import is_contraction
from loopwright.lower.instructions import is_short
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.passes import MOST_JOINED
from loopwright.lower.survey import EXPENSIVE, own_cost

if TYPE_CHECKING:
    from loopwright.lower.grouping import Grouping
    from loopwright.lower.groups import Group

MOST_RESULTS = 8  # of a kernel that groups side by side became
MOST_COST = 4 * EXPENSIVE  # of one position of such a kernel: dearer ones have fewer vectors in flight
MOST_TRIED = 4  # groups that a group may come to stand beside


def merge(grouping: Grouping, in_loop: bool) -> None:
    """Maps over the same positions, and what is made of folds over the same loops, become one group where they read an array
    that goes with all of these: one loop instead of several. In a loop, where each kernel costs, maps do without one."""
    hosts: dict[tuple[Shape, Shape], list[Group]] = {}
    for group in tuple(grouping.order):
        over = _over(grouping, group)
        if over is None:
            continue
        alike = hosts.setdefault((group.root.outputs[0].type.shape, over), [])
        host = next((h for h in reversed(alike[-MOST_TRIED:]) if ((in_loop and not over) or _share(grouping, h, group, over))
                     and _side_by_side(grouping, h, group, over)), None)
        if host is None:
            alike.append(group)
        else:
            _absorb(grouping, host, group)


def _over(grouping: Grouping, group: Group) -> Shape | None:
    """How far the loops go of the folds that each element is made of; of a map nothing. None where it is neither alone."""
    if group.root in grouping.lone or group.root in grouping.updates or isinstance(group.expr, Prefix | Scatter) \
            or grouping.decided.placing(group.root) is not None:
        return None
    if group.level is None and not isinstance(group.expr, Reduce):  # lanes along another axis suit short ones better
        return None if is_short(group.root.outputs[0].type.shape) else ()
    rank = len(group.index)
    if group.level not in (None, rank) or any(map(is_contraction, group.nodes)):
        return None
    folds = {n: e for n in group.nodes if isinstance(e := grouping.form(n).expr, Reduce)}
    overs = {tuple([extent for _, extent in e.over]) for e in folds.values()}
    return overs.pop() if len(overs) == 1 and all(n.outputs[0].type.rank == rank for n in folds) else None


def _share(grouping: Grouping, a: Group, b: Group, over: Shape) -> bool:
    """Whether both read an array that has an element for each turn of their loops. Where results of maps may lie, each reads
    what its turn will store."""
    rank = len(a.index) + len(over)
    shared = _reads(a, rank) & _reads(b, rank)
    return bool(shared) and (bool(over) or all(_in_turn(grouping, v, g) for v in shared for g in (a, b)))


def _reads(group: Group, rank: int) -> set[Value]:
    """What a group reads of at least so many axes."""
    made = {v for n in group.nodes for v in n.outputs}
    return {v for n in group.nodes for v in n.inputs if v not in made and v.type.rank >= rank}


def _in_turn(grouping: Grouping, v: Value, group: Group) -> bool:
    return v.type.shape != group.root.outputs[0].type.shape or grouping.positions_of(v, group).keys() <= {group.index}


def _side_by_side(grouping: Grouping, a: Group, b: Group, over: Shape) -> bool:
    """Whether one loop can do what both do: neither waits for a third that waits for the other, and what one reads of the
    other it reads where its loop is; of a fold nothing."""
    nodes, results = dict.fromkeys((*a.nodes, *b.nodes)), (*a.results, *b.results)
    most = MOST_JOINED if over else MOST_RESULTS
    if len(nodes) > MOST_NODES or len(results) > most:
        return False
    if over and any(grouping.positions_of(v, reader) for x, reader in ((a, b), (b, a)) for v in x.results):
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
    host.level = group.level if host.level is None else host.level
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
