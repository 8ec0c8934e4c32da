"""Builders: graphs under construction, and where an operation goes.

There is no stack of interpreters. A `Ref` names a value of one `Builder`; builders carry serial numbers, and a newer
live builder is nested in every older one. An op goes to the newest builder among its operands; operands of older
builders are captured as inputs of the finished graph. So a transform is a walk that emits where its arguments live, and
transforms compose in any order. The *floor* is the innermost builder that must hold everything run inside it (a `jit`
trace). Concrete values are computed on demand, so a trace that asks for none depends on none.
"""
from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopwright.ir.attributes import extents_in, map_extents
from loopwright.ir.dims import Dim, Extent, Shape, symbol, symbols_in
from loopwright.ir.errors import LeakedValueError
from loopwright.ir.graph import Graph, Node, Value, binding, renewed, settle, silent, substitute_graph, symbols_of
from loopwright.ir.guards import Scope
from loopwright.ir.op import Op, home
from loopwright.ir.source import Source, user_source
from loopwright.ir.types import SIZELESS, ArrayType, native

_serial = itertools.count(1)


class _State(threading.local):
    floor: Builder | None = None
    innermost: Builder | None = None
    sealed: Builder | None = None
    source: Source | None = None
    pull: int = 0


_state = _State()
running: list[int] = []  # the thread of every trace that runs now, on any thread: compiled calls look whether it is empty


