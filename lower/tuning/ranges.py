"""Between which sizes an outcome holds: it is measured again at smaller and larger ones."""
from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

from loopwright.ir.cost import flops
from loopwright.ir.dims import evaluate
from loopwright.ir.graph import Graph
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.timing import LEAST_NOISE
from loopwright.lower.tuning.workers import Workers

ROUNDS = 9
MOST_SYMBOLS = 3  # of which all corners of a box are measured; of more sizes those where at most one stands out
Box = tuple[tuple[int, int], ...]  # of each symbol the least and the greatest size


def ranges_of(g: Graph, default: Graph, best: Graph, sizes: Mapping[str, int], pool: Workers, *, seconds: float,
              each: float) -> Box:
    """For each symbol of g half its size to twice it, if at all corners of that box which are measured the module `best` is not
    slower than `default`; else the lower or the upper half of the box; else the size alone. A corner that g does not allow, or
    for which the seconds that are left may not be enough, as one run takes `each` at these sizes, decides for less."""
    symbols, deadline = g.free_symbols, time.monotonic() + seconds
    here = flops(g)
    known: dict[tuple[int, ...], bool] = {}

    def holds(corner: tuple[int, ...]) -> bool:
        at = dict(zip(symbols, corner, strict=True))
        if corner not in known:
            longer = max(evaluate(here, at) / max(evaluate(here, sizes), 1), 1.0)
            fits = 4 * ROUNDS * each * longer < deadline - time.monotonic()
            known[corner] = fits and all(c.holds(at) for c in g.constraints) and _is_not_slower(default, best, at, pool)
        return known[corner]

    for low, high in ((2, 2), (1, 2), (2, 1)):
        box = tuple([(max(sizes[s] // low, 1), sizes[s] * high) for s in symbols])
        if all(map(holds, corners(box))):
            return box
    return tuple([(sizes[s], sizes[s]) for s in symbols])


def corners(box: Box) -> Iterator[tuple[int, ...]]:
    """The corners of a box that stand for all of it, each once."""
    if len(box) <= MOST_SYMBOLS:
        found: Iterator[Sequence[int]] = itertools.product(*box)
    else:
        sides = [[side] * len(box) for side in (0, 1)]
        apart = [[1 - x if a == k else x for a, x in enumerate(side)] for side in sides for k in range(len(box))]
        found = ([ends[x] for ends, x in zip(box, side, strict=True)] for side in (*sides, *apart))
    yield from dict.fromkeys(map(tuple, found))


def _is_not_slower(default: Graph, best: Graph, sizes: Mapping[str, int], pool: Workers) -> bool:
    first, second = pool.measure([Candidate.of(g, sizes) for g in (default, best)], ROUNDS)
    return second.failure is None and second.seconds <= first.seconds * (1 + min(first.noise, LEAST_NOISE))
