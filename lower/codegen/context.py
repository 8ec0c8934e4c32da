"""Where an expression is evaluated: the open scope, the values that names have there, and the lanes.

A `Value` holds one register per unrolled copy (`parts`), each of `lanes` elements. A value that is the same for all
lanes and copies is kept as one scalar and broadcast where it meets a vector.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Call, Extent, Symbol, terms_of
from loopwright.ir.loops import Index
from loopwright.ir.nest import Buffer, Store, altered
from loopwright.ir.types import I64
from loopwright.lower.codegen.arithmetic import Lanes
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.machine import any_lane, register_type, vector_type
from loopwright.lower.codegen.terms import Linear, Term, Terms
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, deepest
from loopwright.lower.target import Target


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """Registers of one dtype; `scope` is where they are defined."""

    parts: tuple[str, ...]
    dtype: np.dtype
    lanes: int
    scope: Scope

    @property
    def varies(self) -> bool:
        return self.lanes > 1 or len(self.parts) > 1

    @property
    def kind(self) -> str:
        return vector_type(register_type(self.dtype), self.lanes)


@dataclass(frozen=True, eq=False)
class Mask:
    """The active lanes; `outer` is the mask that this one narrows; `whole`: a register that says whether all are active, where
    they mostly are; `count`: one that says how many are, where these are the first ones, but not all, of one vector."""

    value: Value
    outer: Mask | None
    whole: str = ""
    count: str = ""


@dataclass(eq=False)
class Kernel:
    """What all contexts of one function share. `versions` counts the writes to each buffer and each naming of a local, and
    `loops` the loops that began or ended; `offsets` are those of places in buffers."""

    name: str
    function: Function
    terms: Terms
    target: Target
    flags: str
    buffers: dict[str, Buffer]
    symbols: dict[str, str]
    pointers: dict[str, str]
    evaluator: Callable[[Context, Term], Value]
    store: Callable[[Context, Store], None]
    maths_apart: bool  # whether it calls its formulas, or has them in its own text
    versions: dict[str, int] = field(default_factory=dict)
    loops: int = 0
    offsets: dict[tuple[int, tuple[Term, ...]], tuple[Buffer, Linear]] = field(default_factory=dict)  # kept: ids stay taken

    @property
    def root(self) -> Scope:
        return self.function.root

    def wrote(self, name: str) -> None:
        """Values read from this buffer before are out of date."""
        self.versions[name] = self.versions.get(name, 0) + 1

    def forget(self) -> None:
        """A loop begins: what it stores may be read by its next iteration."""
        self.loops += 1

    def state(self, names: frozenset[str]) -> tuple[int, ...]:
        """What tells values of these buffers and locals apart from those that they had before."""
        if not names:
            return ()
        versions, buffers = self.versions, self.buffers
        state = [versions.get(name, 0) for name in sorted(names)]
        if any(name in buffers and buffers[name].role != "input" for name in names):
            state.append(self.loops)
        return tuple(state)

    def extent(self, x: Extent) -> str:
        """A size as an i64, computed once at the top of the function."""
        if isinstance(x, int):
            return str(x)
        found: str | None = self.root.values.get(x)
        if found is None:
            found = self.root.values[x] = self._extent(x)
        return found

    def _extent(self, x: Extent) -> str:
        total = ""
        for atoms, coefficient in terms_of(x):
            factors = [self._atom(a) for a in atoms]
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            product = factors[0]
            for factor in factors[1:]:
                product = self._once(f"mul nsw i64 {product}, {factor}")
            total = self._once(f"add nsw i64 {total}, {product}") if total else product
        return total

    def _atom(self, atom: Symbol | Call) -> str:
        if isinstance(atom, Symbol):
            return self.symbols[atom.name]
        found: str | None = self.root.values.get(atom)
        if found is None:
            a, b = (self.extent(x) for x in atom.args)
            found = self.root.values[atom] = floor_divide(self.root, a, b) if atom.fn == "floordiv" else \
                self.root.call("i64", f"llvm.s{atom.fn}.i64", [("i64", a), ("i64", b)])
        return found

    def _once(self, instruction: str) -> str:
        """The instruction at the top of the function, where it stands once."""
        found: str | None = self.root.values.get(instruction)
        if found is None:
            found = self.root.values[instruction] = self.root.emit(instruction)
        return found


def floor_divide(scope: Scope, a: str, b: str) -> str:
    """floor(a / b) of i64; 0 for b = 0."""
    if b.isdigit() and (size := int(b)) & (size - 1) == 0:
        return scope.emit(f"ashr i64 {a}, {size.bit_length() - 1}") if size else "0"
    none = scope.emit(f"icmp eq i64 {b}, 0")
    safe = scope.emit(f"select i1 {none}, i64 1, i64 {b}")
    quotient, rest = scope.emit(f"sdiv i64 {a}, {safe}"), scope.emit(f"srem i64 {a}, {safe}")
    crosses = scope.emit(f"icmp slt i64 {scope.emit(f'xor i64 {rest}, {safe}')}, 0")
    inexact = scope.emit(f"icmp ne i64 {rest}, 0")
    step = scope.emit(f"sext i1 {scope.emit(f'and i1 {crosses}, {inexact}')} to i64")
    floor = scope.emit(f"add i64 {quotient}, {step}")
    return scope.emit(f"select i1 {none}, i64 0, i64 {floor}")


@dataclass(frozen=True)
class Owned:
    """Of the updates of a loop, those of the rows that a thread owns, see `owners.py`: of so many numbers from the first on,
    each of which `1 << shift` rows side by side have."""

    loop: Index
    first: str
    count: str
    shift: str


@dataclass(frozen=True, eq=False)
class Context:
    """`vector` is the index that runs over the lanes; its binding is the index of lane 0 of part 0. padded: what is stored is
    stored in all lanes, active or not. streamed: the buffers whose whole vectors are stored past the caches. filled: sizes
    that are not 0. owned: the updates to be done, if not all are. part: of that loop
    what is to be done."""

    kernel: Kernel
    scope: Scope
    bindings: dict[str, Value]
    lanes: int = 1
    parts: int = 1
    vector: str | None = None
    mask: Mask | None = None
    padded: bool = False
    streamed: frozenset[str] = frozenset()
    filled: frozenset[Extent] = frozenset()
    owned: Owned | None = None
    part: tuple[Index, tuple[str, str]] | None = None

    def evaluate(self, term: Term) -> Value:
        """The term's value here."""
        return self.kernel.evaluator(self, term)

    def at(self, scope: Scope) -> Context:
        return altered(self, scope=scope)

    def bind(self, name: str, value: Value) -> Context:
        return altered(self, bindings={**self.bindings, name: value})

    def bind_index(self, name: str, register: str, scope: Scope) -> Context:
        """Inside a loop: its scope, and the loop's index there."""
        return altered(self, scope=scope, bindings={**self.bindings, name: Value((register,), I64, 1, scope)})

    def scalar(self) -> Context:
        """The same place without lanes. The caller knows that at least one lane is active."""
        return altered(self, lanes=1, parts=1, vector=None, mask=None)

    def varies(self, term: Term) -> bool:
        """Whether the term differs between lanes or parts."""
        vector, bindings = self.vector, self.bindings
        return vector in term.free or any(bindings[name].varies for name in term.free)

    def depth(self, term: Term) -> int:
        """The depth of the innermost scope that defines something the term needs."""
        depths = [self.bindings[name].scope.depth for name in term.free]
        if self.mask is not None and self.varies(term):
            depths.append(self.mask.value.scope.depth)
        return max(depths, default=0)

    def writer(self, dtype: np.dtype, scope: Scope, lanes: int | None = None) -> Lanes:
        return Lanes(scope, dtype, self.lanes if lanes is None else lanes, self.kernel.target, self.kernel.flags)

    def spread(self, value: Value) -> tuple[str, ...]:
        """The value as one full vector per part."""
        if len(value.parts) == self.parts and value.lanes == self.lanes:
            return value.parts
        assert not value.varies, "a value of other lanes than its context"
        return (splat(value, self.lanes),) * self.parts

    def active(self) -> tuple[str, ...] | None:
        """The mask as one register per part, or None when all lanes are active."""
        return None if self.mask is None else self.spread(self.mask.value)

    def index_vector(self, name: str) -> Value:
        """The vector index as numbers: base + 0, 1, 2, ..."""
        base = self.bindings[name]
        key = ("lanes of", name, self.lanes, self.parts)
        found = base.scope.values.get(key)
        if found is None:
            found = base.scope.values[key] = self._index_vector(base)
        assert isinstance(found, Value)
        return found

    def _index_vector(self, base: Value) -> Value:
        scope = base.scope
        start = splat(base, self.lanes)
        kind = vector_type("i64", self.lanes)
        parts = [scope.emit(f"add nsw {kind} {start}, {counting(part * self.lanes, self.lanes)}") for part in range(self.parts)]
        return Value(tuple(parts), I64, self.lanes, scope)


