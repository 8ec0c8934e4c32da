"""What a graph costs, as polynomials over its sizes: flops, and bytes read and written. No machine is in them.

An element's flops are the operations in its `loop` expression, those that compute an index aside, weighted by kind: 1 for
what a CPU does in one instruction, 4 for division and roots, 10 for transcendental functions, 100 for random bits. A
reduction multiplies by its extents. Ops without a loop rule have a formula of their own, an approximation. A scan costs
what its body does times its length, which may be a size; what has no such number, a while, counts for one trip, and a
switch for all its branches.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from loopwright.ir.dims import Extent, product
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Graph, Node
from loopwright.ir.loops import (
    Apply,
    Expr,
    Index,
    Load,
    LoopContext,
    PartitionPoint,
    Prefix,
    Reduce,
    Scatter,
    When,
)
from loopwright.ir.types import ArrayType

DIVISIONS = frozenset(("div", "sqrt", "floor_divide", "remainder", "fmod"))
TRANSCENDENTAL = frozenset((
    "cbrt", "hypot", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "power", "sin", "cos", "tan", "arcsin", "arccos",
    "arctan", "arctan2", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "erf", "erfc", "erfcx", "erfinv", "ndtri",
    "lgamma", "digamma", "zeta", "logaddexp", "logaddexp2", "gammainc", "gammaincc", "gammainc_slope", "betainc", "i0e", "i1e"))
RANDOM = frozenset(("threefry_first", "threefry_second"))
COMPARISONS = 20  # a sort of n compares each element about log2(n) times: 20 for a million
PASSES = 4  # through a row, of which ever less is left, for an element of some rank
TRANSFORM = 5 * 10  # a Fourier transform of n takes about 5 log2(n) operations for each element: 50 for a thousand
LIBRARY: Mapping[str, Callable[[ArrayType], Extent]] = {
    "fft": lambda x: x.size * TRANSFORM,
    "rfft": lambda x: x.size * (TRANSFORM // 2),  # half of it is known from the other half
    "irfft": lambda x: x.size * TRANSFORM,
    "sort": lambda x: x.size * COMPARISONS,
    "argsort": lambda x: x.size * COMPARISONS,
    "top_k": lambda x: x.size,
    "ranked": lambda x: x.size * PASSES,
}
CONVOLUTIONS = frozenset(("few_features", "winograd", "kernel_slopes"))  # however few multiplications they need

HALVINGS = 64  # steps of a search, at most
CONTROL = frozenset(("scan", "while", "switch"))


def trips(node: Node) -> Extent:
    """How often the regions of a node run, where that is a number or a size; 1 elsewhere."""
    length: Extent = node.attrs["length"] if node.op.name == "scan" else 1
    return length


def weight(fn: str) -> int:
    """The cost of one elementwise operation."""
    return 10 if fn in TRANSCENDENTAL else 4 if fn in DIVISIONS else 100 if fn in RANDOM else 1


def element(node: Node) -> Expr | None:
    """The loop expression of one element of a node's result, at indices i0, i1, ...; None for a library call."""
    if node.op.loop is None:
        return None
    fresh = (Index(f"k{i}") for i in itertools.count())
    types = tuple([v.type for v in node.inputs])
    index = tuple([Index(f"i{a}") for a in range(node.outputs[0].type.rank)])
    context = LoopContext(types, node.outputs[0].type, lambda k, at: Load(k, at, types[k].dtype), lambda: next(fresh))
    return node.op.loop(context, index, **node.attrs)


def flops(x: Graph | Node) -> Extent:
    """Weighted arithmetic operations of a graph or a node."""
    if isinstance(x, Graph):
        return sum((flops(n) for n in x.nodes), 0)
    if x.regions:
        return trips(x) * sum((flops(r) for r in x.regions), 0)
    expr = element(x)
    if expr is None:
        values = (*x.inputs, *x.outputs)
        if not values:
            return 0
        if x.op.name in CONVOLUTIONS:
            return _multiplied(x)
        operand = values[0].type
        formula = LIBRARY.get(x.op.name)
        return operand.size if formula is None else formula(operand)
    if isinstance(expr, Scatter):
        return _flops(expr)
    return _flops(expr) * x.outputs[0].type.size


def _multiplied(n: Node) -> Extent:
    """What the terms of a convolution take: each element of the result has as many as the kernel has for a feature."""
    (_, kernel), (group, feature, *others) = (v.type.shape for v in n.inputs), n.attrs["rhs_axes"]
    feature -= len(kernel) < len(others) + 2 and group < feature  # there may be no axis for groups
    return 2 * n.outputs[0].type.size * product((*kernel[:feature], *kernel[feature + 1:]))


def _flops(e: Expr) -> Extent:
    """Operations of one value; those inside the index of a load count nothing."""
    match e:
        case Apply(fn, args, dtype):
            factor = 4 if dtype.kind == "c" else 1
            return sum((_flops(a) for a in args), weight(fn) * factor)
        case When(_, then, other):  # which of them is a matter of indices
            return _flops(then) + _flops(other)
        case Reduce(over=over, body=body):
            return (_flops(body) + 1) * product(n for _, n in over)
        case Prefix(body=body):
            return _flops(body) + 1  # running: each element adds one to the one before
        case PartitionPoint(test=test):
            return _flops(test) * HALVINGS
        case Scatter(over=over, value=value, combine=combine):
            return (_flops(value) + (0 if combine == "set" else 1)) * product(n for _, n in over)
    return 0


def bytes_moved(x: Graph | Node) -> Extent:
    """Bytes read and written: of a node its operands (only what it loads, where that is surely less) and results; of a
    graph the sum over its nodes, as if each ran alone. Control flow moves what its regions do; a kernel's region moves nothing
    of its own."""
    if isinstance(x, Graph):
        return sum((bytes_moved(n) for n in x.nodes), 0)
    if x.op.name in CONTROL:
        return trips(x) * sum((bytes_moved(r) for r in x.regions), 0)
    written = sum((v.type.size * v.type.dtype.itemsize for v in x.outputs), 0)
    return written + sum((_read(x, k) for k in range(len(x.inputs))), 0)


def _read(node: Node, k: int) -> Extent:
    t = node.inputs[k].type
    expr = None if node.regions else element(node)
    whole = t.size
    if expr is not None and not isinstance(expr, Scatter):
        touched = _loads(expr, k) * node.outputs[0].type.size
        if Facts().prove("<=", touched, whole):
            whole = touched
    return whole * t.dtype.itemsize


def _loads(e: Expr, k: int) -> Extent:
    """How many elements of operand k one evaluation of e loads, at most."""
    match e:
        case Load(array, index):
            return sum((_loads(i, k) for i in index), 1 if array == k else 0)
        case Reduce(over=over, body=body):
            return _loads(body, k) * product(n for _, n in over)
        case Prefix(body=body):
            return _loads(body, k)
        case PartitionPoint(test=test):
            return _loads(test, k) * HALVINGS
        case Apply(args=args):
            return sum((_loads(a, k) for a in args), 0)
        case When(cond, then, other):
            return _loads(cond, k) + _loads(then, k) + _loads(other, k)
    return sum((_loads(v, k) for v in _inside(e)), 0)


def _inside(e: Expr) -> tuple[Expr, ...]:
    index = getattr(e, "index", None)  # Bounded
    return (index,) if isinstance(index, Expr) else ()
