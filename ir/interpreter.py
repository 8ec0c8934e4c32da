"""What a graph means, by NumPy: the oracle for every backend.

Guarantees: arguments are checked against the parameter types and the graph's constraints; every value that a node makes
has the dtype and shape that its type says, and is C-contiguous, so that rounding (NumPy's sums follow the memory layout)
depends on nothing but elements; no floating-point warning is raised; a value is dropped after its last use.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from loopwright.ir.attributes import map_extents
from loopwright.ir.dims import evaluate as evaluate_extent
from loopwright.ir.dims import symbol_of, symbols_in
from loopwright.ir.errors import ArgumentError, CheckError, ShapeError
from loopwright.ir.graph import Graph, Node, Value, binding
from loopwright.ir.types import ArrayType, is_inexact


def evaluate(g: Graph, args: Sequence[Any], sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """The results of g. `sizes` gives symbols that no parameter binds (those of an enclosing graph).
    Results may share memory with arguments and with each other.

    ArgumentError for a wrong number or dtype of arguments, ShapeError for sizes that do not fit or are not given.
    """
    arrays = [np.asarray(a, order="C") for a in args]
    if len(arrays) != len(g.params):
        raise ArgumentError(f"the graph has {len(g.params)} parameters, got {len(arrays)} arguments")
    bound = bind_sizes(g, [a.shape for a in arrays], sizes)
    env = dict(zip(g.params, arrays, strict=True))
    for k, v in enumerate(g.params):
        _check(env[v], v.type, bound, f"argument {k}", ArgumentError, ShapeError)
    with np.errstate(all="ignore"):
        for node, spent in zip(g.nodes, last_uses(g), strict=True):
            env.update(zip(node.outputs, run_node(node, [env[v] for v in node.inputs], bound), strict=True))
            bound.update(dict.fromkeys(binding(node), int(env[node.inputs[0]])) if node.op.binds else ())
            for v in spent:
                del env[v]
    return [env[v] for v in g.results]


def run_node(node: Node, args: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """The outputs of one node for these operands and sizes."""
    attrs = {k: map_extents(a, sizes) for k, a in node.attrs.items()} if sizes else node.attrs
    try:
        extra = {"regions": node.regions, "sizes": sizes} if node.regions else {}
        out = node.op.numpy(*args, **extra, **attrs)
    except (IndexError, ValueError) as error:  # NumPy's own, of values: an index out of range, a negative integer exponent
        _raise_located(error, node)
    outs = [np.asarray(x, order="C") for x in (out if isinstance(out, (tuple, list)) else (out,))]
    for x, v in zip(outs, node.outputs, strict=True):
        _check(x, v.type, sizes, f"the NumPy meaning of {node.op.name}", AssertionError, AssertionError)
    return outs


def _raise_located(error: Exception, node: Node) -> NoReturn:
    """An error with the line of its node; what comes from inside a region or from a user's function stays as it is."""
    if node.source is None or node.regions or node.op.foreign:
        raise error
    if isinstance(error, CheckError):
        raise CheckError(f"{node.source}: {error}") from None
    raise type(error)(f"{error} (at {node.source})") from None


def _check(x: np.ndarray, t: ArrayType, sizes: Mapping[str, int], what: str,
           wrong_dtype: type[Exception], wrong_shape: type[Exception]) -> None:
    if x.dtype != t.dtype:
        raise wrong_dtype(f"{what} has dtype {x.dtype}, its type is {t}")
    if x.shape != t.shape and x.shape != tuple([evaluate_extent(n, sizes) for n in t.shape]):
        raise wrong_shape(f"{what} has shape {x.shape}, its type is {t} with {dict(sizes)}")


def bind_sizes(g: Graph, shapes: Iterable[tuple[int, ...]], sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """The size of every symbol of g. A symbol is bound by a parameter axis that is exactly that symbol, or by `sizes`."""
    bound = dict(sizes or {})
    for k, (v, shape) in enumerate(zip(g.params, shapes, strict=True)):
        if len(shape) != v.type.rank:
            raise ShapeError(f"argument {k} has rank {len(shape)}, its type is {v.type}")
        for extent, size in zip(v.type.shape, shape, strict=True):
            name = symbol_of(extent)
            if name is not None and bound.setdefault(name, size) != size:
                raise ShapeError(f"argument {k} has shape {shape}, its type is {v.type}, and {name} is {bound[name]}")
    missing = [s for s in g.free_symbols if s not in bound]
    if missing:
        raise ShapeError(f"no argument axis is exactly {', '.join(missing)}, so its size is not known: give it in sizes=")
    for c in g.constraints:
        if not c.holds(bound):
            used = {s: bound[s] for s in sorted(symbols_in(c.left) | symbols_in(c.right))}
            raise ShapeError(f"the graph holds where {c}, which is not so for {used}")
    return bound


Look = Callable[[Graph, Sequence[np.ndarray], Mapping[str, int]], object]


class _Hunting(threading.local):
    look: Look | None = None


_hunting = _Hunting()


@contextmanager
def hunting(look: Look) -> Iterator[None]:
    """Inside, on this thread, look(graph, arguments, sizes) is called after each run of a region whose results hold a NaN, with
    this switched off."""
    before, _hunting.look = _hunting.look, look
    try:
        yield
    finally:
        _hunting.look = before


class Runner:
    """A region run many times with the same sizes: what does not differ between runs is done once."""

    def __init__(self, g: Graph, sizes: Mapping[str, int]) -> None:
        self.g, self.sizes = g, sizes
        self.steps = [(n, {k: map_extents(a, sizes) for k, a in n.attrs.items()}, spent)
                      for n, spent in zip(g.nodes, last_uses(g), strict=True)]
        self.shapes = [tuple([evaluate_extent(n, sizes) for n in v.type.shape]) for v in g.params]

    def __call__(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results for these arguments."""
        results, look = self._results(args), _hunting.look
        if look is not None and any(is_inexact(x.dtype) and np.isnan(x).any() for x in results):
            _hunting.look = None
            look(self.g, args, self.sizes)
            _hunting.look = look
        return results

    def _results(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        for k, (x, v, shape) in enumerate(zip(args, self.g.params, self.shapes, strict=True)):
            assert x.dtype == v.type.dtype and x.shape == shape, f"argument {k} of a region is {x.dtype}{x.shape}, not {v.type}"
        if self.g.bound:
            return evaluate(self.g, args, self.sizes)
        env = dict(zip(self.g.params, args, strict=True))
        for node, attrs, spent in self.steps:
            inputs = [env[v] for v in node.inputs]
            try:
                out = (node.op.numpy(*inputs, regions=node.regions, sizes=self.sizes, **attrs) if node.regions
                       else node.op.numpy(*inputs, **attrs))
            except (IndexError, ValueError) as error:
                _raise_located(error, node)
            outs = out if isinstance(out, (tuple, list)) else (out,)
            env.update(zip(node.outputs, [np.asarray(x, order="C") for x in outs], strict=True))
            for v in spent:
                del env[v]
        return [env[v] for v in self.g.results]


def last_uses(g: Graph) -> list[list[Value]]:
    """For each node, the values that nothing after it needs."""
    needed = set(g.results)
    spent: list[list[Value]] = []
    for node in reversed(g.nodes):
        last = [v for v in dict.fromkeys((*node.inputs, *node.outputs)) if v not in needed]
        needed.update(last)
        spent.append(last)
    return spent[::-1]
