"""The key of a version: equal exactly when its machine code is, whatever its symbols are called and its lines are.

What it holds: the graph's structure, the call's form, guards, results, the layouts of captured arrays, which nodes
share a line, the target and options, the environment, and a digest of the modules that generate code.
"""
from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from loopwright.ir.dims import Dim, Extent, substitute, symbol, symbols_in
from loopwright.ir.graph import Graph
from loopwright.ir.op import Op
from loopwright.ir.signature import ArrayLeaf, Container, Tree, Version
from loopwright.ir.source import Source
from loopwright.lower.runtime import cache
from loopwright.lower.runtime.arguments import is_straight
from loopwright.lower.target import Target


def version_key(version: Version, target: Target, use_blas: bool) -> str:
    """A name for the object code of a version."""
    hidden = tuple((x.shape, x.dtype.str, is_straight(x)) for x in version.hidden)
    contents = tuple((x.shape, x.dtype.str, is_straight(x)) for x, _ in version.contents)
    guards = tuple(g.constraint for g in version.guards)
    whole = (version.graph.key, version.signature, guards, version.results, hidden, contents, len(version.objects),
             tuple(_line_pattern(version.graph)), version.fast_math, use_blas, target, version.donated)
    return cache.digest(canonical(whole, _names(version)), cache.environment(), cache.source_digest())


def canonical(x: Any, names: Mapping[str, Extent]) -> str:
    """Text that is equal for equal data in every process: bit-exact numbers, sets in order, symbols renamed."""
    return _Canonical(names).text(x)


class _Canonical:
    """Texts under one renaming; those of tuples are kept, since a graph's key has few types many times."""

    def __init__(self, names: Mapping[str, Extent]) -> None:
        self.names = names
        self.known: dict[int, str] = {}  # by identity: what is asked for lives until the answer is given

    def text(self, x: Any) -> str:
        if type(x) is tuple:
            known = self.known.get(id(x))
            if known is None:
                known = self.known[id(x)] = f"({','.join([repr(y) if type(y) is int else self.text(y) for y in x])})"
            return known
        return repr(x) if type(x) is int or type(x) is str else self._other(x)

    def _other(self, x: Any) -> str:
        match x:
            case None | bool() | int() | str() | bytes():
                return repr(x)
            case float():
                return x.hex()
            case complex():
                return f"{x.real.hex()}+{x.imag.hex()}j"
            case tuple():  # a named one
                return f"({','.join([self.text(y) for y in x])})"
            case frozenset():
                return f"{{{','.join(sorted([self.text(y) for y in x]))}}}"
            case Dim():
                return f"<{substitute(x, self.names)}>"
            case Op():
                return x.name
            case np.dtype():
                return f"{x.name}{x.str}"
            case type():
                return x.__qualname__
            case enum.Enum():
                return str(x)
        fields = [self.text(getattr(x, f.name)) for f in dataclasses.fields(x)]
        return f"{type(x).__qualname__}({','.join(fields)})"


def _names(version: Version) -> dict[str, Extent]:
    """Symbols by number: those of the graph, in its order, then those that only the call or the guards name."""
    found = dict.fromkeys(version.graph.symbols)
    for x in _extents(version):
        found.update(dict.fromkeys(sorted(symbols_in(x))))
    return {name: symbol(f"#{k}") for k, name in enumerate(found)}


def _extents(version: Version) -> Iterator[Extent]:
    signature = version.signature
    for tree in (*signature.positional, *(tree for _, tree in signature.keywords)):
        yield from _extents_of(tree)
    for g in version.guards:
        yield from (g.constraint.left, g.constraint.right)


def _extents_of(tree: Tree) -> Iterator[Extent]:
    match tree:
        case ArrayLeaf(type):
            yield from type.shape
        case Container(items=items):
            for item in items:
                yield from _extents_of(item)


def lines(g: Graph) -> Iterator[Source | None]:
    """The line of every node, those of regions after the node that has them."""
    for n in g.nodes:
        yield n.source
        for region in n.regions:
            yield from lines(region)


def _line_pattern(g: Graph) -> Iterator[int]:
    """Which nodes share a line: with it the lines of error sites can be found again in another trace's graph."""
    number: dict[Source | None, int] = {}
    for source in lines(g):
        yield number.setdefault(source, len(number))