def _forget_other_threads() -> None:
    running[:] = [thread for thread in running if thread == threading.get_ident()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


@contextmanager
def attributed() -> Iterator[Callable[[Source | None], None]]:
    """Inside, the function it gives names the user's line of what is emitted next: walks pass each node's own."""
    before, pull = _state.source, _state.pull

    def attribute(source: Source | None) -> None:
        _state.source = source.in_pull(pull) if pull and source is not None else source

    try:
        yield attribute
    finally:
        _state.source = before


@contextmanager
def pulling() -> Iterator[None]:
    """Inside, what is emitted is marked as part of one walk of cotangents back through a program."""
    before = _state.pull
    _state.pull = next(_serial)
    try:
        yield
    finally:
        _state.pull = before


def source_here(own: int = 1) -> Source:
    """The user's line of what is emitted now. `own`: how many frames from here are known to be inside loopwright."""
    source, pull = _state.source or user_source(own + 1), _state.pull
    return source.in_pull(pull) if pull and pull != source.pull else source


def innermost() -> Builder | None:
    """The builder of the innermost trace that is running on this thread, or None outside every trace."""
    return _state.innermost


def is_sealed() -> bool:
    """Whether this thread is inside a trace whose graph will be compiled."""
    return _state.sealed is not None


class Ref:
    """One value of one builder: what rules and engines compute with."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder, self.value = builder, value

    @property
    def type(self) -> ArrayType:
        """The value's type under the equalities of sizes known so far."""
        facts = self.builder.scope.facts
        return self.value.type if self.builder.since == facts.changes else facts.canonical_type(self.value.type)

    @property
    def shape(self) -> Shape:
        facts, type = self.builder.scope.facts, self.value.type
        return type.shape if self.builder.since == facts.changes else facts.canonical_type(type).shape

    @property
    def rank(self) -> int:
        return len(self.value.type.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.value.type.dtype


class Builder:
    """A graph under construction. `why` says whose trace it is, for messages ("jit of f")."""

    def __init__(self, scope: Scope | None = None, why: str = "") -> None:
        outer = _state.innermost
        self.serial, self.alive, self.why = next(_serial), True, why
        self.scope: Scope = scope or (outer.scope if outer else Scope())
        self.since = self.seen = self.scope.facts.changes  # while sizes have not changed since, all types here are canonical
        self.settled = 0  # nodes from here on have canonical types and attributes, if sizes are as they were `seen`
        self.params: list[Value] = []
        self.nodes: list[Node] = []
        self.captures: dict[Any, tuple[Ref | np.ndarray, Value]] = {}  # outer value or array id -> what it is, our parameter
        self.known: dict[Value, Any] = {}  # concrete arrays; those of captured values are asked for when needed
        self.stands_for: dict[Value, Ref] = {}  # parameter -> the outer value that it is in this call, asked when needed
        self.producer: dict[Value, Node] = {}
        self.demanded = False  # a concrete value steered Python, so the trace holds for these values only

    def param(self, type: ArrayType, concrete: Any = None) -> Ref:
        """A new parameter; `concrete` is its array where Python may ask for it, or the outer value to ask in turn."""
        self.params.append(v := Value(self.scope.facts.canonical_type(type)))
        if isinstance(concrete, Ref):
            self.stands_for[v] = concrete
        elif concrete is not None:
            self.known[v] = concrete
        return Ref(self, v)

    def bind_all(self, op: Op, args: Sequence[Ref | np.ndarray], attrs: Mapping[str, Any],
                 regions: tuple[Graph, ...] = ()) -> list[Ref]:
        """Emit here, or on the floor where that is newer."""
        floor = _state.floor
        target = floor if floor is not None and floor.serial > self.serial else self
        if self.scope.counts:
            target = self._where_counted(target, attrs, regions)
        if not target.alive:
            raise target.leaked()
        inputs = tuple([a.value if type(a) is Ref and a.builder is target else target.lift(a) for a in args])
        facts = target.scope.facts
        if facts.equal or facts.divides:
            if target.since != facts.changes:
                target._meet_changes()
            if attrs:
                attrs = {k: a if type(a) in SIZELESS else facts.canonical_attribute(a) for k, a in attrs.items()}
        types = [v.type for v in inputs]
        if target.since != facts.changes:
            types = list(map(facts.canonical_type, types))
        results: Iterable[ArrayType] = op.result_types(types, regions, attrs)
        if regions or facts.calls or facts.divides:  # regions may be older than what is known of sizes; rules make new ones
            results = map(facts.canonical_type, results)
        outputs = tuple(map(Value, results))
        node = Node(op, inputs, attrs, outputs, regions, source_here(2))  # our caller is loopwright's too
        target.nodes.append(node)
        for v in outputs:
            target.producer[v] = node
        if op.binds is not None:
            target.scope.counts.update((s, Ref(target, inputs[0])) for s in binding(node))
        return [Ref(target, v) for v in outputs]

    def _where_counted(self, target: Builder, attrs: Mapping[str, Any], regions: tuple[Graph, ...]) -> Builder:
        """target, or the newer builder in which a symbol is bound that the op uses: it cannot go further out."""
        symbols = {s for a in attrs.values() for x in extents_in(a) for s in symbols_in(x)}
        symbols.update(*(g.free_symbols for g in regions))
        for s in symbols & self.scope.counts.keys():
            builder = self.scope.counts[s].builder
            if builder.alive and builder.serial > target.serial:
                target = builder
        return target

    def leaked(self) -> LeakedValueError:
        return LeakedValueError(
            f"{user_source()}: a value traced inside {self.why or 'a transform'} was used after that trace ended. "
            f"Return it from the traced function instead of storing it outside.")

    def lift(self, x: Ref | np.ndarray) -> Value:
        """x as one of our values: ours already, an outer one captured, or an array held by reference."""
        if isinstance(x, Ref):
            if x.builder is self:
                return x.value
            if not x.builder.alive:
                raise x.builder.leaked()
            assert x.builder.serial < self.serial, "a value of an inner trace reached an outer one"
            key: Any = x.value
        else:
            key = id(x)
        held = self.captures.get(key)
        if held is None:
            type = x.type if isinstance(x, Ref) else ArrayType(x.shape, native(x.dtype))
            held = self.captures[key] = (x, Value(type))
        return held[1]

    def capture(self, array: np.ndarray) -> Ref:
        """An array that is no argument: a hidden parameter, held by reference."""
        return Ref(self, self.lift(array))

    def _meet_changes(self) -> None:
        """Notice that sizes got other canonical forms. Nodes from now on are made of those; the others follow when as many have
        been made since, so that it takes no more time than making nodes does."""
        changes = self.scope.facts.changes
        if self.seen != changes:
            self.seen, self.settled = changes, len(self.nodes)
        elif len(self.nodes) > 2 * self.settled + len(self.params) + len(self.captures):
            self._settle(self.settled)
            self.since = changes

    def _settle(self, count: int) -> None:
        """Give parameters and the first nodes, `count` of them, the canonical forms of sizes."""
        facts = self.scope.facts
        to = {k: facts.canonical(x) for k, x in facts.equal.items()}
        found = settle((*self.params, *[v for _, v in self.captures.values()]), self.nodes[:count], to)
        for k, n in enumerate(found):
            if n is not self.nodes[k]:
                self.nodes[k] = n
                self.producer.update(dict.fromkeys(n.outputs, n))

    def concrete(self, v: Value) -> Any:
        """The array v stands for in this call, or None. Runs only what v needs, with an explicit stack for long chains.
        Every builder asked on the way remembers that its trace depends on numbers. Inside a sealed trace nothing from
        outside it has a value: neither outer traces nor captured arrays, whose contents may change; and what is computed of
        sizes fixes these, for it serves other calls."""
        sealed = _state.sealed
        if sealed is not None and self.serial < sealed.serial:
            return None
        self.demanded = True
        captured = {**self.stands_for, **{inner: outer for outer, inner in self.captures.values()}}
        todo = [v]
        while todo:
            top = todo[-1]
            if top in self.known:
                todo.pop()
            elif top in captured:
                outer = captured[top]
                value = outer.builder.concrete(outer.value) if isinstance(outer, Ref) else None if sealed is not None else outer
                if value is None:
                    return None
                self.known[top] = value
            elif (node := self.producer.get(top)) is None:
                return None
            elif missing := [i for i in node.inputs if i not in self.known]:
                todo.extend(missing)
            else:
                self._run(node)
        return self.known[v]

    def is_of_sizes(self, v: Value) -> bool:
        """Whether v is computed of sizes and numbers of the program alone, so that nothing has a derivative through it."""
        seen, todo = {v}, [v]
        while todo:
            node = self.producer.get(todo.pop())
            if node is None:
                return False
            todo += [x for x in dict.fromkeys(node.inputs) if x not in seen]
            seen.update(node.inputs)
        return True

    def _run(self, node: Node) -> None:
        inputs = [self.known[i] for i in node.inputs]
        self._count(node)
        number = self.scope.hint if _state.sealed is None else self.scope.value
        attrs = {k: _sizes(a, self.scope, number) for k, a in node.attrs.items()}
        if node.regions:
            for s in symbols_of(node):
                number(symbol(s))
            attrs |= {"regions": tuple(map(silent, node.regions)), "sizes": self.scope.hints}  # it will run in full later
        with np.errstate(all="ignore"):
            out = node.op.numpy(*inputs, **attrs)
        outs = out if isinstance(out, tuple) else (out,)
        self.known.update(zip(node.outputs, outs, strict=True))

    def _count(self, node: Node) -> None:
        """Make the numbers known that the symbols of a node are in this call, where nodes bind those."""
        for s in symbols_of(node) & self.scope.counts.keys() - self.scope.hints.keys() if self.scope.counts else ():
            count = self.scope.counts[s]
            self.scope.hints[s] = int(count.builder.concrete(count.value))

    def finish(self, results: Sequence[Ref | np.ndarray]) -> tuple[Graph, list[Ref | np.ndarray]]:
        """The closed graph, captures as trailing parameters, and the outer values to pass for them."""
        values = tuple([self.lift(r) for r in results])
        self.alive = False
        outer = [x for x, _ in self.captures.values()]
        facts = self.scope.facts
        if facts.equal or facts.divides:
            if self.seen != facts.changes or any(n.regions for n in self.nodes[self.settled:]):  # regions may be older
                self._settle(len(self.nodes))
            elif self.since != facts.changes:
                self._settle(self.settled)
        params = (*self.params, *[v for _, v in self.captures.values()])
        return Graph(params, tuple(self.nodes), values, self.scope.constraints()), outer


def _sizes(a: Any, scope: Scope, number: Callable[[Extent], int]) -> Any:
    if isinstance(a, Dim):
        return number(scope.canonical(a))
    return tuple([_sizes(x, scope, number) for x in a]) if isinstance(a, tuple) else a


def inline(g: Graph, args: Sequence[Ref | np.ndarray], into: Builder, sizes: Mapping[str, Extent] | None = None) -> list[Ref]:
    """Emit g's nodes on args. Nodes without operands go to `into`, or to the newest builder among args if that is newer.
    Symbols that g binds get new names."""
    g = renewed(g)
    for a in args:
        if isinstance(a, Ref) and a.builder.serial > into.serial:
            into = a.builder
    env: dict[Value, Ref] = {v: a if isinstance(a, Ref) else into.capture(a) for v, a in zip(g.params, args, strict=True)}
    with attributed() as attribute:
        for n in g.nodes:
            attribute(n.source)
            attrs = {k: map_extents(a, sizes) for k, a in n.attrs.items()} if sizes else n.attrs
            regions = tuple(substitute_graph(r, sizes) for r in n.regions) if sizes else n.regions
            inputs = [env[v] for v in n.inputs]
            target = home(inputs) if inputs else into
            env.update(zip(n.outputs, target.bind_all(n.op, inputs, attrs, regions), strict=True))
    return [env[v] for v in g.results]


@contextmanager
def tracing(builder: Builder, is_floor: bool = False, is_sealed: bool = False) -> Iterator[Builder]:
    """Make `builder` the innermost trace of this thread; `is_floor` keeps every op run inside in it, and `is_sealed` hides
    the concrete values of everything outside: the graph will be compiled for other values too."""
    before = _state.innermost, _state.floor, _state.sealed
    _state.innermost = builder
    thread = threading.get_ident()
    running.append(thread)
    if is_sealed:
        _state.sealed = builder
    if is_floor:
        _state.floor = builder
    try:
        yield builder
    finally:
        running.remove(thread)
        _state.innermost, _state.floor, _state.sealed = before
        builder.alive = False  # also when the function raised: its values must not look usable


def build(rule: Callable[..., Sequence[Ref]], types: Sequence[ArrayType], scope: Scope | None = None) -> Graph:
    """A closed graph from a Python rule over refs: how every Graph -> Graph engine makes its result."""
    builder = Builder(scope or Scope(), "a transform")
    with tracing(builder, is_floor=True):
        g, outer = builder.finish(rule(*[builder.param(t) for t in types]))
    assert not outer, "a Graph -> Graph rule captured an outer value"
    return g
