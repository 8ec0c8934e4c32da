"""An operation and every rule the compiler has for it. Engines ask the op; they never ask which op it is.

Guarantees: an op whose result can be floating states either a jvp rule or in which operands it is linear; every
operand it is linear in has a transpose.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.types import ArrayType

if TYPE_CHECKING:
    from loopwright.ir.builder import Builder, Ref
    from loopwright.ir.graph import Graph, Node, Value
    from loopwright.ir.loops import Expr


@dataclass(frozen=True)
class Example:
    """Operand types in IR text plus attributes. Symbols stand for any size; the op tests draw them.

    `draw` makes operand k from (rng, type) where plain normal numbers would not do: indices, positive numbers.
    """

    operands: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    draw: Mapping[int, Callable[[np.random.Generator, ArrayType], np.ndarray]] = field(default_factory=dict)


Flags = Sequence[bool]


class Engine(Protocol):
    """The transforms of whole graphs, as rules of nodes with regions are given them. Flags say which parameters or
    results take part; a result that is asked for and does not is given zeros (a tangent) or repeated (a batch). `axis` is the
    mapped axis that is being batched, where collectives go across it."""

    axis: str | None

    def jvp(self, graph: Graph, active: Flags, wanted: Flags) -> Graph:
        """Parameters, tangents of the active ones -> results, tangents of the wanted ones."""

    def linearize(self, graph: Graph, active: Flags, wanted: Flags, at_hand: Flags, shown: str = "") -> tuple[Graph, Graph]:
        """Parameters -> results, residuals; and residuals, tangents of the active parameters -> tangents of the wanted
        results. The type of a residual holds only sizes that are known around the graph. at_hand: of the parameters, then of
        the results as far as it goes, those that take no memory as residuals; what comes cheaply from them and other residuals
        is computed again. shown: what the user is told keeps the residuals, if they are kept."""

    def transpose(self, graph: Graph, unknown: Flags, arriving: Flags) -> Graph:
        """Parameters that are known, cotangents of the results where they arrive -> cotangents of the unknown parameters."""

    def batch(self, graph: Graph, size: Extent, mapped: Flags, wanted: Flags) -> Graph:
        """The same parameters and results, with one more axis in front of those that are mapped or wanted."""

    def moving(self, graph: Graph, active: Flags) -> list[bool]:
        """Which results may have a tangent."""

    def varying(self, graph: Graph, mapped: Flags) -> list[bool]:
        """Which results depend on a mapped parameter."""


@dataclass(frozen=True, kw_only=True)
class NodeRules:
    """The rules of an op with regions or several results: each over a whole node.

    jvp        (engine, node, primals, tangents) -> (results, their tangents); a tangent of None is zero.
    linearize  (engine, node, primals, tangents, behind) -> the same, with every operation on tangents in the builder `behind`
               and everything else where the primals live.
    transpose  (engine, node, args, cotangents) -> a cotangent or None per operand; an unknown operand is given as its
               ArrayType. Left out where the op is never linear.
    batch      (engine, size, node, args, mapped) -> (results, which of them are mapped).
    reach      (node, flags of operands, through) -> flags of results: what depends on what; `through` answers for a region.
    prune      (node, flags of results) -> a node of those results alone, that does no work for the others; None as it is.
    absorb     (node, producer of each operand) -> nodes that do the same and know more inside their regions, and values that
               some results are; None as it is.
    hoist      (node) -> the work that its regions repeat, as nodes before it, and the node without it; None as it is.
    own_trips  how often its regions run is data.
    """

    jvp: Callable[[Engine, Node, list[Ref], list[Ref | None]], tuple[list[Ref], list[Ref | None]]]
    linearize: Callable[[Engine, Node, list[Ref], list[Ref | None], Builder], tuple[list[Ref], list[Ref | None]]]
    batch: Callable[[Engine, Extent, Node, list[Ref], Flags], tuple[list[Ref], list[bool]]]
    reach: Callable[[Node, Flags, Callable[[Graph, Flags], list[bool]]], list[bool]]
    transpose: Callable[[Engine, Node, list[Ref | ArrayType], list[Ref | None]], list[Ref | None]] | None = None
    prune: Callable[[Node, Flags], Node | None] | None = None
    absorb: Callable[[Node, Callable[[Value], Node | None]], tuple[list[Node], dict[Value, Value]] | None] | None = None
    hoist: Callable[[Node], list[Node] | None] | None = None
    own_trips: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Op:
    """One operation.

    shape, dtype   (*operand types, **attrs) -> the result's. Operand shapes and dtypes must already fit: broadcasting
                   and promotion are the tracer's. They raise ShapeError or DTypeError.
    numpy          (*arrays, **attrs with integer sizes) -> array: the meaning.
    batch          (size, args, mapped, **attrs) -> Ref: args with mapped[k] have one more axis in front; so has the result.
    jvp            (primals, tangents, out, **attrs) -> tangent or None; a tangent of None is zero. Left out for linear ops.
    linear         the operands it is linear in; `jointly` says over all of them together (add): elements of the result and of
                   transposes are sums of elements, so that masks move through them; else each with the
                   others held (mul). An op may be linear in some operands and have a jvp rule as well (div).
    transpose      per linear operand k: (ct, *args, **attrs) -> cotangent; where args[i] is itself unknown (k always;
                   for a jointly linear op every linear operand) it is given as its ArrayType, else as a Ref.
    loop           (context, index, **attrs) -> Expr for the result's element at index; None for library calls.
    infer          for ops with regions or several results: (types, regions, **attrs) -> result types, in place of
                   shape and dtype. Its numpy takes regions= and sizes= where it has regions, and gives a tuple.
    rules          for those ops: jvp, linearize, transpose and batch over a whole node, in place of the rules above.
    binds          the attribute whose symbol is the number that operand 0 is, from this node on.
    expand         (node) -> the graph that stands for it where no derivative is taken any more, on the same operands.
    apart          that graph is there to be computed again: nothing in it is shared with equal nodes around it.
    effect         it does more than give results: each node is kept, runs once, and keeps its place among its like.
    python         (node) -> a name, and the Python function that it calls on its operands, also from compiled code.
    foreign        that function is the user's: what it raises is passed on as it is.
    across         the attribute that names the mapped axis whose elements it brings together: batching that axis removes it.
    alike          whether all of those elements then have the same result.
    """

    name: str
    doc: str
    shape: Callable[..., Shape] | None = None
    dtype: Callable[..., np.dtype] | None = None
    numpy: Callable[..., Any]
    batch: Callable[..., Ref] | None = None
    loop: Callable[..., Expr] | None = None
    jvp: Callable[..., Ref | None] | None = None
    linear: tuple[int, ...] = ()
    jointly: bool = False
    transpose: Mapping[int, Callable[..., Ref]] = field(default_factory=dict)
    infer: Callable[..., tuple[ArrayType, ...]] | None = None
    examples: tuple[Example, ...] = ()
    rules: NodeRules | None = None
    binds: str | None = None
    expand: Callable[[Node], Graph] | None = None
    apart: bool = False
    effect: bool = False
    python: Callable[[Node], tuple[str, Callable[..., Any]]] | None = None
    foreign: bool = False
    across: str | None = None
    alike: bool = False
    _known: dict[tuple[Any, ...], tuple[ArrayType, ...]] = field(  # result types where there is no region; a bounded memory
        default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.infer is None) == (self.shape is None or self.dtype is None):
            raise ValueError(f"op {self.name}: declare shape= and dtype=, or infer=")
        if set(self.linear) != set(self.transpose):
            raise ValueError(f"op {self.name}: every operand in linear=, and no other, has a transpose=")

    def result_types(self, types: Sequence[ArrayType], regions: tuple[Graph, ...],
                     attrs: Mapping[str, Any]) -> tuple[ArrayType, ...]:
        """The types of the results."""
        if regions:
            return self._infer(types, regions, attrs)
        key = (*types, *attrs.items()) if attrs else tuple(types)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= 1024:
                self._known.clear()
            known = self._known[key] = self._infer(types, regions, attrs)
        return known

    def _infer(self, types: Sequence[ArrayType], regions: tuple[Graph, ...],
               attrs: Mapping[str, Any]) -> tuple[ArrayType, ...]:
        if self.infer is not None:
            return self.infer(types, regions, **attrs)
        assert self.shape is not None and self.dtype is not None
        shape, dtype, is_weak = self.shape(*types, **attrs), self.dtype(*types, **attrs), bool(attrs.get("weak", False))
        if types and (t := types[0]).shape is shape and t.dtype is dtype and t.weak is is_weak:
            return (t,)  # one object for each type: comparing it with itself takes no time
        return (ArrayType(shape, dtype, is_weak),)

    def __call__(self, *args: Ref, into: Builder | None = None, **attrs: Any) -> Ref:
        """Emit a node where the operands live (the newest builder among them, or `into`) and return its result."""
        return home(args, into).bind_all(self, args, attrs)[0]

    def all(self, *args: Ref, into: Builder | None = None, regions: tuple[Graph, ...] = (), **attrs: Any) -> list[Ref]:
        """Emit a node with regions or several results where the operands live, or in `into` if that is newer."""
        return home(args, into).bind_all(self, args, attrs, regions)

    def __repr__(self) -> str:
        return self.name


def home(args: Sequence[Ref], into: Builder | None = None) -> Builder:
    """The newest builder among operands, or `into` if that is newer."""
    for a in args:
        builder = a.builder
        if into is None or (builder is not into and builder.serial > into.serial):
            into = builder
    if into is None:
        raise ValueError("an op without operands needs into=")
    return into