def counting(first: int, lanes: int, element: str = "i64") -> str:
    """The constant first, first + 1, ..."""
    if lanes == 1:
        return str(first)
    return f"<{', '.join(f'{element} {first + lane}' for lane in range(lanes))}>"


def splat(value: Value, lanes: int) -> str:
    """A scalar in every lane, made once where the scalar is."""
    register = value.parts[0]
    if lanes == 1:
        return register
    if not register.startswith("%"):
        return f"splat ({value.kind} {register})"
    return splat_register(value.scope, value.kind, register, lanes)


def splat_register(scope: Scope, element: str, register: str, lanes: int) -> str:
    """The same for a bare register of `scope`."""
    if lanes == 1:
        return register
    key = ("splat", register, lanes)
    if key not in scope.values:
        kind = vector_type(element, lanes)
        one = scope.emit(f"insertelement {kind} poison, {element} {register}, i32 0")
        scope.values[key] = scope.emit(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
    return str(scope.values[key])


def literal(kernel: Kernel, value: complex | float | int | bool, dtype: np.dtype) -> Value:
    """A constant. It is scalar; its text serves in any scope."""
    exact = np.asarray(value).astype(dtype)
    number = float(exact) if register_type(dtype) in ("float", "double") else int(exact)
    return Value((constant_text(number, register_type(dtype), 1),), dtype, 1, kernel.root)


def any_part(scope: Scope, masks: tuple[str, ...], lanes: int) -> str:
    """Whether any lane of any part is set."""
    total = masks[0]
    for mask in masks[1:]:
        total = scope.emit(f"or {vector_type('i1', lanes)} {total}, {mask}")
    return any_lane(scope, total, lanes)


def place_of(first: Value, *rest: Value) -> Scope:
    """The innermost scope that defines one of the values."""
    return deepest(first.scope, *(v.scope for v in rest))


def active_only(context: Context, scope: Scope, masks: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the lanes that are active."""
    active = context.active()
    if active is None:
        return masks
    kind = vector_type("i1", context.lanes)
    return tuple(scope.emit(f"and {kind} {m}, {a}") for m, a in zip(masks, active, strict=True))


# Of several threads one stores its offence, whole.


def raise_where(context: Context, scope: Scope, bad: tuple[str, ...], lanes: int, index: tuple[str, ...] | None,
                numbers: tuple[str, str, str]) -> None:
    """Report (site + 1, index of the first bad lane, axis, size) if any lane is bad; code for it stands apart."""
    site, axis, size = numbers

    def report_part(inner: Scope, part: int) -> Carried:
        at = "0" if index is None else index[part]
        if lanes > 1 and index is not None:
            at = _first_lane(inner, bad[part], index[part], lanes)
        inner.run("lw_report", [("ptr", "%error"), ("i64", site), ("i64", at), ("i64", axis), ("i64", size)])
        return ()

    def report(inner: Scope) -> Carried:
        if len(bad) == 1:
            return report_part(inner, 0)
        for part in range(len(bad)):  # the first report stays, so parts go in loop order
            branch(inner, any_lane(inner, bad[part], lanes), partial(report_part, part=part))
        return ()
    branch(scope, any_part(scope, bad, lanes), report, rare=True)


def _first_lane(scope: Scope, mask: str, values: str, lanes: int) -> str:
    """The i64 in the first lane that is set."""
    bits = f"i{lanes}"
    mask = scope.emit(f"bitcast <{lanes} x i1> {mask} to {bits}")
    lane = scope.call(bits, f"llvm.cttz.{bits}", [(bits, mask), ("i1", "false")])
    if lanes != 32:
        lane = scope.emit(f"{'zext' if lanes < 32 else 'trunc'} {bits} {lane} to i32")
    return scope.emit(f"extractelement <{lanes} x i64> {values}, i32 {lane}")
