"""Kernels that take what their sizes are, not what these are computed from, so that more kernels are one.

After a step of two, half an image is `floordiv(h + 1, 2)` high; a kernel that meets `h` nowhere else does what it does for any
height. Guarantees: the region computes what it did; a size is only put in place of what nothing else in the region is made of.
"""
from __future__ import annotations

from loopwright.ir.attributes import extents_in
from loopwright.ir.dims import Call, Dim, Extent, Symbol, substitute, symbol, symbols_in
from loopwright.ir.graph import Graph, Node, substitute_graph


def own_sizes(n: Node) -> tuple[Graph, tuple[Extent, ...]]:
    """The region of a kernel with sizes of its own, and what its symbols are around the kernel, in their order."""
    g = n.regions[0]
    is_named = any(True for x in n.attrs.values() for _ in extents_in(x))  # sizes, by the region's names
    return (g, tuple(map(symbol, g.symbols))) if is_named else with_own_sizes(g)


def with_own_sizes(g: Graph) -> tuple[Graph, tuple[Extent, ...]]:
    """The same of a region.

    >>> from loopwright.lower.kernel import region_of
    >>> g = lw.make_graph(lambda x: np.sin(x[::2]))(np.ones((5, 3), "f4"))
    >>> sines, _ = region_of(g.nodes[1:], g.results)
    >>> own, sizes = with_own_sizes(sines)
    >>> str(sines.params[0].type), str(own.params[0].type), sizes
    ('f32[floordiv(n + 1, 2), m]', 'f32[own.0, m]', (floordiv(n + 1, 2), m))
    """
    known: dict[str, Extent] = {}
    while not any(n.regions for n in g.nodes) and (whole := _whole_size(g)):
        size, call = whole
        name = f"own.{len(known)}"  # no size of the program is called so
        known[name] = substitute(size, known)
        g = substitute_graph(g, {str(call): symbol(name) - (size - Dim((((call,), 1),)))})
    return g, tuple([known.get(s, symbol(s)) for s in g.symbols])


def _whole_size(g: Graph) -> tuple[Dim, Call] | None:
    """An axis that is as long as a function of sizes which are nowhere else, but for a number; and the function."""
    extents = [x for x in dict.fromkeys(g.extents()) if isinstance(x, Dim)]
    axes = dict.fromkeys(x for v in (*g.params, *(v for n in g.nodes for v in n.outputs)) for x in v.type.shape)
    for size in [x for x in axes if isinstance(x, Dim)]:
        match [term for term in size.terms if term[0]]:
            case [((Call() as call,), 1)] if not any(_is_outside(symbols_in(size), call, x) for x in extents):
                return size, call
    return None


def _is_outside(names: frozenset[str], call: Call, x: Extent) -> bool:
    """Whether some of these symbols are in x, but not in the call."""
    return isinstance(x, Dim) and any(a.name in names if isinstance(a, Symbol) else
                                      a != call and any(_is_outside(names, call, y) for y in a.args)
                                      for atoms, _ in x.terms for a in atoms)
