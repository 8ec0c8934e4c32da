"""Versions of an array in one memory: what kernels and loops update where it lies.

A scatter that is the last to read its base writes over it, a loop the value that its carry begins with. So may the next one,
and what a trip of a loop makes of a carry by such steps alone stays where the carry is.

Guarantees: nothing reads bytes that were written over; what a caller owns is changed only where a schedule says so.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Expr, Load, Scatter
from loopwright.ir.ops.control import scan, while_
from loopwright.ir.schedule import InPlace
from loopwright.lower.control import blocks, carried_by, initial_carries, sized, strips
from loopwright.lower.kernel import kernel


# ---- before there are kernels -------------------------------------------------------------------
@dataclass(frozen=True)
class Update:
    """A scatter, by the version of an array that it is to update where it lies."""

    base: Value
    number: int  # of the versions before it, the last that what it writes must not be computed of beside it
    reads: Mapping[Value, int]  # the first version that a value is computed of

    def may_compute(self, v: Value) -> bool:
        """Whether v can be computed while the array is updated: not of what this changes, or what was there before."""
        return self.reads.get(v, self.number + 1) > self.number


def updates_of(g: Graph, scatters: Mapping[Node, tuple[Scatter, Value]], carried: Mapping[int, Value]) -> dict[Node, Update]:
    """The scatters of a graph that may write where their bases lie: of carries, and of what other scatters made. scatters: each
    with its base; carried: the parameter that takes the memory of a result, by its number."""
    made = {n.outputs[0]: n for n in scatters}
    ends = {n.outputs[0] for n in scatters if n.outputs[0] not in {base for _, base in scatters.values()}}
    found: dict[Node, Update] = {}
    for end in [n.outputs[0] for n in scatters if n.outputs[0] in ends]:
        chain = [end]
        while chain[-1] in made:
            chain.append(scatters[made[chain[-1]]][1])
        versions = chain[::-1]
        if versions[0] not in {v for k, v in carried.items() if g.results[k] is end}:
            del versions[0]  # the first of them copies it
        reads = _first_versions(g, versions)
        for k, (base, v) in enumerate(itertools.pairwise(versions)):
            if base not in g.results:
                found[made[v]] = Update(base, k if scatters[made[v]][0].over else k - 1, reads)
    return found


def base_of(n: Node, e: Expr) -> Value | None:
    """The operand that a scatter begins as."""
    if not isinstance(e, Scatter) or not isinstance(e.base, Load) or not isinstance(e.base.array, int):
        return None
    v = n.inputs[e.base.array]
    return v if e.base == Load(e.base.array, e.at, v.type.dtype) else None


def _first_versions(g: Graph, versions: Sequence[Value]) -> dict[Value, int]:
    """For each value that is computed of some version of an array, the first such version; each version is one of its own."""
    own = {v: k for k, v in enumerate(versions)}
    reads = dict(own)
    for n in g.nodes:
        of = [reads[v] for v in n.inputs if v in reads]
        if of:
            reads.update((v, own.get(v, min(of))) for v in n.outputs)
    return reads


# ---- kernels and loops --------------------------------------------------------------------------
def roots_of(g: Graph) -> dict[Value, Value]:
    """For each value of a partitioned graph that lies in the bytes of another, the first of these."""
    roots: dict[Value, Value] = {}
    for k, n in enumerate(g.nodes):
        if not n.regions:  # a reshape
            roots[n.outputs[0]] = roots.get(n.inputs[0], n.inputs[0])
            continue
        for v, before in _written_over(g, k):
            root = roots.get(before, before)
            if n.op is kernel or root not in g.params:
                roots[v] = root
    return roots


def _written_over(g: Graph, k: int) -> Iterator[tuple[Value, Value]]:
    """The results of node k that it puts where operands lie, with these."""
    n = g.nodes[k]
    if n.op is kernel:
        yield from ((n.outputs[x.output], n.inputs[x.operand]) for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace))
    elif n.op is scan or n.op is while_:
        stays = in_place(n)
        for v, before, here in zip(n.outputs, initial_carries(n), stays, strict=False):
            if here and is_last_use(g, k, before):
                yield v, before


def in_place(n: Node) -> tuple[bool, ...]:
    """Which carries of a partitioned loop stay in one buffer: their next value is made by updates in place alone, the last of
    which may be an inner loop."""
    if n.op is sized or n.op is blocks or n.op is strips:
        return ()
    body, carried = n.regions[-1], carried_by(n, len(n.regions) - 1)
    return tuple([stays(body, v, body.results[k]) for k, v in carried.items()])


def stays(body: Graph, v: Value, result: Value) -> bool:
    """Whether a result is a parameter after updates where it lies."""
    last, made = result, {v: k for k, n in enumerate(body.nodes) for v in n.outputs if n.regions}
    while last in made:
        over = dict(_written_over(body, made[last]))
        if last not in over or (body.nodes[made[last]].op is not kernel and last is not result):
            return False
        last = over[last]
        if last is v:
            return True
    return False


def read_before(g: Graph) -> Iterator[tuple[int, list[int]]]:
    """The nodes that write over operands, each with those that read these before."""
    roots = roots_of(g)
    for k in range(len(g.nodes)):
        over = {roots.get(before, before) for v, before in _written_over(g, k) if v in roots}
        if over:
            yield k, [j for j in range(k) if any(roots.get(v, v) in over for v in (*g.nodes[j].inputs, *g.nodes[j].outputs))]


def is_last_use(g: Graph, k: int, v: Value) -> bool:
    """Whether node k of a partitioned graph reads v once, and nothing reads its bytes later: v, or a reshape of it."""
    roots: dict[Value, Value] = {}
    for n in g.nodes:
        if not n.regions:
            roots[n.outputs[0]] = roots.get(n.inputs[0], n.inputs[0])
    root = roots.get(v, v)
    same = {root, *(x for x, y in roots.items() if y is root)}
    later = [*g.results, *(x for n in g.nodes[k + 1:] for x in n.inputs)]
    return sum(x in same for x in g.nodes[k].inputs) == 1 and same.isdisjoint(later)
