"""Folds that one thread does alone, and what a fold's state is.

Guarantees: sums of floats keep what each addition rounds away (Knuth's two-sum), but for a few terms in registers, so they err
by less than pairwise sums;
max and min propagate NaN; argmax and argmin give the first extreme, or the first NaN.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.loops import PartitionPoint, Prefix, Reduce
from loopwright.ir.monoids import COMBINING, identity
from loopwright.ir.types import BOOL, F32, F64, I64, U8, is_float
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.text import HALF, Block, literal, register_type

NOWHERE = "0x7fffffffffffffffll"  # behind all positions
Evaluate = Callable[[Context, Term], str]
ADD_EXACTLY = """__device__ __forceinline__ void lw_add(T& sum, T& lost, T x) {
    const T next = sum + x;
    const T part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ T lw_added(T sum, T lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }"""


@dataclass(frozen=True)
class Fold:
    """One fold: a value, and beside it what rounding took away (`keeps`) or a position."""

    monoid: str
    dtype: np.dtype
    body: np.dtype
    library: Library
    running: bool = False

    @property
    def positions(self) -> bool:
        return self.monoid in ("argmax", "argmin")

    @property
    def work(self) -> np.dtype:
        """The dtype that it computes with."""
        wanted = self.body if self.positions else self.dtype
        if wanted == BOOL and self.monoid in ("sum", "prod"):
            wanted = U8
        return F32 if wanted in HALF else wanted

    @property
    def keeps(self) -> bool:
        return self.monoid == "sum" and is_float(self.work)

    @property
    def kind(self) -> str:
        return register_type(self.work)

    @property
    def components(self) -> tuple[np.dtype, ...]:
        """The dtypes of what stands for it between threads."""
        return (self.work, I64) if self.positions else (self.work,)

    @property
    def identity(self) -> float | int | bool:
        """What leaves any other number as it is; a sum of no numbers is 0.0, which makes 0.0 of -0.0, but for a running one."""
        return -0.0 if self.running and self.keeps else identity(self.monoid, self.work)

    def zero(self) -> tuple[str, ...]:
        """The identity; positions start behind all others."""
        value = literal(self.identity, self.work)
        return (value, NOWHERE) if self.positions else (value,)

    def declare(self, block: Block, slots: int) -> list[str]:
        """A state of so many accumulators: arrays, by component."""
        second = ["long long"] if self.positions else [self.kind] if self.keeps else []
        zeros = [*self.zero(), *([literal(0, self.work)] if self.keeps else [])]
        names = []
        for kind, zero in zip([self.kind, *second], zeros, strict=True):
            name = block.fresh("acc")
            names.append(name)
            block.line(f"{kind} {name}[{slots}] = {{{', '.join([zero] * slots)}}};")
        return names

    def step(self, block: Block, state: Sequence[str], slot: str, x: str, position: str, *, plainly: bool = False) -> None:
        """Take one more element into an accumulator. `plainly`: a sum loses what rounding takes."""
        first = f"{state[0]}[{slot}]"
        if self.keeps and not plainly:
            self._exactly()
            block.line(f"lw_add({first}, {state[1]}[{slot}], {x});")
        elif self.positions:  # which grow from element to element
            at, order = f"{state[1]}[{slot}]", "<=" if self.monoid == "argmax" else ">="
            beyond = f"!({x} {order} {first})" + (f" & ({first} == {first})" if is_float(self.work) else "")
            take = block.let("bool", f"({beyond}) | ({at} == {NOWHERE})", "take")
            block.line(f"{first} = {take} ? {x} : {first};")
            block.line(f"{at} = {take} ? {position} : {at};")
        else:
            block.line(f"{first} = {self.combined(first, x)};")

    def _exactly(self) -> None:
        name = "double" if self.work == F64 else "float"
        self.library.add(f"lw_add_{name}", ADD_EXACTLY.replace("T", name))

    def combined(self, a: str, b: str) -> str:
        return arithmetic.applied(self.library, COMBINING[self.monoid], self.work, [a, b])

    def merge_into(self, block: Block, a: tuple[str, ...], b: tuple[str, ...]) -> None:
        """a = a and b, variables of two states."""
        if not self.positions:
            block.line(f"{a[0]} = {self.combined(a[0], b[0])};")
            return
        beyond = ">" if self.monoid == "argmax" else "<"
        (x, i), (y, j) = a, b
        if is_float(self.work):
            take = f"{x} == {x} ? {y} {beyond} {x} || {y} != {y} || ({y} == {x} && {j} < {i}) : {y} != {y} && {j} < {i}"
        else:
            take = f"{y} {beyond} {x} || ({y} == {x} && {j} < {i})"
        with block.inner(f"if ({take})") as inside:
            inside.line(f"{x} = {y};")
            inside.line(f"{i} = {j};")

    def held(self, state: Sequence[str], slot: str) -> tuple[str, ...]:
        """What one accumulator holds."""
        if self.keeps:
            return (f"lw_added({state[0]}[{slot}], {state[1]}[{slot}])",)
        return tuple([f"{name}[{slot}]" for name in state])

    def joined(self, block: Block, state: Sequence[str], slots: int) -> tuple[str, ...]:
        """All accumulators as one: variables."""
        if self.keeps:
            total = block.variable(self.kind, f"lw_added({state[0]}[0], {state[1]}[0])", "all")
            for k in range(1, slots):
                block.line(f"{total} = {total} + lw_added({state[0]}[{k}], {state[1]}[{k}]);")
            return (total,)
        kinds = [self.kind, "long long"]
        found = tuple([block.variable(kind, f"{name}[0]", "all") for kind, name in zip(kinds, state, strict=False)])
        for k in range(1, slots):
            self.merge_into(block, found, tuple([f"{name}[{k}]" for name in state]))
        return found

    def result(self, block: Block, found: tuple[str, ...]) -> str:
        """What the fold is, at its dtype."""
        if self.positions:
            return found[1]
        text = arithmetic.rounded(self.library, found[0], self.dtype) if self.dtype in HALF else \
            arithmetic.convert(self.library, found[0], self.work, self.dtype)
        return block.let(register_type(self.dtype), text)


def element(context: Context, fold: Fold, body: Term, evaluate: Evaluate) -> str:
    """The body here, at the dtype that the fold computes with."""
    x = evaluate(context, body)
    text = arithmetic.convert(fold.library, x, body.dtype, fold.work)
    return x if text == x else context.block.let(fold.kind, text)


# ---- expressions --------------------------------------------------------------------------------
def fold(context: Context, e: Reduce, evaluate: Evaluate) -> str:
    """A reduction inside an expression."""
    made = Fold(e.monoid, e.dtype, e.body.dtype, context.launch.library)
    state = made.declare(context.block, 1)
    body = context.launch.terms.of(e.body)
    _loops(context, made, [(k.name, context.launch.extent(n)) for k, n in e.over], body, state, evaluate)
    return made.result(context.block, made.joined(context.block, state, 1))


def prefix(context: Context, e: Prefix, evaluate: Evaluate) -> str:
    """A running fold up to an index."""
    made = Fold(e.monoid, e.dtype, e.body.dtype, context.launch.library, running=True)
    last = evaluate(context, context.launch.terms.of(e.last))
    end = context.block.let(context.launch.index_type, f"({context.launch.index_type}){last} + 1", "n")
    state = made.declare(context.block, 1)
    _loops(context, made, [(e.index.name, end)], context.launch.terms.of(e.body), state, evaluate)
    return made.result(context.block, made.joined(context.block, state, 1))


def partition_point(context: Context, e: PartitionPoint, evaluate: Evaluate) -> str:
    """How many positions pass a test that all others fail."""
    at = context.block.variable("long long", "0", "at")
    left = context.block.variable(context.launch.index_type, context.launch.extent(e.extent), "left")
    with context.block.inner(f"while ({left} > 0)") as inside:
        half = inside.let(context.launch.index_type, f"({left} + 1) / 2", "half")
        k = inside.let(context.launch.index_type, f"({context.launch.index_type}){at} + {half} - 1", "k")
        test = evaluate(context.at(inside).bind(e.index.name, k), context.launch.terms.of(e.test))
        inside.line(f"{at} += {test} ? {half} : 0;")
        inside.line(f"{left} -= {half};")
    return at


def _loops(context: Context, made: Fold, over: Sequence[tuple[str, str]], body: Term, state: Sequence[str],
           evaluate: Evaluate) -> None:
    if not over:
        position = f"(long long){context.names[LAST]}" if made.positions else ""
        made.step(context.block, state, "0", element(context, made, body, evaluate), position)
        return
    (name, end), rest = over[0], over[1:]
    k = context.block.fresh("k")
    with context.block.inner(f"for ({context.launch.index_type} {k} = 0; {k} < {end}; ++{k})") as inside:
        _loops(context.at(inside).bind(name, k).bind(LAST, k), made, rest, body, state, evaluate)


LAST = "the last loop of a fold"
