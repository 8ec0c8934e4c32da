"""In which order fused loops go through what they read: columns row by row, reductions side by side, tiles."""
from __future__ import annotations

from dataclasses import replace

from loopwright.ir.nest import For, Nest
from loopwright.ir.schedule import Instruction, OnePass
from loopwright.lower.fusing import by_rows, transposed_loads
from loopwright.lower.joining import join

FEW_ROWS = 16  # that reductions of columns fold in registers
MOST_JOINED = 4  # reductions that share a pass
MOST_TRANSPOSED = 4  # arrays of which a tile is kept


def goes_by_rows(nest: Nest) -> bool:
    """Columns alone, that may be more than a step of the lanes, and more rows than registers fold. Inside another loop each
    part is likely small enough for the caches as it is."""
    outer = nest.body[0]
    if not isinstance(outer, For) or outer.lanes == 1:
        return False
    extents = [e.over[0][1] for _, e in by_rows(outer.body)]
    long = not isinstance(outer.extent, int) or outer.extent > 4 * outer.lanes
    return long and any(not isinstance(n, int) or n > FEW_ROWS for n in extents)


def one_pass_rules(nest: Nest, alike: list[tuple[int, int]]) -> list[Instruction]:
    """Reductions one after the other, over the same loops, share a pass, a few at a time."""
    out: list[Instruction] = []
    together = {a: 1 for a, _ in alike}  # how many share the pass of a stage
    for a, b in alike:
        try:
            joined = join(nest.body, f"s{b}")
        except ValueError:
            continue
        if joined != nest.body and together[a] < MOST_JOINED:
            out.append(OnePass(b))
            nest, together[b] = replace(nest, body=joined), together[a] + 1
    return out


def goes_in_tiles(nest: Nest) -> bool:
    """Whether the last two loops read a few arrays across, and may make whole tiles."""
    body = nest.body
    while len(body) == 1 and isinstance(outer := body[0], For):
        inner, body = outer.body[0], outer.body
        if isinstance(inner, For) and inner.lanes > 1:
            whole = all(not isinstance(n, int) or n >= inner.lanes for n in (outer.extent, inner.extent))
            return whole and 0 < len(transposed_loads(outer)) <= MOST_TRANSPOSED
    return False
