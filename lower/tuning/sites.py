"""Where a program calls its kernels: how often, and at which sizes."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, symbol_of
from loopwright.ir.graph import Graph, Node
from loopwright.ir.ops.control import scan
from loopwright.lower.control import blocks, padded_scan
from loopwright.lower.kernel import kernel
from loopwright.lower.modules import alone

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Site:
    """A kernel where it stands, the sizes there, and how often one run of the program comes by."""

    node: Node
    sizes: Sizes
    calls: float


def sites_of(g: Graph, sizes: Sizes, calls: float = 1.0) -> Iterator[Site]:
    """The kernels of a program. Left out are those with sizes that only the run tells; the body of a loop whose trips only the
    run tells counts once, and so does each branch."""
    for n in g.nodes:
        if n.op is kernel:
            here = alone(n)
            if all(s in sizes for s in here.free_symbols):
                yield Site(n, {s: sizes[s] for s in here.free_symbols}, calls)
        elif n.op is blocks:
            yield from _sites_of_blocks(n, sizes, calls)
        elif n.op is scan or n.op is padded_scan:
            yield from sites_of(n.regions[-1], sizes, calls * (_known(n.attrs["length"], sizes) or 1))
        else:
            for region in n.regions:
                yield from sites_of(region, sizes, calls)


def _sites_of_blocks(n: Node, sizes: Sizes, calls: float) -> Iterator[Site]:
    """Kernels in blocks, all of which count as whole ones."""
    total, rows = _known(n.attrs["total"], sizes), _known(n.attrs["rows"], sizes)
    if total is None or rows is None:
        return
    here = max(min(rows, total), 1)
    name = symbol_of(n.attrs["size"])
    assert name is not None
    yield from sites_of(n.regions[0], {**sizes, name: here}, calls * math.ceil(total / here))


def _known(x: Extent, sizes: Sizes) -> int | None:
    """A size, if all that it is made of is known."""
    try:
        return evaluate(x, sizes)
    except KeyError:
        return None
