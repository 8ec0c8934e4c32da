"""Versions of an array in one memory: what kernels and loops update where it lies.

A scatter that is the last to read its base writes over it, a loop the value that its carry begins with. So may the next one,
and what a trip of a loop makes of a carry by such steps alone stays where the carry is.

Guarantees: nothing reads bytes that were written over; what a caller owns is changed only where a schedule says so.
"""
from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

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
    number: int  # what is computed of versions up to this one is so before the update
    reads: Mapping[Value, int]  # the first version that a value is computed of

    def may_compute(self, v: Value) -> bool:
        """Whether v can be computed while the array is updated: not of what this changes, or what was there before."""
        return self.reads.get(v, self.number + 1) > self.number


def updates_of(g: Graph, scatters: Mapping[Node, tuple[Scatter, Value]], carried: Mapping[int, Value]) -> dict[Node, Update]:
    """The scatters of a graph that may write where their bases lie: of carries, and of what other scatters made. scatters: each
    with its base; carried: the parameter that takes the memory of a result, by its number."""
    made = {n.outputs[0]: n for n in scatters}
    bases, stays = {base for _, base in scatters.values()}, _last_scatters(g, carried)
    found: dict[Node, Update] = {}
    for end in [v for v in made if v not in bases]:
        chain = [end]
        while chain[-1] in made:
            chain.append(scatters[made[chain[-1]]][1])
        versions = chain[::-1]
        if (versions[0], end) not in stays:
            del versions[0]  # the first of them copies it
        reads = first_versions(g, versions, scatters)
        for k, (base, v) in enumerate(itertools.pairwise(versions)):
            if base not in g.results:
                found[made[v]] = Update(base, k if scatters[made[v]][0].over else k - 1, reads)
    return found


def _last_scatters(g: Graph, carried: Mapping[int, Value]) -> set[tuple[Value, Value]]:
    """Carries, each with the value that it will be, and with what an inner loop begins with that makes this value."""
    found = {(v, g.results[k]) for k, v in carried.items()}
    for n in g.nodes:
        if n.op is scan or n.op is while_:
            before = dict(zip(n.outputs, initial_carries(n), strict=False))
            found |= {(v, before[r]) for v, r in found if r in before}
    return found


def base_of(n: Node, e: Expr) -> Value | None:
    """The operand that a scatter begins as."""
    if not isinstance(e, Scatter) or not isinstance(e.base, Load) or not isinstance(e.base.array, int):
        return None
    v = n.inputs[e.base.array]
    return v if e.base == Load(e.base.array, e.at, v.type.dtype) else None


def first_versions(g: Graph, versions: Sequence[Value], apart: Container[Node]) -> dict[Value, int]:
    """For each value that is computed of some version of an array, the first such version; each version is one of its own. What
    loops and nodes `apart` make is read from memory: of what does not matter."""
    own = {v: k for k, v in enumerate(versions)}
    reads = dict(own)
    for n in g.nodes:
        of = [] if n.regions or n in apart else [reads[v] for v in n.inputs if v in reads]
        if of:
            reads.update((v, own.get(v, min(of))) for v in n.outputs)
    return reads


# ---- kernels and loops --------------------------------------------------------------------------
def roots_of(g: Graph) -> dict[Value, Value]:
    """For each value of a partitioned graph that lies in the bytes of another, the first of these."""
    roots = reshaped(g)
    for v, (before, is_kernels) in written_over(g).items():
        root = roots.get(before, before)
        if is_kernels or root not in g.params:
            roots.update((x, root) for x in (v, *[x for x, y in roots.items() if y is v]))
    return roots


def reshaped(g: Graph) -> dict[Value, Value]:
    """For each value that is a reshape, the value whose bytes it has."""
    roots: dict[Value, Value] = {}
    for n in g.nodes:
        if not n.regions:
            roots[n.outputs[0]] = roots.get(n.inputs[0], n.inputs[0])
    return roots


def written_over(g: Graph) -> dict[Value, tuple[Value, bool]]:
    """For each value that kernels and loops put where an operand lies, that, and whether a kernel does."""
    found: dict[Value, tuple[Value, bool]] = {}
    for k, n in enumerate(g.nodes):
        if n.op is kernel:
            steps = [x for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace)]
            found.update((n.outputs[x.output], (n.inputs[x.operand], True)) for x in steps)
        elif n.op is scan or n.op is while_:
            carries = zip(n.outputs, initial_carries(n), in_place(n), strict=False)
            found.update((v, (before, False)) for v, before, here in carries if here and is_last_use(g, k, before))
    return found


def in_place(n: Node) -> tuple[bool, ...]:
    """Which carries of a partitioned loop stay in one buffer: their next value is made by updates in place alone, the last of
    which may be an inner loop."""
    if n.op is sized or n.op is blocks or n.op is strips:
        return ()
    body, carried = n.regions[-1], carried_by(n, len(n.regions) - 1)
    return tuple(stay(body, carried))


def stay(body: Graph, carried: Mapping[int, Value]) -> list[bool]:
    """Which results are the parameters that they are carried to after updates where these lie."""
    over = written_over(body) if carried else {}

    def one(result: Value, v: Value) -> bool:
        last = result
        while last in over:
            before, is_kernels = over[last]
            if not is_kernels and last is not result:
                return False
            last = before
            if last is v:
                return True
        return False
    return [one(body.results[k], v) for k, v in carried.items()]


def read_before(g: Graph) -> Iterator[tuple[int, list[int]]]:
    """The nodes that write over operands, each with those that read these before."""
    roots, over = roots_of(g), written_over(g)
    for k, n in enumerate(g.nodes):
        places = {roots[v] for v in n.outputs if v in over and v in roots}
        if places:
            yield k, [j for j in range(k) if any(roots.get(v, v) in places for v in (*g.nodes[j].inputs, *g.nodes[j].outputs))]


def is_last_use(g: Graph, k: int, v: Value) -> bool:
    """Whether node k of a partitioned graph reads v once, and nothing reads its bytes later: v, or a reshape of it."""
    roots = reshaped(g)
    root = roots.get(v, v)
    same = {root, *(x for x, y in roots.items() if y is root)}
    later = [*g.results, *(x for n in g.nodes[k + 1:] for x in n.inputs)]
    return sum(x in same for x in g.nodes[k].inputs) == 1 and same.isdisjoint(later)
