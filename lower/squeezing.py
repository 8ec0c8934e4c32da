"""Kernels in which some axes turn out to have one element: the same, as if these axes were not there.

A loop of one trip inside another costs more than what it does, and lanes along it are idle. Sizes are known at the call only,
so a kernel has a body for each set of sizes that may be 1, made when a call first needs it, with loops of its own.

Guarantees: every element is computed by the same expression, without folds of one element; indices are checked as before.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import Any, NoReturn

from loopwright.ir.dims import Dim, Extent, Shape, product, symbol, symbol_of, symbols_in
from loopwright.ir.graph import Graph, Node, Value, substitute_graph
from loopwright.ir.loops import Bounded, Expr, Index, LoopContext, Prefix, Reduce, integer, transform, walk_all
from loopwright.ir.nest import For, Nest, Ones, Reduction, Scan, altered
from loopwright.ir.op import Op
from loopwright.ir.schedule import Squeeze
from loopwright.lower.composition import Position, still_checked
from loopwright.lower.fusing import expressions
from loopwright.lower.placing import check
from loopwright.lower.tiling import every

MANY = 1 << 12  # elements that are worth such a body
MOST = 4  # symbols that are looked at


def ones_of(region: Graph, nest: Nest) -> Ones | None:
    """The symbols whose being 1 leaves loops of one trip, or vectors, inside others, or nothing for threads to share out; None
    where there are none."""
    if any(n.op.loop is None or n.regions for n in region.nodes):
        return None
    shapes = [v.type.shape for v in (*region.params, *region.results)]
    alone = dict.fromkeys(s for shape in shapes for n in shape if (s := symbol_of(n)))
    found = dict.fromkeys(map(_factors, (*_innermost(nest), *_shared_out(nest))))
    matter = [x for x in found if x and any(_many(shape, x) for shape in shapes)]
    symbols = tuple(dict.fromkeys([*(s for x in matter for s in x), *alone]))[:MOST]
    matter = [x for x in matter if set(symbols[:MOST]) & alone.keys() >= set(x)]
    return Ones(symbols, tuple(matter)) if matter else None


def with_ones(region: Graph, nest: Nest, *, scatters: bool) -> Nest:
    """The nest of a region with such bodies. scatters: it updates what is there."""
    ones = None if scatters else ones_of(region, nest)
    check(ones is not None, Squeeze(), "no size of an innermost loop may turn out to be 1")
    return altered(nest, ones=ones)


def _shared_out(nest: Nest) -> Iterator[Extent]:
    """How far the loop goes that threads share out, if others are inside: one position would be one thread's."""
    yield from (s.extent for s in nest.body if isinstance(s, For) and s.parallel and any(isinstance(x, For) for x in s.body))


def _innermost(nest: Nest) -> Iterator[Extent]:
    """How far the innermost loops go, those of folds, and what lies side by side in memory."""
    yield from (b.shape[-1] for b in nest.buffers if len(b.shape) > 1)
    for s in every(nest.body):
        if isinstance(s, Reduction):
            yield from (n for _, n in s.over)
        elif isinstance(s, Scan) or (isinstance(s, For) and not any(isinstance(x, For) for x in s.body)):
            yield s.extent
    for x in walk_all(expressions(nest.body)):
        if isinstance(x, Reduce):
            yield from (n for _, n in x.over)


def _factors(n: Extent) -> tuple[str, ...]:
    """The symbols of which a size is the product; none where it is more."""
    if (one := symbol_of(n)) is not None:
        return (one,)
    found = tuple(sorted(symbols_in(n))) if isinstance(n, Dim) else ()
    return found if n == product(map(symbol, found)) else ()


def _many(shape: Shape, ones: tuple[str, ...]) -> bool:
    """Whether an array may have many elements where these symbols are 1."""
    known = prod(n for n in shape if not isinstance(n, Dim))
    return known >= MANY or any(isinstance(n, Dim) and not symbols_in(n) <= {*ones} for n in shape)


def squeezed(region: Graph, ones: Iterable[str]) -> Graph:
    """The region where these symbols are 1, without axes of one element."""
    g = substitute_graph(region, dict.fromkeys(ones, 1))
    new = {v: Value(v.type.with_shape(_kept(v.type.shape, v.type.shape)))
           for v in (*g.params, *(v for n in g.nodes for v in n.outputs))}

    def at(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple([new[v] for v in values])
    nodes = [Node(_squeezed(n, new), at(n.inputs), n.attrs, at(n.outputs), (), n.source) for n in g.nodes]
    return Graph(at(g.params), tuple(nodes), at(g.results))


def _kept(of: tuple[Any, ...], shape: Shape) -> tuple[Any, ...]:
    """What belongs to axes of more than one element."""
    return tuple([x for x, n in zip(of, shape, strict=True) if n != 1])


def _squeezed(n: Node, new: dict[Value, Value]) -> Op:
    """The op of a node, on such operands."""
    if all(new[v].type == v.type for v in (*n.inputs, *n.outputs)):
        return n.op
    types, result = tuple([v.type for v in n.inputs]), n.outputs[0].type
    made = new[n.outputs[0]].type

    def loop(context: LoopContext, index: Position, **attrs: Any) -> Expr:
        def load(k: int, at: Position) -> Expr:
            gone = [i for i, size in zip(at, types[k].shape, strict=True) if size == 1]
            return still_checked(context.load(k, _kept(at, types[k].shape)), [i for i in gone if isinstance(i, Bounded)])

        own = iter(index)
        whole = tuple([integer(0) if size == 1 else next(own) for size in result.shape])
        assert n.op.loop is not None
        return _of_one(n.op.loop(LoopContext(types, result, load, context.fresh), whole, **attrs))
    return Op(name=n.op.name, doc=n.op.doc, infer=lambda types, regions, **attrs: (made,), numpy=_never, loop=loop)


def _never(*args: Any, **attrs: Any) -> NoReturn:
    raise AssertionError("what is squeezed is lowered, and not evaluated")


def _of_one(e: Expr) -> Expr:
    """An expression without folds of one element."""
    gone = set[Index]()

    def change(x: Expr) -> Expr | None:
        if isinstance(x, Index) and x in gone:
            return integer(0)
        if isinstance(x, Reduce) and any(n == 1 for _, n in x.over):
            gone.update(k for k, n in x.over if n == 1)
            over = tuple([(k, n) for k, n in x.over if n != 1])
            if over:
                return replace(x, over=over, body=transform(x.body, change))
            return integer(0) if x.monoid in ("argmax", "argmin") else transform(x.body, change)
        if isinstance(x, Prefix) and x.extent == 1:
            gone.add(x.index)
            return transform(x.body, change)
        return None
    return transform(e, change)
