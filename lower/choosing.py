"""What decisions demand of a grouping, checked; and what could be decided of a node instead.

Guarantees: what is checked holds by the same rules as where nothing is decided; only what a rule finds worth its while is left
aside.
"""
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from loopwright.ir.graph import Node
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.lower.capacity import is_free
from loopwright.lower.decisions import Again, Apart, Decision, Join, refuse

if TYPE_CHECKING:
    from loopwright.lower.grouping import Grouping
    from loopwright.lower.groups import Form, Group

MOST_BESIDE = 4  # kernels with loops like a node's that it may be tried in


def check_again(grouping: Grouping, n: Node, form: Form, groups: list[Group], choice: Again) -> None:
    """ScheduleError where not every group of these, which read n, can compute it again."""
    if not form.is_map:
        refuse(n, choice, "only what has a value for each element alone is computed again")
    if n.outputs[0] in grouping.results or not groups:
        refuse(n, choice, "it is stored: a result of the program, or of a step of a loop")
    if not all(grouping.is_open(n, g) and (is_free(grouping, n) or grouping.reads_at_few(n.outputs[0], g)) for g in groups):
        refuse(n, choice, "a library call or control flow reads it, or a kernel that is full, reads it at many positions, or "
                          "updates in place what it reads")


def chosen_host(grouping: Grouping, n: Node, form: Form, groups: list[Group], choice: Join) -> Group:
    """The group that n is to be computed in, where these read it. ScheduleError where it cannot."""
    other = grouping.decided.node(choice.host)
    hosts = [] if other is None else grouping.groups_of.get(other, [])
    if len(hosts) != 1:
        refuse(n, choice, "no one kernel computes that node, or it comes before this one")
    if not grouping.is_open(n, hosts[0]):
        refuse(n, choice, "that is a library call, or a kernel that is full or updates in place what this one reads")
    if not grouping.reaches(n, form, hosts[0], groups != hosts or n.outputs[0] in grouping.results):
        refuse(n, choice, "that kernel's loops do not reach each of its elements once, where they need it")
    if any(x is not hosts[0] and grouping.leads_to(x, hosts[0]) for x in groups):
        refuse(n, choice, "another kernel that reads it comes before that one")
    return hosts[0]


def others(grouping: Grouping, n: Node, readers: list[Group]) -> tuple[Decision, ...]:
    """Where n might be computed, not all of which fits: a kernel that stores what only repeats a value is left out."""
    at, shape = grouping.place(n), n.outputs[0].type.shape
    alike = (g for g in reversed(grouping.alike.get(shape, [])) if n.inputs and g not in readers)
    hosts = [*(g for g in readers if g.root not in grouping.lone), *itertools.islice(alike, MOST_BESIDE)]
    apart = [Apart(at)] if n.inputs and n.op is not broadcast else []
    return (*apart, *(Join(at, grouping.place(g.root)) for g in hosts), *([Again(at)] if len(readers) > 1 else []))


def kind(grouping: Grouping, n: Node) -> tuple[object, ...]:
    """Equal for nodes that compute much the same for others that do."""
    readers = sorted(u.op.name for u in grouping.users.get(n.outputs[0], []))
    return (n.op.name, *((v.type.dtype.name, v.type.rank) for v in (*n.inputs, *n.outputs)), *readers)
